/* How long it takes to gather the evidence of processes that run Python, in a process of its own, as the agent's helper
 * does:
 *
 *     gathertime PID ...      prints nanoseconds, and the number of main threads whose Python stack was read */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/clock.h"
#include "watchdog/evidence/gather_io.h"

int main(int argc, char **argv) {
    struct gather_worker *workers = xcalloc((size_t)argc, sizeof *workers);
    for (int i = 1; i < argc; i++)
        workers[i - 1] = (struct gather_worker){.of.rank = (uint32_t)i - 1,
                                                .of.local_rank = (uint32_t)i - 1,
                                                .of.pid = atoi(argv[i]),
                                                .of.still_ns = 30 * NS_PER_S,
                                                .ran_ns = 1};
    struct gather_ask ask = {.node = "here", .workers = workers, .n = (size_t)argc - 1, .timeout_ns = 30 * NS_PER_S};
    struct evidence e;
    uint32_t stacks = 0;
    uint64_t began = clock_now_ns();
    gather_now(&ask, &e);
    struct strbuf json = {0};
    evidence_write(&e, &json);
    uint64_t took = clock_now_ns() - began;
    for (uint32_t i = 0; i < e.n_workers; i++)
        stacks += e.workers[i].n_threads > 0 && e.workers[i].threads[0].stack >= 0;
    (void)printf("%" PRIu64 " %" PRIu32 " %zu\n", took, stacks, json.len);
    strbuf_fini(&json);
    evidence_fini(&e);
    free(workers);
    return 0;
}
