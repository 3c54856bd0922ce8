/* The CPU backend: device, memory and the kernel table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/autotune.h"
#include "backend/cpu/cpu.h"
#include "base/log.h"
#include "base/resources.h"
#include "base/system.h"

static const struct cpu_kernels *kernels_for(enum cvy_isa isa)
{
    switch (isa) {
    case CVY_ISA_AVX512:
    case CVY_ISA_AVX512_BF16:
    case CVY_ISA_AMX_BF16:
        return CVY_IF_AVX(&cpu_kernels_avx512);
    case CVY_ISA_AVX2:
        return CVY_IF_AVX(&cpu_kernels_avx2);
    default:
        return &cpu_kernels_base;
    }
}

static void cpu_close(cvy_device *device)
{
    if (!device)
        return;
    cvy_autotuner_close(device->autotuner);
    cpu_onednn_close(cpu_of(device));
    cvy_free(device);
}

const void *cpu_tile_loops(const void *processor, const void *model)
{
    const char *tiles = getenv("CONVOY_CPU_TILES");
    const enum cvy_isa isa = cvy_cpu_isa();

    if (isa >= CVY_ISA_AVX512_BF16 && tiles && strcmp(tiles, "model") == 0)
        return model;
    return isa >= CVY_ISA_AMX_BF16 ? processor : NULL;
}

cvy_status cpu_read_choice(const char *variable, enum cpu_choice *choice)
{
    static const char *const words[] = {[CPU_AUTO] = "auto", [CPU_ALWAYS] = "always", [CPU_NEVER] = "never"};
    const char *const wanted = getenv(variable);
    int word = 0;

    while (wanted && word < 3 && strcmp(wanted, words[word]) != 0)
        word++;
    if (word == 3)
        return cvy_fail(CVY_USAGE, "%s is auto, always or never, not %s", variable, cvy_quote(wanted));
    *choice = (enum cpu_choice)word;
    return CVY_OK;
}

void cpu_add_setting(struct cpu_device *device, const char *name, const char *value)
{
    const size_t used = strlen(device->base.settings);

    snprintf(device->base.settings + used, sizeof device->base.settings - used, "%s%s=%s", used ? " " : "", name,
             value);
}

static cvy_status cpu_open(const struct cvy_backend *backend, const char *spec, int threads, cvy_device **device)
{
    *device = NULL;
    if (spec && spec[0])
        return cvy_fail(CVY_UNAVAILABLE, "the cpu device takes no number, but was asked for %s", cvy_quote(spec));
    /* oneDNN plans for all threads and gives wrong sums with fewer, or waits for the others for ever. */
    if (threads > cvy_openmp_threads())
        return cvy_fail(CVY_USAGE,
                        "%d threads are asked for, and OpenMP gives %d (OMP_THREAD_LIMIT, OMP_MAX_ACTIVE_LEVELS)",
                        threads, cvy_openmp_threads());
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
    cpu->base.cache_bytes = cvy_shared_cache_bytes();
    cpu->int8 = cpu_choose_int8(&cpu->base.int8);
    cpu->blocked = isa >= CVY_ISA_AVX512 ? CVY_LAYOUT_BLOCKED16 : CVY_LAYOUT_BLOCKED8;
    snprintf(cpu->base.description, sizeof(cpu->base.description), "%s, %s, %s", cvy_cpu_name(), cvy_cpu_features(),
             cpu_onednn_version());
    cvy_status status = cpu_onednn_open(cpu);
    if (status == CVY_OK)
        status = cpu_choose_winograd(cpu);
    if (status == CVY_OK)
        status = cpu_choose_direct(cpu);
    if (status == CVY_OK)
        status = cpu_choose_layout(cpu);
    if (status == CVY_OK)
        status = cpu_choose_chunks(cpu);
    if (status == CVY_OK)
        status = cpu_choose_stream(cpu);
    if (status == CVY_OK)
        status = cpu_choose_patterns(cpu);
    if (status == CVY_OK)
        status = cpu_choose_chains(cpu);
    if (status == CVY_OK)
        status = cvy_autotuner_open(&cpu->base, &cpu->base.autotuner);
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

#define KERNEL(ID, function)                                                                                           \
    {                                                                                                                  \
        .op = CVY_OP_##ID, .name = "cpu." #function, .prepare = cpu_##function##_prepare, .run = cpu_##function##_run, \
        .release = cpu_state_release                                                                                   \
    }
/* Convolutions that are timed beside oneDNN's. `ahead`: their lead (cvy_kernel). oneDNN's threads wait for each other:
 * beside other work its gradients of weights are a fifth as fast. */
