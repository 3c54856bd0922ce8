/* One labelled image, and its bytes. */
#ifndef CVY_DATA_SAMPLE_SAMPLE_H
#define CVY_DATA_SAMPLE_SAMPLE_H

#include "data/sample/image_record.h"
#include "data/sample/shard.h"

struct cvy_sample {
    const char *path; /* of the file that is the image, or that holds it */
    int32_t label;
    uint32_t record_bytes;         /* 0: the file is the image. Else the whole record, its frame included, */
    uint64_t record_offset;        /* and where it begins in the file */
    const struct cvy_shard *shard; /* records only: their file; NULL: the file is the image */
};

/* The encoded image of a sample in memory. */
struct cvy_encoded {
    const char *name; /* stands for the image in messages */
    const char *own;  /* records only: the name that the image had before, "": none; NULL: a file alone */
    const void *data;
    size_t size;
    struct cvy_object_box *boxes; /* of records that have some */
    size_t box_count;
    void *block;   /* what was allocated for all but the boxes */
    bool borrowed; /* from a cache: releasing frees nothing */
};
/* CVY_NO_INPUT: missing or unreadable; CVY_BAD_DATA: not a file, too long to be an image, or a damaged record.
 * Released only after CVY_OK. */
CVY_CHECKED cvy_status cvy_sample_read(const struct cvy_sample *sample, struct cvy_encoded *encoded);
void cvy_encoded_release(struct cvy_encoded *encoded);

#endif
