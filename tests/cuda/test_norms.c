/* Batch norms that do their neighbours' work, beside the kernels that do it separately: the same bits, over the
 * emulated CUDA runtime. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/kernels/kernels.h"
#include "base/memory.h"
#include "base/rng.h"
#include "emulate.h"

enum { TICKETS = 512 };

static uint32_t tickets[TICKETS];
static struct cvy_rng rng;

/* Rows and channels: one thread's channels and several tiles of them, shares of one walker and of many, ends of slices
 * that are not full. */
static const struct size {
    int64_t rows, channels;
} sizes[] = {{1, 1}, {2, 8}, {7, 3}, {50, 24}, {33, 264}, {300, 72}, {1000, 5}, {2500, 16}, {9, 2056}};
enum { SIZES = sizeof sizes / sizeof *sizes };
static const enum cvy_dtype dtypes[] = {CVY_F32, CVY_F16, CVY_BF16};
static const enum cvy_activation activations[] = {CVY_ACTIVATION_RELU, CVY_ACTIVATION_RELU6};

/* A case: two batch norms over images of one size. Vectors begin anywhere. */
struct norms {
    enum cvy_dtype dtype;
    enum cvy_activation activation;
    int64_t rows, channels, elements;
    size_t bytes;
    void *x, *other, *dy, *more;
    float *gamma, *beta, *mean, *rstd, *other_gamma, *other_beta, *other_mean, *other_rstd;
    float *scratch;
};

static void *room(size_t bytes)
{
    void *memory = cvy_calloc_aligned(bytes ? bytes : 1);

    assert_non_null(memory);
    return memory;
}

static float uniform(float from, float to)
{
    return from + (to - from) * (float)cvy_rng_below(&rng, 1U << 20) * 0x1p-20F;
}

static float *vector(int64_t channels, float from, float to)
{
    float *values = room((size_t)(channels + 1) * sizeof *values);

    for (int64_t c = 0; c <= channels; c++)
        values[c] = uniform(from, to);
    return values;
}

static void put(enum cvy_dtype dtype, void *image, int64_t i, float value)
{
    if (dtype == CVY_F32)
        ((float *)image)[i] = value;
    else
        ((uint16_t *)image)[i] = dtype == CVY_F16 ? gpu_to_f16(value) : gpu_to_bf16(value);
}

static float get(enum cvy_dtype dtype, const void *image, int64_t i)
{
    if (dtype == CVY_F32)
        return ((const float *)image)[i];
    return dtype == CVY_F16 ? gpu_from_f16(((const uint16_t *)image)[i]) : gpu_from_bf16(((const uint16_t *)image)[i]);
}

static void *image(const struct norms *s, float size)
{
    void *values = room(s->bytes);

    for (int64_t i = 0; i < s->elements; i++) /* some so small that 16 bits lose them */
        put(s->dtype, values, i, uniform(-size, size) * (cvy_rng_below(&rng, 16) ? 1 : 1e-9F));
    return values;
}

/* `one`: the vectors begin an element late, where 16 bytes at a time are no way to read them. */
static struct norms begin(enum cvy_dtype dtype, enum cvy_activation activation, const struct size *size, int one)
{
    struct norms s = {.dtype = dtype, .activation = activation, .rows = size->rows, .channels = size->channels};
    int64_t tiles, floats;

    s.elements = s.rows * s.channels;
    s.bytes = (size_t)s.elements * cvy_dtype_size(dtype);
    s.x = image(&s, 3);
    s.other = image(&s, 3);
    s.dy = image(&s, 1);
    s.more = image(&s, 1);
    s.gamma = vector(s.channels, -2, 3) + one;
    s.beta = vector(s.channels, -1, 2) + one;
    s.mean = vector(s.channels, -1, 1) + one;
    s.rstd = vector(s.channels, 0.5F, 2) + one;
    s.other_gamma = vector(s.channels, -2, 2) + one;
    s.other_beta = vector(s.channels, -1, 1) + one;
    s.other_mean = vector(s.channels, -1, 1) + one;
    s.other_rstd = vector(s.channels, 0.5F, 2) + one;
    gpu_batch_norm_shape(s.rows, s.channels, &tiles, &floats);
    assert_true(tiles <= TICKETS);
    s.scratch = room(2 * (size_t)floats * sizeof *s.scratch);
    return s;
}

