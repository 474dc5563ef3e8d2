#include "topology/discover/discovery_io.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/parse.h"
#include "io/file.h"
#include "topology/discover/hwloc/hwloc_io.h"
#include "topology/discover/net/netlink_io.h"
#include "topology/discover/nvml/nvml_io.h"
#include "topology/discover/sysfs/sysfs_io.h"
#include "topology/discover/sysfs/sysfs_priv.h"
#include "topology/json/topology_json.h"
#include "topology/nccl/nccl_xml.h"

#define FILE_MAX ((size_t)64 << 20)
#define ROOT_TAG_MAX 4096 /* how many bytes are searched for its attributes */

static int read_file(const char *path, char **ret, size_t *ret_len, struct err *err) {
    struct stat st;
    int r = file_read_text(path, FILE_MAX, ret, ret_len);
    if (r == -EINVAL && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return err_set(err, -EISDIR, "%s is a folder; --sysroot takes a recorded tree", path);
    if (r == -EINVAL)
        return err_set(err, r, "%s is not a regular file", path);
    if (r == -EFBIG)
        return err_set(err, -E2BIG, "%s is larger than %zu MiB: that can't be a topology", path,
                       FILE_MAX >> 20);
    if (r < 0)
        return err_set(err, r, "can't open %s: %s", path, strerror(-r));
    if (memchr(*ret, '\0', *ret_len) != NULL)
        return err_set(err, -EINVAL, "%s is not a text file", path);
    return 0;
}

static const char *skip_blanks(const char *p) {
    if (strncmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

/* Skips <?xml …?>, <!DOCTYPE …> and comments; NULL: one of them does not end. */
static const char *skip_prolog(const char *p) {
    for (;;) {
        p = skip_blanks(p);
        const char *end = strncmp(p, "<?", 2) == 0     ? "?>"
                          : strncmp(p, "<!--", 4) == 0 ? "-->"
                          : strncmp(p, "<!", 2) == 0   ? ">"
                                                       : NULL;
        if (end == NULL)
            return p;
        p = strstr(p, end);
        if (p == NULL)
            return NULL;
        p += strlen(end);
    }
}

static bool is_element(const char *p, const char *name) {
    size_t n = strlen(name);
    return *p == '<' && strncmp(p + 1, name, n) == 0 && strchr(" \t\r\n/>", p[n + 1]) != NULL &&
           p[n + 1] != '\0';
}

/* The root element's version="2.0"; "1" if it has none (hwloc 1.x). */
static void format_of(const char *root, char ret[16]) {
    char tag[ROOT_TAG_MAX];
    (void)snprintf(tag, sizeof tag, "%s", root);
    tag[strcspn(tag, ">")] = '\0';
    const char *version = strstr(tag, " version=\"");
    version = version != NULL ? version + strlen(" version=\"") : "1";
    (void)snprintf(ret, 16, "%.*s", (int)strspn(version, "0123456789."), version);
}

/* So hwloc's parser never gets incomplete files. */
static bool is_whole(const char *text, size_t len) {
    static const char end[] = "</topology>";
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        len--;
    return len >= strlen(end) && memcmp(text + len - strlen(end), end, strlen(end)) == 0;
}

/* hwloc lends a NUMA node without CPUs those near it. The kernel lists its own; in an XML such a
 * node has the CPUs of an earlier one. */
static void take_back_lent_cpus(const struct sysfs *s, struct topology *t) {
    for (uint32_t i = 0; i < t->n_numa; i++) {
        struct topo_numa *n = &t->numa[i];
        char list[SYSFS_TEXT_MAX];
        bool lent =
            s != NULL && sysfs_read(s, list, sizeof list, "/sys/devices/system/node/node%d/cpulist",
                                    n->index) == -ENODATA;
        for (uint32_t k = 0; s == NULL && k < i; k++)
            lent = lent || cpuset_equal(&t->numa[k].cpus, &n->cpus);
        if (!lent)
            continue;
        n->near = n->cpus;
        n->cpus = (struct cpuset){0};
    }
}

static int load_hwloc(const char *text, size_t len, const char *root, struct topology *t,
                      struct err *err) {
    char format[16];
    format_of(root, format);
    if (strtoul(format, NULL, 10) > 2)
        return err_set(err, -EINVAL,
                       "an hwloc XML of format %s, which hwloc 2 can't read; write it again with "
                       "hwloc 3's lstopo --export-xml-flags v2",
                       format);
    if (!is_whole(text, len))
        return err_set(err, -EINVAL, "an hwloc XML that is cut off: no </topology> ends it");
    struct hwloc_source source = {.xml = text};
    t->source = TOPO_HWLOC_XML;
    int r = hwloc_fill(&source, DISCOVER_ALL, t, err);
    if (r == 0)
        take_back_lent_cpus(NULL, t);
    return r;
}

static int load_text(const char *text, size_t len, struct topology *t, struct err *err) {
    const char *p = skip_blanks(text);
    if (*p == '\0')
        return err_set(err, -EINVAL, "the file is empty");
    if (*p == '{')
        return topology_json_read(p, len - (size_t)(p - text), t, err);
    p = skip_prolog(p);
    if (p == NULL)
        return err_set(err, -EINVAL, "an XML that is cut off: a comment or a <?…?> does not end");
    if (is_element(p, "topology"))
        return load_hwloc(text, len, p, t, err);
    if (*p != '<')
        return err_set(err, -EINVAL,
                       "neither JSON nor XML; wanted: muster's JSON, hwloc's XML or NCCL's");
    return nccl_xml_read(text, len, t, NULL, NULL, err);
}

int topology_load(const char *path, struct topology *ret, struct err *err) {
    _cleanup_(freep) char *text = NULL;
    size_t len = 0;
    int r = read_file(path, &text, &len, err);
    if (r < 0)
        return r;
    *ret = (struct topology){0};
    r = load_text(text, len, ret, err);
    if (r < 0) {
        topology_fini(ret);
        err_prefix(err, "%s", path);
        return r;
    }
    if (ret->from[0] == '\0')
        (void)snprintf(ret->from, sizeof ret->from, "%s", path);
    topology_sort(ret);
    return 0;
}

#define CPUINFO_MAX 4095 /* how many bytes are read: the first CPU is enough */

/* Reads the kernel's list of online CPUs; hwloc has reported those that exist. */
static void take_online(const struct sysfs *s, struct topology *t) {
    char text[SYSFS_TEXT_MAX];
    struct cpuset online;
    if (sysfs_read(s, text, sizeof text, "/sys/devices/system/cpu/online") == 0 &&
        cpuset_parse_list(text, &online) == 0 && !cpuset_is_empty(&online))
        t->online = online;
}

static bool cpuinfo_value(const char *text, const char *key, char *ret, size_t size) {
    size_t n = strlen(key);
    for (const char *line = text; *line != '\0'; line = text_next_line(line)) {
        const char *value = line + n;
        if (strncmp(line, key, n) != 0 || *(value += strspn(value, " \t")) != ':')
            continue;
        value += 1 + strspn(value + 1, " \t");
        (void)snprintf(ret, size, "%.*s", (int)strcspn(value, "\n"), value);
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

#define IMEX_CHANNELS "nvidia-caps-imex-channels"

/* A recorded tree rarely has /dev; then nothing is known. (NVIDIA, IMEX channels) */
static void take_imex(const struct sysfs *s, struct topology *t) {
    char devices[SYSFS_TEXT_MAX + 1], path[SYSFS_PATH_MAX];
    if (sysfs_head(s, devices, sizeof devices, "/proc/devices") < 0 ||
        strstr(devices, " " IMEX_CHANNELS "\n") == NULL || !sysfs_exists(s, "/dev"))
        return;
    _cleanup_(sysfs_names_fini) struct sysfs_names names = {0};
    t->imex = TOPO_IMEX_MISSING;
    if (sysfs_list(s, &names, "/dev/" IMEX_CHANNELS) < 0)
        return;
    for (uint32_t i = 0; i < names.n; i++) {
        sysfs_path(path, "%s/dev/" IMEX_CHANNELS "/%s", s->root, names.names[i]);
        if (strncmp(names.names[i], "channel", 7) == 0 && access(path, R_OK) == 0)
            t->imex = TOPO_IMEX_PRESENT;
    }
}

static void fill_by_files(const struct discovery_config *config, struct topology *t) {
    struct sysfs s = sysfs_at(config->sysroot);
    if (config->what & (DISCOVER_CPUS | DISCOVER_PCI)) {
        take_online(&s, t);
        take_cpuinfo(&s, t);
    }
    if (config->what & DISCOVER_PCI)
        sysfs_fill_pci(config->sysroot, t);
    if (config->what & (DISCOVER_PCI | DISCOVER_NVML))
        take_imex(&s, t);
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
    struct sysfs s = sysfs_at(config->sysroot);
    take_back_lent_cpus(&s, t);
    return 0;
}

/* NVML runs in a child at the same time as hwloc; without the driver it is not asked. */
static bool nvml_is_wanted(const struct discovery_config *config) {
    if ((config->what & DISCOVER_NVML) == 0 || config->sysroot != NULL)
        return false;
    return config->nvml_library != NULL || discover_has_gpus();
}

static void end_nvml(struct nvml_child *child, struct topology *t, struct discovery_nvml *ret) {
    _cleanup_(freep) struct nvml_report *own = ret == NULL ? xcalloc(1, sizeof *own) : NULL;
    struct nvml_report *report = ret != NULL ? &ret->report : own;
    (void)nvml_end(child, report); /* the report has the error, and the merge warns */
    nvml_merge(report, t);
}

static void count_before_nvml(const struct topology *t, struct discovery_nvml *ret) {
    ret->asked = nvml_may_answer(); /* without a driver the large report is not touched */
    ret->n_warnings = t->n_warnings;
    ret->n_nvidia = topology_count_gpus(t, TOPO_VENDOR_NVIDIA);
}

static int discover(const struct discovery_config *config, struct topology *t, struct err *err) {
    struct nvml_child child = {.call = NULL};
    struct nvml_config ask = {.library = config->nvml_library};
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
    struct stat st;
    if (config->sysroot != NULL && stat(config->sysroot, &st) < 0)
        return err_set(err, -errno, "can't open %s: %s", config->sysroot, strerror(errno));
    if (config->sysroot != NULL && !S_ISDIR(st.st_mode))
        return err_set(err, -ENOTDIR, "%s is not a folder: a recorded tree is wanted",
                       config->sysroot);
    *ret = (struct topology){.source = config->sysroot != NULL ? TOPO_SYSROOT : TOPO_LIVE};
    (void)snprintf(ret->from, sizeof ret->from, "%s",
                   config->sysroot != NULL ? config->sysroot : "this machine");
    int r = discover(config, ret, err);
    if (r < 0) {
        topology_fini(ret);
        return r;
    }
    if (config->sysroot == NULL && gethostname(ret->host, sizeof ret->host - 1) < 0)
        ret->host[0] = '\0';
    topology_sort(ret);
    return 0;
}

bool discover_has_gpus(void) { return sysfs_has_gpus(NULL) || nvml_may_answer(); }
