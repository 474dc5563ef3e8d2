/* Another job under the same run id is refused; nodes with arguments of their own are not. */
#include "rendezvous/leader/parts/programs.h"

#include "../group_rig.h"
#include "rig/unit.h"

static const struct rdzv_program ours = {"train.py --lr=...", 1, 3, 0};

static void comes(struct rig *r, uint64_t node, const char *role, const struct rdzv_program *p) {
    struct node_info info = info_of(node);
    (void)snprintf(info.role, sizeof info.role, "%s", role);
    struct report rep = {.state = NODE_JOINED};
    step(r, (struct group_event){.kind = GROUP_EVENT_JOIN, .info = &info, .report = &rep, .program = p});
}

static struct group_config job_of(uint32_t min, uint32_t max) {
    struct group_config c = config_of(min, max);
    c.program = ours;
    c.rdzv.last_call_ns = S(1);
    (void)strcpy(c.role, "default");
    return c;
}

/* Why the last one was refused; NULL: it was not. */
static const char *refusal(const struct rig *r) {
    const struct group_effect *e = effect(r, GROUP_EFFECT_REFUSE);
    cr_assert(e == NULL || !e->for_now, "it need not come again");
    return e == NULL ? NULL : e->reason;
}

static struct rdzv_program with(uint64_t name, uint64_t args) {
    struct rdzv_program p = {"eval.py --data=...", name, args, 0};
    return p;
}

static struct rig rig; /* of a test that has one; ended with it */

static void finish(void) { end(&rig); }

TestSuite(programs, .fini = finish);

Test(programs, another_program_is_refused_at_any_time_with_both_named) {
    struct group_config c = job_of(2, 2);
    begin(&rig, &c);
    struct rdzv_program other = with(9, 3);
    for (int running = 0; running < 2; running++) {
        comes(&rig, 7, "default", &other);
        cr_assert_not_null(refusal(&rig));
        cr_assert_not_null(strstr(refusal(&rig), "'eval.py --data=...', and the job there runs 'train.py "
                                                 "--lr=...', another program"),
                           "%s", refusal(&rig));
        if (running != 0)
            break;
        comes(&rig, 1, "default", &ours);
        comes(&rig, 2, "default", &ours);
        start(&rig);
    }
    comes(&rig, 3, "default", &ours);
    cr_assert_null(refusal(&rig), "a spare of the same job");
    cr_assert_eq(group_nodes(rig.g, NULL, 0), 3);
}

Test(programs, the_same_name_run_in_another_way_is_said_to_be_that) {
    struct group_config c = job_of(2, 2);
    begin(&rig, &c);
    struct rdzv_program other = ours;
    other.name++;
    comes(&rig, 2, "default", &other);
    cr_assert_not_null(strstr(refusal(&rig), "run in another way"), "%s", refusal(&rig));
    cr_assert_null(strstr(refusal(&rig), "another program"), "%s", refusal(&rig));
}

/* Two texts that look alike would say nothing. */
Test(programs, what_differs_unseen_is_shown_once) {
    struct group_config c = job_of(3, 3);
    begin(&rig, &c);
    comes(&rig, 1, "default", &ours);
    struct rdzv_program own = ours;
    own.args++;
    comes(&rig, 2, "default", &own);
    const struct group_effect *e = effect(&rig, GROUP_EFFECT_NOTICE);
    cr_assert_not_null(e);
    cr_assert_not_null(strstr(e->reason, "('train.py --lr=...' on both, what '...' stands for differs)"), "%s",
                       e->reason);
}

Test(programs, other_restarts_are_refused_with_both_numbers) {
    struct group_config c = job_of(2, 2);
    c.rdzv.max_restarts = 3;
    c.program.max_restarts = 3;
    begin(&rig, &c);
    struct rdzv_program p = ours;
    comes(&rig, 2, "default", &p);
    cr_assert_not_null(strstr(refusal(&rig), "--max-restarts=0"), "%s", refusal(&rig));
    cr_assert_not_null(strstr(refusal(&rig), "--max-restarts=3"), "%s", refusal(&rig));
    comes(&rig, 2, "reader", &p);
    cr_assert_not_null(refusal(&rig), "they are the whole job's");
    p.max_restarts = 3;
    comes(&rig, 2, "default", &p);
    cr_assert_null(refusal(&rig));
}

