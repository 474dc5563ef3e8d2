#include "rendezvous/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/little_endian.h"
#include "base/prng.h"

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

/* Grows by linear hashing (Litwin, 1980): a new key splits one bucket. So no request has to wait
 * until a million keys are moved. */
struct store_keys {
    struct store_key **buckets;
    size_t n, room; /* of buckets; room: a power of two, and less than 2 * n */
    size_t freed;   /* buckets that are empty for ever, at the end */
    uint64_t count;
    uint64_t seed[2];
};
struct wait_node {
    struct list link; /* in key->waiters; unlinked once the key was set */
    struct store_key *key;
    struct wait *wait;
};

struct wait {
    struct store_client *client;
    bool barrier;   /* released only when its one key is set */
    size_t missing; /* nodes still linked */
    size_t probe;   /* index of the node that was not ready at the last check */
    size_t n_nodes;
    struct wait_node nodes[];
};

struct store {
    struct store_limits limits;
    struct store_keys keys;
    uint64_t bytes, held, num_keys;
};

/* --- values -------------------------------------------------------------------------------- */

struct store_value *store_value_new(size_t cap) {
    assert(cap <= UINT32_MAX);
    struct store_value *v = malloc(sizeof *v + cap);
    if (v == NULL)
        return NULL;
    v->refs = 1;
    v->len = 0;
    v->cap = (uint32_t)cap;
    return v;
}

struct store_value *store_value_copy(const void *data, size_t len) {
    struct store_value *v = store_value_new(len);
    if (v == NULL)
        return NULL;
    if (len > 0)
        memcpy(v->data, data, len);
    v->len = (uint32_t)len;
    return v;
}

int store_value_reserve(struct store_value **v, size_t cap) {
    assert((*v)->refs == 1 && cap <= UINT32_MAX);
    if (cap <= (*v)->cap)
        return 0;
    struct store_value *bigger = realloc(*v, sizeof *bigger + cap);
    if (bigger == NULL)
        return -ENOMEM;
    bigger->cap = (uint32_t)cap;
    *v = bigger;
    return 0;
}

void store_value_unref(struct store_value *v) {
    if (v == NULL)
        return;
    assert(v->refs > 0);
    if (--v->refs == 0)
        free(v);
}

static inline uint64_t store_key_cost(size_t name_len) {
    return STORE_COST_KEY + (uint64_t)name_len;
}
static inline uint64_t store_value_cost(size_t len) { return STORE_COST_VALUE + (uint64_t)len; }

static inline bool store_fits(const struct store *s, uint64_t more) {
    uint64_t used = s->bytes + s->held;
    return used <= s->limits.store_bytes && more <= s->limits.store_bytes - used;
}

static inline bool store_key_is_ready(const struct store_key *k) {
    return k != NULL && (k->value != NULL || k->first != NULL);
}

#define BUCKETS_FIRST 64

static inline uint64_t rotate(uint64_t x, unsigned n) { return x << n | x >> (64 - n); }

struct sip {
    uint64_t v[4];
};

static inline void sip_round(struct sip *s) {
    s->v[0] += s->v[1];
    s->v[1] = rotate(s->v[1], 13) ^ s->v[0];
    s->v[0] = rotate(s->v[0], 32);
    s->v[2] += s->v[3];
    s->v[3] = rotate(s->v[3], 16) ^ s->v[2];
    s->v[0] += s->v[3];
    s->v[3] = rotate(s->v[3], 21) ^ s->v[0];
    s->v[2] += s->v[1];
    s->v[1] = rotate(s->v[1], 17) ^ s->v[2];
    s->v[2] = rotate(s->v[2], 32);
}

/* SipHash-1-3 (Aumasson, Bernstein, 2012): keyed, so that peers cannot choose names that
 * collide. */
static uint64_t hash_of(const uint64_t seed[2], const uint8_t *data, size_t len) {
    struct sip s = {{UINT64_C(0x736f6d6570736575) ^ seed[0], UINT64_C(0x646f72616e646f6d) ^ seed[1],
                     UINT64_C(0x6c7967656e657261) ^ seed[0],
                     UINT64_C(0x7465646279746573) ^ seed[1]}};
    uint64_t last = (uint64_t)len << 56;
    size_t whole = len & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8) {
        uint64_t m = load_u64le(data + i);
        s.v[3] ^= m;
        sip_round(&s);
        s.v[0] ^= m;
    }
    for (size_t i = whole; i < len; i++)
        last |= (uint64_t)data[i] << (8 * (i - whole));
    s.v[3] ^= last;
    sip_round(&s);
    s.v[0] ^= last;
    s.v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(&s);
    return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}

