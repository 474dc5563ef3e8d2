#include "launcher/pmi/pmi_io.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/resolver.h"

static_assert(PMI_KEY_TEXT_MAX >= AUTH_KEY_TEXT_MAX, "a key fits");

/* For the exchange of all cards, in which each task waits for the others. */
#define PMI1_NS (9 * NS_PER_S)

/* Without OpenSSL on its node, rank 0 gives no key, as a starter does. */
static bool make_key(char ret[AUTH_KEY_TEXT_MAX]) {
    _cleanup_(keyring_freep) struct keyring *ring = NULL;
    uint8_t secret[AUTH_SECRET_BYTES];
    random_bytes(secret, sizeof secret);
    auth_key_to_text(secret, ret);
    const bool is_made = keyring_new(&ring, NULL) == 0 &&
                         keyring_add(ring, secret, AUTH_FROM_HEAD, NULL) == 0 &&
                         keyring_derive(ring, NULL) == 0;
    explicit_bzero(secret, sizeof secret);
    return is_made;
}

static void write_own_card(struct pmi_tasks *tasks) {
    char host[RESOLVE_NAME_MAX + 1], key[AUTH_KEY_TEXT_MAX] = "";
    const bool has_key = tasks->rank == 0 && make_key(key);
    resolve_own_name(host, sizeof host);
    pmi_card_write(host, has_key ? key : NULL, tasks->own);
    explicit_bzero(key, sizeof key);
}

static int take_key(const struct pmi_tasks *tasks, struct keyring *ring, struct err *err) {
    const char *text = pmi_card_key(tasks->cards[0]);
    uint8_t secret[AUTH_SECRET_BYTES];
    if (text == NULL)
        return 0;
    int r = auth_key_from_text(text, strlen(text), "the key of task 0", secret, err);
    if (r == 0)
        r = keyring_add(ring, secret, AUTH_FROM_HEAD, err);
    explicit_bzero(secret, sizeof secret);
    return r;
}

/* ---- PMI-1 ---- */

/* A number that is not the server's socket has leaked. */
static int find_fd(char *const *envp) {
    const char *text = env_get(envp, "PMI_FD");
    uint32_t fd;
    int type;
    socklen_t len = sizeof type;
    const bool is_socket = text != NULL && parse_u32(text, &fd) == 0 && fd <= INT32_MAX &&
                           getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
                           type == SOCK_STREAM;
    return is_socket ? (int)fd : -ENOENT;
}

/* The descriptor stays as it is for other processes that have it: it may block. */
static int wait_for(int fd, short events, uint64_t until_ns) {
    const uint64_t now = clock_now_ns();
    struct pollfd p = {.fd = fd, .events = events};
    if (now >= until_ns)
        return -ETIMEDOUT;
    const int r = poll(&p, 1, (int)((until_ns - now) / NS_PER_MS) + 1);
    return r < 0 && errno != EINTR ? -errno : 0;
}

struct pmi1 {
    int fd;
    uint64_t until_ns;
    struct err *err;
    size_t len, used; /* bytes that have arrived; of them, the line that was read last */
    char bytes[PMI1_LINE_MAX], out[PMI1_LINE_MAX];
};

static int send_line(struct pmi1 *p) {
    const size_t len = strlen(p->out);
    int r = 0;
    for (size_t sent = 0; sent < len && r == 0;) {
        const ssize_t n = send(p->fd, p->out + sent, len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0)
            sent += (size_t)n;
        else if (errno == EAGAIN || errno == EINTR)
            r = wait_for(p->fd, POLLOUT, p->until_ns);
        else
            r = -errno;
    }
    return r;
}

/* Reads the next line into `bytes`, with a NUL for its end. -EMSGSIZE: it is not a line. */
static int read_line(struct pmi1 *p) {
    p->len -= p->used;
    memmove(p->bytes, p->bytes + p->used, p->len);
    for (;;) {
        char *const end = memchr(p->bytes, '\n', p->len);
        p->used = end != NULL ? (size_t)(end - p->bytes) + 1 : p->len;
        if (memchr(p->bytes, '\0', p->used) != NULL || (end == NULL && p->len == sizeof p->bytes))
            return -EMSGSIZE;
        if (end != NULL) {
            *end = '\0';
            return 0;
        }
        const int r = wait_for(p->fd, POLLIN, p->until_ns);
        if (r < 0)
            return r;
        const ssize_t n = recv(p->fd, p->bytes + p->len, sizeof p->bytes - p->len, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return n == 0 ? -ECONNRESET : -errno;
        p->len += n > 0 ? (size_t)n : 0;
    }
}

/* The value of NAME in "cmd=a NAME=value rc=0"; NULL: it is not there. */
static const char *find(const char *line, const char *name, size_t *ret_len) {
    const size_t n = strlen(name);
    for (const char *at = line; *at != '\0'; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strncmp(at, name, n) == 0 && at[n] == '=') {
            *ret_len = strcspn(at + n + 1, " ");
            return at + n + 1;
        }
    }
    return NULL;
}

static bool is(const char *value, size_t len, const char *text) {
    return value != NULL && strlen(text) == len && memcmp(value, text, len) == 0;
}

/* Sends a line, and checks its answer. *ret is the value of a word there, which has fewer bytes
 * than `max`; word: NULL: none counts. */
#define ASK(p, answer, word, max, ret, ...) \
    ((void)snprintf((p)->out, sizeof(p)->out, __VA_ARGS__), ask(p, answer, word, max, ret))
