#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json/json.h"
#include "base/text/envlist.h"
#include "base/text/log.h"
#include "base/text/utf8.h"
#include "cli/commands/topo_io.h"
#include "cli/help/help.h"
#include "cli/jobs/run_line_io.h"
#include "cli/options/commands.h"
#include "cli/options/options_table.h"
#include "io/net/resolver.h"
#include "launcher/node/node_setup_io.h"
#include "launcher/node/python_io.h"
#include "launcher/output/logdir_io.h"
#include "nccl_env/facts/facts_io.h"
#include "nccl_env/facts/netif_choice.h"
#include "nccl_env/rules/resolve.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/net/route_io.h"
#include "topology/discover/sysfs/sysfs_io.h"

/* Only the host, without brackets and port. */
static char *host_of(const char *endpoint) {
    const char *close = strchr(endpoint, ']');
    if (endpoint[0] == '[' && close != NULL)
        return xstrndup(endpoint + 1, (size_t)(close - endpoint - 1));
    const char *colon = strchr(endpoint, ':');
    /* with two colons it is an IPv6 address */
    bool port = colon != NULL && strchr(colon + 1, ':') == NULL;
    return xstrndup(endpoint, port ? (size_t)(colon - endpoint) : strlen(endpoint));
}

/* The host of "HOST", "HOST:PORT" or "[ADDR]:PORT" as a literal address; a name is looked up, which
 * blocks for as long as the resolver needs. -EINVAL, -ENOENT with a sentence. */
static int env_leader_address(const char *endpoint, char ret[ADDR_TEXT_MAX], struct err *err) {
    _cleanup_(freep) char *host = host_of(endpoint);
    if (endpoint[0] == '/' || strncmp(endpoint, "dir:", 4) == 0 || strstr(endpoint, "://") != NULL)
        return err_set(err, -EINVAL,
                       "--rdzv-endpoint=%s: there any node may lead; give one of them", endpoint);
    if (host[0] == '\0')
        return err_set(err, -EINVAL, "--rdzv-endpoint=%s: which host?", endpoint);
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n;
    int r = resolve_lookup(host, 0, addrs, &n);
    if (r != 0)
        return err_set(err, -ENOENT, "--rdzv-endpoint=%s: can't find the address of %s: %s",
                       endpoint, host, gai_strerror(r));
    addr_host_text(&addrs[0], ret);
    return 0;
}

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

struct env_request {
    const struct option_value *v;
    struct job_spec spec;
    bool nproc_given;
    struct topology topology;
    struct nccl_graph *graph;
    struct nccl_facts facts;
    struct netif_choice netif;
    struct rocm_gpu rocm[TOPO_GPUS_MAX];
    char *log_dir, *comm_id;
    struct node_setup_input in;
    struct node_setup setup;
};

static void asking_fini(struct env_request *a) {
    node_setup_fini(&a->setup);
    nccl_graph_free(a->graph);
    topology_fini(&a->topology);
    nccl_facts_fini(&a->facts);
    job_spec_fini(&a->spec);
    free(a->log_dir);
    free(a->comm_id);
}

/* Texts from files and devices must be cleaned before they are shown on a terminal. */
static void print_clean(const struct strbuf *text) {
    _cleanup_(freep) char *clean = xstrdup(strbuf_text(text));
    utf8_clean(clean, true);
    (void)fputs(clean, stdout);
}

static bool is_live(const struct env_request *a) {
    return a->v[ENV_FROM].text == NULL && a->v[ENV_SYSROOT].text == NULL;
}

/* The command line of a job, so that options mean the same as in a job. */
struct line {
    char **words;
    size_t n;
};

static void line_fini(struct line *l) { words_free(l->words); }

static void add_row(struct line *l, const struct options_parsed *parsed, size_t row) {
    const struct option_value *v = &parsed->values[row];
    const struct option_def *model = option_model(&defs[row]);
    const char *name = model->name, *text;
    if ((model->flags & OPTION_REPEATS) != 0)
        for (size_t i = 0; (text = option_repeated(parsed, row, i)) != NULL; i++)
            words_add(&l->words, &l->n, xasprintf("--%s=%s", name, text));
    else if (model->arg == NULL && v->times > 0)
        words_add(&l->words, &l->n, xasprintf("--%s", name));
    else if (model->arg != NULL && v->text != NULL)
        words_add(&l->words, &l->n, xasprintf("--%s=%s", name, v->text));
}

static bool has_gpus(void) { return true; }

static bool is_any_number_of_gpus(const char *nproc) {
    return strcmp(nproc, "gpu") == 0 || strcmp(nproc, "auto") == 0;
}

