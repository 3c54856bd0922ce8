/* Where the records of a TFRecord file are: found by walking the file, or kept as DALI's text index, one line
 * "offset size" for each record (decimal bytes; the size is the whole record's, with its 16 bytes of framing). */
#ifndef CVY_FORMATS_CONTAINER_TFRECORD_INDEX_H
#define CVY_FORMATS_CONTAINER_TFRECORD_INDEX_H

#include "formats/container/tfrecord.h"

struct cvy_tfrecord_location {
    uint64_t offset, size;
};
/* Zero-initialise; release accepts a zeroed one. Filled in the order of the file. */
struct cvy_tfrecord_index {
    struct cvy_tfrecord_location *places;
    size_t count, capacity;
};
void cvy_tfrecord_index_release(struct cvy_tfrecord_index *index);

/* Walk an open file: lengths and their checksums are read, payloads are not. `path` names it in errors. CVY_BAD_DATA:
 * no TFRecord file, damaged, or truncated. */
CVY_CHECKED cvy_status cvy_tfrecord_scan(const char *path, int file, struct cvy_tfrecord_index *index);
/* Read an index. CVY_BAD_DATA: a line that is not two numbers, or records that overlap or are too short or long. */
CVY_CHECKED cvy_status cvy_tfrecord_index_read(const char *path, struct cvy_tfrecord_index *index);
/* Write one; the file appears whole or not at all. */
CVY_CHECKED cvy_status cvy_tfrecord_index_write(const char *path, const struct cvy_tfrecord_index *index);

#endif
