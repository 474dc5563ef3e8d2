/* PyTorch's TCPStore protocol (torch 2.2 to 2.14): bytes to requests, replies to bytes. Pure.
 *
 *     struct tcpstore_decoder d = {0};
 *     while ((r = tcpstore_decode(&d, &limits, &scratch, data, len, &used, &req)) == 1)
 *         … req is valid until the next call; data += used, len -= used
 *     0: all of data is consumed, more is needed;  TCPSTORE_REFUSED: end the connection
 *
 * Layout: one byte for the operation, then fields, little-endian, without framing: `str` is a u64
 * length and bytes, `keys` a u64 count and that many str. A connection begins with VALIDATE and a
 * magic number, once and without an answer.
 *
 *     SET str str · COMPARE_SET str str str · GET str · ADD str i64 · CHECK keys · WAIT keys ·
 *     DELETE_KEY str · APPEND str str · MULTI_GET keys · MULTI_SET u64 n × (str str) · PING u32 ·
 *     QUEUE_PUSH str str · QUEUE_POP str · QUEUE_LEN str · BARRIER str i64 · others: nothing
 *
 * A request that is complete in `data` is decoded in place. Every length is checked against its
 * limit when it arrives, and memory grows only with the bytes that have. */
#pragma once

#include <stdbool.h>

#include "rendezvous/store/store.h"

/* A connection begins with 00 ce f7 85 3c. */
#define TCPSTORE_MAGIC UINT32_C(0x3C85F7CE)
#define TCPSTORE_FIRST_BYTES 4
/* Whether these first bytes are of this protocol. A frame between agents would be too long. */
bool tcpstore_begins(const uint8_t *bytes);

enum {
    TCPSTORE_REQUEST = 1, /* *ret has a request */
    /* decoder.refusal has the reason; only tcpstore_decoder_fini() is allowed next */
    TCPSTORE_REFUSED = 2,
};

/* What was read of a request. */
struct tcpstore_walk {
    size_t end, need; /* bytes: of the fields that were read; until the next one can be */
    unsigned at;      /* index into the fields of the operation */
    uint64_t rounds;  /* how often the repeated fields are still expected, including this time */
    uint64_t total;   /* bytes of the request so far, including announced ones */
    uint64_t number;
    size_t n_keys, n_values;
};

/* One for each connection; zero at first. */
struct tcpstore_decoder {
    bool validated;
    bool is_taken;       /* the last call has returned a request */
    uint8_t op;          /* of the current or the refused request */
    const char *refusal; /* static text */
    uint64_t size;       /* the size that was refused */
    struct tcpstore_walk walk;
    uint8_t *text; /* a request that arrives in pieces; NULL: none */
    size_t text_len, text_cap;
    uint64_t held; /* bytes that it holds */
};

/* Lists keys and values; one for all connections. The system gives memory only for what is used. */
struct tcpstore_scratch {
    struct store_span *keys, *values;
};
void tcpstore_scratch_init(struct tcpstore_scratch *s, const struct store_limits *limits);
void tcpstore_scratch_fini(struct tcpstore_scratch *s);

/* *ret_used: bytes consumed. The request borrows from all arguments; `client` is not set. Returns
 * 0, TCPSTORE_REQUEST, TCPSTORE_REFUSED or -ENOMEM. */
_must_use_ int tcpstore_decode(struct tcpstore_decoder *d, const struct store_limits *limits,
                               struct tcpstore_scratch *scratch, const uint8_t *data, size_t len,
                               size_t *ret_used, struct store_request *ret);
void tcpstore_decoder_fini(struct tcpstore_decoder *d);

/* Where encoded replies go. `value` can keep a reference instead of copying. */
struct tcpstore_sink {
    void (*bytes)(void *arg, const void *data, size_t len);
    void (*value)(void *arg, struct store_value *v);
    void *arg;
};
void tcpstore_encode(const struct store_reply *reply, const struct store_update *update,
                     const struct tcpstore_sink *to);
