/* An endpoint of several ports, of which the leader has one: the order of the attempts, looks at
 * the other ports while one is silent, and what was found at each. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/port_list.h"
#include "base/text/strbuf.h"
#include "io/clock.h"
#include "rendezvous/client/client_priv.h"

/* A leader that is busy answers within this time; other ports are not kept waiting by it. */
#define LOOK_TIMEOUT_NS (1 * NS_PER_S)
/* The pauses before the first port is tried again: 20, 40, 80 and 160 ms. */
#define WAIT_AT_FIRST_NS (20 * NS_PER_MS)
#define WAITS_AT_FIRST_MAX 4
/* Bytes of a list of ports in a message; all 16, and a few. */
#define FOUND_AT_MAX 96
#define NOTHING_AT_MAX 32

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

/* ---- what was found ---- */

static unsigned index_of(const struct rdzv_client *c, uint16_t port) {
    unsigned i = 0;
    while (i + 1 < c->config.n_ports && c->config.ports[i] != port)
        i++;
    return i;
}

/* Of several addresses with this port, one where somebody listens counts. */
static void note_at(struct rdzv_client *c, size_t at, enum client_found what, const char *detail) {
    struct client_port *p = &c->ports[index_of(c, addr_port(&c->addrs[at]))];
    if (what == CLIENT_FOUND_NOTHING && p->found != CLIENT_NOT_LOOKED)
        return;
    p->found = what;
    (void)snprintf(p->detail, sizeof p->detail, "%s", detail);
}

void client_note(struct rdzv_client *c, enum client_found what, const char *detail) {
    c->code = what == CLIENT_FOUND_NOTHING ? -ECONNREFUSED : 0;
    if (c->config.n_ports > 0)
        note_at(c, c->next_addr - 1, what, detail);
}

static void note_code_at(struct rdzv_client *c, size_t at, int code, const char *why) {
    if (code == -ECONNREFUSED)
        note_at(c, at, CLIENT_FOUND_NOTHING, "");
    else if (code == -EPROTO)
        note_at(c, at, CLIENT_FOUND_NOT_MUSTER, "");
    else if (code == -EKEYREJECTED)
        note_at(c, at, CLIENT_FOUND_STRANGER, why);
    else if (code == 0 || code == -ECONNRESET || code == -EPIPE || code == -ECONNABORTED)
        note_at(c, at, CLIENT_FOUND_HANGS_UP, "");
    else if (code == -ETIMEDOUT)
        note_at(c, at, CLIENT_FOUND_SILENT, "");
    else
        note_at(c, at, CLIENT_FOUND_ERROR, strerror(-code));
}

void client_note_code(struct rdzv_client *c, int code, const char *why) {
    c->code = code;
    if (c->config.n_ports > 0)
        note_code_at(c, c->next_addr - 1, code, why);
}

static void forget_found(struct rdzv_client *c) {
    for (unsigned i = 0; i < c->config.n_ports; i++)
        c->ports[i].found = CLIENT_NOT_LOOKED;
}

/* in_full: also why an agent may not be talked to, which is long. */
static void add_found(const struct client_port *p, bool in_full, struct strbuf *out) {
    switch (p->found) {
    case CLIENT_NOT_LOOKED:
    case CLIENT_FOUND_NOTHING: break;
    case CLIENT_FOUND_SILENT: strbuf_add(out, ": no answer (not muster, or a firewall)"); break;
    case CLIENT_FOUND_HANGS_UP: strbuf_add(out, ": hung up (not muster?)"); break;
    case CLIENT_FOUND_NOT_MUSTER: strbuf_add(out, ": not muster"); break;
    case CLIENT_FOUND_OTHER_VERSION: strbuf_add(out, ": muster of another version"); break;
    case CLIENT_FOUND_OTHER_RUN:
        strbuf_printf(out, ": an agent of the run '%.47s'", p->detail);
        break;
    case CLIENT_FOUND_STRANGER:
        strbuf_printf(out, ": %s", in_full ? p->detail : "an agent without this node's key");
        break;
    case CLIENT_FOUND_ERROR: strbuf_printf(out, ": %s", p->detail); break;
    }
}

static bool is_nothing(const struct client_port *p) {
    return p->found == CLIENT_NOT_LOOKED || p->found == CLIENT_FOUND_NOTHING;
}

/* The ports that answered alike; `max` bytes of them are told, else only how many there are. */
static void add_ports(const uint16_t *ports, unsigned n, size_t max, struct strbuf *out) {
    _cleanup_(strbuf_fini) struct strbuf list = {0};
    port_list_text(ports, n, &list);
    if (list.len <= max)
        strbuf_printf(out, "port%s %s", n > 1 ? "s" : "", strbuf_text(&list));
    else
        strbuf_printf(out, "%u ports (%u, ...)", n, ports[0]);
}

