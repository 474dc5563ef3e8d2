/* The memory of real interpreters, recorded, and then damaged: what can be read is read, and nothing is endless. The
 * recordings are the corpus of fuzz-pystack; stacks/ has what each interpreter's own line numbers say. */
#include "watchdog/look/pystack.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/text/strbuf.h"
#include "memory_image.h"

#define NOWHERE UINT64_C(0xdead0000)
#define READS_MAX 700000 /* by the limits: 64 threads, 4096 frames each, and its code */

static const char *const versions[] = {"3.9", "3.10", "3.11", "3.12", "3.13", "3.14"};

struct rig {
    struct strbuf bytes;
    struct memory_image image;
    struct pystack_memory memory;
    struct pystack_python python;
    const struct pystack_layout *l;
    uint64_t interp, thread, frame; /* the first interpreter; its newest thread; that one's innermost frame */
    uint32_t n;                     /* what was seen of the last read */
    struct pystack_thread threads[PYSTACK_THREADS_MAX];
    uint64_t values[8]; /* what was written */
    uint32_t n_values;
};

static void read_file(const char *folder, const char *version, const char *name, const char *end, struct strbuf *ret) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s/%s-%s%s", getenv("MUSTER_TEST_SOURCE_DIR"), folder, version, name, end);
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    char chunk[4096];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        strbuf_add_bytes(ret, chunk, n);
    fclose(f);
}

static uint64_t get(struct rig *r, uint64_t address) {
    uint64_t v;
    cr_assert(pystack_get_u64(&r->memory, address, &v));
    return v;
}

static void rig_open(struct rig *r, const char *version, const char *name) {
    struct err err = {0};
    memset(r, 0, sizeof *r);
    read_file("fuzz/corpus/fuzz-pystack", version, name, "", &r->bytes);
    cr_assert(memory_image_parse(&r->image, (const uint8_t *)r->bytes.data, r->bytes.len));
    r->memory = memory_image_reader(&r->image);
    cr_assert_eq(pystack_open(&r->memory, &r->image.found, &r->python, &err), 0, "%s: %s", version, err.text);
    r->l = &r->python.layout;
    r->interp = get(r, r->image.found.runtime + r->l->interpreters);
    r->thread = get(r, r->interp + r->l->interp_threads);
    r->frame = get(r, r->thread + r->l->thread_frame);
    if (r->l->cframe)
        r->frame = get(r, r->frame + r->l->cframe_frame);
}

static void rig_close(struct rig *r) { strbuf_fini(&r->bytes); }

/* From that read on (0: at once) this is at the address. */
static void put_when(struct rig *r, uint32_t when, uint64_t address, uint64_t value) {
    uint64_t *v = &r->values[r->n_values++];
    cr_assert_lt(r->n_values, ARRAY_SIZE(r->values));
    *v = value;
    memory_image_write(&r->image, when, address, v, sizeof *v);
}
static void put(struct rig *r, uint64_t address, uint64_t value) { put_when(r, 0, address, value); }

static void note(void *arg, const struct pystack_thread *t) {
    struct rig *r = arg;
    cr_assert_lt(r->n, PYSTACK_THREADS_MAX);
    r->threads[r->n++] = *t;
}

static int read_all(struct rig *r) {
    r->n = 0;
    r->image.reads = 0;
    int n = pystack_read(&r->memory, &r->python, note, r);
    cr_assert_eq(n > 0 ? (uint32_t)n : 0, r->n);
    cr_assert_leq(r->image.reads, READS_MAX, "%u reads", r->image.reads);
    return n;
}

static void add_thread(void *arg, const struct pystack_thread *t) {
    struct strbuf *out = arg;
    strbuf_printf(out, "thread %d%s%s\n", t->tid, t->main ? " main" : "", t->cut ? " cut" : "");
    for (uint32_t i = 0; i < t->n; i++) {
        const char *name = strrchr(t->frames[i].file, '/');
        cr_assert_not_null(name, "%s", t->frames[i].file);
        strbuf_printf(out, "%s:%u %s\n", name + 1, t->frames[i].line, t->frames[i].function);
    }
}

