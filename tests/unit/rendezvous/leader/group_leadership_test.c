#include "group_rig.h"

#include "rig/unit.h"

#define NODES 8u
#define BIT(node) (1u << (node))

/* The leader's arbiter holds one record, and answers at once where it is reachable. */
static struct leader {
    bool reachable;
    struct arbiter_record there;
    unsigned asked[ARBITER_KIND_COUNT];
    struct arbiter_request last; /* that was asked */
    uint64_t clocks[NODES];      /* ours, that each node will echo next */
    uint64_t worst_ns;           /* the shortest lease that a heard node got since it was set */
    size_t deposed, claimed;
} led;

static struct group_config arbiter_config(uint32_t min, uint32_t max) {
    struct group_config c = *WITH(config_of(min, max), .leadership = LEADERSHIP_ARBITER);
    c.self = (struct rdzv_peer){.incarnation = 1, .addr = "10.0.0.1", .port = 4711};
    return c;
}

static void hear(const struct arbiter_request *q, enum arbiter_result result, uint64_t started_ns) {
    struct arbiter_answer a = {.request = *q, .started_ns = started_ns, .result = result};
    (void)snprintf(a.text, sizeof a.text, "the arbiter is on fire");
    if (result != ARBITER_UNREACHABLE)
        a.record = led.there;
    step((struct group_event){.kind = GROUP_EVENT_ARBITER, .answer = &a});
}

static void serve(const struct arbiter_request *q) {
    enum arbiter_result result = ARBITER_OK;
    struct arbiter_record *there = &led.there;
    if (q->kind == ARBITER_CLAIM) {
        bool ours = there->leader.incarnation == q->leader.incarnation;
        if (there->closed || q->epoch < there->epoch || (q->epoch == there->epoch && !ours))
            result = ARBITER_LOST;
        else if (q->epoch > there->epoch)
            *there = (struct arbiter_record){.epoch = q->epoch, .leader = q->leader, .idle = q->idle};
    } else if (q->kind == ARBITER_CLOSE) {
        if (there->closed || there->leader.incarnation != q->leader.incarnation) {
            result = ARBITER_LOST;
        } else {
            there->closed = true;
            there->outcome = q->outcome;
        }
    } else {
        there->beat += q->kind == ARBITER_BEAT;
    }
    hear(q, result, rig.now_ns);
}

static void after(void) {
    struct arbiter_request asked[8];
    size_t n = 0;
    for (size_t i = 0; i < rig.u.n_effects; i++) {
        const struct group_effect *e = &rig.u.effects[i];
        led.deposed += e->kind == GROUP_EFFECT_DEPOSED;
        if (e->kind != GROUP_EFFECT_ARBITER)
            continue;
        led.last = asked[n++] = *e->request;
        led.asked[e->request->kind]++;
    }
    for (size_t i = 0; i < n && led.reachable; i++)
        serve(&asked[i]);
}

static bool words(const char *word, const char *rest);

static void begin_leader(const struct group_config *c, bool reachable) {
    led = (struct leader){.reachable = reachable, .worst_ns = UINT64_MAX};
    begin(c);
    rig.after = after;
    rig.words = words;
    led.there = (struct arbiter_record){.epoch = c->epoch, .leader = c->self, .idle = c->idle};
    after(); /* of the first step */
}

/* All of these renew, and those heard echo what they got; the first successor its LEASEs too. */
static void live(double seconds, unsigned alive, unsigned heard) {
    uint64_t until = rig.now_ns + S(seconds);
    cr_assert_lt(until, S(2000), "what was waited for never came");
    while (rig.now_ns < until && group_state(rig.g) != GROUP_CLOSED) {
        rig.now_ns = MIN2(until, rig.now_ns + S(0.25));
        for (uint64_t node = 1; node < NODES; node++) {
            if ((alive & BIT(node)) == 0)
                continue;
            struct renew renewal = {.clock_ns = rig.now_ns, .leader_clock_ns = led.clocks[node]};
            step((struct group_event){.kind = GROUP_EVENT_RENEW, .node = node, .renew = renewal});
            const struct group_effect *e = effect(GROUP_EFFECT_LEASE);
            if ((heard & BIT(node)) == 0 || e == NULL)
                continue;
            led.worst_ns = MIN2(led.worst_ns, e->lease.validity_ns);
            led.clocks[node] = rig.now_ns;
            const struct successors *s = group_successors(rig.g);
            if (s->n > 0 && s->list[0].incarnation == node)
                step((struct group_event){.kind = GROUP_EVENT_MESSAGE,
                                          .node = node,
                                          .message = WIRE_ECHO,
                                          .body = &(struct echo){s->epoch, rig.now_ns}});
        }
        step((struct group_event){.kind = GROUP_EVENT_TIME});
    }
}

static const unsigned all = 0xfe;

/* A group of nodes 1 … n that runs, each on a host of its own and reached. */
static void run(const struct group_config *c, uint64_t n) {
    begin_leader(c, true);
    for (uint64_t node = 1; node <= n; node++) {
        join(node);
        probe(node, PROBE_ALIVE);
    }
    start();
    live(1, all, all);
}

/* In order, written "1.2.3@1" with their epoch. */
static const char *named(void) {
    static char text[128];
    const struct successors *s = group_successors(rig.g);
    size_t len = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < s->n; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%d", i == 0 ? "" : ".", (int)s->list[i].incarnation);
    (void)snprintf(text + len, sizeof text - len, "@%u", s->epoch);
    return text;
}

static double validity(uint64_t node) {
    renew(node);
    return (double)lease()->validity_ns / 1e9;
}

#define assert_validity(node, seconds)                                                    \
    do {                                                                                  \
        double v_ = validity(node);                                                       \
        cr_assert_float_eq(v_, seconds, 1e-6, "it is %g, not %g", v_, (double)(seconds)); \
    } while (0)
#define assert_generation(e, c)                                                         \
    do {                                                                                \
        struct generation g_ = group_generation(rig.g);                                 \
        cr_assert(g_.epoch == (e) && g_.counter == (c), "%u.%u", g_.epoch, g_.counter); \
    } while (0)

static void leaves(uint64_t node) {
    struct report r = {.state = NODE_STOPPED,
                       .generation = group_generation(rig.g),
                       .leaving = true,
                       .leaving_why = "was stopped by SIGTERM"};
    report(node, r);
}

static bool resigned(void) { return rig.seen[GROUP_EFFECT_DONE] > 0; }

/* Of stories. */
static bool words(const char *word, const char *rest) {
    static const struct {
        const char *word;
        enum arbiter_kind kind;
    } asked[] = {{"claims", ARBITER_CLAIM}, {"vacates", ARBITER_VACATE}, {"closes", ARBITER_CLOSE}};
    struct generation g = group_generation(rig.g);
    char nodes[16] = "";
    double n = 0;
    (void)sscanf(rest, "%lf %15s", &n, nodes);
    for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
        STORY_WORD(asked[i].word, cr_assert_eq(led.asked[asked[i].kind], n, "%s", word))
    STORY_WORD("leaves", leaves((uint64_t)n))
    STORY_WORD("resign", step((struct group_event){.kind = GROUP_EVENT_RESIGN}))
    STORY_WORD("resigned", cr_assert_eq(resigned(), n))
    STORY_WORD("answered", hear(&led.last, ARBITER_OK, rig.now_ns))
    STORY_WORD("unanswered", hear(&led.last, ARBITER_UNREACHABLE, rig.now_ns))
    STORY_WORD("live", live(n, story_nodes(nodes), story_nodes(nodes)))
    STORY_WORD("deposed", cr_assert_eq(led.deposed, (size_t)n))
    STORY_WORD("named", cr_assert_str_eq(named(), rest))
    STORY_WORD("generation", cr_assert_str_eq(rig_text("%u.%u", g.epoch, g.counter), rest))
    return false;
}

TestSuite(group_leadership, .fini = end);

/* ---- leases ---- */

