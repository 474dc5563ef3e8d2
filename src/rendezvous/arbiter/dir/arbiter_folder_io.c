#include "rendezvous/arbiter/dir/arbiter_folder_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text/parse.h"
#include "io/clock.h"
#include "io/file.h"

#define NAME_LEN 64 /* of a file in the folder */

#define RUN_NAME_MAX 160 /* bytes of an escaped run id that are used unchanged in the name */

/* Sets err to "cannot VERB PATH/NAME/FILE: …", with the text of errno. Returns -errno. */
static int arbiter_folder_failed(const struct arbiter_folder *f, const char *verb, const char *file,
                                 struct err *err) {
    int code = errno;
    const char *then = "";
    if (code == ENOSPC || code == EDQUOT)
        then = "; make room there";
    return err_set(err, -code, "cannot %s %s/%s/%s: %s%s", verb, f->path, f->name, file,
                   strerror(code), then);
}

/* A run id can contain anything. A long one is cut, and its hash distinguishes it from others. */
static char *folder_name(const char *run_id) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    for (const char *p = run_id; *p != '\0'; p++) {
        char c = *p;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || c == '.';
        if (plain)
            strbuf_add_char(&s, c);
        else
            strbuf_printf(&s, "%%%02x", (unsigned)(uint8_t)c);
    }
    if (s.len <= RUN_NAME_MAX)
        return xasprintf("muster-%s", strbuf_text(&s));
    return xasprintf("muster-%.*s~%016" PRIx64, RUN_NAME_MAX, strbuf_text(&s),
                     hash_text(HASH_BEGIN, run_id));
}

void arbiter_folder_init(struct arbiter_folder *f, const char *path, const char *run_id,
                         bool read_only) {
    *f = (struct arbiter_folder){
        .path = path, .name = folder_name(run_id), .fd = -1, .read_only = read_only};
}

void arbiter_folder_close(struct arbiter_folder *f) {
    file_close(&f->fd);
    f->fd = -1;
}

void arbiter_folder_fini(struct arbiter_folder *f) {
    arbiter_folder_close(f);
    free(f->name);
}

