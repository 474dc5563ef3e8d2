/* A job as JSON, by one table: for --print-config, and for the agents that start over ssh. */
#include <errno.h>
#include <string.h>

#include "base/json/json_table.h"
#include "base/text/parse.h"
#include "base/text/signal_name.h"
#include "base/text/utf8.h"
#include "cli/options/job_reading.h"
#include "launcher/srun/slurm_job.h"
#include "rendezvous/protocol/messages.h"
#include "topology/model/gpu_count.h"

/* Of 6 MiB, the most that Linux starts a program with (execve(2)), JSON makes six times as many. */
static const struct json_limits limits = {
    .max_bytes = (size_t)36 << 20, .max_depth = 4, .max_values = 1 << 20};

/* The writer's context. An agent gets exact texts and secrets, and not what only people read. */
static const int for_agent;
static bool is_for_agent(const struct json_writer *w) { return w->context == &for_agent; }

static void *at(void *of, const struct json_field *f) { return (char *)of + f->offset; }
static const void *const_at(const void *of, const struct json_field *f) {
    return (const char *)of + f->offset;
}

static bool is_utf8(const char *s) {
    for (size_t n; *s != '\0'; s += n)
        if ((n = utf8_char(s)) == 0)
            return false;
    return true;
}

/* A word or a path can have any bytes, and JSON can't: an agent gets {"hex":"ff"} then. */
static void write_text(struct json_writer *w, const char *key, const char *text) {
    _cleanup_(strbuf_fini) struct strbuf hex = {0};
    if (text == NULL) {
        json_write_null(w, key);
        return;
    }
    if (!is_for_agent(w) || is_utf8(text)) {
        json_write_string(w, key, text);
        return;
    }
    for (const char *s = text; *s != '\0'; s++)
        strbuf_printf(&hex, "%02x", (unsigned char)*s);
    json_write_object_begin(w, key);
    json_write_string(w, "hex", strbuf_text(&hex));
    json_write_object_end(w);
}

static int read_text(const struct json *v, char **ret) {
    const char *text = json_string(v), *hex = json_string(json_member(v, "hex"));
    *ret = NULL;
    if (json_kind_of(v) == JSON_NULL)
        return 0;
    if (text != NULL)
        *ret = xstrdup(text);
    if (text != NULL)
        return 0;
    if (hex == NULL || json_count(v) != 1 || strlen(hex) % 2 != 0)
        return -EINVAL;
    char *out = *ret = xstrdup(hex);
    for (; hex[0] != '\0'; hex += 2) {
        int high = hex_digit(hex[0]), low = hex_digit(hex[1]);
        if (high < 0 || low < 0 || high + low == 0) {
            free(TAKE_PTR(*ret));
            return -EINVAL;
        }
        *out++ = (char)(high << 4 | low);
    }
    *out = '\0';
    return 0;
}

static void put_text(struct json_writer *w, const struct json_field *f, const void *of) {
    write_text(w, f->key, *(char *const *)const_at(of, f));
}

static int get_text(const struct json *v, const struct json_field *f, void *of) {
    return read_text(v, at(of, f));
}

/* A secret, which people don't see. */
static void put_secret(struct json_writer *w, const struct json_field *f, const void *of) {
    const char *text = *(char *const *)const_at(of, f);
    write_text(w, f->key, text != NULL && !is_for_agent(w) ? "***" : text);
}

static void put_texts(struct json_writer *w, const struct json_field *f, const void *of) {
    char *const *texts = *(char *const *const *)const_at(of, f);
    json_write_array_begin(w, f->key);
    for (; texts != NULL && *texts != NULL; texts++)
        write_text(w, NULL, *texts);
    json_write_array_end(w);
}

/* An empty list stays NULL. */
static int get_texts(const struct json *v, const struct json_field *f, void *of) {
    char **texts = NULL;
    size_t n = 0;
    int r = json_kind_of(v) == JSON_ARRAY ? 0 : -EINVAL;
    for (const struct json *e = r == 0 ? json_first(v) : NULL; e != NULL && r == 0;
         e = json_next(e)) {
        char *text;
        r = read_text(e, &text);
        if (r == 0 && text == NULL)
            r = -EINVAL;
        if (r == 0)
            words_add(&texts, &n, text);
    }
    if (r < 0)
        words_free(texts);
    else
        *(char ***)at(of, f) = texts;
    return r;
}

