/* Gradients of weights of convolutions of bf16 images by tile products:
 *
 *     dw[k][c][r][s] = sum over images n and output pixels (p, q) of dy[n][k][p][q] * x[n][c][h(p, r)][w(q, s)]
 *
 * with h(p, r) = p * stride + r * dilation - pad, w likewise. A tile product sums over 32 pixels: its left operand has
 * a line of pixels for each number ("rows"), its right one pairs of pixels for 16 numbers ("lanes").
 *
 * - Pixels are counted in planes with zeros between the rows of an image and between images, as wide as the padding.
 *   There a tap of the window is a distance: the sum of each tap runs over the same pixels of dy and over those of x
 *   that lie so many places further. x is packed once for all taps: into rows, whose lines may begin with any pixel, or
 *   into lanes, which begin with a pair, so that there is a second copy of them whose pairs begin with odd pixels.
 *   Where the stride is not 1, it is packed once for each remainder, into a plane of its own (tile_gradient_plan.c,
 *   measure_axis). What dy has between its rows is 0.
 * - A band is as many rows of an image, or as many whole images, as the second-level cache holds packed. A table says
 *   where each packed pixel lies in memory; bands of whole images have the same one. 1x1 convolutions at stride 1 know
 *   no rows.
 * - The output is cut into panels (channels of x times channels of dy, all taps), the sum over the bands into pieces. A
 *   task is one panel of one piece; it packs what it needs and shares nothing with others. Pieces have sums of their
 *   own, added up in their order. Neither they nor the bands depend on the number of threads, so neither does the
 * result.
 * - x in plain layout (the first layer: three channels): the taps of a window's row stand beside the channels, 3
 *   channels of a 7x7 window are 21 numbers, and their lines are packed with the tap's distance.
 * - x may be the input of the batch norm with ReLU before the convolution, whose output is then made while it is
 * packed, with the bits that the batch norm's own kernel gives. */
#include <omp.h>
#include <string.h>

#include "backend/cpu/batch_norm.h"
#include "backend/cpu/conv/tile_gradient.h"
#include "backend/cpu/parts.h"

/* Lines of the cache that a step of the sums made at a time fetches ahead, at most: more of them keep its own operands
 * waiting. */
#define MAX_SHARE 3

/* Pixels of a row that there are: of rows that we cut ourselves the last one may be shorter. */
static int32_t row_pixels(const struct tile_gradient *s, int64_t row, int32_t width)
{
    const int64_t left = s->pixels - row * width;
    return s->pixels && left < width ? (int32_t)left : width;
}

/* Working memory of a task. */
struct work {
    char *rows, *lanes;
    int32_t *x_table, *dy_table;
    uint16_t *zeros;
    float *sums;
    const struct cpu_affine *norm; /* of each block of channels of x; NULL: x is taken as it is */
    struct cpu_tile_ahead ahead;
    struct place_band known; /* whose tables these are, but for the first image; no images: none */
};

/* ---- where pixels lie ---- */

/* A row of places from `at` on: those of [begin, end) have pixels, `step` elements apart from `first` on. */
static void table_row(int32_t *at, int32_t width, int32_t begin, int32_t end, int64_t first, int32_t step)
{
    for (int32_t j = 0; j < width; j++)
        at[j] = j >= begin && j < end ? (int32_t)(first + (int64_t)(j - begin) * step) : -1;
}

static void clear_table(int32_t *table, int64_t from, int64_t end)
{
    for (int64_t i = from; i < end; i++)
        table[i] = -1;
}

/* Row m of a plane of x: the image of the band that it is of, and the row there, which need not exist. */
struct x_row {
    int32_t image;
    int64_t row;
    bool exists;
};

