#include "nccl_env/rules/resolve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/strbuf.h"
#include "nccl_env/lint/lint.h"
#include "nccl_env/rules/rules.h"

#define MIB (UINT64_C(1) << 20)
/* What a process needs at most: some hundred files of its own, and for each rank of the job 64
 * sockets in each direction (NCCL user guide, NCCL_NSOCKS_PERTHREAD: the product of both
 * variables). */
#define NOFILE_ENOUGH UINT64_C(131072)
#define NOFILE_OWN 512
#define NOFILE_EACH_RANK 128

struct resolving {
    const struct env_input *in;
    struct env_result *result;
};

static void find_limits(struct resolving *z) {
    const struct env_input *in = z->in;
    const struct nccl_facts *f = in->facts;
    bool rdma = in->topology != NULL && in->topology->n_nics > 0 && in->n_nodes > 1;
    uint64_t ranks = (uint64_t)MAX2(in->n_nodes, 1u) * in->nproc;
    uint64_t nofile = MIN2(NOFILE_OWN + ranks * NOFILE_EACH_RANK, NOFILE_ENOUGH);
    if (rdma && f->memlock_hard != 0 && f->memlock_hard != UINT64_MAX)
        words_printf(&z->result->warnings,
                     "locked memory is limited to %" PRIu64 " KiB (ulimit -l): RDMA needs it "
                     "unlimited, or fails with \"Cannot allocate memory\"",
                     f->memlock_hard / 1024);
    if (f->nofile_hard != 0 && f->nofile_hard < nofile)
        words_printf(&z->result->warnings,
                     "open files are limited to %" PRIu64 " (ulimit -n): with %" PRIu64
                     " ranks NCCL can need %" PRIu64,
                     f->nofile_hard, ranks, nofile);
    if (f->stack == UINT64_MAX && ranks > 1)
        words_printf(
            &z->result->warnings,
            "the stack is unlimited (ulimit -s): glibc then gives threads, also NCCL's, stacks "
            "of only 2 MiB; set it to 8192");
    if (f->shm_bytes != 0 && f->shm_bytes < 1024 * MIB && in->nproc > 1)
        words_printf(&z->result->warnings,
                     "/dev/shm holds only %" PRIu64
                     " MiB, and NCCL and data loaders need 1 GiB or more "
                     "(docker run --shm-size; in Kubernetes an emptyDir of medium Memory)",
                     f->shm_bytes / MIB);
}

static void find_too_few(struct resolving *z) {
    const struct env_input *in = z->in;
    const char *list = rule_value_of(in, "CUDA_VISIBLE_DEVICES");
    if (list != NULL && in->n_visible > 0 &&
        in->n_visible < in->nproc * MAX2(in->gpus_per_worker, 1u))
        words_printf(&z->result->warnings,
                     "CUDA_VISIBLE_DEVICES=%.200s shows %u GPU%s to %u workers", list,
                     in->n_visible, in->n_visible == 1 ? "" : "s", in->nproc);
}

/* NCCL distinguishes ranks by the PCI addresses of their GPUs. NVIDIA/nccl#1716 */
static void find_shared_by_mig(struct resolving *z) {
    const struct env_input *in = z->in;
    if (rule_is_on(in, "NCCL_MULTI_RANK_GPU_ENABLE") || in->visible == NULL || in->topology == NULL)
        return;
    for (uint32_t i = 0; i < in->n_visible && i < in->nproc; i++)
        for (uint32_t k = 0; k < i; k++)
            if (in->visible[k] == in->visible[i] && in->topology->gpus[in->visible[i]].mig) {
                words_printf(
                    &z->result->warnings,
                    "local ranks %u and %u have MIG parts of one GPU, but NCCL needs a GPU for "
                    "each rank (unless NCCL_MULTI_RANK_GPU_ENABLE=1, since 2.30)",
                    k, i);
                return;
            }
}

