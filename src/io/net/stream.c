#include "io/net/stream.h"

#include <errno.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "io/net/tls_pipe.h"

struct stream {
    struct loop *loop;
    struct loop_watch *watch;
    struct loop_timer *finish_timer; /* while finishing */
    /* while finishing: frees the stream with the loop, because it has no other owner */
    struct loop_hook hook;
    struct stream_ops ops;
    void *arg;
    int fd;
    enum loop_priority prio;
    unsigned refs; /* one of the owner, one for each running call, one for deferred work */

    bool connecting : 1;
    bool paused : 1;
    bool dead : 1;      /* freed by its owner: no more callbacks */
    bool finishing : 1; /* stream_finish() */
    bool ended : 1;     /* on_closed was called, or will be by deferred work */
    bool deferred : 1;  /* turn_end is queued, for: */
    bool want_read : 1;
    bool want_flush : 1;
    bool want_readable : 1;
    bool want_closed : 1;
    bool plain_sent : 1; /* TLS: since the last on_drained; not only the handshake */
    bool blocked : 1;    /* the kernel's buffer is full: wait for LOOP_WRITE */

    int broken; /* negative errno of a failed write or connect */
    size_t read_limit;

    /* If on_readable runs while `in` is empty, the unread bytes are on the reader's stack: what is
     * consumed at once is never copied, and idle streams need no memory. */
    const uint8_t *direct;
    size_t direct_len;
    struct evbuffer *in;  /* NULL until needed */
    struct evbuffer *out; /* NULL until needed */

    /* With TLS `in` and `out` hold plain bytes; encrypted ones are in there. Else NULL. */
    struct tls_pipe *tls;
};

/* The handshake is not done. */
static inline bool stream_is_shaking(const struct stream *s) {
    return s->tls != NULL && !tls_pipe_is_open(s->tls);
}

static int stream_send_secured(struct stream *s);
static void stream_read_secured(struct stream *s);
static void stream_update_interest(struct stream *s);

/* The bytes of one read, and so the most that one stream may read in a turn. */
#define READ_CHUNK 65536
#define READ_LIMIT_DEFAULT ((size_t)1 << 20)
/* Pieces of one sendmsg(); at most IOV_MAX. */
#define WRITE_PIECES 64
#define KEEPALIVE_MAX_S 32767 /* of TCP_KEEPIDLE, tcp(7) */
#define KEEPALIVE_PROBES 3

static void unref(struct stream *s) {
    if (--s->refs > 0)
        return;
    if (s->in != NULL)
        evbuffer_free(s->in);
    if (s->out != NULL)
        evbuffer_free(s->out);
    tls_pipe_free(s->tls);
    free(s);
}

static struct evbuffer *need_buffer(struct evbuffer **b) {
    if (*b == NULL)
        *b = evbuffer_new();
    if (*b == NULL)
        abort(); /* a few bytes, whose size muster chose */
    return *b;
}

static bool stream_may_read(const struct stream *s) {
    if (s->dead || s->ended || s->connecting || s->want_closed) /* recv() would hide the errno */
        return false;
    if (s->finishing) /* what is queued waits for the handshake */
        return stream_is_shaking(s) && stream_unsent(s) > 0;
    /* want_readable: report the unread bytes first, because reading can find the end */
    return stream_is_shaking(s) ||
           (!s->paused && !s->want_readable && stream_available(s) < s->read_limit);
}

static void defer(struct stream *s);

/* What is wanted of the socket, and whether TLS has more to decrypt, from the stream's state. */
static void stream_update_interest(struct stream *s) {
    if (s->watch == NULL)
        return;
    unsigned events = 0;
    if (stream_may_read(s)) {
        events |= LOOP_READ;
        if (s->tls != NULL && tls_pipe_has_more(s->tls)) {
            s->want_read = true;
            defer(s);
        }
    }
    if (s->blocked || s->connecting)
        events |= LOOP_WRITE;
    loop_watch_set(s->watch, events);
}

