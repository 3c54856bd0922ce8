/* convoy dataset tfrecord: an image folder as TFRecords of TensorFlow's ImageNet kind, or a detection set as those of
 * its COCO kind; convoy dataset index: where the records of such files are. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "base/rng.h"
#include "base/sized.h"
#include "convoy/dataset.h"
#include "data/detection/detection_records.h"
#include "data/detection/detection_set.h"
#include "data/detection/label_map.h"
#include "data/detection/object_record.h"
#include "data/image/codec.h"
#include "data/image/image.h"
#include "data/set/tfrecord_set.h"
#include "dataset_tools/box_csv.h"
#include "dataset_tools/box_xml.h"
#include "formats/container/tfrecord_index.h"

/* Without --train-shards and --val-shards: as many images in a file as ImageNet has in its 1024 and 128 files. */
enum { TRAIN_SHARD_IMAGES = 1252, VAL_SHARD_IMAGES = 391, MAX_SHARDS = 99999, RECODED_QUALITY = 100 };
/* The same for COCO's 100 and 10. */
enum { TRAIN_SHARD_SCENES = 1183, VAL_SHARD_SCENES = 500 };
#define CVY_FILES_OF(images, each) (((images) + (each)-1) / (each))
_Static_assert(CVY_FILES_OF(1281167, TRAIN_SHARD_IMAGES) == 1024 && CVY_FILES_OF(50000, VAL_SHARD_IMAGES) == 128 &&
                   CVY_FILES_OF(118287, TRAIN_SHARD_SCENES) == 100 && CVY_FILES_OF(5000, VAL_SHARD_SCENES) == 10,
               "as many files as the programs of ImageNet and COCO write");
static const char *const scene_prefixes[CVY_TFRECORD_PARTS] = {"coco_train.record", "coco_val.record"};

/* The files of one part. */
struct part {
    struct cvy_dataset set;
    const char *prefix;
    uint32_t *order; /* (sample_count) samples in the order in which they are written */
    int shards;
    bool *written; /* (shards) there under its final name, or may be */
    atomic_llong left_out;
};

struct writing {
    const char *folder;
    const struct cvy_tfrecord_options *options;
    struct part parts[CVY_TFRECORD_PARTS];
    struct cvy_box_csv boxes; /* of an image folder */
    const char *box_folder;   /* the same in files of XML; NULL: there is none */
    int64_t total;
    atomic_llong reencoded, boxed;
    pthread_mutex_t mutex; /* guards what follows */
    int64_t done;
};

/* ---- one image ---- */

/* What of a file goes into the record: its bytes, or, for what TensorFlow's program re-encodes too (PNG, CMYK), a JPEG
 * that the caller frees. */
static cvy_status choose_bytes(struct writing *writing, struct cvy_decoder *decoder, const struct cvy_encoded *encoded,
                               struct cvy_image_record_source *source, uint8_t **jpeg)
{
    cvy_status status;
    const uint8_t *pixels;
    uint8_t *packed = NULL;
    size_t stride;

    *jpeg = NULL;
    source->image = encoded->data;
    source->image_size = encoded->size;
    CVY_TRY(cvy_decoder_start(decoder, encoded->name, encoded->data, encoded->size, &source->width, &source->height));
    if (cvy_decoder_is_plain_jpeg(decoder))
        return CVY_OK;
    const int32_t width = source->width, height = source->height;
    CVY_TRY(cvy_decoder_read(decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride));
    const size_t row = (size_t)width * 3;
    packed = cvy_realloc(NULL, row, (size_t)height);
    if (!packed)
        return cvy_fail_memory(row * (size_t)height, "the pixels of an image");
    for (int32_t y = 0; y < height; y++)
        memcpy(packed + (size_t)y * row, pixels + (size_t)y * stride, row);
    status = cvy_jpeg_encode(packed, width, height, RECODED_QUALITY, jpeg, &source->image_size);
    source->image = *jpeg;
    cvy_free(packed);
    atomic_fetch_add(&writing->reencoded, status == CVY_OK);
    return status;
}

static cvy_status write_record(struct cvy_output *output, const void *message, size_t size)
{
    uint8_t header[CVY_TFRECORD_HEADER], footer[CVY_TFRECORD_FOOTER];

    cvy_tfrecord_header(size, header);
    cvy_tfrecord_footer(message, size, footer);
    CVY_TRY(cvy_output_write(output, header, sizeof header));
    CVY_TRY(cvy_output_write(output, message, size));
    return cvy_output_write(output, footer, sizeof footer);
}

