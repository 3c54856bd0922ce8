#include "support_many.h"
#include "base/rng.h"
#include "support_checker.h"
#include "support_test.h"

/* Weights of layers as they meet in a network, and some whose tiles have ends of all kinds. */
static const struct cvy_shape shapes[] = {
    {4, {64, 3, 7, 7}},  {4, {256, 64, 1, 1}}, {4, {33, 130, 3, 3}}, {4, {1, 5, 1, 1}},
    {4, {70, 40, 3, 3}}, {4, {2, 1, 9, 9}},    {4, {3, 257, 5, 1}},  {4, {130, 3, 1, 1}},
    {1, {4099}},         {2, {10, 2048}},      {4, {1, 1, 1, 1}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, TIMES = 5 /* so that there are almost as many as are allowed */ };

struct call {
    struct cvy_op_desc desc;
    struct cvy_kernel_plan plan;
    void *in, *out;
    unsigned char *alone;
};

static void fill(cvy_device *device, struct call *call, struct cvy_rng *rng)
{
    const size_t bytes = device->backend->tensor_bytes(device, &call->desc.in[0]);
    float *values = malloc(bytes);

    assert_non_null(values);
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] = (float)cvy_rng_normal(rng);
    assert_int_equal(device->backend->allocate(device, bytes, &call->in), CVY_OK);
    assert_int_equal(device->backend->upload(device, call->in, values, bytes), CVY_OK);
    free(values);
}

/* Plain f32 to what the device takes for weights of 16 bits, or channels-last f32 back to plain f32. */
static void open_call(cvy_device *device, struct call *call, int number, struct cvy_rng *rng)
{
    const struct cvy_shape *shape = &shapes[number % SHAPES];
    const bool back = number % 4 == 3 && shape->rank == 4;
    struct cvy_op_desc *desc = &call->desc;

    memset(call, 0, sizeof *call);
    desc->op = back ? CVY_OP_REORDER : CVY_OP_CAST;
    desc->inputs = desc->outputs = 1;
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        desc->in[i].shape.rank = -1;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        desc->out[i].shape.rank = -1;
    desc->in[0] = (struct cvy_tensor){.shape = *shape, .dtype = CVY_F32};
    desc->out[0] = (struct cvy_tensor){.shape = *shape, .dtype = number % 2 ? CVY_F16 : CVY_BF16};
    if (back) {
        desc->in[0].layout.kind = CVY_LAYOUT_NHWC;
        desc->out[0].dtype = CVY_F32;
    }
    if (cvy_kernel_select(device, desc, &call->plan) != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_non_null(call->plan.kernel->run_many);
    assert_int_equal(call->plan.scratch_bytes, 0);
    call->plan.out_bytes[0] = device->backend->tensor_bytes(device, &desc->out[0]);
    fill(device, call, rng);
    assert_int_equal(device->backend->allocate(device, call->plan.out_bytes[0] + 64, &call->out), CVY_OK);
    assert_non_null(call->alone = malloc(call->plan.out_bytes[0] + 64));
}

/* Casts and reorders together leave the same bytes as one after the other, and nothing after them. */
void test_many_at_once(void **state)
{
    enum { COUNT = SHAPES * TIMES };
    cvy_device *device = suite.cpu;
    const struct cvy_backend *backend = device->backend;
    struct cvy_rng rng = cvy_rng_new(6, CVY_RNG_TEST, 0, 0);
    static struct call calls[COUNT];
    struct cvy_kernel_call many[COUNT];
    cvy_status (*run_many)(cvy_device *, const struct cvy_kernel_call *, int);

    assert_in_range(COUNT, 2, CVY_MANY_CALLS);
    for (int i = 0; i < COUNT; i++) {
        struct call *call = &calls[i];
        const size_t more = 64;
        const char zeros[64] = {0};

        open_call(device, call, i, &rng);
        assert_int_equal(call->plan.kernel->run(device, &call->plan, &call->in, &call->out, NULL), CVY_OK);
        assert_int_equal(backend->download(device, call->alone, call->out, call->plan.out_bytes[0] + more), CVY_OK);
        assert_memory_equal(call->alone + call->plan.out_bytes[0], zeros, sizeof zeros);
        backend->release(device, call->out);
        assert_int_equal(backend->allocate(device, call->plan.out_bytes[0] + more, &call->out), CVY_OK);
        many[i] = (struct cvy_kernel_call){&call->plan, &call->in, &call->out};
    }
    run_many = calls[0].plan.kernel->run_many;
    assert_int_equal(run_many(device, many, COUNT), CVY_OK);
    for (int i = 0; i < COUNT; i++) {
        struct call *call = &calls[i];
        const size_t bytes = call->plan.out_bytes[0] + 64;
        unsigned char *together = malloc(bytes);

        assert_non_null(together);
        assert_int_equal(backend->download(device, together, call->out, bytes), CVY_OK);
        if (memcmp(together, call->alone, bytes) != 0)
            fail_msg("call %d leaves other bytes among others than alone", i);
        free(together);
        free(call->alone);
        backend->release(device, call->in);
        backend->release(device, call->out);
        cvy_kernel_release(device, &call->plan);
    }
}
