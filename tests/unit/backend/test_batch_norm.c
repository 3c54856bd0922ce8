/* Batch norms beside convolutions and gradients that do a part of their work: statistics, or the sums of the gradient,
 * are given, also where the batches of several ranks count as one; what passes the activation is kept in bits. */
#include "backend/cpu/sign.h"
#include "ops/ops.h"
#include "support_checker.h"
#include "support_test.h"

static cvy_device *ref;
/* Of the CPU, by instruction set (NULL: the processor's) and threads; whether results go past the cache. */
static struct tested {
    const char *isa;
    int threads;
    bool past;
    cvy_device *device;
} tested[] = {{NULL, 1, false, NULL}, {NULL, 3, true, NULL}, {"avx2", 3, false, NULL}, {"base", 2, false, NULL}};
enum { DEVICES = sizeof tested / sizeof *tested };

static int open_devices(void **state)
{
    assert_int_equal(cvy_device_open("ref", 2, &ref), CVY_OK);
    for (int i = 0; i < DEVICES; i++) {
        if (tested[i].isa)
            setenv("CONVOY_CPU_ISA", tested[i].isa, 1);
        assert_int_equal(cvy_device_open("cpu", tested[i].threads, &tested[i].device), CVY_OK);
        cpu_of(tested[i].device)->stream_bytes = tested[i].past ? 0 : SIZE_MAX;
        unsetenv("CONVOY_CPU_ISA");
    }
    return 0;
}

static int close_devices(void **state)
{
    cvy_device_close(ref);
    for (int i = 0; i < DEVICES; i++)
        cvy_device_close(tested[i].device);
    return 0;
}

/* ---- ranks ---- */

/* What the other rank adds is half as much again as this one's. */
static cvy_status add_half_again(void *context, double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] *= 2.5;
    return CVY_OK;
}

static void set_ranks(cvy_device *device, int ranks)
{
    device->ranks = ranks;
    device->sum_ranks = ranks > 1 ? add_half_again : NULL;
}

static struct kernel_case norm_case(enum cvy_op op, struct cvy_shape x)
{
    struct kernel_case kernel = kernel_begin(op, DATA_FLOATS, "given");

    kernel.images = 1U << 0 | 1U << 5;
    kernel.desc.attr.batch_norm =
        (struct cvy_batch_norm_attr){.eps = 1e-3f, .momentum = 0.3f, .activation = CVY_ACTIVATION_RELU};
    kernel_input(&kernel, x, FILL_DYADIC);
    return kernel;
}

/* The variance of all is 1.25 (variance + mean^2) - 1.5625 mean^2, which must not be negative. */
static struct kernel_case given_statistics(struct cvy_shape x)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    struct kernel_case kernel = norm_case(CVY_OP_BATCH_NORM, x);

    for (int i = 0; i < 3; i++)
        kernel_input(&kernel, c, FILL_SMALL);
    kernel_input(&kernel, c, FILL_POSITIVE);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_input(&kernel, c, FILL_SMALL);
    kernel_input(&kernel, c, FILL_POSITIVE);
    kernel_output(&kernel, x, (struct kernel_bound){.ulps = 16, .scale = 8});
    for (int i = 0; i < 4; i++)
        kernel_output(&kernel, c, kernel_few);
    return kernel;
}

static struct kernel_case given_sums(struct cvy_shape x)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    struct kernel_case kernel = norm_case(CVY_OP_BATCH_NORM_BWD, x);

    for (int i = 0; i < 3; i++)
        kernel_input(&kernel, c, FILL_SMALL);
    kernel_input(&kernel, c, FILL_POSITIVE);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_absent_input(&kernel);
    kernel_absent_input(&kernel);
    for (int i = 0; i < 2; i++)
        kernel_input(&kernel, c, FILL_SMALL);
    kernel_output(&kernel, x, (struct kernel_bound){.ulps = 16, .scale = 8});
    kernel.desc.outputs = 3;
    return kernel;
}

