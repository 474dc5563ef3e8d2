#include "launcher/node/node_setup.h"

#include <stdio.h>
#include <string.h>

#include "topology/discover/discovery_io.h"

unsigned node_setup_needs(const struct job_spec *spec, bool any_gpu) {
    unsigned what = 0;
    if (spec->bind > BIND_NONE || spec->omp == JOB_OMP_CORES)
        what |= DISCOVER_CPUS;
    if (any_gpu && (spec->bind > BIND_NONE || spec->bind == 0))
        what |= DISCOVER_CPUS | DISCOVER_PCI | DISCOVER_NVML;
    if (any_gpu && spec->nccl_env > NCCL_ENV_OFF)
        what |= DISCOVER_ALL;
    return what;
}

/* ---- variables ---- */

static struct env_input env_input_of(const struct node_setup_input *in, const struct node_setup *s,
                                     uint32_t local_rank) {
    const struct job_spec *spec = in->spec;
    struct env_input env = in->env;
    env.mode = spec->nccl_env == 0 ? NCCL_ENV_OFF : spec->nccl_env;
    env.nproc = spec->nproc;
    env.local_rank = local_rank;
    env.rank += local_rank;
    env.visible = s->visible;
    env.n_visible = s->n_visible;
    env.gpus_per_worker = spec->gpus_per_worker;
    env.virtual_local_rank = spec->virtual_local_rank;
    env.debug = spec->nccl_debug;
    env.strict = spec->preflight == JOB_PREFLIGHT_STRICT;
    env.set = spec->env;
    env.omp_cores = spec->omp == JOB_OMP_CORES;
    env.bound_cores = s->workers[local_rank].omp_threads;
    return env;
}

/* Finds an earlier worker with the same variables; the worker itself if there is none. A thousand
 * workers differ in only one or two numbers of threads. */
static uint32_t alike(const struct node_setup *s, const struct env_input *of, uint32_t worker) {
    uint32_t first = of->virtual_local_rank || of->gpus_per_worker > 0 ? worker : 0;
    while (env_is_per_worker(of) && s->workers[first].omp_threads != s->workers[worker].omp_threads)
        first++;
    return first;
}

static void resolve_all(const struct node_setup_input *in, struct node_setup *s) {
    s->envs = xcalloc(s->n, sizeof *s->envs);
    for (uint32_t i = 0; i < s->n; i++) {
        struct env_input one = env_input_of(in, s, i);
        uint32_t like = alike(s, &one, i);
        if (like == i)
            env_resolve(&one, &s->envs[i]);
        s->workers[i].env = &s->envs[like];
    }
}

/* ---- CPUs and memory ---- */

/* The GPUs that workers will see: CUDA's, or ROCm's if CUDA has none. */
struct seen {
    uint32_t gpus[TOPO_GPUS_MAX]; /* indices in the topology's */
    uint32_t n;
    bool unknown; /* there are others that can't be identified */
    bool rocm;
};

static const char *visible_devices(const struct node_setup_input *in) {
    return job_worker_value(in->spec, in->env.envp, "CUDA_VISIBLE_DEVICES");
}

static bool has_nvidia(const struct topology *t) {
    for (uint32_t i = 0; i < t->n_gpus; i++)
        if (t->gpus[i].vendor == TOPO_VENDOR_NVIDIA)
            return true;
    return false;
}

static void see_gpus(const struct node_setup_input *in, struct node_setup *s, struct seen *ret) {
    const struct topology *t = in->env.topology;
    bool unknown;
    *ret = (struct seen){.n = 0};
    if (t == NULL || !in->env.any_gpu)
        return;
    s->n_visible =
        affinity_visible_gpus(t, visible_devices(in), s->visible, TOPO_GPUS_MAX, &unknown);
    if (has_nvidia(t)) {
        bool dealt = in->spec->virtual_local_rank || in->spec->gpus_per_worker > 0;
        ret->n = (dealt ? affinity_dealt_gpus : affinity_visible_gpus)(
            t, visible_devices(in), ret->gpus, TOPO_GPUS_MAX, &ret->unknown);
        return;
    }
    const struct rocm_visible names = {
        .rocr = job_worker_value(in->spec, in->env.envp, "ROCR_VISIBLE_DEVICES"),
        .hip = job_worker_value(in->spec, in->env.envp, "HIP_VISIBLE_DEVICES"),
        .cuda = visible_devices(in)};
    ret->n =
        rocm_visible_gpus(t, in->rocm, in->n_rocm, &names, ret->gpus, TOPO_GPUS_MAX, &ret->unknown);
    ret->rocm = true;
}

/* A single worker can use all GPUs that it sees (a model spread over them, a script that spawns).
 * If the user requests a mode, its rule applies: worker i has GPU i. */
static uint32_t gpus_of_each(const struct job_spec *spec, uint32_t n_visible) {
    bool all = spec->bind == 0 && spec->nproc == 1 && !spec->virtual_local_rank;
    return MAX2(spec->gpus_per_worker, all && spec->gpus_per_worker == 0 ? n_visible : 1);
}

