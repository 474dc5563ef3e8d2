#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/log.h"
#include "io/clock.h"
#include "io/net/hosts_file.h"
#include "rendezvous/client/client_priv.h"

#define BACKOFF_FIRST_NS (100 * NS_PER_MS)
#define BACKOFF_MAX_NS (2 * NS_PER_S)
/* The limit of the pause for a peer. It is short, because an agent may be about to lead there, and
 * the job's machines are known to be up. */
#define PEER_BACKOFF_MAX_NS (500 * NS_PER_MS)
/* A host that has not answered for so long (a firewall, a program that is not muster) is named,
 * while the attempt goes on. */
#define SILENT_NS (2 * NS_PER_S)
/* With several ports: then the others are looked at, while the attempt goes on. */
#define LOOK_AFTER_NS (250 * NS_PER_MS)
#define LOOK_BACKOFF_MAX_NS (1 * NS_PER_S)

static void free_conn(struct rdzv_client *c) {
    conn_free(TAKE_PTR(c->conn));
    c->greeted = c->welcomed = c->join_due = c->called = false;
    client_drop_handover(c);
}

void client_hang_up(struct rdzv_client *c) {
    client_end_look(c);
    free_conn(c);
    resolve_free(TAKE_PTR(c->resolve));
    loop_timer_set(c->retry, TIME_NEVER);
    c->wait_is_on = false;
}

/* why: the two cannot or may not talk to each other; NULL: they can. */
static void disconnected(struct rdzv_client *c, const char *why) {
    client_hang_up(c);
    client_event(c, &(struct member_event){.kind = MEMBER_EVENT_DISCONNECT, .reason = why});
}

void client_disconnected(struct rdzv_client *c) { disconnected(c, NULL); }

static void back_off(struct rdzv_client *c) {
    uint64_t max = c->has_arbiter ? PEER_BACKOFF_MAX_NS : BACKOFF_MAX_NS;
    c->backoff_ns = c->backoff_ns == 0 ? BACKOFF_FIRST_NS : MIN2(c->backoff_ns * 2, max);
}

static void try_next_addr(struct rdzv_client *c);

static void describe(const struct rdzv_client *c, const char *what, const char *why,
                     char ret[CLIENT_WAITING_MAX]) {
    char at[ADDR_TEXT_MAX];
    addr_to_text(&c->addrs[c->next_addr - 1], at);
    (void)snprintf(ret, CLIENT_WAITING_MAX, "%s at %s: %.600s", what, at, why);
}

bool client_cannot_connect(int code) {
    static const int codes[] = {-ENETUNREACH, -EHOSTUNREACH,  -ENETDOWN,     -EACCES,
                                -EPERM,       -EADDRNOTAVAIL, -EAFNOSUPPORT, -EINVAL};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (codes[i] == code)
            return true;
    return false;
}

static void attempt_failed(struct rdzv_client *c, enum rdzv_wait wait, const char *why,
                           bool not_to_talk) {
    const char *what = wait == RDZV_WAIT_NOT_ADMITTED ? "not admitted by the agent" : "no leader";
    char text[CLIENT_WAITING_MAX];
    /* it was the right agent: its other addresses would give the same answer */
    bool greeted = c->greeted;
    free_conn(c);
    describe(c, what, why, text);
    log_debug("rendezvous: %s", text);
    if (!greeted && client_wait_at_first(c))
        return;
    if (c->next_addr < c->n_addrs && !greeted) {
        try_next_addr(c);
        return;
    }
    client_round_over(c, greeted, text);
    client_show_waiting(c, wait, text);
    back_off(c);
    disconnected(c, not_to_talk || client_cannot_connect(c->code) ? why : NULL);
}

void client_attempt_failed(struct rdzv_client *c, const char *why) {
    attempt_failed(c, RDZV_WAIT_ATTEMPT, why, false);
}

void client_not_to_talk(struct rdzv_client *c, const char *why) {
    attempt_failed(c, RDZV_WAIT_ATTEMPT, why, true);
}

void client_refused_for_now(struct rdzv_client *c, const char *reason) {
    attempt_failed(c, RDZV_WAIT_NOT_ADMITTED, reason, false);
}

static void try_next_addr(struct rdzv_client *c) {
    const struct addr *to = &c->addrs[c->next_addr++];
    c->code = 0;
    int r = conn_connect(c->loop, to, c->config.auth, &client_conn_ops, c, &c->conn);
    if (r < 0) {
        client_note_code(c, r, strerror(-r));
        client_attempt_failed(c, strerror(-r));
        return;
    }
    c->greeted = c->welcomed = false;
    uint64_t patience = c->has_arbiter ? c->config.peer_timeout_ns : c->config.connect_timeout_ns;
    c->attempt_ns = clock_now_ns() + patience;
    uint64_t first = c->config.n_ports > 0 ? LOOK_AFTER_NS : SILENT_NS;
    loop_timer_set(c->retry, clock_now_ns() + MIN2(patience, first));
    if (c->has_arbiter)
        conn_call(c->conn); /* to a peer, JOIN is sent only after its HELLO */
    else
        client_send_join(c);
}

static void begin_round(struct rdzv_client *c, size_t n) {
    c->n_addrs = n;
    c->next_addr = 0;
    c->wait_is_on = false;
    try_next_addr(c);
}

