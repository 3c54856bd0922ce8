/* The rounds of Philox4x32-10, where loops over counters become vectors. */
#ifndef CVY_BASE_PHILOX_H
#define CVY_BASE_PHILOX_H

#include <stdint.h>

/* Multipliers and key steps are those of Salmon et al. 2011, table 2: the steps are the golden ratio and sqrt(3) - 1,
 * as 32-bit fractions. */
static inline void cvy_philox_rounds(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
    uint32_t key_0 = key[0], key_1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t product_0 = (uint64_t)0xD2511F53u * a, product_1 = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(product_1 >> 32) ^ b ^ key_0;
        b = (uint32_t)product_1;
        c = (uint32_t)(product_0 >> 32) ^ d ^ key_1;
        d = (uint32_t)product_0;
        key_0 += 0x9E3779B9u;
        key_1 += 0xBB67AE85u;
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

#endif
