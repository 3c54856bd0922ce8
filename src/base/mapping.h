/* Files mapped for reading, and what happens when one is cut off meanwhile. */
#ifndef CVY_BASE_MAPPING_H
#define CVY_BASE_MAPPING_H

#include <stddef.h>

#include "convoy/status.h"

/* A file mapped for reading. Zero-initialise before mapping; unmap accepts a zeroed one. */
struct cvy_mapping {
    const void *data;
    size_t size;
    struct cvy_mapped_range *range; /* what is watched (mapping.c); NULL: nothing is, as of an empty file */
};
CVY_CHECKED cvy_status cvy_file_map(const char *path, struct cvy_mapping *mapping);
void cvy_file_unmap(struct cvy_mapping *mapping);
/* Advises the system that these bytes of a mapping are not needed soon, so that their pages may be dropped. Ignores
 * bytes outside the mapping. */
void cvy_file_forget(const struct cvy_mapping *mapping, const void *data, size_t bytes);

/* To be asked when the bytes have been read, before anything is made of them that lasts: CVY_BAD_DATA when the file was
 * cut off or written to since it was mapped, or could not be read (cvy_guard_mapped_files; without it such a read ends
 * the process). `what` names the file. */
CVY_CHECKED cvy_status cvy_mapping_check(const struct cvy_mapping *mapping, const char *what);

#endif
