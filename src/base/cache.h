/* The cache of measurements for later runs: tables of lines, and the file of such a table for each device, version and
 * settings:
 *
 *   # convoy kernels 1
 *   # AMD EPYC 9V74 80-Core Processor, avx512, oneDNN 2.6.3; convoy 0.1.0; CONVOY_CPU_WINOGRAD=auto
 *   <key> TAB <value>
 *
 * Keys hold neither tabs nor line ends, values no line ends. A file is only ever replaced as a whole, under a lock
 * beside it and with what other processes wrote meanwhile; one that is damaged is skipped with a warning. */
#ifndef CVY_BASE_CACHE_H
#define CVY_BASE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "convoy/status.h"

/* FNV-1a of the bytes; continued from `before` over more bytes. */
uint64_t cvy_hash(const void *bytes, size_t size);
uint64_t cvy_hash_more(uint64_t before, const void *bytes, size_t size);

/* Appends the cache's folder: CONVOY_CACHE_DIR, else "convoy" in XDG_CACHE_HOME, else in ~/.cache. False where the
 * environment names none of them. */
bool cvy_cache_folder(struct cvy_text *text);

/* Makes the folder of `path` and takes the lock "<path>.lock", which other processes wait for. CVY_CANNOT_CREATE when
 * it cannot be created or another process holds it for two seconds. */
CVY_CHECKED cvy_status cvy_cache_lock(const char *path, int *lock);
/* The same without waiting: *held says that another process has it, and no lock is taken then. */
CVY_CHECKED cvy_status cvy_cache_try_lock(const char *path, int *lock, bool *held);
void cvy_cache_unlock(int lock);

/* ---- tables ---- */

struct cvy_cache_line {
    const char *key, *value; /* in the table's arena */
};
/* Sorted by key. Zero-initialise. */
struct cvy_cache_table {
    struct cvy_cache_line *lines;
    int32_t count, capacity;
    struct cvy_arena arena;
};
/* NULL where there is none; valid until the table is released. */
const char *cvy_cache_find(const struct cvy_cache_table *table, const char *key);
/* In the place of what stood there. */
CVY_CHECKED cvy_status cvy_cache_put(struct cvy_cache_table *table, const char *key, const char *value);
void cvy_cache_release(struct cvy_cache_table *table);
/* A decimal number of 0 to `max` at the beginning of *at, which is moved after it. */
bool cvy_cache_number(const char **at, int64_t max, int64_t *value);

/* ---- files ---- */

struct cvy_cache_kind {
    const char *first_line;           /* "# convoy kernels 1" */
    const char *what;                 /* for messages: "kernels" */
    bool (*valid)(const char *value); /* whether a value can be believed */
};
struct cvy_cache {
    const struct cvy_cache_kind *kind;
    char *path; /* NULL: the environment names no place */
    char *identity;
    struct cvy_cache_table table;
    bool loaded;
    int unsaved; /* lines that the file does not have */
};
/* The file is "<name>-<slug>-<hash>.txt" in the cache's folder: the slug is what `identity`, one line that says what
 * the values belong to, has before its first comma, and the hash is of all of it. Reads nothing. To be closed in any
 * case. */
CVY_CHECKED cvy_status cvy_cache_open(struct cvy_cache *cache, const struct cvy_cache_kind *kind, const char *name,
                                      const char *identity);
void cvy_cache_close(struct cvy_cache *cache); /* accepts a zeroed one; does not save */
/* Reads the file, the first time. */
void cvy_cache_load(struct cvy_cache *cache);
CVY_CHECKED cvy_status cvy_cache_add(struct cvy_cache *cache, const char *key, const char *value);
/* Writes the file if there is something new, and takes what others wrote into the table; of one key ours stays. False:
 * it could not be written, of which there is a warning, or there is no place for it. */
bool cvy_cache_save(struct cvy_cache *cache);

/* CONVOY_KERNELS: whether kernels are timed and earlier times believed ("timed", which is what an empty one means, and
 * "once"), or the first that accepts is taken ("first"). CVY_USAGE for anything else. */
CVY_CHECKED cvy_status cvy_kernels_are_timed(bool *timed);
/* "once": whatever else runs on the machine, nothing is timed again. */
bool cvy_kernels_are_timed_once(void);

#endif
