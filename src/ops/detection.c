/* What comes before and after a detector: which anchor is to find which box, and the boxes that its predictions are.
 */
#include "ops/anchors.h"
#include "ops/rules.h"

/* Whether `x` is i32 of this shape. */
static bool is_labels(struct cvy_graph *graph, const char *op, const char *what, cvy_val x, struct cvy_shape shape)
{
    char is[96], wanted[96];

    if (x < 0 || x >= graph->value_count) {
        cvy_graph_fail(graph, CVY_FAILED, "%s has no %s", op, what);
        return false;
    }
    if (graph->values[x].dtype == CVY_I32 && cvy_shape_equal(&graph->values[x].shape, &shape))
        return true;
    cvy_graph_fail(graph, CVY_USAGE, "%s needs %s of i32 %s, not %s %s", op, what, cvy_shape_text(&shape, wanted),
                   cvy_dtype_name(graph->values[x].dtype), cvy_shape_text(&graph->values[x].shape, is));
    return false;
}

/* Whether `x` is floats (N, rows, columns); columns 0: any. */
static bool is_rows(struct cvy_graph *graph, const char *op, const char *what, cvy_val x, int64_t rows, int64_t columns)
{
    const struct cvy_shape *shape;
    char is[96];

    if (!cvy_rule_float(graph, op, what, x, 3))
        return false;
    shape = cvy_shape_of(graph, x);
    if (shape->dim[1] == rows && (columns == 0 || shape->dim[2] == columns))
        return true;
    cvy_graph_fail(graph, CVY_USAGE, "%s needs %s of %lld rows for each image, not %s", op, what, (long long)rows,
                   cvy_shape_text(shape, is));
    return false;
}

static bool are_anchors(struct cvy_graph *graph, const struct cvy_anchors *anchors)
{
    cvy_status status;

    if (graph->status != CVY_OK)
        return false;
    status = cvy_anchors_check(anchors);
    if (status != CVY_OK)
        cvy_graph_fail(graph, status, "%s", cvy_error());
    return status == CVY_OK;
}

struct cvy_match_values cvy_detection_match(struct cvy_graph *graph, cvy_val boxes, cvy_val labels,
                                            const struct cvy_anchors *anchors)
{
    const struct cvy_match_values none = {CVY_NONE, CVY_NONE, CVY_NONE};
    const cvy_val in[] = {boxes, labels}, *out;
    const union cvy_attr attr = {.anchors = *anchors};
    enum cvy_dtype dtype;
    int64_t batch, rows, count;
    int32_t node;

    if (!are_anchors(graph, anchors) || !cvy_rule_float(graph, "detection match", "boxes", boxes, 3))
        return none;
    batch = cvy_shape_of(graph, boxes)->dim[0];
    rows = cvy_shape_of(graph, boxes)->dim[1];
    count = cvy_anchors_count(anchors);
    dtype = graph->values[boxes].dtype;
    if (!is_rows(graph, "detection match", "boxes", boxes, rows, 4) ||
        !is_labels(graph, "detection match", "labels", labels, cvy_shape2(batch, rows)))
        return none;
    node = cvy_graph_node(graph, CVY_OP_DETECTION_MATCH, &attr, 2, in, 3,
                          (struct cvy_shape[]){cvy_shape2(batch, count), cvy_shape3(batch, count, 4), cvy_shape0()},
                          (enum cvy_dtype[]){CVY_I32, dtype, dtype});
    if (node < 0)
        return none;
    out = graph->nodes[node].out;
    return (struct cvy_match_values){out[0], out[1], out[2]};
}

/* Intersection, union and their share: a dozen operations for each row and anchor. */
double cvy_detection_match_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 12 * cvy_rule_elements(graph, node->in[1]) * cvy_rule_elements(graph, node->out[0]);
}