static struct x_row x_row_at(const struct tile_gradient *s, const struct place_band *band, int32_t phase, int32_t m)
{
    const struct tile_axis *const axis = &s->axis[0];
    const int32_t image = m / axis->pitch < band->images ? m / axis->pitch : band->images - 1;
    const int64_t row = (int64_t)(band->row + m - image * axis->pitch) * axis->stride + phase - axis->pad;
    return (struct x_row){.image = image, .row = row, .exists = row >= 0 && row < axis->input};
}

/* The first row of x that tables of this band count from: where images are large their last pixels are too far from
 * the first one for 32 bits. */
static int64_t first_x_row(const struct tile_gradient *s, const struct place_band *band)
{
    const int64_t row = (int64_t)band->row * s->axis[0].stride - s->axis[0].pad;
    return row < 0 ? 0 : row < s->axis[0].input ? row : s->axis[0].input;
}

static void find_dy(const struct tile_gradient *s, const struct place_band *band, int32_t *table)
{
    const int32_t width = s->axis[1].output, pitch = s->axis[1].pitch;
    int64_t done = 0;

    for (int32_t i = 0; i < band->images; i++) {
        const int64_t first = (int64_t)i * s->axis[0].pitch * pitch;
        clear_table(table, done, first);
        for (int32_t p = 0; p < band->rows; p++)
            table_row(table + first + (int64_t)p * pitch, pitch, 0, row_pixels(s, band->row + p, width),
                      i * s->dy.image_stride + (int64_t)p * width * s->dy.pixel, s->dy.pixel);
        done = first + (int64_t)band->rows * pitch;
    }
    clear_table(table, done, s->dy_pixels);
}

/* One plane of x. */
static void find_plane(const struct tile_gradient *s, const struct place_band *band, int32_t row_phase,
                       int32_t column_phase, int32_t *table)
{
    const struct tile_axis *const column = &s->axis[1];
    const int32_t pitch = column->pitch, step = column->stride, before = column->pad - column_phase;
    const int32_t begin = before > 0 ? (before + step - 1) / step : 0;
    const int32_t rows = s->x_pixels / pitch; /* of the table; the last one is not whole */
    const int64_t base = first_x_row(s, band);

    clear_table(table, 0, s->x_pixels);
    for (int32_t m = 0; m <= rows; m++) {
        const struct x_row at = x_row_at(s, band, row_phase, m);
        const int32_t left = s->x_pixels - m * pitch, width = left < pitch ? left : pitch;
        if (!at.exists)
            continue;
        const int32_t pixels = row_pixels(s, at.row, column->input), last = pixels - 1 + before;
        const int32_t end = last < 0 ? 0 : last / step + 1;
        const int64_t pixel = (at.row - base) * column->input + (int64_t)begin * step - before;
        table_row(table + (int64_t)m * pitch, width, begin, end, at.image * s->x.image_stride + pixel * s->x.pixel,
                  step * s->x.pixel);
    }
}

/* Whether two bands have the same tables: these count from a band's first row. Rows that we cut ourselves are alike but
 * for the last one. */
static bool same_tables(const struct tile_gradient *s, const struct place_band *a, const struct place_band *b)
{
    if (a->images != b->images || a->rows != b->rows)
        return false;
    return a->row == b->row || (s->pixels && (int64_t)(a->row + a->rows) * TILE_PIXELS <= s->pixels &&
                                (int64_t)(b->row + b->rows) * TILE_PIXELS <= s->pixels);
}

static void find_pixels(const struct tile_gradient *s, const struct place_band *band, struct work *work)
{
    if (same_tables(s, &work->known, band))
        return;
    work->known = *band;
    if (!s->dy.plain)
        find_dy(s, band, work->dy_table);
    for (int32_t r = 0; !s->x.plain && r < s->axis[0].phases; r++)
        for (int32_t c = 0; c < s->axis[1].phases; c++)
            find_plane(s, band, r, c, work->x_table + (int64_t)(r * s->axis[1].phases + c) * s->x_pixels);
}

/* ---- packing ---- */

struct panel {
    struct gradient_extent x, dy;
};

