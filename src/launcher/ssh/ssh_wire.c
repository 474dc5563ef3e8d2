#include "launcher/ssh/ssh_wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/frame.h"
#include "base/json/json_table.h"
#include "base/text/parse.h"

static const struct json_limits limits = {
    .max_bytes = STARTER_MESSAGE_MAX, .max_depth = 2, .max_values = 16};

#define SIGNALS_MAX 64
#define GRACE_MAX_NS (UINT64_C(1) << 62) /* a clock's time can be added to it */

static const struct json_field hello_fields[] = {
    {JSON_FIELD(ssh_hello, LINE, "version", version), .min = 1},
    {JSON_FIELD(ssh_hello, LINE, "host", host)},
    {JSON_FIELD(ssh_hello, U32, "pid", pid), .min = 1},
    {JSON_FIELD(ssh_hello, TEXT, "addrs", addrs)},
};
static const struct json_field lead_fields[] = {
    {JSON_FIELD(ssh_lead, LINE, "host", host)},
};
static const struct json_field verdict_fields[] = {
    {JSON_FIELD(starter_verdict, U32, "status", status), .max = UINT8_MAX},
    {JSON_FIELD(starter_verdict, U32, "lost", lost)},
    {JSON_FIELD(starter_verdict, LINE, "text", text)},
};
static const struct json_field exit_fields[] = {
    {JSON_FIELD(ssh_exit, BOOL, "signalled", signalled)},
    {JSON_FIELD(ssh_exit, U32, "code", code), .max = UINT8_MAX},
};
static const struct json_field fail_fields[] = {
    {JSON_FIELD(ssh_fail, LINE, "text", text), .min = 1},
};
static const struct json_field listen_fields[] = {
    {JSON_FIELD(ssh_listen, TEXT, "addr", addr), .min = 1},
    {JSON_FIELD(ssh_listen, U16, "low", low)},
    {JSON_FIELD(ssh_listen, U16, "high", high)},
};
static const struct json_field port_fields[] = {
    {JSON_FIELD(ssh_port, U16, "port", port), .min = 1},
};
static const struct json_field signal_fields[] = {
    {JSON_FIELD(starter_signal, U32, "signal", signo), .min = 1, .max = SIGNALS_MAX},
};

static const struct json_field expect_fields[] = {
    {JSON_FIELD(starter_expect, U32, "nodes", nodes), .min = 1},
};

struct row {
    enum ssh_kind kind;
    bool from_node;
    bool is_raw; /* else the table, which may be empty */
    struct json_table table;
};

static const struct row rows[] = {
    {SSH_HELLO, true, false, JSON_TABLE(ssh_hello, hello_fields)},
    {SSH_OUT, true, true, {0}},
    {SSH_ERR, true, true, {0}},
    {SSH_LEAD, true, false, JSON_TABLE(ssh_lead, lead_fields)},
    {SSH_VERDICT, true, false, JSON_TABLE(starter_verdict, verdict_fields)},
    {SSH_EXIT, true, false, JSON_TABLE(ssh_exit, exit_fields)},
    {SSH_FAIL, true, false, JSON_TABLE(ssh_fail, fail_fields)},
    {SSH_PORT, true, false, JSON_TABLE(ssh_port, port_fields)},
    {SSH_LISTEN, false, false, JSON_TABLE(ssh_listen, listen_fields)},
    {SSH_BOOT_PART, false, true, {0}},
    {SSH_BOOT, false, true, {0}},
    {SSH_ACK, false, false, {0}},
    {SSH_STOP, false, false, JSON_TABLE(starter_signal, signal_fields)},
    {SSH_SIGNAL, false, false, JSON_TABLE(starter_signal, signal_fields)},
    {SSH_EXPECT, false, false, JSON_TABLE(starter_expect, expect_fields)},
    {SSH_PING, false, false, {0}},
    {SSH_DROP_OUT, false, false, {0}},
    {SSH_DROP_ERR, false, false, {0}},
};

#define BODY offsetof(struct ssh_message, body)

static const struct row *row_of(enum ssh_kind kind) {
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (rows[i].kind == kind)
            return &rows[i];
    return NULL;
}

bool ssh_is_from_node(enum ssh_kind kind) {
    const struct row *row = row_of(kind);
    return row != NULL && row->from_node;
}

/* ---- messages ---- */

