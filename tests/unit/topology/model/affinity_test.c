#include "topology/model/affinity.h"

#include "rig/unit.h"

/* Two packages of two nodes with four cores of two threads: node n has cores 4n…4n+3, core c the CPUs c and c+16. Two
 * cores share one cache. A GPU on each node, and a second one on node 3. */
static struct topology machine;
static uint32_t visible[] = {0, 1, 2, 3, 4};

static struct cpuset set(const char *list) {
    struct cpuset s = {0};
    cr_assert_eq(cpuset_parse_list(list, &s), 0);
    return s;
}

static void add_gpu(int32_t numa, uint8_t bus, uint8_t fn) {
    struct topo_pci *p = topology_add_pci(&machine);
    p->at = (struct pci_addr){.bus = bus, .fn = fn};
    p->numa = numa;
    struct topo_gpu *g = topology_add_gpu(&machine);
    g->pci = machine.n_pci - 1;
    g->vendor = TOPO_VENDOR_NVIDIA;
    g->numa = numa;
    (void)snprintf(g->uuid, sizeof g->uuid, "GPU-%02x", bus);
}

static void make_machine(void) {
    machine.packages = 2;
    machine.allowed = set("0-31");
    for (int n = 0; n < 4; n++) {
        struct topo_numa *numa = topology_add_numa(&machine);
        numa->index = n;
        numa->package = n / 2;
        numa->bytes = 1 << 20;
        for (uint32_t c = 4 * (uint32_t)n; c < 4 * (uint32_t)n + 4; c++) {
            struct topo_core *core = topology_add_core(&machine);
            core->numa = n;
            core->package = n / 2;
            core->first = c;
            cpuset_add(&core->cpus, c);
            cpuset_add(&core->cpus, c + 16);
            cpuset_or(&numa->cpus, &core->cpus);
            if (c % 2 == 0) {
                struct topo_cache *cache = topology_add_cache(&machine);
                cache->level = 3;
                cache->first = c;
            }
            cpuset_or(&machine.caches[machine.n_caches - 1].cpus, &core->cpus);
        }
    }
    for (int i = 0; i < 5; i++)
        add_gpu(i < 4 ? i : 3, (uint8_t)(16 + i), 0);
    topology_sort(&machine);
}

static void drop_machine(void) { topology_fini(&machine); }
TestSuite(affinity, .init = make_machine, .fini = drop_machine);

static struct affinity_input input(enum bind_mode mode, uint32_t nproc, uint32_t gpus) {
    return (struct affinity_input){.mode = mode,
                                   .memory = BIND_MEMORY_PREFERRED,
                                   .nproc = nproc,
                                   .visible = visible,
                                   .n_visible = gpus,
                                   .gpus_per_worker = 1};
}

/* CPUs and memory nodes of one worker, "CPUS/NODES", or "unbound". */
static const char *of(struct affinity_input in, uint32_t local_rank) {
    static char text[512];
    struct affinity a;
    struct err err = {0};
    in.local_rank = local_rank;
    int r = affinity_choose(&machine, &in, &a, &err);
    if (r < 0)
        return strcpy(text, err.text);
    cr_expect_eq(a.bound, !cpuset_is_empty(&a.cpus));
    cr_expect_str_neq(a.why, "");
    _cleanup_(strbuf_fini) struct strbuf cpus = {0}, nodes = {0};
    cpuset_write_list(&a.cpus, &cpus);
    cpuset_write_list(&a.nodes, &nodes);
    (void)snprintf(text, sizeof text, "%s/%s", strbuf_text(&cpus), strbuf_text(&nodes));
    return a.bound ? text : "unbound";
}

Test(affinity, none_is_not_bound) { cr_expect_str_eq(of(input(BIND_NONE, 4, 4), 0), "unbound"); }

Test(affinity, memory_follows_the_cpus) {
    cr_expect_str_eq(of(input(BIND_NUMA, 4, 4), 1), "4-7,20-23/1");
    cr_expect_str_eq(of(input(BIND_SOCKET, 4, 4), 1), "0-7,16-23/0-1");
    struct affinity_input in = *WITH(input(BIND_NUMA, 4, 4), .memory = BIND_MEMORY_OFF);
    cr_expect_str_eq(of(in, 1), "4-7,20-23/");
    struct affinity a;
    in.memory = BIND_MEMORY_STRICT;
    cr_assert_eq(affinity_choose(&machine, &in, &a, NULL), 0);
    cr_expect(a.strict);
    cr_expect_str_eq(a.why, "NUMA node 0 of GPU 0 (0000:10:00.0)");
}

Test(affinity, torchruns_modes_have_no_memory) {
    cr_expect_str_eq(of(input(BIND_TORCH_NODE, 4, 4), 1), "4-7,20-23/");
    cr_expect_str_eq(of(input(BIND_TORCH_SOCKET, 4, 4), 3), "8-15,24-31/");
}

