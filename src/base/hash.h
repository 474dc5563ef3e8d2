/* FNV-1a of 64 bits: names and fingerprints of what is not hostile. Its values stand in file names
 * and travel: they must not change. (Fowler, Noll, Vo; draft-eastlake-fnv.) */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

/* h: HASH_BEGIN, or what came before. */
static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t n) {
    for (const uint8_t *p = data; n > 0; p++, n--)
        h = (h ^ *p) * UINT64_C(0x100000001b3);
    return h;
}

/* Without its NUL. */
static inline uint64_t hash_text(uint64_t h, const char *text) {
    return hash_bytes(h, text, strlen(text));
}
