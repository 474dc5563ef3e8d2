#include "watchdog/judge/suspects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "watchdog/evidence/slow.h"
#include "watchdog/evidence/waits.h"
#include "watchdog/judge/suspects_priv.h"

const char *const suspect_reason_names[] = {
    [SUSPECT_ENDED] = "ended",
    [SUSPECT_UNENDED] = "unended",
    [SUSPECT_STOPPED] = "stopped",
    [SUSPECT_ABSENT] = "absent",
    [SUSPECT_COLLECTIVES] = "collectives",
    [SUSPECT_STEPS] = "steps",
    [SUSPECT_UNMOVED] = "unmoved",
    [SUSPECT_CHILD] = "child",
    [SUSPECT_ELSEWHERE] = "elsewhere",
    [SUSPECT_THREAD] = "thread",
    [SUSPECT_BUSY] = "busy",
};

const struct evidence_thread *suspects_main(const struct suspects *s, uint32_t rank) {
    const struct evidence_worker *w = s->worker_of[rank];
    return w != NULL && !s->ended[rank] && !s->reacted[rank] && w->n_threads > 0 ? &w->threads[0]
                                                                                 : NULL;
}

/* ---- stacks, and how a thread waits ---- */

const struct evidence_stack *suspects_stack(const struct evidence *e,
                                            const struct evidence_thread *t) {
    if (t->stack < 0 || (uint32_t)t->stack >= e->n_stacks || e->stacks[t->stack].n == 0)
        return NULL;
    return &e->stacks[t->stack];
}

/* Where Python and its packages are installed (PEP 370, sysconfig's "posix_prefix" and Debian's
 * "deb_system"): "/usr/lib/python3.11/threading.py". */
static bool is_library(const char *file) {
    const char *lib = strstr(file, "/lib/python");
    return file[0] == '<' || strstr(file, "/site-packages/") != NULL ||
           strstr(file, "/dist-packages/") != NULL ||
           (lib != NULL && lib[strlen("/lib/python")] >= '0' && lib[strlen("/lib/python")] <= '9');
}

