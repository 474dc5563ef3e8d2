#include "launcher/starter/starter.h"

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
        return err_set(err, -EINVAL, "version %u, but this is version %d", lead->version,
                       STARTER_WIRE_VERSION);
    return lead->token[0] == '\0' || strlen(lead->token) == STARTER_TOKEN_CHARS
               ? 0
               : err_set(err, -EINVAL, "the token must have %d characters", STARTER_TOKEN_CHARS);
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
static const struct json_field signal_fields[] = {
    {JSON_FIELD(starter_signal, U32, "signal", signo), .min = 1, .max = SIGNALS_MAX},
};
static const struct json_field expect_fields[] = {
    {JSON_FIELD(starter_expect, U32, "nodes", nodes), .min = 1},
};
static const struct json_field hello_fields[] = {
    {JSON_FIELD(starter_hello, LINE, "version", version), .min = 1},
    {JSON_FIELD(starter_hello, LINE, "host", host)},
    {JSON_FIELD(starter_hello, U32, "pid", pid), .min = 1},
    {JSON_FIELD(starter_hello, TEXT, "addrs", addrs)},
};
static const struct json_field exit_fields[] = {
    {JSON_FIELD(starter_exit, BOOL, "signalled", signalled)},
    {JSON_FIELD(starter_exit, U32, "code", code), .max = UINT8_MAX},
};
static const struct json_field fail_fields[] = {
    {JSON_FIELD(starter_fail, LINE, "text", text), .min = 1},
};

static const struct json_field listen_fields[] = {
    {JSON_FIELD(starter_listen, TEXT, "addr", addr), .min = 1},
    {JSON_FIELD(starter_listen, U16, "low", low)},
    {JSON_FIELD(starter_listen, U16, "high", high)},
};
static const struct json_field port_fields[] = {
    {JSON_FIELD(starter_port, U16, "port", port), .min = 1},
};

#define FROM_NODE (STARTER_FROM_AGENT | STARTER_FROM_RELAY)

struct row {
    enum starter_kind kind;
    int from; /* bits of enum starter_sender */
    bool is_raw;
    struct json_table table;
};

static const struct row rows[] = {
    {STARTER_LEAD, FROM_NODE, false, {JSON_ROWS(starter_lead, lead_fields), .check = check_lead}},
    {STARTER_SAFE, FROM_NODE, false, {0}},
    {STARTER_VERDICT, FROM_NODE, false, JSON_TABLE(starter_verdict, verdict_fields)},
    {STARTER_HELLO, STARTER_FROM_RELAY, false, JSON_TABLE(starter_hello, hello_fields)},
    {STARTER_OUT, STARTER_FROM_RELAY, true, {0}},
    {STARTER_ERR, STARTER_FROM_RELAY, true, {0}},
    {STARTER_EXIT, STARTER_FROM_RELAY, false, JSON_TABLE(starter_exit, exit_fields)},
    {STARTER_FAIL, STARTER_FROM_RELAY, false, JSON_TABLE(starter_fail, fail_fields)},
    {STARTER_PORT, STARTER_FROM_RELAY, false, JSON_TABLE(starter_port, port_fields)},
    {STARTER_LISTEN, STARTER_FROM_STARTER, false, JSON_TABLE(starter_listen, listen_fields)},
    {STARTER_ACK, STARTER_FROM_STARTER, false, {0}},
    {STARTER_STOP, STARTER_FROM_STARTER, false, JSON_TABLE(starter_signal, signal_fields)},
    {STARTER_EXPECT, STARTER_FROM_STARTER, false, JSON_TABLE(starter_expect, expect_fields)},
    {STARTER_BOOT_PART, STARTER_FROM_STARTER, true, {0}},
    {STARTER_BOOT, STARTER_FROM_STARTER, true, {0}},
    {STARTER_SIGNAL, STARTER_FROM_STARTER, false, JSON_TABLE(starter_signal, signal_fields)},
    {STARTER_PING, STARTER_FROM_STARTER, false, {0}},
    {STARTER_SUSPENDED, STARTER_FROM_STARTER, false, {0}},
    {STARTER_DROP_OUT, STARTER_FROM_STARTER, false, {0}},
    {STARTER_DROP_ERR, STARTER_FROM_STARTER, false, {0}},
};

#define BODY offsetof(struct starter_message, body)

/* NULL: no such kind. */
static const struct row *row_of(unsigned kind) {
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (rows[i].kind == kind)
            return &rows[i];
    return NULL;
}

void starter_add_data(enum starter_kind kind, const void *bytes, size_t len, struct strbuf *to) {
    uint8_t head[FRAME_HEADER_BYTES];
    assert(len <= STARTER_DATA_MAX);
    frame_header(len + 1, head);
    strbuf_add_bytes(to, head, sizeof head);
    strbuf_add_char(to, (char)kind);
    strbuf_add_bytes(to, bytes, len);
}

void starter_add(const struct starter_message *m, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const struct row *row = row_of(m->kind);
    assert(row != NULL);
    if (row->is_raw) {
        starter_add_data(m->kind, m->data.bytes, m->data.len, to);
        return;
    }
    json_table_text(&row->table, (const char *)m + BODY, &text);
    assert(text.len <= STARTER_MESSAGE_MAX);
    starter_add_data(m->kind, strbuf_text(&text), text.len, to);
}

static int read_body(const struct row *row, const uint8_t *body, size_t len,
                     struct starter_message *ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    memset(ret, 0, sizeof *ret);
    ret->kind = row->kind;
    if (row->is_raw) {
        ret->data.bytes = body;
        ret->data.len = len;
        return 0;
    }
    int r = json_parse((const char *)body, len, &limits, &doc, err);
    if (r < 0)
        return r == -E2BIG ? -EINVAL : r;
    return json_table_read(doc, &row->table, (char *)ret + BODY, err);
}

int starter_take(const uint8_t *data, size_t len, enum starter_sender from,
                 struct starter_message *ret, size_t *ret_bytes, struct err *err) {
    size_t bytes;
    int r = frame_size(data, len, STARTER_DATA_MAX + 1, &bytes);
    if (r < 0)
        return err_set(err, r, "no frame is that long");
    if (r == FRAME_E_MORE || len == FRAME_HEADER_BYTES)
        return FRAME_E_MORE;
    const uint8_t *payload = data + FRAME_HEADER_BYTES;
    const struct row *row = row_of(payload[0]);
    if (row == NULL || (row->from & (int)from) == 0)
        return err_set(err, -EINVAL, "unexpected kind of frame: %u", payload[0]);
    if (!row->is_raw && bytes > STARTER_FRAME_MAX)
        return err_set(err, -EMSGSIZE, "no message is that long");
    if (len < bytes)
        return FRAME_E_MORE;
    r = read_body(row, payload + 1, bytes - FRAME_HEADER_BYTES - 1, ret, err);
    if (r == 0)
        *ret_bytes = bytes;
    return r;
}

bool starter_token_equal(const char a[STARTER_TOKEN_CHARS + 1],
                         const char b[STARTER_TOKEN_CHARS + 1]) {
    unsigned differ = 0;
    for (size_t i = 0; i < STARTER_TOKEN_CHARS; i++)
        differ |= (unsigned char)a[i] ^ (unsigned char)b[i];
    return differ == 0 && a[0] != '\0';
}
