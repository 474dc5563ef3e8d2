#include "launcher/preflight/node_summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_table.h"
#include "base/text/utf8.h"
#include "launcher/node/gpu_health.h"

/* How a difference between nodes is treated; GROUPED: see compare_domains(). */
enum { ALONE, GROUPED, COMPARED, MATTERS };

/* Each fact's name in JSON and in messages, its code, and how a difference is treated. */
#define FACTS(F)                                          \
    F(GPUS, "gpus", "GPUS-DIFFER", MATTERS)               \
    F(DRIVER, "driver", "DRIVER-DIFFERS", MATTERS)        \
    F(CUDA, "cuda", "CUDA-DIFFERS", COMPARED)             \
    F(NCCL, "nccl", "NCCL-DIFFERS", MATTERS)              \
    F(TORCH, "torch", "TORCH-DIFFERS", MATTERS)           \
    F(HCAS, "hcas", "HCAS-DIFFER", MATTERS)               \
    F(RAILS, "rails", "RAILS-DIFFER", COMPARED)           \
    F(NETIF, "interface", "NETIF-DIFFERS", COMPARED)      \
    F(MTU, "mtu", "MTU-DIFFERS", MATTERS)                 \
    F(FAST, "fast network", "FAST-NET-DIFFERS", COMPARED) \
    F(FAST_MTU, "fast mtu", "FAST-MTU-DIFFERS", COMPARED) \
    F(MEMLOCK, "memlock", "MEMLOCK-DIFFERS", COMPARED)    \
    F(SHM, "shm", "SHM-DIFFERS", COMPARED)                \
    F(NAME, "own name", "NAME-DIFFERS", COMPARED)         \
    F(KERNEL, "kernel", "KERNEL-DIFFERS", COMPARED)       \
    F(DISK, "free disk", "", ALONE)                       \
    F(PROCESSES, "gpu processes", "", ALONE)              \
    F(DOMAIN, "nvlink domain", "", GROUPED)               \
    F(IMEX, "imex channel", "", GROUPED)                  \
    F(STACK, "stack limit", "", GROUPED)                  \
    F(WORKERS, "workers", "", GROUPED)

#define FACT(f, name, code, how) [NODE_SUMMARY_##f] = {code, how},
static const struct {
    const char *code;
    int how;
} facts[NODE_SUMMARY_FACT_COUNT] = {FACTS(FACT)};

