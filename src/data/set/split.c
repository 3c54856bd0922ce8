#include "data/set/split.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"

/* Mark the samples of validation. Samples are sorted by class. */
static cvy_status choose_validation(const struct cvy_dataset *all, double val_split, uint64_t seed, uint32_t *order,
                                    uint8_t *chosen)
{
    for (uint32_t from = 0, end; from < all->sample_count; from = end) {
        const int32_t label = all->samples[from].label;
        for (end = from; end < all->sample_count && all->samples[end].label == label;)
            end++;
        const uint32_t count = end - from;
        if (count < 2 && all->detection)
            return cvy_fail(CVY_BAD_DATA, "%s has one image only, which cannot be split by --val-split",
                            cvy_quote(all->source));
        if (count < 2)
            return cvy_fail(CVY_BAD_DATA, "class %s has one image only, which cannot be split by --val-split",
                            cvy_quote(all->classes[label]));
        double take = rint(count * val_split);
        take = take < 1 ? 1 : take > count - 1 ? count - 1 : take;
        struct cvy_rng rng = cvy_rng_new(seed, CVY_RNG_SPLIT, 0, (uint32_t)label);
        cvy_rng_permutation(&rng, order, count);
        for (uint32_t i = 0; i < (uint32_t)take; i++)
            chosen[from + order[i]] = 1;
    }
    return CVY_OK;
}

/* A number of 64 bits from a text: FNV-1a, whose upper bits change little with the last letters, and a finalizer that
 * mixes them (MurmurHash3's). Part of what a checkpoint means: never changed. */
static uint64_t hash_path(const char *path)
{
    uint64_t hash = 0xcbf29ce484222325U;

    for (; *path; path++)
        hash = (hash ^ (unsigned char)*path) * 0x100000001b3U;
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdU;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53U;
    return hash ^ hash >> 33;
}

/* The part of a path below the folder of the classes, or below that of a list. */
static const char *path_below(const char *path, const char *folder)
{
    const size_t length = strlen(folder);

    if (strncmp(path, folder, length) != 0)
        return path;
    path += length;
    return path + strspn(path, "/");
}

static uint64_t sample_hash(const struct cvy_dataset *all, uint32_t sample, const char *folder)
{
    return hash_path(path_below(all->samples[sample].path, folder));
}

/* The same for one class, whose samples are those from `from` to before `end`. Returns how many are marked. */
static uint32_t choose_by_path(const struct cvy_dataset *all, const char *folder, double share, uint32_t from,
                               uint32_t end, uint8_t *chosen)
{
    const double bound = share * 18446744073709551616.0; /* 2^64 */
    uint32_t lowest = from, highest = from, count = 0;

    if (end - from < 2)
        return 0;
    for (uint32_t i = from; i < end; i++) {
        const uint64_t hash = sample_hash(all, i, folder);
        chosen[i] = (double)hash < bound;
        count += chosen[i];
        lowest = hash < sample_hash(all, lowest, folder) ? i : lowest;
        highest = hash > sample_hash(all, highest, folder) ? i : highest;
    }
    if (count == 0)
        count = chosen[lowest] = 1;
    if (count == end - from) {
        chosen[highest] = 0;
        count--;
    }
    return count;
}

static cvy_status copy_classes(const struct cvy_dataset *from, struct cvy_dataset *to)
{
    const size_t count = (size_t)from->class_count;

    to->class_count = from->class_count;
    to->classes = cvy_arena_alloc(&to->arena, count * sizeof *to->classes);
    if (!to->classes)
        return cvy_fail_memory(count * sizeof *to->classes, "class names");
    for (int32_t c = 0; c < to->class_count; c++)
        CVY_TRY(cvy_dataset_set_class(to, c, from->classes[c]));
    if (!from->category_ids)
        return CVY_OK;
    to->category_ids = cvy_arena_alloc(&to->arena, count * sizeof *to->category_ids);
    if (!to->category_ids)
        return cvy_fail_memory(count * sizeof *to->category_ids, "class names");
    memcpy(to->category_ids, from->category_ids, count * sizeof *to->category_ids);
    return CVY_OK;
}

/* A part being made: the samples whose entry in `chosen` is `which`. */
struct part {
    const struct cvy_dataset *from;
    const uint8_t *chosen;
    uint8_t which;
    struct cvy_dataset *to;
};

static cvy_status copy_samples(const struct part *part)
{
    const struct cvy_dataset *from = part->from;
    struct cvy_dataset *to = part->to;
    size_t count = 0;

    for (uint32_t i = 0; i < from->sample_count; i++)
        count += part->chosen[i] == part->which;
    to->samples = cvy_arena_alloc(&to->arena, count * sizeof *to->samples);
    if (!to->samples)
        return cvy_fail_memory(count * sizeof *to->samples, "the list of images");
    for (uint32_t i = 0; i < from->sample_count; i++) {
        if (part->chosen[i] != part->which)
            continue;
        struct cvy_sample *sample = &to->samples[to->sample_count++];
        *sample = from->samples[i];
        if (sample->shard) /* has the path, and stays */
            continue;
        sample->path = cvy_arena_strdup(&to->arena, sample->path);
        if (!sample->path)
            return cvy_fail_memory(0, "the list of images");
    }
    return CVY_OK;
}

