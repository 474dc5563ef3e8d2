#include "launcher/starter/starter.h"

#include "base/frame.h"
#include "rig/unit.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

static const uint8_t *bytes_of(const struct strbuf *s) { return (const uint8_t *)strbuf_text(s); }

static const struct {
    enum starter_sender from;
    const char *payload;
} messages[] = {
    {STARTER_FROM_AGENT, "L{\"version\":3,\"token\":\"" TOKEN "\",\"host\":\"node1\",\"step\":\"28.0\"}"},
    {STARTER_FROM_AGENT, "L{\"version\":3,\"token\":\"\",\"host\":\"node1\",\"step\":\"\"}"},
    {STARTER_FROM_AGENT, "s{}"},
    {STARTER_FROM_RELAY, "V{\"status\":143,\"lost\":2,\"text\":\"rank 3 died of SIGSEGV\",\"safe\":true,"
                         "\"lost_nodes\":\"node3,node7\"}"},
    {STARTER_FROM_RELAY, "H{\"version\":\"0.1.0\",\"host\":\"n1\",\"pid\":7,\"addrs\":\"10.0.0.1,fd77::1\"}"},
    {STARTER_FROM_RELAY, "X{\"signalled\":true,\"code\":9}"},
    {STARTER_FROM_RELAY, "F{\"text\":\"there is no folder /data\"}"},
    {STARTER_FROM_RELAY, "p{\"port\":4001}"},
    {STARTER_FROM_STARTER, "l{\"addr\":\"fd77::1\",\"low\":4000,\"high\":4009}"},
    {STARTER_FROM_RELAY, "o\xff\n bytes"},
    {STARTER_FROM_RELAY, "e"},
    {STARTER_FROM_STARTER, "A{}"},
    {STARTER_FROM_STARTER, "S{\"signal\":15}"},
    {STARTER_FROM_STARTER, "U{\"signal\":10}"},
    {STARTER_FROM_STARTER, "N{\"nodes\":3}"},
    {STARTER_FROM_STARTER, "bpart"},
    {STARTER_FROM_STARTER, "Bwhole"},
    {STARTER_FROM_STARTER, "P{}"},
    {STARTER_FROM_STARTER, "Z{}"},
    {STARTER_FROM_STARTER, "d{}"},
    {STARTER_FROM_STARTER, "D{}"},
};

static void frame_of(const char *payload, struct strbuf *ret) {
    uint8_t head[FRAME_HEADER_BYTES];
    strbuf_clear(ret);
    frame_header(strlen(payload), head);
    strbuf_add_bytes(ret, head, sizeof head);
    strbuf_add(ret, payload);
}

static int take(const struct strbuf *s, enum starter_sender from, struct starter_message *ret) {
    size_t n = 0;
    struct err err = {0};
    int r = starter_take(bytes_of(s), s->len, from, ret, &n, &err);
    cr_assert(r == 0 ? n == s->len : r > 0 || err.text[0] != '\0');
    return r;
}

Test(starter_wire, messages_are_the_same_after_the_way_there) {
    _cleanup_(strbuf_fini) struct strbuf s = {0}, again = {0};
    for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
        struct starter_message m;
        frame_of(messages[i].payload, &s);
        cr_assert_eq(take(&s, messages[i].from, &m), 0, "%s", messages[i].payload);
        strbuf_clear(&again);
        starter_add(&m, &again);
        cr_assert_eq(again.len, s.len, "%s", messages[i].payload);
        cr_assert_eq(memcmp(again.data, s.data, s.len), 0, "%s", messages[i].payload);
        for (size_t n = 0, taken; n < s.len; n++)
            cr_assert_eq(starter_take(bytes_of(&s), n, messages[i].from, &m, &taken, NULL), FRAME_E_MORE,
                         "%zu bytes of %s", n, messages[i].payload);
    }
}

Test(starter_wire, a_message_is_taken_from_its_sender_only) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    struct starter_message m;
    for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
        bool is_starters = messages[i].from == STARTER_FROM_STARTER;
        frame_of(messages[i].payload, &s);
        cr_assert_eq(take(&s, is_starters ? STARTER_FROM_RELAY : STARTER_FROM_STARTER, &m), -EINVAL);
        if (strchr("HXFoe", messages[i].payload[0]) != NULL)
            cr_assert_eq(take(&s, STARTER_FROM_AGENT, &m), -EINVAL);
    }
}

