#include "launcher/node/node_setup.h"

#include "rig/unit.h"
#include "topology/discover/discovery_io.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

/* Two nodes of four cores; two GPUs on each. */
static struct topology machine;
static struct job_spec spec;
static struct node_setup setup;
static char *none[] = {NULL};
static struct rocm_gpu rocm[4];
static uint32_t n_rocm;

static void make_machine(void) {
    for (uint32_t n = 0; n < 2; n++) {
        struct topo_numa *numa = topology_add_numa(&machine);
        numa->index = (int32_t)n;
        numa->package = (int32_t)n;
        for (uint32_t c = 4 * n; c < 4 * n + 4; c++) {
            struct topo_core *core = topology_add_core(&machine);
            core->numa = core->package = (int32_t)n;
            cpuset_add(&core->cpus, c);
            cpuset_add(&numa->cpus, c);
            cpuset_add(&machine.allowed, c);
        }
    }
    for (uint32_t i = 0; i < 4; i++) {
        struct topo_pci *p = topology_add_pci(&machine);
        p->at.bus = (uint8_t)i;
        p->device = 0x2330;
        p->numa = (int32_t)i / 2;
        struct topo_gpu *g = topology_add_gpu(&machine);
        g->pci = i;
        g->vendor = TOPO_VENDOR_NVIDIA;
        g->numa = (int32_t)i / 2;
        (void)snprintf(g->uuid, sizeof g->uuid, "GPU-%u", i);
    }
    topology_sort(&machine);
    n_rocm = 0;
    spec = (struct job_spec){.nproc = 4, .bind_memory = BIND_MEMORY_PREFERRED};
}

static void drop_machine(void) {
    node_setup_fini(&setup);
    topology_fini(&machine);
}
TestSuite(node_setup, .init = make_machine, .fini = drop_machine);

static int make(bool gpus, char *const *envp, struct err *err) {
    node_setup_fini(&setup);
    struct node_setup_input in = {.spec = &spec,
                                  .env = {.envp = envp, .any_gpu = gpus, .topology = &machine, .n_nodes = 1},
                                  .rocm = rocm,
                                  .n_rocm = n_rocm};
    return node_setup_make(&in, &setup, err);
}

static const char *said(char *const *envp) {
    _cleanup_(strbuf_fini) struct strbuf bound = {0}, unbound = {0};
    cr_assert_eq(make(true, envp, NULL), 0);
    node_setup_describe(&setup, &bound);
    node_setup_describe_unbound(&setup, &unbound);
    return rig_text("%s|%s", strbuf_text(&bound), strbuf_text(&unbound));
}

Test(node_setup, nothing_is_looked_at_that_nobody_needs) {
    struct job_spec s = {.nproc = 2, .nccl_env = NCCL_ENV_FULL};
    cr_expect_eq(node_setup_needs(&s, false), 0, "no GPU, and nothing was asked for");
    cr_expect_eq(node_setup_needs(&s, true), DISCOVER_ALL);
    s.nccl_env = NCCL_ENV_OFF;
    cr_expect_eq(node_setup_needs(&s, true), DISCOVER_CPUS | DISCOVER_PCI | DISCOVER_NVML);
    s.bind = BIND_NONE;
    cr_expect_eq(node_setup_needs(&s, true), 0);
    s.omp = JOB_OMP_CORES;
    cr_expect_eq(node_setup_needs(&s, true), DISCOVER_CPUS);
    s = (struct job_spec){.nproc = 2, .bind = BIND_CORE, .nccl_env = NCCL_ENV_FULL};
    cr_expect_eq(node_setup_needs(&s, false), DISCOVER_CPUS);
}

Test(node_setup, the_default_binds_where_gpus_are_seen) {
    cr_expect_str_eq(said(none),
                     "workers are bound to CPUs: local rank 0-1 to 0-3, memory first of node 0; 2-3 to 4-7, "
                     "memory first of node 1|");
    cr_expect_eq(setup.mode, BIND_NUMA);
    char *blind[] = {TEXT("CUDA_VISIBLE_DEVICES="), NULL};
    cr_expect_str_eq(said(blind), "|");
    cr_expect_eq(setup.mode, BIND_NONE);
    cr_assert_eq(make(false, none, NULL), 0);
    cr_expect_eq(setup.mode, BIND_NONE);
}

/* The output of -v about one worker. */
static const char *told(char *const *envp, uint32_t i) {
    static char text[512];
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    cr_assert_eq(make(true, envp, NULL), 0);
    node_setup_describe_worker(&setup, i, &line);
    (void)snprintf(text, sizeof text, "%s", strbuf_text(&line));
    return text;
}

