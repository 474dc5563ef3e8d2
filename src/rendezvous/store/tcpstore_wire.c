#include "rendezvous/store/tcpstore_wire.h"

#include <errno.h>
#include <string.h>

#include "base/little_endian.h"

/* The parts of a request after its operation. */
enum field {
    FIELD_END = 0,
    FIELD_U32, /* the nonce or the magic */
    FIELD_I64, /* the number */
    FIELD_KEY,
    FIELD_VALUE,
    FIELD_COUNT, /* how often the next fields are repeated */
};

static const struct shape {
    enum field fields[4];
} shapes[STORE_OP_COUNT] = {
    [STORE_OP_VALIDATE] = {{FIELD_U32}},
    [STORE_OP_SET] = {{FIELD_KEY, FIELD_VALUE}},
    [STORE_OP_COMPARE_SET] = {{FIELD_KEY, FIELD_VALUE, FIELD_VALUE}},
    [STORE_OP_GET] = {{FIELD_KEY}},
    [STORE_OP_ADD] = {{FIELD_KEY, FIELD_I64}},
    [STORE_OP_CHECK] = {{FIELD_COUNT, FIELD_KEY}},
    [STORE_OP_WAIT] = {{FIELD_COUNT, FIELD_KEY}},
    [STORE_OP_GETNUMKEYS] = {{FIELD_END}},
    [STORE_OP_DELETE_KEY] = {{FIELD_KEY}},
    [STORE_OP_APPEND] = {{FIELD_KEY, FIELD_VALUE}},
    [STORE_OP_MULTI_GET] = {{FIELD_COUNT, FIELD_KEY}},
    [STORE_OP_MULTI_SET] = {{FIELD_COUNT, FIELD_KEY, FIELD_VALUE}},
    [STORE_OP_CANCEL_WAIT] = {{FIELD_END}},
    [STORE_OP_PING] = {{FIELD_U32}},
    [STORE_OP_QUEUE_PUSH] = {{FIELD_KEY, FIELD_VALUE}},
    [STORE_OP_QUEUE_POP] = {{FIELD_KEY}},
    [STORE_OP_QUEUE_LEN] = {{FIELD_KEY}},
    [STORE_OP_LIST_KEYS] = {{FIELD_END}},
    [STORE_OP_BARRIER] = {{FIELD_KEY, FIELD_I64}},
};

static int refuse(struct tcpstore_decoder *d, const char *why, uint64_t size) {
    d->refusal = why;
    d->size = size;
    return TCPSTORE_REFUSED;
}

void tcpstore_decoder_fini(struct tcpstore_decoder *d) {
    free(TAKE_PTR(d->text));
    d->text_len = d->text_cap = 0;
    d->held = 0;
}

void tcpstore_scratch_init(struct tcpstore_scratch *s, const struct store_limits *limits) {
    size_t n = MAX2(limits->request_keys, 2U); /* COMPARE_SET has two values */
    s->keys = xcalloc(n, sizeof *s->keys);
    s->values = xcalloc(n, sizeof *s->values);
}

void tcpstore_scratch_fini(struct tcpstore_scratch *s) {
    free(s->keys);
    free(s->values);
}

static int check_op(struct tcpstore_decoder *d, uint8_t op) {
    d->op = op;
    if (!d->validated)
        return op == STORE_OP_VALIDATE ? 0 : refuse(d, "does not begin with VALIDATE", 0);
    if (op == STORE_OP_VALIDATE)
        return refuse(d, "a second VALIDATE", 0);
    return op < STORE_OP_COUNT ? 0 : refuse(d, "unknown operation", op);
}

static int check_length(struct tcpstore_decoder *d, const struct store_limits *limits,
                        enum field field, uint64_t length, uint64_t *total) {
    if (field == FIELD_KEY && length > limits->key_bytes)
        return refuse(d, "the key is too long", length);
    if (field == FIELD_VALUE && length > limits->value_bytes)
        return refuse(d, "the value is too large", length);
    if (field == FIELD_COUNT && length > limits->request_keys)
        return refuse(d, "too many keys in one request", length);
    *total += 8 + (field == FIELD_COUNT ? 0 : length);
    if (*total > limits->request_bytes)
        return refuse(d, "the request is too large", *total);
    return 0;
}

bool tcpstore_begins(const uint8_t *bytes) {
    static const uint8_t first[TCPSTORE_FIRST_BYTES] = {STORE_OP_VALIDATE, TCPSTORE_MAGIC & 0xff,
                                                        TCPSTORE_MAGIC >> 8 & 0xff,
                                                        TCPSTORE_MAGIC >> 16 & 0xff};
    return memcmp(bytes, first, sizeof first) == 0;
}

#define TEXT_STEP 4096

/* --- requests --------------------------------------------------------------------------------- */

static void begin_walk(struct tcpstore_walk *w) {
    *w = (struct tcpstore_walk){.end = 1, .rounds = 1, .total = 1};
}

