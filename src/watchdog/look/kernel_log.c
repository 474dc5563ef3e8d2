#include "watchdog/look/kernel_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/duration.h"
#include "base/text/utf8.h"

#define LEVEL_NOTICE 5 /* the most harmless one that always counts; facilities are above bit 2 */

/* "NETDEV WATCHDOG", "Link is Down", "GPU has fallen off the bus" come at several levels. */
static bool is_about_hardware(uint64_t level, const char *line) {
    static const char *const words[] = {"link ", "xid",     "error",     "fail",
                                        "reset", "timeout", "timed out", "hung",
                                        "fault", "fallen",  "watchdog"};
    bool found = (level & 7) <= LEVEL_NOTICE;
    for (size_t i = 0; i < ARRAY_SIZE(words) && !found; i++)
        found = strcasestr(line, words[i]) != NULL;
    return found;
}

static int put_time(uint64_t boot_us, uint64_t us, char *out, size_t size) {
    uint64_t wall_us = boot_us != 0 && us <= UINT64_MAX - boot_us ? boot_us + us : 0;
    char time[UTC_TEXT_MAX];
    if (wall_us != 0 && wall_us <= UINT64_MAX / NS_PER_US) {
        utc_text(wall_us * NS_PER_US, time);
        return snprintf(out, size, "%s ", time);
    }
    return snprintf(out, size, "[%5llu.%06llu] ", (unsigned long long)(us / 1000000),
                    (unsigned long long)(us % 1000000));
}

bool kernel_log_record(const char *record, size_t len, struct kernel_log_record *ret) {
    const char *semicolon = memchr(record, ';', len), *end = record + len;
    char head[64], behind;
    (void)snprintf(head, sizeof head, "%.*s", (int)MIN2(len, sizeof head), record);
    if (semicolon == NULL ||
        sscanf(head, "%" SCNu64 ",%*u,%" SCNu64 "%c", &ret->level, &ret->us, &behind) != 3 ||
        (behind != ',' && behind != ';'))
        return false;
    ret->text = semicolon + 1;
    const char *newline = memchr(ret->text, '\n', (size_t)(end - ret->text));
    ret->len = (size_t)((newline != NULL ? newline : end) - ret->text);
    return true;
}

void kernel_log_add(void *arg, const char *record, size_t len) {
    struct kernel_log *log = arg;
    struct kernel_log_record r;
    if (!kernel_log_record(record, len, &r) || r.us < log->since_us)
        return;
    char raw[KERNEL_LOG_LINE_MAX];
    int begin = put_time(log->boot_us, r.us, raw, sizeof raw);
    size_t n = MIN2(r.len, sizeof raw - 1 - (size_t)begin);
    memcpy(raw + begin, r.text, n);
    raw[(size_t)begin + n] = '\0';
    struct kernel_log_ring *ring =
        is_about_hardware(r.level, raw + begin) ? &log->hardware : &log->rest;
    char *line = ring->lines[ring->n++ % KERNEL_LOG_LINES];
    utf8_copy_line(line, KERNEL_LOG_LINE_MAX, raw);
}

void kernel_log_write(const struct kernel_log *log, struct strbuf *to) {
    const struct kernel_log_ring *ring = log->hardware.n > 0 ? &log->hardware : &log->rest;
    uint32_t n = MIN2(ring->n, (uint32_t)KERNEL_LOG_LINES);
    if (log->hardware.n > 0 && log->rest.n > 0)
        strbuf_printf(to, "(left out: %u line%s of information without a fault or link)\n",
                      log->rest.n, log->rest.n == 1 ? "" : "s");
    for (uint32_t i = ring->n - n; i != ring->n; i++)
        strbuf_printf(to, "%s\n", ring->lines[i % KERNEL_LOG_LINES]);
}
