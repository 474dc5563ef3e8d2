#include "topology/discover/nvml/nvml_report.h"

#include "base/prng.h"
#include "rig/unit.h"
#include "topology/discover/nvml/nvml_abi.h"

static struct topology t;
static struct nvml_report *r;

static void setup(void) { r = xcalloc(1, sizeof *r); }
static void teardown(void) {
    topology_fini(&t);
    free(r);
}
TestSuite(nvml_report, .init = setup, .fini = teardown);

static struct pci_addr addr(const char *text) {
    struct pci_addr at;
    cr_assert_eq(pci_addr_parse(text, &at), 0);
    return at;
}

static uint32_t add_pci(const char *at, uint32_t class_id) {
    struct topo_pci *d = topology_add_pci(&t);
    d->at = addr(at);
    d->class_id = class_id;
    d->vendor = 0x10de;
    return t.n_pci - 1;
}

static void sysfs_gpu(const char *at) {
    uint32_t pci = add_pci(at, 0x030200);
    struct topo_gpu *g = topology_add_gpu(&t);
    g->pci = pci;
    g->vendor = TOPO_VENDOR_NVIDIA;
}

/* n GPUs: 0000:01:00.0, 0000:02:00.0, … */
static void sysfs_gpus(unsigned n) {
    for (unsigned i = 1; i <= n; i++)
        sysfs_gpu(rig_text("0000:%02x:00.0", i));
}

/* NVML's report of a healthy GPU: complete, without links. */
static struct nvml_gpu *nvml_gpu(const char *at) {
    struct nvml_gpu *g = &r->gpus[r->n++];
    *g = (struct nvml_gpu){
        .named = 1, .asked = 1, .links_known = 1, .has_address = at != NULL, .numa = -1, .memory_node = -1};
    if (at != NULL)
        g->at = addr(at);
    r->found = r->whole = 1;
    return g;
}

static void add_link(struct nvml_gpu *g, uint32_t type, struct pci_addr at) {
    g->links[g->n_links++] = (struct nvml_link){.up = 1, .type = type, .at = at};
}

static void merge(uint32_t n_gpus, uint32_t n_warnings) {
    nvml_merge(r, &t);
    cr_assert_eq(t.n_gpus, n_gpus, "%u GPUs", t.n_gpus);
    cr_assert_eq(t.n_warnings, n_warnings, "%s", t.n_warnings > 0 ? t.warnings[0] : "none");
}

Test(nvml_report, a_gpu_that_nvml_does_not_have_leaves) {
    sysfs_gpus(3);
    nvml_gpu("0000:02:00.0");
    (void)strcpy(r->uuids[0], "GPU-b");
    merge(1, 1);
    cr_assert_eq(t.gpus[0].index, 0);
    cr_assert_str_eq(t.gpus[0].uuid, "GPU-b");
    cr_assert_eq(t.n_pci, 3);
    assert_has(t.warnings[0], "GPU 0000:01:00.0, 0000:03:00.0");
}

Test(nvml_report, arrays_grow_again_after_gpus_have_left) {
    sysfs_gpus(5);
    nvml_gpu("0000:05:00.0");
    nvml_gpu("0000:06:00.0");
    merge(2, 1);
    for (uint32_t i = 0; i < 10; i++)
        cr_assert(topology_add_gpu(&t) != NULL);
    cr_assert_eq(t.n_gpus, 12);
}

Test(nvml_report, a_lost_gpu_without_an_address_is_the_one_that_is_left) {
    sysfs_gpus(3);
    nvml_gpu("0000:01:00.0");
    nvml_gpu(NULL)->lost = 15;
    nvml_gpu("0000:03:00.0");
    merge(3, 1);
    cr_assert(t.gpus[1].lost && !t.gpus[0].lost && !t.gpus[2].lost);
    cr_assert_eq(t.gpus[1].index, 1);
}

Test(nvml_report, one_that_can_not_be_told_apart_changes_nobody_else) {
    sysfs_gpus(2);
    nvml_gpu(NULL)->lost = 15;
    merge(2, 1);
    cr_assert(!t.gpus[0].lost && !t.gpus[1].lost);
}

Test(nvml_report, the_same_address_twice_is_one_gpu) {
    nvml_gpu("0000:01:00.0");
    nvml_gpu("0000:01:00.0");
    merge(1, 1);
    cr_assert_eq(t.gpus[0].index, 0);
}

