/* Ends the processes that workers have left: which they are, which signal a pass sends to each, and
 * whether the next group waits for its end. A pass is made in pieces, so that the loop can serve
 * others in between. */
#include <limits.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/process/proc.h"
#include "launcher/supervise/cgroup_io.h"
#include "launcher/supervise/sweep_io.h"
#include "launcher/supervise/worker_priv.h"

/* ==== detached processes: those in sessions of their own ==== */

bool worker_keeps(const struct worker_group *g) { return g->config.leave_detached && !g->unwell; }

/* Each worker leads a session. Its number is not used again while a process is in it. */
static bool is_of_worker(const struct worker_group *g, pid_t session) {
    for (uint32_t i = 0; i < g->n; i++)
        if (g->workers[i].session == session)
            return true;
    return false;
}

static void name_detached(struct worker_group *g, pid_t pid, pid_t session) {
    for (uint32_t i = 0; i < MIN2(g->n_named, (uint32_t)WORKER_NAMED_MAX); i++)
        if (g->named[i] == session)
            return;
    bool more = g->n_named == WORKER_NAMED_MAX;
    if (!more)
        g->named[g->n_named] = session;
    g->named_pid = more ? 0 : pid;
    g->n_named++;
    g->ops.on_detached(g->arg, more ? 0 : pid);
}

static void keep(struct worker_group *g, pid_t pid) {
    if (g->walk_kind != WORKER_WALK_ALL)
        return; /* it will be found again */
    if (g->n_kept < WORKER_NAMED_MAX)
        g->kept[g->n_kept] = pid;
    g->n_kept++;
}

static bool is_kept(struct worker_group *g, pid_t pid) {
    bool names =
        g->ops.on_detached != NULL && g->n_named <= WORKER_NAMED_MAX && g->pass != WORKER_PASS_LOOK;
    if (g->unwell || (!g->config.leave_detached && !names))
        return false;
    pid_t session = getsid(pid);
    if (!sweep_is_detached(pid) || is_of_worker(g, session))
        return false;
    if (g->config.leave_detached)
        keep(g, pid);
    else
        name_detached(g, pid, session);
    return g->config.leave_detached;
}

