/* --health-check: a command of the user checks whether this node is fit for a job.
 *
 * `/bin/sh -c COMMAND` runs in a process group of its own, which is killed when the shell ends or
 * the time is up. Its standard input is /dev/null. Its environment has MUSTER_HEALTH_WHEN. */
#pragma once

#include "io/process/reaper.h"

/* By the exit status of the shell. Nagios-style tools (0 to 3) and tools without the right to check
 * need a mapping in the command: only 1 may cost a node its place. */
enum health_result {
    HEALTH_FIT = 0,   /* 0 */
    HEALTH_NOT_FIT,   /* 1 */
    HEALTH_NOT_KNOWN, /* 2 and more, 126, 127, a signal, the time is up, the shell can't be run */
};

#define HEALTH_TEXT_MAX 256 /* RDZV_SICK_MAX */
#define HEALTH_LINE_MAX 200 /* bytes of the command's line in it */

struct health_check_config { /* borrowed for the call */
    const char *command;
    char *const *envp;
    bool after_failure;   /* MUSTER_HEALTH_WHEN: failure, else join */
    uint64_t timeout_ns;  /* > 0 */
    uint64_t nofile_soft; /* as in struct child_spec */
};

/* text: NOT_FIT: the reason, the last line that is not empty of its standard output, else of its
 * standard error; NOT_KNOWN: what happened, with the same. One line of UTF-8. */
typedef void health_check_fn(void *arg, enum health_result result, const char *text);

struct health_check;
/* fn is called once, from the loop; then the check is freed. 0 or -errno with a reason. */
_must_use_ int health_check_new(struct loop *loop, struct child_reaper *reaper,
                                const struct health_check_config *config, health_check_fn *fn,
                                void *arg, struct health_check **ret, struct err *err);
/* Kills the group; fn is not called. Takes NULL. */
void health_check_free(struct health_check *c);
