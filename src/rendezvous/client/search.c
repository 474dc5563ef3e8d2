#include "rendezvous/client/search.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "base/text/strbuf.h"
#include "rendezvous/protocol/wire.h"

#define BACKOFF_FIRST_NS (100 * NS_PER_MS)
#define BACKOFF_MAX_NS (2 * NS_PER_S)
/* Short, because an agent may be about to lead there, and the machines are known to be up. */
#define PEER_BACKOFF_MAX_NS (500 * NS_PER_MS)
/* Then a silent host is reported (a firewall, not muster), while the attempt continues. */
#define SILENT_NS (2 * NS_PER_S)
/* With several ports: then the others are probed, while the attempt continues. */
#define PROBE_AFTER_NS (250 * NS_PER_MS)
#define PROBE_BACKOFF_MAX_NS (1 * NS_PER_S)
/* The pauses before the first port is tried again: 20, 40, 80 and 160 ms. */
#define RETRY_NS (20 * NS_PER_MS)
#define RETRIES_MAX 4

#define BIT(state) (1U << (state))
#define ATTEMPT (BIT(SEARCH_CONNECTING) | BIT(SEARCH_PROBING))
#define GIVEN_UP (BIT(SEARCH_RESTING) | BIT(SEARCH_REFUSED))

static const struct {
    const char *name;
    unsigned next;
} states[SEARCH_STATE_COUNT] = {
    [SEARCH_RESTING] = {"resting", BIT(SEARCH_LOOKING)},
    [SEARCH_LOOKING] = {"looking", BIT(SEARCH_RESTING) | BIT(SEARCH_CONNECTING)},
    [SEARCH_RETRYING] = {"retrying", BIT(SEARCH_RESTING) | BIT(SEARCH_CONNECTING)},
    [SEARCH_CONNECTING] = {"connecting", GIVEN_UP | BIT(SEARCH_PROBING) | BIT(SEARCH_RETRYING) |
                                             BIT(SEARCH_GREETED) | BIT(SEARCH_JOINING)},
    [SEARCH_PROBING] = {"probing", GIVEN_UP | BIT(SEARCH_CONNECTING) | BIT(SEARCH_GREETED) |
                                       BIT(SEARCH_JOINING)},
    [SEARCH_GREETED] = {"greeted", BIT(SEARCH_RESTING) | BIT(SEARCH_JOINING)},
    [SEARCH_JOINING] = {"joining", GIVEN_UP | BIT(SEARCH_WELCOMED)},
    [SEARCH_WELCOMED] = {"welcomed", BIT(SEARCH_RESTING)},
    [SEARCH_REFUSED] = {"refused", 0},
};

const char *search_state_name(enum search_state state) { return states[state].name; }

bool search_may_move(enum search_state from, enum search_state to) {
    return (states[from].next & BIT(to)) != 0;
}

static bool is_in(const struct search *s, unsigned mask) { return (BIT(s->state) & mask) != 0; }

static bool is_greeted(const struct search *s) {
    return s->state == SEARCH_GREETED || s->state == SEARCH_JOINING;
}

static void move(struct search *s, enum search_state to) {
    assert(s->state == to || search_may_move(s->state, to));
    s->state = to;
}

static void search_check(const struct search *s) {
    assert(s->state != SEARCH_PROBING || (s->n_probes > 0 && s->config.n_ports > 0));
    assert(s->state == SEARCH_PROBING || s->n_probes == 0);
    assert(s->state != SEARCH_JOINING || s->join_sent);
    assert(s->state != SEARCH_GREETED || !s->join_sent);
    assert(!is_in(s, ATTEMPT | BIT(SEARCH_RETRYING)) || s->at < s->n_addrs);
    assert(s->state != SEARCH_RETRYING || s->config.n_ports > 0);
}

static struct search_effect *emit(struct search *s, enum search_effect_kind kind) {
    struct search_update *u = s->update;
    assert(u->n_effects < SEARCH_EFFECTS_MAX);
    u->effects[u->n_effects] = (struct search_effect){.kind = kind, .at = SEARCH_NO_ADDR};
    return &u->effects[u->n_effects++];
}

