#include "data/detection/detection_set.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "data/detection/detection_records.h"
#include "data/set/listing.h"
#include "data/set/split.h"

/* What the names of a part's files and folders begin with. */
static const char *const train_words[] = {"train", NULL}, *const val_words[] = {"val", NULL};
static const char *const *const part_words[CVY_DETECTION_PARTS] = {train_words, val_words};
/* The folders that a part may be. */
static const char *const train_folders[] = {"train", NULL}, *const val_folders[] = {"val", "valid", NULL};
static const char *const *const part_folders[CVY_DETECTION_PARTS] = {train_folders, val_folders};

/* The COCO file of a part, and the folders where its images may be, the likeliest first; a NULL ends them. */
enum { IMAGE_FOLDERS = 9 };
struct location {
    const char *json; /* NULL: there is none */
    const char *folders[IMAGE_FOLDERS + 1];
};

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

/* Among several files, those whose image folder exists. */
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

/* Whether a text has the key, and a list after it. */
static bool has_list(const char *text, const char *key)
{
    const char *at = text;

    while ((at = strstr(at, key)) != NULL) {
        static const char space[] = " \t\r\n";
        at += strlen(key);
        at += strspn(at, space);
        if (*at == ':' && at[1 + strspn(at + 1, space)] == '[')
            return true;
    }
    return false;
}

/* Whether one of COCO's lists begins near the beginning of a file. */
static bool looks_like_coco(const char *path)
{
    enum { INSPECTED = 1 << 16 };
    static const char *const lists[] = {"\"images\"", "\"annotations\"", "\"categories\""};
    char *text = cvy_calloc(INSPECTED + 1, 1);
    FILE *file = fopen(path, "rb");
    bool found = !text; /* reading it will say that memory ran out */

    if (text && file)
        text[fread(text, 1, INSPECTED, file)] = 0;
    for (size_t i = 0; text && i < sizeof lists / sizeof *lists; i++)
        found |= has_list(text, lists[i]);
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

static cvy_status add_folder(struct location *place, const char *folder)
{
    int count = 0;

    for (; place->folders[count]; count++)
        if (strcmp(place->folders[count], folder) == 0)
            return CVY_OK;
    if (count == IMAGE_FOLDERS)
        return cvy_fail(CVY_FAILED, "the images of %s may be in more than %d folders", cvy_quote(place->json),
                        IMAGE_FOLDERS);
    place->folders[count] = folder;
    return CVY_OK;
}

static cvy_status add_named(const char *root, const char *name, struct cvy_arena *arena, struct location *place)
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
                               struct location *place)
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
        CVY_TRY(find_one(folder, folder, is_json, NULL, arena, json));
    }
    return *json ? CVY_OK : find_one(root, root, is_part_json, part_words[part], arena, json);
}

/* The folder of the set that a file belongs to. */
static const char *root_of(const char *json, struct cvy_arena *arena)
{
    const char *folder = folder_of(json, arena);

    return folder && strcmp(last_part(folder), "annotations") == 0 ? folder_of(folder, arena) : folder;
}

/* `path`: a folder, or the COCO file itself. Texts live in the arena. CVY_BAD_DATA: there are several such files. */
static cvy_status locate(const char *path, enum cvy_detection_part part, struct cvy_arena *arena,
                         struct location *place)
{
    const bool is_file = cvy_path_is_file(path) && is_json(last_part(path), NULL);
    const char *root = is_file ? root_of(path, arena) : cvy_arena_strdup(arena, path);

    *place = (struct location){0};
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

/* The COCO file that the whole of a folder has, which has none for either part. */
static cvy_status find_undivided(const char *path, struct cvy_arena *arena, const char **json)
{
    const char *annotations = cvy_arena_printf(arena, "%s/annotations", path);
    struct location place;

    *json = NULL;
    for (int part = 0; part < CVY_DETECTION_PARTS; part++) {
        CVY_TRY(locate(path, (enum cvy_detection_part)part, arena, &place));
        if (place.json)
            return CVY_OK;
    }
    if (!annotations)
        return cvy_fail_memory(strlen(path), "a path");
    CVY_TRY(find_one(annotations, path, is_json, NULL, arena, json));
    return *json ? CVY_OK : find_one(path, path, is_json, NULL, arena, json);
}

/* A folder with classes in "train" and "val" may hold any file beside them. */
static bool holds_undivided(const char *path, struct cvy_arena *arena)
{
    const char *json;

    for (int part = 0; part < CVY_DETECTION_PARTS; part++) {
        const char *folder = cvy_arena_printf(arena, "%s/%s", path, part_words[part][0]);
        if (!folder || cvy_path_is_directory(folder))
            return false;
    }
    return find_undivided(path, arena, &json) != CVY_OK || json;
}

cvy_status cvy_find_detection(const char *path, bool *holds)
{
    struct cvy_arena arena = {0};
    struct location place;
    cvy_status status = CVY_OK;

    *holds = false;
    for (int part = 0; !*holds && part < CVY_DETECTION_PARTS; part++) {
        status = locate(path, (enum cvy_detection_part)part, &arena, &place);
        *holds = status != CVY_OK || place.json || cvy_holds_object_records(path, part_words[part][0]);
    }
    *holds = *holds || holds_undivided(path, &arena);
    cvy_arena_release(&arena);
    return status == CVY_NO_MEMORY ? status : CVY_OK; /* other errors are those of whoever opens it */
}

bool cvy_holds_detection(const char *path)
{
    bool holds;

    return cvy_find_detection(path, &holds) != CVY_OK || holds;
}

/* The first folder that has one of the first images; else the first that is there. */
static const char *choose_folder(const struct cvy_coco_file *file, const struct location *place,
                                 struct cvy_arena *arena)
{
    enum { INSPECTED = 8 };
    const char *there = NULL;

