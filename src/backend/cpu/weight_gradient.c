/* Weight gradients of convolutions whose images are bf16:
 *
 *     dw[k][c][r][s] = sum over images n and output pixels (p, q) of dy[n][k][p][q] * x[n][c][h(p, r)][w(q, s)]
 *
 * with h(p, r) = p * stride + r * dilation - pad, w likewise. For each tap (r, s) that is a product of two matrices
 * whose sum runs over all pixels of all images. One operand stands in the lanes of vectors, 16 channels each, the other
 * is multiplied in number by number ("rows"). Both are packed into units (weight_gradient.h) chunk by chunk: a chunk is
 * some rows of pixels of one image or some whole small images, as much as the caches hold.
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
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/weight_gradient.h"
#include "base/memory.h"
#include "base/system.h"

#define CHUNK_UNITS  128                /* of a sum: operands of a tile fit into a first-level cache of 32 KiB */
#define PANEL_BLOCKS 16                 /* of 16 channels at most, on both sides of a panel */
#define PANEL_FLOATS 81920              /* of the sums of a panel: they stay in a second-level cache of 1 MiB */
#define PANEL_LEAST  16                 /* blocks times blocks: narrower panels repeat too much packing */
#define TASKS        6                  /* for each thread, so that none waits long for the last one */
#define MOST_PIECES  16                 /* of the sum over the images, */
#define PIECE_CHUNKS 4                  /* not shorter than this, */
#define PIECES_BYTES ((size_t)4 << 20)  /* and with sums of so many bytes together */
#define PACKED_BYTES ((size_t)16 << 20) /* of a task: what is wider is refused */
#define MAX_EXTENT   (INT32_MAX / 4)    /* of images and windows, so that sums of them fit 32 bits */

/* One side of the product. */
struct side {
    int32_t block;                      /* channels side by side in memory */
    int64_t channels;                   /* with the taps that stand beside them: numbers of a pixel */
    int64_t image_stride, block_stride; /* elements; image_stride: from the first image of a unit to that of the next */
    int64_t second;                     /* from the first image of a unit to its second, 0: units hold one image */
    int32_t blocks;                     /* units of 16 that hold them */
    int32_t panel;                      /* blocks of a panel */
    int32_t panels;
    size_t image_units, block_units; /* packed: of one image of a chunk, and of a block of 16 */
};

struct weight_gradient {
    const struct cpu_weight_gradient_loops *loops;
    struct side x, dy;
    bool x_in_slots;       /* x is plain, and packed channel by channel */
    bool x_in_rows;        /* x is the row operand, dy in the lanes; else the other way round */
    int64_t batch, pixels; /* pixels: of an image cut into rows of our own, else 0 */
    int32_t height, width, out_height, out_width;
    int32_t kernel[2], stride[2], dilation[2], pad[2];
    int32_t fold;                     /* taps s that stand beside the channels of x: 1 or all */
    int32_t group;                    /* pixels of an image in a unit */
    int32_t phases;                   /* remainders of rows of x by the stride that occur */
    int32_t row_units;                /* units of a row */
    int32_t chunk_rows, chunk_images; /* of dy */
    int32_t x_rows;                   /* of x in one phase of a chunk */
    int64_t image_chunks, chunks;     /* chunks of an image; all of them */
    int64_t pieces;
    size_t panel_floats;
    size_t lane_block, row_block; /* bytes of a packed block of 16 channels */
    size_t lane_bytes, row_bytes; /* of a thread: the lane operand of a tile, and the row operand of a chunk */
    size_t thread_bytes;          /* both, and sums where there is one piece */
};

/* ---- planning ---- */

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int32_t taps(const struct weight_gradient *s)
{
    return s->kernel[0] * s->kernel[1] / s->fold;
}

static struct side side_of(const struct cvy_tensor *tensor, int32_t fold)
{
    const int32_t block = cpu_block(&tensor->layout);
    const int64_t *dim = tensor->shape.dim, pixels = dim[2] * dim[3];
    return (struct side){.block = block,
                         .channels = dim[1] * fold,
                         .image_stride = dim[1] * pixels,
                         .block_stride = pixels * block,
                         .blocks = (int32_t)divide_up(dim[1] * fold, CPU_CHANNELS)};
}

static bool is_matrix_product(const struct cvy_conv2d_attr *attr)
{
    bool is = true;
    for (int i = 0; i < 2; i++)
        is = is && attr->kernel[i] == 1 && attr->stride[i] == 1 && attr->pad[2 * i] == 0 && attr->pad[2 * i + 1] == 0;
    return is;
}

