#include "data/loader/order_pytorch.h"

/* MT19937 (Matsumoto and Nishimura, 1998), seeded with 32 bits as PyTorch's generator for the CPU is. */
enum { WORDS = 624, SHIFT = 397 };

struct twister {
    uint32_t words[WORDS];
    int next;
};

static void seed_twister(struct twister *twister, uint32_t seed)
{
    twister->words[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        const uint32_t before = twister->words[i - 1];
        twister->words[i] = 1812433253 * (before ^ before >> 30) + i;
    }
    twister->next = WORDS;
}

static void twist(struct twister *twister)
{
    uint32_t *words = twister->words;

    for (int i = 0; i < WORDS; i++) {
        const uint32_t joined = (words[i] & 0x80000000) | (words[(i + 1) % WORDS] & 0x7FFFFFFF);
        words[i] = words[(i + SHIFT) % WORDS] ^ joined >> 1 ^ (joined & 1 ? 0x9908B0DF : 0);
    }
    twister->next = 0;
}

static uint32_t draw(struct twister *twister)
{
    if (twister->next == WORDS)
        twist(twister);
    uint32_t y = twister->words[twister->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680;
    y ^= y << 15 & 0xEFC60000;
    return y ^ y >> 18;
}

/* From the front: place i is exchanged with one from i on. */
void cvy_pytorch_permutation(uint64_t seed, uint32_t *permutation, uint32_t count)
{
    struct twister twister;

    seed_twister(&twister, (uint32_t)seed);
    for (uint32_t i = 0; i < count; i++)
        permutation[i] = i;
    for (uint32_t i = 0; i + 1 < count; i++) {
        const uint32_t other = i + draw(&twister) % (count - i), value = permutation[i];
        permutation[i] = permutation[other];
        permutation[other] = value;
    }
}
