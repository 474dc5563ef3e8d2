#include "rendezvous/operate/registry_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json/json_table.h"
#include "base/text/log.h"
#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/net/resolver.h"
#include "io/process/proc.h"

#define FILE_PREFIX "agent-"
#define KEY_PREFIX "key-" /* and the same pid */
#define UNFINISHED_AGE_S 3600
#define FILE_BYTES_MAX 4096

static const struct json_limits limits = {
    .max_bytes = FILE_BYTES_MAX, .max_depth = 2, .max_values = 64};

/* What a pid refers to. A pid has a meaning only together with this. */
struct pid_space {
    char boot[BOOT_ID_MAX]; /* proc_boot_id() */
    uint64_t inode;         /* of the pid namespace; 0 if it can't be read */
    char host[RDZV_HOST_MAX];
};

/* A file in the run directory. Unknown keys are ignored: another version may write more. */
struct entry_file {
    struct registry_entry entry; /* without `host` and `foreign` */
    struct pid_space space;
    uint64_t pid_start;
    bool locked; /* the agent holds a lock on it, where that is possible */
};
static const struct json_field file_fields[] = {
    {JSON_FIELD(entry_file, TEXT, "run_id", entry.run_id)},
    {JSON_FIELD(entry_file, I32, "pid", entry.pid), .min = 1},
    {JSON_FIELD(entry_file, ID, "pid_start", pid_start)},
    {JSON_FIELD(entry_file, ID, "pid_namespace", space.inode)},
    {JSON_FIELD(entry_file, TEXT, "boot", space.boot)},
    {JSON_FIELD(entry_file, TEXT, "host", space.host)},
    /* missing in files of older versions */
    {JSON_FIELD(entry_file, BOOL, "locked", locked), .when = JSON_OPTIONAL},
    {JSON_FIELD(entry_file, TEXT, "addr", entry.addr)},
    {JSON_FIELD(entry_file, U16, "port", entry.port)},
    {JSON_FIELD(entry_file, U32, "head_nodes", entry.head_nodes), .when = JSON_OPTIONAL},
    {JSON_FIELD(entry_file, TEXT, "head_ask", entry.head_ask), .when = JSON_OPTIONAL},
    {JSON_FIELD(entry_file, ID, "since_wall_ns", entry.since_wall_ns)},
};
static const struct json_table file_table = {JSON_ROWS(entry_file, file_fields), .open = true};

static struct pid_space this_space(void) {
    struct pid_space s = {0};
    (void)!proc_boot_id(s.boot); /* "" where it can't be read */
    struct stat st;
    if (stat("/proc/self/ns/pid", &st) == 0)
        s.inode = st.st_ino;
    resolve_own_name(s.host, sizeof s.host);
    return s;
}

/* When a process started. 0: there is no such process, or it is a zombie. */
static uint64_t start_of(int32_t pid) {
    struct proc_stat st;
    return pid > 0 && proc_read_stat(pid, &st) && st.state != 'Z' && st.state != 'X' ? st.start : 0;
}

enum { DIRS_MAX = 3 };

#define LAST_RESORT "/dev/shm/muster-"

/* The directories where an agent of this user can put its file, best first. Returns how many. */
static size_t dir_names(char names[DIRS_MAX][REGISTRY_PATH_MAX]) {
    const char *given = getenv("MUSTER_RUN_DIR"), *xdg = getenv("XDG_RUNTIME_DIR");
    size_t n = 0;
    if (given != NULL && given[0] != '\0') {
        (void)snprintf(names[n++], REGISTRY_PATH_MAX, "%s", given);
        return n;
    }
    const unsigned uid = geteuid();
    if (uid == 0)
        (void)snprintf(names[n++], REGISTRY_PATH_MAX, "/run/muster");
    if (uid != 0 && xdg != NULL && xdg[0] == '/')
        (void)snprintf(names[n++], REGISTRY_PATH_MAX, "%s/muster", xdg);
    if (uid != 0)
        (void)snprintf(names[n++], REGISTRY_PATH_MAX, "/tmp/muster-%u", uid);
    /* a container whose root is read-only has this at least */
    (void)snprintf(names[n++], REGISTRY_PATH_MAX, LAST_RESORT "%u", uid);
    return n;
}

