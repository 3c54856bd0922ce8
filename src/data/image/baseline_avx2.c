/* Formulas: the inverse transform after Loeffler, Ligtenberg and Moschytz with 13-bit constants and 2 spare bits
 * between the passes, as libjpeg's "islow" has it; sums of two products in 16 bits each (pmaddwd), as its vector code
 * has them, so that even what overflows is the same. */
#include "data/image/baseline_kernels.h"

#ifdef __AVX2__
#include <immintrin.h>
#include <string.h>

enum { CONST_BITS = 13, PASS1_BITS = 2 };
/* 2^13 times the constants of the transform. */
enum {
    F_0_298 = 2446,
    F_0_390 = 3196,
    F_0_541 = 4433,
    F_0_765 = 6270,
    F_0_899 = 7373,
    F_1_175 = 9633,
    F_1_501 = 12299,
    F_1_847 = 15137,
    F_1_961 = 16069,
    F_2_053 = 16819,
    F_2_562 = 20995,
    F_3_072 = 25172,
    /* of the transforms to fewer samples */
    F_0_211 = 1730,
    F_0_509 = 4176,
    F_0_601 = 4926,
    F_0_720 = 5906,
    F_0_850 = 6967,
    F_1_061 = 8697,
    F_1_272 = 10426,
    F_1_451 = 11893,
    F_2_172 = 17799,
    F_3_624 = 29692
};

struct pair { /* 16 sums of 32 bits: of the low and the high half of each lane */
    __m256i low, high;
};

static inline __m256i factors(int a, int b)
{
    return _mm256_set1_epi32((int)((unsigned)a & 0xFFFF) | (int)((unsigned)b << 16));
}

/* x * a + y * b */
static inline struct pair product(__m256i x, __m256i y, int a, int b)
{
    const __m256i f = factors(a, b);
    return (struct pair){_mm256_madd_epi16(_mm256_unpacklo_epi16(x, y), f),
                         _mm256_madd_epi16(_mm256_unpackhi_epi16(x, y), f)};
}

static inline struct pair widened(__m256i x) /* x << CONST_BITS */
{
    const __m256i zero = _mm256_setzero_si256();
    return (struct pair){_mm256_srai_epi32(_mm256_unpacklo_epi16(zero, x), 16 - CONST_BITS),
                         _mm256_srai_epi32(_mm256_unpackhi_epi16(zero, x), 16 - CONST_BITS)};
}

static inline struct pair plus(struct pair a, struct pair b)
{
    return (struct pair){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

static inline struct pair minus(struct pair a, struct pair b)
{
    return (struct pair){_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}

static inline __m256i narrowed(struct pair a, int shift)
{
    const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
    return _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(a.low, half), shift),
                              _mm256_srai_epi32(_mm256_add_epi32(a.high, half), shift));
}

/* One pass over columns: r[i] holds row i of both blocks. */
static inline void pass(__m256i r[8], int shift)
{
    const struct pair t2 = product(r[2], r[6], F_0_541, F_0_541 - F_1_847);
    const struct pair t3 = product(r[2], r[6], F_0_541 + F_0_765, F_0_541);
    const struct pair t0 = widened(_mm256_add_epi16(r[0], r[4])), t1 = widened(_mm256_sub_epi16(r[0], r[4]));
    const struct pair t10 = plus(t0, t3), t13 = minus(t0, t3), t11 = plus(t1, t2), t12 = minus(t1, t2);
    const __m256i z3 = _mm256_add_epi16(r[7], r[3]), z4 = _mm256_add_epi16(r[5], r[1]);
    const struct pair u3 = product(z3, z4, F_1_175 - F_1_961, F_1_175);
    const struct pair u4 = product(z3, z4, F_1_175, F_1_175 - F_0_390);
    const struct pair o0 = plus(product(r[7], r[1], F_0_298 - F_0_899, -F_0_899), u3);
    const struct pair o3 = plus(product(r[7], r[1], -F_0_899, F_1_501 - F_0_899), u4);
    const struct pair o1 = plus(product(r[5], r[3], F_2_053 - F_2_562, -F_2_562), u4);
    const struct pair o2 = plus(product(r[5], r[3], -F_2_562, F_3_072 - F_2_562), u3);

    r[0] = narrowed(plus(t10, o3), shift);
    r[7] = narrowed(minus(t10, o3), shift);
    r[1] = narrowed(plus(t11, o2), shift);
    r[6] = narrowed(minus(t11, o2), shift);
    r[2] = narrowed(plus(t12, o1), shift);
    r[5] = narrowed(minus(t12, o1), shift);
    r[3] = narrowed(plus(t13, o0), shift);
    r[4] = narrowed(minus(t13, o0), shift);
}

/* Each block by itself. */
static inline void transpose(__m256i r[8])
{
    __m256i a[8], b[8];

    for (int i = 0; i < 4; i++) {
        a[i] = _mm256_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
        a[i + 4] = _mm256_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int k = 0; k < 2; k++) {
            b[i + 2 * k] = _mm256_unpacklo_epi32(a[i + 2 * k], a[i + 2 * k + 1]);
            b[i + 2 * k + 1] = _mm256_unpackhi_epi32(a[i + 2 * k], a[i + 2 * k + 1]);
        }
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            r[4 * i + 2 * k] = _mm256_unpacklo_epi64(b[4 * i + k], b[4 * i + 2 + k]);
            r[4 * i + 2 * k + 1] = _mm256_unpackhi_epi64(b[4 * i + k], b[4 * i + 2 + k]);
        }
}

