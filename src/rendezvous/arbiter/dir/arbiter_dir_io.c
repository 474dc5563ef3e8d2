#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "io/process/helper.h"
#include "io/process/helper_call.h"
#include "rendezvous/arbiter/arbiter_record.h"

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
};

static struct arbiter_dir *of(struct arbiter *a) {
    return CONTAINER_OF(a, struct arbiter_dir, arbiter);
}

/* ==== in the child process: the rules of claims ==== */

/* The limit of attempts to claim when the name is taken, but the file can't be seen. */
#define CLAIM_TRIES 3

void arbiter_dir_server_init(struct arbiter_dir_server *s, const char *path, const char *run_id,
                             bool read_only) {
    *s = (struct arbiter_dir_server){.beat = random_u64(), .read_only = read_only};
    arbiter_folder_init(&s->folder, path, run_id, read_only);
}

void arbiter_dir_server_fini(struct arbiter_dir_server *s) { arbiter_folder_fini(&s->folder); }

/* Fails after the deadline: the agent has given this request up, so it must have no effect. */
static int check_time(const struct arbiter_dir_server *s, struct err *err) {
    if (clock_now_ns() < s->deadline_ns)
        return 0;
    return err_set(err, -ETIMEDOUT, "%s: the file system was too slow", s->folder.path);
}

static void remember(struct arbiter_dir_server *s, const struct arbiter_record *record) {
    if (record->epoch < s->memory.epoch)
        return;
    s->memory = (struct arbiter_dir_memory){.epoch = record->epoch,
                                            .leader = record->leader.incarnation,
                                            .device = arbiter_folder_device(&s->folder)};
}

/* It is certainly gone only if the same file system is there; else the arbiter is unreachable. */
static int is_missing(const struct arbiter_dir_server *s, struct err *err) {
    const struct arbiter_folder *f = &s->folder;
    uint32_t epoch = s->memory.epoch;
    uint64_t device = arbiter_folder_device(f);
    if (device != 0 && device == s->memory.device)
        return err_set(err, ARBITER_FOLDER_RUINED, "%s/%s/epoch-%" PRIu32 " was removed", f->path,
                       f->name, epoch);
    return err_set(err, -ENODEV,
                   "%s/%s/epoch-%" PRIu32 " does not exist, and its file system does not either; "
                   "check that it is mounted",
                   f->path, f->name, epoch);
}

/* Where the search begins. An epoch that was seen must be there: else it could be won twice. */
static int first_entry(struct arbiter_dir_server *s, uint32_t from, struct arbiter_entry *ret,
                       struct err *err) {
    from = MAX2(from, s->memory.epoch);
    bool must = from > 0;
    if (!must)
        from = arbiter_folder_hint(&s->folder);
    *ret = (struct arbiter_entry){0};
    int r = from == 0 ? 0 : arbiter_folder_read(&s->folder, from, ret, err);
    if (r < 0)
        return r;
    if (ret->found && from == s->memory.epoch && ret->record.leader.incarnation != s->memory.leader)
        return err_set(err, ARBITER_FOLDER_RUINED,
                       "%s/%s/epoch-%" PRIu32 " was removed, and another job has begun there",
                       s->folder.path, s->folder.name, from);
    if (ret->found)
        return 0;
    if (must && from == s->memory.epoch)
        return is_missing(s, err);
    if (must)
        return err_set(err, -ENOENT, "%s/%s/epoch-%" PRIu32 " is not visible on this node",
                       s->folder.path, s->folder.name, from);
    r = arbiter_folder_highest(&s->folder, &from, err);
    if (r < 0)
        return r;
    return arbiter_folder_read(&s->folder, MAX2(from, UINT32_C(1)), ret, err);
}

/* Follows the marks upwards, or goes one by one where there are none. */
static int find_latest(struct arbiter_dir_server *s, uint32_t from, struct arbiter_record *ret,
                       struct err *err) {
    struct arbiter_entry e, next;
    bool told = false; /* known from a mark only */
    int r = first_entry(s, from, &e, err);
    if (r < 0)
        return r;
    while (e.found) {
        r = check_time(s, err);
        if (r < 0)
            return r;
        if (!told)
            remember(s, &e.record);
        uint32_t up = e.mark.epoch > 0 ? e.mark.epoch : e.record.epoch + 1;
        if (up == 0)
            break;
        r = arbiter_folder_read(&s->folder, up, &next, err);
        if (r < 0)
            return r;
        if (!next.found && e.mark.epoch == 0)
            break;
        told = !next.found; /* its name is not visible yet; the mark has the whole record */
        if (told)
            next = (struct arbiter_entry){.record = e.mark, .found = true};
        e = next;
    }
    *ret = e.record;
    return 0;
}

