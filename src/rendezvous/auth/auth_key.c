#include "rendezvous/auth/auth_key.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define DIGITS (2 * (size_t)AUTH_SECRET_BYTES)
#define PREFIX_LEN (sizeof(AUTH_KEY_PREFIX) - 1)

void auth_key_to_text(const uint8_t secret[AUTH_SECRET_BYTES], char out[AUTH_KEY_TEXT_MAX]) {
    static const char digits[] = "0123456789abcdef";
    memcpy(out, AUTH_KEY_PREFIX, PREFIX_LEN);
    for (size_t i = 0; i < AUTH_SECRET_BYTES; i++) {
        out[PREFIX_LEN + 2 * i] = digits[secret[i] >> 4];
        out[PREFIX_LEN + 2 * i + 1] = digits[secret[i] & 15];
    }
    out[PREFIX_LEN + DIGITS] = '\0';
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static int digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

int auth_key_from_text(const char *text, size_t len, const char *what,
                       uint8_t ret[AUTH_SECRET_BYTES], struct err *err) {
    while (len > 0 && is_blank(text[len - 1]))
        len--;
    while (len > 0 && is_blank(*text)) {
        text++;
        len--;
    }
    if (len == 0)
        return err_set(err, -EINVAL, "%s is empty; \"muster keygen\" writes a key", what);
    if (len < PREFIX_LEN || memcmp(text, AUTH_KEY_PREFIX, PREFIX_LEN) != 0)
        return err_set(err, -EINVAL,
                       "%s is not a key of muster, which begins with \"" AUTH_KEY_PREFIX
                       "\"; \"muster keygen\" writes one",
                       what);
    text += PREFIX_LEN;
    len -= PREFIX_LEN;
    if (len < DIGITS)
        return err_set(err, -EINVAL,
                       "%s is too short for a key: it has %zu of %zu digits; copy the whole line",
                       what, len, DIGITS);
    if (len > DIGITS)
        return err_set(err, -EINVAL,
                       "%s holds more than one key: %zu bytes after its %zu digits; leave one line",
                       what, len - DIGITS, DIGITS);
    uint8_t secret[AUTH_SECRET_BYTES];
    int bad = 0;
    for (size_t i = 0; i < AUTH_SECRET_BYTES; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        bad |= high < 0 || low < 0;
        secret[i] = (uint8_t)(bad != 0 ? 0 : high << 4 | low);
    }
    if (!bad)
        memcpy(ret, secret, sizeof secret);
    explicit_bzero(secret, sizeof secret);
    return bad ? err_set(err, -EINVAL,
                         "%s is damaged: after \"" AUTH_KEY_PREFIX
                         "\" stand %zu digits, 0-9 and a-f; copy it again",
                         what, DIGITS)
               : 0;
}