static void end(struct norms *s, int one)
{
    float *const vectors[] = {s->gamma,       s->beta,       s->mean,       s->rstd,
                              s->other_gamma, s->other_beta, s->other_mean, s->other_rstd};
    void *const images[] = {s->x, s->other, s->dy, s->more, s->scratch};

    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        cvy_free_aligned(vectors[i] - one);
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        cvy_free_aligned(images[i]);
    for (int i = 0; i < TICKETS; i++)
        assert_int_equal(tickets[i], 0);
}

static void over_cases(void (*check)(const struct norms *s))
{
    rng = cvy_rng_new(1, CVY_RNG_TEST, 0, 0);
    for (int i = 0; i < SIZES * 3 * 2; i++) {
        const int one = i / 3 % 2;
        struct norms s = begin(dtypes[i % 3], activations[i / 3 % 2], &sizes[i / 6], one);

        check(&s);
        end(&s, one);
    }
}

static struct gpu_batch_norm forward_of(const struct norms *s, const void *residual, void *y)
{
    return (struct gpu_batch_norm){.dtype = s->dtype,
                                   .rows = s->rows,
                                   .channels = s->channels,
                                   .x = s->x,
                                   .residual = residual,
                                   .y = y,
                                   .gamma = s->gamma,
                                   .beta = s->beta,
                                   .mean = s->mean,
                                   .rstd = s->rstd,
                                   .activation = s->activation};
}

static struct gpu_batch_norm_bwd backward_of(const struct norms *s, const void *more, void *dx, float *sums)
{
    return (struct gpu_batch_norm_bwd){.dtype = s->dtype,
                                       .rows = s->rows,
                                       .channels = s->channels,
                                       .x = s->x,
                                       .dy = s->dy,
                                       .more = more,
                                       .gamma = s->gamma,
                                       .beta = s->beta,
                                       .mean = s->mean,
                                       .rstd = s->rstd,
                                       .dx = dx,
                                       .dgamma = sums,
                                       .dbeta = sums + s->channels,
                                       .activation = s->activation};
}

/* Of the sum's two terms the second, which has no activation. */
static struct gpu_batch_norm_bwd other_of(const struct norms *s, const void *dy, void *dx, float *sums)
{
    struct gpu_batch_norm_bwd other = backward_of(s, NULL, dx, sums);

    other.x = s->other;
    other.dy = dy;
    other.gamma = s->other_gamma;
    other.beta = s->other_beta;
    other.mean = s->other_mean;
    other.rstd = s->other_rstd;
    other.activation = CVY_ACTIVATION_NONE;
    return other;
}

/* ---- the bits ---- */

static bool bit_of(const struct norms *s, const uint8_t *sign, int64_t i)
{
    return s->channels % 8 ? sign[i] : sign[i / 8] >> i % 8 & 1;
}

