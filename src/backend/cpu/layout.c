/* Layouts of the CPU backend: which one a tensor gets, how many bytes it takes, how it is cut into runs. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/int8.h"
#include "backend/cpu/sign.h"
#include "base/system.h"

int32_t cpu_block(const struct cvy_layout *layout)
{
    if (layout->kind == CVY_LAYOUT_BLOCKED16)
        return 16;
    return layout->kind == CVY_LAYOUT_BLOCKED8 ? 8 : 1;
}

cvy_status cpu_choose_layout(struct cpu_device *device)
{
    const char *wanted = getenv("CONVOY_CPU_LAYOUT");
    const bool automatic = !wanted || !strcmp(wanted, "auto"), nhwc = wanted && !strcmp(wanted, "nhwc");

    if (!automatic && !nhwc && strcmp(wanted, "blocked") != 0)
        return cvy_fail(CVY_USAGE, "CONVOY_CPU_LAYOUT is auto, blocked or nhwc, not %s", cvy_quote(wanted));
    device->forced = !automatic;
    device->nhwc_f32 = nhwc;
    device->nhwc_bf16 = nhwc || (automatic && cvy_cpu_isa() >= CVY_ISA_AMX_BF16);
    /* Where nothing is forced the autotuner keeps the layout of each plan, and so does a checkpoint. */
    if (!automatic)
        cpu_add_setting(device, "CONVOY_CPU_LAYOUT", wanted);
    return CVY_OK;
}

