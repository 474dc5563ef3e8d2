#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "topology/render/render_svg_priv.h"

struct lines {
    struct svg_line *list; /* [SVG_LINES_MAX] */
    unsigned n;
};

/* Long text gets smaller letters or a few lines; even longer text is cut when it is drawn. */
static void add(struct lines *l, int size, bool bold, bool dim, const char *text) {
    while (svg_text_width(text, size, bold) > SVG_CHIP_ROOM &&
           svg_text_width(text, SVG_TEXT_SMALL, bold) <= SVG_CHIP_ROOM)
        size--;
    for (int more = 2; *text != '\0' && l->n < SVG_LINES_MAX; more--) {
        struct svg_line *line = &l->list[l->n++];
        size_t len = more > 0 ? svg_text_break(text, size, bold, SVG_CHIP_ROOM) : strlen(text);
        *line = (struct svg_line){.size = size, .bold = bold, .dim = dim};
        (void)snprintf(line->text, sizeof line->text, "%.*s", (int)len, text);
        for (size_t end = strlen(line->text); end > 0 && line->text[end - 1] == ' '; end--)
            line->text[end - 1] = '\0';
        text += len;
    }
}

static void add_bus(struct lines *l, const struct topology *t, uint32_t pci, const char *more) {
    char bus[TOPO_BUSID_MAX], text[RENDER_TEXT_MAX];
    render_bus(t, pci, bus);
    (void)snprintf(text, sizeof text, "%s%s%.100s", bus,
                   bus[0] != '\0' && *more != '\0' ? " · " : "", more);
    add(l, SVG_TEXT_SMALL, false, true, text);
}

/* "H100 80GB HBM3" of "NVIDIA H100 80GB HBM3", "Instinct MI300A" of "Aqua Vanjaram [Instinct
 * MI300A]" (the form of chip and product in the PCI ids file). */
static void model_of(const struct topology *t, uint32_t gpu, char out[RENDER_TEXT_MAX]) {
    char name[RENDER_TEXT_MAX];
    render_gpu_name(t, gpu, name);
    const char *from = strncmp(name, "NVIDIA ", 7) == 0 ? name + 7 : name;
    const char *product = strchr(name, '['), *end = product == NULL ? NULL : strchr(product, ']');
    if (end != NULL && end > product + 1 && end[1] == '\0')
        (void)snprintf(out, RENDER_TEXT_MAX, "%.*s", (int)(end - product - 1), product + 1);
    else
        (void)snprintf(out, RENDER_TEXT_MAX, "%s", from);
}

/* Adds the links if GPUs differ in them: "NV1: GPU 1-2", "NV2: GPU 3,6". */
static void add_nvlinks(struct lines *l, const struct render_plan *p, uint32_t gpu) {
    uint32_t next = render_nvlinks_alike(&p->nvlinks) ? UINT32_MAX : 0, n;
    while (next < UINT32_MAX) {
        struct cpuset peers = {0};
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        n = next;
        next = UINT32_MAX;
        for (uint32_t i = 0; i < p->t->n_gpus; i++) {
            uint32_t links = i == gpu ? 0 : render_nvlinks(p->t, gpu, i);
            if (links == n)
                cpuset_add(&peers, p->t->gpus[i].index);
            else if (links > n)
                next = MIN2(next, links);
        }
        strbuf_printf(&text, "NV%" PRIu32 ": GPU ", n);
        cpuset_write_list(&peers, &text);
        if (n > 0)
            add(l, SVG_TEXT_SMALL, false, true, strbuf_text(&text));
    }
}

