#include "base/json/json.h"

#include "rig/unit.h"

static struct json *must_parse(const char *text) {
    struct json *doc = NULL;
    struct err err = {0};
    int r = json_parse(text, strlen(text), &JSON_LIMITS_DEFAULT, &doc, &err);
    cr_assert_eq(r, 0, "%s: %s", text, err.text);
    return doc;
}

static int parse_code(const char *text, size_t len, const struct json_limits *limits) {
    _cleanup_(json_freep) struct json *doc = NULL;
    struct err err = {0};
    int r = json_parse(text, len, limits, &doc, &err);
    cr_assert_eq(r, err.code, "%s", text);
    cr_assert((r == 0) == (doc != NULL));
    return r;
}

Test(json, what_is_json_is_taken) {
    static const char *const good[] = {
        "null",
        "true",
        " false ",
        "0",
        "-0",
        "12",
        "1.5",
        "-1e5",
        "1E+2",
        "\"\"",
        "\"\\u00e9\\n\\\"\"",
        "[]",
        "{}",
        "[1,2,{\"a\":[]}]",
        "{\"a\":1,\"b\":{\"a\":2}}",
        "\"\xc3\xa9\"",
        "\"\\ud83d\\ude00\"",
        "[{\"a\":1},{\"a\":1}]",
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        cr_assert_eq(parse_code(good[i], strlen(good[i]), &JSON_LIMITS_DEFAULT), 0, "%s", good[i]);
}

Test(json, what_is_not_json_is_refused) {
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[1,]",
        "{\"a\":}",
        "{\"a\"}",
        "{a:1}",
        "01",
        "1.",
        ".5",
        "+1",
        "-",
        "1e",
        "0x10",
        "1 2",
        "nul",
        "True",
        "NaN",
        "Infinity",
        "'a'",
        "\"a",
        "\"a\nb\"",
        "\"\\x\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "{} x",
        "[] ]",
        "\xef\xbb\xbf{}",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xe2\x82\"",
        "[1}",
        "\v1",
        "\"\\",
        "1-2",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_assert_eq(parse_code(bad[i], strlen(bad[i]), &JSON_LIMITS_DEFAULT), -EINVAL, "%s", bad[i]);
    cr_assert_eq(parse_code("1\0", 2, &JSON_LIMITS_DEFAULT), -EINVAL);
    cr_assert_eq(parse_code("\"a\0b\"", 5, &JSON_LIMITS_DEFAULT), -EINVAL);
}

Test(json, doubled_keys_are_refused_at_any_place) {
    static const char *const bad[] = {
        "{\"a\":1,\"a\":1}",      "[0,{\"x\":{\"b\":1,\"c\":2,\"b\":3}}]", "{\"a\":1,\"\\u0061\":2}",
        "[[],{\"q\":1,\"q\":2}]", "{\"z\":[{\"a\":1}],\"y\":{},\"z\":1}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_assert_eq(parse_code(bad[i], strlen(bad[i]), &JSON_LIMITS_DEFAULT), -EINVAL, "%s", bad[i]);
}

/* With few members, each is compared with each; many members are sorted first. */
Test(json, a_doubled_key_is_found_among_any_number_of_members) {
    for (size_t n = 2; n <= 60; n++) {
        for (int same = 0; same <= 1; same++) {
            _cleanup_(strbuf_fini) struct strbuf text = {0};
            struct json_writer w = json_writer_of(&text);
            json_write_object_begin(&w, NULL);
            for (size_t i = 0; i < n; i++)
                json_write_u64(&w, rig_text("k%zu", same && i == n - 1 ? n / 2 - 1 : i), i);
            json_write_object_end(&w);
            cr_assert_eq(parse_code(strbuf_text(&text), text.len, &JSON_LIMITS_DEFAULT), same ? -EINVAL : 0);
        }
    }
}

Test(json, depth_is_taken_at_its_limit_and_refused_above) {
    struct json_limits limits = *WITH(JSON_LIMITS_DEFAULT, .max_depth = 3);
    cr_assert_eq(parse_code("[[[1]]]", 7, &limits), 0);
    cr_assert_eq(parse_code("[[[[1]]]]", 9, &limits), -E2BIG);
    cr_assert_eq(parse_code("[[[]],[[]]]", 11, &limits), 0);
    limits.max_depth = 1000; /* never above JSON_DEPTH_MAX */
    char text[64];
    memset(text, '[', 17);
    memset(text + 17, ']', 17);
    cr_assert_eq(parse_code(text + 1, 32, &limits), 0);
    cr_assert_eq(parse_code(text, 34, &limits), -E2BIG);
}

Test(json, bytes_and_values_are_taken_at_their_limit_and_refused_above) {
    struct json_limits limits = *WITH(JSON_LIMITS_DEFAULT, .max_bytes = 5);
    cr_assert_eq(parse_code("[123]", 5, &limits), 0);
    cr_assert_eq(parse_code("[1234]", 6, &limits), -E2BIG);
    limits.max_bytes = 100;
    limits.max_values = 5;
    cr_assert_eq(parse_code("{\"a\":1,\"b\":2}", 13, &limits), 0);
    cr_assert_eq(parse_code("{\"a\":1,\"b\":[]}", 14, &limits), 0);
    cr_assert_eq(parse_code("{\"a\":1,\"b\":[3]}", 15, &limits), -E2BIG);
}

Test(json, whole_numbers_are_taken_within_their_range_only) {
    _cleanup_(json_freep) struct json *doc =
        must_parse("{\"n\":7,\"half\":0.5,\"neg\":-3,\"big\":9007199254740992,\"over\":9007199254740994,"
                   "\"inf\":1e999,\"text\":\"7\",\"e\":1e3}");
    uint32_t u = 1;
    int64_t i = 1;
    cr_assert_eq(json_get_u32(doc, "n", 7, &u, NULL), 0);
    cr_assert_eq(u, 7);
    cr_assert_eq(json_get_u32(doc, "n", 6, &u, NULL), -EINVAL);
    cr_assert_eq(json_as_integer(json_member(doc, "big"), "big", 0, JSON_INTEGER_MAX, &i, NULL), 0);
    cr_assert_eq(i, INT64_C(9007199254740992));
    cr_assert_eq(json_get_u32(doc, "e", 1000, &u, NULL), 0);
    cr_assert_eq(u, 1000);
    cr_assert_eq(json_as_integer(json_member(doc, "neg"), "neg", -3, 0, &i, NULL), 0);
    cr_assert_eq(i, -3);
    cr_assert_eq(json_as_integer(json_member(doc, "neg"), "neg", -2, 0, &i, NULL), -EINVAL);
    static const char *const bad[] = {"half", "neg", "over", "inf", "text", "none"};
    for (size_t k = 0; k < ARRAY_SIZE(bad); k++) {
        struct err err = {0};
        cr_assert_eq(json_as_integer(json_member(doc, bad[k]), bad[k], 0, JSON_INTEGER_MAX, &i, &err), -EINVAL, "%s",
                     bad[k]);
        assert_has(err.text, bad[k]);
    }
}

Test(json, texts_are_taken_at_their_limit_and_refused_above) {
    _cleanup_(json_freep) struct json *doc = must_parse("{\"t\":\"abcd\",\"n\":1}");
    const char *text;
    cr_assert_eq(json_get_string(doc, "t", 4, &text, NULL), 0);
    cr_assert_str_eq(text, "abcd");
    cr_assert_eq(json_get_string(doc, "t", 3, &text, NULL), -EINVAL);
    cr_assert_eq(json_get_string(doc, "n", 3, &text, NULL), -EINVAL);
}

Test(json, ids_are_64_bits_written_in_one_way) {
    static const struct {
        const char *text;
        int r;
        uint64_t v;
    } cases[] = {
        {"{\"i\":\"0\"}", 0, 0},
        {"{\"i\":\"18446744073709551615\"}", 0, UINT64_MAX},
        {"{\"i\":\"18446744073709551616\"}", -EINVAL, 0},
        {"{\"i\":\"99999999999999999999\"}", -EINVAL, 0},
        {"{\"i\":\"\"}", -EINVAL, 0},
        {"{\"i\":\"01\"}", -EINVAL, 0},
        {"{\"i\":\"-1\"}", -EINVAL, 0},
        {"{\"i\":\"1 \"}", -EINVAL, 0},
        {"{\"i\":1}", -EINVAL, 0},
    };
    for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
        _cleanup_(json_freep) struct json *doc = must_parse(cases[k].text);
        uint64_t v = 0;
        cr_assert_eq(json_get_id(doc, "i", &v, NULL), cases[k].r, "%s", cases[k].text);
        cr_assert_eq(v, cases[k].v);
    }
    static const char *const bad_hex[] = {"{\"h\":\"0\"}", "{\"h\":\"00000000DEADBEEF\"}",
                                          "{\"h\":\"00000000deadbeef0\"}", "{\"h\":1}"};
    uint64_t v;
    for (size_t k = 0; k < ARRAY_SIZE(bad_hex); k++) {
        _cleanup_(json_freep) struct json *doc = must_parse(bad_hex[k]);
        cr_assert_eq(json_as_hex(json_member(doc, "h"), "h", &v, NULL), -EINVAL, "%s", bad_hex[k]);
    }
    _cleanup_(json_freep) struct json *doc = must_parse("{\"h\":\"fedcba9876543210\"}");
    cr_assert_eq(json_as_hex(json_member(doc, "h"), "h", &v, NULL), 0);
    cr_assert_eq(v, UINT64_C(0xfedcba9876543210));
}

Test(json, arrays_are_counted_and_walked) {
    _cleanup_(json_freep) struct json *doc = must_parse("{\"a\":[\"x\",2,true],\"o\":{\"k\":1}}");
    const struct json *a, *o;
    cr_assert_eq(json_get_array(doc, "a", 2, &a, NULL), -EINVAL);
    cr_assert_eq(json_get_array(doc, "a", 3, &a, NULL), 0);
    cr_assert_eq(json_count(a), 3);
    const struct json *v = json_first(a);
    cr_assert_str_eq(json_string(v), "x");
    v = json_next(v);
    cr_assert_null(json_string(v));
    cr_assert_eq(json_kind_of(json_next(v)), JSON_BOOL);
    cr_assert_null(json_next(json_next(v)));
    o = json_member(doc, "o");
    cr_assert_eq(json_as_object(o, "o", NULL), 0);
    cr_assert_str_eq(json_key(json_first(o)), "k");
    cr_assert_eq(json_as_object(a, "a", NULL), -EINVAL);
    cr_assert(json_has(o, "k") && !json_has(o, "K") && !json_has(a, "k"));
    bool b;
    cr_assert_eq(json_as_bool(a, "a", &b, NULL), -EINVAL);
}

Test(json, what_is_written_is_read_back_equal) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct json_writer w = json_writer_of(&text);
    json_write_object_begin(&w, NULL);
    json_write_u64(&w, "max", JSON_INTEGER_MAX - 1);
    json_write_i64(&w, "neg", -5);
    json_write_bool(&w, "yes", true);
    json_write_null(&w, "nil");
    json_write_string(&w, "quo\"te", "a\\\"\x01\n\t\xc3\xa9");
    json_write_id(&w, "id", UINT64_MAX);
    json_write_hex(&w, "hex", 255);
    json_write_array_begin(&w, "list");
    json_write_u64(&w, NULL, 1);
    json_write_object_begin(&w, NULL);
    json_write_object_end(&w);
    json_write_string(&w, NULL, "x");
    json_write_u64(&w, NULL, 0);
    json_write_i64(&w, NULL, 10);
    json_write_i64(&w, NULL, -(int64_t)JSON_INTEGER_MAX);
    json_write_id(&w, NULL, 0);
    json_write_string(&w, NULL, "");
    json_write_array_end(&w);
    json_write_bool(&w, "last", false);
    json_write_object_end(&w);
    cr_assert_str_eq(strbuf_text(&text), "{\"max\":9007199254740991,\"neg\":-5,\"yes\":true,\"nil\":null,"
                                         "\"quo\\\"te\":\"a\\\\\\\"\\u0001\\n\\u0009\xc3\xa9\","
                                         "\"id\":\"18446744073709551615\",\"hex\":\"00000000000000ff\","
                                         "\"list\":[1,{},\"x\",0,10,-9007199254740992,\"0\",\"\"],\"last\":false}");
    _cleanup_(json_freep) struct json *doc = must_parse(strbuf_text(&text));
    uint64_t v;
    const char *s;
    int64_t i;
    cr_assert_eq(json_as_integer(json_member(doc, "max"), "max", 0, JSON_INTEGER_MAX, &i, NULL), 0);
    cr_assert_eq(i, JSON_INTEGER_MAX - 1);
    cr_assert_eq(json_get_id(doc, "id", &v, NULL), 0);
    cr_assert_eq(v, UINT64_MAX);
    cr_assert_eq(json_get_string(doc, "quo\"te", 20, &s, NULL), 0);
    cr_assert_str_eq(s, "a\\\"\x01\n\t\xc3\xa9");
}

Test(json, bytes_that_are_not_utf8_are_replaced_when_written) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    json_write_string(AT(json_writer_of(&text)), NULL, "a\xff\xe2\x82z\xed\xa0\x80");
    cr_assert_str_eq(strbuf_text(&text), "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd"
                                         "\xef\xbf\xbd\xef\xbf\xbd\"");
    struct json *doc = must_parse(strbuf_text(&text));
    json_free(doc);
}

Test(json, a_value_that_was_read_can_be_written) {
    _cleanup_(json_freep) struct json *doc = must_parse("{\"m\":{\"a\":[1,\"\\u00e9\"]}}");
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct json_writer w = json_writer_of(&text);
    json_write_array_begin(&w, NULL);
    cr_assert_eq(json_write_value(&w, NULL, json_member(doc, "m")), 0);
    json_write_u64(&w, NULL, 2);
    json_write_array_end(&w);
    cr_assert_str_eq(strbuf_text(&text), "[{\"a\":[1,\"\xc3\xa9\"]},2]");
}
