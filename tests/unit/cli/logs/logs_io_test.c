/* Which lines are shown, and in which order. While it follows: tests/e2e/test_logs.py. */
#include "cli/logs/logs_io.h"

#include "base/prng.h"
#include "launcher/output/log_times_io.h"
#include "rig/tree.h"

#define RANKS 9
#define LONG_LINE ((size_t)3 * 64 * 1024)

static struct tree tree;
static char out[1 << 19];

static void begin(void) { tree_new(&tree); }
static void end(void) { tree_remove(&tree); }
TestSuite(logs_io, .init = begin, .fini = end);

/* The log of a rank. */
static void put(unsigned rank, const char *text, const struct log_stamp *stamps, size_t n) {
    uint8_t bytes[64 * LOG_STAMP_BYTES];
    const char *path = rig_text("1.1/n/%u/stdout.log", rank);
    _cleanup_(freep) char *times = log_times_path(path);
    for (size_t i = 0; i < n; i++)
        log_stamp_encode(&stamps[i], bytes + i * LOG_STAMP_BYTES);
    tree_write(&tree, path, text);
    tree_write_bytes(&tree, times, bytes, n * LOG_STAMP_BYTES);
}

/* "0a b|": rank 0, its text, "|" for the newline. ranks NULL: all. */
static const char *shown(const char *ranks, uint64_t lines) {
    struct logs_view view = {.streams = {true, true},
                             .generation = "all",
                             .dirs = {tree.root},
                             .n_dirs = 1,
                             .prefix = LOGS_PREFIX_AUTO,
                             .lines = lines};
    FILE *to = tmpfile();
    int old = dup(1);
    cr_assert(ranks == NULL || rank_set_parse(ranks, &view.ranks, NULL) == 0);
    (void)fflush(stdout);
    (void)dup2(fileno(to), 1);
    cr_assert_eq(show_logs(&view), 0);
    (void)fflush(stdout);
    (void)dup2(old, 1);
    (void)close(old);
    ssize_t n = pread(fileno(to), out, sizeof out - 1, 0);
    (void)fclose(to);
    char *at = out;
    for (const char *c = out; c < out + n; c++)
        if (strncmp(c, "[rank", 5) == 0) {
            *at++ = c[5];
            c += strlen("[rank0]: ") - 1;
        } else {
            *at++ = *c == '\n' ? '|' : *c;
        }
    *at = '\0';
    return out;
}

Test(logs_io, lines_come_in_the_order_of_their_times) {
    static const struct {
        struct {
            const char *text;
            struct log_stamp stamps[4]; /* at 0 of time 0: the end */
        } logs[3];
        const char *shown;
    } cases[] = {
        /* "B" began in the batch of 10, although its newline came with that of 30 */
        {{{"a1\nB\na3\n", {{0, 10}, {4, 30}}}, {"b1\nc\nd\n", {{0, 20}, {3, 25}, {5, 40}}}}, "0a1|0B|1b1|1c|0a3|1d|"},
        {{{"1\n2\n", {{0, 20}}}, {"3\n4\n", {{0, 0}}}, {"5\n", {{0, 0}}}}, "13|14|25|01|02|"},
        /* a clock that steps back keeps the order of a log */
        {{{"1\n2\n", {{0, 30}, {2, 10}}}, {"3\n", {{0, 20}}}}, "13|01|02|"},
        {{{"1\nno newline", {{0, 10}}}, {"3\n", {{0, 20}}}}, "01|0no newline|13|"},
        {{{"1\n", {{0, 10}}}, {"3\nno newline", {{0, 20}}}}, "01|13|1no newline|"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        for (unsigned k = 0; k < 3; k++) {
            const char *text = cases[i].logs[k].text;
            size_t n = 0;
            while (n < 4 && cases[i].logs[k].stamps[n].ns > 0)
                n++;
            put(k, text != NULL ? text : "", cases[i].logs[k].stamps, n);
        }
        cr_expect_str_eq(shown(NULL, UINT64_MAX), cases[i].shown, "%s", out);
    }
}

Test(logs_io, a_very_long_line_stays_whole) {
    static char text[LONG_LINE + 1];
    static const struct log_stamp first[] = {{0, 10}};
    memset(text, 'x', sizeof text - 2);
    text[sizeof text - 2] = '\n';
    put(0, text, first, 1);
    put(1, "b\n", first, 1);
    (void)shown(NULL, UINT64_MAX);
    cr_assert_eq(strspn(out + 1, "x"), LONG_LINE - 1);
    cr_assert_str_eq(out + LONG_LINE, "|1b|");
}

/* Each byte is shown once, and the last lines are the end of all. */
Test(logs_io, any_lines_any_times) {
    struct prng rng = {.state = 16};
    for (int round = 0; round < 40; round++) {
        struct log_stamp stamps[40];
        size_t bytes = 0, seen = 0;
        for (unsigned i = 0; i < 6; i++) {
            char text[200];
            size_t len = prng_below(&rng, 199);
            uint64_t at = 0, ns = 1 + prng_below(&rng, 20);
            for (size_t k = 0; k < len; k++)
                text[k] = prng_below(&rng, 5) == 0 ? '\n' : 'a';
            if (len > 0)
                text[len - 1] = '\n';
            text[len] = '\0';
            bytes += len;
            for (size_t k = 0; k < 40; k++, at += 1 + prng_below(&rng, 9), ns += prng_below(&rng, 20))
                stamps[k] = (struct log_stamp){.at = at, .ns = ns};
            put(i, text, stamps, 40);
        }
        _cleanup_(freep) char *all = xstrdup(shown(NULL, UINT64_MAX));
        size_t n_lines = 0, wanted = prng_below(&rng, 30);
        for (const char *p = all; *p != '\0'; p++) {
            seen += *p == '|' || *p == 'a';
            n_lines += *p == '|';
        }
        cr_assert_eq(seen, bytes, "round %d", round);
        const char *rest = all;
        for (; n_lines > wanted; n_lines--)
            rest = strchr(rest, '|') + 1;
        cr_assert_str_eq(shown(NULL, wanted), rest, "round %d, %zu lines", round, wanted);
    }
}

Test(logs_io, ranks) {
    static const char *const bad[] = {"", "a", "3-1", "1,", "-1", "1-", "1-2-3", "4294967296"};
    struct rank_set set;
    for (unsigned i = 0; i < RANKS; i++)
        put(i, "x\n", NULL, 0);
    cr_assert_str_eq(shown("0-3,7", UINT64_MAX), "0x|1x|2x|3x|7x|");
    cr_assert_str_eq(shown("5", UINT64_MAX), "x|", "one alone needs no prefix");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_assert_eq(rank_set_parse(bad[i], &set, NULL), -EINVAL, "%s", bad[i]);
}
