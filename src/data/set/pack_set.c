#include "data/set/pack_set.h"

#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "data/set/listing.h"
#include "formats/container/pack.h"

bool cvy_holds_pack(const char *folder, bool val)
{
    return cvy_holds_part_files(folder, val, CVY_PACK_ENDING);
}

/* ---- indexes ---- */

struct listing {
    const char *folder;
    bool val;
    struct cvy_shards *shards;
    struct cvy_pack_index *indexes;
    size_t count;
};

static cvy_status read_index(void *context, void *state, int64_t number)
{
    const struct listing *listing = context;
    const struct cvy_shard *shard = cvy_shard(listing->shards, (size_t)number);
    struct cvy_pack_index *index = &listing->indexes[number];
    int file;

    (void)state;
    CVY_TRY(cvy_shard_borrow(shard, &file));
    const cvy_status status = cvy_pack_index_read(shard->path, file, index);
    cvy_shard_return(shard, file);
    return status;
}

static bool same_classes(const struct cvy_pack_index *a, const struct cvy_pack_index *b)
{
    if (a->class_count != b->class_count)
        return false;
    for (int32_t c = 0; c < a->class_count; c++)
        if (strcmp(a->classes[c], b->classes[c]) != 0)
            return false;
    return true;
}

/* All files of one packing, each once: a half-copied set must not pass as a smaller one. */
static cvy_status check_complete(const struct listing *listing)
{
    const struct cvy_pack_index *first = &listing->indexes[0];

    for (size_t s = 0; s < listing->count; s++) {
        const struct cvy_pack_index *index = &listing->indexes[s];
        if (index->header.val != listing->val || index->header.shards != first->header.shards ||
            memcmp(index->header.set, first->header.set, sizeof first->header.set) != 0 || !same_classes(index, first))
            return cvy_fail(CVY_BAD_DATA, "%s and %s are parts of different sets",
                            cvy_quote(cvy_shard(listing->shards, 0)->path),
                            cvy_quote(cvy_shard(listing->shards, s)->path));
    }
    size_t next = 0;
    while (next < listing->count && listing->indexes[next].header.shard == next)
        next++;
    if (next == listing->count && next == first->header.shards)
        return CVY_OK;
    return cvy_fail(CVY_BAD_DATA,
                    "%s holds %s like %s, and they say that there are %u: number %zu is not in its place (the "
                    "same convoy dataset pack again would continue where the last one ended)",
                    cvy_quote(listing->folder), cvy_counted((int64_t)listing->count, "file"),
                    cvy_quote(cvy_shard(listing->shards, 0)->path), first->header.shards, next);
}

/* ---- the set ---- */

/* labels[c]: the number that class c of the files gets; -1: not among the given ones. */
static cvy_status set_classes(struct cvy_dataset *dataset, const struct cvy_pack_index *index,
                              const char *const *classes, int32_t class_count, int32_t *labels)
{
    dataset->class_count = classes ? class_count : index->class_count;
    dataset->classes = cvy_arena_alloc(&dataset->arena, (size_t)dataset->class_count * sizeof *dataset->classes);
    if (!dataset->classes)
        return cvy_fail_memory((size_t)dataset->class_count * sizeof *dataset->classes, "class names");
    for (int32_t c = 0; c < dataset->class_count; c++)
        CVY_TRY(cvy_dataset_set_class(dataset, c, classes ? classes[c] : index->classes[c]));
    for (int32_t c = 0; c < index->class_count; c++) {
        labels[c] = classes ? -1 : c;
        /* The usual case first: the same names in the same order. */
        if (classes && c < class_count && strcmp(classes[c], index->classes[c]) == 0)
            labels[c] = c;
        for (int32_t k = 0; labels[c] < 0 && k < class_count; k++)
            if (strcmp(classes[k], index->classes[c]) == 0)
                labels[c] = k;
    }
    return CVY_OK;
}

static cvy_status set_samples(struct cvy_dataset *dataset, const struct listing *listing, const int32_t *labels)
{
    size_t total = 0, at = 0;

    for (size_t s = 0; s < listing->count; s++)
        total += listing->indexes[s].count;
    if (total == 0 || total > INT32_MAX)
        return cvy_fail(CVY_BAD_DATA, "the packed data set %s holds %zu images for %s", cvy_quote(listing->folder),
                        total, listing->val ? "validation" : "training");
    dataset->samples = cvy_arena_alloc(&dataset->arena, total * sizeof *dataset->samples);
    if (!dataset->samples)
        return cvy_fail_memory(total * sizeof *dataset->samples, "the list of images");
    dataset->sample_count = (uint32_t)total;
    for (size_t s = 0; s < listing->count; s++) {
        const struct cvy_pack_index *index = &listing->indexes[s];
        const struct cvy_shard *shard = cvy_shard(listing->shards, s);
        for (size_t i = 0; i < index->count; i++) {
            const struct cvy_pack_location *place = &index->places[i];
            if (labels[place->label] < 0)
                return cvy_fail(CVY_BAD_DATA,
                                "class %s of %s is not among the classes of the training data or the weights",
                                cvy_quote(index->classes[place->label]), cvy_quote(listing->folder));
            dataset->samples[at++] = (struct cvy_sample){.path = shard->path,
                                                         .label = labels[place->label],
                                                         .record_bytes = place->size,
                                                         .record_offset = place->offset,
                                                         .shard = shard};
        }
    }
    return CVY_OK;
}

cvy_status cvy_dataset_open_pack(struct cvy_dataset *dataset, const char *folder, bool val, const char *const *classes,
                                 int32_t class_count)
{
    cvy_status status = CVY_OK;
    struct listing listing = {.folder = folder, .val = val};
    const struct cvy_parallel work = {.context = &listing, .each = read_index};
    const char **files = NULL;
    int32_t *labels = NULL;

    *dataset = (struct cvy_dataset){0};
    CVY_GOTO(cvy_part_files(folder, val, CVY_PACK_ENDING, &dataset->arena, &files, &listing.count));
    if (listing.count == 0) {
        status =
            cvy_fail(CVY_BAD_DATA, "%s holds no files %s-*" CVY_PACK_ENDING, cvy_quote(folder), val ? "val" : "train");
        goto fail;
    }
    CVY_GOTO(cvy_shards_open(CVY_SHARD_PACK, files, listing.count, &dataset->shards));
    listing.shards = dataset->shards;
    listing.indexes = cvy_calloc(listing.count, sizeof *listing.indexes);
    if (!listing.indexes) {
        status = cvy_fail_memory(listing.count * sizeof *listing.indexes, "the list of images");
        goto fail;
    }
    CVY_GOTO(cvy_parallel_run(&work, (int64_t)listing.count, cvy_default_threads()));
    CVY_GOTO(check_complete(&listing));
    labels = cvy_calloc((size_t)listing.indexes[0].class_count, sizeof *labels);
    if (!labels) {
        status = cvy_fail_memory((size_t)listing.indexes[0].class_count * sizeof *labels, "class names");
        goto fail;
    }
    CVY_GOTO(set_classes(dataset, &listing.indexes[0], classes, class_count, labels));
    CVY_GOTO(set_samples(dataset, &listing, labels));
    /* Given classes may come in another order. */
    cvy_dataset_sort(dataset);
fail:
    for (size_t s = 0; listing.indexes && s < listing.count; s++)
        cvy_pack_index_release(&listing.indexes[s]);
    cvy_free(listing.indexes);
    cvy_free(labels);
    cvy_free(files);
    if (status != CVY_OK)
        cvy_dataset_close(dataset);
    return status;
}
