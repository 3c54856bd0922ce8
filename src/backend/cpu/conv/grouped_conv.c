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

/* Which channels of the source's block of a step the group of a channel of the aim has: [*first, *end) of all, and
 * where the group begins, which may be before them. */
static int64_t tile_channels(const struct grouped *g, int64_t aim_channel, const struct cpu_grouped_step *step,
                             int64_t *first, int64_t *end)
{
    const int64_t block = (int64_t)step->block * g->loops->lanes, past = block + g->loops->lanes;
    const int64_t from = aim_channel / g->aim_group * g->source_group, to = from + g->source_group;
    *first = from > block ? from : block;
    *end = to < past ? to : past;
    return from;
}

/* The tile of one step, a block of the source's channels, and one tap: pairs of channels for each lane. */
static void pack_tile(const struct grouped *g, int32_t block, const struct cpu_grouped_step *step, int32_t row,
                      int32_t tap, const uint16_t *weights, uint16_t *to)
{
    const int32_t lanes = g->loops->lanes;
    memset(to, 0, grouped_vector_bytes(g));
    for (int32_t lane = 0; lane < lanes; lane++) {
        int64_t first, end;
        const int64_t channel = (int64_t)block * lanes + lane, from = tile_channels(g, channel, step, &first, &end);
        for (int64_t s = first; s < end; s++) {
            const int64_t k = s - (int64_t)step->block * lanes;
            to[k / 2 * 2 * lanes + 2 * lane + k % 2] = weights[weight_at(g, channel, (int32_t)(s - from), row, tap)];
        }
    }
}

/* The vector of one step and tap. Lanes that the step does not have stay 0. */
static void pack_vector(const struct grouped *g, int32_t block, const struct cpu_grouped_step *step, int32_t row,
                        int32_t tap, const void *weights, void *to)
{
    const bool pairs = g->loops->pairs;
    if (g->loops->tiles) {
        pack_tile(g, block, step, row, tap, weights, to);
        return;
    }
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

/* packed: where the weights of the first block begin. */
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
    int64_t *held; /* plane * rows + row, or -1 */
    bool *finite;  /* with tiles: no infinity or NaN in any line of the row */
};

static void lines_begin(struct lines *lines, const struct grouped *g, const void *source, char *memory)
{
    lines->g = g;
    lines->source = source;
    lines->memory = memory;
    lines->held = (int64_t *)(void *)(memory + g->held_at);
    lines->finite = (bool *)(memory + g->finite_at);
    memset(memory, 0, g->held_at); /* the padding */
    for (int32_t i = 0; i < g->together * g->slots; i++)
        lines->held[i] = -1;
}

/* The lines of row `row` for block `block` of the aim, made where they are not there yet. *finite becomes false where
 * they are not. */
static const char *lines_of(struct lines *lines, int32_t image, int32_t block, int32_t row, bool *finite)
{
    const struct grouped *g = lines->g;
    const int32_t slot = block % g->together * g->slots + row % g->slots;
    const int64_t name = ((int64_t)image * g->aim_blocks + block) * g->source[0] + row;
    char *memory = lines->memory + (size_t)slot * (size_t)g->lines_of_row * g->line_bytes;
    int32_t first, last;
    if (lines->held[slot] == name) {
        *finite = *finite && lines->finite[slot];
        return memory;
    }
    lines->held[slot] = name;
    lines->finite[slot] = true;
    grouped_span(g, block, &first, &last);
    const struct cpu_grouped_step *steps = g->steps + g->first_step[block];
    const int32_t count = g->loops->permuted_lines ? grouped_steps(g, block) : last - first + 1;
    for (int32_t i = 0; i < count; i++) {
        const int32_t from = g->loops->permuted_lines ? steps[i].block : first + i;
        struct cpu_grouped_line line = {.to = memory + (size_t)i * g->line_bytes,
                                        .from = lines->source + grouped_at(&g->source_at, image, from, row),
                                        .pixel = g->source_at.pixel / g->element,
                                        .columns = g->source[1],
                                        .shift = g->shift,
                                        .phases = g->line_phases,
                                        .phase_places = g->phase_places,
                                        .step = steps + i,
                                        .finite = true};
        g->loops->line(&line);
        lines->finite[slot] = lines->finite[slot] && line.finite;
    }
    *finite = *finite && lines->finite[slot];
    return memory;
}

