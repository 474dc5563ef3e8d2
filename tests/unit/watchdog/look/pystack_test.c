/* The memory of real interpreters, recorded, and then damaged: what can be read is read, and nothing is endless. The
 * recordings are the corpus of fuzz-pystack; stacks/ has what each interpreter's own line numbers say. */
#include "watchdog/look/pystack.h"

#include <limits.h>

#include "base/text/strbuf.h"
#include "memory_image.h"
#include "rig/unit.h"

#define NOWHERE UINT64_C(0xdead0000)
#define READS_MAX 700000 /* by the limits: 64 threads, 4096 frames each, and its code */

static const char *const versions[] = {"3.9", "3.10", "3.11", "3.12", "3.13", "3.14"};

static struct rig {
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
} rig;

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

static uint64_t get(uint64_t address) {
    uint64_t v;
    cr_assert(pystack_get_u64(&rig.memory, address, &v));
    return v;
}

static void rig_open(const char *version, const char *name) {
    struct err err = {0};
    memset(&rig, 0, sizeof rig);
    read_file("fuzz/corpus/fuzz-pystack", version, name, "", &rig.bytes);
    cr_assert(memory_image_parse(&rig.image, (const uint8_t *)rig.bytes.data, rig.bytes.len));
    rig.memory = memory_image_reader(&rig.image);
    cr_assert_eq(pystack_open(&rig.memory, &rig.image.found, &rig.python, &err), 0, "%s: %s", version, err.text);
    rig.l = &rig.python.layout;
    rig.interp = get(rig.image.found.runtime + rig.l->interpreters);
    rig.thread = get(rig.interp + rig.l->interp_threads);
    rig.frame = get(rig.thread + rig.l->thread_frame);
    if (rig.l->cframe)
        rig.frame = get(rig.frame + rig.l->cframe_frame);
}

static void rig_close(void) { strbuf_fini(&rig.bytes); }
/* From that read on (0: at once) this is at the address. */
static void put_when(uint32_t when, uint64_t address, uint64_t value) {
    uint64_t *v = &rig.values[rig.n_values++];
    cr_assert_lt(rig.n_values, ARRAY_SIZE(rig.values));
    *v = value;
    memory_image_write(&rig.image, when, address, v, sizeof *v);
}
static void put(uint64_t address, uint64_t value) { put_when(0, address, value); }

static void note(void *arg, const struct pystack_thread *t) {
    cr_assert_lt(rig.n, PYSTACK_THREADS_MAX);
    rig.threads[rig.n++] = *t;
}

