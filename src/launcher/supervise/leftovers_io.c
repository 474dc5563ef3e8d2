#include "launcher/supervise/leftovers_io.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "launcher/output/tempdir_io.h"
#include "launcher/supervise/cgroup_io.h"
#include "launcher/supervise/guardian_io.h"
#include "rendezvous/operate/leader_file_io.h"
#include "rendezvous/operate/registry_io.h"

/* This process is in the group that its guardian made; other agents' groups are beside it. */
static void sweep_cgroups(uint64_t until_ns) {
    _cleanup_(freep) char *path = NULL;
    char *own = cgroup_own_path(&path) == 0 ? strrchr(path, '/') : NULL;
    if (own == NULL || own == path ||
        strncmp(own + 1, GUARDIAN_CGROUP_PREFIX, strlen(GUARDIAN_CGROUP_PREFIX)) != 0)
        return;
    *own = '\0';
    int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return;
    cgroup_sweep(parent, GUARDIAN_CGROUP_PREFIX, until_ns);
    (void)close(parent);
}

#define KINDS 4

static void sweep_kind(unsigned kind, enum job_contain contain, uint64_t until_ns) {
    if (kind == 0)
        (void)tempdir_sweep(until_ns);
    else if (kind == 1)
        registry_sweep(until_ns);
    else if (kind == 2)
        leader_file_sweep(until_ns);
    else if (contain == JOB_CONTAIN_CGROUP)
        sweep_cgroups(until_ns);
}

static int sweep(int fd, void *arg) {
    const enum job_contain *contain = arg;
    (void)fd;
    for (unsigned kind = 0; kind < KINDS; kind++)
        sweep_kind(kind, *contain, clock_now_ns() + LEFTOVERS_NS / KINDS);
    return 0;
}

void leftovers_sweep_some(enum job_contain contain) {
    sweep_kind((unsigned)getpid() % KINDS, contain, clock_now_ns() + LEFTOVERS_SOME_NS);
}

int leftovers_sweep(struct loop *loop, enum job_contain contain, struct helper *ret) {
    return helper_start(loop, "muster-tidy", sweep, &contain, -1, ret);
}
