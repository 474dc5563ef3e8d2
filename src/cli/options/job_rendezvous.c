/* How the nodes of a job meet, and when their group changes. */
#include <errno.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "cli/options/job_reading.h"

/* Reads the endpoint, for the backend. */
static int read_place(struct job_reading *j, struct rdzv_place *ret) {
    const struct job_backend_row *row = job_backend(j->spec);
    int r = rdzv_place_parse_as(j->spec->backend, job_text(j, RUN_RDZV_ENDPOINT), ret, j->err);
    if (r == -ENODATA)
        return err_set(j->err, -EINVAL,
                       "--rdzv-backend=%s needs an --rdzv-endpoint, the same on all nodes: %s",
                       row->name, row->example);
    if (r == 0 && !job_id_is_common(j->spec))
        return err_set(j->err, -EINVAL,
                       "nodes that meet by %s need an --rdzv-id, the same on all nodes of the job "
                       "and of no other job",
                       row->name);
    return r;
}

static int take_dir(struct job_reading *j, struct rdzv_place *place) {
    if (place->dir[0] != '/') {
        _cleanup_(freep) char *cwd = j->probes->cwd();
        if (cwd == NULL)
            return err_set(j->err, -ENOENT,
                           "endpoint \"dir:%s\": the working directory is not known; give an "
                           "absolute path",
                           place->dir);
        rdzv_place_absolute(place, cwd);
    }
    j->spec->arbiter_dir = TAKE_PTR(place->dir);
    return 0;
}

static int read_dir(struct job_reading *j) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = {0};
    int r = read_place(j, &place);
    return r < 0 ? r : take_dir(j, &place);
}

/* torchrun's nodes meet in a file, whose name is the endpoint; ours in a directory beside it. The
 * run id can be left out, as with torchrun: the file's name stands for the job. */
static int read_file(struct job_reading *j) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = {0};
    int r = rdzv_place_parse_as(JOB_BACKEND_DIR, job_text(j, RUN_RDZV_ENDPOINT), &place, j->err);
    if (r < 0)
        return r;
    char *dir = xasprintf("%s.muster", place.dir);
    free(place.dir);
    place.dir = dir;
    strbuf_printf(
        j->warnings,
        "--rdzv-conf: store_type=file: the nodes meet in the directory %s; choose another "
        "one with --rdzv-endpoint=dir:PATH\n",
        place.dir);
    return take_dir(j, &place);
}

static char *copy(const char *text) { return text != NULL ? xstrdup(text) : NULL; }

/* An empty value is none. */
static char *copy_env(const struct job_reading *j, const char *name) {
    const char *value = env_get(j->envp, name);
    return value != NULL && value[0] != '\0' ? xstrdup(value) : NULL;
}

static int read_tls(struct job_reading *j, const struct rdzv_place *place) {
    struct job_spec *spec = j->spec;
    if (place->etcd_tls && j->conf.etcd_tls == 0)
        return err_set(j->err, -EINVAL,
                       "--rdzv-conf: protocol=http contradicts the endpoint, which asks for TLS");
    spec->etcd_tls = place->etcd_tls || j->conf.etcd_tls == 1;
    if (!spec->etcd_tls) {
        if (j->conf.etcd_cacert != NULL || j->conf.etcd_cert != NULL || j->conf.etcd_key != NULL)
            return err_set(j->err, -EINVAL,
                           "--rdzv-conf: cacert, ssl_cert and ssl_cert_key are for TLS; add "
                           "protocol=https, or write etcds:// in the endpoint");
        return 0;
    }
    if (j->conf.etcd_key != NULL && j->conf.etcd_cert == NULL)
        return err_set(j->err, -EINVAL,
                       "--rdzv-conf: ssl_cert_key=%s needs its certificate: ssl_cert",
                       j->conf.etcd_key);
    spec->etcd_cacert = copy(j->conf.etcd_cacert);
    spec->etcd_cert = copy(j->conf.etcd_cert);
    /* One file can have both, as with torchrun. */
    spec->etcd_key = copy(j->conf.etcd_key != NULL ? j->conf.etcd_key : j->conf.etcd_cert);
    return 0;
}

