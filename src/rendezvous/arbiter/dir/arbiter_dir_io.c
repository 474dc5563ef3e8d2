#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"
#include "io/clock.h"
#include "io/process/helper.h"
#include "io/process/helper_call.h"
#include "rendezvous/arbiter/dir/arbiter_dir_child_io.h"

#define CHILD_NAME "muster-arbiter"

/* A request that has no answer yet. */
struct ask {
    struct list link;
    uint64_t seq;
    uint64_t deadline_ns;
    struct arbiter_answer answer; /* the part that is known already */
    arbiter_answer_fn *fn;
    void *arg;
};

struct arbiter_dir {
    struct arbiter arbiter; /* first */
    struct loop *loop;
    char *path, *run_id;
    uint64_t timeout_ns;
    bool read_only;
    struct loop_timer *timer;
    struct list waiting; /* in the order of the requests; the child works on at most one of them */
    struct list ready;   /* answers to be passed on */
    uint32_t n_waiting;
    uint64_t last_seq;
    bool in_callback, doomed; /* telling: inside a callback; doomed: freed by it */

    int fd; /* to the child; -1: no child */
    struct loop_watch *watch;
    struct helper helper;
    uint64_t busy_seq; /* what the child works on; 0: nothing */
    uint64_t busy_since_ns;
    struct arbiter_dir_memory memory; /* what all children have seen */
};

static struct arbiter_dir *of(struct arbiter *a) {
    return CONTAINER_OF(a, struct arbiter_dir, arbiter);
}

/* --- answers --- */

static void update_timer(struct arbiter_dir *d) {
    uint64_t at = TIME_NEVER;
    LIST_FOR_EACH(struct ask, a, &d->waiting, link)
        at = MIN2(at, a->deadline_ns);
    loop_timer_set(d->timer, list_empty(&d->ready) ? at : clock_now_ns());
}

static void drop(struct ask *a) {
    list_remove(&a->link);
    free(a);
}

/* The answer is known; it will be passed on in the next turn. */
static void answer(struct arbiter_dir *d, struct ask *a, enum arbiter_result result,
                   const char *text) {
    a->answer.result = result;
    (void)snprintf(a->answer.text, sizeof a->answer.text, "%s", text);
    list_remove(&a->link);
    list_append(&d->ready, &a->link);
    d->n_waiting--;
}

static void no_answer(struct arbiter_dir *d, struct ask *a) {
    char text[sizeof a->answer.text];
    uint64_t since = d->busy_seq != 0 ? d->busy_since_ns : a->answer.started_ns;
    (void)snprintf(text, sizeof text, "%s: no answer from the file system for %.1f s", d->path,
                   (double)(clock_now_ns() - MIN2(since, a->answer.started_ns)) / 1e9);
    answer(d, a, ARBITER_UNREACHABLE, text);
}

static struct ask *find_ask(const struct arbiter_dir *d, uint64_t seq) {
    LIST_FOR_EACH(struct ask, a, &d->waiting, link)
        if (a->seq == seq)
            return a;
    return NULL;
}

/* --- the child --- */

/* Its work can be interrupted safely at any point: the files are designed for that. */
static void end_child(struct arbiter_dir *d) {
    loop_watch_free(d->watch);
    d->watch = NULL;
    if (d->fd >= 0)
        (void)close(d->fd);
    d->fd = -1;
    d->busy_seq = 0;
    helper_end(&d->helper);
}

static void dispatch(struct arbiter_dir *d);
static void dir_free(struct arbiter *arbiter);

/* Passes on the known answers. Requests that are made meanwhile are answered in a later turn. */
static void report(struct arbiter_dir *d) {
    uint64_t last = d->last_seq;
    d->in_callback = true;
    for (;;) {
        struct ask *a = LIST_FIRST(struct ask, &d->ready, link);
        if (a == NULL || a->seq > last)
            break;
        list_remove(&a->link);
        a->fn(a->arg, &a->answer);
        free(a);
    }
    d->in_callback = false;
    if (d->doomed)
        dir_free(&d->arbiter);
    else
        update_timer(d);
}