/* The words of the program are a list even if it is empty. */
static int get_words(const struct json *v, const struct json_field *f, void *of) {
    int r = get_texts(v, f, of);
    char ***words = at(of, f);
    if (r == 0 && *words == NULL)
        *words = xcalloc(1, sizeof **words);
    return r;
}

static void put_seconds(struct json_writer *w, const struct json_field *f, const void *of) {
    json_write_double(w, f->key, (double)*(const uint64_t *)const_at(of, f) / 1e9);
}

#define SECONDS_MAX 1e10

static int get_seconds(const struct json *v, const struct json_field *f, void *of) {
    double seconds;
    if (!json_number(v, &seconds) || !(seconds >= 0 && seconds <= SECONDS_MAX))
        return -EINVAL;
    *(uint64_t *)at(of, f) = (uint64_t)(seconds * 1e9 + 0.5);
    return 0;
}

static const struct json_field port_fields[] = {
    {.kind = JSON_FIELD_U16, .size = sizeof(uint16_t), .min = 1}};
static const struct json_table port = {.fields = port_fields, .n = 1, .size = sizeof(uint16_t)};

static void put_port_range(struct json_writer *w, const struct json_field *f, const void *of) {
    const struct job_spec *spec = of;
    _cleanup_(freep) char *text =
        spec->port_low > 0 ? xasprintf("%u-%u", spec->port_low, spec->port_high) : NULL;
    write_text(w, f->key, text);
}

static int get_port_range(const struct json *v, const struct json_field *f, void *of) {
    struct job_spec *spec = of;
    const char *text = json_string(v);
    if (json_kind_of(v) == JSON_NULL)
        return 0;
    return text != NULL ? job_port_range_parse(text, &spec->port_low, &spec->port_high) : -EINVAL;
}

static void put_log_mode(struct json_writer *w, const struct json_field *f, const void *of) {
    _cleanup_(freep) char *text = xasprintf("%04o", ((const struct job_spec *)of)->log_mode);
    json_write_string(w, f->key, text);
}

static int get_log_mode(const struct json *v, const struct json_field *f, void *of) {
    const char *text = json_string(v);
    return text != NULL ? job_log_mode_parse(text, &((struct job_spec *)of)->log_mode) : -EINVAL;
}

static const char *const backends[] = {
    [JOB_BACKEND_STATIC] = "static",
    [JOB_BACKEND_C10D] = "c10d",
    [JOB_BACKEND_DIR] = "dir",
    [JOB_BACKEND_ETCD] = "etcd",
};
static const char *const entries[] = {
    [JOB_ENTRY_PYTHON] = "python", [JOB_ENTRY_MODULE] = "module", [JOB_ENTRY_PROGRAM] = "program"};
static void put_signal(struct json_writer *w, const struct json_field *f, const void *of) {
    _cleanup_(freep) char *name = xasprintf("SIG%s", signal_abbrev(*(const int *)of));
    json_write_string(w, NULL, name);
}

static int get_signal(const struct json *v, const struct json_field *f, void *of) {
    int signo = json_string(v) != NULL ? job_signal_by_name(json_string(v)) : 0;
    *(int *)of = signo;
    return signo == 0 ? -EINVAL : 0;
}

static const struct json_field signal_fields[] = {
    {.kind = JSON_FIELD_OWN, .write = put_signal, .read = get_signal}};
static const struct json_table signals = {.fields = signal_fields, .n = 1, .size = sizeof(int)};

static void put_requeue(struct json_writer *w, const struct json_field *f, const void *of) {
    json_write_array_begin(w, f->key);
    for (unsigned bit = 1; requeue_word(bit)[0] != '\0'; bit <<= 1)
        if ((((const struct job_spec *)of)->requeue & bit) != 0)
            json_write_string(w, NULL, requeue_word(bit));
    json_write_array_end(w);
}

/* The names of --bind's choices, or of --numa-binding's after "torch ". null: by the node. */
static const struct {
    enum run_option row;
    const char *before;
    enum bind_mode first;
} binds[] = {{RUN_BIND, "", BIND_NONE}, {RUN_NUMA_BINDING, "torch ", BIND_TORCH_NODE}};

