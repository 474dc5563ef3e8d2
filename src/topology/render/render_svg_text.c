#include <string.h>

#include "base/text/utf8.h"
#include "topology/render/render_svg_priv.h"

/* Widths of U+0020 to U+007E in hundredths of the font's size, rounded up, in DejaVu Sans: it is
 * the widest of the fonts that browsers use for sans-serif. */
static const unsigned char widths[] = {
    32, 41, 46, 84, 64, 96, 78, 28, 40,  40, 51, 84, 32, 37, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 34, 34, 84, 84, 84, 54, 101, 69, 69, 70, 78, 64, 58, 78, 76, 30, 30, 66, 56, 87, 75, 79,
    61, 79, 70, 64, 62, 74, 69, 99, 69,  62, 69, 40, 34, 40, 84, 51, 51, 62, 64, 55, 64, 62, 36, 64,
    64, 28, 28, 58, 28, 98, 64, 62, 64,  64, 42, 53, 40, 64, 60, 82, 60, 60, 53, 64, 34, 64, 84};
#define WIDTH_OTHER 100 /* arrows, dashes, ellipsis; device names have no wider characters */
#define BOLD 114        /* percent; single letters can differ more, but words do not */

static int width_in_hundredths(const char *text, size_t len) {
    int sum = 0;
    for (size_t i = 0, n; i < len && (n = utf8_char(text + i)) > 0; i += n) {
        unsigned char c = (unsigned char)text[i];
        sum += n == 1 && c >= ' ' && c < 0x7f ? widths[c - ' '] : WIDTH_OTHER;
    }
    return sum;
}

static int width_of(const char *text, size_t len, int size, bool bold) {
    return (width_in_hundredths(text, len) * size * (bold ? BOLD : 100) + 9999) / 10000;
}

int svg_text_width(const char *text, int size, bool bold) {
    return width_of(text, strlen(text), size, bold);
}

size_t svg_text_break(const char *text, int size, bool bold, int max_w) {
    size_t fits = 0, word = 0, len = strlen(text);
    if (width_of(text, len, size, bold) <= max_w)
        return len;
    for (size_t i = 0, n; (n = utf8_char(text + i)) > 0; i += n) {
        if (i > 0 && width_of(text, i + n, size, bold) > max_w)
            break;
        fits = i + n;
        if (text[i] == ' ' || text[i] == ',')
            word = fits;
    }
    return word > 0 ? word : fits;
}

void svg_text_fit(const char *text, int size, bool bold, int max_w, char out[RENDER_TEXT_MAX]) {
    static const char dots[] = "…";
    size_t fits = 0, all = strlen(text);
    if (all < RENDER_TEXT_MAX && svg_text_width(text, size, bold) <= max_w) {
        memcpy(out, text, all + 1);
        return;
    }
    int room = max_w - svg_text_width(dots, size, bold);
    for (size_t i = 0, n; (n = utf8_char(text + i)) > 0; i += n)
        if (i + sizeof dots <= RENDER_TEXT_MAX && width_of(text, i, size, bold) <= room)
            fits = i;
    while (fits > 0 && strchr(" ,", text[fits - 1]) != NULL)
        fits--;
    memcpy(out, text, fits);
    memcpy(out + fits, dots, sizeof dots);
}

void svg_escape(const char *text, struct strbuf *to) {
    for (const char *p = text; *p != '\0'; p++) {
        switch (*p) {
        case '&': strbuf_add(to, "&amp;"); break;
        case '<': strbuf_add(to, "&lt;"); break;
        case '>': strbuf_add(to, "&gt;"); break;
        case '"': strbuf_add(to, "&quot;"); break;
        case '\xef': /* U+FFFE and U+FFFF are not allowed in XML */
            if (p[1] == '\xbf' && (p[2] == '\xbe' || p[2] == '\xbf')) {
                strbuf_add_char(to, '?');
                p += 2;
                break;
            }
            strbuf_add_char(to, *p);
            break;
        default: strbuf_add_char(to, *p);
        }
    }
}
