#include "base/json/json_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "base/text/utf8.h"

#define PAIR_TEXT_MAX 24            /* "4294967295.4294967295" */
#define TEXT_MAX ((size_t)8 * 1024) /* of one text */
#define NAME_MAX_BYTES 32

static const char *at(const void *of, size_t offset) { return (const char *)of + offset; }

static uint32_t u32_at(const void *of, size_t offset) {
    uint32_t v;
    memcpy(&v, at(of, offset), sizeof v);
    return v;
}

static uint64_t u64_at(const void *of, size_t offset) {
    uint64_t v;
    memcpy(&v, at(of, offset), sizeof v);
    return v;
}

bool json_field_is_of_kind(const struct json_field *f, const void *of) {
    return f->kinds == 0 || (f->kinds >> u32_at(of, f->kind_offset) & 1) != 0;
}

bool json_field_is_there(const struct json_field *f, const void *of) {
    if (!json_field_is_of_kind(f, of))
        return false;
    switch (f->when) {
    case JSON_ALWAYS:
    case JSON_OPTIONAL: return true;
    case JSON_WHEN_TEXT:
    case JSON_WHEN_TRUE: return *at(of, f->when_offset) != 0;
    case JSON_WHEN_SET: return u64_at(of, f->when_offset) != 0;
    case JSON_WHEN_SOME: return u32_at(of, f->when_offset) != 0;
    }
    assert_not_reached();
}

uint32_t json_list_count(const struct json_field *f, const void *of) {
    return f->count_offset >= JSON_WHOLE ? (uint32_t)(f->size / f->table->size)
                                         : u32_at(of, f->count_offset);
}

uint64_t json_field_max(const struct json_field *f) {
    if (f->max != 0)
        return f->max;
    switch (f->kind) {
    case JSON_FIELD_I32: return INT32_MAX;
    case JSON_FIELD_U16: return UINT16_MAX;
    case JSON_FIELD_U32: return UINT32_MAX;
    case JSON_FIELD_INDEX: return UINT32_MAX - 1;
    case JSON_FIELD_I64:
    case JSON_FIELD_U64: return JSON_INTEGER_MAX;
    case JSON_FIELD_BOOL:
    case JSON_FIELD_DOUBLE:
    case JSON_FIELD_ID:
    case JSON_FIELD_HEX:
    case JSON_FIELD_TEXT:
    case JSON_FIELD_LINE:
    case JSON_FIELD_NAME:
    case JSON_FIELD_PAIR:
    case JSON_FIELD_OBJECT:
    case JSON_FIELD_LIST:
    case JSON_FIELD_OWN: return UINT64_MAX;
    }
    assert_not_reached();
}

/* ---- writing ---- */

/* Cuts the text so that it fits the reader's array after bytes that are not UTF-8 are replaced. */
static void write_text(struct json_writer *w, const char *key, const char *text, size_t size) {
    char copy[TEXT_MAX];
    assert(size <= sizeof copy);
    utf8_copy(copy, size, text);
    json_write_string(w, key, copy);
}

