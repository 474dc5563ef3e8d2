#include "watchdog/look/signs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/process/proc.h"

#define STAT_MAX 512 /* of its text: the name has 16 bytes, each number 20 digits at most */
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

/* The main thread of a process. */
struct thread {
    pid_t pid;      /* 0: none */
    uint64_t start; /* of struct proc_stat; 0: it was not read yet */
    struct signs_track track;
};

struct signs_worker {
    uint32_t rank;
    bool ended;
    int error; /* of the last sample: why its files, or its child's, could not be read; 0 */
    struct thread own;
    struct thread child;      /* that it waits for */
    struct signs_found found; /* by the last closer look, as far as it is still true */
    uint64_t changed_ns;      /* when its place was last seen to have changed */
    uint64_t process_ns;      /* CPU time of found.computes at the last sample; 0: not known */
    uint64_t process_read_ns;
    uint64_t used_from_ns; /* CPU time of its main thread when it last moved */
};

struct signs {
    struct signs_worker *workers; /* by rank */
    size_t n;
};

struct signs *signs_new(void) {
    return xcalloc(1, sizeof(struct signs));
}

void signs_free(struct signs *s) {
    if (s != NULL)
        free(s->workers);
    free(s);
}

/* A text that ends with a NUL; "" if it can't be read. */
static int read_file(pid_t pid, const char *name, char buf[STAT_MAX]) {
    char path[PROC_PATH_MAX];
    (void)snprintf(path, sizeof path, "/task/%d/%s", (int)pid, name);
    ssize_t n = proc_read(pid, path, buf, STAT_MAX - 1);
    buf[MAX2(n, 0)] = '\0';
    return n >= 0 ? 0 : errno == ENOENT || errno == ESRCH ? -ESRCH : -errno;
}

/* -ESRCH: it has ended; the pid can be that of another process by now. */
static int read_tick(struct thread *t, struct worker_tick *ret) {
    char text[STAT_MAX];
    struct proc_stat stat;
    int r = read_file(t->pid, "stat", text);
    if (r == 0 && (!proc_parse_stat(text, &stat) || (t->start != 0 && stat.start != t->start)))
        r = -ESRCH;
    if (r < 0)
        return r;
    t->start = stat.start;
    *ret = (struct worker_tick){.state = stat.state};
    /* There is none, or it is always 0: a kernel without CONFIG_SCHED_INFO. */
    if (read_file(t->pid, "schedstat", text) < 0 || !signs_ran(text, &ret->ran_ns, &ret->turns) ||
        ret->ran_ns == 0)
        ret->ran_ns = stat.ran_ns;
    if (ret->ran_ns - t->track.ran_ns < WRITES_BELOW_NS && read_file(t->pid, "io", text) == 0)
        ret->wrote = signs_wrote(text);
    return 0;
}

static struct signs_worker *find(const struct signs *s, uint32_t rank) {
    for (size_t i = 0; i < s->n; i++)
        if (s->workers[i].rank == rank)
            return &s->workers[i];
    return NULL;
}

int signs_add(struct signs *s, uint32_t rank, pid_t pid, uint64_t now_ns) {
    if (s->n == SIGNS_WORKERS_MAX)
        return -E2BIG;
    s->workers = xgrow(s->workers, s->n, sizeof *s->workers);
    struct signs_worker *w = &s->workers[s->n++];
    for (; w > s->workers && w[-1].rank > rank; w--)
        *w = w[-1];
    *w = (struct signs_worker){.rank = rank, .own = {.pid = pid, .track = signs_track_of(now_ns)}};
    int r = read_tick(&w->own, &(struct worker_tick){0});
    w->error = r == -ESRCH ? 0 : r;
    signs_track_add(&w->own.track, &(struct worker_tick){0}, now_ns);
    return r;
}

void signs_ended(struct signs *s, uint32_t rank) {
    struct signs_worker *w = find(s, rank);
    if (w != NULL)
        w->ended = true;
}

/* Whose movement is the worker's. */
static struct signs_track *mover(struct signs_worker *w) {
    return w->child.pid != 0 ? &w->child.track : &w->own.track;
}

static void moves_now(struct signs_worker *w, uint64_t now_ns) {
    w->own.track.flags |= SIGN_MOVED;
    w->own.track.moved_ns = now_ns;
    w->own.track.moved_once = true;
}

/* A thread that no longer runs all the time does not spin; nor does one that is not seen. */
static void settle(struct signs_worker *w) {
    if (mover(w)->hot == 0 || w->error != 0)
        w->found.flags &= ~(uint32_t)SIGN_SPINS;
    w->found.polls = w->found.polls && mover(w)->little > 0 && w->error == 0;
    if ((w->found.flags & SIGN_SPINS) != 0 || w->found.polls)
        w->own.track.flags &= ~(uint32_t)SIGN_MOVED;
    else if ((w->own.track.flags & SIGN_MOVED) != 0)
        w->found.flags = 0;
}

