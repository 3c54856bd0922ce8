/* Opening, starting and closing; the batches that the caller sees. */
#include "data/loader/loader.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "base/system.h"
#include "data/loader/loader_internal.h"

enum { SCALED_SIDES = 4 /* times the result: then half of the crops are large enough for --decode fast */ };

/* ---- opening and closing ---- */

static cvy_status check_options(const struct cvy_loader_options *options)
{
    const int32_t size = options->transform.size;
    if (options->batch_size < 1 || options->workers < 1 || options->workers > 1024 || options->prefetch < 1 ||
        options->prefetch > 4096)
        return cvy_fail(CVY_USAGE, "batch size %d, %d workers and prefetch %d: each must be at least 1",
                        options->batch_size, options->workers, options->prefetch);
    if (size < 1 || size > 16384 ||
        (!options->transform.training && !options->transform.detection && options->transform.resize < 1))
        return cvy_fail(CVY_USAGE, "an image size of %d (resized to %d) is not possible", size,
                        options->transform.resize);
    if (options->world < 1 || options->rank < 0 || options->rank >= options->world)
        return cvy_fail(CVY_USAGE, "rank %d of %d is not possible", options->rank, options->world);
    if (options->autoaugment && options->transform.tensorflow) /* bytes, not floats */
        return cvy_fail(CVY_USAGE, "option --augmentation autoaugment is not for TensorFlow's transforms");
    if (options->autoaugment && options->transform.detection)
        return cvy_fail(CVY_USAGE, "option --augmentation autoaugment is not for detection: boxes would not follow");
    if (options->transform.detection != options->dataset->detection)
        return cvy_fail(CVY_BAD_DATA, options->dataset->detection
                                          ? "the data set has boxes around objects: it is for detection"
                                          : "the data set has no boxes around objects, which detection needs");
    if (options->dataset->sample_count == 0)
        return cvy_fail(CVY_BAD_DATA, "the data set holds no images");
    return CVY_OK;
}

static cvy_status init_slot(struct cvy_loader *loader, struct loader_slot *slot)
{
    const size_t count = (size_t)loader->options.batch_size;
    size_t bytes;
    if (!cvy_size_mul(count, loader->image_bytes, &bytes))
        return cvy_fail(CVY_USAGE, "a batch of %zu images of %zu bytes is not possible", count, loader->image_bytes);
    CVY_TRY(cvy_loader_init_images(loader, slot, bytes));
    slot->labels = cvy_calloc(count, sizeof *slot->labels);
    slot->samples = cvy_calloc(count, sizeof *slot->samples);
    slot->status = cvy_calloc(count, sizeof *slot->status);
    slot->errors = cvy_calloc(count, sizeof *slot->errors);
    if (loader->options.transform.detection) {
        slot->boxes = cvy_calloc(count, CVY_MAX_BOXES * sizeof *slot->boxes);
        slot->box_labels = cvy_calloc(count, CVY_MAX_BOXES * sizeof *slot->box_labels);
        if (!slot->boxes || !slot->box_labels)
            return cvy_fail_memory(count * CVY_MAX_BOXES * sizeof *slot->boxes, "the boxes of a batch");
    }
    if (!slot->images || !slot->labels || !slot->samples || !slot->status || !slot->errors)
        return cvy_fail_memory(bytes, "a batch of images");
    slot->batch = (struct cvy_batch){.images = loader->device ? slot->device_images : slot->images,
                                     .on_device = loader->device != NULL,
                                     .labels = slot->labels,
                                     .boxes = slot->boxes ? slot->boxes[0] : NULL,
                                     .box_labels = slot->box_labels,
                                     .samples = slot->samples,
                                     .status = slot->status,
                                     .errors = (const char *const *)slot->errors};
    return CVY_OK;
}

static void release_slot(struct cvy_loader *loader, struct loader_slot *slot)
{
    for (int32_t i = 0; slot->errors && i < loader->options.batch_size; i++)
        cvy_free(slot->errors[i]);
    cvy_loader_release_images(loader, slot);
    cvy_free(slot->labels);
    cvy_free(slot->boxes);
    cvy_free(slot->box_labels);
    cvy_free(slot->samples);
    cvy_free(slot->status);
    cvy_free(slot->errors);
}

