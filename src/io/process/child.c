#include "io/process/child.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "io/file.h"
#include "io/process/close_range.h"
#include "io/process/proc.h"

static char **copy_list(char *const *list) {
    size_t n = 0;
    if (list == NULL)
        return NULL;
    while (list[n] != NULL)
        n++;
    char **copy = xcalloc(n + 1, sizeof *copy);
    for (size_t i = 0; i < n; i++)
        copy[i] = xstrdup(list[i]);
    return copy;
}

static void *copy_bytes(const void *bytes, size_t n) {
    if (bytes == NULL)
        return NULL;
    void *copy = xcalloc(1, MAX2(n, 1u));
    memcpy(copy, bytes, n);
    return copy;
}

struct child_spec *child_spec_copy(const struct child_spec *spec) {
    struct child_spec *copy = xcalloc(1, sizeof *copy);
    *copy = *spec;
    copy->argv = copy_list(spec->argv);
    copy->envp = copy_list(spec->envp);
    copy->cwd = spec->cwd != NULL ? xstrdup(spec->cwd) : NULL;
    copy->cpuset = copy_bytes(spec->cpuset, spec->cpuset_bytes);
    copy->memory_nodes = copy_bytes(spec->memory_nodes, spec->memory_nodes_bytes);
    return copy;
}

void child_spec_free(struct child_spec *copy) {
    if (copy == NULL)
        return;
    words_free((char **)(uintptr_t)copy->argv);
    words_free((char **)(uintptr_t)copy->envp);
    free((void *)(uintptr_t)copy->cwd);
    free((void *)(uintptr_t)copy->cpuset);
    free((void *)(uintptr_t)copy->memory_nodes);
    free(copy);
}

static bool same_text(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_bytes(const void *a, size_t n, const void *b, size_t m) {
    return a == NULL || b == NULL ? a == b : n == m && memcmp(a, b, n) == 0;
}

static bool same_list(char *const *a, char *const *b) {
    size_t i = 0;
    while (a[i] != NULL && same_text(a[i], b[i]))
        i++;
    return a[i] == NULL && b[i] == NULL;
}

bool child_spec_alike(const struct child_spec *a, const struct child_spec *b) {
    return same_list(a->argv, b->argv) && same_text(a->cwd, b->cwd) && a->setsid == b->setsid &&
           a->own_group == b->own_group && a->death_signal == b->death_signal &&
           a->keep_nohup == b->keep_nohup &&
           same_bytes(a->ignored, sizeof a->ignored, b->ignored, sizeof b->ignored) &&
           a->readable == b->readable && a->nofile_soft == b->nofile_soft &&
           same_bytes(a->cpuset, a->cpuset_bytes, b->cpuset, b->cpuset_bytes) &&
           a->memory == b->memory &&
           same_bytes(a->memory_nodes, a->memory_nodes_bytes, b->memory_nodes,
                      b->memory_nodes_bytes);
}

/* What a child does between clone and exec, in this order. */
enum step {
    STEP_SESSION = 1,
    STEP_CHDIR,
    STEP_STDIO,
    STEP_BIND,
    STEP_MEMORY,
    STEP_LIMIT,
    STEP_CLOSE,
    STEP_EXEC,
    STEP_COUNT,
};

static const char *const step_texts[STEP_COUNT] = {
    [STEP_SESSION] = "make a session",
    [STEP_CHDIR] = "enter the directory",
    [STEP_STDIO] = "set up its standard streams",
    [STEP_BIND] = "bind it to its processors",
    [STEP_MEMORY] = "bind it to its NUMA nodes' memory",
    [STEP_LIMIT] = "set its limit of open files",
    [STEP_CLOSE] = "close inherited descriptors",
    [STEP_EXEC] = "run",
};

#define STACK_BYTES ((size_t)16 * 1024) /* of a child until its exec */

/* Why the program does not run. The child writes it into this process's memory. */
struct failed {
    int error; /* errno; 0: it runs, or the child was killed before */
    enum step step;
};

/* Everything that the child needs, made before the clone: the child must not allocate. */
struct plan {
    const struct child_spec *spec;
    const char *program;
    char *const *envp;
    pid_t parent;
    struct failed *failed;
};

void child_fini(struct child *c) {
    file_close(&c->pidfd);
    *c = (struct child)CHILD_INIT;
}

/* --- in the child: async-signal-safe calls only --- */

void child_reset_signals(const int *ignored, size_t n) {
    struct sigaction sa = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN};
    for (int signo = 1; signo < NSIG; signo++)
        (void)sigaction(signo, &sa, NULL); /* fails for KILL, STOP and glibc's own two */
    for (size_t i = 0; i < n; i++)
        (void)sigaction(ignored[i], &ignore, NULL);
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static int set_stdio(const struct child_spec *spec) {
    int from[3] = {spec->stdin_fd, spec->stdout_fd, spec->stderr_fd};
    /* A source below 3 could be overwritten before it is copied. */
    for (int i = 0; i < 3; i++)
        if (from[i] >= 0 && from[i] < 3 && from[i] != i) {
            from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 3);
            if (from[i] < 0)
                return -errno;
        }
    for (int i = 0; i < 3; i++) {
        if (from[i] < 0)
            continue;
        if (from[i] == i) {
            if (fcntl(i, F_SETFD, 0) < 0)
                return -errno;
        } else if (dup2(from[i], i) < 0) {
            return -errno;
        }
    }
    return 0;
}