static void store_keys_init(struct store_keys *t, uint64_t seed) {
    struct prng p = {seed};
    *t = (struct store_keys){
        .n = BUCKETS_FIRST, .room = BUCKETS_FIRST, .seed = {prng_next(&p), prng_next(&p)}};
    t->buckets = xcalloc(t->room, sizeof(struct store_key *));
}

static void key_free(struct store_key *k) {
    store_value_unref(k->name);
    store_value_unref(k->value);
    while (k->first != NULL) {
        struct store_item *item = k->first;
        k->first = item->next;
        store_value_unref(item->value);
        free(item);
    }
    free(k);
}

/* About n keys, without waiting clients. True: all is freed. Then t is of no use any more. */
static bool store_keys_fini_some(struct store_keys *t, size_t n) {
    for (; t->freed < t->n; t->freed++) {
        struct store_key *k;
        while ((k = t->buckets[t->freed]) != NULL) {
            if (n-- == 0)
                return false;
            t->buckets[t->freed] = k->next;
            key_free(k);
        }
    }
    free(t->buckets);
    return true;
}

/* A bucket that is not there yet has its keys in the one that will be split for it. */
static struct store_key **head_of(const struct store_keys *t, uint64_t hash) {
    size_t i = (size_t)hash & (t->room - 1);
    return &t->buckets[i < t->n ? i : i - t->room / 2];
}

static struct store_key *find_hashed(const struct store_keys *t, struct store_span name,
                                     uint64_t hash) {
    for (struct store_key *k = *head_of(t, hash); k != NULL; k = k->next)
        if (k->hash == hash && k->name->len == name.len &&
            (name.len == 0 || memcmp(k->name->data, name.data, name.len) == 0))
            return k;
    return NULL;
}

static struct store_key *store_keys_find(const struct store_keys *t, struct store_span name) {
    return find_hashed(t, name, hash_of(t->seed, name.data, name.len));
}

static void split_bucket(struct store_keys *t) {
    if (t->n == t->room) {
        struct store_key **more = realloc(t->buckets, 2 * t->room * sizeof *more);
        if (more == NULL)
            return; /* chains get longer, but the table is still correct */
        t->buckets = more;
        t->room *= 2;
    }
    struct store_key *k = TAKE_PTR(t->buckets[t->n - t->room / 2]);
    t->buckets[t->n++] = NULL;
    while (k != NULL) {
        struct store_key *next = k->next, **to = head_of(t, k->hash);
        k->next = *to;
        *to = k;
        k = next;
    }
}

/* Finds or creates a record; NULL if there is no memory. */
static struct store_key *store_keys_make(struct store_keys *t, struct store_span name,
                                         bool *ret_new) {
    uint64_t hash = hash_of(t->seed, name.data, name.len);
    struct store_key *k = find_hashed(t, name, hash);
    *ret_new = k == NULL;
    if (k != NULL)
        return k;
    struct store_value *copy = store_value_copy(name.data, name.len);
    k = calloc(1, sizeof *k);
    if (copy == NULL || k == NULL) {
        store_value_unref(copy);
        free(k);
        return NULL;
    }
    k->hash = hash;
    k->name = copy;
    list_init(&k->waiters);
    if (t->count >= t->n)
        split_bucket(t);
    struct store_key **head = head_of(t, hash);
    k->next = *head;
    *head = k;
    t->count++;
    return k;
}

/* The record must hold nothing. */
static void store_keys_remove(struct store_keys *t, struct store_key *k) {
    assert(k->value == NULL && k->first == NULL && list_empty(&k->waiters) && k->handed == 0);
    struct store_key **at = head_of(t, k->hash);
    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    t->count--;
    key_free(k);
}

/* Finds, or creates and counts, a key; NULL if there is no memory. */
static struct store_key *store_make_key(struct store *s, struct store_span name) {
    bool is_new;
    struct store_key *k = store_keys_make(&s->keys, name, &is_new);
    if (k != NULL && is_new)
        s->bytes += store_key_cost(name.len);
    return k;
}