static void show(struct search *s, enum rdzv_wait wait, size_t at, const char *why) {
    struct search_effect *e = emit(s, SEARCH_EFFECT_SHOW);
    e->wait = wait;
    e->at = at;
    e->why = why;
}

/* ---- what was found at several ports ---- */

static unsigned port_of(const struct search *s, size_t at) {
    return (unsigned)((s->round_port + at / (s->n_addrs / s->config.n_ports)) % s->config.n_ports);
}

/* Of several addresses with this port, one where a process listens counts. */
static void note_at(struct search *s, size_t at, enum search_found found, const char *detail) {
    if (s->config.n_ports == 0)
        return;
    struct search_port *p = &s->ports[port_of(s, at)];
    if (found == FOUND_NOTHING && p->found != FOUND_UNKNOWN)
        return;
    p->found = found;
    (void)snprintf(p->detail, sizeof p->detail, "%s", detail);
}

static void note_code_at(struct search *s, size_t at, int code, const char *why) {
    if (code == -ECONNREFUSED)
        note_at(s, at, FOUND_NOTHING, "");
    else if (code == -EPROTO)
        note_at(s, at, FOUND_NOT_MUSTER, "");
    else if (code == -EKEYREJECTED)
        note_at(s, at, FOUND_OTHER_KEY, why);
    else if (code == 0 || code == -ECONNRESET || code == -EPIPE || code == -ECONNABORTED)
        note_at(s, at, FOUND_HANGS_UP, "");
    else if (code == -ETIMEDOUT)
        note_at(s, at, FOUND_SILENT, "");
    else
        note_at(s, at, FOUND_ERROR, strerror(-code));
}

static void forget_found(struct search *s) {
    for (unsigned i = 0; i < s->config.n_ports; i++)
        s->ports[i].found = FOUND_UNKNOWN;
}

static bool all_silent(const struct search *s) {
    for (unsigned i = 0; i < s->config.n_ports; i++)
        if (s->ports[i].found != FOUND_SILENT && s->ports[i].found != FOUND_ERROR)
            return false;
    return true;
}

static bool all_refuse(const struct search *s) {
    for (unsigned i = 0; i < s->config.n_ports; i++)
        if (s->ports[i].found != FOUND_UNKNOWN && s->ports[i].found != FOUND_NOTHING)
            return false;
    return true;
}

/* This host has no route there: further attempts fail, too, until its network changes. */
static bool search_cannot_connect(int code) {
    static const int codes[] = {-ENETUNREACH, -EHOSTUNREACH,  -ENETDOWN,     -EACCES,
                                -EPERM,       -EADDRNOTAVAIL, -EAFNOSUPPORT, -EINVAL};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (codes[i] == code)
            return true;
    return false;
}

static void nothing_there(struct search *s, size_t at) {
    if (s->welcomed_ns == 0)
        emit(s, SEARCH_EFFECT_NOTHING_THERE)->at = at;
}

static void none_found(struct search *s) {
    s->finding = all_silent(s)   ? RDZV_FINDING_SILENCE
                 : all_refuse(s) ? RDZV_FINDING_NOTHING
                                 : RDZV_FINDING_ELSE;
    for (size_t i = 0; i < s->n_addrs / s->config.n_ports; i++) /* each address of the host */
        nothing_there(s, i);
}

/* ---- attempts ---- */

static void rest(struct search *s) {
    if (s->state != SEARCH_RESTING) {
        move(s, SEARCH_RESTING);
        (void)emit(s, SEARCH_EFFECT_CLOSE);
    }
    s->n_probes = 0;
    s->due_ns = TIME_NEVER;
}

/* why: the two cannot or may not talk to each other; NULL: they can. */
static void disconnected(struct search *s, const char *why) {
    rest(s);
    emit(s, SEARCH_EFFECT_DISCONNECTED)->why = why;
}

static void back_off(struct search *s) {
    uint64_t max = s->config.has_arbiter ? PEER_BACKOFF_MAX_NS : BACKOFF_MAX_NS;
    s->backoff_ns = s->backoff_ns == 0 ? BACKOFF_FIRST_NS : MIN2(s->backoff_ns * 2, max);
}

