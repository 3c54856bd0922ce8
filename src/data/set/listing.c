#include "data/set/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

cvy_status cvy_files_in(const char *folder, bool (*wanted)(const char *name, const void *context), const void *context,
                        struct cvy_arena *arena, const char ***out, size_t *out_count)
{
    cvy_status status = CVY_OK;
    const char **paths = NULL;
    size_t count = 0, capacity = 0;
    const struct dirent *entry;
    DIR *listing = opendir(folder);

    *out = NULL;
    *out_count = 0;
    if (!listing)
        return cvy_fail_errno(cvy_input_status(errno), "cannot read the folder %s", cvy_quote(folder));
    while ((entry = readdir(listing)) != NULL) {
        struct stat about;
        if (!wanted(entry->d_name, context) || fstatat(dirfd(listing), entry->d_name, &about, 0) != 0 ||
            !S_ISREG(about.st_mode))
            continue;
        if (count == capacity) {
            const char **grown = cvy_realloc(paths, capacity = capacity ? 2 * capacity : 64, sizeof *grown);
            if (!grown) {
                status = cvy_fail_memory(capacity * sizeof *grown, "a list of files");
                goto fail;
            }
            paths = grown;
        }
        paths[count] = cvy_arena_printf(arena, "%s/%s", folder, entry->d_name);
        if (!paths[count++]) {
            status = cvy_fail_memory(strlen(folder) + sizeof entry->d_name, "a list of files");
            goto fail;
        }
    }
    if (count > 1)
        qsort(paths, count, sizeof *paths, compare_paths);
    *out = paths;
    *out_count = count;
    paths = NULL;
fail:
    cvy_free(paths);
    closedir(listing);
    return status;
}

bool cvy_holds_files(const char *folder, bool (*wanted)(const char *name, const void *context), const void *context)
{
    struct cvy_arena arena = {0};
    const char **files = NULL;
    size_t count = 0;

    if (cvy_path_is_directory(folder) && cvy_files_in(folder, wanted, context, &arena, &files, &count) != CVY_OK)
        count = 0;
    cvy_free(files);
    cvy_arena_release(&arena);
    return count > 0;
}

struct part_name {
    const char *part, *ending;
};

static bool is_part_name(const char *name, const void *context)
{
    const struct part_name *wanted = context;
    const size_t length = strlen(name), part = strlen(wanted->part), ending = strlen(wanted->ending);

    return length > part + ending && strncmp(name, wanted->part, part) == 0 && name[part] == '-' &&
           strcasecmp(name + length - ending, wanted->ending) == 0;
}

cvy_status cvy_part_files(const char *folder, bool val, const char *ending, struct cvy_arena *arena,
                          const char ***paths, size_t *count)
{
    const struct part_name wanted = {val ? "val" : "train", ending};

    return cvy_files_in(folder, is_part_name, &wanted, arena, paths, count);
}

bool cvy_holds_part_files(const char *folder, bool val, const char *ending)
{
    return cvy_holds_files(folder, is_part_name, &(struct part_name){val ? "val" : "train", ending});
}
