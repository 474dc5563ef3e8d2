/* Evidence of a small job, made by hand: ranks 0, 1 on node a, 2, 3 on node b, ... Each rank waits in an allreduce of
 * train.py:76, unless a test says otherwise. */
#pragma once

#include "watchdog/judge/suspects.h"

#define RIG_RANKS_MAX 64

struct suspects_rig {
    uint32_t n, n_nodes;
    uint32_t nodes_of[RIG_RANKS_MAX];
    struct evidence nodes[RIG_RANKS_MAX];
    struct suspects_node list[RIG_RANKS_MAX];
    struct suspects_input in;
    struct suspects found;
    struct strbuf line;
};

/* Two ranks on each node; names a, b, c, ... */
void suspects_rig_init(struct suspects_rig *r, uint32_t n_ranks);
void suspects_rig_fini(struct suspects_rig *r);
struct evidence_worker *rig_worker(struct suspects_rig *r, uint32_t rank);
struct evidence_thread *rig_main(struct suspects_rig *r, uint32_t rank);
/* Its stack: "load data.py 20 read /usr/lib/python3.11/io.py 5": pairs of three, innermost first; "": none. */
int32_t rig_stack(struct suspects_rig *r, uint32_t rank, const char *frames);
/* What it does: state, system call, kernel's function, target, stack ("" keeps the one it has). */
void rig_does(struct suspects_rig *r, uint32_t rank, char state, const char *syscall, const char *wchan,
              const char *target, const char *frames);
void rig_child(struct suspects_rig *r, uint32_t rank, const char *syscall, const char *wchan, const char *target);
/* Compares; the line is in r->line. */
void rig_find(struct suspects_rig *r);
