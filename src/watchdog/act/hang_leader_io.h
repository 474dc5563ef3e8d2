/* The watchdog's work in the agent that leads: receives the signs of nodes whose workers do not
 * move, lets the machine of the verdict (watchdog/judge/hang.h) decide whether the job hangs, has
 * what all ranks do compared and kept in files (hang_evidence_io.h), reports it, and has the group
 * stopped.
 *
 *     l = hang_leader_new(loop, &config, &ops, me);
 *     hang_leader_begin(l, group);                  its workers run
 *     hang_leader_signs(l, incarnation, signs);     … ops.event
 *     hang_leader_end(l);                           they are being stopped
 *
 * A new leader begins from nothing. */
#pragma once

#include "io/loop.h"
#include "watchdog/act/hang_evidence_io.h"

/* If at least half of the other workers had not moved for so long when one fails, they waited. */
#define HANG_WAITED_NS (5 * NS_PER_S)
/* They need not be still then: a time-out of a collective ends the wait of all at about the same
 * time, and the first to end needs a while: with PyTorch on a busy machine 10 s. */
#define HANG_WAITED_LATELY_NS (15 * NS_PER_S)

/* The name of a helper, by which it is spared (launcher/supervise/sweep_io.h). */
#define HANG_ADD_NAME "muster-hang-add"

/* Called from the loop; must not free the leader's watchdog. */
struct hang_leader_ops {
    /* HANG: this group hangs and has to be stopped, unless that is only reported. QUIET. */
    void (*event)(struct rdzv_server *server, const struct group_event *event);
    /* hang_leader_is_busy() is false again. */
    void (*idle)(void *arg);
    /* For the event log: QUIET and RESUMED. */
    void (*timeline)(void *arg, const struct timeline_entry *entry);
};

struct hang_leader_config { /* all borrowed for its life */
    struct hang_case_config cases;
    struct rdzv_server *const *server; /* as of hang_evidence_new() */
    bool restarts;                     /* --max-restarts is not 0 */
    uint64_t incarnation;              /* of this node */
};

struct hang_leader;
_must_use_ struct hang_leader *hang_leader_new(struct loop *loop,
                                               const struct hang_leader_config *config,
                                               const struct hang_leader_ops *ops, void *arg);
void hang_leader_free(struct hang_leader *l); /* takes NULL */

/* Also of the evidence: hang_evidence_begin(), hang_evidence_end(). Copies. */
void hang_leader_begin(struct hang_leader *l, const struct hang_group *group);
/* The evidence of a case that is open is no longer reported. */
void hang_leader_end(struct hang_leader *l);
/* A worker has failed, and the others are about to be stopped: hang_leader_end() follows. If they
 * waited, each node first looks at what they do (a last question, hang_evidence_io.h). what: one
 * line, such as "rank 1 failed: exit code 1". */
void hang_leader_failed(struct hang_leader *l, uint32_t rank, const char *what);
/* The job is being ended: what they did is no longer awaited, so only what is being compared
 * already may still be reported. */
void hang_leader_let_go(struct hang_leader *l);
/* What they did is still being compared, or kept in files: the agent should not end yet. */
bool hang_leader_is_busy(const struct hang_leader *l);
/* For operators. */
void hang_leader_watchdog(void *hang_leader, struct rdzv_watchdog *ret);
/* Signs of another group than the one that runs are ignored. */
void hang_leader_signs(void *hang_leader, uint64_t incarnation, const struct rdzv_signs *signs);