/* -ENOENT, without a sentence: it does not exist, and `make` is false. */
static int open_dir_of(const char *name, uid_t owner, bool make, int *ret, struct err *err) {
    if (strlen(name) >= REGISTRY_PATH_MAX - 64)
        return err_set(err, -ENAMETOOLONG, "the run directory's name is too long: %.100s…", name);
    if (make && mkdir(name, 0700) < 0 && errno != EEXIST)
        return err_set(err, -errno, "can't make the run directory %s: %s", name, strerror(errno));
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0)
        return err_set(err, -errno, "can't open the run directory %s: %s", name, strerror(errno));
    struct stat st;
    int r = fstat(fd, &st) < 0 ? -errno : 0;
    if (r < 0)
        r = err_set(err, r, "can't examine the run directory %s: %s", name, strerror(-r));
    else if (st.st_uid != owner)
        r = err_set(err, -EPERM, "the run directory %s belongs to user %u; set MUSTER_RUN_DIR",
                    name, (unsigned)st.st_uid);
    else if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        r = err_set(err, -EPERM,
                    "others may write into the run directory %s: chmod go-w, or set MUSTER_RUN_DIR",
                    name);
    if (r < 0)
        (void)close(fd);
    else
        *ret = fd;
    return r;
}

int registry_dir_open(int *ret_fd, char path[REGISTRY_PATH_MAX], struct err *err) {
    char names[DIRS_MAX][REGISTRY_PATH_MAX];
    size_t n = dir_names(names);
    int r = -ENOENT;
    for (size_t i = 0; i < n; i++) {
        r = open_dir_of(names[i], geteuid(), true, ret_fd, err);
        if (r == 0 && i + 1 < n && faccessat(*ret_fd, ".", W_OK, AT_EACCESS) < 0) {
            file_close(ret_fd); /* it was made before the root became read-only */
            r = -EACCES;
        } else if (r == 0) {
            (void)memcpy(path, names[i], REGISTRY_PATH_MAX);
            return 0;
        }
    }
    return r == -ENOENT ? err_set(err, r, "the run directory %s went away", names[n - 1]) : r;
}

static int add(const char *run_id, struct registry_entry *entry, struct registry_own *ret,
               struct err *err) {
    char dir_name[REGISTRY_PATH_MAX], name[64];
    *ret = (struct registry_own){.path = "", .lock = -1};
    _cleanup_(file_close) int dir = -1;
    int r = registry_dir_open(&dir, dir_name, err);
    if (r < 0)
        return r;
    (void)snprintf(name, sizeof name, FILE_PREFIX "%d", (int)getpid());
    entry->pid = getpid();
    entry->since_wall_ns = clock_wall_ns();
    utf8_copy(entry->run_id, sizeof entry->run_id, run_id);
    struct entry_file file = {
        .entry = *entry, .space = this_space(), .pid_start = start_of(entry->pid), .locked = true};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    json_table_text(&file_table, &file, &text);
    strbuf_add_char(&text, '\n');
    ret->lock = file_put_locked(dir, name, strbuf_text(&text), text.len);
    if (ret->lock < 0) {
        r = ret->lock;
        ret->lock = -1;
        log_warning("can't write %s/%s: %s; commands like muster ps do not find this job here",
                    dir_name, name, strerror(-r));
        return err_set(err, r, "%s is not written", name);
    }
    (void)snprintf(ret->path, sizeof ret->path, "%.440s/%s", dir_name, name);
    return 0;
}

int registry_add(const char *run_id, const char *addr, uint16_t port, struct registry_own *ret,
                 struct err *err) {
    struct registry_entry entry = {.port = port};
    (void)snprintf(entry.addr, sizeof entry.addr, "%s", addr);
    return add(run_id, &entry, ret, err);
}

int registry_add_head(const char *run_id, uint32_t n_nodes, const char *ask,
                      struct registry_own *ret, struct err *err) {
    struct registry_entry entry = {.head_nodes = n_nodes};
    if (strlen(ask) < sizeof entry.head_ask) /* one that is cut is of no use */
        utf8_copy(entry.head_ask, sizeof entry.head_ask, ask);
    return add(run_id, &entry, ret, err);
}

static void key_path(const struct registry_own *own, char out[REGISTRY_PATH_MAX]) {
    const char *slash = strrchr(own->path, '/');
    (void)snprintf(out, REGISTRY_PATH_MAX, "%.*s/" KEY_PREFIX "%d", (int)(slash - own->path),
                   own->path, (int)getpid());
}

int registry_add_key(struct registry_own *own, const uint8_t secret[AUTH_SECRET_BYTES],
                     struct err *err) {
    char path[REGISTRY_PATH_MAX], line[AUTH_KEY_TEXT_MAX];
    if (own->path[0] == '\0')
        return 0;
    key_path(own, path);
    auth_key_to_text(secret, line);
    _cleanup_(file_close) int fd = file_put_locked(AT_FDCWD, path, line, strlen(line));
    explicit_bzero(line, sizeof line);
    own->has_key = fd >= 0;
    return fd < 0 ? err_set(err, fd, "cannot write '%s': %s", path, strerror(-fd)) : 0;
}