/* How many EFA devices Amazon's machines have (AWS, EC2 user guide, Elastic Fabric Adapter). */
static void find_missing_efa(struct resolving *z) {
    static const struct {
        const char *machine;
        uint32_t n;
    } all[] = {{"p4d.24xlarge", 4},
               {"p4de.24xlarge", 4},
               {"p5.48xlarge", 32},
               {"p5e.48xlarge", 32},
               {"p5en.48xlarge", 16}};
    const struct topology *t = z->in->topology;
    uint32_t found = 0;
    for (uint32_t i = 0; t != NULL && i < t->n_nics; i++)
        found += t->nics[i].kind == TOPO_NIC_EFA;
    for (size_t i = 0; t != NULL && i < ARRAY_SIZE(all); i++)
        if (strcmp(z->in->facts->signs.product_name, all[i].machine) == 0 && found < all[i].n)
            words_printf(
                &z->result->warnings,
                "%u of the %u EFA devices of a %s are visible here%s: are they attached, and "
                "passed to this container?",
                found, all[i].n, all[i].machine, found == 0 ? ", so that NCCL would use TCP" : "");
}

/* Google's script sets one of these. */
static void find_script_not_run(struct resolving *z) {
    if (!rule_is_google(z->in) || rule_value_of(z->in, "NCCL_NET") != NULL ||
        rule_value_of(z->in, "NCCL_FASTRAK_CTRL_DEV") != NULL ||
        rule_value_of(z->in, "NCCL_GPUDIRECTTCPX_CTRL_DEV") != NULL)
        return;
    const char *script =
        z->in->facts->cloud == CLOUD_GCP_GIB     ? "/usr/local/gib/scripts/set_nccl_env.sh"
        : z->in->facts->cloud == CLOUD_GCP_TCPXO ? "nccl-env-profile.sh in the plug-in's folder"
                                                 : "the one that comes with it";
    words_printf(&z->result->warnings,
                 "%s: the plug-in's variables are not set; source its script before muster run: %s",
                 rule_tuner(z->in), script);
}

/* NVIDIA/nccl#426, #769, #1131 */
static void find_gidless(struct resolving *z) {
    const struct topology *t = z->in->topology;
    const char *first = NULL;
    if (t == NULL || rule_is_on(z->in, "NCCL_IB_DISABLE"))
        return;
    uint32_t n = rule_count_gidless(t, &first);
    if (n > 0)
        words_printf(
            &z->result->warnings,
            "%s%s no RoCE v2 address (GID) except a link-local one, and NCCL's transfers through "
            "%s would fail with status 12: give %s an IP address",
            first, n > 1 ? " and others have" : " has", n > 1 ? "them" : "it",
            n > 1 ? "their interfaces" : "its interface");
}

static void find_networks(struct resolving *z) {
    const struct env_input *in = z->in;
    if (in->n_nodes <= 1 || !rule_has_gpus(in))
        return;
    find_gidless(z);
    if (in->facts == NULL)
        return;
    find_missing_efa(z);
    find_script_not_run(z);
}

static void find_conf_file(struct resolving *z) {
    const char *file = rule_value_of(z->in, "NCCL_CONF_FILE");
    int r = z->in->facts != NULL ? z->in->facts->conf_file_error : 0;
    if (r == 0 || file == NULL)
        return;
    const char *why = r == -EINVAL  ? "it is not a regular file, and is not read here"
                      : r == -EFBIG ? "it is too large, and is not read here"
                                    : strerror(-r);
    words_printf(&z->result->warnings,
                 "NCCL_CONF_FILE=%.200s: %s; ~/.nccl.conf is not read instead of it", file, why);
}