static struct panel panel_at(const struct tile_gradient *s, int64_t index)
{
    return (struct panel){.x = gradient_extent_of(s->x.blocks, s->x.panel, (int32_t)(index % s->x.panels)),
                          .dy = gradient_extent_of(s->dy.blocks, s->dy.panel, (int32_t)(index / s->x.panels))};
}

/* `first`: the pixel that the table counts from. */
static struct cpu_tile_pixels pixels_of(const struct tile_side *side, struct gradient_extent extent,
                                        const struct place_band *band, const void *images, int64_t first,
                                        const int32_t *table, int32_t count, const struct work *work)
{
    return (struct cpu_tile_pixels){.from = (const uint16_t *)images + band->image * side->image_stride +
                                            first * side->pixel + (int64_t)extent.first * TILE_LANES,
                                    .zeros = work->zeros,
                                    .offset = table,
                                    .count = count,
                                    .blocks = extent.blocks};
}

/* Plain x: the line of pixels of one number, channel and tap of a window's row, in the plane of a row phase. `channel`:
 * of the band's first image. */
static void pack_plain_line(const struct tile_gradient *s, const struct place_band *band, int32_t phase,
                            const uint16_t *channel, int32_t tap, uint16_t *line)
{
    const struct tile_axis *const column = &s->axis[1];
    const int32_t pitch = column->pitch, step = column->stride;
    const int32_t shift = tap * column->dilation - column->pad, rest = column->input - shift;
    const int32_t begin = shift < 0 ? (-shift + step - 1) / step : 0, past = rest > 0 ? (rest - 1) / step + 1 : 0;
    const int32_t end = past < column->output ? past : column->output;

    for (int32_t m = 0; m * pitch < s->x_pixels; m++) {
        const struct x_row at = x_row_at(s, band, phase, m);
        const int32_t room = s->x_pixels - m * pitch, count = room < pitch ? room : pitch;
        const uint16_t *const row = channel + at.image * s->x.image_stride + (at.exists ? at.row * column->input : 0);
        s->loops->pack_line(line + (int64_t)m * pitch, row + shift, step, begin < count ? begin : count,
                            !at.exists    ? 0
                            : end < count ? end
                                          : count,
                            count);
    }
}

static void pack_plain_x(const struct tile_gradient *s, const struct place_band *band, struct gradient_extent extent,
                         const void *x, const struct work *work)
{
    const int64_t first = (int64_t)extent.first * TILE_LANES, left = s->x.channels - first;
    const int32_t numbers = (int32_t)(left < extent.blocks * TILE_LANES ? left : extent.blocks * TILE_LANES);
    const uint16_t *const images = (const uint16_t *)x + band->image * s->x.image_stride;

    for (int32_t phase = 0; phase < s->axis[0].phases; phase++)
        for (int32_t j = 0; j < numbers; j++)
            pack_plain_line(s, band, phase, images + (first + j) / s->fold * s->x.plane,
                            (int32_t)((first + j) % s->fold),
                            (uint16_t *)(work->rows + (size_t)phase * s->row_phase + (size_t)j * s->row_pitch));
}

static void pack_plain_dy(const struct tile_gradient *s, const struct place_band *band, struct gradient_extent extent,
                          const void *dy, const struct work *work)
{
    const int32_t width = s->axis[1].output, row_units = s->axis[1].pitch / 2, all = s->dy_pixels / 2;

    for (int32_t b = 0; b < extent.blocks; b++) {
        const int64_t first = (int64_t)(extent.first + b) * TILE_LANES, left = s->dy.channels - first;
        char *const units = work->lanes + (size_t)b * s->lane_block;
        int64_t done = 0;
        for (int32_t i = 0; i < band->images; i++) {
            const uint16_t *const from =
                (const uint16_t *)dy + (band->image + i) * s->dy.image_stride + first * s->dy.plane;
            const int64_t at = (int64_t)i * s->axis[0].pitch * row_units;
            memset(units + done * TILE_LINE, 0, (size_t)(at - done) * TILE_LINE);
            for (int32_t p = 0; p < band->rows; p++)
                s->loops->pack_planes(units + (at + (int64_t)p * row_units) * TILE_LINE,
                                      from + (int64_t)(band->row + p) * width, (size_t)s->dy.plane,
                                      (int32_t)(left < TILE_LANES ? left : TILE_LANES), width, row_units);
            done = at + (int64_t)band->rows * row_units;
        }
        memset(units + done * TILE_LINE, 0, (size_t)(all - done) * TILE_LINE);
    }
}

