#include "data/detection_set.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "data/detection_records.h"
#include "data/listing.h"

/* What the names of a part's files and folders begin with. */
static const char *const train_words[] = {"train", NULL}, *const val_words[] = {"val", NULL};
static const char *const *const part_words[CVY_DETECTION_PARTS] = {train_words, val_words};
/* The folders that a part may be. */
static const char *const train_folders[] = {"train", NULL}, *const val_folders[] = {"val", "valid", NULL};
static const char *const *const part_folders[CVY_DETECTION_PARTS] = {train_folders, val_folders};

/* ---- names ---- */

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_json(const char *name, const void *context)
{
    const char *ending = strrchr(name, '.');

    (void)context;
    return name[0] != '.' && ending && strcmp(ending, ".json") == 0;
}

/* "instances_train2017.json", "train.json": for the words of context. */
static bool is_part_json(const char *name, const void *context)
{
    const char *const *words = context;
    const char *rest = begins_with(name, "instances_") ? name + strlen("instances_") : name;

    for (; is_json(name, NULL) && *words; words++)
        if (begins_with(rest, *words))
            return true;
    return false;
}

static bool is_instances(const char *name, const void *context)
{
    return begins_with(name, "instances_") && is_part_json(name, context);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "train2017" of "DIR/annotations/instances_train2017.json", in the arena. */
static char *stem_of(const char *json, struct cvy_arena *arena)
{
    const char *name = last_part(json);
    char *stem = cvy_arena_strdup(arena, begins_with(name, "instances_") ? name + strlen("instances_") : name);

    if (stem)
        *strrchr(stem, '.') = 0;
    return stem;
}

/* What is before the last slash of a path, in the arena. */
static const char *folder_of(const char *path, struct cvy_arena *arena)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return cvy_arena_strdup(arena, ".");
    return cvy_arena_printf(arena, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

/* ---- one folder ---- */

/* Of several files those whose folder of images is there. */
static size_t keep_with_images(const char *folder, struct cvy_arena *arena, const char **paths, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; count > 1 && i < count; i++) {
        const char *stem = stem_of(paths[i], arena);
        const char *images = stem ? cvy_arena_printf(arena, "%s/%s", folder, stem) : NULL;
        if (images && cvy_path_is_directory(images))
            paths[kept++] = paths[i];
    }
    return kept > 0 ? kept : count;
}

/* Whether one of COCO's lists is named near the beginning of a file. */
static bool looks_like_coco(const char *path)
{
    enum { LOOKED_AT = 1 << 16 };
    static const char *const lists[] = {"\"images\"", "\"annotations\"", "\"categories\""};
    char *text = cvy_calloc(LOOKED_AT, 1);
    FILE *file = fopen(path, "rb");
    const size_t size = text && file ? fread(text, 1, LOOKED_AT, file) : 0;
    bool found = !text; /* reading it will say that memory ran out */

    for (size_t i = 0; size > 0 && i < sizeof lists / sizeof *lists; i++)
        found |= memmem(text, size, lists[i], strlen(lists[i])) != NULL;
    if (file)
        fclose(file);
    cvy_free(text);
    return found;
}

/* Outside of "annotations" a JSON file may be anything. */
static size_t keep_coco(const char *folder, const char **paths, size_t count)
{
    size_t kept = 0;

    if (strcmp(last_part(folder), "annotations") == 0)
        return count;
    for (size_t i = 0; i < count; i++)
        if (looks_like_coco(paths[i]))
            paths[kept++] = paths[i];
    return kept;
}

/* The only wanted file of `folder`; *json is NULL where there is none. `root`: of the whole set. */
static cvy_status find_one(const char *folder, const char *root, bool (*wanted)(const char *name, const void *context),
                           const void *context, struct cvy_arena *arena, const char **json)
{
    cvy_status status = CVY_OK;
    const char **paths = NULL;
    size_t count;

    *json = NULL;
    if (!cvy_path_is_directory(folder))
        return CVY_OK;
    CVY_TRY(cvy_files_in(folder, wanted, context, arena, &paths, &count));
    count = keep_coco(folder, paths, count);
    count = keep_with_images(root, arena, paths, count);
    if (count > 1)
        status = cvy_fail(CVY_BAD_DATA, "%s and %s may both be meant: name the one to be used instead of its folder",
                          cvy_quote(paths[0]), cvy_quote(paths[1]));
    else if (count == 1)
        *json = paths[0];
    cvy_free(paths);
    return status;
}

static cvy_status add_folder(struct cvy_coco_place *place, const char *folder)
{
    int count = 0;

    for (; place->folders[count]; count++)
        if (strcmp(place->folders[count], folder) == 0)
            return CVY_OK;
    if (count == CVY_IMAGE_FOLDERS)
        return cvy_fail(CVY_FAILED, "the images of %s may be in more than %d folders", cvy_quote(place->json),
                        CVY_IMAGE_FOLDERS);
    place->folders[count] = folder;
    return CVY_OK;
}

static cvy_status add_named(const char *root, const char *name, struct cvy_arena *arena, struct cvy_coco_place *place)
{
    const char *direct = cvy_arena_printf(arena, "%s/%s", root, name);
    const char *images = cvy_arena_printf(arena, "%s/images/%s", root, name);

    if (!direct || !images)
        return cvy_fail_memory(strlen(root) + strlen(name), "a path");
    CVY_TRY(add_folder(place, direct));
    return add_folder(place, images);
}

/* Where the images of a file of the set `root` may be: "val2017", "images/val2017", "val", "images/val", "valid",
 * "images/valid", "images", beside the file, and in the set's folder itself. */
static cvy_status list_folders(const char *root, enum cvy_detection_part part, struct cvy_arena *arena,
                               struct cvy_coco_place *place)
{
    const char *stem = stem_of(place->json, arena), *images = cvy_arena_printf(arena, "%s/images", root);
    const char *beside = folder_of(place->json, arena);

    if (!stem || !images || !beside)
        return cvy_fail_memory(strlen(place->json), "a path");
    CVY_TRY(add_named(root, stem, arena, place));
    for (const char *const *name = part_folders[part]; *name; name++)
        CVY_TRY(add_named(root, *name, arena, place));
    CVY_TRY(add_folder(place, images));
    CVY_TRY(add_folder(place, beside));
    return add_folder(place, root);
}

/* The file that the whole of a folder has, where there are no parts. */
static cvy_status find_whole(const char *folder, struct cvy_arena *arena, const char **json)
{
    return find_one(folder, folder, is_json, NULL, arena, json);
}

static cvy_status find_part(const char *root, enum cvy_detection_part part, struct cvy_arena *arena, const char **json)
{
    const char *annotations = cvy_arena_printf(arena, "%s/annotations", root);

    if (!annotations)
        return cvy_fail_memory(strlen(root), "a path");
    CVY_TRY(find_one(annotations, root, is_instances, part_words[part], arena, json));
    if (!*json)
        CVY_TRY(find_one(annotations, root, is_part_json, part_words[part], arena, json));
    for (const char *const *name = part_folders[part]; !*json && *name; name++) {
        const char *folder = cvy_arena_printf(arena, "%s/%s", root, *name);
        if (!folder)
            return cvy_fail_memory(strlen(root), "a path");
        CVY_TRY(find_whole(folder, arena, json));
    }
    return *json ? CVY_OK : find_one(root, root, is_part_json, part_words[part], arena, json);
}

/* The folder of the set that a file belongs to. */
static const char *root_of(const char *json, struct cvy_arena *arena)
{
    const char *folder = folder_of(json, arena);

    return folder && strcmp(last_part(folder), "annotations") == 0 ? folder_of(folder, arena) : folder;
}

cvy_status cvy_coco_find(const char *path, enum cvy_detection_part part, struct cvy_arena *arena,
                         struct cvy_coco_place *place)
{
    const bool is_file = cvy_path_is_file(path) && is_json(last_part(path), NULL);
    const char *root = is_file ? root_of(path, arena) : cvy_arena_strdup(arena, path);

    *place = (struct cvy_coco_place){0};
    if (!root)
        return cvy_fail_memory(strlen(path), "a path");
    if (is_file) {
        place->json = cvy_arena_strdup(arena, path);
        return place->json ? list_folders(root, part, arena, place) : cvy_fail_memory(strlen(path), "a path");
    }
    CVY_TRY(find_part(root, part, arena, &place->json));
    return place->json ? list_folders(root, part, arena, place) : CVY_OK;
}

/* ---- the sets ---- */

bool cvy_holds_detection(const char *path)
{
    struct cvy_arena arena = {0};
    struct cvy_coco_place place;
    bool holds = false;

    for (int part = 0; !holds && part < CVY_DETECTION_PARTS; part++)
        holds = cvy_coco_find(path, (enum cvy_detection_part)part, &arena, &place) != CVY_OK || place.json ||
                cvy_holds_object_records(path, part_words[part][0]);
    cvy_arena_release(&arena);
    return holds;
}

/* The first folder that has one of the first images; else the first that is there. */
static const char *choose_folder(const struct cvy_coco_file *file, const struct cvy_coco_place *place,
                                 struct cvy_arena *arena)
{
    enum { LOOKED_AT = 8 };
    const char *there = NULL;

    for (const char *const *folder = place->folders; *folder; folder++) {
        if (!cvy_path_is_directory(*folder))
            continue;
        there = there ? there : *folder;
        for (size_t i = 0; i < file->image_count && i < LOOKED_AT; i++) {
            const char *image = cvy_arena_printf(arena, "%s/%s", *folder, file->images[i].file_name);
            if (image && cvy_path_exists(image))
                return *folder;
        }
    }
    return there ? there : place->folders[0];
}

static cvy_status open_coco(struct cvy_dataset *dataset, const struct cvy_coco_place *place, struct cvy_arena *arena,
                            const struct cvy_category_rule *rule)
{
    struct cvy_coco_file file;

    CVY_TRY(cvy_coco_file_read(place->json, &file));
    cvy_status status = cvy_dataset_from_coco(dataset, place->json, &file, choose_folder(&file, place, arena), rule);
    cvy_coco_file_release(&file);
    return status;
}

/* The COCO file of a set that has no parts. */
static cvy_status find_undivided(const char *path, enum cvy_detection_part part, struct cvy_arena *arena,
                                 struct cvy_coco_place *place)
{
    struct cvy_coco_place other;

    CVY_TRY(cvy_coco_find(path, part == CVY_DETECTION_TRAIN ? CVY_DETECTION_VAL : CVY_DETECTION_TRAIN, arena, &other));
    if (!other.json)
        CVY_TRY(find_whole(path, arena, &place->json));
    return place->json ? list_folders(path, part, arena, place) : CVY_OK;
}

static cvy_status fail_part(const char *path, enum cvy_detection_part part)
{
    static const char *const files[CVY_DETECTION_PARTS] = {
        "annotations/instances_train*.json or train/*.json",
        "annotations/instances_val*.json or val/*.json",
    };

    if (!cvy_path_exists(path))
        return cvy_fail(CVY_NO_INPUT, "cannot open %s: No such file or directory", cvy_quote(path));
    return cvy_fail(CVY_NO_INPUT, "%s has no COCO file for %s (%s)", cvy_quote(path),
                    part == CVY_DETECTION_TRAIN ? "training" : "validation", files[part]);
}

cvy_status cvy_dataset_open_detection(struct cvy_dataset *dataset, const char *path, enum cvy_detection_part part,
                                      const struct cvy_category_rule *rule)
{
    cvy_status status = CVY_OK;
    struct cvy_arena arena = {0};
    struct cvy_coco_place place;

    *dataset = (struct cvy_dataset){0};
    CVY_GOTO(cvy_coco_find(path, part, &arena, &place));
    if (!place.json && cvy_holds_object_records(path, part_words[part][0])) {
        status = cvy_dataset_open_object_records(dataset, path, part_words[part][0], rule);
        goto fail;
    }
    if (!place.json)
        CVY_GOTO(find_undivided(path, part, &arena, &place));
    status = place.json ? open_coco(dataset, &place, &arena, rule) : fail_part(path, part);
fail:
    cvy_arena_release(&arena);
    return status;
}

struct cvy_category_rule cvy_categories_of(const struct cvy_dataset *dataset)
{
    return (struct cvy_category_rule){
        .names = dataset->classes, .ids = dataset->category_ids, .count = dataset->class_count};
}

static cvy_status has_part(const char *path, enum cvy_detection_part part, bool *has)
{
    struct cvy_arena arena = {0};
    struct cvy_coco_place place;
    const cvy_status status = cvy_coco_find(path, part, &arena, &place);

    *has = status == CVY_OK &&
           ((place.json && !cvy_path_is_file(path)) || cvy_holds_object_records(path, part_words[part][0]));
    cvy_arena_release(&arena);
    return status;
}

static cvy_status open_parts(const char *path, bool coco, bool validate, struct cvy_dataset *train,
                             struct cvy_dataset *val)
{
    const struct cvy_category_rule fresh = {.coco = coco};

    *train = *val = (struct cvy_dataset){0};
    CVY_TRY(cvy_dataset_open_detection(train, path, CVY_DETECTION_TRAIN, &fresh));
    if (!validate)
        return CVY_OK;
    const struct cvy_category_rule known = cvy_categories_of(train);
    const cvy_status status = cvy_dataset_open_detection(val, path, CVY_DETECTION_VAL, &known);
    if (status != CVY_OK)
        cvy_dataset_close(train);
    return status;
}

cvy_status cvy_dataset_open_detection_parts(const char *path, struct cvy_dataset *train, struct cvy_dataset *val)
{
    bool has_val;

    *train = *val = (struct cvy_dataset){0};
    CVY_TRY(has_part(path, CVY_DETECTION_VAL, &has_val));
    return open_parts(path, false, has_val, train, val);
}

cvy_status cvy_dataset_open_detection_pair(const char *path, bool coco, struct cvy_dataset *train,
                                           struct cvy_dataset *val)
{
    bool has;

    *train = *val = (struct cvy_dataset){0};
    for (int part = CVY_DETECTION_PARTS - 1; part >= 0; part--) {
        CVY_TRY(has_part(path, (enum cvy_detection_part)part, &has));
        if (!has)
            return fail_part(path, (enum cvy_detection_part)part);
    }
    return open_parts(path, coco, true, train, val);
}
