#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "rendezvous/protocol/wire_priv.h"

struct fields wire_fields_of(const struct json *obj, const char *const *keys, size_t n,
                             struct err *err) {
    struct fields f = {.obj = obj, .err = err};
    f.code = json_check_keys(obj, keys, n, err);
    return f;
}

void wire_get_u32(struct fields *f, const char *key, uint32_t min, uint32_t max, uint32_t *ret) {
    if (f->code == 0)
        f->code = json_get_u32(f->obj, key, max, ret, f->err);
    if (f->code == 0 && *ret < min)
        f->code = err_set(f->err, -EINVAL, "\"%s\" is %" PRIu32 ", below %" PRIu32, key, *ret, min);
}

void wire_get_i32(struct fields *f, const char *key, int32_t min, int32_t *ret) {
    if (f->code == 0)
        f->code = json_get_i32(f->obj, key, min, INT32_MAX, ret, f->err);
}

void wire_get_port(struct fields *f, const char *key, uint16_t *ret) {
    uint32_t v = 0;
    wire_get_u32(f, key, 1, UINT16_MAX, &v);
    *ret = (uint16_t)v;
}

void wire_get_bool(struct fields *f, const char *key, bool *ret) {
    if (f->code == 0)
        f->code = json_get_bool(f->obj, key, ret, f->err);
}

void wire_get_id(struct fields *f, const char *key, uint64_t *ret) {
    if (f->code == 0)
        f->code = json_get_id(f->obj, key, ret, f->err);
}

void wire_get_setting(struct fields *f, const char *key, uint64_t min, uint64_t *ret) {
    wire_get_id(f, key, ret);
    if (f->code == 0 && (*ret < min || *ret > WIRE_TIME_MAX_NS))
        f->code = err_set(f->err, -EINVAL, "\"%s\" is out of range: %" PRIu64, key, *ret);
}

void wire_get_hex(struct fields *f, const char *key, uint64_t *ret) {
    if (f->code == 0)
        f->code = json_get_hex(f->obj, key, ret, f->err);
}

void wire_get_incarnation(struct fields *f, const char *key, uint64_t *ret) {
    wire_get_hex(f, key, ret);
    if (f->code == 0 && *ret == 0)
        f->code = err_set(f->err, -EINVAL, "\"%s\" is 0, which names nobody", key);
}

void wire_get_text(struct fields *f, const char *key, char *ret, size_t size) {
    if (f->code == 0)
        f->code = json_get_text(f->obj, key, ret, size, f->err);
}

void wire_get_line(struct fields *f, const char *key, char *ret, size_t size) {
    wire_get_text(f, key, ret, size);
    if (f->code == 0)
        utf8_clean(ret, false);
}

void wire_get_generation(struct fields *f, const char *key, struct generation *ret) {
    char text[GENERATION_TEXT_MAX];
    wire_get_text(f, key, text, sizeof text);
    if (f->code != 0)
        return;
    char *dot = strchr(text, '.');
    struct generation g = {0, 0};
    if (dot != NULL)
        *dot = '\0';
    if (dot == NULL || parse_u32(text, &g.epoch) != 0 || parse_u32(dot + 1, &g.counter) != 0 ||
        (g.epoch == 0) != (g.counter == 0))
        f->code = err_set(f->err, -EINVAL, "\"%s\" is not a generation", key);
    else
        *ret = g;
}

uint32_t wire_get_name(struct fields *f, const char *key, const char *const *names, uint32_t first,
                       uint32_t n) {
    const char *text;
    if (f->code == 0)
        f->code = json_get_string(f->obj, key, 32, &text, f->err);
    if (f->code != 0)
        return first;
    for (uint32_t i = first; i < n; i++)
        if (strcmp(names[i], text) == 0)
            return i;
    f->code = err_set(f->err, -EINVAL, "\"%s\" has the unknown value '%s'", key, text);
    return first;
}

const struct json *wire_get_object(struct fields *f, const char *key) {
    const struct json *v = NULL;
    if (f->code == 0)
        f->code = json_get_object(f->obj, key, &v, f->err);
    return v;
}

const struct json *wire_get_array(struct fields *f, const char *key, uint32_t max) {
    const struct json *v = NULL;
    if (f->code == 0)
        f->code = json_get_array(f->obj, key, max, &v, f->err);
    return v;
}

uint32_t wire_get_ids(struct fields *f, const char *key, uint64_t *ret, uint32_t max) {
    const struct json *list = wire_get_array(f, key, max);
    uint32_t n = 0;
    if (list == NULL)
        return 0;
    for (const struct json *v = json_first(list); v != NULL; v = json_next(v), n++) {
        const char *text = json_string(v);
        if (text != NULL && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16)
            ret[n] = strtoull(text, NULL, 16);
        if (ret[n] == 0) {
            f->code = err_set(f->err, -EINVAL, "\"%s\" holds something that names no agent", key);
            return 0;
        }
    }
    return n;
}

void wire_put_text(struct json_writer *w, const char *key, const char *text, size_t size) {
    char copy[RDZV_REASON_MAX];
    assert(size <= sizeof copy && size > 0);
    utf8_copy(copy, size, text);
    json_write_string(w, key, copy);
}

void wire_put_generation(struct json_writer *w, const char *key, struct generation g) {
    char text[GENERATION_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%" PRIu32 ".%" PRIu32, g.epoch, g.counter);
    json_write_string(w, key, text);
}
