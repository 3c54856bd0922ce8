/* The memory of a training: the batch that --batch-size auto means, and the check before anything large is allocated.
 */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/resources.h"
#include "options/options.h"
#include "run/ranks.h"
#include "weights/model_variant.h"

int32_t cvy_run_train_size(const struct cvy_train_options *options)
{
    return (int32_t)(options->train_crop_size ? options->train_crop_size : options->image_size);
}

int32_t cvy_run_evaluation_batch(const struct cvy_train_options *options)
{
    return cvy_evaluation_batch(cvy_architecture_find(options->arch));
}

static enum cvy_sampler_kind sampler_of(const struct cvy_train_options *options)
{
    return strcmp(options->sampler, "balanced") == 0  ? CVY_SAMPLE_BALANCED
           : strcmp(options->sampler, "pytorch") == 0 ? CVY_SAMPLE_PYTORCH
                                                      : CVY_SAMPLE_SHUFFLED;
}

bool cvy_run_has_dali_rules(const struct cvy_train_options *options)
{
    return strncmp(options->data_backend, "dali-", 5) == 0;
}

enum cvy_filter cvy_run_filter(const struct cvy_train_options *options)
{
    return strcmp(options->interpolation, "bicubic") == 0 ? CVY_FILTER_BICUBIC : CVY_FILTER_BILINEAR;
}

struct cvy_loader_options cvy_run_loader_options(const struct cvy_run *run, const struct cvy_train_options *options)
{
    return (struct cvy_loader_options){
        .dataset = &run->data.train,
        .transform = {.training = strcmp(options->augmentation, "off") != 0,
                      .tensorflow = strcmp(options->data_backend, "tensorflow") == 0,
                      .dali = cvy_run_has_dali_rules(options),
                      .filter = cvy_run_filter(options),
                      .size = cvy_run_train_size(options),
                      .resize = (int32_t)options->eval_resize,
                      .fast = strcmp(options->decode, "fast") == 0,
                      .min_crop_area = options->min_crop_area,
                      .exif_orientation = options->exif_orientation,
                      .detection = cvy_run_is_detection(options),
                      .color = {.brightness = options->brightness,
                                .contrast = options->contrast,
                                .saturation = options->saturation,
                                .hue = options->hue}},
        .batch_size = (int32_t)options->batch_size,
        .workers = (int32_t)options->workers,
        .prefetch = (int32_t)options->prefetch,
        .seed = options->seed,
        .sampler = sampler_of(options),
        .autoaugment = strcmp(options->augmentation, "autoaugment") == 0,
        .drop_last = true,
        .replace_bad = !options->strict,
        .cache = run->data.train_cache,
        .rank = run->ranks.comm.rank,
        .world = run->ranks.comm.world,
    };
}

struct cvy_loader_options cvy_run_val_loader_options(const struct cvy_run *run, const struct cvy_train_options *options)
{
    struct cvy_loader_options loader = cvy_run_loader_options(run, options);

    loader.dataset = &run->data.val;
    loader.cache = run->data.val_cache;
    loader.transform.training = false;
    loader.transform.size = (int32_t)options->image_size;
    loader.batch_size = cvy_run_evaluation_batch(options);
    loader.sampler = CVY_SAMPLE_IN_ORDER;
    loader.autoaugment = loader.drop_last = loader.replace_bad = false;
    return loader;
}

static size_t image_bytes(const struct cvy_run *run, const struct cvy_loader_options *loader)
{
    return cvy_run_is_synthetic(run->config) ? CVY_SYNTHETIC_BUFFERS * cvy_transform_bytes(&loader->transform)
                                             : cvy_loader_image_bytes(loader);
}

/* The case of a run with these options: their network, precision and image size are known. `model` is what the case
 * points to. */
static cvy_status describe(struct cvy_run *run, const struct cvy_train_options *options,
                           struct cvy_model_options *model, struct cvy_memory_case *made)
{
    const struct cvy_loader_options loader = cvy_run_loader_options(run, options);
    const struct cvy_loader_options val_loader = cvy_run_val_loader_options(run, options);

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
        .batch = options->batch_size,
        .evaluation_batch = options->training_only ? 0 : cvy_run_evaluation_batch(options),
        .image_data = image_bytes(run, &loader),
        .share = run->state.device->backend->available ? 0 : run->config->memory_share,
    };
    if (options->evaluate) { /* that is all there is */
        made->training = false;
        made->batch = cvy_run_evaluation_batch(options);
        made->evaluation_batch = 0;
        made->image_data = image_bytes(run, &val_loader);
    }
    CVY_TRY(cvy_model_from_options(options, model));
    CVY_TRY(cvy_precision_choose(options->precision, run->state.device, &made->dtype));
    if (!cvy_run_is_synthetic(run->config))
        made->other_data = cvy_loader_other_bytes(&loader, run->config->largest_pixels);
    if (!options->training_only && !options->evaluate) { /* the validation has batches and decoders of its own */
        made->other_data *= 2;
        made->other_data += (size_t)cvy_run_evaluation_batch(options) * image_bytes(run, &val_loader);
    }
    if (!run->state.device->backend->available) /* where the device has no memory of its own */
        made->other_data += run->data.cache_bytes;
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

void cvy_run_describe_caches(const struct cvy_run_data *data)
{
    int64_t train = 0, val = 0;
    size_t train_bytes = 0, val_bytes = 0;

    if (!data->train_cache && !data->val_cache)
        return;
    if (data->train_cache)
        cvy_sample_cache_count(data->train_cache, &train, &train_bytes);
    if (data->val_cache)
        cvy_sample_cache_count(data->val_cache, &val, &val_bytes);
    cvy_log(CVY_LOG_INFO, "--ram-cache: %lld of %lld images are in memory now, %.2f GiB", (long long)(train + val),
            (long long)data->train.sample_count + data->val.sample_count,
            (double)(train_bytes + val_bytes) / (double)(1 << 30));
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
