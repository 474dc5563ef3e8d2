/* What is wrong with an NCCL file, and in which line. */
#include "topology/nccl/nccl_xml_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "topology/nccl/nccl_graph_priv.h"

/* Each rank adds the bridges, GPU and NETs that the file lacks, before NCCL counts again. From this
 * number on NCCL is known to have exceeded its limit. */
#define MANY_ELEMENTS 120

struct checking {
    const struct nccl_xml *x;
    const struct topology *machine;
    struct nccl_xml_log log;
    unsigned errors;
    uint32_t repeated, first_repeated; /* nets under several CPUs; the first one, or TOPO_NONE */
};

/* Counts the errors, and passes all findings on. */
static void count_and_report(void *arg, enum nccl_xml_level level, uint32_t line,
                             const char *text) {
    struct checking *c = arg;
    c->errors += level == NCCL_XML_ERROR ? 1 : 0;
    if (c->log.fn != NULL)
        c->log.fn(c->log.arg, level, line, text);
}

#define REPORT(c, level, i, ...)                                                                  \
    nccl_xml_report(&(struct nccl_xml_log){count_and_report, c}, level, (c)->x->elements[i].line, \
                    __VA_ARGS__)

static bool get(const struct checking *c, uint32_t i, const char *key,
                char out[NCCL_XML_TEXT_MAX]) {
    return nccl_xml_attr(c->x, i, key, out);
}

/* ---- pci ---- */

static bool machine_has(const struct checking *c, const char *busid) {
    struct pci_addr at;
    return pci_addr_parse(busid, &at) < 0 || topology_find_pci(c->machine, at) != TOPO_NONE;
}

/* A made-up switch, in domain ffff, need not exist. */
static bool made_up(const char *busid) { return strncmp(busid, "ffff:", 5) == 0; }

/* NCCL ignores an attribute with a misspelled name, so its value is lost. */
static void check_attrs(struct checking *c, uint32_t i) {
    static const char *const known[] = {
        [NCCL_XML_SYSTEM] = " version ",
        [NCCL_XML_CPU] = " host_hash numaid affinity arch vendor familyid modelid ",
        [NCCL_XML_PCI] = " busid class vendor device subsystem_vendor subsystem_device link_speed "
                         "link_width ",
        [NCCL_XML_GPU] = " dev sm rank gdr mlopart ",
        [NCCL_XML_NVLINK] = " target count tclass ",
        [NCCL_XML_C2C] = " bw count ",
        [NCCL_XML_NIC] = " ",
        [NCCL_XML_NET] = " name dev speed port latency guid maxconn gdr coll net gin rma rail "
                         "plane keep ",
        [NCCL_XML_PCILINK] = " target ",
    };
    const struct nccl_xml_element *e = &c->x->elements[i];
    for (uint32_t k = 0; k < e->n_attrs; k++) {
        char key[NCCL_XML_TEXT_MAX + 2];
        const char *value = c->x->text + e->values[k].begin;
        (void)snprintf(key, sizeof key, " %.*s ", (int)e->keys[k].len,
                       c->x->text + e->keys[k].begin);
        if (e->keys[k].len > 0 && strstr(known[e->kind], key) == NULL)
            REPORT(c, NCCL_XML_NOTICE, i, "NCCL does not look at%.60sof %s", key,
                   nccl_xml_kind_name(e->kind));
        if (memchr(value, '&', e->values[k].len) != NULL)
            REPORT(c, NCCL_XML_WARNING, i, "\"%.*s\" stays as it is: NCCL knows no entities",
                   (int)MIN2(e->values[k].len, 60), value);
    }
}

