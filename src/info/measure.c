/* `convoy info --plan`: runs the plan and sums up the times of its steps. */
#include "base/error.h"
#include "base/log.h"
#include "info/info_internal.h"

cvy_status cvy_info_measure(struct cvy_info_facts *facts, int32_t runs)
{
    const struct cvy_backend *backend = facts->device->backend;

    cvy_log(CVY_LOG_INFO, "running the plan %d times to measure its steps (--runs 0 does not)", (int)runs);
    CVY_TRY(cvy_workload_profile(&facts->work, runs, &facts->iteration_seconds));
    facts->runs = runs;
    if (backend->measure_peak)
        CVY_TRY(backend->measure_peak(facts->device, CVY_PEAK_MEMORY, &facts->limits));
    return CVY_OK;
}

bool cvy_info_is_product(const struct cvy_plan_step *step)
{
    switch (step->desc.op) {
    case CVY_OP_CONV2D:
    case CVY_OP_CONV2D_INT8:
    case CVY_OP_CONV2D_BWD_DATA:
    case CVY_OP_CONV2D_BWD_WEIGHTS:
    case CVY_OP_LINEAR:
    case CVY_OP_LINEAR_BWD_DATA:
    case CVY_OP_LINEAR_BWD_WEIGHTS:
        return true;
    default:
        return false;
    }
}

/* Operations per second of weights of a type; where a rate is not known, that of floats. */
static double max_rate(const struct cvy_device_peak *limits, enum cvy_dtype weights)
{
    if ((weights == CVY_BF16 || weights == CVY_F16) && limits->flops_bf16 > 0)
        return limits->flops_bf16;
    return weights == CVY_I8 && limits->ops_int8 > 0 ? limits->ops_int8 : limits->flops_f32;
}

/* What the step would take if it did nothing but its operations at their peak rate, or nothing but move its bytes; of
 * several streams each has its share of the machine. */
static double min_seconds(const struct cvy_info_facts *facts, const struct cvy_plan_step *step)
{
    const struct cvy_device_peak *limits = &facts->limits;
    const double bandwidth = limits->copy > limits->triad ? limits->copy : limits->triad;
    const double moving = (double)cvy_plan_step_bytes(facts->plan, step) / bandwidth;
    const double computing = step->flops / max_rate(limits, step->desc.in[1].dtype);

    return facts->streams * (cvy_info_is_product(step) && computing > moving ? computing : moving);
}

void cvy_info_sum(const struct cvy_info_facts *facts, struct cvy_info_sums *sums)
{
    *sums = (struct cvy_info_sums){0};
    for (int32_t s = 0; s < facts->plan->step_count; s++) {
        const struct cvy_plan_step *step = &facts->plan->steps[s];
        struct cvy_info_kind *kind = &sums->kinds[step->desc.op];
        if (step->setup)
            continue;
        kind->steps++;
        kind->seconds += step->seconds;
        kind->flops += step->flops;
        kind->bytes += (double)cvy_plan_step_bytes(facts->plan, step);
        kind->product = cvy_info_is_product(step);
        sums->seconds += step->seconds;
        if (facts->limits.flops_f32 > 0)
            kind->min_seconds += min_seconds(facts, step);
    }
    for (int op = 0; op < CVY_OP_COUNT; op++)
        sums->min_seconds += sums->kinds[op].min_seconds;
}
