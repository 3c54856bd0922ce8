/* The checkpoint in an archive, .tar.gz, as TensorFlow publishes them. */
#ifndef CVY_PULL_UNPACK_H
#define CVY_PULL_UNPACK_H

#include <stdbool.h>

#include "convoy/status.h"

/* By the name: does it end in .tar.gz? */
bool cvy_unpack_is_archive(const char *name);
/* Writes the members "...model.ckpt..." or "....ckpt" of the archive `from` as "<stem>.ckpt...", the stem being what
 * `target` has before .tar.gz: first the data, last what one opens (the index), each whole or not at all. CVY_BAD_DATA:
 * damaged, too large unpacked, or without a checkpoint. */
CVY_CHECKED cvy_status cvy_unpack_checkpoint(const char *from, const char *target);
/* What was written for `from` becomes that of `to`, in the place of what is there, the index last. CVY_CANNOT_WRITE,
 * CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_unpack_rename(const char *from, const char *to);
/* Removes what was written for `target`. */
void cvy_unpack_remove(const char *target);

#endif
