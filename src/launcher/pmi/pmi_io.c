#include "launcher/pmi/pmi_io.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "io/clock.h"
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

/* Sends all of `out` and empties it. */
static int send_lines(int fd, struct strbuf *out, uint64_t until_ns) {
    int r = 0;
    for (size_t sent = 0; sent < out->len && r == 0;) {
        const ssize_t n =
            send(fd, strbuf_text(out) + sent, out->len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0)
            sent += (size_t)n;
        else if (errno == EAGAIN || errno == EINTR)
            r = wait_for(fd, POLLOUT, until_ns);
        else
            r = -errno;
    }
    strbuf_clear(out);
    return r;
}

/* -ECONNRESET: the server has closed the connection. */
static int receive(int fd, struct pmi1 *pmi, struct strbuf *out, uint64_t until_ns,
                   struct err *err) {
    char bytes[4096];
    int r = wait_for(fd, POLLIN, until_ns);
    if (r < 0)
        return r;
    const ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    r = n == 0 ? -ECONNRESET : pmi1_receive(pmi, bytes, (size_t)n, out, err);
    explicit_bzero(bytes, sizeof bytes);
    return r;
}

static int converse(int fd, struct pmi1 *pmi, struct pmi_tasks *tasks, uint64_t until_ns,
                    struct err *err) {
    _cleanup_(strbuf_forget) struct strbuf out = {.is_secret = true};
    pmi1_begin(pmi, tasks, &out);
    int r = send_lines(fd, &out, until_ns);
    while (r == 0 && pmi->state != PMI1_DONE) {
        r = receive(fd, pmi, &out, until_ns, err);
        if (r == 0)
            r = send_lines(fd, &out, until_ns);
    }
    return r;
}

static int explain(const struct pmi1 *pmi, int r, const char *title, struct err *err) {
    if (r == -ETIMEDOUT && pmi->state == PMI1_BARRIER)
        return err_set(err, r,
                       "not all of the %u tasks of %s started muster run within %u s; start it "
                       "in each task, or give --standalone",
                       pmi->tasks->n, title, (unsigned)(PMI1_NS / NS_PER_S));
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

/* As pmix_read(), with one deadline for all of it. Closes PMI_FD, because the server answers only
 * once. -ENOENT: PMI_FD is not set or not a socket. `title`: the process manager. */
static int read_pmi1(char *const *envp, const char *title, struct pmi_tasks *tasks,
                     struct err *err) {
    struct pmi1 pmi;
    const int fd = find_fd(envp);
    if (fd < 0)
        return fd;
    const int r = converse(fd, &pmi, tasks, clock_now_ns() + PMI1_NS, err);
    (void)close(fd);
    explicit_bzero(pmi.line, sizeof pmi.line);
    return r < 0 ? explain(&pmi, r, title, err) : 0;
}

/* ---- either ---- */

static int ask(const struct launcher *row, char *const *envp, struct pmi_tasks *tasks,
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
    int r = ask(row, envp, &tasks, err);
    if (r == 0)
        r = pmi_tasks_read(&tasks, ret, ret_run_id, err);
    if (r == 0)
        r = take_key(&tasks, key, err);
    return r;
}
