/* What the files of this room share. */
#pragma once

#include "watchdog/judge/suspects.h"

#define NO_GROUP UINT32_MAX

/* How a main thread waits, as far as it tells groups apart. */
enum wait_kind { WAIT_SLEEPS = 1, WAIT_RUNS, WAIT_BLOCKED, WAIT_STOPPED, WAIT_TRACED };
enum wait_kind suspects_wait(const struct evidence_thread *t);

/* The stack of this thread; NULL: none. */
const struct evidence_stack *suspects_stack(const struct evidence *e,
                                            const struct evidence_thread *t);
static inline const struct evidence *suspects_evidence(const struct suspects_input *in,
                                                       uint32_t rank) {
    return in->nodes[in->nodes_of[rank]].evidence;
}
static inline bool suspects_chosen(const struct suspects_input *in, uint32_t rank) {
    return in->chosen == NULL || in->chosen[rank];
}
/* The main thread of a rank; NULL: no evidence, or it has ended or reacted. */
const struct evidence_thread *suspects_main(const struct suspects *s, uint32_t rank);
/* There is no evidence of it, and there should be. */
static inline bool suspects_is_missing(const struct suspects_input *in, const struct suspects *s,
                                       uint32_t rank) {
    return suspects_chosen(in, rank) && !s->ended[rank] && !s->reacted[rank] &&
           suspects_main(s, rank) == NULL;
}

/* "backward (train.py:76)", and, if there is no Python stack, "futex()"; "" if nothing is known. */
void suspects_where(const struct evidence *e, const struct evidence_thread *t, char *out,
                    size_t size);
/* "read() in load (data.py:20), pipe". w: the worker if `t` is its main thread; else NULL. */
void suspects_describe(const struct evidence *e, const struct evidence_thread *t,
                       const struct evidence_worker *w, struct strbuf *ret);
/* "wait", "waits", "run", "runs", ...: what `n` ranks at this place do. w: the same, of the first.
 */
const char *suspects_verb(const struct evidence_thread *t, const struct evidence_worker *w,
                          uint32_t n);
/* The same of the ranks of this group. */
const char *suspects_group_verb(const struct suspects *s, const struct suspects_group *g,
                                uint32_t n);
/* Writes the text of a suspect. `of`: what the rank has enqueued or announced, `others`: what
 * others have. `child`: the one that waits elsewhere; NULL: none. */
void suspects_tell(const struct suspects_input *in, const struct suspects *s, uint64_t of,
                   uint64_t others, const struct evidence_child *child, struct suspect *ret);

/* suspects_threads.c: marks as suspects those that have no other thread where most ranks have one
 * that waits for the others. Returns how many; only if no main thread stands out. */
uint32_t suspects_mark_threads(const struct suspects_input *in, struct suspects *s);
/* A thread of this suspect that is where one of the others has none; NULL: none. */
const struct evidence_thread *suspects_odd_thread(const struct suspects_input *in,
                                                  const struct suspects *s, uint32_t rank);

/* suspects_reason.c: counts who waits for other ranks, and who is at its exit. */
void suspects_find_reason(const struct suspects_input *in, struct suspects *s);
/* Whether this frame is in a library in which ranks wait for each other. */
bool suspects_is_collective(const struct evidence_frame *f);
/* suspects_frames.c: whether this file is of Python's library, or of an installed package. */
bool suspects_is_library(const char *file);

/* suspects_groups.c: fills in the groups. 0 or -ENOMEM. */
_must_use_ int suspects_group_ranks(const struct suspects_input *in, struct suspects *s);
/* suspects_children.c: for suspects_odd_child(), once the workers are known. NULL: no memory. */
struct suspects_children *suspects_children_new(const struct suspects_input *in,
                                                const struct suspects *s);
void suspects_children_free(struct suspects_children *c); /* takes NULL */
/* That child of this rank which waits elsewhere than its siblings, and than
 * those of the other ranks; NULL: none. */
const struct evidence_child *suspects_odd_child(const struct suspects_input *in,
                                                const struct suspects *s, uint32_t rank);