static int read_all(void) {
    rig.n = 0;
    rig.image.reads = 0;
    int n = pystack_read(&rig.memory, &rig.python, note, NULL);
    cr_assert_eq(n > 0 ? (uint32_t)n : 0, rig.n);
    cr_assert_leq(rig.image.reads, READS_MAX, "%u reads", rig.image.reads);
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

#define EACH_VERSION(name) \
    for (size_t v_ = 0; v_ < ARRAY_SIZE(versions) && (rig_open(versions[v_], (name)), true); v_++, rig_close())

Test(pystack, every_version_is_read_as_it_was) {
    static const char *const names[] = {"threads", "coroutines"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        EACH_VERSION(names[i]) {
            _cleanup_(strbuf_fini) struct strbuf expected = {0}, text = {0};
            read_file("unit/watchdog/look/stacks", versions[v_], names[i], ".txt", &expected);
            cr_assert_gt(pystack_read(&rig.memory, &rig.python, add_thread, &text), 0);
            cr_expect_str_eq(strbuf_text(&text), strbuf_text(&expected), "%s %s", versions[v_], names[i]);
            cr_expect_eq(pystack_addresses(&rig.memory, &rig.python), pystack_addresses(&rig.memory, &rig.python));
            cr_expect_neq(pystack_addresses(&rig.memory, &rig.python), 0);
        }
    }
}

Test(pystack, a_frame_that_follows_itself) {
    EACH_VERSION("threads") {
        put(rig.frame + rig.l->frame_previous, rig.frame);
        cr_assert_eq(read_all(), 4, "%s", versions[v_]);
        cr_expect(rig.threads[0].cut && rig.threads[0].n == PYSTACK_FRAMES_MAX);
        cr_expect(!rig.threads[1].cut && rig.threads[1].n > 3);
    }
}

Test(pystack, frames_without_code_that_follow_each_other) {
    EACH_VERSION("threads") {
        put(rig.frame + rig.l->frame_previous, rig.frame);
        put(rig.frame + rig.l->frame_code, NOWHERE);
        cr_assert_eq(read_all(), 4, "%s", versions[v_]);
        cr_expect(!rig.threads[0].cut && rig.threads[0].n == 0);
        cr_expect_gt(rig.threads[1].n, 3);
    }
}

/* Of more interpreters or threads than are followed, none is taken for the first. */
Test(pystack, lists_that_have_no_end) {
    EACH_VERSION("threads") {
        uint64_t next = get(rig.thread + rig.l->thread_next);
        rig.python.found.pid = 0;
        for (int i = 0; i < 2; i++) {
            put(rig.thread + rig.l->thread_next, i == 0 ? rig.thread : next);
            put(rig.interp + rig.l->interp_next, i == 0 ? 0 : rig.interp);
            cr_assert_eq(read_all(), PYSTACK_THREADS_MAX, "%s", versions[v_]);
            for (uint32_t k = 0; k < rig.n; k++)
                cr_expect_not(rig.threads[k].main, "%s: thread %u", versions[v_], k);
            cr_expect_eq(pystack_addresses(&rig.memory, &rig.python), 0);
        }
    }
}

#define MANY 5000
#define MANY_AT UINT64_C(0x7e0000000000) /* where nothing else is */
#define MANY_APART (UINT64_C(1) << 20)

/* The recorded memory, and threads before its own: each is a copy of its newest one. Or interpreters before its own,
 * without threads. */
struct many {
    uint32_t n;
    bool interpreters;
};

static ssize_t read_many(void *arg, uint64_t address, void *buf, size_t size) {
    struct many *m = arg;
    const struct pystack_layout *l = rig.l;
    uint64_t i = address < MANY_AT ? m->n : (address - MANY_AT) / MANY_APART;
    if (i >= m->n)
        return rig.memory.read(rig.memory.arg, address, buf, size);
    uint64_t at = (address - MANY_AT) % MANY_APART, next = MANY_AT + (i + 1) * MANY_APART;
    if (m->interpreters) {
        next = i + 1 == m->n ? rig.interp : next;
        memset(buf, 0, size);
        if (at == l->interp_next)
            memcpy(buf, &next, MIN2(size, sizeof next));
        return (ssize_t)size;
    }
    ssize_t got = rig.memory.read(rig.memory.arg, rig.thread + at, buf, size);
    if (i + 1 == m->n)
        next = rig.thread;
    if (at <= l->thread_next && l->thread_next + sizeof next <= at + size)
        memcpy((char *)buf + l->thread_next - at, &next, sizeof next);
    return got;
}

/* The first thread is the last of the list, however many there are before it; of a list that is too long, or that can't
 * be read to its end, none is taken for it. */
Test(pystack, the_first_of_very_many_threads_is_known) {
    EACH_VERSION("threads") {
        struct pystack_memory memory = {read_many, &(struct many){.n = MANY}};
        put(rig.interp + rig.l->interp_threads, MANY_AT);
        rig.n = 0;
        cr_assert_eq(pystack_read(&memory, &rig.python, note, NULL), PYSTACK_THREADS_MAX, "%s", versions[v_]);
        for (uint32_t i = 0; i < rig.n; i++)
            cr_expect_eq(rig.threads[i].main, i + 1 == rig.n, "%s: thread %u", versions[v_], i);
        cr_expect_str_eq(rig.threads[rig.n - 1].frames[0].function, "block", "%s", versions[v_]);
        cr_expect_neq(pystack_addresses(&memory, &rig.python), 0);
    }
}

/* The main interpreter is the last of the list, too. */
Test(pystack, the_first_thread_is_that_of_the_last_interpreter) {
    EACH_VERSION("threads") {
        struct pystack_memory memory = {read_many, &(struct many){.n = 20, .interpreters = true}};
        put(rig.image.found.runtime + rig.l->interpreters, MANY_AT);
        rig.n = 0;
        cr_assert_eq(pystack_read(&memory, &rig.python, note, NULL), 4, "%s", versions[v_]);
        for (uint32_t i = 0; i < rig.n; i++)
            cr_expect_eq(rig.threads[i].main, i + 1 == rig.n, "%s: thread %u", versions[v_], i);
        cr_expect_neq(pystack_addresses(&memory, &rig.python), 0);
    }
}

Test(pystack, of_a_list_that_breaks_off_no_thread_is_the_first) {
    EACH_VERSION("threads") {
        put(rig.thread + rig.l->thread_next, NOWHERE);
        cr_assert_eq(read_all(), 1, "%s", versions[v_]);
        cr_expect_not(rig.threads[0].main, "%s", versions[v_]);
        cr_expect_eq(pystack_addresses(&rig.memory, &rig.python), 0);
    }
}

Test(pystack, pointers_to_nowhere) {
    EACH_VERSION("threads") {
        put(rig.thread + rig.l->thread_frame, NOWHERE);
        cr_assert_eq(read_all(), 4, "%s", versions[v_]);
        cr_expect(rig.threads[0].n == 0 && rig.threads[1].n > 3);
        put(rig.thread + rig.l->thread_next, NOWHERE);
        cr_assert_eq(read_all(), 1, "%s: the rest of the list is lost", versions[v_]);
        put(rig.thread + rig.l->thread_next, rig.thread + 4);
        cr_assert_eq(read_all(), 1, "%s: no struct of a thread is there", versions[v_]);
        put(rig.interp + rig.l->interp_threads, NOWHERE);
        cr_assert_eq(read_all(), -EFAULT);
        put(rig.image.found.runtime + rig.l->interpreters, NOWHERE);
        cr_assert_eq(read_all(), -EFAULT);
        cr_expect_eq(pystack_addresses(&rig.memory, &rig.python), 0);
    }
}

/* The code that the innermost frame runs. */
static uint64_t code_of(void) { return get(rig.frame + rig.l->frame_code) & ~UINT64_C(3); }

static const struct pystack_frame *innermost(void) {
    cr_assert_eq(read_all(), 4);
    cr_assert_gt(rig.threads[0].n, 3);
    return &rig.threads[0].frames[0];
}

Test(pystack, names_that_are_none) {
    EACH_VERSION("threads") {
        uint64_t code = code_of(), name = get(code + rig.l->code_name);
        cr_assert_str_eq(innermost()->function, "waits");
        put(code + rig.l->code_name, NOWHERE);
        cr_expect_str_eq(innermost()->function, "?");
        put(code + rig.l->code_name, code); /* no text */
        cr_expect_str_eq(innermost()->function, "?");
        put(code + rig.l->code_name, name);
        put(name + rig.l->text_length, UINT64_MAX);
        cr_expect_str_eq(innermost()->function, "?");
        put(name + rig.l->text_length, (1u << 20) + 1);
        cr_expect_str_eq(innermost()->function, "?");
        put(name + rig.l->text_length, 1u << 20); /* long, and its end is not there: of a name, the beginning counts */
        cr_expect_eq(strncmp(innermost()->function, "waits", 5), 0, "%s", innermost()->function);
        cr_expect_str_eq(innermost()->file, "/tmp/pystack_worker.py");
        put(code + rig.l->code_file, name); /* of a file's name, the end does */
        cr_expect_str_eq(innermost()->file, "?");
    }
}

/* Makes a str of the innermost function's name: characters of so many bytes each. */
static void put_text(uint64_t name, unsigned width, bool ascii, const void *chars, size_t n) {
    static uint32_t state;
    state = (width | 1u << 3 | (ascii ? 1u << 4 : 0)) << rig.l->text_kind_shift;
    put(name + rig.l->text_length, n);
    memory_image_write(&rig.image, 0, name + rig.l->text_state, &state, sizeof state);
    memory_image_write(&rig.image, 0, name + (ascii ? rig.l->text_ascii : rig.l->text_compact), chars, n * width);
}

/* Include/cpython/unicodeobject.h: Latin-1, UCS-2, UCS-4. A surrogate alone is no character. */
Test(pystack, names_in_all_alphabets) {
    static const uint8_t latin[] = {'f', 0xe9, 0x01};
    static const uint16_t ucs2[] = {'f', 0x0416, 0x4e2d, 0xd800};
    static const uint32_t ucs4[] = {'f', 0x1f600, 0x110000};
    EACH_VERSION("threads") {
        uint64_t name = get(code_of() + rig.l->code_name);
        put_text(name, 1, false, latin, ARRAY_SIZE(latin));
        cr_expect_str_eq(innermost()->function, "f\u00e9?", "%s: %s", versions[v_], innermost()->function);
        put_text(name, 2, false, ucs2, ARRAY_SIZE(ucs2));
        cr_expect_eq(strncmp(innermost()->function, "f\u0416\u4e2d", 6), 0, "%s", innermost()->function);
        put_text(name, 4, false, ucs4, ARRAY_SIZE(ucs4));
        cr_expect_str_eq(innermost()->function, "f\U0001f600?", "%s", innermost()->function);
        put_text(name, 3, false, latin, 1);
        cr_expect_str_eq(innermost()->function, "?", "there is no such width");
        put_text(name, 2, true, latin, 1);
        cr_expect_str_eq(innermost()->function, "?", "ASCII has one byte a character");
    }
}

Test(pystack, of_a_long_name_of_a_file_the_end_is_kept) {
    static char path[1000];
    memset(path, 'x', sizeof path);
    memcpy(path + sizeof path - 6, "end.py", 6);
    EACH_VERSION("threads") {
        uint64_t file = get(code_of() + rig.l->code_file);
        put_text(file, 1, true, path, sizeof path);
        const struct pystack_frame *f = innermost();
        cr_expect_eq(strlen(f->file), PYSTACK_FILE_MAX - 1);
        cr_expect_str_eq(f->file + PYSTACK_FILE_MAX - 1 - 7, "xend.py");
    }
}

Test(pystack, tables_of_lines_that_are_none) {
    EACH_VERSION("threads") {
        uint64_t code = code_of(), table = get(code + rig.l->code_lines);
        cr_assert_eq(innermost()->line, 97);
        put(code + rig.l->code_lines, NOWHERE);
        cr_expect_eq(innermost()->line, 0);
        put(code + rig.l->code_lines, code);
        cr_expect_eq(innermost()->line, 0);
        put(code + rig.l->code_lines, table);
        put(table + rig.l->bytes_length, UINT64_MAX);
        cr_expect_eq(innermost()->line, 0);
        put(table + rig.l->bytes_length, (1u << 26) + 1);
        cr_expect_eq(innermost()->line, 0);
        cr_expect_str_eq(innermost()->function, "waits");
    }
}

/* Without the types' addresses each object is believed, but no more than its memory. */
Test(pystack, without_types) {
    EACH_VERSION("threads") {
        rig.python.found.code_type = rig.python.found.text_type = rig.python.found.bytes_type = 0;
        cr_expect_str_eq(innermost()->function, "waits");
        put(code_of() + rig.l->code_name, rig.image.found.runtime);
        (void)innermost();
    }
}

Test(pystack, a_list_that_changes_is_read_again) {
    EACH_VERSION("threads") {
        uint64_t next = get(rig.thread + rig.l->thread_next);
        put(rig.thread + rig.l->thread_next, NOWHERE);
        put_when(7, rig.thread + rig.l->thread_next, next);
        cr_assert_eq(read_all(), 4, "%s", versions[v_]);
        cr_expect_str_eq(rig.threads[3].frames[0].function, "block");
        cr_expect(rig.threads[3].main);
    }
}

Test(pystack, at_any_moment_a_frame_can_be_gone) {
    EACH_VERSION("coroutines") {
        uint32_t longest = 0;
        cr_assert_eq(read_all(), 1);
        uint32_t whole = rig.threads[0].n, reads = rig.image.reads;
        uint64_t previous = get(rig.frame + rig.l->frame_previous), code = code_of();
        put_when(0, previous + rig.l->frame_code, NOWHERE);
        put_when(0, previous + rig.l->frame_previous, NOWHERE);
        put_when(0, code + rig.l->code_name, NOWHERE);
        for (uint32_t when = 1; when <= reads + 1; when++) {
            for (uint32_t i = rig.image.n - 3; i < rig.image.n; i++)
                rig.image.pieces[i].when = when;
            cr_assert_eq(read_all(), 1, "%s", versions[v_]);
            cr_assert_leq(rig.threads[0].n, whole);
            longest = MAX2(longest, rig.threads[0].n);
        }
        cr_expect_eq(longest, whole, "when all had been read, nothing was lost");
    }
}

static int open_as(uint32_t version, struct err *err) {
    struct pystack_python python;
    struct pystack_found found = *WITH(rig.image.found, .version = version);
    return pystack_open(&rig.memory, &found, &python, err);
}

Test(pystack, another_version_is_named) {
    static const uint32_t unknown[] = {0x02071200, 0x030812f0, 0x030f0000, 0x04090000, 0};
    static const char *const names[] = {"2.7", "3.8", "3.15", "4.9", "0.0"};
    rig_open("3.14", "threads");
    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
        struct err err = {0};
        char expected[100];
        snprintf(expected, sizeof expected, "the stacks of Python %s are not known; 3.9 to 3.14 are", names[i]);
        cr_expect_eq(open_as(unknown[i], &err), -ENOTSUP);
        cr_expect_str_eq(err.text, expected);
    }
    struct err err = {0};
    cr_expect_eq(open_as(0x030d0000, &err), -EBADMSG, "its memory says 3.14");
    cr_expect_str_eq(err.text, "its _PyRuntime does not begin with the offsets of Python 3.13");
    put(rig.image.found.runtime, UINT64_C(0x7970677562656479));
    cr_expect_eq(open_as(0x030e0000, &err), -EBADMSG);
    rig_close();
}

