/* Loads NVML and asks it everything. This code runs in the child process of nvml_io, where a call
 * that never returns or a library that crashes does no harm.
 *
 * Every call but the first few is optional. If a newer name is missing, an older one is used. The
 * child announces each call before it makes it, so that the reader knows which call hangs. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

struct nvml_ask_config {
    const char *library;
    bool names_only; /* no details, links and processes of the GPUs */
};

/* Writes the frames of nvml_report.h to fd; false when that failed. Never call it in a process that
 * must continue. */
bool nvml_ask(const struct nvml_ask_config *config, int fd);
