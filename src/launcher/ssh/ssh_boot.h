/* What begins an agent on a host over ssh: the command that calls the host, and what its relay
 * (`muster ssh-node`) gets then: environment, job, and how they are sent. Later messages are those
 * of launcher/starter/starter.h. Pure; specified in muster-protocol(7), OVER SSH.
 *
 *     anything that a login prints, then the line MUSTER-SSH 1, from the node
 *     BOOT, from the head: what to start; large ones as several BOOT_PART and one BOOT. They are
 *     NUL-terminated texts, because words and variables need not be UTF-8.
 *
 * The job ends on that node with the head's stream, or if it is silent for SSH_SILENCE_NS. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/envlist.h"
#include "base/text/strbuf.h"
#include "launcher/job/job.h"
#include "launcher/starter/starter.h"

/* ==== the command ====
 *
 *     r = ssh_words("ssh -i '/my key'", &words, &err);          of --ssh
 *     argv = ssh_command(words, &host, "exec /usr/bin/muster ssh-node");
 *     words_free(argv); words_free(words);
 *
 *     WORDS [-p PORT] [-l USER] -T -x -o BatchMode=yes -o … -- HOST COMMAND
 *
 * ssh takes an option's first value (ssh_config(5)), so those in WORDS win over muster's own. */

/* Splits a command as a shell would, without anything beside words and quotes: '…' is as it stands,
 * in "…" and outside of quotes a backslash makes the next character an ordinary one. *ret is
 * NULL-terminated and not empty; -EINVAL: a quote that is not closed, or no word. */
_must_use_ int ssh_words(const char *text, char ***ret, struct err *err);

/* NULL-terminated; freed with words_free(). */
_must_use_ char **ssh_command(char *const *words, const struct host *host, const char *command);

/* The same for a command of a batch system, which has none of ssh's options: FOLDER/WORDS HOST
 * COMMAND, or FOLDER/WORDS JOB. folder: NULL: the program is on PATH. command: NULL: none. */
_must_use_ char **ssh_command_of(const char *const words[LAUNCHER_WORDS_MAX], const char *folder,
                                 const char *object, const char *command);

/* For people, the beginning of a line that runs muster on this host: "ssh -p 22 -l me HOST
 * PROGRAM"; malloc'ed. ssh: as --ssh has it; program: a word that needs no quotes. */
_must_use_ char *ssh_ask_line(const char *ssh, const struct host *host, const char *program);

/* "exec PROGRAM ssh-node" for sh, bash, zsh, csh, fish; malloc'ed. -EINVAL: control characters. */
_must_use_ int ssh_remote_command(const char *program, char **ret, struct err *err);

/* ==== the environment: --export ====
 *
 * Items, separated by commas, as those of srun's --export (srun(1)), and PREFIX*:
 *
 *     ALL           all but those that belong to this machine, this login or this job of Slurm
 *     NONE          nothing, if it is alone
 *     NAME          this one, if it is set, also if ALL leaves it out
 *     PREFIX*       all whose names begin so, the same
 *     NAME=VALUE    this value (which can have no comma)
 *
 * An empty item is none. Of two that give a variable a value, the later counts. What the relay's
 * own login has and none of these names stays as it is there. */

/* names: NULL is ALL. *ret must be empty; the caller owns it. -EINVAL: what is wrong with names. */
_must_use_ int ssh_env(const char *names, char *const *envp, struct envlist *ret, struct err *err);
/* Takes out what an agent that is started on this machine, but not by Slurm, must not see. */
void ssh_env_leave_slurm(struct envlist *env);

/* ==== what a relay gets ==== */

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

/* What the relay is to start: `muster run`, with these variables over those of the login there. */
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
/* Gathers BOOT_PART and BOOT. FRAME_E_MORE; 0: *ret is whole; -EINVAL, -EMSGSIZE and a sentence. */
_must_use_ int ssh_boot_take(struct strbuf *parts, const struct starter_message *m,
                             struct ssh_boot *ret, struct err *err);

/* ==== the job of one host ==== */

/* The job as the agent on one host gets it, where the head has arranged how the nodes meet: at
 * this address and port of node 0, `first`. A host before that has come late, and goes last. What
 * the user has given counts on all hosts. Its texts are borrowed: it is not to be freed. */
struct job_spec ssh_job_of(const struct job_spec *spec, size_t host, size_t first, const char *addr,
                           uint16_t port);

