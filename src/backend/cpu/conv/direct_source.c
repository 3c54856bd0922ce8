/* The source of direct convolutions: which of them fit, and how what windows read is gathered. */
#include <string.h>

#include "backend/cpu/conv/direct.h"
#include "base/system.h"

#define MOST_EXTENT (INT32_MAX / 64) /* of anything, so that products of a few fit 32 bits, or 64 */

cvy_status cpu_choose_direct(struct cpu_device *device)
{
    static const char *const names[] = {[CPU_ALWAYS] = "always", [CPU_NEVER] = "never"};

    CVY_TRY(cpu_read_choice("CONVOY_CPU_DIRECT", &device->direct));
    if (device->direct != CPU_AUTO)
        cpu_add_setting(device, "CONVOY_CPU_DIRECT", names[device->direct]);
    return CVY_OK;
}

cvy_status direct_expect(const struct cpu_device *device, const struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cpu_direct_loops *const loops = direct_loops_here();
    const struct cvy_conv2d_attr *const attr = &desc->attr.conv2d;
    const bool backward = desc->op == CVY_OP_CONV2D_BWD_DATA;
    const struct cvy_tensor *const x = backward ? &desc->out[0] : &desc->in[0];
    const struct cvy_tensor *const y = desc->op == CVY_OP_CONV2D ? &desc->out[0] : &desc->in[1];
    const int64_t lanes = loops ? loops->lanes : 1, channels = x->shape.dim[1];
    const int64_t taps = (int64_t)attr->kernel[0] * attr->kernel[1];
    const bool strided = attr->stride[0] != 1 || attr->stride[1] != 1;

    plan->quiet = attr->groups != 1 || !loops;
    if (!loops)
        return cvy_fail(CVY_UNAVAILABLE, "oneDNN's convolutions are better with AVX-512");
    if (device->direct == CPU_NEVER)
        return cvy_fail(CVY_UNAVAILABLE, "%s", device->base.settings);
    if (attr->groups != 1)
        return cvy_fail(CVY_UNAVAILABLE, "only without groups");
    CVY_TRY(cpu_expect_f32(desc, 0, 0));
    CVY_TRY(cpu_no_norm(desc));
    if (cpu_prefers_nhwc(device, desc->images, CVY_F32))
        return cvy_fail(CVY_UNAVAILABLE, "images are channels-last");
    if (device->base.checked && desc->op != CVY_OP_CONV2D_BWD_WEIGHTS)
        return cvy_fail(CVY_UNAVAILABLE, "packed weights cannot be read back by the check device");
    /* With AVX2 oneDNN's windows are as fast; without it they are plain loops, or those of SSE. */
    if (taps != 1 && device->direct == CPU_AUTO && cvy_cpu_isa() != CVY_ISA_BASE)
        return cvy_fail(CVY_UNAVAILABLE, "only 1x1 kernels with AVX2");
    if (channels % lanes && (backward || channels > lanes))
        return cvy_fail(CVY_UNAVAILABLE, "channels are no multiple of %d", (int)lanes);
    if (backward && strided && (taps != 1 || attr->pad[0] || attr->pad[1] || attr->pad[2] || attr->pad[3]))
        return cvy_fail(CVY_UNAVAILABLE, "the gradient of strided windows' data");
    for (int i = 0; i < 2; i++) {
        if (x->shape.dim[2 + i] > MOST_EXTENT / attr->stride[i] ||
            y->shape.dim[2 + i] > MOST_EXTENT / attr->stride[i] || attr->kernel[i] > 64 ||
            attr->dilation[i] > MOST_EXTENT / 64 || attr->pad[2 * i] > MOST_EXTENT)
            return cvy_fail(CVY_UNAVAILABLE, "extents are too large");
    }
    if (x->shape.dim[2] * x->shape.dim[3] > MOST_EXTENT || y->shape.dim[2] * y->shape.dim[3] > MOST_EXTENT ||
        channels * taps > MOST_EXTENT || y->shape.dim[1] * taps > MOST_EXTENT)
        return cvy_fail(CVY_UNAVAILABLE, "images are too large");
    return CVY_OK;
}

bool cpu_direct_takes(const struct cpu_device *device, const struct cvy_op_desc *desc)
{
    struct cvy_kernel_plan plan = {0};
    return direct_expect(device, desc, &plan) == CVY_OK;
}