Test(group_leadership, no_lease_outlives_the_last_read_by_more_than_the_arbiters_lease) {
    begin_leader(AT(arbiter_config(2, 2)), false);
    join(1);
    assert_validity(1, 0);
    hear(&led.last, ARBITER_UNREACHABLE, rig.now_ns);
    assert_validity(1, 0);
    rig.now_ns += S(3);
    uint64_t read_ns = rig.now_ns - S(3);
    hear(&led.last, ARBITER_OK, read_ns);
    static const struct {
        double age, validity;
    } cases[] = {{3, 5}, {55, 5}, {55.5, 4.5}, {59.75, 0.25}, {60, 0}, {61, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        rig.now_ns = read_ns + S(cases[i].age);
        assert_validity(1, cases[i].validity);
    }
    hear(&led.last, ARBITER_OK, read_ns + S(56));
    assert_validity(1, 5);
    hear(&led.last, ARBITER_OK, read_ns + S(1));
    assert_validity(1, 5); /* an older answer shortens nothing */
}

Test(group_leadership, an_answer_that_names_another_leader_or_an_older_epoch_confirms_nothing) {
    static const struct {
        uint32_t epoch;
        uint64_t leader;
        double validity;
    } cases[] = {{4, 1, 5}, {4, 2, 0}, {3, 1, 0}, {0, 0, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        begin_leader(WITH(arbiter_config(2, 2), .epoch = 4), false);
        join(1);
        led.there = (struct arbiter_record){.epoch = cases[i].epoch, .leader.incarnation = cases[i].leader};
        hear(&led.last, ARBITER_OK, rig.now_ns);
        assert_validity(1, cases[i].validity);
    }
}

static void touched(uint64_t ns) { step((struct group_event){.kind = GROUP_EVENT_TOUCHED, .touched_ns = ns}); }

Test(group_leadership, no_lease_outlives_the_last_touch_of_the_leader_file_by_more_than_a_lease) {
    begin_leader(WITH(config_of(2, 2), .leadership = LEADERSHIP_LEADER_FILE), false);
    cr_assert_eq(rig.seen[GROUP_EFFECT_TOUCH], 1);
    join(1);
    assert_validity(1, 0);
    touched(0); /* it failed */
    assert_validity(1, 0);
    uint64_t began = rig.now_ns;
    rig.now_ns += S(1);
    touched(began);
    static const struct { double age, validity; } cases[] = {{1, 4}, {2.5, 2.5}, {4.75, 0.25}, {5, 0}, {6, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        rig.now_ns = began + S(cases[i].age);
        assert_validity(1, cases[i].validity);
    }
}

Test(group_leadership, without_an_leadership_a_lease_is_a_lease) {
    begin_leader(AT(config_of(2, 2)), false);
    join(1);
    rig.now_ns += S(1000);
    assert_validity(1, 5);
    cr_assert(rig.seen[GROUP_EFFECT_TOUCH] == 0 && rig.seen[GROUP_EFFECT_ARBITER] == 0);
}

static void echo(uint64_t node, uint32_t epoch, uint64_t clock_ns) {
    step((struct group_event){
        .kind = GROUP_EVENT_MESSAGE, .node = node, .message = WIRE_ECHO, .body = &(struct echo){epoch, clock_ns}});
}

Test(group_leadership, no_lease_outlives_the_first_successors_last_echo_by_more_than_a_lease) {
    run(AT(arbiter_config(3, 3)), 3);
    cr_assert_str_eq(named(), "2.3@1");
    led.reachable = false;
    uint64_t last = rig.now_ns;
    static const struct { double age, validity; } cases[] = {{0, 5}, {1, 4}, {2.25, 2.75}, {4.5, 0.5}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        rig.now_ns = last + S(cases[i].age);
        assert_validity(3, cases[i].validity);
    }
    echo(3, 1, rig.now_ns);
    assert_validity(3, 0.5); /* another's echo */
    echo(2, 2, rig.now_ns);
    assert_validity(3, 0.5); /* of another epoch */
    echo(2, 1, rig.now_ns + 1);
    assert_validity(3, 0.5); /* of the future */
    echo(2, 1, last + S(2));
    assert_validity(3, 2.5);
    echo(2, 1, last + S(1));
    assert_validity(3, 2.5); /* an older one, late */
    rig.now_ns = last + S(7);
    assert_validity(3, 0);
    assert_validity(2, 0); /* nor for the successor itself */
}

Test(group_leadership, the_naming_counts_like_an_echo_and_only_from_form_on) {
    begin_leader(AT(arbiter_config(3, 3)), true);
    for (uint64_t node = 1; node <= 3; node++) {
        join(node);
        probe(node, PROBE_ALIVE);
    }
    led.reachable = false;
    rig.now_ns += S(4);
    assert_validity(1, 5); /* the store is not open: nobody was told FORM */
    open_store();
    assert_validity(1, 1); /* named 4 s ago */
    echo(2, 1, rig.now_ns);
    assert_validity(1, 5);
}

Test(group_leadership, of_all_that_applies_the_smallest_counts) {
    run(AT(arbiter_config(3, 3)), 3);
    led.reachable = false;
    uint64_t last = rig.now_ns;
    hear(&(struct arbiter_request){.kind = ARBITER_BEAT, .epoch = 1}, ARBITER_OK, last);
    rig.now_ns = last + S(57);
    echo(2, 1, rig.now_ns - S(1));
    assert_validity(3, 3); /* the read's */
    echo(2, 1, rig.now_ns);
    assert_validity(3, 3);
    hear(&led.last, ARBITER_OK, rig.now_ns);
    rig.now_ns += S(1);
    assert_validity(3, 4); /* the echo's */
    echo(2, 1, rig.now_ns);
    assert_validity(3, 5); /* the lease's */
}

Test(group_leadership, nothing_is_formed_before_the_leader_has_confirmed_itself) {
    for (int leader_file = 0; leader_file < 2; leader_file++) {
        struct group_config c = leader_file ? config_of(2, 2) : arbiter_config(2, 2);
        if (leader_file)
            c.leadership = LEADERSHIP_LEADER_FILE;
        begin_leader(&c, false);
        join(1);
        join(2);
        pass(20, all);
        assert_state(GROUP_GATHERING);
        if (leader_file)
            touched(rig.now_ns - S(5)); /* too old to be of use */
        else
            hear(&led.last, ARBITER_UNREACHABLE, rig.now_ns);
        assert_state(GROUP_GATHERING);
        if (leader_file)
            touched(rig.now_ns);
        else
            hear(&led.last, ARBITER_OK, rig.now_ns);
        assert_state(GROUP_FORMING);
    }
}

Test(group_leadership, members_that_got_no_lease_are_sent_one_as_soon_as_there_is_one) {
    begin_leader(WITH(config_of(3, 3), .leadership = LEADERSHIP_LEADER_FILE), false);
    touched(rig.now_ns);
    for (uint64_t node = 1; node <= 3; node++)
        join(node);
    start();
    join(4); /* no member */
    rig.now_ns += S(4.75);
    renew(1);
    rig.now_ns += S(0.25);
    uint64_t asked_ns = rig.now_ns;
    for (uint64_t node = 2; node <= 4; node++)
        assert_validity(node, 0);
    disconnect(3);
    touched(0);
    cr_assert_eq(count(GROUP_EFFECT_LEASE, 0), 0, "a touch that failed feeds nobody");
    rig.now_ns += S(0.5);
    touched(rig.now_ns);
    cr_assert_eq(count(GROUP_EFFECT_LEASE, 0), 1);
    const struct group_effect *e = effect(GROUP_EFFECT_LEASE);
    cr_assert(e != NULL && e->node == 2 && e->lease.echo_ns == asked_ns && e->lease.validity_ns == S(5));
    cr_assert_eq(generation_compare(e->lease.prepared, group_generation(rig.g)), 0);
    touched(rig.now_ns);
    cr_assert_eq(count(GROUP_EFFECT_LEASE, 0), 0, "once");
}

Test(group_leadership, an_echo_and_a_read_feed_the_lease_pending_too) {
    for (int read = 0; read < 2; read++) {
        run(AT(arbiter_config(3, 3)), 3);
        led.reachable = false;
        rig.now_ns += read ? S(60) : S(5);
        if (read)
            echo(2, 1, rig.now_ns);
        assert_validity(3, 0);
        if (read)
            hear(&led.last, ARBITER_OK, rig.now_ns);
        else
            echo(2, 1, rig.now_ns);
        cr_assert_eq(count(GROUP_EFFECT_LEASE, 3), 1, "%d", read);
        cr_assert_eq(lease()->validity_ns, S(5));
    }
}

/* ---- the beat ---- */

Test(group_leadership, the_arbiter_is_asked_once_in_a_heartbeat_and_one_at_a_time) {
    begin_leader(AT(arbiter_config(2, 2)), false);
    cr_assert(led.asked[ARBITER_BEAT] == 1 && led.last.epoch == 1 && led.last.leader.incarnation == 1);
    cr_assert_str_eq(led.last.leader.addr, "10.0.0.1");
    join(1);
    pass(4, all);
    cr_assert_eq(led.asked[ARBITER_BEAT], 1, "it is not answered yet");
    hear(&led.last, ARBITER_OK, rig.now_ns);
    cr_assert_eq(led.asked[ARBITER_BEAT], 2, "the next was due long ago");
    hear(&led.last, ARBITER_OK, rig.now_ns);
    cr_assert_eq(led.asked[ARBITER_BEAT], 2);
    cr_assert_eq(rig.u.deadline_ns, rig.now_ns + S(1));
    pass(0.75, all);
    cr_assert_eq(led.asked[ARBITER_BEAT], 2);
    pass(0.25, all);
    cr_assert_eq(led.asked[ARBITER_BEAT], 3);
    hear(&led.last, ARBITER_UNREACHABLE, rig.now_ns);
    pass(1, all);
    cr_assert_eq(led.asked[ARBITER_BEAT], 4, "one that can't be reached is asked no more often");
}

Test(group_leadership, the_leader_file_is_touched_every_heartbeat) {
    begin_leader(WITH(config_of(1, 1), .leadership = LEADERSHIP_LEADER_FILE), false);
    touched(rig.now_ns);
    join(1);
    pass(10, all);
    cr_assert_eq(rig.seen[GROUP_EFFECT_TOUCH], 11);
}

Test(group_leadership, an_arbiter_that_is_lost_is_said_once_and_again_when_it_was_back) {
    begin_leader(AT(arbiter_config(1, 1)), false);
    for (int i = 0; i < 3; i++) {
        hear(&led.last, ARBITER_UNREACHABLE, rig.now_ns);
        const struct group_effect *e = effect(GROUP_EFFECT_NOTICE);
        cr_assert_eq(e != NULL, i == 0);
        if (e != NULL)
            cr_assert(strstr(e->reason, "on fire") != NULL && strstr(e->reason, "60 s") != NULL, "%s", e->reason);
    }
    hear(&led.last, ARBITER_OK, rig.now_ns);
    hear(&led.last, ARBITER_UNREACHABLE, rig.now_ns);
    cr_assert_not_null(effect(GROUP_EFFECT_NOTICE));
}

Test(group_leadership, a_claim_that_fails_again_and_again_is_said_once_though_looks_succeed) {
    struct group_config c = arbiter_config(1, 1);
    begin_leader(&c, true);
    struct arbiter_request claim = {.kind = ARBITER_CLAIM, .epoch = c.epoch + 1, .leader = c.self};
    struct arbiter_request beat = {.kind = ARBITER_BEAT, .epoch = c.epoch, .leader = c.self};
    for (int i = 0; i < 3; i++) {
        hear(&claim, ARBITER_UNREACHABLE, rig.now_ns);
        const struct group_effect *e = effect(GROUP_EFFECT_NOTICE);
        cr_assert_eq(e != NULL, i == 0);
        if (e != NULL) /* the job needs no time without the arbiter */
            cr_assert(strstr(e->reason, "on fire") != NULL && strstr(e->reason, " s ") == NULL, "%s", e->reason);
        hear(&beat, ARBITER_OK, rig.now_ns);
    }
    hear(&beat, ARBITER_UNREACHABLE, rig.now_ns);
    cr_assert_not_null(effect(GROUP_EFFECT_NOTICE), "that is another matter");
}

/* ---- the leader's own node leaves ---- */

Test(group_leadership, a_leader_that_leaves_hands_over_to_a_successor_that_stays) {
    run(AT(arbiter_config(1, 3)), 3);
    play("pass 1 all; leaves 1; resign; resigned 0");
    size_t n_status = rig.seen[GROUP_EFFECT_STATUS];
    play("stopped 2 3; is gathering; pass 0.1 23");
    cr_assert_eq(rig.seen[GROUP_EFFECT_STATUS], n_status, "it does not wait for nodes");
    /* the others' workers may still run */
    play("resigned 1; vacates 0; closes 0");
}

Test(group_leadership, a_leader_that_leaves_last_leaves_the_epoch_vacant) {
    run(AT(arbiter_config(3, 3)), 3);
    /* fewer than min remain: and yet the job is not over if all leave; they still stop */
    play("leaving 2; leaving 3; leaves 1; resign; pass 1 23; vacates 0; "
         "leaves 2; left 2; vacates 0; leaves 3; vacates 1; closes 0; resigned 1");
}

/* The group stops for a worker that failed, or has done so, and would begin again. */
Test(group_leadership, a_node_that_is_told_to_leave_during_a_restart_interrupts_the_job) {
    enum { STOPPED_LAST, LEFT_FIRST, GATHERING, LOST, CASES };
    for (int i = 0; i < CASES; i++) {
        run(WITH(arbiter_config(2, 2), .rdzv.max_restarts = 5, .rdzv.restart_backoff_ns = S(10)), 2);
        fails(1, FAILURE_EXIT, 1);
        say(1, NODE_STOPPED);
        cr_assert_eq(group_state(rig.g), GROUP_STOPPING);
        if (i == GATHERING || i == LOST) {
            say(2, NODE_STOPPED);
            pass(1, all);
            cr_assert_eq(group_state(rig.g), GROUP_GATHERING);
        }
        if (i == LOST)
            lose(2);
        else
            leaves(2);
        if (i != STOPPED_LAST && i != LOST)
            step((struct group_event){.kind = GROUP_EVENT_LEAVE, .node = 2});
        pass(1, BIT(1));
        cr_assert_eq(group_state(rig.g), GROUP_CLOSED, "%d", i);
        cr_assert_eq(led.asked[ARBITER_VACATE], i != LOST, "%d", i);
        cr_assert_eq(led.asked[ARBITER_CLOSE], i == LOST, "%d", i);
        struct desired d = told(1);
        cr_assert_eq(d.outcome, OUTCOME_FAILED);
        cr_assert(i == LOST || (strstr(d.reason, "node h2 was stopped by SIGTERM; 1 of at least 2") && !d.has_failure),
                  "%d: %s", i, d.reason);
    }
}

Test(group_leadership, a_job_to_which_too_few_came_is_not_over) {
    begin_leader(WITH(arbiter_config(2, 2), .rdzv.join_timeout_ns = S(20)), true);
    play("join 1; pass 19.9 1; is gathering; pass 0.2 1; is closed; vacates 1; closes 0; gives-reason only 1 of at "
         "least 2 "
         "nodes came");
}

Test(group_leadership, a_leader_that_only_waits_for_earlier_epochs_leaves_at_once) {
    for (int soon = 0; soon < 2; soon++) {
        begin_leader(WITH(arbiter_config(2, 2), .not_before_ns = S(soon ? 1001 : 1020)), true);
        join(1);
        step((struct group_event){.kind = GROUP_EVENT_RESIGN});
        cr_assert_eq(resigned(), !soon, "soon the epoch can be left vacant");
    }
}

Test(group_leadership, a_leader_that_leaves_too_few_behind_ends_the_job_first) {
    for (int slow = 0; slow < 2; slow++) {
        run(WITH(arbiter_config(2, 2), .grace_ns = S(60)), 2);
        play("leaves 1; resign");
        /* workers of another node run, in their grace; a vacant epoch does not show node 2 the end */
        play(slow ? "pass 89.75 2; resigned 0; vacates 0; pass 0.25 2; resigned 1"
                  : "pass 1 2; resigned 0; vacates 0; stopped 2; is closed; vacates 1; pass 5 2; resigned 0; closed 2; "
                    "resigned 1");
    }
}

Test(group_leadership, a_leader_that_leaves_waits_two_seconds_for_the_arbiter) {
    run(AT(arbiter_config(1, 1)), 1);
    led.reachable = false;
    play("leaves 1; resign; vacates 1; pass 1.9; resigned 0; pass 0.1; resigned 1");
    cr_assert_eq(rig.u.deadline_ns, TIME_NEVER);
}

/* ---- idle epochs ---- */

static struct group_config idle_config(uint32_t min, uint32_t max) {
    struct group_config c = *WITH(arbiter_config(min, max), .idle = true);
    return c;
}

Test(group_leadership, an_idle_epochs_first_group_is_formed_in_the_next_epoch) {
    begin_leader(AT(idle_config(2, 2)), true);
    play("join 1; pass 3 1; claims 0");
    cr_assert_eq(led.there.epoch, 1, "not before it is needed");
    play("join 2; is forming; generation 2.1");
    cr_assert(led.there.epoch == 2 && !led.there.idle);
    play("start; pass 3 12; generation 2.1; claims 1");
}

Test(group_leadership, a_group_of_an_idle_epoch_is_not_formed_while_its_claim_is_not_answered) {
    struct group_config c = idle_config(2, 2);
    begin_leader(&c, true);
    join(1);
    led.reachable = false;
    join(2);
    cr_assert(led.last.kind == ARBITER_CLAIM && led.last.epoch == 2 && !led.last.idle);
    struct arbiter_request claim = led.last;
    assert_state(GROUP_GATHERING);
    cr_assert_eq(told(2).epoch, 1);
    hear(&claim, ARBITER_UNREACHABLE, rig.now_ns);
    pass(0.9, 0);
    cr_assert_eq(led.asked[ARBITER_CLAIM], 1);
    pass(1.2, 0);
    cr_assert_eq(led.asked[ARBITER_CLAIM], 2, "asked again");
    assert_state(GROUP_GATHERING);
    led.there = (struct arbiter_record){.epoch = 2, .leader = c.self}; /* the first was won */
    hear(&claim, ARBITER_OK, rig.now_ns);
    assert_state(GROUP_FORMING);
    assert_generation(2, 1);
}

Test(group_leadership, a_leader_of_an_idle_epoch_that_loses_the_next_forms_nothing) {
    begin_leader(AT(idle_config(2, 2)), true);
    join(1);
    led.there = (struct arbiter_record){.epoch = 2, .leader.incarnation = 99, .idle = true};
    play("join 2; deposed 1; is gathering");
}

Test(group_leadership, an_idle_epoch_is_closed_whatever_becomes_of_a_claim_under_way) {
    for (int how = 0; how < 3; how++) {
        struct group_config c = idle_config(2, 2);
        begin_leader(&c, true);
        join(1);
        led.reachable = how == 0;
        if (how > 0)
            join(2);
        struct arbiter_request claim = led.last;
        step((struct group_event){.kind = GROUP_EVENT_STOP, .reason = "enough"});
        assert_state(GROUP_CLOSED);
        if (how > 0) {
            cr_assert_eq(led.asked[ARBITER_CLOSE], 0, "which epoch is it?");
            led.reachable = true;
            led.there = (struct arbiter_record){.epoch = 2, .leader = c.self}; /* won */
            hear(&claim, how == 1 ? ARBITER_OK : ARBITER_UNREACHABLE, rig.now_ns);
            pass(1.5, 0);
        }
        cr_assert(led.there.closed && led.deposed == 0, "case %d", how);
        struct desired d;
        cr_assert(group_desired(rig.g, 1, &d) && d.kind == DESIRED_CLOSED);
    }
}

Test(group_leadership, an_idle_epoch_without_an_arbiter_or_with_an_handover_makes_no_sense) {
    static const struct handover handover = {.epoch = 1};
    struct group_config c[] = {idle_config(2, 2), idle_config(2, 2)};
    struct group *g;
    c[0].leadership = LEADERSHIP_LEADER_FILE;
    c[1].handover = &handover;
    for (int i = 0; i < 2; i++)
        cr_assert_eq(group_new(&c[i], 0, &g), -EINVAL);
}

/* ---- its data is gone ---- */

static void ruined(uint32_t epoch, double seconds) {
    led.reachable = false;
    led.there = (struct arbiter_record){.epoch = epoch, .leader.incarnation = 99};
    uint64_t until = rig.now_ns + S(seconds);
    hear(&led.last, ARBITER_RUINED, rig.now_ns);
    while (rig.now_ns < until && group_state(rig.g) != GROUP_CLOSED) {
        live(0.5, all, all);
        hear(&led.last, ARBITER_RUINED, rig.now_ns);
    }
}

static void assert_ruined(uint64_t grace_ns) {
    struct desired d;
    assert_state(GROUP_CLOSED);
    cr_assert_eq(group_outcome(rig.g), OUTCOME_FAILED);
    cr_assert(group_desired(rig.g, 2, &d));
    cr_assert_eq(d.kind, DESIRED_CLOSED, "the arbiter need not have it");
    cr_assert_eq(d.grace_ns, grace_ns);
    assert_has(d.reason, "data of this job is gone");
    cr_assert_eq(led.asked[ARBITER_CLOSE], 0);
}

Test(group_leadership, an_arbiter_without_data_for_five_seconds_ends_the_job) {
    struct group_config c = arbiter_config(2, 3);
    run(&c, 3);
    ruined(0, 4.5);
    assert_state(GROUP_RUNNING);
    ruined(0, 1);
    assert_ruined(S(5));
    c.rdzv.lease_ns = S(2); /* no longer than a lease */
    run(&c, 3);
    ruined(0, 2.5);
    assert_ruined(S(2));
}

Test(group_leadership, data_that_comes_back_in_time_changes_nothing) {
    run(AT(arbiter_config(2, 3)), 3);
    struct arbiter_record there = led.there;
    for (int i = 0; i < 3; i++) {
        ruined(0, 4);
        hear(&led.last, ARBITER_UNREACHABLE, rig.now_ns);
        led.there = there;
        led.reachable = true;
        hear(&led.last, ARBITER_OK, rig.now_ns);
        live(2, all, all);
    }
    assert_state(GROUP_RUNNING);
}

Test(group_leadership, an_old_answer_does_not_say_that_data_is_gone_now) {
    run(AT(arbiter_config(2, 3)), 3);
    ruined(0, 4.5);
    uint64_t asked_ns = rig.now_ns;
    rig.now_ns += S(2); /* a slow one: it may have come back since */
    hear(&led.last, ARBITER_RUINED, asked_ns);
    assert_state(GROUP_RUNNING);
}

Test(group_leadership, another_jobs_data_in_its_place_ends_the_job_at_once) {
    run(AT(arbiter_config(2, 3)), 3);
    ruined(1, 0);
    assert_ruined(0);
}

Test(group_leadership, an_outcome_that_can_be_put_down_nowhere_is_told_all_the_same) {
    run(AT(arbiter_config(2, 2)), 2);
    led.reachable = false;
    for (uint64_t node = 1; node <= 2; node++)
        say(node, NODE_FINISHED);
    assert_state(GROUP_CLOSED);
    cr_assert_eq(led.asked[ARBITER_CLOSE], 1);
    struct arbiter_request q = led.last;
    led.there = (struct arbiter_record){0};
    hear(&q, ARBITER_RUINED, rig.now_ns);
    struct desired d;
    cr_assert(group_desired(rig.g, 2, &d) && d.kind == DESIRED_START);
    rig.now_ns += S(5);
    hear(&q, ARBITER_RUINED, rig.now_ns);
    cr_assert(group_desired(rig.g, 2, &d) && d.kind == DESIRED_CLOSED);
    cr_assert_eq(d.outcome, OUTCOME_SUCCESS);
}

Test(group_leadership, a_leader_that_hears_too_few_rests_its_beat) {
    static const struct {
        uint32_t min;
        unsigned heard;
        bool rests;
    } cases[] = {
        {2, BIT(1) | BIT(2), false}, /* half of four is enough */
        {1, BIT(1), true},
        {3, BIT(1) | BIT(2), true}, /* below min */
        {3, BIT(1) | BIT(2) | BIT(3), false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        run(AT(arbiter_config(cases[i].min, 4)), 4);
        live(4, all, all); /* a leader as new as this one does not doubt yet */
        unsigned reads = led.asked[ARBITER_READ], beats = led.asked[ARBITER_BEAT];
        cr_assert_eq(reads, 0);
        live(2, all, cases[i].heard);
        cr_assert_eq(led.asked[ARBITER_READ], 0, "case %zu: not within 2.5 s", i);
        live(2.5, all, cases[i].heard);
        cr_assert_eq(led.asked[ARBITER_READ] > 0, cases[i].rests, "case %zu", i);
        beats = led.asked[ARBITER_BEAT];
        live(4, all, all);
        cr_assert_gt(led.asked[ARBITER_BEAT], beats, "case %zu: it moves again", i);
        assert_state(GROUP_RUNNING);
    }
}

Test(group_leadership, a_leader_that_never_had_a_group_does_not_rest) {
    begin_leader(AT(arbiter_config(3, 3)), true);
    join(1);
    live(60, all, 0);
    cr_assert(led.asked[ARBITER_READ] == 0 && led.asked[ARBITER_BEAT] == 61, "%u", led.asked[ARBITER_BEAT]);
}

/* Seconds from the silence of nodes 2 … n until the leader, alone, ends the job; below min. */
static double ends_after(uint64_t n, unsigned silent) {
    uint64_t since = rig.now_ns;
    for (uint64_t node = 2; node <= n; node++)
        if ((silent & BIT(node)) == 0)
            lose(node);
    for (int i = 0; i < 400 && group_state(rig.g) != GROUP_CLOSED; i++) {
        if (group_state(rig.g) == GROUP_STOPPING)
            say(1, NODE_STOPPED);
        live(0.25, BIT(1), BIT(1));
    }
    assert_state(GROUP_CLOSED);
    return (double)(rig.now_ns - since) / 1e9;
}

Test(group_leadership, a_leader_that_is_cut_off_with_too_few_lets_the_others_go_on_first) {
    static const struct {
        uint32_t min;
        unsigned silent;
        double from, to;
    } cases[] = {
        /* two or three of them may lead each other: long after all successors have acted */
        {2, BIT(2) | BIT(3), 2.5 + 12 + 6, 2.5 + 12 + 6 + 1.5},
        {2, BIT(2) | BIT(3) | BIT(4), 2.5 + 12 + 6, 2.5 + 12 + 6 + 1.5},
        /* one alone is too few as well, and who is gone goes nowhere */
        {2, BIT(2), 6, 8.5},
        {2, 0, 0, 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        run(AT(arbiter_config(cases[i].min, 4)), 4);
        live(10, all, all);
        double took = ends_after(4, cases[i].silent);
        cr_assert(took >= cases[i].from && took <= cases[i].to, "case %zu: %g s", i, took);
        cr_assert_eq(led.deposed, 0);
    }
}

Test(group_leadership, after_a_long_rest_nothing_is_formed_for_lease_and_margin) {
    for (int is_long = 0; is_long < 2; is_long++) {
        run(WITH(arbiter_config(3, 3), .rdzv.max_restarts = 3), 3);
        live(5, all, all);
        while (led.asked[ARBITER_READ] == 0)
            live(0.25, all, BIT(1));
        live(is_long ? 2.5 : 1, all, BIT(1));
        unsigned beats = led.asked[ARBITER_BEAT];
        while (led.asked[ARBITER_BEAT] == beats)
            live(0.25, all, all);
        uint64_t since = rig.now_ns;
        fails(3, FAILURE_SPAWN, 1);
        stopped();
        assert_state(is_long ? GROUP_GATHERING : GROUP_FORMING);
        while (group_state(rig.g) == GROUP_GATHERING)
            live(0.25, all, all);
        assert_state(GROUP_FORMING);
        if (is_long)
            cr_assert_eq(rig.now_ns, since + S(6), "after %g s", (double)(rig.now_ns - since) / 1e9);
    }
}

/* ---- deposed ---- */

Test(group_leadership, a_higher_epoch_or_a_closed_record_ends_this_leadership_for_good) {
    static const struct {
        struct arbiter_record there;
        bool deposed;
    } cases[] = {
        {{.epoch = 1, .leader.incarnation = 1}, false},
        {{.epoch = 2, .leader.incarnation = 3}, true},
        {{.epoch = 9, .leader.incarnation = 1}, true},
        {{.epoch = 1, .leader.incarnation = 1, .closed = true, .outcome = OUTCOME_FAILED}, true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        run(AT(arbiter_config(3, 3)), 3);
        led.there = cases[i].there;
        step((struct group_event){.kind = GROUP_EVENT_HIGHER_EPOCH, .epoch = 2});
        cr_assert_eq(led.asked[ARBITER_READ], 1, "who hears of it looks at once");
        cr_assert_eq(led.deposed, cases[i].deposed, "case %zu", i);
        if (led.deposed > 0) {
            const struct group_effect *e = &rig.u.effects[rig.u.n_effects - 1];
            cr_assert(e->kind == GROUP_EFFECT_DEPOSED && e->epoch == cases[i].there.epoch, "case %zu", i);
            cr_assert_eq(rig.u.deadline_ns, TIME_NEVER);
            size_t sent = rig.seen[GROUP_EFFECT_DESIRED];
            rig.now_ns += S(100);
            fails(3, FAILURE_EXIT, 1);
            renew(2);
            join(4);
            step((struct group_event){.kind = GROUP_EVENT_TIME});
            cr_assert(rig.seen[GROUP_EFFECT_DESIRED] == sent && rig.u.n_effects == 0);
        }
    }
}

Test(group_leadership, an_older_epoch_that_somebody_speaks_of_is_nothing) {
    begin_leader(WITH(arbiter_config(1, 1), .epoch = 3), true);
    step((struct group_event){.kind = GROUP_EVENT_HIGHER_EPOCH, .epoch = 3});
    cr_assert_eq(led.asked[ARBITER_READ], 0);
}

/* ---- the end ---- */

static void all_finish(uint64_t n) {
    for (uint64_t node = 1; node <= n; node++)
        say(node, NODE_FINISHED);
    assert_state(GROUP_CLOSED);
}

Test(group_leadership, the_end_is_told_when_the_arbiter_has_it) {
    run(AT(arbiter_config(2, 2)), 2);
    led.reachable = false;
    play("finished 1 2; is closed; closes 1");
    cr_assert(led.last.outcome == OUTCOME_SUCCESS && led.last.epoch == 1);
    play("gets 1 start; unanswered; gets 2 start; closes 1; sleep 0.25; closes 2");
    cr_assert_eq(led.last.kind, ARBITER_CLOSE);
    play("answered; sends 2; gets 1 closed; outcome success");
    cr_assert(told(1).outcome == OUTCOME_SUCCESS && entry(TIMELINE_CLOSED) != NULL);
    play("closed 1 2; done 1; deposed 0");
}

Test(group_leadership, its_own_close_is_not_taken_for_anothers) {
    run(AT(arbiter_config(2, 2)), 2);
    led.reachable = false;
    live(1, all, all); /* a beat is under way */
    struct arbiter_request beat = led.last;
    cr_assert_eq(beat.kind, ARBITER_BEAT);
    all_finish(2);
    struct arbiter_request asked = led.last;
    cr_assert_eq(asked.kind, ARBITER_CLOSE);
    led.there.closed = true;
    led.there.outcome = OUTCOME_SUCCESS;
    hear(&beat, ARBITER_OK, rig.now_ns);
    cr_assert_eq(led.deposed, 0);
    hear(&asked, ARBITER_OK, rig.now_ns);
    cr_assert_eq(led.deposed, 0);
    cr_assert_eq(told(2).kind, DESIRED_CLOSED);
}

Test(group_leadership, an_end_that_another_has_put_down_first_is_the_one_that_counts) {
    run(AT(arbiter_config(2, 2)), 2);
    led.there = (struct arbiter_record){.epoch = 2, .leader.incarnation = 2};
    /* nobody is told an outcome that is none */
    play("finished 1 2; deposed 1; gets 1 start");
}

Test(group_leadership, with_a_leader_file_the_end_is_told_when_the_leader_file_has_it) {
    begin_leader(WITH(config_of(2, 2), .leadership = LEADERSHIP_LEADER_FILE), false);
    touched(rig.now_ns);
    play("join 1 2; start; finished 1 2");
    const struct group_effect *e = effect(GROUP_EFFECT_TOUCH);
    cr_assert(e != NULL && e->outcome == OUTCOME_SUCCESS && told(1).kind == DESIRED_START);
    touched(rig.now_ns);
    size_t touches = rig.seen[GROUP_EFFECT_TOUCH];
    play("gets 1 closed; pass 10 all");
    cr_assert_eq(rig.seen[GROUP_EFFECT_TOUCH], touches, "nothing hangs on it any more");
}

Test(group_leadership, an_end_that_can_not_be_put_down_is_given_up_and_nobody_is_told_it) {
    run(AT(arbiter_config(2, 2)), 2);
    led.reachable = false;
    all_finish(2);
    uint64_t since = rig.now_ns;
    while (led.deposed == 0 && rig.now_ns < since + S(200)) {
        struct arbiter_request asked = led.last;
        rig.now_ns += S(0.25);
        hear(&asked, ARBITER_UNREACHABLE, rig.now_ns);
    }
    cr_assert_eq(rig.now_ns - since, S(90), "after %g s", (double)(rig.now_ns - since) / 1e9);
    const struct group_effect *e = effect(GROUP_EFFECT_DEPOSED);
    cr_assert(e != NULL && e->epoch == 1);
    assert_has(effect(GROUP_EFFECT_NOTICE)->reason, "could not be recorded");
    cr_assert_eq(group_outcome(rig.g), OUTCOME_NONE);
    cr_assert_eq(rig.seen[GROUP_EFFECT_DONE], 0);
}

/* ---- naming ---- */

static void join_on(uint64_t node, const char *host) {
    struct node_info info = info_of(node);
    (void)snprintf(info.host, sizeof info.host, "%s", host);
    info.listener_port = (uint16_t)(100 + node);
    (void)snprintf(info.addr, sizeof info.addr, "10.0.0.%d", (int)node);
    join_info(&info);
}

Test(group_leadership, successors_are_three_reached_members_of_other_hosts_if_possible) {
    static const struct {
        const char *hosts; /* of nodes 1 …, one letter each */
        unsigned reached;
        const char *named;
    } cases[] = {
        {"abcde", 0xfe, "2.3.4@1"},
        {"aabbc", 0xfe, "3.5.2@1"},
        {"aaa", 0xfe, "2.3@1"},
        {"abb", 0xfe, "2.3@1"},
        {"abcde", BIT(1) | BIT(3) | BIT(5), "3.5@1"},
        {"abc", BIT(1), "@1"},
        {"a", BIT(1), "@1"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint32_t n = (uint32_t)strlen(cases[i].hosts);
        begin_leader(WITH(arbiter_config(n, n + 1), .rdzv.rank_order = RANK_ORDER_JOIN, .rdzv.last_call_ns = S(1)),
                     true);
        for (uint64_t node = 1; node <= n; node++) {
            join_on(node, (char[]){cases[i].hosts[node - 1], '\0'});
            if ((cases[i].reached & BIT(node)) != 0)
                probe(node, PROBE_ALIVE);
        }
        live(1, all, all);
        assert_state(GROUP_FORMING);
        cr_assert_str_eq(named(), cases[i].named, "case %zu", i);
    }
}

Test(group_leadership, a_member_whose_listener_is_reached_later_is_named_then_and_all_members_hear_it) {
    begin_leader(AT(arbiter_config(3, 3)), true);
    for (uint64_t node = 1; node <= 3; node++)
        join_on(node, (char[]){(char)('a' + node), '\0'});
    play("start; named @1; alive 3; named 3@1");
    cr_assert_eq(count(GROUP_EFFECT_NAME, 0), 3);
    const struct rdzv_peer *p = &group_successors(rig.g)->list[0];
    cr_assert(p->port == 103 && strcmp(p->addr, "10.0.0.3") == 0);
    cr_assert(group_is_successor(rig.g, 3) && !group_is_successor(rig.g, 2));
    /* not the leader's own; names may be added freely */
    play("alive 2; named 3.2@1; alive 1; named 3.2@1; claims 0");
}

Test(group_leadership, a_member_whose_listener_is_reached_while_it_is_disconnected_is_named_when_it_is_back) {
    begin_leader(AT(arbiter_config(3, 3)), true);
    for (uint64_t node = 1; node <= 3; node++)
        join_on(node, (char[]){(char)('a' + node), '\0'});
    play("start; disconnect 3; alive 3; named @1");
    join_on(3, "d");
    play("named 3@1");
}

Test(group_leadership, without_an_arbiter_nobody_is_named) {
    bring_to(AT(config_of(2, 2)), 2, GROUP_RUNNING);
    cr_assert_eq(group_successors(rig.g)->n, 0);
    cr_assert_eq(rig.seen[GROUP_EFFECT_NAME], 0);
}

Test(group_leadership, the_named_stay_named_when_the_group_re_forms) {
    run(WITH(arbiter_config(5, 5), .rdzv.max_restarts = 2), 5);
    play("named 2.3.4@1; fails 5 oom; all-stopped; is forming; named 2.3.4@1; claims 0; generation 1.2");
}

/* ---- dropping ---- */

Test(group_leadership, a_successor_that_is_gone_in_time_or_has_left_is_dropped_freely) {
    for (uint64_t node = 2; node <= 3; node++) {
        for (int leaves = 0; leaves < 2; leaves++) {
            run(AT(arbiter_config(2, 5)), 5);
            if (leaves)
                step((struct group_event){.kind = GROUP_EVENT_LEAVE, .node = node});
            else
                lose(node);
            stopped();
            assert_state(GROUP_FORMING);
            assert_generation(1, 2);
            cr_assert_eq(led.asked[ARBITER_CLAIM], 0);
            cr_assert_str_eq(named(), node == 2 ? "3.4.5@1" : "2.4.5@1", "%s", named());
        }
    }
}

/* Node 3, the second successor, might have claimed; the others have stopped. */
static void doubt(const struct group_config *c, bool gone_late) {
    run(c, 4);
    live(5, all, all);
    if (gone_late) {
        live(5, all, all & ~BIT(3));
        led.reachable = false;
        lose(3);
    } else {
        live(5.75, all & ~BIT(3), all);
        led.reachable = false;
        live(0.5, all & ~BIT(3), all);
    }
    assert_state(GROUP_STOPPING);
    cr_assert_eq(led.asked[ARBITER_CLAIM], 0);
    stopped();
    assert_state(GROUP_GATHERING);
    cr_assert(led.asked[ARBITER_CLAIM] == 1 && led.last.kind == ARBITER_CLAIM && led.last.epoch == 2);
}

Test(group_leadership, a_successor_that_may_have_claimed_is_dropped_only_by_a_claim) {
    for (int gone_late = 0; gone_late < 2; gone_late++) {
        doubt(AT(arbiter_config(2, 4)), gone_late);
        struct arbiter_request asked = led.last;
        live(3, all & ~BIT(3), all);
        assert_state(GROUP_GATHERING);
        cr_assert_eq(led.asked[ARBITER_CLAIM], 1, "one at a time");
        led.there = (struct arbiter_record){.epoch = 2, .leader = asked.leader};
        hear(&asked, ARBITER_OK, rig.now_ns);
        assert_state(GROUP_FORMING);
        assert_generation(2, 1);
        cr_assert_str_eq(members(), "1 2 4");
        cr_assert_str_eq(named(), "2.4@2");
        cr_assert_eq(told(2).epoch, 2);
        renew(4);
        cr_assert_eq(lease()->epoch, 2);
    }
}

Test(group_leadership, a_claim_that_is_lost_deposes) {
    doubt(AT(arbiter_config(2, 4)), false);
    led.there = (struct arbiter_record){.epoch = 2, .leader.incarnation = 3};
    hear(&led.last, ARBITER_LOST, rig.now_ns);
    cr_assert_eq(led.deposed, 1);
    cr_assert_eq(effect(GROUP_EFFECT_DEPOSED)->epoch, 2);
}

Test(group_leadership, a_claim_without_an_answer_is_asked_again_and_nothing_formed_meanwhile) {
    doubt(AT(arbiter_config(2, 4)), false);
    for (unsigned i = 1; i <= 3; i++) {
        struct arbiter_request asked = led.last;
        cr_assert(asked.kind == ARBITER_CLAIM && asked.epoch == 2);
        hear(&asked, ARBITER_UNREACHABLE, rig.now_ns);
        assert_state(GROUP_GATHERING);
        cr_assert_eq(led.asked[ARBITER_CLAIM], i);
        rig.now_ns += S(0.75);
        pass(0, all);
        step((struct group_event){.kind = GROUP_EVENT_TIME});
        cr_assert_eq(led.asked[ARBITER_CLAIM], i);
        rig.now_ns += S(0.25);
        step((struct group_event){.kind = GROUP_EVENT_TIME});
        cr_assert_eq(led.asked[ARBITER_CLAIM], i + 1);
    }
}

Test(group_leadership, a_claim_whose_answer_was_lost_is_found_and_asked_again) {
    struct group_config c = arbiter_config(2, 4);
    doubt(&c, false);
    hear(&led.last, ARBITER_UNREACHABLE, rig.now_ns);
    led.there = (struct arbiter_record){.epoch = 2, .leader = c.self};
    live(1, all & ~BIT(3), all);
    hear(&(struct arbiter_request){.kind = ARBITER_BEAT, .epoch = 1, .leader = c.self}, ARBITER_OK, rig.now_ns);
    cr_assert_eq(led.deposed, 0, "it is its own");
    cr_assert_eq(led.asked[ARBITER_CLAIM], 2);
    struct arbiter_request claim = {.kind = ARBITER_CLAIM, .epoch = 2, .leader = c.self};
    hear(&claim, ARBITER_OK, rig.now_ns);
    assert_state(GROUP_FORMING);
    assert_generation(2, 1);
}

Test(group_leadership, an_excluded_successor_is_dropped_by_a_claim_too) {
    run(AT(arbiter_config(2, 4)), 4);
    struct command command = {.kind = COMMAND_EXCLUDE, .node = "h2"};
    step((struct group_event){.kind = GROUP_EVENT_COMMAND, .command = &command});
    play("all-stopped; claims 1; is forming; generation 2.1; named 3.4@2");
}

/* ---- a silent first successor ---- */

Test(group_leadership, a_silent_first_successor_costs_nobody_else_the_lease) {
    run(AT(arbiter_config(2, 4)), 4);
    play("live 5 all");
    led.worst_ns = UINT64_MAX;
    /* half a lease later the group runs on, and at last node 2 is lost like any other */
    play("live 2.25 134; claims 0; live 0.5 134; claims 1; named 3.4@2; is running; generation 1.1");
    cr_assert_eq(told(3).epoch, 2);
    play("live 3 134");
    cr_assert_gt(led.worst_ns, S(2), "%g", (double)led.worst_ns / 1e9);
    play("is running; live 0.5 134; is stopping; all-stopped; is forming; generation 2.1; claims 1; deposed 0");
}

Test(group_leadership, a_claim_around_a_silent_first_successor_tells_everybody_and_counts_as_naming) {
    run(AT(arbiter_config(2, 3)), 3);
    join(4);
    led.reachable = false;
    live(2.75, all & ~BIT(2), all & ~BIT(2));
    cr_assert(led.last.kind == ARBITER_CLAIM && led.last.epoch == 2);
    assert_validity(3, 2.25);
    led.there.epoch = 2;
    hear(&led.last, ARBITER_OK, rig.now_ns);
    cr_assert_eq(count(GROUP_EFFECT_NAME, 0), 4, "also who waits hears of the new epoch");
    assert_validity(3, 5);
    uint64_t named_ns = rig.now_ns;
    rig.now_ns += S(2);
    echo(3, 1, rig.now_ns);
    assert_validity(3, 3); /* the old epoch's echo does not count */
    echo(2, 2, rig.now_ns);
    assert_validity(3, 3); /* nor the old first's */
    echo(3, 2, named_ns + S(1));
    assert_validity(3, 4);
}

Test(group_leadership, nothing_is_formed_while_a_claim_of_its_own_is_under_way) {
    struct group_config c = *WITH(arbiter_config(2, 4), .rdzv.max_restarts = 1);
    run(&c, 4);
    led.reachable = false;
    live(2.75, all & ~BIT(2), all & ~BIT(2));
    struct arbiter_request claim = led.last;
    cr_assert_eq(claim.kind, ARBITER_CLAIM);
    fails(4, FAILURE_OOM, 1);
    stopped(); /* the first successor too: it is back */
    live(1, all, all);
    assert_state(GROUP_GATHERING);
    led.there = (struct arbiter_record){.epoch = 2, .leader = c.self};
    hear(&claim, ARBITER_OK, rig.now_ns);
    assert_state(GROUP_FORMING);
    assert_generation(2, 1);
}

Test(group_leadership, a_leader_that_hears_nobody_newer_claims_nothing) {
    static const struct {
        uint32_t min;
        unsigned heard;
        bool claims;
    } cases[] = {
        {1, BIT(1) | BIT(3), true},  /* half of the group */
        {1, BIT(1), false},          /* less */
        {3, BIT(1) | BIT(3), false}, /* less than min */
        {3, BIT(1) | BIT(3) | BIT(4), true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        run(AT(arbiter_config(cases[i].min, 4)), 4);
        live(5, all, all);
        live(5, all, cases[i].heard);
        cr_assert_eq(led.asked[ARBITER_CLAIM] > 0, cases[i].claims, "case %zu", i);
    }
}

/* ---- a new leader ---- */

static struct handover_member handover_of[] = {
    {.incarnation = 3, .addr = "10.0.0.3", .port = 103, .host = "h3", .started = true},
    {.incarnation = 1, .addr = "10.0.0.1", .port = 101, .host = "h1", .started = true},
    {.incarnation = 4, .addr = "10.0.0.4", .port = 104, .host = "h4", .started = true},
    {.incarnation = 2, .addr = "10.0.0.2", .port = 102, .host = "h2", .started = true},
};

/* Leads epoch 3 after node 3, with what it left of generation 2.5. */
static void succeed(struct group_config c, double absent) {
    struct handover e = {.epoch = 2,
                         .formed = {2, 5},
                         .started = {2, 5},
                         .restarts_used = 2,
                         .losses = 1,
                         .log_nonce = 77,
                         .history = {.phase_ns = {S(2), S(1), S(30)}, .incidents = {[INCIDENT_WORKER] = 4}},
                         .n_order = 4,
                         .n_members = 4,
                         .members = handover_of};
    c.epoch = 3;
    c.rdzv.max_restarts = 9;
    c.handover = &e;
    c.absent_until_ns = S(1000 + absent);
    begin_leader(&c, true);
}

static void back(uint64_t node, enum node_state state, bool finished) {
    join_as(
        node, -1,
        &(struct report){
            .state = state, .generation = {2, 5}, .finished = finished, .restarts_used = 2, .losses = 1, .epoch = 3});
}

Test(group_leadership, a_new_leader_awaits_the_members_in_their_order_and_goes_on_with_the_counters) {
    succeed(arbiter_config(2, 4), 6);
    for (uint64_t node = 1; node <= 4; node++)
        cr_assert(group_node_info(rig.g, node) != NULL && rig.seen[GROUP_EFFECT_PROBE] == 4);
    back(1, NODE_STOPPED, false);
    back(2, NODE_STOPPED, false);
    back(4, NODE_RUNNING, false);
    join(5);
    live(2, all, all);
    assert_state(GROUP_GATHERING); /* 3 is not resolved, 4 not stopped */
    cr_assert_eq(told(4).kind, DESIRED_IDLE);
    probe(3, PROBE_UNKNOWN);
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 5);
    probe(3, PROBE_GONE);
    cr_assert_eq(count(GROUP_EFFECT_FORGET, 3), 1);
    assert_state(GROUP_GATHERING);
    report(4, (struct report){.state = NODE_STOPPED, .generation = {2, 5}});
    assert_state(GROUP_FORMING);
    assert_generation(3, 1);
    cr_assert_str_eq(members(), "5 1 4 2");
    open_store();
    struct desired d = told(1);
    cr_assert(d.form.restarts_used == 2 && d.form.losses == 2 && d.form.log_nonce == 77 && d.form.node_rank == 1 &&
              d.restarts_used == 2 && d.epoch == 3);
}

Test(group_leadership, a_new_leader_with_too_few_waits_for_spares_of_which_nobody_told_it) {
    for (int comes = 0; comes < 2; comes++) {
        succeed(arbiter_config(4, 4), 6);
        unsigned there = BIT(1) | BIT(2) | BIT(4);
        for (uint64_t node = 1; node <= 4; node++)
            if ((there & BIT(node)) != 0)
                back(node, NODE_STOPPED, false);
        lose(3);
        live(5.75, there, there);
        assert_state(GROUP_GATHERING);
        if (comes)
            join(5);
        live(0.25, there | BIT(5), all);
        assert_state(comes ? GROUP_FORMING : GROUP_CLOSED);
    }
}

Test(group_leadership, who_does_not_come_back_counts_as_lost_when_the_old_leases_are_over) {
    static const struct {
        double absent, lost;
    } cases[] = {{6, 6}, {61.25, 61.25}, {0, 1}, {-100, 1}}; /* never before a margin */
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        succeed(arbiter_config(2, 4), cases[i].absent);
        for (uint64_t node = 1; node <= 3; node++)
            back(node, NODE_STOPPED, false);
        live(cases[i].lost - 0.25, BIT(1) | BIT(2) | BIT(3), all);
        assert_state(GROUP_GATHERING);
        live(0.25, BIT(1) | BIT(2) | BIT(3), all);
        assert_state(GROUP_FORMING);
        cr_assert_str_eq(members(), "3 1 2");
        cr_assert_eq(told(1).losses, 2, "case %zu", i);
    }
}

Test(group_leadership, a_member_that_was_back_counts_by_its_own_renewals) {
    succeed(arbiter_config(2, 4), 61);
    for (uint64_t node = 1; node <= 4; node++)
        back(node, node == 4 ? NODE_RUNNING : NODE_STOPPED, false);
    play("live 5.75 123; is gathering; live 0.25 123; is forming");
}

Test(group_leadership, nothing_is_formed_before_all_older_leases_are_over) {
    begin_leader(WITH(arbiter_config(2, 2), .epoch = 2, .not_before_ns = S(1061.25)), true);
    play("join 1 2; live 61 all; is gathering; live 0.25 all; is forming; generation 2.1");
}

Test(group_leadership, a_group_whose_members_all_had_finished_is_closed_and_not_run_again) {
    for (uint64_t unfinished = 0; unfinished <= 4; unfinished++) {
        succeed(arbiter_config(2, 4), 6);
        for (uint64_t node = 1; node <= 4; node++) {
            assert_state(GROUP_GATHERING);
            back(node, node % 2 == 0 ? NODE_STOPPED : NODE_FINISHED, node != unfinished);
        }
        if (unfinished == 0) {
            assert_state(GROUP_CLOSED);
            cr_assert_eq(group_outcome(rig.g), OUTCOME_SUCCESS);
            cr_assert(led.there.closed && led.there.outcome == OUTCOME_SUCCESS);
        } else {
            assert_state(GROUP_GATHERING);
            for (uint64_t node = 1; node <= 4; node++)
                report(node,
                       (struct report){.state = NODE_STOPPED, .generation = {2, 5}, .finished = node != unfinished});
            assert_state(GROUP_FORMING);
        }
    }
}

Test(group_leadership, a_new_leader_goes_on_counting_seconds_and_incidents) {
    struct group_config c = *WITH(arbiter_config(2, 4), .job_ns = S(100));
    succeed(c, 6);
    struct job_history h;
    group_history(rig.g, rig.now_ns, &h);
    cr_assert(h.phase_ns[JOB_PHASE_GATHERING] == S(2) && h.phase_ns[JOB_PHASE_FORMING] == S(1));
    cr_assert_eq(h.phase_ns[JOB_PHASE_RUNNING], S(97), "the group ran on, without a leader");
    cr_assert_eq(h.incidents[INCIDENT_WORKER], 4);
}

/* Node 3 led until now; the other three start again. */
static void start_without_old_leader(struct group_config c) {
    succeed(c, 6);
    for (uint64_t node = 1; node <= 4; node++)
        if (node != 3)
            back(node, NODE_STOPPED, false);
    probe(3, PROBE_GONE);
    start();
}

Test(group_leadership, the_loss_of_a_leader_is_an_incident_of_its_successor) {
    struct group_config c = *WITH(arbiter_config(2, 4), .old_leader = 3, .lost_ns = S(999.9));
    start_without_old_leader(c);
    const struct timeline_entry *e = entry(TIMELINE_INCIDENT);
    cr_assert_not_null(e);
    const struct incident *i = &e->incident;
    cr_assert(i->class == INCIDENT_NODE_LOST && i->action == INCIDENT_SHRINK && i->n == 5 && i->left_out);
    cr_assert(generation_compare(i->generation, (struct generation){2, 5}) == 0 && i->symptom_ns == S(999.9));
    cr_assert_str_eq(i->failure.node, "h3");
    assert_has(i->cause, "h3");
    cr_assert(i->old_nodes == 4 && i->n_nodes == 3 && i->began_ns == 0);
}

Test(group_leadership, a_leader_that_left_said_so) {
    struct group_config c =
        *WITH(arbiter_config(2, 4), .old_leader = 3, .stop_reason = "node h3 was stopped by SIGTERM");
    start_without_old_leader(c);
    const struct incident *i = &entry(TIMELINE_INCIDENT)->incident;
    cr_assert(i->class == INCIDENT_NODE_LEFT && strcmp(i->cause, "node h3 was stopped by SIGTERM") == 0, "%s",
              i->cause);
}

Test(group_leadership, what_a_successor_is_told_is_what_it_takes_to_go_on) {
    begin_leader(WITH(arbiter_config(3, 3), .rdzv.max_restarts = 3, .log_nonce = 99), true);
    join_on(1, "z");
    join_on(2, "b");
    join_on(3, "a");
    start();
    pass(1, 7 << 1);
    fails(2, FAILURE_OOM, 1);
    stopped();
    struct handover e;
    group_handover(rig.g, &e);
    cr_assert(e.epoch == 1 && e.restarts_used == 1 && e.losses == 0 && e.log_nonce == 99);
    cr_assert(generation_compare(e.formed, (struct generation){1, 2}) == 0 &&
              generation_compare(e.started, (struct generation){1, 1}) == 0);
    cr_assert(e.n_members == 3 && e.n_order == 3);
    static const uint64_t order[] = {1, 3, 2};
    for (size_t i = 0; i < 3; i++) {
        const struct handover_member *m = &e.members[i];
        cr_assert(m->incarnation == order[i] && m->port == 100 + order[i] && m->started);
        cr_assert_eq(m->addr[7] - '0', (int)order[i]);
    }
    cr_assert_str_eq(e.members[1].host, "a");
    struct job_history h;
    group_history(rig.g, rig.now_ns, &h);
    cr_assert(h.phase_ns[JOB_PHASE_RUNNING] > 0 && memcmp(&h, &e.history, sizeof h) == 0);
    handover_fini(&e);
}
