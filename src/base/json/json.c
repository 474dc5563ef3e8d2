#include "base/json/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/parse.h"
#include "base/text/utf8.h"

const struct json_limits JSON_LIMITS_DEFAULT = {
    .max_bytes = 1024 * 1024, .max_depth = 8, .max_values = 65536};

/* A struct json is a cJSON under a name that keeps cJSON out of the headers. */
static const cJSON *in(const struct json *v) { return (const cJSON *)(const void *)v; }
static const struct json *out(const cJSON *v) { return (const struct json *)(const void *)v; }

/* Length of the UTF-8 sequence at p; 0 if there is none. The text need not end in a NUL. */
static size_t utf8_sequence(const uint8_t *p, size_t len) {
    char c[5] = "";
    memcpy(c, p, MIN2(len, sizeof c - 1));
    return utf8_char(c);
}

/* --- what cJSON accepts, but JSON forbids ----------------------------------------------------- */

struct scan {
    const uint8_t *p;
    size_t len, pos;
    uint32_t depth, values;
};

static bool is_digit(const struct scan *s, size_t pos) {
    return pos < s->len && s->p[pos] >= '0' && s->p[pos] <= '9';
}

static int scan_digits(struct scan *s) {
    if (!is_digit(s, s->pos))
        return -EINVAL;
    while (is_digit(s, s->pos))
        s->pos++;
    return 0;
}

static int scan_number(struct scan *s) {
    if (s->p[s->pos] == '-')
        s->pos++;
    bool zero = s->pos < s->len && s->p[s->pos] == '0';
    if (zero && is_digit(s, s->pos + 1))
        return -EINVAL;
    int r = scan_digits(s);
    if (r == 0 && s->pos < s->len && s->p[s->pos] == '.') {
        s->pos++;
        r = scan_digits(s);
    }
    if (r == 0 && s->pos < s->len && (s->p[s->pos] | 0x20) == 'e') {
        s->pos++;
        if (s->pos < s->len && (s->p[s->pos] == '+' || s->p[s->pos] == '-'))
            s->pos++;
        r = scan_digits(s);
    }
    return r;
}

static int scan_string(struct scan *s) {
    for (s->pos++; s->pos < s->len;) {
        uint8_t c = s->p[s->pos];
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
            s->pos++;
            continue;
        }
        if (c == '"') {
            s->pos++;
            return 0;
        }
        if (c < 0x20)
            return -EINVAL;
        if (c == '\\') {
            if (s->len - s->pos >= 6 && memcmp(s->p + s->pos, "\\u0000", 6) == 0)
                return -EINVAL;
            s->pos += 2;
            continue;
        }
        size_t n = utf8_sequence(s->p + s->pos, s->len - s->pos);
        if (n == 0)
            return -EINVAL;
        s->pos += n;
    }
    return -EINVAL;
}

/* One token. -EINVAL, or -E2BIG over the depth. */
static int scan_token(struct scan *s, uint32_t max_depth) {
    uint8_t c = s->p[s->pos];
    switch (c) {
    case '{':
    case '[':
        s->values++;
        if (s->depth++ == max_depth)
            return -E2BIG;
        s->pos++;
        return 0;
    case '}':
    case ']':
        if (s->depth == 0)
            return -EINVAL;
        s->depth--;
        s->pos++;
        return 0;
    case '"': s->values++; return scan_string(s);
    case ' ':
    case '\t':
    case '\n':
    case '\r':
    case ':':
    case ',': s->pos++; return 0;
    default: break;
    }
    if (c == '-' || is_digit(s, s->pos)) {
        s->values++;
        return scan_number(s);
    }
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        size_t n = strlen(words[i]);
        if (s->len - s->pos >= n && memcmp(s->p + s->pos, words[i], n) == 0) {
            s->values++;
            s->pos += n;
            return 0;
        }
    }
    return -EINVAL;
}

/* Checks the tokens and the limits; cJSON checks their order. */
static int scan(const char *text, size_t len, const struct json_limits *limits, struct err *err) {
    struct scan s = {.p = (const uint8_t *)text, .len = len};
    uint32_t max_depth = MIN2(limits->max_depth, JSON_DEPTH_MAX);
    if (len > limits->max_bytes)
        return err_set(err, -E2BIG, "JSON text of %zu bytes; the limit is %zu", len,
                       limits->max_bytes);
    while (s.pos < len) {
        int r = scan_token(&s, max_depth);
        if (r == -E2BIG)
            return err_set(err, r, "JSON nested deeper than %" PRIu32 " at byte %zu", max_depth,
                           s.pos);
        if (r < 0)
            return err_set(err, r, "not JSON at byte %zu", s.pos);
        if (s.values > limits->max_values)
            return err_set(err, -E2BIG, "JSON with more than %" PRIu32 " values",
                           limits->max_values);
    }
    return 0;
}

