#include "data/set/class_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

struct named_line {
    const char *name;
    int32_t number; /* from 1 */
};

/* For qsort: by name, then by line. */
static int compare_lines(const void *one, const void *other)
{
    const struct named_line *a = one, *b = other;
    const int order = strcmp(a->name, b->name);

    return order != 0 ? order : (a->number > b->number) - (a->number < b->number);
}

/* Refuses a name that stands in two lines: of two classes no one could say which is meant. Sorts `lines`. */
static cvy_status refuse_twice(const char *path, struct named_line *lines, int32_t count)
{
    const struct named_line *twice = NULL;

    qsort(lines, (size_t)count, sizeof *lines, compare_lines);
    for (int32_t i = 1; i < count; i++)
        if (strcmp(lines[i - 1].name, lines[i].name) == 0 && (!twice || lines[i].number < twice->number))
            twice = &lines[i];
    return twice ? cvy_fail(CVY_BAD_DATA, "%s: lines %d and %d name the same class, %s", cvy_quote(path),
                            (int)twice[-1].number, (int)twice->number, cvy_quote(twice->name))
                 : CVY_OK;
}

/* Splits `text` into `names`, kept in `arena`, and `lines`; empty lines name nothing. */
static cvy_status split_lines(char *text, struct cvy_arena *arena, const char **names, struct named_line *lines,
                              int32_t *count)
{
    int32_t number = 0;

    for (char *line = text, *next; line; line = next) {
        char *end = line + strcspn(line, "\n");

        next = *end ? end + 1 : NULL;
        *end = '\0';
        number++;
        while (end > line && end[-1] == '\r')
            *--end = '\0';
        if (end == line)
            continue;
        names[*count] = cvy_arena_strdup(arena, line);
        if (!names[*count])
            return cvy_fail_memory(strlen(line), "class names");
        lines[*count] = (struct named_line){names[*count], number};
        ++*count;
    }
    return CVY_OK;
}

/* The lines of the file of class names; none where it is missing. */
static cvy_status read_class_file(const char *folder, struct cvy_arena *arena, const char ***names, int32_t *count)
{
    cvy_status status = CVY_OK;
    char *path = cvy_path_join(folder, CVY_CLASS_FILE);
    struct named_line *numbered = NULL;
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
    numbered = cvy_calloc(lines, sizeof *numbered);
    if (!numbered) {
        status = cvy_fail_memory(lines * sizeof *numbered, "class names");
        goto fail;
    }
    CVY_GOTO(split_lines(data, arena, *names, numbered, count));
    CVY_GOTO(refuse_twice(path, numbered, *count));
    if (*count == 0)
        status = cvy_fail(CVY_BAD_DATA, "%s names no class", cvy_quote(path));
fail:
    cvy_free(numbered);
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
        return cvy_fail(CVY_BAD_DATA, "%s has images with the label %d, but its file \"" CVY_CLASS_FILE "\" names %s",
                        cvy_quote(folder), (int)said, cvy_counted(file_count, "class"));
    if (classes && highest >= class_count)
        return cvy_fail(CVY_BAD_DATA, "%s has images with the label %d, but there %s %s", cvy_quote(folder), (int)said,
                        class_count == 1 ? "is" : "are", cvy_counted(class_count, "class"));
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
