#include "watchdog/look/pystack.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/text/utf8.h"

#define INTERPRETERS_MAX 1024 /* that are followed: the main one is the last of its list */
#define LINKS_MAX 4096        /* frames that are followed, at most */
#define THREADS_FOLLOWED_MAX 65536u
#define TEXT_MAX (1u << 20)     /* characters of a name that is believed */
#define LINES_MAX (1u << 26)    /* bytes of a table that is believed */
#define THREAD_STRUCT_MAX 4096u /* of libc's own struct of a thread */
#define TAGS UINT64_C(3)        /* 3.14: the lowest bits of a reference on the stack */

enum { OWNED_BY_GENERATOR = 1, OWNED_BY_C = 3 }; /* 3.14 has two such, 3 and 4 */

struct thread {
    uint64_t state, frame, id;
    int32_t tid;
    bool main;
};

struct threads {
    uint32_t n;
    bool whole; /* the lists were followed to their end */
    struct thread of[PYSTACK_THREADS_MAX];
};

struct frame {
    uint64_t address, previous, code, begin;
    int64_t place; /* in the code, in bytes */
    uint8_t bytes[PYSTACK_STRUCT_MAX];
};

static uint64_t u64_at(const uint8_t *bytes, uint32_t at) {
    uint64_t v;
    memcpy(&v, bytes + at, sizeof v);
    return v;
}

static int32_t i32_at(const uint8_t *bytes, uint32_t at) {
    int32_t v;
    memcpy(&v, bytes + at, sizeof v);
    return v;
}

int pystack_open(const struct pystack_memory *m, const struct pystack_found *found,
                 struct pystack_python *ret, struct err *err) {
    struct pystack_python p = {.found = *found};
    int r = pystack_layout_of(m, found->version, found->runtime, &p.layout, err);
    if (r == 0)
        *ret = p;
    return r;
}

/* --- texts --- */

static size_t put_utf8(char *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | (c >> 18 & 7));
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

static uint32_t char_at(const uint8_t *data, unsigned width, size_t i) {
    if (width == 1)
        return data[i];
    uint32_t v = 0;
    memcpy(&v, data + i * width, width);
    return v;
}

/* Reads a str. end: of a text too long, its end is kept. */
static bool read_text(const struct pystack_memory *m, const struct pystack_python *p,
                      uint64_t address, bool end, char *out, size_t size) {
    const struct pystack_layout *l = &p->layout;
    enum { HEAD = 128, MOST = 256 };
    uint8_t head[HEAD + MOST];
    uint32_t head_size = MAX2(MAX2(l->object_type, l->text_length), l->text_state) + 8;
    if (head_size > HEAD || l->text_compact > HEAD)
        return false;
    ssize_t got = m->read(m->arg, address, head, sizeof head);
    if (got < (ssize_t)head_size ||
        (p->found.text_type != 0 && u64_at(head, l->object_type) != p->found.text_type))
        return false;
    uint64_t length = u64_at(head, l->text_length);
    uint32_t state = (uint32_t)i32_at(head, l->text_state) >> l->text_kind_shift;
    unsigned width = state & 7;
    bool compact = state & 8, ascii = state & 16;
    if (!compact || (width != 1 && width != 2 && width != 4) || (ascii && width != 1) ||
        length > TEXT_MAX)
        return false;
    size_t n = MIN2(length, MIN2(size - 1, MOST / width));
    uint64_t skip = end ? (length - n) * width : 0;
    const uint8_t *data = head + (ascii ? l->text_ascii : l->text_compact);
    if (skip != 0 || data + n * width > head + got) {
        uint64_t from = address + (uint64_t)(data - head) + skip;
        if (!pystack_get(m, from, head, n * width))
            return false;
        data = head;
    }
    char text[MOST * 4 + 1];
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t c = char_at(data, width, i);
        at += put_utf8(text + at, c == 0 || c > 0x10ffff ? '?' : c);
    }
    text[at] = '\0';
    const char *from = text;
    if (end && at >= size) {
        for (from = text + at - (size - 1); ((uint8_t)*from & 0xc0) == 0x80; from++)
            ;
    }
    utf8_copy_line(out, size, from);
    return true;
}