/* --- doubled keys ----------------------------------------------------------------------------- */

#define FEW_MEMBERS 24

static int compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool same_key(const char *a, const char *b) { return a[0] == b[0] && strcmp(a, b) == 0; }

/* The same without sorting, for objects with few members. Nearly all objects have few. */
static int check_few_doubled(const cJSON *object, struct err *err) {
    for (const cJSON *m = object->child; m != NULL; m = m->next)
        for (const cJSON *other = m->next; other != NULL; other = other->next)
            if (same_key(m->string, other->string))
                return err_set(err, -EINVAL, "JSON object with \"%.64s\" twice", m->string);
    return 0;
}

/* -ENOMEM, or -EINVAL if two members of `object` have the same name. */
static int check_doubled(const cJSON *object, struct err *err) {
    size_t n = (size_t)cJSON_GetArraySize(object), i = 0;
    if (n <= FEW_MEMBERS)
        return check_few_doubled(object, err);
    _cleanup_(freep) const char **keys = malloc(n * sizeof *keys);
    if (keys == NULL)
        return -ENOMEM;
    for (const cJSON *m = object->child; m != NULL; m = m->next)
        keys[i++] = m->string;
    qsort(keys, n, sizeof *keys, compare_keys);
    for (i = 1; i < n; i++) {
        if (strcmp(keys[i - 1], keys[i]) == 0)
            return err_set(err, -EINVAL, "JSON object with \"%.64s\" twice", keys[i]);
    }
    return 0;
}

