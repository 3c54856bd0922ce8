/* What a thread of the loader does: samples, one after the other. */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system.h"
#include "data/loader/loader_internal.h"
#include "data/transform/augment.h"

int64_t cvy_loader_batch_limit(const struct cvy_loader *loader)
{
    const int64_t oldest = loader->next_batch - LOADER_CALLERS_BATCHES;
    return (oldest > loader->first_batch ? oldest : loader->first_batch) + loader->ring_size;
}

static int64_t ticket_limit(const struct cvy_loader *loader)
{
    const int64_t limit = cvy_loader_batch_limit(loader) * loader->options.batch_size;
    return limit < loader->end_ticket ? limit : loader->end_ticket;
}

/* The image and what is known of it. */
static cvy_status transform(struct loader_worker *worker, const struct cvy_encoded *encoded, uint32_t sample,
                            struct cvy_rng *rng, struct loader_slot *slot, int32_t place)
{
    const struct cvy_loader_options *options = &worker->loader->options;
    void *out = slot->images + (size_t)place * worker->loader->image_bytes;
    const size_t first_box = (size_t)place * CVY_MAX_BOXES;
    struct cvy_truth truth;

    if (!options->transform.detection)
        return cvy_transform_image(&options->transform, worker->decoder, &worker->resizer, encoded, rng, out);
    truth.image = &options->dataset->images[sample];
    cvy_dataset_objects(options->dataset, sample, &truth.objects, &truth.count);
    return cvy_transform_detection(&options->transform, worker->decoder, &worker->resizer, encoded, &truth, rng, out,
                                   &(struct cvy_target_boxes){slot->boxes + first_box, slot->box_labels + first_box});
}

static cvy_status make_sample(struct loader_worker *worker, uint32_t epoch, struct cvy_epoch_slot from,
                              struct loader_slot *slot, int32_t place)
{
    const struct cvy_loader_options *options = &worker->loader->options;
    struct cvy_rng rng = cvy_rng_new(options->seed, CVY_RNG_AUGMENT, epoch, from.sample);
    struct cvy_encoded encoded;
    bool left = false;

    const double start = cvy_clock(), decoded = cvy_decoder_seconds(worker->decoder);

    rng.counter[0] = from.repeat << 16; /* another crop each time: no image draws 4 * 65536 numbers */
    cvy_status status = options->cache ? cvy_sample_cache_read(options->cache, from.sample, &encoded)
                                       : cvy_sample_read(&options->dataset->samples[from.sample], &encoded);
    const double ready = cvy_clock();
    worker->sample.images++;
    worker->sample.read += ready - start;
    if (status != CVY_OK)
        return status;
    worker->sample.bytes += encoded.size;
    if (worker->loader->device && !worker->on_host) {
        status = cvy_loader_leave(worker, &encoded, &rng, slot, place);
        left = slot->left[place];
    }
    if (status == CVY_OK && !left)
        status = transform(worker, &encoded, from.sample, &rng, slot, place);
    if (!left)
        cvy_encoded_release(&encoded);
    if (status == CVY_OK && worker->scratch)
        cvy_autoaugment(&rng, slot->images + (size_t)place * worker->loader->image_bytes, options->transform.size,
                        worker->scratch);
    const double decode = cvy_decoder_seconds(worker->decoder) - decoded;
    worker->sample.decode += decode;
    worker->sample.transform += cvy_clock() - ready - decode;
    if (status == CVY_OK)
        worker->sample.sides += cvy_decoder_shorter_side(worker->decoder);
    return status;
}

/* Count and name a bad sample, the first time it is met. what: becomes of it. */
static void note_bad(struct cvy_loader *loader, uint32_t sample, const char *what)
{
    pthread_mutex_lock(&loader->mutex);
    const bool first = !loader->named[sample];
    loader->named[sample] = 1;
    loader->bad_samples += first;
    pthread_mutex_unlock(&loader->mutex);
    if (first)
        cvy_log(CVY_LOG_WARNING, "%s; %s", cvy_error(), what);
}

