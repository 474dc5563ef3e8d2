#include "launcher/output/spool_io.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

Test(spool_io, bytes_come_out_in_order_and_the_file_never_grows_above_its_size) {
    struct spool s;
    spool_init(&s, 1000);
    uint8_t next = 0, want = 0, data[70];
    uint64_t added = 0;
    for (int round = 0; round < 500; round++) {
        size_t n = (size_t)(round * 7 % 70 + 1);
        for (size_t i = 0; i < n; i++)
            data[i] = next++;
        int r = spool_add(&s, data, n);
        if (r < 0) {
            cr_assert_eq(r, -ENOBUFS);
            cr_assert_not(spool_has_room(&s, n));
            next = (uint8_t)(next - n);
        } else {
            added += n;
        }
        if (round % 3 == 0)
            continue;
        ssize_t got = spool_take(&s, data, (size_t)(round % 2 * 40 + 20));
        cr_assert_geq(got, 0);
        for (ssize_t i = 0; i < got; i++)
            cr_assert_eq(data[i], want++);
        struct stat st;
        cr_assert_eq(fstat(s.fd, &st), 0);
        cr_assert_leq(st.st_size, 1000);
        cr_assert_eq(st.st_nlink, 0, "nothing is left of it");
    }
    cr_assert_gt(added, 5000);
    ssize_t got;
    while ((got = spool_take(&s, data, sizeof data)) > 0)
        for (ssize_t i = 0; i < got; i++)
            cr_assert_eq(data[i], want++);
    cr_assert_eq(want, next);
    struct stat st;
    cr_assert_eq(fstat(s.fd, &st), 0);
    cr_assert_eq(st.st_size, 0, "an empty spool needs no space");
    spool_fini(&s);
}

Test(spool_io, without_a_size_nothing_can_be_added_and_no_file_is_made) {
    struct spool s;
    spool_init(&s, 0);
    char c;
    cr_assert_not(spool_has_room(&s, 1));
    cr_assert_eq(spool_add(&s, "x", 1), -ENOBUFS);
    cr_assert_eq(spool_take(&s, &c, 1), 0);
    cr_assert_lt(s.fd, 0);
    spool_fini(&s);
}

Test(spool_io, a_disk_that_is_full_ends_adding_and_keeps_what_is_there) {
    struct spool s;
    (void)signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    spool_init(&s, 1000);
    char data[80];
    memset(data, 'x', sizeof data);
    cr_assert_eq(spool_add(&s, data, sizeof data), 0);
    cr_assert_eq(spool_add(&s, data, sizeof data), -EFBIG);
    cr_assert_eq(spool_add(&s, data, 1), -EFBIG);
    cr_assert_not(spool_has_room(&s, 1));
    cr_assert_eq(spool_pending(&s), sizeof data);
    cr_assert_eq(spool_take(&s, data, sizeof data), (ssize_t)sizeof data);
    cr_assert_eq(spool_take(&s, data, sizeof data), 0);
    spool_fini(&s);
}

Test(spool_io, a_folder_that_is_missing_is_an_error) {
    struct spool s;
    cr_assert_eq(setenv("TMPDIR", "/nonexistent/folder", 1), 0);
    spool_init(&s, 1000);
    cr_assert_eq(spool_add(&s, "x", 1), -ENOENT);
    spool_fini(&s);
}
