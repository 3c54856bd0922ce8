/* Output names for copies of images in one folder. */
#ifndef CVY_INFER_DRAW_NAMES_H
#define CVY_INFER_DRAW_NAMES_H

#include "base/memory.h"
#include "convoy/status.h"

/* names[i]: path of the copy of files[i], in the arena. A file keeps the path that it has below the folder among
 * `inputs` it was found in, or else its own name; of several equal ones the later ones get numbers. CVY_USAGE: a copy
 * would take the place of one of the files. CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_draw_names(const char *folder, const char *const *inputs, size_t input_count,
                                      const char *const *files, size_t count, struct cvy_arena *arena,
                                      const char ***names);

#endif
