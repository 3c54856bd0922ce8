/* Batch norms that are given their statistics, or the sums of their gradient, where the batches of several ranks count
 * as one. */
#include "ops/ops.h"
#include "support_checker.h"
#include "support_test.h"

enum { DEVICES = 2 };
static cvy_device *ref, *cpu[DEVICES]; /* with 1 and with 3 threads */

static int open_devices(void **state)
{
    assert_int_equal(cvy_device_open("ref", 2, &ref), CVY_OK);
    for (int i = 0; i < DEVICES; i++)
        assert_int_equal(cvy_device_open("cpu", 1 + 2 * i, &cpu[i]), CVY_OK);
    return 0;
}

static int close_devices(void **state)
{
    cvy_device_close(ref);
    for (int i = 0; i < DEVICES; i++)
        cvy_device_close(cpu[i]);
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
            kernel_run(kernel, cpu[i], &run);
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
            set_ranks(cpu[i], ranks);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int narrow = 0; narrow < 2; narrow++) {
                struct kernel_case forward = given_statistics(shapes[s]), backward = given_sums(shapes[s]);
                check_case(&forward, narrow ? CVY_BF16 : CVY_F32);
                check_case(&backward, narrow ? CVY_BF16 : CVY_F32);
            }
    }
    set_ranks(ref, 1);
    for (int i = 0; i < DEVICES; i++)
        set_ranks(cpu[i], 1);
}

RUN_TESTS(open_devices, close_devices, TEST(what_is_given_is_of_one_rank))