/* The images with their objects, those set aside too. */
static cvy_status copy_images(const struct part *part)
{
    const struct cvy_dataset *from = part->from;
    struct cvy_dataset *to = part->to;
    uint32_t objects = 0, next = 0, first = 0;

    for (uint32_t i = 0; i < from->sample_count; i++)
        if (part->chosen[i] == part->which)
            objects += from->images[i].object_count + from->images[i].excluded_count;
    to->images = cvy_arena_alloc(&to->arena, to->sample_count * sizeof *to->images);
    to->objects = cvy_arena_alloc(&to->arena, ((size_t)objects + 1) * sizeof *to->objects);
    if (!to->images || !to->objects)
        return cvy_fail_memory(objects * sizeof *to->objects, "a list of objects");
    for (uint32_t i = 0; i < from->sample_count; i++) {
        const struct cvy_coco_image *image = &from->images[i];
        if (part->chosen[i] != part->which)
            continue;
        const uint32_t count = image->object_count + image->excluded_count;
        memcpy(to->objects + first, from->objects + image->first_object, count * sizeof *to->objects);
        to->images[next] = *image;
        to->images[next++].first_object = first;
        first += count;
        to->object_count += image->object_count;
    }
    return CVY_OK;
}

/* Places are counted anew, in the order that they had. */
static cvy_status number_places(const struct part *part)
{
    const struct cvy_dataset *from = part->from;
    struct cvy_dataset *to = part->to;
    uint32_t *at = cvy_calloc(from->sample_count, sizeof *at), next = 0,
             sample = 0; /* of each place, + 1; 0: not here */

    to->places = cvy_arena_alloc(&to->arena, to->sample_count * sizeof *to->places);
    if (!at || !to->places) {
        cvy_free(at);
        return cvy_fail_memory(from->sample_count * sizeof *at, "the list of images");
    }
    for (uint32_t i = 0; i < from->sample_count; i++)
        if (part->chosen[i] == part->which)
            at[from->places[i]] = ++sample;
    for (uint32_t place = 0; place < from->sample_count; place++)
        if (at[place] > 0)
            to->places[at[place] - 1] = next++;
    cvy_free(at);
    return CVY_OK;
}

static cvy_status take_part(const struct part *part)
{
    part->to->shards = cvy_shards_share(part->from->shards);
    CVY_TRY(copy_classes(part->from, part->to));
    CVY_TRY(copy_samples(part));
    if (!part->from->detection)
        return CVY_OK;
    part->to->detection = true;
    part->to->source = cvy_arena_strdup(&part->to->arena, part->from->source);
    if (!part->to->source)
        return cvy_fail_memory(strlen(part->from->source), "a path");
    CVY_TRY(copy_images(part));
    return number_places(part);
}

/* Both parts of what `chosen` says. */
static cvy_status take_parts(const struct cvy_dataset *all, const uint8_t *chosen, struct cvy_dataset *train,
                             struct cvy_dataset *val)
{
    CVY_TRY(take_part(&(struct part){all, chosen, 0, train}));
    return take_part(&(struct part){all, chosen, 1, val});
}

cvy_status cvy_dataset_split(const struct cvy_dataset *all, double val_split, uint64_t seed, struct cvy_dataset *train,
                             struct cvy_dataset *val)
{
    cvy_status status = CVY_OK;
    uint32_t *order = cvy_calloc(all->sample_count, sizeof *order);
    uint8_t *chosen = cvy_calloc(all->sample_count, 1);

    *train = *val = (struct cvy_dataset){0};
    if (!order || !chosen) {
        status = cvy_fail_memory(all->sample_count * sizeof *order, "the validation split");
        goto fail;
    }
    CVY_GOTO(choose_validation(all, val_split, seed, order, chosen));
    CVY_GOTO(take_parts(all, chosen, train, val));
fail:
    cvy_free(order);
    cvy_free(chosen);
    if (status != CVY_OK) {
        cvy_dataset_close(train);
        cvy_dataset_close(val);
    }
    return status;
}

cvy_status cvy_dataset_split_by_path(const struct cvy_dataset *all, const char *folder, double share,
                                     struct cvy_dataset *train, struct cvy_dataset *val)
{
    cvy_status status = CVY_OK;
    uint8_t *chosen = NULL;
    uint32_t count = 0;

    *train = *val = (struct cvy_dataset){0};
    if (all->detection || all->shards)
        return cvy_fail(CVY_USAGE, "option --val-split-rule path is for folders and lists of images: %s is none",
                        cvy_quote(folder));
    chosen = cvy_calloc(all->sample_count, 1);
    if (!chosen)
        return cvy_fail_memory(all->sample_count, "the validation split");
    for (uint32_t from = 0, end; from < all->sample_count; from = end) {
        for (end = from; end < all->sample_count && all->samples[end].label == all->samples[from].label;)
            end++;
        count += choose_by_path(all, folder, share, from, end, chosen);
    }
    if (count == 0) {
        status = cvy_fail(CVY_BAD_DATA, "%s has one image of each class only, which leaves none for validation",
                          cvy_quote(folder));
        goto fail;
    }
    CVY_GOTO(take_parts(all, chosen, train, val));
fail:
    cvy_free(chosen);
    if (status != CVY_OK) {
        cvy_dataset_close(train);
        cvy_dataset_close(val);
    }
    return status;
}
