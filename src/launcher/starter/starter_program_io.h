/* The program that a starter has started on the nodes: muster itself. */
#pragma once

#include "base/err.h"

/* This program as an absolute path, malloc'ed: the file that was called, also if it is a link in an
 * environment of Python's. argv0: how it was called. */
_must_use_ int starter_program(const char *argv0, char *const *envp, char **ret, struct err *err);
/* The same, but what a link named torchrun leads to: by that name there are no other commands. */
_must_use_ int starter_real_program(const char *argv0, char *const *envp, char **ret,
                                    struct err *err);
/* For a line that people copy: its path, malloc'ed; "muster" if that needs quotes or is unknown. */
_must_use_ char *starter_program_word(const char *argv0, char *const *envp);
/* The folder's name as the shell has it, malloc'ed: other hosts may reach it by the same links
 * only. NULL, and errno: it has none. */
_must_use_ char *starter_folder(char *const *envp);
/* Logs, with -v, the command that is run. */
void starter_log_command(char *const *argv);