/* Size and boxes are those that the data set says: the decoder's size has no say. */
static cvy_status pack_objects(const struct cvy_dataset *set, uint32_t sample, struct cvy_image_record_source *image,
                               uint8_t **message, size_t *size)
{
    struct cvy_object_record_source source = {.image = image->image,
                                              .image_size = image->image_size,
                                              .filename = image->filename,
                                              .about = &set->images[sample],
                                              .classes = set->classes};

    cvy_dataset_objects(set, sample, &source.objects, &image->box_count);
    return cvy_object_record_pack(&source, message, size);
}

/* A file of XML that cannot be read costs its boxes, not the image. */
static void find_boxes(struct writing *writing, const struct cvy_dataset *set, struct cvy_image_record_source *source,
                       struct cvy_object_box **owned)
{
    const struct cvy_box_classes classes = {(const char *const *)set->classes, set->class_count, source->class_name};

    source->boxes = cvy_box_csv_find(&writing->boxes, source->filename, &source->box_count);
    if (!writing->box_folder)
        return;
    if (cvy_box_xml_read(writing->box_folder, source->filename, &classes, owned, &source->box_count) != CVY_OK)
        cvy_log(CVY_LOG_WARNING, "%s; its boxes are left out", cvy_error());
    source->boxes = *owned;
}

static cvy_status write_image(struct writing *writing, struct part *part, const struct cvy_sample *sample,
                              struct cvy_decoder *decoder, struct cvy_output *output)
{
    cvy_status status;
    const struct cvy_dataset *set = &part->set;
    const char *slash = strrchr(sample->path, '/');
    struct cvy_image_record_source source = {.label = sample->label + 1,
                                             .class_name = set->classes[sample->label],
                                             .filename = slash ? slash + 1 : sample->path};
    struct cvy_encoded encoded = {0};
    struct cvy_object_box *boxes = NULL;
    uint8_t *jpeg = NULL, *message = NULL;
    size_t size;

    find_boxes(writing, set, &source, &boxes);
    CVY_GOTO(cvy_sample_read(sample, &encoded));
    CVY_GOTO(choose_bytes(writing, decoder, &encoded, &source, &jpeg));
    CVY_GOTO(set->detection ? pack_objects(set, (uint32_t)(sample - set->samples), &source, &message, &size)
                            : cvy_image_record_pack(&source, &message, &size));
    CVY_GOTO(write_record(output, message, size));
    atomic_fetch_add(&writing->boxed, (long long)source.box_count);
fail:
    cvy_free(boxes);
    cvy_free(message);
    free(jpeg);
    cvy_encoded_release(&encoded);
    if (status != CVY_BAD_DATA && status != CVY_NO_INPUT)
        return status;
    atomic_fetch_add(&part->left_out, 1);
    cvy_log(CVY_LOG_WARNING, "%s; the image is left out", cvy_error());
    return CVY_OK;
}

/* ---- one file ---- */

static void report_progress(struct writing *writing)
{
    const struct cvy_tfrecord_options *options = writing->options;

    pthread_mutex_lock(&writing->mutex);
    writing->done++;
    if (options->progress)
        options->progress(options->context, writing->done, writing->total);
    pthread_mutex_unlock(&writing->mutex);
}

/* In a buffer on the stack: what is cleaned up when memory ran out needs its name too. */
static void shard_path(const struct writing *writing, const struct part *part, int shard, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s-%05d-of-%05d", writing->folder, part->prefix, shard, part->shards);
}

static cvy_status write_shard(void *context, void *decoder, int64_t number)
{
    struct writing *writing = context;
    const bool train = number < writing->parts[CVY_TFRECORD_TRAIN].shards;
    struct part *part = &writing->parts[train ? CVY_TFRECORD_TRAIN : CVY_TFRECORD_VALIDATION];
    const int shard = (int)(train ? number : number - writing->parts[CVY_TFRECORD_TRAIN].shards);
    const uint64_t count = part->set.sample_count, shards = (uint64_t)part->shards;
    /* Scenes are dealt out round-robin, every shards-th one to a file, as TensorFlow's program does; else each file
     * takes a contiguous piece of the order.
     */
    const bool assigned = part->set.detection;
    const uint64_t from = assigned ? (uint64_t)shard : count * (uint64_t)shard / shards;
    const uint64_t end = assigned ? count : count * ((uint64_t)shard + 1) / shards;
    struct cvy_output output = {0};
    char path[PATH_MAX];
    cvy_status status;

    shard_path(writing, part, shard, path);
    CVY_GOTO(cvy_output_open(&output, path));
    for (uint64_t i = from; i < end; i += assigned ? shards : 1) {
        CVY_GOTO(write_image(writing, part, &part->set.samples[part->order[i]], decoder, &output));
        report_progress(writing);
    }
    part->written[shard] = true; /* or nearly: committing may fail after the renaming */
    CVY_GOTO(cvy_output_commit(&output));
fail:
    cvy_output_abort(&output);
    return status;
}

