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

/* The data is certainly gone, or can't be read. No file system returns this errno. */
#define RUINED (-ENOTUNIQ)

/* Sets err to "cannot VERB PATH/NAME/FILE: …", with the text of errno. Returns -errno. */
static int failed(const struct arbiter_folder *f, const char *verb, const char *file,
                  struct err *err) {
    int code = errno;
    const char *then = "";
    if (code == ENOSPC || code == EDQUOT)
        then = "; make room there";
    return err_set(err, -code, "cannot %s %s/%s/%s: %s%s", verb, f->path, f->name, file,
                   strerror(code), then);
}

static int epoch_error(const struct arbiter_folder *f, uint32_t epoch, int code, const char *what,
                       struct err *err) {
    return err_set(err, code, "%s/%s/epoch-%" PRIu32 " %s", f->path, f->name, epoch, what);
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
    *f = (struct arbiter_folder){.path = path,
                                 .name = folder_name(run_id),
                                 .fd = -1,
                                 .read_only = read_only,
                                 .beat = random_u64()};
}

void arbiter_folder_fini(struct arbiter_folder *f) {
    file_close(&f->fd);
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
        return failed(f, "write", file, err);
    int r = fstat(probe, &st) < 0 ? failed(f, "look at", file, err) : 0;
    (void)unlinkat(fd, file, 0);
    if (r == 0) {
        f->squashed = st.st_uid != geteuid();
        f->squashed_uid = st.st_uid;
    }
    return r;
}

/* Whether files of this owner are what we create there. */
static bool is_ours(const struct arbiter_folder *f, uid_t owner) {
    return owner == geteuid() || (f->squashed && owner == f->squashed_uid);
}