Test(nvml_report, numa_of_the_file_system_stands) {
    sysfs_gpus(3);
    topology_add_numa(&t)->index = 0;
    topology_add_numa(&t)->index = 1;
    t.gpus[0].numa = 0;
    nvml_gpu("0000:01:00.0")->numa = 1;
    nvml_gpu("0000:02:00.0")->numa = 1;
    nvml_gpu("0000:03:00.0")->numa = 7; /* there is no such node */
    nvml_merge(r, &t);
    cr_assert_eq(t.gpus[0].numa, 0);
    cr_assert_eq(t.gpus[1].numa, 1);
    cr_assert_eq(t.gpus[2].numa, -1);
}

Test(nvml_report, what_nvml_does_not_know_stays_as_it_was) {
    sysfs_gpu("0000:01:00.0");
    (void)strcpy(t.gpus[0].name, "H100");
    t.gpus[0].max_gen = 5;
    t.gpus[0].sm = 90;
    nvml_gpu("0000:01:00.0");
    nvml_merge(r, &t);
    cr_assert_str_eq(t.gpus[0].name, "H100");
    cr_assert_eq(t.gpus[0].max_gen, 5);
    cr_assert_eq(t.gpus[0].sm, 90);
}

Test(nvml_report, gpus_in_two_cliques_are_warned_of) {
    for (uint32_t i = 0; i < 2; i++) {
        struct nvml_gpu *g = nvml_gpu(i == 0 ? "0000:01:00.0" : "0000:02:00.0");
        g->fabric_state = 3;
        g->fabric_uuid[0] = 1;
        g->fabric_clique = i;
    }
    nvml_merge(r, &t);
    cr_assert_eq(t.n_warnings, 1);
    cr_assert_eq(t.warning_kinds[0], TOPO_WARNING_FAULT);
    cr_assert_str_eq(t.warnings[0],
                     "GPU 0 and GPU 1 are in different NVLink domains (cliques): this node belongs to none");
}

Test(nvml_report, a_fabric_that_is_not_joined_is_warned_of_and_has_no_name) {
    for (uint32_t i = 0; i < 3; i++) {
        struct nvml_gpu *g = nvml_gpu(rig_text("0000:%02x:00.0", (unsigned)i + 1));
        g->fabric_state = i == 0 ? 3 : 2;
        g->fabric_uuid[3] = 9;
    }
    nvml_merge(r, &t);
    cr_assert_str_eq(t.gpus[0].fabric_uuid, "00000009-0000-0000-0000-000000000000");
    cr_assert_str_eq(t.gpus[1].fabric_uuid, "");
    cr_assert_eq(t.n_warnings, 1);
    cr_assert(strstr(t.warnings[0], "2 of 3 GPUs") != NULL && strstr(t.warnings[0], "GPU 1: in progress") != NULL, "%s",
              t.warnings[0]);
}

Test(nvml_report, the_other_end_is_what_the_node_knows_it_to_be) {
    sysfs_gpus(2);
    add_pci("0000:03:00.0", 0x068000); /* NVSwitch */
    add_pci("0000:04:00.0", 0x068001); /* a POWER9 bridge */
    add_pci("0000:05:00.0", 0x020000);
    nvml_gpu("0000:01:00.0");
    nvml_gpu("0000:02:00.0");
    const char *const ends[] = {"0000:02:00.0", "0000:03:00.0", "0000:04:00.0",
                                "0000:05:00.0", "0000:77:00.0", "0000:01:00.0"};
    for (uint32_t i = 0; i < ARRAY_SIZE(ends); i++)
        add_link(&r->gpus[0], NVML_UNKNOWN, addr(ends[i]));
    add_link(&r->gpus[0], NVML_UNKNOWN, addr("0000:02:00.0"));
    r->gpus[0].links[r->gpus[0].n_links - 1].up = 0;
    add_link(&r->gpus[0], NVML_REMOTE_TYPE_GPU, addr("0000:78:00.0")); /* a GPU that is not visible here */
    nvml_merge(r, &t);
    cr_assert_eq(t.n_nvlinks, 3);
    cr_assert(t.nvlinks[0].end == TOPO_NVLINK_GPU && t.nvlinks[0].peer == 1 && t.nvlinks[0].count == 1);
    cr_assert(t.nvlinks[1].end == TOPO_NVLINK_SWITCH && t.nvlinks[1].peer == TOPO_NONE);
    cr_assert(t.nvlinks[2].end == TOPO_NVLINK_CPU && t.nvlinks[2].target.bus == 4);
}

