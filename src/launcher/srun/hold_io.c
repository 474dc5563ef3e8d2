#include "launcher/srun/hold_io.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "rendezvous/operate/registry_io.h"

#define PREFIX "hold-"
/* files of killed steps are removed after so long, and for at most so long at a start */
#define OLD_S (24 * 3600)
#define SWEEP_NS (5 * NS_PER_MS)
#define LOOK_MS 50
/* Lines of many runs of a node with many tasks. A longer file is replaced. */
#define CONTENT_MAX 65536
#define FULL (CONTENT_MAX / 2)
#define BEGIN "begin\n"
#define LINE_MAX_LEN 32
/* One that holds has the lock for an instant when an agent has released it. */
#define LOCK_TRIES 200

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

/* -EWOULDBLOCK: processes of the earlier agent are still there. */
static int lock_soon(int fd) {
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (errno != EWOULDBLOCK || i == LOCK_TRIES)
            return -errno;
        (void)poll(NULL, 0, 1);
    }
    return 0;
}

/* An earlier run of this step can have left a file that not all tasks have left: this run uses it,
 * too. Until its line "begin" no task takes it for begun. */
static int open_locked(int dir, const char *name, int *ret_fd) {
    struct stat st;
    *ret_fd = openat(dir, name, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = *ret_fd < 0 ? -errno : lock_soon(*ret_fd);
    if (r == 0 && (fstat(*ret_fd, &st) < 0 || st.st_size > FULL))
        r = -EFBIG;
    if (r < 0)
        file_close(ret_fd);
    return r;
}

int hold_claim(const char *name, int *ret_fd, struct err *err) {
    char path[REGISTRY_PATH_MAX];
    _cleanup_(file_close) int dir = -1;
    int r = registry_dir_open(&dir, path, err);
    if (r < 0)
        return r;
    sweep(dir);
    (void)flock(dir, LOCK_EX); /* see leave() */
    r = open_locked(dir, name, ret_fd);
    if (r < 0 && unlinkat(dir, name, 0) == 0)
        r = open_locked(dir, name, ret_fd);
    if (r == 0 && write(*ret_fd, BEGIN, strlen(BEGIN)) != (ssize_t)strlen(BEGIN)) {
        r = -ENOSPC;
        file_close(ret_fd);
    }
    if (r < 0)
        return err_set(err, r, "can't make %s/%s, by which the other tasks of this node wait: %s",
                       path, name, strerror(-r));
    return 0;
}

void hold_tell(int fd, int status) {
    if (fd < 0)
        return;
    char line[LINE_MAX_LEN];
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
    int dir, fd; /* -1: none */
    uint32_t n_others, me;
    uint32_t run; /* which of the step's runs is ours: so many others have ended for this task */
};

/* What the file says. */
struct said {
    uint32_t begun;  /* runs */
    uint32_t left;   /* how often tasks have left */
    uint32_t mine;   /* how often this one has */
    bool has_status; /* the agent of our run has left one */
    int status;
};

static void read_said(const struct holder *h, struct said *ret) {
    char content[CONTENT_MAX], *rest = content;
    unsigned number;
    ssize_t n = pread(h->fd, content, sizeof content - 1, 0);
    content[MAX2(n, 0)] = '\0';
    *ret = (struct said){0};
    for (char *line; (line = strsep(&rest, "\n")) != NULL && rest != NULL;) {
        if (strcmp(line, "begin") == 0) {
            ret->begun++;
        } else if (sscanf(line, "left %u", &number) == 1) {
            ret->left++;
            ret->mine += number == h->me;
        } else if (ret->begun == h->run + 1 && sscanf(line, "status %u", &number) == 1 &&
                   number <= UINT8_MAX) {
            ret->has_status = true;
            ret->status = (int)number;
        }
    }
}

/* The file, with our run in it. False: it is not there (yet). */
static bool find_run(struct holder *h) {
    struct said said;
    file_close(&h->fd);
    h->fd = openat(h->dir, h->name, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (h->fd < 0)
        return false;
    read_said(h, &said);
    h->run = said.mine;
    return said.begun > h->run;
}

static bool find_file(struct holder *h, uint64_t until_ns) {
    do {
        if (find_run(h))
            return true;
        (void)poll(NULL, 0, LOOK_MS);
    } while (clock_now_ns() < until_ns);
    return false;
}

/* The lock ends with the last of the agent's processes, its guardian: then nothing of the job is
 * left here that srun could kill because a task has ended. The agent's status; -1: it left none. */
static int wait_for_status(const struct holder *h) {
    struct said said;
    read_said(h, &said);
    if (said.begun == h->run + 1) { /* else the next run has begun, so ours is over */
        while (flock(h->fd, LOCK_SH) < 0 && errno == EINTR)
            ;
        (void)flock(h->fd, LOCK_UN);
        read_said(h, &said);
    }
    return said.has_status ? said.status : -1;
}

/* Under the lock of the folder: no agent may begin its run in a file that is about to go. */
static void leave(const struct holder *h) {
    struct said said;
    struct stat ours, named;
    char line[LINE_MAX_LEN];
    int n = snprintf(line, sizeof line, "left %u\n", h->me);
    (void)flock(h->dir, LOCK_EX);
    if (write(h->fd, line, (size_t)n) == n) {
        read_said(h, &said);
        if (said.left >= said.begun * h->n_others && fstat(h->fd, &ours) == 0 &&
            fstatat(h->dir, h->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            ours.st_ino == named.st_ino)
            (void)unlinkat(h->dir, h->name, 0);
    }
    (void)flock(h->dir, LOCK_UN);
}

static int hold(struct holder *h, uint64_t start_ns) {
    struct err err = {0};
    if (registry_dir_open(&h->dir, h->path, &err) < 0) {
        log_error("%s", err.text);
        return HOLD_EXIT_LOST;
    }
    if (!find_file(h, clock_now_ns() + start_ns)) {
        log_error("this task waits for the first task of its node, which is muster's agent there, "
                  "but %s/%s did not appear within %.0f s; start one task on each node, "
                  "or set MUSTER_RUN_DIR to a folder that the node's tasks share",
                  h->path, h->name, (double)start_ns / (double)NS_PER_S);
        return HOLD_EXIT_LOST;
    }
    int status = wait_for_status(h);
    leave(h);
    if (status >= 0)
        return status;
    log_error("muster's agent on this node, the first task, was killed");
    return HOLD_EXIT_LOST;
}

int hold_wait(const char *name, uint32_t n_others, uint32_t me, uint64_t start_ns) {
    struct holder h = {.name = name, .dir = -1, .fd = -1, .n_others = n_others, .me = me};
    ignore_signals();
    int status = hold(&h, start_ns);
    file_close(&h.fd);
    file_close(&h.dir);
    return status;
}