#define EACH_VERSION(r, name) \
    for (size_t v_ = 0; v_ < ARRAY_SIZE(versions) && (rig_open((r), versions[v_], (name)), true); v_++, rig_close(r))

Test(pystack, every_version_is_read_as_it_was) {
    static const char *const names[] = {"threads", "coroutines"};
    static struct rig r;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        EACH_VERSION(&r, names[i]) {
            _cleanup_(strbuf_fini) struct strbuf expected = {0}, text = {0};
            read_file("unit/watchdog/look/stacks", versions[v_], names[i], ".txt", &expected);
            cr_assert_gt(pystack_read(&r.memory, &r.python, add_thread, &text), 0);
            cr_expect_str_eq(strbuf_text(&text), strbuf_text(&expected), "%s %s", versions[v_], names[i]);
            cr_expect_eq(pystack_addresses(&r.memory, &r.python), pystack_addresses(&r.memory, &r.python));
            cr_expect_neq(pystack_addresses(&r.memory, &r.python), 0);
        }
    }
}

/* --- lists without an end --- */

Test(pystack, a_frame_that_follows_itself) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        put(&r, r.frame + r.l->frame_previous, r.frame);
        cr_assert_eq(read_all(&r), 4, "%s", versions[v_]);
        cr_expect(r.threads[0].cut && r.threads[0].n == PYSTACK_FRAMES_MAX);
        cr_expect(!r.threads[1].cut && r.threads[1].n > 3);
    }
}

Test(pystack, frames_without_code_that_follow_each_other) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        put(&r, r.frame + r.l->frame_previous, r.frame);
        put(&r, r.frame + r.l->frame_code, NOWHERE);
        cr_assert_eq(read_all(&r), 4, "%s", versions[v_]);
        cr_expect(!r.threads[0].cut && r.threads[0].n == 0);
        cr_expect_gt(r.threads[1].n, 3);
    }
}

Test(pystack, a_thread_that_follows_itself) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        put(&r, r.thread + r.l->thread_next, r.thread);
        cr_assert_eq(read_all(&r), PYSTACK_THREADS_MAX, "%s", versions[v_]);
    }
}

Test(pystack, an_interpreter_that_follows_itself) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        put(&r, r.interp + r.l->interp_next, r.interp);
        cr_assert_eq(read_all(&r), PYSTACK_THREADS_MAX, "%s", versions[v_]);
    }
}

/* --- very many threads --- */

#define MANY 5000
#define MANY_AT UINT64_C(0x7e0000000000) /* where nothing else is */
#define MANY_APART (UINT64_C(1) << 20)

/* The recorded memory, and threads before its own: each is a copy of its newest one. Or interpreters before its own,
 * without threads. */
struct many {
    struct rig *rig;
    uint32_t n;
    bool interpreters;
};

static ssize_t read_many(void *arg, uint64_t address, void *buf, size_t size) {
    struct many *m = arg;
    const struct pystack_layout *l = m->rig->l;
    uint64_t i = address < MANY_AT ? m->n : (address - MANY_AT) / MANY_APART;
    if (i >= m->n)
        return m->rig->memory.read(m->rig->memory.arg, address, buf, size);
    uint64_t at = (address - MANY_AT) % MANY_APART, next = MANY_AT + (i + 1) * MANY_APART;
    if (m->interpreters) {
        next = i + 1 == m->n ? m->rig->interp : next;
        memset(buf, 0, size);
        if (at == l->interp_next)
            memcpy(buf, &next, MIN2(size, sizeof next));
        return (ssize_t)size;
    }
    ssize_t got = m->rig->memory.read(m->rig->memory.arg, m->rig->thread + at, buf, size);
    if (i + 1 == m->n)
        next = m->rig->thread;
    if (at <= l->thread_next && l->thread_next + sizeof next <= at + size)
        memcpy((char *)buf + l->thread_next - at, &next, sizeof next);
    return got;
}

/* The first thread is the last of the list, however many there are before it; of a list that is too long, or that can't
 * be read to its end, none is taken for it. */
