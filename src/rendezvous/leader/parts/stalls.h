/* Groups that end soon after their start, or before it, though no worker failed: a lease that runs
 * out, a node that is lost, a FORM that is refused. Such an end costs nothing.
 * So these groups are counted; otherwise a job whose groups all end like this would be started
 * again for ever. */
#pragma once

#include "rendezvous/leader/parts/group_config.h"

struct stalls {
    uint32_t in_a_row;
    uint32_t counted; /* of them: those that left the job no smaller than ever */
    size_t fewest;    /* the fewest nodes that were left after one of them */
};

/* How a group ended. */
struct group_end {
    uint64_t started_ns; /* 0: it never did */
    uint64_t stopped_ns; /* when it began to stop */
    size_t nodes_left;   /* that may be in the next */
    bool worker_failed;
    bool wished; /* by an operator, by the node that leaves, or to grow */
};

/* A group has ended. Returns how long the next one has to wait; 0: not at all; TIME_NEVER: no group
 * lasts, and the job ends. */
uint64_t stalls_count(struct stalls *s, const struct group_config *c, const struct group_end *end);
/* The last group ended without progress, and this one has not run for long yet. */
bool stalls_go_on(const struct stalls *s, const struct group_config *c, uint64_t started_ns,
                  uint64_t now_ns);
/* Two texts for people: that the next group waits; and that no group lasts. `why`: the reason for
 * the end of the last one. */
void stalls_pause_text(const struct stalls *s, const struct group_config *c, uint64_t pause_ns,
                       char *out, size_t size);
void stalls_end_text(const struct stalls *s, const struct group_config *c, const char *why,
                     char *out, size_t size);
