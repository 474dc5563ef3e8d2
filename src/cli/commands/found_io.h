/* What muster was built with, and what this machine has, for "muster version -v". It changes
 * nothing. Each adds lines " name text"; missing items are listed, too. */
#pragma once

#include "base/text/strbuf.h"

void found_built(struct strbuf *out);
void found_here(struct strbuf *out);
