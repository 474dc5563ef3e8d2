#include "rendezvous/wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/prng.h"

/* ---- random messages ---- */

static struct prng prng;

/* Texts of all lengths, the longest with preference, of characters that JSON must escape and of
 * such that take several bytes. */
static void any_text(char *out, size_t size) {
    static const char *const pieces[] = {"a", "\"", "\\", "\n", "\x01", "\x1f", "\x7f", "\xc3\xa4",
                                         "\xe2\x82\xac", "\xf0\x9f\x98\x80", "/", " "};
    size_t len = prng_below(&prng, 3) == 0 ? size - 1 : prng_below(&prng, size), at = 0;
    for (;;) {
        const char *p = pieces[prng_below(&prng, ARRAY_SIZE(pieces))];
        if (at + strlen(p) > len)
            break;
        (void)memcpy(out + at, p, strlen(p));
        at += strlen(p);
    }
    while (at < len)
        out[at++] = 'x';
    out[at] = '\0';
}
#define ANY_TEXT(array) any_text((array), sizeof(array))

/* 0 … max, the ends with preference. */
static uint64_t any(uint64_t max) {
    switch (prng_below(&prng, 4)) {
    case 0: return 0;
    case 1: return max;
    default: return max == UINT64_MAX ? prng_next(&prng) : prng_below(&prng, max + 1);
    }
}
static uint32_t any_u32(uint64_t max) { return (uint32_t)any(max); }
static uint64_t any_incarnation(void) { return any(UINT64_MAX - 1) + 1; }
static bool any_bool(void) { return prng_below(&prng, 2) != 0; }
static struct generation any_generation(bool may_be_none) {
    if (may_be_none && any_bool())
        return (struct generation){0, 0};
    return (struct generation){any_u32(UINT32_MAX - 1) + 1, any_u32(UINT32_MAX - 1) + 1};
}

static void any_failure(struct failure *f) {
    f->kind = (enum failure_kind)(1 + prng_below(&prng, FAILURE_KIND_COUNT - 1));
    f->code = (int32_t)any_u32(INT32_MAX) * (any_bool() ? 1 : -1);
    f->core_dumped = any_bool();
    f->rank = any_u32(UINT32_MAX);
    f->local_rank = any_u32(RDZV_WORKERS_MAX);
    f->node_rank = any_u32(RDZV_NODES_MAX);
    f->incarnation = any(UINT64_MAX);
    f->pid = (int32_t)any_u32(INT32_MAX);
    f->at_ns = any(UINT64_MAX);
    f->wall_ns = any(UINT64_MAX);
    f->ran_ns = any(UINT64_MAX);
    ANY_TEXT(f->node);
    ANY_TEXT(f->role);
    ANY_TEXT(f->text);
    f->text_is_traceback = any_bool();
    ANY_TEXT(f->error_file);
}

static void any_report(struct report *r) {
    r->state = (enum node_state)(1 + prng_below(&prng, NODE_STATE_COUNT - 1));
    r->generation = any_generation(true);
    r->leaving = any_bool();
    r->restarts_used = any_u32(UINT32_MAX);
    ANY_TEXT(r->unusable);
    r->has_failure = any_bool();
    if (r->has_failure)
        any_failure(&r->failure);
}

static void any_join(struct wire_join *j) {
    j->version = WIRE_VERSION;
    ANY_TEXT(j->run_id);
    j->info.incarnation = any_incarnation();
    ANY_TEXT(j->info.host);
    ANY_TEXT(j->info.role);
    j->info.listener_port = (uint16_t)(1 + any(UINT16_MAX - 1));
    j->info.nproc = 1 + any_u32(RDZV_WORKERS_MAX - 1);
    j->info.node_rank = (int32_t)any_u32(INT32_MAX) - (any_bool() ? 1 : 0);
    if (j->info.node_rank < 0)
        j->info.node_rank = -1;
    j->info.pid = (int32_t)any_u32(INT32_MAX);
    j->min_nodes = 1 + any_u32(RDZV_NODES_MAX - 1);
    j->max_nodes = j->min_nodes + any_u32(RDZV_NODES_MAX - j->min_nodes);
    any_report(&j->report);
}

