/* The check backend: "check:cpu" runs every kernel of the cpu device and, on the same inputs, the reference kernel in
 * double, and fails on the first output that is further away than rounding explains. Slow; for finding a wrong kernel.
 *
 * One kernel runs at a time, so all kernels of a device share the buffers that hold their tensors in double. They grow
 * while kernels are prepared. */
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/check_internal.h"
#include "base/error.h"
#include "ops/ops.h"

/* Buffers of a device. */
enum slot {
    SLOT_IN,                                 /* inputs in double */
    SLOT_CHECKED = SLOT_IN + CVY_MAX_INPUTS, /* outputs of the checked kernel in double */
    SLOT_REFERENCE = SLOT_CHECKED + CVY_MAX_OUTPUTS,
    SLOT_SCALE = SLOT_REFERENCE + CVY_MAX_OUTPUTS,
    SLOT_RAW = SLOT_SCALE + CVY_MAX_OUTPUTS, /* a tensor as it comes from the checked device */
    SLOT_SECOND,                             /* another one */
    SLOT_SCRATCH,                            /* of reference kernels */
    SLOT_STAGE,                              /* on the checked device: a tensor in another layout */
    SLOT_STAGE_SCRATCH,                      /* on the checked device: of its reorders */
    SLOT_COUNT
};
enum { SGD_CHUNK = 65536 };

struct buffer {
    void *memory;
    size_t bytes;
};

struct check_device {
    struct cvy_device base;
    cvy_device *inner, *reference;
    struct buffer slots[SLOT_COUNT];
    pthread_mutex_t lock; /* one kernel at a time */
    bool lock_made;
};

static struct check_device *check_of(cvy_device *device)
{
    return (struct check_device *)device;
}

static void *slot(const struct check_device *check, int index)
{
    return check->slots[index].memory;
}

static cvy_status reserve(struct check_device *check, int index, size_t bytes)
{
    cvy_device *owner = index == SLOT_STAGE || index == SLOT_STAGE_SCRATCH ? check->inner : check->reference;
    struct buffer *buffer = &check->slots[index];

    if (bytes <= buffer->bytes)
        return CVY_OK;
    owner->backend->release(owner, buffer->memory);
    *buffer = (struct buffer){NULL, 0};
    CVY_TRY(owner->backend->allocate(owner, bytes, &buffer->memory));
    buffer->bytes = bytes;
    return CVY_OK;
}

/* ---- device ---- */

static void close_device(cvy_device *device)
{
    struct check_device *check = check_of(device);

    if (!check)
        return;
    for (int i = 0; i < SLOT_COUNT; i++) {
        cvy_device *owner = i == SLOT_STAGE || i == SLOT_STAGE_SCRATCH ? check->inner : check->reference;
        if (owner)
            owner->backend->release(owner, check->slots[i].memory);
    }
    cvy_device_close(check->inner);
    cvy_device_close(check->reference);
    if (check->lock_made)
        pthread_mutex_destroy(&check->lock);
    cvy_free(check);
}

static cvy_status open_device(const struct cvy_backend *backend, const char *spec, int threads, cvy_device **device)
{
    struct check_device *check;
    cvy_status status;

    *device = NULL;
    if (!spec || !spec[0] || strncmp(spec, "check", 5) == 0)
        return cvy_fail(CVY_USAGE, "device \"check\" needs the device to check, as in check:cpu");
    check = cvy_calloc(1, sizeof *check);
    if (!check)
        return cvy_fail_memory(sizeof *check, "a device");
    check->base.backend = backend;
    if (pthread_mutex_init(&check->lock, NULL) != 0) {
        status = cvy_fail(CVY_FAILED, "a lock cannot be made");
        goto fail;
    }
    check->lock_made = true;
    CVY_GOTO(cvy_device_open(spec, threads, &check->inner));
    CVY_GOTO(cvy_device_open("ref", threads, &check->reference));
    check->base.threads = check->inner->threads;
    for (int i = SLOT_IN; i < SLOT_IN + 6; i++) /* of the optimizer step */
        CVY_GOTO(reserve(check, i, SGD_CHUNK * sizeof(float)));
    snprintf(check->base.description, sizeof check->base.description, "check of %.*s",
             (int)sizeof check->base.description - 10, check->inner->description);
    *device = &check->base;
    return CVY_OK;
fail:
    close_device(&check->base);
    return status;
}

