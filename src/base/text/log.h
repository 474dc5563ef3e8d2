/* Log lines on the launcher's standard error. Only src/launcher and src/cli log above debug level;
 * all other code returns errors.
 *
 * A line is "muster: text" or "muster: error: text"; each event is one line. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

enum log_level {
    LOG_LEVEL_ERROR = 1,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_NOTICE,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
};

/* Receives each complete line with its newline. */
typedef void log_sink_fn(void *arg, const char *line, size_t len);

void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);
/* Sets where lines go; NULL: directly to standard error (the default). */
void log_set_sink(log_sink_fn *fn, void *arg);
/* From now on lines are "muster: NAME: text". Borrowed; NULL, as from the start: no name. */
void log_set_name(const char *name);
/* The names of LOGLEVEL: DEBUG, INFO, WARNING, ERROR, CRITICAL, NOTICE. 0 or -EINVAL. */
_must_use_ int log_level_parse(const char *name, enum log_level *ret);

void log_line(enum log_level level, const char *fmt, ...) _printf_(2, 3);
/* The same in lines of at most 100 columns: broken behind a semicolon if possible, and indented. */
void log_folded(enum log_level level, const char *fmt, ...) _printf_(2, 3);
/* A callback: logs the line as a warning. */
void log_warning_line(void *arg, const char *line);
#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
/* For what users want to see by default: waiting, failures, restarts. */
#define log_notice(...) log_line(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
