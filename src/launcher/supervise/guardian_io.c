#include "launcher/supervise/guardian_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "io/process/child.h"
#include "io/process/proc.h"
#include "launcher/contain/contain_why.h"
#include "launcher/supervise/cgroup_io.h"
#include "launcher/supervise/sweep_io.h"

#define CGROUP_NAME_MAX 48
#define CLAIM_ATTEMPTS 8

struct guardian_shared {
    atomic_uint fences;      /* guardian_fences() */
    atomic_ullong lease_end; /* ns; TIME_NEVER: none */
    atomic_bool agent_holds; /* between guardian_hold() and guardian_resume() */
    atomic_bool held;        /* workers were stopped */
    atomic_bool leave;       /* the agent leaves processes in other sessions than its own */
    atomic_uchar came[NSIG]; /* enum tree_copy of the last forwarded signal of this number */
    struct spare spare;
};

/* What both sides are set up from; the guardian keeps using it. */
struct guardian {
    int listener_fd;
    enum job_contain contain;
    int lease_fd;
    struct guardian_shared *shared;
    int cgroup_parent_fd, cgroup_fd; /* -1: none */
    char cgroup_name[CGROUP_NAME_MAX];
    int setup[2];     /* socket pair: [0] the guardian's, [1] the agent's */
    sigset_t mask;    /* the signal mask before the split */
    sigset_t ignored; /* SIGHUP and SIGTSTP, if this process was started with them ignored */
    pid_t guardian, agent;
    pid_t keeper; /* 0: none */
    uid_t uid;
    gid_t gid;
    uint64_t lease_over;  /* the end of the lease after which it acts, */
    uint64_t times, left; /* how often it did, and found processes in a row */
};

static void report_stuck(void *arg, pid_t pid) {
    char name[SWEEP_NAME_MAX];
    sweep_describe(pid, name);
    static const char head[] = "muster: error: cannot be killed: ";
    static const char tail[] = "; this node remains in use until it has ended\n";
    char line[sizeof head + sizeof name + sizeof tail];
    (void)strcpy(line, head);
    (void)strcat(line, name);
    (void)strcat(line, tail);
    (void)!write(STDERR_FILENO, line, strlen(line));
}

/* --- the agent's side --- */

/* A real-time signal that other programs are unlikely to send; see signal(7) on SIGRTMIN. */
static int death_signal(void) { return SIGRTMIN + 7; }

static volatile sig_atomic_t expected_parent;
static volatile sig_atomic_t in_pid_namespace;
static struct guardian_shared *shared_page;

_noreturn_ static void die_with_all(void) {
    struct sweep_except except = {.spare = &shared_page->spare};
    /* else the kernel kills all processes with us, because we are the namespace's first process */
    if (!in_pid_namespace)
        sweep_all(&except, GUARDIAN_UNKILLABLE_NS, report_stuck, NULL);
    spare_end(&shared_page->spare, GUARDIAN_SPARED_NS);
    _exit(128 + SIGKILL);
}

static void on_guardian_died(int signo) {
    int saved = errno;
    if (in_pid_namespace || getppid() != expected_parent)
        die_with_all();
    errno = saved; /* another process sent it */
}

static void watch_guardian(void) {
    struct sigaction sa = {.sa_handler = on_guardian_died, .sa_flags = SA_RESTART};
    (void)sigfillset(&sa.sa_mask);
    (void)sigaction(death_signal(), &sa, NULL);
    (void)prctl(PR_SET_PDEATHSIG, death_signal(), 0, 0, 0);
}

/* Makes the user the same inside the namespace as outside. user_namespaces(7) */
static int map_user(const struct guardian *g) {
    char text[64];
    int r = file_put(AT_FDCWD, "/proc/self/setgroups", "deny");
    if (r < 0 && r != -ENOENT)
        return r;
    (void)snprintf(text, sizeof text, "%u %u 1", g->uid, g->uid);
    if ((r = file_put(AT_FDCWD, "/proc/self/uid_map", text)) < 0)
        return r;
    (void)snprintf(text, sizeof text, "%u %u 1", g->gid, g->gid);
    return file_put(AT_FDCWD, "/proc/self/gid_map", text);
}

