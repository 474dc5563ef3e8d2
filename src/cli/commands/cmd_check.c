#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/strbuf.h"
#include "cli/help/help.h"
#include "cli/jobs/run_line_io.h"
#include "cli/options/commands.h"
#include "cli/options/options_table.h"
#include "io/clock.h"
#include "io/net/resolver.h"
#include "launcher/agent/agent_io.h"
#include "launcher/node/python_io.h"
#include "launcher/preflight/check_text.h"
#include "launcher/preflight/node_summary_io.h"

struct check_request {
    struct loop *loop;
    struct node_summary_config config;
    struct node_summary *ret;
    bool *ret_whole;
    int r;
};

static void on_node_summary(void *arg, const struct node_summary *d, bool whole) {
    struct check_request *w = arg;
    *w->ret = *d;
    *w->ret_whole = whole;
    loop_quit(w->loop);
}

static void on_discovered(void *arg) {
    struct check_request *w = arg;
    struct node_summary_gathering *gathering;
    w->r = node_summary_start(w->loop, &w->config, on_node_summary, w, &gathering);
    if (w->r < 0)
        loop_quit(w->loop);
}

/* Discovers the node, and judges it. python: that of the workers, or NULL. Blocks for at most
 * NODE_SUMMARY_GATHER_NS. *ret_whole: false if the time was too short for everything. Returns 0, or
 * a negative errno: no process could be created. */
static int check_this_node(const struct node_summary_config *config, const char *python,
                           struct node_summary *ret, bool *ret_whole) {
    _cleanup_(loop_freep) struct loop *loop = NULL;
    struct node_discovery *discovery = NULL;
    struct node_discovery_config what = {.what = node_summary_needs(discover_has_gpus()),
                                         .netifs_first = true,
                                         .nvml = true,
                                         .facts = true,
                                         .deadline_ns = NODE_SUMMARY_DISCOVERY_NS,
                                         .envp = environ,
                                         .python = python};
    uint64_t begun_ns = clock_now_ns();
    int r = loop_new(&loop);
    if (r == 0)
        r = node_discovery_new(loop, &what, &discovery, NULL);
    struct check_request w = {.loop = loop, .config = *config, .ret = ret, .ret_whole = ret_whole};
    w.config.discovery = discovery;
    w.config.begun_ns = begun_ns;
    if (r == 0) {
        node_discovery_wait(discovery, on_discovered, &w);
        r = loop_run(loop);
    }
    node_discovery_free(discovery);
    return r < 0 ? r : w.r;
}

extern char **environ;

enum check_option {
    CHECK_JSON,
    CHECK_LOG_DIR,
    CHECK_NNODES,
    CHECK_RDZV_BACKEND,
    CHECK_RDZV_ENDPOINT,
    CHECK_RDZV_ID,
    CHECK_RDZV_CONF,
    CHECK_NODE_RANK,
    CHECK_LOCAL_ADDR,
    CHECK_AUTH,
    CHECK_KEY_FILE,
    CHECK_OPTION_COUNT
};

static const struct option_def defs[] = {
    [CHECK_JSON] = JSON_ROW,
    [CHECK_LOG_DIR] = {"log-dir", "DIR", OPTION_SHORT,
                       "check the disk of this folder (TMPDIR, or /tmp)"},
    [CHECK_NNODES] = {"nnodes", "N", OPTION_SHORT,
                      "compare N nodes; start the same command on each, at the same time",
                      .brief = "compare N nodes; start the same command on each",
                      .section = "Several nodes, as with muster run"},
    [CHECK_RDZV_BACKEND] = AS_RUN("rdzv-backend", "how they meet", .flags = OPTION_SHORT),
    [CHECK_RDZV_ENDPOINT] = AS_RUN("rdzv-endpoint", "where they meet", .flags = OPTION_SHORT),
    [CHECK_RDZV_ID] =
        AS_RUN("rdzv-id", "name of this check, the same on each node", .flags = OPTION_SHORT),
    [CHECK_RDZV_CONF] = AS_RUN("rdzv-conf", "further settings of the rendezvous"),
    [CHECK_NODE_RANK] = AS_RUN("node-rank", "preferred position of this node"),
    [CHECK_LOCAL_ADDR] = AS_RUN("local-addr", "address at which the others reach this node"),
    [CHECK_AUTH] = AS_RUN("auth", "which processes may connect to the nodes"),
    [CHECK_KEY_FILE] =
        AS_RUN("key-file", "file with the key with which they authenticate each other"),
    HELP_ROW(.section = "Other"),
    HELP_ALL_ROW,
};

