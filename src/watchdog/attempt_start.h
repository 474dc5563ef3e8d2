/* How long the workers of an attempt took to begin training, from samples once a second, of the
 * average rank. Exact to about two seconds. */
#pragma once

#include <stdint.h>

struct attempt_start {
    uint64_t import_ns; /* Python imported modules */
    uint64_t init_ns;   /* torch.distributed made its groups */
    uint64_t load_ns;   /* a checkpoint was loaded */
    /* From the start of the workers to the first tick at which a rank is in backward or in the
     * optimizer; 0: there was none yet */
    uint64_t first_step_ns;
};
