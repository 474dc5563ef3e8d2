/* Writes the file that NCCL would dump: the tree of nccl_graph, before Broadcom's switches are
 * merged. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "topology/nccl/nccl_graph_priv.h"
#include "topology/nccl/nccl_xml_priv.h"

struct writing {
    const struct nccl_graph *g;
    struct strbuf *to;
    uint32_t elements, depth;
};

static void begin(struct writing *w, const char *name) {
    for (uint32_t i = 0; i < w->depth; i++)
        strbuf_add(w->to, "  ");
    strbuf_printf(w->to, "<%s", name);
    w->elements++;
}
static void open_element(struct writing *w) {
    strbuf_add(w->to, ">\n");
    w->depth++;
}
static void close_element(struct writing *w, const char *name) {
    w->depth--;
    for (uint32_t i = 0; i < w->depth; i++)
        strbuf_add(w->to, "  ");
    strbuf_printf(w->to, "</%s>\n", name);
}
static void end_single(struct writing *w) { strbuf_add(w->to, "/>\n"); }

/* Names come from the machine. A quote in a name would end the value, and NCCL has no way to escape
 * it. */
static void attr_text(struct writing *w, const char *key, const char *value) {
    strbuf_printf(w->to, " %s=\"", key);
    size_t len = 0;
    for (const char *p = value; *p != '\0' && len < NCCL_XML_TEXT_MAX - 1; p++, len++)
        strbuf_add_char(w->to, *p == '"' ? '\'' : *p);
    strbuf_add_char(w->to, '"');
}

static void write_cpu(struct writing *w, const struct nccl_node *n) {
    const struct topology *t = w->g->t;
    const struct topo_numa *numa = topology_numa(t, n->numa);
    begin(w, "cpu");
    strbuf_printf(w->to, " numaid=\"%" PRId32 "\"", n->numa);
    if (numa != NULL && !cpuset_is_empty(&numa->cpus)) {
        _cleanup_(strbuf_fini) struct strbuf mask = {0};
        cpuset_write_mask(&numa->cpus, &mask);
        if (mask.len < NCCL_XML_TEXT_MAX - 1) /* NCCL could not read a longer one */
            attr_text(w, "affinity", strbuf_text(&mask));
    }
    if (t->arch[0] != '\0')
        attr_text(w, "arch",
                  strcmp(t->arch, "aarch64") == 0     ? "arm64"
                  : strncmp(t->arch, "ppc64", 5) == 0 ? "ppc64"
                                                      : t->arch);
    if (t->cpu_vendor[0] != '\0') {
        attr_text(w, "vendor", t->cpu_vendor);
        strbuf_printf(w->to, " familyid=\"%" PRIu32 "\" modelid=\"%" PRIu32 "\"", t->cpu_family,
                      t->cpu_model);
    }
}

static void write_pci(struct writing *w, const struct nccl_node *n) {
    const struct topology *t = w->g->t;
    const struct topo_pci *p = &t->pci[n->pci];
    char speed[32];
    uint32_t width;
    begin(w, "pci");
    attr_text(w, "busid", pci_addr_text(p->at).text);
    if (p->class_id != 0)
        strbuf_printf(w->to, " class=\"0x%06" PRIx32 "\"", p->class_id);
    if (p->vendor != 0)
        strbuf_printf(w->to,
                      " vendor=\"0x%04x\" device=\"0x%04x\" subsystem_vendor=\"0x%04x\" "
                      "subsystem_device=\"0x%04x\"",
                      p->vendor, p->device, p->subvendor, p->subdevice);
    nccl_pci_link(t, n->pci, speed, &width);
    if (n->host_bridge) { /* as in NCCL's dump */
        strbuf_add(w->to, " link_speed=\"\" link_width=\"0\"");
        return;
    }
    /* If it is not known, it is left out, so that NCCL asks the system. */
    if (speed[0] != '\0')
        attr_text(w, "link_speed", speed);
    if (width != 0)
        strbuf_printf(w->to, " link_width=\"%" PRIu32 "\"", width);
}

static void write_nvlink(struct writing *w, const struct topo_nvlink *l) {
    const struct topology *t = w->g->t;
    struct pci_addr_text target = {"fffffff:ff:ff.0"}; /* NCCL's text for an unknown target */
    if (l->c2c) {
        begin(w, "c2c");
        strbuf_printf(w->to, " bw=\"%.0f\" count=\"1\"", l->bandwidth * 1000.0);
        end_single(w);
        return;
    }
    if (l->end == TOPO_NVLINK_GPU)
        target = pci_addr_text(t->pci[t->gpus[l->peer].pci].at);
    begin(w, "nvlink");
    attr_text(w, "target", target.text);
    strbuf_printf(w->to, " count=\"%" PRIu32 "\"", l->count);
    attr_text(w, "tclass",
              l->end == TOPO_NVLINK_GPU      ? "0x030200"
              : l->end == TOPO_NVLINK_SWITCH ? "0x068000"
                                             : "0x068001");
    end_single(w);
}

static bool is_written(const struct writing *w, const struct topo_nvlink *l, uint32_t gpu) {
    const struct topology *t = w->g->t;
    if (l->gpu != gpu || (l->count == 0 && !l->c2c))
        return false;
    return l->end != TOPO_NVLINK_GPU || (l->peer < t->n_gpus && t->gpus[l->peer].pci < t->n_pci);
}