static void store_drop_if_empty(struct store *s, struct store_key *k) {
    if (k->value != NULL || k->first != NULL || !list_empty(&k->waiters) || k->handed > 0)
        return;
    s->bytes -= store_key_cost(k->name->len);
    store_keys_remove(&s->keys, k);
}

/* The size of the arrays that an update keeps from step to step. */
#define UPDATE_KEEP 4096

static struct store_reply *store_reply_add(struct store_update *u, struct store_client *client,
                                           enum store_reply_kind kind) {
    if (u->n_replies == u->cap_replies) {
        u->cap_replies = u->cap_replies == 0 ? 8 : u->cap_replies * 2;
        u->replies = xrealloc(u->replies, u->cap_replies * sizeof *u->replies);
    }
    struct store_reply *reply = &u->replies[u->n_replies++];
    reply->client = client;
    reply->kind = kind;
    return reply;
}

static void store_reply_u8(struct store_update *u, struct store_client *client, uint8_t v) {
    store_reply_add(u, client, STORE_REPLY_U8)->u8 = v;
}

static void store_reply_i64(struct store_update *u, struct store_client *client, int64_t v) {
    store_reply_add(u, client, STORE_REPLY_I64)->i64 = v;
}

/* Borrows; NULL is an empty value. */
static void store_reply_value(struct store_update *u, struct store_client *client,
                              struct store_value *v) {
    store_reply_add(u, client, STORE_REPLY_VALUE)->value = v != NULL ? store_value_ref(v) : NULL;
}

/* Adds a value to a list; borrows. */
static void store_list_add(struct store_update *u, struct store_value *v) {
    if (u->n_values == u->cap_values) {
        u->cap_values = u->cap_values == 0 ? 64 : u->cap_values * 2;
        u->values = xrealloc(u->values, u->cap_values * sizeof(struct store_value *));
    }
    u->values[u->n_values++] = v != NULL ? store_value_ref(v) : NULL;
}

void store_update_clear(struct store_update *u) {
    for (size_t i = 0; i < u->n_replies; i++)
        if (u->replies[i].kind == STORE_REPLY_VALUE)
            store_value_unref(u->replies[i].value);
    for (size_t i = 0; i < u->n_values; i++)
        store_value_unref(u->values[i]);
    if (u->cap_replies > UPDATE_KEEP || u->cap_values > UPDATE_KEEP) {
        store_update_fini(u);
        return;
    }
    u->n_replies = u->n_values = 0;
    u->refusal = NULL;
    u->size = 0;
}

void store_update_fini(struct store_update *u) {
    free(u->replies);
    free(u->values);
    *u = (struct store_update){0};
}

static int store_refuse(struct store_update *u, const char *why, uint64_t size) {
    u->refusal = why;
    u->size = size;
    return STORE_REFUSED;
}

static int store_full(struct store_update *u, uint64_t more) {
    return store_refuse(u, "the store is full", more);
}

/* Whether the remaining nodes are for queues that are not empty, or keys that a barrier has set. */
static bool completes(struct wait *w) {
    if (w->missing == 0)
        return true;
    if (w->barrier)
        return false;
    for (size_t i = 0; i < w->n_nodes; i++) {
        size_t at = w->probe + i < w->n_nodes ? w->probe + i : w->probe + i - w->n_nodes;
        if (list_linked(&w->nodes[at].link) && !store_key_is_ready(w->nodes[at].key)) {
            w->probe = at;
            return false;
        }
    }
    return true;
}

static void store_wait_drop(struct store *s, struct store_client *c) {
    struct wait *w = TAKE_PTR(c->wait);
    if (w == NULL)
        return;
    for (size_t i = 0; i < w->n_nodes; i++) {
        struct wait_node *node = &w->nodes[i];
        if (!list_linked(&node->link))
            continue;
        list_remove(&node->link);
        store_drop_if_empty(s, node->key);
    }
    s->bytes -= STORE_COST_WAIT * (uint64_t)w->n_nodes;
    free(w);
}

static void finish_wait(struct store *s, struct wait *w, struct store_update *u) {
    store_reply_u8(u, w->client, STORE_STOP_WAITING);
    store_wait_drop(s, w->client);
}

