/* The segments of the optimizer's step. */
#include "trainer/optimizer.h"

#include <string.h>

#include "base/error.h"
#include "trainer/lars.h"

int cvy_optimizer_extras(const struct cvy_optimizer_options *options)
{
    return (options->kind == CVY_UPDATE_RMSPROP ? CVY_EXTRA_SQUARE_AVERAGE : 0) |
           (options->accumulate > 1 ? CVY_EXTRA_GRADIENT_SUM : 0);
}

cvy_status cvy_optimizer_open(struct cvy_optimizer *optimizer, const struct cvy_graph *table,
                              const struct cvy_optimizer_options *options)
{
    memset(optimizer, 0, sizeof *optimizer);
    optimizer->options = *options;
    optimizer->table = table;
    if (options->lars_eta > 0 && options->loss_scale > 0)
        return cvy_fail(CVY_USAGE, "option --optimizer lars needs a loss that is not scaled");
    optimizer->segments = cvy_calloc((size_t)table->param_count + 1, sizeof *optimizer->segments);
    if (!optimizer->segments) {
        cvy_optimizer_close(optimizer);
        return cvy_fail_memory((size_t)table->param_count * sizeof *optimizer->segments, "the optimizer");
    }
    for (int32_t i = 0; i < table->param_count; i++) {
        const struct cvy_param *param = &table->params[i];
        const bool exempt = options->lars_eta > 0 || cvy_decay_exempt(table, i, options->decay_rule);
        const float decay = exempt ? 0.0f : options->weight_decay; /* LARS has put it into the gradients */
        const int64_t count = cvy_shape_elements(&param->shape);
        const float rate = options->head_ratio > 0 && cvy_is_head(param->name) ? (float)options->head_ratio : 1;
        const int32_t end = optimizer->segment_count;
        struct cvy_update_segment *last = end > 0 ? &optimizer->segments[end - 1] : NULL;

        if (param->kind != CVY_PARAM_TRAINABLE)
            continue;
        if (last && last->weight_decay == decay && last->rate == rate && last->first + last->count == param->offset) {
            last->count += count;
            continue;
        }
        optimizer->segments[end] =
            (struct cvy_update_segment){.first = param->offset, .count = count, .rate = rate, .weight_decay = decay};
        optimizer->segment_count++;
    }
    return CVY_OK;
}

void cvy_optimizer_close(struct cvy_optimizer *optimizer)
{
    cvy_free(optimizer->segments);
    memset(optimizer, 0, sizeof *optimizer);
}

cvy_status cvy_optimizer_step(struct cvy_optimizer *optimizer, struct cvy_store *store, const float *learning_rate,
                              float gradient_scale, struct cvy_scaler *scaler)
{
    struct cvy_update step = {
        .kind = optimizer->options.kind,
        .weights = store->weights,
        .momentum_buffer = store->momentum,
        .square_average = store->square_average,
        .gradients = store->gradients,
        .segments = optimizer->segments,
        .segment_count = optimizer->segment_count,
        .learning_rate = learning_rate,
        .momentum = optimizer->options.momentum,
        .gradient_scale = optimizer->options.lars_eta > 0 ? 1 : gradient_scale,
        .nesterov = optimizer->options.nesterov,
        .alpha = optimizer->options.alpha,
        .epsilon = optimizer->options.epsilon,
        .scaler = scaler,
        .rule = optimizer->options.scaler,
    };

    if (optimizer->options.lars_eta > 0) {
        const struct cvy_lars lars = {.eta = optimizer->options.lars_eta,
                                      .weight_decay = optimizer->options.weight_decay,
                                      .decay_rule = optimizer->options.decay_rule};

        cvy_lars_scale(&lars, optimizer->table, store, gradient_scale);
    }
    return store->device->backend->update(store->device, &step);
}

cvy_status cvy_store_sum_squares(const struct cvy_store *store, const float *weights, int64_t count, double *sum)
{
    enum { PIECE = 16384 };
    const struct cvy_backend *backend = store->device->backend;
    float copy[PIECE];

    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t size = count - at < PIECE ? count - at : PIECE;
        const float *values = weights + at;

        if (!backend->host_memory) {
            CVY_TRY(backend->download(store->device, copy, values, (size_t)size * sizeof *copy));
            values = copy;
        }
        for (int64_t i = 0; i < size; i++)
            *sum += (double)values[i] * (double)values[i];
    }
    return CVY_OK;
}

cvy_status cvy_optimizer_l2_loss(const struct cvy_optimizer *optimizer, const struct cvy_store *store, double *loss)
{
    const struct cvy_optimizer_options *options = &optimizer->options;
    double sum = 0;

    for (int32_t i = 0; i < optimizer->table->param_count && options->weight_decay > 0; i++) {
        const struct cvy_param *param = &optimizer->table->params[i];

        if (param->kind == CVY_PARAM_TRAINABLE && !cvy_decay_exempt(optimizer->table, i, options->decay_rule))
            CVY_TRY(
                cvy_store_sum_squares(store, store->weights + param->offset, cvy_shape_elements(&param->shape), &sum));
    }
    *loss = (double)options->weight_decay * sum / 2;
    return CVY_OK;
}
