#include "topology/discover/nvml/nvml_report.h"

#include <stdio.h>
#include <string.h>

#include "base/text/strbuf.h"
#include "topology/discover/nvml/nvml_abi.h"

#define PCIE_GEN_MAX 15 /* the largest value of a PCI Express link's register */
#define PCIE_WIDTH_MAX 32
#define SM_MAX 999

static void end_text(char *text, size_t size) {
    text[size - 1] = '\0';
    for (char *p = text; *p != '\0'; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

static void bound(uint32_t *number, uint32_t max) {
    if (*number > max)
        *number = 0;
}

static void clean_gpu(struct nvml_gpu *g) {
    bound(&g->cur_gen, PCIE_GEN_MAX);
    bound(&g->max_gen, PCIE_GEN_MAX);
    bound(&g->cur_width, PCIE_WIDTH_MAX);
    bound(&g->max_width, PCIE_WIDTH_MAX);
    bound(&g->sm, SM_MAX);
    g->n_mig = MIN2(g->n_mig, (uint32_t)TOPO_MIG_MAX);
    for (uint32_t i = 0; i < TOPO_MIG_MAX; i++)
        end_text(g->mig_uuids[i], TOPO_MIG_UUID_MAX);
    end_text(g->chassis, sizeof g->chassis);
    g->n_links = MIN2(g->n_links, (uint32_t)NVML_LINKS_MAX);
    g->n_pids = MIN2(g->n_pids, (uint32_t)NVML_PROCESSES_MAX);
    g->has_address = g->has_address && g->at.dev <= 31 && g->at.fn <= 7;
}

const char *const nvml_gpu_codes[NVML_GPU_FAULTS] = {
    "GPU-LOST", "GPU-RESET", "GPU-RECOVERY", "GPU-REMAP", "GPU-REMAP", "GPU-ECC", "GPU-SLOW"};

/* nvmlDeviceGpuRecoveryAction_t of NVML 13. */
static const char *recovery_text(uint32_t action) {
    static const char *const texts[] = {
        NULL,
        "needs a reset (nvidia-smi --gpu-reset)",
        "needs a reboot of the node",
        "can't exchange data with other GPUs until they are drained",
        "must be drained, and then needs a reset",
        "needs IMEX to be restarted",
        "needs a reset of its bus",
        "needs a reboot of the system"};
    return action < ARRAY_SIZE(texts) ? texts[action]
           : action == NVML_UNKNOWN   ? NULL
                                    : "needs a recovery that this version of muster does not know";
}

#define SLOWED_BY_HARDWARE 0xc8u /* the hardware, its temperature, the power brake */

const char *nvml_gpu_fault(const struct nvml_gpu *g, enum nvml_gpu_fault fault) {
    const struct {
        bool has_it;
        const char *text;
    } faults[NVML_GPU_FAULTS] = {
        {g->lost != 0 && g->lost != NVML_R_RESET_REQUIRED,
         "is lost: the driver can't reach it; reboot the node"},
        {g->lost == NVML_R_RESET_REQUIRED, recovery_text(1)},
        {true, recovery_text(g->recovery)},
        {g->remap_failed != 0,
         "has rows of memory with errors that could not be replaced: exchange the GPU"},
        {g->remap_pending != 0,
         "has memory with errors, which a reset will replace (nvidia-smi --gpu-reset)"},
        {g->ecc_uncorrected != 0, "has had uncorrected ECC errors since the driver was loaded"},
        {(g->slowed & SLOWED_BY_HARDWARE) != 0,
         "has lower clocks because of its temperature or power supply"},
    };
    bool known = g->lost == 0 || fault <= NVML_GPU_RESET;
    return known && faults[fault].has_it ? faults[fault].text : NULL;
}

const char *nvml_gpu_unusable(const struct nvml_gpu *g) {
    const char *why = NULL;
    for (int f = NVML_GPU_LOST; f <= NVML_GPU_RECOVERY && why == NULL; f++)
        why = nvml_gpu_fault(g, (enum nvml_gpu_fault)f);
    return why;
}

void nvml_report_clean(struct nvml_report *r) {
    r->n = MIN2(r->n, (uint32_t)GPUS_MAX);
    bound(&r->fault, NVML_FAULT_ENDED);
    end_text(r->why_not, sizeof r->why_not);
    end_text(r->driver, sizeof r->driver);
    end_text(r->version, sizeof r->version);
    end_text(r->cuda, sizeof r->cuda);
    end_text(r->at, sizeof r->at);
    for (uint32_t i = 0; i < r->n; i++) {
        end_text(r->uuids[i], sizeof r->uuids[i]);
        end_text(r->names[i], sizeof r->names[i]);
        clean_gpu(&r->gpus[i]);
    }
}

static enum topo_fabric fabric_of(const struct nvml_gpu *g) {
    return g->fabric_state > TOPO_FABRIC_COMPLETED ? TOPO_FABRIC_NONE
           : g->fabric_state == TOPO_FABRIC_COMPLETED && g->fabric_status != 0
               ? TOPO_FABRIC_FAILED
               : (enum topo_fabric)g->fabric_state;
}

bool nvml_report_fabric(const struct nvml_report *r, char text[TOPO_TEXT_MAX]) {
    uint32_t waiting = 0, first = 0;
    for (uint32_t i = r->n; i > 0; i--) {
        enum topo_fabric state = fabric_of(&r->gpus[i - 1]);
        if (state == TOPO_FABRIC_NONE || state == TOPO_FABRIC_COMPLETED)
            continue;
        waiting++;
        first = i - 1;
    }
    if (waiting > 0)
        (void)snprintf(text, TOPO_TEXT_MAX,
                       "%u of %u GPUs have not joined the NVLink fabric (GPU %u: %s): is "
                       "nvidia-fabricmanager running?",
                       waiting, r->n, first, topo_fabric_names[fabric_of(&r->gpus[first])]);
    return waiting > 0;
}

uint32_t nvml_report_visible(const struct nvml_report *r, const char *visible, uint32_t *ret) {
    struct gpu_inventory all = {.n = r->n, .uuids = (char(*)[GPU_UUID_MAX])(uintptr_t)r->uuids};
    uint32_t n = gpu_list_visible(visible, &all, ret);
    for (uint32_t i = 0; i < n; i++)
        if (ret[i] == GPU_UNKNOWN)
            return gpu_list_visible(NULL, &all, ret);
    return n;
}

/* ---- into a topology ---- */

#define INTERFACE_NPU 0x01 /* of a bridge */

static bool is_nvidia(const struct topology *t, uint32_t gpu) {
    return t->gpus[gpu].vendor == TOPO_VENDOR_NVIDIA;
}

static uint32_t find_gpu(const struct topology *t, struct pci_addr at) {
    return topology_find_gpu(t, topology_find_pci(t, at));
}

static bool is_placed(const uint32_t *place, uint32_t n, uint32_t gpu) {
    for (uint32_t i = 0; i < n; i++)
        if (place[i] == gpu)
            return true;
    return false;
}

static uint32_t add_gpu(struct topology *t, const struct nvml_gpu *g) {
    uint32_t pci = topology_find_pci(t, g->at);
    if (pci == TOPO_NONE) {
        struct topo_pci *d = topology_add_pci(t);
        if (d == NULL)
            return TOPO_NONE;
        d->at = g->at;
        d->root = (struct pci_addr){.domain = g->at.domain, .bus = g->at.bus};
        d->class_id = PCI_CLASS_3D << 8;
        d->vendor = PCI_VENDOR_NVIDIA;
        d->device = (uint16_t)(g->device_id >> 16);
        pci = t->n_pci - 1;
    } else if (t->pci[pci].vendor != PCI_VENDOR_NVIDIA && t->pci[pci].vendor != 0) {
        return TOPO_NONE;
    }
    struct topo_gpu *gpu = topology_add_gpu(t);
    if (gpu == NULL)
        return TOPO_NONE;
    gpu->pci = pci;
    gpu->vendor = TOPO_VENDOR_NVIDIA;
    gpu->numa = t->pci[pci].numa;
    return t->n_gpus - 1;
}

static void place_known(const struct nvml_report *r, struct topology *t, uint32_t *place) {
    for (uint32_t i = 0; i < r->n; i++) {
        place[i] = TOPO_NONE;
        if (!r->gpus[i].named || !r->gpus[i].has_address)
            continue;
        uint32_t at = find_gpu(t, r->gpus[i].at);
        if (at == TOPO_NONE)
            at = add_gpu(t, &r->gpus[i]);
        if (at != TOPO_NONE && is_nvidia(t, at) && !is_placed(place, i, at))
            place[i] = at;
    }
}

/* NVML may not even report the address of a lost GPU. NVML counts in the order of addresses, so the
 * GPUs that are left on both sides belong together if their numbers are equal. */
static void place_rest(const struct nvml_report *r, const struct topology *t, uint32_t *place) {
    uint32_t left[TOPO_GPUS_MAX], n_left = 0, unplaced = 0;
    for (uint32_t i = 0; i < t->n_gpus; i++)
        if (is_nvidia(t, i) && !is_placed(place, r->n, i))
            left[n_left++] = i;
    for (uint32_t i = 0; i < r->n; i++) {
        if (place[i] == TOPO_NONE && r->gpus[i].has_address)
            return;
        unplaced += place[i] == TOPO_NONE;
    }
    if (unplaced != n_left)
        return;
    for (uint32_t i = 0, k = 0; i < r->n; i++)
        if (place[i] == TOPO_NONE)
            place[i] = left[k++];
}

static bool warn_unplaced(const struct nvml_report *r, const uint32_t *place, struct topology *t) {
    uint32_t lost = 0, other = 0, unnamed = 0, first_lost = 0, first_other = 0;
    for (uint32_t i = r->n; i > 0; i--) {
        unnamed += r->gpus[i - 1].named == 0;
        if (place[i - 1] != TOPO_NONE || !r->gpus[i - 1].named)
            continue;
        uint32_t *first = r->gpus[i - 1].lost ? &first_lost : &first_other;
        *first = i - 1;
        *(r->gpus[i - 1].lost ? &lost : &other) += 1;
    }
    if (lost > 0)
        topology_fault(t,
                       "%u of %u GPUs are lost and can't even report their PCI address, the first "
                       "being GPU %u: reboot the node",
                       lost, r->n, first_lost);
    if (other > 0)
        topology_warn(t,
                      "%u of %u GPUs are left out: NVML reports no PCI address of their own, the "
                      "first being GPU %u",
                      other, r->n, first_other);
    return lost + other + unnamed == 0;
}

static void drop_unknown(const struct nvml_report *r, struct topology *t, uint32_t *place) {
    _cleanup_(strbuf_fini) struct strbuf names = {0};
    uint32_t kept = 0, dropped = 0;
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        if (is_nvidia(t, i) && !is_placed(place, r->n, i)) {
            strbuf_printf(&names, "%s%s", dropped++ > 0 ? ", " : "",
                          topology_bus_id(t, t->gpus[i].pci).text);
            continue;
        }
        for (uint32_t k = 0; k < r->n; k++)
            if (place[k] == i)
                place[k] = kept;
        t->gpus[kept++] = t->gpus[i];
    }
    if (dropped == 0)
        return;
    t->n_gpus = kept;
    t->n_nvlinks = 0;
    topology_warn(t,
                  "left out, because NVML does not have it (another container's, another "
                  "driver's, or it did not start): GPU %s",
                  strbuf_text(&names));
}

static void set_text(char *to, size_t size, const char *from) {
    if (from[0] != '\0')
        (void)snprintf(to, size, "%s", from);
}

static void set_number(uint32_t *to, uint32_t value) {
    if (value != 0)
        *to = value;
}

static void merge_fabric(const struct nvml_gpu *from, struct topo_gpu *to) {
    static const uint8_t none[sizeof from->fabric_uuid];
    to->fabric = fabric_of(from);
    to->fabric_health = from->fabric_health;
    to->fabric_summary = from->fabric_summary;
    set_text(to->chassis, sizeof to->chassis, from->chassis);
    to->slot = from->slot;
    to->tray = from->tray;
    if (to->fabric != TOPO_FABRIC_COMPLETED || memcmp(from->fabric_uuid, none, sizeof none) == 0)
        return;
    char *p = to->fabric_uuid;
    static_assert(sizeof to->fabric_uuid >= 37, "a UUID with its NUL");
    for (size_t i = 0; i < sizeof from->fabric_uuid; i++)
        p += sprintf(p, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                     from->fabric_uuid[i]);
    to->fabric_clique = from->fabric_clique;
}

static void merge_numa(struct topology *t, const struct nvml_gpu *from, struct topo_gpu *to) {
    if (to->numa < 0 && from->numa >= 0 && (t->n_numa == 0 || topology_numa(t, from->numa) != NULL))
        to->numa = from->numa;
    for (uint32_t i = 0; i < t->n_numa; i++)
        if (from->memory_node >= 0 && t->numa[i].index == from->memory_node &&
            cpuset_is_empty(&t->numa[i].cpus))
            t->numa[i].gpu_memory = true;
    to->memory_numa = from->memory_node;
}

static void merge_gpu(struct topology *t, const struct nvml_report *r, uint32_t i, uint32_t place) {
    const struct nvml_gpu *from = &r->gpus[i];
    struct topo_gpu *to = &t->gpus[place];
    to->index = i;
    set_text(to->uuid, sizeof to->uuid, r->uuids[i]);
    set_text(to->name, sizeof to->name, r->names[i]);
    to->lost = from->lost != 0;
    if (!from->asked)
        return;
    set_number(&to->sm, from->sm);
    set_number(&to->cur_gen, from->cur_gen);
    set_number(&to->cur_width, from->cur_width);
    set_number(&to->max_gen, from->max_gen);
    set_number(&to->max_width, from->max_width);
    if (from->memory_bytes != 0)
        to->memory_bytes = from->memory_bytes;
    to->mig = from->mig != 0;
    to->n_mig = MIN2(from->n_mig, (uint32_t)TOPO_MIG_MAX);
    memcpy(to->mig_uuids, from->mig_uuids, sizeof to->mig_uuids);
    merge_numa(t, from, to);
    merge_fabric(from, to);
}

/* The end of an NVLink, if it belongs to this machine; false: it does not. */
static bool end_of(const struct topology *t, uint32_t gpu, const struct nvml_link *link,
                   struct topo_nvlink *ret) {
    *ret = (struct topo_nvlink){.gpu = gpu, .peer = TOPO_NONE, .target = link->at};
    if (link->up == 0)
        return false;
    ret->end = TOPO_NVLINK_SWITCH;
    if (pci_addr_compare(link->at, PCI_ADDR_UNKNOWN) == 0)
        return true;
    ret->peer = find_gpu(t, link->at);
    if (ret->peer != TOPO_NONE) {
        ret->end = TOPO_NVLINK_GPU;
        return ret->peer != gpu;
    }
    if (link->type == NVML_REMOTE_TYPE_NPU)
        ret->end = TOPO_NVLINK_CPU;
    if (link->type <= NVML_REMOTE_TYPE_SWITCH)
        return link->type != NVML_REMOTE_TYPE_GPU;
    uint32_t pci = topology_find_pci(t, link->at);
    if (pci == TOPO_NONE || t->pci[pci].class_id >> 8 != PCI_CLASS_OTHER_BRIDGE)
        return false;
    if ((t->pci[pci].class_id & 0xff) == INTERFACE_NPU)
        ret->end = TOPO_NVLINK_CPU;
    return true;
}

static bool add_link(struct topology *t, const struct topo_nvlink *link) {
    for (uint32_t i = t->n_nvlinks; i > 0 && t->nvlinks[i - 1].gpu == link->gpu; i--) {
        struct topo_nvlink *n = &t->nvlinks[i - 1];
        if (n->end == link->end && pci_addr_compare(n->target, link->target) == 0) {
            n->count++;
            return true;
        }
    }
    struct topo_nvlink *n = topology_add_nvlink(t);
    if (n == NULL)
        return false;
    *n = *link;
    n->count = 1;
    return true;
}

static bool merge_links(struct topology *t, const struct nvml_gpu *from, uint32_t gpu) {
    bool fits = true;
    for (uint32_t i = 0; i < MIN2(from->n_links, (uint32_t)NVML_LINKS_MAX); i++) {
        struct topo_nvlink link;
        if (end_of(t, gpu, &from->links[i], &link))
            fits = add_link(t, &link) && fits;
    }
    if (from->n_c2c > 0) {
        struct topo_nvlink *n = topology_add_nvlink(t);
        if (n == NULL)
            return false;
        *n = (struct topo_nvlink){.gpu = gpu,
                                  .end = TOPO_NVLINK_CPU,
                                  .peer = TOPO_NONE,
                                  .target = PCI_ADDR_UNKNOWN,
                                  .count = from->n_c2c,
                                  .c2c = true,
                                  .bandwidth = from->c2c_mbps / 1000.0};
    }
    return fits;
}

static bool links_are_known(const struct nvml_report *r) {
    for (uint32_t i = 0; i < r->n; i++)
        if (!r->gpus[i].lost && !(r->gpus[i].asked && r->gpus[i].links_known))
            return false;
    return r->n > 0;
}

static void merge_all_links(const struct nvml_report *r, const uint32_t *place,
                            struct topology *t) {
    if (!links_are_known(r))
        return;
    t->n_nvlinks = 0;
    t->nvlinks_known = true;
    bool fits = true;
    for (uint32_t i = 0; i < r->n; i++)
        if (place[i] != TOPO_NONE && r->gpus[i].asked)
            fits = merge_links(t, &r->gpus[i], place[i]) && fits;
    if (!fits)
        topology_warn(t, "more than %d bundles of NVLinks: some are left out", TOPO_NVLINKS_MAX);
}

static void warn_lost(const struct nvml_report *r, const uint32_t *place, struct topology *t) {
    for (uint32_t i = 0; i < r->n; i++) {
        if (!r->gpus[i].lost || place[i] == TOPO_NONE)
            continue;
        topology_fault(t, "GPU %u (%s) %s", i, topology_bus_id(t, t->gpus[place[i]].pci).text,
                       nvml_gpu_unusable(&r->gpus[i]));
    }
}

static void warn_fabric(const struct nvml_report *r, struct topology *t) {
    char text[TOPO_TEXT_MAX];
    if (nvml_report_fabric(r, text))
        topology_fault(t, "%s", text);
    if (topology_domain_split(t, text))
        topology_fault(t, "%s", text);
    _cleanup_(strbuf_fini) struct strbuf degraded = {0};
    if (topology_fabric_degraded(t, &degraded))
        topology_fault(t, "%s", strbuf_text(&degraded));
}

static void warn_not_found(const struct nvml_report *r, struct topology *t) {
    static const char partly[] = "it had not answered by then",
                      gpus[] = "only NVML knows of the GPUs";
    if (r->fault == NVML_FAULT_LATE)
        topology_fault(t, "%s: what %s is missing", r->why_not, r->found ? partly : gpus);
    else if (!r->whole)
        topology_warn(t, "%s: what %s is missing", r->why_not, r->found ? partly : gpus);
    else if (!r->found && topology_count_gpus(t, TOPO_VENDOR_NVIDIA) > 0)
        topology_warn(t, "NVML not found (%s): NVLinks are not known", r->why_not);
}

void nvml_merge(const struct nvml_report *r, struct topology *t) {
    assert(r->n <= GPUS_MAX);
    warn_not_found(r, t);
    if (!r->found)
        return;
    topology_sort(t);
    uint32_t place[GPUS_MAX]; /* of each GPU of the report in gpus[]; TOPO_NONE: nowhere */
    place_known(r, t, place);
    place_rest(r, t, place);
    if (warn_unplaced(r, place, t))
        drop_unknown(r, t, place);
    set_text(t->driver, sizeof t->driver, r->driver);
    set_text(t->cuda, sizeof t->cuda, r->cuda);
    for (uint32_t i = 0; i < r->n; i++)
        if (place[i] != TOPO_NONE)
            merge_gpu(t, r, i, place[i]);
    merge_all_links(r, place, t);
    warn_lost(r, place, t);
    warn_fabric(r, t);
    topology_sort(t);
}
