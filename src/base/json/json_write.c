#include "base/json/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text/utf8.h"

struct json_writer json_writer_of(struct strbuf *text) {
    return (struct json_writer){.out = text};
}

/* How many bytes from here need no escape in a JSON text. Usually this is the whole text. */
static size_t plain_run(const char *text) {
    size_t n = 0;
    for (uint8_t c; (c = (uint8_t)text[n]) >= 0x20 && c < 0x80 && c != '"' && c != '\\';)
        n++;
    return n;
}

static void write_text(struct strbuf *to, const char *text) {
    static const char hex[] = "0123456789abcdef";
    strbuf_add_char(to, '"');
    for (;;) {
        size_t n = plain_run(text);
        strbuf_add_bytes(to, text, n);
        text += n;
        uint8_t c = (uint8_t)*text;
        if (c == '\0')
            break;
        n = utf8_char(text);
        if (n == 0)
            strbuf_add(to, "\xef\xbf\xbd");
        else if (c == '"' || c == '\\') /* often, in JSON within JSON */
            strbuf_add_bytes(to, (const char[]){'\\', (char)c}, 2);
        else if (c == '\n')
            strbuf_add(to, "\\n");
        else if (c < 0x20)
            strbuf_add_bytes(to, (const char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
        else
            strbuf_add_bytes(to, text, n);
        text += MAX2(n, (size_t)1);
    }
    strbuf_add_char(to, '"');
}

static void write_digits(struct strbuf *to, uint64_t v) {
    char digits[20]; /* of 2^64 - 1 */
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    strbuf_add_bytes(to, digits + first, sizeof digits - first);
}

/* Writes what comes before any value: a comma and the key. */
static void begin_value(struct json_writer *w, const char *key) {
    if (w->depth > 0) {
        if (w->more[w->depth - 1])
            strbuf_add(w->out, w->lines && w->depth > 1 ? ", " : ",");
        w->more[w->depth - 1] = true;
    }
    if (w->lines && w->depth == 1)
        strbuf_add(w->out, "\n  ");
    if (key != NULL) {
        write_text(w->out, key);
        strbuf_add(w->out, w->lines ? ": " : ":");
    }
}

static void begin_nested(struct json_writer *w, const char *key, char bracket) {
    begin_value(w, key);
    strbuf_add_char(w->out, bracket);
    assert(w->depth < JSON_DEPTH_MAX);
    w->more[w->depth++] = false;
}

static void end_nested(struct json_writer *w, char bracket) {
    assert(w->depth > 0);
    w->depth--;
    if (w->lines && w->depth == 0)
        strbuf_add_char(w->out, '\n');
    strbuf_add_char(w->out, bracket);
}

void json_write_object_begin(struct json_writer *w, const char *key) { begin_nested(w, key, '{'); }
void json_write_object_end(struct json_writer *w) { end_nested(w, '}'); }
void json_write_array_begin(struct json_writer *w, const char *key) { begin_nested(w, key, '['); }
void json_write_array_end(struct json_writer *w) { end_nested(w, ']'); }

void json_write_u64(struct json_writer *w, const char *key, uint64_t v) {
    assert(v <= JSON_INTEGER_MAX);
    begin_value(w, key);
    write_digits(w->out, v);
}

void json_write_i64(struct json_writer *w, const char *key, int64_t v) {
    assert(v <= (int64_t)JSON_INTEGER_MAX && v >= -(int64_t)JSON_INTEGER_MAX);
    begin_value(w, key);
    if (v < 0)
        strbuf_add_char(w->out, '-');
    write_digits(w->out, (uint64_t)(v < 0 ? -v : v));
}

void json_write_double(struct json_writer *w, const char *key, double v) {
    char text[32];
    v = isfinite(v) ? v : 0;
    (void)snprintf(text, sizeof text, "%.15g", v);
    begin_value(w, key);
    strbuf_printf(w->out, "%.*g", strtod(text, NULL) == v ? 15 : 17, v);
}

void json_write_bool(struct json_writer *w, const char *key, bool v) {
    begin_value(w, key);
    strbuf_add(w->out, v ? "true" : "false");
}

void json_write_null(struct json_writer *w, const char *key) {
    begin_value(w, key);
    strbuf_add(w->out, "null");
}

void json_write_string(struct json_writer *w, const char *key, const char *text) {
    if (text == NULL) {
        json_write_null(w, key);
        return;
    }
    begin_value(w, key);
    write_text(w->out, text);
}

void json_write_id(struct json_writer *w, const char *key, uint64_t v) {
    begin_value(w, key);
    strbuf_add_char(w->out, '"');
    write_digits(w->out, v);
    strbuf_add_char(w->out, '"');
}

void json_write_hex(struct json_writer *w, const char *key, uint64_t v) {
    begin_value(w, key);
    strbuf_printf(w->out, "\"%016" PRIx64 "\"", v);
}

void json_write_raw(struct json_writer *w, const char *key, const char *text) {
    begin_value(w, key);
    strbuf_add(w->out, text);
}
