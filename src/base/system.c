#include "base/system.h"

#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

static double (*replaced_clock)(void);

void cvy_clock_replace(double (*clock)(void))
{
    replaced_clock = clock;
}

double cvy_clock(void)
{
    struct timespec now;
    if (replaced_clock)
        return replaced_clock();
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double cvy_wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The first line of a small file of the kernel; false if it cannot be read. */
static bool read_line(const char *path, char *line, int size)
{
    FILE *stream = fopen(path, "re");
    bool good = stream && fgets(line, size, stream);
    if (stream)
        fclose(stream);
    return good;
}

/* CPUs that quota microseconds in each period come to, rounded up; INT_MAX without a limit. */
static int quota_threads(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return INT_MAX;
    long long threads = (quota + period - 1) / period;
    return threads < INT_MAX ? (int)threads : INT_MAX;
}

/* The limit of one cgroup folder: "max 100000" or "150000 100000" in v2, two files in v1. */
static int folder_quota(const char *folder, bool version_2)
{
    char path[PATH_MAX + 64], line[128];
    long long quota = -1, period = -1;
    if (version_2) {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        if (read_line(path, line, sizeof line) && sscanf(line, "%lld %lld", &quota, &period) == 2)
            return quota_threads(quota, period);
        return INT_MAX;
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (read_line(path, line, sizeof line))
        quota = atoll(line);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (read_line(path, line, sizeof line))
        period = atoll(line);
    return quota_threads(quota, period);
}

/* The smallest limit of a group and those around it, up to the root. */
static int group_quota(const char *root, const char *group, bool version_2)
{
    char folder[PATH_MAX];
    int least = INT_MAX;
    int length = snprintf(folder, sizeof folder, "%s%s", root, group);
    if (length < 0 || (size_t)length >= sizeof folder)
        return INT_MAX;
    for (;;) {
        int limit = folder_quota(folder, version_2);
        if (limit < least)
            least = limit;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < strlen(root))
            return least;
        *slash = 0;
    }
}

/* /proc/self/cgroup has a line "number:controllers:/group" for each hierarchy; v2's has no controllers. */
static int cgroup_threads(void)
{
    int least = INT_MAX;
    char line[PATH_MAX + 64];
    FILE *stream = fopen("/proc/self/cgroup", "re");
    if (!stream)
        return INT_MAX;
    while (fgets(line, sizeof line, stream)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        controllers++;
        int limit = INT_MAX;
        if (!*controllers)
            limit = group_quota("/sys/fs/cgroup", group, true);
        else if (!strcmp(controllers, "cpu") || !strncmp(controllers, "cpu,", 4) || strstr(controllers, ",cpu,") ||
                 (strlen(controllers) > 4 && !strcmp(controllers + strlen(controllers) - 4, ",cpu")))
            limit = group_quota("/sys/fs/cgroup/cpu", group, false);
        if (limit < least)
            least = limit;
    }
    fclose(stream);
    return least;
}

/* Cores of the affinity mask; the mask is grown for machines with more CPUs than a cpu_set_t has. */
static int affinity_threads(void)
{
    for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *mask = CPU_ALLOC((size_t)cpus);
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        if (!mask)
            break;
        int count = sched_getaffinity(0, bytes, mask) == 0 ? CPU_COUNT_S(bytes, mask) : 0;
        CPU_FREE(mask);
        if (count > 0)
            return count;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int cvy_default_threads(void)
{
    /* OMP_NUM_THREADS may list a number for each level of nesting; the first counts. Nonsense is ignored, as OpenMP
     * ignores it. */
    const char *wanted = getenv("OMP_NUM_THREADS");
    if (wanted) {
        long threads = strtol(wanted, NULL, 10);
        if (threads >= 1 && threads <= 65536)
            return (int)threads;
    }
    int cores = affinity_threads(), quota = cgroup_threads();
    int threads = cores < quota ? cores : quota;
    return threads > 0 ? threads : 1;
}

void cvy_peak_memory_reset(void)
{
#ifdef __GLIBC__
    malloc_trim(0); /* what was freed goes back to the system first */
#endif
    FILE *stream = fopen("/proc/self/clear_refs", "we");
    if (!stream)
        return;
    fputs("5", stream); /* proc(5): the peak resident set becomes the current one */
    fclose(stream);
}

size_t cvy_peak_memory(void)
{
    /* getrusage also counts what the process was before exec, so it is only the second choice. */
    char line[256];
    unsigned long long kib = 0;
    FILE *stream = fopen("/proc/self/status", "re");
    if (stream) {
        while (fgets(line, sizeof line, stream))
            if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
                break;
        fclose(stream);
    }
    if (kib == 0) {
        struct rusage usage;
        if (getrusage(RUSAGE_SELF, &usage) == 0)
            kib = (unsigned long long)usage.ru_maxrss;
    }
    return (size_t)kib * 1024;
}

static pthread_once_t cpu_once = PTHREAD_ONCE_INIT;
static enum cvy_isa cpu_isa = CVY_ISA_BASE;
static char cpu_name[128] = "unknown CPU";

#if defined(__x86_64__) || defined(__i386__)
/* The processor must have the instructions and the operating system must save the registers (XCR0: bits 1 and 2 for
 * XMM and YMM, 5 to 7 for masks and ZMM). Our avx2 files also use FMA and F16C, our avx512 files F, BW, DQ and VL. */
static enum cvy_isa detect_isa(void)
{
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
        return CVY_ISA_BASE;
    bool fma_f16c = (ecx & bit_FMA) && (ecx & bit_F16C);
    unsigned enabled, high;
    __asm__ volatile("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
    if ((enabled & 0x06) != 0x06 || !fma_f16c || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(ebx & bit_AVX2))
        return CVY_ISA_BASE;
    const unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    return (enabled & 0xE6) == 0xE6 && (ebx & avx512) == avx512 ? CVY_ISA_AVX512 : CVY_ISA_AVX2;
}
#else
static enum cvy_isa detect_isa(void)
{
    return CVY_ISA_BASE;
}
#endif

static void read_cpu_name(void)
{
    char line[512];
    FILE *stream = fopen("/proc/cpuinfo", "re");
    if (!stream)
        return;
    while (fgets(line, sizeof line, stream)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        char *name = colon + 1 + strspn(colon + 1, " \t");
        size_t length = strcspn(name, "\n");
        while (length > 0 && name[length - 1] == ' ')
            length--;
        if (length > 0)
            snprintf(cpu_name, sizeof cpu_name, "%.*s", (int)length, name);
        break;
    }
    fclose(stream);
}

static void look_at_cpu(void)
{
    cpu_isa = detect_isa();
    read_cpu_name();
}

enum cvy_isa cvy_cpu_isa(void)
{
    pthread_once(&cpu_once, look_at_cpu);
    const char *wanted = getenv("CONVOY_CPU_ISA");
    if (wanted)
        for (enum cvy_isa isa = CVY_ISA_BASE; isa < cpu_isa; isa++)
            if (!strcmp(wanted, cvy_isa_name(isa)))
                return isa;
    return cpu_isa;
}

const char *cvy_isa_name(enum cvy_isa isa)
{
    static const char *const names[] = {"base", "avx2", "avx512"};
    return names[isa];
}

const char *cvy_cpu_name(void)
{
    pthread_once(&cpu_once, look_at_cpu);
    return cpu_name;
}
