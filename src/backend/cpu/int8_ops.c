/* Integer inference: everything but convolutions. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "backend/cpu/int8.h"

/* What the loops over images need. */
struct image {
    struct cvy_int8_attr attr;
    int64_t n, c, h, w, p, q;
    size_t count; /* of elements of x */
};

static struct image image_of(const struct cvy_op_desc *desc)
{
    const struct cvy_shape *x = &desc->in[0].shape, *y = &desc->out[0].shape;
    struct image s = {.attr = desc->attr.int8, .n = x->dim[0], .c = x->rank > 1 ? x->dim[1] : 1};
    s.h = cpu_int8_extent(x, 2);
    s.w = cpu_int8_extent(x, 3);
    s.p = cpu_int8_extent(y, 2);
    s.q = cpu_int8_extent(y, 3);
    s.count = (size_t)cvy_shape_elements(x);
    return s;
}

/* Bytes channels-last, floats too; everything of other ranks plain. */
static void lay_out(struct cvy_op_desc *desc)
{
    struct cvy_tensor *const all[] = {&desc->in[0], &desc->in[1], &desc->out[0]};
    cpu_plain(desc, 0, 0);
    for (int i = 0; i < 3; i++)
        if (cvy_tensor_present(all[i]) && all[i]->shape.rank == 4)
            all[i]->layout = all[i]->dtype == CVY_U8 ? cpu_int8_layout(&all[i]->shape)
                                                     : (struct cvy_layout){.kind = CVY_LAYOUT_NHWC};
}

static cvy_status keep(const struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct image state = image_of(desc);
    return cpu_state(plan, &state, sizeof(state));
}

#define PREPARE(name)                                                                                                  \
    cvy_status cpu_##name##_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)        \
    {                                                                                                                  \
        (void)device;                                                                                                  \
        lay_out(desc);                                                                                                 \
        return keep(desc, plan);                                                                                       \
    }
PREPARE(quantize)
PREPARE(dequantize)
PREPARE(global_avg_pool_int8)
PREPARE(add_int8)

/* Elements in pieces of CPU_CHUNK. */
static size_t piece_at(const struct image *s, size_t at)
{
    return s->count - at < CPU_CHUNK ? s->count - at : CPU_CHUNK;
}

cvy_status cpu_quantize_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                            void *scratch)
{
    (void)scratch;
    const struct image *s = plan->state;
    const struct cpu_int8_kernels *kernels = cpu_of(device)->int8;
#pragma omp parallel for num_threads(device->threads) schedule(static) if (s->count > CPU_CHUNK)
    for (size_t at = 0; at < s->count; at += CPU_CHUNK)
        kernels->quantize((uint8_t *)out[0] + at, (const float *)in[0] + at, piece_at(s, at), s->attr.y);
    return CVY_OK;
}

cvy_status cpu_dequantize_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                              void *scratch)
{
    (void)scratch;
    const struct image *s = plan->state;
    const struct cpu_int8_kernels *kernels = cpu_of(device)->int8;
#pragma omp parallel for num_threads(device->threads) schedule(static) if (s->count > CPU_CHUNK)
    for (size_t at = 0; at < s->count; at += CPU_CHUNK)
        kernels->dequantize((float *)out[0] + at, (const uint8_t *)in[0] + at, piece_at(s, at), s->attr.x);
    return CVY_OK;
}

/* ---- images ---- */

/* The byte of each byte of an image, by channel. */
struct normalize {
    struct image image;
    uint8_t table[4][256];
};

cvy_status cpu_normalize_int8_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    const struct cvy_int8_attr *attr = &desc->attr.int8;
    struct normalize state;
    cpu_plain(desc, 0, 0);
    desc->in[0].layout.kind = CVY_LAYOUT_NHWC;
    desc->out[0].layout = cpu_int8_layout(&desc->out[0].shape);
    memset(&state, 0, sizeof(state));
    state.image = image_of(desc);
    if (state.image.c > 4)
        return cvy_fail(CVY_UNAVAILABLE, "images have four channels at most");
    for (int64_t c = 0; c < state.image.c; c++)
        for (int i = 0; i < 256; i++)
            state.table[c][i] =
                cvy_int8_byte(((float)i - attr->normalize.mean[c]) / attr->normalize.std[c] * (1 / attr->y.scale),
                              (float)-attr->y.zero, attr->y.zero);
    return cpu_state(plan, &state, sizeof(state));
}

