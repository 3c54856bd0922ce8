/* Layer-wise rates. */
#include "trainer/lars.h"

#include <math.h>

static double norm(const float *values, int64_t count)
{
    double squares = 0;

    for (int64_t i = 0; i < count; i++)
        squares += (double)values[i] * (double)values[i];
    return sqrt(squares);
}

static void scale_layer(const struct cvy_param *param, const float *weights, float *gradients, double eta, double decay,
                        double gradient_scale)
{
    const int64_t count = cvy_shape_elements(&param->shape);
    double ratio = 1;

    if (param->shape.rank > 1) {
        const double w = norm(weights, count), g = norm(gradients, count) * gradient_scale;
        if (w > 0 && g > 0)
            ratio = eta * w / (g + decay * w);
    }
    for (int64_t i = 0; i < count; i++)
        gradients[i] = (float)(ratio * ((double)gradients[i] * gradient_scale + decay * (double)weights[i]));
}

void cvy_lars_scale(const struct cvy_lars *lars, const struct cvy_graph *table, struct cvy_store *store,
                    float gradient_scale)
{
    /* A layer is one thread's: its sums do not depend on the number of threads. */
#pragma omp parallel for num_threads(store->device->threads) schedule(dynamic)
    for (int32_t i = 0; i < table->param_count; i++) {
        const struct cvy_param *param = &table->params[i];
        const double decay = cvy_decay_exempt(table, i, lars->decay_rule) ? 0 : (double)lars->weight_decay;

        if (param->kind == CVY_PARAM_TRAINABLE)
            scale_layer(param, store->weights + param->offset, store->gradients + param->offset, lars->eta, decay,
                        (double)gradient_scale);
    }
}
