#include "launcher/node/health_check_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/envlist.h"
#include "base/text/tail.h"
#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/file.h"

enum { OUT = 0, ERR, STREAMS };

struct health_check {
    struct child_watch *child;
    struct loop_timer *timer;
    uint64_t timeout_ns;
    bool late; /* the time is up: its group was killed */
    struct stream {
        int fd; /* read end, non-blocking */
        struct loop_watch *watch;
        struct tail tail;
    } streams[STREAMS];
    health_check_fn *fn;
    void *arg;
};

void health_check_free(struct health_check *c) {
    if (c == NULL)
        return;
    if (c->child != NULL && child_watch_alive(c->child))
        (void)!child_watch_kill_group(c->child, SIGKILL);
    child_watch_let_go(c->child);
    loop_timer_free(c->timer);
    for (int i = 0; i < STREAMS; i++) {
        loop_watch_free(c->streams[i].watch);
        file_close(&c->streams[i].fd);
        tail_fini(&c->streams[i].tail);
    }
    free(c);
}

/* Returns whether more can come. */
static bool take(struct stream *s) {
    char buf[4096];
    ssize_t n = read(s->fd, buf, sizeof buf);
    if (n > 0)
        tail_add(&s->tail, buf, (size_t)n);
    return n > 0 || (n < 0 && errno == EINTR);
}

static void on_output(void *arg, int fd, unsigned events) {
    struct stream *s = arg;
    if (!take(s) && errno != EAGAIN)
        loop_watch_set(s->watch, 0);
}

/* The last line that is not empty. */
static void last_line(const struct stream *s, char out[HEALTH_LINE_MAX + 1]) {
    const char *text = tail_lines(&s->tail);
    size_t end = strlen(text), begin;
    while (end > 0 && strchr(" \t\r\n", text[end - 1]) != NULL)
        end--;
    for (begin = end; begin > 0 && text[begin - 1] != '\n';)
        begin--;
    begin += strspn(text + begin, " \t");
    _cleanup_(freep) char *line = xstrndup(text + begin, end - begin);
    utf8_copy_line(out, HEALTH_LINE_MAX + 1, line);
}

static enum health_result judge(const struct health_check *c, const struct child_status *status,
                                char text[HEALTH_TEXT_MAX]) {
    char line[HEALTH_LINE_MAX + 1], what[HEALTH_TEXT_MAX - HEALTH_LINE_MAX - 2];
    last_line(&c->streams[OUT], line);
    if (line[0] == '\0')
        last_line(&c->streams[ERR], line);
    if (!c->late && !status->signalled && status->code <= 1) {
        (void)strcpy(text, line[0] != '\0' ? line : "the health check failed without a message");
        return status->code == 1 ? HEALTH_NOT_FIT : HEALTH_FIT;
    }
    if (c->late)
        (void)snprintf(what, sizeof what, "it did not end within %.3g s",
                       (double)c->timeout_ns / (double)NS_PER_S);
    else
        (void)snprintf(what, sizeof what, "it %s %d",
                       status->signalled ? "died of signal" : "ended with status", status->code);
    (void)snprintf(text, HEALTH_TEXT_MAX, "%s%s%s", what, line[0] != '\0' ? ": " : "", line);
    return HEALTH_NOT_KNOWN;
}

/* The shell has ended, and is not reaped yet: its group is still its own. */
static void on_zombie(void *arg, pid_t pid) { (void)kill(-pid, SIGKILL); }

static void on_exit_of(void *arg, const struct child_status *status) {
    struct health_check *c = arg;
    char text[HEALTH_TEXT_MAX];
    for (int i = 0; i < STREAMS; i++)
        for (int n = 0; n < 16 && take(&c->streams[i]); n++) /* a full pipe */
            ;
    enum health_result result = judge(c, status, text);
    health_check_fn *fn = c->fn;
    void *whom = c->arg;
    health_check_free(c);
    fn(whom, result, text);
}

static void on_timeout(void *arg) {
    struct health_check *c = arg;
    c->late = true;
    (void)!child_watch_kill_group(c->child, SIGKILL);
}

static int spawn(struct health_check *c, struct child_reaper *reaper,
                 const struct health_check_config *config, const int fds[3], struct err *err) {
    _cleanup_(envlist_fini) struct envlist env = {0};
    static char sh[] = "/bin/sh", flag[] = "-c";
    char *argv[] = {sh, flag, (char *)(uintptr_t)config->command, NULL};
    struct child_spec spec = CHILD_SPEC_INIT;
    struct child child = CHILD_INIT;
    envlist_copy(&env, config->envp);
    envlist_set(&env, "MUSTER_HEALTH_WHEN", config->after_failure ? "failure" : "join");
    spec.argv = argv;
    spec.envp = envlist_items(&env);
    spec.stdin_fd = fds[0];
    spec.stdout_fd = fds[1];
    spec.stderr_fd = fds[2];
    spec.setsid = true; /* so what asks for a password fails at once */
    spec.death_signal = SIGKILL;
    spec.nofile_soft = config->nofile_soft;
    int r = child_spawn(&spec, &child, err);
    if (r == 0)
        c->child = child_watch_new(reaper, &child, on_zombie, on_exit_of, c);
    return r;
}

int health_check_new(struct loop *loop, struct child_reaper *reaper,
                     const struct health_check_config *config, health_check_fn *fn, void *arg,
                     struct health_check **ret, struct err *err) {
    struct health_check *c = xcalloc(1, sizeof *c);
    *c = (struct health_check){.timeout_ns = config->timeout_ns,
                               .streams = {{.fd = -1}, {.fd = -1}},
                               .fn = fn,
                               .arg = arg};
    int fds[3] = {open("/dev/null", O_RDONLY | O_CLOEXEC), -1, -1};
    int r = fds[0] < 0 ? -errno : 0;
    for (int i = 0; i < STREAMS && r == 0; i++) {
        struct stream *s = &c->streams[i];
        r = child_pipe(&s->fd, &fds[1 + i]);
        if (r == 0)
            s->watch = loop_watch_new(loop, s->fd, LOOP_READ, LOOP_PRIO_BULK, on_output, s);
    }
    if (r == 0)
        r = spawn(c, reaper, config, fds, err);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        file_close(&fds[i]);
    if (r < 0) {
        health_check_free(c);
        return err->text[0] != '\0' ? r : err_set(err, r, "%s", strerror(-r));
    }
    c->timer = loop_timer_new(loop, on_timeout, c);
    loop_timer_set(c->timer, clock_now_ns() + config->timeout_ns);
    *ret = c;
    return 0;
}