/* Whether this frame is in a library in which ranks wait for each other. */
static bool is_collective(const struct pystack_frame *f) {
    static const char *const libraries[] = {"/torch/distributed/",
                                            "/torch/nn/parallel/",
                                            "/torch/autograd/__init__.py", /* DDP, in backward() */
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

const struct pystack_frame *suspects_user_frame(const struct evidence_stack *stack) {
    if (stack == NULL || stack->n == 0)
        return NULL;
    for (uint32_t i = 0; i < stack->n; i++)
        if (!is_library(stack->frames[i].file))
            return &stack->frames[i];
    return &stack->frames[0];
}

/* At the prompt of pdb or ipdb, stopped by debugpy, or waiting for a client of that. */
static bool at_debugger(const struct evidence_stack *stack) {
    static const struct {
        const char *function, *file;
    } waits[] = {
        {"cmdloop", "cmd.py"},             /* pdb, and what is made of it */
        {"cmdloop", "debugger.py"},        /* IPython's, so ipdb's */
        {"_wait_for_attach", "pydevd.py"}, /* debugpy.wait_for_client() */
        {"_do_wait_suspend", "pydevd.py"}, /* debugpy at a breakpoint */
    };
    for (uint32_t i = 0; stack != NULL && i < stack->n; i++)
        for (size_t k = 0; k < ARRAY_SIZE(waits); k++)
            if (strcmp(stack->frames[i].function, waits[k].function) == 0 &&
                strcmp(path_name(stack->frames[i].file), waits[k].file) == 0)
                return true;
    return false;
}

static void add_frame(const struct pystack_frame *f, char *out, size_t size) {
    if (f->line != 0)
        (void)snprintf(out, size, "%s (%.80s:%u)", f->function, path_name(f->file), f->line);
    else
        (void)snprintf(out, size, "%s (%.80s)", f->function, path_name(f->file));
}

/* The call in which it waits: "read()", "pipe_read"; "" if that is not known. */
static void call_of(const struct evidence_thread *t, char *out, size_t size) {
    out[0] = '\0';
    if (t->syscall[0] != '\0')
        (void)snprintf(out, size, "%s()", t->syscall);
    else if (t->wchan[0] != '\0' && strcmp(t->wchan, "0") != 0)
        (void)snprintf(out, size, "%s", t->wchan);
}

/* "all_reduce from " where the user's own code has called that. Wrappers and what the library calls
 * itself show less. */
static void add_collective(const struct evidence_stack *stack, char *out, size_t size) {
    out[0] = '\0';
    for (uint32_t i = 0; i < stack->n && is_library(stack->frames[i].file); i++) {
        const struct pystack_frame *f = &stack->frames[i];
        if (is_collective(f) && f->function[0] != '_' && strcmp(f->function, "wrapper") != 0) {
            (void)snprintf(out, size, "%.40s from ", f->function);
            return;
        }
    }
}

static void add_place(const struct evidence_stack *stack, char *out, size_t size) {
    const struct pystack_frame *user = suspects_user_frame(stack);
    if (is_library(user->file)) /* all is: the innermost frame is shown */
        out[0] = '\0';
    else
        add_collective(stack, out, size);
    size_t len = strlen(out);
    add_frame(user, out + len, size - len);
}

/* "backward (train.py:76)", and, if there is no Python stack, "futex()"; "" if nothing is known. */
static void write_where(const struct evidence *e, const struct evidence_thread *t, char *out,
                        size_t size) {
    const struct evidence_stack *stack = suspects_stack(e, t);
    if (stack != NULL)
        add_place(stack, out, size);
    else
        call_of(t, out, size);
    size_t len = strlen(out);
    if (strncmp(t->target, EVIDENCE_LOCK, strlen(EVIDENCE_LOCK)) == 0)
        (void)snprintf(out + len, size - len, ", %.100s", t->target);
}

enum wait_kind suspects_wait(const struct evidence_thread *t) {
    switch (t->state) {
    case 'R': return WAIT_RUNS;
    case 'D': return WAIT_BLOCKED;
    case 'T': return WAIT_STOPPED;
    case 't': return WAIT_TRACED;
    default: return WAIT_SLEEPS;
    }
}

static const char *verb_of(const struct evidence_thread *t, const struct evidence_worker *w,
                           uint32_t n) {
    switch (suspects_wait(t)) {
    case WAIT_SLEEPS: return n == 1 ? "waits" : "wait";
    case WAIT_RUNS:
        if (w != NULL && w->spins)
            return n == 1 ? "seems to wait for its GPU" : "seem to wait for their GPUs";
        /* The kernel's R is a thread that runs, or that would if it got a CPU. */
        if (w != NULL && w->still_ns >= HANG_MOVED_NS)
            return n == 1 ? "waits for a CPU" : "wait for a CPU";
        return n == 1 ? "runs" : "run";
    case WAIT_BLOCKED: return n == 1 ? "is blocked" : "are blocked";
    case WAIT_STOPPED: return n == 1 ? "is stopped" : "are stopped";
    case WAIT_TRACED: return n == 1 ? "is traced" : "are traced";
    }
    return "";
}

/* Of one that a debugger does not hold, if there is one: the others wait at the same place. */
const char *suspects_group_verb(const struct suspects *s, const struct suspects_group *g,
                                uint32_t n) {
    uint32_t rank = g->first, number = s->group_of[rank];
    for (uint32_t seen = 1; seen < g->n && suspects_wait(suspects_main(s, rank)) == WAIT_TRACED;) {
        do
            rank++;
        while (s->group_of[rank] != number);
        seen++;
    }
    return verb_of(suspects_main(s, rank), s->worker_of[rank], n);
}

void suspects_describe(const struct evidence *e, const struct evidence_thread *t,
                       const struct evidence_worker *w, struct strbuf *ret) {
    const struct evidence_stack *stack = suspects_stack(e, t);
    char call[EVIDENCE_WORD_MAX + 2], where[SUSPECTS_WHERE_MAX];
    enum wait_kind kind = suspects_wait(t);
    call_of(t, call, sizeof call);
    if (kind == WAIT_SLEEPS || kind == WAIT_BLOCKED)
        strbuf_add(ret, call[0] != '\0' ? call : "waits");
    else
        strbuf_add(ret, kind == WAIT_STOPPED ? "stopped (T)" : verb_of(t, w, 1));
    if (stack != NULL) {
        add_place(stack, where, sizeof where);
        strbuf_printf(ret, " in %s", where);
    }
    if (kind == WAIT_BLOCKED)
        strbuf_add(ret, ", uninterruptible (D)");
    if (kind != WAIT_RUNS && kind != WAIT_STOPPED && t->target[0] != '\0')
        strbuf_printf(ret, ", %.100s", t->target);
}

/* ---- children ---- */

/* 0: it has no stack. */
static uint64_t place_of(const struct evidence_stack *stack) {
    return stack == NULL ? 0 : stack->place;
}

/* A child of each of two ranks, which can be the same. */
static bool wait_alike(const struct suspects *s, uint32_t rank_a, const struct evidence_thread *a,
                       uint32_t rank_b, const struct evidence_thread *b) {
    enum wait_kind kind = suspects_wait(a);
    if (kind != suspects_wait(b))
        return false;
    uint64_t place_a = place_of(suspects_stack(suspects_evidence(s, rank_a), a));
    uint64_t place_b = place_of(suspects_stack(suspects_evidence(s, rank_b), b));
    /* Some stacks could not be read; then the kernel's word counts. */
    if (place_a != 0 && place_b != 0 && place_a != place_b)
        return false;
    if (kind != WAIT_SLEEPS && kind != WAIT_BLOCKED)
        return true;
    if (a->syscall[0] != '\0' && b->syscall[0] != '\0')
        return strcmp(a->syscall, b->syscall) == 0;
    return strcmp(a->wchan, b->wchan) == 0;
}

/* Whether a child of this rank, besides itself, waits like `child` of rank `of`. */
static bool has_alike(const struct suspects *s, uint32_t rank, uint32_t of,
                      const struct evidence_child *child) {
    const struct evidence_worker *w = s->worker_of[rank];
    for (uint32_t i = 0; i < w->n_children; i++)
        if (&w->children[i] != child && wait_alike(s, of, &child->main, rank, &w->children[i].main))
            return true;
    return false;
}

/* In how many other ranks, of how many that have children, one waits like this. */
static void count_alike(const struct suspects *s, uint32_t rank, const struct evidence_child *child,
                        uint32_t *ret_alike, uint32_t *ret_n) {
    *ret_alike = *ret_n = 0;
    for (uint32_t i = 0; i < s->n_parents && *ret_n < SUSPECTS_PARENTS_MAX - 1; i++) {
        if (s->parents[i] == rank)
            continue;
        ++*ret_n;
        *ret_alike += has_alike(s, s->parents[i], rank, child);
    }
}

static const struct evidence_child *odd_child(const struct suspects *s, uint32_t rank) {
    const struct evidence_worker *w = s->worker_of[rank];
    for (uint32_t i = 0; w != NULL && i < w->n_children; i++) {
        const struct evidence_child *child = &w->children[i];
        uint32_t alike, n;
        if (has_alike(s, rank, rank, child))
            continue;
        count_alike(s, rank, child, &alike, &n);
        if (n > 0 ? 2 * alike < n : w->n_children > 2)
            return child;
    }
    return NULL;
}

static bool is_chosen(const struct suspects *s, uint32_t rank) {
    return s->in->chosen == NULL || s->in->chosen[rank];
}

bool suspects_is_missing(const struct suspects *s, uint32_t rank) {
    return is_chosen(s, rank) && !s->ended[rank] && !s->reacted[rank] &&
           suspects_main(s, rank) == NULL;
}

void suspects_fini(struct suspects *s) {
    free(s->groups);
    free(s->group_of);
    free(s->suspects);
    free(s->worker_of);
    free(s->ended);
    free(s->collectives);
    free(s->reacted);
    free(s->is_suspect);
    *s = (struct suspects){0};
}

/* ---- whether ranks wait for each other: the reason for which a hang may be ended ---- */

/* Of the innermost frames, those above the first one of the user's own code. */
static bool has_frame(const struct evidence_stack *stack,
                      bool (*is)(const struct pystack_frame *f)) {
    uint32_t n = stack == NULL ? 0 : stack->n;
    for (uint32_t i = 0; i < n && is_library(stack->frames[i].file); i++)
        if (is(&stack->frames[i]))
            return true;
    return false;
}

/* Where a kernel of NCCL is waited for, without a frame of torch.distributed. */
static bool waits_for_gpu(const struct pystack_frame *f) {
    static const char *const places[] = {"/torch/autograd/", "/torch/cuda/"};
    return text_has_any(f->file, places, ARRAY_SIZE(places));
}

static bool has_nccl(const struct evidence_worker *w) {
    for (uint32_t i = 0; i < w->n_threads; i++)
        if (slow_is_nccl(w->threads[i].name))
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
static bool is_at_exit(const struct suspects *s, uint32_t rank) {
    const struct evidence_thread *t = suspects_main(s, rank);
    const struct evidence_worker *w = s->worker_of[rank];
    if (t == NULL)
        return false;
    const struct evidence_stack *stack = suspects_stack(suspects_evidence(s, rank), t);
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
        found = has_frame(suspects_stack(e, &w->threads[i]), is_collective);
    for (uint32_t i = 0; i < w->n_children && !found; i++)
        found = has_frame(suspects_stack(e, &w->children[i].main), is_collective);
    if (found || !has_nccl(w))
        return found;
    return suspects_wait(main) == WAIT_RUNS || strncmp(main->target, "/dev/nvidia", 11) == 0 ||
           has_frame(suspects_stack(e, main), waits_for_gpu);
}

/* It waits on a connection to the address of a rank on another node. Who that is, its node does not
 * know. */
static bool waits_for_node(const struct suspects *s, uint32_t rank) {
    struct waits_ends ends, peer;
    if (!waits_connection(suspects_main(s, rank)->target, &ends) ||
        strcmp(ends.own, ends.other) == 0)
        return false;
    for (uint32_t r = 0; r < s->in->n_ranks; r++) {
        const struct evidence_thread *t = suspects_main(s, r);
        if (t != NULL && s->in->nodes_of[r] != s->in->nodes_of[rank] &&
            waits_connection(t->target, &peer) && strcmp(peer.own, ends.other) == 0)
            return true;
    }
    return false;
}

static void find_reason(struct suspects *s) {
    for (uint32_t r = 0; r < s->in->n_ranks; r++) {
        const struct evidence_thread *t = suspects_main(s, r);
        bool at_exit = s->any_ended && is_at_exit(s, r);
        if (t == NULL)
            continue;
        s->n_together += !at_exit && (is_together(suspects_evidence(s, r), s->worker_of[r]) ||
                                      waits_for_node(s, r));
        s->n_at_exit += at_exit;
        s->used_ns = MAX2(s->used_ns, s->worker_of[r]->used_ns);
    }
}

/* ---- whose evidence is whose ---- */

#define REACTED_STILL_NS NS_PER_S /* who moves is still for less */

/* Who failed, and who waited and has moved or ended since. */
static void find_reacted(struct suspects *s) {
    for (uint32_t r = 0; s->in->waited != NULL && r < s->in->n_ranks; r++) {
        const struct evidence_worker *w = s->worker_of[r];
        bool known = suspects_evidence(s, r) != NULL && !s->ended[r];
        bool moved = w == NULL || w->ended || w->n_threads == 0 || w->spins ||
                     w->still_ns < REACTED_STILL_NS;
        s->reacted[r] = r == s->in->failed || (known && s->in->waited[r] && moved);
        s->n_reacted += s->reacted[r];
    }
}

/* Whose evidence is whose. A node speaks only of its own ranks. */
static void collect(struct suspects *s) {
    for (uint32_t node = 0; node < s->in->n_nodes; node++) {
        const struct evidence *e = s->in->nodes[node].evidence;
        for (uint32_t i = 0; e != NULL && i < e->n_workers; i++) {
            const struct evidence_worker *w = &e->workers[i];
            if (w->rank >= s->in->n_ranks || s->in->nodes_of[w->rank] != node ||
                !is_chosen(s, w->rank))
                continue;
            s->worker_of[w->rank] = w;
            s->any_at_store = s->any_at_store || w->at_store;
            s->ended[w->rank] = w->ended && s->in->waited == NULL; /* else it may have failed */
        }
    }
    for (uint32_t i = 0; i < s->in->n_signs; i++)
        if (s->in->signs[i].sign == HANG_SIGN_ENDED && s->in->signs[i].rank < s->in->n_ranks)
            s->ended[s->in->signs[i].rank] = true;
    for (uint32_t r = 0; r < s->in->n_ranks; r++)
        s->any_ended = s->any_ended || s->ended[r];
    find_reacted(s);
    find_reason(s);
    for (uint32_t r = 0; r < s->in->n_ranks; r++)
        s->n_missing += suspects_is_missing(s, r);
}

/* The program of a rank can be a child of the worker. */
static bool is_debugged(const struct suspects *s, uint32_t rank) {
    const struct evidence_worker *w = s->worker_of[rank];
    const struct evidence_thread *t = suspects_main(s, rank);
    const struct evidence *e = suspects_evidence(s, rank);
    bool is = t != NULL && at_debugger(suspects_stack(e, t));
    for (uint32_t i = 0; t != NULL && i < w->n_children && !is; i++)
        is = at_debugger(suspects_stack(e, &w->children[i].main));
    return is;
}

static void find_debugged(struct suspects *s) {
    for (uint32_t r = 0; r < s->in->n_ranks; r++)
        if (is_debugged(s, r) && s->n_debugged++ == 0)
            s->debugged = r;
}

/* ---- groups ---- */

/* From fine to coarse. */
enum level { LEVEL_ALL = 0, LEVEL_STACK, LEVEL_LINE, N_LEVELS };

struct keyed {
    uint64_t key;
    uint32_t rank;
};

/* The word for how it waits: of the system call if that is known, because kernels name their own
 * functions differently. */
static const char *wait_word(const struct evidence_thread *t) {
    return t->syscall[0] != '\0' ? t->syscall : t->wchan;
}

static uint64_t key_of(const struct evidence *e, const struct evidence_thread *t,
                       enum level level) {
    const struct evidence_stack *stack = suspects_stack(e, t);
    enum wait_kind kind = suspects_wait(t);
    if (level == LEVEL_LINE && stack != NULL) {
        uint64_t place = evidence_place(suspects_user_frame(stack), 1);
        return kind == WAIT_BLOCKED ? hash_text(place, "D") : place;
    }
    uint64_t h = hash_bytes(HASH_BEGIN, &(uint64_t){place_of(stack)}, sizeof(uint64_t));
    /* A waiter that wakes for a moment, or spins, is still one, by its stack. */
    bool coarse = level != LEVEL_ALL && stack != NULL && (kind == WAIT_SLEEPS || kind == WAIT_RUNS);
    if (coarse)
        return h;
    h = hash_bytes(h, &kind, sizeof kind);
    return kind == WAIT_SLEEPS || kind == WAIT_BLOCKED ? hash_text(h, wait_word(t)) : h;
}

static int by_key(const void *a, const void *b) {
    const struct keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_size(const void *a, const void *b) {
    const struct suspects_group *x = a, *y = b;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Groups them by their keys: keyed[] is sorted, and groups[] has room for all. */
static uint32_t make_groups(struct keyed *keyed, uint32_t n, struct suspects_group *groups) {
    uint32_t n_groups = 0;
    qsort(keyed, n, sizeof *keyed, by_key);
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || keyed[i].key != keyed[i - 1].key)
            groups[n_groups++] = (struct suspects_group){.first = keyed[i].rank};
        groups[n_groups - 1].n++;
    }
    qsort(groups, n_groups, sizeof *groups, by_size);
    return n_groups;
}

static void make_keys(const struct suspects *s, enum level level, struct keyed *keyed) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < s->in->n_ranks; r++) {
        const struct evidence_thread *t = suspects_main(s, r);
        if (t != NULL)
            keyed[n++] = (struct keyed){key_of(suspects_evidence(s, r), t, level), r};
    }
}

/* The number of each rank's group, from the keys and the sorted groups. */
static void number_ranks(struct suspects *s, const struct keyed *keyed, uint32_t n) {
    for (uint32_t g = 0; g < s->n_groups; g++)
        s->group_of[s->groups[g].first] = g;
    for (uint32_t i = 1; i < n; i++) /* the first of a key is the first of its group */
        if (keyed[i].key == keyed[i - 1].key)
            s->group_of[keyed[i].rank] = s->group_of[keyed[i - 1].rank];
}

static void group_ranks(struct suspects *s) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < s->in->n_ranks; r++)
        n += suspects_main(s, r) != NULL;
    _cleanup_(freep) struct keyed *keyed = xcalloc(n + (size_t)1, sizeof *keyed);
    s->groups = xcalloc(n + (size_t)1, sizeof *s->groups);
    /* Without any majority, the finest groups are shown. */
    for (int i = 0; i <= N_LEVELS && !s->majority; i++) {
        make_keys(s, i < N_LEVELS ? (enum level)i : LEVEL_ALL, keyed);
        s->n_groups = make_groups(keyed, n, s->groups);
        s->majority = s->n_groups > 0 && 2 * s->groups[0].n > n;
    }
    number_ranks(s, keyed, n);
    for (uint32_t g = 0; g < s->n_groups; g++) {
        struct suspects_group *group = &s->groups[g];
        write_where(suspects_evidence(s, group->first), suspects_main(s, group->first),
                    group->where, sizeof group->where);
    }
}

