/* Weights of direct convolutions: packed for a layer's whole life where they do not change, or for a pass. They cannot
 * be read back. */
#include "backend/cpu/conv/direct.h"

/* Opaque layouts are told apart by the size of their details. */
struct packed {
    int32_t backward, plain, unused[3]; /* unused: no other detail is as large */
};
static const struct packed kinds[2][2] = {{{0, 0, {0}}, {0, 1, {0}}}, {{1, 0, {0}}, {1, 1, {0}}}};

struct cvy_layout direct_weights_layout(bool backward, bool plain)
{
    return (struct cvy_layout){
        .kind = CVY_LAYOUT_OPAQUE, .detail = &kinds[backward][plain], .detail_size = sizeof(struct packed)};
}

static const struct packed *packed_of(const struct cvy_layout *layout)
{
    return layout->kind == CVY_LAYOUT_OPAQUE && layout->detail_size == sizeof(struct packed) ? layout->detail : NULL;
}

struct order {
    int32_t lanes, taps;
    int32_t sources, aims; /* channels */
    int32_t depth, aim_blocks, panels;
    int32_t inputs; /* C */
    bool backward, plain;
};

static struct order order_of(const struct packed *packed, const struct cvy_shape *weights)
{
    const struct cpu_direct_loops *const loops = direct_loops_here();
    struct order o = {.lanes = loops->lanes,
                      .taps = (int32_t)(weights->dim[2] * weights->dim[3]),
                      .sources = (int32_t)weights->dim[packed->backward ? 0 : 1],
                      .aims = (int32_t)weights->dim[packed->backward ? 1 : 0],
                      .inputs = (int32_t)weights->dim[1],
                      .backward = packed->backward,
                      .plain = packed->plain};
    o.depth =
        (int32_t)(o.plain ? divide_up((int64_t)o.sources * o.taps, o.lanes) : divide_up(o.sources, o.lanes) * o.taps);
    o.aim_blocks = (int32_t)divide_up(o.aims, o.lanes);
    o.panels = (int32_t)divide_up(o.aim_blocks, loops->panel_blocks);
    return o;
}

size_t cpu_direct_weights_bytes(const struct cvy_tensor *tensor)
{
    const struct packed *const packed = packed_of(&tensor->layout);

    if (!packed)
        return 0;
    const struct order o = order_of(packed, &tensor->shape);
    return (size_t)o.depth * (size_t)o.aim_blocks * (size_t)o.lanes * (size_t)o.lanes * sizeof(float);
}

cvy_status cpu_reorder_direct_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct packed *const to = packed_of(&desc->out[0].layout);

    (void)device;
    plan->quiet = true;
    if (!to || desc->in[0].layout.kind != CVY_LAYOUT_PLAIN || desc->in[0].dtype != CVY_F32 ||
        desc->out[0].dtype != CVY_F32)
        return cvy_fail(CVY_UNAVAILABLE, "weights of direct convolutions only");
    const struct order o = order_of(to, &desc->in[0].shape);
    return cpu_state(plan, &o, sizeof o);
}

/* A number of the depth, for `count` channels of the aim from `first` on, those that there are. */
static void pack_number(const struct order *o, const float *weights, int32_t number, int32_t first, int32_t count,
                        float *to)
{
    const int32_t blocks = (int32_t)divide_up(o->sources, o->lanes), block = number / o->lanes;
    const int32_t turned = o->plain ? number % o->taps : block / blocks;
    const int32_t source = o->plain ? number / o->taps : block % blocks * o->lanes + number % o->lanes;
    const int64_t tap = o->backward ? o->taps - 1 - turned : turned;
    const int64_t k = o->backward ? source : first, c = o->backward ? first : source;
    const int64_t at = (k * o->inputs + c) * o->taps + tap, step = o->backward ? o->taps : (int64_t)o->inputs * o->taps;
    const int32_t there = source < o->sources ? (int32_t)smaller(o->aims - first, count) : 0;

    for (int32_t l = 0; l < there; l++)
        to[l] = weights[at + l * step];
    for (int32_t l = there; l < count; l++)
        to[l] = 0;
}

cvy_status cpu_reorder_direct_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    const struct order *const o = plan->state;
    (void)scratch;
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int32_t p = 0; p < o->panels; p++)
        for (int32_t d = 0; d < o->depth; d++) {
            const int32_t first = direct_cut(o->aim_blocks, o->panels, p) * o->lanes;
            const int32_t width = direct_cut(o->aim_blocks, o->panels, p + 1) * o->lanes - first;
            float *const to = (float *)out[0] + (size_t)first * (size_t)o->depth * (size_t)o->lanes +
                              (size_t)d * (size_t)o->lanes * (size_t)width;
            for (int32_t u = 0; u < o->lanes; u++)
                pack_number(o, in[0], d * o->lanes + u, first, width, to + (size_t)u * (size_t)width);
        }
    return CVY_OK;
}
