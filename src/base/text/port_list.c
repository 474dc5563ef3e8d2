#include "base/text/port_list.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/text/parse.h"

#define PORT_DIGITS_MAX 5

/* One port of n characters, and not 0. */
static int parse_one(const char *s, size_t n, uint16_t *ret) {
    char text[PORT_DIGITS_MAX + 1];
    if (n == 0 || n > PORT_DIGITS_MAX)
        return -EINVAL;
    memcpy(text, s, n);
    text[n] = '\0';
    return parse_port(text, ret) < 0 || *ret == 0 ? -EINVAL : 0;
}

/* PORT or LOW-HIGH, of n characters. */
static int parse_item(const char *s, size_t n, uint16_t *ret_low, uint16_t *ret_high) {
    const char *dash = memchr(s, '-', n);
    size_t n_low = dash != NULL ? (size_t)(dash - s) : n;
    if (parse_one(s, n_low, ret_low) < 0)
        return -EINVAL;
    *ret_high = *ret_low;
    if (dash != NULL && parse_one(dash + 1, n - n_low - 1, ret_high) < 0)
        return -EINVAL;
    return *ret_high < *ret_low ? -EINVAL : 0;
}

static bool is_among(const uint16_t *ports, unsigned n, uint32_t port) {
    for (unsigned i = 0; i < n; i++)
        if (ports[i] == port)
            return true;
    return false;
}

int port_list_parse(const char *text, unsigned max, uint16_t *ret, unsigned *ret_n) {
    _cleanup_(freep) uint16_t *ports = xcalloc(max, sizeof *ports);
    unsigned n = 0;
    for (const char *at = text; at != NULL;) {
        size_t len = strcspn(at, ",");
        uint16_t low, high;
        int r = parse_item(at, len, &low, &high);
        if (r < 0)
            return r;
        for (uint32_t port = low; port <= high; port++) {
            if (is_among(ports, n, port))
                return -EEXIST;
            if (n == max)
                return -E2BIG;
            ports[n++] = (uint16_t)port;
        }
        at = at[len] == ',' ? at + len + 1 : NULL;
    }
    memcpy(ret, ports, n * sizeof *ret);
    *ret_n = n;
    return 0;
}

void port_list_text(const uint16_t *ports, unsigned n, struct strbuf *out) {
    for (unsigned i = 0; i < n;) {
        unsigned last = i;
        while (last + 1 < n && ports[last + 1] == ports[last] + 1)
            last++;
        if (last < i + 2)
            last = i;
        strbuf_printf(out, "%s%u", i > 0 ? "," : "", ports[i]);
        if (last > i)
            strbuf_printf(out, "-%u", ports[last]);
        i = last + 1;
    }
}
