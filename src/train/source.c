/* Batches of files or of random numbers behind one interface. */
#include "train/source.h"

#include <string.h>

#include "base/error.h"
#include "base/rng.h"

cvy_status cvy_source_open(struct cvy_source *source, const struct cvy_loader_options *options)
{
    memset(source, 0, sizeof *source);
    return cvy_loader_open(options, &source->loader);
}

static void fill_batch(struct cvy_source *source, int index, size_t bytes, int32_t batch_size, int32_t num_classes,
                       uint64_t seed)
{
    struct cvy_rng rng = cvy_rng_new(seed, CVY_RNG_BENCH, 0, (uint32_t)index);

    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        const uint32_t four = cvy_rng_u32(&rng);
        memcpy(source->images[index] + i, &four, 4);
    }
    for (int32_t i = 0; i < batch_size; i++)
        source->labels[index][i] = (int32_t)cvy_rng_below(&rng, (uint32_t)num_classes);
    source->batches[index] = (struct cvy_batch){
        .images = source->images[index],
        .labels = source->labels[index],
        .samples = source->samples,
        .status = source->status,
        .errors = source->errors,
        .count = batch_size,
    };
}

cvy_status cvy_source_open_synthetic(struct cvy_source *source, int32_t batch_size, int32_t image_size,
                                     int32_t num_classes, uint64_t seed, int64_t batches)
{
    const size_t count = (size_t)batch_size;
    size_t bytes;

    memset(source, 0, sizeof *source);
    source->count = batches;
    if (!cvy_size_mul((size_t)image_size * (size_t)image_size * 3, count, &bytes))
        return cvy_fail(CVY_NO_MEMORY, "a batch of %d images is too large", (int)batch_size);
    source->samples = cvy_calloc(count, sizeof *source->samples);
    source->status = cvy_calloc(count, sizeof *source->status);
    source->errors = cvy_calloc(count, sizeof *source->errors);
    for (int i = 0; i < CVY_SYNTHETIC_BUFFERS; i++) {
        source->images[i] = cvy_calloc_aligned(bytes);
        source->labels[i] = cvy_calloc_aligned(count * sizeof(int32_t));
        if (!source->images[i] || !source->labels[i] || !source->samples || !source->status || !source->errors) {
            cvy_source_close(source);
            return cvy_fail_memory(bytes, "synthetic images");
        }
        fill_batch(source, i, bytes, batch_size, num_classes, seed);
    }
    return CVY_OK;
}

void cvy_source_close(struct cvy_source *source)
{
    cvy_loader_close(source->loader);
    for (int i = 0; i < CVY_SYNTHETIC_BUFFERS; i++) {
        cvy_free_aligned(source->images[i]);
        cvy_free_aligned(source->labels[i]);
    }
    cvy_free(source->samples);
    cvy_free(source->status);
    cvy_free(source->errors);
    memset(source, 0, sizeof *source);
}

int64_t cvy_source_batches(const struct cvy_source *source)
{
    return source->loader ? cvy_loader_batches(source->loader) : source->count;
}

cvy_status cvy_source_start(struct cvy_source *source, int64_t epoch, int64_t first_batch)
{
    if (source->loader)
        return cvy_loader_start(source->loader, (uint32_t)epoch, first_batch);
    source->epoch = epoch;
    source->position = first_batch;
    return CVY_OK;
}

cvy_status cvy_source_next(struct cvy_source *source, const struct cvy_batch **batch)
{
    if (source->loader)
        return cvy_loader_next(source->loader, batch);
    *batch = NULL;
    if (source->position < source->count) {
        struct cvy_batch *next = &source->batches[source->position % CVY_SYNTHETIC_BUFFERS];
        next->epoch = source->epoch;
        next->index = source->position++;
        *batch = next;
    }
    return CVY_OK;
}

int64_t cvy_source_bad_samples(const struct cvy_source *source)
{
    return source->loader ? cvy_loader_bad_samples(source->loader) : 0;
}

double cvy_source_wait_seconds(const struct cvy_source *source)
{
    return source->loader ? cvy_loader_wait_seconds(source->loader) : 0.0;
}
