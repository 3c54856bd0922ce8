#include "data/loader/sample_cache.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"

/* An image is read by whoever needs it first, and kept by whoever of those is the first to finish. */
enum { ABSENT, BEING_KEPT, KEPT };
struct entry {
    atomic_int state;
    struct cvy_encoded image; /* valid once KEPT; all in one block */
};

struct cvy_sample_cache {
    const struct cvy_dataset *dataset;
    size_t limit;
    atomic_size_t bytes;
    atomic_llong images;
    struct entry *entries; /* (sample_count) */
};

/* Around each block; and what the name of an image in a record has beside its file's name and its own, which is in the
 * record: "FILE@OFFSET (OWN)". */
enum { BLOCK_OVERHEAD = 2 * 16, RECORD_NAME = 32 };

size_t cvy_sample_cache_bytes(const struct cvy_dataset *dataset)
{
    size_t total = 0;

    for (uint32_t i = 0; i < dataset->sample_count; i++) {
        const struct cvy_sample *sample = &dataset->samples[i];
        struct stat about;
        size_t image = sample->record_bytes + strlen(sample->path) + RECORD_NAME;
        if (sample->record_bytes == 0)
            image = stat(sample->path, &about) == 0 && about.st_size > 0 ? (size_t)about.st_size : 0;
        total += image + BLOCK_OVERHEAD + sizeof(struct entry);
    }
    return total;
}

cvy_status cvy_sample_cache_new(const struct cvy_dataset *dataset, size_t limit, struct cvy_sample_cache **out)
{
    struct cvy_sample_cache *cache = *out = cvy_calloc(1, sizeof *cache);

    if (!cache)
        return cvy_fail_memory(sizeof *cache, "the images in memory");
    cache->dataset = dataset;
    cache->limit = limit;
    cache->entries = cvy_calloc((size_t)dataset->sample_count + 1, sizeof *cache->entries);
    if (cache->entries)
        return CVY_OK;
    cvy_sample_cache_free(cache);
    *out = NULL;
    return cvy_fail_memory((size_t)dataset->sample_count * sizeof *cache->entries, "the images in memory");
}

void cvy_sample_cache_free(struct cvy_sample_cache *cache)
{
    if (!cache)
        return;
    for (uint32_t i = 0; cache->entries && i < cache->dataset->sample_count; i++)
        cvy_encoded_release(&cache->entries[i].image);
    cvy_free(cache->entries);
    cvy_free(cache);
}

/* A file's name is the sample's path, which stays. */
static size_t name_bytes(const struct cvy_encoded *image)
{
    return image->own ? strlen(image->name) + 1 : 0;
}

/* A copy without what reading had around it. False: no memory. */
static bool copy_image(const struct cvy_encoded *from, struct cvy_encoded *to)
{
    const size_t name = name_bytes(from), boxes = from->box_count * sizeof *from->boxes;

    *to = (struct cvy_encoded){.name = from->name, .size = from->size, .box_count = from->box_count};
    char *block = to->block = cvy_realloc(NULL, from->size + name + 1, 1);
    to->boxes = boxes > 0 ? cvy_realloc(NULL, boxes, 1) : NULL;
    if (!block || (boxes > 0 && !to->boxes)) {
        cvy_encoded_release(to);
        return false;
    }
    memcpy(block, from->data, from->size);
    to->data = block;
    if (name > 0)
        to->name = memcpy(block + from->size, from->name, name);
    if (boxes > 0)
        memcpy(to->boxes, from->boxes, boxes);
    return true;
}

static void keep(struct cvy_sample_cache *cache, struct entry *entry, const struct cvy_encoded *encoded)
{
    const size_t bytes =
        encoded->size + name_bytes(encoded) + encoded->box_count * sizeof *encoded->boxes + BLOCK_OVERHEAD;
    int absent = ABSENT;

    if (!atomic_compare_exchange_strong(&entry->state, &absent, BEING_KEPT))
        return;
    if (atomic_fetch_add(&cache->bytes, bytes) + bytes > cache->limit || !copy_image(encoded, &entry->image)) {
        atomic_fetch_sub(&cache->bytes, bytes);
        atomic_store(&entry->state, ABSENT);
        return;
    }
    atomic_fetch_add(&cache->images, 1);
    atomic_store(&entry->state, KEPT);
}

cvy_status cvy_sample_cache_read(struct cvy_sample_cache *cache, uint32_t sample, struct cvy_encoded *encoded)
{
    struct entry *entry = &cache->entries[sample];

    if (atomic_load(&entry->state) == KEPT) {
        *encoded = entry->image;
        encoded->borrowed = true;
        return CVY_OK;
    }
    CVY_TRY(cvy_sample_read(&cache->dataset->samples[sample], encoded));
    keep(cache, entry, encoded);
    return CVY_OK;
}

void cvy_sample_cache_count(struct cvy_sample_cache *cache, int64_t *images, size_t *bytes)
{
    *images = atomic_load(&cache->images);
    *bytes = atomic_load(&cache->bytes);
}
