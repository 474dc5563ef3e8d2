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

#include "base/err.h"
#include "base/text/strbuf.h"

/* ==== the messages ====
 *
 * With the agent that leads, and over ssh with the relay on each node. Specified in
 * muster-protocol(7), "THE HEAD" and "OVER SSH".
 *
 *     agent                           starter
 *     LEAD       ------------------>  with the token: this agent leads, and what its step is
 *     SAFE       ------------------>  a worker has reported a safe point
 *                <------------------  EXPECT: how many nodes are connected or can still come
 *                <------------------  STOP: end the job, as if the agent had received this signal
 *     VERDICT    ------------------>  how the job ended
 *                <------------------  ACK
 *
 *     relay                           starter
 *     HELLO      ------------------>  the node: version, name, addresses
 *                <------------------  LISTEN: node 0 only, where the others will meet it
 *     PORT       ------------------>  the relay listens there, for its agent
 *                <------------------  BOOT: what to start, behind any number of BOOT_PART
 *     OUT, ERR   ------------------>  output of the agent and its workers
 *     LEAD, SAFE, VERDICT  -------->  as from the agent
 *                <------------------  ACK, STOP, EXPECT: for the agent; SIGNAL: for the workers
 *                <------------------  PING, SUSPENDED, DROP_OUT, DROP_ERR
 *     EXIT       ------------------>  the agent has ended; or FAIL: it could not be started
 *
 * A frame (base/frame.h) is one byte, the kind, then a JSON object. OUT, ERR and the BOOTs have raw
 * bytes instead.
 *
 *     starter_add(&m, &frames);
 *     while ((r = starter_take(data, len, STARTER_FROM_AGENT, &m, &n, &err)) == 0) data += n, …
 *
 * The starter is not a member of the group, so these messages have a version of their own. */

#define STARTER_WIRE_VERSION 3
#define STARTER_MESSAGE_MAX ((size_t)4096)          /* bytes of a JSON object */
#define STARTER_DATA_MAX ((size_t)64 * 1024)        /* raw bytes in one frame */
#define STARTER_FRAME_MAX (STARTER_MESSAGE_MAX + 5) /* of a frame with JSON */
#define STARTER_DATA_FRAME_MAX (STARTER_DATA_MAX + 5)

#define STARTER_TOKEN_CHARS 32 /* 128 random bits, as hexadecimal digits */
#define STARTER_HOST_MAX 128
#define STARTER_STEP_MAX 64
#define STARTER_TEXT_MAX 512
#define STARTER_LOST_MAX 512
#define STARTER_VERSION_MAX 64
#define STARTER_ADDRS_MAX 1024

/* The first byte of a payload. */
enum starter_kind {
    STARTER_LEAD = 'L',
    STARTER_SAFE = 's',
    STARTER_VERDICT = 'V',
    STARTER_HELLO = 'H',
    STARTER_OUT = 'o',
    STARTER_ERR = 'e',
    STARTER_EXIT = 'X',
    STARTER_FAIL = 'F',
    STARTER_PORT = 'p',
    /* from the starter */
    STARTER_ACK = 'A',
    STARTER_STOP = 'S',
    STARTER_EXPECT = 'N',
    STARTER_LISTEN = 'l',
    STARTER_BOOT_PART = 'b',
    STARTER_BOOT = 'B',
    STARTER_SIGNAL = 'U',
    STARTER_PING = 'P',
    STARTER_SUSPENDED = 'Z', /* until its next message, the starter's silence is not its end */
    STARTER_DROP_OUT = 'd',  /* the reader of OUT has gone; the agent sees a closed pipe */
    STARTER_DROP_ERR = 'D',
};

struct starter_lead {
    uint32_t version;
    char token[STARTER_TOKEN_CHARS + 1]; /* "": none, on a connection that needs no proof */
    char host[STARTER_HOST_MAX];         /* of the agent, for people */
    char step[STARTER_STEP_MAX];         /* "28.0", as scancel takes it; "": not known */
};

/* How the job ended. */
struct starter_verdict {
    uint32_t status;             /* the exit status of the agent: 0 to 255 */
    uint32_t lost;               /* how many nodes the job has lost since its start */
    char text[STARTER_TEXT_MAX]; /* the first failure, in a line for people; or "" */
    bool safe;                   /* a worker has reported a safe point since this agent leads */
    /* their names, of letters, digits, ".", "_" and "-", with commas, as many as fit; "": none */
    char lost_nodes[STARTER_LOST_MAX];
};

struct starter_signal { /* STOP, SIGNAL */
    uint32_t signo;
};

struct starter_expect {
    uint32_t nodes; /* not 0 */
};

struct starter_hello {
    char version[STARTER_VERSION_MAX]; /* of muster: both must be the same */
    char host[STARTER_HOST_MAX];       /* the node's own name, for people */
    uint32_t pid;                      /* of the relay */
    /* where other nodes may reach this one, the best first: "10.0.0.1,fd77::1" */
    char addrs[STARTER_ADDRS_MAX];
};

struct starter_exit {
    bool signalled;
    uint32_t code; /* the signal, or the exit status */
};

struct starter_fail {
    char text[STARTER_TEXT_MAX]; /* one sentence */
};

/* Where the nodes of the job meet: a port that is free for the relay, whose agent inherits it. */
struct starter_listen {
    char addr[STARTER_HOST_MAX]; /* a literal, one of HELLO */
    uint16_t low, high;          /* the ports to choose from; 0: the kernel's */
};

struct starter_port {
    uint16_t port;
};

struct starter_message {
    enum starter_kind kind;
    union {
        char body; /* where each of those that are JSON begins */
        struct starter_lead lead;
        struct starter_verdict verdict;
        struct starter_signal signal;
        struct starter_expect expect;
        struct starter_hello hello;
        struct starter_exit exit;
        struct starter_fail fail;
        struct starter_listen listen;
        struct starter_port port;
        struct { /* OUT, ERR, BOOT_PART, BOOT; borrowed from what was received */
            const uint8_t *bytes;
            size_t len; /* at most STARTER_DATA_MAX */
        } data;
    };
};

/* The senders of a message; bits, because a relay forwards what its agent sends. */
enum starter_sender { STARTER_FROM_AGENT = 1, STARTER_FROM_RELAY = 2, STARTER_FROM_STARTER = 4 };

/* Appends the frame of a message, which must be valid. */
void starter_add(const struct starter_message *m, struct strbuf *to);
/* The same for a part of a BOOT and for output. */
void starter_add_data(enum starter_kind kind, const void *bytes, size_t len, struct strbuf *to);

/* Takes the first message of this sender off the bytes that have arrived. 0: *ret, and its length;
 * FRAME_E_MORE: it is incomplete; a negative errno and a sentence: the sender broke the protocol. A
 * LEAD of another version is -EINVAL. */
_must_use_ int starter_take(const uint8_t *data, size_t len, enum starter_sender from,
                            struct starter_message *ret, size_t *ret_bytes, struct err *err);

/* Whether two tokens, padded with 0, are equal and not empty, in a constant time. */
_must_use_ bool starter_token_equal(const char a[STARTER_TOKEN_CHARS + 1],
                                    const char b[STARTER_TOKEN_CHARS + 1]);

/* ==== the machine ==== */

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
