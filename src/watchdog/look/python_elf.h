/* Finds symbols of Python in an ELF file of 64 bit: libpython, or a program that contains it. Pure:
 * the file is a callback, as memory is in pystack.h, with offsets for addresses. Nothing in the
 * file is believed. elf(5) */
#pragma once

#include "watchdog/look/pystack_layout.h"

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
