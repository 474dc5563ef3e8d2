#include "rendezvous/client/search.h"

#include "rendezvous/protocol/wire.h"
#include "rig/unit.h"

#define MS NS_PER_MS
#define ME 7
#define LEADER 9

static struct search s;
static struct search_update u;
static uint64_t now;
static struct rdzv_peer peer = {.incarnation = LEADER, .addr = "10.0.0.1", .port = 5};

static const char *effects(void);

/* Does one step; returns its effects as in effects(). */
static const char *step(struct search_event ev) {
    ev.now_ns = now;
    ev.why = ev.why != NULL ? ev.why : "why";
    search_step(&s, &ev, &u);
    return effects();
}
#define STEP(event_kind, ...) step((struct search_event){.kind = SEARCH_EVENT_##event_kind, __VA_ARGS__})

/* "close connect:0 join show:no answer", with the address or the text that belongs to it */
static const char *effects(void) {
    static const char *const names[SEARCH_EFFECT_KIND_COUNT] = {
        [SEARCH_EFFECT_RESOLVE] = "resolve",
        [SEARCH_EFFECT_CONNECT] = "connect",
        [SEARCH_EFFECT_JOIN] = "join",
        [SEARCH_EFFECT_CLOSE] = "close",
        [SEARCH_EFFECT_PROBE] = "probe",
        [SEARCH_EFFECT_END_PROBES] = "end-probes",
        [SEARCH_EFFECT_FAILED] = "failed",
        [SEARCH_EFFECT_SHOW] = "show",
        [SEARCH_EFFECT_NOTHING_THERE] = "nothing",
        [SEARCH_EFFECT_DISCONNECTED] = "disconnected",
        [SEARCH_EFFECT_REFUSED] = "refused",
    };
    static char text[2048];
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < u.n_effects; i++) {
        const struct search_effect *e = &u.effects[i];
        if (e->kind == SEARCH_EFFECT_FAILED)
            continue; /* for the log */
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? " " : "", names[e->kind]);
        if (e->kind == SEARCH_EFFECT_SHOW && e->why == NULL)
            n += (size_t)snprintf(text + n, sizeof text - n, ":ports");
        else if (e->why != NULL)
            n += (size_t)snprintf(text + n, sizeof text - n, ":%.20s", e->why);
        else if (e->at != SEARCH_NO_ADDR)
            n += (size_t)snprintf(text + n, sizeof text - n, ":%zu", e->at);
    }
    return text;
}

static void begin_with(struct search_config config) {
    config.incarnation = ME;
    config.connect_timeout_ns = 10 * NS_PER_S;
    config.peer_timeout_ns = 1500 * MS;
    (void)snprintf(config.run_id, sizeof config.run_id, "run");
    now = 1000 * NS_PER_S;
    search_init(&s, &config, now);
}

/* An endpoint of one port, or of several; at the first address. */
static void begin_ports(unsigned n_ports, size_t n_addrs) {
    struct search_config config = {.n_ports = n_ports};
    for (unsigned i = 0; i < n_ports; i++)
        config.ports[i] = (uint16_t)(5 + i);
    begin_with(config);
    cr_assert_str_eq(STEP(TIME, 0), "resolve");
    cr_assert_str_eq(STEP(ADDRS, .n = n_addrs), "connect:0 join");
}

static void begin_peer(size_t n_addrs) {
    begin_with((struct search_config){.has_arbiter = true});
    cr_assert_eq(STEP(TIME, 0)[0], '\0', "it waits for the member's word");
    cr_assert_str_eq(STEP(CONNECT, .peer = &peer, .soon = true), "");
    cr_assert_str_eq(STEP(TIME, 0), "resolve");
    cr_assert_str_eq(STEP(ADDRS, .n = n_addrs), "connect:0");
}

static const char *hello(uint64_t incarnation, const char *run_id) {
    return STEP(HELLO, .version = WIRE_VERSION, .leader = incarnation, .run_id = run_id, .at_text = "10.0.0.1:5");
}

static const char *refuses(void) { return STEP(CLOSED, .code = -ECONNREFUSED); }

/* JOIN is sent, and an agent of the run greets. */
static void is_greeted(void) {
    (void)STEP(JOINED, 0);
    (void)hello(LEADER, "run");
}
static void is_welcomed(void) {
    is_greeted();
    (void)STEP(WELCOME, 0);
}

static void pass(uint64_t ns) { now += ns; }

