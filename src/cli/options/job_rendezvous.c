#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "cli/options/job_options_priv.h"
#include "cli/options/suggest.h"
#include "launcher/place/place.h"

#define NAME_MAX_BYTES 24

/* Adds the script's name: without folders, without what follows its last dot, in characters that
 * need no quotes. Of a module, the last part. */
static void add_program(const struct job_spec *spec, struct strbuf *ret) {
    bool is_module = spec->entry == JOB_ENTRY_MODULE;
    const char *text = spec->script != NULL ? spec->script : "check", *dot = NULL;
    size_t begin = 0, end = strlen(text);
    while (end > 0 && text[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && text[begin - 1] != (is_module ? '.' : '/'); begin--)
        if (text[begin - 1] == '.' && dot == NULL)
            dot = text + begin - 1;
    if (dot != NULL && dot > text + begin)
        end = (size_t)(dot - text);
    for (; begin < end && ret->len < NAME_MAX_BYTES; begin++) {
        char c = text[begin];
        bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
        if (plain || ret->len > 0) /* a word that begins with a dash would be taken for an option */
            strbuf_add_char(ret, plain ? c : '-');
    }
    if (ret->len == 0)
        strbuf_add(ret, "job");
}

/* A name that people can read, and that no other job has: status and logs find a job by it, nodes
 * that muster starts recognize each other by it, and a directory or etcd keeps it after the end.
 * Two of 100 runs that start in one minute have the same six digits once in 3,000 times. Then log
 * folders get a number (logdir_claim_run()), and "muster status" lists both. */
static char *made_run_id(const struct job_reading *j) {
    struct strbuf id = {0};
    char stamp[JOB_STAMP_MAX];
    j->probes->stamp(j->probes->arg, stamp);
    add_program(j->spec, &id);
    strbuf_printf(&id, "-%s", stamp);
    return strbuf_take(&id);
}

void job_name_run(struct job_reading *j) {
    if (job_given(j, RUN_RDZV_ID))
        return;
    j->run_id = made_run_id(j);
    job_fill_in(j, RUN_RDZV_ID, j->run_id);
}

/* A job of this process alone: it shares no port with another job, and by default no name. */
static void be_standalone(struct job_reading *j, const char *run_id) {
    struct job_spec *spec = j->spec;
    spec->backend = JOB_BACKEND_C10D;
    spec->rdzv.min_nodes = spec->rdzv.max_nodes = 1;
    spec->endpoint_port = 0;
    spec->run_id = run_id != NULL ? xstrdup(run_id) : made_run_id(j);
}

#define ETCD_V2 "etcd-v2" /* torchrun's name for the older API of etcd */

enum job_backend job_backend_of(const char *name) {
    for (enum job_backend b = 1; b < JOB_BACKEND_COUNT; b++)
        if (strcmp(job_backends[b].name, name) == 0)
            return b;
    return strcmp(name, ETCD_V2) == 0 ? JOB_BACKEND_ETCD : 0;
}

static int backend_unknown(struct job_reading *j, const char *name) {
    struct suggest s = suggest_for(name);
    _cleanup_(strbuf_fini) struct strbuf names = {0};
    for (enum job_backend b = 1; b < JOB_BACKEND_COUNT; b++) {
        suggest_offer(&s, job_backends[b].name);
        strbuf_printf(&names, "%s%s",
                      b == 1                      ? ""
                      : b + 1 < JOB_BACKEND_COUNT ? ", "
                                                  : " or ",
                      job_backends[b].name);
    }
    suggest_offer(&s, ETCD_V2);
    return err_set(j->err, -EINVAL, "--rdzv-backend=%s: must be %s%s%s%s", name,
                   strbuf_text(&names), s.best != NULL ? "; did you mean \"" : "",
                   s.best != NULL ? s.best : "", s.best != NULL ? "\"?" : "");
}

/* The backend that the form of the endpoint implies; 0: none. */
static int endpoint_backend(struct job_reading *j, enum job_backend *ret) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = RDZV_PLACE_INIT;
    const char *endpoint = job_text(j, RUN_RDZV_ENDPOINT);
    struct err err = {0};
    *ret = 0;
    if (rdzv_endpoint_has_ports(endpoint)) {
        *ret = JOB_BACKEND_C10D;
        return 0;
    }
    int r = rdzv_place_parse(endpoint, &place, &err);
    if (r == 0)
        *ret = job_backends[place.backend].any_node_leads ? place.backend : 0;
    bool url = strstr(endpoint, "://") != NULL || strncmp(endpoint, "dir:", 4) == 0;
    return r == -EINVAL && url ? err_set(j->err, r, "%s", err.text) : 0;
}

