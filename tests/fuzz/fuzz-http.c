/* Any bytes as an answer of HTTP: refused, incomplete, or read, with a body that keeps its limit. More bytes never take
 * back what was said of the first ones, unless the body ends with the connection. */
#include "io/net/http_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BODY_MAX ((size_t)256)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    _cleanup_(strbuf_fini) struct strbuf text = {0}, body = {0}, first = {0};
    struct http_text whole, part;
    struct err err = {0};
    strbuf_add_bytes(&text, data, size);
    int r = http_text_read(strbuf_text(&text), size, false, BODY_MAX, &whole, &body, &err);
    if (r > 0 && r != HTTP_TEXT_E_MORE)
        abort();
    if (r == 0 && (body.len > BODY_MAX || body.len > size || whole.status < 200 || whole.status > 999))
        abort();
    int at_end = http_text_read(strbuf_text(&text), size, true, BODY_MAX, &part, &first, &err);
    if (at_end > 0 || (r == 0 && at_end < 0) || (r < 0 && at_end != r))
        abort();
    for (size_t n = 0; n < size && n < 512; n++) {
        int early = http_text_read(strbuf_text(&text), n, false, BODY_MAX, &part, &first, &err);
        if (early < 0 && r != early)
            abort();
        if (early == 0 && (r != 0 || first.len != body.len || part.status != whole.status))
            abort();
    }
    return 0;
}
