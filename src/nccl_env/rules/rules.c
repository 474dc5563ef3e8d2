#include "nccl_env/rules/rules.h"

#include <string.h>

#include "base/text/envlist.h"

#define RAS_SINCE 22400 /* NCCL 2.24 */

const char *rule_list_value(char *const *list, const char *name) { return env_get(list, name); }

static const char *conf_value(const struct nccl_conf *c, const char *name) {
    const struct nccl_conf_entry *e = nccl_conf_find(c, name);
    return e != NULL ? e->value : NULL;
}

const char *rule_value_of(const struct env_input *in, const char *name) {
    const char *v = rule_list_value(in->set, name);
    if (v == NULL)
        v = env_get(in->envp, name);
    if (v == NULL && in->facts != NULL)
        v = conf_value(&in->facts->user_conf, name);
    if (v == NULL && in->facts != NULL)
        v = conf_value(&in->facts->system_conf, name);
    return v;
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
    bool none = net != NULL && strcmp(net, "none") == 0; /* they are there, but not loaded */
    return in->facts->n_plugins > 0 && !none ? in->facts->plugins[0] : NULL;
}

bool rule_is_google(const struct env_input *in) {
    enum cloud c = in->facts != NULL ? in->facts->cloud : CLOUD_NONE;
    return c == CLOUD_GCP_TCPX || c == CLOUD_GCP_TCPXO || c == CLOUD_GCP_GIB;
}

bool rule_has_gpus(const struct env_input *in) {
    if (!in->any_gpu || in->topology == NULL || in->topology->n_gpus == 0)
        return in->any_gpu; /* they are there, but nobody looked at them */
    for (uint32_t i = 0; i < in->topology->n_gpus; i++)
        if (in->topology->gpus[i].vendor == TOPO_VENDOR_NVIDIA)
            return true;
    return false;
}

uint32_t rule_nccl_version(const struct env_input *in) {
    return in->facts != NULL ? in->facts->nccl_version : 0;
}

static enum rule_verdict when_gpus(const struct env_input *in) {
    return rule_has_gpus(in) ? RULE_YES : RULE_NO;
}

static bool is_off(const char *value) { return value != NULL && strcmp(value, "0") == 0; }

static enum rule_verdict when_ras(const struct env_input *in) {
    uint32_t version = rule_nccl_version(in);
    bool known = in->ras_port != 0 || in->preview;
    return rule_has_gpus(in) && known && (version == 0 || version >= RAS_SINCE) &&
                   !is_off(rule_value_of(in, "NCCL_RAS_ENABLE"))
               ? RULE_YES
               : RULE_NO;
}

static void value_ras(const struct env_input *in, struct strbuf *to) {
    if (in->ras_port != 0)
        strbuf_printf(to, "localhost:%u", in->ras_port);
    else
        strbuf_add(to, "localhost:PORT");
}

static enum rule_verdict when_comm_id(const struct env_input *in) {
    return in->comm_id != NULL ? RULE_YES : RULE_NO;
}

static void value_comm_id(const struct env_input *in, struct strbuf *to) {
    strbuf_add(to, in->comm_id);
}

static enum rule_verdict when_debug(const struct env_input *in) {
    return in->debug || (in->mode == NCCL_ENV_FULL && rule_has_gpus(in)) ? RULE_YES : RULE_NO;
}

static void value_debug(const struct env_input *in, struct strbuf *to) {
    strbuf_add(to, in->debug ? "INFO" : "WARN");
}

static void reason_debug(const struct env_input *in, struct strbuf *to) {
    strbuf_add(to, in->debug ? "--nccl-debug asks for it"
                             : "by default NCCL does not say why it fails");
}

/* NCCL replaces %h and %p in the whole path, and knows no other %. */
static bool log_dir_is_plain(const struct env_input *in) {
    return in->log_dir != NULL && strchr(in->log_dir, '%') == NULL;
}

static enum rule_verdict when_debug_file(const struct env_input *in) {
    if (!in->debug)
        return RULE_NO;
    return log_dir_is_plain(in) ? RULE_YES : RULE_REFUSES;
}

static void value_debug_file(const struct env_input *in, struct strbuf *to) {
    strbuf_printf(to, "%s/nccl.%%h.%%p.log", in->log_dir);
}

static void reason_debug_file(const struct env_input *in, struct strbuf *to) {
    if (log_dir_is_plain(in))
        strbuf_add(to,
                   "--nccl-debug asks for it: one file a worker, in which its warnings are too");
    else if (in->log_dir != NULL)
        strbuf_add(to, "the path of the log directory holds a %, which NCCL would replace");
    else
        strbuf_add(to, "there is no log directory (--log-dir): NCCL writes to standard output");
}

static enum rule_verdict when_strict(const struct env_input *in) {
    return in->strict && in->n_nodes > 1 && rule_has_gpus(in) ? RULE_YES : RULE_NO;
}