#define VALUE(f, name, code, how)                                    \
    {JSON_FIELD(node_summary, LINE, name, values[NODE_SUMMARY_##f]), \
     JSON_IF_TEXT(node_summary, values[NODE_SUMMARY_##f])},
static const struct json_field fact_fields[NODE_SUMMARY_FACT_COUNT] = {FACTS(VALUE)};
const struct json_table node_summary_facts = {JSON_ROWS(node_summary, fact_fields), .open = true};

const char *node_summary_fact_name(enum node_summary_fact f) { return fact_fields[f].key; }
const char *node_summary_fact_code(enum node_summary_fact f) { return facts[f].code; }
bool node_summary_fact_matters(enum node_summary_fact f) { return facts[f].how == MATTERS; }
bool node_summary_fact_kept(enum node_summary_fact f) { return facts[f].how != ALONE; }

static const char *const level_names[] = {
    [NODE_SUMMARY_OK] = "ok", [NODE_SUMMARY_WARN] = "warn", [NODE_SUMMARY_FAIL] = "fail"};
const char *node_summary_level_name(enum node_summary_level l) { return level_names[l]; }

void node_summary_put(struct node_summary *d, enum node_summary_fact f, char *text) {
    utf8_copy_line(d->values[f], sizeof d->values[f], text);
    free(text);
}

/* If the list is full, the last less severe finding is replaced. */
static struct node_summary_finding *place_for(struct node_summary *d,
                                              enum node_summary_level level) {
    if (d->n_findings < NODE_SUMMARY_FINDINGS_MAX)
        return &d->findings[d->n_findings++];
    struct node_summary_finding *least = &d->findings[d->n_findings - 1];
    for (uint32_t i = d->n_findings; i > 0; i--)
        if (d->findings[i - 1].level < least->level)
            least = &d->findings[i - 1];
    return least->level < level ? least : NULL;
}

struct node_summary_finding *node_summary_add_text(struct node_summary *d,
                                                   enum node_summary_level level, const char *code,
                                                   char *text) {
    struct node_summary_finding *f = place_for(d, level);
    if (f != NULL) {
        *f = (struct node_summary_finding){.level = level};
        (void)snprintf(f->code, sizeof f->code, "%s", code);
        utf8_copy_line(f->text, sizeof f->text, text);
    }
    free(text);
    return f;
}

enum node_summary_level node_summary_worst(const struct node_summary *d) {
    enum node_summary_level worst = NODE_SUMMARY_OK;
    for (uint32_t i = 0; i < d->n_findings; i++)
        worst = MAX2(worst, d->findings[i].level);
    return worst;
}

/* ---- JSON ---- */

static const struct json_field finding_fields[] = {
    {JSON_NAMED(node_summary_finding, "level", level, level_names), .min = NODE_SUMMARY_OK},
    {JSON_FIELD(node_summary_finding, LINE, "code", code)},
    {JSON_FIELD(node_summary_finding, LINE, "text", text)},
};
const struct json_table node_summary_finding = {JSON_ROWS(node_summary_finding, finding_fields),
                                                .open = true};

static void write_clock(struct json_writer *w, const struct json_field *f, const void *of) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, ((const struct node_summary *)of)->clock_ns);
    json_write_string(w, f->key, text);
}

static int read_clock(const struct json *v, const struct json_field *f, void *of) {
    const char *text = json_string(v);
    char *end = NULL;
    errno = 0;
    if (text != NULL)
        ((struct node_summary *)of)->clock_ns = strtoll(text, &end, 10);
    return text == NULL || strlen(text) > 20 || errno != 0 || end == text || *end != '\0' ? -EINVAL
                                                                                          : 0;
}

static const struct json_field fields[] = {
    {.key = "facts", .kind = JSON_FIELD_OBJECT, .table = &node_summary_facts},
    {JSON_FIELD(node_summary, OWN, "clock_ns", clock_ns), .write = write_clock, .read = read_clock,
     JSON_IF_TRUE(node_summary, has_clock)},
    {JSON_LIST(node_summary, "findings", findings, n_findings, node_summary_finding)},
};
static const struct json_table table = {JSON_ROWS(node_summary, fields), .open = true};

static void write_whole(const struct node_summary *d, struct strbuf *to) {
    strbuf_clear(to);
    json_table_text(&table, d, to);
}

/* Without room, findings are dropped first, then the last facts: escapes take several bytes. */
void node_summary_write(const struct node_summary *d, size_t max, struct strbuf *to) {
    struct node_summary part = *d;
    uint32_t n_facts = NODE_SUMMARY_FACT_COUNT;
    part.n_findings = 0;
    for (uint32_t i = 0; i < d->n_findings; i++)
        if (d->findings[i].level != NODE_SUMMARY_OK)
            part.findings[part.n_findings++] = d->findings[i];
    write_whole(&part, to);
    while (to->len >= max && (part.n_findings > 0 || n_facts > 0)) {
        if (part.n_findings > 0)
            part.n_findings--;
        else
            part.values[--n_facts][0] = '\0';
        write_whole(&part, to);
    }
}

static const struct json_limits limits = {
    .max_bytes = 64 * 1024, .max_depth = 4, .max_values = 512};

int node_summary_read(const char *text, size_t len, struct node_summary *ret, struct err *err) {
    memset(ret, 0, sizeof *ret);
    int r = json_table_parse(text, len, &limits, &table, ret, err);
    return r < 0 && r != -ENOMEM ? -EINVAL : r;
}

/* ==== the GPUs ==== */

#define NAMED_MAX 8 /* processes in one sentence */

/* False: there is a fault, and it was reported. */
static bool check_nvml(const struct node_summary_gpus *in, struct node_summary *d) {
    const struct nvml_report *r = in->report;
    if (r == NULL || (r->found && r->whole))
        return true;
    if (r->fault == NVML_FAULT_LATE)
        node_summary_add(d, NODE_SUMMARY_FAIL, "NVML-HUNG", "%.160s: a GPU or its driver hangs",
                         r->why_not);
    else if (!r->whole || r->fault == NVML_FAULT_ERROR)
        node_summary_add(d, NODE_SUMMARY_FAIL, "NVML-FAILED",
                         "%.160s: CUDA will probably fail as well (nvidia-smi may show more)",
                         r->why_not);
    else if (in->n_nvidia > 0)
        node_summary_add(d, NODE_SUMMARY_WARN, "NVML-MISSING",
                         "the PCI bus has %u GPUs of NVIDIA, and there is no driver for them here: "
                         "%.100s",
                         in->n_nvidia, r->why_not);
    else
        return true;
    return false;
}

/* ---- the GPUs ---- */

static struct pci_addr_text address_text(const struct node_summary_gpus *in, uint32_t index) {
    const struct topology *t = in->topology;
    for (uint32_t i = 0; i < t->n_gpus; i++)
        if (t->gpus[i].index == index && t->gpus[i].pci < t->n_pci)
            return pci_addr_text(t->pci[t->gpus[i].pci].at);
    return (struct pci_addr_text){"address unknown"};
}

/* One finding for each lost GPU, and one for all GPUs with another fault. Returns how many checks
 * have failed. */
static uint32_t check_faults(const struct node_summary_gpus *in, struct node_summary *d) {
    uint32_t n_failed = 0;
    for (int f = 0; f < NVML_GPU_FAULTS; f++) {
        enum node_summary_level level = f == NVML_GPU_SLOW ? NODE_SUMMARY_WARN : NODE_SUMMARY_FAIL;
        struct node_summary_finding *found = NULL;
        uint32_t more = 0;
        for (uint32_t i = 0; in->report != NULL && i < in->report->n; i++) {
            const char *what = nvml_gpu_fault(&in->report->gpus[i], (enum nvml_gpu_fault)f);
            if (what == NULL || (found != NULL && f > NVML_GPU_RESET && ++more > 0))
                continue;
            found = node_summary_add(d, level, nvml_gpu_codes[f], "GPU %u (%s) %s", i,
                                     address_text(in, i).text, what);
            n_failed += level == NODE_SUMMARY_FAIL;
        }
        size_t len = more > 0 ? strlen(found->text) : 0;
        if (more > 0)
            (void)snprintf(found->text + len, sizeof found->text - len, " (%u more GPU%s as well)",
                           more, more == 1 ? "" : "s");
    }
    return n_failed;
}

bool node_summary_is_gpu_health(const char *code) {
    bool found = strcmp(code, "XID") == 0;
    for (int f = NVML_GPU_RECOVERY; f < NVML_GPU_FAULTS && !found; f++)
        found = strcmp(code, nvml_gpu_codes[f]) == 0;
    return found;
}

/* A GPU of the kernel's log that NVML does not have is another container's. */
void node_summary_add_xid(void *gpus, const char *record, size_t len) {
    struct node_summary_gpus *in = gpus;
    struct nvml_xid x;
    for (uint32_t i = 0; xid_read(record, len, &x) && i < in->report->n; i++) {
        const struct nvml_gpu *g = &in->report->gpus[i];
        x.at.fn = g->at.fn; /* the log does not have it */
        if (g->has_address && pci_addr_compare(g->at, x.at) == 0)
            in->xids[i] = x;
    }
}

static void check_xids(const struct node_summary_gpus *in, struct node_summary *d) {
    for (uint32_t i = 0; in->report != NULL && i < in->report->n; i++) {
        const struct nvml_gpu *g = &in->report->gpus[i];
        const struct nvml_xid *x = &in->xids[i];
        char name[GPU_NAME_MAX];
        if (x->xid == 0 || !xid_is_fatal(x->xid, g->asked ? g->recovery : NVML_UNKNOWN))
            continue;
        gpu_name(i, x->at, name);
        node_summary_add(d, NODE_SUMMARY_FAIL, "XID",
                         "%s had Xid %u %.1f hours ago: it needs a reset, or the node a reboot",
                         name, x->xid,
                         in->now_ns > x->at_ns ? (double)(in->now_ns - x->at_ns) / 3.6e12 : 0.0);
    }
}

static uint32_t check_width(const struct topology *t, struct node_summary *d) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        const struct topo_gpu *g = &t->gpus[i];
        if (g->lost || g->cur_width == 0 || g->max_width <= g->cur_width)
            continue;
        n++;
        node_summary_add(d, NODE_SUMMARY_FAIL, "PCIE-WIDTH", "GPU %u has x%u of x%u PCIe lanes",
                         g->index, g->cur_width, g->max_width);
    }
    return n;
}

/* Compares NVML's number of GPUs with the PCI bus. A GPU that is cut off, or that belongs to
 * another container, is missing in one of the two. */
static void check_count(const struct node_summary_gpus *in, struct node_summary *d) {
    const struct nvml_report *r = in->report;
    if (r != NULL && r->found && in->n_nvidia > 0 && r->n != in->n_nvidia)
        node_summary_add(
            d, NODE_SUMMARY_WARN, "GPU-COUNT",
            "the driver has %u GPU%s, the PCI bus %u (another container's, or one that did "
            "not start)",
            r->n, r->n == 1 ? "" : "s", in->n_nvidia);
}

static uint32_t check_mig(const struct topology *t, struct node_summary *d) {
    uint32_t n = 0, first = 0;
    for (uint32_t i = t->n_gpus; i > 0; i--) {
        n += t->gpus[i - 1].mig;
        first = t->gpus[i - 1].mig ? i - 1 : first;
    }
    if (n > 0)
        node_summary_add(
            d, NODE_SUMMARY_WARN, "GPU-MIG",
            "%u of %u GPUs are in MIG mode, the first being GPU %u with %u MIG devices, "
            "which NCCL does not connect",
            n, t->n_gpus, t->gpus[first].index, t->gpus[first].n_mig);
    return n;
}

static void check_fabric(const struct node_summary_gpus *in, struct node_summary *d) {
    char text[TOPO_TEXT_MAX];
    _cleanup_(strbuf_fini) struct strbuf degraded = {0};
    if (in->report != NULL && nvml_report_fabric(in->report, text))
        node_summary_add(d, NODE_SUMMARY_FAIL, "FABRIC-DOWN", "%s", text);
    if (topology_domain_split(in->topology, text))
        node_summary_add(d, NODE_SUMMARY_FAIL, "DOMAIN-SPLIT", "%s", text);
    if (topology_fabric_degraded(in->topology, &degraded))
        node_summary_add(d, NODE_SUMMARY_FAIL, "FABRIC-DEGRADED", "%s", strbuf_text(&degraded));
}

/* ---- NVLinks ---- */

static uint32_t links_of(const struct topology *t, uint32_t gpu) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_nvlinks; i++)
        if (t->nvlinks[i].gpu == gpu && !t->nvlinks[i].c2c)
            n += t->nvlinks[i].count;
    return n;
}

