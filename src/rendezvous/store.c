#include "rendezvous/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "rendezvous/store_keys.h"

/* How far into a value ADD looks for a number: blanks, a sign and digits fit. */
#define NUMBER_TEXT_MAX 256
#define NUMBER_ROOM 24 /* "-9223372036854775808" */
/* What an update keeps from step to step. */
#define UPDATE_KEEP 4096

struct wait_node {
    struct list link; /* in key->waiters; unlinked once the key was set */
    struct store_key *key;
    struct wait *wait;
};

struct wait {
    uint32_t client;
    bool barrier;   /* released by a set of its one key only */
    size_t missing; /* nodes still linked */
    size_t probe;   /* the node that was not ready when last looked */
    size_t n_nodes;
    struct wait_node nodes[];
};

struct client {
    struct wait *wait;
    struct store_key *handed; /* woken by a push there, nothing asked since */
};

struct store {
    struct store_limits limits;
    struct store_keys keys;
    struct client *clients;
    size_t n_clients;
    uint64_t bytes, held, num_keys;
};

static const char *const op_names[STORE_OP_COUNT] = {
    [STORE_OP_VALIDATE] = "VALIDATE",       [STORE_OP_SET] = "SET",
    [STORE_OP_COMPARE_SET] = "COMPARE_SET", [STORE_OP_GET] = "GET",
    [STORE_OP_ADD] = "ADD",                 [STORE_OP_CHECK] = "CHECK",
    [STORE_OP_WAIT] = "WAIT",               [STORE_OP_GETNUMKEYS] = "GETNUMKEYS",
    [STORE_OP_DELETE_KEY] = "DELETE_KEY",   [STORE_OP_APPEND] = "APPEND",
    [STORE_OP_MULTI_GET] = "MULTI_GET",     [STORE_OP_MULTI_SET] = "MULTI_SET",
    [STORE_OP_CANCEL_WAIT] = "CANCEL_WAIT", [STORE_OP_PING] = "PING",
    [STORE_OP_QUEUE_PUSH] = "QUEUE_PUSH",   [STORE_OP_QUEUE_POP] = "QUEUE_POP",
    [STORE_OP_QUEUE_LEN] = "QUEUE_LEN",     [STORE_OP_LIST_KEYS] = "LIST_KEYS",
    [STORE_OP_BARRIER] = "BARRIER",
};

const char *store_op_name(unsigned op) { return op < STORE_OP_COUNT ? op_names[op] : "?"; }

/* --- what goes out ----------------------------------------------------------------------- */

