/* The job as the agent on one host gets it, where the head has arranged how the nodes meet. Pure.
 *
 *     struct ssh_place place = {.host = 1, .first = 0, .addr = addr, .port = port};
 *     struct job_spec job = ssh_job_of(&spec, &place);       borrows from spec and place
 *
 * What the user has given counts on all hosts. */
#pragma once

#include "launcher/job/job.h"

struct ssh_place {
    size_t host;  /* which of the job's hosts; one before `first` has come late, and goes last */
    size_t first; /* node 0: the first host that can be reached */
    const char *addr; /* its address, from ssh_meeting_addr() */
    uint16_t port;    /* at which it listens */
};

/* Its texts are those of spec and place: it is not to be freed. */
struct job_spec ssh_job_of(const struct job_spec *spec, const struct ssh_place *place);

/* Of the addresses that node 0 has sent in HELLO, the one at which the others meet it: the first
 * that is not only of that machine. Malloc'ed; never NULL. */
_must_use_ char *ssh_meeting_addr(const char *addrs);
