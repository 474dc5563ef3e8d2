/* Shared by preflight_io.c (this node) and compare_io.c (all nodes, if this node leads). */
#pragma once

#include "io/net/addr.h"
#include "io/net/hosts_file.h"
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
    struct node_discovery *discovery; /* the agent's, or `way` if it has none; NULL: not begun */
    struct node_discovery *way;       /* owned; the route to the leader */
    char leader[ADDR_TEXT_MAX];       /* the address to which it asks for the route */
    bool lent;                        /* for a group */
    bool chosen; /* the interfaces, which do not change while the agent runs, */
    /* except that a faster network that failed once is not tried again */
    struct node_nets nets;
    struct node_summary_gathering *gathering;
    struct node_summary node_summary;
    uint64_t gather_begun_ns;                    /* 0: not begun */
    struct addr own_addrs[HOSTS_FILE_ADDRS_MAX]; /* of this node's name, if /etc/hosts has it */
    size_t n_own_addrs;
    bool gathered;
    struct loop_timer *clock_timer; /* the next look whether the wall clock was set */

    /* the group for which this node prepares; none: generation 0.0 */
    struct generation generation;
    bool waits_for_node_summary, waits_for_verdict;
    unsigned n_probes;
    /* The ways that reach all neighbours that have answered so far; enum ring_way. */
    uint32_t reachability;
    struct ring_probe *probes[RDZV_NEIGHBOURS_MAX];
    char blocked[RDZV_REASON_MAX / 2];
    bool reported; /* check: reported to this group's leader */
    bool printed;  /* check: this node's summary was printed */

    /* the leader's data */
    struct summary_index *index;
    struct loop_timer *timer; /* the deadline for missing node summaries */
    bool compared;            /* the current group's summaries were compared */
    uint64_t said_hash;       /* hash of the last table that was reported */
    unsigned n_failures_said;
    struct check_failures failures; /* check: failures of the current group */
};

/* Continues with the group if nothing is left to wait for. */
void preflight_go_on(struct preflight *p);
/* muster check: prints to standard output. */
void check_print(const struct strbuf *text);

/* The deadline for missing node summaries is over. */
void compare_time_up(struct preflight *p);
void compare_end(struct preflight *p);
