#include "rendezvous/arbiter/etcd/arbiter_etcd.h"

#include <inttypes.h>

#include "base/prng.h"
#include "base/text/base64.h"
#include "rendezvous/arbiter/arbiter_record.h"
#include "rig/unit.h"

#define BASE "/m/j/"

static struct arbiter_request request_of(enum arbiter_kind kind, uint32_t epoch, uint64_t who) {
    struct arbiter_request q = {.kind = kind, .epoch = epoch, .leader = {.incarnation = who, .port = 4711}};
    (void)strcpy(q.leader.addr, "10.0.0.1");
    if (kind == ARBITER_CLOSE) {
        q.outcome = OUTCOME_SUCCESS;
        (void)strcpy(q.reason, "all workers succeeded");
    }
    return q;
}

static void expect_body(struct arbiter_etcd_step *s, const char *expected) {
    _cleanup_(strbuf_fini) struct strbuf body = {0};
    arbiter_etcd_question(s, &body);
    cr_expect_str_eq(strbuf_text(&body), expected);
}

/* base64 of /m/j/latest, /m/j/beat, /m/j/epoch-3 */
#define LATEST "L20vai9sYXRlc3Q="
#define BEAT "L20vai9iZWF0"
#define EPOCH_3 "L20vai9lcG9jaC0z"
#define RANGES "{\"requestRange\":{\"key\":\"" LATEST "\"}},{\"requestRange\":{\"key\":\"" BEAT "\"}}"

Test(arbiter_etcd, a_read_is_a_transaction_without_conditions) {
    struct arbiter_etcd_step s;
    arbiter_etcd_begin(&s, BASE, AT(request_of(ARBITER_READ, 0, 0)), 7);
    expect_body(&s, "{\"success\":[" RANGES "]}");
}

Test(arbiter_etcd, a_beat_with_a_hint_is_one_question) {
    struct arbiter_etcd_step s;
    arbiter_etcd_begin(&s, BASE, AT(request_of(ARBITER_BEAT, 3, 0xa)), 7);
    expect_body(&s, "{\"compare\":[{\"target\":\"MOD\",\"key\":\"" LATEST "\",\"modRevision\":\"7\"}],"
                    "\"success\":[{\"requestPut\":{\"key\":\"" BEAT "\",\"value\":\"Mw==\"}}," RANGES "],"
                    "\"failure\":[" RANGES "]}");
}

Test(arbiter_etcd, a_claim_is_conditional_on_absence_and_on_what_was_seen) {
    struct arbiter_etcd_step s;
    struct arbiter_request q = request_of(ARBITER_CLAIM, 3, 0xa);
    struct arbiter_etcd_view seen = {.succeeded = true, .mod = 9, .record = {.epoch = 2}};
    enum arbiter_result result;
    arbiter_etcd_begin(&s, BASE, &q, 7);
    expect_body(&s, "{\"success\":[" RANGES "]}");
    cr_assert_eq(arbiter_etcd_next(&s, &seen, &result, NULL), ARBITER_ETCD_E_ASK);
    _cleanup_(strbuf_fini) struct strbuf record = {0}, coded = {0}, expected = {0};
    arbiter_record_write(&(struct arbiter_record){.epoch = 3, .leader = q.leader}, NULL, &record);
    base64_encode(strbuf_text(&record), record.len, &coded);
    strbuf_printf(&expected,
                  "{\"compare\":[{\"target\":\"MOD\",\"key\":\"" LATEST "\",\"modRevision\":\"9\"},"
                  "{\"target\":\"CREATE\",\"key\":\"" EPOCH_3 "\",\"createRevision\":\"0\"}],"
                  "\"success\":[{\"requestPut\":{\"key\":\"" EPOCH_3 "\",\"value\":\"%s\"}},"
                  "{\"requestPut\":{\"key\":\"" LATEST "\",\"value\":\"%s\"}}," RANGES "],"
                  "\"failure\":[" RANGES "]}",
                  strbuf_text(&coded), strbuf_text(&coded));
    expect_body(&s, strbuf_text(&expected));
}

