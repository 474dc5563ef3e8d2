/* Which processes are the nodes of a job, and where they meet, by the place of this one: a step of
 * Slurm, tasks of another launcher, an indexed pod, or hosts on which muster starts itself. */
#include <errno.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "cli/options/job_reading.h"
#include "launcher/srun/srun_command.h"
#include "launcher/ssh/ssh_boot.h"

#define STEP_FOLDER ".muster" /* in the working folder, for nodes that meet there */

/* Whether the user names a directory or etcd where the nodes meet. */
static bool says_elsewhere(const struct job_reading *j) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = {0};
    if (job_given(j, RUN_RDZV_BACKEND)) {
        enum job_backend backend = job_backend_of(job_text(j, RUN_RDZV_BACKEND));
        return backend != 0 && job_backends[backend].any_node_leads;
    }
    return rdzv_place_parse(job_text(j, RUN_RDZV_ENDPOINT), &place, NULL) == 0 &&
           job_backends[place.backend].any_node_leads;
}

/* Whether the user says where, or how, the nodes meet. With c10d, a master port is the store's. */
static bool says_where(const struct job_reading *j) {
    if (!job_is_blank(job_text(j, RUN_RDZV_ENDPOINT)))
        return true;
    if (job_given(j, RUN_RDZV_BACKEND))
        return job_backend_of(job_text(j, RUN_RDZV_BACKEND)) != JOB_BACKEND_C10D;
    return job_given(j, RUN_MASTER_ADDR) || job_given(j, RUN_MASTER_PORT);
}

static void take_nodes(struct job_reading *j) {
    struct rdzv_settings *s = &j->spec->rdzv;
    const struct place *p = &j->spec->place;
    s->min_nodes = s->max_nodes = p->n_nodes;
    if (p->n_nodes > 1)
        job_derived(j,
                    "nnodes: %u, from %s; --nnodes=MIN:%u for a job that may continue with fewer",
                    p->n_nodes, p->from.n_nodes, p->n_nodes);
    else
        job_derived(j, "nnodes: 1, from %s", p->from.n_nodes);
}

/* Whether the user accepts that each process is a job, or arranges how they find each other. */
static bool is_arranged(const struct job_reading *j) {
    const struct place_given *g = &j->given;
    return g->alone || j->spec->starter == JOB_STARTER_NONE ||
           (g->nnodes && (g->max_nodes == 1 || g->meets || g->elsewhere));
}

/* A launcher has started several processes, and muster cannot make one job of them. */
static int check_group(struct job_reading *j) {
    const struct place *p = &j->spec->place;
    char where[PLACE_TEXT_MAX];
    if (p->launcher == NULL || p->launcher->kind == LAUNCHER_ALLOC || is_arranged(j))
        return 0;
    place_text(p, where);
    if (p->n_nodes == 0)
        return err_set(j->err, -EINVAL,
                       "this is task %u of the %u of %s (%s), and how they find each other is not "
                       "known here; %s (or --standalone: each task is a job of its own)",
                       p->proc_id, p->n_tasks, where, p->from.n_nodes, p->launcher->advice);
    if (j->spec->nodes == PLACE_NODES_STEP && j->spec->rdzv.max_nodes > 1 &&
        p->first_host == NULL && !j->given.elsewhere)
        return err_set(j->err, -EINVAL,
                       "this is node %u of the %u of %s (%s), and no variable contains where they "
                       "meet; %s (or --standalone: each node is a job of its own)",
                       p->node_id, p->n_nodes, where, p->from.n_nodes,
                       p->launcher->advice != NULL ? p->launcher->advice
                                                   : "give --rdzv-endpoint=HOST:PORT");
    return 0;
}

