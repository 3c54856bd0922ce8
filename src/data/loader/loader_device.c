/* A device that decodes: workers leave it samples, and lanes, threads of their own, finish batch by batch. */
#include <string.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/system.h"
#include "data/loader/loader_internal.h"

enum { LANES = 2 /* one batch is copied while another one is decoded */ };

/* ---- what a worker leaves to the device ---- */

cvy_status cvy_loader_leave(struct loader_worker *worker, const struct cvy_encoded *encoded, struct cvy_rng *rng,
                            struct loader_slot *slot, int32_t place)
{
    struct cvy_loader *loader = worker->loader;
    struct cvy_device_image *job = &slot->jobs[place];
    struct cvy_rng drawn = *rng;
    bool suits;

    slot->left[place] = false;
    if (place >= loader->device_places)
        return CVY_OK;
    CVY_TRY(cvy_transform_describe(&loader->options.transform, worker->decoder, encoded, &drawn, job, &suits));
    if (!suits ||
        !loader->decoding->takes(loader->device, worker->number, job->data, job->bytes, job->width, job->height))
        return CVY_OK;
    job->to = slot->device_images + (size_t)place * loader->image_bytes;
    slot->encoded[place] = *encoded;
    slot->left[place] = true;
    worker->sample.left++;
    return CVY_OK;
}

void cvy_loader_drop_encoded(struct loader_slot *slot, int32_t batch_size)
{
    for (int32_t i = 0; slot->left && slot->encoded && i < batch_size; i++) {
        if (slot->left[i])
            cvy_encoded_release(&slot->encoded[i]);
        slot->left[i] = false;
    }
}

/* ---- what a lane does ---- */

static cvy_status upload_places(struct loader_worker *lane, const struct loader_slot *slot, int32_t first,
                                int32_t count)
{
    const struct cvy_loader *loader = lane->loader;
    const size_t from = (size_t)first * loader->image_bytes;

    return loader->decoding->upload(loader->device, lane->number, slot->device_images + from, slot->images + from,
                                    (size_t)count * loader->image_bytes);
}

/* What the host has decoded, and what is past the end of a short batch. */
static cvy_status upload_decoded(struct loader_worker *lane, const struct loader_slot *slot)
{
    const int32_t size = lane->loader->options.batch_size;

    for (int32_t first = 0, end; first < size; first = end) {
        for (end = first; end < size && slot->left[end] == slot->left[first]; end++) {
        }
        if (!slot->left[first])
            CVY_TRY(upload_places(lane, slot, first, end - first));
    }
    return CVY_OK;
}

/* Once in a loader's life: what the device was expected to decode, and only the host does. */
static void note_refused(struct cvy_loader *loader, const struct cvy_encoded *encoded, const char *why)
{
    pthread_mutex_lock(&loader->mutex);
    const bool first = !loader->refused;
    loader->refused = true;
    pthread_mutex_unlock(&loader->mutex);
    if (first)
        cvy_log(CVY_LOG_WARNING, "%s is decoded by the processor, as everything is that the device refuses: %s",
                cvy_quote(encoded->name), why);
}

/* The host decodes what the device has refused alone. */
static cvy_status take_back(struct loader_worker *lane, struct loader_slot *slot, int32_t place)
{
    struct cvy_loader *loader = lane->loader;
    const int64_t ticket = slot->batch.index * loader->options.batch_size + place;
    struct cvy_epoch_slot from = loader->order[ticket];
    char why[256];

    from.sample = slot->samples[place]; /* those before it were bad */
    cvy_error_get(why, sizeof why);
    lane->sample.images--; /* it was counted when it was left to the device */
    lane->sample.left--;
    CVY_TRY(cvy_loader_fill(lane, (uint32_t)slot->batch.epoch, from, slot, place));
    if (slot->status[place] == CVY_OK && slot->samples[place] == from.sample) /* else it was named as bad */
        note_refused(loader, &slot->encoded[place], why);
    return upload_places(lane, slot, place, 1);
}

