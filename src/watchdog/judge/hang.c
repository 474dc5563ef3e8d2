#include "watchdog/judge/hang.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A deadline that a worker announces is cut to this: no sum with it can overflow. */
#define DEADLINE_MAX_NS (UINT64_C(10000) * 3600 * NS_PER_S)

/* Times of a worker are of the machine's own clock, which does not always run: see advance(). */
struct hang_worker {
    bool ended;
    bool moves;   /* by the last row, or because there is none */
    bool has_row; /* its node has sent one */
    bool moved_once;
    struct worker_signs row; /* the last; flags 0: none */
    uint64_t row_ns;         /* when, in monotonic time (advance()) */
    uint64_t moved_at;       /* if it does not move: since then */
    uint64_t active_at;      /* when it was last busy, or wrote */
    uint64_t stopped_at;     /* if SIGN_STOPPED */
    uint64_t announced_at;   /* if row.deadline_ns is not 0 */
    uint64_t place;          /* 0: not known; also from evidence */
    uint64_t place_since;
};

/* What the workers do at one moment. */
struct hang_count {
    uint32_t alive, moving, stopped, traced, asking, held, silent, begun;
    uint32_t active;          /* that move, are busy, or write */
    uint32_t spinning;        /* is_spinning() */
    uint32_t announcing;      /* that announced a deadline */
    uint64_t announced_until; /* the last of the deadlines */
    uint64_t first_stopped;   /* when the first of those that are stopped was */
    uint64_t place_longest;   /* the longest wait that ended by itself, of their places */
};

#define PLACES_MAX 256 /* of them, then the one with the shortest wait is forgotten */

/* How long workers have waited at a place of the program, and then continued by themselves: a wait
 * there may be as long again. */
struct places {
    uint32_t n;
    struct {
        uint64_t place;
        uint64_t longest_ns;
    } known[PLACES_MAX];
};

struct hang {
    struct hang_limits limits;
    enum watchdog_state state;
    uint64_t back_ns;          /* by how much the clock of events has gone back so far */
    uint64_t last_ns, tick_ns; /* monotonic: of the last step; when the next look is due */
    uint64_t clock;            /* what counts of the time, ns */
    bool frozen;               /* nothing counts until the next look */
    uint32_t n;
    uint32_t *nodes;               /* owned, n */
    struct hang_worker *workers;   /* owned, n */
    struct hang_suspect *suspects; /* owned, n */
    struct places places;
    uint64_t started_at;
    uint64_t beat_at;   /* the last beat: quiet since */
    uint64_t active_at; /* the last time that anybody moved, was busy or wrote */
    /* since others have waited for a worker that is stopped; TIME_NEVER: they don't */
    uint64_t stopped_wait_at;
    uint64_t withdrawn_at; /* when a worker last ceased to announce deadlines; 0: never */
    uint32_t reports;      /* since the last beat */
    /* monotonic: since when one has waited for a person, or was traced; TIME_NEVER: none
     * does or is */
    uint64_t outside_ns;
    uint32_t outside_reported; /* SIGN_ASKS, SIGN_HELD, SIGN_TRACED: that was reported */
    /* what counts now, for the update */
    enum hang_why why;
    uint64_t limit_ns;
    bool by_place; /* the limit is so long because of the place */
};

/* A wait at this place has ended by itself. */
static void places_learn(struct places *p, uint64_t place, uint64_t waited_ns) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->known[i].place == place) {
            p->known[i].longest_ns = MAX2(p->known[i].longest_ns, waited_ns);
            return;
        }
        if (p->known[i].longest_ns < p->known[at].longest_ns)
            at = i;
    }
    if (p->n < PLACES_MAX)
        at = p->n++;
    else if (p->known[at].longest_ns >= waited_ns)
        return;
    p->known[at].place = place;
    p->known[at].longest_ns = waited_ns;
}

/* The longest wait there; 0: none is known. */
static uint64_t places_longest(const struct places *p, uint64_t place) {
    for (uint32_t i = 0; place != 0 && i < p->n; i++)
        if (p->known[i].place == place)
            return p->known[i].longest_ns;
    return 0;
}