static int add_beat(struct arbiter_dir_server *s, struct arbiter_record *record, struct err *err) {
    if (record->epoch == 0 || record->closed || record->vacant)
        return 0;
    return arbiter_folder_read_beat(&s->folder, record->epoch, &record->beat, err);
}

/* --- the requests --- */

static int do_read(struct arbiter_dir_server *s, struct arbiter_dir_result *ret, struct err *err) {
    int r = find_latest(s, 0, &ret->record, err);
    if (r == 0)
        r = add_beat(s, &ret->record, err);
    ret->result = ARBITER_OK;
    return r;
}

static int do_beat(struct arbiter_dir_server *s, const struct arbiter_request *q,
                   struct arbiter_dir_result *ret, struct err *err) {
    int r = find_latest(s, q->epoch, &ret->record, err);
    bool ours = r == 0 && arbiter_record_is_of(&ret->record, q->epoch, q->leader.incarnation);
    if (ours)
        r = check_time(s, err);
    if (ours && r == 0)
        r = arbiter_folder_write_beat(&s->folder, q->epoch, false, ++s->beat, err);
    if (r == -ENOSPC || r == -EDQUOT) {
        /* Some file systems need free space to overwrite. A full disk must not end a job, but
         * people should be informed. */
        (void)snprintf(ret->text, sizeof ret->text, "%s", err->text);
        r = 0;
    }
    if (r == 0)
        r = add_beat(s, &ret->record, err);
    ret->result = ARBITER_OK;
    return r;
}

/* In every lower epoch that has no mark yet, the lowest first: all epochs below a marked one are
 * marked, even if this is interrupted. */
static int mark_below(struct arbiter_dir_server *s, const struct arbiter_record *winner,
                      struct err *err) {
    struct arbiter_entry e;
    uint32_t low = winner->epoch;
    for (; low > 1; low--) {
        int r = arbiter_folder_read(&s->folder, low - 1, &e, err);
        if (r == 0)
            r = check_time(s, err);
        if (r == 0 && !e.found)
            r = err_set(err, -ENOENT, "%s/%s/epoch-%" PRIu32 " is not visible on this node",
                        s->folder.path, s->folder.name, low - 1);
        if (r < 0)
            return r;
        if (e.mark.epoch > 0)
            break;
    }
    if (low == winner->epoch)
        return 0;
    for (; low < winner->epoch; low++) {
        int r = arbiter_folder_read(&s->folder, low, &e, err);
        if (r == 0)
            r = check_time(s, err);
        if (r == 0 && e.found && e.mark.epoch == 0)
            r = arbiter_folder_mark(&s->folder, &e, winner, err);
        if (r < 0)
            return r;
    }
    return arbiter_folder_sync(&s->folder, err);
}

/* Makes a record valid, whether it was linked now or by an earlier attempt. */
static int settle(struct arbiter_dir_server *s, const struct arbiter_record *winner,
                  struct arbiter_dir_result *ret, struct err *err) {
    int r = mark_below(s, winner, err);
    if (r < 0)
        return r;
    if (arbiter_folder_hint(&s->folder) < winner->epoch)
        arbiter_folder_set_hint(&s->folder, winner->epoch);
    remember(s, winner);
    ret->record = *winner;
    ret->result = ARBITER_OK;
    r = add_beat(s, &ret->record, err);
    return r < 0 ? r : check_time(s, err);
}

/* 0: the record was written as a new file; -EEXIST (no sentence): the name is taken. */
static int put(struct arbiter_dir_server *s, const struct arbiter_record *record, struct err *err) {
    int r = arbiter_folder_prepare(&s->folder, record, err);
    if (r < 0)
        return r;
    /* Before the epoch, so that no reader misses the beat file and caches its absence. */
    if (!record->closed && !record->vacant)
        r = arbiter_folder_write_beat(&s->folder, record->epoch, true, 0, err);
    if (r == 0)
        r = check_time(s, err);
    if (r < 0) {
        arbiter_folder_unprepare(&s->folder, record->epoch);
        return r;
    }
    r = arbiter_folder_link(&s->folder, record->epoch, err);
    return r < 0 ? r : check_time(s, err);
}

/* Epochs have no gaps, because each reader searches for the one after the last that it knows. */
static int put_after(struct arbiter_dir_server *s, uint32_t latest,
                     const struct arbiter_record *record, struct err *err) {
    if (record->epoch == latest + 1)
        return put(s, record, err);
    return err_set(err, -EINVAL,
                   "%s/%s/epoch-%" PRIu32 " cannot be created: the latest file is epoch-%" PRIu32,
                   s->folder.path, s->folder.name, record->epoch, latest);
}

static int lost_to(struct arbiter_dir_server *s, const struct arbiter_record *winner,
                   struct arbiter_dir_result *ret, struct err *err) {
    ret->record = *winner;
    ret->result = ARBITER_LOST;
    return add_beat(s, &ret->record, err);
}