/* The child has died, or has sent an invalid message. */
static void child_lost(struct arbiter_dir *d) {
    char text[sizeof((struct arbiter_answer *)0)->text];
    struct ask *a = find_ask(d, d->busy_seq);
    end_child(d);
    (void)snprintf(text, sizeof text, "%s: the process that works on it has died", d->path);
    if (a != NULL)
        answer(d, a, ARBITER_UNREACHABLE, text);
    dispatch(d);
}

static void on_result(void *arg, int fd, unsigned events) {
    (void)events;
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
    d->busy_seq = 0;
    d->memory = result.memory;
    struct ask *a = find_ask(d, result.seq);
    if (a != NULL && clock_now_ns() >= a->deadline_ns) {
        d->busy_seq = result.seq; /* for the text */
        no_answer(d, a);
        d->busy_seq = 0;
    } else if (a != NULL) {
        a->answer.record = result.record;
        answer(d, a, result.result, result.text);
    }
    dispatch(d);
    report(d);
}

static int start_child(struct arbiter_dir *d) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    d->fd = ends[0];
    int r = fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
    if (r == 0)
        r = loop_watch_new(d->loop, d->fd, LOOP_READ, LOOP_PRIO_LEASE, on_result, d, &d->watch);
    struct arbiter_dir_child work = {d->path, d->run_id, d->read_only};
    if (r == 0)
        r = helper_start(d->loop, CHILD_NAME, arbiter_dir_child_run, &work, ends[1], &d->helper);
    (void)close(ends[1]);
    if (r < 0)
        end_child(d);
    return r;
}

static int send_task(struct arbiter_dir *d, const struct ask *a) {
    int r = d->fd >= 0 ? 0 : start_child(d);
    if (r < 0)
        return r;
    struct arbiter_dir_task task = {
        .seq = a->seq,
        .memory = d->memory,
        .deadline_ns = a->deadline_ns,
        .request = a->answer.request,
    };
    /* It has answered all earlier requests, so there is room. */
    ssize_t n = send(d->fd, &task, sizeof task, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n != (ssize_t)sizeof task) {
        r = n < 0 ? -errno : -EIO;
        end_child(d);
        return r;
    }
    d->busy_seq = a->seq;
    d->busy_since_ns = clock_now_ns();
    return 0;
}

/* Gives the child its next request, if it is free. */
static void dispatch(struct arbiter_dir *d) {
    while (d->busy_seq == 0 && !list_empty(&d->waiting)) {
        struct ask *a = LIST_FIRST(struct ask, &d->waiting, link);
        /* A child that died between two requests is replaced now. */
        int r = send_task(d, a);
        if (r == -EPIPE || r == -ECONNRESET)
            r = send_task(d, a);
        if (r == 0)
            break;
        char text[sizeof a->answer.text];
        (void)snprintf(text, sizeof text, "%s: cannot start a process to work on it: %s", d->path,
                       strerror(-r));
        answer(d, a, ARBITER_UNREACHABLE, text);
    }
    update_timer(d);
}

/* --- the arbiter --- */

static void dir_ask(struct arbiter *arbiter, const struct arbiter_request *request,
                    arbiter_answer_fn *fn, void *arg) {
    struct arbiter_dir *d = of(arbiter);
    assert(request->kind > 0 && request->kind < ARBITER_KIND_COUNT);
    struct ask *a = xcalloc(1, sizeof *a);
    uint64_t now = clock_now_ns();
    a->seq = ++d->last_seq;
    a->answer.request = *request;
    a->answer.started_ns = now;
    a->deadline_ns = now + d->timeout_ns;
    a->fn = fn;
    a->arg = arg;
    list_append(&d->waiting, &a->link);
    d->n_waiting++;
    if (d->n_waiting > ARBITER_REQUESTS_MAX) {
        char text[sizeof a->answer.text];
        (void)snprintf(text, sizeof text, "%s: %d requests are waiting for the file system",
                       d->path, ARBITER_REQUESTS_MAX);
        answer(d, a, ARBITER_UNREACHABLE, text);
    }
    dispatch(d);
}

static void drop_all(struct arbiter_dir *d, struct list *asks, const void *arg, bool any) {
    LIST_FOR_EACH(struct ask, a, asks, link) {
        if (!any && a->arg != arg)
            continue;
        d->n_waiting -= asks == &d->waiting;
        drop(a);
    }
}

