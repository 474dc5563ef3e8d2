/* A table of a struct's fields, by which it is written as JSON and read. Tests generate random
 * structs by it, and compare them (tests/tools/json_any.h).
 *
 *     static const struct json_field peer_fields[] = {
 *         {JSON_FIELD(rdzv_peer, HEX, "incarnation", incarnation), .min = 1},
 *         {JSON_FIELD(rdzv_peer, TEXT, "addr", addr)},
 *         {JSON_FIELD(rdzv_peer, U16, "port", port), .min = 1},
 *     };
 *     static const struct json_table peer = JSON_TABLE(rdzv_peer, peer_fields);
 *
 * Reading is strict: every required field must exist and be within its limits, in any order. Other
 * keys are errors, unless the table is open. */
#pragma once

#include <stddef.h>

#include "base/json/json.h"

enum json_field_kind {
    JSON_FIELD_BOOL = 1,
    JSON_FIELD_I32,    /* a number, min … INT32_MAX */
    JSON_FIELD_U16,    /* a number, min … max */
    JSON_FIELD_U32,    /* the same */
    JSON_FIELD_INDEX,  /* uint32_t, a number; UINT32_MAX: null */
    JSON_FIELD_I64,    /* a number, min … 2^53 */
    JSON_FIELD_U64,    /* the same; larger numbers are written as 2^53 */
    JSON_FIELD_DOUBLE, /* 0 or more; written so that it reads back unchanged */
    JSON_FIELD_ID,     /* uint64_t as a text of decimal digits, min … max */
    JSON_FIELD_HEX,    /* uint64_t as 16 hexadecimal digits; min 1: 0 is not a valid name */
    JSON_FIELD_TEXT,   /* char[size], at least min bytes */
    JSON_FIELD_LINE,   /* the same, for display within a line of other text: cleaned */
    JSON_FIELD_NAME,   /* an enum, by its name, from min on */
    JSON_FIELD_PAIR,   /* two uint32_t as "2.3", both 0 or neither */
    JSON_FIELD_OBJECT, /* a struct, by its own table */
    JSON_FIELD_LIST,   /* an array of at least min elements, each by `table` */
    JSON_FIELD_OWN,    /* written and read by functions of its own */
};

/* When a field exists (for structs of its kind). */
enum json_when {
    JSON_ALWAYS = 0,
    JSON_OPTIONAL,  /* always written; if it is missing, reading leaves the struct's value */
    JSON_WHEN_TRUE, /* if the bool at when_offset, or the field itself, is true; reading sets it */
    JSON_WHEN_SET,  /* if the uint64_t at when_offset is not 0 */
    JSON_WHEN_SOME, /* if the uint32_t at when_offset is not 0 */
    JSON_WHEN_TEXT, /* if the text at when_offset is not empty */
};

struct json_field {
    const char *key; /* NULL: the only field of a list's plain elements */
    enum json_field_kind kind;
    size_t offset, size;
    int64_t min;
    uint64_t max;             /* 0: the maximum of its type */
    const char *const *names; /* NAME */
    uint32_t n_names;
    const struct json_table *table; /* OBJECT, LIST */
    size_t count_offset;            /* LIST: offset of the uint32_t count; JSON_HOLES, JSON_WHOLE */
    /* LIST behind a pointer: appends an element and counts it; returns NULL if there is no room */
    void *(*add)(void *of);
    /* OWN: writes keys and values, or nothing; NULL: the field is only read */
    void (*write)(struct json_writer *w, const struct json_field *f, const void *of);
    /* OWN: 0 or a negative errno; NULL: the field is ignored, as others have its value */
    int (*read)(const struct json *v, const struct json_field *f, void *of);
    /* Kinds that have it: a bit for each value of an earlier enum at kind_offset. 0: all have it */
    uint32_t kinds;
    size_t kind_offset;
    uint64_t absent; /* ID: its value if the kind has no such field */
    enum json_when when;
    size_t when_offset;
    bool or_null; /* if the field does not exist, null is written */
    /* U32: at most, or below, another U32 of the struct, its offset + 1; 0: no such limit */
    size_t at_most, below;
};
/* The list has no count: elements that are 0 are left out; or all are written. */
#define JSON_HOLES SIZE_MAX
#define JSON_WHOLE (SIZE_MAX - 1)

struct json_table {
    const struct json_field *fields;
    size_t n, size;     /* of fields; of the struct */
    const char *beside; /* another key that is allowed, and that the caller handles; or NULL */
    bool open;          /* other keys are allowed, and ignored */
    /* Checks rules between fields; may be NULL. Returns 0, or -EINVAL and a sentence. */
    int (*check)(const void *of, struct err *err);
};
#define JSON_ROWS(type, rows) .fields = (rows), .n = ARRAY_SIZE(rows), .size = sizeof(struct type)
#define JSON_TABLE(type, rows) \
    { JSON_ROWS(type, rows) }

#define JSON_FIELD(type, what, name, member)                                           \
    .key = (name), .kind = JSON_FIELD_##what, .offset = offsetof(struct type, member), \
    .size = sizeof(((struct type *)0)->member)
#define JSON_NAMED(type, name, member, table) \
    JSON_FIELD(type, NAME, name, member), .names = (table), .n_names = ARRAY_SIZE(table)
#define JSON_STRUCT(type, name, member, its) JSON_FIELD(type, OBJECT, name, member), .table = &(its)
#define JSON_LIST(type, name, member, count, its)          \
    JSON_FIELD(type, LIST, name, member), .table = &(its), \
                                          .count_offset = offsetof(struct type, count)
#define JSON_ARRAY_OF(type, name, member, adds, its)                      \
    JSON_FIELD(type, LIST, name, member), .table = &(its), .add = (adds), \
                                          .count_offset = offsetof(struct type, n_##member)
#define JSON_OF_KINDS(type, member, mask) \
    .kinds = (mask), .kind_offset = offsetof(struct type, member)
#define JSON_IF_TRUE(type, member) \
    .when = JSON_WHEN_TRUE, .when_offset = offsetof(struct type, member)
#define JSON_IF_SET(type, member) \
    .when = JSON_WHEN_SET, .when_offset = offsetof(struct type, member)
#define JSON_IF_SOME(type, member) \
    .when = JSON_WHEN_SOME, .when_offset = offsetof(struct type, member)
#define JSON_IF_TEXT(type, member) \
    .when = JSON_WHEN_TEXT, .when_offset = offsetof(struct type, member)

/* Writes the fields of *of into an object that the caller has begun. */
void json_table_write(struct json_writer *w, const struct json_table *table, const void *of);

/* Writes them as an object, a whole text. */
void json_table_text(const struct json_table *table, const void *of, struct strbuf *to);

/* Reads into *of. The caller has zeroed it, or has set the defaults of optional fields. Returns 0,
 * -EINVAL, or -E2BIG (no room for an element), with a sentence. */
_must_use_ int json_table_read(const struct json *obj, const struct json_table *table, void *of,
                               struct err *err);
/* The same from a text; or an error of json_parse(). */
_must_use_ int json_table_parse(const char *text, size_t len, const struct json_limits *limits,
                                const struct json_table *table, void *of, struct err *err);

/* For other code that walks a table: whether *of's kind, and whether *of has this field. */
bool json_field_is_of_kind(const struct json_field *f, const void *of);
bool json_field_is_there(const struct json_field *f, const void *of);
/* How many elements of a list are used; all of them if the list has holes. */
uint32_t json_list_count(const struct json_field *f, const void *of);
/* The largest value of an integer field. */
uint64_t json_field_max(const struct json_field *f);
