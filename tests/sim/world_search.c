/* A node's search for its leader, and what its attempts find: addresses that refuse, stay silent, hang up or belong to
 * an agent of another run. */
#include <errno.h>
#include <string.h>

#include "world_priv.h"

#define CONNECTS_MAX 60 /* of one node in a second: more is no search */
#define CONNECT_TIMEOUT_NS (10 * NS_PER_S)
#define PEER_TIMEOUT_NS (1500 * NS_PER_MS)
#define PROBE_TIMEOUT_NS NS_PER_S
#define SYN_AGAIN_NS NS_PER_S /* the kernel sends what was lost again */
#define LOOKUP_NS (20 * NS_PER_MS)
#define OTHER_RUN "another"
#define OUR_RUN "ours"

/* ---- what is at an address ---- */

static size_t n_addrs(const struct world *w, const struct life *l) {
    if (world_is_fixed(w))
        return MAX2(w->p.n_ports, 1u);
    return l->search.target.incarnation == l->incarnation ? 1 : w->p.n_peer_addrs; /* it knows its own */
}

/* The address of its target that is the right one comes last, the leader has one of the ports. */
static enum world_door door_at(const struct world *w, const struct life *l, size_t at) {
    unsigned i = (unsigned)at;
    if (world_is_fixed(w) && w->p.n_ports > 0)
        i = (l->search.round_port + i) % w->p.n_ports;
    else
        i += WORLD_DOORS_MAX - (unsigned)n_addrs(w, l);
    unsigned ours = world_is_fixed(w) && w->p.n_ports > 0 ? w->p.leader_port : WORLD_DOORS_MAX - 1;
    return i == ours ? DOOR_OURS : w->p.doors[i];
}

/* The agent behind the right address; NULL: there was none yet. */
static struct life *target_of(struct world *w, const struct life *l) {
    return world_is_fixed(w) ? node_newest(w, 0) : node_of_peer(w, &l->search.target);
}

static uint32_t host_of(struct world *w, const struct life *l) {
    const struct life *target = target_of(w, l);
    return target == NULL ? 0 : target->host;
}

/* Whether a process listens at the right address. */
static bool is_open(const struct world *w, const struct life *target) {
    if (target == NULL || !w->hosts[target->host].up)
        return false;
    return world_is_fixed(w) ? target->process && target->lead.group != NULL : target->listener;
}

/* ---- events ---- */

static void plan(struct world *w, enum item_kind kind, struct life *l, size_t at, uint64_t in_ns) {
    struct item *it = world_plan(w, kind, l, in_ns);
    it->local = (uint32_t)at;
    it->version = l->connect_version;
}

static void obey(struct world *w, struct life *l, const struct search_effect *e);

/* A mutant's wrong rule. False: the event is lost. */
static bool mutate(struct world *w, const struct life *l, struct search_event *e) {
    enum search_state state = l->search.state;
    switch ((int)w->p.mutant) {
    case MUTANT_ANY_RUN:
        if (e->kind == SEARCH_EVENT_HELLO)
            e->run_id = OUR_RUN;
        return true;
    case MUTANT_NOT_YET_IS_NEVER: e->final = true; return true;
    case MUTANT_NO_PAUSE: e->soon = true; return true;
    case MUTANT_PATIENT: return e->kind != SEARCH_EVENT_TIME || state == SEARCH_RESTING || state == SEARCH_RETRYING;
    case MUTANT_PROBES_UNHEARD:
        if (e->kind == SEARCH_EVENT_PROBED)
            e->run_id = NULL;
        return true;
    case MUTANT_END_UNHEARD: return e->kind != SEARCH_EVENT_CLOSED || state != SEARCH_WELCOMED;
    default: return true;
    }
}

static void step(struct world *w, struct life *l, struct search_event *e) {
    enum search_state before = l->search.state;
    e->now_ns = world_clock(w, l->host);
    w->coverage->search_events[e->kind]++;
    search_step(&l->search, e, &l->search_update);
    oracle_search_stepped(w, l, before);
    for (size_t i = 0; i < l->search_update.n_effects && l->process; i++)
        obey(w, l, &l->search_update.effects[i]);
    l->search_version++;
    uint64_t at = world_when_clock(w, l->host, l->search_update.deadline_ns);
    if (at != TIME_NEVER && l->process)
        world_plan(w, ITEM_SEARCH_TIMER, l, at > w->now_ns ? at - w->now_ns : 0)->version = l->search_version;
}

void search_event(struct world *w, struct life *l, const struct search_event *event) {
    struct search_event e = *event;
    if (!l->process || !mutate(w, l, &e))
        return;
    if (l->is_searching) {
        assert(l->n_search_queue < ARRAY_SIZE(l->search_queue));
        struct search_queued *q = &l->search_queue[l->n_search_queue++];
        q->event = e;
        if (e.peer != NULL)
            q->peer = *e.peer;
        return;
    }
    l->is_searching = true;
    step(w, l, &e);
    for (unsigned i = 0; i < l->n_search_queue && l->process; i++) {
        struct search_queued q = l->search_queue[i];
        q.event.peer = &q.peer;
        step(w, l, &q.event);
    }
    l->n_search_queue = 0;
    l->is_searching = false;
}

