#include "auth_rig.h"

#include "base/text/parse.h"
#include "io/file.h"
#include "io/net/stream.h"
#include "rig/loop_rig.h"

#define RINGS_MAX 16
#define AUTHS_MAX 64
#define MUNGED_MAX 4

struct loop *rig_loop;
char rig_folder[64];
static struct keyring *rings[RINGS_MAX];
static uint32_t n_rings;
static struct auth *auths[AUTHS_MAX];
static uint32_t n_auths;
static pid_t munged_pids[MUNGED_MAX]; /* of those that run; 0 */

static void run_command(const char *command) { cr_assert_eq(system(command), 0, "%s", command); }

void rig_begin(void) {
    (void)snprintf(rig_folder, sizeof rig_folder, "/tmp/muster-auth-XXXXXX");
    cr_assert_not_null(mkdtemp(rig_folder));
    cr_assert_eq(chmod(rig_folder, 0755), 0);
    cr_assert_eq(loop_new(&rig_loop), 0);
}

void rig_finish(void) {
    for (size_t i = 0; i < ARRAY_SIZE(munged_pids); i++)
        if (munged_pids[i] > 0)
            (void)kill(munged_pids[i], SIGKILL);
    while (n_auths > 0)
        auth_free(auths[--n_auths]);
    while (n_rings > 0)
        keyring_free(rings[--n_rings]);
    loop_free(rig_loop);
    run_command(rig_text("rm -rf %s", rig_folder));
}

void rig_run(void) { rig_loop_run(rig_loop); }

static void on_line(void *arg, const char *text) {
    struct rig_lines *lines = arg;
    lines->n++;
    (void)snprintf(lines->last, sizeof lines->last, "%s", text);
}

struct auth *rig_auth(const struct auth_config *config, struct rig_lines *lines) {
    struct auth_config c = *config;
    struct auth *a;
    struct err err = {0};
    if (lines != NULL) {
        *lines = (struct rig_lines){0};
        c.line = on_line;
        c.arg = lines;
    }
    cr_assert_eq(auth_new(rig_loop, &c, &a, &err), 0, "%s", err.text);
    cr_assert_lt(n_auths, AUTHS_MAX);
    return auths[n_auths++] = a;
}

void rig_free(struct auth *a) {
    uint32_t i = 0;
    while (auths[i] != a)
        i++;
    auths[i] = auths[--n_auths];
    auth_free(a);
}

struct keyring *rig_keys(uint8_t byte, enum auth_source source) {
    struct keyring *k;
    uint8_t secret[AUTH_SECRET_BYTES];
    memset(secret, byte, sizeof secret);
    cr_assert_lt(n_rings, RINGS_MAX);
    cr_assert_eq(keyring_new(&k, NULL), 0);
    rings[n_rings++] = k;
    if (byte != 0)
        cr_assert_eq(keyring_add(k, secret, source, NULL), 0);
    return k;
}

static void on_ready(void *arg, const struct auth_choice *none) {
    struct auth_ask **ask = arg;
    *ask = NULL;
    loop_quit(rig_loop);
}

struct auth_greeting rig_greeting(struct auth *a) {
    struct auth_greeting g;
    struct auth_ask *ask;
    if (!auth_is_ready(a)) {
        ask = auth_wait(a, on_ready, &ask);
        rig_run();
        cr_assert_null(ask);
    }
    cr_assert(auth_is_ready(a));
    auth_greet(a, &g);
    return g;
}

static void on_chosen(void *arg, const struct auth_choice *choice) {
    struct rig_choice *c = arg;
    cr_assert_eq(c->way, 0, "only once");
    c->way = choice->way;
    c->session = choice->session;
    (void)snprintf(c->why, sizeof c->why, "%s", choice->why != NULL ? choice->why : "");
    loop_quit(rig_loop);
}

void rig_choose(struct auth *a, const struct auth_greeting *g, struct rig_choice *ret) {
    struct addr peer;
    *ret = (struct rig_choice){0};
    cr_assert_eq(addr_from_literal("10.9.9.9", 29400, &peer), 0);
    cr_assert_not_null(auth_choose(a, -1, &peer, g, on_chosen, ret));
    cr_assert_eq(ret->way, 0, "not from inside the call");
    rig_run();
}

static unsigned n_secured, n_closed;

static void on_readable(void *arg, struct stream *s) {}
static void on_closed(void *arg, struct stream *s, int code) {
    n_closed++;
    loop_quit(rig_loop);
}
static void on_secured(void *arg, struct stream *s) {
    if (++n_secured == 2)
        loop_quit(rig_loop);
}

