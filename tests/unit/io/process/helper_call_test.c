#include "io/process/helper_call.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "io/clock.h"
#include "io/process/proc.h"
#include "rig/unit.h"

#define LONG_BYTES ((size_t)3 << 20) /* more than any pipe holds */

static struct loop *loop;
static struct child_reaper *reaper;
static int code, calls;
static char *said;
static size_t n_said;

static void begin(void) { cr_assert_eq(loop_new(&loop), 0); }
static void begin_reaping(void) {
    begin();
    reaper = child_reaper_new(loop);
}
static void finish(void) {
    child_reaper_free(reaper);
    loop_free(loop);
    free(said);
}

static void note(const struct helper_answer *a) {
    code = a->code;
    n_said = a->len;
    free(said);
    said = xcalloc(1, a->len + 1);
    memcpy(said, a->data, a->len);
}

static void on_answer(void *arg, const struct helper_answer *a) {
    cr_assert_eq(arg, &calls);
    note(a);
    calls++;
    loop_quit(loop);
}

static int say_arg(int fd, void *arg) { return helper_send(fd, arg, strlen(arg)) ? 0 : 1; }

static int say_much(int fd, void *arg) {
    char *much = xcalloc(1, LONG_BYTES);
    memset(much, 'm', LONG_BYTES);
    return helper_send(fd, much, LONG_BYTES) ? 0 : 1;
}

static int begin_and_hang(int fd, void *arg) {
    (void)!helper_send(fd, "half", 4);
    while (pause() < 0)
        ;
    return 0;
}

static int die(int fd, void *arg) {
    (void)raise(SIGKILL);
    return 0;
}

static struct helper_call_config config_of(helper_fn *run, void *arg, uint64_t timeout_ns) {
    return (struct helper_call_config){
        .name = "a-helper", .run = run, .arg = arg, .timeout_ns = timeout_ns, .max_bytes = LONG_BYTES};
}

static struct helper_call *start_so(const struct helper_call_config *config) {
    struct helper_call *c;
    cr_assert_eq(helper_call_new(loop, config, on_answer, &calls, &c), 0);
    cr_assert_eq(calls, 0);
    return c;
}
static struct helper_call *start(helper_fn *run, void *arg, uint64_t timeout_ns) {
    return start_so(AT(config_of(run, arg, timeout_ns)));
}

static void nobody_is_left(void) {
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
    cr_assert_eq(errno, ECHILD);
}

Test(helper_call, the_answer_comes_from_the_loop, .init = begin, .fini = finish) {
    char text[] = "an answer";
    (void)start(say_arg, text, 10 * NS_PER_S);
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(code, 0);
    cr_assert_str_eq(said, "an answer");
    nobody_is_left();
}

Test(helper_call, an_empty_dev_does_not_keep_it_from_answering, .init = begin, .fini = finish) {
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/dev", "tmpfs", 0, NULL) < 0)
        cr_skip_test("no /dev of our own");
    cr_assert_eq(access("/dev/null", F_OK), -1);
    char text[] = "hello";
    (void)start(say_arg, text, 10 * NS_PER_S);
    cr_assert_eq(loop_run(loop), 0);
    cr_assert(calls == 1 && code == 0 && n_said == 5 && memcmp(said, "hello", 5) == 0, "%d", code);
}

Test(helper_call, a_long_answer_is_whole, .init = begin_reaping, .fini = finish) {
    (void)start(say_much, NULL, 20 * NS_PER_S);
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(code, 0);
    cr_assert_eq(n_said, LONG_BYTES);
}

Test(helper_call, one_that_says_too_much_is_cut, .init = begin, .fini = finish) {
    (void)start_so(WITH(config_of(say_much, NULL, 20 * NS_PER_S), .max_bytes = 1000));
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(code, -EMSGSIZE);
    nobody_is_left();
}

Test(helper_call, one_that_dies_has_said_nothing, .init = begin, .fini = finish) {
    (void)start(die, NULL, 10 * NS_PER_S);
    cr_assert_eq(loop_run(loop), 0);
    cr_assert(code == 0 && n_said == 0);
}

