/* Gradients of weights of convolutions with 3x3 windows by Winograd's algorithm (winograd.c), transposed: x
 * and dy are transformed, for each frequency their products are summed over all tiles, and the sums transformed into
 * the taps.
 *
 * Sums over a chunk of tiles are added to those of the chunks before, in their order; chunks do not depend on the
 * number of threads, so neither does the result. */
#include <string.h>

#include "backend/cpu/conv/winograd.h"

#define CHUNK_BYTES ((size_t)8 << 20)

/* Memory of a run: x's numbers as (frequency, group of channels, tile, channel of the group), dy's as (frequency,
 * panel, tile, lane), their sums as (frequency, panel, channel of x, lane), of the weights' frequencies. */
struct job {
    const struct winograd *s;
    const float *x, *dy;
    float *from, *gradient, *sums;
};

static size_t groups_of(const struct winograd *s)
{
    return (size_t)divide_up((int64_t)s->source_blocks * s->loops->lanes, (int64_t)s->loops->gradient_depth);
}

static size_t channels_of(const struct winograd *s)
{
    return (size_t)s->source_blocks * (size_t)s->loops->lanes;
}

static size_t sums_of(const struct winograd *s) /* of a frequency */
{
    return (size_t)s->panels * channels_of(s) * (size_t)s->loops->panel_lanes;
}

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan,
                          enum winograd_form form)
{
    const struct cpu_device *const cpu = cpu_of(device);
    struct cvy_tensor *const x = &desc->in[0], *const dy = &desc->in[1];

    CVY_TRY(winograd_expect(cpu, desc, form == WINOGRAD_STRIDED ? 2 : 1, CPU_WINOGRAD_WEIGHTS, plan));
    CVY_TRY(cpu_expect_f32(desc, 0, 0));
    x->layout = cpu_blocked_layout(cpu, x->shape.dim[1]);
    dy->layout = cpu_blocked_layout(cpu, dy->shape.dim[1]);
    desc->out[0].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    struct winograd s = winograd_of(form, x, dy);
    for (int i = 0; i < 2; i++)
        s.pad[i] = desc->attr.conv2d.pad[2 * i];
    CVY_TRY(winograd_cut(&s, CHUNK_BYTES, groups_of(&s) * s.loops->gradient_depth,
                         (size_t)s.panels * (size_t)s.loops->panel_lanes));
    plan->scratch_bytes =
        ((size_t)s.frequencies * (s.source_plane + s.aim_plane) + (size_t)winograd_weights_count(form) * sums_of(&s)) *
        sizeof(float);
    winograd_name(&s, plan);
    return cpu_state(plan, &s, sizeof s);
}

cvy_status cpu_winograd_gradient_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, WINOGRAD_4X4);
}

cvy_status cpu_winograd_strided_gradient_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                 struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, WINOGRAD_STRIDED);
}

static void transform_x(const struct job *job, const struct winograd_row *row, int32_t block)
{
    const struct winograd *const s = job->s;
    const size_t group = s->loops->gradient_depth;
    const struct cpu_winograd_tiles tiles = winograd_source_tiles(s, group, row);

    s->loops->source[s->form](&tiles, job->x + winograd_block(s, s->source, s->source_blocks, row->image, block),
                              job->from + winograd_place(s, group, row, block));
}

static void transform_dy(const struct job *job, const struct winograd_row *row, int32_t block)
{
    const struct winograd *const s = job->s;
    const struct cpu_winograd_tiles tiles = winograd_aim_tiles(s, row);

    s->loops->gradient[s->form](&tiles, job->dy + winograd_block(s, s->aim, s->aim_blocks, row->image, block),
                                job->gradient + winograd_place(s, tiles.tile, row, block));
}

/* One panel of one frequency: all channels of x. `of_sums`: the frequency of the weights. */
static void add_products(const struct job *job, int32_t frequency, int32_t of_sums, int32_t panel, int32_t tiles,
                         bool more)
{
    const struct winograd *const s = job->s;
    const size_t lanes = (size_t)s->loops->panel_lanes, depth = s->loops->gradient_depth, channels = channels_of(s);
    const size_t chunk = (size_t)s->chunk_tiles;
    const float *const from = job->from + (size_t)frequency * s->source_plane;
    float *const sums = job->sums + (size_t)of_sums * sums_of(s) + (size_t)panel * channels * lanes;

    for (size_t c = 0; c < channels; c += depth) {
        const struct cpu_winograd_product product = {.rows = from + c * chunk,
                                                     .panel = job->gradient + (size_t)frequency * s->aim_plane +
                                                              (size_t)panel * chunk * lanes,
                                                     .sums = sums + c * lanes,
                                                     .count = (int32_t)(channels - c < depth ? channels - c : depth),
                                                     .depth = tiles,
                                                     .more = more};
        s->loops->product_gradient(&product);
    }
}