static void store_wake_all(struct store *s, struct store_key *k, struct store_update *u) {
    while (!list_empty(&k->waiters)) {
        struct wait_node *node = LIST_FIRST(struct wait_node, &k->waiters, link);
        list_remove(&node->link);
        node->wait->missing--;
        if (completes(node->wait))
            finish_wait(s, node->wait, u);
    }
}

/* There is something to pop: wakes the first client whose wait this completes. */
static void store_wake_one(struct store *s, struct store_key *k, struct store_update *u) {
    if (k->first == NULL)
        return;
    LIST_FOR_EACH(struct wait_node, node, &k->waiters, link) {
        if (!completes(node->wait))
            continue;
        struct store_client *c = node->wait->client;
        c->handed = k;
        k->handed++;
        finish_wait(s, node->wait, u);
        return;
    }
}

/* passed_on: it is gone or cancels before it has asked for the value for which it was woken. */
static void store_settle_handed(struct store *s, struct store_client *c, bool passed_on,
                                struct store_update *u) {
    struct store_key *k = TAKE_PTR(c->handed);
    if (k == NULL)
        return;
    k->handed--;
    if (passed_on)
        store_wake_one(s, k, u);
    store_drop_if_empty(s, k);
}

/* NULL if there is no memory. The caller must call store_wait_add() for each node next. */
static struct wait *store_wait_new(struct store *s, struct store_client *client, size_t n_nodes,
                                   bool barrier) {
    struct wait *w = calloc(1, sizeof *w + n_nodes * sizeof w->nodes[0]);
    if (w == NULL)
        return NULL;
    w->client = client;
    w->barrier = barrier;
    w->missing = w->n_nodes = n_nodes;
    s->bytes += STORE_COST_WAIT * (uint64_t)n_nodes;
    client->wait = w;
    return w;
}

static void store_wait_add(struct wait *w, size_t i, struct store_key *k) {
    w->nodes[i].wait = w;
    w->nodes[i].key = k;
    list_append(&k->waiters, &w->nodes[i].link);
}

static int store_do_wait(struct store *s, const struct store_request *req, struct store_update *u) {
    size_t missing = 0;
    uint64_t more = 0;
    store_wait_drop(s, req->client);
    for (size_t i = 0; i < req->n_keys; i++) {
        const struct store_key *k = store_keys_find(&s->keys, req->keys[i]);
        if (store_key_is_ready(k))
            continue;
        missing++;
        more += STORE_COST_WAIT + (k == NULL ? store_key_cost(req->keys[i].len) : 0);
    }
    if (missing == 0) {
        store_reply_u8(u, req->client, STORE_STOP_WAITING);
        return 0;
    }
    if (!store_fits(s, more))
        return store_full(u, more);
    struct wait *w = store_wait_new(s, req->client, missing, false);
    if (w == NULL)
        return -ENOMEM;
    size_t n = 0;
    for (size_t i = 0; i < req->n_keys; i++) {
        struct store_key *k = store_make_key(s, req->keys[i]);
        if (k == NULL) {
            store_wait_drop(s, req->client);
            return -ENOMEM;
        }
        if (!store_key_is_ready(k))
            store_wait_add(w, n++, k);
    }
    return 0;
}

/* What the whole wait costs, if this is the first of its nodes that still wait. */
static uint64_t check_wait(const struct wait_node *node) {
    const struct wait *w = node->wait;
    const struct wait_node *first = NULL;
    size_t linked = 0;
    for (size_t i = w->n_nodes; i-- > 0;)
        if (list_linked(&w->nodes[i].link)) {
            first = &w->nodes[i];
            linked++;
        }
    assert(w->client->wait == w && linked == w->missing);
    return first == node ? STORE_COST_WAIT * (uint64_t)w->n_nodes : 0;
}

static uint64_t check_key(const struct store_key *k) {
    uint64_t bytes = store_key_cost(k->name->len), items = 0;
    if (k->value != NULL) {
        assert(k->value->refs > 0 && k->value->len <= k->value->cap);
        bytes += store_value_cost(k->value->len);
    }
    for (const struct store_item *i = k->first; i != NULL; i = i->next, items++)
        bytes += store_value_cost(i->value->len);
    assert(items == k->queue_len);
    assert(k->value != NULL || items > 0 || !list_empty(&k->waiters) || k->handed > 0);
    LIST_FOR_EACH(struct wait_node, node, &k->waiters, link) {
        assert(node->key == k);
        bytes += check_wait(node);
    }
    return bytes;
}

