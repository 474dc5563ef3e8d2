#include "watchdog/act/hang_evidence_io.h"

#include <dirent.h>

#include "io/file.h"
#include "launcher/output/tempdir_io.h"
#include "rig/unit.h"

#define WALL_NS (UINT64_C(1795489838) * NS_PER_S) /* 2026-11-24 03:10:38 UTC */

static char dir[] = "/tmp/muster-hang-XXXXXX";
static char *all;
static struct err err;
static const struct strbuf text = {.data = (char[]){"words\n"}, .len = 6}, json = {.data = (char[]){"{}"}, .len = 2};

static void begin(void) {
    cr_assert_not_null(mkdtemp(dir));
    all = xasprintf("%s/hangs", dir);
}

static void finish(void) {
    cr_expect(tempdir_remove(dir));
    free(all);
}

static char *write_as(uint64_t wall_ns, mode_t mode, const struct strbuf *object) {
    char name[HANG_FILES_NAME_MAX];
    char *path = NULL;
    hang_files_name(wall_ns, (struct generation){1, 2}, name);
    cr_assert_eq(hang_files_write(dir, name, mode, &text, object, &path, &err), 0, "%s", err.text);
    return path;
}
static char *write_at(uint64_t wall_ns) { return write_as(wall_ns, 0600, &json); }

static uint32_t count(void) {
    uint32_t n = 0;
    DIR *d = opendir(all);
    cr_assert_not_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static bool is_there(const char *name) { return access(rig_text("%s/%s", all, name), F_OK) == 0; }

TestSuite(hang_files_io, .init = begin, .fini = finish);

Test(hang_files_io, names_have_time_and_generation) {
    char name[HANG_FILES_NAME_MAX];
    hang_files_name(WALL_NS + 7 * NS_PER_MS, (struct generation){4294967295, 4294967295}, name);
    cr_assert_str_eq(name, "20261124-031038.007-4294967295.4294967295");
}

static mode_t mode_of(const char *path) {
    struct stat st;
    cr_assert_eq(stat(path, &st), 0, "%s", path);
    return st.st_mode & 07777;
}

Test(hang_files_io, modes_are_as_asked_whatever_the_umask_is) {
    (void)umask(077);
    _cleanup_(freep) char *path = write_as(WALL_NS, 0644, &json);
    cr_expect_eq(mode_of(path), 0644);
    cr_expect_eq(mode_of(rig_text("%s/20261124-031038.000-1.2", all)), 0755);
    cr_expect_eq(mode_of(all), 0755);
    cr_assert_eq(hang_files_amend(path, &text, &(struct strbuf){.data = (char[]){","}, .len = 1}, &err), 0, "%s",
                 err.text);
    cr_expect_eq(mode_of(path), 0644, "what is added changes nothing");
}

Test(hang_files_io, the_oldest_are_removed_and_nothing_else) {
    _cleanup_(freep) char *other = xasprintf("%s/of-the-user", all);
    for (uint64_t i = 0; i < HANG_FILES_KEPT; i++) {
        free(write_at(WALL_NS + i * NS_PER_S));
        if (i == 0)
            cr_assert_eq(mkdir(other, 0777), 0);
    }
    cr_assert_eq(count(), HANG_FILES_KEPT + 1);
    free(write_at(WALL_NS + 100 * NS_PER_S));
    cr_assert_eq(count(), HANG_FILES_KEPT + 1);
    cr_assert(is_there("of-the-user"));
    cr_assert_not(is_there("20261124-031038.000-1.2"));
    cr_assert(is_there("20261124-031039.000-1.2"));
    cr_assert(is_there("20261124-031218.000-1.2"));
}

/* The clock ran an hour ahead, and was then set right: what was written with it is the oldest. */
Test(hang_files_io, after_the_clock_was_set_back_the_newest_are_kept) {
    for (uint64_t i = 0; i < HANG_FILES_KEPT; i++)
        free(write_at(WALL_NS + (3600 + i) * NS_PER_S));
    free(write_at(WALL_NS));
    free(write_at(WALL_NS + NS_PER_S));
    cr_assert_eq(count(), HANG_FILES_KEPT);
    cr_assert(is_there("20261124-031038.000-1.2"));
    cr_assert(is_there("20261124-031039.000-1.2"));
    cr_assert_not(is_there("20261124-041038.000-1.2"));
    cr_assert_not(is_there("20261124-041039.000-1.2"));
    cr_assert(is_there("20261124-041040.000-1.2"));
}

Test(hang_files_io, large_ones_are_removed_sooner) {
    for (uint64_t i = 0; i < 3; i++) {
        _cleanup_(freep) char *path = write_at(WALL_NS + i * NS_PER_S);
        cr_assert_eq(truncate(path, HANG_FILES_BYTES / 2 - 8), 0); /* with hang.json two are at the limit */
    }
    free(write_at(WALL_NS + 9 * NS_PER_S));
    cr_assert_eq(count(), 3);
    cr_assert_not(is_there("20261124-031038.000-1.2"));
    cr_assert(is_there("20261124-031039.000-1.2"));
}

/* At most 1024 are looked at: what is left of others goes later. */
Test(hang_files_io, of_very_many_the_rest_is_removed_later) {
    char name[HANG_FILES_NAME_MAX];
    free(write_at(WALL_NS));
    for (uint64_t i = 1; i < 1030; i++) {
        hang_files_name(WALL_NS + i * NS_PER_S, (struct generation){1, 2}, name);
        cr_assert_eq(mkdir(rig_text("%s/%s", all, name), 0777), 0);
    }
    free(write_at(WALL_NS + 2000 * NS_PER_S));
    cr_assert_eq(count(), 1030 - 1024 + HANG_FILES_KEPT);
}

Test(hang_files_io, an_error_says_what_was_tried) {
    char *path = NULL;
    int fd = open(all, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    (void)close(fd);
    cr_assert_eq(hang_files_write(dir, "20261124-031038.000-1.2", 0600, &text, &json, &path, &err), -ENOTDIR);
    assert_has(err.text, "can't make the folder ");
    assert_has(err.text, all);
    cr_assert_null(path);
}

Test(hang_files_io, what_comes_later_is_added) {
    const struct strbuf more = {.data = (char[]){"more\n"}, .len = 5},
                        member = {.data = (char[]){",\"b\":[]"}, .len = 7};
    const struct strbuf object = {.data = (char[]){"{\"a\":1}"}, .len = 7};
    _cleanup_(freep) char *path = write_as(WALL_NS, 0600, &object), *now = NULL, *json_now = NULL;
    const char *json_path = rig_text("%s/20261124-031038.000-1.2/hang.json", all);
    size_t len;
    cr_assert_eq(hang_files_amend(path, &more, &member, &err), 0, "%s", err.text);
    cr_assert_str_eq(path, rig_text("%s/20261124-031038.000-1.2/hang.txt", all));
    cr_assert_eq(file_read_text(path, 100, &now, &len), 0);
    cr_assert_eq(file_read_text(json_path, 100, &json_now, &len), 0);
    cr_assert_str_eq(now, "words\nmore\n");
    cr_assert_str_eq(json_now, "{\"a\":1,\"b\":[]}");
    cr_assert_eq(unlink(json_path), 0);
    cr_assert_eq(hang_files_amend(path, &more, &member, &err), -ENOENT);
    assert_has(err.text, "hang.json");
}
