#include <stdbool.h>
#include <string.h>

#include "base/util.h"
#include "watchdog/evidence/disturb.h"

#define THREAD "TID "
#define MORE "more is left out\n"

/* A thread, and how many later ones have the same frames. */
struct stack {
    const char *tid;
    size_t tid_len;
    struct strbuf frames;
    uint32_t more;
};

/* The next line, without its end. False: there is none. */
static bool next_line(const char **at, const char *end, const char **ret, size_t *ret_len) {
    if (*at >= end)
        return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    *ret = *at;
    *ret_len = (size_t)((stop != NULL ? stop : end) - *at);
    *at = stop != NULL ? stop + 1 : end;
    return true;
}

static size_t skip(const char *line, size_t len, size_t at, bool blanks) {
    while (at < len && (line[at] == ' ') == blanks)
        at++;
    return at;
}

/* Where the module begins that eu-stack -m prints, " - /usr/lib/libc.so.6"; len: none. */
static size_t module_at(const char *line, size_t len, size_t from) {
    static const char before[] = " - /";
    size_t n = sizeof before - 1;
    for (size_t at = len; at >= from + n; at--)
        if (memcmp(line + at - n, before, n) == 0)
            return at - n;
    return len;
}

/* "#0  0x00007fc1871e1dd0 pause - /usr/lib/libc.so.6" becomes "pause  libc.so.6". */
static void add_frame(const char *line, size_t len, struct strbuf *ret) {
    size_t address = skip(line, len, skip(line, len, 0, false), true);
    size_t behind = skip(line, len, address, false), end = module_at(line, len, behind);
    size_t name = skip(line, end, behind, true);
    size_t from = name < end ? name : address, until = name < end ? end : behind;
    strbuf_add(ret, "  ");
    strbuf_add_bytes(ret, line + from, MIN2(until - from, (size_t)NATIVE_NAME_MAX));
    if (end < len) {
        const char *slash = memrchr(line + end, '/', len - end);
        size_t n = (size_t)(line + len - (slash + 1));
        strbuf_add(ret, "  ");
        strbuf_add_bytes(ret, slash + 1, MIN2(n, (size_t)NATIVE_MODULE_MAX));
    }
    strbuf_add_char(ret, '\n');
}

static bool starts(const char *line, size_t len, const char *with) {
    size_t n = strlen(with);
    return len > n && memcmp(line, with, n) == 0;
}

/* The thread that begins at *at, after its first line, up to the next one's. */
static void read_frames(const char **at, const char *end, struct strbuf *ret) {
    const char *line, *before = *at;
    size_t len;
    uint32_t n = 0;
    while (next_line(at, end, &line, &len) && !starts(line, len, THREAD)) {
        before = *at;
        if (line[0] == '#' && n++ < NATIVE_FRAMES_MAX)
            add_frame(line, len, ret);
    }
    if (n > NATIVE_FRAMES_MAX)
        strbuf_add(ret, "  ...\n");
    *at = before;
}

static void add_stack(struct stack *stacks, uint32_t *n, struct stack *one) {
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(strbuf_text(&stacks[i].frames), strbuf_text(&one->frames)) == 0) {
            stacks[i].more++;
            strbuf_fini(&one->frames);
            return;
        }
    stacks[(*n)++] = *one;
}

static bool write_stack(const struct stack *s, size_t max, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf part = {0};
    strbuf_printf(&part, "thread %.*s", (int)s->tid_len, s->tid);
    if (s->more > 0)
        strbuf_printf(&part, ", and %u more like it", s->more);
    strbuf_add(&part, ":\n");
    strbuf_add_bytes(&part, strbuf_text(&s->frames), s->frames.len);
    if (ret->len + part.len > max)
        return false;
    strbuf_add_bytes(ret, strbuf_text(&part), part.len);
    return true;
}

void native_shorten(const char *data, size_t len, size_t max, struct strbuf *ret) {
    struct stack *stacks = xcalloc(NATIVE_STACKS_MAX, sizeof *stacks);
    const char *at = data, *end = data + len, *line;
    size_t line_len, limit = ret->len + (max > strlen(MORE) ? max - strlen(MORE) : 0);
    uint32_t n = 0;
    bool all = true;
    while (all && next_line(&at, end, &line, &line_len)) {
        struct stack one = {0};
        if (!starts(line, line_len, THREAD))
            continue;
        one.tid = line + strlen(THREAD);
        one.tid_len = line_len - strlen(THREAD) - (line[line_len - 1] == ':');
        read_frames(&at, end, &one.frames);
        add_stack(stacks, &n, &one);
        all = n < NATIVE_STACKS_MAX;
    }
    for (uint32_t i = 0; i < n; i++) {
        all = write_stack(&stacks[i], limit, ret) && all;
        strbuf_fini(&stacks[i].frames);
    }
    if (!all)
        strbuf_add(ret, MORE);
    free(stacks);
}
