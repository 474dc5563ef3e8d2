/* The table of the store's keys: one record for each name, with its value, queue and waiting
 * clients. Private to the store. */
#pragma once

#include <stdbool.h>

#include "base/list.h"
#include "rendezvous/store/store.h"

struct store_item {
    struct store_item *next;
    struct store_value *value;
};

struct store_key {
    struct store_key *next; /* the next in its bucket */
    uint64_t hash;
    struct store_value *name;
    struct store_value *value; /* NULL: no such key (but a queue or waiters) */
    struct store_item *first, *last;
    uint64_t queue_len;
    struct list waiters; /* struct wait_node, in order of arrival */
    uint32_t handed; /* clients that were woken by a push and have not asked for anything since */
};

/* It grows while it is used: each new key also moves a few buckets of the smaller table; those
 * below `moved` have been moved. So no request has to wait until a million keys are moved. */
struct store_keys {
    struct store_key **buckets; /* 2^bits */
    struct store_key **smaller; /* 2^(bits - 1), or NULL */
    size_t moved, freed;        /* numbers of buckets; freed: of the first table, at the end */
    unsigned bits;
    uint64_t count;
    uint64_t seed[2];
};

void store_keys_init(struct store_keys *t, uint64_t seed);
/* Frees up to about n keys with their values and queues. There must be no waiting clients. True:
 * all is freed. After the first call, t must not be used for anything else. */
bool store_keys_fini_some(struct store_keys *t, size_t n);
/* To visit all records: the first records of the buckets' lists, in no order. */
size_t store_keys_n_buckets(const struct store_keys *t);
struct store_key *store_keys_bucket(const struct store_keys *t, size_t i);
struct store_key *store_keys_find(const struct store_keys *t, struct store_span name);
/* Finds or creates a record; NULL if there is no memory. */
struct store_key *store_keys_make(struct store_keys *t, struct store_span name, bool *ret_new);
/* The record must hold nothing. */
void store_keys_remove(struct store_keys *t, struct store_key *k);
