#include "topology/json/topology_json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_table.h"
#include "topology/model/distance.h"
#include "topology/model/topology.h"
#include "topology/nccl/nccl_graph.h"

extern const struct json_table topology_json_table;

/* ---- writing ---- */

/* The writer's context. */
struct context {
    const struct topology *t;
    const struct nccl_graph *graph; /* NULL: no prediction */
};

static void put_cpus(struct json_writer *w, const char *key, const struct cpuset *set) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    cpuset_write_list(set, &text);
    json_write_string(w, key, strbuf_text(&text));
}

static void put_bus_id(struct json_writer *w, const char *key, const struct pci_addr *at) {
    if (at->dev > 31 || at->fn > 7) /* unknown */
        json_write_null(w, key);
    else
        json_write_string(w, key, pci_addr_text(*at).text);
}

/* Fields of the tables. A field for a device holds its index in pci[]. */
static void write_device(struct json_writer *w, const struct json_field *f, const void *of) {
    const struct topology *t = ((const struct context *)w->context)->t;
    uint32_t pci;
    memcpy(&pci, (const char *)of + f->offset, sizeof pci);
    if (pci < t->n_pci)
        put_bus_id(w, f->key, &t->pci[pci].at);
    else
        json_write_null(w, f->key);
}

static void write_near_cpus(struct json_writer *w, const struct json_field *f, const void *of) {
    struct cpuset cpus;
    topology_near_cpus(((const struct context *)w->context)->t, ((const struct topo_gpu *)of)->numa,
                       &cpus);
    put_cpus(w, f->key, &cpus);
}

/* Rounds half up to one decimal, for users who compare figures. */
static double rounded(double gbs) { return floor(gbs * 10 + 0.5) / 10; }

static void write_prediction(struct json_writer *w, const struct json_field *f, const void *of) {
    const struct context *c = w->context;
    struct nccl_prediction p;
    if (c->graph == NULL)
        return;
    nccl_graph_predict(c->graph, (uint32_t)((const struct topo_gpu *)of - c->t->gpus), &p);
    if (p.n_nets == 0)
        return;
    json_write_object_begin(w, f->key);
    json_write_string(w, "name", p.nets[0]);
    json_write_string(w, "path", nccl_path_name(p.path));
    char gbs[40];
    (void)snprintf(gbs, sizeof gbs, "%.1f", rounded(p.bandwidth));
    json_write_raw(w, "bandwidth", gbs);
    json_write_object_end(w);
    json_write_array_begin(w, "nics");
    for (uint32_t i = 0; i < p.n_nets; i++)
        json_write_string(w, NULL, p.nets[i]);
    json_write_array_end(w);
}

static void write_nic_state(struct json_writer *w, const struct json_field *f, const void *of) {
    json_write_string(w, f->key, topo_port_state_names[topo_nic_state(of)]);
}

static void write_nic_rate(struct json_writer *w, const struct json_field *f, const void *of) {
    json_write_double(w, f->key, (double)topo_nic_rate_mbps(of) / 1000);
}

static void write_domain(struct json_writer *w, const struct json_field *f, const void *of) {
    char domain[TOPO_DOMAIN_MAX];
    (void)topology_domain(of, domain);
    json_write_string(w, f->key, domain);
}

static const char *endpoint_name(const struct topology *t, uint32_t i, char out[16]) {
    if (i >= t->n_gpus)
        return t->nics[i - t->n_gpus].name;
    (void)snprintf(out, 16, "GPU%" PRIu32, t->gpus[i].index);
    return out;
}

static void write_links(struct json_writer *w, const struct json_field *f, const void *of) {
    const struct topology *t = of;
    uint32_t n = distance_endpoints(t);
    json_write_array_begin(w, f->key);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = i + 1; j < n; j++) {
            char text[16], name[2][16];
            topo_link_text(distance_between(t, i, j), text);
            json_write_object_begin(w, NULL);
            json_write_string(w, "a", endpoint_name(t, i, name[0]));
            json_write_string(w, "b", endpoint_name(t, j, name[1]));
            json_write_string(w, "path", text);
            json_write_object_end(w);
        }
    }
    json_write_array_end(w);
}

