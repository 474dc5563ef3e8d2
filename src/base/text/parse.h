/* Text to numbers, whole or not at all: no leading blanks, no sign where none belongs, no rest.
 * All return 0 or -EINVAL (not of the form) / -ERANGE (too large), and write *ret only on 0. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

_must_use_ int parse_u64(const char *s, uint64_t *ret);
_must_use_ int parse_u32(const char *s, uint32_t *ret);
_must_use_ int parse_i32(const char *s, int32_t *ret);
_must_use_ int parse_port(const char *s, uint16_t *ret);
/* A finite decimal number, "0.1", "3", ">= 0". */
_must_use_ int parse_double(const char *s, double *ret);
/* Seconds as a decimal number to nanoseconds. */
_must_use_ int parse_seconds_ns(const char *s, uint64_t *ret_ns);
/* 1/true/t/yes/y and 0/false/f/no/n, in any case (torchrun's rule for is_host). */
_must_use_ int parse_bool(const char *s, bool *ret);
/* Where the index-th item of a list that commas separate begins, without the blanks around it, and
 * its length, which may be 0; NULL: the list ends before it. */
const char *list_item(const char *list, size_t index, size_t *ret_len);
/* Order of names as people sort them: node2 before node10. <0, 0, >0 as strcmp. */
int natural_compare(const char *a, const char *b);
