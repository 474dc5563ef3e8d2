#include "suspects_rig.h"

#include "rig/unit.h"

#define WAITS                                                            \
    "wait /usr/lib/python3.11/threading.py 320 all_reduce "              \
    "/venv/lib/python3.11/site-packages/torch/distributed/c10d.py 2501 " \
    "backward /home/u/train.py 76 main /home/u/train.py 120 <module> /home/u/train.py 130"

struct evidence_worker *rig_worker(struct suspects_rig *r, uint32_t rank) {
    struct evidence *e = &r->nodes[r->nodes_of[rank]];
    for (uint32_t i = 0; i < e->n_workers; i++)
        if (e->workers[i].rank == rank)
            return &e->workers[i];
    cr_assert_fail("no rank %u", rank);
    abort();
}

struct evidence_thread *rig_main(struct suspects_rig *r, uint32_t rank) {
    return &rig_worker(r, rank)->threads[0];
}

int32_t rig_stack(struct suspects_rig *r, uint32_t rank, const char *frames) {
    struct pystack_frame list[EVIDENCE_FRAMES_MAX];
    uint32_t n = 0, number;
    int used;
    memset(list, 0, sizeof list);
    for (; sscanf(frames, "%95s %255s %u%n", list[n].function, list[n].file, &list[n].line, &used) == 3; n++)
        frames += used;
    if (n == 0)
        return -1;
    cr_assert_eq(evidence_add_stack(&r->nodes[r->nodes_of[rank]], list, n, &number), 0);
    return (int32_t)number;
}

static void put(char *out, size_t size, const char *text) { (void)snprintf(out, size, "%s", text); }

void rig_does(struct suspects_rig *r, uint32_t rank, char state, const char *syscall, const char *wchan,
              const char *target, const char *frames) {
    struct evidence_thread *t = rig_main(r, rank);
    t->state = state;
    put(t->syscall, sizeof t->syscall, syscall);
    put(t->wchan, sizeof t->wchan, wchan);
    put(t->target, sizeof t->target, target);
    if (frames[0] != '\0')
        t->stack = rig_stack(r, rank, frames);
}

void rig_child(struct suspects_rig *r, uint32_t rank, const char *syscall, const char *wchan, const char *target) {
    struct evidence_worker *w = rig_worker(r, rank);
    w->children = xrealloc(w->children, (w->n_children + 1) * sizeof *w->children);
    struct evidence_child *c = &w->children[w->n_children++];
    *c = (struct evidence_child){.pid = (int32_t)(5000 + 10 * rank + w->n_children),
                                 .main = {.state = 'S', .stack = -1}};
    put(c->name, sizeof c->name, "pt_data_worker");
    put(c->main.syscall, sizeof c->main.syscall, syscall);
    put(c->main.wchan, sizeof c->main.wchan, wchan);
    put(c->main.target, sizeof c->main.target, target);
}

void suspects_rig_init(struct suspects_rig *r, uint32_t n_ranks) {
    static const char *const names[] = {"a", "b", "c", "d"};
    *r = (struct suspects_rig){.n = n_ranks, .n_nodes = (n_ranks + 1) / 2};
    for (uint32_t node = 0; node < r->n_nodes; node++) {
        struct evidence *e = &r->nodes[node];
        uint32_t n = MIN2(2, n_ranks - 2 * node);
        put(e->node, sizeof e->node, names[node % 4]);
        e->workers = xcalloc(n, sizeof *e->workers);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t rank = 2 * node + i;
            struct evidence_worker *w = &e->workers[e->n_workers++];
            *w = (struct evidence_worker){.rank = rank,
                                          .local_rank = i,
                                          .pid = (int32_t)(10 + rank),
                                          .still_ns = 31 * NS_PER_S,
                                          .n_threads = 1,
                                          .threads = xcalloc(1, sizeof *w->threads)};
            w->threads[0].tid = w->pid;
            put(w->threads[0].name, sizeof w->threads[0].name, "python3");
            r->nodes_of[rank] = node;
            rig_does(r, rank, 'S', "futex", "futex_do_wait", "", WAITS);
        }
        r->list[node] = (struct suspects_node){.name = e->node, .evidence = e};
    }
    r->in = (struct suspects_input){.n_ranks = n_ranks,
                                    .nodes_of = r->nodes_of,
                                    .n_nodes = r->n_nodes,
                                    .nodes = r->list,
                                    .what = "nothing has moved for 180 s (--hang-still)",
                                    .quiet_ns = 31 * NS_PER_S};
}

void rig_find(struct suspects_rig *r) {
    suspects_fini(&r->found);
    strbuf_clear(&r->line);
    suspects_find(&r->in, &r->found);
    suspects_line(&r->found, &r->line);
}

void suspects_rig_fini(struct suspects_rig *r) {
    suspects_fini(&r->found);
    strbuf_fini(&r->line);
    for (uint32_t i = 0; i < r->n_nodes; i++)
        evidence_fini(&r->nodes[i]);
    *r = (struct suspects_rig){0};
}