/* y is the same; the bits are what its elements say; with them the backward pass is the same as with y. */
static void check_sign(const struct norms *s)
{
    const size_t bytes = (size_t)gpu_sign_bytes(s->rows, s->channels),
                 vectors = 2 * (size_t)s->channels * sizeof(float);
    void *y[2] = {room(s->bytes), room(s->bytes)}, *dx[2] = {room(s->bytes), room(s->bytes)};
    void *dresidual[2] = {room(s->bytes), room(s->bytes)};
    float *sums[2] = {room(vectors), room(vectors)};
    uint8_t *sign = room(bytes + 1);
    struct gpu_batch_norm forward = forward_of(s, s->other, y[0]);
    int64_t passing = 0;

    sign[bytes] = 77;
    gpu_batch_norm_apply(NULL, &forward);
    forward.y = y[1];
    forward.sign = sign;
    gpu_batch_norm_apply(NULL, &forward);
    assert_memory_equal(y[0], y[1], s->bytes);
    assert_int_equal(sign[bytes], 77);
    for (int64_t i = 0; i < s->elements; i++) {
        const float value = get(s->dtype, y[0], i);
        const bool passes = value > 0 && (s->activation == CVY_ACTIVATION_RELU || value < 6);

        assert_int_equal(bit_of(s, sign, i), passes);
        passing += passes;
    }
    if (s->elements > 100) /* else it says nothing */
        assert_in_range(passing, s->elements / 8, s->elements - s->elements / 8);
    for (int form = 0; form < 4; form++) {
        for (int k = 0; k < 2; k++) {
            struct gpu_batch_norm_bwd backward = backward_of(s, form & 1 ? s->more : NULL, dx[k], sums[k]);

            backward.dresidual = form & 2 ? dresidual[k] : NULL;
            backward.y = k ? NULL : y[0];
            backward.sign = k ? sign : NULL;
            gpu_batch_norm_bwd(NULL, &backward, s->scratch, tickets);
        }
        assert_memory_equal(dx[0], dx[1], s->bytes);
        assert_memory_equal(dresidual[0], dresidual[1], s->bytes);
        assert_memory_equal(sums[0], sums[1], vectors);
    }
    for (int k = 0; k < 2; k++) {
        cvy_free_aligned(y[k]);
        cvy_free_aligned(dx[k]);
        cvy_free_aligned(dresidual[k]);
        cvy_free_aligned(sums[k]);
    }
    cvy_free_aligned(sign);
}

static void masks_may_be_bits(void **state)
{
    (void)state;
    over_cases(check_sign);
}

/* ---- two batch norms and their sum ---- */

static void check_pair(const struct norms *s)
{
    const size_t vectors = 2 * (size_t)s->channels * sizeof(float);
    void *y[2] = {room(s->bytes), room(s->bytes)}, *dx[2] = {room(s->bytes), room(s->bytes)};
    void *dother[2] = {room(s->bytes), room(s->bytes)}, *residual = room(s->bytes);
    float *sums[2] = {room(vectors), room(vectors)}, *others[2] = {room(vectors), room(vectors)};
    uint8_t *sign[2];
    struct gpu_batch_norm other = forward_of(s, NULL, residual), forward;

    for (int k = 0; k < 2; k++)
        sign[k] = room((size_t)gpu_sign_bytes(s->rows, s->channels));
    other.x = s->other;
    other.gamma = s->other_gamma;
    other.beta = s->other_beta;
    other.mean = s->other_mean;
    other.rstd = s->other_rstd;
    other.activation = CVY_ACTIVATION_NONE;
    gpu_batch_norm_apply(NULL, &other);
    forward = forward_of(s, residual, y[0]);
    forward.sign = sign[0];
    gpu_batch_norm_apply(NULL, &forward);
    forward = forward_of(s, s->other, y[1]);
    forward.sign = sign[1];
    forward.residual_gamma = s->other_gamma;
    forward.residual_beta = s->other_beta;
    forward.residual_mean = s->other_mean;
    forward.residual_rstd = s->other_rstd;
    gpu_batch_norm_apply(NULL, &forward);
    assert_memory_equal(y[0], y[1], s->bytes);
    assert_memory_equal(sign[0], sign[1], (size_t)gpu_sign_bytes(s->rows, s->channels));
    for (int form = 0; form < 4; form++) { /* 2 and 3: over what is read */
        const void *more = form & 1 ? s->more : NULL;
        struct gpu_batch_norm_bwd one = backward_of(s, more, dx[0], sums[0]);
        struct gpu_batch_norm_bwd two = other_of(s, residual, dother[0], others[0]);

        one.sign = sign[0];
        one.dresidual = residual;
        gpu_batch_norm_bwd(NULL, &one, s->scratch, tickets);
        gpu_batch_norm_bwd(NULL, &two, s->scratch, tickets);
        one = backward_of(s, more, dx[1], sums[1]);
        two = other_of(s, NULL, dother[1], others[1]);
        one.sign = sign[1];
        if (form & 2) {
            one.x = memcpy(dx[1], s->x, s->bytes);
            one.dy = memcpy(dother[1], s->dy, s->bytes);
        }
        gpu_batch_norm_pair_bwd(NULL, &one, &two, s->scratch, tickets);
        assert_memory_equal(dx[0], dx[1], s->bytes);
        assert_memory_equal(dother[0], dother[1], s->bytes);
        assert_memory_equal(sums[0], sums[1], vectors);
        assert_memory_equal(others[0], others[1], vectors);
    }
    for (int k = 0; k < 2; k++) {
        cvy_free_aligned(y[k]);
        cvy_free_aligned(dx[k]);
        cvy_free_aligned(dother[k]);
        cvy_free_aligned(sums[k]);
        cvy_free_aligned(others[k]);
        cvy_free_aligned(sign[k]);
    }
    cvy_free_aligned(residual);
}

