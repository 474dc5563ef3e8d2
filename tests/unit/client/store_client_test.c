/* The client's bytes, against a server that follows a script in a child process. Each step has the exact bytes that
 * must arrive, and the bytes to send back. Real servers: tests/e2e. */
#include "muster/store.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "rig/unit.h"

#define ANSWER_MS 10000 /* a final limit, far above anything measured */

struct bytes {
    const void *data;
    size_t len;
};
#define BYTES(text) \
    { text, sizeof(text) - 1 }
#define HELLO_LEN 10

struct step {
    struct bytes expect, reply;
};

static pid_t server = -1;
static struct muster_store *store;

static bool read_exactly(int fd, uint8_t *p, size_t len) {
    while (len > 0) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, ANSWER_MS) != 1)
            return false;
        ssize_t n = read(fd, p, len);
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static bool shake_hands(int fd) {
    uint8_t hello[HELLO_LEN];
    return read_exactly(fd, hello, sizeof(hello)) && memcmp(hello, "\x00\xce\xf7\x85\x3c\x0d", 6) == 0 &&
           write(fd, hello + 6, 4) == 4;
}

/* Exit status: 0: everything was as in the script; n: step n got other bytes; 100: the handshake failed; 101: there
 * were more bytes than in the script. */
static int play(int listener, const struct step *steps, size_t n, bool hang_up) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0 || !shake_hands(fd))
        return 100;
    for (size_t i = 0; i < n; i++) {
        uint8_t got[4096];
        for (size_t at = 0; at < steps[i].expect.len; at += sizeof(got)) {
            size_t len = steps[i].expect.len - at < sizeof(got) ? steps[i].expect.len - at : sizeof(got);
            if (!read_exactly(fd, got, len) || memcmp(got, (const uint8_t *)steps[i].expect.data + at, len) != 0)
                return (int)i + 1;
        }
        /* byte by byte, if it is not long: an answer can arrive in any pieces */
        size_t piece = steps[i].reply.len < 4096 ? 1 : steps[i].reply.len;
        for (size_t at = 0; at < steps[i].reply.len; at += piece)
            if (write(fd, (const char *)steps[i].reply.data + at, piece) != (ssize_t)piece)
                return (int)i + 1;
    }
    uint8_t more;
    return hang_up || read(fd, &more, 1) <= 0 ? 0 : 101;
}