/* A set that did not get whole leaves none of its files. */
static void remove_shards(const struct writing *writing)
{
    char path[PATH_MAX];

    for (int p = 0; p < CVY_TFRECORD_PARTS; p++)
        for (int s = 0; writing->parts[p].written && s < writing->parts[p].shards; s++) {
            shard_path(writing, &writing->parts[p], s, path);
            if (writing->parts[p].written[s])
                unlink(path);
        }
}

/* ---- the set ---- */

static cvy_status begin(void *context, void **decoder)
{
    (void)context;
    return cvy_decoder_new((struct cvy_decoder **)decoder);
}

static void end(void *decoder)
{
    cvy_decoder_free(decoder);
}

static cvy_status prepare_part(const struct writing *writing, enum cvy_tfrecord_part which, int shards,
                               struct part *part)
{
    const uint32_t count = part->set.sample_count;
    const bool scenes = part->set.detection;
    const uint32_t usual = which == CVY_TFRECORD_TRAIN ? (scenes ? TRAIN_SHARD_SCENES : TRAIN_SHARD_IMAGES)
                                                       : (scenes ? VAL_SHARD_SCENES : VAL_SHARD_IMAGES);
    struct cvy_rng rng = cvy_rng_new(writing->options->seed, CVY_RNG_RECORDS, 0, (uint32_t)which);

    part->prefix = scenes ? scene_prefixes[which] : cvy_tfrecord_prefixes[which];
    part->shards = shards > 0 ? shards : (int)CVY_FILES_OF(count, usual);
    if (part->shards > MAX_SHARDS)
        part->shards = MAX_SHARDS;
    if ((uint32_t)part->shards > count)
        return cvy_fail(CVY_USAGE, "%d files are too many for the %s of the %s part", part->shards,
                        cvy_counted(count, "image"), part->prefix);
    part->order = cvy_calloc(count, sizeof *part->order);
    part->written = cvy_calloc((size_t)part->shards, sizeof *part->written);
    if (!part->order || !part->written)
        return cvy_fail_memory(count * sizeof *part->order, "the order of the images");
    if (!writing->options->keep_order && !scenes)
        cvy_rng_permutation(&rng, part->order, count);
    for (uint32_t i = 0; (writing->options->keep_order || scenes) && i < count; i++)
        part->order[scenes ? part->set.places[i] : i] = i;
    return CVY_OK;
}

/* A label map for scenes, else a name a line. */
static cvy_status write_classes(const struct writing *writing, const struct cvy_dataset *set)
{
    struct cvy_text text = {0};
    char *path = cvy_path_join(writing->folder, set->detection ? CVY_LABEL_MAP_FILE : CVY_TFRECORD_CLASSES);

    for (int32_t c = 0; c < set->class_count && !set->detection; c++)
        cvy_text_printf(&text, "%s\n", set->classes[c]);
    for (int32_t c = 0; c < set->class_count && set->detection; c++)
        cvy_label_map_write(&text, set->category_ids[c], set->classes[c]);
    cvy_status status = text.failed || !path ? cvy_fail_memory(text.capacity, "class names")
                                             : cvy_file_replace(path, text.text, text.length);
    cvy_text_release(&text);
    cvy_free(path);
    return status;
}

static cvy_status check_source(const char *source, const struct cvy_tfrecord_options *options)
{
    if (options->train_shards < 0 || options->train_shards > MAX_SHARDS || options->val_shards < 0 ||
        options->val_shards > MAX_SHARDS)
        return cvy_fail(CVY_USAGE, "%d training and %d validation files: at most %d are possible",
                        options->train_shards, options->val_shards, MAX_SHARDS);
    if (cvy_holds_tfrecords(source, CVY_TFRECORD_TRAIN) || cvy_holds_object_records(source, "train"))
        return cvy_fail(CVY_USAGE, "%s holds TFRecords already", cvy_quote(source));
    return CVY_OK;
}

struct category {
    const char *name;
    int64_t id;
};

static int compare_categories(const void *a, const void *b)
{
    const struct category *x = a, *y = b;
    const int order = strcmp(x->name, y->name);

    return order ? order : (x->id > y->id) - (x->id < y->id);
}

