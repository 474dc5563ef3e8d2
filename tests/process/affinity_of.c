/* Prints how the workers of a recorded node would be bound, for tests to compare.
 *
 *     test-affinity TREE @ALLOWED@VISIBLE MODE... @ALLOWED@VISIBLE MODE...
 *
 * ALLOWED: a list of CPUs, or "all"; VISIBLE: CUDA_VISIBLE_DEVICES, or "all". MODE: node, socket, exclusive or
 * core-complex (torchrun's), or bind-numa, bind-socket, bind-core, with /N after it: that many workers, else one for
 * each visible GPU. A line for each mode and worker: "MODE RANK CPUS; memory NODES; WHY", "MODE RANK unbound; ; WHY" or
 * "MODE RANK error; ; WHY"; a line "@" before each case. */
#include <stdio.h>
#include <string.h>

#include "topology/discover/discovery_io.h"
#include "topology/model/affinity.h"

static void *copy(const void *array, uint32_t n, size_t size) {
    void *c = xcalloc((size_t)n + 1, size);
    if (n > 0)
        memcpy(c, array, n * size);
    return c;
}

/* The topology that hwloc would find in a cgroup with only these CPUs. Everything else is that of the whole machine. */
static struct topology allow(const struct topology *whole, const struct cpuset *allowed) {
    struct topology t = *whole;
    t.numa = copy(t.numa, t.n_numa, sizeof *t.numa);
    t.cores = copy(t.cores, t.n_cores, sizeof *t.cores);
    t.caches = copy(t.caches, t.n_caches, sizeof *t.caches);
    cpuset_and(&t.allowed, allowed);
    for (uint32_t i = 0; i < t.n_numa; i++)
        cpuset_and(&t.numa[i].cpus, allowed);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t.n_cores; i++) {
        cpuset_and(&t.cores[i].cpus, allowed);
        if (!cpuset_is_empty(&t.cores[i].cpus))
            t.cores[n++] = t.cores[i];
    }
    t.n_cores = n;
    n = 0;
    for (uint32_t i = 0; i < t.n_caches; i++) {
        cpuset_and(&t.caches[i].cpus, allowed);
        if (!cpuset_is_empty(&t.caches[i].cpus))
            t.caches[n++] = t.caches[i];
    }
    t.n_caches = n;
    return t;
}

static enum bind_mode mode_of(const char *name, size_t n) {
    static const char *const names[] = {
        [BIND_NUMA] = "bind-numa",
        [BIND_SOCKET] = "bind-socket",
        [BIND_CORE] = "bind-core",
        [BIND_TORCH_NODE] = "node",
        [BIND_TORCH_SOCKET] = "socket",
        [BIND_TORCH_EXCLUSIVE] = "exclusive",
        [BIND_TORCH_CORE_COMPLEX] = "core-complex",
    };
    for (size_t i = BIND_NUMA; i < ARRAY_SIZE(names); i++)
        if (strlen(names[i]) == n && strncmp(names[i], name, n) == 0)
            return (enum bind_mode)i;
    return BIND_NONE;
}

static void show(const struct topology *t, struct affinity_input *in, const char *mode) {
    for (in->local_rank = 0; in->local_rank < in->nproc; in->local_rank++) {
        struct affinity a;
        struct err err = {0};
        struct strbuf cpus = {0}, nodes = {0};
        int r = affinity_choose(t, in, &a, &err);
        if (r == 0) {
            cpuset_write_list(&a.cpus, &cpus);
            cpuset_write_list(&a.nodes, &nodes);
        }
        printf("%s %u %s; %s; %s\n", mode, in->local_rank,
               r < 0      ? "error"
               : !a.bound ? "unbound"
                          : strbuf_text(&cpus),
               strbuf_text(&nodes), r < 0 ? err.text : a.why);
        strbuf_fini(&cpus);
        strbuf_fini(&nodes);
    }
}

/* Handles the modes up to the next case; returns how many there were, or -1. */
static int do_case(const struct topology *whole, char *text, char **modes) {
    struct cpuset allowed;
    char *visible_text = strchr(text + 1, '@');
    if (visible_text == NULL)
        return -1;
    *visible_text++ = '\0';
    if (strcmp(text + 1, "all") == 0)
        allowed = whole->allowed;
    else if (cpuset_parse_list(text + 1, &allowed) < 0)
        return -1;
    struct topology t = allow(whole, &allowed);
    uint32_t visible[TOPO_GPUS_MAX];
    bool unknown;
    uint32_t n = affinity_visible_gpus(&t, strcmp(visible_text, "all") == 0 ? NULL : visible_text, visible,
                                       TOPO_GPUS_MAX, &unknown);
    printf("@\n");
    int done = 0;
    for (; modes[done] != NULL && modes[done][0] != '@'; done++) {
        const char *slash = strchr(modes[done], '/');
        size_t len = slash != NULL ? (size_t)(slash - modes[done]) : strlen(modes[done]);
        struct affinity_input in = {.mode = mode_of(modes[done], len),
                                    .memory = BIND_MEMORY_PREFERRED,
                                    .nproc = slash != NULL ? (uint32_t)atoi(slash + 1) : n,
                                    .visible = visible,
                                    .n_visible = n,
                                    .gpus_per_worker = 1};
        if (in.mode == BIND_NONE)
            return -1;
        show(&t, &in, modes[done]);
    }
    free(t.numa);
    free(t.cores);
    free(t.caches);
    return done;
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    struct topology t = {0};
    struct err err = {0};
    struct discovery_config look = {.what = DISCOVER_CPUS | DISCOVER_PCI, .sysroot = argv[1]};
    if (topology_discover(&look, &t, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (int i = 2, done; i < argc; i += done + 1) {
        done = do_case(&t, argv[i], argv + i + 1);
        if (done < 0)
            return 2;
    }
    topology_fini(&t);
    return 0;
}
