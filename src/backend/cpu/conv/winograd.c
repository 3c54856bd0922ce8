/* Convolutions with 3x3 windows by Winograd's algorithm, forward and the gradient of the data, in fp32 (Lavin and Gray,
 * arXiv 1509.09308): tiles of 2 x 2 outputs take 16 products for each pair of channels instead of 36, at stride 2 25;
 * tiles of 4 x 4 take 36 instead of 144. winograd_gradient.c has the gradient of the weights.
 *
 * A chunk of rows of tiles goes through three phases, each shared out among all threads: the source's pixels become
 * numbers of frequencies; for each frequency these are multiplied with the weights, which were transformed before
 * (winograd_weights.c); the products become outputs. A chunk is as large as the caches hold, or so. Each output is one
 * sum over the channels in their order, whatever the chunk and the threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/conv/winograd.h"
#include "backend/cpu/conv/winograd_weights.h"

#define CHUNK_BYTES ((size_t)8 << 20)
#define MOST_BYTES  ((size_t)256 << 20) /* of a row of tiles, and of weights or their gradients */
#define DEPTH       256 /* channels of the source that a panel of weights has at a time: they stay in the first cache */

cvy_status cpu_choose_winograd(struct cpu_device *device)
{
    static const char *const names[] = {[CPU_WINOGRAD_NONE] = "0",
                                        [CPU_WINOGRAD_WEIGHTS] = "weights",
                                        [CPU_WINOGRAD_AUTO] = "auto",
                                        [CPU_WINOGRAD_ALL] = "1"};
    const char *const given = getenv("CONVOY_CPU_WINOGRAD");
    size_t i = CPU_WINOGRAD_AUTO;

    if (given && given[0])
        for (i = 0; i < sizeof names / sizeof names[0] && strcmp(given, names[i]) != 0; i++)
            ;
    if (i == sizeof names / sizeof names[0])
        return cvy_fail(CVY_USAGE, "CONVOY_CPU_WINOGRAD is 0, weights, auto or 1, not %s", cvy_quote(given));
    device->winograd = (enum cpu_winograd)i;
    cpu_add_setting(device, "CONVOY_CPU_WINOGRAD", names[i]);
    return CVY_OK;
}

cvy_status cpu_expect_winograd(const struct cpu_device *device, const struct cvy_op_desc *desc, int32_t stride,
                               enum cpu_winograd least, struct cvy_kernel_plan *plan)
{
    const struct cvy_conv2d_attr *const attr = &desc->attr.conv2d;
    bool fits = attr->groups == 1 && desc->in[0].dtype == CVY_F32 && desc->in[1].dtype == CVY_F32;

    for (int i = 0; i < 2; i++)
        fits = fits && attr->kernel[i] == 3 && attr->stride[i] == stride && attr->dilation[i] == 1;
    plan->quiet = !fits;
    if (!fits)
        return cvy_fail(CVY_UNAVAILABLE, "only 3x3 kernels at stride %d in f32", (int)stride);
    if (cpu_prefers_nhwc(device, desc->images, CVY_F32))
        return cvy_fail(CVY_UNAVAILABLE, "images are channels-last");
    if (device->base.checked && desc->op != CVY_OP_CONV2D_BWD_WEIGHTS)
        return cvy_fail(CVY_UNAVAILABLE, "weights transformed for Winograd cannot be read back by the check device");
    return device->winograd >= least ? CVY_OK : cvy_fail(CVY_UNAVAILABLE, "%s", device->base.settings);
}

cvy_status winograd_expect(const struct cpu_device *device, const struct cvy_op_desc *desc, int32_t stride,
                           enum cpu_winograd least, struct cvy_kernel_plan *plan)
{
    const struct cpu_winograd_loops *const loops = winograd_loops_here();
    const bool gradient = desc->op == CVY_OP_CONV2D_BWD_WEIGHTS;
    const int64_t *const w = (gradient                    ? &desc->out[0]
                              : desc->op == CVY_OP_CONV2D ? &desc->in[1]
                                                          : &desc->in[0])
                                 ->shape.dim;

    CVY_TRY(cpu_expect_winograd(device, desc, stride, least, plan));
    CVY_TRY(cpu_no_norm(desc));
    plan->quiet = w[0] % loops->lanes || w[1] % loops->lanes;
    if (plan->quiet)
        return cvy_fail(CVY_UNAVAILABLE, "channels are no multiple of %d", (int)loops->lanes);
    return CVY_OK;
}

struct winograd winograd_of(enum winograd_form form, const struct cvy_tensor *source, const struct cvy_tensor *aim)
{
    const struct cpu_winograd_loops *const loops = winograd_loops_here();
    struct winograd s = {.loops = loops,
                         .form = form,
                         .frequencies = winograd_numbers(form) * winograd_numbers(form),
                         .source_blocks = (int32_t)source->shape.dim[1] / loops->lanes,
                         .aim_blocks = (int32_t)aim->shape.dim[1] / loops->lanes};

