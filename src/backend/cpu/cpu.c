/* The CPU backend: device, memory and the kernel table. */
#include <stdio.h>
#include <string.h>

#include "backend/choice.h"
#include "backend/cpu/cpu.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/system.h"

static const struct cpu_kernels *kernels_for(enum cvy_isa isa)
{
    switch (isa) {
    case CVY_ISA_AVX512:
    case CVY_ISA_AVX512_BF16:
        return &cpu_kernels_avx512;
    case CVY_ISA_AVX2:
        return &cpu_kernels_avx2;
    default:
        return &cpu_kernels_base;
    }
}

static void cpu_close(cvy_device *device)
{
    if (!device)
        return;
    cvy_choices_close(device->choices);
    cpu_onednn_close(cpu_of(device));
    cvy_free(device);
}

static cvy_status cpu_open(const struct cvy_backend *backend, const char *spec, int threads, cvy_device **device)
{
    *device = NULL;
    if (spec && spec[0])
        return cvy_fail(CVY_UNAVAILABLE, "the cpu device takes no number, but was asked for %s", cvy_quote(spec));
    struct cpu_device *cpu = cvy_calloc(1, sizeof(*cpu));
    if (!cpu)
        return cvy_fail_memory(sizeof(*cpu), "the cpu device");
    const enum cvy_isa isa = cvy_cpu_isa();
    cpu->base.backend = backend;
    cpu->base.threads = threads > 0 ? threads : cvy_default_threads();
    if (threads > cvy_allowed_threads())
        cvy_log(CVY_LOG_WARNING, "%d threads on %d cores that this process may use: they will take turns", threads,
                cvy_allowed_threads());
    cpu->kernels = kernels_for(isa);
    cpu->blocked = isa >= CVY_ISA_AVX512 ? CVY_LAYOUT_BLOCKED16 : CVY_LAYOUT_BLOCKED8;
    snprintf(cpu->base.description, sizeof(cpu->base.description), "%s, %s, %s", cvy_cpu_name(), cvy_isa_name(isa),
             cpu_onednn_version());
    cvy_status status = cpu_onednn_open(cpu);
    if (status == CVY_OK)
        status = cvy_choices_open(&cpu->base, &cpu->base.choices);
    if (status != CVY_OK) {
        cpu_close(&cpu->base);
        return status;
    }
    *device = &cpu->base;
    return CVY_OK;
}

static cvy_status cpu_allocate(cvy_device *device, size_t bytes, void **memory)
{
    (void)device;
    *memory = cvy_calloc_aligned(bytes ? bytes : 1);
    return *memory ? CVY_OK : cvy_fail_memory(bytes, "tensors on the cpu");
}

static void cpu_release(cvy_device *device, void *memory)
{
    (void)device;
    cvy_free_aligned(memory);
}

static cvy_status cpu_copy(cvy_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    if (bytes)
        memcpy(to, from, bytes);
    return CVY_OK;
}

static cvy_status cpu_synchronize(cvy_device *device)
{
    (void)device;
    return CVY_OK;
}

#define ROW(operation, function)                                                                                       \
    {                                                                                                                  \
        .name = "cpu." #function, .op = operation, .prepare = cpu_##function##_prepare, .run = cpu_##function##_run,   \
        .release = cpu_state_release                                                                                   \
    }
#define ROW_ONEDNN(text, operation, function)                                                                          \
    {                                                                                                                  \
        .name = "cpu." text, .op = operation, .prepare = (function), .run = cpu_conv2d_run,                            \
        .release = cpu_conv2d_release, .rival = true                                                                   \
    }

