/* Which python runs the workers. */
#pragma once

#include "base/err.h"

/* $PYTHON_EXEC of envp, else python3, else python, searched on its PATH; a full path, malloc'ed.
 * -ENOENT, -EACCES: the sentence has the remedy. */
_must_use_ int python_find(char *const *envp, char **ret, struct err *err);
