#include "launcher/place/place_io.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "io/file.h"
#include "io/process/proc.h"
#include "launcher/place/place_files.h"

#define ANCESTORS_MAX 64
#define CONF_MAX ((size_t)1 << 20)

/* A title has NUL bytes behind it, and an argument list has them inside. */
static bool read_title(pid_t pid, char ret[SLURM_TITLE_MAX]) {
    ssize_t n = proc_read(pid, "/cmdline", ret, SLURM_TITLE_MAX - 1);
    if (n < 0)
        return false;
    ret[n] = '\0';
    return true;
}

/* The kernel's own threads are only in the first pid namespace. */
static bool sees_all(void) {
    struct proc_stat st;
    return proc_read_stat(2, &st) && strcmp(st.name, "kthreadd") == 0;
}

void place_here_read(struct place_here *ret) {
    struct proc_stat st;
    *ret = (struct place_here){0};
    ssize_t n = proc_read(0, "/cgroup", ret->cgroup, sizeof ret->cgroup - 1);
    if (n > 0)
        ret->facts.cgroup = ret->cgroup;
    ret->facts.sees_all = sees_all();
    pid_t pid = getppid();
    for (int i = 0; i < ANCESTORS_MAX && pid > 0 && proc_read_stat(pid, &st); i++) {
        if (i == 0) {
            memcpy(ret->parent, st.name, sizeof ret->parent);
            ret->facts.parent = ret->parent;
        }
        const bool is_stepd = strcmp(st.name, "slurmstepd") == 0;
        if (ret->facts.ancestor == NULL && (is_stepd || launcher_by_ancestor(st.name) != NULL)) {
            memcpy(ret->ancestor, st.name, sizeof ret->ancestor);
            ret->facts.ancestor = ret->ancestor;
            ret->facts.ancestor_pid = pid;
        }
        if (is_stepd) {
            ret->facts.stepd_is_parent = i == 0;
            if (read_title(pid, ret->stepd))
                ret->facts.stepd = ret->stepd;
            return;
        }
        pid = st.parent;
    }
}

static char *read_conf(char *const *envp) {
    const char *path = env_get(envp, "SLURM_CONF");
    char *text = NULL;
    size_t len;
    if (path == NULL || path[0] == '\0')
        path = "/etc/slurm/slurm.conf";
    return file_read_text(path, CONF_MAX, &text, &len) == 0 ? text : xstrdup("");
}

bool slurm_binds_nothing(char *const *envp) {
    _cleanup_(freep) char *text = read_conf(envp);
    return slurm_conf_binds_nothing(text);
}

char *slurm_munge_socket(char *const *envp) {
    _cleanup_(freep) char *text = read_conf(envp);
    return slurm_conf_munge_socket(text);
}

bool folder_is_usable(const char *path) {
    struct stat st;
    if (lstat(path, &st) == 0)
        return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 0022) == 0 &&
               (st.st_mode & S_IRWXU) == S_IRWXU;
    const char *slash = errno == ENOENT ? strrchr(path, '/') : NULL;
    if (slash == NULL)
        return false;
    _cleanup_(freep) char *above = xstrndup(path, slash > path ? (size_t)(slash - path) : 1);
    return faccessat(AT_FDCWD, above, W_OK | X_OK, AT_EACCESS) == 0;
}

const char *shared_folder(const char *path) {
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    const char *name = mounts != NULL ? mounts_shared(mounts, path) : NULL;
    if (mounts != NULL)
        (void)endmntent(mounts);
    return name != NULL && folder_is_usable(path) ? name : NULL;
}
