/* Gathers this node's node summary: looks at GPUs, adapters, interfaces, versions, limits and
 * names, and checks what it finds. In a child process with a deadline, because libraries of sick
 * GPUs and name servers can block; what was found by then is the node summary. On a node without
 * GPUs no library is loaded.
 *
 *     node_summary_start(loop, &config, on_node_summary, me, &d);
 *     … on_node_summary(me, &node summary, whole)                    or node_summary_stop(d) */
#pragma once

#include "io/loop.h"
#include "launcher/preflight/node_summary.h"

#define NODE_SUMMARY_GATHER_NS (8 * NS_PER_S)

struct node_summary_config { /* borrowed for the call */
    char *const *envp;
    const char *python;     /* of the workers; NULL: none */
    const char *log_dir;    /* whose disk must have room; NULL: none */
    const char *netif;      /* that the workers use between nodes; "": not chosen */
    const char *fast_netif; /* of a faster network; "": there is none; NULL: not checked */
    const char *host;       /* this node's name */
    uint64_t timeout_ns;    /* 0: NODE_SUMMARY_GATHER_NS */
};

struct node_summary_gathering;
/* whole: false when the deadline came first. The object is freed then. */
typedef void node_summary_fn(void *arg, const struct node_summary *d, bool whole);

/* fn is called later, never from inside. 0, or a negative errno. */
_must_use_ int node_summary_start(struct loop *loop, const struct node_summary_config *config,
                                  node_summary_fn *fn, void *arg,
                                  struct node_summary_gathering **ret);
/* Gives it up: the child is killed, fn is not called. NULL is fine. */
void node_summary_stop(struct node_summary_gathering *g);
