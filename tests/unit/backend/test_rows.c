/* Loops over the pixels of channels-last images: every channel gets the numbers, bit for bit, that the loops over runs
 * give it, in each instruction set, with stores past the cache and without, whatever numbers there are; and what passes
 * the activation is the same in bits. */
#include <math.h>
#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "base/system.h"
#include "support_test.h"

enum { PIXELS = 9, CHANNELS = 1104, COUNT = PIXELS * CHANNELS, LINE = 64 };

/* Images as (pixel, channel): two that are read, two results. In runs as (block, pixel, lane). */
static struct operands {
    _Alignas(LINE) float x[COUNT], dy[COUNT], more[COUNT], y[COUNT], again[COUNT];
    struct cpu_affine lanes[CHANNELS / CPU_LANES];
    struct cpu_slope slopes[CHANNELS / CPU_LANES];
    struct cpu_sums sums[CHANNELS / CPU_LANES], streamed[CHANNELS / CPU_LANES];
} rows, runs;

/* Some are NaN of several kinds, infinite, subnormal, half way between two numbers of bf16 or next to that. */
static void draw(const struct cpu_loops *loops, float *to, uint32_t number)
{
    static const uint32_t special[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001, 0x7fffffff,
                                       0x7f800001, 0x00000001, 0x807fffff, 0x80000000, 0x3f808000,
                                       0x3f818000, 0x3f807fff, 0x3f808001, 0x7f7fffff, 0x3f818001,
                                       0x40c00000, 0x00010000, 0x007f0000, 0x40bf0000};
    const uint32_t kinds = sizeof(special) / sizeof(*special);
    struct cvy_rng rng = cvy_rng_new(3, CVY_RNG_INIT, 0, number);
    for (int i = 0; i < COUNT; i++) {
        const uint32_t kind = (uint32_t)cvy_rng_below(&rng, 64);
        float value = (float)cvy_rng_normal(&rng);
        if (kind < kinds)
            memcpy(&value, &special[kind], sizeof(value));
        if (loops->size == 4)
            to[i] = value;
        else
            memcpy((uint16_t *)(void *)to + i, (char *)&value + 2, 2);
    }
}

static void draw_numbers(const struct cpu_loops *loops)
{
    struct cvy_rng rng = cvy_rng_new(3, CVY_RNG_INIT, 1, 0);
    draw(loops, rows.x, 0);
    draw(loops, rows.dy, 1);
    draw(loops, rows.more, 2);
    for (int c = 0; c < CHANNELS; c++) {
        struct cpu_affine *p = &rows.lanes[c / CPU_LANES];
        struct cpu_slope *s = &rows.slopes[c / CPU_LANES];
        float *const numbers[] = {p->mean, p->scale, p->shift, s->offset, s->slope};
        for (int i = 0; i < 5; i++)
            numbers[i][c % CPU_LANES] = (float)cvy_rng_normal(&rng);
        if (c % 29 > 4 && c % 29 < 8) { /* as it is; rounded to 0; rounded to 6 */
            p->mean[c % CPU_LANES] = 0;
            p->scale[c % CPU_LANES] = c % 29 == 6 ? 0.25f : 1;
            p->shift[c % CPU_LANES] = c % 29 == 7 ? 0.02f : 0;
        }
        if (c % 29 == 3) /* a NaN that would be rounded to -0 */
            memcpy(&p->shift[c % CPU_LANES], &(uint32_t){0x7fffffff}, sizeof(float));
    }
    memcpy(runs.lanes, rows.lanes, sizeof(runs.lanes));
    memcpy(runs.slopes, rows.slopes, sizeof(runs.slopes));
}

static char *in_rows(const struct cpu_loops *loops, float *image, const struct cpu_rows *shape, size_t block,
                     size_t pixel)
{
    return (char *)image + (pixel * shape->stride + block * CPU_LANES) * loops->size;
}

static char *in_runs(const struct cpu_loops *loops, float *image, const struct cpu_rows *shape, size_t block,
                     size_t pixel)
{
    return (char *)image + (block * shape->pixels + pixel) * CPU_LANES * loops->size;
}

