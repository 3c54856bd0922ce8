/* For tests of whole plans: parameters that are the same for every device, and copies of arenas. */
#ifndef CVY_TESTS_SUPPORT_STORE_H
#define CVY_TESTS_SUPPORT_STORE_H

#include "backend/plan.h"

/* Weights and state of a store in host memory, from the parameters' own start values; counters stay. */
void store_fill(const struct cvy_graph *graph, struct cvy_store *store);
/* Freed with free(). */
float *store_copy(const float *values, int64_t count);

#endif
