/* Convolutions with windows by tile products (AMX), forward and the gradient of the data: what prepare() computes and
 * run() reads, explained in tile_window.c, and the inner loops, made from tile_window.inc with the processor's tiles
 * and with tiles in memory for tests. */
#ifndef CVY_BACKEND_CPU_CONV_TILE_WINDOW_H
#define CVY_BACKEND_CPU_CONV_TILE_WINDOW_H

#include "backend/cpu/conv/places.h"
#include "backend/cpu/conv/tile_weights.h"

enum {
    WINDOW_LANES = 32,  /* channels of the result that are written together: a line of the cache */
    WINDOW_HEIGHT = 16, /* rows of a tile of places, at most */
    WINDOW_TILES = 4,   /* of places that are multiplied together */
    WINDOW_LINE = 64,   /* bytes of a line of the cache */
    WINDOW_TAPS = 64,   /* of a window, at most */
    WINDOW_PARTS = 4    /* kinds of pixels of a strided gradient */
};

/* The taps of a kind of pixels: where the place that each reads lies behind that of the result, and its weights. */
struct cpu_window_taps {
    int32_t count;
    size_t source[WINDOW_TAPS];  /* bytes */
    size_t weights[WINDOW_TAPS]; /* bytes, in those of a step */
};

/* The results of places one after the other; a place without one is left out. */
struct cpu_window_task {
    const char *source; /* the channels of place 0, others `pitch` bytes further each */
    size_t pitch;
    const char *weights; /* packed: tile_weights.h */
    const struct cpu_window_taps *taps;
    const struct tile_weights *order;
    const float *bias;   /* of lane 0; NULL: 0 */
    uint16_t *const *to; /* where each place's result begins, or NULL */
    int32_t height;      /* places of a tile */
    int32_t places;      /* a multiple of WINDOW_TILES tiles */
    int32_t lanes;       /* of the result: a multiple of WINDOW_LANES */
    float low, high;     /* the activation */
};

struct cpu_tile_window_loops {
    const char *isa;
    /* `sums`: of two times WINDOW_TILES tiles of places by WINDOW_LANES. */
    void (*multiply)(const struct cpu_window_task *task, float *sums);
};
extern const struct cpu_tile_window_loops cpu_tile_window_amx_bf16, cpu_tile_window_amx_bf16_model;

/* One dimension of one kind of pixels. Place i of the result is pixel first + i * step; place i of plane p of the
 * source is pixel i * source_step + offset[p], 0 where there is none. */
struct window_axis {
    int32_t places, first, step, source_step;
    int32_t planes, offset[WINDOW_PARTS];
    int32_t reach; /* places behind its own that a tap reads */
    int32_t kind;  /* backward: the remainder of these pixels; the tap that reads their own place is `shift` ahead */
    int32_t shift;
    int32_t pitch; /* places from one row or image to the next */
};

struct window_part {
    struct window_axis axis[2]; /* rows, columns */
    struct cpu_window_taps taps;
    struct place_bands bands;
    int32_t height; /* places of a tile */
};

struct tile_window {
    const struct cpu_tile_window_loops *loops;
    struct tile_weights order;
    bool packed; /* the weights come packed: they do not change */
    bool fixed;  /* each thread has its own tasks, else whoever is free takes the next one */
    float low, high;
    int32_t source[2], result[2]; /* extents of images */
    int32_t source_channels;
    int64_t batch, tasks;
    struct window_part part[WINDOW_PARTS];
    int32_t parts, most_planes; /* of a band */
    int64_t most_places;        /* likewise, with what its last taps reach */
    size_t weight_bytes, plane_bytes, thread_bytes;
};

#endif