static int check_folder(struct arbiter_folder *f, int fd, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return failed(f, "look at", ".", err);
    int r = is_ours(f, st.st_uid) ? 0 : find_squashed(f, fd, err);
    if (r < 0)
        return r;
    if (!is_ours(f, st.st_uid))
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
    if (st.st_uid != 0 && !is_ours(f, st.st_uid))
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

static int open_top(const struct arbiter_folder *f, bool create, int *ret, struct err *err) {
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    int fd = open(f->path, flags);
    if (fd < 0 && errno == ENOENT && create) {
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

/* Of the folder; if it is missing, of the nearest existing directory above it. 0: not known. */
static uint64_t device_of(const struct arbiter_folder *f) {
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

int arbiter_folder_open(struct arbiter_folder *f, bool create, struct err *err) {
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    _cleanup_(file_close) int top = -1, fd = -1;
    int r = open_top(f, create, &top, err);
    if (r < 0)
        return r;
    fd = openat(top, f->name, flags);
    if (fd < 0 && errno == ENOENT && !create)
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
        return failed(f, "read", file, err);
    if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size >= size)
        return err_set(err, -EINVAL, "%s/%s/%s is not a file of muster (not regular, or too long)",
                       f->path, f->name, file);
    ssize_t len = file_read_all(fd, text, size - 1);
    if (len < 0)
        return failed(f, "read", file, err);
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
        return failed(f, "make", file, err);
    int r = file_write_flushed(fd, text, len);
    if (r == 0 && ret_st != NULL && fstat(fd, ret_st) < 0)
        r = -errno;
    if (close(fd) < 0 && r == 0) /* NFS reports here that the data did not fit */
        r = -errno;
    if (r < 0) {
        errno = -r;
        r = failed(f, "write", file, err);
        (void)unlinkat(f->fd, file, 0);
    }
    return r;
}

static int sync_folder(const struct arbiter_folder *f, struct err *err) {
    if (fsync(f->fd) < 0 && errno != EINVAL && errno != ENOTSUP)
        return failed(f, "write", ".", err);
    return 0;
}

/* --- names --- */

static bool is_temporary(const char *name) {
    static const char *const begins[] = {"claim-", "mark-", "owner-", "key-"};
    return text_begins_with_any(name, begins, ARRAY_SIZE(begins));
}

static uint64_t stat_ns(const struct stat *st) {
    return (uint64_t)st->st_mtim.tv_sec * NS_PER_S + (uint64_t)st->st_mtim.tv_nsec;
}

static void epoch_file(char out[NAME_LEN], uint32_t epoch) {
    (void)snprintf(out, NAME_LEN, "epoch-%" PRIu32, epoch);
}

static void visit_name(const struct arbiter_folder *f, const char *name, uint64_t server_ns,
                       uint32_t below, uint32_t *highest) {
    char file[NAME_LEN];
    struct stat st;
    uint32_t epoch;
    if (server_ns != 0 && is_temporary(name) &&
        fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        stat_ns(&st) + ARBITER_STALE_NS < server_ns)
        (void)unlinkat(f->fd, name, 0);
    if (!text_begins(name, "epoch-") || parse_u32(name + strlen("epoch-"), &epoch) < 0)
        return;
    epoch_file(file, epoch);
    if (strcmp(file, name) == 0 && (below == 0 || epoch < below))
        *highest = MAX2(*highest, epoch);
}

/* Finds the highest epoch below this one (0: any) that has a name in the folder; 0: none. Removes
 * what agents that are gone have left, by the file server's time; 0: removes nothing. */
static int walk_names(const struct arbiter_folder *f, uint64_t server_ns, uint32_t below,
                      uint32_t *ret_highest, struct err *err) {
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    *ret_highest = 0;
    if (dir == NULL) {
        int r = failed(f, "list", ".", err);
        file_close(&fd);
        return r;
    }
    const struct dirent *e;
    uint32_t n = 0;
    do {
        errno = 0;
        e = readdir(dir);
        if (e != NULL)
            visit_name(f, e->d_name, server_ns, below, ret_highest);
    } while (e != NULL && ++n < ARBITER_LIST_MAX);
    int r = e == NULL && errno != 0 ? failed(f, "list", ".", err) : 0;
    (void)closedir(dir);
    return r;
}

static void claim_file(char out[NAME_LEN], uint32_t epoch, uint64_t claimant) {
    (void)snprintf(out, NAME_LEN, "claim-%" PRIu32 "-%016" PRIx64, epoch, claimant);
}

/* --- one epoch --- */

struct entry {
    struct arbiter_record record, mark; /* mark.epoch 0: none */
    bool found;                         /* false: there is no such epoch; the rest is zero */
    bool leftover;                      /* the claim's temporary file is still there */
};

/* RUINED: the file exists, but it is not ours, or is of another version. */
static int read_entry(const struct arbiter_folder *f, uint32_t epoch, struct entry *ret,
                      struct err *err) {
    char file[NAME_LEN];
    _cleanup_(freep) char *text = xmalloc(TEXT_MAX + 1);
    size_t len;
    struct stat st;
    epoch_file(file, epoch);
    struct entry e = {0};
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
        return r == -ENOMEM ? r : RUINED;
    }
    e.found = true;
    e.leftover = st.st_nlink > 1;
    *ret = e;
    return 0;
}

/* To a temporary file, which link_claim() gives the epoch's name if that is free. */
static int prepare_claim(struct arbiter_folder *f, const struct arbiter_record *record,
                         struct err *err) {
    char file[NAME_LEN];
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct stat st;
    claim_file(file, record->epoch, f->asker);
    arbiter_record_write(record, NULL, &text);
    strbuf_add_char(&text, '\n');
    int r = write_new(f, file, text.data, text.len, &st, err);
    if (r == 0 && !f->swept) {
        uint32_t highest;
        f->swept = walk_names(f, stat_ns(&st), 0, &highest, NULL) == 0;
    }
    return r;
}

static void drop_claim(const struct arbiter_folder *f, uint32_t epoch) {
    char file[NAME_LEN];
    claim_file(file, epoch, f->asker);
    (void)unlinkat(f->fd, file, 0); /* it may be gone; one that is left is removed later */
}

/* -EEXIST (no sentence): there is one, perhaps our own. Removes the temporary file. 0: the epoch's
 * file will survive a crash of the server. */
static int link_claim(const struct arbiter_folder *f, uint32_t epoch, struct err *err) {
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
            (void)failed(f, "make", file, err);
    }
    drop_claim(f, epoch);
    return r < 0 ? r : sync_folder(f, err);
}

/* Replaces an epoch's file with one that has a mark. Durable after sync_folder(). */
static int mark_entry(const struct arbiter_folder *f, const struct entry *entry,
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
        r = failed(f, "replace", file, err);
        (void)unlinkat(f->fd, temp, 0);
    }
    return r;
}

