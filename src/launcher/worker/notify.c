#include "launcher/worker/notify.h"

#include <string.h>

static bool is_line(const char *line, size_t n, const char *text) {
    return n == strlen(text) && memcmp(line, text, n) == 0;
}

struct notify_message notify_parse(const char *data, size_t len) {
    struct notify_message message = {0};
    if (len > NOTIFY_BYTES_MAX || memchr(data, '\0', len) != NULL)
        return message;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(data + at, '\n', len - at);
        size_t n = end != NULL ? (size_t)(end - data) - at : len - at;
        if (is_line(data + at, n, "MUSTER_SAFE_POINT=1"))
            message.safe_point = true;
        at += n + 1;
    }
    return message;
}
