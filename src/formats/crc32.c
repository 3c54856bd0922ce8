/* Two implementations: eight bytes at a time from tables, and 64 bytes at a time with the carry-less multiplication of
 * x86. A file of weights is summed whole before it is used, so the sum must keep up with reading memory. */
#include "formats/crc32.h"

#include <pthread.h>

#include "formats/crc_tables.h"

static const uint32_t POLYNOMIAL = 0xEDB88320; /* reflected */

static struct cvy_crc_tables tables;
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    cvy_crc_tables_make(&tables, POLYNOMIAL);
}

/* On the inverted sum. */
static uint32_t add_bytes(uint32_t crc, const unsigned char *bytes, size_t size)
{
    pthread_once(&tables_once, make_tables);
    return cvy_crc_tables_add(&tables, crc, bytes, size);
}

uint32_t cvy_crc32_plain(uint32_t crc, const void *data, size_t size)
{
    return ~add_bytes(~crc, data, size);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define WITH_PCLMUL __attribute__((target("pclmul,sse4.1")))

/* Multiplies both halves of `sum` by powers of x (modulo the polynomial) that move them past the bytes between `sum`
 * and `next`, and adds `next`. */
WITH_PCLMUL static __m128i fold(__m128i sum, __m128i next, __m128i powers)
{
    const __m128i low = _mm_clmulepi64_si128(sum, powers, 0x00), high = _mm_clmulepi64_si128(sum, powers, 0x11);

    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

WITH_PCLMUL static __m128i load(const unsigned char *bytes)
{
    return _mm_loadu_si128((const __m128i *)bytes);
}

/* 128 bits to the 32 of the sum: fold to 64 bits, then Barrett's reduction. */
WITH_PCLMUL static uint32_t reduce(__m128i sum, __m128i by_16)
{
    const __m128i word = _mm_set_epi32(0, -1, 0, -1);                 /* the lower 32 bits of each half */
    const __m128i x64 = _mm_set_epi64x(0, 0x163cd6124);               /* x^64 */
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641); /* floor(x^64 / P), P */
    __m128i t;

    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_16, 0x10));
    t = _mm_clmulepi64_si128(_mm_and_si128(sum, word), x64, 0x00);
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4), t);
    t = _mm_clmulepi64_si128(_mm_and_si128(sum, word), barrett, 0x10);
    t = _mm_clmulepi64_si128(_mm_and_si128(t, word), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, t), 1);
}

/* On the inverted sum; size is 64 or more and a multiple of 16. After Gopal et al., "Fast CRC computation using the
 * PCLMULQDQ instruction" (2009): the message is folded onto itself. The powers are x^(n+32) and x^(n-32) modulo P for a
 * distance of n bits, reflected and shifted by one. */
WITH_PCLMUL static uint32_t add_blocks(uint32_t crc, const unsigned char *bytes, size_t size)
{
    const __m128i by_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i sum[4];

    for (int i = 0; i < 4; i++)
        sum[i] = load(bytes + 16 * i);
    sum[0] = _mm_xor_si128(sum[0], _mm_cvtsi32_si128((int)crc));
    for (bytes += 64, size -= 64; size >= 64; bytes += 64, size -= 64)
        for (int i = 0; i < 4; i++)
            sum[i] = fold(sum[i], load(bytes + 16 * i), by_64);
    for (int i = 1; i < 4; i++)
        sum[0] = fold(sum[0], sum[i], by_16);
    for (; size >= 16; bytes += 16, size -= 16)
        sum[0] = fold(sum[0], load(bytes), by_16);
    return reduce(sum[0], by_16);
}

uint32_t cvy_crc32(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    const size_t blocks = size / 16 * 16;

    crc = ~crc;
    if (size < 64 || !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1"))
        return ~add_bytes(crc, bytes, size);
    crc = add_blocks(crc, bytes, blocks);
    return ~add_bytes(crc, bytes + blocks, size - blocks);
}
#else
uint32_t cvy_crc32(uint32_t crc, const void *data, size_t size)
{
    return cvy_crc32_plain(crc, data, size);
}
#endif
