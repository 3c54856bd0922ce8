/* Lists the files of a folder whose names match. */
#ifndef CVY_DATA_SET_LISTING_H
#define CVY_DATA_SET_LISTING_H

#include "base/memory.h"
#include "convoy/status.h"

/* Paths FOLDER/name of the regular files (links followed) that `wanted` accepts, sorted bytewise; the texts in the
 * arena, the list freed by the caller. Finding none is not a failure. */
CVY_CHECKED cvy_status cvy_files_in(const char *folder, bool (*wanted)(const char *name, const void *context),
                                    const void *context, struct cvy_arena *arena, const char ***paths, size_t *count);

/* Whether there are any; a folder that cannot be read has none. */
bool cvy_holds_files(const char *folder, bool (*wanted)(const char *name, const void *context), const void *context);

/* The same for files "train-*ENDING" (or, with `val`, "val-*ENDING"), the ending in any case. */
CVY_CHECKED cvy_status cvy_part_files(const char *folder, bool val, const char *ending, struct cvy_arena *arena,
                                      const char ***paths, size_t *count);
bool cvy_holds_part_files(const char *folder, bool val, const char *ending);

#endif