static void write_gpu(struct writing *w, uint32_t gpu) {
    const struct topology *t = w->g->t;
    const struct topo_gpu *p = &t->gpus[gpu];
    begin(w, "gpu");
    strbuf_printf(w->to, " dev=\"%" PRIu32 "\"", p->index);
    if (p->sm != 0)
        strbuf_printf(w->to, " sm=\"%" PRIu32 "\"", p->sm);
    strbuf_printf(w->to, " rank=\"%" PRId32 "\"", p->rank);
    if (p->gdr >= 0)
        strbuf_printf(w->to, " gdr=\"%" PRId32 "\"", p->gdr);
    uint32_t links = 0;
    for (uint32_t i = 0; i < t->n_nvlinks; i++)
        links += is_written(w, &t->nvlinks[i], gpu) ? 1 : 0;
    if (links == 0) {
        end_single(w);
        return;
    }
    open_element(w);
    for (uint32_t i = 0; i < t->n_nvlinks; i++)
        if (is_written(w, &t->nvlinks[i], gpu))
            write_nvlink(w, &t->nvlinks[i]);
    close_element(w, "gpu");
}

static void write_net(struct writing *w, const struct nccl_net *n, uint32_t dev) {
    const struct topo_nic *nic = n->nic != TOPO_NONE ? &w->g->t->nics[n->nic] : NULL;
    begin(w, "net");
    attr_text(w, "name", n->name);
    strbuf_printf(w->to, " dev=\"%" PRIu32 "\" latency=\"%g\"", dev,
                  nic != NULL ? nic->latency : 0.0);
    if (n->mbps != 0)
        strbuf_printf(w->to, " speed=\"%" PRIu64 "\"", MIN2(n->mbps, (uint64_t)INT32_MAX));
    int32_t port = nic == NULL ? 0 : nic->port >= 0 ? nic->port : 1;
    bool socket = nic == NULL || nic->kind == TOPO_NIC_SOCKET;
    strbuf_printf(w->to, " port=\"%" PRId32 "\" guid=\"0x%" PRIx64 "\" maxconn=\"%d\" gdr=\"%d\"",
                  port, nic != NULL ? nic->node_guid : dev, socket ? 65536 : 131072, n->gdr);
    if (nic != NULL && nic->keep)
        strbuf_add(w->to, " keep=\"1\"");
    end_single(w);
}

static void write_nic(struct writing *w, uint32_t node) {
    const struct nccl_graph *g = w->g;
    begin(w, "nic");
    open_element(w);
    for (uint32_t i = 0; i < g->n_places; i++)
        if (g->places[i].nic_node == node) {
            const struct nccl_net *n = &g->nets[g->places[i].net];
            write_net(w, n, g->t->source == TOPO_NCCL_XML ? n->dev : g->places[i].net);
        }
    close_element(w, "nic");
}

/* Opens the element of a node; an element with children stays open. */
static void enter(struct writing *w, uint32_t node) {
    const struct nccl_node *n = &w->g->nodes[node];
    if (n->kind == NCCL_NODE_CPU)
        write_cpu(w, n);
    else if (n->pci != TOPO_NONE)
        write_pci(w, n);
    if (n->kind == NCCL_NODE_CPU || n->pci != TOPO_NONE)
        open_element(w);
    if (n->kind == NCCL_NODE_GPU && n->pci != TOPO_NONE)
        write_gpu(w, n->index);
    if (n->kind == NCCL_NODE_NIC)
        write_nic(w, node);
}

static void leave(struct writing *w, uint32_t node) {
    const struct nccl_node *n = &w->g->nodes[node];
    if (n->kind == NCCL_NODE_CPU)
        close_element(w, "cpu");
    else if (n->pci != TOPO_NONE)
        close_element(w, "pci");
}

static void write_below(struct writing *w, uint32_t cpu) {
    const struct nccl_graph *g = w->g;
    for (uint32_t at = cpu;;) {
        enter(w, at);
        if (g->nodes[at].first_child != TOPO_NONE) {
            at = g->nodes[at].first_child;
            continue;
        }
        leave(w, at);
        while (at != cpu && g->nodes[at].next == TOPO_NONE) {
            at = g->nodes[at].parent;
            leave(w, at);
        }
        if (at == cpu)
            return;
        at = g->nodes[at].next;
    }
}

int nccl_xml_write(const struct topology *t, struct strbuf *to, struct err *err) {
    struct nccl_graph *g = NULL;
    int r = nccl_graph_new_tree(t, &g, err);
    if (r < 0)
        return r;
    size_t before = to->len;
    struct writing w = {.g = g, .to = to};
    begin(&w, "system");
    strbuf_add(to, " version=\"1\"");
    open_element(&w);
    for (uint32_t i = 0; i < g->n_cpus; i++)
        write_below(&w, g->cpus[i]);
    close_element(&w, "system");
    if (w.elements >= NCCL_XML_ELEMENTS_MAX) {
        r = err_set(err, -E2BIG, "%" PRIu32 " elements: NCCL reads %d at most", w.elements,
                    NCCL_XML_ELEMENTS_MAX - 1);
        to->len = before;
        to->data[before] = '\0';
    }
    nccl_graph_free(g);
    return r;
}