static void two_are_done_at_once(void **state)
{
    (void)state;
    over_cases(check_pair);
}

/* ---- a max pool after a batch norm ---- */

static const struct pool_size {
    int64_t n, c, h, w;
    int32_t kernel, stride, pad;
} pools[] = {{1, 1, 1, 1, 1, 1, 0},    {2, 8, 7, 9, 3, 2, 1},   {3, 5, 8, 6, 2, 2, 0},   {1, 24, 11, 5, 3, 1, 1},
             {2, 64, 16, 16, 3, 2, 1}, {1, 16, 9, 30, 5, 3, 2}, {2, 3, 13, 4, 3, 3, 0},  {2, 64, 63, 36, 3, 2, 1},
             {1, 8, 70, 90, 3, 2, 1},  {2, 5, 40, 15, 3, 2, 1}, {3, 24, 21, 26, 3, 2, 1}};
enum { POOLS = sizeof pools / sizeof *pools };

static struct gpu_pool pool_of(const struct norms *s, const struct pool_size *size)
{
    struct gpu_pool pool = {.dtype = s->dtype,
                            .n = size->n,
                            .c = size->c,
                            .h = size->h,
                            .w = size->w,
                            .p = (size->h + 2 * size->pad - size->kernel) / size->stride + 1,
                            .q = (size->w + 2 * size->pad - size->kernel) / size->stride + 1,
                            .kernel = {size->kernel, size->kernel},
                            .stride = {size->stride, size->stride},
                            .pad = {size->pad, size->pad}};
    return pool;
}

