/* Whether ranks wait for each other, which is the reason for which a hang may be ended. */
#include <string.h>

#include "watchdog/suspects/suspects_priv.h"

static bool has_any(const char *text, const char *const *parts, size_t n) {
    bool found = false;
    for (size_t i = 0; i < n && !found; i++)
        found = strstr(text, parts[i]) != NULL;
    return found;
}

bool suspects_is_collective(const struct evidence_frame *f) {
    static const char *const libraries[] = {"/torch/distributed/",
                                            "/torch/nn/parallel/",
                                            "/mpi4py/",
                                            "/horovod/",
                                            "/deepspeed/comm/",
                                            "/jax/_src/distributed",
                                            "/jax/experimental/multihost",
                                            "/jax/_src/array",
                                            "/tensorflow/python/distribute/",
                                            "/cupyx/distributed/"};
    static const char *const no_collectives[] = {
        "/torch/distributed/elastic/", "/torch/distributed/rpc/", "/torch/distributed/run.py"};
    return has_any(f->file, libraries, ARRAY_SIZE(libraries)) &&
           !has_any(f->file, no_collectives, ARRAY_SIZE(no_collectives));
}

/* The innermost frames of libraries, below the first one of the user's own code. */
static bool has_frame(const struct evidence_stack *stack,
                      bool (*is)(const struct evidence_frame *f)) {
    bool found = false;
    for (uint32_t i = 0; stack != NULL && i < stack->n && !found; i++) {
        if (!suspects_is_library(stack->frames[i].file))
            break;
        found = is(&stack->frames[i]);
    }
    return found;
}

/* Where a kernel of NCCL is waited for, without a frame of torch.distributed. */
static bool waits_for_gpu(const struct evidence_frame *f) {
    static const char *const places[] = {"/torch/autograd/", "/torch/cuda/"};
    return has_any(f->file, places, ARRAY_SIZE(places));
}

static bool has_nccl(const struct evidence_worker *w) {
    static const char *const names[] = {"NCCL ", "pt_nccl_"};
    bool found = false;
    for (uint32_t i = 0; i < w->n_threads && !found; i++)
        found = has_any(w->threads[i].name, names, ARRAY_SIZE(names));
    return found;
}

static bool is_exit(const struct evidence_frame *f) {
    static const char *const functions[] = {"_shutdown", "_exit_function", "_python_exit",
                                            "destroy_process_group"};
    bool found = false;
    for (size_t i = 0; i < ARRAY_SIZE(functions) && !found; i++)
        found = strcmp(f->function, functions[i]) == 0;
    return found;
}

/* What atexit calls has no frame of Python below it, and a C function has none at all. */
bool suspects_at_exit(const struct suspects_input *in, const struct suspects *s, uint32_t rank) {
    const struct evidence_thread *t = suspects_main(s, rank);
    const struct evidence_worker *w = s->worker_of[rank];
    if (t == NULL)
        return false;
    const struct evidence_stack *stack = suspects_stack(suspects_evidence(in, rank), t);
    bool found = stack == NULL;
    for (uint32_t i = 0; stack != NULL && i < stack->n; i++)
        found = found || is_exit(&stack->frames[i]);
    for (uint32_t i = 0; stack == NULL && i < w->n_gaps; i++)
        found = found && (strncmp(w->gaps[i], "Python stack:", 13) != 0 ||
                          strstr(w->gaps[i], "no thread of Python") != NULL);
    return found;
}

static bool is_together(const struct evidence *e, const struct evidence_worker *w) {
    const struct evidence_thread *main = &w->threads[0];
    bool found = w->awaits_rank || suspects_wait(main) == WAIT_STOPPED;
    for (uint32_t i = 0; i < w->n_threads && !found; i++)
        found = has_frame(suspects_stack(e, &w->threads[i]), suspects_is_collective);
    for (uint32_t i = 0; i < w->n_children && !found; i++)
        found = has_frame(suspects_stack(e, &w->children[i].main), suspects_is_collective);
    if (found || !has_nccl(w))
        return found;
    return suspects_wait(main) == WAIT_RUNS || strncmp(main->target, "/dev/nvidia", 11) == 0 ||
           has_frame(suspects_stack(e, main), waits_for_gpu);
}

/* "10.0.0.1" of "tcp 10.0.0.1:4242 -> 10.0.0.2:29500 established", or that behind the arrow. */
static size_t address_of(const char *target, bool other, const char **ret) {
    const char *arrow = strstr(target, " -> ");
    *ret = arrow == NULL ? target : other ? arrow + 4 : strchr(target, ' ') + 1;
    size_t len = arrow == NULL || strncmp(target, "tcp", 3) != 0 ? 0 : strcspn(*ret, " ");
    while (len > 0 && (*ret)[len] != ':')
        len--;
    return len;
}

/* It waits on a connection to the address of a rank on another node. Who that is, its node does not
 * know. */
static bool waits_for_node(const struct suspects_input *in, const struct suspects *s,
                           uint32_t rank) {
    const struct evidence_thread *t = suspects_main(s, rank);
    const char *other, *own;
    size_t other_len = address_of(t->target, true, &other);
    size_t own_len = address_of(t->target, false, &own);
    bool found = false, local = other_len == own_len && memcmp(other, own, own_len) == 0;
    for (uint32_t r = 0; r < in->n_ranks && other_len > 0 && !local && !found; r++) {
        const struct evidence_thread *peer = suspects_main(s, r);
        size_t len = peer == NULL ? 0 : address_of(peer->target, false, &own);
        found = len == other_len && in->nodes_of[r] != in->nodes_of[rank] &&
                memcmp(own, other, len) == 0;
    }
    return found;
}

void suspects_find_reason(const struct suspects_input *in, struct suspects *s) {
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        const struct evidence_thread *t = suspects_main(s, r);
        bool at_exit = s->any_ended && suspects_at_exit(in, s, r);
        if (t == NULL)
            continue;
        s->n_together += !at_exit && (is_together(suspects_evidence(in, r), s->worker_of[r]) ||
                                      waits_for_node(in, s, r));
        s->n_at_exit += at_exit;
        s->used_ns = MAX2(s->used_ns, s->worker_of[r]->used_ns);
    }
}
