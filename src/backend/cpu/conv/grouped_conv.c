/* Convolutions with few channels in a group, all three passes; the arithmetic is in grouped_conv_loops.inc.
 *
 * Forward and the gradient of the data are the same sums: for each pixel of the "aim" (y, or dx), over the rows of the
 * window, the channels of a group and the columns of the window, products with pixels of the "source" (x, or dy). They
 * differ in which taps meet which places: under a stride the gradient of the data has as many kinds of columns as the
 * stride is wide, each with taps of its own ("phases"). Every sum has one order, whoever computes it, and the gradient
 * of the weights is added up in pieces of the batch that do not depend on the number of threads either. */
#include <string.h>

#include "backend/cpu/conv/grouped_conv_plan.h"

/* ---- weights ---- */

/* Where the weight of a lane, a channel of the other side in its group, and a tap is. */
static size_t weight_at(const struct grouped *g, int64_t aim_channel, int32_t channel, int32_t row, int32_t tap)
{
    int64_t k = aim_channel, c = channel, group_inputs = g->source_group;
    if (g->op == CVY_OP_CONV2D_BWD_DATA) { /* the aim is x: its channels are the inputs */
        k = aim_channel / g->aim_group * g->source_group + channel;
        c = aim_channel % g->aim_group;
        group_inputs = g->aim_group;
    }
    return (size_t)(((k * group_inputs + c) * g->kernel[0] + row) * g->kernel[1] + tap);
}

/* The vector of one step and tap. Lanes that the step does not have stay 0. */
static void pack_vector(const struct grouped *g, int32_t block, const struct cpu_grouped_step *step, int32_t row,
                        int32_t tap, const void *weights, void *to)
{
    const bool pairs = g->loops->pairs;
    memset(to, 0, grouped_vector_bytes(g));
    for (int32_t lane = 0; lane < g->loops->lanes; lane++) {
        if (!(step->lane_mask >> lane & 1))
            continue;
        const int64_t channel = (int64_t)block * g->loops->lanes + lane;
        const size_t at = weight_at(g, channel, step->channel, row, tap);
        if (pairs) {
            uint16_t *pair = (uint16_t *)to + 2 * lane;
            pair[0] = ((const uint16_t *)weights)[at];
            pair[1] = ((const uint16_t *)weights)[weight_at(g, channel, step->channel + 1, row, tap)];
        } else if (g->element == sizeof(uint16_t)) {
            const uint32_t bits = (uint32_t)((const uint16_t *)weights)[at] << 16;
            memcpy((float *)to + lane, &bits, sizeof(bits));
        } else {
            ((float *)to)[lane] = ((const float *)weights)[at];
        }
    }
}

/* Bytes before the packed weights of a block, a phase and a row: (block, phase, row, step, tap, vector). */
static size_t packed_at(const struct grouped *g, int32_t block, const struct phase *phase, int32_t row)
{
    const size_t before = (size_t)g->first_step[block], steps = (size_t)grouped_steps(g, block);
    const size_t taps = (size_t)g->kernel[0] * ((size_t)g->kernel[1] * before + (size_t)phase->taps_before * steps);
    return (taps + (size_t)row * steps * (size_t)phase->taps) * grouped_vector_bytes(g);
}

static void pack_block(const struct grouped *g, int32_t block, const void *weights, char *packed)
{
    for (int32_t p = 0; p < g->phase_count; p++) {
        const struct phase *phase = &g->phases[p];
        for (int32_t row = 0; row < g->kernel[0]; row++) {
            char *to = packed + packed_at(g, block, phase, row);
            for (int32_t i = g->first_step[block]; i < g->first_step[block + 1]; i++)
                for (int32_t t = 0; t < phase->taps; t++, to += grouped_vector_bytes(g))
                    pack_vector(g, block, &g->steps[i], row, phase->tap[t], weights, to);
        }
    }
}

/* ---- lines ---- */

/* The rows of one block of one image of the source that a thread holds as lines. */
struct lines {
    const struct grouped *g;
    const char *source;
    char *memory;
    int64_t held[GROUPED_SLOTS]; /* plane * rows + row, or -1 */
};

static void lines_begin(struct lines *lines, const struct grouped *g, const void *source, char *memory)
{
    lines->g = g;
    lines->source = source;
    lines->memory = memory;
    memset(memory, 0, g->chunk_bytes); /* the padding */
    for (int32_t i = 0; i < g->slots; i++)
        lines->held[i] = -1;
}

