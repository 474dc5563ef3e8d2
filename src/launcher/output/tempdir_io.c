#include "launcher/output/tempdir_io.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"
#include "io/process/proc.h"

#define PREFIX "muster-"
#define NAME_LEN (strlen(PREFIX) + 6) /* as mkdtemp(3) makes them */
#define OWNER ".muster-owner"
#define OWNER_MAX (BOOT_ID_MAX + 1) /* the text of the owner's file: the boot, and a newline */

#define IN_MEMORY "/dev/shm" /* takes memory, so only small files go there unasked */

/* The folders in which temporary ones are made, best first; NULL after the last. i: up to there. */
static const char *nth_place(size_t i) {
    static const char *const places[] = {"/tmp", IN_MEMORY, NULL};
    const char *tmp = getenv("TMPDIR");
    bool other = tmp != NULL && tmp[0] != '\0' && strcmp(tmp, places[0]) != 0;
    if (other && i == 0)
        return tmp;
    return places[i - other];
}

static int this_owner(char ret[OWNER_MAX]) {
    int r = proc_boot_id(ret);
    (void)strcat(ret, "\n");
    return r;
}

/* The lock comes first: an agent that finds the text also finds the lock, if it is held. */
static int claim(const char *dir) {
    _cleanup_(freep) char *path = xasprintf("%s/" OWNER, dir);
    char us[OWNER_MAX];
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || this_owner(us) < 0 || dprintf(fd, "%s", us) < 0) {
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

/* Whether it is this user's, and its agent has ended. If so, *ret_claim has our lock. */
static bool is_left(int dir, const char *us, int *ret_claim) {
    char owner[OWNER_MAX];
    struct stat st;
    if (fstat(dir, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0 ||
        file_read_head(dir, OWNER, owner, sizeof owner) <= 0 || strcmp(owner, us) != 0)
        return false;
    int fd = openat(dir, OWNER, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0) {
        file_close(&fd);
        return false;
    }
    *ret_claim = fd;
    return true;
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
    char us[OWNER_MAX];
    uint64_t until_ns;
    const char *place;
    uint32_t n; /* how many were removed */
};

static bool sweep_one(int tmp, const char *name, void *arg) {
    struct tempdirs *t = arg;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || strlen(name) != NAME_LEN)
        return false;
    _cleanup_(file_close) int lock = -1;
    _cleanup_(file_close) int dir =
        openat(tmp, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0 || !is_left(dir, t->us, &lock))
        return true;
    _cleanup_(freep) char *path = xasprintf("%s/%s", t->place, name);
    t->n += remove_tree(path, t->until_ns);
    return true;
}

uint32_t tempdir_sweep(uint64_t until_ns) {
    struct tempdirs t = {.until_ns = until_ns};
    if (this_owner(t.us) < 0)
        return 0;
    for (size_t i = 0; (t.place = nth_place(i)) != NULL; i++) {
        sweep_dir(open(t.place, O_RDONLY | O_DIRECTORY | O_CLOEXEC), until_ns, sweep_one, &t);
        if (access(t.place, W_OK | X_OK) == 0)
            break; /* no agent would have gone further */
    }
    return t.n;
}
