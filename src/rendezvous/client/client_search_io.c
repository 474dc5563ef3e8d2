#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/net/resolver.h"
#include "rendezvous/client/client_priv.h"

/* For one address of a peer, until HELLO. */
#define PEER_TIMEOUT_NS (1500 * NS_PER_MS)
/* A leader that is busy answers a probe within this time. */
#define PROBE_TIMEOUT_NS (1 * NS_PER_S)

static const struct addr *reached_at(const struct rdzv_client *c, uint64_t incarnation) {
    for (size_t i = 0; i < CLIENT_REACHED_MAX; i++)
        if (incarnation != 0 && c->reached[i].incarnation == incarnation)
            return &c->reached[i].listener;
    return NULL;
}

void client_remember(struct rdzv_client *c, uint64_t incarnation, const struct addr *listener) {
    for (size_t i = 0; i < CLIENT_REACHED_MAX; i++) {
        if (c->reached[i].incarnation == incarnation) {
            c->reached[i].listener = *listener;
            return;
        }
    }
    c->reached[c->next_reached].incarnation = incarnation;
    c->reached[c->next_reached].listener = *listener;
    c->next_reached = (c->next_reached + 1) % CLIENT_REACHED_MAX;
}

/* To be tried in turn; first the one that is known to work. Returns how many. */
static size_t peer_addrs(const struct rdzv_client *c, const struct rdzv_peer *peer,
                         struct addr out[CLIENT_PEER_ADDRS_MAX]) {
    size_t n = 0;
    const struct addr *known = reached_at(c, peer->incarnation);
    if (peer->incarnation == c->config.info.incarnation && c->config.own_listener.len > 0)
        out[n++] = c->config.own_listener;
    if (known != NULL)
        out[n++] = *known;
    size_t first = n;
    if (peer->addr[0] == '\0' && c->leader_listener.len > 0 && n < CLIENT_PEER_ADDRS_MAX) {
        out[n] = c->leader_listener;
        addr_set_port(&out[n++], peer->port);
    }
    n += addr_from_list(peer->addr, peer->port, out + n, CLIENT_PEER_ADDRS_MAX - n);
    for (size_t i = first; i < n && known != NULL; i++) {
        if (addr_same_host(&out[i], known)) {
            memmove(&out[i], &out[i + 1], (n - i - 1) * sizeof *out);
            n--;
            break;
        }
    }
    return n;
}

/* ---- probes of their listeners ---- */

struct peer_probe {
    struct list link;
    struct rdzv_client *client;
    struct probe *probe;
    bool of_leader; /* answered as PROBE, otherwise as PEER_PROBE */
    bool known;     /* it was reached earlier, at its only address */
    uint64_t incarnation;
    struct addr addrs[CLIENT_PEER_ADDRS_MAX];
    size_t n, next;
};

static void peer_probe_free(struct peer_probe *p) {
    list_remove(&p->link);
    p->client->n_peer_probes--;
    probe_free(p->probe);
    free(p);
}

static void report(struct rdzv_client *c, bool of_leader, uint64_t incarnation,
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
    report(c, of_leader, incarnation, result);
}

static void next_addr(struct peer_probe *p);

static void on_peer_probed(void *arg, const struct probe_answer *answer) {
    struct peer_probe *p = arg;
    enum probe_result result = probe_result_for(answer, p->client->config.info.incarnation);
    p->probe = NULL;
    if (result == PROBE_ALIVE) {
        client_remember(p->client, p->incarnation, &p->addrs[p->next - 1]);
        peer_probe_done(p, PROBE_ALIVE);
    } else if (result == PROBE_GONE && p->known) {
        peer_probe_done(p, PROBE_GONE);
    } else {
        next_addr(p);
    }
}

static void next_addr(struct peer_probe *p) {
    const struct rdzv_client *c = p->client;
    while (p->next < p->n) {
        const struct addr *to = &p->addrs[p->next++];
        if (probe_start(c->loop, NULL, to, c->config.auth, p->incarnation, PROBE_TIMEOUT_NS,
                        on_peer_probed, p, &p->probe) == 0)
            return;
    }
    peer_probe_done(p, PROBE_UNKNOWN);
}

/* at: where it was reached, as the only one; NULL: those that are known. The member probes its
 * leader once at a time, so that is not limited. */