/* The lines of row `row` for block `block` of the aim, made where they are not there yet. */
static const char *lines_of(struct lines *lines, int32_t image, int32_t block, int32_t row)
{
    const struct grouped *g = lines->g;
    const int32_t slot = row % g->slots;
    const int64_t name = ((int64_t)image * g->aim_blocks + block) * g->source[0] + row;
    char *memory = lines->memory + (size_t)slot * (size_t)g->lines_of_row * g->line_bytes;
    int32_t first, last;
    if (lines->held[slot] == name)
        return memory;
    lines->held[slot] = name;
    grouped_span(g, block, &first, &last);
    const struct cpu_grouped_step *steps = g->steps + g->first_step[block];
    const int32_t count = g->loops->permuted_lines ? grouped_steps(g, block) : last - first + 1;
    for (int32_t i = 0; i < count; i++) {
        const int64_t from = g->loops->permuted_lines ? steps[i].block : first + i;
        const int64_t at = ((int64_t)image * g->source_blocks + from) * g->source[0] + row;
        g->loops->line(&(struct cpu_grouped_line){.to = memory + (size_t)i * g->line_bytes,
                                                  .from = lines->source + (size_t)at * (size_t)g->source[1] *
                                                                              (size_t)g->loops->lanes * g->element,
                                                  .columns = g->source[1],
                                                  .shift = g->shift,
                                                  .phases = g->line_phases,
                                                  .phase_places = g->phase_places,
                                                  .step = steps + i});
    }
    return memory;
}

/* ---- forward and the gradient of the data ---- */

struct operands {
    const void *source, *residual;
    const float *bias;
    const char *packed;
    char *aim;
};

/* The row of the source that meets row `at` of the aim under row r of the window; false: none does. */
static bool source_row(const struct grouped *g, int32_t at, int32_t r, int32_t *row)
{
    if (grouped_is_forward(g) || grouped_is_gradient(g)) {
        *row = at * g->stride[0] + r - g->pad[0];
    } else {
        const int32_t scaled = at + g->pad[0] - r;
        if (scaled % g->stride[0] != 0)
            return false;
        *row = scaled / g->stride[0];
    }
    return *row >= 0 && *row < g->source[0];
}

/* `count` rows of an image from row `row` of one block on, or what of them there is; after a block comes the next. */
static struct cpu_grouped_ahead rows_ahead(const char *image, int64_t blocks, int64_t block, const int32_t extent[2],
                                           int64_t row, int64_t count, size_t pixel)
{
    const int64_t end = blocks * extent[0];
    int64_t from = block * extent[0] + row, to = from + count;
    from = from < 0 ? 0 : from > end ? end : from;
    to = to < from ? from : to > end ? end : to;
    const size_t row_bytes = (size_t)extent[1] * pixel;
    return (struct cpu_grouped_ahead){image + (size_t)from * row_bytes, image + (size_t)to * row_bytes};
}

/* The rows of the source that the next row of the aim will be the first to need. */
static void prefetch_next(const struct lines *lines, int32_t image, int32_t block, int32_t at,
                          struct cpu_grouped_row *row)
{
    const struct grouped *g = lines->g;
    const size_t pixel = (size_t)g->loops->lanes * g->element;
    int32_t first_block, last_block, first = at * g->stride[0] + g->kernel[0] - g->pad[0], count = g->stride[0];
    grouped_span(g, block, &first_block, &last_block);
    if (!grouped_is_forward(g)) {
        first = (at + 1 + g->pad[0]) / g->stride[0];
        count = (at + 1 + g->pad[0]) % g->stride[0] == 0;
    }
    row->ahead = rows_ahead(lines->source, (int64_t)g->batch * g->source_blocks,
                            (int64_t)image * g->source_blocks + first_block, g->source, first, count, pixel);
    const size_t bytes = (size_t)(row->ahead.end - row->ahead.at);
    const size_t iterations = (size_t)row->rows * (size_t)row->step_count;
    row->ahead_step = bytes / (size_t)g->aim[1];
    if (iterations)
        row->ahead_lines = (int32_t)((row->ahead_step * (size_t)g->loops->tile / 64 + iterations - 1) / iterations);
}