/* Other users can't see an environment, but they can see a command line. */
static void warn_visible(struct job_reading *j, enum run_option row) {
    if (!job_value(j, row)->from_env)
        strbuf_printf(j->warnings,
                      "the password in --%s is visible to all users of this host (ps); use "
                      "--rdzv-conf etcd_password_file=FILE or MUSTER_ETCD_PASSWORD\n",
                      run_options.defs[option_row(&run_options, row)].name);
}

static int read_password(struct job_reading *j, struct rdzv_place *place) {
    struct job_spec *spec = j->spec;
    if (place->password != NULL)
        warn_visible(j, RUN_RDZV_ENDPOINT);
    if (j->conf.etcd_password != NULL)
        warn_visible(j, RUN_RDZV_CONF);
    if (j->conf.etcd_password_file != NULL) {
        size_t len;
        int r = j->probes->read_file(JOB_FILE_SECRET, j->conf.etcd_password_file,
                                     &spec->etcd_password, &len, j->err);
        if (r < 0)
            err_prefix(j->err, "--rdzv-conf: etcd_password_file");
        return r;
    }
    spec->etcd_password = j->conf.etcd_password != NULL ? xstrdup(j->conf.etcd_password)
                          : place->password != NULL     ? TAKE_PTR(place->password)
                                                        : copy_env(j, "MUSTER_ETCD_PASSWORD");
    return 0;
}

static int read_user(struct job_reading *j, struct rdzv_place *place) {
    struct job_spec *spec = j->spec;
    spec->etcd_user = j->conf.etcd_user != NULL ? xstrdup(j->conf.etcd_user)
                      : place->user != NULL     ? TAKE_PTR(place->user)
                                                : copy_env(j, "MUSTER_ETCD_USER");
    int r = read_password(j, place);
    if (r == 0 && spec->etcd_user != NULL && spec->etcd_password == NULL)
        return err_set(j->err, -EINVAL,
                       "etcd user \"%.100s\" has no password; give --rdzv-conf "
                       "etcd_password_file=FILE or MUSTER_ETCD_PASSWORD",
                       spec->etcd_user);
    if (r == 0 && spec->etcd_user == NULL && spec->etcd_password != NULL)
        return err_set(j->err, -EINVAL,
                       "there is a password for etcd, and no user; give --rdzv-conf "
                       "etcd_user=NAME or MUSTER_ETCD_USER");
    if (r == 0 && spec->etcd_password != NULL && !spec->etcd_tls)
        strbuf_add(j->warnings, "the password for etcd goes over the network unencrypted; use "
                                "etcds:// (TLS)\n");
    return r;
}

static int read_etcd(struct job_reading *j) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = {0};
    struct job_spec *spec = j->spec;
    int r = read_place(j, &place);
    if (r < 0)
        return r;
    if (j->conf.etcd_prefix != NULL) {
        free(place.etcd_prefix);
        place.etcd_prefix = rdzv_prefix_normal(j->conf.etcd_prefix, strlen(j->conf.etcd_prefix));
        if (place.etcd_prefix == NULL)
            return err_set(j->err, -EINVAL,
                           "--rdzv-conf: etcd_prefix must have no ? or #, no control characters "
                           "and at most %d bytes",
                           RDZV_PATH_MAX);
    }
    spec->etcd_prefix =
        place.etcd_prefix != NULL ? TAKE_PTR(place.etcd_prefix) : xstrdup(RDZV_ETCD_PREFIX);
    spec->etcd_endpoints = TAKE_PTR(place.etcd_endpoints);
    r = read_tls(j, &place);
    return r < 0 ? r : read_user(j, &place);
}

static int read_arbiter(struct job_reading *j) {
    switch (j->spec->backend) {
    case JOB_BACKEND_DIR: return read_dir(j);
    case JOB_BACKEND_ETCD: return read_etcd(j);
    case JOB_BACKEND_STATIC:
    case JOB_BACKEND_C10D:
    case JOB_BACKEND_COUNT: break;
    }
    assert_not_reached();
}