/* Of node 0's addresses (HELLO), the first that others can reach. Malloc'ed; never NULL. */
_must_use_ char *ssh_meeting_addr(const char *addrs);

/* ==== the crew: which hosts are called, and which take part ====
 *
 *     ssh_crew_init(&c, n, min, meets);
 *     while (ssh_crew_next(&c, &i)) — CALL: start host i's ssh; LISTEN: its relay is to listen;
 *                                     BOOT: its agent; TOO_FEW: end
 *     … ssh_crew_hello(&c, i), ssh_crew_hangs(&c, i), ssh_crew_listens(&c, i),
 *     ssh_crew_gone(&c, i, failed), then ssh_crew_next() again
 *
 *     WAITING -> CALLED -> READY -> BOOTED -> ENDED        each host
 *         `---------`---------`--------`----> FAILED
 *
 * At most SSH_IN_FLIGHT hosts are called and have not answered: logging in costs CPU time here, and
 * sshd refuses some of many at once. One that hangs gives its slot to the next, but may still
 * answer. The first host that has not failed is node 0, at whose address all meet, if the head
 * arranges that. Nothing is booted before it listens, unless the caller passes it over: then node 0
 * is the first that has answered. */

#define SSH_IN_FLIGHT 64

enum ssh_crew_state {
    SSH_CREW_WAITING = 1,
    SSH_CREW_CALLED, /* its ssh was started */
    SSH_CREW_HANGS,  /* the same, and it takes long: it does not count as in flight */
    SSH_CREW_READY,  /* its relay has sent HELLO */
    SSH_CREW_BOOTED, /* its agent was started */
    SSH_CREW_ENDED,  /* its agent has ended by itself */
    SSH_CREW_FAILED, /* it could not be reached or started, or was lost */
};

enum ssh_crew_do {
    SSH_CREW_DO_NOTHING = 0,
    SSH_CREW_DO_CALL,
    SSH_CREW_DO_LISTEN, /* the leader, before the first BOOT; again for the next if it fails */
    SSH_CREW_DO_BOOT,
    SSH_CREW_DO_TOO_FEW, /* once; afterwards nothing is called or booted */
};

/* Where the hosts meet. */
enum ssh_crew_meeting {
    SSH_CREW_MEETS_ELSEWHERE = 1, /* the user has arranged it */
    SSH_CREW_MEETS_UNASKED,       /* at the leader, which is to be asked to listen */
    SSH_CREW_MEETS_ASKED,
    SSH_CREW_MEETS_THERE, /* it listens */
};

struct ssh_crew {
    uint32_t n, min;
    enum ssh_crew_meeting meeting;
    uint8_t *states; /* owned: enum ssh_crew_state of each host */
    uint32_t next;   /* the first that was not called */
    uint32_t leader; /* the first that has not failed, or been passed over; n: all have */
    uint32_t in_flight, n_hanging, n_failed, n_gone;
    bool closed; /* nothing more is called or booted */
};

/* meets: at the leader; else the user has arranged where. */
void ssh_crew_init(struct ssh_crew *c, uint32_t n, uint32_t min, bool meets);
void ssh_crew_fini(struct ssh_crew *c);

/* What is to be done next; *ret is the host. The state has changed as if it was done. */
enum ssh_crew_do ssh_crew_next(struct ssh_crew *c, uint32_t *ret);

/* The first host has not answered yet, but enough others have that the job can run. */
bool ssh_crew_can_pass_over(const struct ssh_crew *c);
/* Then it does, and so for others before the first that has answered: they hang. */
void ssh_crew_pass_over(struct ssh_crew *c);

/* Its login has not answered for long. */
void ssh_crew_hangs(struct ssh_crew *c, uint32_t host);
void ssh_crew_hello(struct ssh_crew *c, uint32_t host);
/* Its relay listens. False: it is not the leader that was asked. */
_must_use_ bool ssh_crew_listens(struct ssh_crew *c, uint32_t host);
/* Its ssh has ended. A host that was gone before does not count again. */
void ssh_crew_gone(struct ssh_crew *c, uint32_t host, bool failed);
/* Nothing more is called or booted. */
void ssh_crew_close(struct ssh_crew *c);

/* Its ssh was started, and has not answered. */
bool ssh_crew_is_called(const struct ssh_crew *c, uint32_t host);

static inline enum ssh_crew_state ssh_crew_state(const struct ssh_crew *c, uint32_t host) {
    return c->states[host];
}
/* No host is left that could still take part or end. */
bool ssh_crew_is_over(const struct ssh_crew *c);