const struct option_set check_options = {
    .command = "check",
    .operands = "",
    .about =
        "Checks this node before a job: GPUs, network adapters and interfaces, limits, disk, "
        "clock, host name. With --nnodes, several nodes meet as in a job, are compared, and each "
        "connects to its neighbours. No worker is started. The exit status is 1 if a check failed.",
    .example = "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=node1",
    OPTION_DEFS(defs),
};

static const char *disk_of(const struct option_value *v) {
    const char *tmp = env_get(environ, "TMPDIR");
    if (v[CHECK_LOG_DIR].text != NULL)
        return v[CHECK_LOG_DIR].text;
    return tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp";
}

static int check_alone(const struct option_value *v) {
    static struct node_summary d;
    char host[NODE_SUMMARY_HOST_MAX];
    bool whole = false;
    _cleanup_(freep) char *python = NULL;
    struct err err = {0};
    if (python_find(program_invocation_name, environ, &python, &err) < 0)
        python = NULL; /* then nothing is known of PyTorch */
    resolve_own_name(host, sizeof host);
    struct node_summary_config config = {.log_dir = disk_of(v), .netif = "", .host = host};
    int r = check_this_node(&config, python, &d, &whole);
    if (r < 0) {
        (void)fprintf(stderr, "muster check: can't examine this node: %s\n", strerror(-r));
        return EXIT_JOB_FAILED;
    }
    if (!whole)
        node_summary_add(&d, NODE_SUMMARY_FAIL, "DISCOVERY",
                         "examining this node took longer than %.0f s",
                         (double)NODE_SUMMARY_GATHER_NS / (double)NS_PER_S);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (v[CHECK_JSON].times > 0)
        check_write_node_json(&d, host, &text);
    else
        check_write_node(&d, NULL, &text);
    int status = print_text(&text);
    return status == 0 && node_summary_worst(&d) == NODE_SUMMARY_FAIL ? EXIT_JOB_FAILED : status;
}

/* Whether an endpoint is given. Without one, each node would wait for others at itself. */
static bool has_place(const struct option_value *v) {
    return v[CHECK_RDZV_ENDPOINT].text != NULL || env_get(environ, "PET_RDZV_ENDPOINT") != NULL ||
           env_get(environ, "PET_MASTER_ADDR") != NULL;
}

static int start_job(const struct job_spec *spec, struct run_keys *keys) {
    struct err err = {0};
    if (run_keys_load(keys, spec, &err) < 0)
        return usage_error("check", "%s", err.text);
    return job_start(spec, environ, keys->ring);
}

/* Reads the options as those of a job that starts nothing, so that they mean the same. */
static int check_job(const struct option_value *v) {
    _cleanup_(words_freep) char **words = NULL;
    size_t n = 0;
    words_add(&words, &n, xstrdup("check"));
    for (uint32_t i = CHECK_NNODES; i < CHECK_OPTION_COUNT; i++)
        if (v[i].text != NULL)
            words_add(&words, &n, xasprintf("--%s=%s", defs[i].name, v[i].text));
    words_add(&words, &n, xstrdup("--preflight=strict"));
    words_add(&words, &n, xstrdup("--nproc-per-node=1"));
    words_add(&words, &n, xstrdup("--no-python"));
    words_add(&words, &n, xstrdup("true"));
    _cleanup_(job_spec_fini) struct job_spec spec = {0};
    _cleanup_(run_keys_fini) struct run_keys keys;
    run_keys_take(&keys);
    int status = run_line_read((int)n, words, &keys, &spec);
    if (status < 0 && spec.rdzv.max_nodes < 2) {
        status = check_alone(v);
    } else if (status < 0 && spec.nodes == PLACE_NODES_OF_USER && !has_place(v)) {
        status = usage_error("check",
                             "--nnodes=%u: the nodes need a place to meet, the same on "
                             "all: --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT",
                             spec.rdzv.max_nodes);
    } else if (status < 0) {
        spec.check = v[CHECK_JSON].times > 0 ? JOB_CHECK_JSON : JOB_CHECK_TEXT;
        spec.check_disk = disk_of(v); /* no log_dir: nothing is written */
        status = start_job(&spec, &keys);
    }
    return status;
}

int cmd_check(int argc, char **argv) {
    static struct options_parsed p;
    int status = help_or_parse(&check_options, argc, argv, NULL, 0, &p);
    if (status >= 0)
        return status;
    return p.values[CHECK_NNODES].text != NULL ? check_job(p.values) : check_alone(p.values);
}
