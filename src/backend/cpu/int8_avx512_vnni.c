/* Integer inference with AVX-512 and VNNI: vpdpbusd adds four products of unsigned and signed bytes to each of 16 sums,
 * without saturation.
 *
 * A tile is six pixels by up to 64 output channels: 24 registers of sums. Each step takes four input channels: their
 * four bytes of one pixel in every lane, times four bytes of weights in each. */
#include <immintrin.h>
#include <string.h>

#include "backend/cpu/int8.h"

enum { LANES = CPU_INT8_VECTOR, TILE = CPU_INT8_TILE, PANEL = CPU_INT8_PANEL };

/* What the sums of one panel become: all in units of the first rounding's levels. */
struct finish {
    float factor[PANEL], shift[PANEL];
    int32_t start[PANEL]; /* of the sums: minus the zero point times the sum of the weights */
};

typedef void (*tile_function)(int32_t *sums, const int32_t *start, const uint8_t *const *pixels, int64_t taps,
                              int64_t quads, const int8_t *w);

static inline __attribute__((always_inline)) __m512i four_bytes(const uint8_t *from)
{
    int32_t bytes;
    memcpy(&bytes, from, sizeof(bytes));
    return _mm512_set1_epi32(bytes);
}

/* One step of one pixel. */
#define STEP(i)                                                                                                        \
    x = four_bytes(p##i + 4 * quad);                                                                                   \
    for (int j = 0; j < V; j++)                                                                                        \
    a##i[j] = _mm512_dpbusd_epi32(a##i[j], x, b[j])
#define EACH(what) what(0) what(1) what(2) what(3) what(4) what(5)
#define DECLARE(i) __m512i a##i[V];
#define START(i)                                                                                                       \
    for (int j = 0; j < V; j++)                                                                                        \
        a##i[j] = _mm512_loadu_si512(start + LANES * j);
#define POINT(i) const uint8_t *const p##i = pixels[i];
#define STEPS(i) STEP(i);
#define STORE(i)                                                                                                       \
    for (int j = 0; j < V; j++)                                                                                        \
        _mm512_storeu_si512(sums + PANEL * (i) + LANES * j, a##i[j]);

/* sums (TILE, PANEL) of one panel of V vectors; pixels (taps, TILE). */
#define TILES(V_)                                                                                                      \
    static void tile_##V_(int32_t *sums, const int32_t *start, const uint8_t *const *pixels, int64_t taps,             \
                          int64_t quads, const int8_t *w)                                                              \
    {                                                                                                                  \
        enum { V = V_ };                                                                                               \
        EACH(DECLARE)                                                                                                  \
        EACH(START)                                                                                                    \
        for (int64_t tap = 0; tap < taps; tap++, pixels += TILE) {                                                     \
            EACH(POINT)                                                                                                \
            for (int64_t quad = 0; quad < quads; quad++, w += 4 * LANES * V) {                                         \
                __m512i b[V], x;                                                                                       \
                for (int j = 0; j < V; j++)                                                                            \
                    b[j] = _mm512_loadu_si512(w + 4 * LANES * j);                                                      \
                EACH(STEPS)                                                                                            \
            }                                                                                                          \
        }                                                                                                              \
        EACH(STORE)                                                                                                    \
    }
TILES(1)
TILES(2)
TILES(3)
TILES(4)

/* Groups of 4 or 8 channels: a lane needs the bytes of its own group, which vpermd brings from the pixel's 64. */
#define SHARED_STEP(i)                                                                                                 \
    x = _mm512_maskz_loadu_epi8(mask, p##i);                                                                           \
    for (int j = 0; j < V; j++)                                                                                        \
        a##i[j] = _mm512_dpbusd_epi32(a##i[j], _mm512_permutexvar_epi32(spread[j], x), b[j]);
#define SHARED_TILES(V_)                                                                                               \
    static void shared_tile_##V_(int32_t *sums, const int32_t *start, const uint8_t *const *pixels, int64_t taps,      \
                                 int64_t quads, const int8_t *w)                                                       \
    {                                                                                                                  \
        enum { V = V_ };                                                                                               \
        const __mmask64 mask = V == 4 ? ~(__mmask64)0 : ((__mmask64)1 << (LANES * V % 64)) - 1;                        \
        EACH(DECLARE)                                                                                                  \
        EACH(START)                                                                                                    \
        for (int64_t quad = 0; quad < quads; quad++) {                                                                 \
            __m512i spread[V];                                                                                         \
            for (int j = 0; j < V; j++)                                                                                \
                spread[j] = spread_index(j, quad, quads);                                                              \
            for (int64_t tap = 0; tap < taps; tap++) {                                                                 \
                const uint8_t *const *at = pixels + TILE * tap;                                                        \
                const int8_t *from = w + (tap * quads + quad) * (4 * LANES * V);                                       \
                const uint8_t *const p0 = at[0], *const p1 = at[1], *const p2 = at[2], *const p3 = at[3],              \
                                     *const p4 = at[4], *const p5 = at[5];                                             \
                __m512i b[V], x;                                                                                       \
                for (int j = 0; j < V; j++)                                                                            \
                    b[j] = _mm512_loadu_si512(from + 4 * LANES * j);                                                   \
                EACH(SHARED_STEP)                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        EACH(STORE)                                                                                                    \
    }

/* Lane l of vector j is output channel 16 j + l, whose group's bytes begin at that group's first channel. */
static inline __attribute__((always_inline)) __m512i spread_index(int j, int64_t quad, int64_t quads)
{
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i channel = _mm512_add_epi32(lane, _mm512_set1_epi32(LANES * j));
    const __m512i group = quads == 1 ? _mm512_srli_epi32(channel, 2) : _mm512_srli_epi32(channel, 3);
    return _mm512_add_epi32(quads == 1 ? group : _mm512_slli_epi32(group, 1), _mm512_set1_epi32((int)quad));
}
SHARED_TILES(1)
SHARED_TILES(2)
SHARED_TILES(3)
SHARED_TILES(4)

static const tile_function tiles[] = {tile_1, tile_2, tile_3, tile_4};
static const tile_function shared_tiles[] = {shared_tile_1, shared_tile_2, shared_tile_3, shared_tile_4};

/* ---- what the sums become ---- */

/* Where the levels of a byte end, as floats. */
struct bounds {
    __m512 low, high;
    __m512i zero;
};

static inline struct bounds bounds_of(int32_t zero)
{
    return (struct bounds){_mm512_set1_ps((float)-zero), _mm512_set1_ps((float)(255 - zero)), _mm512_set1_epi32(zero)};
}

/* The byte, in 32 bits: cvy_int8_byte. */
static inline __attribute__((always_inline)) __m512i byte_of(__m512 units, const struct bounds *b)
{
    const __m512 level = _mm512_min_ps(_mm512_max_ps(units, b->low), b->high);
    return _mm512_add_epi32(_mm512_cvtps_epi32(level), b->zero);
}

static inline __attribute__((always_inline)) __m512 widened(const uint8_t *from, __mmask16 mask, __m512i zero)
{
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, from));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(bytes, zero));
}

