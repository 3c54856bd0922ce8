/* The resources this process may use: cores and memory, according to the affinity mask, OpenMP, containers (cgroups v1
 * and v2) and resource limits. */
#ifndef CVY_BASE_RESOURCES_H
#define CVY_BASE_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Threads to compute with: the minimum of OMP_NUM_THREADS (its first number, where set), cvy_openmp_threads, the cores
 * of the affinity mask and the container's CPU quota; at least 1. */
int cvy_default_threads(void);
/* The same without what OpenMP is told: more threads than that only share cores. */
int cvy_allowed_threads(void);
/* Threads that OpenMP gives at most to a parallel region that is in no other one (OMP_THREAD_LIMIT,
 * OMP_MAX_ACTIVE_LEVELS). */
int cvy_openmp_threads(void);
/* cvy_default_threads for one of `processes` processes that run on the same cores: its share of them, unless
 * OMP_NUM_THREADS sets the number for each. */
int cvy_shared_threads(int processes);
/* A number for the host and the cores of the affinity mask: equal in processes that run on the same cores. */
uint64_t cvy_cores_hash(void);
/* Bytes that this process can still allocate: what the machine has free or can free (MemAvailable), limited to what is
 * left in its cgroup and its parents, and under its own address space limit. SIZE_MAX: unknown. */
size_t cvy_available_memory(void);
/* Whether so many bytes could be had at this moment; nothing is kept. For calls of libraries that do not bear a
 * refusal. */
bool cvy_memory_obtainable(size_t bytes);
/* Bytes of the first core's third-level cache, which cores share; 0 where there is none or it is not known. */
size_t cvy_shared_cache_bytes(void);
/* Bytes resident now; 0 where unknown. Freed blocks that the allocator caches are returned to the system first.
 */
size_t cvy_resident_memory(void);

/* ---- for tests: the kernel's files under a folder that replaces "/" ---- */

/* Cores of the CPU quota (cgroup v2 cpu.max, v1 cfs quota) of the process's group and the groups around it, rounded up;
 * INT_MAX: none. */
int cvy_quota_cores(const char *root);
size_t cvy_shared_cache_bytes_under(const char *root);
/* The part of cvy_available_memory that these files determine. */
size_t cvy_available_memory_under(const char *root);

#endif
