#include "base/text/tail.h"

#include <string.h>

/* Of a text that comes at once: more than TAIL_LINES, for callers that need all of its end. */
#define LINES_AT_ONCE 200

void tail_fini(struct tail *t) { strbuf_fini(&t->text); }

static void cut(struct tail *t, size_t len) {
    t->text.len = len;
    t->text.data[len] = '\0';
}

/* The last line of a traceback: it follows an indented one. */
static bool is_exception(const struct tail *t) {
    const char *text = strbuf_text(&t->text), *above = text + t->line;
    for (above -= t->line > 0; above > text && above[-1] != '\n';)
        above--;
    return strncmp(above, "    ", 4) == 0 && text[t->line] != ' ';
}

/* Adds a part of a line. */
static void add_part(struct tail *t, const char *data, size_t len) {
    for (size_t n; len > 0 && !t->skips; data += n, len -= n) {
        const char *cr = memchr(data, '\r', len);
        n = cr != NULL ? (size_t)(cr - data) : len;
        if (n > 0 && t->at_cr && t->text.len > t->line) {
            t->skips = is_exception(t);
            cut(t, t->skips ? t->text.len : t->line);
        }
        size_t from = t->text.len, room = TAIL_LINE_BYTES - (from - t->line);
        strbuf_add_bytes(&t->text, data, t->skips ? 0 : MIN2(n, room));
        for (; from < t->text.len; from++)
            if (t->text.data[from] == '\0')
                t->text.data[from] = '?';
        t->at_cr = cr != NULL;
        n += cr != NULL;
    }
}

void tail_add(struct tail *t, const char *data, size_t len) {
    const char *end = data + len, *last = end;
    for (int n = 0; n <= LINES_AT_ONCE && last != NULL; n++)
        last = memrchr(data, '\n', (size_t)(last - data));
    if (last != NULL) {
        strbuf_clear(&t->text);
        *t = (struct tail){.text = t->text};
        data = last + 1;
    }
    while (data < end) {
        const char *nl = memchr(data, '\n', (size_t)(end - data));
        add_part(t, data, (size_t)((nl != NULL ? nl : end) - data));
        data = nl != NULL ? nl + 1 : end;
        if (nl == NULL)
            break;
        strbuf_add_char(&t->text, '\n');
        if (t->text.len > 2 * TAIL_BYTES) {
            memmove(t->text.data, t->text.data + t->text.len - TAIL_BYTES, TAIL_BYTES);
            cut(t, TAIL_BYTES);
        }
        t->line = t->text.len;
        t->at_cr = t->skips = false;
    }
}

const char *tail_lines(const struct tail *t) {
    const char *text = strbuf_text(&t->text), *end = text + t->text.len, *from = end, *p = end;
    for (int n = 0; n < TAIL_LINES && p > text; n++) {
        const char *nl = memrchr(text, '\n', (size_t)(p - text) - 1);
        p = nl == NULL ? text : nl + 1;
        if ((size_t)(end - p) >= TAIL_BYTES)
            break;
        from = p;
    }
    return from;
}
