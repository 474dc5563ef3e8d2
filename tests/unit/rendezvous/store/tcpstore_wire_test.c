#include "rendezvous/store/tcpstore_wire.h"

#include <inttypes.h>

#include "base/little_endian.h"
#include "base/text/strbuf.h"
#include "rig/unit.h"

static struct tcpstore_decoder decoder;
static struct tcpstore_scratch scratch;
static struct store_limits limits;
static struct strbuf text; /* what was decoded */
static struct strbuf wire; /* what is sent */
static uint64_t held_max;

static void set_up(void) {
    limits = STORE_LIMITS_DEFAULT;
    tcpstore_scratch_init(&scratch, &limits);
}
static void tear_down(void) {
    tcpstore_decoder_fini(&decoder);
    tcpstore_scratch_fini(&scratch);
    strbuf_fini(&text);
    strbuf_fini(&wire);
}
TestSuite(tcpstore_wire, .init = set_up, .fini = tear_down);

static void put(uint64_t v, size_t size) {
    uint8_t b[8];
    store_u64le(b, v);
    strbuf_add_bytes(&wire, b, size);
}
static void put_op(enum store_op op) { put(op, 1); }
static void put_bytes(const char *s, size_t n) {
    put(n, 8);
    strbuf_add_bytes(&wire, s, n);
}
static void put_str(const char *s) { put_bytes(s, strlen(s)); }
static void put_validate(void) {
    put_op(STORE_OP_VALIDATE);
    put(TCPSTORE_MAGIC, 4);
}

static void note(const struct store_request *req) {
    strbuf_printf(&text, "%s", store_op_name(req->op));
    for (size_t i = 0; i < req->n_keys; i++) {
        strbuf_add(&text, " k=");
        strbuf_add_bytes(&text, req->keys[i].data, req->keys[i].len);
    }
    for (size_t i = 0; i < req->n_values; i++) {
        strbuf_add(&text, " v=");
        strbuf_add_bytes(&text, req->values[i].data, req->values[i].len);
    }
    if (req->op == STORE_OP_ADD || req->op == STORE_OP_BARRIER)
        strbuf_printf(&text, " n=%" PRId64, req->number);
    if (req->op == STORE_OP_PING)
        strbuf_printf(&text, " nonce=%u", req->nonce);
    strbuf_add_char(&text, '\n');
}

/* A piece in a block of its own size: a sanitizer sees one byte too far. */
static int feed(const char *data, size_t len) {
    uint8_t *piece = xmalloc(len + (len == 0));
    memcpy(piece, data, len);
    size_t pos = 0;
    int r;
    do {
        struct store_request req;
        size_t used;
        r = tcpstore_decode(&decoder, &limits, &scratch, piece + pos, len - pos, &used, &req);
        cr_assert_leq(used, len - pos);
        pos += used;
        held_max = MAX2(held_max, decoder.held);
        if (r == TCPSTORE_REQUEST)
            note(&req);
    } while (r == TCPSTORE_REQUEST);
    if (r == 0)
        cr_assert_eq(pos, len, "all is taken");
    free(piece);
    return r;
}

static void restart(void) {
    tcpstore_decoder_fini(&decoder);
    decoder = (struct tcpstore_decoder){0};
    strbuf_clear(&text);
    held_max = 0;
}

/* Whole, cut in two at every place, and byte by byte: always the same requests and outcome. */
static int decode_every_way(const char *want) {
    restart();
    int whole = feed(wire.data, wire.len);
    cr_assert_str_eq(strbuf_text(&text), want);
    for (size_t cut = 1; cut < wire.len; cut++) {
        restart();
        int r = feed(wire.data, cut);
        if (r == 0)
            r = feed(wire.data + cut, wire.len - cut);
        cr_assert_eq(r, whole, "cut at %zu", cut);
        cr_assert_str_eq(strbuf_text(&text), want, "cut at %zu", cut);
    }
    restart();
    int r = 0;
    for (size_t i = 0; i < wire.len && r == 0; i++)
        r = feed(wire.data + i, 1);
    cr_assert_eq(r, whole);
    cr_assert_str_eq(strbuf_text(&text), want);
    return whole;
}

