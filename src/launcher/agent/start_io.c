#include "launcher/agent/start_io.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/log.h"
#include "io/file.h"
#include "io/net/listen.h"
#include "io/net/resolver.h"
#include "launcher/agent/agent_io.h"
#include "launcher/agent/start_check_io.h"
#include "launcher/agent/start_keys_io.h"
#include "launcher/node/python_io.h"
#include "launcher/place/place.h"
#include "launcher/report/termination_io.h"
#include "launcher/starter/starter_link_io.h"

/* All nodes of a large job can probe at once. The kernel limits this to net.core.somaxconn. */
#define NODE_BACKLOG 4096
static_assert(JOB_ENDPOINT_PORTS_MAX <= LISTEN_LAST_MAX, "all ports of the endpoint");

static bool is_endpoint_port(const struct job_spec *spec, uint16_t port) {
    for (unsigned i = 0; i < spec->n_endpoint_ports; i++)
        if (spec->endpoint_ports[i] == port)
            return true;
    return port == spec->endpoint_port;
}

/* Listens at a port that the kernel chooses, but not at one of the endpoint's. If that was free, no
 * leader could use it any more, and nodes that look for the leader would find this node. Of several
 * ports it takes one if --port-range leaves no other. */
static int listen_beside(const struct addr *at, const struct job_spec *spec, int *ret_fd,
                         struct err *err) {
    struct addr own;
    int taken[JOB_ENDPOINT_PORTS_MAX + 1], r;
    size_t n = 0;
    if (spec->port_low > 0 && spec->n_endpoint_ports > 0) {
        listen_set_last(spec->endpoint_ports, spec->n_endpoint_ports);
        return listen_socket(at, NODE_BACKLOG, ret_fd, err);
    }
    do /* those that it must not have stay taken, so that the next one is another */
        r = listen_socket(at, NODE_BACKLOG, &taken[n], err);
    while (r == 0 && addr_of_socket(taken[n], &own) == 0 &&
           is_endpoint_port(spec, addr_port(&own)) && ++n < ARRAY_SIZE(taken));
    if (r == 0)
        *ret_fd = taken[n];
    while (n > 0)
        (void)close(taken[--n]);
    return r;
}

/* The node's own listening socket: only of this machine if the job can't leave it, else of all
 * addresses. By which ones the leader and the neighbours will come is known only when this node
 * joins: from then on rdzv_listener_choose() leaves those. */
static int open_node_listener(const struct job_spec *spec, int *ret_fd, struct err *err) {
    struct addr at;
    int r;
    /* With an arbiter any node may have to lead, so all nodes must be able to reach it. */
    bool any = job_backend(spec)->any_node_leads;
    bool local = !any && (spec->endpoint_host == NULL || spec->rdzv.max_nodes == 1 ||
                          strcmp(spec->endpoint_host, "localhost") == 0);
    if (!any && !local && addr_from_literal(spec->endpoint_host, 0, &at) == 0)
        local = addr_is_loopback(&at);
    if ((any || local) && addr_loopback_is_down())
        return err_set(err, -ENETDOWN, AGENT_NO_LOOPBACK);
    if (local && spec->endpoint_host != NULL && strcmp(spec->endpoint_host, "::1") == 0) {
        /* nodes are seen to come from there, and have no other IPv6 address that is local */
        r = addr_from_literal("::1", 0, &at);
        assert(r == 0);
        return listen_beside(&at, spec, ret_fd, err);
    }
    if (!any && !local && spec->local_addr != NULL &&
        addr_from_literal(spec->local_addr, 0, &at) == 0)
        return listen_beside(&at, spec, ret_fd, err);
    r = addr_from_literal(local ? "127.0.0.1" : "::", 0, &at);
    assert(r == 0);
    r = listen_beside(&at, spec, ret_fd, err);
    if (r == 0 || local)
        return r;
    r = addr_from_literal("0.0.0.0", 0, &at); /* the machine has no IPv6 */
    assert(r == 0);
    return listen_beside(&at, spec, ret_fd, err);
}

