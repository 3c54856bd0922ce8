/* The reference device: host memory, one row of kernels for each op, the optimizer step in double. */
#include "backend/ref/ref.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/resources.h"
#include "ops/ops.h"

static cvy_status open_device(const struct cvy_backend *backend, const char *spec, int threads, cvy_device **device)
{
    cvy_device *opened;

    if (spec)
        return cvy_fail(CVY_USAGE, "device \"ref\" takes nothing after a colon, got %s", cvy_quote(spec));
    opened = cvy_calloc(1, sizeof *opened);
    if (!opened)
        return cvy_fail_memory(sizeof *opened, "a device");
    opened->backend = backend;
    opened->threads = threads > 0 ? threads : cvy_default_threads();
    opened->int8 = true;
    snprintf(opened->description, sizeof opened->description, "reference kernels in plain C, %d thread%s",
             opened->threads, opened->threads == 1 ? "" : "s");
    *device = opened;
    return CVY_OK;
}

static void close_device(cvy_device *device)
{
    cvy_free(device);
}

/* ---- memory ---- */

static cvy_status allocate(cvy_device *device, size_t bytes, void **memory)
{
    (void)device;
    *memory = cvy_calloc_aligned(bytes);
    return *memory ? CVY_OK : cvy_fail_memory(bytes, "tensors");
}

static void release(cvy_device *device, void *memory)
{
    (void)device;
    cvy_free_aligned(memory);
}

static cvy_status copy(cvy_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    memcpy(to, from, bytes);
    return CVY_OK;
}

static cvy_status synchronize(cvy_device *device)
{
    (void)device;
    return CVY_OK;
}

/* ---- kernels ---- */

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct ref_state found = {0}, *state;

    CVY_TRY(ref_prepare_state(desc, &found));
    if (!cvy_size_mul(found.scratch_row, sizeof(double) * (size_t)device->threads, &plan->scratch_bytes))
        return cvy_fail(CVY_NO_MEMORY, "the working memory of kernel %s is too large", plan->kernel->name);
    plan->in_place[0] = cvy_op_in_place(desc->op);
    plan->state = state = cvy_calloc(1, sizeof *state);
    if (!state)
        return cvy_fail_memory(sizeof *state, plan->kernel->name);
    *state = found;
    return CVY_OK;
}

static cvy_status run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                      void *scratch)
{
    const struct ref_state *state = plan->state;
    const struct ref_call call = {&state->desc, in, out, scratch, state->scratch_row, device->threads, device};

    return state->function(&call);
}

static void release_kernel(cvy_device *device, struct cvy_kernel_plan *plan)
{
    (void)device;
    cvy_free(plan->state);
    plan->state = NULL;
}

static cvy_status prepare_int8(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct ref_state *state = plan->state = cvy_calloc(1, sizeof *state);

    (void)device;
    return state ? ref_int8_prepare_state(desc, state) : cvy_fail_memory(sizeof *state, plan->kernel->name);
}

#define CVY_OP_INT8(ID, text, ...)                                                                                     \
    {.op = CVY_OP_##ID, .name = "ref." #text, .prepare = prepare_int8, .run = run, .release = release_kernel},
#define CVY_OP(ID, text, ...)                                                                                          \
    {.op = CVY_OP_##ID, .name = "ref." #text, .prepare = prepare, .run = run, .release = release_kernel},
static const struct cvy_kernel kernels[] = {
#include "graph/ops.def"
};

/* ---- the optimizer ---- */

/* One element; d as in update.h. */
static void update_element(const struct cvy_update *step, int64_t i, double d, double rate)
{
    const double momentum = (double)step->momentum, dampening = (double)step->dampening, alpha = step->alpha;
    double v, s, direction;

    if (step->kind == CVY_UPDATE_RMSPROP) {
        s = alpha * (double)step->square_average[i] + (1 - alpha) * d * d;
        v = momentum * (double)step->momentum_buffer[i] + d / (sqrt(s) + step->epsilon);
        step->square_average[i] = (float)s;
        direction = v;
    } else {
        v = momentum * (double)step->momentum_buffer[i] + (1 - dampening) * d;
        direction = step->nesterov ? d + momentum * v : v;
    }
    step->momentum_buffer[i] = (float)v;
    step->weights[i] = (float)((double)step->weights[i] - rate * direction);
}

static cvy_status update(cvy_device *device, const struct cvy_update *step)
{
    float factor;
    bool take;

    CVY_TRY(cvy_update_check(step));
    take = cvy_update_begin(step, device->threads, &factor);
    for (int32_t s = 0; s < step->segment_count && take; s++) {
        const struct cvy_update_segment *segment = &step->segments[s];
        const double rate = (double)(*step->learning_rate * segment->rate), decay = (double)segment->weight_decay;
#pragma omp parallel for num_threads(device->threads)
        for (int64_t i = segment->first; i < segment->first + segment->count; i++)
            update_element(step, i, (double)step->gradients[i] * (double)factor + decay * (double)step->weights[i],
                           rate);
    }
    if (step->scaler)
        cvy_scaler_update(step->scaler, &step->rule);
    return CVY_OK;
}

static cvy_status combine(cvy_device *device, enum cvy_combine how, float *y, const float *x, int64_t count,
                          const float *share)
{
    const double part = how == CVY_COMBINE_TOWARDS ? (double)*share : 0;

#pragma omp parallel for num_threads(device->threads)
    for (int64_t i = 0; i < count; i++) {
        if (how == CVY_COMBINE_COPY)
            y[i] = x[i];
        else
            y[i] =
                (float)((double)y[i] + (how == CVY_COMBINE_ADD ? (double)x[i] : part * ((double)x[i] - (double)y[i])));
    }
    return CVY_OK;
}

const struct cvy_backend cvy_backend_ref = {
    .name = "ref",
    .open = open_device,
    .close = close_device,
    .allocate = allocate,
    .release = release,
    .upload = copy,
    .download = copy,
    .synchronize = synchronize,
    .update = update,
    .combine = combine,
    .tensor_bytes = ref_tensor_bytes,
    .kernels = kernels,
    .kernel_count = sizeof kernels / sizeof *kernels,
    .host_memory = true,
};
