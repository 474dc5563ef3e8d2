/* Detached processes: those that workers have put into sessions of their own. */
#include <sys/wait.h>
#include <unistd.h>

#include "io/clock.h"
#include "launcher/supervise/cgroup_io.h"
#include "launcher/supervise/worker_priv.h"

static bool is_well(const struct worker_group *g) { return !g->stopped && !g->ended_badly; }

bool worker_keeps(const struct worker_group *g) { return g->config.leave_detached && is_well(g); }

/* Each worker leads a session. Its number is not used again as long as somebody is in it. */
static bool is_of_worker(const struct worker_group *g, pid_t session) {
    for (uint32_t i = 0; i < g->n; i++)
        if (g->workers[i].session == session)
            return true;
    return false;
}

static void tell(struct worker_group *g, pid_t pid, pid_t session) {
    for (uint32_t i = 0; i < MIN2(g->n_told, (uint32_t)WORKER_NAMED_MAX); i++)
        if (g->told[i] == session)
            return;
    bool more = g->n_told == WORKER_NAMED_MAX;
    if (!more)
        g->told[g->n_told] = session;
    g->n_told++;
    g->ops.on_detached(g->arg, more ? 0 : pid);
}

static void keep(struct worker_group *g, pid_t pid) {
    if (g->walk_kind != WORKER_WALK_ALL)
        return; /* it will be found again */
    if (g->n_kept < WORKER_NAMED_MAX)
        g->kept[g->n_kept] = pid;
    g->n_kept++;
}

bool worker_seen(void *group, pid_t pid) {
    struct worker_group *g = group;
    bool tells = g->ops.on_detached != NULL && g->n_told <= WORKER_NAMED_MAX;
    if (!is_well(g) || (!g->config.leave_detached && !tells))
        return false;
    pid_t session = getsid(pid);
    if (!sweep_is_detached(pid) || is_of_worker(g, session))
        return false;
    if (g->config.leave_detached)
        keep(g, pid);
    else
        tell(g, pid, session);
    return g->config.leave_detached;
}

struct seen {
    struct worker_group *group;
    bool some;
};

static void on_process(void *arg, pid_t pid) {
    struct seen *s = arg;
    s->some |= worker_seen(s->group, pid);
}

bool worker_seen_in_cgroup(struct worker *w, pid_t zombie) {
    struct seen s = {.group = w->group};
    siginfo_t si = {0};
    if (!is_well(s.group) || waitid(P_PID, (id_t)zombie, &si, WEXITED | WNOHANG | WNOWAIT) < 0 ||
        si.si_code != CLD_EXITED || si.si_status != 0)
        return false;
    cgroup_each_process(w->cgroup_fd, on_process, &s);
    return s.some;
}

void worker_keep_no_more(struct worker_group *g) {
    bool kept = worker_keeps(g);
    g->stopped = true;
    if (kept && worker_group_alive(g) == 0)
        worker_step(
            g, &(struct worker_event){.kind = WORKER_EVENT_UNSPARED, .now_ns = clock_now_ns()});
}

uint32_t worker_group_kept(const struct worker_group *g, const pid_t **ret) {
    *ret = g->kept;
    return worker_keeps(g) && worker_group_gone(g) ? g->n_kept : 0;
}

void worker_group_leave_kept(struct worker_group *g) { g->left = true; }
