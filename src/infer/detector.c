/* Detection: images in, objects out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/sized.h"
#include "base/system.h"
#include "convoy/detect.h"
#include "infer/batches.h"
#include "infer/draw_names.h"
#include "report/drawing/draw.h"

struct cvy_detector {
    struct cvy_predictor predictor; /* first: it begins the block */
    int64_t largest_id;             /* of the categories that the weights name; 0: they name none */
};

/* ---- opening ---- */

/* A network may have more classes than its data had: those get the ids after the largest. */
static cvy_status find_largest_id(cvy_detector *detector, const char *weights)
{
    const struct cvy_checkpoint_info *info = &detector->predictor.info;

    for (int32_t i = 0; info->category_ids && i < info->class_count; i++)
        if (info->category_ids[i] > detector->largest_id)
            detector->largest_id = info->category_ids[i];
    if (detector->largest_id > INT64_MAX - cvy_detector_classes(detector))
        return cvy_fail(CVY_BAD_DATA, "%s: no ids are left after %lld", cvy_quote(weights),
                        (long long)detector->largest_id);
    return CVY_OK;
}

cvy_status cvy_detector_open(const struct cvy_classifier_options *options, cvy_detector **detector)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(detector);
    struct cvy_classifier_options known = CVY_CLASSIFIER_DEFAULTS;
    struct cvy_detector *d;
    cvy_status status;

    *detector = NULL;
    CVY_TRY(cvy_sized_take(&known, sizeof known, options, "cvy_classifier_options"));
    d = cvy_calloc(1, sizeof *d);
    if (!d)
        return cvy_fail_memory(sizeof *d, "a detector");
    CVY_GOTO(cvy_predictor_open(&d->predictor, &known));
    if (d->predictor.network.architecture->task != CVY_TASK_DETECT) {
        status = cvy_fail(CVY_BAD_DATA, "%s holds %s, which classifies and does not detect: convoy classify",
                          cvy_quote(cvy_predictor_weights_name(&known)), d->predictor.network.architecture->name);
        goto fail;
    }
    CVY_GOTO(find_largest_id(d, cvy_predictor_weights_name(&known)));
    *detector = d;
    return CVY_OK;
fail:
    cvy_predictor_close(&d->predictor);
    cvy_free(d);
    return status;
}

cvy_status cvy_detector_open_context(cvy_detector *detector, int threads, cvy_detector **context)
{
    CVY_REQUIRE(detector);
    CVY_REQUIRE(context);
    struct cvy_detector *d = cvy_calloc(1, sizeof *d);
    cvy_status status;

    *context = NULL;
    if (!d)
        return cvy_fail_memory(sizeof *d, "a detector");
    d->largest_id = detector->largest_id;
    status = cvy_predictor_begin(&detector->predictor);
    if (status == CVY_OK)
        status = cvy_predictor_end(&detector->predictor,
                                   cvy_predictor_open_context(&d->predictor, &detector->predictor, threads));
    if (status == CVY_OK)
        *context = d;
    else
        cvy_free(d);
    return status;
}

void cvy_detector_stop(cvy_detector *detector)
{
    if (detector)
        atomic_store(&detector->predictor.stop, true);
}

void cvy_detector_close(cvy_detector *detector)
{
    cvy_predictor_release(detector ? &detector->predictor : NULL);
}

int cvy_detector_classes(const cvy_detector *detector)
{
    return detector ? detector->predictor.network.model.num_classes : 0;
}

const char *cvy_detector_class_name(const cvy_detector *detector, int index)
{
    const char *name = detector ? cvy_predictor_class_name(&detector->predictor, index) : NULL;

    return name && name[0] ? name : NULL; /* COCO's slots without a category have no name */
}

int64_t cvy_detector_class_id(const cvy_detector *detector, int index)
{
    const struct cvy_checkpoint_info *info = detector ? &detector->predictor.info : NULL;

    if (!info || !info->category_ids || index < 0)
        return index + 1;
    return index < info->class_count ? info->category_ids[index] : detector->largest_id + 1 + index - info->class_count;
}

const char *cvy_detector_arch(const cvy_detector *detector)
{
    return detector ? detector->predictor.network.architecture->name : NULL;
}

/* ---- one image ---- */

