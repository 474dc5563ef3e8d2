/* The forms of a file: SVG without scripts in colours for light and dark, and speedscope's JSON. */
#include "cli/profile/profile_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "base/text/parse.h"

#define PICTURE_MIXED PROFILE_CLASS_COUNT /* a colour more: several classes */
struct picture {
    const struct profile_view *view;
    struct strbuf body; /* owned; below the title, from y = picture_top() on */
    double width, height;
    bool used[PICTURE_MIXED + 1]; /* colours, in the legend */
    const char *note;             /* below the legend */
};
#define PICTURE_MARGIN 12  /* left and right of the body */
#define PICTURE_LETTER 6.6 /* mean width */

/* In the order of the classes, then PICTURE_MIXED. Red is for late ranks alone. */
static const uint32_t colours[2][PICTURE_MIXED + 1] = {
    {0xc2348f, 0xaf7aa1, 0x9c755f, 0xcbbfae, 0xff9da7, 0xa39a96, 0xf28e2b, 0xedc948, 0x59a14f,
     0x2f4b7c, 0x5b8fc7, 0x76b7b2, 0xb5bd6f, 0xddd3c4, 0xe9ecf0, 0xb3c2d4, 0x8cd17d, 0xd5d8dc},
    {0xd65db1, 0xaf7aa1, 0x9c755f, 0xa59a8b, 0xff9da7, 0x8a827f, 0xf28e2b, 0xedc948, 0x59a14f,
     0x8fb3e8, 0x3f6fa8, 0x76b7b2, 0xb5bd6f, 0x6b635a, 0x262c34, 0x4a5d75, 0x8cd17d, 0x444c56},
};

/* An element with it, which begins at x and whose line is at y. */
static void add_picture_text(struct strbuf *out, const char *class, double x, double y, size_t max,
                             char *text) {
    strbuf_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    strbuf_add_xml(out, text, max);
    strbuf_add(out, "</text>\n");
    free(text);
}
#define picture_text(out, class, x, y, max, ...) \
    add_picture_text(out, class, x, y, max, xasprintf(__VA_ARGS__))

static void picture_box(struct strbuf *out, const char *class, double x, double y, double width,
                        double height) {
    strbuf_printf(out,
                  "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                  class, x, y, width, height);
}

static double picture_top(const struct profile_view *v) {
    return 70 + 17 * MAX2(v->findings->n_late, 1);
}

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

/* Adds title, body and legend to *ret, and frees the body. */
static void picture_finish(struct picture *p, struct strbuf *ret) {
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
                  "}\n</style>\n<rect class=\"bg\" x=\"-%d\" width=\"%.0f\" height=\"%.0f\"/>\n",
                  PICTURE_MARGIN, width, height);
    add_heading(p, ret);
    strbuf_add_bytes(ret, strbuf_text(&p->body), p->body.len);
    strbuf_add_bytes(ret, strbuf_text(&legend), legend.len);
    strbuf_add(ret, "</svg>\n");
    strbuf_fini(&p->body);
}

/* ---- the flame graph: frames of all ranks merged, as wide as their share of the time ---- */

#define FLAME_WIDTH 1200.0
#define HEIGHT 19
#define NODES_MAX (1u << 18) /* what is beyond counts for its parent */
#define WIDTH_MIN 1.2
#define HOT_SHARE 0.05 /* that a late rank spends more in a frame than the others */
#define ONE_COLOUR 0.85

/* What a node counts: samples of each class and all, of the ranks that are shown; of each late
 * rank, and of the other ranks, shown or not. */
enum { SHOWN = PROFILE_CLASS_COUNT, LATE, OTHERS = LATE + PROFILE_LATE_MAX, COUNTS };

struct node {                /* [0]: all ranks */
    uint32_t parent;         /* its index is smaller */
    uint32_t child, sibling; /* the last child, and the one before it; 0: none */
    uint32_t key;            /* a frame's index, or n_frames + class */
    uint32_t counts[COUNTS];
    enum profile_class top;
};
struct flame {
    struct picture picture;
    const struct profile *profile;
    const struct profile_findings *findings;
    struct node *nodes;
    uint32_t n;
    struct idmap children; /* parent and key -> index */
    struct strbuf tags;    /* above all frames */
};

static uint32_t child(struct flame *g, uint32_t parent, uint32_t key) {
    uint64_t id = (uint64_t)(parent + 1) << 32 | key;
    uint32_t at = (uint32_t)(uintptr_t)idmap_get(&g->children, id);
    if (at != 0 || g->n == NODES_MAX)
        return at != 0 ? at : parent;
    g->nodes = xgrow(g->nodes, g->n, sizeof *g->nodes);
    g->nodes[g->n] = (struct node){.parent = parent, .key = key, .sibling = g->nodes[parent].child};
    g->nodes[parent].child = g->n;
    idmap_put(&g->children, id, (void *)(uintptr_t)g->n);
    return g->n++;
}

