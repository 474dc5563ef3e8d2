#include "watchdog/look/pystack_layout.h"

#include <errno.h>
#include <string.h>

bool pystack_get(const struct pystack_memory *m, uint64_t address, void *buf, size_t n) {
    return m->read(m->arg, address, buf, n) == (ssize_t)n;
}

bool pystack_get_u64(const struct pystack_memory *m, uint64_t address, uint64_t *ret) {
    return pystack_get(m, address, ret, sizeof *ret);
}

/* Where each version has a field: of 3.9 to 3.12 its offset; from 3.13 on, the number of its offset
 * in _Py_DebugOffsets, a row of 64-bit numbers, and 0 if that has none.
 * Include/internal/pycore_runtime.h (3.13), pycore_debug_offsets.h (3.14) */
#define VERSIONS 6
#define FIELD(member, ...)                                       \
    {                                                            \
        offsetof(struct pystack_layout, member), { __VA_ARGS__ } \
    }
static const struct {
    size_t field; /* a uint32_t of struct pystack_layout */
    uint16_t of[VERSIONS];
} rows[] = {
    FIELD(interpreters, 32, 32, 40, 40, 5, 5),     FIELD(interp_next, 0, 0, 0, 0, 8, 8),
    FIELD(interp_threads, 8, 8, 16, 72, 9, 9),     FIELD(interp_gc, 816, 816, 848, 312, 10, 11),
    FIELD(thread_next, 8, 8, 8, 8, 21, 24),        FIELD(thread_id, 176, 176, 152, 136, 24, 27),
    FIELD(thread_native, 0, 0, 160, 144, 25, 28),  FIELD(thread_frame, 24, 24, 56, 56, 23, 26),
    FIELD(cframe_frame, 0, 0, 8, 0, 0, 0),         FIELD(thread_size, 184, 184, 168, 152, 0, 0),
    FIELD(frame_previous, 24, 24, 48, 8, 29, 32),  FIELD(frame_code, 32, 32, 32, 0, 30, 33),
    FIELD(frame_place, 104, 96, 56, 56, 31, 34),   FIELD(frame_owner, 0, 0, 69, 70, 33, 36),
    FIELD(frame_locals, 360, 352, 72, 72, 32, 35), FIELD(frame_copy, 0, 0, 0, 0, 0, 38),
    FIELD(frame_size, 112, 104, 72, 72, 0, 0),     FIELD(code_file, 104, 104, 112, 112, 35, 40),
    FIELD(code_name, 112, 112, 120, 120, 36, 41),  FIELD(code_first_line, 40, 40, 72, 68, 39, 44),
    FIELD(code_lines, 120, 120, 136, 136, 38, 43), FIELD(code_begin, 0, 0, 184, 192, 43, 48),
    FIELD(code_traceable, 0, 0, 168, 176, 0, 0),   FIELD(code_copies, 0, 0, 0, 0, 0, 49),
    FIELD(code_size, 128, 128, 184, 192, 0, 0),    FIELD(object_type, 8, 8, 8, 8, 45, 51),
    FIELD(bytes_length, 16, 16, 16, 16, 65, 75),   FIELD(bytes_data, 32, 32, 32, 32, 66, 76),
    FIELD(text_length, 16, 16, 16, 16, 69, 79),    FIELD(text_state, 32, 32, 32, 32, 68, 78),
    FIELD(text_kind_shift, 2, 2, 2, 2, 0, 0),      FIELD(text_ascii, 48, 48, 48, 40, 70, 80),
    FIELD(text_compact, 72, 72, 72, 56, 0, 0),
};

/* Of all versions from 3.13 on; the last is the highest number of the rows, and one. */
enum { GIVEN_VERSION = 1, GIVEN_FREE = 2, GIVEN_MAX = 81 };
#define GIVEN_OFFSET_MAX (1u << 20) /* of an interpreter, which is large */

