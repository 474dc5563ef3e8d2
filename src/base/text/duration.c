#include "base/text/duration.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/util.h"

void duration_text(uint64_t ns, struct strbuf *ret) {
    uint64_t s = ns / NS_PER_S;
    if (s < 1)
        strbuf_printf(ret, "%" PRIu64 " ms", ns / NS_PER_MS);
    else if (s < 10)
        strbuf_printf(ret, "%" PRIu64 ".%" PRIu64 " s", s, ns % NS_PER_S / (NS_PER_S / 10));
    else if (s < 120)
        strbuf_printf(ret, "%" PRIu64 " s", s);
    else if (s < 7200)
        strbuf_printf(ret, "%" PRIu64 " min %02" PRIu64 " s", s / 60, s % 60);
    else
        strbuf_printf(ret, "%" PRIu64 " h %02" PRIu64 " min", s / 3600, s % 3600 / 60);
}

void utc_text(uint64_t wall_ns, char ret[UTC_TEXT_MAX]) {
    time_t at = (time_t)(wall_ns / NS_PER_S);
    struct tm tm = {0};
    (void)gmtime_r(&at, &tm);
    size_t len = strftime(ret, UTC_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(ret + len, UTC_TEXT_MAX - len, ".%03uZ", (unsigned)(wall_ns / NS_PER_MS % 1000));
}
