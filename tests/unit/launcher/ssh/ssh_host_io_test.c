/* The lines of two hosts on standard output, which is a pipe here. */
#include "launcher/ssh/ssh_host_io.h"

#include "rig/fds.h"

static struct loop *loop;
static struct ssh_output *output;
static int out;

static void pause_all(void *arg, bool pause) {}

static void done(void *arg) {}

static void begin(void) {
    static const struct ssh_output_ops ops = {.pause = pause_all, .on_done = done};
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    cr_assert_geq(fcntl(ends[0], F_SETPIPE_SZ, 1 << 20), 0);
    cr_assert_eq(dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
    (void)close(ends[1]);
    out = ends[0];
    cr_assert_eq(loop_new(&loop), 0);
    output = ssh_output_new(loop, 2, &ops, NULL);
}

static void end(void) {
    ssh_output_free(output);
    loop_free(loop);
    (void)close(out);
}

TestSuite(ssh_output, .init = begin, .fini = end);

static void add(uint32_t host, const char *text) { ssh_output_add(output, host, SSH_OUTPUT_OUT, text, strlen(text)); }

static void add_many(uint32_t host, char c, size_t n) {
    _cleanup_(freep) char *bytes = xmalloc(n);
    memset(bytes, c, n);
    ssh_output_add(output, host, SSH_OUTPUT_OUT, bytes, n);
}

/* What was written after the first `skip` bytes. */
static const char *written(size_t skip) {
    static char text[1 << 18];
    ssh_output_flush(output);
    ssize_t n = read(out, text, sizeof text - 1);
    cr_assert_geq(n, (ssize_t)skip);
    text[n] = '\0';
    return text + skip;
}

Test(ssh_output, what_the_agent_has_shown_is_shown_and_its_rest_has_its_prefix) {
    add(0, "[rank0]: at ");
    cr_assert_str_eq(written(0), "[rank0]: at ");
    add(1, "other\n");
    add(0, "rest\n");
    cr_assert_str_eq(written(0), "\nother\n[rank0]: rest\n");
}

/* Of a user with many pipes, new ones hold two pages or, with a short line before, little more than one. */
Test(ssh_output, a_line_that_did_not_fit_into_a_small_pipe_is_whole) {
    add_many(0, 'x', 4096);
    add(1, "other\n");
    add(0, "end\n");
    cr_assert_str_eq(written(6 + 4096), "end\n");
}

Test(ssh_output, a_line_after_a_full_frame_is_whole) {
    add_many(0, '\n', 65536);
    add(0, "li");
    add(1, "other\n");
    add(0, "ne\n");
    cr_assert_str_eq(written(65536), "other\nline\n");
}

Test(ssh_output, no_end_is_added_to_the_last_line) {
    add(0, "[INFO]: done");
    ssh_output_end_host(output, 0);
    cr_assert_str_eq(written(0), "[INFO]: done");
}

/* There are enough for its stderr, but not for its stdin and stdout. */
Test(ssh_output, a_host_that_can_not_be_called_takes_no_descriptor) {
    const struct ssh_host_env env = {.loop = loop};
    struct ssh_host *host;
    const rlim_t next = rig_free_fd();
    const struct rlimit usual = rig_limit_fds(next + 3);
    cr_expect_eq(ssh_host_call(&env, 0, NULL, NULL, &host, NULL), -EMFILE);
    cr_expect_eq(rig_free_fd(), next);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
    ssh_host_free(host);
}