Test(pystack, the_first_of_very_many_threads_is_known) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        struct many many = {.rig = &r, .n = MANY};
        struct pystack_memory memory = {read_many, &many};
        put(&r, r.interp + r.l->interp_threads, MANY_AT);
        r.n = 0;
        cr_assert_eq(pystack_read(&memory, &r.python, note, &r), PYSTACK_THREADS_MAX, "%s", versions[v_]);
        for (uint32_t i = 0; i < r.n; i++)
            cr_expect_eq(r.threads[i].main, i + 1 == r.n, "%s: thread %u", versions[v_], i);
        cr_expect_str_eq(r.threads[r.n - 1].frames[0].function, "block", "%s", versions[v_]);
        cr_expect_neq(pystack_addresses(&memory, &r.python), 0);
    }
}

/* The main interpreter is the last of the list, too. */
Test(pystack, the_first_thread_is_that_of_the_last_interpreter) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        struct many many = {.rig = &r, .n = 20, .interpreters = true};
        struct pystack_memory memory = {read_many, &many};
        put(&r, r.image.found.runtime + r.l->interpreters, MANY_AT);
        r.n = 0;
        cr_assert_eq(pystack_read(&memory, &r.python, note, &r), 4, "%s", versions[v_]);
        for (uint32_t i = 0; i < r.n; i++)
            cr_expect_eq(r.threads[i].main, i + 1 == r.n, "%s: thread %u", versions[v_], i);
        cr_expect_neq(pystack_addresses(&memory, &r.python), 0);
    }
}

/* If there are more than are followed, none of their threads is taken for the first. */
Test(pystack, of_too_many_interpreters_no_thread_is_the_first) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        put(&r, r.interp + r.l->interp_next, r.interp);
        r.python.found.pid = 0;
        cr_assert_eq(read_all(&r), PYSTACK_THREADS_MAX, "%s", versions[v_]);
        for (uint32_t i = 0; i < r.n; i++)
            cr_expect_not(r.threads[i].main, "%s: thread %u", versions[v_], i);
        cr_expect_eq(pystack_addresses(&r.memory, &r.python), 0);
    }
}

Test(pystack, of_a_list_that_breaks_off_no_thread_is_the_first) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        put(&r, r.thread + r.l->thread_next, NOWHERE);
        cr_assert_eq(read_all(&r), 1, "%s", versions[v_]);
        cr_expect_not(r.threads[0].main, "%s", versions[v_]);
        put(&r, r.thread + r.l->thread_next, r.thread);
        cr_assert_eq(read_all(&r), PYSTACK_THREADS_MAX, "%s", versions[v_]);
        for (uint32_t i = 0; i < r.n; i++)
            cr_expect_not(r.threads[i].main, "%s: thread %u", versions[v_], i);
        cr_expect_eq(pystack_addresses(&r.memory, &r.python), 0);
    }
}

/* --- pointers to nowhere, and what is no such object --- */

Test(pystack, pointers_to_nowhere) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        put(&r, r.thread + r.l->thread_frame, NOWHERE);
        cr_assert_eq(read_all(&r), 4, "%s", versions[v_]);
        cr_expect(r.threads[0].n == 0 && r.threads[1].n > 3);
        put(&r, r.thread + r.l->thread_next, NOWHERE);
        cr_assert_eq(read_all(&r), 1, "%s: the rest of the list is lost", versions[v_]);
        put(&r, r.thread + r.l->thread_next, r.thread + 4);
        cr_assert_eq(read_all(&r), 1, "%s: no struct of a thread is there", versions[v_]);
        put(&r, r.interp + r.l->interp_threads, NOWHERE);
        cr_assert_eq(read_all(&r), -EFAULT);
        put(&r, r.image.found.runtime + r.l->interpreters, NOWHERE);
        cr_assert_eq(read_all(&r), -EFAULT);
        cr_expect_eq(pystack_addresses(&r.memory, &r.python), 0);
    }
}

/* The code that the innermost frame runs. */
static uint64_t code_of(struct rig *r) { return get(r, r->frame + r->l->frame_code) & ~UINT64_C(3); }

