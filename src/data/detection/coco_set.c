#include "data/detection/coco_set.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

enum { MAX_CLASSES = 65535 }; /* the network has 12,804 anchors times as many results */

/* An id and where it is in its list; sorted by id, ids are found and pairs noticed. */
struct key {
    int64_t id;
    size_t index;
};

/* What an annotation belongs to. */
struct resolved {
    uint32_t image; /* of the file; UINT32_MAX: left out */
    uint32_t place; /* among those of the image */
    int32_t slot;
    bool excluded;
};

struct building {
    struct cvy_dataset *dataset;
    const char *json, *folder; /* folder: of the images or records */
    const struct cvy_coco_file *file;
    const struct cvy_category_rule *rule;
    struct key *images, *categories; /* sorted */
    int32_t *slots;                  /* (category_count) in the order of `categories`; 0: none */
    struct resolved *resolved;       /* (annotation_count) in the order of the file */
};

static cvy_status fail_at(const struct building *building, uint64_t at, const char *what, int64_t id)
{
    return cvy_fail(CVY_BAD_DATA, "%s, near byte %llu: %s %lld", cvy_quote(building->json), (unsigned long long)at,
                    what, (long long)id);
}

static int compare_keys(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static const struct key *find_key(const struct key *keys, size_t count, int64_t id)
{
    size_t from = 0;

    while (count > 0) {
        const size_t half = count / 2;
        if (keys[from + half].id < id) {
            from += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return &keys[from];
}

/* Sorts; the index of an entry that has the id of another one before it, else SIZE_MAX. */
static size_t sort_keys(struct key *keys, size_t count)
{
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++)
        if (keys[i].id == keys[i - 1].id)
            return keys[i].index;
    return SIZE_MAX;
}

static struct key *new_keys(size_t count)
{
    return cvy_calloc(count + 1, sizeof(struct key));
}

/* ---- categories ---- */

/* The class that is called so, or else has the id; -1: none. */
static int32_t find_known(const struct cvy_category_rule *rule, const struct cvy_coco_file_category *category)
{
    for (int32_t c = 0; c < rule->count; c++)
        if (rule->ids ? rule->ids[c] == category->id : strcmp(rule->names[c], category->name) == 0)
            return c;
    return -1;
}

static cvy_status choose_slot(const struct building *building, size_t place, int32_t *slot)
{
    const struct cvy_category_rule *rule = building->rule;
    const struct cvy_coco_file_category *category = &building->file->categories[building->categories[place].index];

    *slot = 0;
    if (rule->names) {
        const int32_t known = find_known(rule, category);
        if (known >= 0 && strcmp(rule->names[known], category->name) != 0)
            return cvy_fail(CVY_BAD_DATA, "%s: category %lld is %s, but %s in the training data or the weights",
                            cvy_quote(building->json), (long long)category->id, cvy_quote(category->name),
                            cvy_quote(rule->names[known]));
        *slot = known + 1;
    } else if (!rule->coco) {
        *slot = (int32_t)place + 1;
    } else if (category->id >= 1 && category->id <= CVY_COCO_SLOTS) {
        *slot = (int32_t)category->id;
    } else {
        return fail_at(building, category->at, "COCO has no category", category->id);
    }
    return CVY_OK;
}

static cvy_status name_classes(struct building *building)
{
    struct cvy_dataset *dataset = building->dataset;
    const struct cvy_category_rule *rule = building->rule;
    const size_t count = (size_t)dataset->class_count;

    dataset->classes = cvy_arena_alloc(&dataset->arena, count * sizeof *dataset->classes);
    dataset->category_ids = cvy_arena_alloc(&dataset->arena, count * sizeof *dataset->category_ids);
    if (!dataset->classes || !dataset->category_ids)
        return cvy_fail_memory(count * sizeof *dataset->category_ids, "class names");
    for (size_t p = 0; p < building->file->category_count; p++)
        if (building->slots[p] > 0) {
            const struct cvy_coco_file_category *category = &building->file->categories[building->categories[p].index];
            dataset->category_ids[building->slots[p] - 1] = category->id;
            dataset->classes[building->slots[p] - 1] = cvy_arena_strdup(&dataset->arena, category->name);
        }
    for (size_t c = 0; c < count; c++) {
        if (rule->names) {
            dataset->category_ids[c] = rule->ids ? rule->ids[c] : dataset->category_ids[c];
            dataset->classes[c] = cvy_arena_strdup(&dataset->arena, rule->names[c]);
        } else if (!dataset->classes[c]) { /* an id that the file does not use */
            dataset->category_ids[c] = (int64_t)c + 1;
            dataset->classes[c] = "";
        }
        if (!dataset->classes[c])
            return cvy_fail_memory(0, "class names");
    }
    return CVY_OK;
}

static cvy_status set_classes(struct building *building)
{
    const struct cvy_coco_file *file = building->file;
    const size_t count = file->category_count;

    if (count == 0)
        return cvy_fail(CVY_BAD_DATA, "%s names no categories", cvy_quote(building->json));
    if (count > MAX_CLASSES)
        return cvy_fail(CVY_BAD_DATA, "%s names more than %d categories", cvy_quote(building->json), MAX_CLASSES);
    building->categories = new_keys(count);
    building->slots = cvy_calloc(count, sizeof *building->slots);
    if (!building->categories || !building->slots)
        return cvy_fail_memory(count * sizeof *building->categories, "class names");
    for (size_t i = 0; i < count; i++)
        building->categories[i] = (struct key){file->categories[i].id, i};
    const size_t twice = sort_keys(building->categories, count);
    if (twice != SIZE_MAX)
        return fail_at(building, file->categories[twice].at, "two categories have the id", file->categories[twice].id);
    for (size_t p = 0; p < count; p++)
        CVY_TRY(choose_slot(building, p, &building->slots[p]));
    building->dataset->class_count = building->rule->names  ? building->rule->count
                                     : building->rule->coco ? CVY_COCO_SLOTS
                                                            : (int32_t)count;
    return name_classes(building);
}

/* ---- images ---- */

static cvy_status sort_images(struct building *building)
{
    const struct cvy_coco_file *file = building->file;
    const size_t count = file->image_count;

    if (count == 0)
        return cvy_fail(CVY_BAD_DATA, "%s names no images", cvy_quote(building->json));
    building->images = new_keys(count);
    if (!building->images)
        return cvy_fail_memory(count * sizeof *building->images, "the list of images");
    for (size_t i = 0; i < count; i++)
        building->images[i] = (struct key){file->images[i].id, i};
    const size_t twice = sort_keys(building->images, count);
    return twice == SIZE_MAX
               ? CVY_OK
               : fail_at(building, file->images[twice].at, "two images have the id", file->images[twice].id);
}

/* For qsort: the file's image, and its place in the file. */
struct ordered {
    const struct cvy_coco_file_image *image;
    const char *path; /* of the image's file; of a record, its own name for it */
    uint32_t index;
};

static int compare_ordered(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    const int order = strcmp(x->path, y->path);
    if (order || x->image->record_offset != y->image->record_offset)
        return order ? order : x->image->record_offset < y->image->record_offset ? -1 : 1;
    return (x->image->id > y->image->id) - (x->image->id < y->image->id);
}

/* Whether a name leaves the folder of images by "..". */
static bool leads_out(const char *name)
{
    for (const char *part = name; *part; part += strcspn(part, "/"), part += *part == '/') {
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || !part[2]))
            return true;
    }
    return false;
}

