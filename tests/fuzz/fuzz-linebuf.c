/* First byte: the limit and whether to collapse; then chunks (length, bytes) with flushes between. Without collapse
 * every byte is returned, in order. With it every line is returned as a terminal would show it. */
#include <string.h>

#include "launcher/output/linebuf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct shown {
    struct strbuf text; /* without collapse: everything; with collapse: the current line */
    struct strbuf lines;
    size_t limit;
    bool open, collapse;
};

static void on_piece(void *arg, const struct linebuf_piece *p) {
    struct shown *s = arg;
    if (p->len > s->limit || (p->start == LINEBUF_NEW) == s->open)
        abort();
    if (p->start == LINEBUF_REPLACES && !s->collapse)
        abort();
    if (p->start == LINEBUF_REPLACES)
        strbuf_clear(&s->text);
    if (memchr(p->data, '\n', p->len) != NULL)
        abort();
    strbuf_add_bytes(&s->text, p->data, p->len);
    s->open = !p->ended;
    if (!p->ended)
        return;
    strbuf_add_bytes(&s->lines, s->text.data, s->text.len);
    strbuf_add_char(&s->lines, '\n');
    strbuf_clear(&s->text);
}

/* The expected result for a whole input: each line from its last state on. */
static void expect(const uint8_t *in, size_t len, bool collapse, struct strbuf *lines, struct strbuf *rest) {
    bool at_cr = false;
    for (size_t i = 0; i < len; i++) {
        if (in[i] == '\n') {
            strbuf_add_bytes(lines, rest->data, rest->len);
            strbuf_add_char(lines, '\n');
            strbuf_clear(rest);
            at_cr = false;
        } else if (collapse && in[i] == '\r') {
            at_cr = true;
        } else {
            if (at_cr)
                strbuf_clear(rest);
            at_cr = false;
            strbuf_add_bytes(rest, &in[i], 1);
        }
    }
}

static void must_equal(const struct strbuf *a, const struct strbuf *b) {
    if (a->len != b->len || (a->len > 0 && memcmp(a->data, b->data, a->len) != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1)
        return 0;
    struct shown s = {.limit = (size_t)(data[0] >> 1) + 1, .collapse = (data[0] & 1) != 0};
    _cleanup_(strbuf_fini) struct strbuf fed = {0}, lines = {0}, rest = {0};
    struct linebuf b;
    linebuf_init(&b, s.limit, s.collapse, on_piece, &s);
    uint64_t now_ns = 0;
    for (size_t pos = 1; pos < size;) {
        size_t n = data[pos] >> 1;
        bool flush = (data[pos] & 1) != 0;
        pos++;
        n = MIN2(n, size - pos);
        linebuf_feed(&b, data + pos, n, now_ns++);
        strbuf_add_bytes(&fed, data + pos, n);
        pos += n;
        if (b.text.len > s.limit)
            abort();
        if (flush)
            linebuf_flush(&b);
        if (flush && linebuf_deadline_ns(&b) != TIME_NEVER)
            abort();
    }
    (void)linebuf_finish(&b);
    expect((const uint8_t *)strbuf_text(&fed), fed.len, s.collapse, &lines, &rest);
    must_equal(&s.lines, &lines);
    must_equal(&s.text, &rest);
    linebuf_fini(&b);
    strbuf_fini(&s.text);
    strbuf_fini(&s.lines);
    return 0;
}
