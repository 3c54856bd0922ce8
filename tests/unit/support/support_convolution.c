#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support_convolution.h"
#include "support_executor.h"
#include "support_test.h"

static size_t count_of(const struct cvy_tensor *tensor)
{
    return (size_t)cvy_shape_elements(&tensor->shape);
}

static void *memory_of(size_t bytes)
{
    void *const memory = cvy_calloc_aligned(bytes);

    assert_non_null(memory);
    return memory;
}

static float *draw_numbers(struct cvy_rng *rng, size_t count)
{
    float *const numbers = memory_of(count * sizeof *numbers);

    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)cvy_rng_below(rng, 2001) / 1000 - 1;
    return numbers;
}

struct cvy_tensor convolution_tensor(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct cvy_tensor){.shape = {.rank = 4, .dim = {a, b, c, d}}, .dtype = CVY_F32};
}

int64_t convolution_outputs(const struct cvy_conv2d_attr *attr, int axis, int64_t input)
{
    const int64_t window = (int64_t)attr->dilation[axis] * (attr->kernel[axis] - 1) + 1;
    const int64_t room = input + attr->pad[2 * axis] + attr->pad[2 * axis + 1] - window;

    return room < 0 ? 0 : room / attr->stride[axis] + 1;
}

static bool is_blocked(const struct convolution *p, const struct cvy_tensor *image)
{
    return image == &p->y || image->shape.dim[1] % p->block == 0;
}

/* With the zeros of the last block. */
static size_t image_count(const struct convolution *p, const struct cvy_tensor *image)
{
    const int64_t *const dim = image->shape.dim;
    const int64_t blocks = (dim[1] + p->block - 1) / p->block;

    return (size_t)(dim[0] * (is_blocked(p, image) ? blocks * p->block : dim[1]) * dim[2] * dim[3]);
}

/* Element of an image. */
static size_t place_of(const struct convolution *p, const struct cvy_tensor *image, int64_t n, int64_t c, int64_t pixel)
{
    const int64_t pixels = image->shape.dim[2] * image->shape.dim[3], block = is_blocked(p, image) ? p->block : 1;
    const int64_t blocks = (image->shape.dim[1] + block - 1) / block;

    return (size_t)(((n * blocks + c / block) * pixels + pixel) * block + c % block);
}

static const struct cvy_tensor *output_of(const struct convolution *p)
{
    return p->op == CVY_OP_CONV2D ? &p->y : p->op == CVY_OP_CONV2D_BWD_DATA ? &p->x : &p->w;
}

static size_t result_count(const struct convolution *p)
{
    return p->op == CVY_OP_CONV2D_BWD_WEIGHTS ? count_of(&p->w) : image_count(p, output_of(p));
}

static float *draw_image(const struct convolution *p, const struct cvy_tensor *image, struct cvy_rng *rng)
{
    const int64_t *const dim = image->shape.dim;
    float *const numbers = draw_numbers(rng, image_count(p, image));

    for (int64_t n = 0; n < dim[0] && is_blocked(p, image); n++)
        for (int64_t c = dim[1]; c % p->block != 0; c++)
            for (int64_t i = 0; i < dim[2] * dim[3]; i++)
                numbers[place_of(p, image, n, c, i)] = 0;
    return numbers;
}

void convolution_draw(struct convolution *p, cvy_device *device, struct cvy_rng *rng)
{
    p->block = cpu_block(&(struct cvy_layout){.kind = cpu_of(device)->blocked});
    if (p->op == CVY_OP_CONV2D) {
        p->bias = cvy_rng_below(rng, 2);
        p->residual = cvy_rng_below(rng, 2);
        p->attr.activation = cvy_rng_below(rng, 3);
    }
    p->images[0] = draw_image(p, &p->x, rng);
    p->images[1] = draw_image(p, &p->y, rng);
    p->weights = draw_numbers(rng, count_of(&p->w));
    p->shift = draw_numbers(rng, (size_t)p->w.shape.dim[0]);
    p->more = draw_image(p, &p->y, rng);
    p->result = memory_of(result_count(p) * sizeof *p->result);
    p->expected = memory_of(result_count(p) * sizeof *p->expected);
    p->size = memory_of(result_count(p) * sizeof *p->size);
}