static void beat_file(char out[NAME_LEN], uint32_t epoch) {
    (void)snprintf(out, NAME_LEN, "beat-%" PRIu32, epoch);
}

/* 0 if there is no beat file. */
static int add_beat(const struct arbiter_folder *f, struct arbiter_record *record,
                    struct err *err) {
    char file[NAME_LEN], text[256];
    size_t len;
    if (record->epoch == 0 || record->closed || record->vacant)
        return 0;
    beat_file(file, record->epoch);
    int r = read_file(f, file, text, sizeof text, &len, NULL, err);
    if (r == 0)
        record->beat = hash_bytes(HASH_BEGIN, text, len);
    return r == -ENOENT ? 0 : r;
}

/* Needs no free space. only_new: makes the file with all its space, or leaves it as it is. */
static int write_beat(const struct arbiter_folder *f, uint32_t epoch, bool only_new, uint64_t beat,
                      struct err *err) {
    char file[NAME_LEN], text[BEAT_LEN + 1];
    struct stat st;
    beat_file(file, epoch);
    (void)snprintf(text, sizeof text, "%016" PRIx64 "\n", beat);
    int fd = openat(f->fd, file, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int r = failed(f, "write", file, err);
        file_close(&fd);
        return r;
    }
    int r = only_new ? file_write_flushed(fd, text, st.st_size < BEAT_LEN ? BEAT_LEN : 0)
                     : file_write_all(fd, text, BEAT_LEN);
    if (close(fd) < 0 && r == 0) /* to the server, where others see it */
        r = -errno;
    if (r < 0) {
        errno = -r;
        return failed(f, "write", file, err);
    }
    return 0;
}

#define KEY_FILE "key"
#define KEY_BYTES 256 /* one line, and room to see that there is more */

