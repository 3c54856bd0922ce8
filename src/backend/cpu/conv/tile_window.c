/* Convolutions with windows of channels-last bf16 images by tile products: forward, and the gradient of the data;
 * groups of 16 channels, or of a multiple of 32, too. Where weights do not change, those with groups alone.
 *
 * Places are pixels with zeros between the rows of an image and between images, as wide as the padding: there a tap of
 * the window is a distance, and a tile's rows are 16 places one after the other, whatever lies among them. A band, some
 * rows of an image or some whole images, is copied into such places, a thread's own, for each remainder of pixels by
 * the stride that a tap reads (planes). The gradient of strided data is that of as many kinds of pixels ("parts") as
 * the stride has remainders: each is a convolution of dy with some taps. Four tiles of places by 16 lanes are summed
 * over all taps and channels in registers. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/conv/tile_window.h"
#include "base/system.h"

#define BAND_BYTES  ((size_t)512 << 10) /* of places: in the second-level cache, beside weights */
#define BAND_PLACES 1024                /* at most */
#define TASKS       4                   /* for each thread, where there are so many rows */
#define MOST_BYTES  ((size_t)256 << 20) /* of packed weights, and of a thread */
#define SUM_BYTES   (2 * (size_t)WINDOW_TILES * WINDOW_HEIGHT * WINDOW_LANES * sizeof(float))
#define MAX_EXTENT  INT16_MAX /* of images and channels */

/* ---- bands ---- */

/* That many places, and what fills the last tiles that are multiplied together. */
static int32_t whole_tiles(int32_t places, int32_t height)
{
    const int32_t together = WINDOW_TILES * height;
    return (int32_t)divide_up(places, together) * together;
}

struct band {
    const struct window_part *part;
    struct place_band of;
};

static struct band band_at(const struct tile_window *s, int64_t task)
{
    const struct window_part *part = s->part;
    while (task >= part->bands.count) {
        task -= part->bands.count;
        part++;
    }
    return (struct band){.part = part, .of = place_band_at(&part->bands, task)};
}

/* One row of places of a plane; `from`: its pixels, NULL: there are none. */
static void copy_row(const struct tile_window *s, const struct window_axis *column, int32_t plane, int32_t count,
                     const uint16_t *from, uint16_t *to)
{
    const size_t channels = (size_t)s->source_channels, bytes = channels * sizeof(*to);
    const int32_t offset = column->offset[plane], step = column->source_step;
    const int32_t begin = offset < 0 ? (int32_t)divide_up(-offset, step) : 0;
    const int32_t past = s->source[1] - offset, most = past > 0 ? (int32_t)divide_up(past, step) : 0;
    const int32_t end = most < count ? most : count;

    if (!from || begin >= end) {
        memset(to, 0, (size_t)count * bytes);
        return;
    }
    memset(to, 0, (size_t)begin * bytes);
    if (step == 1)
        memcpy(to + (size_t)begin * channels, from + (size_t)(begin + offset) * channels,
               (size_t)(end - begin) * bytes);
    else
        for (int32_t i = begin; i < end; i++)
            memcpy(to + (size_t)i * channels, from + (size_t)(i * step + offset) * channels, bytes);
    memset(to + (size_t)end * channels, 0, (size_t)(count - end) * bytes);
}

/* All planes of a band: `places` of them, with what comes after the last row. */
static void copy_band(const struct tile_window *s, const struct band *band, const uint16_t *source, int32_t places,
                      char *to)
{
    const struct window_axis *const row = &band->part->axis[0], *const column = &band->part->axis[1];
    const int64_t image = (int64_t)s->source[0] * s->source[1] * s->source_channels;

    for (int32_t plane = 0; plane < row->planes * column->planes; plane++) {
        uint16_t *const at = (uint16_t *)(to + (size_t)plane * s->plane_bytes);
        for (int32_t m = 0; m * column->pitch < places; m++) {
            const int32_t i = m / row->pitch < band->of.images ? m / row->pitch : band->of.images - 1;
            const int64_t h =
                (int64_t)(band->of.row + m - i * row->pitch) * row->source_step + row->offset[plane / column->planes];
            const int32_t left = places - m * column->pitch;
            const bool inside = h >= 0 && h < s->source[0];
            copy_row(s, column, plane % column->planes, left < column->pitch ? left : column->pitch,
                     inside ? source + (band->of.image + i) * image + h * s->source[1] * s->source_channels : NULL,
                     at + (size_t)m * (size_t)column->pitch * (size_t)s->source_channels);
        }
    }
}

