#include "data/detection/detection_records.h"

#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "data/detection/label_map.h"
#include "data/detection/object_record.h"
#include "data/set/listing.h"
#include "data/set/tfrecord_set.h"
#include "formats/container/tfrecord_index.h"

static bool is_record_name(const char *name, const void *context)
{
    /* These are the names of records of whole images (data/set/tfrecord_set.h). */
    const bool classifying = strncmp(name, "train-", 6) == 0 || strncmp(name, "validation-", 11) == 0;
    const char *word = strstr(name, context);
    const char *kind = word ? strstr(word, ".record") : NULL, *other = word ? strstr(word, ".tfrecord") : NULL;
    const char *ending = strrchr(name, '.');

    return name[0] != '.' && !classifying && (kind || other) && !strstr(name, ".tmp.") && strcmp(ending, ".idx") != 0 &&
           strcmp(ending, ".index") != 0;
}

bool cvy_holds_object_records(const char *folder, const char *word)
{
    return cvy_holds_files(folder, is_record_name, word);
}

/* ---- the label map ---- */

static bool is_label_map(const char *name, const void *context)
{
    const char *ending = strrchr(name, '.');

    (void)context;
    return name[0] != '.' && ending && strcmp(ending, ".pbtxt") == 0;
}

static cvy_status read_map(const char *folder, struct cvy_label_map *map)
{
    cvy_status status = CVY_OK;
    struct cvy_arena arena = {0};
    const char **files = NULL;
    size_t count;

    *map = (struct cvy_label_map){0};
    CVY_GOTO(cvy_files_in(folder, is_label_map, NULL, &arena, &files, &count));
    if (count > 1)
        status = cvy_fail(CVY_BAD_DATA, "%s and %s may both be the label map of the records", cvy_quote(files[0]),
                          cvy_quote(files[1]));
    else
        status = count == 1 ? cvy_label_map_read(files[0], map) : cvy_label_map_coco(map);
fail:
    cvy_free(files);
    cvy_arena_release(&arena);
    return status;
}

/* ---- records ---- */

/* One file; `part` holds what was found. The image ids of its annotations are indices of its images at first. */
struct shard {
    const struct cvy_shard *file;
    struct cvy_coco_file part;
};

struct listing {
    struct cvy_label_map map;
    struct shard *shards;
    size_t count;
};

static cvy_status find_category(const struct listing *listing, const struct cvy_example *example,
                                const struct cvy_object_record *record, size_t i, int64_t *id)
{
    *id = record->texts ? cvy_label_map_find(&listing->map, record->texts[i]) : record->labels[i];
    if (*id >= 0)
        return CVY_OK;
    return cvy_fail(CVY_BAD_DATA,
                    "the record at byte %llu of %s has a category %s that the label map does not have (a file \"" //
                    CVY_LABEL_MAP_FILE "\" beside the records names other categories than COCO's)",
                    (unsigned long long)example->record, cvy_quote(example->what),
                    record->texts ? cvy_quote(record->texts[i]) : "without a name");
}

static cvy_status add_objects(const struct listing *listing, struct shard *shard, const struct cvy_example *example,
                              const struct cvy_object_record *record)
{
    for (size_t i = 0; i < record->count; i++) {
        const float *box = record->boxes[i];
        const double x = (double)box[1] * record->width, y = (double)box[0] * record->height;
        struct cvy_coco_file_annotation annotation = {
            .image_id = (int64_t)shard->part.image_count - 1,
            .at = example->record,
            .bbox = {x, y, (double)box[3] * record->width - x, (double)box[2] * record->height - y},
            .crowd = record->crowds && record->crowds[i] != 0,
        };
        annotation.area = record->areas ? (double)record->areas[i] : annotation.bbox[2] * annotation.bbox[3];
        CVY_TRY(find_category(listing, example, record, i, &annotation.category_id));
        CVY_TRY(cvy_coco_file_add_annotation(&shard->part, &annotation));
    }
    return CVY_OK;
}

static cvy_status read_record(const struct listing *listing, struct shard *shard, int file,
                              const struct cvy_tfrecord_location *place)
{
    cvy_status status;
    struct cvy_object_record record;
    struct cvy_example example;
    const char *path = shard->file->path;

    cvy_example_open_file(&example, path, place->offset, file, place->offset + CVY_TFRECORD_HEADER,
                          (size_t)(place->size - CVY_TFRECORD_FRAME));
    CVY_GOTO(cvy_object_record_read(&example, &record));
    CVY_GOTO(cvy_coco_file_add_image(&shard->part, &(struct cvy_coco_file_image){.id = record.id,
                                                                                 .at = place->offset,
                                                                                 .file_name = strrchr(path, '/') + 1,
                                                                                 .width = record.width,
                                                                                 .height = record.height,
                                                                                 .record_bytes = (uint32_t)place->size,
                                                                                 .record_offset = place->offset,
                                                                                 .shard = shard->file}));
    status = add_objects(listing, shard, &example, &record);
fail:
    cvy_object_record_release(&record);
    return status;
}