static int ask(struct pmi1 *p, const char *answer, const char *word, size_t max, char **ret) {
    size_t len, rc_len, value_len = 0;
    int r = send_line(p);
    if (r == 0)
        r = read_line(p);
    if (r < 0 && r != -EMSGSIZE)
        return r;
    const char *const line = r == 0 ? p->bytes : "", *const cmd = find(line, "cmd", &len),
                      *const rc = find(line, "rc", &rc_len),
                      *const value = word != NULL ? find(line, word, &value_len) : NULL;
    if (!is(cmd, len, answer) || (rc != NULL && !is(rc, rc_len, "0")) ||
        (word != NULL && (value_len == 0 || value_len >= max)))
        return err_set(p->err, -EPROTO, "its answer is not \"%s\" of PMI-1 as expected", answer);
    if (word != NULL)
        *ret = xstrndup(value, value_len);
    return 0;
}

int pmi1_ask(int fd, struct pmi_tasks *tasks, uint64_t until_ns, bool *ret_waits, struct err *err) {
    struct pmi1 p = {.fd = fd, .until_ns = until_ns, .err = err};
    int r = ASK(&p, "response_to_init", NULL, 0, NULL, "cmd=init pmi_version=1 pmi_subversion=1\n");
    if (r == 0)
        r = ASK(&p, "my_kvsname", "kvsname", PMI_RUN_ID_MAX, &tasks->run_id,
                "cmd=get_my_kvsname\n");
    if (r == 0)
        r = ASK(&p, "put_result", NULL, 0, NULL, "cmd=put kvsname=%s key=muster-%u value=%s\n",
                tasks->run_id, tasks->rank, tasks->own);
    *ret_waits = r == 0;
    if (r == 0)
        r = ASK(&p, "barrier_out", NULL, 0, NULL, "cmd=barrier_in\n");
    *ret_waits = *ret_waits && r < 0;
    if (r == 0)
        tasks->cards = xcalloc(tasks->n, sizeof *tasks->cards);
    for (uint32_t i = 0; i < tasks->n && r == 0; i++)
        r = ASK(&p, "get_result", "value", PMI_CARD_MAX, &tasks->cards[i],
                "cmd=get kvsname=%s key=muster-%u\n", tasks->run_id, i);
    if (r == 0)
        r = ASK(&p, "finalize_ack", NULL, 0, NULL, "cmd=finalize\n");
    explicit_bzero(&p, sizeof p);
    return r;
}

static int explain(const struct pmi_tasks *tasks, int r, bool waits, const char *title,
                   struct err *err) {
    if (r == -ETIMEDOUT && waits)
        return err_set(err, r,
                       "not all of the %u tasks of %s started muster run within %u s; start it "
                       "in each task, or give --standalone",
                       tasks->n, title, (unsigned)(PMI1_NS / NS_PER_S));
    if (r == -ETIMEDOUT)
        return err_set(err, r, "the PMI server of %s (PMI_FD) did not answer within %u s", title,
                       (unsigned)(PMI1_NS / NS_PER_S));
    if (r == -EPROTO)
        err_prefix(err, "the PMI server of %s (PMI_FD)", title);
    else
        (void)err_set(err, r,
                      "the PMI server of %s (PMI_FD) closed the connection: another program of "
                      "this task has used it, or %s has ended; one task can run one muster run",
                      title, title);
    return r;
}

/* As pmix_read(). Closes PMI_FD, because the server answers only once. -ENOENT: PMI_FD is not set
 * or not a socket. `title`: the process manager. */
static int read_pmi1(char *const *envp, const char *title, struct pmi_tasks *tasks,
                     struct err *err) {
    bool waits;
    _cleanup_(file_close) int fd = find_fd(envp);
    if (fd < 0)
        return fd;
    const int r = pmi1_ask(fd, tasks, clock_now_ns() + PMI1_NS, &waits, err);
    return r < 0 ? explain(tasks, r, waits, title, err) : 0;
}

/* ---- either ---- */

static int ask_either(const struct launcher *row, char *const *envp, struct pmi_tasks *tasks,
                      struct err *err) {
    switch (row->sizes) {
    case LAUNCHER_BY_PMI1: return read_pmi1(envp, row->title, tasks, err);
    case LAUNCHER_BY_PMIX: return pmix_read(envp, tasks, err);
    case LAUNCHER_BY_VARIABLES: break;
    }
    return -ENOSYS;
}

int pmi_read(const struct launcher *row, char *const *envp, struct keyring *key, struct place *ret,
             char **ret_run_id, struct err *err) {
    _cleanup_(pmi_tasks_fini) struct pmi_tasks tasks = {0};
    uint32_t n, rank;
    const char *n_text = launcher_value(envp, row->tasks),
               *rank_text = launcher_value(envp, row->task);
    if (n_text == NULL || rank_text == NULL || parse_u32(n_text, &n) < 0 ||
        parse_u32(rank_text, &rank) < 0 || rank >= n)
        return -ENOENT;
    if (n > PMI_TASKS_MAX)
        return err_set(err, -E2BIG, "%s has %u tasks; muster takes at most %u", row->title, n,
                       PMI_TASKS_MAX);
    tasks.n = n;
    tasks.rank = rank;
    write_own_card(&tasks);
    int r = ask_either(row, envp, &tasks, err);
    if (r == 0)
        r = pmi_tasks_read(&tasks, ret, ret_run_id, err);
    if (r == 0)
        r = take_key(&tasks, key, err);
    return r;
}
