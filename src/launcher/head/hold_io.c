#include "launcher/head/hold_io.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/log.h"
#include "base/text/parse.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/sweep.h"
#include "rendezvous/operate/registry_io.h"

#define PREFIX "hold-"
#define UNFINISHED PREFIX "new-"
/* Files of steps that were killed are removed after this time, and for at most so long at a
 * start. */
#define OLD_S (24 * 3600)
#define SWEEP_NS (5 * NS_PER_MS)
#define LOOK_MS 250
/* "status 255\n", and a "left\n" for each task: more than a node has. */
#define CONTENT_MAX 65536
#define LEFT "left\n"

void hold_name(const char *run_id, uint32_t node_id, char ret[HOLD_NAME_MAX]) {
    int n = snprintf(ret, HOLD_NAME_MAX, PREFIX "n%u-%s", node_id, run_id);
    assert(n > 0);
    for (char *c = ret; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL)
            *c = '_';
}

/* ---- the agent ---- */

static bool remove_old(int dir, const char *name, void *arg) {
    const time_t *now = arg;
    struct stat st;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return false;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtime < *now - OLD_S)
        (void)unlinkat(dir, name, 0);
    return true;
}

static void sweep(int dir) {
    time_t now = (time_t)(clock_wall_ns() / NS_PER_S);
    sweep_dir(fcntl(dir, F_DUPFD_CLOEXEC, 0), clock_now_ns() + SWEEP_NS, remove_old, &now);
}

/* The file appears under its name with the lock, so nobody takes a late start for a crash. */
static int make(int dir, const char *name, int *ret_fd) {
    char unfinished[64];
    (void)snprintf(unfinished, sizeof unfinished, UNFINISHED "%d", getpid());
    (void)unlinkat(dir, unfinished, 0);
    int fd = openat(dir, unfinished, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || renameat(dir, unfinished, dir, name) < 0) {
        int r = -errno;
        (void)unlinkat(dir, unfinished, 0);
        (void)close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

int hold_claim(const char *name, int *ret_fd, struct err *err) {
    char path[REGISTRY_PATH_MAX];
    int dir;
    int r = registry_dir_open(&dir, path, err);
    if (r < 0)
        return r;
    sweep(dir);
    r = make(dir, name, ret_fd);
    (void)close(dir);
    if (r < 0)
        return err_set(err, r, "can't make %s/%s, by which the other tasks of this node wait: %s",
                       path, name, strerror(-r));
    return 0;
}

void hold_tell(int fd, int status) {
    if (fd < 0)
        return;
    char line[32];
    int n = snprintf(line, sizeof line, "status %d\n", status);
    (void)!write(fd, line, (size_t)n); /* if it fails, the others report that none was left */
    (void)close(fd);
}

/* ---- the others ---- */

static void ignore_signals(void) {
    for (int signo = 1; signo < NSIG; signo++)
        if (signo != SIGCHLD && signo != SIGCONT && signo != SIGTSTP)
            (void)signal(signo, SIG_IGN); /* fails for KILL, STOP and glibc's own two */
}

struct holder {
    const char *name;
    char path[REGISTRY_PATH_MAX];
    int dir, events, fd; /* -1: none */
    uint32_t n_others;
};

/* Until something has changed in the run directory, or for a moment. */
static void wait_for_change(const struct holder *h) {
    struct pollfd p = {.fd = h->events, .events = POLLIN};
    char drained[4096];
    if (poll(&p, 1, LOOK_MS) > 0)
        while (read(h->events, drained, sizeof drained) > 0)
            ;
}

static bool find_file(struct holder *h, uint64_t until_ns) {
    do {
        h->fd = openat(h->dir, h->name, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
        if (h->fd >= 0)
            return true;
        wait_for_change(h);
    } while (clock_now_ns() < until_ns);
    return false;
}

static void read_content(const struct holder *h, char ret[CONTENT_MAX]) {
    ssize_t n = pread(h->fd, ret, CONTENT_MAX - 1, 0);
    ret[MAX2(n, 0)] = '\0';
}

/* The agent's status; -1: it has left none yet. */
static int status_in(const char *content) {
    static const char word[] = "status ";
    uint32_t status;
    const char *line = strstr(content, word);
    const char *end = line != NULL ? strchr(line, '\n') : NULL;
    if (end == NULL)
        return -1;
    _cleanup_(freep) char *number =
        xstrndup(line + strlen(word), (size_t)(end - line) - strlen(word));
    return parse_u32(number, &status) == 0 && status <= UINT8_MAX ? (int)status : -1;
}

/* The lock ends with the last of the agent's processes, its guardian: then nothing of the job is
 * left on this node that srun could kill because a task has ended. */
static int wait_for_status(const struct holder *h, char content[CONTENT_MAX]) {
    while (flock(h->fd, LOCK_SH) < 0 && errno == EINTR)
        ;
    read_content(h, content);
    return status_in(content);
}

static void leave(const struct holder *h, char content[CONTENT_MAX]) {
    uint32_t n = 0;
    if (write(h->fd, LEFT, strlen(LEFT)) != (ssize_t)strlen(LEFT))
        return;
    read_content(h, content);
    for (const char *c = strstr(content, LEFT); c != NULL; c = strstr(c + 1, LEFT))
        n++;
    if (n >= h->n_others)
        (void)unlinkat(h->dir, h->name, 0);
}

static int hold(struct holder *h, uint64_t start_ns) {
    struct err err = {0};
    if (registry_dir_open(&h->dir, h->path, &err) < 0) {
        log_error("%s", err.text);
        return HOLD_EXIT_LOST;
    }
    h->events = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (h->events >= 0) /* without it, this looks again from time to time */
        (void)inotify_add_watch(h->events, h->path, IN_MOVED_TO | IN_MODIFY);
    if (!find_file(h, clock_now_ns() + start_ns)) {
        log_error("this task waits for the first task of its node, which is muster's agent there, "
                  "but %s/%s did not appear within %.0f s; start one task on each node "
                  "(srun --ntasks-per-node=1), or set MUSTER_RUN_DIR to a folder that the node's "
                  "tasks share",
                  h->path, h->name, (double)start_ns / (double)NS_PER_S);
        return HOLD_EXIT_LOST;
    }
    char content[CONTENT_MAX];
    int status = wait_for_status(h, content);
    leave(h, content);
    if (status >= 0)
        return status;
    log_error("muster's agent on this node, the first task, was killed");
    return HOLD_EXIT_LOST;
}

int hold_wait(const char *name, uint32_t n_others, uint64_t start_ns) {
    struct holder h = {.name = name, .dir = -1, .events = -1, .fd = -1, .n_others = n_others};
    ignore_signals();
    int status = hold(&h, start_ns);
    file_close(&h.fd);
    file_close(&h.events);
    file_close(&h.dir);
    return status;
}
