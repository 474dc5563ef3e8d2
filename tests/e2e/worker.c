/* A worker that tells the tests what happens to it. Its words are done in order:
 *
 *     family      two descendants that nobody's SIGTERM ends: one in our session, one double-forked with its own
 *     ignore      from here on SIGTERM, SIGINT and SIGHUP are ignored
 *     start       says that it runs, and whether anything of another generation is alive
 *     out=TEXT    writes TEXT to standard output, err=TEXT to standard error; \n and \r are understood
 *     rank=N      does the next word only on this rank; local=N, count=N (TORCHELASTIC_RESTART_COUNT) likewise
 *     env=NAME    says NAME's value
 *     exit=N      signal=N      ends so
 *     go          waits until the test says go; wait: for ever
 *     gate=NAME   waits until the test opens the FIFO of that name (beside E2E_GO) for writing
 *     work        like go, and until then tells the record every 20 ms that it lives; then that it ended
 *     train       like work, from the last checkpoint on: each sign of life is a step, and rank 0 saves each fifth one
 *     ring        like go, with a connection to the next rank and from the one before; the end of one ends it with 1,
 *                 with NCCL's and gloo's kind of words; ring=1: ends with 0 as soon as it holds hands
 *     patient     in a ring, waits until the one before has not only ended: its agent has reaped it
 *     tick=MS     a step takes so long, and not 20 ms
 *     shout=KB    with each step, the node's first worker writes so much to standard output
 *     linger=MS   after SIGTERM, train goes on for so long before it ends
 *     notify=TEXT sends TEXT to the launcher
 *     orphans=N   makes N children that end at once, each double-forked; then says so
 *
 * It lives by four things of the environment: E2E_EVENTS, a FIFO it writes lines to; E2E_GO, a FIFO whose opening for
 * writing is the word to go on; E2E_RECORD, a file to which all workers of the job append what they live through;
 * E2E_LIFE, a folder. There each worker holds, with all its descendants, a FIFO
 * named GENERATION.TAG (E2E_TAG names the agent). To read from one whose holders are all dead gives the end of
 * file, and EAGAIN while one lives: so nobody has to look at a process table. In the folder E2E_LIFE.own it holds
 * such a FIFO alone. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char term_line[256];
static int events_fd = -1, own_fd = -1;
static int linger_ms, tick_ms = 20, shout_kb;
static bool patient;
static volatile sig_atomic_t told_to_end;

static const char *env(const char *name, const char *otherwise) {
    const char *v = getenv(name);
    return v == NULL ? otherwise : v;
}

static void die(const char *what) {
    (void)fprintf(stderr, "e2e worker: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static const char *generation(void) { return env("MUSTER_GENERATION", env("TORCHELASTIC_RESTART_COUNT", "?")); }

static unsigned long long now_ns(void) {
    struct timespec ts;
    if (clock_gettime(CLOCK_MONOTONIC, &ts) < 0)
        die("clock_gettime");
    return (unsigned long long)ts.tv_sec * 1000000000ull + (unsigned long long)ts.tv_nsec;
}

/* One write: lines of several workers do not mix, being shorter than PIPE_BUF. */
static void event(const char *line) {
    size_t len = strlen(line);
    if (events_fd >= 0 && write(events_fd, line, len) != (ssize_t)len)
        die("E2E_EVENTS");
}

/* One append: whole lines, in the order in which they were written, whoever wrote them. A line fills a slot that
 * divides a page: the kernel copies a write page by page, and one that crosses into the next can be read, or killed,
 * half done. */
static void record(const char *what, int step) {
    static int fd = -1;
    const char *path = getenv("E2E_RECORD");
    char line[256];
    if (path == NULL || (fd < 0 && (fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) < 0))
        die("E2E_RECORD");
    int len = snprintf(line, sizeof line, "%s gen=%s ns=%llu rank=%s node=%s tag=%s pid=%d step=%d", what, generation(),
                       now_ns(), env("RANK", "?"), env("GROUP_RANK", "?"), env("E2E_TAG", "x"), (int)getpid(), step);
    if (len < 0 || (size_t)len >= sizeof line) {
        errno = ENAMETOOLONG;
        die("a line of E2E_RECORD");
    }
    memset(line + len, ' ', sizeof line - (size_t)len - 1);
    line[sizeof line - 1] = '\n';
    if (write(fd, line, sizeof line) != (ssize_t)sizeof line)
        die(path);
}

static int hold(const char *suffix) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s%s/%s.%s", env("E2E_LIFE", "."), suffix, generation(), env("E2E_TAG", "x"));
    if (mkfifo(path, 0600) < 0 && errno != EEXIST)
        die(path);
    int fd = open(path, O_RDWR);
    if (fd < 0)
        die(path);
    return fd;
}

