#include "launcher/node/node_discovery_io.h"

#include <sched.h>

#include "../../topology/tree_rig.h"
#include "io/process/reaper.h"
#include "rig/loop_rig.h"
#include "topology/discover/discovery_io.h"

struct fixture {
    struct loop *loop;
    struct child_reaper *reaper;
    struct node_discovery *discovery;
    int called;
    bool free_in_call;
};

static void on_discovered(void *arg) {
    struct fixture *f = arg;
    f->called++;
    if (f->free_in_call) {
        node_discovery_free(f->discovery);
        f->discovery = NULL;
    }
    loop_quit(f->loop);
}

static void begin(struct fixture *f, struct node_discovery_config config) {
    cr_assert_eq(loop_new(&f->loop), 0);
    f->reaper = child_reaper_new(f->loop);
    struct err err = {0};
    cr_assert_eq(node_discovery_new(f->loop, &config, &f->discovery, &err), 0, "%s", err.text);
    cr_assert_not(node_discovery_found(f->discovery)->ended);
    cr_assert_null(node_discovery_found(f->discovery)->topology);
    cr_assert_null(node_discovery_found(f->discovery)->failure);
}

static void run(struct fixture *f, struct node_discovery_config config) {
    begin(f, config);
    node_discovery_wait(f->discovery, on_discovered, f);
    rig_loop_run(f->loop);
}

#define FOUND node_discovery_found(f.discovery)

/* Nothing is left, not even the child. */
static void end(struct fixture *f) {
    node_discovery_free(f->discovery);
    child_reaper_free(f->reaper);
    loop_free(f->loop);
    int status;
    pid_t left = waitpid(-1, &status, 0);
    cr_expect(left > 0 || errno == ECHILD);
    cr_expect(waitpid(-1, &status, 0) < 0 && errno == ECHILD, "there was more than one child");
}

Test(node_discovery, tells_the_cpus_of_this_machine) {
    _cleanup_(end) struct fixture f = {0};
    run(&f, (struct node_discovery_config){.what = DISCOVER_CPUS});
    cr_assert(FOUND->ended);
    const struct topology *t = FOUND->topology;
    cr_assert_not_null(t, "%s", FOUND->failure);
    cpu_set_t own;
    cr_assert_eq(sched_getaffinity(0, sizeof own, &own), 0);
    for (uint32_t i = 0; i < CPU_SETSIZE; i++)
        cr_expect_eq(cpuset_has(&t->allowed, i), CPU_ISSET(i, &own) != 0, "CPU %u", i);
    cr_expect_gt(t->n_cores, 0);
    cr_expect_gt(t->n_numa, 0);
    cr_expect_null(FOUND->failure);
    cr_expect_null(FOUND->facts, "nobody asked for them");
    cr_expect_null(FOUND->route, "nor for a route");
    cr_expect_null(FOUND->no_route);
    cr_expect_eq(f.called, 1);
    node_discovery_wait(f.discovery, on_discovered, &f); /* a late waiter is called, too */
    rig_loop_run(f.loop);
    cr_expect_eq(f.called, 2);
}

Test(node_discovery, tells_the_route_to_an_address_and_what_was_configured) {
    _cleanup_(end) struct fixture f = {0};
    run(&f, (struct node_discovery_config){
                .what = DISCOVER_NETIFS, .route_to = "127.0.0.1", .facts = true, .envp = environ});
    const struct route_found *route = FOUND->route;
    cr_assert_not_null(route, "%s", FOUND->no_route);
    cr_expect_str_eq(route->netif, "lo");
    cr_expect_str_eq(route->source, "127.0.0.1");
    cr_expect_neq(topology_find_netif(FOUND->topology, "lo"), TOPO_NONE);
    const struct nccl_facts *facts = FOUND->facts;
    cr_assert_not_null(facts);
    cr_expect_gt(facts->nofile_hard, 0);
}

Test(node_discovery, says_why_no_way_leads_to_an_address) {
    _cleanup_(end) struct fixture f = {0};
    run(&f, (struct node_discovery_config){.route_to = "nonsense"});
    cr_assert_not_null(FOUND->topology, "%s", FOUND->failure);
    cr_assert_null(FOUND->route);
    cr_assert_not_null(FOUND->no_route);
    expect_has(FOUND->no_route, "nonsense");
}

