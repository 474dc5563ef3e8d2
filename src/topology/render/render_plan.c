#include "topology/render/render_plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "topology/model/distance.h"

#define SWITCHES_MAX 8 /* nested; deeper devices are shown in the last one */

static uint32_t add(struct render_plan *p, uint32_t parent, enum render_kind kind, uint32_t index,
                    struct pci_addr root) {
    p->shapes = xgrow(p->shapes, p->n, sizeof *p->shapes);
    uint32_t i = p->n++;
    p->shapes[i] = (struct render_shape){.kind = kind,
                                         .index = index,
                                         .root = root,
                                         .count = 1,
                                         .parent = parent,
                                         .first = TOPO_NONE,
                                         .last = TOPO_NONE,
                                         .next = TOPO_NONE};
    if (parent == TOPO_NONE)
        return i;
    struct render_shape *above = &p->shapes[parent];
    if (above->last == TOPO_NONE)
        above->first = i;
    else
        p->shapes[above->last].next = i;
    above->last = i;
    above->children++;
    return i;
}

static uint32_t find_or_add(struct render_plan *p, uint32_t parent, enum render_kind kind,
                            uint32_t index, struct pci_addr root) {
    for (uint32_t i = p->shapes[parent].first; i != TOPO_NONE; i = p->shapes[i].next) {
        const struct render_shape *s = &p->shapes[i];
        if (s->kind == kind && s->index == index && pci_addr_compare(s->root, root) == 0)
            return i;
    }
    return add(p, parent, kind, index, root);
}

static const struct pci_addr nowhere;

static void add_numa(struct render_plan *p) {
    for (uint32_t i = 0; i < p->t->n_numa; i++) {
        int32_t package = p->t->numa[i].package;
        uint32_t parent =
            package < 0 ? 0 : find_or_add(p, 0, RENDER_PACKAGE, (uint32_t)package, nowhere);
        (void)add(p, parent, RENDER_NUMA, i, nowhere);
    }
}

static uint32_t numa_shape(struct render_plan *p, int32_t numa) {
    for (uint32_t i = 0; i < p->n; i++) {
        const struct render_shape *s = &p->shapes[i];
        if (s->kind == RENDER_NUMA && numa >= 0 && s->index != TOPO_NONE &&
            p->t->numa[s->index].index == numa)
            return i;
    }
    /* If it is not known, the place is the whole machine: its only node, or none. */
    for (uint32_t i = 0; i < p->n && p->t->n_numa == 1; i++)
        if (p->shapes[i].kind == RENDER_NUMA)
            return i;
    return p->t->n_numa == 0 ? 0 : find_or_add(p, 0, RENDER_NUMA, TOPO_NONE, nowhere);
}

/* A complete tree is root port, upstream port, downstream port, upstream port, … Upstream ports
 * represent the switches. An NCCL file has only these. place: from the outside. */
static bool is_switch(const struct topology *t, uint32_t outermost, uint32_t place) {
    const struct topo_pci *top = &t->pci[outermost];
    bool whole = t->source != TOPO_NCCL_XML && top->at.domain == top->root.domain &&
                 top->at.bus == top->root.bus;
    return !whole || place % 2 == 1;
}

static uint32_t place_below(struct render_plan *p, uint32_t pci, int32_t numa) {
    const struct topology *t = p->t;
    uint32_t parent = numa_shape(p, numa);
    if (pci >= t->n_pci)
        return parent;
    uint32_t chain[TOPO_CHAIN_MAX], n = topology_chain(t, pci, chain), depth = 0;
    struct pci_addr root = t->pci[pci].root;
    if (t->source != TOPO_NCCL_XML)
        parent = find_or_add(p, parent, RENDER_HOST, 0, root);
    for (uint32_t i = 0; i < n && depth < SWITCHES_MAX; i++)
        if (is_switch(t, chain[n - 1], i)) {
            parent = find_or_add(p, parent, RENDER_SWITCH, chain[n - 1 - i], nowhere);
            depth++;
        }
    return parent;
}

/* There can be dozens of virtual functions. They are shown as one, except those that are used. */
static bool nic_goes_with(const struct render_plan *p, uint32_t before, uint32_t i) {
    const struct topo_nic *a = &p->t->nics[before], *b = &p->t->nics[i];
    return a->virtual_function && b->virtual_function && !p->nic_chosen[before] &&
           !p->nic_chosen[i] && topo_nic_state(a) == topo_nic_state(b);
}