/* A record names the categories of its boxes: two of one name would become one. */
static cvy_status check_different(const struct cvy_dataset *set)
{
    const size_t count = (size_t)set->class_count;
    struct category *categories = cvy_calloc(count, sizeof *categories);
    cvy_status status = CVY_OK;

    if (!categories)
        return cvy_fail_memory(count * sizeof *categories, "class names");
    for (size_t c = 0; c < count; c++)
        categories[c] = (struct category){set->classes[c], set->category_ids[c]};
    qsort(categories, count, sizeof *categories, compare_categories);
    for (size_t c = 1; c < count && status == CVY_OK; c++)
        if (strcmp(categories[c - 1].name, categories[c].name) == 0)
            status = cvy_fail(CVY_BAD_DATA,
                              "%s calls two categories %s, %lld and %lld: records, which have the names alone, could "
                              "not tell them apart",
                              cvy_quote(set->source), cvy_quote(categories[c].name), (long long)categories[c - 1].id,
                              (long long)categories[c].id);
    cvy_free(categories);
    return status;
}

static cvy_status check_names(const struct cvy_dataset *set)
{
    for (int32_t c = 0; c < set->class_count; c++)
        if (strpbrk(set->classes[c], "\r\n") || !set->classes[c][0])
            return cvy_fail(CVY_BAD_DATA, "class %s has a name that does not fit in a line",
                            cvy_quote(set->classes[c]));
    return set->detection ? check_different(set) : CVY_OK;
}

/* A label map has none below 0: its readers, this one too, would refuse it. */
static cvy_status check_ids(const struct cvy_dataset *set)
{
    for (int32_t c = 0; set->detection && c < set->class_count; c++)
        if (set->category_ids[c] < 0)
            return cvy_fail(CVY_BAD_DATA, "%s: category %s has the id %lld, and records have none below 0",
                            cvy_quote(set->source), cvy_quote(set->classes[c]), (long long)set->category_ids[c]);
    return CVY_OK;
}

static cvy_status open_source(const char *source, const struct cvy_tfrecord_options *options, struct cvy_dataset *train,
                              struct cvy_dataset *val)
{
    bool boxes;

    CVY_TRY(cvy_find_detection(source, &boxes));
    if (!boxes)
        return cvy_dataset_open_pair(source, NULL, options->val_split, options->seed, train, val);
    return cvy_dataset_open_detection_pair(source, false, options->val_split, options->seed, train, val);
}

static cvy_status write_all(struct writing *writing, const char *source)
{
    const struct cvy_tfrecord_options *options = writing->options;
    struct part *train = &writing->parts[CVY_TFRECORD_TRAIN], *val = &writing->parts[CVY_TFRECORD_VALIDATION];
    const struct cvy_parallel work = {.context = writing, .begin = begin, .end = end, .each = write_shard};

    if (strlen(writing->folder) > PATH_MAX - 64)
        return cvy_fail(CVY_CANNOT_CREATE, "the name %s is too long for a folder", cvy_quote(writing->folder));
    if (options->train_shards < 0 || options->val_shards < 0)
        return cvy_fail(CVY_USAGE, "%d and %d files are not possible", options->train_shards, options->val_shards);
    CVY_TRY(check_source(source, options));
    CVY_TRY(cvy_folder_check_new(writing->folder));
    CVY_TRY(open_source(source, options, &train->set, &val->set));
    if (options->boxes && train->set.detection)
        return cvy_fail(CVY_USAGE, "option --boxes is for image folders: %s has boxes of its own", cvy_quote(source));
    if (options->boxes && cvy_path_is_directory(options->boxes))
        writing->box_folder = options->boxes;
    else if (options->boxes)
        CVY_TRY(cvy_box_csv_read(&writing->boxes, options->boxes));
    CVY_TRY(check_names(&train->set));
    CVY_TRY(check_ids(&train->set));
    CVY_TRY(prepare_part(writing, CVY_TFRECORD_TRAIN, options->train_shards, train));
    CVY_TRY(prepare_part(writing, CVY_TFRECORD_VALIDATION, options->val_shards, val));
    writing->total = (int64_t)train->set.sample_count + val->set.sample_count;
    CVY_TRY(cvy_make_directories(writing->folder));
    CVY_TRY(cvy_parallel_run(&work, train->shards + val->shards,
                             options->threads > 0 ? options->threads : cvy_default_threads()));
    return write_classes(writing, &train->set);
}