static cvy_status set_path(struct cvy_dataset *dataset, const char *folder, const char *file_name, const char **path)
{
    const bool whole = file_name[0] == '/';
    const char *slash = folder[0] && folder[strlen(folder) - 1] == '/' ? "" : "/";

    *path = cvy_arena_printf(&dataset->arena, "%s%s%s", whole ? "" : folder, whole ? "" : slash, file_name);
    return *path ? CVY_OK : cvy_fail_memory(strlen(folder) + strlen(file_name) + 2, "the list of images");
}

/* Samples in order of their paths. place[i]: the sample of the file's image i. */
static cvy_status set_samples(struct building *building, struct ordered *order, uint32_t *place)
{
    struct cvy_dataset *dataset = building->dataset;
    const size_t count = building->file->image_count;

    dataset->samples = cvy_arena_alloc(&dataset->arena, count * sizeof *dataset->samples);
    dataset->images = cvy_arena_alloc(&dataset->arena, count * sizeof *dataset->images);
    dataset->places = cvy_arena_alloc(&dataset->arena, count * sizeof *dataset->places);
    if (!dataset->samples || !dataset->images || !dataset->places)
        return cvy_fail_memory(count * sizeof *dataset->images, "the list of images");
    dataset->sample_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        const struct cvy_coco_file_image *image = &building->file->images[i];

        order[i] = (struct ordered){image, image->file_name, (uint32_t)i};
        if (image->shard)
            continue;
        if (leads_out(image->file_name))
            return fail_at(building, image->at, "a file_name has a part \"..\": image", image->id);
        CVY_TRY(set_path(dataset, building->folder, image->file_name, &order[i].path));
    }
    qsort(order, count, sizeof *order, compare_ordered);
    for (size_t s = 0; s < count; s++) {
        const struct cvy_coco_file_image *image = order[s].image;
        place[order[s].index] = (uint32_t)s;
        struct cvy_sample *sample = &dataset->samples[s];
        sample->record_bytes = image->record_bytes;
        sample->record_offset = image->record_offset;
        sample->shard = image->shard;
        sample->path = image->shard ? image->shard->path : order[s].path;
        dataset->images[s] = (struct cvy_coco_image){.id = image->id, .width = image->width, .height = image->height};
        dataset->places[s] = order[s].index;
    }
    return CVY_OK;
}