/* A block without anything below its first row is that row, shifted: libjpeg's vector code does not saturate it. */
static inline void first_pass(__m256i r[8])
{
    const __m256i below = _mm256_or_si256(_mm256_or_si256(_mm256_or_si256(r[1], r[2]), _mm256_or_si256(r[3], r[4])),
                                          _mm256_or_si256(_mm256_or_si256(r[5], r[6]), r[7]));
    const __m256i shifted = _mm256_slli_epi16(r[0], PASS1_BITS);
    const int flat = _mm_testz_si128(_mm256_castsi256_si128(below), _mm256_castsi256_si128(below)) |
                     _mm_testz_si128(_mm256_extracti128_si256(below, 1), _mm256_extracti128_si256(below, 1)) << 1;

    if (flat < 3)
        pass(r, CONST_BITS - PASS1_BITS);
    for (int i = 0; flat > 0 && i < 8; i++)
        r[i] = flat == 3   ? shifted
               : flat == 2 ? _mm256_blend_epi32(r[i], shifted, 0xF0)
                           : _mm256_blend_epi32(r[i], shifted, 0x0F);
}

static inline struct pair twice(struct pair a)
{
    return plus(a, a);
}

/* Four results of each column: what "jidctred" makes of seven coefficients. */
static inline void pass_to_4(__m256i r[8], int shift)
{
    const struct pair t0 = twice(widened(r[0])), t2 = product(r[2], r[6], F_1_847, -F_0_765);
    const struct pair t10 = plus(t0, t2), t12 = minus(t0, t2);
    const struct pair o0 = plus(product(r[7], r[5], -F_0_211, F_1_451), product(r[3], r[1], -F_2_172, F_1_061));
    const struct pair o2 = plus(product(r[7], r[5], -F_0_509, -F_0_601), product(r[3], r[1], F_0_899, F_2_562));

    r[0] = narrowed(plus(t10, o2), shift + 1);
    r[3] = narrowed(minus(t10, o2), shift + 1);
    r[1] = narrowed(plus(t12, o0), shift + 1);
    r[2] = narrowed(minus(t12, o0), shift + 1);
}

/* Two results of five coefficients. */
static inline void pass_to_2(__m256i r[8], int shift)
{
    const struct pair t0 = twice(twice(widened(r[0])));
    const struct pair odd = plus(product(r[7], r[5], -F_0_720, F_0_850), product(r[3], r[1], -F_1_272, F_3_624));

    r[0] = narrowed(plus(t0, odd), shift + 2);
    r[1] = narrowed(minus(t0, odd), shift + 2);
}

static inline void load(const int16_t *blocks, __m256i r[8])
{
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(blocks + 8 * i))),
            _mm_loadu_si128((const __m128i *)(const void *)(blocks + 64 + 8 * i)), 1);
}

