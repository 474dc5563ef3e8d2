/* What a command line means in a pod of an Indexed Job. */
#include "cli/options/job_options.h"

#include "job_reading.h"
#include "rig/unit.h"

#define FIRST "train-0.mesh.team.svc.cluster.local"
/* The environment and /etc/hosts of pod 3, if a line does not say otherwise. */
#define POD "KUBERNETES_SERVICE_HOST=10.96.0.1 JOB_COMPLETION_INDEX=3"

static const char *hosts;
static unsigned reads;

static char *read_hosts(void *arg, const char *path) {
    cr_assert_str_eq(path, "/etc/hosts");
    reads++;
    return hosts == NULL ? NULL : xstrdup(hosts);
}
static const struct job_probes probes = {READING_PROBES, .place.file = read_hosts};

static struct reading read_line(const char *env, const char *line) {
    return read_job(env, rig_text("%s x", line), &probes);
}

static void set_hosts(void) {
    hosts = "127.0.0.1\tlocalhost\n10.244.0.5\ttrain-3.mesh.team.svc.cluster.local\ttrain-3\n";
    reads = 0;
}
TestSuite(job_options_pod, .init = set_hosts);

Test(job_options_pod, the_place_is_filled_in_and_what_is_given_wins) {
    static const struct {
        const char *line;
        enum job_backend backend;
        const char *host;
        uint16_t port;
        int32_t rank;
        int is_host;
        const char *run_id;
    } cases[] = {
        {"--nnodes=4", JOB_BACKEND_C10D, FIRST, 29400, 3, 0, "train"},
        {"--nnodes=2:4", JOB_BACKEND_C10D, FIRST, 29400, 3, 0, "train"},
        {"--nnodes=2:3", JOB_BACKEND_C10D, FIRST, 29400, 3, 0, "train"}, /* a spare */
        {"--nnodes=4 --rdzv-backend=c10d", JOB_BACKEND_C10D, FIRST, 29400, 3, 0, "train"},
        {"--nnodes=4 --rdzv-backend=static", JOB_BACKEND_STATIC, FIRST, 29500, 3, 0, "train"},
        {"--nnodes=4 --master-port=7", JOB_BACKEND_STATIC, FIRST, 7, 3, 0, "train"},
        {"--nnodes=4 --node-rank=3", JOB_BACKEND_C10D, FIRST, 29400, 3, 0, "train"},
        {"--nnodes=4 --rdzv-id=night", JOB_BACKEND_C10D, FIRST, 29400, 3, 0, "night"},
        {"--nnodes=4 --rdzv-conf=is_host=1", JOB_BACKEND_C10D, FIRST, 29400, 3, 1, "train"},
        /* the user numbers the nodes */
        {"--nnodes=4 --node-rank=2", JOB_BACKEND_STATIC, "127.0.0.1", 29500, 2, -1, "none"},
        {"--nnodes=4 --rdzv-conf=rank=2", JOB_BACKEND_STATIC, "127.0.0.1", 29500, 2, -1, "none"},
        /* the user knows where the nodes meet: as without Kubernetes, but for the static rank */
        {"--nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=h:5", JOB_BACKEND_C10D, "h", 5, -1, -1, "none"},
        {"--nnodes=4 --rdzv-endpoint=h:5", JOB_BACKEND_STATIC, "h", 5, 3, -1, "none"},
        {"--nnodes=4 --rdzv-endpoint=h:5 --node-rank=1", JOB_BACKEND_STATIC, "h", 5, 1, -1, "none"},
        {"--nnodes=4 --master-addr=h --master-port=5", JOB_BACKEND_STATIC, "h", 5, 3, -1, "none"},
        /* one node */
        {"", JOB_BACKEND_C10D, NULL, 0, -1, -1, NULL},
        {"--standalone", JOB_BACKEND_C10D, NULL, 0, -1, -1, NULL},
        {"--nnodes=1 --rdzv-backend=c10d --rdzv-endpoint=h:5", JOB_BACKEND_C10D, "h", 5, -1, -1, "none"},
        {"--rdzv-backend=c10d --rdzv-endpoint=localhost:0", JOB_BACKEND_C10D, "localhost", 0, -1, -1, NULL},
        {"--rdzv-backend=c10d --rdzv-endpoint=train-3:0", JOB_BACKEND_C10D, "train-3", 0, -1, -1, NULL},
        {"--rdzv-backend=c10d --rdzv-endpoint=10.244.0.5:0", JOB_BACKEND_C10D, "10.244.0.5", 0, -1, -1, NULL},
        {"--master-port=7", JOB_BACKEND_STATIC, "127.0.0.1", 7, 0, -1, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(reading_fini) struct reading g = read_line(POD, cases[i].line);
        cr_assert_eq(g.r, 0, "%s: %s", cases[i].line, g.err.text);
        cr_expect_eq(g.spec.backend, cases[i].backend, "%s", cases[i].line);
        cr_expect_eq(g.spec.endpoint_port, cases[i].port, "%s: %u", cases[i].line, g.spec.endpoint_port);
        cr_expect_eq(g.spec.node_rank, cases[i].rank, "%s: %d", cases[i].line, g.spec.node_rank);
        cr_expect_eq(g.spec.is_host, cases[i].is_host, "%s: %d", cases[i].line, g.spec.is_host);
        cr_assert_eq(g.spec.endpoint_host == NULL, cases[i].host == NULL, "%s", cases[i].line);
        if (cases[i].host != NULL)
            cr_expect_str_eq(g.spec.endpoint_host, cases[i].host, "%s", cases[i].line);
        if (cases[i].run_id != NULL)
            cr_expect_str_eq(g.spec.run_id, cases[i].run_id, "%s", cases[i].line);
        cr_expect_eq(job_id_is_common(&g.spec), strstr(cases[i].line, "rdzv-id") != NULL, "%s", cases[i].line);
        cr_expect_not(g.spec.endpoint_from == JOB_ENDPOINT_ASSUMED && cases[i].rank == 3);
    }
}

Test(job_options_pod, outside_of_such_a_pod_nothing_changes) {
    static const char *const environments[] = {"A=1", "JOB_COMPLETION_INDEX=3", "KUBERNETES_SERVICE_HOST=10.96.0.1"};
    for (size_t i = 0; i < ARRAY_SIZE(environments); i++) {
        _cleanup_(reading_fini) struct reading g = read_line(environments[i], "--nnodes=4");
        cr_assert_eq(g.r, 0, "%s", g.err.text);
        cr_expect_eq(g.spec.backend, JOB_BACKEND_STATIC);
        cr_expect_str_eq(g.spec.endpoint_host, "127.0.0.1");
        cr_expect_eq(g.spec.node_rank, 0);
        cr_expect_null(g.spec.derived);
        cr_expect_eq(reads, 0, "/etc/hosts is not read");
    }
}

Test(job_options_pod, the_pod_with_index_0_finds_out_that_it_is_the_endpoint) {
    hosts = "10.244.0.4\t" FIRST "\ttrain-0\n";
    _cleanup_(reading_fini) struct reading g =
        read_line("KUBERNETES_SERVICE_HOST=10.96.0.1 JOB_COMPLETION_INDEX=0", "--nnodes=4");
    cr_assert_eq(g.r, 0, "%s", g.err.text);
    cr_expect_str_eq(g.spec.endpoint_host, FIRST);
    cr_expect_eq(g.spec.node_rank, 0);
    cr_expect_eq(g.spec.is_host, -1);
}

Test(job_options_pod, what_was_found_is_told_with_its_origin) {
    static const char *const want[] = {
        "rdzv_endpoint: " FIRST ", from this pod's full name in /etc/hosts, with index 0",
        "rdzv_id: train, from this pod's full name in /etc/hosts",
        "node_rank: 3, from JOB_COMPLETION_INDEX",
    };
    _cleanup_(reading_fini) struct reading g = read_line(POD, "--nnodes=4");
    cr_assert_eq(g.r, 0, "%s", g.err.text);
    for (size_t i = 0; i < ARRAY_SIZE(want); i++)
        cr_assert_str_eq(g.spec.derived[i], want[i]);
    cr_assert_null(g.spec.derived[ARRAY_SIZE(want)]);
    _cleanup_(strbuf_fini) struct strbuf shown = {0};
    job_print_config(&g.spec, &shown);
    expect_has(strbuf_text(&shown), "  \"derived\": [\"rdzv_endpoint: train-0");
    _cleanup_(reading_fini) struct reading alone = read_line(POD, "");
    cr_assert_not_null(alone.spec.derived);
    expect_has(alone.spec.derived[0], "--nnodes is not given");
    cr_expect_null(alone.spec.derived[1]);
}

Test(job_options_pod, what_can_only_fail_is_refused_with_the_line_to_write) {
    static const struct {
        const char *line, *says;
        bool no_name;
    } cases[] = {
        {"--rdzv-backend=c10d --rdzv-endpoint=" FIRST ":29400", "--nnodes=N, the Job's `completions`", false},
        {"--rdzv-endpoint=train-0.mesh", "--nnodes=N", false},
        {"--master-addr=train-0.mesh --master-port=29500", "--nnodes=N", false},
        {"--nnodes=4", "a headless Service", true},
        {"--nnodes=4", "JOB_COMPLETION_INDEX=3", true},
        {"--nnodes=2 --rdzv-backend=static", "JOB_COMPLETION_INDEX=3: must be from 0 to 1 (--nnodes=2)", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        set_hosts();
        if (cases[i].no_name)
            hosts = "10.244.0.5\ttrain-3\n";
        _cleanup_(reading_fini) struct reading g = read_line(POD, cases[i].line);
        cr_expect_eq(g.r, -EINVAL, "%s", cases[i].line);
        cr_expect_not_null(strstr(g.err.text, cases[i].says), "%s: %s", cases[i].line, g.err.text);
    }
}

Test(job_options_pod, several_agents_in_a_pod_without_a_name_meet_as_before) {
    hosts = NULL;
    static const char *const lines[] = {"--nnodes=2 --node-rank=3 --rdzv-backend=c10d",
                                        "--nnodes=2 --rdzv-backend=c10d"};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        _cleanup_(reading_fini) struct reading g = read_line(POD, lines[i]);
        cr_assert_eq(g.r, 0, "%s: %s", lines[i], g.err.text);
        cr_expect_str_eq(g.spec.endpoint_host, "localhost");
    }
}

Test(job_options_pod, an_index_that_is_none_is_refused_where_it_counts) {
    static const char *const indexes[] = {"", "-1", "3x", "99999999999", "100000"};
    static const struct {
        const char *line;
        int r;
    } cases[] = {
        {"--nnodes=4", -EINVAL},
        {"--nnodes=2:4 --rdzv-backend=c10d", -EINVAL},
        {"--nnodes=4 --rdzv-backend=static", -EINVAL},
        {"--nnodes=4 --master-addr=h --master-port=5", -EINVAL},
        {"--nnodes=4 --rdzv-endpoint=h:5", -EINVAL},
        /* it says nothing here */
        {"", 0},
        {"--standalone", 0},
        {"-H a,b x", 0},
        {"-H a,b --rdzv-backend=static x", 0},
        {"--nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=h:5", 0},
        {"--nnodes=4 --rdzv-endpoint=h:5 --node-rank=1", 0},
        {"--nnodes=4 --rdzv-endpoint=h:5 --rdzv-conf=rank=1", 0},
        {"--nnodes=4 --rdzv-backend=c10d --node-rank=0", 0},
    };
    for (size_t k = 0; k < ARRAY_SIZE(indexes); k++) {
        const char *env = rig_text("KUBERNETES_SERVICE_HOST=10.96.0.1 JOB_COMPLETION_INDEX=%s", indexes[k]);
        const char *says = rig_text("JOB_COMPLETION_INDEX=\"%s\": must be", indexes[k]);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
            _cleanup_(reading_fini) struct reading g = read_line(env, cases[i].line);
            cr_expect_eq(g.r, cases[i].r, "%s, %s: %s", cases[i].line, indexes[k], g.err.text);
            cr_expect(cases[i].r == 0 || strstr(g.err.text, says) != NULL, "%s: %s", cases[i].line, g.err.text);
        }
    }
}