static void put_bind(struct json_writer *w, const struct json_field *f, const void *of) {
    enum bind_mode mode = ((const struct job_spec *)of)->bind;
    size_t i = mode >= BIND_TORCH_NODE, n;
    _cleanup_(freep) char *text = NULL;
    if (mode != 0) {
        const char *name = option_nth_choice(
            &run_options.defs[option_row(&run_options, binds[i].row)], mode - binds[i].first, &n);
        text = xasprintf("%s%.*s", binds[i].before, (int)n, name);
    }
    write_text(w, f->key, text);
}

static int get_bind(const struct json *v, const struct json_field *f, void *of) {
    const char *text = json_string(v);
    if (json_kind_of(v) == JSON_NULL)
        return 0;
    size_t i = text != NULL && strncmp(text, binds[1].before, strlen(binds[1].before)) == 0;
    int choice = text == NULL
                     ? -1
                     : option_choice(&run_options.defs[option_row(&run_options, binds[i].row)],
                                     text + strlen(binds[i].before));
    if (choice < 0)
        return -EINVAL;
    ((struct job_spec *)of)->bind = binds[i].first + (unsigned)choice;
    return 0;
}

/* For people, of each rank of this node; for an agent, as --tee takes it. */
static void put_std(struct json_writer *w, const struct json_field *f, const void *of) {
    const struct std_map *map = const_at(of, f);
    const struct job_spec *spec = of;
    if (is_for_agent(w)) {
        char text[STD_MAP_TEXT_MAX];
        std_map_text(map, text);
        json_write_string(w, f->key, text);
        return;
    }
    json_write_array_begin(w, f->key);
    for (uint32_t i = 0; i < spec->nproc; i++)
        json_write_u64(w, NULL, std_map_get(map, i));
    json_write_array_end(w);
}

static int get_std(const struct json *v, const struct json_field *f, void *of) {
    return json_string(v) != NULL ? std_map_parse(json_string(v), at(of, f)) : -EINVAL;
}

static void put_console(struct json_writer *w, const struct json_field *f, const void *of) {
    const bool *shown = ((const struct job_spec *)of)->console_ranks;
    if (shown == NULL) {
        json_write_null(w, f->key);
        return;
    }
    json_write_array_begin(w, f->key);
    for (uint32_t i = 0; i < JOB_WORKERS_MAX; i++)
        if (shown[i])
            json_write_u64(w, NULL, i);
    json_write_array_end(w);
}

static int get_console(const struct json *v, const struct json_field *f, void *of) {
    struct err err = {0};
    int64_t rank;
    if (json_kind_of(v) == JSON_NULL)
        return 0;
    bool *shown = ((struct job_spec *)of)->console_ranks = xcalloc(JOB_WORKERS_MAX, sizeof *shown);
    int r = json_as_array(v, "", JOB_WORKERS_MAX, &err);
    for (const struct json *e = r == 0 ? json_first(v) : NULL; e != NULL && r == 0;
         e = json_next(e)) {
        r = json_as_integer(e, "", 0, JOB_WORKERS_MAX - 1, &rank, &err);
        if (r == 0)
            shown[rank] = true;
    }
    return r;
}

static void put_run_id_given(struct json_writer *w, const struct json_field *f, const void *of) {
    json_write_bool(w, f->key, job_id_is_common(of));
}

static int get_run_id_given(const struct json *v, const struct json_field *f, void *of) {
    bool given;
    int r = json_as_bool(v, f->key, &given, NULL);
    if (r == 0)
        ((struct job_spec *)of)->run_id_is = given ? JOB_RUN_ID_COMMON : JOB_RUN_ID_OWN;
    return r;
}

static void put_alone(struct json_writer *w, const struct json_field *f, const void *of) {
    json_write_bool(w, f->key, job_is_alone(of));
}

/* Each as -H takes it, with the GPUs as --include does. */
static void put_hosts(struct json_writer *w, const struct json_field *f, const void *of) {
    const struct hosts *hosts = const_at(of, f);
    json_write_array_begin(w, f->key);
    for (size_t i = 0; i < hosts->n; i++) {
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        job_host_text(&hosts->items[i], &text);
        write_text(w, NULL, strbuf_text(&text));
    }
    json_write_array_end(w);
}

static void put_number(struct json_writer *w, const struct json_field *f, const void *of) {
    json_write_u64(w, f->key, *(const uint32_t *)const_at(of, f));
}

static const struct option_def *def_of(const struct json_field *f) {
    return (const struct option_def *)(const void *)f->names;
}

