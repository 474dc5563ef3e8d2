#include "rendezvous/auth/keyring_io.h"

#include <sys/mman.h>

#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"
#include "rig/tree.h"

#define TEXT "muster-key-1:00017f80ff0000000000000000000000000000000000000000000000000000a5"
#define TIMEOUT_NS (20 * NS_PER_S)

static const uint8_t secret[AUTH_SECRET_BYTES] = {0, 1, 0x7f, 0x80, 0xff, [31] = 0xa5};
static struct tree tree;
static char path[160];
static struct keyring *ring;
static struct err err;

static void begin(void) {
    tree_new(&tree);
    (void)snprintf(path, sizeof path, "%s/key", tree.root);
    cr_assert_eq(setenv("HOME", tree.root, 1), 0);
    (void)unsetenv("XDG_CONFIG_HOME");
    (void)unsetenv("MUSTER_KEY");
    (void)unsetenv("MUSTER_KEY_FILE");
    cr_assert_eq(keyring_new(&ring, NULL), 0);
}

static void finish(void) {
    keyring_free(ring);
    tree_remove(&tree);
}
TestSuite(keyring_io, .init = begin, .fini = finish);

static void put(const char *where, const char *text, mode_t mode) {
    (void)unlink(where);
    int fd = open(where, O_WRONLY | O_CREAT | O_EXCL, 0600);
    cr_assert_geq(fd, 0, "%s", where);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    cr_assert_eq(fchmod(fd, mode), 0);
    (void)close(fd);
}

static void loads(enum auth_source source) {
    cr_assert_eq(keyring_load_file(ring, path, source, &err), 0, "%s", err.text);
    cr_assert_eq(keyring_n(ring), 1);
    cr_assert_arr_eq(keyring_at(ring, 0)->secret, secret, sizeof secret);
    cr_assert_eq(keyring_at(ring, 0)->source, source);
}

/* The sentence, where '@' is the path. */
static void refuses(int code, const char *why) {
    _cleanup_(strbuf_fini) struct strbuf whole = {0};
    for (; *why != '\0'; why++)
        if (*why == '@')
            strbuf_printf(&whole, "'%s'", path);
        else
            strbuf_add_char(&whole, *why);
    cr_assert_eq(keyring_load_file(ring, path, AUTH_FROM_FILE, &err), code, "%d %s", err.code, err.text);
    cr_assert_str_eq(err.text, strbuf_text(&whole));
    cr_assert_eq(keyring_n(ring), 0);
}

Test(keyring_io, a_file_of_this_user_only_is_read) {
    put(path, TEXT "\n", 0600);
    loads(AUTH_FROM_FILE);
    put(path, TEXT "\n", 0400);
    loads(AUTH_FROM_FILE);
}

Test(keyring_io, a_file_that_others_may_read_is_refused) {
    static const mode_t modes[] = {0644, 0604, 0620};
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        put(path, TEXT "\n", modes[i]);
        refuses(-EPERM, rig_text("other users have access to the key file @ (mode %04o): chmod 600 @", modes[i]));
    }
}

Test(keyring_io, what_is_no_key_is_refused) {
    refuses(-ENOENT, "cannot read the key file @: No such file or directory");
    put(path, "", 0600);
    refuses(-EINVAL, "the key file @ is empty; \"muster keygen\" writes a key");
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    refuses(-EINVAL, "the key file @ is not a regular file");
    (void)unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    refuses(-EINVAL, "the key file @ is not a regular file");
    cr_assert_eq(rmdir(path), 0);
    _cleanup_(freep) char *much = xmalloc(AUTH_KEY_FILE_MAX + 1);
    memset(much, 'x', AUTH_KEY_FILE_MAX);
    much[AUTH_KEY_FILE_MAX] = '\0';
    put(path, much, 0600);
    refuses(-EFBIG, "the key file @ is too long for a key, which is one line");
}

Test(keyring_io, a_file_of_another_user_is_refused) {
    if (geteuid() != 0)
        cr_skip_test("needs root");
    put(path, TEXT "\n", 0600);
    cr_assert_eq(chown(path, 1001, 1001), 0);
    refuses(-EPERM, "the key file @ belongs to another user (uid 1001): copy it to a file of your own");
}

/* As the kubelet leaves a Secret for a user of a pod: root's, and its group reads it. */
Test(keyring_io, a_file_of_root_may_be_its_groups) {
    if (geteuid() != 0)
        cr_skip_test("needs root");
    put(path, TEXT "\n", 0460);
    cr_assert_eq(chown(path, 0, 1001), 0);
    refuses(-EPERM, "other users have access to the key file @ (mode 0460): chmod 600 @");
    cr_assert_eq(chmod(path, 0440), 0);
    loads(AUTH_FROM_FILE);
}

/* As a Secret in a pod is mounted. */
Test(keyring_io, a_symlink_is_followed_only_if_the_user_names_it) {
    const char *other = rig_text("%s/other", tree.root);
    put(other, TEXT "\n", 0600);
    cr_assert_eq(symlink(other, path), 0);
    cr_assert_eq(keyring_load_file(ring, path, AUTH_FROM_HOME, &err), -ELOOP);
    assert_has(err.text, "; it may not be a symlink");
    loads(AUTH_FROM_FILE);
}

