#include "launcher/output/logdir_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/parse.h"
#include "io/clock.h"
#include "io/file.h"

/* In each run's folder: names the run that owns it. */
#define MARKER ".muster-run"

#define ENDED ".muster-ended"

bool logdir_is_null(const char *base) { return strcmp(base, "/dev/null") == 0; }

void logdir_sanitise(const char *name, char ret[LOGDIR_NAME_MAX + 1]) {
    size_t n = 0;
    for (; name[n] != '\0' && n < LOGDIR_NAME_MAX; n++) {
        uint8_t c = (uint8_t)name[n];
        bool bad = c == '/' || c < 0x20 || c == 0x7f || (n == 0 && (c == '.' || c == '-'));
        ret[n] = bad ? '_' : name[n];
    }
    if (name[n] != '\0') { /* cut before a UTF-8 character, not inside it */
        while (n > 1 && ((uint8_t)name[n] & 0xc0) == 0x80)
            n--;
    }
    if (n == 0)
        ret[n++] = '_';
    ret[n] = '\0';
}

void logdir_node_name(const char *host, uint32_t host_index, char ret[LOGDIR_NAME_MAX + 1]) {
    char suffix[16] = "";
    logdir_sanitise(host, ret);
    if (host_index == 0)
        return;
    (void)snprintf(suffix, sizeof suffix, "-%" PRIu32, host_index + 1);
    size_t at = MIN2(strlen(ret), LOGDIR_NAME_MAX - strlen(suffix));
    memcpy(ret + at, suffix, strlen(suffix) + 1);
}

static int sentence(struct err *err, int r, const char *path) {
    return err_set(err, r, "can't make the log folder %s: %s", path, strerror(-r));
}

/* The folder can exist already; another node can be making it now. */
static int make_dir(const char *path, uint32_t mode, bool links, struct err *err) {
    struct stat st;
    int r = own_folder_make(path, own_folder_mode(mode));
    if (r < 0 && (links ? stat(path, &st) : lstat(path, &st)) == 0)
        r = S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    if (r == -ENOTDIR)
        return err_set(err, r, "the log folder %s is a file", path);
    return r == 0 ? 0 : sentence(err, r, path);
}

static int make_dirs(const char *path, uint32_t mode, struct err *err) {
    _cleanup_(freep) char *part = xstrdup(path);
    for (char *p = part + 1; *part != '\0' && *p != '\0'; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        int r = make_dir(part, mode, true, err);
        if (r < 0)
            return r;
        *p = '/';
    }
    return make_dir(path, mode, true, err);
}

static int write_marker(const char *dir, uint64_t nonce, uint32_t mode) {
    char path[4096], text[32];
    (void)snprintf(path, sizeof path, "%s/" MARKER, dir);
    (void)snprintf(text, sizeof text, "%016" PRIx64 "\n", nonce);
    int fd = own_file_make(path, O_WRONLY | O_EXCL, mode);
    if (fd < 0)
        return fd;
    int r = file_write_all(fd, text, strlen(text));
    if (close(fd) < 0 && r == 0)
        r = -errno;
    return r;
}

