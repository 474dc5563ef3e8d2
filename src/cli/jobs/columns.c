#include "cli/jobs/columns.h"

#include "base/text/utf8.h"

void columns_add_clean(struct strbuf *out, const char *text) {
    size_t before = out->len;
    strbuf_add(out, text);
    if (out->len > before)
        utf8_clean(out->data + before, false);
}

size_t columns_bytes(const char *text, size_t columns) {
    size_t n = 0;
    for (; text[n] != '\0'; n++)
        if (((unsigned char)text[n] & 0xc0) != 0x80 && columns-- == 0)
            break;
    return n;
}

static void add_padded(struct strbuf *out, const char *text, size_t width, bool right) {
    size_t has = utf8_columns(text);
    if (has > width) {
        strbuf_add_bytes(out, text, columns_bytes(text, width > 0 ? width - 1 : 0));
        strbuf_add(out, width > 0 ? "+" : "");
        return;
    }
    int pad = (int)(width - has);
    if (right)
        strbuf_printf(out, "%*s%s", pad, "", text);
    else
        strbuf_printf(out, "%s%*s", text, pad, "");
}

static bool has(unsigned set, size_t column) { return (set & 1U << column) != 0; }

size_t columns_measure(const struct columns *t, const void *const *rows, size_t n,
                       size_t widths[COLUMNS_MAX]) {
    _cleanup_(strbuf_fini) struct strbuf cell = {0};
    size_t sum = 0;
    for (size_t c = 0; c < t->n; c++) {
        if (!has(t->shown, c))
            continue;
        widths[c] = utf8_columns(t->titles[c]);
        for (size_t i = 0; i < n; i++) {
            strbuf_clear(&cell);
            t->add_cell(rows[i], c, &cell);
            widths[c] = MAX2(widths[c], utf8_columns(strbuf_text(&cell)));
        }
        sum += widths[c] + COLUMNS_GAP;
    }
    return sum;
}

void columns_write(const struct columns *t, const void *const *rows, size_t n,
                   const size_t widths[COLUMNS_MAX], struct strbuf *out) {
    _cleanup_(strbuf_fini) struct strbuf cell = {0};
    for (size_t i = 0; i <= n; i++) { /* the titles, then the rows */
        for (size_t c = 0; c < t->n; c++) {
            if (!has(t->shown, c))
                continue;
            strbuf_clear(&cell);
            if (i == 0)
                strbuf_add(&cell, t->titles[c]);
            else
                t->add_cell(rows[i - 1], c, &cell);
            add_padded(out, strbuf_text(&cell), widths[c], has(t->right, c));
            strbuf_printf(out, "%*s", COLUMNS_GAP, "");
        }
        strbuf_end_line(out);
    }
}
