#include "cli/logs/log_merge.h"

#include "base/prng.h"
#include "cli/logs/rank_set.h"
#include "rig/unit.h"

/* A log in memory, which is read in pieces of `step` bytes. */
struct fake {
    struct log_source source;
    const char *text;
    size_t len, at, step;
    const struct log_stamp *stamps;
    size_t n_stamps, next;
};

struct shown {
    struct strbuf text;
    const struct fake *first;
    size_t n_left; /* lines until the reader leaves */
    uint64_t last_ns;
    bool sorted, last;
};

static bool fake_read(void *arg, struct log_source *s) {
    struct fake *f = CONTAINER_OF(s, struct fake, source);
    size_t n = MIN2(f->step, f->len - f->at);
    strbuf_add_bytes(&s->text, f->text + f->at, n);
    f->at += n;
    return n > 0;
}

static bool fake_stamp(void *arg, struct log_source *s, struct log_stamp *ret) {
    struct fake *f = CONTAINER_OF(s, struct fake, source);
    if (f->next == f->n_stamps)
        return false;
    *ret = f->stamps[f->next++];
    return true;
}

/* "0a b|": source 0, "+" if it continues, the text, "|" if it ended */
static bool fake_show(void *arg, struct log_source *s, const struct log_piece *p) {
    struct shown *out = arg;
    const struct fake *f = CONTAINER_OF(s, struct fake, source);
    strbuf_printf(&out->text, "%s%d%.*s%s", p->continues ? "+" : "", (int)(f - out->first), (int)p->len, p->data,
                  p->ended ? "|" : "");
    if (!p->continues) {
        out->sorted = out->sorted && s->ns >= out->last_ns;
        out->last_ns = s->ns;
    }
    return --out->n_left > 0;
}

static bool fake_rest(void *arg, const struct log_source *s) { return ((const struct shown *)arg)->last; }

static const struct log_merge_ops ops = {fake_read, fake_rest, fake_stamp, fake_show};

static const char *merged(struct fake *fakes, size_t n, bool last, struct shown *out) {
    struct log_source *sources[8];
    for (size_t i = 0; i < n; i++) {
        sources[i] = &fakes[i].source;
        fakes[i].len = strlen(fakes[i].text);
        fakes[i].step = fakes[i].step != 0 ? fakes[i].step : 3;
    }
    strbuf_clear(&out->text);
    out->first = fakes;
    out->n_left = out->n_left != 0 ? out->n_left : SIZE_MAX;
    out->last = last;
    (void)log_merge(sources, n, &ops, out);
    return strbuf_text(&out->text);
}

static void done(struct fake *fakes, size_t n, struct shown *out) {
    for (size_t i = 0; i < n; i++)
        log_source_fini(&fakes[i].source);
    strbuf_fini(&out->text);
}

Test(log_merge, lines_come_in_the_order_of_their_times) {
    static const struct log_stamp a[] = {{0, 10}, {4, 30}}, b[] = {{0, 20}, {3, 25}, {5, 40}};
    struct fake fakes[] = {{.text = "a1\nB\na3\n", .stamps = a, .n_stamps = 2},
                           {.text = "b1\nc\nd\n", .stamps = b, .n_stamps = 3}};
    struct shown out = {0};
    /* "B" began in the batch of 10, although its newline came with that of 30 */
    cr_assert_str_eq(merged(fakes, 2, true, &out), "0a1|0B|1b1|1c|0a3|1d|");
    done(fakes, 2, &out);
}

Test(log_merge, without_times_by_source) {
    static const struct log_stamp b[] = {{0, 20}};
    struct fake fakes[] = {{.text = "1\n2\n", .stamps = b, .n_stamps = 1}, {.text = "3\n4\n"}, {.text = "5\n"}};
    struct shown out = {0};
    cr_assert_str_eq(merged(fakes, 3, true, &out), "13|14|25|01|02|");
    done(fakes, 3, &out);
}

Test(log_merge, a_clock_that_steps_back_keeps_the_order_of_a_source) {
    static const struct log_stamp a[] = {{0, 30}, {2, 10}}, b[] = {{0, 20}};
    struct fake fakes[] = {{.text = "1\n2\n", .stamps = a, .n_stamps = 2}, {.text = "3\n", .stamps = b, .n_stamps = 1}};
    struct shown out = {0};
    cr_assert_str_eq(merged(fakes, 2, true, &out), "13|01|02|");
    done(fakes, 2, &out);
}

