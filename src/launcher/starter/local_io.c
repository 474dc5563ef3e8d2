/* Starts all agents of a job on this machine: --nnodes of them, as if each were a node. To try a
 * job of several nodes, and for tests. The smallest backend of starter_io.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "launcher/place/place.h"
#include "launcher/starter/starter_io.h"

/* The words of one agent. The endpoint comes before the user's words, which can override it. All
 * agents have one address, so is_host marks the first as the one at the endpoint. */
static char **words_of(const struct starter_run_config *config, uint32_t i, const char *program) {
    uint16_t ports[PLACE_PORTS_MAX];
    _cleanup_(strbuf_fini) struct strbuf endpoint = {0};
    size_t n_ports = place_ports(config->spec->run_id, PLACE_PORT_LOW, PLACE_PORT_HIGH, ports),
           n = 0;
    char **argv = NULL;
    for (size_t k = 0; k < n_ports; k++)
        strbuf_printf(&endpoint, "%s%u", k > 0 ? "," : "127.0.0.1:", ports[k]);
    words_add(&argv, &n, xstrdup(program));
    words_add(&argv, &n, xstrdup("run"));
    words_add(&argv, &n, xasprintf("--node-rank=%" PRIu32, i));
    if (!job_backend(config->spec)->any_node_leads) { /* else the user has given both */
        words_add(&argv, &n, xstrdup("--rdzv-backend=c10d"));
        words_add(&argv, &n, xasprintf("--rdzv-endpoint=%s", strbuf_text(&endpoint)));
    }
    words_add(&argv, &n, xasprintf("--rdzv-id=%s", config->spec->run_id));
    words_add(&argv, &n, xasprintf("--rdzv-conf=is_host=%d", i == 0));
    for (char *const *arg = config->args; *arg != NULL; arg++)
        words_add(&argv, &n, xstrdup(*arg));
    return argv;
}

static int start(void *arg, struct starter_run *r, struct err *err) {
    const struct starter_run_config *config = arg;
    _cleanup_(freep) char *program = NULL;
    int code = starter_real_program(config->argv0, config->envp, &program, err);
    for (uint32_t i = 0; i < config->spec->start_nodes && code == 0; i++) {
        _cleanup_(envlist_fini) struct envlist env = {0};
        _cleanup_(words_freep) char **argv = words_of(config, i, program);
        envlist_copy(&env, config->envp);
        code = starter_spawn(r, argv, &env, err);
    }
    return code;
}

static void describe(void *arg, struct starter_description *ret) {
    const struct starter_run_config *config = arg;
    (void)snprintf(ret->run_id, sizeof ret->run_id, "%s", config->spec->run_id);
    ret->ask = starter_program_word(config->argv0, config->envp);
}

int local_run(const struct starter_run_config *config) {
    static const struct starter_ops ops = {.start = start, .describe = describe};
    struct starter_run_config own = *config;
    return starter_run(&own, &ops, &own);
}
