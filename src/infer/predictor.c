#include "infer/predictor.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/resources.h"
#include "network/memory.h"
#include "options/recipe_auto.h"
#include "weights/model_variant.h"

/* From here on it is said which precision would be faster: fewer are done before that is measured. */
enum { MANY_IMAGES = 256 };

/* ---- opening ---- */

/* Where 0 leaves the choice, a number below it is a mistake. */
static cvy_status check_numbers(const struct cvy_classifier_options *options)
{
    if (options->num_classes < 0)
        return cvy_fail(CVY_USAGE, "option --num-classes: %d is below 1", options->num_classes);
    if (options->image_size < 0)
        return cvy_fail(CVY_USAGE, "option --image-size: %d is below 1", options->image_size);
    if (options->resize < 0)
        return cvy_fail(CVY_USAGE, "option --eval-resize: %d is below 1", options->resize);
    if (options->batch_size < 0 && options->batch_size != CVY_BATCH_AUTO)
        return cvy_fail(CVY_USAGE, "option --batch-size: %d is below 1", options->batch_size);
    return CVY_OK;
}

static cvy_status count_classes(const struct cvy_classifier_options *options, const struct cvy_tensor_file *file,
                                int32_t *count)
{
    *count = cvy_weights_classes(file);
    if (*count == 0)
        return cvy_fail(CVY_BAD_DATA,
                        "%s has no layer for its classes: neither \"fc.weight\" nor \"head.class_predictor.weight\"",
                        cvy_quote(options->weights));
    if (options->num_classes > 0 && options->num_classes != *count)
        return cvy_fail(CVY_BAD_DATA, "%s has %s, not %d", cvy_quote(options->weights), cvy_counted(*count, "class"),
                        options->num_classes);
    return CVY_OK;
}

/* Inference with this predictor, before its parameters are in memory or after. */
static struct cvy_memory_case memory_case(const struct cvy_predictor *predictor, bool loaded, int64_t batch)
{
    const struct cvy_network *network = &predictor->network;

    return (struct cvy_memory_case){
        .device = predictor->device,
        .architecture = network->architecture,
        .model = &network->model,
        .dtype = network->dtype,
        .int8_state = (predictor->owner ? predictor->owner : predictor)->quantizer_states,
        .constant = true,
        .loaded = loaded,
        .batch = batch,
    };
}

/* A batch of one must fit at least: said before anything large is allocated. */
static cvy_status check_memory(struct cvy_predictor *predictor, const struct cvy_architecture *architecture,
                               const struct cvy_model_options *model, enum cvy_dtype dtype)
{
    struct cvy_memory_case one = memory_case(predictor, false, 1);
    struct cvy_memory_estimate estimate;

    one.architecture = architecture;
    one.model = model;
    one.dtype = dtype;
    one.dry_run = true; /* such a plan may never run */
    return cvy_memory_check(&one, cvy_device_available_memory(predictor->device), &estimate);
}

cvy_status cvy_predictor_check_batch(const struct cvy_predictor *predictor, const struct cvy_network *network,
                                     int64_t batch)
{
    struct cvy_memory_case one = memory_case(predictor, true, batch);
    struct cvy_memory_estimate estimate;

    one.model = &network->model;
    one.beside = network == &predictor->network; /* images of floats may want others */
    one.dry_run = true;                          /* it is opened at once: what is timed is timed then */
    return cvy_memory_check(&one, cvy_device_available_memory(predictor->device), &estimate);
}

static cvy_status read_quantizers(struct cvy_predictor *predictor, const struct cvy_architecture *architecture,
                                  const struct cvy_model_options *model, const struct cvy_tensor_file *file)
{
    struct cvy_graph table;
    cvy_status status;

    CVY_TRY(cvy_model_graph(architecture, model, CVY_MODEL_INFER, false, &table));
    status = cvy_weights_quantizer_states(&table, file, &predictor->quantizer_states);
    cvy_graph_release(&table);
    return status;
}

static cvy_status choose_feature_layer(const struct cvy_classifier_options *options, struct cvy_model_options *model)
{
    const char *layer = options->feature_layer;

    if (!layer)
        return CVY_OK;
    if (!model->features)
        return cvy_fail(CVY_USAGE, "option feature_layer is for classifiers with the option features");
    if (!*layer || strlen(layer) >= sizeof model->feature_layer)
        return cvy_fail(CVY_USAGE, "option feature_layer: the network has no layer %s", cvy_quote(layer));
    memcpy(model->feature_layer, layer, strlen(layer) + 1);
    return CVY_OK;
}