static char *range_of(const char *key, const char *value, unsigned mod) {
    _cleanup_(strbuf_fini) struct strbuf k = {0}, v = {0};
    _cleanup_(freep) char *whole = xasprintf(BASE "%s", key);
    base64_encode(whole, strlen(whole), &k);
    base64_encode(value, strlen(value), &v);
    return xasprintf("{\"response_range\":{\"header\":{\"revision\":\"9\"},\"kvs\":[{\"key\":\"%s\","
                     "\"create_revision\":\"2\",\"mod_revision\":\"%u\",\"version\":\"1\",\"value\":\"%s\"}],"
                     "\"count\":\"1\"}}",
                     strbuf_text(&k), mod, strbuf_text(&v));
}

#define NO_RANGE "{\"response_range\":{\"header\":{\"revision\":\"9\"}}}"
#define PUT "{\"response_put\":{\"header\":{\"revision\":\"9\"}}}"

static int read_text(const char *text, struct arbiter_etcd_view *ret, struct err *err) {
    err->text[0] = '\0';
    return arbiter_etcd_read(BASE, text, strlen(text), ret, err);
}

Test(arbiter_etcd, an_empty_etcd_shows_nothing) {
    struct arbiter_etcd_view v;
    struct err err;
    cr_assert_eq(read_text("{\"header\":{},\"succeeded\":true,\"responses\":[" NO_RANGE "," NO_RANGE "]}", &v, &err),
                 0);
    cr_expect(v.succeeded);
    cr_expect_eq(v.mod, 0);
    cr_expect_eq(v.record.epoch, 0);
    cr_expect_eq(v.record.beat, 0);
}

Test(arbiter_etcd, an_answer_after_puts_shows_record_and_beat) {
    _cleanup_(strbuf_fini) struct strbuf record = {0};
    struct arbiter_record closed = {.epoch = 4,
                                    .leader = {.incarnation = 0xb, .addr = "::1", .port = 5},
                                    .closed = true,
                                    .outcome = OUTCOME_FAILED,
                                    .reason = "rank 1: exit 3"};
    arbiter_record_write(&closed, NULL, &record);
    _cleanup_(freep) char *latest = range_of("latest", strbuf_text(&record), 8), *beat = range_of("beat", "3", 6);
    _cleanup_(freep) char *text = xasprintf("{\"responses\":[" PUT "," PUT ",%s,%s]}", latest, beat);
    struct arbiter_etcd_view v;
    struct err err;
    cr_assert_eq(read_text(text, &v, &err), 0, "%s", err.text);
    cr_expect_not(v.succeeded);
    cr_expect_eq(v.mod, 8);
    cr_expect_eq(v.record.beat, 6);
    cr_expect_eq(v.record.epoch, 4);
    cr_expect_eq(v.record.leader.incarnation, 0xb);
    cr_expect_str_eq(v.record.leader.addr, "::1");
    cr_expect(v.record.closed);
    cr_expect_eq(v.record.outcome, OUTCOME_FAILED);
    cr_expect_str_eq(v.record.reason, "rank 1: exit 3");
    /* and every beginning of it is an error with a sentence */
    for (size_t len = 0; len < strlen(text); len++) {
        err.text[0] = '\0';
        cr_assert_lt(arbiter_etcd_read(BASE, text, len, &v, &err), 0);
        cr_assert_neq(err.text[0], '\0');
    }
}

