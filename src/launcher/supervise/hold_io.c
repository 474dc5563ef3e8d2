#include "launcher/supervise/hold_io.h"

#include <signal.h>
#include <unistd.h>

#include "io/process/proc.h"

struct walk {
    struct hold_page *page;
    pid_t agent, session; /* the agent's */
    bool first;
};

static atomic_int *find_foreign(struct hold_page *page, pid_t pid) {
    for (size_t i = 0; i < HOLD_FOREIGN_MAX; i++)
        if (atomic_load(&page->foreign[i]) == pid)
            return &page->foreign[i];
    return NULL;
}

static bool is_stopped(pid_t pid) {
    struct proc_stat st;
    return proc_read_stat(pid, &st) && st.state == 'T';
}

static bool is_helper(const struct walk *w, pid_t pid) { return getsid(pid) == w->session; }

static int stops(void *arg, pid_t pid, bool own) {
    struct walk *w = arg;
    (void)own;
    if (is_helper(w, pid))
        return SWEEP_SPARE;
    bool stopped = is_stopped(pid);
    atomic_int *slot = find_foreign(w->page, w->first && stopped ? 0 : pid);
    if (slot != NULL && (w->first || !stopped))
        atomic_store(slot, stopped ? pid : 0); /* continued since: from now on we stop it */
    /* The other program may continue it at this moment: then a signal would stop it for ever. */
    return stopped ? 0 : SIGSTOP;
}

static int continues(void *arg, pid_t pid, bool own) {
    const struct walk *w = arg;
    (void)own;
    if (is_helper(w, pid))
        return SWEEP_SPARE;
    return find_foreign(w->page, pid) == NULL ? SIGCONT : 0;
}

static void pass(struct walk *w, const struct sweep_except *except, sweep_seen_fn *seen) {
    struct sweep_except all = *except;
    struct sweep_result result;
    w->session = getsid(w->agent);
    all.seen = seen;
    all.arg = w;
    sweep_pass_below(w->agent, &all, &result);
}

void hold_stop(struct hold_page *page, pid_t agent, const struct sweep_except *except) {
    int phase = HOLD_NONE;
    struct walk w = {.page = page, .agent = agent};
    w.first = atomic_compare_exchange_strong(&page->phase, &phase, HOLD_BEGINS);
    if (phase == HOLD_BEGINS)
        return; /* the other process begins at this moment */
    for (size_t i = 0; w.first && i < HOLD_FOREIGN_MAX; i++)
        atomic_store(&page->foreign[i], 0);
    pass(&w, except, stops);
    if (w.first)
        atomic_store(&page->phase, HOLD_LASTS);
}

void hold_continue(struct hold_page *page, pid_t agent, const struct sweep_except *except) {
    struct walk w = {.page = page, .agent = agent};
    atomic_store(&page->phase, HOLD_NONE);
    pass(&w, except, continues);
}
