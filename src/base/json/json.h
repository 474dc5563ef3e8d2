/* JSON text to values and back, strict by default. Only src/base/json sees cJSON.
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
 * The reader accepts RFC 8259 and nothing else. It rejects a key that occurs twice in an object, a
 * byte after the value, a raw control character or a NUL (also as an escape) in a text, a number
 * that a double cannot hold, and text that is not UTF-8. JSON numbers become doubles, so whole
 * numbers are accepted up to 2^53. Larger ones are sent as texts: json_get_id(). */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text/strbuf.h"

struct json; /* one value: a whole document, which its owner frees, or a part borrowed from one */

#define JSON_INTEGER_MAX (UINT64_C(1) << 53)
#define JSON_DEPTH_MAX 16 /* no limits can allow more, because printing recurses */

struct json_limits {
    size_t max_bytes;    /* of the whole text */
    uint32_t max_depth;  /* 1: the outermost value contains no object or array */
    uint32_t max_values; /* values and keys together; this bounds the memory */
};
/* For muster's own messages. Their frame already bounds their length. */
extern const struct json_limits JSON_LIMITS_DEFAULT; /* 1 MiB, depth 8, 65,536 values */

/* The text must be exactly one JSON value. Returns 0; -EINVAL: not JSON, or a key occurs twice;
 * -E2BIG: over a limit; -ENOMEM. err names the error and its byte. The caller owns *ret. */
_must_use_ int json_parse(const char *text, size_t len, const struct json_limits *limits,
                          struct json **ret, struct err *err);
void json_free(struct json *doc); /* takes NULL, or a document from json_parse() */
static inline void json_freep(struct json **doc) { json_free(*doc); }

enum json_kind { JSON_NULL = 1, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };
enum json_kind json_kind_of(const struct json *v);

/* Read one member of an object. 0, or -EINVAL and a sentence with the key: it is missing, of
 * another type, or out of range. Texts are borrowed from the document and have no NUL. */
_must_use_ int json_get_u32(const struct json *obj, const char *key, uint32_t max, uint32_t *ret,
                            struct err *err);
/* max_len: in bytes, without the NUL. */
_must_use_ int json_get_string(const struct json *obj, const char *key, size_t max_len,
                               const char **ret, struct err *err);
/* A 64-bit number as a text of decimal digits, without leading zeros. */
_must_use_ int json_get_id(const struct json *obj, const char *key, uint64_t *ret, struct err *err);
_must_use_ int json_get_array(const struct json *obj, const char *key, uint32_t max_items,
                              const struct json **ret, struct err *err);

/* The same for a value that was found before; NULL: it is missing. Error texts call it `key`. */
_must_use_ int json_as_integer(const struct json *v, const char *key, int64_t min, int64_t max,
                               int64_t *ret, struct err *err); /* both within +-2^53 */
_must_use_ int json_as_bool(const struct json *v, const char *key, bool *ret, struct err *err);
_must_use_ int json_as_string(const struct json *v, const char *key, size_t max_len,
                              const char **ret, struct err *err);
_must_use_ int json_as_id(const struct json *v, const char *key, uint64_t *ret, struct err *err);
/* A 64-bit number as exactly 16 lower-case hexadecimal digits. */
_must_use_ int json_as_hex(const struct json *v, const char *key, uint64_t *ret, struct err *err);
_must_use_ int json_as_object(const struct json *v, const char *key, struct err *err);
_must_use_ int json_as_array(const struct json *v, const char *key, uint32_t max_items,
                             struct err *err);

/* Whether the member exists, also as null. If so, call json_get_…(). */
bool json_has(const struct json *obj, const char *key);
/* The member, of any type; NULL if it does not exist or `obj` is not an object. Borrowed. */
const struct json *json_member(const struct json *obj, const char *key);

/* Sets a member of an object that was read, of a document of the caller's. It becomes the last. */
void json_set_i64(const struct json *obj, const char *key, int64_t v); /* |v| as below */

/* Elements of an array or members of an object, in order:
 * for (const struct json *v = json_first(a); v != NULL; v = json_next(v)) */
uint32_t json_count(const struct json *v); /* 0 if it is neither */
const struct json *json_first(const struct json *v);
const struct json *json_next(const struct json *v);
const char *json_key(const struct json *v);          /* of a member of an object; else NULL */
const char *json_string(const struct json *v);       /* NULL if it is not a text */
bool json_number(const struct json *v, double *ret); /* false if it is not a number */

/* Writes compact JSON at the end of `out`. It writes commas and checks nesting. The caller must
 * match each begin with an end (this is asserted) and must use different names within an object.
 * `key` is the name in an object. It is NULL in an array and for the outermost value. */
struct json_writer {
    struct strbuf *out; /* borrowed */
    uint32_t depth;
    bool more[JSON_DEPTH_MAX]; /* by depth: the next value needs a comma */
    bool lines; /* for people: a line for each member of the outermost object, and blanks */
    const void *context; /* the caller's data, for the OWN fields of a table */
    /* Once `out` is longer than this, json_table_write() adds nothing more to lists. 0: no limit */
    size_t enough;
};
struct json_writer json_writer_of(struct strbuf *out);
void json_write_object_begin(struct json_writer *w, const char *key);
void json_write_object_end(struct json_writer *w);
void json_write_array_begin(struct json_writer *w, const char *key);
void json_write_array_end(struct json_writer *w);
void json_write_u64(struct json_writer *w, const char *key, uint64_t v); /* v <= JSON_INTEGER_MAX */
/* |v| <= JSON_INTEGER_MAX */
void json_write_i64(struct json_writer *w, const char *key, int64_t v);
/* Writes digits that read back as the same number. Numbers that are not finite are written as 0. */
void json_write_double(struct json_writer *w, const char *key, double v);
void json_write_bool(struct json_writer *w, const char *key, bool v);
void json_write_null(struct json_writer *w, const char *key);
/* Each byte that is not UTF-8 becomes one U+FFFD; a byte takes at most 6 in the output. */
void json_write_string(struct json_writer *w, const char *key, const char *text);
void json_write_id(struct json_writer *w, const char *key, uint64_t v);  /* decimal text */
void json_write_hex(struct json_writer *w, const char *key, uint64_t v); /* 16 digits */
/* `text` is one JSON value already, and is copied. */
void json_write_raw(struct json_writer *w, const char *key, const char *text);
/* Writes a value that was read, unchanged. 0 or -ENOMEM. */
_must_use_ int json_write_value(struct json_writer *w, const char *key, const struct json *v);

/* Versions such as "1.7.15": of cJSON's headers, and of the library found at run time. */
const char *json_built_version(void);
const char *json_library_version(void);
