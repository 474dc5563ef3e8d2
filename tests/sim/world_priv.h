/* The inside of a world, shared by world.c (time), world_net.c (connections, probes), world_node.c
 * (agents and their members), world_search.c (how they find the leader), world_ending.c (agents' lives),
 * world_launcher.c (launchers, guardians, workers), world_leader.c (groups), world_arbiter.c (arbiter and leader file),
 * world_crowd.c, world_faults.c, world_oracle.c, world_oracle_cause.c and world_oracle_group.c. */
#pragma once

#include "launcher/agent/agent_life.h"
#include "world.h"

struct life;

enum word_kind {
    WORD_JOIN = 1,
    WORD_CALL,
    WORD_REPORT,
    WORD_RENEW,
    WORD_LEAVE,
    WORD_ECHO, /* to the leader */
    WORD_HELLO,
    WORD_WELCOME,
    WORD_REFUSED,
    WORD_DESIRED,
    WORD_LEASE, /* to a node */
    WORD_NAMED,
    WORD_HANDOVER,
    WORD_REDIRECT,
    WORD_END, /* of the connection; both ways */
};

struct word {
    struct word *next; /* in its connection's queue */
    enum word_kind kind;
    union { /* only as long as the kind needs */
        struct {
            struct report report;
            struct node_info info;
        } join;
        struct report report;
        struct renew renew;
        struct lease lease;
        struct echo echo;
        struct {
            uint64_t leader, heartbeat_ns, lease_ns, margin_ns;
            uint32_t epoch;
        } welcome;
        struct {
            bool final;
            char reason[RDZV_REASON_MAX];
        } refused;
        struct desired desired;
        struct successors named;
        struct handover handover; /* its members are the word's own */
        struct {
            uint32_t epoch;
            struct rdzv_peer peer;
        } redirect;
    };
};

/* A TCP connection from a node to a life's listener, or to the endpoint. */
struct conn {
    struct conn *next; /* in world.conns */
    struct life *node, *leader;
    bool node_open, leader_open; /* as each kernel sees it */
    bool joined;                 /* it is the leader's connection to that node */
    struct word *parked;         /* the JOIN of a caller that waits; owned */
    bool silent;                 /* something on the way drops everything, for ever */
    unsigned items;              /* of the world, that will look at it */
    /* On the way, in order; an item of the world lets one word out, whichever is the first then. */
    struct queue {
        struct word *first, *last;
        uint64_t at_ns; /* when the last is let out */
    } to_leader, to_node;
};

struct worker {
    bool alive, ignores_term, dying;
    bool stopped;      /* SIGSTOP, by guardian or agent */
    bool killed_by_us; /* a signal that muster sent, guardian or agent */
    uint64_t lost_ns;  /* when it ended without success, and was not stopped by the agent; 0 */
    uint64_t version;  /* of its planned exit */
};

/* From the order to kill to the death, and the order of things within one moment. */
#define KILL_SLACK_NS (50 * NS_PER_MS)

/* What an agent has while it leads. */
struct leadership {
    struct group *group; /* NULL: it does not lead */
    struct group_update update;
    uint64_t version; /* counts its groups: what was asked for an older one is nobody's */
    uint64_t timer_version;
    bool done, closed, started_any;
    bool watches;     /* STARTED was the last of STARTED and STOPPING */
    bool interrupted; /* CLOSED was told, and the arbiter has a vacant epoch */
    unsigned job;
    uint32_t epoch;                    /* of the newest word */
    bool is_first;                     /* it began with epoch 1 */
    uint32_t restarts_used, inherited; /* as its handover had them */
    int newest;                        /* in world.groups; -1: formed none yet */
    struct arbiter_record record;      /* as last heard */
    uint64_t undisturbed_since_ns;
};

/* Around the machine of launcher/agent/agent_life.h. */
struct ending {
    struct agent_life life;
    uint64_t timer_version;
    uint64_t grace_ns;                /* of the newest order to leave */
    unsigned n_signals, n_interrupts; /* interrupts: ^C after the first signal */
    uint64_t interrupted_ns;          /* the last of these */
    uint64_t left_ns;                 /* when its member had left; 0: it has not */
    bool drained, gave_up;
    bool asks, requeued; /* Slurm has a question of it; it was asked to requeue the job */
    bool compares;       /* what ranks did when one failed */
};

