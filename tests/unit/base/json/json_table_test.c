#include "base/json/json_table.h"

#include <math.h>

#include "../../../tools/json_any.h"
#include "rig/unit.h"

enum shape { SHAPE_CIRCLE = 1, SHAPE_BOX, SHAPE_COUNT };
static const char *const shape_names[SHAPE_COUNT] = {[SHAPE_CIRCLE] = "circle", [SHAPE_BOX] = "box"};

struct part {
    uint64_t id;
    char name[8];
};
struct thing {
    enum shape shape;
    uint32_t radius, low, high;
    int32_t code;
    uint16_t port;
    uint64_t at_ns, ids[3];
    uint32_t version[2], n_parts;
    struct part parts[2], best;
    bool has_best;
};

static const struct json_field part_fields[] = {
    {JSON_FIELD(part, HEX, "id", id), .min = 1},
    {JSON_FIELD(part, LINE, "name", name)},
};
static const struct json_table part = JSON_TABLE(part, part_fields);
static const struct json_field id_fields[] = {{.kind = JSON_FIELD_HEX, .size = sizeof(uint64_t), .min = 1}};
static const struct json_table id = {.fields = id_fields, .n = 1, .size = sizeof(uint64_t)};
static const struct json_field thing_fields[] = {
    {JSON_FIELD(thing, NAME, "shape", shape), .min = 1, .names = shape_names, .n_names = SHAPE_COUNT},
    {JSON_FIELD(thing, U32, "radius", radius), JSON_OF_KINDS(thing, shape, 1u << SHAPE_CIRCLE)},
    {JSON_FIELD(thing, U32, "low", low), .at_most = offsetof(struct thing, high) + 1},
    {JSON_FIELD(thing, U32, "high", high), .max = 9},
    {JSON_FIELD(thing, I32, "code", code), .min = -3},
    {JSON_FIELD(thing, U16, "port", port), .min = 1},
    {JSON_FIELD(thing, ID, "at_ns", at_ns), JSON_OF_KINDS(thing, shape, 1u << SHAPE_BOX), .absent = 77},
    {JSON_FIELD(thing, LIST, "ids", ids), .table = &id, .count_offset = JSON_HOLES},
    {JSON_FIELD(thing, PAIR, "version", version)},
    {JSON_FIELD(thing, LIST, "parts", parts), .table = &part, .count_offset = offsetof(struct thing, n_parts)},
    {JSON_FIELD(thing, OBJECT, "best", best), .table = &part, JSON_IF_TRUE(thing, has_best)},
};
static const struct json_table thing = JSON_TABLE(thing, thing_fields);

static void write_thing(const struct thing *t, struct strbuf *text) {
    struct json_writer w = json_writer_of(text);
    json_write_object_begin(&w, NULL);
    json_table_write(&w, &thing, t);
    json_write_object_end(&w);
}

static int read_thing(const char *text, struct thing *t, struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    memset(t, 0, sizeof *t);
    int r = json_parse(text, strlen(text), &JSON_LIMITS_DEFAULT, &doc, err);
    return r < 0 ? r : json_table_read(doc, &thing, t, err);
}

#define CIRCLE                                                                                                       \
    "{\"shape\":\"circle\",\"radius\":4,\"low\":1,\"high\":9,\"code\":-3,\"port\":1,\"ids\":[\"00000000000000a1\"]," \
    "\"version\":\"2.3\",\"parts\":[{\"id\":\"00000000000000b1\",\"name\":\"wheel\"}]"

Test(json_table, what_is_written_is_read) {
    struct thing t = {.shape = SHAPE_CIRCLE, .radius = 4, .low = 1, .high = 9, .code = -3, .port = 1}, back;
    t.ids[1] = 0xa1;
    t.version[0] = 2;
    t.version[1] = 3;
    t.n_parts = 1;
    t.parts[0] = (struct part){0xb1, "wheel"};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    write_thing(&t, &text);
    cr_assert_str_eq(strbuf_text(&text), CIRCLE "}");
    cr_assert_eq(read_thing(strbuf_text(&text), &back, NULL), 0);
    cr_assert(back.radius == 4 && back.code == -3 && back.version[1] == 3 && back.n_parts == 1 && !back.has_best);
    cr_assert_eq(back.at_ns, 77, "what a circle does not have");
    cr_assert_eq(back.ids[0], 0xa1, "without the hole");
    cr_assert_str_eq(back.parts[0].name, "wheel");
}