static void hold_lifelines(void) {
    (void)hold(""); /* stays open, in all descendants too */
    own_fd = hold(".own");
    (void)fcntl(own_fd, F_SETFD, FD_CLOEXEC);
}

/* Writes the names of other generations of which a worker itself still lives. */
static void overlap(char *out, size_t cap) {
    out[0] = '\0';
    char dir[400];
    (void)snprintf(dir, sizeof dir, "%s.own", env("E2E_LIFE", "."));
    DIR *d = opendir(dir);
    if (d == NULL)
        die(dir);
    size_t own = strlen(generation());
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || (strncmp(e->d_name, generation(), own) == 0 && e->d_name[own] == '.'))
            continue;
        char path[512], c;
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            die(path);
        if (read(fd, &c, 1) < 0 && errno == EAGAIN)
            (void)snprintf(out + strlen(out), cap - strlen(out), "%s%.60s", out[0] ? "," : "", e->d_name);
        (void)close(fd);
    }
    (void)closedir(d);
}

static void on_term(int signo) {
    if (events_fd >= 0)
        (void)!write(events_fd, term_line, strlen(term_line));
    told_to_end = signo;
    if (linger_ms > 0)
        return;
    (void)signal(signo, SIG_DFL);
    (void)raise(signo);
}

static void ignore_all(void) {
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
}

static void start_family(void) {
    int ready[2];
    if (pipe(ready) < 0)
        die("pipe");
    for (int far = 0; far < 2; far++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork");
        if (pid > 0) {
            if (far && waitpid(pid, NULL, 0) < 0)
                die("waitpid");
            continue;
        }
        (void)close(own_fd);
        if (far) { /* the classic daemon: own session, parent gone */
            (void)setsid();
            if (fork() != 0)
                _exit(0);
        }
        ignore_all();
        if (write(ready[1], "r", 1) != 1)
            _exit(98);
        (void)close(ready[0]);
        (void)close(ready[1]);
        for (;;)
            (void)pause();
    }
    (void)close(ready[1]);
    char two[2];
    for (size_t got = 0; got < sizeof two;) {
        ssize_t n = read(ready[0], two + got, sizeof two - got);
        if (n <= 0)
            die("descendants");
        got += (size_t)n;
    }
    (void)close(ready[0]);
}

static void say_start(void) {
    char held[200], line[700];
    overlap(held, sizeof held);
    (void)snprintf(
        line, sizeof line,
        "start tag=%s gen=%s epoch=%s rank=%s local=%s world=%s node=%s count=%s pid=%d ns=%llu overlap=%s\n",
        env("E2E_TAG", "x"), generation(), env("MUSTER_EPOCH", "?"), env("RANK", "?"), env("LOCAL_RANK", "?"),
        env("WORLD_SIZE", "?"), env("GROUP_RANK", "?"), env("TORCHELASTIC_RESTART_COUNT", "?"), (int)getpid(), now_ns(),
        held);
    event(line);
}

static void say(const char *what) {
    char line[200];
    (void)snprintf(line, sizeof line, "%s tag=%s gen=%s rank=%s pid=%d\n", what, env("E2E_TAG", "x"), generation(),
                   env("RANK", "?"), (int)getpid());
    event(line);
}

static void say_env(const char *name) {
    char line[700];
    const char *v = getenv(name);
    (void)snprintf(line, sizeof line, "env rank=%s name=%s set=%d value=%.400s\n", env("RANK", "?"), name, v != NULL,
                   v == NULL ? "" : v);
    event(line);
}

static void put(FILE *f, const char *text) {
    for (; *text != '\0'; text++) {
        if (text[0] == '\\' && (text[1] == 'n' || text[1] == 'r'))
            (void)fputc(*++text == 'n' ? '\n' : '\r', f);
        else
            (void)fputc(*text, f);
    }
    (void)fflush(f);
}

static bool is(const char *word, const char *key, const char *name) {
    size_t n = strlen(key);
    return strncmp(word, key, n) == 0 && strcmp(word + n, env(name, "")) != 0;
}

static void wait_for_go(void) {
    const char *path = getenv("E2E_GO");
    if (path == NULL)
        die("E2E_GO is not set");
    int fd;
    while ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) /* blocks until the test opens it */
        if (errno != EINTR)
            die(path);
    (void)close(fd);
}

static void wait_at_gate(const char *name) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/../%s", env("E2E_LIFE", "."), name);
    int fd;
    while ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        if (errno != EINTR)
            die(path);
    (void)close(fd);
}