/* One life of an agent, with everything below its guardian. */
#define WORLD_SICK "its GPU is lost"

struct life {
    unsigned index;
    uint32_t host;
    uint64_t incarnation;
    bool process;  /* the agent's process exists */
    bool frozen;   /* SIGSTOP */
    bool listener; /* open: kept by the guardian until nothing is left */
    bool unkillable;
    bool was_told_to_leave, disturbed;  /* disturbed: a fault came between it and the leader */
    uint64_t thawed_ns, host_thawed_ns; /* when it, or its host, last ran again */
    uint64_t swept_by_ns;               /* the agent is dead: nothing may live after this */
    uint64_t died_ns;                   /* it was killed, alone or with its host; 0 */
    struct member *member;
    struct member_update update;
    struct ending ending;
    uint64_t timer_version;
    struct search search;
    struct search_update search_update;
    uint64_t search_version; /* of its timer */
    bool is_searching;       /* in a step; events wait: */
    struct search_queued {
        struct search_event event;
        struct rdzv_peer peer;
    } search_queue[8];
    unsigned n_search_queue;
    struct conn *conn;
    uint64_t connect_version;   /* of the attempt; what an older one has under way is void */
    uint64_t connects_since_ns; /* a second is counted from here */
    unsigned n_connects;
    bool has_looked;        /* up the endpoint's name */
    bool is_refused;        /* for good */
    uint64_t refused_ns;    /* the last time that it was not admitted */
    uint64_t described_ns;  /* when it can send JOIN */
    uint64_t unwelcomed_ns; /* since when it has no leader */
    uint64_t booted_ns;
    struct life *leader; /* that welcomed it last */
    unsigned job;        /* of that leader, until it knows the outcome: */
    bool knows_outcome;

    /* Its listener. */
    enum member_join_policy join_policy;
    struct rdzv_peer join_policy_peer;
    uint32_t join_policy_epoch;
    struct leadership lead;
    unsigned n_requests;             /* of the arbiter, under way */
    bool knows_arbiter;              /* has seen an epoch there */
    const struct life *knows_domain; /* the last leader that received its domain */
    const struct life *heard_by;     /* the last leader that received JOIN or RENEW, */
    uint64_t heard_ns;               /* and when, by that leader's clock */

    struct generation generation; /* of its workers */
    uint64_t spawned_ns;
    uint32_t n_workers, n_failed;
    bool spawned, succeeded, stopping, spawn_failed;
    struct worker workers[WORLD_WORKERS_MAX];
    uint64_t launch_version; /* of what the launcher has planned */
    bool said_all_gone;

    uint64_t guard_end_ns, guard_version; /* the lease's end as the guardian has it, own clock */
    unsigned guard_times;                 /* how often it has stopped the workers since then */
    uint32_t fences, fences_before;       /* by the guardian; before its workers were started */
    /* As the world reckons from the LEASEs that came, own clock. */
    uint64_t granted_end_ns;
    struct generation granted; /* what the newest names, and until when it counts */
    uint64_t granted_named_end_ns;
    uint32_t granted_epoch;               /* its leader's */
    uint32_t start_epoch;                 /* of the newest START's leader */
    struct lease last_lease, older_lease; /* the newest, and the last of another leader */
    uint64_t kill_at_ns;                  /* end of a STOP's grace, true time */
    uint32_t restarts_heard, epoch_heard;
    struct generation generation_heard;

    struct item *pending_first, *pending_last; /* what waits for a frozen agent */
};

struct host {
    bool up, frozen;
    uint64_t frozen_until_ns, up_again_ns;
    uint64_t slow_until_ns, slow_max_ns;
    uint64_t disturbed_until_ns; /* by then everything that was late has come */
    uint64_t arbiter_out_until_ns, arbiter_slow_until_ns, arbiter_slow_max_ns;
    bool prepare_fails, prepare_slow, spawn_fails, ignore_term, unkillable_next;
    uint64_t sweep_ns;
};

