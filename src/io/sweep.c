#include "io/sweep.h"

#include <dirent.h>

#include "io/clock.h"
#include "io/file.h"

#define NAMES_AT_ONCE 64 /* reading a name takes less time than reading the clock */

void sweep_dir(int fd, uint64_t until_ns, sweep_fn fn, void *arg) {
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        file_close(&fd);
        return;
    }
    const struct dirent *e;
    bool in_time = true;
    for (uint32_t seen = 0; in_time && seen < SWEEP_SEEN_MAX && (e = readdir(dir)) != NULL; seen++)
        if (fn(fd, e->d_name, arg) || seen % NAMES_AT_ONCE == NAMES_AT_ONCE - 1)
            in_time = clock_now_ns() < until_ns;
    (void)closedir(dir);
}
