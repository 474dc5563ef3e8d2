#include "launcher/output/linebuf.h"

#include "base/prng.h"
#include "rig/unit.h"

#define MS NS_PER_MS

/* Pieces as text: N, C or R, the data, then '$' for a newline or '.' for none. */
static void note(void *arg, const struct linebuf_piece *p) {
    struct strbuf *s = arg;
    strbuf_add_char(s, p->start == LINEBUF_NEW ? 'N' : p->start == LINEBUF_CONTINUES ? 'C' : 'R');
    strbuf_add_bytes(s, p->data, p->len);
    strbuf_add_char(s, p->ended ? '$' : '.');
}

static struct fixture {
    struct strbuf seen;
    struct linebuf b;
} fix;

static void setup(size_t limit, bool collapse) {
    fix = (struct fixture){0};
    linebuf_init(&fix.b, limit, collapse, note, &fix.seen);
}

static void fini(void) {
    linebuf_fini(&fix.b);
    strbuf_fini(&fix.seen);
}

static void feed(const char *text, uint64_t now_ns) { linebuf_feed(&fix.b, text, strlen(text), now_ns); }

#define EXPECT(text)                                                                        \
    do {                                                                                    \
        cr_assert_str_eq(strbuf_text(&fix.seen), text, "seen: %s", strbuf_text(&fix.seen)); \
        strbuf_clear(&fix.seen);                                                            \
    } while (0)

TestSuite(linebuf, .fini = fini);

Test(linebuf, whole_lines_come_at_once_and_a_rest_waits) {
    setup(100, false);
    feed("one\ntwo\n\nthr", 5 * MS);
    EXPECT("None$Ntwo$N$");
    cr_assert_eq(linebuf_deadline_ns(&fix.b), 5 * MS + LINEBUF_QUIET_NS);
    feed("ee\n", 6 * MS);
    EXPECT("Nthree$");
    cr_assert_eq(linebuf_deadline_ns(&fix.b), TIME_NEVER);
}

Test(linebuf, a_prompt_is_shown_after_the_quiet_time_and_goes_on) {
    setup(100, false);
    feed("name", 0);
    feed("? ", 100 * MS);
    cr_assert_eq(linebuf_deadline_ns(&fix.b), 100 * MS + LINEBUF_QUIET_NS, "quiet begins anew");
    linebuf_flush(&fix.b);
    EXPECT("Nname? .");
    cr_assert_eq(linebuf_deadline_ns(&fix.b), TIME_NEVER);
    linebuf_flush(&fix.b);
    EXPECT("");
    feed("bob\nnext\n", 400 * MS);
    EXPECT("Cbob$Nnext$");
}

Test(linebuf, a_line_at_the_limit_is_one_piece_and_above_it_two) {
    setup(4, false);
    feed("abcd\n", 0);
    EXPECT("Nabcd$");
    feed("abcde\n", 0);
    EXPECT("Nabcd.Ce$");
    feed("abcd", 0);
    EXPECT("");
    feed("efghi\n", 0);
    EXPECT("Nabcd.Cefgh.Ci$");
}

Test(linebuf, the_end_hands_out_the_rest_and_says_that_a_newline_is_missing) {
    setup(100, false);
    cr_assert_not(linebuf_finish(&fix.b));
    feed("a\nb", 0);
    cr_assert(linebuf_finish(&fix.b));
    EXPECT("Na$Nb.");
    cr_assert_not(linebuf_finish(&fix.b));
    feed("x", 0);
    linebuf_flush(&fix.b);
    cr_assert(linebuf_finish(&fix.b), "shown already, but no newline came");
    EXPECT("Nx.");
}

Test(linebuf, carriage_returns_are_bytes_without_collapse_but_set_a_rate) {
    setup(100, false);
    feed("1%\r2%\r", 0);
    feed("3%\r", 150 * MS);
    cr_assert_eq(linebuf_deadline_ns(&fix.b), LINEBUF_QUIET_NS, "not put off by new bytes");
    linebuf_flush(&fix.b);
    EXPECT("N1%\r2%\r3%\r.");
    feed("4%\n", 210 * MS);
    feed("dos\r\n", 210 * MS);
    EXPECT("C4%$Ndos\r$");
}

Test(linebuf, a_progress_bar_collapses_to_its_newest_state) {
    setup(100, true);
    feed("\r 1%\r 2%", 0);
    feed("\r 3%", 190 * MS);
    cr_assert_eq(linebuf_deadline_ns(&fix.b), LINEBUF_QUIET_NS);
    linebuf_flush(&fix.b);
    EXPECT("N 3%.");
    feed("\r", 200 * MS);
    cr_assert_eq(linebuf_deadline_ns(&fix.b), TIME_NEVER, "nothing new to show");
    feed(" 4%\r 100%", 210 * MS);
    linebuf_flush(&fix.b);
    EXPECT("R 100%.");
    feed("\r done\nnext\n", 300 * MS);
    EXPECT("R done$Nnext$");
}

Test(linebuf, a_bar_that_ends_its_states_with_cr_is_seen_too) {
    setup(100, true);
    feed("10%\r20%\r", 0);
    linebuf_flush(&fix.b);
    EXPECT("N20%.");
    feed("30%\r", 0);
    linebuf_flush(&fix.b);
    EXPECT("R30%.");
    feed("\n", 0);
    EXPECT("C$");
    feed("dos\r\n", 0);
    feed("dos\r", 0);
    feed("\n", 0);
    EXPECT("Ndos$Ndos$");
}

Test(linebuf, nul_and_broken_utf8_pass_as_they_are) {
    setup(100, true);
    linebuf_feed(&fix.b, "a\0\xff\xfe\n", 5, 0);
    cr_assert_eq(fix.seen.len, 6);
    cr_assert_eq(memcmp(fix.seen.data, "Na\0\xff\xfe$", 6), 0);
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