/* 16 channels of one pixel, the first of which is output channel `at` of the whole tensor. cvy_int8_finished. */
static inline __attribute__((always_inline)) void finish_vector(const struct cpu_int8_conv *s,
                                                                const struct cpu_int8_work *work, const int32_t *sums,
                                                                const float *factor, const float *shift, int64_t at,
                                                                __mmask16 mask)
{
    const struct cvy_int8_attr *attr = &s->attr;
    const float inverse = attr->y.scale > 0 ? 1 / attr->y.scale : 1;
    __m512 v =
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(sums)), _mm512_loadu_ps(factor), _mm512_loadu_ps(shift));
    if (attr->middle.scale > 0) {
        const struct bounds middle = bounds_of(attr->middle.zero);
        const __m512 level = _mm512_cvtepi32_ps(_mm512_sub_epi32(byte_of(v, &middle), middle.zero));
        const __m512 other = _mm512_mul_ps(widened(work->residual + at, mask, _mm512_set1_epi32(attr->residual.zero)),
                                           _mm512_set1_ps(attr->residual.scale));
        v = _mm512_mul_ps(_mm512_fmadd_ps(level, _mm512_set1_ps(attr->middle.scale), other), _mm512_set1_ps(inverse));
    }
    if (attr->conv2d.activation != CVY_ACTIVATION_NONE)
        v = _mm512_max_ps(v, _mm512_setzero_ps());
    if (attr->conv2d.activation == CVY_ACTIVATION_RELU6)
        v = _mm512_min_ps(v, _mm512_set1_ps(6 * inverse));
    if (s->floats) {
        _mm512_mask_storeu_ps((float *)work->y + at, mask, v);
    } else {
        const struct bounds bounds = bounds_of(attr->y.zero);
        _mm_mask_storeu_epi8((uint8_t *)work->y + at, mask, _mm512_cvtepi32_epi8(byte_of(v, &bounds)));
    }
}

