/* The leader file of a leader at a fixed endpoint, for the next agent that is started on its host:
 * muster-rendezvous(7), "The leader file of a fixed endpoint". In the run directory: the epoch,
 * whether the job was closed, and, as modification time, its last update. No loop.
 *
 *     r = leader_file_open(run_id, "node1:29400", lease_ns + margin_ns, &prev, &f, &err);
 *     … lead epoch leader_file_epoch(f), start nothing before leader_file_free_from(&prev, now_ns)
 *     r = leader_file_touch(f, OUTCOME_NONE);     every heartbeat
 *     r = leader_file_touch(f, OUTCOME_SUCCESS);  before the outcome is sent to the nodes
 *
 * Times in it are CLOCK_MONOTONIC, to be compared within one boot, whose id is in the file, too. */
#pragma once

#include "base/err.h"
#include "rendezvous/protocol/messages.h"

/* The state that the last leader at this endpoint left. */
struct leader_file_prev {
    uint32_t epoch;       /* 0: there was none */
    enum outcome outcome; /* NONE: it did not close */
    uint64_t touched_ns;  /* our clock; 0: before this boot */
    uint64_t hold_ns;     /* for how long after touched_ns its workers may have run */
};

struct leader_file;

/* For the agent that has the endpoint's socket: replaces the old file by one of the next epoch.
 * hold_ns: lease and margin. 0, or a negative errno and a sentence: there is no file. */
_must_use_ int leader_file_open(const char *run_id, const char *endpoint, uint64_t hold_ns,
                                struct leader_file_prev *ret_prev, struct leader_file **ret,
                                struct err *err);
/* 1, or the last leader's epoch plus one */
uint32_t leader_file_epoch(const struct leader_file *m);
/* The time at which no worker of the last leader can be left: 0, or at most hold_ns after now. */
uint64_t leader_file_free_from(const struct leader_file_prev *prev, uint64_t now_ns);
/* The leader is alive. An outcome other than NONE is permanent. Needs no disk space. 0 or a
 * negative errno. */
_must_use_ int leader_file_touch(struct leader_file *m, enum outcome outcome);
/* Removes files untouched for days, or of a run that was closed more than an hour ago. Stops at
 * until_ns (CLOCK_MONOTONIC). */
void leader_file_sweep(uint64_t until_ns);
/* Does not remove the file. NULL is fine. */
void leader_file_free(struct leader_file *m);