/* Where each place's result belongs. */
static void find_results(const struct tile_window *s, const struct band *band, uint16_t *result, int32_t places,
                         uint16_t **to)
{
    const struct window_axis *const row = &band->part->axis[0], *const column = &band->part->axis[1];

    memset(to, 0, (size_t)places * sizeof(*to));
    for (int32_t i = 0; i < band->of.images; i++)
        for (int32_t m = 0; m < band->of.rows; m++) {
            uint16_t **const at = to + (int64_t)(i * row->pitch + m) * column->pitch;
            const int64_t h = row->first + (int64_t)(band->of.row + m) * row->step;
            const int64_t pixel = ((band->of.image + i) * s->result[0] + h) * s->result[1] + column->first;
            for (int32_t q = 0; q < column->places; q++)
                at[q] = result + (pixel + (int64_t)q * column->step) * s->order.lanes;
        }
}

struct operands {
    const uint16_t *source, *plain; /* images, and weights where they are not packed */
    const char *weights;            /* packed */
    const float *bias;
    uint16_t *result;
};

static void run_task(const struct tile_window *s, int64_t index, const struct operands *o, char *buffer)
{
    const struct band band = band_at(s, index);
    const struct window_axis *const row = &band.part->axis[0], *const column = &band.part->axis[1];
    const int32_t rows = (band.of.images - 1) * row->pitch + band.of.rows;
    const int32_t places = whole_tiles(rows * column->pitch, band.part->height);
    const int32_t behind = row->reach * column->pitch + column->reach;
    char *const copies = buffer + SUM_BYTES;
    uint16_t **const to = (uint16_t **)(copies + s->plane_bytes * (size_t)s->most_planes);

    copy_band(s, &band, o->source, places + behind, copies);
    find_results(s, &band, o->result, places, to);
    const struct cpu_window_task task = {.source = copies,
                                         .pitch = (size_t)s->source_channels * sizeof(uint16_t),
                                         .weights = o->weights,
                                         .taps = &band.part->taps,
                                         .order = &s->order,
                                         .bias = o->bias,
                                         .to = to,
                                         .height = band.part->height,
                                         .places = places,
                                         .lanes = s->order.lanes,
                                         .low = s->low,
                                         .high = s->high};
    s->loops->multiply(&task, (float *)buffer);
}

static void run(const cvy_device *device, const struct tile_window *s, struct operands *o, char *scratch)
{
    const int64_t packs = s->packed ? 0 : (int64_t)(s->order.lanes / 16) * s->order.steps;
    const size_t pack_bytes = (size_t)s->order.window * tile_weights_tile(&s->order);

    if (!s->packed)
        o->weights = scratch;
#pragma omp parallel num_threads(device->threads)
    {
        char *const buffer = scratch + s->weight_bytes + (size_t)omp_get_thread_num() * s->thread_bytes;
        if (packs > 0) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < packs; i++)
                tile_weights_pack(&s->order, o->plain, (int32_t)(i / s->order.steps) * 16,
                                  (int32_t)(i % s->order.steps),
                                  (uint32_t *)(void *)(scratch + (size_t)i * pack_bytes));
        }
        if (s->fixed) {
#pragma omp for schedule(static) nowait
            for (int64_t i = 0; i < s->tasks; i++)
                run_task(s, i, o, buffer);
        } else {
            /* Whoever is free takes the next task: other programs may slow one core down. */
#pragma omp for schedule(dynamic, 1) nowait
            for (int64_t i = 0; i < s->tasks; i++)
                run_task(s, i, o, buffer);
        }
    }
}

cvy_status cpu_tile_window_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                               void *const *out, void *scratch)
{
    struct operands o = {.source = in[0], .plain = in[1], .weights = in[1], .bias = in[2], .result = out[0]};

    run(device, plan->state, &o, scratch);
    return CVY_OK;
}

cvy_status cpu_tile_window_bwd_data_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                        void *const *out, void *scratch)
{
    struct operands o = {.source = in[1], .plain = in[0], .result = out[0]};

    run(device, plan->state, &o, scratch);
    return CVY_OK;
}

