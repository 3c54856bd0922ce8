#include "data/set/dataset.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "data/image/image.h"
#include "data/set/list.h"
#include "data/set/record_set.h"
#include "data/set/split.h"

/* Folders nested deeper than this are taken for a loop of links. (After 40 links the system itself gives up.) */
enum { MAX_DEPTH = 30 };

/* A growing list of texts that live in an arena. */
struct names {
    const char **items;
    size_t count, capacity;
    struct cvy_other_files *others; /* what no decoder reads is counted there; NULL: nowhere */
};

static cvy_status add_name(struct names *names, const char *name)
{
    if (!name)
        return cvy_fail_memory(0, "a list of files");
    if (names->count == names->capacity) {
        const size_t capacity = names->capacity ? names->capacity * 2 : 256;
        const char **items = cvy_realloc(names->items, capacity, sizeof *items);
        if (!items)
            return cvy_fail_memory(capacity * sizeof *items, "a list of files");
        names->items = items;
        names->capacity = capacity;
    }
    names->items[names->count++] = name;
    return CVY_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_names(struct names *names, size_t from)
{
    if (names->count - from > 1)
        qsort(names->items + from, names->count - from, sizeof *names->items, compare_names);
}

static bool is_image_name(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && cvy_is_image_ending(dot + 1);
}

enum entry_kind { ENTRY_OTHER, ENTRY_FILE, ENTRY_FOLDER };

/* What a path is, links followed. A link that leads nowhere counts as a file: an image that is missing is to be named
 * like one that is damaged, not skipped. */
static enum entry_kind kind_of(const char *path, const struct dirent *entry)
{
    struct stat about;
    if (entry->d_type == DT_REG)
        return ENTRY_FILE;
    if (entry->d_type == DT_DIR)
        return ENTRY_FOLDER;
    if (stat(path, &about) != 0)
        return entry->d_type == DT_LNK ? ENTRY_FILE : ENTRY_OTHER;
    return S_ISDIR(about.st_mode) ? ENTRY_FOLDER : S_ISREG(about.st_mode) ? ENTRY_FILE : ENTRY_OTHER;
}

/* Add the entries of `folder` that are of the given kind (files: images only), unsorted, as full paths. */
static cvy_status list_folder(const char *folder, struct cvy_arena *arena, struct names *files, struct names *folders)
{
    cvy_status status = CVY_OK;
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    const char *slash = folder[0] && folder[strlen(folder) - 1] == '/' ? "" : "/";

    if (!listing)
        return cvy_fail_errno(cvy_input_status(errno), "cannot read the folder %s", cvy_quote(folder));
    while (errno = 0, (entry = readdir(listing)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = cvy_arena_printf(arena, "%s%s%s", folder, slash, entry->d_name);
        if (!path) {
            status = cvy_fail_memory(strlen(folder) + strlen(entry->d_name) + 2, "a list of files");
            break;
        }
        const enum entry_kind kind = kind_of(path, entry);
        if (kind == ENTRY_FILE && files && is_image_name(entry->d_name))
            CVY_GOTO(add_name(files, path));
        else if (kind == ENTRY_FILE && files && files->others)
            cvy_other_files_add(files->others, path);
        else if (kind == ENTRY_FOLDER && folders)
            CVY_GOTO(add_name(folders, path));
    }
    if (status == CVY_OK && errno != 0)
        status = cvy_fail_errno(cvy_input_status(errno), "cannot read the folder %s", cvy_quote(folder));
fail:
    closedir(listing);
    return status;
}

/* Every image below `folder`, unsorted. With `lenient`, a folder that cannot be read is added itself, like an image:
 * reading it will say what is wrong. */
static cvy_status walk(const char *folder, int depth, bool lenient, struct cvy_arena *arena, struct names *files)
{
    cvy_status status = CVY_OK;
    struct names folders = {0};

    if (depth > MAX_DEPTH)
        return cvy_fail(CVY_BAD_DATA, "the folders below %s are nested more than %d deep (a loop of links?)",
                        cvy_quote(folder), MAX_DEPTH);
    status = list_folder(folder, arena, files, &folders);
    if (status == CVY_NO_INPUT && lenient)
        status = add_name(files, cvy_arena_strdup(arena, folder));
    for (size_t i = 0; status == CVY_OK && i < folders.count; i++)
        status = walk(folders.items[i], depth + 1, lenient, arena, files);
    cvy_free(folders.items);
    return status;
}

static cvy_status walk_sorted(const char *folder, bool lenient, struct cvy_arena *arena, struct names *files)
{
    const size_t from = files->count;
    CVY_TRY(walk(folder, 0, lenient, arena, files));
    sort_names(files, from);
    return CVY_OK;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static cvy_status check_folder(const char *folder)
{
    struct stat about;
    if (stat(folder, &about) != 0)
        return cvy_fail_open(folder, "the folder ");
    if (!S_ISDIR(about.st_mode))
        return cvy_fail(CVY_NO_INPUT, "%s is not a folder", cvy_quote(folder));
    return CVY_OK;
}

/* ImageNet's validation images, for one, come without folders. */
static cvy_status fail_without_classes(const char *folder, struct cvy_arena *arena)
{
    struct names files = {0};
    const cvy_status status = list_folder(folder, arena, &files, NULL);
    const bool flat = status == CVY_OK && files.count > 0;
    const char *annotations = flat ? cvy_arena_printf(arena, "%s/../annotations", folder) : NULL;

    cvy_free(files.items);
    CVY_TRY(status);
    if (flat && !annotations)
        return cvy_fail_memory(strlen(folder), "a name");
    if (flat && cvy_path_exists(annotations))
        return cvy_fail(CVY_BAD_DATA,
                        "%s holds no class folders, but images, and annotations are beside it: boxes take a detector "
                        "(--arch ssd320)",
                        cvy_quote(folder));
    return cvy_fail(CVY_BAD_DATA, "%s holds no class folders%s", cvy_quote(folder),
                    flat ? ", but images: a list of path<TAB>label lines gives them classes (train --train-list, "
                           "--val-list)"
                         : "");
}

/* The class folders of `folder`, sorted. Comparing full paths sorts as comparing the names does: the rest is equal. */
static cvy_status list_classes(const char *folder, struct cvy_arena *arena, struct names *folders)
{
    CVY_TRY(check_folder(folder));
    CVY_TRY(list_folder(folder, arena, NULL, folders));
    if (folders->count == 0)
        return fail_without_classes(folder, arena);
    if (folders->count > INT32_MAX / 2)
        return cvy_fail(CVY_BAD_DATA, "%s holds too many folders", cvy_quote(folder));
    sort_names(folders, 0);
    return CVY_OK;
}

static cvy_status set_classes(struct cvy_dataset *dataset, const struct names *folders, const char *const *classes,
                              int32_t class_count)
{
    dataset->class_count = classes ? class_count : (int32_t)folders->count;
    dataset->classes = cvy_arena_alloc(&dataset->arena, (size_t)dataset->class_count * sizeof *dataset->classes);
    if (!dataset->classes)
        return cvy_fail_memory((size_t)dataset->class_count * sizeof *dataset->classes, "class names");
    for (int32_t c = 0; c < dataset->class_count; c++)
        CVY_TRY(cvy_dataset_set_class(dataset, c, classes ? classes[c] : last_part(folders->items[c])));
    return CVY_OK;
}

/* The label of a class folder, or -1. */
static int32_t find_class(const struct cvy_dataset *dataset, const char *name)
{
    for (int32_t c = 0; c < dataset->class_count; c++)
        if (strcmp(dataset->classes[c], name) == 0)
            return c;
    return -1;
}

static cvy_status set_samples(struct cvy_dataset *dataset, const struct names *files, const int32_t *labels)
{
    if (files->count > INT32_MAX)
        return cvy_fail(CVY_BAD_DATA, "%zu images are more than a data set may hold", files->count);
    dataset->sample_count = (uint32_t)files->count;
    dataset->samples = cvy_arena_alloc(&dataset->arena, files->count * sizeof *dataset->samples);
    if (!dataset->samples)
        return cvy_fail_memory(files->count * sizeof *dataset->samples, "the list of images");
    for (size_t i = 0; i < files->count; i++)
        dataset->samples[i] = (struct cvy_sample){.path = files->items[i], .label = labels[i]};
    return CVY_OK;
}

static cvy_status fail_no_images(const char *folder, const char *name, const struct cvy_other_files *others)
{
    char text[768];

    return cvy_fail(CVY_BAD_DATA, "class %s of %s has no images (" CVY_IMAGE_ENDINGS ")%s%s", cvy_quote(name),
                    cvy_quote(folder), others->count ? "; " : "", cvy_other_files_describe(others, text, sizeof text));
}

cvy_status cvy_dataset_open(struct cvy_dataset *dataset, const char *folder, const char *const *classes,
                            int32_t class_count)
{
    cvy_status status = CVY_OK;
    struct names folders = {0}, files = {.others = &dataset->others};
    int32_t *labels = NULL;

    if (cvy_path_is_file(folder))
        return cvy_dataset_open_list(dataset, folder, classes, class_count);
    if (cvy_holds_records(folder, false))
        return cvy_dataset_open_records(dataset, folder, false, classes, class_count);
    *dataset = (struct cvy_dataset){0};
    CVY_GOTO(list_classes(folder, &dataset->arena, &folders));
    CVY_GOTO(set_classes(dataset, &folders, classes, class_count));
    for (size_t f = 0; f < folders.count; f++) {
        const char *name = last_part(folders.items[f]);
        const int32_t label = classes ? find_class(dataset, name) : (int32_t)f;
        const size_t from = files.count;
        if (label < 0) {
            status =
                cvy_fail(CVY_BAD_DATA, "class %s of %s is not among the classes of the training data or the weights",
                         cvy_quote(name), cvy_quote(folder));
            goto fail;
        }
        CVY_GOTO(walk_sorted(folders.items[f], false, &dataset->arena, &files));
        if (files.count == from) {
            status = fail_no_images(folder, name, &dataset->others);
            goto fail;
        }
        int32_t *grown = cvy_realloc(labels, files.count, sizeof *labels);
        if (!grown) {
            status = cvy_fail_memory(files.count * sizeof *labels, "labels");
            goto fail;
        }
        labels = grown;
        for (size_t i = from; i < files.count; i++)
            labels[i] = label;
    }
    CVY_GOTO(set_samples(dataset, &files, labels));
    /* Given classes may come in another order than the folders. */
    cvy_dataset_sort(dataset);
fail:
    cvy_free(folders.items);
    cvy_free(files.items);
    cvy_free(labels);
    if (status != CVY_OK)
        cvy_dataset_close(dataset);
    return status;
}

static cvy_status open_split(const char *folder, double val_split, uint64_t seed, struct cvy_dataset *train,
                             struct cvy_dataset *val)
{
    struct cvy_dataset all = {0};
    cvy_status status = cvy_dataset_open(&all, folder, NULL, 0);

    if (status == CVY_OK)
        status = cvy_dataset_split(&all, val_split, seed, train, val);
    if (status == CVY_OK)
        train->others = all.others;
    cvy_dataset_close(&all);
    return status;
}

cvy_status cvy_dataset_open_split(const char *folder, double share, struct cvy_dataset *train, struct cvy_dataset *val)
{
    struct cvy_dataset all = {0};
    char *train_part = cvy_path_join(folder, "train"), *val_part = cvy_path_join(folder, "val");
    const char *root = train_part && cvy_path_is_directory(train_part) ? train_part : folder;
    const bool is_list = cvy_path_is_file(folder);
    cvy_status status = CVY_OK;

    *train = *val = (struct cvy_dataset){0};
    if (!train_part || !val_part) {
        status = cvy_fail_memory(strlen(folder) + 8, "a path");
        goto fail;
    }
    if (!is_list && (cvy_path_is_directory(val_part) || cvy_holds_records(folder, true))) {
        status = cvy_fail(CVY_USAGE,
                          "the images for validation were set aside by their paths (--val-split), and %s has a part "
                          "for validation now: take it away, or begin a new training",
                          cvy_quote(folder));
        goto fail;
    }
    CVY_GOTO(cvy_dataset_open(&all, root, NULL, 0));
    if (is_list) {                              /* paths that are relative in it begin with its folder */
        char *slash = strrchr(train_part, '/'); /* before "train" */
        *slash = '\0';
        slash = strrchr(train_part, '/');
        train_part[slash ? slash - train_part : 0] = '\0';
        root = train_part;
    }
    CVY_GOTO(cvy_dataset_split_by_path(&all, root, share, train, val));
    train->others = all.others;
fail:
    cvy_dataset_close(&all);
    cvy_free(train_part);
    cvy_free(val_part);
    return status;
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* Folders of a data set whose parts have other names, or lie deeper: what is in them are no classes. */
static cvy_status check_parts(const char *folder, const struct names *folders, bool has_train)
{
    static const char *const training[] = {"training", "Train", "TRAIN", NULL};
    static const char *const validation[] = {"valid", "validation", "Val", "VAL", "Valid", "Validation", NULL};

    for (size_t i = 0; i < folders->count; i++) {
        const char *name = last_part(folders->items[i]);
        if (is_one_of(name, validation) || (!has_train && is_one_of(name, training)))
            return cvy_fail(CVY_NO_INPUT,
                            "%s has a folder %s where \"%s\" is looked for: rename it, or make a link of that name",
                            cvy_quote(folder), cvy_quote(name), is_one_of(name, training) ? "train" : "val");
        char *deeper = has_train ? NULL : cvy_path_join(folders->items[i], "train");
        const bool found = deeper && cvy_path_is_directory(deeper);
        cvy_free(deeper);
        if (found)
            return cvy_fail(CVY_NO_INPUT, "%s has no folder \"train\", but %s has one: give that folder",
                            cvy_quote(folder), cvy_quote(folders->items[i]));
    }
    return CVY_OK;
}

cvy_status cvy_dataset_lacks_validation(const char *folder, bool *lacks)
{
    struct cvy_arena arena = {0};
    struct names folders = {0};
    char *train_part = cvy_path_join(folder, "train"), *val_part = cvy_path_join(folder, "val");
    bool has_train;
    cvy_status status = CVY_OK;

    *lacks = false;
    if (!train_part || !val_part) {
        status = cvy_fail_memory(strlen(folder) + 8, "a path");
        goto fail;
    }
    if (!cvy_path_is_directory(folder) || cvy_path_is_directory(val_part) || cvy_holds_records(folder, false) ||
        cvy_holds_records(folder, true))
        goto fail;
    has_train = cvy_path_is_directory(train_part);
    if (has_train && cvy_holds_records(train_part, false))
        goto fail;
    CVY_GOTO(list_folder(folder, &arena, NULL, &folders));
    CVY_GOTO(check_parts(folder, &folders, has_train));
    /* One folder is no two classes: rather a data set that lies deeper, about which opening it says more. */
    *lacks = has_train || folders.count > 1;
fail:
    cvy_free(folders.items);
    cvy_arena_release(&arena);
    cvy_free(train_part);
    cvy_free(val_part);
    return status;
}

static bool is_empty_folder(const char *folder)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    bool empty = listing != NULL;

    while (listing && empty && (entry = readdir(listing)) != NULL)
        empty = entry->d_name[0] == '.';
    if (listing)
        closedir(listing);
    return empty;
}

/* What is missing of a folder that should hold "train" and "val". */
static cvy_status fail_parts(const char *folder, bool has_train, bool has_val)
{
    bool has_classes = false;

    if (!has_train && !has_val && is_empty_folder(folder))
        return cvy_fail(CVY_BAD_DATA, "the folder %s is empty", cvy_quote(folder));
    if (!has_train && !has_val && cvy_holds_records(folder, true))
        return cvy_fail(CVY_NO_INPUT, "%s has files %s for validation, but no files %s to train on", cvy_quote(folder),
                        cvy_records_pattern(folder, true), cvy_records_pattern(folder, false));
    if (!has_train && !has_val)
        CVY_TRY(cvy_dataset_lacks_validation(folder, &has_classes));
    if (!has_train && !has_val && !has_classes)
        return cvy_fail(CVY_NO_INPUT,
                        "%s has neither folders \"train\" and \"val\" nor two class folders or more, of which a part "
                        "could be set aside for validation",
                        cvy_quote(folder));
    if (!has_train && !has_val)
        return cvy_fail(CVY_NO_INPUT,
                        "%s has no folders \"train\" and \"val\" (with class folders directly in it, --val-split 0.2 "
                        "sets a part of the images aside for validation)",
                        cvy_quote(folder));
    if (!has_train)
        return cvy_fail(CVY_NO_INPUT, "%s has no folder \"train\"", cvy_quote(folder));
    return cvy_fail(
        CVY_NO_INPUT,
        "%s has no folder \"val\" (--val-split 0.2 sets a part of the training images aside for validation)",
        cvy_quote(folder));
}

static cvy_status open_pair(const char *folder, const char *train_part, const char *val_part, const char *val_list,
                            double val_split, uint64_t seed, struct cvy_dataset *train, struct cvy_dataset *val)
{
    const bool is_list = cvy_path_is_file(folder), has_train = cvy_path_is_directory(train_part);
    const bool has_val = cvy_path_is_directory(val_part), has_val_list = val_list && val_list[0];
    const char *training = has_train ? train_part : folder;

    if (!is_list)
        CVY_TRY(check_folder(folder));
    if (val_split > 0 && has_val_list)
        return cvy_fail(CVY_USAGE, "options --val-split and --val-list exclude each other");
    if (val_split > 0 && has_val)
        return cvy_fail(CVY_USAGE, "option --val-split: %s is there already, so nothing is to be set aside",
                        cvy_quote(val_part));
    if (val_split > 0 && cvy_holds_records(folder, true))
        return cvy_fail(CVY_USAGE, "option --val-split: %s has files %s, so nothing is to be set aside",
                        cvy_quote(folder), cvy_records_pattern(folder, true));
    if (val_split > 0)
        return open_split(training, val_split, seed, train, val);
    if (has_val_list) {
        CVY_TRY(cvy_dataset_open(train, training, NULL, 0));
        return cvy_dataset_open_list(val, val_list, train->classes, train->class_count);
    }
    if (is_list) { /* a file that is no list says so first */
        CVY_TRY(cvy_dataset_open(train, folder, NULL, 0));
        return cvy_fail(CVY_NO_INPUT,
                        "%s lists the training images only: --val-list FILE names those for validation, or --val-split "
                        "0.2 sets a part aside for it",
                        cvy_quote(folder));
    }
    if (!has_train && !has_val && cvy_holds_records(folder, false))
        return cvy_dataset_open_record_pair(folder, train, val);
    if (!has_train || !has_val)
        return fail_parts(folder, has_train, has_val);
    CVY_TRY(cvy_dataset_open(train, train_part, NULL, 0));
    return cvy_dataset_open(val, val_part, train->classes, train->class_count);
}

cvy_status cvy_dataset_open_training(struct cvy_dataset *dataset, const char *folder)
{
    char *part = cvy_path_join(folder, "train");

    *dataset = (struct cvy_dataset){0};
    if (!part)
        return cvy_fail_memory(strlen(folder) + 8, "a path");
    cvy_status status = cvy_dataset_open(dataset, cvy_path_is_directory(part) ? part : folder, NULL, 0);
    cvy_free(part);
    return status;
}

cvy_status cvy_dataset_open_pair(const char *folder, const char *val_list, double val_split, uint64_t seed,
                                 struct cvy_dataset *train, struct cvy_dataset *val)
{
    *train = *val = (struct cvy_dataset){0};
    if (!(val_split >= 0 && val_split < 1))
        return cvy_fail(CVY_USAGE, "--val-split must be at least 0 and below 1, not %g", val_split);
    char *train_part = cvy_path_join(folder, "train"), *val_part = cvy_path_join(folder, "val");
    cvy_status status = train_part && val_part
                            ? open_pair(folder, train_part, val_part, val_list, val_split, seed, train, val)
                            : cvy_fail_memory(strlen(folder) + 8, "a path");
    cvy_free(train_part);
    cvy_free(val_part);
    if (status != CVY_OK) {
        cvy_dataset_close(train);
        cvy_dataset_close(val);
    }
    return status;
}

cvy_status cvy_list_images(const char *const *inputs, size_t count, struct cvy_arena *arena, const char ***paths,
                           size_t *path_count)
{
    cvy_status status = CVY_OK;
    struct names files = {0};
    struct stat about;

    *paths = NULL;
    *path_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (stat(inputs[i], &about) == 0 && S_ISDIR(about.st_mode))
            CVY_GOTO(walk_sorted(inputs[i], true, arena, &files));
        else
            CVY_GOTO(add_name(&files, cvy_arena_strdup(arena, inputs[i])));
    }
    if (files.count == 0)
        goto fail;
    *paths = cvy_arena_alloc(arena, files.count * sizeof **paths);
    if (!*paths) {
        status = cvy_fail_memory(files.count * sizeof **paths, "a list of files");
        goto fail;
    }
    memcpy(*paths, files.items, files.count * sizeof **paths);
    *path_count = files.count;
fail:
    cvy_free(files.items);
    return status;
}
