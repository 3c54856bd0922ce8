/* Files that hold many images each: opened once, read from any thread, shared by the data sets made from one. */
#ifndef CVY_DATA_SAMPLE_SHARD_H
#define CVY_DATA_SAMPLE_SHARD_H

#include <stdint.h>

#include "base/memory.h"
#include "convoy/status.h"

/* The container format of a file. */
enum cvy_shard_kind { CVY_SHARD_TFRECORD, CVY_SHARD_PACK, CVY_SHARD_TAR };

struct cvy_shard {
    const char *path;
    enum cvy_shard_kind kind;
    int file; /* -1: too many files to keep open; opened for each read */
};

struct cvy_shards;
/* Opens them; CVY_NO_INPUT. The first owner is the caller. */
CVY_CHECKED cvy_status cvy_shards_open(enum cvy_shard_kind kind, const char *const *paths, size_t count,
                                       struct cvy_shards **shards);
struct cvy_shards *cvy_shards_share(struct cvy_shards *shards); /* adds an owner; accepts NULL */
void cvy_shards_close(struct cvy_shards *shards);               /* removes an owner; accepts NULL */
/* Number `index` of them; lives as long as they have an owner. */
const struct cvy_shard *cvy_shard(const struct cvy_shards *shards, size_t index);

/* Its open file, for other reads; returned with cvy_shard_return. */
CVY_CHECKED cvy_status cvy_shard_borrow(const struct cvy_shard *shard, int *file);
void cvy_shard_return(const struct cvy_shard *shard, int file);
/* For tests: the maximum number of files kept open by all sets together; -1: half of what the process may open. */
void cvy_shards_set_max_open(int max);

/* Exactly `size` bytes from `offset` on. CVY_NO_INPUT; CVY_BAD_DATA: the file ends before. */
CVY_CHECKED cvy_status cvy_shard_read(const struct cvy_shard *shard, uint64_t offset, void *bytes, size_t size);

/* Files without records: no error, but perhaps copies that were ended early. Begins as {0}. */
struct cvy_empty_shards {
    const char *first;   /* borrowed */
    size_t empty, files; /* of them, those that hold nothing */
};
void cvy_empty_shards_count(struct cvy_empty_shards *of, const char *path, size_t records);
void cvy_empty_shards_report(const struct cvy_empty_shards *of); /* one warning, where there are any */

#endif
