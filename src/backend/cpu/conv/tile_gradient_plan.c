/* Planning gradients of weights by tile products: planes, bands, panels and pieces (tile_gradient.c). */
#include <stdio.h>

#include "backend/cpu/conv/tile_gradient.h"
#include "base/system.h"

/* Processors with tiles have second-level caches of 2 MiB: a panel's sums and the operands of a band share one. */
#define PANEL_BYTES  ((size_t)640 << 10) /* of sums */
#define BAND_BYTES   ((size_t)640 << 10) /* of both operands */
#define BAND_ROWS    4                  /* of TILE_PIXELS, where we cut pixels into rows: bands are multiples of them */
#define BAND_PIXELS  512                /* more of them gain nothing */
#define MIN_PANEL    16                 /* blocks times blocks: narrower panels repeat too much packing */
#define TASKS        2                  /* for each thread */
#define MAX_PIECES   8                  /* of the sum over the images, */
#define PIECE_BANDS  4                  /* not shorter than this, */
#define PIECES_BYTES ((size_t)4 << 20)  /* and with sums of this many bytes together */
#define PACKED_BYTES ((size_t)16 << 20) /* of a task: what is wider is refused */

/* ---- geometry ---- */

static struct tile_axis axis_of(const struct cvy_conv2d_attr *attr, const struct cvy_tensor *x,
                                const struct cvy_tensor *dy, int d)
{
    return (struct tile_axis){.input = (int32_t)x->shape.dim[2 + d],
                              .output = (int32_t)dy->shape.dim[2 + d],
                              .kernel = attr->kernel[d],
                              .stride = attr->stride[d],
                              .dilation = attr->dilation[d],
                              .pad = attr->pad[2 * d],
                              .phases = 1};
}

/* Number i of x is in plane (i + pad) % stride at place (i + pad) / stride. Tap r of output number o reads place
 * o + r * dilation / stride. */
static void measure_axis(struct tile_axis *axis)
{
    struct place_span span = {.first = INT32_MAX};

    axis->shift = (axis->kernel - 1) * axis->dilation / axis->stride;
    for (int32_t r = 0; r < axis->kernel; r++)
        axis->phases = (int32_t)larger(axis->phases, r * axis->dilation % axis->stride + 1);
    for (int32_t phase = 0; phase < axis->phases; phase++)
        place_span_add(&span, axis->input, axis->stride, phase - axis->pad);
    axis->pitch = place_pitch(span, axis->output, axis->shift);
}

static struct tile_side side_of(const struct cvy_tensor *tensor, int32_t fold)
{
    const int64_t *dim = tensor->shape.dim;
    const bool plain = tensor->layout.kind == CVY_LAYOUT_PLAIN;
    return (struct tile_side){.plain = plain,
                              .channels = dim[1] * fold,
                              .image_stride = dim[1] * dim[2] * dim[3],
                              .pixel = plain ? 1 : (int32_t)dim[1],
                              .plane = (int32_t)(dim[2] * dim[3]),
                              .blocks = (int32_t)divide_up(dim[1] * fold, TILE_LANES)};
}

/* The pixels of all images in one row after the other: the images are one of that many rows of a step's pixels. */
static void flatten(struct tile_gradient *s)
{
    s->pixels = s->batch * s->axis[0].input * s->axis[1].input;
    s->batch = 1;
    s->axis[0].input = s->axis[0].output = (int32_t)divide_up(s->pixels, TILE_PIXELS);
    s->axis[1].input = s->axis[1].output = TILE_PIXELS;
}

/* Pairs of pixels begin with an even one: where a tap begins with an odd one, there are others. */
static uint64_t find_odd_phases(const struct tile_gradient *s)
{
    const struct tile_axis *const row = &s->axis[0], *const column = &s->axis[1];
    uint64_t odd = 0;

    for (int32_t t = 0; s->lane_taps && t < s->taps; t++) {
        const int32_t r = t / column->kernel * row->dilation, c = t % column->kernel * column->dilation;
        if ((r / row->stride * column->pitch + c / column->stride) % 2)
            odd |= (uint64_t)1 << (r % row->stride * column->phases + c % column->stride);
    }
    return odd;
}

static void place_taps(struct tile_gradient *s)
{
    const struct tile_axis *const row = &s->axis[0], *const column = &s->axis[1];
    const int32_t columns = column->kernel / s->fold;

    for (int32_t t = 0; t < s->taps; t++) {
        const int32_t r = t / columns * row->dilation, c = t % columns * column->dilation;
        const size_t phase = (size_t)(r % row->stride * column->phases + c % column->stride);
        const int32_t pixel = r / row->stride * column->pitch + c / column->stride;
        if (s->lane_taps)
            s->tap_offset[t] =
                phase * s->lane_phase + (size_t)(pixel % 2) * s->lane_copy + (size_t)(pixel / 2) * TILE_LINE;
        else
            s->tap_offset[t] = phase * s->row_phase + (size_t)pixel * sizeof(uint16_t);
    }
}