static void pack_x(const struct tile_gradient *s, const struct place_band *band, struct gradient_extent extent,
                   const void *x, const struct work *work)
{
    if (s->x.plain) {
        pack_plain_x(s, band, extent, x, work);
        return;
    }
    for (int32_t phase = 0; phase < s->axis[0].phases * s->axis[1].phases; phase++) {
        char *const lanes = work->lanes + (size_t)phase * s->lane_phase;
        const int32_t count = s->x_in_rows || s->lane_taps ? s->x_pixels : s->dy_pixels;
        struct cpu_tile_pixels pixels = pixels_of(&s->x, extent, band, x, first_x_row(s, band) * s->axis[1].input,
                                                  work->x_table + (int64_t)phase * s->x_pixels, count, work);
        pixels.norm = work->norm ? work->norm + extent.first : NULL;
        if (s->x_in_rows)
            s->loops->pack_rows(work->rows + (size_t)phase * s->row_phase, s->row_pitch, &pixels);
        else
            s->loops->pack_lanes(lanes, s->lane_block, &pixels);
        for (int32_t b = 0; s->odd_phases >> phase & 1 && b < extent.blocks; b++)
            s->loops->shift_lanes(lanes + s->lane_copy + (size_t)b * s->lane_block, lanes + (size_t)b * s->lane_block,
                                  count / 2);
    }
}

static void pack_dy(const struct tile_gradient *s, const struct place_band *band, struct gradient_extent extent,
                    const void *dy, const struct work *work)
{
    if (s->dy.plain) {
        pack_plain_dy(s, band, extent, dy, work);
        return;
    }
    const struct cpu_tile_pixels pixels =
        pixels_of(&s->dy, extent, band, dy, (int64_t)band->row * s->axis[1].output, work->dy_table, s->dy_pixels, work);
    if (s->x_in_rows)
        s->loops->pack_lanes(work->lanes, s->lane_block, &pixels);
    else
        s->loops->pack_rows(work->rows, s->row_pitch, &pixels);
}

/* ---- sums ---- */

/* Pixels of a channels-last image from `pixel` on, of the panel's channels: whole ones where these are most of all. */
static struct cpu_tile_range range_of(const struct tile_side *side, struct gradient_extent extent,
                                      const struct place_band *band, const void *images, int64_t pixel, int64_t pixels)
{
    const bool whole = 2 * extent.blocks > side->blocks;
    const uint16_t *const from = (const uint16_t *)images + band->image * side->image_stride + pixel * side->pixel +
                                 (whole ? 0 : (int64_t)extent.first * TILE_LANES);
    const size_t stride = (size_t)side->pixel * sizeof(*from);

    if (side->plain || pixels <= 0)
        return (struct cpu_tile_range){.pieces = 0};
    if (whole)
        return (struct cpu_tile_range){(const char *)from, 0, 1, (int32_t)((size_t)pixels * stride / TILE_LINE)};
    return (struct cpu_tile_range){(const char *)from, stride, pixels, (extent.blocks + 1) / 2};
}

