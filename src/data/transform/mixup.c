/* Mixup: partners and coefficients of a batch. */
#include "data/transform/mixup.h"

#include <math.h>
#include <string.h>

bool cvy_mixup_rule_parse(const char *text, enum cvy_mixup_rule *rule)
{
    *rule = strcmp(text, "tensorflow") == 0 ? CVY_MIXUP_TENSORFLOW : CVY_MIXUP_TORCH;
    return *rule == CVY_MIXUP_TENSORFLOW || strcmp(text, "torch") == 0;
}

/* Marsaglia and Tsang, "A simple method for generating gamma variables", 2000, for a shape of 1 or more: a cubed normal
 * number, rejected now and then (less than 1 in 20). */
static double log_gamma_from_one(struct cvy_rng *rng, double shape)
{
    const double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);

    for (;;) {
        const double x = cvy_rng_normal(rng), cube = 1 + c * x, v = cube * cube * cube;
        const double u = 1 - cvy_rng_uniform(rng); /* in (0, 1] */

        if (cube > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return log(d) + log(v);
    }
}

/* Below 1: gamma(a) = gamma(a + 1) * u^(1/a), as the same authors say. */
double cvy_rng_log_gamma(struct cvy_rng *rng, double shape)
{
    double boost;

    if (shape >= 1)
        return log_gamma_from_one(rng, shape);
    boost = log(1 - cvy_rng_uniform(rng)) / shape;
    return log_gamma_from_one(rng, shape + 1) + boost;
}

/* x / (x + y) of two gamma numbers. */
double cvy_rng_beta(struct cvy_rng *rng, double a, double b)
{
    const double x = cvy_rng_log_gamma(rng, a), y = cvy_rng_log_gamma(rng, b);

    return 1 / (1 + exp(y - x));
}

static float draw_coefficient(struct cvy_rng *rng, const struct cvy_mixup *mixup)
{
    return (float)cvy_rng_beta(rng, mixup->alpha, mixup->alpha);
}

void cvy_mixup_draw(const struct cvy_mixup *mixup, int64_t epoch, int64_t batch, int32_t count, int32_t *partner,
                    float *coefficient)
{
    const int64_t index = batch * mixup->world + mixup->rank; /* of all batches of the epoch */
    struct cvy_rng rng = cvy_rng_new(mixup->seed, CVY_RNG_MIXUP, (uint32_t)epoch, (uint32_t)index);
    const bool drawn = mixup->alpha > 0, shared = mixup->rule == CVY_MIXUP_TORCH;
    const float one = drawn && shared ? draw_coefficient(&rng, mixup) : 1;

    for (int32_t n = 0; n < count; n++) {
        partner[n] = count - 1 - n;
        coefficient[n] = drawn && !shared ? draw_coefficient(&rng, mixup) : one;
    }
    if (drawn && shared)
        cvy_rng_permutation(&rng, (uint32_t *)partner, (uint32_t)count);
}