bool search_is_welcomed(const struct life *l) { return l->search.state == SEARCH_WELCOMED; }

void search_begin(struct world *w, struct life *l) {
    struct search_config config = {.run_id = OUR_RUN,
                                   .incarnation = l->incarnation,
                                   .has_arbiter = !world_is_fixed(w),
                                   .n_ports = world_is_fixed(w) ? w->p.n_ports : 0,
                                   .connect_timeout_ns = CONNECT_TIMEOUT_NS,
                                   .peer_timeout_ns = PEER_TIMEOUT_NS};
    search_init(&l->search, &config, world_clock(w, l->host));
    l->described_ns = w->now_ns + w->p.describe_ns;
    plan(w, ITEM_DESCRIBED, l, 0, w->p.describe_ns);
    search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_TIME});
}

/* ---- effects ---- */

static void resolve(struct world *w, struct life *l) {
    bool asks = world_is_fixed(w) && l->host != 0; /* the leader's own node has its address */
    plan(w, ITEM_RESOLVED, l, 0, asks ? world_below(w, LOOKUP_NS) : 0);
}

static void connect_to(struct world *w, struct life *l, size_t at) {
    if (w->now_ns >= l->connects_since_ns + NS_PER_S) {
        l->connects_since_ns = w->now_ns;
        l->n_connects = 0;
    }
    if (++l->n_connects > CONNECTS_MAX)
        world_broken(w, "I7: %u.%u connects %u times in a second", l->host, l->index, l->n_connects);
    plan(w, ITEM_CONNECT_LEAVES, l, at, 0);
}

/* JOIN waits for the node's description. */
static void join(struct world *w, struct life *l) {
    if (l->conn == NULL || w->now_ns < l->described_ns || !search_wants_join(&l->search))
        return;
    struct word *word = word_new(WORD_JOIN);
    node_describe(w, l, &word->join.info);
    word->join.report = *member_report(l->member);
    net_to_leader(w, l->conn, word);
    search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_JOINED});
}

static void close_attempt(struct world *w, struct life *l) {
    if (l->conn != NULL)
        net_close_node(w, l->conn);
    l->conn = NULL;
    l->connect_version++;
}

static void probe(struct world *w, struct life *l, size_t at) {
    const struct life *target = target_of(w, l);
    enum world_door door = door_at(w, l, at);
    uint32_t to = host_of(w, l);
    bool ours = door == DOOR_OURS && is_open(w, target);
    bool silent = !net_open(w, l->host, to) || !net_open(w, to, l->host) || !host_running(w, to) ||
                  door == DOOR_SILENT || (ours && !node_listens(target));
    struct item *it = world_plan(w, ITEM_SEARCH_PROBED, l, silent ? PROBE_TIMEOUT_NS : net_delay(w, l->host, to) * 2);
    it->local = (uint32_t)at;
    it->version = l->connect_version;
    it->group = !silent && (ours || door == DOOR_OTHER_RUN); /* HELLO comes */
    it->code = silent ? -ETIMEDOUT : door == DOOR_HANGS_UP ? 0 : door == DOOR_BABBLES ? -EPROTO : -ECONNREFUSED;
}

static void obey(struct world *w, struct life *l, const struct search_effect *e) {
    w->coverage->search_effects[e->kind]++;
    switch (e->kind) {
    case SEARCH_EFFECT_RESOLVE: resolve(w, l); break;
    case SEARCH_EFFECT_CONNECT: connect_to(w, l, e->at); break;
    case SEARCH_EFFECT_JOIN: join(w, l); break;
    case SEARCH_EFFECT_CLOSE: close_attempt(w, l); break;
    case SEARCH_EFFECT_PROBE: probe(w, l, e->at); break;
    case SEARCH_EFFECT_END_PROBES: /* their answers are ignored */
    case SEARCH_EFFECT_FAILED:
    case SEARCH_EFFECT_SHOW:
    case SEARCH_EFFECT_NOTHING_THERE: break;
    case SEARCH_EFFECT_DISCONNECTED:
        node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_DISCONNECT, .reason = e->why});
        break;
    case SEARCH_EFFECT_REFUSED:
        node_event(w, l, &(struct member_event){.kind = MEMBER_EVENT_REFUSED, .reason = e->why});
        break;
    case SEARCH_EFFECT_KIND_COUNT: assert_not_reached();
    }
}

/* ---- attempts on the way ---- */

static void leaves(struct world *w, struct life *l, size_t at) {
    uint32_t to = host_of(w, l);
    if (net_open(w, l->host, to) && net_open(w, to, l->host) && host_running(w, to))
        plan(w, ITEM_CONNECT_ARRIVES, l, at, net_delay(w, l->host, to));
    else
        plan(w, ITEM_CONNECT_LEAVES, l, at, SYN_AGAIN_NS);
}

