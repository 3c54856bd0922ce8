#include "base/resources.h"

#include <limits.h>
#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cache.h"
#include "base/memory.h"

/* ---- small files of the kernel ---- */

/* The first line of FOLDER/NAME; false if it cannot be read. */
static bool read_line(const char *folder, const char *name, char *line, int size)
{
    char path[PATH_MAX + 64];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *stream = length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
    const bool good = stream && fgets(line, size, stream);

    if (stream)
        fclose(stream);
    return good;
}

/* The number that FOLDER/NAME begins with; false for "max" and where there is none. */
static bool read_number(const char *folder, const char *name, unsigned long long *number)
{
    char line[128];

    return read_line(folder, name, line, sizeof line) && line[0] != '-' && sscanf(line, "%llu", number) == 1;
}

/* The number after a word at the start of a line: "inactive_file 4096", "MemAvailable:  123 kB". */
static bool read_entry(const char *folder, const char *name, const char *word, unsigned long long *number)
{
    char path[PATH_MAX + 64], line[256];
    const size_t width = strlen(word);
    bool found = false;
    FILE *stream;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    stream = fopen(path, "re");
    while (stream && !found && fgets(line, sizeof line, stream))
        found = strncmp(line, word, width) == 0 && sscanf(line + width, " %llu", number) == 1;
    if (stream)
        fclose(stream);
    return found;
}

/* ---- cgroups ---- */

/* What one group allows; called for the process's group and each one around it. */
typedef void (*cgroup_visitor)(const char *folder, bool version_2, void *result);

static void walk_cgroups(const char *mount, const char *group, bool version_2, cgroup_visitor look, void *result)
{
    char folder[PATH_MAX];
    const int length = snprintf(folder, sizeof folder, "%s%s", mount, group);

    if (length < 0 || (size_t)length >= sizeof folder)
        return;
    for (;;) {
        char *slash = strrchr(folder, '/');
        if (slash && slash[1]) /* not "mount/" of the root group, whose turn comes without the slash */
            look(folder, version_2, result);
        if (!slash || (size_t)(slash - folder) < strlen(mount))
            return;
        *slash = 0;
    }
}

/* Whether "cpu,cpuacct" has the word "cpu". */
static bool names(const char *controllers, const char *word)
{
    const size_t width = strlen(word);

    while (*controllers) {
        const size_t length = strcspn(controllers, ",");
        if (length == width && strncmp(controllers, word, width) == 0)
            return true;
        controllers += length + (controllers[length] == ',');
    }
    return false;
}

/* /proc/self/cgroup has a line "number:controllers:/group" for each hierarchy; v2's has no controllers, and is mounted
 * beside those of v1 where there are both. In a container a group may be named as the host sees it: then its folder is
 * missing here, and the mounted one, which is read last, is the process's own. */
static void for_each_cgroup(const char *root, const char *controller, cgroup_visitor look, void *result)
{
    char path[PATH_MAX], mount[PATH_MAX], line[PATH_MAX + 64];
    FILE *stream;

    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    stream = fopen(path, "re");
    while (stream && fgets(line, sizeof line, stream)) {
        char *controllers, *group;
        line[strcspn(line, "\n")] = 0;
        controllers = strchr(line, ':');
        group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        controllers++;
        if (!*controllers) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            walk_cgroups(mount, group, true, look, result);
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/unified", root);
            walk_cgroups(mount, group, true, look, result);
        } else if (names(controllers, controller)) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, controller);
            walk_cgroups(mount, group, false, look, result);
        }
    }
    if (stream)
        fclose(stream);
}

/* "max 100000" or "150000 100000" microseconds in v2, two files in v1. */
static void read_cpu_quota(const char *folder, bool version_2, void *result)
{
    unsigned long long quota = 0, period = 0, cores;
    char line[128];
    bool limited;

    if (version_2)
        limited = read_line(folder, "cpu.max", line, sizeof line) && sscanf(line, "%llu %llu", &quota, &period) == 2;
    else
        limited = read_number(folder, "cpu.cfs_quota_us", &quota) && read_number(folder, "cpu.cfs_period_us", &period);
    if (!limited || quota == 0 || period == 0)
        return;
    cores = quota / period + (quota % period != 0);
    if (cores < (unsigned long long)*(int *)result)
        *(int *)result = (int)cores;
}

int cvy_quota_cores(const char *root)
{
    int min = INT_MAX;

    for_each_cgroup(root, "cpu", read_cpu_quota, &min);
    return min;
}

