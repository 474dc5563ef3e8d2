/* Shared by the files of this folder, and private to them.
 *   search.h           the search for the leader: a pure machine
 *   client_io.c        steps and effects of the member; messages; creation and end
 *   client_search_io.c steps and effects of the search; addresses of peers, probes of them */
#pragma once

#include "base/list.h"
#include "io/net/resolver.h"
#include "io/pump.h"
#include "rendezvous/client/client_io.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/protocol/probe_io.h"

#define CLIENT_PEER_ADDRS_MAX 32 /* of one peer; more than RDZV_ADDRS_MAX */
#define CLIENT_REACHED_MAX 16
#define CLIENT_PROBES_MAX 8 /* of peers, at once */
#define CLIENT_ADDRS_MAX MAX2(RESOLVE_ADDRS_MAX *RDZV_ENDPOINT_PORTS_MAX, CLIENT_PEER_ADDRS_MAX)

struct client_look {
    struct rdzv_client *client;
    struct probe *probe; /* NULL: it is free for another address */
    size_t at;           /* index in addrs */
};

struct rdzv_client {
    struct loop *loop;
    struct rdzv_client_config config;
    struct rdzv_settings rdzv; /* this node's own; lease and heartbeat as last received */
    struct member *member;
    struct member_update update;
    struct pump pump;
    bool ended; /* ops.end was called */

    struct search search;
    struct search_update search_update;
    struct pump search_pump;
    struct resolve *resolve;
    struct addr addrs[CLIENT_ADDRS_MAX]; /* of this round of the search */
    struct client_look looks[SEARCH_PROBES_MAX];
    struct conn *conn; /* NULL: none */
    char waiting[SEARCH_TEXT_MAX];
    char *node_summary;     /* owned; NULL: none yet */
    struct rdzv_warm *warm; /* likewise */

    /* A handover that arrives in parts. epoch 0: none. */
    struct handover handover;
    uint32_t n_handover;

    /* Where the leader can be probed, once it has welcomed us. */
    uint64_t leader;
    uint32_t leader_epoch;
    struct addr leader_listener;
    struct list peer_probes; /* struct peer_probe: of the leader and of others */
    unsigned n_peer_probes;
    /* Reached by us or by the leader that named them. A refusal shows only of these that they are
     * gone. */
    struct {
        uint64_t incarnation;
        struct addr listener;
    } reached[CLIENT_REACHED_MAX];
    unsigned next_reached;
};

static inline bool client_has_arbiter(const struct rdzv_client *c) {
    return c->config.arbiter != NULL;
}
static inline bool client_is_welcomed(const struct rdzv_client *c) {
    return c->search.state == SEARCH_WELCOMED;
}

/* ---- client_io.c ---- */

extern const struct conn_ops client_conn_ops;
void client_show_waiting(struct rdzv_client *c, enum rdzv_wait why, const char *text);
/* Unless one of its machines is in a step. */
void client_destroy_if_idle(void *client);
/* False: the node's description is not known yet, so it is not sent. */
bool client_send_join(struct rdzv_client *c);
void client_drop_handover(struct rdzv_client *c);

/* ---- client_search_io.c ---- */

void client_search_init(struct rdzv_client *c, uint64_t now_ns);
void client_search_fini(struct rdzv_client *c);
/* Fills in now_ns. */
void client_search(struct rdzv_client *c, const struct search_event *ev);
/* Port by port from ports[first] on, ports[0] after the last one, and for each port every address.
 * Returns n_ports * n. */
size_t client_port_addrs(const uint16_t *ports, unsigned n_ports, unsigned first,
                         const struct addr *addrs, size_t n, struct addr *ret);
void client_close(struct rdzv_client *c);
void client_remember(struct rdzv_client *c, uint64_t incarnation, const struct addr *listener);
void client_probe_leader(struct rdzv_client *c);
void client_probe_peer(struct rdzv_client *c, const struct rdzv_peer *peer);
void client_free_probes(struct rdzv_client *c);