/* A server can give root's files to the user nobody. */
static int find_squashed(struct arbiter_folder *f, int fd, struct err *err) {
    char file[NAME_LEN];
    (void)snprintf(file, sizeof file, "owner-%016" PRIx64, random_u64());
    _cleanup_(file_close) int probe = -1;
    probe = openat(fd, file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat st;
    if (probe < 0)
        return arbiter_folder_failed(f, "write", file, err);
    int r = fstat(probe, &st) < 0 ? arbiter_folder_failed(f, "look at", file, err) : 0;
    (void)unlinkat(fd, file, 0);
    if (r == 0) {
        f->squashed = st.st_uid != geteuid();
        f->squashed_uid = st.st_uid;
    }
    return r;
}

/* Whether files of this owner are what we create there. */
static bool arbiter_folder_is_ours(const struct arbiter_folder *f, uid_t owner) {
    return owner == geteuid() || (f->squashed && owner == f->squashed_uid);
}

static int check_folder(struct arbiter_folder *f, int fd, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return arbiter_folder_failed(f, "look at", ".", err);
    int r = arbiter_folder_is_ours(f, st.st_uid) ? 0 : find_squashed(f, fd, err);
    if (r < 0)
        return r;
    if (!arbiter_folder_is_ours(f, st.st_uid))
        return err_set(err, -EPERM,
                       "%s/%s belongs to another user (uid %u); use another run id or directory",
                       f->path, f->name, (unsigned)st.st_uid);
    if ((st.st_mode & 0077) != 0)
        return err_set(err, -EPERM,
                       "%s/%s is open to other users (mode %04o); chmod 700 it, or use another "
                       "run id",
                       f->path, f->name, (unsigned)(st.st_mode & 07777));
    return 0;
}

/* The folder's own mode does not protect it if others can rename it. */
static int check_top(const struct arbiter_folder *f, int top, struct err *err) {
    struct stat st;
    if (fstat(top, &st) < 0)
        return err_set(err, -errno, "cannot examine %s: %s", f->path, strerror(errno));
    if (st.st_uid != 0 && !arbiter_folder_is_ours(f, st.st_uid))
        return err_set(err, -EPERM,
                       "%s belongs to another user (uid %u), who could take this job's folder "
                       "away; make a directory of your own and name that",
                       f->path, (unsigned)st.st_uid);
    if ((st.st_mode & 0022) != 0 && (st.st_mode & S_ISVTX) == 0)
        return err_set(err, -EPERM,
                       "other users may write in %s (mode %04o), and could take this job's folder "
                       "away; chmod go-w it, or name a directory of your own in it",
                       f->path, (unsigned)(st.st_mode & 07777));
    return 0;
}

static int open_top(const struct arbiter_folder *f, int *ret, struct err *err) {
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    int fd = open(f->path, flags);
    if (fd < 0 && errno == ENOENT && !f->read_only) {
        if (mkdir(f->path, 0700) < 0 && errno != EEXIST)
            return err_set(err, -errno, "cannot make %s: %s%s", f->path, strerror(errno),
                           errno == ENOENT ? "; the directory above it must be there" : "");
        fd = open(f->path, flags);
    }
    if (fd < 0)
        return err_set(err, -errno, "cannot open %s: %s", f->path, strerror(errno));
    *ret = fd;
    return 0;
}

uint64_t arbiter_folder_device(const struct arbiter_folder *f) {
    struct stat st;
    if (f->fd >= 0)
        return fstat(f->fd, &st) == 0 ? (uint64_t)st.st_dev : 0;
    _cleanup_(freep) char *path = xstrdup(f->path);
    const char *at = path;
    while (stat(at, &st) < 0) {
        if (errno != ENOENT || strcmp(at, ".") == 0)
            return 0;
        at = dirname(path);
    }
    return (uint64_t)st.st_dev;
}

int arbiter_folder_open(struct arbiter_folder *f, struct err *err) {
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    _cleanup_(file_close) int top = -1, fd = -1;
    int r = open_top(f, &top, err);
    if (r < 0)
        return r;
    fd = openat(top, f->name, flags);
    if (fd < 0 && errno == ENOENT && f->read_only)
        return ARBITER_FOLDER_E_NONE;
    if (fd < 0 && errno == ENOENT) {
        /* The client may have cached that the name is missing; creating it asks the server. */
        if (mkdirat(top, f->name, 0700) == 0)
            (void)fsync(top); /* the first claim shows whether the disk works */
        else if (errno != EEXIST)
            return err_set(err, -errno, "cannot make %s/%s: %s", f->path, f->name, strerror(errno));
        fd = openat(top, f->name, flags);
    }
    if (fd < 0)
        return err_set(err, -errno, "cannot open %s/%s: %s", f->path, f->name, strerror(errno));
    r = check_folder(f, fd, err);
    if (r == 0)
        r = check_top(f, top, err);
    if (r < 0)
        return r;
    f->fd = fd;
    fd = -1;
    return 0;
}

#define BEAT_LEN 17   /* 16 digits and a newline */
#define STALE_TRIES 3 /* attempts to open a file that was replaced meanwhile (ESTALE) */
#define TEXT_MAX (ARBITER_RECORD_TEXT_MAX + 1)

/* Reads at most `size` - 1 bytes, and adds a NUL. -ENOENT has no sentence. */
static int read_file(const struct arbiter_folder *f, const char *file, char *text, size_t size,
                     size_t *ret_len, struct stat *ret_st, struct err *err) {
    _cleanup_(file_close) int fd = -1;
    struct stat st;
    for (int i = 0; fd < 0 && i < STALE_TRIES; i++) {
        fd = openat(f->fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 && errno != ESTALE)
            break;
    }
    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0 || fstat(fd, &st) < 0)
        return arbiter_folder_failed(f, "read", file, err);
    if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size >= size)
        return err_set(err, -EINVAL, "%s/%s/%s is not a file of muster (not regular, or too long)",
                       f->path, f->name, file);
    ssize_t len = file_read_all(fd, text, size - 1);
    if (len < 0)
        return arbiter_folder_failed(f, "read", file, err);
    text[len] = '\0';
    *ret_len = (size_t)len;
    if (ret_st != NULL)
        *ret_st = st;
    return 0;
}