/* Rows of a convenient length for the pixels of an image: even, and all about the same. */
static void cut_rows(struct weight_gradient *s)
{
    const int32_t group = s->group;
    s->pixels = (int64_t)s->height * s->width;
    const int64_t rows = divide_up(s->pixels, CHUNK_UNITS * group);
    s->width = s->out_width = (int32_t)(divide_up(divide_up(s->pixels, rows), group) * group);
    s->height = s->out_height = (int32_t)divide_up(s->pixels, s->width);
}

/* Units that hold a pixel of two images instead of two pixels of one: where rows of an odd length would leave much of
 * them empty, and all images have a partner. */
static void pair_images(struct weight_gradient *s, bool rows_matter)
{
    const int64_t pixels = rows_matter ? s->out_width : (int64_t)s->out_height * s->out_width;
    s->group = s->loops->group;
    if (s->group == 1 || s->x_in_rows || s->dy.block == 1 || s->batch % 2 || pixels % 2 == 0 || pixels > 32)
        return;
    s->group = 1;
    s->batch /= 2;
    s->x.second = s->x.image_stride;
    s->dy.second = s->dy.image_stride;
    s->x.image_stride *= 2;
    s->dy.image_stride *= 2;
}

static void cut_chunks(struct weight_gradient *s)
{
    s->row_units = (int32_t)divide_up(s->out_width, s->group);
    const int64_t rows = s->row_units < CHUNK_UNITS ? CHUNK_UNITS / s->row_units : 1;
    s->image_chunks = divide_up(s->out_height, rows);
    s->chunk_rows = (int32_t)divide_up(s->out_height, s->image_chunks);
    s->image_chunks = divide_up(s->out_height, s->chunk_rows);
    const int64_t images = s->image_chunks == 1 ? CHUNK_UNITS / ((int64_t)s->row_units * s->chunk_rows) : 1;
    s->chunk_images = (int32_t)(images < 1 ? 1 : images < s->batch ? images : s->batch);
    s->chunks = s->image_chunks * divide_up(s->batch, s->chunk_images);
    s->phases = 1;
    s->x_rows = s->chunk_rows + (s->kernel[0] - 1) * s->dilation[0] / s->stride[0];
    for (int32_t r = 0; r < s->kernel[0]; r++)
        if (r * s->dilation[0] % s->stride[0] >= s->phases)
            s->phases = r * s->dilation[0] % s->stride[0] + 1;
}

static void cut_side(struct side *side, int32_t panel)
{
    side->panel = panel;
    side->panels = (int32_t)divide_up(side->blocks, panel);
}

/* The larger side gets narrower panels. */
static void halve_panels(struct weight_gradient *s)
{
    struct side *larger = s->x.panel > s->dy.panel ? &s->x : &s->dy;
    cut_side(larger, (larger->panel + 1) / 2);
}

/* The sums depend on the pieces, so these depend on the convolution alone; panels may fit the threads. */
static void cut_panels(struct weight_gradient *s, int threads)
{
    const size_t block = (size_t)CPU_CHANNELS * CPU_CHANNELS * (size_t)taps(s);
    const size_t bytes = block * sizeof(float) * (size_t)s->x.blocks * (size_t)s->dy.blocks;
    const int64_t room = (int64_t)(PIECES_BYTES / bytes), enough = s->chunks / PIECE_CHUNKS;
    s->pieces = room < MOST_PIECES ? room : MOST_PIECES;
    s->pieces = s->pieces < enough ? s->pieces : enough;
    s->pieces = s->pieces > 1 ? s->pieces : 1;
    cut_side(&s->x, s->x.blocks < PANEL_BLOCKS ? s->x.blocks : PANEL_BLOCKS);
    cut_side(&s->dy, s->dy.blocks < PANEL_BLOCKS ? s->dy.blocks : PANEL_BLOCKS);
    for (;;) {
        const int64_t tasks = (int64_t)s->x.panels * s->dy.panels * s->pieces;
        const int32_t blocks = s->x.panel * s->dy.panel;
        s->panel_floats = block * (size_t)blocks;
        if (blocks == 1 ||
            (s->panel_floats <= PANEL_FLOATS && (blocks <= PANEL_LEAST || tasks >= (int64_t)TASKS * threads)))
            return;
        halve_panels(s);
    }
}

