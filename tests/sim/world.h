/* A world in a box: hosts with clocks of their own, agents that run the product's `struct member` and, where they lead,
 * its `struct group`; their launchers, guardians, listeners and connections, an arbiter or a leader file, in virtual
 * time and with one stream of random numbers. It checks the invariants of the rendezvous after every step. It is not a
 * test itself; the *_sim.c files are.
 *
 * Who can lead is group.leadership: NONE and LEADER_FILE have an endpoint on host 0, whose agents lead (with
 * LEADER_FILE also an agent started there later); with ARBITER it is whoever claims.
 *
 *     struct world_params p;
 *     world_params_random(&p, seed);          or world_params_calm(&p, hosts), and faults
 *     struct world *w = world_new(&p, &coverage);
 *     bool ok = world_run_to(w, TIME_NEVER);  else world_failure(w): what was broken, and when
 *     world_free(w);
 *
 * The same params give the same run, to the last step. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/prng.h"
#include "launcher/agent/agent_life.h"
#include "rendezvous/client/search.h"
#include "rendezvous/leader/group.h"
#include "rendezvous/member/member.h"

#define WORLD_HOSTS_MAX 8
#define WORLD_LIVES_MAX 32 /* lives of agents: a restarted agent is another one */
#define WORLD_WORKERS_MAX 3
#define WORLD_FAULTS_MAX 48
#define WORLD_GROUPS_MAX 128
#define WORLD_EPOCHS_END 60 /* more than any honest run needs */

enum fault_kind {
    FAULT_BOOT = 1,     /* an agent is started on the host, if none is there */
    FAULT_WORKER,       /* one worker of the host ends: exit code arg, a signal where arg < 0 */
    FAULT_WORKERS,      /* workers of several hosts end within some ms (arg: a mask of hosts) */
    FAULT_KILL_WORKERS, /* all workers of the host die of signal arg, which nobody here has sent */
    FAULT_AGENT_KILL,   /* SIGKILL to the agent; its guardian takes arg ns to kill the rest */
    FAULT_HOST_OFF,     /* everything on the host vanishes and nothing answers until it boots */
    FAULT_FREEZE_AGENT, /* SIGSTOP for arg ns: only the agent */
    FAULT_FREEZE_HOST,  /* the whole machine stands still for arg ns */
    FAULT_PAUSE,        /* all machines stand still for arg ns, each for up to arg2 ns longer */
    FAULT_FENCE_LATE,   /* the guardian acts on the end of a lease that has just been renewed */
    FAULT_CUT,          /* its connection ends: arg = enum cut_mode */
    FAULT_PARTITION,    /* nothing passes for arg ns: arg2 = PARTITION_*, or them all */
    FAULT_DELAY,        /* messages to and from it take up to arg2 ns longer, for arg ns */
    FAULT_PREPARE_FAILS,
    FAULT_PREPARE_SLOW, /* longer than the form timeout */
    FAULT_SPAWN_FAILS,
    FAULT_IGNORE_TERM,
    FAULT_UNKILLABLE, /* the workers that run there now can't be killed any more */
    FAULT_STORE_FAILS,
    FAULT_OPERATOR_STOP,
    FAULT_LEAVE,        /* the agent is told to end; arg = grace, arg2 = enum leave_how */
    FAULT_ARBITER_OUT,  /* no answer for arg ns; to the host only, or arg2 = 1: to nobody */
    FAULT_ARBITER_SLOW, /* each request takes up to arg2 ns longer, for arg ns; host: its own */
    /* the arbiter's data is gone: for arg ns, 0: for ever; arg2 = 1: another job's is in its place
     */
    FAULT_ARBITER_EMPTIED,
    FAULT_TOUCH_FAILS, /* of the leader file, for arg ns */
    FAULT_SAFE_POINT,  /* a worker reports that it can be stopped now */
    FAULT_EXCLUDE,     /* an operator excludes the host's node */
    FAULT_GROW,        /* an operator admits the waiting nodes */
    FAULT_STOP,        /* an operator stops the job with a command */
    FAULT_HANG,        /* the watchdog says that the host's worker hangs; arg 1: no worker is suspected */
    FAULT_SICK,        /* the host's agent finds that its node is sick (arg 1), or fit again (0) */
    FAULT_DRAWN_COUNT, /* what follows is in schedules written by hand only */
    /* arg nodes join the leader on this host, and never send again */
    FAULT_CROWD = FAULT_DRAWN_COUNT,
    FAULT_KIND_COUNT,
};
/* AGENT_KILL and HOST_OFF: arg2 > 0: an agent is started there again so much later. */

