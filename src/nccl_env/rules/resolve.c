#include "nccl_env/rules/resolve.h"

#include <string.h>

#include "base/text/envlist.h"
#include "nccl_env/lint/lint.h"
#include "nccl_env/rules/findings.h"
#include "nccl_env/rules/rules.h"

struct resolving {
    const struct env_input *in;
    struct env_result *result;
    uint32_t cap, warnings_cap;
};

/* Takes ownership of value and reason. */
static void add_choice(struct resolving *z, const char *name, size_t name_len, char *value,
                       enum env_action action, char *reason, const char *source) {
    struct env_result *r = z->result;
    if (r->n == z->cap) {
        z->cap = MAX2(z->cap * 2, 32u);
        r->choices = xrealloc(r->choices, z->cap * sizeof *r->choices);
    }
    r->choices[r->n++] = (struct env_choice){.name = xstrndup(name, name_len),
                                             .value = value,
                                             .action = action,
                                             .reason = reason,
                                             .source = source};
}

static void warn(void *arg, const char *text) {
    struct resolving *z = arg;
    struct env_result *r = z->result;
    if (r->n_warnings == z->warnings_cap) {
        z->warnings_cap = MAX2(z->warnings_cap * 2, 8u);
        r->warnings = xrealloc(r->warnings, z->warnings_cap * sizeof *r->warnings);
    }
    r->warnings[r->n_warnings++] = xstrdup(text);
}

static const struct nccl_conf_entry *find_in_files(const struct env_input *in, const char *name,
                                                   const char **ret_path) {
    if (in->facts == NULL)
        return NULL;
    const struct nccl_conf *const files[] = {&in->facts->user_conf, &in->facts->system_conf};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        const struct nccl_conf_entry *e = nccl_conf_find(files[i], name);
        if (e != NULL) {
            *ret_path = files[i]->path;
            return e;
        }
    }
    return NULL;
}

/* Values that are already set: the environment first, then the files, as NCCL reads them. */
static bool add_kept(struct resolving *z, const char *name, const char *source) {
    const struct env_input *in = z->in;
    const char *path = NULL, *value = env_get(in->envp, name);
    const struct nccl_conf_entry *e = find_in_files(in, name, &path);
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
    add_choice(z, name, strlen(name), xstrdup(value != NULL ? value : e->value), ENV_KEPT, reason,
               source);
    return true;
}

static char *rule_text(const struct env_input *in, const char *text,
                       void (*write)(const struct env_input *in, struct strbuf *to)) {
    struct strbuf s = {0};
    if (text != NULL)
        strbuf_add(&s, text);
    else
        write(in, &s);
    return strbuf_take(&s);
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
    const char *asked = rule_list_value(in->set, rule->name);
    size_t n = strlen(rule->name);
    if (asked != NULL) {
        add_choice(z, rule->name, n, xstrdup(asked), ENV_ASKED,
                   xstrdup("--env or --env-file sets it"), NULL);
        return;
    }
    enum rule_verdict v = level_is_on(in, rule->level) ? rule->when(in) : RULE_NO;
    if (!(rule->narrows && v != RULE_NO) && add_kept(z, rule->name, rule->source))
        return;
    if (v == RULE_NO)
        return;
    if (rule->other_name != NULL && rule_value_of(in, rule->other_name) != NULL) {
        add_choice(z, rule->name, n, NULL, ENV_REFUSED,
                   xasprintf("%s, its other name, is set", rule->other_name), rule->source);
    } else if (v == RULE_YES && google_refuses(in, rule)) {
        add_choice(z, rule->name, n, NULL, ENV_REFUSED,
                   xasprintf("%s: the plug-in's own script configures NCCL, and its checker "
                             "rejects other values",
                             rule_tuner(in)),
                   rule->source);
    } else {
        add_choice(z, rule->name, n, v == RULE_YES ? rule_text(in, rule->text, rule->value) : NULL,
                   v == RULE_YES ? ENV_SET : ENV_REFUSED,
                   rule_text(in, rule->because, rule->reason), rule->source);
        z->result->choices[z->result->n - 1].at_start =
            v == RULE_YES && rule->at_start && in->preview;
    }
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
            add_choice(z, name, strlen(name), xstrdup(rule_list_value(in->set, name)), ENV_ASKED,
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
    static const struct env_rules *const tables[] = {&env_rules_net, &env_rules_nccl,
                                                     &env_rules_torch};
    for (size_t k = 0; k < ARRAY_SIZE(tables); k++)
        for (size_t i = 0; i < tables[k]->n; i++)
            apply_rule(&z, &tables[k]->rules[i]);
    add_others(&z);
    env_find(input, warn, &z);
    nccl_lint_all(input->envp, input->facts, input->topology, warn, &z);
    nccl_lint_all(input->set, NULL, input->topology, warn, &z);
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
    for (uint32_t i = 0; i < r->n_warnings; i++)
        free(r->warnings[i]);
    free(r->warnings);
    *r = (struct env_result){0};
}

const struct env_choice *env_result_find(const struct env_result *r, const char *name) {
    for (uint32_t i = 0; i < r->n; i++)
        if (strcmp(r->choices[i].name, name) == 0)
            return &r->choices[i];
    return NULL;
}