/* ---- bands, panels, pieces ---- */

static void cut_side(struct tile_side *side, int32_t panel)
{
    side->panel = panel;
    side->panels = (int32_t)divide_up(side->blocks, panel);
}

static void halve_panels(struct tile_gradient *s)
{
    struct tile_side *wider = s->x.panel > s->dy.panel ? &s->x : &s->dy;
    cut_side(wider, (wider->panel + 1) / 2);
}

static size_t panel_floats(const struct tile_gradient *s)
{
    const size_t dy_pairs = (size_t)divide_up(s->dy.panel, 2), taps = (size_t)s->taps;

    return s->lane_taps ? (size_t)s->x.panel * dy_pairs * taps * 2 * TILE_FLOATS
                        : (size_t)divide_up(s->x.panel, 2) * dy_pairs * taps * TILE_QUAD;
}

/* As wide as the caches hold: this depends on the convolution alone. */
static void cut_widest_panels(struct tile_gradient *s)
{
    cut_side(&s->x, s->x.blocks < TILE_PANEL_BLOCKS ? s->x.blocks : TILE_PANEL_BLOCKS);
    cut_side(&s->dy, s->dy.blocks < TILE_PANEL_BLOCKS ? s->dy.blocks : TILE_PANEL_BLOCKS);
    while (panel_floats(s) * sizeof(float) > PANEL_BYTES && s->x.panel * s->dy.panel > 1)
        halve_panels(s);
}

/* How the sum is cut into bands changes how it rounds, so that it does not depend on the threads. */
static void cut_bands(struct tile_gradient *s)
{
    const struct tile_axis *const row = &s->axis[0], *const column = &s->axis[1];
    const size_t pixel = (size_t)(s->x.panel + s->dy.panel) * TILE_LANES * sizeof(uint16_t);
    const int64_t most = smaller((int64_t)(BAND_BYTES / pixel), BAND_PIXELS);
    const int64_t image = larger(s->x.image_stride, s->dy.image_stride); /* counted by tables of 32 bits */

    s->bands = place_bands_of(s->batch, row->output, row->pitch, most / column->pitch, INT32_MAX / image);
    if (s->pixels) { /* a chain takes so many (chain.c), of which others make sums in groups */
        const int64_t up = divide_up(s->bands.rows, BAND_ROWS) * BAND_ROWS;
        const bool fits = up * TILE_PIXELS <= most || up == BAND_ROWS;
        s->bands.rows = (int32_t)(fits ? up : up - BAND_ROWS);
        s->bands.count = s->bands.per_image = divide_up(row->output, s->bands.rows);
    }
}

/* The sums depend on the pieces, so these depend on the convolution alone; panels may fit the threads. */
static void cut_tasks(struct tile_gradient *s, int threads)
{
    const size_t bytes = panel_floats(s) * sizeof(float) * (size_t)s->x.panels * (size_t)s->dy.panels;
    const int64_t limit = (int64_t)(PIECES_BYTES / bytes), enough = s->bands.count / PIECE_BANDS;

    s->pieces = larger(smaller(smaller(limit, MAX_PIECES), enough), 1);
    while (s->x.panel * s->dy.panel > MIN_PANEL &&
           (int64_t)s->x.panels * s->dy.panels * s->pieces < (int64_t)TASKS * threads)
        halve_panels(s);
    s->panel_floats = panel_floats(s);
}

/* Whole lines of the cache, an odd number of them: those that are read together lie in different sets. */
static size_t odd_lines(size_t bytes)
{
    return (size_t)(divide_up((int64_t)bytes, TILE_LINE) | 1) * TILE_LINE;
}

/* What a band has of packed pixels: of dy whole steps, of x those that the taps move by, too. */
static cvy_status count_pixels(struct tile_gradient *s)
{
    const struct tile_axis *const row = &s->axis[0], *const column = &s->axis[1];
    const int64_t rows = place_rows(&s->bands, row->pitch);
    const int64_t steps = divide_up(rows * column->pitch, TILE_PIXELS), pixels = steps * TILE_PIXELS;
    const int64_t shift = (int64_t)row->shift * column->pitch + column->shift;
    const int64_t x_pixels = divide_up(pixels + shift, TILE_PIXELS) * TILE_PIXELS;
    const double planes = (double)x_pixels * row->phases * column->phases;

    if ((planes * s->x.panel + (double)pixels * s->dy.panel) * TILE_LANES * sizeof(uint16_t) > PACKED_BYTES)
        return cvy_fail(CVY_UNAVAILABLE, "a row of windows is too wide: %lld pixels", (long long)x_pixels);
    s->steps = (int32_t)steps;
    s->dy_pixels = (int32_t)pixels;
    s->x_pixels = (int32_t)x_pixels;
    return CVY_OK;
}

