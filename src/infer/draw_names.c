#include "infer/draw_names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"

/* ---- names ---- */

/* What follows the folder `input` in `file`; NULL: the file is not below it. */
static const char *below(const char *input, const char *file)
{
    size_t length = strlen(input);

    while (length > 1 && input[length - 1] == '/')
        length--;
    if (strncmp(file, input, length) != 0)
        return NULL;
    if (input[length - 1] != '/' && file[length] != '/')
        return NULL;
    file += length;
    file += strspn(file, "/");
    return *file ? file : NULL;
}

static const char *relative(const char *const *inputs, size_t count, const char *file)
{
    const char *slash = strrchr(file, '/'), *shortest = slash ? slash + 1 : file, *longest = NULL;

    for (size_t i = 0; i < count; i++) {
        const char *rest = strcmp(inputs[i], file) != 0 ? below(inputs[i], file) : NULL;
        if (rest && (!longest || strlen(rest) > strlen(longest)))
            longest = rest;
    }
    return longest ? longest : shortest;
}

struct entry {
    const char *name;
    size_t index;
};

static int by_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    const int order = strcmp(x->name, y->name);

    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* "folder/x.jpg" -> "folder/x-2.jpg". */
static char *numbered(struct cvy_arena *arena, const char *name, size_t number)
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(name, '.');

    if (!dot || (slash && dot < slash))
        dot = name + strlen(name);
    return cvy_arena_printf(arena, "%.*s-%zu%s", (int)(dot - name), name, number, dot);
}

/* Names only grow, so that this ends. */
static cvy_status make_unique(struct entry *entries, size_t count, struct cvy_arena *arena)
{
    for (bool changed = true; changed;) {
        size_t first = 0;
        changed = false;
        qsort(entries, count, sizeof *entries, by_name);
        for (size_t i = 1; i < count; i++) {
            if (strcmp(entries[i].name, entries[first].name) != 0) {
                first = i;
                continue;
            }
            char *name = numbered(arena, entries[first].name, i - first + 1);
            if (!name)
                return cvy_fail_memory(strlen(entries[first].name), "a file name");
            entries[i].name = name;
            changed = true;
        }
    }
    return CVY_OK;
}

/* ---- nothing is lost ---- */

struct identity {
    dev_t device;
    ino_t inode;
};

static int by_identity(const void *a, const void *b)
{
    const struct identity *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return (x->inode > y->inode) - (x->inode < y->inode);
}

static cvy_status check_targets(const char *const *files, const char *const *names, size_t count)
{
    struct identity *known = cvy_calloc(count, sizeof *known);
    cvy_status status = CVY_OK;
    size_t found = 0;
    struct stat info;

    if (!known)
        return cvy_fail_memory(count * sizeof *known, "the list of images");
    for (size_t i = 0; i < count; i++)
        if (stat(files[i], &info) == 0)
            known[found++] = (struct identity){info.st_dev, info.st_ino};
    if (found > 0)
        qsort(known, found, sizeof *known, by_identity);
    for (size_t i = 0; i < count && status == CVY_OK; i++) {
        if (stat(names[i], &info) != 0)
            continue;
        const struct identity target = {info.st_dev, info.st_ino};
        if (found > 0 && bsearch(&target, known, found, sizeof *known, by_identity))
            status = cvy_fail(CVY_USAGE, "drawing to %s would replace that image", cvy_quote(names[i]));
    }
    cvy_free(known);
    return status;
}

cvy_status cvy_draw_names(const char *folder, const char *const *inputs, size_t input_count, const char *const *files,
                          size_t count, struct cvy_arena *arena, const char ***names)
{
    struct entry *entries = cvy_calloc(count + 1, sizeof *entries);
    cvy_status status = CVY_OK;

    *names = cvy_arena_alloc(arena, (count + 1) * sizeof **names);
    if (!entries || !*names) {
        status = cvy_fail_memory(count * sizeof *entries, "the names of the copies");
        goto fail;
    }
    for (size_t i = 0; i < count; i++)
        entries[i] = (struct entry){relative(inputs, input_count, files[i]), i};
    CVY_GOTO(make_unique(entries, count, arena));
    for (size_t i = 0; i < count; i++) {
        char *name = cvy_arena_printf(arena, "%s/%s", folder, entries[i].name);
        if (!name) {
            status = cvy_fail_memory(strlen(folder) + strlen(entries[i].name), "a file name");
            goto fail;
        }
        (*names)[entries[i].index] = name;
    }
    CVY_GOTO(check_targets(files, *names, count));
fail:
    cvy_free(entries);
    return status;
}