static const struct pystack_frame *innermost(struct rig *r) {
    cr_assert_eq(read_all(r), 4);
    cr_assert_gt(r->threads[0].n, 3);
    return &r->threads[0].frames[0];
}

Test(pystack, names_that_are_none) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        uint64_t code = code_of(&r), name = get(&r, code + r.l->code_name);
        cr_assert_str_eq(innermost(&r)->function, "waits");
        put(&r, code + r.l->code_name, NOWHERE);
        cr_expect_str_eq(innermost(&r)->function, "?");
        put(&r, code + r.l->code_name, code); /* no text */
        cr_expect_str_eq(innermost(&r)->function, "?");
        put(&r, code + r.l->code_name, name);
        put(&r, name + r.l->text_length, UINT64_MAX);
        cr_expect_str_eq(innermost(&r)->function, "?");
        put(&r, name + r.l->text_length, (1u << 20) + 1);
        cr_expect_str_eq(innermost(&r)->function, "?");
        put(&r, name + r.l->text_length,
            1u << 20); /* long, and its end is not there: of a name, the beginning counts */
        cr_expect_eq(strncmp(innermost(&r)->function, "waits", 5), 0, "%s", innermost(&r)->function);
        cr_expect_str_eq(innermost(&r)->file, "/tmp/pystack_worker.py");
        put(&r, code + r.l->code_file, name); /* of a file's name, the end does */
        cr_expect_str_eq(innermost(&r)->file, "?");
    }
}

/* Makes a str of the innermost function's name: characters of so many bytes each. */
static void put_text(struct rig *r, uint64_t name, unsigned width, bool ascii, const void *chars, size_t n) {
    static uint32_t state;
    state = (width | 1u << 3 | (ascii ? 1u << 4 : 0)) << r->l->text_kind_shift;
    put(r, name + r->l->text_length, n);
    memory_image_write(&r->image, 0, name + r->l->text_state, &state, sizeof state);
    memory_image_write(&r->image, 0, name + (ascii ? r->l->text_ascii : r->l->text_compact), chars, n * width);
}

/* Include/cpython/unicodeobject.h: Latin-1, UCS-2, UCS-4. A surrogate alone is no character. */
Test(pystack, names_in_all_alphabets) {
    static const uint8_t latin[] = {'f', 0xe9, 0x01};
    static const uint16_t ucs2[] = {'f', 0x0416, 0x4e2d, 0xd800};
    static const uint32_t ucs4[] = {'f', 0x1f600, 0x110000};
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        uint64_t name = get(&r, code_of(&r) + r.l->code_name);
        put_text(&r, name, 1, false, latin, ARRAY_SIZE(latin));
        cr_expect_str_eq(innermost(&r)->function, "f\u00e9?", "%s: %s", versions[v_], innermost(&r)->function);
        put_text(&r, name, 2, false, ucs2, ARRAY_SIZE(ucs2));
        cr_expect_eq(strncmp(innermost(&r)->function, "f\u0416\u4e2d", 6), 0, "%s", innermost(&r)->function);
        put_text(&r, name, 4, false, ucs4, ARRAY_SIZE(ucs4));
        cr_expect_str_eq(innermost(&r)->function, "f\U0001f600?", "%s", innermost(&r)->function);
        put_text(&r, name, 3, false, latin, 1);
        cr_expect_str_eq(innermost(&r)->function, "?", "there is no such width");
        put_text(&r, name, 2, true, latin, 1);
        cr_expect_str_eq(innermost(&r)->function, "?", "ASCII has one byte a character");
    }
}

Test(pystack, of_a_long_name_of_a_file_the_end_is_kept) {
    static char path[1000];
    static struct rig r;
    memset(path, 'x', sizeof path);
    memcpy(path + sizeof path - 6, "end.py", 6);
    EACH_VERSION(&r, "threads") {
        uint64_t file = get(&r, code_of(&r) + r.l->code_file);
        put_text(&r, file, 1, true, path, sizeof path);
        const struct pystack_frame *f = innermost(&r);
        cr_expect_eq(strlen(f->file), PYSTACK_FILE_MAX - 1);
        cr_expect_str_eq(f->file + PYSTACK_FILE_MAX - 1 - 7, "xend.py");
    }
}

