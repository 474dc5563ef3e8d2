/* The inside of the store, shared by store.c, store_wait.c and store_update.c. Private to them. */
#pragma once

#include <errno.h>
#include <string.h>

#include "base/list.h"
#include "rendezvous/store/store.h"
#include "rendezvous/store/store_keys.h"

struct wait_node {
    struct list link; /* in key->waiters; unlinked once the key was set */
    struct store_key *key;
    struct wait *wait;
};

struct wait {
    uint32_t client;
    bool barrier;   /* released only when its one key is set */
    size_t missing; /* nodes still linked */
    size_t probe;   /* index of the node that was not ready at the last check */
    size_t n_nodes;
    struct wait_node nodes[];
};

struct client {
    struct wait *wait;
    /* the key whose push woke this client, if it has not sent a request since */
    struct store_key *handed;
};

struct store {
    struct store_limits limits;
    struct store_keys keys;
    struct client *clients;
    size_t n_clients;
    uint64_t bytes, held, num_keys;
};

/* --- replies (store_update.c) -------------------------------------------------------- */

struct store_reply *store_reply_add(struct store_update *u, uint32_t client,
                                    enum store_reply_kind kind);
void store_reply_u8(struct store_update *u, uint32_t client, uint8_t v);
void store_reply_i64(struct store_update *u, uint32_t client, int64_t v);
/* Borrows; NULL is an empty value. */
void store_reply_value(struct store_update *u, uint32_t client, struct store_value *v);
/* Adds a value to a list; borrows. */
void store_list_add(struct store_update *u, struct store_value *v);
/* Sets the refusal. Returns STORE_REFUSED. */
int store_refuse(struct store_update *u, const char *why, uint64_t size);

/* --- bytes --------------------------------------------------------------------------------- */

static inline uint64_t store_key_cost(size_t name_len) {
    return STORE_COST_KEY + (uint64_t)name_len;
}
static inline uint64_t store_value_cost(size_t len) { return STORE_COST_VALUE + (uint64_t)len; }

static inline bool store_fits(const struct store *s, uint64_t more) {
    uint64_t used = s->bytes + s->held;
    return used <= s->limits.store_bytes && more <= s->limits.store_bytes - used;
}
static inline int store_full(struct store_update *u, uint64_t more) {
    return store_refuse(u, "the store is full", more);
}

/* Finds, or creates and counts, a key; NULL if there is no memory. */
struct store_key *store_make_key(struct store *s, struct store_span name);
/* Removes the key if it has no value, queue or waiters any more. */
void store_drop_if_empty(struct store *s, struct store_key *k);
static inline bool store_key_is_ready(const struct store_key *k) {
    return k != NULL && (k->value != NULL || k->first != NULL);
}

/* --- waiting (store_wait.c) ---------------------------------------------------------------- */

int store_do_wait(struct store *s, const struct store_request *req, struct store_update *u);
/* NULL if there is no memory. The caller must call store_wait_add() for each node next. */
struct wait *store_wait_new(struct store *s, uint32_t client, size_t n_nodes, bool barrier);
void store_wait_add(struct wait *w, size_t i, struct store_key *k);
/* Ends the client's wait without a reply. */
void store_wait_drop(struct store *s, struct client *c);
/* The key was set. */
void store_wake_all(struct store *s, struct store_key *k, struct store_update *u);
/* There is something to pop: wakes the first client whose wait this completes. */
void store_wake_one(struct store *s, struct store_key *k, struct store_update *u);
/* The client sends another request, or is gone. passed_on: it is gone or cancels before it has
 * asked for the value for which a push woke it, so the next client is woken. */
void store_settle_handed(struct store *s, struct client *c, bool passed_on, struct store_update *u);
