#include "launcher/supervise/spare_io.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "io/process/proc.h"
#include "launcher/output/writer_io.h"

#define WAIT_NS (2 * NS_PER_MS)

static bool is_there(pid_t pid) {
    static const char *const names[] = {WRITER_NAME, SPARE_COMPARE_NAME, SPARE_ADD_NAME,
                                        SPARE_LOG_NAME, SPARE_RECORDER_NAME};
    char comm[32];
    ssize_t n = pid > 0 ? proc_read(pid, "/comm", comm, sizeof comm) : 0;
    for (size_t i = 0; n > 0 && i < ARRAY_SIZE(names); i++)
        if (strlen(names[i]) + 1 == (size_t)n && memcmp(comm, names[i], (size_t)n - 1) == 0)
            return true;
    return false;
}

void spare_add(struct spare *s, pid_t pid) {
    if (s == NULL)
        return;
    unsigned at = atomic_fetch_add(&s->n, 1);
    for (unsigned i = 0; i < SPARE_MAX && is_there(atomic_load(&s->pids[at % SPARE_MAX])); i++)
        at++;
    atomic_store(&s->pids[at % SPARE_MAX], pid);
}

static void insert(struct spare_list *l, pid_t pid) {
    uint32_t at = l->except.n++;
    for (; at > 0 && l->pids[at - 1] > pid; at--)
        l->pids[at] = l->pids[at - 1];
    l->pids[at] = pid;
}

void spare_read(struct spare *s, pid_t more, struct spare_list *ret) {
    memset(ret, 0, sizeof *ret);
    ret->except.pids = ret->pids;
    if (more > 0)
        insert(ret, more);
    for (int i = 0; i < SPARE_MAX; i++) {
        pid_t pid = atomic_load(&s->pids[i]);
        if (pid != more && is_there(pid))
            insert(ret, pid);
    }
}

bool spare_lives(struct spare *s, const char *name) {
    for (int i = 0; i < SPARE_MAX && s != NULL; i++) {
        pid_t pid = atomic_load(&s->pids[i]);
        if (pid > 0 && sweep_is_named(pid, name))
            return true;
    }
    return false;
}

void spare_end(struct spare *s, uint64_t ns) {
    struct spare_list list;
    spare_read(s, 0, &list);
    for (uint32_t i = 0; i < list.except.n; i++) {
        pid_t pid = list.pids[i];
        if (sweep_parent(pid) != getpid())
            continue;
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, NULL, WNOHANG) == 0 && ns >= WAIT_NS) {
            struct timespec ts = {.tv_nsec = (long)WAIT_NS};
            (void)nanosleep(&ts, NULL);
            ns -= WAIT_NS;
        }
    }
}
