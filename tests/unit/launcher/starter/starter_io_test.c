#include "launcher/starter/starter_io.h"

#include "base/text/envlist.h"
#include "io/net/addr.h"
#include "io/process/proc.h"
#include "launcher/place/place.h"
#include "launcher/starter/starter_link_io.h"
#include "rendezvous/auth/keyring_io.h"
#include "rig/tree.h"

extern char **environ;

/* A backend whose commands are shell scripts. A fake agent connects, as one that they had started. */
struct backend {
    const char *scripts[3];
    int verdict; /* that the agent sends; -1: there is no agent */
    int signo;   /* that this process gets as soon as the agent leads; 0: none */
    int result;  /* where the agent reports that all went well; the reaper of the starter has its status */
    int ended;   /* commands */
    int killed_by;
    enum auth_mode auth;
    struct keyring *keys;  /* of the user */
    const uint8_t *secret; /* that the agent has; NULL: none */
};

static struct tree tree;
static char fifo[160];

static void begin(void) {
    (void)alarm(60);
    tree_new(&tree);
    (void)snprintf(fifo, sizeof fifo, "%s/fifo", tree.root);
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    cr_assert_eq(setenv("MUSTER_RUN_DIR", tree.root, 1), 0);
    cr_assert_eq(setenv("FIFO", fifo, 1), 0);
}

static void end(void) { tree_remove(&tree); }

TestSuite(starter_io, .init = begin, .fini = end);

/* Lasts as long as the agent has the fifo open, also where the signal comes before the agent has connected. */
#define WHILE_AGENT "trap '' TERM; read x <$FIFO; "

static struct loop *loop;
static const struct place place = {
    .slurm = PLACE_SLURM_STEP, .job_id = (char *)(uintptr_t) "28", .step_id = (char *)(uintptr_t) "0"};

static void on_stop(void *arg, int signo) {
    *(int *)arg = signo;
    loop_quit(loop);
}
static void on_expect(void *arg, uint32_t nodes) { (void)arg, (void)nodes; }
static void on_gone(void *arg) { (void)arg; }

/* Connects to the starter from an address of this machine. */
static int connect_from(struct addr own, uint16_t port) {
    int fd = socket(own.ss.ss_family, SOCK_STREAM, 0);
    addr_set_port(&own, port);
    return connect(fd, (const struct sockaddr *)&own.ss, own.len) == 0 ? fd : -1;
}

/* Connections that are not an agent's, and that the starter has to end: the oldest of too many, one with other bytes,
 * and one from outside the loopback interface that does not begin with TLS. */
static bool strangers_are_refused(char *const *env) {
    int fds[STARTER_STRANGERS_MAX + 1];
    const char *port = strrchr(env_get(env, STARTER_HEAD_ENV), ':') + 1;
    struct addr at, own;
    size_t n = 0;
    char byte;
    bool fine = addr_from_literal("127.0.0.1", 0, &at) == 0;
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = connect_from(at, (uint16_t)atoi(port));
    fine = fine && read(fds[0], &byte, 1) == 0 && write(fds[1], "GET / HTTP/1.1\r\n", 16) == 16 &&
           read(fds[1], &byte, 1) <= 0;
    if (addr_all_global(&own, 1, &n) < 0 || n == 0)
        return fine;
    int fd = connect_from(own, (uint16_t)atoi(port));
    return fine && write(fd, "\5", 1) == 1 && read(fd, &byte, 1) <= 0;
}

_noreturn_ static void be_agent(const struct backend *b, char *const *env) {
    static const struct starter_link_ops ops = {.stop = on_stop, .expect = on_expect, .gone = on_gone};
    struct starter_link *link = NULL;
    int stopped = 0, fd = open(fifo, O_WRONLY);
    (void)alarm(30);
    bool fine = fd >= 0 && loop_new(&loop) == 0 && (b->secret == NULL || strangers_are_refused(env)) &&
                starter_link_new(loop, env, b->secret, "node1", &place, &ops, &stopped, &link, NULL) == 0;
    starter_link_lead(link);
    if (fine && b->signo != 0)
        fine = kill(getppid(), b->signo) == 0 && loop_run(loop) == 0 && stopped == b->signo;
    fine = fine && starter_link_verdict(link, &(struct starter_verdict){.status = (uint32_t)b->verdict});
    _exit(fine && write(b->result, "y", 1) == 1 ? 0 : 1);
}

