/* Detached processes: those that workers have put into sessions of their own. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/process/proc.h"
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
    g->told_pid = more ? 0 : pid;
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

bool worker_is_kept(struct worker_group *g, pid_t pid) {
    bool tells =
        g->ops.on_detached != NULL && g->n_told <= WORKER_NAMED_MAX && g->pass != WORKER_PASS_LOOK;
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

static bool is_of_some_worker(const struct worker_group *g, const struct stat *st) {
    for (uint32_t i = 0; i < g->n; i++)
        for (size_t k = 0; k < ARRAY_SIZE(g->workers[i].streams); k++) {
            const struct worker_stream *s = &g->workers[i].streams[k];
            if (s->ino != 0 && s->ino == st->st_ino && s->dev == st->st_dev)
                return true;
        }
    return false;
}

/* Then it writes to a pipe or a terminal that nobody reads after the job. */
static bool has_stream_of_worker(const struct worker_group *g, pid_t pid) {
    static const char *const names[] = {"/fd/1", "/fd/2"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[PROC_PATH_MAX];
        struct stat st;
        proc_path(path, pid, names[i]);
        if (stat(path, &st) == 0 && is_of_some_worker(g, &st))
            return true;
    }
    return false;
}

bool worker_group_leave_kept(struct worker_group *g) {
    const pid_t *kept;
    uint32_t n = worker_group_kept(g, &kept);
    for (uint32_t i = 0; i < n && i < WORKER_NAMED_MAX; i++) {
        char name[SWEEP_NAME_MAX];
        sweep_name(kept[i], name);
        bool mute = has_stream_of_worker(g, kept[i]);
        if (sweep_is_detached(kept[i]))
            log_notice("%s, continues (--leave=detached)%s", name,
                       mute ? "; its output is closed, so a write can kill it: "
                              "redirect it to a file"
                            : "");
    }
    if (n > WORKER_NAMED_MAX)
        log_notice("%u more such processes continue", n - WORKER_NAMED_MAX);
    g->left = n > 0 || (worker_keeps(g) && !proc_is_ours()); /* without /proc none is listed */
    return g->left;
}
