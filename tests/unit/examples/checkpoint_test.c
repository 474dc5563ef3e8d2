#include "checkpoint.h"

#include "rig/unit.h"

static char dir[64];
static struct mlp saved, loaded;

static const char *path(unsigned epoch) {
    static char text[128];
    (void)snprintf(text, sizeof(text), "%s/epoch-%06u.ckpt", dir, epoch);
    return text;
}

static void set_up(void) {
    (void)snprintf(dir, sizeof(dir), "/tmp/checkpoint-test-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    for (unsigned epoch = 1; epoch <= 3; epoch++) {
        mlp_init(&saved, epoch);
        cr_assert_eq(checkpoint_save(dir, epoch, &saved), 0);
    }
}

static void tear_down(void) {
    for (unsigned epoch = 0; epoch < 10; epoch++)
        (void)unlink(path(epoch));
    cr_expect_eq(rmdir(dir), 0, "something else was left in %s", dir);
}
TestSuite(checkpoint, .init = set_up, .fini = tear_down);

/* The stored state is that of mlp_init(epoch). */
static void expect_loaded(unsigned epoch) {
    memset(&loaded, 0x55, sizeof(loaded));
    cr_assert_eq(checkpoint_load_newest(dir, &loaded), (int)epoch);
    mlp_init(&saved, epoch);
    cr_assert_eq(memcmp(&saved, &loaded, sizeof(saved)), 0);
}

Test(checkpoint, the_newest_is_loaded) { expect_loaded(3); }

Test(checkpoint, old_ones_are_removed) {
    cr_assert_eq(checkpoint_save(dir, 4, &saved), 0);
    cr_assert_neq(access(path(1), F_OK), 0);
    cr_assert_eq(access(path(2), F_OK), 0);
}

Test(checkpoint, any_changed_byte_is_noticed_and_the_one_before_is_used) {
    struct stat st;
    cr_assert_eq(stat(path(3), &st), 0);
    int fd = open(path(3), O_RDWR);
    cr_assert_geq(fd, 0);
    for (off_t at = 0; at < st.st_size; at += at < 32 || at > st.st_size - 32 ? 1 : 997) {
        unsigned char b, changed;
        cr_assert_eq(pread(fd, &b, 1, at), 1);
        changed = b ^ 0x10;
        cr_assert_eq(pwrite(fd, &changed, 1, at), 1);
        expect_loaded(2);
        cr_assert_eq(pwrite(fd, &b, 1, at), 1);
    }
    close(fd);
    expect_loaded(3);
}

Test(checkpoint, a_file_cut_short_is_refused) {
    cr_assert_eq(truncate(path(3), 1000), 0);
    cr_assert_eq(truncate(path(2), 0), 0);
    expect_loaded(1);
}

Test(checkpoint, a_file_with_more_behind_it_is_refused) {
    struct stat st;
    cr_assert_eq(stat(path(3), &st), 0);
    cr_assert_eq(truncate(path(3), st.st_size + 1), 0);
    expect_loaded(2);
}

Test(checkpoint, a_file_under_another_name_is_refused) {
    char other[128];
    (void)snprintf(other, sizeof(other), "%s", path(9));
    cr_assert_eq(rename(path(1), other), 0);
    expect_loaded(3);
}

Test(checkpoint, nothing_good_leaves_the_model_alone) {
    for (unsigned epoch = 1; epoch <= 3; epoch++)
        cr_assert_eq(truncate(path(epoch), 10), 0);
    mlp_init(&saved, 77);
    loaded = saved;
    cr_assert_eq(checkpoint_load_newest(dir, &loaded), 0);
    cr_assert_eq(memcmp(&saved, &loaded, sizeof(saved)), 0);
    cr_assert_eq(checkpoint_load_newest("/tmp/no-such-folder-here", &loaded), 0);
}

Test(checkpoint, what_is_half_written_or_foreign_is_not_looked_at) {
    char other[128];
    static const char *const names[] = {".epoch-000009.ckpt.tmp", "epoch-000009.ckpt.old", "notes"};
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(other, sizeof(other), "%s/%s", dir, names[i]);
        int fd = open(other, O_CREAT | O_WRONLY, 0644);
        cr_assert_geq(fd, 0);
        close(fd);
    }
    expect_loaded(3);
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(other, sizeof(other), "%s/%s", dir, names[i]);
        cr_assert_eq(unlink(other), 0);
    }
}
