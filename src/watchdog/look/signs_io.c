#include "watchdog/look/signs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/file.h"
#include "io/process/proc.h"

#define STAT_MAX 512 /* of its text: the name has 16 bytes, each number 20 digits at most */
#define PATH_BYTES 64
/* What a thread wrote is only read if it ran for less than this since the last sample. */
#define WRITES_BELOW_NS (NS_PER_S / 100 * SIGNS_COMPUTES_PERCENT)
#define GAP_NS (3 * NS_PER_S) /* between two rows: of a longer gap, one second counts */

/* ---- one worker ---- */

bool signs_ran(const char *schedstat, uint64_t *ret_ns, uint64_t *ret_turns) {
    return sscanf(schedstat, "%" SCNu64 " %*u %" SCNu64, ret_ns, ret_turns) == 2;
}

bool signs_number(const char *text, const char *name, uint64_t *ret) {
    const char *at = strstr(text, name);
    return at != NULL && sscanf(at + strlen(name), "%" SCNu64, ret) == 1;
}

uint64_t signs_wrote(const char *io) {
    uint64_t bytes, calls;
    bool found = signs_number(io, "wchar: ", &bytes) && signs_number(io, "syscw: ", &calls);
    return found ? bytes + calls + 1 : 0;
}

struct signs_track signs_track_of(uint64_t now_ns) {
    return (struct signs_track){.moved_ns = now_ns, .much_ns = now_ns};
}

static bool runs_little(const struct signs_track *t, const struct worker_tick *tick,
                        uint64_t now_ns) {
    uint64_t ran_ns = tick->ran_ns - t->ran_ns, turns = MAX2(tick->turns - t->turns, SIGNS_TURNS);
    return ran_ns < (now_ns - t->read_ns) / 100 * SIGNS_LITTLE_PERCENT &&
           ran_ns < turns * SIGNS_TURN_NS;
}

void signs_track_add(struct signs_track *t, const struct worker_tick *tick, uint64_t now_ns) {
    bool moved = tick->state == 0;
    if (tick->state != 0) {
        bool ran = t->known && tick->ran_ns - t->ran_ns >= SIGNS_MOVED_NS;
        bool little = !t->known || runs_little(t, tick, now_ns);
        bool wrote = t->wrote != 0 && tick->wrote != 0 && tick->wrote != t->wrote;
        bool received = t->known && t->receives && tick->turns != t->turns;
        t->moved_once |= ran || wrote;
        /* what it used before the first sample was not seen second by second */
        moved = ran || wrote || received || !t->known;
        t->little = little && !wrote ? t->little + 1 : 0;
        if (t->little == 0)
            t->much_ns = now_ns;
        t->wrote = tick->wrote;
        t->hot = ran && tick->ran_ns - t->ran_ns >= (now_ns - t->read_ns) / 2 ? t->hot + 1 : 0;
        t->read_ns = now_ns;
        t->ran_ns = tick->ran_ns;
        t->turns = tick->turns;
        t->known = true;
    }
    if (moved)
        t->moved_ns = now_ns;
    t->flags = (moved ? SIGN_MOVED : 0U) | (tick->state == 'T' ? SIGN_STOPPED : 0U) |
               (tick->state == 't' ? SIGN_TRACED : 0U);
}

/* ---- when rows are sent ---- */

void signs_report_init(struct signs_report *h, uint32_t n, uint32_t first_rank) {
    *h = (struct signs_report){.n = n, .first_rank = first_rank};
    h->workers = xcalloc(MAX2(n, 1u), sizeof *h->workers);
}

void signs_report_fini(struct signs_report *h) {
    free(h->workers);
    *h = (struct signs_report){0};
}

static bool has_ended(const struct worker_signs *row) { return (row->flags & SIGN_ENDED) != 0; }

static bool is_unseen(const struct worker_signs *row) {
    return (row->flags & SIGN_MOVED) != 0 && (row->flags & SIGN_UNSEEN) != 0;
}

