/* What a pass through a plan queues and moves, from what its kernels say of themselves. */
#include <string.h>

#include "backend/plan_internal.h"

/* What is there for a part of a chain alone stays in the caches. */
static int64_t bytes_of(const struct cvy_plan *plan, int32_t tensor)
{
    return tensor >= 0 && !plan->tensors[tensor].local ? (int64_t)plan->tensors[tensor].bytes : 0;
}

int64_t cvy_plan_step_bytes(const struct cvy_plan *plan, const struct cvy_plan_step *step)
{
    int64_t bytes = step->kernel.extra_bytes;

    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        bytes += bytes_of(plan, step->in[i]);
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        bytes += bytes_of(plan, step->out[i]);
    return bytes;
}

void cvy_plan_sum(const struct cvy_plan *plan, struct cvy_plan_totals *totals)
{
    memset(totals, 0, sizeof *totals);
    for (int32_t s = 0, count; s < plan->step_count; s += count) {
        count = cvy_plan_at_once(plan, s, plan->step_count);
        if (plan->steps[s].setup)
            continue;
        totals->launches += 1 + plan->steps[s].kernel.extra_launches;
        for (int32_t i = s; i < s + count; i++) {
            totals->bytes += cvy_plan_step_bytes(plan, &plan->steps[i]);
            totals->flops += plan->steps[i].flops;
        }
    }
}
