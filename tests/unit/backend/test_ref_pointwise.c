/* The reference kernels of pooling, of what works element by element, and of what makes the input from images, against
 * results worked out by hand. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "support_executor.h"

/* A few roundings of numbers below 10 in double. */
static const double rounding = 1e-14;

static struct cvy_op_desc pool_desc(int32_t kernel, int32_t stride, int32_t pad, struct cvy_shape x, struct cvy_shape y)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_MAX_POOL, 1, 2);

    desc.attr.pool = (struct cvy_pool_attr){.kernel = {kernel, kernel},
                                            .stride = {stride, stride},
                                            .pad = {pad, pad, pad, pad},
                                            .input = {(int32_t)x.dim[2], (int32_t)x.dim[3]}};
    desc.in[0] = executor_tensor(CVY_F64, x);
    desc.out[0] = executor_tensor(CVY_F64, y);
    desc.out[1] = executor_tensor(CVY_U8, y);
    return desc;
}

static void max_pool_takes_the_first_maximum_and_never_padding(void **state)
{
    /* 3x3 window, stride 2, padding 1 over 3x3: corners of 2x2. */
    const double x[] = {-5, -4, -4, -6, -4, -9, -7, -8, -INFINITY};
    double y[4];
    uint8_t index[4];
    struct cvy_op_desc desc = pool_desc(3, 2, 1, cvy_shape4(1, 1, 3, 3), cvy_shape4(1, 1, 2, 2));

    executor_run_checked(*state, &desc, (const void *[]){x}, (void *[]){y, index});
    executor_same(y, (const double[]){-4, -4, -4, -4}, 4, 0);
    /* In window positions r * 3 + s: (0,1) of the image is at (1,2) of the first window, at (1,0) of the second; (1,1)
     * is at (0,2) of the third and at (0,0) of the fourth. */
    assert_memory_equal(index, ((const uint8_t[]){5, 3, 2, 0}), 4);
}