/* To the next deadline. */
static const char *wait_out(void) {
    cr_assert_neq(u.deadline_ns, TIME_NEVER);
    now = MAX2(now, u.deadline_ns);
    return STEP(TIME, 0);
}

/* The member wants another round. Returns how that begins. */
static const char *again(bool soon, size_t n_addrs) {
    (void)STEP(CONNECT, .soon = soon);
    (void)wait_out();
    return STEP(ADDRS, .n = n_addrs);
}

static void begin(void) { begin_ports(0, 1); }
TestSuite(search, .init = begin);

Test(search, joins_the_leader_at_an_endpoint) {
    cr_assert(search_wants_join(&s));
    cr_assert_str_eq(STEP(JOINED, 0), "");
    cr_assert(!search_wants_join(&s));
    cr_assert_str_eq(hello(LEADER, "run"), "");
    cr_assert_eq(s.state, SEARCH_JOINING);
    cr_assert_str_eq(STEP(WELCOME, 0), "");
    cr_assert_eq(s.state, SEARCH_WELCOMED);
    cr_assert(u.deadline_ns == TIME_NEVER && s.n_welcomes == 1);
    cr_assert_str_eq(STEP(CLOSED, .code = 0), "close disconnected");
    cr_assert_str_eq(STEP(CONNECT, .soon = true), "");
    cr_assert_eq(u.deadline_ns, now + 100 * MS, "a pause, if it disconnects again and again");
    cr_assert_str_eq(wait_out(), "resolve");
}

Test(search, join_can_wait_until_the_node_is_described) {
    cr_assert_str_eq(hello(LEADER, "run"), "");
    cr_assert_eq(s.state, SEARCH_GREETED);
    cr_assert(search_wants_join(&s));
    (void)STEP(JOINED, 0);
    cr_assert_eq(s.state, SEARCH_JOINING);
}

Test(search, tries_each_address_and_pauses_longer_and_longer) {
    static const uint64_t pauses_ms[] = {100, 200, 400, 800, 1600, 2000, 2000};
    begin_ports(0, 2);
    for (size_t i = 0; i < ARRAY_SIZE(pauses_ms); i++) {
        cr_assert_str_eq(refuses(), "nothing:0 close connect:1 join");
        cr_assert_str_eq(refuses(), "nothing:1 show:nothing listens ther close disconnected");
        cr_assert_eq(s.finding, RDZV_FINDING_NOTHING);
        cr_assert_eq(u.deadline_ns, TIME_NEVER, "the member decides");
        (void)STEP(CONNECT, 0);
        cr_assert_eq(u.deadline_ns, now + pauses_ms[i] * MS);
        cr_assert_str_eq(wait_out(), "resolve");
        cr_assert_str_eq(STEP(ADDRS, .n = 2), "connect:0 join");
    }
}

Test(search, a_silent_address_is_shown_and_then_given_up) {
    cr_assert_eq(u.deadline_ns, now + 2 * NS_PER_S);
    pass(2 * NS_PER_S);
    cr_assert_str_eq(STEP(TIME, .link = SEARCH_LINK_CONNECTED), "show:no answer; what list");
    cr_assert_eq(u.deadline_ns, now + 8 * NS_PER_S);
    cr_assert_str_eq(wait_out(), "show:no answer; a firewal close disconnected");
    cr_assert_eq(s.finding, RDZV_FINDING_ELSE);
}

Test(search, munge_that_is_slow_here_extends_the_attempt) {
    pass(10 * NS_PER_S);
    cr_assert_str_eq(STEP(TIME, .link = SEARCH_LINK_CHOOSING), "");
    cr_assert_eq(u.deadline_ns, now + 1500 * MS);
}

Test(search, what_shows_that_two_cannot_talk_is_told_to_the_member) {
    cr_assert_str_eq(STEP(CLOSED, .code = -EKEYREJECTED, .why = "other key"),
                     "show:other key close disconnected:other key");
    begin_ports(0, 1);
    cr_assert_str_eq(STEP(CLOSED, .code = -ENETUNREACH, .why = "no route"),
                     "show:no route close disconnected:no route");
    cr_assert_eq(s.finding, RDZV_FINDING_SILENCE);
    begin_ports(0, 1);
    cr_assert_str_eq(STEP(CLOSED, .code = -EPROTO), "show:what answers there i close disconnected");
    begin_ports(0, 1);
    cr_assert_str_eq(STEP(CLOSED, .code = 0), "show:what listens there c close disconnected");
}