Test(arbiter_etcd, what_is_not_ours_is_refused_with_a_sentence) {
    _cleanup_(freep) char *junk = range_of("latest", "hello", 8), *other = range_of("epoch-1", "{}", 8),
                          *zero = range_of("latest", "{}", 0), *beat = range_of("beat", "1", 3);
    const char *const ranges[][2] = {{junk, NO_RANGE},
                                     {other, NO_RANGE},
                                     {zero, NO_RANGE},
                                     {beat, NO_RANGE},
                                     {NO_RANGE, other},
                                     {NO_RANGE, PUT},
                                     {PUT, NO_RANGE},
                                     {"3", NO_RANGE},
                                     {"{\"response_range\":{\"kvs\":[1,2]}}", NO_RANGE},
                                     {"{\"response_range\":{\"kvs\":[1]}}", NO_RANGE},
                                     {"{\"response_range\":{\"kvs\":{}}}", NO_RANGE}};
    struct arbiter_etcd_view v;
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        _cleanup_(freep) char *text = xasprintf("{\"responses\":[%s,%s]}", ranges[i][0], ranges[i][1]);
        cr_expect_lt(read_text(text, &v, &err), 0, "%s", text);
        cr_expect_neq(err.text[0], '\0', "%s", text);
    }
    const char *const texts[] = {"",
                                 "[]",
                                 "{}",
                                 "null",
                                 "{\"responses\":[]}",
                                 "{\"responses\":[" NO_RANGE "]}",
                                 "{\"succeeded\":1,\"responses\":[" NO_RANGE "," NO_RANGE "]}"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        cr_expect_lt(read_text(texts[i], &v, &err), 0, "%s", texts[i]);
        cr_expect_neq(err.text[0], '\0', "%s", texts[i]);
    }
}

Test(arbiter_etcd, an_answer_over_the_limit_is_refused) {
    char *text = xmalloc(ARBITER_ETCD_ANSWER_MAX + 1);
    memset(text, ' ', ARBITER_ETCD_ANSWER_MAX + 1);
    struct arbiter_etcd_view v;
    struct err err = {0};
    cr_expect_lt(arbiter_etcd_read(BASE, text, ARBITER_ETCD_ANSWER_MAX + 1, &v, &err), 0);
    free(text);
}

struct verdict {
    enum arbiter_kind kind;
    struct arbiter_etcd_view view; /* after a plain read */
    int expected;
    enum arbiter_result result;
};

Test(arbiter_etcd, decides_by_what_is_there) {
    struct arbiter_record none = {0}, lower = {.epoch = 2, .leader.incarnation = 0xa},
                          mine = {.epoch = 3, .leader.incarnation = 0xa},
                          theirs = {.epoch = 3, .leader.incarnation = 0xb},
                          higher = {.epoch = 5, .leader.incarnation = 0xa},
                          success = {.epoch = 2, .leader.incarnation = 0xa, .closed = true, .outcome = OUTCOME_SUCCESS},
                          failed = {.epoch = 3, .leader.incarnation = 0xa, .closed = true, .outcome = OUTCOME_FAILED};
    const struct verdict verdicts[] = {
        {ARBITER_READ, {.record = none}, 0, ARBITER_OK},
        {ARBITER_READ, {.mod = 4, .record = success}, 0, ARBITER_OK},
        {ARBITER_BEAT, {.record = none}, 0, ARBITER_OK},
        {ARBITER_BEAT, {.mod = 4, .record = lower}, 0, ARBITER_OK},
        {ARBITER_BEAT, {.mod = 4, .record = theirs}, 0, ARBITER_OK},
        {ARBITER_BEAT, {.mod = 4, .record = failed}, 0, ARBITER_OK},
        {ARBITER_BEAT, {.mod = 4, .record = mine}, ARBITER_ETCD_E_ASK, ARBITER_OK},
        {ARBITER_CLAIM, {.record = none}, ARBITER_ETCD_E_ASK, ARBITER_OK},
        {ARBITER_CLAIM, {.mod = 4, .record = lower}, ARBITER_ETCD_E_ASK, ARBITER_OK},
        {ARBITER_CLAIM, {.mod = 4, .record = mine}, 0, ARBITER_OK},
        {ARBITER_CLAIM, {.mod = 4, .record = theirs}, 0, ARBITER_LOST},
        {ARBITER_CLAIM, {.mod = 4, .record = higher}, 0, ARBITER_LOST},
        {ARBITER_CLAIM, {.mod = 4, .record = success}, 0, ARBITER_LOST},
        {ARBITER_CLAIM, {.mod = 4, .record = failed}, 0, ARBITER_LOST},
        {ARBITER_CLOSE, {.record = none}, ARBITER_ETCD_E_ASK, ARBITER_OK},
        {ARBITER_CLOSE, {.mod = 4, .record = lower}, ARBITER_ETCD_E_ASK, ARBITER_OK},
        {ARBITER_CLOSE, {.mod = 4, .record = mine}, ARBITER_ETCD_E_ASK, ARBITER_OK},
        {ARBITER_CLOSE, {.mod = 4, .record = theirs}, 0, ARBITER_LOST},
        {ARBITER_CLOSE, {.mod = 4, .record = higher}, 0, ARBITER_LOST},
        {ARBITER_CLOSE, {.mod = 4, .record = success}, 0, ARBITER_OK},
        {ARBITER_CLOSE, {.mod = 4, .record = failed}, 0, ARBITER_LOST},
    };
    for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
        struct arbiter_etcd_step s;
        struct arbiter_request q = request_of(verdicts[i].kind, 3, 0xa);
        enum arbiter_result result = 0;
        arbiter_etcd_begin(&s, BASE, &q, 0);
        cr_assert_eq(arbiter_etcd_next(&s, &verdicts[i].view, &result, NULL), verdicts[i].expected, "verdict %zu", i);
        if (verdicts[i].expected == 0)
            cr_assert_eq(result, verdicts[i].result, "verdict %zu", i);
    }
}

