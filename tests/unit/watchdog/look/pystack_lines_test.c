#include "watchdog/look/pystack_layout.h"

#include "rig/unit.h"

struct image {
    const uint8_t *bytes;
    size_t n;
};

static ssize_t read_image(void *arg, uint64_t address, void *buf, size_t n) {
    const struct image *image = arg;
    if (address >= image->n)
        return -1;
    n = MIN2(n, image->n - address);
    memcpy(buf, image->bytes + address, n);
    return (ssize_t)n;
}

static uint32_t line(enum pystack_table_form form, const uint8_t *bytes, size_t n, int64_t place, int32_t first) {
    struct pystack_memory m = {read_image, &(struct image){bytes, n}};
    return pystack_line(form, &(struct pystack_table){.memory = &m, .left = n}, place, first);
}

/* This program, compiled by each version, and the lines that its own co_lines() or dis names:
 *
 *     def f(a,              for i in range(
 *           b):                     3):
 *         if a:                 try:
 *             x = [g(i)             g(
 *                  for i in b]          1,
 *                                       i)
 *                               finally:
 *                                   pass
 *                           return (a +
 *                                   b)
 */
struct span {
    int begin, end;
    uint32_t line;
};
#define EXPECT_LINES(form, bytes, spans)                                                                    \
    for (size_t i = 0; i < ARRAY_SIZE(spans); i++) {                                                        \
        for (int at = (spans)[i].begin; at < (spans)[i].end; at += 2)                                       \
            cr_expect_eq(line(form, bytes, sizeof(bytes), at, 1), (spans)[i].line, "at %d: %u, not %u", at, \
                         line(form, bytes, sizeof(bytes), at, 1), (spans)[i].line);                         \
    }

Test(pystack_lines, of_3_9) {
    static const uint8_t bytes[] = {0, 2, 4, 1, 6, 1, 2, 255, 6, 4, 2, 1, 2, 255, 8, 2,
                                    2, 1, 2, 1, 2, 1, 2, 254, 6, 4, 6, 1, 2, 1,   2, 255};
    static const struct span spans[] = {
        {0, 4, 3},    {4, 10, 4},   {10, 12, 5},  {12, 18, 4},  {18, 20, 8},  {20, 22, 9},  {22, 30, 8},  {30, 32, 10},
        {32, 34, 11}, {34, 36, 12}, {36, 38, 13}, {38, 44, 11}, {44, 50, 15}, {50, 52, 16}, {52, 54, 17}, {54, 58, 16}};
    EXPECT_LINES(PYSTACK_LNOTAB, bytes, spans);
}

Test(pystack_lines, of_3_9_with_a_gap_of_many_lines) {
    static const uint8_t bytes[] = {0, 1, 4, 127, 0, 127, 0, 127, 0, 20, 4, 1, 255, 0, 151, 1};
    static const struct span spans[] = {{0, 4, 2}, {4, 8, 403}, {8, 414, 404}, {414, 422, 405}};
    EXPECT_LINES(PYSTACK_LNOTAB, bytes, spans);
}

Test(pystack_lines, of_3_10) {
    static const uint8_t bytes[] = {4, 2, 6, 1, 2, 1, 6, 255, 2, 4, 2, 1, 8, 255, 2, 2,
                                    2, 1, 2, 1, 2, 1, 6, 254, 4, 4, 2, 1, 2, 1,   4, 255};
    static const struct span spans[] = {
        {0, 4, 3},    {4, 10, 4},   {10, 12, 5},  {12, 18, 4},  {18, 20, 8},  {20, 22, 9},  {22, 30, 8},  {30, 32, 10},
        {32, 34, 11}, {34, 36, 12}, {36, 38, 13}, {38, 44, 11}, {44, 48, 15}, {48, 50, 16}, {50, 52, 17}, {52, 56, 16}};
    EXPECT_LINES(PYSTACK_LINETABLE, bytes, spans);
    static const uint8_t without[] = {4, 2, 6, 0x80, 2, 1};
    static const struct span some[] = {{0, 4, 3}, {4, 10, 0}, {10, 12, 4}};
    EXPECT_LINES(PYSTACK_LINETABLE, without, some);
}

