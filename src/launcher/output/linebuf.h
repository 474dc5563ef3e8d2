/* Splits a worker's bytes into pieces of lines. Pure.
 *
 * A whole line is handed out at once. Bytes without a newline are handed out after a quiet time, so
 * that prompts and progress bars are shown: the owner arms a timer for linebuf_deadline_ns() and
 * calls linebuf_flush(). A line above the limit is handed out in several pieces, and nothing is
 * lost. Bytes are passed unchanged, UTF-8 or not, NULs too.
 *
 * With `collapse` (for a terminal), only the newest state of a line that is overwritten with
 * carriage returns (a progress bar) is kept, and it is handed out at most once in the quiet time.
 * Without `collapse`, a carriage return is a byte like any other, except that a line with one is
 * handed out after the quiet time even while bytes still arrive. */
#pragma once

#include "base/text/strbuf.h"

#define LINEBUF_LINE_MAX ((size_t)64 * 1024)
#define LINEBUF_QUIET_NS (200 * NS_PER_MS)

enum linebuf_start {
    LINEBUF_NEW = 1,   /* the first piece of a line */
    LINEBUF_CONTINUES, /* continues where the last piece ended */
    LINEBUF_REPLACES,  /* overwrites all pieces of this line so far; only with collapse */
};

struct linebuf_piece {
    const char *data; /* borrowed for the call; without the newline */
    size_t len;       /* may be 0 */
    enum linebuf_start start;
    bool ended; /* a newline followed: the line is complete */
};
typedef void linebuf_piece_fn(void *arg, const struct linebuf_piece *piece);

struct linebuf {
    struct strbuf text; /* bytes not yet handed out; at most `limit` */
    size_t limit;
    bool collapse;
    bool open;      /* pieces of the current line have been handed out */
    bool replacing; /* the next piece REPLACES them */
    bool has_cr;    /* this line had a CR: shown at a rate, not after a quiet time */
    /* with collapse: the last byte was a CR; the next one overwrites the line */
    bool at_cr;
    uint64_t deadline_ns; /* TIME_NEVER if everything has been handed out */
    linebuf_piece_fn *fn;
    void *arg;
};

void linebuf_init(struct linebuf *b, size_t limit, bool collapse, linebuf_piece_fn *fn, void *arg);
void linebuf_fini(struct linebuf *b);
/* fn() is called for each whole line and each full piece. It must not touch the linebuf. */
void linebuf_feed(struct linebuf *b, const void *data, size_t len, uint64_t now_ns);
/* When linebuf_flush() is due, on the clock of now_ns. */
static inline uint64_t linebuf_deadline_ns(const struct linebuf *b) { return b->deadline_ns; }
/* No part of a line is stored. Then whole lines may bypass the linebuf, unless they have a carriage
 * return and it collapses. */
static inline bool linebuf_is_empty(const struct linebuf *b) {
    return b->text.len == 0 && !b->open && !b->replacing && !b->has_cr && !b->at_cr;
}
/* The stored line is overwritten again and again; only its newest state matters. */
static inline bool linebuf_is_bar(const struct linebuf *b) { return b->collapse && b->has_cr; }
/* Makes linebuf_flush() due a quiet time later. */
void linebuf_defer(struct linebuf *b, uint64_t now_ns);
/* Hands out the stored bytes, as a piece whose line has not ended. */
void linebuf_flush(struct linebuf *b);
/* Like flush, at end of file; the next byte would begin a new line. True if the last line had no
 * newline. */
bool linebuf_finish(struct linebuf *b);
