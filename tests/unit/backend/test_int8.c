/* Integer inference: every byte of the CPU's kernels is the reference's, whatever the shape; whole networks give the
 * same bits on both devices, and nearly the answers of the same network in floats. */
#include "backend/plan.h"
#include "base/rng.h"
#include "graph/int8.h"
#include "network/network.h"
#include "ops/ops.h"
#include "support_executor.h"
#include "support_graph.h"
#include "support_processor.h"
#include "support_test.h"

/* alone: with one thread, whose convolutions write over what they add. */
static cvy_device *ref, *cpu, *alone;
static int woven; /* operations that the kernel of woven sums and ends has taken */
static int tiled; /* that of tile products */

/* The whole program is skipped where the processor lacks what the environment asks for. */
static void needs(const char *variable, const char *value, const char *feature)
{
    const char *asked = getenv(variable);

    if (!asked || strcmp(asked, value) != 0 || strstr(cpu->description, feature))
        return;
    fprintf(stderr, "skipped: %s=%s, and this processor has no %s\n", variable, value, feature);
    exit(77);
}

static int open_devices(void **state)
{
    ref = executor_device("ref", 2);
    cpu = executor_device("cpu", 2);
    alone = executor_device("cpu", 1);
    needs("CONVOY_CPU_ISA", "avx_vnni", "avx_vnni");
    needs("CONVOY_CPU_TILES", "model", "avx512_vnni"); /* which finishes what tiles sum */
    return 0;
}

static int close_devices(void **state)
{
    cvy_device_close(ref);
    cvy_device_close(cpu);
    cvy_device_close(alone);
    return 0;
}

/* ---- single kernels ---- */

static void *random_bytes(size_t size, uint32_t draw)
{
    struct cvy_rng rng = cvy_rng_new(7, CVY_RNG_INIT, 0, draw);
    uint8_t *bytes = malloc(size + 1);

    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)cvy_rng_below(&rng, 256);
    return bytes;
}

/* Of eight output channels after another: weights of which most pairs make products beyond 16 bits, some do, none does.
 */
static int8_t *random_weights(int32_t outputs, size_t each, uint32_t draw)
{
    static const double spreads[] = {0, 30, 14};
    struct cvy_rng rng = cvy_rng_new(7, CVY_RNG_INIT, 3, draw);
    int8_t *w = random_bytes((size_t)outputs * each, draw);

    for (size_t i = 0; i < (size_t)outputs * each; i++) {
        const double spread = spreads[i / each / 8 % 3], value = spread * cvy_rng_normal(&rng);

        if (spread > 0)
            w[i] = (int8_t)(value > 4 * spread ? 4 * spread : value < -4 * spread ? -4 * spread : value);
    }
    return w;
}

static float *random_floats(size_t count, uint32_t draw, double scale)
{
    struct cvy_rng rng = cvy_rng_new(7, CVY_RNG_INIT, 1, draw);
    float *values = malloc((count + 1) * sizeof *values);

    for (size_t i = 0; i < count; i++)
        values[i] = (float)(scale * cvy_rng_normal(&rng));
    return values;
}

static size_t bytes_of(const struct cvy_tensor *tensor)
{
    return (size_t)cvy_shape_elements(&tensor->shape) * cvy_dtype_size(tensor->dtype);
}

static void compare_bytes(const struct cvy_op_desc *desc, void *const *wanted, void *const *got,
                          const struct cvy_kernel *kernel, const char *what)
{
    for (int i = 0; i < desc->outputs; i++) {
        const size_t size = cvy_dtype_size(desc->out[i].dtype), count = bytes_of(&desc->out[i]) / size;

        for (size_t k = 0; k < count; k++) {
            if (memcmp((char *)wanted[i] + k * size, (char *)got[i] + k * size, size) != 0)
                fail_msg("%s, %s: element %zu of output %d differs (%d of the reference, %d)", what, kernel->name, k, i,
                         ((uint8_t *)wanted[i])[k * size], ((uint8_t *)got[i])[k * size]);
        }
    }
}