static uint64_t before(uint64_t at, uint64_t ns) { return at > ns ? at - ns : 0; }
static bool is_active_by(uint32_t flags) {
    if ((flags & SIGN_UNSEEN) != 0) /* of what is not seen nothing is concluded */
        return true;
    /* One that spins waits for its GPU. If the links of that are silent, the GPU waits, too. What
     * NCCL's proxy threads use does not count. */
    if ((flags & SIGN_SPINS) != 0 && (flags & SIGN_GPU_SEEN) != 0)
        return (flags & (SIGN_GPU | SIGN_BYTES)) != 0;
    return (flags & (SIGN_SPINS | SIGN_BUSY | SIGN_BYTES | SIGN_GPU)) != 0;
}
/* Whether it counts as moving. */
static bool is_moving(const struct hang *h, const struct hang_worker *w) {
    return w->moves || h->clock - w->moved_at <= HANG_MOVED_NS;
}

/* Whether its main thread runs all the time at an unchanged place: it seems to wait for its GPU. */
static bool is_spinning(const struct hang *h, const struct hang_worker *w) {
    return !is_moving(h, w) && (w->row.flags & (SIGN_SPINS | SIGN_STOPPED)) == SIGN_SPINS;
}

/* ---- text and suspects of a report or a verdict ---- */

/* The highest step that a worker has announced, if another one's is lower; else 0. */
static uint64_t step_ahead(const struct hang *h) {
    uint64_t low = TIME_NEVER, high = 0;
    for (uint32_t r = 0; r < h->n; r++) {
        const struct hang_worker *w = &h->workers[r];
        if (!w->ended && w->row.step != 0) {
            low = MIN2(low, w->row.step);
            high = MAX2(high, w->row.step);
        }
    }
    return low < high ? high : 0;
}

static bool is_active(const struct hang *h, const struct hang_worker *w) {
    return is_moving(h, w) || is_active_by(w->row.flags);
}

static enum hang_sign sign_of(const struct hang *h, const struct hang_worker *w,
                              uint64_t step_ahead_of, bool few_active) {
    bool stopped = (w->row.flags & SIGN_STOPPED) != 0;
    if (w->ended)
        return HANG_SIGN_ENDED;
    if (stopped)
        return HANG_SIGN_STOPPED;
    if (!is_moving(h, w) && (w->row.flags & SIGN_ASKS) != 0)
        return HANG_SIGN_ASKS;
    if (!is_moving(h, w) && (w->row.flags & SIGN_HELD) != 0)
        return HANG_SIGN_HELD;
    if ((w->row.flags & SIGN_TRACED) != 0)
        return HANG_SIGN_TRACED;
    if (w->row.step != 0 && w->row.step < step_ahead_of)
        return HANG_SIGN_BEHIND;
    bool seen = (w->row.flags & SIGN_UNSEEN) == 0;
    if (few_active && seen && is_active(h, w))
        return HANG_SIGN_BUSY;
    return 0;
}

static void find_suspects(struct hang *h, const struct hang_count *c, struct hang_update *ret) {
    uint64_t ahead = step_ahead(h);
    bool few_active = 2 * c->active < c->alive;
    ret->suspects = h->suspects;
    for (uint32_t r = 0; r < h->n; r++) {
        enum hang_sign sign = sign_of(h, &h->workers[r], ahead, few_active);
        if (sign != 0)
            h->suspects[ret->n_suspects++] =
                (struct hang_suspect){.rank = r, .node = h->nodes[r], .sign = sign};
    }
}

/* "rank 2", "rank 2 and 3 more". Returns whether it is one. */
static bool put_ranks(uint32_t first, uint32_t n, char *out, size_t size) {
    if (n == 0)
        (void)snprintf(out, size, "others");
    else if (n == 1)
        (void)snprintf(out, size, "rank %" PRIu32, first);
    else
        (void)snprintf(out, size, "rank %" PRIu32 " and %" PRIu32 " more", first, n - 1);
    return n == 1;
}

/* The same: those with this sign. */
static bool name_ranks(const struct hang_update *ret, enum hang_sign sign, char *out, size_t size) {
    uint32_t first = 0, n = 0;
    for (uint32_t i = 0; i < ret->n_suspects; i++) {
        if (ret->suspects[i].sign == sign && n++ == 0)
            first = ret->suspects[i].rank;
    }
    return put_ranks(first, n, out, size);
}

