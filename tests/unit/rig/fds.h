/* Whether a test leaves descriptors open. */
#pragma once

#include <dirent.h>

#include "rig/unit.h"

/* How many descriptors this process has open, and some constant number. */
static inline unsigned rig_open_fds(void) {
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    cr_assert_not_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}