static void count_bytes(struct tile_gradient *s)
{
    const size_t phases = (size_t)s->axis[0].phases * (size_t)s->axis[1].phases;
    const size_t x_pixels = (size_t)s->x_pixels, dy_pixels = (size_t)s->dy_pixels;
    const int32_t row_blocks = (s->x_in_rows ? &s->x : &s->dy)->panel;
    const int32_t lane_blocks = (s->x_in_rows ? &s->dy : &s->x)->panel;

    s->row_pitch = odd_lines((s->x_in_rows ? x_pixels : dy_pixels) * sizeof(uint16_t));
    s->row_phase = (size_t)row_blocks * TILE_LANES * s->row_pitch;
    s->lane_block = odd_lines((s->lane_taps ? x_pixels : dy_pixels) / 2 * TILE_LINE);
    s->odd_phases = find_odd_phases(s);
    s->lane_copy = s->lane_block * (size_t)lane_blocks;
    s->lane_phase = s->lane_copy * (s->odd_phases ? 2 : 1);
    s->row_bytes = s->row_phase * (s->lane_taps ? 1 : phases);
    s->lane_bytes = s->lane_phase * (s->lane_taps ? phases : 1);
    s->table_bytes = whole_lines((x_pixels * phases + dy_pixels) * sizeof(int32_t));
    s->zeros_bytes = whole_lines((size_t)larger(s->x.panel, s->dy.panel) * TILE_LANES * sizeof(uint16_t));
    s->thread_bytes = s->row_bytes + s->lane_bytes + s->table_bytes + s->zeros_bytes +
                      (s->pieces == 1 ? s->panel_floats * sizeof(float) : 0);
}

static const struct cpu_tile_gradient_loops *loops_here(void)
{
    return cpu_tile_loops(CVY_IF_AVX(&cpu_tile_gradient_amx_bf16), CVY_IF_AVX(&cpu_tile_gradient_amx_bf16_model));
}

/* Pixels and places of pixels are counted in 32 bits. */
static cvy_status check_extents(const struct cvy_conv2d_attr *attr, const struct cvy_tensor *x,
                                const struct cvy_tensor *dy)
{
    const struct cvy_tensor *const images[] = {x, dy};

    for (int i = 0; i < 2; i++) {
        const int64_t *const dim = images[i]->shape.dim;
        const double elements = (double)dim[1] * (double)dim[2] * (double)dim[3];
        if (elements > GRADIENT_MAX_EXTENT)
            return cvy_fail(CVY_UNAVAILABLE, "images of %.0f numbers", elements);
    }
    for (int d = 0; d < 2; d++)
        if ((double)(attr->kernel[d] - 1) * attr->dilation[d] > GRADIENT_MAX_EXTENT ||
            attr->stride[d] > GRADIENT_MAX_EXTENT || attr->pad[2 * d] > GRADIENT_MAX_EXTENT)
            return cvy_fail(CVY_UNAVAILABLE, "windows, strides or padding of more than %d pixels", GRADIENT_MAX_EXTENT);
    return CVY_OK;
}

static cvy_status check_case(const struct cpu_device *device, const struct cvy_op_desc *desc)
{
    const struct cvy_conv2d_attr *const attr = &desc->attr.conv2d;
    const struct cvy_tensor *x = &desc->in[0], *dy = &desc->in[1];

    CVY_TRY(cpu_expect_f32(desc, 3U, 0));
    if (!loops_here() || x->dtype != CVY_BF16 || dy->dtype != CVY_BF16 || attr->groups != 1)
        return cvy_fail(CVY_UNAVAILABLE, "tiles are for bf16 without groups, where the processor has them");
    if (!cpu_prefers_nhwc(device, desc->images, CVY_BF16))
        return cvy_fail(CVY_UNAVAILABLE, "images are channels-last here");
    if ((double)attr->kernel[0] * attr->kernel[1] > TILE_MAX_TAPS)
        return cvy_fail(CVY_UNAVAILABLE, "windows of %d x %d", attr->kernel[0], attr->kernel[1]);
    return check_extents(attr, x, dy);
}

static bool takes_norm(const struct cvy_op_desc *desc)
{
    return desc->inputs > 2 && cvy_tensor_present(&desc->in[2]);
}

