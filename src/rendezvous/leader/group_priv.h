/* Shared by the files of the group machine, and private to them.
 *   group.c              effects, messages to and from nodes, the step
 *   group_states.c       GATHERING to CLOSED: what each state waits for, and what follows
 *   group_nodes.c        which nodes are admitted, excluded, silent, lost, or leave
 *   group_cause.c        the first failure; budgets, crash loops, groups without progress
 *   group_incident.c     what stopped a group, and what was done about it
 *   group_programs.c     whether a node is of another job
 *   group_leadership.c   leases, the arbiter, the leader file, the successors
 *   group_view.c         the status; commands of operators, and what they see
 * The headers of parts/ describe the parts, which don't know the group. */
#pragma once

#include "base/text/strbuf.h"
#include "rendezvous/leader/group.h"
#include "rendezvous/leader/parts/formation.h"

/* In a larger job, listeners are checked after the group has started, not before. */
#define GROUP_REACH_AT_ONCE 64

/* The program of the leader's own node, or of the first that came with this --role. */
struct role_program {
    char role[RDZV_ROLE_MAX];
    struct rdzv_program program;
    uint32_t n_alike; /* nodes that came with the same arguments */
    bool differ;      /* some came with arguments of their own */
};

enum cause_state {
    CAUSE_NONE = 0,
    CAUSE_IN_DOUBT, /* it may be a node's loss, or the effect of one: not reported or charged yet */
    CAUSE_SURE,     /* reported; charged when all members have stopped */
    CAUSE_CHARGED,
};
struct cause {
    enum cause_state state;
    struct failure failure;
    int64_t at_ns; /* on the leader's clock */
    uint64_t error_ns;
    /* A better cause is reported at once until this time, at which one in doubt is checked again.
     * TIME_NEVER: it is settled */
    uint64_t settle_ns;
    uint32_t n_better;   /* how often a better one was reported */
    bool better_waits;   /* a better cause is still to be reported */
    bool doubt_reported; /* the delay until the cause is certain was reported */
};

struct policy {
    uint32_t restarts_used, losses;
    uint64_t last_hash; /* of the last charged failure; 0: it can't begin a crash loop */
    uint64_t fail_node; /* the last charged failures were all of this node's: */
    uint32_t fail_count;
    uint32_t backoff_step;
    char (*hosts)[RDZV_HOST_MAX]; /* excluded, with all their agents */
    size_t n_hosts;
};

/* Groups that end soon after their start, or before it, though no worker failed: a node is lost, a
 * FORM refused. Such an end costs nothing, so it is counted: else the job would never end. */
struct stalls {
    uint32_t in_a_row;
    uint32_t counted; /* of them: those that left the job no smaller than ever */
    size_t fewest;    /* the fewest nodes that were left after one of them */
};

/* Which nodes are heard. Silent and disconnected ones are probed, and lost when their lease is
 * certainly over. */
struct liveness {
    struct list heard; /* nodes that are connected and not silent, by contact_ns */
    struct list watched;
    uint64_t due_ns;  /* no watched node is due before this */
    uint64_t scan_ns; /* they are not examined before this either, because they are many */
    uint64_t probed_again_ns, waiters_probed_ns; /* how far ahead of now each rate is spent */
    /* several nodes are silent at once: none is lost before this; 0: this is not so */
    uint64_t hold_until_ns;
};

/* The state of the job's outcome. */
enum outcome_record {
    OUTCOME_OPEN = 0,  /* there is none: the job continues */
    OUTCOME_WAITS,     /* it must be recorded first, where nodes that come later find it */
    OUTCOME_RECORDED,  /* it is recorded, and is sent to the nodes */
    OUTCOME_DELIVERED, /* all nodes have it, or the close timeout has passed */
    OUTCOME_GIVEN_UP,  /* it could not be recorded, and is not sent to any node */
};

/* What the leader's authority, and so each of its leases, depends on: the arbiter, which has its
 * epoch as the latest, or the leader file on its host (muster-rendezvous(7), "Leases", "Which node
 * claims, and when"). */
