/* The agent: one per node. It joins the rendezvous, or leads it, runs the node's workers, shows
 * progress, and ends with the exit status of `muster run`. The pure machines make the decisions. */
#pragma once

#include "io/loop.h"
#include "launcher/job/job.h"
#include "launcher/supervise/guardian_io.h"
#include "rendezvous/arbiter/arbiter_io.h"
#include "rendezvous/auth/keyring_io.h"

struct agent_config {
    const struct job_spec *spec; /* all borrowed for the agent's life */
    char *const *envp;           /* what workers inherit */
    struct keyring *given;       /* the keys that were given; NULL: none */
    const char *python;          /* full path; NULL if no python is needed */
    int node_fd;                 /* the node's listening socket; the agent owns it */
    int launcher_fd;             /* pidfd of the process manager; -1: none. The agent owns it */
    struct guardian_link *link;
    struct keyring *keys; /* the agent owns it */
};

/* Exit statuses: torchrun's and one more; 128+n for a signal; --exit-code=worker: the worker's. */
enum {
    AGENT_EXIT_SUCCESS = 0,
    AGENT_EXIT_FAILED = 1,
    /* the request can't be fulfilled, or the run had finished before this agent was started */
    AGENT_EXIT_USAGE = 2,
    /* The job failed, but not because of its program: nodes were lost, too few came, or no leader
     * was found. EX_TEMPFAIL of sysexits.h; a value for Slurm's RequeueExit, slurm.conf(5). */
    AGENT_EXIT_NO_FAULT = 75,
};

/* Call this first: until there are workers, signals that only they understand (SIGUSR1, ...), and
 * that don't end the job, are ignored. They would end this process. */
void agent_ignore_passed_signals(const struct job_spec *spec);

/* A leader is also a node of its own group, and local workers reach each other over loopback. */
#define AGENT_NO_LOOPBACK                                                                      \
    "the loopback interface is down, so this node cannot connect to itself; run: ip link set " \
    "lo up"

/* Splits this process into a guardian and an agent, and runs the agent. envp: what the workers
 * inherit; given: keys, or NULL; all borrowed. Only the agent keeps keys. Returns only in the
 * agent, with the exit status; failures have been reported. */
int job_start(const struct job_spec *spec, char *const *envp, struct keyring *given);

/* Checks what can be seen to be wrong with the job's script or program; envp: as for job_start(),
 * which checks this, too. 0 or a negative errno. */
_must_use_ int start_check_script(const struct job_spec *spec, char *const *envp, struct err *err);

/* Whether no other machine has to reach this node. */
bool start_is_local(const struct job_spec *spec);

/* Runs the job on this node to its end. Reports failures, and returns the exit status. */
int agent_run(const struct agent_config *config);

/* The arbiter of the job's options: backend DIR or ETCD; spec is borrowed for the call. read_only:
 * writes nothing. timeout_ns: for one request; 0: ARBITER_TIMEOUT_NS. Free it with arbiter_free()
 * before the loop's reaper. Errors and texts: arbiter_dir_new(), arbiter_etcd_new(). */
_must_use_ int job_arbiter_new(struct loop *loop, const struct job_spec *spec, bool read_only,
                               uint64_t timeout_ns, struct arbiter **ret, struct err *err);

/* Writes the text as one line into the termination message of a container, which "kubectl describe
 * pod" shows: if this is a pod (KUBERNETES_SERVICE_HOST in envp), and the file can be written and
 * is still empty. Control characters become blanks; what is too long is cut. */
void termination_write(char *const *envp, const char *text);
/* The line with its newline, at most TERMINATION_BYTES_MAX bytes; malloc'ed. For tests. */
#define TERMINATION_BYTES_MAX 4096
_must_use_ char *termination_line(const char *text);
