#include "launcher/output/log_times_io.h"

#include <sys/resource.h>

#include "rig/loop_rig.h"

static char dir[64], path[80], times_path[80];

static int begin(void) {
    (void)strcpy(dir, "/tmp/muster-times-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/stdout.log", dir);
    (void)snprintf(times_path, sizeof times_path, "%s/.stdout.times", dir);
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static void end(int fd) {
    (void)close(fd);
    (void)unlink(path);
    (void)unlink(times_path);
    cr_assert_eq(rmdir(dir), 0);
}

Test(log_times_io, stamps_have_the_offsets_of_the_log) {
    int fd = begin();
    cr_assert_eq(write(fd, "old\n", 4), 4); /* by a writer that was replaced */
    struct log_times t;
    int next = dup(fd);
    (void)close(next);
    log_times_open(&t, path, fd);
    log_times_grows(&t, 5 * NS_PER_S);
    cr_assert_eq(t.fd, next, "it takes one descriptor");
    log_times_grew(&t, 10);
    log_times_grows(&t, 5 * NS_PER_S + 1); /* too early for one more */
    log_times_grew(&t, 1);
    log_times_grows(&t, 6 * NS_PER_S);
    log_times_close(&t);
    uint8_t bytes[100];
    int times = open(times_path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(read(times, bytes, sizeof bytes), 2 * LOG_STAMP_BYTES);
    (void)close(times);
    struct log_stamp first = log_stamp_decode(bytes), second = log_stamp_decode(bytes + LOG_STAMP_BYTES);
    cr_assert(first.at == 4 && first.ns == 5 * NS_PER_S);
    cr_assert(second.at == 15 && second.ns == 6 * NS_PER_S);
    end(fd);
}

Test(log_times_io, descriptors_are_for_logs_first) {
    int fd = begin();
    struct rlimit limit = {.rlim_cur = 256, .rlim_max = 256};
    struct log_times t;
    log_times_open(&t, path, fd);
    cr_assert_eq(access(times_path, F_OK), -1, "an empty stream has no file");
    log_times_grows(&t, NS_PER_S);
    cr_assert_geq(t.fd, 0);
    log_times_close(&t);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int first = fcntl(fd, F_DUPFD_CLOEXEC, 0), last = first;
    while (last < 64)
        last = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    log_times_open(&t, path, fd);
    log_times_grows(&t, NS_PER_S);
    cr_assert_eq(t.fd, -1);
    cr_assert_null(t.path);
    log_times_close(&t);
    for (int i = first; i <= last; i++)
        (void)close(i);
    end(fd);
}

Test(log_times_io, a_file_that_a_worker_writes_itself_is_sampled) {
    int fd = begin();
    struct loop *loop;
    struct stat st = {0};
    cr_assert_eq(loop_new(&loop), 0);
    struct log_sampler *s = log_sampler_new(loop);
    log_sampler_add(s, 7, path, fd);
    cr_assert_eq(write(fd, "one\n", 4), 4);
    rig_loop_until(loop, stat(times_path, &st) == 0 && st.st_size > 0);
    log_sampler_drop(s, 8); /* another user */
    (void)poll(NULL, 0, 2 * LOG_PACE_MIN_NS / NS_PER_MS);
    cr_assert_eq(write(fd, "two\n", 4), 4);
    log_sampler_drop(s, 7); /* reads the size once more */
    log_sampler_free(s);
    loop_free(loop);
    uint8_t bytes[100];
    int times = open(times_path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(read(times, bytes, sizeof bytes), 2 * LOG_STAMP_BYTES);
    (void)close(times);
    struct log_stamp first = log_stamp_decode(bytes), second = log_stamp_decode(bytes + LOG_STAMP_BYTES);
    cr_assert_eq(first.at, 0);
    cr_assert_eq(second.at, 4);
    cr_assert_geq(second.ns, first.ns);
    end(fd);
}

Test(log_times_io, a_stamp_is_read_as_it_was_written) {
    struct log_stamp s = {.at = UINT64_C(0x123456789abcdef0), .ns = UINT64_C(1795441116130237395)};
    uint8_t bytes[LOG_STAMP_BYTES];
    log_stamp_encode(&s, bytes);
    cr_assert_eq(bytes[0], 0xf0);
    struct log_stamp again = log_stamp_decode(bytes);
    cr_assert_eq(again.at, s.at);
    cr_assert_eq(again.ns, s.ns);
}

Test(log_times_io, a_path_beside_the_log) {
    static const char *const cases[][2] = {
        {"/a/b.c/stdout.log", "/a/b.c/.stdout.times"}, {"stderr.log", ".stderr.times"}, {"a.b/x", "a.b/.x.times"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *got = log_times_path(cases[i][0]);
        cr_assert_str_eq(got, cases[i][1]);
    }
}

Test(log_times_io, bursts_are_exact_and_the_rate_is_bounded) {
    const uint64_t start = UINT64_C(1795441116) * NS_PER_S;
    struct log_pace pace = {0};
    cr_assert(log_pace_is_due(&pace, start));
    cr_assert_not(log_pace_is_due(&pace, start + LOG_PACE_MIN_NS - 1));
    cr_assert(log_pace_is_due(&pace, start + LOG_PACE_MIN_NS));
    uint32_t n = 0, first = 0;
    for (uint64_t t = 0; t < 3600 * NS_PER_S; t += NS_PER_MS) {
        n += log_pace_is_due(&pace, start + NS_PER_S + t);
        if (t < 4 * NS_PER_S)
            first = n;
    }
    cr_assert_eq(first, 4000);
    cr_assert_leq(n, 3600 * NS_PER_S / LOG_PACE_NS + LOG_PACE_BURST + 60);
    /* quiet for a while: exact again */
    uint64_t later = start + 7200 * NS_PER_S;
    for (uint64_t t = 0; t < 100; t++)
        cr_assert(log_pace_is_due(&pace, later + t * NS_PER_MS));
}

Test(log_times_io, a_clock_that_steps_back_gets_a_stamp) {
    struct log_pace pace = {0};
    cr_assert(log_pace_is_due(&pace, 1000 * NS_PER_S));
    cr_assert(log_pace_is_due(&pace, 10 * NS_PER_S));
}
