#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/json/json.h"
#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "base/text/strbuf.h"
#include "base/text/utf8.h"
#include "cli/options/commands.h"
#include "io/file.h"
#include "io/loop.h"
#include "io/net/tls.h"
#include "io/process/child.h"
#include "io/process/proc.h"
#include "launcher/node/python_io.h"
#include "topology/discover/discovery_io.h"
#include "topology/discover/hwloc/hwloc_io.h"
#include "topology/discover/nvml/nvml_io.h"
#include "topology/model/gpu_count.h"

static void add(struct strbuf *out, const char *name, const char *text) {
    _cleanup_(freep) char *clean = xstrdup(text);
    utf8_clean(clean, false);
    strbuf_printf(out, "  %-10s %s\n", name, clean);
}

static void add_kernel(struct strbuf *out) {
    struct utsname u;
    if (uname(&u) == 0)
        strbuf_printf(out, "  %-10s %s %s, %s\n", "kernel", u.sysname, u.release, u.machine);
}

static void add_programs(struct strbuf *out) {
    _cleanup_(freep) char *python = NULL;
    struct err err = {0};
    if (python_find(program_invocation_name, environ, &python, &err) == 0)
        add(out, "python", python);
    else
        strbuf_printf(out, "  %-10s not found: %s\n", "python", err.text);
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
    _cleanup_(freep) struct nvml_report *report = xcalloc(1, sizeof *report);
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
    add_programs(out);
}

/* ---- the package ---- */

#define FILE_BYTES_MAX ((size_t)4 * 1024 * 1024)
#define DPKG_LIST "/var/lib/dpkg/info/muster.list"

