/* A map from 64-bit names to pointers. Owns neither; 0 is not a name. Grows as needed: the caller
 * bounds how many it puts in. Names that peers choose are mixed with the seed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct idmap {
    struct idmap_slot {
        uint64_t id; /* 0: free */
        void *value;
    } * slots;
    size_t cap, len;
    uint64_t seed; /* set before the first use, or left 0 */
};

void idmap_fini(struct idmap *m);
/* NULL when absent. */
void *idmap_get(const struct idmap *m, uint64_t id);
/* Sets or replaces. value must not be NULL. */
void idmap_put(struct idmap *m, uint64_t id, void *value);
/* Harmless when absent. */
void idmap_remove(struct idmap *m, uint64_t id);