static cvy_status allocate(cvy_device *device, size_t bytes, void **memory)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->allocate(inner, bytes, memory);
}

static void release(cvy_device *device, void *memory)
{
    cvy_device *inner = check_of(device)->inner;

    inner->backend->release(inner, memory);
}

static cvy_status upload(cvy_device *device, void *to, const void *host, size_t bytes)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->upload(inner, to, host, bytes);
}

static cvy_status download(cvy_device *device, void *host, const void *from, size_t bytes)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->download(inner, host, from, bytes);
}

static cvy_status synchronize(cvy_device *device)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->synchronize(inner);
}

static size_t tensor_bytes(cvy_device *device, const struct cvy_tensor *tensor)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->tensor_bytes(inner, tensor);
}

/* ---- a prepared kernel ---- */

/* The way of one tensor of the checked device into double: a reorder there, then a cast here; each only where needed.
 */
struct way {
    bool present;
    struct cvy_kernel_plan reorder, cast, round; /* round: double to the type, for the reference of exact ops */
    size_t bytes, plain_bytes, double_bytes;     /* on the device; there in plain layout; here in double */
};

struct check_state {
    struct cvy_op_desc desc; /* of the checked kernel */
    struct cvy_op_desc reference_desc;
    struct cvy_kernel_plan checked, reference;
    struct cvy_kernel_plan back; /* REORDER into a layout that only the checked device knows: the way back */
    struct way in[CVY_MAX_INPUTS], out[CVY_MAX_OUTPUTS];
    bool makes_mask; /* in[6] of the reference is a mask made here */
};

static void release_way(struct check_device *check, struct way *way)
{
    cvy_kernel_release(check->inner, &way->reorder);
    cvy_kernel_release(check->reference, &way->cast);
    cvy_kernel_release(check->reference, &way->round);
}

static void release_kernel(cvy_device *device, struct cvy_kernel_plan *plan)
{
    struct check_device *check = check_of(device);
    struct check_state *state = plan->state;

    if (!state)
        return;
    cvy_kernel_release(check->inner, &state->checked);
    cvy_kernel_release(check->inner, &state->back);
    cvy_kernel_release(check->reference, &state->reference);
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        release_way(check, &state->in[i]);
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        release_way(check, &state->out[i]);
    cvy_free(state);
    plan->state = NULL;
}

/* A kernel with one input and one output, and its working memory in slot `scratch`. */
static cvy_status select_conversion(struct check_device *check, cvy_device *device, enum cvy_op op,
                                    const struct cvy_tensor *from, const struct cvy_tensor *to,
                                    struct cvy_kernel_plan *plan)
{
    struct cvy_op_desc desc = {.op = op, .inputs = 1, .outputs = 1};

    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        desc.in[i].shape.rank = -1;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        desc.out[i].shape.rank = -1;
    desc.in[0] = *from;
    desc.out[0] = *to;
    if (op == CVY_OP_CAST)
        desc.attr.cast.dtype = to->dtype;
    CVY_TRY(cvy_kernel_select(device, &desc, plan));
    plan->out_bytes[0] = device->backend->tensor_bytes(device, to);
    return reserve(check, device == check->inner ? SLOT_STAGE_SCRATCH : SLOT_SCRATCH, plan->scratch_bytes);
}

