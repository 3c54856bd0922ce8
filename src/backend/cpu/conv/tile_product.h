/* Convolutions of 1 x 1 pixel by tile products (AMX), forward and the gradient of the data: what prepare() computes and
 * run() reads, explained in tile_product.c, and the inner loops, made from tile_product.inc with the processor's tiles
 * and with tiles in memory for tests. */
#ifndef CVY_BACKEND_CPU_CONV_TILE_PRODUCT_H
#define CVY_BACKEND_CPU_CONV_TILE_PRODUCT_H

#include "backend/cpu/cpu.h"

enum {
    PRODUCT_DEPTH = 32,    /* channels that one tile product sums over */
    PRODUCT_LANES = 32,    /* channels of the result that are written together: a line of the cache */
    PRODUCT_HEIGHT = 16,   /* rows of a tile of pixels, at most; two are multiplied together */
    PRODUCT_MOST = 512,    /* pixels of a task */
    PRODUCT_GROUP = 128,   /* pixels whose sums are made in one go: tasks that make sums begin at such a group */
    PRODUCT_BYTES = 1024,  /* of a tile */
    PRODUCT_LINE = 64,     /* bytes of a line of the cache */
    PRODUCT_HELD = 1 << 20 /* bytes of weights, at most, beside which the pixels pass */
};

/* Which numbers are made of each lane of a group of pixels, beside the result: of what is written, before it is rounded
 * to bf16. */
enum tile_sums {
    TILE_SUMS_NONE,
    /* The first pixel's number, the sum of the distances from it, the sum of their squares. */
    TILE_SUMS_MOMENTS,
    /* The sum of g, and of g (x - mean), of a gradient g. */
    TILE_SUMS_GRADIENT
};

/* With sums of a gradient, the batch norm with ReLU whose output's gradient is written: where that passes. Without
 * sums, the batch norm of what is written. */
struct cpu_tile_norm {
    const uint16_t *x;    /* its input, of pixel 0 of all; NULL: only the sum of g is made */
    const uint32_t *sign; /* of its output, a bit for each lane, of pixel 0 of all; NULL: made again of x */
    const float *mean, *scale, *shift; /* of lane 0 */
};

/* to[pixel][lane] = activation(sum over the depth of from[pixel][d] * weights[d][lane] + bias[lane] + more). With sums
 * of a gradient the activation is the batch norm's mask, and there is no bias; with sums of any kind there is no other
 * activation. With `passed` the sum goes through the batch norm, and there is something to add. */
struct cpu_tile_task {
    const char *from; /* the first pixel; others `pitch` bytes further each */
    const char *last; /* those of the last two tiles, where there are not so many: elsewhere */
    size_t pitch;
    const char *weights;  /* of lane 0, packed: of each 16 lanes, tiles of all steps */
    const float *bias;    /* of lane 0; NULL: 0 */
    const uint16_t *more; /* what is added to pixel 0 of all; NULL: nothing */
    struct cpu_tile_norm norm;
    uint32_t *passed; /* what of the result is above 0, in bits, of pixel 0 of all; NULL: nobody asks */
    enum tile_sums kind;
    float *sums;     /* of the task's first group: one kind of number after the other, each of all lanes */
    int32_t lanes;   /* all */
    uint16_t *first; /* pixel 0 of all */
    uint16_t *to[PRODUCT_MOST];
    int32_t pixels, steps; /* steps of PRODUCT_DEPTH */
    int32_t height;        /* pixels of a tile */
    int32_t lane, end;     /* the lanes that are made, multiples of PRODUCT_LANES */
    float low, high;       /* the activation */
    /* For each of the pixels all lanes; else for each of the lanes all pixels, and the next weights are fetched ahead.
     */
    bool lanes_first;
    bool far;  /* the pixels come from memory: the next ones are fetched ahead where lanes come first */
    bool past; /* the result is written past the caches */
};

struct cpu_tile_product_loops {
    const char *isa;
    /* Weights of 32 lanes by PRODUCT_DEPTH -> a tile of each half. `lane_rows`: lane l is a row of `from`; else depth d
     * is. Rows are `pitch` elements apart. `second`: bytes from the first half's tile to the second's. */
    void (*pack)(char *to, size_t second, const uint16_t *from, size_t pitch, bool lane_rows);
    /* `sums`: of four times PRODUCT_HEIGHT by PRODUCT_LANES. */
    void (*multiply)(const struct cpu_tile_task *task, float *sums);
    void (*zero)(uint16_t *to, size_t count); /* a multiple of PRODUCT_LANES */
    /* Puts together what the groups of `pixels` pixels have of 16 lanes from `lane` on, `lanes` of all. */
    void (*join_moments)(const float *sums, int64_t pixels, int32_t lanes, int32_t lane, float *mean, float *variance);
    /* dgamma may be NULL. */
    void (*join_gradients)(const float *sums, int64_t pixels, int32_t lanes, int32_t lane, const float *rstd,
                           float *dgamma, float *dbeta);
    void (*finish)(void); /* what was written past the caches is there for other threads */
};
extern const struct cpu_tile_product_loops cpu_tile_product_amx_bf16, cpu_tile_product_amx_bf16_model;
const struct cpu_tile_product_loops *cpu_tile_product_loops_here(void); /* NULL: the processor has no tiles */

/* The images whose pixels are multiplied, and those of the result: one of them has every `stride` pixel of the other.
 */
struct tile_product {
    const struct cpu_tile_product_loops *loops;
    bool backward;             /* the gradient of the data */
    int32_t depth, lanes;      /* channels on both sides */
    int32_t stride[2];         /* rows, columns */
    int32_t small[2], wide[2]; /* extents of the output of the convolution, of its input */
    int64_t pixels;            /* of all images of the smaller side */
    int32_t task_pixels, task_lanes, height;
    int32_t chunks; /* tasks one after the other that have the same lanes */
    bool fixed;     /* each thread has its own tasks, else whoever is free takes the next one */
    float low, high;
    bool past;
    bool norm; /* backward: the batch norm before the convolution; forward: the one after it */
    enum tile_sums sums;
    size_t copy_bytes, thread_bytes, sums_bytes; /* the last: of all groups */
};

/* Whether the stride leaves no pixels out. */
static inline bool tile_product_is_dense(const struct tile_product *s)
{
    return s->stride[0] == 1 && s->stride[1] == 1;
}

static inline int64_t tile_product_groups(const struct tile_product *s)
{
    return (s->pixels + PRODUCT_GROUP - 1) / PRODUCT_GROUP;
}

/* How many numbers a group has of each lane. */
static inline int32_t tile_sums_numbers(enum tile_sums kind)
{
    return kind == TILE_SUMS_MOMENTS ? 3 : kind == TILE_SUMS_GRADIENT ? 2 : 0;
}

#endif
