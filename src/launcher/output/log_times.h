/* When the bytes of a log file were written. Beside "stdout.log" lies ".stdout.times", with a stamp
 * for each batch of bytes: from which offset of the log it counts, and the time. So the logs of
 * several workers can be merged in the order of time, without a byte more in the logs themselves.
 * Pure. log_times_io.h writes them.
 *
 * The file consists of stamps of LOG_STAMP_BYTES; what is left of the last one is ignored. Their
 * offsets increase. A time is that of the writer's node, and can step back if its clock does. */
#pragma once

#include "base/little_endian.h"

#define LOG_STAMP_BYTES 16 /* two numbers of 8 bytes, least significant byte first */

struct log_stamp {
    uint64_t at; /* bytes from this offset on were seen first at `ns` */
    uint64_t ns; /* since 1970 */
};

static inline void log_stamp_encode(const struct log_stamp *stamp, uint8_t ret[LOG_STAMP_BYTES]) {
    store_u64le(ret, stamp->at);
    store_u64le(ret + 8, stamp->ns);
}

static inline struct log_stamp log_stamp_decode(const uint8_t bytes[LOG_STAMP_BYTES]) {
    return (struct log_stamp){.at = load_u64le(bytes), .ns = load_u64le(bytes + 8)};
}
