#include "io/process/helper_call.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/text/strbuf.h"
#include "io/clock.h"
#include "io/file.h"

#define READ_BYTES ((size_t)64 << 10)
#define COMMAND_BYTES_MAX ((size_t)1 << 20)
#define PIPE_BYTES (1 << 20) /* so the helper need not wait for a busy reader */

struct helper_call {
    struct helper helper;
    struct loop_watch *watch;
    struct loop_timer *timer;
    int fd; /* read end, non-blocking */
    uint64_t end_ns;
    size_t max_bytes;
    bool may_linger;
    struct strbuf bytes; /* what has arrived */
    void (*on_more)(void *arg, const char *data, size_t len);
    helper_call_fn *fn;
    void *arg;
};

const char *helper_call_why(int code) {
    return code == -EAGAIN
               ? "no process can be started: is the limit of processes (ulimit -u) used up?"
               : strerror(-code);
}

void helper_call_free(struct helper_call *c) {
    if (c == NULL)
        return;
    loop_watch_free(c->watch);
    loop_timer_free(c->timer);
    helper_end(&c->helper);
    file_close(&c->fd);
    strbuf_fini(&c->bytes);
    free(c);
}

/* Reads what has arrived. 0: the answer is complete; -EAGAIN: more can come. */
static int take(struct helper_call *c) {
    char buf[READ_BYTES];
    ssize_t n = read(c->fd, buf, sizeof buf);
    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    strbuf_add_bytes(&c->bytes, buf, (size_t)n);
    explicit_bzero(buf, (size_t)n); /* an answer can be a key */
    return n == 0 ? 0 : c->bytes.len > c->max_bytes ? -EMSGSIZE : -EAGAIN;
}

static struct helper_answer answer_of(const struct helper_call *c, int code) {
    return (struct helper_answer){
        .code = code, .data = strbuf_text(&c->bytes), .len = c->bytes.len};
}

/* A helper that has sent everything ends by itself when its own children have ended. */
static void finish(struct helper_call *c, int code) {
    struct helper_call over = *c;
    struct helper_answer answer = answer_of(&over, code);
    if (code == 0 || c->may_linger)
        helper_let_go(&c->helper);
    c->bytes = (struct strbuf){0};
    helper_call_free(c);
    over.fn(over.arg, &answer);
    strbuf_fini(&over.bytes);
}

static void on_readable(void *arg, int fd, unsigned events) {
    struct helper_call *c = arg;
    int r = take(c);
    if (r != -EAGAIN)
        finish(c, r);
    else if (c->on_more != NULL)
        c->on_more(c->arg, strbuf_text(&c->bytes), c->bytes.len);
}

static void on_timeout(void *arg) { finish(arg, -ETIMEDOUT); }

int helper_call_new(struct loop *loop, const struct helper_call_config *config, helper_call_fn *fn,
                    void *arg, struct helper_call **ret) {
    struct helper_call *c = xcalloc(1, sizeof *c);
    _cleanup_(file_close) int write_fd = -1;
    *c = (struct helper_call){.helper = HELPER_INIT,
                              .fd = -1,
                              .end_ns = clock_now_ns() + config->timeout_ns,
                              .max_bytes = config->max_bytes,
                              .may_linger = config->may_linger,
                              .on_more = config->on_more,
                              .fn = fn,
                              .arg = arg};
    int r = child_pipe(&c->fd, &write_fd);
    if (r == 0 && loop == NULL)
        (void)fcntl(c->fd, F_SETPIPE_SZ, PIPE_BYTES);
    if (r == 0 && loop != NULL)
        c->watch = loop_watch_new(loop, c->fd, LOOP_READ, LOOP_PRIO_CHILD, on_readable, c);
    if (loop != NULL)
        c->timer = loop_timer_new(loop, on_timeout, c);
    if (r == 0)
        r = helper_start(loop, config->name, config->run, config->arg, write_fd, &c->helper);
    if (r < 0) {
        helper_call_free(c);
        return r;
    }
    if (loop != NULL)
        loop_timer_set(c->timer, c->end_ns);
    *ret = c;
    return 0;
}

struct command {
    const char *const *words;
    bool errors;
};

static int become(int fd, void *arg) {
    const struct command *c = arg;
    (void)setsid(); /* what it starts ends with it */
    if (dup2(fd, STDOUT_FILENO) >= 0 && (!c->errors || dup2(fd, STDERR_FILENO) >= 0))
        (void)execvp(c->words[0], (char *const *)(uintptr_t)c->words);
    return 1;
}

int helper_command(struct loop *loop, const char *const words[], bool errors, uint64_t timeout_ns,
                   helper_call_fn *fn, void *arg, struct helper_call **ret) {
    struct command command = {words, errors};
    const struct helper_call_config config = {.name = "muster-command",
                                              .run = become,
                                              .arg = &command,
                                              .timeout_ns = timeout_ns,
                                              .max_bytes = COMMAND_BYTES_MAX};
    return helper_call_new(loop, &config, fn, arg, ret);
}

const char *helper_answer_line(const struct helper_answer *a, size_t *ret_len) {
    const char *end = memrchr(a->data, '\n', a->len);
    const char *before = end != NULL ? memrchr(a->data, '\n', (size_t)(end - a->data)) : NULL;
    const char *begin = before != NULL ? before + 1 : a->data;
    *ret_len = end != NULL ? (size_t)(end - begin) : 0;
    return end != NULL ? begin : "";
}

pid_t helper_call_pid(const struct helper_call *c) { return helper_pid(&c->helper); }

void helper_call_wait(struct helper_call *c, struct helper_answer *ret) {
    int r;
    do {
        uint64_t now = clock_now_ns(), left = c->end_ns > now ? c->end_ns - now : 0;
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        int n = poll(&p, 1, (int)MIN2((left + NS_PER_MS - 1) / NS_PER_MS, (uint64_t)INT32_MAX));
        r = n > 0 ? take(c) : n == 0 ? -ETIMEDOUT : errno == EINTR ? -EAGAIN : -errno;
    } while (r == -EAGAIN);
    *ret = answer_of(c, r);
}

bool helper_answer_take(const struct helper_answer *a, void *ret, size_t n) {
    if (a->len != n)
        return false;
    memcpy(ret, a->data, n);
    explicit_bzero((char *)(uintptr_t)a->data, n);
    return true;
}

int helper_ask(const struct helper_call_config *config, void *ret) {
    struct helper_call *call;
    struct helper_answer answer;
    int r = helper_call_new(NULL, config, NULL, NULL, &call);
    if (r < 0)
        return r;
    helper_call_wait(call, &answer);
    if (!helper_answer_take(&answer, ret, config->max_bytes))
        r = answer.code == -ETIMEDOUT ? -ETIMEDOUT : -EIO;
    helper_call_free(call);
    return r;
}
