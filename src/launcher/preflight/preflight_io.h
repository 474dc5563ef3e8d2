/* Before workers start: this node's node summary and interfaces, and whether its neighbours are
 * reached; if this node leads, the comparison of all node summaries. Only for jobs of several
 * nodes. Of muster check, what is printed. Knows only these calls of the agent:
 *
 *     r = preflight_new(loop, &config, &ops, me, &p);    *p NULL: nothing is looked at
 *     if (preflight_joining(p, leader, &info)) … JOIN    else ops.can_join() comes
 *     if (!preflight_prepare(p, g, form)) … prepared     else ops.prepared() comes
 *     preflight_pick(p, reachability, &netif)            at START
 *     preflight_cancel(p)                                the group is not prepared for any more
 *
 * and, of who leads, preflight_forming(), preflight_received(), preflight_forgotten(). All take
 * NULL for p, and have nothing to do then. */
#pragma once

#include "io/loop.h"
#include "launcher/job/job.h"
#include "launcher/node/node_discovery_io.h"
#include "nccl_env/facts/netif_choice.h"
#include "rendezvous/leader/group.h"

struct preflight_config { /* all borrowed for the preflight's life */
    const struct job_spec *spec;
    char *const *envp;
    const char *python; /* that runs the workers; NULL: none */
    const char *host;
    uint64_t incarnation;
    /* Of the agent, with node_summary_needs(), its interfaces first; NULL: the preflight looks
     * itself, where other machines take part. */
    struct node_discovery *look;
};

struct preflight_ops {
    /* The interfaces are known: what preflight_joining() adds is ready. */
    void (*can_join)(void *arg);
    /* For the leader: what this node is made of, or found later. */
    void (*tell)(void *arg, const char *node_summary);
    /* This node is ready for the group, or can't be: why not, or NULL. */
    void (*prepared)(void *arg, struct generation g, uint32_t reachability, const char *why_not);
    /* The group that this node leads; NULL: another does. */
    const struct group *(*led)(void *arg);
    /* Only on the leader: the job must not start. */
    void (*refuse)(void *arg, const char *reason);
};

struct preflight;

bool preflight_is_wanted(const struct job_spec *spec);
/* 0 or a negative errno. */
_must_use_ int preflight_new(struct loop *loop, const struct preflight_config *config,
                             const struct preflight_ops *ops, void *arg, struct preflight **ret);
/* Of muster check, prints this node's summary where no group came to be. */
void preflight_free(struct preflight *p);

/* Adds the interfaces to the node's description, and begins to gather its node summary.
 * leader: the leader's address as others would write it, or NULL: all nodes are this machine.
 * False: the interfaces are not known yet; ops.can_join() follows. */
_must_use_ bool preflight_joining(struct preflight *p, const char *leader, struct node_info *info);
/* True: ops.prepared() follows; false: there is nothing to wait for. */
_must_use_ bool preflight_prepare(struct preflight *p, struct generation g,
                                  const struct form *form);
void preflight_cancel(struct preflight *p);
/* At START, with the ways that all members have: true: workers use another interface, or another
 * family of addresses, than they would by themselves. */
_must_use_ bool preflight_pick(const struct preflight *p, uint32_t reachability,
                               struct netif_choice *ret);

/* If this node leads: a group begins to form, and its members are known; a node's summary has
 * arrived; a node is gone. */
void preflight_forming(struct preflight *p);
void preflight_received(struct preflight *p, uint64_t incarnation, const char *host,
                        const char *text);
void preflight_forgotten(struct preflight *p, uint64_t incarnation);
