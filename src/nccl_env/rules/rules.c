#include "nccl_env/rules/rules.h"

#include <stdio.h>
#include <string.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"

#define RAS_SINCE 22400 /* NCCL 2.24 */

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
    if (cloud_name(in->facts->cloud) != NULL)
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

static uint32_t nccl_version(const struct env_input *in) {
    return in->facts != NULL ? in->facts->nccl_version : 0;
}

/* Whether PyTorch is older than 2.`minor`. False if its version is not known. */
static bool torch_is_before(const struct env_input *in, unsigned minor) {
    unsigned major = 0, found = 0;
    const char *version = in->facts != NULL ? in->facts->torch_version : "";
    return sscanf(version, "%3u.%3u", &major, &found) == 2 &&
           (major < 2 || (major == 2 && found < minor));
}

bool rule_is_for_torch(const struct env_input *in, const struct env_rule *rule) {
    return (rule->torch_min == 0 || !torch_is_before(in, rule->torch_min)) &&
           (rule->torch_max == 0 || torch_is_before(in, rule->torch_max));
}

static enum rule_verdict when_gpus(const struct env_input *in, struct rule_text *to) {
    return rule_has_gpus(in) ? RULE_YES : RULE_NO;
}

/* ---- interfaces ---- */

static enum rule_verdict netif(const struct env_input *in, struct rule_text *to) {
    if (in->n_nodes <= 1 || in->netif == NULL)
        return RULE_NO;
    strbuf_add(&to->value, in->netif->netif);
    strbuf_add(&to->reason, in->netif->why);
    return in->netif->netif[0] != '\0' ? RULE_YES : RULE_REFUSES;
}

static enum rule_verdict exact_netif(const struct env_input *in, struct rule_text *to) {
    strbuf_add_char(&to->value, '=');
    return netif(in, to);
}