/* ---- forward and the gradient of the data ---- */

struct operands {
    const void *source, *weights, *residual;
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

/* What one of `blocks` blocks that all need these rows has to fetch of them. */
static struct cpu_grouped_ahead share_ahead(struct cpu_grouped_ahead all, int32_t block, int32_t blocks)
{
    const size_t bytes = (size_t)(all.end - all.at);
    return (struct cpu_grouped_ahead){all.at + bytes * (size_t)block / (size_t)blocks,
                                      all.at + bytes * ((size_t)block + 1) / (size_t)blocks};
}

/* The rows of the source that the next row of the aim will be the first to need. */
static void prefetch_next(const struct lines *lines, int32_t image, int32_t block, int32_t at,
                          struct cpu_grouped_row *row)
{
    const struct grouped *g = lines->g;
    int32_t first_block, last_block, first = at * g->stride[0] + g->kernel[0] - g->pad[0], count = g->stride[0];
    grouped_span(g, block, &first_block, &last_block);
    if (!grouped_is_forward(g)) {
        first = (at + 1 + g->pad[0]) / g->stride[0];
        count = (at + 1 + g->pad[0]) % g->stride[0] == 0;
    }
    if (g->by_rows)
        row->ahead =
            share_ahead(rows_ahead(lines->source, g->batch, image, g->source, first, count, g->source_at.pixel), block,
                        g->aim_blocks);
    else
        row->ahead =
            rows_ahead(lines->source, (int64_t)g->batch * g->source_blocks,
                       (int64_t)image * g->source_blocks + first_block, g->source, first, count, g->source_at.pixel);
    const size_t bytes = (size_t)(row->ahead.end - row->ahead.at);
    const size_t iterations = (size_t)row->rows * (size_t)row->step_count;
    row->ahead_step = bytes / (size_t)g->aim[1];
    if (iterations)
        row->ahead_lines = (int32_t)((row->ahead_step * (size_t)g->loops->tile / 64 + iterations - 1) / iterations);
}

/* The weights of this block for the vectors that take a row with infinities, in a thread's own memory. */
static const char *pack_exact(const struct lines *lines, const struct operands *o, int32_t block)
{
    const struct grouped *exact = lines->g->exact;
    char *packed = lines->memory + lines->g->exact_at - packed_at(exact, block, &exact->phases[0], 0);
    pack_block(exact, block, o->weights, packed);
    return packed;
}

static void aim_row(struct lines *lines, const struct operands *o, int32_t image, int32_t block, int32_t at)
{
    const struct grouped *g = lines->g;
    const size_t pixel = g->aim_at.pixel, offset = grouped_at(&g->aim_at, image, block, at);
    struct cpu_grouped_row row = {.line_bytes = g->line_bytes,
                                  .column_step =
                                      pixel / g->element * (grouped_is_forward(g) ? 1 : (size_t)g->stride[1]),
                                  .bias = o->bias ? o->bias + (size_t)block * (size_t)g->loops->lanes : NULL,
                                  .activation = g->activation};
    int32_t window_row[CPU_GROUPED_TAPS], from;
    bool finite = true;
    for (int32_t r = 0; r < g->kernel[0]; r++)
        if (source_row(g, at, r, &from)) {
            window_row[row.rows] = r;
            row.line[row.rows++] = lines_of(lines, image, block, from, &finite);
        }
    const bool exactly = g->exact && !finite;
    const char *packed = exactly ? pack_exact(lines, o, block) : o->packed;
    g = exactly ? g->exact : g;
    row.steps = g->steps + g->first_step[block];
    row.step_count = grouped_steps(g, block);
    row.whole = g->whole;
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
            row.weights[i] = packed + packed_at(g, block, phase, window_row[i]);
        g->loops->row(&row);
    }
}

