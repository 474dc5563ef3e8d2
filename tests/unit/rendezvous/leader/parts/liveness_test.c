/* Who is heard, who is probed, and who is lost, without a group. A lease of 8 s and a margin of 2 s: silent after 4 s,
 * lost after 10 s. */
#include "rendezvous/leader/parts/liveness.h"

#include "rig/unit.h"

#define MS(x) ((uint64_t)(x)*NS_PER_MS)
#define S(x) ((uint64_t)(x)*NS_PER_S)

struct job {
    struct group_config c;
    struct roster r;
    struct liveness l;
};

static void begin(struct job *j) {
    *j = (struct job){0};
    group_config_default(&j->c);
    j->c.rdzv.lease_ns = S(8);
    j->c.rdzv.margin_ns = S(2);
    j->c.rdzv.hold_ns = 0;
    roster_init(&j->r, 1);
    liveness_init(&j->l, &j->c);
}

/* A node that is heard now: a member, or one that waits for a place. */
static struct node *add(struct job *j, uint64_t incarnation, bool member, uint64_t now_ns) {
    struct node_info info = {.incarnation = incarnation, .nproc = 1, .node_rank = -1};
    (void)snprintf(info.host, sizeof info.host, "h%d", (int)incarnation);
    struct node *n = roster_add(&j->r, &info);
    n->joined_ns = 1;
    n->connected = true;
    n->is_member = member;
    cr_assert_not(liveness_contact(&j->l, n, now_ns), "it was not watched");
    return n;
}

/* Probed at once or not. */
static void watch(struct job *j, struct node *n, uint64_t now_ns) {
    bool probed = liveness_watch(&j->l, n, now_ns);
    cr_assert_eq(probed, n->probing);
}

/* What a look says about the nodes, in its order, written "lose 2, probe 3"; valid until the next call. */
static const char *look(struct job *j, uint64_t now_ns) {
    static const char *const names[] = {[LIVENESS_PROBE] = "probe", [LIVENESS_LOSE] = "lose", [LIVENESS_HOLD] = "hold"};
    static char text[4096];
    int at = 0;
    struct liveness_scan look;
    struct node *n;
    text[0] = '\0';
    if (!liveness_scan_begin(&j->l, &look, now_ns))
        return "not due";
    for (;;) {
        enum liveness_todo todo = liveness_scan_next(&j->l, &look, now_ns, &n);
        if (todo == LIVENESS_DONE)
            return text;
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s %d", at == 0 ? "" : ", ", names[todo],
                       (int)n->info.incarnation);
        if (todo == LIVENESS_LOSE)
            roster_remove(&j->r, n);
    }
}

static struct job job;

static void init(void) { begin(&job); }
static void fini(void) { roster_fini(&job.r); }
TestSuite(liveness, .init = init, .fini = fini);

Test(liveness, a_node_is_silent_after_half_a_lease_and_the_longest_silent_comes_first) {
    struct node *a = add(&job, 1, true, S(10)), *b = add(&job, 2, true, S(11));
    cr_assert(liveness_contact(&job.l, a, S(12)) == false && a->contact_ns == S(12));
    cr_assert_eq(liveness_deadline(&job.l), S(15) + 1);
    cr_assert_null(liveness_silent(&job.l, S(15)));
    cr_assert_eq(liveness_silent(&job.l, S(15) + 1), b);
    cr_assert(liveness_watch(&job.l, b, S(15) + 1), "a member is probed at once");
    cr_assert_null(liveness_silent(&job.l, S(15) + 1), "it is watched now, and the other is fresh");
    cr_assert(liveness_contact(&job.l, b, S(16)) && !b->watched && b->probe_ns == TIME_NEVER);
}

Test(liveness, probes_that_say_nothing_are_repeated_ever_more_rarely_up_to_a_bound) {
    struct node *n = add(&job, 1, true, S(10));
    uint64_t now_ns = S(15);
    cr_assert(liveness_watch(&job.l, n, now_ns));
    static const uint64_t waits_ms[] = {2, 4, 8, 16, 32, 64, 128, 200, 200, 200};
    for (size_t i = 0; i < sizeof waits_ms / sizeof *waits_ms; i++) {
        cr_assert_eq(liveness_on_probe(&job.l, n, PROBE_UNKNOWN, now_ns), LIVENESS_PROBE_NOTHING);
        cr_assert_eq(liveness_deadline(&job.l), now_ns + MS(waits_ms[i]), "probe %zu", i);
        now_ns += MS(waits_ms[i]);
        cr_assert_str_eq(look(&job, now_ns - 1), "not due");
        cr_assert_str_eq(look(&job, now_ns), "probe 1");
    }
    cr_assert_str_eq(look(&job, S(20) - 1), "not due", "one is under way: nothing is due but the loss");
}