/* ---- prepare ---- */

static const struct cpu_tile_window_loops *loops_here(void)
{
    return cpu_tile_loops(CVY_IF_AVX(&cpu_tile_window_amx_bf16), CVY_IF_AVX(&cpu_tile_window_amx_bf16_model));
}

/* Why these loops do not take a convolution; NULL: they do. x: its input, y its output, or their gradients. */
static const char *refusal(const struct cpu_device *device, const struct cvy_op_desc *desc, const struct cvy_tensor *x,
                           const struct cvy_tensor *w, const struct cvy_tensor *y)
{
    const struct cvy_conv2d_attr *const attr = &desc->attr.conv2d;
    const int64_t inputs = w->shape.dim[1], outputs = w->shape.dim[0] / attr->groups;
    const int32_t extra = desc->op == CVY_OP_CONV2D && desc->inference ? 3 : 2; /* inputs that there may be */
    bool plain = desc->inference || attr->activation == CVY_ACTIVATION_NONE;

    for (int32_t i = extra; i < desc->inputs; i++)
        plain = plain && !cvy_tensor_present(&desc->in[i]);
    for (int32_t i = 1; i < desc->outputs; i++)
        plain = plain && !cvy_tensor_present(&desc->out[i]);
    if (!loops_here() || x->dtype != CVY_BF16 || w->dtype != CVY_BF16 || !plain)
        return "tiles are for windows of bf16 alone, where the processor has them";
    if (desc->inference && (attr->groups == 1 || desc->op != CVY_OP_CONV2D))
        return "dense windows and gradients with weights that do not change are oneDNN's";
    if (attr->kernel[0] * attr->kernel[1] == 1 || (int64_t)attr->kernel[0] * attr->kernel[1] > WINDOW_TAPS)
        return "a window of one tap or too many";
    if (attr->stride[0] > 2 || attr->stride[1] > 2)
        return "a stride above 2";
    if (!cpu_prefers_nhwc(device, desc->images, CVY_BF16))
        return "images are channels-last here";
    if (x->shape.dim[1] % 32 || y->shape.dim[1] % 32)
        return "channels are not a multiple of 32";
    if (attr->groups > 1 && (inputs != outputs || (inputs != 16 && inputs % 32 != 0)))
        return "groups of other than 16 channels or a multiple of 32";
    for (int i = 1; i < 4; i++)
        if (x->shape.dim[i] > MAX_EXTENT || y->shape.dim[i] > MAX_EXTENT)
            return "too large images or too many channels";
    return NULL;
}

static void measure_pitch(struct window_axis *axis, int32_t source)
{
    struct place_span span = {.first = INT32_MAX};

    for (int32_t p = 0; p < axis->planes; p++)
        place_span_add(&span, source, axis->source_step, axis->offset[p]);
    axis->pitch = place_pitch(span, axis->places, axis->reach);
}

/* Forward: the place of an output pixel is its own; tap r reads plane (r * dilation) % stride. */
static void forward_axis(const struct cvy_conv2d_attr *attr, int d, int32_t source, int32_t result,
                         struct window_axis *axis)
{
    const int32_t last = (attr->kernel[d] - 1) * attr->dilation[d], stride = attr->stride[d];

    *axis =
        (struct window_axis){.places = result, .step = 1, .source_step = stride, .planes = 1, .reach = last / stride};
    for (int32_t r = 0; r < attr->kernel[d]; r++)
        axis->planes = (int32_t)larger(axis->planes, r * attr->dilation[d] % stride + 1);
    for (int32_t p = 0; p < axis->planes; p++)
        axis->offset[p] = p - attr->pad[2 * d];
    measure_pitch(axis, source);
}

/* Backward: pixels h of dx with (h + pad) % stride == kind; tap r with (r * dilation) % stride == kind reads dy at
 * (h + pad - r * dilation) / stride. false: there are no such pixels. */
static bool backward_axis(const struct cvy_conv2d_attr *attr, int d, int32_t kind, int32_t source, int32_t result,
                          struct window_axis *axis)
{
    const int32_t stride = attr->stride[d], before = attr->pad[2 * d] - kind;
    const int32_t first = before > 0 ? (int32_t)divide_up(before, stride) : 0, end = result - 1 + before;
    int32_t least = INT32_MAX, most = 0;