void convolution_release(struct convolution *p)
{
    void *const all[] = {p->images[0], p->images[1], p->weights, p->shift, p->more, p->result, p->expected, p->size};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cvy_free_aligned(all[i]);
}

/* What belongs to one pixel of y, one of x and one tap. */
static void add_tap(struct convolution *p, int64_t n, int64_t x_pixel, int64_t y_pixel, int64_t tap)
{
    const int64_t kernels = p->w.shape.dim[0], channels = p->w.shape.dim[1];
    const int64_t taps = p->w.shape.dim[2] * p->w.shape.dim[3];

    for (int64_t k = 0; k < kernels; k++)
        for (int64_t c = 0; c < channels; c++) {
            const size_t x = place_of(p, &p->x, n, c, x_pixel), y = place_of(p, &p->y, n, k, y_pixel);
            const size_t w = (size_t)((k * channels + c) * taps + tap);
            const size_t to = p->op == CVY_OP_CONV2D ? y : p->op == CVY_OP_CONV2D_BWD_DATA ? x : w;
            const double a = (double)(p->op == CVY_OP_CONV2D_BWD_DATA ? p->images[1][y] : p->images[0][x]);
            const double b = (double)(p->op == CVY_OP_CONV2D_BWD_WEIGHTS ? p->images[1][y] : p->weights[w]);
            p->expected[to] += a * b;
            p->size[to] += fabs(a * b);
        }
}

static void finish(struct convolution *p)
{
    const int64_t *const y = p->y.shape.dim;

    for (int64_t n = 0; n < y[0]; n++)
        for (int64_t k = 0; k < y[1]; k++)
            for (int64_t i = 0; i < y[2] * y[3]; i++) {
                double *const to = &p->expected[place_of(p, &p->y, n, k, i)];
                *to += p->bias ? (double)p->shift[k] : 0;
                *to += p->residual ? (double)p->more[place_of(p, &p->y, n, k, i)] : 0;
                if (p->attr.activation != CVY_ACTIVATION_NONE)
                    *to = fmax(*to, 0);
                if (p->attr.activation == CVY_ACTIVATION_RELU6)
                    *to = fmin(*to, 6);
            }
}

static void expect(struct convolution *p)
{
    const int64_t *const x = p->x.shape.dim, *const y = p->y.shape.dim;
    const int64_t columns = p->attr.kernel[1], taps = p->attr.kernel[0] * columns;

    for (int64_t n = 0; n < y[0]; n++)
        for (int64_t i = 0; i < y[2] * y[3]; i++)
            for (int64_t tap = 0; tap < taps; tap++) {
                const int64_t h = i / y[3] * p->attr.stride[0] + tap / columns * p->attr.dilation[0] - p->attr.pad[0];
                const int64_t w = i % y[3] * p->attr.stride[1] + tap % columns * p->attr.dilation[1] - p->attr.pad[2];
                if (h >= 0 && h < x[2] && w >= 0 && w < x[3])
                    add_tap(p, n, h * x[3] + w, i, tap);
            }
    if (p->op == CVY_OP_CONV2D)
        finish(p);
}

struct cvy_op_desc convolution_describe(const struct convolution *p)
{
    struct cvy_op_desc desc = executor_desc(p->op, p->op == CVY_OP_CONV2D ? 4 : 2, 1);

    desc.attr.conv2d = p->attr;
    desc.training = p->op != CVY_OP_CONV2D;
    desc.in[0] = p->op == CVY_OP_CONV2D_BWD_DATA ? p->w : p->x;
    desc.in[1] = p->op == CVY_OP_CONV2D ? p->w : p->y;
    desc.out[0] = *output_of(p);
    if (p->bias)
        desc.in[2] = (struct cvy_tensor){.shape = {.rank = 1, .dim = {p->y.shape.dim[1]}}, .dtype = CVY_F32};
    if (p->residual)
        desc.in[3] = p->y;
    return desc;
}

