/* The arithmetic of fake quantisation, the same on every device and in every type: single precision decides the level,
 * so that no two devices disagree about one.
 *
 * A range is widened to hold zero. Symmetric: x / scale is rounded to -128 .. 127 (weights: -127 .. 127), where scale =
 * highest / 127 once the range reaches as far below zero as above: what TensorFlow's rewrite makes of activations and,
 * in its narrow form, of weights, and what its op QuantizeAndDequantize does with them. Values that are never below
 * zero may have the levels 0 .. 255 instead, and weights a scale for each output channel: the state of those is 0, the
 * largest magnitude of all, and the batches; it says whether they are rounded, not how. Asymmetric: the levels 0 .. 255
 * (weights: 1 .. 255) divide the range, which is moved so that one of them is zero, as its op FakeQuantWithMinMaxVars
 * does. Ties go to the even level, as in ONNX and PyTorch (and QuantizeAndDequantize; FakeQuantWithMinMaxVars rounds
 * them up). */
#ifndef CVY_GRAPH_QUANTIZER_H
#define CVY_GRAPH_QUANTIZER_H

#include <math.h>

#include "graph/op.h"

#ifndef CVY_QUANTIZER_FUNCTION
#define CVY_QUANTIZER_FUNCTION static inline
#endif

/* y = limit(round(x / scale), low, high) * scale; scale 0: y = x. Level 0 is 0; ONNX's integers are level + zero. */
struct cvy_levels {
    float scale, low, high, zero;
};

/* A 255th of a smaller one is a scale whose reciprocal no float can be: what reads a file refuses it, and no training
 * makes it. */
#define CVY_SMALLEST_RANGE 1e-36F

/* What the scale is a part of. 0: the quantizer rounds nothing. */
CVY_QUANTIZER_FUNCTION float cvy_quantizer_range(const struct cvy_fake_quantize_attr *attr, const float observed[3])
{
    return attr->symmetric ? observed[1] : observed[1] - observed[0];
}

/* Updates the observed range to `now` for a tensor that reaches from low to high; `steps` is added to the batches seen.
 * The average of activations is TensorFlow's with decay 0.999, divided by the weight of the batches there were (without
 * that it would begin at its start value). Ranges that are not finite are ignored; what is below the smallest is 0. */
CVY_QUANTIZER_FUNCTION void cvy_quantizer_observe(const struct cvy_fake_quantize_attr *attr, float low, float high,
                                                  int steps, const float old[3], float now[3])
{
    const double decay = 0.999, below = attr->weights ? 127 : 128; /* levels below zero for 127 above */
    const float seen = old[2];
    double lowest = low < 0 ? low : 0, highest = high > 0 ? high : 0, share = 1;

    if (attr->channels || attr->positive) {
        if (attr->channels)
            highest = highest > -lowest ? highest : -lowest;
        highest = highest > 1e-30 ? highest : 1e-30; /* of a layer that died: a scale all the same */
        lowest = 0;
    } else if (attr->symmetric) {
        const double mirrored = -highest * below / 127;
        highest = highest > -lowest * 127 / below ? highest : -lowest * 127 / below;
        lowest = lowest < mirrored ? lowest : mirrored;
    }
    if (!attr->weights)
        share = (1 - decay) / (1 - pow(decay, (double)seen + 1));
    if (!(lowest >= -3.0e38 && highest <= 3.0e38)) {
        now[0] = old[0];
        now[1] = old[1];
        now[2] = seen;
        return;
    }
    now[0] = (float)(share < 1 ? old[0] + (lowest - old[0]) * share : lowest);
    now[1] = (float)(share < 1 ? old[1] + (highest - old[1]) * share : highest);
    now[2] = seen + (float)steps;
    if (cvy_quantizer_range(attr, now) < CVY_SMALLEST_RANGE)
        now[0] = now[1] = 0;
}

CVY_QUANTIZER_FUNCTION struct cvy_levels cvy_quantizer_levels(const struct cvy_fake_quantize_attr *attr,
                                                              const float observed[3])
{
    struct cvy_levels levels = {0, attr->weights ? -127.0F : -128.0F, 127, 0};

    if (!((double)observed[2] > (double)attr->delay))
        return levels;
    if (attr->symmetric && attr->positive) {
        levels.scale = observed[1] / 255;
        levels.low = 0;
        levels.high = 255;
    } else if (attr->symmetric) {
        levels.scale = observed[1] / 127;
    } else {
        const float lowest = attr->weights ? 1.0F : 0.0F;
        levels.scale = (observed[1] - observed[0]) / (255 - lowest);
        if (levels.scale > 0)
            levels.zero = lowest - observed[0] / levels.scale;
        levels.zero = levels.zero < lowest ? lowest : levels.zero > 255 ? 255.0F : roundf(levels.zero);
        levels.low = lowest - levels.zero;
        levels.high = 255 - levels.zero;
    }
    return levels;
}

/* The levels of a row of weights that reaches from low to high, where each row has its own (attr->channels). */
CVY_QUANTIZER_FUNCTION struct cvy_levels cvy_quantizer_row_levels(const struct cvy_levels *all, float low, float high)
{
    struct cvy_levels levels = *all;

    if (all->scale > 0)
        levels.scale = (high > -low ? high : -low) / 127;
    return levels;
}

CVY_QUANTIZER_FUNCTION float cvy_quantizer_value(const struct cvy_levels *levels, float x)
{
    const float level = rintf(x / levels->scale);

    if (!(levels->scale > 0))
        return x;
    return (level < levels->low ? levels->low : level > levels->high ? levels->high : level) * levels->scale;
}

/* Whether the value keeps its gradient: one that rounds to a level, or with `ends` one between the outermost levels. */
CVY_QUANTIZER_FUNCTION bool cvy_quantizer_inside(const struct cvy_levels *levels, bool ends, float x)
{
    const float level = ends ? x / levels->scale : rintf(x / levels->scale);

    return !(levels->scale > 0) || (level >= levels->low && level <= levels->high);
}

#endif
