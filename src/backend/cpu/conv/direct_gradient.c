/* Gradients of weights of direct convolutions (direct.c):
 *
 *     dw[k][number] = sum over images n and pixels i of the grid of dy[n][k][i] * source[n][number][i]
 *
 * where a number is a channel of x and a tap of the window, in the order of the depth (direct_source.c).
 *
 * The output is cut into panels, channels of dy times numbers, and the images into pieces. A task is one panel of one
 * piece: it goes through the piece's images in chunks of pixels that a second-level cache of 512 KiB holds for all of
 * the panel. Pieces are added up in their order. They do not depend on the number of threads, so neither does the
 * result.
 *
 * What 1x1 windows with strides read is gathered first, for all tasks. What larger ones read is several times as much
 * as x: there each task gathers its part of it. */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/conv/direct.h"

#define CHUNK_PIXELS  224                 /* of one image, or of some small ones together */
#define MOST_BLOCKS   16                  /* of a panel's channels of dy, */
#define MOST_NUMBERS  24                  /* and blocks of its numbers: 96 KiB of sums */
#define LEAST_BLOCKS  4                   /* narrower panels read too much too often */
#define PIECES        8                   /* at most, */
#define PIECES_FLOATS ((size_t)512 << 10) /* and with so many sums together */
#define TASKS         4                   /* for each thread at least, where there is enough to do */

struct gradient {
    const struct cpu_direct_loops *loops;
    struct direct_source source;
    int64_t batch;
    int32_t outputs;                             /* channels of dy */
    int32_t blocks, block_panels, number_panels; /* of dy's channels; their panels, and those of the depth */
    int32_t pieces;
    int32_t images, pixels;            /* of a chunk, at most */
    bool gathers;                      /* each task by itself; else x is there, or gathered before */
    size_t before_floats;              /* of what is gathered before */
    size_t source_floats, sums_floats; /* of a thread; sums: of a panel, unless they are a piece's */
};

static int32_t cut_size(int32_t blocks, int32_t panels) /* of the largest one */
{
    return (int32_t)divide_up(blocks, panels);
}

static void cut_panels(struct gradient *s, int threads)
{
    const size_t lanes = (size_t)s->loops->lanes;
    const size_t all = (size_t)s->blocks * (size_t)s->source.depth * lanes * lanes;

    s->block_panels = (int32_t)divide_up(s->blocks, MOST_BLOCKS);
    s->number_panels = (int32_t)divide_up(s->source.depth, MOST_NUMBERS);
    s->pieces = (int32_t)larger(smaller(smaller(PIECES, s->batch), (int64_t)(PIECES_FLOATS / all)), 1);
    while ((int64_t)s->block_panels * s->number_panels * s->pieces < (int64_t)TASKS * threads) {
        const int32_t blocks = cut_size(s->blocks, s->block_panels);
        const int32_t numbers = cut_size(s->source.depth, s->number_panels);
        if (larger(blocks, numbers) < 2 * LEAST_BLOCKS)
            break;
        *(blocks > numbers ? &s->block_panels : &s->number_panels) += 1;
    }
    s->sums_floats = s->pieces > 1 ? 0
                                   : (size_t)cut_size(s->blocks, s->block_panels) *
                                         (size_t)cut_size(s->source.depth, s->number_panels) * lanes * lanes;
}

static void cut_pixels(struct gradient *s)
{
    const int32_t grid = direct_grid_pixels(&s->source);

    s->images = (int32_t)larger(smaller(CHUNK_PIXELS / grid, s->batch), 1);
    s->pixels = (int32_t)divide_up(grid, divide_up(grid, CHUNK_PIXELS));
    s->source_floats = s->gathers ? (size_t)s->images * (size_t)s->pixels *
                                        (size_t)cut_size(s->source.depth, s->number_panels) * (size_t)s->loops->lanes
                                  : 0;
}

/* Floats of an image, as tasks read it. */
static size_t source_image(const struct gradient *s)
{
    if (s->source.gathered && !s->gathers)
        return (size_t)s->source.depth * (size_t)direct_grid_pixels(&s->source) * (size_t)s->loops->lanes;
    return direct_image_floats(&s->source);
}

static size_t piece_floats(const struct gradient *s)
{
    const size_t lanes = (size_t)s->loops->lanes;
    return (size_t)s->blocks * (size_t)s->source.depth * lanes * lanes;
}

