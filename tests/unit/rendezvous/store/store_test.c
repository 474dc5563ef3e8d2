#include "rendezvous/store/store.h"

#include <inttypes.h>

#include "base/text/strbuf.h"
#include "rig/unit.h"

static struct store *store;
static struct store_update update;
static struct strbuf text;
static const char *refusal;
static struct store_client clients[100];

static void set_up(void) {
    struct store_limits limits = STORE_LIMITS_DEFAULT;
    store = store_new(&limits, 7);
}
static void end_store(void) {
    for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
        store_forget(store, &clients[i], &update);
    store_free(store);
}
static void tear_down(void) {
    end_store();
    store_update_fini(&update);
    strbuf_fini(&text);
}
TestSuite(store, .init = set_up, .fini = tear_down);

static void add_value(const struct store_value *v) {
    strbuf_add_char(&text, '"');
    if (v != NULL)
        strbuf_add_bytes(&text, v->data, v->len);
    strbuf_add_char(&text, '"');
}

/* The replies as text: "0:1" is a byte or number for client 0, 0:"v" a value, 0:["a""b"] a list. */
static const char *take_replies(void) {
    strbuf_clear(&text);
    for (size_t i = 0; i < update.n_replies; i++) {
        const struct store_reply *r = &update.replies[i];
        strbuf_printf(&text, "%s%u:", i > 0 ? " " : "", (unsigned)(r->client - clients));
        switch (r->kind) {
        case STORE_REPLY_U8: strbuf_printf(&text, "b%u", r->u8); break;
        case STORE_REPLY_U32: strbuf_printf(&text, "n%u", r->u32); break;
        case STORE_REPLY_I64: strbuf_printf(&text, "%" PRId64, r->i64); break;
        case STORE_REPLY_VALUE: add_value(r->value); break;
        case STORE_REPLY_LIST:
            strbuf_add_char(&text, '[');
            for (size_t j = 0; j < r->list.count; j++)
                add_value(update.values[r->list.first + j]);
            strbuf_add_char(&text, ']');
            break;
        }
    }
    store_update_clear(&update);
    store_check(store);
    return strbuf_text(&text);
}

static struct store_span span_of(const char *s, size_t len) { return (struct store_span){(const uint8_t *)s, len}; }

static const char *run(struct store_request *req) {
    int r = store_step(store, req, &update);
    if (r == 0)
        return take_replies();
    cr_assert_eq(r, STORE_REFUSED);
    cr_assert_eq(update.n_replies, 0);
    refusal = update.refusal;
    store_update_clear(&update);
    store_check(store);
    return "refused";
}

/* Keys and values are lists with commas; NULL is none. */
static const char *ask(uint32_t client, enum store_op op, const char *keys, const char *values, int64_t number) {
    struct store_span k[16];
    struct store_span v[16];
    struct store_request req = {
        .client = &clients[client], .op = op, .number = number, .nonce = (uint32_t)number, .keys = k, .values = v};
    while (keys != NULL) {
        size_t n = strcspn(keys, ",");
        k[req.n_keys++] = span_of(keys, n);
        keys = keys[n] == ',' ? keys + n + 1 : NULL;
    }
    while (values != NULL) {
        size_t n = strcspn(values, ",");
        v[req.n_values++] = span_of(values, n);
        values = values[n] == ',' ? values + n + 1 : NULL;
    }
    return run(&req);
}

