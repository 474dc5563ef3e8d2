/* The inside of a world, shared by world.c (time), world_net.c (connections, probes), world_node.c
 * (agents, launchers, guardians), world_leader.c, world_faults.c and world_oracle.c. */
#pragma once

#include "world.h"

struct life;

enum word_kind {
    WORD_JOIN = 1, WORD_REPORT, WORD_RENEW, WORD_LEAVE,           /* to the leader */
    WORD_WELCOME, WORD_REFUSED, WORD_DESIRED, WORD_LEASE,         /* to a node */
    WORD_END,                                                     /* of the connection; both ways */
};

struct word {
    struct word *next; /* in its connection's queue */
    enum word_kind kind;
    struct node_info info;
    struct renew renew;
    struct lease lease;
    uint64_t leader;
    union {
        struct report report;
        struct desired desired;
        char reason[RDZV_REASON_MAX];
    };
};

/* A TCP connection from a node to the leader. */
struct conn {
    struct conn *next; /* in world.conns */
    struct life *life;
    bool node_open, leader_open; /* as each kernel sees it */
    bool joined;                 /* it is the leader's connection to that node */
    bool silent;                 /* something on the way drops everything, for ever */
    /* On the way, in order; an item of the world lets one word out, whichever is the first then. */
    struct queue {
        struct word *first, *last;
        uint64_t at_ns; /* when the last is let out */
    } to_leader, to_node;
};

struct worker {
    bool alive, ignores_term, dying;
    bool killed_by_us; /* a signal that muster sent, guardian or agent */
    uint64_t version;  /* of its planned exit */
};

/* One life of an agent, with everything below its guardian. */
struct life {
    unsigned index;
    uint32_t host;
    uint64_t incarnation;
    bool process;  /* the agent's process exists */
    bool frozen;   /* SIGSTOP */
    bool listener; /* open: kept by the guardian until nothing is left */
    bool unkillable;
    bool was_told_to_leave, disturbed; /* disturbed: a fault came between it and the leader */
    uint64_t thawed_ns, host_thawed_ns; /* when it, or its host, last ran again */
    uint64_t swept_by_ns;               /* the agent is dead: nothing may live after this */
    struct member *member;
    struct member_update update;
    uint64_t timer_version;
    struct conn *conn;
    uint64_t connect_version;
    bool welcomed; /* on its present connection */

    struct generation generation; /* of its workers */
    uint32_t n_workers, n_failed;
    bool spawned, succeeded, stopping, spawn_failed;
    struct worker workers[WORLD_WORKERS_MAX];
    uint64_t launch_version; /* of what the launcher has planned */
    bool said_all_gone;

    uint64_t guard_end_ns, guard_version; /* the lease's end as the guardian has it, own clock */
    uint64_t granted_end_ns;              /* as the world reckons it from the LEASEs that came, own clock */
    struct generation granted;            /* what the last good LEASE names, and until when it counts */
    uint64_t granted_named_end_ns;
    uint64_t kill_at_ns; /* end of a STOP's grace, true time */
    uint32_t restarts_heard;

    struct item *pending_first, *pending_last; /* what waits for a frozen agent */
};

struct host {
    bool up, frozen;
    uint64_t frozen_until_ns, up_again_ns;
    uint64_t to_blocked_until_ns, from_blocked_until_ns; /* between it and the leader's host */
    uint64_t slow_until_ns, slow_max_ns;
    uint64_t disturbed_until_ns; /* by then everything that was late has come */
    bool prepare_fails, prepare_slow, spawn_fails, ignore_term, unkillable_next;
    uint64_t sweep_ns;
};

enum item_kind {
    ITEM_WORD_TO_LEADER = 1, ITEM_WORD_TO_NODE, ITEM_CONNECT_ARRIVES, ITEM_CONNECT_FAILED,
    ITEM_TIMER, ITEM_GROUP_TIMER,
    ITEM_PROBE_NODE, ITEM_PROBE_NODE_ANSWER, ITEM_PROBE_LEADER, ITEM_PROBE_LEADER_ANSWER,
    ITEM_PREPARED, ITEM_PREPARE_FAILED, ITEM_SPAWN_FAILED, ITEM_GRACE_OVER, ITEM_ALL_GONE, ITEM_UNKILLABLE,
    ITEM_EXIT_SEEN,                      /* the agent reaps a worker */
    ITEM_WORKER_EXIT, ITEM_GROUP_FINISH, /* in the workers */
    ITEM_GUARD, ITEM_SWEEP,              /* in the guardian */
    ITEM_STORE, ITEM_FAULT, ITEM_THAW_AGENT, ITEM_THAW_HOST, ITEM_LEADER_EXIT,
    ITEM_FORGED_ACK, /* of a mutant */
};

struct item {
    uint64_t at_ns, sequence;
    enum item_kind kind;
    struct life *life;
    struct conn *conn;
    struct word *word; /* owned; taken from the connection's queue when it is let out */
    struct item *next; /* in a pending list */
    uint64_t version;
    uint32_t local, group;
    int32_t code;
    uint64_t clock_ns;
    struct generation generation;
    enum probe_result probe;
};

/* One group that was formed, as the world knows it. */
struct group_info {
    struct generation generation;
    uint32_t n_nodes;
    uint64_t members[WORLD_HOSTS_MAX + 1];
    bool has_form[WORLD_HOSTS_MAX + 1], started[WORLD_HOSTS_MAX + 1], finished[WORLD_HOSTS_MAX + 1];
    struct form forms[WORLD_HOSTS_MAX + 1];
    uint32_t n_started;
    uint64_t started_ns;
    bool charged, could_be_charged, store_open, store_closed;
    uint16_t store_port;
    uint64_t forming_since_ns;
    /* failures that happened, in true time, and whether the leader has heard of them in time */
    unsigned n_failures;
    struct true_failure {
        uint64_t at_ns, incarnation;
        uint32_t local;
        bool heard, chargeable; /* not: a worker that the guardian killed */
    } failures[64];
    uint64_t first_stop_ns;
};