static bool are_alike(const struct topology *t, const uint32_t *gpus, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        const struct topo_gpu *a = &t->gpus[gpus[0]], *b = &t->gpus[gpus[i]];
        if (strcmp(a->name, b->name) != 0)
            return false;
        if (a->pci < t->n_pci && b->pci < t->n_pci &&
            t->pci[a->pci].device != t->pci[b->pci].device)
            return false;
    }
    return true;
}

/* CUDA orders GPUs that differ by its guess of their speed, unless CUDA_DEVICE_ORDER is set (CUDA C
 * programming guide). It does not matter for names, nor for a worker that has all GPUs. */
static bool order_is_known(const struct node_setup_input *in, const struct node_setup *s) {
    const char *order = env_get(in->env.envp, "CUDA_DEVICE_ORDER");
    const char *names = visible_devices(in);
    _cleanup_(env_result_fini) struct env_result env = {0};
    struct env_input first = env_input_of(in, s, 0); /* the rules choose the same for all workers */
    env_resolve(&first, &env);
    const struct env_choice *ours = env_result_find(&env, "CUDA_DEVICE_ORDER");
    if (ours != NULL && ours->value != NULL &&
        (ours->action == ENV_SET || ours->action == ENV_ASKED))
        order = ours->value;
    uint32_t all[TOPO_GPUS_MAX];
    bool unknown;
    uint32_t n = affinity_visible_gpus(in->env.topology, NULL, all, TOPO_GPUS_MAX, &unknown);
    if (s->n_visible == n && gpus_of_each(in->spec, n) >= n)
        return true;
    return (order != NULL && strcmp(order, "PCI_BUS_ID") == 0) ||
           (names != NULL && (strncmp(names, "GPU-", 4) == 0 || strncmp(names, "MIG-", 4) == 0)) ||
           are_alike(in->env.topology, all, n);
}

static void leave_unbound(struct node_setup *s, const char *why) {
    for (uint32_t i = 0; i < s->n; i++) {
        s->workers[i].affinity = (struct affinity){0};
        (void)snprintf(s->workers[i].affinity.why, sizeof s->workers[i].affinity.why, "%s", why);
    }
}

static bool goes_by_gpu(enum bind_mode mode) {
    return mode == BIND_NUMA || mode == BIND_SOCKET || mode >= BIND_TORCH_NODE;
}

/* The user did not request the default: if it changes nothing, it is not reported. */
static void drop_needless(struct affinity *a) {
    if (a->bound && a->everywhere && !a->strict) {
        char why[sizeof a->why];
        (void)snprintf(why, sizeof why, "all CPUs here are of %.100s", a->why);
        *a = (struct affinity){.everywhere = true};
        memcpy(a->why, why, sizeof why);
    }
}

static int bind_all(const struct node_setup_input *in, struct node_setup *s,
                    const struct seen *seen, struct err *err) {
    const struct job_spec *spec = in->spec;
    if (in->env.topology == NULL) {
        leave_unbound(s, "nothing is known about this node");
        return 0;
    }
    if (goes_by_gpu(s->mode) && seen->unknown) {
        leave_unbound(s, seen->rocm
                             ? "ROCm shows GPUs that are not among the PCI devices seen here"
                             : "CUDA_VISIBLE_DEVICES names GPUs that can't be distinguished here");
        return 0;
    }
    if (goes_by_gpu(s->mode) && seen->n > 0 && !seen->rocm && !order_is_known(in, s)) {
        leave_unbound(s, "CUDA orders unlike GPUs by speed; set CUDA_DEVICE_ORDER=PCI_BUS_ID to "
                         "fix their order");
        return 0;
    }
    struct affinity_input a = {.mode = s->mode,
                               .memory = spec->bind_memory,
                               .nproc = spec->nproc,
                               .visible = seen->gpus,
                               .n_visible = seen->n,
                               .gpus_per_worker = gpus_of_each(spec, seen->n)};
    for (; a.local_rank < s->n; a.local_rank++) {
        struct affinity *affinity = &s->workers[a.local_rank].affinity;
        int r = affinity_choose(in->env.topology, &a, affinity, err);
        if (r < 0)
            return r;
        if (spec->bind == 0)
            drop_needless(affinity);
        else
            affinity->everywhere = false;
    }
    return 0;
}

/* The share of each worker: a core that n workers may use counts 1/n for each. */
static void count_threads(const struct topology *t, struct node_setup *s) {
    _cleanup_(freep) double *parts = xcalloc(s->n, sizeof *parts);
    for (uint32_t c = 0; c < t->n_cores; c++) {
        uint32_t users = 0;
        for (uint32_t i = 0; i < s->n; i++) {
            const struct affinity *a = &s->workers[i].affinity;
            users += !a->bound || cpuset_intersects(&a->cpus, &t->cores[c].cpus);
        }
        for (uint32_t i = 0; i < s->n; i++) {
            const struct affinity *a = &s->workers[i].affinity;
            if (!a->bound || cpuset_intersects(&a->cpus, &t->cores[c].cpus))
                parts[i] += 1.0 / users;
        }
    }
    for (uint32_t i = 0; i < s->n; i++)
        s->workers[i].omp_threads = MAX2((uint32_t)(parts[i] + 1e-6), UINT32_C(1));
}

