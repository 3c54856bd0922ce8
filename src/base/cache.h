/* Files that keep what was measured for later runs: where they lie, and the lock under which they are replaced. */
#ifndef CVY_BASE_CACHE_H
#define CVY_BASE_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"

/* FNV-1a of the bytes; of more bytes behind those that gave `before`. */
uint64_t cvy_hash(const void *bytes, size_t size);
uint64_t cvy_hash_more(uint64_t before, const void *bytes, size_t size);

/* "<folder>/<kind>-<slug>-<hash>.txt": the slug is what `identity` says in front of its first comma, the hash is of all
 * of it. The folder is CONVOY_CACHE_DIR, else "convoy" in XDG_CACHE_HOME, else in ~/.cache; *path is NULL where the
 * environment names none. Freed with cvy_free. */
CVY_CHECKED cvy_status cvy_cache_path(const char *kind, const char *identity, char **path);

/* Makes the folder of `path` and takes the lock "<path>.lock", which other processes wait for. CVY_CANNOT_CREATE when
 * there can be none or somebody holds it for two seconds. */
CVY_CHECKED cvy_status cvy_cache_lock(const char *path, int *lock);
void cvy_cache_unlock(int lock);

#endif
