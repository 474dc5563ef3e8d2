#include "nccl_env/rules/rules.h"

#include <string.h>

#include "base/text/envlist.h"

const char *rule_value_of(const struct env_input *in, const char *name) {
    const char *v = env_get(in->set, name);
    if (v == NULL)
        v = env_get(in->envp, name);
    const struct nccl_conf_entry *e =
        v == NULL && in->facts != NULL ? nccl_facts_conf(in->facts, name, NULL) : NULL;
    return e != NULL ? e->value : v;
}

bool rule_is_on(const struct env_input *in, const char *name) {
    const char *value = rule_value_of(in, name);
    return value != NULL && strcmp(value, "0") != 0;
}

const char *rule_tuner(const struct env_input *in) {
    if (in->facts == NULL)
        return NULL;
    if (cloud_owns_tuning(in->facts->cloud))
        return cloud_name(in->facts->cloud);
    static const struct {
        const char *name, *text;
    } named[] = {{"NCCL_NET_PLUGIN", "the plug-in of NCCL_NET_PLUGIN"},
                 {"NCCL_TUNER_PLUGIN", "the plug-in of NCCL_TUNER_PLUGIN"},
                 {"NCCL_ENV_PLUGIN", "the plug-in of NCCL_ENV_PLUGIN"}};
    for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
        const char *value = rule_value_of(in, named[i].name);
        if (value != NULL && value[0] != '\0' && strcmp(value, "none") != 0)
            return named[i].text;
    }
    const char *net = rule_value_of(in, "NCCL_NET_PLUGIN");
    bool none = net != NULL && strcmp(net, "none") == 0; /* the plugins exist, but are not loaded */
    return in->facts->n_plugins > 0 && !none ? in->facts->plugins[0] : NULL;
}

bool rule_is_google(const struct env_input *in) {
    enum cloud c = in->facts != NULL ? in->facts->cloud : CLOUD_NONE;
    return c == CLOUD_GCP_TCPX || c == CLOUD_GCP_TCPXO || c == CLOUD_GCP_GIB;
}

bool rule_has_gpus(const struct env_input *in) {
    if (!in->any_gpu || in->topology == NULL || in->topology->n_gpus == 0)
        return in->any_gpu; /* there are GPUs, but they were not examined */
    return topology_count_gpus(in->topology, TOPO_VENDOR_NVIDIA) > 0;
}

uint32_t rule_nccl_version(const struct env_input *in) {
    return in->facts != NULL ? in->facts->nccl_version : 0;
}
