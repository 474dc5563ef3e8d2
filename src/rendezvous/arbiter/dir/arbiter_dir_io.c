#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/helper_call.h"

#define CHILD_NAME "muster-arbiter"

struct arbiter_dir {
    struct arbiter arbiter; /* first */
    struct loop *loop;
    char *path, *run_id;
    bool read_only;

    int fd; /* to the child; -1: no child */
    struct loop_watch *watch;
    struct helper helper;
    uint64_t last_seq, busy_seq; /* busy: what the child works on; 0: nothing */
    struct arbiter_asked *busy;  /* NULL, too, if its asker is gone */
    uint64_t busy_since_ns;
    struct arbiter_dir_memory memory; /* what all children have seen */
    bool warned;                      /* of a part that failed */
};

static struct arbiter_dir *of(struct arbiter *a) {
    return CONTAINER_OF(a, struct arbiter_dir, arbiter);
}

/* A helper_fn. Ends when the other end of fd is closed. */
static int run_child(int fd, void *arg) {
    const struct arbiter_dir *d = arg;
    (void)umask(0077);
    struct arbiter_folder folder;
    arbiter_folder_init(&folder, d->path, d->run_id, d->read_only);
    for (;;) {
        struct arbiter_dir_task task;
        struct arbiter_dir_result result;
        ssize_t n = recv(fd, &task, sizeof task, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof task)
            return n == 0 ? 0 : 1;
        arbiter_folder_serve(&folder, &task, &result);
        if (send(fd, &result, sizeof result, MSG_NOSIGNAL) != (ssize_t)sizeof result)
            return 1;
    }
}

/* ==== in the agent ==== */

static void unreachable(struct arbiter_dir *d, struct arbiter_asked *q, const char *why) {
    char text[sizeof q->answer.text];
    (void)snprintf(text, sizeof text, "%s: %s", d->path, why);
    if (d->busy == q)
        d->busy = NULL;
    arbiter_done(&d->arbiter, q, ARBITER_UNREACHABLE, text);
}

static void dir_late(struct arbiter *arbiter, struct arbiter_asked *q) {
    struct arbiter_dir *d = of(arbiter);
    char why[128];
    uint64_t since = d->busy_seq != 0 ? d->busy_since_ns : q->answer.started_ns;
    (void)snprintf(why, sizeof why, "no answer from the file system for %.1f s",
                   (double)(clock_now_ns() - MIN2(since, q->answer.started_ns)) / 1e9);
    unreachable(d, q, why);
}

/* The child, if it works on this, is left alone. */
static void dir_gone(struct arbiter *arbiter, struct arbiter_asked *q) {
    struct arbiter_dir *d = of(arbiter);
    if (d->busy == q)
        d->busy = NULL;
}

/* --- the child --- */

/* Its work can be interrupted safely at any point: the files are designed for that. */
static void end_child(struct arbiter_dir *d) {
    loop_watch_free(d->watch);
    d->watch = NULL;
    file_close(&d->fd);
    d->busy_seq = 0;
    d->busy = NULL;
    helper_end(&d->helper);
}

static void dir_work(struct arbiter *arbiter);

/* The child has died, or has sent an invalid message. */
static void child_lost(struct arbiter_dir *d) {
    if (d->busy != NULL)
        unreachable(d, d->busy, "the process that works on it has died");
    end_child(d);
    dir_work(&d->arbiter);
}

static void on_result(void *arg, int fd, unsigned events) {
    struct arbiter_dir *d = arg;
    struct arbiter_dir_result result;
    ssize_t n = recv(fd, &result, sizeof result, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != (ssize_t)sizeof result || result.seq != d->busy_seq || result.result < ARBITER_OK ||
        result.result >= ARBITER_RESULT_COUNT) {
        child_lost(d);
        return;
    }
    d->memory = result.memory;
    if (result.result <= ARBITER_LOST && result.text[0] != '\0' && !d->warned) {
        log_warning("%s", result.text);
        d->warned = true;
    }
    struct arbiter_asked *q = d->busy;
    if (q != NULL && clock_now_ns() >= q->deadline_ns) {
        dir_late(&d->arbiter, q);
    } else if (q != NULL) {
        q->answer.record = result.record;
        arbiter_done(&d->arbiter, q, result.result, result.text);
    }
    d->busy_seq = 0;
    d->busy = NULL;
    dir_work(&d->arbiter);
}