Test(nvml_report, links_follow_gpus_that_are_sorted_and_left_out) {
    sysfs_gpu("0000:09:00.0");
    sysfs_gpu("0000:01:00.0"); /* not NVML's */
    nvml_gpu("0000:05:00.0");  /* not the file system's */
    nvml_gpu("0000:09:00.0");
    add_link(&r->gpus[0], NVML_REMOTE_TYPE_GPU, r->gpus[1].at);
    add_link(&r->gpus[0], NVML_REMOTE_TYPE_GPU, r->gpus[1].at);
    add_link(&r->gpus[1], NVML_REMOTE_TYPE_GPU, r->gpus[0].at);
    merge(2, 1);
    cr_assert_eq(t.n_nvlinks, 2);
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert_eq(t.nvlinks[i].peer, 1 - t.nvlinks[i].gpu);
        cr_assert_eq(t.nvlinks[i].count, t.nvlinks[i].gpu == 0 ? 2 : 1);
        cr_assert_eq(pci_addr_compare(t.pci[t.gpus[t.nvlinks[i].peer].pci].at, t.nvlinks[i].target), 0);
    }
}

Test(nvml_report, links_are_known_only_when_all_were_asked) {
    nvml_gpu("0000:01:00.0");
    struct nvml_gpu *b = nvml_gpu("0000:02:00.0");
    add_link(&r->gpus[0], NVML_REMOTE_TYPE_GPU, b->at);
    b->links_known = 0;
    nvml_merge(r, &t);
    cr_assert(!t.nvlinks_known && t.n_nvlinks == 0);
    b->lost = 15; /* not required of a lost one */
    nvml_merge(r, &t);
    cr_assert(t.nvlinks_known && t.n_nvlinks == 1);
}

Test(nvml_report, doing_it_twice_changes_nothing) {
    nvml_gpu("0000:01:00.0");
    nvml_gpu("0000:02:00.0");
    add_link(&r->gpus[0], NVML_REMOTE_TYPE_GPU, r->gpus[1].at);
    nvml_merge(r, &t);
    nvml_merge(r, &t);
    cr_assert(t.n_gpus == 2 && t.n_pci == 2 && t.n_nvlinks == 1 && t.nvlinks[0].count == 1);
}

static void fill_random(struct prng *p, void *to, size_t n) {
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)to)[i] = (uint8_t)prng_next(p);
}

static struct pci_addr near_addr(struct prng *p) {
    return (struct pci_addr){.bus = (uint8_t)prng_below(p, 24), .fn = (uint8_t)(prng_below(p, 20) == 0)};
}

/* Random bytes that are valid enough to get far. */
static void random_gpu(struct prng *p, struct nvml_gpu *g) {
    fill_random(p, g, sizeof *g);
    if (prng_below(p, 8) == 0)
        return;
    g->named = prng_below(p, 10) != 0;
    g->asked = prng_below(p, 10) != 0;
    g->links_known = prng_below(p, 10) != 0;
    g->lost = prng_below(p, 5) == 0 ? (uint32_t)prng_below(p, 20) : 0;
    g->has_address = prng_below(p, 8) != 0;
    g->at = near_addr(p);
    g->n_links = (uint32_t)prng_below(p, 40);
    g->n_c2c = (uint32_t)prng_below(p, 2);
    for (uint32_t i = 0; i < NVML_LINKS_MAX; i++) {
        g->links[i].up = (uint32_t)prng_below(p, 2);
        g->links[i].type = (uint32_t)prng_below(p, 5);
        g->links[i].at = near_addr(p);
        if (prng_below(p, 6) == 0)
            g->links[i].at = (struct pci_addr){UINT32_MAX, UINT8_MAX, UINT8_MAX, UINT8_MAX};
    }
}

static void random_node(struct prng *p) {
    static const uint32_t classes[] = {0x030200, 0x068000, 0x068001, 0x020000};
    for (uint64_t n = prng_below(p, 20); n > 0; n--) {
        struct topo_pci *d = topology_add_pci(&t);
        d->at = near_addr(p);
        d->class_id = classes[prng_below(p, 4)];
        d->vendor = prng_below(p, 4) == 0 ? 0x1002 : 0x10de;
        if (d->class_id != 0x030200 || topology_find_pci(&t, d->at) != t.n_pci - 1)
            continue;
        struct topo_gpu *g = topology_add_gpu(&t);
        g->pci = t.n_pci - 1;
        g->vendor = d->vendor == 0x10de ? TOPO_VENDOR_NVIDIA : TOPO_VENDOR_AMD;
    }
    for (uint64_t n = prng_below(p, 4); n > 0; n--)
        topology_add_numa(&t)->index = (int32_t)n;
}

static void check_text(const char *text, size_t size) { cr_assert(memchr(text, '\0', size) != NULL); }