/* ---- threads ---- */

/* Where all main threads are at the same place, as in an event loop, other threads may show it:
 * those in which most ranks wait for the others in torch.distributed. A key is such a place. */
static const struct pystack_frame *meets(const struct evidence_stack *stack) {
    for (uint32_t i = 0; stack != NULL && i < stack->n; i++)
        if (strstr(stack->frames[i].file, "/torch/distributed/") != NULL)
            return &stack->frames[i];
    return NULL;
}

/* The innermost line of torch.distributed; 0: none. */
static uint64_t meeting_place(const struct evidence *e, const struct evidence_thread *t) {
    const struct pystack_frame *f = meets(suspects_stack(e, t));
    return f == NULL ? 0 : evidence_place(f, 1);
}

/* Of each rank the places of its other threads. Returns how many. */
static size_t list_met(const struct suspects *s, struct keyed *met) {
    size_t n = 0;
    for (uint32_t r = 0; r < s->in->n_ranks; r++) {
        const struct evidence_worker *w = suspects_main(s, r) != NULL ? s->worker_of[r] : NULL;
        for (uint32_t i = 1; w != NULL && i < w->n_threads; i++) {
            uint64_t place = meeting_place(suspects_evidence(s, r), &w->threads[i]);
            if (place != 0)
                met[n++] = (struct keyed){place, r};
        }
    }
    qsort(met, n, sizeof *met, by_key);
    return n;
}

