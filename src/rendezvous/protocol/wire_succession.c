#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "rendezvous/protocol/wire_priv.h"

static void put_peer(struct json_writer *w, const char *key, const struct rdzv_peer *p) {
    json_write_object_begin(w, key);
    json_write_hex(w, "incarnation", p->incarnation);
    PUT_TEXT(w, "addr", p->addr);
    json_write_u64(w, "port", p->port);
    json_write_object_end(w);
}

static int get_peer(const struct json *v, struct rdzv_peer *ret, struct err *err) {
    struct fields f = FIELDS(v, err, "incarnation", "addr", "port");
    wire_get_incarnation(&f, "incarnation", &ret->incarnation);
    GET_TEXT(&f, "addr", ret->addr);
    wire_get_port(&f, "port", &ret->port);
    return f.code;
}

void wire_put_named(struct json_writer *w, const struct successors *s) {
    json_write_u64(w, "epoch", s->epoch);
    json_write_array_begin(w, "successors");
    for (uint32_t i = 0; i < s->n; i++)
        put_peer(w, NULL, &s->list[i]);
    json_write_array_end(w);
}

int wire_get_named(const struct json *doc, struct successors *ret, struct err *err) {
    struct fields f = FIELDS(doc, err, "kind", "epoch", "successors");
    wire_get_u32(&f, "epoch", 1, UINT32_MAX, &ret->epoch);
    const struct json *list = wire_get_array(&f, "successors", RDZV_SUCCESSORS_MAX);
    if (list == NULL)
        return f.code;
    for (const struct json *v = json_first(list); v != NULL && f.code == 0; v = json_next(v))
        f.code = get_peer(v, &ret->list[ret->n++], err);
    return f.code;
}

void wire_put_members(struct json_writer *w, const struct wire_members *m) {
    const struct handover *e = &m->handover;
    json_write_u64(w, "epoch", e->epoch);
    wire_put_generation(w, "formed", e->formed);
    wire_put_generation(w, "started", e->started);
    json_write_u64(w, "restarts_used", e->restarts_used);
    json_write_u64(w, "losses", e->losses);
    json_write_id(w, "log_nonce", e->log_nonce);
    json_write_u64(w, "n_order", e->n_order);
    json_write_u64(w, "n_members", e->n_members);
    json_write_u64(w, "first", m->first);
    json_write_array_begin(w, "members");
    for (uint32_t i = 0; i < m->n; i++) {
        const struct handover_member *p = &m->list[i];
        json_write_object_begin(w, NULL);
        json_write_hex(w, "incarnation", p->incarnation);
        PUT_TEXT(w, "addr", p->addr);
        json_write_u64(w, "port", p->port);
        PUT_TEXT(w, "host", p->host);
        json_write_bool(w, "started", p->started);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static int get_member(const struct json *v, struct handover_member *ret, struct err *err) {
    struct fields f = FIELDS(v, err, "incarnation", "addr", "port", "host", "started");
    wire_get_incarnation(&f, "incarnation", &ret->incarnation);
    GET_TEXT(&f, "addr", ret->addr);
    wire_get_port(&f, "port", &ret->port);
    GET_LINE(&f, "host", ret->host);
    wire_get_bool(&f, "started", &ret->started);
    return f.code;
}

int wire_get_members(const struct json *doc, struct wire_members *ret, struct err *err) {
    struct fields f = FIELDS(doc, err, "kind", "epoch", "formed", "started", "restarts_used",
                             "losses", "log_nonce", "n_order", "n_members", "first", "members");
    struct handover *e = &ret->handover;
    wire_get_u32(&f, "epoch", 1, UINT32_MAX, &e->epoch);
    wire_get_generation(&f, "formed", &e->formed);
    wire_get_generation(&f, "started", &e->started);
    wire_get_u32(&f, "restarts_used", 0, UINT32_MAX, &e->restarts_used);
    wire_get_u32(&f, "losses", 0, UINT32_MAX, &e->losses);
    wire_get_id(&f, "log_nonce", &e->log_nonce);
    wire_get_u32(&f, "n_members", 0, WIRE_HANDOVER_MAX, &e->n_members);
    wire_get_u32(&f, "n_order", 0, MIN2(e->n_members, (uint32_t)RDZV_NODES_MAX), &e->n_order);
    wire_get_u32(&f, "first", 0, e->n_members, &ret->first);
    const struct json *list = wire_get_array(&f, "members", RDZV_MEMBERS_CHUNK);
    if (list == NULL)
        return f.code;
    uint32_t n = json_count(list);
    if (n > e->n_members - ret->first || (n == 0 && e->n_members != 0))
        return err_set(err, -EINVAL, "\"members\" has %" PRIu32 " from %" PRIu32 " on, of %" PRIu32,
                       n, ret->first, e->n_members);
    for (const struct json *v = json_first(list); v != NULL && f.code == 0; v = json_next(v))
        f.code = get_member(v, &ret->list[ret->n++], err);
    return f.code;
}

void wire_put_redirect(struct json_writer *w, const struct wire_redirect *r) {
    json_write_u64(w, "epoch", r->epoch);
    if (r->leader.incarnation != 0)
        put_peer(w, "leader", &r->leader);
}

int wire_get_redirect(const struct json *doc, struct wire_redirect *ret, struct err *err) {
    struct fields f = FIELDS(doc, err, "kind", "epoch", "leader");
    wire_get_u32(&f, "epoch", 0, UINT32_MAX, &ret->epoch);
    if (f.code != 0 || !json_has(doc, "leader"))
        return f.code;
    const struct json *leader = wire_get_object(&f, "leader");
    return leader == NULL ? f.code : get_peer(leader, &ret->leader, err);
}
