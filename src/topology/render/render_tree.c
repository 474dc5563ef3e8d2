#include <inttypes.h>

#include "base/text/utf8.h"
#include "topology/render/render_plan.h"

#define DEPTH_MAX 32 /* machine, package, NUMA node, host bridge, 8 switches, device */

struct glyphs {
    const char *branch, *last, *line, *blank, *arrow, *dots;
};
static const struct glyphs plain = {"|- ", "`- ", "|  ", "   ", "->", " ... "};
static const struct glyphs drawn = {"├─ ", "└─ ", "│  ", "   ", "→", " … "};

static void add_machine(const struct topology *t, struct strbuf *to) {
    struct render_text host = render_clean(t->host, false), from = render_clean(t->from, false);
    _cleanup_(strbuf_fini) struct strbuf counts = {0};
    strbuf_add(to, *host.text != '\0' ? host.text : *from.text != '\0' ? from.text : "this node");
    if (*host.text != '\0' && *from.text != '\0')
        strbuf_printf(to, " (%s)", from.text);
    render_count(&counts, t->packages, "package");
    render_count(&counts, t->n_numa, "NUMA node");
    render_count(&counts, cpuset_count(&t->allowed), "CPU");
    render_count(&counts, t->n_gpus, "GPU");
    render_count(&counts, t->n_nics, "NIC");
    if (counts.len > 0)
        strbuf_printf(to, ": %s", strbuf_text(&counts));
}

static void add_word(struct strbuf *to, const char *word) {
    if (*word != '\0')
        strbuf_printf(to, "  %s", word);
}

static void add_gpu(const struct render_plan *p, uint32_t i, const struct glyphs *g,
                    struct strbuf *to) {
    strbuf_add(to, render_gpu_label(p->t, i).text);
    add_word(to, render_bus(p->t, p->t->gpus[i].pci).text);
    add_word(to, render_gpu_name(p->t, i).text);
    if (p->t->gpus[i].lost || p->t->gpus[i].mig)
        add_word(to, p->t->gpus[i].lost ? "LOST" : "MIG");
    if (p->predictions == NULL)
        return;
    const struct nccl_prediction *x = &p->predictions[i];
    if (x->n_nets > 0)
        strbuf_printf(to, "  %s %s (%s, %.1f GB/s)", g->arrow, render_nets(x).text,
                      nccl_path_name(x->path), x->bandwidth);
    else
        strbuf_printf(to, "  %s no NIC", g->arrow);
}

static void add_nic(const struct render_plan *p, const struct render_shape *s,
                    const struct glyphs *g, struct strbuf *to) {
    const struct topo_nic *nic = &p->t->nics[s->index];
    strbuf_add(to, render_range(p->t, s, g->dots).text);
    add_word(to, render_bus(p->t, nic->pci).text);
    add_word(to, render_nic_link(nic).text);
    if (s->count == 1)
        add_word(to, render_clean(nic->netdev, true).text);
    if (nic->virtual_function)
        add_word(to, s->count > 1 ? "virtual functions" : "virtual function");
    add_word(to, render_nic_why_not(nic).text);
}

static void add_netif(const struct render_plan *p, const struct render_shape *s,
                      const struct glyphs *g, struct strbuf *to) {
    const struct topo_netif *n = &p->t->netifs[s->index];
    strbuf_add(to, render_range(p->t, s, g->dots).text);
    add_word(to, render_bus(p->t, n->pci).text);
    if (n->speed_mbps > 0)
        strbuf_printf(to, "  %.4g Gb/s", (double)n->speed_mbps / 1000);
    strbuf_add(to, n->kind == TOPO_NETIF_PHYSICAL ? "  interface" : "  interface, ");
    if (n->kind != TOPO_NETIF_PHYSICAL)
        strbuf_add(to, topo_netif_kind_names[n->kind]);
}

static void add_entry(const struct render_plan *p, const struct render_shape *s,
                      const struct glyphs *g, struct strbuf *to) {
    switch (s->kind) {
    case RENDER_MACHINE: add_machine(p->t, to); return;
    case RENDER_PACKAGE: strbuf_printf(to, "package %" PRIu32, s->index); return;
    case RENDER_NUMA: break;
    case RENDER_HOST:
        strbuf_printf(to, "host bridge %04" PRIx32 ":%02x", s->root.domain, s->root.bus);
        return;
    case RENDER_SWITCH:
        strbuf_add(to, render_switch_name(&p->t->pci[s->index]));
        add_word(to, render_bus(p->t, s->index).text);
        add_word(to, render_pci_link(&p->t->pci[s->index]).text);
        return;
    case RENDER_GPU: add_gpu(p, s->index, g, to); return;
    case RENDER_NIC: add_nic(p, s, g, to); return;
    case RENDER_NETIF: add_netif(p, s, g, to); return;
    }
    assert_not_reached();
}

