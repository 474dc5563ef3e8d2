#include "profile_rig.h"

#include <string.h>

enum { MODULE, MAIN, GETITEM, FORWARD, BACKWARD, ENGINE, N_FRAMES };
static char texts[N_FRAMES][2][64] = {
    [MODULE] = {"<module>", "/home/u/train.py"},
    [MAIN] = {"main", "/home/u/train.py"},
    [GETITEM] = {"__getitem__", "/home/u/loader.py"},
    [FORWARD] = {"<lambda> & \"forward\"", "/home/u/<model>.py"},
    [BACKWARD] = {"backward", "/x/site-packages/torch/_tensor.py"},
    [ENGINE] = {"_engine_run_backward", "/x/site-packages/torch/autograd/graph.py"},
};
static const uint32_t lines[N_FRAMES] = {90, 70, 41, 12, 623, 979};
/* Frames from outside; the last is what runs. The first two are of all stacks. */
static const struct profile_stack stacks[] = {{-1, MODULE, 1}, {0, MAIN, 2},     {1, GETITEM, 3},
                                              {1, FORWARD, 3}, {1, BACKWARD, 3}, {4, ENGINE, 4}};

static void add_sample(struct rig *g, uint32_t rank, uint32_t tick) {
    uint32_t at = tick % 10;
    enum profile_class c = at < 4   ? (rank == RIG_LATE ? PROFILE_DATA : PROFILE_LATE)
                           : at < 6 ? PROFILE_FORWARD
                           : at < 9 ? PROFILE_BACKWARD
                                    : PROFILE_NETWORK;
    int32_t stack = c == PROFILE_DATA ? 2 : c == PROFILE_FORWARD ? 3 : 5;
    g->profile.ranks[rank].samples[tick] = (struct profile_sample){.stack = stack, .sleeps = c >= PROFILE_FIRST_WAIT};
    g->findings.classes[(size_t)rank * g->profile.n_ticks + tick] = (uint8_t)c;
}

static void add_row(struct rig *g, uint32_t rank) {
    struct profile_row *row = &g->findings.rows[rank];
    bool late = rank == RIG_LATE;
    *row = (struct profile_row){
        .rank = rank, .works = late ? 0.9 : 0.5, .waits = late ? 0.1 : 0.5, .n_mostly = 2, .gap = ""};
    row->mostly[0] = (struct profile_reason){PROFILE_BACKWARD, 0.3, "main (train.py:70)"};
    row->mostly[1] = (struct profile_reason){PROFILE_FORWARD, 0.2, "<lambda> & \"forward\" (<model>.py:12)"};
    if (late) {
        row->mostly[1] = row->mostly[0];
        row->mostly[0] = (struct profile_reason){PROFILE_DATA, 0.4, "__getitem__ (loader.py:41)"};
    }
}

void rig_setup(struct rig *g, uint32_t n_ranks, uint32_t n_ticks) {
    *g = (struct rig){.profile = {.period_ns = 50 * NS_PER_MS,
                                  .first_tick = 1000,
                                  .n_ticks = n_ticks,
                                  .n_frames = N_FRAMES,
                                  .n_stacks = ARRAY_SIZE(stacks),
                                  .n_ranks = n_ranks}};
    struct profile *p = &g->profile;
    struct profile_findings *f = &g->findings;
    p->frames = xcalloc(N_FRAMES, sizeof *p->frames);
    for (uint32_t i = 0; i < N_FRAMES; i++)
        p->frames[i] = (struct profile_frame){texts[i][0], texts[i][1], lines[i], 0};
    p->stacks = xcalloc(ARRAY_SIZE(stacks), sizeof *stacks);
    memcpy(p->stacks, stacks, sizeof stacks);
    p->ranks = xcalloc(n_ranks, sizeof *p->ranks);
    *f = (struct profile_findings){
        .n_ranks = n_ranks, .n_ticks = n_ticks, .span_ns = n_ticks * p->period_ns, .n_rows = n_ranks};
    f->rows = xcalloc(n_ranks, sizeof *f->rows);
    f->classes = xcalloc((size_t)n_ranks * n_ticks, 1);
    for (uint32_t r = 0; r < n_ranks; r++) {
        p->ranks[r] = (struct profile_rank){
            .rank = r, .samples = xcalloc(n_ticks, sizeof(struct profile_sample)), .room = n_ticks};
        add_row(g, r);
        for (uint32_t t = 0; t < n_ticks; t++)
            add_sample(g, r, t);
    }
    double others = (n_ranks - 1.0) / n_ranks;
    f->shares[PROFILE_LATE] = 0.4 * others;
    f->shares[PROFILE_DATA] = 0.4 / n_ranks;
    f->shares[PROFILE_FORWARD] = 0.2;
    f->shares[PROFILE_BACKWARD] = 0.3;
    f->shares[PROFILE_NETWORK] = 0.1;
    f->communication = 0.9;
    f->load_balance = (0.5 * others + 0.9 / n_ranks) / 0.9;
    f->n_late = 1;
    f->late[0] = (struct profile_late){.rank = RIG_LATE,
                                       .how = PROFILE_IS_LATE,
                                       .share = 0.4,
                                       .works = 0.9,
                                       .others_work = 0.5,
                                       .n_reasons = 1,
                                       .reasons = {{PROFILE_DATA, 0.4, "__getitem__ (loader.py:41)"}}};
    g->view = (struct profile_view){
        .run_id = "r<&>1", .profile = p, .findings = f, .world_size = n_ranks, .n_nodes = 1, .ranks = &g->ranks};
}

void rig_fini(struct rig *g) {
    for (uint32_t r = 0; r < g->profile.n_ranks; r++)
        free(g->profile.ranks[r].samples);
    free(g->profile.frames);
    free(g->profile.stacks);
    free(g->profile.ranks);
    free(g->findings.rows);
    free(g->findings.classes);
    *g = (struct rig){0};
}