/* Mounts /proc with this namespace's pids, for the sweeps and for the workers. */
static int mount_proc(void) {
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return -errno;
    return 0;
}

/* What the agent writes to the guardian when it has set itself up. */
struct setup_report {
    int code;               /* 0, or a negative errno */
    enum contain_step step; /* which failed; 0: none of containment's */
};

static int agent_setup(const struct guardian *g, enum contain_step *ret_step) {
    (void)setpgid(0, 0);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return -errno;
    *ret_step = g->cgroup_fd >= 0 ? CONTAIN_ENTER : 0;
    if (g->cgroup_fd >= 0)
        return cgroup_enter(g->cgroup_fd);
    if (g->contain != JOB_CONTAIN_PIDNS)
        return 0;
    *ret_step = CONTAIN_MAP;
    int r = g->uid != 0 ? map_user(g) : 0;
    if (r < 0)
        return r;
    *ret_step = CONTAIN_PROC;
    return mount_proc();
}

static void agent_begin(struct guardian *g, struct guardian_link *ret) {
    bool pidns = g->contain == JOB_CONTAIN_PIDNS;
    in_pid_namespace = pidns;
    expected_parent = pidns ? 0 : g->guardian;
    shared_page = g->shared;
    watch_guardian();
    (void)close(g->setup[0]);
    struct setup_report report = {0};
    report.code = agent_setup(g, &report.step);
    ssize_t n = write(g->setup[1], &report, sizeof report);
    if (n != sizeof report || report.code < 0)
        _exit(1);
    /* The guardian's answer; end of file if it died before the death signal was requested. */
    char go;
    while (g->contain != JOB_CONTAIN_NONE && (n = read(g->setup[1], &go, 1)) < 0 && errno == EINTR)
        ;
    if (n <= 0 || (!pidns && getppid() != g->guardian))
        _exit(1);
    (void)close(g->setup[1]);
    (void)sigprocmask(SIG_SETMASK, &g->mask, NULL);
    *ret = (struct guardian_link){
        .guardian = pidns ? 0 : g->guardian,
        .lease_fd = g->lease_fd,
        .cgroup_parent_fd = g->cgroup_parent_fd,
        .shared = g->shared,
    };
}

/* ---- workers are stopped ----
 *
 * The lease has ended while the agent did not run: guardian and agent stop the workers until it has
 * a lease again. Workers are all processes below the agent in another session than the agent and
 * its helpers. All calls are async-signal-safe. */

struct hold_walk {
    pid_t session; /* the agent's, which only its helpers share */
    int signo;
};

static int hold_seen(void *arg, pid_t pid, bool own) {
    const struct hold_walk *w = arg;
    return getsid(pid) == w->session ? SWEEP_SPARE : w->signo;
}

/* signo: SIGSTOP to all workers, repeated calls to new ones, too; or SIGCONT. */
static void pass_below_agent(struct guardian_shared *shared, pid_t agent, int signo) {
    struct hold_walk w = {.session = getsid(agent), .signo = signo};
    struct sweep_except except = {.spare = &shared->spare, .seen = hold_seen, .arg = &w};
    struct sweep_result result;
    atomic_store(&shared->held, signo == SIGSTOP);
    sweep_pass_below(agent, &except, &result);
}

void guardian_hold(struct guardian_link *link) {
    atomic_store(&link->shared->agent_holds, true);
    pass_below_agent(link->shared, getpid(), SIGSTOP);
}

void guardian_resume(struct guardian_link *link) {
    atomic_store(&link->shared->agent_holds, false);
    if (atomic_load(&link->shared->held))
        pass_below_agent(link->shared, getpid(), SIGCONT);
}

