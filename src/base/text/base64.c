#include "base/text/base64.h"

#include <errno.h>
#include <stdbool.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *data, size_t len, struct strbuf *out) {
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = MIN2(len - i, (size_t)3);
        uint32_t bits = (uint32_t)p[i] << 16;
        if (n > 1)
            bits |= (uint32_t)p[i + 1] << 8;
        if (n > 2)
            bits |= p[i + 2];
        char four[4] = {alphabet[bits >> 18], alphabet[bits >> 12 & 63],
                        n > 1 ? alphabet[bits >> 6 & 63] : '=', n > 2 ? alphabet[bits & 63] : '='};
        strbuf_add_bytes(out, four, sizeof four);
    }
}

/* 0 … 63, or -1. */
static int value_of(char c) {
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(const char *text, size_t len, uint8_t *ret, size_t *ret_len) {
    if (len % 4 != 0)
        return -EINVAL;
    size_t n = 0;
    for (size_t i = 0; i < len; i += 4) {
        bool last = i + 4 == len;
        size_t padding = last && text[i + 3] == '=' ? (text[i + 2] == '=' ? 2 : 1) : 0;
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            int v = k < 4 - padding ? value_of(text[i + k]) : 0;
            if (v < 0)
                return -EINVAL;
            bits = bits << 6 | (uint32_t)v;
        }
        if ((bits & ((UINT32_C(1) << (8 * padding)) - 1)) != 0)
            return -EINVAL;
        for (size_t k = 0; k < 3 - padding; k++)
            ret[n++] = (uint8_t)(bits >> (16 - 8 * k));
    }
    *ret_len = n;
    return 0;
}
