#include "watchdog/evidence/slow.h"

#include <string.h>

uint32_t slow_flags(const struct slow_look *before, const struct slow_look *now,
                    uint64_t elapsed_ns) {
    if (before->pid != now->pid || elapsed_ns == 0 || elapsed_ns > SLOW_AGE_MAX_NS)
        return 0;
    uint64_t cpu = now->cpu_ns > before->cpu_ns ? now->cpu_ns - before->cpu_ns : 0;
    uint64_t bytes = now->bytes > before->bytes ? now->bytes - before->bytes : 0;
    return (cpu >= elapsed_ns / 100 * SLOW_BUSY_PERCENT ? SIGN_BUSY : 0U) |
           (bytes >= elapsed_ns / NS_PER_MS * SLOW_BYTES_PER_S / 1000 ? SIGN_BYTES : 0U);
}

bool slow_spins(const struct slow_look *before, const struct slow_look *now, uint64_t elapsed_ns) {
    return before->pid == now->pid && now->gpu && now->addresses != 0 &&
           before->addresses == now->addresses && elapsed_ns <= SLOW_AGE_MAX_NS;
}

bool slow_polls(const struct slow_look *before, const struct slow_look *now, uint64_t elapsed_ns) {
    bool first = before == NULL || before->addresses == 0 || elapsed_ns > SLOW_AGE_MAX_NS;
    bool talks = !first && !now->gpu &&
                 now->talked >= before->talked + elapsed_ns / NS_PER_MS * SLOW_TALKS_PER_S / 1000;
    return now->sleeps && now->addresses != 0 &&
           (first || (before->pid == now->pid && before->addresses == now->addresses && !talks));
}

bool slow_changed(const struct slow_look *before, const struct slow_look *now,
                  uint64_t elapsed_ns) {
    return before->pid == now->pid && now->addresses != 0 && before->addresses != 0 &&
           before->addresses != now->addresses && elapsed_ns <= SLOW_AGE_MAX_NS;
}

bool slow_computes(const struct slow_look *before, const struct slow_look *now,
                   uint64_t elapsed_ns) {
    return before->pid == now->pid && before->follow == now->follow && !now->spinners &&
           elapsed_ns != 0 && elapsed_ns <= SLOW_AGE_MAX_NS &&
           now->threads_ns >= before->threads_ns + elapsed_ns / 100 * SIGNS_COMPUTES_PERCENT;
}

bool slow_is_nccl(const char *name) {
    static const char *const begins[] = {"NCCL ", "pt_nccl_"};
    return text_begins_with_any(name, begins, ARRAY_SIZE(begins));
}

bool slow_is_poller(const char *name) {
    static const char *const begins[] = {"pt_gloo",  "pt_tcpstore", "ucx_",  "PMIX",
                                         "progress", "psm3",        "opal_", "mpi_"};
    return slow_is_nccl(name) || strcmp(name, "async") == 0 ||
           text_begins_with_any(name, begins, ARRAY_SIZE(begins));
}

bool slow_omp_spins(const char *env, size_t len) {
    static const char *const variables[] = {"OMP_WAIT_POLICY=active", "OMP_WAIT_POLICY=ACTIVE",
                                            "KMP_BLOCKTIME=infinite", "GOMP_SPINCOUNT="};
    for (const char *p = env; p < env + len; p += strlen(p) + 1)
        if (text_begins_with_any(p, variables, ARRAY_SIZE(variables)))
            return true;
    return false;
}

static const char *const frameworks[] = {"/torch/", "/jax/"};

enum slow_frame slow_main_frame(const char *file) {
    /* rpc.shutdown() serves others until they have ended; spawn() waits for processes. */
    static const char *const only_waits[] = {"/torch/distributed/rpc/", "/torch/multiprocessing/"};
    return text_has_any(file, frameworks, ARRAY_SIZE(frameworks)) &&
                   !text_has_any(file, only_waits, ARRAY_SIZE(only_waits))
               ? SLOW_FRAME_WORKS
               : SLOW_FRAME_NONE;
}

enum slow_frame slow_thread_frame(const char *file) {
    static const char *const helpers[] = {"/torch/utils/data/", "/torch/_inductor/",
                                          "/torch/multiprocessing/", "/torch/distributed/elastic/"};
    if (text_has_any(file, helpers, ARRAY_SIZE(helpers)))
        return SLOW_FRAME_HELPS;
    return text_has_any(file, frameworks, ARRAY_SIZE(frameworks)) ? SLOW_FRAME_WORKS
                                                                  : SLOW_FRAME_NONE;
}