struct cvy_layout cpu_blocked_layout(const struct cpu_device *device, int64_t channels)
{
    const struct cvy_layout blocked = {.kind = device->blocked};
    const bool divides = channels % cpu_block(&blocked) == 0;
    return divides ? blocked : (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
}

/* Measured on an Intel Xeon with AMX (doc/worklog.md). */
enum { STREAM_BYTES = 16 << 20 };

cvy_status cpu_choose_stream(struct cpu_device *device)
{
    enum cpu_choice choice;

    CVY_TRY(cpu_read_choice("CONVOY_CPU_STREAM", &choice));
    device->stream_bytes = choice == CPU_ALWAYS                                      ? 0
                           : choice == CPU_AUTO && cvy_cpu_isa() >= CVY_ISA_AMX_BF16 ? STREAM_BYTES
                                                                                     : SIZE_MAX;
    return CVY_OK;
}

/* Both layouts are plausible for bf16 without tiles, and for inference in fp32 where oneDNN has no Winograd any more
 * (3.x): measured, they were equal within the noise, or nobody knows. With tiles bf16 is several times as fast in
 * nhwc, and Winograd's algorithm and the gradients of weights in fp32 are for blocks. */
int cpu_images(const cvy_device *device, enum cvy_dtype dtype, bool training, enum cvy_images layouts[CVY_MAX_IMAGES],
               const char **why)
{
    const struct cpu_device *cpu = (const struct cpu_device *)device;
    const enum cvy_isa isa = cvy_cpu_isa();
    const bool narrow = dtype == CVY_BF16;

    layouts[0] = cpu_prefers_nhwc(cpu, CVY_IMAGES_DEVICE, dtype) ? CVY_IMAGES_NHWC : CVY_IMAGES_BLOCKED;
    layouts[1] = layouts[0] == CVY_IMAGES_NHWC ? CVY_IMAGES_BLOCKED : CVY_IMAGES_NHWC;
    *why = "not timed";
    if (cpu->forced)
        *why = "CONVOY_CPU_LAYOUT";
    else if (narrow && isa >= CVY_ISA_AMX_BF16)
        *why = "oneDNN's kernels with tiles read nothing else";
    else if (narrow && isa >= CVY_ISA_AVX512_BF16)
        return 2;
    else if (narrow)
        *why = "this processor has no instructions for bf16";
    else if (!training && isa >= CVY_ISA_AVX512 && cpu_onednn_major() > 2)
        return 2;
    else
        *why =
            training ? "gradients of weights in fp32 are faster so" : "the faster kernels for fp32 read nothing else";
    return 1;
}

struct cvy_layout cpu_image_layout(const struct cpu_device *device, enum cvy_images images, int64_t channels,
                                   enum cvy_dtype dtype)
{
    if (cpu_prefers_nhwc(device, images, dtype) && channels % CPU_LANES == 0)
        return (struct cvy_layout){.kind = CVY_LAYOUT_NHWC};
    return cpu_blocked_layout(device, channels);
}

struct cpu_image cpu_image_of(const struct cvy_tensor *tensor)
{
    struct cpu_image image = {.batch = tensor->shape.dim[0], .channels = tensor->shape.dim[1], .pixels = 1};
    const size_t size = cvy_dtype_size(tensor->dtype);
    const bool nhwc = tensor->layout.kind == CVY_LAYOUT_NHWC; /* then the channels divide: readable() */
    for (int32_t d = 2; d < tensor->shape.rank; d++)
        image.pixels *= tensor->shape.dim[d];
    image.block = nhwc ? CPU_LANES : cpu_block(&tensor->layout);
    image.blocks = image.channels / image.block;
    image.run = (size_t)image.pixels * (size_t)image.block;
    image.step = nhwc ? (size_t)image.channels : CPU_LANES;
    image.run_bytes = image.run * size;
    image.block_bytes = nhwc ? CPU_LANES * size : image.run_bytes;
    image.dtype = tensor->dtype;
    return image;
}

/* What several operands of such a piece may take of a core's second-level cache. */
enum { PIECE_BYTES = 256 << 10 };

int64_t cpu_make_pieces(struct cpu_image *image)
{
    const int64_t bytes = (int64_t)(image->run_bytes * (size_t)image->blocks);
    int64_t pieces = 1;

    if (!cpu_in_rows(image))
        return 1;
    while (pieces < image->pixels && (bytes / pieces > PIECE_BYTES || image->pixels % pieces != 0))
        pieces++;
    image->batch *= pieces;
    image->pixels /= pieces;
    image->run /= (size_t)pieces;
    image->run_bytes /= (size_t)pieces;
    return pieces;
}

void cpu_fold(const double lanes[CPU_LANES], int32_t block, double channels[CPU_LANES])
{
    for (int32_t c = 0; c < block; c++) {
        channels[c] = lanes[c];
        for (int32_t lane = c + block; lane < CPU_LANES; lane += block)
            channels[c] += lanes[lane];
    }
}

void cpu_fold_mean(const double lanes[CPU_LANES], int32_t block, int64_t count, float *to)
{
    double channels[CPU_LANES];
    cpu_fold(lanes, block, channels);
    for (int32_t c = 0; c < block; c++)
        to[c] = (float)(channels[c] / (double)count);
}

void cpu_spread(const float *values, int64_t first, int32_t block, float lanes[CPU_LANES])
{
    if (block == CPU_LANES) {
        memcpy(lanes, values + first, CPU_LANES * sizeof(*lanes));
        return;
    }
    for (int32_t lane = 0; lane < CPU_LANES; lane++)
        lanes[lane] = values[first + lane % block];
}

static bool readable(const struct cvy_tensor *tensor)
{
    const enum cvy_layout_kind kind = tensor->layout.kind;
    if (kind == CVY_LAYOUT_PLAIN)
        return true;
    if (kind == CVY_LAYOUT_NHWC)
        return tensor->shape.rank == 4 && tensor->shape.dim[1] % CPU_LANES == 0;
    return (kind == CVY_LAYOUT_BLOCKED16 || kind == CVY_LAYOUT_BLOCKED8) && tensor->shape.rank == 4 &&
           tensor->shape.dim[1] % cpu_block(&tensor->layout) == 0;
}

static void agree(struct cpu_device *device, struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs, bool nhwc)
{
    const struct cvy_tensor *first = NULL;
    bool same = true, opaque = false;
    for (int32_t i = 0; i < desc->inputs; i++) {
        const struct cvy_tensor *tensor = &desc->in[i];
        if (!(inputs & 1U << i) || !cvy_tensor_present(tensor))
            continue;
        first = first ? first : tensor;
        same = same && readable(tensor) && tensor->layout.kind == first->layout.kind;
        opaque |= tensor->layout.kind == CVY_LAYOUT_OPAQUE;
    }
    struct cvy_layout layout = {.kind = CVY_LAYOUT_PLAIN};
    if (first && same && (nhwc || first->layout.kind != CVY_LAYOUT_NHWC))
        layout.kind = first->layout.kind;
    else if (first && first->shape.rank == 4 && !opaque)
        layout = nhwc ? cpu_image_layout(device, desc->images, first->shape.dim[1], first->dtype)
                      : cpu_blocked_layout(device, first->shape.dim[1]);
    for (int32_t i = 0; i < desc->inputs; i++)
        if ((inputs & 1U << i) && cvy_tensor_present(&desc->in[i]))
            desc->in[i].layout = layout;
    for (int32_t i = 0; i < desc->outputs; i++)
        if ((outputs & 1U << i) && cvy_tensor_present(&desc->out[i]))
            desc->out[i].layout = layout;
}

void cpu_agree(struct cpu_device *device, struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs)
{
    agree(device, desc, inputs, outputs, true);
}

void cpu_agree_blocked(struct cpu_device *device, struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs)
{
    agree(device, desc, inputs, outputs, false);
}

void cpu_plain(struct cvy_op_desc *desc, uint32_t except_inputs, uint32_t except_outputs)
{
    const struct cvy_layout plain = {.kind = CVY_LAYOUT_PLAIN};
    for (int32_t i = 0; i < desc->inputs; i++)
        if (!(except_inputs & 1U << i) && cvy_tensor_present(&desc->in[i]))
            desc->in[i].layout = plain;
    for (int32_t i = 0; i < desc->outputs; i++)
        if (!(except_outputs & 1U << i) && cvy_tensor_present(&desc->out[i]))
            desc->out[i].layout = plain;
}

cvy_status cpu_expect_f32(const struct cvy_op_desc *desc, uint32_t except_inputs, uint32_t except_outputs)
{
    for (int32_t i = 0; i < desc->inputs; i++)
        if (!(except_inputs & 1U << i) && cvy_tensor_present(&desc->in[i]) && desc->in[i].dtype != CVY_F32)
            return cvy_fail(CVY_UNAVAILABLE, "input %d is %s, this kernel takes f32", (int)i,
                            cvy_dtype_name(desc->in[i].dtype));
    for (int32_t i = 0; i < desc->outputs; i++)
        if (!(except_outputs & 1U << i) && cvy_tensor_present(&desc->out[i]) && desc->out[i].dtype != CVY_F32)
            return cvy_fail(CVY_UNAVAILABLE, "output %d is %s, this kernel makes f32", (int)i,
                            cvy_dtype_name(desc->out[i].dtype));
    return CVY_OK;
}

/* The first present tensor of the masks. */
static const struct cvy_tensor *first_image(const struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs)
{
    for (int32_t i = 0; i < desc->inputs; i++)
        if ((inputs & 1U << i) && cvy_tensor_present(&desc->in[i]))
            return &desc->in[i];
    for (int32_t i = 0; i < desc->outputs; i++)
        if ((outputs & 1U << i) && cvy_tensor_present(&desc->out[i]))
            return &desc->out[i];
    return NULL;
}

cvy_status cpu_no_norm(const struct cvy_op_desc *desc)
{
    const int32_t own = desc->op == CVY_OP_CONV2D ? 4 : 2; /* inputs of the convolution */
    bool alone = true;

    for (int32_t i = own; i < desc->inputs; i++)
        alone = alone && !cvy_tensor_present(&desc->in[i]);
    for (int32_t i = 1; i < desc->outputs; i++)
        alone = alone && !cvy_tensor_present(&desc->out[i]);
    return alone ? CVY_OK : cvy_fail(CVY_UNAVAILABLE, "this kernel does nothing for the batch norm beside it");
}

cvy_status cpu_expect_images(const struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs, uint32_t except_inputs,
                             uint32_t except_outputs)
{
    const struct cvy_tensor *image = first_image(desc, inputs, outputs);
    const enum cvy_dtype dtype = image ? image->dtype : CVY_F32;
    if (dtype != CVY_F32 && dtype != CVY_BF16)
        return cvy_fail(CVY_UNAVAILABLE, "images are f32 or bf16 here, not %s", cvy_dtype_name(dtype));
    for (int32_t i = 0; i < desc->inputs; i++)
        if ((inputs & 1U << i) && cvy_tensor_present(&desc->in[i]) && desc->in[i].dtype != dtype)
            return cvy_fail(CVY_UNAVAILABLE, "input %d is %s, others are %s", (int)i, cvy_dtype_name(desc->in[i].dtype),
                            cvy_dtype_name(dtype));
    for (int32_t i = 0; i < desc->outputs; i++)
        if ((outputs & 1U << i) && cvy_tensor_present(&desc->out[i]) && desc->out[i].dtype != dtype)
            return cvy_fail(CVY_UNAVAILABLE, "output %d is %s, others are %s", (int)i,
                            cvy_dtype_name(desc->out[i].dtype), cvy_dtype_name(dtype));
    return cpu_expect_f32(desc, inputs | except_inputs, outputs | except_outputs);
}

size_t cpu_tensor_bytes(cvy_device *device, const struct cvy_tensor *tensor)
{
    (void)device;
    const struct cpu_packing *packing = cpu_packing_of(&tensor->layout);
    if (packing)
        return cpu_packing_bytes(packing, &tensor->shape);
    if (cpu_tile_weights_bytes(tensor) > 0)
        return cpu_tile_weights_bytes(tensor);
    if (cpu_winograd_weights_bytes(tensor) > 0)
        return cpu_winograd_weights_bytes(tensor);
    if (cpu_direct_weights_bytes(tensor) > 0)
        return cpu_direct_weights_bytes(tensor);
    if (cpu_is_sign(&tensor->layout))
        return cpu_sign_bytes(tensor);
    if (tensor->layout.kind == CVY_LAYOUT_OPAQUE)
        return cpu_onednn_bytes(&tensor->layout);
    struct cvy_shape shape = tensor->shape;
    const int64_t block = cpu_block(&tensor->layout);
    if (block > 1 && shape.rank >= 2) {
        if (shape.dim[1] > INT64_MAX - block)
            return 0;
        shape.dim[1] = (shape.dim[1] + block - 1) / block * block;
    }
    const int64_t elements = cvy_shape_elements(&shape);
    size_t bytes;
    if (elements < 0 || !cvy_size_mul((size_t)elements, cvy_dtype_size(tensor->dtype), &bytes))
        return 0;
    return bytes;
}

bool cpu_is_few(cvy_device *device, const struct cvy_tensor *x, const struct cvy_tensor *y)
{
    enum { OF_A_CORE = 4 << 20 };
    return cpu_tensor_bytes(device, x) + cpu_tensor_bytes(device, y) <= (size_t)device->threads * OF_A_CORE;
}

cvy_status cpu_state(struct cvy_kernel_plan *plan, const void *bytes, size_t size)
{
    plan->state = cvy_calloc(1, size);
    if (!plan->state)
        return cvy_fail_memory(size, "the state of a kernel");
    memcpy(plan->state, bytes, size);
    return CVY_OK;
}

void cpu_state_release(cvy_device *device, struct cvy_kernel_plan *plan)
{
    (void)device;
    cvy_free(plan->state);
    plan->state = NULL;
}