/* What is at an address that a node tries. */
enum world_door {
    DOOR_OURS = 0,  /* the agent that it looks for, if one is there */
    DOOR_NOTHING,   /* connections are refused */
    DOOR_SILENT,    /* no answer */
    DOOR_HANGS_UP,  /* a program that ends the connection */
    DOOR_OTHER_RUN, /* an agent of another run */
    DOOR_BABBLES,   /* a program that answers what muster does not */
    DOOR_COUNT,
};
#define WORLD_DOORS_MAX 4

/* Ways of a PARTITION; a mask of the hosts that it is cut off from << 2, 0: all. */
#define PARTITION_TO 1
#define PARTITION_FROM 2
#define PARTITION_BOTH 3
#define PARTITION_HOST(h) (INT64_C(4) << (h))

/* In place of a host: the host that has this role when the fault happens. */
#define HOST_LEADER 100
#define HOST_SUCCESSOR(n) (101 + (n))

/* By a signal, by an operator, or because it cannot continue. */
enum leave_how { LEAVE_TERM = 0, LEAVE_INT, LEAVE_DRAIN, LEAVE_FAILS };

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
    MUTANT_LEASE_FROM_RECEIPT, /* a lease is counted from when it came, not from when it was asked
                                  for */
    MUTANT_NO_FENCE,           /* the agent does not kill at the end of its lease */
    MUTANT_NO_GUARDIAN,        /* nor does the guardian, for a frozen agent */
    MUTANT_STALE_FAILURE,      /* a failure of an older generation is taken for one of this */
    MUTANT_NO_MARGIN,          /* a node counts as lost at the end of its lease, without margin */
    MUTANT_KEEP_WORKERS,       /* "all gone" is said before the workers are dead */
    MUTANT_FAILED_IS_STOPPED,  /* the leader takes a failed node for a stopped one */
    MUTANT_WRONG_RANK,         /* two nodes get the same place in FORM */
    MUTANT_RAW_CLOCKS,         /* times of failures are compared as each node's clock has them */
    MUTANT_TOO_MANY,           /* the group may have one node more than max */
    MUTANT_CHARGE_TWICE,       /* a failed node counts it too, and the leader takes the larger count */
    /* of succession */
    MUTANT_NO_WAIT,             /* rule 7: a new leader waits for no lease of earlier epochs */
    MUTANT_CLAIM_ANY,           /* who asks has won */
    MUTANT_ECHO_NOW,            /* the first successor's last echo is taken for one of now */
    MUTANT_ECHO_ALL,            /* an echo of any node counts as the first successor's */
    MUTANT_NO_ARBITER_TERM,     /* an arbiter that can't be reached is taken for one that agrees */
    MUTANT_NO_LEADER_FILE_TERM, /* leases do not hang on the leader file */
    MUTANT_ANY_LEASE,           /* START is obeyed with a lease of another leader */
    MUTANT_EARLY_CLOSED,        /* CLOSED is told before the arbiter has it */
    MUTANT_HAS_LEADER,          /* a successor that is called claims although it has a leader */
    MUTANT_STILL_BEAT,          /* a successor takes every beat for one that stands still */
    MUTANT_PEER_SILENT_IS_GONE, /* nodes take a silent probe for gone */
    MUTANT_FORGET,              /* a new leader hears of no counters */
    MUTANT_DEAF,                /* a leader hears of no higher epoch */
    MUTANT_SAME_EPOCH,          /* an agent restarted at the endpoint founds the same epoch */
    MUTANT_OLD_LEADER_FILE,     /* and does not wait until the leader file's leases have run out */
    MUTANT_SPLIT_UNIT,          /* a group need be no multiple of the unit */
    MUTANT_LEAVES_RUNNING,      /* a leader that leaves takes all others for stopped */
    MUTANT_VACATES_FIRST,       /* and has that recorded before its own workers are dead */
    MUTANT_ALL_VACANT,          /* every epoch is taken for one that is vacant */
    MUTANT_ALL_IDLE,            /* or for one that is idle */
    MUTANT_FORMS_IDLE,          /* a leader forms its first group in its idle epoch */
    MUTANT_STAYS_IDLE,          /* it claims the next one for it, and leaves that idle */
    MUTANT_LOST_IS_IDLE,        /* who lost the claim after an idle epoch takes the winner's for idle */
    MUTANT_RUIN_IS_SILENCE,     /* data that is gone is taken for an arbiter that can't be reached */
    MUTANT_RUIN_AT_ONCE,        /* and nobody waits whether it comes back */
    MUTANT_RUIN_UNSEEN,         /* another job's data is taken for one's own */
    MUTANT_FOR_EVER,            /* groups that end without a failure are not counted */
    MUTANT_NEVER_PROGRESS,      /* no group runs for long enough to have got anywhere */
    MUTANT_PROBE_CROWD,         /* nodes that wait for a place are probed without a rate */
    /* of failures and losses */
    MUTANT_KILL_IS_FAILURE, /* a killed worker is a failure, whatever becomes of its node */
    MUTANT_NO_ECHO,         /* no failure is the echo of a loss */
    MUTANT_END_AT_ONCE,     /* the job ends for a killed worker before its agent can die, too */
    MUTANT_EARLY_WORDS,     /* a cause is told before it is sure */
    MUTANT_LATE_IS_EARLY,   /* late failures, too, make a crash loop */
    MUTANT_EARLY_IS_LATE,   /* no failure makes a crash loop */
    /* of guardians */
    MUTANT_PAUSE_KILLS,   /* after a pause workers are killed at once */
    MUTANT_HELD_RUNS,     /* workers that wait for a lease are not stopped */
    MUTANT_ANY_CONTINUES, /* they continue with a lease that names another group, or none */
    MUTANT_STALE_FENCE,   /* after the guardian has fenced once, it explains every later SIGKILL */
    /* of the search for the leader */
    MUTANT_ANY_RUN,          /* an agent of any run is taken for one of this run */
    MUTANT_NOT_YET_IS_NEVER, /* a refusal for now is taken for a final one */
    MUTANT_NO_PAUSE,         /* there is no pause between rounds */
    MUTANT_PATIENT,          /* an attempt never ends by itself */
    MUTANT_PROBES_UNHEARD,   /* probes of other ports find nothing */
    MUTANT_END_UNHEARD,      /* the end of the leader's connection is not noticed */
    /* of agents' lives */
    MUTANT_WORKERS_UNSEEN,   /* an agent does not see that workers still run */
    MUTANT_NODES_UNINFORMED, /* a leader does not see that nodes are not informed of the end yet */
    MUTANT_NO_RESIGN,        /* it keeps the lead when its node has left */
    MUTANT_LEADER_LEAVES,    /* at a fixed endpoint it takes another node for its successor */
    MUTANT_ANSWER_UNAWAITED, /* an agent ends before Slurm has answered */
    MUTANT_ANSWER_UNHEARD,   /* the answer does not let it end */
    MUTANT_ONE_SIGNAL,       /* an agent ignores all signals but the first */
    /* of domains */
    MUTANT_MIXED_UNIT,  /* a unit is of nodes of any domain */
    MUTANT_ANY_SPARE,   /* a spare of any domain takes a lost node's place */
    MUTANT_SMALL_GROUP, /* a group is as small as it may be, although whole units wait */
    MUTANT_LATE_DOMAIN, /* a domain that a node reports after its join is not noticed */
    /* of sick nodes */
    MUTANT_SICK_GONE,  /* they are left out even if too few nodes remain */
    MUTANT_SICK_TAKEN, /* they are taken although there are enough others */
    MUTANT_COUNT,
};
const char *mutant_name(enum mutant m);