void topology_json_write(const struct topology *t, struct strbuf *to) {
    struct json_writer w = json_writer_of(to);
    _cleanup_(nccl_graph_freep) struct nccl_graph *g = NULL;
    if (t->n_gpus > 0 && nccl_graph_new(t, &g, NULL) < 0)
        g = NULL; /* NCCL would fail on this topology, so there is no prediction */
    w.context = &(struct context){t, g};
    json_write_object_begin(&w, NULL);
    json_write_u64(&w, "format", 1);
    json_table_write(&w, &topology_json_table, t);
    json_write_object_end(&w);
}

/* ---- reading ---- */

/* Most values come from the links of 256 GPUs and 512 NICs. */
static const struct json_limits limits = {
    .max_bytes = TOPOLOGY_JSON_MAX, .max_depth = 8, .max_values = 4 << 20};

static int bad(struct err *err, const char *key, const char *what) {
    return err_set(err, -EINVAL, "a topology's \"%s\" is %s", key, what);
}

/* bus_id or null; it must name a device that exists. */
static int read_device(const struct topology *t, const struct json *obj, const char *key,
                       uint32_t *ret, struct err *err) {
    const struct json *v = json_member(obj, key);
    struct pci_addr at;
    *ret = TOPO_NONE;
    if (v == NULL || json_kind_of(v) == JSON_NULL)
        return 0;
    if (json_string(v) == NULL || pci_addr_parse(json_string(v), &at) < 0)
        return bad(err, key, "no PCI address");
    *ret = topology_find_pci(t, at);
    return *ret == TOPO_NONE ? bad(err, key, "a device that is not in \"pci\"") : 0;
}