/* The place at which more than half of the ranks have a thread, and not all; 0: none. One more of
 * place 0 follows the n. */
static uint64_t common_place(const struct keyed *met, size_t n, uint32_t n_ranks) {
    uint32_t ranks = 0;
    for (size_t i = 0; i < n; i++) {
        bool begins = i == 0 || met[i].key != met[i - 1].key;
        ranks = begins ? 1 : ranks + (met[i].rank != met[i - 1].rank);
        bool ends = met[i + 1].key != met[i].key;
        if (ends && 2 * ranks > n_ranks && ranks < n_ranks)
            return met[i].key;
    }
    return 0;
}

/* Every rank is seen whole, and none stands out by its main thread. */
static bool may_compare(const struct suspects *s, size_t *ret_n) {
    *ret_n = 0;
    for (uint32_t r = 0; r < s->in->n_ranks; r++) {
        const struct evidence_thread *main = suspects_main(s, r);
        if (main == NULL || s->worker_of[r]->threads_cut ||
            suspects_stack(suspects_evidence(s, r), main) == NULL)
            return false;
        *ret_n += s->worker_of[r]->n_threads;
    }
    return s->majority && s->n_groups == 1;
}

static uint32_t mark_threads(struct suspects *s) {
    size_t n;
    uint32_t marked = 0;
    memset(s->is_suspect, 0, s->in->n_ranks * sizeof *s->is_suspect);
    if (!may_compare(s, &n))
        return 0;
    _cleanup_(freep) struct keyed *met = xcalloc(n + 1, sizeof *met);
    n = list_met(s, met);
    uint64_t place = common_place(met, n, s->in->n_ranks);
    if (place == 0)
        return 0;
    memset(s->is_suspect, 1, s->in->n_ranks * sizeof *s->is_suspect);
    for (size_t i = 0; i < n; i++)
        if (met[i].key == place)
            s->is_suspect[met[i].rank] = false;
    for (uint32_t r = 0; r < s->in->n_ranks; r++)
        marked += s->is_suspect[r];
    return marked;
}