static void add_frame(enum ssh_kind kind, const void *bytes, size_t len, struct strbuf *to) {
    uint8_t head[FRAME_HEADER_BYTES];
    assert(len <= SSH_DATA_MAX);
    frame_header(len + 1, head);
    strbuf_add_bytes(to, head, sizeof head);
    strbuf_add_char(to, (char)kind);
    strbuf_add_bytes(to, bytes, len);
}

void ssh_add(const struct ssh_message *m, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const struct row *row = row_of(m->kind);
    assert(row != NULL);
    if (row->is_raw) {
        add_frame(m->kind, m->data.bytes, m->data.len, to);
        return;
    }
    struct json_writer w = json_writer_of(&text);
    json_write_object_begin(&w, NULL);
    json_table_write(&w, &row->table, (const char *)m + BODY);
    json_write_object_end(&w);
    assert(text.len <= STARTER_MESSAGE_MAX);
    add_frame(m->kind, strbuf_text(&text), text.len, to);
}

static int read_payload(const uint8_t *payload, size_t len, struct ssh_message *ret,
                        struct err *err) {
    const struct row *row = row_of((enum ssh_kind)payload[0]);
    const uint8_t *body = payload + 1;
    if (row == NULL)
        return err_set(err, -EINVAL, "there is no kind %u of frames", payload[0]);
    memset(ret, 0, sizeof *ret);
    ret->kind = row->kind;
    if (row->is_raw) {
        ret->data.bytes = body;
        ret->data.len = len - 1;
        return 0;
    }
    _cleanup_(json_freep) struct json *doc = NULL;
    int r = json_parse((const char *)body, len - 1, &limits, &doc, err);
    if (r < 0)
        return r == -E2BIG ? -EINVAL : r;
    return json_table_read(doc, &row->table, (char *)ret + BODY, err);
}

int ssh_take(const uint8_t *data, size_t len, struct ssh_message *ret, size_t *ret_bytes,
             struct err *err) {
    size_t bytes;
    int r = frame_size(data, len, SSH_PAYLOAD_MAX, &bytes);
    if (r < 0)
        return err_set(err, r, "a frame has a length that none of ours has");
    if (r == FRAME_E_MORE || len < bytes)
        return FRAME_E_MORE;
    r = read_payload(data + FRAME_HEADER_BYTES, bytes - FRAME_HEADER_BYTES, ret, err);
    if (r == 0)
        *ret_bytes = bytes;
    return r;
}

/* ---- the beginning ---- */

int ssh_find_begin(const uint8_t *data, size_t len, size_t *ret_bytes) {
    static const char any[] = "\nMUSTER-SSH ";
    const size_t n_any = sizeof any - 1, n_begin = sizeof SSH_BEGIN - 1;
    const uint8_t *at = memmem(data, len, any, n_any);
    if (at == NULL || (size_t)(at - data) > SSH_NOISE_MAX)
        return len > SSH_NOISE_MAX + n_any ? -EMSGSIZE : FRAME_E_MORE;
    size_t left = len - (size_t)(at - data);
    if (memcmp(at, SSH_BEGIN, MIN2(left, n_begin)) != 0)
        return -EPROTONOSUPPORT;
    if (left < n_begin)
        return FRAME_E_MORE;
    *ret_bytes = (size_t)(at - data) + n_begin;
    return 0;
}

/* ---- BOOT ---- */

/* The first byte of each text says what it is. */
enum {
    TEXT_CWD = 'c',
    TEXT_GRACE = 'g',
    TEXT_JOB = 'j',
    TEXT_WORD = 'a',
    TEXT_VARIABLE = 'e',
};

void ssh_boot_fini(struct ssh_boot *boot) {
    free(boot->cwd);
    if (boot->job != NULL)
        explicit_bzero(boot->job, strlen(boot->job)); /* it can have a password */
    free(boot->job);
    for (size_t i = 0; i < boot->n_args; i++)
        free(boot->args[i]);
    free(boot->args);
    envlist_fini(&boot->env);
    *boot = (struct ssh_boot){0};
}

void ssh_boot_word(struct ssh_boot *boot, const char *word) {
    /* room for twice as many whenever their number is a power of two */
    if ((boot->n_args & (boot->n_args - 1)) == 0)
        boot->args = xrealloc(boot->args, (2 * boot->n_args + 2) * sizeof *boot->args);
    boot->args[boot->n_args++] = xstrdup(word);
    boot->args[boot->n_args] = NULL;
}

static void add_text(struct strbuf *to, char what, const char *text) {
    strbuf_add_char(to, what);
    strbuf_add_bytes(to, text, strlen(text) + 1);
}