static void begin_probe(struct rdzv_client *c, const struct rdzv_peer *peer, bool of_leader,
                        const struct addr *at) {
    LIST_FOR_EACH(struct peer_probe, p, &c->peer_probes, link) {
        if (p->incarnation == peer->incarnation && p->of_leader == of_leader)
            return; /* its answer also counts for this one */
    }
    if ((!of_leader && c->n_peer_probes >= CLIENT_PROBES_MAX) || peer->incarnation == 0) {
        report(c, of_leader, peer->incarnation, PROBE_UNKNOWN);
        return;
    }
    struct peer_probe *p = xcalloc(1, sizeof *p);
    p->client = c;
    p->of_leader = of_leader;
    p->incarnation = peer->incarnation;
    p->n = at != NULL ? 1 : peer_addrs(c, peer, p->addrs);
    if (at != NULL)
        p->addrs[0] = *at;
    p->known = at != NULL || reached_at(c, peer->incarnation) != NULL;
    if (p->known)
        p->n = 1;
    list_append(&c->peer_probes, &p->link);
    c->n_peer_probes++;
    next_addr(p);
}

void client_probe_leader(struct rdzv_client *c) {
    struct rdzv_peer leader = {.incarnation = c->leader};
    bool other = client_has_arbiter(c) && member_leader(c->member, &leader) &&
                 leader.incarnation != c->leader;
    begin_probe(c, &leader, true, other ? NULL : &c->leader_listener);
}

void client_probe_peer(struct rdzv_client *c, const struct rdzv_peer *peer) {
    begin_probe(c, peer, false, NULL);
}

void client_free_probes(struct rdzv_client *c) {
    LIST_FOR_EACH(struct peer_probe, p, &c->peer_probes, link)
        peer_probe_free(p);
}

/* ---- addresses of the endpoint ---- */

size_t client_port_addrs(const uint16_t *ports, unsigned n_ports, unsigned first,
                         const struct addr *addrs, size_t n, struct addr *ret) {
    size_t n_ret = 0;
    for (unsigned i = 0; i < n_ports; i++) {
        for (size_t k = 0; k < n; k++) {
            ret[n_ret] = addrs[k];
            addr_set_port(&ret[n_ret++], ports[(first + i) % n_ports]);
        }
    }
    return n_ret;
}

static void found_addrs(struct rdzv_client *c, const struct addr *addrs, size_t n) {
    const struct rdzv_client_config *config = &c->config;
    if (config->n_ports > 0)
        n = client_port_addrs(config->ports, config->n_ports, c->search.first_port, addrs, n,
                              c->addrs);
    else
        memmove(c->addrs, addrs, n * sizeof *addrs);
    client_search(c, &(struct search_event){.kind = SEARCH_EVENT_ADDRS, .n = n});
}

static void found_no_addrs(struct rdzv_client *c, const char *why) {
    client_search(c, &(struct search_event){.kind = SEARCH_EVENT_ADDRS, .why = why});
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
    if (!client_has_arbiter(c)) {
        resolve_endpoint(c);
        return;
    }
    size_t n = peer_addrs(c, &c->search.target, c->addrs);
    if (n > 0)
        client_search(c, &(struct search_event){.kind = SEARCH_EVENT_ADDRS, .n = n});
    else
        found_no_addrs(c, "the next leader's address is not known here");
}

/* ---- effects ---- */

static void connect_to(struct rdzv_client *c, size_t at) {
    int r =
        conn_connect(c->loop, NULL, &c->addrs[at], c->config.auth, &client_conn_ops, c, &c->conn);
    if (r < 0) {
        client_search(
            c, &(struct search_event){.kind = SEARCH_EVENT_CLOSED, .code = r, .why = strerror(-r)});
        return;
    }
    if (client_has_arbiter(c)) /* its HELLO comes before JOIN is sent */
        conn_call(c->conn);
}

static void join(struct rdzv_client *c) {
    if (c->conn == NULL)
        return;
    if (client_has_arbiter(c)) {
        client_remember(c, c->search.target.incarnation, &c->addrs[c->search.at]);
        conn_set_patience(c->conn, c->rdzv.lease_ns, c->rdzv.heartbeat_ns);
    }
    if (!client_send_join(c) && c->config.n_ports > 0)
        conn_call(c->conn); /* its HELLO shows meanwhile whether the leader is here */
}