/* All rows of all blocks of all images, in equal shares. */
static void run_rows(const cvy_device *device, const struct grouped *g, const void *weights, struct operands *o,
                     char *scratch)
{
    const int64_t rows = (int64_t)g->batch * g->aim_blocks * g->aim[0], threads = device->threads;
    char *memory = scratch + g->weights_bytes;
    o->weights = weights;
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
            if (g->loops->begin)
                g->loops->begin();
            for (int64_t i = rows * share / threads; i < rows * (share + 1) / threads; i++) {
                const int64_t plane = g->by_rows ? i / g->aim_blocks : i / g->aim[0];
                if (g->by_rows)
                    aim_row(&lines, o, (int32_t)(plane / g->aim[0]), (int32_t)(i % g->aim_blocks),
                            (int32_t)(plane % g->aim[0]));
                else
                    aim_row(&lines, o, (int32_t)(plane / g->aim_blocks), (int32_t)(plane % g->aim_blocks),
                            (int32_t)(i % g->aim[0]));
            }
            if (g->loops->end)
                g->loops->end();
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
    char *aims = lines->memory + g->lines_bytes;
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
                                        .whole = g->whole,
                                        .channel_bytes =
                                            (size_t)g->line_phases * (size_t)g->phase_places * g->loops->line_element};
    int32_t first_source, last_source;
    grouped_span(g, block, &first_source, &last_source);
    for (int32_t at = first; at < end; at++) {
        char *aim = aims + (size_t)(at - first) * g->aim_line_bytes;
        int32_t from;
        bool finite = true; /* every number is taken */
        g->loops->aim_line(&(struct cpu_grouped_line){.to = aim,
                                                      .from = dy + grouped_at(&g->aim_at, image, block, at),
                                                      .pixel = g->aim_at.pixel / g->element,
                                                      .columns = g->aim[1],
                                                      .shift = CPU_GROUPED_MARGIN});
        for (int32_t r = 0; r < g->kernel[0]; r++)
            if (source_row(g, at, r, &from)) {
                const int32_t n = band.pairs[r]++;
                band.source[r][n] = lines_of(lines, image, block, from, &finite);
                band.aim[r][n] = aim;
            }
    }
    if (!g->by_rows) {
        band.ahead[0] = rows_ahead(lines->source, (int64_t)g->batch * g->source_blocks,
                                   (int64_t)image * g->source_blocks + first_source, g->source,
                                   (int64_t)end * g->stride[0] + g->kernel[0] - g->stride[0] - g->pad[0],
                                   (int64_t)g->band * g->stride[0], g->source_at.pixel);
        band.ahead[1] = rows_ahead(dy, (int64_t)g->batch * g->aim_blocks, (int64_t)image * g->aim_blocks + block,
                                   g->aim, end, g->band, g->aim_at.pixel);
    }
    g->loops->gradient(&band);
}

/* The sums of one piece of the batch for some blocks, which start at `sums`. */
static void add_piece(struct lines *lines, const char *dy, int32_t piece, int32_t first_block, char *sums)
{
    const struct grouped *g = lines->g;
    const int32_t rest = g->aim_blocks - first_block;
    const int32_t end_block = first_block + (rest < g->together ? rest : g->together);
    const size_t start = packed_at(g, first_block, &g->phases[0], 0);
    const size_t steps = (size_t)(g->first_step[end_block] - g->first_step[first_block]);
    const int64_t begin = (int64_t)g->batch * piece / g->pieces, end = (int64_t)g->batch * (piece + 1) / g->pieces;
    memset(sums, 0, steps * (size_t)g->kernel[0] * (size_t)g->kernel[1] * grouped_vector_bytes(g));
    for (int64_t image = begin; image < end; image++)
        for (int32_t at = 0; at < g->aim[0]; at += g->band)
            for (int32_t block = first_block; block < end_block; block++)
                add_band(lines, dy, (int32_t)image, block, at, at + g->band < g->aim[0] ? at + g->band : g->aim[0],
                         (float *)(void *)(sums + (packed_at(g, block, &g->phases[0], 0) - start)));
}

