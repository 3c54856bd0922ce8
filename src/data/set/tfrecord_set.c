#include "data/set/tfrecord_set.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "data/set/class_file.h"
#include "data/set/listing.h"
#include "formats/container/tfrecord_index.h"

const char *const cvy_tfrecord_prefixes[CVY_TFRECORD_PARTS] = {"train", "validation"};

/* ---- files ---- */

/* "train-..." but for what may lie beside the records. */
static bool is_record_name(const char *name, const void *context)
{
    const char *prefix = context;
    static const char *const others[] = {".idx", ".index", ".txt", ".json", ".pack", ".tar"};
    const size_t length = strlen(prefix);
    const char *ending = strrchr(name, '.');

    if (strncmp(name, prefix, length) != 0 || name[length] != '-' || strstr(name, ".tmp."))
        return false;
    for (size_t i = 0; ending && i < sizeof others / sizeof *others; i++)
        if (strcmp(ending, others[i]) == 0)
            return false;
    return true;
}

bool cvy_holds_tfrecords(const char *folder, enum cvy_tfrecord_part part)
{
    return cvy_holds_files(folder, is_record_name, cvy_tfrecord_prefixes[part]);
}

/* Files named "-00003-of-00010" are part of ten; the count of all, 0 where the name says none. */
static int shards_of(const char *path)
{
    const char *of = strrchr(path, '-');
    char *end;

    if (!of || of - path < 4 || strncmp(of - 3, "-of", 3) != 0 || of[1] < '0' || of[1] > '9')
        return 0;
    const long count = strtol(of + 1, &end, 10);
    return *end == 0 && count > 0 && count < INT_MAX ? (int)count : 0;
}

cvy_status cvy_tfrecord_check_complete(const char *folder, const char *const *files, size_t count)
{
    const int shards = shards_of(files[0]);

    for (size_t i = 1; i < count; i++)
        if (shards_of(files[i]) != shards)
            return cvy_fail(CVY_BAD_DATA, "%s and %s are parts of different sets", cvy_quote(files[0]),
                            cvy_quote(files[i]));
    if (shards != 0 && count != (size_t)shards)
        return cvy_fail(CVY_BAD_DATA, "%s holds %s like %s, and their names say that there are %d", cvy_quote(folder),
                        cvy_counted((int64_t)count, "file"), cvy_quote(files[0]), shards);
    return CVY_OK;
}

cvy_status cvy_tfrecord_files(const char *folder, enum cvy_tfrecord_part part, struct cvy_arena *arena,
                              const char ***files, size_t *count)
{
    const char *prefix = cvy_tfrecord_prefixes[part];
    const char **found;

    *files = NULL;
    CVY_TRY(cvy_files_in(folder, is_record_name, prefix, arena, &found, count));
    if (*count == 0) {
        cvy_free(found);
        return cvy_fail(CVY_BAD_DATA, "%s holds no files %s-*", cvy_quote(folder), prefix);
    }
    cvy_status status = cvy_tfrecord_check_complete(folder, found, *count);
    *files = status == CVY_OK ? cvy_arena_alloc(arena, *count * sizeof *found) : NULL;
    if (status == CVY_OK && !*files)
        status = cvy_fail_memory(*count * sizeof *found, "a list of files");
    if (*files)
        memcpy(*files, found, *count * sizeof *found);
    cvy_free(found);
    return status;
}

/* ---- records ---- */

struct shard {
    const struct cvy_shard *file;
    struct cvy_tfrecord_index index;
    int32_t *labels; /* of each record, from 0 */
    char **names;    /* of the classes met, by label; NULL: none */
    int32_t name_count;
};

struct listing {
    struct shard *shards;
    size_t count;
    const char *index_folder;
};

static cvy_status remember_name(struct shard *shard, int32_t label, const struct cvy_image_record *record)
{
    const char *name = record->synset[0] ? record->synset : record->text;

    if (!name[0] || (label < shard->name_count && shard->names[label]))
        return CVY_OK;
    if (label >= shard->name_count) {
        const int32_t count = label < CVY_MAX_CLASSES / 2 ? 2 * label + 16 : CVY_MAX_CLASSES;
        char **grown = cvy_realloc(shard->names, (size_t)count, sizeof *grown);
        if (!grown)
            return cvy_fail_memory((size_t)count * sizeof *grown, "class names");
        memset(grown + shard->name_count, 0, (size_t)(count - shard->name_count) * sizeof *grown);
        shard->names = grown;
        shard->name_count = count;
    }
    shard->names[label] = cvy_strdup(name);
    return shard->names[label] ? CVY_OK : cvy_fail_memory(strlen(name), "class names");
}