static const char *set(uint32_t c, const char *k, const char *v) { return ask(c, STORE_OP_SET, k, v, 0); }
static const char *get(uint32_t c, const char *k) { return ask(c, STORE_OP_GET, k, NULL, 0); }
static const char *add(uint32_t c, const char *k, int64_t n) { return ask(c, STORE_OP_ADD, k, NULL, n); }
static const char *wait_key(uint32_t c, const char *k) { return ask(c, STORE_OP_WAIT, k, NULL, 0); }
static const char *check(uint32_t c, const char *k) { return ask(c, STORE_OP_CHECK, k, NULL, 0); }
static const char *cancel(uint32_t c) { return ask(c, STORE_OP_CANCEL_WAIT, NULL, NULL, 0); }
static const char *push(uint32_t c, const char *k, const char *v) { return ask(c, STORE_OP_QUEUE_PUSH, k, v, 0); }
static const char *pop(uint32_t c, const char *k) { return ask(c, STORE_OP_QUEUE_POP, k, NULL, 0); }
static const char *barrier(uint32_t c, const char *k, int64_t n) { return ask(c, STORE_OP_BARRIER, k, NULL, n); }
static const char *compare_set(const char *k, const char *expected_desired) {
    return ask(0, STORE_OP_COMPARE_SET, k, expected_desired, 0);
}
static const char *forget(uint32_t c) {
    store_forget(store, &clients[c], &update);
    return take_replies();
}
#define EXPECT(call, want) cr_assert_str_eq(call, want)

Test(store, set_has_no_reply_and_get_returns_it) {
    EXPECT(set(0, "k", "v"), "");
    EXPECT(get(1, "k"), "1:\"v\"");
    EXPECT(set(0, "k", "longer than before"), "");
    EXPECT(get(1, "k"), "1:\"longer than before\"");
}

Test(store, overwrites_with_shorter_and_empty_values) {
    EXPECT(set(0, "k", "abcdef"), "");
    EXPECT(set(0, "k", "xy"), "");
    EXPECT(get(0, "k"), "0:\"xy\"");
    EXPECT(set(0, "k", ""), "");
    EXPECT(get(0, "k"), "0:\"\"");
    EXPECT(check(0, "k"), "0:b0");
}

Test(store, a_value_that_is_being_sent_does_not_change_when_overwritten) {
    struct store_span k = span_of("k", 1);
    struct store_request req = {.client = clients, .op = STORE_OP_GET, .keys = &k, .n_keys = 1};
    EXPECT(set(0, "k", "old"), "");
    cr_assert_eq(store_step(store, &req, &update), 0);
    struct store_value *kept = store_value_ref(update.replies[0].value);
    store_update_clear(&update);
    EXPECT(set(0, "k", "new"), "");
    EXPECT(ask(0, STORE_OP_APPEND, "k", "er", 0), "");
    cr_assert_arr_eq(kept->data, "old", 3);
    EXPECT(get(0, "k"), "0:\"newer\"");
    store_value_unref(kept);
}

Test(store, get_of_a_missing_key_is_empty) {
    EXPECT(get(0, "no"), "0:\"\"");
    EXPECT(ask(0, STORE_OP_MULTI_GET, "no,no", NULL, 0), "0:[\"\"\"\"]");
}

Test(store, keys_are_bytes_and_may_be_empty) {
    struct store_span k[2] = {span_of("a\0b", 3), span_of("a\0c", 3)};
    struct store_span v[2] = {span_of("1", 1), span_of("2", 1)};
    struct store_request req = {
        .client = clients, .op = STORE_OP_MULTI_SET, .keys = k, .n_keys = 2, .values = v, .n_values = 2};
    EXPECT(run(&req), "");
    req.op = STORE_OP_MULTI_GET;
    EXPECT(run(&req), "0:[\"1\"\"2\"]");
    EXPECT(set(0, "", "empty"), "");
    EXPECT(get(0, ""), "0:\"empty\"");
    EXPECT(ask(0, STORE_OP_GETNUMKEYS, NULL, NULL, 0), "0:3");
}

Test(store, compare_set_has_its_four_cases) {
    EXPECT(compare_set("k", "old,new"), "0:\"old\""); /* missing, something expected: a lie */
    EXPECT(check(0, "k"), "0:b1");
    EXPECT(compare_set("k", ",first"), "0:\"first\"");
    EXPECT(compare_set("k", "first,second"), "0:\"second\"");
    EXPECT(compare_set("k", "first,third"), "0:\"second\"");
    EXPECT(compare_set("k", ",third"), "0:\"second\"");
    EXPECT(get(0, "k"), "0:\"second\"");
}

