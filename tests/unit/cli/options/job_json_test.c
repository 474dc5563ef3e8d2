/* A job as JSON: what an agent reads is what its head has read, and what depends on the agent's node. */
#include "cli/options/job_options.h"
#include "job_reading.h"
#include "launcher/ssh/ssh_boot.h"
#include "rig/unit.h"

static int secret(enum job_file what, const char *path, char **ret, size_t *ret_len, struct err *err) {
    cr_assert_eq(what, JOB_FILE_SECRET);
    *ret = xstrdup("s3cr3t");
    *ret_len = strlen(*ret);
    return 0;
}

static const struct job_probes probes = {READING_PROBES, .read_file = secret};

static void add_job(const struct job_spec *spec, struct strbuf *out) {
    const struct job_spec job = ssh_job_of(spec, 1, 0, "10.0.0.1", 4711);
    job_write(&job, out);
}

/* As the agent on host b reads the job of a line whose hosts are a and b; env: of that node. */
static struct reading send_job(const struct job_spec *spec, const char *env) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    char env_text[512], *envp[WORDS_MAX + 1] = {NULL};
    struct reading g = {0};
    int n = 0;
    cr_assert_lt(snprintf(env_text, sizeof env_text, "%s", env), (int)sizeof env_text);
    split_words(env_text, envp, &n);
    add_job(spec, &text);
    g.r = job_options_of_head(strbuf_text(&text), text.len, envp, &probes, &g.spec, &g.err);
    return g;
}

#define HEAD_ENV "MUSTER_HEAD=fd:3 "
#define SEND(line, env)                                                            \
    _cleanup_(reading_fini) struct reading head = read_job("", line, &probes);     \
    cr_assert_eq(head.r, 0, "%s: %s", line, head.err.text);                        \
    _cleanup_(reading_fini) struct reading g = send_job(&head.spec, HEAD_ENV env); \
    cr_assert_eq(g.r, 0, "%s: %s", line, g.err.text)

/* Without what only a head has. */
static char *shown(const struct job_spec *spec) {
    struct job_spec copy = *spec;
    struct strbuf out = {0};
    copy.derived = NULL;
    copy.hosts = (struct job_hosts){0};
    copy.start_nodes = 0;
    job_print_config(&copy, &out);
    return strbuf_take(&out);
}

Test(job_json, an_agent_reads_what_its_head_has_read) {
    static const char *const lines[] = {
        "-H a,b x",
        "-H a,b --nnodes=1:2 --max-restarts=3 --grow=now --rank-order=join --spares=2 -m x --lr 3",
        "-H a,b --tee 0:3,1:1 --redirects=2 --local-ranks-filter=0,7 --nproc-per-node=8 --log-dir=/l --log-mode=0640 x",
        "-H a,b --rdzv-endpoint=dir:/d --rdzv-id=n --rdzv-conf=join_timeout=9.5,last_call_timeout=1 x",
        "-H a,b --rdzv-endpoint=etcds://u@e1,e2:3/p --rdzv-id=n --rdzv-conf=etcd_password_file=f,cacert=c x",
        "-H a,b --rdzv-endpoint=c:1,7-9 --rdzv-id=n --rdzv-backend=c10d --port-range=5-9 --master-port=6 x",
        "-H a,b --bind=core --bind-memory=off --gpus-per-worker=2 --omp=cores --nccl-env=minimal x",
        "-H a,b --signals-to-handle=SIGTERM,SIGUSR1 --shutdown-timeout=2.25 --warm --warm-skip=p,q --contain=none x",
        "-H a,b --env A=1 --env B= --duplicate-stdout-filters=a,,b,c --tee=3 --event-log=- -v -v --quiet x",
        "-H a,b --rdzv-backend=static --lease=20 --heartbeat-interval=2 --output-spool=3M --hang-action=off x",
    };
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        SEND(lines[i], "");
        const struct job_spec sent = ssh_job_of(&head.spec, 1, 0, "10.0.0.1", 4711);
        _cleanup_(freep) char *expected = shown(&sent), *got = shown(&g.spec);
        cr_expect_str_eq(got, expected, "%s: %s %s", lines[i], got, expected);
        cr_expect_eq(g.spec.rdzv.margin_ns, head.spec.rdzv.margin_ns);
        cr_expect_neq(g.spec.output, JOB_OUTPUT_OWN);
    }
}