static void attempt(struct search *s, size_t at) {
    uint64_t patience =
        s->config.has_arbiter ? s->config.peer_timeout_ns : s->config.connect_timeout_ns;
    move(s, SEARCH_CONNECTING);
    s->at = at;
    s->code = 0;
    s->join_sent = false;
    s->attempt_ns = s->now_ns + patience;
    s->due_ns = s->now_ns + MIN2(patience, s->config.n_ports > 0 ? PROBE_AFTER_NS : SILENT_NS);
    emit(s, SEARCH_EFFECT_CONNECT)->at = at;
    if (!s->config.has_arbiter)
        (void)emit(s, SEARCH_EFFECT_JOIN);
}

/* The first port was just tried at all addresses of the host: thousands of nodes don't try fifteen
 * others, or look the name up again. */
static bool may_retry(const struct search *s) {
    return s->config.n_ports > 0 && s->welcomed_ns == 0 && s->n_retries < RETRIES_MAX &&
           s->at + 1 == s->n_addrs / s->config.n_ports &&
           s->ports[s->round_port].found == FOUND_NOTHING;
}

static void end_round(struct search *s, enum rdzv_wait wait, const char *why, bool may_talk) {
    bool greeted = is_greeted(s);
    s->finding = !greeted && s->code == -ECONNREFUSED ? RDZV_FINDING_NOTHING
                 : search_cannot_connect(s->code)     ? RDZV_FINDING_SILENCE
                                                      : RDZV_FINDING_ELSE;
    if (s->config.n_ports > 0 && !greeted)
        none_found(s);
    else if (s->config.n_ports > 0) /* it does not lead, so another port has its turn */
        s->first_port = (port_of(s, s->at) + 1) % s->config.n_ports;
    if (s->config.n_ports > 0 && !greeted)
        show(s, wait, SEARCH_NO_ADDR, NULL);
    else
        show(s, wait, s->at, why);
    back_off(s);
    bool has_reason = !may_talk || wait == RDZV_WAIT_NOT_ADMITTED || search_cannot_connect(s->code);
    disconnected(s, has_reason ? why : NULL);
}

/* The agent of this run would give the same answer at its other addresses. */
static void attempt_failed(struct search *s, enum rdzv_wait wait, const char *why, bool may_talk) {
    bool greeted = is_greeted(s);
    struct search_effect *e = emit(s, SEARCH_EFFECT_FAILED);
    e->at = s->at;
    e->wait = wait;
    e->why = why;
    if (greeted || (!may_retry(s) && s->at + 1 == s->n_addrs)) {
        end_round(s, wait, why, may_talk);
        return;
    }
    (void)emit(s, SEARCH_EFFECT_CLOSE);
    s->n_probes = 0;
    if (may_retry(s)) {
        move(s, SEARCH_RETRYING);
        s->due_ns = s->now_ns + (RETRY_NS << s->n_retries++);
    } else {
        attempt(s, s->at + 1);
    }
}

static void no_leader(struct search *s, const char *why) {
    attempt_failed(s, RDZV_WAIT_ATTEMPT, why, true);
}

static void refused(struct search *s, const char *why) {
    move(s, SEARCH_REFUSED);
    s->n_probes = 0;
    (void)emit(s, SEARCH_EFFECT_CLOSE);
    emit(s, SEARCH_EFFECT_REFUSED)->why = why;
}

/* ---- silence ---- */

static const char *silence(const struct search *s, enum search_link link) {
    if (is_greeted(s))
        return "no answer";
    return link == SEARCH_LINK_CONNECTED ? "no answer; what listens there may not be muster"
                                         : "no answer; a firewall may be in the way";
}

