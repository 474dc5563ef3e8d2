#include "cli/options/rdzv_text.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/text/parse.h"
#include "cli/options/suggest.h"

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

int rdzv_endpoint_parse(const char *text, char **ret_host, int32_t *ret_port, struct err *err) {
    _cleanup_(freep) char *all = trimmed(text, strlen(text));
    size_t n = strlen(all);
    if (n == 0)
        return -ENODATA;
    const char *colon = port_colon(all, n);
    int32_t port = -1;
    if (colon != NULL) {
        uint16_t number;
        if (strlen(colon + 1) > 5 || parse_port(colon + 1, &number) < 0)
            return err_set(err, -EINVAL, "endpoint \"%s\": the port must be a number up to 65535",
                           all);
        port = number;
        n = (size_t)(colon - all);
    }
    int r = read_endpoint_host(all, n, ret_host, err);
    if (r == 0)
        *ret_port = port;
    return r;
}

bool rdzv_endpoint_has_ports(const char *text) {
    _cleanup_(freep) char *all = trimmed(text, strlen(text));
    const char *colon = all[0] != '\0' ? port_colon(all, strlen(all)) : NULL;
    if (colon == NULL || !isdigit((unsigned char)colon[1]) || strpbrk(colon + 1, ",-") == NULL)
        return false;
    size_t n = (size_t)(colon - all);
    return memchr(all, '/', n) == NULL && (all[0] == '[' || memchr(all, ':', n) == NULL);
}

int rdzv_endpoint_parse_ports(const char *text, unsigned max, char **ret_host, uint16_t *ret_ports,
                              unsigned *ret_n, struct err *err) {
    _cleanup_(freep) char *all = trimmed(text, strlen(text)), *host = NULL;
    const char *colon = port_colon(all, strlen(all));
    assert(colon != NULL);
    int r = read_endpoint_host(all, (size_t)(colon - all), &host, err);
    if (r < 0)
        return r;
    r = port_list_parse(colon + 1, max, ret_ports, ret_n);
    if (r == -E2BIG)
        return err_set(err, -EINVAL, "endpoint \"%s\": at most %u ports", all, max);
    if (r == -EEXIST)
        return err_set(err, -EINVAL, "endpoint \"%s\": a port is named twice", all);
    if (r < 0)
        return err_set(err, -EINVAL,
                       "endpoint \"%s\": the ports must be numbers from 1 to 65535, or LOW-HIGH, "
                       "with commas between them",
                       all);
    *ret_host = TAKE_PTR(host);
    return 0;
}

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
    int r;
    bool positive;
    if (key->kind != CONF_COUNT) {
        uint64_t ns = 0;
        r = parse_python_seconds_ns(value, &ns);
        positive = ns > 0;
        if (r == 0 && key->kind != CONF_IGNORED_SECONDS)
            memcpy(field, &ns, sizeof ns);
    } else {
        uint32_t count = 0;
        r = parse_python_u32(value, &count);
        positive = count > 0;
        if (r == 0)
            memcpy(field, &count, sizeof count);
    }
    if (r < 0 || !positive)
        return err_set(err, -EINVAL, "--rdzv-conf: %s=%s: must be a number above 0%s", key->name,
                       value, key->kind != CONF_COUNT ? " (seconds)" : "");
    return 0;
}

static int conf_protocol(const char *value, struct rdzv_conf *ret, struct err *err) {
    ret->etcd_tls = strcasecmp(value, "https") == 0;
    if (ret->etcd_tls == 0 && strcasecmp(value, "http") != 0)
        return err_set(err, -EINVAL, "--rdzv-conf: protocol=%s: must be http or https", value);
    return 0;
}

static void conf_text(const struct conf_key *key, const char *value, struct rdzv_conf *ret) {
    char *copy = xstrdup(value), *former;
    char *field = (char *)ret + key->offset;
    memcpy(&former, field, sizeof former);
    free(former);
    memcpy(field, &copy, sizeof copy);
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
    free(conf->etcd_prefix);
    free(conf->etcd_cacert);
    free(conf->etcd_cert);
    free(conf->etcd_key);
    free(conf->etcd_user);
    free(conf->etcd_password);
    free(conf->etcd_password_file);
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
    case CONF_PROTOCOL: return conf_protocol(value, ret, err);
    case CONF_TEXT: conf_text(key, value, ret); return 0;
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
    _cleanup_(freep) char *all = trimmed(text, strlen(text));
    for (const char *p = all; *all != '\0' && p != NULL;) {
        size_t n = strcspn(p, ",");
        int r = conf_pair(p, n, &conf, warnings, err);
        if (r < 0)
            return r;
        p = p[n] == ',' ? p + n + 1 : NULL;
    }
    *ret = conf;
    conf = (struct rdzv_conf){0};
    return 0;
}
