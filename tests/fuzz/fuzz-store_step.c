/* Bytes as requests of five clients to a small store. Its invariants are true after every step; a wait ends at most
 * once, and only for a client that waits; each reply has the form of its operation; and all memory is freed at the
 * end. */
#include "base/util.h"
#include "rendezvous/store/store.h"

#define CLIENTS 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct store_client clients[CLIENTS];
static bool waiting[CLIENTS];

/* Replies to other clients are only ends of waits. */
static void look_at(const struct store_update *u, uint32_t client, bool may_answer) {
    for (size_t i = 0; i < u->n_replies; i++) {
        const struct store_reply *r = &u->replies[i];
        size_t whose = (size_t)(r->client - clients);
        if (whose >= CLIENTS)
            abort();
        if (whose == client && may_answer)
            continue;
        if (r->kind != STORE_REPLY_U8 || r->u8 != STORE_STOP_WAITING || !waiting[whose])
            abort();
        waiting[whose] = false;
    }
}

static size_t replies_to(const struct store_update *u, uint32_t client) {
    size_t n = 0;
    for (size_t i = 0; i < u->n_replies; i++)
        n += u->replies[i].client == &clients[client];
    return n;
}

static void check_count(const struct store_request *req, uint32_t client, const struct store_update *u) {
    size_t n = replies_to(u, client);
    switch (req->op) {
    case STORE_OP_SET:
    case STORE_OP_APPEND:
    case STORE_OP_MULTI_SET:
    case STORE_OP_QUEUE_PUSH:
        if (n > 1) /* it can end its own wait */
            abort();
        return;
    case STORE_OP_WAIT:
    case STORE_OP_BARRIER: waiting[client] = n == 0; return;
    case STORE_OP_CANCEL_WAIT:
        waiting[client] = false;
        if (n != 1)
            abort();
        return;
    case STORE_OP_ADD:
    case STORE_OP_COMPARE_SET:
        if (n < 1 || n > 2)
            abort();
        return;
    case STORE_OP_GET:
    case STORE_OP_CHECK:
    case STORE_OP_GETNUMKEYS:
    case STORE_OP_DELETE_KEY:
    case STORE_OP_MULTI_GET:
    case STORE_OP_PING:
    case STORE_OP_QUEUE_LEN:
        if (n != 1)
            abort();
        return;
    case STORE_OP_QUEUE_POP:
    case STORE_OP_LIST_KEYS:
        if (n < 1 || n > 2)
            abort();
        return;
    case STORE_OP_VALIDATE: return;
    }
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct store_limits limits = {.value_bytes = 64, .store_bytes = 2500};
    struct store_update u = {0};
    if (size > 4096)
        return 0;
    struct store *store = store_new(&limits, size);
    for (uint32_t c = 0; c < CLIENTS; c++)
        waiting[c] = false;
    size_t pos = 0;
    while (size - pos >= 4) {
        uint32_t client = data[pos] % CLIENTS;
        uint8_t op = data[pos + 1];
        if (op == 255) { /* the client disconnects */
            waiting[client] = false;
            store_forget(store, &clients[client], &u);
            look_at(&u, client, false);
            store_update_clear(&u);
            store_check(store);
            pos += 2;
            continue;
        }
        struct store_span keys[3];
        struct store_span values[3];
        size_t n_keys = data[pos + 2] & 3, len = data[pos + 3] % 12;
        struct store_request req = {.client = &clients[client],
                                    .op = op % STORE_OP_COUNT,
                                    .keys = keys,
                                    .values = values,
                                    .number = (int8_t)data[pos + 2] / 16,
                                    .nonce = data[pos + 3]};
        pos += 4;
        bool many = req.op == STORE_OP_CHECK || req.op == STORE_OP_WAIT || req.op == STORE_OP_MULTI_GET ||
                    req.op == STORE_OP_MULTI_SET;
        req.n_keys = many ? n_keys % 4 : 1;
        req.n_values = req.op == STORE_OP_COMPARE_SET ? 2 : req.n_keys;
        len = MIN2(len, size - pos);
        for (size_t i = 0; i < 3; i++) {
            size_t n = MIN2(len, i + 1 < 3 ? len / 2 : len);
            keys[i] = (struct store_span){data + pos, MIN2(n, (size_t)2)};
            values[i] = (struct store_span){data + pos, n};
            pos += n;
            len -= n;
        }
        uint64_t before = store_bytes(store);
        int r = store_step(store, &req, &u);
        if (r == STORE_REFUSED) {
            if (u.refusal == NULL || replies_to(&u, client) != 0)
                abort();
            if (req.op == STORE_OP_WAIT)
                waiting[client] = false; /* the old wait was replaced first */
            else if (store_bytes(store) > before)
                abort();
            waiting[client] = false; /* a refused client is disconnected */
            store_forget(store, &clients[client], &u);
        } else if (r == 0) {
            look_at(&u, client, true);
            check_count(&req, client, &u);
        } else {
            abort();
        }
        store_update_clear(&u);
        store_check(store);
        if (store_bytes(store) > limits.store_bytes)
            abort();
    }
    for (uint32_t c = 0; c < CLIENTS; c++)
        store_forget(store, &clients[c], &u);
    store_update_fini(&u);
    store_free(store);
    return 0;
}
