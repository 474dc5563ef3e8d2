#include <string.h>

#include "launcher/warm/warm.h"

/* A zip of one stored file. APPNOTE.TXT of PKWARE, 4.3.7, 4.3.12, 4.3.16; little-endian. */

static void add_number(struct strbuf *out, uint32_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++)
        strbuf_add_char(out, (char)(value >> 8 * i & 0xff));
}

/* CRC-32 of ISO 3309, as zip has it. */
static uint32_t crc_of(const char *text, size_t n) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= (uint8_t)text[i];
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

/* From "version needed" to the length of the extra field: the same in both kinds of header. */
static void add_entry(struct strbuf *out, uint32_t crc, uint32_t size, const char *name) {
    add_number(out, 10, 2);
    add_number(out, 0, 2);    /* flags */
    add_number(out, 0, 2);    /* stored */
    add_number(out, 0, 2);    /* 0:00 */
    add_number(out, 0x21, 2); /* 1980-01-01 */
    add_number(out, crc, 4);
    add_number(out, size, 4);
    add_number(out, size, 4);
    add_number(out, (uint32_t)strlen(name), 2);
    add_number(out, 0, 2);
}

void warm_zip(struct strbuf *out) {
    static const char name[] = "sitecustomize.py";
    size_t n = strlen(warm_gate_text), start = out->len;
    uint32_t crc = crc_of(warm_gate_text, n), size = (uint32_t)n;
    strbuf_add_bytes(out, "PK\3\4", 4);
    add_entry(out, crc, size, name);
    strbuf_add(out, name);
    strbuf_add_bytes(out, warm_gate_text, n);
    size_t directory = out->len;
    strbuf_add_bytes(out, "PK\1\2", 4);
    add_number(out, 10, 2); /* made by */
    add_entry(out, crc, size, name);
    add_number(out, 0, 2); /* comment */
    add_number(out, 0, 2); /* disk */
    add_number(out, 0, 2); /* attributes */
    add_number(out, 0, 4);
    add_number(out, 0, 4); /* where its header is */
    strbuf_add(out, name);
    size_t end = out->len;
    strbuf_add_bytes(out, "PK\5\6", 4);
    add_number(out, 0, 4); /* disks */
    add_number(out, 1, 2);
    add_number(out, 1, 2);
    add_number(out, (uint32_t)(end - directory), 4);
    add_number(out, (uint32_t)(directory - start), 4);
    add_number(out, 0, 2);
}
