/* The head of a job that is started over ssh (-H, --hostfile): it calls all hosts, has an agent
 * started on each (ssh_crew.h decides which, ssh_boot.h with what), shows what they write,
 * passes signals on, and its exit status is the job's (starter.h).
 *
 *     status = ssh_head_run(&config);
 *
 * A host that can't be reached or started is logged at once, with ssh's own last line. The job
 * continues without it if --nnodes allows; else everything ends, with status 75. If the head is
 * killed, the input of every ssh ends, and each relay (ssh_node_io.h) ends the job on its node. */
#pragma once

#include "launcher/starter/starter_io.h"

/* After an agent ended with an error, without a verdict: until the others end, if too few. */
#define SSH_HEAD_ALONE_NS (5 * NS_PER_S)
/* After a failure that ends the job, hosts are waited for so long, so that one start names all. */
#define SSH_HEAD_NAMING_NS (2 * NS_PER_S)
/* After the end of all hosts but those that the verdict counts as lost: how long these may take. */
#define SSH_HEAD_LOST_NS (3 * NS_PER_S)
/* Until hosts that are called, and have not answered, are named, and no longer expected at the
 * start: after that of the last one that has. ssh's own limit is 10 s, for the connection. */
#define SSH_HEAD_SILENT_NS (15 * NS_PER_S)
/* For how long the first host is waited for at least, when enough others are there. */
#define SSH_HEAD_FIRST_NS (2 * NS_PER_S)

/* The exit status of muster run. config.nodes is the number of hosts. */
int ssh_head_run(const struct starter_run_config *config);
