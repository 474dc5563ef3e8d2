/* Where CPython keeps what pystack.h reads: the offsets of the fields by version, the lines of a
 * code object, and symbols in an ELF file. Pure.
 *
 * 3.9 to 3.12: tables, from the structs of CPython's headers (Include/internal/pycore_runtime.h,
 * pycore_interp.h, pycore_frame.h, Include/cpython/pystate.h, code.h, unicodeobject.h), for 64 bit
 * and a release build. They did not change within a minor version. From 3.13 on the interpreter
 * has them itself: _Py_DebugOffsets is at the beginning of _PyRuntime. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* Copies up to n bytes from an address; returns how many bytes it copied: fewer if the rest can't
 * be read; a negative errno if none can. */
typedef ssize_t pystack_read_fn(void *arg, uint64_t address, void *buf, size_t n);
#define PYSTACK_PIECES_MAX 131
struct pystack_pieces {
    uint32_t n;
    size_t size; /* of all */
    struct {
        uint64_t address;
        size_t size;
    } of[PYSTACK_PIECES_MAX];
};
/* Copies all of these into buf, one behind the other. False: it can't; they are read one by one
 * then. */
typedef bool pystack_gather_fn(void *arg, const struct pystack_pieces *pieces, void *buf);
struct pystack_memory {
    pystack_read_fn *read;
    void *arg;
    pystack_gather_fn *gather; /* cheaper than many reads; may be NULL */
};
/* All n bytes, or false. */
bool pystack_get(const struct pystack_memory *m, uint64_t address, void *buf, size_t n);
bool pystack_get_u64(const struct pystack_memory *m, uint64_t address, uint64_t *ret);

#define PYSTACK_STRUCT_MAX 512 /* what is read of one struct */

enum pystack_place_form {
    PYSTACK_LASTI_BYTES, /* 3.9: f_lasti counts bytes */
    PYSTACK_LASTI_UNITS, /* 3.10: in instructions of 2 bytes */
    PYSTACK_POINTER,     /* 3.11 on: the address of the instruction */
};

enum pystack_table_form {
    PYSTACK_LNOTAB,    /* 3.9: Objects/lnotab_notes.txt of that version */
    PYSTACK_LINETABLE, /* 3.10: PEP 626, the same file */
    PYSTACK_LOCATIONS, /* 3.11 on: Objects/locations.md (3.13: InternalDocs/locations.md) */
};

/* Offsets in bytes. Those of a struct are below its size, and that is at most PYSTACK_STRUCT_MAX.
 */
struct pystack_layout {
    uint32_t minor; /* 9: Python 3.9 */
    enum pystack_place_form place;
    enum pystack_table_form table;
    uint32_t interpreters;   /* _PyRuntime: the first interpreter */
    uint32_t interp_next;    /* interpreter */
    uint32_t interp_threads; /* its first thread */
    uint32_t interp_gc;      /* int: its garbage collector runs; 0: not known */
    uint32_t thread_next;    /* thread */
    uint32_t thread_id;      /* pthread_self() */
    uint32_t thread_native;  /* gettid(); 0: it has none */
    uint32_t thread_frame;   /* its innermost frame; with cframe: the address of that */
    bool cframe;
    uint32_t cframe_frame; /* the innermost frame in it */
    uint32_t thread_size;
    uint32_t frame_previous; /* frame */
    uint32_t frame_code;
    uint32_t frame_place;
    uint32_t frame_owner;  /* 0: it has none */
    uint32_t frame_locals; /* the first local variable; it is behind the frame_size */
    uint32_t frame_copy;   /* free-threaded 3.14: number of the thread's copy of the code; or 0 */
    uint32_t frame_size;
    uint32_t code_file; /* code */
    uint32_t code_name;
    uint32_t code_first_line;
    uint32_t code_lines;
    uint32_t code_begin;     /* of the instructions; 0: not needed */
    uint32_t code_traceable; /* before this instruction, a frame is not yet complete */
    uint32_t code_copies;    /* free-threaded 3.14: the copies; or 0 */
    uint32_t code_size;
    uint32_t object_type;  /* any object */
    uint32_t bytes_length; /* bytes */
    uint32_t bytes_data;
    uint32_t text_length; /* str */
    uint32_t text_state;
    uint32_t text_kind_shift; /* of the bits of its state: kind (3), compact (1), ascii (1) */
    uint32_t text_ascii;      /* where its characters begin */
    uint32_t text_compact;    /* the same, if not all are ASCII */
};

/* version: PY_VERSION_HEX, of which only the first two bytes matter. -ENOTSUP: such a Python is not
 * known; -EBADMSG: there is no runtime of this version at the address. */
_must_use_ int pystack_layout_of(const struct pystack_memory *m, uint32_t version, uint64_t runtime,
                                 struct pystack_layout *ret, struct err *err);

/* ---- the line of an instruction, from a code object's table ---- */

#define PYSTACK_TABLE_MAX (1u << 20) /* bytes of a table that are read, at most */

/* A table is read as far as needed, a piece at a time. */
struct pystack_table {
    const struct pystack_memory *memory;
    uint64_t address; /* of what follows the buffer */
    uint64_t left;    /* bytes that follow it */
    uint32_t at, n;   /* in the buffer */
    uint8_t buf[256];
};

/* place: the instruction's offset in bytes; below 0: the code has not begun. Returns 0 if the line
 * is not known: there is none, the table ends before it, or it makes no sense. */
uint32_t pystack_line(enum pystack_table_form form, struct pystack_table *t, int64_t place,
                      int32_t first_line);

/* ---- symbols of Python in an ELF file of 64 bit, elf(5): libpython, or a program
 * that contains it. The file is a callback, as memory is, with offsets for addresses. Nothing in
 * the file is believed. ---- */

struct python_elf {
    /* 0: the file has no such symbol. In the process's memory they are at these plus the bias. */
    uint64_t runtime;    /* _PyRuntime */
    uint64_t version;    /* Py_Version: from 3.11 on */
    uint64_t code_type;  /* PyCode_Type */
    uint64_t text_type;  /* PyUnicode_Type */
    uint64_t bytes_type; /* PyBytes_Type */
    /* What the file's first mapped page is called in it: a mapping of offset 0 at A has the bias
     * A - first. */
    uint64_t first;
};

/* -ENOENT: it has no _PyRuntime; -ENOEXEC: no ELF file of 64 bit in this machine's byte order. */
_must_use_ int python_elf_read(const struct pystack_memory *file, struct python_elf *ret);