static void check_node(uint64_t seed) {
    for (uint32_t i = 0; i < t.n_gpus; i++) {
        const struct topo_gpu *g = &t.gpus[i];
        cr_assert(g->pci < t.n_pci && g->n_mig <= TOPO_MIG_MAX && g->index != TOPO_NONE, "seed %lu", seed);
        cr_assert(g->numa < 0 || t.n_numa == 0 || topology_numa(&t, g->numa) != NULL, "seed %lu", seed);
        check_text(g->name, sizeof g->name);
        check_text(g->uuid, sizeof g->uuid);
        check_text(g->fabric_uuid, sizeof g->fabric_uuid);
        check_text(g->chassis, sizeof g->chassis);
        for (uint32_t k = 0; k < TOPO_MIG_MAX; k++)
            check_text(g->mig_uuids[k], sizeof g->mig_uuids[k]);
        for (uint32_t k = 0; k < i; k++)
            cr_assert(g->pci != t.gpus[k].pci, "seed %lu: two GPUs at one address", seed);
    }
    for (uint32_t i = 0; i < t.n_nvlinks; i++) {
        const struct topo_nvlink *l = &t.nvlinks[i];
        cr_assert(l->gpu < t.n_gpus && l->count > 0 && l->peer != l->gpu, "seed %lu", seed);
        cr_assert((l->end == TOPO_NVLINK_GPU) == (l->peer < t.n_gpus), "seed %lu", seed);
        cr_assert(l->c2c || l->count <= NVML_LINKS_MAX, "seed %lu", seed);
        cr_assert_eq(t.gpus[l->gpu].vendor, TOPO_VENDOR_NVIDIA, "seed %lu", seed);
    }
    cr_assert(t.nvlinks_known || t.n_nvlinks == 0, "seed %lu", seed);
}

Test(nvml_report, bytes_of_any_kind_become_a_report_within_its_bounds) {
    memset(r, 'x', sizeof *r);
    memset(&r->driver, '\x1b', sizeof r->driver);
    nvml_report_clean(r);
    cr_assert_eq(r->n, GPUS_MAX);
    cr_assert_eq(r->fault, NVML_FAULT_NONE);
    cr_assert_eq(strspn(r->driver, "?"), NVML_TEXT_MAX - 1);
    check_text(r->at, sizeof r->at);
    check_text(r->why_not, sizeof r->why_not);
    check_text(r->uuids[GPUS_MAX - 1], GPU_UUID_MAX);
    check_text(r->names[GPUS_MAX - 1], NVML_TEXT_MAX);
    const struct nvml_gpu *g = &r->gpus[GPUS_MAX - 1];
    cr_assert_eq(g->n_links, NVML_LINKS_MAX);
    cr_assert_eq(g->n_pids, NVML_PROCESSES_MAX);
    cr_assert_eq(g->n_mig, TOPO_MIG_MAX);
    cr_assert_eq(strlen(g->mig_uuids[7]), TOPO_MIG_UUID_MAX - 1);
    cr_assert(g->sm == 0 && g->cur_gen == 0 && g->max_width == 0 && !g->has_address);
}

Test(nvml_report, any_answer_leaves_a_node_that_holds_together, .timeout = 40) {
    const char *given = getenv("NVML_REPORT_SEED");
    uint64_t first = given != NULL ? strtoull(given, NULL, 10) : 1, last = given != NULL ? first : 500;
    uint64_t gpus = 0, links = 0, lost = 0;
    for (uint64_t seed = first; seed <= last; seed++) {
        struct prng p = {seed};
        topology_fini(&t);
        random_node(&p);
        uint32_t amd = topology_count_gpus(&t, TOPO_VENDOR_AMD);
        fill_random(&p, r, offsetof(struct nvml_report, uuids));
        r->found = prng_below(&p, 10) != 0;
        if (prng_below(&p, 50) != 0)
            r->n = (uint32_t)prng_below(&p, 20);
        for (uint32_t i = 0; i < MIN2(r->n, (uint32_t)GPUS_MAX); i++) {
            random_gpu(&p, &r->gpus[i]);
            fill_random(&p, r->uuids[i], sizeof r->uuids[i]);
            fill_random(&p, r->names[i], sizeof r->names[i]);
        }
        nvml_report_clean(r);
        nvml_merge(r, &t);
        topology_sort(&t);
        check_node(seed);
        cr_assert_eq(topology_count_gpus(&t, TOPO_VENDOR_AMD), amd, "seed %lu", seed);
        gpus += t.n_gpus;
        links += t.n_nvlinks;
        for (uint32_t i = 0; i < t.n_gpus; i++)
            lost += t.gpus[i].lost;
    }
    cr_assert(given != NULL || (gpus > 500 && links > 500 && lost > 50), "%lu GPUs, %lu bundles, %lu lost: too tame",
              gpus, links, lost);
}