/* A host can be called "dir" or "etcd", so a given backend decides. But a backend that can't use
 * the kind of endpoint is an error. */
static int choose_backend(struct job_reading *j, const struct rdzv_conf *conf) {
    const char *name = job_text(j, RUN_RDZV_BACKEND);
    enum job_backend by_form = 0, chosen = job_backend_of(name);
    if (chosen == 0)
        return backend_unknown(j, name);
    if (conf->store_file && chosen == JOB_BACKEND_C10D) {
        j->spec->backend = chosen; /* read_backend() looks at the endpoint */
        return 0;
    }
    if (conf->store_file)
        strbuf_printf(j->warnings, "--rdzv-conf: store_type has no effect with %s\n", name);
    int r = !job_backends[chosen].any_node_leads ? endpoint_backend(j, &by_form) : 0;
    if (r < 0)
        return r;
    if (by_form != 0 && by_form != chosen && job_given(j, RUN_RDZV_BACKEND)) {
        _cleanup_(freep) char *shown = rdzv_place_shown(job_text(j, RUN_RDZV_ENDPOINT));
        return err_set(j->err, -EINVAL,
                       "--rdzv-backend=%s can't meet at %.200s; use --rdzv-backend=%s, or leave "
                       "it out",
                       name, shown, job_backends[by_form].name);
    }
    j->spec->backend = by_form != 0 ? by_form : chosen;
    if (strcmp(name, ETCD_V2) == 0)
        strbuf_add(j->warnings, "--rdzv-backend=etcd-v2: muster speaks version 3 of etcd's API "
                                "(etcd 3.4 or newer), as with etcd\n");
    return 0;
}

static int read_run_id(struct job_reading *j) {
    const char *id = job_text(j, RUN_RDZV_ID);
    int r = utf8_check_line("--rdzv-id", id, JOB_RUN_ID_MAX - 1, j->err);
    if (r < 0)
        return r;
    const struct place *p = &j->spec->place;
    bool given = job_given(j, RUN_RDZV_ID) && id[0] != '\0';
    bool of_step = !given && j->spec->nodes == PLACE_NODES_STEP;
    if (of_step)
        job_derived(j, "rdzv_id: %s, from %s", p->run_id, p->from.run_id);
    j->spec->run_id_given = given || of_step || j->run_id != NULL;
    j->spec->run_id = xstrdup(of_step ? p->run_id : id[0] != '\0' ? id : "none");
    return 0;
}

/* The order of the nodes of a step is that of their tasks, which srun's -m can change; -1: none. */
static int32_t rank_of_step(struct job_reading *j) {
    const struct place *p = &j->spec->place;
    if (j->spec->nodes != PLACE_NODES_STEP || j->spec->rdzv.max_nodes == 1)
        return -1;
    job_derived(j, "node_rank: %u, from %s", p->proc_id, p->from.proc_id);
    return (int32_t)MIN2(p->proc_id, (uint32_t)RDZV_NODES_MAX - 1);
}

