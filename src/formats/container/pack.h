/* Files of packed data sets (doc/records.md): a header, images one after another, each with its checksum, then the
 * index and a trailer that says where the index begins. All numbers are little-endian. */
#ifndef CVY_FORMATS_CONTAINER_PACK_H
#define CVY_FORMATS_CONTAINER_PACK_H

#include "base/memory.h"
#include "convoy/status.h"

enum {
    CVY_PACK_VERSION = 1,
    CVY_PACK_HEADER = 48,
    CVY_PACK_FRAME = 12, /* before the name and the bytes of each image */
    CVY_PACK_TRAILER = 40,
    CVY_PACK_SET = 16,
    CVY_PACK_NAME_LIMIT = 4096 /* bytes of an image's name */
};

struct cvy_pack_header {
    bool val;                  /* the part of validation */
    uint32_t shard, shards;    /* of the part */
    uint8_t set[CVY_PACK_SET]; /* the same in all files of one packing, and in no others */
};
void cvy_pack_header_write(const struct cvy_pack_header *header, uint8_t bytes[CVY_PACK_HEADER]);

/* The frame of a record of this name and these bytes. */
void cvy_pack_frame_write(const char *name, const void *image, size_t size, uint8_t frame[CVY_PACK_FRAME]);
/* A record in memory, all of it; parts of `data`. */
struct cvy_pack_record {
    const char *name; /* not terminated */
    size_t name_size;
    const uint8_t *image;
    size_t size;
};
/* CVY_BAD_DATA names `what` and `offset`, where the record begins in it. */
CVY_CHECKED cvy_status cvy_pack_record_parse(const char *what, uint64_t offset, const void *data, size_t size,
                                             struct cvy_pack_record *record);

/* Where an image is. */
struct cvy_pack_location {
    uint64_t offset; /* of its frame */
    uint32_t size;   /* frame, name and bytes */
    int32_t label;   /* index into the classes */
};
struct cvy_pack_index {
    struct cvy_pack_header header;
    struct cvy_pack_location *places;
    size_t count;
    const char **classes;
    int32_t class_count;
    struct cvy_arena arena;
};
void cvy_pack_index_release(struct cvy_pack_index *index); /* accepts a zeroed one */

/* Append the index of these records, whose first lies after the header, and the trailer to `out` (whose `failed` says
 * whether memory ran out). Offsets of the places are not used: records follow each other without gaps. */
void cvy_pack_index_write(struct cvy_text *out, const struct cvy_pack_location *places, size_t count,
                          const char *const *classes, int32_t class_count);
/* The header and the index of an open file. CVY_NO_INPUT, CVY_BAD_DATA (no such file, another version, damaged,
 * truncated), CVY_NO_MEMORY. Release it in any case. */
CVY_CHECKED cvy_status cvy_pack_index_read(const char *what, int file, struct cvy_pack_index *index);

#endif
