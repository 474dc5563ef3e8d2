/* The local workers and the pool of warm ones. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text/log.h"
#include "launcher/output/logdir_io.h"
#include "launcher/supervise/local_workers_priv.h"
#include "launcher/warm/warm_saved_io.h"
#include "launcher/worker/worker_env.h"

static void on_facts(void *arg) {
    struct local_workers *c = arg;
    struct warm_facts facts;
    if (c->ops.on_warm == NULL)
        return;
    warm_pool_facts(c->warm, &facts);
    struct rdzv_warm warm = {.generation = c->warm_generation,
                             .warm = facts.warm,
                             .cold = facts.cold,
                             .waiting = facts.waiting};
    (void)snprintf(warm.reason, sizeof warm.reason, "%s", facts.reason);
    c->ops.on_warm(c->arg, &warm);
}

/* ---- what is kept beside the logs ---- */

static uint64_t add(uint64_t h, const char *text) { return hash_bytes(h, text, strlen(text) + 1); }

/* False: nothing is kept. */
static bool find_place(const struct local_workers *c, struct warm_saved_place *ret) {
    const struct job_spec *spec = c->config.spec;
    char cwd[4096];
    if (spec->log_dir == NULL || logdir_is_null(spec->log_dir) || spec->script == NULL ||
        spec->entry == JOB_ENTRY_PROGRAM || c->config.python == NULL ||
        getcwd(cwd, sizeof cwd) == NULL)
        return false;
    *ret = (struct warm_saved_place){.dir = spec->log_dir,
                                     .program = HASH_BEGIN,
                                     .args = HASH_BEGIN,
                                     .incarnation = c->config.incarnation};
    ret->program = add(add(add(ret->program, c->config.python), spec->script), cwd);
    ret->program = add(ret->program, spec->entry == JOB_ENTRY_MODULE ? "-m" : "");
    for (char *const *arg = spec->args; arg != NULL && *arg != NULL; arg++)
        ret->args = add(ret->args, *arg);
    return true;
}

static void on_stored(void *arg, const struct helper_answer *answer) {
    struct local_workers *c = arg;
    c->warm_call = NULL;
    if (answer->code < 0)
        log_info("what the workers import is not kept: %s", helper_call_why(answer->code));
    else if (answer->len > 0)
        log_info("what the workers import is not kept: %.*s", (int)answer->len, answer->data);
}

static void on_recorded(void *arg, const char *record, size_t n) {
    struct local_workers *c = arg;
    struct warm_saved_place at;
    if (!find_place(c, &at))
        return;
    helper_call_free(TAKE_PTR(c->warm_call));
    int r = warm_saved_store(c->loop, &at, record, n, on_stored, c, &c->warm_call);
    if (r < 0)
        log_info("what the workers import is not kept: %s", helper_call_why(r));
}

static void on_loaded(void *arg, const struct helper_answer *answer) {
    struct local_workers *c = arg;
    struct warm_saved_place at;
    char reason[WARM_REASON_MAX];
    const char *record = NULL;
    c->warm_call = NULL;
    if (answer->code < 0)
        (void)snprintf(reason, sizeof reason, "%s", helper_call_why(answer->code));
    else if (answer->len == 0 || !find_place(c, &at))
        return;
    else if (answer->data[0] == '!')
        (void)snprintf(reason, sizeof reason, "%.*s", (int)answer->len - 1, answer->data + 1);
    else
        record = warm_saved_read(answer->data, answer->len, at.args, reason);
    if (record == NULL) {
        log_info("what an earlier run imported is not used: %s", reason);
        return;
    }
    c->warm_record_bytes = answer->len - (size_t)(record - answer->data);
    c->warm_record = xcalloc(1, c->warm_record_bytes + 1);
    memcpy(c->warm_record, record, c->warm_record_bytes);
    local_workers_warm_early(c);
}

/* ---- before the first group ---- */

/* As it will be, but for what only the group knows. */
static int foresee(struct local_workers *c, uint32_t i) {
    const struct job_spec *job = c->config.spec;
    _cleanup_(envlist_fini) struct envlist env = {0};
    struct worker_spec spec = WORKER_SPEC_INIT;
    struct worker_group_config config;
    struct child_spec child;
    if (!local_workers_env(c, i, &env))
        return -1;
    char **argv = worker_argv_build(job, c->config.python, i);
    spec.argv = argv;
    spec.envp = envlist_items(&env);
    local_workers_bind(&c->setup.workers[i].affinity, &spec);
    local_workers_group_config(c, &config);
    worker_child_spec(&config, &spec, &child);
    warm_pool_foresee(c->warm, i, &child);
    words_free(argv);
    return 0;
}

void local_workers_warm_early(struct local_workers *c) {
    const uint32_t n = c->config.spec->nproc;
    bool formed = !generation_is_none(c->generation);
    if (c->warm_record == NULL || formed ||
        (c->config.discovery != NULL && !node_discovery_ended(c->config.discovery)))
        return;
    c->form = (struct form){.n_nodes = 1,
                            .world_size = n,
                            .role_world_size = n,
                            .max_restarts = c->config.spec->rdzv.max_restarts,
                            .store_host = "127.0.0.1"};
    struct node_setup_place place = local_workers_place(c, NULL);
    bool no_memory = c->no_memory_policy, ok = true;
    if (node_setup_read(&place, &c->setup, &no_memory, NULL) == 0) {
        for (uint32_t i = 0; i < n && ok; i++)
            ok = foresee(c, i) == 0;
        if (ok)
            warm_pool_expect(c->warm, c->warm_record, c->warm_record_bytes);
    }
    node_setup_fini(&c->setup);
    c->form = (struct form){0};
    free(TAKE_PTR(c->warm_record));
}

/* ---- the pool ---- */

void local_workers_warm_free(struct local_workers *c) {
    helper_call_free(c->warm_call);
    warm_pool_free(c->warm);
    free(c->warm_record);
}

int local_workers_warm_new(struct local_workers *c) {
    const struct job_spec *spec = c->config.spec;
    if (spec->warm == JOB_WARM_OFF || spec->nproc == 0)
        return 0;
    struct warm_pool_config pool = {
        .reaper = c->config.reaper,
        .n = spec->nproc,
        .form = spec->warm == JOB_WARM_FORK ? WARM_FORK : WARM_PROCESS,
        .after_ns = spec->warm_after_ns,
        .skip = spec->warm_skip,
        .never = spec->entry == JOB_ENTRY_PROGRAM ? "--no-python starts no Python" : NULL,
        .on_facts = on_facts,
        .on_recorded = on_recorded,
        .arg = c,
    };
    struct warm_saved_place at;
    int r = warm_pool_new(c->loop, &pool, &c->warm);
    if (r == 0 && !spec->check_only && find_place(c, &at) &&
        warm_saved_load(c->loop, &at, on_loaded, c, &c->warm_call) < 0)
        log_info("what an earlier run imported is not known: no process could be started");
    return r;
}
