#include "launcher/preflight/preflight_io.h"

#include "rig/unit.h"

#define LEADER "198.51.100.7"

static struct loop *loop;
static struct job_spec spec;
static struct preflight *p;
static struct node_info info;

static void can_join(void *arg) { loop_quit(arg); }
static void send_summary(void *arg, const char *text) { (void)arg, (void)text; }

static void begin(struct node_discovery *discovery) {
    static const struct preflight_ops ops = {.can_join = can_join, .send = send_summary};
    struct preflight_config config = {.spec = &spec, .envp = environ, .host = "h", .discovery = discovery};
    p = preflight_new(loop, &config, &ops, loop);
    cr_assert_not_null(p);
}
static void init(void) {
    spec = (struct job_spec){.rdzv.max_nodes = 2, .preflight = JOB_PREFLIGHT_WARN, .nccl_env = NCCL_ENV_FULL};
    cr_assert_eq(loop_new(&loop), 0);
}
static void fini(void) {
    preflight_free(p);
    loop_free(loop);
}
TestSuite(preflight_io, .init = init, .fini = fini);

Test(preflight_io, lends_what_it_has_discovered_for_one_group) {
    begin(NULL);
    cr_assert_null(preflight_lend(p, LEADER), "nothing is known before JOIN");
    cr_assert_not(preflight_joining(p, LEADER, &info));
    cr_assert_eq(loop_run(loop), 0);
    cr_assert(preflight_joining(p, LEADER, &info));
    cr_assert_null(preflight_lend(p, "198.51.100.8"), "the route leads to another leader");
    struct node_discovery *lent = preflight_lend(p, LEADER);
    cr_assert_not_null(lent);
    cr_assert(node_discovery_found(lent)->has_netifs);
    cr_assert_null(preflight_lend(p, LEADER), "routes can have changed when the next group forms");
    cr_assert_null(preflight_lend(NULL, LEADER));
}

Test(preflight_io, has_nothing_to_lend_where_all_nodes_are_on_this_machine) {
    begin(NULL);
    cr_assert(preflight_joining(p, NULL, &info));
    cr_assert_null(preflight_lend(p, ""));
}

/* Workers take that one from the agent, with the devices. */
Test(preflight_io, does_not_lend_the_agents_own_discovery) {
    struct node_discovery_config config = {.what = DISCOVER_NETIFS, .netifs_first = true, .envp = environ};
    struct node_discovery *own = NULL;
    struct err err = {0};
    cr_assert_eq(node_discovery_new(loop, &config, &own, &err), 0, "%s", err.text);
    begin(own);
    cr_assert_not(preflight_joining(p, LEADER, &info));
    cr_assert_eq(loop_run(loop), 0);
    cr_assert(preflight_joining(p, LEADER, &info));
    cr_assert_null(preflight_lend(p, LEADER));
    preflight_free(TAKE_PTR(p));
    node_discovery_free(own);
}