static int start_child(struct arbiter_dir *d) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    d->fd = ends[0];
    int r = fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
    d->watch = loop_watch_new(d->loop, d->fd, LOOP_READ, LOOP_PRIO_LEASE, on_result, d);
    if (r == 0)
        r = helper_start(d->loop, CHILD_NAME, run_child, d, ends[1], &d->helper);
    (void)close(ends[1]);
    if (r < 0)
        end_child(d);
    return r;
}

static int send_task(struct arbiter_dir *d, struct arbiter_asked *q) {
    int r = d->fd >= 0 ? 0 : start_child(d);
    if (r < 0)
        return r;
    struct arbiter_dir_task task = {
        .seq = ++d->last_seq,
        .memory = d->memory,
        .deadline_ns = q->deadline_ns,
        .request = q->answer.request,
    };
    /* It has answered all earlier requests, so there is room. */
    ssize_t n = send(d->fd, &task, sizeof task, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n != (ssize_t)sizeof task) {
        r = n < 0 ? -errno : -EIO;
        end_child(d);
        return r;
    }
    d->busy_seq = task.seq;
    d->busy = q;
    d->busy_since_ns = clock_now_ns();
    return 0;
}

static void dir_work(struct arbiter *arbiter) {
    struct arbiter_dir *d = of(arbiter);
    struct arbiter_asked *q;
    while (d->busy_seq == 0 &&
           (q = LIST_FIRST(struct arbiter_asked, &arbiter->waiting, link)) != NULL) {
        /* A child that died between two requests is replaced now. */
        int r = send_task(d, q);
        if (r == -EPIPE || r == -ECONNRESET)
            r = send_task(d, q);
        if (r == 0)
            break;
        char why[128];
        (void)snprintf(why, sizeof why, "cannot start a process to work on it: %s", strerror(-r));
        unreachable(d, q, why);
    }
}

static void dir_free(struct arbiter *arbiter) {
    struct arbiter_dir *d = of(arbiter);
    end_child(d);
    free(d->path);
    free(d->run_id);
    free(d);
}

static const struct arbiter_ops dir_ops = {
    .work = dir_work, .gone = dir_gone, .late = dir_late, .free = dir_free};

int arbiter_dir_new(struct loop *loop, const struct arbiter_dir_config *config,
                    struct arbiter **ret, struct err *err) {
    size_t len = strlen(config->path), id_len = strlen(config->run_id);
    if (len == 0 || len >= ARBITER_PATH_MAX)
        return err_set(err, -EINVAL,
                       "the shared directory has a path of %zu bytes; 1 to %d are possible", len,
                       ARBITER_PATH_MAX - 1);
    if (id_len == 0 || id_len >= RDZV_RUN_ID_MAX)
        return err_set(err, -EINVAL, "a run id of %zu bytes; 1 to %d are possible", id_len,
                       RDZV_RUN_ID_MAX - 1);
    struct arbiter_dir *d = xcalloc(1, sizeof *d);
    *d = (struct arbiter_dir){
        .loop = loop,
        .read_only = config->read_only,
        .fd = -1,
        .helper = HELPER_INIT,
    };
    arbiter_init(&d->arbiter, &dir_ops, loop, config->timeout_ns);
    d->path = xstrdup(config->path);
    d->run_id = xstrdup(config->run_id);
    *ret = &d->arbiter;
    return 0;
}