/* From `tensor` on the checked device to `wanted`, what the reference reads or writes. */
static cvy_status prepare_way(struct check_device *check, const struct cvy_tensor *tensor,
                              const struct cvy_tensor *wanted, bool round, struct way *way, int index)
{
    struct cvy_device *inner = check->inner;
    struct cvy_tensor plain = *tensor;

    if (!cvy_tensor_present(tensor))
        return CVY_OK;
    plain.layout = wanted->layout;
    way->present = true;
    way->bytes = inner->backend->tensor_bytes(inner, tensor);
    way->plain_bytes = inner->backend->tensor_bytes(inner, &plain);
    way->double_bytes = check->reference->backend->tensor_bytes(check->reference, wanted);
    if (!way->bytes || !way->plain_bytes || !way->double_bytes)
        return cvy_fail(CVY_NO_MEMORY, "a tensor is too large to be checked");
    if (!cvy_layout_equal(&tensor->layout, &wanted->layout)) {
        CVY_TRY(select_conversion(check, inner, CVY_OP_REORDER, tensor, &plain, &way->reorder));
        CVY_TRY(reserve(check, SLOT_STAGE, way->plain_bytes));
    }
    if (tensor->dtype != wanted->dtype) {
        CVY_TRY(select_conversion(check, check->reference, CVY_OP_CAST, &plain, wanted, &way->cast));
        if (round)
            CVY_TRY(select_conversion(check, check->reference, CVY_OP_CAST, wanted, &plain, &way->round));
    }
    CVY_TRY(reserve(check, SLOT_RAW, way->bytes > way->plain_bytes ? way->bytes : way->plain_bytes));
    return reserve(check, index, way->double_bytes);
}

static cvy_status reserve_outputs(struct check_device *check, const struct check_state *state)
{
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
        const int64_t elements = state->out[i].present ? cvy_shape_elements(&state->desc.out[i].shape) : 0;
        CVY_TRY(reserve(check, SLOT_REFERENCE + i, state->out[i].double_bytes));
        CVY_TRY(reserve(check, SLOT_SCALE + i, (size_t)elements * sizeof(double)));
    }
    return CVY_OK;
}

/* The reference in double for what the checked kernel does in its own type. */
static cvy_status prepare_reference(struct check_device *check, struct check_state *state)
{
    struct cvy_op_desc *desc = &state->reference_desc;
    const enum cvy_op op = state->desc.op;
    const bool round = check_scale_kind(op) == CHECK_EXACT || op == CVY_OP_BATCH_NORM_BWD; /* dresidual */

    *desc = state->desc;
    for (int i = 0; i < CVY_MAX_INPUTS; i++) {
        if (cvy_tensor_present(&desc->in[i]) && cvy_dtype_is_float(desc->in[i].dtype))
            desc->in[i].dtype = CVY_F64;
    }
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
        if (cvy_tensor_present(&desc->out[i]) && cvy_dtype_is_float(desc->out[i].dtype))
            desc->out[i].dtype = CVY_F64;
    }
    state->makes_mask =
        desc->op == CVY_OP_BATCH_NORM_BWD && desc->attr.batch_norm.relu && !cvy_tensor_present(&desc->in[6]);
    if (state->makes_mask) {
        desc->in[6] = desc->in[0];
        if (desc->inputs < 7)
            desc->inputs = 7;
    }
    CVY_TRY(cvy_kernel_select(check->reference, desc, &state->reference));
    CVY_TRY(reserve(check, SLOT_SCRATCH, state->reference.scratch_bytes));
    for (int i = 0; i < state->desc.inputs; i++)
        CVY_TRY(prepare_way(check, &state->desc.in[i], &desc->in[i], false, &state->in[i], SLOT_IN + i));
    for (int i = 0; i < state->desc.outputs; i++)
        CVY_TRY(prepare_way(check, &state->desc.out[i], &desc->out[i], round, &state->out[i], SLOT_CHECKED + i));
    if (state->makes_mask)
        CVY_TRY(reserve(check, SLOT_IN + 6, state->in[0].double_bytes));
    return reserve_outputs(check, state);
}

/* A reorder moves bytes: the reference moves them too, or, in layouts it does not know, the checked device moves them
 * back. */