static void close_socket(struct stream *s) {
    loop_watch_free(s->watch);
    s->watch = NULL;
    loop_timer_free(s->finish_timer);
    s->finish_timer = NULL;
    file_close(&s->fd);
}

/* These call the user, who may free the stream: hold a reference. */
static void stream_report_readable(struct stream *s) {
    s->refs++;
    s->ops.on_readable(s->arg, s);
    if (s->direct_len > 0 && !s->dead) /* keep what was not consumed */
        if (evbuffer_add(need_buffer(&s->in), s->direct, s->direct_len) < 0)
            abort();
    s->direct = NULL;
    s->direct_len = 0;
    if (!s->dead)
        stream_update_interest(s);
    unref(s);
}

static void stream_report_closed(struct stream *s, int code) {
    s->ended = true;
    if (code < 0) {
        s->broken = code;
        s->blocked = false;
    }
    stream_update_interest(s);
    s->ops.on_closed(s->arg, s, code);
}

static void stream_drop_unsent(struct stream *s) {
    if (s->out != NULL)
        evbuffer_drain(s->out, evbuffer_get_length(s->out));
    if (s->tls != NULL)
        evbuffer_drain(tls_pipe_out(s->tls), evbuffer_get_length(tls_pipe_out(s->tls)));
}

/* Writing failed. What the peer sent before is still read; then on_closed is called. */
static void write_failed(struct stream *s, int code) {
    s->broken = code;
    s->blocked = false;
    stream_drop_unsent(s);
    if (s->finishing) {
        stream_free(s);
        return;
    }
    stream_update_interest(s);
    if (!s->ended && (s->paused || stream_available(s) >= s->read_limit))
        stream_report_closed(s, code);
}

/* 0 if everything was sent, the kernel's buffer is full, or the slice is over (with a fast reader
 * the buffer never gets full); negative errno if the connection broke. */
static int stream_send_some(struct stream *s, struct evbuffer *from) {
    while (evbuffer_get_length(from) > 0) {
        struct evbuffer_iovec pieces[WRITE_PIECES];
        int n = evbuffer_peek(from, -1, NULL, pieces, WRITE_PIECES);
        struct iovec iov[WRITE_PIECES];
        size_t offered = 0;
        n = MIN2(n, WRITE_PIECES);
        for (int i = 0; i < n; i++) {
            iov[i] = (struct iovec){pieces[i].iov_base, pieces[i].iov_len};
            offered += pieces[i].iov_len;
        }
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)n};
        ssize_t sent = sendmsg(s->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == ENOTSOCK)
            sent = writev(s->fd, iov, n);
        if (sent < 0) {
            if (errno == EINTR)
                continue;
            s->blocked = errno == EAGAIN || errno == ENOBUFS;
            return s->blocked ? 0 : -errno;
        }
        evbuffer_drain(from, (size_t)sent);
        if ((size_t)sent < offered || loop_slice_is_over(s->loop)) {
            s->blocked = evbuffer_get_length(from) > 0;
            return 0;
        }
    }
    s->blocked = false;
    return 0;
}

static void flush(struct stream *s) {
    if (s->fd < 0 || s->connecting || s->broken < 0 || (stream_unsent(s) == 0 && s->tls == NULL))
        return;
    int r = s->tls != NULL ? stream_send_secured(s) : stream_send_some(s, s->out);
    if (r < 0) {
        write_failed(s, r);
        return;
    }
    stream_update_interest(s);
    if (stream_unsent(s) > 0)
        return;
    if (s->finishing) {
        stream_free(s);
    } else if (s->ops.on_drained != NULL && (s->tls == NULL || s->plain_sent)) {
        s->plain_sent = false;
        s->ops.on_drained(s->arg, s);
    }
}

static void on_turn_end(void *arg);

static void defer(struct stream *s) {
    if (s->deferred)
        return;
    s->deferred = true;
    s->refs++;
    loop_defer(s->loop, s->prio, on_turn_end, s);
}