static int start(void *arg, struct starter_run *r, struct err *err) {
    struct backend *b = arg;
    _cleanup_(envlist_fini) struct envlist env = {0};
    int code = 0;
    envlist_copy(&env, environ);
    for (size_t i = 0; i < ARRAY_SIZE(b->scripts) && b->scripts[i] != NULL && code == 0; i++) {
        char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t)b->scripts[i], NULL};
        code = starter_spawn(r, argv, &env, err);
    }
    cr_assert_null(envlist_get(&env, STARTER_KEY_ENV));
    if (b->verdict >= 0 && fork() == 0)
        be_agent(b, envlist_items(&env));
    return code;
}

static void describe(void *arg, struct starter_description *ret) {
    (void)snprintf(ret->run_id, sizeof ret->run_id, "test");
    ret->ask = xstrdup("sh -c");
}

static void on_command_ended(void *arg, const struct child_status *status) {
    struct backend *b = arg;
    b->ended += !status->signalled;
    b->killed_by = status->signalled ? status->code : 0;
}

static void count(void *arg, int fd) { *(int *)arg += fd > 0; }

static int run(struct backend *b) {
    static const struct starter_ops ops = {.start = start, .describe = describe, .command_ended = on_command_ended};
    struct job_spec spec = job_spec_default;
    int ends[2], open_before = 0, open_after = 0;
    char byte = '\0';
    cr_assert_eq(proc_each_number("/proc/self/fd", count, &open_before), 0);
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    b->result = ends[1];
    spec.auth = b->auth;
    spec.start_nodes = 1;
    spec.signals[spec.n_signals++] = SIGTERM;
    spec.signals[spec.n_signals++] = SIGINT;
    int r = starter_run(
        &(struct starter_run_config){
            .spec = &spec, .envp = environ, .keys = b->keys, .argv0 = "muster", .python = "/a/python"},
        &ops, b);
    (void)close(ends[1]);
    if (b->verdict >= 0)
        cr_assert_eq(read(ends[0], &byte, 1), 1, "the agent failed");
    (void)close(ends[0]);
    cr_assert_eq(proc_each_number("/proc/self/fd", count, &open_after), 0);
    cr_assert_eq(open_after, open_before, "descriptors are left");
    return r;
}

Test(starter_io, without_an_agent_the_status_is_that_of_the_first_command_that_failed) {
    cr_assert_eq(run(&(struct backend){.scripts = {"exit 3"}, .auth = AUTH_NONE, .verdict = -1}), 3);
    struct backend all = {.scripts = {"exit 0", "exit 4", "exit 0"}, .auth = AUTH_NONE, .verdict = -1};
    cr_assert_eq(run(&all), 4);
    cr_assert_eq(all.ended, 3);
    cr_assert_eq(run(&(struct backend){.scripts = {"kill -9 $$"}, .auth = AUTH_NONE, .verdict = -1}), 137);
}

Test(starter_io, the_verdict_of_the_agent_is_the_status) {
    struct backend b = {.scripts = {WHILE_AGENT "exit 1"}, .auth = AUTH_NONE, .verdict = 0};
    cr_assert_eq(run(&b), 0);
    b = (struct backend){.scripts = {WHILE_AGENT "exit 0"}, .auth = AUTH_NONE, .verdict = 7};
    cr_assert_eq(run(&b), 7);
}

