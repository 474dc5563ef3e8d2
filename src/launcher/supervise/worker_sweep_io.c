/* Ends the processes that workers have left: which they are, their signals, and whether the next
 * group waits for them. A pass is made in pieces, so that the loop can serve others in between. */
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/proc.h"
#include "launcher/supervise/worker_priv.h"

#define MARKER_MAX 96

/* ==== whose a process is ==== */

/* NULL: not of this group. */
static const struct worker *owner(const struct worker_group *g, const char *marker) {
    const char *dot = strchr(marker, '.'); /* generation.index.random */
    unsigned long i = dot != NULL ? strtoul(dot + 1, NULL, 10) : g->n;
    bool ours =
        i < g->n && g->workers[i].marker != NULL && strcmp(g->workers[i].marker, marker) == 0;
    return ours ? &g->workers[i] : NULL;
}

bool worker_group_owns(const struct worker_group *g, const char *marker) {
    return owner(g, marker) != NULL;
}

/* Every child that the reaper watches and that is not one of our workers is a helper. */
static bool is_helper(const struct worker_group *g, pid_t pid) {
    const struct child_watch *watch = child_reaper_find(g->reaper, pid);
    const struct worker *w = watch != NULL ? child_watch_arg(watch) : NULL;
    bool is_worker = w >= g->workers && w < g->workers + g->n && w->watch == watch;
    return watch != NULL && !is_worker;
}

/* Whether a process has no memory: it is ending (and its children will soon have another parent),
 * or it is in the middle of exec. Nothing in /proc shows which worker it came from. */
static bool is_between(pid_t pid) {
    char c;
    return proc_read(pid, "/cmdline", &c, 1) == 0;
}

/* Whether a pass covers this child, and all below it. Beside another group only what has our marker
 * counts. marker: NULL: it has none, or it can't be read. */
static bool is_meant(struct worker_group *g, pid_t pid, const char *marker) {
    const struct worker *w = marker != NULL ? owner(g, marker) : NULL;
    if (!g->of_ended && !g->machine.released)
        return marker == NULL || w != NULL || g->ops.is_of_other == NULL ||
               !g->ops.is_of_other(g->arg, marker);
    g->undecided += marker == NULL && is_between(pid);
    return w != NULL && (w->ended || !g->of_ended);
}

/* ==== detached processes: those in sessions of their own ==== */

bool worker_keeps(const struct worker_group *g) { return g->config.leave_detached && !g->unwell; }

/* The worker that leads this session or process group; NULL: none. The number is not used again
 * while a process is in it. */
static const struct worker *leader_of(const struct worker_group *g, pid_t session) {
    for (uint32_t i = 0; i < g->n; i++)
        if (g->workers[i].session == session)
            return &g->workers[i];
    return NULL;
}

static char was_asked, was_named;   /* values of worker_group.asked */
#define SESSION (UINT64_C(1) << 32) /* its key in worker_group.asked is above all pids */

static void name_detached(struct worker_group *g, pid_t pid, pid_t session) {
    char name[SWEEP_NAME_MAX] = "more of the same kind";
    if (idmap_get(&g->asked, SESSION | (uint64_t)session) != NULL)
        return;
    idmap_put(&g->asked, SESSION | (uint64_t)session, &was_named);
    bool more = g->n_named++ == WORKER_NAMED_MAX;
    g->named_pid = more ? 0 : pid;
    if (!more)
        sweep_name(pid, name);
    log_notice("%s, which a worker started in a session of its own and left running, is stopped; "
               "--leave=detached leaves it running if the job succeeds",
               name);
}

static void keep(struct worker_group *g, pid_t pid) {
    if (g->n_kept < WORKER_NAMED_MAX)
        g->kept[g->n_kept] = pid;
    g->n_kept++;
}

