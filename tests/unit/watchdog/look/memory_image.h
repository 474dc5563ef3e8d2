/* The memory of a process as bytes, for what reads Python stacks: recorded from a real interpreter
 * (tests/tools/python_memory.c), or made up by a fuzzer. All numbers are little-endian:
 *
 *     version (4 bytes), pid (4), _PyRuntime, PyCode_Type, PyUnicode_Type, PyBytes_Type (8 each)
 *     then pieces: address (8), length (2), when (2), the bytes
 *
 * A piece lies over those before it. With `when` above 0 it is written before the read of that number (from 1 on): the
 * process goes on while it is read. */
#pragma once

#include "watchdog/look/pystack.h"

#define MEMORY_IMAGE_PIECES_MAX 512

struct memory_image {
    struct pystack_found found;
    uint32_t n; /* pieces */
    struct {
        uint64_t address;
        uint32_t length, when;
        const uint8_t *bytes; /* borrowed */
    } pieces[MEMORY_IMAGE_PIECES_MAX];
    uint32_t reads; /* so far */
};

/* Borrows the bytes for the image's life. What follows a piece that is cut is ignored. False: not even its head is
 * there. */
bool memory_image_parse(struct memory_image *ret, const uint8_t *bytes, size_t n);
/* A piece over the others: what the process writes before that read. */
void memory_image_write(struct memory_image *m, uint32_t when, uint64_t address, const void *bytes, size_t n);
struct pystack_memory memory_image_reader(struct memory_image *m); /* borrows it */
