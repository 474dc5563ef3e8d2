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
#include "watchdog/act/hang_workers.h"

struct job_spec;
struct hang_watch_config { /* all borrowed for its life */
    struct hang_settings settings;
    uint32_t nproc;   /* workers of this node */
    const char *host; /* this node's name in messages */
    struct hang_workers workers;
    /* What hides the prompt of this worker, such as "--redirects hides its prompt; use --tee
     * instead"; NULL: it is shown. */
    const char *(*hides_prompt)(const struct job_spec *spec, uint32_t local_rank);
    const struct job_spec *spec; /* the launcher's; opaque here */
};

struct hang_watch_ops {
    /* For the leader. Must not free the watch. */
    void (*signs)(void *arg, const struct rdzv_signs *signs);
    /* Another number for each leader, and for each connection to it; 0: there is none now. */
    uint64_t (*leader)(void *arg);
    /* The same; false: too much is unsent, it comes again soon. */
    bool (*evidence)(void *arg, const struct rdzv_evidence *piece);
    /* What was held is held no more. Must not free the watch. */
    void (*gathered)(void *arg);
};

struct hang_watch;
/* Nothing is watched with --hang-action=off. */
_must_use_ struct hang_watch *hang_watch_new(struct loop *loop,
                                             const struct hang_watch_config *config,
                                             const struct hang_watch_ops *ops, void *arg);
void hang_watch_free(struct hang_watch *w); /* takes NULL */

void hang_watch_start(struct hang_watch *w, struct generation generation, const struct form *form);
/* What was asked before is still gathered, and sent. */
void hang_watch_stop(struct hang_watch *w);
/* Evidence is being gathered for which a stop must wait: rdzv_ask.holds, or native stacks of
 * suspects. */
bool hang_watch_holds(const struct hang_watch *w);
/* How many workers of this node run that are suspects of the hang for which the group is stopped
 * (struct rdzv_suspects). 0 once another leads than the one that sent them, or none does. */
uint32_t hang_watch_suspects(const struct hang_watch *w);
/* Sends them SIGABRT (watchdog/evidence/disturb.h): first to the Python program below a shell,
 * and to the shell, which is stopped until then, in a later call when that has ended. The caller
 * calls it again while there are suspects, and counts their end as a stop. */
void hang_watch_end_suspects(struct hang_watch *w);
/* ASK: a new one ends the work on an older one of its kind. One about another group, or without
 * workers, is answered with an empty text. Also with --hang-action=off, where it is not known for
 * how long a worker has not moved. SUSPECTS: replaces older ones. PROCEED: ends the work on both;
 * nothing is held any more, and there are no suspects. */
void hang_watch_message(void *hang_watch, const struct wire_message *m);

/* ---- a long answer, piece by piece ----
 *
 * Only as fast as the connection takes it, so that it delays no lease.
 *
 *     r = hang_reply_new(loop, send, me);
 *     hang_reply_start(r, id, json, len, give_up_ns);     an older answer ends
 *     hang_reply_stop(r); */

#define HANG_REPLY_AGAIN_NS (20 * NS_PER_MS)

/* False: too much is unsent; the piece comes again. Must not call hang_reply_*(). */
typedef bool hang_reply_fn(void *arg, const struct rdzv_evidence *piece);

struct hang_reply;
_must_use_ struct hang_reply *hang_reply_new(struct loop *loop, hang_reply_fn *send, void *arg);
void hang_reply_free(struct hang_reply *r); /* takes NULL */
/* Copies the text; len 0: an empty answer. What is not sent at give_up_ns (CLOCK_MONOTONIC) is
 * not sent at all. */
void hang_reply_start(struct hang_reply *r, uint32_t id, const char *text, size_t len,
                      uint64_t give_up_ns);
void hang_reply_stop(struct hang_reply *r);