/* Every kernel of a device that takes the operation; how many those are. */
static int compare_on(cvy_device *device, const struct cvy_op_desc *desc, const void *const *in, void *const *wanted,
                      const char *what)
{
    void *got[2] = {NULL, NULL};
    int kernels = 0;

    for (int i = 0; i < desc->outputs; i++)
        got[i] = calloc(1, bytes_of(&desc->out[i]));
    for (size_t i = 0; i < device->backend->kernel_count; i++) {
        const struct cvy_kernel *kernel = &device->backend->kernels[i];
        struct cvy_op_desc on_cpu = *desc;
        cvy_status status;

        if (kernel->op != desc->op)
            continue;
        for (int k = 0; k < desc->outputs; k++)
            memset(got[k], 0x5a, bytes_of(&desc->out[k]));
        status = executor_run_kernel(device, kernel, &on_cpu, in, got);
        if (status != CVY_OK && status != CVY_UNAVAILABLE)
            fail_msg("%s, %s: %s", what, kernel->name, cvy_error());
        if (status == CVY_OK)
            compare_bytes(desc, wanted, got, kernel, what);
        kernels += status == CVY_OK;
        woven += device == cpu && status == CVY_OK && strcmp(kernel->name, "cpu.conv2d_int8_woven") == 0;
        tiled += device == cpu && status == CVY_OK && strcmp(kernel->name, "cpu.conv2d_int8_tiles") == 0;
        if (device == cpu)
            executor_prepare_starved(device, kernel, desc);
    }
    for (int i = 0; i < desc->outputs; i++)
        free(got[i]);
    return kernels;
}

/* The reference and the CPU, from the same inputs. */
static void compare(const struct cvy_op_desc *desc, const void *const *in, const char *what)
{
    void *wanted[2] = {NULL, NULL};
    struct cvy_op_desc on_ref = *desc;
    int kernels;

    for (int i = 0; i < desc->outputs; i++)
        wanted[i] = calloc(1, bytes_of(&desc->out[i]));
    executor_run_checked(ref, &on_ref, in, wanted);
    kernels = compare_on(cpu, desc, in, wanted, what);
    assert_true(kernels > 0);
    assert_int_equal(compare_on(alone, desc, in, wanted, what), kernels);
    for (int i = 0; i < desc->outputs; i++)
        free(wanted[i]);
}

struct conv_case {
    int32_t n, c, h, w, k, kernel, stride, pad, dilation, groups;
    int32_t zero; /* of x */
    bool residual, floats, bias, matrix;
    bool tiny; /* y's levels, so that everything is beyond them */
    int32_t added_zero;
    enum cvy_activation activation;
};