cvy_status cpu_normalize_int8_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    (void)scratch;
    const struct normalize *s = plan->state;
    const int64_t rows = s->image.n * s->image.h, columns = s->image.w, channels = s->image.c;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *x = (const uint8_t *)in[0] + row * columns * channels;
        uint8_t *y = (uint8_t *)out[0] + row * columns * channels;
        if (channels == 3) {
            for (int64_t i = 0; i < 3 * columns; i += 3) {
                y[i] = s->table[0][x[i]];
                y[i + 1] = s->table[1][x[i + 1]];
                y[i + 2] = s->table[2][x[i + 2]];
            }
            continue;
        }
        for (int64_t i = 0; i < columns * channels; i++)
            y[i] = s->table[i % channels][x[i]];
    }
    return CVY_OK;
}

/* Bytes of a thread: the addresses of a window's rows or columns, then a row of the image. */
static size_t pool_bytes(const struct cvy_int8_attr *attr, const struct cvy_shape *x)
{
    const int32_t *kernel = attr->conv2d.kernel;
    const size_t pointers = (size_t)(kernel[0] > kernel[1] ? kernel[0] : kernel[1]) * sizeof(void *);
    return (pointers + 63) / 64 * 64 + (size_t)((cpu_int8_extent(x, 3) * x->dim[1] + 63) / 64 * 64);
}

cvy_status cpu_max_pool_int8_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    lay_out(desc);
    plan->scratch_bytes = pool_bytes(&desc->attr.int8, &desc->in[0].shape) * (size_t)device->threads;
    return keep(desc, plan);
}

/* The steps of a window, `count` from `first` on, as far as they are between 0 and `extent`. Returns how many. */
static size_t window_steps(const uint8_t *from, int64_t first, int64_t count, int64_t extent, int64_t step,
                           const uint8_t **found)
{
    size_t inside = 0;
    for (int64_t i = first < 0 ? 0 : first; i < first + count && i < extent; i++)
        found[inside++] = from + i * step;
    return inside;
}

/* Rows first, then columns of what that leaves. */
cvy_status cpu_max_pool_int8_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                 void *const *out, void *scratch)
{
    const struct image *s = plan->state;
    const struct cpu_int8_kernels *kernels = cpu_of(device)->int8;
    const struct cvy_conv2d_attr *a = &s->attr.conv2d;
    const struct cvy_shape x = {.rank = 4, .dim = {s->n, s->c, s->h, s->w}};
    const size_t bytes = pool_bytes(&s->attr, &x), width = (size_t)(s->w * s->c), row_bytes = (width + 63) / 64 * 64;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t i = 0; i < s->n * s->p; i++) {
        const uint8_t *image = (const uint8_t *)in[0] + i / s->p * s->h * s->w * s->c;
        uint8_t *memory = (uint8_t *)scratch + bytes * (size_t)omp_get_thread_num(), *row = memory + bytes - row_bytes;
        const uint8_t **steps = (const uint8_t **)(void *)memory;
        size_t count =
            window_steps(image, i % s->p * a->stride[0] - a->pad[0], a->kernel[0], s->h, (int64_t)width, steps);
        kernels->max(row, steps, count, width);
        for (int64_t q = 0; q < s->q; q++) {
            count = window_steps(row, q * a->stride[1] - a->pad[2], a->kernel[1], s->w, s->c, steps);
            kernels->max((uint8_t *)out[0] + (i * s->q + q) * s->c, steps, count, (size_t)s->c);
        }
    }
    return CVY_OK;
}

/* Channels that are summed at a time. */
enum { SUM_CHANNELS = 256 };