/* The folder above the one that a file is in: the prefix of PREFIX/bin/muster. malloc'ed. */
static char *prefix_of(const char *path) {
    char *prefix = xstrdup(path);
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(prefix, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    return prefix;
}

/* Python's site-packages below a prefix, as a pattern of glob(7). */
static void add_site(struct strbuf *out, const char *prefix) {
    for (; *prefix != '\0'; prefix++) {
        if (strchr("*?[\\", *prefix) != NULL)
            strbuf_add_char(out, '\\');
        strbuf_add_char(out, *prefix);
    }
    strbuf_add(out, "/lib*/python3*/*-packages/");
}

/* The first path below a prefix's site-packages that matches; malloc'ed; NULL: none. */
static char *find_in_site(const char *prefix, const char *name) {
    _cleanup_(strbuf_fini) struct strbuf pattern = {0};
    glob_t found = {0};
    add_site(&pattern, prefix);
    strbuf_add(&pattern, name);
    int r = glob(strbuf_text(&pattern), 0, NULL, &found);
    char *path = r == 0 && found.gl_pathc > 0 ? xstrdup(found.gl_pathv[0]) : NULL;
    globfree(&found);
    return path;
}

static char *read_file(const char *dir, const char *name, size_t max) {
    _cleanup_(freep) char *path = xasprintf("%s%s%s", dir, name[0] != '\0' ? "/" : "", name);
    char *text = NULL;
    size_t len;
    return file_read_text(path, max, &text, &len) == 0 ? text : NULL;
}

/* The rest of the first line that begins so, malloc'ed; NULL: there is none. */
static char *line_after(const char *text, const char *begin) {
    for (; text != NULL && *text != '\0'; text = text_next_line(text))
        if (strncmp(text, begin, strlen(begin)) == 0)
            return xstrndup(text + strlen(begin), strcspn(text, "\r\n") - strlen(begin));
    return NULL;
}

/* The record that pip or another installer has left in the environment of the program. */
static bool add_wheel(const char *self, struct strbuf *out) {
    _cleanup_(freep) char *prefix = prefix_of(self);
    _cleanup_(freep) char *info = find_in_site(prefix, "muster-*.dist-info");
    if (info == NULL)
        return false;
    _cleanup_(freep) char *record = read_file(info, "RECORD", FILE_BYTES_MAX);
    _cleanup_(freep) char *wheel = read_file(info, "WHEEL", FILE_BYTES_MAX);
    _cleanup_(freep) char *maker = line_after(wheel, "Generator: ");
    if (record == NULL || strstr(record, "/bin/muster,") == NULL)
        return false;
    _cleanup_(freep) char *text =
        xasprintf("%s: %s",
                  maker != NULL && strcmp(maker, "muster") == 0      ? "wheel"
                  : maker != NULL && strncmp(maker, "meson", 5) == 0 ? "pip build"
                                                                     : "Python package",
                  info);
    add(out, "package", text);
    return true;
}

static bool add_debian(const char *self, struct strbuf *out) {
    _cleanup_(freep) char *list = read_file(DPKG_LIST, "", FILE_BYTES_MAX);
    _cleanup_(freep) char *rest = line_after(list, self);
    if (rest == NULL || rest[0] != '\0')
        return false;
    add(out, "package", "Debian package: the file is in " DPKG_LIST);
    return true;
}

/* In the tree of a build with Meson. */
static bool add_build(const char *self, struct strbuf *out) {
    _cleanup_(freep) char *dir = xstrdup(self);
    for (char *slash; (slash = strrchr(dir, '/')) != NULL && slash > dir;) {
        *slash = '\0';
        _cleanup_(freep) char *meson = xasprintf("%s/meson-private/coredata.dat", dir);
        if (access(meson, F_OK) < 0)
            continue;
        _cleanup_(freep) char *text = xasprintf("none: it is in the build tree %s", dir);
        add(out, "package", text);
        return true;
    }
    return false;
}

static int find_libevent(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    return strstr(info->dlpi_name, "/libevent") != NULL;
}

/* ---- torchrun ---- */

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* packaging/python/torchrun.sh: it runs the muster beside what it is a link to. */
static void add_our_script(const char *path, const char *self, struct strbuf *out) {
    _cleanup_(freep) char *real = realpath(path, NULL);
    _cleanup_(freep) char *beside =
        real != NULL ? xasprintf("%.*s/muster", (int)(path_name(real) - real - 1), real) : NULL;
    if (beside != NULL && is_same_file(beside, self))
        strbuf_add(out, "the script of muster[torchrun], runs this muster");
    else
        strbuf_printf(out, "the script of muster[torchrun], runs %s",
                      beside != NULL ? beside : "another muster");
}

/* PyTorch's script. Where the package of ours that has the same file is installed, too, PyTorch's
 * came later. MUSTER_REPLACE_TORCHRUN is read by muster.pth of the same environment. */
static void add_torchs(const char *path, const char *replace, struct strbuf *out,
                       const char **ret_note) {
    _cleanup_(freep) char *prefix = prefix_of(path);
    _cleanup_(freep) char *pth = find_in_site(prefix, "muster.pth");
    _cleanup_(freep) char *ours = find_in_site(prefix, "muster_torchrun-*.dist-info");
    bool replaces = replace[0] != '\0' && strcmp(replace, "0") != 0;
    strbuf_add(out, "PyTorch's script");
    if (replaces)
        strbuf_printf(out,
                      pth != NULL ? ", which starts muster, because MUSTER_REPLACE_TORCHRUN=%s"
                                  : "; MUSTER_REPLACE_TORCHRUN=%s has no effect, because its "
                                    "environment has no muster.pth",
                      replace);
    else if (pth != NULL)
        strbuf_add(out, "; MUSTER_REPLACE_TORCHRUN is not set");
    if (ours != NULL)
        *ret_note = "muster[torchrun] is installed, but a later installation of torch has "
                    "overwritten its script; to restore it: pip install --force-reinstall "
                    "--no-deps muster-torchrun";
}

static void add_torchrun(const char *self, char *const *envp, struct strbuf *out) {
    _cleanup_(freep) char *path = NULL;
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const char *replace = env_get(envp, "MUSTER_REPLACE_TORCHRUN"), *note = NULL;
    if (child_find_program("torchrun", env_get(envp, "PATH"), &path) < 0) {
        add(out, "torchrun", "none on PATH");
        return;
    }
    strbuf_printf(&text, "%s: ", path);
    _cleanup_(freep) char *script = NULL;
    if (!is_same_file(path, self))
        script = read_file(path, "", FILE_BYTES_MAX);
    if (is_same_file(path, self))
        strbuf_add(&text, "this muster");
    else if (script != NULL && strstr(script, "/muster\" torchrun \"$@\"") != NULL)
        add_our_script(path, self, &text);
    else if (script != NULL && strstr(script, "torch.distributed.run") != NULL)
        add_torchs(path, replace != NULL ? replace : "", &text, &note);
    else
        strbuf_add(&text, "neither this muster nor PyTorch's script");
    add(out, "torchrun", strbuf_text(&text));
    if (note != NULL)
        add(out, "", note);
}

/* How this program was installed, and which torchrun runs, by files. */
static void installed_add(char *const *envp, struct strbuf *out) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return;
    self[n] = '\0';
    add(out, "program", self);
    if (!add_wheel(self, out) && !add_debian(self, out) && !add_build(self, out))
        add(out, "package",
            dl_iterate_phdr(find_libevent, NULL) != 0
                ? "none has a record of this file"
                : "none has a record of this file; its libraries are linked in, as in the "
                  "portable file");
    add_torchrun(self, envp, out);
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