cvy_status cpu_direct_gradient_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cpu_device *const cpu = cpu_of(device);
    struct cvy_tensor *const x = &desc->in[0], *const dy = &desc->in[1];
    struct gradient s = {.loops = direct_loops_here(), .batch = x->shape.dim[0]};

    CVY_TRY(direct_expect(cpu, desc, plan));
    s.source = direct_source_of(&desc->attr.conv2d, x, dy, s.loops->lanes, direct_is_plain(x, s.loops->lanes));
    s.outputs = (int32_t)dy->shape.dim[1];
    s.blocks = (int32_t)divide_up(s.outputs, s.loops->lanes);
    x->layout = (struct cvy_layout){.kind = s.source.plain ? CVY_LAYOUT_PLAIN : cpu->blocked};
    dy->layout = (struct cvy_layout){.kind = cpu->blocked};
    desc->out[0].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    s.gathers = s.source.plain || s.source.kernel[0] != 1 || s.source.kernel[1] != 1;
    s.before_floats = s.source.gathered && !s.gathers ? (size_t)s.batch * source_image(&s) : 0;
    cut_panels(&s, device->threads);
    cut_pixels(&s);
    plan->scratch_bytes = (s.before_floats + (size_t)device->threads * (s.source_floats + s.sums_floats) +
                           (s.pieces > 1 ? (size_t)s.pieces * piece_floats(&s) : 0)) *
                          sizeof(float);
    snprintf(plan->implementation, sizeof(plan->implementation), "direct:%s", s.loops->isa);
    return cpu_state(plan, &s, sizeof s);
}

/* ---- running ---- */

/* A panel of a piece: blocks of dy and of the depth; sums of channels of dy, `pitch` floats from one to the next. */
struct panel {
    int32_t block, block_end, number, number_end;
    float *sums, *source; /* source: working memory */
    size_t pitch;
};

/* Some images from `image` on, `pixels` of each from `pixel` on. */
struct chunk {
    int64_t image;
    int32_t images, pixel, pixels;
};

static void add_chunk(const struct gradient *s, const struct panel *panel, const struct chunk *chunk, const float *x,
                      const float *dy)
{
    const size_t lanes = (size_t)s->loops->lanes, plane = (size_t)direct_grid_pixels(&s->source) * lanes;
    const size_t x_image = source_image(s), dy_image = (size_t)s->blocks * plane;
    const int32_t depth = panel->number_end - panel->number;
    const size_t step = s->gathers ? (size_t)chunk->pixels * lanes : plane;
    const size_t image_floats = s->gathers ? (size_t)depth * step : x_image;
    const float *const image = x + (size_t)chunk->image * x_image;
    const float *const source =
        s->gathers ? panel->source : image + (size_t)panel->number * plane + (size_t)chunk->pixel * lanes;

    for (int32_t i = 0; i < chunk->images && s->gathers; i++)
        direct_gather(&s->source, image + (size_t)i * x_image, panel->number, panel->number_end, chunk->pixel,
                      chunk->pixels, panel->source + (size_t)i * image_floats, step);
    const int32_t parts = (int32_t)divide_up(depth, s->loops->panel_blocks);
    for (int32_t p = 0; p < parts; p++) {
        const int32_t first = direct_cut(depth, parts, p);
        struct cpu_direct_gradient gradient = {.lanes = source + (size_t)first * step,
                                               .lanes_step = step,
                                               .numbers_image = dy_image,
                                               .lanes_image = image_floats,
                                               .lanes_blocks = direct_cut(depth, parts, p + 1) - first,
                                               .images = chunk->images,
                                               .pixels = chunk->pixels,
                                               .pitch = panel->pitch};
        for (int32_t b = panel->block; b < panel->block_end; b++) {
            gradient.numbers = dy + (size_t)chunk->image * dy_image + (size_t)b * plane + (size_t)chunk->pixel * lanes;
            gradient.sums = panel->sums + (size_t)(b - panel->block) * lanes * panel->pitch + (size_t)first * lanes;
            s->loops->gradient(&gradient);
        }
    }
}

static void add_piece(const struct gradient *s, const struct panel *panel, int32_t piece, const float *x,
                      const float *dy)
{
    const int32_t pixels = direct_grid_pixels(&s->source), lanes = s->loops->lanes;
    const int64_t end = s->batch * (piece + 1) / s->pieces;

    for (int32_t r = 0; r < (panel->block_end - panel->block) * lanes; r++)
        memset(panel->sums + (size_t)r * panel->pitch, 0,
               (size_t)(panel->number_end - panel->number) * (size_t)lanes * sizeof *panel->sums);
    for (int64_t n = s->batch * piece / s->pieces; n < end; n += s->images)
        for (int32_t at = 0; at < pixels; at += s->pixels) {
            const struct chunk chunk = {.image = n,
                                        .images = (int32_t)smaller(end - n, s->images),
                                        .pixel = at,
                                        .pixels = (int32_t)smaller(pixels - at, s->pixels)};
            add_chunk(s, panel, &chunk, x, dy);
        }
}