void guardian_lease(struct guardian_link *link, uint64_t end_ns) {
    struct itimerspec when = {0};
    atomic_store(&link->shared->lease_end, end_ns);
    if (end_ns != TIME_NEVER) {
        uint64_t late_ns = end_ns + GUARDIAN_LATE_NS;
        when.it_value.tv_sec = (time_t)(late_ns / NS_PER_S);
        when.it_value.tv_nsec = (long)(late_ns % NS_PER_S);
        when.it_interval.tv_nsec = GUARDIAN_REPEAT_NS;
    }
    int r = timerfd_settime(link->lease_fd, TFD_TIMER_ABSTIME, &when, NULL);
    assert(r == 0);
    if (end_ns == TIME_NEVER || !atomic_load(&link->shared->agent_holds))
        guardian_resume(link);
}

/* None if the guardian is in another pid namespace: there the kernel kills all processes. */
struct spare *guardian_spared(const struct guardian_link *link) {
    return link->shared != NULL && link->guardian != 0 ? &link->shared->spare : NULL;
}

void guardian_leave(struct guardian_link *link) {
    if (link->shared != NULL)
        atomic_store(&link->shared->leave, true);
}

uint32_t guardian_fences(const struct guardian_link *link) {
    return link->shared != NULL ? atomic_load(&link->shared->fences) : 0;
}

enum tree_copy guardian_how_came(struct guardian_link *link, int signo) {
    return (enum tree_copy)atomic_exchange(&link->shared->came[signo], TREE_COPY_DIRECT);
}

/* --- the keeper: outside of what it kills, in case both others are killed --- */

static void await_pidfd(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, -1) < 0)
        ;
}

static void cgroup_end(const struct guardian *g) {
    (void)cgroup_kill(g->cgroup_fd);
    while (cgroup_populated(g->cgroup_fd) == 1)
        (void)poll(NULL, 0, 1);
    (void)cgroup_remove(g->cgroup_parent_fd, g->cgroup_name);
}

/* It holds the listener, too: when the first process of a pid namespace ends, the kernel closes its
 * descriptors before it kills the namespace, which would show too early that this node is gone. */
_noreturn_ static void keeper_main(const struct guardian *g, int guardian_pidfd, int agent_pidfd) {
    (void)setsid(); /* so signals to the guardian's process group do not reach it */
    (void)prctl(PR_SET_NAME, "muster-keeper", 0, 0, 0);
    await_pidfd(guardian_pidfd);
    if (g->cgroup_fd >= 0)
        cgroup_end(g);
    (void)syscall(SYS_pidfd_send_signal, agent_pidfd, SIGKILL, NULL, 0);
    await_pidfd(agent_pidfd); /* for a namespace's first process: after all others have ended */
    _exit(0);
}

static int keeper_start(struct guardian *g) {
    _cleanup_(file_close) int guardian_pidfd = (int)syscall(SYS_pidfd_open, g->guardian, 0);
    _cleanup_(file_close) int agent_pidfd = (int)syscall(SYS_pidfd_open, g->agent, 0);
    if (guardian_pidfd < 0 || agent_pidfd < 0)
        return -errno;
    g->keeper = fork();
    if (g->keeper == 0)
        keeper_main(g, guardian_pidfd, agent_pidfd);
    return g->keeper < 0 ? -errno : 0;
}

/* ---- why containment can't be had ---- */

#define CAP_SYS_ADMIN_BIT 21      /* linux/capability.h */
#define SECCOMP_MODE_FILTERED "2" /* Seccomp: of proc_pid_status(5) */

static int64_t number_of(const char *path) {
    char text[32], *end;
    (void)!file_read_head(AT_FDCWD, path, text, sizeof text);
    long long n = strtoll(text, &end, 10);
    return end == text ? CONTAIN_UNKNOWN : n;
}

/* What follows "NAME:" and blanks in /proc/self/status; "": there is no such line. */
static const char *field_of(const char *status, const char *name) {
    const char *at = strstr(status, name);
    return at == NULL ? "" : at + strlen(name) + strspn(at + strlen(name), " \t");
}

