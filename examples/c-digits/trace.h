/* One line per event appended to a file: "GENERATION NANOSECONDS EVENT RANK [EPOCH]".
 *
 * EVENT is start, progress or end; NANOSECONDS is CLOCK_MONOTONIC, so lines of one machine compare.
 * "end" is also written when SIGTERM, SIGINT or SIGHUP ends the process (it still dies of it). From
 * the file a test can tell that no two generations were ever alive at once. */
#pragma once

/* path may be NULL: no trace. 0, or -1 after a message on stderr. */
int trace_open(const char *path, const char *generation, unsigned rank);
void trace_progress(unsigned epoch);
