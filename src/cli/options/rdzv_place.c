#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/text/parse.h"
#include "cli/options/rdzv_text.h"
#include "launcher/job/job.h"

void rdzv_place_fini(struct rdzv_place *place) {
    free(place->host);
    free(place->dir);
    words_free(place->etcd_endpoints);
    free(place->etcd_prefix);
    free(place->user);
    free(place->password);
    *place = (struct rdzv_place)RDZV_PLACE_INIT;
}

static const struct scheme {
    const char *text; /* with its colon */
    bool tls;
    bool only_known; /* accepted only if it is known that etcd is meant */
} etcd_schemes[] = {
    {"etcd:", false, false},      {"etcds:", true, false}, {"etcd+http:", false, false},
    {"etcd+https:", true, false}, {"http:", false, true},  {"https:", true, true},
};

/* Whether the text, or a list's first item, is a port: then a host is before it, no scheme. */
static bool is_port(const char *s) {
    size_t n = strspn(s, "0123456789");
    return n > 0 && n <= 5 && (s[n] == '\0' || s[n] == ',');
}

/* The number of bytes of the scheme and its slashes; 0: there is none. */
static size_t etcd_scheme(const char *s, bool known, bool *ret_tls) {
    for (size_t i = 0; i < ARRAY_SIZE(etcd_schemes); i++) {
        const struct scheme *scheme = &etcd_schemes[i];
        size_t n = strlen(scheme->text);
        if (!text_begins(s, scheme->text) || (scheme->only_known && !known) || is_port(s + n))
            continue;
        *ret_tls = scheme->tls;
        return n + (text_begins(s + n, "//") ? 2 : 0);
    }
    return 0;
}

static size_t after_scheme(const char *s) {
    const char *slashes = strstr(s, "://");
    bool tls;
    return slashes != NULL ? (size_t)(slashes - s) + 3 : etcd_scheme(s, true, &tls);
}

/* The '@' at the end of USER:PASSWORD, or NULL. `s` begins after the scheme. */
static const char *user_end(const char *s) {
    size_t n = strcspn(s, "/");
    return memrchr(s, '@', n);
}

char *rdzv_place_shown(const char *text) {
    const char *s = text + strspn(text, " \t\r\n");
    s += after_scheme(s);
    const char *at = user_end(s);
    const char *colon = at != NULL ? memchr(s, ':', (size_t)(at - s)) : NULL;
    if (colon == NULL)
        return xstrdup(text);
    return xasprintf("%.*s:***%s", (int)(colon - text), text, at);
}

static int bad(struct err *err, const char *text, const char *why) {
    _cleanup_(freep) char *shown = rdzv_place_shown(text);
    return err_set(err, -EINVAL, "endpoint \"%.200s\": %s", shown, why);
}

static bool has_control(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return true;
    return false;
}

/* "%40" to '@'. NULL: it is not correctly encoded, or would be empty or contain a NUL. */
static char *percent_decoded(const char *s, size_t n) {
    _cleanup_(freep) char *out = xmalloc(n + 1);
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '%') {
            if (i + 2 >= n || hex_digit(s[i + 1]) < 0 || hex_digit(s[i + 2]) < 0)
                return NULL;
            c = (char)(hex_digit(s[i + 1]) * 16 + hex_digit(s[i + 2]));
            i += 2;
        }
        if (c == '\0')
            return NULL;
        out[len++] = c;
    }
    out[len] = '\0';
    return len > 0 ? TAKE_PTR(out) : NULL;
}

char *rdzv_prefix_normal(const char *text, size_t n) {
    while (n > 0 && text[n - 1] == '/')
        n--;
    if (n > RDZV_PATH_MAX || has_control(text, n) || memchr(text, '?', n) != NULL ||
        memchr(text, '#', n) != NULL)
        return NULL;
    return xasprintf("%s%.*s", n > 0 && text[0] != '/' ? "/" : "", (int)n, text);
}

static int read_user(const char *s, size_t n, struct rdzv_place *place) {
    const char *colon = memchr(s, ':', n);
    size_t n_user = colon != NULL ? (size_t)(colon - s) : n;
    place->user = percent_decoded(s, n_user);
    if (colon != NULL)
        place->password = percent_decoded(colon + 1, n - n_user - 1);
    return place->user != NULL && (colon == NULL || place->password != NULL) ? 0 : -EINVAL;
}

static int read_hosts(const char *all, const char *s, size_t n, struct rdzv_place *place,
                      struct err *err) {
    size_t n_hosts = 0;
    place->etcd_endpoints = xcalloc(JOB_ETCD_ENDPOINTS_MAX + 1, sizeof(char *));
    for (size_t at = 0; at <= n; n_hosts++) {
        const char *comma = at < n ? memchr(s + at, ',', n - at) : NULL;
        size_t len = comma != NULL ? (size_t)(comma - s) - at : n - at;
        _cleanup_(freep) char *item = xstrndup(s + at, len), *host = NULL;
        int32_t port = -1;
        if (n_hosts == JOB_ETCD_ENDPOINTS_MAX)
            return bad(err, all, "at most 16 hosts of etcd can be named");
        struct err why = {0};
        int r = rdzv_endpoint_parse(item, &host, &port, &why);
        if (r == -ENODATA)
            return bad(err, all, "a host of etcd is missing; write etcd://HOST:PORT,HOST:PORT");
        if (r < 0 || port == 0)
            return bad(err, all,
                       r < 0 ? "each host of etcd must be a name, an IPv4 address, or an IPv6 "
                               "address in brackets, and its port a number up to 65535"
                             : "etcd has no port 0");
        bool v6 = strchr(host, ':') != NULL;
        place->etcd_endpoints[n_hosts] = xasprintf("%s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "",
                                                   port > 0 ? port : RDZV_ETCD_PORT);
        at += len + 1;
    }
    return 0;
}

