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

/* The first allocation for a field that is arriving; it doubles as needed. */
#define ROOM_FIRST 4096

/* A request that arrives in pieces. */
struct tcpstore_partial {
    unsigned at;       /* index into the shape's fields */
    uint64_t rounds;   /* how often the repeated fields are still expected, including this time */
    uint64_t total;    /* bytes of the request so far, including announced ones */
    uint8_t number[8]; /* the bytes of a scalar or a length that have arrived */
    size_t number_len;
    bool in_body;    /* in the body of a key or value */
    uint64_t need;   /* bytes of the body that are still missing */
    uint64_t length; /* length of the whole body */

    uint8_t *text; /* the keys, one after the other */
    size_t text_len, text_cap;
    struct store_span *keys; /* data is set at the end, because text can move */
    size_t n_keys, cap_keys;
    struct store_blob *values; /* all owned; the last one can still grow */
    size_t n_values, cap_values;
    uint32_t u32;
    int64_t i64;
};

static int refuse(struct tcpstore_decoder *d, const char *why, uint64_t size) {
    d->refusal = why;
    d->size = size;
    return TCPSTORE_REFUSED;
}

static void partial_free(struct tcpstore_decoder *d) {
    struct tcpstore_partial *p = TAKE_PTR(d->partial);
    if (p == NULL)
        return;
    for (size_t i = 0; i < p->n_values; i++)
        store_value_unref(p->values[i].owned);
    free(p->values);
    free(p->keys);
    free(p->text);
    free(p);
    d->held = 0;
}

void tcpstore_decoder_fini(struct tcpstore_decoder *d) { partial_free(d); }

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

static int take_magic(struct tcpstore_decoder *d, uint32_t magic) {
    if (magic != TCPSTORE_MAGIC)
        return refuse(d, "wrong magic number", magic);
    d->validated = true;
    return 0;
}

/* --- complete requests, in place -------------------------------------------------------------- */

enum { IN_PLACE_NOT = 3 }; /* incomplete, or too many keys for the scratch */

static void finish_request(uint8_t op, struct store_request *ret) {
    ret->op = op;
    if (ret->n_keys == 0)
        ret->keys = NULL;
}

static int decode_in_place(struct tcpstore_decoder *d, const struct store_limits *limits,
                           struct tcpstore_scratch *scratch, const uint8_t *data, size_t len,
                           size_t *ret_used, struct store_request *ret) {
    const enum field *fields = shapes[data[0]].fields;
    size_t pos = 1, loop_at = 0;
    uint64_t rounds = 1, total = 1;
    *ret = (struct store_request){.keys = scratch->keys, .values = scratch->values};
    for (unsigned at = 0;;) {
        enum field field = fields[at];
        if (field == FIELD_END) {
            if (--rounds == 0)
                break;
            at = (unsigned)loop_at;
            continue;
        }
        size_t fixed = field == FIELD_U32 ? 4 : 8;
        if (len - pos < fixed)
            return IN_PLACE_NOT;
        uint64_t v = fixed == 4 ? load_u32le(data + pos) : load_u64le(data + pos);
        pos += fixed;
        at++;
        if (field == FIELD_U32) {
            ret->nonce = (uint32_t)v;
            continue;
        }
        if (field == FIELD_I64) {
            ret->number = (int64_t)v;
            continue;
        }
        int r = check_length(d, limits, field, v, &total);
        if (r != 0)
            return r;
        if (field == FIELD_COUNT) {
            if (v > TCPSTORE_SCRATCH_KEYS)
                return IN_PLACE_NOT;
            if (v == 0)
                break;
            rounds = v;
            loop_at = at;
            continue;
        }
        if (len - pos < v)
            return IN_PLACE_NOT;
        struct store_span span = {data + pos, (size_t)v};
        if (field == FIELD_KEY)
            scratch->keys[ret->n_keys++] = span;
        else
            scratch->values[ret->n_values++] = (struct store_blob){.span = span};
        pos += (size_t)v;
    }
    finish_request(data[0], ret);
    *ret_used = pos;
    return TCPSTORE_REQUEST;
}

