/* The line of an instruction, from a code object's table. Pure. */
#pragma once

#include "watchdog/look/pystack_layout.h"

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
