#include "launcher/place/place.h"

#include "rig/unit.h"

#define WORDS_MAX 40

/* Environments as Slurm 22.05 makes them, words apart by blanks. */
#define JOB "SLURM_JOB_ID=28 SLURM_CLUSTER_NAME=c1 SLURM_JOB_NODELIST=node[1-4] SLURM_NODELIST=node[1-4] "
#define STEP                                                                                           \
    JOB "SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-4] SLURM_STEP_NUM_NODES=4 SLURM_STEP_NUM_TASKS=4 " \
        "SLURM_STEP_TASKS_PER_NODE=1(x4) SLURM_JOB_NUM_NODES=4 SLURM_NNODES=4 SLURM_NTASKS=4 "         \
        "SLURM_TASKS_PER_NODE=1(x4) SLURM_NODEID=2 SLURM_PROCID=2 SLURM_LOCALID=0 "
#define BATCH                                                                             \
    JOB "SLURM_JOB_NUM_NODES=4 SLURM_NNODES=4 SLURM_NTASKS=4 SLURM_TASKS_PER_NODE=1(x4) " \
        "SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 "
#define SALLOC JOB "SLURM_JOB_NUM_NODES=4 SLURM_NNODES=4 SLURM_NTASKS=4 SLURM_TASKS_PER_NODE=1(x4) "
/* of a step of one node, from inside which a job was submitted */
#define LEAKED                                                                                 \
    "SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node1 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 " \
    "SLURM_STEP_TASKS_PER_NODE=1 "

struct seen {
    struct place p;
    struct err err;
    int r;
};

static void seen_fini(struct seen *s) { place_fini(&s->p); }

static struct seen see_with(const char *words, const struct place_facts *facts) {
    static char text[2048];
    char *envp[WORDS_MAX + 1] = {NULL};
    int n = 0;
    struct seen s = {0};
    cr_assert_lt(snprintf(text, sizeof text, "%s", words), (int)sizeof text);
    for (char *w = strtok(text, " "); w != NULL; w = strtok(NULL, " ")) {
        cr_assert_lt(n, WORDS_MAX);
        envp[n++] = w;
    }
    s.r = place_read_slurm(envp, facts, &s.p, &s.err);
    return s;
}

static struct seen see(const char *words, const char *title) {
    const struct place_facts facts = {.stepd = title, .stepd_is_parent = title != NULL};
    return see_with(words, &facts);
}