/* --- frames --- */

/* 3.14, free-threaded: each thread may have a copy of the instructions. False: garbage. */
static bool find_copy(const struct pystack_memory *m, const struct pystack_layout *l,
                      const uint8_t *code, struct frame *f) {
    uint64_t copies = u64_at(code, l->code_copies), n;
    int32_t number = i32_at(f->bytes, l->frame_copy);
    if (copies == 0 || !pystack_get_u64(m, copies, &n))
        return false;
    return number >= 0 && (uint64_t)number < n &&
           pystack_get_u64(m, copies + 8 + (uint64_t)number * 8, &f->begin);
}

static bool read_frame(const struct pystack_memory *m, const struct pystack_layout *l,
                       uint64_t address, struct frame *ret) {
    ret->address = address;
    if (address % 4 != 0 || !pystack_get(m, address, ret->bytes, l->frame_size))
        return false;
    ret->previous = u64_at(ret->bytes, l->frame_previous);
    ret->code = u64_at(ret->bytes, l->frame_code) & ~TAGS;
    return true;
}

/* Whether the frame is one of Python code that has begun. Then code is filled in, and the place. */
static bool read_code(const struct pystack_memory *m, const struct pystack_python *p,
                      struct frame *f, uint8_t code[PYSTACK_STRUCT_MAX]) {
    const struct pystack_layout *l = &p->layout;
    uint8_t owner = l->frame_owner != 0 ? f->bytes[l->frame_owner] : 0;
    if (owner >= OWNED_BY_C || !pystack_get(m, f->code, code, l->code_size) ||
        (p->found.code_type != 0 && u64_at(code, l->object_type) != p->found.code_type))
        return false;
    switch (l->place) {
    case PYSTACK_LASTI_BYTES: f->place = i32_at(f->bytes, l->frame_place); return true;
    case PYSTACK_LASTI_UNITS: f->place = (int64_t)i32_at(f->bytes, l->frame_place) * 2; return true;
    case PYSTACK_POINTER: break;
    }
    f->begin = f->code + l->code_begin;
    if (l->code_copies != 0 && !find_copy(m, l, code, f))
        return false;
    f->place = (int64_t)(u64_at(f->bytes, l->frame_place) - f->begin);
    return owner == OWNED_BY_GENERATOR || f->place >= (int64_t)i32_at(code, l->code_traceable) * 2;
}

static void describe(const struct pystack_memory *m, const struct pystack_python *p,
                     const struct frame *f, const uint8_t *code, struct pystack_frame *ret) {
    const struct pystack_layout *l = &p->layout;
    if (!read_text(m, p, u64_at(code, l->code_name), false, ret->function, sizeof ret->function))
        memcpy(ret->function, "?", 2);
    if (!read_text(m, p, u64_at(code, l->code_file), true, ret->file, sizeof ret->file))
        memcpy(ret->file, "?", 2);
    ret->line = 0;
    uint64_t lines = u64_at(code, l->code_lines);
    uint8_t head[PYSTACK_STRUCT_MAX];
    uint32_t head_size = MAX2(l->bytes_length, l->object_type) + 8;
    if (!pystack_get(m, lines, head, head_size) ||
        (p->found.bytes_type != 0 && u64_at(head, l->object_type) != p->found.bytes_type) ||
        u64_at(head, l->bytes_length) > LINES_MAX)
        return;
    struct pystack_table t = {
        .memory = m,
        .address = lines + l->bytes_data,
        .left = u64_at(head, l->bytes_length),
    };
    ret->line = pystack_line(l->table, &t, f->place, i32_at(code, l->code_first_line));
}

/* --- the file of a lock --- */

#define LOCALS_MAX 16    /* of a frame that are looked at */
#define ATTRIBUTES_MAX 8 /* of an object */

/* Code that polls for the file of a lock has its path in a local variable, or in one of `self`. */
static bool polls_for_lock(const char *file) {
    static const char *const parts[] = {"/filelock/", "/file_baton.py", "/fasteners/",
                                        "/portalocker/"};
    return text_has_any(file, parts, ARRAY_SIZE(parts));
}

