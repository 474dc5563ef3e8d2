/* What a leader's authority, and so each of its leases, depends on: the arbiter, which has its
 * epoch as the latest, or the leader file on its host (muster-rendezvous(7), "Leases", "Which node
 * claims, and when"). It does not know the nodes. */
#pragma once

#include "rendezvous/arbiter/arbiter_messages.h"
#include "rendezvous/leader/parts/group_config.h"

struct leadership {
    const struct group_config *config; /* borrowed */
    uint32_t epoch;                    /* of this leader; grows with each claim of its own */
    bool idle;                         /* nothing runs, and no group is formed in this epoch */
    bool over; /* another agent leads, or this one has resigned: nothing happens any more */
    uint64_t begun_ns;
    uint64_t read_ns;    /* arbiter: when the last successful read began; 0: none yet */
    uint64_t touched_ns; /* leader file: when the last successful touch began; 0: none yet */
    uint64_t beat_ns;    /* when the next beat, read or touch is due */
    uint64_t paused_ns;  /* since when the beat is paused; 0: it is not */
    bool looking;        /* a beat or read is under way */
    bool claiming;       /* a claim of our own next epoch is under way */
    bool closing;        /* the outcome is being recorded */
    uint64_t claim_ns;   /* no claim, and no attempt to record the outcome, before this time */
    uint64_t close_ns;   /* when the outcome was decided; 0: it is not */
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

void leadership_init(struct leadership *l, const struct group_config *c);

/* ---- leases ---- */

/* How long a lease that is granted now is valid; 0: none can be granted. successor_ns: our clock as
 * the first successor echoed it last; TIME_NEVER: leases do not depend on it. */
uint64_t leadership_validity(const struct leadership *l, uint64_t successor_ns, uint64_t now_ns);
/* If not, the leader grants no leases and forms no groups. */
bool leadership_is_confirmed(const struct leadership *l, uint64_t now_ns);
/* A leader with too few nodes does not end the job before: silent nodes may continue with another
 * leader, and nodes that a new leader does not know yet may be on their way. */
uint64_t leadership_patient_until(const struct leadership *l, size_t n_fell_silent,
                                  bool formed_here);

/* ---- the beat ---- */

enum beat_change {
    BEAT_UNCHANGED = 0,
    BEAT_PAUSED,  /* so that a successor that is in contact with more nodes can take over */
    BEAT_RESUMED, /* so soon that no other agent can have claimed */
    BEAT_RESUMED_LATE,
};
enum beat_change leadership_pause(struct leadership *l, bool reaches_too_few, uint64_t now_ns);
/* When the next beat is due. recorded: the arbiter or the leader file has the outcome. */
uint64_t leadership_beat_at(const struct leadership *l, bool recorded);
/* When an outcome that is still to be recorded can be sent to the arbiter. */
uint64_t leadership_close_at(const struct leadership *l);
bool leadership_may_claim(const struct leadership *l, uint64_t now_ns);

/* ---- answers ---- */

/* The state of the job's outcome. */
enum outcome_record {
    OUTCOME_OPEN = 0,  /* there is none: the job continues */
    OUTCOME_WAITS,     /* it must be recorded first, where nodes that come later find it */
    OUTCOME_RECORDED,  /* it is recorded, and is sent to the nodes */
    OUTCOME_DELIVERED, /* all nodes have it, or the close timeout has passed */
    OUTCOME_GIVEN_UP,  /* it could not be recorded, and is not sent to any node */
};

enum leadership_change {
    LEADERSHIP_UNCHANGED = 0,
    LEADERSHIP_CONFIRMED,   /* leases may be granted again */
    LEADERSHIP_CLAIM_AGAIN, /* confirmed; but an earlier claim may have been won: it is repeated */
    LEADERSHIP_NEW_EPOCH,   /* the claim was won */
    LEADERSHIP_DEPOSED,     /* news.epoch */
    LEADERSHIP_OUTCOME_RECORDED,
    LEADERSHIP_RUINED, /* the arbiter's data is gone for good: the job ends */
    LEADERSHIP_RESIGNED,
};
struct leadership_news {
    enum leadership_change change;
    uint32_t epoch;               /* DEPOSED: the later epoch */
    char notice[RDZV_REASON_MAX]; /* a line for people, or "" */
};
void leadership_answer(struct leadership *l, const struct arbiter_answer *a,
                       enum outcome_record outcome, uint64_t now_ns, struct leadership_news *ret);

/* ---- resigning ---- */

enum resignation {
    RESIGN_WAIT = 0,
    RESIGN_VACATE, /* first the arbiter must record that nothing is left */
    RESIGN_END,    /* first the nodes that stay must learn that the job ends */
    RESIGN_NOW,
};
struct resign_view {
    bool successor_stays; /* a successor has the whole handover */
    bool too_few_stay;    /* and it could form no group */
    bool nothing_runs;    /* no handover is needed */
    bool formed_here;     /* this leader has formed a group */
    bool interrupted;     /* the job ends because nodes were asked to leave */
    enum outcome_record outcome;
};
enum resignation leadership_resign(const struct leadership *l, const struct resign_view *view,
                                   uint64_t now_ns);
uint64_t leadership_resign_deadline(const struct leadership *l, enum outcome_record outcome,
                                    uint64_t now_ns);

/* ---- the named successors ---- */

/* The named successors, and their states (muster-rendezvous(7), "Changing the successors"). A wrong
 * change of the list could let two agents lead: a named successor may claim the next epoch, until
 * it is surely gone, or until this leader has claimed that epoch. */
enum successor_state {
    SUCCESSOR_THERE = 1,
    SUCCESSOR_GONE,     /* surely, and before it can have claimed: may be dropped */
    SUCCESSOR_DOUBTFUL, /* may claim the next epoch at any time */
};

struct succession_plan {
    const struct group_config *config; /* borrowed */
    struct successors named;
    enum successor_state states[RDZV_SUCCESSORS_MAX];
    uint64_t clock_ns; /* our newest clock that the first has echoed, or the naming */
    uint64_t check_ns; /* a silent one is not checked again before */
};

/* Replaces the named successors, their epoch and their order. */
void plan_adopt(struct succession_plan *p, const struct successors *s, uint64_t now_ns);
/* A node was removed from the job. surely: it can't have claimed before, and never will. */
void plan_lose(struct succession_plan *p, uint64_t incarnation, bool surely);
/* True: the first successor has echoed our clock. */
bool plan_echo(struct succession_plan *p, uint64_t incarnation, const struct echo *echo,
               uint64_t now_ns);

enum plan_due {
    PLAN_NOTHING = 0,
    PLAN_NAME_ANEW,  /* the first is gone for good */
    PLAN_ASK_OTHERS, /* it is silent: if enough others are not, it may be dropped */
};
/* Called while leases depend on the first successor. */
enum plan_due plan_check(struct succession_plan *p, uint64_t now_ns);
uint64_t plan_deadline(const struct succession_plan *p, uint64_t now_ns);
