#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "topology/discover/common/child_io.h"
#include "topology/discover/hwloc/hwloc_priv.h"

/* hwloc trusts the files that it reads: an object whose CPU set is missing makes it read a null
 * pointer (seen with 2.9), a pipe is opened and waited for, a file of any size is taken into
 * memory. So a recording is read by a child first; what does not bring the child down does not
 * bring us down, as it is the same library and the same bytes. */

#define TRIAL_MS 4000         /* the largest of the recorded machines takes 10 */
#define TRIAL_KIB (256 << 10) /* that it may grow by; that machine takes 3 MiB */

static int64_t now_ms(void) {
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

struct trial {
    hwloc_trial_fn *run;
    void *arg;
};

static long most_kib(void) {
    struct rusage used = {0};
    (void)getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
}

/* A sanitizer's own memory is far above any limit. gcc's word for it, then clang's. */
#ifdef __SANITIZE_ADDRESS__
#define IS_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_SANITIZED
#endif
#endif

static void limit_memory(void) {
#ifndef IS_SANITIZED
    rlim_t most = (rlim_t)4 * TRIAL_KIB << 10;
    (void)setrlimit(RLIMIT_DATA, &(struct rlimit){most, most});
#endif
}

static int try_it(int fd, void *arg) {
    const struct trial *trial = arg;
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    limit_memory();
    struct err err = {0};
    long before = most_kib();
    err.code = trial->run(trial->arg, &err);
    long grown = most_kib() - before;
    if (grown > TRIAL_KIB)
        err.code = err_set(&err, -E2BIG, "hwloc takes %ld MiB to read it: no machine is that large",
                           grown >> 10);
    ssize_t n = write(fd, &err, sizeof err); /* less than a pipe takes at once */
    return n == (ssize_t)sizeof err ? 0 : 1;
}

/* All of *ret; -EINVAL: the child died; -ETIMEDOUT. */
static int read_verdict(int in, struct err *ret) {
    char *to = (char *)ret;
    size_t n = 0;
    for (int64_t end = now_ms() + TRIAL_MS; n < sizeof *ret;) {
        struct pollfd pfd = {.fd = in, .events = POLLIN};
        int r = poll(&pfd, 1, (int)MAX2(end - now_ms(), 0));
        if (r < 0 && errno == EINTR)
            continue;
        if (r == 0)
            return -ETIMEDOUT;
        ssize_t got = r > 0 ? read(in, to + n, sizeof *ret - n) : 0;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return -EINVAL;
        n += (size_t)got;
    }
    return 0;
}

int hwloc_try(hwloc_trial_fn *run, void *arg, struct err *err) {
    struct topo_child child;
    int r = topo_child_start("muster-hwloc", try_it, &(struct trial){run, arg}, &child);
    if (r < 0)
        return err_set(err, r, "no child process that reads it first");
    struct err verdict = {0};
    int said = read_verdict(child.fd, &verdict);
    topo_child_end(&child);
    if (said == -ETIMEDOUT)
        return err_set(err, said, "hwloc has not read it after %d s (a pipe or a device in it?)",
                       TRIAL_MS / 1000);
    if (said < 0)
        return err_set(err, said, "it is damaged: hwloc breaks down while it reads it");
    return verdict.code < 0 ? err_set(err, verdict.code, "%s", verdict.text) : 0;
}