/* ---- a task ---- */

/* A place of the output. */
struct place {
    int64_t n, p, q;
};

static inline void step(const struct cpu_int8_conv *s, struct place *at)
{
    if (++at->q < s->q)
        return;
    at->q = 0;
    if (++at->p < s->p)
        return;
    at->p = 0;
    at->n++;
}

/* The pixels that the taps of one place read, TILE pointers apart; outside the image the pixel of zero points. */
static inline void find_taps(const struct cpu_int8_conv *s, const uint8_t *x, const struct place *at,
                             const uint8_t **pixels)
{
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;
    const int64_t top = at->p * a->stride[0] - a->pad[0], left = at->q * a->stride[1] - a->pad[2];
    const int64_t row_step = a->dilation[0] * s->w * s->pixel, column_step = a->dilation[1] * s->pixel;
    const uint8_t *first = x + ((at->n * s->h + top) * s->w + left) * s->pixel;
    if (top >= 0 && left >= 0 && top + (a->kernel[0] - 1) * a->dilation[0] < s->h &&
        left + (a->kernel[1] - 1) * a->dilation[1] < s->w) {
        for (int32_t r = 0; r < a->kernel[0]; r++, first += row_step)
            for (int32_t t = 0; t < a->kernel[1]; t++, pixels += TILE)
                *pixels = first + t * column_step;
        return;
    }
    for (int32_t r = 0; r < a->kernel[0]; r++) {
        const int64_t row = top + r * a->dilation[0];
        for (int32_t t = 0; t < a->kernel[1]; t++, pixels += TILE) {
            const int64_t column = left + t * a->dilation[1];
            const bool inside = row >= 0 && row < s->h && column >= 0 && column < s->w;
            *pixels = inside ? x + ((at->n * s->h + row) * s->w + column) * s->pixel : s->outside;
        }
    }
}

/* Those of tiles `first` to `end`: for each tile (taps, TILE). */
static void find_pixels(const struct cpu_int8_conv *s, const uint8_t *x, int64_t first, int64_t end,
                        const uint8_t **pixels)
{
    const int64_t area = s->p * s->q, count = s->n * area, begin = first * TILE;
    struct place at = {begin / area, begin % area / s->q, begin % s->q};
    for (int64_t i = begin; i < end * TILE; i++) {
        const uint8_t **to = pixels + (i / TILE - first) * s->taps * TILE + i % TILE;
        if (i < count)
            find_taps(s, x, &at, to);
        for (int64_t tap = 0; tap < s->taps && i >= count; tap++)
            to[tap * TILE] = s->outside;
        step(s, &at);
    }
}

static void prepare_panel(const struct cpu_int8_conv *s, const struct cpu_int8_work *work, int64_t first, int64_t width,
                          struct finish *finish)
{
    memset(finish, 0, sizeof(*finish));
    for (int64_t i = 0; i < width; i++) {
        const int64_t k = first + i;
        const struct cvy_int8_finish f =
            cvy_int8_finish_of(&s->attr, work->multiplier[k], work->bias ? work->bias[k] : 0);
        finish->factor[i] = f.factor;
        finish->shift[i] = f.shift;
        finish->start[i] = -s->attr.x.zero * work->sums[k];
    }
}

/* ---- the same for 64 channels at once, of bytes ---- */

/* Four vectors of 32 bits, each 0 to 255, as 64 bytes. */
static inline __attribute__((always_inline)) __m512i packed_bytes(const __m512i v[4])
{
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const __m512i low = _mm512_packs_epi32(v[0], v[1]), high = _mm512_packs_epi32(v[2], v[3]);
    return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high));
}

/* Everything that the loops over pixels need, in registers. */
struct ending {
    struct bounds middle, y;
    __m512 middle_scale, other_scale, inverse, floor;
    __m512i other_zero;
};

static inline struct ending ending_of(const struct cvy_int8_attr *attr)
{
    const bool rectified = attr->conv2d.activation != CVY_ACTIVATION_NONE;
    return (struct ending){.middle = bounds_of(attr->middle.zero),
                           .y = bounds_of(attr->y.zero),
                           .middle_scale = _mm512_set1_ps(attr->middle.scale),
                           .other_scale = _mm512_set1_ps(attr->residual.scale),
                           .inverse = _mm512_set1_ps(1 / attr->y.scale),
                           .floor = _mm512_set1_ps(rectified ? 0 : (float)-attr->y.zero),
                           .other_zero = _mm512_set1_epi32(attr->residual.zero)};
}

