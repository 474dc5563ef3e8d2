/* The head: the process that a user started in a batch script, below salloc or in an interactive
 * step. It has srun start an agent on each node, and stays: it passes signals on, and its exit
 * status is the job's. This machine decides; srun_io.c obeys. Pure: events in, effects out.
 *
 *     starter_init(&h, &config);
 *     starter_step(&h, &(struct starter_event){.kind = STARTER_EVENT_LEADER, .link = 1, …}, &u);
 *     … carry out u.effects; STARTER_EVENT_TIME at u.deadline_ns
 *
 *     STARTING -> RUNNING -> DECIDED -> OVER        the leader's verdict, then srun's end
 *         `---------+-----> STOPPING -> DECIDED     a signal, or srun was killed
 *
 * Where the job may have to go back into Slurm's queue, it has to be asked (REQUEUE) when no worker
 * is left, and before the head ends: with the verdict, or when all agents have ended without one.
 *
 * Why a verdict of its own: srun's exit status is that of the worst task. A job that has recovered
 * from a lost node or from a kill for lack of memory has one that is not 0 (srun(1), RETURN VALUE;
 * seen with Slurm 22.05).
 *
 * Why the leader is told to stop: it stops all nodes in one order, with one signal for each worker.
 * srun passes SIGINT to each task by itself; that is the second way, if no leader is connected. */
#pragma once

#include <stdbool.h>

#include "launcher/starter/starter_wire.h"

/* The exit status if nodes were lost and no leader was left to tell how the job ended: the program
 * is not to blame. EX_TEMPFAIL of sysexits.h */
#define STARTER_EXIT_LOST 75
/* Beyond the workers' grace, until the step is killed. */
#define STARTER_MORE_NS (10 * NS_PER_S)
/* After the verdict of a job that has lost nodes: until srun is told to stop waiting for them.
 * Slurm may take minutes to notice that a node is lost (SlurmdTimeout). */
#define STARTER_LINGER_NS (10 * NS_PER_S)
/* After the step was killed: until the head ends without srun. */
#define STARTER_KILLED_NS (5 * NS_PER_S)

enum starter_state {
    STARTER_STARTING = 1, /* the step was asked for; no agent has led yet */
    STARTER_RUNNING,      /* an agent leads, or has led */
    STARTER_STOPPING,     /* the job was told to stop */
    STARTER_DECIDED,      /* the verdict is known; the step ends */
    STARTER_OVER,         /* END was emitted */
};

enum starter_event_kind {
    STARTER_EVENT_LEADER = 1,  /* link: the agent there leads, by its own word */
    STARTER_EVENT_LEADER_GONE, /* link: its connection has ended */
    STARTER_EVENT_VERDICT,     /* link, verdict */
    STARTER_EVENT_SIGNAL,      /* signo, ends: whether it ends the job, or is for the workers */
    STARTER_EVENT_ENDED,       /* signalled, code */
    STARTER_EVENT_SAFE,        /* a worker has told a safe point */
    STARTER_EVENT_REQUEUED,    /* code: the exit status, now that Slurm was asked */
    STARTER_EVENT_TIME,
};

struct starter_event {
    enum starter_event_kind kind;
    uint64_t now_ns;
    uint64_t link; /* the connection's number, not 0 */
    struct starter_verdict verdict;
    int signo;
    bool ends;
    bool signalled; /* srun was killed by signal `code`; else its exit status */
    int code;
};

enum starter_effect_kind {
    STARTER_EFFECT_STOP = 1, /* link, signo: STOP to the agent there */
    STARTER_EFFECT_ACK,      /* link: ACK */
    STARTER_EFFECT_SIGNAL,   /* signo: to srun, which passes it to every task */
    STARTER_EFFECT_KILL,     /* SIGKILL to every task of the step, and to srun if that is impossible
                            */
    STARTER_EFFECT_REQUEUE,  /* status, so far: REQUEUED follows */
    STARTER_EFFECT_END,      /* status: the head ends; srun is killed if it is still there */
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
    bool requeues;     /* --requeue, in a job of Slurm */
};

/* Private to head.c, but for reading. */
struct starter {
    struct starter_config config;
    enum starter_state state;
    uint64_t link; /* of the agent that leads; 0: none is connected */
    bool has_led;  /* one was connected */
    int signo;     /* the first signal that asked for the end; 0: none */
    bool has_verdict;
    struct starter_verdict verdict;
    bool safe; /* a worker has told a safe point */
    enum { STARTER_UNASKED, STARTER_ASKING, STARTER_ASKED } requeue;
    int asked_status; /* ASKED: the exit status */
    bool end_waits;   /* ASKING: the head ends with the answer */
    bool srun_ended, srun_signalled;
    int srun_code;
    enum {
        STARTER_CALM,
        STARTER_TERMINATED,
        STARTER_KILLED
    } pressure; /* on the step, by the head itself */
    uint64_t deadline_ns;
};

void starter_init(struct starter *h, const struct starter_config *config);
/* Takes one event; fills *ret. After END no event has an effect. */
void starter_step(struct starter *h, const struct starter_event *event, struct starter_update *ret);

const char *starter_state_name(enum starter_state s);
