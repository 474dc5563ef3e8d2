/* Who of other machines may talk to this agent, and to whom it talks. */

#include "base/text/log.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/agent/start_keys_io.h"
#include "launcher/place/place_io.h"

int agent_make_auth(struct agent *a) {
    const struct job_spec *spec = a->config.spec;
    struct err err = {0};
    _cleanup_(freep) char *socket = slurm_munge_socket(a->config.envp);
    struct auth_config config = {
        .mode = spec->auth,
        .run_id = spec->run_id,
        .gate = a->gate,
        .keys = a->config.keys,
        .local = start_is_local(spec),
        .munge = true,
        .munge_socket = socket,
        .line = log_warning_line,
        .arg = a,
    };
    int r = auth_new(a->loop, &config, &a->auth, &err);
    keyring_free(TAKE_PTR(a->config.keys)); /* copied */
    if (r == 0)
        return 0;
    return agent_refuse_usage(a, r, err.text);
}

bool agent_is_authenticated(const struct agent *a) {
    return auth_state(a->auth) == AUTH_STATE_KEYS;
}

/* Munge has been asked. */
static void on_ready(void *arg) {
    struct agent *a = arg;
    a->auth_ask = NULL;
    auth_tell_no_key(a->auth);
}

void agent_tell_if_no_key(struct agent *a) {
    if (a->auth_ask == NULL && auth_state(a->auth) != AUTH_STATE_NONE &&
        auth_wait(a->auth, on_ready, a, &a->auth_ask) < 0)
        a->auth_ask = NULL;
}

void agent_leave_key(struct agent *a) {
    const uint8_t *secret = auth_job_secret(a->auth);
    struct err err = {0};
    if (secret != NULL && !a->registry.has_key && registry_add_key(&a->registry, secret, &err) < 0)
        log_debug("%s", err.text);
}

void agent_free_auth(struct agent *a) {
    auth_ask_free(TAKE_PTR(a->auth_ask));
    auth_free(TAKE_PTR(a->auth));
    keyring_free(TAKE_PTR(a->config.keys));
}
