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
    store_update_clear(&update);
    store_free(store);
}
static void tear_down(void) {
    end_store();
    store_update_fini(&update);
    strbuf_fini(&text);
}
TestSuite(store, .init = set_up, .fini = tear_down);

static void add_value(const struct store_value *v) {
    strbuf_add_char(&text, '\'');
    if (v != NULL)
        strbuf_add_bytes(&text, v->data, v->len);
    strbuf_add_char(&text, '\'');
}

/* The replies as text: "0:1" is a number for client 0, "0:b1" a byte, "0:'v'" a value, "0:['a''b']" a list. */
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

static const char *text_of(const char *word) {
    return strcmp(word, "-") == 0 ? NULL : strcmp(word, "''") == 0 ? "" : word;
}

static const char *playing = "";

/* Requests, separated by ";", each with all the replies to it: "0 SET k v; 1 GET k = 1:'v'". A number is the client;
 * keys and values are as in ask(), but "-" is none and "''" an empty text. "1 leaves": that client is gone. */
static void play(const char *story) {
    char copy[1024], *rest = copy;
    cr_assert_lt(snprintf(copy, sizeof copy, "%s", story), (int)sizeof copy);
    for (char *line; (line = strsep(&rest, ";")) != NULL;) {
        char words[3][32] = {"", "-", "-"}, *replies = strstr(line, " = ");
        unsigned client, op = 0;
        if (replies != NULL)
            *replies = '\0';
        cr_assert_geq(sscanf(line, "%u %31s %31s %31s", &client, words[0], words[1], words[2]), 2, "%s", line);
        while (op < STORE_OP_COUNT && strcmp(store_op_name(op), words[0]) != 0)
            op++;
        if (op == STORE_OP_COUNT) {
            cr_assert_str_eq(words[0], "leaves");
            store_forget(store, &clients[client], &update);
        }
        const char *got = op == STORE_OP_COUNT ? take_replies()
                                               : ask(client, (enum store_op)op, text_of(words[1]), text_of(words[2]),
                                                     strtoll(words[2], NULL, 10));
        cr_assert_str_eq(got, replies != NULL ? replies + 3 : "", "%s:%s: %s", playing, line, got);
    }
}
#define EXPECT(call, want) cr_assert_str_eq(call, want)

