/* Weight gradients of convolutions whose images are bf16, by vectors; tile_gradient.c has those by tile products:
 *
 *     dw[k][c][r][s] = sum over images n and output pixels (p, q) of dy[n][k][p][q] * x[n][c][h(p, r)][w(q, s)]
 *
 * with h(p, r) = p * stride + r * dilation - pad, w likewise. For each tap (r, s) that is a product of two matrices
 * whose sum runs over all pixels of all images. One operand stands in the lanes of vectors, 16 channels each, the other
 * is multiplied in number by number ("rows"). Both are packed into units (weight_gradient_loops.h) chunk by chunk: a
 * chunk is some rows of pixels of one image or some whole small images, as much as the caches hold.
 *
 * - The output is cut into panels (channels of x times channels of dy, all taps), the sum over the chunks into pieces.
 *   A task is one panel of one piece; it packs what it needs and shares nothing with others. Each piece has its own
 *   sums, added up in the order of the pieces. Neither depends on the number of threads, so neither does the result,
 *   and no thread waits for another but at the end of the loop.
 * - x is packed once for each s, so that the pixels that meet lie at the same place of a row. Its rows are sorted by
 * the remainder of their number by the vertical stride: the rows that one r needs then follow each other, and each tap
 * is one long sum.
 * - 1x1 convolutions at stride 1 know no rows: their pixels are cut into rows of a convenient length.
 * - x in plain layout (the first layer: three channels) is the row operand, and the taps of a window's row stand beside
 *   the channels: 3 channels of a 7x7 window are 21. */
#include <omp.h>
#include <string.h>

#include "backend/cpu/conv/weight_gradient_plan.h"

/* ---- packing ---- */

/* Part of the images that a task packs at a time, and of the channels. */
struct chunk {
    int64_t image;     /* the first one */
    int32_t images;    /* how many */
    int32_t row, rows; /* of dy */
};

static struct chunk chunk_at(const struct weight_gradient *s, int64_t index)
{
    struct chunk chunk = {.image = index / s->image_chunks * s->chunk_images,
                          .row = (int32_t)(index % s->image_chunks) * s->chunk_rows};
    const int64_t images = s->batch - chunk.image;
    const int32_t rows = s->out_height - chunk.row;
    chunk.images = (int32_t)(images < s->chunk_images ? images : s->chunk_images);
    chunk.rows = rows < s->chunk_rows ? rows : s->chunk_rows;
    return chunk;
}

/* Pixels of a row of `width`: where we cut the rows ourselves the last one may be shorter. */
static int32_t row_pixels(const struct weight_gradient *s, int32_t row, int32_t width)
{
    const int64_t rest = s->pixels - (int64_t)row * width;
    return s->pixels && rest < width ? (int32_t)rest : width;
}

/* What all rows of one block of 16 have in common. */
static struct cpu_unit_row begin_row(const struct weight_gradient *s, const struct side *side, int32_t block)
{
    const int64_t channels = side->channels - (int64_t)block * CPU_CHANNELS;
    return (struct cpu_unit_row){.block = side->block,
                                 .pixel = side->pixel,
                                 .channels = (int32_t)(channels < CPU_CHANNELS ? channels : CPU_CHANNELS),
                                 .block_stride = (size_t)side->block_stride,
                                 .stride = 1,
                                 .units = s->row_units,
                                 .second = (size_t)side->second,
                                 .fold = 1};
}

/* Where a row of one block begins: channel 0 of the image where the layout is plain (`slot` says the channels). */
static const uint16_t *row_at(const struct side *side, const void *images, int64_t n, int32_t block, int64_t pixel)
{
    const uint16_t *image = (const uint16_t *)images + n * side->image_stride;
    if (side->block > 1)
        image += (int64_t)block * CPU_CHANNELS / side->block * side->block_stride;
    return image + pixel * side->pixel;
}