/* Counts the time since the last row. */
static void count_time(struct signs_report_worker *w, uint32_t flags, uint64_t alive_ns,
                       uint64_t now_ns) {
    uint64_t passed = w->added_ns == 0 ? 0 : now_ns - w->added_ns;
    w->added_ns = now_ns;
    if (alive_ns != w->alive_ns) {
        w->alive_ns = alive_ns;
        w->lost_ns = 0;
        passed = MIN2(passed, now_ns - alive_ns);
    }
    if ((flags & (SIGN_STOPPED | SIGN_TRACED | SIGN_ASKS | SIGN_HELD)) != 0)
        w->lost_ns += passed;
    else if (passed > GAP_NS)
        w->lost_ns += passed - NS_PER_S;
}

void signs_report_add(struct signs_report *h, struct worker_signs *row,
                      const struct worker_announced *announced, uint64_t now_ns) {
    uint32_t i = row->rank - h->first_rank;
    assert(i < h->n);
    struct signs_report_worker *w = &h->workers[i];
    count_time(w, row->flags, announced->alive_ns, now_ns);
    row->step = announced->step;
    if (!has_ended(row) && announced->limit_ns != 0) {
        row->deadline_ns = announced->limit_ns;
        row->since_announced_ns = announced->since_ns - MIN2(announced->since_ns, w->lost_ns);
        h->late = h->late || row->since_announced_ns > row->deadline_ns;
    }
    w->row = *row;
}

/* In what a leader is sent even if all workers move. */
static bool differ(const struct worker_signs *a, const struct worker_signs *b) {
    return a->deadline_ns != b->deadline_ns || has_ended(a) != has_ended(b) ||
           is_unseen(a) != is_unseen(b);
}

bool signs_report_due(struct signs_report *h, uint64_t still_ns, uint64_t leader) {
    bool wrong = still_ns >= SIGNS_QUIET_NS || h->late, other = leader != h->leader;
    bool news = false, changed = false; /* for another leader; for this one */
    h->late = false;
    if (leader == 0) /* it is sent once there is one */
        return false;
    for (uint32_t i = 0; i < h->n; i++) {
        struct signs_report_worker *w = &h->workers[i];
        news = news || differ(&w->row, &(struct worker_signs){0});
        changed = changed || differ(&w->row, &w->reported);
        w->reported = w->row;
    }
    /* "once more": a leader that believes that some wait needs the row that they don't */
    bool due = wrong || h->reported || changed || (other && news);
    h->leader = leader;
    h->reported = wrong;
    return due;
}

/* ---- the workers of this node ---- */

/* The open files of one main thread. */
struct thread_files {
    int stat_fd, schedstat_fd, io_fd; /* -1: not open */
};

struct signs_worker {
    uint32_t rank;
    pid_t pid;
    bool ended;
    bool gone; /* there is no such process */
    int error; /* of the last sample: why its files, or its child's, could not be opened; 0 */
    struct thread_files files;
    struct signs_track track;
    pid_t child; /* that it waits for; 0: none */
    uint64_t child_start;
    struct thread_files child_files;
    struct signs_track child_track;
    struct signs_found found; /* by the last closer look, as far as it is still true */
    uint64_t changed_ns;      /* when its place was last seen to have changed */
    uint64_t process_ns;      /* CPU time of found.computes at the last sample; 0: not known */
    uint64_t process_read_ns;
    uint64_t used_from_ns; /* CPU time of its main thread when it last moved */
};

struct signs {
    struct signs_worker *workers; /* by rank */
    size_t n;
    /* Higher descriptors are not kept open: they are for pipes and connections. */
    size_t kept_below;
};

struct signs *signs_new(void) {
    struct signs *s = xcalloc(1, sizeof *s);
    s->kept_below = file_limit() / 2;
    return s;
}

static void close_files(struct thread_files *f) {
    file_close(&f->stat_fd);
    file_close(&f->schedstat_fd);
    file_close(&f->io_fd);
}

static void forget_child(struct signs_worker *w) {
    close_files(&w->child_files);
    w->child = 0;
}

static void close_worker(struct signs_worker *w) {
    close_files(&w->files);
    forget_child(w);
}

void signs_free(struct signs *s) {
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n; i++)
        close_worker(&s->workers[i]);
    free(s->workers);
    free(s);
}

static int failure(int error) { return error == ENOENT || error == ESRCH ? -ESRCH : -error; }

