#include "launcher/place/place.h"

#include "rig/unit.h"

/* A task of a step of `nodes` nodes, each with `tasks` tasks. */
static struct place step(uint32_t nodes, uint32_t tasks) {
    return (struct place){.slurm = PLACE_SLURM_STEP,
                          .job_id = (char *)(uintptr_t) "28",
                          .step_id = (char *)(uintptr_t) "0",
                          .n_nodes = nodes,
                          .n_tasks = nodes * tasks,
                          .node_tasks = tasks,
                          .most_tasks = tasks,
                          .visible_gpus = UINT32_MAX};
}

Test(place_fill, what_the_user_says_wins) {
    static const struct {
        uint32_t nodes, tasks;
        struct place_given said;
        struct place_fill fill;
    } cases[] = {
        {4, 1, {0}, {.nnodes = true, .nproc = true, .nodes = PLACE_NODES_STEP}},
        {1, 1, {0}, {.nnodes = true, .nproc = true, .nodes = PLACE_NODES_STEP}},
        {4, 4, {0}, {.nnodes = true, .nproc = true, .nodes = PLACE_NODES_STEP}},
        {4, 1, {.nproc = true}, {.nnodes = true, .nodes = PLACE_NODES_STEP}},
        {4, 1, {.nnodes = true, .min_nodes = 2, .max_nodes = 4}, {.nproc = true, .nodes = PLACE_NODES_STEP}},
        {4, 1, {.node_rank = true}, {.nnodes = true, .nproc = true, .nodes = PLACE_NODES_STEP}},
        {4, 2, {.elsewhere = true}, {.nnodes = true, .nproc = true, .nodes = PLACE_NODES_STEP}},
        {4, 1, {.elsewhere = true, .meets = true, .alone = true}, {.nproc = true}},
        /* a group of several steps */
        {2, 1, {.elsewhere = true, .nnodes = true, .min_nodes = 4, .max_nodes = 4}, {.nproc = true}},
        /* torchrun's own way */
        {4, 1, {.nnodes = true, .min_nodes = 4, .max_nodes = 4, .nproc = true, .meets = true}, {0}},
        {4, 1, {.meets = true}, {.nnodes = true, .nproc = true}},
        {4, 2, {.meets = true}, {0}}, /* eight agents */
        {4, 2, {.nnodes = true, .min_nodes = 8, .max_nodes = 8, .meets = true}, {0}},
        /* as many as the step has nodes: one on each */
        {4,
         2,
         {.nnodes = true, .min_nodes = 4, .max_nodes = 4, .meets = true},
         {.nproc = true, .nodes = PLACE_NODES_WHOLE}},
        {4,
         2,
         {.nnodes = true, .min_nodes = 2, .max_nodes = 4, .nproc = true, .meets = true},
         {.nodes = PLACE_NODES_WHOLE}},
        {1, 2, {.nnodes = true, .min_nodes = 1, .max_nodes = 1, .meets = true}, {0}},
        {1, 2, {.nnodes = true, .min_nodes = 2, .max_nodes = 2, .node_rank = true}, {0}},
        /* a job of its own on each node */
        {4, 1, {.meets = true, .alone = true}, {.nproc = true}},
        {4, 2, {.meets = true, .alone = true}, {0}},
        {4, 1, {.nnodes = true, .min_nodes = 1, .max_nodes = 1}, {.nproc = true}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct place p = step(cases[i].nodes, cases[i].tasks);
        struct place_fill f;
        struct err err = {0};
        cr_assert_eq(place_fill(&p, &cases[i].said, &f, &err), 0, "%zu: %s", i, err.text);
        cr_expect_eq(f.nnodes, cases[i].fill.nnodes, "%zu: nnodes", i);
        cr_expect_eq(f.nproc, cases[i].fill.nproc, "%zu: nproc", i);
        cr_expect_eq(f.nodes, cases[i].fill.nodes, "%zu: nodes", i);
    }
}

/* Without a step only the number of workers is known, and on a login node not even that. */
Test(place_fill, outside_a_step_only_workers_are_counted) {
    static const struct {
        enum place_slurm kind;
        bool nproc;
    } cases[] = {{PLACE_SLURM_NONE, false},
                 {PLACE_SLURM_BATCH, true},
                 {PLACE_SLURM_INTERACTIVE, true},
                 {PLACE_SLURM_ALLOC, false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct place p = {.slurm = cases[i].kind, .job_nodes = 4, .nproc = 1};
        const struct place_given none = {0}, nproc = {.nproc = true};
        struct place_fill f;
        cr_assert_eq(place_fill(&p, &none, &f, NULL), 0);
        cr_expect_eq(f.nproc, cases[i].nproc);
        cr_expect(!f.nnodes && f.nodes == PLACE_NODES_OF_USER);
        cr_assert_eq(place_fill(&p, &nproc, &f, NULL), 0);
        cr_expect(!f.nproc);
    }
}

Test(place_fill, more_nodes_than_the_step_has_are_refused) {
    const struct place p = step(2, 1);
    const struct place_given said = {.nnodes = true, .min_nodes = 4, .max_nodes = 4};
    struct place_fill f;
    struct err err = {0};
    cr_assert_eq(place_fill(&p, &said, &f, &err), -EINVAL);
    expect_has(err.text, "4 nodes are asked for, but Slurm's step 28.0 has 2");
    expect_has(err.text, "srun -N4");
}

Test(place_fill, a_task_that_sees_too_few_gpus_is_refused_with_the_line_to_write) {
    struct place p = step(2, 2);
    const struct place_given none = {0}, all = {.meets = true, .nproc = true};
    struct place_fill f;
    struct err err = {0};
    p.visible_gpus = 1;
    p.gpus_on_node = 2;
    cr_assert_eq(place_fill(&p, &none, &f, &err), -EINVAL);
    expect_has(err.text, "sees 1 of this node's 2 GPUs");
    expect_has(err.text, "srun --ntasks-per-node=1 --gpus-per-node=2 muster run");
    p.proc_id = 3;
    cr_expect_eq(place_fill(&p, &none, &f, &err), -EALREADY, "task 0 prints it");
    p.n_tasks = 3; /* the first node has one, which is not refused */
    cr_expect_eq(place_fill(&p, &none, &f, &err), -EINVAL);
    cr_expect_eq(place_fill(&p, &all, &f, &err), 0, "torchrun's own way: an agent for each task");
    p.visible_gpus = 2;
    cr_expect_eq(place_fill(&p, &none, &f, &err), 0);
    p.visible_gpus = 0; /* none is wanted */
    cr_expect_eq(place_fill(&p, &none, &f, &err), 0);
    p = step(2, 1); /* one task a node: which GPUs it uses is the user's choice */
    p.visible_gpus = 1;
    p.gpus_on_node = 2;
    cr_expect_eq(place_fill(&p, &none, &f, &err), 0);
}