/* The batch norm before the convolution: there as a whole or not at all. */
static cvy_status check_norm(const struct cvy_op_desc *desc)
{
    int32_t there = 0;

    for (int32_t i = 2; i < desc->inputs; i++)
        there += cvy_tensor_present(&desc->in[i]);
    if (there == 0)
        return CVY_OK;
    if (there != 4)
        return cvy_fail(CVY_UNAVAILABLE, "a batch norm has four numbers for each channel, not %d", there);
    if (desc->in[0].layout.kind != CVY_LAYOUT_NHWC)
        return cvy_fail(CVY_UNAVAILABLE, "batch norms are taken in where images are channels-last");
    return CVY_OK;
}

/* The plan; what is divided among the threads is not in it. */
static struct tile_gradient measure(const struct cvy_conv2d_attr *attr, const struct cvy_tensor *x,
                                    const struct cvy_tensor *dy)
{
    struct tile_gradient s = {.loops = loops_here(),
                              .write = CVY_IF_AVX(cpu_weight_gradient_avx512_bf16.write),
                              .axis = {axis_of(attr, x, dy, 0), axis_of(attr, x, dy, 1)},
                              .batch = x->shape.dim[0]};
    s.fold = x->layout.kind == CVY_LAYOUT_PLAIN ? attr->kernel[1] : 1;
    s.taps = attr->kernel[0] * attr->kernel[1] / s.fold;
    s.x = side_of(x, s.fold);
    s.dy = side_of(dy, 1);
    /* Taps of lanes begin with a line of the cache, taps of rows seldom; but where strides make planes, most of these
     * are their beginnings. Bringing pixels into rows costs twice as much as into lanes. */
    s.x_in_rows = s.x.plain || s.dy.plain || (s.taps == 1 ? s.x.blocks <= s.dy.blocks : attr->stride[1] > 1);
    s.lane_taps = s.taps > 1 && !s.x_in_rows;
    if (gradient_is_matrix_product(attr) && !s.x.plain && !s.dy.plain)
        flatten(&s);
    measure_axis(&s.axis[0]);
    measure_axis(&s.axis[1]);
    if (s.fold > 1) { /* packing moves the columns */
        s.axis[1].phases = 1;
        s.axis[1].shift = 0;
        s.axis[1].pitch = (int32_t)divide_up(s.axis[1].output, TILE_PIXELS) * TILE_PIXELS; /* so that lines are whole */
    }
    if (s.dy.plain)
        s.axis[1].pitch += s.axis[1].pitch % 2; /* its rows begin with a pair */
    return s;
}

cvy_status cpu_tile_gradient_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cvy_conv2d_attr *const attr = &desc->attr.conv2d;
    struct cvy_tensor *const x = &desc->in[0], *const dy = &desc->in[1];

    plan->quiet = true;
    CVY_TRY(check_case(cpu_of(device), desc));
    plan->quiet = false;
    x->layout = cpu_image_layout(cpu_of(device), desc->images, x->shape.dim[1], x->dtype);
    dy->layout = cpu_image_layout(cpu_of(device), desc->images, dy->shape.dim[1], dy->dtype);
    cpu_plain(desc, 3U, 0);
    CVY_TRY(check_norm(desc));
    struct tile_gradient s = measure(attr, x, dy);
    cut_widest_panels(&s);
    cut_bands(&s);
    cut_tasks(&s, device->threads);
    CVY_TRY(count_pixels(&s));
    count_bytes(&s);
    place_taps(&s);
    plan->scratch_bytes = (size_t)device->threads * s.thread_bytes;
    if (s.pieces > 1)
        plan->scratch_bytes +=
            (size_t)s.pieces * (size_t)s.x.panels * (size_t)s.dy.panels * s.panel_floats * sizeof(float);
    if (takes_norm(desc)) {
        s.norm_at = plan->scratch_bytes;
        plan->scratch_bytes += (size_t)s.x.blocks * sizeof(struct cpu_affine);
    }
    snprintf(plan->implementation, sizeof(plan->implementation), "tiles:%s", s.loops->isa);
    return cpu_state(plan, &s, sizeof(s));
}

bool cpu_tile_gradient_gains_by_norm(cvy_device *device, const struct cvy_op_desc *desc)
{
    struct cvy_op_desc asked = *desc;
    struct cvy_kernel_plan plan = {.kernel = NULL};
    bool gains = false;

    for (asked.inputs = 2; asked.inputs < 6; asked.inputs++)
        asked.in[asked.inputs] = (struct cvy_tensor){.shape = cvy_shape1(asked.in[0].shape.dim[1]), .dtype = CVY_F32};
    if (cpu_tile_gradient_prepare(device, &asked, &plan) == CVY_OK) {
        /* Not the panels that are cut for the threads: a plan's operations are the same for any number of them. */
        struct tile_gradient widest = measure(&asked.attr.conv2d, &asked.in[0], &asked.in[1]);
        cut_widest_panels(&widest);
        gains = widest.dy.panels == 1;
    }
    cpu_state_release(device, &plan);
    return gains;
}