/* Writes a new file with this text to the disk. ret_st: can be NULL. */
static int write_new(const struct arbiter_folder *f, const char *file, const char *text, size_t len,
                     struct stat *ret_st, struct err *err) {
    /* Our own file of an earlier attempt may already be an epoch's file. */
    (void)unlinkat(f->fd, file, 0);
    int fd = openat(f->fd, file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return arbiter_folder_failed(f, "make", file, err);
    int r = file_write_flushed(fd, text, len);
    if (r == 0 && ret_st != NULL && fstat(fd, ret_st) < 0)
        r = -errno;
    if (close(fd) < 0 && r == 0) /* NFS reports here that the data did not fit */
        r = -errno;
    if (r < 0) {
        errno = -r;
        r = arbiter_folder_failed(f, "write", file, err);
        (void)unlinkat(f->fd, file, 0);
    }
    return r;
}

int arbiter_folder_sync(const struct arbiter_folder *f, struct err *err) {
    if (fsync(f->fd) < 0 && errno != EINVAL && errno != ENOTSUP)
        return arbiter_folder_failed(f, "write", ".", err);
    return 0;
}

/* --- leftovers of agents that are gone --- */

static bool is_temporary(const char *name) {
    static const char *const begins[] = {"claim-", "mark-", "latest-", "owner-", "key-"};
    return text_begins_with_any(name, begins, ARRAY_SIZE(begins));
}

static uint64_t stat_ns(const struct stat *st) {
    return (uint64_t)st->st_mtim.tv_sec * NS_PER_S + (uint64_t)st->st_mtim.tv_nsec;
}

typedef void each_name_fn(const struct arbiter_folder *f, const char *name, void *arg);

static int each_name(const struct arbiter_folder *f, each_name_fn *fn, void *arg, struct err *err) {
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        int r = arbiter_folder_failed(f, "list", ".", err);
        file_close(&fd);
        return r;
    }
    errno = 0;
    uint32_t n = 0;
    for (struct dirent *e = readdir(dir); e != NULL && n < ARBITER_LIST_MAX; n++) {
        fn(f, e->d_name, arg);
        errno = 0;
        e = readdir(dir);
    }
    int r = errno != 0 ? arbiter_folder_failed(f, "list", ".", err) : 0;
    (void)closedir(dir);
    return r;
}

/* arg: the current time of the file server. */
static void sweep_name(const struct arbiter_folder *f, const char *name, void *arg) {
    const uint64_t *now_ns = arg;
    struct stat st;
    if (is_temporary(name) && fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        stat_ns(&st) + ARBITER_STALE_NS < *now_ns)
        (void)unlinkat(f->fd, name, 0);
}

static void epoch_file(char out[NAME_LEN], uint32_t epoch) {
    (void)snprintf(out, NAME_LEN, "epoch-%" PRIu32, epoch);
}

static void claim_file(char out[NAME_LEN], uint32_t epoch, uint64_t claimant) {
    (void)snprintf(out, NAME_LEN, "claim-%" PRIu32 "-%016" PRIx64, epoch, claimant);
}

int arbiter_folder_read(const struct arbiter_folder *f, uint32_t epoch, struct arbiter_entry *ret,
                        struct err *err) {
    char file[NAME_LEN];
    _cleanup_(freep) char *text = xmalloc(TEXT_MAX + 1);
    size_t len;
    struct stat st;
    epoch_file(file, epoch);
    struct arbiter_entry e = {0};
    int r = read_file(f, file, text, TEXT_MAX + 1, &len, &st, err);
    if (r == -ENOENT) {
        *ret = e;
        return 0;
    }
    if (r < 0)
        return r;
    if (len > 0 && text[len - 1] == '\n')
        len--;
    r = arbiter_record_read(text, len, &e.record, &e.mark, err);
    if (r == 0 && e.record.epoch != epoch)
        r = err_set(err, -EINVAL, "it has the content of epoch-%" PRIu32, e.record.epoch);
    if (r < 0) {
        err_prefix(err, "%s/%s/%s is damaged, use another run id or directory", f->path, f->name,
                   file);
        return r == -ENOMEM ? r : ARBITER_FOLDER_RUINED;
    }
    e.found = true;
    e.leftover = st.st_nlink > 1;
    *ret = e;
    return 0;
}

int arbiter_folder_prepare(struct arbiter_folder *f, const struct arbiter_record *record,
                           struct err *err) {
    char file[NAME_LEN];
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct stat st;
    claim_file(file, record->epoch, f->asker);
    arbiter_record_write(record, NULL, &text);
    strbuf_add_char(&text, '\n');
    int r = write_new(f, file, text.data, text.len, &st, err);
    if (r == 0 && !f->swept) {
        uint64_t now_ns = stat_ns(&st);
        f->swept = each_name(f, sweep_name, &now_ns, NULL) == 0;
    }
    return r;
}

void arbiter_folder_unprepare(const struct arbiter_folder *f, uint32_t epoch) {
    char file[NAME_LEN];
    claim_file(file, epoch, f->asker);
    (void)unlinkat(f->fd, file, 0); /* it may be gone; one that is left is removed later */
}

