/* Zip files whose members are stored: what PyTorch writes. A reader that gives members in place and leaves compressed
 * ones as they are, and a writer. Zip64 is read and written. */
#ifndef CVY_FORMATS_CONTAINER_ZIP_H
#define CVY_FORMATS_CONTAINER_ZIP_H

#include "base/file.h"
#include "base/memory.h"

struct cvy_zip_member {
    const char *name; /* not terminated */
    size_t name_length;
    const unsigned char *data; /* in the file's bytes */
    size_t size;
    bool compressed;   /* data is not the content */
    uint32_t crc;      /* of the content, as the directory says: see cvy_zip_check */
    size_t begin, end; /* in the file: from its own header to the end of its data */
};

/* The directory; borrows the file's bytes. */
struct cvy_zip {
    struct cvy_zip_member *members; /* by name */
    size_t count;
};

/* `what` names the file in errors; tables live in the arena. CVY_BAD_DATA for everything that is no zip file, each
 * member inside the file and in a place of its own, each name once. */
CVY_CHECKED cvy_status cvy_zip_open(struct cvy_zip *zip, const char *what, const void *data, size_t size,
                                    struct cvy_arena *arena);
/* NULL when there is none of that name. */
const struct cvy_zip_member *cvy_zip_find(const struct cvy_zip *zip, const char *name, size_t length);
/* Has the data of a stored member the sum that the directory says? */
bool cvy_zip_check(const struct cvy_zip_member *member);

/* ---- writing ---- */

/* The file appears whole or not at all. Zero-initialise before creating. */
struct cvy_zip_writer {
    struct cvy_output output;
    struct cvy_text directory;
    uint64_t offset; /* bytes written */
    uint64_t count;
    bool wide; /* 64-bit sizes and places for every member, however small: for tests */
};
CVY_CHECKED cvy_status cvy_zip_create(struct cvy_zip_writer *zip, const char *path);
/* Adds a member whose data begins at a multiple of 64 bytes. */
CVY_CHECKED cvy_status cvy_zip_add(struct cvy_zip_writer *zip, const char *name, const void *data, size_t size);
CVY_CHECKED cvy_status cvy_zip_commit(struct cvy_zip_writer *zip); /* closes in any case; aborts on failure */
void cvy_zip_abort(struct cvy_zip_writer *zip);                    /* accepts a zeroed or finished one */

#endif
