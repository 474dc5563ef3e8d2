/* A starter: the process that a user started, which has agents started on all nodes of the job,
 * passes signals on, and returns the job's exit status. A backend carries out what this machine
 * decides (starter_io.h). Pure: events in, effects out.
 *
 *     starter_init(&s, &config);
 *     starter_step(&s, &(struct starter_event){.kind = STARTER_EVENT_LEADER, .link = 1, …}, &u);
 *     … carry out u.effects; STARTER_EVENT_TIME at u.deadline_ns
 *
 *     STARTING -> RUNNING -> DECIDED -> OVER        the leader's verdict, then the agents' end
 *         `---------+-----> STOPPING -> DECIDED     a signal, or what starts them was killed
 *
 * A job that may have to go back into a queue is asked about (REQUEUE) when no worker is left, and
 * before the starter ends: with the verdict, or when all agents have ended without one.
 *
 * The leader sends a verdict, because what starts agents returns another status: srun that of the
 * worst task. After a job has recovered from a lost node, or from a kill for lack of memory, that
 * is not 0 (srun(1), RETURN VALUE; seen with Slurm 22.05).
 *
 * The order to stop goes to the leader, because it stops all nodes in one order, with one signal
 * for each worker. If no leader is connected, it goes to every agent. */
#pragma once

#include <stdbool.h>

#include "launcher/starter/starter_wire.h"

/* The exit status if nodes were lost and no leader was left. EX_TEMPFAIL of sysexits.h */
#define STARTER_EXIT_LOST 75
/* Beyond the workers' grace, until all agents are killed. */
#define STARTER_MORE_NS (10 * NS_PER_S)
/* After the verdict of a job that has lost nodes: until the others must stop (SlurmdTimeout). */
#define STARTER_LINGER_NS (10 * NS_PER_S)
/* After all agents were killed: until the starter ends without waiting for them. */
#define STARTER_KILLED_NS (5 * NS_PER_S)

enum starter_state {
    STARTER_STARTING = 1, /* no agent has led yet */
    STARTER_RUNNING,      /* an agent leads, or has led */
    STARTER_STOPPING,     /* the job was ordered to stop */
    STARTER_DECIDED,      /* the verdict is known; the agents end */
    STARTER_OVER,         /* END was emitted */
};

enum starter_event_kind {
    STARTER_EVENT_LEADER = 1,  /* link: the agent there reports that it leads */
    STARTER_EVENT_LEADER_GONE, /* link: its connection has ended */
    STARTER_EVENT_VERDICT,     /* link, verdict */
    STARTER_EVENT_SIGNAL,      /* signo, ends: whether it ends the job, or is for the workers */
    STARTER_EVENT_ENDED,       /* signalled, code: all agents have, or what starts them */
    STARTER_EVENT_SAFE,        /* a worker has reported a safe point */
    STARTER_EVENT_REQUEUED,    /* code: the exit status, now that the queue was asked */
    STARTER_EVENT_TIME,
};

struct starter_event {
    enum starter_event_kind kind;
    uint64_t now_ns;
    uint64_t link; /* the connection's number, not 0 */
    struct starter_verdict verdict;
    int signo;
    bool ends;
    bool signalled; /* code is the signal that killed it; else its exit status */
    int code;
};

enum starter_effect_kind {
    STARTER_EFFECT_STOP = 1, /* link, signo: the agent there is to stop the job; link 0: all are */
    STARTER_EFFECT_ACK,      /* link: the verdict has arrived */
    STARTER_EFFECT_SIGNAL,   /* signo: for all workers */
    STARTER_EFFECT_KILL,     /* all agents are killed, or what starts them */
    STARTER_EFFECT_REQUEUE,  /* status, so far: REQUEUED follows */
    STARTER_EFFECT_END,      /* status: the starter ends, and kills what it still waits for */
};

struct starter_effect {
    enum starter_effect_kind kind;
    uint64_t link;
    int signo;
    int status;
};

#define STARTER_EFFECTS_MAX 4
struct starter_update {
    struct starter_effect effects[STARTER_EFFECTS_MAX];
    size_t n_effects;
    uint64_t deadline_ns; /* when STARTER_EVENT_TIME is due; TIME_NEVER */
};

struct starter_config {
    uint64_t grace_ns; /* --shutdown-timeout */
    bool requeues;     /* --requeue, in a job that a queue has started */
};

/* Private to starter.c, but for reading. */
struct starter {
    struct starter_config config;
    enum starter_state state;
    uint64_t link; /* of the agent that leads; 0: none is connected */
    bool has_led;  /* one was connected */
    int signo;     /* the first signal that ends the job; 0: none */
    bool has_verdict;
    struct starter_verdict verdict;
    bool safe; /* a worker has reported a safe point */
    enum { STARTER_UNASKED, STARTER_ASKING, STARTER_ASKED } requeue;
    int asked_status; /* ASKED: the exit status */
    bool end_waits;   /* ASKING: the starter ends with the answer */
    bool ended, end_signalled;
    int end_code;
    enum { STARTER_CALM, STARTER_TERMINATED, STARTER_KILLED } pressure; /* on all agents */
    uint64_t deadline_ns;
};

void starter_init(struct starter *s, const struct starter_config *config);
/* Takes one event; fills *ret. After END no event has an effect. */
void starter_step(struct starter *s, const struct starter_event *event, struct starter_update *ret);
