/* The messages between the leader and the nodes, as plain data. Their format is in wire.h.
 *
 * They carry states, not events: the leader sends each node the state that it should be in (`struct
 * desired`), and a node reports the one that it is in (`struct report`), again after a reconnect. A
 * repeated or old message changes nothing. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/peer_owner.h"
#include "rendezvous/auth/auth.h"
#include "rendezvous/protocol/failure.h"
#include "rendezvous/protocol/settings.h"
#include "watchdog/worker_signs.h"

#define RDZV_HOST_MAX 128  /* host names, addresses */
#define RDZV_DOMAIN_MAX 64 /* the name of a domain of nodes */
#define RDZV_SICK_MAX 256
#define RDZV_ROLE_MAX 64
#define RDZV_RUN_ID_MAX 256
#define RDZV_REASON_MAX 2048
#define RDZV_WORKERS_MAX 4096 /* workers of one node */
#define RDZV_STATUS_NAMES_MAX 16
#define RDZV_ADDR_MAX 64      /* one literal address, with a zone */
#define RDZV_ADDRS_MAX 256    /* literal addresses, separated by commas */
#define RDZV_ENDPOINT_MAX 264 /* HOST:PORT; RFC 1035 §2.3.4 has names of 253 bytes */
#define RDZV_SUCCESSORS_MAX 3
#define RDZV_MEMBERS_CHUNK 64                      /* members of a handover, in one message */
#define RDZV_OVERVIEW_CHUNK 16                     /* nodes of an overview, in one message */
#define RDZV_NETIF_MAX 16                          /* name of a network interface; IFNAMSIZ */
#define RDZV_NET_ADDRS_MAX 96                      /* two literal addresses, separated by a comma */
#define RDZV_NODE_SUMMARY_MAX ((size_t)8 * 1024)   /* bytes of a node's digest, with the NUL */
#define RDZV_SIGNS_CHUNK 48                        /* workers in one message of their signs */
#define RDZV_EVIDENCE_CHUNK_MAX ((size_t)8 * 1024) /* bytes of a piece of evidence, with the NUL */
#define RDZV_EVIDENCE_MAX ((size_t)1 << 20)        /* bytes of a node's evidence */
#define RDZV_PROGRAM_MAX 256
#define RDZV_WARM_REASON_MAX 256
#define RDZV_NEIGHBOURS_MAX 2
#define RDZV_NETS_MAX 2      /* interfaces of a node that its neighbours try */
#define RDZV_WHOSE_CHUNK 256 /* connections in one question whose they are */
#define RDZV_OWNER_NAMES (PEER_UNKNOWN + 1)
#define RDZV_OWN_ADDRS 16 /* addresses of a node from which its workers may come, */
#define RDZV_OWN_ADDRS_MAX (RDZV_OWN_ADDRS * 40) /* separated by commas */

/* Epoch, and a counter within that epoch. Written "2.3"; 0.0: none. */
struct generation {
    uint32_t epoch, counter;
};
static inline int generation_compare(struct generation a, struct generation b) {
    if (a.epoch != b.epoch)
        return a.epoch < b.epoch ? -1 : 1;
    return a.counter == b.counter ? 0 : a.counter < b.counter ? -1 : 1;
}
static inline uint64_t generation_to_u64(struct generation g) {
    return (uint64_t)g.epoch << 32 | g.counter;
}
static inline bool generation_is_none(struct generation g) { return g.epoch == 0; }

/* Where an agent can be reached: its node's listener. */
struct rdzv_peer {
    uint64_t incarnation; /* its HELLO must contain this number; 0: none */
    /* literal addresses to try in turn; "": the address at which the reader reached its leader */
    char addr[RDZV_ADDRS_MAX];
    uint16_t port;
};

/* First the address that workers use. netif "": none. */
struct rdzv_net {
    char netif[RDZV_NETIF_MAX];
    char addrs[RDZV_NET_ADDRS_MAX];
};

/* Nothing secret: `shown` has no value of an argument. All agents of a job must compute the digests
 * in the same way (launcher/job/job.h). */
struct rdzv_program {
    /* the program's name, and the names of its options; "": neither shown nor compared */
    char shown[RDZV_PROGRAM_MAX];
    uint64_t name;         /* digest of how it is run, and of its name without folders */
    uint64_t args;         /* digest of its arguments, unchanged */
    uint32_t max_restarts; /* --max-restarts */
};