/* One element of the gradient: its sums of all pieces, in their order. */
static float fold(const struct grouped *g, const float *from)
{
    const size_t piece_floats = g->weights_bytes / sizeof(float);
    double total = 0;
    for (int32_t piece = 0; piece < g->pieces; piece++)
        total += (double)from[(size_t)piece * piece_floats];
    return (float)total;
}

/* The tile of one step and tap: sums[channel of the source's block][lane], those within a group. */
static void fold_tile(const struct grouped *g, int32_t block, const struct cpu_grouped_step *step, int32_t row,
                      int32_t tap, const float *sums, float *gradient)
{
    const int32_t lanes = g->loops->lanes;
    for (int32_t lane = 0; lane < lanes; lane++) {
        int64_t first, end;
        const int64_t channel = (int64_t)block * lanes + lane, from = tile_channels(g, channel, step, &first, &end);
        for (int64_t s = first; s < end; s++)
            gradient[weight_at(g, channel, (int32_t)(s - from), row, tap)] =
                fold(g, sums + (s - (int64_t)step->block * lanes) * lanes + lane);
    }
}

/* The vector of one step and tap: sums[lane], of those that take part. */
static void fold_vector(const struct grouped *g, int32_t block, const struct cpu_grouped_step *step, int32_t row,
                        int32_t tap, const float *sums, float *gradient)
{
    const int32_t lanes = g->loops->lanes, bits = g->loops->pairs ? 2 : 1;
    for (int32_t lane = 0; lane < lanes; lane++)
        if (step->lane_mask >> lane * bits & 1)
            gradient[weight_at(g, (int64_t)block * lanes + lane, step->channel, row, tap)] = fold(g, sums + lane);
}

/* The sums of all pieces into the gradient. */
static void fold_block(const struct grouped *g, int32_t block, const char *sums, float *gradient)
{
    const struct phase *all = &g->phases[0];
    const float *from = (const float *)(const void *)(sums + packed_at(g, block, all, 0));
    for (int32_t row = 0; row < g->kernel[0]; row++)
        for (int32_t i = g->first_step[block]; i < g->first_step[block + 1]; i++)
            for (int32_t t = 0; t < all->taps; t++, from += grouped_vector_bytes(g) / sizeof(float)) {
                if (g->loops->tiles)
                    fold_tile(g, block, &g->steps[i], row, all->tap[t], from, gradient);
                else
                    fold_vector(g, block, &g->steps[i], row, all->tap[t], from, gradient);
            }
}

cvy_status cpu_grouped_conv2d_bwd_weights_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                              void *const *out, void *scratch)
{
    const struct grouped *g = plan->state;
    const int32_t shares = (g->aim_blocks + g->together - 1) / g->together;
    const int64_t tasks = (int64_t)g->pieces * shares, threads = device->threads;
    char *sums = scratch, *memory = sums + g->weights_bytes * (size_t)g->pieces;
#pragma omp parallel num_threads(device->threads)
    {
#pragma omp for schedule(static)
        for (int64_t share = 0; share < threads; share++) {
            struct lines lines;
            lines_begin(&lines, g, in[0], memory + (size_t)share * g->chunk_bytes);
            if (g->loops->begin)
                g->loops->begin();
            for (int64_t i = tasks * share / threads; i < tasks * (share + 1) / threads; i++) {
                const int32_t piece = (int32_t)(i / shares), block = (int32_t)(i % shares) * g->together;
                char *to = sums + (size_t)piece * g->weights_bytes + packed_at(g, block, &g->phases[0], 0);
                add_piece(&lines, in[1], piece, block, to);
            }
            if (g->loops->end)
                g->loops->end();
        }
#pragma omp for schedule(static)
        for (int32_t b = 0; b < g->aim_blocks; b++)
            fold_block(g, b, sums, out[0]);
    }
    return CVY_OK;
}