enum item_kind {
    ITEM_WORD_TO_LEADER = 1,
    ITEM_WORD_TO_NODE,
    ITEM_CONNECT_LEAVES,
    ITEM_CONNECT_ARRIVES,
    ITEM_CONNECT_FAILED,
    ITEM_RESOLVED,
    ITEM_DESCRIBED,
    ITEM_OTHER_HELLO,
    ITEM_SEARCH_PROBED,
    ITEM_SEARCH_TIMER,
    ITEM_TIMER,
    ITEM_GROUP_TIMER,
    ITEM_PROBE,
    ITEM_PROBE_ANSWER,
    ITEM_PREPARED,
    ITEM_PREPARE_FAILED,
    ITEM_SPAWN_FAILED,
    ITEM_GRACE_OVER,
    ITEM_ALL_GONE,
    ITEM_UNKILLABLE,
    ITEM_EXIT_SEEN, /* the agent reaps a worker */
    ITEM_WORKER_EXIT,
    ITEM_GROUP_FINISH, /* in the workers */
    ITEM_GUARD,
    ITEM_SWEEP, /* in the guardian */
    ITEM_STORE,
    ITEM_FAULT,
    ITEM_BOOT,
    ITEM_THAW_AGENT,
    ITEM_THAW_HOST,
    ITEM_AGENT_QUITS,
    ITEM_LIFE_TIMER,
    ITEM_ANSWERED, /* to an agent's question, or what it has compared */
    ITEM_DEPOSED,
    ITEM_GROUP_DONE,
    ITEM_ARBITER_HEARS,
    ITEM_ARBITER_ANSWER, /* a request at the arbiter; its answer at the asker */
    ITEM_TOUCHED,        /* the leader file was */
    ITEM_RECOVERED,      /* by now a group runs, if it can */
    ITEM_RUIN_OVER,      /* by now everybody has ended who knew the arbiter's data */
    ITEM_FORGED_ACK,     /* of a mutant */
    ITEM_CROWD_PROBED,
    ITEM_DOMAIN, /* the agent knows its domain */
};

enum prober { PROBER_GROUP = 1, PROBER_MEMBER, PROBER_PEER };

/* A request, from the asking to the answer; shared by the two items. */
struct asked {
    struct arbiter_answer answer;
    bool by_group;
    uint64_t version; /* of the leadership that asked */
    unsigned users;   /* items that point here */
    bool given_up;    /* answered UNREACHABLE, or nobody will hear */
};

struct item {
    uint64_t at_ns, sequence;
    enum item_kind kind;
    struct life *life, *other;
    struct conn *conn;
    struct word *word; /* owned; taken from the connection's queue when it is let out */
    struct asked *asked;
    struct item *next; /* in a pending list */
    uint64_t version, clock_ns;
    uint32_t local, group;
    int32_t code;
    struct generation generation;
    enum probe_result probe;
    enum prober prober;
};

/* One group that was formed, as the world knows it. */
struct group_info {
    struct generation generation;
    struct life *leader; /* who formed it */
    uint32_t n_nodes;
    uint64_t members[WORLD_HOSTS_MAX + 1];
    bool has_form[WORLD_HOSTS_MAX + 1], started[WORLD_HOSTS_MAX + 1], finished[WORLD_HOSTS_MAX + 1];
    struct form forms[WORLD_HOSTS_MAX + 1];
    uint32_t n_started;
    uint64_t started_ns;
    bool failed_first; /* a failure was heard before it stopped for anything else */
    bool charged, store_open, store_closed;
    uint16_t store_port;
    uint64_t forming_since_ns;
    /* failures that happened, in true time, and whether the leader has heard of them in time */
    unsigned n_failures;
    struct true_failure {
        uint64_t at_ns, incarnation;
        uint32_t local;
        bool heard, chargeable; /* not: a worker that the guardian killed */
        bool ever_heard;
        bool ends_node, echo; /* it may be its node's loss; the echo of another's */
        uint64_t loop_key;    /* the same for failures that make a crash loop; 0: it can't be part of one */
    } failures[64];
    uint64_t first_stop_ns;
    bool stopped_alone; /* the job had one node then */
    uint64_t ended_ns;  /* it stopped or was closed; TIME_NEVER */
    /* as its leader has heard: all stopped there; lost without having said that */
    bool said_stopped[WORLD_HOSTS_MAX + 1], lost[WORLD_HOSTS_MAX + 1];
    bool by_domain;     /* all nodes that could be members had a domain */
    bool cause_told;    /* with STOP */
    uint32_t told_used; /* restarts at that time */
};