static void find_all(struct resolving *z) {
    const struct env_input *in = z->in;
    if (in->n_nodes > 1 && in->netif != NULL && in->netif->warning && in->mode != NCCL_ENV_OFF)
        words_printf(&z->result->warnings, "no interface is chosen: %s", in->netif->why);
    find_networks(z);
    if (!rule_has_gpus(in))
        return;
    if (in->facts != NULL)
        find_limits(z);
    find_conf_file(z);
    const char *file = rule_value_of(in, "NCCL_TOPO_FILE");
    if (in->facts != NULL && in->facts->topo_file_gone && file != NULL)
        words_printf(
            &z->result->warnings,
            "NCCL_TOPO_FILE=%.200s: there is no such file here, so NCCL runs without it; if this "
            "is a container, give it the host's file",
            file);
    find_too_few(z);
    find_shared_by_mig(z);
}

/* Takes ownership of value and reason. */
static void add_choice(struct resolving *z, const char *name, char *value, enum env_action action,
                       char *reason, const char *source) {
    struct env_result *r = z->result;
    r->choices = xgrow(r->choices, r->n, sizeof *r->choices);
    r->choices[r->n++] = (struct env_choice){.name = xstrdup(name),
                                             .value = value,
                                             .action = action,
                                             .reason = reason,
                                             .source = source};
}

/* Values that are already set: the environment first, then the files, as NCCL reads them. */
static bool add_kept(struct resolving *z, const char *name, const char *source) {
    const struct env_input *in = z->in;
    const char *path = NULL, *value = env_get(in->envp, name);
    const struct nccl_conf_entry *e =
        in->facts != NULL ? nccl_facts_conf(in->facts, name, &path) : NULL;
    if (value == NULL && e == NULL)
        return false;
    char *reason;
    if (value == NULL)
        reason = xasprintf("%s line %u sets it", path, e->line);
    else if (e == NULL)
        reason = xstrdup("the environment sets it");
    else
        reason =
            xasprintf("the environment sets it, and has precedence over %s line %u", path, e->line);
    add_choice(z, name, xstrdup(value != NULL ? value : e->value), ENV_KEPT, reason, source);
    return true;
}

static char *text_or(struct strbuf *text, const char *fixed) {
    strbuf_add(text, fixed != NULL ? fixed : "");
    return strbuf_take(text);
}

static bool level_is_on(const struct env_input *in, enum rule_level level) {
    switch (level) {
    case RULE_ASKED: return true;
    case RULE_MINIMAL: return in->mode != NCCL_ENV_OFF;
    case RULE_FULL: return in->mode == NCCL_ENV_FULL;
    }
    assert_not_reached();
}

/* On Google's machines only those variables of NCCL are set that the user requests by an option. */
static bool google_refuses(const struct env_input *in, const struct env_rule *rule) {
    return rule_is_google(in) && strncmp(rule->name, "NCCL_", 5) == 0 &&
           !(strcmp(rule->name, "NCCL_COMM_ID") == 0) && !(in->debug && rule->level == RULE_ASKED);
}

static void apply_rule(struct resolving *z, const struct env_rule *rule) {
    const struct env_input *in = z->in;
    const char *asked = env_get(in->set, rule->name);
    if (asked != NULL) {
        add_choice(z, rule->name, xstrdup(asked), ENV_ASKED, xstrdup("--env or --env-file sets it"),
                   NULL);
        return;
    }
    struct rule_text text = {0};
    bool is_evaluated = level_is_on(in, rule->level) && rule_is_for_torch(in, rule);
    enum rule_verdict v = is_evaluated ? rule->decide(in, &text) : RULE_NO;
    if ((v == RULE_NO || !rule->narrows) && add_kept(z, rule->name, rule->source)) {
        /* it stays */
    } else if (v != RULE_NO && rule->other_name != NULL &&
               rule_value_of(in, rule->other_name) != NULL) {
        add_choice(z, rule->name, NULL, ENV_REFUSED,
                   xasprintf("%s, its other name, is set", rule->other_name), rule->source);
    } else if (v == RULE_YES && google_refuses(in, rule)) {
        add_choice(z, rule->name, NULL, ENV_REFUSED,
                   xasprintf("%s: the plug-in's own script configures NCCL, and its checker "
                             "rejects other values",
                             rule_tuner(in)),
                   rule->source);
    } else if (v != RULE_NO) {
        add_choice(z, rule->name, v == RULE_YES ? text_or(&text.value, rule->text) : NULL,
                   v == RULE_YES ? ENV_SET : ENV_REFUSED, text_or(&text.reason, rule->because),
                   rule->source);
        z->result->choices[z->result->n - 1].at_start =
            v == RULE_YES && rule->at_start && in->preview;
    }
    strbuf_fini(&text.value);
    strbuf_fini(&text.reason);
}

