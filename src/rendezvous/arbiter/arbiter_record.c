#include "rendezvous/arbiter/arbiter_record.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/json/json.h"
#include "base/text/utf8.h"

#define RECORD_VERSION 1

/* As it will be read: a byte that is not UTF-8 grows, and may then not fit any more. */
static void write_text(struct json_writer *w, const char *key, const char *text, size_t size) {
    char clean[RDZV_REASON_MAX];
    assert(size <= sizeof clean);
    utf8_copy(clean, size, text);
    json_write_string(w, key, clean);
}

static void write_one(struct json_writer *w, const char *key, const struct arbiter_record *record,
                      const struct arbiter_record *mark) {
    json_write_object_begin(w, key);
    json_write_u64(w, "version", RECORD_VERSION);
    json_write_u64(w, "epoch", record->epoch);
    json_write_hex(w, "leader", record->leader.incarnation);
    write_text(w, "addr", record->leader.addr, sizeof record->leader.addr);
    json_write_u64(w, "port", record->leader.port);
    if (record->closed) {
        assert(record->outcome == OUTCOME_SUCCESS || record->outcome == OUTCOME_FAILED);
        json_write_string(w, "outcome", outcome_names[record->outcome]);
        write_text(w, "reason", record->reason, sizeof record->reason);
    }
    if (record->vacant)
        json_write_bool(w, "vacant", true);
    if (record->idle)
        json_write_bool(w, "idle", true);
    if (mark != NULL)
        write_one(w, "superseded", mark, NULL);
    json_write_object_end(w);
}

void arbiter_record_write(const struct arbiter_record *record, const struct arbiter_record *mark,
                          struct strbuf *out) {
    struct json_writer w = json_writer_of(out);
    write_one(&w, NULL, record, mark);
}

static int read_outcome(const struct json *obj, struct arbiter_record *ret, struct err *err) {
    const char *text;
    int r = json_get_string(obj, "outcome", RDZV_HOST_MAX, &text, err);
    if (r < 0)
        return r;
    for (enum outcome o = OUTCOME_SUCCESS; o < OUTCOME_COUNT; o++)
        if (strcmp(text, outcome_names[o]) == 0)
            ret->outcome = o;
    if (ret->outcome == OUTCOME_NONE)
        return err_set(err, -EINVAL, "\"outcome\" is '%.64s', not 'success' or 'failed'", text);
    ret->closed = true;
    return json_get_text(obj, "reason", ret->reason, sizeof ret->reason, err);
}

/* Which kind it is: no record is of two. */
static int read_kind(const struct json *obj, struct arbiter_record *ret, struct err *err) {
    int r = json_has(obj, "vacant") ? json_get_bool(obj, "vacant", &ret->vacant, err) : 0;
    if (r == 0 && json_has(obj, "idle"))
        r = json_get_bool(obj, "idle", &ret->idle, err);
    if (r == 0 && json_has(obj, "outcome"))
        r = read_outcome(obj, ret, err);
    if (r == 0 && ret->vacant + ret->idle + ret->closed > 1)
        r = err_set(err, -EINVAL, "it has two of \"outcome\", \"vacant\" and \"idle\"");
    return r;
}

static int read_one(const struct json *obj, struct arbiter_record *ret, struct err *err) {
    uint32_t version, port;
    int r = json_get_u32(obj, "version", UINT32_MAX, &version, err);
    if (r == 0 && version != RECORD_VERSION)
        r = err_set(err, -EPROTO, "it is of version %" PRIu32 ", this program knows version %d",
                    version, RECORD_VERSION);
    if (r == 0)
        r = json_get_u32(obj, "epoch", UINT32_MAX, &ret->epoch, err);
    if (r == 0 && ret->epoch == 0)
        r = err_set(err, -EINVAL, "\"epoch\" is 0");
    if (r == 0)
        r = json_get_hex(obj, "leader", &ret->leader.incarnation, err);
    if (r == 0)
        r = json_get_text(obj, "addr", ret->leader.addr, sizeof ret->leader.addr, err);
    if (r == 0)
        r = json_get_u32(obj, "port", UINT16_MAX, &port, err);
    if (r < 0)
        return r;
    ret->leader.port = (uint16_t)port;
    return read_kind(obj, ret, err);
}

int arbiter_record_read(const char *text, size_t len, struct arbiter_record *ret,
                        struct arbiter_record *ret_mark, struct err *err) {
    static const struct json_limits limits = {
        .max_bytes = ARBITER_RECORD_TEXT_MAX, .max_depth = 2, .max_values = 64};
    _cleanup_(json_freep) struct json *doc = NULL;
    struct arbiter_record record = {0}, mark = {0};
    int r = json_parse(text, len, &limits, &doc, err);
    if (r == 0)
        r = read_one(doc, &record, err);
    if (r < 0)
        return r;
    if (json_has(doc, "superseded")) {
        const struct json *by;
        r = json_get_object(doc, "superseded", &by, err);
        if (r == 0)
            r = read_one(by, &mark, err);
        if (r == 0 && (ret_mark == NULL || mark.epoch <= record.epoch))
            r = err_set(err, -EINVAL, "\"superseded\" names epoch %" PRIu32, mark.epoch);
        if (r < 0)
            return r;
    }
    *ret = record;
    if (ret_mark != NULL)
        *ret_mark = mark;
    return 0;
}