static uint32_t switches_of(const struct topology *t) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_pci; i++)
        n += t->pci[i].vendor == PCI_VENDOR_NVIDIA &&
             t->pci[i].class_id >> 8 == PCI_CLASS_OTHER_BRIDGE;
    return n;
}

/* Skips lost GPUs, because their links are not known. */
static void check_links(const struct topology *t, struct node_summary *d) {
    uint32_t most = 0, least = UINT32_MAX, worst = 0, n_gpus = 0;
    for (uint32_t i = 0; i < t->n_gpus && t->nvlinks_known; i++) {
        if (t->gpus[i].lost || t->gpus[i].vendor != TOPO_VENDOR_NVIDIA)
            continue;
        uint32_t n = links_of(t, i);
        worst = n < least ? i : worst;
        least = MIN2(least, n);
        most = MAX2(most, n);
        n_gpus++;
    }
    if (n_gpus < 2)
        return;
    if (least != most)
        node_summary_add(d, NODE_SUMMARY_FAIL, "NVLINK-UNEQUAL",
                         "GPU %u has %u NVLinks that are up, others have %u", t->gpus[worst].index,
                         least, most);
    else if (most == 0 && switches_of(t) > 0)
        node_summary_add(
            d, NODE_SUMMARY_FAIL, "NVLINK-DOWN",
            "there are %u NVSwitches, and no NVLink is up: is nvidia-fabricmanager running?",
            switches_of(t));
    else if (most > 0)
        node_summary_add(d, NODE_SUMMARY_OK, "NVLINK", "%u NVLinks up on each GPU", most);
}

