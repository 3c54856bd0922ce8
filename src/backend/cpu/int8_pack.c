/* Weights of integer convolutions in panels: the layout, and the way into it and back. */
#include <string.h>

#include "backend/cpu/int8.h"

/* Runs of adjacent bytes that an output sums over. */
static int64_t runs_of(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    return packing->rows ? cpu_int8_extent(w, 2) : cpu_int8_extent(w, 2) * cpu_int8_extent(w, 3);
}

/* Shared panels read whole vectors of a pixel's channels. */
struct cpu_packing cpu_packing_for(const struct cvy_shape *w, int32_t groups)
{
    const int64_t inputs = w->dim[1], outputs = w->dim[0] / groups;
    const bool rows = groups == 1 && inputs % 4 != 0 && w->rank == 4;
    const bool narrow = inputs == 4 || inputs == 8 || inputs == 16 || inputs == 32;
    return (struct cpu_packing){.groups = groups,
                                .quads = (int32_t)(((rows ? inputs * w->dim[3] : inputs) + 3) / 4),
                                .shared = groups > 1 && inputs == outputs && narrow && w->dim[0] % CPU_INT8_VECTOR == 0,
                                .rows = rows};
}

static int64_t pack_groups(const struct cpu_packing *packing)
{
    return packing->shared ? 1 : packing->groups;
}

/* Bytes of the panels of a group, whose last one is as wide as it must be. */
static size_t group_bytes(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    const int64_t outputs = w->dim[0] / pack_groups(packing);
    const int64_t vectors = (outputs + CPU_INT8_VECTOR - 1) / CPU_INT8_VECTOR;
    return (size_t)(vectors * runs_of(packing, w) * packing->quads * CPU_INT8_VECTOR * 4);
}

size_t cpu_packing_panel_bytes(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    return group_bytes(packing, w) * (size_t)pack_groups(packing);
}

size_t cpu_packing_bytes(const struct cpu_packing *packing, const struct cvy_shape *w)
{
    return cpu_packing_panel_bytes(packing, w) + (size_t)w->dim[0] * sizeof(int32_t);
}

/* Where the weight of output channel k for one tap and input channel lies. */
static size_t offset_of(const struct cpu_packing *packing, const struct cvy_shape *w, int64_t k, int64_t tap, int64_t c)
{
    const int64_t width = cpu_int8_extent(w, 3), run = packing->rows ? tap / width : tap;
    const int64_t byte = packing->rows ? tap % width * w->dim[1] + c : c;
    const int64_t outputs = w->dim[0] / pack_groups(packing), group = k / outputs, j = k % outputs;
    const int64_t panel = j / CPU_INT8_PANEL, left = outputs - panel * CPU_INT8_PANEL;
    const int64_t wide =
        left < CPU_INT8_PANEL ? (left + CPU_INT8_VECTOR - 1) / CPU_INT8_VECTOR * CPU_INT8_VECTOR : CPU_INT8_PANEL;
    const int64_t steps = runs_of(packing, w) * packing->quads;
    return (size_t)group * group_bytes(packing, w) + (size_t)(panel * steps * CPU_INT8_PANEL * 4) +
           (size_t)(((run * packing->quads + byte / 4) * wide + j % CPU_INT8_PANEL) * 4 + byte % 4);
}

struct reorder {
    struct cpu_packing packing;
    struct cvy_shape shape;
    bool unpack;
};

cvy_status cpu_reorder_int8_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    const struct cpu_packing *from = cpu_packing_of(&desc->in[0].layout), *to = cpu_packing_of(&desc->out[0].layout);
    plan->quiet = true;
    if (!from == !to || desc->in[0].dtype != CVY_I8 ||
        (from ? &desc->out[0] : &desc->in[0])->layout.kind != CVY_LAYOUT_PLAIN)
        return cvy_fail(CVY_UNAVAILABLE, "this kernel packs weights of 8 bits only");
    const struct reorder state = {.packing = *(from ? from : to), .shape = desc->in[0].shape, .unpack = from};
    return cpu_state(plan, &state, sizeof(state));
}

cvy_status cpu_reorder_int8_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    (void)scratch;
    const struct reorder *s = plan->state;
    const int64_t outputs = s->shape.dim[0], inputs = s->shape.dim[1];
    const int64_t taps = cpu_int8_extent(&s->shape, 2) * cpu_int8_extent(&s->shape, 3);
    const size_t panels = cpu_packing_panel_bytes(&s->packing, &s->shape);
    int8_t *packed = s->unpack ? in[0] : out[0], *plain = s->unpack ? out[0] : in[0];
    if (!s->unpack)
        memset(packed, 0, panels);
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t k = 0; k < outputs; k++) {
        int32_t sum = 0;
        for (int64_t c = 0; c < inputs; c++)
            for (int64_t tap = 0; tap < taps; tap++) {
                int8_t *a = packed + offset_of(&s->packing, &s->shape, k, tap, c);
                int8_t *b = plain + (k * inputs + c) * taps + tap;
                if (s->unpack)
                    *b = *a;
                else
                    *a = *b;
                sum += *b;
            }
        if (!s->unpack)
            memcpy(packed + panels + (size_t)k * sizeof(sum), &sum, sizeof(sum));
    }
    return CVY_OK;
}
