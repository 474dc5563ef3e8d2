#include "watchdog/look/pystack_layout.h"

#include <elf.h>
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

/* ---- the line of an instruction ---- */

/* The next byte, or -1 at the end. */
static int look(struct pystack_table *t) {
    if (t->at == t->n) {
        size_t n = MIN2(t->left, sizeof t->buf);
        if (n == 0 || !pystack_get(t->memory, t->address, t->buf, n))
            return -1;
        t->address += n;
        t->left -= n;
        t->at = 0;
        t->n = (uint32_t)n;
    }
    return t->buf[t->at];
}

static int take(struct pystack_table *t) {
    int c = look(t);
    if (c >= 0)
        t->at++;
    return c;
}

static uint32_t line_of(int64_t line) { return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0; }

/* Pairs: as many bytes further, as many lines further (signed). */
static uint32_t by_lnotab(struct pystack_table *t, int64_t place, int64_t line) {
    int64_t begin = 0;
    for (;;) {
        int bytes = take(t), lines = take(t);
        if (bytes < 0 || lines < 0)
            return line_of(line); /* the last line lasts until the end */
        begin += bytes;
        if (begin > place)
            return line_of(line);
        line += (int8_t)lines;
    }
}

/* Pairs: length of the range in bytes, lines further (signed); -128: it has no line. */
static uint32_t by_linetable(struct pystack_table *t, int64_t place, int64_t line) {
    int64_t end = 0;
    for (;;) {
        int bytes = take(t), lines = take(t);
        if (bytes < 0 || lines < 0)
            return 0;
        end += bytes;
        if (lines != 0x80)
            line += (int8_t)lines;
        if (place < end)
            return lines == 0x80 ? 0 : line_of(line);
    }
}

/* 6 bits a byte, lowest first; bit 6: more follow. */
static int64_t varint(struct pystack_table *t) {
    int64_t v = 0;
    for (unsigned shift = 0; shift <= 30; shift += 6) {
        int c = take(t);
        if (c < 0)
            return 0;
        v |= (int64_t)(c & 0x3f) << shift;
        if ((c & 0x40) == 0)
            break;
    }
    return v;
}

/* Entries: a byte with bit 7 set, a form (4 bits) and the length less one in instructions (3 bits);
 * then what the form requires, in bytes without bit 7. */
static uint32_t by_locations(struct pystack_table *t, int64_t place, int64_t line) {
    enum { ONE_LINE_0 = 10, ONE_LINE_2 = 12, NO_COLUMNS, LONG, NONE };
    int64_t end = 0;
    for (;;) {
        int c = take(t);
        if (c < 0 || (c & 0x80) == 0)
            return 0;
        int form = c >> 3 & 15;
        end += ((c & 7) + 1) * 2;
        if (form >= ONE_LINE_0 && form <= ONE_LINE_2)
            line += form - ONE_LINE_0;
        if (form == NO_COLUMNS || form == LONG) {
            int64_t v = varint(t);
            line += v & 1 ? -(v >> 1) : v >> 1;
        }
        if (place < end)
            return form == NONE ? 0 : line_of(line);
        while (look(t) >= 0 && (look(t) & 0x80) == 0)
            t->at++;
    }
}

uint32_t pystack_line(enum pystack_table_form form, struct pystack_table *t, int64_t place,
                      int32_t first_line) {
    if (t->left > PYSTACK_TABLE_MAX)
        t->left = PYSTACK_TABLE_MAX;
    if (place < 0)
        return line_of(first_line);
    switch (form) {
    case PYSTACK_LNOTAB: return by_lnotab(t, place, first_line);
    case PYSTACK_LINETABLE: return by_linetable(t, place, first_line);
    case PYSTACK_LOCATIONS: return by_locations(t, place, first_line);
    }
    return 0;
}

/* ---- symbols in an ELF file ---- */

#define SECTIONS_MAX 512
#define SEGMENTS_MAX 128
#define SYMBOLS_MAX (1u << 20)
#define PAGE UINT64_C(4096)
#define NAME_MAX_ 20 /* longer than any that is looked for */

static const struct {
    const char *name;
    size_t field;
} names[] = {
    {"_PyRuntime", offsetof(struct python_elf, runtime)},
    {"Py_Version", offsetof(struct python_elf, version)},
    {"PyCode_Type", offsetof(struct python_elf, code_type)},
    {"PyUnicode_Type", offsetof(struct python_elf, text_type)},
    {"PyBytes_Type", offsetof(struct python_elf, bytes_type)},
};

static uint64_t *field_of(struct python_elf *e, size_t i) {
    return (uint64_t *)(void *)((char *)e + names[i].field);
}

