/* Integer inference with AVX-VNNI, for processors without AVX-512: a tile is six pixels by 16 output channels, 12
 * registers of sums. vpdpbusd adds the products of four unsigned and four signed bytes to 32 bits without saturation.
 */
#include <immintrin.h>
#include <string.h>

#include "backend/cpu/int8_ends.h"

enum { TILE = CPU_INT8_NARROW_TILE, HALF = LANES / 2 };

/* ---- ends ---- */

/* What the sums of one panel become: all in units of the first rounding's levels. */
struct finish {
    float factor[PANEL], shift[PANEL];
    int32_t start[PANEL]; /* of the sums: minus the zero point times the sum of the weights */
} __attribute__((aligned(32)));

/* `width` output channels from `first` on. */
static void prepare_panel(const struct cpu_int8_conv *s, const struct cpu_int8_work *work, int64_t first, int64_t width,
                          struct finish *finish)
{
    memset(finish, 0, sizeof(*finish));
    for (int64_t i = 0; i < width; i++) {
        const struct cvy_int8_finish one =
            cvy_int8_finish_of(&s->attr, work->multiplier[first + i], work->bias ? work->bias[first + i] : 0);
        finish->factor[i] = one.factor;
        finish->shift[i] = one.shift;
        finish->start[i] = (int32_t)(0U - (uint32_t)s->attr.x.zero * (uint32_t)work->sums[first + i]);
    }
}

/* Eight bytes less a zero point, as floats. */
INLINE __m256 widened(const uint8_t *from, int32_t zero)
{
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(bytes, _mm256_set1_epi32(zero)));
}

/* Eight sums in units of y's levels, rounded: cvy_int8_finished. What lies beyond 16 bits is cut off later. */
INLINE __m256i finish_sums(const int32_t *sums, const float *factor, const float *shift, const struct ending *end,
                           const uint8_t *other, const bool add)
{
    const __m256 sum = _mm256_cvtepi32_ps(_mm256_load_si256((const __m256i *)(const void *)sums));
    __m256 v = _mm256_fmadd_ps(sum, _mm256_load_ps(factor), _mm256_load_ps(shift)), added;
    if (!add) /* NaN stays one, and becomes the lowest integer */
        return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_set1_ps(end->high), v));
    v = _mm256_min_ps(_mm256_max_ps(v, _mm256_set1_ps(end->middle_low)), _mm256_set1_ps(end->middle_high));
    v = _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    added = _mm256_mul_ps(widened(other, end->other_zero), _mm256_set1_ps(end->other_scale));
    return _mm256_cvtps_epi32(_mm256_fmadd_ps(v, _mm256_set1_ps(end->middle_scale), added));
}

/* 16 channels of a pixel. */
INLINE void finish_vector(const int32_t *sums, const float *factor, const float *shift, const struct ending *end,
                          uint8_t *y, const uint8_t *other, const bool add)
{
    const __m256i low = finish_sums(sums, factor, shift, end, other, add);
    const __m256i high = finish_sums(sums + HALF, factor + HALF, shift + HALF, end, add ? other + HALF : NULL, add);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    const __m256i levels =
        _mm256_max_epi16(_mm256_adds_epi16(words, _mm256_set1_epi16(end->zero)), _mm256_set1_epi16(end->floor));
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(levels, levels), 0xd8);
    _mm_storeu_si128((__m128i *)(void *)y, _mm256_castsi256_si128(bytes));
}

/* One element, of whatever kind. */
static void finish_element(const struct cpu_int8_conv *s, const struct cpu_int8_work *work, const struct finish *finish,
                           int64_t channel, int32_t sum, int64_t at)
{
    const struct cvy_int8_finish one = {finish->factor[channel], finish->shift[channel]};
    const float v = cvy_int8_finished(&s->attr, one, sum, work->residual ? work->residual[at] : 0);
    if (s->floats)
        ((float *)work->y)[at] = v;
    else
        ((uint8_t *)work->y)[at] = cvy_int8_byte(v, (float)-s->attr.y.zero, s->attr.y.zero);
}

/* `count` pixels of `width` channels, the first of which is element `at` of y; sums (TILE, PANEL). */
static void finish_panel(const struct cpu_int8_conv *s, const struct cpu_int8_work *work, const struct ending *end,
                         const struct finish *finish, const int32_t *sums, int64_t at, int count, int64_t width)
{
    const bool add = s->attr.middle.scale > 0, bytes = !s->floats && s->attr.conv2d.activation != CVY_ACTIVATION_RELU6;
    const int64_t whole = bytes && end->bounded ? width / LANES * LANES : 0;
    for (int i = 0; i < count; i++, sums += PANEL, at += s->k) {
        for (int64_t j = 0; j < whole; j += LANES) {
            uint8_t *y = (uint8_t *)work->y + at + j;
            if (add)
                finish_vector(sums + j, finish->factor + j, finish->shift + j, end, y, work->residual + at + j, true);
            else
                finish_vector(sums + j, finish->factor + j, finish->shift + j, end, y, NULL, false);
        }
        for (int64_t j = whole; j < width; j++)
            finish_element(s, work, finish, j, sums[j], at + j);
    }
}