static void check_case(struct kernel_case *kernel, enum cvy_dtype dtype)
{
    const struct cvy_op_info *const info = &cvy_ops[kernel->desc.op];

    kernel_fill_inputs(kernel, 3);
    assert_int_equal(kernel_reference(kernel, ref), CVY_OK);
    if (dtype != CVY_F32)
        assert_int_equal(kernel_narrow(kernel, ref, dtype, info->f32_inputs, info->f32_outputs), CVY_OK);
    for (int i = 0; i < DEVICES; i++)
        for (int variant = 0; variant < VARIANT_COUNT; variant++) {
            struct kernel_run run = {.variant = (enum kernel_variant)variant, .in_place = -1};
            kernel_run(kernel, tested[i].device, &run);
            kernel_compare(kernel, &run);
            if (run.failure[0])
                fail_msg("%s %s: %s", kernel->name, cvy_dtype_name(dtype), run.failure);
            kernel_run_release(&run);
        }
    kernel_case_release(kernel);
}

static void what_is_given_is_of_one_rank(void **state)
{
    const struct cvy_shape shapes[] = {cvy_shape4(3, 32, 5, 5), cvy_shape4(2, 80, 3, 2), cvy_shape4(2, 5, 4, 4)};

    for (int ranks = 1; ranks <= 2; ranks++) {
        set_ranks(ref, ranks);
        for (int i = 0; i < DEVICES; i++)
            set_ranks(tested[i].device, ranks);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int narrow = 0; narrow < 2; narrow++) {
                struct kernel_case forward = given_statistics(shapes[s]), backward = given_sums(shapes[s]);
                check_case(&forward, narrow ? CVY_BF16 : CVY_F32);
                check_case(&backward, narrow ? CVY_BF16 : CVY_F32);
            }
    }
    set_ranks(ref, 1);
    for (int i = 0; i < DEVICES; i++)
        set_ranks(tested[i].device, 1);
}

/* ---- what passes the activation, in bits ---- */

static float value_of(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool passes(float y, enum cvy_activation activation)
{
    return activation == CVY_ACTIVATION_NONE || (y > 0 && (activation == CVY_ACTIVATION_RELU || y < 6));
}

/* Numbers around 0 and 6; SPECIAL: and those that are none. */
static struct kernel_case kept_sign(struct cvy_shape x, enum kernel_data data, enum cvy_activation activation,
                                    bool residual, bool given)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    struct kernel_case kernel = norm_case(CVY_OP_BATCH_NORM, x);

    kernel.data = data;
    kernel.desc.attr.batch_norm.activation = activation;
    kernel.fill[0] = FILL_RARE;
    kernel_input(&kernel, c, FILL_EIGHTHS);
    kernel_input(&kernel, c, activation == CVY_ACTIVATION_RELU6 ? FILL_SIXES : FILL_EIGHTHS);
    kernel_input(&kernel, c, FILL_EIGHTHS);
    kernel_input(&kernel, c, FILL_POSITIVE);
    if (residual)
        kernel_input(&kernel, x, FILL_RARE);
    else
        kernel_absent_input(&kernel);
    if (given) {
        kernel_input(&kernel, c, FILL_EIGHTHS);
        kernel_input(&kernel, c, FILL_POSITIVE);
    }
    kernel_output(&kernel, x, (struct kernel_bound){.ulps = 16, .scale = 16});
    for (int i = 0; i < 4; i++)
        kernel_output(&kernel, c, kernel_few);
    kernel_output(&kernel, x, kernel_exact);
    return kernel;
}

/* The bits are those of the y that is stored, and the reference's but where that is next to 0 or 6 or no number. */
static void check_bits(const struct kernel_case *kernel, const struct kernel_run *run)
{
    const enum cvy_activation activation = kernel->desc.attr.batch_norm.activation;
    const uint16_t *const y = run->got[0], *const sign = run->got[5];
    const float *const want_y = kernel->want[0], *const want = kernel->want[5];

    for (int64_t i = 0; i < cvy_shape_elements(&kernel->desc.in[0].shape); i++) {
        if (sign[i] != (passes(value_of(y[i]), activation) ? 0x3f80 : 0))
            fail_msg("%s: bit %lld of %g is %g", kernel->name, (long long)i, (double)value_of(y[i]),
                     (double)value_of(sign[i]));
        if (fabsf(want_y[i]) > 0x1p-8f && fabsf(want_y[i] - 6) > 0x1p-4f)
            assert_true(value_of(sign[i]) == want[i]);
    }
}