static int read_node_rank(struct job_reading *j, const struct rdzv_conf *conf) {
    struct job_spec *spec = j->spec;
    const char *text = job_text(j, RUN_NODE_RANK);
    int32_t rank = conf->rank;
    if (text != NULL && parse_python_i32(text, &rank) < 0)
        return job_bad_value(j, RUN_NODE_RANK, "a number");
    if (text == NULL && rank < 0)
        rank = rank_of_step(j);
    bool by_index = text == NULL && rank < 0 && (rank = job_rank_by_index(j)) >= 0;
    /* only a wish for the order; the ranks are assigned */
    if (!job_backend(spec)->ranks_are_chosen) {
        if (rank >= RDZV_NODES_MAX)
            return job_bad_value(j, RUN_NODE_RANK, "below 100000");
        spec->node_rank = MAX2(rank, -1);
        return 0;
    }
    if (text == NULL && rank < 0)
        rank = 0;
    if (rank != 0 && spec->rdzv.max_nodes == 1)
        return err_set(j->err, -EINVAL,
                       "--node-rank=%d: the job has one node, whose rank is 0; give --nnodes, the "
                       "same on all nodes",
                       rank);
    if (rank < 0 || (uint32_t)rank >= spec->rdzv.max_nodes)
        return err_set(j->err, -EINVAL, "%s=%d: must be from 0 to %u (--nnodes=%s)",
                       by_index ? "JOB_COMPLETION_INDEX" : "--node-rank", rank,
                       spec->rdzv.max_nodes - 1, job_text(j, RUN_NNODES));
    spec->node_rank = rank;
    return 0;
}

static int parse_master_port(struct job_reading *j, const char *text, int32_t *ret) {
    if (parse_python_i32(text, ret) < 0 || *ret < 0 || *ret > UINT16_MAX)
        return job_bad_value(j, RUN_MASTER_PORT, "a number up to 65535");
    return 0;
}

static int read_static(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const char *endpoint = job_text(j, RUN_RDZV_ENDPOINT);
    const char *port_text = job_text(j, RUN_MASTER_PORT);
    int32_t port, master_port = JOB_STATIC_PORT;
    int r = rdzv_endpoint_parse(endpoint, &spec->endpoint_host, &port, j->err);
    if (r == -EINVAL)
        return r;
    if (r == 0) {
        if (port < 0)
            return err_set(j->err, -EINVAL,
                           "--rdzv-endpoint=%s: static rendezvous needs a port: HOST:PORT",
                           endpoint);
        spec->endpoint_port = (uint16_t)port;
    } else {
        if (port_text != NULL && parse_master_port(j, port_text, &master_port) < 0)
            return -EINVAL;
        spec->endpoint_port = (uint16_t)master_port;
        const bool assumed = !job_given(j, RUN_MASTER_ADDR) && spec->nodes != PLACE_NODES_PODS;
        spec->endpoint_from = assumed ? JOB_ENDPOINT_ASSUMED : JOB_ENDPOINT_MASTER;
        if (assumed && spec->rdzv.max_nodes > 1)
            strbuf_printf(j->warnings,
                          "--nnodes without --master-addr or --rdzv-endpoint: this node looks for "
                          "the others at %s, where no other machine can reach it\n",
                          job_text(j, RUN_MASTER_ADDR));
        r = rdzv_endpoint_parse(job_text(j, RUN_MASTER_ADDR), &spec->endpoint_host, &port, j->err);
        if (r < 0 || port >= 0)
            return job_bad_value(j, RUN_MASTER_ADDR, "a host name or an address, without a port");
    }
    if (spec->endpoint_port == 0 && spec->rdzv.max_nodes > 1)
        return err_set(j->err, -EINVAL,
                       "port 0 (any free one) can't be found by %u nodes; name a port",
                       spec->rdzv.max_nodes);
    if (spec->rdzv.min_nodes != spec->rdzv.max_nodes)
        strbuf_printf(j->warnings,
                      "static rendezvous waits for all %u nodes; use --rdzv-backend=c10d for a "
                      "job that may run with fewer\n",
                      spec->rdzv.max_nodes);
    spec->rdzv.min_nodes = spec->rdzv.max_nodes;
    return 0;
}