/* The same, of those that are not suspects: of all ranks. */
static bool name_all(const struct hang *h,
                     bool (*is)(const struct hang *h, const struct hang_worker *w), char *out,
                     size_t size) {
    uint32_t first = 0, n = 0;
    for (uint32_t r = 0; r < h->n; r++) {
        const struct hang_worker *w = &h->workers[r];
        if (!w->ended && (w->row.flags & SIGN_UNSEEN) == 0 && is(h, w) && n++ == 0)
            first = r;
    }
    return put_ranks(first, n, out, size);
}

static void write_still(const struct hang *h, const struct hang_count *c, const char *place,
                        struct hang_update *ret) {
    char who[64];
    bool one = name_all(h, is_spinning, who, sizeof who);
    (void)snprintf(ret->text, sizeof ret->text,
                   "nothing has moved for %" PRIu64 " s%s (--hang-still)%s%s%s",
                   (h->clock - MAX2(h->beat_at, h->active_at)) / NS_PER_S, place,
                   c->spinning == 0 ? "" : ": ", c->spinning == 0 ? "" : who,
                   c->spinning == 0 ? ""
                   : one            ? " seems to wait for its GPU, whose links are silent"
                                    : " seem to wait for their GPUs, whose links are silent");
}

static void write_busy(const struct hang *h, const struct hang_count *c, uint64_t quiet,
                       const char *place, struct hang_update *ret) {
    /* If half of the ranks wait for the other half, these are not suspects, but named. */
    char who[64];
    bool one = 2 * c->active == c->alive ? name_all(h, is_active, who, sizeof who)
                                         : name_ranks(ret, HANG_SIGN_BUSY, who, sizeof who);
    bool gpu = 2 * c->spinning > c->alive;
    /* Those that wait for GPUs may count as active. */
    bool others = c->active > 0 && !(gpu && 2 * c->active > c->alive);
    (void)snprintf(ret->text, sizeof ret->text, "%s for %" PRIu64 " s%s%s%s%s (--hang-timeout)",
                   !gpu        ? "most workers have waited"
                   : h->n == 1 ? "the only worker seems to have waited for its GPU"
                               : "most workers seem to have waited for their GPUs",
                   quiet, place, others ? ", while " : "", others ? who : "",
                   !others ? ""
                   : one   ? " was busy"
                           : " were busy");
}

static void write_verdict(const struct hang *h, const struct hang_count *c,
                          struct hang_update *ret) {
    uint64_t quiet = (h->clock - h->beat_at) / NS_PER_S;
    const char *place = h->by_place ? ", three times the longest wait at this place before" : "";
    char who[64];
    bool one;
    switch (h->why) {
    case HANG_WHY_STOPPED:
        one = name_ranks(ret, HANG_SIGN_STOPPED, who, sizeof who);
        (void)snprintf(ret->text, sizeof ret->text,
                       "%s %s stopped (T), and the others have waited for %" PRIu64 " s", who,
                       one ? "is" : "are", quiet);
        break;
    case HANG_WHY_ANNOUNCED:
        (void)snprintf(ret->text, sizeof ret->text,
                       "the announced deadline is over: no step or sign of life, and most workers "
                       "have not moved for %" PRIu64 " s%s (WATCHDOG_USEC= announces more)",
                       quiet, place);
        break;
    case HANG_WHY_STILL: write_still(h, c, place, ret); break;
    case HANG_WHY_BUSY: write_busy(h, c, quiet, place, ret); break;
    case HANG_WHY_NO_BEAT:
        (void)snprintf(ret->text, sizeof ret->text,
                       "most workers have not begun to work in %" PRIu64 " s (--hang-timeout)",
                       quiet);
        break;
    case HANG_WHY_NONE:
    case HANG_WHY_SUSPENDED: assert_not_reached();
    }
}

