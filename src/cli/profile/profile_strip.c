/* Ranks by time: a row is a rank, or several, and its colours are the shares of classes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/profile/profile_pictures.h"

#define LEFT 110 /* labels */
#define WIDTH 960
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
    double width = (double)WIDTH / MAX2(s->picture.view->profile->n_ticks, 1) * s->ticks;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < s->n_columns; i++) {
        double y = row->top + row->height, x = LEFT + i * width;
        double w = MIN2(width, LEFT + WIDTH - x);
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
            picture_add_text(out, PERCENT((double)row->all[c] / sum), SIZE_MAX);
            strbuf_add(out, "</title></path>\n");
        }
        s->picture.used[c] |= row->all[c] > 0;
        strbuf_fini(&paths[c]);
    }
    double y = row->top + row->height / 2 + 4;
    picture_text(out, row->late ? "end late" : "end", LEFT - 10, y, SIZE_MAX,
                 row->n == 1 ? "rank %" PRIu32 : "ranks %" PRIu32 "-%" PRIu32, row->first,
                 row->last);
    picture_text(out, row->late ? "late" : "", LEFT + WIDTH + 8, y, SIZE_MAX, "%s",
                 PERCENT(row->waits / row->n));
    if (row->late)
        picture_box(out, "none hot", LEFT - 1, row->top - 1, WIDTH + 2, row->height + 2);
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
        picture_text(out, "dim mid", LEFT + WIDTH * t / seconds, s->picture.height + 12, SIZE_MAX,
                     "%" PRIu32 " s", t);
    picture_text(out, "dim", LEFT + WIDTH + 8, picture_top(s->picture.view) - 6, SIZE_MAX, "waits");
    s->picture.height += 20;
}

void profile_strip(const struct profile_view *v, struct strbuf *ret) {
    const struct profile *p = v->profile;
    struct strip s = {.picture = {.view = v, .width = LEFT + WIDTH + 60, .height = picture_top(v)}};
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
        row.counts = xcalloc((size_t)s.n_columns * PROFILE_CLASS_COUNT + 1, sizeof *row.counts);
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
