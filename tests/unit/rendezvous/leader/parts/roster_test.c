/* The nodes of a job, and what is counted of them, without a group. */
#include "rendezvous/leader/parts/roster.h"

#include "rig/unit.h"

static struct node_info info_of(uint64_t incarnation, const char *host) {
    struct node_info info = {.incarnation = incarnation, .nproc = 1, .node_rank = -1};
    (void)snprintf(info.host, sizeof info.host, "%s", host);
    return info;
}

static struct node *add(struct roster *r, uint64_t incarnation, const char *host) {
    return roster_add(r, AT(info_of(incarnation, host)));
}

/* Whether a node may be let in; `for_now` as it comes back. */
static bool refuses(struct roster *r, const struct group_config *c, const struct node_info *info, bool *for_now) {
    bool now;
    const char *why = roster_refusal(r, c, info, for_now == NULL ? &now : for_now);
    return why != NULL;
}

static struct group_config config_of(uint32_t min, uint32_t max) {
    struct group_config c;
    group_config_default(&c);
    c.rdzv.min_nodes = min;
    c.rdzv.max_nodes = max;
    return c;
}

static struct roster nodes; /* of a test that has one; ended with it */

static void finish(void) {
    if (nodes.nodes.next != NULL)
        roster_fini(&nodes);
}

TestSuite(roster, .fini = finish);

Test(roster, nodes_stand_as_they_came_and_a_number_is_given_once) {
    roster_init(&nodes, 1);
    cr_assert_null(roster_find(&nodes, 0));
    (void)add(&nodes, 7, "a");
    struct node *b = add(&nodes, 5, "b");
    (void)add(&nodes, 6, "c");
    cr_assert(nodes.n == 3 && roster_find(&nodes, 5) == b && b->join_order == 2);
    roster_remove(&nodes, b);
    cr_assert(nodes.n == 2 && roster_find(&nodes, 5) == NULL);
    cr_assert_eq(add(&nodes, 5, "b")->join_order, 4, "it comes again behind the others");
    static const uint64_t order[] = {7, 6, 5};
    size_t i = 0;
    LIST_FOR_EACH(struct node, n, &nodes.nodes, by_all)
        cr_assert_eq(n->info.incarnation, order[i++]);
    cr_assert_eq(i, 3);
}

static void set_domain(struct node *n, const char *domain) {
    (void)snprintf(n->report.domain, sizeof n->report.domain, "%s", domain);
    roster_count(&nodes, n, 1u << TALLY_CANDIDATE | (unsigned)(domain[0] == '\0') << TALLY_NO_DOMAIN);
}

Test(roster, whole_units_of_one_domain_are_usable) {
    roster_init(&nodes, 1);
    nodes.unit = 2;
    static const char *const domains[] = {"x", "y", "x", "y", "x", "z"};
    static const size_t usable[] = {0, 0, 2, 4, 4, 4};
    struct node *added[6];
    for (uint64_t i = 0; i < 6; i++) {
        set_domain(added[i] = add(&nodes, i + 1, "h"), domains[i]);
        cr_assert_eq(roster_usable(&nodes, TALLY_CANDIDATE), usable[i], "node %d", (int)i);
    }
    cr_assert(roster_has_domains(&nodes) && nodes.domains.len == 3);
    set_domain(added[5], "x");
    cr_assert(roster_usable(&nodes, TALLY_CANDIDATE) == 6 && nodes.domains.len == 2, "it moves");
    set_domain(added[5], "");
    cr_assert(!roster_has_domains(&nodes) && roster_usable(&nodes, TALLY_CANDIDATE) == 6, "they count alone");
    roster_remove(&nodes, added[5]);
    cr_assert(roster_has_domains(&nodes) && roster_usable(&nodes, TALLY_CANDIDATE) == 4);
    roster_count(&nodes, added[1], 0);
    cr_assert_eq(roster_usable(&nodes, TALLY_CANDIDATE), 2);
    for (int i = 0; i < 5; i++)
        roster_remove(&nodes, added[i]);
    cr_assert(nodes.whole[TALLY_CANDIDATE] == 0 && nodes.domains.len == 0);
}