static const struct cvy_kernel kernels[] = {
    ROW(CVY_OP_NORMALIZE, normalize),
    ROW(CVY_OP_CAST, cast),
    ROW(CVY_OP_REORDER, reorder),
    {.name = "cpu.reorder_weights",
     .op = CVY_OP_REORDER,
     .prepare = cpu_opaque_reorder_prepare,
     .run = cpu_opaque_reorder_run,
     .release = cpu_opaque_reorder_release},
    ROW(CVY_OP_CONV2D, grouped_conv2d),
    ROW_ONEDNN("conv2d_winograd", CVY_OP_CONV2D, cpu_conv2d_winograd_prepare),
    ROW_ONEDNN("conv2d", CVY_OP_CONV2D, cpu_conv2d_prepare),
    ROW(CVY_OP_CONV2D_BWD_DATA, grouped_conv2d_bwd_data),
    ROW_ONEDNN("conv2d_winograd_bwd_data", CVY_OP_CONV2D_BWD_DATA, cpu_conv2d_winograd_prepare),
    ROW_ONEDNN("conv2d_bwd_data", CVY_OP_CONV2D_BWD_DATA, cpu_conv2d_prepare),
    ROW(CVY_OP_CONV2D_BWD_WEIGHTS, grouped_conv2d_bwd_weights),
    ROW_ONEDNN("conv2d_winograd_bwd_weights", CVY_OP_CONV2D_BWD_WEIGHTS, cpu_conv2d_winograd_prepare),
    {.name = "cpu.conv2d_bwd_weights_bf16",
     .op = CVY_OP_CONV2D_BWD_WEIGHTS,
     .prepare = cpu_weight_gradient_prepare,
     .run = cpu_weight_gradient_run,
     .release = cpu_state_release,
     .rival = true,
     .lead = 0.15}, /* oneDNN's threads wait for each other: beside other work it is a fifth as fast */
    ROW_ONEDNN("conv2d_bwd_weights", CVY_OP_CONV2D_BWD_WEIGHTS, cpu_conv2d_prepare),
    ROW(CVY_OP_CONV2D_BWD_BIAS, conv2d_bwd_bias),
    ROW(CVY_OP_BATCH_NORM, batch_norm),
    ROW(CVY_OP_BATCH_NORM_APPLY, batch_norm_apply),
    ROW(CVY_OP_BATCH_NORM_BWD, batch_norm_bwd),
    ROW(CVY_OP_BATCH_NORM_INFERENCE, batch_norm_inference),
    ROW(CVY_OP_BATCH_NORM_INFERENCE_BWD, batch_norm_inference_bwd),
    ROW(CVY_OP_FOLD_BATCH_NORM, fold_batch_norm),
    ROW(CVY_OP_RELU, relu),
    ROW(CVY_OP_RELU_BWD, relu_bwd),
    ROW(CVY_OP_RELU6, relu6),
    ROW(CVY_OP_RELU6_BWD, relu6_bwd),
    ROW(CVY_OP_SIGMOID, sigmoid),
    ROW(CVY_OP_SIGMOID_BWD, sigmoid_bwd),
    ROW(CVY_OP_ADD, add),
    ROW(CVY_OP_FAKE_QUANTIZE, fake_quantize),
    ROW(CVY_OP_FAKE_QUANTIZE_BWD, fake_quantize_bwd),
    ROW(CVY_OP_MAX_POOL, max_pool),
    ROW(CVY_OP_MAX_POOL_BWD, max_pool_bwd),
    ROW(CVY_OP_GLOBAL_AVG_POOL, global_avg_pool),
    ROW(CVY_OP_GLOBAL_AVG_POOL_BWD, global_avg_pool_bwd),
    ROW(CVY_OP_SCALE_CHANNELS, scale_channels),
    ROW(CVY_OP_SCALE_CHANNELS_BWD_SCALE, scale_channels_bwd_scale),
    ROW(CVY_OP_LINEAR, linear),
    ROW(CVY_OP_LINEAR_BWD_DATA, linear_bwd_data),
    ROW(CVY_OP_LINEAR_BWD_WEIGHTS, linear_bwd_weights),
    ROW(CVY_OP_SOFTMAX, softmax),
    ROW(CVY_OP_SOFTMAX_CROSS_ENTROPY, softmax_cross_entropy),
    ROW(CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD, softmax_cross_entropy_bwd),
    ROW(CVY_OP_DETECTION_MATCH, detection_match),
    ROW(CVY_OP_FOCAL_LOSS, focal_loss),
    ROW(CVY_OP_FOCAL_LOSS_BWD, focal_loss_bwd),
    ROW(CVY_OP_SMOOTH_L1_LOSS, smooth_l1_loss),
    ROW(CVY_OP_SMOOTH_L1_LOSS_BWD, smooth_l1_loss_bwd),
    ROW(CVY_OP_L2_LOSS, l2_loss),
    ROW(CVY_OP_DETECT, detect),
    ROW(CVY_OP_UPSAMPLE, upsample),
    ROW(CVY_OP_UPSAMPLE_BWD, upsample_bwd),
    ROW(CVY_OP_FLATTEN_LEVELS, flatten_levels),
    ROW(CVY_OP_FLATTEN_LEVELS_BWD, flatten_levels_bwd),
};

const struct cvy_backend cvy_backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .upload = cpu_copy,
    .download = cpu_copy,
    .synchronize = cpu_synchronize,
    .update = cpu_update,
    .combine = cpu_combine,
    .tensor_bytes = cpu_tensor_bytes,
    .limits = cpu_limits,
    .kernels = kernels,
    .kernel_count = sizeof(kernels) / sizeof(kernels[0]),
    .host_memory = true,
};