cvy_status cpu_global_avg_pool_int8_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                        void *const *out, void *scratch)
{
    (void)scratch;
    const struct image *s = plan->state;
    const int64_t pixels = s->h * s->w, pieces = (s->c + SUM_CHANNELS - 1) / SUM_CHANNELS;
    const float scale = s->attr.x.scale / (float)pixels;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t i = 0; i < s->n * pieces; i++) {
        const int64_t n = i / pieces, first = i % pieces * SUM_CHANNELS;
        const int64_t left = s->c - first, here = left < SUM_CHANNELS ? left : SUM_CHANNELS;
        int64_t sums[SUM_CHANNELS] = {0};
        for (int64_t at = 0; at < pixels; at++) {
            const uint8_t *x = (const uint8_t *)in[0] + (n * pixels + at) * s->c + first;
            for (int64_t c = 0; c < here; c++)
                sums[c] += x[c];
        }
        for (int64_t c = 0; c < here; c++)
            ((float *)out[0])[n * s->c + first + c] = (float)(sums[c] - s->attr.x.zero * pixels) * scale;
    }
    return CVY_OK;
}

cvy_status cpu_add_int8_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                            void *scratch)
{
    (void)scratch;
    const struct image *s = plan->state;
    const struct cpu_int8_kernels *kernels = cpu_of(device)->int8;
#pragma omp parallel for num_threads(device->threads) schedule(static) if (s->count > CPU_CHUNK)
    for (size_t at = 0; at < s->count; at += CPU_CHUNK)
        kernels->add((uint8_t *)out[0] + at, (const uint8_t *)in[0] + at, (const uint8_t *)in[1] + at, piece_at(s, at),
                     &s->attr);
    return CVY_OK;
}

cvy_status cpu_scale_channels_int8_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    lay_out(desc);
    desc->in[0].layout.kind = desc->out[0].layout.kind = CVY_LAYOUT_NHWC;
    plan->scratch_bytes = (size_t)(desc->in[0].shape.dim[0] * desc->in[0].shape.dim[1]) * sizeof(float);
    return keep(desc, plan);
}

cvy_status cpu_scale_channels_int8_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                       void *const *out, void *scratch)
{
    const struct image *s = plan->state;
    const struct cpu_int8_kernels *kernels = cpu_of(device)->int8;
    const int64_t pixels = s->h * s->w, piece = CPU_CHUNK / s->c > 0 ? CPU_CHUNK / s->c : 1;
    const int64_t pieces = (pixels + piece - 1) / piece;
    const float *factors = in[1], inverse = 1 / s->attr.y.scale;
    float *all = scratch;
    for (int64_t i = 0; i < s->n * s->c; i++)
        all[i] = factors[i] * s->attr.x.scale * inverse;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t i = 0; i < s->n * pieces; i++) {
        const int64_t n = i / pieces, first = i % pieces * piece, left = pixels - first;
        const int64_t at = (n * pixels + first) * s->c;
        kernels->scale((uint8_t *)out[0] + at, (const uint8_t *)in[0] + at, (size_t)(left < piece ? left : piece),
                       (size_t)s->c, all + n * s->c, s->attr.x.zero, s->attr.y.zero);
    }
    return CVY_OK;
}

/* ---- weights: once for all runs ---- */

struct weights {
    int64_t rows, length;
    bool channels;
};

cvy_status cpu_quantize_weights_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    cpu_plain(desc, 0, 0);
    const int64_t rows = desc->in[0].shape.dim[0];
    const struct weights state = {rows, rows ? cvy_shape_elements(&desc->in[0].shape) / rows : 0,
                                  desc->attr.fake_quantize.channels};
    return cpu_state(plan, &state, sizeof(state));
}

cvy_status cpu_quantize_weights_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                    void *const *out, void *scratch)
{
    (void)scratch;
    const struct weights *s = plan->state;
    const float *w = in[0];
    float *scales = out[1], largest = 0;
#pragma omp parallel for num_threads(device->threads) schedule(static) reduction(max : largest)
    for (int64_t k = 0; k < s->rows; k++) {
        float peak = 0;
        for (int64_t i = k * s->length; i < (k + 1) * s->length; i++)
            peak = fabsf(w[i]) > peak ? fabsf(w[i]) : peak;
        scales[k] = peak;
        largest = peak > largest ? peak : largest;
    }
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t k = 0; k < s->rows; k++) {
        scales[k] = (s->channels ? scales[k] : largest) / 127;
        for (int64_t i = k * s->length; i < (k + 1) * s->length; i++) {
            const float level = scales[k] > 0 ? rintf(w[i] / scales[k]) : 0;
            ((int8_t *)out[0])[i] = (int8_t)(level > 127 ? 127 : level > -127 ? level : -127);
        }
    }
    return CVY_OK;
}
