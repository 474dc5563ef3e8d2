/* What the files of the node's machine share: its memory, and who does what with it.
 *   member.c         the states, what leader and launcher say, the step
 *   member_leader.c  whether the leader is there
 * Nobody else includes this. */
#pragma once

#include "rendezvous/member.h"

/* A connected leader that said nothing for this many heartbeats is probed. */
#define SILENT_HEARTBEATS 3
/* The first wait between probes: a guardian at work is done in milliseconds. */
#define PROBE_RETRY_MIN_NS (2 * NS_PER_MS)

struct member {
    struct member_config config;
    enum member_state state;
    uint64_t now_ns, since_ns;
    uint64_t due_ns; /* when the next MEMBER_EVENT_TIME was asked for */

    /* The leader, as far as it is known. */
    bool connected;
    uint64_t leader;
    uint32_t epoch;
    uint64_t connected_ns;   /* leases that answer older RENEWs don't count */
    uint64_t leader_seen_ns; /* its last word */
    uint64_t renew_ns;       /* next RENEW */
    bool probing;
    uint64_t probe_ns;       /* next probe; TIME_NEVER */
    uint64_t probe_wait_ns;  /* before it: doubles up to config.probe_retry_ns */
    uint64_t leader_clock_ns, rtt_ns;

    /* The lease. */
    uint64_t lease_end_ns;        /* 0: none */
    struct generation lease_names; /* by the newest one, */
    uint64_t names_end_ns;         /* which alone START may count on */

    /* The group. */
    struct generation generation; /* of the newest FORM, or of a STOP for one never heard of */
    struct form form;
    bool start_wanted, has_workers, fenced;
    struct report report;
    bool unsaid; /* it changed while there was no connection */
    bool has_stop_cause;
    struct desired stop_cause;
    bool has_later; /* a FORM that came before this node was idle again */
    struct desired later;

    struct member_end end;       /* kind is set as soon as it is decided */
    bool leaving, closed;
    char reason[RDZV_REASON_MAX]; /* effects point here */

    struct member_update *update;
};

/* member.c */
struct member_effect *member_emit(struct member *m, enum member_effect_kind kind);
void member_say(struct member *m);
void member_renew(struct member *m);
void member_move(struct member *m, enum member_state to);
/* The first decision stands. */
void member_decide_end(struct member *m, enum member_end_kind kind, const char *reason);
/* Ends as decided: at once, or when the workers are gone, or can't be. */
void member_end_with_grace(struct member *m, uint64_t grace_ns);

/* member_leader.c */
void member_leader_gone(struct member *m, const char *why);
void member_probe_leader(struct member *m);
void member_on_disconnect(struct member *m);
void member_on_probe(struct member *m, enum probe_result result);
void member_on_welcome(struct member *m, const struct member_event *ev);
