#include "topology/json/topology_json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/json/topology_json_priv.h"
#include "topology/model/distance.h"
#include "topology/nccl/nccl_graph.h"

/* ---- writing ---- */

/* The writer's context. */
struct context {
    const struct topology *t;
    const struct nccl_graph *graph; /* NULL: no prediction */
};

void topology_json_write_cpus(struct json_writer *w, const char *key, const struct cpuset *set) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    cpuset_write_list(set, &text);
    json_write_string(w, key, strbuf_text(&text));
}

void topology_json_write_bus_id(struct json_writer *w, const char *key, const struct pci_addr *at) {
    char text[TOPO_BUSID_MAX];
    if (at->dev > 31 || at->fn > 7) { /* unknown */
        json_write_null(w, key);
        return;
    }
    pci_addr_text(*at, text);
    json_write_string(w, key, text);
}

void topology_json_write_device(struct json_writer *w, const struct json_field *f, const void *of) {
    const struct topology *t = ((const struct context *)w->context)->t;
    uint32_t pci;
    memcpy(&pci, (const char *)of + f->offset, sizeof pci);
    if (pci < t->n_pci)
        topology_json_write_bus_id(w, f->key, &t->pci[pci].at);
    else
        json_write_null(w, f->key);
}

void topology_json_write_near_cpus(struct json_writer *w, const struct json_field *f,
                                   const void *of) {
    struct cpuset cpus;
    topology_near_cpus(((const struct context *)w->context)->t, ((const struct topo_gpu *)of)->numa,
                       &cpus);
    topology_json_write_cpus(w, f->key, &cpus);
}

/* Rounds half up to one decimal, for users who compare figures. */
static double rounded(double gbs) { return floor(gbs * 10 + 0.5) / 10; }

void topology_json_write_prediction(struct json_writer *w, const struct json_field *f,
                                    const void *of) {
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

void topology_json_write_nic_state(struct json_writer *w, const struct json_field *f,
                                   const void *of) {
    json_write_string(w, f->key, topo_port_state_names[topo_nic_state(of)]);
}

void topology_json_write_nic_rate(struct json_writer *w, const struct json_field *f,
                                  const void *of) {
    json_write_double(w, f->key, (double)topo_nic_rate_mbps(of) / 1000);
}

static const char *endpoint_name(const struct topology *t, struct topo_endpoint e, char out[16]) {
    if (!e.is_gpu)
        return t->nics[e.index].name;
    (void)snprintf(out, 16, "GPU%" PRIu32, t->gpus[e.index].index);
    return out;
}

void topology_json_write_links(struct json_writer *w, const struct json_field *f, const void *of) {
    const struct topology *t = of;
    uint32_t n = distance_endpoints(t);
    json_write_array_begin(w, f->key);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = i + 1; j < n; j++) {
            struct topo_endpoint a = distance_endpoint(t, i), b = distance_endpoint(t, j);
            struct topo_link link;
            char text[16], name[2][16];
            distance_between(t, a, b, &link);
            topo_link_text(link, text);
            json_write_object_begin(w, NULL);
            json_write_string(w, "a", endpoint_name(t, a, name[0]));
            json_write_string(w, "b", endpoint_name(t, b, name[1]));
            json_write_string(w, "path", text);
            json_write_object_end(w);
        }
    }
    json_write_array_end(w);
}

void topology_json_write(const struct topology *t, struct strbuf *to) {
    struct json_writer w = json_writer_of(to);
    struct nccl_graph *g = NULL;
    if (t->n_gpus > 0 && nccl_graph_new(t, &(struct nccl_options){0}, &g, NULL) < 0)
        g = NULL; /* NCCL would fail on this topology, so there is no prediction */
    w.context = &(struct context){t, g};
    json_write_object_begin(&w, NULL);
    json_write_u64(&w, "format", 1);
    json_table_write(&w, &topology_json_table, t);
    json_write_object_end(&w);
    nccl_graph_free(g);
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
    _cleanup_(freep) struct pci_addr *all = xcalloc((size_t)t->n_pci + 1, sizeof *all);
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
    uint64_t format;
    if (json_kind_of(doc) != JSON_OBJECT || json_get_u64(doc, "format", 1000, &format, NULL) < 0)
        return err_set(err, -EINVAL, "no topology of muster: it has no \"format\"");
    if (format != 1)
        return err_set(err, -EINVAL, "a topology of format %" PRIu64 "; this muster reads format 1",
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
    struct topology t = {.source = TOPO_JSON};
    r = read_whole(doc, &t, err);
    if (r < 0) {
        topology_fini(&t);
        return r;
    }
    topology_sort(&t);
    *ret = t;
    return 0;
}
