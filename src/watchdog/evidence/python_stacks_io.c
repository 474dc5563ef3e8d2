#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "io/clock.h"
#include "io/process/helper_call.h"
#include "watchdog/evidence/gather_priv.h"
#include "watchdog/look/pystack.h"

#define AT_ONCE 4       /* workers that are read at the same time */
#define CHILDREN_MAX 16 /* of a worker whose stacks are read */
#define ONE_MAX_NS (1 * NS_PER_S)

/* How many frames to report, so that the table notes that there were more. */
static size_t n_reported(uint32_t n, bool cut) {
    return cut && n == EVIDENCE_FRAMES_MAX ? EVIDENCE_FRAMES_MAX + 1 : n;
}

/* ---- in the process that reads one worker ---- */

struct reading {
    struct evidence part;
    int32_t only; /* of a child: its main thread's tid; 0: all threads */
};

/* Where the stack goes. A child has a place of its own, however many threads the worker has. */
static struct evidence_thread *add_place(struct reading *r, const struct pystack_thread *t) {
    struct evidence_worker *w = &r->part.workers[0];
    struct evidence_child *child = r->only != 0 ? evidence_add_child(w) : NULL;
    struct evidence_thread *thread = r->only == 0    ? evidence_add_thread(w)
                                     : child != NULL ? &child->main
                                                     : NULL;
    if (thread != NULL)
        thread->tid = r->only != 0 ? r->only : t->main ? w->pid : t->tid;
    return thread;
}

static void on_thread(void *arg, const struct pystack_thread *t) {
    struct reading *r = arg;
    static struct evidence_frame frames[PYSTACK_FRAMES_MAX];
    uint32_t number;
    if (r->only != 0 && !t->main && t->tid != r->only)
        return;
    for (uint32_t i = 0; i < t->n; i++) {
        struct evidence_frame *f = &frames[i];
        *f = (struct evidence_frame){.line = t->frames[i].line};
        (void)snprintf(f->function, sizeof f->function, "%s", t->frames[i].function);
        (void)snprintf(f->file, sizeof f->file, "%s", t->frames[i].file);
    }
    if (t->n == 0 || evidence_add_stack(&r->part, frames, n_reported(t->n, t->cut), &number) < 0)
        return;
    struct evidence_thread *thread = add_place(r, t);
    if (thread == NULL)
        return;
    thread->stack = (int32_t)number;
    if (t->lock[0] != '\0')
        (void)snprintf(thread->target, sizeof thread->target, EVIDENCE_LOCK "%.*s",
                       (int)(sizeof thread->target - sizeof EVIDENCE_LOCK), t->lock);
}

static int read_process(int32_t pid, struct reading *r, struct err *err) {
    struct pystack_process p = {0};
    int code = pystack_process_find(pid, &p, err);
    if (code == 0)
        code = pystack_process_read(&p, on_thread, r, err);
    return code < 0 ? code : 0;
}

static int send_stacks(int fd, void *arg) {
    const struct evidence_worker *from = arg;
    struct reading r = {.only = 0};
    struct err err = {0};
    struct evidence_worker *w = evidence_add_worker(&r.part);
    if (w == NULL)
        return 1;
    w->pid = from->pid;
    int code = read_process(from->pid, &r, &err);
    bool by_child = false;
    for (uint32_t i = 0; i < from->n_children && i < CHILDREN_MAX; i++) {
        struct err ignored = {0};
        r.only = from->children[i].pid;
        by_child |= read_process(from->children[i].pid, &r, &ignored) == 0;
    }
    if (code < 0 && !(code == -ENOENT && by_child))
        evidence_worker_gap(w, "Python stack: %s", err.text);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    evidence_write(&r.part, &text);
    bool sent = helper_send(fd, strbuf_text(&text), text.len);
    evidence_fini(&r.part);
    return sent ? 0 : 1;
}

/* ---- in the helper ---- */