Test(starter_wire, the_fields_arrive) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    struct starter_message m;
    frame_of(messages[0].payload, &s);
    cr_assert_eq(take(&s, STARTER_FROM_AGENT, &m), 0);
    cr_assert_str_eq(m.lead.token, TOKEN);
    cr_assert_str_eq(m.lead.step, "28.0");
    frame_of(messages[3].payload, &s);
    cr_assert_eq(take(&s, STARTER_FROM_AGENT, &m), 0);
    cr_assert(m.verdict.status == 143 && m.verdict.lost == 2 && m.verdict.safe);
    cr_assert_str_eq(m.verdict.lost_nodes, "node3,node7");
    frame_of("obytes", &s);
    cr_assert_eq(take(&s, STARTER_FROM_RELAY, &m), 0);
    cr_assert(m.data.len == 5 && memcmp(m.data.bytes, "bytes", 5) == 0);
}

Test(starter_wire, the_longest_messages_fit) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    static uint8_t data[STARTER_DATA_MAX];
    struct starter_message m = {.kind = STARTER_VERDICT}, got;
    m.verdict.status = 255;
    m.verdict.lost = UINT32_MAX;
    memset(m.verdict.text, '\x01', sizeof m.verdict.text - 1); /* the longest when written */
    memset(m.verdict.lost_nodes, 'n', sizeof m.verdict.lost_nodes - 1);
    starter_add(&m, &s);
    cr_assert_leq(s.len, STARTER_FRAME_MAX);
    cr_assert_eq(take(&s, STARTER_FROM_AGENT, &got), 0);
    strbuf_clear(&s);
    starter_add_data(STARTER_OUT, data, sizeof data, &s);
    cr_assert_eq(s.len, STARTER_DATA_FRAME_MAX);
    cr_assert_eq(take(&s, STARTER_FROM_RELAY, &got), 0);
    cr_assert_eq(got.data.len, sizeof data);
}

Test(starter_wire, what_is_not_a_message_is_refused) {
    static const char *const bad[] = {
        "?{}",
        "L",
        "L{}",
        "L{\"version\":3,\"token\":\"short\",\"host\":\"\",\"step\":\"\"}",
        "L{\"version\":2,\"token\":\"" TOKEN "\",\"host\":\"\",\"step\":\"\"}",
        "L{\"version\":3,\"token\":\"" TOKEN "0\",\"host\":\"\",\"step\":\"\"}",
        "V{\"status\":256,\"lost\":0,\"text\":\"\",\"safe\":true,\"lost_nodes\":\"\"}",
        "V{\"status\":-1,\"lost\":0,\"text\":\"\",\"safe\":true,\"lost_nodes\":\"\"}",
        "V{\"status\":0,\"lost\":0,\"text\":\"\"}",
        "s[]",
        "s{\"more\":1}",
        "X{\"signalled\":true,\"code\":256}",
        "S{\"signal\":0}",
        "U{\"signal\":65}",
        "N{\"nodes\":0}",
        "F{\"text\":\"\"}",
        "A{\"more\":1}",
        "H{\"version\":\"\",\"host\":\"\",\"pid\":1,\"addrs\":\"\"}",
        "GET / HTTP/1.1\r\n\r\n",
        "s[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", /* more than any has */
    };
    static const enum starter_sender all[] = {STARTER_FROM_AGENT, STARTER_FROM_RELAY, STARTER_FROM_STARTER};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        for (size_t k = 0; k < ARRAY_SIZE(all); k++) {
            _cleanup_(strbuf_fini) struct strbuf s = {0};
            struct starter_message m;
            frame_of(bad[i], &s);
            cr_assert_eq(take(&s, all[k], &m), -EINVAL, "%s", bad[i]);
        }
}

Test(starter_wire, an_announced_length_costs_nothing) {
    struct starter_message m;
    size_t n;
    const uint8_t huge[] = {0xff, 0xff, 0xff, 0x7f}, none[] = {0, 0, 0, 0}, json[] = {0x00, 0x20, 0, 0, 's'};
    cr_assert_eq(starter_take(huge, sizeof huge, STARTER_FROM_RELAY, &m, &n, NULL), -EMSGSIZE);
    cr_assert_eq(starter_take(none, sizeof none, STARTER_FROM_RELAY, &m, &n, NULL), -EMSGSIZE);
    cr_assert_eq(starter_take(json, sizeof json, STARTER_FROM_RELAY, &m, &n, NULL), -EMSGSIZE);
}

Test(starter_wire, tokens_are_compared_as_a_whole) {
    char other[] = TOKEN;
    static const char none[STARTER_TOKEN_CHARS + 1];
    cr_assert(starter_token_equal(TOKEN, other));
    cr_assert_not(starter_token_equal(TOKEN, none));
    cr_assert_not(starter_token_equal(none, none));
    for (size_t i = 0; i < STARTER_TOKEN_CHARS; i++) {
        other[i] ^= 1;
        cr_assert_not(starter_token_equal(TOKEN, other), "position %zu", i);
        other[i] ^= 1;
    }
}