/* The folder is ours alone; but somebody may have copied a file into it, or changed its mode. */
static int check_key(const struct arbiter_folder *f, const struct stat *st, struct err *err) {
    if (st->st_uid != 0 && !is_ours(f, st->st_uid))
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
        r = failed(f, "make", KEY_FILE, err);
    (void)unlinkat(f->fd, temp, 0);
    return r < 0 ? r : sync_folder(f, err);
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

/* ==== the rules of claims ==== */

/* The limit of attempts to claim when the name is taken, but the file can't be seen. */
#define CLAIM_TRIES 3

/* Fails after the deadline: the agent has given this request up, so it must have no effect. */
static int check_time(const struct arbiter_folder *f, struct err *err) {
    if (clock_now_ns() < f->deadline_ns)
        return 0;
    return err_set(err, -ETIMEDOUT, "%s: the file system was too slow", f->path);
}

static void remember(struct arbiter_folder *f, const struct arbiter_record *record) {
    if (record->epoch < f->memory.epoch)
        return;
    f->memory = (struct arbiter_dir_memory){
        .epoch = record->epoch, .leader = record->leader.incarnation, .device = device_of(f)};
}

/* It is certainly gone only if the same file system is there; else the arbiter is unreachable. */
static int is_missing(const struct arbiter_folder *f, struct err *err) {
    uint64_t device = device_of(f);
    if (device != 0 && device == f->memory.device)
        return epoch_error(f, f->memory.epoch, RUINED, "was removed", err);
    return epoch_error(f, f->memory.epoch, -ENODEV,
                       "does not exist, and its file system does not either; check that it is "
                       "mounted",
                       err);
}

/* Where the search begins. An epoch that was seen must be there: else it could be won twice. Of
 * names, the highest with a record: epochs have no gaps, so one that is damaged is read again from
 * below, but not a file of another origin. */
static int first_entry(const struct arbiter_folder *f, uint32_t from, struct entry *ret,
                       struct err *err) {
    from = MAX2(from, f->memory.epoch);
    bool seen = from > 0, known = from == f->memory.epoch;
    int r;
    for (;;) {
        r = seen ? 0 : walk_names(f, 0, from, &from, err);
        if (r == 0)
            r = read_entry(f, MAX2(from, UINT32_C(1)), ret, err);
        if ((r != RUINED && r != -EINVAL) || seen || from <= 1)
            break;
        (void)epoch_error(f, from, r, "is ignored, because it is not a record of muster", err);
    }
    if (r < 0 || !seen)
        return r;
    if (ret->found && known && ret->record.leader.incarnation != f->memory.leader)
        return epoch_error(f, from, RUINED, "was removed, and another job has begun there", err);
    if (ret->found)
        return 0;
    return known ? is_missing(f, err)
                 : epoch_error(f, from, -ENOENT, "is not visible on this node", err);
}

/* Follows the marks upwards, or goes one by one where there are none. */
static int find_latest(struct arbiter_folder *f, uint32_t from, struct arbiter_record *ret,
                       struct err *err) {
    struct entry e, next;
    bool marked_only = false; /* e is known from a mark only */
    int r = first_entry(f, from, &e, err);
    while (r == 0 && e.found) {
        r = check_time(f, err);
        if (r < 0)
            break;
        if (!marked_only)
            remember(f, &e.record);
        uint32_t up = e.mark.epoch > 0 ? e.mark.epoch : e.record.epoch + 1;
        if (up == 0)
            break;
        r = read_entry(f, up, &next, err);
        if (r < 0 || (!next.found && e.mark.epoch == 0))
            break;
        marked_only = !next.found; /* its name is not visible yet; the mark has the whole record */
        if (marked_only)
            next = (struct entry){.record = e.mark, .found = true};
        e = next;
    }
    if (r == 0)
        *ret = e.record;
    return r;
}

/* --- the requests --- */

static int do_read(struct arbiter_folder *f, struct arbiter_dir_result *ret, struct err *err) {
    int r = find_latest(f, 0, &ret->record, err);
    return r < 0 ? r : add_beat(f, &ret->record, err);
}

static int do_beat(struct arbiter_folder *f, const struct arbiter_request *q,
                   struct arbiter_dir_result *ret, struct err *err) {
    int r = find_latest(f, q->epoch, &ret->record, err);
    bool ours = r == 0 && arbiter_record_is_of(&ret->record, q->epoch, q->leader.incarnation);
    if (ours)
        r = check_time(f, err);
    if (ours && r == 0)
        r = write_beat(f, q->epoch, false, ++f->beat, err);
    if (r == -ENOSPC || r == -EDQUOT) /* must not end a job; err is logged */
        r = 0;
    return r < 0 ? r : add_beat(f, &ret->record, err);
}

/* In every lower epoch that has no mark yet, the lowest first: all epochs below a marked one are
 * marked, even if this is interrupted. */
static int mark_below(const struct arbiter_folder *f, const struct arbiter_record *winner,
                      struct err *err) {
    struct entry e;
    uint32_t low = winner->epoch;
    for (; low > 1; low--) {
        int r = read_entry(f, low - 1, &e, err);
        if (r == 0)
            r = check_time(f, err);
        if (r == 0 && !e.found)
            r = epoch_error(f, low - 1, -ENOENT, "is not visible on this node", err);
        if (r < 0)
            return r;
        if (e.mark.epoch > 0)
            break;
    }
    if (low == winner->epoch)
        return 0;
    for (; low < winner->epoch; low++) {
        int r = read_entry(f, low, &e, err);
        if (r == 0)
            r = check_time(f, err);
        if (r == 0 && e.found && e.mark.epoch == 0)
            r = mark_entry(f, &e, winner, err);
        if (r < 0)
            return r;
    }
    return sync_folder(f, err);
}

/* Makes a record valid, whether it was linked now or by an earlier attempt. */
static int settle(struct arbiter_folder *f, const struct arbiter_record *winner,
                  struct arbiter_dir_result *ret, struct err *err) {
    int r = mark_below(f, winner, err);
    if (r < 0)
        return r;
    remember(f, winner);
    ret->record = *winner;
    ret->result = ARBITER_OK;
    r = add_beat(f, &ret->record, err);
    return r < 0 ? r : check_time(f, err);
}

/* 0: the record was written as a new file; -EEXIST (no sentence): the name is taken. Epochs have no
 * gaps, because each reader searches for the one after the last that it knows. */
static int put_after(struct arbiter_folder *f, uint32_t latest, const struct arbiter_record *record,
                     struct err *err) {
    if (record->epoch != latest + 1)
        return err_set(err, -EINVAL,
                       "%s/%s/epoch-%" PRIu32 " cannot be created: the latest file is "
                       "epoch-%" PRIu32,
                       f->path, f->name, record->epoch, latest);
    int r = prepare_claim(f, record, err);
    if (r < 0)
        return r;
    /* Before the epoch, so that no reader misses the beat file and caches its absence. */
    if (!record->closed && !record->vacant)
        r = write_beat(f, record->epoch, true, 0, err);
    if (r == 0)
        r = check_time(f, err);
    if (r < 0) {
        drop_claim(f, record->epoch);
        return r;
    }
    r = link_claim(f, record->epoch, err);
    return r < 0 ? r : check_time(f, err);
}

static int do_write(struct arbiter_folder *f, const struct arbiter_request *q,
                    struct arbiter_dir_result *ret, struct err *err) {
    struct arbiter_record mine = {0};
    for (int i = 0; i < CLAIM_TRIES; i++) {
        struct arbiter_record latest;
        int r = find_latest(f, 0, &latest, err);
        if (r == 0)
            r = arbiter_decide(q, &latest, &ret->result, &mine, err);
        if (r < 0)
            return r;
        ret->record = latest;
        if (r == 0)
            return ret->result == ARBITER_OK ? settle(f, &latest, ret, err)
                                             : add_beat(f, &ret->record, err);
        r = put_after(f, latest.epoch, &mine, err);
        if (r == 0)
            return settle(f, &mine, ret, err);
        if (r != -EEXIST)
            return r;
    }
    return epoch_error(f, mine.epoch, -EAGAIN, "exists, but cannot be read yet", err);
}

/* Does not create the folder again if it has been there before. */
static int open_folder(struct arbiter_folder *f, struct err *err) {
    bool known = f->memory.epoch > 0;
    int r = arbiter_folder_open(f, !f->read_only && !known, err);
    bool missing = r == -ENOENT || r == -ENOTDIR || r == ARBITER_FOLDER_E_NONE;
    return known && missing ? is_missing(f, err) : r;
}

static int do_request(struct arbiter_folder *f, const struct arbiter_request *q,
                      struct arbiter_dir_result *ret, struct err *err) {
    int r = check_time(f, err);
    if (r == 0 && f->read_only && q->kind != ARBITER_READ)
        r = err_set(err, -EROFS, "%s: this process may only read it", f->path);
    if (r == 0)
        r = open_folder(f, err);
    if (r < 0 || r == ARBITER_FOLDER_E_NONE)
        return MIN2(r, 0); /* no folder: no agent has led yet */
    switch (q->kind) {
    case ARBITER_READ: return do_read(f, ret, err);
    case ARBITER_BEAT: return do_beat(f, q, ret, err);
    case ARBITER_CLAIM:
    case ARBITER_CLOSE:
    case ARBITER_VACATE: return do_write(f, q, ret, err);
    case ARBITER_KIND_COUNT: break;
    }
    assert_not_reached();
}

/* Finds a record that others have written in place of the lost data. */
static void find_other(struct arbiter_folder *f, struct arbiter_record *ret) {
    struct arbiter_dir_memory memory = f->memory;
    f->memory = (struct arbiter_dir_memory){0};
    bool found = f->fd >= 0 && find_latest(f, 0, ret, NULL) == 0;
    if (!found || ret->leader.incarnation == memory.leader)
        *ret = (struct arbiter_record){0};
    f->memory = memory;
}

void arbiter_folder_serve(struct arbiter_folder *f, const struct arbiter_dir_task *task,
                          struct arbiter_dir_result *ret) {
    struct err err = {0};
    *ret = (struct arbiter_dir_result){.seq = task->seq, .result = ARBITER_OK};
    f->deadline_ns = task->deadline_ns;
    f->asker = task->request.leader.incarnation;
    if (task->memory.epoch > f->memory.epoch)
        f->memory = task->memory;
    int r = do_request(f, &task->request, ret, &err);
    if (r < 0)
        ret->record = (struct arbiter_record){0};
    if (r == RUINED)
        find_other(f, &ret->record);
    file_close(&f->fd);
    ret->memory = f->memory;
    if (r < 0)
        ret->result = r == RUINED ? ARBITER_RUINED : ARBITER_UNREACHABLE;
    (void)snprintf(ret->text, sizeof ret->text, "%s",
                   r < 0 && err.text[0] == '\0' ? strerror(-r) : err.text);
}