static bool detect_options(struct cvy_graph *graph, const struct cvy_detect *options, struct cvy_detect_attr *attr)
{
    const int32_t limit = 1 << 16;

    attr->iou = options && options->iou != 0 ? options->iou : 0.6F;
    attr->score = options && options->score != 0 ? options->score : 1e-8F;
    attr->max_per_class = options && options->max_per_class != 0 ? options->max_per_class : 100;
    attr->max_boxes = options && options->max_boxes != 0 ? options->max_boxes : 100;
    if (!(attr->iou > 0 && attr->iou <= 1))
        cvy_graph_fail(graph, CVY_USAGE, "boxes can overlap by 0 to 1, not by %g", (double)attr->iou);
    else if (!(attr->score >= 0 && attr->score < 1))
        cvy_graph_fail(graph, CVY_USAGE, "the lowest score must lie between 0 and 1, not be %g", (double)attr->score);
    else if (attr->max_per_class < 1 || attr->max_per_class > limit || attr->max_boxes < 1 || attr->max_boxes > limit)
        cvy_graph_fail(graph, CVY_USAGE, "an image can have 1 to %d boxes, of one class and in all, not %d and %d",
                       (int)limit, (int)attr->max_per_class, (int)attr->max_boxes);
    return graph->status == CVY_OK;
}

struct cvy_detect_values cvy_detect(struct cvy_graph *graph, cvy_val codes, cvy_val logits,
                                    const struct cvy_anchors *anchors, const struct cvy_detect *options)
{
    const struct cvy_detect_values none = {CVY_NONE, CVY_NONE, CVY_NONE, CVY_NONE};
    union cvy_attr attr = {.detect = {.anchors = *anchors}};
    const cvy_val in[] = {codes, logits}, *out;
    enum cvy_dtype dtype;
    int64_t batch, count;
    int32_t node;

    if (!are_anchors(graph, anchors) || !detect_options(graph, options, &attr.detect))
        return none;
    count = cvy_anchors_count(anchors);
    if (!is_rows(graph, "detect", "codes", codes, count, 4) || !is_rows(graph, "detect", "logits", logits, count, 0))
        return none;
    batch = cvy_shape_of(graph, codes)->dim[0];
    dtype = graph->values[codes].dtype;
    if (!cvy_rule_same(graph, "detect", "logits", logits, cvy_shape3(batch, count, cvy_shape_of(graph, logits)->dim[2]),
                       codes))
        return none;
    if (cvy_shape_of(graph, logits)->dim[2] < 2 || cvy_shape_of(graph, logits)->dim[2] * count > UINT32_MAX) {
        cvy_graph_fail(graph, CVY_USAGE, "detect cannot have %lld columns of logits",
                       (long long)cvy_shape_of(graph, logits)->dim[2]);
        return none;
    }
    node = cvy_graph_node(graph, CVY_OP_DETECT, &attr, 2, in, 4,
                          (struct cvy_shape[]){cvy_shape3(batch, attr.detect.max_boxes, 4),
                                               cvy_shape2(batch, attr.detect.max_boxes),
                                               cvy_shape2(batch, attr.detect.max_boxes), cvy_shape1(batch)},
                          (enum cvy_dtype[]){dtype, dtype, CVY_I32, CVY_I32});
    if (node < 0)
        return none;
    out = graph->nodes[node].out;
    return (struct cvy_detect_values){out[0], out[1], out[2], out[3]};
}

/* One comparison for each logit; the rest depends on the image and is small. */
double cvy_detect_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return cvy_rule_elements(graph, node->in[1]);
}

/* ---- losses ---- */

/* Whether classes i32 (N,A) and positives go with predictions (N,A,K). */
static bool are_targets(struct cvy_graph *graph, const char *op, cvy_val predictions, cvy_val classes,
                        cvy_val positives)
{
    const int64_t *dim = cvy_shape_of(graph, predictions)->dim;

    return is_labels(graph, op, "classes", classes, cvy_shape2(dim[0], dim[1])) &&
           cvy_rule_float(graph, op, "a number of positives", positives, 0);
}

cvy_val cvy_focal_loss(struct cvy_graph *graph, cvy_val logits, cvy_val classes, cvy_val positives)
{
    const cvy_val in[] = {logits, classes, positives};

    if (!cvy_rule_float(graph, "focal loss", "logits", logits, 3) ||
        !are_targets(graph, "focal loss", logits, classes, positives))
        return CVY_NONE;
    return cvy_rule_node(graph, CVY_OP_FOCAL_LOSS, NULL, 3, in, cvy_shape0(), graph->values[positives].dtype);
}