static void check_conv(const struct conv_case *c)
{
    const int32_t p = (c->h + 2 * c->pad - c->dilation * (c->kernel - 1) - 1) / c->stride + 1;
    const int32_t q = (c->w + 2 * c->pad - c->dilation * (c->kernel - 1) - 1) / c->stride + 1;
    const int32_t inputs = c->c / c->groups, products = inputs * c->kernel * c->kernel;
    struct cvy_op_desc desc = executor_desc(CVY_OP_CONV2D_INT8, 5, 1);
    struct cvy_int8_attr *attr = &desc.attr.int8;
    const void *in[CVY_MAX_INPUTS] = {NULL};
    char what[128];

    attr->conv2d = (struct cvy_conv2d_attr){.kernel = {c->kernel, c->kernel},
                                            .stride = {c->stride, c->stride},
                                            .dilation = {c->dilation, c->dilation},
                                            .pad = {c->pad, c->pad, c->pad, c->pad},
                                            .groups = c->groups,
                                            .activation = c->activation};
    attr->x = (struct cvy_int8_levels){0.02f, c->zero};
    if (!c->floats)
        attr->y = (struct cvy_int8_levels){c->tiny ? 1e-11f : 0.013f, c->activation ? 0 : 128};
    if (c->residual) {
        attr->middle = (struct cvy_int8_levels){0.011f, 128};
        attr->residual = (struct cvy_int8_levels){0.017f, c->added_zero};
    }
    desc.in[0] = executor_tensor(CVY_U8, c->matrix ? cvy_shape2(c->n, c->c) : cvy_shape4(c->n, c->c, c->h, c->w));
    desc.in[1] =
        executor_tensor(CVY_I8, c->matrix ? cvy_shape2(c->k, inputs) : cvy_shape4(c->k, inputs, c->kernel, c->kernel));
    desc.in[2] = executor_tensor(CVY_F32, c->matrix ? cvy_shape2(c->k, 1) : cvy_shape4(c->k, 1, 1, 1));
    desc.out[0] = executor_tensor(c->floats ? CVY_F32 : CVY_U8,
                                  c->matrix ? cvy_shape2(c->n, c->k) : cvy_shape4(c->n, c->k, p, q));
    in[0] = random_bytes(bytes_of(&desc.in[0]), 0);
    in[1] = random_weights(c->k, (size_t)products, 1);
    in[2] = random_floats((size_t)c->k, 2, 0.01 / sqrt(products));
    if (c->bias) {
        desc.in[3] = executor_tensor(CVY_F32, cvy_shape1(c->k));
        in[3] = random_floats((size_t)c->k, 3, 0.5);
    }
    if (c->residual) {
        desc.in[4] = executor_tensor(CVY_U8, desc.out[0].shape);
        in[4] = random_bytes(bytes_of(&desc.out[0]), 4);
    }
    snprintf(what, sizeof what, "convolution %dx%dx%dx%d to %d, %d wide, stride %d, pad %d, groups %d", c->n, c->c,
             c->h, c->w, c->k, c->kernel, c->stride, c->pad, c->groups);
    compare(&desc, in, what);
    for (int i = 0; i < 5; i++)
        free((void *)(uintptr_t)in[i]);
}

/* Widths that fill panels and vectors and that do not, groups that share a panel, three channels, what only the plain
 * loops take; tails of pixels; every form of the end; borders that are wider or narrower than the windows. */
