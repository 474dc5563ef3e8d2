#include "cli/commands/installed_io.h"

#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "io/file.h"
#include "io/process/child.h"

#define FILE_BYTES_MAX ((size_t)4 * 1024 * 1024)
#define DPKG_LIST "/var/lib/dpkg/info/muster.list"

static void add(struct strbuf *out, const char *name, const char *text) {
    _cleanup_(freep) char *clean = xstrdup(text);
    utf8_clean(clean, false);
    strbuf_printf(out, "  %-10s %s\n", name, clean);
}

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

/* ---- the package ---- */

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

void installed_add(char *const *envp, struct strbuf *out) {
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