/* The nodes of all stacks; wrappers only make the graph deeper. */
static uint32_t *add_stacks(struct flame *g) {
    const struct profile *p = g->profile;
    uint32_t *nodes = xcalloc(p->n_stacks + (size_t)1, sizeof *nodes);
    for (uint32_t i = 0; i < p->n_stacks; i++) {
        const struct profile_stack *s = &p->stacks[i];
        uint32_t outer = s->outer < 0 ? 0 : nodes[s->outer];
        bool wrapper = (profile_names_of(&p->frames[s->frame]) & NAME_TRANSPARENT) != 0;
        nodes[i] = wrapper ? outer : child(g, outer, s->frame);
    }
    return nodes;
}

static void count_samples(struct flame *g) {
    const struct profile *p = g->profile;
    _cleanup_(freep) uint32_t *nodes = add_stacks(g);
    for (uint32_t r = 0; r < p->n_ranks; r++) {
        bool shown = rank_set_has(g->picture.view->ranks, p->ranks[r].rank);
        unsigned own = OTHERS;
        for (uint32_t k = 0; k < g->findings->n_late; k++)
            own = g->findings->late[k].rank == p->ranks[r].rank ? LATE + k : own;
        for (uint32_t t = 0; t < p->n_ticks; t++) {
            int32_t stack = profile_at(p, &p->ranks[r], t).stack;
            unsigned c = g->findings->classes[(size_t)r * p->n_ticks + t];
            if (stack == PROFILE_ABSENT)
                continue;
            uint32_t at = stack < 0 ? 0 : nodes[stack];
            if (stack < 0 || c == PROFILE_LATE || c == PROFILE_NETWORK || c == PROFILE_GC)
                at = child(g, at, p->n_frames + c);
            g->nodes[at].counts[own]++;
            g->nodes[at].counts[c] += shown;
            g->nodes[at].counts[SHOWN] += shown;
        }
    }
}

static void add_up(struct flame *g) {
    for (uint32_t i = g->n; i-- > 0;) {
        struct node *node = &g->nodes[i];
        for (unsigned c = 0; c < COUNTS && i > 0; c++)
            g->nodes[node->parent].counts[c] += node->counts[c];
        for (unsigned c = 0; c < PROFILE_CLASS_COUNT; c++)
            if (node->counts[c] > node->counts[node->top])
                node->top = (enum profile_class)c;
    }
}

/* A count's share of that of all frames: of the time of these ranks. */
static double share(const struct flame *g, const struct node *node, unsigned count) {
    return g->nodes->counts[count] == 0 ? 0 : (double)node->counts[count] / g->nodes->counts[count];
}

/* The late rank that spends more time here than the others; -1: none. */
static int hot_rank(const struct flame *g, const struct node *node) {
    for (uint32_t k = 0; k < g->findings->n_late && node != g->nodes; k++)
        if (node->top < PROFILE_FIRST_WAIT &&
            rank_set_has(g->picture.view->ranks, g->findings->late[k].rank) &&
            share(g, node, LATE + k) - share(g, node, OTHERS) >= HOT_SHARE)
            return (int)k;
    return -1;
}

static void add_name(const struct flame *g, const struct node *node, bool whole,
                     struct strbuf *ret) {
    const struct profile *p = g->profile;
    const struct profile_frame *f = node->key < p->n_frames ? &p->frames[node->key] : NULL;
    if (node == g->nodes)
        strbuf_add(ret, "all ranks");
    else if (f == NULL)
        strbuf_add(ret, profile_class_names[node->key - p->n_frames]);
    else
        strbuf_printf(ret, "%s (%s:%" PRIu32 ")", f->function, whole ? f->file : path_name(f->file),
                      f->line);
}

