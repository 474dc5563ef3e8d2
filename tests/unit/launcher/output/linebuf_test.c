#include "launcher/output/linebuf.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/prng.h"

#define MS NS_PER_MS

/* Pieces as text: N, C or R, the data, then '$' for a newline or '.' for none. */
static void note(void *arg, const struct linebuf_piece *p) {
    struct strbuf *s = arg;
    strbuf_add_char(s, p->start == LINEBUF_NEW ? 'N' : p->start == LINEBUF_CONTINUES ? 'C' : 'R');
    strbuf_add_bytes(s, p->data, p->len);
    strbuf_add_char(s, p->ended ? '$' : '.');
}

struct fixture {
    struct strbuf seen;
    struct linebuf b;
};

static void setup(struct fixture *f, size_t limit, bool collapse) {
    *f = (struct fixture){0};
    linebuf_init(&f->b, limit, collapse, note, &f->seen);
}

static void fini(struct fixture *f) {
    linebuf_fini(&f->b);
    strbuf_fini(&f->seen);
}

static void feed(struct fixture *f, const char *text, uint64_t now_ns) {
    linebuf_feed(&f->b, text, strlen(text), now_ns);
}

#define EXPECT(f, text)                                                                       \
    do {                                                                                      \
        cr_assert_str_eq(strbuf_text(&(f)->seen), text, "seen: %s", strbuf_text(&(f)->seen)); \
        strbuf_clear(&(f)->seen);                                                             \
    } while (0)

Test(linebuf, whole_lines_come_at_once_and_a_rest_waits) {
    struct fixture f;
    setup(&f, 100, false);
    feed(&f, "one\ntwo\n\nthr", 5 * MS);
    EXPECT(&f, "None$Ntwo$N$");
    cr_assert_eq(linebuf_deadline_ns(&f.b), 5 * MS + LINEBUF_QUIET_NS);
    feed(&f, "ee\n", 6 * MS);
    EXPECT(&f, "Nthree$");
    cr_assert_eq(linebuf_deadline_ns(&f.b), TIME_NEVER);
    fini(&f);
}

Test(linebuf, a_prompt_is_shown_after_the_quiet_time_and_goes_on) {
    struct fixture f;
    setup(&f, 100, false);
    feed(&f, "name", 0);
    feed(&f, "? ", 100 * MS);
    cr_assert_eq(linebuf_deadline_ns(&f.b), 100 * MS + LINEBUF_QUIET_NS, "quiet begins anew");
    linebuf_flush(&f.b);
    EXPECT(&f, "Nname? .");
    cr_assert_eq(linebuf_deadline_ns(&f.b), TIME_NEVER);
    linebuf_flush(&f.b);
    EXPECT(&f, "");
    feed(&f, "bob\nnext\n", 400 * MS);
    EXPECT(&f, "Cbob$Nnext$");
    fini(&f);
}

Test(linebuf, a_line_at_the_limit_is_one_piece_and_above_it_two) {
    struct fixture f;
    setup(&f, 4, false);
    feed(&f, "abcd\n", 0);
    EXPECT(&f, "Nabcd$");
    feed(&f, "abcde\n", 0);
    EXPECT(&f, "Nabcd.Ce$");
    feed(&f, "abcd", 0);
    EXPECT(&f, "");
    feed(&f, "efghi\n", 0);
    EXPECT(&f, "Nabcd.Cefgh.Ci$");
    fini(&f);
}

Test(linebuf, the_end_hands_out_the_rest_and_says_that_a_newline_is_missing) {
    struct fixture f;
    setup(&f, 100, false);
    cr_assert_not(linebuf_finish(&f.b));
    feed(&f, "a\nb", 0);
    cr_assert(linebuf_finish(&f.b));
    EXPECT(&f, "Na$Nb.");
    cr_assert_not(linebuf_finish(&f.b));
    feed(&f, "x", 0);
    linebuf_flush(&f.b);
    cr_assert(linebuf_finish(&f.b), "shown already, but no newline came");
    EXPECT(&f, "Nx.");
    fini(&f);
}