static bool netif_goes_with(const struct render_plan *p, uint32_t before, uint32_t i) {
    const struct topo_netif *a = &p->t->netifs[before], *b = &p->t->netifs[i];
    return !p->netif_chosen[before] && !p->netif_chosen[i] && !a->running && !b->running;
}

static void add_device(struct render_plan *p, enum render_kind kind, uint32_t i, uint32_t pci,
                       int32_t numa) {
    uint32_t parent = place_below(p, pci, numa), last = p->shapes[parent].last;
    struct render_shape *s = last == TOPO_NONE ? NULL : &p->shapes[last];
    if (s != NULL && s->kind == kind && s->index + s->count == i &&
        ((kind == RENDER_NIC && nic_goes_with(p, i - 1, i)) ||
         (kind == RENDER_NETIF && netif_goes_with(p, i - 1, i))))
        s->count++;
    else
        (void)add(p, parent, kind, i, nowhere);
}

/* Interfaces of cards that are not RDMA devices, and those that NCCL would use. */
static bool shows_netif(const struct render_plan *p, uint32_t i) {
    const struct topo_netif *n = &p->t->netifs[i];
    return p->netif_chosen[i] ||
           (n->kind == TOPO_NETIF_PHYSICAL && n->pci < p->t->n_pci && n->nic[0] == '\0');
}

/* Adds devices in the order of PCI addresses, so devices below one switch keep their order;
 * TOPO_NONE (no PCI device) comes last. */
static void add_devices_of(struct render_plan *p, uint32_t pci) {
    const struct topology *t = p->t;
    bool last = pci == t->n_pci;
    for (uint32_t i = 0; i < t->n_gpus; i++)
        if (t->gpus[i].pci == pci || (last && t->gpus[i].pci > pci))
            add_device(p, RENDER_GPU, i, t->gpus[i].pci, t->gpus[i].numa);
    for (uint32_t i = 0; i < t->n_nics; i++)
        if (t->nics[i].pci == pci || (last && t->nics[i].pci > pci))
            add_device(p, RENDER_NIC, i, t->nics[i].pci, t->nics[i].numa);
    for (uint32_t i = 0; i < t->n_netifs; i++)
        if ((t->netifs[i].pci == pci || (last && t->netifs[i].pci > pci)) && shows_netif(p, i))
            add_device(p, RENDER_NETIF, i, t->netifs[i].pci, t->netifs[i].numa);
}

/* A host bridge with one child is not informative: the child takes its place. */
static void drop_lone_hosts(struct render_plan *p) {
    for (uint32_t i = 0; i < p->n; i++) {
        struct render_shape *above = &p->shapes[i];
        uint32_t *link = &above->first;
        for (; *link != TOPO_NONE; link = &p->shapes[*link].next) {
            struct render_shape *host = &p->shapes[*link];
            if (host->kind != RENDER_HOST || host->children != 1)
                continue;
            struct render_shape *child = &p->shapes[host->first];
            child->parent = i;
            child->next = host->next;
            if (above->last == *link)
                above->last = host->first;
            *link = host->first;
        }
    }
}

static void choose_part(struct render_plan *p, const char *name) {
    uint32_t nic = topology_find_nic(p->t, name), netif = topology_find_netif(p->t, name);
    if (nic != TOPO_NONE)
        p->nic_chosen[nic] = true;
    else if (netif != TOPO_NONE)
        p->netif_chosen[netif] = true;
}

/* The next name of "mlx5_0+mlx5_1". */
static bool next_part(const char **net, char out[TOPO_NAME_MAX]) {
    size_t n = strcspn(*net, "+");
    if (n == 0)
        return false;
    (void)snprintf(out, TOPO_NAME_MAX, "%.*s", (int)n, *net);
    *net += n + ((*net)[n] == '+');
    return true;
}

static void predict(struct render_plan *p, const struct nccl_graph *g) {
    const struct topology *t = p->t;
    p->nic_chosen = xcalloc(t->n_nics, sizeof *p->nic_chosen);
    p->netif_chosen = xcalloc(t->n_netifs, sizeof *p->netif_chosen);
    if (g == NULL)
        return;
    char part[TOPO_NAME_MAX];
    p->predictions = xcalloc(t->n_gpus, sizeof *p->predictions);
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        struct nccl_prediction *x = &p->predictions[i];
        nccl_graph_predict(g, i, x);
        p->any_net = p->any_net || x->n_nets > 0;
        for (uint32_t n = 0; n < x->n_nets; n++)
            for (const char *net = x->nets[n]; next_part(&net, part);)
                choose_part(p, part);
    }
}

