#include <errno.h>

#include "io/process/proc.h"
#include "watchdog/evidence/slow.h"
#include "watchdog/evidence/waits.h"

#define VERSION_HAS_TIDS 0x030b0000 /* of Python: 3.11 */

struct search {
    int32_t pid;
    bool main_works;
    int32_t tid; /* the best so far; 0: none */
    uint64_t ran_ns;
};

static bool works(const struct pystack_thread *t) {
    bool found = false;
    for (uint32_t i = 0; i < t->n; i++) {
        enum slow_frame f = slow_thread_frame(t->frames[i].file);
        if (f == SLOW_FRAME_HELPS)
            return false;
        found = found || f == SLOW_FRAME_WORKS;
    }
    return found;
}

static void on_thread(void *arg, const struct pystack_thread *t) {
    struct search *s = arg;
    uint64_t ran_ns = 0;
    if (t->main) {
        for (uint32_t i = 0; i < t->n; i++)
            s->main_works |= slow_main_frame(t->frames[i].file) == SLOW_FRAME_WORKS;
    } else if (t->tid > 0 && works(t) && thread_ran(s->pid, t->tid, &ran_ns) == 0 &&
               (s->tid == 0 || ran_ns > s->ran_ns)) {
        s->tid = t->tid;
        s->ran_ns = ran_ns;
    }
}

static bool lives(const struct work_thread *t) {
    struct proc_stat stat;
    return t->tid != 0 && proc_read_stat(t->tid, &stat) && stat.start == t->start;
}

static int read_threads(int32_t pid, struct pystack_process *python, struct search *s) {
    struct err err = {0};
    int r = python->pid == pid ? pystack_process_read(python, on_thread, s, &err) : -ESRCH;
    if (r >= 0)
        return r;
    *s = (struct search){.pid = pid};
    r = pystack_process_find(pid, python, &err);
    if (r == 0)
        r = pystack_process_read(python, on_thread, s, &err);
    if (r < 0)
        python->pid = 0;
    return r;
}

void work_thread_find(int32_t pid, bool gpu, struct pystack_process *python,
                      struct work_thread *t) {
    struct search s = {.pid = pid};
    struct proc_stat stat;
    if (!lives(t))
        *t = (struct work_thread){0};
    if (read_threads(pid, python, &s) < 0)
        return;
    if (s.main_works || (gpu && python->python.found.version < VERSION_HAS_TIDS))
        *t = (struct work_thread){0};
    else if (s.tid != 0 && proc_read_stat(s.tid, &stat))
        *t = (struct work_thread){.tid = s.tid, .start = stat.start};
}