Test(starter_io, a_signal_reaches_the_agent_as_an_order_to_stop) {
    struct backend b = {.scripts = {WHILE_AGENT "exit 0"}, .auth = AUTH_NONE, .verdict = 143, .signo = SIGTERM};
    cr_assert_eq(run(&b), 143);
    cr_assert_eq(b.ended, 1, "the command was not signalled");
}

/* No agent has connected, or is known here to lead. */
Test(starter_io, a_signal_without_an_agent_reaches_each_command) {
    struct backend b = {.scripts = {"kill -TERM $PPID; read x <>$FIFO"}, .auth = AUTH_NONE, .verdict = -1};
    cr_assert_eq(run(&b), 143);
    cr_assert_eq(b.killed_by, SIGTERM, "it got signal %d", b.killed_by);
}

Test(starter_io, a_command_knows_the_interpreter_and_others_the_run) {
    struct backend b = {.scripts = {"test \"$MUSTER_HEAD_PYTHON\" = /a/python && grep -qs 'sh -c' $MUSTER_RUN_DIR/*"},
                        .verdict = -1};
    cr_assert_eq(run(&b), 0);
}

Test(starter_io, what_can_not_be_started_is_a_usage_error) {
    struct backend b = {.scripts = {"exit 0"}, .auth = AUTH_NONE, .verdict = -1};
    cr_assert_eq(setenv("PATH", "/nonexistent", 1), 0);
    cr_assert_eq(run(&b), 2);
}

Test(starter_io, in_a_line_for_a_shell_muster_has_its_path_unless_that_needs_quotes) {
    static const struct {
        const char *program, *word;
    } cases[] = {{"/a-b/muster", "/a-b/muster"}, {"/a b/muster", "muster"}, {"/a/torchrun", "muster"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *word = starter_program_word(cases[i].program, environ);
        cr_assert_str_eq(word, cases[i].word);
    }
}

#define PRINT_KEY "printf %s \"$MUSTER_HEAD_KEY\" >\"$MUSTER_RUN_DIR/key\""

/* That a command gets in its environment. */
static void read_key(enum auth_mode auth, struct keyring *keys, char ret[AUTH_KEY_TEXT_MAX]) {
    struct backend b = {.scripts = {PRINT_KEY}, .verdict = -1, .auth = auth, .keys = keys};
    cr_assert_eq(run(&b), 0);
    FILE *f = fopen(rig_text("%s/key", tree.root), "r");
    cr_assert_not_null(f);
    ret[fread(ret, 1, AUTH_KEY_TEXT_MAX - 1, f)] = '\0';
    (void)fclose(f);
}

Test(starter_io, each_job_has_a_random_key_unless_the_user_gives_one_or_wants_none) {
    static const uint8_t given[AUTH_SECRET_BYTES] = {1, 2, [31] = 0xa5};
    char one[AUTH_KEY_TEXT_MAX], other[AUTH_KEY_TEXT_MAX], expected[AUTH_KEY_TEXT_MAX];
    uint8_t secret[AUTH_SECRET_BYTES];
    struct keyring *keys;
    struct err err = {0};
    struct backend b = {.scripts = {WHILE_AGENT "exit 1"}, .auth = AUTH_ON, .secret = given};
    read_key(AUTH_AUTO, NULL, one);
    read_key(AUTH_ON, NULL, other);
    cr_assert_str_neq(one, other);
    cr_assert_eq(auth_key_from_text(one, strlen(one), "a key", secret, &err), 0, "%s", err.text);
    cr_assert_eq(keyring_new(&keys, &err), 0);
    cr_assert_eq(keyring_add(keys, given, AUTH_FROM_FILE, &err), 0);
    auth_key_to_text(given, expected);
    read_key(AUTH_AUTO, keys, one);
    cr_assert_str_eq(one, expected);
    b.keys = keys;
    cr_assert_eq(run(&b), 0, "an agent with this key is let in");
    read_key(AUTH_NONE, NULL, one);
    cr_assert_str_eq(one, STARTER_NO_KEY);
    keyring_free(keys);
}
