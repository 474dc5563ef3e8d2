/* A worker for tests of supervision. It carries out its arguments in order.
 *
 *     exit=N            ends with status N
 *     signal=N          sends itself signal N
 *     ignore=N          ignores signal N (descendants too)
 *     on-term=N         from now on SIGTERM ends it with status N
 *     hold=FIFO         opens FIFO for writing, and keeps it; so do descendants made later
 *     say=FIFO          writes "PID\n" into FIFO in one write
 *     stamp=FILE        appends "CLOCK_MONOTONIC ns\n" to FILE in one write
 *     child             a child that ignores SIGTERM and waits
 *     daemon            the same, double-forked and in a session of its own
 *     polite-daemon     the same, and SIGTERM ends it
 *     bare-daemon       a daemon whose environment is empty (execs itself)
 *     fork-storm=N      N generations of children, each made by the one before, which then ends
 *     print=TEXT        TEXT and a newline; part=TEXT: without one
 *     spew=BYTES        that many bytes of lines of 100
 *     notify=TEXT       sends TEXT to MUSTER_NOTIFY_SOCKET
 *     env=NAME          prints the variable's value, or "(unset)"
 *     cwd, sid, mask, fds   print the directory; whether it leads a session; blocked and ignored
 *                       signals; open descriptors above 2
 *     bound             prints the CPUs it may use and its memory policy: "0,1 preferred-many 0"
 *     close=FD          closes FD
 *     cat               copies standard input to standard output until its end
 *     stop              stops itself (SIGSTOP)
 *     wait              waits for ever
 *     spin              uses a processor for ever
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int on_term_status;

static void fail(const char *what) {
    perror(what);
    exit(99);
}

static void on_term(int signo) {
    (void)signo;
    _exit(on_term_status);
}

/* Or as long as a test can take: a test that fails must not leave processes behind for ever. */
static void wait_for_ever(void) {
    (void)alarm(120); /* not inherited through fork */
    for (;;)
        pause();
}

static void write_line(const char *path, const char *line) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, strlen(line)) < 0)
        fail(path);
    (void)close(fd);
}

static void say(const char *path) {
    char line[32];
    snprintf(line, sizeof line, "%d\n", getpid());
    write_line(path, line);
}

static void stamp(const char *path) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    char line[64];
    snprintf(line, sizeof line, "%lld\n", ts.tv_sec * 1000000000LL + ts.tv_nsec);
    write_line(path, line);
}

static void notify(const char *text) {
    const char *name = getenv("MUSTER_NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (name == NULL || name[0] != '@' || strlen(name) >= sizeof addr.sun_path)
        fail("MUSTER_NOTIFY_SOCKET");
    memcpy(addr.sun_path + 1, name + 1, strlen(name) - 1);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, text, strlen(text), 0, (struct sockaddr *)&addr, size) < 0)
        fail("notify");
    (void)close(fd);
}

static void make_child(void) {
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid > 0)
        return;
    signal(SIGTERM, SIG_IGN);
    wait_for_ever();
}

/* Returns when the daemon is ready: it holds everything that it inherited. */
static void make_daemon(const char *self, void (*at_term)(int)) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) < 0)
        fail("pipe");
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0) {
        signal(SIGTERM, at_term);
        setsid();
        if (fork() != 0)
            _exit(0);
        if (self != NULL) {
            char *argv[] = {(char *)(uintptr_t)self, (char *)(uintptr_t) "wait", NULL};
            char *envp[] = {NULL};
            execve("/proc/self/exe", argv, envp); /* closes ready[1] */
            _exit(98);
        }
        (void)close(ready[0]);
        (void)close(ready[1]);
        wait_for_ever();
    }
    (void)close(ready[1]);
    (void)waitpid(pid, NULL, 0);
    char byte;
    (void)!read(ready[0], &byte, 1);
    (void)close(ready[0]);
}

static void fork_storm(int n) {
    pid_t pid = fork();
    if (pid != 0)
        return;
    signal(SIGTERM, SIG_IGN);
    setsid();
    for (; n > 0; n--)
        if (fork() != 0)
            _exit(0);
    wait_for_ever();
}

static void spew(long bytes) {
    char line[100];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    for (; bytes > 0; bytes -= (long)sizeof line)
        fwrite(line, 1, bytes < (long)sizeof line ? (size_t)bytes : sizeof line, stdout);
    fflush(stdout);
}

static void print_signals(void) {
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int s = 1; s < NSIG; s++) {
        struct sigaction sa;
        if (sigismember(&mask, s) == 1)
            printf("blocked %d ", s);
        if (sigaction(s, NULL, &sa) == 0 && sa.sa_handler != SIG_DFL)
            printf("ignored %d ", s);
    }
    puts("end");
}

