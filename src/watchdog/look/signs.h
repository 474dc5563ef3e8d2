/* What Linux shows of a worker without asking it anything: the signs from which watchdog/judge
 * concludes whether it moves, waits or was stopped. Pure; signs_io.h reads the files.
 *
 * A worker moves if
 *   its main thread uses CPU time (/proc/PID/task/PID/schedstat), unless it only wakes from a sleep
 *       at an unchanged place, as a loop that polls for a lock does;
 *   its main thread writes (/proc/PID/task/PID/io). Writes of other threads do not count: a thread
 *       that logs figures continues in a job that is dead;
 *   its other threads compute: SIGNS_COMPUTES_PERCENT of a core, without the threads of libraries
 *       that poll. gloo's loop wakes a hundred times a second in a job that is dead;
 *   the place of its program changes between two closer looks (watchdog/evidence/slow.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"
#include "watchdog/worker_signs.h"

/* Of one worker, once a second. */
struct worker_tick {
    /* proc(5): R runs, S sleeps, D can't be interrupted, T stopped, t traced, Z and X ended;
     * 0: not known, because the file could not be read */
    char state;
    uint64_t ran_ns; /* CPU time of the main thread */
    uint64_t turns;  /* how often it got a CPU; 0: not known */
    uint64_t wrote;  /* bytes and calls of its write(2); 0: not read */
};

/* The state of /proc/PID/stat. The name in it may contain anything, ")" too. 0: no such text. */
char signs_state(const char *stat, size_t len);
/* The first number of a schedstat, in ns, and the third, which counts turns on a CPU. False: no
 * such text. */
bool signs_ran(const char *schedstat, size_t len, uint64_t *ret_ns, uint64_t *ret_turns);

/* CPU time of the thread, from its stat (utime and stime), in clock ticks. False: no such text. */
bool signs_ticks(const char *stat, size_t len, uint64_t *ret);
/* CPU time of the processes that the process has waited for (cutime and cstime), in the same way.
 */
bool signs_children_ticks(const char *stat, size_t len, uint64_t *ret);
/* When it was started, from the same, in clock ticks since boot. False: no such text. */
bool signs_start(const char *stat, size_t len, uint64_t *ret);

/* The number behind `name` in the text. False: it is not there, or cut off. */
bool signs_number(const char *text, size_t len, const char *name, uint64_t *ret);
/* The number made of wchar and syscw in the text of /proc/PID/task/TID/io, proc_pid_io(5): it
 * changes with each write. 0: no such text. */
uint64_t signs_wrote(const char *io, size_t len);

/* A main thread that has used less than this since the last sample did not move. One that only asks
 * now and then whether something has ended is below it: PyTorch's data loader looks after its
 * children every 5 s (MP_STATUS_CHECK_INTERVAL of torch.utils.data), which takes a part of a ms. */
#define SIGNS_MOVED_NS NS_PER_MS
/* A main thread that uses less than SIGNS_LITTLE_PERCENT of a core, and less than this in each turn
 * on a CPU, runs little: it moved only if its place in the program changes. A loop that polls for a
 * lock every 50 ms uses 0.1 to 0.6 ms in each turn. A program that computes for 20 ms in each
 * second has few and long turns. */
#define SIGNS_LITTLE_PERCENT 2
#define SIGNS_TURN_NS NS_PER_MS
#define SIGNS_TURNS 10 /* or fewer in a sample: they count as so many */
/* So many samples in a row in which it ran little, and it may only poll: fewer than others are
 * still when they are looked at (SIGNS_QUIET_NS), so one look finds that all wait. */
#define SIGNS_LITTLE 2
/* Other threads that together use so much of a core compute. */
#define SIGNS_COMPUTES_PERCENT 5

/* A main thread that has used half of the time, or more, in so many samples in a row may spin. */
#define SIGNS_HOT 5

/* What is known of one worker from its samples. */
struct signs_track {
    uint64_t read_ns;  /* when ran_ns was read */
    uint32_t hot;      /* samples in a row in which it used half of the time, or more */
    uint32_t little;   /* samples in a row in which it ran little, and did not write */
    uint64_t much_ns;  /* when it last ran more, or wrote */
    uint64_t ran_ns;   /* at the last sample that could be read */
    uint64_t turns;    /* at the same */
    uint64_t wrote;    /* at the last sample; 0: it was not read then */
    uint64_t moved_ns; /* when it was last seen to have moved */
    uint32_t flags;    /* SIGN_MOVED, _STOPPED, _TRACED: of the last sample */
    bool known;        /* ran_ns is meaningful */
    bool receives;     /* it waits until something comes: if it wakes, it moves */
    bool moved_once;
};
struct signs_track signs_track_of(uint64_t now_ns);
/* A sample that could not be read counts as moving: of what is not seen nothing is concluded. */
void signs_track_add(struct signs_track *t, const struct worker_tick *tick, uint64_t now_ns);