/* The objects on image `index` of the evaluator's batch. They come by falling score. */
static int take_objects(const cvy_detector *detector, const struct cvy_evaluator *evaluator, int32_t index,
                        double threshold, int32_t width, int32_t height, struct cvy_detected_object *objects)
{
    const struct cvy_detector_outputs *found = &evaluator->found;
    const size_t first = (size_t)index * CVY_MAX_DETECTIONS;
    int count = 0;

    for (int32_t i = 0; i < found->count[index] && i < CVY_DETECTED_OBJECTS_MAX; i++) {
        const int32_t class = found->classes[first + (size_t)i];
        /* As floats: a score that was printed is a threshold that keeps it. */
        if (!(found->scores[first + (size_t)i] >= (float)threshold))
            continue;
        objects[count] = (struct cvy_detected_object){
            .class_index = class,
            .class_id = cvy_detector_class_id(detector, class),
            .class_name = cvy_detector_class_name(detector, class),
            .score = found->scores[first + (size_t)i],
        };
        cvy_box_pixels(found->boxes + 4 * (first + (size_t)i), width, height, objects[count++].box);
    }
    return count;
}

static cvy_status check_threshold(double threshold)
{
    if (threshold >= 0 && threshold <= 1)
        return CVY_OK;
    return cvy_fail(CVY_USAGE, "a threshold of %g is not possible: scores lie between 0 and 1", threshold);
}

static cvy_status detect_encoded(cvy_detector *detector, const struct cvy_encoded *encoded, double threshold,
                                 struct cvy_detected_object objects[CVY_DETECTED_OBJECTS_MAX], int *count,
                                 int32_t *width, int32_t *height)
{
    struct cvy_predictor *predictor = &detector->predictor;

    CVY_TRY(check_threshold(threshold));
    CVY_TRY(cvy_predictor_open_single(predictor));
    CVY_TRY(cvy_predictor_read_detection(predictor, predictor->decoder, &predictor->resizer, encoded,
                                         (float *)(void *)predictor->pixels, width, height));
    CVY_TRY(cvy_evaluator_run(&predictor->one, predictor->pixels, 1, false));
    *count = take_objects(detector, &predictor->one, 0, threshold, *width, *height, objects);
    return CVY_OK;
}

cvy_status cvy_detect_memory(cvy_detector *detector, const char *name, const void *data, size_t size, double threshold,
                             struct cvy_detected_object objects[CVY_DETECTED_OBJECTS_MAX], int *count, int *width,
                             int *height)
{
    CVY_REQUIRE(detector);
    CVY_REQUIRE(name);
    CVY_REQUIRE(data);
    CVY_REQUIRE(objects);
    CVY_REQUIRE(count);
    const struct cvy_encoded encoded = {.name = name, .data = data, .size = size};
    int32_t w, h;

    *count = 0;
    CVY_TRY(cvy_predictor_begin(&detector->predictor));
    CVY_TRY(
        cvy_predictor_end(&detector->predictor, detect_encoded(detector, &encoded, threshold, objects, count, &w, &h)));
    if (width)
        *width = w;
    if (height)
        *height = h;
    return CVY_OK;
}

cvy_status cvy_detect_pixels(cvy_detector *detector, const char *name, const struct cvy_pixels *pixels,
                             double threshold, struct cvy_detected_object objects[CVY_DETECTED_OBJECTS_MAX], int *count)
{
    CVY_REQUIRE(detector);
    CVY_REQUIRE(name);
    CVY_REQUIRE(pixels);
    CVY_REQUIRE(objects);
    CVY_REQUIRE(count);
    struct cvy_encoded encoded;
    int32_t width, height;
    cvy_status status;

    *count = 0;
    CVY_TRY(cvy_predictor_begin(&detector->predictor));
    status = cvy_pixels_encode(pixels, name, &detector->predictor.buffer, &encoded);
    if (status == CVY_OK)
        status = detect_encoded(detector, &encoded, threshold, objects, count, &width, &height);
    return cvy_predictor_end(&detector->predictor, status);
}

/* ---- images ---- */

struct wanted {
    const cvy_detector *detector;
    double threshold;
    struct cvy_detect_outputs outputs;
};

static void take_result(void *context, const struct cvy_evaluator *evaluator, const struct cvy_image_result *result)
{
    const struct wanted *wanted = context;
    const struct cvy_detect_outputs *outputs = &wanted->outputs;
    const int64_t row = result->number;
    const bool good = result->status == CVY_OK;

    outputs->count[row] =
        good ? take_objects(wanted->detector, evaluator, result->index, wanted->threshold, result->width,
                            result->height, outputs->objects + row * CVY_DETECTED_OBJECTS_MAX)
             : 0;
    if (outputs->width)
        outputs->width[row] = good ? result->width : 0;
    if (outputs->height)
        outputs->height[row] = good ? result->height : 0;
}

