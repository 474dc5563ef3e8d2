/* Recorded machines are not in the repository, but beside it: $MUSTER_SHARED or ../shared. If the recording that a test
 * needs is missing, the test is skipped, and names the file. */
#pragma once

#include "rig/unit.h"
#include "topology/json/topology_json.h"

#define RECORDED_PATH_MAX 4096

static inline bool recorded_path(char out[RECORDED_PATH_MAX], const char *name) {
    const char *shared = getenv("MUSTER_SHARED"), *tests = getenv("MUSTER_TEST_SOURCE_DIR");
    if (shared != NULL)
        (void)snprintf(out, RECORDED_PATH_MAX, "%s/topologies/%s", shared, name);
    else
        (void)snprintf(out, RECORDED_PATH_MAX, "%s/../../shared/topologies/%s", tests != NULL ? tests : "tests", name);
    return access(out, R_OK) == 0;
}

/* A file's text, malloc'ed and with a NUL. */
static inline char *text_at(const char *path, size_t *len) {
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    char *text = malloc(1 << 20);
    *len = fread(text, 1, (1 << 20) - 1, f);
    text[*len] = '\0';
    (void)fclose(f);
    return text;
}

/* The test is skipped if the file is missing. */
static inline char *recorded_text(const char *name, size_t *len) {
    char path[RECORDED_PATH_MAX];
    if (!recorded_path(path, name))
        cr_skip_test("%s is not here", name);
    return text_at(path, len);
}

/* Of a file beside the tests. */
static inline char *own_text(const char *name, size_t *len) {
    return text_at(rig_text("%s/unit/topology/%s", getenv("MUSTER_TEST_SOURCE_DIR"), name), len);
}

/* Checks what is true for every topology, whatever its source is. */
static inline void recorded_check(const struct topology *t, const char *name) {
    for (uint32_t i = 0; i < t->n_pci; i++) {
        const struct topo_pci *p = &t->pci[i];
        cr_assert(p->parent == TOPO_NONE || p->parent < i, "%s: a parent comes first", name);
        cr_assert(p->parent == TOPO_NONE || t->pci[p->parent].bridge, "%s: a parent is a bridge", name);
        cr_assert(p->numa == -1 || topology_numa(t, p->numa) != NULL, "%s: NUMA node %d", name, p->numa);
        cr_assert_eq(p->root.dev | p->root.fn, 0);
        cr_assert_eq(p->root.domain, p->at.domain);
        for (uint32_t k = i + 1; k < t->n_pci; k++)
            cr_assert_neq(pci_addr_compare(p->at, t->pci[k].at), 0, "%s: each address once", name);
    }
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        cr_assert_lt(t->gpus[i].pci, t->n_pci, "%s: a GPU has its PCI device", name);
        cr_assert_eq(t->gpus[i].index, i);
        cr_assert_eq(t->gpus[i].numa, t->pci[t->gpus[i].pci].numa);
    }
    for (uint32_t i = 0; i < t->n_nvlinks; i++) {
        const struct topo_nvlink *l = &t->nvlinks[i];
        cr_assert_lt(l->gpu, t->n_gpus);
        cr_assert(l->end == TOPO_NVLINK_GPU ? l->peer < t->n_gpus && l->peer != l->gpu : l->peer == TOPO_NONE);
        cr_assert_gt(l->count, 0);
    }
    for (uint32_t i = 0; i < t->n_nics; i++)
        cr_assert(t->nics[i].pci == TOPO_NONE || t->nics[i].pci < t->n_pci);
    struct cpuset cpus = {0};
    for (uint32_t i = 0; i < t->n_cores; i++) {
        cr_assert_not(cpuset_is_empty(&t->cores[i].cpus), "%s: a core has CPUs", name);
        cr_assert_not(cpuset_intersects(&t->cores[i].cpus, &cpus), "%s: a CPU is of one core", name);
        cr_assert_leq(t->cores[i].first, cpuset_next(&t->cores[i].cpus, 0));
        cpuset_or(&cpus, &t->cores[i].cpus);
    }
    cr_assert(t->n_cores == 0 || cpuset_equal(&cpus, &t->allowed), "%s: the cores are what is allowed", name);
    cr_assert(cpuset_within(&t->allowed, &t->online), "%s: what is allowed is online", name);
    for (uint32_t i = 0; i < t->n_numa; i++)
        cr_assert(cpuset_within(&t->numa[i].cpus, &t->allowed));
    for (uint32_t i = 0; i < t->n_caches; i++)
        cr_assert(cpuset_within(&t->caches[i].cpus, &t->allowed));
}

/* Checks that the topology's JSON has each of these texts, in which ' stands for ". */
#define JSON_HAS(t, ...) recorded_json_has((t), (const char *const[]){__VA_ARGS__, NULL})
static inline void recorded_json_has(const struct topology *t, const char *const *parts) {
    _cleanup_(strbuf_fini) struct strbuf json = {0};
    topology_json_write(t, &json);
    for (char *p = json.data; *p != '\0'; p++)
        *p = *p == '"' ? '\'' : *p;
    for (; *parts != NULL; parts++)
        assert_has(json.data, *parts);
}

/* "0000:03:00.0" of GPU or NIC number i. */
static inline const char *recorded_address(const struct topology *t, uint32_t pci) {
    return rig_text("%s", pci < t->n_pci ? pci_addr_text(t->pci[pci].at).text : "none");
}

/* The bridges above a device, from the root down: "0000:00:01.1 0000:01:00.0 ". */
static inline void recorded_chain(const struct topology *t, uint32_t pci, char out[512]) {
    out[0] = '\0';
    for (uint32_t i = pci; i < t->n_pci; i = t->pci[i].parent) {
        char rest[512];
        (void)snprintf(rest, sizeof rest, "%s", out);
        (void)snprintf(out, 512, "%s %.400s", recorded_address(t, i), rest);
    }
}

/* Two sources describe one machine: the same GPUs and NICs at the same places. */
static inline void recorded_agree(const struct topology *a, const struct topology *b) {
    char x[512], y[512];
    cr_assert(a->n_gpus == b->n_gpus && a->n_nics == b->n_nics);
    for (uint32_t i = 0; i < a->n_gpus; i++) {
        recorded_chain(a, a->gpus[i].pci, x);
        recorded_chain(b, b->gpus[i].pci, y);
        cr_assert_str_eq(x, y);
        cr_assert_eq(a->gpus[i].numa, b->gpus[i].numa);
        cr_assert_eq(a->gpus[i].vendor, b->gpus[i].vendor);
    }
    for (uint32_t i = 0; i < a->n_nics; i++) {
        recorded_chain(a, a->nics[i].pci, x);
        recorded_chain(b, b->nics[i].pci, y);
        cr_assert_str_eq(x, y);
        cr_assert_str_eq(a->nics[i].name, b->nics[i].name);
        cr_assert_str_eq(a->nics[i].netdev, b->nics[i].netdev);
        cr_assert_eq(a->nics[i].kind, b->nics[i].kind);
        cr_assert_eq(a->nics[i].numa, b->nics[i].numa);
        cr_assert_eq(topo_nic_state(&a->nics[i]), topo_nic_state(&b->nics[i]));
    }
}
