/* While this node leads: the group's server, the workers' stores, and at a fixed endpoint the
 * leader file. It calls only two functions of the agent.
 *
 *     l = leading_new(loop, &config, &ops, me);
 *     leading_at(l, endpoint_fd, &own, &err);      at a fixed endpoint
 *     leading_on(l, &lead, arbiter, &self);        or after an epoch was won
 *     server = leading_server(l);                  NULL: another node leads
 *     leading_free(l) */
#pragma once

#include "launcher/job/job.h"
#include "launcher/preflight/preflight_io.h"
#include "launcher/report/events.h"
#include "rendezvous/server/server_io.h"
#include "rendezvous/store/store_door_io.h"
#include "watchdog/act/hang_evidence_io.h"
#include "watchdog/act/hang_leader_io.h"

struct leading_config { /* all borrowed for its life */
    const struct job_spec *spec;
    uint64_t incarnation;
    uint16_t node_port; /* the port of the listener */
    struct rdzv_listener *listener;
    struct peer_gate *gate; /* NULL: everybody may connect */
    struct auth *auth;
    struct store_door *door;
    struct events *events;       /* NULL: not requested */
    struct preflight *preflight; /* NULL: no checks */
    struct hang_settings hang;
    struct hang_workers workers;
};

struct leading_ops {
    /* The job has ended, and the nodes were informed; or leading_is_busy() is false again. */
    void (*over)(void *arg);
    /* Another node leads now; leading_server() is NULL. */
    void (*deposed)(void *arg);
    /* A worker of any node has told a safe point. Called again for each. */
    void (*safe_point)(void *arg);
    void (*lost)(void *arg, const char *host); /* a node was lost */
};

struct leading;

_must_use_ struct leading *leading_new(struct loop *loop, const struct leading_config *config,
                                       const struct leading_ops *ops, void *arg);
/* Call it after rdzv_listener_serve(listener, NULL), or after the listener is freed. Takes NULL. */
void leading_free(struct leading *l);

/* Leads at this endpoint. It takes ownership of the endpoint's socket, also on failure. *ret_own:
 * how this node reaches the endpoint. Returns 0, or a negative errno and perhaps the reason. */
_must_use_ int leading_at(struct leading *l, int endpoint_fd, struct addr *ret_own,
                          struct err *err);
/* Nothing could be bound there, because somebody listens: sets the error to the setting, and
 * who it is. True: it certainly isn't muster. */
bool leading_port_taken(const char *setting, const struct addr *at, struct err *err);
/* The member has won an epoch. 0 or a negative errno. */
_must_use_ int leading_on(struct leading *l, const struct member_lead *lead,
                          struct arbiter *arbiter, const struct rdzv_peer *self);
struct rdzv_server *leading_server(const struct leading *l);
/* It leads, and has not informed all nodes of the job's end yet. */
bool leading_serves(const struct leading *l);
/* It leads, or has resigned because its own node left. */
bool leading_has_led(const struct leading *l);
/* What ranks did when one failed is still to be said: the agent should not end yet. */
bool leading_is_busy(const struct leading *l);
/* The job is being ended: neither this agent nor another node waits for that any more. For an agent
 * that leads. */
void leading_let_go(void *leading);

/* Finds an address of this machine: `text` is a literal, or one of its names. */
_must_use_ bool leading_local_addr(const char *text, struct addr *ret);