static bool is_bare_numa(const struct render_shape *s) {
    return s->kind == RENDER_NUMA && s->children == 0 && s->index != TOPO_NONE;
}

/* The last of the NUMA nodes from i on that differ only in their numbers. */
static uint32_t last_alike(const struct render_plan *p, uint32_t i) {
    const struct render_shape *s = &p->shapes[i];
    if (!is_bare_numa(s))
        return i;
    const struct topo_numa *a = &p->t->numa[s->index];
    for (; s->next != TOPO_NONE; i = s->next, s = &p->shapes[i]) {
        const struct render_shape *next = &p->shapes[s->next];
        if (!is_bare_numa(next))
            break;
        const struct topo_numa *b = &p->t->numa[next->index];
        if (cpuset_count(&a->cpus) != cpuset_count(&b->cpus) || a->gpu_memory != b->gpu_memory)
            break;
    }
    return i;
}

/* The nodes from first to last, which are alike. */
static void add_numas(const struct render_plan *p, uint32_t first, uint32_t last,
                      struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf numbers = {0}, list = {0};
    struct cpuset nodes = {0}, cpus = {0};
    const bool one = first == last;
    if (p->shapes[first].index == TOPO_NONE) {
        strbuf_add(to, "NUMA node not known");
        return;
    }
    const struct topo_numa *n = &p->t->numa[p->shapes[first].index];
    for (uint32_t i = first;; i = p->shapes[i].next) {
        const struct topo_numa *x = &p->t->numa[p->shapes[i].index];
        cpuset_add(&nodes, (uint32_t)MAX2(x->index, 0));
        cpuset_or(&cpus, &x->cpus);
        if (i == last)
            break;
    }
    cpuset_write_list(&nodes, &numbers);
    cpuset_write_list(&cpus, &list);
    strbuf_printf(to, "NUMA node%s %s: ", one ? "" : "s", strbuf_text(&numbers));
    if (n->gpu_memory)
        strbuf_add(to, one ? render_gpu_memory(p->t, n->index).text : "memory of GPUs");
    else
        strbuf_printf(to, "%s%s", list.len > 0 ? "CPUs " : "no CPUs", strbuf_text(&list));
    if (!one && !n->gpu_memory && list.len > 0)
        strbuf_printf(to, ", %" PRIu32 " each", cpuset_count(&n->cpus));
    if (one && n->bytes > 0)
        strbuf_printf(to, ", %s", render_bytes(n->bytes).text);
}

static void add_branches(const struct render_plan *p, uint32_t shape, uint32_t last,
                         const struct glyphs *g, struct strbuf *to) {
    const char *parts[DEPTH_MAX];
    size_t n = 0;
    if (shape == 0)
        return;
    parts[n++] = p->shapes[last].next == TOPO_NONE ? g->last : g->branch;
    for (uint32_t i = p->shapes[shape].parent; i != 0 && n < DEPTH_MAX; i = p->shapes[i].parent)
        parts[n++] = p->shapes[i].next == TOPO_NONE ? g->blank : g->line;
    while (n > 0)
        strbuf_add(to, parts[--n]);
}

/* Adds a line, and cuts what does not fit in `width` columns. */
static void add_line(const char *text, uint32_t width, bool utf8, struct strbuf *to) {
    const char *dots = utf8 ? "…" : "...";
    uint32_t room = utf8 ? 1 : 3, n = 0;
    size_t cut = 0, at = 0;
    for (size_t len; (len = utf8_char(text + at)) > 0; at += len, n++)
        if (n + room <= width)
            cut = at;
    if (width == 0 || n <= width) {
        strbuf_printf(to, "%s\n", text);
        return;
    }
    strbuf_add_bytes(to, text, cut);
    strbuf_printf(to, "%s\n", dots);
}

void render_tree(const struct topology *t, const struct nccl_graph *g, uint32_t width, bool utf8,
                 struct strbuf *to) {
    const struct glyphs *glyphs = utf8 ? &drawn : &plain;
    _cleanup_(render_plan_fini) struct render_plan plan;
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    render_plan_init(t, g, &plan);
    for (uint32_t i = 0; i != TOPO_NONE; i = render_plan_next(&plan, i)) {
        uint32_t last = last_alike(&plan, i);
        strbuf_clear(&line);
        add_branches(&plan, i, last, glyphs, &line);
        if (plan.shapes[i].kind == RENDER_NUMA)
            add_numas(&plan, i, last, &line);
        else
            add_entry(&plan, &plan.shapes[i], glyphs, &line);
        add_line(strbuf_text(&line), width, utf8, to);
        i = last;
    }
    strbuf_clear(&line);
    render_domain(t, &line);
    if (line.len > 0)
        add_line(strbuf_text(&line), width, utf8, to);
}