static bool is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

/* Those that are not open yet. Without its schedstat, which not every kernel has, a thread that
 * uses a few ms a second would seem to move only now and then. */
static int open_files(pid_t pid, struct thread_files *f) {
    char path[PATH_BYTES];
    if (f->stat_fd >= 0)
        return 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d", (int)pid, (int)pid);
    _cleanup_(file_close) int dir = open(path, O_DIRECTORY | O_CLOEXEC);
    int r = 0;
    if (dir < 0)
        return failure(errno);
    f->stat_fd = openat(dir, "stat", O_RDONLY | O_CLOEXEC);
    if (f->stat_fd < 0) {
        r = failure(errno);
    } else {
        f->schedstat_fd = openat(dir, "schedstat", O_RDONLY | O_CLOEXEC);
        if (f->schedstat_fd < 0 && is_shortage(errno))
            r = -errno;
        f->io_fd = openat(dir, "io", O_RDONLY | O_CLOEXEC);
        if (f->io_fd < 0 && is_shortage(errno))
            r = -errno;
    }
    if (r < 0)
        close_files(f);
    return r;
}

/* After a sample. */
static void leave_files(const struct signs *s, struct thread_files *f) {
    int highest = MAX2(MAX2(f->stat_fd, f->schedstat_fd), f->io_fd);
    if (f->stat_fd >= 0 && (size_t)highest >= s->kept_below)
        close_files(f);
}

static const char *read_file(int fd, char buf[STAT_MAX]) {
    ssize_t n;
    do
        n = pread(fd, buf, STAT_MAX - 1, 0);
    while (n < 0 && errno == EINTR);
    buf[MAX2(n, 0)] = '\0';
    return buf;
}

static bool read_stat(int fd, struct proc_stat *ret) {
    char text[STAT_MAX];
    return proc_parse_stat(read_file(fd, text), ret);
}

static struct worker_tick read_times(struct thread_files *f) {
    char schedstat[STAT_MAX];
    struct worker_tick t = {0};
    struct proc_stat stat;
    if (f->stat_fd < 0 || !read_stat(f->stat_fd, &stat))
        return t;
    t.state = stat.state;
    if (f->schedstat_fd >= 0 &&
        signs_ran(read_file(f->schedstat_fd, schedstat), &t.ran_ns, &t.turns) && t.ran_ns != 0)
        return t;
    /* There is none, or it is always 0: a kernel without CONFIG_SCHED_INFO. */
    t.ran_ns = stat.ran_ns;
    return t;
}

static struct worker_tick read_tick(struct thread_files *f, const struct signs_track *before) {
    char io[STAT_MAX];
    struct worker_tick t = read_times(f);
    if (t.state != 0 && f->io_fd >= 0 && t.ran_ns - before->ran_ns < WRITES_BELOW_NS)
        t.wrote = signs_wrote(read_file(f->io_fd, io));
    return t;
}

static struct signs_worker *find(const struct signs *s, uint32_t rank) {
    for (size_t i = 0; i < s->n; i++)
        if (s->workers[i].rank == rank)
            return &s->workers[i];
    return NULL;
}

static void remove_rank(struct signs *s, uint32_t rank) {
    struct signs_worker *w = find(s, rank);
    if (w == NULL)
        return;
    close_worker(w);
    s->n--;
    memmove(w, w + 1, (size_t)(s->workers + s->n - w) * sizeof *w);
}

int signs_add(struct signs *s, uint32_t rank, pid_t pid, uint64_t now_ns) {
    remove_rank(s, rank);
    if (s->n == SIGNS_WORKERS_MAX)
        return -E2BIG;
    s->workers = xgrow(s->workers, s->n, sizeof *s->workers);
    struct signs_worker *w = &s->workers[s->n++];
    for (; w > s->workers && w[-1].rank > rank; w--)
        *w = w[-1];
    *w = (struct signs_worker){.rank = rank,
                               .pid = pid,
                               .files = {-1, -1, -1},
                               .track = signs_track_of(now_ns),
                               .child_files = {-1, -1, -1}};
    int r = open_files(pid, &w->files);
    leave_files(s, &w->files);
    w->gone = r == -ESRCH;
    w->error = w->gone ? 0 : r;
    signs_track_add(&w->track, &(struct worker_tick){0}, now_ns);
    return r;
}