static void pack_dy(const struct weight_gradient *s, const struct chunk *chunk, int32_t block, const void *dy, char *to)
{
    struct cpu_unit_row row = begin_row(s, &s->dy, block);
    row.slot = s->dy.block > 1 ? 0 : block * CPU_CHANNELS;
    for (int32_t i = 0; i < chunk->images; i++) {
        char *image = to + (size_t)i * s->dy.image_units * CPU_UNIT;
        for (int32_t p = 0; p < chunk->rows; p++) {
            const int32_t at = chunk->row + p;
            row.from = row_at(&s->dy, dy, chunk->image + i, block, (int64_t)at * s->out_width);
            row.columns = row.pixels = row_pixels(s, at, s->out_width);
            s->loops->pack(image + (size_t)p * (size_t)row.units * CPU_UNIT, &row);
        }
    }
}

/* x for one s: of each phase, for each image, the rows that the chunk needs. Rows outside the image are never read. */
static void pack_x(const struct weight_gradient *s, const struct chunk *chunk, int32_t block, int32_t tap,
                   const void *x, char *to)
{
    struct cpu_unit_row row = begin_row(s, &s->x, block);
    const int32_t rows = chunk->rows + s->x_rows - s->chunk_rows;
    const size_t unit = s->x_in_slots ? 4 : CPU_UNIT;
    row.slot = s->x.block > 1 ? 0 : block * CPU_CHANNELS;
    row.fold = s->fold;
    row.step = s->dilation[1];
    row.stride = s->stride[1];
    row.first = tap * s->dilation[1] - s->pad[1];
    for (int32_t phase = 0; phase < s->phases; phase++)
        for (int32_t i = 0; i < chunk->images; i++) {
            char *image = to + ((size_t)phase * (size_t)s->chunk_images + (size_t)i) * s->x.image_units * unit;
            for (int32_t m = 0; m < rows; m++) {
                const int64_t h = (int64_t)(chunk->row + m) * s->stride[0] + phase - s->pad[0];
                if (h < 0 || h >= s->height)
                    continue;
                row.from = row_at(&s->x, x, chunk->image + i, block, h * s->width);
                row.columns = row_pixels(s, (int32_t)h, s->width);
                row.pixels = s->pixels ? row.columns : s->out_width;
                if (s->x_in_slots)
                    s->loops->pack_slots(image + (size_t)m * (size_t)row.units * unit, s->x.block_units * unit, &row);
                else
                    s->loops->pack(image + (size_t)m * (size_t)row.units * unit, &row);
            }
        }
}

/* ---- products ---- */

/* Rows of sums that a panel has for the numbers of one side. */
static int32_t sum_rows(const struct side *side, struct gradient_extent extent)
{
    const int64_t rest = side->channels - (int64_t)extent.first * CPU_CHANNELS;
    const int64_t rows = rest < (int64_t)extent.blocks * CPU_CHANNELS ? rest : (int64_t)extent.blocks * CPU_CHANNELS;
    return (int32_t)(divide_up(rows, CPU_SUM_ROWS) * CPU_SUM_ROWS);
}

struct panel {
    struct gradient_extent x, dy;
    int32_t rows, lane_blocks; /* of sums, for each tap */
};

static struct panel panel_at(const struct weight_gradient *s, int64_t index)
{
    struct panel panel = {.x = gradient_extent_of(s->x.blocks, s->x.panel, (int32_t)(index % s->x.panels)),
                          .dy = gradient_extent_of(s->dy.blocks, s->dy.panel, (int32_t)(index / s->x.panels))};
    panel.rows = s->x_in_rows ? sum_rows(&s->x, panel.x) : sum_rows(&s->dy, panel.dy);
    panel.lane_blocks = s->x_in_rows ? panel.dy.blocks : panel.x.blocks;
    return panel;
}

static int32_t row_blocks(const struct panel *panel)
{
    return (int32_t)divide_up(panel->rows, CPU_CHANNELS);
}

static size_t tap_floats(const struct panel *panel)
{
    return (size_t)panel->rows * (size_t)panel->lane_blocks * CPU_CHANNELS;
}

