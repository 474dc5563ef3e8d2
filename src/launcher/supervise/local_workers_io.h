/* This node's workers, generation after generation: turns the node's place in a group (struct form)
 * into log files, environments and processes, and their exits and messages into events of the
 * member machine.
 *
 * "All gone": every worker has ended, and every descendant that the next group can't run beside
 * (worker_io.h), and unless others are left, all output was written. The others get their time, as
 * long as local_workers_has_left(). With --leave=detached, processes that successful workers left
 * in sessions of their own are kept until the job has ended, another generation is prepared, or
 * local_workers_stop() or _kill() is called. */
#pragma once

#include "base/text/envlist.h"
#include "base/text/strbuf.h"
#include "io/loop.h"
#include "io/process/reaper.h"
#include "launcher/job/job.h"
#include "launcher/node/node_setup_io.h"
#include "launcher/output/worker_logs_io.h"
#include "launcher/supervise/guardian_io.h"
#include "launcher/worker/notify.h"
#include "nccl_env/facts/netif_choice.h"
#include "rendezvous/member/member.h"
#include "watchdog/hang_workers.h"

struct local_workers;

struct local_workers_config {
    /* What generations share. Borrowed, as all below. The discovery may run; it is freed first. */
    struct node_setup_place place;
    const char *host; /* this node's name in messages */
    uint64_t incarnation;
    struct guardian_link *link;
    uint64_t nofile_soft; /* the user's limit, if the agent raised its own; else 0 */
    struct child_reaper *reaper;
    struct writer *writer;
};

/* All are called from the loop, or from local_workers_stop() and local_workers_kill(). */
struct local_workers_ops {
    /* For the member machine: FAILURE or FENCED (of a worker that was not stopped; the others still
     * run), SUCCEEDED, ALL_GONE, UNKILLABLE, SAFE_POINT. Borrowed for the call. */
    void (*on_event)(void *arg, const struct member_event *event);
    /* A local_workers_prepare() that was to end later has ended; err: it failed, else NULL. */
    void (*on_prepared)(void *arg, struct generation g, const struct err *err);
    /* A new discovery that has interfaces, facts and the route to this address, and may still
     * run. Borrowed; freed before the local workers are. NULL, or no function: there is none */
    struct node_discovery *(*lend)(void *arg, const char *leader);
    /* With --warm: how workers were started, or what waits, has changed. NULL: no one asks */
    void (*on_warm)(void *arg, const struct rdzv_warm *warm);
    /* local_workers_has_left() has become false. NULL: no one asks */
    void (*on_over)(void *arg);
};

_must_use_ struct local_workers *local_workers_new(struct loop *loop,
                                                   const struct local_workers_config *config,
                                                   const struct local_workers_ops *ops, void *arg);
/* Kills workers that still run. Takes NULL. */
void local_workers_free(struct local_workers *l);

/* No worker of an older generation may be left. LOCAL_WORKERS_E_LATER: discovery, log files or kept
 * processes are awaited; on_prepared follows, unless it is called again before. Copies form. */
enum { LOCAL_WORKERS_E_LATER = 1 };
_must_use_ int local_workers_prepare(struct local_workers *l, struct generation g,
                                     const struct form *form, struct err *err);
/* netif: to reach other nodes, now that all are known; copied; NULL: as prepared. */
_must_use_ int local_workers_start(struct local_workers *l, const struct netif_choice *netif,
                                   struct err *err);
/* The signal, then SIGKILL after the grace, which is at most the job's own --shutdown-timeout, or
 * what local_workers_set_grace() has set. If no workers run, only kept processes are ended. */
void local_workers_stop(struct local_workers *l, int signo, uint64_t grace_ns);
void local_workers_set_grace(struct local_workers *l, uint64_t grace_ns);
/* The same, and a stop that has begun ends so long from now at the latest. */
void local_workers_shorten_grace(struct local_workers *l, uint64_t grace_ns);
/* As worker_group_hold() and worker_group_release() (worker_io.h), for the workers that run now.
 * One that dies of this signal has not failed. */
void local_workers_hold(struct local_workers *l, int signo);
void local_workers_release(struct local_workers *l, uint64_t had_ns);
/* As worker_group_signal(): one that dies of it has failed. */
uint32_t local_workers_signal(struct local_workers *l, int signo, uint64_t before_ns);
void local_workers_kill(struct local_workers *l);
/* No worker runs, but what workers left has time to end, or its output is being read. */
bool local_workers_has_left(const struct local_workers *l);
/* The job has succeeded: logs which of those that are kept continue. False: there are none. */
bool local_workers_leave_kept(struct local_workers *l);
/* Reports a failure of the node, not of a worker: it could not prepare or start. */
void local_workers_node_failure(const struct local_workers *l, const char *text,
                                struct failure *ret);

bool local_workers_has_workers(const struct local_workers *l); /* started, not all gone */
uint32_t local_workers_workers_alive(const struct local_workers *l);
/* How many workers of the current generation have exited with 0 by themselves, not because they
 * were stopped, and the global rank of the first. */
uint32_t local_workers_ended_well(const struct local_workers *l, uint32_t *ret_rank);
/* The folders of its logs. Borrowed. */
struct worker_logs *local_workers_files(const struct local_workers *l);
/* What the watchdog gets of the current generation; valid as long as the local workers are. */
struct hang_workers local_workers_for_hangs(struct local_workers *l);
/* The last lines that one of the first workers of the generation to fail wrote to stderr. */
void local_workers_stderr_tail(const struct local_workers *l, uint32_t local_rank,
                               struct strbuf *ret);