/* What is packed for the next band. Where strides leave out pixels, x is not fetched. */
static struct cpu_tile_ahead ahead_of(const struct tile_gradient *s, const struct panel *panel, int64_t index,
                                      const void *x, const void *dy)
{
    const struct tile_axis *const row = &s->axis[0], *const column = &s->axis[1];
    const struct place_band band = place_band_at(&s->bands, index);
    const int64_t images = (int64_t)(band.images - 1);
    const int64_t x_first = (int64_t)band.row * row->stride - row->pad, first = x_first > 0 ? x_first : 0;
    const int64_t x_end =
        (int64_t)(band.row + band.rows - 1) * row->stride - row->pad + (row->kernel - 1) * row->dilation + 1;
    const int64_t end = (x_end < row->input ? x_end : row->input) + images * row->input;
    const bool sparse = row->phases < row->stride || column->phases < column->stride;
    struct cpu_tile_ahead ahead = {.share = 0};

    if (!sparse)
        ahead.range[0] = range_of(&s->x, panel->x, &band, x, first * column->input, (end - first) * column->input);
    ahead.range[1] = range_of(&s->dy, panel->dy, &band, dy, (int64_t)band.row * column->output,
                              (images * row->output + band.rows) * column->output);
    const int64_t lines = ahead.range[0].pieces * ahead.range[0].lines + ahead.range[1].pieces * ahead.range[1].lines;
    const int64_t dy_pairs = (panel->dy.blocks + 1) / 2;
    const int64_t at_a_time = s->lane_taps ? panel->x.blocks * dy_pairs * divide_up(s->taps, 3)
                                           : (panel->x.blocks + 1) / 2 * dy_pairs * s->taps;
    ahead.share = (int32_t)smaller(lines * 5 / 4 / (at_a_time * s->steps) + 1, MAX_SHARE);
    return ahead;
}

/* One band of a panel. `first`: of its piece. */
static void sum_band(const struct tile_gradient *s, const struct panel *panel, int64_t index, bool first, const void *x,
                     const void *dy, struct work *work)
{
    const struct place_band band = place_band_at(&s->bands, index);
    const struct cpu_tile_products products = {.sums = work->sums,
                                               .rows = work->rows,
                                               .lanes = work->lanes,
                                               .row_pitch = s->row_pitch,
                                               .lane_block = s->lane_block,
                                               .tap = s->tap_offset,
                                               .taps = s->taps,
                                               .lane_taps = s->lane_taps,
                                               .row_blocks = (s->x_in_rows ? panel->x : panel->dy).blocks,
                                               .lane_blocks = (s->x_in_rows ? panel->dy : panel->x).blocks,
                                               .steps = s->steps,
                                               .first = first,
                                               .ahead = &work->ahead};

    find_pixels(s, &band, work);
    pack_x(s, &band, panel->x, x, work);
    pack_dy(s, &band, panel->dy, dy, work);
    s->loops->multiply(&products);
}

static int64_t first_band(const struct tile_gradient *s, int64_t piece)
{
    return s->bands.count * piece / s->pieces;
}

/* One panel of one piece. */
static void sum_panel(const struct tile_gradient *s, const struct panel *panel, int64_t piece, const void *x,
                      const void *dy, struct work *work)
{
    const int64_t begin = first_band(s, piece), end = first_band(s, piece + 1);

    for (int64_t i = begin; i < end; i++) {
        work->ahead = i + 1 < end ? ahead_of(s, panel, i + 1, x, dy) : (struct cpu_tile_ahead){.at = 2};
        sum_band(s, panel, i, i == begin, x, dy, work);
    }
}

/* ---- the result ---- */

/* Adds up the sums of a block's rows that there are, of all its lanes and taps, over the pieces, and puts them into dw:
 * rows at once where they are as far apart as the first two. */
