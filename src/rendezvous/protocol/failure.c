#include "rendezvous/protocol/failure.h"

#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "base/text/signal_name.h"
#include "base/text/utf8.h"
#include "base/util.h"

/* The beginning of each frame in a traceback of Python, and of the place of a syntax error. */
#define FRAME "  File \""
#define TRACEBACK "Traceback (most recent call last):"
#define IGNORED "Exception ignored "
#define THREAD "Exception in thread "
/* What libstdc++ prints about a C++ exception before SIGABRT. */
#define CXX_WHAT "  what():  "

static int noise_of_exit(const struct failure *f) {
    static const char *const echoes[] = {
        "DistNetworkError",
        "DistStoreError",
        "DistBackendError",
        "NCCL",
        "TCPStore",
        "gloo",
        "Connection closed by peer",
        "Connection refused",
        "Connection reset by peer",
        "lost the connection",
    };
    return text_has_any(f->text, echoes, ARRAY_SIZE(echoes)) ? 2 : 1;
}

int failure_noise(const struct failure *f) {
    switch (f->kind) {
    case FAILURE_OOM:
    case FAILURE_SPAWN:
    case FAILURE_HANG: return 0;
    case FAILURE_SIGNAL: return f->code == SIGABRT || f->code == SIGPIPE ? noise_of_exit(f) : 0;
    case FAILURE_EXIT:
    case FAILURE_NODE: return noise_of_exit(f);
    case FAILURE_NONE:
    case FAILURE_KIND_COUNT: return 3;
    }
    assert_not_reached();
}

bool failure_may_end_node(const struct failure *f) {
    return f->kind == FAILURE_OOM ||
           (f->kind == FAILURE_SIGNAL && (f->code == SIGKILL || f->code == SIGTERM));
}

bool failure_by_signal(const struct failure *f) {
    return f->kind == FAILURE_SIGNAL || (f->kind == FAILURE_OOM && f->code != 0);
}

const char *failure_interpreter(const struct failure *f) {
    const char *line = strrchr(f->text, '\n');
    return line != NULL && strncmp(line + 1, FAILURE_INTERPRETER, strlen(FAILURE_INTERPRETER)) == 0
               ? line + 1
               : NULL;
}

static struct piece line_at(const char *at) { return (struct piece){at, strcspn(at, "\r\n")}; }

static const char *line_begin(const char *text, const char *at) {
    while (at > text && at[-1] != '\n')
        at--;
    return at;
}

/* Returns the line before that of `at`; at the beginning of the text an empty one. */
static struct piece line_above(const char *text, const char *at) {
    const char *line = line_begin(text, at);
    return line > text ? line_at(line_begin(text, line - 1)) : (struct piece){0};
}

/* Returns the line before a traceback, if it names a thread. */
static struct piece thread_of(const char *text, const char *traceback) {
    struct piece above = line_above(text, traceback);
    return above.len > 0 && strncmp(above.at, THREAD, strlen(THREAD)) == 0 ? above
                                                                           : (struct piece){0};
}

static const char *last_of(const char *text, const char *what) {
    const char *found = NULL;
    for (const char *p = strstr(text, what); p != NULL; p = strstr(p + 1, what))
        found = p;
    return found;
}

/* Not of an exception that Python ignored, as in __del__(): its line before reports that. */
static const char *last_traceback(const char *text) {
    const char *found = NULL;
    for (const char *p = strstr(text, TRACEBACK); p != NULL; p = strstr(p + 1, TRACEBACK)) {
        struct piece above = line_above(text, p);
        if (above.len == 0 || memmem(above.at, above.len, IGNORED, strlen(IGNORED)) == NULL)
            found = p;
    }
    return found;
}

/* The first line after a frame that is not indented. Each line may have a prefix, as PyTorch's
 * "[rank0]: ". The message may have frames, too, as torch.compile's "from user code:". */
static struct exception python_exception(const char *text) {
    struct exception e = {0};
    const char *begin = last_traceback(text), *frame = NULL, *line, *prefix;
    if (begin != NULL)
        frame = strstr(begin, FRAME);
    else if (strstr(text, TRACEBACK) == NULL) /* a syntax error; or the beginning was cut off */
        frame = last_of(text, FRAME);
    if (frame == NULL)
        return e;
    prefix = line_begin(text, frame);
    line = frame;
    while ((line = strchr(line, '\n')) != NULL) {
        line++;
        if (strncmp(line, prefix, (size_t)(frame - prefix)) != 0)
            continue; /* of another process */
        struct piece rest = line_at(line + (frame - prefix));
        size_t blanks = strspn(rest.at, " ");
        if (blanks >= rest.len || (blanks > 0 && e.line.len == 0))
            continue;
        if (e.line.len > 0) {
            e.more = (struct piece){rest.at + blanks, rest.len - blanks};
            break;
        }
        e.line = rest;
        if (rest.len < 2 || memcmp(rest.at + rest.len - 2, ": ", 2) != 0)
            break;
    }
    if (begin != NULL)
        e.thread = thread_of(text, begin);
    return e;
}

