#include "launcher/output/linebuf.h"

#include <string.h>

void linebuf_init(struct linebuf *b, size_t limit, bool collapse, linebuf_piece_fn *fn, void *arg) {
    assert(limit > 0);
    *b = (struct linebuf){
        .limit = limit, .collapse = collapse, .deadline_ns = TIME_NEVER, .fn = fn, .arg = arg};
}

void linebuf_fini(struct linebuf *b) { strbuf_fini(&b->text); }

static bool pending(const struct linebuf *b) { return b->text.len > 0 || b->replacing; }

static void emit(struct linebuf *b, const char *data, size_t len, bool ended) {
    struct linebuf_piece piece = {
        .data = data,
        .len = len,
        .start = b->replacing ? LINEBUF_REPLACES
                 : b->open    ? LINEBUF_CONTINUES
                              : LINEBUF_NEW,
        .ended = ended,
    };
    b->fn(b->arg, &piece);
    strbuf_clear(&b->text);
    b->replacing = false;
    b->open = !ended;
    b->deadline_ns = TIME_NEVER;
    if (ended)
        b->has_cr = b->at_cr = false;
}

static void overwrite(struct linebuf *b) {
    strbuf_clear(&b->text);
    b->replacing = b->open;
    b->at_cr = false;
}

/* Adds bytes that have no newline, and with collapse no CR. */
static void add(struct linebuf *b, const char *data, size_t len) {
    if (b->at_cr && len > 0)
        overwrite(b);
    while (len > b->limit - b->text.len) {
        size_t room = b->limit - b->text.len;
        strbuf_add_bytes(&b->text, data, room);
        emit(b, b->text.data, b->text.len, false);
        data += room;
        len -= room;
    }
    if (len > 0)
        strbuf_add_bytes(&b->text, data, len);
}

static void end_line(struct linebuf *b, const char *data, size_t len) {
    bool whole = b->text.len == 0 && !b->at_cr && len <= b->limit;
    if (whole) {
        emit(b, data, len, true); /* the usual case: nothing is copied */
        return;
    }
    add(b, data, len);
    emit(b, strbuf_text(&b->text), b->text.len, true);
}

/* Takes bytes up to the end of the line or of the data. Returns how many. */
static size_t feed_line(struct linebuf *b, const char *data, size_t len) {
    const char *nl = memchr(data, '\n', len);
    size_t n = nl == NULL ? len : (size_t)(nl - data), pos = 0;
    const char *cr;
    while ((cr = memchr(data + pos, '\r', n - pos)) != NULL) {
        b->has_cr = true;
        if (!b->collapse)
            break;
        add(b, data + pos, (size_t)(cr - data) - pos);
        b->at_cr = true;
        pos = (size_t)(cr - data) + 1;
    }
    if (nl == NULL)
        add(b, data + pos, n - pos);
    else
        end_line(b, data + pos, n - pos);
    return nl == NULL ? n : n + 1;
}

void linebuf_feed(struct linebuf *b, const void *data, size_t len, uint64_t now_ns) {
    const char *p = data;
    while (len > 0) {
        size_t n = feed_line(b, p, len);
        p += n;
        len -= n;
    }
    if (!pending(b))
        b->deadline_ns = TIME_NEVER;
    else if (!b->has_cr || b->deadline_ns == TIME_NEVER)
        b->deadline_ns = now_ns + LINEBUF_QUIET_NS;
}

void linebuf_defer(struct linebuf *b, uint64_t now_ns) {
    b->deadline_ns = now_ns + LINEBUF_QUIET_NS;
}

void linebuf_flush(struct linebuf *b) {
    if (pending(b))
        emit(b, strbuf_text(&b->text), b->text.len, false);
    b->deadline_ns = TIME_NEVER;
}

bool linebuf_finish(struct linebuf *b) {
    linebuf_flush(b);
    bool unfinished = b->open;
    b->open = b->has_cr = b->at_cr = false;
    return unfinished;
}