void store_check(const struct store *s) {
    uint64_t bytes = 0, keys = 0, records = 0;
    for (size_t i = 0; i < s->keys.n; i++) {
        for (const struct store_key *k = s->keys.buckets[i]; k != NULL; k = k->next) {
            bytes += check_key(k);
            keys += k->value != NULL;
            records++;
        }
    }
    assert(bytes == s->bytes && keys == s->num_keys && records == s->keys.count);
}

/* How many bytes of a value ADD reads as a number: enough for blanks, a sign and digits. */
#define NUMBER_TEXT_MAX 256
#define NUMBER_ROOM 24 /* "-9223372036854775808" */

static const char *const op_names[STORE_OP_COUNT] = {
    [STORE_OP_VALIDATE] = "VALIDATE",
    [STORE_OP_SET] = "SET",
    [STORE_OP_COMPARE_SET] = "COMPARE_SET",
    [STORE_OP_GET] = "GET",
    [STORE_OP_ADD] = "ADD",
    [STORE_OP_CHECK] = "CHECK",
    [STORE_OP_WAIT] = "WAIT",
    [STORE_OP_GETNUMKEYS] = "GETNUMKEYS",
    [STORE_OP_DELETE_KEY] = "DELETE_KEY",
    [STORE_OP_APPEND] = "APPEND",
    [STORE_OP_MULTI_GET] = "MULTI_GET",
    [STORE_OP_MULTI_SET] = "MULTI_SET",
    [STORE_OP_CANCEL_WAIT] = "CANCEL_WAIT",
    [STORE_OP_PING] = "PING",
    [STORE_OP_QUEUE_PUSH] = "QUEUE_PUSH",
    [STORE_OP_QUEUE_POP] = "QUEUE_POP",
    [STORE_OP_QUEUE_LEN] = "QUEUE_LEN",
    [STORE_OP_LIST_KEYS] = "LIST_KEYS",
    [STORE_OP_BARRIER] = "BARRIER",
};

const char *store_op_name(unsigned op) { return op < STORE_OP_COUNT ? op_names[op] : "?"; }

bool store_hold(struct store *s, uint64_t bytes) {
    if (!store_fits(s, bytes))
        return false;
    s->held += bytes;
    return true;
}

void store_release(struct store *s, uint64_t bytes) {
    assert(bytes <= s->held);
    s->held -= bytes;
}

uint64_t store_bytes(const struct store *s) { return s->bytes; }
uint64_t store_num_keys(const struct store *s) { return s->num_keys; }

/* Takes ownership of v. */
static void put_value(struct store *s, struct store_key *k, struct store_value *v) {
    if (k->value != NULL)
        s->bytes -= store_value_cost(k->value->len);
    else
        s->num_keys++;
    store_value_unref(k->value);
    k->value = v;
    s->bytes += store_value_cost(v->len);
}

/* --- the operations ---------------------------------------------------------------------- */

static int do_set(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_span to = req->values[0];
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    uint64_t more = store_value_cost(to.len) + (k == NULL ? store_key_cost(req->keys[0].len) : 0);
    uint64_t less = k != NULL && k->value != NULL ? store_value_cost(k->value->len) : 0;
    if (more > less && !store_fits(s, more - less))
        return store_full(u, more);
    struct store_value *old = k != NULL ? k->value : NULL;
    if (old != NULL && old->refs == 1 && to.len <= old->cap && old->cap <= 2 * to.len + 64) {
        /* There is no other reference: the memory is used again. */
        s->bytes = s->bytes - store_value_cost(old->len) + store_value_cost(to.len);
        if (to.len > 0)
            memcpy(old->data, to.data, to.len);
        old->len = (uint32_t)to.len;
        store_wake_all(s, k, u);
        return 0;
    }
    _cleanup_(store_value_unrefp) struct store_value *v = store_value_copy(to.data, to.len);
    if (v == NULL)
        return -ENOMEM;
    if (k == NULL && (k = store_make_key(s, req->keys[0])) == NULL)
        return -ENOMEM;
    put_value(s, k, TAKE_PTR(v));
    store_wake_all(s, k, u);
    return 0;
}

