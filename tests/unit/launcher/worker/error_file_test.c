#include "launcher/worker/error_file.h"

#include "rig/unit.h"

static int parse(const char *text, struct error_file *ret) {
    struct err err = {0};
    int r = error_file_parse(text, strlen(text), ret, &err);
    cr_assert((r != 0) == (err.text[0] != '\0'), "%s: %s", text, err.text);
    return r;
}

Test(error_file, the_nested_form_of_record_is_read) {
    struct error_file e = {0};
    cr_assert_eq(parse("{\"message\": {\"message\": \"ValueError: bad\", \"extraInfo\": {\"py_callstack\": "
                       "\"Traceback (most recent call last):\\n  File \\\"t.py\\\"\\n\", \"timestamp\": "
                       "\"1700000000\"}}}",
                       &e),
                 0);
    cr_assert_str_eq(e.message, "ValueError: bad");
    cr_assert_str_eq(error_file_text(&e), "Traceback (most recent call last):\n  File \"t.py\"\n");
    error_file_fini(&e);
}

Test(error_file, the_flat_form_is_read_with_any_timestamp_or_none) {
    static const char *const cases[] = {
        "{\"message\":\"boom\",\"timestamp\":12}",
        "{\"message\":\"boom\",\"timestamp\":\"x\"}",
        "{\"message\":\"boom\",\"other\":[1,{}]}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error_file e = {0};
        cr_assert_eq(parse(cases[i], &e), 0, "%s", cases[i]);
        cr_assert_str_eq(error_file_text(&e), "boom");
        error_file_fini(&e);
    }
}

Test(error_file, a_nested_message_may_lack_either_part) {
    struct error_file e = {0};
    cr_assert_eq(parse("{\"message\":{\"message\":\"m\"}}", &e), 0);
    cr_assert_str_eq(error_file_text(&e), "m");
    error_file_fini(&e);
    cr_assert_eq(parse("{\"message\":{\"extraInfo\":{\"py_callstack\":\"t\"}}}", &e), 0);
    cr_assert_str_eq(error_file_text(&e), "t");
    error_file_fini(&e);
}

Test(error_file, a_file_without_message_is_an_outcome_of_its_own) {
    static const char *const cases[] = {"{}",
                                        "{\"foo\":1}",
                                        "[]",
                                        "1",
                                        "\"message\"",
                                        "{\"message\":1}",
                                        "{\"message\":null}",
                                        "{\"message\":{}}",
                                        "{\"message\":{\"message\":1,\"extraInfo\":2}}"};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error_file e = {0};
        cr_assert_eq(parse(cases[i], &e), -EINVAL, "%s", cases[i]);
        cr_assert_null(e.message);
    }
}

Test(error_file, what_is_no_json_is_an_outcome_too) {
    static const char *const cases[] = {"", "{", "{\"message\":\"a", "boom", "{\"message\":\"a\"} x"};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error_file e = {0};
        cr_assert_lt(parse(cases[i], &e), 0, "%s", cases[i]);
    }
    struct error_file e = {0};
    struct err err = {0};
    cr_assert_eq(error_file_parse("{\"message\":\"a\"}\0x", 17, &e, &err), -EINVAL);
}

Test(error_file, its_size_has_a_limit) {
    static const char head[] = "{\"message\":\"", tail[] = "\"}";
    char *text = xmalloc(ERROR_FILE_MAX_BYTES + 2);
    memset(text, 'x', ERROR_FILE_MAX_BYTES + 2);
    memcpy(text, head, strlen(head));
    memcpy(text + ERROR_FILE_MAX_BYTES - 2, tail, 3);
    struct error_file e = {0};
    struct err err = {0};
    cr_assert_eq(error_file_parse(text, ERROR_FILE_MAX_BYTES, &e, &err), 0, "%s", err.text);
    cr_assert_eq(strlen(e.message), ERROR_FILE_MAX_BYTES - strlen(head) - 2);
    error_file_fini(&e);
    memcpy(text + ERROR_FILE_MAX_BYTES - 2, "x\"}", 3);
    cr_assert_eq(error_file_parse(text, ERROR_FILE_MAX_BYTES + 1, &e, &err), -E2BIG);
    free(text);
}

Test(error_file, what_python_writes_for_broken_bytes_is_mended) {
    struct error_file e = {0};
    cr_assert_eq(parse("{\"message\":\"a\\udcffb\\u0000c\\ud83d\\ude00d\\uD800\\\\u0000\"}", &e), 0);
    cr_assert_str_eq(e.message, "a\xef\xbf\xbd"
                                "b\xef\xbf\xbd"
                                "c\xf0\x9f\x98\x80"
                                "d\xef\xbf\xbd\\u0000");
    error_file_fini(&e);
}

Test(error_file, the_parents_file_has_the_code_in_the_message_object) {
    static const struct {
        const char *in;
        int code;
        const char *want;
    } cases[] = {
        {"{\"message\":{\"message\":\"m\",\"extraInfo\":{\"a\":\"b\"}},\"z\":1}", -11,
         "{\"message\":{\"message\":\"m\",\"extraInfo\":{\"a\":\"b\"},\"errorCode\":-11},\"z\":1}"},
        {"{\"message\":{\"errorCode\":1,\"message\":\"m\"}}", 3, "{\"message\":{\"message\":\"m\",\"errorCode\":3}}"},
        {"{\"message\":{\"message\":\"m\"}}", 0, "{\"message\":{\"message\":\"m\"}}"},
        {"{\"message\":\"flat\",\"timestamp\":12}", 3, "{\"message\":\"flat\",\"timestamp\":12}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(strbuf_fini) struct strbuf got = {0};
        strbuf_add(&got, "old");
        cr_assert_eq(error_file_for_parent(cases[i].in, strlen(cases[i].in), cases[i].code, &got, NULL), 0);
        cr_assert_str_eq(strbuf_text(&got), cases[i].want);
    }
    _cleanup_(strbuf_fini) struct strbuf got = {0};
    cr_assert_eq(error_file_for_parent("{}", 2, 1, &got, NULL), -EINVAL);
    cr_assert_eq(error_file_for_parent("{", 1, 1, &got, NULL), -EINVAL);
}