static bool has_place(const struct evidence *e, const struct evidence_worker *w, uint64_t place) {
    for (uint32_t i = 1; i < w->n_threads; i++)
        if (place_of(suspects_stack(e, &w->threads[i])) == place)
            return true;
    return false;
}

const struct evidence_thread *suspects_odd_thread(const struct suspects *s, uint32_t rank) {
    const struct evidence *e = suspects_evidence(s, rank);
    const struct evidence_worker *w = s->worker_of[rank];
    uint32_t other = 0;
    while (other + 1 < s->in->n_ranks && s->is_suspect[other])
        other++;
    for (uint32_t i = 1; i < w->n_threads; i++) {
        uint64_t place = place_of(suspects_stack(e, &w->threads[i]));
        if (place != 0 && !has_place(suspects_evidence(s, other), s->worker_of[other], place))
            return &w->threads[i];
    }
    return NULL;
}

/* ---- what a rank is suspected for ---- */

static uint64_t number_of(const struct suspects *s, uint32_t rank, enum suspect_reason reason,
                          bool by_ras) {
    const struct evidence_worker *w = s->worker_of[rank];
    if (s->ended[rank])
        return 0;
    if (by_ras)
        return s->collectives[rank];
    if (w == NULL)
        return 0;
    return reason == SUSPECT_STEPS ? w->step : w->collectives;
}

