#include "watchdog/judge/hang.h"

#include <string.h>

#include "watchdog/judge/hang_priv.h"

/* A deadline that a worker announces is cut to this: no sum with it can overflow. */
#define DEADLINE_MAX_NS (UINT64_C(10000) * 3600 * NS_PER_S)

struct hang *hang_new(const struct hang_limits *limits) {
    struct hang *h = xcalloc(1, sizeof *h);
    h->limits = *limits;
    h->state = HANG_IDLE;
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

/* Time has passed that was not seen. Who moved before it did so until now: if it waits again, that
 * hides no beat. */
static void moved_until_now(struct hang *h) {
    for (uint32_t r = 0; r < h->n; r++)
        if (h->workers[r].moves)
            h->workers[r].moved_at = h->clock;
}

/* Counts the time since the last step. A gap is time in which this process did not run: nobody
 * knows what the workers did in it, and what they said of it is still to be read. The time is the
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
    hang_move(h, HANG_IDLE);
    h->tick_ns = TIME_NEVER;
    h->why = HANG_WHY_NONE;
    h->limit_ns = TIME_NEVER;
    h->by_place = false;
    h->n = 0;
}

static void start(struct hang *h, const struct hang_event *event, uint64_t now_ns) {
    assert(event->n > 0 && event->n <= HANG_RANKS_MAX);
    end(h);
    if (event->new_program)
        h->places = (struct places){0};
    if (h->limits.action == HANG_ACTION_OFF)
        return;
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
    h->outside_said = 0;
    for (uint32_t r = 0; r < h->n; r++)
        h->workers[r] = (struct hang_worker){
            .moves = true, .heard_ns = now_ns, .moved_at = h->clock, .active_at = h->clock};
    h->tick_ns = now_ns + HANG_TICK_NS;
    hang_move(h, HANG_STARTING);
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
    uint64_t at = hang_before(h->clock, row->since_announced_ns);
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
    uint64_t earliest = w->moves ? hang_before(h->clock, HANG_FIRST_SIGNS_NS) : w->moved_at;
    if (moved)
        w->moved_at = MAX2(w->moved_at, hang_before(h->clock, MIN2(row->still_ns, HANG_TICK_NS)));
    else
        w->moved_at = MAX2(MAX2(earliest, w->moved_at), hang_before(h->clock, row->still_ns));
    if ((row->flags & SIGN_STOPPED) != 0 && (w->row.flags & SIGN_STOPPED) == 0)
        w->stopped_at = w->moves ? w->moved_at : h->clock;
    w->heard = true;
    w->heard_ns = now_ns;
    w->moves = moved;
    w->moved_once = w->moved_once || moved || row->moved_once;
    if ((row->flags & SIGN_STOPPED) == 0 && hang_is_active(row->flags))
        w->active_at = h->clock;
    on_announced(h, w, row);
    w->row = *row;
    w->row.flags &= SIGN_ALL;
    w->row.deadline_ns = MIN2(row->deadline_ns, DEADLINE_MAX_NS);
    if ((w->row.flags & SIGN_ENDED) != 0)
        on_ended(h, w);
    if (moved || row->place != 0)
        at_place(h, w, moved ? 0 : row->place);
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
    bool counts = h->state == HANG_QUIET || h->state == HANG_STARTING;
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
        hang_judge(h, ret);
        h->tick_ns = now_ns + next_look(h);
    }
    ret->state = h->state;
    ret->quiet_ns = h->state == HANG_IDLE || h->state == HANG_OK ? 0 : h->clock - h->beat_at;
    ret->limit_ns = h->limit_ns;
    ret->why = h->why;
    ret->deadline_ns = h->tick_ns == TIME_NEVER ? TIME_NEVER : h->tick_ns - h->back_ns;
}

uint64_t hang_still_ns(const struct hang *h, uint32_t rank) {
    if (rank >= h->n || h->workers[rank].moves)
        return 0;
    return h->clock - h->workers[rank].moved_at;
}
