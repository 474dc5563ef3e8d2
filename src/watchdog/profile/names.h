/* The names of modules, functions and calls by which profile/infer.h recognizes what a stack does:
 * data, with the reason and the version of the library beside each row. */
#pragma once

#include <stdbool.h>

#include "watchdog/profile/infer.h"

/* enum profile_calls of a source line, such as "    loss.item()". */
unsigned profile_calls_of(const char *line);
/* A thread of this name moves data for others: its work does not count as the rank's. */
bool profile_is_transport_thread(const char *name);
