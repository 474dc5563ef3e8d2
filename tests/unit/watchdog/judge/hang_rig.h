/* A job as the machine of watchdog/judge sees it: workers on nodes, sampled once a second, that follow what
 * hang.h says of when nodes speak. Virtual time, in steps of RIG_DT. */
#pragma once

#include "watchdog/judge/hang.h"

#define RIG_DT (100 * NS_PER_MS)
#define RIG_RANKS_MAX 64
#define RIG_NODES_MAX 16

struct rig_worker {
    bool moving;    /* what it does now: its main thread runs each step */
    uint32_t flags; /* SIGN_*, but MOVED */
    uint64_t place;
    uint64_t step, deadline_ns, announced_at;
    bool ended;
    /* the rig's own */
    uint64_t moved_at, born_at, told_deadline_ns;
    bool moved_once, moved_since, told_ended, told_unseen;
};

struct rig_node {
    uint64_t next_sample; /* phase */
    bool speaking, stalled;
};

struct rig {
    struct hang *h;
    struct hang_limits limits;
    uint64_t now, skew; /* by how much the leader's clock is ahead */
    uint32_t n, n_nodes;
    uint32_t nodes[RIG_RANKS_MAX];
    struct rig_worker w[RIG_RANKS_MAX];
    struct rig_node node[RIG_NODES_MAX];
    bool leader_stalled;
    uint64_t deadline; /* of the machine */
    uint32_t sent;     /* messages of nodes */
    struct hang_update last;
    /* what the machine said: counted since rig_start() */
    uint32_t hangs, reports, recoveries;
    uint64_t hung_at, report_at; /* the last one */
    enum hang_why why;           /* of the last hang */
    char text[HANG_TEXT_MAX];
    uint32_t n_suspects;
    struct hang_suspect suspects[RIG_RANKS_MAX];
};

/* The usual limits: 180 s, 1800 s, 30 s. All workers move. */
void rig_init(struct rig *r, uint32_t n_ranks, uint32_t n_nodes);
void rig_limits(struct rig *r, const struct hang_limits *limits); /* another machine, started again */
void rig_fini(struct rig *r);
void rig_start(struct rig *r);      /* a new generation: all workers are new */
void rig_new_leader(struct rig *r); /* of the same workers */
void rig_event(struct rig *r, struct hang_event event);
void rig_run(struct rig *r, double seconds);
/* Until it says that the job hangs, but not for longer than this. The seconds from now on; -1: never. */
double rig_until_hung(struct rig *r, double seconds);
void rig_all(struct rig *r, bool moving); /* all of them move, or none */