struct leadership {
    uint32_t epoch; /* of this leader; grows with each claim of its own */
    bool idle;      /* nothing runs, and no group is formed in this epoch */
    bool over;      /* another agent leads, or this one has resigned: nothing happens any more */
    uint64_t begun_ns;
    uint64_t read_ns;    /* arbiter: when the last successful read began; 0: none yet */
    uint64_t touched_ns; /* leader file: when the last successful touch began; 0: none yet */
    uint64_t beat_ns;    /* when the next beat, read or touch is due */
    /* since when the beat is paused, so that a successor that is in contact with more nodes can
     * take over; 0: it is not */
    uint64_t paused_ns;
    bool looking;      /* a beat or read is under way */
    bool claiming;     /* a claim of our own next epoch is under way */
    bool closing;      /* the outcome is being recorded */
    uint64_t claim_ns; /* no claim, and no attempt to record the outcome, before this time */
    uint64_t close_ns; /* when the outcome was decided; 0: it is not */
    bool unreachable_reported;
    bool refusal_reported; /* claims fail, but reads of the arbiter succeed */
    /* since when every answer of the arbiter reports that its data is gone; 0: it is not gone */
    uint64_t ruined_ns;
    bool ruined;            /* this was so for long enough: the outcome is not recorded anywhere */
    uint64_t ruin_grace_ns; /* the grace that the workers have then */
    uint64_t resign_ns;     /* when the leader's own node left; 0: it has not */
    /* when the arbiter was asked to record that nothing is left; 0: it was not */
    uint64_t vacate_ns;
};

/* The named successors (muster-rendezvous(7), "Changing the successors"). A wrong change of the
 * list could let two agents lead: a named successor may claim the next epoch, until it is surely
 * gone, or until this leader has claimed that epoch. */
struct succession_plan {
    struct successors named;
    bool gone[RDZV_SUCCESSORS_MAX]; /* surely, and before it can have claimed: may be dropped */
    uint64_t clock_ns;              /* our newest clock that the first has echoed, or the naming */
    uint64_t check_ns;              /* a silent one is not checked again before */
};

/* What follows when all members have stopped. */
enum after_stop {
    AFTER_STOP_GATHERING = 0,
    AFTER_STOP_CLOSED_FOR_FEW, /* only because there are too few nodes */
    AFTER_STOP_CLOSED,
};

struct gathering {
    uint64_t since_ns;
    uint64_t enough_since_ns; /* since when min nodes are present; TIME_NEVER: they are not */
    uint64_t not_before_ns;   /* no group is formed before this time */
    uint32_t expected;        /* GROUP_EVENT_EXPECT; 0: any number can come */
    /* a node was lost since the last group: regroup_wait_ns applies */
    bool lost_somebody;
    bool idle_unsent;                /* the state was entered in this step */
    char last_lost[RDZV_HOST_MAX];   /* for "waiting for …" */
    char last_left[RDZV_REASON_MAX]; /* why it left; "": it was lost */
    uint32_t n_left; /* nodes with a place that were asked to leave, since the last group formed */
    /* the last node that was refused, and why; "": none */
    char refused_host[RDZV_HOST_MAX], refused_why[RDZV_REASON_MAX];
};
struct forming {
    bool store_open, store_wanted; /* for the current generation */
    char store_host[RDZV_HOST_MAX];
    uint16_t store_port;
    bool sent; /* FORM was sent to the members */
    uint64_t deadline_ns;
};
struct running {
    uint64_t since_ns;      /* since when the current group runs; 0: it has not started */
    uint64_t last_start_ns; /* of any group; 0: none */
    uint32_t reachability;  /* the ways that work for all its members */
    bool grow_asked;
    size_t n_told_warm; /* members that have told how they started it (--warm) */
    /* the node that reported in this step that it is at a safe point; 0: none */
    uint64_t safe_node;
};
struct stopping {
    uint64_t since_ns;
    enum after_stop after;
    bool wished;
    bool interrupted; /* because a node was asked to leave */
    bool sending; /* the reason of the stop is being sent; nothing else happens before it is sent */
    uint32_t n_workers;
};
struct closed {
    enum group_state from;
    enum outcome_record record;
    uint64_t deadline_ns;
    /* Nodes were asked to leave, and nothing runs: the arbiter records a vacant epoch */
    bool interrupted;
    bool halted; /* a person, or a check of the nodes, ended the job: nobody should run it again */
};

