/* One labelled image, and its bytes. */
#ifndef CVY_DATA_SAMPLE_H
#define CVY_DATA_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"

struct cvy_sample {
    const char *path; /* of the file */
    int32_t label;
};

/* The encoded image of a sample in memory. */
struct cvy_encoded {
    const char *name; /* stands for the image in messages */
    const void *data;
    size_t size;
    void *block; /* what was allocated */
};
/* CVY_NO_INPUT: missing or unreadable; CVY_BAD_DATA: not a file, or too long to be an image. */
CVY_CHECKED cvy_status cvy_sample_read(const struct cvy_sample *sample, struct cvy_encoded *encoded);
void cvy_encoded_release(struct cvy_encoded *encoded);

#endif
