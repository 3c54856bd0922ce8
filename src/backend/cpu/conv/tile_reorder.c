/* Weights into the layout of tile products (tile_weights.h) and back. */
#include "backend/cpu/conv/tile_product.h"
#include "backend/cpu/conv/tile_weights.h"

struct reorder {
    struct tile_weights order;
    const struct cpu_tile_product_loops *loops;
    bool unpack;
};

cvy_status cpu_reorder_tiles_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    bool backward = false;
    const bool from = tile_weights_are_packed(&desc->in[0].layout, &backward);
    const bool to = tile_weights_are_packed(&desc->out[0].layout, &backward);

    (void)device;
    plan->quiet = true;
    if (from == to || !cpu_tile_product_loops_here() || desc->in[0].dtype != CVY_BF16 ||
        desc->out[0].dtype != CVY_BF16 || (from ? &desc->out[0] : &desc->in[0])->layout.kind != CVY_LAYOUT_PLAIN)
        return cvy_fail(CVY_UNAVAILABLE, "this kernel packs weights for tile products only");
    const struct reorder state = {.order = tile_weights_of(&desc->in[0].shape, 1, backward),
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
