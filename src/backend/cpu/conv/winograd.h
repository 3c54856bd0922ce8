/* Convolutions by Winograd's algorithm in fp32: what prepare() computes and run() reads. Explained in winograd.c. */
#ifndef CVY_BACKEND_CPU_CONV_WINOGRAD_H
#define CVY_BACKEND_CPU_CONV_WINOGRAD_H

#include "backend/cpu/conv/places.h"
#include "backend/cpu/conv/winograd_loops.h"
#include "backend/cpu/cpu.h"

/* Tiles of one convolution: rows of them, those of all images one after the other. */
struct winograd {
    const struct cpu_winograd_loops *loops;
    enum winograd_form form;
    int32_t frequencies;
    int32_t source[2], aim[2];                 /* rows and columns of the images */
    int32_t pad[2];                            /* the first tile reads the source from (-pad[0], -pad[1]) on */
    int32_t source_blocks, aim_blocks, panels; /* panels: of the aim's channels */
    int32_t tile_rows, tile_columns;           /* of an image */
    int64_t rows;                              /* of tiles, of all images */
    int32_t chunk_rows;                        /* that are worked on at a time */
    int32_t chunk_tiles;
    size_t source_plane, aim_plane; /* floats from one frequency of a chunk to the next */
    enum cvy_activation activation;
};

/* CVY_UNAVAILABLE with a sentence where the algorithm does not fit the convolution, whose windows are to have `stride`,
 * or is not to be used there. `least`: the setting from which on it is used. */
CVY_CHECKED cvy_status winograd_expect(const struct cpu_device *device, const struct cvy_op_desc *desc, int32_t stride,
                                       enum cpu_winograd least, struct cvy_kernel_plan *plan);
/* Tiles for outputs as large as `aim`, which read `source`. Chunks are left to winograd_cut. */
struct winograd winograd_of(enum winograd_form form, const struct cvy_tensor *source, const struct cvy_tensor *aim);
/* Chunks whose numbers take about `bytes`: source_tile and aim_tile floats of a frequency for each tile.
 * CVY_UNAVAILABLE with a sentence where a single row of tiles or the weights would take far too much. */
CVY_CHECKED cvy_status winograd_cut(struct winograd *s, size_t bytes, size_t source_tile, size_t aim_tile);

/* What the plan shows. */
void winograd_name(const struct winograd *s, struct cvy_kernel_plan *plan);

/* One row of tiles of a chunk. */
struct winograd_row {
    int64_t image;
    int32_t row;  /* of the image's tiles */
    int32_t tile; /* of the chunk, the first one */
};
static inline struct winograd_row winograd_row_at(const struct winograd *s, int64_t first, int32_t row)
{
    return (struct winograd_row){.image = (first + row) / s->tile_rows,
                                 .row = (int32_t)((first + row) % s->tile_rows),
                                 .tile = row * s->tile_columns};
}

/* Where in a frequency the numbers of a tile and a block of channels begin: for each `group` channels, for each tile of
 * the chunk those of the group. */
static inline size_t winograd_place(const struct winograd *s, size_t group, const struct winograd_row *row,
                                    int32_t block)
{
    const size_t channel = (size_t)(block * s->loops->lanes);
    return channel / group * group * (size_t)s->chunk_tiles + (size_t)row->tile * group + channel % group;
}
/* A row's tiles of the source, with the pixels around them, and of the aim. */
static inline struct cpu_winograd_tiles winograd_source_tiles(const struct winograd *s, size_t group,
                                                              const struct winograd_row *row)
{
    return (struct cpu_winograd_tiles){.rows = s->source[0],
                                       .columns = s->source[1],
                                       .row = row->row * winograd_step(s->form) - s->pad[0],
                                       .column = -s->pad[1],
                                       .count = s->tile_columns,
                                       .tile = group,
                                       .plane = s->source_plane};
}
static inline struct cpu_winograd_tiles winograd_aim_tiles(const struct winograd *s, const struct winograd_row *row)
{
    return (struct cpu_winograd_tiles){.rows = s->aim[0],
                                       .columns = s->aim[1],
                                       .row = row->row * winograd_outputs(s->form),
                                       .count = s->tile_columns,
                                       .tile = (size_t)s->loops->panel_lanes,
                                       .plane = s->aim_plane};
}

/* Where a block of channels of an image begins. */
static inline size_t winograd_block(const struct winograd *s, const int32_t extent[2], int32_t blocks, int64_t image,
                                    int32_t block)
{
    return (size_t)(image * blocks + block) * (size_t)extent[0] * (size_t)extent[1] * (size_t)s->loops->lanes;
}

#endif