static void unresolved(struct rdzv_client *c, const char *text) {
    client_show_waiting(c, RDZV_WAIT_ATTEMPT, text);
    back_off(c);
    client_disconnected(c);
}

static void on_resolved(void *arg, int code, const char *text, const struct addr *addrs, size_t n) {
    struct rdzv_client *c = arg;
    c->resolve = NULL;
    if (code < 0) {
        unresolved(c, text);
        return;
    }
    begin_round(c, client_spread_ports(c, addrs, n));
}

static void connect_to_peer(struct rdzv_client *c) {
    size_t n = client_peer_addrs(c, &c->target, c->addrs);
    if (n > 0)
        begin_round(c, n);
    else
        unresolved(c, "the next leader's address is not known here");
}

static void connect_to_endpoint(struct rdzv_client *c) {
    const struct rdzv_client_config *config = &c->config;
    struct addr addrs[RESOLVE_ADDRS_MAX];
    size_t n = 1;
    int r = 0;
    if (config->has_addr)
        addrs[0] = config->addr;
    else
        r = resolve_now(config->host, config->port, addrs, &n);
    if (r == RESOLVE_E_LOOKUP && member_lease_end(c->member) == 0 &&
        hosts_file_find("/etc", config->host, config->port, addrs, &n))
        r = 0;
    if (r == 0) {
        begin_round(c, client_spread_ports(c, addrs, n));
        return;
    }
    if (r == RESOLVE_E_LOOKUP)
        r = resolve_start(c->loop, config->host, config->port, config->resolve_timeout_ns,
                          on_resolved, c, &c->resolve);
    if (r < 0) {
        char text[CLIENT_WAITING_MAX];
        (void)snprintf(text, sizeof text, "cannot look up the leader's host '%s': %s", config->host,
                       strerror(-r));
        unresolved(c, text);
    }
}

/* Why there is no answer yet. */
static const char *silence(const struct rdzv_client *c) {
    struct addr peer;
    if (c->greeted)
        return "no answer";
    return conn_peer_addr(c->conn, &peer) == 0 ? "no answer; what listens there may not be muster"
                                               : "no answer; a firewall may be in the way";
}

static void on_silence(struct rdzv_client *c) {
    char text[CLIENT_WAITING_MAX];
    if (c->config.n_ports > 0 && !c->greeted) {
        loop_timer_set(c->retry, c->attempt_ns); /* or earlier: client_look_again() */
        client_note_code(c, -ETIMEDOUT, "");
        client_look(c);
        return;
    }
    describe(c, "no leader", silence(c), text);
    if (!c->greeted)
        client_show_waiting(c, RDZV_WAIT_ATTEMPT, text);
    loop_timer_set(c->retry, c->attempt_ns);
}

void client_attempt_at(struct rdzv_client *c, size_t at) {
    client_end_look(c);
    free_conn(c);
    c->next_addr = at;
    try_next_addr(c);
}

void client_met(struct rdzv_client *c) {
    client_end_look(c);
    c->greeted = true;
    loop_timer_set(c->retry, c->attempt_ns);
}

void client_look_again(struct rdzv_client *c, const char *found) {
    uint64_t now = clock_now_ns();
    if (now + c->config.connect_timeout_ns >= c->attempt_ns + SILENT_NS)
        client_show_waiting(c, RDZV_WAIT_ATTEMPT, found);
    back_off(c);
    loop_timer_set(c->retry, MIN2(c->attempt_ns, now + MIN2(c->backoff_ns, LOOK_BACKOFF_MAX_NS)));
}

/* Either a round is due, or the first port is, or the current attempt takes long or has timed
 * out. */
void client_on_retry(void *arg) {
    struct rdzv_client *c = arg;
    if (c->conn != NULL && conn_is_choosing(c->conn)) { /* munge is slow, not the other agent */
        c->attempt_ns = clock_now_ns() + c->config.peer_timeout_ns;
        loop_timer_set(c->retry, c->attempt_ns);
    } else if (c->conn != NULL && clock_now_ns() < c->attempt_ns)
        on_silence(c);
    else if (c->conn != NULL)
        client_attempt_failed(c, silence(c));
    else if (c->has_arbiter)
        connect_to_peer(c);
    else if (c->wait_is_on)
        begin_round(c, c->n_addrs);
    else
        connect_to_endpoint(c);
}

static bool same_peer(const struct rdzv_peer *a, const struct rdzv_peer *b) {
    return a->incarnation == b->incarnation && a->port == b->port && strcmp(a->addr, b->addr) == 0;
}

/* Called for an effect. Never connects from inside, so that a connection that fails at once does
 * not recurse. */
void client_want_connect(struct rdzv_client *c, const struct member_effect *e) {
    bool other = c->has_arbiter && !same_peer(&c->target, &e->peer);
    if (other) {
        c->target = e->peer;
        c->backoff_ns = c->welcomed_ns = 0;
    }
    /* the member gave this connection up, because nothing arrives on it */
    if (other || c->welcomed)
        client_hang_up(c);
    /* If an agent sends WELCOME and disconnects again and again, there is a pause between the
     * attempts. */
    uint64_t due_ns = clock_now_ns() + (e->soon ? 0 : c->backoff_ns);
    if (c->welcomed_ns > 0)
        due_ns = MAX2(due_ns, c->welcomed_ns + BACKOFF_FIRST_NS);
    if (c->conn == NULL && c->resolve == NULL)
        loop_timer_set(c->retry, due_ns);
}
