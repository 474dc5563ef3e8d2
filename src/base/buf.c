#include "base/buf.h"

#include <string.h>

const uint8_t *read_bytes(struct reader *r, size_t n) {
    if (r->failed || n > r->len - r->pos) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *p = r->data + r->pos;
    r->pos += n;
    return p;
}

uint8_t read_u8(struct reader *r) {
    const uint8_t *p = read_bytes(r, 1);
    return p == NULL ? 0 : *p;
}

uint32_t read_u32le(struct reader *r) {
    const uint8_t *p = read_bytes(r, 4);
    return p == NULL ? 0 : load_u32le(p);
}

uint64_t read_u64le(struct reader *r) {
    const uint8_t *p = read_bytes(r, 8);
    return p == NULL ? 0 : load_u64le(p);
}

void write_bytes(struct writer *w, const void *data, size_t n) {
    if (w->failed || n > w->cap - w->pos) {
        w->failed = true;
        return;
    }
    if (n > 0)
        memcpy(w->data + w->pos, data, n);
    w->pos += n;
}

void write_u8(struct writer *w, uint8_t v) { write_bytes(w, &v, 1); }

void write_u32le(struct writer *w, uint32_t v) {
    uint8_t b[4];
    store_u32le(b, v);
    write_bytes(w, b, sizeof b);
}

void write_u64le(struct writer *w, uint64_t v) {
    uint8_t b[8];
    store_u64le(b, v);
    write_bytes(w, b, sizeof b);
}
