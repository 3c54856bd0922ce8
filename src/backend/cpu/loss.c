/* Softmax and cross-entropy. A batch has a few thousand logits: plain loops, sums in double. */
#include <math.h>

#include "backend/cpu/cpu.h"

struct loss {
    int64_t batch, classes;
    float smoothing;
    bool labels; /* targets are labels, not distributions */
};

/* The targets of one call, in the order of their inputs. */
struct target {
    const struct loss *loss;
    const void *target;        /* labels (N) or distributions (N, K) */
    const int32_t *partner;    /* (N), NULL: not mixed */
    const float *coefficient;  /* (N) */
    const float *class_weight; /* (K), NULL: 1 */
};

/* `partners`: the input that holds them, 0 where there is no target. */
static cvy_status loss_state(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, int partners)
{
    const bool has_target = partners > 0, labels = has_target && desc->in[1].dtype == CVY_I32;
    if (has_target && cvy_tensor_present(&desc->in[partners]) && desc->in[partners].dtype != CVY_I32)
        return cvy_fail(CVY_UNAVAILABLE, "partners are i32, not %s", cvy_dtype_name(desc->in[partners].dtype));
    CVY_TRY(cpu_expect_f32(desc, (labels ? 1U << 1 : 0) | (has_target ? 1U << partners : 0), 0));
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
    return loss_state(desc, plan, 0);
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

cvy_status cpu_check_partners(const int32_t *partner, int64_t batch)
{
    for (int64_t n = 0; partner && n < batch; n++)
        if (partner[n] < 0 || partner[n] >= batch)
            return cvy_fail(CVY_FAILED, "partner %d of sample %lld is outside 0 to %lld", (int)partner[n], (long long)n,
                            (long long)batch - 1);
    return CVY_OK;
}

static cvy_status take_target(const struct loss *s, void *const *in, int partners, struct target *target)
{
    *target = (struct target){s, in[1], in[partners], in[partners + 1], in[partners + 2]};
    CVY_TRY(check_labels(s, target->target));
    return cpu_check_partners(target->partner, s->batch);
}

static double target_alone(const struct target *t, int64_t n, int64_t k)
{
    return t->loss->labels ? ((const int32_t *)t->target)[n] == k
                           : (double)((const float *)t->target)[n * t->loss->classes + k];
}

/* Class k of row n: both targets of a mixed sample. */
static double target_mixed(const struct target *t, int64_t n, int64_t k)
{
    const double own = target_alone(t, n, k);
    if (!t->partner)
        return own;
    return (double)t->coefficient[n] * own + (1 - (double)t->coefficient[n]) * target_alone(t, t->partner[n], k);
}

/* Weighted target distribution q of row n at class k. */
static double target_at(const struct target *t, int64_t n, int64_t k)
{
    const double smoothing = (double)t->loss->smoothing;
    const double q = (1 - smoothing) * target_mixed(t, n, k) + smoothing / (double)t->loss->classes;
    return t->class_weight ? (double)t->class_weight[k] * q : q;
}

/* The images, or the weights of their labels. */
static double divisor_of(const struct target *t)
{
    const int32_t *labels = t->target;
    double divisor = 0;
    if (!t->class_weight || !t->loss->labels)
        return (double)t->loss->batch;
    for (int64_t n = 0; n < t->loss->batch; n++) {
        const double own = (double)t->class_weight[labels[n]], share = t->partner ? (double)t->coefficient[n] : 1;
        divisor += share * own;
        if (t->partner)
            divisor += (1 - share) * (double)t->class_weight[labels[t->partner[n]]];
    }
    return divisor;
}

cvy_status cpu_softmax_cross_entropy_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    CVY_TRY(loss_state(desc, plan, 2));
    plan->scratch_bytes = (size_t)desc->in[0].shape.dim[0] * sizeof(double);
    plan->in_place[1] = 0;
    return CVY_OK;
}

cvy_status cpu_softmax_cross_entropy_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                         void *const *out, void *scratch)
{
    const struct loss *s = plan->state;
    double *losses = scratch;
    struct target target;
    CVY_TRY(take_target(s, in, 2, &target));
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t n = 0; n < s->batch; n++) {
        const float *logits = (const float *)in[0] + n * s->classes;
        float *probabilities = out[1] ? (float *)out[1] + n * s->classes : NULL;
        double mass = 0, inner = 0; /* sum q, sum q z, before the probabilities may overwrite the logits */
        for (int64_t k = 0; k < s->classes; k++) {
            const double q = target_at(&target, n, k);
            mass += q;
            if (q != 0)
                inner += q * (double)logits[k];
        }
        losses[n] = mass * softmax_row(logits, probabilities, s->classes) - inner;
    }
    double total = 0;
    for (int64_t n = 0; n < s->batch; n++)
        total += losses[n];
    *(float *)out[0] = (float)(total / divisor_of(&target));
    return CVY_OK;
}

cvy_status cpu_softmax_cross_entropy_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                 struct cvy_kernel_plan *plan)
{
    (void)device;
    plan->in_place[0] = 0;
    return loss_state(desc, plan, 3);
}

cvy_status cpu_softmax_cross_entropy_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                             void *const *out, void *scratch)
{
    (void)scratch;
    const struct loss *s = plan->state;
    const float *probabilities = in[0];
    struct target target;
    CVY_TRY(take_target(s, in, 3, &target));
    const double scale = (double)*(const float *)in[2] / divisor_of(&target);
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t n = 0; n < s->batch; n++) {
        double mass = 0;
        for (int64_t k = 0; k < s->classes; k++)
            mass += target_at(&target, n, k);
        for (int64_t k = 0; k < s->classes; k++) {
            const int64_t i = n * s->classes + k;
            ((float *)out[0])[i] = (float)(scale * ((double)probabilities[i] * mass - target_at(&target, n, k)));
        }
    }
    return CVY_OK;
}