Test(node_setup, a_single_worker_belongs_to_all_gpus_unless_told_otherwise) {
    spec.nproc = 1;
    cr_expect_str_eq(said(none), "|", "its GPUs are everywhere: nothing is done or said");
    cr_expect_not(setup.workers[0].affinity.bound);
    cr_expect_str_eq(told(none, 0), "local rank 0: not bound: all CPUs here are of NUMA nodes 0-1 of GPUs 0-3");
    char *near[] = {TEXT("CUDA_VISIBLE_DEVICES=2,3"), NULL};
    cr_expect_str_eq(told(near, 0), "local rank 0: CPUs 4-7, memory first of node 1 (NUMA node 1 of GPUs 0-1)");
    /* If requested: the node of GPU 0, of as many GPUs as it is given, and of the one that it sees. */
    spec.bind = BIND_NUMA;
    cr_expect_str_eq(said(none), "workers are bound to CPUs: local rank 0 to 0-3, memory first of node 0|");
    spec.gpus_per_worker = 3;
    cr_expect_str_eq(said(none), "workers are bound to CPUs: local rank 0 to 0-7, memory first of node 0-1|");
    spec.bind = 0;
    spec.gpus_per_worker = 1;
    cr_expect_str_eq(said(none), "workers are bound to CPUs: local rank 0 to 0-3, memory first of node 0|");
    spec.gpus_per_worker = 0;
    spec.virtual_local_rank = true;
    cr_expect_str_eq(said(none), "workers are bound to CPUs: local rank 0 to 0-3, memory first of node 0|");
}

Test(node_setup, two_workers_have_a_gpu_each_whatever_more_there_are) {
    spec.nproc = 2;
    cr_expect_str_eq(said(none), "workers are bound to CPUs: local rank 0-1 to 0-3, memory first of node 0|");
}

Test(node_setup, the_order_of_unlike_gpus_does_not_matter_to_who_has_them_all) {
    spec.nproc = 1;
    machine.pci[3].device = 0x20b0;
    for (uint32_t i = 0; i < 4; i++)
        machine.gpus[i].numa = 1;
    cr_expect_str_eq(said(none), "workers are bound to CPUs: local rank 0 to 4-7, memory first of node 1|");
    char *some[] = {TEXT("CUDA_VISIBLE_DEVICES=2,3"), NULL};
    expect_has(said(some), "no worker is bound: CUDA orders unlike GPUs by speed");
}

Test(node_setup, the_default_is_silent_where_it_changes_nothing) {
    machine.n_numa = 1; /* node 0 and its cores */
    machine.n_cores = 4;
    machine.allowed = machine.numa[0].cpus;
    spec.nproc = 6;
    for (uint32_t i = 0; i < 4; i++)
        machine.gpus[i].numa = i < 2 ? 0 : -1; /* as in virtual machines */
    cr_expect_str_eq(said(none), "|");
    cr_expect_not(setup.workers[0].affinity.bound);
    /* What is requested is done, and reported. */
    spec.bind = BIND_NUMA;
    cr_expect_str_eq(said(none),
                     "workers are bound to CPUs: local rank 0-1 to 0-3, memory first of node 0|local rank 2 "
                     "and 3 more are not bound: the NUMA node of GPU 2 (0000:02:00.0) is not known");
    spec.bind = 0;
    spec.bind_memory = BIND_MEMORY_STRICT;
    expect_has(said(none), "memory only of node 0");
    /* It gets CPUs of a node that two of its GPUs are not on, which must be reported. */
    spec.bind_memory = BIND_MEMORY_PREFERRED;
    machine.gpus[2].numa = machine.gpus[3].numa = 1;
    spec.nproc = 4;
    cr_expect_str_eq(said(none),
                     "|local rank 2 and 1 more are not bound: NUMA node 1 of GPU 2 (0000:02:00.0) has no CPU "
                     "that may be used here");
}

Test(node_setup, cuda_visible_devices_says_which_gpu_is_whose) {
    char *turned[] = {TEXT("CUDA_VISIBLE_DEVICES=3,0,GPU"), NULL};
    spec.nproc = 2;
    cr_expect_str_eq(said(turned), "workers are bound to CPUs: local rank 0 to 4-7, memory first of node 1; 1 to 0-3, "
                                   "memory first of node 0|");
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    node_setup_describe_worker(&setup, 0, &line);
    cr_expect_str_eq(strbuf_text(&line),
                     "local rank 0: CPUs 4-7, memory first of node 1 (NUMA node 1 of GPU 0 (0000:03:00.0))");
}

Test(node_setup, what_is_set_for_the_workers_says_it_too) {
    char *turned[] = {TEXT("CUDA_VISIBLE_DEVICES=3,0"), NULL}, *asked[] = {TEXT("CUDA_VISIBLE_DEVICES=0,3"), NULL};
    spec.nproc = 2;
    spec.env = asked;
    expect_has(said(turned), "local rank 0 to 0-3");
}