static cvy_status prepare_reorder(struct check_device *check, struct check_state *state)
{
    const struct cvy_tensor *from = &state->desc.in[0], *to = &state->desc.out[0];
    const size_t in_bytes = check->inner->backend->tensor_bytes(check->inner, from);
    const size_t out_bytes = check->inner->backend->tensor_bytes(check->inner, to);
    cvy_status status;

    state->in[0].bytes = in_bytes;
    state->out[0].bytes = out_bytes;
    CVY_TRY(reserve(check, SLOT_RAW, in_bytes));
    CVY_TRY(reserve(check, SLOT_SECOND, in_bytes > out_bytes ? in_bytes : out_bytes));
    CVY_TRY(reserve(check, SLOT_CHECKED, out_bytes));
    state->reference_desc = state->desc;
    status = cvy_kernel_select(check->reference, &state->reference_desc, &state->reference);
    if (status == CVY_OK)
        return reserve(check, SLOT_SCRATCH, state->reference.scratch_bytes);
    if (status != CVY_UNAVAILABLE)
        return status;
    CVY_TRY(reserve(check, SLOT_STAGE, in_bytes));
    return select_conversion(check, check->inner, CVY_OP_REORDER, to, from, &state->back);
}

/* "cpu.conv2d jit:avx512_core", cut to fit. */
static void name_checked(const struct cvy_kernel_plan *checked, char *text, int size)
{
    int used = snprintf(text, (size_t)size, "%.*s", size - 1, checked->kernel->name);

    if (checked->implementation[0] && used < size - 2)
        snprintf(text + used, (size_t)(size - used), " %.*s", size - used - 2, checked->implementation);
}

static cvy_status prepare_locked(struct check_device *check, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct check_state *state = plan->state = cvy_calloc(1, sizeof *state);

    if (!state)
        return cvy_fail_memory(sizeof *state, plan->kernel->name);
    CVY_TRY(cvy_kernel_select(check->inner, desc, &state->checked));
    for (int i = 0; i < desc->outputs; i++) {
        if (cvy_tensor_present(&desc->out[i]))
            state->checked.out_bytes[i] = check->inner->backend->tensor_bytes(check->inner, &desc->out[i]);
    }
    plan->scratch_bytes = state->checked.scratch_bytes;
    memcpy(plan->in_place, state->checked.in_place, sizeof plan->in_place);
    name_checked(&state->checked, plan->implementation, (int)sizeof plan->implementation);
    state->desc = *desc;
    if (desc->op == CVY_OP_REORDER)
        return prepare_reorder(check, state);
    return prepare_reference(check, state);
}

static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct check_device *check = check_of(device);
    cvy_status status;

    pthread_mutex_lock(&check->lock);
    status = prepare_locked(check, desc, plan);
    pthread_mutex_unlock(&check->lock);
    return status;
}

/* ---- running ---- */

static cvy_status convert(cvy_device *device, const struct cvy_kernel_plan *plan, void *from, void *to, void *scratch)
{
    void *const in[CVY_MAX_INPUTS] = {from};
    void *const out[CVY_MAX_OUTPUTS] = {to};

    return plan->kernel->run(device, plan, in, out, scratch);
}

/* Bring a tensor from the checked device into `to`, in double. */
static cvy_status fetch(struct check_device *check, const struct way *way, void *from, void *to)
{
    cvy_device *inner = check->inner;

    if (way->reorder.kernel) {
        CVY_TRY(convert(inner, &way->reorder, from, slot(check, SLOT_STAGE), slot(check, SLOT_STAGE_SCRATCH)));
        from = slot(check, SLOT_STAGE);
    }
    if (!way->cast.kernel)
        return inner->backend->download(inner, to, from, way->plain_bytes);
    CVY_TRY(inner->backend->download(inner, slot(check, SLOT_RAW), from, way->plain_bytes));
    return convert(check->reference, &way->cast, slot(check, SLOT_RAW), to, slot(check, SLOT_SCRATCH));
}

/* Outputs that are not the memory of an input become NaN (255 as bytes), so that a hole shows. */
static cvy_status poison(struct check_device *check, const struct check_state *state, void *const *in, void *const *out)
{
    for (int i = 0; i < state->desc.outputs; i++) {
        bool shared = !out[i];
        for (int j = 0; j < state->desc.inputs && !shared; j++)
            shared = in[j] == out[i];
        if (shared)
            continue;
        memset(slot(check, SLOT_RAW), 0xff, state->out[i].bytes);
        CVY_TRY(check->inner->backend->upload(check->inner, out[i], slot(check, SLOT_RAW), state->out[i].bytes));
    }
    return CVY_OK;
}

