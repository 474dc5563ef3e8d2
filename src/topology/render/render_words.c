#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "topology/render/render_plan.h"

void render_clean(char *out, size_t size, const char *in, bool blanks) {
    utf8_copy(out, size, in);
    for (unsigned char *p = (unsigned char *)out; *p != '\0'; p++) {
        /* U+0080 to U+009F are control characters too: C2 80 to C2 9F */
        if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
            p[0] = p[1] = '?';
        if (*p < ' ' || *p == 0x7f || (blanks && *p == ' '))
            *p = '?';
    }
}

void render_gpu_label(const struct topology *t, uint32_t gpu, char out[RENDER_TEXT_MAX]) {
    (void)snprintf(out, RENDER_TEXT_MAX, "GPU%" PRIu32, t->gpus[gpu].index);
}

void render_gpu_name(const struct topology *t, uint32_t gpu, char out[RENDER_TEXT_MAX]) {
    static const char *const vendors[] = {[TOPO_VENDOR_OTHER] = "GPU",
                                          [TOPO_VENDOR_NVIDIA] = "NVIDIA GPU",
                                          [TOPO_VENDOR_AMD] = "AMD GPU",
                                          [TOPO_VENDOR_INTEL] = "Intel GPU"};
    const struct topo_gpu *g = &t->gpus[gpu];
    if (g->name[0] != '\0')
        render_clean(out, RENDER_TEXT_MAX, g->name, false);
    else if (g->pci < t->n_pci && t->pci[g->pci].device != 0)
        (void)snprintf(out, RENDER_TEXT_MAX, "%s %04x:%04x", vendors[g->vendor],
                       t->pci[g->pci].vendor, t->pci[g->pci].device);
    else
        (void)snprintf(out, RENDER_TEXT_MAX, "%s", vendors[g->vendor]);
}

