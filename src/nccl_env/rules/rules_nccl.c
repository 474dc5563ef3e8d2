/* Rules for NCCL except its network: topology file, status service, messages. */
#include <string.h>

#include "nccl_env/rules/rules.h"

#define RAS_SINCE 22400 /* NCCL 2.24 */

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
    strbuf_add(to, in->debug ? "--nccl-debug requests it"
                             : "by default NCCL does not report why it fails");
}

/* NCCL replaces %h and %p in the whole path, and no other %. */
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
        strbuf_add(to, "--nccl-debug requests it: one file for each worker, which also has its "
                       "warnings");
    else if (in->log_dir != NULL)
        strbuf_add(to, "the path of the log directory contains a %, which NCCL would replace");
    else
        strbuf_add(to, "there is no log directory (--log-dir): NCCL writes to standard output");
}

static enum rule_verdict when_strict(const struct env_input *in) {
    return in->strict && in->n_nodes > 1 && rule_has_gpus(in) ? RULE_YES : RULE_NO;
}

/* Whether the file describes this machine: each GPU by its PCI address, and no other GPU. */
static bool topo_file_fits(const struct nccl_topo_file *file, const struct topology *t) {
    uint32_t gpus = 0, in_file = 0;
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        if (t->gpus[i].vendor != TOPO_VENDOR_NVIDIA || t->gpus[i].pci == TOPO_NONE)
            continue;
        gpus++;
        _cleanup_(freep) char *attribute =
            xasprintf("busid=\"%s\"", pci_addr_text(t->pci[t->gpus[i].pci].at).text);
        if (strcasestr(file->text, attribute) == NULL)
            return false;
    }
    for (const char *p = file->text; (p = strstr(p, " class=\"0x0302")) != NULL; p++)
        in_file++;
    return gpus > 0 && gpus == in_file;
}

/* The only file that fits; NULL: none, or several that differ. */
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
                       "them, and it fits: it has the same GPUs at the same PCI addresses");
    else
        strbuf_printf(to,
                      "the image has topology files (%s%s), but either none or several of them "
                      "describe this machine's GPUs",
                      in->facts->topo_files[0].path, in->facts->n_topo_files > 1 ? ", …" : "");
}

static enum rule_verdict when_domain(const struct env_input *in) {
    char domain[TOPO_DOMAIN_MAX];
    return in->n_nodes > 1 && in->topology != NULL && topology_domain(in->topology, domain)
               ? RULE_REFUSES
               : RULE_NO;
}

static enum rule_verdict when_c2c(const struct env_input *in) {
    return in->topology != NULL && topology_has_c2c(in->topology) ? RULE_REFUSES : RULE_NO;
}

static void reason_mnnvl(const struct env_input *in, struct strbuf *to) {
    char domain[TOPO_DOMAIN_MAX];
    (void)topology_domain(in->topology, domain);
    strbuf_printf(to,
                  "its default, 2, uses NVLink between the nodes of a domain by itself; this node "
                  "is in domain %s, IMEX channel %s",
                  domain, topo_imex_names[in->topology->imex]);
}

#define BECAUSE_IDENTITY                                                              \
    "the driver reports both; another clique divides a rack, and -2 is the rack, by " \
    "its serial number"
#define BECAUSE_MNNVL_NICS \
    "how NCCL matches the NICs of a domain's nodes; its defaults, 1 and 0, fit racks"
#define BECAUSE_C2C                                                                        \
    "1 by default: GPUs use the NICs at the CPU by NVLink-C2C (GPUDirect RDMA, PXN), and " \
    "LL128"
#define MNNVL_SOURCE RULE_GUIDE "NCCL_MNNVL_ENABLE"
#define C2C_SOURCE "NCCL 2.30.7, src/graph/paths.cc and tuning.cc"

static const struct env_rule rules[] = {
    {"NCCL_TOPO_FILE", RULE_FULL, when_topo_file, .value = value_topo_file,
     .reason = reason_topo_file, .source = RULE_GUIDE "NCCL_TOPO_FILE"},
    {"NCCL_IGNORE_NET_MISMATCH", RULE_ASKED, when_strict, .text = "0",
     .because = "--preflight=strict: NCCL fails if ranks see different numbers of NICs",
     .source = "NCCL 2.30, NCCL_IGNORE_NET_MISMATCH"},
    {"NCCL_COMM_ID", RULE_ASKED, when_comm_id, .at_start = true, .value = value_comm_id,
     .because = "--nccl-comm-id requests it; its port changes with each restart",
     .source = RULE_GUIDE "NCCL_COMM_ID"},
    {"NCCL_RAS_ADDR", RULE_MINIMAL, when_ras, .at_start = true, .value = value_ras,
     .because = "a port of its own for NCCL's status service (RAS): two jobs on one host can't "
                "both use the default port, 28028",
     .source = RULE_GUIDE "NCCL_RAS_ADDR; NVIDIA/nccl#2397"},
    {"NCCL_DEBUG", RULE_ASKED, when_debug, .value = value_debug, .reason = reason_debug,
     .source = RULE_GUIDE "NCCL_DEBUG"},
    {"NCCL_DEBUG_FILE", RULE_ASKED, when_debug_file, .at_start = true, .value = value_debug_file,
     .reason = reason_debug_file, .source = RULE_GUIDE "NCCL_DEBUG_FILE"},
    {"CUDA_DEVICE_ORDER", RULE_MINIMAL, when_gpus, .text = "PCI_BUS_ID",
     .because = "CUDA then numbers GPUs as nvidia-smi does, even if they are of different models",
     .source = "CUDA C++ programming guide, environment variables"},
    {"NCCL_MNNVL_ENABLE", RULE_MINIMAL, when_domain, .reason = reason_mnnvl,
     .source = MNNVL_SOURCE},
    {"NCCL_MNNVL_UUID", RULE_MINIMAL, when_domain, .because = BECAUSE_IDENTITY,
     .source = MNNVL_SOURCE},
    {"NCCL_MNNVL_CLIQUE_ID", RULE_MINIMAL, when_domain, .because = BECAUSE_IDENTITY,
     .source = MNNVL_SOURCE},
    {"NCCL_MNNVL_CROSS_CLIQUE", RULE_MINIMAL, when_domain,
     .because = "0 by default: between cliques of one domain NCCL uses the network; 1 is for "
                "domains of several racks whose switches are joined",
     .source = "NCCL 2.30.7, src/graph/paths.cc"},
    {"NCCL_MNNVL_SCATTER_NETS_ENABLE", RULE_MINIMAL, when_domain, .because = BECAUSE_MNNVL_NICS,
     .source = "NCCL 2.30.7, src/graph/search.cc"},
    {"NCCL_MNNVL_RAIL_PER_HOST", RULE_MINIMAL, when_domain, .because = BECAUSE_MNNVL_NICS,
     .source = "NCCL 2.30.7, src/graph/search.cc"},
    {"NCCL_NET_GDR_C2C", RULE_MINIMAL, when_c2c, .because = BECAUSE_C2C, .source = C2C_SOURCE},
    {"NCCL_PXN_C2C", RULE_MINIMAL, when_c2c, .because = BECAUSE_C2C, .source = C2C_SOURCE},
    {"NCCL_LL128_C2C", RULE_MINIMAL, when_c2c, .because = BECAUSE_C2C, .source = C2C_SOURCE},
};
const struct env_rules env_rules_nccl = {rules, ARRAY_SIZE(rules)};
