#include "support_faulty.h"
#include "backend/check_internal.h"
#include "ops/ops.h"
#include "support_test.h"

struct faulty faulty;

static const struct cvy_kernel *right_kernel(enum cvy_op op)
{
    for (size_t k = 0; k < cvy_backend_ref.kernel_count; k++) {
        if (cvy_backend_ref.kernels[k].op == op)
            return &cvy_backend_ref.kernels[k];
    }
    fail_msg("no reference kernel for %s", cvy_ops[op].name);
    return NULL;
}

struct cvy_tensor faulty_tensor;

static void make_value_wrong(void *memory)
{
    const int64_t count = cvy_shape_elements(&faulty_tensor.shape);
    int64_t largest = 0;

    if (faulty_tensor.dtype == CVY_F32) {
        float *values = memory;
        for (int64_t i = 0; i < count; i++) {
            if (fabsf(values[i]) > fabsf(values[largest]))
                largest = i;
        }
        values[largest] = values[largest] * 1.01F;
    } else {
        ((uint8_t *)memory)[0] ^= 1;
    }
}

static cvy_status faulty_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                             void *scratch)
{
    const struct cvy_kernel *kernel = right_kernel(plan->kernel->op);
    const size_t size = cvy_dtype_size(faulty_tensor.dtype);
    char before[8], *last = NULL;
    cvy_status status;

    if (faulty.fault == FAULT_HOLE) {
        last = (char *)out[faulty.output] + size * (size_t)(cvy_shape_elements(&faulty_tensor.shape) - 1);
        memcpy(before, last, size);
    }
    if (faulty.fault == FAULT_SHIFT) {
        void *moved[CVY_MAX_INPUTS];
        float beta = *(const float *)in[2] + faulty.shift;
        memcpy(moved, in, sizeof moved);
        moved[2] = &beta;
        return kernel->run(device, plan, moved, out, scratch);
    }
    status = kernel->run(device, plan, in, out, scratch);
    if (status == CVY_OK && faulty.fault == FAULT_VALUE)
        make_value_wrong(out[faulty.output]);
    if (status == CVY_OK && last)
        memcpy(last, before, size);
    return status;
}

static struct cvy_kernel faulty_kernels[CVY_OP_COUNT];
struct cvy_backend faulty_backend;

cvy_device *open_faulty(void)
{
    cvy_device *inner = cvy_calloc(1, sizeof *inner), *device;

    assert_non_null(inner);
    for (int op = 0; op < CVY_OP_COUNT; op++) {
        faulty_kernels[op] = *right_kernel((enum cvy_op)op);
        faulty_kernels[op].name = "faulty.kernel";
        faulty_kernels[op].run = faulty_run;
    }
    faulty_backend = cvy_backend_ref;
    faulty_backend.kernels = faulty_kernels;
    faulty_backend.kernel_count = CVY_OP_COUNT;
    inner->backend = &faulty_backend;
    inner->threads = 1;
    strcpy(inner->description, "a faulty device");
    if (check_wrap(inner, &device) != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_string_equal(device->description, "check of a faulty device");
    return device;
}
