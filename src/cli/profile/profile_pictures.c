#include "cli/profile/profile_pictures.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"

const struct profile_form *profile_form_of(const char *path) {
    static const struct profile_form forms[] = {
        {".strip.svg", profile_strip},
        {".svg", profile_flame},
        {".speedscope.json", profile_speedscope},
        {".txt", profile_text},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(forms); i++) {
        size_t len = strlen(path), own = strlen(forms[i].suffix);
        if (len >= own && strcmp(path + len - own, forms[i].suffix) == 0)
            return &forms[i];
    }
    return NULL;
}

/* In the order of the classes, then PICTURE_MIXED. Red is for late ranks alone. */
static const uint32_t colours[2][PICTURE_MIXED + 1] = {
    {0xc2348f, 0xaf7aa1, 0x9c755f, 0xcbbfae, 0xff9da7, 0xa39a96, 0xf28e2b, 0xedc948, 0x59a14f,
     0x2f4b7c, 0x5b8fc7, 0x76b7b2, 0xb5bd6f, 0xddd3c4, 0xe9ecf0, 0xb3c2d4, 0x8cd17d, 0xd5d8dc},
    {0xd65db1, 0xaf7aa1, 0x9c755f, 0xa59a8b, 0xff9da7, 0x8a827f, 0xf28e2b, 0xedc948, 0x59a14f,
     0x8fb3e8, 0x3f6fa8, 0x76b7b2, 0xb5bd6f, 0x6b635a, 0x262c34, 0x4a5d75, 0x8cd17d, 0x444c56},
};

void picture_add_text(struct strbuf *out, const char *text, size_t max) {
    for (size_t n = 0, len; *text != '\0'; text += len, n++) {
        len = MAX2(utf8_char(text), (size_t)1);
        bool bad = utf8_char(text) == 0 || utf8_is_control(text) ||
                   strncmp(text, "\xef\xbf\xbe", 3) == 0 || strncmp(text, "\xef\xbf\xbf", 3) == 0;
        if (n + 1 >= max && text[len] != '\0') {
            strbuf_add(out, "…");
            return;
        }
        if (bad || strchr("<>&\"", *text) != NULL)
            strbuf_printf(out, "&#%d;", bad ? '?' : *text);
        else
            strbuf_add_bytes(out, text, len);
    }
}

void picture_text(struct strbuf *out, const char *class, double x, double y, size_t max,
                  const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    strbuf_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    picture_add_text(out, text, max);
    strbuf_add(out, "</text>\n");
}

