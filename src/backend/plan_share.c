/* Plans for inference of one network share what they have made of its parameters: each constant that another plan's
 * kernels want alike is read there. */
#include <string.h>

#include "backend/plan_internal.h"
#include "base/error.h"

static bool same_made(const struct cvy_plan *plan, int32_t a, const struct cvy_plan *owner, int32_t b);

/* Which output of the step the tensor is. */
static int output_of(const struct cvy_plan_step *step, int32_t tensor)
{
    int i = 0;

    while (i < CVY_MAX_OUTPUTS && step->out[i] != tensor)
        i++;
    return i;
}

/* The same kernel makes the same of the same parameters. */
static bool same_step(const struct cvy_plan *plan, const struct cvy_plan_step *a, const struct cvy_plan *owner,
                      const struct cvy_plan_step *b)
{
    if (!a->setup || !b->setup || a->kernel.kernel != b->kernel.kernel || a->desc.op != b->desc.op ||
        a->desc.inputs != b->desc.inputs || a->desc.outputs != b->desc.outputs)
        return false;
    /* Bytes between members that differ would say that equal ones are not: a constant more, and nothing wrong. */
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
    if (memcmp(&a->desc.attr, &b->desc.attr, sizeof a->desc.attr) != 0)
        return false;
    for (int32_t i = 0; i < a->desc.inputs; i++) {
        if ((a->in[i] < 0) != (b->in[i] < 0) || (a->in[i] >= 0 && !same_made(plan, a->in[i], owner, b->in[i])))
            return false;
    }
    return true;
}

/* Whether tensor `a` of a plan holds what `b` of the other one does. */
static bool same_made(const struct cvy_plan *plan, int32_t a, const struct cvy_plan *owner, int32_t b)
{
    const struct cvy_plan_tensor *t = &plan->tensors[a], *u = &owner->tensors[b];

    if (t->param != u->param || t->bytes != u->bytes || t->tensor.dtype != u->tensor.dtype ||
        !cvy_layout_equal(&t->tensor.layout, &u->tensor.layout))
        return false;
    if (t->storage == CVY_STORE_WEIGHT || t->storage == CVY_STORE_STATE)
        return t->storage == u->storage;
    if (t->first < 0 || u->first < 0)
        return false;
    const struct cvy_plan_step *made = &plan->steps[t->first], *other = &owner->steps[u->first];
    return output_of(made, a) == output_of(other, b) && same_step(plan, made, owner, other);
}

static char *constant_memory(const struct cvy_plan *plan, const struct cvy_plan_tensor *tensor)
{
    return tensor->shared ? tensor->shared : plan->constants + tensor->offset;
}

/* Where `owner`, or one that it shares with, has the constant; NULL: nowhere. */
static char *find_constant(const struct cvy_plan *plan, int32_t constant, const struct cvy_plan *owner)
{
    for (; owner; owner = owner->beside) {
        for (int32_t t = 0; t < owner->tensor_count; t++) {
            if (owner->tensors[t].storage == CVY_STORE_CONSTANT && same_made(plan, constant, owner, t))
                return constant_memory(owner, &owner->tensors[t]);
        }
    }
    return NULL;
}

/* Whether a tensor must be made in this plan's setup: a constant of its own, or what a step reads that is not left out.
 */
static bool needed(const struct cvy_plan *plan, int32_t tensor, int32_t made)
{
    const struct cvy_plan_tensor *t = &plan->tensors[tensor];

    if (t->storage == CVY_STORE_CONSTANT)
        return !t->shared;
    if (t->last >= plan->step_count)
        return true;
    for (int32_t s = made + 1; s <= t->last; s++) {
        for (int i = 0; i < CVY_MAX_INPUTS; i++) {
            if (plan->steps[s].in[i] == tensor && !plan->steps[s].left_out)
                return true;
        }
    }
    return false;
}

static void leave_out_steps(struct cvy_plan *plan)
{
    for (int32_t s = plan->step_count - 1; s >= 0; s--) {
        struct cvy_plan_step *step = &plan->steps[s];

        step->left_out = step->setup;
        for (int i = 0; step->left_out && i < CVY_MAX_OUTPUTS; i++) {
            if (step->out[i] >= 0)
                step->left_out = !needed(plan, step->out[i], s);
        }
    }
}

/* What a step that must run makes is this plan's own, all of it: the owner's may be read by another thread then. */
static void own_outputs(struct cvy_plan *plan)
{
    for (int32_t s = 0; s < plan->step_count; s++) {
        const struct cvy_plan_step *step = &plan->steps[s];

        for (int i = 0; step->setup && !step->left_out && i < CVY_MAX_OUTPUTS; i++) {
            if (step->out[i] >= 0)
                plan->tensors[step->out[i]].shared = NULL;
        }
    }
}

static void place_constants(struct cvy_plan *plan)
{
    plan->constant_bytes = 0;
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        struct cvy_plan_tensor *tensor = &plan->tensors[t];

        if (tensor->storage != CVY_STORE_CONSTANT || tensor->shared)
            continue;
        tensor->offset = plan->constant_bytes;
        plan->constant_bytes += cvy_plan_align(tensor->bytes);
    }
}

cvy_status cvy_plan_allocate_beside(struct cvy_plan *plan, struct cvy_plan *owner)
{
    if (!owner->placed || owner->workspace || !plan->store || plan->device->backend != owner->device->backend)
        return cvy_plan_allocate(plan, NULL);
    CVY_TRY(cvy_plan_make_constants(owner));
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        if (plan->tensors[t].storage == CVY_STORE_CONSTANT)
            plan->tensors[t].shared = find_constant(plan, t, owner);
    }
    leave_out_steps(plan);
    own_outputs(plan);
    place_constants(plan);
    plan->beside = owner;
    return cvy_plan_allocate(plan, NULL);
}
