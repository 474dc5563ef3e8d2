#include "base/text/base64.h"

#include "base/prng.h"
#include "rig/unit.h"

/* RFC 4648 §10. */
static const char *const pairs[][2] = {
    {"", ""},
    {"f", "Zg=="},
    {"fo", "Zm8="},
    {"foo", "Zm9v"},
    {"foob", "Zm9vYg=="},
    {"fooba", "Zm9vYmE="},
    {"foobar", "Zm9vYmFy"},
    {"\xff\xfe", "//4="},
    {"\xfb\xef\xbe", "++++"},
};

Test(base64, agrees_with_the_standard_both_ways) {
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        _cleanup_(strbuf_fini) struct strbuf out = {0};
        uint8_t back[16];
        size_t n = 99;
        base64_encode(pairs[i][0], strlen(pairs[i][0]), &out);
        cr_assert_str_eq(strbuf_text(&out), pairs[i][1]);
        cr_assert_eq(base64_decode(pairs[i][1], strlen(pairs[i][1]), back, &n), 0);
        cr_assert_eq(n, strlen(pairs[i][0]));
        cr_assert_arr_eq(back, pairs[i][0], n);
    }
}

Test(base64, refuses_what_is_not_base64) {
    static const char *const bad[] = {
        "Z", "Zg", "Zg=", "Zm9v\n", "Zg==Zg==", "Zh==", "Zm9=", "====", "=g==", "Z===", "Z=g=", "Zm-v", "Zm v", "Zg=a"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        uint8_t back[16];
        size_t n;
        cr_expect_eq(base64_decode(bad[i], strlen(bad[i]), back, &n), -EINVAL, "'%s'", bad[i]);
    }
}

Test(base64, any_bytes_come_back) {
    struct prng rng = {.state = 4648};
    for (size_t len = 0; len < 300; len++) {
        uint8_t data[300], *back = xmalloc(BASE64_BYTES_MAX(400));
        for (size_t i = 0; i < len; i++)
            data[i] = (uint8_t)prng_next(&rng);
        _cleanup_(strbuf_fini) struct strbuf out = {0};
        base64_encode(data, len, &out);
        size_t n;
        cr_assert_eq(out.len, (len + 2) / 3 * 4);
        cr_assert_leq(len, BASE64_BYTES_MAX(out.len));
        cr_assert_eq(base64_decode(strbuf_text(&out), out.len, back, &n), 0);
        cr_assert_eq(n, len);
        cr_assert_eq(memcmp(back, data, len), 0);
        free(back);
    }
}
