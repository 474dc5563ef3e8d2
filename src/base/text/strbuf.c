#include "base/text/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"

void strbuf_fini(struct strbuf *s) {
    free(s->data);
    *s = (struct strbuf){0};
}

void strbuf_forget(struct strbuf *s) {
    if (s->data != NULL)
        explicit_bzero(s->data, s->cap);
    strbuf_fini(s);
}

void strbuf_clear(struct strbuf *s) {
    s->len = 0;
    if (s->data != NULL)
        s->data[0] = '\0';
}

static void reserve(struct strbuf *s, size_t more) {
    size_t need = s->len + more + 1;
    if (need <= s->cap)
        return;
    s->cap = MAX2(need, s->cap * 2);
    s->cap = MAX2(s->cap, (size_t)256); /* most texts: one allocation */
    if (!s->is_secret || s->data == NULL) {
        s->data = xrealloc(s->data, s->cap);
        return;
    }
    char *data = xmalloc(s->cap);
    memcpy(data, s->data, s->len + 1);
    explicit_bzero(s->data, s->len);
    free(s->data);
    s->data = data;
}

void strbuf_add_bytes(struct strbuf *s, const void *data, size_t len) {
    reserve(s, len);
    if (len > 0)
        memcpy(s->data + s->len, data, len);
    s->len += len;
    s->data[s->len] = '\0';
}

char *strbuf_room(struct strbuf *s, size_t more) {
    reserve(s, more);
    return s->data + s->len;
}

void strbuf_add(struct strbuf *s, const char *text) { strbuf_add_bytes(s, text, strlen(text)); }

void strbuf_add_char(struct strbuf *s, char c) {
    reserve(s, 1);
    s->data[s->len++] = c;
    s->data[s->len] = '\0';
}

void strbuf_printf(struct strbuf *s, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    reserve(s, (size_t)n);
    (void)vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
    va_end(again);
    s->len += (size_t)n;
}

size_t strbuf_add_wrapped(struct strbuf *s, const char *text, size_t column, size_t indent,
                          size_t width) {
    bool begins = column <= indent;
    for (const char *word = text; *word != '\0'; begins = false) {
        size_t n = strcspn(word, " ");
        if (!begins && column + 1 + n > width) {
            strbuf_printf(s, "\n%*s", (int)indent, "");
            column = indent;
            begins = true;
        }
        if (!begins)
            strbuf_add_char(s, ' ');
        strbuf_add_bytes(s, word, n);
        column += n + !begins;
        word += n;
        word += strspn(word, " ");
    }
    return column;
}

void strbuf_add_xml(struct strbuf *s, const char *text, size_t max) {
    for (size_t n = 0, len; *text != '\0'; text += len, n++) {
        len = MAX2(utf8_char(text), (size_t)1);
        bool bad = utf8_char(text) == 0 || (*text != '\n' && utf8_is_control(text)) ||
                   strncmp(text, "\xef\xbf\xbe", 3) == 0 || strncmp(text, "\xef\xbf\xbf", 3) == 0;
        if (n + 1 >= max && text[len] != '\0') {
            strbuf_add(s, "…");
            return;
        }
        if (!bad && strchr("<>&\"", *text) != NULL)
            strbuf_printf(s, "&#%d;", *text);
        else
            strbuf_add_bytes(s, bad ? "?" : text, bad ? 1 : len);
    }
}

void strbuf_cut_lines(struct strbuf *s, size_t from, size_t max) {
    static const char cut[] = "(more was left out)\n";
    if (s->len - from <= max)
        return;
    for (s->len = from + max - strlen(cut); s->len > from && s->data[s->len - 1] != '\n';)
        s->len--;
    strbuf_add(s, cut);
}

void strbuf_end_line(struct strbuf *s) {
    while (s->len > 0 && s->data[s->len - 1] == ' ')
        s->data[--s->len] = '\0';
    strbuf_add_char(s, '\n');
}

const char *strbuf_text(const struct strbuf *s) { return s->data == NULL ? "" : s->data; }

char *strbuf_take(struct strbuf *s) {
    char *text = s->data == NULL ? xstrdup("") : s->data;
    *s = (struct strbuf){0};
    return text;
}