static void write_block(const struct tile_gradient *s, const struct panel *panel, int32_t block, const float *sums,
                        size_t piece_floats, const struct gradient_output *output)
{
    const struct gradient_extent rows = s->x_in_rows ? panel->x : panel->dy,
                                 lanes = s->x_in_rows ? panel->dy : panel->x;
    const int64_t number = (int64_t)(rows.first + block) * TILE_LANES;
    const int32_t count = gradient_numbers(output, true, number), step = s->fold == 1 ? count : 1;
    const size_t row_pairs = (size_t)(rows.blocks + 1) / 2;
    const int32_t together = s->lane_taps ? 1 : 2; /* blocks of lanes */
    const size_t tap = (size_t)together * 2 * TILE_FLOATS;

    for (int32_t l = 0; l < lanes.blocks; l++) {
        const size_t pair = (size_t)(l / together) * row_pairs + (size_t)(block / 2);
        const float *const tile =
            sums + pair * (size_t)s->taps * tap + (size_t)(block % 2 * together + l % together) * TILE_FLOATS;
        for (int32_t i = 0; i < count; i += step) {
            struct cpu_sum_block b = {.sums = tile + (size_t)i * TILE_LANES,
                                      .pitch = TILE_LANES,
                                      .tap = tap,
                                      .piece = piece_floats,
                                      .rows = step,
                                      .taps = s->taps,
                                      .pieces = (int32_t)s->pieces};
            gradient_place_block(output, number + i, (int64_t)(lanes.first + l) * TILE_LANES, &b);
            s->write(&b);
        }
    }
}

/* Where the numbers of the batch norm before the convolution lie, which all threads read; NULL: x is taken as it is. */
static struct cpu_affine *norm_at(const struct tile_gradient *s, void *scratch)
{
    return s->norm_at == 0 ? NULL : (struct cpu_affine *)((char *)scratch + s->norm_at);
}

/* Makes them. */
static const struct cpu_affine *norm_of(const struct tile_gradient *s, void *const *in, void *scratch)
{
    struct cpu_affine *const norm = norm_at(s, scratch);

    if (!norm)
        return NULL;
    for (int32_t b = 0; b < s->x.blocks; b++)
        batch_norm_affine(in[4], in[5], in[2], in[3], (int64_t)b * TILE_LANES, TILE_LANES, &norm[b]);
    return norm;
}

/* A thread's part of the scratch memory. */
static struct work work_of(const struct tile_gradient *s, void *scratch, int thread)
{
    char *const mine = (char *)scratch + (size_t)thread * s->thread_bytes;
    struct work work = {
        .rows = mine, .lanes = mine + s->row_bytes, .zeros = (uint16_t *)(mine + s->row_bytes + s->lane_bytes)};

    memset(work.zeros, 0, s->zeros_bytes);
    work.x_table = (int32_t *)((char *)work.zeros + s->zeros_bytes);
    work.dy_table = work.x_table + (int64_t)s->axis[0].phases * s->axis[1].phases * s->x_pixels;
    work.sums = (float *)((char *)work.x_table + s->table_bytes);
    return work;
}

static struct gradient_output output_of(const struct tile_gradient *s, void *dw)
{
    return (struct gradient_output){.dw = dw,
                                    .window = (int64_t)s->axis[0].kernel * s->axis[1].kernel,
                                    .x_channels = s->x.channels,
                                    .dy_channels = s->dy.channels,
                                    .fold = s->fold,
                                    .x_in_rows = s->x_in_rows};
}

/* The sums of all pieces, where there are several. */
static float *pieces_at(const cvy_device *device, const struct tile_gradient *s, void *scratch)
{
    return (float *)((char *)scratch + (size_t)device->threads * s->thread_bytes);
}

static int64_t panels_of(const struct tile_gradient *s)
{
    return (int64_t)s->x.panels * s->dy.panels;
}

static float *sums_of(const struct tile_gradient *s, float *pieces, int64_t piece, int64_t panel)
{
    return pieces + (size_t)(piece * panels_of(s) + panel) * s->panel_floats;
}