void cvy_loader_clear_boxes(struct loader_slot *slot, size_t first, size_t count)
{
    if (!slot->boxes)
        return;
    memset(slot->boxes + first * CVY_MAX_BOXES, 0, count * CVY_MAX_BOXES * sizeof *slot->boxes);
    memset(slot->box_labels + first * CVY_MAX_BOXES, 0, count * CVY_MAX_BOXES * sizeof *slot->box_labels);
}

cvy_status cvy_loader_fill(struct loader_worker *worker, uint32_t epoch, struct cvy_epoch_slot from,
                           struct loader_slot *slot, int32_t place)
{
    struct cvy_loader *loader = worker->loader;
    const struct cvy_dataset *dataset = loader->options.dataset;
    cvy_status status = CVY_OK;

    for (uint32_t tries = 0; tries < dataset->sample_count; tries++) {
        status = make_sample(worker, epoch, from, slot, place);
        slot->samples[place] = from.sample;
        slot->status[place] = status;
        slot->labels[place] = status == CVY_OK ? dataset->samples[from.sample].label : -1;
        if (status != CVY_BAD_DATA && status != CVY_NO_INPUT)
            return status;
        if (!loader->options.replace_bad) {
            memset(slot->images + (size_t)place * loader->image_bytes, 0, loader->image_bytes);
            cvy_loader_clear_boxes(slot, (size_t)place, 1);
            if (loader->options.name_bad)
                note_bad(loader, from.sample, "it is left out");
            slot->errors[place] = cvy_strdup(cvy_error());
            return slot->errors[place] ? CVY_OK : cvy_fail_memory(strlen(cvy_error()), "a message");
        }
        note_bad(loader, from.sample, "another image takes its place");
        from.sample = from.sample + 1 == dataset->sample_count ? 0 : from.sample + 1;
    }
    return cvy_fail_context(status, "none of the %u images can be read; the last one", dataset->sample_count);
}

void cvy_loader_record_failure(struct cvy_loader *loader, cvy_status status)
{
    if (loader->failure != CVY_OK)
        return;
    loader->failure = status;
    cvy_error_get(loader->failure_text, sizeof loader->failure_text);
}

void cvy_loader_count(struct loader_worker *worker)
{
    cvy_loader_stats_add(&worker->loader->stats, &worker->sample);
    worker->sample = (struct cvy_loader_stats){0};
}

void *cvy_loader_work(void *argument)
{
    struct loader_worker *worker = argument;
    struct cvy_loader *loader = worker->loader;

    pthread_mutex_lock(&loader->mutex);
    while (!loader->stopping) {
        if (!loader->active || loader->failure != CVY_OK || loader->next_ticket >= ticket_limit(loader)) {
            pthread_cond_wait(&loader->work, &loader->mutex);
            continue;
        }
        const int64_t ticket = loader->next_ticket++;
        const int64_t batch = ticket / loader->options.batch_size;
        const int32_t place = (int32_t)(ticket % loader->options.batch_size);
        struct loader_slot *slot = &loader->ring[batch % loader->ring_size];
        const uint32_t epoch = loader->epoch;
        const struct cvy_epoch_slot from = loader->order[ticket];
        loader->busy++;
        pthread_mutex_unlock(&loader->mutex);

        const cvy_status status = cvy_loader_fill(worker, epoch, from, slot, place);

        pthread_mutex_lock(&loader->mutex);
        loader->busy--;
        cvy_loader_count(worker);
        /* A batch with a place that nobody filled never becomes complete. */
        if (status == CVY_OK)
            slot->done++;
        else
            cvy_loader_record_failure(loader, status);
        const bool done = slot->done == slot->batch.count;
        if (done && loader->device)
            pthread_cond_broadcast(&loader->work); /* a lane takes it */
        else if (done)
            slot->ready = true;
        if (status != CVY_OK || slot->ready || loader->busy == 0)
            pthread_cond_broadcast(&loader->ready);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}
