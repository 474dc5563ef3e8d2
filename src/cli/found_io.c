#include "cli/found_io.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "launcher/cgroup_io.h"
#include "launcher/python_io.h"

static const char *yes_no(bool yes) { return yes ? "yes" : "no"; }

static bool has_pidfd(void) {
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

/* An argument block of size 0 is refused with EINVAL by kernels (and filters) that have it. */
static bool has_clone3(void) {
    struct clone_args args;
    memset(&args, 0, sizeof args);
    return syscall(SYS_clone3, &args, (size_t)0) < 0 && errno == EINVAL;
}

void found_kernel(struct strbuf *out) {
    struct utsname u;
    if (uname(&u) == 0)
        strbuf_printf(out, "  %-10s %s %s, %s\n", "kernel", u.sysname, u.release, u.machine);
    strbuf_printf(out, "  %-10s pidfd %s, clone3 %s\n", "children", yes_no(has_pidfd()),
                  yes_no(has_clone3()));
}

static bool has_file(const char *pattern) {
    glob_t g = {0};
    bool found = glob(pattern, GLOB_BRACE, NULL, &g) == 0;
    globfree(&g);
    return found;
}

void found_cgroup(struct strbuf *out) {
    _cleanup_(freep) char *path = NULL;
    int r = cgroup_own_path(&path);
    if (r < 0) {
        strbuf_printf(out, "  %-10s no cgroup v2 here\n", "cgroup");
        return;
    }
    /* The root group has no such file; the groups below it do. */
    _cleanup_(freep) char *kill_file = xasprintf("%s{,/*}/cgroup.kill", path);
    bool writable = access(path, W_OK) == 0;
    strbuf_printf(out, "  %-10s v2 at %s, %s%s, cgroup.kill %s\n", "cgroup", path,
                  writable ? "writable" : "not writable",
                  cgroup_is_delegated(path) ? ", given to us" : "",
                  yes_no(has_file(kill_file)));
    _cleanup_(freep) char *oom = cgroup_oom_file();
    strbuf_printf(out, "  %-10s %s\n", "memory",
                  oom != NULL ? oom : "no count of kernel kills; out of memory can't be told");
}

void found_programs(struct strbuf *out) {
    _cleanup_(freep) char *python = NULL;
    struct err err = {0};
    if (python_find(environ, &python, &err) == 0)
        strbuf_printf(out, "  %-10s %s\n", "python", python);
    else
        strbuf_printf(out, "  %-10s not found: %s\n", "python", err.text);
    void *munge = dlopen("libmunge.so.2", RTLD_LAZY | RTLD_LOCAL);
    strbuf_printf(out, "  %-10s %s\n", "munge",
                  munge != NULL ? "libmunge.so.2" : "not found (no libmunge.so.2)");
}