/* The label and the class name of one record. The header shows whether an index belongs to its file. */
static cvy_status read_label(struct shard *shard, int file, size_t index)
{
    const struct cvy_tfrecord_location *place = &shard->index.places[index];
    uint8_t header[CVY_TFRECORD_HEADER];
    struct cvy_image_record record;
    struct cvy_example example;
    uint64_t size;
    size_t got;

    CVY_TRY(cvy_file_read_at(shard->file->path, file, place->offset, header, sizeof header, &got));
    if (got < sizeof header)
        return cvy_tfrecord_truncated(shard->file->path, place->offset);
    CVY_TRY(cvy_tfrecord_check_header(shard->file->path, place->offset, header, &size));
    if (size + CVY_TFRECORD_FRAME != place->size)
        return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s has %llu bytes, its index says %llu",
                        (unsigned long long)place->offset, cvy_quote(shard->file->path),
                        (unsigned long long)(size + CVY_TFRECORD_FRAME), (unsigned long long)place->size);
    cvy_example_open_file(&example, shard->file->path, place->offset, file, place->offset + CVY_TFRECORD_HEADER,
                          (size_t)size);
    CVY_TRY(cvy_image_record_read(&example, false, &record));
    if (record.label == -1)
        return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s has no label (no key \"image/class/label\")",
                        (unsigned long long)place->offset, cvy_quote(shard->file->path));
    if (record.label > CVY_MAX_CLASSES)
        return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s has the label %lld: there are at most %d classes",
                        (unsigned long long)place->offset, cvy_quote(shard->file->path), (long long)record.label,
                        CVY_MAX_CLASSES);
    if (record.label < 1)
        return cvy_fail(CVY_BAD_DATA, "the record at byte %llu of %s has the label %lld: labels count from 1",
                        (unsigned long long)place->offset, cvy_quote(shard->file->path), (long long)record.label);
    shard->labels[index] = (int32_t)record.label - 1;
    return remember_name(shard, shard->labels[index], &record);
}

/* The byte after the last record; 0: there is none. */
static uint64_t index_end(const struct cvy_tfrecord_index *index)
{
    const struct cvy_tfrecord_location *last = index->count > 0 ? &index->places[index->count - 1] : NULL;

    return last ? last->offset + last->size : 0;
}

static cvy_status find_places(const struct listing *listing, struct shard *shard, int file)
{
    const struct cvy_tfrecord_index *index = &shard->index;
    struct stat about;

    if (!listing->index_folder || !listing->index_folder[0])
        return cvy_tfrecord_scan(shard->file->path, file, &shard->index);
    char *path = cvy_path_join(listing->index_folder, strrchr(shard->file->path, '/') + 1);
    if (!path)
        return cvy_fail_memory(strlen(listing->index_folder), "a path");
    cvy_status status = cvy_tfrecord_index_read(path, &shard->index);
    if (status == CVY_OK && fstat(file, &about) != 0)
        status = cvy_fail_errno(cvy_input_status(errno), "cannot read %s", cvy_quote(shard->file->path));
    else if (status == CVY_OK && index_end(index) != (uint64_t)about.st_size)
        status = cvy_fail(CVY_BAD_DATA, "the index %s is not that of %s: they end at different bytes", cvy_quote(path),
                          cvy_quote(shard->file->path));
    cvy_free(path);
    return status;
}

static cvy_status read_shard(void *context, void *state, int64_t number)
{
    const struct listing *listing = context;
    struct shard *shard = &listing->shards[number];
    cvy_status status = CVY_OK;
    int file;

    (void)state;
    CVY_TRY(cvy_shard_borrow(shard->file, &file));
    CVY_GOTO(find_places(listing, shard, file));
    shard->labels = cvy_calloc(shard->index.count + 1, sizeof *shard->labels);
    if (!shard->labels) {
        status = cvy_fail_memory(shard->index.count * sizeof *shard->labels, "labels");
        goto fail;
    }
    for (size_t i = 0; i < shard->index.count; i++)
        CVY_GOTO(read_label(shard, file, i));
fail:
    cvy_shard_return(shard->file, file);
    return status;
}

static void release_shards(struct listing *listing)
{
    for (size_t s = 0; listing->shards && s < listing->count; s++) {
        struct shard *shard = &listing->shards[s];
        for (int32_t c = 0; c < shard->name_count; c++)
            cvy_free(shard->names[c]);
        cvy_free(shard->names);
        cvy_free(shard->labels);
        cvy_tfrecord_index_release(&shard->index);
    }
    cvy_free(listing->shards);
}