/* A node's description of itself when it joins; does not change later. */
struct node_info {
    uint64_t incarnation;     /* random name of this run of this agent; never 0 */
    char host[RDZV_HOST_MAX]; /* host name, for people and for the order of the nodes */
    char role[RDZV_ROLE_MAX];
    /* the port where its listener can be probed, at the address that it came from */
    uint16_t listener_port;
    uint32_t nproc;               /* its workers, >= 1 */
    int32_t node_rank;            /* --node-rank, -1: not given */
    int32_t pid;                  /* of the agent */
    char topology[RDZV_HOST_MAX]; /* its place in the network (SLURM_TOPOLOGY_ADDR), or "" */
    /* for its neighbours: the interface that leads to the leader, then one of a faster network
     * (launcher/preflight/ring_probe_io.h) */
    struct rdzv_net nets[RDZV_NETS_MAX];
    /* as the leader sees it, and fills it in; "": on the leader's machine */
    char addr[RDZV_ADDR_MAX];
};

enum node_state {
    NODE_JOINED = 1, /* no group, no worker */
    NODE_PREPARED,   /* knows group g, no worker started */
    NODE_RUNNING,
    NODE_FINISHED, /* all its workers ended with 0; keeps its place */
    NODE_FAILED,   /* a worker failed (or FORM could not be carried out); others may still run */
    NODE_STOPPED,  /* no process of g is left */
    NODE_CLOSED,   /* has received the outcome; no process is left */
    NODE_STATE_COUNT,
};

struct report {
    enum node_state state;
    struct generation generation; /* that the state belongs to; none when JOINED */
    uint32_t epoch;               /* the highest that it knows of */
    /* it leaves as soon as it has stopped: leaving_why */
    bool leaving;
    bool finished;      /* all its workers of `generation` ended with 0 (also STOPPED) */
    bool at_safe_point; /* a worker of `generation` reports that it can be stopped now */
    /* MUSTER_STEP of a worker in `generation`: the first one, 0: none yet; and the last one now */
    uint64_t first_step, last_step;
    /* PREPARED: by which ways it reaches its neighbours (launcher/preflight/ring_probe_io.h) */
    uint32_t reachability;
    bool excluded; /* a leader has excluded it: excluded_why */
    /* the same on all nodes that share its fast links (a rack's NVLink); "": not known, or none. It
     * can come after the node has joined */
    char domain[RDZV_DOMAIN_MAX];
    char fabric[RDZV_DOMAIN_MAX]; /* for people: the health of these links; or "" */
    /* Why it should not be in the next group, or "". After an Xid of NVIDIA's driver it follows the
     * words about the failure: "80 ms after Xid 79 on GPU 4 (0000:9d:00.0)"; else a colon. The
     * leader decides: man/muster-rendezvous.7 */
    char sick[RDZV_SICK_MAX];
    uint32_t xid; /* 0: it is not sick because of one */
    int32_t gpu;  /* the index of the GPU that makes it sick; -1: none */
    /* its first failure in this generation (FAILED, and STOPPED after it) */
    bool has_failure;
    struct failure failure;
    /* why it can no longer take part (unkillable process), or "" */
    char unusable[RDZV_REASON_MAX / 4];
    char excluded_why[RDZV_HOST_MAX];
    char leaving_why[RDZV_HOST_MAX]; /* "was stopped by SIGTERM" */
    /* counters as it last received them: each side keeps the larger value */
    uint32_t restarts_used, losses;
};

enum desired_kind {
    DESIRED_IDLE = 1, /* joined; wait */
    DESIRED_FORM,     /* prepare for the group in `form`, then report PREPARED */
    DESIRED_START,    /* run, as soon as a lease of this leader names the generation */
    DESIRED_STOP,     /* end all workers, with `grace_ns`, then report STOPPED */
    DESIRED_CLOSED,   /* the job is over, with `outcome`; stop, report CLOSED, exit */
    DESIRED_KIND_COUNT,
};

/* A node next to another one in the ring of a group's node ranks. */
struct rdzv_neighbour {
    uint64_t incarnation;
    char host[RDZV_HOST_MAX];
    struct rdzv_net nets[RDZV_NETS_MAX]; /* as in its node_info */
    uint16_t listener_port;
};

