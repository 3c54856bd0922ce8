/* Kernels of the check backend: each runs a kernel of the checked device, then the reference on the same inputs. */
#include <stdio.h>
#include <string.h>

#include "backend/check_internal.h"
#include "base/error.h"
#include "ops/ops.h"

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
    struct cvy_kernel_plan scales; /* the reference for sums of absolute values, without a ceiling */
    struct cvy_kernel_plan back;   /* REORDER into a layout that only the checked device knows: the way back */
    struct way in[CVY_MAX_INPUTS], out[CVY_MAX_OUTPUTS];
    bool makes_mask; /* in[6] of the reference is a mask made here */
};

static void release_way(struct check_device *check, struct way *way)
{
    cvy_kernel_release(check->inner, &way->reorder);
    cvy_kernel_release(check->reference, &way->cast);
    cvy_kernel_release(check->reference, &way->round);
}

void check_release(cvy_device *device, struct cvy_kernel_plan *plan)
{
    struct check_device *check = check_of(device);
    struct check_state *state = plan->state;

    if (!state)
        return;
    cvy_kernel_release(check->inner, &state->checked);
    cvy_kernel_release(check->inner, &state->back);
    cvy_kernel_release(check->reference, &state->reference);
    cvy_kernel_release(check->reference, &state->scales);
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
    return check_reserve(check, device == check->inner ? SLOT_STAGE_SCRATCH : SLOT_SCRATCH, plan->scratch_bytes);
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
        CVY_TRY(check_reserve(check, SLOT_STAGE, way->plain_bytes));
    }
    if (tensor->dtype != wanted->dtype) {
        CVY_TRY(select_conversion(check, check->reference, CVY_OP_CAST, &plain, wanted, &way->cast));
        if (round)
            CVY_TRY(select_conversion(check, check->reference, CVY_OP_CAST, wanted, &plain, &way->round));
    }
    CVY_TRY(check_reserve(check, SLOT_RAW, way->bytes > way->plain_bytes ? way->bytes : way->plain_bytes));
    return check_reserve(check, index, way->double_bytes);
}

static cvy_status reserve_outputs(struct check_device *check, const struct check_state *state)
{
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
        const int64_t elements = state->out[i].present ? cvy_shape_elements(&state->desc.out[i].shape) : 0;
        CVY_TRY(check_reserve(check, SLOT_REFERENCE + i, state->out[i].double_bytes));
        CVY_TRY(check_reserve(check, SLOT_SCALE + i, (size_t)elements * sizeof(double)));
    }
    return CVY_OK;
}

/* ReLU leaves a sum of absolute values as it is, ReLU6 would cut it. */
static cvy_status prepare_scales(struct check_device *check, struct check_state *state)
{
    struct cvy_op_desc desc = state->reference_desc;

    if (check_kind(&state->desc) != CVY_CHECK_ABSOLUTE)
        return CVY_OK;
    if (desc.op == CVY_OP_CONV2D)
        desc.attr.conv2d.activation = CVY_ACTIVATION_NONE;
    else if (desc.op == CVY_OP_BATCH_NORM_APPLY || desc.op == CVY_OP_BATCH_NORM_INFERENCE)
        desc.attr.batch_norm.activation = CVY_ACTIVATION_NONE;
    return cvy_kernel_select(check->reference, &desc, &state->scales);
}

/* The reference in double for what the checked kernel does in its own type. Of integer inference it has the same types:
 * every device gives the same bytes. */
