/* What the files of the node's machine share: its memory, and who does what with it.
 *   member.c         the states, what the launcher says, the step
 *   member_desired.c what the leader says
 *   member_leader.c  whether the leader is there
 *   member_election.c    with an arbiter: whom to follow, where to look for it
 *   member_record.c  with an arbiter: what it says
 *   succession.c     with an arbiter: when this node may claim, and with what it begins
 * Nobody else includes this. */
#pragma once

#include "base/idmap.h"
#include "rendezvous/member/member.h"

/* A connected leader that said nothing for this many heartbeats is probed. */
#define SILENT_HEARTBEATS 3
/* Of one step. */
#define MEMBER_REQUESTS_MAX 3
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
    uint64_t probe_ns;      /* next probe; TIME_NEVER */
    uint64_t probe_wait_ns; /* before it: doubles up to config.probe_retry_ns */
    uint64_t leader_clock_ns, rtt_ns;

    /* The lease. */
    uint64_t lease_end_ns;         /* 0: none */
    struct generation lease_names; /* by the newest one, */
    uint64_t names_end_ns;         /* which alone START may count on */

    /* The group. */
    struct generation generation; /* of the newest FORM, or of a STOP for one never heard of */
    struct form form;
    uint32_t reachability; /* of START, that all have */
    bool start_wanted, has_workers, fenced;
    struct report report;
    bool report_due; /* it changed while there was no connection, or goes with the next RENEW */
    bool has_stop_cause;
    struct desired stop_cause;
    bool has_later; /* a FORM that came before this node was idle again */
    struct desired later;

    struct member_end end; /* kind is set as soon as it is decided */
    bool leaving, closed;
    char reason[RDZV_REASON_MAX]; /* effects point here */

    /* With an arbiter: whom this node follows. */
    enum member_election election;
    struct rdzv_peer target;        /* that CONNECT was for; incarnation 0: none */
    uint64_t target_ns;             /* since when */
    struct rdzv_peer leader_peer;   /* where the leader is, or was, reached */
    bool leader_gone;               /* surely: no process of it is left */
    uint64_t lost_ns;               /* when this node lost it */
    uint64_t good_lease_ns;         /* the last LEASE with a validity, or WELCOME */
    uint64_t apart_ns;              /* without a leader since; for the join timeout */
    unsigned redirects;             /* since the last WELCOME */
    unsigned round;                 /* of the search: which place is tried */
    uint64_t seek_ns, seek_wait_ns; /* the next round, and the pause before the one after it */
    uint64_t again_ns;              /* FOLLOWING: back to a leader that knew less; TIME_NEVER */
    enum member_join_policy join_policy; /* as last told */
    struct rdzv_peer join_policy_peer;
    struct idmap parked; /* incarnations of those who came */
    char waiting[RDZV_REASON_MAX];

    /* What the arbiter said. */
    struct arbiter_record record;
    uint64_t record_ns; /* when the last good read began; 0: none */
    uint64_t beat_ns;   /* the beat has been seen with this value since */
    uint64_t moved_ns;  /* it had moved between two reads of this node's time alone; 0 */
    /* each answer since says that the arbiter's data is gone; 0: not so */
    uint64_t ruined_ns;
    bool asking;      /* a READ is under way */
    uint64_t read_ns; /* the next is due */
    /* the newest that was seen to be vacant or idle, 0: none: whoever wins the one after it, and no
     * other, knows that nothing runs */
    uint32_t quiet_epoch;
    uint64_t patience_ns; /* how long the beat has to stand still for rule 4 */
    uint64_t spread_ns;   /* in an idle epoch nodes claim so far apart */
    uint64_t random;

    /* Being a successor. */
    struct successors named;
    int successor_index; /* in named; -1: not one */
    bool has_handover;
    struct handover handover;
    /* the newest LEASE that was echoed, or the naming as the first: no lease outlives it longer
     * than a lease */
    uint64_t successor_base_ns;
    bool successor_gone[RDZV_SUCCESSORS_MAX]; /* those before it */
    uint64_t successor_probe_ns;
    uint64_t may_claim_ns; /* its conditions hold since; TIME_NEVER: they don't */
    uint32_t claim_epoch;
    uint64_t claim_ns, claim_retry_ns;
    bool claim_asked;                                     /* and not answered */
    struct arbiter_request requests[MEMBER_REQUESTS_MAX]; /* effects point here */
    unsigned n_requests;

    struct member_update *update;
};