    for (int i = 0; i < 2; i++) {
        s.source[i] = (int32_t)source->shape.dim[2 + i];
        s.aim[i] = (int32_t)aim->shape.dim[2 + i];
    }
    s.panels = (int32_t)divide_up(aim->shape.dim[1], loops->panel_lanes);
    s.tile_rows = (int32_t)divide_up(s.aim[0], winograd_outputs(form));
    s.tile_columns = (int32_t)divide_up(s.aim[1], winograd_outputs(form));
    s.rows = aim->shape.dim[0] * s.tile_rows;
    return s;
}

/* An odd number of lines of the cache: the same tile's numbers of all frequencies do not compete for its places. */
static size_t odd_lines(size_t floats)
{
    const size_t lines = divide_up((int64_t)(floats * sizeof(float)), 64);
    return (lines | 1) * 64 / sizeof(float);
}

cvy_status winograd_cut(struct winograd *s, size_t bytes, size_t source_tile, size_t aim_tile)
{
    const size_t all = (size_t)s->frequencies * sizeof(float); /* frequencies of a number */
    const size_t row = all * (source_tile + aim_tile) * (size_t)s->tile_columns;
    const size_t channels = (size_t)s->source_blocks * (size_t)s->loops->lanes;
    const size_t pairs = channels * (size_t)s->panels * (size_t)s->loops->panel_lanes;
    const size_t weights = (size_t)winograd_weights_count(s->form) * sizeof(float) * pairs;
    const int64_t most = larger((int64_t)(bytes / row), 1);

    if (row > MOST_BYTES || weights > MOST_BYTES)
        return cvy_fail(CVY_UNAVAILABLE, "more than %zu MiB of a row of tiles or of weights", MOST_BYTES >> 20);
    s->chunk_rows = (int32_t)divide_up(s->rows, divide_up(s->rows, most));
    s->chunk_tiles = s->chunk_rows * s->tile_columns;
    s->source_plane = odd_lines((size_t)s->chunk_tiles * source_tile);
    s->aim_plane = odd_lines((size_t)s->chunk_tiles * aim_tile);
    return CVY_OK;
}

void winograd_name(const struct winograd *s, struct cvy_kernel_plan *plan)
{
    const int side = winograd_outputs(s->form);

    snprintf(plan->implementation, sizeof(plan->implementation), "winograd%dx%d%s:%s", side, side,
             s->form >= WINOGRAD_STRIDED ? "/2" : "", s->loops->isa);
}

/* ---- planning ---- */

/* `form`: that of the forward pass. */
static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan,
                          enum winograd_form form)
{
    const struct cpu_device *const cpu = cpu_of(device);
    const bool backward = desc->op == CVY_OP_CONV2D_BWD_DATA, strided = form == WINOGRAD_STRIDED;
    const bool by_default = form != WINOGRAD_4X4 || (desc->inference && !desc->training && !backward);
    struct cvy_tensor *const source = &desc->in[backward ? 1 : 0], *const aim = &desc->out[0];
    struct cvy_tensor *const weights = &desc->in[backward ? 0 : 1];
    const struct cvy_conv2d_attr *const attr = &desc->attr.conv2d;
    const bool odd = attr->pad[0] % 2;

    CVY_TRY(winograd_expect(cpu, desc, strided ? 2 : 1, by_default ? CPU_WINOGRAD_AUTO : CPU_WINOGRAD_ALL, plan));
    CVY_TRY(cpu_expect_f32(desc, 0, 0));
    if (strided && backward && odd != attr->pad[2] % 2)
        return cvy_fail(CVY_UNAVAILABLE, "padding is odd one way and even the other");
    source->layout = cpu_blocked_layout(cpu, source->shape.dim[1]);
    aim->layout = cpu_blocked_layout(cpu, aim->shape.dim[1]);
    weights->layout = winograd_weights_layout(form, backward);
    if (!backward && desc->inputs > 2 && cvy_tensor_present(&desc->in[2]))
        desc->in[2].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    if (!backward && desc->inputs > 3 && cvy_tensor_present(&desc->in[3])) {
        desc->in[3].layout = aim->layout;
        plan->in_place[0] = 3;
    }
    if (strided && backward)
        form = odd ? WINOGRAD_SPREAD_ODD : WINOGRAD_SPREAD_EVEN;
    struct winograd s = winograd_of(form, source, aim);
    for (int i = 0; i < 2; i++) {
        const int32_t pad = attr->pad[2 * i];
        s.pad[i] = !backward ? pad : !strided ? 2 - pad : odd ? -(pad - 1) / 2 : 1 - pad / 2;
    }
    s.activation = backward ? CVY_ACTIVATION_NONE : attr->activation;
    CVY_TRY(
        winograd_cut(&s, CHUNK_BYTES, (size_t)source->shape.dim[1], (size_t)s.panels * (size_t)s.loops->panel_lanes));
    plan->scratch_bytes = (size_t)s.frequencies * (s.source_plane + s.aim_plane) * sizeof(float);
    winograd_name(&s, plan);
    return cpu_state(plan, &s, sizeof s);
}

