/* Compares this machine with what the kernel reports; tests recorded trees, and valid and invalid files of every
 * kind. */
#include "topology/discover/discovery_io.h"

#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>

#include "../recorded.h"
#include "../tree_rig.h"
#include "rig/unit.h"
#include "topology/discover/hwloc/hwloc_io.h"
#include "topology/discover/nvml/nvml_io.h"
#include "topology/json/topology_json.h"

static struct tree tree;

static void look(unsigned what, struct topology *t) {
    struct err err = {0};
    cr_assert_eq(topology_discover(&(struct discovery_config){.what = what}, t, &err), 0, "%s", err.text);
}

static void read_list(const char *path, struct cpuset *ret) {
    char text[4096] = "";
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    cr_assert_not_null(fgets(text, sizeof text, f));
    (void)fclose(f);
    cr_assert_eq(cpuset_parse_list(text, ret), 0);
}

static void read_affinity(struct cpuset *ret) {
    cpu_set_t mask;
    cr_assert_eq(sched_getaffinity(0, sizeof mask, &mask), 0);
    *ret = (struct cpuset){0};
    for (uint32_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &mask))
            cpuset_add(ret, i);
}

static struct topology t;
static struct err err;

/* small.xml: a made-up machine of two nodes with one CPU each, and a switch with two GPUs and a NIC below its ports. */
static char *small;
static size_t small_len;

static void begin(void) { small = own_text("discover/small.xml", &small_len); }
static void done(void) {
    topology_fini(&t);
    tree_remove(&tree);
    free(small);
}
TestSuite(look, .init = begin, .fini = done);

Test(look, this_machine_is_as_the_kernel_says) {
    look(DISCOVER_ALL & ~(unsigned)DISCOVER_NVML, &t);
    recorded_check(&t, "this machine");
    cr_assert_eq(t.source, TOPO_LIVE);
    cr_assert_str_eq(t.from, "this machine");
    char host[256] = "";
    cr_assert_eq(gethostname(host, sizeof host - 1), 0);
    cr_assert_eq(strncmp(t.host, host, sizeof t.host - 1), 0);
    struct cpuset online, mine, nodes;
    read_list("/sys/devices/system/cpu/online", &online);
    read_affinity(&mine);
    cr_assert(cpuset_equal(&t.online, &online));
    cr_assert(cpuset_equal(&t.allowed, &mine));
    if (access("/sys/devices/system/node/has_memory", R_OK) == 0) {
        read_list("/sys/devices/system/node/has_memory", &nodes);
        for (uint32_t i = 0; i < t.n_numa; i++) {
            struct cpuset cpus;
            cr_assert(cpuset_has(&nodes, (uint32_t)t.numa[i].index));
            read_list(rig_text("/sys/devices/system/node/node%d/cpulist", t.numa[i].index), &cpus);
            cpuset_and(&cpus, &mine);
            cr_assert(t.numa[i].gpu_memory || cpuset_equal(&cpus, &t.numa[i].cpus));
            cr_assert_gt(t.numa[i].bytes, 0);
        }
    }
    cr_assert_geq(t.packages, 1);
    cr_assert_str_not_empty(t.arch);
}

