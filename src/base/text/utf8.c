#include "base/text/utf8.h"

#include <errno.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd";

static bool continues(uint8_t c) { return (c & 0xc0) == 0x80; }

size_t utf8_char(const char *s) {
    const uint8_t *u = (const uint8_t *)s;
    if (u[0] == 0)
        return 0;
    if (u[0] < 0x80)
        return 1;
    if (u[0] >= 0xc2 && u[0] <= 0xdf)
        return continues(u[1]) ? 2 : 0;
    if (u[0] >= 0xe0 && u[0] <= 0xef) {
        uint8_t low = u[0] == 0xe0 ? 0xa0 : 0x80, high = u[0] == 0xed ? 0x9f : 0xbf;
        return u[1] >= low && u[1] <= high && continues(u[2]) ? 3 : 0;
    }
    if (u[0] >= 0xf0 && u[0] <= 0xf4) {
        uint8_t low = u[0] == 0xf0 ? 0x90 : 0x80, high = u[0] == 0xf4 ? 0x8f : 0xbf;
        return u[1] >= low && u[1] <= high && continues(u[2]) && continues(u[3]) ? 4 : 0;
    }
    return 0;
}

size_t utf8_columns(const char *text) {
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

void utf8_copy(char *out, size_t size, const char *in) {
    size_t at = 0;
    while (*in != '\0') {
        size_t n = utf8_char(in), put = n > 0 ? n : sizeof replacement - 1;
        if (at + put >= size)
            break;
        memcpy(out + at, n > 0 ? in : replacement, put);
        at += put;
        in += MAX2(n, (size_t)1);
    }
    out[at] = '\0';
}

bool utf8_is_control(const char *s) {
    const uint8_t *u = (const uint8_t *)s;
    if (u[0] < 0x20 || u[0] == 0x7f)
        return u[0] != 0;
    if (u[0] == 0xc2)
        return u[1] >= 0x80 && u[1] < 0xa0;
    if (u[0] != 0xe2)
        return false;
    return (u[1] == 0x80 && u[2] >= 0xaa && u[2] <= 0xae) ||
           (u[1] == 0x81 && u[2] >= 0xa6 && u[2] <= 0xa9);
}

void utf8_clean(char *text, bool lines) {
    for (size_t n; *text != '\0'; text += n) {
        n = MAX2(utf8_char(text), (size_t)1);
        if (lines && (*text == '\n' || *text == '\t'))
            continue;
        if (utf8_char(text) == 0 || utf8_is_control(text))
            memset(text, '?', n);
    }
}

int utf8_check_line(const char *what, const char *text, size_t max, struct err *err) {
    size_t len = strlen(text);
    if (len > max)
        return err_set(err, -EINVAL, "%s: the text has %zu bytes; at most %zu are possible", what,
                       len, max);
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_char(text + i);
        if (n == 0)
            return err_set(err, -EINVAL, "%s: byte %zu (0x%02x) is not valid UTF-8", what, i + 1,
                           (uint8_t)text[i]);
        if (utf8_is_control(text + i))
            return err_set(err, -EINVAL, "%s: must not contain control characters (byte %zu)", what,
                           i + 1);
    }
    return 0;
}

void utf8_copy_line(char *out, size_t size, const char *in) {
    utf8_copy(out, size, in);
    utf8_clean(out, false);
}
