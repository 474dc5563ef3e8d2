#include "io/process/proc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <unistd.h>

#define FD 377

static unsigned n_seen, n_of_fd;

static void count(void *arg, int number) {
    n_seen++;
    n_of_fd += number == FD;
    cr_assert_gt(number, 0);
    cr_assert_eq(arg, &n_seen);
}

Test(proc, each_descriptor_is_told_once) {
    cr_assert_eq(dup2(STDERR_FILENO, FD), FD);
    cr_assert_eq(proc_each_number("/proc/self/fd", count, &n_seen), 0);
    cr_assert_eq(n_of_fd, 1);
    (void)close(FD);
    n_of_fd = 0;
    cr_assert_eq(proc_each_number("/proc/self/fd", count, &n_seen), 0);
    cr_assert_eq(n_of_fd, 0);
}

Test(proc, more_than_one_reading_of_the_folder_holds) {
    for (int fd = 400; fd < 800; fd++)
        cr_assert_eq(dup2(STDERR_FILENO, fd), fd);
    cr_assert_eq(proc_each_number("/proc/self/fd", count, &n_seen), 0);
    cr_assert_geq(n_seen, 400);
    for (int fd = 400; fd < 800; fd++)
        (void)close(fd);
}

Test(proc, names_that_are_no_numbers_are_left_out) {
    cr_assert_eq(proc_each_number("/proc/sys", count, &n_seen), 0);
    cr_assert_eq(n_seen, 0);
}

Test(proc, what_is_no_folder_is_an_error) {
    cr_assert_eq(proc_each_number("/proc/self/none", count, &n_seen), -ENOENT);
    cr_assert_eq(proc_each_number("/proc/self/stat", count, &n_seen), -ENOTDIR);
}