static void aim_row(struct lines *lines, const struct operands *o, int32_t image, int32_t block, int32_t at)
{
    const struct grouped *g = lines->g;
    const size_t pixel = (size_t)g->loops->lanes * g->element;
    const int64_t rows = ((int64_t)image * g->aim_blocks + block) * g->aim[0] + at;
    const size_t offset = (size_t)rows * (size_t)g->aim[1] * pixel;
    struct cpu_grouped_row row = {.steps = g->steps + g->first_step[block],
                                  .step_count = grouped_steps(g, block),
                                  .line_bytes = g->line_bytes,
                                  .column_step = grouped_is_forward(g) ? 1 : g->stride[1],
                                  .bias = o->bias ? o->bias + (size_t)block * (size_t)g->loops->lanes : NULL,
                                  .activation = g->activation,
                                  .whole = g->whole};
    int32_t window_row[CPU_GROUPED_TAPS], from;
    for (int32_t r = 0; r < g->kernel[0]; r++)
        if (source_row(g, at, r, &from)) {
            window_row[row.rows] = r;
            row.line[row.rows++] = lines_of(lines, image, block, from);
        }
    prefetch_next(lines, image, block, at, &row);
    for (int32_t p = 0; p < g->phase_count; p++) {
        const struct phase *phase = &g->phases[p];
        row.runs = phase->runs;
        row.run_count = phase->run_count;
        row.taps = phase->taps;
        row.columns = phase->columns;
        row.out = o->aim + offset + (size_t)p * pixel;
        row.residual = o->residual ? (const char *)o->residual + offset + (size_t)p * pixel : NULL;
        for (int32_t i = 0; i < row.rows; i++)
            row.weights[i] = o->packed + packed_at(g, block, phase, window_row[i]);
        g->loops->row(&row);
    }
}

/* All rows of all blocks of all images, in equal shares. */
static void run_rows(const cvy_device *device, const struct grouped *g, const void *weights, struct operands *o,
                     char *scratch)
{
    const int64_t rows = (int64_t)g->batch * g->aim_blocks * g->aim[0], threads = device->threads;
    char *memory = scratch + g->weights_bytes;
    o->packed = scratch;
#pragma omp parallel num_threads(device->threads)
    {
#pragma omp for schedule(static)
        for (int32_t b = 0; b < g->aim_blocks; b++)
            pack_block(g, b, weights, scratch);
#pragma omp for schedule(static)
        for (int64_t share = 0; share < threads; share++) {
            struct lines lines;
            lines_begin(&lines, g, o->source, memory + (size_t)share * g->chunk_bytes);
            for (int64_t i = rows * share / threads; i < rows * (share + 1) / threads; i++) {
                const int64_t plane = i / g->aim[0];
                aim_row(&lines, o, (int32_t)(plane / g->aim_blocks), (int32_t)(plane % g->aim_blocks),
                        (int32_t)(i % g->aim[0]));
            }
        }
    }
}

cvy_status cpu_grouped_conv2d_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    struct operands o = {.source = in[0], .bias = in[2], .residual = in[3], .aim = out[0]};
    run_rows(device, plan->state, in[1], &o, scratch);
    return CVY_OK;
}

cvy_status cpu_grouped_conv2d_bwd_data_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                           void *const *out, void *scratch)
{
    struct operands o = {.source = in[1], .aim = out[0]};
    run_rows(device, plan->state, in[0], &o, scratch);
    return CVY_OK;
}

/* ---- the gradient of the weights ---- */

