/* The table of the store's keys: one record for a name, whatever is known under it (a value, a
 * queue, those who wait). Private to the store. */
#pragma once

#include <stdbool.h>

#include "base/list.h"
#include "rendezvous/store.h"

struct store_item {
    struct store_item *next;
    struct store_value *value;
};

struct store_key {
    struct store_key *next; /* in its bucket */
    uint64_t hash;
    struct store_value *name;
    struct store_value *value; /* NULL: no such key (but a queue or waiters) */
    struct store_item *first, *last;
    uint64_t queue_len;
    struct list waiters; /* struct wait_node, in order of arrival */
    uint32_t handed; /* clients that were woken by a push and have not asked for anything since */
};

struct store_keys {
    struct store_key **buckets; /* 2^bits */
    unsigned bits;
    uint64_t count;
    uint64_t seed[2];
};

void store_keys_init(struct store_keys *t, uint64_t seed);
/* Frees all that the keys hold, but not those who wait: there must be none. */
void store_keys_fini(struct store_keys *t);
struct store_key *store_keys_find(const struct store_keys *t, struct store_span name);
/* Finds or makes; NULL when there is no memory. */
struct store_key *store_keys_make(struct store_keys *t, struct store_span name, bool *ret_new);
/* The record must hold nothing. */
void store_keys_remove(struct store_keys *t, struct store_key *k);
/* SipHash-1-3 (Aumasson, Bernstein, "SipHash: a fast short-input PRF", 2012): keyed, so that
 * peers cannot choose names that collide. */
uint64_t store_keys_hash(const uint64_t seed[2], const uint8_t *data, size_t len);
