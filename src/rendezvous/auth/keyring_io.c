#include "rendezvous/auth/keyring_io.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/little_endian.h"
#include "io/file.h"
#include "io/process/helper_call.h"

#define NAME_MAX_TEXT 320 /* of a path in a sentence */

/* own: it must be this user's, or root's. */
static int check_file(int fd, const char *path, bool own, struct err *err) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(err, -errno, "cannot read the key file '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(err, -EINVAL, "the key file '%s' is not a regular file", path);
    if (own && st.st_uid != geteuid() && st.st_uid != 0)
        return err_set(err, -EPERM,
                       "the key file '%s' belongs to another user (uid %u): copy it to a file of "
                       "your own",
                       path, (unsigned)st.st_uid);
    /* root may give it to a group: so a pod whose user is not root gets its Secret */
    mode_t others = st.st_uid == 0 ? 0037 : 0077;
    if ((st.st_mode & others) != 0)
        return err_set(err, -EPERM,
                       "other users have access to the key file '%s' (mode %04o): chmod 600 '%s'",
                       path, (unsigned)(st.st_mode & 07777), path);
    return 0;
}

struct text {
    size_t len;
    char data[AUTH_KEY_FILE_MAX];
};

static void wipe(struct text *t) { explicit_bzero(t, sizeof *t); }

static int read_whole(int fd, const char *path, struct text *t, struct err *err) {
    ssize_t n = file_read_all(fd, t->data, sizeof t->data);
    if (n < 0)
        return err_set(err, (int)n, "cannot read the key file '%s': %s", path, strerror((int)-n));
    t->len = (size_t)n;
    if (t->len < sizeof t->data)
        return 0;
    return err_set(err, -EFBIG, "the key file '%s' is too long for a key, which is one line", path);
}

static int open_file(const char *path, bool follow, int *ret, struct err *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW));
    if (fd < 0)
        return err_set(err, -errno, "cannot read the key file '%s': %s%s", path, strerror(errno),
                       errno == ELOOP && !follow ? "; it may not be a symlink" : "");
    *ret = fd;
    return 0;
}

/* Takes *t's memory for the text, which the caller wipes. */
static int read_secret(const char *path, bool follow, bool own, struct text *t,
                       uint8_t ret[AUTH_SECRET_BYTES], struct err *err) {
    char what[NAME_MAX_TEXT];
    _cleanup_(file_close) int fd = -1;
    int r = open_file(path, follow, &fd, err);
    if (r == 0)
        r = check_file(fd, path, own, err);
    if (r == 0)
        r = read_whole(fd, path, t, err);
    (void)snprintf(what, sizeof what, "the key file '%s'", path);
    return r == 0 ? auth_key_from_text(t->data, t->len, what, ret, err) : r;
}

int keyring_load_file(struct keyring *k, const char *path, enum auth_source source,
                      struct err *err) {
    _cleanup_(wipe) struct text text = {0};
    uint8_t secret[AUTH_SECRET_BYTES];
    bool own = source != AUTH_FROM_RUN_DIR || geteuid() != 0; /* root asks the jobs of all */
    int r = read_secret(path, source == AUTH_FROM_FILE, own, &text, secret, err);
    if (r == 0)
        r = keyring_add(k, secret, source, err);
    explicit_bzero(secret, sizeof secret);
    return r;
}

int keyring_load_given(struct keyring *k, const char *key_file, struct err *err) {
    const char *name = "--key-file";
    if (key_file == NULL) {
        key_file = getenv("MUSTER_KEY_FILE");
        name = "MUSTER_KEY_FILE";
    }
    if (key_file == NULL)
        return 0;
    if (*key_file == '\0')
        return err_set(err, -EINVAL, "%s is empty: name a file that \"muster keygen\" has written",
                       name);
    if (keyring_is_given(k))
        return err_set(err, -EINVAL, "%s and MUSTER_KEY both give a key: leave one out", name);
    int r = keyring_load_file(k, key_file, AUTH_FROM_FILE, err);
    if (r < 0)
        err_prefix(err, "%s", name);
    return r;
}