static uint32_t find_near(const struct topology *t, const char *name, int32_t numa) {
    for (uint32_t i = 0; i < t->n_nics; i++)
        if (t->nics[i].numa == numa && strcmp(t->nics[i].name, name) == 0)
            return i;
    return topology_find_nic(t, name);
}

void render_plan_each_net(const struct render_plan *p, uint32_t gpu, const char *net,
                          void (*on_shape)(void *arg, uint32_t shape), void *arg) {
    char part[TOPO_NAME_MAX];
    while (next_part(&net, part)) {
        uint32_t nic = find_near(p->t, part, p->t->gpus[gpu].numa);
        uint32_t netif = topology_find_netif(p->t, part);
        for (uint32_t i = 0; i < p->n; i++) {
            const struct render_shape *s = &p->shapes[i];
            uint32_t wanted = s->kind == RENDER_NIC                         ? nic
                              : s->kind == RENDER_NETIF && nic == TOPO_NONE ? netif
                                                                            : TOPO_NONE;
            if (wanted != TOPO_NONE && wanted >= s->index && wanted < s->index + s->count) {
                on_shape(arg, i);
                break;
            }
        }
    }
}

uint32_t render_nvlinks(const struct topology *t, uint32_t a, uint32_t b) {
    return distance_between(t, a, b).nvlinks;
}

static void sum_nvlinks(const struct topology *t, struct render_nvlinks *s) {
    *s = (struct render_nvlinks){.least = UINT32_MAX};
    for (uint32_t a = 0; a < t->n_gpus; a++)
        for (uint32_t b = a + 1; b < t->n_gpus; b++) {
            uint32_t n = render_nvlinks(t, a, b);
            s->pairs++;
            s->joined += n > 0;
            s->least = n > 0 ? MIN2(s->least, n) : s->least;
            s->most = MAX2(s->most, n);
        }
}

void render_plan_init(const struct topology *t, const struct nccl_graph *g,
                      struct render_plan *ret) {
    *ret = (struct render_plan){.t = t};
    predict(ret, g);
    sum_nvlinks(t, &ret->nvlinks);
    (void)add(ret, TOPO_NONE, RENDER_MACHINE, 0, nowhere);
    add_numa(ret);
    for (uint32_t i = 0; i <= t->n_pci; i++)
        add_devices_of(ret, i);
    drop_lone_hosts(ret);
}

void render_plan_fini(struct render_plan *p) {
    free(p->shapes);
    free(p->predictions);
    free(p->nic_chosen);
    free(p->netif_chosen);
    *p = (struct render_plan){0};
}

uint32_t render_plan_next(const struct render_plan *p, uint32_t i) {
    if (p->shapes[i].first != TOPO_NONE)
        return p->shapes[i].first;
    while (i != TOPO_NONE && p->shapes[i].next == TOPO_NONE)
        i = p->shapes[i].parent;
    return i == TOPO_NONE ? TOPO_NONE : p->shapes[i].next;
}

struct render_text render_words(const char *fmt, ...) {
    struct render_text out;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(out.text, sizeof out.text, fmt, ap);
    va_end(ap);
    return out;
}

struct render_text render_clean(const char *in, bool blanks) {
    struct render_text out;
    utf8_copy_line(out.text, sizeof out.text, in);
    for (char *p = out.text; blanks && (p = strchr(p, ' ')) != NULL;)
        *p = '?';
    return out;
}

struct render_text render_gpu_label(const struct topology *t, uint32_t gpu) {
    return render_words("GPU%" PRIu32, t->gpus[gpu].index);
}

struct render_text render_gpu_name(const struct topology *t, uint32_t gpu) {
    static const char *const vendors[] = {[TOPO_VENDOR_OTHER] = "GPU",
                                          [TOPO_VENDOR_NVIDIA] = "NVIDIA GPU",
                                          [TOPO_VENDOR_AMD] = "AMD GPU",
                                          [TOPO_VENDOR_INTEL] = "Intel GPU"};
    const struct topo_gpu *g = &t->gpus[gpu];
    if (g->name[0] != '\0')
        return render_clean(g->name, false);
    if (g->pci < t->n_pci && t->pci[g->pci].device != 0)
        return render_words("%s %04x:%04x", vendors[g->vendor], t->pci[g->pci].vendor,
                            t->pci[g->pci].device);
    return render_words("%s", vendors[g->vendor]);
}

struct render_text render_bus(const struct topology *t, uint32_t pci) {
    return render_words("%s", pci < t->n_pci ? pci_addr_text(t->pci[pci].at).text : "");
}

