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
    uint64_t state, frame, id, interp;
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
    static const uint8_t firsts[] = {0, 0xc0, 0xe0, 0xf0};
    size_t more = (size_t)(c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
    for (size_t i = more; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(firsts[more] | c);
    return more + 1;
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

static void take_frame(const struct pystack_layout *l, uint64_t address, const uint8_t *bytes,
                       struct frame *ret) {
    ret->address = address;
    if (bytes != ret->bytes)
        memcpy(ret->bytes, bytes, l->frame_size);
    ret->previous = u64_at(bytes, l->frame_previous);
    ret->code = u64_at(bytes, l->frame_code) & ~TAGS;
}

static bool read_frame(const struct pystack_memory *m, const struct pystack_layout *l,
                       uint64_t address, struct frame *ret) {
    if (address % 4 != 0 || !pystack_get(m, address, ret->bytes, l->frame_size))
        return false;
    take_frame(l, address, ret->bytes, ret);
    return true;
}

static uint8_t owner_of(const struct pystack_layout *l, const struct frame *f) {
    return l->frame_owner != 0 ? f->bytes[l->frame_owner] : 0;
}

static bool is_code(const struct pystack_python *p, const uint8_t *code) {
    return p->found.code_type == 0 || u64_at(code, p->layout.object_type) == p->found.code_type;
}

/* Fills in the place. False: the code has not begun. */
static bool find_place(const struct pystack_memory *m, const struct pystack_layout *l,
                       const uint8_t *code, struct frame *f) {
    switch (l->place) {
    case PYSTACK_LASTI_BYTES: f->place = i32_at(f->bytes, l->frame_place); return true;
    case PYSTACK_LASTI_UNITS: f->place = (int64_t)i32_at(f->bytes, l->frame_place) * 2; return true;
    case PYSTACK_POINTER: break;
    }
    f->begin = f->code + l->code_begin;
    if (l->code_copies != 0 && !find_copy(m, l, code, f))
        return false;
    f->place = (int64_t)(u64_at(f->bytes, l->frame_place) - f->begin);
    return owner_of(l, f) == OWNED_BY_GENERATOR ||
           f->place >= (int64_t)i32_at(code, l->code_traceable) * 2;
}

/* Whether the frame is one of Python code that has begun. Then code is filled in, and the place. */
static bool read_code(const struct pystack_memory *m, const struct pystack_python *p,
                      struct frame *f, uint8_t code[PYSTACK_STRUCT_MAX]) {
    return owner_of(&p->layout, f) < OWNED_BY_C &&
           pystack_get(m, f->code, code, p->layout.code_size) && is_code(p, code) &&
           find_place(m, &p->layout, code, f);
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
            ret->of[at].interp = interp;
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
        struct pystack_thread t = {.tid = threads.of[i].tid, .main = threads.of[i].main};
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

/* --- again and again --- */

#define KEPT_MAX \
    ((PYSTACK_PIECES_MAX - 3) / 2) /* frames of the last time, which are read at once */
#define KNOWN_MAX 8192             /* places in code, twice */

struct known { /* a place in code; code 0: an empty slot */
    uint64_t code, name, file;
    int64_t place;
    int64_t number;
};

struct pystack_watch {
    struct pystack_python python;
    struct thread thread; /* the main one; state 0: to be found */
    uint64_t cframe;      /* of the thread, the last time */
    uint32_t n;
    uint64_t frames[KEPT_MAX], codes[KEPT_MAX]; /* their addresses; code 0: it has none */
    uint32_t n_known;
    struct known known[KNOWN_MAX];
};

/* What is read at once. */
struct batch {
    struct pystack_pieces pieces;
    uint32_t n;
    uint64_t frames[KEPT_MAX], codes[KEPT_MAX];                    /* as above */
    const uint8_t *frame[KEPT_MAX], *code[KEPT_MAX], *cframe, *gc; /* NULL: not read */
    uint8_t bytes[PYSTACK_STRUCT_MAX * (1 + 2 * KEPT_MAX) + 12];
};

struct pystack_watch *pystack_watch_new(const struct pystack_python *p) {
    struct pystack_watch *w = xcalloc(1, sizeof *w);
    w->python = *p;
    return w;
}

void pystack_watch_free(struct pystack_watch *w) { free(w); }

static bool find_main(const struct pystack_memory *m, struct pystack_watch *w) {
    struct threads t;
    find_threads(m, &w->python, &t);
    for (uint32_t i = 0; i < t.n; i++)
        if (t.of[i].main)
            w->thread = t.of[i];
    return w->thread.state != 0;
}

static bool gather(const struct pystack_memory *m, const struct pystack_pieces *p, uint8_t *to) {
    bool ok = true;
    if (m->gather != NULL && m->gather(m->arg, p, to))
        return true;
    for (uint32_t i = 0; i < p->n && ok; to += p->of[i++].size)
        ok = pystack_get(m, p->of[i].address, to, p->of[i].size);
    return ok;
}

static const uint8_t *add_piece(struct batch *b, uint64_t address, size_t size) {
    struct pystack_pieces *p = &b->pieces;
    const uint8_t *at = b->bytes + p->size;
    p->of[p->n].address = address;
    p->of[p->n++].size = size;
    p->size += size;
    return at;
}

/* The thread, and if `whole`, whether the collector runs, and the frames of the last time. */
static bool read_batch(const struct pystack_memory *m, const struct pystack_watch *w, bool whole,
                       struct batch *b) {
    const struct pystack_layout *l = &w->python.layout;
    b->pieces.n = 0;
    b->pieces.size = 0;
    (void)add_piece(b, w->thread.state, l->thread_size);
    b->gc = b->cframe = NULL;
    if (whole && l->interp_gc != 0)
        b->gc = add_piece(b, w->thread.interp + l->interp_gc, sizeof(int32_t));
    if (whole && w->cframe != 0)
        b->cframe = add_piece(b, w->cframe + l->cframe_frame, 8);
    b->n = whole ? w->n : 0;
    memcpy(b->frames, w->frames, sizeof b->frames);
    memcpy(b->codes, w->codes, sizeof b->codes);
    for (uint32_t i = 0; i < b->n; i++)
        b->frame[i] = add_piece(b, w->frames[i], l->frame_size);
    for (uint32_t i = 0; i < b->n; i++)
        b->code[i] = w->codes[i] != 0 ? add_piece(b, w->codes[i], l->code_size) : NULL;
    return gather(m, &b->pieces, b->bytes);
}

/* The slot of this place, or an empty one for it. */
static struct known *find_known(struct pystack_watch *w, const struct known *k) {
    uint64_t i = hash_bytes(HASH_BEGIN, k, offsetof(struct known, number));
    struct known *at = &w->known[i % KNOWN_MAX];
    while (at->code != 0 && memcmp(at, k, offsetof(struct known, number)) != 0)
        at = &w->known[++i % KNOWN_MAX];
    return at;
}

static int64_t number_of(const struct pystack_memory *m, struct pystack_watch *w,
                         const struct frame *f, const uint8_t *code, pystack_number_fn *fn,
                         void *arg) {
    const struct pystack_layout *l = &w->python.layout;
    struct known key = {.code = f->code,
                        .name = u64_at(code, l->code_name),
                        .file = u64_at(code, l->code_file),
                        .place = f->place};
    if (2 * w->n_known >= KNOWN_MAX) { /* code that is made again and again */
        memset(w->known, 0, sizeof w->known);
        w->n_known = 0;
    }
    struct known *k = find_known(w, &key);
    if (k->code == 0) {
        struct pystack_frame frame;
        describe(m, &w->python, f, code, &frame);
        key.number = fn(arg, &frame);
        if (key.number < 0)
            return key.number;
        *k = key;
        w->n_known++;
    }
    return k->number;
}

/* -EAGAIN: the chain of frames is broken. */
static int walk(const struct pystack_memory *m, struct pystack_watch *w, const struct batch *b,
                uint64_t address, pystack_number_fn *fn, void *arg, struct pystack_numbers *ret) {
    const struct pystack_layout *l = &w->python.layout;
    struct frame f;
    uint8_t bytes[PYSTACK_STRUCT_MAX];
    uint32_t from = 0;
    for (uint32_t i = 0; i < LINKS_MAX && address != 0; i++, address = f.previous) {
        uint32_t k = from;
        while (k < b->n && b->frames[k] != address)
            k++;
        from = k < b->n ? k + 1 : from;
        if (k < b->n)
            take_frame(l, address, b->frame[k], &f);
        else if (!read_frame(m, l, address, &f))
            return -EAGAIN;
        bool has_code = owner_of(l, &f) < OWNED_BY_C, is_kept = k < b->n && b->codes[k] == f.code;
        if (w->n < KEPT_MAX) {
            w->frames[w->n] = address;
            w->codes[w->n++] = has_code ? f.code : 0;
        }
        if (!has_code)
            continue;
        const uint8_t *code = is_kept && f.code != 0 ? b->code[k] : bytes;
        if ((code == bytes && !pystack_get(m, f.code, bytes, l->code_size)) ||
            !is_code(&w->python, code))
            return -EAGAIN;
        if (!find_place(m, l, code, &f))
            continue;
        int64_t number = number_of(m, w, &f, code, fn, arg);
        if (number < 0)
            return (int)number;
        ret->of[ret->n++] = (uint32_t)number;
        if (ret->n == PYSTACK_FRAMES_MAX)
            return 0;
    }
    return 0;
}

static int read_once(const struct pystack_memory *m, struct pystack_watch *w, pystack_number_fn *fn,
                     void *arg, struct pystack_numbers *ret) {
    const struct pystack_layout *l = &w->python.layout;
    struct batch b;
    *ret = (struct pystack_numbers){.n = 0};
    if (w->thread.state == 0 && !find_main(m, w))
        return -EFAULT;
    /* Memory of one of the frames can have been given back. */
    bool ok = read_batch(m, w, true, &b) || read_batch(m, w, false, &b);
    w->n = 0;
    if (!ok || u64_at(b.bytes, l->thread_id) != w->thread.id) {
        w->thread.state = 0;
        return -EAGAIN;
    }
    ret->gc = b.gc != NULL && i32_at(b.gc, 0) != 0;
    uint64_t top = u64_at(b.bytes, l->thread_frame);
    if (l->cframe) {
        bool is_kept = b.cframe != NULL && top == w->cframe;
        w->cframe = top;
        if (is_kept)
            top = u64_at(b.cframe, 0);
        else if (top != 0 && !pystack_get_u64(m, top + l->cframe_frame, &top))
            return -EAGAIN;
    }
    return walk(m, w, &b, top, fn, arg, ret);
}

int pystack_watch_read(struct pystack_watch *w, const struct pystack_memory *m,
                       pystack_number_fn *fn, void *arg, struct pystack_numbers *ret) {
    int r = read_once(m, w, fn, arg, ret);
    return r == -EAGAIN ? read_once(m, w, fn, arg, ret) : r;
}