/* One node's place in a group. */
struct form {
    uint32_t node_rank, n_nodes; /* GROUP_RANK, GROUP_WORLD_SIZE */
    /* its workers have the ranks first_rank … first_rank+nproc-1 */
    uint32_t first_rank, world_size;
    uint32_t role_first_rank, role_world_size;
    /* 0: the first agent of its host in the group, 1: the second, … */
    uint32_t host_index;
    char store_host[RDZV_HOST_MAX]; /* literal address of the workers' store */
    uint16_t store_port;
    uint32_t restarts_used, max_restarts; /* of the job */
    uint32_t losses;                      /* nodes lost so far */
    uint64_t log_nonce; /* the same on all nodes of a run, which may share a log folder */
    uint64_t job_ns;    /* the age of the job */
    /* its neighbours in the ring: next, previous; the same one only once */
    uint32_t n_neighbours;
    struct rdzv_neighbour neighbours[RDZV_NEIGHBOURS_MAX];
};

enum outcome { OUTCOME_NONE = 0, OUTCOME_SUCCESS, OUTCOME_FAILED, OUTCOME_COUNT };

struct desired {
    enum desired_kind kind;
    uint32_t epoch;
    struct generation generation; /* FORM, START, STOP */
    struct form form;             /* FORM */
    uint32_t reachability;        /* START: the ways that work for all members */
    bool excluded;                /* IDLE: this node is excluded permanently, for `reason` */
    /* IDLE: a group runs without this node, which can take a place later */
    bool spare;
    /* STOP and CLOSED: `reason`, for people; `failure`: the first, if a failure was the reason */
    /* STOP: the time from SIGTERM to SIGKILL; UINT64_MAX: the node's own --shutdown-timeout */
    uint64_t grace_ns;
    bool will_restart; /* STOP: a new group will be tried */
    char reason[RDZV_REASON_MAX];
    bool has_failure;
    struct failure failure;
    /* STOP: the number of workers that are stopped by it, in the whole job */
    uint32_t n_stopping;
    uint32_t restarts_used, max_restarts, losses;
    enum outcome outcome; /* CLOSED */
    /* CLOSED, failed: the program is not to blame, so it can be run again as it is */
    bool no_fault;
};

/* What a probe of a node found: rendezvous/protocol/probe_io.h. */
enum probe_result {
    /* refused at an address where it had accepted before, or another incarnation answered */
    PROBE_GONE = 1,
    PROBE_ALIVE,   /* it sent its incarnation */
    PROBE_UNKNOWN, /* connected but silent, cut, or no answer: probe again later */
};

/* They claim the epoch after `epoch`, in this order. Sent before FORM, and when they change. */
struct successors {
    uint32_t epoch;
    uint32_t n;
    struct rdzv_peer list[RDZV_SUCCESSORS_MAX];
};
/* The position of a node among them; -1: it is none of them. */
int successors_index(const struct successors *s, uint64_t incarnation);

/* The states of the leader's group; QUIET is the part of RUNNING in which most workers waited. */
enum job_phase {
    JOB_PHASE_GATHERING = 0,
    JOB_PHASE_FORMING,
    JOB_PHASE_RUNNING,
    JOB_PHASE_STOPPING,
    JOB_PHASE_QUIET,
    JOB_PHASE_COUNT,
};
/* What stopped a group. */
enum incident_class {
    INCIDENT_NONE = 0,
    INCIDENT_WORKER,    /* a worker failed */
    INCIDENT_HANG,      /* the job hung */
    INCIDENT_NODE_LOST, /* a node was lost, perhaps that of the leader */
    INCIDENT_NODE_LEFT, /* a node was asked to leave */
    INCIDENT_EXCLUDED,  /* an operator excluded a node */
    INCIDENT_HEALTH,    /* a node is not fit */
    INCIDENT_OPERATOR,  /* an operator or a signal stopped the job */
    INCIDENT_CLASS_COUNT,
};
/* Since the job began; of all its leaders. */
struct job_history {
    uint64_t phase_ns[JOB_PHASE_COUNT];
    uint32_t incidents[INCIDENT_CLASS_COUNT];
    uint64_t down_ns;    /* from first symptoms to the starts that followed */
    uint64_t steps_lost; /* MUSTER_STEPs that were repeated after starts, as far as is known */
};
void job_history_add_quiet(struct job_history *h, uint64_t quiet_ns);