static void dir_cancel(struct arbiter *arbiter, void *arg) {
    struct arbiter_dir *d = of(arbiter);
    drop_all(d, &d->waiting, arg, false);
    drop_all(d, &d->ready, arg, false);
    update_timer(d);
}

static void dir_free(struct arbiter *arbiter) {
    struct arbiter_dir *d = of(arbiter);
    drop_all(d, &d->waiting, NULL, true);
    drop_all(d, &d->ready, NULL, true);
    d->doomed = true;
    if (d->in_callback)
        return;
    end_child(d);
    loop_timer_free(d->timer);
    free(d->path);
    free(d->run_id);
    free(d);
}

static void on_timer(void *arg) {
    struct arbiter_dir *d = arg;
    uint64_t now = clock_now_ns();
    LIST_FOR_EACH(struct ask, a, &d->waiting, link)
        if (a->deadline_ns <= now)
            no_answer(d, a);
    report(d);
}

static const struct arbiter_ops dir_ops = {.ask = dir_ask, .cancel = dir_cancel, .free = dir_free};

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
        .arbiter.ops = &dir_ops,
        .loop = loop,
        .timeout_ns = config->timeout_ns != 0 ? config->timeout_ns : ARBITER_TIMEOUT_NS,
        .read_only = config->read_only,
        .fd = -1,
        .helper = HELPER_INIT,
    };
    list_init(&d->waiting);
    list_init(&d->ready);
    d->timer = loop_timer_new(loop, on_timer, d);
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

/* What a helper is asked about the job's folder, and what it answers. */
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
    const char *slash = strrchr(path, '/');
    _cleanup_(freep) char *parent =
        slash == NULL ? xstrdup(".") : xstrndup(path, MAX2((size_t)(slash - path), (size_t)1));
    return access(parent, F_OK) == 0;
}

/* Missing names are cached by network file systems, so ENOENT counts only for the parent. */
static bool is_for_the_user(int r, const char *path) {
    return r == -EPERM || r == -EACCES || r == -ENOTDIR || r == -EROFS || r == -ELOOP ||
           r == -ENAMETOOLONG || (r == -ENOENT && !parent_is_there(path));
}

static int look_at_folder(int fd, void *arg) {
    const struct folder_question *q = arg;
    struct arbiter_folder folder;
    struct folder_answer a = {0};
    arbiter_folder_init(&folder, q->path, q->run_id, q->read_only);
    a.outcome = arbiter_folder_open(&folder, &a.err);
    if (a.outcome == 0 && q->wants_key)
        a.outcome = arbiter_folder_key(&folder, a.secret, &a.err);
    if (!q->wants_key && !is_for_the_user(a.outcome, q->path))
        a.outcome = 0;
    if (a.outcome == ARBITER_FOLDER_E_NONE || (a.outcome == -ENOENT && q->read_only))
        a.outcome = ARBITER_DIR_E_NO_KEY;
    arbiter_folder_fini(&folder);
    return helper_send(fd, &a, sizeof a) ? 0 : 1;
}

/* Asks in a process of its own; blocks for at most timeout_ns. Returns 0 if there is an answer. The
 * caller wipes *ret. */
static int ask_about_folder(struct folder_question *q, uint64_t timeout_ns,
                            struct folder_answer *ret, struct err *err) {
    struct helper_call_config config = {.name = CHILD_NAME,
                                        .run = look_at_folder,
                                        .arg = q,
                                        .timeout_ns = timeout_ns,
                                        .max_bytes = sizeof *ret};
    struct helper_call *call;
    struct helper_answer answer;
    int r = helper_call_new(NULL, &config, NULL, NULL, &call);
    if (r < 0)
        return err_set(err, r, "%s: cannot start a process to work on it: %s", q->path,
                       strerror(-r));
    helper_call_wait(call, &answer);
    if (answer.len == sizeof *ret) {
        memcpy(ret, answer.data, sizeof *ret);
        explicit_bzero((char *)(uintptr_t)answer.data, answer.len);
    } else {
        r = err_set(err, answer.code == -ETIMEDOUT ? -ETIMEDOUT : -EIO,
                    "%s: no answer from the file system for %.1f s", q->path,
                    (double)timeout_ns / 1e9);
    }
    helper_call_free(call);
    return r;
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
