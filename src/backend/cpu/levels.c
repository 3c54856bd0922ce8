/* The operations of a feature pyramid besides convolutions: maps of twice the extent, and the maps of several levels as
 * rows of one table.
 *
 * The rows of a level are its map with the channels last: so they are read and written a pixel at a time, whatever the
 * map's layout is. That may be a padded one: convolutions of 24 or 546 outputs want whole blocks of channels. */
#include <string.h>

#include "backend/cpu/cpu.h"

/* ---- nearest neighbour, twice the extent ---- */

struct upsample {
    struct cpu_image small; /* x, or dx */
    size_t height, width;   /* of the small one */
};

static cvy_status upsample_prepare(cvy_device *device, struct cvy_op_desc *desc, const struct cvy_tensor *small,
                                   struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_expect_images(desc, 1U << 0, 1U << 0, 0, 0));
    cpu_agree_blocked(cpu_of(device), desc, 1U << 0, 1U << 0);
    const struct upsample state = {
        .small = cpu_image_of(small), .height = (size_t)small->shape.dim[2], .width = (size_t)small->shape.dim[3]};
    return cpu_state(plan, &state, sizeof(state));
}

/* Each pixel of a row twice; `bytes` is a constant wherever this is called. */
static inline void double_pixels(char *to, const char *from, size_t count, const size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        memcpy(to + 2 * i * bytes, from + i * bytes, bytes);
        memcpy(to + (2 * i + 1) * bytes, from + i * bytes, bytes);
    }
}

static void double_row(char *to, const char *from, size_t count, size_t bytes)
{
    switch (bytes) {
    case 64:
        double_pixels(to, from, count, 64);
        break;
    case 32:
        double_pixels(to, from, count, 32);
        break;
    case 16:
        double_pixels(to, from, count, 16);
        break;
    case 4:
        double_pixels(to, from, count, 4);
        break;
    default:
        double_pixels(to, from, count, 2);
        break;
    }
}

cvy_status cpu_upsample_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return upsample_prepare(device, desc, &desc->in[0], plan);
}

cvy_status cpu_upsample_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                            void *scratch)
{
    (void)scratch;
    const struct upsample *state = plan->state;
    const size_t pixel = (size_t)state->small.block * cvy_dtype_size(state->small.dtype);
    const size_t row = state->width * pixel;
    const int64_t runs = state->small.batch * state->small.blocks;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t r = 0; r < runs; r++) {
        const char *from = (const char *)in[0] + (size_t)r * state->small.run_bytes;
        char *to = (char *)out[0] + 4 * (size_t)r * state->small.run_bytes;
        for (size_t h = 0; h < state->height; h++, from += row, to += 4 * row) {
            double_row(to, from, state->width, pixel);
            memcpy(to + 2 * row, to, 2 * row);
        }
    }
    return CVY_OK;
}

cvy_status cpu_upsample_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return upsample_prepare(device, desc, &desc->out[0], plan);
}

cvy_status cpu_upsample_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    (void)scratch;
    const struct upsample *state = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, state->small.dtype);
    const size_t row = state->width * (size_t)state->small.block * cvy_dtype_size(state->small.dtype);
    const int64_t runs = state->small.batch * state->small.blocks;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t r = 0; r < runs; r++) {
        const char *from = (const char *)in[0] + 4 * (size_t)r * state->small.run_bytes;
        char *to = (char *)out[0] + (size_t)r * state->small.run_bytes;
        for (size_t h = 0; h < state->height; h++, from += 4 * row, to += row)
            loops->sum_2x2(to, from, from + 2 * row, state->width, (size_t)state->small.block);
    }
    return CVY_OK;
}

/* ---- levels as rows ---- */

struct level {
    int64_t pixels;
    size_t block;       /* channels side by side in the map; 0: all of them (NHWC) */
    size_t image_bytes; /* of the map, with its padding */
    size_t first;       /* element of an image's table where its rows begin */
};

struct levels {
    int32_t count;
    int64_t batch;
    size_t channels; /* of every map */
    size_t table;    /* elements of an image's table */
    enum cvy_dtype dtype;
    struct level level[CVY_MAX_MAPS];
};

/* The map keeps a layout that is known here, but the padding of one is only read where the device has it anyway. */
static struct cvy_layout map_layout(const struct cpu_device *device, enum cvy_images images,
                                    const struct cvy_tensor *map)
{
    const enum cvy_layout_kind kind = map->layout.kind;
    if (kind == CVY_LAYOUT_PLAIN || kind == CVY_LAYOUT_NHWC || kind == CVY_LAYOUT_BLOCKED16 ||
        kind == CVY_LAYOUT_BLOCKED8)
        return (struct cvy_layout){.kind = kind};
    return cpu_image_layout(device, images, map->shape.dim[1], map->dtype);
}

