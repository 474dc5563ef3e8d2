/* Which python runs the workers. */
#pragma once

#include "base/err.h"

/* $PYTHON_EXEC of envp, which wins under torchrun, too. Else python3, or python, beside our own
 * file, beside what that file is a link to, or on PATH: the first of these that belongs to an
 * environment (venv, conda), else the first of these. A full path, malloc'ed; links in it are kept,
 * since an environment's python is one. argv0: as this program was called
 * (program_invocation_name); NULL: unknown. -ENOENT, -EACCES: the sentence has the remedy. */
_must_use_ int python_find(const char *argv0, char *const *envp, char **ret, struct err *err);
/* Warns if VIRTUAL_ENV and CONDA_PREFIX name environments of this host, but python, a result of
 * python_find(), is in none of them. Not if PYTHON_EXEC chose it. */
void python_warn_of_other(const char *python, char *const *envp);