static cvy_status count_bytes(struct weight_gradient *s)
{
    const int32_t columns = s->kernel[1] / s->fold;
    s->dy.image_units = (size_t)s->chunk_rows * (size_t)s->row_units;
    s->x.image_units = (size_t)s->x_rows * (size_t)s->row_units;
    s->dy.block_units = s->dy.image_units * (size_t)s->chunk_images;
    s->x.block_units = s->x.image_units * (size_t)s->chunk_images * (size_t)s->phases;
    s->lane_block = (s->x_in_rows ? s->dy : s->x).block_units * CPU_UNIT;
    s->row_block = s->x_in_rows ? s->x.block_units * CPU_UNIT * (size_t)columns : s->dy.block_units * CPU_UNIT;
    const double rows = (double)s->x.block_units * CPU_UNIT * columns * s->x.panel; /* as if x were in rows */
    if (rows > PACKED_BYTES)
        return cvy_fail(CVY_UNAVAILABLE, "a row of windows is too wide: %.0f MiB", rows / 0x1p20);
    s->lane_bytes = s->lane_block * (size_t)s->loops->tile_blocks;
    s->row_bytes = s->row_block * (size_t)(s->x_in_rows ? s->x : s->dy).panel;
    s->thread_bytes = s->lane_bytes + s->row_bytes + (s->pieces == 1 ? s->panel_floats * sizeof(float) : 0);
    return CVY_OK;
}

static const struct cpu_weight_gradient_loops *loops_here(void)
{
    static const struct cpu_weight_gradient_loops *const tables[] = {
        [CVY_ISA_BASE] = &cpu_weight_gradient_base,
        [CVY_ISA_AVX2] = &cpu_weight_gradient_avx2,
        [CVY_ISA_AVX512] = &cpu_weight_gradient_avx512,
        [CVY_ISA_AVX512_BF16] = &cpu_weight_gradient_avx512_bf16,
    };
    return tables[cvy_cpu_isa()];
}

static cvy_status check_case(const struct cvy_op_desc *desc)
{
    const struct cvy_tensor *x = &desc->in[0], *dy = &desc->in[1];
    CVY_TRY(cpu_expect_f32(desc, 3U, 0));
    if (x->dtype != CVY_BF16 || dy->dtype != CVY_BF16)
        return cvy_fail(CVY_UNAVAILABLE, "images are bf16 here, not %s",
                        cvy_dtype_name(x->dtype == CVY_BF16 ? dy->dtype : x->dtype));
    if (desc->attr.conv2d.groups != 1)
        return cvy_fail(CVY_UNAVAILABLE, "%d groups", (int)desc->attr.conv2d.groups);
    for (int d = 1; d < 4; d++)
        if (x->shape.dim[d] > MAX_EXTENT || dy->shape.dim[d] > MAX_EXTENT)
            return cvy_fail(CVY_UNAVAILABLE, "images or windows of more than %d pixels", MAX_EXTENT);
    return CVY_OK;
}

cvy_status cpu_weight_gradient_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cvy_conv2d_attr *attr = &desc->attr.conv2d;
    struct cvy_tensor *x = &desc->in[0], *dy = &desc->in[1];

    plan->quiet = x->dtype != CVY_BF16 || attr->groups != 1;
    CVY_TRY(check_case(desc));
    x->layout = cpu_image_layout(cpu_of(device), x->shape.dim[1]);
    dy->layout = cpu_image_layout(cpu_of(device), dy->shape.dim[1]);
    desc->out[0].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    struct weight_gradient s = {.loops = loops_here(),
                                .x_in_slots = x->layout.kind == CVY_LAYOUT_PLAIN,
                                .x_in_rows = x->layout.kind == CVY_LAYOUT_PLAIN,
                                .batch = x->shape.dim[0],
                                .height = (int32_t)x->shape.dim[2],
                                .width = (int32_t)x->shape.dim[3],
                                .out_height = (int32_t)dy->shape.dim[2],
                                .out_width = (int32_t)dy->shape.dim[3]};
    for (int i = 0; i < 2; i++) {
        s.kernel[i] = attr->kernel[i];
        s.stride[i] = attr->stride[i];
        s.dilation[i] = attr->dilation[i];
        s.pad[i] = attr->pad[2 * i];
    }
    s.fold = s.x_in_rows ? s.kernel[1] : 1;
    s.x = side_of(x, s.fold);
    s.dy = side_of(dy, 1);
    pair_images(&s, !is_matrix_product(attr));
    if (is_matrix_product(attr))
        cut_rows(&s);
    cut_chunks(&s);
    cut_panels(&s, device->threads);
    /* The lane operand is packed when it is needed and stays in the nearest cache: let it be the larger one. */
    s.x_in_rows = s.x_in_rows || (taps(&s) == 1 && s.dy.panel > s.x.panel);
    CVY_TRY(count_bytes(&s));
    plan->scratch_bytes = (size_t)device->threads * s.thread_bytes;
    if (s.pieces > 1)
        plan->scratch_bytes +=
            (size_t)s.pieces * (size_t)s.x.panels * (size_t)s.dy.panels * s.panel_floats * sizeof(float);
    snprintf(plan->implementation, sizeof(plan->implementation), "panels:%s", s.loops->isa);
    return cpu_state(plan, &s, sizeof(s));
}

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
    return image + pixel * side->block;
}