static void put_choice(struct json_writer *w, const struct json_field *f, const void *of) {
    char text[OPTION_TEXT_MAX];
    json_write_string(w, f->key, option_field_text(def_of(f), of, text));
}

static int get_choice(const struct json *v, const struct json_field *f, void *of) {
    int i = json_string(v) != NULL ? option_choice(def_of(f), json_string(v)) : -1;
    if (i < 0)
        return -EINVAL;
    *(uint32_t *)at(of, f) = def_of(f)->values[i];
    return 0;
}

#define OWN(name, member, what) \
    JSON_FIELD(job_spec, OWN, name, member), .write = put_##what, .read = get_##what
#define TEXT(name, member) \
    { OWN(name, member, text) }
#define SECONDS(name, member) \
    { OWN(name, member, seconds) }
/* An agent doesn't get it: there is no way to read it. */
#define FOR_PEOPLE(name, member, what) \
    { JSON_FIELD(job_spec, OWN, name, member), .write = put_##what }

/* The keys for people are in muster-files(5), and do not change. */
static const struct json_field own_fields[] = {
    {JSON_FIELD(job_spec, U32, "min_nodes", rdzv.min_nodes), .min = 1, .max = RDZV_NODES_MAX},
    {JSON_FIELD(job_spec, U32, "max_nodes", rdzv.max_nodes), .min = 1, .max = RDZV_NODES_MAX},
    {JSON_FIELD(job_spec, U32, "nproc_per_node", nproc), .min = 1, .max = JOB_WORKERS_MAX},
    {JSON_NAMED(job_spec, "backend", backend, backends), .min = 1},
    FOR_PEOPLE("standalone", endpoint_host, alone),
    TEXT("endpoint_host", endpoint_host),
    {JSON_FIELD(job_spec, U16, "endpoint_port", endpoint_port)},
    {JSON_LIST(job_spec, "endpoint_ports", endpoint_ports, n_endpoint_ports, port)},
    TEXT("store_host", store_host),
    {JSON_FIELD(job_spec, U16, "store_port", store_port)},
    {OWN("port_range", port_low, port_range)},
    TEXT("arbiter_dir", arbiter_dir),
    {OWN("etcd_endpoints", etcd_endpoints, texts)},
    {JSON_FIELD(job_spec, BOOL, "etcd_tls", etcd_tls)},
    TEXT("etcd_prefix", etcd_prefix),
    TEXT("etcd_user", etcd_user),
    {JSON_FIELD(job_spec, OWN, "etcd_password", etcd_password), .write = put_secret,
     .read = get_text},
    TEXT("etcd_cacert", etcd_cacert),
    TEXT("etcd_cert", etcd_cert),
    TEXT("etcd_key", etcd_key),
    {JSON_FIELD(job_spec, I32, "is_host", is_host), .min = -1},
    {JSON_FIELD(job_spec, BOOL, "workers_store", workers_store)},
    {JSON_FIELD(job_spec, I32, "node_rank", node_rank), .min = -1},
    TEXT("run_id", run_id),
    {OWN("run_id_given", run_id_is, run_id_given)},
    FOR_PEOPLE("derived", derived, texts),
    FOR_PEOPLE("start_nodes", start_nodes, number),
    FOR_PEOPLE("hosts", hosts.list, hosts),
    TEXT("topology", topology),
    TEXT("topology_file", topology_file),
    SECONDS("join_timeout", rdzv.join_timeout_ns),
    SECONDS("last_call_timeout", rdzv.last_call_ns),
    SECONDS("close_timeout", rdzv.close_timeout_ns),
    SECONDS("leader_timeout", rdzv.leader_timeout_ns),
    SECONDS("heartbeat_interval", rdzv.heartbeat_ns),
    SECONDS("lease", rdzv.lease_ns),
    SECONDS("arbiter_lease", rdzv.arbiter_lease_ns),
    {JSON_LIST(job_spec, "signals_to_handle", signals, n_signals, signals)},
    FOR_PEOPLE("requeue", requeue, requeue),
    {JSON_NAMED(job_spec, "entry", entry, entries), .min = 1},
    TEXT("script", script),
    {JSON_FIELD(job_spec, OWN, "args", args), .write = put_texts, .read = get_words},
    {OWN("bind", bind, bind)},
    {OWN("env", env, texts)},
    {OWN("redirects", redirects, std)},
    {OWN("tee", tee, std)},
    {OWN("local_ranks_filter", console_ranks, console)},
    {OWN("duplicate_stdout_filters", filters[0], texts)},
    {OWN("duplicate_stderr_filters", filters[1], texts)},
    {JSON_FIELD(job_spec, U64, "output_spool", output_spool)},
    TEXT("event_log", event_log),
    {OWN("log_mode", log_mode, log_mode)},
    {JSON_FIELD(job_spec, I32, "verbose", verbose)},
};
static const struct json_field agent_fields[] = {
    {JSON_FIELD(job_spec, NAME, "nproc_by", nproc_by), .names = job_nproc_words,
     .n_names = JOB_NPROC_COUNT},
    {OWN("given", given, texts)},
};

/* Rules that the command line keeps. */
static int check_job(const void *of, struct err *err) {
    const struct job_spec *spec = of;
    if (rdzv_settings_make_sense(&spec->rdzv) && spec->run_id != NULL && spec->run_id[0] != '\0' &&
        strlen(spec->run_id) < JOB_RUN_ID_MAX && spec->script != NULL && spec->script[0] != '\0' &&
        spec->role != NULL && strlen(spec->role) < RDZV_ROLE_MAX &&
        spec->gpus_per_worker <= GPUS_MAX && spec->node_rank < RDZV_NODES_MAX)
        return 0;
    return err_set(err, -EINVAL, "its settings contradict each other");
}

/* An ordinary option has a field as its row describes it. */
static struct json_field field_of(const struct option_def *def) {
    struct json_field f = {.kind = JSON_FIELD_OWN, .offset = def->at};
    char *key = xstrdup(def->key != NULL ? def->key : def->name); /* as long as the program */
    for (char *c = key; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    f.key = key;
    f.names = (const char *const *)(const void *)def;
    switch (def->kind) {
    case OPTION_BY_HAND: assert_not_reached();
    case OPTION_SWITCH: f.kind = JSON_FIELD_BOOL; break;
    case OPTION_COUNT:
        f.kind = JSON_FIELD_INDEX;
        f.size = sizeof(uint32_t);
        break;
    case OPTION_SECONDS:
        f.write = put_seconds;
        f.read = get_seconds;
        break;
    case OPTION_CHOICE:
        f.write = put_choice;
        f.read = get_choice;
        break;
    case OPTION_TEXT:
        f.write = put_text;
        f.read = get_text;
        break;
    }
    return f;
}

static const struct json_table *table(bool of_agent) {
    static struct json_field all[2]
                                [ARRAY_SIZE(own_fields) + ARRAY_SIZE(agent_fields) + OPTIONS_MAX];
    static struct json_table made[2];
    struct json_field *fields = all[of_agent];
    struct json_table *t = &made[of_agent];
    if (t->n > 0)
        return t;
    *t = (struct json_table){.fields = fields, .size = sizeof(struct job_spec), .check = check_job};
    for (size_t i = 0; i < ARRAY_SIZE(own_fields); i++)
        if (!of_agent || own_fields[i].kind != JSON_FIELD_OWN || own_fields[i].read != NULL)
            fields[t->n++] = own_fields[i];
    for (size_t i = 0; of_agent && i < ARRAY_SIZE(agent_fields); i++)
        fields[t->n++] = agent_fields[i];
    for (size_t i = 0; i < run_options.n; i++)
        if (run_options.defs[i].kind != OPTION_BY_HAND)
            fields[t->n++] = field_of(&run_options.defs[i]);
    return t;
}

static void write_job(const struct job_spec *spec, struct json_writer *w) {
    json_write_object_begin(w, NULL);
    json_table_write(w, table(is_for_agent(w)), spec);
    json_write_object_end(w);
}

void job_write(const struct job_spec *spec, struct strbuf *out) {
    struct json_writer w = {.out = out, .context = &for_agent};
    write_job(spec, &w);
}

void job_print_config(const struct job_spec *spec, struct strbuf *out) {
    struct json_writer w = {.out = out, .lines = true};
    write_job(spec, &w);
    strbuf_add_char(out, '\n');
}

int job_read(const char *text, size_t len, struct job_spec *ret, struct err *err) {
    int r = json_table_parse(text, len, &limits, table(true), ret, err);
    ret->rdzv.margin_ns = rdzv_margin_ns(ret->rdzv.lease_ns);
    return r;
}