static void to_runs(const struct cpu_loops *loops, float *to, float *from, const struct cpu_rows *shape)
{
    for (size_t b = 0; b < shape->channels / CPU_LANES; b++)
        for (size_t i = 0; i < shape->pixels; i++)
            memcpy(in_runs(loops, to, shape, b, i), in_rows(loops, from, shape, b, i), CPU_LANES * loops->size);
}

/* One number of an image as float. */
static float number_at(const struct cpu_loops *loops, const char *image, size_t i)
{
    float value = 0;
    if (loops->size == 4)
        memcpy(&value, image + i * 4, 4);
    else
        memcpy((char *)&value + 2, image + i * 2, 2);
    return value;
}

/* Which NaN it is may depend on the order of a sum's terms. */
static void check_same(const struct cpu_loops *loops, float *image, float *run, const struct cpu_rows *shape)
{
    for (size_t b = 0; b < shape->channels / CPU_LANES; b++)
        for (size_t i = 0; i < shape->pixels; i++) {
            const char *const a = in_rows(loops, image, shape, b, i), *const e = in_runs(loops, run, shape, b, i);
            for (size_t lane = 0; lane < CPU_LANES; lane++) {
                const float got = number_at(loops, a, lane), expected = number_at(loops, e, lane);
                if (!isnan(got) || !isnan(expected))
                    assert_memory_equal(&got, &expected, sizeof(got));
            }
        }
}

/* ---- what passes the activation, in bits ---- */

enum { WORD = 2 * CPU_LANES /* channels of one */, UNTOUCHED = 0x5a5a5a5a };
static uint32_t sign[COUNT / WORD];

static bool has_sign(const struct cpu_loops *loops, const struct cpu_rows *shape)
{
    return loops->size == 2 && shape->channels % WORD == 0 && shape->stride % WORD == 0;
}

/* What of an image there is passes. */
static void mark(const struct cpu_loops *loops, float *image, const struct cpu_rows *shape,
                 enum cvy_activation activation, uint32_t words[COUNT / WORD])
{
    for (int i = 0; i < COUNT / WORD; i++)
        words[i] = UNTOUCHED;
    for (size_t i = 0; i < shape->pixels; i++)
        for (size_t c = 0; c < shape->channels; c++) {
            const float y = number_at(loops, in_rows(loops, image, shape, 0, i), c);
            const bool passes =
                activation == CVY_ACTIVATION_NONE || (y > 0 && (activation == CVY_ACTIVATION_RELU || y < 6));
            uint32_t *const word = &words[(i * shape->stride + c) / WORD];
            if (c % WORD == 0)
                *word = 0;
            *word |= (uint32_t)passes << c % WORD;
        }
}

/* The same y as without, and what it is marked with. */
static void check_sign(const struct cpu_loops *loops, struct cpu_rows shape, bool residual,
                       enum cvy_activation activation)
{
    static uint32_t expected[COUNT / WORD];

    memcpy(rows.again, rows.y, sizeof(rows.y));
    mark(loops, rows.y, &shape, activation, expected);
    for (int i = 0; i < COUNT / WORD; i++)
        sign[i] = UNTOUCHED;
    shape.sign = sign;
    loops->rows_affine(rows.y, rows.x, residual ? rows.dy : NULL, &shape, rows.lanes, activation);
    assert_memory_equal(rows.y, rows.again, sizeof(rows.y));
    assert_memory_equal(sign, expected, sizeof(sign));
}

/* Bits instead of the output: the same gradients and sums, which are in rows.y, rows.again and rows.sums. */
static void check_backward_sign(const struct cpu_loops *loops, struct cpu_rows shape, enum cvy_activation activation)
{
    mark(loops, rows.dy, &shape, activation, sign);
    shape.sign = sign;
    loops->rows_bwd_sums(runs.y, rows.x, rows.dy, rows.more, NULL, &shape, rows.lanes, activation, rows.streamed);
    loops->rows_bwd(runs.again, rows.x, rows.more, NULL, &shape, rows.lanes, rows.slopes, activation);
    for (size_t i = 0; i < shape.pixels; i++) {
        assert_memory_equal(in_rows(loops, runs.y, &shape, 0, i), in_rows(loops, rows.y, &shape, 0, i),
                            shape.channels * loops->size);
        assert_memory_equal(in_rows(loops, runs.again, &shape, 0, i), in_rows(loops, rows.again, &shape, 0, i),
                            shape.channels * loops->size);
    }
    assert_memory_equal(rows.streamed, rows.sums, shape.channels / CPU_LANES * sizeof(*rows.sums));
}