Test(roster, a_full_job_lets_nobody_in) {
    struct group_config c = config_of(1, 4);
    roster_init(&nodes, 1);
    struct node_info info = info_of(1, "a");
    nodes.n = RDZV_NODES_MAX - 1;
    cr_assert_not(refuses(&nodes, &c, &info, NULL));
    nodes.n = RDZV_NODES_MAX;
    cr_assert(refuses(&nodes, &c, &info, NULL));
}

Test(roster, a_second_agent_of_a_host_has_a_name_of_its_own_while_it_is_a_member) {
    struct node n = {.info = info_of(1, "h"), .is_member = true};
    char name[RDZV_HOST_MAX];
    node_name(&n, name);
    cr_assert_str_eq(name, "h");
    n.place.host_index = 1;
    node_name(&n, name);
    cr_assert_str_eq(name, "h-2");
    n.is_member = false;
    node_name(&n, name);
    cr_assert_str_eq(name, "h");
    memset(n.info.host, 'x', sizeof n.info.host - 1);
    n.is_member = true;
    n.place.host_index = 99;
    node_name(&n, name);
    cr_assert_str_eq(name + strlen(name) - 4, "-100", "a long name leaves room for the number");
}

Test(roster, what_keeps_a_node_from_the_next_group) {
    struct node n = {.report.state = NODE_JOINED};
    cr_assert(node_may_take_part(&n) && node_has_stopped(&n));
    static const struct {
        enum node_state state;
        bool stopped, may;
    } states[] = {{NODE_PREPARED, false, true}, {NODE_RUNNING, false, true}, {NODE_FINISHED, false, true},
                  {NODE_FAILED, false, true},   {NODE_STOPPED, true, true},  {NODE_CLOSED, false, false}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        n.report.state = states[i].state;
        cr_assert_eq(node_has_stopped(&n), states[i].stopped, "state %d", states[i].state);
        cr_assert_eq(node_may_take_part(&n), states[i].may, "state %d", states[i].state);
    }
}

Test(roster, the_status_names_who_is_there_and_who_is_missing_up_to_a_limit) {
    struct group_config c = config_of(1, 4);
    roster_init(&nodes, 1);
    struct rdzv_status s = {0};
    roster_count(&nodes, add(&nodes, 1, "there"), 1u << TALLY_CANDIDATE);
    struct node *cut_off = add(&nodes, 2, "cut-off"), *busy = add(&nodes, 3, "busy");
    roster_count(&nodes, cut_off, 1u << TALLY_UNRESOLVED);
    busy->connected = true;
    roster_status(&nodes, &c, &s);
    cr_assert(s.n_names == 1 && s.n_missing == 1);
    cr_assert_str_eq(s.names[0], "there");
    cr_assert_str_eq(s.missing[0], "cut-off");

    for (uint64_t i = 0; i < RDZV_STATUS_NAMES_MAX; i++)
        roster_count(&nodes, add(&nodes, 10 + i, "more"), 1u << TALLY_CANDIDATE);
    struct node *late = add(&nodes, 99, "late");
    roster_count(&nodes, late, 1u << TALLY_UNRESOLVED);
    s = (struct rdzv_status){0};
    roster_status(&nodes, &c, &s);
    cr_assert_eq(s.n_names, RDZV_STATUS_NAMES_MAX);
    cr_assert_eq(s.n_missing, 2, "also behind the last name that fits");
    cr_assert_str_eq(s.missing[1], "late");
}

Test(roster, the_status_of_a_static_job_names_the_ranks_that_nobody_has) {
    roster_init(&nodes, 1);
    roster_count(&nodes, roster_add(&nodes, WITH(info_of(1, "a"), .node_rank = 1)), 1u << TALLY_CANDIDATE);
    roster_count(&nodes, add(&nodes, 2, "inherited"), 1u << TALLY_CANDIDATE); /* without a rank */
    struct rdzv_status s = {0};
    roster_status(&nodes, WITH(config_of(3, 3), .static_ranks = true), &s);
    cr_assert_eq(s.n_missing, 2);
    cr_assert_str_eq(s.missing[0], "node rank 0");
    cr_assert_str_eq(s.missing[1], "node rank 2");
}