/* What can't be read is CONTAIN_UNKNOWN or false. */
static void read_facts(struct contain_facts *ret) {
    _cleanup_(strbuf_fini) struct strbuf status = {0}, mounts = {0};
    (void)file_add_text(AT_FDCWD, "/proc/self/status", &status);
    (void)file_add_text(AT_FDCWD, "/proc/self/mountinfo", &mounts);
    const char *seccomp = field_of(strbuf_text(&status), "\nSeccomp:");
    uint64_t caps = strtoull(field_of(strbuf_text(&status), "\nCapEff:"), NULL, 16);
    *ret = (struct contain_facts){
        .uid = geteuid(),
        .has_admin = (caps >> CAP_SYS_ADMIN_BIT & 1) != 0,
        .filtered = strncmp(seccomp, SECCOMP_MODE_FILTERED, 1) == 0,
        .userns_clone = number_of("/proc/sys/kernel/unprivileged_userns_clone"),
        .userns_max = number_of("/proc/sys/user/max_user_namespaces"),
        .pidns_max = number_of("/proc/sys/user/max_pid_namespaces"),
        .apparmor_limit = number_of("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        .has_cgroup1 = strstr(strbuf_text(&mounts), " - cgroup ") != NULL,
    };
}

/* Sets err to what is missing and returns code, a negative errno. If err is NULL, reads nothing. */
static int contain_failed(enum contain_step step, int code, struct err *err) {
    _cleanup_(strbuf_fini) struct strbuf why = {0};
    struct contain_facts facts;
    if (err == NULL)
        return code;
    read_facts(&facts);
    contain_why(step, code, &facts, &why);
    return err_set(err, code, "%s", strbuf_text(&why));
}

/* --- the guardian's side --- */

_noreturn_ static void exit_as(int status) {
    if (!WIFSIGNALED(status))
        _exit(WEXITSTATUS(status));
    int signo = WTERMSIG(status);
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(signo, SIG_DFL);
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, signo);
    (void)kill(getpid(), signo);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + signo); /* this is process 1, which its own signals don't kill */
}

static int is_left(void *arg, pid_t pid, bool own) {
    return sweep_is_detached(pid) ? SWEEP_SPARE : SIGKILL;
}

/* The agent has died: kills all other processes, then closes the listener and exits. */
_noreturn_ static void guardian_finish(struct guardian *g, int status) {
    struct sweep_except except = {.spare = &g->shared->spare, .also = g->keeper};
    bool leaves = WIFEXITED(status) && atomic_load(&g->shared->leave);
    if (leaves)
        except.seen = is_left;
    else if (g->cgroup_fd >= 0)
        (void)cgroup_kill(g->cgroup_fd);
    sweep_all(&except, GUARDIAN_UNKILLABLE_NS, report_stuck, NULL);
    spare_end(&g->shared->spare, GUARDIAN_SPARED_NS);
    if (leaves && g->cgroup_fd >= 0)
        (void)cgroup_remove(g->cgroup_parent_fd, g->cgroup_name); /* if nothing is in it */
    else if (g->cgroup_fd >= 0 && !spare_lives(&g->shared->spare, SPARE_NAMES))
        cgroup_end(g);
    if (g->keeper > 0) {
        (void)kill(g->keeper, SIGKILL);
        (void)waitpid(g->keeper, NULL, 0);
    }
    file_close(&g->listener_fd);
    exit_as(status);
}

static bool is_over(const struct guardian *g) {
    uint64_t end = atomic_load(&g->shared->lease_end);
    return end != TIME_NEVER && clock_now_ns() >= end + GUARDIAN_LATE_NS;
}

/* Stops the workers, for an agent that was frozen together with this process. If it has moved the
 * lease meanwhile, it may have continued them before the last one was stopped. */
static void hold(struct guardian *g) {
    pass_below_agent(g->shared, g->agent, SIGSTOP);
    if (!is_over(g) && !atomic_load(&g->shared->agent_holds))
        pass_below_agent(g->shared, g->agent, SIGCONT);
}

