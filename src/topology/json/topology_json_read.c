#include "topology/json/topology_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "topology/json/topology_json_priv.h"

/* The most values have the links of 256 GPUs and 512 NICs. */
static const struct json_limits limits = {
    .max_bytes = TOPOLOGY_JSON_MAX, .max_depth = 8, .max_values = 4 << 20};

static int bad(struct err *err, const char *key, const char *what) {
    return err_set(err, -EINVAL, "a topology's \"%s\" is %s", key, what);
}

/* ---- fields ---- */

static int read_hex(const struct json *v, size_t digits, uint64_t *ret) {
    const char *text = json_string(v);
    if (text == NULL || strlen(text) != digits || strspn(text, "0123456789abcdefABCDEF") != digits)
        return -EINVAL;
    *ret = strtoull(text, NULL, 16);
    return 0;
}

static int read_gid(const struct json *v, uint8_t ret[16]) {
    const char *text = json_string(v);
    if (text == NULL || strlen(text) != 32 || strspn(text, "0123456789abcdefABCDEF") != 32)
        return -EINVAL;
    for (size_t i = 0; i < 16; i++)
        ret[i] = (uint8_t)strtoul((char[3]){text[2 * i], text[2 * i + 1], '\0'}, NULL, 16);
    return 0;
}

static int read_text(const struct json *v, char *ret, size_t size) {
    const char *text = json_string(v);
    if (text == NULL || strlen(text) >= size)
        return -EINVAL;
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}

static int read_bus_id(const struct json *v, struct pci_addr *ret) {
    if (json_kind_of(v) == JSON_NULL) {
        memset(ret, 0xff, sizeof *ret);
        return 0;
    }
    const char *text = json_string(v);
    return text == NULL ? -EINVAL : pci_addr_parse(text, ret);
}

static int read_integer(const struct json *v, double min, double max, int64_t *ret) {
    double number;
    if (!json_number(v, &number) || !(number >= min && number <= max) ||
        number != (double)(int64_t)number)
        return -EINVAL;
    *ret = (int64_t)number;
    return 0;
}

static int read_name(const struct json *v, const struct json_field *f, void *p) {
    const char *text = json_string(v);
    for (uint32_t i = 0; text != NULL && i < f->n_names; i++) {
        if (f->names[i] == NULL || strcmp(f->names[i], text) != 0)
            continue;
        memcpy(p, &i, sizeof i);
        return 0;
    }
    return -EINVAL;
}

static int read_value(const struct json *v, const struct json_field *f, void *p) {
    const double most = (double)JSON_INTEGER_MAX;
    int64_t number = 0;
    uint64_t hex = 0;
    int r = 0;
    switch (f->kind) {
    case JSON_FIELD_BOOL: return -EINVAL; /* read by its owner, which has the object */
    case JSON_FIELD_I32:
        r = read_integer(v, INT32_MIN, INT32_MAX, &number);
        *(int32_t *)p = (int32_t)number;
        return r;
    case JSON_FIELD_U32:
        r = json_kind_of(v) == JSON_NULL ? 0 : read_integer(v, 0, TOPO_NONE - 1, &number);
        *(uint32_t *)p = json_kind_of(v) == JSON_NULL ? TOPO_NONE : (uint32_t)number;
        return r;
    case JSON_FIELD_U64:
        r = read_integer(v, 0, most, &number);
        *(uint64_t *)p = (uint64_t)number;
        return r;
    case JSON_FIELD_I64: return read_integer(v, -most, most, p);
    case JSON_FIELD_DOUBLE: return json_number(v, p) && *(double *)p >= 0 ? 0 : -EINVAL;
    case JSON_FIELD_TEXT: return read_text(v, p, f->size);
    case JSON_FIELD_NAME: return read_name(v, f, p);
    case JSON_FIELD_CPUS:
        return json_string(v) == NULL ? -EINVAL : cpuset_parse_list(json_string(v), p);
    case JSON_FIELD_BUS_ID: return read_bus_id(v, p);
    case JSON_FIELD_HEX16:
        r = read_hex(v, 4, &hex);
        *(uint16_t *)p = (uint16_t)hex;
        return r;
    case JSON_FIELD_HEX24:
        r = read_hex(v, 6, &hex);
        *(uint32_t *)p = (uint32_t)hex;
        return r;
    case JSON_FIELD_HEX64: return read_hex(v, 16, p);
    case JSON_FIELD_GID: return read_gid(v, p);
    }
    assert_not_reached();
}

