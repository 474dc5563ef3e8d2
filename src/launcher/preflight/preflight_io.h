/* The checks before workers start: this node's node summary and interfaces, and whether it reaches
 * its neighbours; if this node leads, the comparison of all node summaries. For jobs of several
 * nodes; for one of a single node only if it has NVIDIA's GPUs. For muster check it also prints.
 * All calls take NULL for p, and then do nothing. */
#pragma once

#include "io/loop.h"
#include "launcher/job/job.h"
#include "launcher/node/node_discovery_io.h"
#include "launcher/preflight/node_summary.h"
#include "nccl_env/facts/netif_choice.h"
#include "rendezvous/leader/group.h"

struct auth;

struct preflight_config { /* all borrowed for the preflight's life */
    const struct job_spec *spec;
    char *const *envp;
    const char *python; /* the python that runs the workers; NULL: none */
    const char *host;
    uint64_t incarnation;
    /* The agent's discovery, with node_summary_needs(), and with netifs_first. NULL: the preflight
     * runs its own, if other machines take part. */
    struct node_discovery *discovery;
    struct auth *auth; /* for probes of neighbours; NULL: as AUTH_NONE */
};

struct preflight_ops {
    /* The interfaces are known: what preflight_joining() adds is ready. */
    void (*can_join)(void *arg);
    /* Sends this node's summary, or what was found later, to the leader. */
    void (*send)(void *arg, const char *node_summary);
    /* This node is ready for the group (NULL), or it can't be, and why. */
    void (*prepared)(void *arg, struct generation g, uint32_t reachability, const char *why_not);
    /* The group that this node leads; NULL: another node leads. */
    const struct group *(*led)(void *arg);
    /* Only on the leader: the job must not start. */
    void (*refuse)(void *arg, const char *reason);
};

struct preflight;

bool preflight_is_wanted(const struct job_spec *spec);
/* NULL: no checks are wanted. */
_must_use_ struct preflight *preflight_new(struct loop *loop, const struct preflight_config *config,
                                           const struct preflight_ops *ops, void *arg);
/* For muster check, prints this node's summary if no group was formed. */
void preflight_free(struct preflight *p);

/* Adds the interfaces to the node's description, and begins to gather its node summary. leader: the
 * leader's address as other nodes would write it, or NULL: all nodes are on this machine. False:
 * the interfaces are not known yet; ops.can_join() follows. */
_must_use_ bool preflight_joining(struct preflight *p, const char *leader, struct node_info *info);
/* True: ops.prepared() follows; false: there is nothing to wait for. */
_must_use_ bool preflight_prepare(struct preflight *p, struct generation g,
                                  const struct form *form);
void preflight_cancel(struct preflight *p);
/* What this node's workers need to know of their network, if it was discovered for a JOIN that is
 * at most PREFLIGHT_FRESH_NS old: interfaces, configuration, and the route to this address. It may
 * still run. Borrowed. NULL: there is none, or it was lent before, and routes change. */
#define PREFLIGHT_FRESH_NS (5 * NS_PER_S)
struct node_discovery *preflight_lend(struct preflight *p, const char *leader);
/* Call it at START, with the ways that all members have. True: workers use another interface, or
 * another address family, than they would by themselves. */
_must_use_ bool preflight_pick(const struct preflight *p, uint32_t reachability,
                               struct netif_choice *ret);

/* A fact of this node's summary; "": it is not known (yet). Borrowed until the loop runs. */
const char *preflight_fact(const struct preflight *p, enum node_summary_fact f);

/* Call these if this node leads: when a group begins to form and its members are known, when a
 * node's summary has arrived, and when a node is gone. */
void preflight_forming(struct preflight *p);
void preflight_received(void *preflight, uint64_t incarnation, const char *host, const char *text);
void preflight_forgotten(void *preflight, uint64_t incarnation);
