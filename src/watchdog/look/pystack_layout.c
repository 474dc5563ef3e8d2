#include "watchdog/look/pystack_layout.h"

#include <errno.h>
#include <string.h>

bool pystack_get(const struct pystack_memory *m, uint64_t address, void *buf, size_t n) {
    return m->read(m->arg, address, buf, n) == (ssize_t)n;
}

bool pystack_get_u64(const struct pystack_memory *m, uint64_t address, uint64_t *ret) {
    return pystack_get(m, address, ret, sizeof *ret);
}

/* What 3.9 to 3.11 have in common. */
#define OBJECTS_TO_3_11                                                                          \
    .object_type = 8, .bytes_length = 16, .bytes_data = 32, .text_length = 16, .text_state = 32, \
    .text_kind_shift = 2, .text_ascii = 48, .text_compact = 72
#define INTERP_TO_3_10                                                                             \
    .interpreters = 32, .interp_next = 0, .interp_threads = 8, .interp_gc = 816, .thread_next = 8, \
    .thread_id = 176, .thread_frame = 24, .thread_size = 184, .frame_previous = 24,                \
    .frame_code = 32, .code_file = 104, .code_name = 112, .code_first_line = 40,                   \
    .code_lines = 120, .code_size = 128

static const struct pystack_layout tables[] = {
    {.minor = 9,
     .place = PYSTACK_LASTI_BYTES,
     .table = PYSTACK_LNOTAB,
     INTERP_TO_3_10,
     .frame_place = 104,
     .frame_locals = 360,
     .frame_size = 112,
     OBJECTS_TO_3_11},
    {.minor = 10,
     .place = PYSTACK_LASTI_UNITS,
     .table = PYSTACK_LINETABLE,
     INTERP_TO_3_10,
     .frame_place = 96,
     .frame_locals = 352,
     .frame_size = 104,
     OBJECTS_TO_3_11},
    {.minor = 11,
     .place = PYSTACK_POINTER,
     .table = PYSTACK_LOCATIONS,
     .interpreters = 40,
     .interp_next = 0,
     .interp_threads = 16,
     .interp_gc = 848,
     .thread_next = 8,
     .thread_id = 152,
     .thread_native = 160,
     .thread_frame = 56,
     .cframe = true,
     .cframe_frame = 8,
     .thread_size = 168,
     .frame_previous = 48,
     .frame_code = 32,
     .frame_place = 56,
     .frame_owner = 69,
     .frame_locals = 72,
     .frame_size = 72,
     .code_file = 112,
     .code_name = 120,
     .code_first_line = 72,
     .code_lines = 136,
     .code_begin = 184,
     .code_traceable = 168,
     .code_size = 184,
     OBJECTS_TO_3_11},
    {.minor = 12,
     .place = PYSTACK_POINTER,
     .table = PYSTACK_LOCATIONS,
     .interpreters = 40,
     .interp_next = 0,
     .interp_threads = 72,
     .interp_gc = 312,
     .thread_next = 8,
     .thread_id = 136,
     .thread_native = 144,
     .thread_frame = 56,
     .cframe = true,
     .cframe_frame = 0,
     .thread_size = 152,
     .frame_previous = 8,
     .frame_code = 0,
     .frame_place = 56,
     .frame_owner = 70,
     .frame_locals = 72,
     .frame_size = 72,
     .code_file = 112,
     .code_name = 120,
     .code_first_line = 68,
     .code_lines = 136,
     .code_begin = 192,
     .code_traceable = 176,
     .code_size = 192,
     .object_type = 8,
     .bytes_length = 16,
     .bytes_data = 32,
     .text_length = 16,
     .text_state = 32,
     .text_kind_shift = 2,
     .text_ascii = 40,
     .text_compact = 56},
};

/* _Py_DebugOffsets is a row of 64-bit numbers: here are the numbers of those that are needed.
 * Include/internal/pycore_runtime.h (3.13), pycore_debug_offsets.h (3.14) */