static cvy_status disagrees(const struct check_state *state, int index, const char *what)
{
    const struct cvy_kernel_plan *checked = &state->checked;
    char text[96];

    return cvy_fail(CVY_FAILED, "kernel %s%s%s%s disagrees with ref: output %d of %s %s%s", checked->kernel->name,
                    checked->implementation[0] ? " (" : "", checked->implementation,
                    checked->implementation[0] ? ")" : "", index, cvy_ops[state->desc.op].name,
                    cvy_shape_text(&state->desc.out[index].shape, text), what);
}

static cvy_status run_checked(struct check_device *check, const struct check_state *state, void *const *in,
                              void *const *out, void *scratch)
{
    CVY_TRY(poison(check, state, in, out));
    CVY_TRY(state->checked.kernel->run(check->inner, &state->checked, in, out, scratch));
    return check->inner->backend->synchronize(check->inner);
}

static cvy_status run_reference(struct check_device *check, const struct check_state *state, void *const *in,
                                void *const *out)
{
    return state->reference.kernel->run(check->reference, &state->reference, in, out, slot(check, SLOT_SCRATCH));
}

/* The results of the reference, and the scales of the comparison. The inputs are spoilt afterwards. */
static cvy_status compute_reference(struct check_device *check, const struct check_state *state,
                                    struct check_case *item)
{
    if (state->makes_mask) {
        item->in[6] = slot(check, SLOT_IN + 6);
        check_fill_mask(item, item->in[6]);
    }
    CVY_TRY(run_reference(check, state, item->in, item->reference));
    if (state->makes_mask && check_follow_mask(item, item->in[6]))
        CVY_TRY(run_reference(check, state, item->in, item->reference));
    if (check_scale_kind(state->desc.op) == CHECK_FORMULA) {
        check_fill_scales(item);
    } else if (check_scale_kind(state->desc.op) == CHECK_ABSOLUTE) {
        void *scales[CVY_MAX_OUTPUTS];
        for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
            scales[i] = item->scale[i];
        check_make_absolute(item);
        CVY_TRY(run_reference(check, state, item->in, scales));
    }
    for (int i = 0; i < state->desc.outputs; i++) {
        const bool exact = check_scale_kind(state->desc.op) == CHECK_EXACT || i == 3; /* dresidual */
        if (!exact || !state->out[i].round.kernel)
            continue;
        CVY_TRY(convert(check->reference, &state->out[i].round, item->reference[i], slot(check, SLOT_RAW),
                        slot(check, SLOT_SCRATCH)));
        CVY_TRY(convert(check->reference, &state->out[i].cast, slot(check, SLOT_RAW), item->reference[i],
                        slot(check, SLOT_SCRATCH)));
    }
    return CVY_OK;
}

static cvy_status run_compared(struct check_device *check, const struct check_state *state, void *const *in,
                               void *const *out, void *scratch)
{
    struct check_case item = {.desc = &state->desc};

    for (int i = 0; i < state->desc.inputs; i++) {
        if (!state->in[i].present)
            continue;
        item.in[i] = slot(check, SLOT_IN + i);
        CVY_TRY(fetch(check, &state->in[i], in[i], item.in[i]));
    }
    CVY_TRY(run_checked(check, state, in, out, scratch));
    for (int i = 0; i < state->desc.outputs; i++) {
        if (!state->out[i].present)
            continue;
        item.checked[i] = slot(check, SLOT_CHECKED + i);
        item.reference[i] = slot(check, SLOT_REFERENCE + i);
        item.scale[i] = slot(check, SLOT_SCALE + i);
        CVY_TRY(fetch(check, &state->out[i], out[i], item.checked[i]));
    }
    CVY_TRY(compute_reference(check, state, &item));
    for (int i = 0; i < state->desc.outputs; i++) {
        double error, limit;
        char what[80];
        if (!state->out[i].present || check_judge(&item, i, &error, &limit))
            continue;
        snprintf(what, sizeof what, ", relative rms error %.3g, limit %.3g", error, limit);
        return disagrees(state, i, what);
    }
    return CVY_OK;
}