static void check_affine(const struct cpu_loops *loops, const struct cpu_rows *shape, bool residual,
                         enum cvy_activation activation)
{
    loops->rows_affine(rows.y, rows.x, residual ? rows.dy : NULL, shape, rows.lanes, activation);
    for (size_t b = 0; b < shape->channels / CPU_LANES; b++)
        loops->affine(in_runs(loops, runs.y, shape, b, 0), in_runs(loops, runs.x, shape, b, 0),
                      residual ? in_runs(loops, runs.dy, shape, b, 0) : NULL, shape->pixels * CPU_LANES, &runs.lanes[b],
                      activation);
    check_same(loops, rows.y, runs.y, shape);
    if (has_sign(loops, shape))
        check_sign(loops, *shape, residual, activation);
}

/* The masked gradient, and that of the input, from two gradients; the output decides where it is given. */
static void check_backward(const struct cpu_loops *loops, const struct cpu_rows *shape, bool given,
                           enum cvy_activation activation)
{
    const size_t count = shape->pixels * CPU_LANES;
    loops->rows_bwd_sums(rows.y, rows.x, rows.dy, rows.more, given ? rows.dy : NULL, shape, rows.lanes, activation,
                         rows.sums);
    loops->rows_bwd(rows.again, rows.x, rows.more, given ? rows.dy : NULL, shape, rows.lanes, rows.slopes, activation);
    for (size_t b = 0; b < shape->channels / CPU_LANES; b++) {
        const void *const x = in_runs(loops, runs.x, shape, b, 0), *const dy = in_runs(loops, runs.dy, shape, b, 0);
        const void *const more = in_runs(loops, runs.more, shape, b, 0), *const y = given ? dy : NULL;
        loops->batch_norm_bwd_sums(in_runs(loops, runs.y, shape, b, 0), x, dy, more, y, count, &runs.lanes[b],
                                   activation, &runs.sums[b]);
        loops->batch_norm_bwd(in_runs(loops, runs.again, shape, b, 0), x, more, y, count, &runs.lanes[b],
                              &runs.slopes[b], activation);
    }
    check_same(loops, rows.y, runs.y, shape);
    check_same(loops, rows.again, runs.again, shape);
    if (given && has_sign(loops, shape))
        check_backward_sign(loops, *shape, activation);
}

static void check_shape(const struct cpu_loops *loops, struct cpu_rows shape)
{
    static const enum cvy_activation activations[] = {CVY_ACTIVATION_NONE, CVY_ACTIVATION_RELU, CVY_ACTIVATION_RELU6};
    to_runs(loops, runs.x, rows.x, &shape);
    to_runs(loops, runs.dy, rows.dy, &shape);
    to_runs(loops, runs.more, rows.more, &shape);
    for (int turn = 0; turn < 2; turn++) {
        shape.stream = turn == 1;
        for (int i = 0; i < 3; i++)
            for (int more = 0; more < 2; more++) {
                check_affine(loops, &shape, more, activations[i]);
                check_backward(loops, &shape, more, activations[i]);
            }
    }
}