/* Marks those whose number is lower than another's. *ret_most: the highest. */
static uint32_t mark_fewer(struct suspects *s, enum suspect_reason reason, bool by_ras,
                           uint64_t *ret_most) {
    uint32_t n = 0;
    *ret_most = 0;
    for (uint32_t r = 0; r < s->in->n_ranks; r++)
        *ret_most = MAX2(*ret_most, number_of(s, r, reason, by_ras));
    for (uint32_t r = 0; r < s->in->n_ranks; r++) {
        uint64_t number = number_of(s, r, reason, by_ras);
        s->is_suspect[r] = number != 0 && number < *ret_most;
        n += s->is_suspect[r];
    }
    return n;
}

static bool is_odd(const struct suspects *s, uint32_t rank, enum suspect_reason reason) {
    const struct evidence_thread *t = suspects_main(s, rank);
    switch (reason) {
    case SUSPECT_ENDED: return s->ended[rank] && (s->n_together > 0 || s->in->waited != NULL);
    case SUSPECT_UNENDED:
        return s->in->waited == NULL && s->any_ended && s->n_together == 0 && t != NULL;
    case SUSPECT_STOPPED: return t != NULL && suspects_wait(t) == WAIT_STOPPED;
    case SUSPECT_ABSENT:
        return !s->in->on_request && s->any_at_store && s->worker_of[rank] != NULL &&
               s->worker_of[rank]->not_at_store && !s->ended[rank] && !s->reacted[rank];
    case SUSPECT_ELSEWHERE: return s->majority && t != NULL && s->group_of[rank] != 0;
    case SUSPECT_UNMOVED: return s->n_reacted > 1 && t != NULL;
    case SUSPECT_CHILD: return t != NULL && odd_child(s, rank) != NULL;
    case SUSPECT_BUSY:
        for (uint32_t i = 0; i < s->in->n_signs; i++)
            if (s->in->signs[i].rank == rank && s->in->signs[i].sign == HANG_SIGN_BUSY)
                return true;
        return false;
    case SUSPECT_THREAD: /* of all ranks at once */
    case SUSPECT_COLLECTIVES:
    case SUSPECT_STEPS: break;
    }
    return false;
}

