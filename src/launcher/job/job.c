#include "launcher/job/job.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "base/text/strbuf.h"
#include "base/text/utf8.h"

#define STD_NOT_NAMED 0xff

const struct job_backend_row job_backends[JOB_BACKEND_COUNT] = {
    [JOB_BACKEND_STATIC] = {.name = "static",
                            .ranks_are_chosen = true,
                            .takes_timeout = true,
                            .join_timeout_ns = 900 * NS_PER_S},
    [JOB_BACKEND_C10D] = {.name = "c10d"},
    [JOB_BACKEND_DIR] = {.name = "dir",
                         .example = "dir:/shared/path",
                         .any_node_leads = true,
                         .own_key = true},
    [JOB_BACKEND_ETCD] = {.name = "etcd",
                          .example = "etcd://HOST:PORT,HOST:PORT",
                          .any_node_leads = true,
                          .own_tls = true,
                          .takes_timeout = true},
};

const struct job_spec job_spec_default = {
    .is_host = -1,
    .node_rank = -1,
    .preflight = JOB_PREFLIGHT_WARN,
    .rdzv = RDZV_SETTINGS_DEFAULT,
    .shutdown_timeout_ns = 30 * NS_PER_S,
    .hang.limits.timeout_ns = 1800 * NS_PER_S,
    .hang.limits.still_ns = 180 * NS_PER_S,
    .hang.limits.report_ns = 30 * NS_PER_S,
    .hang.evidence_timeout_ns = 5 * NS_PER_S,
    .health_timeout_ns = 30 * NS_PER_S,
    .max_requeues = 10,
    .log_mode = 0600,
    .warm_after_ns = 10 * NS_PER_S,
    .auth = AUTH_AUTO,
    .contain = JOB_CONTAIN_AUTO,
    .bind_memory = BIND_MEMORY_PREFERRED,
    .nccl_env = NCCL_ENV_FULL,
};

const struct job_worker_variable job_worker_variables[] = {
    {"RANK", true},
    {"LOCAL_RANK", true},
    {"WORLD_SIZE", true},
    {"LOCAL_WORLD_SIZE", true},
    {"GROUP_RANK", true},
    {"GROUP_WORLD_SIZE", true},
    {"ROLE_NAME", false},
    {"ROLE_RANK", true},
    {"ROLE_WORLD_SIZE", true},
    {"MASTER_ADDR", true},
    {"MASTER_PORT", true},
    {"TORCHELASTIC_RESTART_COUNT", true},
    {"TORCHELASTIC_MAX_RESTARTS", false},
    {"TORCHELASTIC_RUN_ID", false},
    {"TORCHELASTIC_USE_AGENT_STORE", false},
    {"TORCHELASTIC_ERROR_FILE", true},
    {NULL, false},
};

uint8_t std_map_get(const struct std_map *map, uint32_t local_rank) {
    if (local_rank >= ARRAY_SIZE(map->by_rank) || map->by_rank[local_rank] == STD_NOT_NAMED)
        return map->fallback;
    return map->by_rank[local_rank];
}

/* torch/distributed/elastic/multiprocessing/api.py, Std.from_str */
int std_map_parse(const char *text, struct std_map *ret) {
    struct std_map map = {.fallback = STD_NONE};
    memset(map.by_rank, STD_NOT_NAMED, sizeof map.by_rank);
    bool single = strlen(text) == 1;
    if (single && text[0] >= '0' && text[0] <= '3') {
        map.fallback = (uint8_t)(text[0] - '0');
        *ret = map;
        return 0;
    }
    bool ok = !single && *text != '\0';
    for (const char *s = text; ok && *s != '\0'; s += s[3] == ',' ? 4 : 3) {
        ok = s[0] >= '0' && s[0] <= '9' && s[1] == ':' && s[2] >= '0' && s[2] <= '3' &&
             (s[3] == '\0' || (s[3] == ',' && s[4] != '\0'));
        if (!ok)
            break;
        map.by_rank[s[0] - '0'] = (uint8_t)(s[2] - '0');
    }
    if (ok)
        *ret = map;
    return ok ? 0 : -EINVAL;
}

