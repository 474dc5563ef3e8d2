/* Who may connect to this agent, and how it and its peers know each other. */
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "launcher/agent/agent_priv.h"
#include "launcher/agent/start_io.h"
#include "launcher/place/place_io.h"

/* ---- who of this machine may connect ---- */

static _must_use_ int make_gate(struct agent *a, struct err *err) {
    int r = peer_gate_new(a->config.node_fd, log_warning_line, a, &a->gate, err);
    if (r == 0 && a->config.spec->store_check == STORE_CHECK_UID)
        peer_gate_set_remedy(a->gate, "--store-check=member admits workers of other users, "
                                      "--auth=none all users");
    return r;
}

void agent_make_gate(struct agent *a) {
    struct err err = {0};
    if (a->config.spec->auth == AUTH_NONE || make_gate(a, &err) == 0)
        return;
    log_line(agent_show_is_brief(a) ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING,
             "this machine's kernel does not report the user of a connection (%s), so all "
             "users of this machine can reach this job; --auth=none turns this check off",
             err.text);
}

/* Literal addresses, separated by commas. */
static void choose_each(struct agent *a, const char *list) {
    char text[ADDR_TEXT_MAX];
    struct addr at;
    for (size_t len; *list != '\0'; list += len + (list[len] == ',')) {
        len = strcspn(list, ",");
        (void)snprintf(text, sizeof text, "%.*s", (int)len, list);
        if (addr_from_literal(text, a->node_port, &at) == 0)
            rdzv_listener_choose(a->listener, &at);
    }
}

void agent_choose_addrs(struct agent *a, const struct addr *local, const struct node_info *info) {
    struct addr at = *local, given;
    if (a->arbiter != NULL || at.len == 0 || addr_is_loopback(&at))
        return;
    addr_set_port(&at, a->node_port);
    rdzv_listener_choose(a->listener, &at);
    if (a->config.spec->local_addr != NULL &&
        leading_local_addr(a->config.spec->local_addr, &given)) {
        addr_set_port(&given, a->node_port);
        rdzv_listener_choose(a->listener, &given);
    }
    for (size_t i = 0; i < RDZV_NETS_MAX; i++)
        choose_each(a, info->nets[i].addrs);
}

/* ---- who of other machines may, and to whom this agent talks ---- */

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
    if (a->auth_ask == NULL && auth_state(a->auth) != AUTH_STATE_NONE)
        a->auth_ask = auth_wait(a->auth, on_ready, a);
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