/* A part of the file that is read in pieces, because names are all over it. */
struct window {
    uint64_t at;
    size_t n;
    char bytes[4096];
};

static bool name_at(const struct pystack_memory *file, struct window *w, uint64_t at,
                    char out[NAME_MAX_]) {
    /* No sum: an offset in the file can be at the end of all numbers. */
    if (at < w->at || at - w->at > w->n || w->n - (at - w->at) < NAME_MAX_) {
        ssize_t got = file->read(file->arg, at, w->bytes, sizeof w->bytes);
        w->at = at;
        w->n = got > 0 ? (size_t)got : 0;
    }
    size_t n = MIN2(w->n - (at - w->at), NAME_MAX_);
    memcpy(out, w->bytes + (at - w->at), n);
    return memchr(out, '\0', n) != NULL;
}

static void read_symbols(const struct pystack_memory *file, const Elf64_Shdr *symbols,
                         const Elf64_Shdr *strings, struct python_elf *ret) {
    Elf64_Sym some[128];
    struct window w = {0};
    uint64_t n = MIN2(symbols->sh_size / sizeof some[0], SYMBOLS_MAX);
    for (uint64_t i = 0; i < n; i++) {
        size_t k = i % ARRAY_SIZE(some);
        size_t many = MIN2(n - i, ARRAY_SIZE(some)) * sizeof some[0];
        if (k == 0 && !pystack_get(file, symbols->sh_offset + i * sizeof some[0], some, many))
            return;
        const Elf64_Sym *s = &some[k];
        char name[NAME_MAX_];
        if (ELF64_ST_TYPE(s->st_info) != STT_OBJECT || s->st_shndx == SHN_UNDEF ||
            s->st_name >= strings->sh_size ||
            !name_at(file, &w, strings->sh_offset + s->st_name, name))
            continue;
        for (size_t j = 0; j < ARRAY_SIZE(names); j++) {
            if (strcmp(name, names[j].name) == 0)
                *field_of(ret, j) = s->st_value;
        }
    }
}

/* From 3.13 on, _PyRuntime has a section of its own, which a stripped file keeps. */
static bool is_runtime(const struct pystack_memory *file, const Elf64_Shdr *names_of,
                       const Elf64_Shdr *s) {
    struct window w = {0};
    char name[NAME_MAX_];
    return s->sh_name < names_of->sh_size &&
           name_at(file, &w, names_of->sh_offset + s->sh_name, name) &&
           strcmp(name, ".PyRuntime") == 0;
}

static bool first_page(const struct pystack_memory *file, const Elf64_Ehdr *head, uint64_t *ret) {
    for (unsigned i = 0; i < MIN2(head->e_phnum, SEGMENTS_MAX); i++) {
        Elf64_Phdr segment;
        if (!pystack_get(file, head->e_phoff + i * sizeof segment, &segment, sizeof segment))
            return false;
        if (segment.p_type == PT_LOAD && segment.p_offset < PAGE) {
            *ret = segment.p_vaddr & ~(PAGE - 1);
            return true;
        }
    }
    return false;
}

int python_elf_read(const struct pystack_memory *file, struct python_elf *ret) {
    *ret = (struct python_elf){0};
    const uint16_t probe = 1;
    const uint8_t order = *(const uint8_t *)&probe == 1 ? ELFDATA2LSB : ELFDATA2MSB;
    Elf64_Ehdr head;
    if (!pystack_get(file, 0, &head, sizeof head) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != order ||
        head.e_phentsize != sizeof(Elf64_Phdr) || !first_page(file, &head, &ret->first))
        return -ENOEXEC;
    if (head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shnum > SECTIONS_MAX)
        return -ENOENT;
    static const Elf64_Word kinds[] = {SHT_DYNSYM, SHT_SYMTAB};
    Elf64_Shdr sections[SECTIONS_MAX];
    unsigned n = head.e_shnum;
    if (!pystack_get(file, head.e_shoff, sections, n * sizeof sections[0]))
        return -ENOENT;
    for (size_t k = 0; k < ARRAY_SIZE(kinds) && ret->runtime == 0; k++) {
        for (unsigned i = 0; i < n && ret->runtime == 0; i++) {
            if (sections[i].sh_type == kinds[k] && sections[i].sh_link < n)
                read_symbols(file, &sections[i], &sections[sections[i].sh_link], ret);
        }
    }
    for (unsigned i = 0; i < n && ret->runtime == 0 && head.e_shstrndx < n; i++) {
        if (is_runtime(file, &sections[head.e_shstrndx], &sections[i]))
            ret->runtime = sections[i].sh_addr;
    }
    return ret->runtime != 0 ? 0 : -ENOENT;
}
