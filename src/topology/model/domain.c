#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "topology/model/topology.h"

const char *const topo_fabric_names[TOPO_FABRIC_FAILED + 1] = {
    [TOPO_FABRIC_NONE] = "none",
    [TOPO_FABRIC_NOT_STARTED] = "not started",
    [TOPO_FABRIC_IN_PROGRESS] = "in progress",
    [TOPO_FABRIC_COMPLETED] = "completed",
    [TOPO_FABRIC_FAILED] = "failed",
};

const char *const topo_imex_names[TOPO_IMEX_PRESENT + 1] = {
    [TOPO_IMEX_NONE] = "none", [TOPO_IMEX_MISSING] = "missing", [TOPO_IMEX_PRESENT] = "present"};

static bool counts(const struct topo_gpu *g) { return g->vendor == TOPO_VENDOR_NVIDIA && !g->lost; }

static bool same_domain(const struct topo_gpu *a, const struct topo_gpu *b) {
    return strcmp(a->fabric_uuid, b->fabric_uuid) == 0 && a->fabric_clique == b->fabric_clique;
}

/* The first GPU with a UUID, and the first in another domain than that; NULL: there is none. */
static const struct topo_gpu *find_domains(const struct topology *t,
                                           const struct topo_gpu **ret_other) {
    const struct topo_gpu *first = NULL;
    *ret_other = NULL;
    for (uint32_t i = 0; i < t->n_gpus && *ret_other == NULL; i++) {
        const struct topo_gpu *g = &t->gpus[i];
        if (!counts(g) || g->fabric_uuid[0] == '\0')
            continue;
        if (first == NULL)
            first = g;
        else if (!same_domain(first, g))
            *ret_other = g;
    }
    return first;
}

bool topology_domain_split(const struct topology *t, char text[TOPO_TEXT_MAX]) {
    const struct topo_gpu *other, *first = find_domains(t, &other);
    if (other != NULL)
        (void)snprintf(text, TOPO_TEXT_MAX,
                       "GPU %" PRIu32 " and GPU %" PRIu32 " are in different NVLink domains%s: "
                       "this node belongs to none",
                       first->index, other->index,
                       strcmp(first->fabric_uuid, other->fabric_uuid) == 0 ? " (cliques)" : "");
    return other != NULL;
}

bool topology_domain(const struct topology *t, char out[TOPO_DOMAIN_MAX]) {
    const struct topo_gpu *other, *first = find_domains(t, &other), *chassis = NULL;
    bool joined = first != NULL, one_chassis = true;
    out[0] = '\0';
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        const struct topo_gpu *g = &t->gpus[i];
        if (!counts(g))
            continue;
        bool has_uuid = g->fabric_uuid[0] != '\0';
        chassis = chassis == NULL ? g : chassis;
        joined = joined && has_uuid;
        one_chassis = one_chassis && g->chassis[0] != '\0' &&
                      strcmp(g->chassis, chassis->chassis) == 0 && g->fabric != TOPO_FABRIC_NONE &&
                      (has_uuid || g->fabric != TOPO_FABRIC_COMPLETED);
    }
    if (chassis == NULL || other != NULL)
        return false;
    if (joined)
        (void)snprintf(out, TOPO_DOMAIN_MAX, "nvl-%s.%" PRIu32, first->fabric_uuid,
                       first->fabric_clique);
    else if (one_chassis)
        (void)snprintf(out, TOPO_DOMAIN_MAX, "chassis-%s", chassis->chassis);
    return joined || one_chassis;
}

bool topology_fabric_pending(const struct topology *t) {
    for (uint32_t i = 0; i < t->n_gpus; i++)
        if (counts(&t->gpus[i]) && t->gpus[i].fabric == TOPO_FABRIC_IN_PROGRESS)
            return true;
    return false;
}

bool topology_has_c2c(const struct topology *t) {
    for (uint32_t i = 0; i < t->n_nvlinks; i++)
        if (t->nvlinks[i].c2c)
            return true;
    return false;
}

/* Fields of the mask: two bits each, where 1 means yes, 2 no, and 0 not supported. (NVML,
 * NVML_GPU_FABRIC_HEALTH_MASK_*) */
static const char *const faults[] = {
    "degraded bandwidth",
    "a route is recovering",
    "a route is unhealthy",
    "recovering from an access timeout",
};
/* The next field has four bits; 1 is correct. */
static const char *const misconfigured[] = {
    [2] = "wrong system GUID", [3] = "wrong chassis serial number", [4] = "no partition",
    [5] = "too few NVLinks",   [6] = "incompatible GPU firmware",   [7] = "invalid location",
};
static const char *const summaries[] = {[2] = "unhealthy", [3] = "limited capacity"};

static const char *name_in(const char *const *names, size_t n, uint32_t value) {
    return value < n ? names[value] : NULL;
}

static void add_fault(const char *text, struct strbuf *to) {
    if (text != NULL)
        strbuf_printf(to, "%s%s", to->len > 0 ? ", " : "", text);
}

static void write_faults(const struct topo_gpu *g, struct strbuf *to) {
    for (uint32_t i = 0; i < ARRAY_SIZE(faults); i++)
        add_fault((g->fabric_health >> (2 * i) & 3) == 1 ? faults[i] : NULL, to);
    add_fault(name_in(misconfigured, ARRAY_SIZE(misconfigured), g->fabric_health >> 8 & 15), to);
    if (to->len == 0)
        add_fault(name_in(summaries, ARRAY_SIZE(summaries), g->fabric_summary), to);
}

bool topology_fabric_degraded(const struct topology *t, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf first = {0}, text = {0};
    uint32_t n = 0, index = 0;
    for (uint32_t i = 0; i < t->n_gpus; i++) {
        strbuf_clear(&text);
        write_faults(&t->gpus[i], &text);
        if (text.len == 0 || n++ > 0)
            continue;
        index = t->gpus[i].index;
        strbuf_add(&first, strbuf_text(&text));
    }
    if (n > 0)
        strbuf_printf(to, "%u of %u GPUs have a faulty NVLink fabric (GPU %u: %s)", n, t->n_gpus,
                      index, strbuf_text(&first));
    return n > 0;
}

void topology_fabric_text(const struct topology *t, struct strbuf *to) {
    _cleanup_(strbuf_fini) struct strbuf degraded = {0};
    bool known = false;
    for (uint32_t i = 0; i < t->n_gpus; i++)
        known = known || t->gpus[i].fabric_health != 0 || t->gpus[i].fabric_summary != 0;
    strbuf_printf(to, "%s, IMEX channel %s",
                  topology_fabric_pending(t)               ? "fabric in progress"
                  : topology_fabric_degraded(t, &degraded) ? "not healthy"
                  : known                                  ? "healthy"
                                                           : "health unknown",
                  topo_imex_names[t->imex]);
}