/* Working memory of a task. */
struct work {
    char *rows, *lanes; /* units: the row operand of a chunk, and the lane operand of one tile */
    float *sums;
    struct cpu_ahead ahead;
};

/* One tap of a chunk, for some lane blocks: only the rows of dy whose row of x is inside the image. x_units: those
 * packed for the tap's column. */
static void multiply_tap(const struct weight_gradient *s, const struct chunk *chunk, const struct panel *panel,
                         int32_t r, size_t x_units, int32_t lane_blocks, float *sums, struct work *work)
{
    const int32_t from = r * s->dilation[0], phase = from % s->stride[0], shift = from / s->stride[0];
    int32_t begin = chunk->row, end = chunk->row + chunk->rows;
    while (begin < end && (int64_t)begin * s->stride[0] + from - s->pad[0] < 0)
        begin++;
    while (end > begin && (int64_t)(end - 1) * s->stride[0] + from - s->pad[0] >= s->height)
        end--;
    if (begin >= end)
        return;
    const size_t row = (size_t)s->row_units, first = (size_t)(begin - chunk->row);
    const size_t row_unit = cpu_row_unit(s->row_step);
    const size_t dy_at = first * row;
    const size_t x_at =
        x_units + (size_t)phase * (size_t)s->chunk_images * s->x.image_units + (first + (size_t)shift) * row;
    struct cpu_products products = {.sums = sums,
                                    .pitch = (size_t)panel->lane_blocks * CPU_CHANNELS,
                                    .lanes = work->lanes + (s->x_in_rows ? dy_at : x_at) * CPU_UNIT,
                                    .rows = work->rows + (s->x_in_rows ? x_at : dy_at) * row_unit,
                                    .lane_block = s->lane_block,
                                    .row_block = s->row_block,
                                    .lane_segment = (s->x_in_rows ? s->dy : s->x).image_units * CPU_UNIT,
                                    .row_segment = (s->x_in_rows ? s->x : s->dy).image_units * row_unit,
                                    .row_step = s->row_step,
                                    .lane_blocks = lane_blocks,
                                    .row_count = panel->rows,
                                    .units = (end - begin) * s->row_units,
                                    .segments = chunk->images,
                                    .ahead = &work->ahead};
    const size_t units = (size_t)products.units;
    if (s->x.image_units == units && s->dy.image_units == units) {
        products.units *= products.segments;
        products.segments = 1;
    }
    s->loops->multiply(&products);
}

/* What the task packs next of one side: rows of some images, of the blocks of its panel. */
static void prefetch_next(const struct side *side, struct gradient_extent extent, const struct chunk *chunk,
                          const void *images, int64_t pixel, int64_t pixels, struct cpu_ahead *ahead)
{
    /* Channels-last, the blocks of a pixel are neighbours: all of them, where the panel has most. */
    const bool last = side->pixel > side->block;
    const int32_t blocks = !last ? extent.blocks : 2 * extent.blocks > side->blocks;

    for (int32_t b = 0; b < blocks; b++)
        for (int32_t i = 0; i < chunk->images; i++) {
            const uint16_t *first = row_at(side, images, chunk->image + i, last ? 0 : extent.first + b, pixel);
            for (int64_t at = 0; at <= side->second && ahead->ranges < CPU_RANGES;
                 at += side->second ? side->second : 1)
                ahead->range_list[ahead->ranges++] =
                    (struct cpu_range){.from = (const char *)(first + at),
                                       .lines = (int32_t)divide_up(pixels * side->pixel * 2, CPU_LINE)};
        }
}