int job_read_launcher(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const bool alone = job_is_on(j, RUN_STANDALONE), elsewhere = says_elsewhere(j);
    j->given = (struct place_given){
        .nnodes = job_given(j, RUN_NNODES),
        .min_nodes = spec->rdzv.min_nodes,
        .max_nodes = spec->rdzv.max_nodes,
        .nproc = job_given(j, RUN_NPROC_PER_NODE),
        .node_rank = job_given(j, RUN_NODE_RANK),
        .meets = alone || (!elsewhere && says_where(j)),
        .elsewhere = elsewhere,
        .alone = alone,
    };
    if (spec->place.slurm == PLACE_SLURM_NONE && spec->place.launcher == NULL)
        return 0;
    if (j->place_code < 0) /* what the user arranges needs no variables */
        return j->given.meets || j->given.nnodes || is_arranged(j)
                   ? 0
                   : err_set(j->err, j->place_code, "%s", j->place_err.text);
    int r = place_fill(&spec->place, &j->given, &j->fill, j->err);
    if (r < 0)
        return r;
    spec->nodes = j->fill.nodes;
    if (j->fill.nnodes)
        take_nodes(j);
    return check_group(j);
}

/* The folder where nodes can meet, because all of them see it; NULL: there is none. malloc'ed */
static char *shared_folder(const struct job_reading *j, const char **ret_name) {
    if (job_given(j, RUN_RDZV_BACKEND) || job_env_is(j, JOB_OWN_STORE_ENV, "1") ||
        j->probes->shared_folder == NULL)
        return NULL;
    _cleanup_(freep) char *cwd = j->probes->cwd();
    if (cwd == NULL || strlen(cwd) + sizeof STEP_FOLDER >= RDZV_PATH_MAX)
        return NULL;
    _cleanup_(freep) char *folder =
        xasprintf("%s%s" STEP_FOLDER, cwd, cwd[strlen(cwd) - 1] == '/' ? "" : "/");
    *ret_name = j->probes->shared_folder(folder);
    return *ret_name != NULL ? TAKE_PTR(folder) : NULL;
}

void job_meet_in_step(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const struct place *p = &spec->place;
    const char *name;
    spec->backend = JOB_BACKEND_C10D;
    spec->run_id_is = spec->rdzv.max_nodes > 1 ? JOB_RUN_ID_COMMON : JOB_RUN_ID_OWN;
    if (spec->rdzv.max_nodes == 1)
        return;
    /* other launchers may start a run of the same name again, which the folder would remember */
    spec->arbiter_dir = p->launcher == NULL ? shared_folder(j, &name) : NULL;
    if (spec->arbiter_dir == NULL) {
        spec->endpoint_host = xstrdup(p->first_host);
        return;
    }
    spec->backend = JOB_BACKEND_DIR;
    job_derived(j, "rdzv_endpoint: dir:%s, because the working folder is on %s, which nodes share",
                spec->arbiter_dir, name);
}

/* In a step, the ports go by its own name, as jobs of one --rdzv-id must not meet. */
int job_choose_ports(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const struct place *p = &spec->place;
    bool range = spec->port_low > 0;
    static_assert(PLACE_PORTS_MAX <= JOB_ENDPOINT_PORTS_MAX, "all fit");
    if (spec->nodes != PLACE_NODES_STEP || spec->endpoint_host == NULL)
        return 0;
    if (p->first_port > 0 && !range) {
        spec->endpoint_port = p->first_port;
        job_derived(j, "rdzv_endpoint: %s:%u, from %s", spec->endpoint_host, spec->endpoint_port,
                    p->from.first_host);
        return 0;
    }
    spec->n_endpoint_ports =
        (unsigned)place_ports(p->run_id, range ? spec->port_low : PLACE_PORT_LOW,
                              range ? spec->port_high : PLACE_PORT_HIGH, spec->endpoint_ports);
    spec->endpoint_port = spec->endpoint_ports[0];
    if (spec->n_endpoint_ports == 1)
        spec->n_endpoint_ports = 0;
    job_derived(j, "rdzv_endpoint: %s:%u (or one of %u further ports), from %s and the run's name",
                spec->endpoint_host, spec->endpoint_port, MAX2(spec->n_endpoint_ports, 1u) - 1,
                p->from.first_host);
    return 0;
}