Test(store, compare_set_wakes_only_if_the_key_exists_afterwards) {
    EXPECT(wait_key(1, "k"), "");
    EXPECT(compare_set("k", "old,new"), "0:\"old\"");
    EXPECT(compare_set("k", ",new"), "1:b0 0:\"new\"");
    EXPECT(barrier(2, "n", 9), "");
    EXPECT(compare_set("n", "x,y"), "0:\"1\" 2:b0");
}

struct number_row {
    const char *text;
    int64_t delta;
    const char *reply;
};

Test(store, add_reads_numbers_as_strtoll_does) {
    static const struct number_row rows[] = {
        {"7", 1, "0:8"},
        {"-2", 1, "0:-1"},
        {"+5", 0, "0:5"},
        {" \t\n 7", 1, "0:8"},
        {"12abc", 1, "0:13"},
        {"0x10", 1, "0:1"},
        {"007", 1, "0:8"},
        {"9223372036854775807", 0, "0:9223372036854775807"},
        {"9223372036854775807", 1, "0:-9223372036854775808"},
        {"-9223372036854775808", -1, "0:9223372036854775807"},
        {"9223372036854775808", 0, "refused"},
        {"-9223372036854775809", 0, "refused"},
        {"", 1, "refused"},
        {" ", 1, "refused"},
        {"-", 1, "refused"},
        {"- 1", 1, "refused"},
        {"abc", 1, "refused"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        EXPECT(set(0, "k", rows[i].text), "");
        cr_assert_str_eq(add(0, "k", rows[i].delta), rows[i].reply, "row %zu \"%s\"", i, rows[i].text);
        if (strcmp(rows[i].reply, "refused") == 0)
            EXPECT(get(0, "k"), rig_text("0:\"%s\"", rows[i].text));
    }
}

Test(store, add_does_not_search_a_long_value_for_its_number) {
    static char blanks[256 + 2];
    memset(blanks, ' ', sizeof blanks - 1);
    blanks[250] = '4';
    EXPECT(set(0, "k", blanks), "");
    EXPECT(add(0, "k", 1), "0:5");
    memset(blanks, '0', sizeof blanks - 1);
    EXPECT(set(0, "k", blanks), "");
    EXPECT(add(0, "k", 1), "refused");
}

Test(store, add_stores_decimal_text_and_wakes) {
    EXPECT(wait_key(1, "n"), "");
    EXPECT(add(0, "n", -2), "0:-2 1:b0");
    EXPECT(get(0, "n"), "0:\"-2\"");
    EXPECT(add(0, "n", 0), "0:-2");
}

Test(store, check_is_ready_when_every_key_is_there) {
    EXPECT(check(0, NULL), "0:b0");
    EXPECT(set(0, "a", "1"), "");
    EXPECT(check(0, "a"), "0:b0");
    EXPECT(check(0, "a,b"), "0:b1");
    EXPECT(push(0, "b", "x"), "");
    EXPECT(check(0, "a,b,a"), "0:b0");
}

Test(store, counts_keys_but_not_queues_or_waited_ones) {
    EXPECT(set(0, "init/", "1"), "");
    EXPECT(push(0, "q", "x"), "");
    EXPECT(wait_key(1, "w"), "");
    EXPECT(ask(0, STORE_OP_GETNUMKEYS, NULL, NULL, 0), "0:1");
    EXPECT(ask(0, STORE_OP_LIST_KEYS, NULL, NULL, 0), "0:1 0:[\"init/\"]");
    EXPECT(ask(0, STORE_OP_DELETE_KEY, "init/", NULL, 0), "0:1");
    EXPECT(ask(0, STORE_OP_DELETE_KEY, "init/", NULL, 0), "0:0");
    EXPECT(ask(0, STORE_OP_LIST_KEYS, NULL, NULL, 0), "0:0 0:[]");
}

Test(store, delete_leaves_queues_and_waiters_alone) {
    EXPECT(push(0, "k", "x"), "");
    EXPECT(set(0, "k", "v"), "");
    EXPECT(barrier(1, "n", 2), "");
    EXPECT(ask(0, STORE_OP_DELETE_KEY, "k", NULL, 0), "0:1");
    EXPECT(ask(0, STORE_OP_DELETE_KEY, "n", NULL, 0), "0:1");
    EXPECT(pop(0, "k"), "0:1 0:\"x\"");
    EXPECT(set(0, "n", ""), "1:b0");
}

Test(store, append_creates_extends_and_wakes) {
    EXPECT(wait_key(1, "k"), "");
    EXPECT(ask(0, STORE_OP_APPEND, "k", "ab", 0), "1:b0");
    for (int i = 0; i < 3; i++)
        EXPECT(ask(0, STORE_OP_APPEND, "k", "cd", 0), "");
    EXPECT(ask(0, STORE_OP_APPEND, "k", "", 0), "");
    EXPECT(get(0, "k"), "0:\"abcdcdcd\"");
}

Test(store, multi_set_and_multi_get_keep_the_order) {
    EXPECT(wait_key(1, "b,a"), "");
    EXPECT(ask(0, STORE_OP_MULTI_SET, "a,b,a", "1,2,3", 0), "1:b0");
    EXPECT(ask(0, STORE_OP_MULTI_GET, "b,a,no,b", NULL, 0), "0:[\"2\"\"3\"\"\"\"2\"]");
    EXPECT(ask(0, STORE_OP_MULTI_SET, NULL, NULL, 0), "");
    EXPECT(ask(0, STORE_OP_MULTI_GET, NULL, NULL, 0), "0:[]");
}

Test(store, wait_is_answered_once_when_all_keys_are_there) {
    EXPECT(wait_key(0, NULL), "0:b0");
    EXPECT(wait_key(0, "a,b"), "");
    EXPECT(set(1, "a", ""), "");
    EXPECT(set(1, "a", "again"), "");
    EXPECT(set(1, "b", ""), "0:b0");
    EXPECT(set(1, "b", ""), "");
    EXPECT(wait_key(0, "a,b"), "0:b0");
}

Test(store, one_set_wakes_all_who_wait) {
    for (uint32_t c = 1; c < 5; c++)
        EXPECT(wait_key(c, "k"), "");
    EXPECT(set(0, "k", "v"), "1:b0 2:b0 3:b0 4:b0");
}

Test(store, duplicate_keys_in_a_wait_count_once) {
    EXPECT(wait_key(0, "k,k,k"), "");
    EXPECT(set(1, "k", ""), "0:b0");
    EXPECT(wait_key(0, "q,q"), "");
    EXPECT(push(1, "q", "x"), "0:b0");
}

Test(store, a_key_set_and_deleted_before_the_wait_ends_counts) {
    EXPECT(wait_key(0, "a,b"), "");
    EXPECT(set(1, "a", ""), "");
    EXPECT(ask(1, STORE_OP_DELETE_KEY, "a", NULL, 0), "1:1");
    EXPECT(set(1, "b", ""), "0:b0");
}

Test(store, cancel_is_always_answered_and_nothing_follows_it) {
    EXPECT(cancel(0), "0:b1");
    EXPECT(wait_key(0, "k"), "");
    EXPECT(cancel(0), "0:b1");
    EXPECT(set(1, "k", ""), "");
    EXPECT(wait_key(0, "other"), "");
    EXPECT(set(1, "other", ""), "0:b0");
    EXPECT(cancel(0), "0:b1"); /* it crossed the answer */
}

Test(store, a_second_wait_replaces_the_first) {
    EXPECT(wait_key(0, "a"), "");
    EXPECT(wait_key(0, "b"), "");
    EXPECT(set(1, "a", ""), "");
    EXPECT(set(1, "b", ""), "0:b0");
}

Test(store, ping_is_answered_while_waiting) {
    EXPECT(wait_key(0, "k"), "");
    EXPECT(ask(0, STORE_OP_PING, NULL, NULL, 4242), "0:n4242");
    EXPECT(set(1, "k", ""), "0:b0");
}

Test(store, a_client_that_is_gone_is_not_answered) {
    EXPECT(wait_key(3, "k"), "");
    EXPECT(forget(3), "");
    EXPECT(set(0, "k", ""), "");
    EXPECT(wait_key(3, "k"), "3:b0");
    EXPECT(forget(99), "");
}

Test(store, queues_are_first_in_first_out) {
    EXPECT(pop(0, "q"), "0:0");
    EXPECT(ask(0, STORE_OP_QUEUE_LEN, "q", NULL, 0), "0:0");
    EXPECT(push(0, "q", "a"), "");
    EXPECT(push(0, "q", ""), "");
    EXPECT(push(0, "q", "c"), "");
    EXPECT(ask(0, STORE_OP_QUEUE_LEN, "q", NULL, 0), "0:3");
    EXPECT(pop(0, "q"), "0:3 0:\"a\"");
    EXPECT(pop(0, "q"), "0:2 0:\"\"");
    EXPECT(pop(0, "q"), "0:1 0:\"c\"");
    EXPECT(pop(0, "q"), "0:0");
    EXPECT(get(0, "q"), "0:\"\"");
}

Test(store, a_push_wakes_one_whose_wait_it_completes) {
    EXPECT(wait_key(1, "q,x"), "");
    EXPECT(wait_key(2, "q"), "");
    EXPECT(wait_key(3, "q"), "");
    EXPECT(push(0, "q", "a"), "2:b0");
    EXPECT(push(0, "q", "b"), "3:b0");
    EXPECT(set(0, "x", ""), "1:b0"); /* something is in the queue still */
}

Test(store, a_queue_counts_only_while_it_holds_something) {
    EXPECT(wait_key(1, "q,x"), "");
    EXPECT(push(0, "q", "a"), "");
    EXPECT(pop(0, "q"), "0:1 0:\"a\"");
    EXPECT(set(0, "x", ""), "");
    EXPECT(push(0, "q", "b"), "1:b0");
}

Test(store, who_is_woken_by_a_push_and_cancels_passes_it_on) {
    EXPECT(wait_key(1, "q"), "");
    EXPECT(wait_key(2, "q"), "");
    EXPECT(wait_key(3, "q"), "");
    EXPECT(push(0, "q", "a"), "1:b0");
    EXPECT(cancel(1), "2:b0 1:b1");
    EXPECT(forget(2), "3:b0");
    EXPECT(pop(3, "q"), "3:1 3:\"a\"");
    EXPECT(cancel(3), "3:b1");
}

Test(store, a_barrier_releases_all_when_the_last_arrives) {
    EXPECT(barrier(0, "n", 3), "");
    EXPECT(barrier(1, "n", 3), "");
    EXPECT(barrier(2, "n", 3), "2:b0 0:b0 1:b0");
    EXPECT(barrier(0, "n", 3), "0:b0"); /* not reset */
    EXPECT(get(0, "n"), "0:\"4\"");
    EXPECT(barrier(0, "one", 1), "0:b0");
    EXPECT(barrier(0, "none", 0), "0:b0");
    EXPECT(barrier(0, "less", -1), "0:b0");
}

Test(store, a_cancelled_barrier_stays_counted) {
    EXPECT(barrier(0, "n", 2), "");
    EXPECT(cancel(0), "0:b1");
    EXPECT(get(0, "n"), "0:\"1\"");
    EXPECT(barrier(1, "n", 2), "1:b0");
}

Test(store, a_barrier_is_released_by_a_set_but_not_by_a_push_or_another_arrival) {
    EXPECT(barrier(0, "n", 9), "");
    EXPECT(push(1, "n", "x"), "");
    EXPECT(barrier(1, "n", 9), "");
    EXPECT(set(2, "n", "0"), "0:b0 1:b0");
    EXPECT(barrier(0, "n", 9), "");
    EXPECT(add(2, "n", 1), "2:2 0:b0");
}

Test(store, a_plain_waiter_is_not_woken_by_an_arrival_that_completes_nothing) {
    EXPECT(wait_key(0, "n"), "");
    EXPECT(barrier(1, "n", 2), "");
    EXPECT(wait_key(2, "n"), "2:b0");
    EXPECT(barrier(2, "n", 2), "2:b0 0:b0 1:b0");
}

Test(store, a_barrier_on_a_non_number_is_refused) {
    EXPECT(set(0, "n", "x"), "");
    EXPECT(barrier(1, "n", 2), "refused");
    cr_assert_str_eq(refusal, "the value is not a number");
    EXPECT(get(0, "n"), "0:\"x\"");
}

Test(store, validate_is_no_operation_of_the_engine) { EXPECT(ask(0, STORE_OP_VALIDATE, NULL, NULL, 0), "refused"); }

static const struct store_limits small = {.key_bytes = 8, .value_bytes = 10, .request_keys = 8, .store_bytes = 1000};
static void use_small(void) {
    end_store();
    store = store_new(&small, 7);
}

Test(store, append_stops_at_the_largest_value) {
    use_small();
    EXPECT(set(0, "k", "12345"), "");
    EXPECT(ask(0, STORE_OP_APPEND, "k", "123456", 0), "refused");
    EXPECT(ask(0, STORE_OP_APPEND, "k", "12345", 0), "");
    EXPECT(ask(0, STORE_OP_APPEND, "k", "1", 0), "refused");
    EXPECT(get(0, "k"), "0:\"1234512345\"");
}

/* Fills the store but for `room` bytes: "old" holds "12", and "fill" all the rest. */
static void fill_but(uint64_t room) {
    static char big[1000];
    size_t len = (size_t)(small.store_bytes - 2 * (STORE_COST_KEY + STORE_COST_VALUE) - 3 - 2 - 4 - room);
    memset(big, 'x', len);
    big[len] = '\0';
    EXPECT(set(9, "old", "12"), "");
    EXPECT(set(9, "fill", big), "");
    cr_assert_eq(store_bytes(store), small.store_bytes - room);
}

struct cost_row {
    enum store_op op;
    const char *keys, *values;
    uint64_t cost;
};

/* Each row fits when there is just room for it, and not with one byte less. */
Test(store, nothing_is_stored_beyond_the_limit) {
    use_small();
    enum { KEY = STORE_COST_KEY, VALUE = STORE_COST_VALUE, WAIT = STORE_COST_WAIT };
    static const struct cost_row rows[] = {
        {STORE_OP_SET, "k", "abc", KEY + 1 + VALUE + 3},
        {STORE_OP_SET, "old", "12abc", 3},
        {STORE_OP_COMPARE_SET, "k", ",abc", KEY + 1 + VALUE + 3},
        {STORE_OP_COMPARE_SET, "old", "12,12abc", 3},
        {STORE_OP_APPEND, "k", "abc", KEY + 1 + VALUE + 3},
        {STORE_OP_APPEND, "old", "abc", 3},
        {STORE_OP_QUEUE_PUSH, "k", "abc", KEY + 1 + VALUE + 3},
        {STORE_OP_QUEUE_PUSH, "fill", "", VALUE},
        {STORE_OP_MULTI_SET, "k,m", "abc,", 2 * KEY + 2 + 2 * VALUE + 3},
        {STORE_OP_MULTI_SET, "old", "12abc", KEY + 3 + VALUE + 5},
        {STORE_OP_ADD, "k", NULL, KEY + 1 + VALUE + 24},
        {STORE_OP_ADD, "old", NULL, VALUE + 24},
        {STORE_OP_WAIT, "k,m", NULL, 2 * KEY + 2 + 2 * WAIT},
        {STORE_OP_BARRIER, "k", NULL, KEY + 1 + VALUE + 24 + WAIT},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        fill_but(rows[i].cost - 1);
        cr_assert_str_eq(ask(0, rows[i].op, rows[i].keys, rows[i].values, 100), "refused",
                         "row %zu fits in one byte less", i);
        cr_assert_str_eq(refusal, "the store is full");
        cr_assert_eq(store_bytes(store), small.store_bytes - rows[i].cost + 1, "row %zu", i);
        fill_but(rows[i].cost);
        cr_assert_str_neq(ask(0, rows[i].op, rows[i].keys, rows[i].values, 100), "refused", "row %zu", i);
        use_small();
    }
}

Test(store, what_is_deleted_or_popped_is_room_again) {
    use_small();
    for (int i = 0; i < 100; i++) {
        EXPECT(set(0, "k", "v"), "");
        EXPECT(push(0, "q", "v"), "");
        EXPECT(wait_key(0, "a,b,c"), "");
        EXPECT(cancel(0), "0:b1");
        EXPECT(pop(0, "q"), "0:1 0:\"v\"");
        EXPECT(ask(0, STORE_OP_DELETE_KEY, "k", NULL, 0), "0:1");
        cr_assert_eq(store_bytes(store), 0);
    }
}

Test(store, bytes_held_for_requests_count_with_the_stored_ones) {
    use_small();
    fill_but(100);
    cr_assert(store_hold(store, 100));
    cr_assert_not(store_hold(store, 1));
    EXPECT(push(0, "fill", ""), "refused");
    store_release(store, 100);
    EXPECT(push(0, "fill", ""), "");
}

Test(store, many_keys_are_found_again) {
    char name[32];
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof name, "key %d", i);
        struct store_span k = span_of(name, strlen(name));
        struct store_request req = {
            .client = clients, .op = STORE_OP_SET, .keys = &k, .n_keys = 1, .values = &k, .n_values = 1};
        cr_assert_eq(store_step(store, &req, &update), 0);
    }
    EXPECT(get(0, "key 0"), "0:\"key 0\"");
    EXPECT(get(0, "key 4999"), "0:\"key 4999\"");
    cr_assert_eq(store_num_keys(store), 5000);
}

