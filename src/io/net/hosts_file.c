#include "io/net/hosts_file.h"

#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/file.h"

#define CONF_MAX ((size_t)64 << 10)
#define HOSTS_MAX ((size_t)256 << 10)
#define NSCD "/var/run/nscd/socket" /* the daemon of names, which may hang */
#define BLANKS " \t\r"

/* ---- lines and words ---- */

/* The next word of a line. Returns its length; 0: the line, or what is not a comment of it, is
 * over. */
static size_t next_word(const char **at) {
    *at += strspn(*at, BLANKS);
    return **at == '#' ? 0 : strcspn(*at, BLANKS "\n#");
}

static bool is_word(const char *at, size_t n, const char *word) {
    return n == strlen(word) && strncasecmp(at, word, n) == 0;
}

static const char *next_line(const char *at) {
    at += strcspn(at, "\n");
    return at + (*at == '\n');
}

/* What follows in the first line that begins with this word; NULL: there is none. */
static const char *after_word(const char *text, const char *word) {
    for (const char *line = text; *line != '\0'; line = next_line(line)) {
        const char *at = line;
        size_t n = next_word(&at);
        if (is_word(at, n, word))
            return at + n;
    }
    return NULL;
}

/* The text of a file of /etc, or an empty one. */
static char *read_conf(const char *etc, const char *name, size_t max) {
    _cleanup_(freep) char *path = xasprintf("%s/%s", etc, name);
    char *text = NULL;
    size_t len;
    return file_read_text(path, max, &text, &len) == 0 ? text : xstrdup("");
}

/* ---- who is asked ---- */

/* "hosts: files dns": the answer of the file is final. In "hosts: files [SUCCESS=merge] dns" it is
 * not all of it. */
static bool file_is_first(const char *etc) {
    _cleanup_(freep) char *text = read_conf(etc, "nsswitch.conf", CONF_MAX);
    const char *at = after_word(text, "hosts:");
    size_t n = at != NULL ? next_word(&at) : 0;
    if (!is_word(at, n, "files"))
        return false;
    at += n;
    return next_word(&at) == 0 || *at != '[';
}

static bool all_lines_count(const char *etc) {
    _cleanup_(freep) char *text = read_conf(etc, "host.conf", CONF_MAX);
    const char *at = after_word(text, "multi");
    size_t n = at != NULL ? next_word(&at) : 0;
    return is_word(at, n, "on");
}

static bool has_own_order(const char *etc) {
    _cleanup_(freep) char *text = read_conf(etc, "gai.conf", CONF_MAX);
    return after_word(text, "precedence") != NULL || after_word(text, "label") != NULL ||
           after_word(text, "scopev4") != NULL;
}

/* ---- the file ---- */

static bool names_it(const char *at, const char *name) {
    for (size_t n; (n = next_word(&at)) > 0; at += n)
        if (is_word(at, n, name))
            return true;
    return false;
}

/* False: there are too many. */
static bool add_line(const char *line, const char *name, uint16_t port,
                     struct addr ret[HOSTS_FILE_ADDRS_MAX], size_t *n_ret, size_t *n_lines) {
    char text[ADDR_TEXT_MAX];
    struct addr a;
    const char *at = line;
    size_t n = next_word(&at);
    if (n == 0 || n >= sizeof text || !names_it(at + n, name))
        return true;
    memcpy(text, at, n);
    text[n] = '\0';
    if (text[0] == '[' || addr_from_literal(text, port, &a) < 0)
        return true;
    ++*n_lines;
    for (size_t i = 0; i < *n_ret; i++)
        if (addr_same_host(&ret[i], &a))
            return true;
    if (*n_ret == HOSTS_FILE_ADDRS_MAX)
        return false;
    ret[(*n_ret)++] = a;
    return true;
}

/* ---- the order of one address of each family ---- */

enum kind { KIND_ELSE, KIND_LOCAL, KIND_GLOBAL };

/* Those of RFC 6724's table whose precedence is above that of IPv4: unique local addresses, and
 * global ones that are not tunnels (2002::/16, 2001::/32). */
static enum kind kind_of(const struct in6_addr *a) {
    const uint8_t *b = a->s6_addr;
    bool tunnel = b[0] == 0x20 && (b[1] == 0x02 || (b[1] == 0x01 && b[2] == 0 && b[3] == 0));
    if ((b[0] & 0xfe) == 0xfc)
        return KIND_LOCAL;
    return (b[0] & 0xe0) == 0x20 && !tunnel ? KIND_GLOBAL : KIND_ELSE;
}

static void swap(struct addr a[2]) {
    struct addr first = a[0];
    a[0] = a[1];
    a[1] = first;
}

/* IPv6 first, if it has a route. False: it depends on more than this. */
static bool put_in_order(struct addr a[2]) {
    struct addr from4, from6;
    if (a[0].ss.ss_family == a[1].ss.ss_family)
        return false;
    if (a[0].ss.ss_family == AF_INET)
        swap(a);
    enum kind kind = kind_of(&((const struct sockaddr_in6 *)&a[0].ss)->sin6_addr);
    bool has4 = addr_has_route(&a[1], &from4), has6 = addr_has_route(&a[0], &from6);
    if (kind == KIND_ELSE || (!has4 && !has6))
        return false;
    if (has4 && !has6)
        swap(a);
    else if (has4 && kind_of(&((const struct sockaddr_in6 *)&from6.ss)->sin6_addr) != kind)
        return false;
    return true;
}

bool hosts_file_find(const char *etc, const char *name, uint16_t port,
                     struct addr ret[HOSTS_FILE_ADDRS_MAX], size_t *ret_n) {
    size_t n = 0, n_lines = 0;
    if (name[0] == '\0' || name[strlen(name) - 1] == '.' || access(NSCD, F_OK) == 0 ||
        !file_is_first(etc))
        return false;
    _cleanup_(freep) char *text = read_conf(etc, "hosts", HOSTS_MAX);
    for (const char *line = text; *line != '\0'; line = next_line(line))
        if (!add_line(line, name, port, ret, &n, &n_lines))
            return false;
    *ret_n = n;
    if (n == 0 || (n_lines > 1 && !all_lines_count(etc)))
        return false;
    return n == 1 || (!has_own_order(etc) && put_in_order(ret));
}