Test(place, variables_alone_prove_nothing) {
    static const struct {
        const char *words, *title, *cgroup;
        enum place_slurm kind;
    } cases[] = {
        {"HOME=/h", NULL, NULL, PLACE_SLURM_NONE},
        {"HOME=/h " LEAKED, NULL, NULL, PLACE_SLURM_NONE},
        {STEP, NULL, NULL, PLACE_SLURM_STEP},
        {STEP, "slurmstepd: [28.0]", NULL, PLACE_SLURM_STEP},
        {STEP, NULL, "9:cpuset:/\n8:freezer:/slurm_node1/uid_0/job_28/step_0/task_2\n", PLACE_SLURM_STEP},
        {STEP, NULL, "0::/system.slice/slurmstepd.scope/job_28/step_0/user/task_2", PLACE_SLURM_STEP},
        {STEP, NULL, "0::/", PLACE_SLURM_STEP},
        {BATCH, "slurmstepd: [28.batch]", NULL, PLACE_SLURM_BATCH},
        {BATCH, "slurmstepd: [28.4294967291]", NULL, PLACE_SLURM_BATCH},
        {BATCH, NULL, "0::/system.slice/slurmstepd.scope/job_28/step_batch/user/task_special\n", PLACE_SLURM_BATCH},
        {BATCH, NULL, NULL, PLACE_SLURM_BATCH},
        /* submitted from inside a step of one node */
        {BATCH LEAKED, "slurmstepd: [28.batch]", NULL, PLACE_SLURM_BATCH},
        {BATCH LEAKED, NULL, "4:freezer:/slurm/uid_0/job_28/step_batch", PLACE_SLURM_BATCH},
        {BATCH LEAKED, NULL, NULL, PLACE_SLURM_BATCH},
        /* and the job has one node, so that all variables agree */
        {JOB "SLURM_NNODES=1 SLURM_NTASKS=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 " LEAKED,
         "slurmstepd: [28.batch]", NULL, PLACE_SLURM_BATCH},
        /* salloc inside a step of another job, and on a login node */
        {SALLOC LEAKED, "slurmstepd: [27.0]", NULL, PLACE_SLURM_ALLOC},
        {JOB "SLURM_NNODES=1 SLURM_NTASKS=1 SLURM_PROCID=0 " LEAKED, "slurmstepd: [27.0]", NULL, PLACE_SLURM_ALLOC},
        {SALLOC, NULL, NULL, PLACE_SLURM_ALLOC},
        {SALLOC, NULL, "0::/user.slice/user-1000.slice", PLACE_SLURM_ALLOC},
        {SALLOC, "slurmstepd: [28.extern]", NULL, PLACE_SLURM_ALLOC},
        {SALLOC "SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NODELIST=node1 "
                "SLURM_PROCID=0",
         "slurmstepd: [28.interactive]", NULL, PLACE_SLURM_INTERACTIVE},
        {SALLOC "SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_NODES=4 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0", NULL, NULL,
         PLACE_SLURM_INTERACTIVE},
        /* not yet, or no more, what its title says */
        {STEP, "/usr/sbin/slurmstepd", NULL, PLACE_SLURM_STEP},
        {BATCH, "/usr/sbin/slurmstepd", "0::/slurmstepd.scope/job_28/step_batch", PLACE_SLURM_BATCH},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct place_facts facts = {.stepd = cases[i].title, .cgroup = cases[i].cgroup};
        _cleanup_(seen_fini) struct seen s = see_with(cases[i].words, &facts);
        cr_expect_eq(s.r, 0, "%zu: %s", i, s.err.text);
        cr_expect_eq(s.p.slurm, cases[i].kind, "%zu: %d, not %d", i, s.p.slurm, cases[i].kind);
    }
}

Test(place, a_task_knows_its_step) {
    _cleanup_(seen_fini) struct seen s =
        see(JOB "SLURM_STEP_ID=3 SLURM_STEP_NODELIST=gpu[08-09],gpu11 SLURM_STEP_NUM_NODES=3 SLURM_STEP_NUM_TASKS=5 "
                "SLURM_STEP_TASKS_PER_NODE=2(x2),1 SLURM_NNODES=3 SLURM_NTASKS=5 SLURM_NODEID=1 SLURM_PROCID=4 "
                "SLURM_LOCALID=1 SLURM_RESTART_COUNT=2",
            "slurmstepd: [28.3]");
    cr_assert_eq(s.r, 0, "%s", s.err.text);
    cr_assert_eq(s.p.slurm, PLACE_SLURM_STEP);
    cr_assert_eq(s.p.n_nodes, 3);
    cr_assert_eq(s.p.n_tasks, 5);
    cr_assert_eq(s.p.node_tasks, 2);
    cr_assert_eq(s.p.most_tasks, 2);
    cr_assert_eq(s.p.node_id, 1);
    cr_assert_eq(s.p.local_id, 1);
    cr_assert_eq(s.p.proc_id, 4);
    cr_assert_str_eq(s.p.first_host, "gpu08");
    cr_assert_str_eq(s.p.run_id, "c1.28.3.2");
    cr_assert_eq(s.p.restarts, 2);
    cr_assert_str_eq(s.p.from.n_nodes, "SLURM_STEP_NUM_NODES");
    cr_assert_str_eq(s.p.from.first_host, "SLURM_STEP_NODELIST");
    cr_assert_str_eq(s.p.from.proc_id, "SLURM_PROCID");
    cr_assert_str_eq(s.p.from.run_id, "SLURM_CLUSTER_NAME, SLURM_JOB_ID, SLURM_STEP_ID, SLURM_RESTART_COUNT");
    cr_assert_not(s.p.task_is_shell);
}

