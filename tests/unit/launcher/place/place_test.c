#include "launcher/place/place.h"

#include "rig/unit.h"

#define TEXT(s) ((char *)(uintptr_t)(s))
#define STEP                                                                                                  \
    TEXT("SLURM_JOB_ID=28"), TEXT("SLURM_STEP_ID=0"), TEXT("SLURM_STEP_NUM_NODES=1"), TEXT("SLURM_NNODES=1"), \
        TEXT("SLURM_STEP_NUM_TASKS=1"), TEXT("SLURM_NTASKS=1"), TEXT("SLURM_STEP_NODELIST=n1"),               \
        TEXT("SLURM_NODEID=0"), TEXT("SLURM_PROCID=0"), TEXT("SLURM_LOCALID=0"), TEXT("SLURM_STEP_TASKS_PER_NODE=1")
#define STARTER TEXT("MUSTER_HEAD=10.0.0.1:4711")
#define POD TEXT("KUBERNETES_SERVICE_HOST=10.96.0.1")

static int n_facts, n_hosts;

static void facts(void *arg, struct place_facts *ret) {
    *ret = (struct place_facts){0};
    n_facts++;
}

static char *hosts(void *arg, const char *path) {
    cr_assert_str_eq(path, "/etc/hosts");
    n_hosts++;
    return xstrdup("10.244.0.5\ttrain-3.mesh.team.svc\ttrain-3\n");
}

static struct place p;

static void finish(void) { place_fini(&p); }
TestSuite(place, .fini = finish);

static void read_place(char *const *envp) {
    static const struct place_probes probes = {.facts = facts, .file = hosts};
    place_fini(&p);
    cr_assert_eq(place_read(envp, &probes, &p, NULL), 0);
}

Test(place, knows_who_started_this_process) {
    static const struct {
        char *envp[16];
        enum place_by by;
    } cases[] = {
        {{NULL}, PLACE_BY_HAND},
        {{TEXT("MUSTER_HEAD="), NULL}, PLACE_BY_HAND},
        {{TEXT("SLURM_JOB_ID=28"), TEXT("SLURM_PROCID=0"), NULL}, PLACE_BY_HAND}, /* a batch script */
        {{STEP, NULL}, PLACE_BY_USER_SRUN},
        {{STEP, STARTER, NULL}, PLACE_BY_OWN_SRUN},
        {{TEXT("MUSTER_HEAD=fd:7"), NULL}, PLACE_BY_OWN_SSH},
        {{TEXT("MUSTER_HEAD=fd:7"), POD, NULL}, PLACE_BY_OWN_SSH},
        {{POD, NULL}, PLACE_BY_POD},
        {{POD, STEP, NULL}, PLACE_BY_USER_SRUN},
        {{STEP, TEXT("TORCHELASTIC_RUN_ID=x"), NULL}, PLACE_BY_HAND}, /* a worker's own run */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        read_place(cases[i].envp);
        cr_expect_eq(p.by, cases[i].by, "%zu: %d", i, p.by);
        cr_expect_eq(place_has_starter(&p), p.by == PLACE_BY_OWN_SRUN || p.by == PLACE_BY_OWN_SSH);
    }
}

Test(place, a_run_of_a_worker_knows_the_job_but_no_step) {
    char *envp[] = {STEP, TEXT("SLURM_RESTART_COUNT=2"), TEXT("TORCHELASTIC_RUN_ID=x"), NULL};
    read_place(envp);
    cr_assert_eq(p.slurm, PLACE_SLURM_NONE);
    cr_assert_str_eq(p.job_id, "28");
    cr_assert_eq(p.restarts, 2);
    cr_assert(p.n_nodes == 0 && p.step_id == NULL && p.job_nodelist == NULL);
}

Test(place, what_is_slow_is_asked_only_where_it_can_matter) {
    static const struct {
        char *envp[4];
        int n_facts, n_hosts;
    } cases[] = {
        {{TEXT("HOME=/h"), NULL}, 0, 0},
        {{POD, NULL}, 0, 0},
        {{POD, TEXT("JOB_COMPLETION_INDEX=3"), NULL}, 0, 1},
        {{TEXT("SLURM_JOB_ID=28"), NULL}, 1, 0},
        {{TEXT("SLURM_JOBID=28"), NULL}, 1, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        n_facts = n_hosts = 0;
        read_place(cases[i].envp);
        cr_expect(n_facts == cases[i].n_facts && n_hosts == cases[i].n_hosts, "%zu", i);
        if (n_hosts > 0)
            cr_expect_str_eq(p.pod.first_host, "train-0.mesh.team.svc");
    }
}

Test(place, settings_of_srun_are_read_everywhere) {
    char *envp[] = {TEXT("SLURM_TOPOLOGY_ADDR=s0.s1.n3"),
                    TEXT("SLURM_LAUNCH_NODE_IPADDR=10.0.0.9"),
                    TEXT("SLURM_LABELIO=1"),
                    TEXT("SLURM_CPU_BIND_TYPE=mask_cpu:"),
                    TEXT("SLURM_CPU_BIND_LIST=0x3,0xC"),
                    TEXT("SLURM_CPUS_ON_NODE=4"),
                    TEXT("SLURM_JOB_END_TIME=1700000000"),
                    NULL};
    read_place(envp);
    cr_assert_str_eq(p.topology, "s0.s1.n3");
    cr_assert_null(p.block);
    cr_assert_str_eq(p.srun_host, "10.0.0.9");
    cr_assert(p.srun_labels);
    cr_assert_str_eq(p.cpu_masks, "0x3,0xC");
    cr_assert_eq(p.cpus_on_node, 4);
    cr_assert_eq(p.job_end_s, 1700000000);
    char *none[] = {TEXT("SLURM_LABELIO=0"), TEXT("SLURM_CPU_BIND_TYPE=none"), TEXT("SLURM_CPU_BIND_LIST=0x3"), NULL};
    read_place(none);
    cr_assert(!p.srun_labels && p.cpu_masks == NULL && p.topology == NULL);
}

Test(place, a_block_of_slurm_is_known_by_the_pattern) {
    static const char *const cases[][2] = {
        {"SLURM_TOPOLOGY_ADDR_PATTERN=block.node", "b8"}, {"SLURM_TOPOLOGY_ADDR_PATTERN=switch.node", ""}, {"X=", ""}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *envp[] = {TEXT("SLURM_TOPOLOGY_ADDR=b8.tux1.example"), (char *)(uintptr_t)cases[i][0], NULL};
        read_place(envp);
        cr_assert_str_eq(p.block != NULL ? p.block : "", cases[i][1]);
    }
}