    if (end < 0 || end / stride < first)
        return false;
    for (int32_t r = 0; r < attr->kernel[d]; r++)
        if (r * attr->dilation[d] % stride == kind) {
            const int32_t shift = r * attr->dilation[d] / stride;
            least = shift < least ? shift : least;
            most = (int32_t)larger(most, shift);
        }
    *axis = (struct window_axis){.places = end / stride - first + 1,
                                 .first = first * stride - before,
                                 .step = stride,
                                 .source_step = 1,
                                 .planes = 1,
                                 .offset = {first - most},
                                 .kind = kind,
                                 .shift = most,
                                 .reach = least == INT32_MAX ? 0 : most - least};
    measure_pitch(axis, source);
    return true;
}

/* Where tap r reads, in places of its plane; -1: it does not read for these pixels. */
static int32_t tap_place(const struct tile_window *s, const struct cvy_conv2d_attr *attr, int d, int32_t r,
                         const struct window_axis *axis)
{
    const int32_t shift = r * attr->dilation[d] / attr->stride[d], phase = r * attr->dilation[d] % attr->stride[d];

    if (!s->order.backward)
        return shift;
    return phase == axis->kind ? axis->shift - shift : -1;
}

static void find_taps(const struct tile_window *s, const struct cvy_conv2d_attr *attr, struct window_part *part)
{
    const struct window_axis *const row = &part->axis[0], *const column = &part->axis[1];
    const size_t pitch = (size_t)s->source_channels * sizeof(uint16_t);

    for (int32_t r = 0; r < attr->kernel[0]; r++)
        for (int32_t c = 0; c < attr->kernel[1]; c++) {
            const int32_t y = tap_place(s, attr, 0, r, row), x = tap_place(s, attr, 1, c, column);
            const int32_t plane = s->order.backward ? 0
                                                    : r * attr->dilation[0] % attr->stride[0] * column->planes +
                                                          c * attr->dilation[1] % attr->stride[1];
            if (y < 0 || x < 0)
                continue;
            part->taps.source[part->taps.count] =
                (size_t)plane * s->plane_bytes + ((size_t)y * (size_t)column->pitch + (size_t)x) * pitch;
            part->taps.weights[part->taps.count++] = (size_t)(r * attr->kernel[1] + c) * tile_weights_tile(&s->order);
        }
}

static void cut_bands(struct tile_window *s, struct window_part *part, int threads)
{
    enum { LEAST = WINDOW_TILES * WINDOW_HEIGHT };
    const struct window_axis *const row = &part->axis[0], *const column = &part->axis[1];
    const int64_t planes = (int64_t)row->planes * column->planes;
    const int64_t fitting = (int64_t)(BAND_BYTES / ((size_t)s->source_channels * sizeof(uint16_t))) / planes;
    const int64_t rows_of_all = s->batch == 1 ? row->places : s->batch * row->pitch;
    const int64_t share = s->fixed ? divide_up(rows_of_all, threads) * column->pitch
                                   : s->batch * row->pitch * column->pitch / ((int64_t)TASKS * threads);
    const int64_t most = smaller(smaller(fitting, BAND_PLACES), s->fixed ? share : larger(share, LEAST));

    part->bands = place_bands_of(s->batch, row->places, row->pitch, most / column->pitch, s->batch);
    const int32_t places = (int32_t)(place_rows(&part->bands, row->pitch) * column->pitch);
    part->height = tile_height(places, WINDOW_TILES);
    s->most_places =
        larger(s->most_places, whole_tiles(places, part->height) + (int64_t)row->reach * column->pitch + column->reach);
    s->most_planes = (int32_t)larger(s->most_planes, planes);
    s->tasks += part->bands.count;
}

