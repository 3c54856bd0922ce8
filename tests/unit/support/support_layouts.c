#include "support_layouts.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* ---- layouts, written independently of the backends ---- */

size_t layout_plain_bytes(const struct cvy_tensor *tensor)
{
    return (size_t)cvy_shape_elements(&tensor->shape) * cvy_dtype_size(tensor->dtype);
}

static int64_t padded_channels(const struct cvy_tensor *tensor)
{
    const int64_t block = tensor->layout.kind == CVY_LAYOUT_BLOCKED16  ? 16
                          : tensor->layout.kind == CVY_LAYOUT_BLOCKED8 ? 8
                          : tensor->layout.kind == CVY_LAYOUT_NHWC8    ? 8
                          : tensor->layout.kind == CVY_LAYOUT_NHWC4    ? 4
                                                                       : 1;
    return (tensor->shape.dim[1] + block - 1) / block * block;
}

static int64_t place(const struct cvy_tensor *tensor, int64_t n, int64_t c, int64_t pixel)
{
    const int64_t pixels = tensor->shape.dim[2] * tensor->shape.dim[3], channels = padded_channels(tensor);
    switch (tensor->layout.kind) {
    case CVY_LAYOUT_NHWC:
    case CVY_LAYOUT_NHWC4:
    case CVY_LAYOUT_NHWC8:
        return (n * pixels + pixel) * channels + c;
    case CVY_LAYOUT_BLOCKED16:
        return (n * channels + c / 16 * 16) * pixels + pixel * 16 + c % 16;
    case CVY_LAYOUT_BLOCKED8:
        return (n * channels + c / 8 * 8) * pixels + pixel * 8 + c % 8;
    default:
        return (n * channels + c) * pixels + pixel;
    }
}

/* Every element of a row to places that lie apart, or from there; a constant size makes moves of these copies. */
#define COPY_STRIDED(SIZE)                                                                                             \
    for (int64_t i = 0; i < count; i++)                                                                                \
    memcpy((char *)to + i * to_step * SIZE, (const char *)from + i * from_step * SIZE, SIZE)

static void copy_strided(void *to, int64_t to_step, const void *from, int64_t from_step, int64_t count, size_t size)
{
    switch (size) {
    case 1:
        COPY_STRIDED(1);
        break;
    case 2:
        COPY_STRIDED(2);
        break;
    case 4:
        COPY_STRIDED(4);
        break;
    default:
        COPY_STRIDED(8);
        break;
    }
}

/* Plain to laid out (or back), a channel of an image at a time. Returns false when padding channels read back are not
 * zero. */
bool layout_convert(const struct cvy_tensor *tensor, char *laid_out, char *plain, bool to_plain)
{
    const size_t size = cvy_dtype_size(tensor->dtype);
    if (tensor->layout.kind == CVY_LAYOUT_PLAIN) {
        memcpy(to_plain ? plain : laid_out, to_plain ? laid_out : plain, layout_plain_bytes(tensor));
        return true;
    }
    static const char zero[8];
    const int64_t *dim = tensor->shape.dim, pixels = dim[2] * dim[3];
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < padded_channels(tensor); c++) {
            const int64_t step = place(tensor, n, c, 1) - place(tensor, n, c, 0);
            char *there = laid_out + (size_t)place(tensor, n, c, 0) * size;
            char *here = plain + (size_t)((n * dim[1] + c) * pixels) * size;
            if (c < dim[1] && to_plain)
                copy_strided(here, 1, there, step, pixels, size);
            else if (c < dim[1])
                copy_strided(there, step, here, 1, pixels, size);
            else if (!to_plain)
                copy_strided(there, step, zero, 0, pixels, size);
            else
                for (int64_t i = 0; i < pixels; i++)
                    if (memcmp(there + (size_t)(i * step) * size, zero, size) != 0)
                        return false;
        }
    return true;
}