/* The leader takes one of the ports: the nodes know it by the name of the run. */
static int read_ports(struct job_reading *j, const char *endpoint) {
    struct job_spec *spec = j->spec;
    int r = rdzv_endpoint_parse_ports(endpoint, JOB_ENDPOINT_PORTS_MAX, &spec->endpoint_host,
                                      spec->endpoint_ports, &spec->n_endpoint_ports, j->err);
    if (r < 0)
        return r;
    if (!spec->run_id_given)
        return err_set(j->err, -EINVAL,
                       "--rdzv-endpoint=%s: with several ports, the nodes need a --rdzv-id to "
                       "distinguish their leader from that of another job",
                       endpoint);
    spec->endpoint_port = spec->endpoint_ports[0];
    if (spec->n_endpoint_ports == 1)
        spec->n_endpoint_ports = 0;
    return 0;
}

static int read_c10d(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    int32_t port = -1;
    const char *endpoint = job_text(j, RUN_RDZV_ENDPOINT);
    if (rdzv_endpoint_has_ports(endpoint))
        return read_ports(j, endpoint);
    int r = rdzv_endpoint_parse(endpoint, &spec->endpoint_host, &port, j->err);
    if (r == -EINVAL)
        return r;
    if (r == -ENODATA) {
        spec->endpoint_host = xstrdup("localhost");
        strbuf_printf(j->warnings,
                      "no --rdzv-endpoint: the nodes meet at localhost:%d, which other hosts can't "
                      "reach\n",
                      JOB_C10D_PORT);
    }
    spec->endpoint_port = port >= 0 ? (uint16_t)port : JOB_C10D_PORT;
    if (spec->endpoint_port == 0 && spec->rdzv.max_nodes > 1)
        return err_set(j->err, -EINVAL,
                       "--rdzv-endpoint=%s: port 0 (any free one) can't be found by other nodes; "
                       "name a port",
                       endpoint);
    return 0;
}

static int read_standalone(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    if (spec->rdzv.min_nodes > 1)
        return err_set(j->err, -EINVAL,
                       "--standalone is for one node, and --nnodes=%s needs %u; give an "
                       "--rdzv-endpoint instead",
                       job_text(j, RUN_NNODES), spec->rdzv.min_nodes);
    be_standalone(j, NULL);
    return 0;
}

/* Other rendezvous than static: where the workers' store is, if the user said so. */
static int read_store_place(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    int32_t port, unused;
    if (job_backend(spec)->ranks_are_chosen || !job_given(j, RUN_MASTER_PORT))
        return 0;
    if (parse_master_port(j, job_text(j, RUN_MASTER_PORT), &port) < 0)
        return -EINVAL;
    spec->store_port = (uint16_t)port;
    if (port > 0 && job_given(j, RUN_MASTER_ADDR) &&
        (rdzv_endpoint_parse(job_text(j, RUN_MASTER_ADDR), &spec->store_host, &unused, j->err) <
             0 ||
         unused >= 0))
        return job_bad_value(j, RUN_MASTER_ADDR, "a host name or an address, without a port");
    return 0;
}

int job_port_range_parse(const char *text, uint16_t *ret_low, uint16_t *ret_high) {
    const char *dash = strchr(text, '-');
    _cleanup_(freep) char *low_text = xstrndup(text, dash != NULL ? (size_t)(dash - text) : 0);
    uint16_t low, high;
    if (dash == NULL || parse_port(low_text, &low) < 0 || parse_port(dash + 1, &high) < 0 ||
        low == 0 || high < low)
        return -EINVAL;
    *ret_low = low;
    *ret_high = high;
    return 0;
}

static int read_port_range(struct job_reading *j) {
    const char *text = job_text(j, RUN_PORT_RANGE);
    if (text == NULL || job_port_range_parse(text, &j->spec->port_low, &j->spec->port_high) == 0)
        return 0;
    return job_bad_value(j, RUN_PORT_RANGE,
                         "two ports, LOW-HIGH, from 1 to 65535 (one port: --master-port)");
}

