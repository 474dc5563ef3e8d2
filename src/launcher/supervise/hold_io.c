#include "launcher/supervise/hold_io.h"

#include <signal.h>
#include <unistd.h>

#include "io/process/proc.h"

struct walk {
    struct hold_page *page;
    pid_t session; /* the agent's, which only its helpers share */
    bool stop, first;
};

static atomic_int *find_foreign(struct hold_page *page, pid_t pid) {
    for (size_t i = 0; i < HOLD_FOREIGN_MAX; i++)
        if (atomic_load(&page->foreign[i]) == pid)
            return &page->foreign[i];
    return NULL;
}

static int seen(void *arg, pid_t pid, bool own) {
    struct walk *w = arg;
    struct proc_stat st;
    (void)own;
    if (getsid(pid) == w->session)
        return SWEEP_SPARE;
    if (!w->stop)
        return find_foreign(w->page, pid) == NULL ? SIGCONT : 0;
    bool stopped = proc_read_stat(pid, &st) && st.state == 'T';
    atomic_int *slot = find_foreign(w->page, w->first && stopped ? 0 : pid);
    if (slot != NULL && (w->first || !stopped))
        atomic_store(slot, stopped ? pid : 0); /* continued since: from now on we stop it */
    /* The other program may continue it at this moment: then a signal would stop it for ever. */
    return stopped ? 0 : SIGSTOP;
}

void hold_pass(struct hold_page *page, pid_t agent, bool stop, const struct sweep_except *except) {
    int phase = HOLD_NONE;
    struct walk w = {.page = page, .session = getsid(agent), .stop = stop};
    struct sweep_except all = *except;
    struct sweep_result result;
    if (stop)
        w.first = atomic_compare_exchange_strong(&page->phase, &phase, HOLD_BEGINS);
    else
        atomic_store(&page->phase, HOLD_NONE);
    if (phase == HOLD_BEGINS)
        return; /* the other process begins at this moment */
    for (size_t i = 0; w.first && i < HOLD_FOREIGN_MAX; i++)
        atomic_store(&page->foreign[i], 0);
    all.seen = seen;
    all.arg = &w;
    sweep_pass_below(agent, &all, &result);
    if (w.first)
        atomic_store(&page->phase, HOLD_LASTS);
}
