#include "watchdog/look/signs.h"

#include <string.h>

/* The digits at *at, which end before `end`; false: none, or too large a number. */
static bool number(const char **at, const char *end, uint64_t *ret) {
    const char *p = *at;
    uint64_t v = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    if (p == *at || p == end)
        return false;
    *at = p;
    *ret = v;
    return true;
}

bool signs_ran(const char *schedstat, size_t len, uint64_t *ret_ns, uint64_t *ret_turns) {
    const char *at = schedstat, *end = schedstat + len;
    uint64_t ns, waited_ns, turns;
    if (!number(&at, end, &ns) || *at++ != ' ' || !number(&at, end, &waited_ns) || *at++ != ' ' ||
        !number(&at, end, &turns))
        return false;
    *ret_ns = ns;
    *ret_turns = turns;
    return true;
}

bool signs_number(const char *text, size_t len, const char *name, uint64_t *ret) {
    const char *at = memmem(text, len, name, strlen(name));
    if (at == NULL)
        return false;
    at += strlen(name);
    return number(&at, text + len, ret);
}

uint64_t signs_wrote(const char *io, size_t len) {
    uint64_t bytes, calls;
    bool found =
        signs_number(io, len, "wchar: ", &bytes) && signs_number(io, len, "syscw: ", &calls);
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

#define TICK_NS (1 * NS_PER_S)
#define GAP_NS (3 * NS_PER_S) /* between two rows: of a longer gap, one tick counts */

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
        w->lost_ns += passed - TICK_NS;
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