/* Slurm's srun sets the ranks of PMI and PMIx for every program that it starts, MPI or not. */
static bool has_mpi(char *const *envp) {
    static const char *const signs[] = {"OMPI_COMM_WORLD_SIZE", "MPI_LOCALRANKID",
                                        "MV2_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    const size_t n = ARRAY_SIZE(signs) - (env_get(envp, "SLURM_PROCID") != NULL ? 2 : 0);
    for (size_t i = 0; i < n; i++)
        if (env_get(envp, signs[i]) != NULL)
            return true;
    return false;
}

static enum rule_verdict netif_of_mpi(const struct env_input *in, struct rule_text *to) {
    strbuf_add(&to->reason, "this was started by MPI, and MPI's own traffic should use the same "
                            "interface; ");
    return has_mpi(in->envp) && netif(in, to) == RULE_YES ? RULE_YES : RULE_NO;
}

/* NCCL prefers an interface's IPv4 address, even one that is link-local, or that can't reach the
 * other nodes. */
static enum rule_verdict socket_family(const struct env_input *in, struct rule_text *to) {
    const struct netif_choice *c = in->netif;
    if (in->n_nodes <= 1 || c == NULL || c->netif[0] == '\0')
        return RULE_NO;
    if (c->family_v6) {
        strbuf_printf(&to->reason,
                      "not all nodes reach their neighbours at the IPv4 address of %s, but all do "
                      "at %s",
                      c->netif, c->addr);
        return RULE_YES;
    }
    bool v6 = in->topology != NULL && strchr(c->addr, ':') != NULL;
    uint32_t at = v6 ? topology_find_netif(in->topology, c->netif) : TOPO_NONE;
    bool link_local = false, global = false;
    for (uint32_t i = 0; at != TOPO_NONE && i < in->topology->netifs[at].n_addrs; i++) {
        const struct topo_netaddr *a = &in->topology->netifs[at].addrs[i];
        link_local = link_local || (!a->ipv6 && a->link_local);
        global = global || (!a->ipv6 && !a->link_local);
    }
    strbuf_printf(&to->reason,
                  "the only IPv4 address of %s is link-local, and NCCL would prefer it to %s",
                  c->netif, c->addr);
    return link_local && !global ? RULE_YES : RULE_NO;
}

/* ---- RDMA devices ---- */

/* Whether RDMA devices matter for this job, and whether enough is known to decide about them. */
static enum rule_verdict rdma(const struct env_input *in, struct rule_text *to) {
    if (in->n_nodes <= 1 || in->topology == NULL || !rule_has_gpus(in) ||
        rule_is_on(in, "NCCL_IB_DISABLE"))
        return RULE_NO;
    const char *tuner = rule_tuner(in);
    if (tuner == NULL)
        return RULE_YES;
    strbuf_printf(&to->reason, "%s tunes NCCL here", tuner);
    return RULE_REFUSES;
}

static bool is_used(const struct topo_nic *n, const struct topo_port *p) {
    return n->kind == TOPO_NIC_RDMA && p->state == TOPO_PORT_ACTIVE;
}

struct hca_sets {
    bool paired[TOPO_NICS_MAX]; /* it serves a GPU by NCCL's rules, or is beside one */
    const struct topo_port *kinds[TOPO_NICS_MAX]; /* ports of paired NICs, one of each kind */
    uint32_t n_kinds;
    bool known; /* rate and layer are known for all of them */
};

/* A NET is one device, or several with '+': "mlx5_0+mlx5_1". */
static void add_paired(const struct topology *t, const char *net, struct hca_sets *s) {
    while (*net != '\0') {
        size_t n = strcspn(net, "+");
        _cleanup_(freep) char *name = xstrndup(net, MIN2(n, strcspn(net, ":")));
        uint32_t i = topology_find_nic(t, name);
        if (i != TOPO_NONE)
            s->paired[i] = true;
        net += n + (net[n] == '+');
    }
}

/* Layer and rate decide whether a port belongs to the GPUs' set. */
static bool has_kind(const struct hca_sets *s, const struct topo_port *p) {
    for (uint32_t i = 0; i < s->n_kinds; i++)
        if (s->kinds[i]->link_layer == p->link_layer && s->kinds[i]->rate_mbps == p->rate_mbps)
            return true;
    return false;
}

static void add_kind(struct hca_sets *s, const struct topo_port *p) {
    s->known = s->known && p->rate_mbps > 0 && p->link_layer != TOPO_LINK_UNKNOWN;
    if (!has_kind(s, p) && s->n_kinds < ARRAY_SIZE(s->kinds))
        s->kinds[s->n_kinds++] = p;
}

static void write_kind(const struct topo_port *p, struct strbuf *to) {
    strbuf_printf(to, "%s, %.4g Gb/s",
                  p->link_layer == TOPO_LINK_ETHERNET ? "Ethernet" : "InfiniBand",
                  (double)p->rate_mbps / 1000);
}

static void hca_sets_make(const struct env_input *in, struct hca_sets *s) {
    const struct topology *t = in->topology;
    *s = (struct hca_sets){.known = true};
    for (uint32_t g = 0; g < t->n_gpus; g++) {
        if (t->gpus[g].vendor != TOPO_VENDOR_NVIDIA)
            continue;
        struct nccl_prediction p;
        nccl_graph_predict(in->graph, g, &p);
        for (uint32_t i = 0; i < p.n_nets; i++)
            add_paired(t, p.nets[i], s);
        /* This NIC is beside the GPU, although NCCL uses a faster one of another GPU: its link is
         * slow at the moment. */
        if (p.own_path == NCCL_PATH_PIX || p.own_path == NCCL_PATH_PXB)
            add_paired(t, p.own, s);
    }
    for (uint32_t i = 0; i < t->n_nics; i++)
        for (uint32_t k = 0; s->paired[i] && k < t->nics[i].n_ports; k++)
            if (is_used(&t->nics[i], &t->nics[i].ports[k]))
                add_kind(s, &t->nics[i].ports[k]);
}

/* Whether a NIC's ports differ from every port that serves a GPU: they are for storage or
 * management. */
static bool is_foreign(const struct hca_sets *s, uint32_t nic, const struct topo_port *p) {
    return !s->paired[nic] && p->rate_mbps > 0 && p->link_layer != TOPO_LINK_UNKNOWN &&
           !has_kind(s, p);
}

static void write_port(const struct topo_nic *n, const struct topo_port *p, struct strbuf *to) {
    strbuf_printf(to, "%s%s", to->len > 0 && to->data[to->len - 1] != '=' ? "," : "", n->name);
    if (n->n_ports > 1)
        strbuf_printf(to, ":%u", p->number);
}

/* Writes each used port to one of the two lists, in order. false: nothing is to be left out. */
static bool hca_split(const struct env_input *in, struct strbuf *kept, struct strbuf *foreign,
                      struct hca_sets *s) {
    const struct topology *t = in->topology;
    uint32_t n_kept = 0;
    hca_sets_make(in, s);
    if (s->n_kinds == 0 || !s->known)
        return false;
    for (uint32_t i = 0; i < t->n_nics; i++)
        for (uint32_t k = 0; k < t->nics[i].n_ports; k++) {
            const struct topo_port *p = &t->nics[i].ports[k];
            if (!is_used(&t->nics[i], p))
                continue;
            bool out = is_foreign(s, i, p);
            write_port(&t->nics[i], p, out ? foreign : kept);
            n_kept += !out;
            if (!out)
                continue;
            strbuf_add(foreign, " (");
            write_kind(p, foreign);
            strbuf_add_char(foreign, ')');
        }
    return foreign->len > 0 && n_kept > 0 && n_kept <= NCCL_HCAS_MAX;
}

static enum rule_verdict ib_hca(const struct env_input *in, struct rule_text *to) {
    _cleanup_(strbuf_fini) struct strbuf foreign = {0};
    struct hca_sets s;
    enum rule_verdict v = in->graph != NULL ? rdma(in, to) : RULE_NO;
    strbuf_add_char(&to->value, '=');
    if (v == RULE_NO || !hca_split(in, &to->value, &foreign, &s))
        return RULE_NO;
    if (v == RULE_REFUSES)
        return v;
    strbuf_printf(&to->reason, "leaves out %s, unlike those that serve the GPUs (",
                  strbuf_text(&foreign));
    for (uint32_t i = 0; i < s.n_kinds; i++) {
        strbuf_add(&to->reason, i > 0 ? "; " : "");
        write_kind(s.kinds[i], &to->reason);
    }
    strbuf_add(&to->reason, "): most likely for storage or management");
    return v;
}

/* ---- GIDs of RoCE ---- */

static bool is_v4_gid(const struct topo_gid *g) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(g->gid, mapped, sizeof mapped) == 0;
}

