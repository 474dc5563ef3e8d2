/* JSON text to values and back, strict by default. The only user of cJSON; callers see none of it.
 *
 *     _cleanup_(json_freep) struct json *doc = NULL;
 *     r = json_parse(text, len, &JSON_LIMITS_DEFAULT, &doc, &err);
 *     r = json_get_u64(doc, "port", 65535, &port, &err);
 *
 *     _cleanup_(strbuf_fini) struct strbuf text = {0};
 *     struct json_writer w = json_writer_of(&text);
 *     json_write_object_begin(&w, NULL);
 *     json_write_string(&w, "host", name);
 *     json_write_object_end(&w);
 *
 * Reading takes RFC 8259 and nothing else: no doubled key in an object, no byte after the value, no
 * raw control character or NUL (written as an escape either) in a text, no number that a double
 * cannot hold, only UTF-8. JSON numbers are doubles on their way, so whole numbers are taken up to
 * 2^53; larger ones (ids, times) travel as texts: json_get_id(), json_write_id(). */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

struct json; /* one value: a whole document that its owner frees, or borrowed from inside one */

#define JSON_INTEGER_MAX (UINT64_C(1) << 53)
#define JSON_DEPTH_MAX 16 /* the most that any limits may allow: printing recurses */

struct json_limits {
    size_t max_bytes;    /* of the text */
    uint32_t max_depth;  /* 1: no object or array inside the outermost one */
    uint32_t max_values; /* all values and keys together: bounds the memory */
};
/* For messages of ours, whose bytes are bounded by their frame already. */
extern const struct json_limits JSON_LIMITS_DEFAULT; /* 1 MiB, depth 8, 65,536 values */

/* The value must be one whole JSON text. 0; -EINVAL: not JSON, or doubled keys; -E2BIG: over a
 * limit; -ENOMEM. err names the error and its byte. *ret is owned by the caller. */
_must_use_ int json_parse(const char *text, size_t len, const struct json_limits *limits,
                          struct json **ret, struct err *err);
void json_free(struct json *doc); /* NULL is fine; only what json_parse() gave */
static inline void json_freep(struct json **doc) { json_free(*doc); }

enum json_kind { JSON_NULL = 1, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };
enum json_kind json_kind_of(const struct json *v);

/* One member of an object. 0, or -EINVAL and a sentence with the key: it is missing, of another
 * kind, or out of its range. Texts are borrowed from the document and hold no NUL. */
_must_use_ int json_get_u64(const struct json *obj, const char *key, uint64_t max, uint64_t *ret,
                            struct err *err); /* max <= JSON_INTEGER_MAX */
_must_use_ int json_get_u32(const struct json *obj, const char *key, uint32_t max, uint32_t *ret,
                            struct err *err);
_must_use_ int json_get_i32(const struct json *obj, const char *key, int32_t min, int32_t max,
                            int32_t *ret, struct err *err);
_must_use_ int json_get_bool(const struct json *obj, const char *key, bool *ret, struct err *err);
/* max_len: bytes without the NUL. */
_must_use_ int json_get_string(const struct json *obj, const char *key, size_t max_len,
                               const char **ret, struct err *err);
/* The same into an array: size includes the NUL. */
_must_use_ int json_get_text(const struct json *obj, const char *key, char *ret, size_t size,
                             struct err *err);
/* A 64-bit number as a text of decimal digits ("0" to "18446744073709551615"), written one way. */
_must_use_ int json_get_id(const struct json *obj, const char *key, uint64_t *ret, struct err *err);
/* A 64-bit number as exactly 16 lower-case hexadecimal digits. */
_must_use_ int json_get_hex(const struct json *obj, const char *key, uint64_t *ret,
                            struct err *err);
_must_use_ int json_get_object(const struct json *obj, const char *key, const struct json **ret,
                               struct err *err);
_must_use_ int json_get_array(const struct json *obj, const char *key, uint32_t max_items,
                              const struct json **ret, struct err *err);

/* The same of a value that was found already; NULL: it is missing. `key` is its name in sentences.
 */
_must_use_ int json_as_integer(const struct json *v, const char *key, int64_t min, int64_t max,
                               int64_t *ret, struct err *err); /* both within +-2^53 */
_must_use_ int json_as_bool(const struct json *v, const char *key, bool *ret, struct err *err);
_must_use_ int json_as_string(const struct json *v, const char *key, size_t max_len,
                              const char **ret, struct err *err);
_must_use_ int json_as_id(const struct json *v, const char *key, uint64_t *ret, struct err *err);
_must_use_ int json_as_hex(const struct json *v, const char *key, uint64_t *ret, struct err *err);
_must_use_ int json_as_object(const struct json *v, const char *key, struct err *err);
_must_use_ int json_as_array(const struct json *v, const char *key, uint32_t max_items,
                             struct err *err);

/* For what may be absent: is there such a member (null counts as one)? Then json_get_…(). */
bool json_has(const struct json *obj, const char *key);
/* The member, whatever it is; NULL when there is none or `obj` is no object. Borrowed. */
const struct json *json_member(const struct json *obj, const char *key);

/* Elements of an array or members of an object, in order:
 * for (const struct json *v = json_first(a); v != NULL; v = json_next(v)) */
uint32_t json_count(const struct json *v); /* 0 for what is neither */
const struct json *json_first(const struct json *v);
const struct json *json_next(const struct json *v);
const char *json_key(const struct json *v);          /* of a member of an object; NULL for others */
const char *json_string(const struct json *v);       /* NULL when it is no text */
bool json_number(const struct json *v, double *ret); /* false when it is no number */

/* Writes compact JSON at the end of `out`. Commas and nesting are its business; that begin and end
 * match, and that names differ within an object, is the caller's (the first is asserted). `key` is
 * the name in an object and NULL in an array or for the outermost value. */
struct json_writer {
    struct strbuf *out; /* borrowed */
    uint32_t depth;
    bool more[JSON_DEPTH_MAX]; /* by depth: the next value needs a comma */
    const void *context;       /* the caller's, for the OWN fields of a table */
};
struct json_writer json_writer_of(struct strbuf *out);
void json_write_object_begin(struct json_writer *w, const char *key);
void json_write_object_end(struct json_writer *w);
void json_write_array_begin(struct json_writer *w, const char *key);
void json_write_array_end(struct json_writer *w);
void json_write_u64(struct json_writer *w, const char *key, uint64_t v); /* v <= JSON_INTEGER_MAX */
void json_write_i64(struct json_writer *w, const char *key, int64_t v);  /* |v|: the same */
/* Digits that are read as the same number; what is not finite is 0. */
void json_write_double(struct json_writer *w, const char *key, double v);
void json_write_bool(struct json_writer *w, const char *key, bool v);
void json_write_null(struct json_writer *w, const char *key);
/* Bytes that are not UTF-8 become U+FFFD, one for each. Each byte takes at most 6 in the output. */
void json_write_string(struct json_writer *w, const char *key, const char *text);
void json_write_id(struct json_writer *w, const char *key, uint64_t v);  /* decimal text */
void json_write_hex(struct json_writer *w, const char *key, uint64_t v); /* 16 digits */
/* Text that is one JSON value already. */
void json_write_raw(struct json_writer *w, const char *key, const char *text);
/* A value that was read, as it is. -ENOMEM. */
_must_use_ int json_write_value(struct json_writer *w, const char *key, const struct json *v);

/* "1.7.15": of cJSON's headers, and of the library found at run time. */
const char *json_built_version(void);
const char *json_library_version(void);
