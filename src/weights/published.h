/* The table of published weights (convoy/pull.h), and finding pulled ones by their names. */
#ifndef CVY_WEIGHTS_PUBLISHED_H
#define CVY_WEIGHTS_PUBLISHED_H

#include "convoy/pull.h"

/* For a path that is no file: *found where it is the name of published weights or of a network that has some, and then
 * `path` becomes their file. CVY_NO_INPUT: they are not pulled yet; the sentence says how. */
CVY_CHECKED cvy_status cvy_published_resolve(const char *name, char *path, size_t size, bool *found);

#endif