/* For operators. */
struct last_event {
    char text[RDZV_REASON_MAX / 4]; /* "": there was none */
    uint64_t at_ns;
    uint64_t restart_ns; /* until the next group started; 0: none has */
};

/* Nodes that waited for a place and are gone, but are not reported yet: group_nodes.c. */
struct waiters_gone {
    uint64_t reported_ns;
    size_t n;
    char last[RDZV_REASON_MAX / 4];
};

struct step_effects {
    struct group_update *update;
    void **kept; /* effects point to these; owned */
    size_t n_kept;
};

struct group {
    struct group_config config;
    uint32_t need; /* the smallest group: min, rounded up to the unit */
    enum group_state state;
    uint64_t now_ns, since_ns; /* since_ns: since when it is in this state */
    uint64_t begun_ns;         /* when this leader began */
    uint64_t due_ns;           /* when the next GROUP_EVENT_TIME was asked for */

    struct roster roster;
    struct liveness liveness;
    struct formation formation;
    struct role_program *programs;
    size_t n_programs; /* at most GROUP_ROLES_MAX */
    struct cause cause;
    struct policy policy;
    struct stalls stalls;
    struct leadership leadership;
    struct succession_plan plan;

    struct gathering gathering;
    struct forming forming;
    struct running running;
    struct stopping stopping;
    struct closed closed;
    char reason[RDZV_REASON_MAX]; /* why the group stops, or the job has ended */
    enum outcome outcome;

    /* the one that is not written yet; class NONE: there is none, or the group grows */
    struct incident incident;
    struct last_event last_event;
    struct job_history history; /* until the present state, */
    uint64_t quiet_ns;          /* and what was quiet since */
    struct waiters_gone waiters_gone;
    struct {
        bool dirty;
        uint64_t next_ns;
    } status;
    struct step_effects effects;
};

static inline bool group_is_live(const struct group *g) {
    return g->state == GROUP_FORMING || g->state == GROUP_RUNNING;
}
/* Something of the last group may still run, or come back. */
static inline bool group_somebody_unresolved(const struct group *g) {
    return g->roster.tally[TALLY_UNRESOLVED] > 0;
}
static inline uint64_t group_job_ns(const struct group *g, uint64_t now_ns) {
    return g->config.job_ns + (now_ns - g->begun_ns);
}
static inline bool group_all_members(const struct group *g, enum tally tally) {
    return g->roster.tally[tally] == g->formation.n_members;
}
static inline void group_form_not_before(struct group *g, uint64_t ns) {
    g->gathering.not_before_ns = MAX2(g->gathering.not_before_ns, ns);
}
static inline void group_forget_cause(struct group *g) { g->cause.state = CAUSE_NONE; }
static inline void group_recount(struct group *g, struct node *n) {
    formation_recount(&g->formation, &g->roster, n);
}

struct group_effect *group_emit(struct group *g, enum group_effect_kind kind, uint64_t node);
/* Memory that effects point to: zeroed, until the next step. */
void *group_keep(struct group *g, size_t size);
/* Sets the effect's reason, which is copied. */
void group_set_reason(struct group *g, struct group_effect *e, const char *text);
void group_notify(struct group *g, const struct node *n);
void group_notify_members(struct group *g);
void group_notify_all(struct group *g);
/* One line for people; the text is copied. */
void group_notice(struct group *g, const char *text);
/* The same, and it is the last event that operators see. */
void group_incident(struct group *g, const char *text);
struct timeline_entry *group_add_to_timeline(struct group *g, enum timeline_kind kind,
                                             const struct node *n, const char *why);