Test(json_table, any_value_comes_back) {
    struct prng prng = {.state = 7};
    for (int i = 0; i < 2000; i++) {
        struct thing t, back;
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        json_any(&prng, &thing, &t);
        json_check(&thing, &t);
        write_thing(&t, &text);
        struct err err = {0};
        cr_assert_eq(read_thing(strbuf_text(&text), &back, &err), 0, "%s: %s", err.text, strbuf_text(&text));
        cr_assert_null(json_difference(&thing, &t, &back), "%s", strbuf_text(&text));
    }
}

Test(json_table, what_the_table_does_not_say_is_refused) {
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"[]", "not a JSON object"},
        {CIRCLE ",\"more\":1}", "unknown field \"more\""},
        {CIRCLE ",\"at_ns\":\"1\"}", "unknown field \"at_ns\""},
        {CIRCLE ",\"best\":1}", "field \"best\" is not an object"},
        {CIRCLE ",\"best\":{\"id\":\"0000000000000001\",\"name\":\"longer than it\"}}",
         "field \"name\" is longer than 7 bytes"},
        {CIRCLE ",\"best\":{\"id\":\"0000000000000000\",\"name\":\"\"}}", "\"id\" must not be 0"},
        {"{\"shape\":\"egg\"}", "\"shape\" has the unknown value 'egg'"},
        {"{\"shape\":\"box\"}", "field \"low\" is missing"},
        {"{\"shape\":\"box\",\"low\":1,\"high\":10}", "field \"high\" is not between 0 and 9"},
        {"{\"shape\":\"box\",\"low\":1,\"high\":9,\"code\":-4}", "field \"code\" is not between -3 and 2147483647"},
        {"{\"shape\":\"box\",\"low\":1,\"high\":9,\"code\":0,\"port\":0}", "field \"port\" is not between 1 and 65535"},
        {"{\"shape\":\"box\",\"low\":9,\"high\":8,\"code\":0,\"port\":1,\"at_ns\":\"0\",\"ids\":[],\"version\":\"0.0\","
         "\"parts\":[]}",
         "\"low\" is too large: 9"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct thing t;
        struct err err = {0};
        cr_assert_eq(read_thing(cases[i].text, &t, &err), -EINVAL, "%s", cases[i].text);
        cr_assert_str_eq(err.text, cases[i].sentence);
    }
}

struct record {
    bool idle, closed;
    enum shape shape;
    char why[8];
};
static const struct json_field record_fields[] = {
    {JSON_FIELD(record, BOOL, "idle", idle), JSON_IF_TRUE(record, idle)},
    {JSON_NAMED(record, "shape", shape, shape_names), .min = 1, JSON_IF_TRUE(record, closed)},
    {JSON_FIELD(record, TEXT, "why", why), JSON_OF_KINDS(record, shape, 1u << SHAPE_BOX)},
};