static void add_box(struct flame *g, const struct node *node, double x, double y, int hot) {
    struct strbuf *out = &g->picture.body;
    _cleanup_(strbuf_fini) struct strbuf name = {0}, tip = {0};
    char class[16];
    double width = share(g, node, SHOWN) * FLAME_WIDTH;
    bool pure = node->counts[node->top] > ONE_COLOUR * node->counts[SHOWN];
    unsigned colour = pure ? (unsigned)node->top : PICTURE_MIXED;
    size_t letters = (size_t)(width / PICTURE_LETTER);
    g->picture.used[colour] = true;
    add_name(g, node, true, &tip);
    strbuf_printf(&tip, ": %s of the time", PERCENT(share(g, node, SHOWN)));
    if (hot >= 0)
        strbuf_printf(&tip, "; rank %" PRIu32 " %s, the others %s", g->findings->late[hot].rank,
                      PERCENT(share(g, node, LATE + (unsigned)hot)),
                      PERCENT(share(g, node, OTHERS)));
    strbuf_add(out, "<g><title>");
    strbuf_add_xml(out, strbuf_text(&tip), SIZE_MAX);
    strbuf_add(out, "</title>");
    (void)snprintf(class, sizeof class, "c%u%s", colour, hot >= 0 ? " hot" : "");
    picture_box(out, class, x, y, MAX2(width - 0.6, 0.6), HEIGHT - 1);
    if (letters >= 3) {
        add_name(g, node, false, &name);
        picture_text(out, "", x + 3, y + 13, letters, "%s %s", strbuf_text(&name),
                     letters > 18 ? PERCENT(share(g, node, SHOWN)) : "");
    }
    strbuf_add(out, "</g>\n");
}

/* "rank 2: +26 %", below the deepest frame of a chain. */
static void add_tag(struct flame *g, const struct node *node, double x, double y, int hot) {
    char text[48];
    double more = share(g, node, LATE + (unsigned)hot) - share(g, node, OTHERS);
    int len = snprintf(text, sizeof text, "rank %" PRIu32 ": +%s", g->findings->late[hot].rank,
                       PERCENT(more));
    double width = 8 + 7.2 * len, left = MIN2(x, FLAME_WIDTH - width);
    picture_box(&g->tags, "tag", left, y + HEIGHT + 1, width, 16);
    picture_text(&g->tags, "", left + 4, y + HEIGHT + 13, SIZE_MAX, "%s", text);
}

/* Whether this chain has a tag. As deep as the deepest stack; children in the order of classes. */
static bool draw(struct flame *g, uint32_t at, double x, double y) {
    const struct node *node = &g->nodes[at];
    bool tagged = false;
    int hot = hot_rank(g, node);
    if (share(g, node, SHOWN) * FLAME_WIDTH < WIDTH_MIN && hot < 0)
        return false;
    add_box(g, node, x, y, hot);
    g->picture.height = MAX2(g->picture.height, y + 2 * HEIGHT);
    double left = x;
    for (unsigned c = 0; c < PROFILE_CLASS_COUNT; c++)
        for (uint32_t i = node->child; i > 0; i = g->nodes[i].sibling) {
            if (g->nodes[i].top != c)
                continue;
            tagged |= draw(g, i, left, y + HEIGHT);
            left += share(g, &g->nodes[i], SHOWN) * FLAME_WIDTH;
        }
    if (hot >= 0 && !tagged)
        add_tag(g, node, x, y, hot);
    return tagged || hot >= 0;
}

static void flame(const struct profile_view *v, struct strbuf *ret) {
    struct flame g = {.picture = {.view = v, .width = FLAME_WIDTH, .height = picture_top(v)},
                      .profile = v->profile,
                      .findings = v->findings,
                      .n = 1};
    g.picture.note = "Width: share of the time of all ranks. Outlined in red: a late rank spends "
                     "more of its time here than the others do.";
    g.nodes = xcalloc(1, sizeof *g.nodes);
    count_samples(&g);
    add_up(&g);
    (void)draw(&g, 0, 0, picture_top(v));
    strbuf_add(&g.picture.body, strbuf_text(&g.tags));
    picture_finish(&g.picture, ret);
    strbuf_fini(&g.tags);
    idmap_fini(&g.children);
    free(g.nodes);
}

/* ---- ranks by time: a row is a rank, or several, its colours are the shares of classes ---- */

#define LEFT 110 /* labels */
#define STRIP_WIDTH 960
#define ROWS_MAX 64
#define TALL_ROWS 16
#define COLUMNS_MAX 96
#define COLUMN_TICKS 4 /* at least */

struct row {
    uint32_t first, last, n; /* ranks */
    bool late;
    double waits, top, height;
    uint32_t *counts; /* [n_columns * PROFILE_CLASS_COUNT], owned */
    uint32_t all[PROFILE_CLASS_COUNT];
};
struct strip {
    struct picture picture;
    uint32_t ticks, n_columns; /* ticks of each column */
};

