#include "cli/stacks/stacks_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "watchdog/judge/suspects.h"

/* The answer, read: what the comparison needs. */
struct shown {
    uint32_t n_ranks, n_nodes; /* n_nodes: with a rank that was asked for */
    struct suspects_node *nodes;
    struct evidence *evidence; /* [n_nodes] */
    uint32_t *nodes_of;        /* of each rank; 0 if it was not asked for */
    bool *chosen;              /* the same */
    uint32_t n_chosen;
};

static void shown_fini(struct shown *s) {
    for (uint32_t i = 0; i < s->n_nodes; i++)
        evidence_fini(&s->evidence[i]);
    free(s->nodes);
    free(s->evidence);
    free(s->nodes_of);
    free(s->chosen);
}

static bool is_chosen(const struct stacks_view *v, const struct rdzv_stacks *head, uint32_t rank) {
    return rank_set_has(v->ranks, rank) && (v->node == NULL || strcmp(v->node, head->name) == 0);
}

/* Workers that were not asked for are not in the JSON either. */
static void drop_others(struct evidence *e, const struct shown *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n_workers; i++) {
        uint32_t rank = e->workers[i].rank;
        if (rank < s->n_ranks && s->chosen[rank]) {
            e->workers[n++] = e->workers[i];
        } else {
            struct evidence alone = {.n_workers = 1, .workers = xcalloc(1, sizeof *alone.workers)};
            alone.workers[0] = e->workers[i];
            evidence_fini(&alone);
        }
    }
    e->n_workers = n;
}

static void read_node(const struct operator_stacks_node *from, struct shown *s) {
    struct suspects_node *node = &s->nodes[s->n_nodes];
    struct evidence *e = &s->evidence[s->n_nodes++];
    struct err err = {0};
    *node = (struct suspects_node){.name = from->head.name, .missing = from->head.missing};
    if (from->evidence == NULL)
        return;
    node->missing = NULL;
    if (evidence_read(from->evidence, from->len, e, &err) < 0) {
        node->missing = "its answer can't be read";
        return;
    }
    node->evidence = e;
    drop_others(e, s);
}

static int read_all(const struct stacks_view *v, struct shown *s, struct err *err) {
    const struct operator_stacks *a = v->answer;
    s->n_ranks = a->n > 0 ? a->nodes[0].head.world_size : 0;
    if (s->n_ranks > HANG_RANKS_MAX || a->n > SUSPECTS_NODES_MAX)
        return err_set(err, -E2BIG, "the job has %" PRIu32 " workers; at most %d can be compared",
                       s->n_ranks, HANG_RANKS_MAX);
    s->nodes = xcalloc(a->n + (size_t)1, sizeof *s->nodes);
    s->evidence = xcalloc(a->n + (size_t)1, sizeof *s->evidence);
    s->nodes_of = xcalloc(s->n_ranks + (size_t)1, sizeof *s->nodes_of);
    s->chosen = xcalloc(s->n_ranks + (size_t)1, sizeof *s->chosen);
    for (uint32_t i = 0; i < a->n; i++) {
        const struct rdzv_stacks *head = &a->nodes[i].head;
        uint32_t before = s->n_chosen;
        for (uint32_t r = head->first_rank; r < head->first_rank + head->nproc; r++) {
            s->chosen[r] = is_chosen(v, head, r);
            s->nodes_of[r] = s->chosen[r] ? s->n_nodes : 0;
            s->n_chosen += s->chosen[r];
        }
        if (s->n_chosen > before)
            read_node(&a->nodes[i], s);
    }
    return 0;
}

static int refuse_empty(const struct stacks_view *v, const struct shown *s, struct err *err) {
    const struct operator_stacks *a = v->answer;
    bool known = v->node == NULL;
    for (uint32_t i = 0; i < a->n && !known; i++)
        known = strcmp(v->node, a->nodes[i].head.name) == 0;
    if (!known)
        return err_set(err, -ENOENT,
                       "no worker runs on a node '%.100s'; \"muster status\" shows the nodes",
                       v->node);
    return err_set(err, -ENOENT,
                   "none of these ranks runs %s%.100s: the job has ranks 0 to %" PRIu32,
                   v->node == NULL ? "in the job" : "on node ", v->node == NULL ? "" : v->node,
                   s->n_ranks - 1);
}

/* Some of the ranks that were asked for are shown, but these don't exist. False: there are none. */
static bool report_absent(const struct stacks_view *v, const struct shown *s, struct err *err) {
    _cleanup_(strbuf_fini) struct strbuf absent = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->ranks->n; i++) {
        uint32_t from = MAX2(v->ranks->ranges[i].from, s->n_ranks), to = v->ranks->ranges[i].to;
        if (from > to)
            continue;
        strbuf_printf(&absent, "%s%" PRIu32, n > 0 ? "," : "", from);
        if (to > from)
            strbuf_printf(&absent, "-%" PRIu32, to);
        n += from == to ? 1 : 2;
    }
    if (n > 0)
        (void)err_set(err, -ENOENT, "there %s %.100s: the job has ranks 0 to %" PRIu32,
                      n == 1 ? "is no rank" : "are no ranks", strbuf_text(&absent), s->n_ranks - 1);
    return n > 0;
}

static void add_title(const struct stacks_view *v, const struct shown *s, struct strbuf *ret) {
    strbuf_printf(ret, "job %s: %" PRIu32 " %s on %" PRIu32 " %s", v->run_id, s->n_ranks,
                  s->n_ranks == 1 ? "worker" : "workers", v->answer->n,
                  v->answer->n == 1 ? "node" : "nodes");
    if (s->n_chosen < s->n_ranks)
        strbuf_printf(ret, "; shown: %" PRIu32, s->n_chosen);
}

static bool show(const struct stacks_view *v, const struct shown *s, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf title = {0};
    _cleanup_(suspects_fini) struct suspects found = {0};
    struct generation g = v->answer->nodes[0].head.generation;
    char generation[32];
    add_title(v, s, &title);
    (void)snprintf(generation, sizeof generation, "%" PRIu32 ".%" PRIu32, g.epoch, g.counter);
    struct suspects_input in = {.n_ranks = s->n_ranks,
                                .nodes_of = s->nodes_of,
                                .n_nodes = s->n_nodes,
                                .nodes = s->nodes,
                                .job = v->run_id,
                                .generation = generation,
                                .wall_ns = v->wall_ns,
                                .what = v->json ? NULL : strbuf_text(&title),
                                .chosen = s->n_chosen < s->n_ranks ? s->chosen : NULL,
                                .on_request = true};
    suspects_find(&in, &found);
    if (v->json) {
        suspects_json(&found, ret);
        strbuf_add_char(ret, '\n');
    } else {
        suspects_text(&found, ret);
    }
    return found.n_missing == 0;
}

int stacks_show(const struct stacks_view *v, struct strbuf *ret, struct err *err) {
    _cleanup_(shown_fini) struct shown s = {0};
    int r = read_all(v, &s, err);
    if (r == 0 && s.n_chosen == 0)
        r = refuse_empty(v, &s, err);
    if (r < 0)
        return r;
    bool whole = show(v, &s, ret);
    return report_absent(v, &s, err) ? 0 : whole;
}