void render_bus(const struct topology *t, uint32_t pci, char out[TOPO_BUSID_MAX]) {
    out[0] = '\0';
    if (pci < t->n_pci)
        pci_addr_text(t->pci[pci].at, out);
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

void render_nic_link(const struct topo_nic *nic, char out[RENDER_TEXT_MAX]) {
    uint64_t rate = topo_nic_rate_mbps(nic);
    char speed[32] = "";
    if (rate % 1000 == 0 && rate > 0)
        (void)snprintf(speed, sizeof speed, "%" PRIu64 " Gb/s", rate / 1000);
    else if (rate > 0)
        (void)snprintf(speed, sizeof speed, "%.1f Gb/s", (double)rate / 1000);
    const char *layer = layer_name(nic);
    const char *blank = *speed != '\0' && *layer != '\0' ? " " : "";
    (void)snprintf(out, RENDER_TEXT_MAX, "%s%s%s", speed, blank, layer);
}

void render_nic_why_not(const struct topo_nic *nic, char out[RENDER_TEXT_MAX]) {
    enum topo_port_state state = topo_nic_state(nic);
    out[0] = '\0';
    if (nic->n_ports > 0 && state != TOPO_PORT_UNKNOWN && state != TOPO_PORT_ACTIVE)
        (void)snprintf(out, RENDER_TEXT_MAX, "port%s %s", nic->n_ports > 1 ? "s" : "",
                       topo_port_state_names[state]);
}

#define NETS_SHOWN 4

void render_nets(const struct nccl_prediction *p, char out[RENDER_TEXT_MAX]) {
    size_t n = 0;
    uint32_t shown = p->n_nets > NETS_SHOWN ? NETS_SHOWN - 1 : p->n_nets;
    out[0] = '\0';
    for (uint32_t i = 0; i < shown && n < RENDER_TEXT_MAX - 1; i++) {
        char net[RENDER_TEXT_MAX];
        render_clean(net, sizeof net, p->nets[i], true);
        n += (size_t)snprintf(out + n, RENDER_TEXT_MAX - n, "%s%s", i > 0 ? "," : "", net);
    }
    if (shown < p->n_nets && n < RENDER_TEXT_MAX - 1)
        (void)snprintf(out + n, RENDER_TEXT_MAX - n, " +%" PRIu32, p->n_nets - shown);
}

void render_pci_link(const struct topo_pci *p, char out[RENDER_TEXT_MAX]) {
    static const struct {
        const char *speed, *name;
    } generations[] = {{"2.5", "1.0"}, {"5", "2.0"},  {"8", "3.0"},
                       {"16", "4.0"},  {"32", "5.0"}, {"64", "6.0"}};
    out[0] = '\0';
    size_t n = strspn(p->link_speed, "0123456789");
    if (strncmp(p->link_speed + n, ".5", 2) == 0)
        n += 2;
    for (size_t i = 0; i < ARRAY_SIZE(generations) && p->link_width > 0; i++)
        if (n == strlen(generations[i].speed) &&
            strncmp(p->link_speed, generations[i].speed, n) == 0)
            (void)snprintf(out, RENDER_TEXT_MAX, "PCIe %s x%" PRIu32, generations[i].name,
                           p->link_width);
    if (out[0] == '\0' && p->link_gbs > 0)
        (void)snprintf(out, RENDER_TEXT_MAX, "%.1f GB/s", p->link_gbs);
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

void render_gpu_memory(const struct topology *t, int32_t numa, char out[RENDER_TEXT_MAX]) {
    char label[RENDER_TEXT_MAX] = "a GPU";
    for (uint32_t i = t->n_gpus; i-- > 0;)
        if (t->gpus[i].memory_numa == numa && numa >= 0)
            render_gpu_label(t, i, label);
    (void)snprintf(out, RENDER_TEXT_MAX, "memory of %.40s", label);
}

void render_no_devices(const struct topology *t, char out[RENDER_TEXT_MAX]) {
    out[0] = '\0';
    if (t->source == TOPO_NCCL_XML && t->n_gpus == 0 && t->n_nics == 0)
        (void)snprintf(out, RENDER_TEXT_MAX,
                       "The file describes %" PRIu32 " PCI bridges and devices, but names no "
                       "GPU or NIC: NCCL itself detects which of them are there",
                       t->n_pci);
}

void render_count(struct strbuf *to, uint32_t n, const char *what) {
    if (n > 0)
        strbuf_printf(to, "%s%" PRIu32 " %s%s", to->len > 0 ? ", " : "", n, what,
                      n == 1 ? "" : "s");
}

void render_bytes(uint64_t bytes, char out[RENDER_TEXT_MAX]) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes / 1024;
    size_t i = 0;
    for (; i + 1 < ARRAY_SIZE(units) && x >= 1024; i++)
        x /= 1024;
    (void)snprintf(out, RENDER_TEXT_MAX, x < 9.95 ? "%.1f %s" : "%.0f %s", x, units[i]);
}

void render_range(const struct topology *t, const struct render_shape *s, const char *dots,
                  char out[RENDER_TEXT_MAX]) {
    bool nic = s->kind == RENDER_NIC;
    uint32_t last = s->index + s->count - 1;
    char a[TOPO_NAME_MAX], b[TOPO_NAME_MAX];
    render_clean(a, sizeof a, nic ? t->nics[s->index].name : t->netifs[s->index].name, true);
    render_clean(b, sizeof b, nic ? t->nics[last].name : t->netifs[last].name, true);
    if (s->count == 1)
        (void)snprintf(out, RENDER_TEXT_MAX, "%s", a);
    else if (s->count == 2)
        (void)snprintf(out, RENDER_TEXT_MAX, "%s, %s", a, b);
    else
        (void)snprintf(out, RENDER_TEXT_MAX, "%s%s%s (%" PRIu32 ")", a, dots, b, s->count);
}

void render_domain(const struct topology *t, struct strbuf *to) {
    char name[TOPO_DOMAIN_MAX], chassis[TOPO_CHASSIS_MAX];
    bool known = topology_domain(t, name);
    const struct topo_gpu *rack = NULL;
    for (uint32_t i = 0; i < t->n_gpus && rack == NULL; i++)
        if (t->gpus[i].chassis[0] != '\0')
            rack = &t->gpus[i];
    if (!known && !topology_fabric_pending(t))
        return;
    render_clean(name, sizeof name, known ? name : "none", true);
    strbuf_printf(to, "NVLink domain %s: ", name);
    topology_fabric_text(t, to);
    if (rack == NULL)
        return;
    render_clean(chassis, sizeof chassis, rack->chassis, true);
    strbuf_printf(to, ", chassis %s, slot %" PRIu32 ", tray %" PRIu32, chassis, rack->slot,
                  rack->tray);
}
