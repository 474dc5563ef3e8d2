#include "launcher/logs/tempdir_io.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "io/process/proc.h"
#include "io/sweep.h"

#define PREFIX "muster-"
#define NAME_LEN (strlen(PREFIX) + 6) /* as mkdtemp(3) makes them */
#define OWNER ".muster-owner"
#define OWNER_MAX (BOOT_ID_MAX + 1)
#define EMPTY_AGE_S 86400 /* of a folder that was never claimed */

static const char *temp_dir(void) {
    const char *tmp = getenv("TMPDIR");
    return tmp == NULL || tmp[0] == '\0' ? "/tmp" : tmp;
}

static bool read_owner(int dir, char out[OWNER_MAX]) {
    int fd = openat(dir, OWNER, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, out, OWNER_MAX - 1);
    file_close(&fd);
    if (n <= 0 || out[n - 1] != '\n')
        return false;
    out[n - 1] = '\0';
    return true;
}

/* ---- this agent's folder ---- */

/* The text is written after the lock is taken: an agent that finds the text also finds the lock, if
 * it is held. */
static int claim(const char *dir) {
    _cleanup_(freep) char *path = xasprintf("%s/" OWNER, dir);
    char boot[BOOT_ID_MAX];
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || proc_boot_id(boot) < 0 ||
        dprintf(fd, "%s\n", boot) < 0) {
        (void)unlink(path);
        (void)close(fd);
        return -1;
    }
    return fd;
}

int tempdir_make(char **ret_dir, int *ret_claim, struct err *err) {
    _cleanup_(freep) char *path = xasprintf("%s/" PREFIX "XXXXXX", temp_dir());
    if (mkdtemp(path) == NULL) /* mode 0700 */
        return err_set(err, -errno, "can't make a temporary folder %s: %s", path, strerror(errno));
    *ret_claim = claim(path);
    *ret_dir = TAKE_PTR(path);
    return 0;
}

void tempdir_keep(const char *dir) {
    _cleanup_(freep) char *path = xasprintf("%s/" OWNER, dir);
    (void)unlink(path); /* if it fails, the folder is gone, or the disk can't be written */
}

/* ---- other agents' folders ---- */

/* Whether the folder belongs to this user, and its agent has ended. If so, *ret_claim has our
 * lock. */
static bool is_left(int dir, const char *boot, int *ret_claim) {
    char owner[OWNER_MAX];
    struct stat st;
    if (fstat(dir, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0 ||
        !read_owner(dir, owner) || strcmp(owner, boot) != 0)
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
    struct stat st;
    if (fstat(dir, &st) == 0 && st.st_uid == geteuid() &&
        st.st_mtim.tv_sec < time(NULL) - EMPTY_AGE_S)
        (void)unlinkat(tmp, name, AT_REMOVEDIR);
}

/* The owner's file is removed last, so an unfinished removal can be recognized and continued. At
 * least one entry is removed each time, so many short calls finish the work, too. */
static bool remove_tree(const char *path, uint64_t until_ns) {
    char *const paths[] = {(char *)(uintptr_t)path, NULL};
    FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    if (fts == NULL)
        return false;
    bool in_time = true;
    for (FTSENT *e; in_time && (e = fts_read(fts)) != NULL;) {
        if (e->fts_info == FTS_D || e->fts_level == 0 ||
            (e->fts_level == 1 && strcmp(e->fts_name, OWNER) == 0))
            continue;
        (void)(e->fts_info == FTS_DP ? rmdir(e->fts_accpath) : unlink(e->fts_accpath));
        in_time = clock_now_ns() < until_ns;
    }
    (void)fts_close(fts);
    if (!in_time)
        return false;
    tempdir_keep(path);
    return rmdir(path) == 0;
}

struct tempdirs {
    char boot[BOOT_ID_MAX];
    uint64_t until_ns;
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
    bool left = is_left(dir, t->boot, &lock);
    if (!left)
        remove_if_unclaimed(tmp, dir, name);
    (void)close(dir);
    if (!left)
        return true;
    _cleanup_(freep) char *path = xasprintf("%s/%s", temp_dir(), name);
    t->n += remove_tree(path, t->until_ns);
    (void)close(lock);
    return true;
}

uint32_t tempdir_sweep(uint64_t until_ns) {
    struct tempdirs t = {.until_ns = until_ns};
    if (proc_boot_id(t.boot) == 0)
        sweep_dir(open(temp_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), until_ns, sweep_one, &t);
    return t.n;
}
