/* "muster env" and "muster run --dry-run": what workers of this node would get. */
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json/json.h"
#include "base/text/envlist.h"
#include "base/text/log.h"
#include "base/text/utf8.h"
#include "cli/help/help.h"
#include "cli/jobs/run_line_io.h"
#include "cli/jobs/screen_io.h"
#include "cli/jobs/shell_words.h"
#include "cli/options/commands.h"
#include "cli/options/options_table.h"
#include "cli/options/rdzv_text.h"
#include "io/net/resolver.h"
#include "launcher/node/node_setup_io.h"
#include "launcher/node/python_io.h"
#include "launcher/output/logdir_io.h"
#include "launcher/output/worker_logs_io.h"
#include "launcher/ssh/ssh_boot.h"
#include "launcher/worker/worker_env.h"
#include "nccl_env/facts/facts_io.h"
#include "nccl_env/facts/netif_choice.h"
#include "nccl_env/rules/resolve.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/net/netlink_io.h"
#include "topology/discover/sysfs/sysfs_io.h"

#define WIDTH 100 /* columns if standard output is not a terminal */

enum env_option {
    ENV_JSON,
    ENV_EXPLAIN,
    ENV_FROM,
    ENV_SYSROOT,
    ENV_ENDPOINT,
    ENV_NNODES,
    ENV_NPROC,
    /* The options of muster run; the last row is an option of env. */
    ENV_FIRST_OF_RUN,
};

static const struct option_def defs[] = {
    [ENV_JSON] = {"json", NULL, OPTION_SHORT, "print one JSON object"},
    [ENV_EXPLAIN] =
        {"explain", NULL, OPTION_SHORT,
         "print the reason and the source for each variable that is set, left alone or not set",
         .brief = "also why and where each is set"},
    [ENV_FROM] = {"from", "FILE", OPTION_SHORT,
                  "use the machine in this file, see muster topo --from",
                  .brief = "use the machine in this file, see muster topo"},
    [ENV_SYSROOT] = {"sysroot", "DIR", 0,
                     "read sys and proc of another machine, copied into this folder"},
    [ENV_ENDPOINT] = {"rdzv-endpoint", "HOST", OPTION_SHORT,
                      "the host that leads; it determines the network interface",
                      .brief = "the host that leads"},
    [ENV_NNODES] = {"nnodes", "N", OPTION_ENV | OPTION_SHORT, "number of nodes of the job",
                    .fallback = "1"},
    [ENV_NPROC] = {"nproc-per-node", "N", OPTION_ENV | OPTION_SHORT,
                   "workers of this node; by default one per visible GPU",
                   .brief = "workers of this node (one per visible GPU)"},
    [ENV_FIRST_OF_RUN] = AS_RUN("nccl-env", "what is set if nothing else sets it (full)",
                                .section = "As with muster run"),
    AS_RUN("preflight", "whether nodes are compared before they start (warn)"),
    AS_RUN("env", "set a variable; may be given several times"),
    AS_RUN("env-file", "the same from a file"),
    AS_RUN("nccl-comm-id", "also set NCCL_COMM_ID"),
    AS_RUN("nccl-debug", "also set NCCL_DEBUG=INFO"),
    AS_RUN("log-dir", "where NCCL's log files go"),
    AS_RUN("virtual-local-rank", "each worker sees its own GPU only"),
    AS_RUN("gpus-per-worker", "each worker sees its own GPUs only"),
    AS_RUN("bind", "CPUs of each worker, which --omp=cores counts"),
    AS_RUN("numa-binding", "CPUs of each worker as torchrun chooses them"),
    AS_RUN("omp", "OMP_NUM_THREADS if it is not set (torchrun)"),
    HELP_ROW(.section = "Other"),
    HELP_ALL_ROW,
};