/* What is left of a group's limit; pages of files that nobody uses now are given up for new memory. */
static void read_memory_limit(const char *folder, bool version_2, void *result)
{
    unsigned long long limit, used = 0, files = 0, left;

    if (!read_number(folder, version_2 ? "memory.max" : "memory.limit_in_bytes", &limit))
        return;
    (void)read_number(folder, version_2 ? "memory.current" : "memory.usage_in_bytes", &used);
    (void)read_entry(folder, "memory.stat", version_2 ? "inactive_file " : "total_inactive_file ", &files);
    used = used > files ? used - files : 0;
    left = limit > used ? limit - used : 0;
    if (left < *(size_t *)result)
        *(size_t *)result = (size_t)left;
}

size_t cvy_available_memory_under(const char *root)
{
    size_t min = SIZE_MAX;
    unsigned long long kib;

    if (read_entry(root, "proc/meminfo", "MemAvailable:", &kib) && kib < SIZE_MAX / 1024)
        min = (size_t)kib * 1024;
    for_each_cgroup(root, "memory", read_memory_limit, &min);
    return min;
}

/* ---- cores ---- */

/* Cores of the affinity mask; the mask is grown for machines with more CPUs than a cpu_set_t has. */
static int affinity_cores(void)
{
    /* A runtime that binds threads has bound this one to a part of the mask already, and remembers the whole. */
    if (getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY"))
        return omp_get_num_procs();
    for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *mask = CPU_ALLOC((size_t)cpus);
        const size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int count;
        if (!mask)
            break;
        count = sched_getaffinity(0, bytes, mask) == 0 ? CPU_COUNT_S(bytes, mask) : 0;
        CPU_FREE(mask);
        if (count > 0)
            return count;
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int cvy_allowed_threads(void)
{
    const int cores = affinity_cores(), quota = cvy_quota_cores("");
    const int threads = cores < quota ? cores : quota;

    return threads > 0 ? threads : 1;
}

uint64_t cvy_cores_hash(void)
{
    enum { MOST = 1 << 16 }; /* a fixed size, so that all processes have the same bytes */
    cpu_set_t *mask = CPU_ALLOC(MOST);
    const size_t bytes = CPU_ALLOC_SIZE(MOST);
    char host[256] = "";
    uint64_t hash;

    (void)gethostname(host, sizeof host - 1);
    hash = cvy_hash(host, sizeof host);
    if (mask)
        CPU_ZERO_S(bytes, mask);
    if (mask && sched_getaffinity(0, bytes, mask) == 0)
        hash = cvy_hash_more(hash, mask, bytes);
    if (mask)
        CPU_FREE(mask);
    return hash;
}

/* OMP_NUM_THREADS; 0: not said. It may list a number for each level of nesting. Nonsense is ignored, as OpenMP ignores
 * it. */
static long wanted_threads(void)
{
    const char *wanted = getenv("OMP_NUM_THREADS");
    const long threads = wanted ? strtol(wanted, NULL, 10) : 0;

    return threads >= 1 ? threads : 0;
}

int cvy_openmp_threads(void)
{
    return omp_get_max_active_levels() > 0 ? omp_get_thread_limit() : 1;
}

int cvy_default_threads(void)
{
    const long threads = wanted_threads();
    const int cores = cvy_allowed_threads(), given = cvy_openmp_threads();
    const int allowed = cores < given ? cores : given;

    return threads >= 1 && threads < allowed ? (int)threads : allowed;
}

int cvy_shared_threads(int processes)
{
    const int threads = cvy_default_threads();

    if (wanted_threads() > 0 || processes <= 1)
        return threads;
    return threads > processes ? threads / processes : 1;
}

/* ---- memory ---- */

size_t cvy_shared_cache_bytes_under(const char *root)
{
    char folder[PATH_MAX];
    unsigned long long kib;

    snprintf(folder, sizeof folder, "%s/sys/devices/system/cpu/cpu0/cache/index3", root);
    return read_number(folder, "size", &kib) && kib < SIZE_MAX / 1024 ? (size_t)kib * 1024 : 0;
}

size_t cvy_shared_cache_bytes(void)
{
    return cvy_shared_cache_bytes_under("");
}

/* What is left under `ulimit -v`. */
static size_t address_space_left(void)
{
    struct rlimit limit;
    unsigned long long kib = 0;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        !read_entry("/proc/self", "status", "VmSize:", &kib))
        return SIZE_MAX;
    return limit.rlim_cur / 1024 > kib ? (size_t)(limit.rlim_cur - kib * 1024) : 0;
}

size_t cvy_available_memory(void)
{
    const size_t memory = cvy_available_memory_under(""), space = address_space_left();

    return memory < space ? memory : space;
}

bool cvy_memory_obtainable(size_t bytes)
{
    void *probe = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return probe != MAP_FAILED && munmap(probe, bytes) == 0;
}

size_t cvy_resident_memory(void)
{
    unsigned long long kib = 0;

    cvy_memory_give_back();
    return read_entry("/proc/self", "status", "VmRSS:", &kib) ? (size_t)kib * 1024 : 0;
}
