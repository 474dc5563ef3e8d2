/* Between the parts of the codec: wire.c and wire_read.c (what leader and nodes say),
 * wire_succession.c (who leads next), wire_operator.c (what operators ask), wire_fields.c (the
 * fields of them all). Nobody else includes this. */
#pragma once

#include "base/json/json.h"
#include "rendezvous/protocol/wire.h"

#define GENERATION_TEXT_MAX 24 /* "4294967295.4294967295" */
#define WIRE_OUTCOME_COUNT 3
/* Of a handover: the newest formed group, and those of the last started one that are not in it. */
#define WIRE_HANDOVER_MAX (2 * RDZV_NODES_MAX)

extern const char *const wire_kind_names[WIRE_KIND_COUNT];
extern const char *const wire_node_state_names[NODE_STATE_COUNT];
extern const char *const wire_failure_kind_names[FAILURE_KIND_COUNT];
extern const char *const wire_desired_names[DESIRED_KIND_COUNT];
extern const char *const wire_outcome_names[WIRE_OUTCOME_COUNT];
extern const char *const wire_command_names[COMMAND_KIND_COUNT];
extern const char *const wire_group_state_names[GROUP_STATE_COUNT];
extern const char *const wire_place_names[PLACE_COUNT];
extern const struct wire_net_keys { const char *netif, *addrs; } wire_net_keys[RDZV_NETS_MAX];

/* ---- writing ---- */

/* Cut so that it fits the reader's array after bad bytes were replaced. `size` includes the NUL. */
void wire_put_text(struct json_writer *w, const char *key, const char *text, size_t size);
#define PUT_TEXT(w, key, array) wire_put_text((w), (key), (array), sizeof(array))
void wire_put_generation(struct json_writer *w, const char *key, struct generation g);

void wire_put_named(struct json_writer *w, const struct successors *s);
void wire_put_members(struct json_writer *w, const struct wire_members *m);
void wire_put_redirect(struct json_writer *w, const struct wire_redirect *r);
void wire_put_command(struct json_writer *w, const struct wire_command *c);
void wire_put_overview(struct json_writer *w, const struct overview *o);
void wire_put_nodes(struct json_writer *w, const struct wire_nodes *n);

/* ---- reading ---- */

/* Reads field after field; the first error stands and the rest does nothing. */
struct fields {
    const struct json *obj;
    struct err *err;
    int code;
};

struct fields wire_fields_of(const struct json *obj, const char *const *keys, size_t n,
                             struct err *err);
#define FIELDS(obj, err, ...)                                 \
    wire_fields_of((obj), (const char *const[]){__VA_ARGS__}, \
                   sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *), (err))

void wire_get_u32(struct fields *f, const char *key, uint32_t min, uint32_t max, uint32_t *ret);
void wire_get_i32(struct fields *f, const char *key, int32_t min, int32_t *ret);
void wire_get_port(struct fields *f, const char *key, uint16_t *ret);
void wire_get_bool(struct fields *f, const char *key, bool *ret);
void wire_get_id(struct fields *f, const char *key, uint64_t *ret); /* any 64-bit number */
/* A time in ns, min … WIRE_TIME_MAX_NS. */
void wire_get_setting(struct fields *f, const char *key, uint64_t min, uint64_t *ret);
void wire_get_hex(struct fields *f, const char *key, uint64_t *ret);
void wire_get_incarnation(struct fields *f, const char *key, uint64_t *ret); /* not 0 */
void wire_get_text(struct fields *f, const char *key, char *ret, size_t size);
#define GET_TEXT(f, key, array) wire_get_text((f), (key), (array), sizeof(array))
/* A name or the like, which people will read in a line of other text: cleaned of what is not for a
 * terminal. */
void wire_get_line(struct fields *f, const char *key, char *ret, size_t size);
#define GET_LINE(f, key, array) wire_get_line((f), (key), (array), sizeof(array))
void wire_get_generation(struct fields *f, const char *key, struct generation *ret);
/* The place of a name in a table, from 1 on; `first` 0 takes a table whose entry 0 is a value. */
uint32_t wire_get_name(struct fields *f, const char *key, const char *const *names, uint32_t first,
                       uint32_t n);
/* Borrowed; NULL after an error. */
const struct json *wire_get_object(struct fields *f, const char *key);
const struct json *wire_get_array(struct fields *f, const char *key, uint32_t max);
/* At most `max` incarnations, none of them 0. Returns how many there are. */
uint32_t wire_get_ids(struct fields *f, const char *key, uint64_t *ret, uint32_t max);

int wire_get_named(const struct json *doc, struct successors *ret, struct err *err);
int wire_get_members(const struct json *doc, struct wire_members *ret, struct err *err);
int wire_get_redirect(const struct json *doc, struct wire_redirect *ret, struct err *err);
int wire_get_command(const struct json *doc, struct wire_command *ret, struct err *err);
int wire_get_overview(const struct json *doc, struct overview *ret, struct err *err);
int wire_get_nodes(const struct json *doc, struct wire_nodes *ret, struct err *err);
