/* What a command line with hosts means: -H, --hostfile and their relatives. */
#include "cli/options/job_options.h"

#include "job_reading.h"
#include "rig/unit.h"

#define HEAD "MUSTER_HEAD=127.0.0.1:4711 "

static unsigned files_read;
static int read_file(enum job_file what, const char *path, char **ret, size_t *ret_len, struct err *err) {
    files_read++;
    if (what != JOB_FILE_HOSTS || strcmp(path, "hosts") != 0)
        return err_set(err, -ENOENT, "can't read %s: No such file or directory", path);
    *ret = xstrdup("a slots=2\nb:3\n");
    *ret_len = strlen(*ret);
    return 0;
}

static bool is_there(const char *path) { return strcmp(path, "x") == 0; }

static const struct job_probes probes = {READING_PROBES, .read_file = read_file, .is_there = is_there};

static struct reading read_line(const char *env, const char *line) { return read_job(env, line, &probes); }

static void expect_hosts(const struct job_spec *spec, const char *names) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    for (size_t i = 0; i < spec->hosts.list.n; i++)
        strbuf_printf(&s, "%s%s:%u", i > 0 ? " " : "", spec->hosts.list.items[i].name, spec->hosts.list.items[i].slots);
    cr_assert_str_eq(strbuf_text(&s), names);
    cr_assert_eq(spec->start_nodes, spec->hosts.list.n);
}

Test(job_options_hosts, hosts_are_the_nodes) {
    READ("", "-H a,b:2 x");
    expect_hosts(&g.spec, "a:0 b:2");
    cr_assert_eq(g.spec.rdzv.min_nodes, 2);
    cr_assert_eq(g.spec.rdzv.max_nodes, 2);
    cr_assert(job_meets_at_host(&g.spec));
    cr_assert_str_eq(g.spec.run_id, "x-" READING_STAMP);
    cr_assert(job_id_is_common(&g.spec) && job_is_given(&g.spec, "host") && !job_is_given(&g.spec, "nnodes"));
    cr_assert_str_eq(g.spec.endpoint_host, "a");
    cr_assert_eq(g.spec.endpoint_port, 0, "one that is free there");
    cr_assert_eq(g.spec.n_endpoint_ports, 0);
    cr_assert_eq(g.spec.backend, JOB_BACKEND_C10D);
    cr_assert_str_eq(g.spec.derived[0], "hosts: a b:2, 2 in all, from -H");
    cr_assert_str_eq(g.spec.derived[1], "rdzv_endpoint: a, the first host, at a port that is free there");
    cr_assert_null(g.spec.derived[2]);
}

Test(job_options_hosts, a_file_says_the_same_and_can_be_filtered) {
    READ("", "--hostfile hosts --include b x");
    expect_hosts(&g.spec, "b:3");
    cr_assert_not(job_meets_at_host(&g.spec));
    _cleanup_(reading_fini) struct reading bad = read_line("", "--hostfile none x");
    cr_assert_eq(bad.r, -ENOENT);
    assert_has(bad.err.text, "--hostfile: can't read none");
}

Test(job_options_hosts, nnodes_takes_the_first_hosts) {
    READ("", "-H a,b,c --nnodes=1:2 x");
    expect_hosts(&g.spec, "a:0 b:0");
    cr_assert_eq(g.spec.rdzv.min_nodes, 1);
    cr_assert(job_is_given(&g.spec, "nnodes"));
    _cleanup_(reading_fini) struct reading few = read_line("", "-H a,b --nnodes=3 x");
    cr_assert_eq(few.r, -EINVAL);
    assert_has(few.err.text, "3 nodes are asked for, but -H has 2 hosts");
}

