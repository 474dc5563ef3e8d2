/* Each member is a line of its own; job_print_config() puts them into an object. */
#include <string.h>

#include "base/text/signal_name.h"
#include "base/text/utf8.h"
#include "cli/options/job_options_priv.h"
#include "launcher/srun/requeue.h"

static void add_json_text(struct strbuf *out, const char *s) {
    if (s == NULL) {
        strbuf_add(out, "null");
        return;
    }
    strbuf_add_char(out, '"');
    for (size_t n; *s != '\0'; s += MAX2(n, (size_t)1)) {
        n = utf8_char(s);
        if (*s == '"' || *s == '\\')
            strbuf_printf(out, "\\%c", *s);
        else if ((unsigned char)*s < 0x20 || *s == 0x7f)
            strbuf_printf(out, "\\u%04x", (unsigned)(unsigned char)*s);
        else if (n == 0)
            strbuf_add(out, "\\ufffd"); /* an argument can have any bytes; JSON can't */
        else
            strbuf_add_bytes(out, s, n);
    }
    strbuf_add_char(out, '"');
}

static void add_text(struct strbuf *out, const char *name, const char *value) {
    strbuf_printf(out, "  \"%s\": ", name);
    add_json_text(out, value);
    strbuf_add(out, ",\n");
}

static void add_number(struct strbuf *out, const char *name, int64_t value) {
    strbuf_printf(out, "  \"%s\": %lld,\n", name, (long long)value);
}

static void add_bool(struct strbuf *out, const char *name, bool value) {
    strbuf_printf(out, "  \"%s\": %s,\n", name, value ? "true" : "false");
}

static void add_seconds(struct strbuf *out, const char *name, uint64_t ns) {
    strbuf_printf(out, "  \"%s\": %.9g,\n", name, (double)ns / 1e9);
}

static const char *entry_name(enum job_entry entry) {
    switch (entry) {
    case JOB_ENTRY_PYTHON: return "python";
    case JOB_ENTRY_MODULE: return "module";
    case JOB_ENTRY_PROGRAM: return "program";
    }
    assert_not_reached();
}

static void add_texts(struct strbuf *out, const char *name, char *const *texts) {
    strbuf_printf(out, "  \"%s\": [", name);
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++) {
        strbuf_add(out, i > 0 ? ", " : "");
        add_json_text(out, texts[i]);
    }
    strbuf_add(out, "],\n");
}

static void add_signals(struct strbuf *out, const struct job_spec *spec) {
    strbuf_add(out, "  \"signals_to_handle\": [");
    for (uint32_t i = 0; i < spec->n_signals; i++)
        strbuf_printf(out, "%s\"SIG%s\"", i > 0 ? ", " : "", signal_abbrev(spec->signals[i]));
    strbuf_add(out, "],\n");
}

static void add_requeue(struct strbuf *out, const struct job_spec *spec) {
    const char *comma = "";
    strbuf_add(out, "  \"requeue\": [");
    for (unsigned bit = 1; requeue_word(bit)[0] != '\0'; bit <<= 1) {
        if ((spec->requeue & bit) == 0)
            continue;
        strbuf_printf(out, "%s\"%s\"", comma, requeue_word(bit));
        comma = ", ";
    }
    strbuf_add(out, "],\n");
}

/* With the names of --bind's choices, or --numa-binding's. */
static void add_bind(struct strbuf *out, enum bind_mode mode) {
    bool torch = mode >= BIND_TORCH_NODE;
    const enum run_option row = torch ? RUN_NUMA_BINDING : RUN_BIND;
    _cleanup_(freep) char *text = NULL;
    size_t n;
    if (mode != 0) { /* otherwise the default depends on the node */
        const char *name = option_nth_choice(&run_options.defs[option_row(&run_options, row)],
                                             mode - (torch ? BIND_TORCH_NODE : BIND_NONE), &n);
        text = xasprintf("%s%.*s", torch ? "torch " : "", (int)n, name);
    }
    add_text(out, "bind", text);
}

static void add_ports(struct strbuf *out, const struct job_spec *spec) {
    strbuf_add(out, "  \"endpoint_ports\": [");
    for (unsigned i = 0; i < spec->n_endpoint_ports; i++)
        strbuf_printf(out, "%s%u", i > 0 ? ", " : "", spec->endpoint_ports[i]);
    strbuf_add(out, "],\n");
}

static void add_std(struct strbuf *out, const char *name, const struct std_map *map,
                    uint32_t nproc) {
    strbuf_printf(out, "  \"%s\": [", name);
    for (uint32_t i = 0; i < nproc; i++)
        strbuf_printf(out, "%s%u", i > 0 ? ", " : "", std_map_get(map, i));
    strbuf_add(out, "],\n");
}

static void add_console(struct strbuf *out, const struct job_spec *spec) {
    if (spec->console_ranks == NULL) {
        strbuf_add(out, "  \"local_ranks_filter\": null,\n");
        return;
    }
    strbuf_add(out, "  \"local_ranks_filter\": [");
    const char *comma = "";
    for (uint32_t i = 0; i < spec->nproc; i++) {
        if (!spec->console_ranks[i])
            continue;
        strbuf_printf(out, "%s%u", comma, i);
        comma = ", ";
    }
    strbuf_add(out, "],\n");
}