Test(node_setup, who_has_no_gpu_is_not_bound_and_that_is_said) {
    spec.nproc = 6;
    cr_expect_str_eq(said(none),
                     "workers are bound to CPUs: local rank 0-1 to 0-3, memory first of node 0; 2-3 to 4-7, "
                     "memory first of node 1|local rank 4 and 1 more are not bound: there is no GPU for it "
                     "among the 4 visible");
}

Test(node_setup, gpus_that_nobody_can_tell_apart_bind_nobody) {
    char *mig[] = {TEXT("CUDA_VISIBLE_DEVICES=MIG-1234"), NULL};
    spec.bind = BIND_NUMA;
    cr_expect_str_eq(said(mig),
                     "|no worker is bound: CUDA_VISIBLE_DEVICES names GPUs that can't be distinguished here");
    machine.pci[3].device = 0x20b0;
    expect_has(said(none), "|no worker is bound: CUDA orders unlike GPUs by speed");
    char *ordered[] = {TEXT("CUDA_DEVICE_ORDER=PCI_BUS_ID"), NULL};
    cr_expect(strstr(said(ordered), "is bound") == NULL);
    char *named[] = {TEXT("CUDA_VISIBLE_DEVICES=GPU-3,GPU-2,GPU-1,GPU-0"), NULL};
    expect_has(said(named), "local rank 0-1 to 4-7");
}

Test(node_setup, workers_with_a_mig_device_each_are_near_its_gpu) {
    char *mig[] = {TEXT("CUDA_VISIBLE_DEVICES=MIG-bb,MIG-aa"), NULL};
    (void)strcpy(machine.gpus[0].mig_uuids[0], "MIG-aa");
    (void)strcpy(machine.gpus[3].mig_uuids[0], "MIG-bb");
    machine.gpus[0].n_mig = machine.gpus[3].n_mig = 1;
    machine.pci[3].device = 0x20b0; /* names identify the GPUs */
    spec.nproc = 2;
    expect_has(said(mig), "|local rank 1 is not bound: there is no GPU for it among the 1 visible");
    spec.virtual_local_rank = true;
    cr_expect_str_eq(said(mig),
                     "workers are bound to CPUs: local rank 0 to 4-7, memory first of node 1; 1 to 0-3, memory "
                     "first of node 0|");
}

/* In the kernel's order: those of node 1 first. */
static void make_them_amds(void) {
    for (n_rocm = 0; n_rocm < 4; n_rocm++) {
        machine.gpus[n_rocm].vendor = TOPO_VENDOR_AMD;
        rocm[n_rocm] = (struct rocm_gpu){.at = machine.pci[3 - n_rocm].at, .unique_id = n_rocm + 1};
    }
}

Test(node_setup, amds_gpus_are_in_rocms_order) {
    make_them_amds();
    cr_expect_str_eq(said(none),
                     "workers are bound to CPUs: local rank 0-1 to 4-7, memory first of node 1; 2-3 to 0-3, "
                     "memory first of node 0|");
    cr_expect_eq(setup.n_visible, 0, "the rules know CUDA's only");
    cr_expect_str_eq(told(none, 3),
                     "local rank 3: CPUs 0-3, memory first of node 0 (NUMA node 0 of GPU 3 (0000:00:00.0))");
    char *some[] = {TEXT("ROCR_VISIBLE_DEVICES=0,3,2"), TEXT("HIP_VISIBLE_DEVICES=1,0"), NULL};
    spec.nproc = 2;
    expect_has(said(some), "local rank 0 to 0-3, memory first of node 0; 1 to 4-7,");
    char *asked[] = {TEXT("HIP_VISIBLE_DEVICES=0,1"), NULL};
    spec.env = asked;
    expect_has(said(some), "local rank 0 to 4-7, memory first of node 1; 1 to 0-3,");
    char *hidden[] = {TEXT("HIP_VISIBLE_DEVICES="), NULL};
    spec.env = NULL;
    cr_expect_str_eq(said(hidden), "|");
    cr_expect_eq(setup.mode, BIND_NONE);
    spec.bind = BIND_TORCH_NODE;
    expect_has(said(none), "local rank 0-1 to 4-7|");
    cr_expect_eq(make(true, hidden, NULL), -ENOENT);
}

Test(node_setup, amds_gpus_that_the_kernel_does_not_number_bind_nobody_by_default) {
    make_them_amds();
    n_rocm = 0;
    cr_expect_str_eq(said(none), "|");
    spec.bind = BIND_NUMA; /* as without GPUs */
    expect_has(said(none), "local rank 0-1 to 0-3, memory first of node 0; 2-3 to 4-7,");
    n_rocm = 4;
    rocm[2].at.bus = 77;
    cr_expect_str_eq(said(none), "|no worker is bound: ROCm shows GPUs that are not among the PCI devices seen here");
}