static int warn_of_conf(struct job_reading *j) {
    if (j->spec->backend != JOB_BACKEND_ETCD && j->conf.is_about_etcd)
        strbuf_add(j->warnings, "--rdzv-conf: keys about etcd have no effect without etcd\n");
    return 0;
}

/* A job of this process alone: it shares no port with another job, and by default no name. */
static void be_standalone(struct job_reading *j, const char *run_id) {
    struct job_spec *spec = j->spec;
    spec->backend = JOB_BACKEND_C10D;
    spec->rdzv.min_nodes = spec->rdzv.max_nodes = 1;
    spec->endpoint_port = 0;
    spec->run_id = run_id != NULL ? xstrdup(run_id) : job_made_run_id(j);
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
    suggest_offer(&s, JOB_ETCD_V2);
    return err_set(j->err, -EINVAL, "--rdzv-backend=%s: must be %s%s%s%s", name,
                   strbuf_text(&names), s.best != NULL ? "; did you mean \"" : "",
                   s.best != NULL ? s.best : "", s.best != NULL ? "\"?" : "");
}

/* The backend that the form of the endpoint implies; 0: none. */
static int endpoint_backend(struct job_reading *j, enum job_backend *ret) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = {0};
    const char *endpoint = job_text(j, RUN_RDZV_ENDPOINT);
    struct err err = {0};
    int r = rdzv_place_parse(endpoint, &place, &err);
    bool is_clear = r == 0 && (job_backends[place.backend].any_node_leads || place.ports.n > 1);
    *ret = is_clear ? place.backend : 0;
    bool url = strstr(endpoint, "://") != NULL || strncmp(endpoint, "dir:", 4) == 0;
    return r == -EINVAL && url ? err_set(j->err, r, "%s", err.text) : 0;
}

/* A host can be called "dir" or "etcd", so a given backend decides; it must fit the endpoint. */
static int choose_backend(struct job_reading *j) {
    const char *name = job_text(j, RUN_RDZV_BACKEND);
    enum job_backend by_form = 0, chosen = job_backend_of(name);
    if (chosen == 0)
        return backend_unknown(j, name);
    if (j->conf.store_file && chosen == JOB_BACKEND_C10D) {
        j->spec->backend = chosen; /* read_backend() looks at the endpoint */
        return 0;
    }
    if (j->conf.store_file)
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
    if (strcmp(name, JOB_ETCD_V2) == 0)
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
    j->spec->run_id_is = given || of_step || j->run_id != NULL ? JOB_RUN_ID_COMMON : JOB_RUN_ID_OWN;
    j->spec->run_id = xstrdup(of_step ? p->run_id : id[0] != '\0' ? id : "none");
    return 0;
}

/* The order of the nodes of a step is that of their tasks, which srun's -m can change; -1: none.
 * The node's number that another launcher gave counts also where the user chose the endpoint. */
static int32_t rank_of_step(struct job_reading *j) {
    const struct place *p = &j->spec->place;
    const bool by_launcher = p->launcher != NULL && place_is_group(p) && p->most_tasks == 1;
    const uint32_t rank = p->launcher != NULL ? p->node_id : p->proc_id;
    if ((j->spec->nodes != PLACE_NODES_STEP && !by_launcher) || j->spec->rdzv.max_nodes == 1)
        return -1;
    job_derived(j, "node_rank: %u, from %s", rank, p->from.proc_id);
    return (int32_t)MIN2(rank, (uint32_t)RDZV_NODES_MAX - 1);
}

