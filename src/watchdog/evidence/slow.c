#include "watchdog/evidence/slow.h"

#include <string.h>

/* A figure that fell (a process that no one waited for has ended) proves nothing. */
static uint64_t grown(uint64_t before, uint64_t now) { return now > before ? now - before : 0; }

struct signs_found slow_compare(const struct slow_look *before, const struct signs_found *was,
                                uint64_t before_ns, const struct slow_look *now, uint64_t now_ns) {
    uint64_t elapsed_ns = now_ns - before_ns;
    bool compared = before != NULL && elapsed_ns <= SLOW_AGE_MAX_NS;
    bool placed = compared && before->addresses != 0 && now->addresses != 0;
    bool same = placed && before->addresses == now->addresses;
    struct signs_found f = {
        .since_ns = now_ns, .receives = now->receives, .flags = now->asks ? SIGN_ASKS : 0U};
    if (before != NULL && !compared) {
        f.computes = was->computes;
        f.idle_ns = was->idle_ns;
    }
    bool talks =
        same && !now->gpu &&
        grown(before->talked, now->talked) >= elapsed_ns / NS_PER_MS * SLOW_TALKS_PER_S / 1000;
    /* As long as it cannot be compared, it is assumed. */
    f.polls = now->little && now->sleeps && now->addresses != 0 && (!placed || (same && !talks));
    if (!compared)
        return f;
    f.before_ns = before_ns;
    f.changed = now->little && placed && !same;
    if (grown(before->cpu_ns, now->cpu_ns) >= elapsed_ns / 100 * SLOW_BUSY_PERCENT)
        f.flags |= SIGN_BUSY;
    if (grown(before->bytes, now->bytes) >= elapsed_ns / NS_PER_MS * SLOW_BYTES_PER_S / 1000)
        f.flags |= SIGN_BYTES;
    if (now->hot && now->gpu && same) { /* NCCL's waiters spin so; without a GPU it computes */
        f.flags |= SIGN_SPINS;
        f.since_ns = was->since_ns;
    }
    if (before->follow == now->follow && !now->spinners &&
        now->threads_ns >= before->threads_ns + elapsed_ns / 100 * SIGNS_COMPUTES_PERCENT) {
        f.computes = slow_process(now);
        f.idle_ns = grown(before->idle_ns, now->idle_ns) / MAX2(elapsed_ns / NS_PER_S, 1);
    }
    return f;
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