/* Names that NCCL, gloo or PyTorch read. The user sees all of them that are in effect. */
static bool is_of_interest(const char *name) {
    static const char *const beginnings[] = {
        "NCCL_",
        "GLOO_",
        "TORCH_NCCL_",
        "TORCH_FR_",
        "UCX_",
        "FI_",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "CUDA_DEVICE_",
        "CUDA_LAUNCH_BLOCKING",
        "NVSHMEM_",
    };
    return text_begins_with_any(name, beginnings, ARRAY_SIZE(beginnings));
}

static void add_others(struct resolving *z) {
    const struct env_input *in = z->in;
    for (char *const *e = in->set; e != NULL && *e != NULL; e++) {
        _cleanup_(freep) char *name = xstrndup(*e, strcspn(*e, "="));
        if (env_result_find(z->result, name) == NULL)
            add_choice(z, name, xstrdup(env_get(in->set, name)), ENV_ASKED,
                       xstrdup("--env or --env-file sets it"), NULL);
    }
    for (char *const *e = in->envp; e != NULL && *e != NULL; e++) {
        _cleanup_(freep) char *name = xstrndup(*e, strcspn(*e, "="));
        if (is_of_interest(name) && env_result_find(z->result, name) == NULL)
            (void)add_kept(z, name, NULL);
    }
    if (in->facts == NULL)
        return;
    const struct nccl_conf *const files[] = {&in->facts->user_conf, &in->facts->system_conf};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        for (uint32_t k = 0; k < files[i]->n; k++)
            if (env_result_find(z->result, files[i]->entries[k].name) == NULL)
                (void)add_kept(z, files[i]->entries[k].name, NULL);
}

void env_resolve(const struct env_input *input, struct env_result *ret) {
    *ret = (struct env_result){0};
    struct resolving z = {.in = input, .result = ret};
    for (size_t i = 0; i < n_env_rules; i++)
        apply_rule(&z, &env_rules[i]);
    add_others(&z);
    find_all(&z);
    nccl_lint_all(input->envp, input->facts, input->topology, &ret->warnings);
    nccl_lint_all(input->set, NULL, input->topology, &ret->warnings);
}

/* Only these of the rules' inputs depend on the local rank. */
bool env_is_per_worker(const struct env_input *input) {
    return input->virtual_local_rank || input->gpus_per_worker > 0 || input->omp_cores;
}

void env_result_fini(struct env_result *r) {
    for (uint32_t i = 0; i < r->n; i++) {
        free(r->choices[i].name);
        free(r->choices[i].value);
        free(r->choices[i].reason);
    }
    free(r->choices);
    words_free(r->warnings.list);
    *r = (struct env_result){0};
}

const struct env_choice *env_result_find(const struct env_result *r, const char *name) {
    for (uint32_t i = 0; i < r->n; i++)
        if (strcmp(r->choices[i].name, name) == 0)
            return &r->choices[i];
    return NULL;
}

void env_write_plain(const struct env_result *r, struct strbuf *to) {
    for (uint32_t i = 0; i < r->n; i++) {
        const struct env_choice *c = &r->choices[i];
        if (c->action == ENV_SET || c->action == ENV_ASKED)
            strbuf_printf(to, "%s%s=%s\n", c->at_start ? "# " : "", c->name, c->value);
    }
}

#define NAME_INDENT 2
#define TEXT_INDENT 6

