/* Shared by the files that make a plan: building steps, laying out memory. */
#ifndef CVY_BACKEND_PLAN_INTERNAL_H
#define CVY_BACKEND_PLAN_INTERNAL_H

#include "backend/plan.h"

/* The bytes of memory blocks start at multiples of this. */
#define CVY_PLAN_ALIGNMENT 256

/* Steps in running order (setup first), tensors with their layouts and storage. */
CVY_CHECKED cvy_status cvy_plan_build(struct cvy_plan *plan);
/* Live ranges, in-place aliases, offsets, sizes of the three areas. Allocates nothing on the device. */
CVY_CHECKED cvy_status cvy_plan_layout(struct cvy_plan *plan);

#endif
