#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/envlist.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "cli/commands.h"
#include "cli/found_io.h"
#include "io/loop.h"
#include "io/tls.h"
#include "topology/cpu_count_io.h"
#include "topology/gpu_count.h"
#include "topology/hwloc_io.h"
#include "topology/nvml_io.h"

static void add(struct strbuf *out, const char *name, const char *text) {
    strbuf_printf(out, "  %-10s %s\n", name, text);
}

static void add_built(struct strbuf *out) {
    char hwloc[HWLOC_TEXT_MAX];
    hwloc_built_version(hwloc);
    strbuf_add(out, "built with\n");
#ifdef __clang__
    add(out, "compiler", "clang " __clang_version__);
#else
    add(out, "compiler", "gcc " __VERSION__);
#endif
    add(out, "libevent", loop_built_version());
    add(out, "OpenSSL", tls_built_version());
    add(out, "cJSON", json_built_version());
    add(out, "hwloc", hwloc);
}

static void add_hwloc(struct strbuf *out) {
    struct hwloc_summary summary;
    struct err err = {0};
    if (hwloc_look(&summary, &err) < 0) {
        strbuf_printf(out, "  %-10s not found: %s\n", "hwloc", err.text);
        return;
    }
    strbuf_printf(out, "  %-10s %s; %u packages, %u NUMA nodes, %u cores, %u hardware threads\n",
                  "hwloc", summary.version, summary.packages, summary.numa_nodes, summary.cores,
                  summary.pus);
}

static void add_gpus(struct strbuf *out, const char *visible) {
    struct nvml_report *report = xcalloc(1, sizeof *report);
    nvml_look(report);
    if (report->found)
        strbuf_printf(out, "  %-10s %s, driver %s\n", "NVML", report->version, report->driver);
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
        strbuf_printf(out, "  %-10s %u: %s %s\n", "", i, report->names[i], report->uuids[i]);
    free(report);
}

static void add_found(struct strbuf *out) {
    char openssl[TLS_TEXT_MAX];
    strbuf_add(out, "found here\n");
    add(out, "libevent", loop_backend_version());
    add(out, "OpenSSL", tls_found_version(openssl) ? openssl : "not found");
    add(out, "cJSON", json_library_version());
    add_hwloc(out);
    found_kernel(out);
    strbuf_printf(out, "  %-10s %u for this process\n", "CPUs", cpu_count_allowed());
    add_gpus(out, env_get(environ, "CUDA_VISIBLE_DEVICES"));
    found_cgroup(out);
    found_programs(out);
}

int cmd_version(int argc, char **argv) {
    bool verbose = argc == 2 && (strcmp(argv[1], "-v") == 0 || strcmp(argv[1], "--verbose") == 0);
    if (argc > 1 && !verbose)
        return usage_error("version", "unknown argument \"%s\"; there is only -v",
                           argv[argc > 2 ? 2 : 1]);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    strbuf_printf(&text, "muster %s\n", MUSTER_VERSION);
    if (verbose) {
        add_built(&text);
        add_found(&text);
    }
    (void)fputs(strbuf_text(&text), stdout);
    return finish_stdout();
}