static const struct {
    const char *name, *story;
} stories[] = {
    {"set has no reply, and get returns it",
     "0 SET k v; 1 GET k = 1:'v'; 0 SET k longer-than-before; 1 GET k = 1:'longer-than-before'"},
    {"overwrites with shorter and empty values",
     "0 SET k abcdef; 0 SET k xy; 0 GET k = 0:'xy'; 0 SET k ''; 0 GET k = 0:''; 0 CHECK k = 0:b0"},
    {"get of a missing key is empty", "0 GET no = 0:''; 0 MULTI_GET no,no = 0:['''']"},
    /* that of a missing key with something expected is a lie */
    {"compare set has its four cases",
     "0 COMPARE_SET k old,new = 0:'old'; 0 CHECK k = 0:b1; 0 COMPARE_SET k ,first = 0:'first'; "
     "0 COMPARE_SET k first,second = 0:'second'; 0 COMPARE_SET k first,third = 0:'second'; "
     "0 COMPARE_SET k ,third = 0:'second'; 0 GET k = 0:'second'"},
    {"compare set wakes only if the key exists afterwards",
     "1 WAIT k; 0 COMPARE_SET k old,new = 0:'old'; 0 COMPARE_SET k ,new = 1:b0 0:'new'; "
     "2 BARRIER n 9; 0 COMPARE_SET n x,y = 0:'1' 2:b0"},
    {"add stores decimal text and wakes", "1 WAIT n; 0 ADD n -2 = 0:-2 1:b0; 0 GET n = 0:'-2'; 0 ADD n 0 = 0:-2"},
    {"check is ready when every key is there",
     "0 CHECK = 0:b0; 0 SET a 1; 0 CHECK a = 0:b0; 0 CHECK a,b = 0:b1; 0 QUEUE_PUSH b x; "
     "0 CHECK a,b,a = 0:b0"},
    {"counts keys, but not queues or waited ones",
     "0 SET init/ 1; 0 QUEUE_PUSH q x; 1 WAIT w; 0 GETNUMKEYS = 0:1; "
     "0 LIST_KEYS = 0:1 0:['init/']; 0 DELETE_KEY init/ = 0:1; 0 DELETE_KEY init/ = 0:0; "
     "0 LIST_KEYS = 0:0 0:[]"},
    {"delete leaves queues and waiters alone",
     "0 QUEUE_PUSH k x; 0 SET k v; 1 BARRIER n 2; 0 DELETE_KEY k = 0:1; 0 DELETE_KEY n = 0:1; "
     "0 QUEUE_POP k = 0:1 0:'x'; 0 SET n '' = 1:b0"},
    {"append creates, extends and wakes",
     "1 WAIT k; 0 APPEND k ab = 1:b0; 0 APPEND k cd; 0 APPEND k cd; 0 APPEND k cd; "
     "0 APPEND k ''; 0 GET k = 0:'abcdcdcd'"},
    {"multi set and multi get keep the order",
     "1 WAIT b,a; 0 MULTI_SET a,b,a 1,2,3 = 1:b0; 0 MULTI_GET b,a,no,b = 0:['2''3''''2']; "
     "0 MULTI_SET; 0 MULTI_GET = 0:[]"},
    {"wait is answered once when all keys are there",
     "0 WAIT = 0:b0; 0 WAIT a,b; 1 SET a ''; 1 SET a again; 1 SET b '' = 0:b0; 1 SET b ''; "
     "0 WAIT a,b = 0:b0"},
    {"one set wakes all who wait", "1 WAIT k; 2 WAIT k; 3 WAIT k; 4 WAIT k; 0 SET k v = 1:b0 2:b0 3:b0 4:b0"},
    {"duplicate keys in a wait count once", "0 WAIT k,k,k; 1 SET k '' = 0:b0; 0 WAIT q,q; 1 QUEUE_PUSH q x = 0:b0"},
    {"a key set and deleted before the wait ends counts",
     "0 WAIT a,b; 1 SET a ''; 1 DELETE_KEY a = 1:1; 1 SET b '' = 0:b0"},
    /* the last one crossed the answer */
    {"cancel is always answered, and nothing follows it",
     "0 CANCEL_WAIT = 0:b1; 0 WAIT k; 0 CANCEL_WAIT = 0:b1; 1 SET k ''; 0 WAIT other; "
     "1 SET other '' = 0:b0; 0 CANCEL_WAIT = 0:b1"},
    {"a second wait replaces the first", "0 WAIT a; 0 WAIT b; 1 SET a ''; 1 SET b '' = 0:b0"},
    {"ping is answered while waiting", "0 WAIT k; 0 PING - 4242 = 0:n4242; 1 SET k '' = 0:b0"},
    {"a client that is gone is not answered", "3 WAIT k; 3 leaves; 0 SET k ''; 3 WAIT k = 3:b0; 99 leaves"},
    {"queues are first in first out",
     "0 QUEUE_POP q = 0:0; 0 QUEUE_LEN q = 0:0; 0 QUEUE_PUSH q a; 0 QUEUE_PUSH q ''; "
     "0 QUEUE_PUSH q c; 0 QUEUE_LEN q = 0:3; 0 QUEUE_POP q = 0:3 0:'a'; "
     "0 QUEUE_POP q = 0:2 0:''; 0 QUEUE_POP q = 0:1 0:'c'; 0 QUEUE_POP q = 0:0; 0 GET q = 0:''"},
    /* at the end something is in the queue still */
    {"a push wakes one whose wait it completes",
     "1 WAIT q,x; 2 WAIT q; 3 WAIT q; 0 QUEUE_PUSH q a = 2:b0; 0 QUEUE_PUSH q b = 3:b0; "
     "0 SET x '' = 1:b0"},
    {"a queue counts only while it holds something",
     "1 WAIT q,x; 0 QUEUE_PUSH q a; 0 QUEUE_POP q = 0:1 0:'a'; 0 SET x ''; "
     "0 QUEUE_PUSH q b = 1:b0"},
    {"who is woken by a push and cancels passes it on",
     "1 WAIT q; 2 WAIT q; 3 WAIT q; 0 QUEUE_PUSH q a = 1:b0; 1 CANCEL_WAIT = 2:b0 1:b1; "
     "2 leaves = 3:b0; 3 QUEUE_POP q = 3:1 3:'a'; 3 CANCEL_WAIT = 3:b1"},
    /* it is not reset */
    {"a barrier releases all when the last arrives",
     "0 BARRIER n 3; 1 BARRIER n 3; 2 BARRIER n 3 = 2:b0 0:b0 1:b0; 0 BARRIER n 3 = 0:b0; "
     "0 GET n = 0:'4'; 0 BARRIER one 1 = 0:b0; 0 BARRIER none 0 = 0:b0; 0 BARRIER less -1 = 0:b0"},
    {"a cancelled barrier stays counted", "0 BARRIER n 2; 0 CANCEL_WAIT = 0:b1; 0 GET n = 0:'1'; 1 BARRIER n 2 = 1:b0"},
    {"a barrier is released by a set, but not by a push or another arrival",
     "0 BARRIER n 9; 1 QUEUE_PUSH n x; 1 BARRIER n 9; 2 SET n 0 = 0:b0 1:b0; 0 BARRIER n 9; "
     "2 ADD n 1 = 2:2 0:b0"},
    {"a plain waiter is not woken by an arrival that completes nothing",
     "0 WAIT n; 1 BARRIER n 2; 2 WAIT n = 2:b0; 2 BARRIER n 2 = 2:b0 0:b0 1:b0"},
    {"validate is no operation of the engine", "0 VALIDATE = refused"},
};

