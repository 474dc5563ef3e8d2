/* The life of an agent: when it has to stop, what its end waits for, and why it ended. Pure.
 *
 *     JOINING ◀── a leader is found, or lost ──▶ IN_GROUP
 *        │                                          │
 *        ├─ a signal, or an operator drains the node┤
 *        ▼                                          ▼
 *     STOPPING ─── the member has ended ───▶ LINGERING ─── nothing is awaited ───▶ OVER
 *        any ─── the job has ended, or the agent cannot continue ──┘
 *
 * Effects are carried out in order; one may cause the next event at once. A CHECK follows each
 * other event, and only CHECK ends the process. After OVER, signals end the wait for readers. */
#pragma once

#include "rendezvous/member/member.h"

enum life_state {
    LIFE_JOINING = 1, /* no leader has admitted this node yet */
    LIFE_IN_GROUP,
    LIFE_STOPPING,  /* this node is to end: its member has to stop the workers and leave */
    LIFE_LINGERING, /* the member has ended, or is not waited for */
    LIFE_OVER,      /* the process ends */
    LIFE_STATE_COUNT,
};

/* Why it ended. A signal counts more than all other causes except the job's success. */
enum life_cause {
    LIFE_CAUSE_NONE = 0,
    LIFE_CAUSE_JOB,      /* as the member's end describes */
    LIFE_CAUSE_SIGNAL,   /* agent_life.signo */
    LIFE_CAUSE_OPERATOR, /* the node was drained */
    LIFE_CAUSE_FAILURE,  /* the agent could not continue */
    LIFE_CAUSE_USAGE,    /* the same, because of what the user requested */
};

/* What holds at the time of an event. */
enum life_fact {
    LIFE_HAS_MEMBER = 1 << 0,
    LIFE_HAS_LEADER = 1 << 1,  /* the member was admitted */
    LIFE_HAS_ARBITER = 1 << 2, /* another node can lead */
    LIFE_LEADS = 1 << 3,
    LIFE_WORKERS_RUN = 1 << 4,
    LIFE_JOB_CLOSES = 1 << 5,   /* the leader's last order ends the job; */
    LIFE_JOB_SUCCEEDS = 1 << 6, /* and it has succeeded */
    LIFE_MAY_REQUEUE = 1 << 7,  /* it has led a job that Slurm was not yet asked to requeue */
    /* The end waits for these: */
    LIFE_PROCESSES = 1 << 8, /* workers' processes, or what workers left */
    LIFE_SERVES = 1 << 9,    /* it leads, and has not informed all nodes of the end yet */
    LIFE_COMPARES = 1 << 10, /* what ranks did when one failed is being compared */
    LIFE_ASKS = 1 << 11,     /* Slurm has a question of this agent */
};

enum life_event_kind {
    LIFE_EVENT_CHECK = 1, /* after each other event; facts have changed, or the deadline has come */
    LIFE_EVENT_SIGNAL,    /* signo: it ends the job or this node */
    LIFE_EVENT_ORDER,     /* the process that started this agent wants the job to end */
    LIFE_EVENT_DRAIN,     /* an operator wants this node to leave; reason */
    LIFE_EVENT_END,       /* the member has ended: end */
    LIFE_EVENT_FAILURE,   /* the agent cannot continue */
    LIFE_EVENT_USAGE,     /* the same, because of what the user requested */
    LIFE_EVENT_COUNT,
};

struct life_event {
    enum life_event_kind kind;
    unsigned facts; /* enum life_fact */
    uint64_t now_ns;
    int signo;
    enum member_end_kind end;
    const char *reason;
};

enum life_effect {
    LIFE_EFFECT_BEGIN = 1,    /* this node is to end: prepare the stop of its workers */
    LIFE_EFFECT_END_OUTPUT,   /* do not wait for more output of the workers */
    LIFE_EFFECT_STOP_JOB,     /* in the group that this agent leads */
    LIFE_EFFECT_LEAVE,        /* MEMBER_EVENT_LEAVE, if there is a member; the event's reason */
    LIFE_EFFECT_KILL,         /* SIGKILL to all workers and what they left */
    LIFE_EFFECT_PASS_ON,      /* the event's signal, to what workers left */
    LIFE_EFFECT_LET_GO,       /* compare nothing more */
    LIFE_EFFECT_RESIGN,       /* another node leads from now on */
    LIFE_EFFECT_REQUEUE,      /* ask Slurm to requeue the job */
    LIFE_EFFECT_QUIT,         /* end the loop */
    LIFE_EFFECT_LEAVE_OUTPUT, /* do not wait for readers of the output */
    /* Messages to the user. */
    LIFE_EFFECT_LOG_STOPS,       /* workers are being stopped */
    LIFE_EFFECT_LOG_SUCCEEDED,   /* too late to stop the job: it has succeeded */
    LIFE_EFFECT_LOG_KILLS,       /* workers are killed */
    LIFE_EFFECT_LOG_KILLS_LEFT,  /* what workers left is killed, */
    LIFE_EFFECT_LOG_AWAITS_LEFT, /* or waited for */
    LIFE_EFFECT_LOG_OUTPUT,      /* only a reader of the output is waited for */
    LIFE_EFFECT_COUNT,
};
#define LIFE_EFFECTS_MAX 8

struct life_update {
    enum life_effect effects[LIFE_EFFECTS_MAX];
    size_t n_effects;
};

struct agent_life {
    enum life_state state;
    enum life_cause cause;
    enum member_end_kind end; /* NONE: the member has not ended */
    int signo;                /* the first signal that counted; 0: none */
    unsigned interrupts;      /* signals since then by which the user wants a faster end */
    unsigned awaits;          /* facts for which the end waits */
    uint64_t deadline_ns;     /* of a CHECK; TIME_NEVER: none */
};
void agent_life_init(struct agent_life *l);
void agent_life_step(struct agent_life *l, const struct life_event *e, struct life_update *ret);

/* It has got an order to end. */
static inline bool agent_life_ends(const struct agent_life *l) { return l->state >= LIFE_STOPPING; }
/* The agent could not continue; the reason was logged. */
static inline bool agent_life_failed(const struct agent_life *l) {
    return l->cause == LIFE_CAUSE_FAILURE || l->cause == LIFE_CAUSE_USAGE;
}

const char *life_state_name(enum life_state s);
bool life_may_move(enum life_state from, enum life_state to);
