/* A world in a box: hosts with clocks of their own, agents that run the product's `struct member`,
 * the leader's `struct group` on host 0, their launchers, guardians, listeners and connections, in
 * virtual time and with one stream of random numbers. It keeps watch over the invariants of the
 * rendezvous after every step. Not a test itself: group_sim.c, directed_sim.c and mutants_sim.c are.
 *
 *     struct world_params p;
 *     world_params_random(&p, seed);             or world_params_calm(&p, hosts) and world_params_fault()
 *     struct world *w = world_new(&p, &coverage);
 *     bool ok = world_run_to(w, TIME_NEVER);     else world_failure(w) says what was broken and when
 *     world_free(w);
 *
 * The same params give the same run, to the last step. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/prng.h"
#include "rendezvous/group.h"
#include "rendezvous/member.h"

#define WORLD_HOSTS_MAX 8
#define WORLD_LIVES_MAX 32 /* lives of agents: a restarted agent is another one */
#define WORLD_WORKERS_MAX 3
#define WORLD_FAULTS_MAX 48
#define WORLD_GROUPS_MAX 128
#define WORLD_MOVES_MAX 8

enum fault_kind {
    FAULT_BOOT = 1,     /* an agent is started on the host, if none is there and it is not host 0 again */
    FAULT_WORKER,       /* one worker of the host ends with exit code arg, or with a signal where arg < 0 */
    FAULT_WORKERS,      /* workers of several hosts end within some ms (arg: a mask of hosts) */
    FAULT_AGENT_KILL,   /* SIGKILL to the agent; its guardian takes arg ns to kill the rest */
    FAULT_HOST_OFF,     /* everything on the host vanishes and nothing answers until it boots */
    FAULT_FREEZE_AGENT, /* SIGSTOP for arg ns: only the agent */
    FAULT_FREEZE_HOST,  /* the whole machine stands still for arg ns */
    FAULT_CUT,          /* its connection ends: arg = enum cut_mode */
    FAULT_PARTITION,    /* nothing passes for arg ns between it and the leader: arg2 = 1 to it, 2 from it, 3 */
    FAULT_DELAY,        /* words to and from it take up to arg2 ns longer, for arg ns */
    FAULT_PREPARE_FAILS,
    FAULT_PREPARE_SLOW, /* longer than the form timeout */
    FAULT_SPAWN_FAILS,
    FAULT_IGNORE_TERM,
    FAULT_UNKILLABLE, /* the workers that run there now can't be killed any more */
    FAULT_STORE_FAILS,
    FAULT_OPERATOR_STOP,
    FAULT_LEAVE, /* the agent gets a signal; arg = grace */
    FAULT_KIND_COUNT,
};

enum cut_mode { CUT_BOTH_SEE = 0, CUT_LEADER_SEES, CUT_NODE_SEES, CUT_SILENT, CUT_MODE_COUNT };

struct fault {
    enum fault_kind kind;
    uint64_t at_ns;
    uint32_t host;
    int64_t arg, arg2;
};

/* Wrong rules, put between the world and the product's machines: each has to be found. */
enum mutant {
    MUTANT_NONE = 0,
    MUTANT_SKIP_ACK,           /* the leader takes a told FORM for an acknowledged one */
    MUTANT_SILENT_IS_GONE,     /* a probe that says nothing is taken for gone */
    MUTANT_DISCONNECT_IS_GONE, /* the end of a connection is taken for the end of the node */
    MUTANT_START_NO_LEASE,     /* START counts without a lease */
    MUTANT_LEASE_FROM_RECEIPT, /* a lease is counted from when it came, not from when it was asked for */
    MUTANT_NO_FENCE,           /* the agent does not kill at the end of its lease */
    MUTANT_NO_GUARDIAN,        /* nor does the guardian, for a frozen agent */
    MUTANT_STALE_FAILURE,      /* a failure of an older generation is taken for one of this */
    MUTANT_NO_MARGIN,          /* a node counts as lost at the end of its lease, without margin */
    MUTANT_KEEP_WORKERS,       /* "all gone" is said before the workers are dead */
    MUTANT_FAILED_IS_STOPPED,  /* the leader takes a failed node for a stopped one */
    MUTANT_WRONG_RANK,         /* two nodes get the same place in FORM */
    MUTANT_RAW_CLOCKS,         /* times of failures are compared as each node's clock has them */
    MUTANT_TOO_MANY,           /* the group may have one node more than max */
    MUTANT_CHARGE_TWICE,       /* a failed node counts its failure too, and the leader takes the larger count */
    MUTANT_COUNT,
};
const char *mutant_name(enum mutant m);

