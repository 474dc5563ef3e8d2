/* Lists of TCP ports, such as "29400-29403,30000": each port once, in their order. Pure. */
#pragma once

#include "base/text/strbuf.h"

/* 0, and 1 to `max` ports in ret; -EINVAL: an item is neither a port from 1 to 65535 nor LOW-HIGH;
 * -E2BIG: more than max; -EEXIST: a port is there twice. */
_must_use_ int port_list_parse(const char *text, unsigned max, uint16_t *ret, unsigned *ret_n);
/* Appends the list; three or more consecutive ports as LOW-HIGH. */
void port_list_text(const uint16_t *ports, unsigned n, struct strbuf *out);