Test(pystack, tables_of_lines_that_are_none) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        uint64_t code = code_of(&r), table = get(&r, code + r.l->code_lines);
        cr_assert_eq(innermost(&r)->line, 97);
        put(&r, code + r.l->code_lines, NOWHERE);
        cr_expect_eq(innermost(&r)->line, 0);
        put(&r, code + r.l->code_lines, code);
        cr_expect_eq(innermost(&r)->line, 0);
        put(&r, code + r.l->code_lines, table);
        put(&r, table + r.l->bytes_length, UINT64_MAX);
        cr_expect_eq(innermost(&r)->line, 0);
        put(&r, table + r.l->bytes_length, (1u << 26) + 1);
        cr_expect_eq(innermost(&r)->line, 0);
        cr_expect_str_eq(innermost(&r)->function, "waits");
    }
}

/* Without the types' addresses each object is believed, but no more than its memory. */
Test(pystack, without_types) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        r.python.found.code_type = r.python.found.text_type = r.python.found.bytes_type = 0;
        cr_expect_str_eq(innermost(&r)->function, "waits");
        put(&r, code_of(&r) + r.l->code_name, r.image.found.runtime);
        (void)innermost(&r);
    }
}

/* --- while the process goes on --- */

Test(pystack, a_list_that_changes_is_read_again) {
    static struct rig r;
    EACH_VERSION(&r, "threads") {
        uint64_t next = get(&r, r.thread + r.l->thread_next);
        put(&r, r.thread + r.l->thread_next, NOWHERE);
        put_when(&r, 7, r.thread + r.l->thread_next, next);
        cr_assert_eq(read_all(&r), 4, "%s", versions[v_]);
        cr_expect_str_eq(r.threads[3].frames[0].function, "block");
        cr_expect(r.threads[3].main);
    }
}

Test(pystack, at_any_moment_a_frame_can_be_gone) {
    static struct rig r;
    EACH_VERSION(&r, "coroutines") {
        uint32_t longest = 0;
        cr_assert_eq(read_all(&r), 1);
        uint32_t whole = r.threads[0].n, reads = r.image.reads;
        uint64_t previous = get(&r, r.frame + r.l->frame_previous), code = code_of(&r);
        put_when(&r, 0, previous + r.l->frame_code, NOWHERE);
        put_when(&r, 0, previous + r.l->frame_previous, NOWHERE);
        put_when(&r, 0, code + r.l->code_name, NOWHERE);
        for (uint32_t when = 1; when <= reads + 1; when++) {
            for (uint32_t i = r.image.n - 3; i < r.image.n; i++)
                r.image.pieces[i].when = when;
            cr_assert_eq(read_all(&r), 1, "%s", versions[v_]);
            cr_assert_leq(r.threads[0].n, whole);
            longest = MAX2(longest, r.threads[0].n);
        }
        cr_expect_eq(longest, whole, "when all had been read, nothing was lost");
    }
}

/* --- what is not known --- */

static int open_as(struct rig *r, uint32_t version, struct err *err) {
    struct pystack_python python;
    struct pystack_found found = r->image.found;
    found.version = version;
    return pystack_open(&r->memory, &found, &python, err);
}

Test(pystack, another_version_is_named) {
    static struct rig r;
    static const uint32_t unknown[] = {0x02071200, 0x030812f0, 0x030f0000, 0x04090000, 0};
    static const char *const names[] = {"2.7", "3.8", "3.15", "4.9", "0.0"};
    rig_open(&r, "3.14", "threads");
    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
        struct err err = {0};
        char expected[100];
        snprintf(expected, sizeof expected, "the stacks of Python %s are not known; 3.9 to 3.14 are", names[i]);
        cr_expect_eq(open_as(&r, unknown[i], &err), -ENOTSUP);
        cr_expect_str_eq(err.text, expected);
    }
    struct err err = {0};
    cr_expect_eq(open_as(&r, 0x030d0000, &err), -EBADMSG, "its memory says 3.14");
    cr_expect_str_eq(err.text, "its _PyRuntime does not begin with the offsets of Python 3.13");
    put(&r, r.image.found.runtime, UINT64_C(0x7970677562656479));
    cr_expect_eq(open_as(&r, 0x030e0000, &err), -EBADMSG);
    rig_close(&r);
}