Test(affinity, memory_is_never_that_of_a_gpu_nor_of_a_node_without_any) {
    struct topo_numa *gpu_memory = topology_add_numa(&machine);
    gpu_memory->index = 252;
    gpu_memory->gpu_memory = true;
    gpu_memory->bytes = 1 << 20;
    gpu_memory->near = set("0-3");
    struct topo_numa *beside = topology_add_numa(&machine); /* HBM */
    beside->index = 8;
    beside->bytes = 1 << 20;
    beside->near = machine.numa[1].cpus;
    machine.numa[0].bytes = 0;
    cr_expect_str_eq(of(input(BIND_SOCKET, 4, 4), 0), "0-7,16-23/1");
    cr_expect_str_eq(of(input(BIND_NUMA, 8, 0), 7), "12-15,28-31/3");
}

Test(affinity, a_worker_without_a_gpu_of_its_own_is_not_bound_near_one) {
    cr_expect_str_eq(of(input(BIND_NUMA, 5, 4), 4), "unbound");
    cr_expect_str_eq(of(input(BIND_TORCH_NODE, 5, 4), 4),
                     "--numa-binding: local rank 4 needs a GPU of its own, and 4 are visible");
    struct affinity a;
    struct affinity_input in = *WITH(input(BIND_TORCH_NODE, 5, 4), .local_rank = 4);
    cr_expect_eq(affinity_choose(&machine, &in, &a, NULL), -ERANGE);
    in = input(BIND_TORCH_NODE, 1, 0);
    cr_expect_eq(affinity_choose(&machine, &in, &a, NULL), -ENOENT);
}

static const char *why(struct affinity_input in, uint32_t local_rank) {
    static char text[TOPO_TEXT_MAX];
    struct affinity a;
    in.local_rank = local_rank;
    cr_assert_eq(affinity_choose(&machine, &in, &a, NULL), 0);
    return strcpy(text, a.why);
}

Test(affinity, several_gpus_for_a_worker_bind_it_near_all_of_them) {
    struct affinity_input in = *WITH(input(BIND_NUMA, 2, 5), .gpus_per_worker = 2);
    cr_expect_str_eq(of(in, 0), "0-7,16-23/0-1");
    cr_expect_str_eq(why(in, 0), "NUMA nodes 0-1 of GPUs 0-1");
    cr_expect_str_eq(of(in, 1), "8-15,24-31/2-3");
    in.mode = BIND_SOCKET;
    cr_expect_str_eq(of(in, 1), "8-15,24-31/2-3");
    cr_expect_str_eq(why(in, 1), "package 1 of GPUs 2-3");
    in.gpus_per_worker = 3; /* the second has only two */
    cr_expect_str_eq(of(in, 1), "8-15,24-31/2-3");
    cr_expect_str_eq(why(in, 0), "packages 0-1 of GPUs 0-2");
    in.mode = BIND_NUMA;
    cr_expect_str_eq(of(in, 1), "12-15,28-31/3");
    cr_expect_str_eq(why(in, 1), "NUMA node 3 of GPUs 3-4");
    in.gpus_per_worker = 5;
    in.n_visible = UINT32_MAX / 2; /* never read past a worker's own */
    in.nproc = 1;
    cr_expect_str_eq(of(in, 0), "0-31/0-3");
}

Test(affinity, of_several_gpus_torchruns_modes_take_the_first) {
    struct affinity_input in = *WITH(input(BIND_TORCH_NODE, 2, 4), .gpus_per_worker = 2);
    cr_expect_str_eq(of(in, 1), "8-11,24-27/");
    cr_expect_str_eq(why(in, 1), "all of NUMA node 2 of GPU 2 (0000:12:00.0)");
}

Test(affinity, cores_are_near_one_of_several_gpus) {
    struct affinity_input in = input(BIND_CORE, 2, 4);
    static uint32_t crossed[] = {0, 2, 1, 3};
    in.visible = crossed;
    in.gpus_per_worker = 2;
    cr_expect_str_eq(of(in, 0), "0-3,8-11,16-19,24-27/0,2");
    cr_expect_str_eq(of(in, 1), "4-7,12-15,20-23,28-31/1,3");
    cr_expect_str_eq(why(in, 1), "an own share of 16 cores, near GPUs 2-3");
}

Test(affinity, one_gpu_of_unknown_place_makes_several_of_unknown_place) {
    struct affinity_input in = *WITH(input(BIND_NUMA, 1, 4), .gpus_per_worker = 4);
    machine.gpus[3].numa = -1;
    cr_expect_str_eq(of(in, 0), "unbound");
    cr_expect_str_eq(why(in, 0), "the NUMA node of GPU 3 (0000:13:00.0) is not known");
}