/* The FIFO has nobody who writes: end of file; as soon as the test has it open: nothing to read yet. */
static void work(void) {
    int fd = open(env("E2E_GO", ""), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    char c;
    if (fd < 0)
        die("E2E_GO");
    record("start", 0);
    while (read(fd, &c, 1) == 0) {
        (void)poll(NULL, 0, 20);
        record("lives", 0);
    }
    record("end", 0);
    (void)close(fd);
}

/* The last checkpoint, 0 where there is none yet, and the generation that saved it. It is put in place by rename: there
 * is no half of one. */
static int load(const char *path, unsigned *ret_epoch, unsigned *ret_counter) {
    int step = 0;
    *ret_epoch = *ret_counter = 0;
    FILE *f = fopen(path, "re");
    if (f == NULL && errno != ENOENT)
        die(path);
    if (f == NULL)
        return 0;
    if (fscanf(f, "%u.%u %d", ret_epoch, ret_counter, &step) != 3)
        die(path);
    (void)fclose(f);
    return step;
}

/* Not over that of a later generation: a host that was stopped for long and goes on would. */
static void save(const char *path, int step) {
    unsigned epoch, counter, saved_epoch, saved_counter;
    if (sscanf(generation(), "%u.%u", &epoch, &counter) != 2)
        die("MUSTER_GENERATION");
    (void)load(path, &saved_epoch, &saved_counter);
    if (saved_epoch > epoch || (saved_epoch == epoch && saved_counter > counter))
        return;
    char temporary[600];
    (void)snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    FILE *f = fopen(temporary, "we");
    if (f == NULL || fprintf(f, "%u.%u %d\n", epoch, counter, step) < 0 || fclose(f) != 0 ||
        rename(temporary, path) < 0)
        die(temporary);
    record("saved", step);
}

/* Lines of many lengths; SIGTERM may end it in the middle of one. */
static void shout(void) {
    static char text[1024];
    if (shout_kb == 0 || strcmp(env("LOCAL_RANK", ""), "0") != 0)
        return;
    if (text[0] == '\0')
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = i % 127 == 126 || i == sizeof text - 1 ? '\n' : (char)('a' + i % 26);
    for (int i = 0; i < shout_kb && !told_to_end; i++)
        if (write(STDOUT_FILENO, text, sizeof text) < 0 && errno != EINTR)
            die("standard output");
}

static void train(void) {
    char path[512], c;
    (void)snprintf(path, sizeof path, "%s.checkpoint", env("E2E_RECORD", "x"));
    int fd = open(env("E2E_GO", ""), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        die("E2E_GO");
    unsigned epoch, counter;
    int step = load(path, &epoch, &counter);
    unsigned long long end_ns = 0;
    record("start", step);
    while (read(fd, &c, 1) == 0) {
        (void)poll(NULL, 0, tick_ms);
        record("lives", ++step);
        shout();
        if (strcmp(env("RANK", ""), "0") == 0 && step % 5 == 0)
            save(path, step);
        if (told_to_end && end_ns == 0)
            end_ns = now_ns() + (unsigned long long)linger_ms * 1000000ull;
        if (end_ns != 0 && now_ns() >= end_ns) {
            (void)signal(told_to_end, SIG_DFL);
            (void)raise(told_to_end);
        }
    }
    record("end", step);
    (void)close(fd);
}

/* From the folder of lifelines: the path of a socket is short. */
static void ring_name(struct sockaddr_un *addr, int rank) {
    *addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(addr->sun_path, sizeof addr->sun_path, "../ring.%.40s.%d", generation(), rank);
}

/* A process closes its connections before its parent can know that it has ended. */
static void await_reaped(int fd) {
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 0)
        die("SO_PEERCRED");
    while (kill(peer.pid, 0) == 0)
        (void)poll(NULL, 0, 1);
}

/* Paths of sockets hold across emulated hosts, whose network does not. */
static void ring(bool leaves) {
    struct sockaddr_un own, next;
    int rank = atoi(env("RANK", "0")), world = atoi(env("WORLD_SIZE", "1"));
    if (chdir(env("E2E_LIFE", ".")) < 0)
        die("E2E_LIFE");
    ring_name(&own, rank);
    ring_name(&next, (rank + 1) % world);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || to < 0 || bind(listener, (struct sockaddr *)&own, sizeof own) < 0 || listen(listener, 8) < 0)
        die("ring");
    while (connect(to, (struct sockaddr *)&next, sizeof next) < 0) {
        if (errno != ENOENT && errno != ECONNREFUSED)
            die(next.sun_path);
        (void)poll(NULL, 0, 1);
    }
    struct pollfd fds[3] = {{.fd = to, .events = POLLIN}, {.events = POLLIN}, {.events = POLLIN}};
    fds[1].fd = accept(listener, NULL, NULL);
    fds[2].fd = open(env("E2E_GO", ""), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fds[1].fd < 0 || fds[2].fd < 0)
        die("ring");
    say("ringed");
    if (leaves)
        exit(0);
    char c;
    while (read(fds[2].fd, &c, 1) == 0) { /* as in work() */
        int n = poll(fds, 2, 20);
        if (n < 0 && errno != EINTR)
            die("poll");
        if (n > 0 && read(fds[2].fd, &c, 1) == 0) {
            if (patient)
                await_reaped(fds[1].fd);
            (void)fprintf(stderr, "ring: rank %d: Connection closed by peer\n", rank);
            exit(1);
        }
    }
    _exit(0); /* who sees another's end now has been told to go, too */
}