static void check_pci(struct checking *c, uint32_t i) {
    char busid[NCCL_XML_TEXT_MAX], speed[NCCL_XML_TEXT_MAX];
    (void)get(c, i, "busid", busid);
    for (const char *p = busid; *p != '\0'; p++)
        if (*p >= 'A' && *p <= 'F') {
            REPORT(c, NCCL_XML_WARNING, i,
                   "busid %s has capitals: NCCL compares it as text with the "
                   "kernel's, which has none",
                   busid);
            break;
        }
    bool has_speed = get(c, i, "link_speed", speed);
    if (has_speed && !nccl_pci_speed_known(speed))
        REPORT(c, NCCL_XML_WARNING, i,
               "link_speed \"%s\" of %s is of no form that NCCL knows: it "
               "counts 8 GT/s (write \"32.0 GT/s PCIe\")",
               speed, busid);
    if (nccl_xml_attr(c->x, i, "link_width", speed) && strtol(speed, NULL, 0) == 0)
        REPORT(c, NCCL_XML_WARNING, i, "link_width \"%s\" of %s: NCCL counts 16 lanes", speed,
               busid);
    else if (nccl_xml_int(c->x, i, "link_width", 1) > 32 ||
             nccl_xml_int(c->x, i, "link_width", 1) < 0)
        REPORT(c, NCCL_XML_WARNING, i, "link_width \"%s\" of %s: PCIe has 32 lanes at most", speed,
               busid);
    if (c->machine != NULL && !made_up(busid) && !machine_has(c, busid))
        REPORT(c, NCCL_XML_ERROR, i, "%s is not on this machine: the file is of another one",
               busid);
}

static void check_double_pci(struct checking *c, uint32_t i) {
    char a[NCCL_XML_TEXT_MAX], b[NCCL_XML_TEXT_MAX];
    if (!get(c, i, "busid", a))
        return;
    for (uint32_t k = 0; k < i; k++)
        if (c->x->elements[k].kind == NCCL_XML_PCI && get(c, k, "busid", b) && strcmp(a, b) == 0) {
            REPORT(c, NCCL_XML_WARNING, i, "%s is in line %" PRIu32 ", too", a,
                   c->x->elements[k].line);
            return;
        }
}

/* ---- gpu ---- */

static bool is_rank(const struct checking *c, uint32_t i) {
    char rank[NCCL_XML_TEXT_MAX];
    return c->x->elements[i].kind == NCCL_XML_GPU && get(c, i, "rank", rank);
}

/* The GPU to which an nvlink leads; TOPO_NONE: to none in the file, or to itself. */
static uint32_t target_of(const struct checking *c, uint32_t link) {
    char target[NCCL_XML_TEXT_MAX], class[NCCL_XML_TEXT_MAX], busid[NCCL_XML_TEXT_MAX];
    struct pci_addr to, at;
    if (c->x->elements[link].kind != NCCL_XML_NVLINK || !get(c, link, "tclass", class) ||
        nccl_xml_class_of(class) != NCCL_CLASS_GPU || !get(c, link, "target", target) ||
        nccl_xml_int(c->x, link, "count", 0) <= 0 || pci_addr_parse(target, &to) < 0)
        return TOPO_NONE;
    for (uint32_t i = 0; i < c->x->n; i++)
        if (is_rank(c, i) && i != c->x->elements[link].parent &&
            get(c, c->x->elements[i].parent, "busid", busid) && pci_addr_parse(busid, &at) == 0 &&
            pci_addr_compare(to, at) == 0)
            return i;
    return TOPO_NONE;
}