static void any_form(struct form *f) {
    f->n_nodes = 1 + any_u32(RDZV_NODES_MAX - 1);
    f->node_rank = any_u32(f->n_nodes - 1);
    f->world_size = 1 + any_u32(UINT32_MAX - 1);
    f->first_rank = any_u32(f->world_size - 1);
    f->role_world_size = 1 + any_u32(UINT32_MAX - 1);
    f->role_first_rank = any_u32(f->role_world_size - 1);
    f->host_index = any_u32(RDZV_NODES_MAX);
    ANY_TEXT(f->store_host);
    f->store_port = (uint16_t)(1 + any(UINT16_MAX - 1));
    f->restarts_used = any_u32(UINT32_MAX);
    f->max_restarts = any_u32(UINT32_MAX);
    f->losses = any_u32(UINT32_MAX);
    f->log_nonce = any(UINT64_MAX);
}

static void any_desired(struct desired *d) {
    d->kind = (enum desired_kind)(1 + prng_below(&prng, DESIRED_KIND_COUNT - 1));
    d->epoch = 1 + any_u32(UINT32_MAX - 1);
    d->generation = any_generation(d->kind == DESIRED_IDLE || d->kind == DESIRED_CLOSED);
    d->restarts_used = any_u32(UINT32_MAX);
    d->max_restarts = any_u32(UINT32_MAX);
    d->grace_ns = UINT64_MAX;
    if (d->kind == DESIRED_FORM)
        any_form(&d->form);
    if (d->kind != DESIRED_STOP && d->kind != DESIRED_CLOSED)
        return;
    d->grace_ns = any(UINT64_MAX);
    d->will_restart = any_bool();
    d->n_stopping = any_u32(UINT32_MAX);
    if (d->kind == DESIRED_CLOSED)
        d->outcome = any_bool() ? OUTCOME_SUCCESS : OUTCOME_FAILED;
    ANY_TEXT(d->reason);
    d->has_failure = any_bool();
    if (d->has_failure)
        any_failure(&d->failure);
}

static void any_status(struct rdzv_status *s) {
    s->present = any_u32(RDZV_NODES_MAX);
    s->min_nodes = 1 + any_u32(RDZV_NODES_MAX - 1);
    s->max_nodes = 1 + any_u32(RDZV_NODES_MAX - 1);
    s->wait_ns = any(UINT64_MAX);
    s->last_call = any_bool();
    s->n_names = any_u32(RDZV_STATUS_NAMES_MAX);
    s->n_missing = any_u32(RDZV_STATUS_NAMES_MAX);
    for (uint32_t i = 0; i < s->n_names; i++)
        ANY_TEXT(s->names[i]);
    for (uint32_t i = 0; i < s->n_missing; i++)
        ANY_TEXT(s->missing[i]);
}

static uint64_t any_setting(uint64_t min) { return min + any(WIRE_TIME_MAX_NS - min); }