/* group_cause.c */
/* The cause is known, and can be reported. */
bool group_shows_cause(const struct group *g);
/* A failure is still to be charged. */
bool group_cause_is_pending(const struct group *g);
/* Adds a node's failure in the current generation. True: it is the new first cause. */
bool group_add_failure(struct group *g, const struct node *n, const struct failure *failure);
/* The same, with its time on the leader's clock. */
bool group_add_cause(struct group *g, const struct failure *failure, int64_t at_ns,
                     uint64_t error_ns);
/* Another failure is the first cause from now on. It is reported now or later. */
void group_better_cause(struct group *g);
/* The failure may turn out to be a node's loss, or the effect of one. */
bool group_cause_may_be_loss(const struct group *g);
/* The loss of this member explains the failure. */
bool group_cause_is_loss_of(const struct group *g, uint64_t incarnation, bool outlived);
/* If the job would end because of the failure, this needs more evidence. */
bool group_cause_is_certain(const struct group *g);
void group_make_cause_sure(struct group *g);
/* Whether all its workers have stopped, or it sent a message surely after the failure. */
bool group_outlived_failure(const struct group *g, const struct node *n);
/* Takes over counters from a report or a handover where they are larger than ours. */
void group_keep_counters(struct group *g, uint32_t restarts_used, uint32_t losses);
bool group_losses_spent(const struct group *g);
/* A failure is still to be charged, and no restart is left for it. */
bool group_budget_spent(const struct group *g);
/* The group failed as the last charged one did, early and by the program's own fault: it must not
 * be started again. But if both failures are of one node, and others can continue without it, that
 * node is excluded after a few failures instead. */
bool group_is_crash_loop(const struct group *g);
/* All have stopped: charges the failure. False: the job ends, and g->reason is set. */
bool group_charge(struct group *g);
bool group_host_is_excluded(const struct group *g, const char *host);
void group_exclude_host(struct group *g, const char *host);
/* The last group ended without progress, and this one has not run for long yet. */
bool group_is_stalling(const struct group *g);
/* All have stopped. False: no group runs long enough, so the job ends, and g->reason is set. */
bool group_count_stall(struct group *g, bool worker_failed);

/* group_incident.c */
/* class NONE: the group grows. node, incarnation: "" and 0 if no node is to blame. */
void group_open_incident(struct group *g, enum incident_class class, const char *node,
                         uint64_t incarnation, uint64_t symptom_ns);
/* All have stopped: what is to blame no longer changes. It is the cause, or else g->reason. */
void group_settle_incident(struct group *g);
/* Also logs which sick nodes are left out or taken, once for each verdict. */
void group_form_incident(struct group *g);
void group_start_incident(struct group *g);
void group_end_incident(struct group *g);
void group_on_steps(struct group *g, const struct report *report);

/* group_programs.c */
void group_add_own_program(struct group *g);
/* True: the node is of another job; fills in why. */
_must_use_ bool group_refuses_program(const struct group *g, const char *role,
                                      const struct rdzv_program *its, char why[RDZV_REASON_MAX]);
/* program NULL: not known, not compared. Logs the first of its role whose arguments differ. */
void group_add_program(struct group *g, const struct node *n, const struct rdzv_program *program);

/* group_nodes.c */
/* NULL: the node was refused. */
struct node *group_admit(struct group *g, const struct node_info *info,
                         const struct rdzv_program *program);
void group_exclude(struct group *g, struct node *n, const char *why);

/* `why` follows the name in the message. GONE, LEFT: it can't have done anything since. */
enum removal { REMOVED_GONE = 1, REMOVED_SILENT, REMOVED_LEFT };
void group_remove_node(struct group *g, struct node *n, const char *why, enum removal how);

