#include "rendezvous/client/client_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/text/log.h"
#include "io/clock.h"
#include "io/net/resolver.h"
#include "io/pump.h"
#include "rendezvous/arbiter/arbiter_io.h"
#include "rendezvous/protocol/conn_io.h"
#include "rendezvous/protocol/probe_io.h"

#define CONNECT_TIMEOUT_NS (10 * NS_PER_S)
#define RESOLVE_TIMEOUT_NS (10 * NS_PER_S)
/* More unsent evidence than this would delay leases, and must not come near CONN_UNSENT_MAX. */
#define EVIDENCE_UNSENT_MAX ((size_t)64 * 1024)
/* For one address of a peer, until HELLO. */
#define PEER_TIMEOUT_NS (1500 * NS_PER_MS)
/* A leader that is busy answers a probe within this time. */
#define PROBE_TIMEOUT_NS (1 * NS_PER_S)

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
    struct reached {
        uint64_t incarnation;
        struct addr listener;
    } reached[CLIENT_REACHED_MAX];
    unsigned next_reached;
};

static bool has_arbiter(const struct rdzv_client *c) { return c->config.arbiter != NULL; }
static bool is_welcomed(const struct rdzv_client *c) { return c->search.state == SEARCH_WELCOMED; }

static void to_search(struct rdzv_client *c, const struct search_event *ev);

static void show_waiting(struct rdzv_client *c, enum rdzv_wait why, const char *text) {
    if (strcmp(text, c->waiting) == 0)
        return;
    (void)snprintf(c->waiting, sizeof c->waiting, "%s", text);
    if (c->config.ops.waiting == NULL)
        return;
    bool held = pump_hold(&c->pump);
    c->config.ops.waiting(c->config.arg, why, c->waiting);
    pump_release(&c->pump, held);
}