static void pack_dy(const struct weight_gradient *s, const struct chunk *chunk, int32_t block, const void *dy, char *to)
{
    struct cpu_unit_row row = begin_row(s, &s->dy, block);
    row.slot = s->dy.block > 1 ? 0 : block * CPU_CHANNELS;
    for (int32_t i = 0; i < chunk->images; i++)
        for (int32_t p = 0; p < chunk->rows; p++) {
            const int32_t at = chunk->row + p;
            row.from = row_at(&s->dy, dy, chunk->image + i, block, (int64_t)at * s->out_width);
            row.columns = row.pixels = row_pixels(s, at, s->out_width);
            s->loops->pack(to + ((size_t)i * s->dy.image_units + (size_t)p * (size_t)row.units) * CPU_UNIT, &row);
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

/* Number and place of one side's blocks of a panel. */
struct extent {
    int32_t first, blocks;
};

static struct extent extent_of(const struct side *side, int32_t panel)
{
    const int32_t first = panel * side->panel, rest = side->blocks - first;
    return (struct extent){.first = first, .blocks = rest < side->panel ? rest : side->panel};
}

/* Rows of sums that a panel has for the numbers of one side. */
static int32_t sum_rows(const struct side *side, struct extent extent)
{
    const int64_t rest = side->channels - (int64_t)extent.first * CPU_CHANNELS;
    const int64_t rows = rest < (int64_t)extent.blocks * CPU_CHANNELS ? rest : (int64_t)extent.blocks * CPU_CHANNELS;
    return (int32_t)(divide_up(rows, CPU_SUM_ROWS) * CPU_SUM_ROWS);
}

struct panel {
    struct extent x, dy;
    int32_t rows, lane_blocks; /* of sums, for each tap */
};

static struct panel panel_at(const struct weight_gradient *s, int64_t index)
{
    struct panel panel = {.x = extent_of(&s->x, (int32_t)(index % s->x.panels)),
                          .dy = extent_of(&s->dy, (int32_t)(index / s->x.panels))};
    panel.rows = s->x_in_rows ? sum_rows(&s->x, panel.x) : sum_rows(&s->dy, panel.dy);
    panel.lane_blocks = s->x_in_rows ? panel.dy.blocks : panel.x.blocks;
    return panel;
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
    const size_t x_unit = s->x_in_slots ? 4 : CPU_UNIT;
    const size_t dy_at = first * row * CPU_UNIT;
    const size_t x_at =
        (x_units + (size_t)phase * (size_t)s->chunk_images * s->x.image_units + (first + (size_t)shift) * row) * x_unit;
    struct cpu_products products = {.sums = sums,
                                    .pitch = (size_t)panel->lane_blocks * CPU_CHANNELS,
                                    .lanes = work->lanes + (s->x_in_rows ? dy_at : x_at),
                                    .rows = work->rows + (s->x_in_rows ? x_at : dy_at),
                                    .lane_block = s->lane_block,
                                    .row_block = s->row_block,
                                    .lane_segment = (s->x_in_rows ? s->dy : s->x).image_units * CPU_UNIT,
                                    .row_segment =
                                        s->x_in_rows ? s->x.image_units * x_unit : s->dy.image_units * CPU_UNIT,
                                    .row_step = s->x_in_slots ? s->x.block_units * 4 : 4,
                                    .row_unit = s->x_in_slots ? 4 : CPU_UNIT,
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
static void look_ahead(const struct side *side, struct extent extent, const struct chunk *chunk, const void *images,
                       int64_t pixel, int64_t pixels, struct cpu_ahead *ahead)
{
    for (int32_t b = 0; b < extent.blocks; b++)
        for (int32_t i = 0; i < chunk->images; i++) {
            const uint16_t *first = row_at(side, images, chunk->image + i, extent.first + b, pixel);
            for (int64_t at = 0; at <= side->second && ahead->ranges < CPU_RANGES;
                 at += side->second ? side->second : 1)
                ahead->range_list[ahead->ranges++] =
                    (struct cpu_range){.from = (const char *)(first + at),
                                       .lines = (int32_t)divide_up(pixels * side->block * 2, CPU_LINE)};
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
    look_ahead(&s->x, panel->x, &chunk, x, x_row * s->width, (x_past - x_row) * s->width, ahead);
    look_ahead(&s->dy, panel->dy, &chunk, dy, (int64_t)chunk.row * s->out_width, (int64_t)chunk.rows * s->out_width,
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
                      const void *x, const void *dy, char *to)
{
    const int32_t columns = s->kernel[1] / s->fold;

    for (int32_t b = 0; !s->x_in_rows && b < panel->dy.blocks; b++)
        pack_dy(s, chunk, panel->dy.first + b, dy, to + (size_t)b * s->row_block);
    for (int32_t b = 0; s->x_in_rows && b < panel->x.blocks; b++)
        for (int32_t t = 0; t < columns; t++)
            pack_x(s, chunk, panel->x.first + b, t, x,
                   to + (size_t)b * s->row_block + (size_t)t * s->x.block_units * CPU_UNIT);
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
        pack_rows(s, &chunk, panel, x, dy, work->rows);
        for (int32_t b = 0; b < panel->lane_blocks; b += step)
            sum_lanes(s, &chunk, panel, b, panel->lane_blocks - b < step ? panel->lane_blocks - b : step, x, dy, work);
    }
}

/* ---- the result ---- */

/* Where number i of a side begins in dw, which is (K, C, R, S). */
static int64_t place(const struct weight_gradient *s, bool of_x, int64_t i)
{
    const int64_t window = (int64_t)s->kernel[0] * s->kernel[1];
    return of_x ? i / s->fold * window + i % s->fold : i * (s->x.channels / s->fold) * window;
}

/* Add up row `row` of a panel over the pieces, and put it into dw. */
static void write_row(const struct weight_gradient *s, const struct panel *panel, int32_t row, const float *sums,
                      size_t piece_floats, float *dw)
{
    const struct extent rows = s->x_in_rows ? panel->x : panel->dy, lanes = s->x_in_rows ? panel->dy : panel->x;
    const struct side *row_side = s->x_in_rows ? &s->x : &s->dy, *lane_side = s->x_in_rows ? &s->dy : &s->x;
    const int64_t number = (int64_t)rows.first * CPU_CHANNELS + row;
    if (number >= row_side->channels)
        return;
    float *const to = dw + place(s, s->x_in_rows, number);
    for (int32_t b = 0; b < lanes.blocks; b++) {
        const int64_t lane = (int64_t)(lanes.first + b) * CPU_CHANNELS;
        const int64_t rest = lane_side->channels - lane, count = rest < CPU_CHANNELS ? rest : CPU_CHANNELS;
        const int64_t first = place(s, !s->x_in_rows, lane), step = place(s, !s->x_in_rows, lane + 1) - first;
        for (int32_t t = 0; t < taps(s); t++) {
            const float *from = sums + (size_t)t * tap_floats(panel) +
                                ((size_t)row * (size_t)panel->lane_blocks + (size_t)b) * CPU_CHANNELS;
            float total[CPU_CHANNELS];
            memcpy(total, from, sizeof(total));
            for (int64_t piece = 1; piece < s->pieces; piece++)
                for (int l = 0; l < CPU_CHANNELS; l++)
                    total[l] += from[(size_t)piece * piece_floats + (size_t)l];
            if (step == 1)
                memcpy(to + first, total, (size_t)count * sizeof(float));
            else
                for (int64_t l = 0; l < count; l++)
                    to[first + l * step + (int64_t)t * s->fold] = total[l];
        }
    }
}

cvy_status cpu_weight_gradient_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct weight_gradient *s = plan->state;
    const int64_t panels = (int64_t)s->x.panels * s->dy.panels;
    const size_t piece_floats = (size_t)panels * s->panel_floats;
    float *const pieces = (float *)((char *)scratch + (size_t)device->threads * s->thread_bytes);

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
        for (int32_t row = 0; s->pieces == 1 && row < panel.rows; row++)
            write_row(s, &panel, row, work.sums, 0, out[0]);
    }
    if (s->pieces == 1)
        return CVY_OK;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t task = 0; task < panels * CPU_SUM_ROWS; task++) {
        const int64_t index = task / CPU_SUM_ROWS;
        const struct panel panel = panel_at(s, index);
        for (int32_t row = (int32_t)(task % CPU_SUM_ROWS); row < panel.rows; row += CPU_SUM_ROWS)
            write_row(s, &panel, row, pieces + (size_t)index * s->panel_floats, piece_floats, out[0]);
    }
    return CVY_OK;
}