/* What a successor needs to continue the job. Sent only to successors, after they are named. */
struct handover_member {
    uint64_t incarnation;
    char addr[RDZV_ADDR_MAX]; /* as rdzv_peer.addr */
    uint16_t port;
    char host[RDZV_ADDR_MAX]; /* its name, for people; cut where it is longer */
    char domain[RDZV_DOMAIN_MAX];
    /* a member of the last started group; otherwise only of the newest formed group */
    bool started;
};
struct handover {
    uint32_t epoch; /* for which the successors are named */
    /* the newest formed group, and the last started one; or none */
    struct generation formed, started;
    uint32_t restarts_used, losses;
    uint64_t log_nonce;
    struct job_history history; /* when it was sent */
    /* members of the newest formed group: the first n_order of `members` */
    uint32_t n_order;
    /* members of the formed group in rank order, then those of the started group only */
    uint32_t n_members;
    struct handover_member *members; /* owned; handover_fini() */
};
void handover_fini(struct handover *e);
/* Replaces *to (finished first) with a copy. */
void handover_copy(struct handover *to, const struct handover *from);

/* The lease exchange. Each clock is the sender's CLOCK_MONOTONIC in ns. */
struct renew {
    uint64_t clock_ns;        /* the node's clock, now */
    uint64_t leader_clock_ns; /* the leader's clock in the last LEASE that came; 0: none yet */
    /* round trip of the last exchange, as the node measured it; 0: none yet */
    uint64_t rtt_ns;
    uint32_t epoch; /* the highest that the node knows of */
    /* how often its event loop was blocked for LOOP_LONG_NS (io/loop.h), and for how long at
     * most */
    uint32_t stalls;
    uint64_t longest_stall_ns;
};

struct lease {
    uint32_t epoch;
    struct generation prepared; /* the generation for which it is valid; none: it allows no START */
    uint64_t echo_ns;           /* clock_ns of the RENEW that it answers */
    /* valid until echo_ns + validity_ns on the node's clock; 0: no lease */
    uint64_t validity_ns;
    uint64_t clock_ns; /* the leader's clock, now */
};

/* With --warm: the last start, and what waits for the next. Sent when it changes, and after
 * WELCOME. */
struct rdzv_warm {
    struct generation generation; /* of that start; none: there was none */
    uint32_t warm, cold;          /* workers */
    uint32_t waiting;             /* processes */
    /* why the first of the cold ones was; else why nothing waits, or "" */
    char reason[RDZV_WARM_REASON_MAX];
};

/* ---- signs of a job that seems to hang: the launcher's; the group machine does not see them ----
 */

/* All workers of a node, in as many messages as they need, when watchdog/judge/hang.h wants
 * them. */
struct rdzv_signs {
    struct generation generation;
    uint32_t n;
    struct worker_signs list[RDZV_SIGNS_CHUNK];
};
/* What a node answers. Questions of different kinds do not affect each other. */
enum rdzv_ask_what {
    ASK_STACKS = 0, /* evidence (watchdog/evidence/evidence.h) */
    ASK_PROFILE,    /* samples for an operator (watchdog/profile/samples.h) */
    ASK_TIME,       /* samples for the leader's own record of the job's time */
    ASK_WHAT_COUNT,
};
/* The leader asks a node what its workers do. */
struct rdzv_ask {
    struct generation generation;
    uint32_t id; /* of this question: the answer repeats it */
    enum rdzv_ask_what what;
    /* Not 0. STACKS: what is not known by then is left out. Else for how long samples are taken */
    uint64_t timeout_ns;
    uint64_t period_ns; /* of the samples; 0: STACKS */
    bool holds;         /* a stop for a failure that follows waits for the answer */
};
/* Suspects of the hang that ends the group: they get SIGABRT before the stop that follows. With a
 * time, their native stacks are read first, and are the answer. */
#define RDZV_SUSPECTS_MAX 16
struct rdzv_suspects {
    struct generation generation;
    uint32_t id;
    uint64_t timeout_ns; /* 0: nothing is read, and there is no answer */
    uint32_t n;
    uint32_t ranks[RDZV_SUSPECTS_MAX];
};
/* Pieces of the launcher's JSON (watchdog/evidence/evidence.h), in order, cut between
 * characters. */
struct rdzv_evidence {
    uint32_t id;
    bool first, last;
    char text[RDZV_EVIDENCE_CHUNK_MAX];
};
/* Fills in text and last: as much of the rest as fits, cut between characters. Returns how much. */
size_t rdzv_evidence_put(struct rdzv_evidence *piece, const char *rest, size_t len);