/* What stays, the next registry_list() or registry_sweep() removes. */
void registry_remove(struct registry_own *own) {
    char path[REGISTRY_PATH_MAX];
    if (own->path[0] == '\0')
        return;
    if (own->has_key) {
        key_path(own, path);
        (void)unlink(path);
    }
    (void)unlink(own->path);
    file_close(&own->lock);
    *own = (struct registry_own){.path = "", .lock = -1};
}

/* ---- listing ---- */

enum verdict { LIVES, GONE, NOT_KNOWN };

static enum verdict judge(const struct pid_space *here, const struct pid_space *its, int32_t pid,
                          uint64_t start) {
    bool same_host = strcmp(here->host, its->host) == 0;
    if (strcmp(here->boot, its->boot) != 0)
        return same_host ? GONE : NOT_KNOWN; /* this host has been rebooted since */
    if (here->inode != its->inode)
        return NOT_KNOWN;
    return start != 0 && start_of(pid) == start ? LIVES : GONE;
}

/* For a process on this machine that is not visible from here. */
static enum verdict judge_by_lock(int dir, const char *name) {
    _cleanup_(file_close) int fd =
        openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NOT_KNOWN;
    return flock(fd, LOCK_SH | LOCK_NB) == 0 ? GONE : errno == EWOULDBLOCK ? LIVES : NOT_KNOWN;
}

/* -EINVAL: not a file of ours. */
static int read_entry(int dir, const char *name, const struct pid_space *here,
                      struct registry_entry *ret, enum verdict *ret_verdict) {
    char text[FILE_BYTES_MAX + 1];
    ssize_t n = file_read_head(dir, name, text, sizeof text);
    if (n < 0)
        return (int)n;
    struct entry_file file = {0};
    int r = json_table_parse(text, (size_t)n, &limits, &file_table, &file, NULL);
    if (r == 0 && (file.entry.port == 0) != (file.entry.head_nodes > 0))
        r = -EINVAL;
    if (r < 0)
        return r;
    *ret = file.entry;
    (void)strcpy(ret->host, file.space.host);
    *ret_verdict = judge(here, &file.space, ret->pid, file.pid_start);
    if (*ret_verdict == NOT_KNOWN && strcmp(here->boot, file.space.boot) == 0 && file.locked)
        *ret_verdict = judge_by_lock(dir, name);
    ret->foreign = *ret_verdict == NOT_KNOWN;
    return 0;
}

static void remove_both(int dir, const char *name) {
    char key[64];
    (void)snprintf(key, sizeof key, KEY_PREFIX "%.32s", name + strlen(FILE_PREFIX));
    (void)unlinkat(dir, key, 0);
    (void)unlinkat(dir, name, 0);
}

/* False: it is no entry of a process that lives. In our own directory one that is gone is removed.
 */
static bool read_living(int dir, const char *name, const struct pid_space *here, bool own,
                        struct registry_entry *ret) {
    enum verdict verdict = NOT_KNOWN;
    uint32_t pid;
    if (!text_begins(name, FILE_PREFIX) || parse_u32(name + strlen(FILE_PREFIX), &pid) != 0 ||
        read_entry(dir, name, here, ret, &verdict) < 0)
        return false;
    if (verdict == GONE && own)
        remove_both(dir, name);
    return verdict != GONE;
}

struct entries {
    struct registry_entry *list;
    size_t n;
    bool heads;      /* these, too */
    const char *dir; /* that is read now, */
    uint32_t uid;    /* and whose it is */
    const struct pid_space *here;
};

/* A sweep_fn. */
static bool list_one(int dir, const char *name, void *arg) {
    struct entries *e = arg;
    struct registry_entry entry;
    if (e->n >= REGISTRY_ENTRIES_MAX ||
        !read_living(dir, name, e->here, e->uid == geteuid(), &entry) ||
        (!e->heads && entry.head_nodes > 0))
        return true;
    entry.uid = e->uid;
    (void)snprintf(entry.dir, sizeof entry.dir, "%s", e->dir);
    e->list = xgrow(e->list, e->n, sizeof *e->list);
    e->list[e->n++] = entry;
    return true;
}

