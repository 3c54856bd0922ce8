/* From an architecture to the whole graph of a mode: input, forward pass, loss, backward pass. */
#include "base/error.h"
#include "models/models.h"
#include "ops/ops.h"

enum { SMALLEST_IMAGE = 32 };

static cvy_status check_options(const struct cvy_architecture *architecture, const struct cvy_model_options *options)
{
    if (options->num_classes < 1)
        return cvy_fail(CVY_USAGE, "%s needs 1 or more classes, not %d", architecture->name, (int)options->num_classes);
    if (options->image_size < SMALLEST_IMAGE)
        return cvy_fail(CVY_USAGE, "%s needs images of %d pixels or more, not %d", architecture->name, SMALLEST_IMAGE,
                        (int)options->image_size);
    return CVY_OK;
}

static void add_training(struct cvy_graph *graph, cvy_val logits, const struct cvy_model_options *options, bool fuse)
{
    cvy_val target, loss_scale, loss;

    target = options->soft_targets
                 ? cvy_graph_input(graph, "target", CVY_F32, cvy_shape2(CVY_BATCH, options->num_classes), false)
                 : cvy_graph_input(graph, "target", CVY_I32, cvy_shape1(CVY_BATCH), false);
    loss_scale = cvy_graph_input(graph, "loss_scale", CVY_F32, cvy_shape0(), false);
    loss = cvy_softmax_cross_entropy(graph, logits, target, options->label_smoothing);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "loss", -1, loss);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "logits", -1, logits);
    if (fuse)
        cvy_rewrite_fuse_training(graph);
    cvy_graph_backward(graph, cvy_ops, loss, loss_scale);
    if (fuse)
        cvy_rewrite_recompute(graph);
}

static void add_inference(struct cvy_graph *graph, cvy_val logits, bool fuse)
{
    cvy_graph_result(graph, CVY_RESULT_NAMED, "logits", -1, logits);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "probabilities", -1, cvy_softmax(graph, logits));
    if (fuse)
        cvy_rewrite_fuse_inference(graph);
}

cvy_status cvy_model_graph(const struct cvy_architecture *architecture, const struct cvy_model_options *options,
                           enum cvy_model_mode mode, bool fuse, struct cvy_graph *graph)
{
    cvy_val image, logits;
    cvy_status status;

    cvy_graph_init(graph, mode == CVY_MODEL_TRAIN);
    CVY_TRY(check_options(architecture, options));
    image = cvy_graph_input(graph, "image", CVY_U8, cvy_shape4(CVY_BATCH, 3, options->image_size, options->image_size),
                            true);
    image = cvy_normalize(graph, image, options->mean, options->std);
    logits = architecture->build(graph, image, options, architecture->config);
    if (mode == CVY_MODEL_TRAIN)
        add_training(graph, logits, options, fuse);
    else
        add_inference(graph, logits, fuse);
    cvy_rewrite_remove_dead(graph);
    status = cvy_graph_status(graph);
    if (status != CVY_OK)
        cvy_graph_release(graph);
    return status;
}