static struct evidence_thread *find(struct evidence_worker *w, int32_t tid) {
    for (uint32_t i = 0; i < w->n_threads; i++)
        if (w->threads[i].tid == tid)
            return &w->threads[i];
    for (uint32_t i = 0; i < w->n_children; i++)
        if (w->children[i].pid == tid)
            return &w->children[i].main;
    return NULL;
}

/* A shell or a profiler, which waits for its program. */
static void take_stack_of_child(struct evidence_worker *w) {
    struct evidence_thread *main = &w->threads[0];
    if (main->stack >= 0 ||
        (strcmp(main->syscall, "wait4") != 0 && strcmp(main->syscall, "waitid") != 0))
        return;
    for (uint32_t i = 0; i < w->n_children && main->stack < 0; i++)
        main->stack = w->children[i].main.stack;
}

static void merge_stack(struct evidence *e, struct evidence_worker *w, const struct evidence *part,
                        const struct evidence_thread *from) {
    struct evidence_thread *t = find(w, from->tid);
    const struct evidence_stack *s = from->stack < 0 ? NULL : &part->stacks[from->stack];
    uint32_t number;
    if (t != NULL && s != NULL &&
        evidence_add_stack(e, s->frames, n_reported(s->n, s->cut), &number) == 0)
        t->stack = (int32_t)number;
    if (t != NULL && from->target[0] != '\0' && t->target[0] == '\0')
        memcpy(t->target, from->target, sizeof t->target);
}

static void merge(struct evidence *e, struct evidence_worker *w, const struct evidence *part) {
    for (uint32_t i = 0; i < part->n_workers; i++) {
        const struct evidence_worker *p = &part->workers[i];
        for (uint32_t k = 0; k < p->n_threads; k++)
            merge_stack(e, w, part, &p->threads[k]);
        for (uint32_t k = 0; k < p->n_children; k++)
            merge_stack(e, w, part, &p->children[k].main);
        for (uint32_t k = 0; k < p->n_gaps; k++)
            evidence_worker_gap(w, "%s", p->gaps[k]);
    }
    take_stack_of_child(w);
}

static void take(struct evidence *e, struct evidence_worker *w, struct helper_call *call) {
    struct helper_answer answer;
    _cleanup_(evidence_fini) struct evidence part = {0};
    struct err err = {0};
    helper_call_wait(call, &answer);
    if (answer.code == -ETIMEDOUT)
        evidence_worker_gap(w, "Python stack: process %d could not be read in time", (int)w->pid);
    else if (answer.code < 0)
        evidence_worker_gap(w, "Python stack: %s", strerror(-answer.code));
    else if (evidence_read(answer.data, answer.len, &part, &err) < 0)
        evidence_worker_gap(w, "Python stack: the process that reads it has ended");
    else
        merge(e, w, &part);
}

static struct helper_call *begin(struct evidence_worker *w, uint64_t deadline_ns) {
    struct helper_call *call = NULL;
    uint64_t now = clock_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    struct helper_call_config config = {.name = "muster-stack",
                                        .run = send_stacks,
                                        .arg = w,
                                        .timeout_ns = MIN2(left, ONE_MAX_NS),
                                        .max_bytes = EVIDENCE_JSON_MAX};
    if (w->ended || w->n_threads == 0)
        return NULL;
    int r = left == 0 ? -ETIMEDOUT : helper_call_new(NULL, &config, NULL, NULL, &call);
    if (r == -ETIMEDOUT)
        evidence_worker_gap(w, "Python stack: no time was left");
    else if (r < 0)
        evidence_worker_gap(w, "Python stack: no process could be started: %s", strerror(-r));
    return call;
}

void gather_python_stacks(struct evidence *e, uint64_t deadline_ns) {
    struct helper_call *calls[AT_ONCE] = {NULL};
    for (uint32_t i = 0; i < e->n_workers + AT_ONCE; i++) {
        struct helper_call **at = &calls[i % AT_ONCE];
        if (*at != NULL)
            take(e, &e->workers[i - AT_ONCE], *at);
        helper_call_free(*at);
        *at = i < e->n_workers ? begin(&e->workers[i], deadline_ns) : NULL;
    }
}