/* Every number that the interpreter says: with one that is too large it is not believed, or that number is not used. */
Test(pystack, offsets_that_are_too_large) {
    for (size_t v = 4; v < ARRAY_SIZE(versions); v++) {
        rig_open(versions[v], "threads");
        uint32_t refused = 0;
        for (uint32_t i = 3; i <= 80; i++) {
            for (int large = 0; large < 2; large++) {
                struct err err = {0};
                struct pystack_python before = rig.python;
                put(rig.image.found.runtime + 8 * i, large == 0 ? (1u << 20) + 1 : UINT64_MAX);
                int opened = pystack_open(&rig.memory, &rig.image.found, &rig.python, &err);
                cr_expect(opened == 0 || opened == -EBADMSG);
                cr_expect(opened != 0 || memcmp(&before, &rig.python, sizeof before) == 0, "%s: %u", versions[v], i);
                refused += opened != 0;
                rig.python = before;
                rig.image.n--;
                rig.n_values--;
            }
        }
        cr_expect_eq(refused, v == 4 ? 2 * 25 : 2 * 24, "%s: %u of them are used", versions[v], refused / 2);
        rig_close();
    }
}

/* The first offset that is too large for what is read of a struct: one below, all is read within it. */
Test(pystack, offsets_at_the_end_of_what_is_read) {
    for (size_t v = 4; v < ARRAY_SIZE(versions); v++) {
        rig_open(versions[v], "threads");
        struct pystack_python before = rig.python;
        for (uint32_t i = 3; i <= 80; i++) {
            struct err err = {0};
            for (uint64_t at = PYSTACK_STRUCT_MAX - 16; at <= PYSTACK_STRUCT_MAX; at++) {
                put(rig.image.found.runtime + 8 * i, at);
                if (pystack_open(&rig.memory, &rig.image.found, &rig.python, &err) == 0) {
                    (void)read_all();
                    (void)pystack_addresses(&rig.memory, &rig.python);
                }
                rig.image.n--;
                rig.n_values--;
            }
            rig.python = before;
        }
        rig_close();
    }
}

