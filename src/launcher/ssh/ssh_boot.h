/* What begins an agent on a host over ssh: the command that calls the host, and what its relay
 * (`muster ssh-node`) gets then: environment, job, and how they are sent. Later messages are those
 * of launcher/starter/starter_wire.h. Pure; specified in muster-protocol(7), OVER SSH.
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
