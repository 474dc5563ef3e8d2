#include "memory_image.h"

#include <errno.h>
#include <string.h>

static uint64_t number(const uint8_t **at, size_t bytes) {
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)(*at)[i] << 8 * i;
    *at += bytes;
    return v;
}

bool memory_image_parse(struct memory_image *ret, const uint8_t *bytes, size_t n) {
    enum { HEAD = 40, PIECE = 12 };
    const uint8_t *at = bytes, *end = bytes + n;
    ret->n = ret->reads = 0;
    if (n < HEAD)
        return false;
    ret->found.version = (uint32_t)number(&at, 4);
    ret->found.pid = (int32_t)number(&at, 4);
    ret->found.runtime = number(&at, 8);
    ret->found.code_type = number(&at, 8);
    ret->found.text_type = number(&at, 8);
    ret->found.bytes_type = number(&at, 8);
    while (end - at >= PIECE && ret->n < MEMORY_IMAGE_PIECES_MAX) {
        uint64_t address = number(&at, 8), length = number(&at, 2), when = number(&at, 2);
        if (length > (uint64_t)(end - at))
            break;
        ret->pieces[ret->n].address = address;
        ret->pieces[ret->n].length = (uint32_t)length;
        ret->pieces[ret->n].when = (uint32_t)when;
        ret->pieces[ret->n++].bytes = at;
        at += length;
    }
    return true;
}

void memory_image_write(struct memory_image *m, uint32_t when, uint64_t address, const void *bytes, size_t n) {
    assert(m->n < MEMORY_IMAGE_PIECES_MAX);
    m->pieces[m->n].address = address;
    m->pieces[m->n].length = (uint32_t)n;
    m->pieces[m->n].when = when;
    m->pieces[m->n++].bytes = bytes;
}

/* How many bytes from an address on are in the piece that lies over all others there; 0: none is. */
static size_t under(const struct memory_image *m, uint64_t address, size_t n, const uint8_t **ret) {
    uint64_t hidden = n; /* from here on, another piece lies over it */
    for (uint32_t i = m->n; i-- > 0;) {
        if (m->pieces[i].when > m->reads || m->pieces[i].length == 0)
            continue;
        uint64_t skip = address - m->pieces[i].address;
        if (skip < m->pieces[i].length) {
            *ret = m->pieces[i].bytes + skip;
            return (size_t)MIN2(hidden, m->pieces[i].length - skip);
        }
        hidden = MIN2(hidden, m->pieces[i].address - address);
    }
    return 0;
}

static ssize_t read_image(void *arg, uint64_t address, void *buf, size_t n) {
    struct memory_image *m = arg;
    m->reads++;
    size_t got = 0;
    while (got < n) {
        const uint8_t *from = NULL;
        size_t some = under(m, address + got, n - got, &from);
        if (some == 0)
            break;
        memcpy((uint8_t *)buf + got, from, some);
        got += some;
    }
    return got > 0 || n == 0 ? (ssize_t)got : -EFAULT;
}

struct pystack_memory memory_image_reader(struct memory_image *m) {
    return (struct pystack_memory){read_image, m};
}
