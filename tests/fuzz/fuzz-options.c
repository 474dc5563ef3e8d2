/* A command line of "muster run": words end with a NUL byte; the first byte says how many of them are the environment.
 * An accepted job must have the properties that job.h promises, and its printed form must be lines. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli/options/job_options.h"

#define INPUT_MAX ((size_t)4096)
#define WORDS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t count_cpus(void) { return 3; }

static int count_gpus(uint32_t *ret, struct err *err) {
    (void)err;
    *ret = 2;
    return 0;
}

static bool has_gpus(void) { return false; }

static void stamp(char ret[JOB_STAMP_MAX]) { (void)strcpy(ret, "1126-1138-7c3f1a"); }

static char *cwd(void) { return xstrdup("/home/user"); }

static int read_file(enum job_file what, const char *path, char **ret, size_t *ret_len, struct err *err) {
    if (what != JOB_FILE_SECRET || path[0] == 'x')
        return err_set(err, -ENOENT, "can't read %s", path);
    *ret = xstrdup("secret");
    *ret_len = strlen(*ret);
    return 0;
}

static unsigned serve_node(const struct place *place) {
    (void)place;
    return 0;
}

static void check(bool ok, const char *what) {
    if (!ok) {
        (void)fprintf(stderr, "fuzz-options: %s\n", what);
        abort();
    }
}

static void check_spec(const struct job_spec *s) {
    check(s->rdzv.min_nodes >= 1 && s->rdzv.min_nodes <= s->rdzv.max_nodes && s->rdzv.max_nodes <= RDZV_NODES_MAX,
          "nodes");
    check(s->nproc >= 1 && s->nproc <= JOB_WORKERS_MAX, "nproc");
    check(s->run_id != NULL && s->run_id[0] != '\0' && strlen(s->run_id) < JOB_RUN_ID_MAX, "run id");
    bool dir = s->backend == JOB_BACKEND_DIR, etcd = s->backend == JOB_BACKEND_ETCD;
    check((!dir && !etcd) || s->endpoint_host == NULL, "endpoint");
    check(!job_is_alone(s) || s->backend == JOB_BACKEND_C10D, "alone");
    check(dir == (s->arbiter_dir != NULL) && (!dir || s->arbiter_dir[0] == '/'), "directory");
    check(etcd == (s->etcd_endpoints != NULL && s->etcd_endpoints[0] != NULL), "etcd");
    check(etcd == (s->etcd_prefix != NULL) && (s->etcd_user == NULL) == (s->etcd_password == NULL), "etcd's keys");
    check((!dir && !etcd) || job_id_is_common(s), "a shared name");
    unsigned n = s->n_endpoint_ports;
    check(n == 0 || (n >= 2 && n <= JOB_ENDPOINT_PORTS_MAX), "number of ports");
    check(n == 0 || (s->endpoint_ports[0] == s->endpoint_port && s->endpoint_ports[n - 1] > 0), "ports");
    check(n == 0 || (job_id_is_common(s) && s->backend == JOB_BACKEND_C10D), "ports need a name");
    check(s->rdzv.node_unit >= 1 && s->rdzv.max_nodes / s->rdzv.node_unit * s->rdzv.node_unit >= s->rdzv.min_nodes,
          "unit");
    check(s->rdzv.arbiter_lease_ns > s->rdzv.lease_ns, "arbiter lease");
    check(s->topology != NULL, "topology");
    check(s->script != NULL && s->args != NULL && s->role != NULL && s->start_method != NULL, "program");
    check(s->backend != JOB_BACKEND_STATIC || (s->node_rank >= 0 && (uint32_t)s->node_rank < s->rdzv.max_nodes),
          "rank");
    check(s->n_signals <= JOB_SIGNALS_MAX, "signals");
    check(s->rdzv.lease_ns > s->rdzv.heartbeat_ns && s->rdzv.heartbeat_ns > 0, "lease");
    check(s->rdzv.join_timeout_ns > 0 && s->rdzv.last_call_ns > 0 && s->rdzv.leader_timeout_ns > 0, "times");
    for (uint32_t i = 0; i < 12; i++)
        check(std_map_get(&s->redirects, i) <= STD_BOTH && std_map_get(&s->tee, i) <= STD_BOTH, "streams");
    if (s->nproc > 64)
        return; /* thousands of numbers are slow, and test nothing new */
    struct strbuf out = {0};
    job_print_config(s, &out);
    const char *text = strbuf_text(&out);
    check(out.len > 0 && text[out.len - 1] == '\n' && strlen(text) == out.len, "print");
    for (const char *c = text; *c != '\0'; c++)
        check((unsigned char)*c >= 0x20 || (*c == '\n' && strchr(",{}\n", c[-1]) != NULL) ||
                  (*c == '\n' && c[1] == '}'),
              "a control character is printed");
    strbuf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size > INPUT_MAX)
        return 0;
    char text[INPUT_MAX + 1];
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    char run[] = "run";
    char *envp[WORDS_MAX + 1] = {NULL}, *argv[WORDS_MAX + 2] = {run};
    int n_env = 0, argc = 1;
    for (size_t at = 0; at < size - 1 && argc + n_env < WORDS_MAX; at += strlen(text + at) + 1) {
        if (n_env < data[0])
            envp[n_env++] = text + at;
        else
            argv[argc++] = text + at;
    }
    static const struct job_probes probes = {.count_cpus = count_cpus,
                                             .count_gpus = count_gpus,
                                             .has_gpus = has_gpus,
                                             .stamp = stamp,
                                             .cwd = cwd,
                                             .read_file = read_file,
                                             .serve_node = serve_node};
    struct strbuf warnings = {0};
    struct job_spec spec = {0};
    struct err err = {0};
    int r = job_options_read(argc, argv, envp, &probes, &warnings, &spec, &err);
    if (r < 0)
        check(err.text[0] != '\0' && spec.run_id == NULL, "an error without a sentence");
    if (r == 0 || r == JOB_OPTIONS_PRINT_CONFIG)
        check_spec(&spec);
    strbuf_fini(&warnings);
    job_spec_fini(&spec);
    return 0;
}