Test(tcpstore_wire, reads_the_bytes_that_a_client_was_seen_to_send) {
    /* torch 2.13: connect, then set("abc", "xyz") */
    static const char bytes[] = "\x00\xce\xf7\x85\x3c\x0d\xea\x37\x00\x00"
                                "\x01\x04\0\0\0\0\0\0\0/abc\x03\0\0\0\0\0\0\0xyz";
    strbuf_add_bytes(&wire, bytes, sizeof bytes - 1);
    cr_assert_eq(decode_every_way("PING nonce=14314\nSET k=/abc v=xyz\n"), 0);
}

Test(tcpstore_wire, reads_every_operation_however_it_is_cut) {
    put_validate();
    put_op(STORE_OP_SET), put_str("k"), put_str("v");
    put_op(STORE_OP_COMPARE_SET), put_str("k"), put_str(""), put_str("new");
    put_op(STORE_OP_GET), put_str("");
    put_op(STORE_OP_ADD), put_str("n"), put((uint64_t)-2, 8);
    put_op(STORE_OP_CHECK), put(0, 8);
    put_op(STORE_OP_CHECK), put(2, 8), put_str("a"), put_str("");
    put_op(STORE_OP_WAIT), put(3, 8), put_str("a"), put_str("bb"), put_str("a");
    put_op(STORE_OP_GETNUMKEYS);
    put_op(STORE_OP_DELETE_KEY), put_str("k");
    put_op(STORE_OP_APPEND), put_str("k"), put_str("tail");
    put_op(STORE_OP_MULTI_GET), put(1, 8), put_str("k");
    put_op(STORE_OP_MULTI_SET), put(2, 8), put_str("a"), put_str("1"), put_str("b"), put_str("");
    put_op(STORE_OP_MULTI_SET), put(0, 8);
    put_op(STORE_OP_CANCEL_WAIT);
    put_op(STORE_OP_PING), put(7, 4);
    put_op(STORE_OP_QUEUE_PUSH), put_str("q"), put_str("x");
    put_op(STORE_OP_QUEUE_POP), put_str("q");
    put_op(STORE_OP_QUEUE_LEN), put_str("q");
    put_op(STORE_OP_LIST_KEYS);
    put_op(STORE_OP_BARRIER), put_str("b"), put(3, 8);
    cr_assert_eq(decode_every_way("SET k=k v=v\nCOMPARE_SET k=k v= v=new\nGET k=\nADD k=n n=-2\n"
                                  "CHECK\nCHECK k=a k=\nWAIT k=a k=bb k=a\nGETNUMKEYS\n"
                                  "DELETE_KEY k=k\nAPPEND k=k v=tail\nMULTI_GET k=k\n"
                                  "MULTI_SET k=a k=b v=1 v=\nMULTI_SET\nCANCEL_WAIT\n"
                                  "PING nonce=7\nQUEUE_PUSH k=q v=x\nQUEUE_POP k=q\n"
                                  "QUEUE_LEN k=q\nLIST_KEYS\nBARRIER k=b n=3\n"),
                 0);
    cr_assert_null(decoder.text);
}

Test(tcpstore_wire, refuses_what_does_not_begin_with_validate) {
    static const char *const beginnings[] = {
        "GET / HTTP/1.1\r\n",               /* a browser */
        "\x16\x03\x01\x02\x00\x01\x00\x01", /* TLS */
        "\x0d\x00\x00\x00\x00",             /* PING before VALIDATE */
        "SSH-2.0-x\r\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++) {
        restart();
        cr_assert_eq(feed(beginnings[i], 1), TCPSTORE_REFUSED, "at the first byte, row %zu", i);
        cr_assert_str_eq(decoder.refusal, "does not begin with VALIDATE");
        cr_assert_eq(decoder.held, 0);
    }
}