/* What is absent stays unknown, as the element was made. */
static int read_fields(const struct json *obj, const struct json_table *table, void *of,
                       struct err *err) {
    if (json_kind_of(obj) != JSON_OBJECT)
        return err_set(err, -EINVAL, "an element of a topology's list is no object");
    for (size_t i = 0; i < table->n; i++) {
        const struct json_field *f = &table->fields[i];
        const struct json *v = json_member(obj, f->key);
        void *p = (char *)of + f->offset;
        int r = 0;
        if (v == NULL)
            continue;
        if (f->kind == JSON_FIELD_BOOL)
            r = json_get_bool(obj, f->key, p, NULL);
        else
            r = read_value(v, f, p);
        if (r < 0)
            return bad(err, f->key, "not of its form, or out of its range");
    }
    return 0;
}

/* The list under this key; an absent one is empty. */
static int get_list(const struct json *obj, const char *key, const struct json **ret,
                    struct err *err) {
    *ret = json_member(obj, key);
    if (*ret != NULL && json_kind_of(*ret) != JSON_ARRAY)
        return bad(err, key, "no list");
    return 0;
}

#define FOR_LIST(v, list)                                                            \
    for (const struct json *v = (list) == NULL ? NULL : json_first(list); v != NULL; \
         v = json_next(v))

static int too_many(struct err *err, const char *key) {
    return err_set(err, -E2BIG, "a topology's \"%s\" has more elements than any machine", key);
}

/* bus_id or null; what names a device must name one that is there. */
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

/* ---- the lists ---- */

#define SIMPLE(name, key, add, table)                                              \
    static int name(struct topology *t, const struct json *doc, struct err *err) { \
        const struct json *list;                                                   \
        int r = get_list(doc, key, &list, err);                                    \
        FOR_LIST(v, r < 0 ? NULL : list) {                                         \
            void *e = add(t);                                                      \
            if (e == NULL)                                                         \
                return too_many(err, key);                                         \
            r = read_fields(v, &table, e, err);                                    \
            if (r < 0)                                                             \
                return r;                                                          \
        }                                                                          \
        return r;                                                                  \
    }
SIMPLE(read_numa, "numa", topology_add_numa, topology_json_numa)
SIMPLE(read_cores, "cores", topology_add_core, topology_json_cores)
SIMPLE(read_caches, "caches", topology_add_cache, topology_json_caches)
SIMPLE(read_nvlinks, "nvlinks", topology_add_nvlink, topology_json_nvlinks)
SIMPLE(read_pci_fields, "pci", topology_add_pci, topology_json_pci)

/* Every device hangs on a root bus in the end. */
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

/* Devices are named by their addresses. */
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

static int read_pci(struct topology *t, const struct json *doc, struct err *err) {
    int r = read_pci_fields(t, doc, err);
    if (r == 0)
        r = check_twice(t, err);
    const struct json *list = json_member(doc, "pci");
    uint32_t i = 0;
    FOR_LIST(v, r < 0 ? NULL : list) {
        r = read_device(t, v, "parent", &t->pci[i++].parent, err);
        if (r < 0)
            return r;
    }
    return r < 0 ? r : check_parents(t, err);
}

static int read_mig_devices(struct topo_gpu *g, const struct json *obj, struct err *err) {
    const struct json *list;
    int r = get_list(obj, "mig_devices", &list, err);
    FOR_LIST(v, r < 0 ? NULL : list) {
        const char *text = json_string(v);
        if (g->n_mig == TOPO_MIG_MAX)
            return too_many(err, "mig_devices");
        if (text == NULL || strlen(text) >= TOPO_MIG_UUID_MAX)
            return bad(err, "mig_devices", "no name of a device");
        (void)snprintf(g->mig_uuids[g->n_mig++], TOPO_MIG_UUID_MAX, "%s", text);
    }
    return r;
}

