#include "launcher/hosts/words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/text/parse.h"
#include "base/text/utf8.h"

/* The longest: eight groups of four digits, with a zone ("%eth0", at most 15 bytes). */
#define ADDRESS_MAX 56u

size_t words_span(const char *text, const char *stops) {
    bool inside = false;
    size_t n = 0;
    for (; text[n] != '\0' && (inside || strchr(stops, text[n]) == NULL); n++)
        inside = text[n] == '[' || (inside && text[n] != ']');
    return n;
}

/* Whether a text is "[", something with a colon, "]". */
static bool is_address(const char *text, size_t len) {
    return len > 2 && text[0] == '[' && memchr(text, ']', len) == text + len - 1 &&
           memchr(text, ':', len) != NULL;
}

/* Hexadecimal groups with colons, perhaps an IPv4 address at the end, perhaps a zone. Whether it is
 * an address is for ssh to say. */
static bool looks_like_address(const char *text) {
    size_t n = strspn(text, "0123456789abcdefABCDEF:.");
    const char *zone = text + n;
    if (*zone == '%' && zone[1] != '\0')
        zone += 1 + strspn(zone + 1, "0123456789abcdefghijklmnopqrstuvwxyz"
                                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_.");
    size_t colon = strcspn(text, ":");
    return *zone == '\0' && colon < n && memchr(text + colon + 1, ':', n - colon - 1) != NULL;
}

static int read_address(const char *text, size_t len, struct hostlist *ret, struct err *err) {
    _cleanup_(freep) char *address = xstrndup(text + 1, len - 2);
    if (len - 2 > ADDRESS_MAX || !looks_like_address(address)) {
        utf8_clean(address, false);
        return err_set(err, -EINVAL, "\"[%.80s]\" is not an IPv6 address", address);
    }
    *ret = (struct hostlist){.names = xcalloc(1, sizeof *ret->names), .text = address, .n = 1};
    ret->names[0] = TAKE_PTR(address);
    return 0;
}

int words_names(const char *text, size_t len, struct hostlist *ret, struct err *err) {
    if (is_address(text, len))
        return read_address(text, len, ret, err);
    _cleanup_(freep) char *list = xstrndup(text, len);
    return hostlist_expand(list, ret, err);
}

int words_number(const char *text, size_t len, const char *what, uint32_t least, uint32_t most,
                 uint32_t *ret, struct err *err) {
    _cleanup_(freep) char *number = xstrndup(text, len);
    uint32_t v = 0;
    int r = parse_u32(number, &v);
    if (r == 0 && v >= least && v <= most) {
        *ret = v;
        return 0;
    }
    utf8_clean(number, false);
    return err_set(err, r == -ERANGE || v > most ? -ERANGE : -EINVAL,
                   "%s must be a number from %" PRIu32 " to %" PRIu32 ", not \"%.40s\"", what,
                   least, most, number);
}