Test(tcpstore_wire, refuses_a_wrong_magic_a_second_validate_and_unknown_operations) {
    put_op(STORE_OP_VALIDATE);
    put(TCPSTORE_MAGIC + 1, 4);
    cr_assert_eq(decode_every_way(""), TCPSTORE_REFUSED);
    strbuf_clear(&wire);
    put_validate();
    put_validate();
    cr_assert_eq(decode_every_way(""), TCPSTORE_REFUSED);
    cr_assert_str_eq(decoder.refusal, "a second VALIDATE");
    for (unsigned op = STORE_OP_COUNT; op < 256; op++) {
        strbuf_clear(&wire);
        put_validate();
        put(op, 1);
        cr_assert_eq(decode_every_way(""), TCPSTORE_REFUSED);
        cr_assert_str_eq(decoder.refusal, "unknown operation");
    }
}

struct limit_row {
    enum store_op op;
    uint64_t numbers[3]; /* counts and lengths; a body of that many bytes follows a length */
    unsigned n, bodies;  /* how many of them; how many, from the end, have bodies */
    const char *refusal; /* NULL: it is within the limits */
};

/* key 8, value 20, keys 3, request 60. */
static const struct limit_row limit_rows[] = {
    {STORE_OP_GET, {8}, 1, 1, NULL},
    {STORE_OP_GET, {9}, 1, 0, "the key is too long"},
    {STORE_OP_GET, {UINT64_C(1) << 63}, 1, 0, "the key is too long"},
    {STORE_OP_GET, {UINT64_MAX}, 1, 0, "the key is too long"},
    {STORE_OP_SET, {8, 20}, 2, 2, NULL},
    {STORE_OP_SET, {8, 21}, 2, 1, "the value is too large"},
    {STORE_OP_SET, {0, UINT64_MAX}, 2, 1, "the value is too large"},
    {STORE_OP_QUEUE_PUSH, {1, 21}, 2, 1, "the value is too large"},
    {STORE_OP_APPEND, {1, 21}, 2, 1, "the value is too large"},
    {STORE_OP_COMPARE_SET, {1, 21}, 2, 1, "the value is too large"},
    {STORE_OP_COMPARE_SET, {8, 8, 20}, 3, 3, "the request is too large"},
    {STORE_OP_COMPARE_SET, {7, 8, 20}, 3, 3, NULL},
    {STORE_OP_WAIT, {4}, 1, 0, "too many keys in one request"},
    {STORE_OP_CHECK, {UINT64_MAX}, 1, 0, "too many keys in one request"},
    {STORE_OP_MULTI_SET, {4}, 1, 0, "too many keys in one request"},
    {STORE_OP_MULTI_GET, {UINT64_C(1) << 61}, 1, 0, "too many keys in one request"},
};

Test(tcpstore_wire, holds_every_length_against_its_limit) {
    limits = (struct store_limits){.key_bytes = 8, .value_bytes = 20, .request_keys = 3, .request_bytes = 60};
    for (size_t i = 0; i < ARRAY_SIZE(limit_rows); i++) {
        const struct limit_row *row = &limit_rows[i];
        static const char body[32] = "................................";
        strbuf_clear(&wire);
        put_validate();
        put_op(row->op);
        for (unsigned j = 0; j < row->n; j++) {
            put(row->numbers[j], 8);
            bool refused_here = row->refusal != NULL && j + 1 == row->n;
            if (row->bodies > 0 && !refused_here)
                strbuf_add_bytes(&wire, body, (size_t)row->numbers[j]);
        }
        restart();
        int r = feed(wire.data, wire.len);
        cr_assert_eq(r, row->refusal != NULL ? TCPSTORE_REFUSED : 0, "row %zu", i);
        if (row->refusal != NULL) {
            cr_assert_str_eq(decoder.refusal, row->refusal, "row %zu", i);
            cr_assert_eq(decoder.op, row->op);
        } else {
            cr_assert(text.len > 0, "row %zu", i);
        }
        restart();
        int by_byte = 0;
        for (size_t j = 0; j < wire.len && by_byte == 0; j++)
            by_byte = feed(wire.data + j, 1);
        cr_assert_eq(by_byte, r, "row %zu byte by byte", i);
    }
}