static bool shake_hands(struct ssl_st *accepting, struct ssl_st *connecting) {
    static const struct stream_ops ops = {.on_readable = on_readable, .on_closed = on_closed, .on_secured = on_secured};
    struct stream *a, *c;
    int fds[2];
    n_secured = n_closed = 0;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    a = stream_new(rig_loop, fds[0], &ops, NULL);
    c = stream_new(rig_loop, fds[1], &ops, NULL);
    stream_start_tls(a, accepting);
    stream_start_tls(c, connecting);
    rig_run();
    stream_free(a);
    stream_free(c);
    return n_secured == 2 && n_closed == 0;
}

const char *rig_meet(struct auth *server, struct auth *client) {
    static struct rig_choice c;
    struct auth_greeting g = rig_greeting(server);
    struct ssl_st *accepting;
    struct addr peer;
    cr_assert_eq(addr_from_literal("10.9.9.10", 1024, &peer), 0);
    rig_choose(client, &g, &c);
    switch (c.way) {
    case AUTH_WAY_PLAIN: return auth_takes_plain(server, -1, &peer, c.why) ? "plain" : "plain, which is not taken";
    case AUTH_WAY_TLS:
        cr_assert_eq(auth_accept(server, &accepting, NULL), 0);
        return shake_hands(accepting, c.session) ? "TLS" : "the handshake fails";
    case AUTH_WAY_MUNGE:
    case AUTH_WAY_REFUSED: break;
    }
    return c.why;
}

#define MUNGED "/usr/sbin/munged"

static void munged(struct rig_munged *m, const char *options) {
    _cleanup_(freep) char *command =
        xasprintf("%s %s --force --key-file=%s/key --socket=%s --pid-file=%s/pid --log-file=%s/log --seed-file=%s/seed "
                  "</dev/null >%s/out 2>&1",
                  MUNGED, options, m->folder, m->socket, m->folder, m->folder, m->folder, m->folder);
    run_command(command);
}

static pid_t pid_of(const struct rig_munged *m) {
    _cleanup_(freep) char *text = NULL;
    size_t len;
    int32_t pid;
    cr_assert_eq(file_read_text(rig_text("%s/pid", m->folder), 64, &text, &len), 0);
    text[strcspn(text, "\n")] = '\0';
    cr_assert_eq(parse_i32(text, &pid), 0);
    return pid;
}

static void replace_pid(pid_t old, pid_t new) {
    for (size_t i = 0; i < ARRAY_SIZE(munged_pids); i++)
        if (munged_pids[i] == old) {
            munged_pids[i] = new;
            return;
        }
    cr_assert_fail("more than %d of munged", MUNGED_MAX);
}

void rig_munged_start(struct rig_munged *m, const char *name) {
    uint8_t bytes[AUTH_SECRET_BYTES];
    if (access(MUNGED, X_OK) < 0)
        cr_skip_test("munged is not installed (Debian: munge)");
    *m = (struct rig_munged){0};
    (void)snprintf(m->folder, sizeof m->folder, "%s/%s", rig_folder, name);
    (void)snprintf(m->socket, sizeof m->socket, "%s/socket", m->folder);
    const char *key = rig_text("%s/key", m->folder);
    cr_assert_eq(mkdir(m->folder, 0755), 0);
    random_bytes(bytes, sizeof bytes);
    FILE *f = fopen(key, "we");
    cr_assert_not_null(f);
    cr_assert_eq(fchmod(fileno(f), 0600), 0);
    cr_assert_eq(fwrite(bytes, 1, sizeof bytes, f), sizeof bytes);
    cr_assert_eq(fclose(f), 0);
    munged(m, "--num-threads=2"); /* returns when it serves */
    replace_pid(0, pid_of(m));
}

void rig_munged_signal(struct rig_munged *m, int signo) { cr_assert_eq(kill(pid_of(m), signo), 0); }

void rig_munged_stop(struct rig_munged *m) {
    pid_t pid = pid_of(m);
    munged(m, "--stop"); /* waits for its end */
    replace_pid(pid, 0);
}

void rig_munge(struct rig_munged *m, uid_t uid, int to_uid, const char *payload, char out[AUTH_MUNGE_MAX]) {
    _cleanup_(freep) char *text = NULL;
    size_t len;
    const char *path = rig_text("%s/credential", rig_folder);
    _cleanup_(freep) char *to = to_uid >= 0 ? xasprintf("--restrict-uid=%d", to_uid) : xstrdup("");
    _cleanup_(freep) char *command =
        xasprintf("printf '%s' | setpriv --reuid %u --clear-groups munge --socket=%s %s >%s", payload, (unsigned)uid,
                  m->socket, to, path);
    run_command(command);
    cr_assert_eq(file_read_text(path, AUTH_MUNGE_MAX - 1, &text, &len), 0);
    text[strcspn(text, "\n")] = '\0';
    (void)snprintf(out, AUTH_MUNGE_MAX, "%s", text);
}