/* Does the file describe this machine: each GPU by its PCI address, and no GPU more? */
static bool topo_file_fits(const struct nccl_topo_file *file, const struct topology *t) {
    uint32_t gpus = 0, in_file = 0;
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        char at[TOPO_BUSID_MAX];
        if (t->gpus[i].vendor != TOPO_VENDOR_NVIDIA || t->gpus[i].pci == TOPO_NONE)
            continue;
        gpus++;
        pci_addr_text(t->pci[t->gpus[i].pci].at, at);
        _cleanup_(freep) char *attribute = xasprintf("busid=\"%s\"", at);
        if (strcasestr(file->text, attribute) == NULL)
            return false;
    }
    for (const char *p = file->text; (p = strstr(p, " class=\"0x0302")) != NULL; p++)
        in_file++;
    return gpus > 0 && gpus == in_file;
}

/* The only file that fits; NULL: none, or two that differ. */
static const struct nccl_topo_file *topo_file(const struct env_input *in) {
    const struct nccl_topo_file *found = NULL;
    for (uint32_t i = 0; i < in->facts->n_topo_files; i++) {
        const struct nccl_topo_file *f = &in->facts->topo_files[i];
        if (!topo_file_fits(f, in->topology))
            continue;
        if (found != NULL && strcmp(found->text, f->text) != 0)
            return NULL;
        found = found != NULL ? found : f;
    }
    return found;
}

static enum rule_verdict when_topo_file(const struct env_input *in) {
    if (in->facts == NULL || in->topology == NULL || in->facts->n_topo_files == 0 ||
        !rule_has_gpus(in))
        return RULE_NO;
    return topo_file(in) != NULL ? RULE_YES : RULE_REFUSES;
}

static void value_topo_file(const struct env_input *in, struct strbuf *to) {
    strbuf_add(to, topo_file(in)->path);
}

static void reason_topo_file(const struct env_input *in, struct strbuf *to) {
    if (topo_file(in) != NULL)
        strbuf_add(to, "the virtual machine hides its PCI switches; this file of the image has "
                       "them, and it fits: the same GPUs at the same PCI addresses");
    else
        strbuf_printf(to,
                      "the image has topology files (%s%s), and not exactly one of them describes "
                      "this machine's GPUs",
                      in->facts->topo_files[0].path, in->facts->n_topo_files > 1 ? ", …" : "");
}

