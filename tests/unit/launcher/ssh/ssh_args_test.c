#include "launcher/ssh/ssh_args.h"

#include <criterion/criterion.h>
#include <string.h>

static void spec_init(struct job_spec *spec) {
    *spec = job_spec_default;
    struct host *a = hosts_add(&spec->hosts.list, "a");
    a->slots = 3;
    struct host *b = hosts_add(&spec->hosts.list, "b");
    b->slots = b->n_gpus = 2;
    b->gpus = xcalloc(2, sizeof *b->gpus);
    b->gpus[0] = 5;
    b->gpus[1] = 2;
    spec->rdzv.min_nodes = spec->rdzv.max_nodes = 2;
}

static char *args_of(const struct job_spec *spec, size_t host, const char *addr, struct ssh_boot *boot) {
    char own[] = "--max-restarts=1", script[] = "x";
    char *args[] = {own, script, NULL};
    struct strbuf s = {0};
    ssh_args(spec, &(struct ssh_place){.host = host, .addr = addr, .port = 12001}, args, boot);
    for (size_t i = 0; i < boot->n_args; i++)
        strbuf_printf(&s, "%s%s", i > 0 ? " " : "", boot->args[i]);
    return strbuf_take(&s);
}

Test(ssh_args, hosts_get_what_the_user_has_not_said) {
    _cleanup_(job_spec_fini) struct job_spec spec;
    _cleanup_(ssh_boot_fini) struct ssh_boot a = {0}, b = {0};
    spec_init(&spec);
    spec.hosts.add_nnodes = spec.hosts.add_node_rank = spec.hosts.add_nproc = spec.hosts.add_backend = true;
    spec.hosts.add_is_host = spec.hosts.meet = true;
    spec.hosts.run_id = xstrdup("ssh-1");
    _cleanup_(freep) char *first = args_of(&spec, 0, "10.0.0.1", &a), *second = args_of(&spec, 1, "fd77::1", &b);
    cr_assert_str_eq(first, "--nnodes=2 --node-rank=0 --nproc-per-node=3 --rdzv-id=ssh-1 --rdzv-backend=c10d "
                            "--rdzv-endpoint=10.0.0.1:12001 --max-restarts=1 x");
    cr_assert_str_eq(second, "--nnodes=2 --node-rank=1 --nproc-per-node=2 --rdzv-id=ssh-1 --rdzv-backend=c10d "
                             "--rdzv-endpoint=[fd77::1]:12001 --max-restarts=1 x");
    cr_assert_str_eq(envlist_get(&a.env, "MUSTER_HEAD_FIRST"), "1");
    cr_assert_str_eq(envlist_get(&b.env, "MUSTER_HEAD_FIRST"), "0");
    cr_assert_str_eq(envlist_get(&a.env, "MUSTER_HEAD_WORDS"), "6");
    cr_assert_null(envlist_get(&a.env, "CUDA_VISIBLE_DEVICES"));
    cr_assert_str_eq(envlist_get(&b.env, "CUDA_VISIBLE_DEVICES"), "5,2");
}

Test(ssh_args, what_the_user_says_stays_alone) {
    _cleanup_(job_spec_fini) struct job_spec spec;
    _cleanup_(ssh_boot_fini) struct ssh_boot boot = {0};
    spec_init(&spec);
    _cleanup_(freep) char *args = args_of(&spec, 0, "10.0.0.1", &boot);
    cr_assert_str_eq(args, "--max-restarts=1 x");
    cr_assert_null(envlist_get(&boot.env, "MUSTER_HEAD_FIRST"));
}

Test(ssh_args, ranks_count_from_the_first_host_that_answers) {
    _cleanup_(job_spec_fini) struct job_spec spec;
    _cleanup_(ssh_boot_fini) struct ssh_boot boot = {0};
    char *args[] = {NULL};
    spec_init(&spec);
    spec.hosts.add_node_rank = spec.hosts.add_is_host = spec.hosts.meet = true;
    ssh_args(&spec, &(struct ssh_place){.host = 1, .first = 1, .addr = "10.0.0.2", .port = 12001}, args, &boot);
    cr_assert_eq(boot.n_args, 2);
    cr_assert_str_eq(boot.args[0], "--node-rank=0");
    cr_assert_str_eq(boot.args[1], "--rdzv-endpoint=10.0.0.2:12001");
    cr_assert_str_eq(envlist_get(&boot.env, "MUSTER_HEAD_FIRST"), "1");
}

Test(ssh_args, a_host_that_was_passed_over_goes_last) {
    _cleanup_(job_spec_fini) struct job_spec spec;
    _cleanup_(ssh_boot_fini) struct ssh_boot boot = {0};
    char *args[] = {NULL};
    spec_init(&spec);
    spec.hosts.add_node_rank = spec.hosts.add_is_host = true;
    ssh_args(&spec, &(struct ssh_place){.host = 0, .first = 1, .addr = "10.0.0.2", .port = 12001}, args, &boot);
    cr_assert_str_eq(boot.args[0], "--node-rank=1");
    cr_assert_str_eq(envlist_get(&boot.env, "MUSTER_HEAD_FIRST"), "0");
}

Test(ssh_args, nodes_meet_at_an_address_that_others_can_reach) {
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
