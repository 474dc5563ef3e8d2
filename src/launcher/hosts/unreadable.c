#include "launcher/hosts/unreadable.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"

/* Bytes that are shown before and after the place. */
#define SHOWN_BEFORE ((size_t)40)
#define SHOWN_AFTER ((size_t)40)

#define REASON_MAX 256

int unreadable(struct err *err, int code, const char *what, const char *text, size_t at,
               const char *fmt, ...) {
    char shown[SHOWN_BEFORE + SHOWN_AFTER + 1], reason[REASON_MAX];
    size_t begin = at > SHOWN_BEFORE ? at - SHOWN_BEFORE : 0;
    size_t n = strnlen(text + begin, sizeof shown - 1);
    memcpy(shown, text + begin, n);
    shown[n] = '\0';
    utf8_clean(shown, false);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    return err_set(err, code, "cannot read the %s \"%s%s%s\": at character %zu %s", what,
                   begin > 0 ? "..." : "", shown, text[begin + n] != '\0' ? "..." : "", at + 1,
                   reason);
}