/* ---- objects ---- */

/* CVY_BOX_KINDS: nothing. */
static enum cvy_odd_kind what_is_odd(const struct cvy_coco_file_image *image,
                                     const struct cvy_coco_file_annotation *annotation)
{
    const double *bbox = annotation->bbox, right = bbox[0] + bbox[2], bottom = bbox[1] + bbox[3];
    bool finite = isfinite(annotation->area);

    for (int i = 0; i < 4; i++)
        finite &= isfinite(bbox[i]);
    if (!finite)
        return CVY_BOX_NOT_FINITE;
    if (!(bbox[2] > 0 && bbox[3] > 0))
        return CVY_BOX_EMPTY;
    /* Who wrote the records has left out what is outside; their shares of the image are rounded. */
    if (image->shard || (right <= image->width && bottom <= image->height && right > 0 && bottom > 0))
        return CVY_BOX_KINDS;
    return CVY_BOX_OUTSIDE;
}

/* Count an odd object and, where there is room, list it. */
static cvy_status note_odd(const struct building *building, const struct cvy_coco_file_image *image,
                           const struct cvy_coco_file_annotation *annotation, enum cvy_odd_kind kind)
{
    struct cvy_dataset *dataset = building->dataset;
    struct cvy_odd_boxes *odd = &dataset->odd;

    odd->count[kind]++;
    if (!odd->listed) {
        odd->listed = cvy_arena_alloc(&dataset->arena, CVY_ODD_LISTED * sizeof *odd->listed);
        if (!odd->listed)
            return cvy_fail_memory(CVY_ODD_LISTED * sizeof *odd->listed, "a list of objects");
    }
    if (odd->listed_count < CVY_ODD_LISTED) {
        struct cvy_odd_box *box = &odd->listed[odd->listed_count++];
        *box = (struct cvy_odd_box){.kind = kind, .at = annotation->at, .image_id = image->id};
        memcpy(box->bbox, annotation->bbox, sizeof box->bbox);
        box->file = image->shard ? image->shard->path : NULL;
    }
    return CVY_OK;
}

