/* What this machine offers, for "muster version -v". Looks, and changes nothing. */
#pragma once

#include "base/strbuf.h"

/* Adds one line "  name   text" per finding; what is not there is said too. */
void found_kernel(struct strbuf *out);
void found_cgroup(struct strbuf *out);
void found_programs(struct strbuf *out);
