#include <setjmp.h>
#include <signal.h>

#include "world.h"

static sigjmp_buf aborted;

static void on_abort(int sig) { siglongjmp(aborted, 1); }

bool world_try(const struct world_params *p, struct world_coverage *coverage, char what[WORLD_WHAT_MAX]) {
    what[0] = '\0';
    struct world *volatile w = NULL;
    void (*volatile before)(int) = signal(SIGABRT, on_abort);
    if (sigsetjmp(aborted, 1) == 0) {
        w = world_new(p, coverage);
        if (!world_run_to(w, TIME_NEVER))
            (void)snprintf(what, WORLD_WHAT_MAX, "%s", world_failure(w));
    } else {
        (void)snprintf(what, WORLD_WHAT_MAX, "at %.6f s: an assertion of the machines failed",
                       (double)world_now(w) / 1e9);
    }
    (void)signal(SIGABRT, before);
    world_free(w);
    return what[0] == '\0';
}