static void lease_over(struct guardian *g) {
    uint64_t times, end = atomic_load(&g->shared->lease_end);
    if (read(g->lease_fd, &times, sizeof times) != sizeof times || !is_over(g))
        return; /* the lease was moved in the meantime */
    g->times = end == g->lease_over ? g->times + 1 : 1;
    g->lease_over = end;
    if (!proc_is_ours()) { /* the workers can't be found below the agent, only after its death */
        (void)kill(g->agent, SIGKILL);
        return;
    }
    if (g->times <= GUARDIAN_HOLDS) {
        hold(g);
        return;
    }
    struct sweep_result result;
    struct sweep_except except = {.spare = &g->shared->spare};
    (void)atomic_fetch_add(&g->shared->fences, 1);
    sweep_pass_below(g->agent, &except, &result);
    g->left = result.alive == 0 ? 0 : g->left + 1;
    if (g->left == GUARDIAN_UNKILLABLE_NS / GUARDIAN_REPEAT_NS)
        report_stuck(NULL, sweep_stuck_one(&result));
}

/* ---- ^Z at a terminal: the guardian stops, and the job continues ----
 *
 * The shell waits for the guardian, so it must stop. Before, it starts a deputy, a copy of itself
 * in its own process group, which handles the lease's end, and wakes it when the agent dies. */

/* How often the deputy checks what no descriptor reports. */
#define DEPUTY_CHECK_MS 20

static bool is_in_state(pid_t pid, char state) {
    struct proc_stat st;
    return proc_read_stat(pid, &st) && st.state == state;
}

_noreturn_ static void deputy_main(struct guardian *g) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_NAME, "muster-deputy", 0, 0, 0);
    file_close(&g->listener_fd);
    file_close(&g->cgroup_parent_fd);
    file_close(&g->cgroup_fd);
    struct pollfd p[2] = {{.events = POLLIN}, {.fd = g->lease_fd, .events = POLLIN}};
    p[0].fd = (int)syscall(SYS_pidfd_open, g->agent, 0); /* -1 before Linux 5.3 */
    bool reported = false;
    while (getppid() == g->guardian) {
        (void)poll(p, 2, reported && p[0].fd >= 0 ? -1 : DEPUTY_CHECK_MS);
        if (p[1].revents != 0)
            lease_over(g);
        if (!reported && is_in_state(g->guardian, 'T')) {
            reported = true;
            (void)kill(g->agent, SIGTSTP);
        }
        if (p[0].fd >= 0 ? p[0].revents == 0 : !is_in_state(g->agent, 'Z'))
            continue;
        /* The agent has died. Repeated, because it can have come before the guardian stopped. */
        (void)kill(g->guardian, SIGCONT);
        (void)poll(NULL, 0, DEPUTY_CHECK_MS);
    }
    _exit(0);
}

/* Stops this process as SIGTSTP does, until SIGCONT; the agent gets SIGTSTP when it has stopped.
 * Returns at once without a deputy, or without a shell (an orphaned process group). */
static void suspend(struct guardian *g) {
    sigset_t tstp;
    (void)sigemptyset(&tstp);
    (void)sigaddset(&tstp, SIGTSTP);
    pid_t deputy = fork();
    if (deputy == 0)
        deputy_main(g);
    if (deputy < 0)
        return;
    (void)signal(SIGTSTP, SIG_DFL);
    (void)kill(g->guardian, SIGTSTP);
    (void)sigprocmask(SIG_UNBLOCK, &tstp, NULL); /* stops here; returns when it is continued */
    (void)sigprocmask(SIG_BLOCK, &tstp, NULL);
    (void)signal(SIGTSTP, SIG_IGN);
    (void)kill(deputy, SIGKILL);
    (void)waitpid(deputy, NULL, 0);
}