Test(search, an_agent_of_another_run_or_version_refuses_for_good_at_an_endpoint) {
    cr_assert_str_eq(hello(LEADER, "other"), "close refused:the agent at 10.0.0.");
    cr_assert_eq(s.state, SEARCH_REFUSED);
    cr_assert_str_eq(STEP(CONNECT, 0), "", "nothing more happens");
    begin_ports(0, 1);
    cr_assert_str_eq(STEP(HELLO, .version = 1, .at_text = "there"), "close refused:the agent at there s");
    begin_ports(0, 1);
    cr_assert_str_eq(STEP(HELLO, .version = 1, .at_text = "there", .is_authenticated = true),
                     "show:an agent of protocol close disconnected", "it has proved nothing");
}

Test(search, its_own_connection_that_comes_back_is_not_a_leader) {
    cr_assert_str_eq(hello(ME, "run"), "show:something there send close disconnected");
    begin_ports(0, 1);
    cr_assert_str_eq(STEP(HELLO, .version = WIRE_VERSION, .leader = ME, .run_id = "run", .within_host = true), "");
    cr_assert_eq(s.state, SEARCH_GREETED, "within one machine it is this node's own server");
}

Test(search, a_refusal_is_for_now_or_for_good) {
    begin_ports(0, 2);
    is_greeted();
    cr_assert_str_eq(STEP(REFUSED, .why = "full"), "show:full close disconnected:full",
                     "its other address is not tried");
    cr_assert_eq(u.effects[1].wait, RDZV_WAIT_NOT_ADMITTED);
    begin_ports(0, 1);
    is_greeted();
    cr_assert_str_eq(STEP(REFUSED, .why = "no", .final = true), "close refused:no");
}

Test(search, messages_in_a_wrong_order_end_the_attempt) {
    cr_assert_str_eq(STEP(WELCOME, 0), "show:what answers there v close disconnected", "before HELLO");
    begin_ports(0, 1);
    (void)hello(LEADER, "run");
    cr_assert_str_eq(STEP(REFUSED, .final = true), "show:what answers there v close disconnected", "before JOIN");
    begin_ports(0, 1);
    is_welcomed();
    cr_assert_str_eq(STEP(INVALID, 0), "close disconnected");
}

Test(search, an_endpoint_without_an_address_is_looked_up_again) {
    begin_with((struct search_config){0});
    (void)STEP(TIME, 0);
    cr_assert_str_eq(STEP(ADDRS, .why = "no such host"), "show:no such host close disconnected");
    cr_assert_eq(s.state, SEARCH_RESTING);
    cr_assert_eq(s.backoff_ns, 100 * MS);
}

Test(search, the_member_can_hang_up_at_any_time) {
    cr_assert_str_eq(STEP(HANG_UP, 0), "close");
    cr_assert_eq(u.deadline_ns, TIME_NEVER);
    cr_assert_str_eq(STEP(HANG_UP, 0), "");
    cr_assert_str_eq(STEP(CLOSED, 0), "", "of a connection that was given up");
    begin_ports(2, 2);
    (void)refuses();
    cr_assert_eq(s.state, SEARCH_RETRYING);
    cr_assert_str_eq(STEP(HANG_UP, 0), "close");
}

Test(search, a_peer_gets_join_after_its_hello) {
    begin_peer(1);
    cr_assert(!search_wants_join(&s));
    cr_assert_eq(u.deadline_ns, now + 1500 * MS);
    cr_assert_str_eq(hello(LEADER, "run"), "join");
    cr_assert_eq(s.state, SEARCH_GREETED);
    cr_assert_eq(u.deadline_ns, TIME_NEVER, "it may be about to lead");
    (void)STEP(JOINED, 0);
    (void)STEP(WELCOME, 0);
    cr_assert_eq(s.state, SEARCH_WELCOMED);
}

Test(search, another_agent_at_a_peers_address_is_passed_over) {
    begin_peer(2);
    cr_assert_str_eq(hello(LEADER + 1, "run"), "close connect:1");
    cr_assert_str_eq(wait_out(), "show:no answer; a firewal close disconnected");
    (void)STEP(CONNECT, .peer = &peer);
    cr_assert_eq(u.deadline_ns, now + 100 * MS);
}

