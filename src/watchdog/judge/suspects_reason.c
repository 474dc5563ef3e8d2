/* Whether ranks wait for each other, which is the reason for which a hang may be ended. */
#include <stdio.h>
#include <string.h>

#include "watchdog/judge/suspects_priv.h"

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
    return text_has_any(f->file, libraries, ARRAY_SIZE(libraries)) &&
           !text_has_any(f->file, no_collectives, ARRAY_SIZE(no_collectives));
}

/* Of the innermost frames, those above the first one of the user's own code. */
static bool has_frame(const struct evidence_stack *stack,
                      bool (*is)(const struct evidence_frame *f)) {
    uint32_t n = stack == NULL ? 0 : stack->n;
    for (uint32_t i = 0; i < n && suspects_is_library(stack->frames[i].file); i++)
        if (is(&stack->frames[i]))
            return true;
    return false;
}

/* Where a kernel of NCCL is waited for, without a frame of torch.distributed. */
static bool waits_for_gpu(const struct evidence_frame *f) {
    static const char *const places[] = {"/torch/autograd/", "/torch/cuda/"};
    return text_has_any(f->file, places, ARRAY_SIZE(places));
}

static bool has_nccl(const struct evidence_worker *w) {
    static const char *const names[] = {"NCCL ", "pt_nccl_"};
    for (uint32_t i = 0; i < w->n_threads; i++)
        if (text_has_any(w->threads[i].name, names, ARRAY_SIZE(names)))
            return true;
    return false;
}

/* What the interpreter calls at its exit is not below the program's own frame. */
static bool is_below_program(const struct evidence_stack *stack) {
    static const char *const outermost[] = {"<module>", "_run_module_as_main"};
    return stack->cut || stack->n == 0 ||
           text_is_any(stack->frames[stack->n - 1].function, outermost, ARRAY_SIZE(outermost));
}

/* In atexit, or in destroy_process_group. A C function that atexit calls has no frame. */
static bool is_at_exit(const struct suspects_input *in, const struct suspects *s, uint32_t rank) {
    const struct evidence_thread *t = suspects_main(s, rank);
    const struct evidence_worker *w = s->worker_of[rank];
    if (t == NULL)
        return false;
    const struct evidence_stack *stack = suspects_stack(suspects_evidence(in, rank), t);
    bool found = stack == NULL || !is_below_program(stack);
    for (uint32_t i = 0; stack != NULL && i < stack->n; i++)
        found = found || strcmp(stack->frames[i].function, "destroy_process_group") == 0;
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

/* The addresses of "tcp 10.0.0.1:4242 -> 10.0.0.2:29500 established". False: no such text. */
static bool addresses_of(const char *target, char own[64], char other[64]) {
    char *own_port, *other_port;
    if (sscanf(target, "tcp %63s -> %63s", own, other) != 2)
        return false;
    own_port = strrchr(own, ':');
    other_port = strrchr(other, ':');
    if (own_port == NULL || other_port == NULL)
        return false;
    *own_port = *other_port = '\0';
    return true;
}

/* It waits on a connection to the address of a rank on another node. Who that is, its node does not
 * know. */
static bool waits_for_node(const struct suspects_input *in, const struct suspects *s,
                           uint32_t rank) {
    char own[64], other[64], of_peer[64], unused[64];
    if (!addresses_of(suspects_main(s, rank)->target, own, other) || strcmp(own, other) == 0)
        return false;
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        const struct evidence_thread *t = suspects_main(s, r);
        if (t != NULL && in->nodes_of[r] != in->nodes_of[rank] &&
            addresses_of(t->target, of_peer, unused) && strcmp(of_peer, other) == 0)
            return true;
    }
    return false;
}

void suspects_find_reason(const struct suspects_input *in, struct suspects *s) {
    for (uint32_t r = 0; r < in->n_ranks; r++) {
        const struct evidence_thread *t = suspects_main(s, r);
        bool at_exit = s->any_ended && is_at_exit(in, s, r);
        if (t == NULL)
            continue;
        s->n_together += !at_exit && (is_together(suspects_evidence(in, r), s->worker_of[r]) ||
                                      waits_for_node(in, s, r));
        s->n_at_exit += at_exit;
        s->used_ns = MAX2(s->used_ns, s->worker_of[r]->used_ns);
    }
}