/* The job's own variables are those of one component only, and of components with numbers of their own. */
Test(place, a_heterogeneous_step_is_one_step) {
    static const char words[] =
        "SLURM_JOB_ID=30 SLURM_HET_SIZE=2 SLURM_CLUSTER_NAME=c1 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-3] "
        "SLURM_STEP_NUM_NODES=3 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_TASKS_PER_NODE=1(x3) SLURM_NNODES=3 SLURM_NTASKS=3 "
        "SLURM_NODEID=2 SLURM_PROCID=2 SLURM_LOCALID=0";
    static const char *const titles[] = {"slurmstepd: [31.0]", "slurmstepd: [30.0+1]", "slurmstepd: [30+1.0]",
                                         "slurmstepd: [30.0]"};
    for (size_t i = 0; i < ARRAY_SIZE(titles); i++) {
        _cleanup_(seen_fini) struct seen s = see(words, titles[i]);
        cr_expect_eq(s.p.slurm, PLACE_SLURM_STEP, "%s", titles[i]);
        cr_expect_eq(s.p.n_nodes, 3);
        cr_expect_eq(s.p.het_size, 2);
        cr_expect_str_eq(s.p.run_id, "c1.30.0");
    }
    _cleanup_(seen_fini) struct seen other = see(words, "slurmstepd: [32.0]");
    cr_expect_eq(other.p.slurm, PLACE_SLURM_ALLOC);
}

/* The list is sorted, but node 0 is that of the first component. */
Test(place, a_heterogeneous_step_begins_with_its_first_component) {
#define HET                                                                                                    \
    "SLURM_JOB_ID=30 SLURM_HET_SIZE=2 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-2,4] SLURM_STEP_NUM_NODES=3 " \
    "SLURM_STEP_NUM_TASKS=5 SLURM_STEP_TASKS_PER_NODE=2(x2),1 SLURM_NNODES=3 SLURM_NTASKS=5 "
    static const struct {
        const char *words;
        bool first;
        uint32_t tasks;
    } cases[] = {
        {HET "SLURMD_NODENAME=node4 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0", false, 1},
        {HET "SLURMD_NODENAME=node1 SLURM_NODEID=1 SLURM_PROCID=2 SLURM_LOCALID=1", true, 2},
        {HET "SLURMD_NODENAME=node2 SLURM_NODEID=2 SLURM_PROCID=4 SLURM_LOCALID=1", false, 2},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(seen_fini) struct seen s = see(cases[i].words, "slurmstepd: [31.0]");
        cr_expect_eq(s.r, 0, "%s", s.err.text);
        cr_expect_eq(s.p.is_first, cases[i].first, "%s", cases[i].words);
        cr_expect_eq(s.p.node_tasks, cases[i].tasks, "%s", cases[i].words);
        cr_expect_str_eq(s.p.first_host, "node1");
    }
}