/* Each network card and display of /sys is found, with the node that its file names. */
Test(look, the_pci_devices_of_this_machine_are_all_there) {
    look(DISCOVER_PCI, &t);
    DIR *dir = opendir("/sys/bus/pci/devices");
    if (dir == NULL)
        cr_skip_test("no PCI here");
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        struct pci_addr at;
        char path[512];
        unsigned class = 0;
        int numa = -1;
        if (pci_addr_parse(e->d_name, &at) < 0)
            continue;
        (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/class", e->d_name);
        FILE *f = fopen(path, "r");
        cr_assert_not_null(f);
        cr_assert_eq(fscanf(f, "%x", &class), 1);
        (void)fclose(f);
        (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", e->d_name);
        f = fopen(path, "r");
        if (f != NULL) {
            cr_assert_eq(fscanf(f, "%d", &numa), 1);
            (void)fclose(f);
        }
        uint32_t i = topology_find_pci(&t, at);
        if (class >> 16 == 2 || class >> 16 == 3)
            cr_assert_neq(i, TOPO_NONE, "%s", e->d_name);
        if (i != TOPO_NONE) {
            cr_assert_eq(t.pci[i].class_id >> 8, class >> 8);
            cr_assert_eq(t.pci[i].numa, numa, "%s: %d, not %d", e->d_name, t.pci[i].numa, numa);
        }
    }
    (void)closedir(dir);
}

Test(look, a_process_that_is_held_to_one_cpu_sees_one) {
    cpu_set_t one;
    int cpu = sched_getcpu();
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    look(DISCOVER_CPUS, &t);
    recorded_check(&t, "one CPU");
    cr_assert_eq(cpuset_count(&t.allowed), 1);
    cr_assert(cpuset_has(&t.allowed, (uint32_t)cpu));
    cr_assert_eq(t.n_cores, 1);
    uint32_t nodes = 0;
    for (uint32_t i = 0; i < t.n_numa; i++)
        nodes += !cpuset_is_empty(&t.numa[i].cpus);
    cr_assert_eq(nodes, 1);
    struct cpuset online;
    read_list("/sys/devices/system/cpu/online", &online);
    cr_assert(cpuset_equal(&t.online, &online));
}

Test(look, who_asks_for_interfaces_alone_gets_no_cores) {
    look(DISCOVER_NETIFS | DISCOVER_NICS, &t);
    cr_assert_neq(topology_find_netif(&t, "lo"), TOPO_NONE);
    cr_assert_eq(t.n_cores, 0);
}

Test(look, hwlocs_own_environment_is_as_before) {
    cr_assert_eq(setenv("HWLOC_HIDE_ERRORS", "1", 1), 0);
    cr_assert_eq(unsetenv("HWLOC_PLUGINS_BLACKLIST"), 0);
    cr_assert_eq(setenv("HWLOC_COMPONENTS", "-x86", 1), 0);
    cr_assert_eq(setenv("HWLOC_SYNTHETIC", "node:3 pu:5", 1), 0);
    look(DISCOVER_CPUS, &t);
    recorded_check(&t, "this machine");
    cr_assert_neq(t.n_cores, 15, "a synthetic machine is not this one");
    topology_fini(&t);
    cr_assert_eq(topology_discover(&(struct discovery_config){.what = DISCOVER_CPUS, .sysroot = "/"}, &t, &err), 0,
                 "%s", err.text);
    cr_assert_str_eq(getenv("HWLOC_HIDE_ERRORS"), "1");
    cr_assert_null(getenv("HWLOC_PLUGINS_BLACKLIST"));
    cr_assert_null(getenv("HWLOC_FSROOT"));
    cr_assert_null(getenv("HWLOC_THISSYSTEM"));
    cr_assert_str_eq(getenv("HWLOC_COMPONENTS"), "-x86");
    cr_assert_str_eq(getenv("HWLOC_SYNTHETIC"), "node:3 pu:5");
}

struct machine {
    const char *archive, *top, *arch, *vendor;
    uint32_t packages, numa, cores, cpus, gpus, nics, pci;
};

static const struct machine trees[] = {
    {"hwloc-sysfs/2pa-pcidomain32bits.tar.bz2", "2pa-pcidomain32bits", "x86_64", "GenuineIntel", 2, 1, 2, 2, 0, 0, 2},
    {"hwloc-sysfs/32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2", "32em64t-2n8c+1mic", "x86_64", "GenuineIntel", 2, 2, 16, 16,
     0, 2, 13},
    {"hwloc-sysfs/40intel64-2g2n4c+pcilocality.tar.bz2", "40intel64-2g2n4c+pci", "x86_64", "GenuineIntel", 4, 4, 40, 40,
     0, 1, 20},
    {"hwloc-sysfs/40intel64-4n10c+pci-conflicts.tar.bz2", "40intel64-4n10c+pci-conflicts", "x86_64", "GenuineIntel", 3,
     4, 40, 40, 0, 0, 1},
    {"hwloc-sysfs/fakepcilocalities.tar.bz2", "fakepcilocalities", "x86_64", "GenuineIntel", 4, 4, 40, 40, 0, 1, 22},
    {"hwloc-sysfs/nvidia-dgx-gb10.tar.bz2", "nvidia-dgx-gb10", "aarch64", "", 1, 1, 20, 20, 0, 0, 0},
    {"hwloc-sysfs/nvidiagpunumanodes.tar.bz2", "nvidiagpunumanodes", "ppc64le", "", 2, 8, 8, 32, 6, 0, 6},
    {"sysfs-derived/turin-4xH200.tar.xz", "turin-4xH200", "", "", 2, 8, 128, 256, 4, 6, 44},
    {"sysfs-derived/ipa20-4xH100.tar.xz", "ipa20-4xH100", "", "", 2, 8, 112, 224, 4, 4, 36},
    {"sysfs-derived/g4dnmetal-8xT4.tar.xz", "g4dnmetal-8xT4", "", "", 2, 2, 48, 96, 8, 1, 26},
};

/* Unpacks the tree and runs discovery. */
static void look_at(const struct machine *m) {
    tree_remove(&tree);
    if (!tree_recorded(&tree, m->archive, "", true))
        cr_skip_test("no recorded %s here", m->top);
    static struct discovery_nvml before;
    before = (struct discovery_nvml){.n_nvidia = UINT32_MAX, .n_warnings = UINT32_MAX, .asked = !nvml_may_answer()};
    struct discovery_config config = {.what = DISCOVER_ALL, .sysroot = tree.root, .nvml = &before};
    cr_assert_eq(topology_discover(&config, &t, &err), 0, "%s: %s", m->top, err.text);
    cr_assert_eq(before.n_nvidia, topology_count_gpus(&t, TOPO_VENDOR_NVIDIA), "all are on the PCI bus: %u",
                 before.n_nvidia);
    cr_assert_eq(before.n_warnings, t.n_warnings);
    cr_assert_eq(before.asked, nvml_may_answer());
    cr_assert_eq(t.source, TOPO_SYSROOT);
    cr_assert_str_eq(t.from, tree.root);
    cr_assert_str_empty(t.host);
    recorded_check(&t, m->top);
}

static const struct machine *tree_named(const char *top) {
    for (size_t i = 0; i < ARRAY_SIZE(trees); i++)
        if (strcmp(trees[i].top, top) == 0)
            return &trees[i];
    cr_assert_fail("%s", top);
    return NULL;
}

static void check_tree(const struct machine *m) {
    topology_fini(&t);
    look_at(m);
    cr_expect_str_eq(t.arch, m->arch, "%s: %s", m->top, t.arch);
    cr_expect_str_eq(t.cpu_vendor, m->vendor, "%s: %s", m->top, t.cpu_vendor);
    cr_expect_eq(t.packages, m->packages, "%s: %u packages", m->top, t.packages);
    cr_expect_eq(t.n_numa, m->numa, "%s: %u NUMA nodes", m->top, t.n_numa);
    cr_expect_eq(t.n_cores, m->cores, "%s: %u cores", m->top, t.n_cores);
    cr_expect_eq(cpuset_count(&t.allowed), m->cpus, "%s: %u CPUs", m->top, cpuset_count(&t.allowed));
    cr_expect_eq(t.n_gpus, m->gpus, "%s: %u GPUs", m->top, t.n_gpus);
    cr_expect_eq(t.n_nics, m->nics, "%s: %u NICs", m->top, t.n_nics);
    cr_expect_eq(t.n_pci, m->pci, "%s: %u PCI functions", m->top, t.n_pci);
}

Test(look, each_recorded_tree_has_what_its_makers_say) {
    for (size_t i = 0; i < ARRAY_SIZE(trees); i++)
        check_tree(&trees[i]);
}

Test(look, gpus_that_only_nvidias_driver_names_are_listed) {
    look_at(tree_named("nvidiagpunumanodes"));
    static const char *const at[] = {"0004:05:00.0", "0004:06:00.0", "0006:00:00.0",
                                     "0007:00:00.0", "0035:04:00.0", "0035:05:00.0"};
    for (uint32_t i = 0; i < ARRAY_SIZE(at); i++) {
        cr_assert_str_eq(recorded_address(&t, t.gpus[i].pci), at[i]);
        cr_assert_eq(t.gpus[i].vendor, TOPO_VENDOR_NVIDIA);
        cr_assert_eq(t.gpus[i].numa, i < 3 ? 0 : 8);
    }
    static const int32_t numa[] = {0, 8, 250, 251, 252, 253, 254, 255};
    for (uint32_t i = 0; i < ARRAY_SIZE(numa); i++) {
        cr_assert_eq(t.numa[i].index, numa[i]);
        cr_assert_eq(t.numa[i].gpu_memory, numa[i] >= 250);
        cr_assert_eq(cpuset_is_empty(&t.numa[i].cpus), numa[i] >= 250);
    }
}

/* A tree that was made from a recording gives the same result as the recording. */
Test(look, a_tree_and_the_xml_that_it_was_made_from_agree) {
    static const struct {
        const char *top, *xml;
    } pairs[] = {{"turin-4xH200", "hwloc/prrte-turin-4xH200-nvml.xml"},
                 {"ipa20-4xH100", "hwloc/flux-ipa20.xml"},
                 {"g4dnmetal-8xT4", "hwloc/mpibind-g4dnmetal.xml"}};
    for (size_t k = 0; k < ARRAY_SIZE(pairs); k++) {
        struct topology xml = {0};
        char path[RECORDED_PATH_MAX], x[512], y[512];
        look_at(tree_named(pairs[k].top));
        if (!recorded_path(path, pairs[k].xml))
            cr_skip_test("no recorded %s here", pairs[k].xml);
        cr_assert_eq(topology_load(path, &xml, &err), 0, "%s", err.text);
        cr_assert_eq(t.n_pci, xml.n_pci);
        for (uint32_t i = 0; i < t.n_pci; i++) {
            recorded_chain(&t, i, x);
            recorded_chain(&xml, i, y);
            cr_assert_str_eq(x, y);
            cr_assert_eq(t.pci[i].class_id >> 8, xml.pci[i].class_id >> 8);
            cr_assert_eq(t.pci[i].vendor, xml.pci[i].vendor);
            cr_assert_eq(t.pci[i].numa, xml.pci[i].numa);
            cr_assert_eq(pci_addr_compare(t.pci[i].root, xml.pci[i].root), 0);
        }
        recorded_agree(&t, &xml);
        for (uint32_t i = 0; i < t.n_numa; i++) {
            cr_assert(cpuset_equal(&t.numa[i].cpus, &xml.numa[i].cpus));
            cr_assert_eq(t.numa[i].package, xml.numa[i].package);
        }
        topology_fini(&t);
        topology_fini(&xml);
    }
}

Test(look, a_tree_that_is_none_is_refused) {
    static const struct {
        const char *root, *says;
        int code;
    } cases[] = {{"/nonexistent/tree", "can't open /nonexistent/tree", -ENOENT},
                 {"/proc/self/maps", "is not a folder", -ENOTDIR}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct discovery_config config = {.what = DISCOVER_ALL, .sysroot = cases[i].root};
        cr_assert_eq(topology_discover(&config, &t, &err), cases[i].code, "%s", err.text);
        cr_assert_neq(strstr(err.text, cases[i].says), NULL, "%s", err.text);
    }
}

static const char *write_file(const char *name, const void *bytes, size_t len) {
    if (tree.root[0] == '\0')
        tree_new(&tree);
    tree_write_bytes(&tree, name, bytes, len);
    return rig_text("%s/%s", tree.root, name);
}

static void refused(const char *path, int code, const char *says) {
    int r = topology_load(path, &t, &err);
    cr_expect_eq(r, code, "%s: %d, %s", path, r, err.text);
    cr_expect_neq(strstr(err.text, says), NULL, "\"%s\" does not say \"%s\"", err.text, says);
    cr_expect_neq(strstr(err.text, path), NULL, "%s", err.text);
    cr_expect_eq(t.n_cores, 0);
}

Test(look, an_xml_says_what_it_recorded) {
    cr_assert_eq(topology_load(write_file("small.xml", small, small_len), &t, &err), 0, "%s", err.text);
    recorded_check(&t, "small.xml");
    JSON_HAS(&t, "'allowed':'0-1','online':'0-2',", "{'cpus':'1','first':1,'numa':1,'package':1}],'caches'",
             "'bus_id':'0000:83:00.0','index':1,'vendor':'nvidia','name':'NVIDIA B200','uuid':'','numa':1,",
             "'count':2,'c2c':false,", /* 100000 MB/s of NVLink 5 */
             "'ports':[{'number':1,'state':'ACTIVE',", "{'number':2,'state':'DOWN',");
    cr_assert_str_eq(recorded_address(&t, t.pci[t.gpus[1].pci].parent), "0000:80:01.0");
    cr_assert(t.n_gpus == 2 && t.n_nvlinks == 2 && t.n_nics == 1 && t.nics[0].n_ports == 2);
}

/* 100000 MB/s can be four links or two: it depends on the model. */
Test(look, the_model_says_how_fast_an_nvlink_is) {
    static const struct {
        const char *model;
        uint32_t count;
    } cases[] = {{"NVIDIA H200", 4}, {"Tesla P100x", 5}, {"NVIDIA B300", 2}, {"           ", 4}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *text = xstrdup(small);
        for (char *at = text; (at = strstr(at, "NVIDIA B200")) != NULL;)
            memcpy(at, cases[i].model, strlen("NVIDIA B200"));
        cr_assert_eq(topology_load(write_file("x.xml", text, strlen(text)), &t, &err), 0, "%s", err.text);
        cr_assert_eq(t.n_nvlinks, 2);
        cr_expect_eq(t.nvlinks[0].count, cases[i].count, "%s: %u", cases[i].model, t.nvlinks[0].count);
        topology_fini(&t);
    }
}

Test(look, files_of_other_kinds_are_refused_with_the_reason) {
    refused("/nonexistent/file", -ENOENT, "can't open");
    refused("/dev/null", -EINVAL, "not a regular file");
    refused(write_file("empty", "", 0), -EINVAL, "empty");
    refused(write_file("blank", "  \n", 3), -EINVAL, "empty");
    refused(tree.root, -EISDIR, "is a folder");
    refused(write_file("binary", "{\0}", 3), -EINVAL, "not a text file");
    refused(write_file("text", "hello\n", 6), -EINVAL, "neither JSON nor XML");
    refused(write_file("comment", "<!-- <topology>", 15), -EINVAL, "cut off");
    static const char three[] = "<topology version=\"3.0\">\n</topology>\n";
    refused(write_file("three", three, strlen(three)), -EINVAL, "format 3.0");
    static const char nothing[] = "<topology version=\"2.0\">\n</topology>\n";
    refused(write_file("nothing", nothing, strlen(nothing)), -EINVAL, "hwloc can't read this XML");
    const char *large = write_file("large", "{", 1);
    cr_assert_eq(truncate(large, ((off_t)64 << 20) + 1), 0);
    refused(large, -E2BIG, "64 MiB");
}

/* This detects anything that hwloc or a dying child prints. */
static off_t size_of_stderr(void) {
    struct stat st;
    cr_assert_eq(fstat(STDERR_FILENO, &st), 0);
    return st.st_size;
}

Test(look, a_torn_xml_is_refused_and_nothing_is_printed) {
    int fd = open(write_file("stderr", "", 0), O_RDWR | O_CLOEXEC), old = dup(STDERR_FILENO);
    cr_assert_geq(dup2(fd, STDERR_FILENO), 0);
    size_t end = small_len - 1; /* its last newline may be missing */
    for (size_t len = 1; len < end; len += 61)
        refused(write_file("torn.xml", small, len), -EINVAL, "");
    refused(write_file("torn.xml", small, end - 1), -EINVAL, "cut off: no </topology>");
    off_t printed = size_of_stderr();
    cr_assert_geq(dup2(old, STDERR_FILENO), 0);
    cr_assert_eq(printed, 0);
}

/* hwloc 2.9 dereferences a null pointer if a set is missing. */
Test(look, an_xml_that_brings_hwloc_down_is_refused) {
    uint32_t refusals = 0;
    for (size_t k = 0; k < 40; k++) { /* each attribute in turn gets another name */
        _cleanup_(freep) char *text = xstrdup(small);
        char *at = text;
        for (size_t i = 0; at != NULL && i <= k; i++)
            at = strstr(at + 1, "set=\"");
        if (at == NULL)
            break;
        memcpy(at, "sat", 3);
        int r = topology_load(write_file("x.xml", text, strlen(text)), &t, &err);
        cr_assert(r == 0 || (r == -EINVAL && err.text[0] != '\0'));
        refusals += r < 0;
        topology_fini(&t);
    }
    cr_assert_gt(refusals, 0);
}

Test(look, musters_own_json_reads_back) {
    struct topology a = {0}, b = {0};
    cr_assert_eq(topology_load(write_file("small.xml", small, small_len), &a, &err), 0, "%s", err.text);
    _cleanup_(strbuf_fini) struct strbuf first = {0}, second = {0};
    topology_json_write(&a, &first);
    const char *path = write_file("small.json", first.data, first.len);
    cr_assert_eq(topology_load(path, &b, &err), 0, "%s", err.text);
    recorded_check(&b, path);
    topology_json_write(&b, &second);
    cr_assert_str_eq(strbuf_text(&first), strbuf_text(&second));
    topology_fini(&a);
    topology_fini(&b);
    refused(write_file("torn.json", first.data, first.len / 2), -EINVAL, "");
}

Test(look, nccl_files_are_told_by_their_root) {
    char path[RECORDED_PATH_MAX];
    if (!recorded_path(path, "nccl-xml/aws-p4d-24xl-topo.xml"))
        cr_skip_test("no recorded aws-p4d-24xl-topo.xml here");
    cr_assert_eq(topology_load(path, &t, &err), 0, "%s", err.text);
    cr_assert_eq(t.source, TOPO_NCCL_XML);
    cr_assert_gt(t.n_pci, 0);
    topology_fini(&t);
    cr_assert(recorded_path(path, "nccl-xml/rccl-topo_8p_940.xml"));
    refused(path, -EINVAL, "version");
    cr_assert(recorded_path(path, "nccl-xml/azure-ncv4-graph.xml"));
    refused(path, -EINVAL, "graph");
}
