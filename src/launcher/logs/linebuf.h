/* A worker's bytes in, pieces of lines out. Pure; shows nothing itself and knows no worker.
 *
 * A whole line comes at once. What has no newline yet is handed out after a quiet time, so that
 * prompts and progress bars are seen: the owner arms a timer for linebuf_deadline_ns() and calls
 * linebuf_flush(). A line above the limit comes in several pieces, none of it lost. Bytes are
 * passed as they are, UTF-8 or not, NULs too.
 *
 *     linebuf_init(&b, LINEBUF_LINE_MAX, collapse, on_piece, me);
 *     linebuf_feed(&b, data, len, now_ns);
 *     linebuf_finish(&b);                         end of file
 *     linebuf_fini(&b);
 *
 * With `collapse` (a terminal), of a line that is overwritten with carriage returns (a progress
 * bar) only the newest state is kept, and it is handed out no more often than once in the quiet
 * time. Without, a carriage return is a byte like any other, save that a line with one in it is
 * handed out after the quiet time though bytes still come. */
#pragma once

#include <stdbool.h>

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
    bool ended; /* a newline stood behind it: the line is whole */
};
typedef void linebuf_piece_fn(void *arg, const struct linebuf_piece *piece);

struct linebuf {
    struct strbuf text; /* bytes not yet handed out; never more than `limit` */
    size_t limit;
    bool collapse;
    bool open;            /* pieces of the present line have been handed out */
    bool replacing;       /* the next piece REPLACES them */
    bool has_cr;          /* a CR stood in this line: shown at a rate, not when it is quiet */
    bool at_cr;           /* with collapse: the last byte was a CR, the next overwrites the line */
    uint64_t deadline_ns; /* TIME_NEVER when all has been handed out */
    linebuf_piece_fn *fn;
    void *arg;
};

void linebuf_init(struct linebuf *b, size_t limit, bool collapse, linebuf_piece_fn *fn, void *arg);
void linebuf_fini(struct linebuf *b);
/* fn() is called for each whole line and each full piece. It must not touch the linebuf. */
void linebuf_feed(struct linebuf *b, const void *data, size_t len, uint64_t now_ns);
/* When linebuf_flush() is due, on the clock of now_ns. */
static inline uint64_t linebuf_deadline_ns(const struct linebuf *b) { return b->deadline_ns; }
/* Nothing of a line is remembered: whole lines may bypass it, where none has a carriage return that
 * collapses. */
static inline bool linebuf_is_empty(const struct linebuf *b) {
    return b->text.len == 0 && !b->open && !b->replacing && !b->has_cr && !b->at_cr;
}
/* Hands out what waits, as a piece that has not ended. */
void linebuf_flush(struct linebuf *b);
/* As flush, at end of file; the next byte would begin a new line. True if the last line had no
 * newline. */
bool linebuf_finish(struct linebuf *b);