/* Those of all frequencies that share the weights' one. */
static void add_all_products(const struct job *job, int32_t of_sums, int32_t panel, int32_t tiles, bool more)
{
    for (int32_t f = 0; f < job->s->frequencies; f++)
        if (winograd_weights_at(job->s->form, f) == of_sums) {
            add_products(job, f, of_sums, panel, tiles, more);
            more = true;
        }
}

/* The lanes of dy beyond its channels. */
static void clear_rest(const struct job *job)
{
    const struct winograd *const s = job->s;
    const size_t panel = (size_t)s->chunk_tiles * (size_t)s->loops->panel_lanes;

    if (s->aim_blocks * s->loops->lanes == s->panels * s->loops->panel_lanes)
        return;
    for (int32_t f = 0; f < s->frequencies; f++)
        memset(job->gradient + (size_t)f * s->aim_plane + (size_t)(s->panels - 1) * panel, 0, panel * sizeof(float));
}

/* The windows of a block of dy's channels for one channel of x. */
static void write_taps(const struct job *job, int32_t block, size_t channel, float *dw)
{
    const struct winograd *const s = job->s;
    const size_t lanes = (size_t)s->loops->lanes, panel_lanes = (size_t)s->loops->panel_lanes;
    const size_t channels = channels_of(s), lane = (size_t)block * lanes;
    float taps[WINOGRAD_TAPS * CPU_LANES];

    s->loops->taps[s->form](job->sums + (lane / panel_lanes * channels + channel) * panel_lanes + lane % panel_lanes,
                            sums_of(s), taps);
    for (size_t l = 0; l < lanes; l++)
        for (size_t t = 0; t < WINOGRAD_TAPS; t++)
            dw[((lane + l) * channels + channel) * WINOGRAD_TAPS + t] = taps[t * lanes + l];
}

static void run(cvy_device *device, const struct job *job, float *dw)
{
    const struct winograd *const s = job->s;
    const int64_t channels = (int64_t)channels_of(s);
    const int32_t kinds = winograd_weights_count(s->form);
#pragma omp parallel num_threads(device->threads)
    {
        for (int64_t first = 0; first < s->rows; first += s->chunk_rows) {
            const int32_t rows = (int32_t)smaller(s->rows - first, s->chunk_rows);
#pragma omp for schedule(static) collapse(2) nowait
            for (int32_t r = 0; r < rows; r++)
                for (int32_t b = 0; b < s->source_blocks; b++) {
                    const struct winograd_row row = winograd_row_at(s, first, r);
                    transform_x(job, &row, b);
                }
#pragma omp for schedule(static) collapse(2)
            for (int32_t r = 0; r < rows; r++)
                for (int32_t b = 0; b < s->aim_blocks; b++) {
                    const struct winograd_row row = winograd_row_at(s, first, r);
                    transform_dy(job, &row, b);
                }
                /* By fives, so that the sums of several frequencies do not fall to one thread. */
#pragma omp for schedule(static) collapse(2)
            for (int32_t i = 0; i < kinds; i++)
                for (int32_t p = 0; p < s->panels; p++)
                    add_all_products(job, i * 5 % kinds, p, rows * s->tile_columns, first > 0);
        }
#pragma omp for schedule(static) collapse(2)
        for (int32_t b = 0; b < s->aim_blocks; b++)
            for (int64_t c = 0; c < channels; c++)
                write_taps(job, b, (size_t)c, dw);
    }
}

cvy_status cpu_winograd_gradient_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                     void *const *out, void *scratch)
{
    const struct winograd *const s = plan->state;
    const size_t frequencies = (size_t)s->frequencies;
    float *const memory = scratch;
    const struct job job = {.s = s,
                            .x = in[0],
                            .dy = in[1],
                            .from = memory,
                            .gradient = memory + frequencies * s->source_plane,
                            .sums = memory + frequencies * (s->source_plane + s->aim_plane)};
    clear_rest(&job);
    run(device, &job, out[0]);
    return CVY_OK;
}
