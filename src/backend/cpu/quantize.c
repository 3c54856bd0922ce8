/* Fake quantisation: the range of a tensor, then its values rounded to 8 bits. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "graph/quantizer.h"

struct quantize {
    struct cvy_fake_quantize_attr attr;
    size_t count;
    int64_t chunks, rows; /* rows: with a scale of their own, or 0 */
    enum cvy_dtype dtype;
    bool updates, needs_range; /* makes a new state; needs the tensor's range */
};

/* Any layout, as long as all images share it. */
static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, uint32_t images,
                          bool forward)
{
    CVY_TRY(cpu_expect_images(desc, images, 1, 0, 0));
    const int64_t elements = cvy_shape_elements(&desc->out[0].shape);
    if (elements < 0)
        return cvy_fail(CVY_UNAVAILABLE, "the tensor has too many elements");
    cpu_agree(cpu_of(device), desc, images, 1);
    cpu_plain(desc, images, 1);
    struct quantize state = {.attr = desc->attr.fake_quantize, .count = (size_t)elements, .dtype = desc->in[0].dtype};
    state.updates = forward && desc->outputs > 1 && cvy_tensor_present(&desc->out[1]);
    state.needs_range = forward && (state.updates || state.attr.weights);
    state.rows = state.attr.channels ? desc->in[0].shape.dim[0] : 0;
    state.chunks = (int64_t)((state.count + CPU_CHUNK - 1) / CPU_CHUNK);
    if (state.needs_range)
        plan->scratch_bytes = (size_t)state.chunks * 2 * sizeof(float);
    return cpu_state(plan, &state, sizeof(state));
}

static size_t chunk_length(const struct quantize *state, int64_t chunk)
{
    const size_t left = state->count - (size_t)chunk * CPU_CHUNK;
    return left < CPU_CHUNK ? left : CPU_CHUNK;
}

cvy_status cpu_fake_quantize_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 0;
    return prepare(device, desc, plan, 1, true);
}

/* `ranges`: room for two numbers of each chunk. */
static void find_range(cvy_device *device, const struct quantize *state, const void *x, float *ranges, float range[2])
{
    const struct cpu_loops *loops = cpu_loops_for(device, state->dtype);
#pragma omp parallel for num_threads(device->threads) schedule(static) if (state->chunks > 1)
    for (int64_t chunk = 0; chunk < state->chunks; chunk++)
        loops->range(cpu_run_of(x, (size_t)chunk * CPU_CHUNK * loops->size), chunk_length(state, chunk),
                     ranges + 2 * chunk);
    range[0] = range[1] = 0;
    for (int64_t chunk = 0; chunk < state->chunks; chunk++) {
        range[0] = ranges[2 * chunk] < range[0] ? ranges[2 * chunk] : range[0];
        range[1] = ranges[2 * chunk + 1] > range[1] ? ranges[2 * chunk + 1] : range[1];
    }
}

/* Weights, each row of which (they are contiguous in every layout) has the scale of its own range. */
static void quantize_rows(cvy_device *device, const struct quantize *state, const struct cvy_levels *all, const void *x,
                          void *y)
{
    const struct cpu_loops *loops = cpu_loops_for(device, state->dtype);
    const size_t length = state->rows ? state->count / (size_t)state->rows : 0;
#pragma omp parallel for num_threads(device->threads) schedule(static) if (state->chunks > 1)
    for (int64_t row = 0; row < state->rows; row++) {
        const size_t at = (size_t)row * length * loops->size;
        float range[2] = {0, 0};
        loops->range(cpu_run_of(x, at), length, range);
        const struct cvy_levels levels = cvy_quantizer_row_levels(all, range[0], range[1]);
        if (levels.scale > 0)
            loops->fake_quantize(cpu_run_at(y, at), cpu_run_of(x, at), length, levels.scale, levels.low, levels.high);
        else if (y != x)
            memcpy(cpu_run_at(y, at), cpu_run_of(x, at), length * loops->size);
    }
}

cvy_status cpu_fake_quantize_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                 void *const *out, void *scratch)
{
    const struct quantize *state = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, state->dtype);
    float now[3], range[2];
    memcpy(now, in[1], sizeof(now));
    if (state->needs_range) {
        const float old[3] = {now[0], now[1], now[2]};
        find_range(device, state, in[0], scratch, range);
        cvy_quantizer_observe(&state->attr, range[0], range[1], state->updates, old, now);
    }
    if (state->updates)
        memcpy(out[1], now, sizeof(now));
    const struct cvy_levels levels = cvy_quantizer_levels(&state->attr, now);
    if (state->attr.channels) {
        quantize_rows(device, state, &levels, in[0], out[0]);
        return CVY_OK;
    }
#pragma omp parallel for num_threads(device->threads) schedule(static) if (state->chunks > 1)
    for (int64_t chunk = 0; chunk < state->chunks; chunk++) {
        const size_t at = (size_t)chunk * CPU_CHUNK * loops->size, length = chunk_length(state, chunk);
        void *const y = cpu_run_at(out[0], at);
        const void *const x = cpu_run_of(in[0], at);
        if (levels.scale > 0)
            loops->fake_quantize(y, x, length, levels.scale, levels.low, levels.high);
        else if (y != x)
            memcpy(y, x, length * loops->size);
    }
    return CVY_OK;
}

cvy_status cpu_fake_quantize_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 2;
    return prepare(device, desc, plan, 1U << 0 | 1U << 2, false);
}

cvy_status cpu_fake_quantize_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                     void *const *out, void *scratch)
{
    (void)scratch;
    const struct quantize *state = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, state->dtype);
    const struct cvy_levels levels = cvy_quantizer_levels(&state->attr, in[1]);
#pragma omp parallel for num_threads(device->threads) schedule(static) if (state->chunks > 1)
    for (int64_t chunk = 0; chunk < state->chunks; chunk++) {
        const size_t at = (size_t)chunk * CPU_CHUNK * loops->size, length = chunk_length(state, chunk);
        void *const dx = cpu_run_at(out[0], at);
        const void *const dy = cpu_run_of(in[2], at);
        if (levels.scale > 0)
            loops->fake_quantize_bwd(dx, cpu_run_of(in[0], at), dy, length, levels.scale, levels.low, levels.high,
                                     state->attr.ends);
        else if (dx != dy)
            memcpy(dx, dy, length * loops->size);
    }
    return CVY_OK;
}
