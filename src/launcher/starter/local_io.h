/* Starts all agents of a job on this machine: --nnodes of them, as if each were a node. To try a
 * job of several nodes, and for tests. The smallest backend of starter/starter_io.h. */
#pragma once

#include "launcher/starter/starter_io.h"

/* The exit status of muster run. */
int local_run(const struct starter_run_config *config);
