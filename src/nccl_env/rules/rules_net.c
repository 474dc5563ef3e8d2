/* Rules for interfaces and RDMA devices. */
#include <string.h>

#include "base/text/envlist.h"
#include "nccl_env/rules/rules.h"

#define GID_DYNAMIC_SINCE 22100 /* NCCL 2.21 finds the GID itself */
#define HCAS_MAX 32             /* the most that NCCL uses */

/* ---- interfaces ---- */

static enum rule_verdict when_netif(const struct env_input *in) {
    if (in->n_nodes <= 1 || in->netif == NULL)
        return RULE_NO;
    return in->netif->netif[0] != '\0' ? RULE_YES : RULE_REFUSES;
}

static void value_netif(const struct env_input *in, struct strbuf *to) {
    strbuf_add(to, in->netif->netif);
}

static void value_netif_exact(const struct env_input *in, struct strbuf *to) {
    strbuf_printf(to, "=%s", in->netif->netif);
}

static void reason_netif(const struct env_input *in, struct strbuf *to) {
    strbuf_add(to, in->netif->why);
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

static enum rule_verdict when_mpi(const struct env_input *in) {
    return has_mpi(in->envp) && when_netif(in) == RULE_YES ? RULE_YES : RULE_NO;
}

static void reason_mpi(const struct env_input *in, struct strbuf *to) {
    strbuf_printf(to,
                  "this was started by MPI, and MPI's own traffic should use the same "
                  "interface; %s",
                  in->netif->why);
}

/* NCCL prefers an interface's IPv4 address, even one that is link-local, or that can't reach the
 * other nodes. */
static enum rule_verdict when_socket_family(const struct env_input *in) {
    if (when_netif(in) != RULE_YES)
        return RULE_NO;
    if (in->netif->family_v6)
        return RULE_YES;
    if (in->topology == NULL || strchr(in->netif->addr, ':') == NULL)
        return RULE_NO;
    uint32_t at = topology_find_netif(in->topology, in->netif->netif);
    if (at == TOPO_NONE)
        return RULE_NO;
    const struct topo_netif *n = &in->topology->netifs[at];
    bool link_local = false, global = false;
    for (uint32_t i = 0; i < n->n_addrs; i++) {
        link_local = link_local || (!n->addrs[i].ipv6 && n->addrs[i].link_local);
        global = global || (!n->addrs[i].ipv6 && !n->addrs[i].link_local);
    }
    return link_local && !global ? RULE_YES : RULE_NO;
}

static void reason_socket_family(const struct env_input *in, struct strbuf *to) {
    if (in->netif->family_v6) {
        strbuf_printf(to,
                      "not all nodes reach their neighbours at the IPv4 address of %s, but all do "
                      "at %s",
                      in->netif->netif, in->netif->addr);
        return;
    }
    strbuf_printf(to, "the only IPv4 address of %s is link-local, and NCCL would prefer it to %s",
                  in->netif->netif, in->netif->addr);
}

/* ---- RDMA devices ---- */

/* Whether RDMA devices matter for this job, and whether enough is known to decide about them. */
static enum rule_verdict when_rdma(const struct env_input *in) {
    if (in->n_nodes <= 1 || in->topology == NULL || !rule_has_gpus(in) ||
        rule_is_on(in, "NCCL_IB_DISABLE"))
        return RULE_NO;
    return rule_tuner(in) != NULL ? RULE_REFUSES : RULE_YES;
}

static bool is_used(const struct topo_nic *n, const struct topo_port *p) {
    return n->kind == TOPO_NIC_RDMA && p->state == TOPO_PORT_ACTIVE;
}

/* The properties of a port that decide whether it belongs to the GPUs' set. */
struct port_kind {
    enum topo_link_layer layer;
    uint64_t rate_mbps;
};

struct hca_sets {
    bool paired[TOPO_NICS_MAX]; /* it serves a GPU by NCCL's rules, or is beside one */
    struct port_kind kinds[TOPO_NICS_MAX];
    uint32_t n_kinds; /* kinds of the ports of paired NICs */
    bool known;       /* rate and layer are known for all of them */
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

static void add_kind(struct hca_sets *s, const struct topo_port *p) {
    s->known = s->known && p->rate_mbps > 0 && p->link_layer != TOPO_LINK_UNKNOWN;
    for (uint32_t i = 0; i < s->n_kinds; i++)
        if (s->kinds[i].layer == p->link_layer && s->kinds[i].rate_mbps == p->rate_mbps)
            return;
    if (s->n_kinds < ARRAY_SIZE(s->kinds))
        s->kinds[s->n_kinds++] = (struct port_kind){p->link_layer, p->rate_mbps};
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
    if (s->paired[nic] || p->rate_mbps == 0 || p->link_layer == TOPO_LINK_UNKNOWN)
        return false;
    for (uint32_t i = 0; i < s->n_kinds; i++)
        if (s->kinds[i].layer == p->link_layer && s->kinds[i].rate_mbps == p->rate_mbps)
            return false;
    return true;
}

static void write_port(const struct topo_nic *n, const struct topo_port *p, struct strbuf *to) {
    strbuf_printf(to, "%s%s", to->len > 0 && to->data[to->len - 1] != '=' ? "," : "", n->name);
    if (n->n_ports > 1)
        strbuf_printf(to, ":%u", p->number);
}

/* Writes each used port to one of the two lists, foreign or kept, in order. */
static void split_ports(const struct env_input *in, const struct hca_sets *s, struct strbuf *kept,
                        uint32_t *ret_kept, struct strbuf *foreign) {
    const struct topology *t = in->topology;
    *ret_kept = 0;
    for (uint32_t i = 0; i < t->n_nics; i++) {
        const struct topo_nic *n = &t->nics[i];
        for (uint32_t k = 0; k < n->n_ports; k++) {
            const struct topo_port *p = &n->ports[k];
            if (!is_used(n, p))
                continue;
            bool out = is_foreign(s, i, p);
            write_port(n, p, out ? foreign : kept);
            *ret_kept += !out;
            if (out)
                strbuf_printf(foreign, " (%s, %.4g Gb/s)",
                              p->link_layer == TOPO_LINK_ETHERNET ? "Ethernet" : "InfiniBand",
                              (double)p->rate_mbps / 1000);
        }
    }
}

static bool hca_split(const struct env_input *in, struct strbuf *kept, struct strbuf *foreign,
                      struct hca_sets *s) {
    uint32_t n_kept = 0;
    hca_sets_make(in, s);
    if (s->n_kinds == 0 || !s->known)
        return false;
    split_ports(in, s, kept, &n_kept, foreign);
    return foreign->len > 0 && n_kept > 0 && n_kept <= HCAS_MAX;
}

static enum rule_verdict when_ib_hca(const struct env_input *in) {
    enum rule_verdict v = when_rdma(in);
    if (v == RULE_NO || in->graph == NULL)
        return RULE_NO;
    _cleanup_(strbuf_fini) struct strbuf kept = {0}, foreign = {0};
    struct hca_sets s;
    return hca_split(in, &kept, &foreign, &s) ? v : RULE_NO;
}

static void value_ib_hca(const struct env_input *in, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf foreign = {0};
    struct hca_sets s;
    strbuf_add_char(to, '=');
    (void)hca_split(in, to, &foreign, &s);
}

static void reason_tuner(const struct env_input *in, struct strbuf *to) {
    strbuf_printf(to, "%s tunes NCCL here", rule_tuner(in));
}

static void reason_ib_hca(const struct env_input *in, struct strbuf *to) {
    if (rule_tuner(in) != NULL) {
        reason_tuner(in, to);
        return;
    }
    _cleanup_(strbuf_fini) struct strbuf kept = {0}, foreign = {0};
    struct hca_sets s;
    (void)hca_split(in, &kept, &foreign, &s);
    strbuf_printf(to, "leaves out %s, unlike those that serve the GPUs (", strbuf_text(&foreign));
    for (uint32_t i = 0; i < s.n_kinds; i++)
        strbuf_printf(to, "%s%s, %.4g Gb/s", i > 0 ? "; " : "",
                      s.kinds[i].layer == TOPO_LINK_ETHERNET ? "Ethernet" : "InfiniBand",
                      (double)s.kinds[i].rate_mbps / 1000);
    strbuf_add(to, "): most likely for storage or management");
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
};

static void roce_add(struct roce *r, const struct topo_nic *n, const struct topo_port *p) {
    const struct topo_gid *v4 = find_gid(p, true), *v6 = find_gid(p, false);
    const struct topo_gid *g = v4 != NULL ? v4 : v6;
    r->all_v4 = r->all_v4 && v4 != NULL;
    r->any_v4 = r->any_v4 || v4 != NULL;
    r->all_v6 = r->all_v6 && v6 != NULL;
    if (r->ports++ == 0) {
        r->index = g != NULL ? g->index : 0;
        r->first = n->name;
    } else if (r->same && g != NULL && g->index != r->index) {
        r->same = false;
        r->other = n->name;
        r->other_index = g->index;
    }
}

static void roce_discover(const struct env_input *in, struct roce *r) {
    const struct topology *t = in->topology;
    *r = (struct roce){.all_v4 = true, .all_v6 = true, .same = true};
    for (uint32_t i = 0; i < t->n_nics; i++)
        for (uint32_t k = 0; k < t->nics[i].n_ports; k++) {
            const struct topo_port *p = &t->nics[i].ports[k];
            if (is_used(&t->nics[i], p) && p->link_layer == TOPO_LINK_ETHERNET && p->n_gids > 0)
                roce_add(r, &t->nics[i], p);
        }
}

static enum rule_verdict when_gid_index(const struct env_input *in) {
    uint32_t version = rule_nccl_version(in);
    enum rule_verdict v = when_rdma(in);
    if (v == RULE_NO || version == 0 || version >= GID_DYNAMIC_SINCE)
        return RULE_NO;
    struct roce r;
    roce_discover(in, &r);
    if (r.ports == 0 || !(r.all_v4 || (r.all_v6 && !r.any_v4)))
        return RULE_NO;
    return r.same ? v : RULE_REFUSES;
}

static void value_gid_index(const struct env_input *in, struct strbuf *to) {
    struct roce r;
    roce_discover(in, &r);
    strbuf_printf(to, "%u", r.index);
}

static void reason_gid_index(const struct env_input *in, struct strbuf *to) {
    struct roce r;
    roce_discover(in, &r);
    uint32_t v = rule_nccl_version(in);
    if (rule_tuner(in) != NULL)
        reason_tuner(in, to);
    else if (!r.same)
        strbuf_printf(to,
                      "no index fits all HCAs: it is %u on %s and %u on %s; NCCL 2.21 and newer "
                      "find the index themselves",
                      r.index, r.first, r.other_index, r.other);
    else
        strbuf_printf(to,
                      "NCCL %u.%u does not find the RoCE v2 GID of IPv%s itself; here it has this "
                      "index on each HCA",
                      v / 10000, v / 100 % 100, r.all_v4 ? "4" : "6");
}

static enum rule_verdict when_addr_family(const struct env_input *in) {
    uint32_t version = rule_nccl_version(in);
    enum rule_verdict v = when_rdma(in);
    if (v == RULE_NO || (version != 0 && version < GID_DYNAMIC_SINCE))
        return RULE_NO;
    struct roce r;
    roce_discover(in, &r);
    return r.ports > 0 && r.all_v6 && !r.any_v4 ? v : RULE_NO;
}

static void reason_addr_family(const struct env_input *in, struct strbuf *to) {
    if (rule_tuner(in) != NULL)
        reason_tuner(in, to);
    else
        strbuf_add(to, "no HCA has a RoCE v2 GID of IPv4, but NCCL uses IPv4 by default");
}

/* ---- the table ---- */

static const struct env_rule rules[] = {
    {"NCCL_SOCKET_IFNAME", RULE_MINIMAL, when_netif, .value = value_netif_exact,
     .reason = reason_netif,
     .source = RULE_GUIDE "NCCL_SOCKET_IFNAME (= is an exact name); NVIDIA/nccl#286"},
    {"GLOO_SOCKET_IFNAME", RULE_MINIMAL, when_netif, .value = value_netif, .reason = reason_netif,
     .source = "PyTorch, torch.distributed (a plain name)"},
    {"TP_SOCKET_IFNAME", RULE_MINIMAL, when_netif, .value = value_netif, .reason = reason_netif,
     .source = "PyTorch, torch.distributed.rpc"},
    {"NCCL_SOCKET_FAMILY", RULE_MINIMAL, when_socket_family, .text = "AF_INET6",
     .reason = reason_socket_family, .source = RULE_GUIDE "NCCL_SOCKET_FAMILY"},
    {"UCX_NET_DEVICES", RULE_FULL, when_mpi, .value = value_netif, .reason = reason_mpi,
     .source = "OpenUCX, UCX_NET_DEVICES"},
    {"NCCL_IB_HCA", RULE_FULL, when_ib_hca, .value = value_ib_hca, .reason = reason_ib_hca,
     .source = RULE_GUIDE "NCCL_IB_HCA (= is an exact name)"},
    {"NCCL_IB_GID_INDEX", RULE_FULL, when_gid_index, .value = value_gid_index,
     .reason = reason_gid_index,
     .source = RULE_GUIDE "NCCL_IB_GID_INDEX; NCCL finds it itself since 2.21"},
    {"NCCL_IB_ADDR_FAMILY", RULE_FULL, when_addr_family, .text = "AF_INET6",
     .reason = reason_addr_family, .source = RULE_GUIDE "NCCL_IB_ADDR_FAMILY"},
};
const struct env_rules env_rules_net = {rules, ARRAY_SIZE(rules)};
