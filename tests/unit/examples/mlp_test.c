#include "mlp.h"

#include <math.h>

#include "random.h"
#include "rig/unit.h"

static struct mlp m;
static float grad[MLP_PARAMS], none[MLP_PARAMS];

static struct digit some_digit(unsigned label) {
    struct random r = {label + 100};
    struct digit d = {.label = label};
    for (unsigned i = 0; i < DIGIT_PIXELS; i++)
        d.pixels[i] = (float)random_below(&r, 17) / 16.0f;
    return d;
}

/* The difference quotient of the loss, in every 37th parameter. */
Test(mlp, gradient_is_the_slope_of_the_loss) {
    struct digit d = some_digit(3);
    mlp_init(&m, 1);
    float loss = mlp_gradient(&m, &d, grad);
    cr_assert(loss > 0 && isfinite(loss));
    unsigned compared = 0;
    for (unsigned i = 0; i < MLP_PARAMS; i += 37) {
        const float h = 1e-2f, kept = m.params[i];
        m.params[i] = kept + h;
        float above = mlp_gradient(&m, &d, none);
        m.params[i] = kept - h;
        float below = mlp_gradient(&m, &d, none);
        m.params[i] = kept;
        float slope = (above - below) / (2 * h);
        cr_assert_float_eq(grad[i], slope, 2e-3f + 0.02f * fabsf(slope), "parameter %u: %g, %g", i, (double)grad[i],
                           (double)slope);
        compared += fabsf(slope) > 1e-3f;
    }
    cr_assert_gt(compared, 20, "hardly a slope was there to compare");
}

Test(mlp, gradient_adds_up) {
    struct digit d = some_digit(5);
    mlp_init(&m, 2);
    mlp_gradient(&m, &d, none);
    mlp_gradient(&m, &d, grad);
    mlp_gradient(&m, &d, grad);
    for (unsigned i = 0; i < MLP_PARAMS; i++)
        cr_assert_float_eq(grad[i], 2 * none[i], 1e-6f + 1e-5f * fabsf(grad[i]));
}

Test(mlp, step_goes_down_with_momentum) {
    memset(&m, 0, sizeof(m));
    grad[7] = 8;
    mlp_step(&m, grad, 4, 0.5f, 0.5f); /* velocity 2 */
    cr_assert_eq(m.params[7], -1.0f);
    mlp_step(&m, grad, 4, 0.5f, 0.5f); /* velocity 3 */
    cr_assert_eq(m.params[7], -2.5f);
    cr_assert_eq(m.params[8], 0);
}

Test(mlp, the_same_seed_gives_the_same_network) {
    static struct mlp other;
    mlp_init(&m, 5);
    mlp_init(&other, 5);
    cr_assert_eq(memcmp(&m, &other, sizeof(m)), 0);
    mlp_init(&other, 6);
    cr_assert_neq(memcmp(&m, &other, sizeof(m)), 0);
}

Test(mlp, an_order_has_every_digit_once_and_depends_on_seed_and_epoch) {
    unsigned a[1438], b[1438], seen[1438] = {0};
    digits_shuffle(a, 1438, 1, 1);
    for (unsigned i = 0; i < 1438; i++)
        seen[a[i]]++;
    for (unsigned i = 0; i < 1438; i++)
        cr_assert_eq(seen[i], 1);
    digits_shuffle(b, 1438, 1, 1);
    cr_assert_eq(memcmp(a, b, sizeof(a)), 0);
    digits_shuffle(b, 1438, 1, 2);
    cr_assert_neq(memcmp(a, b, sizeof(a)), 0);
    digits_shuffle(b, 1438, 2, 1);
    cr_assert_neq(memcmp(a, b, sizeof(a)), 0);
}
