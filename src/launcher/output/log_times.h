/* When the bytes of a log file were written. Beside "stdout.log" lies ".stdout.times", with a stamp
 * for each batch of bytes: from which offset of the log it counts, and the time. So the logs of
 * several workers can be merged in the order of time, without a byte more in the logs themselves.
 * Pure.
 *
 *     struct log_pace pace = {0};
 *     if (log_pace_is_due(&pace, now_ns))
 *         log_stamp_encode(&(struct log_stamp){.at = offset, .ns = now_ns}, bytes);
 *
 * The file consists of stamps of LOG_STAMP_BYTES; what is left of the last one is ignored. Their
 * offsets increase. A time is that of the writer's node, and can step back if its clock does. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

/* At most one stamp in LOG_PACE_MIN_NS. LOG_PACE_BURST stamps can follow each other like that; then
 * there is one for each LOG_PACE_NS. So a worker that writes all day adds 70 MB, not 1.4 GB. */
#define LOG_PACE_MIN_NS (1 * NS_PER_MS)
#define LOG_PACE_NS (20 * NS_PER_MS)
#define LOG_PACE_BURST 4096

#define LOG_STAMP_BYTES 16 /* two numbers of 8 bytes, least significant byte first */

struct log_stamp {
    uint64_t at; /* bytes from this offset on were seen first at `ns` */
    uint64_t ns; /* since 1970 */
};

void log_stamp_encode(const struct log_stamp *stamp, uint8_t ret[LOG_STAMP_BYTES]);
struct log_stamp log_stamp_decode(const uint8_t bytes[LOG_STAMP_BYTES]);

/* How often stamps are made. Zeroed: none was made. */
struct log_pace {
    uint64_t last_ns;  /* of the last stamp, on the caller's clock */
    uint64_t spent_ns; /* of LOG_PACE_BURST * LOG_PACE_NS: each stamp costs LOG_PACE_NS */
};

/* Whether bytes that come now get a stamp of their own, which is then counted. A clock that steps
 * back makes one due. */
bool log_pace_is_due(struct log_pace *pace, uint64_t now_ns);

/* The path of the stamps of a log file: "a/stdout.log" to "a/.stdout.times". malloc'ed. */
char *log_times_path(const char *log_path);
