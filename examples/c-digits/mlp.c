#include "mlp.h"

#include <math.h>
#include <string.h>

#include "random.h"

#define W1 0
#define B1 (W1 + MLP_HIDDEN * DIGIT_PIXELS)
#define W2 (B1 + MLP_HIDDEN)
#define B2 (W2 + DIGIT_CLASSES * MLP_HIDDEN)

void mlp_init(struct mlp *m, uint64_t seed) {
    struct random r = {seed};
    memset(m, 0, sizeof(*m));
    for (unsigned i = W1; i < B1; i++)
        m->params[i] = random_signed(&r) * sqrtf(6.0f / DIGIT_PIXELS);
    for (unsigned i = W2; i < B2; i++)
        m->params[i] = random_signed(&r) * sqrtf(6.0f / (MLP_HIDDEN + DIGIT_CLASSES));
}

static void forward(const struct mlp *m, const struct digit *d, float *hidden, float *out) {
    for (unsigned h = 0; h < MLP_HIDDEN; h++) {
        float sum = m->params[B1 + h];
        for (unsigned p = 0; p < DIGIT_PIXELS; p++)
            sum += m->params[W1 + h * DIGIT_PIXELS + p] * d->pixels[p];
        hidden[h] = sum > 0 ? sum : 0;
    }
    for (unsigned c = 0; c < DIGIT_CLASSES; c++) {
        float sum = m->params[B2 + c];
        for (unsigned h = 0; h < MLP_HIDDEN; h++)
            sum += m->params[W2 + c * MLP_HIDDEN + h] * hidden[h];
        out[c] = sum;
    }
}

static unsigned largest(const float *out) {
    unsigned best = 0;
    for (unsigned c = 1; c < DIGIT_CLASSES; c++)
        if (out[c] > out[best])
            best = c;
    return best;
}

unsigned mlp_predict(const struct mlp *m, const struct digit *d) {
    float hidden[MLP_HIDDEN], out[DIGIT_CLASSES];
    forward(m, d, hidden, out);
    return largest(out);
}

/* Turns scores into probabilities in place; returns the loss. */
static float softmax(float *out, unsigned label) {
    float top = out[largest(out)], sum = 0;
    for (unsigned c = 0; c < DIGIT_CLASSES; c++)
        sum += expf(out[c] - top);
    float loss = logf(sum) - (out[label] - top);
    for (unsigned c = 0; c < DIGIT_CLASSES; c++)
        out[c] = expf(out[c] - top) / sum;
    return loss;
}

float mlp_gradient(const struct mlp *m, const struct digit *d, float *grad) {
    float hidden[MLP_HIDDEN], out[DIGIT_CLASSES], back[MLP_HIDDEN] = {0};
    forward(m, d, hidden, out);
    float loss = softmax(out, d->label);
    out[d->label] -= 1;
    for (unsigned c = 0; c < DIGIT_CLASSES; c++) {
        grad[B2 + c] += out[c];
        for (unsigned h = 0; h < MLP_HIDDEN; h++) {
            grad[W2 + c * MLP_HIDDEN + h] += out[c] * hidden[h];
            back[h] += out[c] * m->params[W2 + c * MLP_HIDDEN + h];
        }
    }
    for (unsigned h = 0; h < MLP_HIDDEN; h++) {
        if (hidden[h] <= 0)
            continue;
        grad[B1 + h] += back[h];
        for (unsigned p = 0; p < DIGIT_PIXELS; p++)
            grad[W1 + h * DIGIT_PIXELS + p] += back[h] * d->pixels[p];
    }
    return loss;
}

void mlp_step(struct mlp *m, const float *grad_sum, unsigned n, float rate, float momentum) {
    for (unsigned i = 0; i < MLP_PARAMS; i++) {
        m->velocity[i] = momentum * m->velocity[i] + grad_sum[i] / (float)n;
        m->params[i] -= rate * m->velocity[i];
    }
}
