#include <errno.h>
#include <linux/sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/json/json.h"
#include "base/text/envlist.h"
#include "base/text/strbuf.h"
#include "cli/commands/installed_io.h"
#include "cli/options/commands.h"
#include "io/loop.h"
#include "io/net/tls.h"
#include "launcher/node/python_io.h"
#include "launcher/supervise/cgroup_io.h"
#include "topology/discover/common/cpu_count_io.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/hwloc/hwloc_io.h"
#include "topology/discover/nvml/nvml_io.h"
#include "topology/model/gpu_count.h"

static const char *yes_no(bool yes) { return yes ? "yes" : "no"; }

static bool has_pidfd(void) {
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

/* Kernels (and filters) that have clone3() refuse an argument block of size 0 with EINVAL. */
static bool has_clone3(void) {
    struct clone_args args;
    memset(&args, 0, sizeof args);
    return syscall(SYS_clone3, &args, (size_t)0) < 0 && errno == EINVAL;
}

static void add_kernel(struct strbuf *out) {
    struct utsname u;
    if (uname(&u) == 0)
        strbuf_printf(out, "  %-10s %s %s, %s\n", "kernel", u.sysname, u.release, u.machine);
    strbuf_printf(out, "  %-10s pidfd %s, clone3 %s\n", "children", yes_no(has_pidfd()),
                  yes_no(has_clone3()));
}

/* Linux 5.14. The root cgroup has no such file; the groups below it have one. */
static bool has_cgroup_kill(void) {
    struct utsname u;
    unsigned major = 0, minor = 0;
    if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2)
        return false;
    return major > 5 || (major == 5 && minor >= 14);
}

static void add_cgroup(struct strbuf *out) {
    _cleanup_(freep) char *path = NULL;
    int r = cgroup_own_path(&path);
    if (r < 0) {
        strbuf_printf(out, "  %-10s no cgroup v2 here\n", "cgroup");
        return;
    }
    bool writable = access(path, W_OK) == 0;
    strbuf_printf(out, "  %-10s v2 at %s, %s%s, cgroup.kill %s\n", "cgroup", path,
                  writable ? "writable" : "not writable",
                  cgroup_is_delegated(path) ? ", given to us" : "", yes_no(has_cgroup_kill()));
    _cleanup_(freep) char *oom = cgroup_oom_file();
    strbuf_printf(out, "  %-10s %s\n", "memory",
                  oom != NULL ? oom
                              : "no count of kernel kills; out of memory can't be recognized");
}

static void add_programs(struct strbuf *out) {
    _cleanup_(freep) char *python = NULL;
    struct err err = {0};
    if (python_find(program_invocation_name, environ, &python, &err) == 0)
        strbuf_printf(out, "  %-10s %s\n", "python", python);
    else
        strbuf_printf(out, "  %-10s not found: %s\n", "python", err.text);
}

static void add(struct strbuf *out, const char *name, const char *text) {
    strbuf_printf(out, "  %-10s %s\n", name, text);
}

static void found_built(struct strbuf *out) {
#ifdef __clang__
    add(out, "compiler", "clang " __clang_version__);
#else
    add(out, "compiler", "gcc " __VERSION__);
#endif
    add(out, "libevent", loop_built_version());
    add(out, "OpenSSL", tls_built_version());
    add(out, "cJSON", json_built_version());
    add(out, "hwloc", hwloc_built_version());
}

static void add_hwloc(struct strbuf *out) {
    _cleanup_(topology_fini) struct topology t = {0};
    const struct discovery_config config = {.what = DISCOVER_CPUS};
    char version[HWLOC_TEXT_MAX];
    struct err err = {0};
    if (hwloc_found_version(version, &err) < 0 || topology_discover(&config, &t, &err) < 0)
        strbuf_printf(out, "  %-10s not found: %s\n", "hwloc", err.text);
    else
        strbuf_printf(out,
                      "  %-10s %s; packages %u, NUMA nodes %u, cores %u, hardware threads %u\n",
                      "hwloc", version, t.packages, t.n_numa, t.n_cores, cpuset_count(&t.online));
}

static void add_gpu(struct strbuf *out, const struct nvml_report *report, uint32_t i) {
    struct pci_addr_text at = pci_addr_text(report->gpus[i].at);
    const char *parts[] = {report->names[i], report->uuids[i],
                           report->gpus[i].has_address ? at.text : ""};
    bool has_name = false;
    strbuf_printf(out, "  %-10s %u:", "", i);
    for (size_t k = 0; k < ARRAY_SIZE(parts); k++) {
        if (parts[k][0] != '\0')
            strbuf_printf(out, " %s", parts[k]);
        has_name = has_name || parts[k][0] != '\0';
    }
    strbuf_printf(out, "%s\n",
                  report->gpus[i].lost ? " (lost, or needs a reset)"
                  : has_name           ? ""
                                       : " (without a name)");
}

static void add_gpus(struct strbuf *out, const char *visible) {
    struct nvml_report *report = xcalloc(1, sizeof *report);
    (void)nvml_discover(report);
    if (report->found)
        strbuf_printf(out, "  %-10s %s, driver %s%s%s\n", "NVML", report->version, report->driver,
                      report->cuda[0] != '\0' ? ", CUDA " : "", report->cuda);
    else
        strbuf_printf(out, "  %-10s not found: %s\n", "NVML", report->why_not);
    struct gpu_inventory inventory = {.n = report->n,
                                      .uuids = report->found ? report->uuids : NULL};
    strbuf_printf(out, "  %-10s %u", "GPUs", report->n);
    if (visible != NULL)
        strbuf_printf(out, ", %u visible (CUDA_VISIBLE_DEVICES=%s)",
                      gpu_count_visible(visible, &inventory), visible);
    strbuf_add_char(out, '\n');
    for (uint32_t i = 0; i < report->n && report->found; i++)
        add_gpu(out, report, i);
    free(report);
}

static void found_here(struct strbuf *out) {
    char openssl[TLS_TEXT_MAX];
    add(out, "libevent", loop_backend_version());
    add(out, "OpenSSL", tls_found_version(openssl) ? openssl : "not found");
    add(out, "cJSON", json_library_version());
    add_hwloc(out);
    add_kernel(out);
    strbuf_printf(out, "  %-10s %u for this process\n", "CPUs", cpu_count_allowed());
    add_gpus(out, env_get(environ, "CUDA_VISIBLE_DEVICES"));
    add_cgroup(out);
    add_programs(out);
}

int cmd_version(int argc, char **argv) {
    bool verbose = argc == 2 && (strcmp(argv[1], "-v") == 0 || strcmp(argv[1], "--verbose") == 0);
    if (argc == 2 && help_is_asked(argv[1])) {
        char help[] = "help", *words[] = {help, argv[0], NULL};
        return cmd_help(2, words);
    }
    if (argc > 1 && !verbose)
        return usage_error("version", "unknown argument \"%s\"; there is only -v",
                           argv[argc > 2 ? 2 : 1]);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    strbuf_add(&text, VERSION_LINE);
    if (verbose) {
        strbuf_add(&text, "installed as\n");
        installed_add(environ, &text);
        strbuf_add(&text, "built with\n");
        found_built(&text);
        strbuf_add(&text, "found here\n");
        found_here(&text);
    }
    return print_text(&text);
}