/* Weights in the layout that the kernel asks for; released by the caller. */
static float *pack_weights(const struct convolution *p, const struct convolution_kernel *kernel, cvy_device *device,
                           const struct cvy_tensor *wanted)
{
    float *const to = memory_of(cpu_tensor_bytes(device, wanted));
    struct cvy_op_desc there = {.op = CVY_OP_REORDER, .inputs = 1, .outputs = 1, .in = {p->w}, .out = {*wanted}};
    struct cvy_kernel_plan plan = {0};

    assert_int_equal(kernel->prepare_weights(device, &there, &plan), CVY_OK);
    assert_int_equal(kernel->run_weights(device, &plan, (void *[]){p->weights}, (void *[]){to}, NULL), CVY_OK);
    cpu_state_release(device, &plan);
    return to;
}

static void run(struct convolution *p, const struct convolution_kernel *kernel, cvy_device *device, int number,
                bool over)
{
    const bool gradient = p->op == CVY_OP_CONV2D_BWD_WEIGHTS, backward = p->op == CVY_OP_CONV2D_BWD_DATA;
    const struct cvy_kernel row = {.op = p->op};
    struct cvy_op_desc desc = convolution_describe(p);
    struct cvy_kernel_plan plan = {.kernel = &row, .in_place = {-1}};
    const size_t bytes = result_count(p) * sizeof *p->result;

    if (kernel->prepare(device, &desc, &plan) != CVY_OK)
        fail_msg("problem %d: %s", number, cvy_error());
    assert_int_equal(plan.in_place[0], p->residual ? 3 : -1);
    void *const scratch = memory_of(plan.scratch_bytes);
    memset(scratch, 0xff, plan.scratch_bytes); /* NaN */
    memset(p->result, 0xff, bytes);
    float *const weights = gradient ? NULL : pack_weights(p, kernel, device, &desc.in[backward ? 0 : 1]);
    void *in[CVY_MAX_INPUTS] = {backward ? weights : p->images[0], p->op == CVY_OP_CONV2D ? weights : p->images[1]};
    void *out[] = {p->result};
    if (p->bias)
        in[2] = p->shift;
    if (p->residual)
        in[3] = p->more;
    if (p->residual && over) {
        memcpy(p->result, p->more, bytes);
        in[3] = p->result;
    }
    assert_int_equal(kernel->run(device, &plan, in, out, scratch), CVY_OK);
    cpu_state_release(device, &plan);
    cvy_free_aligned(scratch);
    cvy_free_aligned(weights);
}

static void check(const struct convolution *p, int number, double roundings)
{
    double largest = 1;

    for (size_t i = 0; i < result_count(p); i++)
        largest = fmax(largest, p->size[i]);
    for (size_t i = 0; i < result_count(p); i++) {
        const double off = fabs((double)p->result[i] - p->expected[i]) / (0x1p-24 * largest);
        if (!(off <= roundings))
            fail_msg("problem %d: number %zu is %.9g, not %.9g", number, i, (double)p->result[i], p->expected[i]);
    }
}

void convolution_try(struct convolution *p, const struct convolution_kernel *kernel, cvy_device *const *devices,
                     int count, int number, double roundings)
{
    const size_t bytes = result_count(p) * sizeof *p->result;
    void *const first = memory_of(bytes);

    expect(p);
    run(p, kernel, devices[0], number, false);
    check(p, number, roundings);
    memcpy(first, p->result, bytes);
    for (int i = 1; i < count; i++) {
        run(p, kernel, devices[i], number, i + 1 == count);
        assert_memory_equal(first, p->result, bytes);
    }
    cvy_free_aligned(first);
}