static struct store_reply *add_reply(struct store_update *u, uint32_t client,
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

static void reply_u8(struct store_update *u, uint32_t client, uint8_t v) {
    add_reply(u, client, STORE_REPLY_U8)->u8 = v;
}

static void reply_i64(struct store_update *u, uint32_t client, int64_t v) {
    add_reply(u, client, STORE_REPLY_I64)->i64 = v;
}

/* Borrows. */
static void reply_value(struct store_update *u, uint32_t client, struct store_value *v) {
    add_reply(u, client, STORE_REPLY_VALUE)->value = v != NULL ? store_value_ref(v) : NULL;
}

static void add_value(struct store_update *u, struct store_value *v) {
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

static int refuse(struct store_update *u, const char *why, uint64_t size) {
    u->refusal = why;
    u->size = size;
    return STORE_REFUSED;
}

/* --- bytes ------------------------------------------------------------------------------- */

static uint64_t key_cost(size_t name_len) { return STORE_COST_KEY + (uint64_t)name_len; }
static uint64_t value_cost(size_t len) { return STORE_COST_VALUE + (uint64_t)len; }

static bool fits(const struct store *s, uint64_t more) {
    uint64_t used = s->bytes + s->held;
    return used <= s->limits.store_bytes && more <= s->limits.store_bytes - used;
}

static int full(struct store_update *u, uint64_t more) {
    return refuse(u, "the store is full", more);
}

bool store_hold(struct store *s, uint64_t bytes) {
    if (!fits(s, bytes))
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

static struct store_key *make_key(struct store *s, struct store_span name) {
    bool is_new;
    struct store_key *k = store_keys_make(&s->keys, name, &is_new);
    if (k != NULL && is_new)
        s->bytes += key_cost(name.len);
    return k;
}

static void drop_if_empty(struct store *s, struct store_key *k) {
    if (k->value != NULL || k->first != NULL || !list_empty(&k->waiters) || k->handed > 0)
        return;
    s->bytes -= key_cost(k->name->len);
    store_keys_remove(&s->keys, k);
}

/* The value of a blob, owned by the caller; NULL when there is no memory. */
static struct store_value *take_blob(struct store_blob *b) {
    if (b->owned != NULL)
        return TAKE_PTR(b->owned);
    return store_value_copy(b->span.data, b->span.len);
}

/* Takes v. */
static void put_value(struct store *s, struct store_key *k, struct store_value *v) {
    if (k->value != NULL)
        s->bytes -= value_cost(k->value->len);
    else
        s->num_keys++;
    store_value_unref(k->value);
    k->value = v;
    s->bytes += value_cost(v->len);
}

/* --- waiting ----------------------------------------------------------------------------- */

static bool is_ready(const struct store_key *k) {
    return k != NULL && (k->value != NULL || k->first != NULL);
}

/* Whether every node that is left stands on a queue that is not empty, or on a key that a barrier
 * made meanwhile. */
static bool completes(struct wait *w) {
    if (w->missing == 0)
        return true;
    if (w->barrier)
        return false;
    for (size_t i = 0; i < w->n_nodes; i++) {
        size_t at = w->probe + i < w->n_nodes ? w->probe + i : w->probe + i - w->n_nodes;
        if (list_linked(&w->nodes[at].link) && !is_ready(w->nodes[at].key)) {
            w->probe = at;
            return false;
        }
    }
    return true;
}

static void drop_wait(struct store *s, struct client *c) {
    struct wait *w = TAKE_PTR(c->wait);
    if (w == NULL)
        return;
    for (size_t i = 0; i < w->n_nodes; i++) {
        struct wait_node *node = &w->nodes[i];
        if (!list_linked(&node->link))
            continue;
        list_remove(&node->link);
        drop_if_empty(s, node->key);
    }
    s->bytes -= STORE_COST_WAIT * (uint64_t)w->n_nodes;
    free(w);
}

static void finish_wait(struct store *s, struct wait *w, struct store_update *u) {
    reply_u8(u, w->client, STORE_STOP_WAITING);
    drop_wait(s, &s->clients[w->client]);
}

/* The key was set. */
static void wake_all(struct store *s, struct store_key *k, struct store_update *u) {
    while (!list_empty(&k->waiters)) {
        struct wait_node *node = LIST_FIRST(struct wait_node, &k->waiters, link);
        list_remove(&node->link);
        node->wait->missing--;
        if (completes(node->wait))
            finish_wait(s, node->wait, u);
    }
}

/* Something may be popped: the first whose wait that completes. */
static void wake_one(struct store *s, struct store_key *k, struct store_update *u) {
    if (k->first == NULL)
        return;
    LIST_FOR_EACH(struct wait_node, node, &k->waiters, link) {
        if (!completes(node->wait))
            continue;
        struct client *c = &s->clients[node->wait->client];
        c->handed = k;
        k->handed++;
        finish_wait(s, node->wait, u);
        return;
    }
}

/* `passed_on`: the client goes away without having asked for what it was woken for. */
static void settle_handed(struct store *s, struct client *c, bool passed_on,
                          struct store_update *u) {
    struct store_key *k = TAKE_PTR(c->handed);
    if (k == NULL)
        return;
    k->handed--;
    if (passed_on)
        wake_one(s, k, u);
    drop_if_empty(s, k);
}

static struct wait *wait_new(struct store *s, uint32_t client, size_t n_nodes, bool barrier) {
    struct wait *w = calloc(1, sizeof *w + n_nodes * sizeof w->nodes[0]);
    if (w == NULL)
        return NULL;
    w->client = client;
    w->barrier = barrier;
    w->missing = w->n_nodes = n_nodes;
    s->bytes += STORE_COST_WAIT * (uint64_t)n_nodes;
    s->clients[client].wait = w;
    return w;
}

static void add_node(struct wait *w, size_t i, struct store_key *k) {
    w->nodes[i].wait = w;
    w->nodes[i].key = k;
    list_append(&k->waiters, &w->nodes[i].link);
}

/* --- the operations ---------------------------------------------------------------------- */

static int do_set(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_blob *b = &req->values[0];
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    uint64_t more = value_cost(b->span.len) + (k == NULL ? key_cost(req->keys[0].len) : 0);
    uint64_t less = k != NULL && k->value != NULL ? value_cost(k->value->len) : 0;
    if (more > less && !fits(s, more - less))
        return full(u, more);
    struct store_value *old = k != NULL ? k->value : NULL;
    if (old != NULL && old->refs == 1 && b->owned == NULL && b->span.len <= old->cap &&
        old->cap <= 2 * b->span.len + 64) {
        /* Nobody else reads it: the room is used again. */
        s->bytes = s->bytes - value_cost(old->len) + value_cost(b->span.len);
        if (b->span.len > 0)
            memcpy(old->data, b->span.data, b->span.len);
        old->len = (uint32_t)b->span.len;
        wake_all(s, k, u);
        return 0;
    }
    _cleanup_(store_value_unrefp) struct store_value *v = take_blob(b);
    if (v == NULL)
        return -ENOMEM;
    if (k == NULL && (k = make_key(s, req->keys[0])) == NULL)
        return -ENOMEM;
    put_value(s, k, TAKE_PTR(v));
    wake_all(s, k, u);
    return 0;
}

static int do_compare_set(struct store *s, const struct store_request *req,
                          struct store_update *u) {
    struct store_span expected = req->values[0].span;
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    struct store_value *now = k != NULL ? k->value : NULL;
    if (now == NULL && expected.len > 0) { /* nothing is stored, and that is the answer */
        struct store_value *same = take_blob(&req->values[0]);
        if (same == NULL)
            return -ENOMEM;
        reply_value(u, req->client, same);
        store_value_unref(same);
        return 0;
    }
    if (now != NULL && (now->len != expected.len ||
                        (expected.len > 0 && memcmp(now->data, expected.data, expected.len) != 0))) {
        reply_value(u, req->client, now);
        wake_all(s, k, u);
        return 0;
    }
    struct store_request set = *req;
    set.values = &req->values[1];
    int r = do_set(s, &set, u);
    if (r != 0)
        return r;
    reply_value(u, req->client, store_keys_find(&s->keys, req->keys[0])->value);
    return 0;
}

static struct store_value *value_of(const struct store *s, struct store_span name) {
    const struct store_key *k = store_keys_find(&s->keys, name);
    return k != NULL ? k->value : NULL;
}

/* As strtoll() in base 10, on bytes: blanks, a sign, digits, and anything after them. */
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
        return false; /* none, or it goes on beyond where we look */
    *ret = n;
    return true;
}

/* Adds to the counter and stores it. `waits`: bytes that the caller will need besides. */
static int add_to(struct store *s, struct store_span name, int64_t delta, uint64_t waits,
                  struct store_update *u, struct store_key **ret_key, int64_t *ret) {
    struct store_key *k = store_keys_find(&s->keys, name);
    int64_t n = 0;
    if (k != NULL && k->value != NULL && !parse_number(k->value, &n))
        return refuse(u, "the value is not a number", k->value->len);
    n = (int64_t)((uint64_t)n + (uint64_t)delta); /* wraps, as the reference does */
    uint64_t more = value_cost(NUMBER_ROOM) + waits + (k == NULL ? key_cost(name.len) : 0);
    if (!fits(s, more))
        return full(u, more);
    struct store_value *v = store_value_new(NUMBER_ROOM);
    if (v == NULL)
        return -ENOMEM;
    if (k == NULL && (k = make_key(s, name)) == NULL) {
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
    reply_i64(u, req->client, n);
    wake_all(s, k, u);
    return 0;
}

static int do_barrier(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_key *k;
    int64_t n;
    int r = add_to(s, req->keys[0], 1, STORE_COST_WAIT, u, &k, &n);
    if (r != 0)
        return r;
    drop_wait(s, &s->clients[req->client]);
    if (n >= req->number) {
        reply_u8(u, req->client, STORE_STOP_WAITING);
        wake_all(s, k, u);
        return 0;
    }
    struct wait *w = wait_new(s, req->client, 1, true);
    if (w == NULL)
        return -ENOMEM;
    add_node(w, 0, k);
    return 0;
}

static void do_check(struct store *s, const struct store_request *req, struct store_update *u) {
    for (size_t i = 0; i < req->n_keys; i++) {
        if (!is_ready(store_keys_find(&s->keys, req->keys[i]))) {
            reply_u8(u, req->client, STORE_NOT_READY);
            return;
        }
    }
    reply_u8(u, req->client, STORE_READY);
}

static int do_wait(struct store *s, const struct store_request *req, struct store_update *u) {
    size_t missing = 0;
    uint64_t more = 0;
    drop_wait(s, &s->clients[req->client]);
    for (size_t i = 0; i < req->n_keys; i++) {
        const struct store_key *k = store_keys_find(&s->keys, req->keys[i]);
        if (is_ready(k))
            continue;
        missing++;
        more += STORE_COST_WAIT + (k == NULL ? key_cost(req->keys[i].len) : 0);
    }
    if (missing == 0) {
        reply_u8(u, req->client, STORE_STOP_WAITING);
        return 0;
    }
    if (!fits(s, more))
        return full(u, more);
    struct wait *w = wait_new(s, req->client, missing, false);
    if (w == NULL)
        return -ENOMEM;
    size_t n = 0;
    for (size_t i = 0; i < req->n_keys; i++) {
        struct store_key *k = make_key(s, req->keys[i]);
        if (k == NULL) {
            drop_wait(s, &s->clients[req->client]);
            return -ENOMEM;
        }
        if (!is_ready(k))
            add_node(w, n++, k);
    }
    return 0;
}

static void do_delete(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    bool there = k != NULL && k->value != NULL;
    if (there) {
        s->bytes -= value_cost(k->value->len);
        s->num_keys--;
        store_value_unref(TAKE_PTR(k->value));
        drop_if_empty(s, k);
    }
    reply_i64(u, req->client, there);
}

/* An own, larger copy when somebody still reads the old one; room ahead when it grows again. */
static int do_append(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_span tail = req->values[0].span;
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    if (k == NULL || k->value == NULL)
        return do_set(s, req, u);
    uint64_t sum = (uint64_t)k->value->len + tail.len;
    if (sum > s->limits.value_bytes)
        return refuse(u, "the value grows too large", sum);
    if (!fits(s, tail.len))
        return full(u, tail.len);
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
    wake_all(s, k, u);
    return 0;
}

static void do_multi_get(struct store *s, const struct store_request *req,
                         struct store_update *u) {
    struct store_reply *reply = add_reply(u, req->client, STORE_REPLY_LIST);
    reply->list.first = u->n_values;
    reply->list.count = req->n_keys;
    for (size_t i = 0; i < req->n_keys; i++)
        add_value(u, value_of(s, req->keys[i]));
}

/* All that can fail comes first: it is applied whole or not at all. */
static int do_multi_set(struct store *s, const struct store_request *req,
                        struct store_update *u) {
    uint64_t more = 0; /* as if nothing of it were there */
    for (size_t i = 0; i < req->n_keys; i++)
        more += key_cost(req->keys[i].len) + value_cost(req->values[i].span.len);
    if (!fits(s, more))
        return full(u, more);
    int r = 0;
    for (size_t i = 0; i < req->n_keys && r == 0; i++) {
        if (req->values[i].owned == NULL)
            req->values[i].owned = take_blob(&req->values[i]);
        if (req->values[i].owned == NULL || make_key(s, req->keys[i]) == NULL)
            r = -ENOMEM;
    }
    for (size_t i = 0; i < req->n_keys; i++) {
        struct store_key *k = store_keys_find(&s->keys, req->keys[i]);
        if (r == 0) {
            put_value(s, k, TAKE_PTR(req->values[i].owned));
            wake_all(s, k, u);
        } else if (k != NULL) {
            drop_if_empty(s, k);
        }
    }
    for (size_t i = 0; i < req->n_keys; i++) /* none is left but after a failure */
        store_value_unref(TAKE_PTR(req->values[i].owned));
    return r;
}

static int do_push(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_blob *b = &req->values[0];
    const struct store_key *known = store_keys_find(&s->keys, req->keys[0]);
    uint64_t more = value_cost(b->span.len) + (known == NULL ? key_cost(req->keys[0].len) : 0);
    if (!fits(s, more))
        return full(u, more);
    struct store_item *item = calloc(1, sizeof *item);
    _cleanup_(store_value_unrefp) struct store_value *v = take_blob(b);
    struct store_key *k = item != NULL && v != NULL ? make_key(s, req->keys[0]) : NULL;
    if (k == NULL) {
        free(item);
        return -ENOMEM;
    }
    s->bytes += value_cost(v->len);
    item->value = TAKE_PTR(v);
    if (k->first == NULL)
        k->first = item;
    else
        k->last->next = item;
    k->last = item;
    k->queue_len++;
    wake_one(s, k, u);
    return 0;
}

static void do_pop(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    reply_i64(u, req->client, k != NULL ? (int64_t)k->queue_len : 0);
    if (k == NULL || k->first == NULL)
        return;
    struct store_item *item = k->first;
    k->first = item->next;
    k->queue_len--;
    s->bytes -= value_cost(item->value->len);
    add_reply(u, req->client, STORE_REPLY_VALUE)->value = item->value;
    free(item);
    drop_if_empty(s, k);
}

static void do_list(struct store *s, const struct store_request *req, struct store_update *u) {
    reply_i64(u, req->client, (int64_t)s->num_keys);
    struct store_reply *reply = add_reply(u, req->client, STORE_REPLY_LIST);
    reply->list.first = u->n_values;
    for (size_t i = 0; i < (size_t)1 << s->keys.bits; i++)
        for (const struct store_key *k = s->keys.buckets[i]; k != NULL; k = k->next)
            if (k->value != NULL)
                add_value(u, k->name);
    reply->list.count = u->n_values - reply->list.first;
}

static void do_cancel(struct store *s, const struct store_request *req, struct store_update *u) {
    drop_wait(s, &s->clients[req->client]);
    reply_u8(u, req->client, STORE_WAIT_CANCELED);
}

static void need_client(struct store *s, uint32_t client) {
    if (client < s->n_clients)
        return;
    size_t n = MAX2((size_t)client + 1, s->n_clients * 2);
    s->clients = xrealloc(s->clients, n * sizeof *s->clients);
    memset(s->clients + s->n_clients, 0, (n - s->n_clients) * sizeof *s->clients);
    s->n_clients = n;
}

int store_step(struct store *s, const struct store_request *req, struct store_update *ret) {
    need_client(s, req->client);
    settle_handed(s, &s->clients[req->client], req->op == STORE_OP_CANCEL_WAIT, ret);
    switch (req->op) {
    case STORE_OP_SET:
        return do_set(s, req, ret);
    case STORE_OP_COMPARE_SET:
        return do_compare_set(s, req, ret);
    case STORE_OP_GET:
        reply_value(ret, req->client, value_of(s, req->keys[0]));
        return 0;
    case STORE_OP_ADD:
        return do_add(s, req, ret);
    case STORE_OP_CHECK:
        do_check(s, req, ret);
        return 0;
    case STORE_OP_WAIT:
        return do_wait(s, req, ret);
    case STORE_OP_GETNUMKEYS:
        reply_i64(ret, req->client, (int64_t)s->num_keys);
        return 0;
    case STORE_OP_DELETE_KEY:
        do_delete(s, req, ret);
        return 0;
    case STORE_OP_APPEND:
        return do_append(s, req, ret);
    case STORE_OP_MULTI_GET:
        do_multi_get(s, req, ret);
        return 0;
    case STORE_OP_MULTI_SET:
        return do_multi_set(s, req, ret);
    case STORE_OP_CANCEL_WAIT:
        do_cancel(s, req, ret);
        return 0;
    case STORE_OP_PING:
        add_reply(ret, req->client, STORE_REPLY_U32)->u32 = req->nonce;
        return 0;
    case STORE_OP_QUEUE_PUSH:
        return do_push(s, req, ret);
    case STORE_OP_QUEUE_POP:
        do_pop(s, req, ret);
        return 0;
    case STORE_OP_QUEUE_LEN: {
        const struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
        reply_i64(ret, req->client, k != NULL ? (int64_t)k->queue_len : 0);
        return 0;
    }
    case STORE_OP_LIST_KEYS:
        do_list(s, req, ret);
        return 0;
    case STORE_OP_BARRIER:
        return do_barrier(s, req, ret);
    case STORE_OP_VALIDATE:
        break;
    }
    return refuse(ret, "not an operation of the store", 0);
}

void store_forget(struct store *s, uint32_t client, struct store_update *ret) {
    if (client >= s->n_clients)
        return;
    drop_wait(s, &s->clients[client]);
    settle_handed(s, &s->clients[client], true, ret);
}

int store_new(const struct store_limits *limits, uint64_t seed, struct store **ret) {
    struct store *s = xcalloc(1, sizeof *s);
    s->limits = *limits;
    store_keys_init(&s->keys, seed);
    *ret = s;
    return 0;
}

void store_free(struct store *s) {
    if (s == NULL)
        return;
    struct store_update none = {0};
    for (size_t i = 0; i < s->n_clients; i++) {
        drop_wait(s, &s->clients[i]);
        settle_handed(s, &s->clients[i], false, &none);
    }
    store_keys_fini(&s->keys);
    free(s->clients);
    free(s);
}

static uint64_t check_key(const struct store *s, const struct store_key *k) {
    uint64_t bytes = key_cost(k->name->len), items = 0;
    if (k->value != NULL) {
        assert(k->value->refs > 0 && k->value->len <= k->value->cap);
        bytes += value_cost(k->value->len);
    }
    for (const struct store_item *i = k->first; i != NULL; i = i->next, items++)
        bytes += value_cost(i->value->len);
    assert(items == k->queue_len);
    assert(k->value != NULL || items > 0 || !list_empty(&k->waiters) || k->handed > 0);
    LIST_FOR_EACH(struct wait_node, node, &k->waiters, link) {
        assert(node->key == k && s->clients[node->wait->client].wait == node->wait);
    }
    return bytes;
}

void store_check(const struct store *s) {
    uint64_t bytes = 0, keys = 0, records = 0;
    for (size_t i = 0; i < (size_t)1 << s->keys.bits; i++) {
        for (const struct store_key *k = s->keys.buckets[i]; k != NULL; k = k->next) {
            bytes += check_key(s, k);
            keys += k->value != NULL;
            records++;
        }
    }
    for (size_t i = 0; i < s->n_clients; i++) {
        const struct wait *w = s->clients[i].wait;
        size_t linked = 0;
        if (w == NULL)
            continue;
        for (size_t j = 0; j < w->n_nodes; j++)
            linked += list_linked(&w->nodes[j].link);
        assert(w->client == i && linked == w->missing && linked > 0);
        bytes += STORE_COST_WAIT * (uint64_t)w->n_nodes;
    }
    assert(bytes == s->bytes && keys == s->num_keys && records == s->keys.count);
}
