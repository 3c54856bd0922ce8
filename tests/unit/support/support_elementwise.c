#include "support_elementwise.h"

#include <float.h>

#include "support_checker.h"
#include "support_test.h"

/* An op of one or two vectors on the cpu device. */
static void run_elementwise(enum cvy_op op, int64_t count, const float *a, const float *b, float *y)
{
    struct cvy_op_desc desc = kernel_begin(op, DATA_FLOATS, "elementwise").desc;
    struct cvy_kernel_plan plan;
    desc.inputs = b ? 2 : 1;
    desc.outputs = 1;
    desc.out[0] = (struct cvy_tensor){.shape = cvy_shape1(count), .dtype = CVY_F32};
    for (int i = 0; i < desc.inputs; i++)
        desc.in[i] = desc.out[0];
    assert_int_equal(cvy_kernel_select(suite.cpu, &desc, &plan), CVY_OK);
    void *in[CVY_MAX_INPUTS] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b}, *out[CVY_MAX_OUTPUTS] = {y};
    assert_int_equal(plan.kernel->run(suite.cpu, &plan, in, out, NULL), CVY_OK);
    cvy_kernel_release(suite.cpu, &plan);
}

/* Gradients in the arena begin at any float: kernels that take 16 bytes at a time must not count on more. */
void test_odd_addresses(void **state)
{
    enum { COUNT = 1003 };
    const struct cvy_backend *backend = suite.cpu->backend;
    float a[COUNT], b[COUNT], y[COUNT];
    void *memory[3];
    for (int i = 0; i < COUNT; i++) {
        a[i] = (float)i;
        b[i] = (float)(3 - 2 * i);
    }
    for (int odd = 0; odd < 4; odd++) { /* none of them, or one */
        float *at[3];
        for (int i = 0; i < 3; i++) {
            assert_int_equal(backend->allocate(suite.cpu, (COUNT + 4) * sizeof(float), &memory[i]), CVY_OK);
            at[i] = (float *)memory[i] + (odd == i + 1);
        }
        assert_int_equal(backend->upload(suite.cpu, at[0], a, sizeof(a)), CVY_OK);
        assert_int_equal(backend->upload(suite.cpu, at[1], b, sizeof(b)), CVY_OK);
        run_elementwise(CVY_OP_ADD, COUNT, at[0], at[1], at[2]);
        assert_int_equal(backend->download(suite.cpu, y, at[2], sizeof(y)), CVY_OK);
        for (int i = 0; i < COUNT; i++)
            assert_true(y[i] == a[i] + b[i]);
        for (int i = 0; i < 3; i++)
            backend->release(suite.cpu, memory[i]);
    }
}

#define SIGMOID_ELEMENTS 200003 /* odd: the last vector is not full */
/* Every result to 3 units in its last place (the exponential 1, addition and division a half each, and a unit is up to
 * twice as wide relative to small mantissas), over all x with a result other than 0 and 1; below the normal numbers a
 * unit is the smallest number there is. */
void test_sigmoid_accuracy(void **state)
{
    float *x = malloc(SIGMOID_ELEMENTS * sizeof(float)), *y = malloc(SIGMOID_ELEMENTS * sizeof(float));
    double worst = 0;
    assert_true(x && y);
    for (int i = 0; i < SIGMOID_ELEMENTS; i++)
        x[i] = i % 2 ? (float)(-110 + 220.0 * i / SIGMOID_ELEMENTS)                           /* evenly */
                     : ldexpf(i % 4 ? 1.1f : -1.7f, (int)(40.0 * i / SIGMOID_ELEMENTS) - 30); /* near 0 */
    run_elementwise(CVY_OP_SIGMOID, SIGMOID_ELEMENTS, x, NULL, y);
    for (int i = 0; i < SIGMOID_ELEMENTS; i++) {
        const double exact = 1 / (1 + exp(-(double)x[i]));
        const double unit = fmax(ldexp(1, ilogb(fmax(exact, 0x1p-149)) - 23), 0x1p-149);
        worst = fmax(worst, fabs((double)y[i] - exact) / unit);
    }
    if (!(worst <= 3))
        fail_msg("sigmoid is off by %.3g units in the last place", worst);
    free(x);
    free(y);
}

