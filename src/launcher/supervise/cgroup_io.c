#include "launcher/supervise/cgroup_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/text/parse.h"
#include "base/text/strbuf.h"
#include "io/file.h"

/* The number after "KEY " at the start of a line; 0 if there is none. */
static uint64_t keyed_number(const char *text, const char *key) {
    for (const char *line = text; *line != '\0'; line = text_next_line(line))
        if (text_begins(line, key) && line[strlen(key)] == ' ')
            return strtoull(line + strlen(key), NULL, 10);
    return 0;
}

/* --- where we are --- */

struct mount {
    char root[1024], point[1024], type[64], options[1024];
};

/* id parent major:minor root point options … - type source super-options. proc(5) */
static bool parse_mount(const char *line, size_t len, struct mount *ret) {
    _cleanup_(freep) char *copy = xstrndup(line, len);
    const char *dash = strstr(copy, " - ");
    return dash != NULL && sscanf(copy, "%*s %*s %*s %1023s %1023s", ret->root, ret->point) == 2 &&
           sscanf(dash + 3, "%63s %*s %1023s", ret->type, ret->options) == 2;
}

/* Blanks and backslashes are written as \ooo in mountinfo. */
static void unescape(char *text) {
    char *out = text;
    for (const char *in = text; *in != '\0';) {
        if (in[0] == '\\' && in[1] >= '0' && in[1] <= '3' && in[2] >= '0' && in[2] <= '7' &&
            in[3] >= '0' && in[3] <= '7') {
            *out++ = (char)((in[1] - '0') * 64 + (in[2] - '0') * 8 + (in[3] - '0'));
            in += 4;
        } else {
            *out++ = *in++;
        }
    }
    *out = '\0';
}

static bool in_comma_list(const char *list, const char *word) {
    size_t len;
    const char *item;
    for (size_t i = 0; (item = list_item(list, i, &len)) != NULL; i++)
        if (len == strlen(word) && strncmp(item, word, len) == 0)
            return true;
    return false;
}

/* The path of this controller ("" means v2) in /proc/self/cgroup. malloc'ed or NULL. */
static char *own_group(const char *cgroup, const char *controller) {
    for (const char *line = cgroup; *line != '\0'; line = text_next_line(line)) {
        _cleanup_(freep) char *copy = xstrndup(line, strcspn(line, "\n"));
        char *list = strchr(copy, ':');
        char *path = list != NULL ? strchr(list + 1, ':') : NULL;
        if (path != NULL) {
            *path++ = '\0';
            list++;
            if (*controller == '\0' ? *list == '\0' : in_comma_list(list, controller))
                return xstrdup(path);
        }
    }
    return NULL;
}

/* A mount shows the part of the hierarchy below its root. NULL: our group is not in that part. */
static char *group_directory(const struct mount *m, const char *group) {
    size_t len = strcmp(m->root, "/") == 0 ? 0 : strlen(m->root);
    if (strncmp(group, m->root, len) != 0 || (group[len] != '/' && group[len] != '\0'))
        return NULL;
    const char *rest = strcmp(group + len, "/") == 0 ? "" : group + len;
    return xasprintf("%s%s", m->point, rest);
}

static char *directory_of(const char *mountinfo, const char *cgroup, const char *type,
                          const char *controller) {
    _cleanup_(freep) char *group = own_group(cgroup, controller);
    if (group == NULL)
        return NULL;
    for (const char *line = mountinfo; *line != '\0'; line = text_next_line(line)) {
        struct mount m;
        if (parse_mount(line, strcspn(line, "\n"), &m) && strcmp(m.type, type) == 0 &&
            (*controller == '\0' || in_comma_list(m.options, controller))) {
            unescape(m.root);
            unescape(m.point);
            char *dir = group_directory(&m, group);
            if (dir != NULL)
                return dir;
        }
    }
    return NULL;
}

char *cgroup_path_from(const char *mountinfo, const char *cgroup) {
    return directory_of(mountinfo, cgroup, "cgroup2", "");
}