static void check_nvlink(struct checking *c, uint32_t link) {
    const struct nccl_xml *x = c->x;
    char class[NCCL_XML_TEXT_MAX], target[NCCL_XML_TEXT_MAX], busid[NCCL_XML_TEXT_MAX];
    uint32_t gpu = x->elements[link].parent, peer = target_of(c, link);
    (void)get(c, link, "tclass", class);
    enum nccl_xml_class of = nccl_xml_class_of(class);
    if (of == NCCL_CLASS_PCI || of == NCCL_CLASS_NIC)
        REPORT(c, NCCL_XML_WARNING, link,
               "tclass \"%s\" is of no GPU (0x030200), NVSwitch (0x068000) or CPU (0x068001): NCCL "
               "takes it for an NVSwitch",
               class);
    if (peer == TOPO_NONE || !is_rank(c, gpu))
        return;
    bool back = false;
    for (uint32_t k = peer + 1; k < x->n && !back; k++)
        back = x->elements[k].parent == peer && target_of(c, k) == gpu;
    (void)get(c, link, "target", target);
    (void)get(c, x->elements[gpu].parent, "busid", busid);
    if (!back)
        REPORT(c, NCCL_XML_ERROR, link,
               "the GPU of line %" PRIu32 " has no nvlink from %s back to %s: NCCL fails on this; "
               "add it there, or leave this one out",
               x->elements[peer].line, target, busid);
}

/* Checks the links of a GPU: links to itself (reported when reading), and more links than any such
 * GPU has. */
static void check_gpu(struct checking *c, uint32_t i) {
    const struct nccl_xml *x = c->x;
    char busid[NCCL_XML_TEXT_MAX];
    (void)get(c, x->elements[i].parent, "busid", busid);
    long count = 0, sm = nccl_xml_int(x, i, "sm", 0);
    bool any = false;
    for (uint32_t k = i + 1; k < x->n; k++) {
        if (x->elements[k].parent != i || x->elements[k].kind != NCCL_XML_NVLINK)
            continue;
        long n = nccl_xml_int(x, k, "count", -1);
        any = true;
        if (n <= 0 || n > 1 << 16)
            REPORT(c, NCCL_XML_ERROR, k,
                   "nvlink without a count above 0: write it, or leave the "
                   "nvlink out");
        else
            count += n;
    }
    uint32_t most = nccl_nvlinks_max(sm > 0 && sm < 1000 ? (uint32_t)sm : 0);
    if (any && count > (long)most)
        REPORT(c, NCCL_XML_ERROR, i,
               "GPU %s has %ld NVLinks here; a GPU of compute capability "
               "%ld.%ld has %" PRIu32 " at most",
               busid, count, sm / 10, sm % 10, most);
    if (is_rank(c, i) && nccl_xml_int(x, i, "dev", -1) < 0)
        REPORT(c, NCCL_XML_NOTICE, i,
               "gpu without a dev: NCCL fills it in on a machine that has it");
    for (uint32_t k = 0; k < i; k++)
        if (x->elements[k].kind == NCCL_XML_GPU &&
            nccl_xml_int(x, k, "dev", -1) == nccl_xml_int(x, i, "dev", -2))
            REPORT(c, NCCL_XML_ERROR, i, "dev %ld is the GPU of line %" PRIu32 ", too",
                   nccl_xml_int(x, i, "dev", -1), x->elements[k].line);
}

/* ---- net ---- */

static uint32_t cpu_of(const struct nccl_xml *x, uint32_t i) {
    while (i != TOPO_NONE && x->elements[i].kind != NCCL_XML_CPU)
        i = x->elements[i].parent;
    return i;
}

/* The first of several equal nets checks the others. */
static void check_net(struct checking *c, uint32_t i) {
    const struct nccl_xml *x = c->x;
    char name[NCCL_XML_TEXT_MAX];
    long dev = nccl_xml_int(x, i, "dev", -1);
    uint32_t again = 0;
    if (dev < 0)
        return;
    char speed[NCCL_XML_TEXT_MAX];
    if (!get(c, i, "name", name))
        REPORT(c, NCCL_XML_WARNING, i,
               "net without a name: NCCL looks for its NETs by name, and adds them once more");
    if (!get(c, i, "speed", speed))
        REPORT(c, NCCL_XML_NOTICE, i,
               "net without a speed: NCCL fills it in on a machine that has it");
    else if (strtol(speed, NULL, 0) <= 0)
        REPORT(c, NCCL_XML_WARNING, i, "speed \"%s\" of the net: NCCL counts 10 Gb/s", speed);
    for (uint32_t k = 0; k < x->n; k++) {
        if (k == i || x->elements[k].kind != NCCL_XML_NET || nccl_xml_int(x, k, "dev", -1) != dev)
            continue;
        if (k < i)
            return;
        char other[NCCL_XML_TEXT_MAX];
        (void)get(c, k, "name", other);
        if (strcmp(name, other) != 0)
            REPORT(c, NCCL_XML_ERROR, k, "dev %ld is %s here and %s in line %" PRIu32, dev, other,
                   name, x->elements[i].line);
        else if (cpu_of(x, k) == cpu_of(x, i))
            REPORT(c, NCCL_XML_WARNING, k, "net %s is in line %" PRIu32 ", too", name,
                   x->elements[i].line);
        else
            again++;
    }
    if (again > 0 && c->repeated++ == 0)
        c->first_repeated = i;
}

