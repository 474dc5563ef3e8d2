/* The agent: one per node. Joins the rendezvous (and leads it where the endpoint is this node's),
 * runs the node's workers as the group's machines decide, shows progress to people, and ends with
 * the exit status of `muster run`. Glue only: what to do is decided by group, member and worker.
 *
 *     cmd_run: options → struct job_spec; listen_socket() → node_fd; guardian_fork() → link
 *     exit(agent_run(&config));
 */
#pragma once

#include "launcher/job/job.h"
#include "launcher/supervise/guardian_io.h"

struct agent_config {
    const struct job_spec *spec; /* all borrowed for the agent's life */
    char *const *envp;           /* what workers inherit */
    const char *python;          /* full path; NULL where no python is needed */
    int node_fd;                 /* the node's listening socket; taken */
    struct guardian_link *link;
};

/* Exit statuses, as torchrun's; 128+n when a signal ended it. */
enum { AGENT_EXIT_SUCCESS = 0, AGENT_EXIT_FAILED = 1 };

/* Runs the job on this node to its end. Failures are reported, and only the exit status is
 * returned. */
int agent_run(const struct agent_config *config);
