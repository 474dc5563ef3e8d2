#include "base/text/cpuset.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void cpuset_or(struct cpuset *s, const struct cpuset *other) {
    for (size_t i = 0; i < CPUSET_WORDS; i++)
        s->words[i] |= other->words[i];
}

void cpuset_and(struct cpuset *s, const struct cpuset *other) {
    for (size_t i = 0; i < CPUSET_WORDS; i++)
        s->words[i] &= other->words[i];
}

bool cpuset_is_empty(const struct cpuset *s) { return cpuset_next(s, 0) == CPUSET_MAX; }

bool cpuset_equal(const struct cpuset *a, const struct cpuset *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

bool cpuset_intersects(const struct cpuset *a, const struct cpuset *b) {
    for (size_t i = 0; i < CPUSET_WORDS; i++)
        if ((a->words[i] & b->words[i]) != 0)
            return true;
    return false;
}

bool cpuset_within(const struct cpuset *part, const struct cpuset *whole) {
    for (size_t i = 0; i < CPUSET_WORDS; i++)
        if ((part->words[i] & ~whole->words[i]) != 0)
            return false;
    return true;
}

uint32_t cpuset_count(const struct cpuset *s) {
    uint32_t n = 0;
    for (size_t i = 0; i < CPUSET_WORDS; i++)
        n += (uint32_t)__builtin_popcountll(s->words[i]);
    return n;
}

uint32_t cpuset_next(const struct cpuset *s, uint32_t from) {
    if (from >= CPUSET_MAX)
        return CPUSET_MAX;
    uint64_t word = s->words[from / 64] & (UINT64_MAX << (from % 64));
    for (uint32_t i = from / 64;; word = s->words[i]) {
        if (word != 0)
            return i * 64 + (uint32_t)__builtin_ctzll(word);
        if (++i == CPUSET_WORDS)
            return CPUSET_MAX;
    }
}

/* ---- texts ---- */

static const char *skip_blanks(const char *p) {
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

static int take_number(const char **p, uint32_t *ret) {
    if (!isdigit((unsigned char)**p))
        return -EINVAL;
    uint64_t v = 0;
    for (; isdigit((unsigned char)**p); (*p)++) {
        v = v * 10 + (uint64_t)(**p - '0');
        if (v >= CPUSET_MAX)
            return -ERANGE;
    }
    *ret = (uint32_t)v;
    return 0;
}

int cpuset_parse_list(const char *text, struct cpuset *ret) {
    struct cpuset set = {0};
    const char *p = skip_blanks(text);
    while (*p != '\0') {
        uint32_t first, last;
        int r = take_number(&p, &first);
        last = first;
        if (r == 0 && *p == '-') {
            p++;
            r = take_number(&p, &last);
        }
        if (r < 0)
            return r;
        if (last < first)
            return -EINVAL;
        for (uint32_t i = first; i <= last; i++)
            cpuset_add(&set, i);
        const char *end = skip_blanks(p);
        if (*end == '\0')
            break;
        if (*p++ != ',' || *p == '\0')
            return -EINVAL;
    }
    *ret = set;
    return 0;
}

int cpuset_parse_mask(const char *text, struct cpuset *ret) {
    struct cpuset set = {0};
    const char *begin = skip_blanks(text), *end = begin + strlen(begin);
    while (end > begin && isspace((unsigned char)end[-1]))
        end--;
    uint32_t bit = 0; /* the number of the digit before `end`; a comma ends a word of 32 bits */
    while (end > begin) {
        char c = *--end;
        if (c == ',') {
            if (end == begin || bit % 32 != 0)
                return -EINVAL;
            continue;
        }
        if (!isxdigit((unsigned char)c))
            return -EINVAL;
        uint32_t digit = (uint32_t)strtoul((char[2]){c, '\0'}, NULL, 16);
        for (uint32_t i = 0; i < 4; i++, bit++) {
            if ((digit >> i & 1) == 0)
                continue;
            if (bit >= CPUSET_MAX)
                return -ERANGE;
            cpuset_add(&set, bit);
        }
    }
    *ret = set;
    return 0;
}

void cpuset_write_list(const struct cpuset *s, struct strbuf *to) {
    const char *comma = "";
    for (uint32_t first = cpuset_next(s, 0); first < CPUSET_MAX;) {
        uint32_t last = first;
        while (cpuset_has(s, last + 1))
            last++;
        strbuf_printf(to, "%s%" PRIu32, comma, first);
        if (last > first)
            strbuf_printf(to, "-%" PRIu32, last);
        comma = ",";
        first = cpuset_next(s, last + 1);
    }
}

void cpuset_write_mask(const struct cpuset *s, struct strbuf *to) {
    uint32_t top = CPUSET_MAX / 32 - 1;
    while (top > 0 && (uint32_t)(s->words[top / 2] >> (top % 2 * 32)) == 0)
        top--;
    for (uint32_t i = top + 1; i-- > 0;)
        strbuf_printf(to, "%08" PRIx32 "%s", (uint32_t)(s->words[i / 2] >> (i % 2 * 32)),
                      i > 0 ? "," : "");
}