static int listen_somewhere(uint16_t *ret_port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    cr_assert_geq(fd, 0);
    cr_assert_eq(setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof(on)), 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    cr_assert_eq(listen(fd, 4), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

static uint16_t start(const struct step *steps, size_t n, bool hang_up) {
    uint16_t port;
    int listener = listen_somewhere(&port);
    server = fork();
    cr_assert_geq(server, 0);
    if (server == 0)
        _exit(play(listener, steps, n, hang_up));
    close(listener);
    return port;
}

static void connected(const struct step *steps, size_t n, bool hang_up) {
    uint16_t port = start(steps, n, hang_up);
    cr_assert_eq(muster_store_connect("127.0.0.1", port, ANSWER_MS, &store), 0, "%s", muster_store_error());
}
#define SCRIPT(...)                                    \
    static const struct step script[] = {__VA_ARGS__}; \
    connected(script, sizeof(script) / sizeof(script[0]), false)

/* The server, if there was one, got exactly its script. */
static void done(void) {
    muster_store_close(store);
    if (server < 0)
        return;
    cr_assert_eq(rig_status(server), 0);
}

TestSuite(client_store, .fini = done);

#define KEY_AB "\x03\0\0\0\0\0\0\0/ab"

Test(client_store, set_sends_key_with_slash_and_value) {
    SCRIPT({BYTES("\x01" KEY_AB "\x03\0\0\0\0\0\0\0x\0z"), BYTES("")},
           {BYTES("\x01\x01\0\0\0\0\0\0\0/\0\0\0\0\0\0\0\0"), BYTES("")});
    cr_assert_eq(muster_store_set(store, "ab", "x\0z", 3), 0);
    cr_assert_eq(muster_store_set(store, "", NULL, 0), 0, "both empty");
}

Test(client_store, get_waits_and_then_reads) {
    SCRIPT({BYTES("\x06\x01\0\0\0\0\0\0\0" KEY_AB), BYTES("\0")}, {BYTES("\x03" KEY_AB), BYTES("\x02\0\0\0\0\0\0\0hi")},
           {BYTES("\x06\x01\0\0\0\0\0\0\0" KEY_AB), BYTES("\0")}, {BYTES("\x03" KEY_AB), BYTES("\0\0\0\0\0\0\0\0")});
    void *value = NULL;
    size_t len = 0;
    cr_assert_eq(muster_store_get(store, "ab", -1, &value, &len), 0);
    cr_assert_eq(len, 2);
    cr_assert_str_eq(value, "hi");
    free(value);
    cr_assert_eq(muster_store_get(store, "ab", -1, &value, &len), 0);
    cr_assert_eq(len, 0);
    cr_assert_str_eq(value, "");
    free(value);
}

Test(client_store, a_wait_that_times_out_is_cancelled_and_leaves_the_connection_usable) {
    SCRIPT({BYTES("\x06\x01\0\0\0\0\0\0\0" KEY_AB), BYTES("")}, {BYTES("\x0c"), BYTES("\x01")},
           {BYTES("\x04" KEY_AB "\xff\xff\xff\xff\xff\xff\xff\xff"), BYTES("\xfe\xff\xff\xff\xff\xff\xff\xff")});
    const char *keys[] = {"ab"};
    int64_t sum = 0;
    cr_assert_eq(muster_store_wait(store, keys, 1, 30), -ETIMEDOUT);
    assert_has(muster_store_error(), "ab did not appear");
    cr_assert_eq(muster_store_add(store, "ab", -1, &sum), 0);
    cr_assert_eq(sum, -2);
}

Test(client_store, an_answer_that_crosses_the_cancel_counts) {
    SCRIPT({BYTES("\x06\x01\0\0\0\0\0\0\0" KEY_AB), BYTES("")}, {BYTES("\x0c"), BYTES("\0\x01")},
           {BYTES("\x08" KEY_AB), BYTES("\x01\0\0\0\0\0\0\0")});
    const char *keys[] = {"ab"};
    bool existed = false;
    cr_assert_eq(muster_store_wait(store, keys, 1, 30), 0);
    cr_assert_eq(muster_store_delete(store, "ab", &existed), 0);
    cr_assert(existed);
}

Test(client_store, a_wrong_answer_to_a_cancel_closes) {
    SCRIPT({BYTES("\x06\x01\0\0\0\0\0\0\0" KEY_AB), BYTES("")}, {BYTES("\x0c"), BYTES("\0\0")});
    const char *keys[] = {"ab"};
    cr_assert_eq(muster_store_wait(store, keys, 1, 30), -EPROTO);
    cr_assert_eq(muster_store_wait(store, keys, 1, 30), -ENOTCONN);
}

Test(client_store, waiting_for_no_keys_asks_nobody) {
    static const struct step none[1];
    connected(none, 0, false);
    cr_assert_eq(muster_store_wait(store, NULL, 0, 0), 0);
}

Test(client_store, check_sends_all_keys) {
    SCRIPT({BYTES("\x05\x02\0\0\0\0\0\0\0" KEY_AB "\x02\0\0\0\0\0\0\0/c"), BYTES("\0")},
           {BYTES("\x05\x01\0\0\0\0\0\0\0" KEY_AB), BYTES("\x01")},
           {BYTES("\x05\x01\0\0\0\0\0\0\0" KEY_AB), BYTES("\x02")});
    const char *keys[] = {"ab", "c"};
    bool exist = false;
    cr_assert_eq(muster_store_check(store, keys, 2, &exist), 0);
    cr_assert(exist);
    cr_assert_eq(muster_store_check(store, keys, 1, &exist), 0);
    cr_assert(!exist);
    cr_assert_eq(muster_store_check(store, keys, 1, &exist), -EPROTO);
}

Test(client_store, compare_set_gives_what_the_server_has) {
    SCRIPT({BYTES("\x02" KEY_AB "\x01\0\0\0\0\0\0\0o\x01\0\0\0\0\0\0\0n"), BYTES("\x05\0\0\0\0\0\0\0other")});
    void *value = NULL;
    size_t len = 0;
    cr_assert_eq(muster_store_compare_set(store, "ab", "o", 1, "n", 1, &value, &len), 0);
    cr_assert_str_eq(value, "other");
    cr_assert_eq(len, 5);
    free(value);
}

#define BARRIER_B "\x11\0\0\0\0\0\0\0/muster.barrier/b"
#define BARRIER_B0 "\x13\0\0\0\0\0\0\0/muster.barrier/b/0"
#define BARRIER_B1 "\x13\0\0\0\0\0\0\0/muster.barrier/b/1"

Test(client_store, the_last_at_a_barrier_releases_it_and_tidies_up) {
    SCRIPT({BYTES("\x04" BARRIER_B "\x01\0\0\0\0\0\0\0"), BYTES("\x01\0\0\0\0\0\0\0")},
           {BYTES("\x06\x01\0\0\0\0\0\0\0" BARRIER_B0), BYTES("\0")},
           {BYTES("\x04" BARRIER_B "\x01\0\0\0\0\0\0\0"), BYTES("\x04\0\0\0\0\0\0\0")},
           {BYTES("\x08" BARRIER_B0), BYTES("\x01\0\0\0\0\0\0\0")},
           {BYTES("\x01" BARRIER_B1 "\x01\0\0\0\0\0\0\0"
                  "1"),
            BYTES("")});
    cr_assert_eq(muster_store_barrier(store, "b", 2, -1), 0);
    cr_assert_eq(muster_store_barrier(store, "b", 2, -1), 0);
}

Test(client_store, what_is_over_a_limit_is_not_sent) {
    static char large[MUSTER_STORE_VALUE_MAX + 1];
    static char key[MUSTER_STORE_KEY_MAX + 2];
    static const char *keys[MUSTER_STORE_KEYS_MAX + 1];
    static const struct step none[1];
    connected(none, 0, false);
    memset(key, 'k', sizeof(key) - 1);
    cr_assert_eq(muster_store_set(store, "ab", large, sizeof(large)), -EMSGSIZE);
    cr_assert_eq(muster_store_set(store, key, "", 0), -EMSGSIZE);
    assert_has(muster_store_error(), "too long");
    cr_assert_eq(muster_store_wait(store, keys, MUSTER_STORE_KEYS_MAX + 1, 0), -EMSGSIZE);
}

Test(client_store, keys_and_values_at_the_limit_go_both_ways) {
    static char key[MUSTER_STORE_KEY_MAX + 1];
    static uint8_t set[18 + MUSTER_STORE_KEY_MAX + MUSTER_STORE_VALUE_MAX];
    static uint8_t reply[8 + MUSTER_STORE_VALUE_MAX] = "\0\0\x80";
    memset(key, 'k', sizeof(key) - 1);
    memset(set, 'k', sizeof(set));
    memcpy(set, "\x01\0\x20\0\0\0\0\0\0/", 10);
    memcpy(set + 10 + MUSTER_STORE_KEY_MAX, reply, 8);
    memset(reply + 8, 'k', sizeof(reply) - 8);
    memcpy(set + 18 + MUSTER_STORE_KEY_MAX, reply + 8, MUSTER_STORE_VALUE_MAX);
    struct step script[] = {{{set, sizeof(set)}, {"", 0}},
                            {BYTES("\x06\x01\0\0\0\0\0\0\0" KEY_AB), BYTES("\0")},
                            {BYTES("\x03" KEY_AB), {reply, sizeof(reply)}}};
    connected(script, 3, false);
    cr_assert_eq(muster_store_set(store, key, reply + 8, MUSTER_STORE_VALUE_MAX), 0);
    void *value = NULL;
    size_t len = 0;
    cr_assert_eq(muster_store_get(store, "ab", -1, &value, &len), 0);
    cr_assert_eq(len, MUSTER_STORE_VALUE_MAX);
    cr_assert_eq(memcmp(value, reply + 8, len), 0);
    free(value);
}

Test(client_store, a_server_cannot_make_us_allocate_more_than_a_value) {
    SCRIPT({BYTES("\x06\x01\0\0\0\0\0\0\0" KEY_AB), BYTES("\0")},
           {BYTES("\x03" KEY_AB), BYTES("\x01\0\x80\0\0\0\0\0")});
    void *value = NULL;
    size_t len = 0;
    cr_assert_eq(muster_store_get(store, "ab", -1, &value, &len), -EPROTO);
    cr_assert_null(value);
    cr_assert_eq(muster_store_set(store, "ab", "", 0), -ENOTCONN);
}

Test(client_store, a_server_that_goes_away_is_an_error_and_no_signal) {
    static const struct step script[] = {{BYTES("\x04" KEY_AB), BYTES("\x01\0\0\0")}};
    connected(script, 1, true);
    int64_t sum = 77;
    int r = muster_store_add(store, "ab", 1, &sum);
    cr_assert_eq(r, -ECONNRESET, "%d: %s", r, muster_store_error());
    cr_assert_eq(sum, 77);
    cr_assert_eq(muster_store_add(store, "ab", 1, &sum), -ENOTCONN);
}

Test(client_store, a_server_that_owes_an_answer_and_is_silent_is_given_up) {
    SCRIPT({BYTES("\x04" KEY_AB "\x01\0\0\0\0\0\0\0"), BYTES("\x01\0\0\0")});
    cr_assert_eq(muster_store_set_reply_timeout(store, 40), 0);
    cr_assert_eq(muster_store_add(store, "ab", 1, NULL), -ECONNABORTED);
    cr_assert_eq(muster_store_add(store, "ab", 1, NULL), -ENOTCONN);
}

Test(client_store, connecting_tries_again_until_a_server_shakes_hands) {
    static const struct step none[1];
    uint16_t port;
    int listener = listen_somewhere(&port);
    server = fork();
    cr_assert_geq(server, 0);
    if (server == 0) {
        close(accept(listener, NULL, NULL)); /* as a server does that is just ending */
        _exit(play(listener, none, 0, false));
    }
    close(listener);
    cr_assert_eq(muster_store_connect("localhost", port, ANSWER_MS, &store), 0, "%s", muster_store_error());
}

Test(client_store, nobody_there_is_a_time_out_with_the_reason) {
    uint16_t port;
    close(listen_somewhere(&port));
    cr_assert_eq(muster_store_connect("127.0.0.1", port, 50, &store), -ETIMEDOUT);
    assert_has(muster_store_error(), "refused");
}

Test(client_store, a_port_that_answers_something_else_is_refused) {
    uint16_t port;
    int listener = listen_somewhere(&port);
    server = fork();
    cr_assert_geq(server, 0);
    if (server == 0) {
        int fd = accept(listener, NULL, NULL);
        uint8_t hello[HELLO_LEN];
        _exit(read_exactly(fd, hello, sizeof(hello)) && write(fd, "220 ", 4) == 4 ? 0 : 1);
    }
    close(listener);
    cr_assert_eq(muster_store_connect("127.0.0.1", port, ANSWER_MS, &store), -EPROTO);
}

Test(client_store, the_environment_names_the_store) {
    static const struct step none[1];
    char text[8];
    uint16_t port = start(none, 0, false);
    cr_assert_eq(unsetenv("MASTER_ADDR"), 0);
    cr_assert_eq(muster_store_connect_env(0, &store), -ENOENT);
    assert_has(muster_store_error(), "MASTER_ADDR");
    cr_assert_eq(setenv("MASTER_ADDR", "127.0.0.1", 1), 0);
    cr_assert_eq(unsetenv("MASTER_PORT"), 0);
    cr_assert_eq(muster_store_connect_env(0, &store), -ENOENT);
    static const char *const bad[] = {"0", "65536", "-1", "80x", " 80", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert_eq(setenv("MASTER_PORT", bad[i], 1), 0);
        cr_assert_eq(muster_store_connect_env(0, &store), -EINVAL, "%s", bad[i]);
    }
    (void)snprintf(text, sizeof(text), "%u", port);
    cr_assert_eq(setenv("MASTER_PORT", text, 1), 0);
    cr_assert_eq(muster_store_connect_env(ANSWER_MS, &store), 0, "%s", muster_store_error());
    char own[MUSTER_STORE_ADDRESS_MAX];
    cr_assert_eq(muster_store_local_address(store, own), 0);
    cr_assert_str_eq(own, "127.0.0.1");
}

Test(client_store, calls_without_a_store_or_key_are_refused) {
    static const struct step none[1];
    cr_assert_eq(muster_store_set(NULL, "ab", "", 0), -EINVAL);
    cr_assert_eq(muster_store_connect("", 80, 0, &store), -EINVAL);
    muster_store_close(NULL);
    connected(none, 0, false);
    cr_assert_eq(muster_store_set(store, NULL, "", 0), -EINVAL);
    cr_assert_eq(muster_store_barrier(store, "b", 0, 0), -EINVAL);
    cr_assert_eq(muster_store_set_reply_timeout(store, 0), -EINVAL);
}