/* Sums of one channel of dy, numbers from `first` on, to its weights. */
static void write_channel(const struct gradient *s, int32_t first, int32_t end, const float *sums, float *dw)
{
    const int32_t lanes = s->loops->lanes, taps = s->source.kernel[0] * s->source.kernel[1];
    const int32_t blocks = s->source.blocks, all = s->source.channels * taps;

    if (s->source.plain || taps == 1) { /* the order of weights */
        const int64_t count = smaller(end * lanes, all) - first * lanes;
        if (count > 0)
            memcpy(dw + (size_t)first * (size_t)lanes, sums, (size_t)count * sizeof *dw);
        return;
    }
    for (int32_t b = first; b < end; b++)
        for (int32_t l = 0; l < lanes; l++)
            dw[(b % blocks * lanes + l) * taps + b / blocks] = *sums++;
}

static void write_panel(const struct gradient *s, const struct panel *panel, float *dw)
{
    const int32_t lanes = s->loops->lanes;
    const size_t row = (size_t)s->source.channels * (size_t)(s->source.kernel[0] * s->source.kernel[1]);

    for (int32_t k = panel->block * lanes; k < panel->block_end * lanes && k < s->outputs; k++)
        write_channel(s, panel->number, panel->number_end,
                      panel->sums + (size_t)(k - panel->block * lanes) * panel->pitch, dw + (size_t)k * row);
}

/* Adds up the pieces of one channel in the first one. */
static void add_pieces(const struct gradient *s, float *sums)
{
    const size_t count = (size_t)s->source.depth * (size_t)s->loops->lanes;

    for (int32_t i = 1; i < s->pieces; i++)
        for (size_t n = 0; n < count; n++)
            sums[n] += sums[n + (size_t)i * piece_floats(s)];
}

/* What all tasks read, where x has more. */
static const float *gather_before(const struct gradient *s, int threads, const float *x, float *to)
{
    const int32_t pixels = direct_grid_pixels(&s->source);
    const size_t block = (size_t)pixels * (size_t)s->loops->lanes;

    if (s->before_floats == 0)
        return x;
#pragma omp parallel for num_threads(threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < s->batch; n++)
        for (int32_t b = 0; b < s->source.depth; b++)
            direct_gather(&s->source, x + (size_t)n * direct_image_floats(&s->source), b, b + 1, 0, pixels,
                          to + (size_t)n * source_image(s) + (size_t)b * block, block);
    return to;
}

cvy_status cpu_direct_gradient_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct gradient *const s = plan->state;
    const int32_t panels = s->block_panels * s->number_panels;
    const size_t lanes = (size_t)s->loops->lanes, channel = (size_t)s->source.depth * lanes;
    const size_t row = (size_t)s->source.channels * (size_t)(s->source.kernel[0] * s->source.kernel[1]);
    float *const working = (float *)scratch + s->before_floats;
    float *const pieces = working + (size_t)device->threads * (s->source_floats + s->sums_floats);
    const float *const x = gather_before(s, device->threads, in[0], scratch);
    float *const dw = out[0];

#pragma omp parallel for num_threads(device->threads) schedule(dynamic, 1)
    for (int32_t task = 0; task < panels * s->pieces; task++) {
        const int32_t block = task % panels / s->number_panels, number = task % panels % s->number_panels;
        float *const mine = working + (size_t)omp_get_thread_num() * (s->source_floats + s->sums_floats);
        struct panel panel = {.block = direct_cut(s->blocks, s->block_panels, block),
                              .block_end = direct_cut(s->blocks, s->block_panels, block + 1),
                              .number = direct_cut(s->source.depth, s->number_panels, number),
                              .number_end = direct_cut(s->source.depth, s->number_panels, number + 1),
                              .source = mine,
                              .sums = mine + s->source_floats};
        panel.pitch = (size_t)(panel.number_end - panel.number) * lanes;
        if (s->pieces > 1) {
            panel.pitch = channel;
            panel.sums = pieces + (size_t)(task / panels) * piece_floats(s) + (size_t)panel.block * lanes * channel +
                         (size_t)panel.number * lanes;
        }
        add_piece(s, &panel, task / panels, x, in[1]);
        if (s->pieces == 1)
            write_panel(s, &panel, dw);
    }
    if (s->pieces == 1)
        return CVY_OK;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int32_t k = 0; k < s->outputs; k++) {
        add_pieces(s, pieces + (size_t)k * channel);
        write_channel(s, 0, s->source.depth, pieces + (size_t)k * channel, dw + (size_t)k * row);
    }
    return CVY_OK;
}