Test(linebuf, carriage_returns_are_bytes_without_collapse_but_set_a_rate) {
    struct fixture f;
    setup(&f, 100, false);
    feed(&f, "1%\r2%\r", 0);
    feed(&f, "3%\r", 150 * MS);
    cr_assert_eq(linebuf_deadline_ns(&f.b), LINEBUF_QUIET_NS, "not put off by new bytes");
    linebuf_flush(&f.b);
    EXPECT(&f, "N1%\r2%\r3%\r.");
    feed(&f, "4%\n", 210 * MS);
    feed(&f, "dos\r\n", 210 * MS);
    EXPECT(&f, "C4%$Ndos\r$");
    fini(&f);
}

Test(linebuf, a_progress_bar_collapses_to_its_newest_state) {
    struct fixture f;
    setup(&f, 100, true);
    feed(&f, "\r 1%\r 2%", 0);
    feed(&f, "\r 3%", 190 * MS);
    cr_assert_eq(linebuf_deadline_ns(&f.b), LINEBUF_QUIET_NS);
    linebuf_flush(&f.b);
    EXPECT(&f, "N 3%.");
    feed(&f, "\r", 200 * MS);
    cr_assert_eq(linebuf_deadline_ns(&f.b), TIME_NEVER, "nothing new to show");
    feed(&f, " 4%\r 100%", 210 * MS);
    linebuf_flush(&f.b);
    EXPECT(&f, "R 100%.");
    feed(&f, "\r done\nnext\n", 300 * MS);
    EXPECT(&f, "R done$Nnext$");
    fini(&f);
}

Test(linebuf, a_bar_that_ends_its_states_with_cr_is_seen_too) {
    struct fixture f;
    setup(&f, 100, true);
    feed(&f, "10%\r20%\r", 0);
    linebuf_flush(&f.b);
    EXPECT(&f, "N20%.");
    feed(&f, "30%\r", 0);
    linebuf_flush(&f.b);
    EXPECT(&f, "R30%.");
    feed(&f, "\n", 0);
    EXPECT(&f, "C$");
    feed(&f, "dos\r\n", 0);
    feed(&f, "dos\r", 0);
    feed(&f, "\n", 0);
    EXPECT(&f, "Ndos$Ndos$");
    fini(&f);
}

Test(linebuf, nul_and_broken_utf8_pass_as_they_are) {
    struct fixture f;
    setup(&f, 100, true);
    linebuf_feed(&f.b, "a\0\xff\xfe\n", 5, 0);
    cr_assert_eq(f.seen.len, 6);
    cr_assert_eq(memcmp(f.seen.data, "Na\0\xff\xfe$", 6), 0);
    fini(&f);
}

/* Puts the pieces together again, and checks their order. */
struct joined {
    struct strbuf text;
    bool open;
    size_t limit;
};

static void join(void *arg, const struct linebuf_piece *p) {
    struct joined *j = arg;
    cr_assert_leq(p->len, j->limit);
    cr_assert_eq(p->start == LINEBUF_NEW, !j->open);
    strbuf_add_bytes(&j->text, p->data, p->len);
    if (p->ended)
        strbuf_add_char(&j->text, '\n');
    j->open = !p->ended;
}

Test(linebuf, no_byte_is_lost_however_the_input_is_cut) {
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct prng rng = {.state = seed};
        char input[400];
        for (size_t i = 0; i < sizeof input; i++)
            input[i] = "ab\n\rc\xff"[prng_below(&rng, 6)];
        struct joined j = {.limit = 1 + prng_below(&rng, 20)};
        struct linebuf b;
        linebuf_init(&b, j.limit, false, join, &j);
        for (size_t pos = 0; pos < sizeof input;) {
            size_t n = 1 + prng_below(&rng, 50);
            n = MIN2(n, sizeof input - pos);
            linebuf_feed(&b, input + pos, n, pos);
            cr_assert_eq(b.text.len > 0, linebuf_deadline_ns(&b) != TIME_NEVER, "seed %lu", seed);
            if (prng_below(&rng, 3) == 0)
                linebuf_flush(&b);
            pos += n;
        }
        cr_assert_eq(linebuf_finish(&b), input[sizeof input - 1] != '\n', "seed %lu", seed);
        cr_assert_eq(j.text.len, sizeof input, "seed %lu: %zu bytes", seed, j.text.len);
        cr_assert_eq(memcmp(j.text.data, input, sizeof input), 0, "seed %lu", seed);
        linebuf_fini(&b);
        strbuf_fini(&j.text);
    }
}