/* Whether the folder belongs to the run with this nonce. uid: ours, as this file system has it. */
static bool is_ours(const char *dir, uid_t uid, uint64_t nonce) {
    char path[4096], text[32] = "", want[32];
    struct stat st;
    if (lstat(dir, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != uid)
        return false;
    (void)snprintf(path, sizeof path, "%s/" MARKER, dir);
    (void)snprintf(want, sizeof want, "%016" PRIx64 "\n", nonce);
    return file_read_head(AT_FDCWD, path, text, sizeof text) > 0 && strcmp(text, want) == 0;
}

/* Whether a folder could not be renamed to this path because something is there: with contents, or
 * another user's, which can't be replaced if `base` is sticky. */
static bool is_taken(const char *path, int error, uid_t uid) {
    struct stat st;
    if (error == EPERM || error == EACCES)
        return lstat(path, &st) == 0 && st.st_uid != uid;
    return error == ENOTEMPTY || error == EEXIST || error == ENOTDIR;
}

/* Takes the first name that is free or belongs to this run. `made` already holds a marker. It is
 * renamed to the name; this fails if a folder with contents exists there, so two runs never get the
 * same folder. */
static int claim_name(const char *base, const char *name, const char *made, uint64_t nonce,
                      char **ret, struct err *err) {
    struct stat st;
    if (lstat(made, &st) < 0)
        return sentence(err, -errno, made);
    for (uint32_t i = 1; i <= LOGDIR_SUFFIX_MAX; i++) {
        _cleanup_(freep) char *path =
            i == 1 ? xasprintf("%s/%s", base, name) : xasprintf("%s/%s.%" PRIu32, base, name, i);
        bool ours = is_ours(path, st.st_uid, nonce);
        if (!ours && rename(made, path) < 0) {
            if (!is_taken(path, errno, st.st_uid))
                return sentence(err, -errno, path);
            ours = is_ours(path, st.st_uid, nonce); /* another node of this run was faster */
            if (!ours)
                continue;
        }
        *ret = TAKE_PTR(path);
        return 0;
    }
    return err_set(err, -EEXIST, "%s holds %d runs named %s; give another --rdzv-id or --log-dir",
                   base, LOGDIR_SUFFIX_MAX, name);
}

int logdir_claim_run(const char *base, const char *run_id, uint64_t nonce, uint32_t mode,
                     char **ret_run_dir, struct err *err) {
    char name[LOGDIR_NAME_MAX + 1];
    logdir_sanitise(run_id, name);
    if (strlen(base) > 2048)
        return err_set(err, -ENAMETOOLONG, "the path of --log-dir is too long");
    int r = own_path_check(base, err);
    if (r < 0)
        err_prefix(err, "the logs can't be below %s", base);
    else
        r = make_dirs(base, mode, err);
    if (r < 0)
        return r;
    _cleanup_(freep) char *made = xasprintf("%s/.muster-%016" PRIx64, base, random_u64());
    _cleanup_(freep) char *wanted = xasprintf("%s/%s", base, name);
    r = own_folder_make(made, own_folder_mode(mode));
    if (r < 0)
        return sentence(err, r, wanted);
    r = write_marker(made, nonce, mode);
    if (r < 0)
        r = sentence(err, r, wanted);
    else
        r = claim_name(base, name, made, nonce, ret_run_dir, err);
    /* if claiming failed, or it was not needed; a folder with a marker does no harm */
    _cleanup_(freep) char *marker = xasprintf("%s/" MARKER, made);
    (void)unlink(marker);
    (void)rmdir(made);
    return r;
}

static int make_below(const char *dir, const char *name, uint32_t mode, char **ret,
                      struct err *err) {
    _cleanup_(freep) char *path = xasprintf("%s/%s", dir, name);
    int r = make_dir(path, mode, false, err);
    if (r == 0)
        *ret = TAKE_PTR(path);
    return r;
}

int logdir_make_generation(const char *run_dir, const char *generation, const char *node,
                           uint32_t mode, char **ret_node_dir, struct err *err) {
    _cleanup_(freep) char *dir = NULL, *node_dir = NULL;
    int r = make_below(run_dir, generation, mode, &dir, err);
    if (r == 0)
        r = make_below(dir, node, mode, &node_dir, err);
    _cleanup_(freep) char *cwd = r == 0 && node_dir[0] != '/' ? getcwd(NULL, 0) : NULL;
    if (r == 0) /* without a working directory the path can't be made absolute */
        *ret_node_dir = cwd != NULL ? xasprintf("%s/%s", cwd, node_dir) : TAKE_PTR(node_dir);
    return r;
}

int logdir_make_worker(const char *node_dir, uint32_t rank, uint32_t mode, char **ret_dir,
                       struct err *err) {
    char name[16];
    (void)snprintf(name, sizeof name, "%" PRIu32, rank);
    return make_below(node_dir, name, mode, ret_dir, err);
}

char *logdir_filtered_path(const char *node_dir, int stream) {
    return xasprintf("%s/filtered_%s.log", node_dir, stream == 0 ? "stdout" : "stderr");
}

char *logdir_log_path(const char *dir, int stream) {
    return xasprintf("%s/%s", dir, stream == 0 ? "stdout.log" : "stderr.log");
}

int logdir_set_latest(const char *run_dir, const char *generation) {
    _cleanup_(freep) char *link = xasprintf("%s/latest", run_dir);
    char old[64];
    ssize_t n = readlink(link, old, sizeof old - 1);
    if (n > 0) {
        old[n] = '\0';
        if (natural_compare(old, generation) >= 0)
            return 0;
    }
    /* nodes of one run can do this at once: renames a link with a name of our own */
    _cleanup_(freep) char *made = xasprintf("%s/.latest-%016" PRIx64, run_dir, random_u64());
    if (symlink(generation, made) < 0)
        return -errno;
    if (rename(made, link) < 0) {
        int r = -errno;
        (void)unlink(made);
        return r;
    }
    return 0;
}

int logdir_set_ended(const char *run_dir, uint32_t mode) {
    _cleanup_(freep) char *path = xasprintf("%s/" ENDED, run_dir);
    int fd = own_file_make(path, O_WRONLY, mode);
    if (fd < 0)
        return fd;
    return close(fd) < 0 ? -errno : 0;
}

bool logdir_has_ended(const char *run_dir) {
    _cleanup_(freep) char *path = xasprintf("%s/" ENDED, run_dir);
    return access(path, F_OK) == 0;
}