/* The host at which a job of one node is to meet; NULL: none was given. malloc'ed */
static char *host_of_one(struct job_reading *j) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = {0};
    const char *endpoint = job_text(j, RUN_RDZV_ENDPOINT);
    bool is_host =
        rdzv_place_parse(endpoint, &place, NULL) == 0 && place.backend == JOB_BACKEND_C10D;
    if (is_host)
        return TAKE_PTR(place.host);
    return job_is_blank(endpoint) && job_given(j, RUN_MASTER_ADDR) && job_given(j, RUN_MASTER_PORT)
               ? xstrdup(job_text(j, RUN_MASTER_ADDR))
               : NULL;
}

/* A Job whose pods each run a job of their own is usual, too: they don't meet at another pod. */
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

static bool has_leader_place(const struct job_reading *j) {
    enum job_backend backend = job_backend_of(job_text(j, RUN_RDZV_BACKEND));
    return backend != 0 && !job_backends[backend].any_node_leads;
}

/* Kubernetes sets no such index, but a pod template or an image may. Where the nodes meet by it, or
 * are numbered by it, each pod would wait alone. */
static int check_index(struct job_reading *j) {
    enum job_backend backend = job_backend_of(job_text(j, RUN_RDZV_BACKEND));
    bool is_bad =
        j->spec->place.pod.bad_index != NULL || (j->spec->place.pod.kind == PLACE_POD_INDEXED &&
                                                 j->spec->place.pod.index >= RDZV_NODES_MAX);
    bool is_placed = !job_is_blank(job_text(j, RUN_RDZV_ENDPOINT)) || job_given(j, RUN_MASTER_ADDR);
    bool counts = has_leader_place(j) && (backend == JOB_BACKEND_STATIC || !is_placed);
    bool is_alone = j->spec->rdzv.max_nodes == 1 || job_is_on(j, RUN_STANDALONE);
    if (is_alone || j->conf.store_file || j->conf.rank >= 0 || job_text(j, RUN_NODE_RANK) != NULL)
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

int job_meet_by_index(struct job_reading *j) {
    const char *rank_text = job_text(j, RUN_NODE_RANK);
    int32_t rank = j->conf.rank;
    /* Slurm in a pod: the nodes are those of its step; or hosts, where muster starts them */
    if (j->spec->nodes != PLACE_NODES_OF_USER || job_meets_at_host(j->spec))
        return 0;
    int r = check_index(j);
    if (r < 0)
        return r;
    if (j->spec->place.pod.kind != PLACE_POD_INDEXED ||
        j->spec->place.pod.index >= RDZV_NODES_MAX || j->conf.store_file ||
        job_is_on(j, RUN_STANDALONE))
        return 0;
    if (j->spec->rdzv.max_nodes == 1)
        return stay_alone(j);
    if (!job_is_blank(job_text(j, RUN_RDZV_ENDPOINT)) || job_given(j, RUN_MASTER_ADDR) ||
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
char *job_made_run_id(const struct job_reading *j) {
    struct strbuf id = {0};
    char stamp[JOB_STAMP_MAX];
    j->probes->stamp(stamp);
    add_program(j->spec, &id);
    strbuf_printf(&id, "-%s", stamp);
    return strbuf_take(&id);
}

/* For the nodes that this process starts. */
static void name_run(struct job_reading *j) {
    if (job_given(j, RUN_RDZV_ID))
        return;
    j->run_id = job_made_run_id(j);
    job_fill_in(j, RUN_RDZV_ID, j->run_id);
}

void job_host_text(const struct host *host, struct strbuf *out) {
    const bool v6 = strchr(host->name, ':') != NULL;
    if (host->user != NULL)
        strbuf_printf(out, "%s@", host->user);
    strbuf_printf(out, v6 ? "[%s]" : "%s", host->name);
    if (host->n_gpus == 0 && host->slots > 0)
        strbuf_printf(out, ":%u", host->slots);
    for (uint32_t i = 0; i < host->n_gpus; i++)
        strbuf_printf(out, "%s%u", i > 0 ? "," : " GPUs ", host->gpus[i]);
}

static bool says_hosts(const struct job_reading *j) {
    return job_given(j, RUN_HOST) || job_given(j, RUN_HOSTFILE) || job_given(j, RUN_INCLUDE) ||
           job_given(j, RUN_EXCLUDE);
}

/* In a job of several hosts, unless the user arranges where the nodes are. */
static bool wants_launcher(const struct job_reading *j) {
    const struct place_given *g = &j->given;
    return j->spec->starter == JOB_STARTER_AUTO && place_is_alloc(&j->spec->place) && !g->meets &&
           !g->alone && !g->node_rank && !(g->nnodes && g->max_nodes == 1);
}

static bool wants_ssh(const struct job_reading *j) {
    const enum job_starter starter = j->spec->starter;
    if (place_has_starter(&j->spec->place) || starter == JOB_STARTER_NONE)
        return false;
    return (starter >= JOB_STARTER_SSH && starter < JOB_STARTER_NONE) || says_hosts(j) ||
           wants_launcher(j);
}

/* Whose command is used in place of ssh; NULL: ssh. */
static const struct launcher *choose_launcher(const struct job_reading *j) {
    static const char *const words[] = {
#define ROW(name, word) [JOB_STARTER_##name] = (word),
        LAUNCHER_STARTERS(ROW)
#undef ROW
    };
    const enum job_starter starter = j->spec->starter;
    if (job_given(j, RUN_SSH))
        return NULL;
    if (starter > JOB_STARTER_SSH && starter < JOB_STARTER_NONE)
        return launcher_by_name(words[starter]);
    return starter == JOB_STARTER_AUTO && place_is_alloc(&j->spec->place) ? j->spec->place.launcher
                                                                          : NULL;
}

static int read_list(struct job_reading *j) {
    _cleanup_(freep) char *text = NULL;
    const struct place *place = &j->spec->place;
    struct hosts_input in = {.list = job_text(j, RUN_HOST),
                             .file = job_text(j, RUN_HOSTFILE),
                             .include = job_text(j, RUN_INCLUDE),
                             .exclude = job_text(j, RUN_EXCLUDE)};
    if (in.list == NULL && in.file == NULL)
        in.list = place->job_nodelist;
    if (in.list == NULL && in.include == NULL && in.exclude == NULL && in.file == NULL)
        return err_set(j->err, -EINVAL,
                       "--starter: no hosts are known; give them with -H or --hostfile");
    if (in.file != NULL) {
        int r = j->probes->read_file(JOB_FILE_HOSTS, in.file, &text, &in.len, j->err);
        if (r < 0) {
            err_prefix(j->err, "--hostfile");
            return r;
        }
        in.text = text;
    }
    return hosts_read(&in, &j->spec->hosts.list, j->err);
}

static const char *list_origin(const struct job_reading *j) {
    const char *from = j->spec->place.from.job_nodelist;
    return job_given(j, RUN_HOST)       ? "-H"
           : job_given(j, RUN_HOSTFILE) ? "--hostfile"
           : from != NULL               ? from
                                        : "SLURM_JOB_NODELIST";
}

/* As many as the job can have, in their order. */
static int choose(struct job_reading *j) {
    struct hosts *hosts = &j->spec->hosts.list;
    struct rdzv_settings *s = &j->spec->rdzv;
    const char *origin = list_origin(j);
    if (hosts->n > RDZV_NODES_MAX)
        return err_set(j->err, -ERANGE, "%s has %zu hosts, and a job at most %d", origin, hosts->n,
                       RDZV_NODES_MAX);
    if (!job_given(j, RUN_NNODES))
        s->min_nodes = s->max_nodes = (uint32_t)hosts->n;
    if (s->min_nodes > hosts->n)
        return err_set(j->err, -EINVAL,
                       "%u nodes are asked for, but %s has %zu host%s; leave --nnodes out, or name "
                       "more hosts",
                       s->min_nodes, origin, hosts->n, hosts->n == 1 ? "" : "s");
    if (s->max_nodes < hosts->n) {
        _cleanup_(freep) bool *keep = xcalloc(hosts->n, sizeof *keep);
        memset(keep, true, s->max_nodes * sizeof *keep);
        if (job_given(j, RUN_HOST) || s->max_nodes == 1)
            strbuf_printf(j->warnings,
                          "--nnodes=%s: only the first %u of the %zu hosts of %s take part\n",
                          job_text(j, RUN_NNODES), s->max_nodes, hosts->n, origin);
        hosts_keep(hosts, keep);
    }
    return 0;
}

/* "-H a b", as for pdsh. A script that only the hosts have usually has a folder or a suffix. */
static void warn_of_script(struct job_reading *j) {
    const char *script = j->spec->script;
    if (!job_given(j, RUN_HOST) || j->spec->entry != JOB_ENTRY_PYTHON ||
        strpbrk(script, "/.") != NULL || j->probes->is_there == NULL || j->probes->is_there(script))
        return;
    strbuf_printf(j->warnings,
                  "\"%.100s\" is taken for SCRIPT; if it is a host: -H takes them separated by "
                  "commas, as in -H %.100s,%.100s\n",
                  script, job_text(j, RUN_HOST), script);
}

/* What is wrong with the words of --ssh and --export, before anything is started. */
static int check_words(struct job_reading *j) {
    _cleanup_(envlist_fini) struct envlist env = {0};
    _cleanup_(words_freep) char **words = NULL;
    int r = job_given(j, RUN_SSH) ? ssh_words(job_text(j, RUN_SSH), &words, j->err) : 0;
    return r < 0 ? r : ssh_env(job_text(j, RUN_EXPORT), j->envp, &env, j->err);
}

static void warn_of_no_hosts(struct job_reading *j) {
    static const struct {
        enum run_option row;
        const char *name;
    } rows[] = {{RUN_SSH, "ssh"}, {RUN_EXPORT, "export"}};
    const bool over_ssh = j->spec->place.by == PLACE_BY_OWN_SSH;
    for (size_t i = 0; i < ARRAY_SIZE(rows) && !over_ssh; i++)
        if (job_given(j, rows[i].row))
            strbuf_printf(j->warnings,
                          "--%s has no effect: no hosts are given; name them with -H or "
                          "--hostfile\n",
                          rows[i].name);
}

/* Where the nodes meet: at the first of them, unless the user chooses another place. It listens at
 * a port that is free there, and only then the others start. */
static void arrange(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    const struct hosts *hosts = &spec->hosts.list;
    const enum job_backend backend = job_given(j, RUN_RDZV_BACKEND)
                                         ? job_backend_of(job_text(j, RUN_RDZV_BACKEND))
                                         : JOB_BACKEND_C10D;
    const bool is_chosen = !job_is_blank(job_text(j, RUN_RDZV_ENDPOINT)) ||
                           job_given(j, RUN_MASTER_ADDR) ||
                           (backend != JOB_BACKEND_C10D && job_given(j, RUN_MASTER_PORT));
    name_run(j);
    if (hosts->n == 1 || is_chosen || backend == 0 || job_backends[backend].any_node_leads)
        return;
    spec->backend = backend;
    spec->endpoint_from = JOB_ENDPOINT_OF_HOST;
    spec->endpoint_host = xstrdup(hosts->items[0].name);
    job_derived(j, "rdzv_endpoint: %s, the first host, at a port that is free there",
                spec->endpoint_host);
}

static void say_hosts(struct job_reading *j) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const struct hosts *hosts = &j->spec->hosts.list;
    for (size_t i = 0; i < MIN2(hosts->n, (size_t)16); i++) {
        strbuf_add(&text, i > 0 ? " " : "");
        job_host_text(&hosts->items[i], &text);
    }
    job_derived(j, "hosts: %s%s, %zu in all, from %s%s", strbuf_text(&text),
                hosts->n > 16 ? " ..." : "", hosts->n, list_origin(j),
                job_given(j, RUN_INCLUDE)   ? " and --include"
                : job_given(j, RUN_EXCLUDE) ? " and --exclude"
                                            : "");
}

static int check(struct job_reading *j) {
    const struct place *p = &j->spec->place;
    if (p->launcher != NULL && p->launcher->kind == LAUNCHER_INSIDE && p->n_tasks > 1)
        return err_set(j->err, -EINVAL,
                       "%s has started muster %u times already, so it does not start itself "
                       "on other hosts: leave -H and --hostfile out, or %s",
                       p->launcher->title, p->n_tasks, p->launcher->title);
    if (place_is_step(&j->spec->place) && j->spec->place.n_tasks > 1)
        return err_set(j->err, -EINVAL,
                       "srun has started muster on %u nodes already, so it does not start itself "
                       "over ssh: leave -H and --hostfile out, or srun",
                       j->spec->place.n_nodes);
    if (job_is_on(j, RUN_STANDALONE))
        return err_set(j->err, -EINVAL,
                       "--standalone is for one node that meets no other; leave it out to start "
                       "muster on other hosts");
    if (j->spec->starter == JOB_STARTER_SRUN || j->spec->starter > JOB_STARTER_NONE)
        return job_bad_value(j, RUN_STARTER,
                             "ssh, or left out, with -H, --hostfile, --include or --exclude");
    return 0;
}

static int read_hosts(struct job_reading *j) {
    int r = check(j);
    if (r == 0)
        r = read_list(j);
    if (r == 0)
        r = choose(j);
    if (r == 0)
        r = check_words(j);
    if (r < 0)
        return r;
    j->spec->hosts.by = choose_launcher(j);
    j->fill = (struct place_fill){0};
    j->spec->nodes = PLACE_NODES_OF_USER;
    j->spec->start_nodes = (uint32_t)j->spec->hosts.list.n;
    warn_of_script(j);
    say_hosts(j);
    arrange(j);
    return 0;
}

/* Open MPI binds tasks to a core, also if a node has only one. */
static void take_cpus(struct job_reading *j) {
    const struct place *p = &j->spec->place;
    const bool is_inside = p->launcher != NULL && p->launcher->kind == LAUNCHER_INSIDE;
    if (!place_has_one_agent(j->spec->nodes) || p->local_id > 0 ||
        (p->node_tasks == 1 && !is_inside))
        return;
    unsigned n = j->probes->serve_node(p);
    if (n > 0)
        job_derived(j, "cpus: %u, of this node's tasks together; %s bound this one to fewer", n,
                    is_inside ? p->launcher->title : "Slurm");
}

int job_read_starter(struct job_reading *j) {
    struct job_spec *spec = j->spec;
    if (wants_ssh(j))
        return read_hosts(j);
    warn_of_no_hosts(j);
    if (spec->starter > JOB_STARTER_NONE && !place_has_starter(&spec->place)) {
        spec->start_nodes = spec->rdzv.max_nodes;
        name_run(j);
        if (!j->given.meets && !j->given.elsewhere) { /* its agents get where they meet from it */
            job_fill_in(j, RUN_RDZV_BACKEND, "c10d");
            job_fill_in(j, RUN_RDZV_ENDPOINT, "127.0.0.1");
        }
        return 0;
    }
    int r = srun_choose(place_has_starter(&j->spec->place) ? JOB_STARTER_NONE : spec->starter,
                        &spec->place, &j->given, &spec->start_nodes, j->err);
    if (r < 0)
        return r;
    if (spec->start_nodes > 0)
        job_derived(j, "start_nodes: %u, from %s", spec->start_nodes,
                    j->given.nnodes ? "--nnodes and SLURM_JOB_NUM_NODES" : "SLURM_JOB_NUM_NODES");
    take_cpus(j);
    return 0;
}