/* As many as may be probed at once; after all have answered, again after a pause. */
static void probe_more(struct search *s) {
    for (; s->n_probes < SEARCH_PROBES_MAX && s->probe_next < s->n_addrs; s->probe_next++) {
        if (s->probe_next == s->at)
            continue;
        emit(s, SEARCH_EFFECT_PROBE)->at = s->probe_next;
        s->n_probes++;
    }
    if (s->n_probes > 0) {
        move(s, SEARCH_PROBING);
        return;
    }
    none_found(s);
    if (s->now_ns + s->config.connect_timeout_ns >= s->attempt_ns + SILENT_NS)
        show(s, RDZV_WAIT_ATTEMPT, SEARCH_NO_ADDR, NULL);
    back_off(s);
    s->due_ns = MIN2(s->attempt_ns, s->now_ns + MIN2(s->backoff_ns, PROBE_BACKOFF_MAX_NS));
    move(s, SEARCH_CONNECTING);
}

static void on_silence(struct search *s, enum search_link link) {
    s->due_ns = s->attempt_ns;
    if (s->config.n_ports == 0) {
        show(s, RDZV_WAIT_ATTEMPT, s->at, silence(s, link));
        return;
    }
    s->code = -ETIMEDOUT;
    forget_found(s);
    note_at(s, s->at, FOUND_SILENT, "");
    s->probe_next = 0;
    probe_more(s);
}

static void on_probed(struct search *s, const struct search_event *ev) {
    if (s->state != SEARCH_PROBING)
        return;
    s->n_probes--;
    if (ev->run_id != NULL && strcmp(ev->run_id, s->config.run_id) == 0) {
        (void)emit(s, SEARCH_EFFECT_CLOSE);
        s->n_probes = 0;
        attempt(s, ev->at);
        return;
    }
    if (ev->run_id != NULL)
        note_at(s, ev->at, FOUND_OTHER_RUN, ev->run_id);
    else
        note_code_at(s, ev->at, ev->code, ev->why);
    probe_more(s);
}

/* ---- events ---- */

static bool same_peer(const struct rdzv_peer *a, const struct rdzv_peer *b) {
    return a->incarnation == b->incarnation && a->port == b->port && strcmp(a->addr, b->addr) == 0;
}

static void on_connect(struct search *s, const struct search_event *ev) {
    bool other = s->config.has_arbiter && !same_peer(&s->target, ev->peer);
    if (other) {
        s->target = *ev->peer;
        s->backoff_ns = s->welcomed_ns = 0;
    }
    /* the member gave this connection up, because nothing arrives on it */
    if (other || s->state == SEARCH_WELCOMED)
        rest(s);
    if (s->state != SEARCH_RESTING)
        return;
    /* Between attempts at an agent that sends WELCOME and disconnects again and again. */
    s->due_ns = s->now_ns + (ev->soon ? 0 : s->backoff_ns);
    if (s->welcomed_ns > 0)
        s->due_ns = MAX2(s->due_ns, s->welcomed_ns + BACKOFF_FIRST_NS);
}

static void on_addrs(struct search *s, const struct search_event *ev) {
    if (s->state != SEARCH_LOOKING)
        return;
    if (ev->n == 0) {
        show(s, RDZV_WAIT_ATTEMPT, SEARCH_NO_ADDR, ev->why);
        back_off(s);
        disconnected(s, NULL);
        return;
    }
    assert(s->config.n_ports == 0 || ev->n % s->config.n_ports == 0);
    forget_found(s);
    s->n_addrs = ev->n;
    s->round_port = s->first_port;
    attempt(s, 0);
}

/* It has proved nothing: where there are keys, that alone does not end this node. */
static void on_other_version(struct search *s, const struct search_event *ev) {
    bool final = !s->config.has_arbiter && !ev->is_authenticated;
    note_at(s, s->at, FOUND_OTHER_VERSION, "");
    if (final)
        (void)snprintf(s->text, sizeof s->text,
                       "the agent at %s speaks protocol version %" PRIu32
                       ", this muster version %d; use the same muster on all nodes",
                       ev->at_text, ev->version, WIRE_VERSION);
    else
        (void)snprintf(s->text, sizeof s->text,
                       "an agent of protocol version %" PRIu32 " listens there, and this muster "
                       "speaks version %d; use the same muster on all nodes",
                       ev->version, WIRE_VERSION);
    if (final)
        refused(s, s->text);
    else
        no_leader(s, s->text);
}