static int read_node_rank(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const char *text = job_text(j, RUN_NODE_RANK);
    int32_t rank = j->conf.rank;
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

/* What static rendezvous does. */
static void wait_for_all(struct job_reading *j) {
    struct rdzv_settings *s = &j->spec->rdzv;
    if (s->min_nodes != s->max_nodes)
        strbuf_printf(j->warnings,
                      "static rendezvous waits for all %u nodes; use --rdzv-backend=c10d for a "
                      "job that may run with fewer\n",
                      s->max_nodes);
    s->min_nodes = s->max_nodes;
}

static int read_master_addr(struct job_reading *j, char **ret_host) {
    struct rdzv_ports ports;
    int r = rdzv_endpoint_parse(job_text(j, RUN_MASTER_ADDR), ret_host, &ports, j->err);
    return r == 0 && ports.n == 0
               ? 0
               : job_bad_value(j, RUN_MASTER_ADDR, "a host name or an address, without a port");
}

static int read_static(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const char *endpoint = job_text(j, RUN_RDZV_ENDPOINT);
    const char *port_text = job_text(j, RUN_MASTER_PORT);
    int32_t master_port = JOB_STATIC_PORT;
    struct rdzv_ports ports;
    int r = rdzv_endpoint_parse(endpoint, &spec->endpoint_host, &ports, j->err);
    if (r == -EINVAL)
        return r;
    if (r == 0) {
        if (ports.n == 0)
            return err_set(j->err, -EINVAL,
                           "--rdzv-endpoint=%s: static rendezvous needs a port: HOST:PORT",
                           endpoint);
        spec->endpoint_port = ports.list[0];
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
        r = read_master_addr(j, &spec->endpoint_host);
        if (r < 0)
            return r;
    }
    if (spec->endpoint_port == 0 && spec->rdzv.max_nodes > 1)
        return err_set(j->err, -EINVAL,
                       "port 0 (any free one) can't be found by %u nodes; name a port",
                       spec->rdzv.max_nodes);
    wait_for_all(j);
    return 0;
}

/* Of several ports the leader takes one: the nodes know it by the name of the run. */
static int read_c10d(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    struct rdzv_ports ports = {.n = 0};
    const char *endpoint = job_text(j, RUN_RDZV_ENDPOINT);
    int r = rdzv_endpoint_parse(endpoint, &spec->endpoint_host, &ports, j->err);
    if (r == -EINVAL)
        return r;
    if (r == -ENODATA) {
        spec->endpoint_host = xstrdup("localhost");
        strbuf_printf(j->warnings,
                      "no --rdzv-endpoint: the nodes meet at localhost:%d, which other hosts can't "
                      "reach\n",
                      JOB_C10D_PORT);
    }
    if (ports.n > 1 && !job_id_is_common(spec))
        return err_set(j->err, -EINVAL,
                       "--rdzv-endpoint=%s: with several ports, the nodes need a --rdzv-id to "
                       "distinguish their leader from that of another job",
                       endpoint);
    spec->endpoint_port = ports.n > 0 ? ports.list[0] : JOB_C10D_PORT;
    spec->n_endpoint_ports = ports.n > 1 ? ports.n : 0;
    memcpy(spec->endpoint_ports, ports.list, sizeof ports.list);
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
    int32_t port;
    if (job_backend(spec)->ranks_are_chosen || !job_given(j, RUN_MASTER_PORT))
        return 0;
    if (parse_master_port(j, job_text(j, RUN_MASTER_PORT), &port) < 0)
        return -EINVAL;
    spec->store_port = (uint16_t)port;
    return port > 0 && job_given(j, RUN_MASTER_ADDR) ? read_master_addr(j, &spec->store_host) : 0;
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

/* job_read_starter() has chosen the first host. */
static int meet_at_host(struct job_reading *j) {
    const bool is_static = job_backend(j->spec)->ranks_are_chosen;
    if (j->conf.store_file)
        strbuf_printf(j->warnings, "--rdzv-conf: store_type has no effect %s\n",
                      is_static ? "with static" : "without an --rdzv-endpoint");
    if (is_static)
        wait_for_all(j);
    return read_run_id(j);
}

static int read_backend(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    if (job_is_on(j, RUN_STANDALONE))
        return read_standalone(j);
    if (job_meets_at_host(spec))
        return meet_at_host(j);
    if (spec->nodes == PLACE_NODES_STEP && !j->given.elsewhere) {
        int r = read_run_id(j);
        if (r == 0)
            job_meet_in_step(j);
        return r;
    }
    int r = choose_backend(j);
    if (r == 0)
        r = read_run_id(j);
    if (r < 0)
        return r;
    bool has_endpoint = !job_is_blank(job_text(j, RUN_RDZV_ENDPOINT));
    if (job_backend(spec)->any_node_leads)
        return read_arbiter(j);
    bool is_static = job_backend(spec)->ranks_are_chosen;
    if (!is_static && j->conf.store_file && has_endpoint) {
        spec->backend = JOB_BACKEND_DIR;
        return read_file(j);
    }
    has_endpoint |= is_static && job_text(j, RUN_MASTER_PORT) != NULL;
    if (spec->rdzv.max_nodes == 1 && !has_endpoint) {
        /* torchrun gives such a job a random id, even if the user named it. Keeping the name does
         * no harm, and the log folder is named after it. */
        _cleanup_(freep) char *id = TAKE_PTR(spec->run_id);
        be_standalone(j, job_id_is_common(spec) ? id : NULL);
        spec->run_id_is = JOB_RUN_ID_OWN;
        return 0;
    }
    r = is_static ? read_static(j) : read_c10d(j);
    /* Several nodes have the name in common: without --rdzv-id it is "none", as in torchrun. */
    if (r == 0 && spec->rdzv.max_nodes == 1 && !job_id_is_common(spec) &&
        (is_static || spec->endpoint_port == 0)) {
        free(spec->run_id);
        spec->run_id = job_made_run_id(j);
    }
    return r;
}

static uint64_t given_or(uint64_t given, uint64_t fallback) { return given > 0 ? given : fallback; }

static int read_lease(struct job_reading *j) {
    struct rdzv_settings *s = &j->spec->rdzv;
    bool keep_alive = j->conf.keep_alive_interval_ns > 0 || j->conf.keep_alive_max_attempt > 0;
    uint64_t beats = s->lease_ns / s->heartbeat_ns;
    if (keep_alive) {
        s->heartbeat_ns = given_or(j->conf.keep_alive_interval_ns, JOB_KEEP_ALIVE_INTERVAL_NS);
        beats = given_or(j->conf.keep_alive_max_attempt, JOB_KEEP_ALIVE_ATTEMPTS);
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

static int read_arbiter_lease(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    spec->rdzv.arbiter_lease_ns = MAX2(spec->rdzv.arbiter_lease_ns, 2 * spec->rdzv.lease_ns);
    const char *text = job_text(j, RUN_ARBITER_LEASE);
    if (text == NULL)
        return 0;
    if (parse_python_seconds_ns(text, &spec->rdzv.arbiter_lease_ns) < 0)
        return job_bad_value(j, RUN_ARBITER_LEASE, "a number of seconds, 0 or more");
    if (spec->rdzv.arbiter_lease_ns <= spec->rdzv.lease_ns)
        return err_set(j->err, -EINVAL,
                       "--arbiter-lease=%g is too short: it must be longer than a node's "
                       "lease (%g s)",
                       (double)spec->rdzv.arbiter_lease_ns / 1e9,
                       (double)spec->rdzv.lease_ns / 1e9);
    return 0;
}

static int set_times(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    struct rdzv_settings *s = &spec->rdzv;
    uint64_t join = s->join_timeout_ns;
    const struct job_backend_row *row = job_backend(spec);
    if (j->conf.bad_timeout != NULL && row->takes_timeout)
        return err_set(j->err, -EINVAL, "%s", j->conf.bad_timeout);
    if (row->takes_timeout)
        join = given_or(j->conf.timeout_ns, given_or(row->join_timeout_ns, join));
    else if (j->conf.timeout_ns > 0 || j->conf.bad_timeout != NULL)
        strbuf_printf(j->warnings, "--rdzv-conf: timeout has no effect with %s; use join_timeout\n",
                      row->name);
    s->join_timeout_ns = given_or(j->conf.join_timeout_ns, join);
    if (!job_given(j, RUN_REGROUP_WAIT))
        s->regroup_wait_ns = j->conf.regroup_ns;
    s->last_call_ns = given_or(j->conf.last_call_ns, s->last_call_ns);
    s->close_timeout_ns = given_or(j->conf.close_timeout_ns, s->close_timeout_ns);
    s->leader_timeout_ns = given_or(j->conf.read_timeout_ns, s->leader_timeout_ns);
    spec->is_host = j->conf.is_host;
    if (j->conf.is_host < 0 && spec->nodes == PLACE_NODES_STEP && spec->endpoint_host != NULL)
        spec->is_host = spec->place.is_first; /* names can be those of another network */
    else if (j->conf.is_host < 0 && spec->nodes == PLACE_NODES_PODS && j->spec->place.pod.index > 0)
        spec->is_host = 0; /* pod 0 finds its own name in /etc/hosts; to others it may come late */
    return 0;
}

/* As with torchrun, c10d has this setting, and static does not. With a directory or etcd the leader
 * may change, but the ranks stay, so rank 0 would not always be on the leader's node. */
int job_read_workers_store(struct job_reading *j) {
    const struct job_backend_row *row = job_backend(j->spec);
    bool wanted = job_env_is(j, JOB_OWN_STORE_ENV, "1");
    if (wanted && row->any_node_leads)
        strbuf_printf(j->warnings,
                      "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 has no effect with %s: workers use the "
                      "leader's store\n",
                      row->name);
    j->spec->workers_store = wanted && !row->any_node_leads && !row->ranks_are_chosen;
    return 0;
}

static int check_unit(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    if (rdzv_settings_unit_fits(&spec->rdzv))
        return 0;
    if (spec->rdzv.min_nodes == spec->rdzv.max_nodes)
        return err_set(j->err, -EINVAL, "--node-unit=%u: %u node%s no multiple of it; change one",
                       spec->rdzv.node_unit, spec->rdzv.max_nodes,
                       spec->rdzv.max_nodes == 1 ? " is" : "s are");
    return err_set(j->err, -EINVAL, "--node-unit=%u: no multiple of it lies in %u:%u nodes",
                   spec->rdzv.node_unit, spec->rdzv.min_nodes, spec->rdzv.max_nodes);
}

#define TOPOLOGY_MAX 127 /* bytes; RDZV_HOST_MAX with its NUL */

/* Reads the place of this node in the network, as Slurm's topology plugin describes it: switches
 * and node, from the top, separated by dots. srun(1), SLURM_TOPOLOGY_ADDR */
int job_read_topology(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const char *text = spec->place.topology != NULL ? spec->place.topology : "";
    bool fits = strlen(text) <= TOPOLOGY_MAX;
    free(spec->topology);
    spec->topology = xstrdup(fits ? text : "");
    free(spec->block);
    spec->block = spec->place.block != NULL ? xstrdup(spec->place.block) : NULL;
    const char *file = job_text(j, RUN_TOPOLOGY_FILE);
    if (file != NULL) {
        free(spec->topology_file);
        spec->topology_file = xstrdup(file);
    }
    if (!fits && spec->rdzv.rank_order == RANK_ORDER_TOPOLOGY)
        strbuf_printf(j->warnings,
                      "--rank-order=topology: SLURM_TOPOLOGY_ADDR is longer than %d bytes; this "
                      "node is ordered by its host name\n",
                      TOPOLOGY_MAX);
    return 0;
}

static int read_conf(struct job_reading *j) {
    return rdzv_conf_parse(job_text(j, RUN_RDZV_CONF), &j->conf, j->warnings, j->err);
}

int job_read_rendezvous(struct job_reading *j) {
    static job_step *const steps[] = {
        read_conf,          job_meet_by_index,      read_backend,   read_store_place,
        read_port_range,    job_choose_ports,       read_node_rank, read_lease,
        set_times,          job_read_workers_store, warn_of_conf,   check_unit,
        read_arbiter_lease, job_read_topology};
    return job_take_steps(j, steps, ARRAY_SIZE(steps));
}