cvy_status cpu_winograd_2x2_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, WINOGRAD_2X2);
}

cvy_status cpu_winograd_4x4_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, WINOGRAD_4X4);
}

cvy_status cpu_winograd_strided_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, WINOGRAD_STRIDED);
}

/* ---- running ---- */

/* What a run reads and writes; pointers that may be NULL are. */
struct job {
    const struct winograd *s;
    const float *source, *weights, *bias, *residual;
    float *aim;
    float *from, *products; /* of the chunk's tiles: (frequency, tile, channel); (frequency, panel, tile, lane) */
};

static void transform_source(const struct job *job, const struct winograd_row *row, int32_t block)
{
    const struct winograd *const s = job->s;
    const size_t channels = (size_t)s->source_blocks * (size_t)s->loops->lanes; /* a single group */
    const struct cpu_winograd_tiles tiles = winograd_source_tiles(s, channels, row);

    s->loops->source[s->form](&tiles, job->source + winograd_block(s, s->source, s->source_blocks, row->image, block),
                              job->from + winograd_place(s, channels, row, block));
}

static void transform_products(const struct job *job, const struct winograd_row *row, int32_t block)
{
    const struct winograd *const s = job->s;
    const size_t at = winograd_block(s, s->aim, s->aim_blocks, row->image, block);
    const struct cpu_winograd_tiles tiles = winograd_aim_tiles(s, row);
    const struct cpu_winograd_end end = {.bias = job->bias ? job->bias + block * s->loops->lanes : NULL,
                                         .residual = job->residual ? job->residual + at : NULL,
                                         .activation = s->activation};

    s->loops->aim[s->form](&tiles, job->products + winograd_place(s, tiles.tile, row, block), &end, job->aim + at);
}

static void multiply(const struct job *job, int32_t frequency, int32_t panel, int32_t tiles)
{
    const struct winograd *const s = job->s;
    const int32_t channels = s->source_blocks * s->loops->lanes;
    const size_t panel_lanes = (size_t)s->loops->panel_lanes;
    const size_t of_weights = (size_t)winograd_weights_at(s->form, frequency);
    const float *const weights =
        job->weights + (of_weights * (size_t)s->panels + (size_t)panel) * (size_t)channels * panel_lanes;
    struct cpu_winograd_product product = {.row_step = (size_t)channels,
                                           .sums = job->products + (size_t)frequency * s->aim_plane +
                                                   (size_t)panel * (size_t)s->chunk_tiles * panel_lanes,
                                           .count = tiles};
    for (int32_t c = 0; c < channels; c += product.depth) {
        product.rows = job->from + (size_t)frequency * s->source_plane + (size_t)c;
        product.panel = weights + (size_t)c * panel_lanes;
        product.depth = channels - c < DEPTH ? channels - c : DEPTH;
        product.more = c > 0;
        s->loops->product(&product);
    }
}

static void run(cvy_device *device, const struct job *job)
{
    const struct winograd *const s = job->s;
#pragma omp parallel num_threads(device->threads)
    for (int64_t first = 0; first < s->rows; first += s->chunk_rows) {
        const int32_t rows = (int32_t)smaller(s->rows - first, s->chunk_rows);
#pragma omp for schedule(static) collapse(2)
        for (int32_t r = 0; r < rows; r++)
            for (int32_t b = 0; b < s->source_blocks; b++) {
                const struct winograd_row row = winograd_row_at(s, first, r);
                transform_source(job, &row, b);
            }
#pragma omp for schedule(static) collapse(2)
        for (int32_t f = 0; f < s->frequencies; f++)
            for (int32_t p = 0; p < s->panels; p++)
                multiply(job, f, p, rows * s->tile_columns);
                /* No thread multiplies for the next chunk before all have come here. */
#pragma omp for schedule(static) collapse(2) nowait
        for (int32_t r = 0; r < rows; r++)
            for (int32_t b = 0; b < s->aim_blocks; b++) {
                const struct winograd_row row = winograd_row_at(s, first, r);
                transform_products(job, &row, b);
            }
    }
}

cvy_status cpu_winograd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                            void *scratch)
{
    const struct winograd *const s = plan->state;
    const bool backward = plan->kernel->op == CVY_OP_CONV2D_BWD_DATA;
    const struct job job = {.s = s,
                            .source = in[backward ? 1 : 0],
                            .weights = in[backward ? 0 : 1],
                            .bias = backward ? NULL : in[2],
                            .residual = backward ? NULL : in[3],
                            .aim = out[0],
                            .from = scratch,
                            .products = (float *)scratch + (size_t)s->frequencies * s->source_plane};
    run(device, &job);
    return CVY_OK;
}
