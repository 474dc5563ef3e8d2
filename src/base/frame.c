#include "base/frame.h"

#include <errno.h>

#include "base/little_endian.h"

int frame_size(const uint8_t *data, size_t len, size_t payload_max, size_t *ret_bytes) {
    assert(payload_max <= FRAME_PAYLOAD_MAX);
    if (len < FRAME_HEADER_BYTES)
        return FRAME_E_MORE;
    size_t payload = load_u32le(data);
    if (payload == 0 || payload > payload_max)
        return -EMSGSIZE;
    *ret_bytes = FRAME_HEADER_BYTES + payload;
    return 0;
}

void frame_header(size_t payload_bytes, uint8_t out[FRAME_HEADER_BYTES]) {
    assert(payload_bytes >= 1 && payload_bytes <= FRAME_PAYLOAD_MAX);
    store_u32le(out, (uint32_t)payload_bytes);
}
