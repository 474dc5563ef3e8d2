#include "rendezvous/auth/auth.h"

#include "rig/unit.h"

static const uint8_t secret[AUTH_SECRET_BYTES] = {0, 1, 0x7f, 0x80, 0xff, [31] = 0xa5};
#define TEXT "muster-key-1:00017f80ff0000000000000000000000000000000000000000000000000000a5"

static int read_text(const char *text, uint8_t ret[AUTH_SECRET_BYTES], struct err *err) {
    return auth_key_from_text(text, strlen(text), "the key file '/k'", ret, err);
}

Test(auth_key, is_one_line) {
    char text[AUTH_KEY_TEXT_MAX];
    uint8_t back[AUTH_SECRET_BYTES];
    auth_key_to_text(secret, text);
    cr_assert_str_eq(text, TEXT);
    cr_assert_eq(strlen(text), sizeof text - 1);
    cr_assert_eq(read_text(text, back, NULL), 0);
    cr_assert_arr_eq(back, secret, sizeof secret);
    cr_assert_eq(read_text(" \n" TEXT "\r\n\n", back, NULL), 0, "blanks around it do not count");
}

Test(auth_key, a_bad_one_is_said_to_be_so_and_not_told) {
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "the key file '/k' is empty; \"muster keygen\" writes a key"},
        {" \n\n", "the key file '/k' is empty; \"muster keygen\" writes a key"},
        {"-----BEGIN OPENSSH PRIVATE KEY-----",
         "the key file '/k' is not a key of muster, which begins with \"muster-key-1:\"; \"muster keygen\" writes one"},
        {"muster-key-2:00",
         "the key file '/k' is not a key of muster, which begins with \"muster-key-1:\"; \"muster keygen\" writes one"},
        {"muster-key-1",
         "the key file '/k' is not a key of muster, which begins with \"muster-key-1:\"; \"muster keygen\" writes one"},
        {"muster-key-1:", "the key file '/k' is too short for a key: it has 0 of 64 digits; copy the whole line"},
        {"muster-key-1:00017f80",
         "the key file '/k' is too short for a key: it has 8 of 64 digits; copy the whole line"},
        {TEXT "\n" TEXT, "the key file '/k' holds more than one key: 78 bytes after its 64 digits; leave one line"},
        {"muster-key-1:00017f80fg0000000000000000000000000000000000000000000000000000a5",
         "the key file '/k' is damaged: after \"muster-key-1:\" stand 64 digits, 0-9 and a-f; copy it again"},
        {"muster-key-1:00017F80FF0000000000000000000000000000000000000000000000000000A5",
         "the key file '/k' is damaged: after \"muster-key-1:\" stand 64 digits, 0-9 and a-f; copy it again"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = {0};
        uint8_t back[AUTH_SECRET_BYTES] = {7};
        cr_assert_eq(read_text(bad[i].text, back, &err), -EINVAL, "%s", bad[i].text);
        cr_assert_str_eq(err.text, bad[i].why);
        cr_assert_eq(back[0], 7, "nothing is written then");
    }
}