static void on_other_run(struct search *s, const struct search_event *ev) {
    if (s->config.n_ports > 0) {
        note_at(s, s->at, FOUND_OTHER_RUN, ev->run_id);
        no_leader(s, "an agent of another run listens there");
        return;
    }
    (void)snprintf(s->text, sizeof s->text,
                   "the agent at %s belongs to the run '%s', this node to the run '%s'; give all "
                   "nodes of a job the same --rdzv-id, and each job an endpoint of its own",
                   ev->at_text, ev->run_id, s->config.run_id);
    refused(s, s->text);
}

static void on_hello(struct search *s, const struct search_event *ev) {
    if (!is_in(s, ATTEMPT))
        return;
    if (ev->version != WIRE_VERSION) {
        on_other_version(s, ev);
    } else if (ev->leader == s->config.incarnation && !ev->within_host) {
        no_leader(s, "something there sends this node's connections back to itself");
    } else if (s->config.has_arbiter && s->target.incarnation != 0 &&
               ev->leader != s->target.incarnation) {
        no_leader(s, "another agent listens there now");
    } else if (strcmp(ev->run_id, s->config.run_id) != 0) {
        on_other_run(s, ev);
    } else {
        if (s->n_probes > 0)
            (void)emit(s, SEARCH_EFFECT_END_PROBES);
        s->n_probes = 0;
        move(s, s->join_sent ? SEARCH_JOINING : SEARCH_GREETED);
        if (s->config.has_arbiter)
            (void)emit(s, SEARCH_EFFECT_JOIN);
    }
}

static void on_joined(struct search *s) {
    s->join_sent = true;
    if (s->state == SEARCH_GREETED)
        move(s, SEARCH_JOINING);
}

static void on_welcome(struct search *s) {
    move(s, SEARCH_WELCOMED);
    s->n_welcomes++;
    s->welcomed_ns = s->now_ns;
    s->backoff_ns = 0;
    if (s->config.n_ports > 0)
        s->first_port = port_of(s, s->at);
}

static void on_closed(struct search *s, const struct search_event *ev) {
    bool welcomed_before = s->welcomed_ns > 0;
    s->code = ev->code;
    if (!is_greeted(s))
        note_code_at(s, s->at, ev->code, ev->why);
    if (ev->code == -ECONNREFUSED) {
        if (!s->config.has_arbiter && s->config.n_ports == 0)
            nothing_there(s, s->at);
        no_leader(s,
                  welcomed_before ? "nothing listens there any more" : "nothing listens there yet");
    } else if (ev->code == -EPROTO) {
        no_leader(s, "what answers there is not muster");
    } else if ((ev->code == 0 || ev->code == -ECONNRESET) && !is_greeted(s)) {
        no_leader(s, "what listens there closes the connection without an answer: it may not be "
                     "muster, or may belong to another user");
    } else {
        attempt_failed(s, RDZV_WAIT_ATTEMPT, ev->why, ev->code != -EKEYREJECTED);
    }
}

/* What comes on the connection of an attempt, or from the leader. */
static void on_connection(struct search *s, const struct search_event *ev) {
    bool ends = ev->kind == SEARCH_EVENT_CLOSED || ev->kind == SEARCH_EVENT_INVALID;
    if (s->state == SEARCH_WELCOMED && ends)
        disconnected(s, NULL);
    if (!is_in(s, ATTEMPT) && !is_greeted(s))
        return;
    if (ev->kind == SEARCH_EVENT_CLOSED) {
        on_closed(s, ev);
    } else if (ev->kind == SEARCH_EVENT_WELCOME && s->state == SEARCH_JOINING) {
        on_welcome(s);
    } else if (ev->kind == SEARCH_EVENT_REFUSED && s->state == SEARCH_JOINING) {
        if (ev->final)
            refused(s, ev->why);
        else
            attempt_failed(s, RDZV_WAIT_NOT_ADMITTED, ev->why, true);
    } else { /* HELLO comes before any other message, and JOIN before its answer */
        note_at(s, s->at, FOUND_NOT_MUSTER, "");
        no_leader(s, "what answers there violates the protocol");
    }
}

