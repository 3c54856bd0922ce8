/* Kernel cases of ops on matrices: linear layers, softmax and the loss. */
#include "support_cases.h"

/* `w`: (K,C) or (K,C,1,1) */
void check_linear(int n, int c, int k, struct cvy_shape w, enum kernel_data data)
{
    const struct cvy_shape x = cvy_shape2(n, c), y = cvy_shape2(n, k), bias = cvy_shape1(k);
    const double third = 1.0 / 3, flops = 2.0 * n * c * k;
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        struct kernel_case kernel =
            kernel_begin(CVY_OP_LINEAR, data, "%dx%d k%d rank %d%s", n, c, k, w.rank, with_bias ? " bias" : "");
        kernel.flops = flops;
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_input(&kernel, w, FILL_SMALL);
        if (with_bias)
            kernel_input(&kernel, bias, FILL_SMALL);
        kernel_output(&kernel, y, kernel_sum_bound(data, c, third));
        kernel_check(&kernel);

        kernel = kernel_begin(CVY_OP_LINEAR_BWD_WEIGHTS, data, "%dx%d k%d rank %d%s", n, c, k, w.rank,
                              with_bias ? " bias" : "");
        kernel.flops = flops;
        kernel_input(&kernel, x, FILL_SMALL);
        kernel_input(&kernel, y, FILL_SMALL);
        kernel_output(&kernel, w, kernel_sum_bound(data, n, third));
        if (with_bias)
            kernel_output(&kernel, bias, kernel_sum_bound(data, n, 0.6));
        kernel_check(&kernel);
    }
    struct kernel_case kernel = kernel_begin(CVY_OP_LINEAR_BWD_DATA, data, "%dx%d k%d rank %d", n, c, k, w.rank);
    kernel.flops = flops;
    kernel_input(&kernel, w, FILL_SMALL);
    kernel_input(&kernel, y, FILL_SMALL);
    kernel_output(&kernel, x, kernel_sum_bound(data, k, third));
    kernel_check(&kernel);
}

enum { FORM_LABELS = 1, FORM_SMOOTHING = 2, FORM_MIXED = 4, FORM_WEIGHTS = 8 };

static void check_cross_entropy(int n, int k, int form, bool backward)
{
    const struct cvy_shape logits = cvy_shape2(n, k), scalar = cvy_shape0();
    const bool labels = form & FORM_LABELS;
    struct kernel_case kernel =
        kernel_begin(backward ? CVY_OP_SOFTMAX_CROSS_ENTROPY_BWD : CVY_OP_SOFTMAX_CROSS_ENTROPY, DATA_FLOATS,
                     "%dx%d%s%s%s%s", n, k, labels ? " labels" : "", form & FORM_SMOOTHING ? " smoothing" : "",
                     form & FORM_MIXED ? " mixed" : "", form & FORM_WEIGHTS ? " weights" : "");

    kernel.desc.attr.loss.smoothing = form & FORM_SMOOTHING ? 0.1f : 0;
    kernel.labels = k;
    kernel_input(&kernel, logits, backward ? FILL_SHARES : FILL_DYADIC);
    kernel_input(&kernel, labels ? cvy_shape1(n) : logits, labels ? FILL_LABELS : FILL_SHARES);
    if (labels)
        kernel.desc.in[1].dtype = CVY_I32;
    if (backward)
        kernel_input(&kernel, scalar, FILL_POSITIVE);
    else
        kernel_output(&kernel, scalar, kernel_few);
    if (form & FORM_MIXED) {
        kernel.desc.in[kernel_input(&kernel, cvy_shape1(n), FILL_PARTNERS)].dtype = CVY_I32;
        kernel_input(&kernel, cvy_shape1(n), FILL_UNIT);
    } else if (form & FORM_WEIGHTS) {
        kernel_absent_input(&kernel);
        kernel_absent_input(&kernel);
    }
    if (form & FORM_WEIGHTS)
        kernel_input(&kernel, cvy_shape1(k), FILL_POSITIVE);
    kernel_output(&kernel, logits, kernel_few);
    kernel_check(&kernel);
}

void check_loss(int n, int k)
{
    const struct cvy_shape logits = cvy_shape2(n, k);
    struct kernel_case kernel = kernel_begin(CVY_OP_SOFTMAX, DATA_FLOATS, "%dx%d", n, k);
    kernel_input(&kernel, logits, FILL_DYADIC);
    kernel_output(&kernel, logits, kernel_few);
    kernel_check(&kernel);
    for (int form = 0; form < 16; form++) {
        check_cross_entropy(n, k, form, false);
        check_cross_entropy(n, k, form, true);
    }
}
