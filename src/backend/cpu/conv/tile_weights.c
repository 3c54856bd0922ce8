/* Weights of convolutions by tile products: packed for a layer's whole life where they do not change, or for a pass. */
#include "backend/cpu/conv/tile_weights.h"

#include "backend/cpu/conv/tile_product.h"
#include "base/system.h"

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

/* NULL: they have another layout. Opaque ones are told apart by the size of their details. */
static const struct packed *packed_of(const struct cvy_layout *layout)
{
    const bool ours = layout->kind == CVY_LAYOUT_OPAQUE && layout->detail_size == sizeof(struct packed);
    return ours ? layout->detail : NULL;
}

size_t cpu_tile_weights_bytes(const struct cvy_tensor *tensor)
{
    const struct packed *const packed = packed_of(&tensor->layout);

    if (!packed)
        return 0;
    /* Forward it makes no difference how many groups there are. */
    const struct tile_weights order = tile_weights_of(&tensor->shape, 1, packed->backward);
    return (size_t)(order.lanes / 16) * tile_weights_lanes(&order);
}

struct reorder {
    struct tile_weights order;
    const struct cpu_tile_product_loops *loops;
    bool unpack;
};

cvy_status cpu_reorder_tiles_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct packed *const from = packed_of(&desc->in[0].layout), *const to = packed_of(&desc->out[0].layout);
    const struct packed *const packed = from ? from : to;

    (void)device;
    plan->quiet = true;
    if (!from == !to || !cpu_tile_product_loops_here() || desc->in[0].dtype != CVY_BF16 ||
        desc->out[0].dtype != CVY_BF16 || (from ? &desc->out[0] : &desc->in[0])->layout.kind != CVY_LAYOUT_PLAIN)
        return cvy_fail(CVY_UNAVAILABLE, "this kernel packs weights for tile products only");
    const struct reorder state = {.order = tile_weights_of(&desc->in[0].shape, 1, packed->backward),
                                  .loops = cpu_tile_product_loops_here(),
                                  .unpack = from};
    return cpu_state(plan, &state, sizeof(state));
}

/* Weights of one tap, 32 lanes and all of the depth, into two rows of tiles. */
static void pack_product(const struct reorder *s, const uint16_t *from, int32_t lane, char *to)
{
    const struct tile_weights *const order = &s->order;
    const size_t half = tile_weights_lanes(order), lanes = (size_t)order->lanes, deep = (size_t)order->group_depth;

    for (int32_t step = 0; step < order->steps; step++) {
        const size_t d = (size_t)(step * PRODUCT_DEPTH);
        s->loops->pack(to + (size_t)step * PRODUCT_BYTES, half,
                       order->backward ? from + d * lanes + lane : from + (size_t)lane * deep + d,
                       order->backward ? lanes : deep, !order->backward);
    }
}

/* 16 lanes back to where they were. */
static void unpack(const struct tile_weights *order, const uint16_t *from, int32_t lane, uint16_t *to)
{
    const size_t window = (size_t)order->window, tile = tile_weights_tile(order) / sizeof(*from);
    const size_t lane_step = (order->backward ? 1 : (size_t)order->group_depth) * window;
    const size_t depth_step = (order->backward ? (size_t)order->lanes : 1) * window;

    for (int32_t d = 0; d < order->group_depth; d++)
        for (int32_t l = 0; l < 16; l++)
            for (size_t t = 0; t < window; t++)
                to[(size_t)d * depth_step + (size_t)(lane + l) * lane_step + t] =
                    from[((size_t)(d / order->depth) * window + t) * tile + (size_t)(d % order->depth / 2 * 32) +
                         (size_t)(l * 2 + d % 2)];
}

cvy_status cpu_reorder_tiles_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                 void *const *out, void *scratch)
{
    const struct reorder *const s = plan->state;
    const struct tile_weights *const order = &s->order;
    const size_t half = tile_weights_lanes(order), step_bytes = half / (size_t)order->steps;
    const bool product = order->window == 1 && order->depth == PRODUCT_DEPTH && order->lanes % PRODUCT_LANES == 0;

    (void)scratch;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int32_t lane = 0; lane < order->lanes; lane += 16) {
        const size_t at = (size_t)(lane / 16) * half;
        if (s->unpack)
            unpack(order, (const uint16_t *)(const void *)((const char *)in[0] + at), lane, out[0]);
        else if (product && lane % PRODUCT_LANES == 0)
            pack_product(s, in[0], lane, (char *)out[0] + at);
        else if (!product)
            for (int32_t step = 0; step < order->steps; step++)
                tile_weights_pack(order, in[0], lane, step,
                                  (uint32_t *)(void *)((char *)out[0] + at + (size_t)step * step_bytes));
    }
    return CVY_OK;
}