Test(search, another_target_ends_the_attempt_at_the_old_one) {
    struct rdzv_peer other = {.incarnation = LEADER + 2, .addr = "10.0.0.2", .port = 5};
    begin_peer(1);
    (void)refuses();
    cr_assert_eq(s.backoff_ns, 100 * MS);
    (void)STEP(CONNECT, .peer = &peer);
    (void)wait_out();
    (void)STEP(ADDRS, .n = 1);
    cr_assert_str_eq(STEP(CONNECT, .peer = &peer), "", "the attempt continues");
    cr_assert_str_eq(STEP(CONNECT, .peer = &other), "close");
    cr_assert_eq(u.deadline_ns, now, "its pauses begin with the shortest");
    cr_assert_eq(s.target.incarnation, LEADER + 2);
}

Test(search, the_first_port_is_tried_again_before_the_others) {
    static const uint64_t pauses_ms[] = {20, 40, 80, 160};
    begin_ports(3, 3);
    for (size_t i = 0; i < ARRAY_SIZE(pauses_ms); i++) {
        cr_assert_str_eq(refuses(), "close");
        cr_assert_eq(s.state, SEARCH_RETRYING);
        cr_assert_eq(u.deadline_ns, now + pauses_ms[i] * MS);
        cr_assert_str_eq(wait_out(), "connect:0 join");
    }
    cr_assert_str_eq(refuses(), "close connect:1 join");
    cr_assert_str_eq(refuses(), "close connect:2 join");
    cr_assert_str_eq(refuses(), "nothing:0 show:ports close disconnected");
    cr_assert_eq(s.finding, RDZV_FINDING_NOTHING);
}

Test(search, an_agent_of_another_run_at_a_port_is_passed_over) {
    begin_ports(2, 2);
    cr_assert_str_eq(hello(LEADER, "other"), "close connect:1 join");
    cr_assert(s.ports[0].found == FOUND_OTHER_RUN && strcmp(s.ports[0].detail, "other") == 0);
}

Test(search, other_ports_are_probed_while_one_is_silent) {
    begin_ports(3, 3);
    cr_assert_eq(u.deadline_ns, now + 250 * MS);
    cr_assert_str_eq(wait_out(), "probe:1 probe:2");
    cr_assert_eq(s.state, SEARCH_PROBING);
    cr_assert_str_eq(STEP(PROBED, .at = 1, .code = -ECONNREFUSED), "");
    cr_assert_str_eq(STEP(PROBED, .at = 2, .run_id = "run"), "close connect:2 join");
    is_welcomed();
    cr_assert_eq(s.first_port, 2, "the next round begins there");
    (void)STEP(CLOSED, .code = 0);
    (void)again(true, 3);
    cr_assert_str_eq(refuses(), "close connect:1 join", "a leader that was there is not waited for");
    cr_assert(s.ports[2].found == FOUND_NOTHING && s.ports[0].found == FOUND_UNKNOWN);
}

Test(search, probes_are_repeated_until_the_attempt_ends) {
    begin_ports(2, 2);
    uint64_t end = now + 10 * NS_PER_S;
    unsigned rounds = 0;
    while (wait_out()[0] == 'p') {
        rounds++;
        (void)STEP(PROBED, .at = 1, .code = -ECONNREFUSED);
        cr_assert_eq(s.state, SEARCH_CONNECTING);
    }
    cr_assert_eq(now, end);
    cr_assert_geq(rounds, 8);
    cr_assert_eq(s.at, 1, "now the other port is tried");
}

Test(search, the_answer_of_the_silent_one_ends_the_probes) {
    begin_ports(3, 3);
    (void)STEP(JOINED, 0);
    (void)wait_out();
    cr_assert_str_eq(hello(LEADER, "run"), "end-probes");
    cr_assert_eq(s.state, SEARCH_JOINING);
    cr_assert_str_eq(STEP(PROBED, .at = 1, .run_id = "run"), "", "it comes too late");
}

Test(search, an_agent_of_the_run_that_does_not_lead_makes_room_for_the_next_port) {
    begin_ports(3, 3);
    is_greeted();
    cr_assert_str_eq(STEP(REFUSED, .why = "it does not lead"),
                     "show:it does not lead close disconnected:it does not lead");
    cr_assert_eq(s.first_port, 1);
    for (unsigned i = 0; i < 3; i++)
        cr_assert_eq(search_nth_port(&s, i), i == 2 ? 5 : 6 + i);
}

Test(search, at_most_sixteen_addresses_are_probed_at_once) {
    begin_ports(16, 32);
    (void)wait_out();
    cr_assert_eq(u.n_effects, SEARCH_PROBES_MAX);
    cr_assert_str_eq(STEP(PROBED, .at = 1, .code = -ECONNREFUSED), "probe:17");
}