/* member.c */
struct member_effect *member_emit(struct member *m, enum member_effect_kind kind);
/* Its report; and a RENEW that would soon be due with it. */
void member_send_report(struct member *m);
/* With the next RENEW, which comes a little early. */
void member_send_report_soon(struct member *m);
void member_renew(struct member *m);
void member_move(struct member *m, enum member_state to);
/* The first decision stands. */
void member_decide_end(struct member *m, enum member_end_kind kind, const char *reason);
/* Ends as decided: at once, or when the workers are gone, or can't be. */
void member_end_with_grace(struct member *m, uint64_t grace_ns);
/* The workers lose their leader: they end within what is left of the lease. */
void member_stop_for_leader(struct member *m, const char *why);
void member_set_report(struct member *m, enum node_state state);
void member_stop_workers(struct member *m, uint64_t grace_ns, const char *reason);
void member_finish(struct member *m);

/* member_desired.c */
void member_on_desired(struct member *m, const struct desired *d);
void member_on_form(struct member *m, const struct desired *d);
void member_on_stop(struct member *m, const struct desired *d);
void member_on_closed(struct member *m, const struct desired *d);
void member_on_lease(struct member *m, const struct lease *lease);
void member_try_start(struct member *m);

/* member_leader.c */
void member_leader_gone(struct member *m, const char *why);
void member_probe_leader(struct member *m);
void member_on_disconnect(struct member *m);
void member_on_probe(struct member *m, enum probe_result result);
void member_on_welcome(struct member *m, const struct member_event *ev);

/* member_election.c; all of it only with an arbiter */
void member_election_begin(struct member *m);
void member_election_move(struct member *m, enum member_election to);
void member_follow(struct member *m, const struct rdzv_peer *peer, uint32_t epoch);
void member_seek(struct member *m);
void member_lost_leader(struct member *m, bool gone, const char *why);
void member_election_disconnected(struct member *m, bool was_connected);
void member_election_welcomed(struct member *m, uint64_t leader, uint32_t epoch);
void member_election_too_low(struct member *m);
void member_on_redirect(struct member *m, uint32_t epoch, const struct rdzv_peer *peer);
void member_on_deposed(struct member *m);
void member_election_time(struct member *m);
uint64_t member_election_deadline(const struct member *m);
/* What those who JOIN here are told: said when it changes. */
void member_tell_join_policy(struct member *m);
void member_set_epoch(struct member *m, uint32_t epoch);
/* What it waits for: one sentence. */
void member_set_waiting(struct member *m, const char *fmt, ...) _printf_(2, 3);

/* member_record.c */
bool member_ask(struct member *m, enum arbiter_kind kind, uint32_t epoch);
void member_on_record(struct member *m, const struct arbiter_answer *a);
/* The arbiter's data is gone: this node ends, if it stays so and no leader says otherwise. */
void member_on_ruin(struct member *m, const struct arbiter_answer *a);
/* Rule 4: nobody who is named does it, and the leader is over, as far as the record tells. */
bool member_may_claim_unnamed(const struct member *m);

/* succession.c */
void succession_on_named(struct member *m, const struct successors *s);
void succession_on_handover(struct member *m, const struct handover *e);
void succession_on_lease(struct member *m, const struct lease *lease);
void succession_on_claim(struct member *m, const struct arbiter_answer *a);
void succession_on_peer_probe(struct member *m, uint64_t incarnation, enum probe_result result);
void succession_forget(struct member *m);
/* Claims, if it may by now. */
void succession_time(struct member *m);
uint64_t succession_deadline(const struct member *m);
void succession_claim(struct member *m, uint32_t epoch);
bool succession_is_named(const struct member *m);