static const char *layer_name(const struct topo_nic *nic) {
    if (nic->kind == TOPO_NIC_EFA)
        return "EFA";
    if (nic->kind == TOPO_NIC_SLINGSHOT)
        return "Slingshot";
    if (nic->kind == TOPO_NIC_SOCKET)
        return "TCP";
    for (uint32_t i = 0; i < nic->n_ports; i++) {
        if (nic->ports[i].link_layer == TOPO_LINK_INFINIBAND)
            return "InfiniBand";
        if (nic->ports[i].link_layer == TOPO_LINK_ETHERNET)
            return "RoCE";
    }
    return "";
}

struct render_text render_nic_link(const struct topo_nic *nic) {
    uint64_t rate = topo_nic_rate_mbps(nic);
    const char *layer = layer_name(nic), *blank = *layer != '\0' ? " " : "";
    if (rate == 0)
        return render_words("%s", layer);
    if (rate % 1000 == 0)
        return render_words("%" PRIu64 " Gb/s%s%s", rate / 1000, blank, layer);
    return render_words("%.1f Gb/s%s%s", (double)rate / 1000, blank, layer);
}

struct render_text render_nic_why_not(const struct topo_nic *nic) {
    enum topo_port_state state = topo_nic_state(nic);
    if (nic->n_ports == 0 || state == TOPO_PORT_UNKNOWN || state == TOPO_PORT_ACTIVE)
        return (struct render_text){""};
    return render_words("port%s %s", nic->n_ports > 1 ? "s" : "", topo_port_state_names[state]);
}

#define NETS_SHOWN 4

struct render_text render_nets(const struct nccl_prediction *p) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    uint32_t shown = p->n_nets > NETS_SHOWN ? NETS_SHOWN - 1 : p->n_nets;
    for (uint32_t i = 0; i < shown; i++)
        strbuf_printf(&out, "%s%s", i > 0 ? "," : "", render_clean(p->nets[i], true).text);
    if (shown < p->n_nets)
        strbuf_printf(&out, " +%" PRIu32, p->n_nets - shown);
    return render_words("%s", strbuf_text(&out));
}

struct render_text render_pci_link(const struct topo_pci *p) {
    static const struct {
        const char *speed, *name;
    } generations[] = {{"2.5", "1.0"}, {"5", "2.0"},  {"8", "3.0"},
                       {"16", "4.0"},  {"32", "5.0"}, {"64", "6.0"}};
    size_t n = strspn(p->link_speed, "0123456789");
    if (strncmp(p->link_speed + n, ".5", 2) == 0)
        n += 2;
    for (size_t i = 0; i < ARRAY_SIZE(generations) && p->link_width > 0; i++)
        if (n == strlen(generations[i].speed) &&
            strncmp(p->link_speed, generations[i].speed, n) == 0)
            return render_words("PCIe %s x%" PRIu32, generations[i].name, p->link_width);
    return p->link_gbs > 0 ? render_words("%.1f GB/s", p->link_gbs) : (struct render_text){""};
}

const char *render_switch_name(const struct topo_pci *p) {
    switch (p->vendor) { /* PCI-SIG vendor ids */
    case 0x1000: return "Broadcom switch";
    case 0x10b5: return "PLX switch";
    case 0x111d: return "IDT switch";
    case 0x11f8: return "Microchip switch";
    case 0x15b3: return "Switch in the NIC";
    case 0x1002:
    case 0x1022: return "AMD switch";
    case 0x10de: return "NVIDIA switch";
    case 0x8086: return "Intel switch";
    case 0x1d0f: return "Amazon switch";
    default: return "PCIe switch";
    }
}

struct render_text render_gpu_memory(const struct topology *t, int32_t numa) {
    for (uint32_t i = 0; i < t->n_gpus && numa >= 0; i++)
        if (t->gpus[i].memory_numa == numa)
            return render_words("memory of %s", render_gpu_label(t, i).text);
    return render_words("memory of a GPU");
}

struct render_text render_no_devices(const struct topology *t) {
    if (t->source != TOPO_NCCL_XML || t->n_gpus > 0 || t->n_nics > 0)
        return (struct render_text){""};
    return render_words("The file describes %" PRIu32 " PCI bridges and devices, but names no "
                        "GPU or NIC: NCCL itself detects which of them are there",
                        t->n_pci);
}

void render_count(struct strbuf *to, uint32_t n, const char *what) {
    if (n > 0)
        strbuf_printf(to, "%s%" PRIu32 " %s%s", to->len > 0 ? ", " : "", n, what,
                      n == 1 ? "" : "s");
}

struct render_text render_bytes(uint64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes / 1024;
    size_t i = 0;
    for (; i + 1 < ARRAY_SIZE(units) && x >= 1024; i++)
        x /= 1024;
    return x < 9.95 ? render_words("%.1f %s", x, units[i]) : render_words("%.0f %s", x, units[i]);
}