const struct option_set env_options = {
    .command = "env",
    .operands = "",
    .about = "Shows the variables that workers of this node would get for NCCL, gloo and PyTorch, "
             "apart from their ranks. muster sets nothing that is already set by the environment, "
             "NCCL's configuration files or a cloud's plug-in.",
    .example = "--nnodes=2 --explain",
    OPTION_DEFS(defs),
};

/* What the workers of a job would find on a node, without a job. */
struct preview {
    struct job_spec *spec;
    const char *from, *sysroot; /* another machine; NULL: this one */
    const char *python;         /* that runs the workers; NULL: not known */
    struct topology topology;
    struct nccl_graph *graph;
    struct nccl_facts facts;
    struct netif_choice netif;
    struct rocm_gpu rocm[TOPO_GPUS_MAX];
    char *log_dir; /* of this node; ends in words in capitals; NULL: none */
    struct node_setup_input in;
    struct node_setup setup;
};

static void preview_fini(struct preview *p) {
    node_setup_fini(&p->setup);
    nccl_graph_free(p->graph);
    topology_fini(&p->topology);
    nccl_facts_fini(&p->facts);
    free(p->log_dir);
}

static bool is_live(const struct preview *p) { return p->from == NULL && p->sysroot == NULL; }

/* A run id that was not given is a random one. */
static const char *run_id_of(const struct job_spec *spec) {
    return job_id_is_common(spec) ? spec->run_id : "RUN_ID";
}

#define TEMP_DIR "TMPDIR/muster-XXXXXX"

static char *log_dir_of(const struct job_spec *spec) {
    if (spec->log_dir == NULL)
        return worker_logs_asked_for(spec) ? xstrdup(TEMP_DIR "/GENERATION/NODE") : NULL;
    if (logdir_is_null(spec->log_dir))
        return NULL;
    _cleanup_(freep) char *cwd = spec->log_dir[0] != '/' ? run_line_probes.cwd() : NULL;
    char name[LOGDIR_NAME_MAX + 1];
    logdir_sanitise(run_id_of(spec), name);
    return xasprintf("%s%s%s/%s/GENERATION/NODE", cwd != NULL ? cwd : "", cwd != NULL ? "/" : "",
                     spec->log_dir, name);
}

/* Before the next: what workers see of the machine, as far as `what` (DISCOVER_*) asks for it. */
static int look_at_machine(struct preview *p, unsigned what, struct err *err) {
    struct discovery_config config = {.what = what, .sysroot = p->sysroot};
    int r = p->from != NULL ? topology_load(p->from, &p->topology, err)
                            : topology_discover(&config, &p->topology, err);
    p->in.env.topology = r == 0 ? &p->topology : NULL;
    return r;
}

/* From a file alone only the topology is known. */
static void look_at_files(struct preview *p) {
    struct nccl_facts_config config = {
        .sysroot = p->sysroot, .envp = environ, .set = p->spec->env, .python = p->python};
    if (p->from != NULL)
        return;
    if (is_live(p) && p->topology.n_gpus > 0)
        node_raise_limits(); /* as a job does, before they are examined */
    nccl_facts_read(&config, &p->facts);
    p->in.env.facts = &p->facts;
}

/* leader: a literal address; "": the leader is not known. */
static int choose_netif(struct preview *p, const char *leader, struct err *err) {
    struct route_found route = {0};
    struct netif_input input = {.n_nodes = p->in.env.n_nodes, .leader_addr = leader};
    if (leader[0] != '\0' && is_live(p)) {
        int r = route_find(leader, &route, err);
        if (r < 0)
            return r;
    } else if (leader[0] != '\0') {
        (void)snprintf(route.netif, sizeof route.netif, "%s",
                       netif_by_subnet(&p->topology, leader));
    }
    input.route_netif = route.netif;
    input.route_source = route.source;
    netif_choose(&p->topology, &input, &p->netif);
    if (p->spec->preflight != JOB_PREFLIGHT_OFF && env_get(environ, "NCCL_SOCKET_IFNAME") == NULL)
        netif_note_fast(&p->topology, &input, &p->netif);
    p->in.env.netif = &p->netif;
    return 0;
}

