/* Shared by the files of the member machine: its state, and the purpose of each file. Private to
 * this folder.
 *   member.c          the states, events of the launcher, the step; acts on the election's outcomes
 *   member_leader.c   whether the leader is alive, and its messages */
#pragma once

#include "rendezvous/member/election.h"

struct member {
    struct member_config config;
    enum member_state state;
    struct step step; /* the current time; where effects are added */
    uint64_t since_ns;
    uint64_t due_ns; /* when the next MEMBER_EVENT_TIME was asked for */

    struct leader_link link;
    struct held_lease lease;
    struct election election; /* with an arbiter */

    /* The group. */
    struct generation generation; /* of the newest FORM, or of a STOP for an unknown generation */
    struct form form;
    uint32_t reachability; /* of START: the ways that work for all members */
    bool start_wanted, has_workers, fenced;
    uint64_t held_until_ns, paused_ns; /* after a sleep: how long workers can be HELD; its length */
    bool held_stop;                    /* when it comes, the workers are stopped, */
    uint64_t held_grace_ns;            /* with this grace */
    struct report report;
    bool report_due; /* it changed while there was no connection, or is sent with the next RENEW */
    bool has_stop_cause;
    struct desired stop_cause;
    bool has_later; /* a FORM that came before this node was idle again */
    struct desired later;

    struct member_end end; /* kind is set as soon as it is decided */
    bool leaving, closed;
    uint64_t leave_by_ns; /* asked to leave, but it may be the next leader; TIME_NEVER: not so */
    uint64_t leave_grace_ns;
    char reason[RDZV_REASON_MAX]; /* effects point to it */
};

/* member.c */
/* Sends the report, together with a RENEW if one is due soon. */
void member_send_report(struct member *m);
void member_renew(struct member *m);
void member_move(struct member *m, enum member_state to);
/* Only the first decision counts. */
void member_decide_end(struct member *m, enum member_end_kind kind, const char *reason);
/* Ends as decided: at once if there are no workers; else when they are gone, or can't be killed. */
void member_end_with_grace(struct member *m, uint64_t grace_ns);
/* With an arbiter: the workers end within the rest of the lease, and the node searches for the next
 * leader. */
void member_lose_leader(struct member *m, bool gone, const char *why);
void member_set_report(struct member *m, enum node_state state);
/* Kills the workers now. */
void member_fence(struct member *m);
void member_stop_workers(struct member *m, uint64_t grace_ns, const char *reason);

void member_on_desired(struct member *m, const struct desired *d);
void member_on_form(struct member *m, const struct desired *d);
void member_on_stop(struct member *m, const struct desired *d);
void member_on_closed(struct member *m, const struct desired *d);
void member_on_lease(struct member *m, const struct lease *lease);
void member_try_start(struct member *m);

/* member_leader.c */
void member_leader_gone(struct member *m, const char *why);
void member_on_disconnect(struct member *m, const char *why);
void member_on_probe(struct member *m, enum probe_result result);
void member_on_welcome(struct member *m, const struct member_event *ev);