/* ---- sums ---- */

/* Written out, so that the sum stays in its register, and for assemblers' shorter form of the instruction. */
INLINE __m256i add_products(__m256i sum, __m256i x, __m256i w)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));
    return sum;
}

INLINE __m256i four_bytes(const uint8_t *from)
{
    int32_t bytes;
    memcpy(&bytes, from, sizeof(bytes));
    return _mm256_set1_epi32(bytes);
}

/* The bytes of eight lanes, which are one half of vector j of the panel. */
INLINE __m256i bytes_of_half(const uint8_t *from, int64_t quad, int j, const int half, const enum groups groups)
{
    const int first = LANES * j + HALF * half; /* lane of the panel, and channel of the pixel */
    if (groups == ONE_GROUP)
        return four_bytes(from + 4 * quad);
    if (groups == GROUPS_OF_4)
        return _mm256_permutevar8x32_epi32(
            _mm256_castsi128_si256(_mm_loadl_epi64((const __m128i *)(const void *)(from + first))),
            _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
    return four_bytes(from + first / (int)groups * (int)groups + 4 * quad);
}

/* Vector j of the panel, for all pixels; to (TILE, PANEL). */
INLINE void sum_vector(const struct tile *tile, int j, const enum groups groups, int32_t *to)
{
    const uint8_t *const *pixels = tile->pixels;
    const int8_t *w = tile->w + 4 * LANES * j;
    const int64_t step = (int64_t)4 * LANES * tile->vectors;
    const int64_t quads = groups == ONE_GROUP ? tile->quads : (int)groups / 4;
    int64_t skip = tile->skip;
    __m256i sums[TILE][2];
#pragma GCC unroll 6
    for (int i = 0; i < TILE; i++) {
        sums[i][0] = _mm256_load_si256((const __m256i *)(const void *)(tile->finish->start + LANES * j));
        sums[i][1] = _mm256_load_si256((const __m256i *)(const void *)(tile->finish->start + LANES * j + HALF));
    }
    for (int64_t tap = 0; tap < tile->taps; tap++, pixels += tile->pointers, skip += tile->bytes) {
        const uint8_t *from[TILE];
#pragma GCC unroll 6
        for (int i = 0; i < TILE; i++)
            from[i] = pixels[i] + skip;
        for (int64_t quad = 0; quad < quads; quad++, w += step) {
            const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)w);
            const __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(w + 4 * HALF));
#pragma GCC unroll 6
            for (int i = 0; i < TILE; i++) {
                const __m256i x = bytes_of_half(from[i], quad, j, 0, groups);
                const bool alike = groups == ONE_GROUP || groups >= GROUPS_OF_16;
                sums[i][0] = add_products(sums[i][0], x, low);
                sums[i][1] = add_products(sums[i][1], alike ? x : bytes_of_half(from[i], quad, j, 1, groups), high);
            }
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < TILE; i++) {
        _mm256_store_si256((__m256i *)(void *)(to + PANEL * i + LANES * j), sums[i][0]);
        _mm256_store_si256((__m256i *)(void *)(to + PANEL * i + LANES * j + HALF), sums[i][1]);
    }
}

#define SUMS(groups)                                                                                                   \
    static void sums_##groups(const struct tile *tile, int32_t *to)                                                    \
    {                                                                                                                  \
        for (int j = 0; j < tile->vectors; j++)                                                                        \
            sum_vector(tile, j, groups, to);                                                                           \
    }
SUMS(ONE_GROUP)
SUMS(GROUPS_OF_4)
SUMS(GROUPS_OF_8)
SUMS(GROUPS_OF_16)
SUMS(GROUPS_OF_32)

/* sums (TILE, PANEL) */
static void sum_panel(const struct cpu_int8_conv *s, const struct tile *tile, int32_t *sums)
{
    if (!s->shared)
        sums_ONE_GROUP(tile, sums);
    else if (s->quads == 1)
        sums_GROUPS_OF_4(tile, sums);
    else if (s->quads == 2)
        sums_GROUPS_OF_8(tile, sums);
    else if (s->quads == 4)
        sums_GROUPS_OF_16(tile, sums);
    else
        sums_GROUPS_OF_32(tile, sums);
}

#include "backend/cpu/int8_tasks.inc"

#define CONV       conv
#define INT8_TABLE cpu_int8_kernels_avx_vnni
#define INT8_ISA   "avx_vnni"
#include "backend/cpu/int8_loops.inc"