static void add_rank(struct strip *s, struct row *row, uint32_t r) {
    const struct profile_view *v = s->picture.view;
    const struct profile *p = v->profile;
    row->first = row->n++ == 0 ? p->ranks[r].rank : row->first;
    row->last = p->ranks[r].rank;
    row->waits += r < v->findings->n_rows ? v->findings->rows[r].waits : 0;
    for (uint32_t t = 0; t < p->n_ticks; t++) {
        unsigned c = v->findings->classes[(size_t)r * p->n_ticks + t];
        if (profile_at(p, &p->ranks[r], t).stack == PROFILE_ABSENT)
            continue;
        row->counts[t / s->ticks * PROFILE_CLASS_COUNT + c]++;
        row->all[c]++;
    }
}

/* One path for each class; in a column, classes lie upon each other. */
static void draw_row(struct strip *s, const struct row *row) {
    struct strbuf *out = &s->picture.body, paths[PROFILE_CLASS_COUNT] = {0};
    double width = (double)STRIP_WIDTH / MAX2(s->picture.view->profile->n_ticks, 1) * s->ticks;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < s->n_columns; i++) {
        double y = row->top + row->height, x = LEFT + i * width;
        double w = MIN2(width, LEFT + STRIP_WIDTH - x);
        uint32_t ticks = MIN2(s->ticks, s->picture.view->profile->n_ticks - i * s->ticks);
        for (unsigned c = 0; c < PROFILE_CLASS_COUNT; c++) {
            uint32_t n = row->counts[i * PROFILE_CLASS_COUNT + c];
            double h = row->height * n / ((double)ticks * row->n);
            y -= h;
            sum += n;
            if (n > 0)
                strbuf_printf(&paths[c], "M%.1f %.1fh%.1fv%.1fh-%.1fz", x, y, w, h, w);
        }
    }
    for (unsigned c = 0; c < PROFILE_CLASS_COUNT; c++) {
        if (row->all[c] > 0) {
            strbuf_printf(out, "<path class=\"c%u\" d=\"%s\"><title>%s: ", c,
                          strbuf_text(&paths[c]), profile_class_names[c]);
            strbuf_add_xml(out, PERCENT((double)row->all[c] / sum), SIZE_MAX);
            strbuf_add(out, "</title></path>\n");
        }
        s->picture.used[c] |= row->all[c] > 0;
        strbuf_fini(&paths[c]);
    }
    double y = row->top + row->height / 2 + 4;
    picture_text(out, row->late ? "end late" : "end", LEFT - 10, y, SIZE_MAX,
                 row->n == 1 ? "rank %" PRIu32 : "ranks %" PRIu32 "-%" PRIu32, row->first,
                 row->last);
    picture_text(out, row->late ? "late" : "", LEFT + STRIP_WIDTH + 8, y, SIZE_MAX, "%s",
                 PERCENT(row->waits / row->n));
    if (row->late)
        picture_box(out, "none hot", LEFT - 1, row->top - 1, STRIP_WIDTH + 2, row->height + 2);
}

static void draw_axis(struct strip *s) {
    static const uint32_t steps[] = {1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600};
    struct strbuf *out = &s->picture.body;
    const struct profile *p = s->picture.view->profile;
    double seconds = p->n_ticks * (double)p->period_ns / (double)NS_PER_S;
    unsigned step = 0;
    while (step + 1 < ARRAY_SIZE(steps) && seconds / steps[step] > 12)
        step++;
    for (uint32_t t = 0; t <= seconds && seconds > 0; t += steps[step])
        picture_text(out, "dim mid", LEFT + STRIP_WIDTH * t / seconds, s->picture.height + 12,
                     SIZE_MAX, "%" PRIu32 " s", t);
    picture_text(out, "dim", LEFT + STRIP_WIDTH + 8, picture_top(s->picture.view) - 6, SIZE_MAX,
                 "waits");
    s->picture.height += 20;
}

static void strip(const struct profile_view *v, struct strbuf *ret) {
    const struct profile *p = v->profile;
    struct strip s = {
        .picture = {.view = v, .width = LEFT + STRIP_WIDTH + 60, .height = picture_top(v)}};
    uint32_t n = 0, in_row = 1;
    for (uint32_t r = 0; r < p->n_ranks; r++)
        n += rank_set_has(v->ranks, p->ranks[r].rank);
    in_row = MAX2((n + ROWS_MAX - 1) / ROWS_MAX, 1);
    s.ticks = MAX2((p->n_ticks + COLUMNS_MAX - 1) / COLUMNS_MAX, COLUMN_TICKS);
    s.n_columns = (p->n_ticks + s.ticks - 1) / s.ticks;
    s.picture.note =
        "Each row is a rank or several, each column a moment; the height of a colour is "
        "its share. In red: a late rank.";
    for (uint32_t r = 0; r < p->n_ranks;) {
        struct row row = {.top = s.picture.height, .height = n <= TALL_ROWS ? 40 : 14};
        row.counts = xcalloc((size_t)s.n_columns * PROFILE_CLASS_COUNT, sizeof *row.counts);
        for (; r < p->n_ranks && row.n < in_row && !row.late; r++) {
            bool late = profile_is_late(v->findings, p->ranks[r].rank);
            if (!rank_set_has(v->ranks, p->ranks[r].rank))
                continue;
            if (late && row.n > 0)
                break;
            row.late = late;
            add_rank(&s, &row, r);
        }
        if (row.n > 0) {
            draw_row(&s, &row);
            s.picture.height += row.height + (n <= TALL_ROWS ? 8 : row.late ? 4 : 1);
        }
        free(row.counts);
    }
    draw_axis(&s);
    picture_finish(&s.picture, ret);
}

