/* A node's part in the election of its leader (muster-rendezvous(7), "Succession"): which leader it
 * follows, where it searches when it has lost its leader, what the arbiter answers, and when it may
 * claim an epoch. Without an arbiter it stays FIXED, and nothing here is called.
 *
 * Pure, and knows nothing of the node's group and workers: member.c asks it, and acts on the
 * outcomes.
 *
 *     ASKING ─record─▶ FOLLOWING ─gone, silent─▶ SEEKING ─rules 2, 4─▶ CLAIMING ─won─▶ LEADING
 *       │ none: claim      ▲                        │ a leader            │ lost          │
 *       ▼                  ├────────────────────────┘◀────────────────────┘               │
 *     CLAIMING             └──────────────── another leads ───────────────────────────────┘
 */
#pragma once

#include "base/idmap.h"
#include "rendezvous/member/step.h"

/* Of one step. */
#define ELECTION_REQUESTS_MAX 3

struct election {
    enum member_election state;
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
    enum member_join_policy join_policy; /* as last received */
    struct rdzv_peer join_policy_peer;
    struct idmap parked; /* incarnations of the nodes that came */
    char waiting[RDZV_REASON_MAX];

    /* The arbiter's answers. */
    struct arbiter_record record;
    uint64_t record_ns; /* when the last good read began; 0: none */
    uint64_t beat_ns;   /* the beat has been seen with this value since */
    uint64_t moved_ns;  /* it had moved between two reads of this node's time alone; 0 */
    /* each answer since reports that the arbiter's data is gone; 0: not so */
    uint64_t ruined_ns;
    bool asking;      /* a READ is under way */
    uint64_t read_ns; /* the next is due */
    /* the newest that was seen to be vacant or idle, 0: none: only the agent that wins the epoch
     * after it knows that nothing runs */
    uint32_t quiet_epoch;
    uint64_t patience_ns; /* how long the beat must be unchanged for rule 4 */
    uint64_t spread_ns;   /* in an idle epoch nodes claim so far apart */

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
    bool claim_asked;                                       /* and not answered */
    struct arbiter_request requests[ELECTION_REQUESTS_MAX]; /* effects point here */
    unsigned n_requests;
};

/* What it comes to for the node. */
enum election_outcome_kind {
    ELECTION_GOES_ON = 0,
    ELECTION_JOB_CLOSED, /* by the record, e->record */
    ELECTION_FAILED,     /* no leader, and none to come: reason; the workers have grace_ns */
};
struct election_outcome {
    enum election_outcome_kind kind;
    char reason[RDZV_REASON_MAX];
    uint64_t grace_ns;
};

/* ---- election.c ---- */

void election_init(struct election *e, const struct member_config *config, uint64_t now_ns);
void election_fini(struct election *e);
/* What was silent while this node itself slept is asked again. */
void election_forgive_sleep(struct election *e, const struct step *s);

/* Has a leader that took this node in, and that was not lost since. */
bool election_has_leader(const struct election *e, const struct leader_link *link);
/* It has been without a lease for so long that it is lost. */
bool election_leader_is_silent(const struct election *e, const struct step *s);
/* True: this node followed it, and disconnects; its workers end, then election_seek() must be
 * called. */
bool election_lose_leader(struct election *e, const struct step *s, bool gone);
/* True: the same, of the group that this agent led. */
bool election_on_deposed(struct election *e, const struct step *s);
/* Looks for the next leader. why: what became of the last, for people; NULL: nothing new. */
void election_seek(struct election *e, const struct step *s, const char *why);

enum election_welcome {
    ELECTION_WELCOME_REFUSED = 1, /* a node that has seen a higher epoch ignores lower ones */
    ELECTION_WELCOME_SAME,        /* it resumes */
    ELECTION_WELCOME_OTHER,       /* another leader, or epoch: nothing holds of what was wanted */
};
enum election_welcome election_on_welcome(struct election *e, const struct step *s, uint64_t leader,
                                          uint32_t epoch);
void election_on_disconnect(struct election *e, const struct step *s, bool was_connected);
void election_on_redirect(struct election *e, const struct step *s, uint32_t epoch,
                          const struct rdzv_peer *peer);
/* A node has sent JOIN to our listener, or is gone again. */
void election_on_caller(struct election *e, uint64_t caller, bool came);
/* Not after the node's end is decided. */
struct election_outcome election_time(struct election *e, const struct step *s);
uint64_t election_deadline(const struct election *e, const struct step *s);
/* How nodes that JOIN here are answered: sent when it changes. */
void election_set_join_policy(struct election *e, const struct step *s, bool ended);

/* ---- election_record.c ---- */

/* A READ or a CLAIM was answered. */
struct election_outcome election_on_answer(struct election *e, const struct step *s,
                                           const struct arbiter_answer *a);

/* ---- election_claim.c ---- */

/* True: it is the first successor, whose echo the leader waits for: renew at once. */
bool election_on_named(struct election *e, const struct step *s, const struct successors *named);
void election_on_handover(struct election *e, const struct step *s, const struct handover *h);
void election_on_lease(struct election *e, const struct step *s, const struct lease *lease);
void election_on_peer_probe(struct election *e, uint64_t incarnation, enum probe_result result);
