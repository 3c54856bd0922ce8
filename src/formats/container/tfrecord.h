/* TFRecord framing, which TensorBoard's event files use too. A record is
 *   u64 length | u32 masked CRC-32C of those 8 bytes | payload of `length` bytes | u32 masked CRC-32C of the payload
 * all little-endian; records follow each other without anything between them. */
#ifndef CVY_FORMATS_CONTAINER_TFRECORD_H
#define CVY_FORMATS_CONTAINER_TFRECORD_H

#include "base/memory.h"
#include "convoy/status.h"

enum { CVY_TFRECORD_HEADER = 12, CVY_TFRECORD_FOOTER = 4, CVY_TFRECORD_FRAME = 16 };
/* No payload is longer: protobuf messages end at 2 GiB, images at 1 GiB. */
#define CVY_TFRECORD_MAX ((uint64_t)INT32_MAX)

/* Append one whole record to `out` (whose `failed` says whether memory ran out). */
void cvy_tfrecord_append(struct cvy_text *out, const void *payload, size_t size);
/* What comes before a payload and after it, for writers that keep the payload elsewhere. */
void cvy_tfrecord_header(uint64_t size, uint8_t header[CVY_TFRECORD_HEADER]);
void cvy_tfrecord_footer(const void *payload, size_t size, uint8_t footer[CVY_TFRECORD_FOOTER]);

/* Look at the first bytes of a record; `what` and `offset` (where the record begins) name it in errors. CVY_BAD_DATA: a
 * wrong checksum, or longer than CVY_TFRECORD_MAX. */
CVY_CHECKED cvy_status cvy_tfrecord_check_header(const char *what, uint64_t offset,
                                                 const uint8_t header[CVY_TFRECORD_HEADER], uint64_t *size);
/* Record that the file ends within the record at `offset`; CVY_BAD_DATA. */
cvy_status cvy_tfrecord_truncated(const char *what, uint64_t offset);
/* The payload of the record at the start of `data`, both checksums compared. *used, if wanted, is the length of the
 * whole record. */
CVY_CHECKED cvy_status cvy_tfrecord_parse(const char *what, uint64_t offset, const void *data, size_t size,
                                          const uint8_t **payload, size_t *payload_size, size_t *used);

#endif