void signs_put(struct signs *s, uint32_t rank, const struct signs_found *found, uint64_t now_ns) {
    struct signs_worker *w = find(s, rank);
    if (w == NULL || w->ended)
        return;
    w->process_ns = w->found.computes == found->computes ? w->process_ns : 0;
    w->found = *found;
    mover(w)->receives = found->receives;
    if (found->polls)
        w->found.since_ns = MAX2(mover(w)->much_ns, w->changed_ns);
    if (w->own.track.moved_ns > found->before_ns) {
        w->found.flags &= ~(uint32_t)(SIGN_BUSY | SIGN_BYTES);
    } else if (found->changed) {
        w->changed_ns = now_ns;
        moves_now(w, now_ns);
    }
    settle(w);
}

void signs_unseen(struct signs *s) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->workers[i].ended && (s->workers[i].own.track.flags & SIGN_MOVED) == 0)
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

void signs_follow(struct signs *s, uint32_t rank, pid_t child, uint64_t start) {
    struct signs_worker *w = find(s, rank);
    if (w != NULL && !w->ended && w->child.pid != child)
        w->child = (struct thread){
            .pid = child, .start = start, .track = signs_track_of(w->own.track.moved_ns)};
}

/* Since when it has not moved. */
static uint64_t since_of(const struct signs_worker *w) {
    bool since = (w->found.flags & SIGN_SPINS) != 0 || w->found.polls;
    bool computes = (w->own.track.flags & SIGN_MOVED) != 0;
    return since && !computes ? MIN2(w->found.since_ns, w->own.track.moved_ns)
                              : w->own.track.moved_ns;
}

struct signs_seen signs_see(const struct signs *s, uint32_t rank) {
    struct signs_worker *w = find(s, rank);
    if (w == NULL)
        return (struct signs_seen){.pid = 0};
    bool spins = (w->found.flags & SIGN_SPINS) != 0,
         odd = w->found.polls || spins || w->child.pid != 0;
    bool known = !w->ended && w->own.track.known;
    return (struct signs_seen){.pid = w->own.pid,
                               .hot = is_hot(w),
                               .little = is_little(w),
                               .spins = !w->ended && spins,
                               .since_ns = since_of(w),
                               .ran_ns = known && !odd ? w->own.track.ran_ns : 0,
                               .used_ns = known ? w->own.track.ran_ns - w->used_from_ns : 0};
}

static void sample_child(struct signs_worker *w, uint64_t now_ns) {
    struct signs_track *t = &w->child.track;
    bool first = !t->known;
    struct worker_tick tick = {0};
    int r = read_tick(&w->child, &tick);
    if (r == -ESRCH || tick.state == 'Z') {
        w->child.pid = 0;
        return;
    }
    if (r < 0) {
        w->error = r;
    } else {
        signs_track_add(t, &tick, now_ns);
        w->own.track.flags |= t->flags & (SIGN_STOPPED | SIGN_TRACED);
        if (first || (t->flags & SIGN_MOVED) == 0)
            return;
        w->own.track.moved_once = true;
    }
    w->own.track.flags |= SIGN_MOVED;
    w->own.track.moved_ns = now_ns;
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

static void sample(struct signs_worker *w, uint64_t now_ns) {
    struct worker_tick tick = {0};
    int r = read_tick(&w->own, &tick);
    w->error = r == -ESRCH ? 0 : r;
    signs_track_add(&w->own.track, &tick, now_ns);
    if (w->child.pid != 0)
        sample_child(w, now_ns);
    settle(w);
    if (w->found.computes != 0)
        sample_process(w, now_ns);
    if ((w->own.track.flags & SIGN_MOVED) != 0)
        w->used_from_ns = w->own.track.ran_ns;
}

void signs_sample(struct signs *s, uint64_t now_ns) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->workers[i].ended)
            sample(&s->workers[i], now_ns);
}

int signs_error(const struct signs *s) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->workers[i].ended && s->workers[i].error != 0)
            return s->workers[i].error;
    return 0;
}

uint64_t signs_still_ns(const struct signs *s, uint64_t now_ns) {
    uint64_t longest = 0;
    for (size_t i = 0; i < s->n; i++)
        if (!s->workers[i].ended)
            longest = MAX2(longest, now_ns - since_of(&s->workers[i]));
    return longest;
}

size_t signs_rows(const struct signs *s, uint64_t now_ns, struct worker_signs *ret, size_t max) {
    size_t n = MIN2(s->n, max);
    for (size_t i = 0; i < n; i++) {
        const struct signs_worker *w = &s->workers[i];
        uint32_t unseen = w->error != 0 ? SIGN_UNSEEN : 0U;
        uint32_t flags = w->own.track.flags | w->found.flags | unseen;
        ret[i] = (struct worker_signs){.rank = w->rank,
                                       .flags = w->ended ? SIGN_ENDED : flags,
                                       .still_ns = now_ns - since_of(w),
                                       .moved_once = w->own.track.moved_once};
    }
    return n;
}
