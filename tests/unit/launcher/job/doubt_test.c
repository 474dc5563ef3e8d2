#include "launcher/job/job.h"

#include "rig/unit.h"

#define OWNED(text) ((char *)(uintptr_t)(text))

/* Task `proc` of a step of `nodes` nodes, each with `tasks` tasks. */
static struct place step(uint32_t nodes, uint32_t tasks, uint32_t proc) {
    return (struct place){.slurm = PLACE_SLURM_STEP,
                          .job_id = OWNED("28"),
                          .step_id = OWNED("0"),
                          .first_host = OWNED("node1"),
                          .job_nodes = nodes,
                          .n_nodes = nodes,
                          .n_tasks = nodes * tasks,
                          .node_tasks = tasks,
                          .most_tasks = tasks,
                          .proc_id = proc};
}

static const struct place batch = {.slurm = PLACE_SLURM_BATCH, .job_id = OWNED("28"), .job_nodes = 4};
static const struct place interactive = {.slurm = PLACE_SLURM_INTERACTIVE, .job_id = OWNED("28"), .job_nodes = 4};
static const struct place_given meets = {.meets = true, .nnodes = true};

struct line {
    uint32_t min_nodes, max_nodes;
    bool one_agent, spares, ranks_are_fixed, from_batch;
    const char *host, *script;
    int32_t node_rank;
};

#define LINE(n, ...) \
    { .min_nodes = (n), .max_nodes = (n), __VA_ARGS__ }

/* `part` is in what is said; NULL: nothing is. */
static void expect(const struct place *place, const struct place_given *said, struct line l, const char *part, int at) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const struct job_spec spec = {
        .rdzv = {.min_nodes = l.min_nodes, .max_nodes = l.max_nodes, .spares = l.spares ? 1 : UINT32_MAX},
        .place = *place,
        .nodes = l.one_agent ? PLACE_NODES_WHOLE : PLACE_NODES_OF_USER,
        .endpoint_host = OWNED(l.host),
        .script = OWNED(l.script),
        .backend = l.ranks_are_fixed ? JOB_BACKEND_STATIC : JOB_BACKEND_C10D,
        .node_rank = l.node_rank};
    slurm_doubt(&spec, said, l.from_batch, &text);
    if (part == NULL)
        cr_expect_eq(text.len, 0, "line %d: %s", at, strbuf_text(&text));
    else
        cr_expect_not_null(strstr(strbuf_text(&text), part), "line %d: %s", at, strbuf_text(&text));
}
#define EXPECT(place, said, part, ...) expect(&(place), &(said), (struct line)LINE(__VA_ARGS__, ), part, __LINE__)

Test(slurm_doubt, a_line_that_runs_on_one_node_of_the_job) {
    static const struct place_given ranked = {.node_rank = true}, alone = {.meets = true, .alone = true}, none = {0};
    static const struct place one = {.slurm = PLACE_SLURM_BATCH, .job_id = OWNED("28"), .job_nodes = 1};
    EXPECT(batch, meets, "in the batch script of Slurm's job 28, on one of its 4 nodes", 4);
    EXPECT(interactive, meets, "in the interactive step of Slurm's job 28, on one of its 4 nodes", 4);
    EXPECT(batch, ranked, "write srun before it", 4);
    EXPECT(batch, none, NULL, 4); /* muster starts the step */
    EXPECT(batch, meets, NULL, 1);
    EXPECT(batch, alone, NULL, 4);
    EXPECT(one, meets, NULL, 4);
}

Test(slurm_doubt, a_number_of_nodes_that_the_step_has_not) {
    const struct place four = step(4, 1, 0), later = step(4, 1, 3), tasks = step(2, 2, 0), one = step(1, 1, 0);
    static const struct place_given none = {0};
    EXPECT(four, meets, NULL, 4, .host = "node1");
    EXPECT(four, meets, "asks for 8 nodes, but Slurm's step 28.0 has 4 nodes: the job waits", 8);
    EXPECT(four, meets, "srun -N8", 8);
    EXPECT(four, meets, "takes 2 nodes, but Slurm's step 28.0 has 4 nodes: the others run nothing", 2);
    EXPECT(four, meets, "--spares=2", 2);
    EXPECT(four, meets, NULL, 2, .spares = true);
    expect(&four, &meets, (struct line){.min_nodes = 1, .max_nodes = 2}, NULL, __LINE__); /* others may wait */
    EXPECT(four, meets, NULL, 1);                                                         /* a job of its own on each */
    EXPECT(later, meets, NULL, 8);                                                        /* said once */
    EXPECT(four, none, NULL, 8);
    EXPECT(one, meets, NULL, 4); /* one of several steps */
    EXPECT(tasks, meets, NULL, 4);
    EXPECT(tasks, meets, NULL, 2, .one_agent = true);
    EXPECT(tasks, meets, "has 4 tasks, each of which is a node here", 3);
}

Test(slurm_doubt, a_host_that_is_another_one_everywhere) {
    static const char *const hosts[] = {"127.0.1.1", "localhost", "::1"};
    const struct place two = step(2, 1, 0), one = step(1, 1, 0);
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        EXPECT(two, meets, "is another host on each node of Slurm's step 28.0", 2, .host = hosts[i]);
        EXPECT(two, meets, "muster then takes node1", 2, .host = hosts[i]);
        EXPECT(one, meets, NULL, 2, .host = hosts[i]);
    }
    EXPECT(two, meets, NULL, 2, .host = "10.0.0.1");
    EXPECT(two, meets, NULL, 2, .host = "1270.example");
}

Test(slurm_doubt, the_host_on_which_srun_runs) {
    struct place two = step(2, 1, 0);
    two.srun_host = OWNED("10.0.0.9");
    EXPECT(two, meets, "where srun runs", 2, .host = "10.0.0.9");
    EXPECT(two, meets, NULL, 2, .host = "10.0.0.9", .from_batch = true);
    EXPECT(two, meets, NULL, 2, .host = "10.0.0.1");
    EXPECT(two, meets, NULL, 2);
}

Test(slurm_doubt, an_address_in_place_of_the_script) {
    const struct place two = step(2, 1, 0);
    EXPECT(two, meets, "the program to run is 10.0.0.1:29500, which looks like an address", 2,
           .script = "10.0.0.1:29500");
    EXPECT(two, meets, "looks like an address", 2, .script = "fd00::1:29500");
    EXPECT(two, meets, NULL, 2, .script = "train.py");
    EXPECT(two, meets, NULL, 2, .script = "package.module:main");
    EXPECT(two, meets, NULL, 2, .script = "10.0");
}

Test(slurm_doubt, a_rank_that_the_batch_script_has_put_in) {
    const struct place first = step(4, 1, 0), second = step(4, 1, 1), third = step(4, 1, 2);
    static const struct place_given ranked = {.meets = true, .nnodes = true, .node_rank = true};
    EXPECT(second, ranked, "before srun runs", 4, .ranks_are_fixed = true, .node_rank = 0);
    EXPECT(second, meets, "no --node-rank is given, so each task of", 4, .ranks_are_fixed = true, .node_rank = 0);
    EXPECT(second, meets, NULL, 4, .ranks_are_fixed = true, .node_rank = 1);
    EXPECT(second, meets, NULL, 4, .node_rank = 0); /* a wish */
    EXPECT(first, meets, NULL, 4, .ranks_are_fixed = true, .node_rank = 0);
    EXPECT(third, meets, NULL, 4, .ranks_are_fixed = true, .node_rank = 0); /* said once */
}
