/* convoy dataset pack: a set of labelled images as a few sequential files (doc/records.md). Each file is made by one
 * thread and appears whole; those that are there already are those of a packing that was ended, and stay. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "base/sha256.h"
#include "base/sized.h"
#include "convoy/dataset.h"
#include "data/detection/detection_set.h"
#include "data/set/pack_set.h"
#include "data/set/record_set.h"
#include "dataset_tools/pack_image.h"
#include "formats/container/pack.h"

/* Unless somebody says how many files: this many images in each, but work for this many threads, unless files became
 * smaller than that. */
enum { SHARD_IMAGES = 4096, MIN_SHARDS = 16, MIN_SHARD_IMAGES = 64, MAX_SHARDS = 99999 };
enum { PARTS = 2 }; /* training, validation */

struct part {
    struct cvy_dataset set;
    bool val;
    int shards;
    bool *there;              /* (shards) made by an earlier packing */
    uint8_t id[CVY_PACK_SET]; /* of the packing */
    int64_t left_out;         /* guarded by the mutex, as all that counts */
};

struct packing {
    const char *source, *folder;
    const struct cvy_pack_options *options;
    struct part parts[PARTS];
    int64_t total;
    pthread_mutex_t mutex; /* guards what follows */
    int64_t done, reencoded, kept_shards;
    uint64_t bytes;
};

/* ---- one file ---- */

static void shard_name(const struct part *part, int shard, char name[64])
{
    snprintf(name, 64, "%s-%05d-of-%05d" CVY_PACK_ENDING, part->val ? "val" : "train", shard, part->shards);
}

static void shard_path(const struct packing *packing, const struct part *part, int shard, char path[PATH_MAX])
{
    char name[64];

    shard_name(part, shard, name);
    snprintf(path, PATH_MAX, "%s/%s", packing->folder, name);
}

/* The images of a file: a piece of the data set's order. */
static uint32_t first_of(const struct part *part, int shard)
{
    return (uint32_t)((uint64_t)part->set.sample_count * (uint64_t)shard / (uint64_t)part->shards);
}

static void report_progress(struct packing *packing, int64_t images)
{
    pthread_mutex_lock(&packing->mutex);
    packing->done += images;
    if (packing->options->progress)
        packing->options->progress(packing->options->context, packing->done, packing->total);
    pthread_mutex_unlock(&packing->mutex);
}

/* What an image is called in the pack: as it was in records, or its path below the source. */
static const char *name_of(const struct packing *packing, const struct cvy_sample *sample,
                           const struct cvy_encoded *encoded)
{
    const size_t front = strlen(packing->source);
    const char *name = sample->path, *slash = strrchr(name, '/');

    if (encoded->own)
        return encoded->own[0] ? encoded->own : slash ? slash + 1 : name;
    if (strncmp(name, packing->source, front) == 0 && (name[front] == '/' || (front && name[front - 1] == '/')))
        name += front + (name[front] == '/');
    return name;
}

struct shard {
    struct packing *packing;
    struct part *part;
    struct cvy_output output;
    struct cvy_pack_location *places;
    size_t count;
    int64_t reencoded;
    uint64_t bytes;
};

static cvy_status write_record(struct shard *shard, const char *name, const struct cvy_pack_image *image, int32_t label)
{
    uint8_t frame[CVY_PACK_FRAME];
    const size_t name_size = strlen(name);
    uint64_t size = (uint64_t)CVY_PACK_FRAME + name_size + image->size;

    if (size > INT32_MAX || name_size > CVY_PACK_NAME_LIMIT)
        return cvy_fail(CVY_BAD_DATA, "%s is too long for a packed data set", cvy_quote(name));
    cvy_pack_frame_write(name, image->data, image->size, frame);
    CVY_TRY(cvy_output_write(&shard->output, frame, sizeof frame));
    CVY_TRY(cvy_output_write(&shard->output, name, name_size));
    CVY_TRY(cvy_output_write(&shard->output, image->data, image->size));
    shard->places[shard->count++] = (struct cvy_pack_location){.size = (uint32_t)size, .label = label};
    shard->reencoded += image->reencoded;
    shard->bytes += size;
    return CVY_OK;
}

/* An image that cannot be read is named and left out. */
static cvy_status write_image(struct shard *shard, struct cvy_pack_maker *maker, const struct cvy_sample *sample)
{
    struct cvy_encoded encoded = {0};
    struct cvy_pack_image image = {0};
    cvy_status status;

    CVY_GOTO(cvy_sample_read(sample, &encoded));
    CVY_GOTO(cvy_pack_image_make(maker, &encoded, &image));
    CVY_GOTO(write_record(shard, name_of(shard->packing, sample, &encoded), &image, sample->label));
fail:
    cvy_pack_image_release(&image);
    cvy_encoded_release(&encoded);
    if (status != CVY_BAD_DATA && status != CVY_NO_INPUT)
        return status;
    cvy_log(CVY_LOG_WARNING, "%s; the image is left out", cvy_error());
    return CVY_OK;
}

