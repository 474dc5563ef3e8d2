/* Between preflight_io.c (this node) and compare_io.c (where it leads: all nodes). */
#pragma once

#include "io/net/addr.h"
#include "launcher/preflight/check_text.h"
#include "launcher/preflight/node_nets_io.h"
#include "launcher/preflight/node_summary_io.h"
#include "launcher/preflight/preflight_io.h"
#include "launcher/preflight/ring_probe_io.h"

struct preflight {
    struct loop *loop;
    struct preflight_config config;
    struct preflight_ops ops;
    void *arg;
    bool strict;
    bool check; /* muster check: strict, but failures are reported to the leader, which ends it */

    /* this node */
    struct node_discovery *look; /* the agent's, or `way` where it has none; NULL: not begun */
    struct node_discovery *way;  /* owned; the route to the leader */
    char leader[ADDR_TEXT_MAX];  /* to which it looks for the way */
    bool chosen;                 /* the interfaces: they do not change in the agent's life, */
    struct node_nets nets;       /* but that a faster network that failed once is not tried again */
    struct node_summary_gathering *gathering;
    struct node_summary node_summary;
    uint64_t gather_begun_ns; /* 0: not begun */
    bool gathered;

    /* the group that this node prepares for; none: generation 0.0 */
    struct generation generation;
    bool waits_for_node_summary, waits_for_verdict;
    unsigned n_probes;
    /* The ways that lead to all neighbours which have answered so far; enum ring_way. */
    uint32_t reachability;
    struct ring_probe *probes[RDZV_NEIGHBOURS_MAX];
    char blocked[RDZV_REASON_MAX / 2];
    bool reported; /* check: reported to this group's leader */
    bool printed;  /* check: what this node found */

    /* the leader's */
    struct summary_index *book;
    struct loop_timer *timer; /* for node summaries that are missing */
    bool compared;            /* the present group's */
    uint64_t said_hash;       /* of the last table */
    unsigned n_failures_said;
    struct check_failures failures; /* check: of the present group */
};

/* Continues with the group if nothing is left to wait for. */
void preflight_go_on(struct preflight *p);
/* muster check: to the standard output. */
void check_print(const struct strbuf *text);

/* The node summaries that are missing were waited for long enough. */
void compare_time_up(struct preflight *p);
void compare_end(struct preflight *p);