void signs_ended(struct signs *s, uint32_t rank) {
    struct signs_worker *w = find(s, rank);
    if (w == NULL)
        return;
    close_worker(w);
    w->ended = true;
}

/* Whose movement is the worker's. */
static struct signs_track *mover(struct signs_worker *w) {
    return w->child != 0 ? &w->child_track : &w->track;
}

static void moves_now(struct signs_worker *w, uint64_t now_ns) {
    w->track.flags |= SIGN_MOVED;
    w->track.moved_ns = now_ns;
    w->track.moved_once = true;
}

/* A thread that no longer runs all the time does not spin; nor does one that is not seen. */
static void settle(struct signs_worker *w) {
    if (mover(w)->hot == 0 || w->error != 0)
        w->found.flags &= ~(uint32_t)SIGN_SPINS;
    w->found.polls = w->found.polls && mover(w)->little > 0 && w->error == 0;
    if ((w->found.flags & SIGN_SPINS) != 0 || w->found.polls)
        w->track.flags &= ~(uint32_t)SIGN_MOVED;
    else if ((w->track.flags & SIGN_MOVED) != 0)
        w->found.flags = 0;
}

void signs_put(struct signs *s, uint32_t rank, pid_t pid, const struct signs_found *found,
               uint64_t now_ns) {
    struct signs_worker *w = find(s, rank);
    if (w == NULL || w->pid != pid || w->ended)
        return;
    w->process_ns = w->found.computes == found->computes ? w->process_ns : 0;
    w->found = *found;
    mover(w)->receives = found->receives;
    if (found->polls)
        w->found.since_ns = MAX2(mover(w)->much_ns, w->changed_ns);
    if (w->track.moved_ns > found->before_ns) {
        w->found.flags &= ~(uint32_t)(SIGN_BUSY | SIGN_BYTES);
    } else if (found->changed) {
        w->changed_ns = now_ns;
        moves_now(w, now_ns);
    }
    settle(w);
}

void signs_unseen(struct signs *s) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->workers[i].ended && (s->workers[i].track.flags & SIGN_MOVED) == 0)
            s->workers[i].found.flags |= SIGN_UNSEEN;
}

static bool is_hot(struct signs_worker *w) { return !w->ended && mover(w)->hot >= SIGNS_HOT; }

static bool is_little(struct signs_worker *w) {
    return !w->ended && mover(w)->little >= SIGNS_LITTLE;
}

bool signs_any_odd(const struct signs *s) {
    for (size_t i = 0; i < s->n; i++)
        if (is_hot(&s->workers[i]) || is_little(&s->workers[i]))
            return true;
    return false;
}

/* Another process of the same pid is none. */
static int open_child(struct signs_worker *w) {
    if (w->child_files.stat_fd >= 0)
        return 0;
    struct proc_stat stat;
    int r = open_files(w->child, &w->child_files);
    if (r == 0 && (!read_stat(w->child_files.stat_fd, &stat) || stat.start != w->child_start)) {
        close_files(&w->child_files);
        r = -ESRCH;
    }
    return r;
}

void signs_follow(struct signs *s, uint32_t rank, pid_t pid, pid_t child, uint64_t start) {
    struct signs_worker *w = find(s, rank);
    if (w == NULL || w->pid != pid || w->ended || w->child == child)
        return;
    forget_child(w);
    if (child == 0)
        return;
    w->child = child;
    w->child_start = start;
    w->child_track = signs_track_of(w->track.moved_ns);
    if (open_child(w) == -ESRCH)
        forget_child(w);
    leave_files(s, &w->child_files);
}

struct signs_seen signs_see(const struct signs *s, uint32_t rank) {
    struct signs_worker *w = find(s, rank);
    if (w == NULL)
        return (struct signs_seen){.pid = 0};
    bool odd = w->found.polls || (w->found.flags & SIGN_SPINS) != 0 || w->child != 0;
    bool known = !w->ended && w->track.known;
    return (struct signs_seen){.pid = w->pid,
                               .hot = is_hot(w),
                               .little = is_little(w),
                               .ran_ns = known && !odd ? w->track.ran_ns : 0,
                               .used_ns = known ? w->track.ran_ns - w->used_from_ns : 0};
}