struct render_text render_range(const struct topology *t, const struct render_shape *s,
                                const char *dots) {
    bool nic = s->kind == RENDER_NIC;
    uint32_t last = s->index + s->count - 1;
    struct render_text a =
        render_clean(nic ? t->nics[s->index].name : t->netifs[s->index].name, true);
    struct render_text b = render_clean(nic ? t->nics[last].name : t->netifs[last].name, true);
    if (s->count == 1)
        return a;
    return s->count == 2 ? render_words("%s, %s", a.text, b.text)
                         : render_words("%s%s%s (%" PRIu32 ")", a.text, dots, b.text, s->count);
}

void render_domain(const struct topology *t, struct strbuf *to) {
    char name[TOPO_DOMAIN_MAX];
    bool known = topology_domain(t, name);
    const struct topo_gpu *rack = NULL;
    for (uint32_t i = 0; i < t->n_gpus && rack == NULL; i++)
        if (t->gpus[i].chassis[0] != '\0')
            rack = &t->gpus[i];
    if (!known && !topology_fabric_pending(t))
        return;
    strbuf_printf(to, "NVLink domain %s: ", known ? render_clean(name, true).text : "none");
    topology_fabric_text(t, to);
    if (rack != NULL)
        strbuf_printf(to, ", chassis %s, slot %" PRIu32 ", tray %" PRIu32,
                      render_clean(rack->chassis, true).text, rack->slot, rack->tray);
}

/* Widths of U+0020 to U+007E in hundredths of the font's size, rounded up, in DejaVu Sans: it is
 * the widest of the fonts that browsers use for sans-serif. */
static const unsigned char widths[] = {
    32, 41, 46, 84, 64, 96, 78, 28, 40,  40, 51, 84, 32, 37, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 34, 34, 84, 84, 84, 54, 101, 69, 69, 70, 78, 64, 58, 78, 76, 30, 30, 66, 56, 87, 75, 79,
    61, 79, 70, 64, 62, 74, 69, 99, 69,  62, 69, 40, 34, 40, 84, 51, 51, 62, 64, 55, 64, 62, 36, 64,
    64, 28, 28, 58, 28, 98, 64, 62, 64,  64, 42, 53, 40, 64, 60, 82, 60, 60, 53, 64, 34, 64, 84};
#define WIDTH_OTHER 100 /* arrows, dashes, ellipsis; device names have no wider characters */
#define BOLD 114        /* percent; single letters can differ more, but words do not */

static int width_in_hundredths(const char *text, size_t len) {
    int sum = 0;
    for (size_t i = 0, n; i < len && (n = utf8_char(text + i)) > 0; i += n) {
        unsigned char c = (unsigned char)text[i];
        sum += n == 1 && c >= ' ' && c < 0x7f ? widths[c - ' '] : WIDTH_OTHER;
    }
    return sum;
}

static int width_of(const char *text, size_t len, int size, bool bold) {
    return (width_in_hundredths(text, len) * size * (bold ? BOLD : 100) + 9999) / 10000;
}

int render_width(const char *text, int size, bool bold) {
    return width_of(text, strlen(text), size, bold);
}

size_t render_break(const char *text, int size, bool bold, int max_w) {
    size_t fits = 0, word = 0, len = strlen(text);
    if (width_of(text, len, size, bold) <= max_w)
        return len;
    for (size_t i = 0, n; (n = utf8_char(text + i)) > 0; i += n) {
        if (i > 0 && width_of(text, i + n, size, bold) > max_w)
            break;
        fits = i + n;
        if (text[i] == ' ' || text[i] == ',')
            word = fits;
    }
    return word > 0 ? word : fits;
}

struct render_text render_fit(const char *text, int size, bool bold, int max_w) {
    static const char dots[] = "…";
    struct render_text out;
    size_t fits = 0, all = strlen(text);
    if (all < RENDER_TEXT_MAX && render_width(text, size, bold) <= max_w)
        return render_words("%s", text);
    int room = max_w - render_width(dots, size, bold);
    for (size_t i = 0, n; (n = utf8_char(text + i)) > 0; i += n)
        if (i + sizeof dots <= RENDER_TEXT_MAX && width_of(text, i, size, bold) <= room)
            fits = i;
    while (fits > 0 && strchr(" ,", text[fits - 1]) != NULL)
        fits--;
    memcpy(out.text, text, fits);
    memcpy(out.text + fits, dots, sizeof dots);
    return out;
}
