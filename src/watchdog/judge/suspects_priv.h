/* What suspects.c and suspects_text.c share. */
#pragma once

#include "watchdog/judge/suspects.h"

#define NO_GROUP UINT32_MAX

/* How a main thread waits, as far as it distinguishes groups. */
enum wait_kind { WAIT_SLEEPS = 1, WAIT_RUNS, WAIT_BLOCKED, WAIT_STOPPED, WAIT_TRACED };
enum wait_kind suspects_wait(const struct evidence_thread *t);

/* The stack of this thread; NULL: none. */
const struct evidence_stack *suspects_stack(const struct evidence *e,
                                            const struct evidence_thread *t);
static inline const struct evidence *suspects_evidence(const struct suspects *s, uint32_t rank) {
    return s->in->nodes[s->in->nodes_of[rank]].evidence;
}
/* The main thread of a rank; NULL: no evidence, or it has ended or reacted. */
const struct evidence_thread *suspects_main(const struct suspects *s, uint32_t rank);
/* There is no evidence of this rank, and there should be. */
bool suspects_is_missing(const struct suspects *s, uint32_t rank);
/* A thread of this suspect that is where one of the others has none; NULL: none. */
const struct evidence_thread *suspects_odd_thread(const struct suspects *s, uint32_t rank);

/* "read() in load (data.py:20), pipe". w: the worker if `t` is its main thread; else NULL. */
void suspects_describe(const struct evidence *e, const struct evidence_thread *t,
                       const struct evidence_worker *w, struct strbuf *ret);
/* "wait", "waits", "run", "runs", ...: what `n` ranks of this group do. */
const char *suspects_group_verb(const struct suspects *s, const struct suspects_group *g,
                                uint32_t n);
/* Writes the text of a suspect. `of`: what the rank has enqueued or announced, `others`: what
 * others have. `child`: the one that waits elsewhere; NULL: none. */
void suspects_write(const struct suspects *s, uint64_t of, uint64_t others,
                    const struct evidence_child *child, struct suspect *ret);
