#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "cli/options/job_options_priv.h"

/* the longest sentence of job_derived(), with a folder */
#define DERIVED_MAX (RDZV_PATH_MAX + 256)

/* Reads the endpoint, for the backend. Fills in *ret, which must be RDZV_PLACE_INIT. */
static int read_place(struct job_reading *j, struct rdzv_place *ret) {
    const struct job_backend_row *row = job_backend(j->spec);
    int r = rdzv_place_parse_as(j->spec->backend, job_text(j, RUN_RDZV_ENDPOINT), ret, j->err);
    if (r == -ENODATA)
        return err_set(j->err, -EINVAL,
                       "--rdzv-backend=%s needs an --rdzv-endpoint, the same on all nodes: %s",
                       row->name, row->example);
    if (r == 0 && !j->spec->run_id_given)
        return err_set(j->err, -EINVAL,
                       "nodes that meet by %s need an --rdzv-id, the same on all nodes of the job "
                       "and of no other job",
                       row->name);
    return r;
}

/* Takes over place->dir. */
static int take_dir(struct job_reading *j, struct rdzv_place *place) {
    if (place->dir[0] != '/') {
        _cleanup_(freep) char *cwd = j->probes->cwd(j->probes->arg);
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
    _cleanup_(rdzv_place_fini) struct rdzv_place place = RDZV_PLACE_INIT;
    int r = read_place(j, &place);
    return r < 0 ? r : take_dir(j, &place);
}

/* torchrun's nodes meet in a file, whose name is the endpoint; ours in a directory beside it. The
 * run id can be left out, as with torchrun: the file's name stands for the job. */
int job_read_file(struct job_reading *j) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = RDZV_PLACE_INIT;
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

static int read_tls(struct job_reading *j, const struct rdzv_conf *conf,
                    const struct rdzv_place *place) {
    struct job_spec *spec = j->spec;
    if (place->etcd_tls && conf->etcd_tls == 0)
        return err_set(j->err, -EINVAL,
                       "--rdzv-conf: protocol=http contradicts the endpoint, which asks for TLS");
    spec->etcd_tls = place->etcd_tls || conf->etcd_tls == 1;
    if (!spec->etcd_tls) {
        if (conf->etcd_cacert != NULL || conf->etcd_cert != NULL || conf->etcd_key != NULL)
            return err_set(j->err, -EINVAL,
                           "--rdzv-conf: cacert, ssl_cert and ssl_cert_key are for TLS; add "
                           "protocol=https, or write etcds:// in the endpoint");
        return 0;
    }
    if (conf->etcd_key != NULL && conf->etcd_cert == NULL)
        return err_set(j->err, -EINVAL,
                       "--rdzv-conf: ssl_cert_key=%s needs its certificate: ssl_cert",
                       conf->etcd_key);
    spec->etcd_cacert = copy(conf->etcd_cacert);
    spec->etcd_cert = copy(conf->etcd_cert);
    /* One file can have both, as with torchrun. */
    spec->etcd_key = copy(conf->etcd_key != NULL ? conf->etcd_key : conf->etcd_cert);
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

static int read_password(struct job_reading *j, const struct rdzv_conf *conf,
                         struct rdzv_place *place) {
    struct job_spec *spec = j->spec;
    if (place->password != NULL)
        warn_visible(j, RUN_RDZV_ENDPOINT);
    if (conf->etcd_password != NULL)
        warn_visible(j, RUN_RDZV_CONF);
    if (conf->etcd_password_file != NULL) {
        int r = j->probes->read_secret(j->probes->arg, conf->etcd_password_file,
                                       &spec->etcd_password, j->err);
        if (r < 0)
            err_prefix(j->err, "--rdzv-conf: etcd_password_file");
        return r;
    }
    const char *env = j->etcd_password_env;
    spec->etcd_password = conf->etcd_password != NULL     ? xstrdup(conf->etcd_password)
                          : place->password != NULL       ? TAKE_PTR(place->password)
                          : env != NULL && env[0] != '\0' ? xstrdup(env)
                                                          : NULL;
    return 0;
}

static int read_user(struct job_reading *j, const struct rdzv_conf *conf,
                     struct rdzv_place *place) {
    struct job_spec *spec = j->spec;
    const char *env = j->etcd_user_env;
    spec->etcd_user = conf->etcd_user != NULL         ? xstrdup(conf->etcd_user)
                      : place->user != NULL           ? TAKE_PTR(place->user)
                      : env != NULL && env[0] != '\0' ? xstrdup(env)
                                                      : NULL;
    int r = read_password(j, conf, place);
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

static int read_etcd(struct job_reading *j, const struct rdzv_conf *conf) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = RDZV_PLACE_INIT;
    struct job_spec *spec = j->spec;
    int r = read_place(j, &place);
    if (r < 0)
        return r;
    if (conf->etcd_prefix != NULL) {
        free(place.etcd_prefix);
        place.etcd_prefix = rdzv_prefix_normal(conf->etcd_prefix, strlen(conf->etcd_prefix));
        if (place.etcd_prefix == NULL)
            return err_set(j->err, -EINVAL,
                           "--rdzv-conf: etcd_prefix must have no ? or #, no control characters "
                           "and at most %d bytes",
                           RDZV_PATH_MAX);
    }
    spec->etcd_prefix =
        place.etcd_prefix != NULL ? TAKE_PTR(place.etcd_prefix) : xstrdup(RDZV_ETCD_PREFIX);
    spec->etcd_endpoints = TAKE_PTR(place.etcd_endpoints);
    r = read_tls(j, conf, &place);
    return r < 0 ? r : read_user(j, conf, &place);
}

int job_read_arbiter(struct job_reading *j, const struct rdzv_conf *conf) {
    switch (j->spec->backend) {
    case JOB_BACKEND_DIR: return read_dir(j);
    case JOB_BACKEND_ETCD: return read_etcd(j, conf);
    case JOB_BACKEND_STATIC:
    case JOB_BACKEND_C10D:
    case JOB_BACKEND_COUNT: break;
    }
    assert_not_reached();
}

void job_warn_etcd_conf(struct job_reading *j, const struct rdzv_conf *conf) {
    if (j->spec->backend == JOB_BACKEND_ETCD)
        return;
    if (conf->etcd_tls >= 0 || conf->etcd_prefix != NULL || conf->etcd_cacert != NULL ||
        conf->etcd_cert != NULL || conf->etcd_key != NULL || conf->etcd_user != NULL ||
        conf->etcd_password != NULL || conf->etcd_password_file != NULL)
        strbuf_add(j->warnings, "--rdzv-conf: keys about etcd have no effect without etcd\n");
}

/* ---- a pod of an Indexed Job ---- */

void job_derived(struct job_reading *j, const char *fmt, ...) {
    va_list ap;
    char text[DERIVED_MAX];
    size_t n = 0;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    while (j->spec->derived != NULL && j->spec->derived[n] != NULL)
        n++;
    j->spec->derived = xrealloc(j->spec->derived, (n + 2) * sizeof *j->spec->derived);
    j->spec->derived[n] = xstrdup(text);
    j->spec->derived[n + 1] = NULL;
}

static bool is_blank(const char *text) { return text == NULL || text[strspn(text, " \t")] == '\0'; }

void job_fill_in(struct job_reading *j, enum run_option row, const char *text) {
    j->parsed.values[option_row(&run_options, row)].text = text;
}

/* The host at which a job of one node is to meet; NULL: none was given. malloc'ed */
static char *host_of_one(struct job_reading *j) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = RDZV_PLACE_INIT;
    const char *endpoint = job_text(j, RUN_RDZV_ENDPOINT);
    bool is_host =
        rdzv_place_parse(endpoint, &place, NULL) == 0 && place.backend == JOB_BACKEND_C10D;
    if (is_host)
        return TAKE_PTR(place.host);
    return is_blank(endpoint) && job_given(j, RUN_MASTER_ADDR) && job_given(j, RUN_MASTER_PORT)
               ? xstrdup(job_text(j, RUN_MASTER_ADDR))
               : NULL;
}

/* A Job whose pods each run a job of their own is usual, too. But a single node does not meet at
 * another pod. */
static int stay_alone(struct job_reading *j) {
    if (job_given(j, RUN_NNODES))
        return 0;
    _cleanup_(freep) char *host = host_of_one(j);
    if (j->spec->place.pod.index > 0 && host != NULL &&
        !place_pod_is_own(&j->spec->place.pod, host))
        return err_set(j->err, -EINVAL,
                       "this pod has index %u of an Indexed Job (JOB_COMPLETION_INDEX) and is to "
                       "meet others at %.200s, but no pod knows how many there are: give "
                       "--nnodes=N, the Job's `completions`",
                       j->spec->place.pod.index, host);
    job_derived(j,
                "nnodes: 1, because --nnodes is not given: this pod (JOB_COMPLETION_INDEX=%u) runs "
                "a job of its own; for one job of all pods give the Job's `completions`",
                j->spec->place.pod.index);
    return 0;
}

static int no_full_name(struct job_reading *j) {
    if (job_given(j, RUN_RDZV_BACKEND) || job_text(j, RUN_NODE_RANK) != NULL)
        return 0; /* perhaps several agents in this one pod */
    return err_set(j->err, -EINVAL,
                   "--nnodes=%s: the pods of this Job (JOB_COMPLETION_INDEX=%u) can't find each "
                   "other, because /etc/hosts has no full name of this pod: give the pod template "
                   "a `subdomain` and make a headless Service of that name, or give "
                   "--rdzv-endpoint=HOST:PORT",
                   job_text(j, RUN_NNODES), j->spec->place.pod.index);
}

static void meet_at_first(struct job_reading *j) {
    const struct place_pod *pod = &j->spec->place.pod;
    bool is_static = job_given(j, RUN_RDZV_BACKEND)
                         ? strcmp(job_text(j, RUN_RDZV_BACKEND), "static") == 0
                         : job_given(j, RUN_MASTER_PORT);
    if (is_static) {
        job_fill_in(j, RUN_MASTER_ADDR, pod->first_host);
        job_derived(j, "master_addr: %s, from this pod's full name in /etc/hosts, with index 0",
                    pod->first_host);
    } else {
        job_fill_in(j, RUN_RDZV_BACKEND, "c10d");
        job_fill_in(j, RUN_RDZV_ENDPOINT, pod->first_host);
        job_derived(j, "rdzv_endpoint: %s, from this pod's full name in /etc/hosts, with index 0",
                    pod->first_host);
    }
    if (!job_given(j, RUN_RDZV_ID)) {
        job_fill_in(j, RUN_RDZV_ID, pod->job);
        job_derived(j, "rdzv_id: %s, from this pod's full name in /etc/hosts", pod->job);
    }
    j->spec->nodes = PLACE_NODES_PODS;
}

/* Whether the backend is one with an endpoint, whose node leads. */
static bool has_leader_place(const struct job_reading *j) {
    enum job_backend backend = job_backend_of(job_text(j, RUN_RDZV_BACKEND));
    return backend != 0 && !job_backends[backend].any_node_leads;
}

/* Kubernetes sets no such index, but a pod template or an image may. Where the nodes meet by it, or
 * are numbered by it, each pod would wait alone. */
static int check_index(struct job_reading *j, const struct rdzv_conf *conf) {
    enum job_backend backend = job_backend_of(job_text(j, RUN_RDZV_BACKEND));
    bool is_bad =
        j->spec->place.pod.bad_index != NULL || (j->spec->place.pod.kind == PLACE_POD_INDEXED &&
                                                 j->spec->place.pod.index >= RDZV_NODES_MAX);
    bool is_placed = !is_blank(job_text(j, RUN_RDZV_ENDPOINT)) || job_given(j, RUN_MASTER_ADDR);
    bool counts = has_leader_place(j) && (backend == JOB_BACKEND_STATIC || !is_placed);
    bool is_alone = j->spec->rdzv.max_nodes == 1 || job_value(j, RUN_STANDALONE)->times > 0;
    if (is_alone || conf->store_file || conf->rank >= 0 || job_text(j, RUN_NODE_RANK) != NULL)
        return 0;
    if (!is_bad || !counts)
        return 0;
    return err_set(j->err, -EINVAL,
                   "JOB_COMPLETION_INDEX=\"%.64s\": must be this pod's index in its Indexed Job, "
                   "from 0 to %u, by which --nnodes=%s nodes find each other: leave it to "
                   "Kubernetes (completionMode: Indexed) or unset it, or give --node-rank",
                   env_get(j->envp, "JOB_COMPLETION_INDEX"), RDZV_NODES_MAX - 1,
                   job_text(j, RUN_NNODES));
}

int job_meet_by_index(struct job_reading *j, const struct rdzv_conf *conf) {
    const char *rank_text = job_text(j, RUN_NODE_RANK);
    int32_t rank = conf->rank;
    if (j->spec->nodes != PLACE_NODES_OF_USER)
        return 0; /* Slurm in a pod: the nodes are those of its step */
    int r = check_index(j, conf);
    if (r < 0)
        return r;
    if (j->spec->place.pod.kind != PLACE_POD_INDEXED ||
        j->spec->place.pod.index >= RDZV_NODES_MAX || conf->store_file ||
        job_value(j, RUN_STANDALONE)->times > 0)
        return 0;
    if (j->spec->rdzv.max_nodes == 1)
        return stay_alone(j);
    if (!is_blank(job_text(j, RUN_RDZV_ENDPOINT)) || job_given(j, RUN_MASTER_ADDR) ||
        !has_leader_place(j))
        return 0;
    if (rank_text != NULL && parse_python_i32(rank_text, &rank) < 0)
        return 0; /* it will be refused */
    if (rank >= 0 && (uint32_t)rank != j->spec->place.pod.index)
        return 0; /* the user numbers the nodes in another way: several Jobs, or several agents in a
                     pod */
    if (j->spec->place.pod.first_host[0] == '\0')
        return no_full_name(j);
    meet_at_first(j);
    return 0;
}

int32_t job_rank_by_index(struct job_reading *j) {
    bool counts = j->spec->place.pod.kind == PLACE_POD_INDEXED &&
                  j->spec->place.pod.index < RDZV_NODES_MAX && j->spec->rdzv.max_nodes > 1 &&
                  (j->spec->nodes == PLACE_NODES_PODS || job_backend(j->spec)->ranks_are_chosen);
    if (!counts)
        return -1;
    job_derived(j, "node_rank: %u, from JOB_COMPLETION_INDEX", j->spec->place.pod.index);
    return (int32_t)j->spec->place.pod.index;
}