static void put_home(const char *text, mode_t mode) {
    char home[PATH_MAX];
    cr_assert_eq(keyring_home_path(home, NULL), 0);
    cr_assert_eq(keyring_make_home(home, NULL), 0);
    put(home, text, mode);
}

Test(keyring_io, the_home_has_one_or_none) {
    cr_assert_eq(keyring_load_home(ring, TIMEOUT_NS, &err), 0, "%s", err.text);
    cr_assert_eq(keyring_n(ring), 0);
    put_home(TEXT "\n", 0600);
    cr_assert_eq(keyring_load_home(ring, TIMEOUT_NS, &err), 0, "%s", err.text);
    cr_assert_eq(keyring_n(ring), 1);
    cr_assert_eq(keyring_at(ring, 0)->source, AUTH_FROM_HOME);
    cr_assert_not(keyring_is_given(ring));
}

Test(keyring_io, a_bad_key_at_home_is_an_error_and_not_nothing) {
    put_home("muster-key-1:00\n", 0600);
    cr_assert_eq(keyring_load_home(ring, TIMEOUT_NS, &err), -EINVAL);
    assert_has(err.text, "is too short");
    put_home(TEXT "\n", 0644);
    cr_assert_eq(keyring_load_home(ring, TIMEOUT_NS, &err), -EPERM);
    assert_has(err.text, "chmod 600");
}

Test(keyring_io, config_home_goes_before_home) {
    char home[PATH_MAX];
    const char *want = rig_text("%s/.config/muster/key", tree.root);
    cr_assert_eq(keyring_home_path(home, NULL), 0);
    cr_assert_str_eq(home, want);
    cr_assert_eq(setenv("XDG_CONFIG_HOME", "/x", 1), 0);
    cr_assert_eq(keyring_home_path(home, NULL), 0);
    cr_assert_str_eq(home, "/x/muster/key");
    cr_assert_eq(setenv("XDG_CONFIG_HOME", "relative", 1), 0);
    cr_assert_eq(keyring_home_path(home, NULL), 0);
    cr_assert_str_eq(home, want);
    cr_assert_eq(unsetenv("HOME"), 0);
    cr_assert_eq(keyring_home_path(home, &err), -ENOENT);
    cr_assert_str_eq(err.text, "HOME is not set: name a file");
    cr_assert_eq(keyring_load_home(ring, TIMEOUT_NS, &err), 0, "nothing is found then");
}

Test(keyring_io, the_file_of_the_option_goes_before_that_of_the_environment) {
    put(path, TEXT "\n", 0600);
    cr_assert_eq(setenv("MUSTER_KEY_FILE", "/nowhere", 1), 0);
    cr_assert_eq(keyring_load_given(ring, path, &err), 0, "%s", err.text);
    cr_assert(keyring_is_given(ring));
    keyring_remove(ring, 0);
    cr_assert_eq(keyring_load_given(ring, NULL, &err), -ENOENT);
    cr_assert_str_eq(err.text, "MUSTER_KEY_FILE: cannot read the key file '/nowhere': No such file or directory");
    cr_assert_eq(keyring_load_given(ring, "", &err), -EINVAL);
    cr_assert_str_eq(err.text, "--key-file is empty: name a file that \"muster keygen\" has written");
    cr_assert_eq(unsetenv("MUSTER_KEY_FILE"), 0);
    cr_assert_eq(keyring_load_given(ring, NULL, &err), 0);
    cr_assert_eq(keyring_n(ring), 0);
}

Test(keyring_io, one_key_is_given_not_two) {
    put(path, TEXT "\n", 0600);
    cr_assert_eq(setenv("MUSTER_KEY", TEXT, 1), 0);
    cr_assert_eq(keyring_take_env(ring, "MUSTER_KEY", AUTH_FROM_ENV, &err), 0, "%s", err.text);
    cr_assert_eq(keyring_load_given(ring, path, &err), -EINVAL);
    cr_assert_str_eq(err.text, "--key-file and MUSTER_KEY both give a key: leave one out");
}

Test(keyring_io, the_key_is_wiped_out_of_the_environment) {
    cr_assert_eq(setenv("MUSTER_KEY", TEXT, 1), 0);
    const char *bytes = getenv("MUSTER_KEY");
    cr_assert_eq(keyring_take_env(ring, "MUSTER_KEY", AUTH_FROM_ENV, &err), 0, "%s", err.text);
    cr_assert_null(getenv("MUSTER_KEY"));
    for (size_t i = 0; i < sizeof TEXT; i++)
        cr_assert_eq(bytes[i], 0, "byte %zu is still there", i);
    cr_assert_eq(keyring_n(ring), 1);
    cr_assert_eq(keyring_at(ring, 0)->source, AUTH_FROM_ENV);
    cr_assert_eq(keyring_take_env(ring, "MUSTER_KEY", AUTH_FROM_ENV, &err), 0, "there is none any more");
}

