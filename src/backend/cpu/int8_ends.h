/* What the loops of integer convolutions share, whatever their instructions: included by the files that are compiled
 * for these alone. `struct finish` is each one's own. */
#ifndef CVY_BACKEND_CPU_INT8_ENDS_H
#define CVY_BACKEND_CPU_INT8_ENDS_H

#include "backend/cpu/int8.h"

enum { LANES = CPU_INT8_VECTOR };
#define INLINE static inline __attribute__((always_inline))

struct finish;

/* What a tile reads. The pixels' channels begin `skip` bytes after their pointers. From one tap to the next the
 * pointers are `pointers` further in the table, the bytes `bytes` further after them: one of the two is 0. */
struct tile {
    const uint8_t *const *pixels; /* (taps, TILE) or (TILE) */
    int64_t skip, pointers, bytes, taps, quads;
    int vectors;           /* of the panel */
    const int8_t *w;       /* (taps, quads, vectors, 16, 4), sorted ones (vectors, 2, taps, quads, 8, 4) */
    const uint16_t *order; /* of the steps of the panel's halves, where they are sorted */
    int64_t ahead;         /* bytes from what is read of w to what is fetched meanwhile, 0: nothing; AVX-512 alone */
    const struct finish *finish;
};

/* Which bytes belong to a lane: those of the pixel alike, or those of its own group of channels; one of 16 or 32 fills
 * a vector. */
enum groups { ONE_GROUP = 0, GROUPS_OF_4 = 4, GROUPS_OF_8 = 8, GROUPS_OF_16 = 16, GROUPS_OF_32 = 32 };

/* The panel that comes after `panel`, of a task of those from `first` to `end` and of the tiles from `tile` on: after
 * the last one, the first panel of the task that this thread takes next where all take as long. After the last task the
 * number that no panel has: behind the weights and their sums lie, most often, the next convolution's. */
static inline int64_t next_panel(const struct cpu_int8_conv *s, int64_t tile, int64_t panel, int64_t first, int64_t end)
{
    const int64_t next = tile / s->block * s->panel_tasks + first / s->task_panels + s->threads;

    if (panel + 1 < end)
        return panel + 1;
    return next < s->blocks * s->panel_tasks ? next % s->panel_tasks * s->task_panels : s->panels;
}

/* Weights come from the cache that cores share, or from memory, while the first tile reads them, at less than half of
 * its speed where the second-level cache has them. So each tile fetches some of the next panel's there, a line for each
 * step: the first tile the first line of each step, the next one the second. */
static inline int64_t lines_ahead(int64_t ahead, int64_t tile, int64_t vectors)
{
    return ahead != 0 && tile < vectors ? ahead + 64 * tile : 0;
}

/* Everything else that the ends of a convolution need. */
struct ending {
    float high, middle_low, middle_high, middle_scale, other_scale;
    int32_t other_zero;
    int16_t zero, floor; /* zero: of y; floor: the lowest byte */
    bool bounded;        /* cvy_int8_bounded */
    bool shifted;        /* bytes are not levels, of which none is below 0 */
};

static inline struct ending ending_of(const struct cvy_int8_attr *attr)
{
    const bool rectified = attr->conv2d.activation != CVY_ACTIVATION_NONE;
    const struct cvy_int8_scales scales = cvy_int8_scales_of(attr);
    return (struct ending){.high = (float)(255 - attr->y.zero),
                           .middle_low = (float)-attr->middle.zero,
                           .middle_high = (float)(255 - attr->middle.zero),
                           .middle_scale = scales.middle,
                           .other_scale = scales.residual,
                           .other_zero = attr->residual.zero,
                           .zero = (int16_t)attr->y.zero,
                           .floor = (int16_t)(rectified ? attr->y.zero : 0),
                           .shifted = attr->y.zero != 0,
                           .bounded = cvy_int8_bounded(attr)};
}

#endif
