#include "io/net/resolver.h"

#include <netdb.h>
#include <sched.h>

#include "rig/loop_rig.h"

static struct loop *loop;

static int code;
static char text[1024];
static struct addr got[RESOLVE_ADDRS_MAX];
static size_t n_got;
static unsigned calls;

static void on_resolved(void *arg, int c, const char *t, const struct addr *addrs, size_t n) {
    code = c;
    n_got = n;
    (void)snprintf(text, sizeof text, "%s", t);
    for (size_t i = 0; i < n; i++)
        got[i] = addrs[i];
    calls++;
    loop_quit(loop);
}

static void begin(void) { cr_assert_eq(loop_new(&loop), 0); }

static void finish(void) {
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
    cr_assert_eq(errno, ECHILD, "no child is left behind");
    loop_free(loop);
}

static void look_up(resolve_lookup_fn *lookup, uint64_t timeout_ns) {
    struct resolve *r;
    calls = 0;
    cr_assert_eq(resolve_start_with(loop, "some.host", 4711, timeout_ns, lookup, on_resolved, NULL, &r), 0);
    cr_assert_eq(calls, 0, "never from inside");
    rig_loop_run(loop);
    cr_assert_eq(calls, 1);
}

static void check_now(const char *host, size_t n, const char *first) {
    struct addr a[RESOLVE_ADDRS_MAX];
    size_t len = 0;
    char out[ADDR_TEXT_MAX];
    cr_assert_eq(resolve_now(host, 7, a, &len), 0, "%s", host);
    cr_assert_eq(len, n, "%s: %zu", host, len);
    addr_to_text(&a[0], out);
    cr_assert_str_eq(out, first);
}

Test(resolve, literals_and_localhost_are_answered_without_asking) {
    check_now("10.1.2.3", 1, "10.1.2.3:7");
    check_now("::1", 1, "[::1]:7");
    check_now("[fe80::2]", 1, "[fe80::2]:7");
    check_now("localhost", 2, "127.0.0.1:7");
    check_now("LocalHost", 2, "127.0.0.1:7");
    check_now("localhost.", 2, "127.0.0.1:7");
}

Test(resolve, the_own_host_name_is_answered_without_asking) {
    char own[256] = "";
    cr_assert_eq(gethostname(own, sizeof own - 1), 0);
    struct addr a[RESOLVE_ADDRS_MAX];
    size_t n;
    cr_assert_eq(resolve_now(own, 7, a, &n), 0, "%s", own);
    cr_assert(n >= 2 && addr_is_loopback(&a[0]));
    own[strcspn(own, ".")] = '\0';
    cr_assert(resolve_is_own_name(own));
}

Test(resolve, a_host_without_a_name_is_called_localhost) {
    char own[64] = "x";
    if (unshare(CLONE_NEWUTS) < 0)
        cr_skip_test("no UTS namespace of its own");
    cr_assert_eq(sethostname("", 0), 0);
    resolve_own_name(own, sizeof own);
    cr_assert_str_eq(own, "localhost");
    cr_assert_eq(sethostname("node-17", 7), 0);
    resolve_own_name(own, sizeof own);
    cr_assert_str_eq(own, "node-17");
}

Test(resolve, other_names_need_a_look_up_and_nonsense_is_refused) {
    struct addr a[RESOLVE_ADDRS_MAX];
    size_t n;
    char longest[RESOLVE_NAME_MAX + 2];
    memset(longest, 'a', sizeof longest - 1);
    longest[RESOLVE_NAME_MAX] = '\0';
    cr_assert_eq(resolve_now("node-1.cluster", 7, a, &n), RESOLVE_E_LOOKUP);
    cr_assert_eq(resolve_now("notlocalhost", 7, a, &n), RESOLVE_E_LOOKUP);
    cr_assert_eq(resolve_now(longest, 7, a, &n), RESOLVE_E_LOOKUP);
    longest[RESOLVE_NAME_MAX] = 'a';
    longest[RESOLVE_NAME_MAX + 1] = '\0';
    cr_assert_eq(resolve_now(longest, 7, a, &n), -EINVAL);
    cr_assert_eq(resolve_now("", 7, a, &n), -EINVAL);
    cr_assert_eq(resolve_now("a b", 7, a, &n), -EINVAL);
    cr_assert_eq(resolve_now("a\n", 7, a, &n), -EINVAL);
    cr_assert_eq(resolve_now("1.2.3.4:5", 7, a, &n), -EINVAL);
}