static uint32_t mark_odd(struct suspects *s, enum suspect_reason reason) {
    uint32_t n = 0;
    if (reason == SUSPECT_BUSY && s->in->n_signs > SUSPECTS_KEPT)
        return 0;
    for (uint32_t r = 0; r < s->in->n_ranks; r++) {
        s->is_suspect[r] = is_odd(s, r, reason);
        n += s->is_suspect[r];
    }
    return n;
}

/* Which ranks the others wait for, by the strongest reason that is there. */
static enum suspect_reason choose(struct suspects *s, uint64_t *ret_most, bool *ret_by_ras) {
    /* Of more than half, none stands out. A child counts only if the main threads don't differ. */
    static const enum suspect_reason odd[] = {SUSPECT_ENDED, SUSPECT_STOPPED, SUSPECT_UNENDED,
                                              SUSPECT_ABSENT};
    static const struct {
        enum suspect_reason reason;
        bool by_ras;
    } fewer[] = {{SUSPECT_COLLECTIVES, false}, {SUSPECT_COLLECTIVES, true}, {SUSPECT_STEPS, false}};
    static const enum suspect_reason weak[] = {SUSPECT_UNMOVED, SUSPECT_ELSEWHERE, SUSPECT_CHILD,
                                               SUSPECT_THREAD, SUSPECT_BUSY};
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
        s->n_all = mark_odd(s, odd[i]);
        if (s->n_all > 0 && 2 * s->n_all <= s->in->n_ranks)
            return odd[i];
    }
    for (size_t i = 0; i < ARRAY_SIZE(fewer); i++) {
        *ret_by_ras = fewer[i].by_ras;
        s->n_all = mark_fewer(s, fewer[i].reason, fewer[i].by_ras, ret_most);
        if (s->n_all > 0)
            return fewer[i].reason;
    }
    for (size_t i = 0; i < ARRAY_SIZE(weak); i++) {
        s->n_all = weak[i] == SUSPECT_THREAD ? mark_threads(s) : mark_odd(s, weak[i]);
        if (s->n_all > 0 && 2 * s->n_all < s->in->n_ranks)
            return weak[i];
    }
    s->n_all = mark_odd(s, SUSPECT_STEPS); /* none */
    return SUSPECT_ELSEWHERE;
}