/* ---- cpu, the whole file ---- */

/* For NCCL, unknown words mean an unknown CPU. */
static void check_model(struct checking *c, uint32_t i) {
    static const char *const archs[] = {"x86_64", "arm64", "ppc64"};
    static const char *const vendors[] = {"GenuineIntel", "AuthenticAMD", "CentaurHauls",
                                          "  Shanghai  "};
    char arch[NCCL_XML_TEXT_MAX], vendor[NCCL_XML_TEXT_MAX];
    bool has_arch = get(c, i, "arch", arch), has_vendor = get(c, i, "vendor", vendor);
    if (has_arch && !text_is_any(arch, archs, ARRAY_SIZE(archs)))
        REPORT(c, NCCL_XML_WARNING, i, "arch \"%s\": NCCL knows x86_64, arm64 and ppc64", arch);
    if (has_vendor && strcmp(arch, "x86_64") == 0 &&
        !text_is_any(vendor, vendors, ARRAY_SIZE(vendors)))
        REPORT(c, NCCL_XML_WARNING, i,
               "vendor \"%s\": NCCL does not know it (GenuineIntel, AuthenticAMD), and counts no "
               "limit between NUMA nodes",
               vendor);
}

static void check_cpu(struct checking *c, uint32_t i) {
    char a[NCCL_XML_TEXT_MAX], b[NCCL_XML_TEXT_MAX];
    check_model(c, i);
    for (uint32_t k = 0; k < i; k++)
        if (c->x->elements[k].kind == NCCL_XML_CPU &&
            nccl_xml_int(c->x, k, "numaid", -1) == nccl_xml_int(c->x, i, "numaid", -2))
            REPORT(c, NCCL_XML_WARNING, i, "numaid %ld is in line %" PRIu32 ", too",
                   nccl_xml_int(c->x, i, "numaid", -1), c->x->elements[k].line);
    if (!get(c, i, "host_hash", a))
        return;
    for (uint32_t k = 0; k < i; k++)
        if (c->x->elements[k].kind == NCCL_XML_CPU && get(c, k, "host_hash", b)) {
            if (strcmp(a, b) != 0)
                REPORT(c, NCCL_XML_ERROR, i,
                       "host_hash %s, and %s in line %" PRIu32 ": a file is "
                       "for one node",
                       a, b, c->x->elements[k].line);
            return;
        }
}