/* given: what the process has of its own, or NULL. False: one is too large. */
static bool fill(const uint64_t *given, uint32_t minor, struct pystack_layout *ret) {
    bool free_threaded = given != NULL && given[GIVEN_FREE] != 0;
    *ret = (struct pystack_layout){
        .minor = minor,
        .place = minor == 9    ? PYSTACK_LASTI_BYTES
                 : minor == 10 ? PYSTACK_LASTI_UNITS
                               : PYSTACK_POINTER,
        .table = minor == 9    ? PYSTACK_LNOTAB
                 : minor == 10 ? PYSTACK_LINETABLE
                               : PYSTACK_LOCATIONS,
        .cframe = minor == 11 || minor == 12,
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t field = rows[i].field;
        bool copy = field == offsetof(struct pystack_layout, frame_copy) ||
                    field == offsetof(struct pystack_layout, code_copies);
        bool large = field <= offsetof(struct pystack_layout, interp_gc);
        uint64_t v = copy && !free_threaded ? 0 : rows[i].of[minor - 9];
        v = given != NULL && v != 0 ? given[v] : v;
        if (v > (large ? GIVEN_OFFSET_MAX : PYSTACK_STRUCT_MAX - 8))
            return false;
        *(uint32_t *)(void *)((char *)ret + field) = (uint32_t)v;
    }
    return true;
}

/* What is not among the numbers of the process. False: they make no sense. */
static bool complete(bool free_threaded, struct pystack_layout *l) {
    /* int _co_firsttraceable; void *co_extra; (free-threaded: co_tlbc;) char co_code_adaptive[] */
    uint32_t before = l->code_copies != 0 ? 24 : 16;
    l->text_kind_shift = free_threaded && l->minor >= 14 ? 8 : 2; /* `interned` is a byte there */
    l->text_compact = l->text_ascii + 16;                         /* utf8_length, utf8 */
    l->code_traceable = l->code_begin - before;
    l->code_size = l->code_begin;
    l->frame_size = MAX2(MAX2(l->frame_previous, l->frame_code),
                         MAX2(l->frame_place, MAX2(l->frame_owner, l->frame_copy))) +
                    8;
    l->thread_size =
        MAX2(MAX2(l->thread_next, l->thread_frame), MAX2(l->thread_id, l->thread_native)) + 8;
    return l->code_begin >= before && l->code_file + 8 <= l->code_size &&
           l->code_name + 8 <= l->code_size && l->code_lines + 8 <= l->code_size &&
           l->code_first_line + 8 <= l->code_size && l->code_copies + 8 <= l->code_size &&
           l->object_type + 8 <= l->code_size;
}

int pystack_layout_of(const struct pystack_memory *m, uint32_t version, uint64_t runtime,
                      struct pystack_layout *ret, struct err *err) {
    uint32_t major = version >> 24, minor = version >> 16 & 0xff;
    uint64_t given[GIVEN_MAX], collecting = 0;
    if (major != 3 || minor < 9 || minor >= 9 + VERSIONS)
        return err_set(err, -ENOTSUP, "the stacks of Python %u.%u are not known; 3.9 to 3.14 are",
                       major, minor);
    if (minor < 13)
        return fill(NULL, minor, ret) ? 0 : -EBADMSG;
    /* gc.collecting, which can be behind GIVEN_MAX */
    bool has_gc = pystack_get_u64(m, runtime + (minor == 13 ? 72 : 82) * 8, &collecting);
    if (!pystack_get(m, runtime, given, sizeof given) || memcmp(given, "xdebugpy", 8) != 0 ||
        (given[GIVEN_VERSION] >> 16) != (version >> 16) || !fill(given, minor, ret) ||
        !complete(given[GIVEN_FREE] != 0, ret) || collecting > GIVEN_OFFSET_MAX)
        return err_set(err, -EBADMSG,
                       "its _PyRuntime does not begin with the offsets of Python %u.%u", major,
                       minor);
    ret->interp_gc = has_gc ? ret->interp_gc + (uint32_t)collecting : 0;
    return 0;
}