static void write_pair(struct json_writer *w, const char *key, const uint32_t pair[2]) {
    char text[PAIR_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%" PRIu32 ".%" PRIu32, pair[0], pair[1]);
    json_write_string(w, key, text);
}

static void write_index(struct json_writer *w, const char *key, uint32_t v) {
    if (v == UINT32_MAX)
        json_write_null(w, key);
    else
        json_write_u64(w, key, v);
}

static void write_name(struct json_writer *w, const struct json_field *f, uint32_t v) {
    const char *name = v < f->n_names ? f->names[v] : NULL;
    json_write_string(w, f->key, name != NULL ? name : "unknown");
}

static void write_value(struct json_writer *w, const struct json_field *f, const void *of);

static void write_list(struct json_writer *w, const struct json_field *f, const void *of) {
    static const char none[64];
    const struct json_table *t = f->table;
    bool plain = t->fields[0].key == NULL;
    assert(f->count_offset != JSON_HOLES || t->size <= sizeof none);
    json_write_array_begin(w, f->key);
    const char *first = at(of, f->offset);
    if (f->add != NULL)
        memcpy(&first, at(of, f->offset), sizeof first);
    for (uint32_t i = 0, n = json_list_count(f, of); i < n; i++) {
        const char *element = first + i * t->size;
        if (w->enough != 0 && w->out->len > w->enough)
            break;
        if (f->count_offset == JSON_HOLES && memcmp(element, none, t->size) == 0)
            continue;
        if (plain) {
            write_value(w, &t->fields[0], element);
            continue;
        }
        json_write_object_begin(w, NULL);
        json_table_write(w, t, element);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_value(struct json_writer *w, const struct json_field *f, const void *of) {
    const void *p = at(of, f->offset);
    switch (f->kind) {
    case JSON_FIELD_BOOL: json_write_bool(w, f->key, *(const bool *)p); break;
    case JSON_FIELD_I32: json_write_i64(w, f->key, *(const int32_t *)p); break;
    case JSON_FIELD_U16: json_write_u64(w, f->key, *(const uint16_t *)p); break;
    case JSON_FIELD_U32: json_write_u64(w, f->key, *(const uint32_t *)p); break;
    case JSON_FIELD_INDEX: write_index(w, f->key, *(const uint32_t *)p); break;
    case JSON_FIELD_I64: json_write_i64(w, f->key, *(const int64_t *)p); break;
    case JSON_FIELD_U64:
        json_write_u64(w, f->key, MIN2(*(const uint64_t *)p, JSON_INTEGER_MAX));
        break;
    case JSON_FIELD_DOUBLE: json_write_double(w, f->key, *(const double *)p); break;
    case JSON_FIELD_ID: json_write_id(w, f->key, *(const uint64_t *)p); break;
    case JSON_FIELD_HEX: json_write_hex(w, f->key, *(const uint64_t *)p); break;
    case JSON_FIELD_TEXT:
    case JSON_FIELD_LINE: write_text(w, f->key, p, f->size); break;
    case JSON_FIELD_NAME: write_name(w, f, u32_at(p, 0)); break;
    case JSON_FIELD_PAIR: write_pair(w, f->key, p); break;
    case JSON_FIELD_OBJECT:
        json_write_object_begin(w, f->key);
        json_table_write(w, f->table, p);
        json_write_object_end(w);
        break;
    case JSON_FIELD_LIST: write_list(w, f, of); break;
    case JSON_FIELD_OWN:
        if (f->write != NULL)
            f->write(w, f, of);
        break;
    }
}

void json_table_write(struct json_writer *w, const struct json_table *table, const void *of) {
    for (size_t i = 0; i < table->n; i++) {
        const struct json_field *f = &table->fields[i];
        if (json_field_is_there(f, of))
            write_value(w, f, of);
        else if (f->or_null)
            json_write_null(w, f->key);
    }
}

void json_table_text(const struct json_table *table, const void *of, struct strbuf *to) {
    struct json_writer w = json_writer_of(to);
    json_write_object_begin(&w, NULL);
    json_table_write(&w, table, of);
    json_write_object_end(&w);
}

/* ---- reading ---- */

static int read_number(const struct json *v, const struct json_field *f, void *p, struct err *err) {
    int64_t number;
    int r = json_as_integer(v, f->key, f->min, (int64_t)json_field_max(f), &number, err);
    if (r < 0)
        return r;
    if (f->size == sizeof(uint16_t))
        *(uint16_t *)p = (uint16_t)number;
    else if (f->size == sizeof(uint32_t))
        *(uint32_t *)p = (uint32_t)number;
    else
        *(int64_t *)p = number;
    return 0;
}

static int read_index(const struct json *v, const struct json_field *f, uint32_t *p,
                      struct err *err) {
    if (v == NULL || json_kind_of(v) != JSON_NULL)
        return read_number(v, f, p, err);
    *p = UINT32_MAX;
    return 0;
}

static int read_double(const struct json *v, const struct json_field *f, double *p,
                       struct err *err) {
    if (v == NULL || !json_number(v, p) || *p < 0)
        return err_set(err, -EINVAL, "field \"%s\" is not a number of 0 or more", f->key);
    return 0;
}

static int read_id(const struct json *v, const struct json_field *f, uint64_t *ret,
                   struct err *err) {
    int r = json_as_id(v, f->key, ret, err);
    if (r == 0 && (*ret < (uint64_t)f->min || *ret > json_field_max(f)))
        r = err_set(err, -EINVAL, "\"%s\" is out of range: %" PRIu64, f->key, *ret);
    return r;
}

static int read_hex(const struct json *v, const struct json_field *f, uint64_t *ret,
                    struct err *err) {
    int r = json_as_hex(v, f->key, ret, err);
    if (r == 0 && *ret < (uint64_t)f->min)
        r = err_set(err, -EINVAL, "\"%s\" must not be 0", f->key);
    return r;
}

static int read_text(const struct json *v, const struct json_field *f, char *ret, struct err *err) {
    const char *text = "";
    int r = json_as_string(v, f->key, f->size - 1, &text, err);
    if (r < 0)
        return r;
    size_t len = strlen(text);
    if (len < (size_t)f->min)
        return err_set(err, -EINVAL, "\"%s\" is empty", f->key);
    memcpy(ret, text, len + 1);
    if (f->kind == JSON_FIELD_LINE)
        utf8_clean(ret, false);
    return 0;
}

static int read_name(const struct json *v, const struct json_field *f, void *p, struct err *err) {
    const char *text = "";
    int r = json_as_string(v, f->key, NAME_MAX_BYTES, &text, err);
    if (r < 0)
        return r;
    for (uint32_t i = (uint32_t)f->min; i < f->n_names; i++) {
        if (f->names[i] == NULL || strcmp(f->names[i], text) != 0)
            continue;
        memcpy(p, &i, sizeof i);
        return 0;
    }
    return err_set(err, -EINVAL, "\"%s\" has the unknown value '%s'", f->key, text);
}

static int read_pair(const struct json *v, const struct json_field *f, uint32_t *ret,
                     struct err *err) {
    const char *text = "", *dot;
    char first[PAIR_TEXT_MAX];
    int r = json_as_string(v, f->key, PAIR_TEXT_MAX - 1, &text, err);
    if (r < 0)
        return r;
    dot = strchr(text, '.');
    if (dot != NULL) {
        memcpy(first, text, (size_t)(dot - text));
        first[dot - text] = '\0';
    }
    uint32_t a = 0, b = 0;
    if (dot == NULL || parse_u32(first, &a) != 0 || parse_u32(dot + 1, &b) != 0 ||
        (a == 0) != (b == 0))
        return err_set(err, -EINVAL, "\"%s\" is not a generation", f->key);
    ret[0] = a;
    ret[1] = b;
    return 0;
}

static int read_value(const struct json *v, const struct json_field *f, void *of, struct err *err);

static int read_list(const struct json *v, const struct json_field *f, void *of, struct err *err) {
    const struct json_table *t = f->table;
    uint32_t max = f->add != NULL ? UINT32_MAX : (uint32_t)(f->size / t->size), n = 0;
    int r = json_as_array(v, f->key, max, err);
    if (r < 0)
        return r;
    bool plain = t->fields[0].key == NULL;
    for (const struct json *e = json_first(v); e != NULL && r == 0; e = json_next(e)) {
        void *element = f->add != NULL ? f->add(of) : (char *)of + f->offset + n * t->size;
        if (element == NULL)
            return err_set(err, -E2BIG, "field \"%s\" has more than %" PRIu32 " elements", f->key,
                           n);
        n++;
        struct json_field only = t->fields[0];
        only.key = f->key;
        r = plain ? read_value(e, &only, element, err) : json_table_read(e, t, element, err);
    }
    if (r == 0 && n < (uint32_t)f->min)
        return err_set(err, -EINVAL, "\"%s\" is empty", f->key);
    if (f->count_offset < JSON_WHOLE && f->add == NULL)
        memcpy((char *)of + f->count_offset, &n, sizeof n);
    return r;
}

static int read_own(const struct json *v, const struct json_field *f, void *of, struct err *err) {
    if (f->read == NULL)
        return 0;
    int r = v == NULL ? -EINVAL : f->read(v, f, of);
    return r < 0 ? err_set(err, -EINVAL, "field \"%s\" is not of its form", f->key) : 0;
}

static int read_value(const struct json *v, const struct json_field *f, void *of, struct err *err) {
    void *p = (char *)of + f->offset;
    int r = 0;
    switch (f->kind) {
    case JSON_FIELD_BOOL: return json_as_bool(v, f->key, p, err);
    case JSON_FIELD_I32:
    case JSON_FIELD_U16:
    case JSON_FIELD_U32:
    case JSON_FIELD_I64:
    case JSON_FIELD_U64: return read_number(v, f, p, err);
    case JSON_FIELD_INDEX: return read_index(v, f, p, err);
    case JSON_FIELD_DOUBLE: return read_double(v, f, p, err);
    case JSON_FIELD_ID: return read_id(v, f, p, err);
    case JSON_FIELD_HEX: return read_hex(v, f, p, err);
    case JSON_FIELD_TEXT:
    case JSON_FIELD_LINE: return read_text(v, f, p, err);
    case JSON_FIELD_NAME: return read_name(v, f, p, err);
    case JSON_FIELD_PAIR: return read_pair(v, f, p, err);
    case JSON_FIELD_OBJECT:
        r = json_as_object(v, f->key, err);
        return r < 0 ? r : json_table_read(v, f->table, p, err);
    case JSON_FIELD_LIST: return read_list(v, f, of, err);
    case JSON_FIELD_OWN: return read_own(v, f, of, err);
    }
    assert_not_reached();
}

static int check_relations(const struct json_table *table, const void *of, struct err *err) {
    for (size_t i = 0; i < table->n; i++) {
        const struct json_field *f = &table->fields[i];
        uint32_t v = f->at_most != 0 || f->below != 0 ? u32_at(of, f->offset) : 0;
        if ((f->at_most != 0 && v > u32_at(of, f->at_most - 1)) ||
            (f->below != 0 && v >= u32_at(of, f->below - 1)))
            return err_set(err, -EINVAL, "\"%s\" is too large: %" PRIu32, f->key, v);
    }
    return table->check == NULL ? 0 : table->check(of, err);
}

/* The object has a key that no field has: finds it, for the error text. */
static int unknown_key(const struct json *obj, const struct json_table *table, const void *of,
                       struct err *err) {
    const struct json *v = json_first(obj);
    for (; v != NULL; v = json_next(v)) {
        bool known = table->beside != NULL && strcmp(json_key(v), table->beside) == 0;
        for (size_t i = 0; i < table->n && !known; i++)
            known = strcmp(json_key(v), table->fields[i].key) == 0 &&
                    json_field_is_of_kind(&table->fields[i], of);
        if (!known)
            break;
    }
    return err_set(err, -EINVAL, "unknown field \"%.64s\"", v == NULL ? "?" : json_key(v));
}

/* `next` is the member after the last one found: usually it is the one wanted. */
static const struct json *find(const struct json *obj, const char *key, const struct json **next,
                               uint32_t *n) {
    const struct json *v = *next;
    if (v == NULL || json_key(v)[0] != key[0] || strcmp(json_key(v), key) != 0)
        v = json_member(obj, key);
    if (v == NULL)
        return NULL;
    *next = json_next(v);
    ++*n;
    return v;
}

int json_table_read(const struct json *obj, const struct json_table *table, void *of,
                    struct err *err) {
    if (json_kind_of(obj) != JSON_OBJECT)
        return err_set(err, -EINVAL, "not a JSON object");
    const struct json *next = json_first(obj);
    uint32_t n = 0;
    if (table->beside != NULL)
        (void)find(obj, table->beside, &next, &n);
    for (size_t i = 0; i < table->n; i++) {
        const struct json_field *f = &table->fields[i];
        if (!json_field_is_of_kind(f, of)) {
            if (f->absent != 0)
                memcpy((char *)of + f->offset, &f->absent, sizeof f->absent);
            continue;
        }
        const struct json *v = find(obj, f->key, &next, &n);
        if (v == NULL && f->when != JSON_ALWAYS)
            continue;
        if (f->when == JSON_WHEN_TRUE)
            *((char *)of + f->when_offset) = true;
        int r = read_value(v, f, of, err);
        if (r < 0)
            return r;
    }
    if (n < json_count(obj) && !table->open)
        return unknown_key(obj, table, of, err);
    return check_relations(table, of, err);
}

int json_table_parse(const char *text, size_t len, const struct json_limits *limits,
                     const struct json_table *table, void *of, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    int r = json_parse(text, len, limits, &doc, err);
    return r < 0 ? r : json_table_read(doc, table, of, err);
}
