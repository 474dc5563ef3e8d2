#include "launcher/srun/lone_srun_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "io/file.h"
#include "io/process/proc.h"

#define NAME "muster-lifeline"

static int wait_for_head(int fd, void *arg) {
    const pid_t *srun = arg;
    struct proc_stat before, now;
    char byte;
    ssize_t n;
    (void)prctl(PR_SET_PDEATHSIG, 0); /* it outlives the head, for a moment */
    (void)setsid();
    if (!proc_read_stat(*srun, &before))
        return 0;
    do
        n = read(fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (proc_read_stat(*srun, &now) && now.start == before.start)
        (void)kill(*srun, SIGINT);
    return 0;
}

int lone_srun_watch(struct loop *loop, pid_t srun, struct lone_srun *ret) {
    int ends[2];
    lone_srun_watch_end(ret);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    int r = helper_start(loop, NAME, wait_for_head, &srun, ends[0], &ret->helper);
    file_close(&ends[0]);
    if (r < 0)
        file_close(&ends[1]);
    else
        ret->fd = ends[1];
    return r;
}

/* The process is killed before it can see the end of file. */
void lone_srun_watch_end(struct lone_srun *w) {
    helper_end(&w->helper);
    file_close(&w->fd);
    *w = (struct lone_srun)LONE_SRUN_INIT;
}
