/* Gradients against finite differences in double. */
#ifndef SUPPORT_GRADIENTS_H
#define SUPPORT_GRADIENTS_H

#include "base/rng.h"
#include "support_executor.h"

/* For cmocka: *state is the reference device. */
int gradient_setup(void **state);
int gradient_teardown(void **state);

/* The function that is differentiated: sum_i projection_i * value_i. */
struct gradient_objective {
    struct executor *executor;
    int32_t nodes; /* of the forward part */
    cvy_val value;
    const double *projection;
};

/* What is f32 becomes f64. */
void gradient_to_double(struct cvy_graph *graph);
/* Fails the test unless the differences of the objective by each element of `input` are those of `gradient`. */
void gradient_check(const struct gradient_objective *f, const char *name, cvy_val input, const double *gradient);
/* Numbers from low to high in memory that the caller frees, or in a value: whole ones for i32. */
double *gradient_draw(struct cvy_rng *rng, int64_t count, double low, double high);
void gradient_write_random(struct executor *executor, cvy_val value, struct cvy_rng *rng, double low, double high);

#endif
