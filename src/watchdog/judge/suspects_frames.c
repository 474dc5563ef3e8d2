#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "watchdog/judge/suspects_priv.h"

const struct evidence_stack *suspects_stack(const struct evidence *e,
                                            const struct evidence_thread *t) {
    if (t->stack < 0 || (uint32_t)t->stack >= e->n_stacks || e->stacks[t->stack].n == 0)
        return NULL;
    return &e->stacks[t->stack];
}

/* Where Python and its packages are installed (PEP 370, sysconfig's "posix_prefix" and Debian's
 * "deb_system"): "/usr/lib/python3.11/threading.py". */
bool suspects_is_library(const char *file) {
    const char *lib = strstr(file, "/lib/python");
    return file[0] == '<' || strstr(file, "/site-packages/") != NULL ||
           strstr(file, "/dist-packages/") != NULL ||
           (lib != NULL && lib[strlen("/lib/python")] >= '0' && lib[strlen("/lib/python")] <= '9');
}

const struct evidence_frame *suspects_user_frame(const struct evidence_stack *stack) {
    if (stack == NULL || stack->n == 0)
        return NULL;
    for (uint32_t i = 0; i < stack->n; i++)
        if (!suspects_is_library(stack->frames[i].file))
            return &stack->frames[i];
    return &stack->frames[0];
}

/* By the name of the file, not by its folder, which may be another one in the next run. */
static uint64_t hash_frame(uint64_t h, const struct evidence_frame *f) {
    h = hash_bytes(h, f->function, strlen(f->function) + 1);
    h = hash_text(h, path_name(f->file));
    return hash_bytes(h, &f->line, sizeof f->line);
}

uint64_t suspects_place(const struct evidence_stack *stack) {
    uint64_t h = HASH_BEGIN;
    if (stack == NULL || stack->n == 0)
        return 0;
    for (uint32_t i = 0; i < stack->n; i++)
        h = hash_frame(h, &stack->frames[i]);
    return h != 0 ? h : 1;
}

bool suspects_is_debugged(const struct evidence_stack *stack) {
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

static void add_frame(const struct evidence_frame *f, char *out, size_t size) {
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
    for (uint32_t i = 0; i < stack->n && suspects_is_library(stack->frames[i].file); i++) {
        const struct evidence_frame *f = &stack->frames[i];
        if (suspects_is_collective(f) && f->function[0] != '_' &&
            strcmp(f->function, "wrapper") != 0) {
            (void)snprintf(out, size, "%.40s from ", f->function);
            return;
        }
    }
}

static void add_place(const struct evidence_stack *stack, char *out, size_t size) {
    const struct evidence_frame *user = suspects_user_frame(stack);
    if (suspects_is_library(user->file)) /* all is: the innermost frame is shown */
        out[0] = '\0';
    else
        add_collective(stack, out, size);
    size_t len = strlen(out);
    add_frame(user, out + len, size - len);
}

void suspects_where(const struct evidence *e, const struct evidence_thread *t, char *out,
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
