#include "io/net/resolver.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "io/file.h"
#include "io/process/helper_call.h"

#define OWN_NAME_MAX 256

struct resolve {
    struct helper_call *call;
    uint64_t timeout_ns;
    resolve_fn *fn;
    void *arg;
    char host[RESOLVE_NAME_MAX + 1];
};

/* What the helper writes. Both ends are this program, so the layout is the same. */
struct resolve_answer {
    int32_t gai;  /* 0 or EAI_* */
    int32_t code; /* errno if gai is EAI_SYSTEM */
    uint32_t n;
    struct addr addrs[RESOLVE_ADDRS_MAX];
};

static size_t without_last_dot(const char *host) {
    size_t len = strlen(host);
    return len > 1 && host[len - 1] == '.' ? len - 1 : len;
}

static bool same_name(const char *host, size_t len, const char *own, size_t own_len) {
    return len == own_len && strncasecmp(host, own, len) == 0;
}

void resolve_own_name(char *out, size_t size) {
    if (gethostname(out, size - 1) < 0 || out[0] == '\0')
        (void)snprintf(out, size, "localhost");
    out[size - 1] = '\0';
    utf8_clean(out, false);
}

bool resolve_is_own_name(const char *host) {
    static const char local[] = "localhost";
    size_t len = without_last_dot(host), local_len = sizeof local - 1;
    if (len >= local_len && strncasecmp(host + len - local_len, local, local_len) == 0 &&
        (len == local_len || host[len - local_len - 1] == '.'))
        return true;
    char own[OWN_NAME_MAX] = "";
    if (gethostname(own, sizeof own - 1) < 0 || own[0] == '\0')
        return false;
    return same_name(host, len, own, strlen(own)) || same_name(host, len, own, strcspn(own, "."));
}

static bool is_name(const char *host) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t len = without_last_dot(host);
    return len > 0 && len <= RESOLVE_NAME_MAX && strspn(host, letters) >= len;
}

int resolve_now(const char *host, uint16_t port, struct addr ret[RESOLVE_ADDRS_MAX],
                size_t *ret_n) {
    if (addr_from_literal(host, port, &ret[0]) == 0) {
        *ret_n = 1;
        return 0;
    }
    if (!is_name(host))
        return -EINVAL;
    if (!resolve_is_own_name(host))
        return RESOLVE_E_LOOKUP;
    size_t n = 0;
    int r = addr_from_literal("127.0.0.1", port, &ret[n++]);
    if (r == 0)
        r = addr_from_literal("::1", port, &ret[n++]);
    if (r < 0)
        return r;
    size_t more = 0;
    if (strncasecmp(host, "localhost", 9) != 0 && addr_all_global(&ret[n], 1, &more) == 0 &&
        more > 0)
        addr_set_port(&ret[n], port);
    *ret_n = n + more;
    return 0;
}

int resolve_lookup(const char *host, uint16_t port, struct addr ret[RESOLVE_ADDRS_MAX],
                   size_t *ret_n) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all;
    int gai = getaddrinfo(host, NULL, &hints, &all);
    if (gai != 0)
        return gai;
    size_t n = 0;
    for (const struct addrinfo *i = all; i != NULL && n < RESOLVE_ADDRS_MAX; i = i->ai_next) {
        struct addr a = {.len = i->ai_addrlen};
        if ((i->ai_family != AF_INET && i->ai_family != AF_INET6) || a.len > sizeof a.ss)
            continue;
        memcpy(&a.ss, i->ai_addr, a.len);
        addr_set_port(&a, port);
        bool known = false;
        for (size_t k = 0; k < n; k++)
            known = known || addr_same_host(&ret[k], &a);
        if (!known)
            ret[n++] = a;
    }
    freeaddrinfo(all);
    *ret_n = n;
    return n > 0 ? 0 : EAI_NONAME;
}

/* ---- in the helper ---- */

struct question {
    const char *host;
    uint16_t port;
    resolve_lookup_fn *lookup;
};

static int look_up(int fd, void *arg) {
    const struct question *q = arg;
    struct resolve_answer a = {0};
    size_t n = 0;
    errno = 0;
    a.gai = q->lookup(q->host, q->port, a.addrs, &n);
    a.code = -errno;
    a.n = (uint32_t)n;
    return helper_send(fd, &a, sizeof a) ? 0 : 1;
}

/* ---- in the process that asks ---- */

void resolve_free(struct resolve *r) {
    if (r == NULL)
        return;
    helper_call_free(r->call);
    free(r);
}

static void finish(struct resolve *r, int code, const char *text, const struct addr *addrs,
                   size_t n) {
    resolve_fn *fn = r->fn;
    void *arg = r->arg;
    resolve_free(r);
    fn(arg, code, text, addrs, n);
}

static void fail(struct resolve *r, int code, const char *why) {
    char text[ERR_TEXT_MAX];
    (void)snprintf(text, sizeof text, "cannot look up the host name '%s': %s", r->host, why);
    finish(r, code, text, NULL, 0);
}