static void sample_child(struct signs *s, struct signs_worker *w, uint64_t now_ns) {
    bool first = !w->child_track.known;
    struct worker_tick tick = {0};
    int r = open_child(w);
    if (r == 0)
        tick = read_tick(&w->child_files, &w->child_track);
    leave_files(s, &w->child_files);
    if (r < 0 && r != -ESRCH) {
        w->error = r;
    } else if (tick.state == 0 || tick.state == 'Z') {
        forget_child(w);
        return;
    } else {
        signs_track_add(&w->child_track, &tick, now_ns);
        w->track.flags |= w->child_track.flags & (SIGN_STOPPED | SIGN_TRACED);
        if (first || (w->child_track.flags & SIGN_MOVED) == 0)
            return;
        w->track.moved_once = true;
    }
    w->track.flags |= SIGN_MOVED;
    w->track.moved_ns = now_ns;
}

/* A process that has ended uses none. */
static void sample_process(struct signs_worker *w, uint64_t now_ns) {
    struct proc_stat stat;
    uint64_t before_ns = w->process_ns, passed_ns = now_ns - w->process_read_ns;
    w->process_ns = proc_read_stat(w->found.computes, &stat) ? stat.ran_ns : 0;
    w->process_read_ns = now_ns;
    uint64_t least_ns = passed_ns / 100 * SIGNS_COMPUTES_PERCENT +
                        w->found.idle_ns * (passed_ns / NS_PER_MS) / 1000;
    if (before_ns != 0 && w->process_ns >= before_ns + least_ns)
        moves_now(w, now_ns);
}

static void sample(struct signs *s, struct signs_worker *w, uint64_t now_ns) {
    struct worker_tick tick = {0};
    int r = w->gone ? -ESRCH : open_files(w->pid, &w->files);
    if (r == 0)
        tick = read_tick(&w->files, &w->track);
    leave_files(s, &w->files);
    w->gone = r == -ESRCH;
    w->error = w->gone ? 0 : r;
    signs_track_add(&w->track, &tick, now_ns);
    if (w->child != 0)
        sample_child(s, w, now_ns);
    settle(w);
    if (w->found.computes != 0)
        sample_process(w, now_ns);
    if ((w->track.flags & SIGN_MOVED) != 0)
        w->used_from_ns = w->track.ran_ns;
}

void signs_sample(struct signs *s, uint64_t now_ns) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->workers[i].ended)
            sample(s, &s->workers[i], now_ns);
}

int signs_error(const struct signs *s) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->workers[i].ended && s->workers[i].error != 0)
            return s->workers[i].error;
    return 0;
}

static uint64_t still_of(const struct signs_worker *w, uint64_t now_ns) {
    bool since = (w->found.flags & SIGN_SPINS) != 0 || w->found.polls;
    bool computes = (w->track.flags & SIGN_MOVED) != 0;
    return now_ns -
           (since && !computes ? MIN2(w->found.since_ns, w->track.moved_ns) : w->track.moved_ns);
}

uint64_t signs_still_ns(const struct signs *s, uint64_t now_ns) {
    uint64_t longest = 0;
    for (size_t i = 0; i < s->n; i++)
        if (!s->workers[i].ended)
            longest = MAX2(longest, still_of(&s->workers[i], now_ns));
    return longest;
}

size_t signs_rows(const struct signs *s, uint64_t now_ns, struct worker_signs *ret, size_t max) {
    size_t n = MIN2(s->n, max);
    for (size_t i = 0; i < n; i++) {
        const struct signs_worker *w = &s->workers[i];
        uint32_t unseen = w->error != 0 ? SIGN_UNSEEN : 0U;
        uint32_t flags = w->track.flags | w->found.flags | unseen;
        ret[i] = (struct worker_signs){.rank = w->rank,
                                       .flags = w->ended ? SIGN_ENDED : flags,
                                       .still_ns = still_of(w, now_ns),
                                       .moved_once = w->track.moved_once};
    }
    return n;
}
