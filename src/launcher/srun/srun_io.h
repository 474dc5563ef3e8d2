/* Runs the head (head.h): one loop with the srun child, the signals and a listening socket where
 * the agent that leads tells how the job ended.
 *
 *     status = srun_run(&config);       returns when srun has ended; errors are reported
 *
 * The socket is at all of this machine's addresses, at any free port (--port-range). Whoever
 * connects has STARTER_GREETING_NS to prove by TLS that it has the job's key (starter_key_io.h; not
 * on a loopback address, which the kernel answers for), and to send LEAD with the token. At most
 * STARTER_STRANGERS_MAX may be about it at once: then the oldest is disconnected. Nothing that a
 * stranger does has another effect.
 *
 * If the head is killed, srun stays. The agent that leads finds that nobody listens here any more
 * (starter_link_io.h), and ends the job in order. */
#pragma once

#include "launcher/job/job.h"
#include "launcher/place/place.h"
#include "launcher/starter/starter.h"
#include "rendezvous/auth/keyring_io.h"

#define STARTER_GREETING_NS (5 * NS_PER_S)
#define STARTER_STRANGERS_MAX 16
#define STARTER_LINKS_MAX 64 /* connections with the token: agents that lead, or have led */

struct srun_config { /* all borrowed */
    const struct job_spec *spec;
    const struct place *place;
    uint32_t nodes;
    char *const *args; /* what the user wrote behind "run", NULL-terminated */
    char *const *envp;
    const struct keyring *keys; /* that the user has given */
    const char *argv0;  /* how this program was called: the nodes call it by the same path */
    const char *python; /* which would run the workers here; NULL: none, or none is needed */
};

/* The exit status of muster run. */
int srun_run(const struct srun_config *config);
