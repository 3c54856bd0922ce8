/* The memory of a training: the batch that --batch-size auto means, and the check before anything large is allocated.
 */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/resources.h"
#include "run/ranks/ranks.h"
#include "run/setup/stages.h"
#include "weights/model_variant.h"

static size_t image_bytes(const struct cvy_run *run, const struct cvy_loader_options *loader)
{
    return cvy_run_is_synthetic(run->config) ? CVY_SYNTHETIC_BUFFERS * cvy_transform_bytes(&loader->transform)
                                             : cvy_loader_image_bytes(loader);
}

/* What the data take. */
static void describe_data(struct cvy_run *run, const struct cvy_train_options *options,
                          const struct cvy_model_options *model, struct cvy_memory_case *made)
{
    const struct cvy_loader_options loader = cvy_run_loader_options(run, options);
    const struct cvy_loader_options val_loader = cvy_run_val_loader_options(run, options);
    const struct cvy_loader_options *only = options->evaluate ? &val_loader : &loader;
    const int64_t pixels = run->config->largest_pixels, evaluated = cvy_run_evaluation_batch(options);
    const bool made_up = cvy_run_is_synthetic(run->config);

    made->image_data = image_bytes(run, only);
    if (!made_up) {
        made->other_data = cvy_loader_other_bytes(&loader, pixels);
        made->lanes = cvy_loader_lanes(only, pixels);
    }
    if (!options->training_only && !options->evaluate) { /* the validation has batches, decoders and lanes of its own */
        const struct cvy_image_lanes lanes = cvy_loader_lanes(&val_loader, pixels);

        made->other_data *= 2;
        made->other_data += (size_t)evaluated * image_bytes(run, &val_loader);
        made->other_data += made_up ? 0 : cvy_image_lane_bytes(&lanes, evaluated);
    }
    if (cvy_run_is_detection(options) && !options->training_only)
        made->other_data += cvy_detection_loss_bytes(model, evaluated);
    if (!run->state.device->backend->available) /* where the device has no memory of its own */
        made->other_data += run->data.cache_bytes;
}

/* The case of a run with these options: their network, precision and image size are known. `model` is what the case
 * points to. */
static cvy_status describe(struct cvy_run *run, const struct cvy_train_options *options,
                           struct cvy_model_options *model, struct cvy_memory_case *made)
{
    /* What of it takes memory. */
    const struct cvy_optimizer_options optimizer = {
        .kind = strcmp(options->optimizer, "rmsprop") == 0 ? CVY_UPDATE_RMSPROP : CVY_UPDATE_SGD,
        .accumulate = options->optimizer_batch_size / (options->batch_size * run->ranks.comm.world),
    };

    *made = (struct cvy_memory_case){
        .device = run->state.device,
        .architecture = cvy_architecture_find(options->arch),
        .model = model,
        .training = true,
        .extras = cvy_optimizer_extras(&optimizer),
        .average = options->use_ema > 0,
        .snapshot = options->rewinds > 0,
        .statistics = options->precise_bn > 0 && !options->training_only,
        .batch = options->batch_size,
        .images = options->prof > 0 ? 0 : cvy_run_short_epoch(run, options),
        .evaluation_batch = options->training_only ? 0 : cvy_run_evaluation_batch(options),
        .share = run->state.device->backend->available ? 0 : run->config->memory_share,
    };
    if (options->evaluate) { /* that is all there is */
        made->training = made->snapshot = made->statistics = false;
        made->batch = cvy_run_evaluation_batch(options);
        made->evaluation_batch = 0;
    }
    CVY_TRY(cvy_model_from_options(options, model));
    CVY_TRY(cvy_precision_choose(options->precision, run->state.device, &made->dtype));
    describe_data(run, options, model, made);
    return CVY_OK;
}

/* What is needed is known before anything fills: a run does not end after an hour for the want of memory. */
cvy_status cvy_run_open_caches(struct cvy_run *run)
{
    const double gib = 1.0 / (1 << 30);

    if (!run->config->options.ram_cache || cvy_run_is_synthetic(run->config))
        return CVY_OK;
    const size_t train =
        run->config->options.evaluate ? 0 : cvy_sample_cache_bytes(&run->data.train); /* then it is not read */
    const size_t val = run->data.val.sample_count > 0 ? cvy_sample_cache_bytes(&run->data.val) : 0;
    const size_t available = run->config->memory_share ? run->config->memory_share : cvy_available_memory();
    if (train + val > available)
        return cvy_fail(CVY_NO_MEMORY,
                        "option --ram-cache: the images take %.2f GiB, and %.2f GiB of memory are free (convoy dataset "
                        "pack --shorter-side makes images smaller)",
                        (double)(train + val) * gib, (double)available * gib);
    cvy_log(CVY_LOG_INFO,
            "--ram-cache: the images take %.2f GiB of memory, of which %.2f GiB are free; they are kept "
            "as they are first read",
            (double)(train + val) * gib, (double)available * gib);
    if (train > 0)
        CVY_TRY(cvy_sample_cache_new(&run->data.train, train, &run->data.train_cache));
    if (val > 0)
        CVY_TRY(cvy_sample_cache_new(&run->data.val, val, &run->data.val_cache));
    run->data.cache_bytes = train + val;
    return CVY_OK;
}

cvy_status cvy_run_fit_batch(void *context, const struct cvy_train_options *options, int64_t *batch)
{
    struct cvy_run *run = context;
    struct cvy_train_options resolved = *options;
    struct cvy_model_options model;
    struct cvy_memory_case one;

    CVY_TRY(cvy_run_open_device(run));
    CVY_TRY(cvy_run_resolve_values(run, &resolved));
    resolved.batch_size = *batch;
    CVY_TRY(describe(run, &resolved, &model, &one));
    if (resolved.optimizer_batch_size > 1) /* the batch that is found may make a step of several */
        one.extras |= CVY_EXTRA_GRADIENT_SUM;
    CVY_TRY(cvy_memory_choose_batch(&one, *batch, batch));
    return cvy_ranks_all_reduce_min(&run->ranks, batch); /* memory may differ, the batch may not */
}

cvy_status cvy_run_check_memory(struct cvy_run *run)
{
    struct cvy_model_options model;
    struct cvy_memory_case one;

    CVY_TRY(describe(run, &run->config->options, &model, &one));
    return cvy_memory_check(&one, one.share ? one.share : cvy_device_available_memory(run->state.device),
                            &run->resolving->memory);
}
