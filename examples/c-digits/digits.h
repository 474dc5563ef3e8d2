/* The handwritten digits of examples/data/digits.csv, split for training and testing. */
#pragma once

#include <stdint.h>

#define DIGIT_PIXELS 64
#define DIGIT_CLASSES 10

struct digit {
    float pixels[DIGIT_PIXELS]; /* 0..1 */
    unsigned label;             /* 0..9 */
};

struct digits {
    struct digit *train, *test; /* owned */
    unsigned n_train, n_test;
};

/* Reads the file; every fifth line goes to test. 0, or -1 after a message on stderr. */
int digits_load(const char *path, struct digits *ret);
void digits_free(struct digits *d);

/* Writes the numbers 0..n-1 in an order that depends only on seed and epoch, so all ranks get the
 * same order. */
void digits_shuffle(unsigned *order, unsigned n, uint64_t seed, unsigned epoch);
