/* Weights as tile products want them: the opaque layout, and how weights get there (tile_weights.c). */
#ifndef CVY_BACKEND_CPU_CONV_TILE_WEIGHTS_H
#define CVY_BACKEND_CPU_CONV_TILE_WEIGHTS_H

#include "backend/cpu/cpu.h"

/* The order of weights (K, C/g, R, S): for each 16 lanes, for each step of the depth, for each tap of the window a
 * tile, tile_weights_tile() bytes. Forward the lanes are K and the depth C/g; backward it is the other way round. */
struct tile_weights {
    int32_t lanes;                    /* of all groups */
    int32_t group_lanes, group_depth; /* channels of a group on both sides */
    int32_t steps, depth;             /* of a group's depth; channels of one: 32, or 16 where a group has no more */
    int32_t window;                   /* taps */
    bool backward;
};
struct tile_weights tile_weights_of(const struct cvy_shape *weights, int32_t groups, bool backward);

static inline size_t tile_weights_tile(const struct tile_weights *order)
{
    return (size_t)order->depth * 32;
}
/* Bytes of 16 lanes. */
static inline size_t tile_weights_lanes(const struct tile_weights *order)
{
    return (size_t)order->steps * (size_t)order->window * tile_weights_tile(order);
}
/* 16 lanes and one step of the depth, all taps. */
void tile_weights_pack(const struct tile_weights *order, const uint16_t *weights, int32_t lane, int32_t step,
                       uint32_t *to);
/* The layout of weights that lie so; backward those without groups alone. */
struct cvy_layout tile_weights_layout(bool backward);
/* Whether it is one of these two, and which. */
bool tile_weights_are_packed(const struct cvy_layout *layout, bool *backward);

#endif
