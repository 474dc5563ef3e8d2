/* The directory that the arbiter works in: whose it may be, and what a full disk does. */
#include "rendezvous/arbiter/dir/arbiter_folder_io.h"

#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "../../../skip.h"
#include "arbiter_dir_rig.h"
#include "rig/unit.h"

#define A 11
#define B 12
#define NOBODY 65534

#define FOLDER_TEST(name) Test(arbiter_folder_io, name, .init = rig_begin, .fini = rig_finish)

static struct arbiter *arbiter_at(const char *path) {
    struct arbiter_dir_config config = {.path = path, .run_id = RIG_RUN_ID};
    struct arbiter *a;
    cr_assert_eq(arbiter_dir_new(rig_loop, &config, &a, NULL), 0);
    return a;
}

static void assert_usable(const char *path) {
    struct arbiter *a = arbiter_at(path);
    struct arbiter_answer answer = rig_claim(a, 1, A);
    cr_assert_eq(answer.result, ARBITER_OK, "%s", answer.text);
    arbiter_free(a);
}

static void assert_refused(const char *path, const char *words) {
    struct arbiter *a = arbiter_at(path);
    struct arbiter_answer answer = rig_claim(a, 1, A);
    cr_assert_eq(answer.result, ARBITER_UNREACHABLE);
    cr_assert_not_null(strstr(answer.text, words), "'%s' is not in: %s", words, answer.text);
    assert_has(answer.text, path);
    arbiter_free(a);
}

static void become_nobody(void) {
    cr_assert_eq(chown(rig_dir, NOBODY, NOBODY), 0);
    cr_assert_eq(seteuid(NOBODY), 0);
}

FOLDER_TEST(a_missing_directory_is_made_if_its_parent_is_there) {
    const char *path = rig_text("%s/new", rig_dir);
    const char *deeper = rig_text("%s/and/deeper", path);
    assert_refused(deeper, "the directory above it must be there");
    assert_usable(path);
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0700);
    assert_refused(deeper, "the directory above it must be there");
}

FOLDER_TEST(a_file_is_no_directory) {
    const char *path = rig_text("%s/file", rig_dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    cr_assert_geq(fd, 0);
    (void)close(fd);
    assert_refused(path, "Not a directory");
}

FOLDER_TEST(a_directory_where_others_may_write_is_refused) {
    static const mode_t open_modes[] = {0777, 0775, 0770, 0707, 0702, 02770};
    static const mode_t fine_modes[] = {0700, 0755, 0750, 01777, 01770, 03777};
    for (size_t i = 0; i < ARRAY_SIZE(open_modes); i++) {
        cr_assert_eq(chmod(rig_dir, open_modes[i]), 0);
        assert_refused(rig_dir, "other users may write");
    }
    for (size_t i = 0; i < ARRAY_SIZE(fine_modes); i++) {
        cr_assert_eq(chmod(rig_dir, fine_modes[i]), 0);
        assert_usable(rig_dir);
    }
}

FOLDER_TEST(the_jobs_own_folder_is_for_nobody_else) {
    assert_usable(rig_dir);
    static const mode_t modes[] = {0701, 0710, 0740, 0777, 01777};
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        cr_assert_eq(chmod(rig_path(""), modes[i]), 0);
        assert_refused(rig_dir, "is open to other users");
    }
    cr_assert_eq(chmod(rig_path(""), 0700), 0);
    assert_usable(rig_dir);
}

FOLDER_TEST(a_link_in_the_folders_place_is_not_followed) {
    const char *path = rig_text("%s/elsewhere", rig_dir);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(symlink(path, rig_text("%s/%s", rig_dir, RIG_FOLDER)), 0);
    assert_refused(rig_dir, "cannot open");
}

FOLDER_TEST(another_users_directory_is_refused) {
    if (geteuid() != 0)
        SKIP_AFTER(rig_finish, "only root can give files away");
    assert_usable(rig_dir);
    cr_assert_eq(chown(rig_path(""), NOBODY, NOBODY), 0);
    assert_refused(rig_dir, "belongs to another user (uid 65534)");
    cr_assert_eq(chown(rig_path(""), 0, 0), 0);
    cr_assert_eq(chown(rig_dir, NOBODY, NOBODY), 0);
    assert_refused(rig_dir, "belongs to another user (uid 65534)");
    cr_assert_eq(chown(rig_dir, 0, 0), 0);
    assert_usable(rig_dir);
}

/* In memory: TMPDIR may be root's alone. */
Test(arbiter_folder_io, roots_directory_will_do_if_we_may_write_there, .init = rig_begin_in_memory,
     .fini = rig_finish) {
    if (geteuid() != 0)
        SKIP_AFTER(rig_finish, "only root can become another");
    cr_assert_eq(chmod(rig_dir, 01777), 0);
    cr_assert_eq(seteuid(NOBODY), 0);
    assert_usable(rig_dir);
    cr_assert_eq(seteuid(0), 0);
}