/* dy and more of the pool are the first elements of those of the batch norm: the pooled image is not larger. */
static void check_pool(const struct norms *s, const struct pool_size *size)
{
    struct gpu_pool pool = pool_of(s, size), normed = pool;
    const int64_t pooled = pool.n * pool.p * pool.q * pool.c;
    const size_t bytes = (size_t)pooled * cvy_dtype_size(s->dtype), vectors = 2 * (size_t)s->channels * sizeof(float);
    void *made = room(s->bytes), *y[2] = {room(bytes), room(bytes)}, *dx[2] = {room(s->bytes), room(s->bytes)};
    void *sum = room(bytes), *gradient = room(s->bytes);
    uint8_t *index[2] = {room((size_t)pooled), room((size_t)pooled)};
    float *sums[2] = {room(vectors), room(vectors)};
    struct gpu_batch_norm forward = forward_of(s, NULL, made);

    assert_true(pooled <= s->elements);
    gpu_batch_norm_apply(NULL, &forward);
    gpu_max_pool(NULL, &pool, made, y[0], index[0]);
    normed.gamma = s->gamma;
    normed.beta = s->beta;
    normed.mean = s->mean;
    normed.rstd = s->rstd;
    gpu_max_pool(NULL, &normed, s->x, y[1], index[1]);
    assert_memory_equal(y[0], y[1], bytes);
    assert_memory_equal(index[0], index[1], (size_t)pooled);
    gpu_elementwise(NULL, CVY_OP_ADD, s->dtype, s->dy, s->more, sum, pooled, false);
    for (int form = 0; form < 3; form++) { /* 2: over x */
        struct gpu_batch_norm_bwd backward = backward_of(s, NULL, dx[0], sums[0]);

        gpu_max_pool_bwd(NULL, &pool, form ? sum : s->dy, index[0], gradient);
        backward.dy = gradient;
        gpu_batch_norm_bwd(NULL, &backward, s->scratch, tickets);
        normed.more = form ? s->more : NULL;
        gpu_max_pool_bwd(NULL, &normed, s->dy, index[0], dx[1]);
        assert_memory_equal(gradient, dx[1], s->bytes);
        backward = backward_of(s, NULL, dx[1], sums[1]);
        backward.dy = NULL;
        if (form == 2)
            backward.x = memcpy(dx[1], s->x, s->bytes);
        gpu_norm_pool_bwd(NULL, &normed, s->dy, index[1], &backward, s->scratch, tickets);
        assert_memory_equal(dx[0], dx[1], s->bytes);
        assert_memory_equal(sums[0], sums[1], vectors);
    }
    for (int k = 0; k < 2; k++) {
        cvy_free_aligned(y[k]);
        cvy_free_aligned(dx[k]);
        cvy_free_aligned(index[k]);
        cvy_free_aligned(sums[k]);
    }
    cvy_free_aligned(made);
    cvy_free_aligned(sum);
    cvy_free_aligned(gradient);
}

static void a_pool_takes_in_its_batch_norm(void **state)
{
    (void)state;
    rng = cvy_rng_new(2, CVY_RNG_TEST, 0, 0);
    for (int i = 0; i < POOLS * 3 * 2; i++) {
        const struct pool_size *pool = &pools[i / 6];
        const struct size size = {pool->n * pool->h * pool->w, pool->c};
        struct norms s = begin(dtypes[i % 3], CVY_ACTIVATION_RELU, &size, i / 3 % 2);

        check_pool(&s, pool);
        end(&s, i / 3 % 2);
    }
}

/* ---- the gradient of data of a 1x1 convolution, where a block ends ---- */

/* Pixels, channels of the batch norm and outputs of the convolution: parts of tiles in each direction, both widths of a
 * block, walkers that have one tile and several. */
static const struct product_size {
    int64_t rows, channels, outputs;
} products[] = {{1, 8, 8},      {127, 64, 32},   {130, 72, 40},    {300, 128, 64},
                {257, 136, 24}, {513, 264, 104}, {2500, 520, 136}, {34100, 8, 8}};
enum { PRODUCTS = sizeof products / sizeof *products };

/* Small integers, so that sums of products are exact: no gradient is more than 136, which 8 digits hold. */
static void *integers(const struct norms *s, int64_t count)
{
    void *values = room((size_t)count * cvy_dtype_size(s->dtype));

    for (int64_t i = 0; i < count; i++)
        put(s->dtype, values, i, (float)cvy_rng_below(&rng, 3) - 1);
    return values;
}

/* s->dy = dy w */
static void multiply(const struct norms *s, const void *dy, const void *w, int64_t outputs)
{
    for (int64_t row = 0; row < s->rows; row++) {
        float sums[520] = {0};

        assert_true(s->channels <= 520);
        for (int64_t k = 0; k < outputs; k++) {
            const float factor = get(s->dtype, dy, row * outputs + k);

            for (int64_t c = 0; factor != 0 && c < s->channels; c++)
                sums[c] += factor * get(s->dtype, w, k * s->channels + c);
        }
        for (int64_t c = 0; c < s->channels; c++)
            put(s->dtype, s->dy, row * s->channels + c, sums[c]);
    }
}

