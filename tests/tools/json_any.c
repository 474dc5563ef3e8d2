#include "json_any.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/utf8.h"

#define TRIES_MAX 10000

/* A random number in 0 … max; both ends are more frequent. */
static uint64_t any(struct prng *prng, uint64_t max) {
    switch (prng_below(prng, 4)) {
    case 0: return 0;
    case 1: return max;
    default: return max == UINT64_MAX ? prng_next(prng) : prng_below(prng, max + 1);
    }
}

/* Draws a text; the longest is more frequent. */
static void any_text(struct prng *prng, const struct json_field *f, char *out) {
    static const char *const pieces[] = {
        "a", "\"", "\\", "\n", "\x01", "\x1f", "\x7f", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "/", " "};
    size_t least = (size_t)f->min, most = f->size - 1;
    size_t len = prng_below(prng, 3) == 0 ? most : least + prng_below(prng, most - least + 1), at = 0;
    for (;;) {
        const char *p = pieces[prng_below(prng, ARRAY_SIZE(pieces))];
        if (at + strlen(p) > len)
            break;
        (void)memcpy(out + at, p, strlen(p));
        at += strlen(p);
    }
    while (at < len)
        out[at++] = 'x';
    out[at] = '\0';
    if (f->kind == JSON_FIELD_LINE) /* characters that are not for a terminal are removed on the way */
        utf8_clean(out, false);
}

static void any_number(struct prng *prng, const struct json_field *f, void *p, uint64_t max) {
    uint64_t v = (uint64_t)(int64_t)f->min + any(prng, max - (uint64_t)(int64_t)f->min);
    memcpy(p, &v, f->size); /* little-endian, as all machines that we know */
}

static void any_value(struct prng *prng, const struct json_field *f, void *of);

static void any_list(struct prng *prng, const struct json_field *f, void *of) {
    uint32_t n = (uint32_t)f->min + (uint32_t)any(prng, f->size / f->table->size - (uint32_t)f->min);
    for (uint32_t i = 0; i < n; i++) {
        void *element = (char *)of + f->offset + i * f->table->size;
        if (f->table->fields[0].key == NULL)
            any_value(prng, &f->table->fields[0], element);
        else
            json_any(prng, f->table, element);
    }
    if (f->count_offset < JSON_WHOLE)
        memcpy((char *)of + f->count_offset, &n, sizeof n);
}

static void any_value(struct prng *prng, const struct json_field *f, void *of) {
    void *p = (char *)of + f->offset;
    switch (f->kind) {
    case JSON_FIELD_BOOL: *(bool *)p = prng_below(prng, 2) != 0; break;
    case JSON_FIELD_I32:
    case JSON_FIELD_U16:
    case JSON_FIELD_U32:
    case JSON_FIELD_INDEX:
    case JSON_FIELD_I64:
    case JSON_FIELD_U64:
    case JSON_FIELD_ID:
    case JSON_FIELD_HEX: any_number(prng, f, p, json_field_max(f)); break;
    case JSON_FIELD_TEXT:
    case JSON_FIELD_LINE: any_text(prng, f, p); break;
    case JSON_FIELD_NAME: any_number(prng, f, p, f->n_names - 1); break;
    case JSON_FIELD_PAIR: {
        uint32_t pair[2] = {0, 0};
        if (prng_below(prng, 2) != 0) {
            pair[0] = 1 + (uint32_t)any(prng, UINT32_MAX - 1);
            pair[1] = 1 + (uint32_t)any(prng, UINT32_MAX - 1);
        }
        memcpy(p, pair, sizeof pair);
        break;
    }
    case JSON_FIELD_OBJECT: json_any(prng, f->table, p); break;
    case JSON_FIELD_LIST: any_list(prng, f, of); break;
    case JSON_FIELD_DOUBLE: {
        double v = (double)any(prng, JSON_INTEGER_MAX) / 3;
        memcpy(p, &v, sizeof v);
        break;
    }
    case JSON_FIELD_OWN: break; /* its table's own test draws it */
    }
}

static uint32_t u32_at(const void *of, size_t offset) {
    uint32_t v;
    memcpy(&v, (const char *)of + offset, sizeof v);
    return v;
}

/* Draws the value again, now that its upper limit is known. */
static void any_related(struct prng *prng, const struct json_field *f, void *of) {
    uint64_t max = json_field_max(f);
    if (f->at_most != 0)
        max = MIN2(max, (uint64_t)u32_at(of, f->at_most - 1));
    if (f->below != 0)
        max = MIN2(max, (uint64_t)u32_at(of, f->below - 1) - 1);
    if (f->at_most != 0 || f->below != 0)
        any_number(prng, f, (char *)of + f->offset, max);
}