int keyring_home_path(char out[PATH_MAX], struct err *err) {
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    bool has_config = config != NULL && config[0] == '/';
    if (!has_config && (home == NULL || home[0] != '/'))
        return err_set(err, -ENOENT, "HOME is not set: name a file");
    int n = has_config ? snprintf(out, PATH_MAX, "%s/muster/key", config)
                       : snprintf(out, PATH_MAX, "%s/.config/muster/key", home);
    return n < PATH_MAX ? 0 : err_set(err, -ENAMETOOLONG, "the path of the home is too long");
}

/* What the helper writes. */
struct home_answer {
    struct err err; /* code 0: there is a key; -ENOENT: there is none */
    uint8_t secret[AUTH_SECRET_BYTES];
};

static int look_at_home(int fd, void *arg) {
    struct text text = {0};
    struct home_answer a = {0};
    a.err.code = read_secret(arg, false, true, &text, a.secret, &a.err);
    return helper_send(fd, &a, sizeof a) ? 0 : 1;
}

/* A folder that this user may not enter holds nothing of theirs (HOME can be another's, by su). */
static bool is_none(int code) { return code == -ENOENT || code == -ENOTDIR || code == -EACCES; }

int keyring_load_home(struct keyring *k, uint64_t timeout_ns, struct err *err) {
    char path[PATH_MAX];
    struct home_answer a;
    if (keyring_home_path(path, NULL) < 0)
        return 0;
    struct helper_call_config config = {.name = "muster-key",
                                        .run = look_at_home,
                                        .arg = path,
                                        .timeout_ns = timeout_ns,
                                        .max_bytes = sizeof a};
    int r = helper_ask(&config, &a);
    if (r == -ETIMEDOUT || r == -EIO)
        return err_set(err, r,
                       "'%s' cannot be read: its file system does not answer; --key-file "
                       "selects another key",
                       path);
    if (r < 0)
        return err_set(err, r, "cannot start a process that reads '%s': %s", path, strerror(-r));
    r = a.err.code;
    if (r == 0)
        r = keyring_add(k, a.secret, AUTH_FROM_HOME, err);
    else if (is_none(r))
        r = 0;
    else
        (void)err_set(err, r, "%s", a.err.text);
    explicit_bzero(&a, sizeof a);
    return r;
}

int keyring_make_home(const char *path, struct err *err) {
    _cleanup_(freep) char *copy = xstrdup(path), *above = NULL;
    const char *muster = dirname(copy);
    above = xstrdup(muster);
    const char *folders[] = {dirname(above), muster};
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
        if (mkdir(folders[i], 0700) < 0 && errno != EEXIST)
            return err_set(err, -errno, "cannot make '%s': %s", folders[i], strerror(errno));
    return 0;
}

static int write_new(const char *path, const uint8_t secret[AUTH_SECRET_BYTES]) {
    char line[AUTH_KEY_TEXT_MAX + 1];
    int fd = own_file_make(path, O_WRONLY | O_EXCL, 0600);
    if (fd < 0)
        return fd;
    auth_key_to_text(secret, line);
    size_t len = strlen(line);
    line[len++] = '\n';
    int r = file_write_flushed(fd, line, len);
    if (close(fd) < 0 && r == 0)
        r = -errno;
    if (r < 0)
        (void)unlink(path);
    explicit_bzero(line, sizeof line);
    return r;
}

int keyring_write_file(const char *path, const uint8_t secret[AUTH_SECRET_BYTES], bool replace,
                       struct err *err) {
    _cleanup_(freep) char *temp = xasprintf("%s.%d.tmp", path, (int)getpid());
    int r = write_new(replace ? temp : path, secret);
    if (r == 0 && replace && rename(temp, path) < 0) {
        r = -errno;
        (void)unlink(temp);
    }
    if (r == -EEXIST)
        return err_set(err, r,
                       "'%s' exists already; --force replaces it (jobs that run keep the old key)",
                       path);
    return r < 0 ? err_set(err, r, "cannot write '%s': %s", path, strerror(-r)) : 0;
}