/* The sums are added in another order: relative to that of their terms' sizes, which are about 10. */
static void compare_sums(const struct norms *s, const float *a, const float *b)
{
    for (int64_t c = 0; c < 2 * s->channels; c++)
        assert_true(fabsf(a[c] - b[c]) <= 1e-6F * 10 * (float)s->rows);
}

static void check_block_end(const struct norms *s, int64_t outputs)
{
    const size_t vectors = 2 * (size_t)s->channels * sizeof(float);
    void *dy = integers(s, s->rows * outputs), *w = integers(s, outputs * s->channels);
    void *y = room(s->bytes), *dx = room(s->bytes), *dresidual[2] = {room(s->bytes), room(s->bytes)};
    float *sums[2] = {room(vectors), room(vectors)}, *again = room(vectors);
    uint8_t *sign = room((size_t)gpu_sign_bytes(s->rows, s->channels));
    const struct gpu_pointwise what = {.dtype = s->dtype,
                                       .n = 1,
                                       .h = 1,
                                       .w = s->rows,
                                       .p = 1,
                                       .q = s->rows,
                                       .inputs = outputs,
                                       .outputs = s->channels,
                                       .stride = 1};
    float *scratch = room((size_t)gpu_pointwise_scratch(&what) * sizeof(float));
    struct gpu_batch_norm forward = forward_of(s, s->other, y);
    struct gpu_batch_norm_bwd separate = backward_of(s, s->more, dx, sums[0]);
    struct gpu_pointwise_gradient gradient = {.dy = dy,
                                              .w = w,
                                              .x = s->x,
                                              .more = s->more,
                                              .sign = sign,
                                              .mean = s->mean,
                                              .rstd = s->rstd,
                                              .dx = dresidual[1],
                                              .dgamma = sums[1],
                                              .dbeta = sums[1] + s->channels};

    forward.sign = sign;
    gpu_batch_norm_apply(NULL, &forward);
    multiply(s, dy, w, outputs);
    separate.sign = sign;
    separate.dresidual = dresidual[0];
    gpu_batch_norm_bwd(NULL, &separate, s->scratch, tickets);
    gpu_pointwise_backward(NULL, &what, &gradient, scratch);
    assert_memory_equal(dresidual[0], dresidual[1], s->bytes);
    compare_sums(s, sums[0], sums[1]);
    memcpy(dresidual[1], s->more, s->bytes); /* over the second gradient; the same sums in every run */
    gradient.more = dresidual[1];
    gradient.dgamma = again;
    gradient.dbeta = again + s->channels;
    gpu_pointwise_backward(NULL, &what, &gradient, scratch);
    assert_memory_equal(dresidual[0], dresidual[1], s->bytes);
    assert_memory_equal(sums[1], again, vectors);
    for (int k = 0; k < 2; k++) {
        cvy_free_aligned(dresidual[k]);
        cvy_free_aligned(sums[k]);
    }
    cvy_free_aligned(dy);
    cvy_free_aligned(w);
    cvy_free_aligned(y);
    cvy_free_aligned(dx);
    cvy_free_aligned(again);
    cvy_free_aligned(sign);
    cvy_free_aligned(scratch);
}

static void a_gradient_of_data_ends_a_block(void **state)
{
    (void)state;
    rng = cvy_rng_new(3, CVY_RNG_TEST, 0, 0);
    for (int i = 0; i < PRODUCTS * 2; i++) {
        const struct size size = {products[i / 2].rows, products[i / 2].channels};
        struct norms s = begin(i % 2 ? CVY_BF16 : CVY_F16, CVY_ACTIVATION_RELU, &size, i % 2);

        check_block_end(&s, products[i / 2].outputs);
        end(&s, i % 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks_may_be_bits), cmocka_unit_test(two_are_done_at_once),
                                       cmocka_unit_test(a_pool_takes_in_its_batch_norm),
                                       cmocka_unit_test(a_gradient_of_data_ends_a_block)};

    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