enum { GIVEN_VERSION = 1, GIVEN_FREE = 2, GIVEN_INTERPRETERS = 5, GIVEN_MAX = 81 };
struct given {
    uint8_t interp_next, interp_threads, thread_next, thread_frame, thread_id, thread_native;
    uint8_t frame_previous, frame_code, frame_place, frame_locals, frame_owner, frame_copy;
    uint8_t code_file, code_name, code_lines, code_first_line, code_begin, code_copies;
    uint8_t object_type, bytes_length, bytes_data, text_state, text_length, text_ascii;
    uint8_t interp_gc, gc_collecting; /* the latter can be behind GIVEN_MAX */
};
static const struct given given_3_13 = {
    .interp_next = 8,
    .interp_threads = 9,
    .thread_next = 21,
    .thread_frame = 23,
    .thread_id = 24,
    .thread_native = 25,
    .frame_previous = 29,
    .frame_code = 30,
    .frame_place = 31,
    .frame_locals = 32,
    .frame_owner = 33,
    .code_file = 35,
    .code_name = 36,
    .code_lines = 38,
    .code_first_line = 39,
    .code_begin = 43,
    .object_type = 45,
    .bytes_length = 65,
    .bytes_data = 66,
    .text_state = 68,
    .text_length = 69,
    .text_ascii = 70,
    .interp_gc = 10,
    .gc_collecting = 72,
};
static const struct given given_3_14 = {
    .interp_next = 8,
    .interp_threads = 9,
    .thread_next = 24,
    .thread_frame = 26,
    .thread_id = 27,
    .thread_native = 28,
    .frame_previous = 32,
    .frame_code = 33,
    .frame_place = 34,
    .frame_locals = 35,
    .frame_owner = 36,
    .frame_copy = 38,
    .code_file = 40,
    .code_name = 41,
    .code_lines = 43,
    .code_first_line = 44,
    .code_begin = 48,
    .code_copies = 49,
    .object_type = 51,
    .bytes_length = 75,
    .bytes_data = 76,
    .text_state = 78,
    .text_length = 79,
    .text_ascii = 80,
    .interp_gc = 11,
    .gc_collecting = 82,
};

#define GIVEN_OFFSET_MAX (1u << 20) /* of an interpreter, which is large */

/* A number that the process has: of another struct than one read whole, it may be larger. */
static uint32_t offset(const uint64_t *given, uint8_t at, uint32_t max, bool *ok) {
    if (given[at] > max)
        *ok = false;
    return *ok ? (uint32_t)given[at] : 0;
}