cvy_status cvy_detect_images(cvy_detector *detector, const struct cvy_image *images, int count, double threshold,
                             const struct cvy_detect_outputs *outputs)
{
    CVY_REQUIRE(detector);
    CVY_REQUIRE(images || count == 0);
    CVY_REQUIRE(outputs);
    struct wanted wanted = {detector, threshold, CVY_SIZED(cvy_detect_outputs)};
    struct cvy_detect_outputs *where = &wanted.outputs;

    CVY_TRY(cvy_sized_take(where, sizeof *where, outputs, "cvy_detect_outputs"));
    if (!where->objects || !where->count)
        return cvy_fail(CVY_USAGE, "struct cvy_detect_outputs has no place for %s",
                        where->objects ? "the counts of objects" : "objects");
    CVY_TRY(check_threshold(threshold));
    return cvy_predictor_compute_images(&detector->predictor, &(struct cvy_image_work){
                                                                  .images = images,
                                                                  .count = count,
                                                                  .status = where->status,
                                                                  .errors = where->errors,
                                                                  .take = take_result,
                                                                  .context = &wanted,
                                                              });
}

/* ---- files ---- */

/* What is made of each image of a batch, once the network has seen it. */
struct seen {
    cvy_status status;
    char error[1024];
    int32_t width, height;
    int count;
    struct cvy_detected_object objects[CVY_DETECTED_OBJECTS_MAX];
};
struct job {
    const cvy_detector *detector;
    struct cvy_predictor *predictor; /* the detector's */
    const struct cvy_evaluator *evaluator;
    const struct cvy_dataset *dataset;
    const struct cvy_batch *batch;
    const struct cvy_detect_options *options;
    const char **names; /* of the copies; NULL: nothing is drawn */
    struct seen *seen;  /* (batch) */
};

static cvy_status begin_images(void *context, void **state)
{
    struct cvy_decoder *decoder = NULL;

    (void)context;
    CVY_TRY(cvy_decoder_new(&decoder));
    *state = decoder;
    return CVY_OK;
}

static void end_images(void *state)
{
    cvy_decoder_free(state);
}

static cvy_status draw(const struct job *job, struct cvy_decoder *decoder, const struct cvy_encoded *encoded,
                       const struct seen *seen, const char *path)
{
    const bool turn = job->detector->predictor.preprocessing.exif_orientation;
    struct cvy_drawn_box boxes[CVY_DETECTED_OBJECTS_MAX];
    char names[CVY_DETECTED_OBJECTS_MAX][24];
    struct cvy_picture picture;
    cvy_status status;

    for (int i = 0; i < seen->count; i++) {
        const struct cvy_detected_object *object = &seen->objects[i];
        snprintf(names[i], sizeof names[i], "class %lld", (long long)object->class_id);
        boxes[i] = (struct cvy_drawn_box){
            .x = (double)object->box[0],
            .y = (double)object->box[1],
            .width = (double)object->box[2],
            .height = (double)object->box[3],
            .label = object->class_index,
            .name = object->class_name ? object->class_name : names[i],
            .score = (double)object->score,
        };
    }
    CVY_GOTO(cvy_picture_decode(decoder, encoded->name, encoded->data, encoded->size, turn, &picture));
    CVY_GOTO(cvy_draw_boxes(&picture, boxes, (size_t)seen->count));
    status = cvy_picture_write(&picture, path);
fail:
    cvy_picture_release(&picture);
    return status;
}

/* Only what must end the whole work is returned; what is wrong with the image stays with it. */
static cvy_status finish_image(void *context, void *state, int64_t index)
{
    const struct job *job = context;
    const uint32_t sample = job->batch->samples[index];
    struct seen *seen = &job->seen[index];
    struct cvy_encoded encoded = {0};
    cvy_status status;

    *seen = (struct seen){.status = job->batch->status[index]};
    if (seen->status != CVY_OK)
        return CVY_OK;
    CVY_GOTO(cvy_sample_read(&job->dataset->samples[sample], &encoded));
    status = cvy_predictor_detection_size(&job->detector->predictor, state, &encoded, &seen->width, &seen->height);
    if (status == CVY_OK) {
        seen->count = take_objects(job->detector, job->evaluator, (int32_t)index, job->options->threshold, seen->width,
                                   seen->height, seen->objects);
        if (job->names)
            status = draw(job, state, &encoded, seen, job->names[sample]);
    }
    cvy_encoded_release(&encoded);
fail:
    if (status != CVY_BAD_DATA && status != CVY_NO_INPUT)
        return status;
    seen->status = status; /* the file has changed since the network saw it */
    cvy_error_get(seen->error, sizeof seen->error);
    return CVY_OK;
}

/* The first bad file and its sentence. */
struct first_bad {
    cvy_status status;
    char sentence[1024];
};

