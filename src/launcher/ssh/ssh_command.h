/* The command that reaches a host, and what it is to run there. Pure.
 *
 *     r = ssh_words("ssh -i '/my key'", &words, &err);          of --ssh
 *     argv = ssh_command(words, &host, "exec /usr/bin/muster ssh-node");
 *     words_free(argv); words_free(words);
 *
 *     WORDS [-p PORT] [-l USER] -T -x -o BatchMode=yes -o … -- HOST COMMAND
 *
 * ssh takes the first value that it finds for an option (ssh_config(5)), so those in WORDS win over
 * muster's own. */
#pragma once

#include "base/err.h"
#include "launcher/hosts/hosts.h"
#include "launcher/place/launchers.h"

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

/* "exec PROGRAM ssh-node", in words that sh, bash, zsh, csh and fish read alike; malloc'ed.
 * -EINVAL: the path has a line break or another control character. */
_must_use_ int ssh_remote_command(const char *program, char **ret, struct err *err);