static void show_no_place(struct rdzv_client *c, const char *what, const char *why) {
    char text[SEARCH_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%s%s%.1400s", what, why[0] != '\0' ? ": " : "", why);
    show_waiting(c, RDZV_WAIT_PLACE, text);
}

static void show_spare(struct rdzv_client *c, const struct desired *d) {
    if (d->kind == DESIRED_IDLE && d->excluded)
        show_no_place(c, "this node is excluded from the job", d->reason);
    else if (d->kind == DESIRED_IDLE && d->spare)
        show_no_place(c, "the job runs without this node, which waits for a place in the group",
                      d->reason);
    else
        c->waiting[0] = '\0';
}

/* ---- messages that are sent ---- */

/* Does nothing if no leader has sent WELCOME. */
static void send_to_leader(struct rdzv_client *c, const struct wire_message *m) {
    if (c->conn != NULL && is_welcomed(c))
        conn_send(c->conn, m);
}

static bool send_join(struct rdzv_client *c) {
    const struct addr *leader = &c->addrs[c->search.at];
    struct addr own[RDZV_OWN_ADDRS];
    size_t n_own;
    struct wire_message m = {
        .kind = WIRE_JOIN,
        .join = {.version = WIRE_VERSION,
                 .info = c->config.info,
                 .program = c->config.program,
                 .min_nodes = c->rdzv.min_nodes,
                 .max_nodes = c->rdzv.max_nodes,
                 .report = *member_report(c->member)},
    };
    memcpy(m.join.run_id, c->config.run_id, sizeof m.join.run_id);
    if (c->config.ops.joining != NULL) {
        struct addr local;
        if (conn_local_addr(c->conn, &local) < 0)
            local = (struct addr){0};
        bool held = pump_hold(&c->pump); /* events that this causes come after JOIN */
        bool known = c->config.ops.joining(c->config.arg, leader, &local, &m.join.info);
        pump_release(&c->pump, held);
        if (!known)
            return false;
    }
    /* where workers of this node may come from, if the leader is on another machine */
    if (!addr_is_loopback(leader) && addr_all_global(own, ARRAY_SIZE(own), &n_own) == 0)
        addr_to_list(own, n_own, m.join.addrs, sizeof m.join.addrs);
    conn_send(c->conn, &m);
    to_search(c, &(struct search_event){.kind = SEARCH_EVENT_JOINED});
    return true;
}

void rdzv_client_join(struct rdzv_client *c) {
    if (c->conn != NULL && search_wants_join(&c->search))
        (void)send_join(c);
}

static void send_node_summary(struct rdzv_client *c) {
    if (c->node_summary == NULL)
        return;
    struct wire_message m = {.kind = WIRE_NODE_SUMMARY};
    memcpy(m.node_summary.text, c->node_summary, strlen(c->node_summary) + 1);
    send_to_leader(c, &m);
}

static void send_warm(struct rdzv_client *c) {
    if (c->warm != NULL)
        send_to_leader(c, &(struct wire_message){.kind = WIRE_WARM, .warm = *c->warm});
}

void rdzv_client_node_summary(struct rdzv_client *c, const char *text) {
    assert(strlen(text) < RDZV_NODE_SUMMARY_MAX);
    free(c->node_summary);
    c->node_summary = xstrdup(text);
    send_node_summary(c);
}

void rdzv_client_warm(struct rdzv_client *c, const struct rdzv_warm *warm) {
    if (c->warm != NULL && memcmp(c->warm, warm, sizeof *warm) == 0)
        return;
    if (c->warm == NULL)
        c->warm = xcalloc(1, sizeof *c->warm);
    memcpy(c->warm, warm, sizeof *warm);
    send_warm(c);
}

void rdzv_client_signs(struct rdzv_client *c, const struct rdzv_signs *signs) {
    send_to_leader(c, &(struct wire_message){.kind = WIRE_SIGNS, .signs = *signs});
}

bool rdzv_client_evidence(struct rdzv_client *c, const struct rdzv_evidence *piece) {
    if (c->conn != NULL && conn_unsent(c->conn) > EVIDENCE_UNSENT_MAX)
        return false;
    struct wire_message m = {.kind = WIRE_EVIDENCE, .evidence = *piece};
    send_to_leader(c, &m);
    return true;
}

static void send_report(struct rdzv_client *c) {
    struct wire_message m = {.kind = WIRE_REPORT, .report = *member_report(c->member)};
    send_to_leader(c, &m);
}

static void renew(struct rdzv_client *c, const struct renew *renew) {
    struct wire_message m = {.kind = WIRE_RENEW, .renew = *renew};
    struct loop_stats stats = loop_get_stats(c->loop);
    m.renew.stalls = (uint32_t)MIN2(stats.n_long, (uint64_t)UINT32_MAX);
    m.renew.longest_stall_ns = stats.longest_ns;
    send_to_leader(c, &m);
}

static struct reached *find_reached(struct rdzv_client *c, uint64_t incarnation) {
    for (size_t i = 0; i < CLIENT_REACHED_MAX; i++)
        if (incarnation != 0 && c->reached[i].incarnation == incarnation)
            return &c->reached[i];
    return NULL;
}

static void remember(struct rdzv_client *c, uint64_t incarnation, const struct addr *listener) {
    struct reached *r = find_reached(c, incarnation);
    if (r == NULL)
        r = &c->reached[c->next_reached++ % CLIENT_REACHED_MAX];
    *r = (struct reached){incarnation, *listener};
}

/* To be tried in turn; first the one that is known to work. Returns how many. */
static size_t peer_addrs(struct rdzv_client *c, const struct rdzv_peer *peer,
                         struct addr out[CLIENT_PEER_ADDRS_MAX]) {
    size_t n = 0;
    const struct reached *known = find_reached(c, peer->incarnation);
    if (peer->incarnation == c->config.info.incarnation && c->config.own_listener.len > 0)
        out[n++] = c->config.own_listener;
    if (known != NULL)
        out[n++] = known->listener;
    size_t first = n;
    if (peer->addr[0] == '\0' && c->leader_listener.len > 0 && n < CLIENT_PEER_ADDRS_MAX) {
        out[n] = c->leader_listener;
        addr_set_port(&out[n++], peer->port);
    }
    n += addr_from_list(peer->addr, peer->port, out + n, CLIENT_PEER_ADDRS_MAX - n);
    for (size_t i = first; i < n && known != NULL; i++) {
        if (addr_same_host(&out[i], &known->listener)) {
            memmove(&out[i], &out[i + 1], (n - i - 1) * sizeof *out);
            n--;
            break;
        }
    }
    return n;
}

struct peer_probe {
    struct list link;
    struct rdzv_client *client;
    struct probe *probe;
    bool of_leader; /* answered as PROBE, otherwise as PEER_PROBE */
    bool known;     /* it was reached there earlier */
    uint64_t incarnation;
    struct addr at;
};

static void peer_probe_free(struct peer_probe *p) {
    list_remove(&p->link);
    p->client->n_peer_probes--;
    probe_free(p->probe);
    free(p);
}

static void report_probe(struct rdzv_client *c, bool of_leader, uint64_t incarnation,
                         enum probe_result result) {
    rdzv_client_event(
        c, &(struct member_event){.kind = of_leader ? MEMBER_EVENT_PROBE : MEMBER_EVENT_PEER_PROBE,
                                  .joiner = incarnation,
                                  .probe = result});
}

static void peer_probe_done(struct peer_probe *p, enum probe_result result) {
    struct rdzv_client *c = p->client;
    bool of_leader = p->of_leader;
    uint64_t incarnation = p->incarnation;
    peer_probe_free(p);
    report_probe(c, of_leader, incarnation, result);
}

static void on_peer_probed(void *arg, const struct probe_answer *answer) {
    struct peer_probe *p = arg;
    enum probe_result result = probe_result_for(answer, p->client->config.info.incarnation);
    p->probe = NULL;
    if (result == PROBE_ALIVE)
        remember(p->client, p->incarnation, &p->at);
    peer_probe_done(p, result == PROBE_GONE && !p->known ? PROBE_UNKNOWN : result);
}

/* Where it was reached, or else at its first address. The member probes its leader once at a time,
 * so that is not limited. */
static void begin_probe(struct rdzv_client *c, const struct rdzv_peer *peer, bool of_leader) {
    struct addr addrs[CLIENT_PEER_ADDRS_MAX] = {c->leader_listener};
    bool is_leader = peer->incarnation == c->leader;
    LIST_FOR_EACH(struct peer_probe, p, &c->peer_probes, link) {
        if (p->incarnation == peer->incarnation && p->of_leader == of_leader)
            return; /* its answer also counts for this one */
    }
    if ((!of_leader && c->n_peer_probes >= CLIENT_PROBES_MAX) || peer->incarnation == 0 ||
        (!is_leader && peer_addrs(c, peer, addrs) == 0)) {
        report_probe(c, of_leader, peer->incarnation, PROBE_UNKNOWN);
        return;
    }
    struct peer_probe *p = xcalloc(1, sizeof *p);
    *p = (struct peer_probe){.client = c,
                             .of_leader = of_leader,
                             .known = is_leader || find_reached(c, peer->incarnation) != NULL,
                             .incarnation = peer->incarnation,
                             .at = addrs[0]};
    list_append(&c->peer_probes, &p->link);
    c->n_peer_probes++;
    if (probe_start(c->loop, NULL, &p->at, c->config.auth, p->incarnation, PROBE_TIMEOUT_NS,
                    on_peer_probed, p, &p->probe) < 0)
        peer_probe_done(p, PROBE_UNKNOWN);
}

static void probe_leader(struct rdzv_client *c) {
    struct rdzv_peer leader;
    if (!has_arbiter(c) || !member_leader(c->member, &leader))
        leader = (struct rdzv_peer){.incarnation = c->leader};
    begin_probe(c, &leader, true);
}

static void free_probes(struct rdzv_client *c) {
    LIST_FOR_EACH(struct peer_probe, p, &c->peer_probes, link)
        peer_probe_free(p);
}

static void on_hello(struct rdzv_client *c, const struct wire_hello *hello) {
    char at[ADDR_TEXT_MAX];
    addr_to_text(&c->addrs[c->search.at], at);
    to_search(c, &(struct search_event){.kind = SEARCH_EVENT_HELLO,
                                        .version = hello->version,
                                        .leader = hello->incarnation,
                                        .run_id = hello->run_id,
                                        .at_text = at,
                                        .within_host = conn_is_within_host(c->conn),
                                        .is_authenticated =
                                            auth_state(c->config.auth) == AUTH_STATE_KEYS});
}

/* WELCOME comes first, before events that this causes. */
static void report_leader(struct rdzv_client *c, const struct wire_welcome *w, bool first) {
    const struct rdzv_client_ops *ops = &c->config.ops;
    bool held = pump_hold(&c->pump);
    if (has_arbiter(c) && ops->leader != NULL)
        ops->leader(c->config.arg, c->leader, &c->leader_listener, first);
    if ((w->min_nodes != c->rdzv.min_nodes || w->max_nodes != c->rdzv.max_nodes) &&
        ops->other_limits != NULL)
        ops->other_limits(c->config.arg, w->min_nodes, w->max_nodes);
    pump_release(&c->pump, held);
}

static void on_welcome(struct rdzv_client *c, const struct wire_welcome *w) {
    struct addr at;
    if (conn_peer_addr(c->conn, &at) == 0) {
        addr_set_port(&at, w->listener_port);
        c->leader_listener = at;
        remember(c, w->leader, &at);
    }
    uint64_t before = c->leader;
    c->leader = w->leader;
    c->leader_epoch = w->epoch;
    to_search(c, &(struct search_event){.kind = SEARCH_EVENT_WELCOME});
    c->waiting[0] = '\0';
    c->rdzv.lease_ns = w->lease_ns;
    c->rdzv.heartbeat_ns = w->heartbeat_ns;
    conn_set_patience(c->conn, c->rdzv.lease_ns, c->rdzv.heartbeat_ns);
    send_node_summary(c);
    send_warm(c);
    if (w->leader != before)
        report_leader(c, w, before == 0);
    rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_WELCOME,
                                                .leader = w->leader,
                                                .epoch = w->epoch,
                                                .heartbeat_ns = w->heartbeat_ns,
                                                .margin_ns = w->margin_ns,
                                                .lease_ns = w->lease_ns});
}

