/* tf.train.Example, the message inside TFRecords of images: named features, each a list of byte strings, of floats or
 * of integers. Writing is protobuf-c's work. Reading is not: its unpacking copies every byte string, while a data set's
 * list of samples must be made without reading the images, and a loader needs the image where it lies. */
#ifndef CVY_FORMATS_CONTAINER_EXAMPLE_H
#define CVY_FORMATS_CONTAINER_EXAMPLE_H

#include <stdbool.h>

#include "convoy/status.h"

/* ---- reading ---- */

enum { CVY_EXAMPLE_WINDOW = 4096, CVY_FEATURE_KEY = 64 };

/* A message in memory, or in a file of which small parts are read as they are needed. */
struct cvy_example {
    const char *what; /* of the file, borrowed; */
    uint64_t record;  /* and where the record begins there: for errors */
    size_t size;      /* of the message, bytes */
    const uint8_t *data;
    int file;       /* without data: the file, */
    uint64_t begin; /* and where the message begins in it */
    /* what was read last: [window_from, window_from + window_count) of the message */
    uint8_t window[CVY_EXAMPLE_WINDOW];
    size_t window_from, window_count;
    size_t at, features_end; /* between the calls of cvy_example_next */
};
void cvy_example_open_memory(struct cvy_example *example, const char *what, uint64_t record, const void *data,
                             size_t size);
void cvy_example_open_file(struct cvy_example *example, const char *what, uint64_t record, int file, uint64_t begin,
                           size_t size);

enum cvy_feature_kind {
    CVY_FEATURE_NONE,
    CVY_FEATURE_BYTES,
    CVY_FEATURE_FLOAT,
    CVY_FEATURE_INT64,
    CVY_FEATURE_TEXTS /* for writing: several byte strings */
};
struct cvy_feature {
    char key[CVY_FEATURE_KEY]; /* cut where it is longer */
    enum cvy_feature_kind kind;
    size_t from, end; /* of its list in the message */
};
/* The next feature in the order of the message; *found is false at the end. Where a key comes twice, the later one
 * counts. CVY_BAD_DATA: the message is damaged, or something else. */
CVY_CHECKED cvy_status cvy_example_next(struct cvy_example *example, struct cvy_feature *feature, bool *found);

/* All values of a list, or the first ones. *count is how many there are; a list of another kind counts as damage, an
 * empty one of no kind has none. */
/* Where the first byte string lies in the message. */
CVY_CHECKED cvy_status cvy_feature_bytes(struct cvy_example *example, const struct cvy_feature *feature, size_t *from,
                                         size_t *length, size_t *count);
CVY_CHECKED cvy_status cvy_feature_int64(struct cvy_example *example, const struct cvy_feature *feature,
                                         int64_t *values, size_t limit, size_t *count);
CVY_CHECKED cvy_status cvy_feature_floats(struct cvy_example *example, const struct cvy_feature *feature, float *values,
                                          size_t limit, size_t *count);
/* One byte string after the other: *at is 0 for the first call; *found is false at the end. The text is cut as by
 * cvy_example_text. */
CVY_CHECKED cvy_status cvy_feature_next_text(struct cvy_example *example, const struct cvy_feature *feature, size_t *at,
                                             char *text, size_t size, bool *found);
/* Bytes of the message as a text of at most size - 1 characters, cut where it is longer or holds a 0. */
CVY_CHECKED cvy_status cvy_example_text(struct cvy_example *example, size_t from, size_t length, char *text,
                                        size_t size);

/* ---- writing ---- */

struct cvy_feature_value {
    const char *key;
    enum cvy_feature_kind kind;
    const void *values; /* the bytes (one string), or count floats, int64_t, or terminated texts (const char *) */
    size_t count;       /* bytes of the string, or values */
};
/* The message in memory that the caller frees with cvy_free; features in the given order. */
CVY_CHECKED cvy_status cvy_example_pack(const struct cvy_feature_value *features, size_t count, uint8_t **message,
                                        size_t *size);

#endif
