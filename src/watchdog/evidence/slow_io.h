/* Looks at quiet workers every 5 s, and when one begins to run little, in a helper with a deadline,
 * and tells the samples (signs_io.h) what else of them moves, and whose movement counts for a
 * worker that only waits for its child.
 *
 *     slow = slow_new(loop, signs);
 *     signs_sample(signs, now); slow_tick(slow, now);      each second
 *
 * Nor does the main thread of a program that trains in another thread: whether there is such a
 * thread, its Python stack tells (work_thread_io.h), and then that one's movement counts.
 *
 * If other threads compute while the main thread waits, the worker moves (struct signs_found).
 *
 * It does nothing while all workers move, and none runs all the time, or little; but where the
 * movement of another thread counts, it looks every minute whether that one still works. */
#pragma once

#include "io/loop.h"
#include "watchdog/evidence/slow.h"
#include "watchdog/evidence/work_thread_io.h"
#include "watchdog/look/pystack.h"
#include "watchdog/look/signs.h"

#define SLOW_DEADLINE_NS (2 * NS_PER_S)
#define SLOW_THREADS_NS (60 * NS_PER_S)

struct slow;
/* Both are borrowed until slow_free(). loop NULL: slow_tick() waits for the answer itself. */
_must_use_ struct slow *slow_new(struct loop *loop, struct signs *signs);
void slow_free(struct slow *s); /* takes NULL */
void slow_tick(struct slow *s, uint64_t now_ns);
/* Why closer looks have failed for SLOW_AGE_MAX_NS, as -EMFILE; 0: they have not. */
int slow_error(const struct slow *s);
/* Whether the last look found threads of NCCL in this rank's process. */
bool slow_has_nccl(const struct slow *s, uint32_t rank);

/* A look at one worker. */
struct slow_task {
    struct slow_look
        look; /* rank and pid are given (if little, also the last place), the rest is filled in */
    bool hot; /* its main thread may spin: where it is, is read */
    bool little;                   /* or it may only poll: the same */
    uint64_t place;                /* look.addresses of the last look; 0: none */
    struct pystack_process python; /* found by an earlier look; pid 0: it is looked for */
    /* Who does the work of this process, as far as it is known: the worker, or who it waits for. */
    int32_t thread_of;
    struct work_thread thread;
    struct pystack_process threads; /* the process, as far as it was found for that */
};
/* Also for a program that has nothing else to do. */
void slow_look(struct slow_task *tasks, size_t n);
