/* The launcher's own standard output and error. Many sources write to them without waiting.
 *
 * Lines of different sources are never torn or mixed: after a line without its newline (a prompt, a
 * progress bar) another source's line begins with one.
 *
 * No line of a source is dropped while there is a reader. What a slow or stopped one has not taken
 * waits in a queue: in memory, then in a file (console_spool()), and then the sources must wait
 * (console_source_must_wait()). A quick reader makes them wait instead of using a file, because
 * that costs less. Only the launcher's own lines have a limit; how many were dropped is shown once
 * the queue drains. If both descriptors are the same, there is one queue, so the order is kept.
 *
 * O_NONBLOCK belongs to the open file that other processes share (the user's shell, a pipeline), so
 * it is never set on descriptors 1 and 2. A terminal or pipe is opened once more, non-blocking,
 * through /proc/self/fd; a socket is written with MSG_DONTWAIT; a plain file is written directly.
 * Where a terminal or pipe can't be opened again (it belongs to another user), bytes are written
 * only when poll reports room, in pieces that such a pipe takes whole (PIPE_BUF).
 *
 * The caller ignores SIGPIPE. When the reader is gone (EPIPE, EIO of a terminal), all later output
 * to it is dropped silently, because that may be on purpose (`| head`). On a full disk (ENOSPC)
 * output is dropped until there is room, which is reported once on the other of the two, and counts
 * as a failure, if it was a source's output (console_failed()). */
#pragma once

#include "base/err.h"
#include "io/loop.h"
#include "launcher/output/linebuf.h"

/* With so many bytes in memory, sources wait as long as the reader is quick: it takes so many bytes
 * in this time. */
#define CONSOLE_WAIT_BYTES ((size_t)4 * 1024 * 1024)
#define CONSOLE_QUICK_BYTES ((size_t)4 * 1024 * 1024)
#define CONSOLE_QUICK_NS (250 * NS_PER_MS)
/* With so many, the file is used; without one, sources wait until the reader has taken some. */
#define CONSOLE_SPOOL_BYTES ((size_t)8 * 1024 * 1024)
/* The most, including what workers that have ended still have in their pipes. */
#define CONSOLE_MEMORY_MAX ((size_t)64 * 1024 * 1024)
/* The most with which a line of the launcher itself is still taken. */
#define CONSOLE_OWN_MAX (CONSOLE_MEMORY_MAX + (size_t)256 * 1024)
#define CONSOLE_STATUS_MAX 512 /* bytes of the status line */

struct console;

enum console_stream { CONSOLE_OUT = 1, CONSOLE_ERR };

/* Both descriptors are borrowed and stay open and unchanged. loop must outlive the console. */
_must_use_ struct console *console_new(struct loop *loop, int out_fd, int err_fd);
/* Drops what is still queued. Takes NULL. */
void console_free(struct console *c);

/* One source of lines: a worker's stream. The caller must not move it, and calls
 * console_source_fini() before the console is freed. */
struct console_source {
    struct console *console;
    enum console_stream stream;
    const char *prefix; /* borrowed; before each line; may be "" */
    size_t known;       /* a line that begins with so many bytes of it has one already; 0: none */
};
/* prefix: borrowed until console_source_fini(); NULL: none. One that ends with a blank is not
 * repeated: PyTorch begins the lines of a traceback with "[rank3]: ", too. */
void console_source_init(struct console_source *s, struct console *c, enum console_stream stream,
                         const char *prefix);
void console_source_fini(struct console_source *s);
/* Never waits and never fails, like the next three. */
void console_source_piece(struct console_source *s, const struct linebuf_piece *piece);
/* Feeds the linebuf, whose pieces go to this source; whole lines bypass it: most of the work for a
 * worker that writes fast. */
void console_source_feed(struct console_source *s, struct linebuf *to, const char *data, size_t len,
                         uint64_t now_ns);
/* Bytes of a source that has the terminal for itself: they are passed on as they come. */
void console_source_exact(struct console_source *s, const char *data, size_t len);
/* Another source updates the bottom line (a progress bar): an unfinished line should wait. */
bool console_source_yields(const struct console_source *s);
#define CONSOLE_BAR_NS (1 * NS_PER_S) /* for so long after an update */
/* The source should not be read now, because its pieces would fill the queue: ask again after
 * CONSOLE_RETRY_NS. Never true for plain files. */
#define CONSOLE_RETRY_NS (5 * NS_PER_MS)
bool console_source_must_wait(const struct console_source *s);
/* The same for a source whose writer has ended: its rest is bounded, and others wait for it, so it
 * may fill memory up to CONSOLE_MEMORY_MAX. */
bool console_source_is_full(const struct console_source *s);
/* The job is to end: from now on nothing is full for such sources. */
void console_take_rest(struct console *c);
/* Its output is not visible, now or later: it goes to /dev/null, or its terminal is gone. */
bool console_source_is_dropped(const struct console_source *s);
/* End of file of the source. A line without a prefix gets its newline only when other output
 * follows, so a single worker's bytes are shown unchanged. */
void console_source_end(struct console_source *s);

/* The launcher's own text: whole lines with their newlines, kept together. */
void console_print(struct console *c, enum console_stream stream, const char *text, size_t len);
/* For base/log: arg is the console. */
void console_log_sink(void *arg, const char *line, size_t len);

/* A line at the bottom of the terminal, cut to its width and rewritten in place; NULL or "" removes
 * it. False: standard error is not a terminal, or TERM is "dumb", and nothing is shown. */
bool console_status(struct console *c, const char *text);
/* Whether the terminal of standard error has room for such a line; else its end would be cut. */
bool console_status_fits(const struct console *c, const char *text);
/* Whether that stream is a terminal. If so, the sources' linebufs should collapse. */
bool console_is_terminal(const struct console *c, enum console_stream stream);

/* A copy of this process that writes for the console, what was queued before, too. */
struct console_remote {
    void (*print)(void *arg, enum console_stream stream, const char *text, size_t len);
    void (*status)(void *arg, const char *text);
};
/* Borrowed; NULL: none from now on. */
void console_use_remote(struct console *c, const struct console_remote *remote, void *arg);
/* Called in the copy: the console continues there, in a loop of its own, on descriptors 1 and 2. */
void console_reopen(struct console *c, struct loop *loop);
/* Whether one of the two is a plain file, so a write can wait for a disk. */
bool console_may_hang(const struct console *c);
/* The descriptor that was passed to console_new(). */
int console_fd(const struct console *c, enum console_stream stream);
/* Whether both descriptors are the same file, pipe or terminal. */
bool console_is_one(const struct console *c);
/* Lets each of the two keep so many bytes in a file; 0 at first. */
void console_spool(struct console *c, uint64_t bytes);
/* How many bytes are queued. */
uint64_t console_pending(const struct console *c);
/* Calls fn() from the loop each time that nothing is queued any more. */
void console_on_empty(struct console *c, void (*fn)(void *arg), void *arg);

/* If more than `most` bytes are queued, and the reader has taken none since the last call: drops
 * these, and all later output of this stream. Returns whether it did. */
bool console_drop_if_stuck(struct console *c, enum console_stream stream, size_t most);

/* Writes what is queued, and waits until the deadline at most. Returns how many bytes are left (0:
 * everything is written). Removes the status line. */
uint64_t console_flush(struct console *c, uint64_t deadline_ns);
/* Whether output of sources was lost, although no reader has left. */
bool console_failed(const struct console *c);
