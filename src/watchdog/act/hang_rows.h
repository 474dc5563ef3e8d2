/* When a node sends rows of its workers to the leader, and what it adds to their signs: its side
 * of the contract at the top of watchdog/judge/hang.h. Pure.
 *
 *     hang_rows_init(&h, n, first_rank);
 *     each second, for each row of signs_rows(): hang_rows_add(&h, &row, announced, now_ns);
 *     if (hang_rows_due(&h, signs_still_ns(...), leader))
 *         … sends all rows …
 *     hang_rows_fini(&h);
 *
 * Of a worker that can't be seen (SIGN_MOVED and SIGN_UNSEEN) it sends rows as of one that
 * announces something else: once, and once when it is seen again.
 *
 * What a worker announces counts only in time in which this agent ran and the worker was not
 * stopped: in the rest, nothing could be announced or received. */
#pragma once

#include "watchdog/act/hang_workers.h"

struct hang_rows_worker {
    uint64_t added_ns;                 /* when its row was last added; 0: never */
    uint64_t alive_ns;                 /* what it announced last, hang_announced.alive_ns */
    uint64_t lost_ns;                  /* of the time since then, what does not count */
    struct worker_signs row, reported; /* the last row; and the last that a leader was sent */
};

struct hang_rows {
    uint32_t n, first_rank;
    struct hang_rows_worker *workers; /* owned, [n] */
    bool late;       /* of the rows added since the last hang_rows_due(): a deadline is over */
    uint64_t leader; /* the one that was sent rows last; 0: none */
    bool reported;   /* the last rows had a worker that does not move, or is late */
};

void hang_rows_init(struct hang_rows *h, uint32_t n, uint32_t first_rank);
void hang_rows_fini(struct hang_rows *h); /* *h is zeroed then; a zeroed one is fine */

/* Fills in step, deadline_ns and since_announced_ns of this row, whose rank is one of these. */
void hang_rows_add(struct hang_rows *h, struct worker_signs *row,
                   const struct hang_announced *announced, uint64_t now_ns);
/* Whether the rows that were just added are sent now: then the caller does it. still_ns: for how
 * long one of them has not moved. leader: another number for each leader and each connection to it;
 * 0: there is none now. */
bool hang_rows_due(struct hang_rows *h, uint64_t still_ns, uint64_t leader);