/* `count` pixels of 64 channels. Without ReLU6 the activation is the lower bound of the levels. */
static inline __attribute__((always_inline)) void finish_panel(const struct cpu_int8_conv *s,
                                                               const struct cpu_int8_work *work, const int32_t *sums,
                                                               const struct finish *finish, int64_t at, int count,
                                                               const bool residual)
{
    struct ending end = ending_of(&s->attr);
    __m512 factor[4], shift[4];
    end.y.low = end.floor;
    for (int j = 0; j < 4; j++) {
        factor[j] = _mm512_loadu_ps(finish->factor + LANES * j);
        shift[j] = _mm512_loadu_ps(finish->shift + LANES * j);
    }
    for (int i = 0; i < count; i++, sums += PANEL, at += s->k) {
        __m512i bytes[4];
        for (int j = 0; j < 4; j++) {
            __m512 v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + LANES * j)), factor[j], shift[j]);
            if (residual) {
                const __m512 level = _mm512_cvtepi32_ps(_mm512_sub_epi32(byte_of(v, &end.middle), end.middle.zero));
                const __m512 other = widened(work->residual + at + LANES * j, 0xffff, end.other_zero);
                v = _mm512_mul_ps(_mm512_fmadd_ps(level, end.middle_scale, _mm512_mul_ps(other, end.other_scale)),
                                  end.inverse);
            }
            bytes[j] = byte_of(v, &end.y);
        }
        _mm512_storeu_si512((uint8_t *)work->y + at, packed_bytes(bytes));
    }
}

static void finish_tile(const struct cpu_int8_conv *s, const struct cpu_int8_work *work, const int32_t *sums,
                        const struct finish *finish, int64_t tile, int64_t first, int64_t width)
{
    const int64_t left = s->n * s->p * s->q - tile * TILE, at = tile * TILE * s->k + first;
    const int count = left < TILE ? (int)left : TILE;
    if (width == PANEL && !s->floats && s->attr.conv2d.activation != CVY_ACTIVATION_RELU6) {
        if (s->attr.middle.scale > 0)
            finish_panel(s, work, sums, finish, at, count, true);
        else
            finish_panel(s, work, sums, finish, at, count, false);
        return;
    }
    for (int i = 0; i < count; i++)
        for (int64_t j = 0; j < width; j += LANES) {
            const __mmask16 mask = width - j >= LANES ? 0xffff : (__mmask16)((1U << (width - j)) - 1);
            finish_vector(s, work, sums + PANEL * i + j, finish->factor + j, finish->shift + j, at + i * s->k + j,
                          mask);
        }
}

static void conv(const struct cpu_int8_conv *s, const struct cpu_int8_work *work, int64_t first, int64_t end,
                 int64_t first_panel, int64_t end_panel, const uint8_t **pixels)
{
    const int64_t of_group = s->panels / s->pack_groups, steps = s->taps * s->quads;
    const int64_t vectors = (s->pack_outputs + LANES - 1) / LANES;
    const int64_t table = s->taps * TILE;
    int64_t before = 0; /* channels that the table's pointers are advanced by */

    find_pixels(s, work->x, first, end, pixels);
    for (int64_t panel = first_panel; panel < end_panel; panel++) {
        const int64_t group = panel / of_group, within = panel % of_group * PANEL;
        const int64_t left = s->pack_outputs - within, width = left < PANEL ? left : PANEL;
        const int64_t channel = group * s->pack_outputs + within;
        const int64_t skip = s->shared ? channel : group * s->group_inputs;
        const int8_t *w = work->w + (group * vectors * LANES + within) * steps * 4;
        const tile_function run = (s->shared ? shared_tiles : tiles)[(width + LANES - 1) / LANES - 1];
        struct finish finish;

        prepare_panel(s, work, channel, width, &finish);
        for (int64_t i = 0; i < (end - first) * table && skip != before; i++)
            pixels[i] += skip - before;
        before = skip;
        for (int64_t tile = first; tile < end; tile++) {
            int32_t sums[TILE * PANEL] __attribute__((aligned(64)));
            run(sums, finish.start, pixels + (tile - first) * table, s->taps, s->quads, w);
            finish_tile(s, work, sums, &finish, tile, channel, width);
        }
    }
}

#define CONV       conv
#define INT8_TABLE cpu_int8_kernels_avx512_vnni
#define INT8_ISA   "avx512_vnni"
#include "backend/cpu/int8_loops.inc"
