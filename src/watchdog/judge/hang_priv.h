/* The parts of struct hang, for the files of this room. */
#pragma once

#include "watchdog/judge/hang.h"
#include "watchdog/judge/places.h"

/* Times of a worker are of the machine's own clock, which does not always run: see advance(). */
struct hang_worker {
    bool ended;
    bool moves; /* by the last word of its node, or because that has said nothing */
    bool heard; /* its node has spoken of it */
    bool moved_once;
    struct worker_signs row; /* the last; flags 0: none */
    uint64_t heard_ns;       /* when, in monotonic time (advance()) */
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
    uint32_t spinning;        /* hang_spins() */
    uint32_t announcing;      /* that announced a deadline */
    uint64_t announced_until; /* the last of the deadlines */
    uint64_t first_stopped;   /* when the first of those that are stopped was */
    uint64_t place_longest;   /* the longest wait that ended by itself, of their places */
};

struct hang {
    struct hang_limits limits;
    enum hang_state state;
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
    /* monotonic: since when one has waited for somebody outside, or was traced; TIME_NEVER: none
     * does or is */
    uint64_t outside_ns;
    uint32_t outside_said; /* SIGN_ASKS, SIGN_HELD, SIGN_TRACED: that was said */
    /* what counts now, for the update */
    enum hang_why why;
    uint64_t limit_ns;
    bool by_place; /* the limit is so long because of the place */
};

static inline uint64_t hang_before(uint64_t at, uint64_t ns) { return at > ns ? at - ns : 0; }
static inline bool hang_is_active(uint32_t flags) {
    if ((flags & SIGN_UNSEEN) != 0) /* of what is not seen nothing is concluded */
        return true;
    /* One that spins waits for its GPU. If the links of that are silent, the GPU waits, too. What
     * NCCL's proxy threads use does not count. */
    if ((flags & SIGN_SPINS) != 0 && (flags & SIGN_GPU_SEEN) != 0)
        return (flags & (SIGN_GPU | SIGN_BYTES)) != 0;
    return (flags & (SIGN_SPINS | SIGN_BUSY | SIGN_BYTES | SIGN_GPU)) != 0;
}
/* Whether it counts as moving. */
static inline bool hang_moves(const struct hang *h, const struct hang_worker *w) {
    return w->moves || h->clock - w->moved_at <= HANG_MOVED_NS;
}

/* Whether its main thread runs all the time at an unchanged place: it seems to wait for its GPU. */
static inline bool hang_spins(const struct hang *h, const struct hang_worker *w) {
    return !hang_moves(h, w) && (w->row.flags & (SIGN_SPINS | SIGN_STOPPED)) == SIGN_SPINS;
}

/* hang_judge.c: looks at all workers, and moves on to another state. */
void hang_judge(struct hang *h, struct hang_update *ret);
void hang_move(struct hang *h, enum hang_state to); /* the only writer of the state */

/* hang_say.c: text and suspects of a report or a verdict. */
void hang_say(struct hang *h, const struct hang_count *c, struct hang_update *ret);