/* After look_at_machine(). comm_id: where NCCL_COMM_ID would be, if it is asked for. */
static int look_at_the_rest(struct preview *p, const char *leader, const char *comm_id,
                            struct err *err) {
    struct env_input *env = &p->in.env;
    struct err graph_err = {0};
    p->in.spec = p->spec;
    p->in.rocm = p->rocm;
    p->log_dir = log_dir_of(p->spec);
    env->envp = environ;
    env->any_gpu = p->topology.n_gpus > 0 || (is_live(p) && discover_has_gpus());
    env->n_nodes = p->spec->rdzv.max_nodes;
    env->log_dir = p->log_dir;
    env->comm_id = p->spec->nccl_comm_id ? comm_id : NULL;
    env->preview = true;
    if (env->any_gpu && p->from == NULL)
        p->in.n_rocm = kfd_list_gpus(p->sysroot, p->rocm, TOPO_GPUS_MAX);
    if (env->topology == NULL)
        return 0;
    look_at_files(p);
    if (nccl_graph_new(&p->topology, &p->graph, &graph_err) < 0)
        log_warning("can't determine which NIC NCCL takes: %s", graph_err.text);
    env->graph = p->graph;
    return choose_netif(p, leader, err);
}

/* ---- muster env ---- */

static void add_row(char ***words, size_t *n, const struct options_parsed *parsed, size_t row) {
    const struct option_value *v = &parsed->values[row];
    const struct option_def *model = option_model(&defs[row]);
    const char *name = model->name, *text;
    if ((model->flags & OPTION_REPEATS) != 0)
        for (size_t i = 0; (text = option_repeated(parsed, row, i)) != NULL; i++)
            words_add(words, n, xasprintf("--%s=%s", name, text));
    else if (model->arg == NULL && v->times > 0)
        words_add(words, n, xasprintf("--%s", name));
    else if (model->arg != NULL && v->text != NULL)
        words_add(words, n, xasprintf("--%s=%s", name, v->text));
}

static bool has_gpus(void) { return true; }

/* By the command line of a job, so that options mean the same as in a job. nproc: NULL: not yet
 * known. Returns -1, or the exit status. */
static int read_arguments(const struct preview *p, const struct options_parsed *parsed,
                          const char *nproc, struct job_spec *ret) {
    _cleanup_(words_freep) char **words = NULL;
    size_t n = 0;
    /* about options that have no effect here; not shown */
    _cleanup_(strbuf_fini) struct strbuf warnings = {0};
    struct job_probes probes = run_line_probes;
    struct err err = {0};
    if (!is_live(p))
        probes.has_gpus = has_gpus; /* checked later */
    words_add(&words, &n, xstrdup("env"));
    words_add(&words, &n, xasprintf("--nnodes=%s", parsed->values[ENV_NNODES].text));
    words_add(&words, &n, xasprintf("--nproc-per-node=%s", nproc != NULL ? nproc : "1"));
    for (size_t row = ENV_FIRST_OF_RUN; defs[row].as != NULL; row++)
        add_row(&words, &n, parsed, row);
    words_add(&words, &n, xstrdup("--rdzv-backend=c10d")); /* does not meet other nodes */
    words_add(&words, &n, xstrdup("--rdzv-endpoint=127.0.0.1:1"));
    words_add(&words, &n, xstrdup("--no-python"));
    words_add(&words, &n, xstrdup("true"));
    int r = job_options_read((int)n, words, environ, &probes, &warnings, ret, &err);
    return r < 0 ? usage_error("env", "%s", err.text) : -1;
}