static cvy_status open_network(struct cvy_predictor *predictor, const struct cvy_classifier_options *options,
                               const struct cvy_tensor_file *file)
{
    const struct cvy_architecture *architecture = NULL;
    const struct cvy_preprocessing_request request = {options->image_size, options->resize, options->data_backend,
                                                      options->interpolation};
    struct cvy_model_options model = cvy_model_options_make(1, 224);
    enum cvy_dtype dtype;
    int32_t classes;
    bool int8;

    CVY_TRY(count_classes(options, file, &classes));
    CVY_TRY(cvy_model_identify(file, &predictor->info, options->weights, options->arch, &architecture, &model));
    if (predictor->info.class_count > classes)
        return cvy_fail(CVY_BAD_DATA, "%s has %s for %s", cvy_quote(options->weights),
                        cvy_counted(predictor->info.class_count, "class name"), cvy_counted(classes, "class"));
    CVY_TRY(
        cvy_model_choose_preprocessing(&model, &predictor->info, architecture, &request, &predictor->preprocessing));
    if (architecture->task == CVY_TASK_DETECT && !model.float_images)
        return cvy_fail(CVY_BAD_DATA, "%s does not say how a detector's images are made", cvy_quote(options->weights));
    CVY_TRY(cvy_model_choose_padding(&model, &predictor->info, options->weights, options->padding));
    CVY_TRY(
        cvy_model_choose_strides(&model, &predictor->info, architecture, options->weights, options->backbone_strides));
    CVY_TRY(cvy_weights_check_model(architecture, &model, file, options->weights));
    CVY_TRY(cvy_device_open(options->device ? options->device : "auto", options->threads, &predictor->device));
    CVY_TRY(cvy_precision_choose(options->precision, predictor->device, &dtype));
    model.features = options->features && architecture->task == CVY_TASK_CLASSIFY;
    CVY_TRY(choose_feature_layer(options, &model));
    predictor->precision_open = !options->precision || strcmp(options->precision, "fp32") != 0;
    int8 = cvy_network_wants_int8(options->precision, predictor->device, &model);
    if (int8)
        CVY_TRY(read_quantizers(predictor, architecture, &model, file));
    CVY_TRY(check_memory(predictor, architecture, &model, dtype));
    CVY_TRY(cvy_network_open(&predictor->network, predictor->device, architecture, &model, dtype, false));
    predictor->network.int8 = int8;
    predictor->network.constant = true;
    return cvy_weights_load(&predictor->network, file, options->weights, &CVY_WEIGHTS_LOAD_DEFAULTS);
}

static void remember_split(struct cvy_predictor *predictor)
{
    const struct cvy_json_value *saved = predictor->info.options;

    if (!saved)
        return;
    predictor->val_split = cvy_json_get_number(saved, "val-split", 0);
    predictor->split_by_path = strcmp(cvy_json_get_string(saved, "val-split-rule", "seed"), "path") == 0;
    /* Seeds beyond JSON's exact integers are written as text. */
    predictor->seed = (uint64_t)cvy_json_get_int(saved, "seed", 0);
    if (cvy_json_get_string(saved, "seed", NULL))
        predictor->seed = strtoull(cvy_json_get_string(saved, "seed", "0"), NULL, 10);
}

/* What every predictor has for itself. */
static cvy_status open_image_memory(struct cvy_predictor *predictor)
{
    const size_t pixels = cvy_model_image_bytes(&predictor->network.model, CVY_MODEL_INFER);

    predictor->pixels = cvy_calloc_aligned(pixels);
    if (!predictor->pixels)
        return cvy_fail_memory(pixels, "an image");
    return cvy_decoder_new(&predictor->decoder);
}

const char *cvy_predictor_weights_name(const struct cvy_classifier_options *options)
{
    return options->weights ? options->weights : "weights";
}

cvy_status cvy_predictor_open_weights(struct cvy_tensor_file *file, const struct cvy_classifier_options *options)
{
    if (options->weights_data)
        return cvy_weights_open_memory(file, cvy_predictor_weights_name(options), options->weights_data,
                                       options->weights_size);
    return options->weights ? cvy_weights_open(file, options->weights) : cvy_fail(CVY_USAGE, "no weights are given");
}