static void check_elements(struct checking *c) {
    for (uint32_t i = 0; i < c->x->n; i++) {
        check_attrs(c, i);
        switch (c->x->elements[i].kind) {
        case NCCL_XML_CPU: check_cpu(c, i); break;
        case NCCL_XML_PCI:
            check_pci(c, i);
            check_double_pci(c, i);
            break;
        case NCCL_XML_GPU: check_gpu(c, i); break;
        case NCCL_XML_NET: check_net(c, i); break;
        case NCCL_XML_NVLINK: check_nvlink(c, i); break;
        case NCCL_XML_C2C:
            if (nccl_xml_int(c->x, i, "bw", 0) <= 0 || nccl_xml_int(c->x, i, "count", 0) <= 0)
                REPORT(c, NCCL_XML_WARNING, i,
                       "c2c without a bw and a count above 0 has no "
                       "bandwidth");
            break;
        case NCCL_XML_SYSTEM:
        case NCCL_XML_NIC:
        case NCCL_XML_PCILINK: break;
        }
    }
    if (c->repeated > 0) {
        char name[NCCL_XML_TEXT_MAX];
        (void)get(c, c->first_repeated, "name", name);
        REPORT(c, NCCL_XML_NOTICE, c->first_repeated,
               "%" PRIu32 " nets, %s the first, stand under several CPUs: each is one device, "
               "without a PCI device of its own",
               c->repeated, name);
    }
    if (c->x->n >= MANY_ELEMENTS)
        nccl_xml_report(&(struct nccl_xml_log){count_and_report, c}, NCCL_XML_WARNING, 0,
                        "%" PRIu32
                        " elements: with the bridges, GPUs and NETs that NCCL adds on the "
                        "machine they may pass its limit of %d (\"too many XML nodes\")",
                        c->x->n, NCCL_XML_ELEMENTS_MAX);
}

/* If the file lacks some of the machine's GPUs, their place is undefined: NCCL adds them, without
 * the file's switches. */
static void check_forgotten(struct checking *c) {
    const struct topology *m = c->machine;
    for (uint32_t i = 0; m != NULL && i < m->n_gpus; i++) {
        if (m->gpus[i].pci >= m->n_pci)
            continue;
        char at[TOPO_BUSID_MAX], busid[NCCL_XML_TEXT_MAX];
        bool found = false;
        struct pci_addr of;
        pci_addr_text(m->pci[m->gpus[i].pci].at, at);
        for (uint32_t k = 0; k < c->x->n && !found; k++)
            found = c->x->elements[k].kind == NCCL_XML_PCI && get(c, k, "busid", busid) &&
                    pci_addr_parse(busid, &of) == 0 &&
                    pci_addr_compare(of, m->pci[m->gpus[i].pci].at) == 0;
        if (!found)
            nccl_xml_report(&(struct nccl_xml_log){count_and_report, c}, NCCL_XML_WARNING, 0,
                            "GPU %" PRIu32 " (%s) of this machine is not in the file",
                            m->gpus[i].index, at);
    }
}

/* Even if a file can be read, NCCL can fail on its graph. */
static void check_graph(struct checking *c, const struct topology *t) {
    struct nccl_graph *g = NULL;
    struct err err = {0};
    if (nccl_graph_new(t, NULL, &g, &err) < 0)
        nccl_xml_report(&(struct nccl_xml_log){count_and_report, c}, NCCL_XML_ERROR, 0, "%s",
                        err.text);
    nccl_graph_free(g);
}

unsigned nccl_xml_check(const char *text, size_t len, const struct topology *machine,
                        nccl_xml_message_fn *log, void *arg) {
    _cleanup_(freep) struct nccl_xml *x = xcalloc(1, sizeof *x);
    _cleanup_(topology_fini) struct topology t = {0};
    struct checking c = {.x = x, .machine = machine, .log = {log, arg}};
    struct nccl_xml_log none = {NULL, NULL};
    struct err err = {0};
    uint32_t line;
    int r = nccl_xml_parse(text, len, x, &none, &line, &err);
    if (r == 0)
        r = nccl_xml_read(text, len, &t, count_and_report, &c, &err);
    if (r < 0) {
        const char *sentence = err.text;
        unsigned at = 0;
        int begin = 0;
        if (sscanf(sentence, "line %u: %n", &at, &begin) == 1 && begin > 0)
            sentence += begin; /* the finding has its own line */
        count_and_report(&c, NCCL_XML_ERROR, at, sentence);
        return c.errors;
    }
    check_elements(&c);
    check_forgotten(&c);
    if (c.errors == 0) /* else it fails because of errors that were reported */
        check_graph(&c, &t);
    return c.errors;
}
