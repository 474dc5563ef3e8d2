/* How this program was installed, and which torchrun runs, by files, for "muster version -v". */
#pragma once

#include "base/text/strbuf.h"

/* Adds lines with its path, its package, and the first torchrun on the PATH of envp. */
void installed_add(char *const *envp, struct strbuf *out);