Test(affinity, of_several_gpus_those_whose_node_may_be_used_count) {
    struct affinity_input in = *WITH(input(BIND_NUMA, 1, 4), .gpus_per_worker = 4);
    machine.numa[0].cpus = machine.numa[2].cpus = (struct cpuset){0};
    cr_expect_str_eq(of(in, 0), "4-7,12-15,20-23,28-31/1,3");
    cr_expect_str_eq(why(in, 0), "NUMA nodes 1,3 of GPUs 0-3");
    machine.numa[1].cpus = machine.numa[3].cpus = (struct cpuset){0};
    cr_expect_str_eq(of(in, 0), "unbound");
}

static bool everywhere(struct affinity_input in) {
    struct affinity a;
    cr_assert_eq(affinity_choose(&machine, &in, &a, NULL), 0);
    return a.everywhere;
}

Test(affinity, where_all_cpus_are_near_that_is_known) {
    struct affinity_input in = input(BIND_NUMA, 1, 5);
    cr_expect_not(everywhere(in));
    in.gpus_per_worker = 4;
    cr_expect(everywhere(in));
    machine.allowed = set("0-3");
    in.gpus_per_worker = 1;
    cr_expect(everywhere(in), "more is not allowed");
    /* Not bound: on one node it makes no difference; on four it can. */
    machine.gpus[0].numa = -1;
    cr_expect_not(everywhere(in));
    for (uint32_t i = 1; i < machine.n_numa; i++)
        machine.numa[i].cpus = (struct cpuset){0};
    cr_expect(everywhere(in));
    /* No CPU near one GPU may be used, which must be reported. */
    machine.gpus[0].numa = 2;
    cr_expect_not(everywhere(in));
}

Test(affinity, a_gpu_of_unknown_place_is_on_node_0_for_torch_and_nowhere_for_us) {
    machine.gpus[2].numa = machine.pci[machine.gpus[2].pci].numa = -1;
    cr_expect_str_eq(of(input(BIND_NUMA, 4, 4), 2), "unbound");
    cr_expect_str_eq(of(input(BIND_SOCKET, 4, 4), 2), "unbound");
    cr_expect_str_eq(of(input(BIND_TORCH_NODE, 4, 4), 2), "0-3,16-19/");
    /* It has a share of the cores that are left. */
    cr_expect_str_eq(of(input(BIND_CORE, 4, 4), 2), "8-11,24-27/2");
}

Test(affinity, torch_asks_function_0_of_the_card) {
    machine.n_pci = machine.n_gpus = 0;
    add_gpu(0, 16, 0);
    add_gpu(3, 16, 1);
    cr_expect_str_eq(of(input(BIND_TORCH_NODE, 2, 2), 1), "0-3,16-19/");
    cr_expect_str_eq(of(input(BIND_NUMA, 2, 2), 1), "12-15,28-31/3");
}

Test(affinity, an_own_part_of_the_nodes_cores_the_first_gets_what_is_left) {
    struct affinity_input in = input(BIND_TORCH_EXCLUSIVE, 5, 5);
    cr_expect_str_eq(of(in, 0), "0-3,16-19/");
    cr_expect_str_eq(of(in, 3), "12-13,28-29/");
    cr_expect_str_eq(of(in, 4), "14-15,30-31/");
    machine.n_cores = 15; /* the last core is gone: CPUs 15 and 31 */
    for (int n = 0; n < 4; n++) {
        cpuset_remove(&machine.numa[n].cpus, 15);
        cpuset_remove(&machine.numa[n].cpus, 31);
    }
    cr_expect_str_eq(of(in, 3), "12-13,28-29/");
    cr_expect_str_eq(of(in, 4), "14,30/");
}

Test(affinity, less_than_a_core_for_each_gpu_is_an_error) {
    machine.n_cores = 13;
    struct affinity_input in = input(BIND_TORCH_EXCLUSIVE, 5, 5);
    cr_expect_str_eq(of(in, 3), "--numa-binding=exclusive: NUMA node 3 has 1 core that may be used, fewer than its 2 "
                                "GPUs");
    cr_expect_str_eq(of(in, 0), "0-3,16-19/");
}

Test(affinity, cores_go_by_their_lowest_thread_even_where_that_is_not_allowed) {
    /* Cores 12 and 13 have only their higher threads left, which come after those of 14 and 15. */
    for (uint32_t cpu = 12; cpu <= 13; cpu++) {
        cpuset_remove(&machine.numa[3].cpus, cpu);
        for (uint32_t i = 0; i < machine.n_cores; i++)
            cpuset_remove(&machine.cores[i].cpus, cpu);
    }
    topology_sort(&machine); /* by allowed threads */
    cr_expect_str_eq(of(input(BIND_TORCH_EXCLUSIVE, 5, 5), 3), "28-29/");
    cr_expect_str_eq(of(input(BIND_TORCH_EXCLUSIVE, 5, 5), 4), "14-15,30-31/");
}

