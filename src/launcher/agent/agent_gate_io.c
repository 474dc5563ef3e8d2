#include "base/text/log.h"
#include "launcher/agent/agent_priv.h"

static void on_line(void *arg, const char *line) {
    (void)arg;
    log_warning("%s", line);
}

void agent_make_gate(struct agent *a) {
    struct err err = {0};
    if (a->config.spec->auth == JOB_AUTH_NONE ||
        peer_gate_new(a->config.node_fd, on_line, a, &a->gate, &err) == 0)
        return;
    log_line(agent_show_is_brief(a) ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING,
             "this machine's kernel does not say whose connections they are (%s): all its users "
             "can talk to this job; with --auth=none muster doesn't ask",
             err.text);
}