/* Where the values of an object's attributes are, if its class has no slots. 0: not known.
 * Include/internal/pycore_object.h, pycore_dict.h (dict.ma_values up to 3.10) */
static uint64_t attributes_of(const struct pystack_memory *m, uint32_t minor, uint64_t object) {
    uint64_t v = 0;
    if (minor >= 13)
        return object + 24;
    if (minor == 12) /* tagged if it has no dict */
        return pystack_get_u64(m, object - 24, &v) && v % 2 == 1 ? v + 1 : 0;
    if (minor == 11)
        return pystack_get_u64(m, object - 32, &v) ? v : 0;
    return pystack_get_u64(m, object + 16, &v) && pystack_get_u64(m, v + 40, &v) ? v : 0;
}

/* The first str of these objects that names a file; false: none does. */
static bool find_path(const struct pystack_memory *m, const struct pystack_python *p,
                      uint64_t address, size_t max, char *out, size_t size) {
    uint64_t objects[LOCALS_MAX];
    ssize_t got = m->read(m->arg, address, objects, max * sizeof objects[0]);
    bool found = false;
    for (ssize_t i = 0; i < got / 8 && !found; i++) {
        uint64_t object = objects[i] & ~TAGS, values = 0;
        if (object == 0)
            continue;
        found = read_text(m, p, object, true, out, size) && strchr(out, '/') != NULL;
        if (!found && max == LOCALS_MAX)
            values = attributes_of(m, p->layout.minor, object);
        found = found || (values != 0 && find_path(m, p, values, ATTRIBUTES_MAX, out, size));
    }
    if (!found)
        out[0] = '\0';
    return found;
}

static void read_stack(const struct pystack_memory *m, const struct pystack_python *p,
                       uint64_t address, struct pystack_thread *ret) {
    struct frame f;
    uint8_t code[PYSTACK_STRUCT_MAX];
    bool in_lock = true;
    ret->lock[0] = '\0';
    for (uint32_t i = 0; i < LINKS_MAX && address != 0; i++, address = f.previous) {
        if (!read_frame(m, &p->layout, address, &f))
            return;
        if (!read_code(m, p, &f, code))
            continue;
        if (ret->n == PYSTACK_FRAMES_MAX) {
            ret->cut = true;
            return;
        }
        struct pystack_frame *frame = &ret->frames[ret->n++];
        describe(m, p, &f, code, frame);
        in_lock = in_lock && polls_for_lock(frame->file);
        if (in_lock && ret->lock[0] == '\0')
            (void)find_path(m, p, f.address + p->layout.frame_locals, LOCALS_MAX, ret->lock,
                            sizeof ret->lock);
    }
}

/* --- threads --- */

static bool read_thread(const struct pystack_memory *m, const struct pystack_layout *l,
                        uint64_t state, struct thread *ret, uint64_t *ret_next) {
    uint8_t bytes[PYSTACK_STRUCT_MAX];
    if (state % 8 != 0 || !pystack_get(m, state, bytes, l->thread_size))
        return false;
    *ret = (struct thread){.state = state, .id = u64_at(bytes, l->thread_id)};
    if (l->thread_native != 0)
        ret->tid = i32_at(bytes, l->thread_native);
    ret->frame = u64_at(bytes, l->thread_frame);
    if (l->cframe &&
        (ret->frame == 0 || !pystack_get_u64(m, ret->frame + l->cframe_frame, &ret->frame)))
        ret->frame = 0;
    *ret_next = u64_at(bytes, l->thread_next);
    return true;
}

/* 3.9 and 3.10 know only pthread_self(), the address of libc's struct. The tid is in it, wherever
 * that libc has it: at the place where the first thread has its own, and the others have others. */
static bool tids_at(const struct pystack_memory *m, struct threads *t, uint64_t at) {
    for (uint32_t i = 0; i < t->n; i++) {
        if (!pystack_get(m, t->of[i].id + at, &t->of[i].tid, sizeof t->of[i].tid) ||
            t->of[i].tid <= 0)
            return false;
        for (uint32_t j = 0; j < i; j++) {
            if (t->of[j].tid == t->of[i].tid)
                return false;
        }
    }
    return true;
}