static void forward(struct guardian *g, int signo, bool typed) {
    switch (signo) {
    case SIGCHLD:
    case SIGPIPE:
    case SIGTTIN:
    case SIGTTOU: return;
    default: /* not an enum: other signal numbers exist */ break;
    }
    if (signo == death_signal() || sigismember(&g->ignored, signo) == 1)
        return; /* while a signal is blocked, the kernel does not drop it, although it is ignored */
    atomic_store(&g->shared->came[signo], typed ? TREE_COPY_ALONE : TREE_COPY_FORWARDED);
    if (signo == SIGTSTP) {
        suspend(g);
        return;
    }
    (void)kill(g->agent, signo);
    if (signo == SIGTERM || signo == SIGINT || signo == SIGHUP || signo == SIGQUIT)
        (void)kill(g->agent, SIGCONT);
}

static void reap(struct guardian *g) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == g->agent)
            guardian_finish(g, status);
        if (pid == g->keeper)
            g->keeper = 0;
    }
}

_noreturn_ static void guardian_main(struct guardian *g, int signal_fd) {
    for (;;) {
        struct pollfd p[2] = {{.fd = signal_fd, .events = POLLIN},
                              {.fd = g->lease_fd, .events = POLLIN}};
        if (poll(p, 2, -1) < 0)
            continue;
        struct signalfd_siginfo si;
        while (read(signal_fd, &si, sizeof si) == sizeof si)
            forward(g, (int)si.ssi_signo, si.ssi_code == SI_KERNEL);
        reap(g);
        if (p[1].revents != 0)
            lease_over(g);
    }
}

/* --- the split --- */

/* Processes that inherit fd share the claim's lock: the agent, the keeper. */
static int make_claimed(int parent, const char *name, int *ret_fd) {
    int r = -ENOENT;
    for (int i = 0; i < CLAIM_ATTEMPTS && r == -ENOENT; i++) {
        r = cgroup_make(parent, name, ret_fd);
        /* left by an earlier process with this pid */
        if (r == -EEXIST && cgroup_remove(parent, name) == 0)
            r = cgroup_make(parent, name, ret_fd);
        if (r < 0 || cgroup_claim(parent, name, *ret_fd))
            continue;
        /* another start has just removed it, because it was not claimed yet */
        (void)close(*ret_fd);
        r = -ENOENT;
    }
    return r;
}

static int cgroup_prepare(struct guardian *g, bool required, struct err *err) {
    _cleanup_(freep) char *path = cgroup_own_path();
    if (path == NULL)
        return contain_failed(CONTAIN_FIND, -ENOENT, err);
    if (!required && !cgroup_is_delegated(path))
        return -EPERM;
    int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return contain_failed(CONTAIN_MAKE, -errno, err);
    (void)snprintf(g->cgroup_name, sizeof g->cgroup_name, GUARDIAN_CGROUP_PREFIX "%d", getpid());
    int fd, r = make_claimed(parent, g->cgroup_name, &fd);
    if (r < 0)
        (void)contain_failed(CONTAIN_MAKE, r, err);
    if (r == 0 && faccessat(fd, "cgroup.kill", W_OK, 0) < 0) {
        r = contain_failed(CONTAIN_KILL, -EOPNOTSUPP, err);
        (void)close(fd);
        (void)cgroup_remove(parent, g->cgroup_name);
    }
    if (r < 0) {
        (void)close(parent);
        return r;
    }
    g->cgroup_parent_fd = parent;
    g->cgroup_fd = fd;
    return 0;
}

static int choose_contain(struct guardian *g, enum job_contain wanted, struct err *err) {
    switch (wanted) {
    case JOB_CONTAIN_NONE:
    case JOB_CONTAIN_PIDNS: g->contain = wanted; return 0;
    case JOB_CONTAIN_AUTO:
        g->contain = cgroup_prepare(g, false, NULL) == 0 ? JOB_CONTAIN_CGROUP : JOB_CONTAIN_NONE;
        return 0;
    case JOB_CONTAIN_CGROUP: g->contain = wanted; return cgroup_prepare(g, true, err);
    }
    assert_not_reached();
}