/* sbatch sets the plain variables of the first component; salloc sets none of them. */
Test(place, a_heterogeneous_job_has_the_nodes_of_all_components) {
    static const struct {
        const char *words;
        uint32_t nodes;
    } cases[] = {
        {"SLURM_JOB_ID=30 SLURM_HET_SIZE=2 SLURM_JOB_NUM_NODES=1 SLURM_NNODES=1 SLURM_JOB_NUM_NODES_HET_GROUP_0=1 "
         "SLURM_JOB_NUM_NODES_HET_GROUP_1=2",
         3},
        {"SLURM_JOB_ID=30 SLURM_HET_SIZE=2 SLURM_JOB_NUM_NODES_HET_GROUP_0=4 SLURM_JOB_NUM_NODES_HET_GROUP_1=5", 9},
        {"SLURM_JOB_ID=30 SLURM_HET_SIZE=2 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NUM_NODES_HET_GROUP_0=1", 0},
        {"SLURM_JOB_ID=30 SLURM_HET_SIZE=2 SLURM_JOB_NUM_NODES_HET_GROUP_0=4294967295 "
         "SLURM_JOB_NUM_NODES_HET_GROUP_1=2",
         0},
        {"SLURM_JOB_ID=30 SLURM_HET_SIZE=4294967295 SLURM_JOB_NUM_NODES_HET_GROUP_0=1", 0},
    };
    static const char *const titles[] = {"slurmstepd: [30.batch]", NULL};
    for (size_t i = 0; i < ARRAY_SIZE(cases) * ARRAY_SIZE(titles); i++) {
        const char *words = cases[i / ARRAY_SIZE(titles)].words;
        _cleanup_(seen_fini) struct seen s = see(words, titles[i % ARRAY_SIZE(titles)]);
        cr_expect_eq(s.r, 0, "%s", s.err.text);
        cr_expect_eq(s.p.job_nodes, cases[i / ARRAY_SIZE(titles)].nodes, "%s: %u", words, s.p.job_nodes);
    }
}

