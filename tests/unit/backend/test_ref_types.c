/* The reference backend: its table, conversions between types and layouts, what it refuses. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "support_executor.h"

static int setup(void **state)
{
    *state = executor_device("ref", 2);
    return 0;
}

static int teardown(void **state)
{
    cvy_device_close(*state);
    return 0;
}

/* ---- the table ---- */

static void every_op_has_a_row(void **state)
{
    static const struct cvy_backend *const backends[] = {&cvy_backend_ref, &cvy_backend_check};

    (void)state;
    for (int b = 0; b < 2; b++) {
        for (int op = 0; op < CVY_OP_COUNT; op++) {
            /* Closed forms are made for devices that ask for them, which the check device does not. */
            bool found = b == 1 && cvy_ops[op].closed;
            for (size_t k = 0; k < backends[b]->kernel_count; k++)
                found |= backends[b]->kernels[k].op == (enum cvy_op)op;
            if (!found)
                fail_msg("%s has no kernel for %s", backends[b]->name, cvy_ops[op].name);
        }
    }
}

/* ---- types and layouts ---- */

static void cast(cvy_device *device, enum cvy_dtype from, enum cvy_dtype to, const void *in, void *out, int64_t count)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_CAST, 1, 1);

    desc.attr.cast.dtype = to;
    desc.in[0] = executor_tensor(from, cvy_shape1(count));
    desc.out[0] = executor_tensor(to, cvy_shape1(count));
    executor_run_checked(device, &desc, (const void *[]){in}, (void *[]){out});
}

struct rounding_case {
    double value;
    uint16_t bits;
};

static void casts_round_to_nearest_even(void **state)
{
    static const struct rounding_case f16[] = {
        {1, 0x3c00},
        {-2, 0xc000},
        {65504, 0x7bff}, /* the largest */
        {65519.99, 0x7bff},
        {65520, 0x7c00}, /* half way to the next: infinity */
        {-1e300, 0xfc00},
        {0x1p-14, 0x0400},     /* the smallest normal */
        {0x1.ff8p-15, 0x03ff}, /* the largest subnormal */
        {0x1.ffcp-15, 0x0400}, /* rounds up into the normals */
        {0x1p-24, 0x0001},
        {0x1p-25, 0x0000}, /* tie, to even */
        {0x1.000001p-25, 0x0001},
        {0x1.8p-24, 0x0002}, /* tie between 1 and 2 */
        {-0.0, 0x8000},
        {0x1.002p0, 0x3c00},           /* 1 + 2^-11: tie, to even */
        {0x1.006p0, 0x3c02},           /* 1 + 3 * 2^-11: tie, to even */
        {0x1.0020000000001p0, 0x3c01}, /* just above the tie: going through float would lose that */
        {INFINITY, 0x7c00},
    };
    static const struct rounding_case bf16[] = {
        {1, 0x3f80},          {0x1.01p0, 0x3f80},   {0x1.03p0, 0x3f82}, {0x1.0100000000001p0, 0x3f81},
        {FLT_MAX, 0x7f80},    {0x1.fep127, 0x7f7f}, {0x1p-133, 0x0001}, {0x1p-134, 0x0000},
        {0x1.8p-133, 0x0002}, {-INFINITY, 0xff80},  {1e-300, 0x0000},   {-3.140625, 0xc049},
    };

    for (size_t i = 0; i < sizeof f16 / sizeof *f16; i++) {
        uint16_t bits;
        cast(*state, CVY_F64, CVY_F16, &f16[i].value, &bits, 1);
        if (bits != f16[i].bits)
            fail_msg("f16 of %a is %04x, not %04x", f16[i].value, bits, f16[i].bits);
    }
    for (size_t i = 0; i < sizeof bf16 / sizeof *bf16; i++) {
        uint16_t bits;
        cast(*state, CVY_F64, CVY_BF16, &bf16[i].value, &bits, 1);
        if (bits != bf16[i].bits)
            fail_msg("bf16 of %a is %04x, not %04x", bf16[i].value, bits, bf16[i].bits);
    }
}

