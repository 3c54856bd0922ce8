/* The layout of sign.h: into it and back. */
#include <string.h>

#include "backend/cpu/sign.h"

/* Opaque layouts are told apart by what describes them, first of all its size. */
struct detail {
    uint32_t channels;
};
static const struct detail detail = {CPU_SIGN_CHANNELS};

struct cvy_layout cpu_sign_layout(void)
{
    return (struct cvy_layout){.kind = CVY_LAYOUT_OPAQUE, .detail = &detail, .detail_size = sizeof detail};
}

bool cpu_is_sign(const struct cvy_layout *layout)
{
    const struct cvy_layout sign = cpu_sign_layout();

    return cvy_layout_equal(layout, &sign);
}

cvy_status cpu_expect_sign(const struct cvy_tensor *tensor)
{
    if (tensor->dtype != CVY_BF16 || tensor->shape.rank != 4 || tensor->shape.dim[1] % CPU_SIGN_CHANNELS != 0)
        return cvy_fail(CVY_UNAVAILABLE, "bits are kept of images of bf16 with a multiple of %d channels only",
                        CPU_SIGN_CHANNELS);
    return CVY_OK;
}

size_t cpu_sign_bytes(const struct cvy_tensor *tensor)
{
    const int64_t elements = cvy_shape_elements(&tensor->shape);

    return elements < 0 ? 0 : (size_t)elements / 8;
}

/* ---- reorders ---- */

struct reorder {
    int64_t batch, pixels, channels;
    int64_t pixel_step, channel_step; /* of the numbers, in elements */
    bool unpack;
};

cvy_status cpu_reorder_sign_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const bool from = cpu_is_sign(&desc->in[0].layout), to = cpu_is_sign(&desc->out[0].layout);
    const struct cvy_tensor *const numbers = from ? &desc->out[0] : &desc->in[0];
    const int64_t *const dim = numbers->shape.dim;
    const bool nhwc = numbers->layout.kind == CVY_LAYOUT_NHWC;

    (void)device;
    plan->quiet = !from && !to;
    if (from == to || (!nhwc && numbers->layout.kind != CVY_LAYOUT_PLAIN) || desc->in[0].dtype != desc->out[0].dtype)
        return cvy_fail(CVY_UNAVAILABLE, "this kernel reorders between bits and plain or channels-last images only");
    CVY_TRY(cpu_expect_sign(numbers));
    const struct reorder state = {.batch = dim[0],
                                  .pixels = dim[2] * dim[3],
                                  .channels = dim[1],
                                  .pixel_step = nhwc ? dim[1] : 1,
                                  .channel_step = nhwc ? 1 : dim[2] * dim[3],
                                  .unpack = from};
    return cpu_state(plan, &state, sizeof state);
}

static uint32_t pack(const struct reorder *s, const uint16_t *from)
{
    uint32_t word = 0;

    for (int c = 0; c < CPU_SIGN_CHANNELS; c++)
        word |= (uint32_t)((from[c * s->channel_step] & 0x7fff) != 0) << c; /* neither 0 nor -0 */
    return word;
}

static void unpack(const struct reorder *s, uint32_t word, uint16_t *to)
{
    enum { ONE = 0x3f80 };

    for (int c = 0; c < CPU_SIGN_CHANNELS; c++)
        to[c * s->channel_step] = word >> c & 1 ? ONE : 0;
}

cvy_status cpu_reorder_sign_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    const struct reorder *const s = plan->state;
    const int64_t words = s->channels / CPU_SIGN_CHANNELS; /* of a pixel */

    (void)scratch;
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < s->batch; n++)
        for (int64_t pixel = 0; pixel < s->pixels; pixel++)
            for (int64_t w = 0; w < words; w++) {
                const int64_t at = (n * s->pixels + pixel) * words + w;
                const int64_t number =
                    n * s->pixels * s->channels + pixel * s->pixel_step + w * CPU_SIGN_CHANNELS * s->channel_step;
                if (s->unpack)
                    unpack(s, ((const uint32_t *)in[0])[at], (uint16_t *)out[0] + number);
                else
                    ((uint32_t *)out[0])[at] = pack(s, (const uint16_t *)in[0] + number);
            }
    return CVY_OK;
}
