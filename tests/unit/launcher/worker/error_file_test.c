#include "launcher/worker/error_file.h"

#include "rig/unit.h"

Test(error_file, both_forms_of_record_are_read) {
    static const struct {
        const char *file, *text;
    } cases[] = {
        {"{\"message\": {\"message\": \"ValueError: bad\", \"extraInfo\": {\"py_callstack\": \"Traceback (most recent "
         "call "
         "last):\\n  File \\\"t.py\\\"\\n\", \"timestamp\": \"1700000000\"}}}",
         "Traceback (most recent call last):\n  File \"t.py\"\n"},
        {"{\"message\":{\"message\":\"m\"}}", "m"},
        {"{\"message\":{\"extraInfo\":{\"py_callstack\":\"t\"}}}", "t"},
        {"{\"message\":\"boom\",\"timestamp\":12}", "boom"},
        {"{\"message\":\"boom\",\"timestamp\":\"x\"}", "boom"},
        {"{\"message\":\"boom\",\"other\":[1,{}]}", "boom"},
        /* what Python writes for bytes that are not UTF-8 */
        {"{\"message\":\"a\\udcffb\\u0000c\\ud83d\\ude00d\\uD800\\\\u0000\"}", "a\xef\xbf\xbd"
                                                                               "b\xef\xbf\xbd"
                                                                               "c\xf0\x9f\x98\x80"
                                                                               "d\xef\xbf\xbd\\u0000"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *text = NULL;
        struct err err = {0};
        cr_assert_eq(error_file_parse(cases[i].file, strlen(cases[i].file), &text, &err), 0, "%s", err.text);
        cr_expect_str_eq(text, cases[i].text);
    }
}

Test(error_file, a_file_without_a_message_is_an_error) {
    static const char *const cases[] = {"{}", "{\"foo\":1}", "[]", "1", "\"message\"", "{\"message\":1}",
                                        "{\"message\":null}", "{\"message\":{}}",
                                        "{\"message\":{\"message\":1,\"extraInfo\":2}}",
                                        /* not JSON */
                                        "", "{", "{\"message\":\"a", "boom", "{\"message\":\"a\"} x"};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *text = NULL;
        struct err err = {0};
        int r = error_file_parse(cases[i], strlen(cases[i]), &text, &err);
        cr_expect(i < 9 ? r == -EINVAL : r < 0, "%s", cases[i]);
        cr_expect(err.text[0] != '\0' && text == NULL, "%s", cases[i]);
    }
    char *text = NULL;
    struct err err = {0};
    cr_assert_eq(error_file_parse("{\"message\":\"a\"}\0x", 17, &text, &err), -EINVAL);
}

Test(error_file, its_size_has_a_limit) {
    static const char head[] = "{\"message\":\"", tail[] = "\"}";
    _cleanup_(freep) char *file = xmalloc(ERROR_FILE_MAX_BYTES + 2), *text = NULL;
    memset(file, 'x', ERROR_FILE_MAX_BYTES + 2);
    memcpy(file, head, strlen(head));
    memcpy(file + ERROR_FILE_MAX_BYTES - 2, tail, 3);
    struct err err = {0};
    cr_assert_eq(error_file_parse(file, ERROR_FILE_MAX_BYTES, &text, &err), 0, "%s", err.text);
    cr_assert_eq(strlen(text), ERROR_FILE_MAX_BYTES - strlen(head) - 2);
    memcpy(file + ERROR_FILE_MAX_BYTES - 2, "x\"}", 3);
    free(TAKE_PTR(text));
    cr_assert_eq(error_file_parse(file, ERROR_FILE_MAX_BYTES + 1, &text, &err), -E2BIG);
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