static cvy_status write_index(struct shard *shard)
{
    const struct cvy_dataset *set = &shard->part->set;
    struct cvy_text index = {0};

    cvy_pack_index_write(&index, shard->places, shard->count, set->classes, set->class_count);
    const cvy_status status = index.failed ? cvy_fail_memory(index.capacity, "the index of a packed data set")
                                           : cvy_output_write(&shard->output, index.text, index.length);
    cvy_text_release(&index);
    return status;
}

static cvy_status write_shard(struct packing *packing, struct part *part, int number, struct cvy_pack_maker *maker)
{
    const uint32_t from = first_of(part, number), end = first_of(part, number + 1);
    struct cvy_pack_header header = {.val = part->val, .shard = (uint32_t)number, .shards = (uint32_t)part->shards};
    struct shard shard = {.packing = packing, .part = part};
    uint8_t bytes[CVY_PACK_HEADER];
    char path[PATH_MAX];
    cvy_status status = CVY_OK;

    shard_path(packing, part, number, path);
    cvy_output_clean(path);
    memcpy(header.set, part->id, sizeof header.set);
    cvy_pack_header_write(&header, bytes);
    shard.places = cvy_calloc((size_t)(end - from) + 1, sizeof *shard.places);
    if (!shard.places)
        return cvy_fail_memory((size_t)(end - from) * sizeof *shard.places, "the index of a packed data set");
    CVY_GOTO(cvy_output_open(&shard.output, path));
    CVY_GOTO(cvy_output_write(&shard.output, bytes, sizeof bytes));
    for (uint32_t i = from; i < end; i++) {
        CVY_GOTO(write_image(&shard, maker, &part->set.samples[i]));
        report_progress(packing, 1);
    }
    CVY_GOTO(write_index(&shard));
    CVY_GOTO(cvy_output_commit(&shard.output));
    pthread_mutex_lock(&packing->mutex);
    part->left_out += (int64_t)(end - from) - (int64_t)shard.count;
    packing->reencoded += shard.reencoded;
    packing->bytes += shard.bytes;
    pthread_mutex_unlock(&packing->mutex);
fail:
    cvy_output_abort(&shard.output);
    cvy_free(shard.places);
    return status;
}

static cvy_status make_shard(void *context, void *maker, int64_t number)
{
    struct packing *packing = context;
    const bool val = number >= packing->parts[0].shards;
    struct part *part = &packing->parts[val];
    const int shard = (int)(val ? number - packing->parts[0].shards : number);

    return part->there[shard] ? CVY_OK : write_shard(packing, part, shard, maker);
}

static cvy_status begin(void *context, void **maker)
{
    const struct packing *packing = context;

    return cvy_pack_maker_new(packing->options, (struct cvy_pack_maker **)maker);
}

static void end(void *maker)
{
    cvy_pack_maker_free(maker);
}

/* ---- what is there already ---- */

/* A packing is known by what it is made from and how: the names, sizes and labels of its images, and the options that
 * change its bytes. */
static cvy_status identify(const struct packing *packing, struct part *part)
{
    const struct cvy_pack_options *options = packing->options;
    struct cvy_text text = {0};
    char digits[65];

    cvy_text_printf(&text, "%d %d %d %d %d\n", part->val, options->shorter_side, options->quality, options->raw,
                    options->exif_orientation);
    for (int32_t c = 0; c < part->set.class_count; c++)
        cvy_text_printf(&text, "%s\n", part->set.classes[c]);
    for (uint32_t i = 0; i < part->set.sample_count; i++) {
        const struct cvy_sample *sample = &part->set.samples[i];
        const struct cvy_encoded none = {0};
        struct stat about;
        const long long size = stat(sample->path, &about) == 0 ? (long long)about.st_size : -1;
        cvy_text_printf(&text, "%d %lld %llu %s\n", (int)sample->label, size, (unsigned long long)sample->record_offset,
                        name_of(packing, sample, &none));
    }
    if (text.failed) {
        cvy_text_release(&text);
        return cvy_fail_memory(text.capacity, "the list of images");
    }
    cvy_sha256_text(text.text, text.length, digits);
    memcpy(part->id, digits, sizeof part->id); /* 64 bits of it, as hexadecimal digits */
    cvy_text_release(&text);
    return CVY_OK;
}

