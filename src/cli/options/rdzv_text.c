#include "cli/options/rdzv_text.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/text/parse.h"
#include "cli/options/options.h"

static char *trimmed(const char *s, size_t n) {
    while (n > 0 && isspace((unsigned char)*s)) {
        s++;
        n--;
    }
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    return xstrndup(s, n);
}

static bool is_host_name(const char *s) {
    if (*s == '\0')
        return false;
    for (; *s != '\0'; s++)
        if (!isalnum((unsigned char)*s) && strchr("_.:%-", *s) == NULL && (unsigned char)*s < 128)
            return false;
    return true;
}

/* The last colon if a port follows it, or NULL. torchrun splits at the last colon, even "::1" into
 * ":" and 1. If the rest would end in a colon, the whole text is an address. */
static const char *port_colon(const char *s, size_t n) {
    const char *colon = strrchr(s, ':');
    if (colon == NULL || (s[0] == '[' && s[n - 1] == ']'))
        return NULL;
    return colon > s && colon[-1] == ':' ? NULL : colon;
}

/* The host of n characters at the beginning of the endpoint, without brackets. */
static int read_endpoint_host(const char *all, size_t n, char **ret_host, struct err *err) {
    bool bracketed = n > 1 && all[0] == '[' && all[n - 1] == ']';
    _cleanup_(freep) char *host = xstrndup(all + bracketed, n - (bracketed ? 2 : 0));
    if (!is_host_name(host))
        return err_set(err, -EINVAL,
                       "endpoint \"%s\": the host must be a name, an IPv4 address, or an IPv6 "
                       "address in brackets",
                       all);
    *ret_host = TAKE_PTR(host);
    return 0;
}

/* What follows the colon: a list has a comma or a dash, and no IPv6 address before it that lacks
 * brackets. */
static int read_ports(const char *all, const char *colon, struct rdzv_ports *ret, struct err *err) {
    const char *text = colon + 1;
    const bool is_list = isdigit((unsigned char)text[0]) && strpbrk(text, ",-") != NULL &&
                         (all[0] == '[' || strchr(all, ':') == colon);
    int r = is_list            ? port_list_parse(text, ARRAY_SIZE(ret->list), ret->list, &ret->n)
            : strlen(text) > 5 ? -EINVAL
                               : parse_port(text, &ret->list[0]);
    if (!is_list)
        ret->n = 1;
    if (r == 0)
        return 0;
    return err_set(err, -EINVAL, "endpoint \"%s\": %s", all,
                   r == -E2BIG    ? "at most 16 ports"
                   : r == -EEXIST ? "a port is named twice"
                   : is_list      ? "the ports must be numbers from 1 to 65535, or LOW-HIGH, with "
                                    "commas between them"
                                  : "the port must be a number up to 65535");
}

int rdzv_endpoint_parse(const char *text, char **ret_host, struct rdzv_ports *ret_ports,
                        struct err *err) {
    _cleanup_(freep) char *all = trimmed(text, strlen(text));
    struct rdzv_ports ports = {.n = 0};
    size_t n = strlen(all);
    if (n == 0)
        return -ENODATA;
    const char *colon = port_colon(all, n);
    int r = colon != NULL ? read_ports(all, colon, &ports, err) : 0;
    if (r == 0)
        r = read_endpoint_host(all, colon != NULL ? (size_t)(colon - all) : n, ret_host, err);
    if (r == 0)
        *ret_ports = ports;
    return r;
}

/* ---- places ---- */

void rdzv_place_fini(struct rdzv_place *place) {
    free(place->host);
    free(place->dir);
    words_free(place->etcd_endpoints);
    free(place->etcd_prefix);
    free(place->user);
    free(place->password);
    *place = (struct rdzv_place){0};
}

static const struct scheme {
    const char *text; /* with its colon */
    bool tls;
    bool only_known; /* accepted only if it is known that etcd is meant */
} etcd_schemes[] = {
    {"etcd:", false, false},      {"etcds:", true, false}, {"etcd+http:", false, false},
    {"etcd+https:", true, false}, {"http:", false, true},  {"https:", true, true},
};

