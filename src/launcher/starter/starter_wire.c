#include "launcher/starter/starter_wire.h"

#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "base/json/json_table.h"

static const struct json_limits limits = {
    .max_bytes = STARTER_MESSAGE_MAX, .max_depth = 2, .max_values = 16};

#define SIGNALS_MAX 64

static int check_lead(const void *of, struct err *err) {
    const struct starter_lead *lead = of;
    if (lead->version != STARTER_WIRE_VERSION)
        return err_set(err, -EINVAL, "it speaks version %u, and this is %d", lead->version,
                       STARTER_WIRE_VERSION);
    if (lead->token[0] != '\0' && strlen(lead->token) != STARTER_TOKEN_CHARS)
        return err_set(err, -EINVAL, "\"token\" must have %d characters", STARTER_TOKEN_CHARS);
    return 0;
}

static const struct json_field lead_fields[] = {
    {JSON_FIELD(starter_lead, U32, "version", version), .min = 1},
    {JSON_FIELD(starter_lead, TEXT, "token", token)},
    {JSON_FIELD(starter_lead, LINE, "host", host)},
    {JSON_FIELD(starter_lead, LINE, "step", step)},
};
static const struct json_field verdict_fields[] = {
    {JSON_FIELD(starter_verdict, U32, "status", status), .max = UINT8_MAX},
    {JSON_FIELD(starter_verdict, U32, "lost", lost)},
    {JSON_FIELD(starter_verdict, LINE, "text", text)},
    {JSON_FIELD(starter_verdict, BOOL, "safe", safe)},
    {JSON_FIELD(starter_verdict, LINE, "lost_nodes", lost_nodes)},
};
static const struct json_field stop_fields[] = {
    {JSON_FIELD(starter_stop, U32, "signal", signo), .min = 1, .max = SIGNALS_MAX},
};

static const struct json_field expect_fields[] = {
    {JSON_FIELD(starter_expect, U32, "nodes", nodes), .min = 1},
};

static const struct {
    const char *name;
    struct json_table table;
} rows[STARTER_MESSAGE_KIND_COUNT] = {
    [STARTER_LEAD] = {"LEAD",
                      {JSON_ROWS(starter_lead, lead_fields), .beside = "kind",
                       .check = check_lead}},
    [STARTER_VERDICT] = {"VERDICT", {JSON_ROWS(starter_verdict, verdict_fields), .beside = "kind"}},
    [STARTER_ACK] = {"ACK", {.beside = "kind"}},
    [STARTER_STOP] = {"STOP", {JSON_ROWS(starter_stop, stop_fields), .beside = "kind"}},
    [STARTER_SAFE] = {"SAFE", {.beside = "kind"}},
    [STARTER_EXPECT] = {"EXPECT", {JSON_ROWS(starter_expect, expect_fields), .beside = "kind"}},
};

#define BODY offsetof(struct starter_message, body)

void starter_encode(const struct starter_message *m, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct json_writer w = json_writer_of(&text);
    uint8_t head[FRAME_HEADER_BYTES];
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "kind", rows[m->kind].name);
    json_table_write(&w, &rows[m->kind].table, (const char *)m + BODY);
    json_write_object_end(&w);
    assert(text.len <= STARTER_MESSAGE_MAX);
    frame_header(text.len, head);
    strbuf_clear(ret);
    strbuf_add_bytes(ret, head, sizeof head);
    strbuf_add_bytes(ret, strbuf_text(&text), text.len);
}

static const char *name_of(unsigned kind) { return rows[kind].name; }

int starter_decode(const char *payload, size_t len, struct starter_message *ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    int r = json_parse(payload, len, &limits, &doc, err);
    if (r < 0)
        return r == -E2BIG ? -EINVAL : r;
    memset(ret, 0, sizeof *ret);
    unsigned kind = 0;
    r = json_get_name(doc, "kind", name_of, STARTER_MESSAGE_KIND_COUNT, &kind, err);
    ret->kind = (enum starter_message_kind)kind;
    return r < 0 ? r : json_table_read(doc, &rows[ret->kind].table, (char *)ret + BODY, err);
}

int starter_take(const uint8_t *data, size_t len, struct starter_message *ret, size_t *ret_bytes,
                 struct err *err) {
    size_t bytes;
    int r = frame_size(data, len, STARTER_MESSAGE_MAX, &bytes);
    if (r < 0)
        return err_set(err, r, "a frame has a length that none of ours has");
    if (r == FRAME_E_MORE || len < bytes)
        return FRAME_E_MORE;
    r = starter_decode((const char *)data + FRAME_HEADER_BYTES, bytes - FRAME_HEADER_BYTES, ret,
                       err);
    if (r < 0)
        return r;
    *ret_bytes = bytes;
    return 0;
}

bool starter_token_equal(const char *a, const char *b) {
    unsigned differ = 0;
    for (size_t i = 0; i < STARTER_TOKEN_CHARS; i++)
        differ |= (unsigned char)a[i] ^ (unsigned char)b[i];
    return differ == 0;
}