/* ---- all of them ---- */

static const char *name_of(const struct topo_gpu *g) {
    return g->name[0] == '\0' ? "unnamed" : g->name;
}

/* "4 x A, 2 x B", in the order of the first of each. */
static void write_models(const struct topology *t, uint32_t n_mig, struct strbuf *to) {
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        uint32_t n = 0, before = 0;
        for (uint32_t k = 0; k < t->n_gpus; k++) {
            bool same = strcmp(name_of(&t->gpus[k]), name_of(&t->gpus[i])) == 0;
            n += same;
            before += same && k < i;
        }
        if (before == 0)
            strbuf_printf(to, "%s%u x %s", i > 0 ? ", " : "", n, name_of(&t->gpus[i]));
    }
    if (n_mig > 0)
        strbuf_printf(to, " (%u in MIG mode)", n_mig);
}

void node_summary_gpus(const struct node_summary_gpus *in, struct node_summary *d) {
    const struct topology *t = in->topology;
    _cleanup_(strbuf_fini) struct strbuf models = {0};
    bool fine = check_nvml(in, d);
    fine = check_faults(in, d) == 0 && fine;
    fine = check_width(t, d) == 0 && fine;
    check_count(in, d);
    write_models(t, check_mig(t, d), &models);
    node_summary_set(d, NODE_SUMMARY_GPUS, "%s", t->n_gpus == 0 ? "none" : strbuf_text(&models));
    node_summary_set(d, NODE_SUMMARY_DRIVER, "%s", t->driver);
    node_summary_set(d, NODE_SUMMARY_CUDA, "%s", t->cuda);
    if (t->n_gpus > 0 && fine)
        node_summary_add(d, NODE_SUMMARY_OK, "GPU", "%.200s", strbuf_text(&models));
    check_fabric(in, d);
    check_links(t, d);
    check_xids(in, d);
}