static void add_net(struct lines *l, const struct nccl_prediction *n) {
    char net[RENDER_TEXT_MAX], text[RENDER_TEXT_MAX];
    if (n->n_nets == 0) {
        add(l, SVG_TEXT_BODY, false, true, "no NIC serves it");
        return;
    }
    render_clean(net, 200, n->nets[0], true);
    int len = snprintf(text, sizeof text, "→ %.200s", net);
    if (n->n_nets > 1 && len > 0)
        (void)snprintf(text + len, sizeof text - (size_t)len, " +%" PRIu32, n->n_nets - 1);
    add(l, SVG_TEXT_BODY, true, false, text);
    (void)snprintf(text, sizeof text, "%s · %.1f GB/s", nccl_path_name(n->path), n->bandwidth);
    add(l, SVG_TEXT_BODY, true, false, text);
}

static void gpu_lines(const struct render_plan *p, uint32_t gpu, struct lines *l) {
    const struct topo_gpu *g = &p->t->gpus[gpu];
    char text[RENDER_TEXT_MAX];
    render_gpu_label(p->t, gpu, text);
    add(l, SVG_TEXT_HEAD, true, false, text);
    model_of(p->t, gpu, text);
    add(l, SVG_TEXT_BODY, false, true, text);
    add_nvlinks(l, p, gpu);
    if (g->lost)
        add(l, SVG_TEXT_BODY, true, false, "LOST");
    else if (g->mig && g->n_mig > 0)
        (void)snprintf(text, sizeof text, "MIG: %" PRIu32 " device%s", g->n_mig,
                       g->n_mig > 1 ? "s" : "");
    else
        (void)snprintf(text, sizeof text, "MIG");
    if (!g->lost && g->mig)
        add(l, SVG_TEXT_BODY, true, false, text);
    if (p->any_net)
        add_net(l, &p->predictions[gpu]);
}

static void nic_lines(const struct render_plan *p, const struct render_shape *s, struct lines *l) {
    const struct topo_nic *nic = &p->t->nics[s->index];
    char text[RENDER_TEXT_MAX], netdev[TOPO_NAME_MAX];
    render_range(p->t, s, " … ", text);
    add(l, SVG_TEXT_HEAD, true, false, text);
    render_nic_link(nic, text);
    add(l, SVG_TEXT_BODY, false, true, s->count > 1 ? "virtual functions" : text);
    render_clean(netdev, sizeof netdev, nic->netdev, true);
    add_bus(l, p->t, nic->pci, strcmp(netdev, nic->name) == 0 ? "" : netdev);
    render_nic_why_not(nic, text);
    add(l, SVG_TEXT_SMALL, true, true, text);
}

static void netif_lines(const struct render_plan *p, const struct render_shape *s,
                        struct lines *l) {
    const struct topo_netif *n = &p->t->netifs[s->index];
    bool physical = n->kind == TOPO_NETIF_PHYSICAL;
    char text[RENDER_TEXT_MAX], driver[TOPO_NAME_MAX];
    render_range(p->t, s, " … ", text);
    add(l, SVG_TEXT_HEAD, true, false, text);
    if (n->speed_mbps > 0)
        (void)snprintf(text, sizeof text, "%.4g Gb/s Ethernet", (double)n->speed_mbps / 1000);
    else
        (void)snprintf(text, sizeof text, "interface%s%s", physical ? "" : ", ",
                       physical ? "" : topo_netif_kind_names[n->kind]);
    add(l, SVG_TEXT_BODY, false, true, text);
    render_clean(driver, sizeof driver, n->driver, true);
    add_bus(l, p->t, n->pci, driver);
}

unsigned svg_device_lines(const struct render_plan *p, const struct render_shape *s,
                          struct svg_line ret[SVG_LINES_MAX]) {
    struct lines l = {ret, 0};
    if (s->kind == RENDER_GPU)
        gpu_lines(p, s->index, &l);
    else if (s->kind == RENDER_NIC)
        nic_lines(p, s, &l);
    else
        netif_lines(p, s, &l);
    return l.n;
}

int svg_device_height(const struct render_plan *p, const struct render_shape *s) {
    struct svg_line lines[SVG_LINES_MAX];
    return (int)svg_device_lines(p, s, lines) * SVG_LINE + 12;
}