/* "why" exists only for one value of "shape". */
Test(json_table, an_open_table_reads_past_other_keys) {
    static const struct json_table open = {
        .fields = record_fields, .n = ARRAY_SIZE(record_fields), .size = sizeof(struct record), .open = true};
    static const struct {
        const char *text, *refused;
        struct record record;
    } cases[] = {
        {"{\"more\":[1],\"why\":7}", NULL, {0}},
        {"{\"idle\":true,\"more\":null}", NULL, {.idle = true}},
        {"{\"idle\":false}", NULL, {0}},
        {"{\"shape\":\"box\",\"why\":\"\"}", NULL, {.closed = true, .shape = SHAPE_BOX}},
        {"{\"shape\":\"box\"}", "field \"why\" is missing", {0}},
        {"{\"shape\":\"circle\"}", NULL, {.closed = true, .shape = SHAPE_CIRCLE}},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(json_freep) struct json *doc = NULL;
        struct record r = {0};
        struct err err = {0};
        cr_assert_eq(json_parse(cases[i].text, strlen(cases[i].text), &JSON_LIMITS_DEFAULT, &doc, NULL), 0);
        int got = json_table_read(doc, &open, &r, &err);
        if (cases[i].refused != NULL) {
            cr_assert_eq(got, -EINVAL, "%s", cases[i].text);
            cr_assert_str_eq(err.text, cases[i].refused);
            continue;
        }
        cr_assert_eq(got, 0, "%s: %s", cases[i].text, err.text);
        cr_assert_null(json_difference(&open, &r, &cases[i].record), "%s", cases[i].text);
    }
}

struct machine {
    uint32_t index, speed, n_parts, n_few;
    int64_t offset;
    uint64_t bytes;
    double factor;
    enum shape shape;
    struct part *parts; /* of `room` */
    struct part room[2], few[1];
};
static void *add_part(void *of) {
    struct machine *m = of;
    m->parts = m->room;
    return m->n_parts < ARRAY_SIZE(m->room) ? &m->parts[m->n_parts++] : NULL;
}
static void write_speed(struct json_writer *w, const struct json_field *f, const void *of) {
    json_write_u64(w, f->key, ((const struct machine *)of)->speed + *(const uint32_t *)w->context);
}
static int read_speed(const struct json *v, const struct json_field *f, void *of) {
    double number;
    if (!json_number(v, &number))
        return -ERANGE;
    *(uint32_t *)(void *)((char *)of + f->offset) = (uint32_t)number;
    return 0;
}
static const struct json_field machine_fields[] = {
    {JSON_FIELD(machine, INDEX, "index", index), .when = JSON_OPTIONAL},
    {JSON_FIELD(machine, I64, "offset", offset), .min = -(int64_t)JSON_INTEGER_MAX, .when = JSON_OPTIONAL},
    {JSON_FIELD(machine, U64, "bytes", bytes), .when = JSON_OPTIONAL},
    {JSON_FIELD(machine, DOUBLE, "factor", factor), .when = JSON_OPTIONAL},
    {JSON_NAMED(machine, "shape", shape, shape_names), .when = JSON_OPTIONAL},
    {JSON_FIELD(machine, OWN, "speed", speed), .write = write_speed, .read = read_speed, .when = JSON_OPTIONAL},
    {.key = "derived", .kind = JSON_FIELD_OWN, .write = write_speed},
    {JSON_ARRAY_OF(machine, "parts", parts, add_part, part), .when = JSON_OPTIONAL},
    {JSON_LIST(machine, "few", few, n_few, part), JSON_IF_SOME(machine, n_few)},
};
static const struct json_table machine = {JSON_ROWS(machine, machine_fields), .open = true};

Test(json_table, numbers_lists_and_own_fields_of_any_struct) {
    uint32_t more = 100;
    struct machine m = {.index = UINT32_MAX, .offset = -5, .bytes = UINT64_MAX, .factor = 0.1, .speed = 7}, back = {0};
    *(struct part *)add_part(&m) = (struct part){1, "a"};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct json_writer w = *WITH(json_writer_of(&text), .context = &more);
    json_write_object_begin(&w, NULL);
    json_table_write(&w, &machine, &m);
    json_write_object_end(&w);
    cr_assert_str_eq(strbuf_text(&text), "{\"index\":null,\"offset\":-5,\"bytes\":9007199254740992,\"factor\":0.1,"
                                         "\"shape\":\"unknown\",\"speed\":107,\"derived\":107,"
                                         "\"parts\":[{\"id\":\"0000000000000001\",\"name\":\"a\"}]}");
    _cleanup_(json_freep) struct json *doc = NULL;
    static const char read[] = "{\"index\":null,\"offset\":-5,\"bytes\":9007199254740992,\"factor\":0.1,\"speed\":107,"
                               "\"shape\":\"box\",\"parts\":[{\"id\":\"0000000000000001\",\"name\":\"a\"}]}";
    cr_assert_eq(json_parse(read, sizeof read - 1, &JSON_LIMITS_DEFAULT, &doc, NULL), 0);
    cr_assert_eq(json_table_read(doc, &machine, &back, NULL), 0);
    cr_assert(back.index == UINT32_MAX && back.offset == -5 && back.bytes == JSON_INTEGER_MAX && back.speed == 107);
    cr_assert(fabs(back.factor - 0.1) < 1e-18 && back.shape == SHAPE_BOX && back.n_parts == 1 && back.n_few == 0);
    cr_assert_str_eq(back.parts[0].name, "a");
}

