/* Between digest_io.c (the child and its deadline) and digest_look_io.c (what it looks at). */
#pragma once

#include "launcher/preflight/digest_io.h"

/* Blocks. early: the facts that cost nothing, before anything that may take long. */
void digest_look_early(const struct digest_config *c, struct digest *d);
/* Added to them: GPUs, adapters, versions; then what may hang for as long as it likes: the disk of
 * the log directory, and the node's own name. */
void digest_look_devices(const struct digest_config *c, struct digest *d);
void digest_look_disk(const struct digest_config *c, struct digest *d);
void digest_look_name(const struct digest_config *c, struct digest *d);
void digest_name_unresolved(const char *host, const char *why, struct digest *d);
