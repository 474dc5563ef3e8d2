/* A perceptron with one hidden layer (64 - 64 - 10, ReLU, softmax), trained by stochastic gradient
 * descent with momentum. */
#pragma once

#include <stdint.h>

#include "digits.h"

#define MLP_HIDDEN 64
#define MLP_PARAMS \
    (MLP_HIDDEN * DIGIT_PIXELS + MLP_HIDDEN + DIGIT_CLASSES * MLP_HIDDEN + DIGIT_CLASSES)

struct mlp {
    /* hidden weights [hidden][pixel], hidden biases, output weights [class][hidden], its biases */
    float params[MLP_PARAMS];
    float velocity[MLP_PARAMS];
};

void mlp_init(struct mlp *m, uint64_t seed);
/* Adds the gradient of this digit's loss to grad[MLP_PARAMS]; returns the loss. */
float mlp_gradient(const struct mlp *m, const struct digit *d, float *grad);
unsigned mlp_predict(const struct mlp *m, const struct digit *d);
/* Does one step of gradient descent. The gradient is a sum over n digits. */
void mlp_step(struct mlp *m, const float *grad_sum, unsigned n, float rate, float momentum);