/* Reads on. TCPSTORE_REQUEST: it is complete. 0: it has at least w->end bytes. */
static int walk(struct tcpstore_decoder *d, const struct store_limits *limits,
                struct tcpstore_scratch *scratch, const uint8_t *data, size_t len) {
    struct tcpstore_walk *w = &d->walk;
    for (;;) {
        enum field field = shapes[d->op].fields[w->at];
        size_t begin = w->end, fixed = field == FIELD_END ? 0 : field == FIELD_U32 ? 4 : 8;
        if (len < begin + fixed) {
            w->need = begin + fixed;
            return 0;
        }
        if (field == FIELD_END && w->rounds <= 1)
            return TCPSTORE_REQUEST;
        if (field == FIELD_END) {
            w->rounds--;
            w->at = 1; /* after the count */
            continue;
        }
        w->end += fixed;
        w->at++;
        uint64_t v = fixed == 4 ? load_u32le(data + begin) : load_u64le(data + begin);
        if (field == FIELD_U32 || field == FIELD_I64) {
            w->number = v;
            continue;
        }
        int r = check_length(d, limits, field, v, &w->total);
        if (r != 0)
            return r;
        if (field == FIELD_COUNT) {
            w->rounds = v;
            if (v == 0)
                w->at = ARRAY_SIZE(shapes[0].fields) - 1; /* FIELD_END */
            continue;
        }
        struct store_span span = {data + w->end, (size_t)v};
        if (field == FIELD_KEY)
            scratch->keys[w->n_keys++] = span;
        else
            scratch->values[w->n_values++] = span;
        w->end += (size_t)v;
    }
}

/* At most twice of it is allocated, and not much more than is needed. */
static int add_text(struct tcpstore_decoder *d, const uint8_t *data, size_t n) {
    if (d->text_cap - d->text_len < n) {
        size_t cap = MAX2(d->text_cap * 2, d->text_len + n);
        cap = MIN2(cap, MAX2(d->walk.need, d->text_cap + d->text_cap / 8 + TEXT_STEP));
        uint8_t *bigger = realloc(d->text, cap);
        if (bigger == NULL)
            return -ENOMEM;
        d->text = bigger;
        d->text_cap = d->held = cap;
    }
    memcpy(d->text + d->text_len, data, n);
    d->text_len += n;
    return 0;
}

static int walk_pieces(struct tcpstore_decoder *d, const struct store_limits *limits,
                       struct tcpstore_scratch *scratch, const uint8_t *data, size_t len,
                       size_t *ret_used) {
    int r = 0;
    while (r == 0 && *ret_used < len) {
        size_t n = MIN2(d->walk.need - d->text_len, len - *ret_used);
        r = add_text(d, data + *ret_used, n);
        if (r < 0)
            return r;
        *ret_used += n;
        r = walk(d, limits, scratch, d->text, d->text_len);
    }
    if (r == TCPSTORE_REQUEST) { /* the text has moved, and others have used the scratch */
        begin_walk(&d->walk);
        r = walk(d, limits, scratch, d->text, d->text_len);
    }
    return r;
}

int tcpstore_decode(struct tcpstore_decoder *d, const struct store_limits *limits,
                    struct tcpstore_scratch *scratch, const uint8_t *data, size_t len,
                    size_t *ret_used, struct store_request *ret) {
    *ret_used = 0;
    if (d->is_taken)
        tcpstore_decoder_fini(d); /* the request was returned by the last call */
    d->is_taken = false;
    while (*ret_used < len) {
        int r;
        if (d->text != NULL) {
            r = walk_pieces(d, limits, scratch, data, len, ret_used);
        } else {
            const uint8_t *at = data + *ret_used;
            size_t left = len - *ret_used;
            r = check_op(d, *at);
            begin_walk(&d->walk);
            if (r == 0)
                r = walk(d, limits, scratch, at, left);
            if (r == 0)
                r = add_text(d, at, left);
            *ret_used += r == TCPSTORE_REQUEST ? d->walk.end : left;
        }
        const struct tcpstore_walk *w = &d->walk;
        if (r != TCPSTORE_REQUEST)
            return r;
        if (d->op != STORE_OP_VALIDATE) {
            *ret = (struct store_request){.op = d->op,
                                          .nonce = (uint32_t)w->number,
                                          .number = (int64_t)w->number,
                                          .keys = w->n_keys > 0 ? scratch->keys : NULL,
                                          .n_keys = w->n_keys,
                                          .values = scratch->values,
                                          .n_values = w->n_values};
            d->is_taken = true;
            return r;
        }
        tcpstore_decoder_fini(d);
        if (w->number != TCPSTORE_MAGIC)
            return refuse(d, "wrong magic number", w->number);
        d->validated = true;
    }
    return 0;
}

/* --- replies ------------------------------------------------------------------------------- */

static void encode_number(const struct tcpstore_sink *to, uint64_t v, size_t size) {
    uint8_t bytes[8];
    store_u64le(bytes, v);
    to->bytes(to->arg, bytes, size);
}

static void encode_value(const struct tcpstore_sink *to, struct store_value *v) {
    encode_number(to, v != NULL ? v->len : 0, 8);
    if (v != NULL && v->len > 0)
        to->value(to->arg, v);
}

void tcpstore_encode(const struct store_reply *reply, const struct store_update *update,
                     const struct tcpstore_sink *to) {
    switch (reply->kind) {
    case STORE_REPLY_U8: to->bytes(to->arg, &reply->u8, 1); return;
    case STORE_REPLY_U32: encode_number(to, reply->u32, 4); return;
    case STORE_REPLY_I64: encode_number(to, (uint64_t)reply->i64, 8); return;
    case STORE_REPLY_VALUE: encode_value(to, reply->value); return;
    case STORE_REPLY_LIST:
        for (size_t i = 0; i < reply->list.count; i++)
            encode_value(to, update->values[reply->list.first + i]);
        return;
    }
    assert_not_reached();
}