/* Until it is known which agent leads, a line that is mixed with those of other nodes says whose.
 */
static void name_lines(const struct job_spec *spec) {
    static char own[RESOLVE_NAME_MAX + 1];
    if (!spec->in_step)
        return;
    resolve_own_name(own, sizeof own);
    log_set_name(own);
}

/* The python where the job was started: the head's, or without a head that of the environment which
 * is active by its variable alone, as in srun's. malloc'ed; NULL: not known. */
static char *python_at_start(const struct job_spec *spec, char *const *envp) {
    static const char *const names[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    const char *heads = env_get(envp, STARTER_PYTHON_ENV), *chosen = env_get(envp, "PYTHON_EXEC");
    if (heads != NULL)
        return xstrdup(heads);
    for (size_t i = 0; i < ARRAY_SIZE(names) && spec->in_step && chosen == NULL; i++) {
        const char *folder = env_get(envp, names[i]);
        if (folder != NULL && folder[0] == '/')
            return xasprintf("%s/bin/python", folder);
    }
    return NULL;
}

/* A virtual environment that this host lacks: the job would run, with other packages. */
static void compare_python(const struct job_spec *spec, const char *python, char *const *envp) {
    _cleanup_(freep) char *there = python_at_start(spec, envp);
    if (there != NULL && python != NULL && strcmp(there, python) != 0 && access(there, X_OK) < 0)
        log_warning(
            "there is no %.300s here, as where the job was started: %.300s runs the workers", there,
            python);
    else if (spec->entry != JOB_ENTRY_PROGRAM && python != NULL &&
             env_get(envp, STARTER_PYTHON_ENV) == NULL) /* else the head has done it */
        python_warn_of_other(python, envp);
    if (spec->entry != JOB_ENTRY_PROGRAM && python != NULL)
        log_info("%s runs the workers", python);
}

/* In the guardian, which talks to nobody. */
static void forget_secrets(void *arg) {
    struct agent_config *agent = arg;
    keyring_clear(agent->given);
    keyring_clear(agent->keys);
    starter_drop_fds(agent->envp);
}

int job_start(const struct job_spec *spec, char *const *envp, struct keyring *given) {
    struct err err = {0};
    struct agent_config agent = {.spec = spec, .envp = envp, .given = given, .node_fd = -1};
    _cleanup_(freep) char *python = NULL;
    struct guardian_link link = GUARDIAN_LINK_INIT;
    int r = 0;
    file_open_standard();
    name_lines(spec);
    agent_ignore_passed_signals(spec);
    if (spec->entry != JOB_ENTRY_PROGRAM)
        r = python_find(program_invocation_name, envp, &python, &err);
    else if (spec->check_only && python_find(program_invocation_name, envp, &python, NULL) < 0)
        python = NULL; /* then the preflight can't compare PyTorch's version */
    compare_python(spec, python, envp);
    if (r == 0)
        r = start_keys(spec, given, &agent.keys, &err);
    if (r == 0)
        r = start_check(spec, python, envp, &err);
    if (r < 0) {
        log_error("%s", err.text);
        termination_write(envp, err.text);
        return AGENT_EXIT_USAGE;
    }
    if (spec->port_low > 0)
        listen_set_range(spec->port_low, spec->port_high);
    r = open_node_listener(spec, &agent.node_fd, &err);
    if (r == 0) {
        struct guardian_config guardian = {.listener_fd = agent.node_fd,
                                           .contain = spec->contain,
                                           .on_split = forget_secrets,
                                           .arg = &agent};
        r = guardian_fork(&guardian, &link, &err); /* only the agent returns from this */
    }
    if (r == 0) {
        keyring_keep_from_children(given);
        keyring_keep_from_children(agent.keys);
        agent.python = python;
        agent.link = &link;
        return agent_run(&agent);
    }
    log_error("%s", err.text);
    termination_write(envp, err.text);
    if (agent.node_fd >= 0)
        (void)close(agent.node_fd);
    return AGENT_EXIT_FAILED;
}
