#include "watchdog/judge/hang_priv.h"

/* For each state, the bits of the states that can follow. */
static const unsigned next_states[] = {
    [HANG_IDLE] = 1U << HANG_IDLE | 1U << HANG_STARTING,
    [HANG_STARTING] = 1U << HANG_IDLE | 1U << HANG_OK | 1U << HANG_HUNG,
    [HANG_OK] = 1U << HANG_IDLE | 1U << HANG_QUIET,
    [HANG_QUIET] = 1U << HANG_IDLE | 1U << HANG_OK | 1U << HANG_HUNG,
    [HANG_HUNG] = 1U << HANG_IDLE | 1U << HANG_OK,
};

void hang_move(struct hang *h, enum hang_state to) {
    assert(next_states[h->state] & 1U << to);
    h->state = to;
}

/* Whether this worker has begun to work. Its node would have spoken of it by now if it had not. */
static bool has_begun(const struct hang *h, const struct hang_worker *w) {
    return w->heard ? w->moved_once : h->clock - h->started_at >= HANG_FIRST_SIGNS_NS;
}

/* When its deadline is over. A node says when that of a worker is; while it says nothing, and the
 * worker moves, it is not. */
static uint64_t announced_until(const struct hang *h, const struct hang_worker *w) {
    bool silent = w->moves && h->last_ns - w->heard_ns > HANG_GAP_NS;
    return (silent ? h->clock : w->announced_at) + w->row.deadline_ns;
}

static void count_worker(const struct hang *h, const struct hang_worker *w, struct hang_count *c) {
    bool stopped = (w->row.flags & SIGN_STOPPED) != 0, traced = (w->row.flags & SIGN_TRACED) != 0;
    bool moves = hang_moves(h, w), busy = !stopped && hang_is_active(w->row.flags);
    c->alive++;
    c->moving += moves;
    c->stopped += stopped;
    c->traced += traced;
    c->asking += !moves && (w->row.flags & SIGN_ASKS) != 0;
    c->held += !moves && (w->row.flags & SIGN_HELD) != 0;
    c->begun += has_begun(h, w);
    c->active += moves || busy;
    c->spinning += hang_spins(h, w);
    /* Its node has more to say of it: also if it moved in the second in which it was stopped. */
    bool spoken_of = !w->moves || stopped || traced;
    c->silent += spoken_of && h->last_ns - w->heard_ns > HANG_SILENT_NS;
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
    uint64_t low = MAX2(hang_before(h->beat_at, HANG_FIRST_SIGNS_NS), h->started_at);
    return last_moved(h, low, h->beat_at, alive, true);
}

/* Since when the others wait for those that are stopped: most of the others don't move. */
static void judge_stopped(struct hang *h, const struct hang_count *c) {
    uint32_t others = c->alive - c->stopped;
    if (c->stopped == 0 || 2 * c->moving > others)
        h->stopped_wait_at = TIME_NEVER;
    else if (h->stopped_wait_at == TIME_NEVER)
        h->stopped_wait_at =
            last_moved(h, MAX2(h->beat_at, hang_before(h->clock, HANG_FIRST_SIGNS_NS)), h->clock,
                       others, false);
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
    if (h->state != HANG_STARTING && c->announcing > 0) {
        /* Who announces nothing any more has gone on. Others are about to say so. */
        uint64_t until = MAX2(c->announced_until, h->withdrawn_at + HANG_FIRST_SIGNS_NS);
        uint64_t limit = hang_before(until, h->beat_at);
        h->why = HANG_WHY_ANNOUNCED;
        h->limit_ns = longer(h, MAX2(limit, HANG_ANNOUNCED_MIN_NS), c);
        return;
    }
    h->why = h->state == HANG_STARTING ? HANG_WHY_NO_BEAT : HANG_WHY_BUSY;
    if (l->timeout_ns != 0)
        h->limit_ns = longer(h, l->timeout_ns, c);
    if (h->state == HANG_STARTING || l->still_ns == 0 || c->active > 0)
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

static void on_beat(struct hang *h, struct hang_update *ret) {
    ret->recovered = h->state == HANG_HUNG;
    h->beat_at = h->clock;
    h->reports = 0;
    h->stopped_wait_at = TIME_NEVER;
    h->why = HANG_WHY_NONE;
    h->limit_ns = TIME_NEVER;
    if (h->state != HANG_OK)
        hang_move(h, HANG_OK);
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

/* One waits for somebody outside: its prompt may be where nobody sees it, who has stopped the
 * reader of the output may not know what that does, and a debugger may be forgotten. */
static bool outside_is_due(struct hang *h, const struct hang_count *c) {
    uint32_t what = c->asking > 0 ? SIGN_ASKS : c->held > 0 ? SIGN_HELD : SIGN_TRACED;
    if (h->outside_ns == TIME_NEVER)
        h->outside_ns = h->last_ns;
    bool now = (h->outside_said & what) == 0 && h->limits.report_ns != 0 &&
               h->last_ns - h->outside_ns >= h->limits.report_ns;
    h->outside_said |= now ? what : 0;
    return now;
}

/* Nobody knows what happened while all were stopped, so nothing is concluded from that time. */
static void suspend(struct hang *h) {
    for (uint32_t r = 0; r < h->n; r++)
        h->workers[r].stopped_at = h->clock;
    h->stopped_wait_at = TIME_NEVER;
    h->why = HANG_WHY_SUSPENDED;
    h->limit_ns = TIME_NEVER;
}

/* Quiet begins anew: the others have waited for somebody outside, and not for a rank. */
static void begin_anew(struct hang *h) {
    h->beat_at = h->clock;
    h->reports = 0;
}

void hang_judge(struct hang *h, struct hang_update *ret) {
    struct hang_count c;
    count_all(h, &c);
    bool begun = h->state != HANG_STARTING || 2 * c.begun > c.alive;
    bool outside = c.asking + c.held > 0;
    /* Who looks at a job that hangs knows that it does. */
    bool debugged = c.traced > 0 && h->state != HANG_HUNG;
    bool suspended = c.alive > 0 && (c.stopped == c.alive || c.traced > 0 || outside);
    h->frozen = suspended || c.silent > 0;
    if (!outside && !debugged)
        h->outside_ns = TIME_NEVER;
    if (c.alive == 0 || (begun && 2 * c.moving > c.alive)) {
        on_beat(h, ret);
        return;
    }
    bool was_ok = h->state == HANG_OK;
    if (h->state == HANG_STARTING && begun)
        hang_move(h, HANG_OK);
    if (h->state == HANG_OK)
        hang_move(h, HANG_QUIET);
    if (was_ok)
        h->beat_at = last_beat(h, c.alive);
    if (suspended) {
        suspend(h);
        if (outside && h->state != HANG_HUNG)
            begin_anew(h);
        ret->report_due = (outside || debugged) && outside_is_due(h, &c);
        if (ret->report_due)
            hang_say(h, &c, ret);
        return;
    }
    judge_stopped(h, &c);
    choose_limit(h, &c);
    /* Before signs can be there, nobody knows whether workers move. */
    bool early = h->clock - h->started_at < HANG_FIRST_SIGNS_NS;
    if (h->state == HANG_HUNG || c.silent > 0 || early)
        return;
    if (h->clock - h->beat_at >= h->limit_ns) {
        hang_move(h, HANG_HUNG);
        ret->hung = true;
        ret->restart = h->limits.action == HANG_ACTION_RESTART;
    } else {
        ret->report_due = report_is_due(h);
    }
    if (ret->hung || ret->report_due)
        hang_say(h, &c, ret);
}