static uint64_t deadline(const struct search *s) {
    switch (s->state) {
    case SEARCH_RESTING:
    case SEARCH_RETRYING:
    case SEARCH_CONNECTING: return s->due_ns;
    case SEARCH_PROBING: return s->attempt_ns;
    case SEARCH_GREETED:
    case SEARCH_JOINING: return s->config.has_arbiter ? TIME_NEVER : s->attempt_ns;
    case SEARCH_LOOKING:
    case SEARCH_WELCOMED:
    case SEARCH_REFUSED: return TIME_NEVER;
    case SEARCH_STATE_COUNT: break;
    }
    assert_not_reached();
}

static void on_time(struct search *s, enum search_link link) {
    if (s->now_ns < deadline(s))
        return;
    if (s->state == SEARCH_RESTING) {
        move(s, SEARCH_LOOKING);
        (void)emit(s, SEARCH_EFFECT_RESOLVE);
    } else if (s->state == SEARCH_RETRYING) {
        attempt(s, 0);
    } else if (link == SEARCH_LINK_CHOOSING) {
        s->due_ns = s->attempt_ns = s->now_ns + s->config.peer_timeout_ns;
    } else if (s->now_ns < s->attempt_ns) {
        on_silence(s, link);
    } else {
        no_leader(s, silence(s, link));
    }
}

void search_init(struct search *s, const struct search_config *config, uint64_t now_ns) {
    assert(config->n_ports <= RDZV_ENDPOINT_PORTS_MAX &&
           !(config->has_arbiter && config->n_ports > 0));
    *s = (struct search){.config = *config,
                         .state = SEARCH_RESTING,
                         .due_ns = config->has_arbiter ? TIME_NEVER : now_ns};
}

void search_step(struct search *s, const struct search_event *ev, struct search_update *ret) {
    s->now_ns = ev->now_ns;
    s->update = ret;
    ret->n_effects = 0;
    if (s->state != SEARCH_REFUSED) {
        switch (ev->kind) {
        case SEARCH_EVENT_TIME: on_time(s, ev->link); break;
        case SEARCH_EVENT_CONNECT: on_connect(s, ev); break;
        case SEARCH_EVENT_HANG_UP: rest(s); break;
        case SEARCH_EVENT_ADDRS: on_addrs(s, ev); break;
        case SEARCH_EVENT_HELLO: on_hello(s, ev); break;
        case SEARCH_EVENT_JOINED: on_joined(s); break;
        case SEARCH_EVENT_WELCOME:
        case SEARCH_EVENT_REFUSED:
        case SEARCH_EVENT_INVALID:
        case SEARCH_EVENT_CLOSED: on_connection(s, ev); break;
        case SEARCH_EVENT_PROBED: on_probed(s, ev); break;
        case SEARCH_EVENT_KIND_COUNT: assert_not_reached();
        }
    }
    ret->deadline_ns = deadline(s);
    s->update = NULL;
    search_check(s);
}

bool search_wants_join(const struct search *s) {
    return s->state == SEARCH_GREETED ||
           (is_in(s, ATTEMPT) && !s->config.has_arbiter && !s->join_sent);
}

/* ---- what was found at several ports, for people ---- */

/* Bytes of a list of ports in a message; all 16, and a few. */
#define FOUND_AT_MAX 96
#define NOTHING_AT_MAX 32

/* in_full: also why an agent may not be talked to, which is long. */
static void add_found(const struct search_port *p, bool in_full, struct strbuf *out) {
    switch (p->found) {
    case FOUND_UNKNOWN:
    case FOUND_NOTHING: break;
    case FOUND_SILENT: strbuf_add(out, ": no answer (not muster, or a firewall)"); break;
    case FOUND_HANGS_UP: strbuf_add(out, ": hung up (not muster?)"); break;
    case FOUND_NOT_MUSTER: strbuf_add(out, ": not muster"); break;
    case FOUND_OTHER_VERSION: strbuf_add(out, ": muster of another version"); break;
    case FOUND_OTHER_RUN: strbuf_printf(out, ": an agent of the run '%.47s'", p->detail); break;
    case FOUND_OTHER_KEY:
        strbuf_printf(out, ": %s", in_full ? p->detail : "an agent without this node's key");
        break;
    case FOUND_ERROR: strbuf_printf(out, ": %s", p->detail); break;
    }
}

