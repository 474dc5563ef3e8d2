/* The job's key in its folder. */
#include "arbiter_dir_rig.h"
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"
#include "rig/unit.h"

#define TIMEOUT_NS (20 * NS_PER_S)
#define MAKERS 16
#define KEY_TEST(name) Test(arbiter_dir_key, name, .init = rig_begin, .fini = rig_finish)

static int ask(bool read_only, uint8_t ret[AUTH_SECRET_BYTES], struct err *err) {
    return arbiter_dir_key(rig_dir, RIG_RUN_ID, read_only, TIMEOUT_NS, ret, err);
}

KEY_TEST(the_first_makes_it_and_all_have_the_same) {
    uint8_t one[AUTH_SECRET_BYTES] = {0}, two[AUTH_SECRET_BYTES] = {0}, none[AUTH_SECRET_BYTES] = {0};
    struct err err = {0};
    struct stat st;
    cr_assert_eq(ask(true, one, &err), ARBITER_DIR_E_NO_KEY, "%s", err.text);
    cr_assert_not(rig_there("key"));
    cr_assert_eq(ask(false, one, &err), 0, "%s", err.text);
    cr_assert_neq(memcmp(one, none, sizeof one), 0);
    cr_assert_eq(stat(rig_path("key"), &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600);
    cr_assert_eq(st.st_nlink, 1, "no other name is left");
    cr_assert_eq(ask(false, two, &err), 0, "%s", err.text);
    cr_assert_arr_eq(one, two, sizeof one);
    memset(two, 0, sizeof two);
    cr_assert_eq(ask(true, two, &err), 0, "%s", err.text);
    cr_assert_arr_eq(one, two, sizeof one);
}

KEY_TEST(another_job_has_another) {
    uint8_t one[AUTH_SECRET_BYTES], two[AUTH_SECRET_BYTES];
    cr_assert_eq(ask(false, one, NULL), 0);
    cr_assert_eq(arbiter_dir_key(rig_dir, "job 8", false, TIMEOUT_NS, two, NULL), 0);
    cr_assert_neq(memcmp(one, two, sizeof one), 0);
}

/* In a process of its own, which tells it. */
static pid_t make(int fd) {
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct arbiter_folder f;
    uint8_t key[AUTH_SECRET_BYTES];
    arbiter_folder_init(&f, rig_dir, RIG_RUN_ID, false);
    bool ok = arbiter_folder_open(&f, true, NULL) == 0 && arbiter_folder_key(&f, key, NULL) == 0 &&
              write(fd, key, sizeof key) == (ssize_t)sizeof key;
    _exit(ok ? 0 : 1);
}

KEY_TEST(of_many_who_make_it_at_once_one_wins) {
    int fds[2];
    pid_t pids[MAKERS];
    uint8_t keys[MAKERS][AUTH_SECRET_BYTES];
    cr_assert_eq(pipe(fds), 0);
    for (unsigned i = 0; i < MAKERS; i++)
        pids[i] = make(fds[1]);
    for (unsigned i = 0; i < MAKERS; i++) {
        cr_assert_eq(rig_status(pids[i]), 0);
        cr_assert_eq(read(fds[0], keys[i], sizeof keys[i]), (ssize_t)sizeof keys[i]);
        cr_assert_arr_eq(keys[i], keys[0], sizeof keys[0]);
    }
    (void)close(fds[0]);
    (void)close(fds[1]);
}

KEY_TEST(what_is_no_key_is_an_error) {
    uint8_t key[AUTH_SECRET_BYTES];
    struct err err = {0};
    cr_assert_eq(ask(false, key, &err), 0);
    rig_write("key", "hello\n");
    cr_assert_eq(ask(false, key, &err), -EINVAL);
    assert_has(err.text, RIG_FOLDER "/key is not a key of muster");
}

KEY_TEST(a_key_that_others_may_read_or_have_made_is_refused) {
    uint8_t key[AUTH_SECRET_BYTES];
    struct err err = {0};
    cr_assert_eq(ask(false, key, &err), 0);
    cr_assert_eq(chmod(rig_path("key"), 0640), 0);
    cr_assert_eq(ask(false, key, &err), -EPERM);
    assert_has(err.text, RIG_FOLDER "/key (mode 0640): remove it");
    cr_assert_eq(chmod(rig_path("key"), 0400), 0);
    cr_assert_eq(ask(true, key, &err), 0);
    if (geteuid() != 0)
        return;
    cr_assert_eq(chown(rig_path("key"), 65534, (gid_t)-1), 0);
    cr_assert_eq(ask(true, key, &err), -EPERM);
    assert_has(err.text, "belongs to another user (uid 65534)");
}

KEY_TEST(a_folder_of_others_is_refused) {
    uint8_t key[AUTH_SECRET_BYTES];
    struct err err = {0};
    cr_assert_eq(chmod(rig_dir, 0777), 0);
    cr_assert_eq(ask(false, key, &err), -EPERM);
    assert_has(err.text, "other users may write in");
}