Test(arbiter_etcd, keys_that_somebody_changed_are_an_error_not_a_loop) {
    struct arbiter_etcd_step s;
    struct arbiter_request q = request_of(ARBITER_CLAIM, 3, 0xa);
    struct arbiter_etcd_view v = {.mod = 4, .record = {.epoch = 2, .leader.incarnation = 0xb}};
    enum arbiter_result result;
    struct err err = {0};
    arbiter_etcd_begin(&s, BASE, &q, 0);
    cr_assert_eq(arbiter_etcd_next(&s, &v, &result, &err), ARBITER_ETCD_E_ASK);
    cr_assert_eq(arbiter_etcd_next(&s, &v, &result, &err), ARBITER_ETCD_RUINED); /* refused, and yet nothing changed */
    cr_expect_str_eq(err.text, "'/m/j/epoch-3' exists although '/m/j/latest' has number 2: another program changed "
                               "these keys; use another run id");
}

#define EPOCHS 40
#define PEOPLE 3

struct model {
    uint64_t revision, mod, beat;
    struct arbiter_record latest;
    uint64_t winner[EPOCHS + 4];
    bool was_closed;
    enum outcome outcome;
};

/* What etcd does with the question; the view is what it answers. */
static struct arbiter_etcd_view obey(struct model *m, const struct arbiter_etcd_step *s) {
    const struct arbiter_request *q = &s->request;
    struct arbiter_etcd_view v = {.succeeded = true};
    if (s->write) {
        v.succeeded = s->mod == m->mod && (s->record.epoch == 0 || m->winner[s->record.epoch] == 0);
        if (v.succeeded) {
            m->revision++;
            if (q->kind == ARBITER_BEAT) {
                m->beat = m->revision;
            } else {
                cr_assert_not(m->was_closed, "something came after the close");
                cr_assert_eq(m->winner[s->record.epoch], 0, "an epoch was claimed twice");
                cr_assert_gt(s->record.epoch, m->latest.epoch);
                m->winner[s->record.epoch] = q->leader.incarnation;
                m->latest = (struct arbiter_record){.epoch = s->record.epoch, .leader = q->leader};
                m->latest.closed = m->was_closed = q->kind == ARBITER_CLOSE;
                m->latest.outcome = m->outcome = q->outcome;
                m->mod = m->revision;
            }
        }
    }
    v.mod = m->mod;
    v.record = m->latest;
    v.record.beat = m->beat;
    return v;
}

struct person {
    uint64_t who;
    bool busy;
    struct arbiter_etcd_step s;
    bool lost; /* an answer was; the question may be obeyed later */
    struct arbiter_etcd_step late;
};

static void ask_next(struct person *p, struct prng *rng, const struct model *m) {
    enum arbiter_kind kind = (enum arbiter_kind)(1 + prng_below(rng, 3));
    if (m->latest.epoch >= EPOCHS && prng_below(rng, 4) == 0)
        kind = ARBITER_CLOSE;
    uint32_t epoch = m->latest.epoch + (kind == ARBITER_BEAT ? 0 : (uint32_t)prng_below(rng, 3));
    struct arbiter_request q = request_of(kind, MIN2(MAX2(epoch, 1U), EPOCHS + 2U), p->who);
    if (kind == ARBITER_CLOSE)
        q.outcome = prng_below(rng, 2) == 0 ? OUTCOME_SUCCESS : OUTCOME_FAILED;
    arbiter_etcd_begin(&p->s, BASE, &q, 0);
    p->busy = true;
}

