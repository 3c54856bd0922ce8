/* Integer inference on the CPU. Images of bytes are channels-last; weights of fast convolutions lie in panels
 * (int8_pack.c). */
#ifndef CVY_BACKEND_CPU_INT8_H
#define CVY_BACKEND_CPU_INT8_H

#include <string.h>

#include "backend/cpu/cpu.h"
#include "graph/int8.h"

/* Output channels of a panel, in vectors of 16; pixels of a tile with AVX-512. */
enum { CPU_INT8_PANEL = 64, CPU_INT8_VECTOR = 16, CPU_INT8_TILE = 7 };
/* Sorted panels lie beside each other as if they were one: up to as many output channels share what is read. */
enum { CPU_INT8_WIDE_PANEL = 256 };
/* Sorted panels: output channels of a half of a vector; the steps of a slice; the ways to make pairs of a step's four
 * bytes; the bytes of eight pixels that a step takes, in one of them and in all. */
enum {
    CPU_INT8_HALF = CPU_INT8_VECTOR / 2,
    CPU_INT8_SLICE = 128,
    CPU_INT8_PAIRINGS = 3,
    CPU_INT8_PAIRING_BYTES = 4 * 8,
    CPU_INT8_STEP_BYTES = CPU_INT8_PAIRINGS * CPU_INT8_PAIRING_BYTES,
    CPU_INT8_ORDER_HEAD = 2 /* numbers before those of a slice's steps */
};
/* The four bytes of each pairing: the first two make a pair, and the others. */
static const uint8_t cpu_int8_pairings[CPU_INT8_PAIRINGS][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 3, 1, 2}};
/* Where sums and ends are woven into each other: pixels of a tile, the fewest steps of four channels, and the most,
 * beyond which the ends are no matter and smaller tiles are slower. */
enum { CPU_INT8_WOVEN_TILE = 6, CPU_INT8_WOVEN_QUADS = 12, CPU_INT8_WOVEN_MOST = 128 };

/* Extent d of images or their windows; a matrix is images of one pixel. */
static inline int64_t cpu_int8_extent(const struct cvy_shape *shape, int d)
{
    return shape->rank == 4 ? shape->dim[d] : 1;
}

/* Whether an opaque layout is one of these. */
static inline const struct cpu_packing *cpu_packing_of(const struct cvy_layout *layout)
{
    return layout->kind == CVY_LAYOUT_OPAQUE && layout->detail_size == sizeof(struct cpu_packing) ? layout->detail
                                                                                                  : NULL;
}
struct cpu_packing cpu_packing_for(const struct cvy_shape *w, int32_t groups);
/* The device's own copy of it, which a layout may refer to; NULL: it has no place for more. */
const struct cpu_packing *cpu_packing_known(struct cpu_device *cpu, const struct cpu_packing *packing);
/* Groups that neither fill a panel nor a tile, but that several of together do. */
bool cpu_int8_narrow_groups(const struct cvy_shape *w, int32_t groups);
/* Numbers in the order of a half's steps: one of each, and the head of each slice of them. */
static inline int64_t cpu_int8_order_size(int64_t steps)
{
    return steps + CPU_INT8_ORDER_HEAD * ((steps + CPU_INT8_SLICE - 1) / CPU_INT8_SLICE);
}
/* Bytes of the panels, and of everything. */
size_t cpu_packing_panel_bytes(const struct cpu_packing *packing, const struct cvy_shape *w);
size_t cpu_packing_bytes(const struct cpu_packing *packing, const struct cvy_shape *w);

/* A convolution, ready to run. */
struct cpu_int8_conv {
    struct cvy_int8_attr attr;
    int64_t n, c, h, w, k, p, q, taps; /* taps: runs of bytes that an output sums over; with `rows` those of a column */
    int64_t pack_groups, pack_outputs; /* groups as they are packed, output channels of each */
    int64_t group_inputs;              /* bytes of a pixel that a group reads */
    int64_t panel;                     /* output channels of a panel */
    int64_t panels, quads;             /* panels: of all groups; quads: steps of four bytes */
    bool shared, rows, floats;         /* floats: y is f32 */
    bool points;                       /* output pixel i reads input pixel i and no other */
    bool pixels_ahead, ends_ahead;     /* what is prefetched */
    int64_t tile;                      /* pixels of a tile */
    int64_t row_bytes;                 /* of a row with its borders, of which a thread has copies; rows alone */
    int64_t tiles, block, blocks;      /* tiles of pixels, how many a task takes, how many blocks that makes */
    int64_t panel_tasks, task_panels;  /* tasks that share a block, panels of each */
    int64_t threads;                   /* that take tasks */
    size_t panel_bytes, thread_bytes;  /* thread_bytes: of a thread's table of pixels and its rows */
    size_t pointers;                   /* bytes of the table alone */
    uint8_t *outside;                  /* a pixel of zero points: what lies beside the image */
    int64_t *offsets;                  /* (kernel) bytes from the first tap of a window to each */
};
/* What a call works on. */
struct cpu_int8_work {
    const uint8_t *x, *residual;
    const int8_t *w;
    const int32_t *sums;   /* of the weights of each output channel */
    const uint16_t *order; /* of the steps of each half of a vector (int8_pack.c); sorted panels alone */
    const float *multiplier, *bias;
    void *y;
};