/* Without the GIL, structs are others: a frame names its thread's copy of the code (Include/internal/pycore_frame.h,
 * tlbc_index), and `interned` is a byte of its own (Include/cpython/unicodeobject.h). */
Test(pystack, free_threaded_builds_have_other_structs) {
    rig_open("3.14", "threads");
    struct err err = {0};
    struct pystack_layout with = rig.python.layout;
    put(rig.image.found.runtime + 16, 1);                             /* free_threaded */
    put(rig.image.found.runtime + UINT64_C(8) * 38, 76);              /* frame.tlbc_index */
    put(rig.image.found.runtime + UINT64_C(8) * 49, with.code_begin); /* code.co_tlbc, behind the code */
    cr_expect_eq(pystack_open(&rig.memory, &rig.image.found, &rig.python, &err), -EBADMSG);
    put(rig.image.found.runtime + UINT64_C(8) * 49, with.code_begin - 8);
    cr_assert_eq(pystack_open(&rig.memory, &rig.image.found, &rig.python, &err), 0, "%s", err.text);
    cr_expect(rig.l->frame_copy == 76 && rig.l->frame_size == 84 && rig.l->code_copies == with.code_begin - 8);
    cr_expect(rig.l->code_traceable == with.code_begin - 24 && with.code_traceable == with.code_begin - 16);
    cr_expect(rig.l->text_kind_shift == 8 && with.text_kind_shift == 2);
    cr_assert_eq(read_all(), 4);
    cr_expect_eq(rig.threads[0].n, 0, "the copies are nowhere: no line is made up");
    rig_close();
}