static void choose_nproc(struct preview *p) {
    const char *cuda = job_worker_value(p->spec, environ, "CUDA_VISIBLE_DEVICES");
    const struct rocm_visible names = {
        .rocr = job_worker_value(p->spec, environ, "ROCR_VISIBLE_DEVICES"),
        .hip = job_worker_value(p->spec, environ, "HIP_VISIBLE_DEVICES"),
        .cuda = cuda};
    uint32_t visible[TOPO_GPUS_MAX];
    bool unknown;
    uint32_t n = affinity_visible_gpus(&p->topology, cuda, visible, TOPO_GPUS_MAX, &unknown);
    if (n == 0)
        n = rocm_count_visible(p->rocm, p->in.n_rocm, &names);
    p->spec->nproc = MAX2(n / MAX2(p->spec->gpus_per_worker, 1u), 1u);
}

/* The host of the endpoint as a literal address; a name is looked up, which blocks for as long as
 * the resolver needs. */
static int leader_address(const char *endpoint, char ret[ADDR_TEXT_MAX], struct err *err) {
    _cleanup_(rdzv_place_fini) struct rdzv_place place = {0};
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n;
    int r = rdzv_place_parse(endpoint, &place, err);
    if (r < 0)
        return r == -ENODATA ? err_set(err, -EINVAL, "--rdzv-endpoint is empty") : r;
    if (place.host == NULL)
        return err_set(err, -EINVAL,
                       "--rdzv-endpoint=%s: there any node may lead; give one of them", endpoint);
    r = resolve_lookup(place.host, 0, addrs, &n);
    if (r != 0)
        return err_set(err, -ENOENT, "--rdzv-endpoint=%s: can't find the address of %s: %s",
                       endpoint, place.host, gai_strerror(r));
    addr_host_text(&addrs[0], ret);
    return 0;
}

static int discover(struct preview *p, const char *endpoint, bool counts, struct err *err) {
    const bool several = p->spec->rdzv.max_nodes > 1;
    char leader[ADDR_TEXT_MAX] = "";
    int r = look_at_machine(p, DISCOVER_ALL, err);
    if (r == 0 && endpoint != NULL && several)
        r = leader_address(endpoint, leader, err);
    const char *host = !several ? "127.0.0.1" : leader[0] != '\0' ? leader : "LEADER";
    _cleanup_(freep) char *comm_id =
        xasprintf(strchr(host, ':') != NULL ? "[%s]:PORT" : "%s:PORT", host);
    if (r == 0)
        r = look_at_the_rest(p, leader, comm_id, err);
    if (r == 0 && counts)
        choose_nproc(p);
    return r < 0 ? r : node_setup_make(&p->in, &p->setup, err);
}

static void write_machine(const struct preview *p, struct strbuf *to) {
    const struct topology *t = &p->topology;
    strbuf_printf(to, "%s: ", t->source == TOPO_LIVE && t->host[0] != '\0' ? t->host : t->from);
    if (t->n_gpus > 0)
        strbuf_printf(to, "%u GPU%s%s%s", t->n_gpus, t->n_gpus > 1 ? "s" : "",
                      t->gpus[0].name[0] != '\0' ? ", " : "", t->gpus[0].name);
    else
        strbuf_add(to, "no GPUs");
    if (p->in.env.facts == NULL) {
        strbuf_add(to, "; of its files nothing is known\n");
        return;
    }
    nccl_facts_describe(p->in.env.facts, to);
    strbuf_add_char(to, '\n');
}

static void write_rank(const struct preview *p, const struct option_value *v, uint32_t local_rank,
                       struct strbuf *to) {
    const struct env_result *r = p->setup.workers[local_rank].env;
    if (v[ENV_EXPLAIN].times > 0)
        env_write_explained(r, screen_columns() > 0 ? MIN2(screen_columns(), WIDTH) : WIDTH, to);
    else
        env_write_plain(r, to);
}