/* (coefficient + 4) / 8 + 128, as libjpeg's table of limits has it far outside of 0 to 255 too. */
static uint8_t mean_sample(int16_t coefficient)
{
    const int value = (coefficient + 4) >> 3 & 1023;

    return (uint8_t)(value < 128 ? value + 128 : value < 512 ? 255 : value < 896 ? 0 : value - 896);
}

/* Between the passes there are at most 1.39 * 2^PASS1_BITS times the absolute values of a block's coefficients, in 16
 * bits; all sums of them that the second pass makes before it multiplies are no larger. */
bool cvy_baseline_fits_avx2(const int16_t *blocks, int32_t count)
{
    enum { MOST = 5880 };
    __m128i largest = _mm_setzero_si128();

    for (int32_t b = 0; b < count; b++, blocks += 64) {
        __m128i sum = _mm_setzero_si128(); /* unsigned, and stuck at the largest value */
        for (int i = 0; i < 8; i++)
            sum = _mm_adds_epu16(sum, _mm_abs_epi16(_mm_loadu_si128((const __m128i *)(const void *)(blocks + 8 * i))));
        sum = _mm_adds_epu16(sum, _mm_srli_si128(sum, 8));
        sum = _mm_adds_epu16(sum, _mm_srli_si128(sum, 4));
        sum = _mm_adds_epu16(sum, _mm_srli_si128(sum, 2));
        largest = _mm_max_epu16(largest, sum);
    }
    return _mm_extract_epi16(largest, 0) <= MOST;
}

void cvy_baseline_reduced_idct_avx2(const int16_t *blocks, int32_t size, uint8_t *out, size_t stride)
{
    const __m256i centre = _mm256_set1_epi8((char)128);
    __m256i r[8];

    if (size == 1) {
        out[0] = mean_sample(blocks[0]);
        out[1] = mean_sample(blocks[64]);
        return;
    }
    load(blocks, r);
    if (size == 4)
        pass_to_4(r, CONST_BITS - PASS1_BITS);
    else
        pass_to_2(r, CONST_BITS - PASS1_BITS);
    transpose(r);
    if (size == 4)
        pass_to_4(r, CONST_BITS + PASS1_BITS + 3);
    else
        pass_to_2(r, CONST_BITS + PASS1_BITS + 3);
    transpose(r);
    for (int i = 0; i < size; i++) { /* the first samples of each lane are those of a block */
        const __m256i row = _mm256_add_epi8(_mm256_packs_epi16(r[i], r[i]), centre);
        const __m128i first = _mm256_castsi256_si128(row), second = _mm256_extracti128_si256(row, 1);
        memcpy(out + (size_t)i * stride, &first, (size_t)size);
        memcpy(out + (size_t)i * stride + size, &second, (size_t)size);
    }
}

void cvy_baseline_idct_avx2(const int16_t *blocks, uint8_t *out, size_t stride)
{
    const __m256i centre = _mm256_set1_epi8((char)128);
    __m256i r[8];

    load(blocks, r);
    first_pass(r);
    transpose(r);
    pass(r, CONST_BITS + PASS1_BITS + 3);
    transpose(r);
    for (int i = 0; i < 8; i += 2) {
        /* Row i of the first block, row i + 1 of it; then the same of the second. */
        const __m256i rows = _mm256_add_epi8(_mm256_packs_epi16(r[i], r[i + 1]), centre);
        const __m256i sorted = _mm256_permute4x64_epi64(rows, 0xD8);
        _mm_storeu_si128((__m128i *)(void *)(out + (size_t)i * stride), _mm256_castsi256_si128(sorted));
        _mm_storeu_si128((__m128i *)(void *)(out + (size_t)(i + 1) * stride), _mm256_extracti128_si256(sorted, 1));
    }
}

void cvy_baseline_widen_avx2(const uint8_t *in, size_t count, uint8_t *out)
{
    for (size_t i = 0; i < count; i++) {
        const int before = in[(ptrdiff_t)i - 1], here = 3 * in[i], after = in[i + 1];
        out[2 * i] = (uint8_t)((here + before + 1) >> 2);
        out[2 * i + 1] = (uint8_t)((here + after + 2) >> 2);
    }
}