#define OWN(ID, text, function, ahead)                                                                                 \
    {                                                                                                                  \
        .op = CVY_OP_##ID, .name = "cpu." text, .prepare = function##_prepare, .run = function##_run,                  \
        .release = cpu_state_release, .candidate = true, .lead = (ahead)                                               \
    }
#define WAITING 0.15
/* Winograd's algorithm, forward and the gradient of the data: with tiles of 2 x 2 or 4 x 4 outputs, or at stride 2.
 * After oneDNN's, which is for AVX-512 and stride 1 alone. */
#define WINOGRAD(ID, text, form)                                                                                       \
    {                                                                                                                  \
        .op = CVY_OP_##ID, .name = "cpu." text, .prepare = cpu_winograd_##form##_prepare, .run = cpu_winograd_run,     \
        .release = cpu_state_release, .candidate = true                                                                \
    }
/* The same where weights do not change: always taken, for the choice must not depend on the number of images. */
#define CONSTANT(ID, text, function)                                                                                   \
    {                                                                                                                  \
        .op = CVY_OP_##ID, .name = "cpu." text, .prepare = function##_constant_prepare, .run = function##_run,         \
        .release = cpu_state_release                                                                                   \
    }
/* Convolutions have a state with memory of its own, and are candidates. */
#define INT8(ID, function)                                                                                             \
    {                                                                                                                  \
        .op = CVY_OP_##ID, .name = "cpu." #function, .prepare = cpu_##function##_prepare, .run = cpu_##function##_run, \
        .release = CVY_OP_##ID == CVY_OP_CONV2D_INT8 ? cpu_conv2d_int8_release : cpu_state_release,                    \
        .candidate = CVY_OP_##ID == CVY_OP_CONV2D_INT8                                                                 \
    }
#define ELEMENTWISE(ID, text, function)                                                                                \
    {                                                                                                                  \
        .op = CVY_OP_##ID, .name = "cpu." #text, .prepare = cpu_elementwise_prepare, .run = (function),                \
        .release = cpu_state_release                                                                                   \
    }
#define ONEDNN(ID, text, function)                                                                                     \
    {                                                                                                                  \
        .op = CVY_OP_##ID, .name = "cpu." text, .prepare = (function), .run = cpu_conv2d_run,                          \
        .release = cpu_conv2d_release, .candidate = true                                                               \
    }