struct world_params {
    uint64_t seed; /* of delays and the like */
    uint32_t n_hosts;
    uint32_t nproc[WORLD_HOSTS_MAX];
    uint64_t offset_ns[WORLD_HOSTS_MAX]; /* of the host's clock */
    int64_t rate_ppm[WORLD_HOSTS_MAX];
    struct group_config group; /* leader_incarnation is filled in by the world */
    struct member_config member;
    uint64_t delay_min_ns, delay_max_ns; /* of a word, one way */
    uint64_t work_ns;                    /* how long a whole group has to run to be finished */
    uint64_t noise_ns;      /* after a failure, workers elsewhere fail within this time; 0: they hang */
    bool says_gone;         /* launchers notice by themselves when nothing is left */
    bool calm_network;      /* no fault here delays or loses words: nobody may lose a leader that is there */
    bool honest_clocks;     /* within 100 ppm, and no fault here delays single words: first causes are checked */
    uint64_t end_ns;        /* everybody has to have ended by then */
    size_t n_faults;
    struct fault faults[WORLD_FAULTS_MAX];
    enum mutant mutant;
    FILE *trace; /* NULL: none */
};

/* Everything from one seed. */
void world_params_random(struct world_params *ret, uint64_t seed);
/* `hosts` hosts that start at once, perfect clocks, 1 worker each, 1 ms delay, min = max = hosts. */
void world_params_calm(struct world_params *ret, uint32_t hosts);
struct fault *world_params_fault(struct world_params *p, enum fault_kind kind, uint64_t at_ns, uint32_t host,
                                 int64_t arg, int64_t arg2);
void fault_print(const struct fault *f, FILE *out);

/* What was visited, over many worlds. */
struct world_coverage {
    uint64_t group_states[GROUP_STATE_COUNT], member_states[MEMBER_STATE_COUNT];
    uint64_t group_moves[GROUP_STATE_COUNT][GROUP_STATE_COUNT];
    uint64_t member_moves[MEMBER_STATE_COUNT][MEMBER_STATE_COUNT];
    uint64_t group_events[GROUP_EVENT_KIND_COUNT], group_effects[GROUP_EFFECT_KIND_COUNT];
    uint64_t member_events[MEMBER_EVENT_KIND_COUNT], member_effects[MEMBER_EFFECT_KIND_COUNT];
    uint64_t ends[MEMBER_END_LEFT + 1];
    uint64_t worlds, steps, groups_started, causes_checked;
};

struct world;
struct world *world_new(const struct world_params *p, struct world_coverage *coverage);
void world_free(struct world *w);
/* Runs until nothing is left to happen, or until `until_ns`. False: an invariant is broken. */
bool world_run_to(struct world *w, uint64_t until_ns);
const char *world_failure(const struct world *w);
uint64_t world_now(const struct world *w);

/* A whole world: false, and what was broken. An assertion of the product's counts as broken. */
#define WORLD_WHAT_MAX 1024
bool world_try(const struct world_params *p, struct world_coverage *coverage, char what[WORLD_WHAT_MAX]);

/* For directed schedules. */
enum world_mark { MARK_FORMED = 1, MARK_STARTED, MARK_GONE, MARK_FENCED, MARK_LOST, MARK_LEADER_CLOSED, MARK_ENDED };
/* When the nth (from 0) such thing happened on the host (WORLD_HOSTS_MAX: any): TIME_NEVER if it did not. */
uint64_t world_when(const struct world *w, enum world_mark mark, uint32_t host, unsigned nth);
const struct group *world_group(const struct world *w);
const struct member *world_member(const struct world *w, uint32_t host); /* of the newest life there */
enum outcome world_outcome(const struct world *w);                       /* what the group closed with */
uint32_t world_groups_started(const struct world *w);