/* As root sees an NFS server that takes it for nobody: what it makes there belongs to another. */
FOLDER_TEST(a_squashed_root_is_still_itself) {
    if (geteuid() != 0)
        SKIP_AFTER(rig_finish, "only root is squashed");
    cr_assert_eq(chown(rig_dir, NOBODY, NOBODY), 0);
    (void)setfsuid(NOBODY);
    struct arbiter *a = arbiter_at(rig_dir);
    cr_assert_eq(rig_claim(a, 1, A).result, ARBITER_OK);
    cr_assert_eq(rig_beat(a, 1, A).result, ARBITER_OK);
    arbiter_free(a);
    (void)setfsuid(0);
    struct stat st;
    cr_assert_eq(stat(rig_path("epoch-1"), &st), 0);
    cr_assert_eq(st.st_uid, NOBODY);
    assert_refused(rig_dir, "belongs to another user (uid 65534)");
}

FOLDER_TEST(an_unwritable_directory_is_told_by_name) {
    if (geteuid() == 0)
        become_nobody();
    cr_assert_eq(chmod(rig_dir, 0500), 0);
    assert_refused(rig_dir, "cannot make");
    cr_assert_eq(chmod(rig_dir, 0700), 0);
    assert_usable(rig_dir);
    cr_assert_eq(chmod(rig_path(""), 0500), 0);
    struct arbiter *a = arbiter_at(rig_dir);
    struct arbiter_answer answer = rig_read(a);
    cr_assert_eq(answer.result, ARBITER_OK, "reading needs no more: %s", answer.text);
    answer = rig_claim(a, 2, A);
    cr_assert_eq(answer.result, ARBITER_UNREACHABLE);
    assert_has(answer.text, "Permission denied");
    arbiter_free(a);
    cr_assert_eq(chmod(rig_path(""), 0700), 0);
    if (getuid() == 0)
        cr_assert_eq(seteuid(0), 0);
}