/* Whether a file is number `shard` of this packing. */
static cvy_status inspect_shard(struct packing *packing, struct part *part, int shard)
{
    struct cvy_pack_index index = {0};
    struct stat about;
    char path[PATH_MAX];

    shard_path(packing, part, shard, path);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return cvy_fail_errno(cvy_input_status(errno), "cannot open %s", cvy_quote(path));
    cvy_status status = cvy_pack_index_read(path, file, &index);
    if (status == CVY_OK &&
        (index.header.val != part->val || index.header.shard != (uint32_t)shard ||
         index.header.shards != (uint32_t)part->shards || memcmp(index.header.set, part->id, sizeof part->id) != 0))
        status = cvy_fail(CVY_CANNOT_CREATE,
                          "%s is there already and was packed from other images or with other options (give another "
                          "folder, or remove it)",
                          cvy_quote(path));
    if (status == CVY_OK) {
        const int64_t images = (int64_t)first_of(part, shard + 1) - first_of(part, shard);
        part->there[shard] = true;
        part->left_out += images - (int64_t)index.count;
        packing->kept_shards++;
        packing->bytes += fstat(file, &about) == 0 ? (uint64_t)about.st_size : 0;
        packing->done += images;
    }
    cvy_pack_index_release(&index);
    close(file);
    return status;
}

/* The number of a file of this name, or -1. */
static int number_of(const struct part *part, const char *name)
{
    char expected[64];
    const char *dash = strchr(name, '-');
    const long number = dash ? strtol(dash + 1, NULL, 10) : -1;

    if (number < 0 || number >= part->shards)
        return -1;
    shard_name(part, (int)number, expected);
    return strcmp(name, expected) == 0 ? (int)number : -1;
}

/* The folder may hold finished files of this packing and what a killed one left half done; nothing else. */
static cvy_status inspect_folder(struct packing *packing)
{
    cvy_status status = CVY_OK;
    const struct dirent *entry;
    DIR *listing = opendir(packing->folder);

    if (!listing && errno == ENOENT)
        return CVY_OK;
    if (!listing)
        return cvy_fail_errno(CVY_CANNOT_CREATE, "cannot make the folder %s", cvy_quote(packing->folder));
    while (status == CVY_OK && (entry = readdir(listing)) != NULL) {
        int shard = -1;
        if (entry->d_name[0] == '.' || strstr(entry->d_name, CVY_PACK_ENDING ".tmp."))
            continue;
        for (int p = 0; p < PARTS && shard < 0 && status == CVY_OK; p++) {
            shard = number_of(&packing->parts[p], entry->d_name);
            if (shard >= 0)
                status = inspect_shard(packing, &packing->parts[p], shard);
        }
        if (shard < 0)
            status = cvy_fail(CVY_CANNOT_CREATE, "the folder %s is not empty: %s is no file of this packing",
                              cvy_quote(packing->folder), cvy_quote(entry->d_name));
    }
    closedir(listing);
    return status;
}

/* ---- the set ---- */

static cvy_status prepare_part(struct packing *packing, bool val, int shards)
{
    struct part *part = &packing->parts[val];
    const uint32_t count = part->set.sample_count;
    uint32_t usual = (count + SHARD_IMAGES - 1) / SHARD_IMAGES, min = count / MIN_SHARD_IMAGES;

    min = min < MIN_SHARDS ? min : MIN_SHARDS;
    usual = usual < min ? min : usual;
    part->val = val;
    part->shards = shards > 0 ? shards : (int)(usual > 0 ? usual : count > 0);
    if (count == 0) {
        part->shards = 0;
        return shards > 0 ? cvy_fail(CVY_USAGE, "there are no images for validation to be written to %s",
                                     cvy_counted(shards, "file"))
                          : CVY_OK;
    }
    if (part->shards > MAX_SHARDS || (uint32_t)part->shards > count)
        return cvy_fail(CVY_USAGE, "%d files are too many for the %s for %s", part->shards, cvy_counted(count, "image"),
                        val ? "validation" : "training");
    for (int32_t c = 0; c < part->set.class_count; c++)
        if (strlen(part->set.classes[c]) > UINT16_MAX || !part->set.classes[c][0])
            return cvy_fail(CVY_BAD_DATA, "class %s has a name that is not possible here",
                            cvy_quote(part->set.classes[c]));
    part->there = cvy_calloc((size_t)part->shards, sizeof *part->there);
    if (!part->there)
        return cvy_fail_memory((size_t)part->shards, "a list of files");
    return identify(packing, part);
}

