#include "rig/unit.h"
#include "topology/model/topology.h"

#define UUID "3f8e2a10-4c5d-4b6e-9f00-112233445566"

static const struct topo_gpu
    joined = {.vendor = TOPO_VENDOR_NVIDIA,
              .fabric = TOPO_FABRIC_COMPLETED,
              .fabric_uuid = UUID,
              .fabric_clique = 32766,
              .chassis = "1821125000123"},
    joining = {.vendor = TOPO_VENDOR_NVIDIA, .fabric = TOPO_FABRIC_IN_PROGRESS, .chassis = "1821125000123"},
    unnamed = {.vendor = TOPO_VENDOR_NVIDIA, .fabric = TOPO_FABRIC_IN_PROGRESS},
    failed = {.vendor = TOPO_VENDOR_NVIDIA, .fabric = TOPO_FABRIC_FAILED, .chassis = "1821125000123"},
    elsewhere = {.vendor = TOPO_VENDOR_NVIDIA, .fabric = TOPO_FABRIC_NOT_STARTED, .chassis = "1821125000124"},
    clique_2 = {.vendor = TOPO_VENDOR_NVIDIA,
                .fabric = TOPO_FABRIC_COMPLETED,
                .fabric_uuid = UUID,
                .fabric_clique = 2,
                .chassis = "1821125000123"},
    hgx = {.vendor = TOPO_VENDOR_NVIDIA, .fabric = TOPO_FABRIC_COMPLETED, .chassis = "1821125000123"},
    alone = {.vendor = TOPO_VENDOR_NVIDIA, .chassis = "1821125000123"},
    lost = {.vendor = TOPO_VENDOR_NVIDIA, .lost = true}, amd = {.vendor = TOPO_VENDOR_AMD};

/* NVML's masks: each fault in words, and none where all is well. */
Test(domain, health_is_decoded) {
    static const struct {
        uint32_t mask, summary;
        const char *text; /* NULL: healthy */
    } cases[] = {
        {0, 0, NULL},
        {0, 1, NULL},
        {0xaa, 0, NULL},
        {0xaa, 1, NULL},
        {0x1aa, 1, NULL},
        {0xa9, 3, "degraded bandwidth"},
        {0xa6, 0, "a route is recovering"},
        {0x9a, 2, "a route is unhealthy"},
        {0x6a, 0, "recovering from an access timeout"},
        {0x55, 2, "degraded bandwidth, a route is recovering, a route is unhealthy, recovering from an access timeout"},
        {0x2aa, 0, "wrong system GUID"},
        {0x3aa, 0, "wrong chassis serial number"},
        {0x4aa, 0, "no partition"},
        {0x599, 0, "degraded bandwidth, a route is unhealthy, too few NVLinks"},
        {0x6aa, 0, "incompatible GPU firmware"},
        {0x7aa, 0, "invalid location"},
        {0xfffff8aa, 0, NULL},
        {0xaa, 2, "unhealthy"},
        {0, 3, "limited capacity"},
        {0, 255, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct topology t = {0};
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        for (uint32_t k = 0; k < 3; k++) {
            struct topo_gpu *g = topology_add_gpu(&t);
            *g = joined;
            g->index = k;
        }
        t.gpus[1].fabric_health = cases[i].mask;
        t.gpus[1].fabric_summary = cases[i].summary;
        _cleanup_(freep) char *wanted = xasprintf("1 of 3 GPUs have a faulty NVLink fabric (GPU 1: %s)",
                                                  cases[i].text != NULL ? cases[i].text : "");
        cr_assert_eq(topology_fabric_degraded(&t, &text), cases[i].text != NULL, "case %zu", i);
        cr_assert_str_eq(strbuf_text(&text), cases[i].text != NULL ? wanted : "");
        topology_fini(&t);
    }
}

/* Which GPUs have which domain. */
Test(domain, is_that_of_all_gpus) {
    static const struct {
        const struct topo_gpu *gpus[2];
        const char *domain;
        bool split, pending;
    } cases[] = {
        {{NULL}, "", false, false},
        {{&joined, &joined}, "nvl-" UUID ".32766", false, false},
        {{&joined, &amd}, "nvl-" UUID ".32766", false, false},
        {{&lost, &joined}, "nvl-" UUID ".32766", false, false},
        {{&joined, &joining}, "chassis-1821125000123", false, true},
        {{&joining, &joining}, "chassis-1821125000123", false, true},
        {{&joined, &unnamed}, "", false, true},
        {{&failed, &joined}, "chassis-1821125000123", false, false},
        {{&joining, &elsewhere}, "", false, true},
        {{&joined, &clique_2}, "", true, false},
        {{&hgx, &hgx}, "", false, false},
        {{&hgx, &joined}, "", false, false},
        {{&alone, &alone}, "", false, false},
        {{&lost, &amd}, "", false, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct topology t = {0};
        char domain[TOPO_DOMAIN_MAX], text[TOPO_TEXT_MAX];
        for (size_t k = 0; k < 2 && cases[i].gpus[k] != NULL; k++)
            *topology_add_gpu(&t) = *cases[i].gpus[k];
        cr_assert_eq(topology_domain(&t, domain), cases[i].domain[0] != '\0', "case %zu", i);
        cr_assert_str_eq(domain, cases[i].domain, "case %zu", i);
        cr_assert_eq(topology_domain_split(&t, text), cases[i].split, "case %zu", i);
        cr_assert_eq(topology_fabric_pending(&t), cases[i].pending, "case %zu", i);
        topology_fini(&t);
    }
}