static cvy_status levels_prepare(cvy_device *device, struct cvy_op_desc *desc, int32_t count, struct cvy_tensor *maps,
                                 struct cvy_tensor *table, bool to_rows, struct cvy_kernel_plan *plan)
{
    struct levels state = {.count = count,
                           .batch = table->shape.dim[0],
                           .channels = (size_t)maps[0].shape.dim[1],
                           .table = (size_t)(table->shape.dim[1] * table->shape.dim[2]),
                           .dtype = maps[0].dtype};
    const enum cvy_layout_kind of_gradients =
        cpu_prefers_nhwc(cpu_of(device), desc->images, maps[0].dtype) ? CVY_LAYOUT_NHWC : cpu_of(device)->blocked;
    size_t first = 0;
    CVY_TRY(cpu_expect_images(desc, ~0U, ~0U, 0, 0));
    table->layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    for (int32_t i = 0; i < count; i++) {
        struct cvy_tensor one = maps[i];
        one.layout = to_rows ? map_layout(cpu_of(device), desc->images, &maps[i])
                             : (struct cvy_layout){.kind = of_gradients}; /* what convolutions read */
        maps[i].layout = one.layout;
        one.shape.dim[0] = 1;
        state.level[i] =
            (struct level){.pixels = one.shape.dim[2] * one.shape.dim[3],
                           .block = one.layout.kind == CVY_LAYOUT_NHWC ? 0 : (size_t)cpu_block(&one.layout),
                           .image_bytes = cpu_tensor_bytes(device, &one),
                           .first = first};
        if (!state.level[i].image_bytes)
            return cvy_fail(CVY_UNAVAILABLE, "the maps are too large");
        first += state.channels * (size_t)state.level[i].pixels;
    }
    return cpu_state(plan, &state, sizeof(state));
}

enum { LEVEL_PIXELS = 16 }; /* that one task takes: their channels fill some pages, their rows lie side by side */

/* Channels c .. c + block of pixels first .. first + count, between a map of 4 or 2 bytes an element and rows of the
 * same type; `bytes` of an element and `block` are constants wherever this is called. */
static inline void move_block(char *map, char *rows, size_t pixels, size_t channels, size_t c, size_t count,
                              bool to_rows, const size_t block, const size_t bytes)
{
    const size_t width = channels - c < block ? channels - c : block;
    char *in_map = map + c * pixels * bytes; /* the first pixel's; whole blocks lie one after the other */
    char *in_rows = rows + c * bytes;
    for (size_t p = 0; p < count; p++, in_map += block * bytes, in_rows += channels * bytes) {
        if (to_rows && width == block) {
            memcpy(in_rows, in_map, block * bytes);
        } else if (to_rows) {
            memcpy(in_rows, in_map, width * bytes);
        } else if (width == block) {
            memcpy(in_map, in_rows, block * bytes);
        } else { /* oneDNN wants zeros in the padding */
            memcpy(in_map, in_rows, width * bytes);
            memset(in_map + width * bytes, 0, (block - width) * bytes);
        }
    }
}

#define MOVE_BLOCK(block, bytes)                                                                                       \
    for (size_t c = 0; c < channels; c += (block))                                                                     \
    move_block(map, rows, pixels, channels, c, count, to_rows, block, bytes)

/* `count` pixels of one image, from `first` on. */
static void move_pixels(const struct level *level, char *map, char *rows, size_t channels, size_t first, size_t count,
                        bool to_rows, size_t bytes)
{
    const size_t pixels = (size_t)level->pixels;
    if (level->block == 0) {
        char *in_map = map + first * channels * bytes;
        memcpy(to_rows ? rows : in_map, to_rows ? in_map : rows, count * channels * bytes);
        return;
    }
    map += first * level->block * bytes;
    if (level->block == 16 && bytes == 4)
        MOVE_BLOCK(16, 4);
    else if (level->block == 16)
        MOVE_BLOCK(16, 2);
    else if (level->block == 8 && bytes == 4)
        MOVE_BLOCK(8, 4);
    else if (level->block == 8)
        MOVE_BLOCK(8, 2);
    else if (bytes == 4)
        MOVE_BLOCK(1, 4);
    else
        MOVE_BLOCK(1, 2);
}

/* Between the maps and the table of their rows. */
static void move_levels(const cvy_device *device, const struct levels *state, void *const *maps, char *table,
                        bool to_rows)
{
    const size_t bytes = cvy_dtype_size(state->dtype);
#pragma omp parallel num_threads(device->threads)
    for (int32_t i = 0; i < state->count; i++) {
        const struct level *level = &state->level[i];
        const int64_t tasks = (level->pixels + LEVEL_PIXELS - 1) / LEVEL_PIXELS;
        if (!maps[i])
            continue;
#pragma omp for schedule(static) collapse(2) nowait
        for (int64_t n = 0; n < state->batch; n++)
            for (int64_t task = 0; task < tasks; task++) {
                const size_t first = (size_t)task * LEVEL_PIXELS, left = (size_t)level->pixels - first;
                char *map = (char *)maps[i] + (size_t)n * level->image_bytes;
                char *rows = table + ((size_t)n * state->table + level->first + first * state->channels) * bytes;
                move_pixels(level, map, rows, state->channels, first, left < LEVEL_PIXELS ? left : LEVEL_PIXELS,
                            to_rows, bytes);
            }
    }
}

cvy_status cpu_flatten_levels_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return levels_prepare(device, desc, desc->inputs, desc->in, &desc->out[0], true, plan);
}

cvy_status cpu_flatten_levels_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    (void)scratch;
    move_levels(device, plan->state, in, out[0], true);
    return CVY_OK;
}

cvy_status cpu_flatten_levels_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return levels_prepare(device, desc, desc->outputs, desc->out, &desc->in[0], false, plan);
}

cvy_status cpu_flatten_levels_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                      void *const *out, void *scratch)
{
    (void)scratch;
    move_levels(device, plan->state, out, in[0], false);
    return CVY_OK;
}