Test(programs, each_role_has_a_program_of_its_own_that_its_first_node_brings) {
    struct group_config c = job_of(4, 4);
    begin(&rig, &c);
    struct rdzv_program reader = with(5, 7), third = with(8, 7);
    comes(&rig, 2, "reader", &reader);
    cr_assert_null(refusal(&rig), "it comes even before the leader's own node");
    comes(&rig, 3, "reader", &third);
    cr_assert_not_null(refusal(&rig));
    comes(&rig, 3, "reader", &ours);
    cr_assert_not_null(refusal(&rig));
    comes(&rig, 1, "default", &ours);
    cr_assert_null(refusal(&rig));
}

Test(programs, nodes_with_arguments_of_their_own_are_one_job_and_it_is_told_once) {
    struct group_config c = job_of(3, 3);
    begin(&rig, &c);
    comes(&rig, 1, "default", &ours);
    for (uint64_t node = 2; node < 6; node++) { /* also spares, and those that come for the lost */
        struct rdzv_program own = with(1, 100 + node);
        size_t told_before = rig.seen[GROUP_EFFECT_NOTICE];
        comes(&rig, node, "default", &own);
        cr_assert_null(refusal(&rig), "node %d: %s", (int)node, refusal(&rig));
        cr_assert_eq(rig.seen[GROUP_EFFECT_NOTICE] - told_before, node == 2);
        if (node == 3)
            start(&rig);
    }
}

Test(programs, other_arguments_that_come_to_nodes_which_were_alike_are_another_job) {
    struct group_config c = job_of(2, 4);
    begin(&rig, &c);
    comes(&rig, 1, "default", &ours);
    comes(&rig, 2, "default", &ours);
    pass(&rig, 1, 6);
    start(&rig);
    struct rdzv_program own = with(1, 100);
    comes(&rig, 3, "default", &own);
    cr_assert_not_null(strstr(refusal(&rig), "other arguments"), "%s", refusal(&rig));
    comes(&rig, 3, "default", &ours);
    cr_assert_null(refusal(&rig));
}

Test(programs, one_node_proves_nothing_while_there_is_room) {
    for (uint32_t max = 1; max < 3; max++) {
        struct group_config c = job_of(1, max);
        struct rig r;
        begin(&r, &c);
        comes(&r, 1, "default", &ours);
        pass(&r, 1, 2);
        start(&r);
        struct rdzv_program own = with(1, 100);
        comes(&r, 2, "default", &own);
        cr_assert_eq(refusal(&r) != NULL, max == 1);
        end(&r);
    }
}

Test(programs, a_known_node_comes_back_whatever_it_says) {
    struct group_config c = job_of(2, 2);
    begin(&rig, &c);
    comes(&rig, 1, "default", &ours);
    comes(&rig, 2, "default", &ours);
    start(&rig);
    struct rdzv_program other = with(9, 9);
    comes(&rig, 2, "default", &other);
    cr_assert_null(refusal(&rig));
}

Test(programs, a_role_beyond_the_limit_and_another_program_are_not_compared) {
    struct programs p = {0};
    char text[512] = "untouched", role[16];
    struct rdzv_program first = with(1, 3), other_args = with(1, 4), other_name = with(9, 4);
    for (int i = 0; i <= GROUP_ROLES_MAX; i++) {
        (void)snprintf(role, sizeof role, "role%d", i);
        cr_assert_not(programs_add(&p, role, "node1", &first, text, sizeof text), "%s", role);
    }
    cr_assert_eq(p.n, GROUP_ROLES_MAX);
    cr_assert_not(programs_add(&p, "role0", "node2", &other_name, text, sizeof text));
    cr_assert_str_eq(text, "untouched");
    cr_assert(programs_add(&p, "role0", "node3", &other_args, text, sizeof text));
    cr_assert_not_null(strstr(text, "node node3 was started with other arguments"), "%s", text);
    programs_fini(&p);
}
