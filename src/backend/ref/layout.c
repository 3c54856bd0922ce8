/* Sizes and conversions: layouts of the same values, and floating-point types. */
#include <math.h>
#include <string.h>

#include "backend/ref/ref.h"
#include "base/error.h"

/* Channels that a layout pads to a multiple of: 16, 8, 4 or 1. */
static int64_t multiple_of(const struct cvy_layout *layout)
{
    switch (layout->kind) {
    case CVY_LAYOUT_BLOCKED16:
        return 16;
    case CVY_LAYOUT_BLOCKED8:
    case CVY_LAYOUT_NHWC8:
        return 8;
    case CVY_LAYOUT_NHWC4:
        return 4;
    default:
        return 1;
    }
}

/* Where element (n,c,h,w) lies: n * image + (c / block) * group + (c % block) * channel + h * row + w * column. */
struct strides {
    int64_t block; /* channels of a group; `channels` is rounded up to whole groups */
    int64_t channels, image, group, channel, row, column;
};

static struct strides strides_of(const struct cvy_tensor *tensor)
{
    const int64_t c = tensor->shape.dim[1], h = tensor->shape.dim[2], w = tensor->shape.dim[3];
    const int64_t multiple = multiple_of(&tensor->layout), channels = (c + multiple - 1) / multiple * multiple;

    switch (tensor->layout.kind) {
    case CVY_LAYOUT_NHWC:
    case CVY_LAYOUT_NHWC4:
    case CVY_LAYOUT_NHWC8:
        return (struct strides){1, channels, channels * h * w, 1, 0, w * channels, channels};
    case CVY_LAYOUT_BLOCKED16:
    case CVY_LAYOUT_BLOCKED8:
        return (struct strides){multiple, channels, channels * h * w, h * w * multiple, 1, w * multiple, multiple};
    default:
        return (struct strides){1, c, c * h * w, h * w, 0, w, 1};
    }
}

static int64_t offset_of(const struct strides *s, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return n * s->image + c / s->block * s->group + c % s->block * s->channel + h * s->row + w * s->column;
}

size_t ref_tensor_bytes(cvy_device *device, const struct cvy_tensor *tensor)
{
    struct cvy_shape shape = tensor->shape;
    const int64_t multiple = multiple_of(&tensor->layout);
    int64_t elements;
    size_t bytes;

    (void)device;
    if (tensor->layout.kind == CVY_LAYOUT_OPAQUE || (tensor->layout.kind != CVY_LAYOUT_PLAIN && shape.rank != 4))
        return 0;
    if (multiple > 1) {
        if (__builtin_add_overflow(shape.dim[1], multiple - 1, &shape.dim[1]))
            return 0;
        shape.dim[1] = shape.dim[1] / multiple * multiple;
    }
    elements = cvy_shape_elements(&shape);
    if (elements < 0 || !cvy_size_mul((size_t)elements, cvy_dtype_size(tensor->dtype), &bytes))
        return 0;
    return bytes;
}

cvy_status ref_reorder(const struct ref_call *call)
{
    const struct cvy_tensor *from = &call->desc->in[0], *to = &call->desc->out[0];
    const size_t size = cvy_dtype_size(from->dtype);
    const char *source = call->in[0];
    char *target = call->out[0];

    if (cvy_layout_equal(&from->layout, &to->layout)) {
        memcpy(target, source, ref_tensor_bytes(NULL, from));
        return CVY_OK;
    }
    const struct strides in = strides_of(from), out = strides_of(to);
    const int64_t channels = from->shape.dim[1];
#pragma omp parallel for collapse(2) num_threads(call->threads)
    for (int64_t n = 0; n < from->shape.dim[0]; n++) {
        for (int64_t c = 0; c < out.channels; c++) {
            for (int64_t h = 0; h < from->shape.dim[2]; h++) {
                for (int64_t w = 0; w < from->shape.dim[3]; w++) {
                    char *element = target + size * (size_t)offset_of(&out, n, c, h, w);
                    if (c < channels)
                        memcpy(element, source + size * (size_t)offset_of(&in, n, c, h, w), size);
                    else
                        memset(element, 0, size); /* the padding */
                }
            }
        }
    }
    return CVY_OK;
}

/* ---- floating-point types ---- */

/* A 16-bit format: sign, exponent from `min_exponent` (that of the smallest normal number), `mantissa` bits. */
struct half_format {
    int mantissa, min_exponent;
    uint16_t infinity;
};
static const struct half_format f16_format = {10, -14, 0x7c00}, bf16_format = {7, -126, 0x7f80};

/* Round to nearest, ties to even, straight from double: going through float would round twice. */
static uint16_t to_half(double value, const struct half_format *format)
{
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const double magnitude = fabs(value);
    int exponent;
    int64_t bits;

    if (isnan(value))
        return sign | format->infinity | (uint16_t)(1 << (format->mantissa - 1));
    if (isinf(value))
        return sign | format->infinity;
    if (magnitude == 0)
        return sign;
    exponent = ilogb(magnitude);
    if (exponent < format->min_exponent)
        exponent = format->min_exponent;
    /* In units of the last place: below 2^mantissa for subnormals, up to 2^(mantissa + 1), where the carry moves into
     * the exponent by itself. */
    bits = ((int64_t)(exponent - format->min_exponent) << format->mantissa) +
           (int64_t)nearbyint(ldexp(magnitude, format->mantissa - exponent));
    return sign | (bits > format->infinity ? format->infinity : (uint16_t)bits);
}

static double from_half(uint16_t half, const struct half_format *format)
{
    const int exponent = (half & 0x7fff) >> format->mantissa;
    const int fraction = half & ((1 << format->mantissa) - 1);
    double magnitude;

    if ((half & format->infinity) == format->infinity)
        magnitude = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(fraction, format->min_exponent - format->mantissa);
    else
        magnitude = ldexp(fraction + (1 << format->mantissa), exponent - 1 + format->min_exponent - format->mantissa);
    return half & 0x8000 ? -magnitude : magnitude;
}

static double load(const void *from, enum cvy_dtype dtype, int64_t i)
{
    switch (dtype) {
    case CVY_F32:
        return (double)((const float *)from)[i];
    case CVY_F64:
        return ((const double *)from)[i];
    case CVY_F16:
        return from_half(((const uint16_t *)from)[i], &f16_format);
    case CVY_BF16:
        return from_half(((const uint16_t *)from)[i], &bf16_format);
    default:
        return NAN; /* refused by prepare() */
    }
}

static void store(void *to, enum cvy_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case CVY_F32:
        ((float *)to)[i] = (float)value;
        break;
    case CVY_F64:
        ((double *)to)[i] = value;
        break;
    case CVY_F16:
        ((uint16_t *)to)[i] = to_half(value, &f16_format);
        break;
    case CVY_BF16:
        ((uint16_t *)to)[i] = to_half(value, &bf16_format);
        break;
    default:
        break; /* refused by prepare() */
    }
}

cvy_status ref_cast(const struct ref_call *call)
{
    const enum cvy_dtype from = call->desc->in[0].dtype, to = call->desc->out[0].dtype;
    const int64_t count = cvy_shape_elements(&call->desc->in[0].shape);

#pragma omp parallel for num_threads(call->threads)
    for (int64_t i = 0; i < count; i++)
        store(call->out[0], to, i, load(call->in[0], from, i));
    return CVY_OK;
}