static void find_tids(const struct pystack_memory *m, const struct pystack_python *p,
                      struct threads *t) {
    uint8_t libc[THREAD_STRUCT_MAX];
    struct thread *first = &t->of[t->n - 1];
    ssize_t got = t->n > 1 ? m->read(m->arg, first->id, libc, sizeof libc) : 0;
    bool found = false;
    for (uint32_t at = 0; !found && (ssize_t)at + 4 <= got; at += 4)
        found = i32_at(libc, at) == p->found.pid && tids_at(m, t, at);
    for (uint32_t i = 0; !found && i < t->n; i++)
        t->of[i].tid = 0;
    if (!found && t->whole)
        first->tid = p->found.pid;
}

/* Interpreters and threads are in lists, the newest first: the last one is the first thread. False:
 * memory could not be read. */
static bool follow_threads(const struct pystack_memory *m, const struct pystack_python *p,
                           struct threads *ret) {
    const struct pystack_layout *l = &p->layout;
    uint64_t interp, state, next;
    uint32_t followed = 0;
    ret->n = 0;
    ret->whole = false;
    if (!pystack_get_u64(m, p->found.runtime + l->interpreters, &interp))
        return false;
    for (uint32_t i = 0; i < INTERPRETERS_MAX && interp != 0; i++) {
        if (!pystack_get_u64(m, interp + l->interp_threads, &state))
            return false;
        for (; followed < THREADS_FOLLOWED_MAX && state != 0; followed++, state = next) {
            /* If there are too many, newer ones are left out, not the first. */
            uint32_t at = MIN2(ret->n, PYSTACK_THREADS_MAX - 1);
            if (!read_thread(m, l, state, &ret->of[at], &next))
                return false;
            ret->n = at + 1;
        }
        if (!pystack_get_u64(m, interp + l->interp_next, &interp))
            return false;
    }
    ret->whole = followed < THREADS_FOLLOWED_MAX && interp == 0;
    return true;
}

static void find_threads(const struct pystack_memory *m, const struct pystack_python *p,
                         struct threads *ret) {
    /* A thread that ends meanwhile can lead astray. */
    for (int tries = 0; tries < 3 && !follow_threads(m, p, ret); tries++)
        ;
    if (ret->n == 0)
        return;
    if (p->layout.thread_native == 0)
        find_tids(m, p, ret);
    bool known = false;
    for (uint32_t i = 0; i < ret->n; i++) {
        ret->of[i].main = p->found.pid != 0 && ret->of[i].tid == p->found.pid;
        known = known || ret->of[i].main;
    }
    if (!known && ret->whole) /* else the last one is any thread */
        ret->of[ret->n - 1].main = true;
}

int pystack_read(const struct pystack_memory *m, const struct pystack_python *p,
                 pystack_thread_fn *fn, void *arg) {
    struct threads threads;
    find_threads(m, p, &threads);
    for (uint32_t i = 0; i < threads.n; i++) {
        struct pystack_thread t;
        t.tid = threads.of[i].tid;
        t.main = threads.of[i].main;
        t.cut = false;
        t.n = 0;
        read_stack(m, p, threads.of[i].frame, &t);
        fn(arg, &t);
    }
    return threads.n == 0 ? -EFAULT : (int)threads.n;
}

uint64_t pystack_addresses(const struct pystack_memory *m, const struct pystack_python *p) {
    struct threads threads;
    find_threads(m, p, &threads);
    uint64_t h = HASH_BEGIN, address = 0;
    for (uint32_t i = 0; i < threads.n; i++)
        address = threads.of[i].main ? threads.of[i].frame : address;
    if (address == 0)
        return 0;
    struct frame f;
    for (uint32_t i = 0; i < PYSTACK_FRAMES_MAX && address != 0; i++, address = f.previous) {
        if (!read_frame(m, &p->layout, address, &f))
            return 0;
        uint64_t place = p->layout.place == PYSTACK_POINTER
                             ? u64_at(f.bytes, p->layout.frame_place)
                             : (uint64_t)i32_at(f.bytes, p->layout.frame_place);
        uint64_t parts[] = {f.address, f.code, place};
        h = hash_bytes(h, parts, sizeof parts);
    }
    return h != 0 ? h : 1;
}
