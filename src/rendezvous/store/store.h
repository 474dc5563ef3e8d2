/* The key-value store that workers meet through: keys, counters, queues, waits, barriers. Pure:
 * requests in, replies out, in the order of arrival. It knows neither the wire format
 * (tcpstore_wire), nor sockets (store_io), nor the clock: clients handle time-outs, and cancel
 * waits. Keys are opaque bytes.
 *
 *     store = store_new(&limits, seed);
 *     r = store_step(store, &request, &update);   0: send update.replies
 *                                                 STORE_REFUSED: end that client, report why
 *     store_update_clear(&update);                after every step
 *     store_forget(store, client, &update);       the client is gone
 *
 * A reply has a value, not bytes, so that all clients that read a value share it. A wait is data:
 *
 *     none --WAIT, BARRIER: something is missing--> waiting --last key set--> none: STOP_WAITING
 *                                                      `-----CANCEL_WAIT---> none: WAIT_CANCELED
 *
 * A client's second wait replaces the first. A key that is set while a client waits for it counts,
 * even if it is deleted before the wait ends. A queue counts while it is not empty.
 *
 * The operations are those of PyTorch's TCPStore, opcodes 0-18. Where its servers disagree:
 *   GET of a missing key is an empty value · COMPARE_SET wakes only if the key exists afterwards ·
 *   MULTI_SET is applied whole or not at all · a push wakes one waiter, whose wait it completes,
 *   and the next one if that one cancels or goes away before it asks for anything else. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

/* Reference-counted bytes, which the store and unsent replies share. To be changed only with one
 * reference. For one thread. */
struct store_value {
    uint32_t refs;
    uint32_t len, cap; /* bytes; a value is at most 8 MiB by store_limits */
    uint8_t data[];
};

/* With len 0 and one reference. NULL: there is no memory (a peer chose cap). */
_must_use_ struct store_value *store_value_new(size_t cap);
/* The same with a copy of len bytes. */
_must_use_ struct store_value *store_value_copy(const void *data, size_t len);
/* The value has one reference, and may move. -ENOMEM: *v is unchanged. */
_must_use_ int store_value_reserve(struct store_value **v, size_t cap);
static inline struct store_value *store_value_ref(struct store_value *v) {
    v->refs++;
    return v;
}
/* NULL is fine. */
void store_value_unref(struct store_value *v);
static inline void store_value_unrefp(struct store_value **v) { store_value_unref(*v); }

struct store;

/* The numbers of the wire. The codec handles VALIDATE itself and never passes it on. */
enum store_op {
    STORE_OP_VALIDATE = 0,
    STORE_OP_SET = 1,          /* key, value; no reply */
    STORE_OP_COMPARE_SET = 2,  /* key, expected, desired → value */
    STORE_OP_GET = 3,          /* key → value */
    STORE_OP_ADD = 4,          /* key, number → i64 */
    STORE_OP_CHECK = 5,        /* keys → u8 STORE_READY, STORE_NOT_READY */
    STORE_OP_WAIT = 6,         /* keys → u8 STORE_STOP_WAITING, when all are there */
    STORE_OP_GETNUMKEYS = 7,   /* → i64, queues not counted */
    STORE_OP_DELETE_KEY = 8,   /* key → i64 0 or 1 */
    STORE_OP_APPEND = 9,       /* key, value; no reply */
    STORE_OP_MULTI_GET = 10,   /* keys → list of values */
    STORE_OP_MULTI_SET = 11,   /* keys, values; no reply */
    STORE_OP_CANCEL_WAIT = 12, /* → u8 STORE_WAIT_CANCELED, always */
    STORE_OP_PING = 13,        /* nonce → u32 */
    STORE_OP_QUEUE_PUSH = 14,  /* key, value; no reply */
    STORE_OP_QUEUE_POP = 15,   /* key → i64 length before, then a value if it was not 0 */
    STORE_OP_QUEUE_LEN = 16,   /* key → i64 */
    STORE_OP_LIST_KEYS = 17,   /* → i64, list of values */
    STORE_OP_BARRIER = 18,     /* key, number of arriving clients → u8 STORE_STOP_WAITING */
};
#define STORE_OP_COUNT 19
/* "SET", …; "?" for a number that is not an operation. */
const char *store_op_name(unsigned op);

