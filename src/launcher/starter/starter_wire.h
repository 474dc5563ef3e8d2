/* The messages of a starter: with the agent that leads, and over ssh with the relay on each node.
 * Pure; specified in muster-protocol(7), "THE HEAD" and "OVER SSH".
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
 *                <------------------  PING, DROP_OUT, DROP_ERR
 *     EXIT       ------------------>  the agent has ended; or FAIL: it could not be started
 *
 * A frame (base/frame.h) is one byte, the kind, then a JSON object. OUT, ERR and the BOOTs have raw
 * bytes instead.
 *
 *     starter_add(&m, &frames);
 *     while ((r = starter_take(data, len, STARTER_FROM_AGENT, &m, &n, &err)) == 0) data += n, …
 *
 * The starter is not a member of the group, so these messages have a version of their own. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

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
    STARTER_DROP_OUT = 'd', /* the reader of OUT has gone; the agent sees a closed pipe */
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
