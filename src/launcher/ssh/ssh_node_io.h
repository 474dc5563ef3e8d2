/* The relay: `muster ssh-node`, which the head of an ssh job starts on each node. It starts the
 * node's agent, carries its output and verdict to the head, and ends it when the head has gone.
 * muster-protocol(7), OVER SSH.
 *
 *     head -- ssh -- sshd -- relay ── guardian ── agent ── workers
 *
 * sshd ends nothing when a connection without a terminal drops. So the relay does, in good order:
 *
 *     end of file on its input,     the agent's guardian gets SIGTERM; after the job's grace and
 *     silence, SIGTERM, SIGHUP      SSH_NODE_MORE_NS it is killed, and all below it with it
 *     relay killed                  the guardian gets SIGTERM by the kernel (PR_SET_PDEATHSIG), and
 *                                   SIGCONT, if it was stopped, as its process group is orphaned
 *     guardian killed               the agent kills all below it (guardian_io.h); the relay is a
 *                                   subreaper, and kills what is left of both, the agent last
 *
 * A head that stops reading holds the output up: the relay's queue is bounded, and then the agent's
 * log writer spools. Messages from the head are always read.
 *
 *     return ssh_node_run(&config);        the exit status of `muster ssh-node` */
#pragma once

#include "base/util.h"

/* How long a head may be silent before BOOT. Later: SSH_SILENCE_NS. */
#define SSH_NODE_BOOT_NS (30 * NS_PER_S)
/* Beyond the workers' grace, until the agent is killed. */
#define SSH_NODE_MORE_NS (800 * NS_PER_MS)
/* After the agent's end: for what still has its standard output open. */
#define SSH_NODE_DRAIN_NS (1 * NS_PER_S)
/* Until a relay whose head has gone ends without having been able to say so. */
#define SSH_NODE_FLUSH_NS (2 * NS_PER_S)

struct ssh_node_config { /* all borrowed */
    int in_fd, out_fd;   /* from and to the head: pipes or sockets; out_fd is closed at the end */
    const char *version; /* of muster */
    const char *program; /* muster itself: an absolute path */
    char *const *envp;   /* this login's environment */
    uint64_t boot_ns;    /* SSH_NODE_BOOT_NS, but in tests */
    uint64_t silence_ns; /* SSH_SILENCE_NS */
};

/* The agent's exit status; 128+n after a signal, also before BOOT; 1: it could not be started. */
int ssh_node_run(const struct ssh_node_config *config);