static void answer_batch(const struct job *job, cvy_detect_handler handler, void *context, struct first_bad *bad)
{
    for (int32_t i = 0; i < job->batch->count; i++) {
        const struct seen *seen = &job->seen[i];
        struct cvy_detect_answer answer = {
            .file = job->dataset->samples[job->batch->samples[i]].path,
            .status = seen->status,
        };
        if (seen->status == CVY_OK) {
            answer.width = seen->width;
            answer.height = seen->height;
            answer.count = seen->count;
            answer.objects = seen->objects;
        } else {
            answer.error = job->batch->status[i] != CVY_OK ? job->batch->errors[i] : seen->error;
            if (bad->status == CVY_OK) {
                bad->status = seen->status;
                snprintf(bad->sentence, sizeof bad->sentence, "%s", answer.error);
            }
        }
        handler(context, &answer);
    }
}

static cvy_status detect_batches(struct job *job, struct cvy_source *source, struct cvy_evaluator *evaluator,
                                 cvy_detect_handler handler, void *context)
{
    const struct cvy_parallel work = {job, begin_images, end_images, finish_image};
    struct first_bad bad = {.status = CVY_OK};

    CVY_TRY(cvy_source_start(source, 0, 0));
    for (;;) {
        CVY_TRY(cvy_predictor_stopped(job->predictor));
        CVY_TRY(cvy_source_next(source, &job->batch));
        if (!job->batch)
            break;
        CVY_TRY(cvy_evaluator_run(evaluator, job->batch->images, job->batch->count, false));
        CVY_TRY(cvy_parallel_run(&work, job->batch->count, job->detector->predictor.workers));
        answer_batch(job, handler, context, &bad);
    }
    if (bad.status != CVY_OK)
        cvy_error_put(bad.sentence);
    return bad.status;
}

static cvy_status plan_copies(struct job *job, const char *const *paths, size_t count, struct cvy_dataset *dataset)
{
    const char **files = cvy_calloc(dataset->sample_count, sizeof *files);
    cvy_status status;

    if (!files)
        return cvy_fail_memory(dataset->sample_count * sizeof *files, "the list of images");
    for (uint32_t i = 0; i < dataset->sample_count; i++)
        files[i] = dataset->samples[i].path;
    CVY_GOTO(cvy_draw_check());
    CVY_GOTO(cvy_make_directories(job->options->draw));
    CVY_GOTO(
        cvy_draw_names(job->options->draw, paths, count, files, dataset->sample_count, &dataset->arena, &job->names));
fail:
    cvy_free(files);
    return status;
}

cvy_status cvy_detect_paths(cvy_detector *detector, const char *const *paths, size_t count,
                            const struct cvy_detect_options *options, cvy_detect_handler handler, void *context)
{
    CVY_REQUIRE(detector);
    CVY_REQUIRE(paths || count == 0);
    CVY_REQUIRE(options);
    CVY_REQUIRE(handler);
    struct cvy_predictor *predictor = &detector->predictor;
    struct cvy_dataset dataset = {0};
    struct cvy_source source = {0};
    struct cvy_detect_options known = CVY_DETECT_DEFAULTS;
    struct job job = {.detector = detector, .predictor = predictor, .dataset = &dataset, .options = &known};
    struct cvy_evaluator *evaluator;
    cvy_status status;

    CVY_TRY(cvy_sized_take(&known, sizeof known, options, "cvy_detect_options"));
    CVY_TRY(check_threshold(known.threshold));
    CVY_TRY(cvy_predictor_begin(predictor));
    atomic_store(&predictor->stop, false);
    CVY_GOTO(cvy_predictor_list(predictor, paths, count, &dataset));
    if (known.draw)
        CVY_GOTO(plan_copies(&job, paths, count, &dataset));
    evaluator = dataset.sample_count == 1 ? &predictor->one : &predictor->many;
    CVY_GOTO(dataset.sample_count == 1 ? cvy_predictor_open_single(predictor)
                                       : cvy_predictor_open_batches(predictor, &dataset));
    job.evaluator = evaluator;
    job.seen = cvy_calloc((size_t)evaluator->batch, sizeof *job.seen);
    if (!job.seen) {
        status = cvy_fail_memory((size_t)evaluator->batch * sizeof *job.seen, "the objects of a batch");
        goto fail;
    }
    CVY_GOTO(cvy_predictor_open_source(predictor, &dataset, (int32_t)evaluator->batch, false, &source));
    status = detect_batches(&job, &source, evaluator, handler, context);
fail:
    cvy_source_close(&source);
    cvy_dataset_close(&dataset);
    cvy_free(job.seen);
    return cvy_predictor_end(predictor, status);
}