void std_map_text(const struct std_map *map, char ret[STD_MAP_TEXT_MAX]) {
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(map->by_rank); i++)
        if (map->by_rank[i] != STD_NOT_NAMED)
            n += (size_t)snprintf(ret + n, STD_MAP_TEXT_MAX - n, "%s%zu:%u", n > 0 ? "," : "", i,
                                  map->by_rank[i]);
    if (n == 0)
        (void)snprintf(ret, STD_MAP_TEXT_MAX, "%u", map->fallback);
}

#define COUNT_DIGITS_MAX 2

void job_next_run_id(const char *run_id, char ret[JOB_RUN_ID_MAX]) {
    const char *dash = strrchr(run_id, '-');
    size_t digits = dash == NULL ? 0 : strspn(dash + 1, "0123456789");
    bool counts = digits > 0 && digits <= COUNT_DIGITS_MAX && dash[1 + digits] == '\0';
    size_t stem = counts ? (size_t)(dash - run_id) : strlen(run_id);
    char number[16];
    int n = snprintf(number, sizeof number, "-%lu", counts ? strtoul(dash + 1, NULL, 10) + 1 : 2);
    (void)snprintf(ret, JOB_RUN_ID_MAX, "%.*s%s",
                   (int)MIN2(stem, (size_t)JOB_RUN_ID_MAX - 1 - (size_t)n), run_id, number);
}

char *job_endpoint_text(const struct job_spec *spec) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    strbuf_printf(&out, "%s:", spec->endpoint_host);
    if (spec->n_endpoint_ports > 0)
        port_list_text(spec->endpoint_ports, spec->n_endpoint_ports, &out);
    else
        strbuf_printf(&out, "%u", spec->endpoint_port);
    return strbuf_take(&out);
}

void job_spec_fini(struct job_spec *spec) {
    char *const texts[] = {spec->endpoint_host,      spec->store_host, spec->arbiter_dir,
                           spec->etcd_prefix,        spec->etcd_user,  spec->etcd_password,
                           spec->etcd_cacert,        spec->etcd_cert,  spec->etcd_key,
                           spec->topology,           spec->block,      spec->topology_file,
                           spec->event_log,          spec->local_addr, spec->health_check,
                           spec->key_file,           spec->run_id,     spec->hosts.ssh,
                           spec->hosts.export_names, spec->role,       spec->script,
                           spec->start_method,       spec->warm_skip,  spec->log_dir,
                           spec->line_prefix};
    char **const words[] = {spec->etcd_endpoints, spec->derived, spec->given,
                            spec->args,           spec->env,     spec->filters[0],
                            spec->filters[1]};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        free(texts[i]);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        words_free(words[i]);
    free(spec->console_ranks);
    place_fini(&spec->place);
    hosts_fini(&spec->hosts.list);
    *spec = (struct job_spec){0};
}

bool job_is_ended_by(const struct job_spec *spec, int signo) {
    for (uint32_t i = 0; i < spec->n_signals; i++)
        if (spec->signals[i] == signo)
            return true;
    return false;
}

const char *job_worker_value(const struct job_spec *spec, char *const *envp, const char *name) {
    const char *asked = env_get(spec->env, name);
    return asked != NULL ? asked : env_get(envp, name);
}

bool job_is_given(const struct job_spec *spec, const char *option) {
    for (char *const *name = spec->given; name != NULL && *name != NULL; name++)
        if (strcmp(*name, option) == 0)
            return true;
    return false;
}

/* ==== the program, for other nodes ==== */

#define OPTION_SHOWN_MAX 40

/* Includes the NUL, so that the bounds of each text are part of the digest. */
static uint64_t digest_text(uint64_t h, const char *text) {
    return hash_bytes(h, text, strlen(text) + 1);
}