Test(job_options_hosts, what_the_user_arranges_stays) {
    static const struct {
        const char *line;
        bool meet;
        const char *backend, *run_id;
        uint16_t port;
    } cases[] = {
        {"-H a,b x", true, "c10d", "x-" READING_STAMP, 0},
        {"-H a,b --rdzv-endpoint=a:1234 --rdzv-backend=c10d x", false, "c10d", "x-" READING_STAMP, 1234},
        {"-H a,b --rdzv-endpoint=dir:/d --rdzv-id=n x", false, "dir", "n", 0},
        {"-H a,b --rdzv-backend=static x", true, "static", "x-" READING_STAMP, 0},
        {"-H a,b --master-addr=a --master-port=1235 x", false, "static", "x-" READING_STAMP, 1235},
        {"-H a,b --rdzv-backend=c10d --master-port=1 x", true, "c10d", "x-" READING_STAMP, 0},
        {"-H a,b --rdzv-conf=join_timeout=9 --rdzv-id=n x", true, "c10d", "n", 0},
        {"-H a,b --rdzv-conf=store_type=file x", true, "c10d", "x-" READING_STAMP, 0},
        {"-H a x", false, "c10d", "x-" READING_STAMP, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        READ("", cases[i].line);
        cr_expect_eq(job_meets_at_host(&g.spec), cases[i].meet, "%s", cases[i].line);
        cr_expect_str_eq(job_backend(&g.spec)->name, cases[i].backend, "%s", cases[i].line);
        cr_expect_str_eq(g.spec.run_id, cases[i].run_id, "%s", cases[i].line);
        cr_expect_eq(g.spec.endpoint_port, cases[i].port, "%s", cases[i].line);
    }
}

Test(job_options_hosts, an_agent_reads_no_hosts) {
    files_read = 0;
    READ(HEAD, "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=10.0.0.1:1 --hostfile none --starter=ssh x");
    expect_hosts(&g.spec, "");
    cr_assert_eq(files_read, 0);
    cr_assert_eq(g.spec.output, JOB_OUTPUT_PREFIXED);
    _cleanup_(reading_fini) struct reading alone = read_line("", "--starter=none -H a,b x");
    cr_assert_eq(alone.r, 0);
    cr_assert_eq(alone.spec.start_nodes, 0);
}

Test(job_options_hosts, a_slurm_job_has_hosts_too) {
    READ(BATCH, "--starter=ssh x");
    expect_hosts(&g.spec, "node1:0 node2:0 node3:0 node4:0");
    _cleanup_(reading_fini) struct reading own = read_line(BATCH, "-H a,b x");
    expect_hosts(&own.spec, "a:0 b:0");
}

Test(job_options_hosts, what_does_not_go_together_is_told) {
    static const struct {
        const char *env, *line, *text;
    } cases[] = {
        {"", "--starter=ssh x", "no hosts are known; give them with -H or --hostfile"},
        {"", "--include a x", "--include chooses among hosts"},
        {"", "-H a --hostfile hosts x", "-H and --hostfile cannot be combined"},
        {"", "-H a,b --standalone x", "--standalone is for one node"},
        {"", "-H a,b --starter=srun x", "--starter=srun: must be ssh, or left out, with -H"},
        {"PET_STARTER=local", "-H a,b x", "PET_STARTER=local: must be ssh, or left out, with -H"},
        {"", "-H a --ssh ' x", "--ssh"},
        {"", "-H a --export 1A x", "--export: \"1A\" is not a variable"},
        {STEP, "-H a,b x", "srun has started muster on 4 nodes already"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(reading_fini) struct reading bad = read_line(cases[i].env, cases[i].line);
        cr_assert_eq(bad.r, -EINVAL, "%s", cases[i].line);
        cr_assert_not_null(strstr(bad.err.text, cases[i].text), "%s: %s", cases[i].line, bad.err.text);
    }
}

Test(job_options_hosts, what_has_no_effect_is_told) {
    static const struct {
        const char *env, *line, *text; /* NULL: nothing is told */
    } cases[] = {
        {"", "--ssh rsh x", "--ssh has no effect: no hosts are given; name them with -H or --hostfile\n"},
        {"", "--export NONE x", "--export has no effect: no hosts"},
        {"", "-H a --ssh rsh --export NONE x", NULL},
        {HEAD, "--ssh rsh --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=a:1 x", NULL},
        {STEP HEAD, "--ssh rsh x", "--ssh has no effect: no hosts are given"},
        {"", "--max-requeues=3 x", "--max-requeues has no effect without --requeue\n"},
        {"", "--max-requeues=3 --requeue=timeout x", "--requeue: this is not a job of Slurm"},
        {BATCH, "--max-requeues=3 --requeue=timeout x", NULL},
        {BATCH, "--starter=ssh --requeue=timeout x", "--requeue: over ssh muster is not a job of Slurm"},
        {"", "-H a,b --nnodes=1 x", "--nnodes=1: only the first 1 of the 2 hosts of -H take part\n"},
        {"PET_NNODES=1", "--hostfile hosts x", "--nnodes=1: only the first 1 of the 2 hosts of --hostfile"},
        {"", "-H a,b,c --nnodes=1:2 x", "--nnodes=1:2: only the first 2 of the 3 hosts of -H"},
        {"", "-H a,b --nnodes=1:2 x", NULL},
        {"", "-H a b x",
         "\"b\" is taken for SCRIPT; if it is a host: -H takes them separated by commas, as in -H a,b\n"},
        {"", "-H a,b --rdzv-conf=store_type=file x",
         "--rdzv-conf: store_type has no effect without an --rdzv-endpoint\n"},
        {"", "-H a,b --rdzv-backend=static --rdzv-conf=store_type=file x",
         "--rdzv-conf: store_type has no effect with static\n"},
        {"", "-H a,b --nnodes=1:2 --rdzv-backend=static x", "static rendezvous waits for all 2 nodes;"},
        {"", "-H a b.py", NULL},
        {"", "-H a --no-python b", NULL},
        {"", "-H a -m b", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        READ(cases[i].env, cases[i].line);
        const char *told = strbuf_text(&g.warnings);
        cr_expect(cases[i].text == NULL ? told[0] == '\0' : strstr(told, cases[i].text) == told, "%s: %s",
                  cases[i].line, told);
    }
}

Test(job_options_hosts, settings_name_the_hosts) {
    READ("", "-H me@a:2,[fd00::7] --ssh 'ssh' x");
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    job_print_config(&g.spec, &out);
    assert_has(strbuf_text(&out), "\n  \"hosts\": [\"me@a:2\", \"[fd00::7]\"],\n");
    assert_has(strbuf_text(&out), "hosts: me@a:2 [fd00::7], 2 in all, from -H");
}