char *cgroup_oom_file_from(const char *mountinfo, const char *cgroup) {
    _cleanup_(freep) char *v1 = directory_of(mountinfo, cgroup, "cgroup", "memory");
    if (v1 != NULL)
        return xasprintf("%s/memory.oom_control", v1);
    _cleanup_(freep) char *v2 = cgroup_path_from(mountinfo, cgroup);
    return v2 != NULL ? xasprintf("%s/memory.events", v2) : NULL;
}

/* What is found for this process, if it can be accessed so. */
static char *find_own(char *(*from)(const char *mountinfo, const char *cgroup), int mode) {
    _cleanup_(strbuf_fini) struct strbuf mountinfo = {0}, cgroup = {0};
    if (file_add_text(AT_FDCWD, "/proc/self/mountinfo", &mountinfo) < 0 ||
        file_add_text(AT_FDCWD, "/proc/self/cgroup", &cgroup) < 0)
        return NULL;
    _cleanup_(freep) char *path = from(strbuf_text(&mountinfo), strbuf_text(&cgroup));
    return path != NULL && access(path, mode) == 0 ? TAKE_PTR(path) : NULL;
}

char *cgroup_own_path(void) { return find_own(cgroup_path_from, F_OK); }

char *cgroup_oom_file(void) { return find_own(cgroup_oom_file_from, R_OK); }

uint64_t cgroup_oom_kills(const char *file) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (file_add_text(AT_FDCWD, file, &text) < 0)
        return 0;
    return keyed_number(strbuf_text(&text), "oom_kill");
}

bool cgroup_is_delegated(const char *path) {
    char value[4];
    /* Files/Delegate= of systemd.resource-control(5) and systemd's CGROUP_DELEGATION.md. */
    if ((getxattr(path, "user.delegate", value, sizeof value) == 1 ||
         getxattr(path, "trusted.delegate", value, sizeof value) == 1) &&
        value[0] == '1')
        return access(path, W_OK) == 0;
    struct stat st;
    return geteuid() != 0 && stat(path, &st) == 0 && st.st_uid == geteuid() &&
           access(path, W_OK) == 0;
}

/* --- a group of our own --- */

int cgroup_make(int parent_fd, const char *name, int *ret_fd) {
    if (mkdirat(parent_fd, name, 0755) < 0)
        return -errno;
    *ret_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = *ret_fd < 0 ? -errno : 0;
    if (r < 0)
        (void)cgroup_remove(parent_fd, name);
    return r;
}

int cgroup_enter(int fd) { return file_put(fd, "cgroup.procs", "0"); }

int cgroup_kill(int fd) { return file_put(fd, "cgroup.kill", "1"); }

int cgroup_populated(int fd) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    int r = file_add_text(fd, "cgroup.events", &text);
    return r < 0 ? r : keyed_number(strbuf_text(&text), "populated") != 0;
}

int cgroup_remove(int parent_fd, const char *name) {
    return unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* ---- claims ---- */

bool cgroup_claim(int parent_fd, const char *name, int fd) {
    struct stat ours, there;
    (void)flock(fd, LOCK_SH); /* without locks, no sweep can hold one to remove the group */
    return fstat(fd, &ours) == 0 && fstatat(parent_fd, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_ino == there.st_ino;
}

static bool sweep_one(int parent_fd, const char *name, void *prefix) {
    struct stat st;
    if (name[0] == '.' || strncmp(name, prefix, strlen(prefix)) != 0)
        return false;
    _cleanup_(file_close) int fd =
        openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return true;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        cgroup_populated(fd) == 0) {
        cgroup_sweep(fd, "", TIME_NEVER); /* those of jobs that its workers had started */
        (void)cgroup_remove(parent_fd, name);
    }
    return true;
}

void cgroup_sweep(int parent_fd, const char *prefix, uint64_t until_ns) {
    sweep_dir(openat(parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), until_ns, sweep_one,
              (void *)(uintptr_t)prefix);
}