Test(search, notes_what_was_found_at_each_port) {
    static const struct {
        int code;
        enum search_found found;
    } cases[] = {
        {-EPROTO, FOUND_NOT_MUSTER}, {-EKEYREJECTED, FOUND_OTHER_KEY}, {0, FOUND_HANGS_UP},
        {-EPIPE, FOUND_HANGS_UP},    {-ETIMEDOUT, FOUND_SILENT},       {-EHOSTUNREACH, FOUND_ERROR},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        begin_ports(2, 2);
        (void)STEP(CLOSED, .code = cases[i].code);
        cr_assert_eq(s.ports[0].found, cases[i].found, "%d", cases[i].code);
    }
    begin_ports(2, 4); /* two addresses of the host: the one that answers counts */
    (void)STEP(CLOSED, .code = -EPROTO);
    (void)refuses();
    cr_assert_eq(s.ports[0].found, FOUND_NOT_MUSTER);
}

/* Two ports, one address each: what the round finds if the attempts end so. */
static enum rdzv_finding finding_of(int first, int second) {
    begin_ports(2, 2);
    cr_assert_str_eq(STEP(CLOSED, .code = first), "close connect:1 join");
    (void)STEP(CLOSED, .code = second);
    cr_assert_eq(s.state, SEARCH_RESTING);
    return s.finding;
}

Test(search, a_round_at_several_ports_has_one_finding) {
    cr_assert_eq(finding_of(-ETIMEDOUT, -ETIMEDOUT), RDZV_FINDING_SILENCE);
    cr_assert_eq(finding_of(-ETIMEDOUT, -ENETUNREACH), RDZV_FINDING_SILENCE);
    cr_assert_eq(finding_of(-ETIMEDOUT, -ECONNREFUSED), RDZV_FINDING_ELSE);
    cr_assert_eq(finding_of(-EPROTO, -ECONNREFUSED), RDZV_FINDING_ELSE);
    cr_assert_eq(finding_of(-EPROTO, -ETIMEDOUT), RDZV_FINDING_ELSE);
}

Test(search, each_round_forgets_what_the_last_one_found) {
    (void)finding_of(-EPROTO, -EPROTO);
    (void)again(true, 2);
    (void)refuses();
    cr_assert(s.ports[0].found == FOUND_NOTHING && s.ports[1].found == FOUND_UNKNOWN);
}

Test(search, each_attempt_forgets_the_one_before) {
    begin_ports(0, 2);
    (void)STEP(JOINED, 0);
    cr_assert_str_eq(STEP(CLOSED, .code = -ENETUNREACH), "close connect:1 join");
    cr_assert(search_wants_join(&s));
    cr_assert_str_eq(hello(ME, "run"), "show:something there send close disconnected", "this one could connect");
}

Test(search, probes_count_for_what_was_found) {
    begin_ports(4, 4);
    (void)STEP(CLOSED, .code = -EPROTO);
    cr_assert_str_eq(wait_out(), "probe:0 probe:2 probe:3", "port 1 is silent");
    cr_assert_eq(s.ports[0].found, FOUND_UNKNOWN, "it is found out again");
    (void)STEP(PROBED, .at = 0, .run_id = "other");
    (void)STEP(PROBED, .at = 2, .code = -ETIMEDOUT);
    cr_assert_str_eq(STEP(PROBED, .at = 3, .code = -ECONNREFUSED), "nothing:0");
    cr_assert(s.ports[0].found == FOUND_OTHER_RUN && s.ports[1].found == FOUND_SILENT);
    cr_assert(s.ports[2].found == FOUND_SILENT && s.ports[3].found == FOUND_NOTHING);
    cr_assert_str_eq(STEP(HELLO, .version = 1, .at_text = "there", .is_authenticated = true), "close connect:2 join");
    cr_assert_eq(s.ports[1].found, FOUND_OTHER_VERSION);
}

Test(search, after_a_leader_the_pauses_begin_with_the_shortest) {
    for (unsigned i = 0; i < 3; i++) {
        (void)refuses();
        (void)again(false, 1);
    }
    cr_assert_eq(s.backoff_ns, 400 * MS);
    is_welcomed();
    (void)STEP(CLOSED, .code = 0);
    (void)STEP(CONNECT, 0);
    cr_assert_eq(u.deadline_ns, now + 100 * MS);
}

