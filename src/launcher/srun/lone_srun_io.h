/* What ends the step if the head is killed while no agent knows of it: the agent that leads notices
 * a killed head only if it was connected (starter_link_io.h). Until one is, and where none can
 * reach the head's machine, a process waits here for the head's end, and then interrupts srun. srun
 * passes one SIGINT on to every agent, which ends its node's part of the job in order (head.h).
 *
 *     lone_srun_watch(loop, srun_pid, &w);         no agent that leads is connected
 *     lone_srun_watch_end(&w);                     one is, or srun has ended
 *
 * The process is in a session of its own, so what kills the head's process group spares it. */
#pragma once

#include "io/process/helper.h"

struct lone_srun {
    struct helper helper;
    int fd; /* the process sees its end of file; -1: there is none */
};
#define LONE_SRUN_INIT \
    { .helper = HELPER_INIT, .fd = -1 }

/* Replaces one that is there. Returns 0, or a negative errno: then nothing watches. */
_must_use_ int lone_srun_watch(struct loop *loop, pid_t srun, struct lone_srun *ret);
/* LONE_SRUN_INIT is fine, too. */
void lone_srun_watch_end(struct lone_srun *w);
