#include <criterion/criterion.h>
#include <string.h>

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