static void max_pool_passes_infinity_and_nan(void **state)
{
    const double x[] = {-INFINITY, -INFINITY, 1, NAN, 2, INFINITY, NAN, NAN};
    double y[2];
    uint8_t index[2];
    struct cvy_op_desc desc = pool_desc(2, 2, 0, cvy_shape4(1, 1, 2, 4), cvy_shape4(1, 1, 1, 2));
    double all[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, one[1];

    /* Rows -inf -inf 1 NaN and 2 inf NaN NaN: the maximum of the first window is inf, of the second its first NaN. */
    executor_run_checked(*state, &desc, (const void *[]){x}, (void *[]){y, index});
    executor_same(y, (const double[]){INFINITY, NAN}, 2, 0);
    assert_memory_equal(index, ((const uint8_t[]){3, 1}), 2);
    desc = pool_desc(2, 2, 0, cvy_shape4(1, 1, 2, 2), cvy_shape4(1, 1, 1, 1));
    executor_run_checked(*state, &desc, (const void *[]){all}, (void *[]){one, index});
    assert_true(one[0] == -INFINITY && index[0] == 0);
}

static void max_pool_gradient_adds_where_windows_overlap(void **state)
{
    /* The windows of the first test, all four at the centre of the image. */
    const uint8_t index[] = {8, 6, 2, 0};
    const double dy[] = {1, 10, 100, 1000}, wanted[] = {0, 0, 0, 0, 1111, 0, 0, 0, 0};
    double dx[9];
    struct cvy_op_desc desc = pool_desc(3, 2, 1, cvy_shape4(1, 1, 3, 3), cvy_shape4(1, 1, 2, 2));
    struct cvy_op_desc back = executor_desc(CVY_OP_MAX_POOL_BWD, 2, 1);

    back.attr = desc.attr;
    back.in[0] = desc.out[0];
    back.in[1] = desc.out[1];
    back.out[0] = desc.in[0];
    executor_run_checked(*state, &back, (const void *[]){dy, index}, (void *[]){dx});
    executor_same(dx, wanted, 9, 0);
}

static void relu_and_add(void **state)
{
    const double x[] = {-1, 0, 2, NAN}, b[] = {0.5, -3, 1, 1}, dy[] = {5, 6, 7, 8};
    double y[4];
    struct cvy_op_desc desc = executor_desc(CVY_OP_RELU, 1, 1);

    desc.in[0] = desc.in[1] = desc.out[0] = executor_tensor(CVY_F64, cvy_shape1(4));
    executor_run_checked(*state, &desc, (const void *[]){x}, (void *[]){y});
    executor_same(y, (const double[]){0, 0, 2, NAN}, 4, 0);
    desc.op = CVY_OP_RELU_BWD;
    desc.inputs = 2;
    executor_run_checked(*state, &desc, (const void *[]){y, dy}, (void *[]){y});
    executor_same(y, (const double[]){0, 0, 7, 0}, 4, 0);
    desc.op = CVY_OP_ADD;
    executor_run_checked(*state, &desc, (const void *[]){x, b}, (void *[]){y});
    executor_same(y, (const double[]){-0.5, -3, 3, NAN}, 4, 0);
    desc.attr.add.relu = true;
    executor_run_checked(*state, &desc, (const void *[]){x, b}, (void *[]){y});
    executor_same(y, (const double[]){0, 0, 3, NAN}, 4, 0);
}

static void sigmoid_values(void **state)
{
    /* 1 / (1 + exp(-x)) to 20 digits; the ends neither overflow nor lose the small result's digits. */
    const double x[] = {0, 1, -1, -40, 40, -745, 1000, -1e300, INFINITY, -INFINITY, NAN};
    const double expected[] = {0.5,
                               0.73105857863000487926,
                               0.26894142136999512075,
                               4.2483542552915889773e-18,
                               0.99999999999999999575,
                               4.9406564584124654e-324,
                               1,
                               0,
                               1,
                               0,
                               NAN};
    const double dy[] = {8, -2, 4, 1, 1, 1, 1, 1, 1, 1, 1};
    double y[11], dx[11];
    struct cvy_op_desc desc = executor_desc(CVY_OP_SIGMOID, 1, 1);

    desc.in[0] = desc.in[1] = desc.out[0] = executor_tensor(CVY_F64, cvy_shape1(11));
    executor_run_checked(*state, &desc, (const void *[]){x}, (void *[]){y});
    for (int i = 0; i < 10; i++) /* two roundings and those of the exponential */
        assert_true(fabs(y[i] - expected[i]) <= 4 * DBL_EPSILON * expected[i]);
    assert_true(isnan(y[10]));
    desc.op = CVY_OP_SIGMOID_BWD;
    desc.inputs = 2;
    executor_run_checked(*state, &desc, (const void *[]){expected, dy}, (void *[]){dx});
    executor_same(dx, (const double[]){2, -0.39322386648296370905, 0.78644773296592741810}, 3, rounding);
    assert_true(dx[6] == 0 && dx[7] == 0 && isnan(dx[10]));
}

/* Two images of two channels; a factor of zero, and one that meets infinity. */
static void scaled_channels(void **state)
{
    const double x[] = {1, 2, 3, 4, 5, 6, -INFINITY, 8}, s[] = {2, -3, 0, 0.5};
    const double dy[] = {1, 1, 2, -1, 0.5, 1, 3, 0.25};
    double y[8], ds[4];
    struct cvy_op_desc desc = executor_desc(CVY_OP_SCALE_CHANNELS, 2, 1);

    desc.in[0] = desc.out[0] = executor_tensor(CVY_F64, cvy_shape4(2, 2, 1, 2));
    desc.in[1] = executor_tensor(CVY_F64, cvy_shape2(2, 2));
    executor_run_checked(*state, &desc, (const void *[]){x, s}, (void *[]){y});
    executor_same(y, (const double[]){2, 4, -9, -12, 0, 0}, 6, 0);
    assert_true(y[6] == -INFINITY && y[7] == 4);
    desc = executor_desc(CVY_OP_SCALE_CHANNELS_BWD_SCALE, 2, 1);
    desc.in[0] = desc.in[1] = executor_tensor(CVY_F64, cvy_shape4(2, 2, 1, 2));
    desc.out[0] = executor_tensor(CVY_F64, cvy_shape2(2, 2));
    executor_run_checked(*state, &desc, (const void *[]){x, dy}, (void *[]){ds});
    executor_same(ds, (const double[]){3, 2, 8.5}, 3, 0);
    assert_true(ds[3] == -INFINITY);
}

/* What is added to the product, each part alone and all together: a shift for each channel, an image, the ReLU, which
 * leaves NaN as it is. The shift's factor counts with a shift only. */
static void scaled_channels_with_more(void **state)
{
    const double x[] = {1, 2, 3, 4, 5, 6, NAN, 8}, s[] = {2, -3, 0, 0.5}, shift[] = {8, -16, 4, 2};
    const double residual[] = {-20, 1, 2, 40, -0.5, 0.5, 3, -4};
    const double wanted[8][8] = {
        {2, 4, -9, -12, 0, 0, NAN, 4},         {2, 4, 0, 0, 0, 0, NAN, 4},          {4, 6, -13, -16, 1, 1, NAN, 4.5},
        {4, 6, 0, 0, 1, 1, NAN, 4.5},          {-18, 5, -7, 28, -0.5, 0.5, NAN, 0}, {0, 5, 0, 28, 0, 0.5, NAN, 0},
        {-16, 7, -11, 24, 0.5, 1.5, NAN, 0.5}, {0, 7, 0, 24, 0.5, 1.5, NAN, 0.5},
    };

    for (int form = 0; form < 8; form++) {
        const bool relu = form & 1, shifted = form & 2, added = form & 4;
        struct cvy_op_desc desc = executor_desc(CVY_OP_SCALE_CHANNELS, 4, 1);
        double y[8];

        desc.attr.scale_channels.relu = relu;
        desc.attr.scale_channels.shift_factor = 0.25;
        desc.in[0] = desc.out[0] = executor_tensor(CVY_F64, cvy_shape4(2, 2, 1, 2));
        desc.in[1] = executor_tensor(CVY_F64, cvy_shape2(2, 2));
        if (shifted)
            desc.in[2] = desc.in[1];
        if (added)
            desc.in[3] = desc.in[0];
        executor_run_checked(*state, &desc, (const void *[]){x, s, shifted ? shift : NULL, added ? residual : NULL},
                             (void *[]){y});
        executor_same(y, wanted[form], 8, 0);
    }
}

static void global_average(void **state)
{
    const double x[] = {1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60}, dy[] = {6, 12};
    double y[2], dx[12];
    struct cvy_op_desc desc = executor_desc(CVY_OP_GLOBAL_AVG_POOL, 1, 1);

    desc.in[0] = executor_tensor(CVY_F64, cvy_shape4(1, 2, 2, 3));
    desc.out[0] = executor_tensor(CVY_F64, cvy_shape2(1, 2));
    executor_run_checked(*state, &desc, (const void *[]){x}, (void *[]){y});
    executor_same(y, (const double[]){3.5, 35}, 2, rounding);
    desc = executor_desc(CVY_OP_GLOBAL_AVG_POOL_BWD, 1, 1);
    desc.in[0] = executor_tensor(CVY_F64, cvy_shape2(1, 2));
    desc.out[0] = executor_tensor(CVY_F64, cvy_shape4(1, 2, 2, 3));
    executor_run_checked(*state, &desc, (const void *[]){dy}, (void *[]){dx});
    executor_same(dx, (const double[]){1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}, 12, rounding);
}

static void normalize_reads_nhwc(void **state)
{
    /* Two pixels of three channels. */
    const uint8_t image[] = {0, 100, 200, 10, 110, 255};
    double y[6];
    float y32[6];
    struct cvy_op_desc desc = executor_desc(CVY_OP_NORMALIZE, 1, 1);

    desc.attr.normalize = (struct cvy_normalize_attr){{0, 100, 200}, {2, 4, 5}};
    desc.in[0] = executor_tensor(CVY_U8, cvy_shape4(1, 3, 1, 2));
    desc.in[0].layout.kind = CVY_LAYOUT_NHWC;
    desc.out[0] = executor_tensor(CVY_F64, cvy_shape4(1, 3, 1, 2));
    executor_run_checked(*state, &desc, (const void *[]){image}, (void *[]){y});
    executor_same(y, (const double[]){0, 5, 0, 2.5, 0, 11}, 6, 0);
    desc.out[0].dtype = CVY_F32;
    executor_run_checked(*state, &desc, (const void *[]){image}, (void *[]){y32});
    assert_true(y32[1] == 5 && y32[3] == 2.5F && y32[5] == 11);
    /* The same pixels as numbers, a half more. */
    const float numbers[] = {0.5F, 100.5F, 200.5F, 10.5F, 110.5F, 255.5F};
    desc.in[0].dtype = CVY_F32;
    executor_run_checked(*state, &desc, (const void *[]){numbers}, (void *[]){y32});
    assert_true(y32[0] == 0.25F && y32[1] == 5.25F && y32[2] == 0.125F && y32[3] == 2.625F && y32[5] == 55.5F / 5);
}

static void normalize_mixes_images(void **state)
{
    const uint8_t image[] = {0, 100, 200, 10, 110, 255, 8, 8, 8}; /* three of one pixel */
    const int32_t partner[] = {2, 0, 1};
    const double share[] = {0.25, 0.5, 1};
    const float share32[] = {0.25F, 0.5F, 1};
    double y[9];
    float y32[9];
    struct cvy_op_desc desc = executor_desc(CVY_OP_NORMALIZE, 3, 1);

    desc.attr.normalize = (struct cvy_normalize_attr){{0, 100, 200}, {2, 4, 8}};
    desc.in[0] = executor_tensor(CVY_U8, cvy_shape4(3, 3, 1, 1));
    desc.in[0].layout.kind = CVY_LAYOUT_NHWC;
    desc.in[1] = executor_tensor(CVY_I32, cvy_shape1(3));
    desc.in[2] = executor_tensor(CVY_F64, cvy_shape1(3));
    desc.out[0] = executor_tensor(CVY_F64, cvy_shape4(3, 3, 1, 1));
    executor_run_checked(*state, &desc, (const void *[]){image, partner, share}, (void *[]){y});
    /* Alone: (0, 0, 0), (5, 2.5, 55/8), (4, -23, -24). */
    executor_same(y, (const double[]){3, -17.25, -18, 2.5, 1.25, 55.0 / 16, 4, -23, -24}, 9, 0);
    desc.in[2].dtype = desc.out[0].dtype = CVY_F32;
    executor_run_checked(*state, &desc, (const void *[]){image, partner, share32}, (void *[]){y32});
    for (int i = 0; i < 9; i++)
        assert_true((double)y32[i] == y[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_pool_takes_the_first_maximum_and_never_padding),
        cmocka_unit_test(max_pool_passes_infinity_and_nan),
        cmocka_unit_test(max_pool_gradient_adds_where_windows_overlap),
        cmocka_unit_test(relu_and_add),
        cmocka_unit_test(sigmoid_values),
        cmocka_unit_test(scaled_channels),
        cmocka_unit_test(scaled_channels_with_more),
        cmocka_unit_test(global_average),
        cmocka_unit_test(normalize_reads_nhwc),
        cmocka_unit_test(normalize_mixes_images),
    };
    return cmocka_run_group_tests(tests, executor_setup, executor_teardown);
}
