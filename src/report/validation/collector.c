/* A validation pass, image by image. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/image/codec.h"
#include "report/drawing/html.h"
#include "report/validation/validation.h"

enum { THUMBNAIL_QUALITY = 82 };
/* ImageNet's 50,000 validation images cannot have more cells; larger sets lose their rarest confusions. */
enum { MAX_CELLS = 100000 };

cvy_status cvy_collector_open(struct cvy_collector *collector, int32_t class_count, int32_t top_k)
{
    *collector = (struct cvy_collector){.class_count = class_count, .top_k = top_k};
    collector->topk_hits = cvy_calloc((size_t)class_count, sizeof *collector->topk_hits);
    if (!collector->topk_hits)
        return cvy_fail_memory((size_t)class_count * sizeof *collector->topk_hits, "the hits of each class");
    return CVY_OK;
}

static void drop(struct cvy_worst *worst)
{
    cvy_free(worst->file);
    cvy_free(worst->pixels);
    *worst = (struct cvy_worst){0};
}

void cvy_collector_clear(struct cvy_collector *collector)
{
    for (size_t i = 0; i < collector->worst_count; i++)
        drop(&collector->worst[i]);
    collector->worst_count = collector->pair_count = 0;
    if (collector->topk_hits)
        memset(collector->topk_hits, 0, (size_t)collector->class_count * sizeof *collector->topk_hits);
}

void cvy_collector_close(struct cvy_collector *collector)
{
    cvy_collector_clear(collector);
    cvy_resizer_release(&collector->resizer);
    cvy_free(collector->topk_hits);
    cvy_free(collector->pairs);
    *collector = (struct cvy_collector){0};
}

/* The image as small as it will be shown. */
static cvy_status shrink(struct cvy_collector *collector, const struct cvy_validation_image *image,
                         struct cvy_worst *worst)
{
    const int32_t size = image->size < CVY_THUMBNAIL_SIZE ? image->size : CVY_THUMBNAIL_SIZE;
    const size_t bytes = (size_t)size * (size_t)size * 3;

    worst->pixels = cvy_calloc(bytes, 1);
    if (!worst->pixels)
        return cvy_fail_memory(bytes, "a small image");
    worst->size = size;
    return cvy_resize(&collector->resizer, image->image, (size_t)image->size * 3, image->size, image->size, size, size,
                      &(struct cvy_box){0, 0, size, size}, false, worst->pixels);
}

/* The file, and the place of the image in it where it holds several: "val-00001.tfrecord@4711". */
static cvy_status copy_name(const struct cvy_validation_image *image, char **name)
{
    struct cvy_text text = {0};

    *name = NULL;
    if (!image->file)
        return CVY_OK;
    cvy_text_puts(&text, image->file);
    if (image->offset >= 0)
        cvy_text_printf(&text, "@%lld", (long long)image->offset);
    *name = text.failed ? NULL : cvy_strdup(text.text ? text.text : "");
    cvy_text_release(&text);
    return *name ? CVY_OK : cvy_fail_memory(strlen(image->file) + 24, "a file name");
}

/* Among those kept, which are sorted by falling loss; among equals the earlier one stays first. */
static size_t place_of(const struct cvy_collector *collector, double loss)
{
    size_t place = collector->worst_count;

    while (place > 0 && collector->worst[place - 1].image.loss < loss)
        place--;
    return place;
}

bool cvy_collector_keeps(const struct cvy_collector *collector, const struct cvy_validation_image *image)
{
    return image->label != image->predicted && !isnan(image->loss) &&
           place_of(collector, image->loss) < CVY_WORST_IMAGES;
}

static cvy_status keep_if_worst(struct cvy_collector *collector, const struct cvy_validation_image *image)
{
    struct cvy_worst *list = collector->worst, one = {0};
    const size_t place = place_of(collector, image->loss);
    cvy_status status;

    one.image = (struct cvy_wrong_image){
        .label = image->label,
        .predicted = image->predicted,
        .loss = image->loss,
        .probability = image->probability,
        .label_probability = image->label_probability,
    };
    CVY_TRY(copy_name(image, &one.file));
    status = image->image ? shrink(collector, image, &one) : CVY_OK;
    if (status != CVY_OK) {
        drop(&one);
        return status;
    }
    if (collector->worst_count == CVY_WORST_IMAGES)
        drop(&list[--collector->worst_count]);
    memmove(list + place + 1, list + place, (collector->worst_count - place) * sizeof *list);
    list[place] = one;
    collector->worst_count++;
    return CVY_OK;
}

cvy_status cvy_collector_add(struct cvy_collector *collector, const struct cvy_validation_image *image)
{
    if (image->label < 0 || image->label >= collector->class_count || image->predicted < 0 ||
        image->predicted >= collector->class_count)
        return cvy_fail(CVY_BAD_DATA, "label %d or answer %d is none of the %d classes", (int)image->label,
                        (int)image->predicted, (int)collector->class_count);
    if (collector->pair_count == collector->pair_capacity) {
        const size_t capacity = collector->pair_capacity ? collector->pair_capacity * 2 : 1024;
        uint64_t *pairs = cvy_realloc(collector->pairs, capacity, sizeof *pairs);
        if (!pairs)
            return cvy_fail_memory(capacity * sizeof *pairs, "the answers of a validation");
        collector->pairs = pairs;
        collector->pair_capacity = capacity;
    }
    collector->pairs[collector->pair_count++] = (uint64_t)image->label << 32 | (uint64_t)image->predicted;
    collector->topk_hits[image->label] += image->in_topk;
    return cvy_collector_keeps(collector, image) ? keep_if_worst(collector, image) : CVY_OK;
}