Test(pystack_lines, of_3_11) {
    static const uint8_t bytes[] = {
        128, 0,   224, 7,   8,   240, 0,   2,  5,  25,  240, 2,   1,   13, 25,  240, 0,   1,   13,  25,  216, 22,
        23,  240, 3,   1,   13,  25,  241, 0,  1,  13,  25,  244, 0,   1,  13,  25,  136, 1,   245, 8,   0,   14,
        19,  216, 12,  13,  241, 3,   1,   14, 15, 244, 0,   1,   14,  15, 240, 0,   7,   5,   17,  240, 0,   7,
        5,   17,  136, 1,   240, 4,   5,   9,  17, 221, 12,  13,  216, 16, 17,  216, 16,  17,  241, 5,   2,   13,
        19,  244, 0,   2,   13,  19,  240, 0,  2,  13,  19,  240, 8,   0,  13,  17,  248, 136, 68,  136, 68,  136,
        68,  136, 68,  216, 12,  13,  216, 12, 13, 241, 3,   1,   13,  14, 240, 0,   1,   5,   15};
    static const struct span spans[] = {{0, 2, 1},      {2, 6, 3},      {6, 10, 4},     {10, 12, 5},   {12, 30, 4},
                                        {30, 42, 8},    {42, 44, 9},    {44, 64, 8},    {64, 66, 10},  {66, 78, 11},
                                        {78, 80, 12},   {80, 82, 13},   {82, 98, 11},   {98, 100, 15}, {100, 102, 0},
                                        {102, 110, 15}, {110, 112, 16}, {112, 114, 17}, {114, 120, 16}};
    EXPECT_LINES(PYSTACK_LOCATIONS, bytes, spans);
}

Test(pystack_lines, of_3_13) {
    static const uint8_t bytes[] = {
        128, 0,   230, 7,  8,   225, 22, 23,  243, 3,   1,   13,  25,  217, 22,  23,  144, 17,  244, 3,  0,   14, 15,
        136, 113, 142, 84, 217, 22,  23, 240, 3,   0,   9,   10,  240, 0,   1,   13,  25,  244, 8,   0,  14,  19, 216,
        12,  13,  246, 3,  1,   14,  15, 136, 1,   240, 4,   5,   9,   17,  220, 12,  13,  216, 16,  17, 216, 16, 17,
        244, 5,   2,   13, 19,  241, 8,  0,   13,  17,  241, 15,  1,   14,  15,  240, 16,  0,   13,  14, 216, 12, 13,
        241, 3,   1,   13, 14,  240, 0,  1,   5,   15,  249, 242, 25,  1,   13,  25,  248, 240, 22,  0,  13,  17, 250};
    static const struct span spans[] = {
        {0, 2, 1},      {2, 16, 3},     {16, 20, 5},    {20, 28, 4},    {28, 34, 5},    {34, 60, 4},    {60, 64, 5},
        {64, 68, 4},    {68, 78, 8},    {78, 80, 9},    {80, 96, 8},    {96, 98, 10},   {98, 108, 11},  {108, 110, 12},
        {110, 112, 13}, {112, 122, 11}, {122, 126, 15}, {126, 130, 8},  {130, 132, 16}, {132, 134, 17}, {134, 140, 16},
        {140, 144, 0},  {144, 150, 4},  {150, 152, 0},  {152, 154, 15}, {154, 160, 0}};
    EXPECT_LINES(PYSTACK_LOCATIONS, bytes, spans);
}

/* Read a piece at a time; each piece is where it is in memory. */
Test(pystack_lines, a_long_table) {
    uint8_t bytes[4000];
    for (size_t i = 0; i < sizeof bytes; i += 2) {
        bytes[i] = 2;
        bytes[i + 1] = i < 2000 ? 1 : 2;
    }
    for (int i = 0; i < 2000; i += 97)
        cr_expect_eq(line(PYSTACK_LINETABLE, bytes, sizeof bytes, 2 * i, 10),
                     10 + (uint32_t)(i < 1000 ? i + 1 : 1000 + 2 * (i - 999)), "%d", i);
}

Test(pystack_lines, before_the_first_instruction_it_is_the_first_line) {
    cr_expect_eq(line(PYSTACK_LNOTAB, NULL, 0, -1, 7), 7);
    cr_expect_eq(line(PYSTACK_LINETABLE, NULL, 0, -2, 7), 7);
    cr_expect_eq(line(PYSTACK_LOCATIONS, NULL, 0, -2, -7), 0);
}

Test(pystack_lines, garbage_ends) {
    uint8_t bytes[1000];
    for (int fill = 0; fill < 256; fill++) {
        memset(bytes, fill, sizeof bytes);
        for (int form = PYSTACK_LNOTAB; form <= PYSTACK_LOCATIONS; form++) {
            (void)line((enum pystack_table_form)form, bytes, sizeof bytes, INT64_MAX, INT32_MAX);
            (void)line((enum pystack_table_form)form, bytes, 0, 0, 1);
            /* A table that is longer than what can be read. */
            struct pystack_memory m = {read_image, &(struct image){bytes, 300}};
            struct pystack_table t = {.memory = &m, .left = UINT64_MAX};
            (void)pystack_line((enum pystack_table_form)form, &t, INT64_MAX, 1);
        }
    }
}
