/* What this process may use of the machine: cores and memory, as affinity mask, OpenMP, containers (cgroups, v1 and v2)
 * and resource limits say. */
#ifndef CVY_BASE_LIMITS_H
#define CVY_BASE_LIMITS_H

#include <stddef.h>
#include <stdint.h>

/* Threads to compute with: the least of OMP_NUM_THREADS (its first number, where set), the cores of the affinity mask
 * and the container's CPU quota; at least 1. */
int cvy_default_threads(void);
/* The same without OMP_NUM_THREADS: more threads than that only take turns. */
int cvy_allowed_threads(void);
/* cvy_default_threads for one of so many processes that run on the same cores: its part of them, unless
 * OMP_NUM_THREADS says what each is to have. */
int cvy_shared_threads(int processes);
/* A number for the host and the cores of the affinity mask: equal in processes that run on the same cores. */
uint64_t cvy_cores_hash(void);
/* Bytes that this process can still take: what the machine has free or can free (MemAvailable), cut to what is left
 * under the limits of its cgroup and those around it, and under its own address space limit. SIZE_MAX: unknown. */
size_t cvy_available_memory(void);
/* Bytes resident now; 0 where the system does not tell. What the allocator keeps of freed blocks is given back first.
 */
size_t cvy_resident_memory(void);

/* ---- for tests: the files of the kernel under a folder that stands for "/" ---- */

/* Cores of the CPU quota (cgroup v2 cpu.max, v1 cfs quota) of the process's group and the groups around it, rounded up;
 * INT_MAX: none. */
int cvy_quota_cores(const char *root);
/* The part of cvy_available_memory that these files say. */
size_t cvy_available_memory_under(const char *root);

#endif
