/* The leader file that a leader at a fixed endpoint writes on its host, for the agent that is
 * started there after it: muster-rendezvous(7), "The leader file of a fixed endpoint". A small file
 * in the run directory (registry_io.h): the epoch, whether the job was closed, and, as its
 * modification time, when the leader last updated it. Only file access, no loop.
 *
 *     struct leader_file_prev prev; struct leader_file *f;
 *     r = leader_file_open(run_id, "node1:29400", lease_ns + margin_ns, &prev, &f, &err);
 *     … lead epoch leader_file_epoch(f), start nothing before leader_file_free_from(&prev, now_ns)
 *     r = leader_file_touch(f, OUTCOME_NONE);     every heartbeat
 *     r = leader_file_touch(f, OUTCOME_SUCCESS);  before the nodes are told
 *     leader_file_free(f);
 *
 * Times in it are CLOCK_MONOTONIC, which no change of the wall clock moves; they can be compared
 * within one boot, whose id is in it too. Who had the leader file before a reboot has no workers
 * left. */
#pragma once

#include "base/err.h"
#include "rendezvous/protocol/messages.h"

/* What the last leader at this endpoint left. */
struct leader_file_prev {
    bool found;
    uint32_t epoch;
    enum outcome outcome; /* NONE: it did not close */
    uint64_t touched_ns;  /* our clock; 0: before this boot */
    uint64_t hold_ns;     /* so long after that its workers may have run */
};

struct leader_file;

/* For the agent that has the endpoint's socket: reads the old leader file, and replaces it by one
 * of the next epoch. hold_ns: lease and margin. 0, or a negative errno and a sentence: there is no
 * leader file. */
_must_use_ int leader_file_open(const char *run_id, const char *endpoint, uint64_t hold_ns,
                                struct leader_file_prev *ret_prev, struct leader_file **ret,
                                struct err *err);
uint32_t leader_file_epoch(const struct leader_file *m); /* 1, or one more than the last leader's */
/* When no worker of the last leader can be left: 0, or at most hold_ns after now. */
uint64_t leader_file_free_from(const struct leader_file_prev *prev, uint64_t now_ns);
/* The leader lives; an outcome other than NONE is written into it, for good. Needs no space on the
 * disk. 0 or a negative errno. */
_must_use_ int leader_file_touch(struct leader_file *m, enum outcome outcome);
/* Removes leader files that no agent will ever wait for: untouched for days, or of a run that was
 * closed over an hour ago. Until until_ns (CLOCK_MONOTONIC). */
void leader_file_sweep(uint64_t until_ns);
/* The file stays. NULL is fine. */
void leader_file_free(struct leader_file *m);
