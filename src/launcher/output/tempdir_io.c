#include "launcher/output/tempdir_io.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/text/strbuf.h"
#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/proc.h"
#include "io/sweep.h"

#define PREFIX "muster-"
#define NAME_LEN (strlen(PREFIX) + 6) /* as mkdtemp(3) makes them */
#define OWNER ".muster-owner"
#define MACHINE_ID_MAX 64 /* machine-id(5): 32 hexadecimal digits */
#define HOST_MAX (MACHINE_ID_MAX + HOST_NAME_MAX + 2)
#define OWNER_MAX (BOOT_ID_MAX + HOST_MAX + 2)
#define EMPTY_AGE_S 86400 /* of a folder that was never claimed */

#define IN_MEMORY "/dev/shm" /* takes memory, so only small files go there unasked */

/* The folders in which temporary ones are made, best first; NULL after the last. */
static const char *nth_place(size_t i) {
    static const char *const places[] = {"/tmp", IN_MEMORY};
    const char *tmp = getenv("TMPDIR");
    bool other = tmp != NULL && tmp[0] != '\0' && strcmp(tmp, places[0]) != 0;
    if (other && i == 0)
        return tmp;
    i -= other;
    return i < ARRAY_SIZE(places) ? places[i] : NULL;
}

/* What an owner's file has: the boot, and the machine that was booted. */
struct owner {
    char boot[BOOT_ID_MAX];
    char host[HOST_MAX]; /* "": not known */
};

static int this_owner(struct owner *ret) {
    char machine[MACHINE_ID_MAX] = "", name[HOST_NAME_MAX + 1] = "";
    *ret = (struct owner){0};
    ssize_t n = proc_read_file("/etc/machine-id", machine, sizeof machine - 1);
    machine[MAX2(n, (ssize_t)0)] = '\0';
    machine[strcspn(machine, "\n")] = '\0';
    bool known = machine[0] != '\0' && gethostname(name, sizeof name - 1) == 0 && name[0] != '\0';
    utf8_clean(name, false);
    if (known)
        (void)snprintf(ret->host, sizeof ret->host, "%s %s", machine, name);
    return proc_boot_id(ret->boot);
}

static bool read_owner(int dir, struct owner *ret) {
    char text[OWNER_MAX];
    ssize_t n = file_read_head(dir, OWNER, text, sizeof text);
    if (n <= 0 || text[n - 1] != '\n')
        return false;
    text[n - 1] = '\0';
    char *host = strchr(text, '\n');
    if (host != NULL)
        *host++ = '\0';
    utf8_copy(ret->boot, sizeof ret->boot, text);
    utf8_copy(ret->host, sizeof ret->host, host == NULL ? "" : host);
    return true;
}