/* Predictions first, then what is given; only the predictions have a gradient. */
static void loss_gradient(struct cvy_graph *graph, const struct cvy_node *node, enum cvy_op backward,
                          const cvy_val *dout, const bool *need, cvy_val *din)
{
    cvy_val in[CVY_MAX_INPUTS];

    for (int32_t i = 0; i < node->inputs; i++) {
        in[i] = node->in[i];
        if (i > 0 && need[i]) {
            cvy_graph_fail(graph, CVY_USAGE, "%s can be differentiated for its predictions only",
                           cvy_ops[node->op].name);
            return;
        }
    }
    in[node->inputs] = dout[0];
    if (need[0] && dout[0] != CVY_NONE)
        din[0] = cvy_rule_gradient_node(graph, backward, NULL, node->inputs + 1, in, node->in[0]);
}

void cvy_focal_loss_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                             const bool *need, cvy_val *din)
{
    loss_gradient(graph, node, CVY_OP_FOCAL_LOSS_BWD, dout, need, din);
}

/* Exponential, logarithm, division, four products, three sums. */
double cvy_focal_loss_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 10 * cvy_rule_elements(graph, node->in[0]);
}

double cvy_focal_loss_bwd_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 14 * cvy_rule_elements(graph, node->in[0]);
}

cvy_val cvy_smooth_l1_loss(struct cvy_graph *graph, cvy_val codes, cvy_val targets, cvy_val classes, cvy_val positives)
{
    const cvy_val in[] = {codes, targets, classes, positives};
    const struct cvy_shape *shape;

    if (!cvy_rule_float(graph, "smooth L1 loss", "codes", codes, 3))
        return CVY_NONE;
    shape = cvy_shape_of(graph, codes);
    if (!is_rows(graph, "smooth L1 loss", "codes", codes, shape->dim[1], 4) ||
        !cvy_rule_same(graph, "smooth L1 loss", "targets", targets, *shape, codes) ||
        !are_targets(graph, "smooth L1 loss", codes, classes, positives))
        return CVY_NONE;
    return cvy_rule_node(graph, CVY_OP_SMOOTH_L1_LOSS, NULL, 4, in, cvy_shape0(), graph->values[positives].dtype);
}

void cvy_smooth_l1_loss_gradient(struct cvy_graph *graph, const struct cvy_node *node, const cvy_val *dout,
                                 const bool *need, cvy_val *din)
{
    loss_gradient(graph, node, CVY_OP_SMOOTH_L1_LOSS_BWD, dout, need, din);
}

/* Difference, its amount, square or shift, sum. */
double cvy_smooth_l1_loss_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 4 * cvy_rule_elements(graph, node->in[0]);
}

double cvy_smooth_l1_loss_bwd_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    return 4 * cvy_rule_elements(graph, node->in[0]);
}

cvy_val cvy_l2_loss(struct cvy_graph *graph, const cvy_val *weights, int32_t count, float factor)
{
    const union cvy_attr attr = {.l2_loss = {factor}};
    cvy_val in[CVY_MAX_TERMS] = {CVY_NONE};
    int32_t inputs = 1;

    if (graph->status == CVY_OK && count < 1)
        return cvy_graph_fail(graph, CVY_USAGE, "l2 loss has no weights");
    for (int32_t i = 0; i < count && graph->status == CVY_OK; i++) {
        if (weights[i] < 0 || weights[i] >= graph->value_count)
            return cvy_graph_fail(graph, CVY_FAILED, "l2 loss has no weight %d", (int)i);
        if (!cvy_rule_float(graph, "l2 loss", "weights", weights[i], graph->values[weights[i]].shape.rank))
            return CVY_NONE;
        in[inputs++] = weights[i];
        if (inputs == CVY_MAX_TERMS || i + 1 == count) {
            in[0] =
                cvy_rule_node(graph, CVY_OP_L2_LOSS, &attr, inputs, in, cvy_shape0(), graph->values[weights[i]].dtype);
            inputs = 1;
        }
    }
    return graph->status == CVY_OK ? in[0] : CVY_NONE;
}

double cvy_l2_loss_flops(const struct cvy_graph *graph, const struct cvy_node *node)
{
    double flops = 0;

    for (int32_t i = 1; i < node->inputs; i++)
        flops += 2 * cvy_rule_elements(graph, node->in[i]);
    return flops;
}