struct frames {
    uint32_t n, asked;
    struct pystack_frame of[200];
};

static int64_t number_of(void *arg, const struct pystack_frame *f) {
    struct frames *all = arg;
    cr_assert_lt(all->n, ARRAY_SIZE(all->of));
    all->of[all->n] = *f;
    all->asked++;
    return all->n++;
}

static const struct pystack_thread *main_thread(void) {
    uint32_t i = 0;
    while (!rig.threads[i].main)
        cr_assert_lt(++i, rig.n);
    return &rig.threads[i];
}

static void expect_same(const struct frames *all, const struct pystack_numbers *got, const struct pystack_thread *t,
                        const char *version) {
    cr_assert_eq(got->n, t->n, "%s: %u of %u", version, got->n, t->n);
    for (uint32_t i = 0; i < t->n; i++) {
        const struct pystack_frame *f = &all->of[got->of[i]];
        cr_expect(strcmp(f->function, t->frames[i].function) == 0 && strcmp(f->file, t->frames[i].file) == 0 &&
                      f->line == t->frames[i].line,
                  "%s: %s:%u", version, f->function, f->line);
    }
}

static int watch(struct pystack_watch *w, struct frames *all, struct pystack_numbers *ret) {
    rig.image.reads = 0;
    int code = pystack_watch_read(w, &rig.memory, number_of, all, ret);
    cr_assert_leq(rig.image.reads, READS_MAX, "%u reads", rig.image.reads);
    return code;
}