Test(search, a_leader_that_was_there_listens_no_more) {
    cr_assert_str_eq(refuses(), "nothing:0 show:nothing listens ther close disconnected");
    cr_assert_str_eq(u.effects[2].why, "nothing listens there yet");
    begin_ports(0, 1);
    is_welcomed();
    (void)STEP(CLOSED, .code = 0);
    (void)again(true, 1);
    cr_assert_str_eq(refuses(), "show:nothing listens ther close disconnected", "and no other node may lead there");
    cr_assert_str_eq(u.effects[1].why, "nothing listens there any more");
}

/* ---- the text for people ---- */

static char text[SEARCH_TEXT_MAX];

static const char *described(void) {
    search_describe_ports(&s, "", "10.0.0.1", text);
    return text;
}

static void found(unsigned i, enum search_found what, const char *detail) {
    s.ports[i].found = what;
    (void)snprintf(s.ports[i].detail, sizeof s.ports[i].detail, "%s", detail);
}

static void begin_text(void) { s = (struct search){.config = {.n_ports = 3, .ports = {5, 6, 7}}}; }

Test(search, tells_what_each_port_answered, .init = begin_text) {
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: nothing listens at ports 5-7 yet");
    found(0, FOUND_SILENT, "");
    found(1, FOUND_OTHER_RUN, "night-2");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: no answer (not muster, or a firewall); "
                                  "port 6: an agent of the run 'night-2'; nothing listens at port 7 yet");
    found(0, FOUND_HANGS_UP, "");
    found(1, FOUND_NOT_MUSTER, "");
    found(2, FOUND_ERROR, "No route to host");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: hung up (not muster?); port 6: not muster; "
                                  "port 7: No route to host");
    found(0, FOUND_OTHER_VERSION, "");
    cr_assert(strstr(described(), "port 5: muster of another version") != NULL, "%s", text);
}

Test(search, tells_why_an_agent_may_not_be_talked_to, .init = begin_text) {
    found(0, FOUND_OTHER_KEY, "the agent there has another key: copy it");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: the agent there has another key: copy it; "
                                  "nothing listens at ports 6,7 yet");
    found(2, FOUND_OTHER_KEY, "the agent there has a third key: copy it");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: the agent there has another key: copy it; port 7: an "
                                  "agent without this node's key; nothing listens at port 6 yet");
}

Test(search, the_longest_text_fits, .init = begin_text) {
    char name[RDZV_RUN_ID_MAX];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    s.config.n_ports = RDZV_ENDPOINT_PORTS_MAX;
    for (unsigned i = 0; i < RDZV_ENDPOINT_PORTS_MAX; i++) {
        s.config.ports[i] = (uint16_t)(65535 - 2 * i);
        name[0] = (char)('a' + i);
        found(i, FOUND_OTHER_RUN, name);
    }
    search_describe_ports(&s, "", "fe80::1234:5678:9abc:def0", text);
    cr_assert_lt(strlen(text), sizeof text - 1);
    assert_has(text, "port 65505: an agent of the run 'pxxx");
}

Test(search, ports_that_are_alike_are_together, .init = begin_text) {
    found(0, FOUND_HANGS_UP, "");
    found(2, FOUND_HANGS_UP, "");
    cr_assert_str_eq(described(),
                     "no leader at 10.0.0.1: ports 5,7: hung up (not muster?); nothing listens at port 6 yet");
    found(1, FOUND_HANGS_UP, "");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: ports 5-7: hung up (not muster?)");
}

Test(search, a_long_list_where_nothing_listens_is_counted, .init = begin_text) {
    s.config.n_ports = RDZV_ENDPOINT_PORTS_MAX;
    for (unsigned i = 0; i < RDZV_ENDPOINT_PORTS_MAX; i++)
        s.config.ports[i] = (uint16_t)(20001 + 7 * i);
    found(1, FOUND_SILENT, "");
    s.welcomed_ns = 1;
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 20008: no answer (not muster, or a firewall); nothing "
                                  "listens at 15 ports (20001, ...) any more");
}

Test(search, a_host_that_is_silent_at_all_ports_is_named_once, .init = begin_text) {
    for (unsigned i = 0; i < 3; i++)
        found(i, FOUND_SILENT, "");
    search_describe_ports(&s, "node1", "10.0.0.1", text);
    cr_assert_str_eq(text, "no leader at node1 (10.0.0.1): no answer at any of its 3 ports; it is down, or a "
                           "firewall is in the way");
    found(0, FOUND_ERROR, "No route to host");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: cannot connect to any of its 3 ports: No route to host");
    found(1, FOUND_NOT_MUSTER, "");
    cr_assert(strstr(described(), "port 6: not muster") != NULL, "%s", text);
}