/* Memory of this kernel, or a disk that no other machine mounts at the same time: statfs(2). */
static bool is_local(int dir) {
    static const uint32_t types[] = {
        0xef53,     /* ext2, ext3, ext4 */
        0x58465342, /* XFS */
        0x9123683e, /* btrfs */
        0x794c7630, /* overlayfs */
        0x01021994, /* tmpfs */
    };
    struct statfs fs;
    if (fstatfs(dir, &fs) < 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if ((uint32_t)fs.f_type == types[i])
            return true;
    return false;
}

/* Whether the owner can't be alive unless it holds a lock that is visible here: it is of this boot,
 * or of an earlier one of this machine, on this machine's own disk. */
static bool is_known(int dir, const struct owner *owner, const struct owner *us) {
    return strcmp(owner->boot, us->boot) == 0 ||
           (us->host[0] != '\0' && strcmp(owner->host, us->host) == 0 && is_local(dir));
}

/* ---- this agent's folder ---- */

/* The text is written after the lock is taken: an agent that finds the text also finds the lock, if
 * it is held. */
static int claim(const char *dir) {
    _cleanup_(freep) char *path = xasprintf("%s/" OWNER, dir);
    struct owner us;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    bool whole = flock(fd, LOCK_EX | LOCK_NB) == 0 && this_owner(&us) == 0;
    if (!whole || dprintf(fd, us.host[0] != '\0' ? "%s\n%s\n" : "%s\n", us.boot, us.host) < 0) {
        (void)unlink(path);
        (void)close(fd);
        return -1;
    }
    return fd;
}

int tempdir_make(enum tempdir_use use, char **ret_dir, int *ret_claim, struct err *err) {
    _cleanup_(strbuf_fini) struct strbuf why = {0};
    int r = -ENOENT;
    for (size_t i = 0; nth_place(i) != NULL; i++) {
        if (use == TEMPDIR_LARGE && i > 0 && strcmp(nth_place(i), IN_MEMORY) == 0)
            continue;
        _cleanup_(freep) char *path = xasprintf("%s/" PREFIX "XXXXXX", nth_place(i));
        if (mkdtemp(path) != NULL) { /* mode 0700 */
            *ret_claim = claim(path);
            *ret_dir = TAKE_PTR(path);
            return 0;
        }
        r = why.len == 0 ? -errno : r;
        strbuf_printf(&why, "%s%.100s: %s", why.len > 0 ? ", " : "", nth_place(i), strerror(errno));
    }
    return err_set(err, r, "can't make a temporary folder (%s)", strbuf_text(&why));
}

void tempdir_keep(const char *dir) {
    _cleanup_(freep) char *path = xasprintf("%s/" OWNER, dir);
    (void)unlink(path); /* if it fails, the folder is gone, or the disk can't be written */
}

/* ---- other agents' folders ---- */

/* Whether the folder belongs to this user, and its agent has ended. If so, *ret_claim has our
 * lock. */
static bool is_left(int dir, const struct owner *us, int *ret_claim) {
    struct owner owner;
    struct stat st;
    if (fstat(dir, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0 ||
        !read_owner(dir, &owner) || !is_known(dir, &owner, us))
        return false;
    int fd = openat(dir, OWNER, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0) {
        file_close(&fd);
        return false;
    }
    *ret_claim = fd;
    return true;
}

/* The agent was killed before it could claim the folder. rmdir(2) removes only empty folders. */
static void remove_if_unclaimed(int tmp, int dir, const char *name) {
    struct stat st, owner;
    if (fstat(dir, &st) < 0 || st.st_uid != geteuid() ||
        st.st_mtim.tv_sec >= time(NULL) - EMPTY_AGE_S)
        return;
    bool empty = fstatat(dir, OWNER, &owner, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(owner.st_mode) &&
                 owner.st_size == 0;
    if (empty)
        (void)unlinkat(dir, OWNER, 0);
    (void)unlinkat(tmp, name, AT_REMOVEDIR);
}

/* The owner's file is removed last, so an unfinished removal can be recognized and continued. At
 * least one entry is removed each time, so many short calls finish the work, too. */
static bool remove_tree(const char *path, uint64_t until_ns) {
    char *const paths[] = {(char *)(uintptr_t)path, NULL};
    FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    if (fts == NULL)
        return false;
    bool in_time = true, all = true, root = geteuid() == 0;
    for (FTSENT *e; in_time && (e = fts_read(fts)) != NULL;) {
        /* a worker may have made a folder that even its owner can't change */
        if (!root && e->fts_info == FTS_D && (e->fts_statp->st_mode & S_IRWXU) != S_IRWXU)
            (void)chmod(e->fts_accpath, S_IRWXU);
        if (e->fts_info == FTS_D || e->fts_level == 0 ||
            (e->fts_level == 1 && strcmp(e->fts_name, OWNER) == 0))
            continue;
        all = (e->fts_info == FTS_DP ? rmdir(e->fts_accpath) : unlink(e->fts_accpath)) == 0 && all;
        in_time = clock_now_ns() < until_ns;
    }
    (void)fts_close(fts);
    if (!in_time || !all) /* without its owner's file it would stay for ever */
        return false;
    tempdir_keep(path);
    return rmdir(path) == 0;
}

bool tempdir_remove(const char *dir) {
    return remove_tree(dir, TIME_NEVER) || (access(dir, F_OK) < 0 && errno == ENOENT);
}

struct tempdirs {
    struct owner us;
    uint64_t until_ns;
    const char *place;
    uint32_t n; /* how many were removed */
};

static bool sweep_one(int tmp, const char *name, void *arg) {
    struct tempdirs *t = arg;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || strlen(name) != NAME_LEN)
        return false;
    int dir = openat(tmp, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0)
        return true;
    int lock = -1;
    bool left = is_left(dir, &t->us, &lock);
    if (!left)
        remove_if_unclaimed(tmp, dir, name);
    (void)close(dir);
    if (!left)
        return true;
    _cleanup_(freep) char *path = xasprintf("%s/%s", t->place, name);
    t->n += remove_tree(path, t->until_ns);
    (void)close(lock);
    return true;
}

uint32_t tempdir_sweep(uint64_t until_ns) {
    struct tempdirs t = {.until_ns = until_ns};
    if (this_owner(&t.us) < 0)
        return 0;
    for (size_t i = 0; (t.place = nth_place(i)) != NULL; i++) {
        sweep_dir(open(t.place, O_RDONLY | O_DIRECTORY | O_CLOEXEC), until_ns, sweep_one, &t);
        if (access(t.place, W_OK | X_OK) == 0)
            break; /* no agent would have gone further */
    }
    return t.n;
}
