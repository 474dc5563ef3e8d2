/* Which python runs the workers. */
#pragma once

#include "base/err.h"

/* $PYTHON_EXEC, as under torchrun. Else python3, or python, beside our own file, beside what that
 * is a link to, or on PATH: the first that belongs to an environment (venv, conda), else the first.
 * A full path, malloc'ed, with its links, since an environment's python is one. argv0: as this
 * program was called; NULL: unknown. -ENOENT, -EACCES: the sentence has the remedy. */
_must_use_ int python_find(const char *argv0, char *const *envp, char **ret, struct err *err);
/* Warns if VIRTUAL_ENV and CONDA_PREFIX name environments of this host, but python, a result of
 * python_find(), is in none of them. Not if PYTHON_EXEC chose it. */
void python_warn_of_other(const char *python, char *const *envp);