static void convolutions(void **state)
{
    static const struct conv_case cases[] = {
        {2, 64, 7, 9, 64, 1, 1, 0, 1, 1, 0, .bias = true, .activation = CVY_ACTIVATION_RELU},
        {1, 64, 8, 8, 256, 1, 1, 0, 1, 1, 0, .bias = true, .residual = true, .activation = CVY_ACTIVATION_RELU},
        {1, 32, 5, 5, 80, 1, 2, 0, 1, 1, 128, .bias = true},
        {2, 3, 19, 17, 64, 7, 2, 3, 1, 1, 128, .bias = true, .activation = CVY_ACTIVATION_RELU},
        {1, 12, 9, 9, 20, 3, 1, 1, 1, 1, 77, .floats = true, .bias = true},
        {1, 16, 9, 9, 40, 3, 2, 1, 1, 1, 0, .activation = CVY_ACTIVATION_RELU6},
        {1, 16, 11, 11, 48, 3, 1, 2, 2, 1, 128, .matrix = false},
        {2, 128, 7, 7, 128, 3, 1, 1, 1, 32, 0, .bias = true, .activation = CVY_ACTIVATION_RELU},
        {1, 256, 6, 6, 256, 3, 2, 1, 1, 32, 128, .bias = true},
        {1, 32, 6, 6, 32, 3, 1, 1, 1, 4, 0, .bias = true, .residual = true},
        {1, 48, 5, 5, 48, 3, 1, 1, 1, 12, 9, .matrix = false},
        {1, 64, 6, 6, 64, 3, 1, 1, 1, 4, 0, .bias = true},
        {1, 64, 6, 6, 128, 3, 1, 1, 1, 2, 0, .residual = true, .floats = true},
        {1, 8, 5, 5, 16, 3, 1, 1, 1, 2, 0, .matrix = false},
        {1, 5, 6, 6, 7, 3, 1, 1, 1, 1, 128, .bias = true, .residual = true, .activation = CVY_ACTIVATION_RELU},
        {1, 6, 6, 6, 6, 3, 1, 1, 1, 2, 3, .floats = true},
        {1, 96, 6, 6, 96, 3, 1, 1, 1, 6, 0, .bias = true, .activation = CVY_ACTIVATION_RELU},
        {1, 160, 5, 5, 160, 3, 1, 1, 1, 5, 128, .bias = true},
        {2, 80, 5, 4, 80, 3, 2, 1, 1, 5, 7, .residual = true},
        {1, 24, 5, 5, 24, 3, 1, 1, 1, 3, 0, .bias = true},
        {3, 3, 5, 4, 64, 3, 1, 1, 1, 1, 9, .bias = true, .residual = true},
        {1, 3, 40, 37, 70, 7, 2, 3, 1, 1, 128, .bias = true, .activation = CVY_ACTIVATION_RELU},
        {1, 3, 9, 9, 16, 3, 1, 2, 2, 1, 3, .bias = true},
        {2, 1, 6, 9, 64, 5, 3, 1, 1, 1, 0, .bias = true},
        {1, 64, 5, 5, 64, 3, 1, 1, 1, 1, 0, .bias = true, .tiny = true},
        {1, 64, 5, 5, 64, 1, 1, 0, 1, 1, 0, .bias = true, .residual = true, .tiny = true},
        {1, 64, 5, 5, 64, 1, 1, 0, 1, 1, 0, .tiny = true, .activation = CVY_ACTIVATION_RELU},
        {2, 64, 9, 13, 64, 3, 1, 1, 1, 1, 128, .bias = true, .residual = true, .activation = CVY_ACTIVATION_RELU},
        {1, 96, 33, 30, 144, 3, 2, 1, 1, 1, 5, .bias = true},
        {2, 256, 13, 12, 122, 2, 1, 2, 1, 1, 9, .bias = true},
        {1, 20, 9, 12, 24, 5, 3, 3, 2, 1, 0, .residual = true},
        {3, 64, 12, 11, 96, 1, 3, 0, 1, 1, 7, .bias = true, .activation = CVY_ACTIVATION_RELU},
        {1, 64, 5, 6, 32, 1, 2, 1, 1, 1, 7, .bias = true},
        {1, 160, 10, 14, 160, 1, 1, 0, 1, 5, 0, .bias = true, .residual = true},
        {2, 128, 12, 9, 128, 1, 2, 0, 1, 32, 3, .bias = true},
        {2, 80, 11, 3, 80, 3, 3, 1, 1, 5, 38, .floats = true, .bias = true},
        {1, 64, 13, 11, 64, 3, 1, 2, 2, 8, 38, .bias = true, .activation = CVY_ACTIVATION_RELU},
        {1, 192, 8, 9, 96, 3, 1, 1, 1, 3, 0, .bias = true},
        {1, 128, 12, 11, 600, 1, 1, 0, 1, 1, 0, .bias = true, .residual = true, .activation = CVY_ACTIVATION_RELU},
        {1, 64, 13, 11, 200, 3, 1, 1, 1, 1, 0, .bias = true, .activation = CVY_ACTIVATION_RELU},
        {2, 768, 7, 7, 1040, 1, 1, 0, 1, 2, 5, .bias = true},
        {70, 64, 1, 1, 80, 1, 1, 0, 1, 1, 0, .floats = true, .bias = true, .matrix = true},
        {5, 256, 1, 1, 100, 1, 1, 0, 1, 1, 0, .floats = true, .bias = true, .matrix = true},
        {1, 2048, 1, 1, 70, 1, 1, 0, 1, 1, 128, .floats = true, .matrix = true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_conv(&cases[i]);
    if (getenv("CONVOY_CPU_TILES"))
        assert_true(tiled > 0);
}

/* Single pixels whose sums are woven into the ends of others: every form of the end, steps that fill the slots and more
 * than that, pixels that fill tiles and leave each possible rest, several panels and groups of them. */
static void woven_ends(void **state)
{
    static const int32_t inputs[] = {48, 64, 80, 128};
    const int before = woven;
    int32_t cases = 0, refused = 0;

    for (int form = 0; form < 16; form++) {
        cvy_device_close(cpu); /* they remember a limited number of ways to pack weights */
        cvy_device_close(alone);
        cpu = executor_device("cpu", 2);
        alone = executor_device("cpu", 1);
        for (int32_t width = 1; width <= 14; width++, cases++) {
            const struct conv_case c = {.n = 1 + cases % 2,
                                        .c = inputs[cases % 4] * (1 + cases % 3),
                                        .h = 1 + cases % 5,
                                        .w = width,
                                        .k = 64 * (1 + cases % 2) * (1 + cases % 3),
                                        .kernel = 1,
                                        .stride = 1,
                                        .dilation = 1,
                                        .groups = 1 + cases % 3,
                                        .zero = cases % 7 ? 0 : 128,
                                        .residual = form & 1,
                                        .bias = cases % 5 != 0,
                                        .tiny = form & 2,
                                        .activation = form & 4 ? CVY_ACTIVATION_RELU : CVY_ACTIVATION_NONE,
                                        .added_zero = form & 8 ? 77 : 0};

            check_conv(&c);
            refused += c.residual && c.tiny; /* additions beyond 32 bits */
        }
    }
    assert_int_equal(woven - before, strstr(cpu->description, "avx512_vnni") ? cases - refused : 0);
}

/* Whatever scales a file makes, there is a byte, and the same one: factors that are infinite or zero, NaN in between.
 */
static void impossible_scales(void **state)
{
    static const float scales[] = {1e-36f, 1e-20f, 1e-5f, 1, 1e20f, 3e38f};
    const void *in[CVY_MAX_INPUTS] = {random_bytes(64 * 20, 30), random_bytes(64 * 64, 31), NULL, NULL, NULL};
    float multiplier[64], bias[64];
    struct cvy_rng rng = cvy_rng_new(7, CVY_RNG_INIT, 2, 0);

    in[2] = multiplier;
    in[3] = bias;
    for (int draw = 0; draw < 150; draw++) {
        struct cvy_op_desc desc = executor_desc(CVY_OP_CONV2D_INT8, 5, 1);
        struct cvy_int8_attr *attr = &desc.attr.int8;
        const bool add = draw % 3 != 0;
        char what[64];

        attr->conv2d = (struct cvy_conv2d_attr){.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
        attr->conv2d.activation = draw % 2 ? CVY_ACTIVATION_RELU : CVY_ACTIVATION_NONE;
        attr->x = (struct cvy_int8_levels){scales[cvy_rng_below(&rng, 6)], draw % 5 ? 0 : 128};
        attr->y = (struct cvy_int8_levels){scales[cvy_rng_below(&rng, 6)], draw % 4 ? 0 : 128};
        if (add) {
            attr->middle = (struct cvy_int8_levels){scales[cvy_rng_below(&rng, 6)], 128};
            attr->residual = (struct cvy_int8_levels){scales[cvy_rng_below(&rng, 6)], draw % 7 ? 0 : 128};
            in[4] = in[0];
        }
        for (int k = 0; k < 64; k++) {
            multiplier[k] = scales[cvy_rng_below(&rng, 6)] * (k % 2 ? 1.0f : -1.0f);
            bias[k] = scales[cvy_rng_below(&rng, 6)] * (k % 3 ? 1.0f : -1.0f);
        }
        desc.in[0] = executor_tensor(CVY_U8, cvy_shape4(1, 64, 4, 5));
        desc.in[1] = executor_tensor(CVY_I8, cvy_shape4(64, 64, 1, 1));
        desc.in[2] = executor_tensor(CVY_F32, cvy_shape4(64, 1, 1, 1));
        desc.in[3] = executor_tensor(CVY_F32, cvy_shape1(64));
        if (add)
            desc.in[4] = desc.in[0];
        desc.out[0] = desc.in[0];
        snprintf(what, sizeof what, "draw %d", draw);
        compare(&desc, in, what);
        in[4] = NULL;
    }
    free((void *)(uintptr_t)in[0]);
    free((void *)(uintptr_t)in[1]);
}

/* Sums at the ends of their range: what saturating instructions would cut. Two products fill 16 bits, or are one beyond
 * them. */
static void sums_do_not_saturate(void **state)
{
    /* Of the pairs of even steps, and of odd ones: alone they fit into 16 bits up to 128, and together. */
    static const int8_t pairs[][4] = {
        {127, 127, 127, 127}, {-128, -128, -128, -128}, {64, 64, 64, 64},       {65, 64, 65, 64},
        {1, 127, 1, 127},     {2, 127, 2, 127},         {-64, -64, -64, -64},   {-65, -64, -65, -64},
        {-128, 0, -128, 0},   {-1, -128, -1, -128},     {127, -128, 127, -128}, {-127, 127, -127, 127},
        {32, 32, 32, 32},     {32, 32, 32, 33},         {-32, -32, -32, -32},   {-32, -32, -33, -32},
        {127, 0, 0, 1},       {127, 0, 1, 1},           {-128, 0, 0, 0},        {-128, 0, 0, -1},
        {127, -127, 1, -1},   {127, -127, 2, -2},       {64, -64, 64, -64},     {64, -64, 65, -65}};
    enum { PAIRS = sizeof pairs / sizeof *pairs, OUTPUTS = 8 * PAIRS, INPUTS = 64 };
    struct cvy_op_desc desc = executor_desc(CVY_OP_CONV2D_INT8, 5, 1);
    uint8_t x[INPUTS];
    int8_t w[OUTPUTS][INPUTS];
    float one[OUTPUTS], y[OUTPUTS];

    memset(x, 255, sizeof x);
    for (int k = 0; k < OUTPUTS; k++) {
        one[k] = 1;
        for (int i = 0; i < INPUTS; i++)
            w[k][i] = pairs[k / 8][i / 4 % 2 * 2 + i % 2];
    }
    desc.attr.int8.conv2d =
        (struct cvy_conv2d_attr){.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    desc.attr.int8.x.scale = 1;
    desc.in[0] = executor_tensor(CVY_U8, cvy_shape2(1, INPUTS));
    desc.in[1] = executor_tensor(CVY_I8, cvy_shape2(OUTPUTS, INPUTS));
    desc.in[2] = executor_tensor(CVY_F32, cvy_shape2(OUTPUTS, 1));
    desc.out[0] = executor_tensor(CVY_F32, cvy_shape2(1, OUTPUTS));
    executor_run_checked(cpu, &desc, (const void *[]){x, w, one, NULL, NULL}, (void *[]){y});
    for (int k = 0; k < OUTPUTS; k++)
        assert_true(y[k] == INPUTS / 4 * 255.0f *
                                (float)(pairs[k / 8][0] + pairs[k / 8][1] + pairs[k / 8][2] + pairs[k / 8][3]));
}

static void one_image(enum cvy_op op, struct cvy_shape shape, enum cvy_dtype x, enum cvy_dtype y,
                      const struct cvy_int8_attr *attr)
{
    struct cvy_op_desc desc = executor_desc(op, 1, 1);
    void *in;

    desc.attr.int8 = *attr;
    desc.in[0] = executor_tensor(x, shape);
    desc.out[0] =
        executor_tensor(y, op == CVY_OP_GLOBAL_AVG_POOL_INT8 ? cvy_shape2(shape.dim[0], shape.dim[1]) : shape);
    if (op == CVY_OP_MAX_POOL_INT8)
        for (int i = 2; i < 4; i++)
            desc.out[0].shape.dim[i] = (shape.dim[i] + 2 - 3) / 2 + 1;
    in = x == CVY_F32 ? (void *)random_floats(bytes_of(&desc.in[0]) / 4, 5, 1) : random_bytes(bytes_of(&desc.in[0]), 6);
    if (x == CVY_F32)
        ((float *)in)[1] = NAN;
    compare(&desc, (const void *[]){in}, cvy_ops[op].name);
    free(in);
}

static void everything_else(void **state)
{
    const struct cvy_int8_attr attr = {
        .conv2d = {.kernel = {3, 3}, .stride = {2, 2}, .dilation = {1, 1}, .pad = {1, 1, 1, 1}, .groups = 1},
        .normalize = {.mean = {123.7f, 116.3f, 103.5f}, .std = {58.4f, 57.1f, 57.4f}},
        .x = {0.021f, 31},
        .y = {0.017f, 128},
        .residual = {0.008f, 0},
    };
    const struct cvy_shape shapes[] = {cvy_shape4(2, 64, 9, 11), cvy_shape4(1, 3, 7, 5), cvy_shape4(1, 20, 6, 6)};

    for (int i = 0; i < 3; i++) {
        struct cvy_op_desc desc = executor_desc(CVY_OP_ADD_INT8, 2, 1);
        const size_t count = (size_t)cvy_shape_elements(&shapes[i]);
        void *a = random_bytes(count, 8), *b = random_bytes(count, 9);
        float *s = random_floats((size_t)(shapes[i].dim[0] * shapes[i].dim[1]), 10, 1);

        one_image(CVY_OP_QUANTIZE, shapes[i], CVY_F32, CVY_U8, &attr);
        one_image(CVY_OP_DEQUANTIZE, shapes[i], CVY_U8, CVY_F32, &attr);
        one_image(CVY_OP_MAX_POOL_INT8, shapes[i], CVY_U8, CVY_U8, &attr);
        one_image(CVY_OP_GLOBAL_AVG_POOL_INT8, shapes[i], CVY_U8, CVY_F32, &attr);
        desc.attr.int8 = attr;
        desc.in[0] = desc.in[1] = desc.out[0] = executor_tensor(CVY_U8, shapes[i]);
        compare(&desc, (const void *[]){a, b}, "add");
        desc.attr.int8.conv2d.activation = CVY_ACTIVATION_RELU;
        compare(&desc, (const void *[]){a, b}, "add relu");
        desc.op = CVY_OP_SCALE_CHANNELS_INT8;
        desc.in[1] = executor_tensor(CVY_F32, cvy_shape2(shapes[i].dim[0], shapes[i].dim[1]));
        compare(&desc, (const void *[]){a, s}, "scale channels");
        free(a);
        free(b);
        free(s);
    }
    one_image(CVY_OP_QUANTIZE, cvy_shape2(3, 70), CVY_F32, CVY_U8, &attr);
    one_image(CVY_OP_DEQUANTIZE, cvy_shape2(3, 70), CVY_U8, CVY_F32, &attr);
}

static void weights(void **state)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_QUANTIZE_WEIGHTS, 1, 2);
    float *w = random_floats(6 * 5 * 9, 11, 1);

    memset(w, 0, 45 * sizeof *w); /* a channel that died */
    for (int channels = 0; channels < 2; channels++) {
        desc.attr.fake_quantize =
            (struct cvy_fake_quantize_attr){.symmetric = true, .weights = true, .channels = channels};
        desc.in[0] = executor_tensor(CVY_F32, cvy_shape4(6, 5, 3, 3));
        desc.out[0] = executor_tensor(CVY_I8, cvy_shape4(6, 5, 3, 3));
        desc.out[1] = executor_tensor(CVY_F32, cvy_shape4(6, 1, 1, 1));
        compare(&desc, (const void *[]){w}, "weights");
    }
    free(w);
}

/* ---- networks ---- */

enum { SIZE = 32, BATCH = 2, CLASSES = 10 };

/* Parameters of a young network, every quantizer with a range that its values reach. */
static void fill(struct cvy_network *network)
{
    assert_int_equal(cvy_network_initialize(network, 3), CVY_OK);
    set_quantizer_ranges(&network->table, network->store.state);
    network->store.version++;
}

static void run_network(const char *arch, cvy_device *device, bool int8, enum cvy_quantize form, float *logits)
{
    struct cvy_model_options options = network_options(CLASSES, SIZE);
    const struct cvy_architecture *architecture = cvy_architecture_find(arch);
    struct cvy_network network;
    struct cvy_plan plan;
    uint8_t *image = random_bytes(BATCH * SIZE * SIZE * 3, 20);

    options.quantize = form;
    assert_int_equal(cvy_network_open(&network, device, architecture, &options, CVY_F32, false), CVY_OK);
    fill(&network);
    network.int8 = int8;
    if (cvy_network_plan(&network, CVY_MODEL_INFER, BATCH, &plan) != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_true((count_nodes(&plan.graph, CVY_OP_CONV2D_INT8) > 20) == int8);
    if (int8) {
        assert_int_equal(count_nodes(&plan.graph, CVY_OP_CONV2D), 0);
        assert_int_equal(count_nodes(&plan.graph, CVY_OP_FAKE_QUANTIZE), 0);
        assert_int_equal(count_nodes(&plan.graph, CVY_OP_ADD), 0);
    }
    assert_int_equal(cvy_plan_bind(&plan, "image", image), CVY_OK);
    assert_int_equal(cvy_plan_run(&plan, NULL), CVY_OK);
    assert_int_equal(cvy_plan_read_floats(&plan, "logits", logits, BATCH * CLASSES), CVY_OK);
    cvy_plan_close(&plan);
    cvy_network_close(&network);
    free(image);
}

/* Rounded by the same rules, the network in floats differs where a value lies beside a middle between two levels.
 * Floats by the reference: which values do so depends on the kernels. */
static void check_network(const char *arch, enum cvy_quantize form, double tolerance)
{
    float plain[BATCH * CLASSES], first[BATCH * CLASSES], second[BATCH * CLASSES];
    double largest = 0;

    run_network(arch, ref, false, form, plain);
    run_network(arch, cpu, true, form, first);
    run_network(arch, ref, true, form, second);
    assert_memory_equal(first, second, sizeof first);
    for (int i = 0; i < BATCH * CLASSES; i++) {
        const double size = fabs((double)plain[i]); /* fmax ends GCC 12 for 64-bit ARM by an internal error */
        largest = size > largest ? size : largest;
    }
    for (int i = 0; i < BATCH * CLASSES; i++) {
        if (!(fabs((double)first[i] - (double)plain[i]) <= tolerance * largest))
            fail_msg("%s: logit %d is %g in integers, %g in floats (the largest %g)", arch, i, (double)first[i],
                     (double)plain[i], largest);
    }
}

static void networks(void **state)
{
    check_network("resnet18", CVY_QUANTIZE_CHANNELS, 0.02);
    check_network("resnet18", CVY_QUANTIZE_SYMMETRIC, 0.02);
    check_network("resnext50-32x4d", CVY_QUANTIZE_CHANNELS, 0.02);
}

/* Every kernel of a network, in the layouts and with the packed weights that it has there, beside the reference's. */
static void the_check_device(void **state)
{
    float plain[BATCH * CLASSES], checked[BATCH * CLASSES];
    cvy_device *check = executor_device("check:cpu", 2);

    assert_int_equal(check->int8, cpu->int8);
    run_network("resnext50-32x4d", cpu, true, CVY_QUANTIZE_CHANNELS, plain);
    run_network("resnext50-32x4d", check, true, CVY_QUANTIZE_CHANNELS, checked);
    assert_memory_equal(plain, checked, sizeof plain);
    cvy_device_close(check);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(convolutions),    TEST(woven_ends), TEST(impossible_scales), TEST(sums_do_not_saturate),
        TEST(everything_else), TEST(weights),    TEST(networks),          TEST(the_check_device)};

    return processor_is_repeated() ? 77 : cmocka_run_group_tests(tests, open_devices, close_devices);
}
