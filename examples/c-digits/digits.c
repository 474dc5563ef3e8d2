#include "digits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

#define LINES_MAX 100000

/* One line: 64 pixels of 0..16 and the label, with commas between. */
static int parse_line(const char *line, struct digit *ret) {
    for (unsigned i = 0; i <= DIGIT_PIXELS; i++) {
        char *end;
        unsigned long v = strtoul(line, &end, 10);
        char stop = i < DIGIT_PIXELS ? ',' : '\n';
        if (end == line || *line == '-' || *end != stop || v > (i < DIGIT_PIXELS ? 16 : 9))
            return -1;
        if (i < DIGIT_PIXELS)
            ret->pixels[i] = (float)v / 16.0f;
        else
            ret->label = (unsigned)v;
        line = end + 1;
    }
    return 0;
}

static int read_lines(FILE *f, const char *path, struct digits *d) {
    char line[512];
    struct digit digit;
    for (unsigned n = 0; fgets(line, sizeof(line), f) != NULL; n++) {
        if (n >= LINES_MAX || parse_line(line, &digit) < 0) {
            fprintf(stderr, "%s:%u: not a digit of 64 pixels (0..16) and a label (0..9)\n", path,
                    n + 1);
            return -1;
        }
        if (n % 5 == 4)
            d->test[d->n_test++] = digit;
        else
            d->train[d->n_train++] = digit;
    }
    if (ferror(f) || d->n_train == 0 || d->n_test == 0) {
        fprintf(stderr, "%s: %s\n", path, ferror(f) ? strerror(errno) : "no digits in it");
        return -1;
    }
    return 0;
}

int digits_load(const char *path, struct digits *ret) {
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        fprintf(stderr, "cannot read the data %s: %s (see --data)\n", path, strerror(errno));
        return -1;
    }
    *ret = (struct digits){.train = calloc(LINES_MAX, sizeof(struct digit)),
                           .test = calloc(LINES_MAX / 5, sizeof(struct digit))};
    int r = -1;
    if (ret->train == NULL || ret->test == NULL)
        fprintf(stderr, "no memory for the data\n");
    else
        r = read_lines(f, path, ret);
    fclose(f);
    if (r < 0)
        digits_free(ret);
    return r;
}

void digits_free(struct digits *d) {
    free(d->train);
    free(d->test);
    *d = (struct digits){0};
}

void digits_shuffle(unsigned *order, unsigned n, uint64_t seed, unsigned epoch) {
    struct random r = {seed * UINT64_C(1000003) + epoch};
    for (unsigned i = 0; i < n; i++) {
        unsigned j = random_below(&r, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
}
