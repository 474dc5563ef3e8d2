#include "base/idmap.h"

#include "base/util.h"

static size_t home(const struct idmap *m, uint64_t id) {
    uint64_t z = id ^ m->seed;
    z = (z ^ (z >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    return (size_t)(z ^ (z >> 29)) & (m->cap - 1);
}

static struct idmap_slot *find(const struct idmap *m, uint64_t id) {
    assert(id != 0);
    size_t i = home(m, id);
    while (m->slots[i].id != 0 && m->slots[i].id != id)
        i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

void idmap_fini(struct idmap *m) {
    free(m->slots);
    *m = (struct idmap){0};
}

void *idmap_get(const struct idmap *m, uint64_t id) {
    return m->cap == 0 ? NULL : find(m, id)->value;
}

static void grow(struct idmap *m) {
    struct idmap old = *m;
    m->cap = old.cap == 0 ? 16 : old.cap * 2;
    m->slots = xcalloc(m->cap, sizeof *m->slots);
    for (size_t i = 0; i < old.cap; i++)
        if (old.slots[i].id != 0)
            *find(m, old.slots[i].id) = old.slots[i];
    free(old.slots);
}

void idmap_put(struct idmap *m, uint64_t id, void *value) {
    assert(value != NULL);
    if (m->len * 2 >= m->cap)
        grow(m);
    struct idmap_slot *slot = find(m, id);
    if (slot->id == 0)
        m->len++;
    *slot = (struct idmap_slot){id, value};
}

void idmap_remove(struct idmap *m, uint64_t id) {
    if (m->cap == 0)
        return;
    struct idmap_slot *slot = find(m, id);
    if (slot->id == 0)
        return;
    *slot = (struct idmap_slot){0};
    m->len--;
    /* Entries after it in the same run may now be unreachable: insert them again. */
    for (size_t i = (size_t)(slot - m->slots + 1) & (m->cap - 1); m->slots[i].id != 0;
         i = (i + 1) & (m->cap - 1)) {
        struct idmap_slot moved = m->slots[i];
        m->slots[i] = (struct idmap_slot){0};
        *find(m, moved.id) = moved;
    }
}
