#include "cli/jobs/operator_auth_io.h"

#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/file.h"
#include "io/net/listen.h"
#include "io/peer/peer_gate.h"
#include "launcher/place/place_io.h"
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"
#include "rendezvous/operate/registry_io.h"

extern char **environ;

#define DIR_NS (5 * NS_PER_S)

struct operator_auth {
    struct loop *loop;
    struct auth *auth;
    struct peer_gate *gate;
    bool is_given; /* a key; then only those of jobs of this machine count, too */
    enum auth_mode mode;
};

/* The kernel is asked about a socket of our own first. NULL: it does not report the owner. */
static struct peer_gate *make_gate(void) {
    struct peer_gate *gate = NULL;
    struct addr at;
    _cleanup_(file_close) int fd = -1;
    if (addr_from_literal("127.0.0.1", 0, &at) == 0 && listen_socket(&at, 1, &fd, NULL) == 0 &&
        peer_gate_new(fd, NULL, NULL, &gate, NULL) < 0)
        gate = NULL;
    return gate;
}

static int load(const struct operator_auth_config *config, struct keyring *keys, struct err *err) {
    int r = keyring_take_env(keys, "MUSTER_KEY", AUTH_FROM_ENV, err);
    if (config->mode == AUTH_NONE)
        return 0;
    if (r == 0)
        r = keyring_load_given(keys, config->key_file, err);
    if (r == 0 && !keyring_is_given(keys))
        r = keyring_load_home(keys, KEYRING_HOME_NS, err);
    registry_load_keys(geteuid(), NULL, keys); /* last: they may be many */
    return r;
}

int operator_auth_new(const struct operator_auth_config *config, struct operator_auth **ret,
                      struct err *err) {
    _cleanup_(keyring_freep) struct keyring *keys = NULL;
    struct operator_auth *o = xcalloc(1, sizeof *o);
    o->mode = config->mode;
    int r = loop_new(&o->loop);
    r = r < 0 ? err_set(err, r, "can't make an event loop: %s", strerror(-r))
              : keyring_new(&keys, err);
    if (r == 0)
        keyring_widen(keys);
    if (r == 0 && (r = load(config, keys, err)) < 0 && config->lenient) {
        log_warning("%s", err->text);
        r = 0;
    }
    if (r == 0) {
        o->is_given = keyring_is_given(keys);
        o->gate = make_gate();
        _cleanup_(freep) char *socket = slurm_munge_socket(environ);
        struct auth_config auth = {.mode = config->mode,
                                   .gate = o->gate,
                                   .keys = keys,
                                   .munge = true,
                                   .munge_socket = socket,
                                   .line = log_warning_line};
        r = auth_new(o->loop, &auth, &o->auth, err);
    }
    if (r < 0)
        operator_auth_free(o);
    else
        *ret = o;
    return r;
}

void operator_auth_free(struct operator_auth *o) {
    if (o == NULL)
        return;
    auth_free(o->auth);
    peer_gate_free(o->gate);
    loop_free(o->loop);
    free(o);
}

struct loop *operator_auth_loop(const struct operator_auth *o) {
    return o->loop;
}

int operator_auth_ask(struct operator_auth *o, struct operator_question *q,
                      struct operator_reply *ret, struct err *err) {
    q->auth = o->auth;
    return operator_ask(o->loop, q, ret, err);
}

bool operator_auth_add_user(struct operator_auth *o, uint32_t uid, const char *run_id) {
    _cleanup_(keyring_freep) struct keyring *keys = NULL;
    if (uid == geteuid())
        return false;
    if (keyring_new(&keys, NULL) < 0)
        return true;
    keyring_widen(keys);
    registry_load_keys(uid, run_id, keys);
    for (uint32_t i = 0; i < keyring_n(keys); i++)
        (void)!auth_add_key(o->auth, keyring_at(keys, i)->secret, AUTH_FROM_RUN_DIR, NULL);
    return true;
}

void operator_auth_add_job_dir(struct operator_auth *o, const char *path, const char *run_id) {
    uint8_t secret[AUTH_SECRET_BYTES];
    struct err err = {0};
    if (o->is_given || o->mode == AUTH_NONE)
        return;
    int r = arbiter_dir_key(path, run_id, true, DIR_NS, secret, &err);
    if (r == 0)
        r = auth_add_key(o->auth, secret, AUTH_FROM_JOB_DIR, &err);
    explicit_bzero(secret, sizeof secret);
    if (r < 0)
        log_warning("%s", err.text);
}