static int show_json(const struct preview *p) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct json_writer w = json_writer_of(&text);
    json_write_object_begin(&w, NULL);
    json_write_array_begin(&w, "ranks");
    for (uint32_t i = 0; i < p->setup.n; i++)
        env_write_json(p->setup.workers[i].env, i, &w);
    json_write_array_end(&w);
    json_write_object_end(&w);
    strbuf_add_char(&text, '\n');
    return print_text(&text);
}

/* Ranks that get the same variables are shown together. A heading is a comment, so that the plain
 * form can be used as a file for --env-file. */
static int show_text(const struct preview *p, const struct option_value *v) {
    bool explain = v[ENV_EXPLAIN].times > 0;
    _cleanup_(strbuf_fini) struct strbuf text = {0}, last = {0};
    if (explain)
        write_machine(p, &text);
    for (uint32_t first = 0, i = 0; i <= p->setup.n; i++) {
        struct strbuf one = {0};
        if (i < p->setup.n)
            write_rank(p, v, i, &one);
        if (i > 0 && (i == p->setup.n || strcmp(strbuf_text(&one), strbuf_text(&last)) != 0)) {
            const char *comment = explain ? "" : "# ";
            strbuf_add(&text, explain ? "\n" : "");
            if (i - first > 1)
                strbuf_printf(&text, "%slocal ranks %u-%u\n", comment, first, i - 1);
            else
                strbuf_printf(&text, "%slocal rank %u\n", comment, first);
            strbuf_printf(&text, "%s%s", explain ? "\n" : "", strbuf_text(&last));
            if (last.len == 0 && !explain)
                strbuf_add(&text, "# (no variable needs to be set on this node)\n");
            first = i;
        }
        strbuf_fini(&last);
        last = one;
    }
    /* Texts from files and devices must be cleaned before they are shown on a terminal. */
    if (text.len > 0)
        utf8_clean(text.data, true);
    return print_text(&text);
}

static int show(const struct options_parsed *parsed) {
    const struct option_value *v = parsed->values;
    _cleanup_(job_spec_fini) struct job_spec spec = {0};
    _cleanup_(freep) char *python = NULL;
    _cleanup_(preview_fini) struct preview p = {
        .spec = &spec, .from = v[ENV_FROM].text, .sysroot = v[ENV_SYSROOT].text};
    struct err err = {0};
    const char *nproc = v[ENV_NPROC].text;
    if (nproc != NULL && !is_live(&p) && (strcmp(nproc, "gpu") == 0 || strcmp(nproc, "auto") == 0))
        nproc = NULL;
    int status = read_arguments(&p, parsed, nproc, &spec);
    if (status >= 0)
        return status;
    if (is_live(&p) && python_find(program_invocation_name, environ, &python, NULL) == 0)
        p.python = python;
    if (discover(&p, v[ENV_ENDPOINT].text, nproc == NULL, &err) < 0)
        return print_failure(&err);
    return v[ENV_JSON].times > 0 ? show_json(&p) : show_text(&p, v);
}

int cmd_env(int argc, char **argv) {
    struct options_parsed parsed;
    struct err err = {0};
    if (options_parse(&env_options, argc, argv, &parsed, &err) < 0 ||
        (!parsed.stopped && options_from_env(&env_options, environ, &parsed, &err) < 0))
        return usage_error("env", "%s", err.text);
    int status = help_answer(&env_options, &parsed);
    if (status >= 0)
        return status;
    if (parsed.operand < argc)
        return usage_error("env", "unknown argument \"%s\"", argv[parsed.operand]);
    if (parsed.values[ENV_JSON].times > 0 && parsed.values[ENV_EXPLAIN].times > 0)
        return usage_error("env", "--json has the reasons too: leave out --explain");
    return show(&parsed);
}

/* ---- muster run --dry-run: what each worker would be started with ---- */

/* Whether the ranks are known before the nodes meet: one node, or static. */
static bool ranks_are_known(const struct job_spec *spec) {
    return spec->rdzv.max_nodes == 1 || job_backend(spec)->ranks_are_chosen;
}

