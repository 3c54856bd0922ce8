/* Planning the gradients of weights: chunks, panels and pieces (weight_gradient.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/conv/weight_gradient_plan.h"
#include "base/system.h"

/* Units of a chunk's sum, so that two blocks of the lane operand and one of the row operand fit into a first-level
 * cache of 32 or 48 KiB: the longer the sum, the less often its tile of sums is read and written. */
#define CHUNK_UNITS  128
#define LONG_UNITS   200
#define LONG_CACHE   (48 << 10)
#define PANEL_BLOCKS 16                 /* of 16 channels at most, on both sides of a panel */
#define PANEL_FLOATS 81920              /* of the sums of a panel: they stay in a second-level cache of 1 MiB */
#define MIN_PANEL    16                 /* blocks times blocks: narrower panels repeat too much packing */
#define TASKS        6                  /* for each thread, so that none waits long for the last one */
#define MAX_PIECES   16                 /* of the sum over the images, */
#define PIECE_CHUNKS 4                  /* not shorter than this, */
#define PIECES_BYTES ((size_t)4 << 20)  /* and with sums of this many bytes together */
#define PACKED_BYTES ((size_t)16 << 20) /* of a task: what is wider is refused */

/* Bytes of a core's first cache of data; 0: unknown. */
static long first_cache_bytes(void)
{
#ifdef _SC_LEVEL1_DCACHE_SIZE
    return sysconf(_SC_LEVEL1_DCACHE_SIZE);
#else
    return 0;
#endif
}

cvy_status cpu_choose_chunks(struct cpu_device *device)
{
    const char *wanted = getenv("CONVOY_CPU_CHUNK");
    const bool automatic = !wanted || !strcmp(wanted, "auto");
    const bool longer = automatic ? first_cache_bytes() >= LONG_CACHE : !strcmp(wanted, "long");

    if (!automatic && !longer && strcmp(wanted, "short") != 0)
        return cvy_fail(CVY_USAGE, "CONVOY_CPU_CHUNK is auto, short or long, not %s", cvy_quote(wanted));
    if (!automatic)
        cpu_add_setting(device, "CONVOY_CPU_CHUNK", wanted);
    device->chunk_units = longer ? LONG_UNITS : CHUNK_UNITS;
    return CVY_OK;
}

static struct side side_of(const struct cvy_tensor *tensor, int32_t fold)
{
    const bool nhwc = tensor->layout.kind == CVY_LAYOUT_NHWC; /* then the channels are a multiple of 16 */
    const int32_t block = nhwc ? CPU_CHANNELS : cpu_block(&tensor->layout);
    const int64_t *dim = tensor->shape.dim, pixels = dim[2] * dim[3];
    return (struct side){.block = block,
                         .pixel = nhwc ? (int32_t)dim[1] : block,
                         .channels = dim[1] * fold,
                         .image_stride = dim[1] * pixels,
                         .block_stride = nhwc ? block : pixels * block,
                         .blocks = (int32_t)divide_up(dim[1] * fold, CPU_CHANNELS)};
}

/* Rows of a convenient length for the pixels of an image: even, and all about the same. */
static void cut_rows(struct weight_gradient *s)
{
    const int32_t group = s->group;
    s->pixels = (int64_t)s->height * s->width;
    const int64_t rows = divide_up(s->pixels, (int64_t)s->chunk_units * group);
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
    const int64_t rows = s->row_units < s->chunk_units ? s->chunk_units / s->row_units : 1;
    s->image_chunks = divide_up(s->out_height, rows);
    s->chunk_rows = (int32_t)divide_up(s->out_height, s->image_chunks);
    s->image_chunks = divide_up(s->out_height, s->chunk_rows);
    const int64_t images = s->image_chunks == 1 ? s->chunk_units / ((int64_t)s->row_units * s->chunk_rows) : 1;
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

/* The sums depend on the pieces, so these depend on the convolution and the first-level cache alone; panels may fit the
 * threads. */
static void cut_panels(struct weight_gradient *s, int threads)
{
    const size_t block = (size_t)CPU_CHANNELS * CPU_CHANNELS * (size_t)taps(s);
    const size_t bytes = block * sizeof(float) * (size_t)s->x.blocks * (size_t)s->dy.blocks;
    const int64_t limit = (int64_t)(PIECES_BYTES / bytes), enough = s->chunks / PIECE_CHUNKS;
    s->pieces = limit < MAX_PIECES ? limit : MAX_PIECES;
    s->pieces = s->pieces < enough ? s->pieces : enough;
    s->pieces = s->pieces > 1 ? s->pieces : 1;
    cut_side(&s->x, s->x.blocks < PANEL_BLOCKS ? s->x.blocks : PANEL_BLOCKS);
    cut_side(&s->dy, s->dy.blocks < PANEL_BLOCKS ? s->dy.blocks : PANEL_BLOCKS);
    for (;;) {
        const int64_t tasks = (int64_t)s->x.panels * s->dy.panels * s->pieces;
        const int32_t blocks = s->x.panel * s->dy.panel;
        s->panel_floats = block * (size_t)blocks;
        if (blocks == 1 ||
            (s->panel_floats <= PANEL_FLOATS && (blocks <= MIN_PANEL || tasks >= (int64_t)TASKS * threads)))
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
    s->row_step = s->x_in_slots ? s->x.block_units * 4 : 4;
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
        [CVY_ISA_AVX2] = CVY_IF_AVX(&cpu_weight_gradient_avx2),
        [CVY_ISA_AVX512] = CVY_IF_AVX(&cpu_weight_gradient_avx512),
        [CVY_ISA_AVX512_BF16] = CVY_IF_AVX(&cpu_weight_gradient_avx512_bf16),
        [CVY_ISA_AMX_BF16] = CVY_IF_AVX(&cpu_weight_gradient_avx512_bf16), /* tiles: tile_gradient.c */
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
        if (x->shape.dim[d] > GRADIENT_MAX_EXTENT || dy->shape.dim[d] > GRADIENT_MAX_EXTENT)
            return cvy_fail(CVY_UNAVAILABLE, "images or windows of more than %d pixels", GRADIENT_MAX_EXTENT);
    return CVY_OK;
}

cvy_status cpu_weight_gradient_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cvy_conv2d_attr *attr = &desc->attr.conv2d;
    struct cvy_tensor *x = &desc->in[0], *dy = &desc->in[1];

    plan->quiet = x->dtype != CVY_BF16 || attr->groups != 1;
    CVY_TRY(cpu_no_norm(desc));
    CVY_TRY(check_case(desc));
    x->layout = cpu_image_layout(cpu_of(device), desc->images, x->shape.dim[1], x->dtype);
    dy->layout = cpu_image_layout(cpu_of(device), desc->images, dy->shape.dim[1], dy->dtype);
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
    s.chunk_units = cpu_of(device)->chunk_units;
    pair_images(&s, !gradient_is_matrix_product(attr));
    if (gradient_is_matrix_product(attr))
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