void cvy_baseline_grow_avx2(const uint8_t *in, const uint8_t *near, size_t count, uint8_t *out)
{
    for (size_t i = 0; i < count; i++) {
        const ptrdiff_t p = (ptrdiff_t)i - 1;
        const int before = 3 * in[p] + near[p], here = 3 * (3 * in[i] + near[i]), after = 3 * in[i + 1] + near[i + 1];
        out[2 * i] = (uint8_t)((here + before + 8) >> 4);
        out[2 * i + 1] = (uint8_t)((here + after + 7) >> 4);
    }
}

/* Three times 16 bytes, R, G and B, to 48 bytes of pixels. */
static inline void interleave(__m128i r, __m128i g, __m128i b, uint8_t *out)
{
    const __m128i r0 = _mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5);
    const __m128i g0 = _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1);
    const __m128i b0 = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
    const __m128i r1 = _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1);
    const __m128i g1 = _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10);
    const __m128i b1 = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1);
    const __m128i r2 = _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1);
    const __m128i g2 = _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
    const __m128i b2 = _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);

    _mm_storeu_si128(
        (__m128i *)(void *)out,
        _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(r, r0), _mm_shuffle_epi8(g, g0)), _mm_shuffle_epi8(b, b0)));
    _mm_storeu_si128(
        (__m128i *)(void *)(out + 16),
        _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(r, r1), _mm_shuffle_epi8(g, g1)), _mm_shuffle_epi8(b, b1)));
    _mm_storeu_si128(
        (__m128i *)(void *)(out + 32),
        _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(r, r2), _mm_shuffle_epi8(g, g2)), _mm_shuffle_epi8(b, b2)));
}

static inline __m128i to_bytes(__m256i words)
{
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

/* (x * f + 2^15) >> 16, f in 16 bits: half of a doubled product. */
static inline __m256i scaled(__m256i doubled, int f)
{
    const __m256i high = _mm256_mulhi_epi16(doubled, _mm256_set1_epi16((short)f));
    return _mm256_srai_epi16(_mm256_add_epi16(high, _mm256_set1_epi16(1)), 1);
}

/* R = Y + 1.402 Cr, G = Y - 0.34414 Cb - 0.71414 Cr, B = Y + 1.772 Cb, with 16-bit constants; whole parts are added
 * apart, so that what is left of each constant fits 16 bits with its sign. */
void cvy_baseline_rgb_avx2(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, size_t count, uint8_t *out)
{
    const __m256i middle = _mm256_set1_epi16(128), half = _mm256_set1_epi32(1 << 15);
    const __m256i green = factors(-22554, 65536 - 46802); /* of Cb and Cr; the latter with one Cr too much */

    for (size_t i = 0; i < count; i += 16, out += 48) {
        const __m256i luma = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(y + i)));
        const __m256i b =
            _mm256_sub_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(cb + i))), middle);
        const __m256i r =
            _mm256_sub_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(cr + i))), middle);
        const __m256i b2 = _mm256_add_epi16(b, b), r2 = _mm256_add_epi16(r, r);
        const __m256i red = _mm256_add_epi16(_mm256_add_epi16(luma, r), scaled(r2, 91881 - 65536));
        const __m256i blue = _mm256_add_epi16(_mm256_add_epi16(luma, b2), scaled(b2, 116130 - 2 * 65536));
        const __m256i low = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi16(b, r), green), half);
        const __m256i high = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpackhi_epi16(b, r), green), half);
        const __m256i mixed = _mm256_packs_epi32(_mm256_srai_epi32(low, 16), _mm256_srai_epi32(high, 16));
        interleave(to_bytes(red), to_bytes(_mm256_sub_epi16(_mm256_add_epi16(luma, mixed), r)), to_bytes(blue), out);
    }
}

void cvy_baseline_grey_avx2(const uint8_t *y, size_t count, uint8_t *out)
{
    for (size_t i = 0; i < count; i += 16, out += 48) {
        const __m128i luma = _mm_loadu_si128((const __m128i *)(const void *)(y + i));
        interleave(luma, luma, luma, out);
    }
}
#endif
