#include "data/set/tar_set.h"

#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "data/image/image.h"
#include "data/set/class_file.h"
#include "data/set/listing.h"
#include "formats/container/tar.h"

enum { LABEL_BYTES = 32 };                           /* of a label, with white space */
static const uint64_t max_image = (uint64_t)1 << 30; /* no encoded image is longer */

/* ---- one archive ---- */

/* A sample whose files are being met: they follow each other. */
struct open_sample {
    char key[CVY_TAR_NAME];
    bool begun, has_image, has_label;
    struct cvy_tar_location place;
};

/* The name up to the first dot after the last slash; what follows the dot is the kind of the file. */
static const char *split_name(const char *name, size_t *key)
{
    const char *slash = strrchr(name, '/'), *dot = strchr(slash ? slash + 1 : name, '.');

    *key = dot ? (size_t)(dot - name) : strlen(name);
    return dot ? dot + 1 : "";
}

/* "17", white space around it. */
static cvy_status read_label(const char *what, int file, const struct cvy_tar_member *member, int32_t *label)
{
    char text[LABEL_BYTES + 1] = {0};
    int64_t value = 0;
    size_t at = 0, digits = 0;

    if (member->size > LABEL_BYTES)
        return cvy_fail(CVY_BAD_DATA, "%s in %s is no label: a number from 0", cvy_quote(member->name),
                        cvy_quote(what));
    CVY_TRY(cvy_file_read_at(what, file, member->data, text, (size_t)member->size, &at));
    at = strspn(text, " \t\r\n");
    for (; text[at] >= '0' && text[at] <= '9' && value < CVY_MAX_CLASSES; at++, digits++)
        value = value * 10 + (text[at] - '0');
    if (digits == 0 || value >= CVY_MAX_CLASSES || text[at + strspn(text + at, " \t\r\n")] ||
        strlen(text) != member->size)
        return cvy_fail(CVY_BAD_DATA, "%s in %s is no label: a number from 0", cvy_quote(member->name),
                        cvy_quote(what));
    *label = (int32_t)value;
    return CVY_OK;
}

static cvy_status finish_sample(const char *what, const struct open_sample *sample, struct cvy_tar_list *list)
{
    if (!sample->has_image && !sample->has_label) /* notes of other programs */
        return CVY_OK;
    if (!sample->has_label)
        return cvy_fail(CVY_BAD_DATA, "%s has an image %s without a label (cls)", cvy_quote(what),
                        cvy_quote(sample->key));
    if (!sample->has_image)
        return cvy_fail(CVY_BAD_DATA, "%s has a label %s without an image (" CVY_IMAGE_ENDINGS ")", cvy_quote(what),
                        cvy_quote(sample->key));
    if ((list->count & (list->count - 1)) == 0) { /* full at each power of two */
        struct cvy_tar_location *grown = cvy_realloc(list->places, list->count ? 2 * list->count : 1, sizeof *grown);
        if (!grown)
            return cvy_fail_memory(2 * list->count * sizeof *grown, "the list of images");
        list->places = grown;
    }
    list->places[list->count++] = sample->place;
    return CVY_OK;
}

static cvy_status add_member(const char *what, int file, const struct cvy_tar_member *member,
                             struct open_sample *sample)
{
    size_t key;
    const char *kind = split_name(member->name, &key);

    if (cvy_is_image_ending(kind)) {
        if (sample->has_image)
            return cvy_fail(CVY_BAD_DATA, "%s has two images %s", cvy_quote(what), cvy_quote(sample->key));
        if (member->size > max_image)
            return cvy_fail(CVY_BAD_DATA, "%s in %s is too long for an image", cvy_quote(member->name),
                            cvy_quote(what));
        /* Between header and bytes nothing lies. */
        sample->place.header = member->header;
        sample->place.size = (uint32_t)member->size + CVY_TAR_BLOCK;
        sample->has_image = true;
    } else if (strcmp(kind, "cls") == 0) {
        CVY_TRY(read_label(what, file, member, &sample->place.label));
        sample->has_label = true;
    }
    return CVY_OK;
}

static cvy_status scan(const char *what, int file, struct cvy_tar *tar, struct cvy_tar_member *member,
                       struct open_sample *sample, struct cvy_tar_list *list)
{
    bool found;
    size_t key;