Test(node_setup, beside_nvidias_amds_gpus_do_not_count) {
    make_them_amds();
    machine.gpus[0].vendor = TOPO_VENDOR_NVIDIA;
    spec.nproc = 2;
    cr_expect_str_eq(said(none),
                     "workers are bound to CPUs: local rank 0 to 0-3, memory first of node 0|local rank 1 is "
                     "not bound: there is no GPU for it among the 1 visible");
}

Test(node_setup, intels_gpus_bind_nobody_by_default) {
    for (uint32_t i = 0; i < 4; i++)
        machine.gpus[i].vendor = TOPO_VENDOR_INTEL;
    cr_expect_str_eq(said(none), "|");
    spec.bind = BIND_NUMA;
    expect_has(said(none), "local rank 0-1 to 0-3, memory first of node 0; 2-3 to 4-7,");
}

Test(node_setup, many_sets_are_not_all_spelled_out) {
    spec.nproc = 8;
    spec.bind = BIND_CORE;
    spec.bind_memory = BIND_MEMORY_OFF;
    cr_expect_str_eq(said(none), "workers are bound to CPUs: local rank 0 to 0; 1 to 1; 2 to 4; 3 to 5; and 4 more|");
}

Test(node_setup, threads_are_as_many_as_cores_or_ones_part_of_them) {
    spec.omp = JOB_OMP_CORES;
    cr_assert_eq(make(true, none, NULL), 0);
    for (uint32_t i = 0; i < 4; i++)
        cr_expect_eq(setup.workers[i].omp_threads, 2, "two workers on four cores");
    spec.bind = BIND_NONE;
    spec.nproc = 3;
    cr_assert_eq(make(true, none, NULL), 0);
    cr_expect_eq(setup.workers[0].omp_threads, 2, "a third of eight");
    spec.nproc = 20;
    cr_assert_eq(make(true, none, NULL), 0);
    cr_expect_eq(setup.workers[19].omp_threads, 1);
    spec.nproc = 1;
    spec.bind = BIND_TORCH_EXCLUSIVE;
    cr_assert_eq(make(true, none, NULL), 0);
    cr_expect_eq(setup.workers[0].omp_threads, 2, "an own half of its node");
}

Test(node_setup, a_thousand_workers_share_the_variables_that_are_alike) {
    spec.omp = JOB_OMP_CORES;
    spec.bind = BIND_CORE;
    spec.nproc = 1000;
    cr_assert_eq(make(true, none, NULL), 0);
    const struct env_choice *omp = env_result_find(setup.workers[0].env, "OMP_NUM_THREADS");
    cr_assert_not_null(omp);
    cr_expect_str_eq(omp->value, "1");
    for (uint32_t i = 0; i < 1000; i++)
        cr_assert_eq(setup.workers[i].env, setup.workers[0].env, "%u", i);
    spec.nproc = 3; /* of eight cores */
    cr_assert_eq(make(true, none, NULL), 0);
    for (uint32_t i = 0; i < 3; i++) {
        const char *threads = rig_text("%u", setup.workers[i].omp_threads);
        cr_expect_str_eq(env_result_find(setup.workers[i].env, "OMP_NUM_THREADS")->value, threads);
    }
    cr_expect_neq(setup.workers[0].env, setup.workers[2].env);
    spec.virtual_local_rank = true; /* each has a different GPU */
    cr_assert_eq(make(true, none, NULL), 0);
    cr_expect_neq(setup.workers[0].env, setup.workers[1].env);
}

Test(node_setup, a_mode_of_torchrun_that_can_not_bind_is_an_error) {
    struct err err = {0};
    spec.bind = BIND_TORCH_NODE;
    spec.nproc = 5;
    cr_expect_eq(make(true, none, &err), -ERANGE);
    expect_has(err.text, "needs a GPU of its own");
    char *blind[] = {TEXT("CUDA_VISIBLE_DEVICES="), NULL};
    cr_expect_eq(make(true, blind, &err), -ENOENT);
}

Test(node_setup, a_look_that_failed_binds_nobody) {
    spec.bind = BIND_TORCH_NODE;
    struct node_setup_input in = {.spec = &spec, .env = {.envp = none, .any_gpu = true, .n_nodes = 1}};
    cr_assert_eq(node_setup_make(&in, &setup, NULL), 0);
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    node_setup_describe_unbound(&setup, &line);
    cr_expect_str_eq(strbuf_text(&line), "no worker is bound: nothing is known about this node");
}
