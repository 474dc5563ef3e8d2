/* What becomes of a process that a worker left: which signal a pass sends to it, and whether the
 * next group waits for its end. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/process/proc.h"
#include "launcher/supervise/worker_priv.h"

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

static bool holds_what_others_need(struct worker_group *g, pid_t pid) {
    char path[PROC_PATH_MAX], link[64];
    proc_path(path, pid, "/fd");
    DIR *dir = opendir(path);
    if (dir == NULL)
        return false;
    bool holds = false;
    for (const struct dirent *e; !holds && (e = readdir(dir)) != NULL;) {
        ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof link - 1);
        link[n > 0 ? n : 0] = '\0';
        holds = proc_is_gpu(link) || is_port(g, link);
    }
    (void)closedir(dir);
    return holds;
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

void worker_sent(void *group, pid_t pid) {
    struct worker_group *g = group;
    if (g->pass != WORKER_PASS_KILL)
        idmap_put(&g->asked, (uint64_t)pid, pid == g->told_pid ? &was_named : &was_asked);
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

int worker_seen(void *group, pid_t pid, bool own) {
    struct worker_group *g = group;
    if ((own && is_of_other_group(g, pid)) || worker_is_kept(g, pid))
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

void worker_pass_begins(struct worker_group *g, enum worker_pass pass) {
    struct timespec ts;
    if (pass == WORKER_PASS_TERM && clock_gettime(CLOCK_BOOTTIME, &ts) == 0) {
        uint64_t ns = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
        g->term_ticks = ns / (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
    }
    g->pass = pass;
    g->blocking = 0;
    g->ports = (struct worker_ports){0};
}

void worker_pass_over(struct worker_group *g) {
    if (g->n_killed > NAMED_IN_LINE)
        strbuf_printf(&g->killed, "; and %u more", g->n_killed - NAMED_IN_LINE);
    if (g->n_killed > 0)
        log_notice("killed what had not ended: %s", strbuf_text(&g->killed));
    strbuf_clear(&g->killed);
    g->n_killed = 0;
}