static void print_descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL)
        fail("/proc/self/fd");
    for (struct dirent *d; (d = readdir(dir)) != NULL;) {
        int fd = atoi(d->d_name);
        if (fd > 2 && fd != dirfd(dir))
            printf("%d ", fd);
    }
    puts("end");
    closedir(dir);
}

static void copy_input(void) {
    char buf[4096];
    for (ssize_t n; (n = read(0, buf, sizeof buf)) > 0;)
        if (write(1, buf, (size_t)n) != n)
            fail("write");
}

static void print_bound(void) {
    static const char *const modes[] = {"default", "preferred", "bind", "interleave", "local", "preferred-many"};
    cpu_set_t cpus;
    unsigned long nodes[128] = {0};
    int mode = 0;
    if (sched_getaffinity(0, sizeof cpus, &cpus) < 0)
        fail("sched_getaffinity");
    long r = syscall(SYS_get_mempolicy, &mode, nodes, sizeof nodes * 8 + 1, NULL, 0UL);
    const char *comma = "";
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &cpus)) {
            printf("%s%d", comma, i);
            comma = ",";
        }
    if (r < 0 || mode < 0 || (size_t)mode >= sizeof modes / sizeof modes[0])
        printf(" errno %d", errno);
    else
        printf(" %s", modes[mode]);
    comma = " ";
    for (size_t i = 0; r == 0 && i < sizeof nodes * 8; i++)
        if (nodes[i / 64] >> (i % 64) & 1) {
            printf("%s%zu", comma, i);
            comma = ",";
        }
    printf("\n");
    fflush(stdout);
}

static bool is(const char *arg, const char *name) { return strcmp(arg, name) == 0; }

static const char *value_of(const char *arg, const char *name) {
    size_t len = strlen(name);
    return strncmp(arg, name, len) == 0 && arg[len] == '=' ? arg + len + 1 : NULL;
}

static void print(const char *text) {
    puts(text);
    fflush(stdout);
}

static bool do_plain(const char *arg, const char *self) {
    char buf[4096];
    if (is(arg, "child"))
        make_child();
    else if (is(arg, "daemon"))
        make_daemon(NULL, SIG_IGN);
    else if (is(arg, "polite-daemon"))
        make_daemon(NULL, SIG_DFL);
    else if (is(arg, "bare-daemon"))
        make_daemon(self, SIG_IGN);
    else if (is(arg, "cwd"))
        print(getcwd(buf, sizeof buf));
    else if (is(arg, "sid"))
        print(getsid(0) == getpid() ? "leader" : "member");
    else if (is(arg, "mask"))
        print_signals();
    else if (is(arg, "bound"))
        print_bound();
    else if (is(arg, "fds"))
        print_descriptors();
    else if (is(arg, "cat"))
        copy_input();
    else if (is(arg, "stop"))
        raise(SIGSTOP);
    else if (is(arg, "wait"))
        wait_for_ever();
    else if (is(arg, "spin"))
        for (volatile unsigned i = 0;; i++)
            ;
    else
        return false;
    fflush(stdout);
    return true;
}

static bool do_valued(const char *arg) {
    const char *v;
    if ((v = value_of(arg, "exit")) != NULL)
        exit(atoi(v));
    else if ((v = value_of(arg, "signal")) != NULL) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        raise(atoi(v));
    } else if ((v = value_of(arg, "ignore")) != NULL)
        signal(atoi(v), SIG_IGN);
    else if ((v = value_of(arg, "on-term")) != NULL) {
        on_term_status = atoi(v);
        signal(SIGTERM, on_term);
    } else if ((v = value_of(arg, "hold")) != NULL) {
        if (open(v, O_WRONLY) < 0)
            fail(v);
    } else if ((v = value_of(arg, "say")) != NULL)
        say(v);
    else if ((v = value_of(arg, "stamp")) != NULL)
        stamp(v);
    else if ((v = value_of(arg, "fork-storm")) != NULL)
        fork_storm(atoi(v));
    else if ((v = value_of(arg, "print")) != NULL)
        print(v);
    else if ((v = value_of(arg, "part")) != NULL)
        printf("%s", v);
    else if ((v = value_of(arg, "spew")) != NULL)
        spew(atol(v));
    else if ((v = value_of(arg, "notify")) != NULL)
        notify(v);
    else if ((v = value_of(arg, "env")) != NULL)
        print(getenv(v) != NULL ? getenv(v) : "(unset)");
    else if ((v = value_of(arg, "close")) != NULL)
        close(atoi(v));
    else
        return false;
    fflush(stdout);
    return true;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!do_plain(argv[i], argv[0]) && !do_valued(argv[i])) {
            fprintf(stderr, "worker: what is %s?\n", argv[i]);
            return 98;
        }
    return 0;
}