int ssh_boot_add(const struct ssh_boot *boot, struct strbuf *to, struct err *err) {
    _cleanup_(strbuf_forget) struct strbuf all = {.is_secret = true};
    char *const *env = envlist_items(&boot->env);
    char grace[32];
    (void)snprintf(grace, sizeof grace, "%" PRIu64, boot->grace_ns);
    add_text(&all, TEXT_CWD, boot->cwd);
    add_text(&all, TEXT_GRACE, grace);
    if (boot->job != NULL)
        add_text(&all, TEXT_JOB, boot->job);
    for (size_t i = 0; i < boot->n_args; i++)
        add_text(&all, TEXT_WORD, boot->args[i]);
    for (size_t i = 0; env[i] != NULL; i++)
        add_text(&all, TEXT_VARIABLE, env[i]);
    if (all.len > SSH_BOOT_MAX)
        return err_set(err, -E2BIG,
                       "the command line and the environment have %zu bytes, and at most %zu can "
                       "be sent to other hosts; send fewer variables: --export",
                       all.len, SSH_BOOT_MAX);
    const char *text = strbuf_text(&all);
    size_t left = all.len;
    for (; left > SSH_DATA_MAX; left -= SSH_DATA_MAX, text += SSH_DATA_MAX)
        add_frame(SSH_BOOT_PART, text, SSH_DATA_MAX, to);
    add_frame(SSH_BOOT, text, left, to);
    return 0;
}

/* An environment without a name twice takes no search, unlike envlist_set(). */
static int read_text(char what, const char *text, struct ssh_boot *boot, struct envlist *env,
                     struct err *err) {
    switch (what) {
    case TEXT_CWD:
        if (text[0] != '/' || boot->cwd != NULL)
            return err_set(err, -EINVAL, "BOOT must have one folder, an absolute one");
        boot->cwd = xstrdup(text);
        return 0;
    case TEXT_GRACE:
        return parse_u64(text, &boot->grace_ns) == 0 && boot->grace_ns < GRACE_MAX_NS
                   ? 0
                   : err_set(err, -EINVAL, "BOOT has a grace that is no time");
    case TEXT_JOB:
        if (boot->job != NULL)
            return err_set(err, -EINVAL, "BOOT must have one job");
        boot->job = xstrdup(text);
        return 0;
    case TEXT_WORD: ssh_boot_word(boot, text); return 0;
    case TEXT_VARIABLE:
        if (text[0] == '=' || strchr(text, '=') == NULL)
            return err_set(err, -EINVAL, "BOOT has a variable without a name, or without \"=\"");
        if (env->n + 1 >= env->cap) {
            env->cap = env->cap == 0 ? 64 : 2 * env->cap;
            env->items = xrealloc(env->items, env->cap * sizeof *env->items);
        }
        env->items[env->n++] = xstrdup(text);
        env->items[env->n] = NULL;
        return 0;
    default: return err_set(err, -EINVAL, "BOOT has a text of an unknown kind");
    }
}

static int read_boot(const char *text, size_t len, struct ssh_boot *ret, struct err *err) {
    if (len == 0 || text[len - 1] != '\0')
        return err_set(err, -EINVAL, "BOOT has a text without its end");
    int r = 0;
    for (size_t n; r == 0 && len > 0; text += n, len -= n) {
        n = strlen(text) + 1;
        r = n < 2 ? err_set(err, -EINVAL, "BOOT has an empty text")
                  : read_text(text[0], text + 1, ret, &ret->env, err);
    }
    if (r == 0 && ret->cwd == NULL)
        r = err_set(err, -EINVAL, "BOOT must have one folder, an absolute one");
    return r;
}

int ssh_boot_take(struct strbuf *parts, const struct ssh_message *m, struct ssh_boot *ret,
                  struct err *err) {
    assert(m->kind == SSH_BOOT_PART || m->kind == SSH_BOOT);
    if (m->data.len > SSH_BOOT_MAX - parts->len)
        return err_set(err, -EMSGSIZE, "BOOT has more than %zu bytes", SSH_BOOT_MAX);
    strbuf_add_bytes(parts, m->data.bytes, m->data.len);
    if (m->kind == SSH_BOOT_PART)
        return FRAME_E_MORE;
    struct ssh_boot boot = {0};
    int r = read_boot(strbuf_text(parts), parts->len, &boot, err);
    if (r == 0)
        *ret = boot;
    else
        ssh_boot_fini(&boot);
    return r;
}
