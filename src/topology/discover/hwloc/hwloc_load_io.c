#include "topology/discover/hwloc/hwloc_load_io.h"

#include <errno.h>
#include <stdio.h>

#include "topology/discover/common/discovery.h"
#include "topology/discover/hwloc/hwloc_priv.h"

/* ---- hwloc's own environment, during one load ---- */

#define SETTINGS_MAX 16

struct setting {
    const char *name;
    char *old; /* owned; NULL: it was not set */
};
struct settings {
    struct setting all[SETTINGS_MAX];
    size_t n;
};

/* value NULL: unset. */
static void settings_put(struct settings *s, const char *name, const char *value) {
    assert(s->n < SETTINGS_MAX);
    const char *old = getenv(name);
    s->all[s->n++] = (struct setting){name, old != NULL ? xstrdup(old) : NULL};
    if (value != NULL)
        (void)setenv(name, value, 1); /* ENOMEM: then hwloc uses its defaults */
    else
        (void)unsetenv(name);
}

static void settings_restore(struct settings *s) {
    while (s->n > 0) {
        struct setting *e = &s->all[--s->n];
        if (e->old != NULL)
            (void)setenv(e->name, e->old, 1);
        else
            (void)unsetenv(e->name);
        free(e->old);
    }
}

/* Excludes plugins that would load GPU libraries and X into this process, where they can hang;
 * libxml2, because hwloc's own parser reads the same; and libpciaccess, because /sys has the same
 * data. */
#define NO_PLUGINS                                                           \
    "hwloc_cuda.so,hwloc_nvml.so,hwloc_opencl.so,hwloc_gl.so,hwloc_rsmi.so," \
    "hwloc_levelzero.so,hwloc_pci.so,hwloc_xml_libxml.so"

/* Most of these can only be set by environment variables (hwloc 2.9 manual, "Environment
 * Variables"). A user's HWLOC_XMLFILE and similar variables do not describe this machine, and such
 * a file would be read without protection. */
static void settings_for(struct settings *s, const struct hwloc_source *source) {
    bool tree = source->xml == NULL && source->sysroot != NULL;
    settings_put(s, "HWLOC_PLUGINS_BLACKLIST", NO_PLUGINS);
    settings_put(s, "HWLOC_HIDE_ERRORS", "2");
    settings_put(s, "HWLOC_XML_VERBOSE", NULL);
    settings_put(s, "HWLOC_LIBXML", "0");
    settings_put(s, "HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES", "1");
    settings_put(s, "HWLOC_XMLFILE", NULL);
    settings_put(s, "HWLOC_SYNTHETIC", NULL);
    settings_put(s, "HWLOC_CPUID_PATH", NULL);
    settings_put(s, "HWLOC_FSROOT", tree ? source->sysroot : NULL);
    settings_put(s, "HWLOC_COMPONENTS", tree ? "linux,stop" : NULL);
    settings_put(s, "HWLOC_THISSYSTEM", tree || source->xml != NULL ? "0" : NULL);
}

/* ---- loading ---- */

/* The x86 component asks every CPU by moving this process there; /proc/cpuinfo has what is needed.
 * It is not an error if a component does not exist. */
static void leave_out_components(const struct hwloc_view *v) {
    static const char *const names[] = {"x86",  "pci",  "gl",   "opencl",
                                        "cuda", "nvml", "rsmi", "levelzero"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)hwloc_topology_set_components(v->topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            names[i]);
}

static int load(const struct hwloc_view *v, const struct hwloc_source *source, struct err *err) {
    if (source->xml == NULL) {
        leave_out_components(v);
    } else if (hwloc_topology_set_xmlbuffer(v->topology, source->xml, (int)source->xml_len) < 0) {
        return err_set(err, -EINVAL, "hwloc can't read this XML: it is damaged, or not hwloc's");
    }
    enum hwloc_type_filter_e io =
        v->what & DISCOVER_PCI ? HWLOC_TYPE_FILTER_KEEP_ALL : HWLOC_TYPE_FILTER_KEEP_NONE;
    (void)hwloc_topology_set_io_types_filter(v->topology, io);
    if (hwloc_topology_load(v->topology) == 0)
        return 0;
    if (source->xml != NULL)
        return err_set(err, -EINVAL, "hwloc can't read this XML: it is damaged");
    return err_set(err, -EIO, "hwloc can't examine %s",
                   source->sysroot != NULL ? source->sysroot : "this machine");
}

static int fill(const struct hwloc_source *source, unsigned what, struct topology *t,
                struct err *err) {
    struct hwloc_view v = {.t = t,
                           .what = what,
                           .xml = source->xml != NULL,
                           .tree = source->xml == NULL && source->sysroot != NULL};
    if (hwloc_topology_init(&v.topology) < 0)
        return err_set(err, -EIO, "hwloc can't start");
    int r = load(&v, source, err);
    if (r == 0) {
        hwloc_fill_cpus(&v);
        if (what & DISCOVER_PCI)
            hwloc_fill_pci(&v);
        if (v.xml)
            hwloc_fill_devices(&v);
    }
    hwloc_topology_destroy(v.topology);
    return r;
}

struct trial {
    const struct hwloc_source *source;
    unsigned what;
};

static int try_fill(void *arg, struct err *err) {
    const struct trial *trial = arg;
    struct topology t = {0};
    int r = fill(trial->source, trial->what, &t, err);
    if (r == 0)
        topology_sort(&t);
    return r;
}

int hwloc_fill(const struct hwloc_source *source, unsigned what, struct topology *t,
               struct err *err) {
    if (source->xml_len > INT32_MAX)
        return err_set(err, -E2BIG, "an hwloc XML of %zu bytes is too large", source->xml_len);
    struct settings settings = {0};
    settings_for(&settings, source);
    int r = 0;
    if (source->xml != NULL || source->sysroot != NULL)
        r = hwloc_try(try_fill, &(struct trial){source, what}, err);
    if (r == 0)
        r = fill(source, what, t, err);
    settings_restore(&settings);
    return r;
}
