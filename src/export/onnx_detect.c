/* A detector in an ONNX file: its boxes and scores, in the place of the search for the best ones, which runtimes do in
 * their own ways. */
#include <string.h>

#include "base/error.h"
#include "export/onnx_translate.h"
#include "ops/anchors.h"

/* A constant of this file's own; "" and a failed translator without memory. */
static const char *constant(struct cvy_onnx_translator *t, const char *name, enum cvy_dtype dtype,
                            struct cvy_shape shape, const void *data, size_t bytes)
{
    void *copy = cvy_arena_alloc(&t->arena, bytes);

    if (!copy) {
        t->failed = true;
        return "";
    }
    memcpy(copy, data, bytes);
    cvy_onnx_add_initializer(t->model, &(struct cvy_named_tensor){name, dtype, shape, copy, bytes});
    return name;
}

static const char *number(struct cvy_onnx_translator *t, const char *name, float value)
{
    return constant(t, name, CVY_F32, cvy_shape0(), &value, sizeof value);
}

static const char *index_of(struct cvy_onnx_translator *t, const char *name, int64_t value)
{
    return constant(t, name, CVY_I64, cvy_shape1(1), &value, sizeof value);
}

/* Middles and sides of all anchors, (1, A, 2) each: y and x. */
static cvy_status add_anchors(struct cvy_onnx_translator *t, const struct cvy_anchors *anchors, const char **middle,
                              const char **side)
{
    const int64_t count = cvy_anchors_count(anchors);
    const size_t bytes = (size_t)count * 4 * sizeof(float);
    float *boxes = cvy_calloc((size_t)count, 8 * sizeof *boxes), *middles, *sides;

    if (!boxes)
        return cvy_fail_memory(2 * bytes, "the anchors of an ONNX file");
    middles = boxes + 4 * count;
    sides = middles + 2 * count;
    cvy_anchors_fill(anchors, boxes);
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < 2; k++) {
            const double low = (double)boxes[4 * i + k], high = (double)boxes[4 * i + k + 2];
            middles[2 * i + k] = (float)((low + high) / 2);
            sides[2 * i + k] = (float)(high - low);
        }
    *middle = constant(t, "anchors.middle", CVY_F32, cvy_shape3(1, count, 2), middles, bytes / 2);
    *side = constant(t, "anchors.side", CVY_F32, cvy_shape3(1, count, 2), sides, bytes / 2);
    cvy_free(boxes);
    return CVY_OK;
}

/* Columns `first` to `end` - 1 of the last of three dimensions. */
static const char *columns(struct cvy_onnx_translator *t, const struct cvy_node *node, const char *x, const char *first,
                           const char *end, const char *axis)
{
    return cvy_onnx_add_simple(t, node, "Slice", 4, (const char *[]){x, first, end, axis});
}

static const char *two(struct cvy_onnx_translator *t, const struct cvy_node *node, const char *op_type, const char *a,
                       const char *b)
{
    return cvy_onnx_add_simple(t, node, op_type, 2, (const char *[]){a, b});
}

cvy_status cvy_onnx_detections(struct cvy_onnx_translator *t, const struct cvy_node *node, const char *codes,
                               const char *logits)
{
    const struct cvy_shape *shape = cvy_shape_of(t->graph, node->in[1]);
    const int64_t batch = shape->dim[0], count = shape->dim[1], classes = shape->dim[2] - 1;
    const char *middle = "", *side = "", *centre, *half, *scores, *boxes;

    CVY_TRY(add_anchors(t, &node->attr.detect.anchors, &middle, &side));
    const char *const zero = index_of(t, "detect.0", 0), *const one = index_of(t, "detect.1", 1);
    const char *const last = index_of(t, "detect.2", 2), *const four = index_of(t, "detect.4", 4);
    const char *const end = index_of(t, "detect.columns", classes + 1);

    /* centre = code / 10 * side + middle; half a side = exp(code / 5) * side / 2 (graph/boxes.h) */
    centre = two(t, node, "Mul", columns(t, node, codes, zero, last, last), number(t, "detect.tenth", 0.1F));
    centre = two(t, node, "Add", two(t, node, "Mul", centre, side), middle);
    half = two(t, node, "Mul", columns(t, node, codes, last, four, last), number(t, "detect.fifth", 0.2F));
    half = cvy_onnx_add_simple(t, node, "Exp", 1, &half);
    half = two(t, node, "Mul", two(t, node, "Mul", half, side), number(t, "detect.half", 0.5F));
    const char *const corners[2] = {two(t, node, "Sub", centre, half), two(t, node, "Add", centre, half)};
    struct cvy_onnx_node *joined = cvy_onnx_add(t, node, "Concat", 2, corners);
    cvy_onnx_set_int(joined, "axis", 2);
    boxes = cvy_onnx_node_output(joined);
    /* Column 0 is the background, which has no boxes. */
    scores = columns(t, node, logits, one, end, last);
    scores = cvy_onnx_add_simple(t, node, "Sigmoid", 1, &scores);
    cvy_onnx_rename(t->model, boxes, "boxes");
    cvy_onnx_rename(t->model, scores, "scores");
    cvy_onnx_add_output(t->model, "boxes", &(struct cvy_shape){.rank = 3, .dim = {batch, count, 4}});
    cvy_onnx_add_output(t->model, "scores", &(struct cvy_shape){.rank = 3, .dim = {batch, count, classes}});
    return CVY_OK;
}