Test(pystack, a_watch_sees_the_same_and_names_each_frame_once) {
    static const char *const names[] = {"threads", "coroutines"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        EACH_VERSION(names[i]) {
            struct frames all = {.n = 0};
            struct pystack_numbers got;
            struct pystack_watch *w = pystack_watch_new(&rig.python);
            cr_assert_gt(read_all(), 0);
            cr_assert_eq(watch(w, &all, &got), 0);
            expect_same(&all, &got, main_thread(), versions[v_]);
            uint32_t asked = all.asked;
            cr_assert_eq(watch(w, &all, &got), 0);
            expect_same(&all, &got, main_thread(), versions[v_]);
            cr_expect_eq(all.asked, asked);
            pystack_watch_free(w);
        }
    }
}

/* The innermost frame is left, and its memory is given back. */
Test(pystack, a_watch_notices_another_innermost_frame) {
    EACH_VERSION("coroutines") {
        struct frames all = {.n = 0};
        struct pystack_numbers before, after;
        struct pystack_watch *w = pystack_watch_new(&rig.python);
        uint64_t at = rig.thread + rig.l->thread_frame;
        if (rig.l->cframe)
            at = get(at) + rig.l->cframe_frame;
        cr_assert_eq(watch(w, &all, &before), 0);
        put(at, get(rig.frame + rig.l->frame_previous));
        put(rig.frame + rig.l->frame_code, NOWHERE);
        put(rig.frame + rig.l->frame_previous, NOWHERE);
        cr_assert_eq(watch(w, &all, &after), 0, "%s", versions[v_]);
        cr_expect_eq(after.n, before.n - 1);
        cr_expect_eq(memcmp(after.of, before.of + 1, after.n * sizeof after.of[0]), 0, "%s", versions[v_]);
        cr_expect_eq(all.asked, before.n, "they are known");
        pystack_watch_free(w);
    }
}

