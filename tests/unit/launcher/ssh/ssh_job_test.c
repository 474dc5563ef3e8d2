#include "launcher/ssh/ssh_boot.h"

#include "rig/unit.h"

static char *node_rank_given[] = {(char *)(uintptr_t) "node-rank", (char *)(uintptr_t) "nproc-per-node", NULL};
static struct job_spec spec;

static void begin(void) {
    spec = job_spec_default;
    spec.nproc = 1;
    hosts_add(&spec.hosts.list, "a")->slots = 3;
    (void)hosts_add(&spec.hosts.list, "b");
    spec.endpoint_from = JOB_ENDPOINT_OF_HOST;
}

static void end(void) { hosts_fini(&spec.hosts.list); }

TestSuite(ssh_job, .init = begin, .fini = end);

static struct job_spec job_of(size_t host, size_t first) { return ssh_job_of(&spec, host, first, "10.0.0.1", 12001); }

Test(ssh_job, hosts_get_what_the_user_has_not_given) {
    struct job_spec a = job_of(0, 0), b = job_of(1, 0);
    cr_assert(a.node_rank == 0 && b.node_rank == 1);
    cr_assert(a.nproc == 3 && b.nproc == 1);
    cr_assert(a.is_host == 1 && b.is_host == 0);
    cr_assert_str_eq(b.endpoint_host, "10.0.0.1");
    cr_assert_eq(b.endpoint_port, 12001);
}

Test(ssh_job, what_the_user_gives_counts) {
    spec.given = node_rank_given;
    spec.node_rank = 5;
    spec.nproc = 4;
    spec.is_host = 0;
    struct job_spec a = job_of(0, 0);
    cr_assert(a.node_rank == 5 && a.nproc == 4 && a.is_host == 0);
    spec.endpoint_from = JOB_ENDPOINT_GIVEN;
    spec.is_host = -1;
    spec.endpoint_port = 7;
    a = job_of(0, 0);
    cr_assert(a.endpoint_host == NULL && a.endpoint_port == 7 && a.is_host == -1);
}

Test(ssh_job, ranks_count_from_the_first_host_that_answers) {
    cr_assert_eq(job_of(1, 1).node_rank, 0);
    cr_assert_eq(job_of(1, 1).is_host, 1);
    cr_assert_eq(job_of(0, 1).node_rank, 1, "a host that was passed over is the last");
    cr_assert_eq(job_of(0, 1).is_host, 0);
}

Test(ssh_job, nodes_meet_at_an_address_that_others_can_reach) {
    static const struct {
        const char *addrs, *addr;
    } cases[] = {
        {"10.0.0.1,fd77::1", "10.0.0.1"},
        {"127.0.0.1,10.0.0.1", "10.0.0.1"},
        {"::1,fe80::2,fd77::1", "fd77::1"},
        {"127.0.1.1", "127.0.1.1"},
        {"", "127.0.0.1"},
        {",,", "127.0.0.1"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *addr = ssh_meeting_addr(cases[i].addrs);
        cr_assert_str_eq(addr, cases[i].addr);
    }
}
