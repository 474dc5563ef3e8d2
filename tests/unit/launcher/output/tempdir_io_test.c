#include "launcher/output/tempdir_io.h"

#include <sched.h>
#include <sys/mount.h>

#include "io/clock.h"
#include "launcher/output/logdir_io.h"
#include "rig/unit.h"

static char base[64];

static void setup(void) {
    (void)snprintf(base, sizeof base, "/tmp/tempdir-test-XXXXXX");
    cr_assert_not_null(mkdtemp(base));
    cr_assert_eq(setenv("TMPDIR", base, 1), 0);
}
static void teardown(void) { cr_assert(tempdir_remove(base)); }
TestSuite(tempdir_io, .init = setup, .fini = teardown);

static uint32_t sweep(void) { return tempdir_sweep(clock_now_ns() + 10 * NS_PER_S); }

static bool is_there(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static void add_file(const char *dir, const char *name) {
    FILE *f = fopen(rig_text("%s/%s", dir, name), "we");
    cr_assert_not_null(f);
    cr_assert_eq(fclose(f), 0);
}

/* Makes /tmp, and /dev/shm too, a folder that can't be written, for this process alone. False: not possible here. */
static bool hide(bool memory_too) {
    (void)rmdir(base); /* teardown() could not see it */
    return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/tmp", "tmpfs", MS_RDONLY, NULL) == 0 &&
           (memory_too ? mount("none", "/dev/shm", "tmpfs", MS_RDONLY, NULL)
                       : mount("none", "/dev/shm", "tmpfs", 0, "mode=1777,size=1m")) == 0;
}

static void expect_made_in(enum tempdir_use use, const char *place) {
    char *dir = NULL;
    int claim;
    struct err err = {0};
    cr_assert_eq(tempdir_make(use, &dir, &claim, &err), 0, "%s", err.text);
    cr_expect_eq(strncmp(dir, place, strlen(place)), 0, "%s is not in %s", dir, place);
    (void)close(claim);
    cr_expect(tempdir_remove(dir));
    free(dir);
}

Test(tempdir_io, the_next_place_is_taken_where_the_first_is_of_no_use) {
    cr_assert_eq(setenv("TMPDIR", "/nonexistent", 1), 0);
    expect_made_in(TEMPDIR_SMALL, "/tmp/muster-");
    expect_made_in(TEMPDIR_LARGE, "/tmp/muster-");
    cr_assert_eq(setenv("TMPDIR", "", 1), 0);
    expect_made_in(TEMPDIR_SMALL, "/tmp/muster-");
}

/* A container with a root that is read-only. */
Test(tempdir_io, memory_is_for_small_files) {
    char *dir = NULL;
    int claim;
    struct err err = {0};
    if (!hide(false))
        cr_skip_test("no mount namespace can be made here");
    cr_assert_eq(setenv("TMPDIR", "/nonexistent", 1), 0);
    expect_made_in(TEMPDIR_SMALL, "/dev/shm/muster-");
    cr_expect_eq(tempdir_make(TEMPDIR_LARGE, &dir, &claim, &err), -ENOENT);
    cr_expect_str_eq(err.text, "can't make a temporary folder (/nonexistent: No such file or directory, /tmp: "
                               "Read-only file system)");
    cr_assert_eq(setenv("TMPDIR", "/dev/shm", 1), 0);
    expect_made_in(TEMPDIR_LARGE, "/dev/shm/muster-"); /* as the user wants it */
    cr_assert_eq(tempdir_make(TEMPDIR_SMALL, &dir, &claim, &err), 0);
    cr_assert_eq(unsetenv("TMPDIR"), 0);
    cr_expect_eq(sweep(), 0);
    (void)close(claim); /* what was left there is found */
    cr_expect_eq(sweep(), 1);
    cr_expect_not(is_there(dir));
    free(dir);
}

Test(tempdir_io, without_any_place_there_is_no_folder) {
    char *dir = NULL;
    int claim;
    struct err err = {0};
    if (!hide(true))
        cr_skip_test("no mount namespace can be made here");
    cr_assert_eq(unsetenv("TMPDIR"), 0);
    cr_expect_eq(tempdir_make(TEMPDIR_SMALL, &dir, &claim, &err), -EROFS);
    cr_expect_str_eq(err.text, "can't make a temporary folder (/tmp: Read-only file system, /dev/shm: Read-only "
                               "file system)");
    cr_expect_eq(sweep(), 0);
}

/* Makes a temporary folder, with a tree in it, in a child that waits to be killed. */
static pid_t make_in_child(char path[256]) {
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *dir = NULL, *node = NULL;
        int claim;
        if (tempdir_make(TEMPDIR_SMALL, &dir, &claim, NULL) == 0 &&
            logdir_make_generation(dir, "1.1", "n", 0600, &node, NULL) == 0)
            (void)!write(fds[1], dir, strlen(dir) + 1);
        for (;;)
            (void)pause();
    }
    (void)close(fds[1]);
    cr_assert_gt(read(fds[0], path, 256), 0);
    (void)close(fds[0]);
    return pid;
}