/* The leader asks the agent at this address who owns these connections to the workers' store. */
struct rdzv_whose {
    uint32_t id;                /* of this question: the answer repeats it */
    char client[RDZV_ADDR_MAX]; /* the literal address from which they came */
    char store[RDZV_ADDR_MAX];  /* the one at which they were accepted, */
    uint16_t store_port;
    uint32_t n;
    uint16_t ports[RDZV_WHOSE_CHUNK]; /* of the clients */
};
/* The answer: for each port, in the same order; never TRANSLATED, which only the leader knows. */
struct rdzv_owners {
    uint32_t id;
    uint32_t uid; /* the other user, of the first that is OTHER_USER; for people */
    uint32_t n;
    enum peer_owner_kind list[RDZV_WHOSE_CHUNK];
};

/* Which nodes are present: sent to all nodes while they wait. For people only. */
struct rdzv_status {
    uint32_t present, min_nodes, max_nodes;
    uint32_t usable;  /* of those present: in whole units of one domain, if domains count */
    uint64_t wait_ns; /* the time until the leader decides; UINT64_MAX: no limit */
    /* the minimum is present; wait_ns is what is left of the last call */
    bool last_call;
    uint32_t spares;             /* of those present, not usable or beyond max */
    uint32_t n_names, n_missing; /* how many entries of the arrays below are filled */
    char names[RDZV_STATUS_NAMES_MAX][RDZV_HOST_MAX];
    char missing[RDZV_STATUS_NAMES_MAX][RDZV_HOST_MAX]; /* "node rank 2", or a lost node's name */
};

/* ---- commands of operators, and the answers ---- */

enum command_kind {
    COMMAND_STATUS = 1, /* answered by the leader: struct overview, then its nodes */
    /* this node: stop with grace and leave; answered by the agent that was asked */
    COMMAND_LEAVE,
    COMMAND_EXCLUDE, /* node: a host name, or an incarnation in hexadecimal */
    COMMAND_GROW,    /* re-form now, with the waiting nodes */
    COMMAND_STOP,    /* end the job */
    /* what the workers do; answered by the leader: struct rdzv_stacks and evidence for each node */
    COMMAND_STACKS,
    COMMAND_KIND_COUNT,
};

struct command {
    enum command_kind kind;
    char node[RDZV_HOST_MAX];   /* EXCLUDE */
    char reason[RDZV_HOST_MAX]; /* for the record; may be "" */
    uint64_t timeout_ns;        /* STACKS: as in struct rdzv_ask */
    uint64_t period_ns;         /* STACKS: 0, or the answer is samples: ASK_PROFILE */
};

#define RDZV_STACKS_TIMEOUT_MAX_NS (60 * NS_PER_S) /* of "muster stacks" */
#define RDZV_PROFILE_MAX_NS (600 * NS_PER_S)       /* of any */
#define RDZV_PROFILE_PERIOD_MIN_NS (10 * NS_PER_MS)
#define RDZV_PROFILE_PERIOD_MAX_NS (10 * NS_PER_S)
/* After that time, for the answers of nodes that had no CPU for it */
#define RDZV_PROFILE_LATE_NS (10 * NS_PER_S)

/* A node of the group in the answer to STACKS, in rank order. Unless it is missing, its evidence
 * follows in pieces (struct rdzv_evidence, whose id is `node`). */
struct rdzv_stacks {
    struct generation generation;
    uint32_t world_size, n_nodes; /* of the group */
    uint32_t node;                /* 0 ... n_nodes - 1 */
    char name[RDZV_HOST_MAX];
    uint32_t first_rank, nproc;
    char missing[RDZV_HOST_MAX]; /* why there is no evidence; or "" */
};

struct answer {
    bool ok;
    char text[RDZV_REASON_MAX / 4]; /* what was done, or why not; one sentence */
};

enum group_state { /* the leader's: rendezvous/leader/group.h */
                   GROUP_GATHERING = 1,
                   GROUP_FORMING,
                   GROUP_RUNNING,
                   GROUP_STOPPING,
                   GROUP_CLOSED,
                   GROUP_STATE_COUNT,
};

