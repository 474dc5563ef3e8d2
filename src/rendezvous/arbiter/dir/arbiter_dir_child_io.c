#include "rendezvous/arbiter/dir/arbiter_dir_child_io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "io/clock.h"
#include "rendezvous/arbiter/arbiter_record.h"

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

/* --- the current leader --- */

static void remember(struct arbiter_dir_server *s, const struct arbiter_record *record) {
    if (record->epoch < s->memory.epoch)
        return;
    s->memory = (struct arbiter_dir_memory){.epoch = record->epoch,
                                            .leader = record->leader.incarnation,
                                            .device = arbiter_folder_device(&s->folder)};
}

/* Data that was seen there is missing. It is certainly gone only if the same file system is there;
 * if another one or none is mounted, the arbiter counts as unreachable. */
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

/* The entry with which the search begins. An epoch that was seen once must be there: else epochs
 * could be won twice. */
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

/* Finds the record of the latest epoch: follows the marks upwards, or goes one by one where there
 * are none. */
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

/* Adds the beat, for an answer. */
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
        /* Some file systems need free space to overwrite. The leader is known nevertheless, and a
         * full disk must not end a job; but people should be informed. */
        (void)snprintf(ret->text, sizeof ret->text, "%s", err->text);
        r = 0;
    }
    if (r == 0)
        r = add_beat(s, &ret->record, err);
    ret->result = ARBITER_OK;
    return r;
}

/* Writes the current leader's record into every lower epoch that has no mark yet. Starts with the
 * lowest, so that all epochs below a marked one are marked, even if this is interrupted. */
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

/* CLAIM, CLOSE and VACATE. */
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

/* --- the process --- */

int arbiter_dir_child_run(int fd, void *arg) {
    const struct arbiter_dir_child *c = arg;
    (void)umask(0077);
    struct arbiter_dir_server server;
    arbiter_dir_server_init(&server, c->path, c->run_id, c->read_only);
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