/* Every number that the interpreter says: with one that is too large it is not believed, or that number is not used. */
Test(pystack, offsets_that_are_too_large) {
    static struct rig r;
    for (size_t v = 4; v < ARRAY_SIZE(versions); v++) {
        rig_open(&r, versions[v], "threads");
        uint32_t refused = 0;
        for (uint32_t i = 3; i <= 80; i++) {
            for (int large = 0; large < 2; large++) {
                struct err err = {0};
                struct pystack_python before = r.python;
                put(&r, r.image.found.runtime + 8 * i, large == 0 ? (1u << 20) + 1 : UINT64_MAX);
                int opened = pystack_open(&r.memory, &r.image.found, &r.python, &err);
                cr_expect(opened == 0 || opened == -EBADMSG);
                cr_expect(opened != 0 || memcmp(&before, &r.python, sizeof before) == 0, "%s: %u", versions[v], i);
                refused += opened != 0;
                r.python = before;
                r.image.n--;
                r.n_values--;
            }
        }
        cr_expect_eq(refused, 2 * 23, "%s: %u of them are used", versions[v], refused / 2);
        rig_close(&r);
    }
}

/* The first offset that is too large for what is read of a struct: one below, all is read within it. */
Test(pystack, offsets_at_the_end_of_what_is_read) {
    static struct rig r;
    for (size_t v = 4; v < ARRAY_SIZE(versions); v++) {
        rig_open(&r, versions[v], "threads");
        struct pystack_python before = r.python;
        for (uint32_t i = 3; i <= 80; i++) {
            struct err err = {0};
            for (uint64_t at = PYSTACK_STRUCT_MAX - 16; at <= PYSTACK_STRUCT_MAX; at++) {
                put(&r, r.image.found.runtime + 8 * i, at);
                if (pystack_open(&r.memory, &r.image.found, &r.python, &err) == 0) {
                    (void)read_all(&r);
                    (void)pystack_addresses(&r.memory, &r.python);
                }
                r.image.n--;
                r.n_values--;
            }
            r.python = before;
        }
        rig_close(&r);
    }
}

/* Without the GIL, structs are others: a frame names its thread's copy of the code (Include/internal/pycore_frame.h,
 * tlbc_index), and `interned` is a byte of its own (Include/cpython/unicodeobject.h). */
Test(pystack, free_threaded_builds_have_other_structs) {
    static struct rig r;
    rig_open(&r, "3.14", "threads");
    struct err err = {0};
    struct pystack_layout with = r.python.layout;
    put(&r, r.image.found.runtime + 16, 1);                             /* free_threaded */
    put(&r, r.image.found.runtime + UINT64_C(8) * 38, 76);              /* frame.tlbc_index */
    put(&r, r.image.found.runtime + UINT64_C(8) * 49, with.code_begin); /* code.co_tlbc, behind the code */
    cr_expect_eq(pystack_open(&r.memory, &r.image.found, &r.python, &err), -EBADMSG);
    put(&r, r.image.found.runtime + UINT64_C(8) * 49, with.code_begin - 8);
    cr_assert_eq(pystack_open(&r.memory, &r.image.found, &r.python, &err), 0, "%s", err.text);
    cr_expect(r.l->frame_copy == 76 && r.l->frame_size == 84 && r.l->code_copies == with.code_begin - 8);
    cr_expect(r.l->code_traceable == with.code_begin - 24 && with.code_traceable == with.code_begin - 16);
    cr_expect(r.l->text_kind_shift == 8 && with.text_kind_shift == 2);
    cr_assert_eq(read_all(&r), 4);
    cr_expect_eq(r.threads[0].n, 0, "the copies are nowhere: no line is made up");
    rig_close(&r);
}