static int compare_age(const void *a, const void *b) {
    const struct registry_entry *x = a, *y = b;
    if (x->since_wall_ns != y->since_wall_ns)
        return x->since_wall_ns < y->since_wall_ns ? -1 : 1;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* The directories of users other than root: BEFORE UID AFTER, in PARENT. */
struct others {
    const char *parent, *before, *after;
};
static const struct others all_others[] = {
    {"/tmp", "muster-", ""}, {"/run/user", "", "/muster"}, {"/dev/shm", "muster-", ""}};

static void list_others(const struct others *o, struct entries *out) {
    DIR *dir = opendir(o->parent);
    uint32_t seen = 0;
    for (struct dirent *d; dir != NULL && seen < REGISTRY_ENTRIES_MAX && (d = readdir(dir));) {
        char path[REGISTRY_PATH_MAX];
        uint32_t uid;
        int fd;
        if (!text_begins(d->d_name, o->before) ||
            parse_u32(d->d_name + strlen(o->before), &uid) != 0 || uid == geteuid())
            continue;
        seen++;
        (void)snprintf(path, sizeof path, "%s/%.300s%s", o->parent, d->d_name, o->after);
        out->uid = uid;
        out->dir = path;
        if (open_dir_of(path, uid, false, &fd, NULL) == 0)
            sweep_dir(fd, UINT64_MAX, list_one, out);
    }
    if (dir != NULL)
        (void)closedir(dir);
}

static int list(bool all, struct registry_entry **ret, size_t *ret_n, struct err *err) {
    char names[DIRS_MAX][REGISTRY_PATH_MAX];
    size_t n = dir_names(names);
    struct pid_space here = this_space();
    struct entries found = {.heads = all, .uid = geteuid(), .here = &here};
    int r = 0;
    for (size_t i = 0; i < n; i++) {
        int fd;
        int r_dir = open_dir_of(names[i], geteuid(), false, &fd, err);
        found.dir = names[i];
        if (r_dir == 0)
            sweep_dir(fd, UINT64_MAX, list_one, &found);
        bool spare = i + 1 == n && n > 1; /* others may have made it: that is nobody's error */
        if (r_dir < 0 && r_dir != -ENOENT && !spare)
            r = r_dir;
    }
    for (size_t i = 0; i < ARRAY_SIZE(all_others) && all && geteuid() == 0; i++)
        list_others(&all_others[i], &found);
    /* A directory that can't be used is not an error if agents were found elsewhere. */
    if (found.n == 0 && r < 0) {
        free(found.list);
        return r;
    }
    if (found.n > 0)
        qsort(found.list, found.n, sizeof *found.list, compare_age);
    *ret = found.list;
    *ret_n = found.n;
    return 0;
}

int registry_list(struct registry_entry **ret, size_t *ret_n, struct err *err) {
    return list(false, ret, ret_n, err);
}

int registry_list_all(struct registry_entry **ret, size_t *ret_n, struct err *err) {
    return list(true, ret, ret_n, err);
}

/* ---- keys ---- */

bool registry_is_of_run(const struct registry_entry *e, const char *run_id) {
    size_t len = strlen(e->run_id);
    return strcmp(run_id, e->run_id) == 0 ||
           (e->head_nodes > 0 && strncmp(run_id, e->run_id, len) == 0 && run_id[len] == '.');
}

void registry_load_keys(uint32_t uid, const char *run_id, struct keyring *to) {
    _cleanup_(freep) struct registry_entry *list = NULL;
    size_t n = 0;
    if (registry_list_all(&list, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        char path[REGISTRY_PATH_MAX];
        if (list[i].uid != uid || (run_id != NULL && !registry_is_of_run(&list[i], run_id)))
            continue;
        (void)snprintf(path, sizeof path, "%.440s/" KEY_PREFIX "%d", list[i].dir, list[i].pid);
        (void)!keyring_load_file(to, path, AUTH_FROM_RUN_DIR, NULL);
    }
}

/* ---- what processes that are gone have left ---- */

static void sweep_key(int dir, const char *name) {
    char owner[64];
    uint32_t pid;
    (void)snprintf(owner, sizeof owner, FILE_PREFIX "%.32s", name + strlen(KEY_PREFIX));
    if (parse_u32(name + strlen(KEY_PREFIX), &pid) == 0 && faccessat(dir, owner, F_OK, 0) < 0 &&
        errno == ENOENT)
        (void)unlinkat(dir, name, 0);
}

static void sweep_unfinished(int dir, const char *name) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_mtim.tv_sec < time(NULL) - UNFINISHED_AGE_S)
        (void)unlinkat(dir, name, 0);
}

static bool sweep_one(int dir, const char *name, void *here) {
    struct registry_entry entry;
    if (text_begins(name, FILE_PREFIX))
        (void)read_living(dir, name, here, true, &entry);
    else if (text_begins(name, KEY_PREFIX))
        sweep_key(dir, name);
    else if (text_begins(name, FILE_UNFINISHED))
        sweep_unfinished(dir, name);
    else
        return false;
    return true;
}

void registry_sweep(uint64_t until_ns) {
    char path[REGISTRY_PATH_MAX];
    struct pid_space here = this_space();
    int dir;
    if (registry_dir_open(&dir, path, NULL) == 0)
        sweep_dir(dir, until_ns, sweep_one, &here);
}
