#include "support_gradients.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"

int gradient_setup(void **state)
{
    *state = executor_device("ref", 1);
    return 0;
}

int gradient_teardown(void **state)
{
    cvy_device_close(*state);
    return 0;
}

/* Central differences (f(x + h) - f(x - h)) / 2h: the truncation is h^2 / 6 * f''', about 4e-11 f''' here, and rounding
 * adds 2^-53 * |terms| / h, about 1e-11 of the terms. Third derivatives in these cases (batch norm over few values, eps
 * of 0.2 and more) are some times the gradient: the largest difference seen is 4e-10 of the largest gradient of the
 * tensor, and ten times that is allowed. A wrong factor, index or term is off by whole percents. */
static const double step = 1.5e-5, limit = 4e-9;

void gradient_to_double(struct cvy_graph *graph)
{
    for (cvy_val v = 0; v < graph->value_count; v++) {
        if (graph->values[v].dtype == CVY_F32)
            graph->values[v].dtype = CVY_F64;
    }
}

/* ---- which side of its kinks a graph is on ---- */

/* A number for the signs after every ReLU and the positions of every maximum in the first `nodes` nodes. */
static uint64_t pattern(const struct executor *executor, int32_t nodes)
{
    uint64_t hash = 1469598103934665603u;

    for (int32_t n = 0; n < nodes; n++) {
        const struct cvy_node *node = &executor->graph->nodes[n];
        const bool pool = node->op == CVY_OP_MAX_POOL;
        const bool relu = node->op == CVY_OP_RELU || node->op == CVY_OP_RELU6 ||
                          (node->op == CVY_OP_CONV2D && node->attr.conv2d.activation) ||
                          ((node->op == CVY_OP_BATCH_NORM || node->op == CVY_OP_BATCH_NORM_INFERENCE) &&
                           node->attr.batch_norm.activation) ||
                          (node->op == CVY_OP_ADD && node->attr.add.relu) ||
                          (node->op == CVY_OP_SCALE_CHANNELS && node->attr.scale_channels.relu);
        const cvy_val value = node->out[pool ? 1 : 0];
        double *numbers;

        if (!pool && !relu)
            continue;
        numbers = malloc((size_t)executor_elements(executor, value) * sizeof *numbers);
        assert_non_null(numbers);
        executor_read(executor, value, numbers);
        for (int64_t i = 0; i < executor_elements(executor, value); i++)
            hash = (hash ^ (uint64_t)(pool ? numbers[i] : (numbers[i] > 0) + (numbers[i] >= 6))) * 1099511628211u;
        free(numbers);
    }
    return hash;
}

/* ---- comparing one tensor ---- */

static void evaluate(const struct gradient_objective *f, double *values, uint64_t *side)
{
    executor_run(f->executor, 0, f->nodes);
    executor_read(f->executor, f->value, values);
    *side = pattern(f->executor, f->nodes);
}

void gradient_check(const struct gradient_objective *f, const char *name, cvy_val input, const double *gradient)
{
    const int64_t count = executor_elements(f->executor, input), outputs = executor_elements(f->executor, f->value);
    double *x = malloc((size_t)count * sizeof *x), *up = malloc((size_t)outputs * sizeof *up);
    double *down = malloc((size_t)outputs * sizeof *down), largest = 0;
    int64_t skipped = 0;

    assert_true(x && up && down);
    executor_read(f->executor, input, x);
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(gradient[i]));
    assert_true(largest > 0);
    for (int64_t i = 0; i < count; i++) {
        const double before = x[i];
        double difference = 0;
        uint64_t side_up, side_down;
        x[i] = before + step;
        executor_write(f->executor, input, x);
        evaluate(f, up, &side_up);
        x[i] = before - step;
        executor_write(f->executor, input, x);
        evaluate(f, down, &side_down);
        x[i] = before;
        if (side_up != side_down) { /* a kink between the two points */
            skipped++;
            continue;
        }
        for (int64_t k = 0; k < outputs; k++)
            difference += f->projection[k] * (up[k] - down[k]);
        difference /= 2 * step;
        if (!(fabs(difference - gradient[i]) <= limit * largest))
            fail_msg("%s: element %lld of value %d: gradient %.12g, differences say %.12g (largest %.3g)", name,
                     (long long)i, input, gradient[i], difference, largest);
    }
    executor_write(f->executor, input, x);
    /* Kinks are 3e-5 wide and rare; were they common, the check would say little. */
    assert_true(skipped * 20 <= count);
    free(x);
    free(up);
    free(down);
}

double *gradient_draw(struct cvy_rng *rng, int64_t count, double low, double high)
{
    double *numbers = malloc((size_t)count * sizeof *numbers);

    assert_non_null(numbers);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = cvy_rng_range(rng, low, high);
    return numbers;
}

void gradient_write_random(struct executor *executor, cvy_val value, struct cvy_rng *rng, double low, double high)
{
    double *numbers = gradient_draw(rng, executor_elements(executor, value), low, high);

    if (executor->tensors[value].dtype == CVY_I32) {
        for (int64_t i = 0; i < executor_elements(executor, value); i++)
            numbers[i] = floor(numbers[i]);
    }
    executor_write(executor, value, numbers);
    free(numbers);
}