/* ---- the file format of https://www.speedscope.app: one profile for each rank ---- */

static double seconds(const struct profile *p, uint32_t ticks) {
    return ticks * (double)p->period_ns / (double)NS_PER_S;
}

/* The outermost first. */
static void write_frames(struct json_writer *w, const struct profile *p, int32_t stack) {
    if (stack < 0)
        return;
    write_frames(w, p, p->stacks[stack].outer);
    json_write_u64(w, NULL, p->stacks[stack].frame);
}

/* Runs of equal samples are one. A tick without a sample has an empty stack. */
static void write_rank(struct json_writer *w, const struct profile_view *v, uint32_t r) {
    const struct profile *p = v->profile;
    const uint8_t *classes = &v->findings->classes[(size_t)r * p->n_ticks];
    _cleanup_(strbuf_fini) struct strbuf weights = {0};
    char name[32];
    (void)snprintf(name, sizeof name, "rank %" PRIu32, p->ranks[r].rank);
    json_write_object_begin(w, NULL);
    json_write_string(w, "type", "sampled");
    json_write_string(w, "name", name);
    json_write_string(w, "unit", "seconds");
    json_write_u64(w, "startValue", 0);
    json_write_double(w, "endValue", seconds(p, p->n_ticks));
    json_write_array_begin(w, "samples");
    for (uint32_t t = 0, next; t < p->n_ticks; t = next) {
        int32_t stack = profile_at(p, &p->ranks[r], t).stack;
        for (next = t + 1; next < p->n_ticks && classes[next] == classes[t] &&
                           profile_at(p, &p->ranks[r], next).stack == stack;)
            next++;
        strbuf_printf(&weights, "%s%.6g", t == 0 ? "" : ",", seconds(p, next - t));
        json_write_array_begin(w, NULL);
        write_frames(w, p, stack);
        if (stack == PROFILE_NOT_READ || (stack >= 0 && classes[t] >= PROFILE_FIRST_WAIT))
            json_write_u64(w, NULL, p->n_frames + (uint64_t)classes[t]);
        json_write_array_end(w);
    }
    json_write_array_end(w);
    json_write_array_begin(w, "weights");
    strbuf_add(w->out, strbuf_text(&weights));
    json_write_array_end(w);
    json_write_object_end(w);
}

static void speedscope(const struct profile_view *v, struct strbuf *ret) {
    const struct profile *p = v->profile;
    struct json_writer w = json_writer_of(ret);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "$schema", "https://www.speedscope.app/file-format-schema.json");
    json_write_string(&w, "exporter", "muster");
    json_write_string(&w, "name", v->run_id);
    json_write_object_begin(&w, "shared");
    json_write_array_begin(&w, "frames");
    for (uint32_t i = 0; i < p->n_frames + PROFILE_CLASS_COUNT; i++) {
        const struct profile_frame *f = i < p->n_frames ? &p->frames[i] : NULL;
        json_write_object_begin(&w, NULL);
        json_write_string(&w, "name", f ? f->function : profile_class_names[i - p->n_frames]);
        if (f != NULL) {
            json_write_string(&w, "file", f->file);
            json_write_u64(&w, "line", f->line);
        }
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    json_write_array_begin(&w, "profiles");
    for (uint32_t r = 0; r < p->n_ranks; r++)
        if (rank_set_has(v->ranks, p->ranks[r].rank))
            write_rank(&w, v, r);
    json_write_array_end(&w);
    json_write_object_end(&w);
    strbuf_add_char(ret, '\n');
}

const struct profile_form *profile_form_of(const char *path) {
    static const struct profile_form forms[] = {
        {".strip.svg", strip},
        {".svg", flame},
        {".speedscope.json", speedscope},
        {".txt", profile_text},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(forms); i++)
        if (text_ends(path, forms[i].suffix))
            return &forms[i];
    return NULL;
}