void picture_box(struct strbuf *out, const char *class, double x, double y, double width,
                 double height) {
    strbuf_printf(out,
                  "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                  class, x, y, width, height);
}

double picture_top(const struct profile_view *v) { return 70 + 17 * MAX2(v->findings->n_late, 1); }

/* Text upon a colour is of the same class, and black or white. */
static void add_colours(bool dark, struct strbuf *ret) {
    for (unsigned c = 0; c <= PICTURE_MIXED; c++) {
        uint32_t rgb = colours[dark][c];
        uint32_t luma = 299 * (rgb >> 16) + 587 * (rgb >> 8 & 255) + 114 * (rgb & 255);
        strbuf_printf(ret, ".c%u{fill:#%06" PRIx32 "}rect.c%u+text{fill:%s}\n", c, rgb, c,
                      luma > 125000 ? "#111" : "#fff");
    }
}

static void add_heading(const struct picture *p, struct strbuf *ret) {
    const struct profile_view *v = p->view;
    const struct profile_findings *f = v->findings;
    enum profile_class order[PROFILE_CLASS_COUNT];
    size_t letters = (size_t)(p->width / (PICTURE_LETTER + 0.8)); /* bold */
    picture_text(ret, "h", 0, 24, letters * 2 / 3, "job %s: what %" PRIu32 " %s did in %g s",
                 v->run_id, v->world_size, v->world_size == 1 ? "rank" : "ranks",
                 profile_seconds(f));
    for (uint32_t i = 0; i < f->n_late; i++) {
        _cleanup_(strbuf_fini) struct strbuf line = {0};
        profile_add_late(f, &f->late[i], &line);
        strbuf_add(&line, f->late[i].n_reasons > 0 ? "; more " : "");
        if (f->late[i].n_reasons > 0)
            profile_add_reason(&f->late[i].reasons[0], true, &line);
        picture_text(ret, "late", 0, 46 + 17 * i, letters, "%s", strbuf_text(&line));
    }
    if (f->n_late == 0) {
        _cleanup_(strbuf_fini) struct strbuf line = {0};
        uint32_t n = profile_largest(f->shares, 0.01, order);
        for (uint32_t k = 0; k < MIN2(n, 4); k++)
            strbuf_printf(&line, "%s%s %s", k == 0 ? ": " : ", ", profile_class_names[order[k]],
                          PERCENT(f->shares[order[k]]));
        picture_text(ret, "dim", 0, 46, letters, "%s%s", profile_none_late(f), strbuf_text(&line));
    }
}

/* Returns the height. */
static double add_legend(struct picture *p, struct strbuf *ret) {
    double x = 0, y = p->height + 12;
    char class[16];
    for (unsigned c = 0; c <= PICTURE_MIXED; c++) {
        const char *name = c < PICTURE_MIXED ? profile_class_names[c] : "several kinds";
        double width = 30 + PICTURE_LETTER * (double)strlen(name);
        if (!p->used[c])
            continue;
        if (x + width > p->width) {
            x = 0;
            y += 20;
        }
        (void)snprintf(class, sizeof class, "c%u edge", c);
        strbuf_add(ret, "<g>");
        picture_box(ret, class, x, y, 12, 12);
        strbuf_add(ret, "</g>");
        picture_text(ret, "", x + 17, y + 10, SIZE_MAX, "%s", name);
        x += width;
    }
    picture_text(ret, "dim", 0, y + 32, SIZE_MAX, "%s", p->note);
    return y + 44;
}

void picture_finish(struct picture *p, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf legend = {0};
    double height = add_legend(p, &legend), width = p->width + 2 * PICTURE_MARGIN;
    strbuf_printf(
        ret,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
        "viewBox=\"-%d 0 %.0f %.0f\">\n<style>\n"
        "text{font:11px DejaVu Sans,Verdana,sans-serif;fill:#1f2328}.bg{fill:#fff}\n"
        "text.h{font-size:16px;font-weight:bold}text.dim{fill:#59636e}\n"
        "text.late{fill:#c62828;font-weight:bold}.hot{stroke:#d62728;stroke-width:2}\n"
        ".none{fill:none}.tag{fill:#d62728}.tag+text{fill:#fff;font-weight:bold}\n"
        ".edge{stroke:#8888;stroke-width:.5}.end{text-anchor:end}.mid{text-anchor:middle}\n",
        width, height, PICTURE_MARGIN, width, height);
    add_colours(false, ret);
    strbuf_add(ret, "@media(prefers-color-scheme:dark){\n"
                    "text{fill:#e6edf3}.bg{fill:#0d1117}text.dim{fill:#9198a1}\n"
                    "text.late{fill:#ff7b72}.hot{stroke:#f33}.tag{fill:#d62728}\n");
    add_colours(true, ret);
    strbuf_printf(ret,
                  "}\n</style>\n<rect class=\"bg\" x=\"-%d\" "
                  "width=\"%.0f\" height=\"%.0f\"/>\n",
                  PICTURE_MARGIN, width, height);
    add_heading(p, ret);
    strbuf_add_bytes(ret, strbuf_text(&p->body), p->body.len);
    strbuf_add_bytes(ret, strbuf_text(&legend), legend.len);
    strbuf_add(ret, "</svg>\n");
    strbuf_fini(&p->body);
}