static cvy_status init_sync(struct cvy_loader *loader)
{
    loader->has_mutex = pthread_mutex_init(&loader->mutex, NULL) == 0;
    loader->has_work = pthread_cond_init(&loader->work, NULL) == 0;
    loader->has_ready = pthread_cond_init(&loader->ready, NULL) == 0;
    if (!loader->has_mutex || !loader->has_work || !loader->has_ready)
        return cvy_fail(CVY_FAILED, "no more locks can be made for the image loader");
    return CVY_OK;
}

static cvy_status start_workers(struct cvy_loader *loader)
{
    cvy_status status = CVY_OK;

    for (int32_t i = 0; status == CVY_OK && i < loader->options.workers; i++) {
        struct loader_worker *worker = &loader->workers[i];
        worker->loader = loader;
        worker->number = i;
        status = cvy_decoder_new(&worker->decoder);
        if (status == CVY_OK && loader->options.autoaugment) {
            worker->scratch = cvy_calloc(loader->image_bytes, 1);
            status = worker->scratch ? CVY_OK : cvy_fail_memory(loader->image_bytes, "the augmentation");
        }
        if (status != CVY_OK)
            break;
        worker->running = cvy_thread_start(&worker->thread, cvy_loader_work, worker);
        if (!worker->running)
            status = cvy_fail(CVY_FAILED, "cannot start loader thread %d of %d", i + 1, loader->options.workers);
    }
    return status;
}

static void count_batches(struct cvy_loader *loader)
{
    const struct cvy_loader_options *o = &loader->options;
    const int64_t samples = o->dataset->sample_count;
    loader->rank_count = samples > o->rank ? (samples - o->rank - 1) / o->world + 1 : 0;
    if (o->even_last)
        loader->rank_count = samples / o->world; /* of every rank: up to world - 1 samples are left out */
    if (o->drop_last && !o->even_last)
        loader->batches = samples / o->world / o->batch_size;
    else
        loader->batches = (loader->rank_count + o->batch_size - 1) / o->batch_size;
}

cvy_status cvy_loader_open(const struct cvy_loader_options *options, struct cvy_loader **out)
{
    cvy_status status = CVY_OK;
    struct cvy_loader *loader = NULL;

    *out = NULL;
    CVY_TRY(check_options(options));
    loader = cvy_calloc(1, sizeof *loader);
    if (!loader)
        return cvy_fail_memory(sizeof *loader, "the image loader");
    loader->options = *options;
    loader->image_bytes = cvy_transform_bytes(&options->transform);
    CVY_GOTO(init_sync(loader));
    count_batches(loader);
    loader->ring_size = options->prefetch + LOADER_CALLERS_BATCHES;
    loader->ring = cvy_calloc((size_t)loader->ring_size, sizeof *loader->ring);
    loader->workers = cvy_calloc((size_t)options->workers, sizeof *loader->workers);
    CVY_GOTO(cvy_sampler_open(&loader->sampler, options->dataset, options->sampler, options->seed));
    loader->order = cvy_calloc((size_t)loader->rank_count + 1, sizeof *loader->order);
    loader->named = cvy_calloc(options->dataset->sample_count, 1);
    if (!loader->ring || !loader->workers || !loader->order || !loader->named) {
        status = cvy_fail_memory((size_t)options->dataset->sample_count * 9, "the image loader");
        goto fail;
    }
    CVY_GOTO(cvy_loader_open_device(loader));
    for (int32_t i = 0; i < loader->ring_size; i++)
        CVY_GOTO(init_slot(loader, &loader->ring[i]));
    CVY_GOTO(start_workers(loader));
    CVY_GOTO(cvy_loader_start_lanes(loader));
    *out = loader;
    return CVY_OK;
fail:
    cvy_loader_close(loader);
    return status;
}

const char *cvy_loader_decoder(const struct cvy_loader *loader)
{
    return loader->device ? loader->decoding->description(loader->device) : NULL;
}