static int find_two(const char *host, uint16_t port, struct addr ret[RESOLVE_ADDRS_MAX], size_t *ret_n) {
    if (strcmp(host, "some.host") != 0 || addr_from_literal("10.0.0.1", port, &ret[0]) != 0 ||
        addr_from_literal("fd00::1", port, &ret[1]) != 0)
        return EAI_FAIL;
    *ret_n = 2;
    return 0;
}

Test(resolve, a_look_up_gives_the_addresses_with_the_port, .init = begin, .fini = finish) {
    look_up(find_two, NS_PER_S);
    cr_assert_eq(code, 0);
    cr_assert_eq(n_got, 2);
    char out[ADDR_TEXT_MAX];
    addr_to_text(&got[1], out);
    cr_assert_str_eq(out, "[fd00::1]:4711");
}

static struct { int gai, error, code; /* code: what becomes of it */ } failure;

static int fail(const char *host, uint16_t port, struct addr ret[RESOLVE_ADDRS_MAX], size_t *ret_n) {
    errno = failure.error;
    return failure.gai;
}

Test(resolve, failures_are_told_with_the_name, .init = begin, .fini = finish) {
    static const __typeof__(failure) cases[] = {
        {EAI_NONAME, ENOENT, -ENOENT}, /* of a file that was read before */
        {EAI_AGAIN, 0, -EAGAIN},
        {EAI_SYSTEM, EMFILE, -EMFILE},
        {EAI_SYSTEM, 0, -EIO},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        failure = cases[i];
        look_up(fail, NS_PER_S);
        cr_assert_eq(code, cases[i].code, "%zu", i);
        assert_has(text, "'some.host'");
        assert_has(text, code == -EMFILE ? strerror(EMFILE) : gai_strerror(cases[i].gai));
    }
}

static int crash(const char *host, uint16_t port, struct addr ret[RESOLVE_ADDRS_MAX], size_t *ret_n) {
    (void)kill(getpid(), SIGKILL);
    return 0;
}

Test(resolve, a_child_that_dies_is_an_answer_too, .init = begin, .fini = finish) {
    look_up(crash, 5 * NS_PER_S);
    cr_assert_eq(code, -ECHILD);
    cr_assert_eq(n_got, 0);
}

static int never(const char *host, uint16_t port, struct addr ret[RESOLVE_ADDRS_MAX], size_t *ret_n) {
    while (pause() < 0)
        continue;
    return 0;
}

Test(resolve, a_resolver_that_never_answers_is_given_up_at_the_deadline, .init = begin, .fini = finish) {
    uint64_t began_ns = clock_now_ns();
    look_up(never, 50 * NS_PER_MS);
    cr_assert_eq(code, -ETIMEDOUT);
    cr_assert_geq(clock_now_ns() - began_ns, 50 * NS_PER_MS);
    cr_assert_lt(clock_now_ns() - began_ns, 2 * NS_PER_S);
}

Test(resolve, a_look_up_that_is_given_up_kills_its_child_and_never_answers, .init = begin, .fini = finish) {
    struct resolve *r;
    calls = 0;
    cr_assert_eq(resolve_start_with(loop, "some.host", 1, NS_PER_S, never, on_resolved, NULL, &r), 0);
    resolve_free(r);
    cr_assert_eq(loop_turn(loop), 0);
    cr_assert_eq(calls, 0);
}

/* The real resolver: which answer it gives depends on the machine, that it gives one does not. */
Test(resolve, the_real_resolver_answers, .init = begin, .fini = finish) {
    struct resolve *r;
    calls = 0;
    cr_assert_eq(resolve_start(loop, "muster-test.invalid", 1, NS_PER_S, on_resolved, NULL, &r), 0);
    rig_loop_run(loop);
    cr_assert_lt(code, 0);
    assert_has(text, "muster-test.invalid");
}