static void drop_handover(struct rdzv_client *c) {
    handover_fini(&c->handover);
    c->n_handover = 0;
}

/* "" is the address at which this connection reached its other end. */
static void fill_addr(const struct rdzv_client *c, char addr[RDZV_ADDR_MAX]) {
    struct addr at;
    if (addr[0] == '\0' && conn_peer_addr(c->conn, &at) == 0)
        addr_host_text(&at, addr);
}

static void hang_up(struct rdzv_client *c) {
    to_search(c, &(struct search_event){.kind = SEARCH_EVENT_HANG_UP});
}

static void on_redirect(struct rdzv_client *c, const struct wire_redirect *r) {
    struct rdzv_peer leader = r->leader;
    fill_addr(c, leader.addr);
    hang_up(c);
    rdzv_client_event(c, &(struct member_event){
                             .kind = MEMBER_EVENT_REDIRECT, .epoch = r->epoch, .peer = &leader});
}

static void on_named(struct rdzv_client *c, const struct successors *named) {
    struct successors s = *named;
    for (uint32_t i = 0; i < s.n; i++) {
        struct addr at;
        fill_addr(c, s.list[i].addr);
        /* The leader names only successors that it has reached. */
        if (addr_from_literal(s.list[i].addr, s.list[i].port, &at) == 0)
            remember(c, s.list[i].incarnation, &at);
    }
    drop_handover(c);
    rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_NAMED, .successors = &s});
}