static bool layout_from(const uint64_t *given, const struct given *at, uint32_t minor,
                        struct pystack_layout *ret) {
    enum { LAST = PYSTACK_STRUCT_MAX - 8 };
    bool ok = true, free_threaded = given[GIVEN_FREE] != 0;
    *ret = (struct pystack_layout){
        .minor = minor,
        .place = PYSTACK_POINTER,
        .table = PYSTACK_LOCATIONS,
        .interpreters = offset(given, GIVEN_INTERPRETERS, GIVEN_OFFSET_MAX, &ok),
        .interp_next = offset(given, at->interp_next, GIVEN_OFFSET_MAX, &ok),
        .interp_threads = offset(given, at->interp_threads, GIVEN_OFFSET_MAX, &ok),
        .interp_gc = offset(given, at->interp_gc, GIVEN_OFFSET_MAX, &ok),
        .thread_next = offset(given, at->thread_next, LAST, &ok),
        .thread_frame = offset(given, at->thread_frame, LAST, &ok),
        .thread_id = offset(given, at->thread_id, LAST, &ok),
        .thread_native = offset(given, at->thread_native, LAST, &ok),
        .thread_size = PYSTACK_STRUCT_MAX,
        .frame_previous = offset(given, at->frame_previous, LAST, &ok),
        .frame_code = offset(given, at->frame_code, LAST, &ok),
        .frame_place = offset(given, at->frame_place, LAST, &ok),
        .frame_owner = offset(given, at->frame_owner, LAST, &ok),
        .frame_locals = offset(given, at->frame_locals, LAST, &ok),
        .code_file = offset(given, at->code_file, LAST, &ok),
        .code_name = offset(given, at->code_name, LAST, &ok),
        .code_lines = offset(given, at->code_lines, LAST, &ok),
        .code_first_line = offset(given, at->code_first_line, LAST, &ok),
        .code_begin = offset(given, at->code_begin, LAST, &ok),
        .object_type = offset(given, at->object_type, LAST, &ok),
        .bytes_length = offset(given, at->bytes_length, LAST, &ok),
        .bytes_data = offset(given, at->bytes_data, LAST, &ok),
        .text_state = offset(given, at->text_state, LAST, &ok),
        .text_length = offset(given, at->text_length, LAST, &ok),
        .text_ascii = offset(given, at->text_ascii, LAST, &ok),
        .text_kind_shift = free_threaded && minor >= 14 ? 8 : 2, /* `interned` is a byte there */
    };
    if (free_threaded && at->frame_copy != 0) {
        ret->frame_copy = offset(given, at->frame_copy, LAST, &ok);
        ret->code_copies = offset(given, at->code_copies, LAST, &ok);
    }
    /* int _co_firsttraceable; void *co_extra; (free-threaded: co_tlbc;) char co_code_adaptive[] */
    uint32_t before = ret->code_copies != 0 ? 24 : 16;
    ok = ok && ret->code_begin >= before;
    ret->code_traceable = ok ? ret->code_begin - before : 0;
    ret->code_size = ret->code_begin;
    ret->text_compact = ret->text_ascii + 16; /* utf8_length, utf8 */
    ret->frame_size = MAX2(MAX2(ret->frame_previous, ret->frame_code),
                           MAX2(ret->frame_place, MAX2(ret->frame_owner, ret->frame_copy))) +
                      8;
    ret->thread_size =
        MAX2(MAX2(ret->thread_next, ret->thread_frame), MAX2(ret->thread_id, ret->thread_native)) +
        8;
    return ok && ret->code_file + 8 <= ret->code_size && ret->code_name + 8 <= ret->code_size &&
           ret->code_lines + 8 <= ret->code_size && ret->code_first_line + 8 <= ret->code_size &&
           ret->code_copies + 8 <= ret->code_size && ret->object_type + 8 <= ret->code_size;
}

int pystack_layout_of(const struct pystack_memory *m, uint32_t version, uint64_t runtime,
                      struct pystack_layout *ret, struct err *err) {
    uint32_t major = version >> 24, minor = version >> 16 & 0xff;
    for (size_t i = 0; major == 3 && i < ARRAY_SIZE(tables); i++) {
        if (tables[i].minor == minor) {
            *ret = tables[i];
            return 0;
        }
    }
    if (major != 3 || minor < 13 || minor > 14)
        return err_set(err, -ENOTSUP, "the stacks of Python %u.%u are not known; 3.9 to 3.14 are",
                       major, minor);
    const struct given *at = minor == 13 ? &given_3_13 : &given_3_14;
    uint64_t given[GIVEN_MAX], collecting = 0;
    bool has_gc = pystack_get_u64(m, runtime + at->gc_collecting * 8, &collecting);
    if (!pystack_get(m, runtime, given, sizeof given) || memcmp(given, "xdebugpy", 8) != 0 ||
        (given[GIVEN_VERSION] >> 16) != (version >> 16) || !layout_from(given, at, minor, ret) ||
        collecting > GIVEN_OFFSET_MAX)
        return err_set(err, -EBADMSG,
                       "its _PyRuntime does not begin with the offsets of Python %u.%u", major,
                       minor);
    ret->interp_gc = has_gc ? ret->interp_gc + (uint32_t)collecting : 0;
    return 0;
}