static cvy_status prepare_reference(struct check_device *check, struct check_state *state)
{
    struct cvy_op_desc *desc = &state->reference_desc;
    const enum cvy_op op = state->desc.op;
    const bool round = check_kind(&state->desc) == CVY_CHECK_EXACT || op == CVY_OP_BATCH_NORM_BWD; /* dresidual */

    *desc = state->desc;
    for (int i = 0; i < CVY_MAX_INPUTS; i++) {
        if (cvy_tensor_present(&desc->in[i]) && cvy_dtype_is_float(desc->in[i].dtype) && !cvy_ops[op].int8)
            desc->in[i].dtype = CVY_F64;
    }
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
        if (cvy_tensor_present(&desc->out[i]) && cvy_dtype_is_float(desc->out[i].dtype) && !cvy_ops[op].int8)
            desc->out[i].dtype = CVY_F64;
    }
    state->makes_mask =
        desc->op == CVY_OP_BATCH_NORM_BWD && desc->attr.batch_norm.activation && !cvy_tensor_present(&desc->in[6]);
    if (state->makes_mask) {
        desc->in[6] = desc->in[0];
        if (desc->inputs < 7)
            desc->inputs = 7;
    }
    CVY_TRY(cvy_kernel_select(check->reference, desc, &state->reference));
    CVY_TRY(prepare_scales(check, state));
    CVY_TRY(check_reserve(check, SLOT_SCRATCH, state->reference.scratch_bytes));
    for (int i = 0; i < state->desc.inputs; i++)
        CVY_TRY(prepare_way(check, &state->desc.in[i], &desc->in[i], false, &state->in[i], SLOT_IN + i));
    for (int i = 0; i < state->desc.outputs; i++)
        CVY_TRY(prepare_way(check, &state->desc.out[i], &desc->out[i], round, &state->out[i], SLOT_CHECKED + i));
    if (state->makes_mask)
        CVY_TRY(check_reserve(check, SLOT_IN + 6, state->in[0].double_bytes));
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
    CVY_TRY(check_reserve(check, SLOT_RAW, in_bytes));
    CVY_TRY(check_reserve(check, SLOT_SECOND, in_bytes > out_bytes ? in_bytes : out_bytes));
    CVY_TRY(check_reserve(check, SLOT_CHECKED, out_bytes));
    state->reference_desc = state->desc;
    status = cvy_kernel_select(check->reference, &state->reference_desc, &state->reference);
    if (status == CVY_OK)
        return check_reserve(check, SLOT_SCRATCH, state->reference.scratch_bytes);
    if (status != CVY_UNAVAILABLE)
        return status;
    CVY_TRY(check_reserve(check, SLOT_STAGE, in_bytes));
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
    check->inner->tf32 = check->base.tf32;
    CVY_TRY(cvy_kernel_select(check->inner, desc, &state->checked));
    for (int i = 0; i < desc->outputs; i++) {
        if (cvy_tensor_present(&desc->out[i]))
            state->checked.out_bytes[i] = check->inner->backend->tensor_bytes(check->inner, &desc->out[i]);
    }
    plan->scratch_bytes = state->checked.scratch_bytes;
    memcpy(plan->in_place, state->checked.in_place, sizeof plan->in_place);
    name_checked(&state->checked, plan->implementation, (int)sizeof plan->implementation);
    memcpy(plan->reason, state->checked.reason, sizeof plan->reason);
    state->desc = *desc;
    if (desc->op == CVY_OP_REORDER)
        return prepare_reorder(check, state);
    return prepare_reference(check, state);
}

cvy_status check_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
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
        CVY_TRY(
            convert(inner, &way->reorder, from, check_slot(check, SLOT_STAGE), check_slot(check, SLOT_STAGE_SCRATCH)));
        from = check_slot(check, SLOT_STAGE);
    }
    if (!way->cast.kernel)
        return inner->backend->download(inner, to, from, way->plain_bytes);
    CVY_TRY(inner->backend->download(inner, check_slot(check, SLOT_RAW), from, way->plain_bytes));
    return convert(check->reference, &way->cast, check_slot(check, SLOT_RAW), to, check_slot(check, SLOT_SCRATCH));
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
        memset(check_slot(check, SLOT_RAW), 0xff, state->out[i].bytes);
        CVY_TRY(check->inner->backend->upload(check->inner, out[i], check_slot(check, SLOT_RAW), state->out[i].bytes));
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

static cvy_status run_reference(struct check_device *check, const struct cvy_kernel_plan *reference, void *const *in,
                                void *const *out)
{
    return reference->kernel->run(check->reference, reference, in, out, check_slot(check, SLOT_SCRATCH));
}

/* The results of the reference, and the scales of the comparison. The inputs are spoilt afterwards. */
static cvy_status compute_reference(struct check_device *check, const struct check_state *state,
                                    struct check_case *item)
{
    if (state->makes_mask) {
        item->in[6] = check_slot(check, SLOT_IN + 6);
        check_fill_mask(item, item->in[6]);
    }
    CVY_TRY(run_reference(check, &state->reference, item->in, item->reference));
    if (state->makes_mask && check_follow_mask(item, item->in[6]))
        CVY_TRY(run_reference(check, &state->reference, item->in, item->reference));
    if (check_kind(&state->desc) == CVY_CHECK_FORMULA || check_kind(&state->desc) == CVY_CHECK_RESULT) {
        check_fill_scales(item);
    } else if (check_kind(&state->desc) == CVY_CHECK_ABSOLUTE) {
        void *scales[CVY_MAX_OUTPUTS];
        for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
            scales[i] = item->scale[i];
        check_make_absolute(item);
        CVY_TRY(run_reference(check, &state->scales, item->in, scales));
        if (state->desc.op == CVY_OP_CONV2D && item->scale[2])
            check_scale_variance(item);
    }
    for (int i = 0; i < state->desc.outputs; i++) {
        const bool exact = check_kind(&state->desc) == CVY_CHECK_EXACT || i == 3; /* dresidual */
        if (!exact || !state->out[i].round.kernel)
            continue;
        CVY_TRY(convert(check->reference, &state->out[i].round, item->reference[i], check_slot(check, SLOT_RAW),
                        check_slot(check, SLOT_SCRATCH)));
        CVY_TRY(convert(check->reference, &state->out[i].cast, check_slot(check, SLOT_RAW), item->reference[i],
                        check_slot(check, SLOT_SCRATCH)));
    }
    return CVY_OK;
}