/* That of a convolution's tensors; `panel_bytes`: of its weights, after which the sums of `outputs` channels lie. */
static inline struct cpu_int8_work cpu_int8_work_of(void *const *in, void *const *out, size_t panel_bytes,
                                                    int64_t outputs)
{
    const int32_t *const sums = (const int32_t *)(const void *)((const char *)in[1] + panel_bytes);
    return (struct cpu_int8_work){.x = in[0],
                                  .w = in[1],
                                  .sums = sums,
                                  .order = (const uint16_t *)(const void *)(sums + outputs),
                                  .multiplier = in[2],
                                  .bias = in[3],
                                  .residual = in[4],
                                  .y = out[0]};
}

/* A task of a convolution: tiles `first` to `end`, panels `first_panel` to `end_panel`. `memory` is the thread's own,
 * conv->thread_bytes. */
typedef void (*cpu_int8_task)(const struct cpu_int8_conv *conv, const struct cpu_int8_work *work, int64_t first,
                              int64_t end, int64_t first_panel, int64_t end_panel, void *memory);

/* The loops, one table for each instruction set. */
struct cpu_int8_kernels {
    const char *isa;
    int64_t tile;        /* pixels of conv's tiles */
    bool sorted;         /* conv's panels of weights, those of groups that share them apart */
    cpu_int8_task conv;  /* NULL: there are no instructions for it */
    cpu_int8_task woven; /* the same for what cpu_conv2d_int8_woven admits; may be NULL */
    void (*quantize)(uint8_t *y, const float *x, size_t count, struct cvy_int8_levels levels);
    void (*dequantize)(float *y, const uint8_t *x, size_t count, struct cvy_int8_levels levels);
    /* y[i] = the largest of x[tap][i] */
    void (*max)(uint8_t *y, const uint8_t *const *x, size_t taps, size_t count);
    void (*add)(uint8_t *y, const uint8_t *a, const uint8_t *b, size_t count, const struct cvy_int8_attr *attr);
    /* y[pixel][c] = the byte of (x[pixel][c] - zero of x) * factors[c] */
    void (*scale)(uint8_t *y, const uint8_t *x, size_t pixels, size_t channels, const float *factors, int32_t x_zero,
                  int32_t y_zero);
};

extern const struct cpu_int8_kernels cpu_int8_kernels_base, cpu_int8_kernels_avx2, cpu_int8_kernels_avx_vnni,
    cpu_int8_kernels_avx512_vnni;

/* Layouts of bytes: channels-last. */
struct cvy_layout cpu_int8_layout(const struct cvy_shape *shape);
/* Those of everything that a convolution reads and writes; packing: of its weights, NULL: plain ones. */
void cpu_int8_lay_out(struct cvy_op_desc *desc, const struct cpu_packing *packing);
/* The input that y may be written over: what is added, each byte once it has been read; -1: none. A single thread finds
 * those bytes in its caches; of several, each would have to fetch them from where the next convolution has been read,
 * which can double the time. */
int32_t cpu_int8_over(const struct cvy_op_desc *desc, const cvy_device *device);
/* What the shapes say. */
void cpu_int8_describe(const struct cvy_op_desc *desc, struct cpu_int8_conv *s);
bool cpu_int8_reads_points(const struct cpu_int8_conv *s);
/* A row of x with its borders: the bytes of every column that some window reaches, and what is read beyond them. */
int64_t cpu_int8_bordered_row(const struct cpu_int8_conv *s);

/* Row number `row` of image n as its windows see it: the borders are zero points. */
static inline void cpu_int8_copy_row(const struct cpu_int8_conv *s, const uint8_t *x, int64_t n, int64_t row,
                                     uint8_t *to)
{
    const int64_t before = s->attr.conv2d.pad[2] * s->c, there = s->w * s->c;
    const bool inside = row >= 0 && row < s->h;
    memset(to, s->attr.x.zero, (size_t)(inside ? before : s->row_bytes));
    if (!inside)
        return;
    memcpy(to + before, x + (n * s->h + row) * there, (size_t)there);
    memset(to + before + there, s->attr.x.zero, (size_t)(s->row_bytes - before - there));
}

#endif
