#include "launcher/output/log_times.h"

#include <string.h>

#include "base/little_endian.h"

void log_stamp_encode(const struct log_stamp *stamp, uint8_t ret[LOG_STAMP_BYTES]) {
    store_u64le(ret, stamp->at);
    store_u64le(ret + 8, stamp->ns);
}

struct log_stamp log_stamp_decode(const uint8_t bytes[LOG_STAMP_BYTES]) {
    return (struct log_stamp){.at = load_u64le(bytes), .ns = load_u64le(bytes + 8)};
}

bool log_pace_is_due(struct log_pace *pace, uint64_t now_ns) {
    uint64_t passed_ns = now_ns - pace->last_ns;
    bool back = now_ns < pace->last_ns;
    if (!back && passed_ns < LOG_PACE_MIN_NS && pace->last_ns != 0)
        return false;
    uint64_t spent_ns = back || passed_ns >= pace->spent_ns ? 0 : pace->spent_ns - passed_ns;
    if (spent_ns + LOG_PACE_NS > LOG_PACE_BURST * LOG_PACE_NS)
        return false;
    pace->spent_ns = spent_ns + LOG_PACE_NS;
    pace->last_ns = now_ns;
    return true;
}

char *log_times_path(const char *log_path) {
    const char *name = path_name(log_path), *dot = strrchr(log_path, '.');
    size_t n = dot != NULL && dot > name ? (size_t)(dot - name) : strlen(name);
    return xasprintf("%.*s.%.*s.times", (int)(name - log_path), log_path, (int)n, name);
}