static int begin_handover(struct rdzv_client *c, const struct handover *e) {
    if (e->n_members > RDZV_NODES_MAX)
        return -EPROTO;
    drop_handover(c);
    c->handover = *e;
    c->handover.members = NULL;
    if (e->n_members > 0)
        c->handover.members = calloc(e->n_members, sizeof *c->handover.members);
    if (e->n_members > 0 && c->handover.members == NULL)
        return -ENOMEM;
    return 0;
}

/* Parts come in order, each once; the first part starts a new handover. */
static int take_members(struct rdzv_client *c, const struct wire_members *m) {
    int r = m->first == 0 ? begin_handover(c, &m->handover) : 0;
    if (r < 0)
        return r;
    if (c->handover.epoch == 0 || m->first != c->n_handover ||
        m->handover.epoch != c->handover.epoch || m->n > c->handover.n_members - c->n_handover ||
        (m->n == 0 && c->handover.n_members > 0))
        return -EPROTO;
    for (uint32_t i = 0; i < m->n; i++) {
        struct handover_member *to = &c->handover.members[c->n_handover++];
        *to = m->list[i];
        fill_addr(c, to->addr);
    }
    return 0;
}

static void on_members(struct rdzv_client *c, const struct wire_members *m) {
    int r = take_members(c, m);
    if (r < 0) {
        log_debug("rendezvous: the leader's list of members %s; disconnected",
                  r == -ENOMEM ? "does not fit into memory" : "has parts missing, or too many");
        to_search(c, &(struct search_event){.kind = SEARCH_EVENT_INVALID});
        return;
    }
    if (c->n_handover < c->handover.n_members)
        return;
    _cleanup_(handover_fini) struct handover whole = c->handover;
    c->handover = (struct handover){0};
    drop_handover(c);
    rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_HANDOVER, .handover = &whole});
}

static void on_status(struct rdzv_client *c, const struct rdzv_status *status) {
    if (c->config.ops.status == NULL)
        return;
    bool held = pump_hold(&c->pump);
    c->config.ops.status(c->config.arg, status);
    pump_release(&c->pump, held);
    rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_TIME});
}

static void on_unexpected(struct rdzv_client *c, enum wire_kind kind) {
    log_debug("rendezvous: the leader sent an unexpected %s; disconnected", wire_kind_name(kind));
    to_search(c, &(struct search_event){.kind = SEARCH_EVENT_INVALID});
}

static void on_first_message(struct rdzv_client *c, const struct wire_message *m) {
    if (m->kind == WIRE_WELCOME)
        on_welcome(c, &m->welcome);
    else if (m->kind == WIRE_REFUSED)
        to_search(c, &(struct search_event){.kind = SEARCH_EVENT_REFUSED,
                                            .final = m->refused.final,
                                            .why = m->refused.reason});
    else
        on_unexpected(c, m->kind);
}

static void on_desired(struct rdzv_client *c, const struct desired *desired) {
    show_spare(c, desired);
    rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_DESIRED, .desired = desired});
}

static void on_watchdog(struct rdzv_client *c, const struct wire_message *m) {
    if (c->config.watchdog == NULL)
        return;
    bool held = pump_hold(&c->pump);
    c->config.watchdog(c->config.watchdog_arg, m);
    pump_release(&c->pump, held);
}

static enum peer_owner_kind owner_of(struct rdzv_client *c, const struct addr *client,
                                     const struct addr *store, uint32_t *other) {
    struct peer_owner owner = peer_gate_owner_of(c->config.gate, client, store);
    if (owner.kind == PEER_OTHER_USER && *other == 0)
        *other = owner.uid;
    return owner.kind;
}

static void on_whose(struct rdzv_client *c, const struct rdzv_whose *w) {
    struct wire_message m = {.kind = WIRE_OWNER, .owner = {.id = w->id, .n = w->n}};
    struct addr client, store;
    bool clear = addr_from_literal(w->client, 0, &client) == 0 &&
                 addr_from_literal(w->store, w->store_port, &store) == 0;
    for (uint32_t i = 0; i < w->n; i++) {
        if (clear)
            addr_set_port(&client, w->ports[i]);
        m.owner.list[i] = clear ? owner_of(c, &client, &store, &m.owner.uid) : PEER_UNKNOWN;
    }
    send_to_leader(c, &m);
}