Test(keyring_io, what_is_no_key_is_wiped_too) {
    cr_assert_eq(setenv("MUSTER_KEY", "muster-key-1:00", 1), 0);
    cr_assert_eq(keyring_take_env(ring, "MUSTER_KEY", AUTH_FROM_ENV, &err), -EINVAL);
    cr_assert_str_eq(err.text, "MUSTER_KEY is too short for a key: it has 2 of 64 digits; copy the whole line");
    cr_assert_null(getenv("MUSTER_KEY"));
    cr_assert_eq(setenv("MUSTER_KEY", "", 1), 0);
    cr_assert_eq(keyring_take_env(ring, "MUSTER_KEY", AUTH_FROM_ENV, &err), -EINVAL, "a secret that is missing");
}

Test(keyring_io, holds_each_key_once) {
    uint8_t s[AUTH_SECRET_BYTES] = {0};
    for (uint8_t i = 0; i < AUTH_KEYS_MAX; i++) {
        s[0] = i;
        cr_assert_eq(keyring_add(ring, s, AUTH_FROM_MUNGE, &err), 0);
        cr_assert_eq(keyring_add(ring, s, AUTH_FROM_HOME, &err), 0);
    }
    cr_assert_eq(keyring_n(ring), AUTH_KEYS_MAX);
    s[0] = 99;
    cr_assert_eq(keyring_add(ring, s, AUTH_FROM_HOME, &err), -ENOSPC);
    keyring_remove(ring, 2);
    cr_assert_eq(keyring_n(ring), AUTH_KEYS_MAX - 1);
    cr_assert_eq(keyring_at(ring, 2)->secret[0], 3);
    _cleanup_(keyring_freep) struct keyring *copy = NULL;
    cr_assert_eq(keyring_new(&copy, &err), 0);
    cr_assert_eq(keyring_add_all(copy, ring, &err), 0);
    cr_assert_eq(keyring_n(copy), AUTH_KEYS_MAX - 1);
    cr_assert_eq(keyring_n(NULL), 0);
    cr_assert_eq(keyring_add_all(copy, NULL, &err), 0);
}

Test(keyring_io, an_operators_takes_the_keys_of_many_jobs) {
    _cleanup_(keyring_freep) struct keyring *wide = NULL;
    uint8_t s[AUTH_SECRET_BYTES] = {0};
    cr_assert_eq(keyring_new(&wide, &err), 0);
    keyring_widen(wide);
    for (unsigned i = 0; i < AUTH_OWN_KEYS_MAX; i++) {
        s[0] = (uint8_t)i;
        cr_assert_eq(keyring_add(wide, s, AUTH_FROM_RUN_DIR, &err), 0, "%u: %s", i, err.text);
    }
    s[1] = 1;
    cr_assert_eq(keyring_add(wide, s, AUTH_FROM_RUN_DIR, &err), -ENOSPC);
    cr_assert_eq(keyring_derive(wide, &err), 0, "%s", err.text);
    cr_assert_neq(keyring_at(wide, AUTH_OWN_KEYS_MAX - 1)->id, 0);
    keyring_clear(wide);
    cr_assert_eq(keyring_n(wide), 0);
    cr_assert_eq(keyring_add(wide, s, AUTH_FROM_RUN_DIR, &err), 0);
}

Test(keyring_io, is_left_out_of_core_files) {
    char line[512];
    bool here = false, found = false;
    FILE *f = fopen("/proc/self/smaps", "re");
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = from <= (uintptr_t)ring && (uintptr_t)ring < to;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, " dd") != NULL;
    }
    (void)fclose(f);
    cr_assert(found, "the page has no MADV_DONTDUMP");
}

Test(keyring_io, a_new_file_is_this_users_only) {
    struct stat st;
    mode_t old = umask(0);
    cr_assert_eq(keyring_write_file(path, secret, false, &err), 0, "%s", err.text);
    (void)umask(old);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600);
    loads(AUTH_FROM_FILE);
    cr_assert_eq(keyring_write_file(path, secret, false, &err), -EEXIST);
    assert_has(err.text, "exists already; --force replaces it");
    uint8_t other[AUTH_SECRET_BYTES];
    random_bytes(other, sizeof other);
    cr_assert_eq(keyring_write_file(path, other, true, &err), 0, "%s", err.text);
    cr_assert_eq(keyring_load_file(ring, path, AUTH_FROM_FILE, &err), 0);
    cr_assert_eq(keyring_n(ring), 2);
    cr_assert_arr_eq(keyring_at(ring, 1)->secret, other, sizeof other);
}

Test(keyring_io, the_folders_of_the_home_are_made) {
    char home[PATH_MAX];
    struct stat st;
    cr_assert_eq(keyring_home_path(home, NULL), 0);
    cr_assert_eq(keyring_make_home(home, &err), 0, "%s", err.text);
    cr_assert_eq(keyring_make_home(home, &err), 0, "it may be there");
    cr_assert_eq(stat(rig_text("%s/.config/muster", tree.root), &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0700);
}