cvy_status cvy_predictor_open(struct cvy_predictor *predictor, const struct cvy_classifier_options *given)
{
    struct cvy_classifier_options chosen = *given, *options = &chosen;
    struct cvy_tensor_file file = {0};
    cvy_status status;

    *predictor = (struct cvy_predictor){.users = 1};
    CVY_TRY(check_numbers(given));
    CVY_GOTO(cvy_predictor_open_weights(&file, given));
    options->weights = cvy_predictor_weights_name(given);
    CVY_GOTO(cvy_checkpoint_read(&file, options->weights, &predictor->info));
    CVY_GOTO(open_network(predictor, options, &file));
    if (options->class_names)
        CVY_GOTO(cvy_class_names_read(&predictor->names, options->class_names, predictor->network.model.num_classes));
    remember_split(predictor);
    predictor->batch_size =
        options->batch_size ? options->batch_size : cvy_evaluation_batch(predictor->network.architecture);
    predictor->workers = options->workers > 0 ? options->workers : cvy_default_threads();
    CVY_GOTO(open_image_memory(predictor));
    if (predictor->network.model.features)
        CVY_GOTO(cvy_predictor_open_single(predictor)); /* it says how many features there are */
    cvy_tensor_file_close(&file);
    return CVY_OK;
fail:
    cvy_tensor_file_close(&file);
    cvy_predictor_close(predictor);
    return status;
}

cvy_status cvy_predictor_open_context(struct cvy_predictor *predictor, struct cvy_predictor *owner, int threads)
{
    cvy_status status;

    *predictor = (struct cvy_predictor){.users = 1};
    if (threads < 0)
        return cvy_fail(CVY_USAGE, "a context cannot have %d threads", threads);
    owner = owner->owner ? owner->owner : owner;
    if (owner->device->backend != &cvy_backend_cpu && owner->device->backend != &cvy_backend_ref)
        return cvy_fail(CVY_UNAVAILABLE, "contexts share weights on the CPU only, not on %s",
                        cvy_quote(owner->device->backend->name));
    CVY_TRY(cvy_predictor_open_single(owner));
    atomic_fetch_add(&owner->users, 1);
    predictor->owner = owner;
    predictor->info = owner->info;
    predictor->names = owner->names;
    predictor->preprocessing = owner->preprocessing;
    predictor->batch_size = owner->batch_size;
    predictor->workers = owner->workers;
    predictor->val_split = owner->val_split;
    predictor->split_by_path = owner->split_by_path;
    predictor->seed = owner->seed;
    CVY_GOTO(cvy_device_open(owner->device->backend->name, threads > 0 ? threads : owner->device->threads,
                             &predictor->device));
    CVY_GOTO(cvy_network_open_beside(&predictor->network, predictor->device, &owner->network.model, &owner->network));
    CVY_GOTO(cvy_evaluator_open_beside(&predictor->one, &predictor->network, 1, &owner->one));
    CVY_GOTO(open_image_memory(predictor));
    return CVY_OK;
fail:
    cvy_predictor_close(predictor);
    cvy_predictor_release(owner);
    return status;
}

static void close_evaluators(struct cvy_batch_evaluators *evaluators)
{
    for (int i = 0; i < CVY_BATCH_SIZES; i++)
        cvy_evaluator_close(&evaluators->of[i]);
    cvy_network_close(&evaluators->network);
}

void cvy_predictor_close(struct cvy_predictor *predictor)
{
    close_evaluators(&predictor->images);
    close_evaluators(&predictor->tensors);
    cvy_evaluator_close(&predictor->one);
    cvy_evaluator_close(&predictor->many);
    cvy_network_close(&predictor->network);
    cvy_free(predictor->quantizer_states);
    cvy_device_close(predictor->device);
    if (!predictor->owner) {
        cvy_checkpoint_info_release(&predictor->info);
        cvy_class_names_release(&predictor->names);
    }
    cvy_decoder_free(predictor->decoder);
    cvy_resizer_release(&predictor->resizer);
    cvy_free_aligned(predictor->pixels);
    cvy_pixel_bytes_release(&predictor->buffer);
    *predictor = (struct cvy_predictor){0};
}

void cvy_predictor_release(struct cvy_predictor *predictor)
{
    while (predictor && atomic_fetch_sub(&predictor->users, 1) == 1) {
        struct cvy_predictor *owner = predictor->owner;

        cvy_predictor_close(predictor);
        cvy_free(predictor);
        predictor = owner;
    }
}

cvy_status cvy_predictor_begin(struct cvy_predictor *predictor)
{
    if (atomic_exchange(&predictor->busy, true))
        return cvy_fail(CVY_USAGE,
                        "a call with this classifier or detector is in progress: another thread needs its own, or "
                        "a context of this one");
    return CVY_OK;
}