/* Jobs that are decoded together; where the device refuses, the halves are, and in the end one alone. */
static cvy_status decode(struct loader_worker *lane, struct loader_slot *slot, const struct cvy_device_image *jobs,
                         int32_t count)
{
    const struct cvy_loader *loader = lane->loader;
    cvy_status status;

    if (count == 0)
        return CVY_OK;
    status = loader->decoding->decode(loader->device, lane->number, jobs, count);
    if (status == CVY_OK)
        status = loader->decoding->wait(loader->device, lane->number);
    if (status != CVY_BAD_DATA)
        return status;
    if (count > 1) {
        CVY_TRY(decode(lane, slot, jobs, count / 2));
        return decode(lane, slot, jobs + count / 2, count - count / 2);
    }
    return take_back(lane, slot, (int32_t)((size_t)(jobs->to - slot->device_images) / loader->image_bytes));
}

/* Work that is on its way reads memory which is given back next, after a failure too. */
static cvy_status end_work(const struct loader_worker *lane, cvy_status status)
{
    const struct cvy_loader *loader = lane->loader;
    char why[sizeof loader->failure_text];

    if (status == CVY_OK)
        return loader->decoding->wait(loader->device, lane->number);
    cvy_error_get(why, sizeof why);
    if (loader->decoding->wait(loader->device, lane->number) != CVY_OK)
        cvy_error_put(why);
    return status;
}

static cvy_status finish(struct loader_worker *lane, struct loader_slot *slot)
{
    cvy_status status;
    int32_t count = 0;

    for (int32_t i = 0; i < lane->loader->options.batch_size; i++) {
        if (slot->left[i])
            slot->jobs[count++] = slot->jobs[i];
    }
    status = upload_decoded(lane, slot);
    if (status == CVY_OK)
        status = decode(lane, slot, slot->jobs, count);
    return end_work(lane, status);
}

static bool has_batch(const struct cvy_loader *loader)
{
    const struct loader_slot *slot = &loader->ring[loader->lane_batch % loader->ring_size];

    return loader->active && loader->failure == CVY_OK && loader->lane_batch < loader->batches &&
           loader->lane_batch < cvy_loader_batch_limit(loader) && slot->done == slot->batch.count;
}