static int do_compare_set(struct store *s, const struct store_request *req,
                          struct store_update *u) {
    struct store_span expected = req->values[0];
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    struct store_value *now = k != NULL ? k->value : NULL;
    if (now == NULL && expected.len > 0) { /* nothing is stored, and the reply is an empty value */
        struct store_value *same = store_value_copy(expected.data, expected.len);
        if (same == NULL)
            return -ENOMEM;
        store_reply_value(u, req->client, same);
        store_value_unref(same);
        return 0;
    }
    if (now != NULL &&
        (now->len != expected.len ||
         (expected.len > 0 && memcmp(now->data, expected.data, expected.len) != 0))) {
        store_reply_value(u, req->client, now);
        store_wake_all(s, k, u);
        return 0;
    }
    struct store_request set = *req;
    set.values = &req->values[1];
    int r = do_set(s, &set, u);
    if (r != 0)
        return r;
    store_reply_value(u, req->client, store_keys_find(&s->keys, req->keys[0])->value);
    return 0;
}

static struct store_value *value_of(const struct store *s, struct store_span name) {
    const struct store_key *k = store_keys_find(&s->keys, name);
    return k != NULL ? k->value : NULL;
}

/* Like strtoll() in base 10, on bytes: blanks, a sign, digits, and then anything. */
static bool parse_number(const struct store_value *v, int64_t *ret) {
    size_t i = 0, len = MIN2((size_t)v->len, (size_t)NUMBER_TEXT_MAX);
    while (i < len && (v->data[i] == ' ' || (v->data[i] >= '\t' && v->data[i] <= '\r')))
        i++;
    bool minus = i < len && v->data[i] == '-';
    if (i < len && (v->data[i] == '-' || v->data[i] == '+'))
        i++;
    size_t begin = i;
    int64_t n = 0;
    for (; i < len && v->data[i] >= '0' && v->data[i] <= '9'; i++) {
        int digit = v->data[i] - '0';
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, minus ? -digit : digit, &n))
            return false;
    }
    if (i == begin || (i == len && len < v->len))
        return false; /* no number, or it is longer than what we read */
    *ret = n;
    return true;
}

/* Adds to the counter and stores it. `waits`: more bytes that the caller will need. */
static int add_to(struct store *s, struct store_span name, int64_t delta, uint64_t waits,
                  struct store_update *u, struct store_key **ret_key, int64_t *ret) {
    struct store_key *k = store_keys_find(&s->keys, name);
    int64_t n = 0;
    if (k != NULL && k->value != NULL && !parse_number(k->value, &n))
        return store_refuse(u, "the value is not a number", k->value->len);
    n = (int64_t)((uint64_t)n + (uint64_t)delta); /* wraps, as the reference does */
    uint64_t more =
        store_value_cost(NUMBER_ROOM) + waits + (k == NULL ? store_key_cost(name.len) : 0);
    if (!store_fits(s, more))
        return store_full(u, more);
    struct store_value *v = store_value_new(NUMBER_ROOM);
    if (v == NULL)
        return -ENOMEM;
    if (k == NULL && (k = store_make_key(s, name)) == NULL) {
        store_value_unref(v);
        return -ENOMEM;
    }
    v->len = (uint32_t)snprintf((char *)v->data, NUMBER_ROOM, "%" PRId64, n);
    put_value(s, k, v);
    *ret_key = k;
    *ret = n;
    return 0;
}

static int do_add(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_key *k;
    int64_t n;
    int r = add_to(s, req->keys[0], req->number, 0, u, &k, &n);
    if (r != 0)
        return r;
    store_reply_i64(u, req->client, n);
    store_wake_all(s, k, u);
    return 0;
}

static int do_barrier(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_key *k;
    int64_t n;
    int r = add_to(s, req->keys[0], 1, STORE_COST_WAIT, u, &k, &n);
    if (r != 0)
        return r;
    store_wait_drop(s, req->client);
    if (n >= req->number) {
        store_reply_u8(u, req->client, STORE_STOP_WAITING);
        store_wake_all(s, k, u);
        return 0;
    }
    struct wait *w = store_wait_new(s, req->client, 1, true);
    if (w == NULL)
        return -ENOMEM;
    store_wait_add(w, 0, k);
    return 0;
}