/* ---- classes ---- */

static const char *name_in_records(const void *context, int32_t label)
{
    const struct listing *listing = context;

    for (size_t s = 0; s < listing->count; s++)
        if (label < listing->shards[s].name_count && listing->shards[s].names[label])
            return listing->shards[s].names[label];
    return NULL;
}

/* ---- the set ---- */

static cvy_status set_samples(struct cvy_dataset *dataset, const char *folder, const struct listing *listing,
                              int32_t *highest)
{
    size_t total = 0, at = 0;
    struct cvy_empty_shards empty = {0};

    *highest = 0;
    for (size_t s = 0; s < listing->count; s++) {
        total += listing->shards[s].index.count;
        cvy_empty_shards_count(&empty, listing->shards[s].file->path, listing->shards[s].index.count);
    }
    if (total == 0 || total > INT32_MAX)
        return cvy_fail(CVY_BAD_DATA, "the TFRecords of %s hold %zu images", cvy_quote(folder), total);
    cvy_empty_shards_report(&empty);
    dataset->samples = cvy_arena_alloc(&dataset->arena, total * sizeof *dataset->samples);
    if (!dataset->samples)
        return cvy_fail_memory(total * sizeof *dataset->samples, "the list of images");
    dataset->sample_count = (uint32_t)total;
    for (size_t s = 0; s < listing->count; s++) {
        const struct shard *shard = &listing->shards[s];
        for (size_t i = 0; i < shard->index.count; i++) {
            *highest = shard->labels[i] > *highest ? shard->labels[i] : *highest;
            dataset->samples[at++] = (struct cvy_sample){.path = shard->file->path,
                                                         .label = shard->labels[i],
                                                         .record_bytes = (uint32_t)shard->index.places[i].size,
                                                         .record_offset = shard->index.places[i].offset,
                                                         .shard = shard->file};
        }
    }
    return CVY_OK;
}

cvy_status cvy_dataset_open_tfrecords(struct cvy_dataset *dataset, const char *folder, enum cvy_tfrecord_part part,
                                      const char *index_folder, const char *const *classes, int32_t class_count)
{
    cvy_status status = CVY_OK;
    struct listing listing = {.index_folder = index_folder};
    const struct cvy_parallel work = {.context = &listing, .each = read_shard};
    const char **files;
    int32_t highest;

    *dataset = (struct cvy_dataset){0};
    CVY_GOTO(cvy_tfrecord_files(folder, part, &dataset->arena, &files, &listing.count));
    CVY_GOTO(cvy_shards_open(CVY_SHARD_TFRECORD, files, listing.count, &dataset->shards));
    listing.shards = cvy_calloc(listing.count, sizeof *listing.shards);
    if (!listing.shards) {
        status = cvy_fail_memory(listing.count * sizeof *listing.shards, "the list of images");
        goto fail;
    }
    for (size_t s = 0; s < listing.count; s++)
        listing.shards[s].file = cvy_shard(dataset->shards, s);
    CVY_GOTO(cvy_parallel_run(&work, (int64_t)listing.count, cvy_default_threads()));
    CVY_GOTO(set_samples(dataset, folder, &listing, &highest));
    CVY_GOTO(cvy_dataset_name_classes(
        dataset, folder,
        &(struct cvy_numbered_classes){.highest = highest, .first = 1, .name = name_in_records, .context = &listing},
        classes, class_count));
    cvy_dataset_sort(dataset);
fail:
    release_shards(&listing);
    if (status != CVY_OK)
        cvy_dataset_close(dataset);
    return status;
}

cvy_status cvy_dataset_open_tfrecord_pair(const char *folder, const char *index_folder, struct cvy_dataset *train,
                                          struct cvy_dataset *val)
{
    *train = *val = (struct cvy_dataset){0};
    if (!cvy_holds_tfrecords(folder, CVY_TFRECORD_VALIDATION))
        return cvy_fail(CVY_NO_INPUT,
                        "%s has no files validation-* (--val-split 0.2 sets a part of the training images aside for "
                        "validation)",
                        cvy_quote(folder));
    CVY_TRY(cvy_dataset_open_tfrecords(train, folder, CVY_TFRECORD_TRAIN, index_folder, NULL, 0));
    cvy_status status = cvy_dataset_open_tfrecords(val, folder, CVY_TFRECORD_VALIDATION, index_folder, train->classes,
                                                   train->class_count);
    if (status != CVY_OK)
        cvy_dataset_close(train);
    return status;
}
