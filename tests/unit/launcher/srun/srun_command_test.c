#include "launcher/srun/srun_command.h"

#include "rig/unit.h"

#define NO_NODES 0

static struct place place_of(enum place_slurm kind, uint32_t nodes) {
    return (struct place){
        .slurm = kind, .job_id = (char *)(uintptr_t) "28", .job_nodes = nodes, .visible_gpus = UINT32_MAX};
}

static const struct place_given nothing = {.min_nodes = 1, .max_nodes = 1};

static struct place_given nodes(uint32_t min, uint32_t max) {
    return (struct place_given){.nnodes = true, .min_nodes = min, .max_nodes = max};
}

struct choice {
    enum job_starter wanted;
    struct place place;
    struct place_given said;
    int result;
    uint32_t nodes;
};

static void expect(const struct choice *c, size_t i) {
    struct err err = {0};
    uint32_t n = NO_NODES;
    int r = srun_choose(c->wanted, &c->place, &c->said, &n, &err);
    cr_assert_eq(r, c->result, "case %zu: %d %s", i, r, err.text);
    cr_assert_eq(n, c->nodes, "case %zu: %u nodes", i, n);
    if (r < 0)
        cr_assert_neq(err.text[0], '\0');
}

Test(starter, a_job_of_several_nodes_gets_a_step) {
    const struct place none = {0}, batch = place_of(PLACE_SLURM_BATCH, 4), alloc = place_of(PLACE_SLURM_ALLOC, 4),
                       one = place_of(PLACE_SLURM_BATCH, 1), inter = place_of(PLACE_SLURM_INTERACTIVE, 4),
                       step = place_of(PLACE_SLURM_STEP, 4);
    const struct place_given meets = {.meets = true}, alone = {.meets = true, .alone = true},
                             rank = {.node_rank = true};
    const struct choice cases[] = {
        {JOB_STARTER_AUTO, none, nothing, 0, 0},
        {JOB_STARTER_AUTO, batch, nothing, 0, 4},
        {JOB_STARTER_AUTO, alloc, nothing, 0, 4},
        {JOB_STARTER_AUTO, inter, nothing, 0, 4},
        {JOB_STARTER_AUTO, step, nothing, 0, 0},
        {JOB_STARTER_AUTO, one, nothing, 0, 0},
        {JOB_STARTER_AUTO, batch, nodes(2, 2), 0, 2},
        {JOB_STARTER_AUTO, batch, nodes(2, 8), 0, 4},
        {JOB_STARTER_AUTO, batch, nodes(1, 1), 0, 0},
        {JOB_STARTER_AUTO, batch, nodes(5, 8), -EINVAL, 0},
        {JOB_STARTER_AUTO, batch, meets, 0, 0},
        {JOB_STARTER_AUTO, batch, alone, 0, 0},
        {JOB_STARTER_AUTO, batch, rank, 0, 0},
        {JOB_STARTER_NONE, batch, nothing, 0, 0},
        {JOB_STARTER_SRUN, batch, meets, 0, 4},
        {JOB_STARTER_SRUN, one, nothing, 0, 1},
        {JOB_STARTER_SRUN, none, nothing, -EINVAL, 0},
        {JOB_STARTER_SRUN, step, nothing, 0, 0},
        {JOB_STARTER_SRUN, place_of(PLACE_SLURM_BATCH, 0), nothing, -EINVAL, 0},
        {JOB_STARTER_AUTO, place_of(PLACE_SLURM_BATCH, 0), nothing, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect(&cases[i], i);
}

static struct srun_command config_of(const struct place *place, char *const *envp, char *const *args) {
    return (struct srun_command){
        .nodes = 2,
        .program = "/opt/muster/bin/muster",
        .args = args,
        .place = place,
        .envp = envp,
    };
}

static const char *joined(char *const *argv, struct strbuf *s) {
    strbuf_clear(s);
    for (size_t i = 0; argv[i] != NULL; i++)
        strbuf_printf(s, "%s%s", i > 0 ? " " : "", argv[i]);
    return strbuf_text(s);
}

Test(starter, the_command_is_sruns_with_muster_itself) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    const struct place place = place_of(PLACE_SLURM_BATCH, 4);
    char *args[] = {(char *)(uintptr_t) "--max-restarts=3", (char *)(uintptr_t) "train.py", (char *)(uintptr_t) "--lr",
                    (char *)(uintptr_t) "a b", NULL};
    char *envp[] = {NULL};
    struct srun_command config = config_of(&place, envp, args);
    char **argv = srun_argv(&config);
    cr_assert_str_eq(joined(argv, &s),
                     "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 "
                     "--cpu-bind=none --mpi=none --export=ALL --disable-status --input=none /opt/muster/bin/muster run "
                     "--max-restarts=3 train.py --lr a b");
    words_free(argv);
    config.binds_nothing = true;
    argv = srun_argv(&config);
    cr_assert_null(strstr(joined(argv, &s), "--cpu-bind"));
    words_free(argv);
    config.is_torchrun = true;
    config.program = "/opt/muster/bin/torchrun";
    argv = srun_argv(&config);
    assert_has(joined(argv, &s), "/bin/torchrun --max-restarts=3 train.py");
    words_free(argv);
}

/* Each component keeps its own tasks: of those on one node one is the agent. */
Test(starter, a_heterogeneous_job_is_one_step) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    _cleanup_(envlist_fini) struct envlist env = {0};
    struct place place =
        *WITH(place_of(PLACE_SLURM_BATCH, 4), .het_size = 3, .tasks_per_node = (char *)(uintptr_t) "8");
    char *args[] = {(char *)(uintptr_t) "train.py", NULL};
    char *envp[] = {(char *)(uintptr_t) "SLURM_GPUS_PER_TASK=1", (char *)(uintptr_t) "SLURM_NTASKS_PER_NODE=8",
                    (char *)(uintptr_t) "SLURM_NTASKS_HET_GROUP_1=2", NULL};
    struct srun_command config = config_of(&place, envp, args);
    char **argv = srun_argv(&config);
    assert_has(joined(argv, &s), "srun --het-group=0-2 --no-kill ");
    cr_assert_null(strstr(joined(argv, &s), "--ntasks"));
    cr_assert_null(strstr(joined(argv, &s), "--gpus"));
    words_free(argv);
    srun_env(&config, &env);
    cr_assert_null(envlist_get(&env, "SLURM_NTASKS_PER_NODE"));
    cr_assert_str_eq(envlist_get(&env, "SLURM_NTASKS_HET_GROUP_1"), "2");
    cr_assert_null(envlist_get(&env, STARTER_TASKS_ENV));
    const struct choice cases[] = {
        {JOB_STARTER_AUTO, place, nothing, 0, 4},           {JOB_STARTER_AUTO, place, nodes(2, 4), 0, 4},
        {JOB_STARTER_AUTO, place, nodes(2, 3), -EINVAL, 0}, {JOB_STARTER_AUTO, place, nodes(1, 1), 0, 0},
        {JOB_STARTER_SRUN, place, nodes(1, 1), -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect(&cases[i], i);
}

Test(starter, what_describes_other_tasks_is_unset) {
    char *envp[] = {(char *)(uintptr_t) "PATH=/bin",
                    (char *)(uintptr_t) "SLURM_JOB_ID=28",
                    (char *)(uintptr_t) "SLURM_NTASKS=16",
                    (char *)(uintptr_t) "SLURM_NTASKS_PER_NODE=4",
                    (char *)(uintptr_t) "SLURM_TASKS_PER_NODE=4(x4)",
                    (char *)(uintptr_t) "SLURM_CPUS_PER_TASK=8",
                    (char *)(uintptr_t) "SLURM_CPU_BIND_TYPE=mask_cpu:",
                    (char *)(uintptr_t) "SLURM_STEP_ID=3",
                    (char *)(uintptr_t) "SLURM_STEPID=3",
                    (char *)(uintptr_t) "SLURM_EXPORT_ENV=NONE",
                    (char *)(uintptr_t) "SLURM_GPUS_PER_TASK=1",
                    (char *)(uintptr_t) "MUSTER_KEY=the user's own",
                    (char *)(uintptr_t) "MUSTER_KEY_FILE=/home/me/key",
                    NULL};
    char *args[] = {NULL};
    const struct place place = place_of(PLACE_SLURM_BATCH, 4);
    struct srun_command config = config_of(&place, envp, args);
    _cleanup_(envlist_fini) struct envlist env = {0};
    srun_env(&config, &env);
    static const char *const gone[] = {"SLURM_NTASKS",        "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
                                       "SLURM_CPUS_PER_TASK", "SLURM_CPU_BIND_TYPE",   "SLURM_STEP_ID",
                                       "SLURM_STEPID",        "SLURM_EXPORT_ENV",      "SLURM_GPUS_PER_TASK",
                                       "MUSTER_KEY",          "MUSTER_KEY_FILE"};
    for (size_t i = 0; i < ARRAY_SIZE(gone); i++)
        cr_assert_null(envlist_get(&env, gone[i]), "%s", gone[i]);
    cr_assert_str_eq(envlist_get(&env, "PATH"), "/bin");
    cr_assert_str_eq(envlist_get(&env, "SLURM_JOB_ID"), "28");
    cr_assert_str_eq(envlist_get(&env, STARTER_CPUS_ENV), "8");
}

Test(starter, without_gpus_the_jobs_tasks_are_the_workers) {
    static const struct {
        const char *tasks, *variable;
        bool gpus;
        const char *told; /* NULL: nothing */
    } cases[] = {
        {"4(x4)", NULL, false, "4"},    {"1(x4)", NULL, false, NULL},
        {"4(x3),2", NULL, false, NULL}, {"4(x4)", "SLURM_GPUS=8", false, NULL},
        {"4(x4)", NULL, true, NULL},    {NULL, NULL, false, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct place place = place_of(PLACE_SLURM_BATCH, 4);
        char *envp[] = {(char *)(uintptr_t)cases[i].variable, NULL}, *args[] = {NULL};
        _cleanup_(envlist_fini) struct envlist env = {0};
        place.tasks_per_node = (char *)(uintptr_t)cases[i].tasks;
        place.nproc_is_gpus = cases[i].gpus;
        srun_env(AT(config_of(&place, envp, args)), &env);
        const char *told = envlist_get(&env, STARTER_TASKS_ENV);
        if (cases[i].told == NULL)
            cr_assert_null(told, "case %zu", i);
        else
            cr_assert_str_eq(told, cases[i].told, "case %zu", i);
    }
}

Test(starter, gpus_that_the_job_has_by_task_are_asked_for_by_node) {
    static const struct {
        const char *tasks, *variable;
        uint32_t on_node;
        const char *option; /* NULL: none */
    } cases[] = {
        {"4(x2)", "SLURM_GPUS_PER_TASK=2", 0, " --gpus-per-node=8 "},
        {"2(x2)", "SLURM_GPUS_PER_TASK=a100:1", 2, " --gpus-per-node=2 "},
        {"4,2", "SLURM_GPUS_PER_TASK=1", 4, " --gpus-per-node=4 "}, /* Slurm then says what is wrong */
        {"2(x2)", "SLURM_GPUS_PER_TASK=x", 3, " --gpus-per-node=3 "},
        {"4(x2)", "SLURM_GPUS=8", 4, NULL},
        {"4(x2)", NULL, 4, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct place place = place_of(PLACE_SLURM_BATCH, 2);
        char *envp[] = {(char *)(uintptr_t)cases[i].variable, NULL}, *args[] = {NULL};
        _cleanup_(strbuf_fini) struct strbuf s = {0};
        place.tasks_per_node = (char *)(uintptr_t)cases[i].tasks;
        place.gpus_on_node = cases[i].on_node;
        char **argv = srun_argv(AT(config_of(&place, envp, args)));
        const char *line = joined(argv, &s);
        if (cases[i].option != NULL)
            cr_assert_not_null(strstr(line, cases[i].option), "case %zu: %s", i, line);
        else
            cr_assert_null(strstr(line, "--gpus"), "case %zu: %s", i, line);
        words_free(argv);
    }
}