Test(job_json, words_of_any_bytes_arrive) {
    _cleanup_(reading_fini) struct reading head = read_job("", "-H a,b x y z", &probes);
    static const char odd[] = "\xff\xc3(\x01\n\"\\\x7f\xed\xa0\x80";
    free(head.spec.args[0]);
    head.spec.args[0] = xstrdup(odd);
    head.spec.args[1][0] = '\0';
    _cleanup_(reading_fini) struct reading g = send_job(&head.spec, HEAD_ENV);
    cr_assert_eq(g.r, 0, "%s", g.err.text);
    cr_assert_str_eq(g.spec.args[0], odd);
    cr_assert_str_eq(g.spec.args[1], "");
    cr_assert_null(g.spec.args[2]);
}

Test(job_json, a_password_is_for_the_agent_only) {
    SEND("-H a,b --rdzv-endpoint=etcd://u@e --rdzv-id=n --rdzv-conf=etcd_password_file=f x", "");
    cr_assert_str_eq(g.spec.etcd_password, "s3cr3t");
    _cleanup_(freep) char *text = shown(&g.spec);
    cr_assert_null(strstr(text, "s3cr3t"));
    assert_has(text, "\n  \"etcd_password\": \"***\",\n");
}

Test(job_json, what_depends_on_the_node_is_resolved_there) {
    SEND("-H a,b --nproc-per-node=cpu --max-restarts=3 x",
         "PET_MAX_RESTARTS=9 PET_TEE=3 PET_LOG_DIR=/there PET_NNODES=7 SLURM_TOPOLOGY_ADDR=s1.n2");
    cr_assert_eq(head.spec.nproc, 1, "the head has no workers");
    cr_assert_eq(g.spec.nproc, 6);
    cr_assert_eq(g.spec.rdzv.max_restarts, 3, "the user's word counts");
    cr_assert(job_is_given(&g.spec, "max-restarts") && job_is_given(&g.spec, "log-dir"));
    cr_assert_not(job_is_given(&g.spec, "shutdown-timeout"));
    cr_assert_eq(std_map_get(&g.spec.tee, 5), STD_BOTH);
    cr_assert_str_eq(g.spec.log_dir, "/there");
    cr_assert_eq(g.spec.rdzv.max_nodes, 2, "the group is the head's");
    cr_assert_str_eq(g.spec.topology, "s1.n2");
    cr_assert_eq(g.spec.output, JOB_OUTPUT_SHARED, "--tee has a prefix of its own");
    _cleanup_(reading_fini) struct reading own = send_job(&head.spec, HEAD_ENV "PET_NPROC_PER_NODE=2");
    cr_assert_eq(own.spec.nproc, 6, "it was given");
}

Test(job_json, the_number_of_workers_can_be_the_nodes_own) {
    SEND("-H a,b x", "PET_NPROC_PER_NODE=3");
    cr_assert_eq(g.spec.nproc, 3);
    _cleanup_(reading_fini) struct reading one = send_job(&head.spec, HEAD_ENV);
    cr_assert_eq(one.spec.nproc, 1);
    cr_assert_eq(one.spec.output, JOB_OUTPUT_PREFIXED);
}