struct mark {
    enum world_mark mark;
    uint32_t host;
    uint64_t at_ns;
};

struct world {
    struct world_params p;
    struct world_coverage *coverage;
    struct prng prng;
    uint64_t now_ns, sequence;
    struct item **heap;
    size_t n_heap, cap_heap;
    struct host hosts[WORLD_HOSTS_MAX];
    struct life lives[WORLD_LIVES_MAX];
    unsigned n_lives;
    struct conn *conns;

    struct group *group; /* NULL when the leader's agent is dead */
    struct group_update update;
    uint64_t group_timer_version;
    bool group_done, group_closed, outcome_told;
    enum outcome outcome;
    char outcome_reason[RDZV_REASON_MAX];
    struct generation newest;
    uint32_t restarts_used;
    bool store_fails;
    uint16_t next_port;
    struct group_info groups[WORLD_GROUPS_MAX];
    unsigned n_groups;
    bool operator_stop;

    struct mark *marks;
    size_t n_marks, cap_marks;
    bool leader_was_killed;
    char failure[1024];
};

/* world.c */
struct item *world_plan(struct world *w, enum item_kind kind, struct life *l, uint64_t in_ns);
uint64_t world_below(struct world *w, uint64_t below);
bool world_chance(struct world *w, unsigned percent);
uint64_t world_clock(const struct world *w, uint32_t host);
/* The first moment of true time when the host's clock shows clock_ns. */
uint64_t world_when_clock(const struct world *w, uint32_t host, uint64_t clock_ns);
void world_broken(struct world *w, const char *fmt, ...) _printf_(2, 3);
void world_trace(struct world *w, const char *fmt, ...) _printf_(2, 3);
void world_mark(struct world *w, enum world_mark mark, uint32_t host);
void item_free(struct item *it);
bool host_running(const struct world *w, uint32_t host); /* up and not frozen */

/* world_net.c */
void net_connect(struct world *w, struct life *l);
void net_connect_arrives(struct world *w, struct item *it);
void net_to_leader(struct world *w, struct conn *c, struct word *word);
void net_to_node(struct world *w, struct conn *c, struct word *word);
/* The word has arrived at its host: false when it does not reach a process now. */
bool net_arrives(struct world *w, struct item *it);
void net_close_node(struct world *w, struct conn *c);   /* the node's process, or its kernel, closes */
void net_close_leader(struct world *w, struct conn *c);
void net_cut(struct world *w, struct life *l, enum cut_mode mode);
void net_probe(struct world *w, struct life *target, bool by_leader, struct life *asker);
void net_probe_arrives(struct world *w, struct item *it);
struct word *word_new(enum word_kind kind);
void net_drop_words(struct conn *c);

/* world_node.c */
struct life *node_boot(struct world *w, uint32_t host);
struct life *node_of(struct world *w, uint64_t incarnation);
struct life *node_newest(const struct world *w, uint32_t host); /* NULL: none ever */
void node_event(struct world *w, struct life *l, struct member_event *e);
void node_word(struct world *w, struct life *l, struct word *word);
void node_item(struct world *w, struct item *it);
void node_agent_dies(struct world *w, struct life *l, uint64_t sweep_ns);
void node_host_off(struct world *w, uint32_t host);
void node_take_pending(struct world *w, struct life *l);
bool node_listens(const struct life *l); /* its agent can answer a probe now */
void node_describe(const struct world *w, const struct life *l, struct node_info *ret);

/* world_launcher.c */
void launcher_prepare(struct world *w, struct life *l, struct generation g);
void launcher_start(struct world *w, struct life *l, struct generation g);
void launcher_stop(struct world *w, struct life *l, uint64_t grace_ns);
void launcher_fence(struct world *w, struct life *l);
void launcher_item(struct world *w, struct item *it);
void guardian_hold(struct world *w, struct life *l, uint64_t lease_end_ns);
void guardian_sweeps(struct world *w, struct life *l, uint64_t sweep_ns);
bool node_has_workers(const struct life *l);
/* The worker ends by itself: exit code, or minus a signal. */
void worker_exits(struct world *w, struct life *l, uint32_t local, int32_t code, uint64_t in_ns);

/* world_leader.c */
void leader_new(struct world *w);
void leader_word(struct world *w, struct conn *c, struct word *word);
void leader_item(struct world *w, struct item *it);
void leader_operator_stop(struct world *w);
void leader_dies(struct world *w);
void leader_exit_if_done(struct world *w);

/* world_faults.c */
void fault_happens(struct world *w, const struct fault *f);

/* world_oracle.c */
struct group_info *oracle_group(struct world *w, struct generation g); /* NULL: unknown */
void oracle_group_stepped(struct world *w, enum group_state before);
void oracle_member_stepped(struct world *w, struct life *l, enum member_state before);
void oracle_lease_came(struct world *w, struct life *l, const struct lease *lease);
void oracle_closed_told(struct world *w, const struct desired *d);
void oracle_report_heard(struct world *w, struct life *l, const struct report *r);
void oracle_worker_starts(struct world *w, struct life *l);
void oracle_worker_failed(struct world *w, struct life *l, uint32_t local, bool chargeable);
void oracle_node_lost(struct world *w, const struct life *l);
void oracle_node_ended(struct world *w, const struct life *l);
void oracle_step(struct world *w);
void oracle_end(struct world *w);
int oracle_member_place(const struct group_info *g, uint64_t incarnation); /* -1: none */