/* Resolves the devices of all lists, after they have been read. */
static int read_devices(const struct json *doc, struct topology *t, struct err *err) {
    const struct {
        const char *list, *key;
        void *first;
        size_t offset, size;
    } all[] = {
        {"pci", "parent", t->pci, offsetof(struct topo_pci, parent), sizeof *t->pci},
        {"gpus", "bus_id", t->gpus, offsetof(struct topo_gpu, pci), sizeof *t->gpus},
        {"nics", "bus_id", t->nics, offsetof(struct topo_nic, pci), sizeof *t->nics},
        {"interfaces", "bus_id", t->netifs, offsetof(struct topo_netif, pci), sizeof *t->netifs},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        const struct json *list = json_member(doc, all[i].list);
        char *of = all[i].first;
        for (const struct json *v = list == NULL ? NULL : json_first(list); v != NULL;
             v = json_next(v), of += all[i].size) {
            int r = read_device(t, v, all[i].key, (void *)(of + all[i].offset), err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* The parents of each device must end at a root bus. */
static int check_parents(const struct topology *t, struct err *err) {
    for (uint32_t i = 0; i < t->n_pci; i++) {
        uint32_t at = i, steps = 0;
        while (t->pci[at].parent != TOPO_NONE && steps++ <= TOPO_PCI_DEPTH_MAX)
            at = t->pci[at].parent;
        if (steps > TOPO_PCI_DEPTH_MAX)
            return bad(err, "parent", "above itself");
    }
    return 0;
}

static int compare_addrs(const void *a, const void *b) {
    return pci_addr_compare(*(const struct pci_addr *)a, *(const struct pci_addr *)b);
}

/* Addresses name devices, so each must be unique. */
static int check_twice(const struct topology *t, struct err *err) {
    _cleanup_(freep) struct pci_addr *all = xcalloc(t->n_pci, sizeof *all);
    for (uint32_t i = 0; i < t->n_pci; i++)
        all[i] = t->pci[i].at;
    qsort(all, t->n_pci, sizeof *all, compare_addrs);
    for (uint32_t i = 1; i < t->n_pci; i++)
        if (compare_addrs(&all[i - 1], &all[i]) == 0)
            return bad(err, "pci", "a list with one address twice");
    return 0;
}

static int check_nvlinks(const struct topology *t, struct err *err) {
    for (uint32_t i = 0; i < t->n_nvlinks; i++) {
        const struct topo_nvlink *l = &t->nvlinks[i];
        if (l->gpu >= t->n_gpus || (l->peer != TOPO_NONE && l->peer >= t->n_gpus) || l->end == 0 ||
            (l->end == TOPO_NVLINK_GPU) != (l->peer != TOPO_NONE))
            return bad(err, "nvlinks", "about a GPU that is not there");
    }
    return 0;
}

static int check_whole(const struct topology *t, struct err *err) {
    for (uint32_t i = 0; i < t->n_cores; i++)
        if (cpuset_is_empty(&t->cores[i].cpus))
            return bad(err, "cores", "one without a CPU");
    for (uint32_t i = 0; i < t->n_gpus; i++)
        if (t->gpus[i].vendor == 0)
            return bad(err, "gpus", "one without a vendor");
    return check_nvlinks(t, err);
}

static int read_whole(const struct json *doc, struct topology *t, struct err *err) {
    uint32_t format;
    if (json_kind_of(doc) != JSON_OBJECT || json_get_u32(doc, "format", 1000, &format, NULL) < 0)
        return err_set(err, -EINVAL, "no topology of muster: it has no \"format\"");
    if (format != 1)
        return err_set(err, -EINVAL, "a topology of format %" PRIu32 "; this muster reads format 1",
                       format);
    int r = json_table_read(doc, &topology_json_table, t, err);
    if (r == 0)
        r = check_twice(t, err);
    if (r == 0)
        r = read_devices(doc, t, err);
    if (r == 0)
        r = check_parents(t, err);
    return r < 0 ? r : check_whole(t, err);
}

int topology_json_read(const char *text, size_t len, struct topology *ret, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    int r = json_parse(text, len, &limits, &doc, err);
    if (r < 0)
        return r;
    *ret = (struct topology){.source = TOPO_JSON};
    r = read_whole(doc, ret, err);
    if (r < 0)
        topology_fini(ret);
    else
        topology_sort(ret);
    return r;
}

/* ---- values that are not plain numbers or texts ---- */

/* struct cpuset as a list. */
static void write_cpus(struct json_writer *w, const struct json_field *f, const void *of) {
    put_cpus(w, f->key, (const void *)((const char *)of + f->offset));
}

/* Most nodes have CPUs of their own. */
static void write_near(struct json_writer *w, const struct json_field *f, const void *of) {
    if (!cpuset_is_empty(&((const struct topo_numa *)of)->near))
        write_cpus(w, f, of);
}

static int read_cpus(const struct json *v, const struct json_field *f, void *of) {
    const char *text = json_string(v);
    return text == NULL ? -EINVAL : cpuset_parse_list(text, (void *)((char *)of + f->offset));
}

/* struct pci_addr; null: unknown. */
static void write_bus_id(struct json_writer *w, const struct json_field *f, const void *of) {
    put_bus_id(w, f->key, (const void *)((const char *)of + f->offset));
}

static int read_bus_id(const struct json *v, const struct json_field *f, void *of) {
    struct pci_addr *at = (void *)((char *)of + f->offset);
    if (json_kind_of(v) == JSON_NULL) {
        memset(at, 0xff, sizeof *at);
        return 0;
    }
    return json_string(v) == NULL ? -EINVAL : pci_addr_parse(json_string(v), at);
}

/* `min` hexadecimal digits, of either case when read: uint16_t, uint32_t, uint64_t. */
static void write_digits(struct json_writer *w, const struct json_field *f, const void *of) {
    const void *p = (const char *)of + f->offset;
    char text[24];
    (void)snprintf(text, sizeof text, "%0*" PRIx64, (int)f->min,
                   f->size == sizeof(uint16_t)   ? *(const uint16_t *)p
                   : f->size == sizeof(uint32_t) ? *(const uint32_t *)p
                                                 : *(const uint64_t *)p);
    json_write_string(w, f->key, text);
}

static bool are_digits(const char *text, size_t n) {
    return text != NULL && strlen(text) == n && strspn(text, "0123456789abcdefABCDEF") == n;
}

static int read_digits(const struct json *v, const struct json_field *f, void *of) {
    void *p = (char *)of + f->offset;
    if (!are_digits(json_string(v), (size_t)f->min))
        return -EINVAL;
    uint64_t number = strtoull(json_string(v), NULL, 16);
    if (f->size == sizeof(uint16_t))
        *(uint16_t *)p = (uint16_t)number;
    else if (f->size == sizeof(uint32_t))
        *(uint32_t *)p = (uint32_t)number;
    else
        *(uint64_t *)p = number;
    return 0;
}

/* uint8_t[16] as 32 digits. */
static void write_gid(struct json_writer *w, const struct json_field *f, const void *of) {
    const uint8_t *gid = (const uint8_t *)of + f->offset;
    char text[33];
    for (size_t i = 0; i < 16; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", gid[i]);
    json_write_string(w, f->key, text);
}

static int read_gid(const struct json *v, const struct json_field *f, void *of) {
    const char *text = json_string(v);
    if (!are_digits(text, 32))
        return -EINVAL;
    for (size_t i = 0; i < 16; i++)
        ((uint8_t *)of)[f->offset + i] =
            (uint8_t)strtoul((char[3]){text[2 * i], text[2 * i + 1], '\0'}, NULL, 16);
    return 0;
}

static void write_warnings(struct json_writer *w, const struct json_field *f, const void *of) {
    const struct topology *t = of;
    json_write_array_begin(w, f->key);
    for (uint32_t i = 0; i < t->n_warnings; i++)
        json_write_string(w, NULL, t->warnings[i]);
    json_write_array_end(w);
}

static int read_warnings(const struct json *v, const struct json_field *f, void *of) {
    if (json_kind_of(v) != JSON_ARRAY)
        return -EINVAL;
    for (const struct json *e = json_first(v); e != NULL; e = json_next(e)) {
        if (json_string(e) == NULL)
            return -EINVAL;
        topology_warn(of, "%s", json_string(e));
    }
    return 0;
}

/* ---- the tables ---- */

/* A missing field stays unknown, as in a new element. */
#define FIELD(type, key, kind, member) \
    { JSON_FIELD(type, kind, key, member), .when = JSON_OPTIONAL }
#define I32(type, key, member) \
    { JSON_FIELD(type, I32, key, member), .min = INT32_MIN, .when = JSON_OPTIONAL }
#define NAMED(type, key, member, names) \
    { JSON_NAMED(type, key, member, names), .when = JSON_OPTIONAL }
#define OWN(type, name, member, what)                                                    \
    {                                                                                    \
        JSON_FIELD(type, OWN, name, member), .write = write_##what, .read = read_##what, \
                                             .when = JSON_OPTIONAL                       \
    }
#define DIGITS(type, name, member, n)                                                    \
    {                                                                                    \
        JSON_FIELD(type, OWN, name, member), .write = write_digits, .read = read_digits, \
                                             .min = (n), .when = JSON_OPTIONAL           \
    }
/* Fields that need the whole topology: it is used to write them, and the caller reads them. */
#define DERIVED(name, what) \
    { .key = (name), .kind = JSON_FIELD_OWN, .write = write_##what, .when = JSON_OPTIONAL }
#define DEVICE(type, name, member) \
    { JSON_FIELD(type, OWN, name, member), .write = write_device, .when = JSON_OPTIONAL }
#define LIST(type, name, member, table) \
    { JSON_LIST(type, name, member, n_##member, table), .when = JSON_OPTIONAL }
#define ARRAY(type, name, member, table) \
    { JSON_ARRAY_OF(type, name, member, add_##member, table), .when = JSON_OPTIONAL }
#define ADD(type, member, call) \
    static void *add_##member(void *of) { return call((struct type *)of); }
#define TABLE(type, rows) \
    { JSON_ROWS(type, rows), .open = true }

static const char *const sources[] = {[TOPO_LIVE] = "live",
                                      [TOPO_SYSROOT] = "sysroot",
                                      [TOPO_HWLOC_XML] = "hwloc",
                                      [TOPO_NCCL_XML] = "nccl",
                                      [TOPO_JSON] = "json"};
static const char *const vendors[] = {[TOPO_VENDOR_OTHER] = "other",
                                      [TOPO_VENDOR_NVIDIA] = "nvidia",
                                      [TOPO_VENDOR_AMD] = "amd",
                                      [TOPO_VENDOR_INTEL] = "intel"};
static const char *const ends[] = {
    [TOPO_NVLINK_GPU] = "gpu", [TOPO_NVLINK_SWITCH] = "switch", [TOPO_NVLINK_CPU] = "cpu"};
static const char *const nic_kinds[] = {[TOPO_NIC_RDMA] = "rdma",
                                        [TOPO_NIC_EFA] = "efa",
                                        [TOPO_NIC_SLINGSHOT] = "slingshot",
                                        [TOPO_NIC_SOCKET] = "socket"};
static const char *const link_layers[] = {[TOPO_LINK_UNKNOWN] = "unknown",
                                          [TOPO_LINK_INFINIBAND] = "InfiniBand",
                                          [TOPO_LINK_ETHERNET] = "Ethernet"};
static const char *const gid_types[] = {[TOPO_GID_UNKNOWN] = "unknown",
                                        [TOPO_GID_IB] = "IB",
                                        [TOPO_GID_ROCE_V1] = "RoCE v1",
                                        [TOPO_GID_ROCE_V2] = "RoCE v2"};

static const struct json_field numa_fields[] = {
    I32(topo_numa, "index", index),
    OWN(topo_numa, "cpus", cpus, cpus),
    {JSON_FIELD(topo_numa, OWN, "near_cpus", near), .write = write_near, .read = read_cpus,
     .when = JSON_OPTIONAL},
    FIELD(topo_numa, "memory_bytes", U64, bytes),
    I32(topo_numa, "package", package),
    FIELD(topo_numa, "gpu_memory", BOOL, gpu_memory),
};
static const struct json_table numa = TABLE(topo_numa, numa_fields);

static const struct json_field cores_fields[] = {
    OWN(topo_core, "cpus", cpus, cpus),
    FIELD(topo_core, "first", INDEX, first),
    I32(topo_core, "numa", numa),
    I32(topo_core, "package", package),
};
static const struct json_table cores = TABLE(topo_core, cores_fields);

static const struct json_field caches_fields[] = {
    FIELD(topo_cache, "level", INDEX, level),
    OWN(topo_cache, "cpus", cpus, cpus),
    FIELD(topo_cache, "first", INDEX, first),
};
static const struct json_table caches = TABLE(topo_cache, caches_fields);

static const struct json_field pci_fields[] = {
    OWN(topo_pci, "bus_id", at, bus_id),
    OWN(topo_pci, "root", root, bus_id),
    FIELD(topo_pci, "bridge", BOOL, bridge),
    DIGITS(topo_pci, "class", class_id, 6),
    DIGITS(topo_pci, "vendor", vendor, 4),
    DIGITS(topo_pci, "device", device, 4),
    DIGITS(topo_pci, "subvendor", subvendor, 4),
    DIGITS(topo_pci, "subdevice", subdevice, 4),
    I32(topo_pci, "numa", numa),
    FIELD(topo_pci, "link_speed", TEXT, link_speed),
    FIELD(topo_pci, "link_width", INDEX, link_width),
    FIELD(topo_pci, "link_gbs", DOUBLE, link_gbs),
    FIELD(topo_pci, "up_speed", TEXT, up_speed),
    FIELD(topo_pci, "up_width", INDEX, up_width),
    FIELD(topo_pci, "driver", TEXT, driver),
    DEVICE(topo_pci, "parent", parent),
};
static const struct json_table pci = TABLE(topo_pci, pci_fields);

static const struct json_field mig_uuid_fields[] = {
    {.kind = JSON_FIELD_TEXT, .size = TOPO_MIG_UUID_MAX},
};
static const struct json_table mig_uuid = {
    .fields = mig_uuid_fields, .n = 1, .size = TOPO_MIG_UUID_MAX};

static const struct json_field gpus_fields[] = {
    DEVICE(topo_gpu, "bus_id", pci),
    FIELD(topo_gpu, "index", INDEX, index),
    NAMED(topo_gpu, "vendor", vendor, vendors),
    FIELD(topo_gpu, "name", TEXT, name),
    FIELD(topo_gpu, "uuid", TEXT, uuid),
    I32(topo_gpu, "numa", numa),
    FIELD(topo_gpu, "sm", INDEX, sm),
    I32(topo_gpu, "gdr", gdr),
    I32(topo_gpu, "rank", rank),
    FIELD(topo_gpu, "pcie_gen", INDEX, cur_gen),
    FIELD(topo_gpu, "pcie_width", INDEX, cur_width),
    FIELD(topo_gpu, "pcie_gen_max", INDEX, max_gen),
    FIELD(topo_gpu, "pcie_width_max", INDEX, max_width),
    FIELD(topo_gpu, "mig", BOOL, mig),
    FIELD(topo_gpu, "lost", BOOL, lost),
    FIELD(topo_gpu, "memory_bytes", U64, memory_bytes),
    I32(topo_gpu, "memory_numa", memory_numa),
    FIELD(topo_gpu, "fabric_uuid", TEXT, fabric_uuid),
    FIELD(topo_gpu, "fabric_clique", INDEX, fabric_clique),
    NAMED(topo_gpu, "fabric", fabric, topo_fabric_names),
    FIELD(topo_gpu, "fabric_health", INDEX, fabric_health),
    FIELD(topo_gpu, "fabric_summary", INDEX, fabric_summary),
    FIELD(topo_gpu, "chassis", TEXT, chassis),
    FIELD(topo_gpu, "slot", INDEX, slot),
    FIELD(topo_gpu, "tray", INDEX, tray),
    DERIVED("cpus", near_cpus),
    {JSON_LIST(topo_gpu, "mig_devices", mig_uuids, n_mig, mig_uuid), .when = JSON_WHEN_SOME,
     .when_offset = offsetof(struct topo_gpu, n_mig)},
    DERIVED("nic", prediction), /* and "nics" */
};
static const struct json_table gpus = TABLE(topo_gpu, gpus_fields);

static const struct json_field nvlinks_fields[] = {
    FIELD(topo_nvlink, "gpu", INDEX, gpu),
    NAMED(topo_nvlink, "end", end, ends),
    FIELD(topo_nvlink, "peer", INDEX, peer),
    OWN(topo_nvlink, "target", target, bus_id),
    FIELD(topo_nvlink, "count", INDEX, count),
    FIELD(topo_nvlink, "c2c", BOOL, c2c),
    FIELD(topo_nvlink, "bandwidth", DOUBLE, bandwidth),
};
static const struct json_table nvlinks = TABLE(topo_nvlink, nvlinks_fields);

static const struct json_field gids_fields[] = {
    FIELD(topo_gid, "index", INDEX, index),
    OWN(topo_gid, "gid", gid, gid),
    NAMED(topo_gid, "type", type, gid_types),
    FIELD(topo_gid, "netdev", TEXT, netdev),
};
static const struct json_table gids = TABLE(topo_gid, gids_fields);

ADD(topo_port, gids, topo_port_add_gid)
static const struct json_field ports_fields[] = {
    FIELD(topo_port, "number", INDEX, number),
    NAMED(topo_port, "state", state, topo_port_state_names),
    FIELD(topo_port, "phys_state", TEXT, phys_state),
    NAMED(topo_port, "link_layer", link_layer, link_layers),
    FIELD(topo_port, "rate_mbps", U64, rate_mbps),
    FIELD(topo_port, "lid", INDEX, lid),
    ARRAY(topo_port, "gids", gids, gids),
};
static const struct json_table ports = TABLE(topo_port, ports_fields);

static const struct json_field nics_fields[] = {
    DEVICE(topo_nic, "bus_id", pci),
    FIELD(topo_nic, "name", TEXT, name),
    NAMED(topo_nic, "kind", kind, nic_kinds),
    I32(topo_nic, "numa", numa),
    FIELD(topo_nic, "netdev", TEXT, netdev),
    FIELD(topo_nic, "driver", TEXT, driver),
    FIELD(topo_nic, "virtual_function", BOOL, virtual_function),
    DIGITS(topo_nic, "node_guid", node_guid, 16),
    DIGITS(topo_nic, "sys_image_guid", sys_image_guid, 16),
    FIELD(topo_nic, "dev", INDEX, dev),
    FIELD(topo_nic, "latency", DOUBLE, latency),
    I32(topo_nic, "gdr", gdr),
    I32(topo_nic, "port", port),
    FIELD(topo_nic, "keep", BOOL, keep),
    DERIVED("state", nic_state),
    DERIVED("rate", nic_rate),
    LIST(topo_nic, "ports", ports, ports),
};
static const struct json_table nics = TABLE(topo_nic, nics_fields);

static const struct json_field addrs_fields[] = {
    FIELD(topo_netaddr, "addr", TEXT, addr),
    FIELD(topo_netaddr, "prefix", INDEX, prefix),
    FIELD(topo_netaddr, "ipv6", BOOL, ipv6),
    FIELD(topo_netaddr, "link_local", BOOL, link_local),
};
static const struct json_table addrs = TABLE(topo_netaddr, addrs_fields);

static const struct json_field netifs_fields[] = {
    DEVICE(topo_netif, "bus_id", pci),
    FIELD(topo_netif, "name", TEXT, name),
    FIELD(topo_netif, "ifindex", INDEX, ifindex),
    NAMED(topo_netif, "kind", kind, topo_netif_kind_names),
    I32(topo_netif, "numa", numa),
    FIELD(topo_netif, "driver", TEXT, driver),
    FIELD(topo_netif, "nic", TEXT, nic),
    FIELD(topo_netif, "up", BOOL, up),
    FIELD(topo_netif, "running", BOOL, running),
    FIELD(topo_netif, "mtu", INDEX, mtu),
    {JSON_FIELD(topo_netif, I64, "speed_mbps", speed_mbps), .min = -(int64_t)JSON_INTEGER_MAX,
     .when = JSON_OPTIONAL},
    LIST(topo_netif, "addrs", addrs, addrs),
};
static const struct json_table netifs = TABLE(topo_netif, netifs_fields);

ADD(topology, numa, topology_add_numa)
ADD(topology, cores, topology_add_core)
ADD(topology, caches, topology_add_cache)
ADD(topology, pci, topology_add_pci)
ADD(topology, gpus, topology_add_gpu)
ADD(topology, nvlinks, topology_add_nvlink)
ADD(topology, nics, topology_add_nic)
ADD(topology, netifs, topology_add_netif)
static const struct json_field whole_fields[] = {
    NAMED(topology, "source", source, sources),
    FIELD(topology, "from", TEXT, from),
    FIELD(topology, "host", TEXT, host),
    FIELD(topology, "arch", TEXT, arch),
    FIELD(topology, "cpu_vendor", TEXT, cpu_vendor),
    FIELD(topology, "cpu_family", INDEX, cpu_family),
    FIELD(topology, "cpu_model", INDEX, cpu_model),
    FIELD(topology, "packages", INDEX, packages),
    OWN(topology, "allowed", allowed, cpus),
    OWN(topology, "online", online, cpus),
    FIELD(topology, "driver", TEXT, driver),
    FIELD(topology, "cuda", TEXT, cuda),
    DERIVED("domain", domain),
    NAMED(topology, "imex_channel", imex, topo_imex_names),
    FIELD(topology, "nvlinks_known", BOOL, nvlinks_known),
    ARRAY(topology, "numa", numa, numa),
    ARRAY(topology, "cores", cores, cores),
    ARRAY(topology, "caches", caches, caches),
    ARRAY(topology, "pci", pci, pci),
    ARRAY(topology, "gpus", gpus, gpus),
    ARRAY(topology, "nvlinks", nvlinks, nvlinks),
    ARRAY(topology, "nics", nics, nics),
    ARRAY(topology, "interfaces", netifs, netifs),
    DERIVED("links", links),
    OWN(topology, "warnings", warnings, warnings),
};
const struct json_table topology_json_table = TABLE(topology, whole_fields);
