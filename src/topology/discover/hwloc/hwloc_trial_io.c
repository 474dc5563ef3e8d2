#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "io/process/helper_call.h"
#include "topology/discover/hwloc/hwloc_priv.h"

/* hwloc trusts the files that it reads: an object whose CPU set is missing makes it read a null
 * pointer (seen with 2.9), a pipe is opened and waited for, a file of any size is taken into
 * memory. So a child reads a recording first. What does not crash the child does not crash this
 * process, because library and bytes are the same. */

#define TRIAL_NS (4 * NS_PER_S) /* the largest of the recorded machines takes 10 */
#define TRIAL_KIB (256 << 10)   /* how much it may grow; that machine takes 3 MiB */

struct trial {
    hwloc_trial_fn *run;
    void *arg;
};

static long most_kib(void) {
    struct rusage used = {0};
    (void)getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
}

/* A sanitizer's own memory is far above any limit. gcc's macro, then clang's. */
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
    return helper_send(fd, &err, sizeof err) ? 0 : 1;
}

int hwloc_try(hwloc_trial_fn *run, void *arg, struct err *err) {
    struct helper_call_config config = {.name = "muster-hwloc",
                                        .run = try_it,
                                        .arg = &(struct trial){run, arg},
                                        .timeout_ns = TRIAL_NS,
                                        .max_bytes = sizeof(struct err)};
    struct helper_call *call;
    struct helper_answer answer;
    struct err verdict = {0};
    int r = helper_call_new(NULL, &config, NULL, NULL, &call);
    if (r < 0)
        return err_set(err, r, "no child process that reads it first");
    helper_call_wait(call, &answer);
    bool said = answer.len == sizeof verdict;
    if (said)
        memcpy(&verdict, answer.data, sizeof verdict);
    r = answer.code;
    helper_call_free(call);
    if (!said && r == -ETIMEDOUT)
        return err_set(err, r, "hwloc has not read it after %d s (a pipe or a device in it?)",
                       (int)(TRIAL_NS / NS_PER_S));
    if (!said)
        return err_set(err, -EINVAL, "it is damaged: hwloc breaks down while it reads it");
    return verdict.code < 0 ? err_set(err, verdict.code, "%s", verdict.text) : 0;
}
