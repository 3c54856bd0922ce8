#include "support_store.h"

#include "base/rng.h"
#include "support_test.h"

void store_fill(const struct cvy_graph *graph, struct cvy_store *store)
{
    for (int32_t p = 0; p < graph->param_count; p++) {
        const struct cvy_param *param = &graph->params[p];
        const bool one = param->init == CVY_INIT_ONE; /* a scale or a variance: positive */
        const double spread = one || param->init == CVY_INIT_ZERO ? 0.2 : (double)param->init_scale;
        float *to = (param->kind == CVY_PARAM_TRAINABLE ? store->weights : store->state) + param->offset;
        struct cvy_rng rng = cvy_rng_new(1, CVY_RNG_TEST, 0, (uint32_t)p);

        for (int64_t i = 0; param->kind != CVY_PARAM_COUNTER && i < cvy_shape_elements(&param->shape); i++)
            to[i] = (float)(one ? fabs(1 + spread * cvy_rng_normal(&rng)) + 0.1 : spread * cvy_rng_normal(&rng));
    }
    store->version++;
}

float *store_copy(const float *values, int64_t count)
{
    float *copy = malloc((size_t)(count + 1) * sizeof *copy);

    assert_non_null(copy);
    memcpy(copy, values, (size_t)count * sizeof *copy);
    return copy;
}
