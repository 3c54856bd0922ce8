/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
 * key = seed, counter = (draw, purpose, index, epoch): every number is a pure function of what it is for, so the
 * number of threads, ranks or restarts never changes it. */
#ifndef CVY_BASE_RNG_H
#define CVY_BASE_RNG_H

#include <stdint.h>

/* Purposes separate the streams; the numbers are part of the reproducibility contract: append only. */
enum cvy_rng_purpose {
    CVY_RNG_INIT = 1,          /* index = parameter */
    CVY_RNG_SHUFFLE = 2,       /* epoch */
    CVY_RNG_AUGMENT = 3,       /* epoch, index = sample */
    CVY_RNG_SPLIT = 4,         /* train/validation split */
    CVY_RNG_DRAWN_OBJECTS = 5, /* index = image of the generated set */
    CVY_RNG_BENCH = 6,         /* benchmark inputs */
    CVY_RNG_TEST = 7,
    CVY_RNG_MIXUP = 8,
    CVY_RNG_BALANCE = 9,     /* epoch, index = class + 1; 0: over the classes */
    CVY_RNG_RECORDS = 10,    /* order of the images in TFRecords; index = part */
    CVY_RNG_CALIBRATION = 11 /* the images that ranges of quantizers are chosen from */
};

struct cvy_rng {
    uint32_t key[2], counter[4];
    uint32_t out[4];
    int used; /* numbers of `out` already consumed */
};

struct cvy_rng cvy_rng_new(uint64_t seed, enum cvy_rng_purpose purpose, uint32_t epoch, uint32_t index);
uint32_t cvy_rng_u32(struct cvy_rng *rng);
uint64_t cvy_rng_u64(struct cvy_rng *rng);
/* Uniform in [0, n), n >= 1, without bias (rejection). */
uint32_t cvy_rng_below(struct cvy_rng *rng, uint32_t n);
/* Uniform in [0, 1) with 53 bits. */
double cvy_rng_uniform(struct cvy_rng *rng);
/* Uniform in [low, high). */
double cvy_rng_range(struct cvy_rng *rng, double low, double high);
/* Standard normal (Box-Muller, one value of four 32-bit numbers): the same bits on every processor. */
double cvy_rng_normal(struct cvy_rng *rng);
/* What `count` calls of cvy_rng_normal would give, several times as fast; `plain` without vector instructions. */
void cvy_rng_normals(struct cvy_rng *rng, double *values, int64_t count);
void cvy_rng_normals_plain(struct cvy_rng *rng, double *values, int64_t count);
/* The raw function, for tests against the published vectors. */
void cvy_philox4x32_10(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
/* Fisher-Yates over `order` (n entries, filled with 0..n-1 by this call). */
void cvy_rng_permutation(struct cvy_rng *rng, uint32_t *order, uint32_t n);

#endif