/* Rows `first` up to `end` of dy, of one block of one image. */
static void add_band(struct lines *lines, const char *dy, int32_t image, int32_t block, int32_t first, int32_t end,
                     float *sums)
{
    const struct grouped *g = lines->g;
    const size_t row_bytes = (size_t)g->aim[1] * (size_t)g->loops->lanes * g->element;
    char *aims = lines->memory + (size_t)g->slots * (size_t)g->lines_of_row * g->line_bytes;
    const struct phase *all = &g->phases[0];
    struct cpu_grouped_gradient band = {.steps = g->steps + g->first_step[block],
                                        .runs = all->runs,
                                        .step_count = grouped_steps(g, block),
                                        .run_count = all->run_count,
                                        .taps = all->taps,
                                        .window_rows = g->kernel[0],
                                        .line_bytes = g->line_bytes,
                                        .columns = g->aim[1],
                                        .sums = sums,
                                        .whole = g->whole};
    int32_t first_source, last_source;
    grouped_span(g, block, &first_source, &last_source);
    for (int32_t at = first; at < end; at++) {
        const int64_t row = ((int64_t)image * g->aim_blocks + block) * g->aim[0] + at;
        char *aim = aims + (size_t)(at - first) * g->aim_line_bytes;
        int32_t from;
        g->loops->aim_line(&(struct cpu_grouped_line){
            .to = aim, .from = dy + (size_t)row * row_bytes, .columns = g->aim[1], .shift = CPU_GROUPED_MARGIN});
        for (int32_t r = 0; r < g->kernel[0]; r++)
            if (source_row(g, at, r, &from)) {
                const int32_t n = band.pairs[r]++;
                band.source[r][n] = lines_of(lines, image, block, from);
                band.aim[r][n] = aim;
            }
    }
    const size_t pixel = (size_t)g->loops->lanes * g->element;
    const int64_t plane = (int64_t)image * g->aim_blocks + block;
    band.ahead[0] = rows_ahead(lines->source, (int64_t)g->batch * g->source_blocks,
                               (int64_t)image * g->source_blocks + first_source, g->source,
                               (int64_t)end * g->stride[0] + g->kernel[0] - g->stride[0] - g->pad[0],
                               (int64_t)g->band * g->stride[0], pixel);
    band.ahead[1] = rows_ahead(dy, (int64_t)g->batch * g->aim_blocks, plane, g->aim, end, g->band, pixel);
    g->loops->gradient(&band);
}

/* The sums of one piece of the batch for one block. */
static void add_piece(struct lines *lines, const char *dy, int32_t piece, int32_t block, float *sums)
{
    const struct grouped *g = lines->g;
    const size_t taps = (size_t)g->kernel[0] * (size_t)g->kernel[1];
    memset(sums, 0, (size_t)grouped_steps(g, block) * taps * grouped_vector_bytes(g));
    const int64_t begin = (int64_t)g->batch * piece / g->pieces, end = (int64_t)g->batch * (piece + 1) / g->pieces;
    for (int64_t image = begin; image < end; image++)
        for (int32_t at = 0; at < g->aim[0]; at += g->band)
            add_band(lines, dy, (int32_t)image, block, at, at + g->band < g->aim[0] ? at + g->band : g->aim[0], sums);
}

/* The sums of all pieces into the gradient, in the order of the pieces. */
static void fold_block(const struct grouped *g, int32_t block, const char *sums, float *gradient)
{
    const struct phase *all = &g->phases[0];
    const float *from = (const float *)(const void *)(sums + packed_at(g, block, all, 0));
    const size_t piece_floats = g->weights_bytes / sizeof(float);
    const int32_t lanes = g->loops->lanes, bits = g->loops->pairs ? 2 : 1;
    for (int32_t row = 0; row < g->kernel[0]; row++)
        for (int32_t i = g->first_step[block]; i < g->first_step[block + 1]; i++)
            for (int32_t t = 0; t < all->taps; t++, from += lanes)
                for (int32_t lane = 0; lane < lanes; lane++) {
                    if (!(g->steps[i].lane_mask >> lane * bits & 1))
                        continue;
                    double total = 0;
                    for (int32_t piece = 0; piece < g->pieces; piece++)
                        total += (double)from[(size_t)piece * piece_floats + (size_t)lane];
                    gradient[weight_at(g, (int64_t)block * lanes + lane, g->steps[i].channel, row, all->tap[t])] =
                        (float)total;
                }
}

cvy_status cpu_grouped_conv2d_bwd_weights_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                              void *const *out, void *scratch)
{
    const struct grouped *g = plan->state;
    const int64_t tasks = (int64_t)g->pieces * g->aim_blocks, threads = device->threads;
    char *sums = scratch, *memory = sums + g->weights_bytes * (size_t)g->pieces;
#pragma omp parallel num_threads(device->threads)
    {
#pragma omp for schedule(static)
        for (int64_t share = 0; share < threads; share++) {
            struct lines lines;
            lines_begin(&lines, g, in[0], memory + (size_t)share * g->chunk_bytes);
            for (int64_t i = tasks * share / threads; i < tasks * (share + 1) / threads; i++) {
                const int32_t piece = (int32_t)(i / g->aim_blocks), block = (int32_t)(i % g->aim_blocks);
                char *to = sums + (size_t)piece * g->weights_bytes + packed_at(g, block, &g->phases[0], 0);
                add_piece(&lines, in[1], piece, block, (float *)(void *)to);
            }
        }
#pragma omp for schedule(static)
        for (int32_t b = 0; b < g->aim_blocks; b++)
            fold_block(g, b, sums, out[0]);
    }
    return CVY_OK;
}