Test(json_table, what_is_missing_stays_and_what_is_wrong_is_refused) {
#define PART "{\"id\":\"0000000000000001\",\"name\":\"a\"}"
    static const struct {
        const char *text, *refused;
        int r;
    } cases[] = {
        {"{}", NULL, 0},
        {"{\"index\":4294967295}", "field \"index\" is not between 0 and 4294967294", -EINVAL},
        {"{\"factor\":-1}", "field \"factor\" is not a number of 0 or more", -EINVAL},
        {"{\"bytes\":-1}", "field \"bytes\" is not between 0 and 9007199254740992", -EINVAL},
        {"{\"shape\":\"unknown\"}", "\"shape\" has the unknown value 'unknown'", -EINVAL},
        {"{\"speed\":\"fast\"}", "field \"speed\" is not of its form", -EINVAL},
        {"{\"few\":[" PART "," PART "]}", "field \"few\" has more than 1 elements", -EINVAL},
        {"{\"parts\":[" PART "," PART "," PART "]}", "field \"parts\" has more than 2 elements", -E2BIG},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(json_freep) struct json *doc = NULL;
        struct machine m = {.index = 3, .factor = 2.5};
        struct err err = {0};
        cr_assert_eq(json_parse(cases[i].text, strlen(cases[i].text), &JSON_LIMITS_DEFAULT, &doc, NULL), 0);
        cr_assert_eq(json_table_read(doc, &machine, &m, &err), cases[i].r, "%s", cases[i].text);
        if (cases[i].refused != NULL)
            cr_assert_str_eq(err.text, cases[i].refused);
        else
            cr_assert(m.index == 3 && m.factor > 2.4);
    }
}

Test(json_table, what_is_not_there_is_left_out_or_null) {
    static const struct json_field fields[] = {
        {JSON_FIELD(machine, U32, "index", index), JSON_IF_SOME(machine, index)},
        {JSON_FIELD(machine, U64, "bytes", bytes), JSON_IF_SET(machine, bytes), .or_null = true},
        {JSON_FIELD(machine, TEXT, "name", few[0].name), JSON_IF_TEXT(machine, few[0].name), .or_null = true},
        {JSON_FIELD(machine, U32, "speed", speed), JSON_OF_KINDS(machine, shape, 1u << SHAPE_BOX), .or_null = true},
    };
    static const struct json_table table = JSON_TABLE(machine, fields);
    static const struct {
        struct machine machine;
        const char *text;
    } cases[] = {
        {{.shape = SHAPE_CIRCLE, .speed = 5}, "{\"bytes\":null,\"name\":null,\"speed\":null}"},
        {{.index = 1, .bytes = 2, .few = {{.name = "x"}}, .shape = SHAPE_BOX},
         "{\"index\":1,\"bytes\":2,\"name\":\"x\",\"speed\":0}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        struct json_writer w = json_writer_of(&text);
        json_write_object_begin(&w, NULL);
        json_table_write(&w, &table, &cases[i].machine);
        json_write_object_end(&w);
        cr_assert_str_eq(strbuf_text(&text), cases[i].text);
    }
}