static const char *without_folders(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* "--lr=0.1" and "--lr": 4; "-n3": 2, as 3 can be its value; "trainer.lr=0.1": 10; a value: 0. */
static size_t name_length(const char *arg) {
    if (arg[0] == '-' && arg[1] == '-')
        return strcspn(arg, "=");
    if (arg[0] == '-')
        return isalpha((unsigned char)arg[1]) ? 2 : 0;
    size_t len = 0;
    while (isalnum((unsigned char)arg[len]) || (arg[len] != '\0' && strchr("_.+~/@-", arg[len])))
        len++;
    return arg[len] == '=' ? len : 0;
}

/* Whether a name before '=' may be shown: not one like a secret that ends with '='. */
static bool may_show(const char *arg, size_t len) {
    size_t plain = arg[0] == '-' ? len : strspn(arg, "abcdefghijklmnopqrstuvwxyz_.+~");
    return len > 0 && len <= OPTION_SHOWN_MAX && plain >= len;
}

static void show_arg(const char *arg, size_t len, bool *words, struct strbuf *s) {
    if (!may_show(arg, len)) {
        strbuf_add(s, *words ? "" : " ...");
        *words = true;
        return;
    }
    const char *rest = arg + len;
    strbuf_printf(s, " %.*s%s", (int)len, arg,
                  rest[0] == '='    ? "=..."
                  : rest[0] != '\0' ? "..."
                                    : "");
    *words = false;
}

static void add_args(char *const *args, struct rdzv_program *p, struct strbuf *shown) {
    bool words = false; /* the last one shown was "..." */
    for (size_t i = 0; args != NULL && args[i] != NULL; i++) {
        size_t len = name_length(args[i]);
        p->args = digest_text(p->args, args[i]);
        show_arg(args[i], len, &words, shown);
    }
}

/* The user arranges the group, and no other step can have a node of it. */
static bool step_is_all(const struct job_spec *spec) {
    const struct place *p = &spec->place;
    uint32_t agents = place_has_one_agent(spec->nodes) ? p->n_nodes : p->n_tasks;
    return place_is_step(p) && spec->nodes != PLACE_NODES_STEP && spec->endpoint_host != NULL &&
           spec->rdzv.min_nodes == agents && spec->rdzv.max_nodes == agents;
}

void program_of(const struct job_spec *spec, struct rdzv_program *ret) {
    static const char *const how[] = {[JOB_ENTRY_PYTHON] = "python",
                                      [JOB_ENTRY_MODULE] = "python -m",
                                      [JOB_ENTRY_PROGRAM] = "program"};
    _cleanup_(strbuf_fini) struct strbuf shown = {0};
    *ret = (struct rdzv_program){
        .name = HASH_BEGIN, .args = HASH_BEGIN, .max_restarts = spec->rdzv.max_restarts};
    if (spec->script == NULL) {
        strbuf_add(&shown, "muster check");
    } else {
        const char *name =
            spec->entry == JOB_ENTRY_MODULE ? spec->script : without_folders(spec->script);
        ret->name = digest_text(digest_text(ret->name, how[spec->entry]), name);
        if (step_is_all(spec)) {
            ret->name = digest_text(ret->name, spec->place.run_id);
            strbuf_printf(&shown, "Slurm's step %s: ", spec->place.run_id);
        }
        strbuf_printf(&shown, "%s%s", spec->entry == JOB_ENTRY_MODULE ? "-m " : "", name);
        add_args(spec->args, ret, &shown);
    }
    if (shown.len >= sizeof ret->shown)
        memcpy(shown.data + sizeof ret->shown - 4, "...", 4);
    utf8_copy_line(ret->shown, sizeof ret->shown, strbuf_text(&shown));
}

/* ==== doubts of a line in a job of Slurm ==== */

#define LEAVE_OUT "--rdzv-endpoint, --master-addr and --node-rank"

/* sbatch's script, and what it does not start by srun, runs on one node. */
static void doubt_one_node(const struct place *p, struct strbuf *warnings) {
    char where[PLACE_TEXT_MAX];
    if (p->job_nodes < 2)
        return;
    place_text(p, where);
    strbuf_printf(warnings,
                  "this line runs in %s, on one of its %u nodes; if nothing else starts the "
                  "others, write srun before it, or leave out " LEAVE_OUT
                  ": then muster starts all nodes\n",
                  where, p->job_nodes);
}

/* Each task of the step is a node of the user's group, or each node is. A step of one node may be
 * one of several, each with a node of the group. */
static void doubt_nodes(const struct job_spec *spec, struct strbuf *warnings) {
    const struct place *p = &spec->place;
    const uint32_t has = place_has_one_agent(spec->nodes) ? p->n_nodes : p->n_tasks;
    const char *noun = has == p->n_nodes ? "nodes" : "tasks, each of which is a node here";
    if (p->n_nodes < 2)
        return;
    if (spec->rdzv.min_nodes > has)
        strbuf_printf(warnings,
                      "--nnodes asks for %u nodes, but Slurm's step %s.%s has %u %s: the job waits "
                      "for others; leave out --nnodes, " LEAVE_OUT
                      ", or start the step on more nodes: srun -N%u\n",
                      spec->rdzv.min_nodes, p->job_id, p->step_id, has, noun, spec->rdzv.min_nodes);
    else if (spec->rdzv.max_nodes < has && spec->rdzv.min_nodes == spec->rdzv.max_nodes &&
             spec->rdzv.spares == UINT32_MAX)
        strbuf_printf(warnings,
                      "--nnodes takes %u nodes, but Slurm's step %s.%s has %u %s: the others run "
                      "nothing, unless one of these is lost; leave out --nnodes, " LEAVE_OUT
                      ", or declare them as spares: --spares=%u\n",
                      spec->rdzv.max_nodes, p->job_id, p->step_id, has, noun,
                      has - spec->rdzv.max_nodes);
}

static void doubt_host(const struct job_spec *spec, bool from_batch, struct strbuf *warnings) {
    const struct place *p = &spec->place;
    if (spec->endpoint_host == NULL || p->n_nodes < 2)
        return;
    if (place_is_loopback(spec->endpoint_host))
        strbuf_printf(warnings,
                      "%s is another host on each node of Slurm's step %s.%s, so that no two meet "
                      "there; leave it out: muster then takes %s\n",
                      spec->endpoint_host, p->job_id, p->step_id, p->first_host);
    else if (p->srun_host != NULL && !from_batch && strcmp(spec->endpoint_host, p->srun_host) == 0)
        strbuf_printf(warnings,
                      "%s (SLURM_LAUNCH_NODE_IPADDR) is where srun runs; if that is not a "
                      "node of Slurm's step %s.%s, no node leads the job; leave it out, "
                      "and muster takes %s\n",
                      spec->endpoint_host, p->job_id, p->step_id, p->first_host);
}

/* `hostname --ip-address` prints all addresses of a host: of "$ADDRESS:29500" the first word is
 * then the endpoint, and the next one what to run. */
static void doubt_script(const struct job_spec *spec, struct strbuf *warnings) {
    const struct place *p = &spec->place;
    static const char address[] = "0123456789.:", v6[] = "0123456789abcdef:";
    const char *s = spec->script;
    bool is_address = s != NULL && strchr(s, ':') != NULL &&
                      (s[strspn(s, address)] == '\0' || s[strspn(s, v6)] == '\0');
    if (is_address)
        strbuf_printf(warnings,
                      "the program to run is %s, which looks like an address: a variable in the "
                      "line holds several (hostname --ip-address prints all); leave out " LEAVE_OUT
                      ": muster then takes %s\n",
                      s, p->first_host);
}

/* The shell of a batch script has SLURM_NODEID=0 and SLURM_PROCID=0. */
static void doubt_rank(const struct job_spec *spec, const struct place_given *given,
                       struct strbuf *warnings) {
    const struct place *p = &spec->place;
    if (p->most_tasks != 1 || !job_backend(spec)->ranks_are_chosen || spec->node_rank != 0)
        return;
    if (!given->node_rank)
        strbuf_printf(
            warnings,
            "no --node-rank is given, so each task of Slurm's step %s.%s wants to be node "
            "0; leave out --rdzv-endpoint and --master-addr, or add --rdzv-backend=c10d\n",
            p->job_id, p->step_id);
    else
        strbuf_printf(warnings,
                      "--node-rank=0 in the task with SLURM_PROCID=1 of Slurm's step %s.%s, too: a "
                      "batch script puts 0 in place of $SLURM_NODEID and $SLURM_PROCID before "
                      "srun runs; leave out --node-rank and --master-addr, or let each task do "
                      "it: srun bash -c 'exec ... --node-rank=$SLURM_PROCID ...'\n",
                      p->job_id, p->step_id);
}

void slurm_doubt(const struct job_spec *spec, const struct place_given *given, bool from_batch,
                 struct strbuf *warnings) {
    const struct place *p = &spec->place;
    if (spec->rdzv.max_nodes < 2 || given->alone)
        return;
    if (place_is_first_of_job(p) && (given->meets || given->node_rank))
        doubt_one_node(p, warnings);
    if (!place_is_step(p) || !given->meets)
        return;
    if (p->proc_id == 0) {
        doubt_nodes(spec, warnings);
        doubt_host(spec, from_batch, warnings);
        doubt_script(spec, warnings);
    } else if (p->proc_id == 1) {
        doubt_rank(spec, given, warnings);
    }
}