Test(helper_call, one_that_hangs_is_killed_at_the_deadline, .init = begin, .fini = finish) {
    (void)start(begin_and_hang, NULL, 1);
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(code, -ETIMEDOUT);
    nobody_is_left();
}

static void on_more(void *arg, const char *data, size_t len) {
    cr_assert_eq(arg, &calls);
    note(&(struct helper_answer){.data = data, .len = len});
    loop_quit(loop);
}

Test(helper_call, what_has_come_is_told_before_the_end, .init = begin, .fini = finish) {
    struct helper_call *c = start_so(WITH(config_of(begin_and_hang, NULL, 20 * NS_PER_S), .on_more = on_more));
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_str_eq(said, "half");
    cr_assert_eq(calls, 0, "it has not ended");
    helper_call_free(c);
    nobody_is_left();
}

static unsigned known;
static void count(void *arg, pid_t pid) { known += child_reaper_find(reaper, pid) != NULL; }

Test(helper_call, one_that_may_linger_is_left_alone_and_known, .init = begin_reaping, .fini = finish) {
    (void)start_so(WITH(config_of(begin_and_hang, NULL, 1), .may_linger = true));
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(code, -ETIMEDOUT);
    proc_each_child(getpid(), true, count, NULL);
    cr_assert_eq(known, 1);
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), 0, "it still runs");
}

Test(helper_call, one_that_is_given_up_says_nothing, .init = begin, .fini = finish) {
    helper_call_free(start(begin_and_hang, NULL, 10 * NS_PER_S));
    helper_call_free(NULL);
    cr_assert_eq(loop_turn(loop), 0);
    cr_assert_eq(calls, 0);
    nobody_is_left();
}

static void wait_for(helper_fn *run, void *arg, uint64_t timeout_ns) {
    struct helper_call *c;
    struct helper_answer a;
    cr_assert_eq(helper_call_new(NULL, AT(config_of(run, arg, timeout_ns)), NULL, NULL, &c), 0);
    helper_call_wait(c, &a);
    note(&a);
    helper_call_free(c);
    nobody_is_left();
}

Test(helper_call, without_a_loop_it_is_waited_for) {
    char text[] = "an answer";
    wait_for(say_arg, text, 10 * NS_PER_S);
    cr_assert_eq(code, 0);
    cr_assert_str_eq(said, "an answer");
    wait_for(say_much, NULL, 20 * NS_PER_S);
    cr_assert_eq(code, 0);
    cr_assert_eq(n_said, LONG_BYTES);
    wait_for(die, NULL, 10 * NS_PER_S);
    cr_assert(code == 0 && n_said == 0);
}

Test(helper_call, without_a_loop_the_deadline_holds_and_what_came_counts) {
    wait_for(begin_and_hang, NULL, NS_PER_S);
    cr_assert_eq(code, -ETIMEDOUT);
    cr_assert_str_eq(said, "half");
}

Test(helper_call, whoever_ignores_its_children_gets_the_answer_too) {
    char text[] = "an answer";
    cr_assert(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    wait_for(say_arg, text, 10 * NS_PER_S);
    cr_assert_str_eq(said, "an answer");
}

Test(helper_call, without_a_process_left_it_says_which_limit_that_is) {
    struct helper_call_config config = {.name = "none", .run = die, .timeout_ns = NS_PER_S, .max_bytes = 1};
    struct helper_call *c = NULL;
    struct rlimit before, none;
    bool root = geteuid() == 0;
    cr_assert(!root || setresuid(65534, 65534, 0) == 0, "root has no limit");
    cr_assert_eq(getrlimit(RLIMIT_NPROC, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NPROC, &none), 0);
    int r = helper_call_new(NULL, &config, NULL, NULL, &c);
    cr_assert_eq(setrlimit(RLIMIT_NPROC, &before), 0); /* a sanitizer starts a thread at the end */
    cr_assert(!root || setresuid(0, 0, 0) == 0);
    cr_assert_eq(r, -EAGAIN);
    assert_has(helper_call_why(r), "ulimit -u");
    cr_assert_str_eq(helper_call_why(-ENOMEM), strerror(ENOMEM));
}
