#include "topology/discover/discovery_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/discover/hwloc/hwloc_io.h"
#include "topology/discover/net/netlink_io.h"
#include "topology/discover/nvml/nvml_io.h"
#include "topology/discover/nvml/nvml_merge.h"
#include "topology/discover/sysfs/sysfs_io.h"
#include "topology/discover/sysfs/sysfs_priv.h"

#define CPUINFO_MAX 4095 /* how many bytes are read: the first CPU is enough */

/* Reads the kernel's list of online CPUs; hwloc has reported those that exist. */
static void take_online(const struct sysfs *s, struct topology *t) {
    char text[SYSFS_TEXT_MAX];
    struct cpuset online;
    if (sysfs_read(s, text, sizeof text, "/sys/devices/system/cpu/online") == 0 &&
        cpuset_parse_list(text, &online) == 0 && !cpuset_is_empty(&online))
        t->online = online;
}

/* ---- the CPU's model ---- */

/* "vendor_id\t: GenuineIntel": the value of the first line with exactly that key. */
static bool cpuinfo_value(const char *text, const char *key, char *ret, size_t size) {
    size_t n = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) != 0)
            continue;
        const char *colon = line + n + strspn(line + n, " \t");
        if (*colon != ':')
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        (void)snprintf(ret, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        return true;
    }
    return false;
}

/* hwloc reads it by the architecture of the recorded machine, which many trees do not contain. */
static void take_cpuinfo(const struct sysfs *s, struct topology *t) {
    char text[CPUINFO_MAX + 1], value[32];
    if (t->arch[0] != '\0' || sysfs_head(s, text, sizeof text, "/proc/cpuinfo") < 0)
        return;
    if (cpuinfo_value(text, "vendor_id", t->cpu_vendor, sizeof t->cpu_vendor)) {
        (void)snprintf(t->arch, sizeof t->arch, "x86_64");
        if (cpuinfo_value(text, "cpu family", value, sizeof value))
            t->cpu_family = (uint32_t)strtoul(value, NULL, 10);
        if (cpuinfo_value(text, "model", value, sizeof value))
            t->cpu_model = (uint32_t)strtoul(value, NULL, 10);
    } else if (cpuinfo_value(text, "CPU implementer", value, sizeof value)) {
        (void)snprintf(t->arch, sizeof t->arch, "aarch64");
    } else if (cpuinfo_value(text, "cpu", value, sizeof value) && strncmp(value, "POWER", 5) == 0) {
        (void)snprintf(t->arch, sizeof t->arch, "ppc64le");
    }
}

/* ---- parts ---- */

static void fill_by_files(const struct discovery_config *config, struct topology *t) {
    struct sysfs s;
    sysfs_init(&s, config->sysroot);
    if (config->what & (DISCOVER_CPUS | DISCOVER_PCI)) {
        take_online(&s, t);
        take_cpuinfo(&s, t);
    }
    if (config->what & DISCOVER_PCI)
        sysfs_fill_pci(config->sysroot, t);
    if (config->what & DISCOVER_NICS)
        sysfs_fill_rdma(config->sysroot, t);
    if (config->what & DISCOVER_NETIFS)
        sysfs_fill_netifs(config->sysroot, t);
    if ((config->what & DISCOVER_NETIFS) && config->sysroot == NULL)
        netlink_fill_addresses(t);
}

/* A recorded tree that hwloc refuses can still show its devices. */
static int fill_by_hwloc(const struct discovery_config *config, struct topology *t,
                         struct err *err) {
    if ((config->what & (DISCOVER_CPUS | DISCOVER_PCI)) == 0)
        return 0;
    struct err own = {0};
    struct hwloc_source source = {.sysroot = config->sysroot};
    int r = hwloc_fill(&source, config->what, t, &own);
    if (r < 0 && (config->what & ~(unsigned)DISCOVER_CPUS) == 0)
        return err_set(err, r, "%s", own.text);
    if (r < 0)
        topology_warn(t, "%s: cores, caches and NUMA nodes are not known", own.text);
    return 0;
}

/* ---- NVML ---- */

/* NVML runs in a child at the same time as hwloc; without the driver it is not asked. */
static bool nvml_is_wanted(const struct discovery_config *config) {
    if ((config->what & DISCOVER_NVML) == 0 || config->sysroot != NULL)
        return false;
    return config->nvml_library != NULL || discover_has_gpus();
}

static void end_nvml(struct nvml_child *child, struct topology *t, struct discovery_nvml *ret) {
    _cleanup_(freep) struct nvml_report *report = xcalloc(1, sizeof *report);
    (void)nvml_end(child, report); /* the report has the error, and the merge warns */
    if (ret != NULL)
        ret->report = *report;
    nvml_merge(report, t);
}

static void count_before_nvml(const struct topology *t, struct discovery_nvml *ret) {
    ret->asked = nvml_may_answer(); /* without a driver the large report is not touched */
    ret->n_warnings = t->n_warnings;
    ret->n_nvidia = 0;
    for (uint32_t i = 0; i < t->n_gpus; i++)
        ret->n_nvidia += t->gpus[i].vendor == TOPO_VENDOR_NVIDIA;
}

/* ---- all ---- */

static int discover(const struct discovery_config *config, struct topology *t, struct err *err) {
    struct nvml_child child = {.call = NULL};
    struct nvml_config ask = {.library = config->nvml_library, .deadline_ns = config->nvml_ns};
    bool nvml = nvml_is_wanted(config);
    if (nvml)
        (void)nvml_begin(&ask, &child); /* nvml_end() reports errors */
    int r = fill_by_hwloc(config, t, err);
    if (r == 0)
        fill_by_files(config, t);
    if (config->nvml != NULL)
        count_before_nvml(t, config->nvml);
    if (nvml)
        end_nvml(&child, t, config->nvml);
    return r;
}

int topology_discover(const struct discovery_config *config, struct topology *ret,
                      struct err *err) {
    struct topology t = {.source = config->sysroot != NULL ? TOPO_SYSROOT : TOPO_LIVE};
    struct stat st;
    if (config->sysroot != NULL && stat(config->sysroot, &st) < 0)
        return err_set(err, -errno, "can't open %s: %s", config->sysroot, strerror(errno));
    if (config->sysroot != NULL && !S_ISDIR(st.st_mode))
        return err_set(err, -ENOTDIR, "%s is not a folder: a recorded tree is wanted",
                       config->sysroot);
    (void)snprintf(t.from, sizeof t.from, "%s",
                   config->sysroot != NULL ? config->sysroot : "this machine");
    int r = discover(config, &t, err);
    if (r < 0) {
        topology_fini(&t);
        return r;
    }
    if (config->sysroot == NULL && gethostname(t.host, sizeof t.host - 1) < 0)
        t.host[0] = '\0';
    topology_sort(&t);
    *ret = t;
    return 0;
}

bool discover_has_gpus(void) { return sysfs_has_gpus(NULL) || nvml_may_answer(); }
