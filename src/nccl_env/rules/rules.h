/* The rules: which variable, when, its value, the reason, and where the fact comes from. For
 * resolve.c only. rules_net.c, rules_nccl.c and rules_torch.c have a table each, below what its
 * rows ask; rules.c has what they share. Pure. */
#pragma once

#include "base/text/strbuf.h"
#include "nccl_env/rules/resolve.h"

enum rule_verdict {
    RULE_NO = 0, /* it does not concern this job: not even listed */
    RULE_YES,
    RULE_REFUSES, /* it would, but not here: listed with the reason */
};

enum rule_level {                 /* in which mode it is asked at all */
                  RULE_ASKED = 1, /* in each: for what the user asked for by an option */
                  RULE_MINIMAL,
                  RULE_FULL,
};

struct env_rule {
    const char *name;
    const char *other_name; /* a second name of the same setting, or NULL */
    enum rule_level level;
    bool at_start; /* its value is known when the job starts */
    bool narrows;  /* it refines the user's value instead of leaving it alone */
    enum rule_verdict (*when)(const struct env_input *in);
    const char *text; /* the value where it is always the same; else value() writes it */
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

/* What the worker would see of this variable without us: asked for, of the environment, or of one
 * of NCCL's files. NULL: nothing. */
const char *rule_value_of(const struct env_input *in, const char *name);
/* "NAME=…" in a list of such; NULL: it is not there. */
const char *rule_list_value(char *const *list, const char *name);
/* Who tunes NCCL here: a cloud, or the plugin that was found; NULL: nobody. */
const char *rule_tuner(const struct env_input *in);
/* Google's plugins bring a script that sets NCCL up, and refuse to start with other values. */
bool rule_is_google(const struct env_input *in);
/* Are NVIDIA's GPUs here, as far as we know? */
bool rule_has_gpus(const struct env_input *in);
/* 23007 for 2.30.7; 0: not known. */
uint32_t rule_nccl_version(const struct env_input *in);