static void notify(const char *text) {
    const char *name = env("MUSTER_NOTIFY_SOCKET", "");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (name[0] != '@' || strlen(name) >= sizeof addr.sun_path)
        die("MUSTER_NOTIFY_SOCKET");
    memcpy(addr.sun_path + 1, name + 1, strlen(name) - 1);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, text, strlen(text), 0, (struct sockaddr *)&addr,
                         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))) < 0)
        die("notify");
    (void)close(fd);
}

/* Their parent ends before or after them; then they have another one. */
static void make_orphans(int n) {
    char line[64];
    for (int i = 0; i < n; i++) {
        pid_t child = fork();
        if (child < 0)
            die("fork");
        if (child == 0)
            _exit(fork() < 0 ? 1 : 0);
        int status;
        if (waitpid(child, &status, 0) != child || status != 0)
            die("waitpid");
    }
    (void)snprintf(line, sizeof line, "orphaned rank=%s n=%d\n", env("RANK", "?"), n);
    event(line);
}

static void do_word(const char *w) {
    if (strcmp(w, "family") == 0)
        start_family();
    else if (strcmp(w, "ignore") == 0)
        ignore_all();
    else if (strcmp(w, "start") == 0)
        say_start();
    else if (strncmp(w, "out=", 4) == 0)
        put(stdout, w + 4);
    else if (strncmp(w, "err=", 4) == 0)
        put(stderr, w + 4);
    else if (strncmp(w, "env=", 4) == 0)
        say_env(w + 4);
    else if (strncmp(w, "exit=", 5) == 0)
        exit(atoi(w + 5));
    else if (strncmp(w, "signal=", 7) == 0)
        (void)raise(atoi(w + 7));
    else if (strcmp(w, "go") == 0)
        wait_for_go();
    else if (strncmp(w, "gate=", 5) == 0)
        wait_at_gate(w + 5);
    else if (strcmp(w, "work") == 0)
        work();
    else if (strcmp(w, "ring") == 0)
        ring(false);
    else if (strcmp(w, "ring=1") == 0)
        ring(true);
    else if (strcmp(w, "train") == 0)
        train();
    else if (strcmp(w, "patient") == 0)
        patient = true;
    else if (strncmp(w, "linger=", 7) == 0)
        linger_ms = atoi(w + 7);
    else if (strncmp(w, "tick=", 5) == 0)
        tick_ms = atoi(w + 5);
    else if (strncmp(w, "shout=", 6) == 0)
        shout_kb = atoi(w + 6);
    else if (strncmp(w, "notify=", 7) == 0)
        notify(w + 7);
    else if (strncmp(w, "orphans=", 8) == 0)
        make_orphans(atoi(w + 8));
    else if (strcmp(w, "wait") == 0)
        for (;;)
            (void)pause();
    else
        die(w);
}

int main(int argc, char **argv) {
    const char *events = getenv("E2E_EVENTS");
    if (events != NULL && (events_fd = open(events, O_WRONLY | O_CLOEXEC)) < 0)
        die(events);
    (void)snprintf(term_line, sizeof term_line, "term tag=%s gen=%s rank=%s\n", env("E2E_TAG", "x"), generation(),
                   env("RANK", "?"));
    (void)signal(SIGTERM, on_term);
    hold_lifelines();
    for (int i = 1; i < argc; i++) {
        const char *w = argv[i];
        if (is(w, "rank=", "RANK") || is(w, "local=", "LOCAL_RANK") || is(w, "count=", "TORCHELASTIC_RESTART_COUNT")) {
            i++; /* not for us: the next word is skipped (a chain of conditions holds as a whole) */
            while (i < argc && (strncmp(argv[i], "rank=", 5) == 0 || strncmp(argv[i], "local=", 6) == 0 ||
                                strncmp(argv[i], "count=", 6) == 0))
                i++;
        } else if (strncmp(w, "rank=", 5) != 0 && strncmp(w, "local=", 6) != 0 && strncmp(w, "count=", 6) != 0) {
            do_word(w);
        }
    }
    return 0;
}
