/* The head: the process that a user started in a batch script, below salloc or in an interactive
 * step. It has srun start an agent on each node, and stays: it passes signals on, and its exit
 * status is the job's. This machine decides; head_io.c obeys. Pure: events in, effects out.
 *
 *     head_init(&h, &config);
 *     head_step(&h, &(struct head_event){.kind = HEAD_EVENT_LEADER, .now_ns = …, .link = 1}, &u);
 *     … carry out u.effects; HEAD_EVENT_TIME at u.deadline_ns
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

#include "launcher/head/head_wire.h"

/* The exit status if nodes were lost and no leader was left to tell how the job ended: the program
 * is not to blame. EX_TEMPFAIL of sysexits.h */
#define HEAD_EXIT_LOST 75
/* Beyond the workers' grace, until the step is killed. */
#define HEAD_MORE_NS (10 * NS_PER_S)
/* After the verdict of a job that has lost nodes: until srun is told to stop waiting for them.
 * Slurm may take minutes to notice that a node is lost (SlurmdTimeout). */
#define HEAD_LINGER_NS (10 * NS_PER_S)
/* After the step was killed: until the head ends without srun. */
#define HEAD_KILLED_NS (5 * NS_PER_S)

enum head_state {
    HEAD_STARTING = 1, /* the step was asked for; no agent has led yet */
    HEAD_RUNNING,      /* an agent leads, or has led */
    HEAD_STOPPING,     /* the job was told to stop */
    HEAD_DECIDED,      /* the verdict is known; the step ends */
    HEAD_OVER,         /* END was emitted */
};

enum head_event_kind {
    HEAD_EVENT_LEADER = 1,  /* link: the agent there leads, by its own word */
    HEAD_EVENT_LEADER_GONE, /* link: its connection has ended */
    HEAD_EVENT_VERDICT,     /* link, verdict */
    HEAD_EVENT_SIGNAL,      /* signo, ends: whether it ends the job, or is for the workers */
    HEAD_EVENT_SRUN_ENDED,  /* signalled, code */
    HEAD_EVENT_SAFE,        /* a worker has told a safe point */
    HEAD_EVENT_REQUEUED,    /* code: the exit status, now that Slurm was asked */
    HEAD_EVENT_TIME,
};

struct head_event {
    enum head_event_kind kind;
    uint64_t now_ns;
    uint64_t link; /* the connection's number, not 0 */
    struct head_verdict verdict;
    int signo;
    bool ends;
    bool signalled; /* srun was killed by signal `code`; else its exit status */
    int code;
};

enum head_effect_kind {
    HEAD_EFFECT_STOP = 1,  /* link, signo: STOP to the agent there */
    HEAD_EFFECT_ACK,       /* link: ACK */
    HEAD_EFFECT_SIGNAL,    /* signo: to srun, which passes it to every task */
    HEAD_EFFECT_KILL_STEP, /* SIGKILL to every task of the step, and to srun if that is impossible
                            */
    HEAD_EFFECT_REQUEUE,   /* status, so far: REQUEUED follows */
    HEAD_EFFECT_END,       /* status: the head ends; srun is killed if it is still there */
};

struct head_effect {
    enum head_effect_kind kind;
    uint64_t link;
    int signo;
    int status;
};

#define HEAD_EFFECTS_MAX 4
struct head_update {
    struct head_effect effects[HEAD_EFFECTS_MAX];
    size_t n_effects;
    uint64_t deadline_ns; /* when HEAD_EVENT_TIME is due; TIME_NEVER */
};

struct head_config {
    uint64_t grace_ns; /* --shutdown-timeout */
    bool requeues;     /* --requeue, in a job of Slurm */
};

/* Private to head.c, but for reading. */
struct head {
    struct head_config config;
    enum head_state state;
    uint64_t link; /* of the agent that leads; 0: none is connected */
    bool has_led;  /* one was connected */
    int signo;     /* the first signal that asked for the end; 0: none */
    bool has_verdict;
    struct head_verdict verdict;
    bool safe; /* a worker has told a safe point */
    enum { HEAD_UNASKED, HEAD_ASKING, HEAD_ASKED } requeue;
    int asked_status; /* ASKED: the exit status */
    bool end_waits;   /* ASKING: the head ends with the answer */
    bool srun_ended, srun_signalled;
    int srun_code;
    enum { HEAD_CALM, HEAD_TERMINATED, HEAD_KILLED } pressure; /* on the step, by the head itself */
    uint64_t deadline_ns;
};

void head_init(struct head *h, const struct head_config *config);
/* Takes one event; fills *ret. After END no event has an effect. */
void head_step(struct head *h, const struct head_event *event, struct head_update *ret);

const char *head_state_name(enum head_state s);