static void read_some(struct stream *s) {
    uint8_t chunk[READ_CHUNK];
    size_t have = stream_available(s);
    size_t want = MIN2(sizeof chunk, s->read_limit - have);
    ssize_t n = recv(s->fd, chunk, want, MSG_DONTWAIT);
    if (n < 0) {
        if (errno != EINTR && errno != EAGAIN)
            stream_report_closed(s, -errno);
        return;
    }
    if (n == 0) {
        stream_report_closed(s, s->broken);
        return;
    }
    if (have == 0) {
        s->direct = chunk;
        s->direct_len = (size_t)n;
    } else if (evbuffer_add(s->in, chunk, (size_t)n) < 0) {
        stream_report_closed(s, -ENOMEM);
        return;
    }
    stream_report_readable(s);
}

static void read_if_wanted(struct stream *s) {
    if (!stream_may_read(s))
        return;
    if (s->tls != NULL)
        stream_read_secured(s);
    else
        read_some(s);
}

static void on_turn_end(void *arg) {
    struct stream *s = arg;
    s->deferred = false;
    if (!s->dead && s->want_closed && !s->ended) {
        s->want_closed = false;
        stream_report_closed(s, s->broken);
    }
    if (!s->dead && s->want_readable) {
        s->want_readable = false;
        if (!s->paused && !s->finishing && stream_available(s) > 0)
            stream_report_readable(s);
        else
            stream_update_interest(s);
    }
    if (!s->dead && s->want_read) {
        s->want_read = false;
        read_if_wanted(s);
    }
    if (!s->dead && s->want_flush) {
        s->want_flush = false;
        if (!s->blocked)
            flush(s);
    }
    unref(s);
}

static void connect_done(struct stream *s) {
    int code = 0;
    socklen_t len = sizeof code;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &code, &len) < 0)
        code = errno;
    s->connecting = false;
    if (code != 0) {
        s->broken = -code;
        if (s->finishing)
            stream_free(s);
        else
            stream_report_closed(s, -code);
        return;
    }
    stream_update_interest(s);
    flush(s);
}

static void on_event(void *arg, int fd, unsigned events) {
    struct stream *s = arg;
    s->refs++;
    if (s->connecting) {
        connect_done(s);
    } else {
        if (events & LOOP_WRITE) {
            s->blocked = false;
            flush(s);
        }
        if (events & LOOP_READ)
            read_if_wanted(s);
    }
    unref(s);
}

