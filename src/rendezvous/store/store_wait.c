#include "rendezvous/store/store_priv.h"

/* Whether every remaining node is for a queue that is not empty, or for a key that a barrier has
 * set meanwhile. */
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

void store_wait_drop(struct store *s, struct client *c) {
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
    store_wait_drop(s, &s->clients[w->client]);
}

void store_wake_all(struct store *s, struct store_key *k, struct store_update *u) {
    while (!list_empty(&k->waiters)) {
        struct wait_node *node = LIST_FIRST(struct wait_node, &k->waiters, link);
        list_remove(&node->link);
        node->wait->missing--;
        if (completes(node->wait))
            finish_wait(s, node->wait, u);
    }
}

void store_wake_one(struct store *s, struct store_key *k, struct store_update *u) {
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

void store_settle_handed(struct store *s, struct client *c, bool passed_on,
                         struct store_update *u) {
    struct store_key *k = TAKE_PTR(c->handed);
    if (k == NULL)
        return;
    k->handed--;
    if (passed_on)
        store_wake_one(s, k, u);
    store_drop_if_empty(s, k);
}

struct wait *store_wait_new(struct store *s, uint32_t client, size_t n_nodes, bool barrier) {
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

void store_wait_add(struct wait *w, size_t i, struct store_key *k) {
    w->nodes[i].wait = w;
    w->nodes[i].key = k;
    list_append(&k->waiters, &w->nodes[i].link);
}

int store_do_wait(struct store *s, const struct store_request *req, struct store_update *u) {
    size_t missing = 0;
    uint64_t more = 0;
    store_wait_drop(s, &s->clients[req->client]);
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
            store_wait_drop(s, &s->clients[req->client]);
            return -ENOMEM;
        }
        if (!store_key_is_ready(k))
            store_wait_add(w, n++, k);
    }
    return 0;
}

static uint64_t check_key(const struct store *s, const struct store_key *k) {
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
        assert(node->key == k && s->clients[node->wait->client].wait == node->wait);
    }
    return bytes;
}

void store_check(const struct store *s) {
    uint64_t bytes = 0, keys = 0, records = 0;
    for (size_t i = 0; i < store_keys_n_buckets(&s->keys); i++) {
        for (const struct store_key *k = store_keys_bucket(&s->keys, i); k != NULL; k = k->next) {
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
