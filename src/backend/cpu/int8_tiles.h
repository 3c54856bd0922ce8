/* Integer convolutions by tile products (AMX): how the work is cut (int8_tiles_plan.c), and the loops
 * (int8_tiles.inc). */
#ifndef CVY_BACKEND_CPU_INT8_TILES_H
#define CVY_BACKEND_CPU_INT8_TILES_H

#include "backend/cpu/int8.h"

/* Rows of a tile, bytes of a row, output channels of it, panels that a block is multiplied by in turn: the most there
 * are. */
enum { CPU_TILE_ROWS = 16, CPU_TILE_BYTES = 64, CPU_TILE_CHANNELS = 16, CPU_TILE_NEAR = 32 };

/* Where the left sides of the products are read. A place is what one pixel of the output multiplies; places follow one
 * another at equal distances, and so do the rows of a tile. POINTS: in the image, each pixel of which is one. COPIES:
 * in copies of rows with their borders, where the window of each place begins; after the last window of a row there may
 * be places that are no pixels of the output, so that the next row begins at the same distance. PATCHES: everything
 * that a window sees, side by side, for each pixel of the output. */
enum cpu_tile_source { CPU_TILE_POINTS, CPU_TILE_COPIES, CPU_TILE_PATCHES };

struct cpu_int8_tile_loops;
struct cpu_int8_tiles {
    const struct cpu_int8_tile_loops *loops;
    /* What the ends of convolutions need (attr, k, floats) and, as shapes, images of rows of pixels; of its `panels`
     * and below only panels, pack_groups, pack_outputs, group_inputs, row_bytes (PATCHES), panel_bytes and
     * thread_bytes. */
    struct cpu_int8_conv conv;
    enum cpu_tile_source source;
    int32_t tile_rows;              /* places of a tile; a block has two tiles */
    int32_t step_bytes, steps;      /* bytes of a place that a product takes, and how many products make a sum */
    int64_t *step_at;               /* (steps) from a place to what a product takes */
    int64_t place_bytes;            /* from one place to the next */
    int64_t row_places, row_pixels; /* row_pixels: the first of them that are pixels of the output */
    int64_t segment_rows, segments; /* rows of an image (POINTS: pixels) that are read together; how many it has */
    size_t segment_bytes;           /* of a thread's memory */
    /* Copies: rows that are a stride apart lie in planes, each of plane_rows; with channel blocks each block has its
     * own planes. Channels of a place that lie together, bytes of a row, of all planes of a block (of points: from
     * block to block); from one column of the image to the next that is copied. */
    int64_t planes, plane_rows, block_channels, pitch_bytes, block_bytes, column_step;
    int64_t task_segments, segment_tasks, task_panels, panel_tasks;
    int64_t near_panels; /* that a block is multiplied by before the next block is */
    bool whole_rows;     /* all columns and channels are copied as they lie */
    bool diagonal;       /* each tile of 16 output channels reads channels of its own */
    bool ends_ahead;     /* the memory that is written is made ready before */
};

struct cpu_int8_tile_loops {
    const char *isa;
    /* Segments first to end of all images, panels first_panel to end_panel. `memory`: conv.thread_bytes of the thread's
     * own. */
    void (*conv)(const struct cpu_int8_tiles *tiles, const struct cpu_int8_work *work, int64_t first, int64_t end,
                 int64_t first_panel, int64_t end_panel, void *memory);
};
extern const struct cpu_int8_tile_loops cpu_int8_tiles_amx, cpu_int8_tiles_model;

#endif