/* They wait for a person. */
static void write_outside(enum hang_sign sign, const char *verb, const char *what,
                          struct hang_update *ret) {
    char who[64];
    (void)name_ranks(ret, sign, who, sizeof who);
    (void)snprintf(ret->text, sizeof ret->text, "%s %s %s: that does not count as a hang", who,
                   verb, what);
}

static void write_report(struct hang *h, const struct hang_count *c, struct hang_update *ret) {
    find_suspects(h, c, ret);
    ret->spins = ret->hung && c->spinning > 0;
    if (ret->hung) {
        write_verdict(h, c, ret);
    } else if (c->asking > 0) {
        write_outside(HANG_SIGN_ASKS, c->asking == 1 ? "waits" : "wait",
                      "for input, as at a debugger's prompt", ret);
    } else if (c->held > 0) {
        write_outside(HANG_SIGN_HELD, c->held == 1 ? "waits" : "wait",
                      "until the output of the job is read (a pager, a terminal after ^S)", ret);
    } else if (c->traced > 0) {
        write_outside(HANG_SIGN_TRACED, c->traced == 1 ? "is" : "are", "stopped by a debugger (t)",
                      ret);
    } else {
        (void)snprintf(ret->text, sizeof ret->text, "most workers have not moved for %" PRIu64 " s",
                       (h->clock - h->beat_at) / NS_PER_S);
    }
}

/* ---- the state ---- */

/* For each state, the bits of the states that can follow. */
static const unsigned next_states[] = {
    [WATCHDOG_NONE] = 1U << WATCHDOG_NONE | 1U << WATCHDOG_STARTING,
    [WATCHDOG_STARTING] = 1U << WATCHDOG_NONE | 1U << WATCHDOG_OK | 1U << WATCHDOG_HUNG,
    [WATCHDOG_OK] = 1U << WATCHDOG_NONE | 1U << WATCHDOG_QUIET,
    [WATCHDOG_QUIET] = 1U << WATCHDOG_NONE | 1U << WATCHDOG_OK | 1U << WATCHDOG_HUNG,
    [WATCHDOG_HUNG] = 1U << WATCHDOG_NONE | 1U << WATCHDOG_OK,
};

static void move_to(struct hang *h, enum watchdog_state to) {
    assert(next_states[h->state] & 1U << to);
    h->state = to;
}

/* Whether this worker has begun to work. Its node would have spoken of it by now if it had not. */
static bool has_begun(const struct hang *h, const struct hang_worker *w) {
    return w->has_row ? w->moved_once : h->clock - h->started_at >= HANG_FIRST_SIGNS_NS;
}

/* When its deadline is over. A node reports when that of a worker is; while it sends nothing, and
 * the worker moves, it is not. */
static uint64_t announced_until(const struct hang *h, const struct hang_worker *w) {
    bool silent = w->moves && h->last_ns - w->row_ns > HANG_GAP_NS;
    return (silent ? h->clock : w->announced_at) + w->row.deadline_ns;
}

static void count_worker(const struct hang *h, const struct hang_worker *w, struct hang_count *c) {
    bool stopped = (w->row.flags & SIGN_STOPPED) != 0, traced = (w->row.flags & SIGN_TRACED) != 0;
    bool moves = is_moving(h, w), busy = !stopped && is_active_by(w->row.flags);
    c->alive++;
    c->moving += moves;
    c->stopped += stopped;
    c->traced += traced;
    c->asking += !moves && (w->row.flags & SIGN_ASKS) != 0;
    c->held += !moves && (w->row.flags & SIGN_HELD) != 0;
    c->begun += has_begun(h, w);
    c->active += moves || busy;
    c->spinning += is_spinning(h, w);
    /* Its node has more to report: also if it moved in the second in which it was stopped. */
    bool spoken_of = !w->moves || stopped || traced;
    c->silent += spoken_of && h->last_ns - w->row_ns > HANG_SILENT_NS;
    if (stopped)
        c->first_stopped = MIN2(c->first_stopped, w->stopped_at);
    if (w->row.deadline_ns != 0) {
        c->announcing++;
        c->announced_until = MAX2(c->announced_until, announced_until(h, w));
    }
}