static cvy_status run_reorder(struct check_device *check, const struct check_state *state, void *const *in,
                              void *const *out, void *scratch)
{
    const struct cvy_backend *backend = check->inner->backend;
    const size_t in_bytes = state->in[0].bytes, out_bytes = state->out[0].bytes;
    void *before = slot(check, SLOT_RAW), *second = slot(check, SLOT_SECOND), *after = slot(check, SLOT_CHECKED);
    bool equal;

    memset(after, 0xff, out_bytes);
    CVY_TRY(backend->download(check->inner, before, in[0], in_bytes));
    CVY_TRY(backend->upload(check->inner, out[0], after, out_bytes));
    CVY_TRY(state->checked.kernel->run(check->inner, &state->checked, in, out, scratch));
    if (state->back.kernel) {
        CVY_TRY(convert(check->inner, &state->back, out[0], slot(check, SLOT_STAGE), slot(check, SLOT_STAGE_SCRATCH)));
        CVY_TRY(backend->download(check->inner, second, slot(check, SLOT_STAGE), in_bytes));
        equal = memcmp(before, second, in_bytes) == 0;
    } else {
        CVY_TRY(backend->download(check->inner, after, out[0], out_bytes));
        CVY_TRY(convert(check->reference, &state->reference, before, second, slot(check, SLOT_SCRATCH)));
        equal = memcmp(after, second, out_bytes) == 0;
    }
    return equal ? CVY_OK : disagrees(state, 0, ", the bytes differ");
}

static cvy_status run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                      void *scratch)
{
    struct check_device *check = check_of(device);
    const struct check_state *state = plan->state;
    cvy_status status;

    pthread_mutex_lock(&check->lock);
    if (state->desc.op == CVY_OP_REORDER)
        status = run_reorder(check, state, in, out, scratch);
    else
        status = run_compared(check, state, in, out, scratch);
    pthread_mutex_unlock(&check->lock);
    return status;
}

/* ---- the optimizer ---- */

/* One chunk of one segment: the step on the checked device, then here from what was there before. */
static cvy_status check_step(struct check_device *check, const struct cvy_sgd *step, const struct cvy_sgd_segment *part)
{
    cvy_device *inner = check->inner;
    const size_t bytes = (size_t)part->count * sizeof(float);
    float *before_weights = slot(check, SLOT_IN), *before_momentum = slot(check, SLOT_IN + 1);
    float *gradients = slot(check, SLOT_IN + 2), *weights = slot(check, SLOT_IN + 3);
    float *momentum = slot(check, SLOT_IN + 4);
    struct cvy_sgd one = *step;
    double difference[2] = {0, 0}, size[2] = {0, 0};
    /* Five roundings on the way to a weight. */
    const double limit = 5 * check_unit(CVY_F32);

    one.segments = part;
    one.segment_count = 1;
    CVY_TRY(inner->backend->download(inner, before_weights, step->weights + part->first, bytes));
    CVY_TRY(inner->backend->download(inner, before_momentum, step->momentum_buffer + part->first, bytes));
    CVY_TRY(inner->backend->download(inner, gradients, step->gradients + part->first, bytes));
    CVY_TRY(inner->backend->sgd(inner, &one));
    CVY_TRY(inner->backend->download(inner, weights, step->weights + part->first, bytes));
    CVY_TRY(inner->backend->download(inner, momentum, step->momentum_buffer + part->first, bytes));
    for (int64_t i = 0; i < part->count; i++) {
        const double w = (double)before_weights[i], rate = (double)part->learning_rate;
        const double gradient = (double)gradients[i] * (double)step->gradient_scale;
        const double decay = (double)part->weight_decay * w, d = gradient + decay;
        const double kept = (double)step->momentum * (double)before_momentum[i];
        const double v = kept + (1 - (double)step->dampening) * d;
        const double change = step->nesterov ? d + (double)step->momentum * v : v;
        const double v_size = fabs(kept) + fabs(gradient) + fabs(decay);
        const double w_size = fabs(w) + rate * (v_size + (step->nesterov ? fabs(gradient) + fabs(decay) : 0));
        difference[0] += pow((double)momentum[i] - v, 2);
        difference[1] += pow((double)weights[i] - (w - rate * change), 2);
        size[0] += v_size * v_size;
        size[1] += w_size * w_size;
    }
    for (int i = 0; i < 2; i++) {
        /* A NaN that was there before is no fault of the step. */
        if (difference[i] > limit * limit * size[i])
            return cvy_fail(
                CVY_FAILED,
                "the sgd step of %s disagrees with ref: %s %lld to %lld, relative rms error %.3g, limit %.3g",
                inner->backend->name, i ? "weights" : "momentum", (long long)part->first,
                (long long)(part->first + part->count - 1), sqrt(difference[i] / size[i]), limit);
    }
    return CVY_OK;
}

