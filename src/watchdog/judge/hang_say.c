#include <inttypes.h>
#include <stdio.h>

#include "watchdog/judge/hang_priv.h"

const char *hang_state_name(enum hang_state state) {
    switch (state) {
    case HANG_IDLE: return "idle";
    case HANG_STARTING: return "starting";
    case HANG_OK: return "ok";
    case HANG_QUIET: return "quiet";
    case HANG_HUNG: return "hung";
    }
    return "unknown";
}

const char *hang_why_name(enum hang_why why) {
    switch (why) {
    case HANG_WHY_NONE: return "none";
    case HANG_WHY_STOPPED: return "stopped";
    case HANG_WHY_SUSPENDED: return "suspended";
    case HANG_WHY_ANNOUNCED: return "announced";
    case HANG_WHY_STILL: return "still";
    case HANG_WHY_BUSY: return "busy";
    case HANG_WHY_NO_BEAT: return "no beat";
    }
    return "unknown";
}

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
    return hang_moves(h, w) || hang_is_active(w->row.flags);
}

static enum hang_sign sign_of(const struct hang *h, const struct hang_worker *w,
                              uint64_t step_ahead_of, bool few_active) {
    bool stopped = (w->row.flags & SIGN_STOPPED) != 0;
    if (w->ended)
        return HANG_SIGN_ENDED;
    if (stopped)
        return HANG_SIGN_STOPPED;
    if (!hang_moves(h, w) && (w->row.flags & SIGN_ASKS) != 0)
        return HANG_SIGN_ASKS;
    if (!hang_moves(h, w) && (w->row.flags & SIGN_HELD) != 0)
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

static void say_still(const struct hang *h, const struct hang_count *c, const char *place,
                      struct hang_update *ret) {
    char who[64];
    bool one = name_all(h, hang_spins, who, sizeof who);
    (void)snprintf(ret->text, sizeof ret->text,
                   "nothing has moved for %" PRIu64 " s%s (--hang-still)%s%s%s",
                   (h->clock - MAX2(h->beat_at, h->active_at)) / NS_PER_S, place,
                   c->spinning == 0 ? "" : ": ", c->spinning == 0 ? "" : who,
                   c->spinning == 0 ? ""
                   : one            ? " seems to wait for its GPU, whose links are silent"
                                    : " seem to wait for their GPUs, whose links are silent");
}

static void say_busy(const struct hang *h, const struct hang_count *c, uint64_t quiet,
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

static void say_verdict(const struct hang *h, const struct hang_count *c, struct hang_update *ret) {
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
    case HANG_WHY_STILL: say_still(h, c, place, ret); break;
    case HANG_WHY_BUSY: say_busy(h, c, quiet, place, ret); break;
    case HANG_WHY_NO_BEAT:
        (void)snprintf(ret->text, sizeof ret->text,
                       "most workers have not begun to work in %" PRIu64 " s (--hang-timeout)",
                       quiet);
        break;
    case HANG_WHY_NONE:
    case HANG_WHY_SUSPENDED: assert_not_reached();
    }
}

void hang_say(struct hang *h, const struct hang_count *c, struct hang_update *ret) {
    char who[64];
    find_suspects(h, c, ret);
    ret->spins = ret->hung && c->spinning > 0;
    if (ret->hung) {
        say_verdict(h, c, ret);
    } else if (c->asking > 0) {
        (void)name_ranks(ret, HANG_SIGN_ASKS, who, sizeof who);
        (void)snprintf(ret->text, sizeof ret->text,
                       "%s wait%s for somebody to type, as a debugger's prompt does: that is not "
                       "taken for a hang",
                       who, c->asking == 1 ? "s" : "");
    } else if (c->held > 0) {
        (void)name_ranks(ret, HANG_SIGN_HELD, who, sizeof who);
        (void)snprintf(ret->text, sizeof ret->text,
                       "%s wait%s until somebody reads the output of the job (a pager, a terminal "
                       "after ^S): that is not taken for a hang",
                       who, c->held == 1 ? "s" : "");
    } else if (c->traced > 0) {
        (void)name_ranks(ret, HANG_SIGN_TRACED, who, sizeof who);
        (void)snprintf(ret->text, sizeof ret->text,
                       "%s %s stopped by a debugger (t): that is not taken for a hang", who,
                       c->traced == 1 ? "is" : "are");
    } else {
        (void)snprintf(ret->text, sizeof ret->text, "most workers have not moved for %" PRIu64 " s",
                       (h->clock - h->beat_at) / NS_PER_S);
    }
}
