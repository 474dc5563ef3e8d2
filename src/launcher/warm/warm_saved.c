#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "launcher/warm/warm.h"

#define HEADER_MAX 96

void warm_saved_write(const char *record, size_t n, uint64_t args, struct strbuf *out) {
    strbuf_printf(out, "imports 1 %016" PRIx64 " %zu\n", args, n);
    strbuf_add_bytes(out, record, n);
}

size_t warm_record_head(const char *record, size_t n) {
    size_t at = 0;
    for (;;) {
        const char *end = memchr(record + at, '\n', n - at);
        if (end == NULL)
            return at;
        size_t next = (size_t)(end - record) + 1;
        if (at > 0 && record[at] != '=')
            return at;
        at = next;
    }
}

/* Not every one is a word: sysconfig imports _sysconfigdata__x86_64-linux-gnu. */
static bool is_module(const char *line, size_t n) {
    size_t begun = n > 0 && line[0] == '~';
    line += begun;
    n -= begun;
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)line[i];
        bool ok = c >= 0x80 || c == '_' || c == '.' || c == '-' || (c >= '0' && c <= '9') ||
                  (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!ok)
            return false;
    }
    return n > 0 && n < 512;
}

static bool are_modules(const char *text, size_t n) {
    while (n > 0) {
        const char *end = memchr(text, '\n', n);
        if (end == NULL)
            return false;
        size_t len = (size_t)(end - text);
        bool stop = text[0] == '!'; /* the last line, WARM's own */
        bool file = text[0] == '=';
        if (stop ? len + 1 != n : !file && !is_module(text, len))
            return false;
        n -= len + 1;
        text = end + 1;
    }
    return true;
}

const char *warm_saved_read(const char *text, size_t n, uint64_t args,
                            char reason[WARM_REASON_MAX]) {
    char header[HEADER_MAX], again[HEADER_MAX], unused[WARM_REASON_MAX];
    const char *end = n > 0 ? memchr(text, '\n', MIN2(n, sizeof header - 1)) : NULL;
    const char *why = "it is damaged";
    if (end != NULL) {
        size_t len = (size_t)(end - text), rest = n - len - 1, head;
        const char *record = end + 1;
        (void)snprintf(header, sizeof header, "%.*s", (int)len, text);
        (void)snprintf(again, sizeof again, "imports 1 %016" PRIx64 " %zu", args, rest);
        bool like = strlen(header) == strlen(again) && strncmp(header, again, 10) == 0;
        if (like && strcmp(header, again) != 0 && strcmp(header + 26, again + 26) == 0)
            why = "the script has other arguments now";
        else if (strcmp(header, again) == 0 && rest > 5 && memcmp(record, "gate ", 5) == 0 &&
                 warm_record_ok(record, rest, unused) &&
                 (head = warm_record_head(record, rest)) < rest &&
                 memchr(record, '\0', rest) == NULL && are_modules(record + head, rest - head))
            return record;
    }
    (void)snprintf(reason, WARM_REASON_MAX, "%s", why);
    return NULL;
}