static void mark_descriptor(void *arg, int fd) {
    if (fd > 2)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static int close_on_exec_above_stdio(unsigned without) {
    if (!(without & CHILD_WITHOUT_CLOSE_RANGE) &&
        syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) == 0)
        return 0;
    return proc_each_number("/proc/self/fd", mark_descriptor, NULL);
}

static int keep_descriptors(const int *fds) {
    for (size_t i = 0; i < CHILD_KEEP_MAX; i++)
        if (fds[i] != 0 && fcntl(fds[i], F_SETFD, 0) < 0)
            return -errno;
    return 0;
}

static int limit_descriptors(uint64_t soft) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return -errno;
    limit.rlim_cur = MIN2((rlim_t)soft, limit.rlim_max);
    return setrlimit(RLIMIT_NOFILE, &limit) < 0 ? -errno : 0;
}

#define MPOL_PREFERRED_MANY_NUMBER 5 /* newer than some headers */
#define LONG_BITS (sizeof(unsigned long) * CHAR_BIT)
#define CHILD_NODES_MAX 8192 /* more than any kernel has */

/* The kernel uses one bit less than the number it gets. set_mempolicy(2), BUGS */
static int set_policy(int mode, const unsigned long *nodes, size_t n_bits) {
    return syscall(SYS_set_mempolicy, mode, nodes, n_bits + 1) < 0 ? -errno : 0;
}

static int bind_memory(const struct child_spec *spec) {
    const unsigned long *nodes = spec->memory_nodes;
    const size_t n_bits = spec->memory_nodes_bytes * CHAR_BIT;
    if (spec->memory == CHILD_MEMORY_BIND)
        return set_policy(MPOL_BIND, nodes, n_bits);
    int r = -EINVAL;
    if (!(spec->without & CHILD_WITHOUT_PREFERRED_MANY))
        r = set_policy(MPOL_PREFERRED_MANY_NUMBER, nodes, n_bits);
    if (r != -EINVAL)
        return r;
    /* An older kernel: it takes only one node, so use the first. */
    for (size_t i = 0; i < n_bits / LONG_BITS; i++) {
        if (nodes[i] == 0)
            continue;
        unsigned long one[CHILD_NODES_MAX / LONG_BITS] = {0};
        if (i >= ARRAY_SIZE(one))
            return -EINVAL;
        one[i] = 1UL << __builtin_ctzl(nodes[i]);
        return set_policy(MPOL_PREFERRED, one, CHILD_NODES_MAX);
    }
    return r;
}

static int prepare(const struct plan *p) {
    const struct child_spec *spec = p->spec;
    enum step *step = &p->failed->step;
    int r;
    *step = STEP_SESSION;
    if ((spec->setsid && setsid() < 0) || (spec->own_group && setpgid(0, 0) < 0))
        return -errno;
    *step = STEP_CHDIR;
    if (spec->cwd != NULL && chdir(spec->cwd) < 0)
        return -errno;
    *step = STEP_STDIO;
    if ((r = set_stdio(spec)) < 0)
        return r;
    *step = STEP_BIND;
    if (spec->cpuset != NULL && sched_setaffinity(0, spec->cpuset_bytes, spec->cpuset) < 0)
        return -errno;
    *step = STEP_MEMORY;
    if (spec->memory != CHILD_MEMORY_DEFAULT && (r = bind_memory(spec)) < 0)
        return r;
    *step = STEP_LIMIT;
    if (spec->nofile_soft != 0 && (r = limit_descriptors(spec->nofile_soft)) < 0)
        return r;
    *step = STEP_CLOSE;
    if ((r = close_on_exec_above_stdio(spec->without)) < 0 ||
        (r = keep_descriptors(spec->keep_fds)) < 0)
        return r;
    *step = STEP_EXEC;
    (void)execve(p->program, spec->argv, p->envp);
    return -errno;
}

