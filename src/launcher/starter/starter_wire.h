/* The messages between the head and the agent that leads, and their frames. Pure; specified in
 * muster-protocol(7), "The head". Each frame (base/frame.h) is a JSON object.
 *
 *     agent                           head
 *     LEAD       ------------------>  with the token: this agent leads, and what its step is
 *     SAFE       ------------------>  a worker has told a safe point
 *                <------------------  EXPECT: how many nodes are there or can still come
 *                <------------------  STOP: end the job, as if the agent had got this signal
 *     VERDICT    ------------------>  how the job ended
 *                <------------------  ACK
 *
 * The head is no part of the group: the messages have a version of their own. Each side trusts the
 * other only with its job: a head forgets a connection that does not begin with LEAD and the token,
 * and everything that either can send is bounded by STARTER_MESSAGE_MAX. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

#define STARTER_WIRE_VERSION 2
#define STARTER_MESSAGE_MAX ((size_t)4096) /* payload of a frame */
#define STARTER_TOKEN_CHARS 32             /* 128 random bits, as hexadecimal digits */
#define STARTER_HOST_MAX 128
#define STARTER_STEP_MAX 64
#define STARTER_TEXT_MAX 512
#define STARTER_LOST_MAX 512

enum starter_message_kind {
    STARTER_LEAD = 1,
    STARTER_VERDICT,
    STARTER_ACK,
    STARTER_STOP,
    STARTER_SAFE,
    STARTER_EXPECT,
    STARTER_MESSAGE_KIND_COUNT,
};

struct starter_lead {
    uint32_t version;
    char
        token[STARTER_TOKEN_CHARS + 1]; /* "" to the relay, whose connection is the agent's alone */
    char host[STARTER_HOST_MAX];        /* of the agent, for people */
    char step[STARTER_STEP_MAX];        /* "28.0", as scancel takes it; "": not known */
};

/* How the job ended. */
struct starter_verdict {
    uint32_t status;             /* the exit status of the agent: 0 to 255 */
    uint32_t lost;               /* how many nodes the job has lost since its start */
    char text[STARTER_TEXT_MAX]; /* the first failure, in a line for people; or "" */
    bool safe;                   /* a worker has told a safe point since this agent leads */
    /* their names, of letters, digits, ".", "_" and "-", with commas, as many as fit; "": none */
    char lost_nodes[STARTER_LOST_MAX];
};

struct starter_stop {
    uint32_t signo;
};

/* Sent where the head knows it: over ssh. */
struct starter_expect {
    uint32_t nodes; /* not 0 */
};

struct starter_message {
    enum starter_message_kind kind;
    union {
        char body; /* where each of them begins */
        struct starter_lead lead;
        struct starter_verdict verdict;
        struct starter_stop stop;
        struct starter_expect expect;
    };
};

/* Replaces *ret with the whole frame. The message is ours and valid. */
void starter_encode(const struct starter_message *m, struct strbuf *ret);
/* The payload of one frame. 0; -EINVAL and what is wrong, for a debug line; -ENOMEM. A LEAD of
 * another version is -EINVAL. */
_must_use_ int starter_decode(const char *payload, size_t len, struct starter_message *ret,
                              struct err *err);

/* Takes the first message off the bytes that have arrived. 0: *ret, and how many bytes it had;
 * FRAME_E_MORE: it is not complete; a negative errno: the peer breaks the protocol. */
_must_use_ int starter_take(const uint8_t *data, size_t len, struct starter_message *ret,
                            size_t *ret_bytes, struct err *err);
/* Longest frame. */
#define STARTER_FRAME_MAX (STARTER_MESSAGE_MAX + 4)

/* Whether the token of a starter_lead, which may be empty, is the expected one, in a time that does
 * not depend on where they differ. */
_must_use_ bool starter_token_equal(const char *a, const char *b);