static void any_message(enum wire_kind kind, struct wire_message *m) {
    memset(m, 0, sizeof *m);
    m->kind = kind;
    switch (kind) {
    case WIRE_HELLO:
        m->hello.version = WIRE_VERSION;
        m->hello.incarnation = any_incarnation();
        ANY_TEXT(m->hello.run_id);
        break;
    case WIRE_JOIN: any_join(&m->join); break;
    case WIRE_WELCOME:
        m->welcome = (struct wire_welcome){
            .epoch = 1 + any_u32(UINT32_MAX - 1),
            .leader = any_incarnation(),
            .listener_port = (uint16_t)(1 + any(UINT16_MAX - 1)),
            .heartbeat_ns = any_setting(WIRE_HEARTBEAT_MIN_NS),
            .lease_ns = any_setting(WIRE_HEARTBEAT_MIN_NS),
            .margin_ns = any_setting(0),
        };
        break;
    case WIRE_REFUSED:
        m->refused.final = any_bool();
        ANY_TEXT(m->refused.reason);
        break;
    case WIRE_REPORT: any_report(&m->report); break;
    case WIRE_RENEW:
        m->renew = (struct renew){any(UINT64_MAX), any(UINT64_MAX), any(UINT64_MAX)};
        break;
    case WIRE_LEAVE: break;
    case WIRE_DESIRED: any_desired(&m->desired); break;
    case WIRE_LEASE:
        m->lease = (struct lease){.epoch = 1 + any_u32(UINT32_MAX - 1),
                                  .prepared = any_generation(true),
                                  .echo_ns = any(UINT64_MAX),
                                  .validity_ns = any_setting(0),
                                  .clock_ns = any(UINT64_MAX)};
        break;
    case WIRE_STATUS: any_status(&m->status); break;
    case WIRE_KIND_COUNT: abort();
    }
}

/* ---- there and back ---- */

static uint64_t seed(void) {
    const char *s = getenv("SEED");
    return s == NULL ? 20261121 : strtoull(s, NULL, 10);
}

Test(wire, every_message_comes_back_as_it_was) {
    static struct wire_message in, out;
    for (uint64_t i = 0; i < 300; i++) {
        prng.state = seed() + i;
        for (int kind = 1; kind < WIRE_KIND_COUNT; kind++) {
            any_message((enum wire_kind)kind, &in);
            _cleanup_(strbuf_fini) struct strbuf text = {0}, again = {0};
            wire_encode(&in, &text);
            cr_assert_lt(text.len, WIRE_MESSAGE_MAX / 2, "%s", wire_kind_name(in.kind));
            struct err err = {0};
            int r = wire_decode(strbuf_text(&text), text.len, &out, &err);
            cr_assert_eq(r, 0, "seed %llu %s: %s: %s", (unsigned long long)(seed() + i),
                         wire_kind_name(in.kind), err.text, strbuf_text(&text));
            wire_encode(&out, &again);
            cr_assert_str_eq(strbuf_text(&again), strbuf_text(&text), "seed %llu",
                             (unsigned long long)(seed() + i));
        }
    }
}

Test(wire, fields_arrive_in_their_places) {
    struct wire_message in = {.kind = WIRE_DESIRED, .desired = {.kind = DESIRED_FORM, .epoch = 3}}, out;
    in.desired.generation = (struct generation){3, 9};
    in.desired.form = (struct form){.node_rank = 1, .n_nodes = 2, .first_rank = 4, .world_size = 8,
                                    .role_first_rank = 5, .role_world_size = 6, .host_index = 7,
                                    .store_host = "10.0.0.1", .store_port = 29500, .restarts_used = 1,
                                    .max_restarts = 3, .losses = 2, .log_nonce = UINT64_MAX};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(&in, &text);
    cr_assert_eq(wire_decode(strbuf_text(&text), text.len, &out, NULL), 0);
    const struct form *f = &out.desired.form;
    cr_assert_eq(out.desired.grace_ns, UINT64_MAX, "the node's own");
    cr_assert_eq(generation_compare(out.desired.generation, in.desired.generation), 0);
    cr_assert(f->node_rank == 1 && f->n_nodes == 2 && f->first_rank == 4 && f->world_size == 8);
    cr_assert(f->role_first_rank == 5 && f->role_world_size == 6 && f->host_index == 7);
    cr_assert(f->store_port == 29500 && f->restarts_used == 1 && f->max_restarts == 3 && f->losses == 2);
    cr_assert_eq(f->log_nonce, UINT64_MAX);
    cr_assert_str_eq(f->store_host, "10.0.0.1");
}