/* --- requests in pieces -------------------------------------------------------------------- */

/* Makes room for one more element of an array that a peer fills. It doubles, so it is at most twice
 * as large as what has arrived. */
static int room_for_one(void *array_of, size_t element, size_t n, size_t *cap, uint64_t *held) {
    if (n < *cap)
        return 0;
    void **array = array_of;
    size_t more = *cap == 0 ? 8 : *cap * 2;
    void *bigger = realloc(*array, more * element);
    if (bigger == NULL)
        return -ENOMEM;
    *held += (more - *cap) * element;
    *array = bigger;
    *cap = more;
    return 0;
}

static int begin_body(struct tcpstore_decoder *d, enum field field, uint64_t length) {
    struct tcpstore_partial *p = d->partial;
    int r;
    p->in_body = true;
    p->need = p->length = length;
    if (field == FIELD_KEY) {
        r = room_for_one(&p->keys, sizeof *p->keys, p->n_keys, &p->cap_keys, &d->held);
        if (r == 0)
            p->keys[p->n_keys++] = (struct store_span){NULL, (size_t)length};
        return r;
    }
    r = room_for_one(&p->values, sizeof *p->values, p->n_values, &p->cap_values, &d->held);
    if (r < 0)
        return r;
    size_t cap = (size_t)MIN2(length, (uint64_t)ROOM_FIRST);
    struct store_value *v = store_value_new(cap);
    if (v == NULL)
        return -ENOMEM;
    d->held += cap + sizeof *v;
    p->values[p->n_values++] = (struct store_blob){.owned = v};
    return 0;
}

static int add_to_key(struct tcpstore_decoder *d, const uint8_t *data, size_t n) {
    struct tcpstore_partial *p = d->partial;
    if (p->text_cap - p->text_len < n) {
        size_t cap = MAX2(p->text_cap * 2, p->text_len + n);
        uint8_t *bigger = realloc(p->text, cap);
        if (bigger == NULL)
            return -ENOMEM;
        d->held += cap - p->text_cap;
        p->text = bigger;
        p->text_cap = cap;
    }
    memcpy(p->text + p->text_len, data, n);
    p->text_len += n;
    return 0;
}

static int add_to_value(struct tcpstore_decoder *d, const uint8_t *data, size_t n) {
    struct tcpstore_partial *p = d->partial;
    struct store_value **v = &p->values[p->n_values - 1].owned;
    size_t want = (*v)->len + n, had = (*v)->cap;
    if (want > had) {
        size_t cap = (size_t)MIN2((uint64_t)MAX2(had * 2, want), p->length);
        if (store_value_reserve(v, cap) < 0)
            return -ENOMEM;
        d->held += cap - had;
    }
    memcpy((*v)->data + (*v)->len, data, n);
    (*v)->len = (uint32_t)want;
    return 0;
}

/* A scalar is complete. */
static int take_number(struct tcpstore_decoder *d, const struct store_limits *limits,
                       enum field field) {
    struct tcpstore_partial *p = d->partial;
    p->number_len = 0;
    if (field == FIELD_U32) {
        p->u32 = load_u32le(p->number);
        p->at++;
        return 0;
    }
    uint64_t v = load_u64le(p->number);
    if (field == FIELD_I64) {
        p->i64 = (int64_t)v;
        p->at++;
        return 0;
    }
    int r = check_length(d, limits, field, v, &p->total);
    if (r != 0)
        return r;
    if (field == FIELD_COUNT) {
        p->rounds = v;
        p->at = v == 0 ? (unsigned)ARRAY_SIZE(shapes[0].fields) : 1;
        return 0;
    }
    r = begin_body(d, field, v);
    if (r == 0 && v == 0) {
        p->in_body = false;
        p->at++;
    }
    return r;
}

static enum field field_now(const struct tcpstore_decoder *d) {
    unsigned at = d->partial->at;
    return at < ARRAY_SIZE(shapes[0].fields) ? shapes[d->op].fields[at] : FIELD_END;
}