static void fails(struct world *w, struct life *l, size_t at, int code) {
    struct item *it = world_plan(w, ITEM_CONNECT_FAILED, l, net_delay(w, l->host, host_of(w, l)));
    it->local = (uint32_t)at;
    it->version = l->connect_version;
    it->code = code;
}

/* The kernel of the host takes the connection, or refuses it. */
static void arrives(struct world *w, struct life *l, size_t at) {
    struct life *target = target_of(w, l);
    switch (door_at(w, l, at)) {
    case DOOR_SILENT: return;
    case DOOR_NOTHING: fails(w, l, at, -ECONNREFUSED); return;
    case DOOR_HANGS_UP: fails(w, l, at, 0); return;
    case DOOR_BABBLES: plan(w, ITEM_OTHER_HELLO, l, at, net_delay(w, l->host, host_of(w, l))); return;
    case DOOR_OTHER_RUN: plan(w, ITEM_OTHER_HELLO, l, at, net_delay(w, l->host, host_of(w, l))); return;
    case DOOR_OURS: break;
    case DOOR_COUNT: assert_not_reached();
    }
    if (!is_open(w, target)) {
        fails(w, l, at, -ECONNREFUSED);
        return;
    }
    l->conn = net_new_conn(w, l, target);
    net_to_leader(w, l->conn, word_new(WORD_CALL));
    join(w, l);
}

static void hello(struct world *w, struct life *l, const char *run_id, uint64_t leader, bool within_host) {
    search_event(w, l,
                 &(struct search_event){.kind = SEARCH_EVENT_HELLO,
                                        .version = WIRE_VERSION,
                                        .leader = leader,
                                        .run_id = run_id,
                                        .at_text = "there",
                                        .within_host = within_host,
                                        .is_authenticated = true});
}

static void resolved(struct world *w, struct life *l) {
    bool fails_once = world_is_fixed(w) && l->host != 0 && w->p.lookup_fails && !l->has_looked;
    l->has_looked = true;
    search_event(
        w, l,
        &(struct search_event){.kind = SEARCH_EVENT_ADDRS, .n = fails_once ? 0 : n_addrs(w, l), .why = "no such host"});
}

static void probed(struct world *w, struct life *l, const struct item *it) {
    const char *run = door_at(w, l, it->local) == DOOR_OURS ? OUR_RUN : OTHER_RUN;
    search_event(w, l,
                 &(struct search_event){.kind = SEARCH_EVENT_PROBED,
                                        .at = it->local,
                                        .run_id = it->group != 0 ? run : NULL,
                                        .code = it->code,
                                        .why = "no answer"});
}

static void on_timer(struct world *w, struct life *l) {
    enum search_link link = l->conn == NULL      ? SEARCH_LINK_CONNECTING
                            : world_chance(w, 5) ? SEARCH_LINK_CHOOSING
                                                 : SEARCH_LINK_CONNECTED;
    search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_TIME, .link = link});
}

void search_item(struct world *w, struct item *it) {
    struct life *l = it->life;
    if (it->kind == ITEM_DESCRIBED) {
        join(w, l);
        return;
    }
    if (it->kind == ITEM_SEARCH_TIMER) {
        if (it->version == l->search_version)
            on_timer(w, l);
        return;
    }
    if (!l->process || it->version != l->connect_version)
        return;
    switch ((int)it->kind) {
    case ITEM_RESOLVED: resolved(w, l); break;
    case ITEM_CONNECT_LEAVES: leaves(w, l, it->local); break;
    case ITEM_CONNECT_ARRIVES: arrives(w, l, it->local); break;
    case ITEM_CONNECT_FAILED:
        search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_CLOSED, .code = it->code, .why = "it failed"});
        break;
    case ITEM_OTHER_HELLO:
        if (door_at(w, l, it->local) == DOOR_OTHER_RUN)
            hello(w, l, OTHER_RUN, 2, false);
        else
            search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_INVALID});
        break;
    case ITEM_SEARCH_PROBED: probed(w, l, it); break;
    default: assert_not_reached();
    }
}

/* ---- words on the connection ---- */

void search_heard_hello(struct world *w, struct life *l, const struct conn *c) {
    hello(w, l, OUR_RUN, c->leader->incarnation, c->leader->host == l->host);
}

void search_heard_end(struct world *w, struct life *l, const struct word *word) {
    if (word->kind == WORD_REDIRECT) {
        search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_HANG_UP});
        node_event(w, l,
                   &(struct member_event){
                       .kind = MEMBER_EVENT_REDIRECT, .epoch = word->redirect.epoch, .peer = &word->redirect.peer});
    } else if (word->kind == WORD_REFUSED && !search_is_welcomed(l)) {
        l->refused_ns = w->now_ns;
        l->is_refused = l->is_refused || word->refused.final;
        search_event(w, l,
                     &(struct search_event){
                         .kind = SEARCH_EVENT_REFUSED, .final = word->refused.final, .why = word->refused.reason});
    } else {
        search_event(w, l, &(struct search_event){.kind = SEARCH_EVENT_CLOSED, .why = "the end"});
    }
}
