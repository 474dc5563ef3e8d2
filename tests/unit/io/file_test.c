#include "io/file.h"

#include <dirent.h>
#include <sys/sysmacros.h>

#include "../skip.h"
#include "rig/unit.h"

static char folder[80];

static void make_folder(void) {
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(folder, sizeof folder, "%s/muster-file-test-XXXXXX", tmp == NULL ? "/tmp" : tmp);
    cr_assert_lt((size_t)n, sizeof folder);
    cr_assert_not_null(mkdtemp(folder));
}

static const char *at(const char *name) { return rig_text("%s/%.40s", folder, name); }

/* Returns how many entries the folder has, and removes them. */
static unsigned empty_folder(void) {
    unsigned n = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            (void)remove(at(e->d_name));
            n++;
        }
    (void)closedir(dir);
    return n;
}

static void drop_folder(void) {
    (void)empty_folder();
    (void)rmdir(folder);
}

TestSuite(file, .init = make_folder, .fini = drop_folder);

static void check_text(const char *path, const char *expected) {
    char *text;
    size_t len;
    cr_assert_eq(file_read_text(path, 100, &text, &len), 0);
    cr_assert_eq(len, strlen(expected));
    cr_assert_str_eq(text, expected);
    free(text);
}

static mode_t kind_of(const char *path) {
    struct stat st;
    cr_assert_eq(lstat(path, &st), 0, "%s", path);
    return st.st_mode & S_IFMT;
}

static mode_t mode_of(const char *path) {
    struct stat st;
    cr_assert_eq(lstat(path, &st), 0, "%s", path);
    return st.st_mode & 07777;
}

Test(file, gets_a_mode_and_keeps_it) {
    (void)umask(027);
    cr_assert_eq(file_write_atomic(at("a"), "1", 1), 0);
    cr_expect_eq(mode_of(at("a")), 0640);
    cr_assert_eq(chmod(at("a"), 0600), 0);
    cr_assert_eq(file_write_atomic(at("a"), "2", 1), 0);
    cr_expect_eq(mode_of(at("a")), 0600);
    cr_assert_eq(file_write_atomic_as(at("b"), "1", 1, 0644), 0);
    cr_expect_eq(mode_of(at("b")), 0644);
    cr_assert_eq(file_write_atomic_as(at("a"), "3", 1, 0644), 0);
    cr_expect_eq(mode_of(at("a")), 0600);
}

/* Where others may make files, they could put one in its way. */
Test(file, no_name_that_others_can_guess_is_written) {
    cr_assert_eq(file_write_atomic(at("aim"), "aim", 3), 0);
    cr_assert_eq(symlink(at("aim"), at(rig_text("a.%d.tmp", (int)getpid()))), 0);
    cr_assert_eq(file_write_atomic(at("a"), "text", 4), 0);
    check_text(at("a"), "text");
    check_text(at("aim"), "aim");
    cr_expect_eq(kind_of(at("a")), S_IFREG);
}

Test(file, is_written_anew_or_in_the_place_of_another) {
    cr_assert_eq(file_write_atomic(at("a"), "first", 5), 0);
    check_text(at("a"), "first");
    int fd = open(at("a"), O_RDONLY | O_CLOEXEC);
    char old[16] = "";
    cr_assert_eq(file_write_atomic(at("a"), "2nd", 3), 0);
    check_text(at("a"), "2nd");
    cr_assert_eq(read(fd, old, sizeof old - 1), 5, "who reads the old one reads all of it");
    (void)close(fd);
    cr_assert_eq(empty_folder(), 1, "nothing else is left there");
}

Test(file, a_link_stays_one) {
    cr_assert_eq(file_write_atomic(at("a"), "first", 5), 0);
    cr_assert_eq(symlink("a", at("link")), 0);
    cr_assert_eq(file_write_atomic(at("link"), "2nd", 3), 0);
    cr_assert_eq(kind_of(at("link")), S_IFLNK);
    check_text(at("a"), "2nd");
    cr_assert_eq(empty_folder(), 2);
}