static struct piece last_output(const struct failure *f) {
    const char *end = failure_interpreter(f);
    if (end == NULL)
        end = f->text + strlen(f->text);
    while (end > f->text && isspace((unsigned char)end[-1]))
        end--;
    const char *begin = line_begin(f->text, end);
    while (begin < end && isspace((unsigned char)*begin))
        begin++;
    return (struct piece){begin, (size_t)(end - begin)};
}

/* Of a signal only a C++ exception is an explanation. Python ends with 1 because of an exception;
 * with another exit code it may have been caught, unless it is the last line. */
struct exception failure_exception(const struct failure *f) {
    struct exception e = {0};
    if (f->kind == FAILURE_SIGNAL && f->code == SIGABRT) {
        const char *what = last_of(f->text, CXX_WHAT);
        if (what != NULL)
            e.line = line_at(what + strlen(CXX_WHAT));
        return e;
    }
    if (f->kind == FAILURE_EXIT)
        e = python_exception(f->text);
    if (f->code != 1 && !f->text_is_traceback && e.line.at < last_output(f).at)
        e = (struct exception){0};
    if (e.line.len == 0 && f->text_is_traceback && !failure_by_signal(f))
        e.line = last_output(f);
    return e;
}

const char *failure_traceback(const struct failure *f) {
    if (f->text_is_traceback || failure_exception(f).line.len == 0 || failure_by_signal(f))
        return NULL;
    const char *begin = strstr(f->text, TRACEBACK);
    struct piece thread = begin != NULL ? thread_of(f->text, begin) : (struct piece){0};
    if (thread.len > 0)
        return thread.at;
    return line_begin(f->text, begin != NULL ? begin : strstr(f->text, FRAME));
}

static void add_exit_code(int code, struct strbuf *ret) {
    strbuf_printf(ret, "ended with exit code %d", code);
    char name[SIGNAL_TEXT_MAX];
    if (code == 126) {
        strbuf_add(ret, " (found, but not executable)");
    } else if (code == 127) {
        strbuf_add(ret, " (program or library not found)");
    } else if (code > 128 && code <= 128 + 64) {
        signal_text(code - 128, name);
        strbuf_printf(ret, " (%s of a process below it)", name);
    }
}

void failure_cause_text(const struct failure *f, struct strbuf *ret) {
    char name[SIGNAL_TEXT_MAX];
    signal_text(f->code, name);
    switch (f->kind) {
    case FAILURE_EXIT: add_exit_code(f->code, ret); return;
    case FAILURE_SIGNAL:
        strbuf_printf(ret, "died of %s%s", name, f->core_dumped ? " (core dumped)" : "");
        return;
    case FAILURE_OOM:
        strbuf_add(ret, "ran out of memory");
        if (f->code != 0)
            strbuf_printf(ret, " (%s from the kernel)", name);
        return;
    case FAILURE_SPAWN:
        strbuf_printf(ret, "could not be started: %s",
                      f->text[0] == '\0' ? strerror(f->code) : f->text);
        return;
    case FAILURE_NODE: strbuf_add(ret, f->text[0] == '\0' ? "was lost" : f->text); return;
    case FAILURE_HANG: strbuf_add(ret, "kept the others waiting"); return;
    case FAILURE_NONE:
    case FAILURE_KIND_COUNT: break;
    }
    assert_not_reached();
}

static void add_piece(const char *before, struct piece p, struct strbuf *ret) {
    if (p.len == 0)
        return;
    strbuf_add(ret, before);
    strbuf_add_bytes(ret, p.at, p.len);
}

void failure_add_exception(const char *before, struct exception e, struct strbuf *ret) {
    add_piece(before, e.thread, ret);
    add_piece(e.thread.len > 0 ? " " : before, e.line, ret);
    add_piece("", e.more, ret);
}

void failure_line(const struct failure *f, const char *after, struct strbuf *ret) {
    struct exception exception = failure_exception(f);
    if (f->kind == FAILURE_HANG) {
        strbuf_printf(ret, "the job hangs: %s%s", f->text, after); /* it has the ranks */
        return;
    }
    if (f->kind == FAILURE_NODE)
        strbuf_printf(ret, "node %s%s", f->node, f->text[0] == '\0' ? " " : ": ");
    else
        strbuf_printf(ret, "rank %" PRIu32 " (node %s) ", f->rank, f->node);
    failure_cause_text(f, ret);
    strbuf_add(ret, after);
    failure_add_exception(": ", exception, ret);
    if (f->kind == FAILURE_EXIT && exception.line.len == 0)
        add_piece(": ", last_output(f), ret);
}

void failure_copy_line(const struct failure *f, const char *after, char *ret, size_t size) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    failure_line(f, after, &text);
    if (f->kind == FAILURE_HANG && text.len >= size) { /* whole descriptions of ranks are kept */
        size_t len = size - 1 - strlen(after);
        while (len > 0 && text.data[len] != ';')
            len--;
        text.len = len > 0 ? len : text.len;
        text.data[text.len] = '\0';
        strbuf_add(&text, after);
    }
    utf8_copy_line(ret, size, strbuf_text(&text));
}