Test(log_merge, the_last_line_waits_for_its_newline_unless_it_is_the_end) {
    struct fake fakes[] = {{.text = "1\nno"}};
    struct shown out = {0};
    cr_assert_str_eq(merged(fakes, 1, false, &out), "01|");
    fakes[0].text = "1\nnow\n2";
    cr_assert_str_eq(merged(fakes, 1, false, &out), "0now|");
    cr_assert_str_eq(merged(fakes, 1, true, &out), "02");
    fakes[0].text = "1\nnow\n2 and more\n";
    cr_assert_str_eq(merged(fakes, 1, false, &out), "+0 and more|");
    done(fakes, 1, &out);
}

Test(log_merge, a_very_long_line_comes_in_pieces_and_stays_whole) {
    static const struct log_stamp a[] = {{0, 10}}, b[] = {{0, 10}};
    static char text[3 * LOG_PIECE_MAX + 1];
    memset(text, 'x', sizeof text - 2);
    text[sizeof text - 2] = '\n';
    struct fake fakes[] = {{.text = text, .step = 100000, .stamps = a, .n_stamps = 1},
                           {.text = "b\n", .stamps = b, .n_stamps = 1}};
    struct shown out = {0};
    const char *got = merged(fakes, 2, true, &out);
    size_t n = strlen(got);
    cr_assert_eq(n, sizeof text - 1 + 3 + 2 + 3); /* three numbers, two "+", and "1b|" */
    cr_assert_str_eq(got + n - 4, "|1b|");
    cr_assert_lt(fakes[0].source.text.cap, 4 * LOG_PIECE_MAX);
    done(fakes, 2, &out);
}

Test(log_merge, it_ends_when_the_reader_leaves) {
    struct fake fakes[] = {{.text = "1\n2\n3\n"}};
    struct shown out = {.n_left = 2};
    cr_assert_str_eq(merged(fakes, 1, true, &out), "01|02|");
    done(fakes, 1, &out);
}

Test(log_merge, any_lines_any_times) {
    struct prng rng = {.state = 16};
    for (int round = 0; round < 300; round++) {
        struct fake fakes[6] = {{{{0}}}};
        struct log_stamp stamps[6][40];
        char texts[6][200];
        size_t n = 1 + prng_below(&rng, 6), bytes = 0;
        for (size_t i = 0; i < n; i++) {
            uint64_t at = 0, ns = 1 + prng_below(&rng, 20);
            size_t len = prng_below(&rng, 199);
            for (size_t k = 0; k < len; k++)
                texts[i][k] = prng_below(&rng, 5) == 0 ? '\n' : 'a';
            if (len > 0)
                texts[i][len - 1] = '\n';
            texts[i][len] = '\0';
            bytes += len;
            for (size_t k = 0; k < 40; k++, at += 1 + prng_below(&rng, 9), ns += prng_below(&rng, 20))
                stamps[i][k] = (struct log_stamp){.at = at, .ns = ns};
            fakes[i] =
                (struct fake){.text = texts[i], .step = 1 + prng_below(&rng, 60), .stamps = stamps[i], .n_stamps = 40};
        }
        struct shown out = {.sorted = true};
        const char *got = merged(fakes, n, true, &out);
        size_t ended = 0, letters = 0;
        for (const char *p = got; *p != '\0'; p++) {
            ended += *p == '|';
            letters += *p == 'a';
        }
        cr_assert_eq(ended + letters, bytes, "round %d", round);
        cr_assert(out.sorted, "round %d", round);
        done(fakes, n, &out);
    }
}

Test(log_merge, ranks) {
    struct rank_set set;
    cr_assert_eq(rank_set_parse("0-3,7", &set, NULL), 0);
    cr_assert(rank_set_has(&set, 0) && rank_set_has(&set, 3) && rank_set_has(&set, 7));
    cr_assert_not(rank_set_has(&set, 4) || rank_set_has(&set, 8) || rank_set_is_one(&set));
    cr_assert_eq(rank_set_parse("5", &set, NULL), 0);
    cr_assert(rank_set_is_one(&set));
    static const char *const bad[] = {"", "a", "3-1", "1,", "-1", "1-", "1-2-3", "4294967296"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_assert_eq(rank_set_parse(bad[i], &set, NULL), -EINVAL, "%s", bad[i]);
}
