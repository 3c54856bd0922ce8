/* Weights of convolutions by Winograd's algorithm: transformed for a layer's whole life where they do not change, or
 * for a pass. They cannot be read back. */
#include "backend/cpu/conv/winograd_weights.h"
#include "backend/cpu/conv/places.h"

/* Opaque layouts are told apart by the size of their details. */
struct transformed {
    int32_t form, backward, unused; /* unused: else they were as large as a pointer, oneDNN 3.x's detail */
};
static const struct transformed kinds[WINOGRAD_FORWARD_FORMS][2] = {
    {{WINOGRAD_2X2, 0, 0}, {WINOGRAD_2X2, 1, 0}},
    {{WINOGRAD_4X4, 0, 0}, {WINOGRAD_4X4, 1, 0}},
    {{WINOGRAD_STRIDED, 0, 0}, {WINOGRAD_STRIDED, 1, 0}}};

struct cvy_layout winograd_weights_layout(enum winograd_form form, bool backward)
{
    return (struct cvy_layout){
        .kind = CVY_LAYOUT_OPAQUE, .detail = &kinds[form][backward], .detail_size = sizeof(struct transformed)};
}

static const struct transformed *transformed_of(const struct cvy_layout *layout)
{
    return layout->kind == CVY_LAYOUT_OPAQUE && layout->detail_size == sizeof(struct transformed) ? layout->detail
                                                                                                  : NULL;
}

struct reorder {
    const struct cpu_winograd_loops *loops;
    int32_t form, frequencies, aims, sources, panels;
    bool backward;
    size_t plane; /* floats of a frequency */
};

static struct reorder reorder_of(const struct transformed *t, const struct cvy_shape *weights)
{
    struct reorder s = {.loops = winograd_loops_here(),
                        .form = t->form,
                        .frequencies = winograd_weights_count(t->form),
                        .aims = (int32_t)weights->dim[t->backward ? 1 : 0],
                        .sources = (int32_t)weights->dim[t->backward ? 0 : 1],
                        .backward = t->backward};
    s.panels = (int32_t)divide_up(s.aims, s.loops->panel_lanes);
    s.plane = (size_t)s.panels * (size_t)s.sources * (size_t)s.loops->panel_lanes;
    return s;
}

size_t cpu_winograd_weights_bytes(const struct cvy_tensor *tensor)
{
    const struct transformed *const t = transformed_of(&tensor->layout);

    if (!t)
        return 0;
    const struct reorder s = reorder_of(t, &tensor->shape);
    return (size_t)s.frequencies * s.plane * sizeof(float);
}

cvy_status cpu_reorder_winograd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct transformed *const to = transformed_of(&desc->out[0].layout);

    (void)device;
    plan->quiet = true;
    if (!to || desc->in[0].layout.kind != CVY_LAYOUT_PLAIN || desc->in[0].dtype != CVY_F32 ||
        desc->out[0].dtype != CVY_F32)
        return cvy_fail(CVY_UNAVAILABLE, "this kernel transforms weights for Winograd's algorithm only");
    const struct reorder s = reorder_of(to, &desc->in[0].shape);
    return cpu_state(plan, &s, sizeof s);
}

/* The windows of `lanes` channels of the aim from `lane` on, for one of the source: [tap][lane]. */
static void gather(const struct reorder *s, const float *weights, int32_t lane, int32_t source, float *taps)
{
    const int32_t lanes = s->loops->lanes, inputs = s->backward ? s->aims : s->sources;

    for (int32_t l = 0; l < lanes; l++) {
        const int64_t k = s->backward ? source : lane + l, c = s->backward ? lane + l : source;
        const float *const window = weights + (k * inputs + c) * WINOGRAD_TAPS;
        for (int32_t t = 0; t < WINOGRAD_TAPS; t++)
            taps[t * lanes + l] = lane + l < s->aims ? window[s->backward ? WINOGRAD_TAPS - 1 - t : t] : 0;
    }
}

cvy_status cpu_reorder_winograd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                    void *const *out, void *scratch)
{
    const struct reorder *const s = plan->state;
    const int32_t lanes = s->loops->lanes, blocks = s->panels * s->loops->panel_lanes / lanes;
    const size_t panel_lanes = (size_t)s->loops->panel_lanes;

    (void)scratch;
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int32_t b = 0; b < blocks; b++)
        for (int32_t c = 0; c < s->sources; c++) {
            float taps[WINOGRAD_TAPS * CPU_LANES];
            const size_t lane = (size_t)(b * lanes);
            float *const to = (float *)out[0] + (lane / panel_lanes * (size_t)s->sources + (size_t)c) * panel_lanes +
                              lane % panel_lanes;
            gather(s, in[0], (int32_t)lane, c, taps);
            s->loops->weights[s->form](taps, to, s->plane);
        }
    return CVY_OK;
}
