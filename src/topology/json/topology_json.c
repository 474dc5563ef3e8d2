#include "topology/json/topology_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "topology/json/topology_json_priv.h"
#include "topology/model/distance.h"
#include "topology/nccl/nccl_graph.h"

static void write_cpus(struct json_writer *w, const char *key, const struct cpuset *set) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    cpuset_write_list(set, &text);
    json_write_string(w, key, strbuf_text(&text));
}

static void write_double(struct json_writer *w, const char *key, double v) {
    char text[40];
    (void)snprintf(text, sizeof text, "%.17g", isfinite(v) ? v : 0.0);
    json_write_raw(w, key, text);
}

static void write_hex(struct json_writer *w, const char *key, int digits, uint32_t v) {
    char text[16];
    (void)snprintf(text, sizeof text, "%0*" PRIx32, digits, v);
    json_write_string(w, key, text);
}

static void write_bus_id(struct json_writer *w, const char *key, struct pci_addr at) {
    char text[TOPO_BUSID_MAX];
    if (at.dev > 31 || at.fn > 7) { /* unknown */
        json_write_null(w, key);
        return;
    }
    pci_addr_text(at, text);
    json_write_string(w, key, text);
}

static void write_gid(struct json_writer *w, const char *key, const uint8_t gid[16]) {
    char text[33];
    for (size_t i = 0; i < 16; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", gid[i]);
    json_write_string(w, key, text);
}

static void write_field(struct json_writer *w, const struct json_field *f, const void *p) {
    switch (f->kind) {
    case JSON_FIELD_BOOL: json_write_bool(w, f->key, *(const bool *)p); break;
    case JSON_FIELD_I32: json_write_i64(w, f->key, *(const int32_t *)p); break;
    case JSON_FIELD_U32:
        if (*(const uint32_t *)p == TOPO_NONE)
            json_write_null(w, f->key);
        else
            json_write_u64(w, f->key, *(const uint32_t *)p);
        break;
    case JSON_FIELD_U64:
        json_write_u64(w, f->key, MIN2(*(const uint64_t *)p, JSON_INTEGER_MAX));
        break;
    case JSON_FIELD_I64: json_write_i64(w, f->key, *(const int64_t *)p); break;
    case JSON_FIELD_DOUBLE: write_double(w, f->key, *(const double *)p); break;
    case JSON_FIELD_TEXT: json_write_string(w, f->key, p); break;
    case JSON_FIELD_NAME: {
        uint32_t v;
        memcpy(&v, p, sizeof v);
        const char *name = v < f->n_names ? f->names[v] : NULL;
        json_write_string(w, f->key, name != NULL ? name : "unknown");
        break;
    }
    case JSON_FIELD_CPUS: write_cpus(w, f->key, p); break;
    case JSON_FIELD_BUS_ID: write_bus_id(w, f->key, *(const struct pci_addr *)p); break;
    case JSON_FIELD_HEX16: write_hex(w, f->key, 4, *(const uint16_t *)p); break;
    case JSON_FIELD_HEX24: write_hex(w, f->key, 6, *(const uint32_t *)p); break;
    case JSON_FIELD_HEX64: json_write_hex(w, f->key, *(const uint64_t *)p); break;
    case JSON_FIELD_GID: write_gid(w, f->key, p); break;
    }
}

static void write_fields(struct json_writer *w, const struct json_table *table, const void *of) {
    for (size_t i = 0; i < table->n; i++)
        write_field(w, &table->fields[i], (const char *)of + table->fields[i].offset);
}

static void write_array(struct json_writer *w, const char *key, const struct json_table *table,
                        const void *array, uint32_t n, size_t size) {
    json_write_array_begin(w, key);
    for (uint32_t i = 0; i < n; i++) {
        json_write_object_begin(w, NULL);
        write_fields(w, table, (const char *)array + i * size);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_device(struct json_writer *w, const struct topology *t, const char *key,
                         uint32_t pci) {
    if (pci < t->n_pci)
        write_bus_id(w, key, t->pci[pci].at);
    else
        json_write_null(w, key);
}

/* ---- what has more than fields ---- */

static void write_pci(struct json_writer *w, const struct topology *t) {
    json_write_array_begin(w, "pci");
    for (uint32_t i = 0; i < t->n_pci; i++) {
        json_write_object_begin(w, NULL);
        write_fields(w, &topology_json_pci, &t->pci[i]);
        write_device(w, t, "parent", t->pci[i].parent);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

/* Half up, to one decimal: what people compare. */
static double rounded(double gbs) { return floor(gbs * 10 + 0.5) / 10; }

static void write_prediction(struct json_writer *w, const struct nccl_graph *g, uint32_t gpu) {
    struct nccl_prediction p;
    nccl_graph_predict(g, gpu, &p);
    if (p.n_nets == 0)
        return;
    json_write_object_begin(w, "nic");
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

static void write_mig_devices(struct json_writer *w, const struct topo_gpu *gpu) {
    if (gpu->n_mig == 0)
        return;
    json_write_array_begin(w, "mig_devices");
    for (uint32_t i = 0; i < gpu->n_mig; i++)
        json_write_string(w, NULL, gpu->mig_uuids[i]);
    json_write_array_end(w);
}

static void write_gpus(struct json_writer *w, const struct topology *t,
                       const struct nccl_graph *g) {
    json_write_array_begin(w, "gpus");
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        const struct topo_gpu *gpu = &t->gpus[i];
        struct cpuset cpus;
        topology_near_cpus(t, gpu->numa, &cpus);
        json_write_object_begin(w, NULL);
        write_device(w, t, "bus_id", gpu->pci);
        write_fields(w, &topology_json_gpus, gpu);
        write_cpus(w, "cpus", &cpus);
        write_mig_devices(w, gpu);
        if (g != NULL)
            write_prediction(w, g, i);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_ports(struct json_writer *w, const struct topo_nic *n) {
    json_write_array_begin(w, "ports");
    for (uint32_t i = 0; i < n->n_ports; i++) {
        const struct topo_port *p = &n->ports[i];
        json_write_object_begin(w, NULL);
        write_fields(w, &topology_json_ports, p);
        write_array(w, "gids", &topology_json_gids, p->gids, p->n_gids, sizeof *p->gids);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_nics(struct json_writer *w, const struct topology *t) {
    json_write_array_begin(w, "nics");
    for (uint32_t i = 0; i < t->n_nics; i++) {
        const struct topo_nic *n = &t->nics[i];
        json_write_object_begin(w, NULL);
        write_device(w, t, "bus_id", n->pci);
        write_fields(w, &topology_json_nics, n);
        json_write_string(w, "state", topo_port_state_name(topo_nic_state(n)));
        write_double(w, "rate", (double)topo_nic_rate_mbps(n) / 1000);
        write_ports(w, n);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_netifs(struct json_writer *w, const struct topology *t) {
    json_write_array_begin(w, "interfaces");
    for (uint32_t i = 0; i < t->n_netifs; i++) {
        const struct topo_netif *n = &t->netifs[i];
        json_write_object_begin(w, NULL);
        write_device(w, t, "bus_id", n->pci);
        write_fields(w, &topology_json_netifs, n);
        write_array(w, "addrs", &topology_json_addrs, n->addrs, n->n_addrs, sizeof *n->addrs);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static const char *endpoint_name(const struct topology *t, struct topo_endpoint e, char out[16]) {
    if (!e.is_gpu)
        return t->nics[e.index].name;
    (void)snprintf(out, 16, "GPU%" PRIu32, t->gpus[e.index].index);
    return out;
}

static void write_links(struct json_writer *w, const struct topology *t) {
    uint32_t n = distance_endpoints(t);
    json_write_array_begin(w, "links");
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
        g = NULL; /* NCCL would fail on it: nothing is predicted */
    json_write_object_begin(&w, NULL);
    json_write_u64(&w, "format", 1);
    write_fields(&w, &topology_json_whole, t);
    write_array(&w, "numa", &topology_json_numa, t->numa, t->n_numa, sizeof *t->numa);
    write_array(&w, "cores", &topology_json_cores, t->cores, t->n_cores, sizeof *t->cores);
    write_array(&w, "caches", &topology_json_caches, t->caches, t->n_caches, sizeof *t->caches);
    write_pci(&w, t);
    write_gpus(&w, t, g);
    write_array(&w, "nvlinks", &topology_json_nvlinks, t->nvlinks, t->n_nvlinks,
                sizeof *t->nvlinks);
    write_nics(&w, t);
    write_netifs(&w, t);
    write_links(&w, t);
    json_write_array_begin(&w, "warnings");
    for (uint32_t i = 0; i < t->n_warnings; i++)
        json_write_string(&w, NULL, t->warnings[i]);
    json_write_array_end(&w);
    json_write_object_end(&w);
    nccl_graph_free(g);
}