/* Say once what was left out. */
static void report_odd_boxes(const struct cvy_dataset *dataset, const char *what)
{
    const int64_t *count = dataset->odd.count;
    const struct cvy_odd_box *first = dataset->odd.listed;
    char more[64] = "";

    if (count[CVY_BOX_EMPTY] + count[CVY_BOX_OUTSIDE] + count[CVY_BOX_NOT_FINITE] == 0)
        return;
    if (count[CVY_BOX_NOT_FINITE] > 0)
        snprintf(more, sizeof more, " and %lld not finite", (long long)count[CVY_BOX_NOT_FINITE]);
    cvy_log(CVY_LOG_WARNING,
            "%s: %s without width or height and %lld beyond their images%s are left out of training; the first "
            "is near byte %llu%s%s",
            cvy_quote(what), cvy_counted(count[CVY_BOX_EMPTY], "box"), (long long)count[CVY_BOX_OUTSIDE], more,
            (unsigned long long)first->at, first->file ? " of " : "", first->file ? cvy_quote(first->file) : "");
}

/* What each annotation belongs to. */
static cvy_status resolve(struct building *building, size_t i)
{
    const struct cvy_coco_file *file = building->file;
    const struct cvy_coco_file_annotation *annotation = &file->annotations[i];
    struct resolved *resolved = &building->resolved[i];
    const struct key *image = find_key(building->images, file->image_count, annotation->image_id);
    const struct key *category = find_key(building->categories, file->category_count, annotation->category_id);

    if (image == building->images + file->image_count || image->id != annotation->image_id)
        return fail_at(building, annotation->at, "an annotation is of an unknown image,", annotation->image_id);
    if (category == building->categories + file->category_count || category->id != annotation->category_id)
        return fail_at(building, annotation->at, "an annotation is of an unknown category,", annotation->category_id);
    resolved->slot = building->slots[category - building->categories];
    if (resolved->slot == 0)
        return cvy_fail(CVY_BAD_DATA,
                        "%s, near byte %llu: category %lld, %s, is not among the classes of the training data or the "
                        "weights",
                        cvy_quote(building->json), (unsigned long long)annotation->at, (long long)category->id,
                        cvy_quote(file->categories[category->index].name));
    const struct cvy_coco_file_image *of = &file->images[image->index];
    const enum cvy_odd_kind odd = what_is_odd(of, annotation);
    resolved->image = odd == CVY_BOX_NOT_FINITE ? UINT32_MAX : (uint32_t)image->index;
    resolved->excluded = odd != CVY_BOX_KINDS;
    return odd == CVY_BOX_KINDS ? CVY_OK : note_odd(building, of, annotation, odd);
}

static cvy_status check_ids(const struct building *building)
{
    const struct cvy_coco_file *file = building->file;
    struct key *keys = new_keys(file->annotation_count);
    size_t count = 0;

    if (!keys)
        return cvy_fail_memory(file->annotation_count * sizeof *keys, "a list of objects");
    for (size_t i = 0; i < file->annotation_count; i++)
        if (file->annotations[i].has_id)
            keys[count++] = (struct key){file->annotations[i].id, i};
    const size_t twice = sort_keys(keys, count);
    cvy_free(keys);
    return twice != SIZE_MAX ? fail_at(building, file->annotations[twice].at, "two annotations have the id",
                                       file->annotations[twice].id)
                             : CVY_OK;
}

/* Count the objects of each image, and say where in the list they begin. */
static size_t count_objects(struct building *building, const uint32_t *place)
{
    struct cvy_dataset *dataset = building->dataset;
    size_t all = 0;

    for (size_t i = 0; i < building->file->annotation_count; i++) {
        struct resolved *resolved = &building->resolved[i];
        if (resolved->image == UINT32_MAX)
            continue;
        struct cvy_coco_image *image = &dataset->images[place[resolved->image]];
        resolved->place = image->object_count + image->excluded_count;
        *(resolved->excluded ? &image->excluded_count : &image->object_count) += 1;
        dataset->object_count += !resolved->excluded;
        all++;
    }
    for (uint32_t s = 1; s < dataset->sample_count; s++) {
        const struct cvy_coco_image *before = &dataset->images[s - 1];
        dataset->images[s].first_object = before->first_object + before->object_count + before->excluded_count;
    }
    return all;
}