static cvy_status check_options(const char *source, const char *folder, const struct cvy_pack_options *options)
{
    bool boxes;

    if (strlen(folder) > PATH_MAX - 64)
        return cvy_fail(CVY_CANNOT_CREATE, "the name %s is too long for a folder", cvy_quote(folder));
    if (options->shorter_side < 0 || options->shorter_side > 16384 || options->quality < 0 || options->quality > 100 ||
        options->train_shards < 0 || options->train_shards > MAX_SHARDS || options->val_shards < 0 ||
        options->val_shards > MAX_SHARDS)
        return cvy_fail(CVY_USAGE, "a shorter side of %d, a quality of %d, %d and %d files are not possible",
                        options->shorter_side, options->quality, options->train_shards, options->val_shards);
    if (options->quality > 0 && (options->raw || options->shorter_side == 0))
        return cvy_fail(CVY_USAGE, options->raw
                                       ? "options --quality and --raw exclude each other"
                                       : "option --quality needs --shorter-side: otherwise files stay as they are");
    if (options->exif_orientation && !options->raw && options->shorter_side == 0)
        return cvy_fail(CVY_USAGE, "option --exif-orientation needs --shorter-side or --raw: otherwise files stay as "
                                   "they are, and training turns them where that is asked for");
    CVY_TRY(cvy_find_detection(source, &boxes));
    if (boxes)
        return cvy_fail(CVY_USAGE,
                        "%s has boxes, which packed data sets do not hold; convoy dataset tfrecord writes them",
                        cvy_quote(source));
    return CVY_OK;
}

/* Both parts; a set without validation is packed as it is. */
static cvy_status open_source(struct packing *packing)
{
    struct cvy_dataset *train = &packing->parts[0].set, *val = &packing->parts[1].set;
    const double val_split = packing->options->val_split;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/val", packing->source);
    if (val_split > 0 || cvy_path_is_directory(path) || cvy_holds_records(packing->source, true))
        return cvy_dataset_open_pair(packing->source, NULL, val_split, packing->options->seed, train, val);
    return cvy_dataset_open_training(train, packing->source);
}

static cvy_status pack(struct packing *packing)
{
    const struct cvy_pack_options *options = packing->options;
    const struct cvy_parallel work = {.context = packing, .begin = begin, .end = end, .each = make_shard};

    CVY_TRY(check_options(packing->source, packing->folder, options));
    CVY_TRY(open_source(packing));
    CVY_TRY(prepare_part(packing, false, options->train_shards));
    CVY_TRY(prepare_part(packing, true, options->val_shards));
    packing->total = (int64_t)packing->parts[0].set.sample_count + packing->parts[1].set.sample_count;
    CVY_TRY(inspect_folder(packing));
    CVY_TRY(cvy_make_directories(packing->folder));
    if (packing->kept_shards > 0) {
        cvy_log(CVY_LOG_INFO, "%lld of %d files are there already and stay", (long long)packing->kept_shards,
                packing->parts[0].shards + packing->parts[1].shards);
        report_progress(packing, 0);
    }
    return cvy_parallel_run(&work, packing->parts[0].shards + packing->parts[1].shards,
                            options->threads > 0 ? options->threads : cvy_default_threads());
}

cvy_status cvy_write_pack(const char *source, const char *folder, const struct cvy_pack_options *options,
                          struct cvy_pack_result *result)
{
    CVY_REQUIRE(source);
    CVY_REQUIRE(folder);
    CVY_REQUIRE(options);
    CVY_REQUIRE(result);
    struct cvy_pack_options known = CVY_PACK_DEFAULTS;
    CVY_TRY(cvy_sized_take(&known, sizeof known, options, "cvy_pack_options"));
    struct packing packing = {
        .source = source, .folder = folder, .options = &known, .mutex = PTHREAD_MUTEX_INITIALIZER};
    const struct part *train = &packing.parts[0], *val = &packing.parts[1];
    const cvy_status status = pack(&packing);

    *result = (struct cvy_pack_result){.train_images = train->set.sample_count - train->left_out,
                                       .val_images = val->set.sample_count - val->left_out,
                                       .reencoded = packing.reencoded,
                                       .left_out = train->left_out + val->left_out,
                                       .bytes = (int64_t)packing.bytes,
                                       .classes = train->set.class_count,
                                       .train_shards = train->shards,
                                       .val_shards = val->shards,
                                       .kept_shards = (int)packing.kept_shards};
    for (int p = 0; p < PARTS; p++) {
        cvy_dataset_close(&packing.parts[p].set);
        cvy_free(packing.parts[p].there);
    }
    pthread_mutex_destroy(&packing.mutex);
    return status;
}
