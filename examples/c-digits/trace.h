/* One line per event appended to a file: "GENERATION NANOSECONDS EVENT RANK [EPOCH]".
 *
 * EVENT is start, progress or end; NANOSECONDS is CLOCK_MONOTONIC, so lines of one machine can be
 * compared. "end" is also written when SIGTERM, SIGINT or SIGHUP ends the process; the signal still
 * kills it. The file shows a test that two generations were never alive at the same time. */
#pragma once

/* path may be NULL: no trace. 0, or -1 after a message on stderr. */
int trace_open(const char *path, const char *generation, unsigned rank);
void trace_progress(unsigned epoch);
