/* Numbers as bytes, least significant first, on every machine. */
#pragma once

#include "base/util.h"

static inline uint32_t load_u32le(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t load_u64le(const uint8_t *p) {
    return (uint64_t)load_u32le(p) | (uint64_t)load_u32le(p + 4) << 32;
}
static inline void store_u32le(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}
static inline void store_u64le(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}