static void on_leader_message(struct rdzv_client *c, const struct wire_message *m) {
    if (m->kind == WIRE_DESIRED)
        on_desired(c, &m->desired);
    else if (m->kind == WIRE_LEASE)
        rdzv_client_event(c, &(struct member_event){.kind = MEMBER_EVENT_LEASE, .lease = m->lease});
    else if (m->kind == WIRE_STATUS)
        on_status(c, &m->status);
    else if (m->kind == WIRE_NAMED)
        on_named(c, &m->named);
    else if (m->kind == WIRE_MEMBERS)
        on_members(c, &m->members);
    else if (m->kind == WIRE_ASK || m->kind == WIRE_SUSPECTS || m->kind == WIRE_PROCEED)
        on_watchdog(c, m);
    else if (m->kind == WIRE_WHOSE)
        on_whose(c, &m->whose);
    else
        on_unexpected(c, m->kind);
}

static void on_message(void *arg, struct conn *conn, const struct wire_message *m) {
    struct rdzv_client *c = arg;
    if (m->kind == WIRE_HELLO)
        on_hello(c, &m->hello);
    else if (m->kind == WIRE_REDIRECT && has_arbiter(c))
        on_redirect(c, &m->redirect);
    else if (is_welcomed(c))
        on_leader_message(c, m);
    else
        on_first_message(c, m);
}

static void on_closed(void *arg, struct conn *conn, int code, const char *text) {
    struct rdzv_client *c = arg;
    if (is_welcomed(c))
        log_debug("rendezvous: the connection to the leader ended: %s", text);
    to_search(c, &(struct search_event){.kind = SEARCH_EVENT_CLOSED, .code = code, .why = text});
}

static const struct conn_ops conn_callbacks = {.on_message = on_message, .on_closed = on_closed};

/* ---- effects of the search ---- */

static void found_addrs(struct rdzv_client *c, const struct addr *addrs, size_t n_hosts) {
    size_t n = 0;
    for (unsigned i = 0; i < MAX2(c->config.n_ports, 1); i++) {
        for (size_t k = 0; k < n_hosts; k++) {
            c->addrs[n] = addrs[k];
            if (c->config.n_ports > 0)
                addr_set_port(&c->addrs[n], search_nth_port(&c->search, i));
            n++;
        }
    }
    to_search(c, &(struct search_event){.kind = SEARCH_EVENT_ADDRS, .n = n});
}

static void found_no_addrs(struct rdzv_client *c, const char *why) {
    to_search(c, &(struct search_event){.kind = SEARCH_EVENT_ADDRS, .why = why});
}

static void on_resolved(void *arg, int code, const char *text, const struct addr *addrs, size_t n) {
    struct rdzv_client *c = arg;
    c->resolve = NULL;
    if (code < 0)
        found_no_addrs(c, text);
    else
        found_addrs(c, addrs, n);
}

static void resolve_endpoint(struct rdzv_client *c) {
    const struct rdzv_client_config *config = &c->config;
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n = 1;
    int r = 0;
    if (config->addr.len > 0)
        addrs[0] = config->addr;
    else
        r = resolve_now(config->host, config->port, addrs, &n);
    if (r == RESOLVE_E_LOOKUP && member_lease_end(c->member) == 0 &&
        hosts_file_find("/etc", config->host, config->port, &addrs[0])) {
        n = 1;
        r = 0;
    }
    if (r == 0) {
        found_addrs(c, addrs, n);
        return;
    }
    if (r == RESOLVE_E_LOOKUP)
        r = resolve_start(c->loop, config->host, config->port, config->resolve_timeout_ns,
                          on_resolved, c, &c->resolve);
    if (r < 0) {
        char text[SEARCH_TEXT_MAX];
        (void)snprintf(text, sizeof text, "cannot look up the leader's host '%s': %s", config->host,
                       strerror(-r));
        found_no_addrs(c, text);
    }
}

static void resolve(struct rdzv_client *c) {
    if (!has_arbiter(c)) {
        resolve_endpoint(c);
        return;
    }
    size_t n = peer_addrs(c, &c->search.target, c->addrs);
    if (n > 0)
        to_search(c, &(struct search_event){.kind = SEARCH_EVENT_ADDRS, .n = n});
    else
        found_no_addrs(c, "the next leader's address is not known here");
}

static void connect_to(struct rdzv_client *c, size_t at) {
    int r =
        conn_connect(c->loop, NULL, &c->addrs[at], c->config.auth, &conn_callbacks, c, &c->conn);
    if (r < 0)
        to_search(
            c, &(struct search_event){.kind = SEARCH_EVENT_CLOSED, .code = r, .why = strerror(-r)});
    else if (has_arbiter(c)) /* its HELLO comes before JOIN is sent */
        conn_call(c->conn);
}

