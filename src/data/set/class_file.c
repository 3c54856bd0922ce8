#include "data/set/class_file.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

/* The lines of the file of class names; none where it is missing. */
static cvy_status read_class_file(const char *folder, struct cvy_arena *arena, const char ***names, int32_t *count)
{
    cvy_status status = CVY_OK;
    char *path = cvy_path_join(folder, CVY_CLASS_FILE), *rest;
    void *data = NULL;
    size_t size;

    *names = NULL;
    *count = 0;
    if (!path)
        return cvy_fail_memory(strlen(folder), "a path");
    if (!cvy_path_exists(path))
        goto fail;
    CVY_GOTO(cvy_file_read(path, (size_t)256 << 20, &data, &size));
    size_t lines = 1;
    for (const char *c = data; (c = strchr(c, '\n')) != NULL; c++)
        lines++;
    *names = lines <= CVY_MAX_CLASSES + 1 ? cvy_arena_alloc(arena, lines * sizeof **names) : NULL;
    if (!*names) {
        status = cvy_fail(CVY_BAD_DATA, "%s holds too many lines", cvy_quote(path));
        goto fail;
    }
    for (char *line = strtok_r(data, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        (*names)[*count] = cvy_arena_strdup(arena, line);
        if (!(*names)[(*count)++]) {
            status = cvy_fail_memory(strlen(line), "class names");
            goto fail;
        }
    }
    if (*count == 0)
        status = cvy_fail(CVY_BAD_DATA, "%s names no class", cvy_quote(path));
fail:
    cvy_free(data);
    cvy_free(path);
    return status;
}

/* What the set calls class `c`, or the class file; NULL: nothing is said. */
static const char *own_name(const struct cvy_numbered_classes *numbered, const char *const *file_names,
                            int32_t file_count, int32_t c)
{
    if (file_count > 0 || !numbered->name)
        return c < file_count ? file_names[c] : NULL;
    return numbered->name(numbered->context, c);
}

cvy_status cvy_dataset_name_classes(struct cvy_dataset *dataset, const char *folder,
                                    const struct cvy_numbered_classes *numbered, const char *const *classes,
                                    int32_t class_count)
{
    const char **file_names;
    int32_t file_count;
    const int32_t highest = numbered->highest, said = highest + numbered->first;
    char number[16];

    CVY_TRY(read_class_file(folder, &dataset->arena, &file_names, &file_count));
    if (file_count > 0 && highest >= file_count)
        return cvy_fail(CVY_BAD_DATA,
                        "%s has images with the label %d, but its file \"" CVY_CLASS_FILE "\" names %d classes",
                        cvy_quote(folder), (int)said, (int)file_count);
    if (classes && highest >= class_count)
        return cvy_fail(CVY_BAD_DATA, "%s has images with the label %d, but there are %d classes", cvy_quote(folder),
                        (int)said, (int)class_count);
    dataset->class_count = classes ? class_count : file_count > 0 ? file_count : highest + 1;
    dataset->classes = cvy_arena_alloc(&dataset->arena, (size_t)dataset->class_count * sizeof *dataset->classes);
    if (!dataset->classes)
        return cvy_fail_memory((size_t)dataset->class_count * sizeof *dataset->classes, "class names");
    for (int32_t c = 0; c < dataset->class_count; c++) {
        const char *name = own_name(numbered, file_names, file_count, c);
        if (classes && name && strcmp(name, classes[c]) != 0)
            return cvy_fail(CVY_BAD_DATA, "class %d of %s is %s, but %s in the training data or the weights", (int)c,
                            cvy_quote(folder), cvy_quote(name), cvy_quote(classes[c]));
        name = classes ? classes[c] : name;
        snprintf(number, sizeof number, "%d", (int)c);
        CVY_TRY(cvy_dataset_set_class(dataset, c, name ? name : number));
    }
    return CVY_OK;
}
