#include "launcher/place/place_io.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"
#include "base/util.h"
#include "io/file.h"
#include "io/process/proc.h"

/* ---- slurm.conf ---- */

static const char blank[] = " \t\r";

/* Whether the text begins with this name, and no longer one. */
static bool begins_with(const char *text, const char *name) {
    size_t n = strlen(name);
    return strncasecmp(text, name, n) == 0 && strcspn(text + n, " \t\r\n=#") == 0;
}

/* The value of the parameter, if `at` is there: "TaskPlugin = task/none"; else NULL. */
static const char *value_at(const char *at, const char *name) {
    if (!begins_with(at, name))
        return NULL;
    at += strlen(name);
    at += strspn(at, blank);
    if (*at != '=')
        return NULL;
    return at + 1 + strspn(at + 1, blank);
}

/* The value of the last line with this parameter, or NULL. *ret_includes: it includes files. */
static const char *last_value(const char *text, const char *name, bool *ret_includes) {
    const char *last = NULL;
    *ret_includes = false;
    for (const char *line = text; *line != '\0'; line = text_next_line(line)) {
        const char *end = line + strcspn(line, "\n"), *at = line + strspn(line, blank);
        *ret_includes |= begins_with(at, "Include");
        while (at < end && *at != '#') { /* a line can have several parameters */
            const char *value = value_at(at, name);
            last = value != NULL ? value : last;
            at += strcspn(at, " \t\r\n");
            at += strspn(at, blank);
        }
    }
    return last;
}

bool slurm_conf_binds_nothing(const char *text) {
    bool includes;
    const char *value = last_value(text, "TaskPlugin", &includes);
    return value != NULL && !includes &&
           (begins_with(value, "task/none") || begins_with(value, "none"));
}

char *slurm_conf_munge_socket(const char *text) {
    static const char name[] = "socket=";
    bool includes;
    const char *at = last_value(text, "AuthInfo", &includes);
    while (at != NULL && strncasecmp(at, name, strlen(name)) != 0) {
        at += strcspn(at, ", \t\r\n#");
        at = *at == ',' ? at + 1 : NULL;
    }
    if (at == NULL)
        return NULL;
    at += strlen(name);
    return xstrndup(at, strcspn(at, ", \t\r\n#"));
}

/* ---- mounts ---- */

static const struct {
    const char *type, *name;
} shared[] = {
    {"lustre", "Lustre"}, {"gpfs", "GPFS"},      {"nfs", "NFS"},
    {"nfs4", "NFS"},      {"beegfs", "BeeGFS"},  {"fhgfs", "BeeGFS"},
    {"ceph", "Ceph"},     {"fuse.ceph", "Ceph"}, {"wekafs", "WEKA"},
};

/* Whether a path is the mount point or below it. */
static bool covers(const char *point, const char *path) {
    size_t n = strlen(point);
    return strcmp(point, "/") == 0
               ? path[0] == '/'
               : strncmp(point, path, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

const char *mounts_shared(FILE *mounts, const char *path) {
    char line[16384];
    struct mntent m;
    const char *name = NULL;
    size_t longest = 0;
    while (getmntent_r(mounts, &m, line, sizeof line) != NULL) {
        size_t n = strlen(m.mnt_dir);
        if (n < longest || !covers(m.mnt_dir, path))
            continue; /* of two at one place, the later hides the other */
        longest = n;
        name = NULL;
        for (size_t i = 0; i < ARRAY_SIZE(shared); i++)
            if (strcmp(shared[i].type, m.mnt_type) == 0)
                name = shared[i].name;
    }
    return name;
}

#define ANCESTORS_MAX 64
#define CGROUP_MAX 4096
#define TITLE_MAX 256
#define CONF_MAX ((size_t)1 << 20)

/* A title has NUL bytes behind it, and an argument list has them inside. */
static bool read_title(pid_t pid, char ret[TITLE_MAX]) {
    ssize_t n = proc_read(pid, "/cmdline", ret, TITLE_MAX - 1);
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

void place_facts_read(void *arg, struct place_facts *ret) {
    static char cgroup[CGROUP_MAX], stepd[TITLE_MAX], parent[17], ancestor[17];
    struct proc_stat st;
    *ret = (struct place_facts){.sees_all = sees_all()};
    ssize_t n = proc_read(0, "/cgroup", cgroup, sizeof cgroup - 1);
    cgroup[MAX2(n, 0)] = '\0';
    ret->cgroup = n > 0 ? cgroup : NULL;
    pid_t pid = getppid();
    for (int i = 0; i < ANCESTORS_MAX && pid > 0 && proc_read_stat(pid, &st); i++) {
        if (i == 0)
            ret->parent = memcpy(parent, st.name, sizeof parent);
        const bool is_stepd = strcmp(st.name, "slurmstepd") == 0;
        if (ret->ancestor == NULL && (is_stepd || launcher_by_ancestor(st.name) != NULL)) {
            ret->ancestor = memcpy(ancestor, st.name, sizeof ancestor);
            ret->ancestor_pid = pid;
        }
        if (is_stepd) {
            ret->stepd_is_parent = i == 0;
            ret->stepd = read_title(pid, stepd) ? stepd : NULL;
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