/* Kernels for the same op are asked in this order. */
static const struct cvy_kernel kernels[] = {
    {.op = CVY_OP_CONV2D_INT8,
     .name = "cpu.conv2d_int8_tiles",
     .prepare = cpu_conv2d_int8_tiles_prepare,
     .run = cpu_conv2d_int8_tiles_run,
     .release = cpu_conv2d_int8_tiles_release,
     .candidate = true},
    INT8(CONV2D_INT8, conv2d_int8_woven),
#define CVY_OP(ID, name, ...)        KERNEL(ID, name),
#define CVY_OP_INT8(ID, name, ...)   INT8(ID, name),
#define CVY_OP_UNARY(ID, name, ...)  ELEMENTWISE(ID, name, cpu_unary_run),
#define CVY_OP_BINARY(ID, name, ...) ELEMENTWISE(ID, name, cpu_binary_run),
#define CVY_OP_PRODUCT(...)
#include "graph/ops.def"
    {.op = CVY_OP_REORDER,
     .name = "cpu.reorder_int8",
     .prepare = cpu_reorder_int8_prepare,
     .run = cpu_reorder_int8_run,
     .release = cpu_state_release},
    {.op = CVY_OP_REORDER,
     .name = "cpu.reorder_tiles",
     .prepare = cpu_reorder_tiles_prepare,
     .run = cpu_reorder_tiles_run,
     .release = cpu_state_release},
    {.op = CVY_OP_REORDER,
     .name = "cpu.reorder_winograd",
     .prepare = cpu_reorder_winograd_prepare,
     .run = cpu_reorder_winograd_run,
     .release = cpu_state_release},
    {.op = CVY_OP_REORDER,
     .name = "cpu.reorder_direct",
     .prepare = cpu_reorder_direct_prepare,
     .run = cpu_reorder_direct_run,
     .release = cpu_state_release},
    {.op = CVY_OP_REORDER,
     .name = "cpu.reorder_sign",
     .prepare = cpu_reorder_sign_prepare,
     .run = cpu_reorder_sign_run,
     .release = cpu_state_release},
    {.op = CVY_OP_REORDER,
     .name = "cpu.unblock_weights",
     .prepare = cpu_unblock_weights_prepare,
     .run = cpu_unblock_weights_run,
     .release = cpu_state_release},
    {.op = CVY_OP_REORDER,
     .name = "cpu.reorder_weights",
     .prepare = cpu_opaque_reorder_prepare,
     .run = cpu_opaque_reorder_run,
     .release = cpu_opaque_reorder_release},
    KERNEL(CONV2D, grouped_conv2d),
    CONSTANT(CONV2D, "conv2d_constant_tiles", cpu_tile_product),
    CONSTANT(CONV2D, "conv2d_constant_window_tiles", cpu_tile_window),
    OWN(CONV2D, "conv2d_tiles", cpu_tile_product, 0),
    OWN(CONV2D, "conv2d_window_tiles", cpu_tile_window, 0),
    ONEDNN(CONV2D, "conv2d_winograd", cpu_conv2d_winograd_prepare),
    WINOGRAD(CONV2D, "conv2d_winograd_4x4", 4x4),
    WINOGRAD(CONV2D, "conv2d_winograd_2x2", 2x2),
    WINOGRAD(CONV2D, "conv2d_winograd_strided", strided),
    OWN(CONV2D, "conv2d_direct", cpu_direct, 0),
    ONEDNN(CONV2D, "conv2d", cpu_conv2d_prepare),
    KERNEL(CONV2D_BWD_DATA, grouped_conv2d_bwd_data),
    OWN(CONV2D_BWD_DATA, "conv2d_bwd_data_tiles", cpu_tile_product_bwd_data, 0),
    OWN(CONV2D_BWD_DATA, "conv2d_bwd_data_window_tiles", cpu_tile_window_bwd_data, 0),
    ONEDNN(CONV2D_BWD_DATA, "conv2d_winograd_bwd_data", cpu_conv2d_winograd_prepare),
    WINOGRAD(CONV2D_BWD_DATA, "conv2d_winograd_4x4_bwd_data", 4x4),
    WINOGRAD(CONV2D_BWD_DATA, "conv2d_winograd_2x2_bwd_data", 2x2),
    WINOGRAD(CONV2D_BWD_DATA, "conv2d_winograd_strided_bwd_data", strided),
    OWN(CONV2D_BWD_DATA, "conv2d_direct_bwd_data", cpu_direct, 0),
    ONEDNN(CONV2D_BWD_DATA, "conv2d_bwd_data", cpu_conv2d_prepare),
    KERNEL(CONV2D_BWD_WEIGHTS, grouped_conv2d_bwd_weights),
    ONEDNN(CONV2D_BWD_WEIGHTS, "conv2d_winograd_bwd_weights", cpu_conv2d_winograd_prepare),
    OWN(CONV2D_BWD_WEIGHTS, "conv2d_winograd_4x4_bwd_weights", cpu_winograd_gradient, WAITING),
    {.op = CVY_OP_CONV2D_BWD_WEIGHTS,
     .name = "cpu.conv2d_winograd_strided_bwd_weights",
     .prepare = cpu_winograd_strided_gradient_prepare,
     .run = cpu_winograd_gradient_run,
     .release = cpu_state_release,
     .candidate = true,
     .lead = WAITING},
    OWN(CONV2D_BWD_WEIGHTS, "conv2d_bwd_weights_tiles", cpu_tile_gradient, WAITING),
    OWN(CONV2D_BWD_WEIGHTS, "conv2d_bwd_weights_bf16", cpu_weight_gradient, WAITING),
    OWN(CONV2D_BWD_WEIGHTS, "conv2d_direct_bwd_weights", cpu_direct_gradient, WAITING),
    ONEDNN(CONV2D_BWD_WEIGHTS, "conv2d_bwd_weights", cpu_conv2d_prepare),
    KERNEL(CONV2D_INT8, conv2d_int8_plain),
    KERNEL(LINEAR, linear),
    KERNEL(LINEAR_BWD_DATA, linear_bwd_data),
    KERNEL(LINEAR_BWD_WEIGHTS, linear_bwd_weights),
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
    .rewrite = cpu_rewrite,
    .cut = cpu_cut_kernel,
    .chain_bytes = cpu_chain_bytes,
    .run_chain = cpu_run_chain,
    .images = cpu_images,
    .tensor_bytes = cpu_tensor_bytes,
    .measure_peak = cpu_device_peak,
    .kernels = kernels,
    .kernel_count = sizeof(kernels) / sizeof(kernels[0]),
    .host_memory = true,
};