static void plan_ahead(const struct weight_gradient *s, const struct panel *panel, int64_t index, const void *x,
                       const void *dy, struct cpu_ahead *ahead)
{
    const struct chunk chunk = chunk_at(s, index);
    const int64_t x_first = (int64_t)chunk.row * s->stride[0] - s->pad[0];
    const int64_t x_end =
        (int64_t)(chunk.row + chunk.rows - 1) * s->stride[0] - s->pad[0] + (s->kernel[0] - 1) * s->dilation[0] + 1;
    const int64_t x_row = x_first > 0 ? x_first : 0, x_past = x_end < s->height ? x_end : s->height;
    prefetch_next(&s->x, panel->x, &chunk, x, x_row * s->width, (x_past - x_row) * s->width, ahead);
    prefetch_next(&s->dy, panel->dy, &chunk, dy, (int64_t)chunk.row * s->out_width, (int64_t)chunk.rows * s->out_width,
                  ahead);
    int64_t lines = 0;
    for (int32_t i = 0; i < ahead->ranges; i++)
        lines += ahead->range_list[i].lines;
    const int64_t tiles =
        (int64_t)taps(s) * (panel->rows / s->loops->tile_rows) * divide_up(panel->lane_blocks, s->loops->tile_blocks);
    ahead->share = (int32_t)(lines * 5 / 4 / tiles + 1);
}

/* All taps of a chunk for some lane blocks, which are packed here; the row operand is there. */
static void sum_lanes(const struct weight_gradient *s, const struct chunk *chunk, const struct panel *panel,
                      int32_t block, int32_t blocks, const void *x, const void *dy, struct work *work)
{
    const int32_t columns = s->kernel[1] / s->fold;
    const size_t tap = tap_floats(panel);
    float *const sums = work->sums + (size_t)block * CPU_CHANNELS;

    for (int32_t b = 0; s->x_in_rows && b < blocks; b++)
        pack_dy(s, chunk, panel->dy.first + block + b, dy, work->lanes + (size_t)b * s->lane_block);
    for (int32_t t = 0; t < columns; t++) {
        for (int32_t b = 0; !s->x_in_rows && b < blocks; b++)
            pack_x(s, chunk, panel->x.first + block + b, t, x, work->lanes + (size_t)b * s->lane_block);
        for (int32_t r = 0; r < s->kernel[0]; r++)
            multiply_tap(s, chunk, panel, r, s->x_in_rows ? (size_t)t * s->x.block_units : 0, blocks,
                         sums + (size_t)(r * columns + t) * tap, work);
    }
}

/* The row operand of a chunk. */
static void pack_rows(const struct weight_gradient *s, const struct chunk *chunk, const struct panel *panel,
                      const void *x, const void *dy, const struct work *work)
{
    const int32_t columns = s->kernel[1] / s->fold;

    for (int32_t b = 0; !s->x_in_rows && b < panel->dy.blocks; b++)
        pack_dy(s, chunk, panel->dy.first + b, dy, work->rows + (size_t)b * s->row_block);
    for (int32_t b = 0; s->x_in_rows && b < panel->x.blocks; b++)
        for (int32_t t = 0; t < columns; t++)
            pack_x(s, chunk, panel->x.first + b, t, x,
                   work->rows + (size_t)b * s->row_block + (size_t)t * s->x.block_units * CPU_UNIT);
}

/* One panel of one piece. */
static void sum_panel(const struct weight_gradient *s, const struct panel *panel, int64_t piece, const void *x,
                      const void *dy, struct work *work)
{
    const int64_t end = s->chunks * (piece + 1) / s->pieces;
    const int32_t step = s->loops->tile_blocks;

    memset(work->sums, 0, tap_floats(panel) * (size_t)taps(s) * sizeof(float));
    for (int64_t i = s->chunks * piece / s->pieces; i < end; i++) {
        const struct chunk chunk = chunk_at(s, i);
        work->ahead = (struct cpu_ahead){.ranges = 0};
        if (i + 1 < end)
            plan_ahead(s, panel, i + 1, x, dy, &work->ahead);
        pack_rows(s, &chunk, panel, x, dy, work);
        for (int32_t b = 0; b < panel->lane_blocks; b += step)
            sum_lanes(s, &chunk, panel, b, panel->lane_blocks - b < step ? panel->lane_blocks - b : step, x, dy, work);
    }
}