static void on_answer(void *arg, const struct helper_answer *answer) {
    struct resolve *r = arg;
    struct resolve_answer a = {0};
    r->call = NULL;
    if (answer->code == -ETIMEDOUT) {
        char why[64];
        (void)snprintf(why, sizeof why, "no answer within %.1f s", (double)r->timeout_ns / 1e9);
        fail(r, -ETIMEDOUT, why);
        return;
    }
    (void)helper_answer_take(answer, &a, sizeof a);
    if (a.gai == 0 && (a.n == 0 || a.n > RESOLVE_ADDRS_MAX)) {
        fail(r, -ECHILD, "the process that asked ended without an answer");
        return;
    }
    if (a.gai == 0) {
        finish(r, 0, "", a.addrs, a.n);
        return;
    }
    int code = -EIO;
    const char *why = gai_strerror(a.gai);
    if (a.gai == EAI_NONAME || a.gai == EAI_NODATA) {
        code = -ENOENT;
    } else if (a.gai == EAI_AGAIN) {
        code = -EAGAIN;
    } else if (a.gai == EAI_MEMORY) {
        code = -ENOMEM;
    } else if (a.gai == EAI_SYSTEM && a.code < 0) {
        code = a.code;
        why = strerror(-code);
    }
    fail(r, code, why);
}

int resolve_start_with(struct loop *loop, const char *host, uint16_t port, uint64_t timeout_ns,
                       resolve_lookup_fn *lookup, resolve_fn *fn, void *arg, struct resolve **ret) {
    if (strlen(host) > RESOLVE_NAME_MAX)
        return -EINVAL;
    struct resolve *r = xcalloc(1, sizeof *r);
    *r = (struct resolve){.timeout_ns = timeout_ns, .fn = fn, .arg = arg};
    memcpy(r->host, host, strlen(host));
    struct helper_call_config config = {.name = "muster-resolve",
                                        .run = look_up,
                                        .arg = &(struct question){r->host, port, lookup},
                                        .timeout_ns = timeout_ns,
                                        .max_bytes = sizeof(struct resolve_answer)};
    int code = helper_call_new(loop, &config, on_answer, r, &r->call);
    if (code < 0)
        resolve_free(r);
    else
        *ret = r;
    return code;
}

int resolve_start(struct loop *loop, const char *host, uint16_t port, uint64_t timeout_ns,
                  resolve_fn *fn, void *arg, struct resolve **ret) {
    return resolve_start_with(loop, host, port, timeout_ns, resolve_lookup, fn, arg, ret);
}

/* ==== /etc/hosts ==== */

#define CONF_MAX ((size_t)64 << 10)
#define HOSTS_MAX ((size_t)256 << 10)
#define NSCD "/var/run/nscd/socket" /* the daemon of names, which may hang */

/* ---- lines and words ---- */

static bool is_word(const char *at, size_t n, const char *word) {
    return n == strlen(word) && strncasecmp(at, word, n) == 0;
}

/* What follows in the first line that begins with this word; NULL: there is none. */
static const char *after_word(const char *text, const char *word) {
    for (const char *line = text; *line != '\0'; line = text_next_line(line)) {
        const char *at = line;
        size_t n = text_word(&at);
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

/* "hosts: files dns": the file's answer is final; "hosts: files [SUCCESS=merge] dns": it is not. */
static bool file_is_first(const char *etc) {
    _cleanup_(freep) char *text = read_conf(etc, "nsswitch.conf", CONF_MAX);
    const char *at = after_word(text, "hosts:");
    size_t n = at != NULL ? text_word(&at) : 0;
    if (!is_word(at, n, "files"))
        return false;
    at += n;
    return text_word(&at) == 0 || *at != '[';
}

/* ---- the file ---- */

static bool names_it(const char *at, const char *name) {
    for (size_t n; (n = text_word(&at)) > 0; at += n)
        if (is_word(at, n, name))
            return true;
    return false;
}

/* Whether this is a line of the name, with an address. */
static bool read_line(const char *line, const char *name, uint16_t port, struct addr *ret) {
    char text[ADDR_TEXT_MAX];
    const char *at = line;
    size_t n = text_word(&at);
    if (n == 0 || n >= sizeof text || !names_it(at + n, name))
        return false;
    memcpy(text, at, n);
    text[n] = '\0';
    return text[0] != '[' && addr_from_literal(text, port, ret) == 0;
}

bool hosts_file_find(const char *etc, const char *name, uint16_t port, struct addr *ret) {
    size_t n = 0;
    if (name[0] == '\0' || name[strlen(name) - 1] == '.' || access(NSCD, F_OK) == 0 ||
        !file_is_first(etc))
        return false;
    _cleanup_(freep) char *text = read_conf(etc, "hosts", HOSTS_MAX);
    for (const char *line = text; *line != '\0'; line = text_next_line(line))
        n += read_line(line, name, port, ret);
    return n == 1;
}
