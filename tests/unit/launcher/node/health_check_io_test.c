#include "launcher/node/health_check_io.h"

#include "rig/unit.h"

static struct loop *loop;
static struct child_reaper *reaper;
static struct health_check *check;
static int result;
static char text[HEALTH_TEXT_MAX];
static char path_of_programs[] = "PATH=/usr/bin:/bin", when[] = "MUSTER_HEALTH_WHEN=never";
static char *envp[] = {path_of_programs, when, NULL};

static void begin(void) {
    cr_assert_eq(loop_new(&loop), 0);
    reaper = child_reaper_new(loop);
}

static void finish(void) {
    child_reaper_free(reaper);
    loop_free(loop);
}

static void on_checked(void *arg, enum health_result r, const char *why) {
    cr_assert_eq(arg, &result);
    result = (int)r;
    (void)snprintf(text, sizeof text, "%s", why);
    loop_quit(loop);
}

static void start(const char *command, uint64_t timeout_ns) {
    struct health_check_config config = {
        .command = command, .envp = envp, .after_failure = true, .timeout_ns = timeout_ns};
    struct err err = {0};
    result = -1;
    cr_assert_eq(health_check_new(loop, reaper, &config, on_checked, &result, &check, &err), 0, "%s", err.text);
}

static void run(const char *command, uint64_t timeout_ns) {
    start(command, timeout_ns);
    cr_assert_eq(loop_run(loop), 0);
}

TestSuite(health_check_io, .init = begin, .fini = finish);

Test(health_check_io, only_0_and_1_are_a_verdict) {
    static const struct {
        const char *command;
        enum health_result result;
        const char *text;
    } cases[] = {
        {"exit 0", HEALTH_FIT, NULL},
        {"echo warming; exit 1", HEALTH_NOT_FIT, "warming"},
        {"echo first; echo '  GPU 3 is bad  '; echo; echo no >&2; exit 1", HEALTH_NOT_FIT, "GPU 3 is bad"},
        {"echo; echo 'not allowed' >&2; exit 1", HEALTH_NOT_FIT, "not allowed"},
        {"printf 'a\\033[1mb\\tc\\376'; exit 1", HEALTH_NOT_FIT, "a?[1mb?c\xEF\xBF\xBD"},
        {"exit 1", HEALTH_NOT_FIT, "the health check failed without a message"},
        {"echo $MUSTER_HEALTH_WHEN; cat; exit 1", HEALTH_NOT_FIT, "failure"},
        {"echo CRITICAL; exit 2", HEALTH_NOT_KNOWN, "it ended with status 2: CRITICAL"},
        {"exit 126", HEALTH_NOT_KNOWN, "it ended with status 126"},
        {"exec 2>&1; no-such-program", HEALTH_NOT_KNOWN, NULL},
        {"kill -SEGV $$", HEALTH_NOT_KNOWN, "it died of signal 11"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        run(cases[i].command, 60 * NS_PER_S);
        cr_assert_eq(result, (int)cases[i].result, "%s: %d", cases[i].command, result);
        if (cases[i].text != NULL)
            cr_assert_str_eq(text, cases[i].text, "%s: %s", cases[i].command, text);
    }
}

Test(health_check_io, a_long_line_is_cut_between_characters) {
    run("i=0; while [ $i -lt 300 ]; do printf '\\303\\244'; i=$((i+1)); done; exit 1", 60 * NS_PER_S);
    cr_assert_eq(result, HEALTH_NOT_FIT);
    cr_assert_eq(strlen(text), HEALTH_LINE_MAX);
    for (size_t i = 0; i < HEALTH_LINE_MAX; i += 2)
        cr_assert_eq(memcmp(text + i, "ä", 2), 0);
}

static void await(struct pollfd *p) {
    int n;
    do
        n = poll(p, 1, -1);
    while (n < 0 && errno == EINTR); /* SIGCHLD */
    cr_assert_eq(n, 1);
}

/* A process in the background of the command holds a FIFO of ours, whose end shows that it is gone. */
static void with_background(const char *then, uint64_t timeout_ns, bool cancel) {
    char folder[] = "/tmp/muster-health-XXXXXX", fifo[64], command[256];
    cr_assert_not_null(mkdtemp(folder));
    (void)snprintf(fifo, sizeof fifo, "%s/alive", folder);
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    struct pollfd p = {.fd = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC), .events = POLLIN};
    (void)snprintf(command, sizeof command, "exec 3>%s; echo >&3; sleep 3600 & %s", fifo, then);
    char c;
    if (cancel) {
        start(command, timeout_ns);
        await(&p);
        cr_assert_eq(read(p.fd, &c, 1), 1);
        health_check_free(check);
    } else {
        run(command, timeout_ns);
        cr_assert_eq(read(p.fd, &c, 1), 1);
    }
    p.events = 0; /* POLLHUP: no process has it any more */
    await(&p);
    (void)close(p.fd);
    (void)unlink(fifo);
    (void)rmdir(folder);
}

Test(health_check_io, at_the_limit_its_background_is_gone_too) {
    with_background("echo waiting; sleep 3600", NS_PER_S, false);
    cr_assert_eq(result, HEALTH_NOT_KNOWN);
    cr_assert_eq(strncmp(text, "it did not end within 1 s", 25), 0, "%s", text);
}

Test(health_check_io, what_it_leaves_behind_is_killed_when_it_ends) {
    with_background("echo bad; exit 1", 3600 * NS_PER_S, false);
    cr_assert_eq(result, HEALTH_NOT_FIT);
    cr_assert_str_eq(text, "bad");
}

Test(health_check_io, a_cancelled_check_is_gone) {
    with_background("sleep 3600", 3600 * NS_PER_S, true);
    cr_assert_eq(result, -1);
}

/* Output without end is read, and the last of it is kept. */
Test(health_check_io, output_without_end_does_not_stop_it) {
    run("yes x | head -c 3000000; echo last; exit 1", 60 * NS_PER_S);
    cr_assert_str_eq(text, "last");
}
