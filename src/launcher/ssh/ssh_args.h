/* What muster adds to the user's own words on each host, so that its agents meet. Pure.
 *
 *     struct ssh_place place = {.host = 1, .first = 0, .addr = addr};
 *     ssh_args(&spec, &place, args, &boot);
 *
 * The added words stand before the user's, which win: of an option that is given twice, the last
 * value counts. */
#pragma once

#include "launcher/job/job.h"
#include "launcher/ssh/ssh_wire.h"

struct ssh_place {
    size_t host;  /* which of the job's hosts; one before `first` has come late, and goes last */
    size_t first; /* node 0: the first host that can be reached */
    const char *addr; /* its address, from ssh_meeting_addr() */
    uint16_t port;    /* at which it listens; 0: not known */
};

/* Adds what the host gets to boot->args and boot->env. args: what the user wrote behind "run",
 * NULL-terminated. */
void ssh_args(const struct job_spec *spec, const struct ssh_place *place, char *const *args,
              struct ssh_boot *boot);

/* Of the addresses that node 0 names in HELLO, that at which the others meet it: the first that is
 * not only of that machine. Malloc'ed; never NULL. */
_must_use_ char *ssh_meeting_addr(const char *addrs);