static void make_parts(struct tile_window *s, const struct cvy_conv2d_attr *attr, int threads)
{
    const int32_t rows = s->order.backward ? attr->stride[0] : 1, columns = s->order.backward ? attr->stride[1] : 1;

    for (int32_t k = 0; k < rows * columns; k++) {
        struct window_part *const part = &s->part[s->parts];
        const int32_t kind[2] = {k / columns, k % columns};
        bool there = true;
        for (int d = 0; d < 2; d++)
            if (s->order.backward)
                there = there && backward_axis(attr, d, kind[d], s->source[d], s->result[d], &part->axis[d]);
            else
                forward_axis(attr, d, s->source[d], s->result[d], &part->axis[d]);
        if (!there)
            continue;
        cut_bands(s, part, threads);
        s->parts++;
    }
    s->plane_bytes = whole_lines((size_t)s->most_places * (size_t)s->source_channels * sizeof(uint16_t));
    for (int32_t k = 0; k < s->parts; k++)
        find_taps(s, attr, &s->part[k]);
}

/* What is computed; how it is cut into tasks is added later. */
static struct tile_window describe(cvy_device *device, const struct cvy_op_desc *desc, const struct cvy_tensor *x,
                                   const struct cvy_tensor *w, const struct cvy_tensor *y)
{
    const struct cvy_conv2d_attr *const attr = &desc->attr.conv2d;
    const bool backward = desc->op == CVY_OP_CONV2D_BWD_DATA;
    const struct cvy_tensor *const from = backward ? y : x, *const to = backward ? x : y;
    struct tile_window s = {.loops = loops_here(),
                            .order = tile_weights_of(&w->shape, attr->groups, backward),
                            .packed = desc->inference,
                            .fixed = desc->inference && cpu_is_few(device, x, y),
                            .batch = x->shape.dim[0],
                            .source_channels = (int32_t)from->shape.dim[1],
                            .low = attr->activation == CVY_ACTIVATION_NONE ? -INFINITY : 0,
                            .high = attr->activation == CVY_ACTIVATION_RELU6 ? 6 : INFINITY};

    for (int d = 0; d < 2; d++) {
        s.source[d] = (int32_t)from->shape.dim[2 + d];
        s.result[d] = (int32_t)to->shape.dim[2 + d];
    }
    return s;
}

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan,
                          struct cvy_tensor *x, struct cvy_tensor *w, struct cvy_tensor *y)
{
    const struct cpu_device *const cpu = cpu_of(device);
    const char *const why = refusal(cpu, desc, x, w, y);

    plan->quiet = true;
    if (why)
        return cvy_fail(CVY_UNAVAILABLE, "%s", why);
    plan->quiet = false;
    CVY_TRY(cpu_expect_images(desc, desc->inference ? ~(1U << 2) : ~0U, 1U, 0, 0)); /* the bias is f32 */
    x->layout = cpu_image_layout(cpu, desc->images, x->shape.dim[1], CVY_BF16);
    y->layout = cpu_image_layout(cpu, desc->images, y->shape.dim[1], CVY_BF16);
    w->layout = desc->inference ? tile_weights_layout(false) : (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    if (desc->inference && desc->inputs > 2 && cvy_tensor_present(&desc->in[2]))
        desc->in[2].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    struct tile_window s = describe(device, desc, x, w, y);
    make_parts(&s, &desc->attr.conv2d, device->threads);
    s.weight_bytes = s.packed ? 0 : (size_t)(s.order.lanes / 16) * tile_weights_lanes(&s.order);
    s.thread_bytes =
        whole_lines(SUM_BYTES + s.plane_bytes * (size_t)s.most_planes + (size_t)s.most_places * sizeof(uint16_t *));
    if (s.weight_bytes > MOST_BYTES || s.thread_bytes > MOST_BYTES)
        return cvy_fail(CVY_UNAVAILABLE, "more than %zu MiB of weights or of a row of places", MOST_BYTES >> 20);
    plan->scratch_bytes = s.weight_bytes + (size_t)device->threads * s.thread_bytes;
    snprintf(plan->implementation, sizeof(plan->implementation), "windows:%s", s.loops->isa);
    return cpu_state(plan, &s, sizeof(s));
}

cvy_status cpu_tile_window_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, &desc->in[0], &desc->in[1], &desc->out[0]);
}

cvy_status cpu_tile_window_constant_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->quiet = true;
    if (!desc->inference)
        return cvy_fail(CVY_UNAVAILABLE, "these weights change");
    return cpu_tile_window_prepare(device, desc, plan);
}

cvy_status cpu_tile_window_bwd_data_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, &desc->out[0], &desc->in[0], &desc->in[1]);
}
