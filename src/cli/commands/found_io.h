/* What muster was built with and what this machine offers, for "muster version -v". Looks, and
 * changes nothing. Each adds lines "  name   text"; what is not there is said too. */
#pragma once

#include "base/text/strbuf.h"

void found_built(struct strbuf *out);
void found_here(struct strbuf *out);