/* Returns -1, or the exit status. */
static int read_arguments(struct env_request *a, const struct options_parsed *parsed) {
    _cleanup_(line_fini) struct line l = {0};
    /* about options that have no effect here; not shown */
    _cleanup_(strbuf_fini) struct strbuf warnings = {0};
    struct job_probes probes = run_line_probes;
    struct err err = {0};
    const char *nproc = a->v[ENV_NPROC].text;
    if (!is_live(a)) {
        probes.has_gpus = has_gpus; /* checked later */
        nproc = nproc != NULL && is_any_number_of_gpus(nproc) ? NULL : nproc;
    }
    a->nproc_given = nproc != NULL;
    words_add(&l.words, &l.n, xstrdup("env"));
    words_add(&l.words, &l.n, xasprintf("--nnodes=%s", a->v[ENV_NNODES].text));
    words_add(&l.words, &l.n, xasprintf("--nproc-per-node=%s", nproc != NULL ? nproc : "1"));
    for (size_t row = ENV_FIRST_OF_RUN; defs[row].as != NULL; row++)
        add_row(&l, parsed, row);
    words_add(&l.words, &l.n, xstrdup("--rdzv-backend=c10d")); /* does not meet other nodes */
    words_add(&l.words, &l.n, xstrdup("--rdzv-endpoint=127.0.0.1:1"));
    words_add(&l.words, &l.n, xstrdup("--no-python"));
    words_add(&l.words, &l.n, xstrdup("true"));
    int r = job_options_read((int)l.n, l.words, environ, &probes, &warnings, &a->spec, &err);
    return r < 0 ? usage_error("env", "%s", err.text) : -1;
}

static int look_at_machine(struct env_request *a, struct err *err) {
    if (a->v[ENV_FROM].text != NULL)
        return topology_load(a->v[ENV_FROM].text, &a->topology, err);
    struct discovery_config config = {.what = DISCOVER_ALL, .sysroot = a->v[ENV_SYSROOT].text};
    return topology_discover(&config, &a->topology, err);
}

/* From a file alone only the topology is known. */
static void look_at_files(struct env_request *a) {
    _cleanup_(freep) char *python = NULL;
    struct nccl_facts_config config = {
        .sysroot = a->v[ENV_SYSROOT].text, .envp = environ, .set = a->spec.env};
    if (!is_live(a) && config.sysroot == NULL)
        return;
    if (is_live(a) && python_find(program_invocation_name, environ, &python, NULL) == 0)
        config.python = python;
    if (is_live(a) && a->topology.n_gpus > 0)
        node_raise_limits(); /* as a job does, before they are examined */
    nccl_facts_read(&config, &a->facts);
    a->in.env.facts = &a->facts;
}

/* leader: a literal address; "": the leader is not given. */
static int choose_netif(struct env_request *a, const char *leader, struct err *err) {
    struct route_found route = {0};
    struct netif_input input = {.n_nodes = a->in.env.n_nodes, .leader_addr = leader};
    if (leader[0] != '\0' && is_live(a)) {
        int r = route_find(leader, &route, err);
        if (r < 0)
            return r;
    } else if (leader[0] != '\0') {
        (void)snprintf(route.netif, sizeof route.netif, "%s",
                       netif_by_subnet(&a->topology, leader));
    }
    input.route_netif = route.netif;
    input.route_source = route.source;
    netif_choose(&a->topology, &input, &a->netif);
    if (a->spec.preflight != JOB_PREFLIGHT_OFF &&
        env_get(a->in.env.envp, "NCCL_SOCKET_IFNAME") == NULL)
        netif_note_fast(&a->topology, &input, &a->netif);
    a->in.env.netif = &a->netif;
    return 0;
}

/* Values that are chosen when the job starts are written in capitals. */
static void guess_the_rest(struct env_request *a, const char *leader) {
    const struct job_spec *spec = &a->spec;
    const char *host = a->in.env.n_nodes <= 1 ? "127.0.0.1" : leader[0] != '\0' ? leader : "LEADER";
    if (spec->nccl_comm_id)
        a->comm_id = xasprintf(strchr(host, ':') != NULL ? "[%s]:PORT" : "%s:PORT", host);
    if (spec->log_dir != NULL && !logdir_is_null(spec->log_dir)) {
        _cleanup_(freep) char *cwd = spec->log_dir[0] != '/' ? run_line_probes.cwd() : NULL;
        a->log_dir = xasprintf("%s%s%s/RUN_ID/GENERATION/NODE", cwd != NULL ? cwd : "",
                               cwd != NULL ? "/" : "", spec->log_dir);
    }
    a->in.env.comm_id = a->comm_id;
    a->in.env.log_dir = a->log_dir;
    a->in.env.preview = true;
}

static const char *worker_variable(const struct env_request *a, const char *name) {
    const char *asked = env_get(a->spec.env, name);
    return asked != NULL ? asked : env_get(a->in.env.envp, name);
}

static uint32_t count_rocm(const struct env_request *a, uint32_t visible[TOPO_GPUS_MAX]) {
    const struct rocm_visible names = {.rocr = worker_variable(a, "ROCR_VISIBLE_DEVICES"),
                                       .hip = worker_variable(a, "HIP_VISIBLE_DEVICES"),
                                       .cuda = worker_variable(a, "CUDA_VISIBLE_DEVICES")};
    bool unknown;
    return rocm_visible_gpus(&a->topology, a->rocm, a->in.n_rocm, &names, visible, TOPO_GPUS_MAX,
                             &unknown);
}

