/* A node's side on the network: owns the member machine, the search for the leader (search.h), the
 * connection to the leader and the probes of its listener. Effects go to the launcher by callbacks,
 * and the launcher's events come back:
 *
 *     rdzv_client_new(loop, &member_config, &config, &c);    it connects from the loop
 *     … ops.prepare → rdzv_client_event(c, {MEMBER_EVENT_PREPARED, .generation = g})
 *     … ops.start, ops.stop → rdzv_client_event(c, {MEMBER_EVENT_ALL_GONE})
 *     … ops.end: the agent exits with it
 *     rdzv_client_free(c);
 *
 * After a lost connection it reconnects at once, and resumes. With an arbiter there is no endpoint:
 * the member chooses the agent, which may delay its answer to JOIN, as it may be about to lead. */
#pragma once

#include "io/loop.h"
#include "io/net/addr.h"
#include "io/peer/peer_gate.h"
#include "rendezvous/client/search.h"
#include "rendezvous/member/member.h"

struct auth;
struct rdzv_client;

/* Called from the loop after a step, in the order of the effects. An rdzv_client_event() from
 * inside takes effect after the present effects. Pointers are borrowed for the call. */
struct rdzv_client_ops {
    /* JOIN is about to be sent to the leader at this address, from this one (len 0: not known).
     * Completes the node's description. False: it is not known yet, and nothing is sent until
     * rdzv_client_join() or on another connection. May be NULL */
    bool (*joining)(void *arg, const struct addr *leader, const struct addr *local,
                    struct node_info *info);
    /* The member's effects of these names (member.h). `cause`: the leader's STOP or CLOSED, or
     * NULL. `hold` and `resume` may be NULL. `lead` makes the listener serve this agent's group */
    void (*prepare)(void *arg, struct generation generation, const struct form *form);
    void (*start)(void *arg, struct generation generation, uint32_t reachability);
    void (*stop)(void *arg, uint64_t grace_ns, const char *reason, const struct desired *cause);
    void (*fence)(void *arg);
    void (*hold)(void *arg);
    void (*resume)(void *arg, uint64_t paused_ns);
    void (*lease_end)(void *arg, uint64_t end_ns);
    void (*lead)(void *arg, const struct group_config *lead);
    void (*join_policy)(void *arg, enum member_join_policy join_policy,
                        const struct rdzv_peer *peer, uint32_t epoch);
    /* Which nodes are present and which are missing, while the leader gathers. */
    void (*status)(void *arg, const struct rdzv_status *status);
    /* One sentence about what the node waits for, whenever that changes: for a leader, for the join
     * timeout at most; or for a place in the job. */
    void (*waiting)(void *arg, enum rdzv_wait why, const char *text);
    /* At a fixed endpoint: nothing listens there (of several ports: no agent of this run, at any of
     * them), and this node has had no leader yet. May be NULL */
    void (*nobody_there)(void *arg, const struct addr *at);
    /* With an arbiter: WELCOME came from another node than before, whose listener has this address
     * (our own incarnation: this node leads). May be NULL */
    void (*leader)(void *arg, uint64_t incarnation, const struct addr *listener, bool first);
    /* The leader was started with other numbers of nodes, which count. May be NULL */
    void (*other_limits)(void *arg, uint32_t min_nodes, uint32_t max_nodes);
    /* Called once, as the last callback. */
    void (*end)(void *arg, const struct member_end *end);
};

struct rdzv_client_config {
    char run_id[RDZV_RUN_ID_MAX];
    struct node_info info; /* info.incarnation as in the member's config */
    struct rdzv_program program;
    char host[RDZV_HOST_MAX * 2]; /* the leader's endpoint: a literal, or a name; */
    uint16_t port;
    /* of an endpoint of several ports, instead of `port`: the leader has one of these; 0: none */
    uint16_t ports[RDZV_ENDPOINT_PORTS_MAX];
    unsigned n_ports;
    struct addr addr;        /* or an address (the leader's own agent); len 0: none */
    struct arbiter *arbiter; /* borrowed; NULL: the member's config has none either */
    struct auth *auth;       /* borrowed; NULL: as AUTH_NONE */
    /* with an arbiter: where this agent can connect to its own listener */
    struct addr own_listener;
    struct peer_gate *gate; /* borrowed; answers the leader whose connections are. NULL: it can't */
    uint64_t connect_timeout_ns; /* for one attempt at the endpoint; 0: 10 s */
    uint64_t resolve_timeout_ns; /* 0: 10 s */
    struct rdzv_client_ops ops;
    void *arg; /* of ops */
    /* ASK, SUSPECTS or PROCEED. May be NULL; must not free the client. */
    void (*watchdog)(void *watchdog_arg, const struct wire_message *m);
    void *watchdog_arg;
};

/* Copies both configs. Returns 0, -EINVAL, or another negative errno. Calls no callback. */
_must_use_ int rdzv_client_new(struct loop *loop, const struct member_config *member_config,
                               const struct rdzv_client_config *config, struct rdzv_client **ret);
/* Ends all that is under way, without LEAVE. Allowed in its own callbacks. NULL is fine. */
void rdzv_client_free(struct rdzv_client *c);

/* Events that member.h marks with "launcher", LEAVE, and of the listener. Fills in now_ns, and
 * copies what the event points at. Steps at once, unless called from a callback. */
void rdzv_client_event(struct rdzv_client *c, const struct member_event *event);

/* The information that ops.joining waited for is available. */
void rdzv_client_join(struct rdzv_client *c);

/* Copied, for this leader and later ones. text: less than RDZV_NODE_SUMMARY_MAX bytes of UTF-8. */
void rdzv_client_node_summary(struct rdzv_client *c, const char *text);
/* The same; one that was sent already is not sent again. All bytes of it are compared. */
void rdzv_client_warm(struct rdzv_client *c, const struct rdzv_warm *warm);

/* To the leader, if there is one. Evidence: false: too much is unsent; ask again soon. A piece that
 * no leader can get counts as sent. */
void rdzv_client_signs(struct rdzv_client *c, const struct rdzv_signs *signs);
_must_use_ bool rdzv_client_evidence(struct rdzv_client *c, const struct rdzv_evidence *piece);

/* How often a leader has sent WELCOME; 0 while there is none. */
uint64_t rdzv_client_welcomes(const struct rdzv_client *c);

/* Its address is one for other machines; "": it is on this one. False: no leader is known. */
bool rdzv_client_leader(const struct rdzv_client *c, uint32_t *ret_epoch, struct rdzv_peer *ret);

/* What this node, while it has no leader, found at the endpoint. */
enum rdzv_finding rdzv_client_finding(const struct rdzv_client *c);

const struct member *rdzv_client_member(const struct rdzv_client *c); /* borrowed, and changes */