void cvy_loader_close(struct cvy_loader *loader)
{
    if (!loader)
        return;
    if (loader->has_mutex && loader->has_work && loader->workers) {
        pthread_mutex_lock(&loader->mutex);
        loader->stopping = true;
        pthread_cond_broadcast(&loader->work);
        pthread_mutex_unlock(&loader->mutex);
    }
    for (int32_t i = 0; loader->workers && i < loader->options.workers; i++) {
        if (loader->workers[i].running)
            pthread_join(loader->workers[i].thread, NULL);
        cvy_decoder_free(loader->workers[i].decoder);
        cvy_resizer_release(&loader->workers[i].resizer);
        cvy_free(loader->workers[i].scratch);
    }
    for (int32_t i = 0; loader->lanes && i < loader->lane_count; i++) {
        if (loader->lanes[i].running)
            pthread_join(loader->lanes[i].thread, NULL);
    }
    for (int32_t i = 0; loader->ring && i < loader->ring_size; i++)
        release_slot(loader, &loader->ring[i]);
    cvy_loader_close_device(loader);
    if (loader->has_ready)
        pthread_cond_destroy(&loader->ready);
    if (loader->has_work)
        pthread_cond_destroy(&loader->work);
    if (loader->has_mutex)
        pthread_mutex_destroy(&loader->mutex);
    cvy_free(loader->ring);
    cvy_free(loader->workers);
    cvy_sampler_close(&loader->sampler);
    cvy_free(loader->order);
    cvy_free(loader->named);
    cvy_free(loader);
}

/* ---- an epoch ---- */

int64_t cvy_loader_batches(const struct cvy_loader *loader)
{
    return loader->batches;
}

/* Make the place of batch `index` ready to be filled. */
static void reset_slot(struct cvy_loader *loader, int64_t index)
{
    struct loader_slot *slot = &loader->ring[index % loader->ring_size];
    const int32_t size = loader->options.batch_size;
    const int64_t left = loader->end_ticket - index * size;

    slot->done = 0;
    slot->ready = false;
    cvy_loader_drop_encoded(slot, size);
    slot->batch.epoch = loader->epoch;
    slot->batch.index = index;
    slot->batch.count = left < size ? (int32_t)left : size;
    for (int32_t i = 0; i < size; i++) {
        cvy_free(slot->errors[i]);
        slot->errors[i] = NULL;
        slot->labels[i] = -1;
        slot->samples[i] = 0;
        slot->status[i] = CVY_OK;
    }
    if (slot->batch.count < size) {
        const size_t count = (size_t)slot->batch.count, rest = (size_t)size - count;
        memset(slot->images + count * loader->image_bytes, 0, rest * loader->image_bytes);
        cvy_loader_clear_boxes(slot, count, rest);
    }
}

void cvy_loader_skip(struct cvy_loader *loader, uint32_t epoch, uint32_t skip)
{
    cvy_sampler_skip(&loader->sampler, epoch, skip);
}

cvy_status cvy_loader_start(struct cvy_loader *loader, uint32_t epoch, int64_t first_batch)
{
    const int64_t size = loader->options.batch_size;

    if (first_batch < 0 || first_batch > loader->batches)
        return cvy_fail(CVY_USAGE, "an epoch of %lld batches cannot begin at batch %lld", (long long)loader->batches,
                        (long long)first_batch);
    pthread_mutex_lock(&loader->mutex);
    loader->active = false;
    while (loader->busy > 0)
        pthread_cond_wait(&loader->ready, &loader->mutex);
    cvy_sampler_slots(&loader->sampler, epoch, loader->options.rank, loader->options.world, loader->order);
    loader->epoch = epoch;
    loader->failure = CVY_OK;
    loader->wait_seconds = 0;
    loader->start_clock = cvy_clock();
    loader->stats = (struct cvy_loader_stats){0};
    loader->first_batch = loader->next_batch = loader->lane_batch = first_batch;
    loader->next_ticket = first_batch * size;
    loader->end_ticket = loader->batches * size < loader->rank_count ? loader->batches * size : loader->rank_count;
    for (int64_t b = first_batch; b < cvy_loader_batch_limit(loader) && b < loader->batches; b++)
        reset_slot(loader, b);
    loader->active = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    return CVY_OK;
}