cvy_status cvy_write_tfrecords(const char *source, const char *folder, const struct cvy_tfrecord_options *options,
                               struct cvy_tfrecord_result *result)
{
    CVY_REQUIRE(source);
    CVY_REQUIRE(folder);
    CVY_REQUIRE(options);
    CVY_REQUIRE(result);
    struct cvy_tfrecord_options known = CVY_TFRECORD_DEFAULTS;
    CVY_TRY(cvy_sized_take(&known, sizeof known, options, "cvy_tfrecord_options"));
    struct writing writing = {.folder = folder, .options = &known, .mutex = PTHREAD_MUTEX_INITIALIZER};
    const struct part *train = &writing.parts[CVY_TFRECORD_TRAIN], *val = &writing.parts[CVY_TFRECORD_VALIDATION];
    cvy_status status = write_all(&writing, source);

    if (status != CVY_OK)
        remove_shards(&writing);
    *result = (struct cvy_tfrecord_result){.train_images = train->set.sample_count - train->left_out,
                                           .val_images = val->set.sample_count - val->left_out,
                                           .train_shards = train->shards,
                                           .val_shards = val->shards,
                                           .classes = train->set.class_count,
                                           .boxes = writing.boxed,
                                           .reencoded = writing.reencoded,
                                           .left_out = train->left_out + val->left_out};
    for (int p = 0; p < CVY_TFRECORD_PARTS; p++) {
        cvy_dataset_close(&writing.parts[p].set);
        cvy_free(writing.parts[p].order);
        cvy_free(writing.parts[p].written);
    }
    cvy_box_csv_release(&writing.boxes);
    pthread_mutex_destroy(&writing.mutex);
    return status;
}

/* ---- index files ---- */

struct indexing {
    const char **files;
    const char *folder;
    atomic_llong records;
};

static cvy_status write_index(void *context, void *state, int64_t number)
{
    struct indexing *indexing = context;
    const char *path = indexing->files[number];
    struct cvy_tfrecord_index index = {0};
    cvy_status status;
    char *out = cvy_path_join(indexing->folder, strrchr(path, '/') + 1);
    const int file = open(path, O_RDONLY | O_CLOEXEC);

    (void)state;
    if (file < 0)
        status = cvy_fail_errno(cvy_input_status(errno), "cannot open %s", cvy_quote(path));
    else
        status = out ? cvy_tfrecord_scan(path, file, &index) : cvy_fail_memory(0, "a path");
    if (status == CVY_OK)
        status = cvy_tfrecord_index_write(out, &index);
    if (status == CVY_OK)
        atomic_fetch_add(&indexing->records, (long long)index.count);
    cvy_tfrecord_index_release(&index);
    if (file >= 0)
        close(file);
    cvy_free(out);
    return status;
}

/* The index files have the names of the records' files: in one folder they would take their place. */
static cvy_status check_elsewhere(const char *folder, const char *out)
{
    char *from = realpath(folder, NULL), *to = realpath(out, NULL);
    const bool same = from && to && strcmp(from, to) == 0;

    free(from);
    free(to);
    return same ? cvy_fail(CVY_USAGE, "the index files of %s need another folder: they have the names of the records'",
                           cvy_quote(folder))
                : CVY_OK;
}

cvy_status cvy_write_tfrecord_index(const char *folder, const char *out, int threads, int64_t *files, int64_t *records)
{
    CVY_REQUIRE(folder);
    CVY_REQUIRE(out);
    CVY_REQUIRE(files);
    CVY_REQUIRE(records);
    cvy_status status = CVY_OK;
    struct cvy_arena arena = {0};
    struct indexing indexing = {.folder = out};
    const struct cvy_parallel work = {.context = &indexing, .each = write_index};

    *files = *records = 0;
    CVY_GOTO(cvy_make_directories(out));
    CVY_GOTO(check_elsewhere(folder, out));
    for (int part = 0; part < CVY_TFRECORD_PARTS; part++) {
        size_t count;
        if (part == CVY_TFRECORD_VALIDATION && !cvy_holds_tfrecords(folder, CVY_TFRECORD_VALIDATION))
            continue;
        CVY_GOTO(cvy_tfrecord_files(folder, (enum cvy_tfrecord_part)part, &arena, &indexing.files, &count));
        CVY_GOTO(cvy_parallel_run(&work, (int64_t)count, threads > 0 ? threads : cvy_default_threads()));
        *files += (int64_t)count;
    }
    *records = indexing.records;
fail:
    cvy_arena_release(&arena);
    return status;
}