static int read_backend(struct job_reading *j, const struct rdzv_conf *conf) {
    struct job_spec *spec = j->spec;
    if (job_value(j, RUN_STANDALONE)->times > 0)
        return read_standalone(j);
    if (spec->nodes == PLACE_NODES_STEP && !j->given.elsewhere) {
        int r = read_run_id(j);
        if (r == 0)
            job_meet_in_step(j);
        return r;
    }
    int r = choose_backend(j, conf);
    if (r == 0)
        r = read_run_id(j);
    if (r < 0)
        return r;
    const char *endpoint = job_text(j, RUN_RDZV_ENDPOINT);
    bool has_endpoint = endpoint[strspn(endpoint, " \t")] != '\0';
    if (job_backend(spec)->any_node_leads)
        return job_read_arbiter(j, conf);
    bool is_static = job_backend(spec)->ranks_are_chosen;
    if (!is_static && conf->store_file && has_endpoint) {
        spec->backend = JOB_BACKEND_DIR;
        return job_read_file(j);
    }
    has_endpoint |= is_static && job_text(j, RUN_MASTER_PORT) != NULL;
    if (spec->rdzv.max_nodes == 1 && !has_endpoint) {
        /* torchrun gives such a job a random id, even if the user named it. Keeping the name does
         * no harm, and the log folder is named after it. */
        _cleanup_(freep) char *id = TAKE_PTR(spec->run_id);
        be_standalone(j, spec->run_id_given ? id : NULL);
        spec->run_id_given = false;
        return 0;
    }
    r = is_static ? read_static(j) : read_c10d(j);
    /* Several nodes have the name in common: without --rdzv-id it is "none", as in torchrun. */
    if (r == 0 && spec->rdzv.max_nodes == 1 && !spec->run_id_given &&
        (is_static || spec->endpoint_port == 0)) {
        free(spec->run_id);
        spec->run_id = made_run_id(j);
    }
    return r;
}

static uint64_t given_or(uint64_t given, uint64_t fallback) { return given > 0 ? given : fallback; }

static int read_lease(struct job_reading *j, const struct rdzv_conf *conf) {
    struct rdzv_settings *s = &j->spec->rdzv;
    bool keep_alive = conf->keep_alive_interval_ns > 0 || conf->keep_alive_max_attempt > 0;
    uint64_t beats = s->lease_ns / s->heartbeat_ns;
    if (keep_alive) {
        s->heartbeat_ns = given_or(conf->keep_alive_interval_ns, JOB_KEEP_ALIVE_INTERVAL_NS);
        beats = conf->keep_alive_max_attempt > 0 ? conf->keep_alive_max_attempt
                                                 : JOB_KEEP_ALIVE_ATTEMPTS;
    }
    const char *text = job_text(j, RUN_HEARTBEAT_INTERVAL);
    if (text != NULL &&
        (parse_python_seconds_ns(text, &s->heartbeat_ns) < 0 || s->heartbeat_ns == 0))
        return job_bad_value(j, RUN_HEARTBEAT_INTERVAL, "a number of seconds above 0");
    /* parse_python_seconds_ns() bounds both at 1e9 s, so only attempts could overflow. */
    if (beats > UINT64_MAX / 2 / s->heartbeat_ns)
        return err_set(j->err, -EINVAL, "--rdzv-conf: keep_alive_max_attempt is too large");
    uint64_t least = keep_alive ? 0 : s->lease_ns;
    s->lease_ns = MAX2(s->heartbeat_ns * beats, least);
    text = job_text(j, RUN_LEASE);
    if (text != NULL && parse_python_seconds_ns(text, &s->lease_ns) < 0)
        return job_bad_value(j, RUN_LEASE, "a number of seconds above 0");
    /* With an arbiter, a leader grants no lease when a successor's echo is older than half a lease,
     * and echoes come with the heartbeats. */
    bool arbiter = job_backend(j->spec)->any_node_leads;
    if (s->lease_ns / (arbiter ? 2 : 1) <= s->heartbeat_ns)
        return err_set(j->err, -EINVAL,
                       "a lease of %g s is too short for a heartbeat every %g s; the lease must be "
                       "longer%s",
                       (double)s->lease_ns / 1e9, (double)s->heartbeat_ns / 1e9,
                       arbiter ? " than two heartbeats" : "");
    s->margin_ns = rdzv_margin_ns(s->lease_ns);
    return 0;
}