/* NULL: none. Without log files they are in a temporary folder: worker_logs_error_file(). */
static char *error_file_of(const struct preview *p, bool known, uint32_t rank) {
    if (p->log_dir == NULL && p->spec->log_dir != NULL)
        return NULL;
    _cleanup_(freep) char *number = known ? xasprintf("%" PRIu32, rank) : xstrdup("RANK");
    return p->log_dir != NULL ? xasprintf("%s/%s/error.json", p->log_dir, number)
                              : xasprintf(TEMP_DIR "/GENERATION-%s-error.json", number);
}

/* The variables of a worker. What is known only when the job runs is a word in capitals. */
static int build_env(const struct preview *p, uint32_t i, struct envlist *ret, struct err *err) {
    const struct job_spec *spec = p->spec;
    bool known = ranks_are_known(spec), alone = spec->rdzv.max_nodes == 1;
    uint32_t node = spec->node_rank > 0 && !alone ? (uint32_t)spec->node_rank : 0;
    uint32_t rank = node * spec->nproc + i;
    _cleanup_(freep) char *error_file = error_file_of(p, known, rank);
    const uint32_t world = spec->nproc * spec->rdzv.max_nodes;
    const struct form form = {.node_rank = node,
                              .n_nodes = spec->rdzv.max_nodes,
                              .first_rank = rank - i,
                              .world_size = world,
                              .role_first_rank = rank - i,
                              .role_world_size = world,
                              .max_restarts = spec->rdzv.max_restarts};
    struct worker_env_input in = {.spec = spec,
                                  .form = &form,
                                  .local_rank = i,
                                  .generation = "GENERATION",
                                  .error_file = error_file,
                                  .omp_threads = p->setup.workers[i].omp_threads,
                                  .notify_socket = "SOCKET",
                                  .worker_id = "ID"};
    worker_env_master(spec, &in.master_addr, &in.master_port);
    if (in.master_addr == NULL)
        in.master_addr = alone ? "127.0.0.1" : "LEADER";
    int r = worker_env_build(environ, &in, ret, err);
    if (r == 0)
        node_setup_add_env(&p->setup, i, ret);
    static const char *const of_the_group[] = {
        "RANK",      "WORLD_SIZE",      "GROUP_RANK",      "MUSTER_NODE_RANK",
        "ROLE_RANK", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE"};
    for (size_t k = 0; r == 0 && !known && k < ARRAY_SIZE(of_the_group); k++)
        envlist_set(ret, of_the_group[k], of_the_group[k]);
    if (r == 0 && in.master_port == 0)
        envlist_set(ret, "MASTER_PORT", "PORT");
    if (r < 0)
        return r;
    envlist_set(ret, "MUSTER_EPOCH", "EPOCH");
    envlist_set(ret, "MUSTER_RUN_ID", run_id_of(spec));
    envlist_set(ret, "TORCHELASTIC_RUN_ID", run_id_of(spec));
    return r;
}

/* "env -u OLD NAME=VALUE … command": what differs from this process's environment. */
static void add_command(const struct preview *p, const struct envlist *env, char *const *argv,
                        struct strbuf *out) {
    strbuf_add(out, "env");
    for (char *const *e = environ; *e != NULL; e++) {
        _cleanup_(freep) char *name = xstrndup(*e, strcspn(*e, "="));
        if (name[0] != '\0' && envlist_get(env, name) == NULL) {
            strbuf_add(out, " -u ");
            shell_add_word(out, name);
        }
    }
    for (size_t i = 0; i < env->n; i++) {
        const char *equals = strchr(env->items[i], '=');
        _cleanup_(freep) char *name = xstrndup(env->items[i], (size_t)(equals - env->items[i]));
        const char *before = env_get(environ, name);
        if (before != NULL && strcmp(before, equals + 1) == 0)
            continue;
        strbuf_add(out, " \\\n  ");
        shell_add_assignment(out, env->items[i]);
    }
    strbuf_add(out, " \\\n  ");
    for (size_t i = 0; argv[i] != NULL; i++) {
        strbuf_add(out, i > 0 ? " " : "");
        shell_add_word(out, argv[i]);
    }
    strbuf_add_char(out, '\n');
}

static int add_worker(const struct preview *p, uint32_t i, struct strbuf *out, struct err *err) {
    _cleanup_(envlist_fini) struct envlist env = {0};
    int r = build_env(p, i, &env, err);
    if (r < 0)
        return r;
    _cleanup_(words_freep) char **argv = worker_argv_build(p->spec, p->python, i);
    strbuf_printf(out, "%s# rank %s, local rank %u\n", i > 0 ? "\n" : "", envlist_get(&env, "RANK"),
                  i);
    if (p->setup.workers[i].affinity.bound) {
        strbuf_add(out, "# ");
        node_setup_describe_worker(&p->setup, i, out);
        strbuf_add_char(out, '\n');
    }
    add_command(p, &env, argv, out);
    return 0;
}

/* Of a head: what its agent on the first node would start. Borrows from spec. */
static struct job_spec of_first_node(const struct job_spec *spec) {
    struct job_spec first = *spec;
    const struct hosts *hosts = &spec->hosts.list;
    if (spec->start_nodes > 0 && hosts->n == 0)
        first.rdzv.max_nodes = spec->start_nodes;
    if (hosts->n > 0)
        first.nproc = ssh_job_of(spec, 0, 0, "", 0).nproc;
    return first;
}

/* "# node2: node rank 1, 8 workers": what the head would start there. */
static void add_hosts(const struct job_spec *spec, struct strbuf *out) {
    const struct hosts *hosts = &spec->hosts.list;
    for (size_t i = 0; i < hosts->n; i++) {
        const struct job_spec job = ssh_job_of(spec, i, 0, "", 0);
        strbuf_printf(out, "# %s: node rank %d", hosts->items[i].name, job.node_rank);
        if (job.nproc_by == JOB_NPROC_NUMBER)
            strbuf_printf(out, ", %u worker%s", job.nproc, job.nproc == 1 ? "" : "s");
        strbuf_add(out, job_meets_at_host(spec) ? ", meets the others on node 0\n" : "\n");
    }
}

/* The same steps as in a job, without the route to a leader, which is not known yet. */
static int set_up(struct preview *p, struct err *err) {
    unsigned what = node_setup_needs(p->spec, discover_has_gpus());
    struct err found = {0};
    if (what != 0 && look_at_machine(p, what, &found) < 0)
        log_warning("this node can't be examined: %s", found.text);
    int r = look_at_the_rest(p, "", "MASTER_ADDR:PORT", err);
    return r < 0 ? r : node_setup_make(&p->in, &p->setup, err);
}

int dry_run(const struct job_spec *of_head) {
    struct job_spec spec = of_first_node(of_head);
    _cleanup_(freep) char *python = NULL;
    _cleanup_(preview_fini) struct preview p = {.spec = &spec};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct err err = {0};
    int r = spec.entry != JOB_ENTRY_PROGRAM
                ? python_find(program_invocation_name, environ, &python, &err)
                : 0;
    p.python = python;
    if (r == 0)
        r = set_up(&p, &err);
    strbuf_add(&text, "# nothing is started; words in capitals are known only when the job runs\n");
    if (spec.start_nodes > 0)
        strbuf_printf(&text,
                      "# muster would start itself on %" PRIu32 " node%s: this is the first, if it "
                      "is like this machine\n",
                      spec.start_nodes, spec.start_nodes == 1 ? "" : "s");
    add_hosts(&spec, &text);
    for (uint32_t i = 0; r == 0 && i < spec.nproc; i++)
        r = add_worker(&p, i, &text, &err);
    return r < 0 ? print_failure(&err) : print_text(&text);
}
