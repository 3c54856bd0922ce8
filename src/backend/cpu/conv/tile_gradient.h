/* Gradients of weights of bf16 convolutions by tile products (AMX): what prepare() computes and run() reads, explained
 * in tile_gradient.c, and the inner loops, made twice from tile_gradient.inc: with the processor's tiles, and with
 * tiles in memory for tests. */
#ifndef CVY_BACKEND_CPU_CONV_TILE_GRADIENT_H
#define CVY_BACKEND_CPU_CONV_TILE_GRADIENT_H

#include "backend/cpu/conv/gradient.h"
#include "backend/cpu/cpu.h"

enum {
    TILE_PIXELS = 32,       /* that one tile product sums over */
    TILE_LANES = 16,        /* channels of a tile */
    TILE_FLOATS = 256,      /* sums of a tile; of two rows by two lanes, or by three taps, are made at a time */
    TILE_NEAR_STEPS = 8,    /* whose operands, of two blocks each, stay in a first-level cache of 48 KiB */
    TILE_MAX_TAPS = 64,     /* of a window */
    TILE_PANEL_BLOCKS = 32, /* of 16 channels, of one side of a panel, at most */
    TILE_LINE = 64          /* bytes of a line of the cache, of a tile's row, of a unit: two pixels of 16 channels */
};

/* Pixels of channels-last images one after the other, zeros among them. */
struct cpu_tile_pixels {
    const uint16_t *from;  /* channel 0 of the panel */
    const uint16_t *zeros; /* as many as the panel has channels */
    const int32_t *offset; /* elements from `from` to each pixel, -1: zeros */
    int32_t count;         /* a multiple of TILE_PIXELS */
    int32_t blocks;        /* of 16 channels */
    /* One for each block: pixels become relu(affine(pixel)), rounded as by the batch norm's own kernel; zeros stay
     * zeros. NULL: pixels are taken as they are. */
    const struct cpu_affine *norm;
};

/* Memory that is packed next, fetched during the products: `pieces` pieces of some lines of the cache, `stride` bytes
 * apart, and how far that has come. Each step of the sums that are made at a time fetches `share` lines. */
struct cpu_tile_range {
    const char *from;
    size_t stride;
    int64_t pieces;
    int32_t lines;
};
struct cpu_tile_ahead {
    struct cpu_tile_range range[2]; /* of x and dy */
    int32_t at, line, share;
};

/* Taps of rows: sums[lane pair][row pair][tap][2 rows][2 lanes][16][16] += row operand times lane operand.
 * Taps of lanes: sums[lane][row pair][tap][2 rows][16][16]. */
struct cpu_tile_products {
    float *sums;
    const char *rows, *lanes;
    size_t row_pitch;                             /* bytes from one number of the row operand to the next */
    size_t lane_block;                            /* bytes from one block of 16 of the lane operand to the next */
    const size_t *tap;                            /* bytes from `rows`, or `lanes`, to those of each tap */
    bool lane_taps;                               /* taps are of the lanes */
    int32_t taps, row_blocks, lane_blocks, steps; /* steps of TILE_PIXELS */
    bool first;                                   /* there are no sums yet */
    struct cpu_tile_ahead *ahead;
};

struct cpu_tile_gradient_loops {
    const char *isa;
    /* Pixels into the row operand: a line of pixels for each channel, `pitch` bytes apart. */
    void (*pack_rows)(char *to, size_t pitch, const struct cpu_tile_pixels *pixels);
    /* Pixels into the lane operand: units of two pixels of a block, the blocks `block_bytes` apart. */
    void (*pack_lanes)(char *to, size_t block_bytes, const struct cpu_tile_pixels *pixels);
    /* Units of pixels 2i and 2i + 1 into those of 2i + 1 and 2i + 2; the last one ends with a zero. */
    void (*shift_lanes)(char *to, const char *from, int32_t units);
    /* Pixels of one plane into a line: number q is from[q * stride] for begin <= q < end, else 0. */
    void (*pack_line)(uint16_t *to, const uint16_t *from, int32_t stride, int32_t begin, int32_t end, int32_t count);
    /* A row of pixels of up to 16 planes, `plane` elements apart, into units; what is behind them becomes 0. */
    void (*pack_planes)(char *to, const uint16_t *from, size_t plane, int32_t channels, int32_t pixels, int32_t units);
    void (*multiply)(const struct cpu_tile_products *products);
};
extern const struct cpu_tile_gradient_loops cpu_tile_gradient_amx_bf16, cpu_tile_gradient_amx_bf16_model;

/* One dimension of a convolution, in planes: x is cut by the remainder of its padded index by the stride. */
struct tile_axis {
    int32_t input, output; /* extents */
    int32_t kernel, stride, dilation, pad;
    int32_t phases; /* remainders that occur */
    int32_t shift;  /* of the last tap in its plane */
    int32_t pitch;  /* of planes, so that no tap of an output reads what belongs to the next row or image */
};

/* x or dy. */
struct tile_side {
    bool plain;                    /* its layout; else channels-last */
    int64_t channels;              /* with the taps that stand beside them */
    int64_t image_stride;          /* elements */
    int32_t pixel;                 /* elements from one pixel to the next */
    int32_t plane;                 /* plain: elements from one channel to the next */
    int32_t blocks, panel, panels; /* of 16 channels: all, of a panel; panels */
};

struct tile_gradient {
    const struct cpu_tile_gradient_loops *loops;
    void (*write)(const struct cpu_sum_block *block);
    struct tile_side x, dy;
    struct tile_axis axis[2];    /* rows, columns */
    bool x_in_rows;              /* x is the row operand, dy in the lanes; else the other way round */
    bool lane_taps;              /* x has more than one tap and is in the lanes */
    int32_t fold;                /* taps of a window's row that stand beside the channels of x: 1 or all */
    int32_t taps;                /* all others */
    int64_t batch, pixels;       /* pixels: of images cut into rows of our own, else 0 */
    struct place_bands bands;    /* rows of dy */
    int32_t steps;               /* of a whole band */
    int32_t x_pixels, dy_pixels; /* packed, of a band */
    int64_t pieces;
    size_t tap_offset[TILE_MAX_TAPS]; /* bytes */
    size_t panel_floats;
    uint64_t odd_phases;                     /* planes of x in the lanes in which a tap begins with an odd pixel */
    size_t row_pitch, row_phase, lane_block; /* bytes */
    size_t lane_copy, lane_phase; /* of all blocks of a plane's pixels; of both ways to pair them, if both are there */
    size_t row_bytes, lane_bytes, table_bytes, zeros_bytes; /* of a thread */
    size_t thread_bytes;                                    /* all, and sums where there is one piece */
    size_t norm_at; /* bytes of the threads and pieces; 0: x is taken as it is */
};

/* The sums of a task's panel at a time: floats of one lane pair by one row pair and tap. */
enum { TILE_QUAD = 4 * TILE_FLOATS };

#endif