static int set_times(struct job_reading *j, const struct rdzv_conf *conf) {
    struct job_spec *spec = j->spec;
    struct rdzv_settings *s = &spec->rdzv;
    uint64_t join = s->join_timeout_ns;
    const struct job_backend_row *row = job_backend(spec);
    if (conf->bad_timeout != NULL && row->takes_timeout)
        return err_set(j->err, -EINVAL, "%s", conf->bad_timeout);
    if (row->takes_timeout)
        join = given_or(conf->timeout_ns, given_or(row->join_timeout_ns, join));
    else if (conf->timeout_ns > 0 || conf->bad_timeout != NULL)
        strbuf_printf(j->warnings, "--rdzv-conf: timeout has no effect with %s; use join_timeout\n",
                      row->name);
    s->join_timeout_ns = given_or(conf->join_timeout_ns, join);
    if (!job_given(j, RUN_REGROUP_WAIT))
        s->regroup_wait_ns = conf->regroup_ns;
    s->last_call_ns = given_or(conf->last_call_ns, s->last_call_ns);
    s->close_timeout_ns = given_or(conf->close_timeout_ns, s->close_timeout_ns);
    s->leader_timeout_ns = given_or(conf->read_timeout_ns, s->leader_timeout_ns);
    spec->is_host = conf->is_host;
    if (conf->is_host < 0 && spec->nodes == PLACE_NODES_STEP && spec->endpoint_host != NULL)
        spec->is_host = spec->place.is_first; /* names can be those of another network */
    else if (conf->is_host < 0 && spec->nodes == PLACE_NODES_PODS && j->spec->place.pod.index > 0)
        spec->is_host = 0; /* pod 0 finds its own name in /etc/hosts; to others it may come late */
    return 0;
}

/* As with torchrun, c10d has this setting, and static does not. With a directory or etcd the leader
 * may change, but the ranks stay, so rank 0 would not always be on the leader's node. */
bool job_shares_no_store(struct job_reading *j) {
    bool wanted = j->share_off_env != NULL && strcmp(j->share_off_env, "1") == 0;
    const struct job_backend_row *row = job_backend(j->spec);
    if (wanted && row->any_node_leads)
        strbuf_printf(j->warnings,
                      "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 has no effect with %s: workers use the "
                      "leader's store\n",
                      row->name);
    return wanted && !row->any_node_leads && !row->ranks_are_chosen;
}

int job_read_rendezvous(struct job_reading *j) {
    _cleanup_(rdzv_conf_fini) struct rdzv_conf conf = {0};
    int r = rdzv_conf_parse(job_text(j, RUN_RDZV_CONF), &conf, j->warnings, j->err);
    if (r == 0)
        r = job_meet_by_index(j, &conf);
    if (r == 0)
        r = read_backend(j, &conf);
    if (r == 0)
        r = read_store_place(j);
    if (r == 0)
        r = read_port_range(j);
    if (r == 0)
        job_choose_ports(j);
    if (r == 0)
        job_leave_port_open(j);
    if (r == 0)
        r = read_node_rank(j, &conf);
    if (r == 0)
        r = read_lease(j, &conf);
    if (r == 0)
        r = set_times(j, &conf);
    if (r < 0)
        return r;
    j->spec->workers_store = job_shares_no_store(j);
    job_warn_etcd_conf(j, &conf);
    return job_read_group(j);
}