static struct stream *stream_make(struct loop *loop, int fd, bool connecting,
                                  const struct stream_ops *ops, void *arg) {
    int one = 1, flags = fcntl(fd, F_GETFL);
    bool is_open = flags >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 &&
                   ((flags & O_NONBLOCK) != 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
    assert(is_open);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* a UNIX socket has none */
    struct stream *s = xcalloc(1, sizeof *s);
    s->loop = loop;
    s->fd = fd;
    s->refs = 1;
    s->ops = *ops;
    s->arg = arg;
    s->prio = LOOP_PRIO_BULK;
    s->read_limit = READ_LIMIT_DEFAULT;
    s->connecting = connecting;
    s->watch = loop_watch_new(loop, fd, connecting ? LOOP_WRITE : LOOP_READ, s->prio, on_event, s);
    return s;
}

struct stream *stream_new(struct loop *loop, int fd, const struct stream_ops *ops, void *arg) {
    return stream_make(loop, fd, false, ops, arg);
}

/* The kernel chooses the port once the destination is known: it needs few for many, ip(7). */
static int bind_to(int fd, const struct addr *from) {
    struct addr local = *from;
    int on = 1;
    addr_set_port(&local, 0);
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    return bind(fd, (const struct sockaddr *)&local.ss, local.len) < 0 ? errno : 0;
}

int stream_connect(struct loop *loop, const struct addr *from, const struct addr *to,
                   const struct stream_ops *ops, void *arg, struct stream **ret) {
    int fd = socket(to->ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int code = from == NULL ? 0 : bind_to(fd, from);
    while (code == 0 && connect(fd, (const struct sockaddr *)&to->ss, to->len) < 0) {
        if (errno == EINTR)
            continue;
        code = errno == EINPROGRESS || errno == EALREADY || errno == EISCONN ? 0 : errno;
        break;
    }
    struct stream *s = stream_make(loop, fd, true, ops, arg);
    if (code != 0) { /* reported later like every other failure, not from inside this call */
        s->connecting = false;
        s->broken = -code;
        s->want_closed = true;
        loop_watch_set(s->watch, 0);
        defer(s);
    }
    *ret = s;
    return 0;
}

void stream_free(struct stream *s) {
    if (s == NULL || s->dead)
        return;
    s->dead = true;
    list_remove(&s->hook.link);
    close_socket(s);
    unref(s);
}

/* If a socket is closed with unread bytes, the kernel drops what it has not yet delivered. */
static void discard_input(int fd) {
    uint8_t chunk[READ_CHUNK];
    for (int i = 0; i < 16; i++)
        if (recv(fd, chunk, sizeof chunk, MSG_DONTWAIT) <= 0)
            return;
}

static void on_finish_timeout(void *arg) { stream_free(arg); }

void stream_finish(struct stream *s, uint64_t deadline_ns) {
    if (s == NULL || s->dead)
        return;
    s->refs++;
    s->finishing = true;
    s->want_closed = false;
    if (!s->connecting && !s->blocked)
        flush(s); /* frees it if everything was sent */
    if (!s->dead && (stream_unsent(s) == 0 || s->broken < 0)) {
        discard_input(s->fd);
        stream_free(s);
    }
    if (!s->dead && deadline_ns <= clock_now_ns())
        stream_free(s);
    if (!s->dead) {
        s->finish_timer = loop_timer_new(s->loop, on_finish_timeout, s);
        s->hook = (struct loop_hook){.fn = on_finish_timeout, .arg = s};
        loop_add_hook(s->loop, &s->hook);
        loop_timer_set(s->finish_timer, deadline_ns);
        stream_update_interest(s);
    }
    unref(s);
}

void stream_read_soon(struct stream *s) {
    s->want_read = true;
    defer(s);
}

int stream_fd(const struct stream *s) { return s->fd; }

void stream_set_priority(struct stream *s, enum loop_priority prio) {
    s->prio = prio; /* work that is already deferred keeps its priority */
    if (s->watch != NULL)
        loop_watch_set_priority(s->watch, prio);
}

void stream_set_read_limit(struct stream *s, size_t bytes) {
    s->read_limit = MAX2(bytes, (size_t)1);
    if (s->direct == NULL)
        stream_update_interest(s);
}

static void set_tcp(int fd, int option, int value) {
    (void)setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value); /* a UNIX socket has none */
}

/* In whole seconds, as the kernel expects; at least one. */
static int keepalive_s(uint64_t ns) {
    return (int)MIN2(MAX2((ns + NS_PER_S - 1) / NS_PER_S, (uint64_t)1), (uint64_t)KEEPALIVE_MAX_S);
}

void stream_set_patience(struct stream *s, uint64_t unacked_ns, uint64_t idle_ns) {
    if (s->fd < 0)
        return;
    uint64_t ms = MAX2(unacked_ns / NS_PER_MS, (uint64_t)1);
    set_tcp(s->fd, TCP_USER_TIMEOUT, (int)MIN2(ms, (uint64_t)INT32_MAX));
    set_tcp(s->fd, TCP_KEEPIDLE, keepalive_s(idle_ns));
    set_tcp(s->fd, TCP_KEEPINTVL, 1);
    set_tcp(s->fd, TCP_KEEPCNT, KEEPALIVE_PROBES);
    int one = 1;
    (void)setsockopt(s->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
}

size_t stream_available(const struct stream *s) {
    if (s->direct != NULL)
        return s->direct_len;
    return s->in != NULL ? evbuffer_get_length(s->in) : 0;
}

const uint8_t *stream_peek(struct stream *s, size_t n) {
    if (stream_available(s) < n)
        return NULL;
    if (s->direct != NULL)
        return s->direct;
    return evbuffer_pullup(need_buffer(&s->in), (ev_ssize_t)n);
}

const uint8_t *stream_peek_run(struct stream *s, size_t *ret_len) {
    if (s->direct != NULL) {
        *ret_len = s->direct_len;
        return s->direct;
    }
    *ret_len = s->in != NULL ? evbuffer_get_contiguous_space(s->in) : 0;
    return *ret_len > 0 ? evbuffer_pullup(s->in, (ev_ssize_t)*ret_len) : NULL;
}

void stream_drain(struct stream *s, size_t n) {
    if (s->direct != NULL) {
        n = MIN2(n, s->direct_len);
        s->direct += n;
        s->direct_len -= n;
        return;
    }
    if (s->in == NULL)
        return;
    (void)evbuffer_drain(s->in, n);
    if (!s->dead)
        stream_update_interest(s);
}

void stream_read_later(struct stream *s) {
    s->want_readable = true;
    defer(s);
}

static bool stream_takes_bytes(const struct stream *s) {
    /* the peer may have closed only its own half */
    return !s->dead && !s->finishing && s->broken == 0;
}

/* Something is to be sent at the end of the turn. */
static void stream_queued(struct stream *s) {
    s->want_flush = true;
    if (!s->blocked && !s->connecting)
        defer(s);
}

void stream_write(struct stream *s, const void *data, size_t len) {
    if (len == 0 || !stream_takes_bytes(s))
        return;
    if (evbuffer_add(need_buffer(&s->out), data, len) < 0)
        abort();
    stream_queued(s);
}

void stream_write_now(struct stream *s, const void *data, size_t len) {
    if (s->tls == NULL && stream_takes_bytes(s) && !s->connecting && !s->blocked &&
        stream_unsent(s) == 0) {
        ssize_t n = send(s->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) { /* an error occurs again, and is reported, when the queue is sent */
            data = (const uint8_t *)data + n;
            len -= (size_t)n;
        }
    }
    stream_write(s, data, len);
}

struct release {
    void (*fn)(void *arg);
    void *arg;
};

static void on_release(const void *data, size_t len, void *arg) {
    struct release *r = arg;
    if (r->fn != NULL)
        r->fn(r->arg);
    free(r);
}

void stream_write_ref(struct stream *s, const void *data, size_t len,
                      void (*release)(void *release_arg), void *release_arg) {
    if (len == 0 || !stream_takes_bytes(s)) {
        if (release != NULL)
            release(release_arg);
        return;
    }
    struct release *r = xcalloc(1, sizeof *r);
    r->fn = release;
    r->arg = release_arg;
    if (evbuffer_add_reference(need_buffer(&s->out), data, len, on_release, r) < 0)
        abort();
    stream_queued(s);
}

size_t stream_unsent(const struct stream *s) {
    size_t n = s->out != NULL ? evbuffer_get_length(s->out) : 0;
    return s->tls != NULL ? n + evbuffer_get_length(tls_pipe_out(s->tls)) : n;
}

void stream_pause(struct stream *s) {
    s->paused = true;
    stream_update_interest(s);
}

void stream_resume(struct stream *s) {
    if (!s->paused)
        return;
    s->paused = false;
    if (s->direct != NULL)
        return; /* inside on_readable: the interest is updated when it returns */
    if (stream_available(s) > 0)
        stream_read_later(s);
    stream_update_interest(s);
}

/* The bytes of one read, and as many plain ones. */
#define TLS_CHUNK 32768

static bool has_plain(const struct stream *s) {
    return s->out != NULL && evbuffer_get_length(s->out) > 0;
}

/* As stream_send_some(), of what waits to be encrypted, too. */
static int stream_send_secured(struct stream *s) {
    for (;;) {
        int r = 0;
        if (has_plain(s) && !tls_pipe_must_read(s->tls)) {
            s->plain_sent = true;
            r = tls_pipe_take(s->tls, s->out);
        }
        if (r == 0 && s->finishing && !has_plain(s))
            tls_pipe_end(s->tls);
        if (r == 0)
            r = stream_send_some(s, tls_pipe_out(s->tls));
        if (r < 0 || s->blocked || !has_plain(s) || tls_pipe_must_read(s->tls))
            return r;
        if (loop_slice_is_over(s->loop)) {
            s->blocked = true; /* as if the kernel had not taken it all */
            return 0;
        }
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The handshake failed, or what came later is not from the peer. */
static void failed(struct stream *s, int code) {
    if (s->fd >= 0 && s->broken == 0)
        (void)stream_send_some(s, tls_pipe_out(s->tls)); /* TLS's alert, with the reason */
    stream_drop_unsent(s);
    if (s->finishing)
        stream_free(s);
    else
        stream_report_closed(s, code);
}

/* The socket has no more bytes (code 0), or has failed. */
static void socket_ended(struct stream *s, int code) {
    if (stream_is_shaking(s)) {
        tls_pipe_set_why(s->tls, "the connection ended in the TLS handshake");
    } else if (code == 0 && tls_pipe_is_inside_record(s->tls)) {
        tls_pipe_set_why(s->tls, "the connection ended inside a TLS record");
        code = -EPROTO;
    }
    if (s->finishing)
        stream_free(s);
    else
        stream_report_closed(s, code < 0 ? code : s->broken);
}

/* Reads a part. False: there is nothing to decrypt, and the end was reported. */
static bool receive(struct stream *s, uint8_t chunk[TLS_CHUNK], size_t *ret_len) {
    *ret_len = 0;
    if (tls_pipe_has_more(s->tls))
        return true;
    ssize_t n = recv(s->fd, chunk, TLS_CHUNK, MSG_DONTWAIT);
    if (n > 0)
        *ret_len = (size_t)n;
    else if (n == 0 || (errno != EINTR && errno != EAGAIN))
        socket_ended(s, n < 0 ? -errno : 0);
    return n > 0;
}

/* The same for plain bytes, of which `have` are unread already. */
static void report(struct stream *s, const uint8_t *plain, size_t len, size_t have) {
    if (have > 0) {
        if (evbuffer_add(s->in, plain, len) < 0)
            abort(); /* as much as TLS_CHUNK */
    } else {
        s->direct = plain;
        s->direct_len = len;
    }
    stream_report_readable(s);
}

static void stream_read_secured(struct stream *s) {
    uint8_t chunk[TLS_CHUNK], plain[TLS_CHUNK];
    size_t n, len, have = stream_available(s);
    if (!receive(s, chunk, &n))
        return;
    bool shaking = stream_is_shaking(s); /* then nothing is unread, and no plain bytes come */
    int r = tls_pipe_read(s->tls, chunk, n, plain, MIN2(s->read_limit - have, sizeof plain), &len);
    if (stream_unsent(s) > 0)
        stream_queued(s);
    if (len > 0)
        report(s, plain, len, have);
    else if (shaking && !stream_is_shaking(s) && !s->finishing && s->ops.on_secured != NULL)
        s->ops.on_secured(s->arg, s);
    if (!stream_may_read(s)) /* the end is reported when the unread bytes are taken */
        stream_update_interest(s);
    else if (r < 0)
        failed(s, r);
    else if (tls_pipe_is_ended(s->tls))
        stream_report_closed(s, s->broken);
    else
        stream_update_interest(s);
}

/* --- for the user ----------------------------------------------------------------------------- */

void stream_start_tls(struct stream *s, struct ssl_st *session) {
    assert(s->tls == NULL && !s->dead);
    size_t n = stream_available(s), unsent = stream_unsent(s);
    s->tls = tls_pipe_new(s->loop, session);
    if (unsent > 0) { /* in clear */
        s->plain_sent = true;
        if (evbuffer_add_buffer(tls_pipe_out(s->tls), s->out) < 0)
            abort();
    }
    if (n > 0) {
        tls_pipe_store(s->tls, stream_peek(s, n), n);
        stream_drain(s, n);
    }
    if (s->direct == NULL)
        stream_update_interest(s);
}

bool stream_is_secured(const struct stream *s) {
    return s->tls != NULL && tls_pipe_is_open(s->tls);
}

const char *stream_tls_why(const struct stream *s) {
    return s->tls != NULL ? tls_pipe_why(s->tls) : NULL;
}