/* Objects image by image, in the order of the file within each; then those of the image that are set aside. */
static cvy_status set_objects(struct building *building, const uint32_t *place)
{
    struct cvy_dataset *dataset = building->dataset;
    const size_t all = count_objects(building, place);
    uint32_t *done = cvy_calloc(2 * (size_t)dataset->sample_count, sizeof *done); /* of each image: used, aside */

    dataset->objects = cvy_arena_alloc(&dataset->arena, (all + 1) * sizeof *dataset->objects);
    if (!done || !dataset->objects) {
        cvy_free(done);
        return cvy_fail_memory(all * sizeof *dataset->objects, "a list of objects");
    }
    for (size_t i = 0; i < building->file->annotation_count; i++) {
        const struct cvy_coco_file_annotation *from = &building->file->annotations[i];
        const struct resolved *resolved = &building->resolved[i];
        if (resolved->image == UINT32_MAX)
            continue;
        const uint32_t sample = place[resolved->image];
        const struct cvy_coco_image *image = &dataset->images[sample];
        const uint32_t first = image->first_object + (resolved->excluded ? image->object_count : 0);
        struct cvy_coco_object *object = &dataset->objects[first + done[2 * (size_t)sample + resolved->excluded]++];
        *object = (struct cvy_coco_object){
            .area = from->area, .slot = resolved->slot, .place = resolved->place, .crowd = from->crowd};
        memcpy(object->bbox, from->bbox, sizeof object->bbox);
    }
    cvy_free(done);
    return CVY_OK;
}

static cvy_status build(struct building *building)
{
    cvy_status status = CVY_OK;
    const size_t images = building->file->image_count, annotations = building->file->annotation_count;
    struct ordered *order = NULL;
    uint32_t *place = NULL;

    building->dataset->source = cvy_arena_strdup(&building->dataset->arena, building->json);
    if (!building->dataset->source)
        return cvy_fail_memory(strlen(building->json), "a path");
    CVY_TRY(set_classes(building));
    CVY_TRY(sort_images(building));
    CVY_TRY(check_ids(building));
    building->resolved = cvy_calloc(annotations + 1, sizeof *building->resolved);
    order = cvy_calloc(images, sizeof *order);
    place = cvy_calloc(images, sizeof *place);
    if (!building->resolved || !order || !place) {
        status =
            cvy_fail_memory(images * sizeof *order + annotations * sizeof *building->resolved, "a list of objects");
        goto fail;
    }
    for (size_t i = 0; i < annotations; i++)
        CVY_GOTO(resolve(building, i));
    CVY_GOTO(set_samples(building, order, place));
    CVY_GOTO(set_objects(building, place));
fail:
    cvy_free(order);
    cvy_free(place);
    return status;
}

cvy_status cvy_dataset_from_coco(struct cvy_dataset *dataset, const char *json, const struct cvy_coco_file *file,
                                 const char *folder, const struct cvy_category_rule *rule)
{
    struct building building = {.dataset = dataset, .json = json, .folder = folder, .file = file, .rule = rule};

    *dataset = (struct cvy_dataset){.detection = true};
    cvy_status status = build(&building);
    if (status == CVY_OK)
        report_odd_boxes(dataset, json);
    else
        cvy_dataset_close(dataset);
    cvy_free(building.images);
    cvy_free(building.categories);
    cvy_free(building.slots);
    cvy_free(building.resolved);
    return status;
}

cvy_status cvy_dataset_open_coco(struct cvy_dataset *dataset, const char *json, const char *folder,
                                 const struct cvy_category_rule *rule)
{
    struct cvy_coco_file file;

    *dataset = (struct cvy_dataset){0};
    CVY_TRY(cvy_coco_file_read(json, &file));
    cvy_status status = cvy_dataset_from_coco(dataset, json, &file, folder, rule);
    cvy_coco_file_release(&file);
    return status;
}