int node_setup_make(const struct node_setup_input *in, struct node_setup *ret, struct err *err) {
    struct node_setup s = {.n = in->spec->nproc};
    struct seen seen;
    s.workers = xcalloc(s.n, sizeof *s.workers);
    see_gpus(in, &s, &seen);
    /* the default binds near GPUs, and does not bind if workers see none */
    s.mode = in->spec->bind != 0 ? in->spec->bind : seen.n > 0 ? BIND_NUMA : BIND_NONE;
    int r = s.mode == BIND_NONE ? 0 : bind_all(in, &s, &seen, err);
    if (r < 0) {
        node_setup_fini(&s);
        return r;
    }
    if (in->spec->omp == JOB_OMP_CORES && in->env.topology != NULL)
        count_threads(in->env.topology, &s);
    resolve_all(in, &s);
    *ret = s;
    return 0;
}

void node_setup_fini(struct node_setup *s) {
    for (uint32_t i = 0; i < s->n && s->envs != NULL; i++)
        env_result_fini(&s->envs[i]);
    free(s->envs);
    free(s->workers);
    *s = (struct node_setup){0};
}

/* ---- texts ---- */

#define GROUPS_SHOWN 4 /* how many different sets of CPUs are listed */

/* The end of the local ranks from `from` on that are bound in the same way, or all not bound. */
static uint32_t alike_until(const struct node_setup *s, uint32_t from) {
    const struct affinity *a = &s->workers[from].affinity;
    uint32_t to = from + 1;
    for (; to < s->n; to++) {
        const struct affinity *b = &s->workers[to].affinity;
        if (a->bound != b->bound || (a->bound && !cpuset_equal(&a->cpus, &b->cpus)))
            break;
    }
    return to;
}

static void add_ranks(struct strbuf *to, uint32_t from, uint32_t end) {
    if (end - from == 1)
        strbuf_printf(to, "%u", from);
    else
        strbuf_printf(to, "%u-%u", from, end - 1);
}

static void add_memory(struct strbuf *to, const struct affinity *a) {
    if (cpuset_is_empty(&a->nodes))
        return;
    strbuf_printf(to, ", memory %s node ", a->strict ? "only of" : "first of");
    cpuset_write_list(&a->nodes, to);
}

void node_setup_describe(const struct node_setup *s, struct strbuf *to) {
    uint32_t shown = 0, hidden = 0;
    for (uint32_t i = 0, end; i < s->n; i = end) {
        end = alike_until(s, i);
        const struct affinity *a = &s->workers[i].affinity;
        if (!a->bound)
            continue;
        if (shown == GROUPS_SHOWN) {
            hidden += end - i;
            continue;
        }
        strbuf_add(to, shown++ == 0 ? "workers are bound to CPUs: local rank " : "; ");
        add_ranks(to, i, end);
        strbuf_add(to, " to ");
        cpuset_write_list(&a->cpus, to);
        add_memory(to, a);
    }
    if (hidden > 0)
        strbuf_printf(to, "; and %u more", hidden);
}

void node_setup_describe_unbound(const struct node_setup *s, struct strbuf *to) {
    uint32_t n = 0, first = s->n;
    for (uint32_t i = s->n; s->mode != BIND_NONE && i-- > 0;) {
        if (s->workers[i].affinity.bound || s->workers[i].affinity.everywhere)
            continue;
        n++;
        first = i;
    }
    if (n == 0)
        return;
    if (n == s->n)
        strbuf_add(to, "no worker is bound");
    else if (n == 1)
        strbuf_printf(to, "local rank %u is not bound", first);
    else
        strbuf_printf(to, "local rank %u and %u more are not bound", first, n - 1);
    strbuf_printf(to, ": %s", s->workers[first].affinity.why);
}

void node_setup_describe_worker(const struct node_setup *s, uint32_t i, struct strbuf *to) {
    const struct affinity *a = &s->workers[i].affinity;
    strbuf_printf(to, "local rank %u: ", i);
    if (!a->bound) {
        strbuf_printf(to, "not bound: %s", a->why);
        return;
    }
    strbuf_add(to, "CPUs ");
    cpuset_write_list(&a->cpus, to);
    add_memory(to, a);
    strbuf_printf(to, " (%s)", a->why);
}

void node_setup_add_env(const struct node_setup *s, uint32_t i, struct envlist *env) {
    const struct env_result *from = s->workers[i].env;
    for (uint32_t k = 0; k < from->n; k++)
        if (from->choices[k].action == ENV_SET || from->choices[k].action == ENV_ASKED)
            envlist_set(env, from->choices[k].name, from->choices[k].value);
}