int arbiter_folder_link(const struct arbiter_folder *f, uint32_t epoch, struct err *err) {
    char file[NAME_LEN], claim[NAME_LEN];
    epoch_file(file, epoch);
    claim_file(claim, epoch, f->asker);
    int r = 0;
    if (linkat(f->fd, claim, f->fd, file, 0) < 0) {
        r = -errno;
        if (errno == EPERM || errno == ENOTSUP || errno == ENOSYS || errno == EMLINK)
            (void)err_set(err, r,
                          "cannot make a hard link in %s/%s: %s; a file system without hard links "
                          "is of no use here, name a directory on another one",
                          f->path, f->name, strerror(errno));
        else if (errno != EEXIST)
            (void)arbiter_folder_failed(f, "make", file, err);
    }
    arbiter_folder_unprepare(f, epoch);
    return r < 0 ? r : arbiter_folder_sync(f, err);
}

int arbiter_folder_mark(const struct arbiter_folder *f, const struct arbiter_entry *entry,
                        const struct arbiter_record *mark, struct err *err) {
    char file[NAME_LEN], temp[NAME_LEN], claim[NAME_LEN];
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    epoch_file(file, entry->record.epoch);
    (void)snprintf(temp, sizeof temp, "mark-%" PRIu32 "-%016" PRIx64, entry->record.epoch,
                   f->asker);
    arbiter_record_write(&entry->record, mark, &text);
    strbuf_add_char(&text, '\n');
    int r = write_new(f, temp, text.data, text.len, NULL, err);
    if (r < 0)
        return r;
    /* A second name would keep the unmarked file alive: an NFS client that has it open by handle
     * would continue to read that. */
    if (entry->leftover) {
        claim_file(claim, entry->record.epoch, entry->record.leader.incarnation);
        (void)unlinkat(f->fd, claim, 0);
    }
    if (renameat(f->fd, temp, f->fd, file) < 0) {
        r = arbiter_folder_failed(f, "replace", file, err);
        (void)unlinkat(f->fd, temp, 0);
    }
    return r;
}

static void beat_file(char out[NAME_LEN], uint32_t epoch) {
    (void)snprintf(out, NAME_LEN, "beat-%" PRIu32, epoch);
}

int arbiter_folder_read_beat(const struct arbiter_folder *f, uint32_t epoch, uint64_t *ret,
                             struct err *err) {
    char file[NAME_LEN], text[256];
    size_t len;
    beat_file(file, epoch);
    int r = read_file(f, file, text, sizeof text, &len, NULL, err);
    if (r == -ENOENT) {
        *ret = 0;
        return 0;
    }
    if (r == 0)
        *ret = hash_bytes(HASH_BEGIN, text, len);
    return r;
}

int arbiter_folder_write_beat(const struct arbiter_folder *f, uint32_t epoch, bool only_new,
                              uint64_t beat, struct err *err) {
    char file[NAME_LEN], text[BEAT_LEN + 1];
    struct stat st;
    beat_file(file, epoch);
    (void)snprintf(text, sizeof text, "%016" PRIx64 "\n", beat);
    int fd = openat(f->fd, file, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int r = arbiter_folder_failed(f, "write", file, err);
        file_close(&fd);
        return r;
    }
    int r = 0;
    if (!only_new || st.st_size < BEAT_LEN) {
        ssize_t n;
        do
            n = pwrite(fd, text, BEAT_LEN, 0);
        while (n < 0 && errno == EINTR);
        r = n == BEAT_LEN ? 0 : n < 0 ? -errno : -ENOSPC;
    }
    if (r == 0 && only_new && fsync(fd) < 0 && errno != EINVAL && errno != ENOTSUP)
        r = -errno;
    if (close(fd) < 0 && r == 0) /* to the server, where others see it */
        r = -errno;
    if (r < 0) {
        errno = -r;
        return arbiter_folder_failed(f, "write", file, err);
    }
    return 0;
}

#define KEY_FILE "key"
#define KEY_BYTES 256 /* one line, and room to see that there is more */

