/* How a starter and its relay on a node (`muster ssh-node`) begin, on ssh's stdin and stdout. Then
 * they exchange messages (launcher/starter/starter_wire.h). Pure; specified in muster-protocol(7),
 * OVER SSH.
 *
 *     anything that a login prints, then the line MUSTER-SSH 1, from the node
 *     BOOT, from the head: what to start; large ones as several BOOT_PART and one BOOT. They are
 *     NUL-terminated texts, because words and variables need not be UTF-8.
 *
 * The job ends on that node with the head's stream, or if it is silent for SSH_SILENCE_NS. */
#pragma once

#include "base/err.h"
#include "base/text/envlist.h"
#include "base/text/strbuf.h"
#include "launcher/job/job.h"
#include "launcher/starter/starter_wire.h"

#define SSH_BEGIN "\nMUSTER-SSH 1\n"      /* the node's first bytes */
#define SSH_NOISE_MAX ((size_t)64 * 1024) /* before them: from files that a login shell reads */
/* All parts of a BOOT. Linux starts no program with more than 6 MiB of words and environment, and
 * usually none with more than 2 (execve(2), "Limits on size of arguments and environment"). */
#define SSH_BOOT_MAX ((size_t)6 << 20)
#define SSH_PING_NS (5 * NS_PER_S)     /* the head sends a PING this often */
#define SSH_SILENCE_NS (60 * NS_PER_S) /* then it is gone, also if its end has not come */

/* Looks for the node's first line. 0: the frames begin behind *ret_bytes; FRAME_E_MORE: it has not
 * come yet; -EMSGSIZE: it is not within SSH_NOISE_MAX; -EPROTONOSUPPORT: another version's. */
_must_use_ int ssh_find_begin(const uint8_t *data, size_t len, size_t *ret_bytes);

/* What the relay is to start: itself as `muster run`, in a folder, with these variables over those
 * that the login there has. The agent reads the job, and no command line. */
struct ssh_boot {
    char *cwd;         /* owned; absolute */
    uint64_t grace_ns; /* --shutdown-timeout: how long an agent may take to stop */
    char *job;   /* owned; JSON, as the agent reads it; NULL: the words are its command line */
    char **args; /* owned, NULL-terminated: all words behind "run", for ps(1) and muster ps */
    size_t n_args;
    struct envlist env;
};
void ssh_boot_fini(struct ssh_boot *boot);
/* Appends the frames. -E2BIG, and a sentence: more than SSH_BOOT_MAX. */
_must_use_ int ssh_boot_add(const struct ssh_boot *boot, struct strbuf *to, struct err *err);
/* Gathers BOOT_PART and BOOT. FRAME_E_MORE: more parts follow; 0: *ret, which the caller owns, is
 * whole; -EINVAL or -EMSGSIZE and a sentence. */
_must_use_ int ssh_boot_take(struct strbuf *parts, const struct starter_message *m,
                             struct ssh_boot *ret, struct err *err);

/* ==== the job of one host ==== */

/* The job as the agent on one host gets it, where the head has arranged how the nodes meet.
 *
 *     struct ssh_place place = {.host = 1, .first = 0, .addr = addr, .port = port};
 *     struct job_spec job = ssh_job_of(&spec, &place);       borrows from spec and place
 *
 * What the user has given counts on all hosts. */
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
