/* Walking a tar archive: the old format, ustar, GNU's and pax's long names and large sizes. */
#ifndef CVY_FORMATS_CONTAINER_TAR_H
#define CVY_FORMATS_CONTAINER_TAR_H

#include "base/memory.h"
#include "convoy/status.h"

enum { CVY_TAR_BLOCK = 512, CVY_TAR_NAME = 4096 };

struct cvy_tar {
    const char *what; /* names the archive in errors; borrowed */
    int file;         /* borrowed */
    uint64_t at, size;
    char long_name[CVY_TAR_NAME]; /* of the next member; "": none */
    uint64_t long_size;           /* and its size, if `sized` */
    bool sized;
};
/* A member that is a file. */
struct cvy_tar_member {
    char name[CVY_TAR_NAME];
    uint64_t header, data, size; /* its last header block, its bytes */
};
CVY_CHECKED cvy_status cvy_tar_open(struct cvy_tar *tar, const char *what, int file);
/* The next file, or *found false at the end. CVY_BAD_DATA names the byte: damaged, truncated, a name that is too long.
 */
CVY_CHECKED cvy_status cvy_tar_next(struct cvy_tar *tar, struct cvy_tar_member *member, bool *found);

/* The name in a header block alone, which may be cut where it is long: for messages. */
void cvy_tar_block_name(const uint8_t block[CVY_TAR_BLOCK], char name[257]);

#endif