/* Adds up the pieces; by all threads of a parallel region. */
static void write_pieces(const struct tile_gradient *s, float *pieces, const struct gradient_output *output)
{
    const int64_t panels = panels_of(s), blocks = (s->x_in_rows ? &s->x : &s->dy)->panel;

#pragma omp for schedule(static)
    for (int64_t task = 0; task < panels * blocks; task++) {
        const int64_t index = task / blocks;
        const struct panel panel = panel_at(s, index);
        if (task % blocks < (s->x_in_rows ? panel.x : panel.dy).blocks)
            write_block(s, &panel, (int32_t)(task % blocks), sums_of(s, pieces, 0, index),
                        (size_t)panels * s->panel_floats, output);
    }
}

cvy_status cpu_tile_gradient_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                 void *const *out, void *scratch)
{
    const struct tile_gradient *const s = plan->state;
    const int64_t panels = panels_of(s);
    const struct cpu_affine *const norm = norm_of(s, in, scratch);
    float *const pieces = pieces_at(device, s, scratch);
    const struct gradient_output output = output_of(s, out[0]);

#pragma omp parallel num_threads(device->threads)
    {
        struct work work = work_of(s, scratch, omp_get_thread_num());
        work.norm = norm;
        /* Whoever is free takes the next task: other programs may slow one core down. */
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < panels * s->pieces; task++) {
            const int64_t index = task % panels, piece = task / panels;
            const struct panel panel = panel_at(s, index);
            if (s->pieces > 1)
                work.sums = sums_of(s, pieces, piece, index);
            sum_panel(s, &panel, piece, in[0], in[1], &work);
            for (int32_t b = 0; s->pieces == 1 && b < (s->x_in_rows ? panel.x : panel.dy).blocks; b++)
                write_block(s, &panel, b, work.sums, 0, &output);
        }
        /* The loop before ends with a barrier. */
        if (s->pieces > 1)
            write_pieces(s, pieces, &output);
    }
    return CVY_OK;
}

/* ---- part by part: a part is a band, a share a piece ---- */

static bool cut_by_bands(cvy_device *device, const struct cvy_op_desc *desc, const struct cvy_kernel_plan *plan,
                         struct cvy_cut *cut)
{
    const struct tile_gradient *const s = plan->state;

    (void)desc;
    if (s->pixels == 0 || s->pieces % device->threads != 0 || s->pieces == 1)
        return false;
    cut->pixels = s->pixels;
    cut->part = s->bands.rows * TILE_PIXELS;
    cut->shares = (int32_t)s->pieces;
    cut->in = 1U << 0 | 1U << 1;
    return true;
}

static cvy_status begin_bands(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                              void *scratch)
{
    (void)device;
    (void)out;
    (void)norm_of(plan->state, in, scratch);
    return CVY_OK;
}

static void run_band(cvy_device *device, const struct cpu_part *part)
{
    const struct tile_gradient *const s = part->plan->state;
    const int64_t band = part->first / (s->bands.rows * TILE_PIXELS);
    struct work work = work_of(s, part->scratch, part->thread);
    int64_t piece = 0;

    while (first_band(s, piece + 1) <= band)
        piece++;
    work.norm = norm_at(s, part->scratch);
    work.ahead.at = 2;
    for (int64_t index = 0; index < panels_of(s); index++) {
        const struct panel panel = panel_at(s, index);
        work.sums = sums_of(s, pieces_at(device, s, part->scratch), piece, index);
        sum_band(s, &panel, band, band == first_band(s, piece), part->in[0], part->in[1], &work);
    }
}

static cvy_status end_bands(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                            void *scratch)
{
    const struct tile_gradient *const s = plan->state;
    const struct gradient_output output = output_of(s, out[0]);

    (void)in;
#pragma omp parallel num_threads(device->threads)
    write_pieces(s, pieces_at(device, s, scratch), &output);
    return CVY_OK;
}

const struct cpu_parts cpu_tile_gradient_parts = {
    .cut = cut_by_bands, .begin = begin_bands, .run = run_band, .end = end_bands};
