/* A head whose ssh is a shell script: it prints what the relay on that host would send, which lies in a file. */
#include "launcher/ssh/ssh_head_io.h"

#include "launcher/ssh/ssh_boot.h"
#include "rig/tree.h"

extern char **environ;

static struct tree tree;

static FILE *create(const char *name) {
    FILE *f = fopen(tree_at(&tree, name), "w");
    cr_assert_not_null(f);
    return f;
}

static void begin(void) {
    (void)alarm(60);
    tree_new(&tree);
    cr_assert_eq(setenv("MUSTER_RUN_DIR", tree.root, 1), 0);
    tree_write(&tree, "ssh", rig_text("while [ \"$1\" != -- ]; do shift; done\n. %s/$2.sh\n", tree.root));
}

static void end(void) { tree_remove(&tree); }

TestSuite(ssh_head_io, .init = begin, .fini = end);

#define MESSAGES_MAX 4
#define LEAD                                                             \
    {                                                                    \
        .kind = STARTER_LEAD, .lead = {.version = STARTER_WIRE_VERSION } \
    }
#define EXIT(number, by_signal)                                                     \
    {                                                                               \
        .kind = STARTER_EXIT, .exit = {.code = (number), .signalled = (by_signal) } \
    }
#define VERDICT(number)                                           \
    {                                                             \
        .kind = STARTER_VERDICT, .verdict = {.status = (number) } \
    }

struct relay {
    const char *before;                            /* a shell command that ssh runs first; NULL: none */
    struct starter_message messages[MESSAGES_MAX]; /* after HELLO; kind 0: no more */
    const char *after;                             /* a shell command; NULL: waits for the end of its input */
};

/* Prints this behind HELLO. */
static void write_relay(const char *host, const struct relay *r) {
    _cleanup_(strbuf_fini) struct strbuf frames = {0};
    strbuf_add(&frames, SSH_BEGIN);
    starter_add(&(struct starter_message){.kind = STARTER_HELLO, .hello = {.version = "1", .pid = 1}}, &frames);
    for (size_t i = 0; i < MESSAGES_MAX && r->messages[i].kind != 0; i++)
        starter_add(&r->messages[i], &frames);
    FILE *f = create(host);
    cr_assert_eq(fwrite(frames.data, 1, frames.len, f), frames.len);
    cr_assert_eq(fclose(f), 0);
    f = create(rig_text("%s.sh", host));
    (void)fprintf(f, "%s\ncat %s/%s\n%s\n", r->before != NULL ? r->before : ":", tree.root, host,
                  r->after != NULL ? r->after : "cat >/dev/null");
    cr_assert_eq(fclose(f), 0);
}

static void write_job(const struct job_spec *spec, struct strbuf *out) { strbuf_add(out, "{}"); }

static bool meet; /* at the first host */

/* The status of a job on one host or two, of which it needs one. b: NULL, one. */
static int run(const struct relay *a, const struct relay *b) {
    static char run_id[] = "test";
    struct job_spec spec = job_spec_default;
    char *ssh = rig_text("sh %s/ssh", tree.root);
    spec.auth = AUTH_NONE;
    spec.run_id = run_id;
    spec.hosts.ssh = ssh;
    spec.rdzv.min_nodes = 1;
    spec.endpoint_from = meet ? JOB_ENDPOINT_OF_HOST : JOB_ENDPOINT_GIVEN;
    spec.signals[spec.n_signals++] = SIGTERM;
    (void)hosts_add(&spec.hosts.list, "a.test");
    write_relay("a.test", a);
    if (b != NULL) {
        (void)hosts_add(&spec.hosts.list, "b.test");
        write_relay("b.test", b);
    }
    int status = ssh_head_run(&(struct starter_run_config){.spec = &spec,
                                                           .nodes = (uint32_t)spec.hosts.list.n,
                                                           .args = (char *[]){NULL},
                                                           .envp = environ,
                                                           .version = "1",
                                                           .write_job = write_job,
                                                           .argv0 = "sh"});
    hosts_fini(&spec.hosts.list);
    return status;
}

Test(ssh_head_io, one_host_decides_the_status) {
    static const struct {
        struct relay relay;
        int status;
    } rows[] = {
        {{.messages = {LEAD, VERDICT(0), EXIT(0, false)}}, 0},
        {{.messages = {LEAD, VERDICT(7), EXIT(1, false)}}, 7}, /* the verdict counts */
        {{.messages = {EXIT(3, false)}}, 3},                   /* no agent has led */
        {{.messages = {EXIT(SIGKILL, true)}}, STARTER_EXIT_LOST},
        {{.messages = {{.kind = STARTER_FAIL, .fail = {.text = "no such folder"}}}}, STARTER_EXIT_LOST},
        {{.messages = {LEAD}, .after = "exit 255"}, STARTER_EXIT_LOST}, /* the connection is lost */
        {{.before = "echo 'Permission denied' >&2; exit 255"}, STARTER_EXIT_LOST},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        cr_expect_eq(run(&rows[i].relay, NULL), rows[i].status, "row %zu", i);
}

Test(ssh_head_io, a_signal_ends_the_job_and_is_its_status) {
    const struct relay relay = {.messages = {LEAD}, .after = "kill -TERM $PPID; head -c 1 >/dev/null; exit 0"};
    cr_assert_eq(run(&relay, NULL), 128 + SIGTERM);
}

Test(ssh_head_io, the_job_runs_on_the_hosts_that_can_be_reached) {
    const struct relay dead = {.before = "exit 255"}, good = {.messages = {LEAD, VERDICT(0), EXIT(0, false)}};
    cr_assert_eq(run(&dead, &good), 0);
    cr_assert_eq(run(&good, &dead), 0);
}

Test(ssh_head_io, the_host_where_the_others_meet_is_not_replaced) {
    const struct relay first = {.messages = {{.kind = STARTER_PORT, .port = {.port = 4711}}, LEAD},
                                .after = "exit 255"},
                       late = {.before = "sleep 100"};
    meet = true;
    cr_assert_eq(run(&first, &late), STARTER_EXIT_LOST);
}

Test(ssh_head_io, an_ssh_that_is_no_command_is_a_usage_error) {
    static char run_id[] = "test", ssh[] = "'ssh";
    struct job_spec spec = *WITH(job_spec_default, .auth = AUTH_NONE, .run_id = run_id, .hosts.ssh = ssh);
    (void)hosts_add(&spec.hosts.list, "a.test");
    cr_assert_eq(ssh_head_run(&(struct starter_run_config){.spec = &spec, .nodes = 1, .envp = environ, .argv0 = "sh"}),
                 2);
    hosts_fini(&spec.hosts.list);
}