static void end_probes(struct rdzv_client *c) {
    for (size_t i = 0; i < SEARCH_PROBES_MAX; i++)
        probe_free(TAKE_PTR(c->looks[i].probe));
}

void client_close(struct rdzv_client *c) {
    end_probes(c);
    conn_free(TAKE_PTR(c->conn));
    client_drop_handover(c);
    resolve_free(TAKE_PTR(c->resolve));
}

static void on_probed(void *arg, const struct probe_answer *answer) {
    struct client_look *look = arg;
    look->probe = NULL;
    client_search(look->client,
                  &(struct search_event){.kind = SEARCH_EVENT_PROBED,
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
        client_search(c,
                      &(struct search_event){
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

static void obey(struct rdzv_client *c, const struct search_effect *e) {
    const struct rdzv_client_ops *ops = &c->config.ops;
    char text[SEARCH_TEXT_MAX];
    switch (e->kind) {
    case SEARCH_EFFECT_RESOLVE: resolve(c); break;
    case SEARCH_EFFECT_CONNECT: connect_to(c, e->at); break;
    case SEARCH_EFFECT_JOIN: join(c); break;
    case SEARCH_EFFECT_CLOSE: client_close(c); break;
    case SEARCH_EFFECT_PROBE: probe(c, e->at); break;
    case SEARCH_EFFECT_END_PROBES: end_probes(c); break;
    case SEARCH_EFFECT_FAILED:
        describe(c, e, text);
        log_debug("rendezvous: %s", text);
        break;
    case SEARCH_EFFECT_SHOW:
        describe(c, e, text);
        client_show_waiting(c, e->wait, text);
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

static uint64_t step(void *arg, void *event) {
    struct rdzv_client *c = arg;
    struct search_event *ev = event;
    if (c->ended)
        return TIME_NEVER;
    ev->now_ns = clock_now_ns();
    if (ev->kind == SEARCH_EVENT_TIME)
        ev->link = link_of(c);
    search_step(&c->search, ev, &c->search_update);
    for (size_t i = 0; i < c->search_update.n_effects && !c->search_pump.dead && !c->ended; i++)
        obey(c, &c->search_update.effects[i]);
    return c->ended ? TIME_NEVER : c->search_update.deadline_ns;
}

static const struct pump_ops pump_ops = {
    .step = step,
    .destroy = client_destroy_if_idle,
    .event_size = sizeof(struct search_event),
    .pointers = {{offsetof(struct search_event, peer), sizeof(struct rdzv_peer)},
                 {offsetof(struct search_event, run_id), PUMP_TEXT},
                 {offsetof(struct search_event, at_text), PUMP_TEXT},
                 {offsetof(struct search_event, why), PUMP_TEXT}},
};

void client_search(struct rdzv_client *c, const struct search_event *ev) {
    struct search_event event = *ev;
    pump_event(&c->search_pump, &event);
}

static void on_timer(void *arg) {
    client_search(arg, &(struct search_event){.kind = SEARCH_EVENT_TIME});
}

enum rdzv_finding rdzv_client_finding(const struct rdzv_client *c) { return c->search.finding; }

uint64_t rdzv_client_welcomes(const struct rdzv_client *c) {
    return client_is_welcomed(c) ? c->search.n_welcomes : 0;
}

void client_search_init(struct rdzv_client *c, uint64_t now_ns) {
    const struct rdzv_client_config *config = &c->config;
    struct search_config search = {.incarnation = config->info.incarnation,
                                   .has_arbiter = client_has_arbiter(c),
                                   .n_ports = config->n_ports,
                                   .connect_timeout_ns = config->connect_timeout_ns,
                                   .peer_timeout_ns = PEER_TIMEOUT_NS};
    memcpy(search.run_id, config->run_id, sizeof search.run_id);
    memcpy(search.ports, config->ports, sizeof search.ports);
    search_init(&c->search, &search, now_ns);
    pump_init(&c->search_pump, c->loop, &pump_ops, c, on_timer);
    loop_timer_set(c->search_pump.timer, c->search.due_ns);
}

void client_search_fini(struct rdzv_client *c) { pump_fini(&c->search_pump); }
