#include "launcher/job.h"

#define STD_NOT_NAMED 0xff

uint8_t std_map_get(const struct std_map *map, uint32_t local_rank) {
    if (local_rank >= ARRAY_SIZE(map->by_rank) || map->by_rank[local_rank] == STD_NOT_NAMED)
        return map->fallback;
    return map->by_rank[local_rank];
}

void job_spec_fini(struct job_spec *spec) {
    free(spec->endpoint_host);
    free(spec->local_addr);
    free(spec->run_id);
    free(spec->role);
    free(spec->script);
    for (char **arg = spec->args; arg != NULL && *arg != NULL; arg++)
        free(*arg);
    free(spec->args);
    free(spec->start_method);
    free(spec->log_dir);
    free(spec->line_prefix);
    free(spec->console_ranks);
    *spec = (struct job_spec){0};
}