cvy_status cvy_loader_next(struct cvy_loader *loader, const struct cvy_batch **batch)
{
    cvy_status status = CVY_OK;

    *batch = NULL;
    pthread_mutex_lock(&loader->mutex);
    if (!loader->active) {
        status = cvy_fail(CVY_FAILED, "the image loader was not started");
    } else if (loader->next_batch < loader->batches) {
        struct loader_slot *slot = &loader->ring[loader->next_batch % loader->ring_size];
        const double before = cvy_clock();
        while (loader->failure == CVY_OK && !slot->ready)
            pthread_cond_wait(&loader->ready, &loader->mutex);
        loader->wait_seconds += cvy_clock() - before;
        if (!slot->ready) {
            status = loader->failure;
            cvy_error_put(loader->failure_text);
        } else {
            *batch = &slot->batch;
        }
    }
    if (*batch) {
        /* The batch returned two calls ago gives its place to a new one. */
        const int64_t fresh = cvy_loader_batch_limit(loader);
        loader->next_batch++;
        if (cvy_loader_batch_limit(loader) > fresh && fresh < loader->batches)
            reset_slot(loader, fresh);
        pthread_cond_broadcast(&loader->work);
    }
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

int64_t cvy_loader_bad_samples(struct cvy_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    const int64_t count = loader->bad_samples;
    pthread_mutex_unlock(&loader->mutex);
    return count;
}

int64_t cvy_loader_list_bad(struct cvy_loader *loader, uint32_t *samples, int64_t capacity)
{
    int64_t count = 0;

    pthread_mutex_lock(&loader->mutex);
    for (uint32_t i = 0; i < loader->options.dataset->sample_count && count < capacity; i++) {
        if (loader->named[i])
            samples[count++] = i;
    }
    pthread_mutex_unlock(&loader->mutex);
    return count;
}

double cvy_loader_wait_seconds(const struct cvy_loader *loader)
{
    return loader->wait_seconds;
}

void cvy_loader_get_stats(struct cvy_loader *loader, struct cvy_loader_stats *stats)
{
    pthread_mutex_lock(&loader->mutex);
    *stats = loader->stats;
    stats->elapsed = cvy_clock() - loader->start_clock;
    pthread_mutex_unlock(&loader->mutex);
    stats->wait = loader->wait_seconds;
    stats->workers = loader->options.workers;
    stats->lanes = loader->lane_count;
}

void cvy_loader_advise(struct cvy_loader *loader, const struct cvy_loader_stats *stats, char text[CVY_ADVICE_TEXT])
{
    const struct cvy_transform *transform = &loader->options.transform;
    const bool may_scale =
        transform->training && !transform->fast && !transform->tensorflow && !transform->dali && !transform->detection;
    const struct cvy_loader_context place = {.records = loader->options.dataset->samples[0].shard != NULL,
                                             .boxes = transform->detection,
                                             .cached = loader->options.cache != NULL,
                                             .scaled = may_scale ? SCALED_SIDES * transform->size : 0,
                                             .resize = transform->resize > 0 ? transform->resize
                                                                             : cvy_usual_resize(transform->size),
                                             .cores = cvy_allowed_threads()};

    cvy_loader_advice(stats, &place, text);
}

/* ---- memory ---- */

size_t cvy_loader_image_bytes(const struct cvy_loader_options *options)
{
    const size_t batches = (size_t)options->prefetch + LOADER_CALLERS_BATCHES;
    const size_t box = 4 * sizeof(float) + sizeof(int32_t);

    return batches * (cvy_transform_bytes(&options->transform) + sizeof(int32_t) + sizeof(uint32_t) +
                      sizeof(cvy_status) + sizeof(char *) + (options->transform.detection ? CVY_MAX_BOXES * box : 0));
}

/* A worker has the file and the decoder's copy of it (a pixel of a photograph takes about half a byte), the samples and
 * the pixels made of them, the rows that are shrunk in width already, and its stack and the decoder's own tables. */
size_t cvy_loader_other_bytes(const struct cvy_loader_options *options, int64_t pixels)
{
    const size_t tables = (size_t)384 << 10;
    const double rows = sqrt((double)pixels) * 3 * options->transform.size;
    const size_t image = (size_t)options->transform.size * (size_t)options->transform.size * 3;
    const size_t worker = (size_t)(7.0 * (double)pixels + rows) + tables + (options->autoaugment ? image : 0);
    const size_t sample = sizeof(struct cvy_epoch_slot) + 1 + cvy_sampler_sample_bytes(options->sampler);

    return (size_t)options->workers * worker + (size_t)options->dataset->sample_count * sample;
}
