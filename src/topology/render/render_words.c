#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "topology/render/render_plan.h"

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
    utf8_copy(out.text, sizeof out.text, in);
    for (unsigned char *p = (unsigned char *)out.text; *p != '\0'; p++) {
        /* U+0080 to U+009F are control characters too: C2 80 to C2 9F */
        if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
            p[0] = p[1] = '?';
        if (*p < ' ' || *p == 0x7f || (blanks && *p == ' '))
            *p = '?';
    }
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