void suspects_find(const struct suspects_input *in, struct suspects *ret) {
    size_t n = in->n_ranks + (size_t)1;
    struct suspects *s = ret;
    *s = (struct suspects){.in = in,
                           .group_of = xcalloc(n, sizeof *s->group_of),
                           .worker_of = xcalloc(n, sizeof *s->worker_of),
                           .ended = xcalloc(n, sizeof *s->ended),
                           .collectives = xcalloc(n, sizeof *s->collectives),
                           .reacted = xcalloc(n, sizeof *s->reacted),
                           .is_suspect = xcalloc(n, sizeof *s->is_suspect),
                           .suspects = xcalloc(SUSPECTS_KEPT, sizeof *s->suspects)};
    memset(s->group_of, 0xff, n * sizeof *s->group_of); /* NO_GROUP */
    collect(s);
    find_debugged(s);
    /* One node asks for the whole job: that of rank 0 (gather_io.h). */
    if (!in->on_request && in->n_ranks > 0 && suspects_evidence(s, 0) != NULL)
        evidence_counts(suspects_evidence(s, 0), s->collectives, in->n_ranks);
    for (uint32_t r = 0; r < in->n_ranks && s->n_parents < SUSPECTS_PARENTS_MAX; r++)
        if (s->worker_of[r] != NULL && s->worker_of[r]->n_children > 0)
            s->parents[s->n_parents++] = r;
    group_ranks(s);
    uint64_t most = 0;
    bool by_ras = false;
    enum suspect_reason reason = choose(s, &most, &by_ras);
    for (uint32_t rank = 0; rank < in->n_ranks && s->n_suspects < SUSPECTS_KEPT; rank++) {
        if (!s->is_suspect[rank])
            continue;
        const struct evidence_worker *w = s->worker_of[rank];
        struct suspect *suspect = &s->suspects[s->n_suspects++];
        *suspect = (struct suspect){.rank = rank,
                                    .node = in->nodes_of[rank],
                                    .pid = w != NULL ? w->pid : 0,
                                    .reason = reason};
        const struct evidence_child *child =
            reason == SUSPECT_ELSEWHERE || reason == SUSPECT_CHILD ? odd_child(s, rank) : NULL;
        if (child != NULL)
            suspect->reason = SUSPECT_CHILD;
        suspects_write(s, number_of(s, rank, reason, by_ras), most, child, suspect);
    }
}
