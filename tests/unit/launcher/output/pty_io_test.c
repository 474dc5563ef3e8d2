#include "launcher/output/pty_io.h"

#include <sys/ioctl.h>

#include "rig/unit.h"

/* The terminal of a user, in its usual state. */
static int terminal(struct winsize size) {
    int controller = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    cr_assert(controller >= 0 && grantpt(controller) == 0 && unlockpt(controller) == 0);
    int fd = open(ptsname(controller), O_RDWR | O_NOCTTY | O_CLOEXEC);
    cr_assert(fd >= 0 && ioctl(fd, TIOCSWINSZ, &size) == 0);
    return fd;
}

static ssize_t read_wait(int fd, void *data, size_t len) {
    (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000);
    return read(fd, data, len);
}

Test(pty_io, every_byte_arrives_unchanged_and_then_the_end) {
    int like = terminal((struct winsize){.ws_row = 10, .ws_col = 50}), ours, workers;
    cr_assert_eq(pty_open(like, &ours, &workers), 0);
    cr_assert_eq(isatty(workers), 1);
    uint8_t all[256], got[256];
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    cr_assert_eq(write(workers, all, sizeof all), (ssize_t)sizeof all);
    (void)close(workers);
    size_t len = 0;
    ssize_t n;
    while (len < sizeof got && (n = read_wait(ours, got + len, sizeof got - len)) > 0)
        len += (size_t)n;
    cr_assert(len == sizeof all && memcmp(all, got, len) == 0, "%zu", len);
    cr_assert_eq(read_wait(ours, got, 1), -1);
    cr_assert_eq(errno, EIO);
    (void)close(ours);
    (void)close(like);
}

Test(pty_io, it_has_the_size_of_the_terminal_and_follows_it) {
    int like = terminal((struct winsize){.ws_row = 10, .ws_col = 50}), ours, workers;
    cr_assert_eq(pty_open(like, &ours, &workers), 0);
    struct winsize size;
    pty_resize(ours, like, 0);
    cr_assert_eq(ioctl(workers, TIOCGWINSZ, &size), 0);
    cr_assert(size.ws_row == 10 && size.ws_col == 50);
    size.ws_col = 90;
    cr_assert_eq(ioctl(like, TIOCSWINSZ, &size), 0);
    pty_resize(ours, like, 9);
    cr_assert_eq(ioctl(workers, TIOCGWINSZ, &size), 0);
    cr_assert(size.ws_row == 10 && size.ws_col == 81);
    pty_resize(ours, like, 90);
    cr_assert_eq(ioctl(workers, TIOCGWINSZ, &size), 0);
    cr_assert_eq(size.ws_col, 90, "no column would be left");
    (void)close(ours);
    (void)close(workers);
    (void)close(like);
}

Test(pty_io, it_is_no_controlling_terminal) {
    int like = terminal((struct winsize){.ws_row = 10, .ws_col = 50});
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) { /* a leader of a session without a controlling terminal, as each worker is */
        int ours, workers;
        bool ok = setsid() > 0 && pty_open(like, &ours, &workers) == 0 && close(ours) == 0;
        int fd = open("/dev/tty", O_RDWR);
        _exit(ok && fd < 0 && errno == ENXIO ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x: no SIGHUP either", status);
    (void)close(like);
}