static bool is_link_local_gid(const struct topo_gid *g) {
    return g->gid[0] == 0xfe && (g->gid[1] & 0xc0) == 0x80;
}

/* The first RoCE v2 GID of IPv4, or of IPv6 that is not link-local. */
static const struct topo_gid *find_gid(const struct topo_port *p, bool v4) {
    for (uint32_t i = 0; i < p->n_gids; i++) {
        const struct topo_gid *g = &p->gids[i];
        if (g->type == TOPO_GID_ROCE_V2 &&
            (v4 ? is_v4_gid(g) : !is_v4_gid(g) && !is_link_local_gid(g)))
            return g;
    }
    return NULL;
}

/* What the RoCE ports of the node have in common. */
struct roce {
    uint32_t ports;              /* 0: none, or their GIDs are not known */
    bool all_v4, all_v6, any_v4; /* v2 GIDs */
    bool same;                   /* the GID wanted has one index on all of them */
    uint32_t index;
    const char *first, *other; /* two HCAs that differ */
    uint32_t other_index;
    uint32_t gidless; /* ports without any of these GIDs */
    const char *first_gidless;
};

static void roce_add(struct roce *r, const struct topo_nic *n, const struct topo_port *p) {
    const struct topo_gid *v4 = find_gid(p, true), *v6 = find_gid(p, false);
    const struct topo_gid *g = v4 != NULL ? v4 : v6;
    r->all_v4 = r->all_v4 && v4 != NULL;
    r->any_v4 = r->any_v4 || v4 != NULL;
    r->all_v6 = r->all_v6 && v6 != NULL;
    if (g == NULL && r->gidless++ == 0)
        r->first_gidless = n->name;
    if (r->ports++ == 0) {
        r->index = g != NULL ? g->index : 0;
        r->first = n->name;
    } else if (r->same && g != NULL && g->index != r->index) {
        r->same = false;
        r->other = n->name;
        r->other_index = g->index;
    }
}