static void do_check(struct store *s, const struct store_request *req, struct store_update *u) {
    for (size_t i = 0; i < req->n_keys; i++) {
        if (!store_key_is_ready(store_keys_find(&s->keys, req->keys[i]))) {
            store_reply_u8(u, req->client, STORE_NOT_READY);
            return;
        }
    }
    store_reply_u8(u, req->client, STORE_READY);
}

static void do_delete(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    bool there = k != NULL && k->value != NULL;
    if (there) {
        s->bytes -= store_value_cost(k->value->len);
        s->num_keys--;
        store_value_unref(TAKE_PTR(k->value));
        store_drop_if_empty(s, k);
    }
    store_reply_i64(u, req->client, there);
}

/* A value with other references is copied; one that grows again gets more room than it needs. */
static int do_append(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_span tail = req->values[0];
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    if (k == NULL || k->value == NULL)
        return do_set(s, req, u);
    uint64_t sum = (uint64_t)k->value->len + tail.len;
    if (sum > s->limits.value_bytes)
        return store_refuse(u, "the value grows too large", sum);
    if (!store_fits(s, tail.len))
        return store_full(u, tail.len);
    if (k->value->refs > 1) {
        struct store_value *own = store_value_new(sum);
        if (own == NULL)
            return -ENOMEM;
        memcpy(own->data, k->value->data, k->value->len);
        own->len = k->value->len;
        store_value_unref(k->value);
        k->value = own;
    } else if (sum > k->value->cap) {
        if (store_value_reserve(&k->value, sum + sum / 2) < 0)
            return -ENOMEM;
    }
    if (tail.len > 0)
        memcpy(k->value->data + k->value->len, tail.data, tail.len);
    k->value->len = (uint32_t)sum;
    s->bytes += tail.len;
    store_wake_all(s, k, u);
    return 0;
}

static void do_multi_get(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_reply *reply = store_reply_add(u, req->client, STORE_REPLY_LIST);
    reply->list.first = u->n_values;
    reply->list.count = req->n_keys;
    for (size_t i = 0; i < req->n_keys; i++)
        store_list_add(u, value_of(s, req->keys[i]));
}

/* First does everything that can fail: the request is applied completely or not at all. */
static int do_multi_set(struct store *s, const struct store_request *req, struct store_update *u) {
    uint64_t more = 0; /* as if none of the keys existed */
    for (size_t i = 0; i < req->n_keys; i++)
        more += store_key_cost(req->keys[i].len) + store_value_cost(req->values[i].len);
    if (!store_fits(s, more))
        return store_full(u, more);
    _cleanup_(freep) struct store_value **values = calloc(req->n_keys + 1, sizeof *values);
    if (values == NULL)
        return -ENOMEM;
    int r = 0;
    for (size_t i = 0; i < req->n_keys && r == 0; i++) {
        values[i] = store_value_copy(req->values[i].data, req->values[i].len);
        if (values[i] == NULL || store_make_key(s, req->keys[i]) == NULL)
            r = -ENOMEM;
    }
    for (size_t i = 0; i < req->n_keys; i++) {
        struct store_key *k = store_keys_find(&s->keys, req->keys[i]);
        if (r == 0) {
            put_value(s, k, values[i]);
            store_wake_all(s, k, u);
            continue;
        }
        store_value_unref(values[i]);
        if (k != NULL)
            store_drop_if_empty(s, k);
    }
    return r;
}

static int do_push(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_span what = req->values[0];
    const struct store_key *known = store_keys_find(&s->keys, req->keys[0]);
    uint64_t more =
        store_value_cost(what.len) + (known == NULL ? store_key_cost(req->keys[0].len) : 0);
    if (!store_fits(s, more))
        return store_full(u, more);
    struct store_item *item = calloc(1, sizeof *item);
    _cleanup_(store_value_unrefp) struct store_value *v = store_value_copy(what.data, what.len);
    struct store_key *k = item != NULL && v != NULL ? store_make_key(s, req->keys[0]) : NULL;
    if (k == NULL) {
        free(item);
        return -ENOMEM;
    }
    s->bytes += store_value_cost(v->len);
    item->value = TAKE_PTR(v);
    if (k->first == NULL)
        k->first = item;
    else
        k->last->next = item;
    k->last = item;
    k->queue_len++;
    store_wake_one(s, k, u);
    return 0;
}