struct world_params {
    uint64_t seed; /* of delays and the like */
    uint32_t n_hosts;
    uint32_t nproc[WORLD_HOSTS_MAX];
    uint32_t rankless;                   /* of static ranks: the host whose user forgot it; WORLD_HOSTS_MAX: none */
    uint64_t offset_ns[WORLD_HOSTS_MAX]; /* of the host's clock */
    int64_t rate_ppm[WORLD_HOSTS_MAX];
    char domains[WORLD_HOSTS_MAX];            /* of the hosts, 'a' to 'c'; 0: none */
    uint64_t domain_late_ns[WORLD_HOSTS_MAX]; /* its agent knows it so long after its start */
    struct group_config group;                /* leader_incarnation and self are filled in by the world */
    struct member_config member;
    uint64_t delay_min_ns, delay_max_ns; /* of a word, one way */
    uint64_t work_ns;                    /* how long a whole group has to run to be finished */
    uint64_t noise_ns;                   /* after a failure, workers elsewhere fail within this time; 0: they hang */
    bool lingers;                        /* at their end agents wait for Slurm's answers and for comparisons */
    bool says_gone;                      /* launchers notice by themselves when nothing is left */
    bool calm_network;   /* no fault here delays or loses words: nobody may lose a leader that is there */
    bool honest_clocks;  /* within 100 ppm, and no fault here delays single words: first causes are checked */
    bool succeeds;       /* the job may end in no other way */
    bool kills_nothing;  /* no worker may be killed */
    uint64_t end_ns;     /* everybody has to have ended by then */
    uint64_t healed_ns;  /* no fault is in force any more; 0: not known */
    uint64_t recover_ns; /* by so long after it a group runs, if it can; 0: not checked */
    /* The search: ports of the endpoint (0: it has one), of which the leader has leader_port; addresses of a peer, of
     * which the last is right; what is at the others (peers use the last ones). */
    unsigned n_ports, leader_port, n_peer_addrs;
    enum world_door doors[WORLD_DOORS_MAX];
    uint64_t describe_ns; /* how long a node needs until it can send JOIN */
    bool lookup_fails;    /* once for each node */
    size_t n_faults;
    struct fault faults[WORLD_FAULTS_MAX];
    enum mutant mutant;
    FILE *trace; /* NULL: none */
};

