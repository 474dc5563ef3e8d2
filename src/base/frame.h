/* Cuts a stream of bytes into frames: four bytes of length, little-endian, then that many bytes of
 * payload. Pure and without state: the bytes stay where they were received, so a length that a peer
 * announces never causes an allocation.
 *
 *     while ((r = frame_size(data, len, max, &size)) == 0 && size <= len) {
 *         use(data + FRAME_HEADER_BYTES, size - FRAME_HEADER_BYTES);
 *         data += size; len -= size;
 *     }
 *     r < 0: the peer breaks the protocol */
#pragma once

#include <errno.h>

#include "base/little_endian.h"

#define FRAME_HEADER_BYTES ((size_t)4)
/* No user of frames may allow more than this. */
#define FRAME_PAYLOAD_MAX ((size_t)256 * 1024)

enum { FRAME_E_MORE = 1 }; /* the header is not complete yet */

/* Returns how many bytes the frame at `data` has, header and payload; it is complete when len >=
 * *ret_bytes. 0, FRAME_E_MORE, or -EMSGSIZE: its payload is empty or longer than payload_max. Only
 * the header is needed, so a frame that is too long is rejected without waiting for the rest. */
_must_use_ static inline int frame_size(const uint8_t *data, size_t len, size_t payload_max,
                                        size_t *ret_bytes) {
    assert(payload_max <= FRAME_PAYLOAD_MAX);
    if (len < FRAME_HEADER_BYTES)
        return FRAME_E_MORE;
    size_t payload = load_u32le(data);
    if (payload == 0 || payload > payload_max)
        return -EMSGSIZE;
    *ret_bytes = FRAME_HEADER_BYTES + payload;
    return 0;
}

/* The header of a payload; 1 <= payload_bytes <= FRAME_PAYLOAD_MAX (asserted). */
static inline void frame_header(size_t payload_bytes, uint8_t out[FRAME_HEADER_BYTES]) {
    assert(payload_bytes >= 1 && payload_bytes <= FRAME_PAYLOAD_MAX);
    store_u32le(out, (uint32_t)payload_bytes);
}
