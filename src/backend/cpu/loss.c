/* Softmax and cross-entropy. A batch has a few thousand logits: plain loops, sums in double. */
#include <math.h>

#include "backend/cpu/cpu.h"

struct loss {
    int64_t batch, classes;
    float smoothing;
    bool labels; /* targets are labels, not distributions */
};

static cvy_status loss_state(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, bool has_target)
{
    const bool labels = has_target && desc->in[1].dtype == CVY_I32;
    CVY_TRY(cpu_expect_f32(desc, labels ? 1U << 1 : 0, 0));
    cpu_plain(desc, 0, 0);
    const struct loss state = {.batch = desc->in[0].shape.dim[0],
                               .classes = desc->in[0].shape.dim[1],
                               .smoothing = has_target ? desc->attr.loss.smoothing : 0,
                               .labels = labels};
    return cpu_state(plan, &state, sizeof(state));
}

/* Writes the probabilities of one row (NULL: not wanted); returns log(sum(exp(z))). */
static double softmax_row(const float *logits, float *probabilities, int64_t classes)
{
    float largest = logits[0];
    for (int64_t k = 1; k < classes; k++)
        largest = logits[k] > largest ? logits[k] : largest;
    double total = 0;
    for (int64_t k = 0; k < classes; k++) {
        const double power = exp((double)logits[k] - (double)largest);
        total += power;
        if (probabilities)
            probabilities[k] = (float)power;
    }
    for (int64_t k = 0; probabilities && k < classes; k++)
        probabilities[k] = (float)((double)probabilities[k] / total);
    return (double)largest + log(total);
}

cvy_status cpu_softmax_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    plan->in_place[0] = 0;
    return loss_state(desc, plan, false);
}

cvy_status cpu_softmax_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const struct loss *s = plan->state;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t n = 0; n < s->batch; n++)
        softmax_row((const float *)in[0] + n * s->classes, (float *)out[0] + n * s->classes, s->classes);
    return CVY_OK;
}

/* Labels come from data: a wrong one would silently train towards nothing. */
static cvy_status check_labels(const struct loss *s, const void *target)
{
    for (int64_t n = 0; s->labels && n < s->batch; n++) {
        const int32_t label = ((const int32_t *)target)[n];
        if (label < 0 || label >= s->classes)
            return cvy_fail(CVY_FAILED, "label %d of sample %lld is outside 0 to %lld", (int)label, (long long)n,
                            (long long)s->classes - 1);
    }
    return CVY_OK;
}

/* Target distribution q of row n at class k. */
static double target_at(const struct loss *s, const void *target, int64_t n, int64_t k)
{
    const double t =
        s->labels ? ((const int32_t *)target)[n] == k : (double)((const float *)target)[n * s->classes + k];
    return (1 - (double)s->smoothing) * t + (double)s->smoothing / (double)s->classes;
}

cvy_status cpu_softmax_cross_entropy_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    CVY_TRY(loss_state(desc, plan, true));
    plan->scratch_bytes = (size_t)desc->in[0].shape.dim[0] * sizeof(double);
    plan->in_place[1] = 0;
    return CVY_OK;
}

cvy_status cpu_softmax_cross_entropy_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                         void *const *out, void *scratch)
{
    const struct loss *s = plan->state;
    double *losses = scratch;
    CVY_TRY(check_labels(s, in[1]));
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t n = 0; n < s->batch; n++) {
        const float *logits = (const float *)in[0] + n * s->classes;
        float *probabilities = out[1] ? (float *)out[1] + n * s->classes : NULL;
        double mass = 0, inner = 0; /* sum q, sum q z, before the probabilities may overwrite the logits */
        for (int64_t k = 0; k < s->classes; k++) {
            const double q = target_at(s, in[1], n, k);
            mass += q;
            if (q != 0)
                inner += q * (double)logits[k];
        }
        losses[n] = mass * softmax_row(logits, probabilities, s->classes) - inner;
    }
    double total = 0;
    for (int64_t n = 0; n < s->batch; n++)
        total += losses[n];
    *(float *)out[0] = (float)(total / (double)s->batch);
    return CVY_OK;
}

cvy_status cpu_softmax_cross_entropy_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                 struct cvy_kernel_plan *plan)
{
    (void)device;
    plan->in_place[0] = 0;
    return loss_state(desc, plan, true);
}

cvy_status cpu_softmax_cross_entropy_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                             void *const *out, void *scratch)
{
    (void)scratch;
    const struct loss *s = plan->state;
    const float *probabilities = in[0];
    CVY_TRY(check_labels(s, in[1]));
    const double scale = (double)*(const float *)in[2] / (double)s->batch;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t n = 0; n < s->batch; n++) {
        double mass = 0;
        for (int64_t k = 0; k < s->classes; k++)
            mass += target_at(s, in[1], n, k);
        for (int64_t k = 0; k < s->classes; k++) {
            const int64_t i = n * s->classes + k;
            ((float *)out[0])[i] = (float)(scale * ((double)probabilities[i] * mass - target_at(s, in[1], n, k)));
        }
    }
    return CVY_OK;
}
