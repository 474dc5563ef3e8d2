/* Merges the lines of several logs in the order of their times. Pure: bytes and times come through
 * callbacks.
 *
 *     struct log_source a = {0}, b = {0}, *list[] = {&a, &b};
 *     whole = log_merge(list, 2, &ops, me);     shows what there is now
 *     log_source_fini(&a); …
 *
 * A line's time is that of the batch in which its first byte was written (launcher/output/
 * log_times.h). The lines of one source keep their order, even if its clock stepped back. Lines of
 * the same time come in the order of the sources. A source without times comes first. */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"
#include "launcher/output/log_times.h"

/* A longer line is shown in pieces, so that memory is bounded. */
#define LOG_PIECE_MAX ((size_t)64 * 1024)

struct log_source {
    struct strbuf text; /* bytes from `used` on are still to be shown */
    size_t used;
    uint64_t at;           /* offset in the log of the first of these */
    uint64_t ns;           /* of the present line; 0: not known */
    struct log_stamp next; /* the time after that, if has_next */
    bool has_next;
    bool no_stamp; /* there was none when it was last asked for */
    bool inside;   /* the line began in an earlier piece */
};

struct log_piece {
    const char *data; /* borrowed for the call; without the newline */
    size_t len;
    bool continues; /* the line that the source's last piece began */
    bool ended;     /* by a newline */
};

struct log_merge_ops {
    /* Adds bytes to s->text. False: there are no more now. */
    bool (*read)(void *arg, struct log_source *s);
    /* Whether the text after the last newline is shown, too. */
    bool (*show_rest)(void *arg, const struct log_source *s);
    /* The stamp after the last one that was read. False: there is none now. */
    bool (*read_stamp)(void *arg, struct log_source *s, struct log_stamp *ret);
    /* False: nothing more is wanted. */
    bool (*show)(void *arg, struct log_source *s, const struct log_piece *piece);
};

/* Shows every line that there is. Returns false if show() did. */
bool log_merge(struct log_source *const *sources, size_t n, const struct log_merge_ops *ops,
               void *arg);
void log_source_fini(struct log_source *s);
