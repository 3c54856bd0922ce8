/* Weights of convolutions by tile products: packed for a layer's whole life where they do not change, or for a pass. */
#include "backend/cpu/conv/tile_weights.h"

struct tile_weights tile_weights_of(const struct cvy_shape *weights, int32_t groups, bool backward)
{
    const int32_t outputs = (int32_t)weights->dim[0] / groups, inputs = (int32_t)weights->dim[1];
    struct tile_weights order = {.group_lanes = backward ? inputs : outputs,
                                 .group_depth = backward ? outputs : inputs,
                                 .window = (int32_t)(weights->dim[2] * weights->dim[3]),
                                 .backward = backward};

    order.lanes = groups * order.group_lanes;
    order.depth = order.group_depth == 16 ? 16 : 32;
    order.steps = order.group_depth / order.depth;
    return order;
}

/* ---- packing ---- */

/* Pairs of weights of 16 lanes, which lie `lane_step` apart, of one pair of the depth, whose second is `second` behind
 * the first, into all taps' tiles, which are `tile` pairs apart. */
static inline void pack_pair(const uint16_t *from, size_t lane_step, size_t second, int32_t window, size_t tile,
                             uint32_t *to)
{
    for (int32_t l = 0; l < 16; l++, from += lane_step)
        for (int32_t t = 0; t < window; t++)
            to[(size_t)t * tile + (size_t)l] = from[t] | (uint32_t)from[second + (size_t)t] << 16;
}

void tile_weights_pack(const struct tile_weights *order, const uint16_t *weights, int32_t lane, int32_t step,
                       uint32_t *to)
{
    const size_t window = (size_t)order->window, tile = tile_weights_tile(order) / sizeof(*to);
    const size_t row = (size_t)(order->backward ? order->group_lanes : order->group_depth) * window;
    const size_t deep = (size_t)(step * order->depth), inside = (size_t)(lane % order->group_lanes); /* in the group */
    const size_t first = (size_t)(lane / order->group_lanes * order->group_depth) + deep; /* channel of the source */
    const uint16_t *const from =
        order->backward ? weights + first * row + inside * window : weights + (size_t)lane * row + deep * window;
    const size_t depth_step = order->backward ? row : window, lane_step = order->backward ? window : row;

    for (int32_t d = 0; d < order->depth; d += 2, to += 16) {
        const uint16_t *const at = from + (size_t)d * depth_step;
        if (window == 9)
            pack_pair(at, lane_step, depth_step, 9, tile, to);
        else
            pack_pair(at, lane_step, depth_step, order->window, tile, to);
    }
}

/* ---- the opaque layout ---- */

struct packed {
    bool backward;
};
static const struct packed packed_forward = {false}, packed_backward = {true};

struct cvy_layout tile_weights_layout(bool backward)
{
    return (struct cvy_layout){.kind = CVY_LAYOUT_OPAQUE,
                               .detail = backward ? &packed_backward : &packed_forward,
                               .detail_size = sizeof(struct packed)};
}

bool tile_weights_are_packed(const struct cvy_layout *layout, bool *backward)
{
    /* Opaque ones are told apart by the size of their details. */
    if (layout->kind != CVY_LAYOUT_OPAQUE || layout->detail_size != sizeof(struct packed))
        return false;
    *backward = ((const struct packed *)layout->detail)->backward;
    return true;
}

size_t cpu_tile_weights_bytes(const struct cvy_tensor *tensor)
{
    bool backward;

    if (!tile_weights_are_packed(&tensor->layout, &backward))
        return 0;
    /* Forward it makes no difference how many groups there are. */
    const struct tile_weights order = tile_weights_of(&tensor->shape, 1, backward);
    return (size_t)(order.lanes / 16) * tile_weights_lanes(&order);
}