/* The derivative of the focal loss where no target is 1, for one image of `count` anchors and one column. */
static void run_focal_bwd(int64_t count, const float *x, float *dx)
{
    struct cvy_op_desc desc = kernel_begin(CVY_OP_FOCAL_LOSS_BWD, DATA_FLOATS, "accuracy").desc;
    struct cvy_kernel_plan plan;
    float one = 1;
    int32_t *classes = calloc((size_t)count, sizeof *classes);
    assert_non_null(classes);
    desc.inputs = 4;
    desc.outputs = 1;
    desc.in[0] = desc.out[0] = (struct cvy_tensor){.shape = cvy_shape3(1, count, 1), .dtype = CVY_F32};
    desc.in[1] = (struct cvy_tensor){.shape = cvy_shape2(1, count), .dtype = CVY_I32};
    desc.in[2] = desc.in[3] = (struct cvy_tensor){.shape = cvy_shape0(), .dtype = CVY_F32};
    assert_int_equal(cvy_kernel_select(suite.cpu, &desc, &plan), CVY_OK);
    void *in[CVY_MAX_INPUTS] = {(void *)(uintptr_t)x, classes, &one, &one}, *out[CVY_MAX_OUTPUTS] = {dx};
    assert_int_equal(plan.kernel->run(suite.cpu, &plan, in, out, NULL), CVY_OK);
    cvy_kernel_release(suite.cpu, &plan);
    free(classes);
}

/* Every result to 11 units in its last place, over all x whose result is an ordinary number: it goes like the cube of a
 * sigmoid, which is known to 3 units, and has some roundings of its own. */
void test_focal_accuracy(void **state)
{
    float *x = malloc(SIGMOID_ELEMENTS * sizeof(float)), *dx = malloc(SIGMOID_ELEMENTS * sizeof(float));
    double worst = 0;
    assert_true(x && dx);
    for (int i = 0; i < SIGMOID_ELEMENTS; i++) /* exp(-3 * 28) is near the smallest float */
        x[i] = i % 2 ? (float)(-28 + 150.0 * i / SIGMOID_ELEMENTS)
                     : ldexpf(i % 4 ? 1.1f : -1.7f, (int)(34.0 * i / SIGMOID_ELEMENTS) - 30);
    run_focal_bwd(SIGMOID_ELEMENTS, x, dx);
    for (int i = 0; i < SIGMOID_ELEMENTS; i++) {
        const double z = x[i], p = 1 / (1 + exp(-z)), q = 1 / (1 + exp(z));
        const double exact = 0.75 * p * p * (p + 2 * q * (fmax(z, 0) + log1p(exp(-fabs(z)))));
        worst = fmax(worst, fabs((double)dx[i] - exact) / ldexp(1, ilogb(exact) - 23));
    }
    if (!(worst <= 11))
        fail_msg("the derivative of the focal loss is off by %.3g units in the last place", worst);
    free(x);
    free(dx);
}

void test_sigmoid_ends(void **state)
{
    const float x[] = {INFINITY, -INFINITY, NAN, 1e30f, -1e30f, 0, -0.0f, 105, -105, 17.5f, -89, -FLT_MAX, FLT_MAX};
    const float dy[] = {1, 1, 1, 1, 1, 8, -8, 1, 1, INFINITY, 1, NAN, 1};
    enum { COUNT = sizeof(x) / sizeof(x[0]) };
    float y[COUNT], dx[COUNT];
    run_elementwise(CVY_OP_SIGMOID, COUNT, x, NULL, y);
    assert_true(y[0] == 1 && y[1] == 0 && isnan(y[2]) && y[3] == 1 && y[4] == 0);
    assert_true(y[5] == 0.5f && y[6] == 0.5f && y[7] == 1 && y[8] == 0 && y[9] == 1);
    assert_true(y[10] > 0 && y[10] < FLT_MIN); /* gradual underflow */
    assert_true(y[11] == 0 && y[12] == 1);
    run_elementwise(CVY_OP_SIGMOID_BWD, COUNT, y, dy, dx);
    assert_true(dx[0] == 0 && dx[1] == 0 && isnan(dx[2]) && dx[3] == 0 && dx[4] == 0);
    assert_true(dx[5] == 2 && dx[6] == -2);
    assert_true(isnan(dx[9]) && dx[10] == y[10] && isnan(dx[11])); /* infinity meets a gradient of 0 */
}
