/* Bounded little-endian reader and writer over memory that somebody else owns.
 *
 * After the first overrun every further call does nothing and `failed` stays set, so a decoder
 * checks once at its end. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

struct reader {
    const uint8_t *data; /* borrowed */
    size_t len, pos;
    bool failed;
};

struct writer {
    uint8_t *data; /* borrowed */
    size_t cap, pos;
    bool failed;
};

static inline struct reader reader_of(const void *data, size_t len) {
    return (struct reader){.data = data, .len = len};
}
static inline struct writer writer_of(void *data, size_t cap) {
    return (struct writer){.data = data, .cap = cap};
}

uint8_t read_u8(struct reader *r);
uint32_t read_u32le(struct reader *r);
uint64_t read_u64le(struct reader *r);
/* n bytes, borrowed from the reader's memory; NULL after an overrun. */
const uint8_t *read_bytes(struct reader *r, size_t n);

void write_u8(struct writer *w, uint8_t v);
void write_u32le(struct writer *w, uint32_t v);
void write_u64le(struct writer *w, uint64_t v);
void write_bytes(struct writer *w, const void *data, size_t n);

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
