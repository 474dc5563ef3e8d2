#include "fake_service.h"

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include "rig/unit.h"

static bool say(int fd, const char *text, size_t n) {
    while (n > 0) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        text += sent;
        n -= (size_t)sent;
    }
    return true;
}

static void say_the_last(const struct fake_service *f, int fd, const char *text) {
    char block[4096]; /* the text many times */
    size_t len = 0;
    uint64_t times = 0;
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec second = {.it_interval = {.tv_sec = 1}, .it_value = {.tv_sec = 1}};
    switch (f->manner) {
    case FAKE_AT_ONCE: (void)say(fd, text, strlen(text)); break;
    case FAKE_ENDLESSLY:
        while (len + strlen(text) < sizeof block)
            len = (size_t)(stpcpy(block + len, text) - block);
        while (say(fd, block, len))
            ;
        break;
    case FAKE_A_BYTE_A_SECOND:
        (void)timerfd_settime(timer, 0, &second, NULL);
        for (const char *p = text; say(fd, p, 1); p = p[1] != '\0' ? p + 1 : text)
            if (read(timer, &times, sizeof times) < 0)
                break;
        break;
    }
    close(timer);
}

static void converse(const struct fake_service *f, int fd) {
    char buffer[4096];
    size_t n = 0;
    for (;;) {
        char *newline = memchr(buffer, '\n', n);
        if (newline == NULL) {
            ssize_t got = read(fd, buffer + n, sizeof buffer - n);
            if (got <= 0)
                return;
            n += (size_t)got;
            continue;
        }
        *newline = '\0';
        bool end = false;
        const char *text = f->reply(f->arg, buffer, &end);
        if (end) {
            say_the_last(f, fd, text);
            return;
        }
        if (text != NULL && !say(fd, text, strlen(text)))
            return;
        size_t used = (size_t)(newline - buffer) + 1;
        n -= used;
        memmove(buffer, newline + 1, n);
    }
}

void fake_service_start(struct fake_service *f) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(f->path != NULL ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof in;
    if (f->path != NULL) {
        (void)snprintf(un.sun_path, sizeof un.sun_path, "%s", f->path);
        cr_assert_eq(bind(fd, (struct sockaddr *)&un, sizeof un), 0);
    } else {
        cr_assert_eq(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
        cr_assert_eq(getsockname(fd, (struct sockaddr *)&in, &size), 0);
        f->port = ntohs(in.sin_port);
    }
    cr_assert_eq(listen(fd, 8), 0);
    pid_t parent = getpid();
    f->pid = fork();
    cr_assert_geq(f->pid, 0);
    if (f->pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
            _exit(1);
        for (int client; (client = accept(fd, NULL, NULL)) >= 0;) {
            converse(f, client);
            close(client);
        }
        _exit(0);
    }
    close(fd);
}

void fake_service_stop(struct fake_service *f) {
    if (f->pid <= 0)
        return;
    (void)kill(f->pid, SIGKILL);
    (void)waitpid(f->pid, NULL, 0);
    f->pid = 0;
    if (f->path != NULL)
        (void)unlink(f->path);
}

pid_t fake_recorder_start(const char *fifo, const char *dump, off_t size) {
    int ready[2];
    char byte = 0;
    cr_assert(mkfifo(fifo, 0600) == 0 && pipe2(ready, O_CLOEXEC) == 0);
    pid_t parent = getpid(), child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        int in = open(fifo, O_RDWR | O_CLOEXEC);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent || write(ready[1], "r", 1) != 1 ||
            read(in, &byte, 1) != 1)
            _exit(1);
        int out = size < 0 ? -1 : open(dump, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        (void)!write(out, "pickle", 6);
        (void)!ftruncate(out, size);
        (void)close(out);
        for (;;)
            pause();
    }
    close(ready[1]);
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}
