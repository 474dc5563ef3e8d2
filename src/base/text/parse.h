/* Reads numbers from texts. The whole text must be the number: leading blanks, a sign where none is
 * allowed, and anything after the number are errors. All functions return 0, -EINVAL (wrong form)
 * or -ERANGE (too large), and write *ret only on 0. */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"

_must_use_ int parse_u64(const char *s, uint64_t *ret);
_must_use_ int parse_u32(const char *s, uint32_t *ret);
_must_use_ int parse_i32(const char *s, int32_t *ret);
_must_use_ int parse_port(const char *s, uint16_t *ret);
/* A finite decimal number >= 0, such as "0.1" or "3". */
_must_use_ int parse_double(const char *s, double *ret);
/* Seconds as a decimal number to nanoseconds. */
_must_use_ int parse_seconds_ns(const char *s, uint64_t *ret_ns);
/* As Python's int() and float() read a number, and so torchrun: with blanks around it, and a "_"
 * between two digits; parse_python_i32() and the last two also with a sign. Otherwise like the
 * functions above. (Digits of other scripts, "inf" and "nan" are refused.) */
_must_use_ int parse_python_u32(const char *s, uint32_t *ret);
_must_use_ int parse_python_i32(const char *s, int32_t *ret);
_must_use_ int parse_python_double(const char *s, double *ret);
_must_use_ int parse_python_seconds_ns(const char *s, uint64_t *ret_ns);
/* 1/true/t/yes/y and 0/false/f/no/n, in any case (torchrun's rule for is_host). */
_must_use_ int parse_bool(const char *s, bool *ret);
/* The value of a hexadecimal digit, of either case; -1: it is none. */
int hex_digit(char c);
bool text_begins(const char *text, const char *with);
bool text_ends(const char *text, const char *with);
/* The index-th item of a list with commas, without blanks around it, and its length; NULL: none. */
const char *list_item(const char *list, size_t index, size_t *ret_len);
/* Moves *at to the next word of a line. Returns its length; 0: the line ends, or "#" follows. */
size_t text_word(const char **at);
/* Where the next line of a text begins; its end: there is none. */
const char *text_next_line(const char *line);
/* Sorts names as people do: node2 before node10. Returns <0, 0 or >0, as strcmp() does. */
int natural_compare(const char *a, const char *b);

/* Lists of TCP ports, such as "29400-29403,30000": each port once, in their order. */
/* 0, and 1 to `max` ports in ret; -EINVAL: an item is neither a port from 1 to 65535 nor LOW-HIGH;
 * -E2BIG: more than max; -EEXIST: a port is there twice. */
_must_use_ int port_list_parse(const char *text, unsigned max, uint16_t *ret, unsigned *ret_n);
/* Appends the list; three or more consecutive ports as LOW-HIGH. */
void port_list_text(const uint16_t *ports, unsigned n, struct strbuf *out);