struct direct_source direct_source_of(const struct cvy_conv2d_attr *attr, const struct cvy_tensor *source,
                                      const struct cvy_tensor *grid, int32_t lanes, bool plain)
{
    struct direct_source s = {.channels = (int32_t)source->shape.dim[1], .lanes = lanes, .plain = plain};
    const int32_t taps = attr->kernel[0] * attr->kernel[1];

    s.blocks = (int32_t)divide_up(s.channels, lanes);
    s.depth = s.plain ? (int32_t)divide_up((int64_t)s.channels * taps, lanes) : s.blocks * taps;
    s.gathered = s.plain || taps != 1;
    for (int i = 0; i < 2; i++) {
        s.extent[i] = (int32_t)source->shape.dim[2 + i];
        s.grid[i] = (int32_t)grid->shape.dim[2 + i];
        s.kernel[i] = attr->kernel[i];
        s.stride[i] = attr->stride[i];
        s.dilation[i] = attr->dilation[i];
        s.pad[i] = attr->pad[2 * i];
        s.gathered = s.gathered || s.stride[i] != 1 || s.pad[i] != 0 || s.extent[i] != s.grid[i];
    }
    return s;
}

/* Some pixels of one row of the grid, of one tap. */
struct row {
    const float *from; /* the source's row; NULL: it lies outside */
    int32_t column;    /* of the source, for the first pixel */
    int32_t pixels;
};

static struct row row_at(const struct direct_source *s, const float *channel, size_t pixel_floats, int32_t tap,
                         int32_t pixel, int32_t rest)
{
    const int32_t p = pixel / s->grid[1], q = pixel % s->grid[1];
    const int32_t h = p * s->stride[0] + tap / s->kernel[1] * s->dilation[0] - s->pad[0];
    struct row row = {.column = q * s->stride[1] + tap % s->kernel[1] * s->dilation[1] - s->pad[1],
                      .pixels = (int32_t)smaller(s->grid[1] - q, rest)};
    if (h >= 0 && h < s->extent[0])
        row.from = channel + (size_t)h * (size_t)s->extent[1] * pixel_floats;
    return row;
}

/* A block of `lanes` channels; a pixel of it is as long as the copy, which the compiler must know. */
static void gather_block(const struct direct_source *s, const float *block, int32_t tap, int32_t pixel, int32_t pixels,
                         float *to)
{
    enum { LANES = 8 };
    while (pixels > 0) {
        const struct row row = row_at(s, block, LANES, tap, pixel, pixels);
        for (int32_t i = 0; i < row.pixels; i++) {
            const int32_t column = row.column + i * s->stride[1];
            if (row.from && column >= 0 && column < s->extent[1])
                memcpy(to + (size_t)i * LANES, row.from + (size_t)column * LANES, LANES * sizeof *to);
            else
                memset(to + (size_t)i * LANES, 0, LANES * sizeof *to);
        }
        to += (size_t)row.pixels * LANES;
        pixel += row.pixels;
        pixels -= row.pixels;
    }
}

/* One number of the depth of a plain source, which goes to a lane. */
static void gather_lane(const struct direct_source *s, const float *channel, int32_t tap, int32_t pixel, int32_t pixels,
                        float *to)
{
    const size_t lanes = (size_t)s->lanes;
    while (pixels > 0) {
        const struct row row = row_at(s, channel, 1, tap, pixel, pixels);
        for (int32_t i = 0; i < row.pixels; i++) {
            const int32_t column = row.column + i * s->stride[1];
            to[(size_t)i * lanes] = row.from && column >= 0 && column < s->extent[1] ? row.from[column] : 0;
        }
        to += (size_t)row.pixels * lanes;
        pixel += row.pixels;
        pixels -= row.pixels;
    }
}

void direct_gather(const struct direct_source *s, const float *image, int32_t first, int32_t end, int32_t pixel,
                   int32_t pixels, float *to, size_t step)
{
    const int32_t taps = s->kernel[0] * s->kernel[1];
    const size_t plane = (size_t)s->extent[0] * (size_t)s->extent[1];

    if (!s->plain) {
        for (int32_t b = first; b < end; b++, to += step)
            gather_block(s, image + (size_t)(b % s->blocks) * plane * (size_t)s->lanes, b / s->blocks, pixel, pixels,
                         to);
        return;
    }
    for (int32_t b = first; b < end; b++, to += step)
        for (int32_t l = 0; l < s->lanes; l++) {
            const int32_t number = b * s->lanes + l;
            if (number < s->channels * taps)
                gather_lane(s, image + (size_t)(number / taps) * plane, number % taps, pixel, pixels, to + l);
            else
                for (int32_t i = 0; i < pixels; i++)
                    to[(size_t)i * (size_t)s->lanes + (size_t)l] = 0;
        }
}
