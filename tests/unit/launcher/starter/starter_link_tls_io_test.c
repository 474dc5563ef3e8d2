/* The link in TLS. Its other end is a head on the same loop. What is connected to 0.0.0.0 comes to this machine, and is
 * no loopback address, so that the link needs a key there. */
#include "base/frame.h"
#include "io/clock.h"
#include "io/net/listen.h"
#include "io/net/stream.h"
#include "io/net/tls_psk.h"
#include "launcher/starter/starter_link_io.h"
#include "rig/unit.h"

#define TOKEN "0123456789abcdef0123456789abcdef"
#define DOOMSDAY_NS (30 * NS_PER_S)

static const uint8_t secret[TLS_SECRET_BYTES] = "a secret of thirty-two bytes !!";
static const uint8_t other[TLS_SECRET_BYTES] = "another one, of thirty-two too!";

static struct loop *loop;
static const struct place place = {
    .slurm = PLACE_SLURM_STEP, .job_id = (char *)(uintptr_t) "28", .step_id = (char *)(uintptr_t) "0"};
static struct starter_link *link_;
static struct listener *listener;
static struct stream *peer; /* the last one that came to the head */
static struct tls_psk *psk;
static struct tls_key key;
static bool in_clear; /* the head speaks no TLS */
static unsigned came, rejected, closed, leads, verdicts, n_bytes;
static uint8_t bytes[4096]; /* the first ones that came, where the head speaks no TLS */
static char token[STARTER_TOKEN_CHARS + 1];
static int stopped;

static const struct tls_key *find(void *arg, const uint8_t id[TLS_KEY_ID_BYTES]) {
    return memcmp(id, key.id, TLS_KEY_ID_BYTES) == 0 ? &key : NULL;
}

static void say(const struct starter_message *m) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    starter_add(m, &s);
    stream_write(peer, strbuf_text(&s), s.len);
}

static void take(const struct starter_message *m) {
    leads += m->kind == STARTER_LEAD;
    verdicts += m->kind == STARTER_VERDICT;
    if (m->kind == STARTER_LEAD)
        (void)strcpy(token, m->lead.token);
    if (m->kind == STARTER_VERDICT)
        say(&(struct starter_message){.kind = STARTER_ACK});
}

static void on_readable(void *arg, struct stream *s) {
    struct starter_message m;
    size_t n = 0;
    if (in_clear) {
        size_t len = MIN2(stream_available(s), sizeof bytes - n_bytes);
        memcpy(bytes + n_bytes, stream_peek(s, len), len);
        n_bytes += (unsigned)len;
        stream_drain(s, len);
        return;
    }
    while (stream_available(s) > 0 && starter_take(stream_peek(s, stream_available(s)), stream_available(s),
                                                   STARTER_FROM_AGENT, &m, &n, NULL) == 0) {
        stream_drain(s, n);
        take(&m);
    }
}

static void on_closed(void *arg, struct stream *s, int code) {
    rejected += stream_tls_why(s) != NULL;
    closed++;
    stream_free(s);
    if (peer == s)
        peer = NULL;
}

static const struct stream_ops peer_ops = {.on_readable = on_readable, .on_closed = on_closed};

static void on_peer(void *arg, int fd, const struct addr *from) {
    struct ssl_st *session;
    came++;
    stream_free(peer);
    peer = stream_new(loop, fd, &peer_ops, NULL);
    if (in_clear)
        return;
    cr_assert_eq(tls_psk_accept(psk, &session, NULL), 0);
    stream_start_tls(peer, session);
}

static void on_stop(void *arg, int signo) { stopped = signo; }

static void on_expect(void *arg, uint32_t nodes) {}

static void on_gone(void *arg) { (void)arg; }

static const struct starter_link_ops ops = {.stop = on_stop, .expect = on_expect, .gone = on_gone};

static void begin_at(const char *host, const uint8_t of_head[TLS_SECRET_BYTES]) {
    static char head_env[64], token_env[] = "MUSTER_HEAD_TOKEN=" TOKEN;
    char *envp[] = {head_env, token_env, NULL};
    struct addr at;
    struct err err = {0};
    int fd;
    (void)alarm(60);
    cr_assert_eq(loop_new(&loop), 0);
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &at), 0);
    cr_assert_eq(listen_socket(&at, 8, &fd, &err), 0, "%s", err.text);
    listener = listener_new(loop, fd, on_peer, NULL);
    cr_assert_eq(listener_addr(listener, &at), 0);
    cr_assert_eq(tls_key_derive(of_head, &key, &err), 0, "%s", err.text);
    psk = tls_psk_new(find, NULL);
    (void)snprintf(head_env, sizeof head_env, "MUSTER_HEAD=%s:%u", host, addr_port(&at));
    cr_assert_eq(starter_link_new(loop, envp, secret, "node1", &place, &ops, NULL, &link_, &err), 0, "%s", err.text);
}

static void finish(void) {
    starter_link_free(link_);
    stream_free(peer);
    listener_free(listener);
    tls_psk_free(psk);
    loop_free(loop);
}

TestSuite(starter_link_tls_io, .fini = finish);

#define RUN_UNTIL(what)                                                \
    for (uint64_t doomsday = clock_now_ns() + DOOMSDAY_NS; !(what);) { \
        cr_assert_lt(clock_now_ns(), doomsday, "%s", #what);           \
        cr_assert_eq(loop_turn(loop), 0);                              \
    }

Test(starter_link_tls_io, all_is_said_in_tls) {
    struct starter_message m = {.kind = STARTER_STOP};
    struct starter_verdict verdict = {.status = 3};
    m.signal.signo = 15;
    begin_at("0.0.0.0", secret);
    starter_link_lead(link_);
    RUN_UNTIL(leads == 1);
    cr_assert_str_eq(token, TOKEN);
    cr_assert(stream_is_secured(peer));
    say(&m);
    RUN_UNTIL(stopped == 15);
    cr_assert(starter_link_verdict(link_, &verdict));
    cr_assert_eq(verdicts, 1);
    cr_assert_eq(came, 1, "on the same connection");
}

Test(starter_link_tls_io, a_head_with_another_key_hears_nothing) {
    begin_at("0.0.0.0", other);
    starter_link_lead(link_);
    RUN_UNTIL(came == 2); /* it tries again */
    cr_assert_geq(rejected, 1);
    cr_assert_eq(leads, 0);
}

/* Whoever took the head's port would read the token, and could end the job. */
Test(starter_link_tls_io, a_head_without_tls_hears_no_token_and_is_not_obeyed) {
    struct starter_message m = {.kind = STARTER_STOP};
    m.signal.signo = 15;
    in_clear = true;
    begin_at("0.0.0.0", secret);
    starter_link_lead(link_);
    RUN_UNTIL(n_bytes > 0);
    cr_assert_eq(bytes[0], 0x16);
    say(&m);
    RUN_UNTIL(closed == 1);
    cr_assert_eq(stopped, 0);
    cr_assert_null(memmem(bytes, n_bytes, "LEAD", 4));
    cr_assert_null(memmem(bytes, n_bytes, TOKEN, 16));
}

Test(starter_link_tls_io, a_relay_at_a_loopback_address_is_spoken_to_in_clear) {
    in_clear = true;
    begin_at("127.0.0.1", secret);
    starter_link_lead(link_);
    RUN_UNTIL(n_bytes > 0);
    cr_assert_not_null(memmem(bytes, n_bytes, TOKEN, strlen(TOKEN)));
}