/* Each as -H takes it, with the GPUs as --include does. */
static void add_hosts(struct strbuf *out, const struct hosts *hosts) {
    strbuf_add(out, "  \"hosts\": [");
    for (size_t i = 0; i < hosts->n; i++) {
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        job_host_text(&hosts->items[i], &text);
        strbuf_add(out, i > 0 ? ", " : "");
        add_json_text(out, strbuf_text(&text));
    }
    strbuf_add(out, "],\n");
}

static void add_times(struct strbuf *out, const struct job_spec *spec) {
    add_seconds(out, "join_timeout", spec->rdzv.join_timeout_ns);
    add_seconds(out, "last_call_timeout", spec->rdzv.last_call_ns);
    add_seconds(out, "close_timeout", spec->rdzv.close_timeout_ns);
    add_seconds(out, "leader_timeout", spec->rdzv.leader_timeout_ns);
    add_seconds(out, "heartbeat_interval", spec->rdzv.heartbeat_ns);
    add_seconds(out, "lease", spec->rdzv.lease_ns);
    add_seconds(out, "arbiter_lease", spec->rdzv.arbiter_lease_ns);
}

/* Adds an ordinary option, as its row describes it. */
static void add_field(struct strbuf *out, const struct option_def *def,
                      const struct job_spec *spec) {
    char buffer[OPTION_TEXT_MAX];
    const char *text = option_field_text(def, spec, buffer);
    _cleanup_(freep) char *key = xstrdup(def->key != NULL ? def->key : def->name);
    for (char *c = key; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    switch (def->kind) {
    case OPTION_BY_HAND: break;
    case OPTION_SWITCH: add_bool(out, key, *(const bool *)((const char *)spec + def->at)); break;
    case OPTION_COUNT:
    case OPTION_SECONDS:
        strbuf_printf(out, "  \"%s\": %s,\n", key, text != NULL ? text : "null");
        break;
    case OPTION_CHOICE:
    case OPTION_TEXT: add_text(out, key, text); break;
    }
}

static void add_arbiter(struct strbuf *out, const struct job_spec *spec) {
    add_text(out, "arbiter_dir", spec->arbiter_dir);
    add_texts(out, "etcd_endpoints", spec->etcd_endpoints);
    add_bool(out, "etcd_tls", spec->etcd_tls);
    add_text(out, "etcd_prefix", spec->etcd_prefix);
    add_text(out, "etcd_user", spec->etcd_user);
    add_text(out, "etcd_password", spec->etcd_password != NULL ? "***" : NULL);
    add_text(out, "etcd_cacert", spec->etcd_cacert);
    add_text(out, "etcd_cert", spec->etcd_cert);
    add_text(out, "etcd_key", spec->etcd_key);
}

void job_print_config(const struct job_spec *spec, struct strbuf *out) {
    strbuf_add(out, "{\n");
    add_number(out, "min_nodes", spec->rdzv.min_nodes);
    add_number(out, "max_nodes", spec->rdzv.max_nodes);
    add_number(out, "nproc_per_node", spec->nproc);
    add_text(out, "backend", job_backend(spec)->name);
    add_bool(out, "standalone", spec->standalone);
    add_text(out, "endpoint_host", spec->endpoint_host);
    add_number(out, "endpoint_port", spec->endpoint_port);
    add_ports(out, spec);
    add_text(out, "store_host", spec->store_host);
    add_number(out, "store_port", spec->store_port);
    if (spec->port_low > 0)
        strbuf_printf(out, "  \"port_range\": \"%u-%u\",\n", spec->port_low, spec->port_high);
    else
        add_text(out, "port_range", NULL);
    add_arbiter(out, spec);
    add_number(out, "is_host", spec->is_host);
    add_bool(out, "workers_store", spec->workers_store);
    add_number(out, "node_rank", spec->node_rank);
    add_text(out, "run_id", spec->run_id);
    add_bool(out, "run_id_given", spec->run_id_given);
    add_texts(out, "derived", spec->derived);
    add_number(out, "start_nodes", spec->start_nodes);
    add_hosts(out, &spec->hosts.list);
    add_text(out, "topology", spec->topology);
    add_text(out, "topology_file", spec->topology_file);
    add_times(out, spec);
    add_signals(out, spec);
    add_requeue(out, spec);
    add_text(out, "entry", entry_name(spec->entry));
    add_text(out, "script", spec->script);
    add_texts(out, "args", spec->args);
    add_bind(out, spec->bind);
    add_texts(out, "env", spec->env);
    add_std(out, "redirects", &spec->redirects, spec->nproc);
    add_std(out, "tee", &spec->tee, spec->nproc);
    add_console(out, spec);
    add_texts(out, "duplicate_stdout_filters", spec->filters[0]);
    add_texts(out, "duplicate_stderr_filters", spec->filters[1]);
    add_number(out, "output_spool", (int64_t)spec->output_spool);
    add_text(out, "event_log", spec->event_log);
    strbuf_printf(out, "  \"log_mode\": \"%04o\",\n", spec->log_mode);
    add_number(out, "verbose", spec->verbose);
    for (size_t i = 0; i < run_options.n; i++)
        add_field(out, &run_options.defs[i], spec);
    out->len -= strlen(",\n"); /* of the last member */
    strbuf_add(out, "\n}\n");
}