static void join(struct rdzv_client *c) {
    if (c->conn == NULL)
        return;
    if (has_arbiter(c)) {
        remember(c, c->search.target.incarnation, &c->addrs[c->search.at]);
        conn_set_patience(c->conn, c->rdzv.lease_ns, c->rdzv.heartbeat_ns);
    }
    if (!send_join(c) && c->config.n_ports > 0)
        conn_call(c->conn); /* its HELLO shows meanwhile whether the leader is here */
}

static void end_probes(struct rdzv_client *c) {
    for (size_t i = 0; i < SEARCH_PROBES_MAX; i++)
        probe_free(TAKE_PTR(c->looks[i].probe));
}

static void close_all(struct rdzv_client *c) {
    end_probes(c);
    conn_free(TAKE_PTR(c->conn));
    drop_handover(c);
    resolve_free(TAKE_PTR(c->resolve));
}

static void on_probed(void *arg, const struct probe_answer *answer) {
    struct client_look *look = arg;
    look->probe = NULL;
    to_search(look->client, &(struct search_event){.kind = SEARCH_EVENT_PROBED,
                                                   .at = look->at,
                                                   .run_id = answer->run_id,
                                                   .code = answer->code,
                                                   .why = answer->why != NULL ? answer->why : ""});
}

static void probe(struct rdzv_client *c, size_t at) {
    struct client_look *look = c->looks;
    while (look->probe != NULL)
        look++;
    assert(look < c->looks + SEARCH_PROBES_MAX);
    *look = (struct client_look){.client = c, .at = at};
    int r = probe_start(c->loop, NULL, &c->addrs[at], c->config.auth, 0, PROBE_TIMEOUT_NS,
                        on_probed, look, &look->probe);
    if (r < 0)
        to_search(c, &(struct search_event){
                         .kind = SEARCH_EVENT_PROBED, .at = at, .code = r, .why = strerror(-r)});
}

static void describe(const struct rdzv_client *c, const struct search_effect *e,
                     char ret[SEARCH_TEXT_MAX]) {
    char at[ADDR_TEXT_MAX];
    const char *what =
        e->wait == RDZV_WAIT_NOT_ADMITTED ? "not admitted by the agent" : "no leader";
    if (e->why == NULL) {
        addr_host_text(&c->addrs[0], at);
        search_describe_ports(&c->search, c->config.host, at, ret);
    } else if (e->at == SEARCH_NO_ADDR) {
        (void)snprintf(ret, SEARCH_TEXT_MAX, "%s", e->why);
    } else {
        addr_to_text(&c->addrs[e->at], at);
        (void)snprintf(ret, SEARCH_TEXT_MAX, "%s at %s: %.600s", what, at, e->why);
    }
}

static void obey_search(struct rdzv_client *c, const struct search_effect *e) {
    const struct rdzv_client_ops *ops = &c->config.ops;
    char text[SEARCH_TEXT_MAX];
    switch (e->kind) {
    case SEARCH_EFFECT_RESOLVE: resolve(c); break;
    case SEARCH_EFFECT_CONNECT: connect_to(c, e->at); break;
    case SEARCH_EFFECT_JOIN: join(c); break;
    case SEARCH_EFFECT_CLOSE: close_all(c); break;
    case SEARCH_EFFECT_PROBE: probe(c, e->at); break;
    case SEARCH_EFFECT_END_PROBES: end_probes(c); break;
    case SEARCH_EFFECT_FAILED:
        describe(c, e, text);
        log_debug("rendezvous: %s", text);
        break;
    case SEARCH_EFFECT_SHOW:
        describe(c, e, text);
        if (!has_arbiter(c)) /* else the member describes what it waits for */
            show_waiting(c, e->wait, text);
        break;
    case SEARCH_EFFECT_NOTHING_THERE:
        if (ops->nobody_there != NULL)
            ops->nobody_there(c->config.arg, &c->addrs[e->at]);
        break;
    case SEARCH_EFFECT_DISCONNECTED:
        rdzv_client_event(
            c, &(struct member_event){.kind = MEMBER_EVENT_DISCONNECT, .reason = e->why});
        break;
    case SEARCH_EFFECT_REFUSED:
        rdzv_client_event(c,
                          &(struct member_event){.kind = MEMBER_EVENT_REFUSED, .reason = e->why});
        break;
    case SEARCH_EFFECT_KIND_COUNT: assert_not_reached();
    }
}

static enum search_link link_of(const struct rdzv_client *c) {
    struct addr peer;
    if (c->conn == NULL)
        return SEARCH_LINK_CONNECTING;
    if (conn_is_choosing(c->conn))
        return SEARCH_LINK_CHOOSING;
    return conn_peer_addr(c->conn, &peer) == 0 ? SEARCH_LINK_CONNECTED : SEARCH_LINK_CONNECTING;
}