FOLDER_TEST(what_the_dead_left_is_swept_after_an_hour) {
    assert_usable(rig_dir);
    static const char *const names[] = {"claim-2-00000000000000ff", "mark-1-00000000000000ff",
                                        "owner-00000000000000ff"};
    struct timespec old[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        rig_write(names[i], "x");
    rig_write("claim-2-00000000000000fe", "fresh");
    struct stat st;
    cr_assert_eq(stat(rig_path("claim-2-00000000000000fe"), &st), 0);
    old[1] = (struct timespec){.tv_sec = st.st_mtim.tv_sec - 3700};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        cr_assert_eq(utimensat(AT_FDCWD, rig_path(names[i]), old, 0), 0);
    cr_assert_eq(utimensat(AT_FDCWD, rig_path("epoch-1"), old, 0), 0);
    struct arbiter *a = arbiter_at(rig_dir);
    cr_assert_eq(rig_claim(a, 2, B).result, ARBITER_OK);
    arbiter_free(a);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        cr_assert_not(rig_there(names[i]), "%s", names[i]);
    cr_assert(rig_there("claim-2-00000000000000fe"));
    cr_assert(rig_there("epoch-1"));
}

/* Fills what is left of the file system, to the last byte. */
static void fill(const char *path) {
    static const char block[4096];
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    cr_assert_geq(fd, 0);
    for (size_t size = sizeof block; size > 0;)
        if (write(fd, block, size) < 0)
            size /= 2;
    cr_assert_eq(errno, ENOSPC);
    (void)close(fd);
}

FOLDER_TEST(a_full_disk_stops_claims_and_no_beat) {
    const char *options = rig_text("size=%ld,mode=0700", 16 * sysconf(_SC_PAGESIZE));
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", rig_dir, "tmpfs", 0, options) < 0)
        SKIP_AFTER(rig_finish, "a file system of a known size needs root, and mount()");
    struct arbiter *a = arbiter_at(rig_dir), *b = arbiter_at(rig_dir);
    cr_assert_eq(rig_claim(a, 1, A).result, ARBITER_OK);
    char filler[128];
    (void)snprintf(filler, sizeof filler, "%s/filler", rig_dir);
    fill(filler);

    uint64_t beat = rig_read(b).record.beat;
    for (int i = 0; i < 3; i++) {
        struct arbiter_answer answer = rig_beat(a, 1, A);
        cr_assert_eq(answer.result, ARBITER_OK, "%s", answer.text);
        cr_assert_neq(answer.record.beat, beat);
        beat = answer.record.beat;
        cr_assert_eq(rig_read(b).record.beat, beat);
    }
    struct arbiter_answer answer = rig_claim(b, 2, B);
    cr_assert_eq(answer.result, ARBITER_UNREACHABLE);
    assert_has(answer.text, "No space left on device; make room");
    struct arbiter_request q = *WITH(rig_request(ARBITER_CLOSE, 2, A), .outcome = OUTCOME_SUCCESS);
    answer = rig_ask(a, &q);
    cr_assert_eq(answer.result, ARBITER_UNREACHABLE);
    cr_assert_not(rig_there("claim-2-000000000000000b"));
    cr_assert_not(rig_there("claim-2-000000000000000c"));

    /* Where overwriting needs room too, the leader still hears that it leads. */
    cr_assert_eq(unlink(rig_path("beat-1")), 0);
    (void)strcat(filler, "2");
    fill(filler);
    answer = rig_beat(a, 1, A);
    cr_assert_eq(answer.result, ARBITER_OK);
    cr_assert_eq(answer.record.leader.incarnation, A);
    assert_has(answer.text, "beat-1: No space left on device");

    cr_assert_eq(unlink(filler), 0);
    filler[strlen(filler) - 1] = '\0';
    cr_assert_eq(unlink(filler), 0);
    cr_assert_eq(rig_claim(b, 2, B).result, ARBITER_OK);
    cr_assert_eq(rig_ask(a, &q).result, ARBITER_LOST);
    arbiter_free(a);
    arbiter_free(b);
    cr_assert_eq(umount2(rig_dir, MNT_DETACH), 0);
}

/* Its claim is there, but what it supersedes can't be told: the claim does not count yet. */
FOLDER_TEST(a_win_that_can_not_be_marked_does_not_count) {
    struct arbiter *a = arbiter_at(rig_dir);
    cr_assert_eq(rig_claim(a, 1, A).result, ARBITER_OK);
    cr_assert_eq(mkdir(rig_path("mark-1-000000000000000c"), 0700), 0);
    struct arbiter_answer answer = rig_claim(a, 2, B);
    cr_assert_eq(answer.result, ARBITER_UNREACHABLE);
    assert_has(answer.text, "mark-1");
    cr_assert(rig_there("epoch-2"));
    cr_assert_eq(rmdir(rig_path("mark-1-000000000000000c")), 0);
    cr_assert_eq(rig_claim(a, 2, B).result, ARBITER_OK);
    arbiter_free(a);
}

/* Each flush of a claim, in order: 'f' a file, 'd' a folder; capital where the epoch is there already. */
static char flushes[16];
static size_t n_flushes, flush_fails = SIZE_MAX;
static const char *epoch_file = "epoch-1";

/* In the place of the C library's. */
int fsync(int fd) {
    struct stat st;
    cr_assert_eq(fstat(fd, &st), 0);
    if (n_flushes == flush_fails) {
        errno = EIO;
        return -1;
    }
    char kind = S_ISDIR(st.st_mode) ? 'd' : 'f';
    if (n_flushes < sizeof flushes - 1)
        flushes[n_flushes++] = rig_there(epoch_file) ? (char)(kind - 'a' + 'A') : kind;
    return (int)syscall(SYS_fsync, fd);
}

static enum arbiter_result claim_flushed(uint32_t epoch, size_t fails_at) {
    struct arbiter_dir_task task = {.deadline_ns = TIME_NEVER, .request = rig_request(ARBITER_CLAIM, epoch, A)};
    struct arbiter_dir_result result;
    struct arbiter_folder f;
    memset(flushes, 0, sizeof flushes);
    n_flushes = 0;
    flush_fails = fails_at;
    arbiter_folder_init(&f, rig_dir, RIG_RUN_ID, false);
    arbiter_folder_serve(&f, &task, &result);
    arbiter_folder_fini(&f);
    return result.result;
}

/* A claim counts for each process that reads it, so a power cut must not take it back. */
FOLDER_TEST(each_step_of_a_claim_is_flushed_before_the_next) {
    cr_assert_eq(claim_flushed(1, SIZE_MAX), ARBITER_OK);
    cr_assert_str_eq(flushes, "dffD", "the directory, the record and the beat, then the epoch's name");
    epoch_file = "epoch-2";
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(claim_flushed(2, i), ARBITER_UNREACHABLE, "%zu", i);
    cr_assert_eq(claim_flushed(2, 1), ARBITER_UNREACHABLE, "the mark, and what was linked counts only then");
    cr_assert_eq(claim_flushed(2, SIZE_MAX), ARBITER_OK);
    cr_assert_eq(claim_flushed(3, SIZE_MAX), ARBITER_OK);
}
