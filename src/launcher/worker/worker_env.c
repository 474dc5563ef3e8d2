#include "launcher/worker/worker_env.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "base/text/signal_name.h"
#include "base/text/strbuf.h"
#include "base/text/template.h"

static void set_u32(struct envlist *e, const char *name, uint32_t value) {
    envlist_setf(e, name, "%u", value);
}

static void set_ranks(struct envlist *e, const struct worker_env_input *in) {
    set_u32(e, "RANK", in->form->first_rank + in->local_rank);
    set_u32(e, "LOCAL_RANK", in->spec->virtual_local_rank ? 0 : in->local_rank);
    set_u32(e, "WORLD_SIZE", in->form->world_size);
    set_u32(e, "LOCAL_WORLD_SIZE", in->spec->nproc);
    set_u32(e, "GROUP_RANK", in->form->node_rank);
    set_u32(e, "GROUP_WORLD_SIZE", in->form->n_nodes);
    envlist_set(e, "ROLE_NAME", in->spec->role);
    set_u32(e, "ROLE_RANK", in->form->role_first_rank + in->local_rank);
    set_u32(e, "ROLE_WORLD_SIZE", in->form->role_world_size);
    envlist_set(e, "MASTER_ADDR", in->master_addr);
    set_u32(e, "MASTER_PORT", in->master_port);
}

static void set_signals(struct envlist *e, const struct worker_env_input *in) {
    _cleanup_(strbuf_fini) struct strbuf names = {0};
    for (uint32_t i = 0; i < in->spec->n_signals; i++) {
        const char *name = signal_abbrev(in->spec->signals[i]);
        if (name != NULL)
            strbuf_printf(&names, "%sSIG%s", names.len > 0 ? "," : "", name);
    }
    envlist_set(e, "TORCHELASTIC_SIGNALS_TO_HANDLE", strbuf_text(&names));
}

static void set_elastic(struct envlist *e, const struct worker_env_input *in) {
    set_u32(e, "TORCHELASTIC_RESTART_COUNT", in->form->restarts_used);
    set_u32(e, "TORCHELASTIC_MAX_RESTARTS", in->form->max_restarts);
    envlist_set(e, "TORCHELASTIC_RUN_ID", in->spec->run_id);
    envlist_set(e, "TORCHELASTIC_USE_AGENT_STORE", in->spec->workers_store ? "False" : "True");
    envlist_set(e, "TORCHELASTIC_ERROR_FILE", in->error_file != NULL ? in->error_file : "");
    set_signals(e, in);
    if (envlist_get(e, "TORCH_NCCL_ASYNC_ERROR_HANDLING") == NULL)
        envlist_set(e, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if (in->server_socket != NULL && envlist_get(e, "TORCH_WORKER_SERVER_SOCKET") == NULL)
        envlist_set(e, "TORCH_WORKER_SERVER_SOCKET", in->server_socket);
    if (envlist_get(e, "PYTHONFAULTHANDLER") == NULL)
        envlist_set(e, "PYTHONFAULTHANDLER", "1");
}

static void set_ours(struct envlist *e, const struct worker_env_input *in) {
    envlist_set(e, "MUSTER_GENERATION", in->generation);
    envlist_setf(e, "MUSTER_EPOCH", "%llu", (unsigned long long)in->epoch);
    set_u32(e, "MUSTER_NODE_RANK", in->form->node_rank);
    envlist_set(e, "MUSTER_RUN_ID", in->spec->run_id);
    if (in->notify_socket != NULL) {
        envlist_set(e, "MUSTER_NOTIFY_SOCKET", in->notify_socket);
        if (envlist_get(e, "NOTIFY_SOCKET") == NULL) /* sd_notify(3) */
            envlist_set(e, "NOTIFY_SOCKET", in->notify_socket);
    }
    if (in->worker_id != NULL)
        envlist_set(e, "MUSTER_WORKER_ID", in->worker_id);
}

/* Sets the variable to the worker's devices out of those it has: by number, or by its names. */
static int set_devices_by(const char *variable, struct envlist *e, uint32_t local_rank, uint32_t n,
                          const char *option, struct err *err) {
    const char *visible = envlist_get(e, variable);
    _cleanup_(strbuf_fini) struct strbuf list = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t index = local_rank * n + i;
        size_t len = 0;
        const char *item = visible != NULL ? list_item(visible, index, &len) : NULL;
        if (visible != NULL && len == 0)
            return err_set(err, -EINVAL,
                           "%s: %s=%s has no device for local rank %u; give %u per worker "
                           "or start fewer workers",
                           option, variable, visible, local_rank, n);
        strbuf_add(&list, i > 0 ? "," : "");
        if (item != NULL)
            strbuf_add_bytes(&list, item, len);
        else
            strbuf_printf(&list, "%u", index);
    }
    envlist_set(e, variable, strbuf_text(&list));
    return 0;
}