bool world_has_fault(const struct world_params *p, enum fault_kind kind);
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
    uint64_t search_states[SEARCH_STATE_COUNT], search_moves[SEARCH_STATE_COUNT][SEARCH_STATE_COUNT];
    uint64_t search_events[SEARCH_EVENT_KIND_COUNT], search_effects[SEARCH_EFFECT_KIND_COUNT];
    uint64_t ends[MEMBER_END_LEFT + 1];
    uint64_t life_states[LIFE_STATE_COUNT], life_moves[LIFE_STATE_COUNT][LIFE_STATE_COUNT];
    uint64_t life_events[LIFE_EVENT_COUNT], life_effects[LIFE_EFFECT_COUNT];
    uint64_t member_elections[ELECTION_COUNT], election_moves[ELECTION_COUNT][ELECTION_COUNT];
    uint64_t notes[TIMELINE_KIND_COUNT];
    uint64_t faults[FAULT_KIND_COUNT];
    uint64_t worlds, steps, groups_started, causes_checked, leaderships, recoveries;
    uint64_t domain_groups; /* of whole units of one domain */
    uint64_t sick_left_out; /* groups that left a sick node out, */
    uint64_t sick_taken;    /* and that took one */
    uint64_t domain_spares; /* of these: a node of the last group was replaced by a spare of its domain */
    uint64_t incidents;
    uint64_t idle_followed; /* idle epochs whose leader was lost, and another's idle one came */
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
enum world_leader_file {
    LEADER_FILE_FORMED = 1, /* on the leader's host */
    LEADER_FILE_STARTED,
    LEADER_FILE_GONE,
    LEADER_FILE_FENCED,
    LEADER_FILE_LOST,
    LEADER_FILE_LEADER_CLOSED, /* on the leader's host */
    LEADER_FILE_ENDED,
    LEADER_FILE_LEADS, /* the host's agent leads from now on */
    LEADER_FILE_DEPOSED,
    LEADER_FILE_CLAIMED,      /* the arbiter has given it an epoch */
    LEADER_FILE_CLOSED_THERE, /* the arbiter has the outcome */
    LEADER_FILE_FINISHED,     /* all workers of the host have ended with 0 */
    LEADER_FILE_VACANT,       /* a leader of this host has left nothing to wait for */
    LEADER_FILE_EMPTIED,      /* the arbiter's data is gone */
    LEADER_FILE_RESUMED,      /* the workers of the host continue after a pause */
};
/* When the nth (from 0) such thing happened on the host (WORLD_HOSTS_MAX: any): TIME_NEVER if it did not. */
uint64_t world_when(const struct world *w, enum world_leader_file leader_file, uint32_t host, unsigned nth);
/* Of the newest leader; NULL. */
const struct group *world_group(const struct world *w);
uint32_t world_leader(const struct world *w);                            /* its host; WORLD_HOSTS_MAX: there is none */
uint32_t world_epoch(const struct world *w);                             /* of the arbiter, or of the leader file */
bool world_running(const struct world *w, uint32_t host);                /* workers live there */
const struct member *world_member(const struct world *w, uint32_t host); /* of the newest life there */
enum outcome world_outcome(const struct world *w);                       /* what the group closed with */
uint32_t world_groups_started(const struct world *w);
