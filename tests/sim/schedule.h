/* Tables of schedules written by hand: a world, its faults, and what must come of them. Seconds are of virtual time. */
#pragma once

#include "sim_assert.h"

#define SCHEDULE_FAULTS_MAX 6
#define SCHEDULE_MARKS_MAX 5
#define SCHEDULE_ENDS_MAX 3
#define EVER 1e9 /* the end of a mark: any time */

enum schedule_world { WORLD_CALM = 0, WORLD_ARBITER, WORLD_LEADER_FILE };

/* Something happens in this interval; until 0: it does not happen at all. */
struct schedule_mark {
    enum world_leader_file what;
    uint32_t host; /* ANY */
    unsigned nth;
    double from, until;
};
/* How the newest agent of a host ends. */
struct schedule_end {
    uint32_t host; /* ANY: all hosts */
    enum member_end_kind kind;
    const char *reason;      /* a part of it; NULL: any */
    const char *failed_node; /* of the first cause; NULL: not checked */
};

/* 0 and NULL: as in the world, or not checked. */
struct schedule {
    const char *name;
    void (*make)(struct world_params *p); /* instead of world, hosts and min_nodes */
    enum schedule_world world;
    uint32_t hosts, min_nodes, max_nodes, max_restarts;
    double work, join_timeout, last_call;
    double comes[WORLD_HOSTS_MAX]; /* when the agent is started */
    bool kills_nothing;
    unsigned seeds; /* 1 to this; 0: the world's own */
    struct {
        enum fault_kind kind;
        double at;
        uint32_t host;
        int64_t arg, arg2;
    } faults[SCHEDULE_FAULTS_MAX];
    enum outcome outcome;
    uint32_t groups, epoch;
    struct schedule_mark marks[SCHEDULE_MARKS_MAX];
    struct schedule_end ends[SCHEDULE_ENDS_MAX];
};

/* Runs a world to its end; every invariant must hold. TRACE=1 prints the run. The caller must free it. */
struct world *schedule_run_world(const struct world_params *p);
/* Runs each row, and checks what came of it. */
void schedule_check(const struct schedule *rows, size_t n);