static void do_pop(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    store_reply_i64(u, req->client, k != NULL ? (int64_t)k->queue_len : 0);
    if (k == NULL || k->first == NULL)
        return;
    struct store_item *item = k->first;
    k->first = item->next;
    k->queue_len--;
    s->bytes -= store_value_cost(item->value->len);
    store_reply_add(u, req->client, STORE_REPLY_VALUE)->value = item->value;
    free(item);
    store_drop_if_empty(s, k);
}

static void do_list(struct store *s, const struct store_request *req, struct store_update *u) {
    store_reply_i64(u, req->client, (int64_t)s->num_keys);
    struct store_reply *reply = store_reply_add(u, req->client, STORE_REPLY_LIST);
    reply->list.first = u->n_values;
    for (size_t i = 0; i < s->keys.n; i++)
        for (const struct store_key *k = s->keys.buckets[i]; k != NULL; k = k->next)
            if (k->value != NULL)
                store_list_add(u, k->name);
    reply->list.count = u->n_values - reply->list.first;
}

static void do_cancel(struct store *s, const struct store_request *req, struct store_update *u) {
    store_wait_drop(s, req->client);
    store_reply_u8(u, req->client, STORE_WAIT_CANCELED);
}

int store_step(struct store *s, const struct store_request *req, struct store_update *ret) {
    store_settle_handed(s, req->client, req->op == STORE_OP_CANCEL_WAIT, ret);
    switch (req->op) {
    case STORE_OP_SET: return do_set(s, req, ret);
    case STORE_OP_COMPARE_SET: return do_compare_set(s, req, ret);
    case STORE_OP_GET: store_reply_value(ret, req->client, value_of(s, req->keys[0])); return 0;
    case STORE_OP_ADD: return do_add(s, req, ret);
    case STORE_OP_CHECK: do_check(s, req, ret); return 0;
    case STORE_OP_WAIT: return store_do_wait(s, req, ret);
    case STORE_OP_GETNUMKEYS: store_reply_i64(ret, req->client, (int64_t)s->num_keys); return 0;
    case STORE_OP_DELETE_KEY: do_delete(s, req, ret); return 0;
    case STORE_OP_APPEND: return do_append(s, req, ret);
    case STORE_OP_MULTI_GET: do_multi_get(s, req, ret); return 0;
    case STORE_OP_MULTI_SET: return do_multi_set(s, req, ret);
    case STORE_OP_CANCEL_WAIT: do_cancel(s, req, ret); return 0;
    case STORE_OP_PING:
        store_reply_add(ret, req->client, STORE_REPLY_U32)->u32 = req->nonce;
        return 0;
    case STORE_OP_QUEUE_PUSH: return do_push(s, req, ret);
    case STORE_OP_QUEUE_POP: do_pop(s, req, ret); return 0;
    case STORE_OP_QUEUE_LEN: {
        const struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
        store_reply_i64(ret, req->client, k != NULL ? (int64_t)k->queue_len : 0);
        return 0;
    }
    case STORE_OP_LIST_KEYS: do_list(s, req, ret); return 0;
    case STORE_OP_BARRIER: return do_barrier(s, req, ret);
    case STORE_OP_VALIDATE: break;
    }
    return store_refuse(ret, "not an operation of the store", 0);
}

void store_forget(struct store *s, struct store_client *client, struct store_update *ret) {
    store_wait_drop(s, client);
    store_settle_handed(s, client, true, ret);
}

struct store *store_new(const struct store_limits *limits, uint64_t seed) {
    struct store *s = xcalloc(1, sizeof *s);
    s->limits = *limits;
    store_keys_init(&s->keys, seed);
    return s;
}

bool store_free_some(struct store *s, size_t n) {
    if (!store_keys_fini_some(&s->keys, n))
        return false;
    free(s);
    return true;
}

void store_free(struct store *s) {
    while (s != NULL && !store_free_some(s, SIZE_MAX))
        continue;
}