Test(affinity, gpus_of_a_node_get_caches_in_turn_the_fullest_first) {
    struct affinity_input in = input(BIND_TORCH_CORE_COMPLEX, 5, 5);
    cr_expect_str_eq(of(in, 3), "12-13,28-29/");
    cr_expect_str_eq(of(in, 4), "14-15,30-31/");
    cpuset_remove(&machine.numa[3].cpus, 12);
    cr_expect_str_eq(of(in, 3), "14-15,30-31/");
    cr_expect_str_eq(of(in, 4), "13,28-29/");
    machine.n_caches = 0;
    cr_expect_str_eq(of(in, 0), "unbound");
}

Test(affinity, a_node_that_is_not_allowed_is_left_out) {
    machine.numa[1].cpus = (struct cpuset){0};
    cr_expect_str_eq(of(input(BIND_TORCH_NODE, 4, 4), 1), "unbound");
    cr_expect_str_eq(of(input(BIND_NUMA, 4, 4), 1), "unbound");
    cr_expect_str_eq(of(input(BIND_TORCH_SOCKET, 4, 4), 0), "0-3,16-19/");
}

Test(affinity, nodes_and_packages_are_dealt_in_blocks) {
    static const char *const numa3[] = {"0-3,16-19/0", "4-7,20-23/1", "8-15,24-31/2-3"};
    for (uint32_t i = 0; i < 3; i++)
        cr_expect_str_eq(of(input(BIND_NUMA, 3, 0), i), numa3[i]);
    cr_expect_str_eq(of(input(BIND_NUMA, 8, 0), 3), "4-7,20-23/1");
    cr_expect_str_eq(of(input(BIND_SOCKET, 4, 0), 1), "0-7,16-23/0-1");
    cr_expect_str_eq(of(input(BIND_SOCKET, 4, 0), 2), "8-15,24-31/2-3");
    cr_expect_str_eq(of(input(BIND_SOCKET, 1, 0), 0), "0-31/0-3");
}

/* All shares have the right size, and no core is in two of them. */
static void check_shares(struct affinity_input in) {
    struct cpuset all = {0};
    for (in.local_rank = 0; in.local_rank < in.nproc; in.local_rank++) {
        struct affinity a;
        cr_assert_eq(affinity_choose(&machine, &in, &a, NULL), 0);
        uint32_t share = machine.n_cores / in.nproc + (in.local_rank < machine.n_cores % in.nproc);
        cr_expect_eq(cpuset_count(&a.cpus), 2 * share, "worker %u of %u", in.local_rank, in.nproc);
        cr_expect_not(cpuset_intersects(&all, &a.cpus));
        cpuset_or(&all, &a.cpus);
    }
    cr_expect(cpuset_equal(&all, &machine.allowed));
}

Test(affinity, cores_are_shared_out_and_none_twice) {
    for (uint32_t nproc = 1; nproc <= 16; nproc++)
        for (uint32_t gpus = 0; gpus <= 5; gpus++)
            check_shares(input(BIND_CORE, nproc, gpus));
}

Test(affinity, cores_are_those_nearest_the_gpu) {
    /* GPUs 3 and 4 are on node 3: 4 cores for two shares of 8. The first gets all of them and more of its package, the
     * second gets what is left elsewhere. */
    static uint32_t last[] = {3, 4};
    struct affinity_input in = *WITH(input(BIND_CORE, 2, 2), .visible = last);
    cr_expect_str_eq(of(in, 0), "8-15,24-31/2-3");
    cr_expect_str_eq(of(in, 1), "0-7,16-23/0-1");
    in = input(BIND_CORE, 5, 5); /* shares of 4 and 3 cores */
    cr_expect_str_eq(of(in, 3), "12-14,28-30/3");
    cr_expect_str_eq(of(in, 4), "7,11,15,23,27,31/1-3");
}

Test(affinity, more_workers_than_cores_share_them) {
    struct affinity_input in = input(BIND_CORE, 32, 0);
    cr_expect_str_eq(of(in, 0), "0,16/0");
    cr_expect_str_eq(of(in, 1), "0,16/0");
    cr_expect_str_eq(of(in, 31), "15,31/3");
}

Test(affinity, what_is_not_known_binds_nobody) {
    struct topology nothing = {0};
    struct affinity a;
    for (enum bind_mode mode = BIND_NUMA; mode <= BIND_CORE; mode++) {
        cr_assert_eq(affinity_choose(&nothing, AT(input(mode, 2, 0)), &a, NULL), 0);
        cr_expect_not(a.bound);
        cr_expect_str_neq(a.why, "");
    }
}