static struct roce roce_of(const struct topology *t) {
    struct roce r = {.all_v4 = true, .all_v6 = true, .same = true};
    for (uint32_t i = 0; i < t->n_nics; i++)
        for (uint32_t k = 0; k < t->nics[i].n_ports; k++) {
            const struct topo_port *p = &t->nics[i].ports[k];
            if (is_used(&t->nics[i], p) && p->link_layer == TOPO_LINK_ETHERNET && p->n_gids > 0)
                roce_add(&r, &t->nics[i], p);
        }
    return r;
}

uint32_t rule_count_gidless(const struct topology *t, const char **ret_first) {
    struct roce r = roce_of(t);
    *ret_first = r.first_gidless;
    return r.gidless;
}

static enum rule_verdict gid_index(const struct env_input *in, struct rule_text *to) {
    uint32_t version = nccl_version(in);
    enum rule_verdict v = rdma(in, to);
    if (v == RULE_NO || version == 0 || version >= NCCL_GID_SINCE)
        return RULE_NO;
    struct roce r = roce_of(in->topology);
    if (r.ports == 0 || !(r.all_v4 || (r.all_v6 && !r.any_v4)))
        return RULE_NO;
    strbuf_printf(&to->value, "%u", r.index);
    if (v == RULE_YES && !r.same)
        strbuf_printf(&to->reason,
                      "no index fits all HCAs: it is %u on %s and %u on %s; NCCL 2.21 and newer "
                      "find the index themselves",
                      r.index, r.first, r.other_index, r.other);
    else if (v == RULE_YES)
        strbuf_printf(&to->reason,
                      "NCCL %u.%u does not find the RoCE v2 GID of IPv%s itself; here it has this "
                      "index on each HCA",
                      version / 10000, version / 100 % 100, r.all_v4 ? "4" : "6");
    return r.same ? v : RULE_REFUSES;
}

static enum rule_verdict addr_family(const struct env_input *in, struct rule_text *to) {
    uint32_t version = nccl_version(in);
    enum rule_verdict v = rdma(in, to);
    if (v == RULE_NO || (version != 0 && version < NCCL_GID_SINCE))
        return RULE_NO;
    struct roce r = roce_of(in->topology);
    if (v == RULE_YES)
        strbuf_add(&to->reason, "no HCA has a RoCE v2 GID of IPv4, but NCCL uses IPv4 by default");
    return r.ports > 0 && r.all_v6 && !r.any_v4 ? v : RULE_NO;
}

/* ---- NCCL but its network ---- */

static enum rule_verdict ras(const struct env_input *in, struct rule_text *to) {
    uint32_t version = nccl_version(in);
    const char *enabled = rule_value_of(in, "NCCL_RAS_ENABLE");
    if (!rule_has_gpus(in) || (in->ras_port == 0 && !in->preview) ||
        (version != 0 && version < RAS_SINCE) || (enabled != NULL && strcmp(enabled, "0") == 0))
        return RULE_NO;
    if (in->ras_port != 0)
        strbuf_printf(&to->value, "localhost:%u", in->ras_port);
    else
        strbuf_add(&to->value, "localhost:PORT");
    return RULE_YES;
}

static enum rule_verdict comm_id(const struct env_input *in, struct rule_text *to) {
    if (in->comm_id == NULL)
        return RULE_NO;
    strbuf_add(&to->value, in->comm_id);
    return RULE_YES;
}