    CVY_TRY(cvy_tar_open(tar, what, file));
    for (;;) {
        CVY_TRY(cvy_tar_next(tar, member, &found));
        if (!found)
            break;
        (void)split_name(member->name, &key);
        if (!sample->begun || strlen(sample->key) != key || memcmp(sample->key, member->name, key) != 0) {
            if (sample->begun)
                CVY_TRY(finish_sample(what, sample, list));
            *sample = (struct open_sample){.begun = true};
            memcpy(sample->key, member->name, key);
        }
        CVY_TRY(add_member(what, file, member, sample));
    }
    return sample->begun ? finish_sample(what, sample, list) : CVY_OK;
}

cvy_status cvy_tar_scan(const char *what, int file, struct cvy_tar_list *list)
{
    /* Names make these too large for a stack. */
    struct {
        struct cvy_tar tar;
        struct cvy_tar_member member;
        struct open_sample sample;
    } *parts = cvy_calloc(1, sizeof *parts);

    *list = (struct cvy_tar_list){0};
    if (!parts)
        return cvy_fail_memory(sizeof *parts, "reading an archive");
    const cvy_status status = scan(what, file, &parts->tar, &parts->member, &parts->sample, list);
    cvy_free(parts);
    return status;
}

/* ---- the set ---- */

bool cvy_holds_tars(const char *folder, bool val)
{
    return cvy_holds_part_files(folder, val, ".tar");
}

struct listing {
    const struct cvy_shards *shards;
    struct cvy_tar_list *lists;
    size_t count;
};

static cvy_status read_archive(void *context, void *state, int64_t number)
{
    const struct listing *listing = context;
    const struct cvy_shard *shard = cvy_shard(listing->shards, (size_t)number);
    int file;

    (void)state;
    CVY_TRY(cvy_shard_borrow(shard, &file));
    const cvy_status status = cvy_tar_scan(shard->path, file, &listing->lists[number]);
    cvy_shard_return(shard, file);
    return status;
}

static cvy_status set_samples(struct cvy_dataset *dataset, const char *folder, const struct listing *listing,
                              int32_t *highest)
{
    size_t total = 0, at = 0;

    *highest = 0;
    for (size_t s = 0; s < listing->count; s++)
        total += listing->lists[s].count;
    if (total == 0 || total > INT32_MAX)
        return cvy_fail(CVY_BAD_DATA, "the archives of %s hold %zu images", cvy_quote(folder), total);
    dataset->samples = cvy_arena_alloc(&dataset->arena, total * sizeof *dataset->samples);
    if (!dataset->samples)
        return cvy_fail_memory(total * sizeof *dataset->samples, "the list of images");
    dataset->sample_count = (uint32_t)total;
    for (size_t s = 0; s < listing->count; s++)
        for (size_t i = 0; i < listing->lists[s].count; i++) {
            const struct cvy_tar_location *place = &listing->lists[s].places[i];
            const struct cvy_shard *shard = cvy_shard(listing->shards, s);
            *highest = place->label > *highest ? place->label : *highest;
            dataset->samples[at++] = (struct cvy_sample){.path = shard->path,
                                                         .label = place->label,
                                                         .record_bytes = place->size,
                                                         .record_offset = place->header,
                                                         .shard = shard};
        }
    return CVY_OK;
}

cvy_status cvy_dataset_open_tars(struct cvy_dataset *dataset, const char *folder, bool val, const char *const *classes,
                                 int32_t class_count)
{
    cvy_status status = CVY_OK;
    struct listing listing = {0};
    const struct cvy_parallel work = {.context = &listing, .each = read_archive};
    struct cvy_numbered_classes numbered = {0};
    const char **files = NULL;

    *dataset = (struct cvy_dataset){0};
    CVY_GOTO(cvy_part_files(folder, val, ".tar", &dataset->arena, &files, &listing.count));
    CVY_GOTO(cvy_shards_open(CVY_SHARD_TAR, files, listing.count, &dataset->shards));
    listing.shards = dataset->shards;
    listing.lists = cvy_calloc(listing.count + 1, sizeof *listing.lists);
    if (!listing.lists) {
        status = cvy_fail_memory(listing.count * sizeof *listing.lists, "the list of images");
        goto fail;
    }
    CVY_GOTO(cvy_parallel_run(&work, (int64_t)listing.count, cvy_default_threads()));
    CVY_GOTO(set_samples(dataset, folder, &listing, &numbered.highest));
    CVY_GOTO(cvy_dataset_name_classes(dataset, folder, &numbered, classes, class_count));
    cvy_dataset_sort(dataset);
fail:
    for (size_t s = 0; listing.lists && s < listing.count; s++)
        cvy_free(listing.lists[s].places);
    cvy_free(listing.lists);
    cvy_free(files);
    if (status != CVY_OK)
        cvy_dataset_close(dataset);
    return status;
}
