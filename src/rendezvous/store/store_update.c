#include "rendezvous/store/store_priv.h"

/* The size of the arrays that an update keeps from step to step. */
#define UPDATE_KEEP 4096

struct store_reply *store_reply_add(struct store_update *u, uint32_t client,
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

void store_reply_u8(struct store_update *u, uint32_t client, uint8_t v) {
    store_reply_add(u, client, STORE_REPLY_U8)->u8 = v;
}

void store_reply_i64(struct store_update *u, uint32_t client, int64_t v) {
    store_reply_add(u, client, STORE_REPLY_I64)->i64 = v;
}

void store_reply_value(struct store_update *u, uint32_t client, struct store_value *v) {
    store_reply_add(u, client, STORE_REPLY_VALUE)->value = v != NULL ? store_value_ref(v) : NULL;
}

void store_list_add(struct store_update *u, struct store_value *v) {
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

int store_refuse(struct store_update *u, const char *why, uint64_t size) {
    u->refusal = why;
    u->size = size;
    return STORE_REFUSED;
}