static void check_all(const struct cpu_kernels *kernels)
{
    static const size_t channels[] = {16, 32, 48, 64, 1024, 1040, 1088, 1104};
    const struct cpu_loops *const both[] = {kernels->f32, kernels->bf16};
    for (int type = 0; type < 2; type++) {
        draw_numbers(both[type]);
        for (size_t i = 0; i < sizeof(channels) / sizeof(*channels); i++)
            for (size_t pixels = 1; pixels <= PIXELS; pixels += 2 + pixels / 5) /* 1, 3, 5, 8 */
                check_shape(both[type],
                            (struct cpu_rows){.pixels = pixels, .channels = channels[i], .stride = channels[i]});
        check_shape(both[type], (struct cpu_rows){.pixels = PIXELS, .channels = 64, .stride = 96});
        check_shape(both[type], (struct cpu_rows){.pixels = PIXELS, .channels = 64, .stride = 80});
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    check_all(&cpu_kernels_base);
#if defined(__x86_64__)
    if (cvy_cpu_isa() >= CVY_ISA_AVX2)
        check_all(&cpu_kernels_avx2);
    if (cvy_cpu_isa() >= CVY_ISA_AVX512)
        check_all(&cpu_kernels_avx512);
#endif
}

static void assert_close(double a, double b, double margin)
{
    assert_true(fabs(a - b) <= margin);
}

/* Sums of finite numbers by channel: those of runs but for roundings, and the same bits however results are stored. */
static void check_sums(const struct cpu_loops *loops, size_t channels)
{
    struct cpu_rows shape = {.pixels = PIXELS, .channels = channels, .stride = channels};
    const size_t blocks = channels / CPU_LANES;
    float *const centre = rows.again;
    for (int i = 0; i < COUNT; i++) {
        const float value = (float)(i * 37 % 101 - 50) / 16;
        if (loops->size == 4)
            rows.x[i] = value;
        else
            memcpy((uint16_t *)(void *)rows.x + i, (const char *)&value + 2, 2);
    }
    for (size_t c = 0; c < channels; c++)
        centre[c] = (float)(c % 7);
    to_runs(loops, runs.x, rows.x, &shape);
    loops->rows_sum(rows.x, &shape, rows.sums);
    loops->rows_sum_squares(rows.x, &shape, centre, rows.sums);
    for (size_t b = 0; b < blocks; b++) {
        const void *const x = in_runs(loops, runs.x, &shape, b, 0);
        loops->sum(x, PIXELS * CPU_LANES, runs.sums[b].first);
        loops->sum_squares(x, PIXELS * CPU_LANES, centre + b * CPU_LANES, runs.sums[b].second);
        for (int lane = 0; lane < CPU_LANES; lane++) {
            assert_close(rows.sums[b].first[lane], runs.sums[b].first[lane], 1e-4);
            assert_close(rows.sums[b].second[lane], runs.sums[b].second[lane], 1e-3);
        }
    }
    loops->rows_bwd_sums(rows.y, rows.x, rows.x, rows.x, NULL, &shape, rows.lanes, CVY_ACTIVATION_RELU, rows.sums);
    shape.stream = true;
    loops->rows_bwd_sums(rows.y, rows.x, rows.x, rows.x, NULL, &shape, rows.lanes, CVY_ACTIVATION_RELU, rows.streamed);
    assert_memory_equal(rows.sums, rows.streamed, blocks * sizeof(*rows.sums));
    for (size_t b = 0; b < blocks; b++) {
        const void *const x = in_runs(loops, runs.x, &shape, b, 0);
        loops->batch_norm_bwd_sums(runs.y, x, x, x, NULL, PIXELS * CPU_LANES, &rows.lanes[b], CVY_ACTIVATION_RELU,
                                   &runs.sums[b]);
        for (int lane = 0; lane < CPU_LANES; lane++) {
            assert_close(rows.sums[b].first[lane], runs.sums[b].first[lane], 1e-3);
            assert_close(rows.sums[b].second[lane], runs.sums[b].second[lane], 1e-3);
        }
    }
}

static void test_sums(void **state)
{
    static const size_t channels[] = {16, 32, 48, 1024, 1104};
    (void)state;
    for (size_t i = 0; i < sizeof(channels) / sizeof(*channels); i++)
        for (int type = 0; type < 2; type++) {
            check_sums(type ? cpu_kernels_base.bf16 : cpu_kernels_base.f32, channels[i]);
#if defined(__x86_64__)
            if (cvy_cpu_isa() >= CVY_ISA_AVX512)
                check_sums(type ? cpu_kernels_avx512.bf16 : cpu_kernels_avx512.f32, channels[i]);
#endif
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits), cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
