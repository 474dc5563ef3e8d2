#include "base/text/parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>

int parse_u64(const char *s, uint64_t *ret) {
    if (*s == '\0')
        return -EINVAL;
    uint64_t v = 0;
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9')
            return -EINVAL;
        uint64_t digit = (uint64_t)(*s - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return -ERANGE;
        v = v * 10 + digit;
    }
    *ret = v;
    return 0;
}

static int parse_up_to(const char *s, uint64_t max, uint64_t *ret) {
    int r = parse_u64(s, ret);
    return r == 0 && *ret > max ? -ERANGE : r;
}

int parse_u32(const char *s, uint32_t *ret) {
    uint64_t v;
    int r = parse_up_to(s, UINT32_MAX, &v);
    if (r == 0)
        *ret = (uint32_t)v;
    return r;
}

int parse_i32(const char *s, int32_t *ret) {
    bool negative = *s == '-';
    uint64_t v;
    int r = parse_up_to(s + (negative || *s == '+' ? 1 : 0),
                        (uint64_t)INT32_MAX + (negative ? 1 : 0), &v);
    if (r == 0)
        *ret = (int32_t)(negative ? -(int64_t)v : (int64_t)v);
    return r;
}

int parse_port(const char *s, uint16_t *ret) {
    uint64_t v;
    int r = parse_up_to(s, UINT16_MAX, &v);
    if (r == 0)
        *ret = (uint16_t)v;
    return r;
}

int parse_double(const char *s, double *ret) {
    if (!isdigit((unsigned char)*s) && *s != '.')
        return -EINVAL;
    for (const char *p = s; *p != '\0'; p++)
        if (!isdigit((unsigned char)*p) && strchr(".eE+-", *p) == NULL)
            return -EINVAL;
    char *end;
    double v = strtod(s, &end);
    if (*end != '\0' || end == s)
        return -EINVAL;
    if (!isfinite(v))
        return -ERANGE;
    *ret = v;
    return 0;
}

static int seconds_to_ns(double v, uint64_t *ret_ns) {
    if (v > 1e9) /* 31 years: so sums of deadlines stay far from overflow */
        return -ERANGE;
    *ret_ns = (uint64_t)(v * 1e9);
    return 0;
}

int parse_seconds_ns(const char *s, uint64_t *ret_ns) {
    double v;
    int r = parse_double(s, &v);
    return r < 0 ? r : seconds_to_ns(v, ret_ns);
}

#define NUMBER_MAX 64

/* A number without the blanks around it and the "_" between digits. -EINVAL: a "_" elsewhere. */
static int plain_number(const char *s, char out[NUMBER_MAX]) {
    size_t n = 0, len;
    while (isspace((unsigned char)*s))
        s++;
    len = strlen(s);
    while (len > 0 && isspace((unsigned char)s[len - 1]))
        len--;
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '_') {
            if (i == 0 || !isdigit((unsigned char)s[i - 1]) || !isdigit((unsigned char)s[i + 1]))
                return -EINVAL;
            continue;
        }
        if (n == NUMBER_MAX - 1)
            return -ERANGE;
        out[n++] = s[i];
    }
    out[n] = '\0';
    return 0;
}

int parse_python_u32(const char *s, uint32_t *ret) {
    char plain[NUMBER_MAX];
    int r = plain_number(s, plain);
    return r < 0 ? r : parse_u32(plain, ret);
}

int parse_python_i32(const char *s, int32_t *ret) {
    char plain[NUMBER_MAX];
    int r = plain_number(s, plain);
    return r < 0 ? r : parse_i32(plain, ret);
}

int parse_python_double(const char *s, double *ret) {
    char plain[NUMBER_MAX];
    int r = plain_number(s, plain);
    return r < 0 ? r : parse_double(plain + (plain[0] == '+'), ret);
}

int parse_python_seconds_ns(const char *s, uint64_t *ret_ns) {
    double v;
    int r = parse_python_double(s, &v);
    return r < 0 ? r : seconds_to_ns(v, ret_ns);
}

int parse_bool(const char *s, bool *ret) {
    static const char *const yes[] = {"1", "true", "t", "yes", "y"};
    static const char *const no[] = {"0", "false", "f", "no", "n"};
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
        if (strcasecmp(s, yes[i]) == 0 || strcasecmp(s, no[i]) == 0) {
            *ret = strcasecmp(s, yes[i]) == 0;
            return 0;
        }
    }
    return -EINVAL;
}

int hex_digit(char c) {
    char lower = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool text_begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

bool text_ends(const char *text, const char *with) {
    size_t n = strlen(text), m = strlen(with);
    return n >= m && strcmp(text + n - m, with) == 0;
}

const char *text_next_line(const char *line) {
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

size_t text_word(const char **at) {
    *at += strspn(*at, " \t\r\f\v");
    return strcspn(*at, " \t\r\f\v\n#");
}

const char *list_item(const char *list, size_t index, size_t *ret_len) {
    for (; index > 0; index--) {
        list = strchr(list, ',');
        if (list == NULL)
            return NULL;
        list++;
    }
    while (isspace((unsigned char)*list))
        list++;
    size_t n = strcspn(list, ",");
    while (n > 0 && isspace((unsigned char)list[n - 1]))
        n--;
    *ret_len = n;
    return list;
}

int natural_compare(const char *a, const char *b) {
    while (*a != '\0' && *b != '\0') {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            const char *za = a, *zb = b;
            while (*a == '0')
                a++;
            while (*b == '0')
                b++;
            size_t na = strspn(a, "0123456789"), nb = strspn(b, "0123456789");
            if (na != nb)
                return na < nb ? -1 : 1;
            int c = strncmp(a, b, na);
            if (c != 0)
                return c;
            if (a - za != b - zb)
                return a - za < b - zb ? -1 : 1;
            a += na;
            b += nb;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return (int)(unsigned char)*a - (int)(unsigned char)*b;
}

/* ---- lists of ports ---- */

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