/* Checks in the background whether the node's listener can be reached. Not that of the leader. */
void group_reach(struct group *g, struct node *n);
void group_contact(struct group *g, struct node *n);
/* It is silent or disconnected. */
void group_watch_node(struct group *g, struct node *n);
void group_watch_inherited(struct group *g, struct node *n);
void group_on_probe(struct group *g, struct node *n, enum probe_result result);
void group_watch(struct group *g);
uint64_t group_watch_deadline(const struct group *g);
void group_forgive_own_sleep(struct group *g);

/* group_states.c */
void group_advance(struct group *g);
/* Until when GATHERING waits; TIME_NEVER: without a limit; 0: it does not wait. */
uint64_t group_gather_deadline(const struct group *g);
/* How large the group could be with the waiting nodes; 0: not larger. */
size_t group_larger(const struct group *g);
void group_on_warm(struct group *g, struct node *n, const struct rdzv_warm *now);

void group_stop_for_node(struct group *g, enum incident_class class, const char *node,
                         uint64_t incarnation, uint64_t symptom_ns, const char *why);
/* halted: as in struct closed. */
void group_stop_for_operator(struct group *g, const char *why, bool halted);
void group_stop_for_failure(struct group *g);
void group_on_hang(struct group *g, const struct group_event *event);
/* The stop as the last event; unchanged while its cause is not known. */
void group_stop_event(const struct group *g, struct last_event *ret);
/* While its group stops. True: that is why the group stops, and it is reported. */
bool group_blame_lost_node(struct group *g, enum incident_class class, const char *node,
                           uint64_t incarnation, bool outlived, const char *why);
/* While its group stops. is_new: its first report of that; GROUP_EFFECT_RELEASED follows. */
void group_leaves_meanwhile(struct group *g, const struct node *n, bool is_new);

void group_close_failed(struct group *g, const char *reason);
/* Closes the job because nodes were asked to leave, and too few stay. */
void group_close_interrupted(struct group *g);
/* The arbiter or the leader file has the outcome: now it is sent to the nodes. */
void group_outcome_recorded(struct group *g);

/* group_leadership.c */
/* If not, the leader grants no leases and forms no groups. */
bool group_is_confirmed(const struct group *g);
/* A leader with too few nodes does not end the job before: silent nodes may continue with another
 * leader, and nodes that a new leader does not know yet may be on their way. */
uint64_t group_patient_until(const struct group *g);
/* Its own node is about to leave, or has: no more groups are formed or found too small. */
bool group_is_leaving(const struct group *g);
void group_send_lease(struct group *g, struct node *n);
void group_ask(struct group *g, enum arbiter_kind kind, uint32_t epoch);
/* Whether a group can be formed in this epoch. If not, it claims the next epoch. */
bool group_has_epoch_to_form(struct group *g);
/* `epoch`: the leader's own if no other agent leads, but this one can't continue. */
void group_depose(struct group *g, uint32_t epoch);

void group_leadership_begin(struct group *g);
void group_on_arbiter(struct group *g, const struct arbiter_answer *answer);
void group_on_touched(struct group *g, uint64_t touched_ns);
void group_on_higher_epoch(struct group *g, uint32_t epoch);
void group_on_resign(struct group *g);
void group_leadership_time(struct group *g);
void group_ask_to_close(struct group *g);
/* No worker runs, of this epoch or of an earlier one, and none can come back. */
bool group_nothing_runs(const struct group *g);
/* The nodes that stay are too few, and no option asks to wait for more. */
bool group_too_few_stay(const struct group *g);
void group_resign_time(struct group *g);
uint64_t group_leadership_deadline(const struct group *g);

void group_successor_lost(struct group *g, const struct node *n, enum removal how);
void group_on_echo(struct group *g, const struct node *n, const struct echo *echo);
/* Whether the next group can name its successors without a new epoch. */
bool group_successors_settled(struct group *g);
/* Names the successors again, from the members, and sends their names to all nodes. */
void group_name_successors(struct group *g);
/* A member's listener was reached: it can become a successor. */
void group_offer_successor(struct group *g);
void group_successors_time(struct group *g);

/* group_view.c */
void group_on_command(struct group *g, const struct command *command);