static void count_all(struct hang *h, struct hang_count *c) {
    *c = (struct hang_count){.first_stopped = TIME_NEVER};
    h->active_at = h->started_at;
    uint64_t known = 0, longest = 0; /* most workers wait at the same place */
    for (uint32_t r = 0; r < h->n; r++) {
        const struct hang_worker *w = &h->workers[r];
        h->active_at = MAX2(h->active_at, w->active_at);
        if (w->ended)
            continue;
        count_worker(h, w, c);
        h->active_at = MAX2(h->active_at, w->moves ? h->clock : MAX2(w->active_at, w->moved_at));
        if (w->place != known) {
            known = w->place;
            longest = places_longest(&h->places, known);
        }
        c->place_longest = MAX2(c->place_longest, w->place != 0 ? longest : 0);
    }
}

/* Whether more than half of n have moved at this time or later: of those who are alive, or of those
 * of them who are not stopped. */
static bool most_moved_since(const struct hang *h, uint64_t at, uint32_t n, bool stopped_too) {
    uint32_t moved = 0;
    for (uint32_t r = 0; r < h->n; r++) {
        const struct hang_worker *w = &h->workers[r];
        bool counts = !w->ended && (stopped_too || (w->row.flags & SIGN_STOPPED) == 0);
        moved += counts && (w->moves || w->moved_at >= at);
    }
    return 2 * moved > n;
}