/* That node has six CPUs, and four workers for each are enough. */
Test(job_json, slots_that_are_a_port_are_refused_there) {
    static const struct {
        const char *line;
        bool is_refused;
    } cases[] = {
        {"-H a,b:2222 x", true},
        {"-H a,b:25 x", true},
        {"-H a,b:24 x", false},
        {"-H a,b --nproc-per-node=2222 x", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(reading_fini) struct reading head = read_job("", cases[i].line, &probes);
        _cleanup_(reading_fini) struct reading g = send_job(&head.spec, HEAD_ENV);
        cr_expect_eq(g.r < 0, cases[i].is_refused, "%s: %s", cases[i].line, g.err.text);
        if (i == 0)
            expect_has(g.err.text, "--ssh \"ssh -p 2222\"");
    }
}

/* Replaces a part of a job's text, and reads it. */
static int read_changed(const char *from, const char *to, struct err *err) {
    _cleanup_(reading_fini) struct reading head = read_job("", "-H a,b --port-range=5-9 x y", &probes);
    _cleanup_(job_spec_fini) struct job_spec got = {0};
    _cleanup_(strbuf_fini) struct strbuf text = {0}, changed = {0};
    char *envp[] = {NULL};
    add_job(&head.spec, &text);
    const char *at = strstr(strbuf_text(&text), from);
    cr_assert_not_null(at, "%s: %s", from, strbuf_text(&text));
    strbuf_add_bytes(&changed, strbuf_text(&text), (size_t)(at - strbuf_text(&text)));
    strbuf_add(&changed, to);
    strbuf_add(&changed, at + strlen(from));
    return job_options_of_head(strbuf_text(&changed), changed.len, envp, &probes, &got, err);
}

Test(job_json, reading_is_strict) {
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"\"min_nodes\":2", "\"min_nodes\":3"},
        {"\"min_nodes\":2", "\"min_nodes\":0"},
        {"\"min_nodes\":2", "\"min_nodes\":2,\"other\":1"},
        {"\"min_nodes\":2,", ""},
        {"\"nproc_per_node\":1", "\"nproc_per_node\":5000"},
        {"\"nproc_by\":\"number\"", "\"nproc_by\":\"tpu\""},
        {"\"backend\":\"c10d\"", "\"backend\":\"d\""},
        {"\"script\":\"x\"", "\"script\":null"},
        {"\"args\":[\"y\"]", "\"args\":[null]"},
        {"\"args\":[\"y\"]", "\"args\":[{\"hex\":\"00\"}]"},
        {"\"args\":[\"y\"]", "\"args\":[{\"hex\":\"4\"}]"},
        {"\"args\":[\"y\"]", "\"args\":[{\"hex\":\"41\",\"b\":1}]"},
        {"\"args\":[\"y\"]", "\"args\":\"y\""},
        {"\"port_range\":\"5-9\"", "\"port_range\":\"9-5\""},
        {"\"log_mode\":\"0600\"", "\"log_mode\":\"0777\""},
        {"\"tee\":\"0\"", "\"tee\":\"9\""},
        {"\"local_ranks_filter\":null", "\"local_ranks_filter\":[4096]"},
        {"\"lease\":5", "\"lease\":-1"},
        {"\"lease\":5", "\"lease\":1e300"},
        {"\"bind\":null", "\"bind\":\"torch no\""},
        {"\"SIGTERM\"", "\"SIGOTHER\""},
        {"\"given\":[", "\"given\":[\"no-such-option\","},
        {"\"grow\":\"boundary\"", "\"grow\":\"later\""},
        {"\"spares\":null", "\"spares\":\"many\""},
        {"\"role\":\"default\"", "\"role\":null"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = {0};
        cr_expect_eq(read_changed(cases[i].from, cases[i].to, &err), -EINVAL, "%s", cases[i].to);
        cr_expect_neq(err.text[0], '\0', "%s", cases[i].to);
    }
    struct err err = {0};
    cr_assert_eq(read_changed("\"args\":[\"y\"]", "\"args\":[{\"hex\":\"ff41\"}]", &err), 0, "%s", err.text);
}
