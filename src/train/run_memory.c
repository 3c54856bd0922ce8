/* The memory of a training: the batch that --batch-size auto means, and the check before anything large is allocated.
 */
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "train/model_choice.h"
#include "train/options.h"
#include "train/run.h"

struct cvy_loader_options cvy_run_loader_options(const struct cvy_run *run, const struct cvy_train_options *options)
{
    return (struct cvy_loader_options){
        .dataset = &run->train,
        .transform = {.training = true,
                      .size = (int32_t)options->image_size,
                      .resize = (int32_t)options->eval_resize,
                      .min_crop_area = options->min_crop_area,
                      .exif_orientation = options->exif_orientation},
        .batch_size = (int32_t)options->batch_size,
        .workers = (int32_t)options->workers,
        .prefetch = (int32_t)options->prefetch,
        .seed = options->seed,
        .shuffle = true,
        .drop_last = true,
        .replace_bad = !options->strict,
        .rank = run->comm.rank,
        .world = run->comm.world,
    };
}

/* The case of a run with these options: their network, precision and image size are known. `model` is what the case
 * points to. */
static cvy_status describe(struct cvy_run *run, const struct cvy_train_options *options,
                           struct cvy_model_options *model, struct cvy_memory_case *made)
{
    const struct cvy_loader_options loader = cvy_run_loader_options(run, options);
    const size_t pixels = (size_t)options->image_size * (size_t)options->image_size * 3;
    const bool synthetic = cvy_run_is_synthetic(run);

    *made = (struct cvy_memory_case){
        .device = run->device,
        .architecture = cvy_architecture_find(options->arch),
        .model = model,
        .training = true,
        .batch = options->batch_size,
        .evaluation_batch = options->training_only ? 0 : CVY_EVALUATION_BATCH,
        .image_data = synthetic ? CVY_SYNTHETIC_BUFFERS * pixels : cvy_loader_image_bytes(&loader),
    };
    CVY_TRY(cvy_model_from_options(options, model));
    CVY_TRY(cvy_precision_choose(options->precision, run->device, &made->dtype));
    if (!synthetic)
        made->other_data = cvy_loader_other_bytes(&loader, run->largest_pixels);
    if (!options->training_only) { /* the validation has batches and decoders of its own */
        made->other_data *= 2;
        made->other_data += CVY_EVALUATION_BATCH * made->image_data;
    }
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
    return cvy_memory_choose_batch(&one, *batch, batch);
}

cvy_status cvy_run_check_memory(struct cvy_run *run)
{
    struct cvy_model_options model;
    struct cvy_memory_case one;

    CVY_TRY(describe(run, &run->options, &model, &one));
    return cvy_memory_check(&one, cvy_device_available_memory(run->device), &run->memory);
}
