#include "launcher/preflight/node_summary_io.h"

#include <sys/utsname.h>

#include "rig/loop_rig.h"

static struct loop *loop;
static struct node_summary found;
static bool found_whole;
static int calls;

static struct node_discovery *discovery;

static void on_discovered(void *arg) { loop_quit(arg); }

static void begin(void) {
    static char *no_environment[] = {NULL};
    struct node_discovery_config config = {.what = node_summary_needs(discover_has_gpus()),
                                           .netifs_first = true,
                                           .nvml = true,
                                           .facts = true,
                                           .envp = no_environment};
    cr_assert_eq(loop_new(&loop), 0);
    cr_assert_eq(node_discovery_new(loop, &config, &discovery, NULL), 0);
    node_discovery_wait(discovery, on_discovered, loop);
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_null(node_discovery_found(discovery)->failure);
}

static void finish(void) {
    node_discovery_free(discovery);
    loop_free(loop);
}

static void on_node_summary(void *arg, const struct node_summary *d, bool whole) {
    found = *d;
    found_whole = whole;
    calls++;
    loop_quit(loop);
}

static struct node_summary_gathering *start(const char *log_dir) {
    struct node_summary_config config = {
        .discovery = discovery, .log_dir = log_dir, .netif = "lo", .host = "localhost"};
    struct node_summary_gathering *g;
    cr_assert_eq(node_summary_start(loop, &config, on_node_summary, NULL, &g), 0);
    return g;
}

static const struct node_summary_finding *finding(const char *code) {
    for (uint32_t i = 0; i < found.n_findings; i++)
        if (strcmp(found.findings[i].code, code) == 0)
            return &found.findings[i];
    return NULL;
}

Test(node_summary_io, this_machine_is_looked_at, .init = begin, .fini = finish) {
    struct utsname u;
    (void)start("/tmp/muster-not-there/b/c");
    cr_assert_eq(loop_run(loop), 0);
    cr_assert_eq(calls, 1);
    cr_assert(found_whole && found.has_clock);
    cr_assert_eq(uname(&u), 0);
    cr_assert_str_eq(found.values[NODE_SUMMARY_KERNEL], u.release);
    cr_assert_str_eq(found.values[NODE_SUMMARY_NETIF], "lo");
    cr_assert_str_eq(found.values[NODE_SUMMARY_MTU], "65536", "of lo (%s)", found.values[NODE_SUMMARY_MTU]);
    cr_assert_str_eq(found.values[NODE_SUMMARY_NAME], "loopback", "of localhost");
    cr_assert_not_null(finding("NAME-LOOPBACK"));
    cr_assert(finding("DISK") != NULL || finding("DISK-LOW") != NULL, "the disk of a folder that is to be made");
    cr_assert_neq(found.values[NODE_SUMMARY_GPUS][0], '\0');
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "the child is reaped");
    cr_assert_eq(errno, ECHILD);
}

/* It is not reaped. */
static bool has_child(void) {
    siginfo_t si;
    return waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Then there is no child. The child would find the same. */
Test(node_summary_io, what_cannot_block_is_looked_at_here, .init = begin, .fini = finish) {
    struct addr own;
    if (discover_has_gpus())
        cr_skip_test("processes on GPUs are looked for by a child");
    (void)start(NULL);
    cr_assert(has_child(), "the name has to be asked for");
    cr_assert_eq(loop_run(loop), 0);
    while (has_child()) /* it has answered, and ends */
        cr_assert_eq(loop_wait(loop), 0);
    struct node_summary by_child = found;
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &own), 0);
    struct node_summary_config config = {
        .discovery = discovery, .netif = "lo", .host = "localhost", .own_addrs = &own, .n_own_addrs = 1};
    struct node_summary_gathering *g;
    cr_assert_eq(node_summary_start(loop, &config, on_node_summary, NULL, &g), 0);
    cr_assert_eq(calls, 1, "never from inside");
    cr_assert_not(has_child());
    cr_assert_eq(loop_run(loop), 0);
    cr_assert(calls == 2 && found_whole && found.has_clock);
    for (unsigned i = 0; i < NODE_SUMMARY_FACT_COUNT; i++)
        cr_expect_str_eq(found.values[i], by_child.values[i]);
    cr_assert_eq(found.n_findings, by_child.n_findings);
    for (uint32_t i = 0; i < found.n_findings; i++)
        cr_expect_str_eq(found.findings[i].code, by_child.findings[i].code);
    cr_assert_eq(node_summary_start(loop, &config, on_node_summary, NULL, &g), 0);
    node_summary_stop(g);
    config.log_dir = "/tmp";
    cr_assert_eq(node_summary_start(loop, &config, on_node_summary, NULL, &g), 0);
    cr_assert(has_child(), "a disk can hang");
    node_summary_stop(g);
    cr_assert_eq(calls, 2);
}

Test(node_summary_io, a_folder_that_is_to_be_made_here, .init = begin, .fini = finish) {
    (void)start("muster-not-there");
    cr_assert_eq(loop_run(loop), 0);
    cr_assert(finding("DISK") != NULL || finding("DISK-LOW") != NULL);
    cr_assert_null(finding("DISK-BAD"));
}

Test(node_summary_io, one_that_is_given_up_leaves_nothing, .init = begin, .fini = finish) {
    node_summary_stop(start(NULL));
    node_summary_stop(NULL);
    rig_loop_turns(loop, 10);
    cr_assert_eq(calls, 0);
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
    cr_assert_eq(errno, ECHILD);
}

/* The folder's file system does not answer, or the name server is silent, until the deadline. */
Test(node_summary_io, what_takes_too_long_is_not_waited_for, .init = begin, .fini = finish) {
    struct node_summary_config config = {.discovery = discovery, .netif = "", .host = "localhost", .begun_ns = 1};
    struct node_summary_gathering *g;
    cr_assert_eq(node_summary_start(loop, &config, on_node_summary, NULL, &g), 0);
    cr_assert_eq(loop_run(loop), 0);
    cr_assert(calls == 1 && !found_whole);
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
    cr_assert_eq(errno, ECHILD);
}
