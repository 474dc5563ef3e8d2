/* A set of CPUs (or of NUMA nodes), by the kernel's numbers. It is a plain value: assignment copies
 * it, and nothing must be freed. Pure.
 *
 *     struct cpuset set = {0};
 *     r = cpuset_parse_list("0-3,8", &set);       /sys/…/cpulist, taskset -c
 *     r = cpuset_parse_mask("ff,00000001", &set); /sys/…/cpumap: 32-bit words, highest first
 *     for (uint32_t i = cpuset_next(&set, 0); i < CPUSET_MAX; i = cpuset_next(&set, i + 1)) … */
#pragma once

#include <stdbool.h>

#include "base/text/strbuf.h"

#define CPUSET_MAX 8192 /* the most that a distribution's Linux kernel is built for */
#define CPUSET_WORDS (CPUSET_MAX / 64)

struct cpuset {
    uint64_t words[CPUSET_WORDS];
};

static inline bool cpuset_has(const struct cpuset *s, uint32_t i) {
    return i < CPUSET_MAX && (s->words[i / 64] >> (i % 64) & 1) != 0;
}
/* Ignores numbers of CPUSET_MAX and above. */
static inline void cpuset_add(struct cpuset *s, uint32_t i) {
    if (i < CPUSET_MAX)
        s->words[i / 64] |= UINT64_C(1) << (i % 64);
}
static inline void cpuset_remove(struct cpuset *s, uint32_t i) {
    if (i < CPUSET_MAX)
        s->words[i / 64] &= ~(UINT64_C(1) << (i % 64));
}
void cpuset_or(struct cpuset *s, const struct cpuset *other);
void cpuset_and(struct cpuset *s, const struct cpuset *other);
bool cpuset_is_empty(const struct cpuset *s);
bool cpuset_equal(const struct cpuset *a, const struct cpuset *b);
bool cpuset_intersects(const struct cpuset *a, const struct cpuset *b);
/* Is every member of `part` in `whole`? */
bool cpuset_within(const struct cpuset *part, const struct cpuset *whole);
uint32_t cpuset_count(const struct cpuset *s);
/* The lowest member >= from; CPUSET_MAX: none. */
uint32_t cpuset_next(const struct cpuset *s, uint32_t from);

/* Both accept surrounding blanks and a newline; the empty text is the empty set. They return 0,
 * -EINVAL, or -ERANGE: a number is CPUSET_MAX or above. *ret is written only on 0. */
_must_use_ int cpuset_parse_list(const char *text, struct cpuset *ret);
_must_use_ int cpuset_parse_mask(const char *text, struct cpuset *ret);
/* Appends "0-3,8"; nothing for the empty set. */
void cpuset_write_list(const struct cpuset *s, struct strbuf *to);
/* Appends the form of cpumap: "000000ff,00000001"; "00000000" for the empty set. */
void cpuset_write_mask(const struct cpuset *s, struct strbuf *to);