static cvy_status read_shard(void *context, void *state, int64_t number)
{
    const struct listing *listing = context;
    struct shard *shard = &listing->shards[number];
    struct cvy_tfrecord_index index = {0};
    cvy_status status = CVY_OK;
    int file;

    (void)state;
    CVY_TRY(cvy_shard_borrow(shard->file, &file));
    CVY_GOTO(cvy_tfrecord_scan(shard->file->path, file, &index));
    for (size_t i = 0; i < index.count; i++)
        CVY_GOTO(read_record(listing, shard, file, &index.places[i]));
fail:
    cvy_tfrecord_index_release(&index);
    cvy_shard_return(shard->file, file);
    return status;
}

/* ---- the set ---- */

/* Where one image has no number for an id, all are counted. */
static void set_ids(struct listing *listing)
{
    bool counted = false;
    int64_t next = 1;

    for (size_t s = 0; s < listing->count; s++)
        for (size_t i = 0; i < listing->shards[s].part.image_count; i++)
            counted |= listing->shards[s].part.images[i].id < 0;
    for (size_t s = 0; s < listing->count; s++) {
        struct cvy_coco_file *part = &listing->shards[s].part;
        for (size_t i = 0; counted && i < part->image_count; i++)
            part->images[i].id = next++;
        for (size_t i = 0; i < part->annotation_count; i++)
            part->annotations[i].image_id = part->images[part->annotations[i].image_id].id;
    }
}

static cvy_status merge(struct listing *listing, struct cvy_coco_file *all)
{
    struct cvy_empty_shards empty = {0};

    set_ids(listing);
    for (size_t s = 0; s < listing->count; s++) {
        const struct cvy_coco_file *part = &listing->shards[s].part;
        cvy_empty_shards_count(&empty, listing->shards[s].file->path, part->image_count);
        for (size_t i = 0; i < part->image_count; i++)
            CVY_TRY(cvy_coco_file_add_image(all, &part->images[i]));
        for (size_t i = 0; i < part->annotation_count; i++)
            CVY_TRY(cvy_coco_file_add_annotation(all, &part->annotations[i]));
    }
    if (all->image_count > 0)
        cvy_empty_shards_report(&empty);
    for (size_t i = 0; i < listing->map.count; i++) {
        const struct cvy_label *label = &listing->map.labels[i];
        CVY_TRY(cvy_coco_file_add_category(
            all, &(struct cvy_coco_file_category){.id = label->id,
                                                  .name = label->display_name ? label->display_name : label->name}));
    }
    return CVY_OK;
}

cvy_status cvy_dataset_open_object_records(struct cvy_dataset *dataset, const char *folder, const char *word,
                                           const struct cvy_category_rule *rule)
{
    cvy_status status = CVY_OK;
    struct listing listing = {0};
    struct cvy_shards *shards = NULL;
    struct cvy_coco_file all = {0};
    const struct cvy_parallel work = {.context = &listing, .each = read_shard};
    const char **files = NULL;

    *dataset = (struct cvy_dataset){0};
    CVY_GOTO(cvy_files_in(folder, is_record_name, word, &all.arena, &files, &listing.count));
    if (listing.count == 0) {
        status = cvy_fail(CVY_NO_INPUT, "%s has no files *%s*.record*", cvy_quote(folder), word);
        goto fail;
    }
    CVY_GOTO(cvy_tfrecord_check_complete(folder, files, listing.count));
    CVY_GOTO(cvy_shards_open(CVY_SHARD_TFRECORD, files, listing.count, &shards));
    CVY_GOTO(read_map(folder, &listing.map));
    listing.shards = cvy_calloc(listing.count, sizeof *listing.shards);
    if (!listing.shards) {
        status = cvy_fail_memory(listing.count * sizeof *listing.shards, "the list of images");
        goto fail;
    }
    for (size_t s = 0; s < listing.count; s++)
        listing.shards[s].file = cvy_shard(shards, s);
    CVY_GOTO(cvy_parallel_run(&work, (int64_t)listing.count, cvy_default_threads()));
    CVY_GOTO(merge(&listing, &all));
    CVY_GOTO(cvy_dataset_from_coco(dataset, folder, &all, folder, rule));
    dataset->shards = cvy_shards_share(shards);
fail:
    for (size_t s = 0; listing.shards && s < listing.count; s++)
        cvy_coco_file_release(&listing.shards[s].part);
    cvy_free(listing.shards);
    cvy_free(files);
    cvy_label_map_release(&listing.map);
    cvy_coco_file_release(&all);
    cvy_shards_close(shards);
    return status;
}