Test(place, names_a_run_by_cluster_job_step_and_restarts) {
    static const char *const cases[][2] = {
        {STEP, "c1.28.0"},
        {STEP "SLURM_RESTART_COUNT=0", "c1.28.0"},
        {STEP "SLURM_RESTART_COUNT=1", "c1.28.0.1"},
        {BATCH "SLURM_RESTART_COUNT=1", "c1.28.1"},
        {BATCH, "c1.28"},
        {"SLURM_JOBID=7 SLURM_PROCID=0", "7"},
        {"SLURM_JOB_ID=7 SLURM_CLUSTER_NAME=a\tb", "a_b.7"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(seen_fini) struct seen s = see(cases[i][0], NULL);
        cr_expect_str_eq(s.p.run_id, cases[i][1], "%s", cases[i][0]);
    }
    _cleanup_(seen_fini) struct seen s = see(rig_text("SLURM_JOB_ID=%0100d SLURM_CLUSTER_NAME=%0300d", 1, 1), NULL);
    cr_expect_lt(strlen(s.p.run_id), PLACE_RUN_ID_MAX - 1);
}

Test(place, counts_workers_by_what_this_node_has) {
    static const struct {
        const char *words;
        uint32_t nproc;
        bool gpus;
        const char *from;
    } cases[] = {
        {STEP, 1, false, "SLURM_STEP_TASKS_PER_NODE"},
        {STEP "SLURM_GPUS_ON_NODE=4", 4, true, "SLURM_GPUS_ON_NODE"},
        {STEP "SLURM_GPUS_ON_NODE=4 CUDA_VISIBLE_DEVICES=0,1", 2, true, "CUDA_VISIBLE_DEVICES"},
        {STEP "SLURM_GPUS_ON_NODE=2 ROCR_VISIBLE_DEVICES=0,1", 2, true, "ROCR_VISIBLE_DEVICES"},
        {STEP "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2,GPU-3", 3, true, "CUDA_VISIBLE_DEVICES"},
        /* set, but none may be used */
        {STEP "SLURM_GPUS_ON_NODE=4 CUDA_VISIBLE_DEVICES=", 1, false, "SLURM_STEP_TASKS_PER_NODE"},
        {STEP "CUDA_VISIBLE_DEVICES=NoDevFiles", 1, false, "SLURM_STEP_TASKS_PER_NODE"},
        {STEP "SLURM_GPUS_ON_NODE=many", 1, false, "SLURM_STEP_TASKS_PER_NODE"},
        {JOB "SLURM_STEP_ID=0 SLURM_STEP_NODELIST=node[1-2] SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=5 "
             "SLURM_STEP_TASKS_PER_NODE=3,2 SLURM_NNODES=2 SLURM_NTASKS=5 SLURM_NODEID=1 SLURM_PROCID=3 "
             "SLURM_LOCALID=0",
         2, false, "SLURM_STEP_TASKS_PER_NODE"},
        {BATCH, 1, false, "SLURM_TASKS_PER_NODE"},
        {JOB "SLURM_NNODES=2 SLURM_TASKS_PER_NODE=8,4 SLURM_PROCID=0", 8, false, "SLURM_TASKS_PER_NODE"},
        {BATCH "SLURM_GPUS_ON_NODE=8 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7", 8, true, "CUDA_VISIBLE_DEVICES"},
        {JOB "SLURM_PROCID=0", 1, false, NULL},
        {SALLOC, 0, false, NULL}, /* of another machine, perhaps */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(seen_fini) struct seen s = see(cases[i].words, NULL);
        cr_expect_eq(s.r, 0, "%s", s.err.text);
        cr_expect_eq(s.p.nproc, cases[i].nproc, "%s: %u", cases[i].words, s.p.nproc);
        cr_expect_eq(s.p.nproc_is_gpus, cases[i].gpus, "%s", cases[i].words);
        cr_expect_eq(s.p.from.nproc == NULL, cases[i].from == NULL, "%s", cases[i].words);
        if (cases[i].from != NULL && s.p.from.nproc != NULL)
            cr_expect_str_eq(s.p.from.nproc, cases[i].from, "%s", cases[i].words);
    }
}

Test(place, a_step_without_its_variables_is_an_error_that_names_one) {
#define LIST "SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=n[1-2] "
    static const char *const cases[][2] = {
        {JOB, "SLURM_STEP_ID is not set"},
        {JOB "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES"},
        {JOB "SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=0", "SLURM_STEP_NUM_NODES"},
        {JOB "SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=99999999", "SLURM_STEP_NUM_NODES"},
        {JOB "SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=x", "SLURM_STEP_NUM_TASKS"},
        {JOB "SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NODELIST"},
        {JOB "SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=n[1-",
         "SLURM_STEP_NODELIST: "},
        {JOB LIST "SLURM_NODEID=2", "SLURM_NODEID"},
        {JOB LIST "SLURM_NODEID=1 SLURM_PROCID=2", "SLURM_PROCID"},
        {JOB LIST "SLURM_NODEID=1 SLURM_PROCID=1 SLURM_STEP_TASKS_PER_NODE=2", "SLURM_STEP_TASKS_PER_NODE"},
        {JOB LIST "SLURM_NODEID=1 SLURM_PROCID=1 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_LOCALID=1", "SLURM_LOCALID"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(seen_fini) struct seen s = see(cases[i][0], "slurmstepd: [28.0]");
        cr_expect_eq(s.r, -EINVAL, "%s", cases[i][0]);
        cr_expect_eq(s.p.slurm, PLACE_SLURM_STEP);
        cr_expect_not_null(strstr(s.err.text, cases[i][1]), "%s: %s", cases[i][0], s.err.text);
    }
}

Test(place, sees_a_shell_between_slurm_and_muster) {
    static const struct {
        struct place_facts facts;
        bool shell;
    } cases[] = {
        {{.stepd = "slurmstepd: [28.0]", .stepd_is_parent = true, .parent = "slurmstepd"}, false},
        {{.stepd = "slurmstepd: [28.0]", .parent = "bash"}, true},
        {{.stepd = "slurmstepd: [28.0]", .parent = "sh"}, true},
        {{.stepd = "slurmstepd: [28.0]", .parent = "starter-suid"}, false},
        {{.stepd = "slurmstepd: [28.0]", .parent = NULL}, false},
        {{.parent = "bash"}, false}, /* in a container with its own process ids, nobody knows */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(seen_fini) struct seen s = see_with(STEP, &cases[i].facts);
        cr_expect_eq(s.p.task_is_shell, cases[i].shell, "%zu", i);
    }
}

Test(place, tells_where_it_is) {
    static const char *const cases[][3] = {
        {"A=1", NULL, "no job of Slurm"},
        {STEP, "slurmstepd: [28.0]", "Slurm's step 28.0"},
        {BATCH, "slurmstepd: [28.batch]", "the batch script of Slurm's job 28"},
        {SALLOC, NULL, "an allocation of Slurm, job 28"},
        {SALLOC, "slurmstepd: [28.interactive]", "the interactive step of Slurm's job 28"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[PLACE_TEXT_MAX];
        _cleanup_(seen_fini) struct seen s = see(cases[i][0], cases[i][1]);
        place_text(&s.p, text);
        cr_expect_str_eq(text, cases[i][2]);
    }
}

static bool all_differ_within(const uint16_t *ports, size_t n, uint16_t low, uint16_t high) {
    for (size_t i = 0; i < n; i++) {
        if (ports[i] < low || ports[i] > high)
            return false;
        for (size_t k = 0; k < i; k++)
            if (ports[k] == ports[i])
                return false;
    }
    return true;
}

Test(place, ports_of_a_run_are_its_own) {
    static const uint16_t ranges[][2] = {{PLACE_PORT_LOW, PLACE_PORT_HIGH},
                                         {1, 65535},
                                         {29500, 29500},
                                         {7, 22},
                                         {100, 111},
                                         {20000, 20030},
                                         {65520, 65535}};
    uint16_t ports[PLACE_PORTS_MAX], again[PLACE_PORTS_MAX];
    for (uint32_t job = 1; job < 500; job++) {
        const char *id = rig_text("c1.%u.0", job);
        for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
            uint32_t size = (uint32_t)(ranges[i][1] - ranges[i][0]) + 1;
            size_t n = place_ports(id, ranges[i][0], ranges[i][1], ports);
            cr_assert_eq(n, MIN2(size, (uint32_t)PLACE_PORTS_MAX));
            cr_assert(all_differ_within(ports, n, ranges[i][0], ranges[i][1]), "%s in %u-%u", id, ranges[i][0],
                      ranges[i][1]);
            cr_assert_eq(place_ports(id, ranges[i][0], ranges[i][1], again), n);
            cr_assert_arr_eq(ports, again, n * sizeof *ports);
        }
    }
}

/* Neighbours in the queue share a first node often. By chance, of 1000 runs with 17000 ports, 28 begin where
 * one before them begins; then the second port must differ, or they would share all. */
Test(place, runs_that_share_a_port_seldom_share_the_next) {
    static uint16_t ports[1000][PLACE_PORTS_MAX];
    unsigned first = 0, both = 0;
    for (uint32_t job = 0; job < 1000; job++) {
        const char *id = rig_text("cluster.%u.%u", 71000 + job, job % 3);
        cr_assert_eq(place_ports(id, PLACE_PORT_LOW, PLACE_PORT_HIGH, ports[job]), PLACE_PORTS_MAX);
        for (uint32_t k = 0; k < job; k++) {
            first += ports[job][0] == ports[k][0];
            both += ports[job][0] == ports[k][0] && ports[job][1] == ports[k][1];
        }
    }
    cr_assert_lt(first, 60, "%u", first);
    cr_assert_eq(both, 0);
}

/* Nodes of two releases of muster must agree. */
Test(place, ports_do_not_change_between_releases) {
    uint16_t ports[PLACE_PORTS_MAX];
    cr_assert_eq(place_ports("c1.28.0", 100, 200, ports), PLACE_PORTS_MAX);
    cr_assert_eq(ports[0], 173);
    cr_assert_eq(ports[1], 117);
}