static int do_write(struct arbiter_dir_server *s, const struct arbiter_request *q,
                    struct arbiter_dir_result *ret, struct err *err) {
    struct arbiter_record now, mine = {0};
    for (int i = 0; i < CLAIM_TRIES; i++) {
        int r = find_latest(s, 0, &now, err);
        if (r == 0)
            r = arbiter_decide(q, &now, &ret->result, &mine, err);
        if (r < 0)
            return r;
        if (r == 0)
            return ret->result == ARBITER_OK ? settle(s, &now, ret, err)
                                             : lost_to(s, &now, ret, err);
        r = put_after(s, now.epoch, &mine, err);
        if (r == 0)
            return settle(s, &mine, ret, err);
        if (r != -EEXIST)
            return r;
    }
    return err_set(err, -EAGAIN, "%s/%s/epoch-%" PRIu32 " exists, but cannot be read yet",
                   s->folder.path, s->folder.name, mine.epoch);
}

/* Does not create the folder again if it has been there before. */
static int open_folder(struct arbiter_dir_server *s, struct err *err) {
    bool known = s->memory.epoch > 0;
    s->folder.read_only = s->read_only || known;
    int r = arbiter_folder_open(&s->folder, err);
    bool missing = r == -ENOENT || r == -ENOTDIR || r == ARBITER_FOLDER_E_NONE;
    return known && missing ? is_missing(s, err) : r;
}

static int do_request(struct arbiter_dir_server *s, const struct arbiter_request *q,
                      struct arbiter_dir_result *ret, struct err *err) {
    int r = check_time(s, err);
    if (r == 0 && s->read_only && q->kind != ARBITER_READ)
        r = err_set(err, -EROFS, "%s: this process may only read it", s->folder.path);
    if (r == 0)
        r = open_folder(s, err);
    ret->result = ARBITER_OK;
    if (r < 0 || r == ARBITER_FOLDER_E_NONE)
        return MIN2(r, 0); /* no folder: no agent has led yet */
    switch (q->kind) {
    case ARBITER_READ: return do_read(s, ret, err);
    case ARBITER_BEAT: return do_beat(s, q, ret, err);
    case ARBITER_CLAIM:
    case ARBITER_CLOSE:
    case ARBITER_VACATE: return do_write(s, q, ret, err);
    case ARBITER_KIND_COUNT: break;
    }
    assert_not_reached();
}

/* Finds a record that others have written in place of the lost data. */
static void look_anew(struct arbiter_dir_server *s, struct arbiter_record *ret) {
    struct arbiter_dir_memory memory = s->memory;
    s->memory = (struct arbiter_dir_memory){0};
    *ret = (struct arbiter_record){0};
    bool found = s->folder.fd >= 0 && find_latest(s, 0, ret, NULL) == 0;
    if (!found || ret->leader.incarnation == memory.leader)
        *ret = (struct arbiter_record){0};
    s->memory = memory;
}

void arbiter_dir_serve(struct arbiter_dir_server *s, const struct arbiter_dir_task *task,
                       struct arbiter_dir_result *ret) {
    struct err err = {0};
    *ret = (struct arbiter_dir_result){.seq = task->seq};
    s->deadline_ns = task->deadline_ns;
    s->folder.asker = task->request.leader.incarnation;
    if (task->memory.epoch > s->memory.epoch)
        s->memory = task->memory;
    int r = do_request(s, &task->request, ret, &err);
    ret->record = r == 0 ? ret->record : (struct arbiter_record){0};
    if (r == ARBITER_FOLDER_RUINED)
        look_anew(s, &ret->record);
    arbiter_folder_close(&s->folder);
    ret->memory = s->memory;
    if (r == 0)
        return;
    ret->result = r == ARBITER_FOLDER_RUINED ? ARBITER_RUINED : ARBITER_UNREACHABLE;
    (void)snprintf(ret->text, sizeof ret->text, "%s",
                   err.text[0] != '\0' ? err.text : strerror(-r));
}

/* A helper_fn. Ends when the other end of fd is closed. */
static int run_child(int fd, void *arg) {
    const struct arbiter_dir *d = arg;
    (void)umask(0077);
    struct arbiter_dir_server server;
    arbiter_dir_server_init(&server, d->path, d->run_id, d->read_only);
    for (;;) {
        struct arbiter_dir_task task;
        struct arbiter_dir_result result;
        ssize_t n = recv(fd, &task, sizeof task, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof task)
            return n == 0 ? 0 : 1;
        arbiter_dir_serve(&server, &task, &result);
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
    if (r == 0)
        r = loop_watch_new(d->loop, d->fd, LOOP_READ, LOOP_PRIO_LEASE, on_result, d, &d->watch);
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

/* Blocks for at most timeout_ns. 0: there is an answer. The caller wipes *ret. */
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