#define GUIDE "NCCL user guide, "
#define FLIGHT "PyTorch, flight recorder: "
const struct env_rule env_rules[] = {
    {.name = "NCCL_SOCKET_IFNAME",
     .level = RULE_MINIMAL,
     .when = when_netif,
     .value = value_netif_exact,
     .reason = reason_netif,
     .source = GUIDE "NCCL_SOCKET_IFNAME (= is an exact name); NVIDIA/nccl#286"},
    {.name = "GLOO_SOCKET_IFNAME",
     .level = RULE_MINIMAL,
     .when = when_netif,
     .value = value_netif,
     .reason = reason_netif,
     .source = "PyTorch, torch.distributed (a plain name)"},
    {.name = "TP_SOCKET_IFNAME",
     .level = RULE_MINIMAL,
     .when = when_netif,
     .value = value_netif,
     .reason = reason_netif,
     .source = "PyTorch, torch.distributed.rpc"},
    {.name = "NCCL_SOCKET_FAMILY",
     .level = RULE_MINIMAL,
     .when = when_socket_family,
     .text = "AF_INET6",
     .reason = reason_socket_family,
     .source = GUIDE "NCCL_SOCKET_FAMILY"},
    {.name = "UCX_NET_DEVICES",
     .level = RULE_FULL,
     .when = when_mpi,
     .value = value_netif,
     .reason = reason_mpi,
     .source = "OpenUCX, UCX_NET_DEVICES"},
    {.name = "NCCL_IB_HCA",
     .level = RULE_FULL,
     .when = when_ib_hca,
     .value = value_ib_hca,
     .reason = reason_ib_hca,
     .source = GUIDE "NCCL_IB_HCA (= is an exact name)"},
    {.name = "NCCL_IB_GID_INDEX",
     .level = RULE_FULL,
     .when = when_gid_index,
     .value = value_gid_index,
     .reason = reason_gid_index,
     .source = GUIDE "NCCL_IB_GID_INDEX; found by NCCL itself since 2.21"},
    {.name = "NCCL_IB_ADDR_FAMILY",
     .level = RULE_FULL,
     .when = when_addr_family,
     .text = "AF_INET6",
     .reason = reason_addr_family,
     .source = GUIDE "NCCL_IB_ADDR_FAMILY"},
    {.name = "NCCL_TOPO_FILE",
     .level = RULE_FULL,
     .when = when_topo_file,
     .value = value_topo_file,
     .reason = reason_topo_file,
     .source = GUIDE "NCCL_TOPO_FILE"},
    {.name = "NCCL_IGNORE_NET_MISMATCH",
     .level = RULE_ASKED,
     .when = when_strict,
     .text = "0",
     .because = "--preflight=strict: NCCL shall fail where ranks see different numbers of NICs",
     .source = "NCCL 2.30, NCCL_IGNORE_NET_MISMATCH"},
    {.name = "NCCL_COMM_ID",
     .level = RULE_ASKED,
     .at_start = true,
     .when = when_comm_id,
     .value = value_comm_id,
     .because = "--nccl-comm-id asks for it; its port changes with each restart",
     .source = GUIDE "NCCL_COMM_ID"},
    {.name = "NCCL_RAS_ADDR",
     .level = RULE_MINIMAL,
     .at_start = true,
     .when = when_ras,
     .value = value_ras,
     .because = "a port of its own for NCCL's status service (RAS): two jobs on one host would "
                "fight for the default, 28028",
     .source = GUIDE "NCCL_RAS_ADDR; NVIDIA/nccl#2397"},
    {.name = "NCCL_DEBUG",
     .level = RULE_ASKED,
     .when = when_debug,
     .value = value_debug,
     .reason = reason_debug,
     .source = GUIDE "NCCL_DEBUG"},
    {.name = "NCCL_DEBUG_FILE",
     .level = RULE_ASKED,
     .at_start = true,
     .when = when_debug_file,
     .value = value_debug_file,
     .reason = reason_debug_file,
     .source = GUIDE "NCCL_DEBUG_FILE"},
    {.name = "CUDA_DEVICE_ORDER",
     .level = RULE_MINIMAL,
     .when = when_gpus,
     .text = "PCI_BUS_ID",
     .because = "CUDA then numbers GPUs as nvidia-smi does, even where they are of several kinds",
     .source = "CUDA C++ programming guide, environment variables"},
    {.name = "CUDA_VISIBLE_DEVICES",
     .level = RULE_ASKED,
     .narrows = true,
     .when = when_visible,
     .value = value_visible,
     .reason = reason_visible,
     .source = "CUDA C++ programming guide, environment variables"},
    {.name = "HIP_VISIBLE_DEVICES",
     .level = RULE_ASKED,
     .narrows = true,
     .when = when_hip_visible,
     .value = value_hip_visible,
     .reason = reason_hip_visible,
     .source = "HIP programming guide: where it is set, CUDA_VISIBLE_DEVICES is not read"},
    {.name = "TORCH_FR_BUFFER_SIZE",
     .other_name = "TORCH_NCCL_TRACE_BUFFER_SIZE",
     .level = RULE_FULL,
     .when = when_recorder,
     .text = "2000",
     .because = "PyTorch's flight recorder: each rank remembers its last 2000 collectives, so that "
                "a hang can be explained",
     .source = FLIGHT "TORCH_FR_BUFFER_SIZE (2.9 and newer)"},
    {.name = "TORCH_NCCL_TRACE_BUFFER_SIZE",
     .other_name = "TORCH_FR_BUFFER_SIZE",
     .level = RULE_FULL,
     .when = when_recorder,
     .text = "2000",
     .because = "PyTorch's flight recorder: each rank remembers its last 2000 collectives, so that "
                "a hang can be explained",
     .source = "TORCH_NCCL_TRACE_BUFFER_SIZE (before 2.9, where it is 0 otherwise)"},
    {.name = "TORCH_NCCL_DUMP_ON_TIMEOUT",
     .level = RULE_FULL,
     .when = when_recorder_on,
     .text = "1",
     .because = "the flight recorder writes a file when a collective times out",
     .source = FLIGHT "its default depends on the version"},
    {.name = "TORCH_FR_DUMP_TEMP_FILE",
     .other_name = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
     .level = RULE_FULL,
     .at_start = true,
     .when = when_recorder_file,
     .value = value_dump_file,
     .because = "the flight recorder writes beside the logs instead of into /tmp",
     .source = FLIGHT "a prefix, the rank follows"},
    {.name = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
     .other_name = "TORCH_FR_DUMP_TEMP_FILE",
     .level = RULE_FULL,
     .at_start = true,
     .when = when_recorder_file,
     .value = value_dump_file,
     .because = "the flight recorder writes beside the logs instead of into /tmp",
     .source = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE is its name before 2.9"},
    {.name = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
     .level = RULE_FULL,
     .at_start = true,
     .when = when_recorder_file,
     .value = value_pipe_file,
     .because = "the flight recorder also writes when something is written into this FIFO",
     .source = FLIGHT "a prefix, the rank and .pipe follow"},
    {.name = "GLOO_ENABLE_STORE_V2_API",
     .level = RULE_FULL,
     .when = when_gloo_v2,
     .text = "1",
     .because = "gloo asks the store for all peers at once: 6 requests a rank, not 3 for each peer",
     .source = "pytorch/gloo#408"},
    {.name = "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER",
     .level = RULE_FULL,
     .when = when_gloo_sequence,
     .text = "1",
     .because = "what gloo keeps in the store stays small however many ranks there are",
     .source = "pytorch/gloo#407"},
    {.name = "OMP_NUM_THREADS",
     .level = RULE_ASKED,
     .when = when_omp,
     .value = value_omp,
     .reason = reason_omp,
     .source = "torchrun"},
};
const size_t env_rules_n = ARRAY_SIZE(env_rules);