/* What a worker wrote before it died need not be UTF-8, and must not end the connection. */
Test(wire, texts_that_are_not_utf8_still_arrive) {
    static struct wire_message in, out;
    in = (struct wire_message){.kind = WIRE_REPORT,
                               .report = {.state = NODE_FAILED, .generation = {1, 1}, .has_failure = true}};
    in.report.failure.kind = FAILURE_EXIT;
    memset(in.report.failure.text, 0xff, sizeof in.report.failure.text - 1);
    memset(in.report.failure.error_file, 0x80, sizeof in.report.failure.error_file - 1);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(&in, &text);
    struct err err = {0};
    cr_assert_eq(wire_decode(strbuf_text(&text), text.len, &out, &err), 0, "%s", err.text);
    cr_assert_eq(strncmp(out.report.failure.text, "\xef\xbf\xbd\xef\xbf\xbd", 6), 0);
}

/* ---- what is refused ---- */

static int decode(const char *text) {
    static struct wire_message m;
    return wire_decode(text, strlen(text), &m, NULL);
}

#define RENEW(a, b, c) "{\"kind\":\"RENEW\",\"clock_ns\":" a ",\"leader_clock_ns\":" b ",\"rtt_ns\":" c "}"
#define HELLO(v, i, r) "{\"kind\":\"HELLO\",\"version\":" v ",\"incarnation\":" i ",\"run_id\":" r "}"
#define WELCOME(e, p, h)                                                                             \
    "{\"kind\":\"WELCOME\",\"epoch\":" e ",\"leader\":\"00000000000000a1\",\"listener_port\":" p    \
    ",\"heartbeat_ns\":" h ",\"lease_ns\":\"5000000000\",\"margin_ns\":\"0\"}"
#define LEASE(g) \
    "{\"kind\":\"LEASE\",\"epoch\":1,\"prepared\":" g ",\"echo_ns\":\"1\",\"validity_ns\":\"1\",\"clock_ns\":\"1\"}"
#define INC "\"00000000000000a1\""

