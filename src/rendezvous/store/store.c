#include "rendezvous/store/store.h"

#include <inttypes.h>
#include <stdio.h>

#include "rendezvous/store/store_priv.h"

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

/* --- bytes ------------------------------------------------------------------------------- */

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

struct store_key *store_make_key(struct store *s, struct store_span name) {
    bool is_new;
    struct store_key *k = store_keys_make(&s->keys, name, &is_new);
    if (k != NULL && is_new)
        s->bytes += store_key_cost(name.len);
    return k;
}

void store_drop_if_empty(struct store *s, struct store_key *k) {
    if (k->value != NULL || k->first != NULL || !list_empty(&k->waiters) || k->handed > 0)
        return;
    s->bytes -= store_key_cost(k->name->len);
    store_keys_remove(&s->keys, k);
}

/* The value of a blob, owned by the caller; NULL if there is no memory. */
static struct store_value *take_blob(struct store_blob *b) {
    if (b->owned != NULL)
        return TAKE_PTR(b->owned);
    return store_value_copy(b->span.data, b->span.len);
}

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
    struct store_blob *b = &req->values[0];
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    uint64_t more =
        store_value_cost(b->span.len) + (k == NULL ? store_key_cost(req->keys[0].len) : 0);
    uint64_t less = k != NULL && k->value != NULL ? store_value_cost(k->value->len) : 0;
    if (more > less && !store_fits(s, more - less))
        return store_full(u, more);
    struct store_value *old = k != NULL ? k->value : NULL;
    if (old != NULL && old->refs == 1 && b->owned == NULL && b->span.len <= old->cap &&
        old->cap <= 2 * b->span.len + 64) {
        /* There is no other reference: the memory is used again. */
        s->bytes = s->bytes - store_value_cost(old->len) + store_value_cost(b->span.len);
        if (b->span.len > 0)
            memcpy(old->data, b->span.data, b->span.len);
        old->len = (uint32_t)b->span.len;
        store_wake_all(s, k, u);
        return 0;
    }
    _cleanup_(store_value_unrefp) struct store_value *v = take_blob(b);
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
    struct store_span expected = req->values[0].span;
    struct store_key *k = store_keys_find(&s->keys, req->keys[0]);
    struct store_value *now = k != NULL ? k->value : NULL;
    if (now == NULL && expected.len > 0) { /* nothing is stored, and the reply is an empty value */
        struct store_value *same = take_blob(&req->values[0]);
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
    store_wait_drop(s, &s->clients[req->client]);
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

/* Makes a larger copy if the old value has other references; allocates more than needed when the
 * value grows again. */
static int do_append(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_span tail = req->values[0].span;
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
        more += store_key_cost(req->keys[i].len) + store_value_cost(req->values[i].span.len);
    if (!store_fits(s, more))
        return store_full(u, more);
    int r = 0;
    for (size_t i = 0; i < req->n_keys && r == 0; i++) {
        if (req->values[i].owned == NULL)
            req->values[i].owned = take_blob(&req->values[i]);
        if (req->values[i].owned == NULL || store_make_key(s, req->keys[i]) == NULL)
            r = -ENOMEM;
    }
    for (size_t i = 0; i < req->n_keys; i++) {
        struct store_key *k = store_keys_find(&s->keys, req->keys[i]);
        if (r == 0) {
            put_value(s, k, TAKE_PTR(req->values[i].owned));
            store_wake_all(s, k, u);
        } else if (k != NULL) {
            store_drop_if_empty(s, k);
        }
    }
    for (size_t i = 0; i < req->n_keys; i++) /* some are left only after a failure */
        store_value_unref(TAKE_PTR(req->values[i].owned));
    return r;
}

static int do_push(struct store *s, const struct store_request *req, struct store_update *u) {
    struct store_blob *b = &req->values[0];
    const struct store_key *known = store_keys_find(&s->keys, req->keys[0]);
    uint64_t more =
        store_value_cost(b->span.len) + (known == NULL ? store_key_cost(req->keys[0].len) : 0);
    if (!store_fits(s, more))
        return store_full(u, more);
    struct store_item *item = calloc(1, sizeof *item);
    _cleanup_(store_value_unrefp) struct store_value *v = take_blob(b);
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
    for (size_t i = 0; i < store_keys_n_buckets(&s->keys); i++)
        for (const struct store_key *k = store_keys_bucket(&s->keys, i); k != NULL; k = k->next)
            if (k->value != NULL)
                store_list_add(u, k->name);
    reply->list.count = u->n_values - reply->list.first;
}

static void do_cancel(struct store *s, const struct store_request *req, struct store_update *u) {
    store_wait_drop(s, &s->clients[req->client]);
    store_reply_u8(u, req->client, STORE_WAIT_CANCELED);
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
    store_settle_handed(s, &s->clients[req->client], req->op == STORE_OP_CANCEL_WAIT, ret);
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

void store_forget(struct store *s, uint32_t client, struct store_update *ret) {
    if (client >= s->n_clients)
        return;
    store_wait_drop(s, &s->clients[client]);
    store_settle_handed(s, &s->clients[client], true, ret);
}

int store_new(const struct store_limits *limits, uint64_t seed, struct store **ret) {
    struct store *s = xcalloc(1, sizeof *s);
    s->limits = *limits;
    store_keys_init(&s->keys, seed);
    *ret = s;
    return 0;
}

bool store_free_some(struct store *s, size_t n) {
    struct store_update none = {0};
    for (; s->n_clients > 0 && n > 0; n--) {
        struct client *last = &s->clients[s->n_clients - 1];
        store_wait_drop(s, last);
        store_settle_handed(s, last, false, &none);
        s->n_clients--;
    }
    if (s->n_clients > 0 || !store_keys_fini_some(&s->keys, n))
        return false;
    free(s->clients);
    free(s);
    return true;
}

void store_free(struct store *s) {
    while (s != NULL && !store_free_some(s, SIZE_MAX))
        continue;
}