/* With the sign and without: the same y. Then in place. */
static void check_kept(struct kernel_case *kernel, cvy_device *device, enum kernel_variant variant)
{
    struct kernel_case without = *kernel;

    without.desc.outputs = 5;
    without.desc.out[5] = (struct cvy_tensor){.shape = {.rank = -1}};
    for (int in_place = -1; in_place < 1; in_place++) {
        struct kernel_run run = {.variant = variant, .in_place = in_place},
                          other = {.variant = VARIANT_NHWC, .in_place = -1};
        kernel_run(kernel, device, &run);
        assert_string_equal(run.failure, "");
        assert_int_equal(run.ran_in_place, in_place == 0);
        assert_true(cpu_is_sign(&run.desc.out[5].layout));
        check_bits(kernel, &run);
        kernel_run(&without, device, &other);
        assert_string_equal(other.failure, "");
        for (int i = 0; i < 5; i++)
            assert_memory_equal(run.got[i], other.got[i],
                                (size_t)cvy_shape_elements(&kernel->desc.out[i].shape) *
                                    cvy_dtype_size(kernel->desc.out[i].dtype));
        kernel_compare(&without, &other);
        assert_string_equal(other.failure, "");
        kernel_run_release(&run);
        kernel_run_release(&other);
    }
}

static void narrow(struct kernel_case *kernel)
{
    const struct cvy_op_info *const info = &cvy_ops[kernel->desc.op];

    kernel_fill_inputs(kernel, 5);
    assert_int_equal(kernel_narrow(kernel, ref, CVY_BF16, info->f32_inputs, info->f32_outputs), CVY_OK);
}

static void bits_are_those_of_y(void **state)
{
    /* So few images that their channels are shared out: words have one thread each. */
    const struct cvy_shape shapes[] = {cvy_shape4(1, 96, 3, 3), cvy_shape4(3, 32, 5, 2), cvy_shape4(2, 160, 1, 1),
                                       cvy_shape4(1, 1120, 7, 1)};

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int form = 0; form < 12; form++) {
            struct kernel_case kernel = kept_sign(shapes[s], form % 2 ? DATA_SPECIAL : DATA_FLOATS,
                                                  (enum cvy_activation)(form / 2 % 3), form >= 6, form % 4 > 0);
            narrow(&kernel);
            for (int i = 0; i < DEVICES; i++)
                for (int variant = 0; variant < VARIANT_COUNT; variant++)
                    check_kept(&kernel, tested[i].device, (enum kernel_variant)variant);
            kernel_case_release(&kernel);
        }
}

/* Ones and zeros that mask the gradient, as numbers, and for `bits` as a sign. */
static struct kernel_case masked(struct cvy_shape x, enum cvy_activation activation, bool two, bool residual)
{
    const struct cvy_shape c = cvy_shape1(x.dim[1]);
    struct kernel_case kernel = norm_case(CVY_OP_BATCH_NORM_BWD, x);
    const size_t count = (size_t)cvy_shape_elements(&x);
    float *const ones = malloc(count * sizeof *ones);

    kernel.desc.attr.batch_norm.activation = activation;
    kernel.images |= 1U << 7;
    for (int i = 0; i < 3; i++)
        kernel_input(&kernel, c, FILL_EIGHTHS);
    kernel_input(&kernel, c, FILL_POWERS);
    kernel_input(&kernel, x, FILL_SMALL);
    kernel_input(&kernel, x, FILL_GIVEN);
    for (size_t i = 0; i < count; i++)
        ones[i] = (float)(i * 2654435761U >> 7 & 1);
    kernel.in[6] = ones;
    if (two)
        kernel_input(&kernel, x, FILL_SMALL);
    kernel_output(&kernel, x, (struct kernel_bound){.ulps = 16, .scale = 8});
    for (int i = 0; i < 2; i++)
        kernel_output(&kernel, c, (struct kernel_bound){.ulps = 16, .scale = 64});
    if (residual)
        kernel_output(&kernel, x, kernel_exact);
    return kernel;
}

