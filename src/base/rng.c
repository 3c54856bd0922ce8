#include "base/rng.h"

#include <math.h>

#include "base/philox.h"

void cvy_philox4x32_10(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    cvy_philox_rounds(key, counter, out);
}

struct cvy_rng cvy_rng_new(uint64_t seed, enum cvy_rng_purpose purpose, uint32_t epoch, uint32_t index)
{
    return (struct cvy_rng){
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)}, .counter = {0, (uint32_t)purpose, index, epoch}, .used = 4};
}

uint32_t cvy_rng_u32(struct cvy_rng *rng)
{
    if (rng->used == 4) {
        cvy_philox4x32_10(rng->key, rng->counter, rng->out);
        rng->counter[0]++;
        rng->used = 0;
    }
    return rng->out[rng->used++];
}

uint64_t cvy_rng_u64(struct cvy_rng *rng)
{
    uint64_t low = cvy_rng_u32(rng);
    return low | (uint64_t)cvy_rng_u32(rng) << 32;
}

/* Lemire, "Fast random integer generation in an interval", 2019: the high half of a product, with the few products
 * that would favour some results drawn again. */
uint32_t cvy_rng_below(struct cvy_rng *rng, uint32_t n)
{
    uint64_t product = (uint64_t)cvy_rng_u32(rng) * n;
    if ((uint32_t)product < n) {
        uint32_t surplus = -n % n; /* 2^32 mod n */
        while ((uint32_t)product < surplus)
            product = (uint64_t)cvy_rng_u32(rng) * n;
    }
    return (uint32_t)(product >> 32);
}

double cvy_rng_uniform(struct cvy_rng *rng)
{
    return (double)(cvy_rng_u64(rng) >> 11) * 0x1p-53;
}

double cvy_rng_range(struct cvy_rng *rng, double low, double high)
{
    double value = low + (high - low) * cvy_rng_uniform(rng);
    /* The sum may round up to the end that does not belong to the interval. */
    return value < high || low >= high ? value : nextafter(high, low);
}

void cvy_rng_permutation(struct cvy_rng *rng, uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = cvy_rng_below(rng, i), swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
    }
}