static bool is_kept(struct worker_group *g, pid_t pid) {
    bool names = g->n_named <= WORKER_NAMED_MAX && g->pass != WORKER_PASS_LOOK;
    if (g->unwell || (!g->config.leave_detached && !names))
        return false;
    pid_t session = getsid(pid);
    if (!sweep_is_detached(pid) || leader_of(g, session) != NULL)
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

uint32_t worker_group_kept(const struct worker_group *g) {
    return worker_keeps(g) && worker_group_gone(g) ? g->n_kept : 0;
}

bool worker_group_leave_kept(struct worker_group *g) {
    uint32_t n = worker_group_kept(g);
    for (uint32_t i = 0; i < n && i < WORKER_NAMED_MAX; i++) {
        char name[SWEEP_NAME_MAX];
        sweep_name(g->kept[i], name);
        if (sweep_is_detached(g->kept[i]))
            log_notice("%s, continues (--leave=detached); if its output is not in a file, a write "
                       "can kill it",
                       name);
    }
    if (n > WORKER_NAMED_MAX)
        log_notice("%u more such processes continue", n - WORKER_NAMED_MAX);
    g->left = n > 0 || (worker_keeps(g) && !proc_is_ours()); /* without /proc none is listed */
    return g->left;
}

#define NAMED_IN_LINE 4
#define PORTS_MAX 4096

/* ---- what another group would need ---- */

/* The kernel assigns these to programs that ask for any port, so no program depends on one. */
static unsigned first_of_any(unsigned *ret_last) {
    unsigned from;
    char text[64];
    (void)!file_read_head(AT_FDCWD, "/proc/sys/net/ipv4/ip_local_port_range", text, sizeof text);
    return sscanf(text, "%u %u", &from, ret_last) == 2 ? from : UINT_MAX;
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
    while (g->ports.len < PORTS_MAX && fgets(line, sizeof line, f) != NULL &&
           sscanf(line, "%*s %*[0-9A-F]:%x %*s %x %*s %*s %*s %*s %*s %lu", &port, &state,
                  &inode) == 3 &&
           state == TCP_LISTEN)
        if (port < first || port > last || port == g->config.store_port)
            idmap_put(&g->ports, inode, g);
    (void)fclose(f);
}

static bool is_port(struct worker_group *g, const char *link) {
    unsigned long inode;
    if (sscanf(link, "socket:[%lu]", &inode) != 1)
        return false;
    if (!g->ports_known) {
        idmap_fini(&g->ports);
        g->ports_known = true;
        read_ports(g, "/proc/self/net/tcp");
        read_ports(g, "/proc/self/net/tcp6");
    }
    return idmap_get(&g->ports, inode) != NULL;
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

/* ---- what a pass does ---- */

static int ask(const struct worker_group *g, pid_t pid) {
    const struct worker *w = leader_of(g, getpgid(pid));
    bool asked = (w != NULL && w->group_asked) || idmap_get(&g->asked, (uint64_t)pid) != NULL;
    return asked ? 0 : SIGTERM;
}

/* The pass missed it while it got another parent. Not one that a handler of SIGTERM started. */
static int ask_late(const struct worker_group *g, pid_t pid) {
    struct proc_stat st;
    return g->machine.asked && proc_read_stat(pid, &st) && st.start < g->term_ticks ? ask(g, pid)
                                                                                    : 0;
}

static void sent(void *group, pid_t pid) {
    struct worker_group *g = group;
    if (g->pass != WORKER_PASS_KILL)
        idmap_put(&g->asked, (uint64_t)pid, pid == g->named_pid ? &was_named : &was_asked);
}

static void note_killed(struct worker_group *g, pid_t pid) {
    char name[SWEEP_NAME_MAX];
    if (g->doomed || idmap_get(&g->asked, (uint64_t)pid) == &was_named || sweep_has_ended(pid))
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
    char marker[MARKER_MAX];
    if (own && is_helper(g, pid))
        return SWEEP_SPARE;
    bool marked = own && sweep_read_variable(pid, WORKER_MARKER, marker, sizeof marker);
    if ((own && !is_meant(g, pid, marked ? marker : NULL)) || is_kept(g, pid))
        return SWEEP_SPARE;
    /* the group of an orphan without a marker is not known later */
    if (g->machine.state == WORKER_STATE_ENDING && !g->machine.released)
        g->blocking += (own && !marked) || holds_what_others_need(g, pid);
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

static void pass_is_over(struct worker_group *g) {
    if (g->n_killed > NAMED_IN_LINE)
        strbuf_printf(&g->killed, "; and %u more", g->n_killed - NAMED_IN_LINE);
    if (g->n_killed > 0)
        log_notice("killed what had not ended: %s", strbuf_text(&g->killed));
    strbuf_clear(&g->killed);
    g->n_killed = 0;
}

/* Of a piece: less than a slice, of which other work has already used a part. */
#define PIECE_NS (2 * NS_PER_MS)

static void begin(struct worker_group *g, enum worker_pass pass, bool of_ended) {
    /* a helper's own helper, whose parent has ended, is among the spared */
    struct sweep_except except = {.spare = g->config.spare, .seen = seen, .sent = sent, .arg = g};
    struct timespec ts;
    if (pass == WORKER_PASS_TERM && clock_gettime(CLOCK_BOOTTIME, &ts) == 0) {
        uint64_t ns = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
        g->term_ticks = ns / (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
    }
    g->pass = pass;
    g->of_ended = of_ended;
    g->blocking = g->undecided = g->n_kept = 0;
    g->ports_known = false;
    if (g->walk == NULL)
        g->walk = sweep_walk_new();
    sweep_walk_begin(g->walk, &except);
    g->walks = true;
}

/* Returns whether the pass is over. */
static bool walk_until(struct worker_group *g, uint64_t until_ns) {
    if (!sweep_walk_go_on(g->walk, until_ns, &g->last))
        return false;
    g->walks = false;
    pass_is_over(g);
    return true;
}

static void go_on(void *arg) {
    struct worker_group *g = arg;
    if (!g->walks)
        return;
    if (!walk_until(g, clock_now_ns() + PIECE_NS)) {
        worker_put_off(g, LOOP_PRIO_BULK, go_on);
    } else if (g->walk_answers) {
        g->walk_answers = false;
        worker_step(g, &(struct worker_event){.kind = WORKER_EVENT_SWEPT,
                                              .now_ns = clock_now_ns(),
                                              .left = g->last.alive + g->undecided,
                                              .blocking = g->blocking});
    }
}

/* ---- the calls ---- */

void worker_sweep_all(struct worker_group *g, enum worker_pass pass, bool answer) {
    if (g->walks && !answer)
        return; /* it is running; the next one finds what it has already passed */
    begin(g, pass, false);
    g->walk_answers = answer;
    go_on(g);
}

static void ask_orphans(void *arg) {
    struct worker_group *g = arg;
    if (g->machine.n_left == 0)
        return; /* all processes are swept */
    if (g->walks) {
        worker_put_off(g, LOOP_PRIO_BULK, ask_orphans);
        return;
    }
    begin(g, WORKER_PASS_TERM, true);
    go_on(g);
}

void worker_ask_orphans(struct worker_group *g) { worker_put_off(g, LOOP_PRIO_BULK, ask_orphans); }

void worker_sweep_now(struct worker_group *g) {
    begin(g, WORKER_PASS_KILL, false);
    bool over = walk_until(g, TIME_NEVER);
    assert(over);
}