static int read_etcd(const char *text, bool tls, size_t skip, struct rdzv_place *place,
                     struct err *err) {
    const char *s = text + skip;
    const char *at = user_end(s);
    place->backend = JOB_BACKEND_ETCD;
    place->etcd_tls = tls;
    if (at != NULL && read_user(s, (size_t)(at - s), place) < 0)
        return bad(err, text,
                   "before the @ must be USER or USER:PASSWORD, with % and two digits for "
                   "characters like / and @ (%2F, %40)");
    s = at != NULL ? at + 1 : s;
    size_t n = strcspn(s, "/");
    int r = read_hosts(text, s, n, place, err);
    if (r < 0)
        return r;
    if (strspn(s + n, "/") == strlen(s + n))
        return 0;
    place->etcd_prefix = rdzv_prefix_normal(s + n, strlen(s + n));
    if (place->etcd_prefix == NULL)
        return bad(err, text,
                   "what follows the hosts is the prefix of all keys: no ? or #, no control "
                   "characters, at most 3000 bytes");
    return 0;
}

static int read_dir(const char *text, const char *path, struct rdzv_place *place, struct err *err) {
    if (text_begins(path, "//"))
        path += strspn(path, "/") - 1;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n == 0)
        return bad(err, text, "no directory is named; write dir:/PATH");
    if (n > RDZV_PATH_MAX || has_control(path, n))
        return bad(err, text,
                   "a directory's name must have no control characters and at most 3000 bytes");
    place->backend = JOB_BACKEND_DIR;
    place->dir = xstrndup(path, n);
    return 0;
}

static int read_host(const char *text, struct rdzv_place *place, struct err *err) {
    if (strstr(text, "://") != NULL || strchr(text, '@') != NULL)
        return bad(err, text,
                   "must be HOST:PORT, dir:/PATH, etcd://HOST:PORT or etcds://HOST:PORT");
    place->backend = JOB_BACKEND_C10D;
    return rdzv_endpoint_parse(text, &place->host, &place->port, err);
}

static int read_place(enum job_backend known, const char *text, struct rdzv_place *place,
                      struct err *err) {
    bool tls = false;
    size_t skip = known != JOB_BACKEND_DIR ? etcd_scheme(text, known == JOB_BACKEND_ETCD, &tls) : 0;
    if (skip > 0 || known == JOB_BACKEND_ETCD) {
        if (skip == 0 && (strstr(text, "://") != NULL || text[0] == '/'))
            return bad(err, text,
                       "must be HOST:PORT of etcd, or etcd://HOST:PORT,HOST:PORT/PREFIX");
        return read_etcd(text, tls, skip, place, err);
    }
    bool named = text_begins(text, "dir:") && (known == JOB_BACKEND_DIR || !is_port(text + 4));
    if (named || known == JOB_BACKEND_DIR || text[0] == '/')
        return read_dir(text, text + (named ? 4 : 0), place, err);
    return read_host(text, place, err);
}

int rdzv_place_parse_as(enum job_backend backend, const char *text, struct rdzv_place *ret,
                        struct err *err) {
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    if (n == 0)
        return -ENODATA;
    _cleanup_(freep) char *all = xstrndup(text, n);
    _cleanup_(rdzv_place_fini) struct rdzv_place place = RDZV_PLACE_INIT;
    int r = read_place(backend, all, &place, err);
    if (r < 0)
        return r;
    *ret = place;
    place = (struct rdzv_place)RDZV_PLACE_INIT;
    return 0;
}

int rdzv_place_parse(const char *text, struct rdzv_place *ret, struct err *err) {
    return rdzv_place_parse_as(JOB_BACKEND_C10D, text, ret, err);
}

void rdzv_place_absolute(struct rdzv_place *place, const char *cwd) {
    if (place->backend != JOB_BACKEND_DIR || place->dir[0] == '/')
        return;
    const char *path = place->dir;
    while (text_begins(path, "./"))
        path += 1 + strspn(path + 1, "/");
    bool here = path[0] == '\0' || strcmp(path, ".") == 0;
    size_t n = strlen(cwd);
    while (n > 0 && cwd[n - 1] == '/')
        n--;
    char *whole =
        here ? xasprintf("%.*s", n > 0 ? (int)n : 1, cwd) : xasprintf("%.*s/%s", (int)n, cwd, path);
    free(place->dir);
    place->dir = whole;
}