static enum rule_verdict debug(const struct env_input *in, struct rule_text *to) {
    strbuf_add(&to->value, in->debug ? "INFO" : "WARN");
    strbuf_add(&to->reason, in->debug ? "--nccl-debug requests it"
                                      : "by default NCCL does not report why it fails");
    return in->debug || (in->mode == NCCL_ENV_FULL && rule_has_gpus(in)) ? RULE_YES : RULE_NO;
}

/* NCCL replaces %h and %p in the whole path, and no other %. */
static enum rule_verdict debug_file(const struct env_input *in, struct rule_text *to) {
    if (!in->debug)
        return RULE_NO;
    if (in->log_dir == NULL || strchr(in->log_dir, '%') != NULL) {
        strbuf_add(&to->reason,
                   in->log_dir != NULL
                       ? "the path of the log directory contains a %, which NCCL would replace"
                       : "there is no log directory (--log-dir): NCCL writes to standard output");
        return RULE_REFUSES;
    }
    strbuf_printf(&to->value, "%s/nccl.%%h.%%p.log", in->log_dir);
    strbuf_add(&to->reason, "--nccl-debug requests it: one file for each worker, which also has "
                            "its warnings");
    return RULE_YES;
}

static enum rule_verdict strict(const struct env_input *in, struct rule_text *to) {
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

static enum rule_verdict topology_file(const struct env_input *in, struct rule_text *to) {
    if (in->facts == NULL || in->topology == NULL || in->facts->n_topo_files == 0 ||
        !rule_has_gpus(in))
        return RULE_NO;
    const struct nccl_topo_file *file = topo_file(in);
    if (file == NULL) {
        strbuf_printf(&to->reason,
                      "the image has topology files (%s%s), but either none or several of them "
                      "describe this machine's GPUs",
                      in->facts->topo_files[0].path, in->facts->n_topo_files > 1 ? ", …" : "");
        return RULE_REFUSES;
    }
    strbuf_add(&to->value, file->path);
    strbuf_add(&to->reason, "the virtual machine hides its PCI switches; this file of the image "
                            "has them, and it fits: it has the same GPUs at the same PCI "
                            "addresses");
    return RULE_YES;
}

static enum rule_verdict nvlink_domain(const struct env_input *in, struct rule_text *to) {
    char domain[TOPO_DOMAIN_MAX];
    return in->n_nodes > 1 && in->topology != NULL && topology_domain(in->topology, domain)
               ? RULE_REFUSES
               : RULE_NO;
}

static enum rule_verdict mnnvl(const struct env_input *in, struct rule_text *to) {
    char domain[TOPO_DOMAIN_MAX];
    if (nvlink_domain(in, to) == RULE_NO)
        return RULE_NO;
    (void)topology_domain(in->topology, domain);
    strbuf_printf(&to->reason,
                  "its default, 2, uses NVLink between the nodes of a domain by itself; this node "
                  "is in domain %s, IMEX channel %s",
                  domain, topo_imex_names[in->topology->imex]);
    return RULE_REFUSES;
}

static enum rule_verdict c2c(const struct env_input *in, struct rule_text *to) {
    return in->topology != NULL && topology_has_c2c(in->topology) ? RULE_REFUSES : RULE_NO;
}

/* ---- PyTorch and gloo ---- */

/* Not where the user switched it off. */
static enum rule_verdict recorder(const struct env_input *in, struct rule_text *to) {
    const char *size = rule_value_of(in, "TORCH_FR_BUFFER_SIZE");
    if (size == NULL)
        size = rule_value_of(in, "TORCH_NCCL_TRACE_BUFFER_SIZE");
    return rule_has_gpus(in) && (size == NULL || strcmp(size, "0") != 0) ? RULE_YES : RULE_NO;
}

static enum rule_verdict recorder_file(const struct env_input *in, const char *name,
                                       struct rule_text *to) {
    if (in->log_dir == NULL)
        return RULE_NO;
    strbuf_printf(&to->value, "%s/%s", in->log_dir, name);
    return recorder(in, to);
}

static enum rule_verdict dump_file(const struct env_input *in, struct rule_text *to) {
    return recorder_file(in, "nccl_trace_rank_", to);
}

static enum rule_verdict pipe_file(const struct env_input *in, struct rule_text *to) {
    return recorder_file(in, "nccl_trace_pipe_", to);
}

static enum rule_verdict gloo_v2(const struct env_input *in, struct rule_text *to) {
    return in->n_nodes > 1 ? RULE_YES : RULE_NO;
}

static enum rule_verdict gloo_sequence(const struct env_input *in, struct rule_text *to) {
    const char *v2 = rule_value_of(in, "GLOO_ENABLE_STORE_V2_API");
    return v2 == NULL || strcmp(v2, "1") == 0 ? gloo_v2(in, to) : RULE_NO;
}

/* ---- what a worker sees of the node ---- */

static enum rule_verdict omp(const struct env_input *in, struct rule_text *to) {
    bool by_cores = in->omp_cores && in->bound_cores > 0;
    strbuf_printf(&to->value, "%u", by_cores ? in->bound_cores : 1);
    strbuf_add(&to->reason,
               by_cores ? "--omp=cores: as many threads as the worker has cores"
                        : "torchrun's default for several workers on a node; --omp=cores gives "
                          "each its share of the cores");
    return by_cores || in->nproc > 1 ? RULE_YES : RULE_NO;
}

/* The index-th of the devices that `list` shows; false: there is none. */
static bool device_item(const struct env_input *in, const char *list, uint32_t index,
                        struct strbuf *to) {
    if (list == NULL) {
        strbuf_printf(to, "%u", index);
        return in->n_visible == 0 || index < in->n_visible;
    }
    size_t n = 0;
    const char *item = list_item(list, index, &n);
    strbuf_add_bytes(to, item, n);
    return n > 0;
}

static bool device_list(const struct env_input *in, const char *list, struct strbuf *to) {
    uint32_t per = MAX2(in->gpus_per_worker, 1u);
    for (uint32_t i = 0; i < per; i++) {
        strbuf_add(to, i > 0 ? "," : "");
        if (!device_item(in, list, in->local_rank * per + i, to))
            return false;
    }
    return true;
}

static enum rule_verdict devices(const struct env_input *in, const char *list,
                                 struct rule_text *to) {
    if (!in->virtual_local_rank && in->gpus_per_worker == 0)
        return RULE_NO;
    if (!device_list(in, list, &to->value)) {
        strbuf_printf(&to->reason, "there are not enough GPUs for local rank %u", in->local_rank);
        return RULE_REFUSES;
    }
    if (in->gpus_per_worker > 0)
        strbuf_printf(&to->reason, "--gpus-per-worker=%u: each worker sees only its own GPUs",
                      in->gpus_per_worker);
    else
        strbuf_add(&to->reason, "--virtual-local-rank: each worker sees only its own GPU");
    return RULE_YES;
}

static enum rule_verdict cuda_visible(const struct env_input *in, struct rule_text *to) {
    return devices(in, rule_value_of(in, "CUDA_VISIBLE_DEVICES"), to);
}

static enum rule_verdict hip_visible(const struct env_input *in, struct rule_text *to) {
    const char *list = rule_value_of(in, "HIP_VISIBLE_DEVICES");
    return list == NULL || list[0] == '\0' ? RULE_NO : devices(in, list, to);
}

#define GUIDE "NCCL user guide, "
#define FLIGHT "PyTorch, flight recorder: "
#define GLOO_V2_SINCE 7 /* PyTorch 2.7 */
/* Since 2.8 the flight recorder's variables begin with TORCH_FR_. Their older names still work, but
 * each worker prints a warning about them. */
#define FR_SINCE 8
#define BECAUSE_IDENTITY                                                              \
    "the driver reports both; another clique divides a rack, and -2 is the rack, by " \
    "its serial number"
#define BECAUSE_MNNVL_NICS \
    "how NCCL matches the NICs of a domain's nodes; its defaults, 1 and 0, fit racks"
#define BECAUSE_C2C                                                                        \
    "1 by default: GPUs use the NICs at the CPU by NVLink-C2C (GPUDirect RDMA, PXN), and " \
    "LL128"
#define MNNVL_SOURCE GUIDE "NCCL_MNNVL_ENABLE"
#define C2C_SOURCE "NCCL 2.30.7, src/graph/paths.cc and tuning.cc"
#define BECAUSE_RECORDER                                                                        \
    "PyTorch's flight recorder: each rank remembers its last 2000 collectives, so that a hang " \
    "can be explained"
#define BECAUSE_BESIDE_LOGS "the flight recorder writes beside the logs instead of into /tmp"

const struct env_rule env_rules[] = {
    {"NCCL_SOCKET_IFNAME", RULE_MINIMAL, exact_netif,
     .source = GUIDE "NCCL_SOCKET_IFNAME (= is an exact name); NVIDIA/nccl#286"},
    {"GLOO_SOCKET_IFNAME", RULE_MINIMAL, netif,
     .source = "PyTorch, torch.distributed (a plain name)"},
    {"TP_SOCKET_IFNAME", RULE_MINIMAL, netif, .source = "PyTorch, torch.distributed.rpc"},
    {"NCCL_SOCKET_FAMILY", RULE_MINIMAL, socket_family, .text = "AF_INET6",
     .source = GUIDE "NCCL_SOCKET_FAMILY"},
    {"UCX_NET_DEVICES", RULE_FULL, netif_of_mpi, .source = "OpenUCX, UCX_NET_DEVICES"},
    {"NCCL_IB_HCA", RULE_FULL, ib_hca, .source = GUIDE "NCCL_IB_HCA (= is an exact name)"},
    {"NCCL_IB_GID_INDEX", RULE_FULL, gid_index,
     .source = GUIDE "NCCL_IB_GID_INDEX; NCCL finds it itself since 2.21"},
    {"NCCL_IB_ADDR_FAMILY", RULE_FULL, addr_family, .text = "AF_INET6",
     .source = GUIDE "NCCL_IB_ADDR_FAMILY"},
    {"NCCL_TOPO_FILE", RULE_FULL, topology_file, .source = GUIDE "NCCL_TOPO_FILE"},
    {"NCCL_IGNORE_NET_MISMATCH", RULE_ASKED, strict, .text = "0",
     .because = "--preflight=strict: NCCL fails if ranks see different numbers of NICs",
     .source = "NCCL 2.30, NCCL_IGNORE_NET_MISMATCH"},
    {"NCCL_COMM_ID", RULE_ASKED, comm_id, .at_start = true,
     .because = "--nccl-comm-id requests it; its port changes with each restart",
     .source = GUIDE "NCCL_COMM_ID"},
    {"NCCL_RAS_ADDR", RULE_MINIMAL, ras, .at_start = true,
     .because = "a port of its own for NCCL's status service (RAS): two jobs on one host can't "
                "both use the default port, 28028",
     .source = GUIDE "NCCL_RAS_ADDR; NVIDIA/nccl#2397"},
    {"NCCL_DEBUG", RULE_ASKED, debug, .source = GUIDE "NCCL_DEBUG"},
    {"NCCL_DEBUG_FILE", RULE_ASKED, debug_file, .at_start = true,
     .source = GUIDE "NCCL_DEBUG_FILE"},
    {"CUDA_DEVICE_ORDER", RULE_MINIMAL, when_gpus, .text = "PCI_BUS_ID",
     .because = "CUDA then numbers GPUs as nvidia-smi does, even if they are of different models",
     .source = "CUDA C++ programming guide, environment variables"},
    {"NCCL_MNNVL_ENABLE", RULE_MINIMAL, mnnvl, .source = MNNVL_SOURCE},
    {"NCCL_MNNVL_UUID", RULE_MINIMAL, nvlink_domain, .because = BECAUSE_IDENTITY,
     .source = MNNVL_SOURCE},
    {"NCCL_MNNVL_CLIQUE_ID", RULE_MINIMAL, nvlink_domain, .because = BECAUSE_IDENTITY,
     .source = MNNVL_SOURCE},
    {"NCCL_MNNVL_CROSS_CLIQUE", RULE_MINIMAL, nvlink_domain,
     .because = "0 by default: between cliques of one domain NCCL uses the network; 1 is for "
                "domains of several racks whose switches are joined",
     .source = "NCCL 2.30.7, src/graph/paths.cc"},
    {"NCCL_MNNVL_SCATTER_NETS_ENABLE", RULE_MINIMAL, nvlink_domain, .because = BECAUSE_MNNVL_NICS,
     .source = "NCCL 2.30.7, src/graph/search.cc"},
    {"NCCL_MNNVL_RAIL_PER_HOST", RULE_MINIMAL, nvlink_domain, .because = BECAUSE_MNNVL_NICS,
     .source = "NCCL 2.30.7, src/graph/search.cc"},
    {"NCCL_NET_GDR_C2C", RULE_MINIMAL, c2c, .because = BECAUSE_C2C, .source = C2C_SOURCE},
    {"NCCL_PXN_C2C", RULE_MINIMAL, c2c, .because = BECAUSE_C2C, .source = C2C_SOURCE},
    {"NCCL_LL128_C2C", RULE_MINIMAL, c2c, .because = BECAUSE_C2C, .source = C2C_SOURCE},
    {"CUDA_VISIBLE_DEVICES", RULE_ASKED, cuda_visible, .narrows = true,
     .source = "CUDA C++ programming guide, environment variables"},
    {"HIP_VISIBLE_DEVICES", RULE_ASKED, hip_visible, .narrows = true,
     .source = "HIP programming guide: if it is set, CUDA_VISIBLE_DEVICES is not read"},
    {"TORCH_FR_BUFFER_SIZE", RULE_FULL, when_gpus, .torch_min = FR_SINCE,
     .other_name = "TORCH_NCCL_TRACE_BUFFER_SIZE", .text = "2000", .because = BECAUSE_RECORDER,
     .source = FLIGHT "TORCH_FR_BUFFER_SIZE (2.8 and newer); its default depends on the version"},
    {"TORCH_NCCL_TRACE_BUFFER_SIZE", RULE_FULL, when_gpus, .torch_max = FR_SINCE,
     .other_name = "TORCH_FR_BUFFER_SIZE", .text = "2000", .because = BECAUSE_RECORDER,
     .source = FLIGHT "TORCH_NCCL_TRACE_BUFFER_SIZE (before 2.8; its default there is 0)"},
    {"TORCH_NCCL_DUMP_ON_TIMEOUT", RULE_FULL, recorder, .text = "1",
     .because = "the flight recorder writes a file when a collective times out",
     .source = FLIGHT "its default depends on the version"},
    {"TORCH_FR_DUMP_TEMP_FILE", RULE_FULL, dump_file, .torch_min = FR_SINCE,
     .other_name = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", .at_start = true,
     .because = BECAUSE_BESIDE_LOGS, .source = FLIGHT "a prefix, the rank follows"},
    {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", RULE_FULL, dump_file, .torch_max = FR_SINCE,
     .other_name = "TORCH_FR_DUMP_TEMP_FILE", .at_start = true, .because = BECAUSE_BESIDE_LOGS,
     .source = FLIGHT "its name before 2.8; a prefix, the rank follows"},
    {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", RULE_FULL, pipe_file, .at_start = true,
     .because = "the flight recorder also writes when something is written into this FIFO",
     .source = FLIGHT "a prefix, the rank and .pipe follow"},
    {"GLOO_ENABLE_STORE_V2_API", RULE_FULL, gloo_v2, .torch_min = GLOO_V2_SINCE, .text = "1",
     .because = "gloo asks the store for all peers at once: 6 requests for each rank, instead of 3 "
                "for each peer",
     .source = "pytorch/gloo#408"},
    {"GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", RULE_FULL, gloo_sequence, .torch_min = GLOO_V2_SINCE,
     .text = "1", .because = "what gloo stores stays small, however many ranks there are",
     .source = "pytorch/gloo#407"},
    {"OMP_NUM_THREADS", RULE_ASKED, omp, .source = "torchrun"},
};
const size_t n_env_rules = ARRAY_SIZE(env_rules);