static void answered(const struct model *m, const struct arbiter_request *q, enum arbiter_result result) {
    if (q->kind == ARBITER_CLAIM && result == ARBITER_OK)
        cr_assert_eq(m->winner[q->epoch], q->leader.incarnation);
    if (q->kind == ARBITER_CLAIM && result == ARBITER_LOST)
        cr_assert(m->winner[q->epoch] != q->leader.incarnation || m->latest.epoch > q->epoch || m->was_closed);
    if (q->kind == ARBITER_CLOSE && result == ARBITER_OK)
        cr_assert(m->was_closed && m->outcome == q->outcome);
}

static void turn(struct model *m, struct person *p, struct prng *rng) {
    if (p->lost && prng_below(rng, 3) == 0) { /* what was given up arrives after all */
        (void)obey(m, &p->late);
        p->lost = false;
    }
    if (!p->busy)
        ask_next(p, rng, m);
    if (prng_below(rng, 5) == 0) { /* the question is lost or late: begin again, as at another endpoint */
        p->late = p->s;
        p->lost = p->s.write;
        struct arbiter_request q = p->s.request;
        arbiter_etcd_begin(&p->s, BASE, &q, 0);
        return;
    }
    struct arbiter_etcd_view v = obey(m, &p->s);
    if (prng_below(rng, 5) == 0) { /* obeyed, but the answer is lost */
        struct arbiter_request q = p->s.request;
        arbiter_etcd_begin(&p->s, BASE, &q, 0);
        return;
    }
    enum arbiter_result result;
    struct err err = {0};
    int r = arbiter_etcd_next(&p->s, &v, &result, &err);
    cr_assert_geq(r, 0, "%s", err.text);
    if (r == ARBITER_ETCD_E_ASK)
        return;
    p->busy = false;
    answered(m, &p->s.request, result);
}

Test(arbiter_etcd, one_winner_per_epoch_and_one_close_whatever_is_lost) {
    unsigned closed = 0;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct prng rng = {.state = seed};
        struct model m = {0};
        struct person people[PEOPLE] = {{.who = 0xa}, {.who = 0xb}, {.who = 0xc}};
        for (int i = 0; i < 2000; i++)
            turn(&m, &people[prng_below(&rng, PEOPLE)], &rng);
        closed += m.was_closed;
        cr_assert_geq(m.latest.epoch, EPOCHS / 2, "seed %" PRIu64, seed);
    }
    cr_assert_gt(closed, 400);
}

Test(arbiter_etcd, a_login_names_user_and_password) {
    _cleanup_(strbuf_fini) struct strbuf body = {0};
    arbiter_etcd_login("joe", "a\"b\n", &body);
    cr_expect_str_eq(strbuf_text(&body), "{\"name\":\"joe\",\"password\":\"a\\\"b\\n\"}");
}

Test(arbiter_etcd, a_token_is_fit_for_a_header_or_refused) {
    char token[ARBITER_ETCD_TOKEN_MAX + 1];
    struct err err = {0};
    const char good[] = "{\"header\":{},\"token\":\"GWdo.12\"}";
    cr_assert_eq(arbiter_etcd_token(good, sizeof good - 1, token, &err), 0);
    cr_expect_str_eq(token, "GWdo.12");
    const char *const bad[] = {"{}", "{\"token\":\"\"}", "{\"token\":\"a\\r\\nHost: b\"}", "{\"token\":\"a b\"}",
                               "{\"token\":1}"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        err.text[0] = '\0';
        cr_expect_lt(arbiter_etcd_token(bad[i], strlen(bad[i]), token, &err), 0, "%s", bad[i]);
        cr_expect_neq(err.text[0], '\0');
    }
}