cvy_status cvy_predictor_end(struct cvy_predictor *predictor, cvy_status status)
{
    atomic_store(&predictor->busy, false);
    return status;
}

bool cvy_predictor_go_on(void *context, int64_t done)
{
    struct cvy_predictor *predictor = context;

    (void)done;
    return !atomic_load(&predictor->stop);
}

cvy_status cvy_predictor_stopped(struct cvy_predictor *predictor)
{
    return atomic_load(&predictor->stop) ? cvy_fail(CVY_STOPPED, "stopped") : CVY_OK;
}

cvy_status cvy_predictor_expect_classifier(const struct cvy_predictor *predictor)
{
    if (predictor->network.architecture->task != CVY_TASK_DETECT)
        return CVY_OK;
    return cvy_fail(CVY_BAD_DATA, "%s detects objects and does not classify: convoy detect",
                    predictor->network.architecture->name);
}

const char *cvy_predictor_class_name(const struct cvy_predictor *predictor, int index)
{
    const bool detector = predictor->network.architecture->task == CVY_TASK_DETECT;

    if (predictor->names.count > 0)
        return cvy_class_names_get(&predictor->names, index);
    if (predictor->info.class_count > 0)
        return index >= 0 && index < predictor->info.class_count ? predictor->info.classes[index] : NULL;
    return cvy_class_name_usual(detector, predictor->network.model.num_classes, index);
}

/* ---- images ---- */

struct cvy_transform cvy_predictor_transform(const struct cvy_predictor *predictor)
{
    return (struct cvy_transform){
        .size = predictor->preprocessing.image_size,
        .resize = predictor->preprocessing.resize,
        .exif_orientation = predictor->preprocessing.exif_orientation,
        .tensorflow = predictor->preprocessing.tensorflow,
        .dali = predictor->preprocessing.dali,
        .triangular = predictor->preprocessing.triangular,
        .rounded_scale = predictor->preprocessing.rounded_scale,
        .filter = predictor->preprocessing.filter,
        .detection = predictor->network.architecture->task == CVY_TASK_DETECT,
    };
}

cvy_status cvy_predictor_detection_size(const struct cvy_predictor *predictor, struct cvy_decoder *decoder,
                                        const struct cvy_encoded *encoded, int32_t *width, int32_t *height)
{
    int32_t w, h;

    CVY_TRY(cvy_decoder_start(decoder, encoded->name, encoded->data, encoded->size, &w, &h));
    const bool swap = predictor->preprocessing.exif_orientation && cvy_decoder_orientation(decoder) >= 5;
    *width = swap ? h : w;
    *height = swap ? w : h;
    return CVY_OK;
}

cvy_status cvy_predictor_read_detection(const struct cvy_predictor *predictor, struct cvy_decoder *decoder,
                                        struct cvy_resizer *resizer, const struct cvy_encoded *encoded, float *out,
                                        int32_t *width, int32_t *height)
{
    const struct cvy_transform transform = cvy_predictor_transform(predictor);
    const struct cvy_coco_image nothing_known = {0};
    const struct cvy_truth truth = {.image = &nothing_known};
    float boxes[CVY_MAX_BOXES][4];
    int32_t labels[CVY_MAX_BOXES];

    CVY_TRY(cvy_transform_detection(&transform, decoder, resizer, encoded, &truth, NULL, out,
                                    &(struct cvy_target_boxes){boxes, labels}));
    return cvy_predictor_detection_size(predictor, decoder, encoded, width, height);
}

cvy_status cvy_predictor_open_single(struct cvy_predictor *predictor)
{
    return predictor->one.network ? CVY_OK : cvy_evaluator_open(&predictor->one, &predictor->network, 1);
}

static struct cvy_loader_options loader_options(const struct cvy_predictor *predictor,
                                                const struct cvy_dataset *dataset)
{
    return (struct cvy_loader_options){
        .dataset = dataset,
        .transform = cvy_predictor_transform(predictor),
        .batch_size = predictor->batch_size,
        .workers = predictor->workers,
        .prefetch = CVY_PREFETCH,
        .world = 1,
    };
}