struct leader_file {
    enum world_leader_file leader_file;
    uint32_t host;
    uint64_t at_ns;
};

/* What the job ended with. After a closed leader file the same command may be run again: another
 * job. */
struct job {
    bool closed, told;
    enum outcome outcome;
    char reason[RDZV_REASON_MAX];
};

#define WORLD_EPOCHS_MAX 128
#define WORLD_JOBS_MAX 4

struct world {
    struct world_params p;
    struct world_coverage *coverage;
    struct prng prng;
    uint64_t now_ns, sequence;
    unsigned n_at_once, n_steps;
    struct item **heap;
    size_t n_heap, cap_heap;
    struct item *spare_items; /* freed ones, for the next */
    struct host hosts[WORLD_HOSTS_MAX];
    uint64_t blocked_until_ns[WORLD_HOSTS_MAX][WORLD_HOSTS_MAX]; /* from, to */
    struct life lives[WORLD_LIVES_MAX];
    unsigned n_lives;
    struct conn *conns;

    /* The arbiter: one record, and who has won what. */
    struct arbiter_record record;
    uint64_t won[WORLD_EPOCHS_MAX];
    bool idle[WORLD_EPOCHS_MAX];        /* as it was claimed */
    uint64_t vacated[WORLD_EPOCHS_MAX]; /* by this incarnation; 0: it is not vacant */
    uint64_t emptied_until_ns;          /* what it held is gone; 0: it is not */
    bool other_job;                     /* another's is there */
    bool was_emptied;                   /* for ever */
    /* The leader file on host 0. */
    struct {
        bool there;
        uint32_t epoch;
        enum outcome outcome;
        uint64_t touched_ns; /* the host's clock */
    } leader_file;
    uint64_t touch_fails_until_ns;
    uint64_t owners[WORLD_EPOCHS_MAX]; /* who has spoken as the leader of an epoch */

    unsigned job;
    struct job jobs[WORLD_JOBS_MAX];
    bool store_fails;
    uint16_t next_port;
    uint32_t n_crowd; /* of all crowds, so far */
    struct {
        uint64_t since_ns; /* counted in the second from here: */
        unsigned probes, lines;
    } crowd;
    struct group_info groups[WORLD_GROUPS_MAX];
    unsigned n_groups;
    bool operator_stop;
    uint64_t ended_for, ended_for_ns; /* whose worker's death ended the job, and when it died; 0 */
    uint64_t troubled_until_ns;       /* by then the last fault that has happened is over */