bool child_is_ignored(int signo) {
    struct sigaction sa;
    return sigaction(signo, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN;
}

_noreturn_ static void run_child(const struct plan *p) {
    int ignored[CHILD_IGNORED_MAX + 1];
    size_t n_ignored = 0;
    for (size_t i = 0; i < CHILD_IGNORED_MAX; i++)
        if (p->spec->ignored[i] != 0)
            ignored[n_ignored++] = p->spec->ignored[i];
    if (p->spec->keep_nohup && child_is_ignored(SIGHUP))
        ignored[n_ignored++] = SIGHUP;
    child_reset_signals(ignored, n_ignored);
    if (p->spec->death_signal != 0) {
        (void)prctl(PR_SET_PDEATHSIG, p->spec->death_signal, 0, 0, 0);
        if (getppid() != p->parent) /* it died before the line above */
            _exit(127);
    }
    if (p->spec->readable) /* EINVAL without Yama: then it needs no permission */
        (void)prctl(PR_SET_PTRACER, p->parent, 0, 0, 0);
    p->failed->error = -prepare(p);
    _exit(127);
}

/* --- in the parent --- */

#ifdef __SANITIZE_ADDRESS__
/* It can't check frames on a stack that it does not know: the child gets a copy. */
static pid_t clone_sharing_memory(struct plan *p, int flags, int *ret_pidfd) {
    struct failed *ours = p->failed, *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return -1;
    p->failed = shared;
    pid_t pid = (pid_t)syscall(SYS_clone, flags | CLONE_VFORK, NULL, ret_pidfd, NULL, NULL);
    if (pid == 0)
        run_child(p);
    *ours = *shared;
    (void)munmap(shared, sizeof *shared);
    return pid;
}
#else
static int begin_child(void *plan) { run_child(plan); }

/* Returns in the parent only, when the child runs its program or has ended, as posix_spawn(3) does.
 * To copy the memory would take longer than all the rest. */
static pid_t clone_sharing_memory(struct plan *p, int flags, int *ret_pidfd) {
    _Alignas(16) char stack[STACK_BYTES];
    return clone(begin_child, stack + sizeof stack, flags | CLONE_VM | CLONE_VFORK, p, ret_pidfd);
}
#endif

int child_check_program(const char *path) {
    struct stat st;
    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EACCES;
    return access(path, X_OK) < 0 ? -errno : 0;
}

int child_find_program(const char *name, const char *path, char **ret) {
    if (strchr(name, '/') != NULL) {
        *ret = xstrdup(name);
        return 0;
    }
    if (*name == '\0')
        return -ENOENT;
    if (path == NULL)
        path = "/bin:/usr/bin";
    int result = -ENOENT;
    for (;;) {
        size_t len = strcspn(path, ":");
        _cleanup_(freep) char *full =
            len == 0 ? xasprintf("./%s", name) : xasprintf("%.*s/%s", (int)len, path, name);
        int r = child_check_program(full);
        if (r == 0) {
            *ret = TAKE_PTR(full);
            return 0;
        }
        if (r == -EACCES)
            result = -EACCES; /* as execvp(3) does: continue, and report it at the end */
        if (path[len] == '\0')
            return result;
        path += len + 1;
    }
}

int child_pipe(int *ret_read, int *ret_write) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0) {
        int r = -errno;
        (void)close(fds[0]);
        (void)close(fds[1]);
        return r;
    }
    *ret_read = fds[0];
    *ret_write = fds[1];
    return 0;
}

/* The text after "#!", without its arguments, or "": what runs the script. */
static void interpreter_of(const char *head, char *ret, size_t size) {
    const char *at = head + 2 + strspn(head + 2, " \t");
    (void)snprintf(ret, size, "%.*s", (int)strcspn(at, " \t\r\n"), at);
}