cvy_status cvy_predictor_open_batches(struct cvy_predictor *predictor, const struct cvy_dataset *dataset)
{
    const struct cvy_loader_options loader = loader_options(predictor, dataset);
    struct cvy_memory_case one = memory_case(predictor, true, predictor->batch_size);
    struct cvy_memory_estimate estimate;
    struct cvy_data_summary summary;
    int64_t batch = CVY_AUTO_INFERENCE_MAX;

    if (predictor->many.network)
        return CVY_OK;
    one.image_data = CVY_SYNTHETIC_BUFFERS * cvy_model_image_bytes(&predictor->network.model, CVY_MODEL_INFER);
    if (dataset) {
        CVY_TRY(cvy_data_summarize(dataset, &summary));
        one.image_data = cvy_loader_image_bytes(&loader);
        one.other_data = cvy_loader_other_bytes(&loader, summary.largest_pixels);
        batch = dataset->sample_count < CVY_AUTO_INFERENCE_MAX ? dataset->sample_count : CVY_AUTO_INFERENCE_MAX;
    }
    if (predictor->batch_size == CVY_BATCH_AUTO) {
        CVY_TRY(cvy_memory_choose_batch(&one, batch, &batch));
        cvy_log(CVY_LOG_INFO, "batches of %s", cvy_counted(batch, "image"));
        predictor->batch_size = (int32_t)batch;
    } else {
        CVY_TRY(cvy_memory_check(&one, cvy_device_available_memory(predictor->device), &estimate));
    }
    if (dataset && predictor->precision_open && !predictor->network.int8 && dataset->sample_count >= MANY_IMAGES)
        cvy_precision_advise(predictor->device, predictor->network.dtype, "--precision bf16");
    return cvy_evaluator_open(&predictor->many, &predictor->network, predictor->batch_size);
}

cvy_status cvy_predictor_open_source(const struct cvy_predictor *predictor, const struct cvy_dataset *dataset,
                                     int32_t batch_size, bool name_bad, struct cvy_source *source)
{
    struct cvy_loader_options loader = loader_options(predictor, dataset);

    loader.batch_size = batch_size;
    loader.name_bad = name_bad;
    return cvy_source_open(source, &loader);
}

cvy_status cvy_predictor_list(const struct cvy_predictor *predictor, const char *const *paths, size_t count,
                              struct cvy_dataset *dataset)
{
    const char **files = NULL;
    size_t found = 0;

    *dataset = (struct cvy_dataset){0};
    CVY_TRY(cvy_list_images(paths, count, &dataset->arena, &files, &found));
    if (found == 0 || found > UINT32_MAX)
        return found ? cvy_fail(CVY_BAD_DATA, "there are too many images")
                     : cvy_fail(CVY_BAD_DATA, "there is no image in %s", cvy_quote(count ? paths[0] : ""));
    dataset->detection = predictor->network.architecture->task == CVY_TASK_DETECT;
    dataset->samples = cvy_arena_alloc(&dataset->arena, found * sizeof *dataset->samples);
    if (dataset->detection) /* nothing is known of them, nor of objects */
        dataset->images = cvy_arena_alloc(&dataset->arena, found * sizeof *dataset->images);
    if (!dataset->samples || (dataset->detection && !dataset->images))
        return cvy_fail_memory(found * sizeof *dataset->samples, "the list of images");
    for (size_t i = 0; i < found; i++)
        dataset->samples[i] = (struct cvy_sample){.path = files[i]};
    dataset->sample_count = (uint32_t)found;
    return CVY_OK;
}

/* ---- latencies ---- */

cvy_status cvy_predictor_time_batches(const struct cvy_source *source, struct cvy_pass *pass)
{
    const size_t count = (size_t)cvy_source_batches(source) + 1;

    pass->latency = cvy_calloc(count, sizeof *pass->latency);
    return pass->latency ? CVY_OK : cvy_fail_memory(count * sizeof *pass->latency, "the times of the batches");
}

void cvy_predictor_set_latencies(const struct cvy_predictor *predictor, const struct cvy_pass *pass,
                                 struct cvy_evaluation *result)
{
    const int64_t first = pass->batches > 1, count = pass->batches - first; /* what the first one warms up */
    double *seconds = pass->latency + first, sum = 0;

    for (int64_t i = 0; i < count; i++)
        sum += seconds[i];
    cvy_sort_values(seconds, count);
    result->batch_size = predictor->batch_size;
    result->latency_average = count > 0 ? 1000 * sum / (double)count : 0;
    result->latency_p50 = 1000 * cvy_quantile(seconds, count, 0.50);
    result->latency_p90 = 1000 * cvy_quantile(seconds, count, 0.90);
    result->latency_p95 = 1000 * cvy_quantile(seconds, count, 0.95);
    result->latency_p99 = 1000 * cvy_quantile(seconds, count, 0.99);
}