/* Opaque weights only their own device can read: by its reorder kernel. */
cvy_status layout_convert_opaque(cvy_device *device, const struct cvy_tensor *tensor, void *laid_out, void *plain,
                                 bool to_plain)
{
    struct cvy_op_desc desc = {.op = CVY_OP_REORDER, .inputs = 1, .outputs = 1, .in = {*tensor}, .out = {*tensor}};
    struct cvy_kernel_plan plan;
    desc.in[0].layout = to_plain ? tensor->layout : (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    desc.out[0].layout = to_plain ? (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN} : tensor->layout;
    CVY_TRY(cvy_kernel_select(device, &desc, &plan));
    void *scratch = cvy_calloc_aligned(plan.scratch_bytes + 64);
    void *in[CVY_MAX_INPUTS] = {to_plain ? laid_out : plain}, *out[CVY_MAX_OUTPUTS] = {to_plain ? plain : laid_out};
    const cvy_status status =
        scratch ? plan.kernel->run(device, &plan, in, out, scratch) : cvy_fail_memory(plan.scratch_bytes, "scratch");
    cvy_free_aligned(scratch);
    cvy_kernel_release(device, &plan);
    return status;
}

/* ---- guarded memory ---- */

#define GUARD      256
#define GUARD_BYTE 0xA5

/* Bytes of 0xFF are a NaN in every floating-point type. */
struct guarded guarded_new(size_t bytes)
{
    struct guarded g = {.block = cvy_calloc_aligned(bytes + 2 * GUARD), .bytes = bytes};
    if (!g.block)
        abort();
    memset(g.block, GUARD_BYTE, GUARD);
    memset(g.block + GUARD, 0xFF, bytes);
    memset(g.block + GUARD + bytes, GUARD_BYTE, GUARD);
    g.memory = g.block + GUARD;
    return g;
}

bool guarded_intact(const struct guarded *g)
{
    unsigned char untouched[GUARD];
    memset(untouched, GUARD_BYTE, GUARD);
    return !g->block ||
           (memcmp(g->block, untouched, GUARD) == 0 && memcmp(g->block + GUARD + g->bytes, untouched, GUARD) == 0);
}

/* Four sums that do not wait for each other: one is as slow as its multiplications follow each other. */
uint64_t guarded_checksum(const struct guarded *g)
{
    uint64_t sum[4] = {0xcbf29ce484222325U, 1, 2, 3};
    const unsigned char *bytes = g->memory;
    size_t i = 0;
    for (; i + 32 <= g->bytes; i += 32) {
        uint64_t word[4];
        memcpy(word, bytes + i, 32);
        for (int k = 0; k < 4; k++)
            sum[k] = (sum[k] ^ word[k]) * 0x9E3779B97F4A7C15U;
    }
    for (; i < g->bytes; i++)
        sum[0] = (sum[0] ^ bytes[i]) * 0x9E3779B97F4A7C15U;
    for (int k = 1; k < 4; k++)
        sum[0] = (sum[0] ^ sum[k]) * 0x9E3779B97F4A7C15U;
    return sum[0];
}

void guarded_release(cvy_device *device, struct guarded *g)
{
    device->backend->release(device, g->device);
    cvy_free_aligned(g->block);
}

/* Where the kernel finds the buffer: on a device with memory of its own, a copy there. */
void *guarded_place(cvy_device *device, struct guarded *g)
{
    const size_t bytes = g->bytes + 2 * GUARD;
    if (!g->block || device->backend->host_memory)
        return g->memory;
    if (device->backend->allocate(device, bytes, &g->device) != CVY_OK ||
        device->backend->upload(device, g->device, g->block, bytes) != CVY_OK)
        abort();
    return (char *)g->device + GUARD;
}

bool guarded_bring_back(cvy_device *device, struct guarded *g)
{
    return !g->device || device->backend->download(device, g->block, g->device, g->bytes + 2 * GUARD) == CVY_OK;
}
