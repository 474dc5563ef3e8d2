/* Another job under the same run id is refused; nodes with arguments of their own are not. */
#include "group_rig.h"
#include "rendezvous/leader/parts/roster.h"
#include "rig/unit.h"

static const struct rdzv_program ours = {"train.py --lr=...", 1, 3, 0};

static void comes(uint64_t node, const char *role, const struct rdzv_program *p) {
    struct node_info info = info_of(node);
    (void)snprintf(info.role, sizeof info.role, "%s", role);
    struct report rep = {.state = NODE_JOINED};
    step((struct group_event){.kind = GROUP_EVENT_JOIN, .info = &info, .report = &rep, .program = p});
}

static struct group_config job_of(uint32_t min, uint32_t max) {
    struct group_config c = *WITH(config_of(min, max), .program = ours, .rdzv.last_call_ns = S(1));
    (void)strcpy(c.role, "default");
    return c;
}

/* Why the last one was refused; NULL: it was not. */
static const char *refusal(void) {
    const struct group_effect *e = effect(GROUP_EFFECT_REFUSE);
    cr_assert(e == NULL || !e->for_now, "it need not come again");
    return e == NULL ? NULL : e->reason;
}

static struct rdzv_program with(uint64_t name, uint64_t args) {
    struct rdzv_program p = {"eval.py --data=...", name, args, 0};
    return p;
}

TestSuite(programs, .fini = end);

Test(programs, another_program_is_refused_at_any_time_with_both_named) {
    begin(AT(job_of(2, 2)));
    struct rdzv_program other = with(9, 3);
    for (int running = 0; running < 2; running++) {
        comes(7, "default", &other);
        cr_assert_not_null(refusal());
        assert_has(refusal(), "'eval.py --data=...', and the job there runs 'train.py "
                              "--lr=...', another program");
        if (running != 0)
            break;
        comes(1, "default", &ours);
        comes(2, "default", &ours);
        start();
    }
    comes(3, "default", &ours);
    cr_assert_null(refusal(), "a spare of the same job");
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 3);
}

Test(programs, the_same_name_run_in_another_way_is_said_to_be_that) {
    begin(AT(job_of(2, 2)));
    struct rdzv_program other = ours;
    other.name++;
    comes(2, "default", &other);
    assert_has(refusal(), "run in another way");
    cr_assert_null(strstr(refusal(), "another program"), "%s", refusal());
}

/* Two texts that look alike would say nothing. */
Test(programs, what_differs_unseen_is_shown_once) {
    begin(AT(job_of(3, 3)));
    comes(1, "default", &ours);
    struct rdzv_program own = ours;
    own.args++;
    comes(2, "default", &own);
    const struct group_effect *e = effect(GROUP_EFFECT_NOTICE);
    cr_assert_not_null(e);
    assert_has(e->reason, "('train.py --lr=...' on both, what '...' stands for differs)");
}

Test(programs, other_restarts_are_refused_with_both_numbers) {
    begin(WITH(job_of(2, 2), .rdzv.max_restarts = 3, .program.max_restarts = 3));
    struct rdzv_program p = ours;
    comes(2, "default", &p);
    assert_has(refusal(), "--max-restarts=0");
    assert_has(refusal(), "--max-restarts=3");
    comes(2, "reader", &p);
    cr_assert_not_null(refusal(), "they are the whole job's");
    p.max_restarts = 3;
    comes(2, "default", &p);
    cr_assert_null(refusal());
}

Test(programs, each_role_has_a_program_of_its_own_that_its_first_node_brings) {
    begin(AT(job_of(4, 4)));
    struct rdzv_program reader = with(5, 7), third = with(8, 7);
    comes(2, "reader", &reader);
    cr_assert_null(refusal(), "it comes even before the leader's own node");
    comes(3, "reader", &third);
    cr_assert_not_null(refusal());
    comes(3, "reader", &ours);
    cr_assert_not_null(refusal());
    comes(1, "default", &ours);
    cr_assert_null(refusal());
}

Test(programs, nodes_with_arguments_of_their_own_are_one_job_and_it_is_told_once) {
    begin(AT(job_of(3, 3)));
    comes(1, "default", &ours);
    for (uint64_t node = 2; node < 6; node++) { /* also spares, and those that come for the lost */
        struct rdzv_program own = with(1, 100 + node);
        size_t told_before = rig.seen[GROUP_EFFECT_NOTICE];
        comes(node, "default", &own);
        cr_assert_null(refusal(), "node %d: %s", (int)node, refusal());
        cr_assert_eq(rig.seen[GROUP_EFFECT_NOTICE] - told_before, node == 2);
        if (node == 3)
            start();
    }
}

Test(programs, other_arguments_that_come_to_nodes_which_were_alike_are_another_job) {
    begin(AT(job_of(2, 4)));
    comes(1, "default", &ours);
    comes(2, "default", &ours);
    pass(1, 6);
    start();
    comes(3, "default", AT(with(1, 100)));
    assert_has(refusal(), "other arguments");
    comes(3, "default", &ours);
    cr_assert_null(refusal());
}

Test(programs, one_node_proves_nothing_while_there_is_room) {
    for (uint32_t max = 1; max < 3; max++) {
        begin(AT(job_of(1, max)));
        comes(1, "default", &ours);
        pass(1, 2);
        start();
        comes(2, "default", AT(with(1, 100)));
        cr_assert_eq(refusal() != NULL, max == 1);
    }
}

Test(programs, a_known_node_comes_back_whatever_it_says) {
    begin(AT(job_of(2, 2)));
    comes(1, "default", &ours);
    comes(2, "default", &ours);
    start();
    comes(2, "default", AT(with(9, 9)));
    cr_assert_null(refusal());
}

Test(programs, a_role_beyond_the_limit_is_not_compared) {
    struct rdzv_program first = with(5, 7), other = with(8, 7);
    char role[16];
    begin(AT(job_of(100, 100)));
    for (int node = 1; node <= GROUP_ROLES_MAX; node++) { /* the leader's own role is one more */
        (void)snprintf(role, sizeof role, "role%d", node);
        comes((uint64_t)node, role, &first);
        cr_assert_null(refusal());
    }
    comes(100, role, &other);
    cr_assert_null(refusal());
    comes(101, "role1", &other);
    cr_assert_not_null(refusal());
}