    for (const char *const *folder = place->folders; *folder; folder++) {
        if (!cvy_path_is_directory(*folder))
            continue;
        there = there ? there : *folder;
        for (size_t i = 0; i < file->image_count && i < INSPECTED; i++) {
            const char *image = cvy_arena_printf(arena, "%s/%s", *folder, file->images[i].file_name);
            if (image && cvy_path_exists(image))
                return *folder;
        }
    }
    return there ? there : place->folders[0];
}

static cvy_status open_coco(struct cvy_dataset *dataset, const struct location *place, struct cvy_arena *arena,
                            const struct cvy_category_rule *rule)
{
    struct cvy_coco_file file;

    CVY_TRY(cvy_coco_file_read(place->json, &file));
    cvy_status status = cvy_dataset_from_coco(dataset, place->json, &file, choose_folder(&file, place, arena), rule);
    cvy_coco_file_release(&file);
    return status;
}

/* `remedy`: what else can be done. */
static cvy_status fail_part(const char *path, enum cvy_detection_part part, const char *remedy)
{
    static const char *const files[CVY_DETECTION_PARTS] = {
        "annotations/instances_train*.json or train/*.json",
        "annotations/instances_val*.json or val/*.json",
    };

    if (!cvy_path_exists(path))
        return cvy_fail(CVY_NO_INPUT, "cannot open %s: No such file or directory", cvy_quote(path));
    return cvy_fail(CVY_NO_INPUT, "%s has no COCO file for %s, %s%s", cvy_quote(path),
                    part == CVY_DETECTION_TRAIN ? "training" : "validation", files[part], remedy);
}

cvy_status cvy_dataset_open_detection(struct cvy_dataset *dataset, const char *path, enum cvy_detection_part part,
                                      const struct cvy_category_rule *rule)
{
    cvy_status status = CVY_OK;
    struct cvy_arena arena = {0};
    struct location place;

    *dataset = (struct cvy_dataset){0};
    CVY_GOTO(locate(path, part, &arena, &place));
    if (!place.json && cvy_holds_object_records(path, part_words[part][0])) {
        status = cvy_dataset_open_object_records(dataset, path, part_words[part][0], rule);
        goto fail;
    }
    if (!place.json) {
        CVY_GOTO(find_undivided(path, &arena, &place.json));
        if (place.json)
            CVY_GOTO(list_folders(path, part, &arena, &place));
    }
    status = place.json ? open_coco(dataset, &place, &arena, rule) : fail_part(path, part, "");
fail:
    cvy_arena_release(&arena);
    return status;
}

struct cvy_category_rule cvy_categories_of(const struct cvy_dataset *dataset)
{
    return (struct cvy_category_rule){
        .names = dataset->classes, .ids = dataset->category_ids, .count = dataset->class_count};
}

bool cvy_holds_detection_part(const char *path, enum cvy_detection_part part)
{
    struct cvy_arena arena = {0};
    struct location place;
    const bool has = !cvy_path_is_file(path) && (locate(path, part, &arena, &place) != CVY_OK || place.json ||
                                                 cvy_holds_object_records(path, part_words[part][0]));

    cvy_arena_release(&arena);
    return has;
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
    return open_parts(path, false, cvy_holds_detection_part(path, CVY_DETECTION_VAL), train, val);
}

cvy_status cvy_dataset_split_detection(const char *path, const struct cvy_category_rule *rule, double val_split,
                                       uint64_t seed, struct cvy_dataset *train, struct cvy_dataset *val)
{
    struct cvy_dataset all;

    *train = *val = (struct cvy_dataset){0};
    CVY_TRY(cvy_dataset_open_detection(&all, path, CVY_DETECTION_TRAIN, rule));
    const cvy_status status = cvy_dataset_split(&all, val_split, seed, train, val);
    cvy_dataset_close(&all);
    return status;
}

cvy_status cvy_dataset_open_detection_pair(const char *path, bool coco, double val_split, uint64_t seed,
                                           struct cvy_dataset *train, struct cvy_dataset *val)
{
    const bool has_val = cvy_holds_detection_part(path, CVY_DETECTION_VAL);
    const struct cvy_category_rule fresh = {.coco = coco};

    *train = *val = (struct cvy_dataset){0};
    if (!(val_split >= 0 && val_split < 1))
        return cvy_fail(CVY_USAGE, "--val-split must be at least 0 and below 1, not %g", val_split);
    if (val_split > 0 && has_val)
        return cvy_fail(CVY_USAGE, "option --val-split: %s has a part for validation, so nothing is to be set aside",
                        cvy_quote(path));
    if (val_split > 0)
        return cvy_dataset_split_detection(path, &fresh, val_split, seed, train, val);
    if (!has_val)
        return fail_part(path, CVY_DETECTION_VAL, " (--val-split 0.2 sets a part of the images aside for it)");
    if (!cvy_holds_detection_part(path, CVY_DETECTION_TRAIN))
        return fail_part(path, CVY_DETECTION_TRAIN, "");
    return open_parts(path, coco, true, train, val);
}