enum { STORE_READY = 0, STORE_NOT_READY = 1, STORE_STOP_WAITING = 0, STORE_WAIT_CANCELED = 1 };

/* What a peer can make the store hold. A connection that exceeds a limit is closed. */
struct store_limits {
    uint32_t key_bytes;
    uint32_t value_bytes; /* also the limit of a value after APPEND */
    uint32_t request_keys;
    uint64_t request_bytes;
    uint64_t store_bytes; /* keys, values, queues, waits, with STORE_COST_* each */
    uint32_t connections; /* 0: RLIMIT_NOFILE - 64 */
    /* replies that a client has not read; beyond this, its requests are not read */
    uint64_t unsent_bytes;
    uint64_t validate_ns; /* time to send the magic number */
};
#define STORE_LIMITS_DEFAULT                                     \
    ((struct store_limits){.key_bytes = 8192,                    \
                           .value_bytes = 8u << 20,              \
                           .request_keys = 131072,               \
                           .request_bytes = UINT64_C(256) << 20, \
                           .store_bytes = UINT64_C(8) << 30,     \
                           .unsent_bytes = UINT64_C(16) << 20,   \
                           .validate_ns = 10 * NS_PER_S})

/* What each object counts in addition to its bytes: so their number is bounded, too. */
enum { STORE_COST_KEY = 128, STORE_COST_VALUE = 32, STORE_COST_WAIT = 96 };

struct store_span {
    const uint8_t *data; /* borrowed for the call */
    size_t len;
};

/* The store's part of a client, which its owner has: zero at first, and after store_forget(). */
struct store_client {
    struct wait *wait;
    /* the key whose push woke this client, if it has not sent a request since */
    struct store_key *handed;
};

struct store_request {
    struct store_client *client;
    enum store_op op;
    uint32_t nonce; /* PING */
    int64_t number; /* ADD, BARRIER */
    const struct store_span *keys;
    size_t n_keys;
    const struct store_span *values;
    size_t n_values;
};

enum store_reply_kind {
    STORE_REPLY_U8 = 1,
    STORE_REPLY_U32,
    STORE_REPLY_I64,
    STORE_REPLY_VALUE, /* one counted value; NULL is an empty one */
    STORE_REPLY_LIST,  /* `count` of update.values from `first` on */
};

struct store_reply {
    struct store_client *client;
    enum store_reply_kind kind;
    union {
        uint8_t u8;
        uint32_t u32;
        int64_t i64;
        struct store_value *value; /* the update's reference */
        struct {
            size_t first, count;
        } list;
    };
};

/* Reused from step to step; zero at first. */
struct store_update {
    struct store_reply *replies;
    size_t n_replies, cap_replies;
    struct store_value **values; /* of list replies; NULL is an empty value */
    size_t n_values, cap_values;
    const char *refusal; /* with STORE_REFUSED: the reason, static text */
    uint64_t size;       /* … and the size that was refused */
};
/* Drops the references; call it after every step. */
void store_update_clear(struct store_update *u);
void store_update_fini(struct store_update *u);

enum {
    /* a limit is exceeded, or a counter is not a number (update.refusal): end that client. Nothing
     * was changed */
    STORE_REFUSED = 1,
};

/* `seed` is the key of the hash, because peers choose the names. */
_must_use_ struct store *store_new(const struct store_limits *limits, uint64_t seed);
/* All clients must be forgotten. */
void store_free(struct store *s);
/* In parts of about n keys. True: all is freed; until then only this is allowed. */
bool store_free_some(struct store *s, size_t n);

/* 0, STORE_REFUSED, or -ENOMEM (treat like a refusal). The codec checks the sizes of keys, values
 * and requests, this function sums of bytes. `ret` must be cleared before. */
_must_use_ int store_step(struct store *s, const struct store_request *req,
                          struct store_update *ret);
/* The client is gone: its wait ends. */
void store_forget(struct store *s, struct store_client *client, struct store_update *ret);

/* For an incomplete request; counts with the store's bytes. False: there is no room. */
_must_use_ bool store_hold(struct store *s, uint64_t bytes);
void store_release(struct store *s, uint64_t bytes);
uint64_t store_bytes(const struct store *s);
uint64_t store_num_keys(const struct store *s);
/* Aborts if sums and lists do not agree. */
void store_check(const struct store *s);