static void *run_lane(void *argument)
{
    struct loader_worker *lane = argument;
    struct cvy_loader *loader = lane->loader;

    pthread_mutex_lock(&loader->mutex);
    while (!loader->stopping) {
        if (!has_batch(loader)) {
            pthread_cond_wait(&loader->work, &loader->mutex);
            continue;
        }
        struct loader_slot *slot = &loader->ring[loader->lane_batch++ % loader->ring_size];
        loader->busy++;
        pthread_mutex_unlock(&loader->mutex);

        const double start = cvy_clock();
        const cvy_status status = finish(lane, slot);
        cvy_loader_drop_encoded(slot, loader->options.batch_size);
        lane->sample.device += cvy_clock() - start;

        pthread_mutex_lock(&loader->mutex);
        loader->busy--;
        cvy_loader_count(lane);
        if (status == CVY_OK)
            slot->ready = true;
        else
            cvy_loader_record_failure(loader, status);
        pthread_cond_broadcast(&loader->ready);
        pthread_cond_broadcast(&loader->work); /* the next batch may have been complete all the while */
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* ---- opening and closing ---- */

static int32_t lanes_of(const struct cvy_loader_options *options)
{
    return options->lanes > 0 ? options->lanes : LANES;
}

static struct cvy_image_decoder_options decoder_options(const struct cvy_loader_options *options)
{
    return (struct cvy_image_decoder_options){
        .side = options->transform.size, .lanes = lanes_of(options), .threads = options->workers};
}

struct cvy_image_lanes cvy_loader_lanes(const struct cvy_loader_options *options, int64_t pixels)
{
    const bool decodes = options->device_decodes && options->device;

    return (struct cvy_image_lanes){.decoding = decodes ? options->device->backend->decoding : NULL,
                                    .options = decoder_options(options),
                                    .pixels = pixels};
}

cvy_status cvy_loader_open_device(struct cvy_loader *loader)
{
    const struct cvy_loader_options *options = &loader->options;
    const char *unsuited;

    if (!options->device_decodes)
        return CVY_OK;
    unsuited =
        options->autoaugment ? "images are augmented by the processor" : cvy_transform_unsuited(&options->transform);
    if (unsuited)
        return cvy_fail(CVY_USAGE, "the device cannot decode for this run: %s", unsuited);
    if (!options->device || !options->device->backend->decoding)
        return cvy_fail(CVY_UNAVAILABLE, "device %s decodes no images",
                        options->device ? options->device->backend->name : "cpu");
    loader->decoding = options->device->backend->decoding;
    loader->lane_count = lanes_of(options);
    loader->device_places = options->batch_size - (int32_t)(options->host_share * options->batch_size + 0.5);
    loader->lanes = cvy_calloc((size_t)loader->lane_count, sizeof *loader->lanes);
    if (!loader->lanes)
        return cvy_fail_memory((size_t)loader->lane_count * sizeof *loader->lanes, "the image loader");
    const struct cvy_image_decoder_options how = decoder_options(options);
    return loader->decoding->open(options->device, &how, &loader->device);
}

cvy_status cvy_loader_start_lanes(struct cvy_loader *loader)
{
    for (int32_t i = 0; loader->device && i < loader->lane_count; i++) {
        struct loader_worker *lane = &loader->lanes[i];
        lane->loader = loader;
        lane->number = i;
        lane->on_host = true;
        CVY_TRY(cvy_decoder_new(&lane->decoder));
        lane->running = cvy_thread_start(&lane->thread, run_lane, lane);
        if (!lane->running)
            return cvy_fail(CVY_FAILED, "cannot start loader lane %d of %d", i + 1, loader->lane_count);
    }
    return CVY_OK;
}

void cvy_loader_close_device(struct cvy_loader *loader)
{
    for (int32_t i = 0; loader->lanes && i < loader->lane_count; i++) {
        cvy_decoder_free(loader->lanes[i].decoder);
        cvy_resizer_release(&loader->lanes[i].resizer);
    }
    cvy_free(loader->lanes);
    if (loader->device)
        loader->decoding->close(loader->device);
}

static bool has_pinned(const struct cvy_loader *loader)
{
    const cvy_device *device = loader->options.device;

    return device && device->backend->allocate_host;
}

cvy_status cvy_loader_init_images(struct cvy_loader *loader, struct loader_slot *slot, size_t bytes)
{
    cvy_device *device = loader->options.device;
    const size_t count = (size_t)loader->options.batch_size;
    void *memory;

    if (has_pinned(loader)) {
        CVY_TRY(device->backend->allocate_host(device, bytes, &memory));
        slot->images = memory;
    } else {
        slot->images = cvy_calloc_aligned(bytes);
    }
    if (!loader->device)
        return CVY_OK; /* the caller asks whether there are images */
    CVY_TRY(device->backend->allocate(device, bytes, &memory));
    slot->device_images = memory;
    slot->jobs = cvy_calloc(count, sizeof *slot->jobs);
    slot->encoded = cvy_calloc(count, sizeof *slot->encoded);
    slot->left = cvy_calloc(count, sizeof *slot->left);
    if (!slot->jobs || !slot->encoded || !slot->left)
        return cvy_fail_memory(count * sizeof *slot->jobs, "a batch of images");
    return CVY_OK;
}

void cvy_loader_release_images(struct cvy_loader *loader, struct loader_slot *slot)
{
    cvy_device *device = loader->options.device;

    cvy_loader_drop_encoded(slot, loader->options.batch_size);
    if (has_pinned(loader))
        device->backend->release_host(device, slot->images);
    else
        cvy_free_aligned(slot->images);
    if (slot->device_images)
        device->backend->release(device, slot->device_images);
    cvy_free(slot->jobs);
    cvy_free(slot->encoded);
    cvy_free(slot->left);
}
