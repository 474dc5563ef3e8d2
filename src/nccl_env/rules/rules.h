/* The rules: which variable, when, its value, the reason, and the source of the fact. For resolve.c
 * only. Pure. */
#pragma once

#include "base/text/strbuf.h"
#include "nccl_env/rules/resolve.h"

enum rule_verdict {
    RULE_NO = 0, /* it does not concern this job: not even listed */
    RULE_YES,
    RULE_REFUSES, /* it concerns the job but does not apply here: listed with the reason */
};

enum rule_level {                 /* in which modes it is evaluated */
                  RULE_ASKED = 1, /* in every mode: for what the user requested by an option */
                  RULE_MINIMAL,
                  RULE_FULL,
};

struct rule_text {
    struct strbuf value, reason;
};

struct env_rule {
    const char *name;
    enum rule_level level;
    /* Writes the value and the reason, as far as the row does not have them. */
    enum rule_verdict (*decide)(const struct env_input *in, struct rule_text *to);
    const char *text;    /* the value, if it is always the same */
    const char *because; /* likewise the reason: a sentence without its full stop */
    const char *source;
    const char *other_name;        /* a second name of the same setting, or NULL */
    unsigned torch_min, torch_max; /* only with PyTorch 2.MIN and newer, or before 2.MAX; 0: any */
    bool at_start;                 /* its value is known when the job starts */
    bool narrows;                  /* it refines the user's value instead of leaving it alone */
};
extern const struct env_rule env_rules[];
extern const size_t n_env_rules;

/* Whether its condition about PyTorch holds. An unknown version is a new one. */
bool rule_is_for_torch(const struct env_input *in, const struct env_rule *rule);
/* The value that the worker would see without us: from an option, the environment, or one of NCCL's
 * files. NULL: none. */
const char *rule_value_of(const struct env_input *in, const char *name);
/* Whether that value is there and not "0". */
bool rule_is_on(const struct env_input *in, const char *name);
/* What tunes NCCL here: a cloud, or the plugin that was found; NULL: nothing. */
const char *rule_tuner(const struct env_input *in);
/* Google's plugins contain a script that configures NCCL, and refuse to start with other values. */
bool rule_is_google(const struct env_input *in);
/* True if this node has GPUs from NVIDIA, as far as we know. */
bool rule_has_gpus(const struct env_input *in);
/* How many active RoCE ports have no GID that NCCL could use, and the first such device. */
uint32_t rule_count_gidless(const struct topology *t, const char **ret_first);