/* Whether the text is ports, or a list's first item is one: then a host is before it, no scheme. */
static bool is_port(const char *s) {
    size_t n = strspn(s, "0123456789");
    return n > 0 && n <= 5 && (s[n] == ',' || s[strspn(s, "0123456789,-")] == '\0');
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
        struct rdzv_ports ports;
        if (n_hosts == JOB_ETCD_ENDPOINTS_MAX)
            return bad(err, all, "at most 16 hosts of etcd can be named");
        struct err why = {0};
        int r = rdzv_endpoint_parse(item, &host, &ports, &why);
        if (r == -ENODATA)
            return bad(err, all, "a host of etcd is missing; write etcd://HOST:PORT,HOST:PORT");
        const bool has_port = r == 0 && ports.n > 0;
        if (r < 0 || ports.n > 1 || (has_port && ports.list[0] == 0))
            return bad(err, all,
                       r < 0 || ports.n > 1
                           ? "each host of etcd must be a name, an IPv4 address, or an IPv6 "
                             "address in brackets, and its port a number up to 65535"
                           : "etcd has no port 0");
        bool v6 = strchr(host, ':') != NULL;
        place->etcd_endpoints[n_hosts] = xasprintf("%s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "",
                                                   has_port ? ports.list[0] : RDZV_ETCD_PORT);
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
    return rdzv_endpoint_parse(text, &place->host, &place->ports, err);
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
    _cleanup_(freep) char *all = trimmed(text, strlen(text));
    _cleanup_(rdzv_place_fini) struct rdzv_place place = {0};
    if (all[0] == '\0')
        return -ENODATA;
    int r = read_place(backend, all, &place, err);
    if (r < 0)
        return r;
    *ret = place;
    place = (struct rdzv_place){0};
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

/* ---- --rdzv-conf ---- */

enum conf_kind {
    CONF_SECONDS = 1, /* offset: a uint64_t of nanoseconds */
    CONF_TIMEOUT,     /* as SECONDS, but only some backends look at it */
    CONF_COUNT,       /* offset: a uint32_t */
    CONF_RANK,
    CONF_IS_HOST,
    CONF_STORE_TYPE,
    CONF_PROTOCOL,
    CONF_TEXT,    /* offset: a char * */
    CONF_IGNORED, /* known to torchrun, has no effect here */
    CONF_IGNORED_SECONDS,
};

struct conf_key {
    const char *name;
    enum conf_kind kind;
    size_t offset;
    const char *why; /* IGNORED: the warning; NULL: none */
};

static const struct conf_key conf_keys[] = {
    {"join_timeout", CONF_SECONDS, offsetof(struct rdzv_conf, join_timeout_ns), NULL},
    {"last_call_timeout", CONF_SECONDS, offsetof(struct rdzv_conf, last_call_ns), NULL},
    {"regroup_timeout", CONF_SECONDS, offsetof(struct rdzv_conf, regroup_ns), NULL},
    {"close_timeout", CONF_SECONDS, offsetof(struct rdzv_conf, close_timeout_ns), NULL},
    {"read_timeout", CONF_SECONDS, offsetof(struct rdzv_conf, read_timeout_ns), NULL},
    {"keep_alive_interval", CONF_SECONDS, offsetof(struct rdzv_conf, keep_alive_interval_ns), NULL},
    {"keep_alive_max_attempt", CONF_COUNT, offsetof(struct rdzv_conf, keep_alive_max_attempt),
     NULL},
    {"timeout", CONF_TIMEOUT, offsetof(struct rdzv_conf, timeout_ns), NULL},
    {"is_host", CONF_IS_HOST, 0, NULL},
    {"rank", CONF_RANK, 0, NULL},
    {"store_type", CONF_STORE_TYPE, 0, NULL},
    {"protocol", CONF_PROTOCOL, 0, NULL},
    {"etcd_prefix", CONF_TEXT, offsetof(struct rdzv_conf, etcd_prefix), NULL},
    /* torchrun uses these names with etcd, and the next with etcd-v2 */
    {"cacert", CONF_TEXT, offsetof(struct rdzv_conf, etcd_cacert), NULL},
    {"ca_cert", CONF_TEXT, offsetof(struct rdzv_conf, etcd_cacert), NULL},
    {"cert", CONF_TEXT, offsetof(struct rdzv_conf, etcd_cert), NULL},
    {"ssl_cert", CONF_TEXT, offsetof(struct rdzv_conf, etcd_cert), NULL},
    {"key", CONF_TEXT, offsetof(struct rdzv_conf, etcd_key), NULL},
    {"ssl_cert_key", CONF_TEXT, offsetof(struct rdzv_conf, etcd_key), NULL},
    {"etcd_user", CONF_TEXT, offsetof(struct rdzv_conf, etcd_user), NULL},
    {"etcd_password", CONF_TEXT, offsetof(struct rdzv_conf, etcd_password), NULL},
    {"etcd_password_file", CONF_TEXT, offsetof(struct rdzv_conf, etcd_password_file), NULL},
    {"heartbeat_timeout", CONF_IGNORED_SECONDS, 0, "a renewal has the lease's time"},
    {"use_libuv", CONF_IGNORED, 0, NULL},
};

static int conf_number(const struct conf_key *key, const char *value, struct rdzv_conf *ret,
                       struct err *err) {
    void *field = (char *)ret + key->offset;
    const bool counts = key->kind == CONF_COUNT;
    uint64_t ns = 0;
    uint32_t count = 0;
    int r = counts ? parse_python_u32(value, &count) : parse_python_seconds_ns(value, &ns);
    if (r < 0 || (count == 0 && ns == 0))
        return err_set(err, -EINVAL, "--rdzv-conf: %s=%s: must be a number above 0%s", key->name,
                       value, counts ? "" : " (seconds)");
    if (counts)
        memcpy(field, &count, sizeof count);
    else if (key->kind != CONF_IGNORED_SECONDS)
        memcpy(field, &ns, sizeof ns);
    return 0;
}

static int conf_protocol(const char *value, struct rdzv_conf *ret, struct err *err) {
    ret->etcd_tls = strcasecmp(value, "https") == 0;
    if (ret->etcd_tls == 0 && strcasecmp(value, "http") != 0)
        return err_set(err, -EINVAL, "--rdzv-conf: protocol=%s: must be http or https", value);
    return 0;
}

static void conf_text(const struct conf_key *key, const char *value, struct rdzv_conf *ret) {
    char **field = (void *)((char *)ret + key->offset);
    free(*field);
    *field = value != NULL ? xstrdup(value) : NULL;
}

static void conf_timeout(const struct conf_key *key, const char *value, struct rdzv_conf *ret) {
    struct err err = {0};
    free(TAKE_PTR(ret->bad_timeout));
    if (conf_number(key, value, ret, &err) == 0)
        return;
    ret->timeout_ns = 0;
    ret->bad_timeout = xstrdup(err.text);
}

static int conf_ignored(const struct conf_key *key, const char *value, struct rdzv_conf *ret,
                        struct strbuf *warnings, struct err *err) {
    int r = key->kind == CONF_IGNORED_SECONDS ? conf_number(key, value, ret, err) : 0;
    if (r == 0 && key->why != NULL)
        strbuf_printf(warnings, "--rdzv-conf: %s has no effect: %s\n", key->name, key->why);
    return r;
}

void rdzv_conf_fini(struct rdzv_conf *conf) {
    free(conf->bad_timeout);
    for (size_t i = 0; i < ARRAY_SIZE(conf_keys); i++)
        if (conf_keys[i].kind == CONF_TEXT)
            conf_text(&conf_keys[i], NULL, conf);
    *conf = (struct rdzv_conf){.is_host = -1, .rank = -1, .etcd_tls = -1};
}

static int conf_set(const struct conf_key *key, const char *value, struct rdzv_conf *ret,
                    struct strbuf *warnings, struct err *err) {
    bool yes;
    switch (key->kind) {
    case CONF_SECONDS:
    case CONF_COUNT: return conf_number(key, value, ret, err);
    case CONF_TIMEOUT: conf_timeout(key, value, ret); return 0;
    case CONF_RANK:
        if (parse_python_i32(value, &ret->rank) < 0 || ret->rank < 0)
            return err_set(err, -EINVAL, "--rdzv-conf: rank=%s: must be 0 or more", value);
        return 0;
    case CONF_IS_HOST:
        if (parse_bool(value, &yes) < 0)
            return err_set(err, -EINVAL, "--rdzv-conf: is_host=%s: must be true or false", value);
        ret->is_host = yes;
        return 0;
    case CONF_STORE_TYPE:
        ret->store_file = strcasecmp(value, "file") == 0;
        if (!ret->store_file && strcasecmp(value, "tcp") != 0)
            return err_set(err, -EINVAL, "--rdzv-conf: store_type=%s: must be tcp or file", value);
        return 0;
    case CONF_PROTOCOL: ret->is_about_etcd = true; return conf_protocol(value, ret, err);
    case CONF_TEXT:
        ret->is_about_etcd = true;
        conf_text(key, value, ret);
        return 0;
    case CONF_IGNORED_SECONDS:
    case CONF_IGNORED: return conf_ignored(key, value, ret, warnings, err);
    }
    assert_not_reached();
}

static void warn_unknown(const char *name, struct strbuf *warnings) {
    struct suggest s = suggest_for(name);
    for (size_t i = 0; i < ARRAY_SIZE(conf_keys); i++)
        suggest_offer(&s, conf_keys[i].name);
    strbuf_printf(warnings, "--rdzv-conf: unknown key \"%s\" is ignored%s%s%s\n", name,
                  s.best != NULL ? "; did you mean \"" : "", s.best != NULL ? s.best : "",
                  s.best != NULL ? "\"?" : "");
}

static int conf_pair(const char *pair, size_t n, struct rdzv_conf *ret, struct strbuf *warnings,
                     struct err *err) {
    const char *equals = memchr(pair, '=', n);
    size_t n_name = equals != NULL ? (size_t)(equals - pair) : n;
    _cleanup_(freep) char *name = trimmed(pair, n_name);
    if (name[0] == '\0')
        return err_set(err, -EINVAL, "--rdzv-conf must have the form KEY=VALUE,KEY=VALUE");
    _cleanup_(freep) char *value =
        equals != NULL ? trimmed(equals + 1, n - n_name - 1) : xstrdup("");
    if (value[0] == '\0')
        return err_set(err, -EINVAL, "--rdzv-conf: %s has no value; write %s=VALUE", name, name);
    for (size_t i = 0; i < ARRAY_SIZE(conf_keys); i++)
        if (strcmp(conf_keys[i].name, name) == 0)
            return conf_set(&conf_keys[i], value, ret, warnings, err);
    warn_unknown(name, warnings);
    return 0;
}

int rdzv_conf_parse(const char *text, struct rdzv_conf *ret, struct strbuf *warnings,
                    struct err *err) {
    _cleanup_(rdzv_conf_fini) struct rdzv_conf conf = {.is_host = -1, .rank = -1, .etcd_tls = -1};
    const char *pair;
    size_t n;
    for (size_t i = 0; (pair = list_item(text, i, &n)) != NULL && (i > 0 || *pair != '\0'); i++) {
        int r = conf_pair(pair, n, &conf, warnings, err);
        if (r < 0)
            return r;
    }
    *ret = conf;
    conf = (struct rdzv_conf){0};
    return 0;
}