static uint64_t step_search(void *arg, void *event) {
    struct rdzv_client *c = arg;
    struct search_event *ev = event;
    if (c->ended)
        return TIME_NEVER;
    ev->now_ns = clock_now_ns();
    if (ev->kind == SEARCH_EVENT_TIME)
        ev->link = link_of(c);
    search_step(&c->search, ev, &c->search_update);
    for (size_t i = 0; i < c->search_update.n_effects && !c->search_pump.dead && !c->ended; i++)
        obey_search(c, &c->search_update.effects[i]);
    return c->ended ? TIME_NEVER : c->search_update.deadline_ns;
}

static void destroy_if_idle(void *client);

static const struct pump_ops search_pump_ops = {
    .step = step_search,
    .destroy = destroy_if_idle,
    .event_size = sizeof(struct search_event),
    .pointers = {{offsetof(struct search_event, peer), sizeof(struct rdzv_peer)},
                 {offsetof(struct search_event, run_id), PUMP_TEXT},
                 {offsetof(struct search_event, at_text), PUMP_TEXT},
                 {offsetof(struct search_event, why), PUMP_TEXT}},
};

static void to_search(struct rdzv_client *c, const struct search_event *ev) {
    struct search_event event = *ev;
    pump_event(&c->search_pump, &event);
}

static void on_search_timer(void *arg) {
    to_search(arg, &(struct search_event){.kind = SEARCH_EVENT_TIME});
}

static void init_search(struct rdzv_client *c, uint64_t now_ns) {
    const struct rdzv_client_config *config = &c->config;
    struct search_config search = {.incarnation = config->info.incarnation,
                                   .has_arbiter = has_arbiter(c),
                                   .n_ports = config->n_ports,
                                   .connect_timeout_ns = config->connect_timeout_ns,
                                   .peer_timeout_ns = PEER_TIMEOUT_NS};
    memcpy(search.run_id, config->run_id, sizeof search.run_id);
    memcpy(search.ports, config->ports, sizeof search.ports);
    search_init(&c->search, &search, now_ns);
    pump_init(&c->search_pump, c->loop, &search_pump_ops, c, on_search_timer);
    loop_timer_set(c->search_pump.timer, c->search.due_ns);
}

/* ---- effects of the member ---- */

static void leave(struct rdzv_client *c) {
    send_to_leader(c, &(struct wire_message){.kind = WIRE_LEAVE});
    conn_finish(TAKE_PTR(c->conn));
    hang_up(c);
}

static void on_arbiter(void *arg, const struct arbiter_answer *answer) {
    rdzv_client_event(arg, &(struct member_event){.kind = MEMBER_EVENT_ARBITER, .answer = answer});
}

static void end(struct rdzv_client *c) {
    c->ended = true;
    loop_timer_set(c->search_pump.timer, TIME_NEVER);
    resolve_free(TAKE_PTR(c->resolve));
    free_probes(c);
    c->config.ops.end(c->config.arg, member_end(c->member));
}

static void obey(struct rdzv_client *c, const struct member_effect *e) {
    const struct rdzv_client_ops *ops = &c->config.ops;
    void *arg = c->config.arg;
    switch (e->kind) {
    case MEMBER_EFFECT_CONNECT:
        to_search(c, &(struct search_event){
                         .kind = SEARCH_EVENT_CONNECT, .peer = &e->peer, .soon = e->soon});
        break;
    case MEMBER_EFFECT_REPORT: send_report(c); break;
    case MEMBER_EFFECT_RENEW: renew(c, &e->renew); break;
    case MEMBER_EFFECT_PROBE: probe_leader(c); break;
    case MEMBER_EFFECT_PREPARE: ops->prepare(arg, e->generation, member_form(c->member)); break;
    case MEMBER_EFFECT_START: ops->start(arg, e->generation, e->reachability); break;
    case MEMBER_EFFECT_STOP:
        ops->stop(arg, e->grace_ns, e->reason, member_stop_cause(c->member));
        break;
    case MEMBER_EFFECT_FENCE: ops->fence(arg); break;
    case MEMBER_EFFECT_HOLD:
        if (ops->hold != NULL)
            ops->hold(arg);
        break;
    case MEMBER_EFFECT_RESUME:
        if (ops->resume != NULL)
            ops->resume(arg, e->paused_ns);
        break;
    case MEMBER_EFFECT_LEASE_END: ops->lease_end(arg, e->lease_end_ns); break;
    case MEMBER_EFFECT_SEND_LEAVE: leave(c); break;
    case MEMBER_EFFECT_END: end(c); break;
    case MEMBER_EFFECT_HANG_UP: hang_up(c); break;
    case MEMBER_EFFECT_ECHO:
        send_to_leader(c, &(struct wire_message){.kind = WIRE_ECHO, .echo = e->echo});
        break;
    case MEMBER_EFFECT_ARBITER: arbiter_ask(c->config.arbiter, e->request, on_arbiter, c); break;
    case MEMBER_EFFECT_PROBE_PEER: begin_probe(c, &e->peer, false); break;
    case MEMBER_EFFECT_LEAD: ops->lead(arg, e->lead); break;
    case MEMBER_EFFECT_JOIN_POLICY:
        ops->join_policy(arg, e->join_policy, &e->peer, e->epoch);
        break;
    case MEMBER_EFFECT_KIND_COUNT: assert_not_reached();
    }
}