/* Consumes a piece of one field. */
static int take_piece(struct tcpstore_decoder *d, const struct store_limits *limits,
                      enum field field, const uint8_t *data, size_t len, size_t *ret_used) {
    struct tcpstore_partial *p = d->partial;
    if (!p->in_body) {
        size_t size = field == FIELD_U32 ? 4 : 8;
        size_t n = MIN2(size - p->number_len, len);
        memcpy(p->number + p->number_len, data, n);
        p->number_len += n;
        *ret_used = n;
        return p->number_len == size ? take_number(d, limits, field) : 0;
    }
    size_t n = (size_t)MIN2((uint64_t)len, p->need);
    int r = field == FIELD_KEY ? add_to_key(d, data, n) : add_to_value(d, data, n);
    if (r < 0)
        return r;
    p->need -= n;
    if (p->need == 0) {
        p->in_body = false;
        p->at++;
    }
    *ret_used = n;
    return 0;
}

static int finish_partial(struct tcpstore_decoder *d, struct store_request *ret) {
    struct tcpstore_partial *p = d->partial;
    if (d->op == STORE_OP_VALIDATE) {
        int r = take_magic(d, p->u32);
        partial_free(d);
        return r;
    }
    const uint8_t *text = p->text;
    for (size_t i = 0; i < p->n_keys; i++) {
        p->keys[i].data = text;
        if (text != NULL)
            text += p->keys[i].len;
    }
    for (size_t i = 0; i < p->n_values; i++)
        p->values[i].span = (struct store_span){p->values[i].owned->data, p->values[i].owned->len};
    *ret = (struct store_request){
        .nonce = p->u32,
        .number = p->i64,
        .keys = p->keys,
        .n_keys = p->n_keys,
        .values = p->values,
        .n_values = p->n_values,
    };
    finish_request(d->op, ret);
    return TCPSTORE_REQUEST;
}

static bool partial_done(const struct tcpstore_decoder *d) {
    return d->partial != NULL && d->partial->rounds == 0;
}

static int decode_pieces(struct tcpstore_decoder *d, const struct store_limits *limits,
                         const uint8_t *data, size_t len, size_t *ret_used,
                         struct store_request *ret) {
    struct tcpstore_partial *p = d->partial;
    size_t pos = 0;
    for (;;) {
        enum field field = field_now(d);
        if (field == FIELD_END) {
            if (p->rounds <= 1) {
                p->rounds = 0;
                *ret_used = pos;
                return finish_partial(d, ret);
            }
            p->rounds--;
            p->at = 1; /* after the count */
            continue;
        }
        if (pos == len)
            break;
        size_t n = 0;
        int r = take_piece(d, limits, field, data + pos, len - pos, &n);
        if (r != 0)
            return r;
        pos += n;
    }
    *ret_used = pos;
    return 0;
}

int tcpstore_decode(struct tcpstore_decoder *d, const struct store_limits *limits,
                    struct tcpstore_scratch *scratch, const uint8_t *data, size_t len,
                    size_t *ret_used, struct store_request *ret) {
    size_t used = 0;
    *ret_used = 0;
    if (partial_done(d))
        partial_free(d); /* the request was returned by the last call */
    while (used < len) {
        if (d->partial == NULL) {
            int r = check_op(d, data[used]);
            if (r != 0)
                return r;
            size_t n = 0;
            r = decode_in_place(d, limits, scratch, data + used, len - used, &n, ret);
            if (r == TCPSTORE_REQUEST && d->op == STORE_OP_VALIDATE) {
                r = take_magic(d, ret->nonce);
                if (r == 0) {
                    used += n;
                    continue;
                }
            }
            if (r != IN_PLACE_NOT) {
                *ret_used = used + n;
                return r;
            }
            d->partial = calloc(1, sizeof *d->partial);
            if (d->partial == NULL)
                return -ENOMEM;
            d->partial->rounds = d->partial->total = 1;
            d->held = sizeof *d->partial;
            used++;
        }
        size_t n = 0;
        int r = decode_pieces(d, limits, data + used, len - used, &n, ret);
        used += n;
        if (r != 0) {
            *ret_used = used;
            return r;
        }
    }
    *ret_used = used;
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