/* When more than half of them last moved, between two times. */
static uint64_t last_moved(const struct hang *h, uint64_t low, uint64_t high, uint32_t n,
                           bool stopped_too) {
    while (high > low + NS_PER_MS) {
        uint64_t middle = low + (high - low) / 2;
        if (most_moved_since(h, middle, n, stopped_too))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* When the last beat was. Nodes speak only some time after a worker has ceased to move, so until
 * now beats were taken for granted. */
static uint64_t last_beat(const struct hang *h, uint32_t alive) {
    uint64_t low = MAX2(before(h->beat_at, HANG_FIRST_SIGNS_NS), h->started_at);
    return last_moved(h, low, h->beat_at, alive, true);
}

/* Since when the others wait for those that are stopped: most of the others don't move. */
static void judge_stopped(struct hang *h, const struct hang_count *c) {
    uint32_t others = c->alive - c->stopped;
    if (c->stopped == 0 || 2 * c->moving > others)
        h->stopped_wait_at = TIME_NEVER;
    else if (h->stopped_wait_at == TIME_NEVER)
        h->stopped_wait_at = last_moved(h, MAX2(h->beat_at, before(h->clock, HANG_FIRST_SIGNS_NS)),
                                        h->clock, others, false);
}

static uint64_t longer(struct hang *h, uint64_t limit_ns, const struct hang_count *c) {
    uint64_t by_place = c->place_longest < TIME_NEVER / HANG_PLACE_TIMES
                            ? HANG_PLACE_TIMES * c->place_longest
                            : TIME_NEVER;
    h->by_place = by_place > limit_ns;
    return MAX2(limit_ns, by_place);
}

static uint64_t sum(uint64_t a, uint64_t b) { return b < TIME_NEVER - a ? a + b : TIME_NEVER; }

/* What limit counts, from the last beat on, and why. */
static void choose_limit(struct hang *h, const struct hang_count *c) {
    const struct hang_limits *l = &h->limits;
    h->limit_ns = TIME_NEVER;
    h->by_place = false;
    if (h->stopped_wait_at != TIME_NEVER) {
        uint64_t since = MAX2(MAX2(h->beat_at, c->first_stopped), h->stopped_wait_at);
        h->why = HANG_WHY_STOPPED;
        h->limit_ns = since - h->beat_at + HANG_STOPPED_NS;
        return;
    }
    if (h->state != WATCHDOG_STARTING && c->announcing > 0) {
        /* A worker that no longer announces anything has continued. Others are about to follow. */
        uint64_t until = MAX2(c->announced_until, h->withdrawn_at + HANG_FIRST_SIGNS_NS);
        uint64_t limit = before(until, h->beat_at);
        h->why = HANG_WHY_ANNOUNCED;
        h->limit_ns = longer(h, MAX2(limit, HANG_ANNOUNCED_MIN_NS), c);
        return;
    }
    h->why = h->state == WATCHDOG_STARTING ? HANG_WHY_NO_BEAT : HANG_WHY_BUSY;
    if (l->timeout_ns != 0)
        h->limit_ns = longer(h, l->timeout_ns, c);
    if (h->state == WATCHDOG_STARTING || l->still_ns == 0 || c->active > 0)
        return;
    bool by_place = h->by_place;
    uint64_t since = MAX2(h->beat_at, h->active_at);
    uint64_t still = sum(since - h->beat_at, longer(h, l->still_ns, c));
    if (still <= h->limit_ns) {
        h->why = HANG_WHY_STILL;
        h->limit_ns = still;
    } else {
        h->by_place = by_place;
    }
}

static void on_beat(struct hang *h) {
    h->beat_at = h->clock;
    h->reports = 0;
    h->stopped_wait_at = TIME_NEVER;
    h->why = HANG_WHY_NONE;
    h->limit_ns = TIME_NEVER;
    if (h->state != WATCHDOG_OK)
        move_to(h, WATCHDOG_OK);
}

static bool report_is_due(struct hang *h) {
    uint64_t quiet = h->clock - h->beat_at, first = h->limits.report_ns;
    if (first == 0 || quiet < first)
        return false;
    uint32_t due = quiet >= HANG_REPORT_AGAIN_NS ? 2 : 1;
    bool now = h->reports < due;
    h->reports = MAX2(h->reports, due);
    return now;
}

/* One waits for a person: its prompt may be out of sight, stopping the reader of the output may
 * have had an unexpected effect, and a debugger may be forgotten. */
static bool outside_is_due(struct hang *h, const struct hang_count *c) {
    uint32_t what = c->asking > 0 ? SIGN_ASKS : c->held > 0 ? SIGN_HELD : SIGN_TRACED;
    if (h->outside_ns == TIME_NEVER)
        h->outside_ns = h->last_ns;
    bool now = (h->outside_reported & what) == 0 && h->limits.report_ns != 0 &&
               h->last_ns - h->outside_ns >= h->limits.report_ns;
    h->outside_reported |= now ? what : 0;
    return now;
}

/* It is unknown what happened while all were stopped: nothing is concluded from that time. */
static void suspend(struct hang *h) {
    for (uint32_t r = 0; r < h->n; r++)
        h->workers[r].stopped_at = h->clock;
    h->stopped_wait_at = TIME_NEVER;
    h->why = HANG_WHY_SUSPENDED;
    h->limit_ns = TIME_NEVER;
}

/* Quiet begins again: the others have waited for a person, and not for a rank. */
static void restart_quiet(struct hang *h) {
    h->beat_at = h->clock;
    h->reports = 0;
}

static void judge(struct hang *h, struct hang_update *ret) {
    struct hang_count c;
    count_all(h, &c);
    bool begun = h->state != WATCHDOG_STARTING || 2 * c.begun > c.alive;
    bool outside = c.asking + c.held > 0;
    /* Who looks at a job that hangs knows that it does. */
    bool debugged = c.traced > 0 && h->state != WATCHDOG_HUNG;
    bool suspended = c.alive > 0 && (c.stopped == c.alive || c.traced > 0 || outside);
    h->frozen = suspended || c.silent > 0;
    if (!outside && !debugged)
        h->outside_ns = TIME_NEVER;
    if (c.alive == 0 || (begun && 2 * c.moving > c.alive)) {
        on_beat(h);
        return;
    }
    bool was_ok = h->state == WATCHDOG_OK;
    if (h->state == WATCHDOG_STARTING && begun)
        move_to(h, WATCHDOG_OK);
    if (h->state == WATCHDOG_OK)
        move_to(h, WATCHDOG_QUIET);
    if (was_ok)
        h->beat_at = last_beat(h, c.alive);
    if (suspended) {
        suspend(h);
        if (outside && h->state != WATCHDOG_HUNG)
            restart_quiet(h);
        ret->report_due = (outside || debugged) && outside_is_due(h, &c);
        if (ret->report_due)
            write_report(h, &c, ret);
        return;
    }
    judge_stopped(h, &c);
    choose_limit(h, &c);
    /* Before signs can have arrived, it is unknown whether workers move. */
    bool early = h->clock - h->started_at < HANG_FIRST_SIGNS_NS;
    if (h->state == WATCHDOG_HUNG || c.silent > 0 || early)
        return;
    if (h->clock - h->beat_at >= h->limit_ns) {
        move_to(h, WATCHDOG_HUNG);
        ret->hung = true;
    } else {
        ret->report_due = report_is_due(h);
    }
    if (ret->hung || ret->report_due)
        write_report(h, &c, ret);
}

/* ---- events ---- */

/* Time has passed that was not seen. Who moved before it did so until now: if it waits again, that
 * hides no beat. */
static void moved_until_now(struct hang *h) {
    for (uint32_t r = 0; r < h->n; r++)
        if (h->workers[r].moves)
            h->workers[r].moved_at = h->clock;
}

/* Counts the time since the last step. A gap is time in which this process did not run: it is
 * unknown what the workers did in it, and their rows are still to be read. The time is the
 * event's, plus all by which the clock has gone back: it never does. */
static uint64_t advance(struct hang *h, uint64_t event_ns) {
    uint64_t now_ns = event_ns + h->back_ns, passed = 0;
    if (now_ns < h->last_ns) {
        h->back_ns += h->last_ns - now_ns;
        now_ns = h->last_ns;
        moved_until_now(h);
    }
    passed = now_ns - h->last_ns;
    if (passed > HANG_GAP_NS) {
        passed = HANG_TICK_NS;
        moved_until_now(h);
    }
    if (!h->frozen)
        h->clock += passed;
    h->last_ns = now_ns;
    return now_ns;
}

static void end(struct hang *h) {
    move_to(h, WATCHDOG_NONE);
    h->tick_ns = TIME_NEVER;
    h->why = HANG_WHY_NONE;
    h->limit_ns = TIME_NEVER;
    h->by_place = false;
    h->n = 0;
}

static void start(struct hang *h, const struct hang_event *event, uint64_t now_ns) {
    assert(event->n > 0 && event->n <= HANG_RANKS_MAX);
    end(h);
    h->n = event->n;
    h->nodes = xrealloc(h->nodes, h->n * sizeof *h->nodes);
    h->workers = xrealloc(h->workers, h->n * sizeof *h->workers);
    h->suspects = xrealloc(h->suspects, h->n * sizeof *h->suspects);
    memcpy(h->nodes, event->nodes, h->n * sizeof *h->nodes);
    h->frozen = false;
    h->started_at = h->beat_at = h->active_at = h->clock;
    h->stopped_wait_at = TIME_NEVER;
    h->withdrawn_at = 0;
    h->reports = 0;
    h->outside_ns = TIME_NEVER;
    h->outside_reported = 0;
    for (uint32_t r = 0; r < h->n; r++)
        h->workers[r] = (struct hang_worker){
            .moves = true, .row_ns = now_ns, .moved_at = h->clock, .active_at = h->clock};
    h->tick_ns = now_ns + HANG_TICK_NS;
    move_to(h, WATCHDOG_STARTING);
}

/* Where it waits now. If it waited elsewhere, or moves, that wait has ended by itself. */
static void at_place(struct hang *h, struct hang_worker *w, uint64_t place) {
    if (place == w->place)
        return;
    uint64_t waited = h->clock - w->place_since;
    if (w->place != 0 && waited >= HANG_PLACE_MIN_NS)
        places_learn(&h->places, w->place, waited);
    /* If it was not known where it waited, it was here all the time. */
    w->place_since = w->place == 0 ? w->moved_at : h->clock;
    w->place = place;
}

static void on_announced(struct hang *h, struct hang_worker *w, const struct worker_signs *row) {
    uint64_t at = before(h->clock, row->since_announced_ns);
    if (w->row.deadline_ns != 0 && row->deadline_ns == 0)
        h->withdrawn_at = h->clock;
    /* It can only be later than before, except by time that does not count. */
    w->announced_at = w->row.deadline_ns != 0 ? MAX2(w->announced_at, at) : at;
}

static void on_ended(struct hang *h, struct hang_worker *w) {
    if (!w->ended) /* it has run to its end */
        w->active_at = h->clock;
    w->ended = true;
}

static void on_row(struct hang *h, struct hang_worker *w, const struct worker_signs *row,
                   uint64_t now_ns) {
    bool moved = (row->flags & SIGN_MOVED) != 0;
    uint64_t earliest = w->moves ? before(h->clock, HANG_FIRST_SIGNS_NS) : w->moved_at;
    if (moved)
        w->moved_at = MAX2(w->moved_at, before(h->clock, MIN2(row->still_ns, HANG_TICK_NS)));
    else
        w->moved_at = MAX2(MAX2(earliest, w->moved_at), before(h->clock, row->still_ns));
    if ((row->flags & SIGN_STOPPED) != 0 && (w->row.flags & SIGN_STOPPED) == 0)
        w->stopped_at = w->moves ? w->moved_at : h->clock;
    w->has_row = true;
    w->row_ns = now_ns;
    w->moves = moved;
    w->moved_once |= moved || row->moved_once;
    if ((row->flags & SIGN_STOPPED) == 0 && is_active_by(row->flags))
        w->active_at = h->clock;
    on_announced(h, w, row);
    w->row = *row;
    w->row.flags &= SIGN_ALL;
    w->row.deadline_ns = MIN2(row->deadline_ns, DEADLINE_MAX_NS);
    if ((w->row.flags & SIGN_ENDED) != 0)
        on_ended(h, w);
    if (moved)
        at_place(h, w, 0);
}

static void on_signs(struct hang *h, const struct hang_event *event, uint64_t now_ns) {
    for (uint32_t i = 0; i < event->n; i++) {
        const struct worker_signs *row = &event->rows[i];
        if (row->rank >= h->n || h->nodes[row->rank] != event->node)
            continue;
        struct hang_worker *w = &h->workers[row->rank];
        if (!w->ended)
            on_row(h, w, row, now_ns);
    }
}

/* How long until the next look: to the end of the limit, if that is sooner. */
static uint64_t next_look(const struct hang *h) {
    uint64_t quiet = h->clock - h->beat_at;
    bool counts = h->state == WATCHDOG_QUIET || h->state == WATCHDOG_STARTING;
    if (counts && !h->frozen && h->limit_ns > quiet)
        return MIN2(h->limit_ns - quiet, HANG_TICK_NS);
    return HANG_TICK_NS;
}

void hang_step(struct hang *h, const struct hang_event *event, struct hang_update *ret) {
    *ret = (struct hang_update){.limit_ns = TIME_NEVER};
    uint64_t now_ns = advance(h, event->now_ns);
    switch (event->kind) {
    case HANG_EVENT_START: start(h, event, now_ns); break;
    case HANG_EVENT_END: end(h); break;
    case HANG_EVENT_SIGNS: on_signs(h, event, now_ns); break;
    case HANG_EVENT_ENDED:
        if (event->rank < h->n)
            on_ended(h, &h->workers[event->rank]);
        break;
    case HANG_EVENT_PLACE:
        if (event->rank < h->n && !h->workers[event->rank].moves && event->place != 0)
            at_place(h, &h->workers[event->rank], event->place);
        break;
    case HANG_EVENT_TIMER: break;
    }
    if (now_ns >= h->tick_ns) {
        judge(h, ret);
        h->tick_ns = now_ns + next_look(h);
    }
    ret->state = h->state;
    ret->quiet_ns =
        h->state == WATCHDOG_NONE || h->state == WATCHDOG_OK ? 0 : h->clock - h->beat_at;
    ret->limit_ns = h->limit_ns;
    ret->why = h->why;
    ret->deadline_ns = h->tick_ns == TIME_NEVER ? TIME_NEVER : h->tick_ns - h->back_ns;
}

struct hang *hang_new(const struct hang_limits *limits) {
    struct hang *h = xcalloc(1, sizeof *h);
    h->limits = *limits;
    h->state = WATCHDOG_NONE;
    h->tick_ns = TIME_NEVER;
    h->limit_ns = TIME_NEVER;
    return h;
}

void hang_free(struct hang *h) {
    if (h == NULL)
        return;
    free(h->nodes);
    free(h->workers);
    free(h->suspects);
    free(h);
}