static uint64_t step(void *arg, void *event) {
    struct rdzv_client *c = arg;
    struct member_event *ev = event;
    if (c->ended)
        return TIME_NEVER;
    ev->now_ns = clock_now_ns();
    member_step(c->member, ev, &c->update);
    for (size_t i = 0; i < c->update.n_effects && !c->pump.dead; i++)
        obey(c, &c->update.effects[i]);
    if (has_arbiter(c) && !c->pump.dead && !c->ended && member_waiting(c->member)[0] != '\0')
        show_waiting(c, RDZV_WAIT_ELECTION, member_waiting(c->member));
    return c->ended ? TIME_NEVER : c->update.deadline_ns;
}

static void destroy(struct rdzv_client *c) {
    if (c->config.arbiter != NULL)
        arbiter_cancel(c->config.arbiter, c);
    conn_finish(TAKE_PTR(c->conn));
    close_all(c);
    free_probes(c);
    pump_fini(&c->search_pump);
    pump_fini(&c->pump);
    member_update_fini(&c->update);
    member_free(c->member);
    free(c->node_summary);
    free(c->warm);
    free(c);
}

static void destroy_if_idle(void *client) {
    struct rdzv_client *c = client;
    if (!c->pump.busy && !c->search_pump.busy)
        destroy(c);
}

static const struct pump_ops pump_ops = {
    .step = step,
    .destroy = destroy_if_idle,
    .event_size = sizeof(struct member_event),
    .pointers = {{offsetof(struct member_event, failure), sizeof(struct failure)},
                 {offsetof(struct member_event, reason), PUMP_TEXT},
                 {offsetof(struct member_event, sick), PUMP_TEXT}},
};

void rdzv_client_event(struct rdzv_client *c, const struct member_event *event) {
    struct member_event ev = *event;
    assert(!c->pump.busy || (ev.desired == NULL && ev.successors == NULL && ev.handover == NULL &&
                             ev.answer == NULL && ev.peer == NULL));
    pump_event(&c->pump, &ev);
}

static void on_timer(void *arg) {
    rdzv_client_event(arg, &(struct member_event){.kind = MEMBER_EVENT_TIME});
}

int rdzv_client_new(struct loop *loop, const struct member_config *member_config,
                    const struct rdzv_client_config *config, struct rdzv_client **ret) {
    if (config->info.incarnation != member_config->incarnation ||
        member_config->has_arbiter != (config->arbiter != NULL))
        return -EINVAL;
    struct rdzv_client *c = xcalloc(1, sizeof *c);
    c->loop = loop;
    c->config = *config;
    if (c->config.connect_timeout_ns == 0)
        c->config.connect_timeout_ns = CONNECT_TIMEOUT_NS;
    if (c->config.resolve_timeout_ns == 0)
        c->config.resolve_timeout_ns = RESOLVE_TIMEOUT_NS;
    c->rdzv = member_config->rdzv;
    list_init(&c->peer_probes);
    uint64_t now = clock_now_ns();
    int r = member_new(member_config, now, &c->member);
    if (r < 0) {
        free(c);
        return r;
    }
    pump_init(&c->pump, loop, &pump_ops, c, on_timer);
    init_search(c, now);
    loop_timer_set(c->pump.timer, now);
    *ret = c;
    return 0;
}

void rdzv_client_free(struct rdzv_client *c) {
    if (c == NULL)
        return;
    c->pump.dead = c->search_pump.dead = true;
    destroy_if_idle(c);
}

const struct member *rdzv_client_member(const struct rdzv_client *c) { return c->member; }

bool rdzv_client_leader(const struct rdzv_client *c, uint32_t *ret_epoch, struct rdzv_peer *ret) {
    struct rdzv_peer p = {0};
    bool known = has_arbiter(c) && member_leader(c->member, &p);
    if (c->leader != 0 && (!has_arbiter(c) || (known && p.incarnation == c->leader))) {
        /* As it was reached. Another agent of this machine is reached like this one. */
        p = (struct rdzv_peer){.incarnation = c->leader, .port = addr_port(&c->leader_listener)};
        if (!addr_is_loopback(&c->leader_listener))
            addr_host_text(&c->leader_listener, p.addr);
        known = true;
    }
    if (!known)
        return false;
    *ret_epoch = has_arbiter(c) ? member_epoch(c->member) : c->leader_epoch;
    *ret = p;
    return true;
}

enum rdzv_finding rdzv_client_finding(const struct rdzv_client *c) { return c->search.finding; }

uint64_t rdzv_client_welcomes(const struct rdzv_client *c) {
    return is_welcomed(c) ? c->search.n_welcomes : 0;
}