Test(arbiter_etcd, refusals_are_told_apart) {
    static const struct {
        int status;
        const char *body;
        enum arbiter_etcd_refusal expected;
        const char *text;
    } all[] = {
        {401, "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}", ARBITER_ETCD_LOG_IN,
         "etcdserver: invalid auth token (HTTP status 401)"},
        {400, "{\"error\":\"x\",\"message\":\"etcdserver: user name is empty\",\"code\":3}", ARBITER_ETCD_LOG_IN,
         "etcdserver: user name is empty (HTTP status 400)"},
        {400, "{\"error\":\"etcdserver: revision of auth store is old\",\"code\":3}", ARBITER_ETCD_LOG_IN, NULL},
        {400, "{\"error\":\"etcdserver: authentication is not enabled\",\"code\":9}", ARBITER_ETCD_NO_LOG_IN, NULL},
        {400, "{\"error\":\"etcdserver: authentication failed, invalid user ID or password\",\"code\":3}",
         ARBITER_ETCD_DENIED, NULL},
        {403, "{\"error\":\"etcdserver: permission denied\",\"code\":7}", ARBITER_ETCD_DENIED, NULL},
        {503, "{\"error\":\"etcdserver: no leader\",\"code\":14}", ARBITER_ETCD_ELSEWHERE, NULL},
        {500, "{\"error\":\"a\\nb\\u0007\"}", ARBITER_ETCD_ELSEWHERE, "a b  (HTTP status 500)"},
        {404, "<html>", ARBITER_ETCD_ELSEWHERE, "HTTP status 404: no etcd of version 3.4 or later is there"},
        {301, "", ARBITER_ETCD_ELSEWHERE, "HTTP status 301, a redirect: it is not followed; name the right endpoint"},
        {502, "oops", ARBITER_ETCD_ELSEWHERE, "HTTP status 502, and nothing about etcd"},
        {403, "oops", ARBITER_ETCD_DENIED, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        struct err err = {0};
        cr_expect_eq(arbiter_etcd_refused(all[i].status, all[i].body, strlen(all[i].body), &err), all[i].expected,
                     "%zu", i);
        if (all[i].text != NULL)
            cr_expect_str_eq(err.text, all[i].text);
    }
}

Test(arbiter_etcd, endpoints_are_read_as_people_write_them) {
    static const struct {
        const char *text, *host;
        uint16_t port;
        bool https;
    } good[] = {
        {"host", "host", 2379, false},          {"host.example.:2380", "host.example.", 2380, false},
        {"10.0.0.1:1", "10.0.0.1", 1, false},   {"[fd00::1]:2379", "fd00::1", 2379, false},
        {"[fd00::1]", "fd00::1", 2379, false},  {"fe80::1%eth0", "fe80::1%eth0", 2379, false},
        {"http://host:80/", "host", 80, false}, {"https://[::1]:443", "::1", 443, true},
        {"https://host", "host", 2379, true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct arbiter_etcd_endpoint e;
        struct err err = {0};
        cr_assert_eq(arbiter_etcd_endpoint(good[i].text, &e, &err), 0, "%s", err.text);
        cr_expect_str_eq(e.host, good[i].host);
        cr_expect_eq(e.port, good[i].port);
        cr_expect_eq(e.https, good[i].https);
        cr_expect_eq(e.http, strncmp(good[i].text, "http://", 7) == 0);
    }
    static const char *const bad[] = {"",
                                      ":2379",
                                      "host:",
                                      "host:0",
                                      "host:65536",
                                      "host:2379:",
                                      "host:x",
                                      "[::1",
                                      "[]:1",
                                      "[::1]x",
                                      "[::1]:",
                                      "ho st",
                                      "http://",
                                      "https:///",
                                      "http://host/v3",
                                      "host/",
                                      "user@host:1",
                                      "host:23790000000",
                                      "http://http://host:1"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct arbiter_etcd_endpoint e;
        struct err err = {0};
        /* "host:2379:" has two colons, and so reads as a bare IPv6 address, which is looked up as one */
        int r = arbiter_etcd_endpoint(bad[i], &e, &err);
        if (strcmp(bad[i], "host:2379:") != 0)
            cr_expect_eq(r, -EINVAL, "'%s' gives host '%s'", bad[i], e.host);
    }
}
