#include "topology/discover/sysfs/kfd_io.h"

#include <string.h>

#include "base/text/parse.h"
#include "topology/discover/sysfs/sysfs_priv.h"

#define NODES "/sys/class/kfd/kfd/topology/nodes"

/* The number after a name, in lines of "name number"; 0: there is no such line. */
static uint64_t property(const char *text, const char *name) {
    const size_t len = strlen(name);
    uint64_t v = 0;
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) != 0 || line[len] != ' ')
            continue;
        char number[24];
        const char *digits = line + len + 1;
        size_t n = strcspn(digits, "\n");
        if (n >= sizeof number)
            return 0;
        memcpy(number, digits, n);
        number[n] = '\0';
        return parse_u64(number, &v) == 0 ? v : 0;
    }
    return 0;
}

uint32_t kfd_list_gpus(const char *root, struct rocm_gpu *ret, uint32_t max) {
    struct sysfs s;
    _cleanup_(sysfs_names_fini) struct sysfs_names nodes = {0};
    char text[SYSFS_TEXT_MAX];
    uint32_t found = 0;
    sysfs_init(&s, root);
    if (sysfs_list(&s, NODES, &nodes) < 0)
        return 0;
    for (uint32_t i = 0; i < nodes.n && found < max; i++) {
        if (sysfs_read(&s, text, sizeof text, NODES "/%s/properties", nodes.names[i]) < 0 ||
            property(text, "simd_count") == 0)
            continue;
        uint64_t place = property(text, "location_id"); /* PCI_DEVID() of Linux */
        ret[found++] = (struct rocm_gpu){
            .at = {.domain = (uint32_t)property(text, "domain"),
                   .bus = place >> 8 & 0xff,
                   .dev = place >> 3 & 0x1f,
                   .fn = place & 7},
            .unique_id = property(text, "unique_id"),
        };
    }
    return found;
}