static void choose_nproc(struct env_request *a) {
    uint32_t visible[TOPO_GPUS_MAX];
    bool unknown;
    const char *devices = worker_variable(a, "CUDA_VISIBLE_DEVICES");
    uint32_t n = affinity_visible_gpus(&a->topology, devices, visible, TOPO_GPUS_MAX, &unknown);
    if (n == 0)
        n = count_rocm(a, visible);
    a->spec.nproc = MAX2(n / MAX2(a->spec.gpus_per_worker, 1u), 1u);
}

static int discover(struct env_request *a, struct err *err) {
    struct node_setup_input *in = &a->in;
    struct err graph_err = {0};
    char leader[ADDR_TEXT_MAX] = "";
    int r = look_at_machine(a, err);
    if (r < 0)
        return r;
    look_at_files(a);
    *in = (struct node_setup_input){
        .spec = &a->spec,
        .env = {.envp = environ,
                .any_gpu = a->topology.n_gpus > 0 || (is_live(a) && discover_has_gpus()),
                .topology = &a->topology,
                .facts = in->env.facts,
                .n_nodes = a->spec.rdzv.max_nodes},
        .rocm = a->rocm,
    };
    if (in->env.any_gpu && a->v[ENV_FROM].text == NULL)
        in->n_rocm = kfd_list_gpus(a->v[ENV_SYSROOT].text, a->rocm, TOPO_GPUS_MAX);
    if (nccl_graph_new(&a->topology, &a->graph, &graph_err) < 0)
        log_warning("can't determine which NIC NCCL takes: %s", graph_err.text);
    in->env.graph = a->graph;
    if (!a->nproc_given)
        choose_nproc(a);
    if (a->v[ENV_ENDPOINT].text != NULL && in->env.n_nodes > 1)
        r = env_leader_address(a->v[ENV_ENDPOINT].text, leader, err);
    if (r == 0)
        r = choose_netif(a, leader, err);
    if (r < 0)
        return r;
    guess_the_rest(a, leader);
    return node_setup_make(in, &a->setup, err);
}

static void write_machine(const struct env_request *a, struct strbuf *to) {
    const struct topology *t = &a->topology;
    strbuf_printf(to, "%s: ", t->source == TOPO_LIVE && t->host[0] != '\0' ? t->host : t->from);
    if (t->n_gpus > 0)
        strbuf_printf(to, "%u GPU%s%s%s", t->n_gpus, t->n_gpus > 1 ? "s" : "",
                      t->gpus[0].name[0] != '\0' ? ", " : "", t->gpus[0].name);
    else
        strbuf_add(to, "no GPUs");
    if (a->in.env.facts == NULL) {
        strbuf_add(to, "; of its files nothing is known\n");
        return;
    }
    nccl_facts_describe(a->in.env.facts, to);
    strbuf_add_char(to, '\n');
}

static void write_rank(const struct env_request *a, uint32_t local_rank, struct strbuf *to) {
    const struct env_result *r = a->setup.workers[local_rank].env;
    if (a->v[ENV_JSON].times > 0)
        env_write_json(r, local_rank, local_rank, to);
    else if (a->v[ENV_EXPLAIN].times > 0)
        env_write_explained(r, topo_width() > 0 ? MIN2(topo_width(), WIDTH) : WIDTH, to);
    else
        env_write_plain(r, to);
}

static void show_json(const struct env_request *a) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct json_writer w = json_writer_of(&text);
    json_write_object_begin(&w, NULL);
    json_write_array_begin(&w, "ranks");
    for (uint32_t i = 0; i < a->setup.n; i++) {
        _cleanup_(strbuf_fini) struct strbuf one = {0};
        write_rank(a, i, &one);
        json_write_raw(&w, NULL, strbuf_text(&one));
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    strbuf_add_char(&text, '\n');
    (void)fputs(strbuf_text(&text), stdout);
}

/* Ranks that get the same variables are shown together. A heading is a comment, so that the plain
 * form can be used as a file for --env-file. */
static void show_text(const struct env_request *a) {
    bool explain = a->v[ENV_EXPLAIN].times > 0;
    _cleanup_(strbuf_fini) struct strbuf text = {0}, last = {0};
    if (explain)
        write_machine(a, &text);
    for (uint32_t first = 0, i = 0; i <= a->setup.n; i++) {
        struct strbuf one = {0};
        if (i < a->setup.n)
            write_rank(a, i, &one);
        if (i > 0 && (i == a->setup.n || strcmp(strbuf_text(&one), strbuf_text(&last)) != 0)) {
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
    print_clean(&text);
}

static int show(const struct options_parsed *parsed) {
    _cleanup_(asking_fini) struct env_request a = {.v = parsed->values};
    struct err err = {0};
    int status = read_arguments(&a, parsed);
    if (status >= 0)
        return status;
    if (discover(&a, &err) < 0)
        return print_failure(&err);
    if (a.v[ENV_JSON].times > 0)
        show_json(&a);
    else
        show_text(&a);
    return finish_stdout();
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
