#include "rendezvous/arbiter/arbiter_record.h"

#include <errno.h>
#include <inttypes.h>

#include "base/json/json_table.h"
#include "base/text/utf8.h"

#define RECORD_VERSION 1

static int check_kind(const void *of, struct err *err) {
    const struct arbiter_record *r = of;
    return r->vacant + r->idle + r->closed <= 1
               ? 0
               : err_set(err, -EINVAL, "it has two of \"outcome\", \"vacant\" and \"idle\"");
}

#define BIT(outcome) (UINT32_C(1) << (outcome))
static const struct json_field fields[] = {
    {JSON_FIELD(arbiter_record, U32, "epoch", epoch), .min = 1},
    {JSON_FIELD(arbiter_record, HEX, "leader", leader.incarnation)},
    {JSON_FIELD(arbiter_record, TEXT, "addr", leader.addr)},
    {JSON_FIELD(arbiter_record, U16, "port", leader.port)},
    {JSON_NAMED(arbiter_record, "outcome", outcome, outcome_names), .min = OUTCOME_SUCCESS,
     JSON_IF_TRUE(arbiter_record, closed)},
    {JSON_FIELD(arbiter_record, TEXT, "reason", reason),
     JSON_OF_KINDS(arbiter_record, outcome, BIT(OUTCOME_SUCCESS) | BIT(OUTCOME_FAILED))},
    {JSON_FIELD(arbiter_record, BOOL, "vacant", vacant), JSON_IF_TRUE(arbiter_record, vacant)},
    {JSON_FIELD(arbiter_record, BOOL, "idle", idle), JSON_IF_TRUE(arbiter_record, idle)},
};
static const struct json_table table = {JSON_ROWS(arbiter_record, fields), .open = true,
                                        .check = check_kind};

static void write_one(struct json_writer *w, const char *key, const struct arbiter_record *record,
                      const struct arbiter_record *mark) {
    assert(record->closed == (record->outcome != OUTCOME_NONE));
    json_write_object_begin(w, key);
    json_write_u64(w, "version", RECORD_VERSION);
    json_table_write(w, &table, record);
    if (mark != NULL)
        write_one(w, "superseded", mark, NULL);
    json_write_object_end(w);
}

void arbiter_record_write(const struct arbiter_record *record, const struct arbiter_record *mark,
                          struct strbuf *out) {
    struct json_writer w = json_writer_of(out);
    write_one(&w, NULL, record, mark);
}

static int read_one(const struct json *obj, struct arbiter_record *ret, struct err *err) {
    uint32_t version;
    int r = json_get_u32(obj, "version", UINT32_MAX, &version, err);
    if (r == 0 && version != RECORD_VERSION)
        r = err_set(err, -EPROTO, "it is of version %" PRIu32 ", this program knows version %d",
                    version, RECORD_VERSION);
    return r < 0 ? r : json_table_read(obj, &table, ret, err);
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
    const struct json *by = json_member(doc, "superseded");
    if (by != NULL) {
        r = json_as_object(by, "superseded", err);
        if (r == 0)
            r = read_one(by, &mark, err);
        if (r == 0 && (ret_mark == NULL || mark.epoch <= record.epoch))
            r = err_set(err, -EINVAL, "\"superseded\" has \"epoch\": %" PRIu32, mark.epoch);
        if (r < 0)
            return r;
    }
    *ret = record;
    if (ret_mark != NULL)
        *ret_mark = mark;
    return 0;
}

bool arbiter_record_is_of(const struct arbiter_record *record, uint32_t epoch,
                          uint64_t incarnation) {
    return epoch != 0 && !record->closed && !record->vacant && record->epoch == epoch &&
           record->leader.incarnation == incarnation;
}

int arbiter_decide(const struct arbiter_request *q, const struct arbiter_record *latest,
                   enum arbiter_result *ret, struct arbiter_record *ret_write, struct err *err) {
    bool own = arbiter_record_is_of(latest, q->epoch, q->leader.incarnation);
    struct arbiter_record mine = {.epoch = own ? q->epoch + 1 : q->epoch, .leader = q->leader};
    bool done = false, lost = false;
    if (q->epoch == 0 || q->epoch == UINT32_MAX || q->leader.incarnation == 0)
        return err_set(err, -EINVAL, "a claim without a leader, or with \"epoch\": %" PRIu32,
                       q->epoch);
    switch (q->kind) {
    case ARBITER_CLAIM:
        done = own;
        lost = latest->closed || latest->epoch >= q->epoch;
        mine.idle = q->idle;
        break;
    case ARBITER_CLOSE:
        if (q->outcome != OUTCOME_SUCCESS && q->outcome != OUTCOME_FAILED)
            return err_set(err, -EINVAL, "a close without an outcome");
        done = latest->closed && latest->outcome == q->outcome;
        lost = latest->closed || (latest->epoch >= q->epoch && !own);
        mine.closed = true;
        mine.outcome = q->outcome;
        /* in the form in which it will be read */
        utf8_copy(mine.reason, sizeof mine.reason, q->reason);
        break;
    case ARBITER_VACATE:
        done = latest->vacant && latest->epoch == q->epoch + 1 &&
               latest->leader.incarnation == q->leader.incarnation;
        lost = !own;
        mine.vacant = true;
        break;
    case ARBITER_READ:
    case ARBITER_BEAT:
    case ARBITER_KIND_COUNT: assert_not_reached();
    }
    *ret = done ? ARBITER_OK : ARBITER_LOST;
    if (done || lost)
        return 0;
    *ret_write = mine;
    return ARBITER_E_WRITE;
}