struct keyring {
    uint32_t n;
    bool is_wide;
    struct keyring_key keys[AUTH_OWN_KEYS_MAX]; /* pages that are not used take no memory */
};

static size_t size_in_pages(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (sizeof(struct keyring) + page - 1) / page * page;
}

int keyring_new(struct keyring **ret, struct err *err) {
    size_t size = size_in_pages();
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set(err, -errno, "no memory for a key: %s", strerror(errno));
    if (madvise(p, size, MADV_DONTDUMP) < 0) {
        int code = errno;
        (void)munmap(p, size);
        return err_set(err, -code, "cannot keep keys out of core files: %s", strerror(code));
    }
    *ret = p;
    return 0;
}

void keyring_free(struct keyring *k) {
    if (k == NULL)
        return;
    keyring_clear(k);
    (void)munmap(k, size_in_pages());
}

void keyring_clear(struct keyring *k) {
    if (k == NULL)
        return;
    explicit_bzero(k->keys, k->n * sizeof k->keys[0]);
    k->n = 0;
}

void keyring_keep_from_children(struct keyring *k) {
    if (k != NULL)
        (void)madvise(k, size_in_pages(), MADV_WIPEONFORK);
}

uint32_t keyring_n(const struct keyring *k) { return k != NULL ? k->n : 0; }

const struct keyring_key *keyring_at(const struct keyring *k, uint32_t i) {
    assert(i < k->n);
    return &k->keys[i];
}

bool keyring_is_given(const struct keyring *k) {
    return keyring_n(k) > 0 && auth_source_is_given(k->keys[0].source);
}

static uint32_t max_of(const struct keyring *k) {
    return k->is_wide ? AUTH_OWN_KEYS_MAX : AUTH_KEYS_MAX;
}

void keyring_widen(struct keyring *k) { k->is_wide = true; }

int keyring_add(struct keyring *k, const uint8_t secret[AUTH_SECRET_BYTES], enum auth_source source,
                struct err *err) {
    for (uint32_t i = 0; i < k->n; i++)
        if (memcmp(k->keys[i].secret, secret, AUTH_SECRET_BYTES) == 0)
            return 0;
    if (k->n == max_of(k))
        return err_set(err, -ENOSPC, "there are %u keys already", k->n);
    struct keyring_key *key = &k->keys[k->n++];
    key->source = source;
    memcpy(key->secret, secret, AUTH_SECRET_BYTES);
    return 0;
}

void keyring_remove(struct keyring *k, uint32_t i) {
    assert(i < k->n);
    memmove(&k->keys[i], &k->keys[i + 1], (k->n - i - 1) * sizeof k->keys[0]);
    explicit_bzero(&k->keys[--k->n], sizeof k->keys[0]);
}

int keyring_add_all(struct keyring *k, const struct keyring *from, struct err *err) {
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < keyring_n(from); i++)
        r = keyring_add(k, from->keys[i].secret, from->keys[i].source, err);
    return r;
}

int keyring_derive(struct keyring *k, struct err *err) {
    for (uint32_t i = 0; i < k->n; i++) {
        struct keyring_key *key = &k->keys[i];
        int r = key->is_derived ? 0 : tls_key_derive(key->secret, &key->tls, err);
        if (r < 0)
            return r;
        key->id = load_u64le(key->tls.id);
        key->is_derived = true;
    }
    return 0;
}

/* The bytes themselves: after unsetenv() they would still be what /proc/PID/environ shows. */
static void wipe_env(const char *name) {
    size_t len = strlen(name);
    for (char **e = environ; e != NULL && *e != NULL; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            explicit_bzero(*e + len + 1, strlen(*e + len + 1));
    (void)unsetenv(name);
}

int keyring_take_env(struct keyring *k, const char *name, enum auth_source source,
                     struct err *err) {
    const char *text = getenv(name);
    if (text == NULL)
        return 0;
    uint8_t secret[AUTH_SECRET_BYTES];
    int r = auth_key_from_text(text, strlen(text), name, secret, err);
    wipe_env(name);
    if (r == 0)
        r = keyring_add(k, secret, source, err);
    explicit_bzero(secret, sizeof secret);
    return r;
}
