/* What the files of the group machine share: its memory, and who does what with it.
 *   group.c          events in, effects out; nodes coming and going
 *   group_states.c   the states and the ways between them
 *   group_view.c     what others may know
 *   group_members.c  who takes part, in which order, with which ranks
 *   group_cause.c    which failure came first
 * Nobody else includes this. */
#pragma once

#include "base/idmap.h"
#include "base/list.h"
#include "base/strbuf.h"
#include "rendezvous/group.h"

/* Distinct --role names in one job. */
#define GROUP_ROLES_MAX 64

struct node {
    struct list by_heard; /* in group.heard: the longest silent first */
    struct node_info info;
    struct report report;
    uint64_t join_order; /* 1, 2, … */
    bool connected;
    bool reached;       /* its listener has accepted us: "refused" means gone from here on */
    bool probing;       /* a probe is under way */
    uint64_t probe_wait_ns; /* before the next: doubles */
    uint64_t probe_ns;  /* when the next is due, while it is disconnected or silent; TIME_NEVER */
    uint64_t heard_ns;  /* leader's clock at its last RENEW or JOIN */
    bool is_member;     /* of the present generation (FORMING, RUNNING, STOPPING) */
    struct form form;   /* valid while is_member */
    /* Its clock: leader's = node's + offset, give or take error. */
    uint64_t asked_ns, answered_ns; /* its newest RENEW by its clock, our LEASE by ours */
    bool offset_known;
    uint64_t offset_at_ns; /* when it was measured */
    int64_t offset_ns;
    uint64_t error_ns;
};

struct group {
    struct group_config config;
    enum group_state state;
    uint64_t now_ns;
    uint64_t due_ns; /* when the next GROUP_EVENT_TIME was asked for */
    uint64_t join_counter;

    struct idmap index;  /* incarnation → struct node */
    struct list heard;   /* all nodes, by heard_ns */
    size_t n_nodes;
    uint64_t probe_min_ns; /* no node's probe is due before this */

    struct generation generation; /* the newest formed */
    struct node **members;        /* of it, in rank order; the lost are taken out */
    size_t n_members;
    /* incarnations of the last group, in rank order, the lost included */
    uint64_t *order;
    size_t n_order;
    bool formed_once;             /* no last call any more */
    /* below min is a loss from here on, not a start that takes long */
    bool started_once;

    /* GATHERING */
    uint64_t gather_since_ns;
    uint64_t enough_since_ns; /* min nodes are there since; TIME_NEVER: they are not */
    bool lost_somebody;       /* since the last group: regroup_wait_ns applies */
    /* FORMING */
    bool store_open, store_wanted; /* of the present generation */
    bool form_told;
    uint64_t form_deadline_ns;
    char store_host[RDZV_HOST_MAX];
    uint16_t store_port;
    /* STOPPING, and why */
    uint64_t stop_since_ns;
    bool closing;             /* CLOSED follows, not GATHERING */
    /* a failure began it: charged when it is sure that no loss was behind it */
    bool charge_pending;
    enum outcome outcome;
    char reason[RDZV_REASON_MAX];
    bool has_cause, cause_retold;
    uint32_t retold;          /* how often a better cause was told */
    bool cause_withheld;      /* a node is away, the failure may be its echo: not told yet */
    struct failure cause;
    int64_t cause_at_ns;      /* on the leader's clock */
    uint64_t cause_error_ns;
    uint64_t settle_deadline_ns; /* TIME_NEVER: settled */
    uint32_t n_stopping;
    /* CLOSED */
    uint64_t close_deadline_ns;
    bool done;

    uint32_t restarts_used, losses;
    char last_lost[RDZV_HOST_MAX]; /* for "waiting for …" */

    bool status_dirty;
    uint64_t status_next_ns;

    struct group_update *update; /* of the step under way */
    struct strbuf notes;         /* texts that effects point to */
};

/* group.c */
struct group_effect *group_emit(struct group *g, enum group_effect_kind kind, uint64_t node);
void group_tell(struct group *g, const struct node *n);
void group_tell_members(struct group *g);
/* One line for people; the text is copied. */
void group_incident(struct group *g, const char *text);

/* group_states.c */
/* Goes on from state to state as far as what is known allows. */
void group_advance(struct group *g);
/* Until when GATHERING waits; TIME_NEVER: for somebody, 0: for nobody. */
uint64_t group_gather_deadline(const struct group *g);
bool group_report_is_about(const struct group *g, const struct node *n, enum node_state state);
/* A failure waits for its charge and there is no restart left for it. */
bool group_budget_spent(const struct group *g);
void group_begin_stop(struct group *g, const char *reason);
void group_stop_for_lost_node(struct group *g, const char *why);
void group_stop_for_failure(struct group *g);
void group_blame_lost_node(struct group *g, const struct node *n, const char *why);
void group_close_failed(struct group *g, const char *reason);

/* group_members.c */
bool group_is_candidate(const struct group *g, const struct node *n);
size_t group_count_candidates(const struct group *g);
/* Nodes that may yet become candidates: stopping now, or silent and not yet given up. */
size_t group_count_hopeful(const struct group *g);
/* Fills g->members and their forms with the next group: at most max nodes, best order. */
void group_choose_members(struct group *g);

/* group_cause.c */
/* Notes a node's failure in the present generation; true when it is the new first cause. */
bool group_note_failure(struct group *g, const struct node *n, const struct failure *failure);
/* Whether the first cause may be the echo of a lost node: no signal, no lack of memory. */
bool group_cause_may_be_echo(const struct group *g);
void group_note_clock(struct group *g, struct node *n, const struct renew *renew);
/* The node as people know it: host name, "-2" for a second agent of that host. */
void group_node_name(const struct node *n, char out[RDZV_HOST_MAX]);