Test(store, requests_have_their_replies) {
    for (size_t i = 0; i < ARRAY_SIZE(stories); i++) {
        playing = stories[i].name;
        play(stories[i].story);
        end_store();
        set_up();
    }
}

Test(store, a_value_that_is_being_sent_does_not_change_when_overwritten) {
    struct store_span k = span_of("k", 1);
    struct store_request req = {.client = clients, .op = STORE_OP_GET, .keys = &k, .n_keys = 1};
    play("0 SET k old");
    cr_assert_eq(store_step(store, &req, &update), 0);
    struct store_value *kept = store_value_ref(update.replies[0].value);
    store_update_clear(&update);
    play("0 SET k new; 0 APPEND k er");
    cr_assert_arr_eq(kept->data, "old", 3);
    play("0 GET k = 0:'newer'");
    store_value_unref(kept);
}

Test(store, keys_are_bytes_and_may_be_empty) {
    struct store_span k[2] = {span_of("a\0b", 3), span_of("a\0c", 3)};
    struct store_span v[2] = {span_of("1", 1), span_of("2", 1)};
    struct store_request req = {
        .client = clients, .op = STORE_OP_MULTI_SET, .keys = k, .n_keys = 2, .values = v, .n_values = 2};
    EXPECT(run(&req), "");
    req.op = STORE_OP_MULTI_GET;
    EXPECT(run(&req), "0:['1''2']");
    play("0 SET '' empty; 0 GET '' = 0:'empty'; 0 GETNUMKEYS = 0:3");
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
        EXPECT(ask(0, STORE_OP_SET, "k", rows[i].text, 0), "");
        cr_assert_str_eq(ask(0, STORE_OP_ADD, "k", NULL, rows[i].delta), rows[i].reply, "row %zu '%s'", i,
                         rows[i].text);
        if (strcmp(rows[i].reply, "refused") == 0)
            EXPECT(ask(0, STORE_OP_GET, "k", NULL, 0), rig_text("0:'%s'", rows[i].text));
    }
}

Test(store, add_does_not_search_a_long_value_for_its_number) {
    static char blanks[256 + 2];
    memset(blanks, ' ', sizeof blanks - 1);
    blanks[250] = '4';
    EXPECT(ask(0, STORE_OP_SET, "k", blanks, 0), "");
    play("0 ADD k 1 = 0:5");
    memset(blanks, '0', sizeof blanks - 1);
    EXPECT(ask(0, STORE_OP_SET, "k", blanks, 0), "");
    play("0 ADD k 1 = refused");
}

Test(store, a_barrier_on_a_non_number_is_refused) {
    play("0 SET n x; 1 BARRIER n 2 = refused");
    cr_assert_str_eq(refusal, "the value is not a number");
    play("0 GET n = 0:'x'");
}

static const struct store_limits small = {.key_bytes = 8, .value_bytes = 10, .request_keys = 8, .store_bytes = 1000};
static void use_small(void) {
    end_store();
    store = store_new(&small, 7);
}

Test(store, append_stops_at_the_largest_value) {
    use_small();
    play("0 SET k 12345; 0 APPEND k 123456 = refused; 0 APPEND k 12345; 0 APPEND k 1 = refused; "
         "0 GET k = 0:'1234512345'");
}

/* Fills the store but for `room` bytes: "old" holds "12", and "fill" all the rest. */
static void fill_but(uint64_t room) {
    static char big[1000];
    size_t len = (size_t)(small.store_bytes - 2 * (STORE_COST_KEY + STORE_COST_VALUE) - 3 - 2 - 4 - room);
    memset(big, 'x', len);
    big[len] = '\0';
    play("9 SET old 12");
    EXPECT(ask(9, STORE_OP_SET, "fill", big, 0), "");
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
        play("0 SET k v; 0 QUEUE_PUSH q v; 0 WAIT a,b,c; 0 CANCEL_WAIT = 0:b1; "
             "0 QUEUE_POP q = 0:1 0:'v'; 0 DELETE_KEY k = 0:1");
        cr_assert_eq(store_bytes(store), 0);
    }
}

Test(store, bytes_held_for_requests_count_with_the_stored_ones) {
    use_small();
    fill_but(100);
    cr_assert(store_hold(store, 100));
    cr_assert_not(store_hold(store, 1));
    play("0 QUEUE_PUSH fill '' = refused");
    store_release(store, 100);
    play("0 QUEUE_PUSH fill ''");
}

Test(store, many_keys_are_found_again) {
    char name[32];
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof name, "key-%d", i);
        struct store_span k = span_of(name, strlen(name));
        struct store_request req = {
            .client = clients, .op = STORE_OP_SET, .keys = &k, .n_keys = 1, .values = &k, .n_values = 1};
        cr_assert_eq(store_step(store, &req, &update), 0);
    }
    play("0 GET key-0 = 0:'key-0'; 0 GET key-4999 = 0:'key-4999'");
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