/* Random requests: every wait is answered at most once, and the sums stay right. */
Test(store, holds_its_invariants_under_random_requests) {
    static const char *const names[] = {"a", "b", "q", "a,b", "q,a", "q,q,b"};
    static const enum store_op ops[] = {
        STORE_OP_SET,       STORE_OP_COMPARE_SET, STORE_OP_GET,        STORE_OP_CHECK,      STORE_OP_WAIT,
        STORE_OP_WAIT,      STORE_OP_WAIT,        STORE_OP_DELETE_KEY, STORE_OP_DELETE_KEY, STORE_OP_APPEND,
        STORE_OP_MULTI_GET, STORE_OP_CANCEL_WAIT, STORE_OP_QUEUE_PUSH, STORE_OP_QUEUE_POP,  STORE_OP_QUEUE_POP,
        STORE_OP_BARRIER,   STORE_OP_LIST_KEYS,   STORE_OP_QUEUE_LEN,
    };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct store_limits limits = {.value_bytes = 50, .store_bytes = 3000};
        uint64_t x = seed;
        bool waiting[4] = {false};
        end_store();
        store = store_new(&limits, seed);
        for (int i = 0; i < 2000; i++) {
            x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            uint32_t client = (uint32_t)(x >> 33) % 4;
            enum store_op op = ops[(x >> 40) % ARRAY_SIZE(ops)];
            bool many = op == STORE_OP_WAIT || op == STORE_OP_CHECK || op == STORE_OP_MULTI_GET;
            const char *replies = ask(client, op, names[(x >> 50) % (many ? 6 : 3)], "3,4", (int64_t)(x >> 60));
            if (op == STORE_OP_WAIT || op == STORE_OP_BARRIER)
                waiting[client] = strcmp(replies, "refused") != 0;
            for (uint32_t c = 0; c < 4; c++) {
                if (strstr(replies, rig_text("%u:b0", c)) == NULL || (c == client && op == STORE_OP_CHECK))
                    continue;
                cr_assert(waiting[c], "seed %" PRIu64 " step %d: %s", seed, i, replies);
                waiting[c] = false;
            }
            if (op == STORE_OP_CANCEL_WAIT)
                waiting[client] = false;
        }
    }
}
