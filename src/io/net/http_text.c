#include "io/net/http_text.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/text/parse.h"

/* What is still to be read. */
struct rest {
    const char *at, *end;
};

struct line {
    const char *text; /* without the end of the line, not terminated */
    size_t len;
};

struct head {
    int status;
    bool stays_open, is_chunked, has_length;
    uint64_t length; /* of the body */
};

static int no_http(struct err *err) { return err_set(err, -EPROTO, "what it sent is not HTTP"); }

static int too_long(struct err *err) { return err_set(err, -EMSGSIZE, "its answer is too long"); }

static bool take_line(struct rest *r, struct line *ret) {
    const char *end = memchr(r->at, '\n', (size_t)(r->end - r->at));
    if (end == NULL)
        return false;
    *ret = (struct line){r->at, (size_t)(end - r->at)};
    if (ret->len > 0 && end[-1] == '\r')
        ret->len--;
    r->at = end + 1;
    return true;
}

static bool is_space(char c) { return c == ' ' || c == '\t'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* "HTTP/1.1 200 OK" */
static int read_status(struct line l, struct head *h, struct err *err) {
    const char *t = l.text;
    if (l.len < 12 || memcmp(t, "HTTP/1.", 7) != 0 || !is_digit(t[7]) || t[8] != ' ' ||
        !is_digit(t[9]) || !is_digit(t[10]) || !is_digit(t[11]) || (l.len > 12 && t[12] != ' '))
        return no_http(err);
    *h = (struct head){.stays_open = t[7] != '0'};
    h->status = (t[9] - '0') * 100 + (t[10] - '0') * 10 + (t[11] - '0');
    return h->status >= 100 ? 0 : no_http(err);
}

static bool is_text(struct line l, const char *text) {
    return l.len == strlen(text) && strncasecmp(l.text, text, l.len) == 0;
}

static int read_length(struct line value, struct head *h, struct err *err) {
    char digits[24] = "";
    uint64_t n;
    if (value.len < sizeof digits)
        memcpy(digits, value.text, value.len);
    if (parse_u64(digits, &n) < 0 || (h->has_length && n != h->length))
        return no_http(err);
    h->has_length = true;
    h->length = n;
    return 0;
}

static int read_header(struct line l, struct head *h, struct err *err) {
    const char *colon = memchr(l.text, ':', l.len);
    if (colon == NULL)
        return no_http(err);
    struct line name = {l.text, (size_t)(colon - l.text)};
    struct line value = {colon + 1, l.len - name.len - 1};
    for (; value.len > 0 && is_space(value.text[0]); value.len--)
        value.text++;
    while (value.len > 0 && is_space(value.text[value.len - 1]))
        value.len--;
    if (is_text(name, "Content-Length"))
        return read_length(value, h, err);
    if (is_text(name, "Transfer-Encoding")) {
        h->is_chunked = true;
        return is_text(value, "chunked") ? 0 : no_http(err);
    }
    if (is_text(name, "Connection") && is_text(value, "close"))
        h->stays_open = false;
    return 0;
}

static int read_head(struct rest *r, struct head *h, struct err *err) {
    const char *begin = r->at;
    struct line l;
    bool first = true;
    while (take_line(r, &l)) {
        if (!first && l.len == 0)
            return 0;
        int e = first ? read_status(l, h, err) : read_header(l, h, err);
        if (e < 0)
            return e;
        first = false;
    }
    return r->end - begin > HTTP_HEAD_MAX ? too_long(err) : HTTP_TEXT_E_MORE;
}

/* The number that begins the line of a chunk; what follows a semicolon is ignored. */
static int read_chunk_size(struct line l, size_t *ret, struct err *err) {
    size_t i = 0, n = 0;
    for (; i < l.len && hex_digit(l.text[i]) >= 0; i++) {
        if (n > SIZE_MAX >> 4)
            return too_long(err);
        n = n << 4 | (size_t)hex_digit(l.text[i]);
    }
    *ret = n;
    return i > 0 && (i == l.len || l.text[i] == ';' || is_space(l.text[i])) ? 0 : no_http(err);
}

static int read_chunks(struct rest *r, size_t max, struct strbuf *body, struct err *err) {
    struct line l;
    size_t n = 0;
    while (take_line(r, &l)) {
        int e = read_chunk_size(l, &n, err);
        if (e < 0)
            return e;
        if (n > max - body->len)
            return too_long(err);
        if (n == 0)
            break;
        if ((size_t)(r->end - r->at) < n)
            return HTTP_TEXT_E_MORE;
        strbuf_add_bytes(body, r->at, n);
        r->at += n;
        if (!take_line(r, &l))
            return HTTP_TEXT_E_MORE;
        if (l.len > 0)
            return no_http(err);
    }
    /* headers can follow the last chunk */
    while (take_line(r, &l))
        if (l.len == 0)
            return 0;
    return HTTP_TEXT_E_MORE;
}

static int read_body(struct rest *r, bool ended, size_t max, struct head *h, struct strbuf *body,
                     struct err *err) {
    size_t len = (size_t)(r->end - r->at);
    if (h->status == 204 || h->status == 304)
        return 0;
    if (h->is_chunked)
        return read_chunks(r, max, body, err);
    if (!h->has_length) { /* it ends with the connection */
        h->stays_open = false;
        h->length = len;
    }
    if (h->length > max)
        return too_long(err);
    if (len < h->length || (!h->has_length && !ended))
        return HTTP_TEXT_E_MORE;
    strbuf_add_bytes(body, r->at, (size_t)h->length);
    r->at += h->length;
    return 0;
}

int http_text_read(const char *text, size_t len, bool ended, size_t max_body, struct http_text *ret,
                   struct strbuf *body, struct err *err) {
    struct rest r = {text, text + len};
    struct head h = {0};
    strbuf_clear(body);
    int e = read_head(&r, &h, err);
    while (e == 0 && h.status < 200) /* the answer follows */
        e = read_head(&r, &h, err);
    if (e == 0)
        e = read_body(&r, ended, max_body, &h, body, err);
    if (e == HTTP_TEXT_E_MORE && len > HTTP_HEAD_MAX + 2 * max_body) /* in many small chunks */
        e = too_long(err);
    if (e == HTTP_TEXT_E_MORE && ended)
        e = err_set(err, -ECONNRESET, "the connection ended before the answer was complete");
    if (e == 0)
        *ret = (struct http_text){h.status, h.stays_open && r.at == r.end};
    return e;
}