static int check_all_doubled(const cJSON *root, struct err *err) {
    const cJSON *stack[JSON_DEPTH_MAX + 1];
    uint32_t n = 0;
    const cJSON *v = root;
    for (;;) {
        if (cJSON_IsObject(v)) {
            int r = check_doubled(v, err);
            if (r < 0)
                return r;
        }
        if (v->child != NULL) {
            assert(n < ARRAY_SIZE(stack));
            stack[n++] = v;
            v = v->child;
            continue;
        }
        while (v == root || v->next == NULL) {
            if (n == 0)
                return 0;
            v = stack[--n];
            if (v == root)
                return 0;
        }
        v = v->next;
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

int json_parse(const char *text, size_t len, const struct json_limits *limits, struct json **ret,
               struct err *err) {
    int r = scan(text, len, limits, err);
    if (r < 0)
        return r;
    const char *end = NULL;
    errno = 0;
    cJSON *doc = len == 0 ? NULL : cJSON_ParseWithLengthOpts(text, len, &end, false);
    if (doc == NULL) {
        if (errno == ENOMEM)
            return err_set(err, -ENOMEM, "no memory for JSON of %zu bytes", len);
        return err_set(err, -EINVAL, "not JSON at byte %zu",
                       end == NULL ? 0 : (size_t)(end - text));
    }
    while (end < text + len && strchr(" \t\r\n", *end) != NULL)
        end++;
    if (end < text + len)
        r = err_set(err, -EINVAL, "more after the end of the JSON value at byte %zu",
                    (size_t)(end - text));
    else
        r = check_all_doubled(doc, err);
    if (r < 0) {
        cJSON_Delete(doc);
        return r;
    }
    *ret = (struct json *)(void *)doc;
    return 0;
}

void json_free(struct json *doc) { cJSON_Delete((cJSON *)(void *)doc); }

enum json_kind json_kind_of(const struct json *v) {
    switch (in(v)->type & 0xff) {
    case cJSON_NULL: return JSON_NULL;
    case cJSON_False:
    case cJSON_True: return JSON_BOOL;
    case cJSON_Number: return JSON_NUMBER;
    case cJSON_String: return JSON_STRING;
    case cJSON_Array: return JSON_ARRAY;
    case cJSON_Object: return JSON_OBJECT;
    }
    assert_not_reached();
}

const struct json *json_member(const struct json *obj, const char *key) {
    if (!cJSON_IsObject(in(obj)))
        return NULL;
    for (const cJSON *m = in(obj)->child; m != NULL; m = m->next)
        if (same_key(m->string, key))
            return out(m);
    return NULL;
}

bool json_has(const struct json *obj, const char *key) { return json_member(obj, key) != NULL; }

static int value_of(const struct json *v, const char *key, enum json_kind kind,
                    const char *kind_name, struct err *err) {
    if (v == NULL)
        return err_set(err, -EINVAL, "field \"%s\" is missing", key);
    if (json_kind_of(v) != kind)
        return err_set(err, -EINVAL, "field \"%s\" is not %s", key, kind_name);
    return 0;
}

int json_as_integer(const struct json *v, const char *key, int64_t min, int64_t max, int64_t *ret,
                    struct err *err) {
    int r = value_of(v, key, JSON_NUMBER, "a number", err);
    if (r < 0)
        return r;
    double d = in(v)->valuedouble;
    if (!isfinite(d) || floor(d) < d)
        return err_set(err, -EINVAL, "field \"%s\" is not a whole number", key);
    if (d < (double)min || d > (double)max)
        return err_set(err, -EINVAL, "field \"%s\" is not between %" PRId64 " and %" PRId64, key,
                       min, max);
    *ret = (int64_t)d;
    return 0;
}

int json_as_bool(const struct json *v, const char *key, bool *ret, struct err *err) {
    int r = value_of(v, key, JSON_BOOL, "true or false", err);
    if (r == 0)
        *ret = cJSON_IsTrue(in(v));
    return r;
}

int json_as_string(const struct json *v, const char *key, size_t max_len, const char **ret,
                   struct err *err) {
    int r = value_of(v, key, JSON_STRING, "a text", err);
    if (r < 0)
        return r;
    if (strlen(in(v)->valuestring) > max_len)
        return err_set(err, -EINVAL, "field \"%s\" is longer than %zu bytes", key, max_len);
    *ret = in(v)->valuestring;
    return 0;
}

int json_as_id(const struct json *v, const char *key, uint64_t *ret, struct err *err) {
    const char *text = "";
    int r = json_as_string(v, key, 20, &text, err);
    if (r < 0)
        return r;
    if ((text[0] == '0' && text[1] != '\0') || parse_u64(text, ret) < 0)
        return err_set(err, -EINVAL, "field \"%s\" is not a 64-bit number in decimal digits", key);
    return 0;
}

int json_as_hex(const struct json *v, const char *key, uint64_t *ret, struct err *err) {
    static const char digits[] = "0123456789abcdef";
    const char *text = "";
    int r = json_as_string(v, key, 16, &text, err);
    if (r < 0)
        return r;
    if (strspn(text, digits) != 16)
        return err_set(err, -EINVAL, "field \"%s\" is not 16 hexadecimal digits", key);
    *ret = strtoull(text, NULL, 16);
    return 0;
}

int json_as_object(const struct json *v, const char *key, struct err *err) {
    return value_of(v, key, JSON_OBJECT, "an object", err);
}

int json_as_array(const struct json *v, const char *key, uint32_t max_items, struct err *err) {
    int r = value_of(v, key, JSON_ARRAY, "an array", err);
    if (r == 0 && json_count(v) > max_items)
        r = err_set(err, -EINVAL, "field \"%s\" has more than %" PRIu32 " elements", key,
                    max_items);
    return r;
}

int json_get_u32(const struct json *obj, const char *key, uint32_t max, uint32_t *ret,
                 struct err *err) {
    int64_t v;
    int r = json_as_integer(json_member(obj, key), key, 0, max, &v, err);
    if (r == 0)
        *ret = (uint32_t)v;
    return r;
}

int json_get_string(const struct json *obj, const char *key, size_t max_len, const char **ret,
                    struct err *err) {
    return json_as_string(json_member(obj, key), key, max_len, ret, err);
}

int json_get_id(const struct json *obj, const char *key, uint64_t *ret, struct err *err) {
    return json_as_id(json_member(obj, key), key, ret, err);
}

int json_get_array(const struct json *obj, const char *key, uint32_t max_items,
                   const struct json **ret, struct err *err) {
    const struct json *v = json_member(obj, key);
    int r = json_as_array(v, key, max_items, err);
    if (r == 0)
        *ret = v;
    return r;
}

uint32_t json_count(const struct json *v) { return (uint32_t)cJSON_GetArraySize(in(v)); }
const struct json *json_first(const struct json *v) { return out(in(v)->child); }
const struct json *json_next(const struct json *v) { return out(in(v)->next); }
const char *json_key(const struct json *v) { return in(v)->string; }

const char *json_string(const struct json *v) {
    return cJSON_IsString(in(v)) ? in(v)->valuestring : NULL;
}

bool json_number(const struct json *v, double *ret) {
    if (!cJSON_IsNumber(in(v)))
        return false;
    *ret = in(v)->valuedouble;
    return true;
}

void json_set_i64(const struct json *obj, const char *key, int64_t v) {
    cJSON *object = (cJSON *)(uintptr_t)obj;
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    (void)cJSON_AddNumberToObject(object, key, (double)v);
}

int json_write_value(struct json_writer *w, const char *key, const struct json *v) {
    char *text = cJSON_PrintUnformatted(in(v));
    if (text == NULL)
        return -ENOMEM;
    json_write_raw(w, key, text);
    cJSON_free(text);
    return 0;
}

#define STRING(x) #x
#define TEXT_OF(x) STRING(x)

const char *json_built_version(void) {
    return TEXT_OF(CJSON_VERSION_MAJOR) "." TEXT_OF(CJSON_VERSION_MINOR) "." TEXT_OF(
        CJSON_VERSION_PATCH);
}

const char *json_library_version(void) { return cJSON_Version(); }

/* --- writing ---------------------------------------------------------------------------------- */

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