static int read_gpus(struct topology *t, const struct json *doc, struct err *err) {
    const struct json *list;
    int r = get_list(doc, "gpus", &list, err);
    FOR_LIST(v, r < 0 ? NULL : list) {
        struct topo_gpu *g = topology_add_gpu(t);
        if (g == NULL)
            return too_many(err, "gpus");
        r = read_fields(v, &topology_json_gpus, g, err);
        if (r == 0)
            r = read_device(t, v, "bus_id", &g->pci, err);
        if (r == 0)
            r = read_mig_devices(g, v, err);
        if (r < 0)
            return r;
    }
    return r;
}

static int read_gids(struct topo_port *p, const struct json *obj, struct err *err) {
    const struct json *list;
    int r = get_list(obj, "gids", &list, err);
    FOR_LIST(v, r < 0 ? NULL : list) {
        struct topo_gid *g = topo_port_add_gid(p);
        if (g == NULL)
            return too_many(err, "gids");
        r = read_fields(v, &topology_json_gids, g, err);
        if (r < 0)
            return r;
    }
    return r;
}

static int read_ports(struct topo_nic *n, const struct json *obj, struct err *err) {
    const struct json *list;
    int r = get_list(obj, "ports", &list, err);
    FOR_LIST(v, r < 0 ? NULL : list) {
        if (n->n_ports == TOPO_PORTS_MAX)
            return too_many(err, "ports");
        struct topo_port *p = &n->ports[n->n_ports++];
        r = read_fields(v, &topology_json_ports, p, err);
        if (r == 0)
            r = read_gids(p, v, err);
        if (r < 0)
            return r;
    }
    return r;
}

static int read_nics(struct topology *t, const struct json *doc, struct err *err) {
    const struct json *list;
    int r = get_list(doc, "nics", &list, err);
    FOR_LIST(v, r < 0 ? NULL : list) {
        struct topo_nic *n = topology_add_nic(t);
        if (n == NULL)
            return too_many(err, "nics");
        r = read_fields(v, &topology_json_nics, n, err);
        if (r == 0)
            r = read_device(t, v, "bus_id", &n->pci, err);
        if (r == 0)
            r = read_ports(n, v, err);
        if (r < 0)
            return r;
    }
    return r;
}

static int read_addrs(struct topo_netif *n, const struct json *obj, struct err *err) {
    const struct json *list;
    int r = get_list(obj, "addrs", &list, err);
    FOR_LIST(v, r < 0 ? NULL : list) {
        if (n->n_addrs == TOPO_ADDRS_MAX)
            return too_many(err, "addrs");
        r = read_fields(v, &topology_json_addrs, &n->addrs[n->n_addrs++], err);
        if (r < 0)
            return r;
    }
    return r;
}

static int read_netifs(struct topology *t, const struct json *doc, struct err *err) {
    const struct json *list;
    int r = get_list(doc, "interfaces", &list, err);
    FOR_LIST(v, r < 0 ? NULL : list) {
        struct topo_netif *n = topology_add_netif(t);
        if (n == NULL)
            return too_many(err, "interfaces");
        r = read_fields(v, &topology_json_netifs, n, err);
        if (r == 0)
            r = read_device(t, v, "bus_id", &n->pci, err);
        if (r == 0)
            r = read_addrs(n, v, err);
        if (r < 0)
            return r;
    }
    return r;
}

static int read_warnings(struct topology *t, const struct json *doc, struct err *err) {
    const struct json *list;
    int r = get_list(doc, "warnings", &list, err);
    FOR_LIST(v, r < 0 ? NULL : list) {
        if (json_string(v) == NULL)
            return bad(err, "warnings", "no list of texts");
        topology_warn(t, "%s", json_string(v));
    }
    return r;
}

/* ---- the whole ---- */

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
    static int (*const parts[])(struct topology * t, const struct json *doc, struct err *err) = {
        read_numa,    read_cores, read_caches, read_pci,      read_gpus,
        read_nvlinks, read_nics,  read_netifs, read_warnings,
    };
    uint64_t format;
    if (json_kind_of(doc) != JSON_OBJECT || json_get_u64(doc, "format", 1000, &format, NULL) < 0)
        return err_set(err, -EINVAL, "no topology of muster: it has no \"format\"");
    if (format != 1)
        return err_set(err, -EINVAL, "a topology of format %" PRIu64 "; this muster reads format 1",
                       format);
    int r = read_fields(doc, &topology_json_whole, t, err);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(parts); i++)
        r = parts[i](t, doc, err);
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
