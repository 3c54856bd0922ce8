/* A folder of many files that appears whole or not at all. */
#ifndef CVY_DATASET_TOOLS_NEW_FOLDER_H
#define CVY_DATASET_TOOLS_NEW_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "convoy/status.h"

/* What is written is in a temporary folder until cvy_new_folder_commit: in "<path>.tmp.<pid>" where there is no folder
 * of that name, else inside the empty one, which may be a link, the current folder or where a disk is mounted, so that
 * it cannot be replaced. A process that is killed leaves the temporary one. */
struct cvy_new_folder {
    char *path, *temporary;
    const char *const *parts; /* the caller's: the names of what will be in the folder */
    int part_count;
    size_t there; /* so many bytes of `path` named a folder before */
};

/* Makes the temporary folder, and in it the parts, which are folders. CVY_CANNOT_CREATE: `path` is there and not empty,
 * or cannot be made. Nothing is left of a failure. */
CVY_CHECKED cvy_status cvy_new_folder_begin(struct cvy_new_folder *folder, const char *path, const char *const *parts,
                                            int part_count);
/* A folder in one of the parts: "train/circle". */
CVY_CHECKED cvy_status cvy_new_folder_make(const struct cvy_new_folder *folder, const char *name);
/* A new file in one of the parts, by any thread. Not synchronised: thousands of files would take minutes. Messages have
 * the name that it is going to have. CVY_CANNOT_CREATE, CVY_CANNOT_WRITE. */
CVY_CHECKED cvy_status cvy_new_folder_write(const struct cvy_new_folder *folder, const char *name, const void *data,
                                            size_t size);
/* Gives everything its name; ends as cvy_new_folder_abort does in any case. */
CVY_CHECKED cvy_status cvy_new_folder_commit(struct cvy_new_folder *folder);
/* Removes what was made since the begin, the folders above it too. Accepts a zeroed or finished one. */
void cvy_new_folder_abort(struct cvy_new_folder *folder);

#endif