static bool are_alike(const struct client_port *a, const struct client_port *b) {
    return (is_nothing(a) && is_nothing(b)) ||
           (a->found == b->found && strcmp(a->detail, b->detail) == 0);
}

/* Collects the ports where the same was found as at ports[first], if that is the first of them. */
static unsigned alike(const struct rdzv_client *c, unsigned first,
                      uint16_t ret[RDZV_ENDPOINT_PORTS_MAX]) {
    unsigned n = 0;
    for (unsigned i = 0; i < c->config.n_ports; i++) {
        if (!are_alike(&c->ports[i], &c->ports[first]))
            continue;
        if (i < first)
            return 0;
        ret[n++] = c->config.ports[i];
    }
    return n;
}

/* At no port came an answer, not even a refusal. */
static bool all_silent(const struct rdzv_client *c) {
    for (unsigned i = 0; i < c->config.n_ports; i++)
        if (c->ports[i].found != CLIENT_FOUND_SILENT && c->ports[i].found != CLIENT_FOUND_ERROR)
            return false;
    return c->config.n_ports > 0;
}

static bool all_refuse(const struct rdzv_client *c) {
    for (unsigned i = 0; i < c->config.n_ports; i++)
        if (!is_nothing(&c->ports[i]))
            return false;
    return c->config.n_ports > 0 || c->code == -ECONNREFUSED;
}

enum rdzv_finding rdzv_client_finding(const struct rdzv_client *c) { return c->finding; }

/* "node1 (10.0.0.1)" */
static void host_text(const struct rdzv_client *c, struct strbuf *ret) {
    char address[ADDR_TEXT_MAX];
    addr_host_text(&c->addrs[0], address);
    if (c->config.host[0] != '\0' && strcmp(c->config.host, address) != 0)
        strbuf_printf(ret, "%s (%s)", c->config.host, address);
    else
        strbuf_add(ret, address);
}

static void describe_silent(const struct rdzv_client *c, char ret[CLIENT_WAITING_MAX]) {
    _cleanup_(strbuf_fini) struct strbuf host = {0};
    const struct client_port *p = &c->ports[0];
    host_text(c, &host);
    if (p->found == CLIENT_FOUND_ERROR)
        (void)snprintf(ret, CLIENT_WAITING_MAX,
                       "no leader at %s: cannot connect to any of its %u ports: %s",
                       strbuf_text(&host), c->config.n_ports, p->detail);
    else
        (void)snprintf(ret, CLIENT_WAITING_MAX,
                       "no leader at %s: no answer at any of its %u ports; it is down, or a "
                       "firewall is in the way",
                       strbuf_text(&host), c->config.n_ports);
}

void client_describe_ports(const struct rdzv_client *c, char ret[CLIENT_WAITING_MAX]) {
    if (c->config.n_ports > 1 && all_silent(c)) {
        describe_silent(c, ret);
        return;
    }
    _cleanup_(strbuf_fini) struct strbuf s = {0}, last = {0};
    uint16_t ports[RDZV_ENDPOINT_PORTS_MAX];
    char host[ADDR_TEXT_MAX];
    bool in_full = true;
    addr_host_text(&c->addrs[0], host);
    for (unsigned i = 0; i < c->config.n_ports; i++) {
        bool nothing = is_nothing(&c->ports[i]);
        struct strbuf *to = nothing ? &last : &s;
        unsigned n = alike(c, i, ports);
        if (n == 0)
            continue;
        strbuf_add(to, nothing ? "; nothing listens at " : "; ");
        add_ports(ports, n, nothing ? NOTHING_AT_MAX : FOUND_AT_MAX, to);
        if (nothing)
            strbuf_add(to, c->welcomed_ns > 0 ? " any more" : " yet");
        else
            add_found(&c->ports[i], in_full, to);
        in_full = in_full && c->ports[i].found != CLIENT_FOUND_STRANGER;
    }
    strbuf_add(&s, strbuf_text(&last));
    (void)snprintf(ret, CLIENT_WAITING_MAX, "no leader at %s: %s", host,
                   strbuf_text(&s) + strlen("; "));
}

/* ---- rounds ---- */

size_t client_spread_ports(struct rdzv_client *c, const struct addr *addrs, size_t n) {
    const struct rdzv_client_config *config = &c->config;
    forget_found(c);
    if (config->n_ports > 0)
        return client_port_addrs(config->ports, config->n_ports, c->first_port, addrs, n, c->addrs);
    memcpy(c->addrs, addrs, n * sizeof *addrs);
    return n;
}

