#include "launcher/hosts/hosts.h"

#include <string.h>

#include "base/hash.h"

static void host_fini(struct host *host) {
    free(host->name);
    free(host->user);
    free(host->gpus);
    *host = (struct host){0};
}

void hosts_fini(struct hosts *h) {
    for (size_t i = 0; i < h->n; i++)
        host_fini(&h->items[i]);
    free(h->items);
    idmap_fini(&h->by_name);
    *h = (struct hosts){0};
}

/* The values of the map are places in items, counted from 1. */
static size_t place(const struct hosts *h, uint64_t id) {
    return (size_t)(uintptr_t)idmap_get(&h->by_name, id);
}

/* Returns the place of a name and its id; or 0, and a free id for it. Hashes may collide. */
static size_t look_up(const struct hosts *h, const char *name, uint64_t *ret_id) {
    for (uint64_t id = hash_text(HASH_BEGIN, name);; id++) {
        if (id == 0)
            continue;
        size_t at = place(h, id);
        if (at == 0 || strcmp(h->items[at - 1].name, name) == 0) {
            *ret_id = id;
            return at;
        }
    }
}

struct host *hosts_find(const struct hosts *h, const char *name) {
    uint64_t id;
    size_t at = look_up(h, name, &id);
    return at == 0 ? NULL : &h->items[at - 1];
}

static void index_name(struct hosts *h, size_t i) {
    uint64_t id;
    size_t at = look_up(h, h->items[i].name, &id);
    assert(at == 0);
    idmap_put(&h->by_name, id, (void *)(uintptr_t)(i + 1));
}

struct host *hosts_add(struct hosts *h, const char *name) {
    if (h->n == h->cap) {
        h->cap = h->cap == 0 ? 16 : h->cap * 2;
        h->items = xrealloc(h->items, h->cap * sizeof *h->items);
    }
    struct host *host = &h->items[h->n];
    *host = (struct host){.name = xstrdup(name)};
    index_name(h, h->n++);
    return host;
}

void hosts_keep(struct hosts *h, const bool *keep) {
    size_t kept = 0;
    for (size_t i = 0; i < h->n; i++) {
        if (keep[i])
            h->items[kept++] = h->items[i];
        else
            host_fini(&h->items[i]);
    }
    h->n = kept;
    idmap_fini(&h->by_name);
    h->by_name = (struct idmap){0};
    for (size_t i = 0; i < h->n; i++)
        index_name(h, i);
}