static void every_half_survives_the_way_through_double_and_float(void **state)
{
    static uint16_t all[65536], back[65536];
    static double wide[65536];
    static float single[65536];

    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (int type = 0; type < 2; type++) {
        const enum cvy_dtype half = type ? CVY_BF16 : CVY_F16;
        cast(*state, half, CVY_F64, all, wide, 65536);
        for (int way = 0; way < 2; way++) {
            if (way)
                cast(*state, CVY_F64, CVY_F32, wide, single, 65536);
            cast(*state, way ? CVY_F32 : CVY_F64, half, way ? (void *)single : (void *)wide, back, 65536);
            for (int i = 0; i < 65536; i++) {
                if (isnan(wide[i]))
                    assert_int_equal(back[i] & (type ? 0x7fc0 : 0x7e00), type ? 0x7fc0 : 0x7e00);
                else
                    assert_int_equal(back[i], all[i]);
            }
        }
    }
    /* bf16 is the upper half of a float. */
    for (int i = 0; i < 65536; i++) {
        uint32_t bits;
        memcpy(&bits, &single[i], sizeof bits);
        if (!isnan(single[i]))
            assert_int_equal(bits >> 16, i);
    }
}

static void cast_refuses_integers(void **state)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_CAST, 1, 1);
    const int32_t in = 1;
    float out;

    desc.in[0] = executor_tensor(CVY_I32, cvy_shape1(1));
    desc.out[0] = executor_tensor(CVY_F32, cvy_shape1(1));
    assert_int_equal(executor_run_op(*state, &desc, (const void *[]){&in}, (void *[]){&out}), CVY_UNAVAILABLE);
    assert_non_null(strstr(cvy_error(), "i32"));
}

static void reorder(cvy_device *device, const struct cvy_tensor *from, const void *in, enum cvy_layout_kind to,
                    void *out)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_REORDER, 1, 1);

    desc.in[0] = desc.out[0] = *from;
    desc.out[0].layout.kind = to;
    executor_run_checked(device, &desc, (const void *[]){in}, (void *[]){out});
}

static void reorders_go_there_and_back(void **state)
{
    enum { N = 2, C = 19, H = 3, W = 5, COUNT = N * C * H * W, ROOM = N * 32 * H * W };
    static const enum cvy_layout_kind kinds[] = {CVY_LAYOUT_PLAIN, CVY_LAYOUT_NHWC, CVY_LAYOUT_BLOCKED16,
                                                 CVY_LAYOUT_BLOCKED8};
    static const enum cvy_dtype dtypes[] = {CVY_U8, CVY_F16, CVY_I32, CVY_F32, CVY_F64};
    static uint64_t plain[ROOM], there[ROOM], elsewhere[ROOM], back[ROOM];

    for (size_t t = 0; t < 5; t++) {
        const size_t size = cvy_dtype_size(dtypes[t]);
        struct cvy_tensor x = executor_tensor(dtypes[t], cvy_shape4(N, C, H, W)), y;
        for (size_t i = 0; i < COUNT * size; i++)
            ((uint8_t *)plain)[i] = (uint8_t)(i * 167 + 13);
        for (size_t a = 0; a < 4; a++) {
            y = x;
            y.layout.kind = kinds[a];
            memset(there, 0xff, sizeof there);
            reorder(*state, &x, plain, kinds[a], there);
            for (size_t b = 0; b < 4; b++) {
                struct cvy_tensor z = x;
                z.layout.kind = kinds[b];
                reorder(*state, &y, there, kinds[b], elsewhere);
                memset(back, 0xff, sizeof back);
                reorder(*state, &z, elsewhere, CVY_LAYOUT_PLAIN, back);
                assert_memory_equal(back, plain, COUNT * size);
            }
        }
    }
}