Test(tempdir_io, what_a_killed_process_left_goes_and_what_a_living_one_has_stays) {
    char left[256], lives[256], link[512];
    pid_t gone = make_in_child(left), other = make_in_child(lives);
    const char *outside = rig_text("%s/outside", base);
    cr_assert_eq(mkdir(outside, 0755), 0);
    add_file(outside, "file");
    (void)snprintf(link, sizeof link, "%s/link", left);
    cr_assert_eq(symlink(outside, link), 0);
    cr_assert_eq(sweep(), 0, "both live");
    (void)kill(gone, SIGKILL);
    (void)waitpid(gone, NULL, 0);
    cr_assert_eq(sweep(), 1);
    cr_assert_not(is_there(left));
    cr_assert(is_there(lives));
    (void)snprintf(link, sizeof link, "%s/file", outside);
    cr_assert(is_there(link), "what a link names stays");
    (void)kill(other, SIGKILL);
    (void)waitpid(other, NULL, 0);
    cr_assert_eq(sweep(), 1);
}

Test(tempdir_io, many_short_looks_do_what_one_long_look_does) {
    char left[256], name[16];
    pid_t gone = make_in_child(left);
    for (int i = 0; i < 20; i++) {
        (void)snprintf(name, sizeof name, "%d", i);
        add_file(left, name);
    }
    (void)kill(gone, SIGKILL);
    (void)waitpid(gone, NULL, 0);
    int looks = 0;
    for (uint32_t n = 0; n == 0; looks++) {
        cr_assert_lt(looks, 30);
        n = tempdir_sweep(clock_now_ns()); /* no time is left */
    }
    cr_assert_gt(looks, 20, "one thing in each");
    cr_assert_not(is_there(left));
}

Test(tempdir_io, what_the_user_was_told_of_stays) {
    char *dir = NULL;
    int claim;
    cr_assert_eq(tempdir_make(TEMPDIR_SMALL, &dir, &claim, NULL), 0);
    add_file(dir, "error.json");
    tempdir_keep(dir);
    (void)close(claim);
    cr_assert_eq(sweep(), 0);
    cr_assert(is_there(dir));
    free(dir);
}

#define NOBODY 65534

/* As a user for whom a folder's mode counts. */
static int sweep_read_only(void) {
    char *dir = NULL;
    int claim;
    if (geteuid() == 0 && (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
        return 1;
    if (tempdir_make(TEMPDIR_SMALL, &dir, &claim, NULL) < 0)
        return 2;
    const char *path = rig_text("%.200s", dir);
    const char *inner = rig_text("%s/cache", path);
    if (mkdir(inner, 0700) < 0)
        return 3;
    add_file(inner, "file");
    if (chmod(inner, 0500) < 0)
        return 4;
    (void)close(claim);
    return sweep() == 1 && !is_there(path) ? 0 : 5;
}

Test(tempdir_io, a_folder_that_its_owner_may_not_change_goes_too) {
    cr_assert(geteuid() != 0 || chown(base, NOBODY, NOBODY) == 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(sweep_read_only());
    cr_assert_eq(rig_status(pid), 0);
}

Test(tempdir_io, what_is_not_known_stays) {
    static const char *const words[] = {"", "another boot\n"};
    char path[256], owner[300];
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        (void)snprintf(path, sizeof path, "%s/muster-abcde%zu", base, i);
        cr_assert_eq(mkdir(path, 0700), 0);
        (void)snprintf(owner, sizeof owner, "%s/.muster-owner", path);
        FILE *f = fopen(owner, "we");
        cr_assert(f != NULL && fputs(words[i], f) >= 0 && fclose(f) == 0);
        cr_assert_eq(sweep(), 0);
        cr_assert(is_there(owner));
    }
}

Test(tempdir_io, a_folder_is_removed_whole_without_what_its_links_name) {
    const char *dir = rig_text("%s/run", base);
    const char *inside = rig_text("%s/1.1", dir);
    const char *link = rig_text("%s/link", dir);
    const char *outside = rig_text("%s/outside", base);
    cr_assert(mkdir(dir, 0700) == 0 && mkdir(inside, 0700) == 0 && mkdir(outside, 0700) == 0);
    cr_assert_eq(symlink(outside, link), 0);
    cr_assert(tempdir_remove(dir));
    cr_assert_eq(access(dir, F_OK), -1);
    cr_assert_eq(access(outside, F_OK), 0);
    cr_assert(tempdir_remove(dir), "gone already");
}
