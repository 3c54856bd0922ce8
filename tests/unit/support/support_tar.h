/* Tar archives for tests, made in memory. */
#ifndef SUPPORT_TAR_H
#define SUPPORT_TAR_H

#include "base/memory.h"
#include "data/set/dataset.h"

/* A member of this kind ('0': a file) with its bytes, padded to blocks; `size_field` NULL: as it is. The checksum fits.
 */
void support_tar_add(struct cvy_text *tar, char kind, const char *name, const void *data, size_t size,
                     const char *size_field);
/* The blocks that end it. */
void support_tar_end(struct cvy_text *tar);
/* The set as the archives FOLDER/NAME-0.tar and NAME-1.tar, each with half of its samples in their order. */
void support_write_tars(const char *folder, const char *name, const struct cvy_dataset *set);

#endif
