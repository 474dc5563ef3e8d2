#include "rendezvous/auth/auth_key.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
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

/* ---- in a credential of munge ---- */

size_t auth_munge_payload(const uint8_t secret[AUTH_SECRET_BYTES], const char *run_id,
                          char out[AUTH_MUNGE_PAYLOAD_MAX]) {
    auth_key_to_text(secret, out);
    size_t at = strlen(out);
    int n = snprintf(out + at, AUTH_MUNGE_PAYLOAD_MAX - at, "\n%s", run_id);
    return MIN2(at + (size_t)n, AUTH_MUNGE_PAYLOAD_MAX - 1);
}

static _printf_(3, 4) int unfit(int outcome, char *why, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(why, AUTH_WHY_MAX, fmt, ap);
    va_end(ap);
    return outcome;
}

/* Whether there is a payload to look at. */
static int judge_code(const struct auth_munge_decoded *d, uid_t own, char *why) {
    switch (d->code) {
    case MUNGE_E_SUCCESS:
    case MUNGE_E_EXPIRED:
    case MUNGE_E_REWOUND: /* clocks of nodes differ */
    case MUNGE_E_REPLAYED: return 0;
    case MUNGE_E_SOCKET:
    case MUNGE_E_TIMEOUT: return unfit(AUTH_MUNGE_E_SILENT, why, "munged here does not answer");
    case MUNGE_E_BAD_REALM:
    case MUNGE_E_INVALID:
        return unfit(AUTH_MUNGE_E_UNFIT, why, "that node has a different munge.key");
    case MUNGE_E_UNAUTHORIZED:
        return unfit(AUTH_MUNGE_E_OTHER_USER, why,
                     "its munge credential is for another user than this one (uid %u)",
                     (unsigned)own);
    default: return unfit(AUTH_MUNGE_E_UNFIT, why, "munge reports: %s", d->text);
    }
}

int auth_munge_judge(const struct auth_munge_decoded *d, uid_t own, const char *run_id,
                     uint8_t ret[AUTH_SECRET_BYTES], char why[AUTH_WHY_MAX]) {
    int r = judge_code(d, own, why);
    if (r != 0)
        return r;
    if (d->uid != own)
        return unfit(AUTH_MUNGE_E_OTHER_USER, why,
                     "its munge credential was made by another user (uid %u)", (unsigned)d->uid);
    const char *end = d->payload != NULL ? memchr(d->payload, '\n', d->len) : NULL;
    uint8_t secret[AUTH_SECRET_BYTES];
    if (end == NULL ||
        auth_key_from_text(d->payload, (size_t)(end - d->payload), "it", secret, NULL) < 0)
        return unfit(AUTH_MUNGE_E_UNFIT, why, "its munge credential holds no key of muster's");
    size_t len = d->len - (size_t)(end + 1 - d->payload);
    bool fits = run_id == NULL || (strlen(run_id) == len && memcmp(run_id, end + 1, len) == 0);
    if (fits)
        memcpy(ret, secret, sizeof secret);
    explicit_bzero(secret, sizeof secret);
    if (!fits)
        return unfit(AUTH_MUNGE_E_OTHER_RUN, why, "the agent there is of the job '%.*s'",
                     (int)MIN2(len, (size_t)AUTH_RUN_ID_MAX), end + 1);
    return 0;
}
