#include "launcher/worker/notify_io.h"

#include <sys/un.h>

#include "rig/fds.h"
#include "rig/loop_rig.h"

/* One socket, and the messages that arrived. */
struct fixture {
    struct loop *loop;
    struct notify *notify;
    int fd; /* to send from */
    int n_messages, n_safe_points;
    pid_t pid;
    const char *answer; /* each datagram is answered by one more */
    bool free_it;
    bool slow;              /* each message costs more than the slice of a callback */
    int sender_end, waited; /* the end of a pipe whose other end was passed; how often that was open */
};

static ssize_t send_to(const struct fixture *f, const void *data, size_t len, const int *pass_fds, unsigned n_fds) {
    const char *name = notify_name(f->notify);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    memcpy(addr.sun_path + 1, name + 1, strlen(name) - 1);
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int) * 3)];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct msghdr msg = {
        .msg_name = &addr,
        .msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name)),
        .msg_iov = &iov,
        .msg_iovlen = 1,
    };
    if (n_fds > 0) {
        const size_t size = sizeof(int) * n_fds;
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(size);
        control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(size), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), pass_fds, size);
    }
    return sendmsg(f->fd, &msg, MSG_DONTWAIT);
}

static void say(const struct fixture *f, const char *text) {
    cr_assert_eq(send_to(f, text, strlen(text), NULL, 0), (ssize_t)strlen(text), "%s", strerror(errno));
}

static void on_message(void *arg, pid_t pid, const struct notify_message *message) {
    struct fixture *f = arg;
    f->n_messages++;
    f->n_safe_points += message->safe_point;
    f->pid = pid;
    if (f->answer != NULL)
        say(f, f->answer);
    for (uint64_t end = clock_now_ns() + LOOP_SLICE_NS; f->slow && clock_now_ns() <= end;)
        ;
    if (f->sender_end > 0) /* as long as the message is being handled, its sender waits */
        f->waited += read(f->sender_end, &(char){0}, 1) < 0 && errno == EAGAIN;
    if (f->free_it) {
        notify_free(f->notify);
        f->notify = NULL;
    }
}

static void fixture_init(struct fixture *f) {
    *f = (struct fixture){.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    struct err err = {0};
    cr_assert_geq(f->fd, 0);
    cr_assert_eq(loop_new(&f->loop), 0);
    cr_assert_eq(notify_new(f->loop, on_message, f, &f->notify, &err), 0, "%s", err.text);
}

static void fixture_fini(struct fixture *f) {
    notify_free(f->notify);
    loop_free(f->loop);
    close(f->fd);
}

static struct fixture fix;
static void begin(void) { fixture_init(&fix); }
static void finish(void) { fixture_fini(&fix); }
TestSuite(notify_io, .init = begin, .fini = finish);

Test(notify_io, tells_what_was_said_and_by_whom) {
    cr_assert_eq(notify_name(fix.notify)[0], '@');
    say(&fix, "MUSTER_SAFE_POINT=1");
    say(&fix, "STATUS=fine");
    for (unsigned turns = 0; fix.n_messages < 2 && turns < 2; turns++) /* a turn has a limit of time */
        cr_assert_eq(loop_turn(fix.loop), 0);
    cr_expect_eq(fix.n_messages, 2);
    cr_expect_eq(fix.n_safe_points, 1);
    cr_expect_eq(fix.pid, getpid());
}

Test(notify_io, two_have_different_names) {
    struct fixture other;
    fixture_init(&other);
    cr_expect_str_neq(notify_name(fix.notify), notify_name(other.notify));
    fixture_fini(&other);
}

Test(notify_io, leaves_out_long_and_empty_datagrams_and_passed_descriptors) {
    char big[NOTIFY_BYTES_MAX + 1];
    memset(big, '\n', sizeof big);
    memcpy(big, "MUSTER_SAFE_POINT=1", 19);
    cr_assert_eq(send_to(&fix, big, sizeof big, NULL, 0), (ssize_t)sizeof big);
    cr_assert_eq(send_to(&fix, "", 0, NULL, 0), 0);
    for (int turns = 0; turns < 2; turns++)
        cr_assert_eq(loop_turn(fix.loop), 0);
    cr_expect_eq(fix.n_safe_points, 0);
    unsigned before = rig_open_fds();
    const int fds[] = {STDERR_FILENO, STDERR_FILENO, STDERR_FILENO};
    for (unsigned n = 1; n <= ARRAY_SIZE(fds); n++) {
        cr_assert_eq(send_to(&fix, big, sizeof big - 1, fds, n), (ssize_t)sizeof big - 1);
        cr_assert_eq(loop_turn(fix.loop), 0);
        cr_expect_eq(fix.n_safe_points, (int)n);
        cr_expect_eq(rig_open_fds(), before, "%u descriptors", n);
    }
}

Test(notify_io, a_sender_that_passed_a_pipe_waits_until_its_message_was_handled) {
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    fix.sender_end = ends[0];
    cr_assert_eq(send_to(&fix, "WATCHDOG=1", 10, &ends[1], 1), 10);
    close(ends[1]);
    cr_assert_eq(loop_turn(fix.loop), 0);
    cr_expect_eq(fix.n_messages, 1);
    cr_expect_eq(fix.waited, 1);
    cr_expect_eq(read(ends[0], &(char){0}, 1), 0, "then it is closed");
    close(ends[0]);
}

Test(notify_io, a_chatterer_gets_its_share_of_a_turn_only) {
    fix.answer = "MUSTER_SAFE_POINT=1";
    say(&fix, fix.answer);
    for (int turns = 1, before = 0; turns <= 3; turns++, before = fix.n_messages) {
        cr_assert_eq(loop_turn(fix.loop), 0);
        cr_expect_eq(fix.n_messages, before + 1);
    }
    fix.slow = true;
    int before = fix.n_messages;
    cr_assert_eq(loop_turn(fix.loop), 0);
    cr_expect_eq(fix.n_messages, before + 1);
}

static void on_output(void *arg, int fd, unsigned events) { *(int *)arg += read(fd, &(char){0}, 1) == 1; }

Test(notify_io, a_chatterer_keeps_the_output_of_workers_waiting_for_no_longer_than_its_turn) {
    struct loop_watch *watch;
    int ends[2], read_so_far = 0;
    cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    watch = loop_watch_new(fix.loop, ends[0], LOOP_READ, LOOP_PRIO_BULK, on_output, &read_so_far);
    fix.answer = "WATCHDOG=1";
    say(&fix, fix.answer);
    cr_assert_eq(loop_turn(fix.loop), 0);
    cr_assert_eq(write(ends[1], "x", 1), 1);
    rig_loop_turns(fix.loop, 4);
    cr_expect_eq(read_so_far, 1);
    loop_watch_free(watch);
    close(ends[0]);
    close(ends[1]);
}

Test(notify_io, may_be_freed_in_its_callback) {
    fix.free_it = true;
    say(&fix, "A=1");
    say(&fix, "A=1");
    cr_assert_eq(loop_turn(fix.loop), 0);
    cr_expect_eq(fix.n_messages, 1);
}