static void layouts_lie_as_described(void **state)
{
    enum { N = 2, C = 11, H = 2, W = 3, ROOM = N * 16 * H * W };
    static int32_t plain[N * C * H * W], nhwc[N * C * H * W], blocked8[ROOM], blocked16[ROOM];
    const struct cvy_tensor x = executor_tensor(CVY_I32, cvy_shape4(N, C, H, W));
    int64_t zeros8 = 0, zeros16 = 0;

    for (int i = 0; i < N * C * H * W; i++)
        plain[i] = i + 1;
    memset(blocked8, 0xff, sizeof blocked8);
    memset(blocked16, 0xff, sizeof blocked16);
    reorder(*state, &x, plain, CVY_LAYOUT_NHWC, nhwc);
    reorder(*state, &x, plain, CVY_LAYOUT_BLOCKED8, blocked8);
    reorder(*state, &x, plain, CVY_LAYOUT_BLOCKED16, blocked16);
    for (int n = 0; n < N; n++)
        for (int c = 0; c < C; c++)
            for (int h = 0; h < H; h++)
                for (int w = 0; w < W; w++) {
                    const int32_t value = plain[((n * C + c) * H + h) * W + w];
                    assert_int_equal(nhwc[((n * H + h) * W + w) * C + c], value);
                    assert_int_equal(blocked8[(((n * 2 + c / 8) * H + h) * W + w) * 8 + c % 8], value);
                    assert_int_equal(blocked16[((n * H + h) * W + w) * 16 + c], value);
                }
    for (int i = 0; i < ROOM; i++) {
        zeros8 += blocked8[i] == 0;
        zeros16 += blocked16[i] == 0;
    }
    assert_int_equal(zeros8, N * (16 - C) * H * W); /* the padding */
    assert_int_equal(zeros16, N * (16 - C) * H * W);
}

static void tensors_are_measured(void **state)
{
    cvy_device *device = *state;
    size_t (*bytes)(cvy_device *, const struct cvy_tensor *) = device->backend->tensor_bytes;
    struct cvy_tensor x = executor_tensor(CVY_F32, cvy_shape4(2, 17, 3, 5));

    assert_int_equal(bytes(device, &x), 2 * 17 * 15 * 4);
    x.layout.kind = CVY_LAYOUT_NHWC;
    assert_int_equal(bytes(device, &x), 2 * 17 * 15 * 4);
    x.layout.kind = CVY_LAYOUT_BLOCKED16;
    assert_int_equal(bytes(device, &x), 2 * 32 * 15 * 4);
    x.layout.kind = CVY_LAYOUT_BLOCKED8;
    assert_int_equal(bytes(device, &x), 2 * 24 * 15 * 4);
    x.shape = cvy_shape4(INT64_C(1) << 30, INT64_C(1) << 30, 2, 2);
    assert_int_equal(bytes(device, &x), 0);
    x = executor_tensor(CVY_F64, cvy_shape0());
    assert_int_equal(bytes(device, &x), 8);
}

static void refusals_have_a_reason(void **state)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_RELU, 1, 1);
    uint16_t half[4] = {0};

    desc.in[0] = desc.out[0] = executor_tensor(CVY_BF16, cvy_shape1(4));
    assert_int_equal(executor_run_op(*state, &desc, (const void *[]){half}, (void *[]){half}), CVY_UNAVAILABLE);
    assert_non_null(strstr(cvy_error(), "bf16"));
    desc.in[0].dtype = CVY_F64;
    desc.out[0].dtype = CVY_F32;
    assert_int_equal(executor_run_op(*state, &desc, (const void *[]){(double[4]){0}}, (void *[]){(float[4]){0}}),
                     CVY_UNAVAILABLE);
    assert_non_null(strstr(cvy_error(), "input 0 is f64"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_row),
        cmocka_unit_test(casts_round_to_nearest_even),
        cmocka_unit_test(every_half_survives_the_way_through_double_and_float),
        cmocka_unit_test(cast_refuses_integers),
        cmocka_unit_test(reorders_go_there_and_back),
        cmocka_unit_test(layouts_lie_as_described),
        cmocka_unit_test(tensors_are_measured),
        cmocka_unit_test(refusals_have_a_reason),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