/* ---- processes on them ---- */

/* Whether it holds GPUs open without using them: a service of the driver or of a display. */
static bool is_gpu_service(const char *name) {
    static const char *const names[] = {"nvidia-persiste",
                                        "nvidia-cuda-mps",
                                        "nv-hostengine",
                                        "nv-fabricmanage",
                                        "dcgm",
                                        "Xorg",
                                        "gnome-shell",
                                        "nvsm"};
    return text_begins_with_any(name, names, ARRAY_SIZE(names));
}

static bool was_before(const struct node_summary_process *all, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (all[i].pid != 0 && all[k].pid == all[i].pid)
            return true;
    return false;
}

static void add_process(const struct node_summary_process *all, uint32_t n, uint32_t i,
                        struct strbuf *to) {
    strbuf_printf(to, "%s%.16s (%llu", to->len > 0 ? ", " : "", all[i].name,
                  (unsigned long long)all[i].pid);
    for (uint32_t k = i; k < n; k++)
        if (all[k].pid == all[i].pid && all[k].gpu != TOPO_NONE)
            strbuf_printf(to, ", GPU %u", all[k].gpu);
    strbuf_add(to, ")");
}

void node_summary_busy(const struct node_summary_process *all, uint32_t n, struct node_summary *d) {
    _cleanup_(strbuf_fini) struct strbuf names = {0};
    uint32_t seen = 0, hidden = 0, gpu = TOPO_NONE;
    for (uint32_t i = 0; i < n; i++) {
        if (was_before(all, i) || (all[i].seen && is_gpu_service(all[i].name)))
            continue;
        if (all[i].seen && seen++ < NAMED_MAX)
            add_process(all, n, i, &names);
        if (!all[i].seen && hidden++ == 0)
            gpu = all[i].gpu;
    }
    node_summary_set(d, NODE_SUMMARY_PROCESSES, "%u", seen + hidden);
    if (seen > 0)
        node_summary_add(d, NODE_SUMMARY_FAIL, "GPU-BUSY",
                         "%u process%s hold%s GPUs already: %.180s", seen, seen == 1 ? "" : "es",
                         seen == 1 ? "s" : "", strbuf_text(&names));
    if (hidden > 0)
        node_summary_add(
            d, NODE_SUMMARY_WARN, "GPU-BUSY",
            "NVML counts %u process%s on GPUs that can't be seen from here, the first on "
            "GPU %u: another container's, or hidden",
            hidden, hidden == 1 ? "" : "es", gpu);
    if (seen + hidden == 0)
        node_summary_add(d, NODE_SUMMARY_OK, "GPU-FREE", "no process holds a GPU");
}
