#include "watchdog/act/hang_watch_io.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/text/strbuf.h"
#include "base/text/utf8.h"
#include "io/clock.h"

static struct loop *loop;
static struct hang_reply *reply;
static struct strbuf got;
static uint32_t pieces, refusals, firsts;
static uint32_t refuse; /* so many times, before each piece */
static bool last;

static bool take(void *arg, const struct rdzv_evidence *piece) {
    (void)arg;
    if (refusals++ < refuse) {
        if (refuse == UINT32_MAX)
            loop_quit(loop);
        return false;
    }
    refusals = 0;
    pieces++;
    firsts += piece->first;
    cr_assert_not(last);
    last = piece->last;
    for (const char *s = piece->text; *s != '\0'; s += utf8_char(s))
        cr_assert_gt(utf8_char(s), 0, "it was cut inside a character");
    strbuf_add(&got, piece->text);
    if (last)
        loop_quit(loop);
    return true;
}

static void begin(void) {
    cr_assert_eq(loop_new(&loop), 0);
    reply = hang_reply_new(loop, take, NULL);
}

static void finish(void) {
    hang_reply_free(reply);
    loop_free(loop);
    strbuf_fini(&got);
}

TestSuite(hang_reply_io, .init = begin, .fini = finish);

Test(hang_reply_io, an_empty_answer_is_one_piece) {
    hang_reply_start(reply, 3, "", 0, TIME_NEVER);
    cr_assert_eq(pieces, 1);
    cr_assert(last);
}

Test(hang_reply_io, a_long_answer_is_cut_between_characters) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    while (text.len < 3 * RDZV_EVIDENCE_CHUNK_MAX)
        strbuf_add(&text, "x\xe2\x82\xac");
    hang_reply_start(reply, 3, strbuf_text(&text), text.len, TIME_NEVER);
    cr_assert_eq(pieces, 4);
    cr_assert_eq(firsts, 1);
    cr_assert(last);
    cr_assert_str_eq(strbuf_text(&got), strbuf_text(&text));
}

Test(hang_reply_io, what_is_refused_comes_again) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    while (text.len < 2 * RDZV_EVIDENCE_CHUNK_MAX)
        strbuf_add(&text, "0123456789");
    refuse = 2;
    hang_reply_start(reply, 3, strbuf_text(&text), text.len, TIME_NEVER);
    cr_assert_eq(pieces, 0);
    while (!last)
        cr_assert_eq(loop_run(loop), 0);
    cr_assert_str_eq(strbuf_text(&got), strbuf_text(&text));
}

Test(hang_reply_io, nobody_waits_for_ever) {
    refuse = UINT32_MAX;
    hang_reply_start(reply, 3, "{}", 2, clock_now_ns());
    cr_assert_eq(refusals, 1);
    hang_reply_start(reply, 4, "{}", 2, clock_now_ns() + NS_PER_S);
    cr_assert_eq(loop_run(loop), 0); /* it is tried again */
    cr_assert_eq(refusals, 3);
    hang_reply_stop(reply);
    cr_assert_eq(pieces, 0);
}
