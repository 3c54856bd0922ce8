/* Shared by the files that make a plan: building steps, laying out memory. */
#ifndef CVY_BACKEND_PLAN_INTERNAL_H
#define CVY_BACKEND_PLAN_INTERNAL_H

#include "backend/plan.h"

/* Memory blocks are aligned to this many bytes. */
#define CVY_PLAN_ALIGNMENT 256
static inline size_t cvy_plan_align(size_t bytes)
{
    return (bytes + CVY_PLAN_ALIGNMENT - 1) / CVY_PLAN_ALIGNMENT * CVY_PLAN_ALIGNMENT;
}

/* Decides the layout of the plan's images before its steps are made: the autotuner's, or the device's first; where it
 * may, it times them all, each in a plan of its own that is dropped again. */
CVY_CHECKED cvy_status cvy_plan_choose_images(struct cvy_plan *plan);
/* Releases everything but the graph: steps, tensors, memory. */
void cvy_plan_drop(struct cvy_plan *plan);
/* Steps in running order (setup first), tensors with their layouts and storage. */
CVY_CHECKED cvy_status cvy_plan_build(struct cvy_plan *plan);
/* Finds the steps that are run part by part, and moves others out of their way. */
CVY_CHECKED cvy_status cvy_plan_find_chains(struct cvy_plan *plan);
/* Between live ranges and offsets: which tensors are there for a part alone, or lie near for the steps that read them
 * next. */
void cvy_plan_find_locals(struct cvy_plan *plan);
/* The pointers of chains, as those of steps are. */
void cvy_plan_resolve_chains(struct cvy_plan *plan);
/* Chains, live ranges, in-place aliases, offsets, sizes of the two areas. Allocates nothing on the device. */
CVY_CHECKED cvy_status cvy_plan_layout(struct cvy_plan *plan);
/* Destroys all captures of passes. */
void cvy_plan_destroy_captures(struct cvy_plan *plan);
/* The setup steps, if the store's version has changed since they ran. */
CVY_CHECKED cvy_status cvy_plan_make_constants(struct cvy_plan *plan);
/* How many steps from `from` on, before `end`, are run at once: one, or as many gathered ones as their kernel takes. */
int32_t cvy_plan_at_once(const struct cvy_plan *plan, int32_t from, int32_t end);
/* The tensor that a named result is read from: the plain one of its value, in memory that is not the caller's; -1:
 * none. */
int32_t cvy_plan_result_tensor(const struct cvy_plan *plan, cvy_val value);

#endif
