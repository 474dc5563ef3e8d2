#include "watchdog/act/hang_rows.h"

#include "watchdog/look/signs.h"

#define TICK_NS (1 * NS_PER_S)
#define GAP_NS (3 * NS_PER_S) /* between two rows: of a longer gap, one tick counts */

void hang_rows_init(struct hang_rows *h, uint32_t n, uint32_t first_rank) {
    *h = (struct hang_rows){.n = n, .first_rank = first_rank};
    h->workers = xcalloc(MAX2(n, 1u), sizeof *h->workers);
}

void hang_rows_fini(struct hang_rows *h) {
    free(h->workers);
    *h = (struct hang_rows){0};
}

static bool has_ended(const struct worker_signs *row) { return (row->flags & SIGN_ENDED) != 0; }

static bool is_unseen(const struct worker_signs *row) {
    return (row->flags & SIGN_MOVED) != 0 && (row->flags & SIGN_UNSEEN) != 0;
}

/* Counts the time since the last row. */
static void count_time(struct hang_rows_worker *w, uint32_t flags, uint64_t alive_ns,
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

void hang_rows_add(struct hang_rows *h, struct worker_signs *row,
                   const struct hang_announced *announced, uint64_t now_ns) {
    uint32_t i = row->rank - h->first_rank;
    assert(i < h->n);
    struct hang_rows_worker *w = &h->workers[i];
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

bool hang_rows_due(struct hang_rows *h, uint64_t still_ns, uint64_t leader) {
    bool wrong = still_ns >= SIGNS_QUIET_NS || h->late, other = leader != h->leader;
    bool news = false, changed = false; /* for another leader; for this one */
    h->late = false;
    if (leader == 0) /* it is sent once there is one */
        return false;
    for (uint32_t i = 0; i < h->n; i++) {
        struct hang_rows_worker *w = &h->workers[i];
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