pid_t arbiter_dir_child_pid(const struct arbiter *arbiter) {
    const struct arbiter_dir *d = (const struct arbiter_dir *)(const void *)arbiter;
    assert(arbiter->ops == &dir_ops);
    return helper_pid(&d->helper);
}

/* --- before the first request ----------------------------------------------------------------- */

struct folder_question {
    const char *path, *run_id;
    bool read_only;
    bool wants_key; /* else only whether the folder can be used */
};

struct folder_answer {
    int outcome; /* 0, ARBITER_DIR_E_NO_KEY, or a negative errno */
    struct err err;
    uint8_t secret[AUTH_SECRET_BYTES];
};

static bool parent_is_there(const char *path) {
    _cleanup_(freep) char *copy = xstrdup(path);
    return access(dirname(copy), F_OK) == 0;
}

/* Missing names are cached by network file systems, so ENOENT counts only for the parent. */
static bool is_for_the_user(int r, const char *path) {
    return r == -EPERM || r == -EACCES || r == -ENOTDIR || r == -EROFS || r == -ELOOP ||
           r == -ENAMETOOLONG || (r == -ENOENT && !parent_is_there(path));
}

static int examine_folder(int fd, void *arg) {
    const struct folder_question *q = arg;
    _cleanup_(arbiter_folder_fini) struct arbiter_folder folder;
    struct folder_answer a = {0};
    arbiter_folder_init(&folder, q->path, q->run_id, q->read_only);
    a.outcome = arbiter_folder_open(&folder, !q->read_only, &a.err);
    if (a.outcome == 0 && q->wants_key)
        a.outcome = arbiter_folder_key(&folder, a.secret, &a.err);
    if (!q->wants_key && !is_for_the_user(a.outcome, q->path))
        a.outcome = 0;
    if (a.outcome == ARBITER_FOLDER_E_NONE || (a.outcome == -ENOENT && q->read_only))
        a.outcome = ARBITER_DIR_E_NO_KEY;
    return helper_send(fd, &a, sizeof a) ? 0 : 1;
}

/* Blocks for at most timeout_ns. 0: there is an answer. The caller wipes *ret. */
static int ask_about_folder(struct folder_question *q, uint64_t timeout_ns,
                            struct folder_answer *ret, struct err *err) {
    struct helper_call_config config = {.name = CHILD_NAME,
                                        .run = examine_folder,
                                        .arg = q,
                                        .timeout_ns = timeout_ns,
                                        .max_bytes = sizeof *ret};
    int r = helper_ask(&config, ret);
    if (r == -ETIMEDOUT || r == -EIO)
        return err_set(err, r, "%s: no answer from the file system for %.1f s", q->path,
                       (double)timeout_ns / 1e9);
    return r < 0 ? err_set(err, r, "%s: cannot start a process to work on it: %s", q->path,
                           strerror(-r))
                 : 0;
}

int arbiter_dir_check(const char *path, const char *run_id, uint64_t timeout_ns, struct err *err) {
    struct folder_question q = {.path = path, .run_id = run_id};
    struct folder_answer a;
    return ask_about_folder(&q, timeout_ns, &a, NULL) == 0 && a.outcome < 0
               ? err_set(err, a.outcome, "%s", a.err.text)
               : 0;
}

int arbiter_dir_key(const char *path, const char *run_id, bool read_only, uint64_t timeout_ns,
                    uint8_t ret[AUTH_SECRET_BYTES], struct err *err) {
    struct folder_question q = {
        .path = path, .run_id = run_id, .read_only = read_only, .wants_key = true};
    struct folder_answer a;
    int r = ask_about_folder(&q, timeout_ns, &a, err);
    if (r < 0)
        return r;
    if (a.outcome < 0)
        (void)err_set(err, a.outcome, "%s", a.err.text);
    else if (a.outcome == 0)
        memcpy(ret, a.secret, sizeof a.secret);
    explicit_bzero(a.secret, sizeof a.secret);
    return a.outcome;
}