/* Relative roundings of a GPU's products beyond those of sums in single precision. */
static double coarseness_of(const cvy_device *device, const struct cvy_op_desc *desc)
{
    const enum cvy_op op = desc->op;
    const bool convolves = op == CVY_OP_CONV2D || op == CVY_OP_CONV2D_BWD_DATA || op == CVY_OP_CONV2D_BWD_WEIGHTS;
    const bool multiplies = op == CVY_OP_LINEAR || op == CVY_OP_LINEAR_BWD_DATA || op == CVY_OP_LINEAR_BWD_WEIGHTS;

    if (!device->gpu)
        return 0;
    if (op == CVY_OP_CONV2D_BWD_WEIGHTS && desc->in[0].dtype != CVY_F32)
        return check_unit(desc->in[0].dtype); /* gradients of weights come out in the type of the images */
    if (device->tf32 && (convolves || multiplies) && desc->in[0].dtype == CVY_F32)
        return 2 * check_unit(CVY_F16); /* both factors have as many digits as f16 */
    return 0;
}

/* Winograd's transforms add up to 6 numbers with factors up to 5, twice on the way in and once on the way out:
 * roundings that do not become fewer where the sum itself is short. */
static double coarseness_of_transforms(const struct check_state *state)
{
    return strstr(state->checked.kernel->name, "winograd") ? 6 * check_unit(CVY_F32) : 0;
}

/* Kernels of integer inference give the same bytes. */
static cvy_status compare_bytes(struct check_device *check, const struct check_state *state,
                                const struct check_case *item)
{
    CVY_TRY(run_reference(check, &state->reference, item->in, item->reference));
    for (int i = 0; i < state->desc.outputs; i++) {
        if (state->out[i].present && memcmp(item->checked[i], item->reference[i], state->out[i].plain_bytes) != 0)
            return disagrees(state, i, ", the bytes differ");
    }
    return CVY_OK;
}

static cvy_status run_compared(struct check_device *check, const struct check_state *state, void *const *in,
                               void *const *out, void *scratch)
{
    struct check_case item = {.desc = &state->desc,
                              .coarseness =
                                  coarseness_of(check->inner, &state->desc) + coarseness_of_transforms(state)};

    for (int i = 0; i < state->desc.inputs; i++) {
        if (!state->in[i].present)
            continue;
        item.in[i] = check_slot(check, SLOT_IN + i);
        CVY_TRY(fetch(check, &state->in[i], in[i], item.in[i]));
    }
    CVY_TRY(run_checked(check, state, in, out, scratch));
    for (int i = 0; i < state->desc.outputs; i++) {
        if (!state->out[i].present)
            continue;
        item.checked[i] = check_slot(check, SLOT_CHECKED + i);
        item.reference[i] = check_slot(check, SLOT_REFERENCE + i);
        item.scale[i] = check_slot(check, SLOT_SCALE + i);
        CVY_TRY(fetch(check, &state->out[i], out[i], item.checked[i]));
    }
    if (cvy_ops[state->desc.op].int8)
        return compare_bytes(check, state, &item);
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
    void *before = check_slot(check, SLOT_RAW), *second = check_slot(check, SLOT_SECOND),
         *after = check_slot(check, SLOT_CHECKED);
    bool equal;

    memset(after, 0xff, out_bytes);
    CVY_TRY(backend->download(check->inner, before, in[0], in_bytes));
    CVY_TRY(backend->upload(check->inner, out[0], after, out_bytes));
    CVY_TRY(state->checked.kernel->run(check->inner, &state->checked, in, out, scratch));
    if (state->back.kernel) {
        CVY_TRY(convert(check->inner, &state->back, out[0], check_slot(check, SLOT_STAGE),
                        check_slot(check, SLOT_STAGE_SCRATCH)));
        CVY_TRY(backend->download(check->inner, second, check_slot(check, SLOT_STAGE), in_bytes));
        equal = memcmp(before, second, in_bytes) == 0;
    } else {
        CVY_TRY(backend->download(check->inner, after, out[0], out_bytes));
        CVY_TRY(convert(check->reference, &state->reference, before, second, check_slot(check, SLOT_SCRATCH)));
        equal = memcmp(after, second, out_bytes) == 0;
    }
    return equal ? CVY_OK : disagrees(state, 0, ", the bytes differ");
}

cvy_status check_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
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