static cvy_status sgd(cvy_device *device, const struct cvy_sgd *step)
{
    struct check_device *check = check_of(device);
    cvy_status status = CVY_OK;

    pthread_mutex_lock(&check->lock);
    for (int32_t s = 0; s < step->segment_count && status == CVY_OK; s++) {
        struct cvy_sgd_segment part = step->segments[s];
        const int64_t end = part.first + part.count;
        for (; part.first < end && status == CVY_OK; part.first += SGD_CHUNK) {
            part.count = end - part.first < SGD_CHUNK ? end - part.first : SGD_CHUNK;
            status = check_step(check, step, &part);
        }
    }
    pthread_mutex_unlock(&check->lock);
    return status;
}

/* ---- the table ---- */

#define ROW(op, name)                                                                                                  \
    {                                                                                                                  \
        "check." name, op, prepare, run, release_kernel                                                                \
    }
static const struct cvy_kernel kernels[] = {
    ROW(CVY_OP_NORMALIZE, "normalize"),
    ROW(CVY_OP_CAST, "cast"),
    ROW(CVY_OP_REORDER, "reorder"),
    ROW(CVY_OP_CONV2D, "conv2d"),
    ROW(CVY_OP_CONV2D_BWD_DATA, "conv2d_bwd_data"),
    ROW(CVY_OP_CONV2D_BWD_WEIGHTS, "conv2d_bwd_weights"),
    ROW(CVY_OP_CONV2D_BWD_BIAS, "conv2d_bwd_bias"),
    ROW(CVY_OP_BATCH_NORM, "batch_norm"),
    ROW(CVY_OP_BATCH_NORM_BWD, "batch_norm_bwd"),
    ROW(CVY_OP_BATCH_NORM_APPLY, "batch_norm_apply"),
    ROW(CVY_OP_BATCH_NORM_INFERENCE, "batch_norm_inference"),
    ROW(CVY_OP_FOLD_BATCH_NORM, "fold_batch_norm"),
    ROW(CVY_OP_RELU, "relu"),
    ROW(CVY_OP_RELU_BWD, "relu_bwd"),
    ROW(CVY_OP_ADD, "add"),
    ROW(CVY_OP_MAX_POOL, "max_pool"),
    ROW(CVY_OP_MAX_POOL_BWD, "max_pool_bwd"),
    ROW(CVY_OP_GLOBAL_AVG_POOL, "global_avg_pool"),
    ROW(CVY_OP_GLOBAL_AVG_POOL_BWD, "global_avg_pool_bwd"),
    ROW(CVY_OP_LINEAR, "linear"),
    ROW(CVY_OP_LINEAR_BWD_DATA, "linear_bwd_data"),
    ROW(CVY_OP_LINEAR_BWD_WEIGHTS, "linear_bwd_weights"),
    ROW(CVY_OP_SOFTMAX, "softmax"),
    ROW(CVY_OP_SOFTMAX_CROSS_ENTROPY, "softmax_cross_entropy"),
    ROW(CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD, "softmax_cross_entropy_bwd"),
};

const struct cvy_backend cvy_backend_check = {
    .name = "check",
    .open = open_device,
    .close = close_device,
    .allocate = allocate,
    .release = release,
    .upload = upload,
    .download = download,
    .synchronize = synchronize,
    .sgd = sgd,
    .tensor_bytes = tensor_bytes,
    .kernels = kernels,
    .kernel_count = sizeof kernels / sizeof *kernels,
    .host_memory = false, /* that depends on the device it checks */
};