    struct leader_file *marks;
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
void world_leader_file(struct world *w, enum world_leader_file leader_file, uint32_t host);
void item_free(struct world *w, struct item *it);
bool host_running(const struct world *w, uint32_t host); /* up and not frozen */
static inline bool world_is_fixed(const struct world *w) { return w->p.group.leadership != LEADERSHIP_ARBITER; }

/* world_net.c */
struct conn *net_new_conn(struct world *w, struct life *l, struct life *target);
/* One way; both are hosts. */
uint64_t net_delay(struct world *w, uint32_t a, uint32_t b);
void net_to_leader(struct world *w, struct conn *c, struct word *word);
void net_to_node(struct world *w, struct conn *c, struct word *word);
/* The word has arrived at its host: false when it does not reach a process now. */
bool net_arrives(struct world *w, struct item *it);
void net_close_node(struct world *w, struct conn *c); /* the node's process, or its kernel, closes */
void net_close_leader(struct world *w, struct conn *c);
void net_cut(struct world *w, struct life *l, enum cut_mode mode);
void net_probe(struct world *w, struct life *asker, struct life *target, enum prober prober);
void net_probe_arrives(struct world *w, struct item *it);
bool net_open(const struct world *w, uint32_t from, uint32_t to);
struct word *word_new(enum word_kind kind);
void word_free(struct word *word);
void net_free_conn(struct conn *c);

/* world_search.c */
void search_begin(struct world *w, struct life *l);
void search_event(struct world *w, struct life *l, const struct search_event *event);
void search_item(struct world *w, struct item *it);
bool search_is_welcomed(const struct life *l);
void search_heard_hello(struct world *w, struct life *l, const struct conn *c);
/* END, REFUSED or REDIRECT */
void search_heard_end(struct world *w, struct life *l, const struct word *word);
/* world_ending.c */
void ending_begin(struct life *l);
void ending_event(struct world *w, struct life *l, struct life_event e);
void ending_check(struct world *w, struct life *l);
void ending_signal(struct world *w, struct life *l, int signo);
/* The group that it leads stops for a failure. */
void ending_compares(struct world *w, struct life *l);
void ending_item(struct world *w, struct item *it);
void oracle_ending(struct world *w, const struct life *l);

/* world_node.c */
/* The life that a peer names: its listener must be where the peer says. */
struct life *node_of_peer(struct world *w, const struct rdzv_peer *peer);
struct life *node_boot(struct world *w, uint32_t host);
struct life *node_of(struct world *w, uint64_t incarnation);
struct life *node_newest(const struct world *w, uint32_t host); /* NULL: none ever */
void node_event(struct world *w, struct life *l, struct member_event *e);
void node_word(struct world *w, struct life *l, struct conn *c, struct word *word);
void node_item(struct world *w, struct item *it);
void node_agent_dies(struct world *w, struct life *l, uint64_t sweep_ns);
void node_host_off(struct world *w, uint32_t host);
void node_take_pending(struct world *w, struct life *l);
bool node_listens(const struct life *l); /* its agent can answer a probe now */
void node_describe(const struct world *w, const struct life *l, struct node_info *ret);
void node_peer(const struct life *l, struct rdzv_peer *ret);

/* world_launcher.c */
void launcher_prepare(struct world *w, struct life *l, struct generation g);
void launcher_start(struct world *w, struct life *l, struct generation g);
void launcher_stop(struct world *w, struct life *l, uint64_t grace_ns);
void launcher_fence(struct world *w, struct life *l);
/* The user does not want to wait for the workers. */
void launcher_kill(struct world *w, struct life *l);
/* SIGSTOP and SIGCONT to all workers. */
void launcher_hold(struct world *w, struct life *l);
void launcher_resume(struct world *w, struct life *l);
/* A worker lives and is not stopped. */
bool node_runs_workers(const struct life *l);
void launcher_item(struct world *w, struct item *it);
void guardian_hold(struct world *w, struct life *l, uint64_t lease_end_ns);
void guardian_sweeps(struct world *w, struct life *l, uint64_t sweep_ns);
/* It kills all workers, because it takes the lease for ended. */
void guardian_fences_now(struct world *w, struct life *l);
bool node_has_workers(const struct life *l);
/* The worker ends by itself: exit code, or minus a signal. */
void worker_exits(struct world *w, struct life *l, uint32_t local, int32_t code, uint64_t in_ns);

/* world_leader.c */
/* A fixed leader's, at its boot: `lead` is NULL; otherwise what its member says. */
void leader_new(struct world *w, struct life *l, const struct group_config *lead);
void leader_word(struct world *w, struct conn *c, struct word *word);
void leader_item(struct world *w, struct item *it);
void leader_join_policy(struct world *w, struct life *l, const struct member_effect *e);
void leader_stop(struct world *w, struct life *l);
/* The watchdog at the leader of this node says that the job hangs, because of this node or of
 * nobody. */
void leader_says_hang(struct world *w, struct life *suspect, bool nobody);
void leader_resigns(struct world *w, struct life *l);
/* MUTANT_VACATES_FIRST */
void leader_vacates(struct world *w, struct life *l);
void leader_command(struct world *w, struct life *l, const struct command *command);
void leader_answer(struct world *w, struct life *l, const struct arbiter_answer *answer);
void leader_touched(struct world *w, struct life *l, uint64_t clock_ns);
void leader_dies(struct world *w, struct life *l);
void leader_crowd(struct world *w, struct life *l, unsigned nodes);

/* world_crowd.c: its nodes' incarnations are even, all others odd. */
#define CROWD_NODE(index) (2 * ((uint64_t)(index) + 1))
#define CROWD_INDEX(incarnation) ((uint32_t)((incarnation) / 2 - 1))
/* True: the effect is about the crowd alone. */
bool crowd_takes(struct world *w, struct life *l, const struct group_effect *e);
/* The one with the highest epoch; NULL. */
struct life *leader_now(const struct world *w);
/* The life that is named as the nth successor; NULL. */
struct life *leader_successor(struct world *w, unsigned nth);

/* world_arbiter.c */
bool arbiter_is_emptied(const struct world *w);
void arbiter_emptied(struct world *w, uint64_t for_ns, bool other_job);
void arbiter_asked(struct world *w, struct life *l, const struct arbiter_request *request, bool by_group);
void arbiter_item(struct world *w, struct item *it);
void leader_file_found(struct world *w, struct life *l, struct group_config *config);
void leader_file_touch(struct world *w, struct life *l, enum outcome outcome);

/* world_faults.c */
void fault_happens(struct world *w, const struct fault *f);
/* `again`: after it was killed; otherwise somebody starts it. */
void fault_boots(struct world *w, uint32_t host, bool again);

/* world_oracle.c: the nodes, every step, the end */
void oracle_member_stepped(struct world *w, struct life *l, enum member_state before,
                           enum member_election election_before);
void oracle_search_stepped(struct world *w, struct life *l, enum search_state before);
void oracle_lease_came(struct world *w, struct life *l, const struct lease *lease);
void oracle_worker_starts(struct world *w, struct life *l);
void oracle_workers_continue(struct world *w, struct life *l);
void oracle_worker_failed(struct world *w, struct life *l, const struct failure *f, bool chargeable);
/* The leader is about to be told that this group hangs because of that node; 0: of nobody. NULL: there
 * was no room for it. */
struct group_info *oracle_hang(struct world *w, struct generation generation, uint64_t incarnation);
void oracle_node_lost(struct world *w, const struct life *leader, const struct life *l);
void oracle_node_ended(struct world *w, const struct life *l);
void oracle_recovered(struct world *w);
void oracle_ruin_over(struct world *w);
void oracle_step(struct world *w);
void oracle_end(struct world *w);

/* world_oracle_cause.c: failures and losses */
void oracle_loss_known(struct world *w, const struct life *leader, const struct life *l);
bool oracle_could_be_charged(struct world *w, const struct group_info *g);
void oracle_stop_told(struct world *w, const struct life *leader, const struct desired *d);
void oracle_stop_over(struct world *w, const struct life *leader, const struct group_info *g);
uint64_t oracle_loop_key(const struct world *w, const struct failure *f);
/* The leader has charged the group. */
void oracle_charged(struct world *w, const struct life *leader, const struct group_info *g);
/* The job ends because of a crash loop. */
void oracle_ended_for_loop(struct world *w, const struct group_info *g);
void oracle_ended_for(struct world *w, const struct life *leader, const struct group_info *g, const struct failure *f);
void oracle_agent_died(struct world *w, struct life *l);

/* world_oracle_group.c: the leaders */
#define DOMAINS_MAX 256 /* values of a char */
#define G(g) (g).epoch, (g).counter
struct group_info *oracle_group(struct world *w, struct generation g);     /* NULL: unknown */
struct group_info *oracle_newest(struct world *w, const struct life *l);   /* that l has formed */
int oracle_member_place(const struct group_info *g, uint64_t incarnation); /* -1: none */
void oracle_leads(struct world *w, struct life *l);
/* The arbiter has given away an epoch. */
void oracle_claimed(struct world *w, const struct life *l, uint32_t epoch);
void oracle_vacated(struct world *w, const struct life *l, uint32_t epoch);
void oracle_group_stepped(struct world *w, struct life *l, enum group_state before, uint32_t restarts_heard);
void oracle_closed_told(struct world *w, struct life *l, const struct desired *d);
void oracle_report_heard(struct world *w, struct life *leader, const struct life *node, const struct report *r);
void oracle_domain_heard(const struct life *leader, struct life *node, const struct report *r);
void oracle_contact(const struct world *w, const struct life *leader, struct life *node);
/* How many of these nodes can be in a group of whole units of one domain. */
size_t oracle_in_units(const struct world *w, const size_t nodes[DOMAINS_MAX]);
void oracle_speaks(struct world *w, struct life *l, uint32_t epoch);
void oracle_deposed(struct world *w, const struct life *l);
void oracle_check_forms(struct world *w, struct group_info *g);
void oracle_check_count(struct world *w, const struct group_info *g, const struct life *l);
/* Nothing but misfortunes of workers in this world. */
bool oracle_only_workers(const struct world *w);