/* The folder is ours alone; but somebody may have copied a file into it, or changed its mode. */
static int check_key(const struct arbiter_folder *f, const struct stat *st, struct err *err) {
    if (st->st_uid != 0 && !arbiter_folder_is_ours(f, st->st_uid))
        return err_set(err, -EPERM,
                       "the job's key %s/%s/" KEY_FILE " belongs to another user (uid %u): remove "
                       "it, and the next agent makes one",
                       f->path, f->name, (unsigned)st->st_uid);
    if ((st->st_mode & 0077) != 0)
        return err_set(err, -EPERM,
                       "other users have access to the job's key %s/%s/" KEY_FILE " (mode %04o): "
                       "remove it, and the next agent makes one; or chmod 600 it",
                       f->path, f->name, (unsigned)(st->st_mode & 07777));
    return 0;
}

/* -ENOENT has no sentence. */
static int read_key(const struct arbiter_folder *f, uint8_t ret[AUTH_SECRET_BYTES],
                    struct err *err) {
    char text[KEY_BYTES], what[ERR_TEXT_MAX / 2];
    size_t len = 0;
    struct stat st;
    int r = read_file(f, KEY_FILE, text, sizeof text, &len, &st, err);
    if (r == 0)
        r = check_key(f, &st, err);
    (void)snprintf(what, sizeof what, "%s/%s/%s", f->path, f->name, KEY_FILE);
    if (r == 0)
        r = auth_key_from_text(text, len, what, ret, err);
    explicit_bzero(text, sizeof text);
    return r;
}

/* Of several that make one at once, the first to give it its name has made the job's. */
static int make_key(const struct arbiter_folder *f, struct err *err) {
    char temp[NAME_LEN], line[AUTH_KEY_TEXT_MAX + 1];
    uint8_t secret[AUTH_SECRET_BYTES];
    random_bytes(secret, sizeof secret);
    auth_key_to_text(secret, line);
    explicit_bzero(secret, sizeof secret);
    size_t len = strlen(line);
    line[len++] = '\n';
    (void)snprintf(temp, sizeof temp, KEY_FILE "-%016" PRIx64, random_u64());
    int r = write_new(f, temp, line, len, NULL, err);
    explicit_bzero(line, sizeof line);
    if (r < 0)
        return r;
    if (linkat(f->fd, temp, f->fd, KEY_FILE, 0) < 0 && errno != EEXIST)
        r = arbiter_folder_failed(f, "make", KEY_FILE, err);
    (void)unlinkat(f->fd, temp, 0);
    return r < 0 ? r : arbiter_folder_sync(f, err);
}

int arbiter_folder_key(const struct arbiter_folder *f, uint8_t ret[AUTH_SECRET_BYTES],
                       struct err *err) {
    int r = read_key(f, ret, err);
    if (r == -ENOENT && f->read_only)
        return ARBITER_FOLDER_E_NONE;
    if (r == -ENOENT)
        r = make_key(f, err);
    else
        return r;
    if (r == 0)
        r = read_key(f, ret, err);
    return r == -ENOENT ? err_set(err, r, "%s/%s/%s was removed by another process", f->path,
                                  f->name, KEY_FILE)
                        : r;
}

uint32_t arbiter_folder_hint(const struct arbiter_folder *f) {
    char text[64];
    size_t len;
    uint32_t epoch;
    if (read_file(f, "latest", text, sizeof text, &len, NULL, NULL) < 0)
        return 0;
    if (len > 0 && text[len - 1] == '\n')
        text[len - 1] = '\0';
    return parse_u32(text, &epoch) == 0 ? epoch : 0;
}

static void keep_highest(const struct arbiter_folder *f, const char *name, void *arg) {
    uint32_t *highest = arg, epoch;
    char file[NAME_LEN];
    if (strncmp(name, "epoch-", 6) != 0 || parse_u32(name + 6, &epoch) < 0)
        return;
    epoch_file(file, epoch);
    if (strcmp(file, name) == 0)
        *highest = MAX2(*highest, epoch);
}

int arbiter_folder_highest(const struct arbiter_folder *f, uint32_t *ret, struct err *err) {
    uint32_t highest = 0;
    int r = each_name(f, keep_highest, &highest, err);
    if (r == 0)
        *ret = highest;
    return r;
}

void arbiter_folder_set_hint(const struct arbiter_folder *f, uint32_t epoch) {
    char temp[NAME_LEN], text[32];
    (void)snprintf(temp, sizeof temp, "latest-%016" PRIx64, f->asker);
    int n = snprintf(text, sizeof text, "%" PRIu32 "\n", epoch);
    if (write_new(f, temp, text, (size_t)n, NULL, NULL) < 0)
        return;
    if (renameat(f->fd, temp, f->fd, "latest") < 0)
        (void)unlinkat(f->fd, temp, 0);
}