/* Nobody answers as an agent of this run. */
static void found_nobody(struct rdzv_client *c, char ret[CLIENT_WAITING_MAX]) {
    client_describe_ports(c, ret);
    c->finding = all_silent(c)   ? RDZV_FINDING_SILENCE
                 : all_refuse(c) ? RDZV_FINDING_NOTHING
                                 : RDZV_FINDING_ELSE;
    if (c->welcomed_ns > 0 || c->config.ops.nobody_there == NULL)
        return;
    for (size_t i = 0; i < c->n_addrs / c->config.n_ports; i++) /* each address of the host */
        c->config.ops.nobody_there(c->config.arg, &c->addrs[i]);
}

/* All nodes of a step start at once, and the leader takes the first port unless it is taken. So if
 * nobody listens there, it most likely will in a moment: fifteen other ports are not tried, nor is
 * the name looked up again, by each of thousands of nodes. */
bool client_wait_at_first(struct rdzv_client *c) {
    const struct client_port *first = &c->ports[c->first_port];
    if (c->config.n_ports == 0 || c->welcomed_ns > 0 || c->waits_at_first == WAITS_AT_FIRST_MAX ||
        c->next_addr != c->n_addrs / c->config.n_ports || first->found != CLIENT_FOUND_NOTHING)
        return false;
    loop_timer_set(c->retry, clock_now_ns() + (WAIT_AT_FIRST_NS << c->waits_at_first++));
    c->wait_is_on = true;
    return true;
}

void client_round_over(struct rdzv_client *c, bool greeted, char text[CLIENT_WAITING_MAX]) {
    c->finding = !greeted && c->code == -ECONNREFUSED ? RDZV_FINDING_NOTHING
                 : client_cannot_connect(c->code)     ? RDZV_FINDING_SILENCE
                                                      : RDZV_FINDING_ELSE;
    if (c->config.n_ports == 0)
        return;
    if (greeted) /* an agent of this run: it may not lead, so another port has its turn */
        c->first_port =
            (index_of(c, addr_port(&c->addrs[c->next_addr - 1])) + 1) % c->config.n_ports;
    else
        found_nobody(c, text);
}

void client_keep_port(struct rdzv_client *c) {
    client_end_look(c);
    if (c->config.n_ports > 0)
        c->first_port = index_of(c, addr_port(&c->addrs[c->next_addr - 1]));
}

/* ---- looks: probes of all other addresses, while one is silent ---- */

static void look_on(struct rdzv_client *c);

static void on_looked(void *arg, const struct probe_answer *answer) {
    struct client_look *look = arg;
    struct rdzv_client *c = look->client;
    size_t at = look->at;
    look->probe = NULL;
    if (answer->run_id != NULL && strcmp(answer->run_id, c->config.run_id) == 0) {
        client_attempt_at(c, at);
        return;
    }
    if (answer->run_id != NULL)
        note_at(c, at, CLIENT_FOUND_OTHER_RUN, answer->run_id);
    else
        note_code_at(c, at, answer->code, answer->why);
    look_on(c);
}

/* Probes the next addresses, as many as may be probed at once. */
static void look_on(struct rdzv_client *c) {
    char text[CLIENT_WAITING_MAX];
    bool any = false;
    for (size_t i = 0; i < CLIENT_LOOKS_MAX; i++) {
        struct client_look *look = &c->looks[i];
        look->client = c;
        while (look->probe == NULL && c->look_next < c->n_addrs) {
            look->at = c->look_next++;
            if (look->at + 1 == c->next_addr)
                continue; /* the attempt is there */
            int r = probe_start(c->loop, &c->addrs[look->at], c->config.auth, 0, LOOK_TIMEOUT_NS,
                                on_looked, look, &look->probe);
            if (r < 0)
                note_code_at(c, look->at, r, strerror(-r));
        }
        any = any || look->probe != NULL;
    }
    if (any)
        return;
    c->looking = false;
    found_nobody(c, text);
    client_look_again(c, text);
}

void client_look(struct rdzv_client *c) {
    struct client_port at = c->ports[index_of(c, addr_port(&c->addrs[c->next_addr - 1]))];
    if (c->looking)
        return;
    forget_found(c);
    note_at(c, c->next_addr - 1, at.found, at.detail);
    c->looking = true;
    c->look_next = 0;
    look_on(c);
}

void client_end_look(struct rdzv_client *c) {
    c->looking = false;
    for (size_t i = 0; i < CLIENT_LOOKS_MAX; i++)
        probe_free(TAKE_PTR(c->looks[i].probe));
}
