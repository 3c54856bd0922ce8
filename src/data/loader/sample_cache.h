/* An in-memory cache of the encoded images of a data set, filled as they are first read. */
#ifndef CVY_DATA_LOADER_SAMPLE_CACHE_H
#define CVY_DATA_LOADER_SAMPLE_CACHE_H

#include "data/set/dataset.h"

/* An upper bound of the memory for the images of a set; missing files count 0. */
size_t cvy_sample_cache_bytes(const struct cvy_dataset *dataset);

struct cvy_sample_cache;
/* For this set, which must outlive it; any number of threads. It holds at most `limit` bytes of images: what does not
 * fit is read each time. */
CVY_CHECKED cvy_status cvy_sample_cache_new(const struct cvy_dataset *dataset, size_t limit,
                                            struct cvy_sample_cache **cache);
void cvy_sample_cache_free(struct cvy_sample_cache *cache); /* accepts NULL */
/* As cvy_sample_read; released after CVY_OK with cvy_encoded_release, which leaves what is kept alone. Images that
 * cannot be read are not remembered; of those that are kept `own` is NULL. */
CVY_CHECKED cvy_status cvy_sample_cache_read(struct cvy_sample_cache *cache, uint32_t sample,
                                             struct cvy_encoded *encoded);
/* Images kept so far, and their bytes. */
void cvy_sample_cache_count(struct cvy_sample_cache *cache, int64_t *images, size_t *bytes);

#endif
