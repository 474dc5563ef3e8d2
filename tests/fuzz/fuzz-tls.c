/* Any bytes into streams with TLS. The first byte says where, the second how many bytes come at once (0: all):
 *
 *     a  into an accepting stream, as the first flight
 *     c  into a connecting one, which has sent its first flight
 *     s  into an accepting one, after the handshake
 *     m  changes what two streams say to each other, from the first byte on: [which side's bytes, offset, xor]...
 *
 * Nothing that the peer did not say is ever handed over, and nothing that it did say in another order; a session
 * without the key is never secured. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/net/stream.h"
#include "io/net/tls_psk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX 65536
#define QUIET_TURNS 4
#define SAID_BYTES 3000 /* what each side says when it is secured */

struct end {
    struct stream *s;
    int peer; /* the other end of its socket */
    size_t len, forwarded;
    bool secured, closed;
};

static struct loop *loop;
static struct tls_psk *psk;
static const struct tls_key key = {"fuzz-key", "the key of this fuzz target....."};
static uint8_t said[SAID_BYTES];
static struct end ends[2]; /* accepting, connecting */

static const struct tls_key *find(void *arg, const uint8_t id[TLS_KEY_ID_BYTES]) {
    (void)arg;
    return memcmp(id, key.id, sizeof key.id) == 0 ? &key : NULL;
}

static void on_readable(void *arg, struct stream *s) {
    struct end *e = arg;
    size_t n = stream_available(s);
    if (!e->secured || e->len + n > SAID_BYTES || memcmp(stream_peek(s, n), said + e->len, n) != 0)
        abort();
    e->len += n;
    stream_drain(s, n);
}

static void on_closed(void *arg, struct stream *s, int code) {
    struct end *e = arg;
    if (e->closed || (code == -EKEYREJECTED && e->secured) || (code == -EPROTO && !e->secured) ||
        ((code == -EKEYREJECTED || code == -EPROTO) && stream_tls_why(s) == NULL))
        abort();
    e->closed = true;
}

static void on_secured(void *arg, struct stream *s) {
    (void)s;
    ((struct end *)arg)->secured = true;
}

static const struct stream_ops ops = {.on_readable = on_readable, .on_closed = on_closed, .on_secured = on_secured};

static void begin(struct end *e) {
    int fds[2];
    struct ssl_st *session;
    *e = (struct end){.peer = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0 ||
        (e == &ends[0] ? tls_psk_accept(psk, &session, NULL) : tls_psk_connect(psk, &key, &session, NULL)) < 0)
        abort();
    e->s = stream_new(loop, fds[0], &ops, e);
    e->peer = fds[1];
    stream_start_tls(e->s, session);
    stream_write(e->s, said, sizeof said);
}

static void turn(void) {
    if (loop_turn(loop) < 0)
        abort();
}

static void end(struct end *e) {
    stream_free(e->s);
    (void)close(e->peer);
}

/* What one end sent goes to the other, changed. */
static bool forward(struct end *from, struct end *to, const uint8_t *changes, size_t n) {
    static uint8_t chunk[65536];
    ssize_t len = recv(from->peer, chunk, sizeof chunk, 0);
    if (len <= 0)
        return false;
    for (size_t i = 0; i + 3 <= n; i += 3) {
        size_t at = (size_t)(changes[i] & 0x7f) << 8 | changes[i + 1];
        if ((changes[i] >> 7) == (from == &ends[1]) && at >= from->forwarded && at - from->forwarded < (size_t)len)
            chunk[at - from->forwarded] ^= changes[i + 2];
    }
    from->forwarded += (size_t)len;
    return send(to->peer, chunk, (size_t)len, MSG_NOSIGNAL) == len;
}

static void meet(const uint8_t *changes, size_t n) {
    for (unsigned quiet = 0; quiet < QUIET_TURNS;) {
        turn();
        bool moved = forward(&ends[0], &ends[1], changes, n);
        moved = forward(&ends[1], &ends[0], changes, n) || moved;
        quiet = moved ? 0 : quiet + 1;
    }
}

static void feed(struct end *e, const uint8_t *data, size_t size, size_t piece) {
    size_t before = e->len;
    bool secured = e->secured;
    piece = piece == 0 ? MAX2(size, (size_t)1) : piece;
    for (size_t at = 0; at < size && !e->closed; at += piece) {
        ssize_t n = send(e->peer, data + at, MIN2(piece, size - at), MSG_NOSIGNAL);
        turn();
        if (n < 0 && errno != EAGAIN)
            break;
    }
    (void)shutdown(e->peer, SHUT_WR);
    for (unsigned i = 0; i < QUIET_TURNS; i++)
        turn();
    if (e->secured != secured || e->len != before || !e->closed)
        abort();
}

static void set_up(void) {
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof said; i++)
        said[i] = (uint8_t)(i * 31 >> 3);
    if (loop_new(&loop) < 0)
        abort();
    psk = tls_psk_new(find, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (loop == NULL)
        set_up();
    if (size < 2 || size > INPUT_MAX)
        return 0;
    uint8_t what = data[0];
    bool both = what == 's' || what == 'm';
    struct end *e = &ends[what == 'c'];
    begin(e);
    if (both)
        begin(&ends[1]);
    turn();
    if (both)
        meet(data + 2, what == 'm' ? size - 2 : 0);
    if (what == 's' && (!e->secured || e->len != SAID_BYTES || ends[1].len != SAID_BYTES))
        abort();
    if (what != 'm')
        feed(e, data + 2, size - 2, data[1]);
    end(e);
    if (both)
        end(&ends[1]);
    turn();
    return 0;
}