static bool is_nothing(const struct search_port *p) {
    return p->found == FOUND_UNKNOWN || p->found == FOUND_NOTHING;
}

/* The ports that answered alike: the list if it has at most `max` bytes, otherwise their number. */
static void add_ports(const uint16_t *ports, unsigned n, size_t max, struct strbuf *out) {
    _cleanup_(strbuf_fini) struct strbuf list = {0};
    port_list_text(ports, n, &list);
    if (list.len <= max)
        strbuf_printf(out, "port%s %s", n > 1 ? "s" : "", strbuf_text(&list));
    else
        strbuf_printf(out, "%u ports (%u, ...)", n, ports[0]);
}

static bool are_alike(const struct search_port *a, const struct search_port *b) {
    return (is_nothing(a) && is_nothing(b)) ||
           (a->found == b->found && strcmp(a->detail, b->detail) == 0);
}

/* If ports[first] is the first of them. */
static unsigned alike(const struct search *s, unsigned first,
                      uint16_t ret[RDZV_ENDPOINT_PORTS_MAX]) {
    unsigned n = 0;
    for (unsigned i = 0; i < s->config.n_ports; i++) {
        if (!are_alike(&s->ports[i], &s->ports[first]))
            continue;
        if (i < first)
            return 0;
        ret[n++] = s->config.ports[i];
    }
    return n;
}

static void describe_silent(const struct search *s, const char *host, const char *address,
                            char ret[SEARCH_TEXT_MAX]) {
    const struct search_port *p = &s->ports[0];
    bool named = host[0] != '\0' && strcmp(host, address) != 0;
    int n = snprintf(ret, SEARCH_TEXT_MAX, "no leader at %.255s%s%s%s: ", named ? host : address,
                     named ? " (" : "", named ? address : "", named ? ")" : "");
    if (p->found == FOUND_ERROR)
        (void)snprintf(ret + n, SEARCH_TEXT_MAX - (size_t)n,
                       "cannot connect to any of its %u ports: %s", s->config.n_ports, p->detail);
    else
        (void)snprintf(ret + n, SEARCH_TEXT_MAX - (size_t)n,
                       "no answer at any of its %u ports; it is down, or a firewall is in the way",
                       s->config.n_ports);
}

uint16_t search_nth_port(const struct search *s, unsigned nth) {
    return s->config.ports[(s->first_port + nth) % s->config.n_ports];
}

void search_describe_ports(const struct search *s, const char *host, const char *address,
                           char ret[SEARCH_TEXT_MAX]) {
    if (all_silent(s)) {
        describe_silent(s, host, address, ret);
        return;
    }
    _cleanup_(strbuf_fini) struct strbuf text = {0}, last = {0};
    uint16_t ports[RDZV_ENDPOINT_PORTS_MAX];
    bool in_full = true;
    for (unsigned first = 0; first < s->config.n_ports; first++) {
        bool nothing = is_nothing(&s->ports[first]);
        struct strbuf *to = nothing ? &last : &text;
        unsigned n = alike(s, first, ports);
        if (n == 0)
            continue;
        strbuf_add(to, nothing ? "; nothing listens at " : "; ");
        add_ports(ports, n, nothing ? NOTHING_AT_MAX : FOUND_AT_MAX, to);
        if (nothing)
            strbuf_add(to, s->welcomed_ns > 0 ? " any more" : " yet");
        else
            add_found(&s->ports[first], in_full, to);
        in_full = in_full && s->ports[first].found != FOUND_OTHER_KEY;
    }
    strbuf_add(&text, strbuf_text(&last));
    (void)snprintf(ret, SEARCH_TEXT_MAX, "no leader at %s: %s", address,
                   strbuf_text(&text) + strlen("; "));
}
