/* Whether a test leaves descriptors open, and what happens if there are no more. */
#pragma once

#include <dirent.h>
#include <sys/resource.h>

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

/* The lowest that is free. */
static inline rlim_t rig_free_fd(void) {
    int fd = dup(STDERR_FILENO);
    cr_assert_eq(close(fd), 0);
    return (rlim_t)fd;
}

/* Only those below n can be opened from now on. Returns the limit that was before. */
static inline struct rlimit rig_limit_fds(rlim_t n) {
    struct rlimit usual;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &usual), 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){n, usual.rlim_max}), 0);
    return usual;
}
