#include "rendezvous/protocol/wire.h"

#include <errno.h>
#include <string.h>

#include "rendezvous/protocol/wire_priv.h"

/* Depth: message > report > failure, message > form > neighbours > each. NODES has the most
 * values. */
static const struct json_limits limits = {
    .max_bytes = WIRE_MESSAGE_MAX, .max_depth = 4, .max_values = 1024};

const char *wire_kind_name(enum wire_kind kind) { return wire_rows[kind].name; }

const struct json_table *wire_table(enum wire_kind kind) { return &wire_rows[kind].table; }

#define BODY offsetof(struct wire_message, body)

bool wire_is_for_leader(enum wire_kind kind) { return wire_rows[kind].for_leader; }

static uint32_t epoch_in(const struct json_table *t, const void *of) {
    uint32_t epoch = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->fields[i].kind == JSON_FIELD_U32 && strcmp(t->fields[i].key, "epoch") == 0)
            memcpy(&epoch, (const char *)of + t->fields[i].offset, sizeof epoch);
    return epoch;
}

uint32_t wire_epoch_of(const struct wire_message *m) {
    return m->kind == WIRE_REPORT ? m->report.epoch
                                  : epoch_in(wire_table(m->kind), (const char *)m + BODY);
}

void wire_small_set(struct wire_small *s, enum wire_kind kind, const void *body) {
    assert(wire_table(kind)->size <= sizeof s->body);
    s->kind = kind;
    memcpy(s->body, body, wire_table(kind)->size);
}

void wire_small_message(const struct wire_small *s, struct wire_message *ret) {
    ret->kind = s->kind;
    memcpy((char *)ret + BODY, s->body, wire_table(s->kind)->size);
}

void wire_encode(const struct wire_message *m, struct strbuf *ret) {
    strbuf_clear(ret);
    struct json_writer w = json_writer_of(ret);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "kind", wire_rows[m->kind].name);
    json_table_write(&w, wire_table(m->kind), (const char *)m + BODY);
    json_write_object_end(&w);
}

static const char *name_of(unsigned kind) { return wire_rows[kind].name; }

/* Where the version is, of the kinds that have one; else 0. */
static size_t version_offset(enum wire_kind kind) {
    if (kind == WIRE_CALL)
        return offsetof(struct wire_message, call.version);
    if (kind == WIRE_GREETING)
        return offsetof(struct wire_message, greeting.version);
    if (kind == WIRE_HELLO)
        return offsetof(struct wire_message, hello.version);
    if (kind == WIRE_JOIN)
        return offsetof(struct wire_message, join.version);
    return kind == WIRE_COMMAND ? offsetof(struct wire_message, command.version) : 0;
}

uint32_t wire_version_of(const struct wire_message *m) {
    uint32_t version = WIRE_VERSION;
    size_t at = version_offset(m->kind);
    if (at != 0)
        memcpy(&version, (const char *)m + at, sizeof version);
    return version;
}

/* The field that these kinds have in every version, so that both sides can report that the versions
 * differ. */
static bool other_version(const struct json *doc, struct wire_message *ret) {
    uint32_t version;
    size_t at = version_offset(ret->kind);
    if (at == 0 || json_get_u32(doc, "version", UINT32_MAX, &version, NULL) != 0 ||
        version == WIRE_VERSION)
        return false;
    memcpy((char *)ret + at, &version, sizeof version);
    return true;
}

int wire_decode(const char *text, size_t len, struct wire_message *ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    int r = json_parse(text, len, &limits, &doc, err);
    if (r < 0)
        return r == -E2BIG ? -EINVAL : r;
    memset(ret, 0, sizeof *ret);
    unsigned kind = 0;
    r = json_get_name(doc, "kind", name_of, WIRE_KIND_COUNT, &kind, err);
    if (r < 0)
        return r;
    ret->kind = (enum wire_kind)kind;
    if (other_version(doc, ret))
        return WIRE_E_VERSION;
    return json_table_read(doc, wire_table(ret->kind), (char *)ret + BODY, err);
}
