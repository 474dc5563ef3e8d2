#include "watchdog/look/pystack_layout.h"

/* The next byte, or -1 at the end. */
static int look(struct pystack_table *t) {
    if (t->at == t->n) {
        size_t n = MIN2(t->left, sizeof t->buf);
        if (n == 0 || !pystack_get(t->memory, t->address, t->buf, n))
            return -1;
        t->address += n;
        t->left -= n;
        t->at = 0;
        t->n = (uint32_t)n;
    }
    return t->buf[t->at];
}

static int take(struct pystack_table *t) {
    int c = look(t);
    if (c >= 0)
        t->at++;
    return c;
}

static uint32_t line_of(int64_t line) { return line > 0 && line <= INT32_MAX ? (uint32_t)line : 0; }

/* Pairs: as many bytes further, as many lines further (signed). */
static uint32_t by_lnotab(struct pystack_table *t, int64_t place, int64_t line) {
    int64_t begin = 0;
    for (;;) {
        int bytes = take(t), lines = take(t);
        if (bytes < 0 || lines < 0)
            return line_of(line); /* the last line lasts until the end */
        begin += bytes;
        if (begin > place)
            return line_of(line);
        line += (int8_t)lines;
    }
}

/* Pairs: length of the range in bytes, lines further (signed); -128: it has no line. */
static uint32_t by_linetable(struct pystack_table *t, int64_t place, int64_t line) {
    int64_t end = 0;
    for (;;) {
        int bytes = take(t), lines = take(t);
        if (bytes < 0 || lines < 0)
            return 0;
        end += bytes;
        if (lines != 0x80)
            line += (int8_t)lines;
        if (place < end)
            return lines == 0x80 ? 0 : line_of(line);
    }
}

/* 6 bits a byte, lowest first; bit 6: more follow. */
static int64_t varint(struct pystack_table *t) {
    int64_t v = 0;
    for (unsigned shift = 0; shift <= 30; shift += 6) {
        int c = take(t);
        if (c < 0)
            return 0;
        v |= (int64_t)(c & 0x3f) << shift;
        if ((c & 0x40) == 0)
            break;
    }
    return v;
}

/* Entries: a byte with bit 7 set, a form (4 bits) and the length less one in instructions (3 bits);
 * then what the form requires, in bytes without bit 7. */
static uint32_t by_locations(struct pystack_table *t, int64_t place, int64_t line) {
    enum { ONE_LINE_0 = 10, ONE_LINE_2 = 12, NO_COLUMNS, LONG, NONE };
    int64_t end = 0;
    for (;;) {
        int c = take(t);
        if (c < 0 || (c & 0x80) == 0)
            return 0;
        int form = c >> 3 & 15;
        end += ((c & 7) + 1) * 2;
        if (form >= ONE_LINE_0 && form <= ONE_LINE_2)
            line += form - ONE_LINE_0;
        if (form == NO_COLUMNS || form == LONG) {
            int64_t v = varint(t);
            line += v & 1 ? -(v >> 1) : v >> 1;
        }
        if (place < end)
            return form == NONE ? 0 : line_of(line);
        while (look(t) >= 0 && (look(t) & 0x80) == 0)
            t->at++;
    }
}

uint32_t pystack_line(enum pystack_table_form form, struct pystack_table *t, int64_t place,
                      int32_t first_line) {
    if (t->left > PYSTACK_TABLE_MAX)
        t->left = PYSTACK_TABLE_MAX;
    if (place < 0)
        return line_of(first_line);
    switch (form) {
    case PYSTACK_LNOTAB: return by_lnotab(t, place, first_line);
    case PYSTACK_LINETABLE: return by_linetable(t, place, first_line);
    case PYSTACK_LOCATIONS: return by_locations(t, place, first_line);
    }
    return 0;
}