Test(liveness, a_probe_under_way_is_not_sent_again) {
    struct node *n = add(&job, 1, true, S(10));
    cr_assert(liveness_watch(&job.l, n, S(15)));
    n->connected = true;
    (void)liveness_contact(&job.l, n, S(16));
    n->connected = false;
    cr_assert_not(liveness_watch(&job.l, n, S(17)), "the first has not come back");
    (void)liveness_on_probe(&job.l, n, PROBE_UNKNOWN, S(17));
    cr_assert_eq(n->probe_ns, S(17) + MS(2), "with the shortest wait");
}

Test(liveness, refused_means_gone_only_where_the_listener_was_reached_before_and_nothing_is_heard) {
    struct node *n = add(&job, 1, true, S(10));
    cr_assert_eq(liveness_on_probe(&job.l, n, PROBE_GONE, S(11)), LIVENESS_PROBE_NOTHING);
    cr_assert(liveness_watch(&job.l, n, S(15)));
    cr_assert_eq(liveness_on_probe(&job.l, n, PROBE_GONE, S(15)), LIVENESS_PROBE_NOTHING, "a firewall, perhaps");
    cr_assert_eq(liveness_on_probe(&job.l, n, PROBE_ALIVE, S(15)), LIVENESS_PROBE_NOTHING);
    cr_assert_eq(liveness_on_probe(&job.l, n, PROBE_GONE, S(15)), LIVENESS_PROBE_GONE);
    (void)liveness_contact(&job.l, n, S(16));
    cr_assert_eq(liveness_on_probe(&job.l, n, PROBE_GONE, S(16)), LIVENESS_PROBE_NOTHING, "it is heard");
}

Test(liveness, the_first_answer_of_a_heard_nodes_listener_is_news) {
    struct node *n = add(&job, 1, true, S(10));
    cr_assert_eq(liveness_on_probe(&job.l, n, PROBE_UNKNOWN, S(11)), LIVENESS_PROBE_NOTHING);
    cr_assert_eq(liveness_on_probe(&job.l, n, PROBE_ALIVE, S(11)), LIVENESS_PROBE_REACHED);
    cr_assert_eq(liveness_on_probe(&job.l, n, PROBE_ALIVE, S(11)), LIVENESS_PROBE_NOTHING);
}

Test(liveness, nodes_that_wait_for_a_place_share_a_rate_of_probes) {
    job.c.waiter_probe_ns = MS(10);
    size_t probed = 0;
    for (uint64_t i = 1; i <= 20; i++)
        probed += liveness_watch(&job.l, add(&job, i, false, S(10)), S(15));
    cr_assert_eq(probed, 16, "a burst");
    cr_assert(liveness_watch(&job.l, add(&job, 21, true, S(10)), S(15)), "a member does not wait for them");
    cr_assert_str_eq(look(&job, S(15)), "not due");
    cr_assert_str_eq(look(&job, S(15) + MS(10)), "probe 17");
    cr_assert_str_eq(look(&job, S(15) + MS(30)), "probe 18, probe 19");
}

Test(liveness, an_inherited_node_is_probed_with_the_first_look_and_lost_when_the_old_leases_are_over) {
    struct node *n = roster_add(&job.r, &(struct node_info){.incarnation = 1});
    n->lost_at_ns = S(13);
    n->reached = true;
    liveness_inherit(&job.l, n, S(10));
    cr_assert_str_eq(look(&job, S(10)), "probe 1");
    cr_assert_eq(liveness_deadline(&job.l), S(13));
    cr_assert_str_eq(look(&job, S(13)), "lose 1");
}

Test(liveness, a_crowd_that_waits_for_a_place_is_lost_bit_by_bit_and_costs_members_nothing) {
    for (uint64_t i = 1; i <= 300; i++)
        watch(&job, add(&job, i, false, S(10)), S(15));
    cr_assert(liveness_watch(&job.l, add(&job, 999, true, S(10)), S(15)));
    (void)look(&job, S(20));
    cr_assert_eq(job.r.n, 301 - 128 - 1, "128 of them, and the member behind them all");
    cr_assert_null(roster_find(&job.r, 999));
    uint64_t next_ns = liveness_deadline(&job.l);
    cr_assert(next_ns > S(20) + MS(1) && next_ns < S(20) + MS(2), "a while that grows with their number");
    (void)look(&job, next_ns);
    cr_assert_eq(job.r.n, 301 - 2 * 128 - 1);
}
