/* Which workers have a connection to the workers' store. One that has none while others have has
 * not come so far as to join them, or has left. */
#pragma once

#include "watchdog/evidence/evidence.h"

/* Sets at_store or not_at_store of the workers that are in *e: whether the worker, or a child, has
 * an established TCP connection to this port. Neither is set if that can't be read. And
 * awaits_rank: whether its main thread waits on a connection to it, or to another worker. */
void store_links(struct evidence *e, uint16_t port);
