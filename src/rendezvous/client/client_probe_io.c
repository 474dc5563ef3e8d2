#include <string.h>

#include "rendezvous/client/client_priv.h"

/* The probe of a peer that may have several addresses. */
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

size_t client_peer_addrs(const struct rdzv_client *c, const struct rdzv_peer *peer,
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

/* ---- probes ---- */

/* Whoever passes the probe on to this agent's own listener, which has the key too, proves nothing.
 */
static enum probe_result result_of(const struct rdzv_client *c, const struct probe_answer *answer) {
    bool came_back = answer->incarnation == c->config.info.incarnation && !answer->within_host;
    return answer->result == PROBE_GONE && came_back ? PROBE_UNKNOWN : answer->result;
}

static void peer_probe_free(struct peer_probe *p) {
    list_remove(&p->link);
    p->client->n_peer_probes--;
    probe_free(p->probe);
    free(p);
}

static void report(struct rdzv_client *c, bool of_leader, uint64_t incarnation,
                   enum probe_result result) {
    client_event(
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
    enum probe_result result = result_of(p->client, answer);
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
        if (probe_start(c->loop, NULL, to, c->config.auth, p->incarnation,
                        c->config.probe_timeout_ns, on_peer_probed, p, &p->probe) == 0)
            return;
    }
    peer_probe_done(p, PROBE_UNKNOWN);
}

/* at: the only address to be tried, where it was reached; NULL: those that are known of it. The
 * member probes its leader once at a time, so that is not limited. */
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
    p->n = at != NULL ? 1 : client_peer_addrs(c, peer, p->addrs);
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
