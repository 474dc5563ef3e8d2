/* The rules: which variable, when, its value, the reason, and the source of the fact. For resolve.c
 * only. rules_net.c, rules_nccl.c and rules_torch.c have one table each, below the functions that
 * its rows use; rules.c has what they share. Pure. */
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

struct env_rule {
    const char *name;
    enum rule_level level;
    enum rule_verdict (*when)(const struct env_input *in);
    const char *other_name; /* a second name of the same setting, or NULL */
    bool at_start;          /* its value is known when the job starts */
    bool narrows;           /* it refines the user's value instead of leaving it alone */
    const char *text;       /* the value, if it is always the same; else value() writes it */
    void (*value)(const struct env_input *in, struct strbuf *to);
    const char *because; /* likewise; a sentence without its full stop */
    void (*reason)(const struct env_input *in, struct strbuf *to);
    const char *source;
};
struct env_rules {
    const struct env_rule *rules;
    size_t n;
};
extern const struct env_rules env_rules_net, env_rules_nccl, env_rules_torch;

#define RULE_GUIDE "NCCL user guide, " /* how a source begins */

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
/* 23007 for 2.30.7; 0: not known. */
uint32_t rule_nccl_version(const struct env_input *in);