/* Writes one paragraph; the lines after the first are indented by TEXT_INDENT. */
static void write_wrapped(const char *text, uint32_t first, uint32_t width, struct strbuf *to) {
    strbuf_printf(to, "%*s", (int)first, "");
    (void)strbuf_add_wrapped(to, text, first, TEXT_INDENT, width);
    strbuf_add_char(to, '\n');
}

static bool is_alike(const struct env_choice *a, const struct env_choice *b) {
    return a->action == b->action && strcmp(a->reason, b->reason) == 0;
}

/* Choices of the same reason: names, reason, sources. Returns the first of the others. */
static uint32_t write_alike(const struct env_result *r, uint32_t first, uint32_t width,
                            struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf sources = {0};
    const char *last = NULL;
    uint32_t i = first;
    for (; i < r->n && is_alike(&r->choices[first], &r->choices[i]); i++) {
        const struct env_choice *c = &r->choices[i];
        strbuf_printf(to, "%*s%s%s%s\n", NAME_INDENT, "", c->name, c->value != NULL ? "=" : "",
                      c->value != NULL ? c->value : "");
        if (c->source != NULL && c->action != ENV_KEPT &&
            (last == NULL || strcmp(c->source, last) != 0))
            strbuf_printf(&sources, "%s%s", last != NULL ? "; " : "[", c->source);
        last = c->source;
    }
    write_wrapped(r->choices[first].reason, TEXT_INDENT, width, to);
    if (sources.len > 0) {
        strbuf_add_char(&sources, ']');
        write_wrapped(strbuf_text(&sources), TEXT_INDENT, width, to);
    }
    return i;
}

static void write_section(const struct env_result *r, enum env_action action, const char *title,
                          const char *nothing, uint32_t width, struct strbuf *to) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n;) {
        if (r->choices[i].action != action) {
            i++;
            continue;
        }
        if (n++ == 0)
            strbuf_printf(to, "%s%s\n", to->len > 0 ? "\n" : "", title);
        i = write_alike(r, i, width, to);
    }
    if (n == 0 && nothing != NULL)
        strbuf_printf(to, "%s%s\n%*s%s\n", to->len > 0 ? "\n" : "", title, NAME_INDENT, "",
                      nothing);
}

void env_write_explained(const struct env_result *r, uint32_t width, struct strbuf *to) {
    write_section(r, ENV_SET, "Set by muster", "nothing", width, to);
    write_section(r, ENV_ASKED, "Set because you requested it", NULL, width, to);
    write_section(r, ENV_KEPT, "Left as it is", NULL, width, to);
    write_section(r, ENV_REFUSED, "Not set", NULL, width, to);
    for (size_t i = 0; i < r->warnings.n; i++) {
        if (i == 0)
            strbuf_printf(to, "%sWorth a look\n", to->len > 0 ? "\n" : "");
        write_wrapped(r->warnings.list[i], NAME_INDENT, width, to);
    }
}

static void write_choice(struct json_writer *w, const struct env_choice *c) {
    static const char *const actions[] = {
        [ENV_SET] = "set", [ENV_KEPT] = "kept", [ENV_REFUSED] = "refused", [ENV_ASKED] = "asked"};
    json_write_object_begin(w, NULL);
    json_write_string(w, "name", c->name);
    json_write_string(w, "value", c->value);
    json_write_string(w, "action", actions[c->action]);
    json_write_string(w, "reason", c->reason);
    json_write_string(w, "source", c->source);
    json_write_object_end(w);
}

void env_write_json(const struct env_result *r, uint32_t rank, struct json_writer *w) {
    json_write_object_begin(w, NULL);
    json_write_u64(w, "rank", rank);
    json_write_u64(w, "local_rank", rank);
    json_write_array_begin(w, "variables");
    for (uint32_t i = 0; i < r->n; i++)
        write_choice(w, &r->choices[i]);
    json_write_array_end(w);
    json_write_array_begin(w, "warnings");
    for (size_t i = 0; i < r->warnings.n; i++)
        json_write_string(w, NULL, r->warnings.list[i]);
    json_write_array_end(w);
    json_write_object_end(w);
}