Test(pystack, a_watch_of_frames_that_are_gone_is_not_believed) {
    EACH_VERSION("coroutines") {
        for (int second = 0; second < 2; second++) {
            struct pystack_numbers got;
            uint64_t previous = get(rig.frame + rig.l->frame_previous);
            uint32_t n = rig.image.n, whole = 0, reads;
            put_when(UINT16_MAX, previous + rig.l->frame_code, NOWHERE);
            put_when(UINT16_MAX, previous + rig.l->frame_previous, NOWHERE);
            for (uint32_t when = 0; when < 1000; when++) {
                struct frames all = {.n = 0};
                struct pystack_watch *w = pystack_watch_new(&rig.python);
                for (uint32_t i = n; i < rig.image.n; i++)
                    rig.image.pieces[i].when = UINT16_MAX;
                if (second > 0 || when == 0)
                    cr_assert_eq(watch(w, &all, &got), 0);
                whole = when == 0 ? got.n : whole;
                for (uint32_t i = n; i < rig.image.n; i++)
                    rig.image.pieces[i].when = when;
                int r = watch(w, &all, &got);
                reads = rig.image.reads;
                pystack_watch_free(w);
                cr_expect(r == -EAGAIN || (r == 0 && got.n == whole), "%s: %d, %u", versions[v_], r, got.n);
                if (when > reads) {
                    cr_expect_eq(r, 0, "when all had been read, nothing was lost");
                    break;
                }
            }
            rig.image.n = n;
            rig.n_values = 0;
        }
    }
}

Test(pystack, a_watch_of_a_process_that_is_gone) {
    EACH_VERSION("threads") {
        struct frames all = {.n = 0};
        struct pystack_numbers got;
        struct pystack_watch *w = pystack_watch_new(&rig.python);
        cr_assert_eq(watch(w, &all, &got), 0);
        rig.image.n = 0;
        cr_expect_eq(watch(w, &all, &got), -EFAULT);
        cr_expect_eq(watch(w, &all, &got), -EFAULT);
        pystack_watch_free(w);
    }
}