Test(file, a_fifo_is_written_into_and_stays) {
    char got[16] = "";
    cr_assert_eq(mkfifo(at("fifo"), 0600), 0);
    int reader = open(at("fifo"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    cr_assert_eq(file_write_atomic(at("fifo"), "text", 4), 0);
    cr_assert_eq(read(reader, got, sizeof got), 4);
    cr_assert_str_eq(got, "text");
    (void)close(reader);
    cr_assert_eq(file_write_atomic(at("fifo"), "text", 4), -ENXIO, "nobody reads: it does not wait");
    cr_assert_eq(kind_of(at("fifo")), S_IFIFO);
    cr_assert_eq(empty_folder(), 1);
}

Test(file, a_pipe_is_written_into_by_its_number) {
    int ends[2];
    char path[64], got[16] = "";
    cr_assert_eq(pipe(ends), 0);
    (void)snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    cr_assert_eq(file_write_atomic(path, "text", 4), 0);
    cr_assert_eq(read(ends[0], got, sizeof got), 4);
    cr_assert_str_eq(got, "text");
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* The test makes its own device, so a failure does not destroy one of the machine. */
Test(file, a_device_is_written_into_and_stays) {
    if (mknod(at("full"), S_IFCHR | 0666, makedev(1, 7)) < 0)
        SKIP_AFTER(drop_folder, "only root makes devices");
    int r = file_write_atomic(at("full"), "text", 4);
    if (r == -EACCES || r == -EPERM)
        SKIP_AFTER(drop_folder, "devices are not allowed in this folder");
    cr_assert_eq(r, -ENOSPC);
    cr_assert_eq(kind_of(at("full")), S_IFCHR);
    cr_assert_eq(empty_folder(), 1);
}

Test(file, a_folder_and_a_way_that_leads_nowhere_are_refused) {
    cr_assert_eq(mkdir(at("d"), 0700), 0);
    cr_assert_eq(file_write_atomic(at("d"), "x", 1), -EISDIR);
    cr_assert_eq(file_write_atomic(at("none/x"), "x", 1), -ENOENT);
    cr_assert_eq(file_write_atomic(at("a"), "x", 1), 0);
    cr_assert_eq(file_write_atomic(at("a/x"), "x", 1), -ENOTDIR);
    cr_assert_eq(empty_folder(), 2);
}

Test(file, what_is_read_is_a_regular_file_of_a_bounded_size) {
    char *text;
    size_t len;
    cr_assert_eq(file_write_atomic(at("a"), "12345", 5), 0);
    cr_assert_eq(file_read_text(at("a"), 4, &text, &len), -EFBIG);
    cr_assert_eq(file_read_text(at("b"), 4, &text, &len), -ENOENT);
    cr_assert_eq(mkfifo(at("fifo"), 0600), 0);
    cr_assert_eq(file_read_text(at("fifo"), 4, &text, &len), -EINVAL);
    check_text(at("a"), "12345");
}

Test(file, a_pipe_is_read_to_its_end) {
    int ends[2];
    char path[64], *text = NULL, block[4096];
    size_t len = 0;
    const size_t blocks = 8;
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    cr_assert_eq(file_read_text_or_pipe(path, 100, 0, &text, &len), -ETIMEDOUT);
    memset(block, 'x', sizeof block);
    pid_t writer = fork(); /* a pipe holds one page where its user has many pipes: pipe(7) */
    if (writer == 0) {
        for (size_t i = 0; i < blocks; i++)
            if (write(ends[1], block, sizeof block) != sizeof block)
                _exit(1);
        _exit(0);
    }
    (void)close(ends[1]);
    cr_assert_eq(file_read_text_or_pipe(path, 1 << 20, 30 * NS_PER_S, &text, &len), 0);
    cr_assert_eq(waitpid(writer, NULL, 0), writer);
    cr_assert(len == blocks * sizeof block && strlen(text) == len);
    free(text);
    cr_assert_eq(file_read_text_or_pipe(path, 100, NS_PER_S, &text, &len), 0); /* it is empty now */
    cr_assert_eq(len, 0);
    free(text);
    (void)close(ends[0]);
}

Test(file, a_pipe_has_a_limit_and_a_file_is_a_file) {
    int ends[2];
    char path[64], *text = NULL;
    size_t len = 0;
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    cr_assert_eq(write(ends[1], "12345", 5), 5);
    cr_assert_eq(file_read_text_or_pipe(path, 4, NS_PER_S, &text, &len), -EFBIG);
    (void)close(ends[0]);
    (void)close(ends[1]);
    cr_assert_eq(file_read_text_or_pipe("/dev/zero", 4, NS_PER_S, &text, &len), -EINVAL);
    cr_assert_eq(file_write_atomic(at("file"), "text", 4), 0);
    cr_assert_eq(file_read_text_or_pipe(at("file"), 4, NS_PER_S, &text, &len), 0);
    cr_assert_str_eq(text, "text");
    free(text);
}