Test(tcpstore_wire, as_many_keys_as_allowed_are_read_and_one_more_is_not) {
    limits.request_keys = 300; /* more than are read in place */
    for (unsigned n = 62; n <= 301; n += n < 66 ? 1 : 47) {
        strbuf_clear(&wire);
        put_validate();
        put_op(STORE_OP_WAIT);
        put(n, 8);
        for (unsigned i = 0; i < n; i++)
            put_str(i % 2 ? "odd" : "");
        restart();
        cr_assert_eq(feed(wire.data, wire.len), n > 300 ? TCPSTORE_REFUSED : 0, "%u", n);
        size_t got = 0;
        for (const char *p = strbuf_text(&text); (p = strstr(p, " k=")) != NULL; p += 3)
            got++;
        cr_assert_eq(got, n > 300 ? 0 : n);
    }
}

Test(tcpstore_wire, takes_memory_only_for_what_has_arrived) {
    put_validate();
    put_op(STORE_OP_SET);
    put_str("k");
    put(limits.value_bytes, 8);
    cr_assert_eq(feed(wire.data, wire.len), 0);
    cr_assert_leq(decoder.held, 16384);
    static char part[100000];
    cr_assert_eq(feed(part, sizeof part), 0);
    cr_assert_leq(decoder.held, 2 * sizeof part + 16384);
    restart();
    strbuf_clear(&wire);
    put_validate();
    put_op(STORE_OP_MULTI_SET);
    put(limits.request_keys, 8);
    put(limits.key_bytes, 8);
    cr_assert_eq(feed(wire.data, wire.len), 0);
    cr_assert_leq(decoder.held, 16384);
}

Test(tcpstore_wire, the_largest_value_arrives_whole_in_pieces) {
    size_t len = limits.value_bytes;
    char *big = xmalloc(len);
    for (size_t i = 0; i < len; i++)
        big[i] = (char)(i * 7 >> 3);
    put_validate();
    put_op(STORE_OP_SET);
    put_str("k");
    put(len, 8);
    cr_assert_eq(feed(wire.data, wire.len), 0);
    for (size_t pos = 0; pos < len; pos += 60000)
        cr_assert_eq(feed(big + pos, MIN2((size_t)60000, len - pos)), 0);
    cr_assert_eq(text.len, strlen("SET k=k v=\n") + len);
    cr_assert_arr_eq(strbuf_text(&text) + strlen("SET k=k v="), big, len);
    free(big);
}

Test(tcpstore_wire, what_the_store_does_not_take_is_freed) {
    put_validate();
    put_op(STORE_OP_SET);
    put_str("k");
    put_str("value");
    cr_assert_eq(feed(wire.data, wire.len - 2), 0);
    cr_assert_gt(decoder.held, 0);
    cr_assert_eq(feed(wire.data + wire.len - 2, 2), 0);
    cr_assert_eq(decoder.held, 0);
}

static void on_bytes(void *arg, const void *data, size_t len) { strbuf_add_bytes(&wire, data, len); }
static void on_value(void *arg, struct store_value *v) {
    strbuf_add_char(&wire, '<');
    strbuf_add_bytes(&wire, v->data, v->len);
    strbuf_add_char(&wire, '>');
}

Test(tcpstore_wire, encodes_replies_little_endian) {
    const struct tcpstore_sink sink = {on_bytes, on_value, NULL};
    struct store_value *v = store_value_copy("abc", 3);
    struct store_value *values[] = {v, NULL, v};
    const struct store_update update = {.values = values, .n_values = 3};
    const struct store_reply replies[] = {
        {.kind = STORE_REPLY_U8, .u8 = 1},          {.kind = STORE_REPLY_U32, .u32 = 0x01020304},
        {.kind = STORE_REPLY_I64, .i64 = -2},       {.kind = STORE_REPLY_VALUE, .value = v},
        {.kind = STORE_REPLY_VALUE, .value = NULL}, {.kind = STORE_REPLY_LIST, .list = {1, 2}},
    };
    static const char want[] = "\x01\x04\x03\x02\x01\xfe\xff\xff\xff\xff\xff\xff\xff"
                               "\x03\0\0\0\0\0\0\0<abc>"
                               "\0\0\0\0\0\0\0\0"
                               "\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0<abc>";
    for (size_t i = 0; i < ARRAY_SIZE(replies); i++)
        tcpstore_encode(&replies[i], &update, &sink);
    cr_assert_eq(wire.len, sizeof want - 1);
    cr_assert_arr_eq(wire.data, want, sizeof want - 1);
    store_value_unref(v);
}