void worker_keep_no_more(struct worker_group *g) {
    bool kept = worker_keeps(g);
    g->unwell = true;
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

/* Then it writes to a pipe or a terminal that is not read after the job. */
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

/* ==== what a pass does with a process ==== */

#define NAMED_IN_LINE 4
static char was_asked, was_named; /* values of worker_group.asked */

/* ---- what another group would need ---- */

/* The kernel assigns these to programs that ask for any port, so no program depends on one. */
static unsigned first_of_any(unsigned *ret_last) {
    unsigned from = 0;
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (f == NULL || fscanf(f, "%u %u", &from, ret_last) != 2)
        from = UINT_MAX;
    if (f != NULL)
        (void)fclose(f);
    return from;
}

/* Listening sockets come first in these files. proc_net_tcp.rst */
static void read_ports(struct worker_group *g, const char *path) {
    unsigned last = 0, first = first_of_any(&last), port, state;
    unsigned long inode;
    char line[512];
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return;
    (void)!fgets(line, sizeof line, f);
    while (g->ports.n < WORKER_PORTS_MAX && fgets(line, sizeof line, f) != NULL &&
           sscanf(line, "%*s %*[0-9A-F]:%x %*s %x %*s %*s %*s %*s %*s %lu", &port, &state,
                  &inode) == 3 &&
           state == TCP_LISTEN)
        if (port < first || port > last || port == g->config.store_port)
            g->ports.inodes[g->ports.n++] = inode;
    (void)fclose(f);
}

static bool is_port(struct worker_group *g, const char *link) {
    unsigned long inode;
    if (sscanf(link, "socket:[%lu]", &inode) != 1)
        return false;
    if (!g->ports.known) {
        g->ports.known = true;
        read_ports(g, "/proc/self/net/tcp");
        read_ports(g, "/proc/self/net/tcp6");
    }
    for (uint32_t i = 0; i < g->ports.n; i++)
        if (g->ports.inodes[i] == inode)
            return true;
    return false;
}

struct holding {
    struct worker_group *group;
    bool found;
};

static bool look_at_file(void *arg, const char *link) {
    struct holding *h = arg;
    h->found = proc_is_gpu(link) || is_port(h->group, link);
    return !h->found;
}

static bool holds_what_others_need(struct worker_group *g, pid_t pid) {
    struct holding h = {.group = g};
    (void)!proc_each_link(pid, look_at_file, &h);
    return h.found;
}

/* The group of an orphan without a marker is not known later. */
static bool is_blocking(struct worker_group *g, pid_t pid, bool own) {
    char marker[SWEEP_MARKER_MAX];
    return (own && !sweep_read_variable(pid, WORKER_MARKER, marker, sizeof marker)) ||
           holds_what_others_need(g, pid);
}

/* ---- what a pass does ---- */

static bool is_of_other_group(const struct worker_group *g, pid_t pid) {
    char marker[SWEEP_MARKER_MAX];
    return g->ops.is_of_other != NULL &&
           sweep_read_variable(pid, WORKER_MARKER, marker, sizeof marker) &&
           !worker_group_owns(g, marker) && g->ops.is_of_other(g->arg, marker);
}

static bool was_asked_as_group(const struct worker_group *g, pid_t pid) {
    pid_t group = getpgid(pid);
    for (uint32_t i = 0; i < g->n; i++)
        if (g->workers[i].session == group)
            return g->workers[i].group_asked;
    return false;
}

static int ask(const struct worker_group *g, pid_t pid) {
    bool asked = was_asked_as_group(g, pid) || idmap_get(&g->asked, (uint64_t)pid) != NULL;
    return asked ? 0 : SIGTERM;
}

/* One that the pass missed because it was just getting another parent. Not one that a handler of
 * SIGTERM has started. */
static int ask_late(const struct worker_group *g, pid_t pid) {
    struct proc_stat st;
    bool due = g->walk_kind == WORKER_WALK_ALL ? g->machine.asked : !worker_keeps(g);
    return due && proc_read_stat(pid, &st) && st.start < g->term_ticks ? ask(g, pid) : 0;
}

static void sent(void *group, pid_t pid) {
    struct worker_group *g = group;
    if (g->pass != WORKER_PASS_KILL)
        idmap_put(&g->asked, (uint64_t)pid, pid == g->named_pid ? &was_named : &was_asked);
}

static void note_killed(struct worker_group *g, pid_t pid) {
    char name[SWEEP_NAME_MAX];
    if (g->life != WORKER_GROUP_LIVES || idmap_get(&g->asked, (uint64_t)pid) == &was_named ||
        sweep_has_ended(pid))
        return;
    idmap_put(&g->asked, (uint64_t)pid, &was_named);
    if (g->n_killed++ >= NAMED_IN_LINE)
        return;
    strbuf_add(&g->killed, g->n_killed > 1 ? "; " : "");
    for (uint32_t i = 0; i < g->n; i++)
        if (worker_group_pid(g, i) == pid)
            strbuf_printf(&g->killed, "rank %u, ", g->config.first_rank + i);
    sweep_name(pid, name);
    strbuf_add(&g->killed, name);
}

void worker_name_killed(struct worker_group *g) {
    for (uint32_t i = 0; i < g->n; i++)
        if (worker_group_pid(g, i) != 0)
            note_killed(g, worker_group_pid(g, i));
}

static int seen(void *group, pid_t pid, bool own) {
    struct worker_group *g = group;
    if ((own && is_of_other_group(g, pid)) || is_kept(g, pid))
        return SWEEP_SPARE;
    if (g->machine.state == WORKER_STATE_ENDING && !g->machine.released)
        g->blocking += is_blocking(g, pid, own);
    switch (g->pass) {
    case WORKER_PASS_NONE: return 0;
    case WORKER_PASS_LOOK: return ask_late(g, pid);
    case WORKER_PASS_TERM: return ask(g, pid);
    case WORKER_PASS_KILL: note_killed(g, pid); return SIGKILL;
    }
    assert_not_reached();
}

void worker_ask_process_group(struct worker *w, pid_t zombie) {
    w->group_asked = true;
    /* without /proc, no later pass finds a process that ignores SIGTERM */
    if (kill(-zombie, proc_is_ours() ? SIGTERM : SIGKILL) == 0)
        (void)kill(-zombie, SIGCONT);
}

static void pass_begins(struct worker_group *g, enum worker_pass pass) {
    struct timespec ts;
    if (pass == WORKER_PASS_TERM && clock_gettime(CLOCK_BOOTTIME, &ts) == 0) {
        uint64_t ns = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
        g->term_ticks = ns / (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
    }
    g->pass = pass;
    g->blocking = 0;
    g->ports = (struct worker_ports){0};
}

static void pass_is_over(struct worker_group *g) {
    if (g->n_killed > NAMED_IN_LINE)
        strbuf_printf(&g->killed, "; and %u more", g->n_killed - NAMED_IN_LINE);
    if (g->n_killed > 0)
        log_notice("killed what had not ended: %s", strbuf_text(&g->killed));
    strbuf_clear(&g->killed);
    g->n_killed = 0;
}

/* ==== passes ==== */

/* If children change while their list is read, the list can miss one (proc(5)). So several passes
 * must agree that nothing is left. */
#define ORPHANS_QUIET_PASSES 4
/* How long a piece may take. It is less than a slice, because other work has already used a part of
 * the callback's time. */
#define PIECE_NS (2 * NS_PER_MS)

/* ---- which processes are spared ---- */

struct pid_list {
    const struct pid_list *without; /* sorted; NULL: none */
    pid_t *pids;
    uint32_t n;
};

static void pid_list_fini(struct pid_list *l) { free(l->pids); }

static int compare_pids(const void *a, const void *b) {
    const pid_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void add_pid(void *arg, pid_t pid) {
    struct pid_list *l = arg;
    const struct pid_list *without = l->without;
    if (without != NULL && without->n > 0 &&
        bsearch(&pid, without->pids, without->n, sizeof pid, compare_pids) != NULL)
        return;
    l->pids = xgrow(l->pids, l->n, sizeof *l->pids);
    l->pids[l->n++] = pid;
}

static void sort(struct pid_list *l) {
    if (l->n > 0)
        qsort(l->pids, l->n, sizeof *l->pids, compare_pids);
}

static struct sweep_except sorted(struct pid_list *l, struct worker_group *g) {
    sort(l);
    return (struct sweep_except){.pids = l->pids, .n = l->n, .seen = seen, .sent = sent, .arg = g};
}

/* ---- beginning ---- */

static struct sweep_walk *walk_of(struct worker_group *g) {
    if (g->walk == NULL)
        g->walk = sweep_walk_new();
    return g->walk;
}

/* A helper's own helper, which a disk holds, and whose parent has ended. */
static void add_spared(struct worker_group *g, struct pid_list *l) {
    struct spare_list spared;
    if (g->config.spare == NULL)
        return;
    spare_read(g->config.spare, 0, &spared);
    for (uint32_t i = 0; i < spared.except.n; i++)
        add_pid(l, spared.pids[i]);
}

/* The index of the worker of which this is the marker; g->n: it is not of this group. */
static uint32_t owner(const struct worker_group *g, const char *value) {
    const char *dot = strchr(value, '.'); /* generation.index.random */
    unsigned long i = dot != NULL ? strtoul(dot + 1, NULL, 10) : g->n;
    if (i >= g->n || g->workers[i].marker == NULL ||
        strcmp(g->workers[i].marker + strlen(WORKER_MARKER "="), value) != 0)
        return g->n;
    return (uint32_t)i;
}

bool worker_group_owns(const struct worker_group *g, const char *marker) {
    return owner(g, marker) < g->n;
}

static bool is_of_group(void *arg, pid_t pid, const char *value) {
    return worker_group_owns(arg, value);
}

/* Every child that the reaper watches and that is not one of our workers is a helper. Beside
 * another group only what has our marker counts. */
static void begin_all(struct worker_group *g, enum worker_pass pass) {
    _cleanup_(pid_list_fini) struct pid_list own = {0}, helpers = {.without = &own};
    for (uint32_t i = 0; i < g->n; i++)
        if (worker_group_pid(g, i) != 0)
            add_pid(&own, worker_group_pid(g, i));
    sort(&own);
    child_reaper_each(g->reaper, add_pid, &helpers);
    add_spared(g, &helpers);
    struct sweep_except except = sorted(&helpers, g);
    g->n_kept = 0;
    pass_begins(g, pass);
    if (g->machine.released)
        sweep_walk_begin_orphans(walk_of(g), &except, WORKER_MARKER, is_of_group, g);
    else
        sweep_walk_begin(walk_of(g), &except);
    g->walk_kind = WORKER_WALK_ALL;
}

static bool is_looked_for(void *arg, pid_t pid, const char *value) {
    struct worker_group *g = arg;
    uint32_t i = owner(g, value);
    if (i == g->n || g->workers[i].sought == WORKER_NOT_SOUGHT ||
        (worker_keeps(g) && is_kept(g, pid)))
        return false;
    g->workers[i].sought = WORKER_MET;
    return true;
}

/* What is due for what this worker left. */
static enum worker_pass pass_of(const struct worker *w, uint64_t now_ns) {
    if (w->orphans == WORKER_ORPHANS_NONE)
        return WORKER_PASS_NONE;
    if (now_ns >= w->left_until_ns)
        return WORKER_PASS_KILL;
    return w->orphans != WORKER_ORPHANS_ASKED && now_ns >= w->term_ns ? WORKER_PASS_TERM
                                                                      : WORKER_PASS_LOOK;
}

/* The other workers, and their daemons, are spared. A pass does one thing: with what several
 * workers left, SIGTERM before SIGKILL, because that is sent once, and SIGKILL until all are gone.
 */
static void begin_orphans(struct worker_group *g) {
    _cleanup_(pid_list_fini) struct pid_list known = {0};
    const uint64_t now_ns = clock_now_ns();
    enum worker_pass pass = WORKER_PASS_NONE;
    child_reaper_each(g->reaper, add_pid, &known);
    struct sweep_except except = sorted(&known, g);
    for (uint32_t i = 0; i < g->n; i++)
        pass = MAX2(pass, pass_of(&g->workers[i], now_ns));
    g->orphans_again = false;
    for (uint32_t i = 0; i < g->n; i++) {
        struct worker *w = &g->workers[i];
        enum worker_pass own = pass_of(w, now_ns);
        w->sought = own == pass && own != WORKER_PASS_NONE ? WORKER_SOUGHT : WORKER_NOT_SOUGHT;
        g->orphans_again |= own > WORKER_PASS_LOOK && own != pass;
        if (w->sought == WORKER_NOT_SOUGHT)
            continue;
        if (pass == WORKER_PASS_TERM)
            w->orphans = WORKER_ORPHANS_ASKED;
        if (pass == WORKER_PASS_KILL && w->cgroup_fd >= 0 && !worker_keeps(g))
            (void)cgroup_kill(w->cgroup_fd);
    }
    pass_begins(g, pass);
    sweep_walk_begin_orphans(walk_of(g), &except, WORKER_MARKER, is_looked_for, g);
    g->walk_kind = WORKER_WALK_ORPHANS;
}

/* ---- continuing ---- */

static void orphans_walked(struct worker_group *g, const struct sweep_result *result) {
    bool left = false;
    for (uint32_t i = 0; i < g->n; i++) {
        struct worker *w = &g->workers[i];
        if (w->sought != WORKER_NOT_SOUGHT) {
            bool met = w->sought == WORKER_MET || (w->cgroup_fd >= 0 && !worker_keeps(g) &&
                                                   cgroup_populated(w->cgroup_fd) == 1);
            w->quiet_passes = met || result->undecided > 0 ? 0 : w->quiet_passes + 1;
            if (w->quiet_passes >= ORPHANS_QUIET_PASSES)
                w->orphans = WORKER_ORPHANS_NONE;
        }
        left |= w->orphans != WORKER_ORPHANS_NONE;
    }
    uint64_t wait_ns = g->orphans_again ? 0 : g->orphan_wait_ns;
    loop_timer_set(g->orphan_timer, left ? clock_now_ns() + wait_ns : TIME_NEVER);
    g->orphan_wait_ns = MIN2(g->orphan_wait_ns * 2, WORKER_RETRY_MAX_NS);
}

static void all_walked(struct worker_group *g, const struct sweep_result *result) {
    g->last = *result;
    if (!g->walk_answers)
        return;
    g->walk_answers = false;
    worker_step(g, &(struct worker_event){.kind = WORKER_EVENT_SWEPT,
                                          .now_ns = clock_now_ns(),
                                          .left = result->alive + result->undecided,
                                          .blocking = g->blocking});
}

static void on_walk_turn(void *arg);

static void go_on(struct worker_group *g) {
    struct sweep_result result;
    enum worker_walk kind = g->walk_kind;
    if (!sweep_walk_go_on(g->walk, clock_now_ns() + PIECE_NS, &result)) {
        worker_put_off(g, WORKER_DUE_WALK, LOOP_PRIO_BULK, on_walk_turn);
        return;
    }
    g->walk_kind = WORKER_WALK_NONE;
    pass_is_over(g);
    if (kind == WORKER_WALK_ALL)
        all_walked(g, &result);
    else
        orphans_walked(g, &result);
}

void worker_find_orphans(struct worker_group *g) {
    if (g->walk_kind != WORKER_WALK_NONE || g->machine.n_left == 0)
        return;
    begin_orphans(g);
    go_on(g);
}

static void on_walk_turn(void *arg) {
    struct worker_group *g = arg;
    if (!worker_arrived(g, WORKER_DUE_WALK))
        return;
    if (g->walk_kind != WORKER_WALK_NONE)
        go_on(g);
    else
        worker_find_orphans(g);
}

/* ---- the calls ---- */

void worker_sweep_all(struct worker_group *g, enum worker_pass pass, bool answer) {
    if (g->walk_kind == WORKER_WALK_ALL && !answer)
        return; /* it is running; the next one finds what it has already passed */
    begin_all(g, pass);
    g->walk_answers = answer;
    go_on(g);
}

void worker_sweep_now(struct worker_group *g) {
    struct sweep_result result;
    begin_all(g, WORKER_PASS_KILL);
    bool over = sweep_walk_go_on(g->walk, TIME_NEVER, &result);
    assert(over);
    g->walk_kind = WORKER_WALK_NONE;
    pass_is_over(g);
}

void worker_sweep_orphans_of(struct worker *w) {
    struct worker_group *g = w->group;
    w->orphans = WORKER_ORPHANS_LEFT;
    w->quiet_passes = 0;
    g->orphans_again = true;
    g->orphan_wait_ns = WORKER_RETRY_MIN_NS;
    /* if one is running, this is called again when it is over */
    if (g->walk_kind == WORKER_WALK_NONE)
        worker_put_off(g, WORKER_DUE_WALK, LOOP_PRIO_BULK, on_walk_turn);
}