/* ---- the result ---- */

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Frequent ones first, then by label and prediction. */
static int by_count(const void *a, const void *b)
{
    const struct cvy_confusion_cell *x = a, *y = b;

    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    return (x->predicted > y->predicted) - (x->predicted < y->predicted);
}

static cvy_status count_cells(struct cvy_collector *collector, struct cvy_validation *v)
{
    const uint64_t *pairs = collector->pairs;
    const size_t count = collector->pair_count;
    size_t cells = 0;

    if (count > 0)
        qsort(collector->pairs, count, sizeof *pairs, by_value);
    for (size_t i = 0; i < count; i++)
        cells += i == 0 || pairs[i] != pairs[i - 1];
    v->cells = cvy_arena_alloc(&v->arena, (cells + 1) * sizeof *v->cells);
    if (!v->cells)
        return cvy_fail_memory(cells * sizeof *v->cells, "the confusion matrix");
    for (size_t i = 0; i < count; i++) {
        const int32_t label = (int32_t)(pairs[i] >> 32), predicted = (int32_t)(pairs[i] & UINT32_MAX);
        if (i == 0 || pairs[i] != pairs[i - 1])
            v->cells[v->cell_count++] = (struct cvy_confusion_cell){.label = label, .predicted = predicted};
        v->cells[v->cell_count - 1].count++;
        v->class_images[label]++;
        v->class_hits[label] += label == predicted;
        v->class_predicted[predicted]++;
    }
    if (v->cell_count > 0)
        qsort(v->cells, v->cell_count, sizeof *v->cells, by_count);
    if (v->cell_count > MAX_CELLS)
        v->cell_count = MAX_CELLS;
    return CVY_OK;
}

static cvy_status encode_thumbnail(const struct cvy_worst *worst, struct cvy_arena *arena, const char **thumbnail)
{
    struct cvy_text text = {0};
    uint8_t *jpeg = NULL;
    size_t size = 0;

    CVY_TRY(cvy_jpeg_encode(worst->pixels, worst->size, worst->size, THUMBNAIL_QUALITY, &jpeg, &size));
    cvy_base64(&text, jpeg, size);
    free(jpeg); /* allocated by libjpeg */
    *thumbnail = text.failed ? NULL : cvy_arena_strdup(arena, text.text);
    cvy_text_release(&text);
    return *thumbnail ? CVY_OK : cvy_fail_memory(size, "a small image");
}

static cvy_status copy_worst(const struct cvy_collector *collector, struct cvy_validation *v)
{
    v->worst = cvy_arena_alloc(&v->arena, CVY_WORST_IMAGES * sizeof *v->worst);
    if (!v->worst)
        return cvy_fail_memory(CVY_WORST_IMAGES * sizeof *v->worst, "the most wrong images");
    for (size_t i = 0; i < collector->worst_count; i++) {
        const struct cvy_worst *from = &collector->worst[i];
        struct cvy_wrong_image *to = &v->worst[v->worst_count++];
        *to = from->image;
        if (from->file && !(to->file = cvy_arena_strdup(&v->arena, from->file)))
            return cvy_fail_memory(strlen(from->file) + 1, "a file name");
        if (from->pixels)
            CVY_TRY(encode_thumbnail(from, &v->arena, &to->thumbnail));
    }
    return CVY_OK;
}

static cvy_status copy_classes(const struct cvy_collector *collector, const char *const *classes, int32_t named,
                               struct cvy_validation *v)
{
    const size_t count = (size_t)collector->class_count;
    int64_t *counts = cvy_arena_alloc(&v->arena, count * 4 * sizeof *counts);

    if (!counts)
        return cvy_fail_memory(count * 4 * sizeof *counts, "the counts of each class");
    v->class_images = counts;
    v->class_hits = counts + count;
    v->class_topk_hits = counts + 2 * count;
    v->class_predicted = counts + 3 * count;
    memcpy(v->class_topk_hits, collector->topk_hits, count * sizeof *counts);
    if (!classes)
        return CVY_OK;
    v->classes = cvy_arena_alloc(&v->arena, count * sizeof *v->classes);
    for (size_t i = 0; v->classes && i < count; i++) {
        v->classes[i] =
            i < (size_t)named ? cvy_arena_strdup(&v->arena, classes[i]) : cvy_arena_printf(&v->arena, "class %zu", i);
        if (!v->classes[i])
            v->classes = NULL;
    }
    return v->classes ? CVY_OK : cvy_fail_memory(count * sizeof *v->classes, "the names of the classes");
}

cvy_status cvy_collector_finish(struct cvy_collector *collector, const char *const *classes, int32_t named,
                                struct cvy_validation *validation)
{
    cvy_status status;

    *validation = (struct cvy_validation){.epoch = -1, .class_count = collector->class_count};
    validation->top_k = collector->top_k;
    CVY_GOTO(copy_classes(collector, classes, named, validation));
    CVY_GOTO(count_cells(collector, validation));
    CVY_GOTO(copy_worst(collector, validation));
    return CVY_OK;
fail:
    cvy_validation_release(validation);
    return status;
}