/* For what machine a program, or a script's interpreter, was made; "": this one, or none. elf(5) */
static void other_machine(const char *path, char ret[200]) {
    static const struct {
        unsigned elf;
        const char *uname;
    } machines[] = {{EM_X86_64, "x86_64"},
                    {EM_AARCH64, "aarch64"},
                    {EM_PPC64, "ppc64le"},
                    {EM_RISCV, "riscv64"}};
    char head[256] = "", interpreter[256];
    struct utsname here;
    for (unsigned depth = 0; depth < 2; depth++, path = interpreter) {
        _cleanup_(file_close) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof head - 1);
        head[MAX2(n, 0)] = '\0';
        if (strncmp(head, "#!", 2) != 0)
            break;
        interpreter_of(head, interpreter, sizeof interpreter);
    }
    Elf64_Half machine;
    memcpy(&machine, head + offsetof(Elf64_Ehdr, e_machine), sizeof machine);
    for (size_t i = 0; i < ARRAY_SIZE(machines); i++)
        if (memcmp(head, ELFMAG, SELFMAG) == 0 && machine == machines[i].elf && uname(&here) == 0 &&
            strcmp(here.machine, machines[i].uname) != 0)
            (void)snprintf(ret, 200, " (%.80s is a program for %s, and this machine is %.40s)",
                           path, machines[i].uname, here.machine);
}

static int failed_text(const struct failed *f, const struct child_spec *spec, struct err *err) {
    const char *object = "", *hint = "";
    char machine[200] = "";
    int error = f->error;
    if (f->step == STEP_CHDIR)
        object = spec->cwd;
    if (f->step == STEP_MEMORY && error == EPERM)
        hint = " (a container that may not: it has no CAP_SYS_NICE)";
    if (f->step == STEP_MEMORY && error == EINVAL)
        hint = " (none of them has memory that may be used here)";
    if (f->step == STEP_EXEC) {
        object = spec->argv[0];
        if (error == ENOEXEC)
            other_machine(object, machine);
        if (error == ENOEXEC)
            hint = *machine != '\0' ? machine : " (a script needs a first line like #!/bin/sh)";
        else if (error == ENOENT && access(object, F_OK) == 0)
            hint = " (the interpreter its first line or its loader names is missing)";
    }
    return err_set(err, -error, "cannot %s%s%s: %s%s", step_texts[f->step],
                   *object != '\0' ? " " : "", object, strerror(error), hint);
}

int child_spawn(const struct child_spec *spec, struct child *ret, struct err *err) {
    struct failed failed = {0};
    struct plan p = {.spec = spec, .parent = getpid(), .failed = &failed};
    p.envp = spec->envp != NULL ? spec->envp : environ;
    const char *path = env_get(p.envp, "PATH");
    _cleanup_(freep) char *program = NULL;
    int r = child_find_program(spec->argv[0], path, &program);
    if (r < 0)
        return err_set(err, r,
                       r == -EACCES ? "cannot run %s: found, but not executable, on PATH (%s)"
                                    : "cannot run %s: not found on PATH (%s)",
                       spec->argv[0], path != NULL ? path : "not set");
    p.program = program;
    /* A signal before the child has the default actions would run our handlers in the child. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    struct child c = CHILD_INIT;
    const int pidfd = spec->without & CHILD_WITHOUT_PIDFD ? 0 : CLONE_PIDFD;
    c.pid = clone_sharing_memory(&p, SIGCHLD | pidfd, &c.pidfd);
    int error = errno;
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (c.pid < 0)
        return err_set(err, -error, "cannot start a process for %s: %s%s", spec->argv[0],
                       strerror(error), error == EAGAIN ? " (limit of processes: ulimit -u)" : "");
    if (failed.error != 0) {
        (void)waitpid(c.pid, NULL, 0);
        child_fini(&c);
        return failed_text(&failed, spec, err);
    }
    *ret = c;
    return 0;
}

int child_kill(const struct child *c, int signo) {
    if (c->pidfd >= 0 && syscall(SYS_pidfd_send_signal, c->pidfd, signo, NULL, 0) == 0)
        return 0;
    if (c->pidfd >= 0 && errno != ENOSYS)
        return -errno;
    /* our child, not reaped, so its pid is not recycled */
    return kill(c->pid, signo) < 0 ? -errno : 0;
}
