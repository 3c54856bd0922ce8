/* Mixup (Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018): every sample of a training batch becomes a
 * mixture of itself and a partner, c * x + (1 - c) * x[partner], targets alike, c ~ Beta(alpha, alpha). This file only
 * draws the partners and coefficients: a function of seed, rank, epoch and batch; the arithmetic is in the network's
 * graph. */
#ifndef CVY_DATA_TRANSFORM_MIXUP_H
#define CVY_DATA_TRANSFORM_MIXUP_H

#include <stdbool.h>

#include "base/rng.h"

enum cvy_mixup_rule {
    CVY_MIXUP_TORCH,     /* one c for the batch; partners by a random permutation */
    CVY_MIXUP_TENSORFLOW /* a c for each sample; the partners are the batch in reverse */
};
/* "torch", "tensorflow"; false when it is neither. */
bool cvy_mixup_rule_parse(const char *text, enum cvy_mixup_rule *rule);

struct cvy_mixup {
    double alpha; /* 0: every sample stays as it is */
    enum cvy_mixup_rule rule;
    uint64_t seed;
    int32_t rank, world;
};
/* partner (count), each in 0..count - 1; coefficient (count) of the sample itself, 0 to 1. `batch`: number within the
 * epoch, on this rank. */
void cvy_mixup_draw(const struct cvy_mixup *mixup, int64_t epoch, int64_t batch, int32_t count, int32_t *partner,
                    float *coefficient);

/* Gamma-distributed, scale 1, as its logarithm: the number itself is too small for a double where shape is. */
double cvy_rng_log_gamma(struct cvy_rng *rng, double shape);
/* Beta(a, b); a, b > 0. */
double cvy_rng_beta(struct cvy_rng *rng, double a, double b);

#endif