/* What the leader's watchdog says of the workers that run (muster run --hang-action). */
struct rdzv_watchdog {
    enum watchdog_state state;
    uint64_t quiet_ns;              /* for how long; of STARTING: since the start */
    uint64_t limit_ns;              /* of quiet_ns, that counts now; UINT64_MAX: none */
    char said[RDZV_REASON_MAX / 4]; /* the last report of this quiet, or the verdict; or "" */
};
static inline bool rdzv_watchdog_is_quiet(const struct rdzv_watchdog *w) {
    return w->state == WATCHDOG_QUIET || w->state == WATCHDOG_HUNG;
}

/* Where the job's time goes (watchdog/profile/job_time.h); all of it empty with --profile=off. */
struct rdzv_time {
    char text[RDZV_REASON_MAX / 4]; /* job_time_text(); or "" */
    char late[RDZV_REASON_MAX / 4]; /* job_time_late_text(); or "" */
    struct attempt_start start;
    uint64_t step; /* the last MUSTER_STEP of a worker, up to a minute old; 0: not known */
};

/* Who may talk to the leader. */
struct rdzv_access {
    enum auth_state state;
    uint32_t n_keys;
    struct auth_id keys[AUTH_KEYS_MAX];
    uint64_t refused; /* connections */
};

struct overview {
    enum group_state state;
    uint64_t since_ns; /* how long it has been in this state */
    uint32_t epoch;
    struct generation generation; /* the newest formed, or none */
    uint64_t running_ns;          /* the time since the last START; 0: never */
    uint64_t leader;              /* incarnation */
    char leader_host[RDZV_HOST_MAX];
    char endpoint[RDZV_ENDPOINT_MAX]; /* where it leads, if the endpoint has several ports; or "" */
    uint32_t min_nodes, max_nodes, node_unit, n_members, world_size;
    uint32_t n_nodes; /* number of rows that follow */
    uint32_t n_spares, n_excluded;
    uint32_t restarts_used, max_restarts, losses;
    uint64_t successors[RDZV_SUCCESSORS_MAX]; /* incarnations; 0: none */
    uint64_t job_ns;                          /* the age of the job */
    char command[RDZV_PROGRAM_MAX];           /* struct rdzv_program, shown */
    char incident[RDZV_REASON_MAX / 4];       /* the last event, or "" */
    uint64_t incident_ns;                     /* how long ago */
    uint64_t restart_ns; /* from the event to the start of the next group; 0: none has started */
    enum outcome outcome;
    char reason[RDZV_REASON_MAX / 4]; /* of STOPPING and CLOSED */
    struct rdzv_watchdog watchdog;
    struct rdzv_time time;
    struct job_history history;
    struct rdzv_access access;
};

enum overview_place {                   /* a node's place in the group */
                      PLACE_MEMBER = 1, /* of the current group */
                      PLACE_WAITING,    /* joined, can get a place in the next group */
                      PLACE_SPARE,      /* the group has no place for it */
                      PLACE_EXCLUDED,   /* `why` has the reason */
                      PLACE_LEAVING,
                      PLACE_SICK, /* likewise; it is not in the group */
                      PLACE_COUNT,
};

struct overview_node {
    uint64_t incarnation;
    char name[RDZV_HOST_MAX];
    char addr[RDZV_ADDR_MAX];
    char domain[RDZV_DOMAIN_MAX], fabric[RDZV_DOMAIN_MAX]; /* struct report */
    enum overview_place place;
    enum node_state state; /* its last report */
    bool connected;
    uint64_t silent_ns;             /* since its last message */
    uint32_t node_rank, first_rank; /* MEMBER */
    uint32_t nproc;
    int32_t pid;
    uint64_t since_ns; /* the time since it joined */
    uint32_t stalls;   /* of its agent's event loop: struct renew */
    uint64_t longest_stall_ns;
    char why[RDZV_HOST_MAX]; /* why it is EXCLUDED, can't take part, or is sick */
    bool has_warm;           /* with --warm: */
    struct rdzv_warm warm;
};

/* ---- names of the values, as they appear on the wire and in output for operators ---- */

extern const char *const node_state_names[NODE_STATE_COUNT];
extern const char *const outcome_names[OUTCOME_COUNT];
extern const char *const group_state_names[GROUP_STATE_COUNT];
extern const char *const incident_class_names[INCIDENT_CLASS_COUNT];
extern const char *const overview_place_names[PLACE_COUNT];
extern const char *const watchdog_state_names[WATCHDOG_STATE_COUNT];
extern const char *const rdzv_owner_names[RDZV_OWNER_NAMES];
