/* Any bytes as a connection. Decoded as a whole, and in pieces of the sizes that the input itself names, they give the
 * same requests and the same end. No request exceeds the limits, and the stored bytes are proportional to those that
 * arrived. */
#include <string.h>

#include "base/text/strbuf.h"
#include "rendezvous/store/tcpstore_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Small, so that inputs reach them. */
static const struct store_limits limits = {
    .key_bytes = 40, .value_bytes = 300, .request_keys = 70, .request_bytes = 900};

static void note(const struct store_request *req, struct strbuf *out) {
    strbuf_printf(out, "%u %lld %u", req->op, (long long)req->number, req->nonce);
    if (req->n_keys > limits.request_keys || req->n_values > limits.request_keys)
        abort();
    for (size_t i = 0; i < req->n_keys; i++) {
        if (req->keys[i].len > limits.key_bytes)
            abort();
        strbuf_add_char(out, ' ');
        strbuf_add_bytes(out, req->keys[i].data, req->keys[i].len);
    }
    for (size_t i = 0; i < req->n_values; i++) {
        if (req->values[i].len > limits.value_bytes)
            abort();
        strbuf_add_char(out, '=');
        strbuf_add_bytes(out, req->values[i].data, req->values[i].len);
    }
    strbuf_add_char(out, '\n');
}

static int feed(struct tcpstore_decoder *d, const uint8_t *data, size_t len, struct strbuf *out) {
    static struct tcpstore_scratch scratch;
    if (scratch.keys == NULL)
        tcpstore_scratch_init(&scratch, &limits);
    uint8_t *piece = xmalloc(len + 1); /* a block of its own, so that an overread of one byte is detected */
    piece = realloc(piece, len == 0 ? 1 : len);
    if (piece == NULL)
        abort();
    if (len > 0)
        memcpy(piece, data, len);
    size_t pos = 0;
    int r = 0;
    for (;;) {
        struct store_request req;
        size_t used;
        r = tcpstore_decode(d, &limits, &scratch, piece + pos, len - pos, &used, &req);
        if (used > len - pos)
            abort();
        pos += used;
        if (r != TCPSTORE_REQUEST)
            break;
        note(&req, out);
    }
    if (r == 0 && pos != len)
        abort();
    free(piece);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 8192)
        return 0;
    _cleanup_(strbuf_fini) struct strbuf whole = {0}, pieces = {0};
    struct tcpstore_decoder a = {0}, b = {0};
    int ra = feed(&a, data, size, &whole), rb = 0;
    uint32_t step = (uint32_t)size;
    for (size_t pos = 0; pos < size && rb == 0;) {
        step = step * 1664525u + 1013904223u + data[pos];
        size_t n = (step >> 16) % ((step >> 28) < 12 ? 7u : 200u) + 1;
        n = MIN2(n, size - pos);
        rb = feed(&b, data + pos, n, &pieces);
        pos += n;
        if (b.held > 8192 + 4 * size + 32 * (uint64_t)limits.request_keys)
            abort();
    }
    if (ra != rb || a.validated != b.validated || whole.len != pieces.len ||
        memcmp(strbuf_text(&whole), strbuf_text(&pieces), whole.len) != 0)
        abort();
    if (ra == TCPSTORE_REFUSED && (a.refusal == NULL || a.refusal != b.refusal || a.size != b.size))
        abort();
    tcpstore_decoder_fini(&a);
    tcpstore_decoder_fini(&b);
    return 0;
}
