/* Rows of the detector's ops. */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"
#include "ops/anchors.h"

static cvy_status expect_integers(const struct cvy_tensor *tensor)
{
    if (tensor->dtype != CVY_I32)
        return cvy_fail(CVY_UNAVAILABLE, "labels, classes and counts are i32, not %s", cvy_dtype_name(tensor->dtype));
    return CVY_OK;
}

/* A grid of blocks has this many images at most. */
static cvy_status expect_images(int64_t images)
{
    if (images > 65535)
        return cvy_fail(CVY_UNAVAILABLE, "%lld images are too many (65535 at most)", (long long)images);
    return CVY_OK;
}

/* ---- matching ---- */

cvy_status gpu_detection_match_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    enum cvy_dtype dtype;
    struct gpu_match match = {.grid = cvy_anchors_grid(&desc->attr.anchors),
                              .images = desc->in[0].shape.dim[0],
                              .rows = desc->in[0].shape.dim[1]};

    (void)device;
    CVY_TRY(expect_integers(&desc->in[1]));
    CVY_TRY(expect_integers(&desc->out[0]));
    CVY_TRY(expect_images(match.images));
    CVY_TRY(gpu_expect(desc, 0, 0, 1U << 1, 1U << 0, &dtype));
    gpu_lay_out(desc, 0, 0);
    plan->scratch_bytes = (size_t)gpu_match_scratch(&match) * sizeof(float);
    plan->extra_launches = 3;
    return gpu_state(plan, &match, sizeof match);
}

cvy_status gpu_detection_match_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    struct gpu_match match = *(const struct gpu_match *)plan->state;

    match.boxes = in[0];
    match.labels = in[1];
    match.classes = out[0];
    match.targets = out[1];
    match.positives = out[2];
    gpu_detection_match(gpu_of(device)->stream, &match, scratch);
    return gpu_queued(gpu_of(device));
}

/* ---- losses ---- */

/* `classes`: the input that holds them; positives and then the loss' gradient follow. */
static cvy_status loss_prepare(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, int classes, bool backward)
{
    const int64_t *dim = desc->in[0].shape.dim;
    struct gpu_predictions what = {.anchors = dim[0] * dim[1], .columns = dim[2]};

    CVY_TRY(expect_integers(&desc->in[classes]));
    CVY_TRY(gpu_expect(desc, 1U << 0, backward ? 1U << 0 : 0, 1U << classes, 0, &what.dtype));
    gpu_lay_out(desc, 0, 0);
    if (backward)
        plan->in_place[0] = 0;
    else
        plan->scratch_bytes = GPU_LOSS_BLOCKS * sizeof(float);
    plan->extra_launches = backward ? 0 : 1; /* the sum of the blocks' */
    return gpu_state(plan, &what, sizeof what);
}

static struct gpu_predictions predictions_of(const struct cvy_kernel_plan *plan, void *const *in, int classes)
{
    struct gpu_predictions what = *(const struct gpu_predictions *)plan->state;

    what.predictions = in[0];
    what.targets = classes > 1 ? in[1] : NULL;
    what.classes = in[classes];
    what.positives = in[classes + 1];
    what.dloss = in[classes + 2];
    return what;
}

cvy_status gpu_focal_loss_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return loss_prepare(desc, plan, 1, false);
}

cvy_status gpu_focal_loss_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                              void *scratch)
{
    const struct gpu_predictions what = predictions_of(plan, in, 1);

    gpu_focal_loss(gpu_of(device)->stream, &what, out[0], scratch);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_focal_loss_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return loss_prepare(desc, plan, 1, true);
}

cvy_status gpu_focal_loss_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    struct gpu_predictions what = predictions_of(plan, in, 1);

    (void)scratch;
    what.gradient = out[0];
    gpu_focal_loss_bwd(gpu_of(device)->stream, &what);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_smooth_l1_loss_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return loss_prepare(desc, plan, 2, false);
}

cvy_status gpu_smooth_l1_loss_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    const struct gpu_predictions what = predictions_of(plan, in, 2);

    gpu_smooth_l1_loss(gpu_of(device)->stream, &what, out[0], scratch);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_smooth_l1_loss_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return loss_prepare(desc, plan, 2, true);
}

cvy_status gpu_smooth_l1_loss_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                      void *const *out, void *scratch)
{
    struct gpu_predictions what = predictions_of(plan, in, 2);

    (void)scratch;
    what.gradient = out[0];
    gpu_smooth_l1_loss_bwd(gpu_of(device)->stream, &what);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_l2_loss_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct gpu_l2_loss what = {.weights = desc->inputs - 1, .factor = desc->attr.l2_loss.factor};
    enum cvy_dtype dtype;

    (void)device;
    CVY_TRY(gpu_expect(desc, 0, 0, 0, 0, &dtype));
    gpu_lay_out(desc, 0, 0);
    for (int32_t i = 0; i < what.weights; i++)
        what.count[i] = cvy_shape_elements(&desc->in[i + 1].shape);
    plan->scratch_bytes = (size_t)what.weights * GPU_LOSS_BLOCKS * sizeof(float);
    plan->extra_launches = what.weights; /* one for each, and the sum */
    return gpu_state(plan, &what, sizeof what);
}

cvy_status gpu_l2_loss_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                           void *scratch)
{
    struct gpu_l2_loss what = *(const struct gpu_l2_loss *)plan->state;

    what.term = in[0];
    for (int32_t i = 0; i < what.weights; i++)
        what.weight[i] = in[i + 1];
    gpu_l2_loss(gpu_of(device)->stream, &what, out[0], scratch);
    return gpu_queued(gpu_of(device));
}

/* ---- detections ---- */

cvy_status gpu_detect_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    enum cvy_dtype dtype;
    struct gpu_detect detect = {.attr = desc->attr.detect,
                                .grid = cvy_anchors_grid(&desc->attr.detect.anchors),
                                .images = desc->in[0].shape.dim[0],
                                .classes = desc->in[1].shape.dim[2] - 1};

    (void)device;
    CVY_TRY(expect_integers(&desc->out[2]));
    CVY_TRY(expect_integers(&desc->out[3]));
    CVY_TRY(expect_images(detect.images));
    CVY_TRY(gpu_expect(desc, 0, 0, 0, 1U << 2 | 1U << 3, &dtype));
    gpu_lay_out(desc, 0, 0);
    plan->scratch_bytes = (size_t)gpu_detect_scratch(&detect) * sizeof(float);
    plan->extra_launches = 2;
    return gpu_state(plan, &detect, sizeof detect);
}

cvy_status gpu_detect_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch)
{
    struct gpu_detect detect = *(const struct gpu_detect *)plan->state;

    detect.codes = in[0];
    detect.logits = in[1];
    detect.boxes = out[0];
    detect.scores = out[1];
    detect.labels = out[2];
    detect.counts = out[3];
    gpu_detect(gpu_of(device)->stream, &detect, scratch);
    return gpu_queued(gpu_of(device));
}
