/* Any bytes as a key file and as what a credential of munge carries: refused with a sentence that tells nothing of
 * them, or a key, which as text reads back. */
#include <stdio.h>
#include <string.h>

#include "rendezvous/auth/auth.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_back(const uint8_t secret[AUTH_SECRET_BYTES]) {
    char text[AUTH_KEY_TEXT_MAX];
    uint8_t back[AUTH_SECRET_BYTES];
    auth_key_to_text(secret, text);
    if (auth_key_from_text(text, strlen(text), "it", back, NULL) != 0 || memcmp(back, secret, sizeof back) != 0)
        abort();
}

static void check_credential(const uint8_t *data, size_t size) {
    uint8_t secret[AUTH_SECRET_BYTES];
    char why[AUTH_WHY_MAX] = "";
    struct auth_munge_decoded d = {.uid = 7, .payload = (const char *)data, .len = size};
    int r = auth_munge_judge(&d, 7, NULL, secret, why);
    if (r == 0)
        check_back(secret);
    else if (r != AUTH_MUNGE_E_UNFIT || why[0] == '\0')
        abort();
    if (auth_munge_judge(&d, 8, NULL, secret, why) != AUTH_MUNGE_E_OTHER_USER) /* whatever it is */
        abort();
    r = auth_munge_judge(&d, 7, "night 1", secret, why);
    if (r == 0 && (size < 8 || memcmp(data + size - 8, "\nnight 1", 8) != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t secret[AUTH_SECRET_BYTES];
    struct err err = {0};
    int r = auth_key_from_text((const char *)data, size, "it", secret, &err);
    if (r == 0)
        check_back(secret);
    else if (err.code != r || strncmp(err.text, "it ", 3) != 0)
        abort();
    check_credential(data, size);
    return 0;
}