static void try_any(struct prng *prng, const struct json_table *table, void *of) {
    memset(of, 0, table->size);
    for (size_t i = 0; i < table->n; i++) {
        const struct json_field *f = &table->fields[i];
        if (!json_field_is_of_kind(f, of)) {
            if (f->absent != 0)
                memcpy((char *)of + f->offset, &f->absent, f->size);
            continue;
        }
        if (f->when != JSON_ALWAYS && prng_below(prng, 2) == 0)
            continue;
        if (f->when == JSON_WHEN_TRUE)
            *((char *)of + f->when_offset) = true;
        any_value(prng, f, of);
    }
    for (size_t i = 0; i < table->n; i++)
        any_related(prng, &table->fields[i], of);
}

void json_any(struct prng *prng, const struct json_table *table, void *of) {
    for (unsigned i = 0; i < TRIES_MAX; i++) {
        try_any(prng, table, of);
        if (table->check == NULL || table->check(of, NULL) == 0)
            return;
    }
    abort(); /* no value passes the check */
}

static const char *list_difference(const struct json_field *f, const void *a, const void *b) {
    uint32_t n = json_list_count(f, a);
    if (json_list_count(f, b) != n)
        return f->key;
    for (uint32_t i = 0; i < n; i++) {
        const char *x = (const char *)a + f->offset + i * f->table->size;
        const char *y = (const char *)b + f->offset + i * f->table->size;
        const char *key = f->table->fields[0].key != NULL               ? json_difference(f->table, x, y)
                          : f->table->fields[0].kind == JSON_FIELD_LINE ? (strcmp(x, y) == 0 ? NULL : f->key)
                          : memcmp(x, y, f->table->size) == 0           ? NULL
                                                                        : f->key;
        if (key != NULL)
            return key;
    }
    return NULL;
}

const char *json_difference(const struct json_table *table, const void *a, const void *b) {
    for (size_t i = 0; i < table->n; i++) {
        const struct json_field *f = &table->fields[i];
        const char *x = (const char *)a + f->offset, *y = (const char *)b + f->offset;
        bool there = json_field_is_there(f, a);
        if (json_field_is_there(f, b) != there)
            return f->key;
        if (!there)
            continue;
        const char *key = NULL;
        if (f->kind == JSON_FIELD_OBJECT)
            key = json_difference(f->table, x, y);
        else if (f->kind == JSON_FIELD_LIST)
            key = list_difference(f, a, b);
        else if (f->kind == JSON_FIELD_TEXT || f->kind == JSON_FIELD_LINE)
            key = strcmp(x, y) == 0 ? NULL : f->key;
        else
            key = memcmp(x, y, f->size) == 0 ? NULL : f->key;
        if (key != NULL)
            return key;
    }
    return NULL;
}

static void check_value(const struct json_field *f, const void *of) {
    const char *p = (const char *)of + f->offset;
    bool text = f->kind == JSON_FIELD_TEXT || f->kind == JSON_FIELD_LINE;
    if (text && (memchr(p, '\0', f->size) == NULL || strlen(p) < (size_t)f->min))
        abort();
    if (f->kind == JSON_FIELD_NAME && (u32_at(p, 0) < (uint32_t)f->min || u32_at(p, 0) >= f->n_names))
        abort();
    if (f->kind == JSON_FIELD_U32 && (u32_at(p, 0) < (uint32_t)f->min || u32_at(p, 0) > json_field_max(f)))
        abort();
    if (f->kind == JSON_FIELD_OBJECT)
        json_check(f->table, p);
    if (f->kind != JSON_FIELD_LIST)
        return;
    uint32_t n = json_list_count(f, of);
    if (n < (uint32_t)f->min || n > f->size / f->table->size)
        abort();
    for (uint32_t i = 0; i < n && f->count_offset != JSON_HOLES; i++) {
        if (f->table->fields[0].key == NULL)
            check_value(&f->table->fields[0], p + i * f->table->size);
        else
            json_check(f->table, p + i * f->table->size);
    }
}

void json_check(const struct json_table *table, const void *of) {
    for (size_t i = 0; i < table->n; i++)
        if (json_field_is_there(&table->fields[i], of))
            check_value(&table->fields[i], of);
    if (table->check != NULL && table->check(of, NULL) != 0)
        abort();
}
