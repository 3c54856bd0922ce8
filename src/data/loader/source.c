/* Batches of files or of random numbers behind one interface. */
#include "data/loader/source.h"

#include <string.h>

#include "base/error.h"
#include "base/rng.h"

cvy_status cvy_source_open(struct cvy_source *source, const struct cvy_loader_options *options)
{
    memset(source, 0, sizeof *source);
    return cvy_loader_open(options, &source->loader);
}

enum { SYNTHETIC_OBJECTS = 7 }; /* on each image: COCO's training images have 7.3 */

static void fill_images(struct cvy_rng *rng, const struct cvy_synthetic *synthetic, uint8_t *images, size_t values)
{
    float *wide = (float *)(void *)images;

    for (size_t i = 0; synthetic->float_images && i < values; i++)
        wide[i] = 255 * (float)cvy_rng_uniform(rng);
    for (size_t i = 0; !synthetic->float_images && i + 4 <= values; i += 4) {
        const uint32_t four = cvy_rng_u32(rng);
        memcpy(images + i, &four, 4);
    }
}

/* An edge of the image each, in the order of boxes and labels of struct cvy_batch. */
static void fill_boxes(struct cvy_rng *rng, const struct cvy_synthetic *synthetic, float *boxes, int32_t *labels)
{
    for (int32_t i = 0; i < synthetic->batch_size; i++) {
        for (int32_t j = 0; j < SYNTHETIC_OBJECTS; j++) {
            float *box = boxes + (i * CVY_MAX_BOXES + j) * 4;

            for (int k = 0; k < 2; k++) {
                const float size = 0.1f + 0.5f * (float)cvy_rng_uniform(rng);
                box[k] = (1 - size) * (float)cvy_rng_uniform(rng);
                box[k + 2] = box[k] + size;
            }
            labels[i * CVY_MAX_BOXES + j] = 1 + (int32_t)cvy_rng_below(rng, (uint32_t)synthetic->num_classes);
        }
    }
}

static void fill_batch(struct cvy_source *source, int index, size_t values, const struct cvy_synthetic *synthetic)
{
    struct cvy_rng rng = cvy_rng_new(synthetic->seed, CVY_RNG_BENCH, 0, (uint32_t)index);

    fill_images(&rng, synthetic, source->images[index], values);
    for (int32_t i = 0; i < synthetic->batch_size; i++)
        source->labels[index][i] = (int32_t)cvy_rng_below(&rng, (uint32_t)synthetic->num_classes);
    if (synthetic->boxes)
        fill_boxes(&rng, synthetic, source->boxes[index], source->box_labels[index]);
    source->batches[index] = (struct cvy_batch){
        .images = source->images[index],
        .labels = source->labels[index],
        .boxes = source->boxes[index],
        .box_labels = source->box_labels[index],
        .samples = source->samples,
        .status = source->status,
        .errors = source->errors,
        .count = synthetic->batch_size,
    };
}

static bool allocate_batch(struct cvy_source *source, int index, size_t bytes, const struct cvy_synthetic *synthetic)
{
    const size_t count = (size_t)synthetic->batch_size, boxes = synthetic->boxes ? count * CVY_MAX_BOXES : 0;

    source->images[index] = cvy_calloc_aligned(bytes);
    source->labels[index] = cvy_calloc_aligned(count * sizeof(int32_t));
    if (boxes > 0) {
        source->boxes[index] = cvy_calloc_aligned(boxes * 4 * sizeof(float));
        source->box_labels[index] = cvy_calloc_aligned(boxes * sizeof(int32_t));
    }
    return source->images[index] && source->labels[index] &&
           (boxes == 0 || (source->boxes[index] && source->box_labels[index]));
}

cvy_status cvy_source_open_synthetic(struct cvy_source *source, const struct cvy_synthetic *synthetic)
{
    const size_t count = (size_t)synthetic->batch_size, side = (size_t)synthetic->image_size;
    const size_t each = synthetic->float_images ? sizeof(float) : 1;
    size_t values, bytes;

    memset(source, 0, sizeof *source);
    source->count = synthetic->batches;
    if (!cvy_size_mul(side * side * 3, count, &values) || !cvy_size_mul(values, each, &bytes))
        return cvy_fail(CVY_NO_MEMORY, "a batch of %d images is too large", (int)synthetic->batch_size);
    source->samples = cvy_calloc(count, sizeof *source->samples);
    source->status = cvy_calloc(count, sizeof *source->status);
    source->errors = cvy_calloc(count, sizeof *source->errors);
    for (int i = 0; i < CVY_SYNTHETIC_BUFFERS; i++) {
        if (!source->samples || !source->status || !source->errors || !allocate_batch(source, i, bytes, synthetic)) {
            cvy_source_close(source);
            return cvy_fail_memory(bytes, "synthetic images");
        }
        fill_batch(source, i, values, synthetic);
    }
    return CVY_OK;
}

void cvy_source_close(struct cvy_source *source)
{
    cvy_loader_close(source->loader);
    for (int i = 0; i < CVY_SYNTHETIC_BUFFERS; i++) {
        cvy_free_aligned(source->images[i]);
        cvy_free_aligned(source->labels[i]);
        cvy_free_aligned(source->boxes[i]);
        cvy_free_aligned(source->box_labels[i]);
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

void cvy_source_skip(struct cvy_source *source, int64_t epoch, int64_t skip)
{
    if (source->loader)
        cvy_loader_skip(source->loader, (uint32_t)epoch, (uint32_t)skip);
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

int64_t cvy_source_list_bad(const struct cvy_source *source, uint32_t *samples, int64_t capacity)
{
    return source->loader ? cvy_loader_list_bad(source->loader, samples, capacity) : 0;
}

double cvy_source_wait_seconds(const struct cvy_source *source)
{
    return source->loader ? cvy_loader_wait_seconds(source->loader) : 0.0;
}

void cvy_source_get_stats(const struct cvy_source *source, struct cvy_loader_stats *stats)
{
    *stats = (struct cvy_loader_stats){0};
    if (source->loader)
        cvy_loader_get_stats(source->loader, stats);
}