/* ---- the result ---- */

/* Add up rows of a panel, 16 at most, over the pieces, and put them into dw. */
static void write_rows(const struct weight_gradient *s, const struct panel *panel, int32_t row, int32_t rows,
                       const float *sums, size_t piece_floats, const struct gradient_output *output)
{
    const struct gradient_extent lanes = s->x_in_rows ? panel->dy : panel->x;
    const int64_t number = (int64_t)(s->x_in_rows ? panel->x : panel->dy).first * CPU_CHANNELS + row;

    for (int32_t b = 0; b < lanes.blocks; b++) {
        struct cpu_sum_block block = {.sums =
                                          sums + ((size_t)row * (size_t)panel->lane_blocks + (size_t)b) * CPU_CHANNELS,
                                      .pitch = (size_t)panel->lane_blocks * CPU_CHANNELS,
                                      .tap = tap_floats(panel),
                                      .piece = piece_floats,
                                      .rows = rows,
                                      .taps = taps(s),
                                      .pieces = (int32_t)s->pieces};
        gradient_place_block(output, number, (int64_t)(lanes.first + b) * CPU_CHANNELS, &block);
        s->loops->write(&block);
    }
}

/* The same for the 16 rows of a block that there are: all at once where they are as far apart as the first two. */
static void write_block(const struct weight_gradient *s, const struct panel *panel, int32_t block, const float *sums,
                        size_t piece_floats, const struct gradient_output *output)
{
    const int64_t first = (int64_t)(s->x_in_rows ? panel->x : panel->dy).first * CPU_CHANNELS;
    const int32_t row = block * CPU_CHANNELS, rows = gradient_numbers(output, true, first + row);
    const int32_t step = s->fold == 1 ? rows : 1;

    for (int32_t i = 0; i < rows; i += step)
        write_rows(s, panel, row + i, step, sums, piece_floats, output);
}

cvy_status cpu_weight_gradient_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct weight_gradient *s = plan->state;
    const int64_t panels = (int64_t)s->x.panels * s->dy.panels, blocks = (s->x_in_rows ? &s->x : &s->dy)->panel;
    const size_t piece_floats = (size_t)panels * s->panel_floats;
    float *const pieces = (float *)((char *)scratch + (size_t)device->threads * s->thread_bytes);
    const struct gradient_output output = {.dw = out[0],
                                           .window = (int64_t)s->kernel[0] * s->kernel[1],
                                           .x_channels = s->x.channels,
                                           .dy_channels = s->dy.channels,
                                           .fold = s->fold,
                                           .x_in_rows = s->x_in_rows};

    /* Whoever is free takes the next task: other programs may slow one core down. */
#pragma omp parallel for num_threads(device->threads) schedule(dynamic, 1)
    for (int64_t task = 0; task < panels * s->pieces; task++) {
        const int64_t index = task % panels, piece = task / panels;
        const struct panel panel = panel_at(s, index);
        char *const mine = (char *)scratch + (size_t)omp_get_thread_num() * s->thread_bytes;
        struct work work = {.rows = mine, .lanes = mine + s->row_bytes};
        if (s->pieces == 1)
            work.sums = (float *)(mine + s->row_bytes + s->lane_bytes);
        else
            work.sums = pieces + (size_t)piece * piece_floats + (size_t)index * s->panel_floats;
        sum_panel(s, &panel, piece, in[0], in[1], &work);
        for (int32_t b = 0; s->pieces == 1 && b < row_blocks(&panel); b++)
            write_block(s, &panel, b, work.sums, 0, &output);
    }
    if (s->pieces == 1)
        return CVY_OK;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t task = 0; task < panels * blocks; task++) {
        const int64_t index = task / blocks;
        const struct panel panel = panel_at(s, index);
        if (task % blocks < row_blocks(&panel))
            write_block(s, &panel, (int32_t)(task % blocks), pieces + (size_t)index * s->panel_floats, piece_floats,
                        &output);
    }
    return CVY_OK;
}