/* NVML hangs: its library is a FIFO, and opening that never returns. */
Test(node_discovery, interfaces_and_route_do_not_wait_for_nvml) {
    struct fixture f = {0};
    struct tree tree;
    tree_new(&tree);
    const char *fifo = rig_text("%s/nvml", tree.root);
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    begin(&f, (struct node_discovery_config){.what = DISCOVER_NICS | DISCOVER_NVML,
                                             .netifs_first = true,
                                             .nvml = true,
                                             .route_to = "127.0.0.1",
                                             .nvml_library = fifo});
    cr_assert_not(FOUND->has_netifs);
    node_discovery_wait_netifs(f.discovery, on_discovered, &f);
    rig_loop_run(f.loop);
    cr_assert(FOUND->has_netifs && !FOUND->ended);
    cr_expect_neq(topology_find_netif(FOUND->netifs, "lo"), TOPO_NONE);
    cr_assert_not_null(FOUND->route);
    cr_expect_str_eq(FOUND->route->netif, "lo");
    cr_expect_null(FOUND->topology);
    cr_expect_null(FOUND->nvml);

    node_discovery_wait(f.discovery, on_discovered, &f);
    node_discovery_wait_netifs(f.discovery, on_discovered, &f); /* a late waiter is called at once */
    rig_loop_run(f.loop);
    cr_assert(f.called == 2 && !FOUND->ended);
    rig_loop_run(f.loop);
    cr_assert_not_null(FOUND->topology, "%s", FOUND->failure);
    cr_expect_eq(f.called, 3);
    cr_expect_eq(FOUND->topology->n_netifs, 0u, "they were not asked for again");
    cr_assert_not_null(FOUND->nvml);
    cr_expect_not(FOUND->nvml->report.whole);
    end(&f);
    tree_remove(&tree);
}

Test(node_discovery, lists_amds_gpus_as_rocm_numbers_them) {
    struct tree tree;
    tree_new(&tree);
    tree_write(&tree, "sys/class/kfd/kfd/topology/nodes/1/properties",
               "simd_count 440\nlocation_id 25344\ndomain 0\nunique_id 4660\n");
    for (int asked = 0; asked < 2; asked++) {
        _cleanup_(end) struct fixture f = {0};
        run(&f, (struct node_discovery_config){.rocm = asked == 1, .sysroot = tree.root});
        cr_assert_not_null(FOUND->topology, "%s", FOUND->failure);
        cr_assert_eq(FOUND->n_rocm, asked == 1 ? 1u : 0u);
        if (asked == 1)
            cr_expect_eq(FOUND->rocm[0].unique_id, 4660u);
    }
    tree_remove(&tree);
}

Test(node_discovery, a_look_that_takes_too_long_has_failed) {
    for (int tries = 0;; tries++) { /* everything can have arrived before this process runs again */
        struct fixture f = {0};
        run(&f, (struct node_discovery_config){.what = DISCOVER_CPUS, .deadline_ns = 1});
        bool late = FOUND->topology == NULL;
        if (late)
            cr_expect_str_eq(FOUND->failure, "it took longer than 1e-09 s");
        end(&f);
        if (late)
            break;
        cr_assert_lt(tries, 20);
    }
}

Test(node_discovery, says_why_nothing_was_found) {
    _cleanup_(end) struct fixture f = {0};
    run(&f, (struct node_discovery_config){.what = DISCOVER_CPUS, .sysroot = "/nonexistent"});
    cr_expect_null(FOUND->topology);
    cr_assert_not_null(FOUND->failure);
    expect_has(FOUND->failure, "nonexistent");
}

Test(node_discovery, nobody_is_called_once_it_is_freed) {
    struct fixture f = {0};
    begin(&f, (struct node_discovery_config){.what = DISCOVER_CPUS});
    node_discovery_wait(f.discovery, on_discovered, &f);
    end(&f);
    cr_expect_eq(f.called, 0);
}

Test(node_discovery, may_be_freed_by_whom_it_calls) {
    _cleanup_(end) struct fixture f = {.free_in_call = true};
    begin(&f, (struct node_discovery_config){.what = DISCOVER_CPUS});
    node_discovery_wait(f.discovery, on_discovered, &f);
    node_discovery_wait(f.discovery, on_discovered, &f);
    rig_loop_run(f.loop);
    cr_expect_eq(f.called, 1);
}
