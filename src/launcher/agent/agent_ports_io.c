/* The agent that leads at an endpoint of several ports. It takes the first that is free. No other
 * agent of this machine takes another one of them for the same run, although they can come at the
 * same time, and although a port that was taken can become free: the leader holds a name as long as
 * it lives, and only its holder tries the ports. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text/log.h"
#include "base/text/port_list.h"
#include "base/text/strbuf.h"
#include "io/file.h"
#include "io/net/port_owner.h"
#include "io/net/sole_name.h"
#include "launcher/agent/agent_priv.h"
#include "rendezvous/protocol/endpoint_io.h"

bool agent_has_ports(const struct agent *a) { return a->config.spec->n_endpoint_ports > 1; }

/* The same in all agents of the run that can lead on this machine, however they write its name. */
static void name_of(const struct agent *a, char ret[SOLE_NAME_MAX]) {
    const struct job_spec *spec = a->config.spec;
    _cleanup_(strbuf_fini) struct strbuf ports = {0};
    port_list_text(spec->endpoint_ports, spec->n_endpoint_ports, &ports);
    uint64_t first = hash_text(hash_text(HASH_BEGIN, spec->run_id), strbuf_text(&ports));
    uint64_t second = hash_text(hash_text(first, strbuf_text(&ports)), spec->run_id);
    (void)snprintf(ret, SOLE_NAME_MAX, "muster-leads-%016" PRIx64 "%016" PRIx64, first, second);
}

/* 0; -EADDRINUSE: somebody holds the name; or another negative errno. If the holder is a user who
 * may not talk to this job, no agent of it leads here: *ret_stranger is the line about that. */
static _must_use_ int take_name(struct agent *a, char **ret_stranger) {
    const struct job_spec *spec = a->config.spec;
    char name[SOLE_NAME_MAX];
    uid_t uid;
    name_of(a, name);
    int r = sole_name_take(name, &a->lead_name);
    if (r != -EADDRINUSE || a->gate == NULL || sole_name_holder(name, &uid) < 0 || uid == 0 ||
        uid == geteuid())
        return r;
    *ret_stranger = xasprintf(
        "no agent of this machine can lead the run '%s': uid %u holds the name of a unix socket "
        "that its leader needs, @%s, for a run with the same id and ports, or to keep this one "
        "from starting; give all nodes another --rdzv-id, or one port: --rdzv-endpoint=HOST:PORT",
        spec->run_id, (unsigned)uid, name);
    return r;
}

/* "29400: nginx, pid 7": who has the port. */
static void add_owner(const char *host, uint16_t port, struct strbuf *out) {
    struct addr at;
    endpoint_bind_addr(host, port, &at);
    struct port_owner owner = port_owner_find(&at);
    strbuf_printf(out, "%s%u: ", out->len > 0 ? "; " : "", port);
    if (owner.pid > 0)
        strbuf_printf(out, "%s, pid %d", owner.name, (int)owner.pid);
    else
        strbuf_add(out, owner.listens ? "a process of another user" : "another process");
}

/* The first port that is free. -EADDRINUSE: none is. */
static int listen_at_first(const struct agent *a, const char *host, int *ret_fd, struct err *err) {
    const struct job_spec *spec = a->config.spec;
    _cleanup_(strbuf_fini) struct strbuf taken = {0};
    int r = -EADDRINUSE;
    for (unsigned i = 0; i < spec->n_endpoint_ports && r == -EADDRINUSE; i++) {
        uint16_t port = spec->endpoint_ports[i];
        r = endpoint_listen(host, port, ret_fd, err);
        if (r == -EADDRINUSE && log_enabled(LOG_LEVEL_INFO))
            add_owner(host, port, &taken);
        if (r == 0)
            log_info("run '%s' is led at %s, port %u%s%s%s", spec->run_id, host, port,
                     taken.len > 0 ? ", as ports are taken (" : "", strbuf_text(&taken),
                     taken.len > 0 ? ")" : "");
    }
    return r;
}

static void give_up_ports(struct agent *a, const char *host) {
    const struct job_spec *spec = a->config.spec;
    _cleanup_(strbuf_fini) struct strbuf owners = {0}, ports = {0};
    for (unsigned i = 0; i < spec->n_endpoint_ports; i++)
        add_owner(host, spec->endpoint_ports[i], &owners);
    port_list_text(spec->endpoint_ports, spec->n_endpoint_ports, &ports);
    _cleanup_(freep) char *text = xasprintf(
        "run '%s' can't be led at %s, ports %s: all are taken (%s); stop one of these programs, or "
        "give all nodes other ports: --rdzv-endpoint=HOST:LOW-HIGH",
        spec->run_id, host, strbuf_text(&ports), strbuf_text(&owners));
    agent_give_up(a, LIFE_EVENT_USAGE, text);
}

static void give_up_name(struct agent *a, int r) {
    char text[512];
    (void)snprintf(text, sizeof text,
                   "can't take a unix socket's name for the leader of the run '%.255s': %s; "
                   "give all nodes one port: --rdzv-endpoint=HOST:PORT",
                   a->config.spec->run_id, strerror(-r));
    agent_give_up(a, LIFE_EVENT_FAILURE, text);
}

void agent_notice_joins(const struct agent *a) {
    log_notice("--rdzv-conf=is_host=1: another agent of this machine already leads at the "
               "endpoint of the run '%s'; joining it",
               a->config.spec->run_id);
}

int agent_listen_at_ports(struct agent *a, const char *host, bool only_guessed, int *ret_fd) {
    _cleanup_(freep) char *stranger = NULL;
    struct err err = {0};
    int r = take_name(a, &stranger);
    if (stranger != NULL) {
        agent_give_up(a, LIFE_EVENT_USAGE, stranger);
        return -ECANCELED;
    }
    if (r == -EADDRINUSE) {
        /* the holder belongs to this run, so both lead to the same group */
        if (!only_guessed)
            agent_notice_joins(a);
        return r;
    }
    if (r < 0) {
        give_up_name(a, r);
        return -ECANCELED;
    }
    r = listen_at_first(a, host, ret_fd, &err);
    if (r == 0)
        return 0;
    if (r == -EADDRINUSE)
        give_up_ports(a, host);
    else
        agent_give_up(a, LIFE_EVENT_FAILURE, err.text);
    return -ECANCELED;
}

int agent_try_ports(struct agent *a, const char *host, int *ret_fd) {
    _cleanup_(freep) char *stranger = NULL;
    int r = take_name(a, &stranger);
    if (stranger != NULL && !a->told_stranger)
        log_warning("%s", stranger);
    a->told_stranger |= stranger != NULL;
    if (r == 0)
        r = listen_at_first(a, host, ret_fd, NULL);
    if (r < 0) /* all taken: perhaps by the last leader, which is at its end */
        file_close(&a->lead_name);
    return r;
}
