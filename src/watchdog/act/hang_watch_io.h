/* The watchdog's work on each node: checks the signs of life of this node's workers, and reports
 * them to the leader as long as one of them does not move. Gathers evidence when the leader asks
 * for it.
 *
 *     w = hang_watch_new(loop, &config, &ops, me);
 *     hang_watch_start(w, generation, form);     the workers of this group run
 *     hang_watch_message(w, &m);                 the leader asks: … ops.evidence, piece by piece
 *     hang_watch_stop(w);                        they are being stopped
 *     if (hang_watch_holds(w))                   but first the evidence: … ops.gathered
 *
 * While all workers move, and announce nothing new, it sends nothing (look/signs.h). It never waits
 * for a file or a process. */
#pragma once

#include "io/loop.h"
#include "rendezvous/protocol/wire.h"
#include "watchdog/hang_workers.h"

struct job_spec;
struct rdzv_client;                    /* opaque here, as job_spec */
struct hang_watch_config {             /* all borrowed for its life */
    struct rdzv_client *const *client; /* of the ops, once workers run or a message comes */
    struct hang_settings settings;
    uint32_t nproc;   /* workers of this node */
    const char *host; /* this node's name in messages */
    struct hang_workers workers;
    /* What hides the prompt of this worker, such as "--redirects hides its prompt; use --tee
     * instead"; NULL: it is shown. */
    const char *(*hides_prompt)(const struct job_spec *spec, uint32_t local_rank);
    const struct job_spec *spec; /* the launcher's; opaque here */
};

struct hang_watch_ops { /* must not free the watch */
    /* For the leader. */
    void (*signs)(struct rdzv_client *client, const struct rdzv_signs *signs);
    /* Another number for each leader, and for each connection to it; 0: there is none now. */
    uint64_t (*leader)(const struct rdzv_client *client);
    /* For the leader; false: too much is unsent, it comes again soon. */
    bool (*evidence)(struct rdzv_client *client, const struct rdzv_evidence *piece);
    /* What was held is held no more. */
    void (*gathered)(void *arg);
};

struct hang_watch;
/* Nothing is watched with --hang-action=off. */
_must_use_ struct hang_watch *hang_watch_new(struct loop *loop,
                                             const struct hang_watch_config *config,
                                             const struct hang_watch_ops *ops, void *arg);
void hang_watch_free(struct hang_watch *w); /* takes NULL */

void hang_watch_start(struct hang_watch *w, struct generation generation, const struct form *form);
void hang_watch_stop(struct hang_watch *w); /* what was asked before is still gathered, and sent */
/* Evidence is being gathered for which a stop must wait: rdzv_ask.holds, or native stacks of
 * suspects. */
bool hang_watch_holds(const struct hang_watch *w);
/* How many workers of this node run that are suspects of the hang for which the group is stopped
 * (struct rdzv_suspects). 0 once another leads than the one that sent them. */
uint32_t hang_watch_suspects(const struct hang_watch *w);
/* Sends them SIGABRT (watchdog/evidence/disturb.h): first to the Python program below a shell, and
 * to the shell in a later call when that has ended. Call it again while there are suspects. */
void hang_watch_end_suspects(struct hang_watch *w);
/* ASK (also with --hang-action=off): a new one ends the work on an older one of its kind. One about
 * another group, or without workers, is answered with an empty text. SUSPECTS: replaces older ones.
 * PROCEED: ends the work on both; nothing is held any more, and there are no suspects. */
void hang_watch_message(void *hang_watch, const struct wire_message *m);