static void check_masked(struct kernel_case *kernel, cvy_device *device, enum kernel_variant variant, int in_place)
{
    struct kernel_run numbers = {.variant = VARIANT_NHWC, .in_place = -1},
                      bits = {.variant = variant, .in_place = in_place};

    kernel->images |= 1U << 6; /* all channels-last: the same loops, and sums */
    kernel_run(kernel, device, &numbers);
    kernel->images &= ~(1U << 6);
    kernel_compare(kernel, &numbers);
    assert_string_equal(numbers.failure, "");
    kernel->desc.in[6].layout = cpu_sign_layout();
    kernel_run(kernel, device, &bits);
    assert_string_equal(bits.failure, "");
    assert_true(cpu_is_sign(&bits.desc.in[6].layout));
    kernel->desc.in[6].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    for (int i = 0; i < kernel->desc.outputs; i++)
        assert_memory_equal(bits.got[i], numbers.got[i],
                            (size_t)cvy_shape_elements(&kernel->desc.out[i].shape) *
                                cvy_dtype_size(kernel->desc.out[i].dtype));
    kernel_run_release(&numbers);
    kernel_run_release(&bits);
}

static void bits_mask_as_y_does(void **state)
{
    const struct cvy_shape shapes[] = {cvy_shape4(1, 96, 3, 3), cvy_shape4(3, 32, 5, 2), cvy_shape4(1, 1120, 7, 1)};

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int form = 0; form < 12; form++) {
            struct kernel_case kernel = masked(shapes[s], (enum cvy_activation)(form % 3), form / 3 % 2, form / 6);
            narrow(&kernel);
            for (int i = 0; i < DEVICES; i++)
                for (int variant = 0; variant < VARIANT_COUNT; variant++) {
                    check_masked(&kernel, tested[i].device, (enum kernel_variant)variant, -1);
                    check_masked(&kernel, tested[i].device, (enum kernel_variant)variant, 0);
                }
            kernel_case_release(&kernel);
        }
}

static void assert_refused(struct kernel_case *kernel, const char *words)
{
    struct kernel_run run = {.variant = VARIANT_NHWC, .in_place = -1};

    assert_false(kernel_prepare_only(kernel, tested[0].device, &run));
    if (!strstr(run.failure, words))
        fail_msg("\"%s\" does not speak of \"%s\"", run.failure, words);
    kernel_case_release(kernel);
}

static void what_has_no_bits_is_refused(void **state)
{
    struct kernel_case kernel = kept_sign(cvy_shape4(2, 64, 3, 3), DATA_FLOATS, CVY_ACTIVATION_RELU, true, true);

    assert_refused(&kernel, "images of bf16 with a multiple of 32");
    kernel = kept_sign(cvy_shape4(2, 48, 3, 3), DATA_FLOATS, CVY_ACTIVATION_RELU, true, true);
    narrow(&kernel);
    assert_refused(&kernel, "images of bf16 with a multiple of 32");
    kernel = kept_sign(cvy_shape4(2, 64, 3, 3), DATA_FLOATS, CVY_ACTIVATION_RELU, true, true);
    narrow(&kernel);
    kernel.desc.out[0].shape.rank = -1;
    assert_refused(&kernel, "kept beside y");
    kernel = given_sums(cvy_shape4(2, 64, 3, 3));
    kernel.desc.out[1] = kernel.desc.in[1];
    assert_refused(&kernel, "dx is the only output");
    kernel = given_sums(cvy_shape4(2, 64, 3, 3));
    kernel.desc.in[7] = kernel.desc.in[0];
    assert_refused(&kernel, "there is one dy");
    kernel = masked(cvy_shape4(2, 64, 3, 3), CVY_ACTIVATION_RELU, false, false);
    kernel.desc.in[6].layout = cpu_sign_layout();
    kernel.desc.in[6].dtype = CVY_BF16;
    assert_refused(&kernel, "input 6 is bf16");
}

RUN_TESTS(open_devices, close_devices, TEST(what_is_given_is_of_one_rank), TEST(bits_are_those_of_y),
          TEST(bits_mask_as_y_does), TEST(what_has_no_bits_is_refused))
