/* Loads NVML and asks it everything: what runs in the child process of nvml_io, where a call that
 * never returns and a library that crashes do no harm.
 *
 * Every call but the first few is optional, and an older name replaces a newer one that is missing.
 * Calls are announced before they are made, so that the reader knows which call hangs. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

struct nvml_ask_config {
    const char *library;
    bool names_only; /* no details, links and processes of the GPUs */
};

/* Writes the frames of nvml_report.h to fd; false when that failed. Never call it in a process
 * that shall live on. */
bool nvml_ask(const struct nvml_ask_config *config, int fd);