static int prepare(struct guardian *g, enum job_contain wanted, struct err *err) {
    g->lease_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (g->lease_fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, g->setup) < 0)
        return err_set(err, -errno, "cannot prepare the guardian: %s", strerror(errno));
    void *page =
        mmap(NULL, sizeof *g->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return err_set(err, -errno, "cannot prepare the guardian: %s", strerror(errno));
    g->shared = page;
    return choose_contain(g, wanted, err);
}

static void read_ignored(sigset_t *ret) {
    static const int signals[] = {SIGHUP, SIGTSTP};
    (void)sigemptyset(ret);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        if (child_is_ignored(signals[i]))
            (void)sigaddset(ret, signals[i]);
}

static pid_t make_agent(const struct guardian *g) {
    if (g->contain != JOB_CONTAIN_PIDNS)
        return fork();
    unsigned long flags = CLONE_NEWPID | CLONE_NEWNS | SIGCHLD;
    if (g->uid != 0)
        flags |= CLONE_NEWUSER;
    return (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
}

/* The process is about to end, which closes the rest. */
static int undo(struct guardian *g, int r) {
    if (g->cgroup_fd >= 0)
        (void)cgroup_remove(g->cgroup_parent_fd, g->cgroup_name);
    (void)sigprocmask(SIG_SETMASK, &g->mask, NULL);
    return r;
}

static int await_agent(struct guardian *g, struct err *err) {
    (void)close(g->setup[1]);
    g->setup[1] = -1;
    struct setup_report report = {0};
    ssize_t n;
    do
        n = read(g->setup[0], &report, sizeof report);
    while (n < 0 && errno == EINTR);
    int r = n == sizeof report ? report.code : -ECHILD;
    enum contain_step failed = n == sizeof report && r < 0 ? report.step : 0;
    if (r == 0 && g->contain != JOB_CONTAIN_NONE)
        r = keeper_start(g);
    if (r == 0)
        return 0;
    (void)kill(g->agent, SIGKILL);
    (void)waitpid(g->agent, NULL, 0);
    if (failed != 0)
        return contain_failed(failed, r, err);
    return err_set(err, r, "cannot set up the agent: %s", strerror(-r));
}

int guardian_fork(const struct guardian_config *config, struct guardian_link *ret,
                  struct err *err) {
    struct guardian g = {.listener_fd = config->listener_fd,
                         .lease_fd = -1,
                         .cgroup_parent_fd = -1,
                         .cgroup_fd = -1,
                         .setup = {-1, -1},
                         .guardian = getpid(),
                         .uid = geteuid(),
                         .gid = getegid()};
    read_ignored(&g.ignored);
    (void)signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would hide every exit */
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &g.mask);
    int r = prepare(&g, config->contain, err);
    if (r < 0)
        return undo(&g, r);
    int signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return undo(&g, err_set(err, -errno, "cannot prepare the guardian: %s", strerror(errno)));
    (void)signal(SIGTSTP, SIG_IGN);
    (void)signal(SIGTTIN, SIG_IGN);
    (void)signal(SIGTTOU, SIG_IGN);
    g.agent = make_agent(&g);
    if (g.agent == 0) {
        (void)close(signal_fd);
        agent_begin(&g, ret);
        return 0;
    }
    if (g.agent > 0 && config->on_split != NULL)
        config->on_split(config->arg);
    if (g.agent > 0)
        r = await_agent(&g, err);
    else if (g.contain == JOB_CONTAIN_PIDNS)
        r = contain_failed(CONTAIN_CLONE, -errno, err);
    else
        r = err_set(err, -errno, "cannot start the agent: %s", strerror(errno));
    if (r < 0)
        return undo(&g, r);
    if (g.contain != JOB_CONTAIN_NONE)
        (void)!write(g.setup[0], "g", 1);
    (void)close(g.setup[0]);
    guardian_main(&g, signal_fd);
}