/* Sets both: ROCm reads CUDA_VISIBLE_DEVICES only if HIP_VISIBLE_DEVICES is not set or empty. */
static int set_devices(struct envlist *e, uint32_t local_rank, uint32_t n, const char *option,
                       struct err *err) {
    const char *hip = envlist_get(e, "HIP_VISIBLE_DEVICES");
    if (hip != NULL && hip[0] != '\0') {
        int r = set_devices_by("HIP_VISIBLE_DEVICES", e, local_rank, n, option, err);
        if (r < 0)
            return r;
    }
    return set_devices_by("CUDA_VISIBLE_DEVICES", e, local_rank, n, option, err);
}

bool worker_env_sets_omp(char *const *base, uint32_t local_world_size) {
    return local_world_size > 1 && env_get(base, "OMP_NUM_THREADS") == NULL;
}

void worker_env_master(const struct job_spec *spec, const char **ret_addr, uint16_t *ret_port) {
    /* as the user wrote it: scripts compare it with their own */
    bool chosen = job_backend(spec)->ranks_are_chosen && spec->endpoint_host != NULL &&
                  spec->endpoint_port != 0 && !spec->workers_store;
    *ret_addr = chosen ? spec->endpoint_host : spec->store_host;
    *ret_port = chosen ? spec->endpoint_port : spec->store_port;
}

/* Variables of a process manager are of its one task, which this muster is, and not of several
 * workers. Settings of users stay. (PMI-2 wire protocol, "Initialization"; openpmix, PMIX_MCA_.) */
static void unset_pmi(struct envlist *e) {
    static const char settings[] = "PMIX_MCA_";
    for (size_t i = e->n; i-- > 0;) {
        const char *item = e->items[i];
        bool pmi = strncmp(item, "PMI_", 4) == 0 || strncmp(item, "PMIX_", 5) == 0;
        if (!pmi || strncmp(item, settings, strlen(settings)) == 0)
            continue;
        _cleanup_(freep) char *name = xstrndup(item, strcspn(item, "="));
        envlist_unset(e, name);
    }
}

/* The same of other launchers. */
static void unset_of_launchers(struct envlist *e) {
    for (size_t i = 0; i < n_launchers; i++)
        for (size_t k = 0; k < ARRAY_SIZE(launchers[i].hidden); k++)
            if (launchers[i].hidden[k] != NULL)
                envlist_unset_prefix(e, launchers[i].hidden[k]);
}

int worker_env_build(char *const *base, const struct worker_env_input *in, struct envlist *ret,
                     struct err *err) {
    _cleanup_(envlist_fini) struct envlist e = {0};
    envlist_copy(&e, base);
    for (const struct job_worker_variable *v = job_worker_variables; v->name != NULL; v++)
        envlist_unset(&e, v->name); /* set by another launcher, whose worker this muster is */
    /* of an outer muster: there the worker listens in which this muster runs */
    if (env_get(base, "MUSTER_WORKER_ID") != NULL)
        envlist_unset(&e, "TORCH_WORKER_SERVER_SOCKET");
    envlist_unset_prefix(&e, "MUSTER_");
    unset_pmi(&e);
    unset_of_launchers(&e);
    set_ranks(&e, in);
    set_elastic(&e, in);
    set_ours(&e, in);
    if (in->omp_threads == 0 && worker_env_sets_omp(base, in->spec->nproc))
        envlist_set(&e, "OMP_NUM_THREADS", "1");
    else if (in->omp_threads > 0 && env_get(base, "OMP_NUM_THREADS") == NULL)
        envlist_setf(&e, "OMP_NUM_THREADS", "%u", in->omp_threads);
    int r = 0;
    if (in->spec->gpus_per_worker > 0)
        r = set_devices(&e, in->local_rank, in->spec->gpus_per_worker, "--gpus-per-worker", err);
    else if (in->spec->virtual_local_rank)
        r = set_devices(&e, in->local_rank, 1, "--virtual-local-rank", err);
    if (r < 0)
        return r;
    *ret = e;
    e = (struct envlist){0};
    return 0;
}

static const char *lookup_local_rank(void *arg, const char *name) {
    return strcmp(name, "local_rank") == 0 ? arg : NULL;
}

char **worker_argv_build(const struct job_spec *spec, const char *python, uint32_t local_rank) {
    char rank_text[16];
    (void)snprintf(rank_text, sizeof rank_text, "%u", local_rank);
    char **argv = NULL;
    size_t n = 0;
    bool by_python = spec->entry != JOB_ENTRY_PROGRAM;
    if (by_python) {
        words_add(&argv, &n, xstrdup(python));
        words_add(&argv, &n, xstrdup("-u"));
    }
    if (spec->entry == JOB_ENTRY_MODULE)
        words_add(&argv, &n, xstrdup("-m"));
    words_add(&argv, &n,
              by_python ? template_substitute(spec->script, lookup_local_rank, rank_text)
                        : xstrdup(spec->script));
    for (char *const *arg = spec->args; arg != NULL && *arg != NULL; arg++)
        words_add(&argv, &n, template_substitute(*arg, lookup_local_rank, rank_text));
    return argv;
}