Test(wire, decoding_refuses_what_breaks_the_protocol) {
    static const struct {
        int r;
        const char *text;
    } cases[] = {
        {0, "{\"kind\":\"LEAVE\"}"},
        {0, " { \"kind\" : \"LEAVE\" } "},
        {-EINVAL, ""},
        {-EINVAL, "x"},
        {-EINVAL, "[]"},
        {-EINVAL, "\"LEAVE\""},
        {-EINVAL, "{}"},
        {-EINVAL, "{\"kind\":\"LEAVE\"}x"},
        {-EINVAL, "{\"kind\":\"LEAVE\",\"kind\":\"LEAVE\"}"},
        {-EINVAL, "{\"kind\":\"leave\"}"},
        {-EINVAL, "{\"kind\":\"NONE\"}"},
        {-EINVAL, "{\"kind\":8}"},
        {-EINVAL, "{\"kind\":\"LEAVE\",\"why\":1}"},
        {0, RENEW("\"1\"", "\"0\"", "\"18446744073709551615\"")},
        {-EINVAL, RENEW("\"1\"", "\"0\"", "\"18446744073709551616\"")},
        {-EINVAL, RENEW("1", "\"0\"", "\"1\"")},
        {-EINVAL, RENEW("\"-1\"", "\"0\"", "\"1\"")},
        {-EINVAL, RENEW("\"1.0\"", "\"0\"", "\"1\"")},
        {-EINVAL, RENEW("\"\"", "\"0\"", "\"1\"")},
        {-EINVAL, "{\"kind\":\"RENEW\",\"clock_ns\":\"1\",\"rtt_ns\":\"1\"}"},
        {0, HELLO("1", INC, "\"\"")},
        {WIRE_E_VERSION, HELLO("2", INC, "\"\"")},
        {WIRE_E_VERSION, "{\"kind\":\"HELLO\",\"version\":2,\"new\":[{}]}"},
        {WIRE_E_VERSION, "{\"kind\":\"JOIN\",\"version\":4294967295}"},
        {-EINVAL, "{\"kind\":\"JOIN\",\"version\":4294967296}"},
        {-EINVAL, "{\"kind\":\"JOIN\",\"version\":1}"},
        {-EINVAL, HELLO("-1", INC, "\"\"")},
        {-EINVAL, HELLO("1.5", INC, "\"\"")},
        {-EINVAL, HELLO("1", "\"0000000000000000\"", "\"\"")},
        {-EINVAL, HELLO("1", "\"a1\"", "\"\"")},
        {-EINVAL, HELLO("1", "\"00000000000000A1\"", "\"\"")},
        {-EINVAL, HELLO("1", INC, "7")},
        {-EINVAL, HELLO("1", INC, "\"a\\u0000b\"")},
        {0, WELCOME("1", "1", "\"1000000\"")},
        {-EINVAL, WELCOME("0", "1", "\"1000000\"")},
        {-EINVAL, WELCOME("1", "0", "\"1000000\"")},
        {0, WELCOME("1", "65535", "\"1000000\"")},
        {-EINVAL, WELCOME("1", "65536", "\"1000000\"")},
        {-EINVAL, WELCOME("1", "1", "\"999999\"")},
        {0, WELCOME("1", "1", "\"1000000000000000\"")},
        {-EINVAL, WELCOME("1", "1", "\"1000000000000001\"")},
        {0, LEASE("\"0.0\"")},
        {0, LEASE("\"4294967295.4294967295\"")},
        {-EINVAL, LEASE("\"4294967296.1\"")},
        {-EINVAL, LEASE("\"0.1\"")},
        {-EINVAL, LEASE("\"1.0\"")},
        {-EINVAL, LEASE("\"1\"")},
        {-EINVAL, LEASE("\"1.\"")},
        {-EINVAL, LEASE("\"1.2.3\"")},
        {-EINVAL, LEASE("1.2")},
        {-EINVAL, "{\"kind\":\"DESIRED\",\"desired\":\"idle\"}"},
        {0, "{\"kind\":\"DESIRED\",\"desired\":\"idle\",\"epoch\":1,\"generation\":\"0.0\","
            "\"restarts_used\":0,\"max_restarts\":0}"},
        {-EINVAL, "{\"kind\":\"DESIRED\",\"desired\":\"start\",\"epoch\":1,\"generation\":\"0.0\","
                  "\"restarts_used\":0,\"max_restarts\":0}"},
        {-EINVAL, "{\"kind\":\"DESIRED\",\"desired\":\"form\",\"epoch\":1,\"generation\":\"1.1\","
                  "\"restarts_used\":0,\"max_restarts\":0}"},
        {-EINVAL, "{\"kind\":\"DESIRED\",\"desired\":\"closed\",\"epoch\":1,\"generation\":\"1.1\","
                  "\"restarts_used\":0,\"max_restarts\":0,\"grace_ns\":\"1\",\"will_restart\":false,"
                  "\"n_stopping\":0,\"outcome\":\"none\",\"reason\":\"\"}"},
        {0, "{\"kind\":\"DESIRED\",\"desired\":\"closed\",\"epoch\":1,\"generation\":\"1.1\","
            "\"restarts_used\":0,\"max_restarts\":0,\"grace_ns\":\"1\",\"will_restart\":false,"
            "\"n_stopping\":0,\"outcome\":\"failed\",\"reason\":\"\"}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_assert_eq(decode(cases[i].text), cases[i].r, "%s", cases[i].text);
}

/* Each text is taken at the length of its array less one, and refused one byte longer. */
static void check_text_limit(const char *before, const char *after, size_t size) {
    for (size_t len = size - 1; len <= size; len++) {
        _cleanup_(strbuf_fini) struct strbuf s = {0};
        strbuf_add(&s, before);
        for (size_t i = 0; i < len; i++)
            strbuf_add_char(&s, 'x');
        strbuf_add(&s, after);
        cr_assert_eq(decode(strbuf_text(&s)), len < size ? 0 : -EINVAL, "%s, %zu bytes", before, len);
    }
}

#define NODE(host)                                                                          \
    "{\"kind\":\"JOIN\",\"version\":1,\"run_id\":\"r\",\"min_nodes\":1,\"max_nodes\":1,\"node\":{" \
    "\"incarnation\":" INC ",\"host\":\"" host
#define NODE_REST                                                                                  \
    "\",\"role\":\"\",\"listener_port\":1,\"nproc\":1,\"node_rank\":-1,\"pid\":1},\"report\":{"    \
    "\"state\":\"joined\",\"generation\":\"0.0\",\"leaving\":false,\"unusable\":\"\","             \
    "\"restarts_used\":0}}"
#define REPORT "{\"kind\":\"REPORT\",\"report\":{\"state\":\"failed\",\"generation\":\"1.1\",\"leaving\":false,"
#define FAILURE                                                                                    \
    REPORT "\"unusable\":\"\",\"restarts_used\":0,\"failure\":{\"kind\":\"exit\",\"code\":1,"      \
           "\"core_dumped\":false,\"rank\":0,\"local_rank\":0,\"node_rank\":0,\"incarnation\":" INC \
           ",\"pid\":1,\"at_ns\":\"1\",\"wall_ns\":\"1\",\"ran_ns\":\"1\",\"text_is_traceback\":false,"

Test(wire, every_text_has_its_limit) {
    check_text_limit("{\"kind\":\"HELLO\",\"version\":1,\"incarnation\":" INC ",\"run_id\":\"", "\"}",
                     RDZV_RUN_ID_MAX);
    check_text_limit("{\"kind\":\"REFUSED\",\"final\":true,\"reason\":\"", "\"}", RDZV_REASON_MAX);
    check_text_limit(NODE(""), NODE_REST, RDZV_HOST_MAX);
    check_text_limit(REPORT "\"restarts_used\":0,\"unusable\":\"", "\"}}", RDZV_REASON_MAX / 4);
    check_text_limit(FAILURE "\"node\":\"\",\"role\":\"\",\"error_file\":\"\",\"text\":\"", "\"}}}", FAILURE_TEXT_MAX);
    check_text_limit(FAILURE "\"node\":\"\",\"role\":\"\",\"text\":\"\",\"error_file\":\"", "\"}}}", FAILURE_PATH_MAX);
    check_text_limit(FAILURE "\"error_file\":\"\",\"role\":\"\",\"text\":\"\",\"node\":\"", "\"}}}", FAILURE_NODE_MAX);
    check_text_limit(FAILURE "\"error_file\":\"\",\"node\":\"\",\"text\":\"\",\"role\":\"", "\"}}}", 64);
}

/* The field of a valid message, replaced by limit and limit + 1. */
static void check_number_limit(enum wire_kind kind, const char *key, uint64_t limit) {
    static struct wire_message m;
    prng.state = 1;
    any_message(kind, &m);
    if (kind == WIRE_JOIN)
        m.join.min_nodes = 1;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(&m, &text);
    char *at = strstr(text.data, key);
    cr_assert_not_null(at, "%s", key);
    at += strlen(key) + 2;
    char *rest = at + strspn(at, "-0123456789");
    for (uint64_t v = limit; v <= limit + 1; v++) {
        _cleanup_(strbuf_fini) struct strbuf changed = {0};
        strbuf_add_bytes(&changed, text.data, (size_t)(at - text.data));
        strbuf_printf(&changed, "%llu%s", (unsigned long long)v, rest);
        cr_assert_eq(decode(strbuf_text(&changed)), v == limit ? 0 : -EINVAL, "%s = %llu", key,
                     (unsigned long long)v);
    }
}

Test(wire, every_number_has_its_limit) {
    check_number_limit(WIRE_JOIN, "max_nodes", RDZV_NODES_MAX);
    check_number_limit(WIRE_JOIN, "nproc", RDZV_WORKERS_MAX);
    check_number_limit(WIRE_JOIN, "listener_port", UINT16_MAX);
    check_number_limit(WIRE_JOIN, "restarts_used", UINT32_MAX);
    check_number_limit(WIRE_JOIN, "pid", INT32_MAX);
    check_number_limit(WIRE_STATUS, "present", RDZV_NODES_MAX);
}

Test(wire, a_status_holds_so_many_names_and_no_more) {
    for (uint32_t n = RDZV_STATUS_NAMES_MAX; n <= RDZV_STATUS_NAMES_MAX + 1; n++) {
        _cleanup_(strbuf_fini) struct strbuf s = {0};
        strbuf_add(&s, "{\"kind\":\"STATUS\",\"present\":1,\"min_nodes\":1,\"max_nodes\":1,\"wait_ns\":\"1\","
                       "\"last_call\":false,\"names\":[],\"missing\":[");
        for (uint32_t i = 0; i < n; i++)
            strbuf_printf(&s, "%s\"n%u\"", i == 0 ? "" : ",", i);
        strbuf_add(&s, "]}");
        cr_assert_eq(decode(strbuf_text(&s)), n == RDZV_STATUS_NAMES_MAX ? 0 : -EINVAL);
    }
    cr_assert_eq(decode("{\"kind\":\"STATUS\",\"present\":1,\"min_nodes\":1,\"max_nodes\":1,\"wait_ns\":\"1\","
                        "\"last_call\":false,\"names\":[1],\"missing\":[]}"), -EINVAL);
}

Test(wire, no_beginning_of_a_message_is_a_message) {
    static struct wire_message m, out;
    for (int kind = 1; kind < WIRE_KIND_COUNT; kind++) {
        prng.state = 5;
        any_message((enum wire_kind)kind, &m);
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        wire_encode(&m, &text);
        for (size_t len = 0; len < text.len; len += 1 + len / 64)
            cr_assert_eq(wire_decode(strbuf_text(&text), len, &out, NULL), -EINVAL);
    }
}

/* ---- the specification ---- */

static char *read_page(void) {
    const char *tests = getenv("MUSTER_TEST_SOURCE_DIR");
    _cleanup_(strbuf_fini) struct strbuf page = {0};
    char *path = xasprintf("%s/../man/muster-protocol.7", tests == NULL ? "tests" : tests);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    char line[1024];
    while (fgets(line, sizeof line, f) != NULL)
        strbuf_add(&page, line);
    (void)fclose(f);
    free(path);
    return strbuf_take(&page);
}

static void check_described(const char *page, const struct json *v) {
    for (const struct json *m = json_first(v); m != NULL; m = json_next(m)) {
        if (json_key(m) != NULL && strcmp(json_key(m), "kind") != 0 && strcmp(json_key(m), "form") != 0) {
            char item[64];
            (void)snprintf(item, sizeof item, "\n.It Li %s Ta ", json_key(m));
            cr_assert(strstr(page, item) != NULL || strcmp(json_key(m), "report") == 0, "no '%s' in the manual",
                      json_key(m));
        }
        check_described(page, m);
    }
}

Test(wire, the_manual_describes_every_field) {
    static struct wire_message m;
    char *page = read_page();
    for (uint64_t i = 0; i < 50; i++) {
        for (int kind = 1; kind < WIRE_KIND_COUNT; kind++) {
            prng.state = i;
            any_message((enum wire_kind)kind, &m);
            _cleanup_(strbuf_fini) struct strbuf text = {0};
            wire_encode(&m, &text);
            _cleanup_(json_freep) struct json *doc = NULL;
            cr_assert_eq(json_parse(strbuf_text(&text), text.len, &JSON_LIMITS_DEFAULT, &doc, NULL), 0);
            check_described(page, doc);
            char title[64];
            (void)snprintf(title, sizeof title, "\n.Ss %s (", wire_kind_name(m.kind));
            cr_assert_not_null(strstr(page, title), "%s", title);
        }
    }
    free(page);
}
