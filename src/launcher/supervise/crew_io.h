/* The crew: this node's workers, generation after generation. Turns one node's place in a group
 * (struct form) into log files, environments and processes, and what becomes of the processes into
 * failures and news for the rendezvous.
 *
 *     crew_new(loop, &config, &ops, me, &crew);
 *     r = crew_prepare(crew, generation, form, &err);     files and folders, CPUs and variables
 *     r = crew_start(crew, NULL, &err);                   processes
 *     crew_stop(crew, grace_ns);   … ops.on_all_gone …    then the next crew_prepare()
 *     crew_free(crew);
 *
 * "All gone" means: every worker and descendant has ended, and all that they wrote is where it
 * belongs. */
#pragma once

#include "base/text/strbuf.h"
#include "io/loop.h"
#include "io/process/reaper.h"
#include "launcher/supervise/guardian_io.h"
#include "launcher/job/job.h"
#include "launcher/node/node_look_io.h"
#include "launcher/logs/writer_io.h"
#include "nccl_env/facts/netif_choice.h"
#include "rendezvous/protocol/messages.h"

struct crew;

struct crew_config {
    const struct job_spec *spec; /* borrowed, as all below */
    char *const *envp;
    const char *python;
    const char *host;            /* this node's name for people */
    uint64_t incarnation;
    struct guardian_link *link;
    uint64_t nofile_soft;        /* the user's limit, if the agent raised its own; else 0 */
    struct child_reaper *reaper;
    struct writer *writer;
    struct node_look *look;      /* freed before the crew is; NULL: nobody looks at this node */
    bool any_gpu;                /* look_has_gpus() */
};

/* All are called from the loop, never from inside a crew_ function but crew_stop() and
 * crew_kill(). */
struct crew_ops {
    /* A worker failed, or could not be started. The others still run. */
    void (*on_failure)(void *arg, struct generation g, const struct failure *failure);
    /* Every worker ended with 0. */
    void (*on_succeeded)(void *arg, struct generation g);
    void (*on_all_gone)(void *arg, struct generation g);
    /* A process survives SIGKILL. */
    void (*on_unkillable)(void *arg, const char *text);
    /* A worker of the present generation says that it may be stopped now without losing work; it
     * may say so often. NULL: nobody asks. */
    void (*on_safe_point)(void *arg, struct generation g);
    /* The end of a crew_prepare() that was CREW_E_LATER; err: it failed, else NULL. */
    void (*on_prepared)(void *arg, struct generation g, const struct err *err);
};

_must_use_ int crew_new(struct loop *loop, const struct crew_config *config,
                        const struct crew_ops *ops, void *arg, struct crew **ret);
/* What still runs is killed. NULL is fine. */
void crew_free(struct crew *crew);

/* No worker of an older generation may be left. The form is copied. CREW_E_LATER: the look at this
 * node has not ended, the way to the leader is looked for, or log files are made; on_prepared will
 * come; another crew_prepare() may come before. */
enum { CREW_E_LATER = 1 };
_must_use_ int crew_prepare(struct crew *crew, struct generation g, const struct form *form,
                            struct err *err);
/* netif: that workers use to reach other nodes, now that all nodes are known; NULL: as prepared.
 * Copied. */
_must_use_ int crew_start(struct crew *crew, const struct netif_choice *netif, struct err *err);
/* SIGTERM, then SIGKILL after the grace, which is at most the job's own --shutdown-timeout.
 * Nothing runs: nothing happens. */
void crew_stop(struct crew *crew, uint64_t grace_ns);
void crew_kill(struct crew *crew);
/* A failure that is no worker's: the node could not prepare or start. */
void crew_node_failure(const struct crew *crew, const char *text, struct failure *ret);

bool crew_has_workers(const struct crew *crew); /* started, not all gone */
uint32_t crew_workers_alive(const struct crew *crew);
/* How many of the present generation have ended with 0 by themselves, not because they were told to
 * stop, and the global rank of the first. */
uint32_t crew_ended_well(const struct crew *crew, uint32_t *ret_rank);
/* The temporary folder stays, because somebody was told of a file in it. */
void crew_keep_files(struct crew *crew);
/* Where files are kept for the user: the run's folder of --log-dir, or the temporary one when -r or
 * -t asked for files; NULL: nowhere. Borrowed. */
const char *crew_log_dir(const struct crew *crew);
/* The last lines that a failed worker of the present generation wrote on stderr; of the first ones
 * to fail only. */
void crew_stderr_tail(const struct crew *crew, uint32_t local_rank, struct strbuf *ret);
