#include "launcher/starter/starter_wire.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/frame.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

static struct starter_message lead(void) {
    struct starter_message m = {.kind = STARTER_LEAD};
    m.lead = (struct starter_lead){.version = STARTER_WIRE_VERSION, .token = TOKEN, .host = "node1", .step = "28.0"};
    return m;
}

static int take(const struct strbuf *s, struct starter_message *ret) {
    size_t bytes;
    struct err err = {0};
    int r = starter_take((const uint8_t *)strbuf_text(s), s->len, ret, &bytes, &err);
    if (r == 0)
        cr_assert_eq(bytes, s->len);
    return r;
}

Test(starter_wire, messages_survive_the_way) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    struct starter_message m = lead(), got;
    starter_encode(&m, &s);
    cr_assert_str_eq(strbuf_text(&s) + FRAME_HEADER_BYTES,
                     "{\"kind\":\"LEAD\",\"version\":2,\"token\":\"" TOKEN "\",\"host\":\"node1\",\"step\":\"28.0\"}");
    cr_assert_eq(take(&s, &got), 0);
    cr_assert_eq(got.kind, STARTER_LEAD);
    cr_assert_str_eq(got.lead.token, TOKEN);
    cr_assert_str_eq(got.lead.step, "28.0");
    m.kind = STARTER_VERDICT;
    m.verdict = (struct starter_verdict){
        .status = 143, .lost = 2, .text = "rank 3 died of SIGSEGV", .safe = true, .lost_nodes = "node3,node7"};
    starter_encode(&m, &s);
    cr_assert_eq(take(&s, &got), 0);
    cr_assert_eq(got.verdict.status, 143);
    cr_assert_eq(got.verdict.lost, 2);
    cr_assert_str_eq(got.verdict.text, "rank 3 died of SIGSEGV");
    cr_assert(got.verdict.safe);
    cr_assert_str_eq(got.verdict.lost_nodes, "node3,node7");
    m.kind = STARTER_SAFE;
    starter_encode(&m, &s);
    cr_assert_str_eq(strbuf_text(&s) + FRAME_HEADER_BYTES, "{\"kind\":\"SAFE\"}");
    cr_assert_eq(take(&s, &got), 0);
    cr_assert_eq(got.kind, STARTER_SAFE);
    m.kind = STARTER_STOP;
    m.stop.signo = 15;
    starter_encode(&m, &s);
    cr_assert_eq(take(&s, &got), 0);
    cr_assert_eq(got.stop.signo, 15);
    m.kind = STARTER_EXPECT;
    m.expect.nodes = 3;
    starter_encode(&m, &s);
    cr_assert_str_eq(strbuf_text(&s) + FRAME_HEADER_BYTES, "{\"kind\":\"EXPECT\",\"nodes\":3}");
    cr_assert_eq(take(&s, &got), 0);
    cr_assert_eq(got.expect.nodes, 3);
    m.kind = STARTER_ACK;
    starter_encode(&m, &s);
    cr_assert_str_eq(strbuf_text(&s) + FRAME_HEADER_BYTES, "{\"kind\":\"ACK\"}");
    cr_assert_eq(take(&s, &got), 0);
    cr_assert_eq(got.kind, STARTER_ACK);
}

Test(starter_wire, the_longest_message_fits) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    struct starter_message m = {.kind = STARTER_VERDICT}, got;
    m.verdict.status = 255;
    m.verdict.lost = UINT32_MAX;
    memset(m.verdict.text, '\x01', sizeof m.verdict.text - 1); /* the longest when written */
    memset(m.verdict.lost_nodes, 'n', sizeof m.verdict.lost_nodes - 1);
    starter_encode(&m, &s);
    cr_assert_leq(s.len, STARTER_FRAME_MAX);
    cr_assert_eq(take(&s, &got), 0);
}

Test(starter_wire, part_of_a_frame_is_waited_for) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    struct starter_message m = lead(), got;
    starter_encode(&m, &s);
    for (size_t n = 0; n < s.len; n++) {
        size_t bytes;
        cr_assert_eq(starter_take((const uint8_t *)s.data, n, &got, &bytes, NULL), FRAME_E_MORE, "%zu bytes", n);
    }
}

static int decode(const char *text) {
    struct starter_message m;
    struct err err = {0};
    int r = starter_decode(text, strlen(text), &m, &err);
    if (r < 0)
        cr_assert_neq(err.text[0], '\0');
    return r;
}

Test(starter_wire, what_is_no_message_is_refused) {
    static const char *const bad[] = {
        "{}",
        "[]",
        "{\"kind\":\"HELLO\"}",
        "{\"kind\":\"STOP\"}",
        "{\"kind\":\"STOP\",\"signal\":0}",
        "{\"kind\":\"STOP\",\"signal\":65}",
        "{\"kind\":\"VERDICT\",\"status\":256,\"lost\":0,\"text\":\"\",\"safe\":true,\"lost_nodes\":\"\"}",
        "{\"kind\":\"VERDICT\",\"status\":-1,\"lost\":0,\"text\":\"\",\"safe\":true,\"lost_nodes\":\"\"}",
        "{\"kind\":\"VERDICT\",\"status\":0,\"lost\":0}",
        "{\"kind\":\"VERDICT\",\"status\":0,\"lost\":0,\"text\":\"\"}",
        "{\"kind\":\"ACK\",\"more\":1}",
        "{\"kind\":\"LEAD\",\"version\":2,\"token\":\"short\",\"host\":\"\",\"step\":\"\"}",
        "{\"kind\":\"LEAD\",\"version\":1,\"token\":\"" TOKEN "\",\"host\":\"\",\"step\":\"\"}",
        "{\"kind\":\"LEAD\",\"version\":2,\"token\":\"" TOKEN "0\",\"host\":\"\",\"step\":\"\"}",
        "GET / HTTP/1.1\r\n\r\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_assert_eq(decode(bad[i]), -EINVAL, "%s", bad[i]);
}

Test(starter_wire, an_announced_length_costs_nothing) {
    struct starter_message m;
    size_t bytes;
    const uint8_t huge[] = {0xff, 0xff, 0xff, 0x7f}, none[] = {0, 0, 0, 0};
    cr_assert_eq(starter_take(huge, sizeof huge, &m, &bytes, NULL), -EMSGSIZE);
    cr_assert_eq(starter_take(none, sizeof none, &m, &bytes, NULL), -EMSGSIZE);
}

Test(starter_wire, tokens_are_compared_as_a_whole) {
    char other[] = TOKEN;
    cr_assert(starter_token_equal(TOKEN, other));
    for (size_t i = 0; i < STARTER_TOKEN_CHARS; i++) {
        other[i] ^= 1;
        cr_assert_not(starter_token_equal(TOKEN, other), "position %zu", i);
        other[i] ^= 1;
    }
}
