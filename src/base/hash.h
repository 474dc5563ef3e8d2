/* The 64-bit FNV-1a hash, for names and fingerprints of data that is not hostile. Its values are in
 * file names and sent to other nodes, so they must not change (draft-eastlake-fnv). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

/* h: HASH_BEGIN, or the hash of the bytes before these. */
static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t n) {
    for (const uint8_t *p = data; n > 0; p++, n--)
        h = (h ^ *p) * UINT64_C(0x100000001b3);
    return h;
}

/* The NUL at its end is not hashed. */
static inline uint64_t hash_text(uint64_t h, const char *text) {
    return hash_bytes(h, text, strlen(text));
}

/* Hashes that were seen, a few of them. */
#define HASH_SEEN_MAX 32
struct hash_seen {
    uint64_t hashes[HASH_SEEN_MAX];
    unsigned n;
};
/* Whether it is a new one, and there was room for it among the first `max`. */
static inline bool hash_is_new(struct hash_seen *seen, uint64_t hash, unsigned max) {
    for (unsigned i = 0; i < seen->n; i++)
        if (seen->hashes[i] == hash)
            return false;
    if (seen->n >= max)
        return false;
    seen->hashes[seen->n++] = hash;
    return true;
}
