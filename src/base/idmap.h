/* A map from 64-bit names to pointers. It does not own the values; 0 is not a name. The caller must
 * bound the number of entries. The seed is mixed into names, because peers choose some. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct idmap {
    struct idmap_slot {
        uint64_t id; /* 0: free */
        void *value;
    } * slots;
    size_t cap, len;
    uint64_t seed; /* set before the first use, or 0 */
};

void idmap_fini(struct idmap *m);
/* NULL if it is not in the map. */
void *idmap_get(const struct idmap *m, uint64_t id);
/* Sets or replaces. value must not be NULL. */
void idmap_put(struct idmap *m, uint64_t id, void *value);
/* Does nothing if it is not in the map. */
void idmap_remove(struct idmap *m, uint64_t id);
