#include "base/system.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

#include "base/memory.h"

static double (*replaced_clock)(void);
static int64_t (*replaced_preemptions)(void);

void cvy_preemptions_replace(int64_t (*count)(void))
{
    replaced_preemptions = count;
}

int64_t cvy_preemptions(void)
{
    struct rusage usage;

    if (replaced_preemptions)
        return replaced_preemptions();
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

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

struct timespec cvy_clock_after(double seconds)
{
    struct timespec end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)seconds;
    end.tv_nsec += (long)(1e9 * (seconds - (double)(time_t)seconds));
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    return end;
}

double cvy_cpu_clock(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

double cvy_wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void cvy_peak_memory_reset(void)
{
    cvy_memory_give_back(); /* otherwise what was freed counts */
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
static unsigned cpu_int8;
static char cpu_signature[32];
static char cpu_name[128] = "unknown CPU";

#if defined(__x86_64__) || defined(__i386__)
/* The processor must have the instructions and the operating system must save the registers (XCR0: bits 1 and 2 for
 * XMM and YMM, 5 to 7 for masks and ZMM). Our avx2 files also use FMA and F16C, our avx512 files F, BW, DQ and VL. */
/* In leaf 7 of CPUID, and the states of tiles in XCR0. */
enum {
    BIT_AMX_BF16 = 1 << 22, /* of EDX */
    BIT_AMX_TILE = 1 << 24,
    BIT_AMX_INT8 = 1 << 25,
    BIT_AVX512_VNNI = 1 << 11, /* of ECX */
    BIT_AVX_VNNI = 1 << 4,     /* of EAX, subleaf 1 */
    XCR0_TILES = 3 << 17
};

/* Linux gives a process the tiles' 8 KiB of registers only when it asks (Documentation/arch/x86/xstate.rst). */
static bool ask_for_tiles(void)
{
    enum { ARCH_GET_XCOMP_PERM = 0x1022, ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    unsigned long granted = 0;
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) != 0)
        return false;
    return syscall(SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &granted) == 0 && (granted & 1UL << TILE_DATA);
}

/* With what the operating system allows: the vectors and tiles of `isa`. */
static unsigned detect_int8(enum cvy_isa isa)
{
    unsigned eax, ebx, ecx, edx, found = 0;

    if (isa < CVY_ISA_AVX2 || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        return 0;
    if (isa >= CVY_ISA_AVX512 && (ecx & BIT_AVX512_VNNI))
        found |= CVY_INT8_AVX512_VNNI;
    if (isa >= CVY_ISA_AMX_BF16 && (edx & BIT_AMX_INT8))
        found |= CVY_INT8_AMX;
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & BIT_AVX_VNNI))
        found |= CVY_INT8_AVX_VNNI;
    return found;
}

/* Extended family and model count where the manual says so. */
static void read_signature(void)
{
    unsigned eax, ebx, ecx, edx, family, model;

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        return;
    family = eax >> 8 & 15;
    model = eax >> 4 & 15;
    if (family == 6 || family == 15)
        model |= (eax >> 16 & 15) << 4;
    if (family == 15)
        family += eax >> 20 & 255;
    snprintf(cpu_signature, sizeof cpu_signature, "%u/%u/%u", family, model, eax & 15);
}

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
    if ((enabled & 0xE6) != 0xE6 || (ebx & avx512) != avx512)
        return CVY_ISA_AVX2;
    const bool tiles = (edx & (BIT_AMX_BF16 | BIT_AMX_TILE)) == (BIT_AMX_BF16 | BIT_AMX_TILE);
    if (!__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) || !(eax & bit_AVX512BF16))
        return CVY_ISA_AVX512;
    return tiles && (enabled & XCR0_TILES) == XCR0_TILES && ask_for_tiles() ? CVY_ISA_AMX_BF16 : CVY_ISA_AVX512_BF16;
}
/* The name that the processor gives itself: what /proc/cpuinfo has, without a file that may not open. */
static bool read_brand(void)
{
    enum { FIRST = 0x80000002U, LEAVES = 3 };
    unsigned words[4 * LEAVES + 1] = {0};
    char text[sizeof words], *name;
    size_t length;

    for (unsigned i = 0; i < LEAVES; i++) {
        unsigned *leaf = words + 4 * i;
        if (!__get_cpuid(FIRST + i, leaf, leaf + 1, leaf + 2, leaf + 3))
            return false;
    }
    memcpy(text, words, sizeof text);
    name = text + strspn(text, " ");
    for (length = strlen(name); length > 0 && name[length - 1] == ' '; length--)
        ;
    if (length > 0)
        snprintf(cpu_name, sizeof cpu_name, "%.*s", (int)length, name);
    return length > 0;
}
#else
static bool read_brand(void)
{
    return false;
}

static enum cvy_isa detect_isa(void)
{
    return CVY_ISA_BASE;
}

static unsigned detect_int8(enum cvy_isa isa)
{
    (void)isa;
    return 0;
}

static void read_signature(void) {}
#endif

static void read_cpu_name(void)
{
    char line[512];
    FILE *stream = read_brand() ? NULL : fopen("/proc/cpuinfo", "re");
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

static void detect_cpu(void)
{
    cpu_isa = detect_isa();
    cpu_int8 = detect_int8(cpu_isa);
    read_signature();
    read_cpu_name();
}

/* CONVOY_CPU_ISA=avx_vnni: AVX2 as on processors that have these instructions and no AVX-512. */
static bool only_avx_vnni(const char *wanted)
{
    return wanted && !strcmp(wanted, "avx_vnni") && (cpu_int8 & CVY_INT8_AVX_VNNI);
}

enum cvy_isa cvy_cpu_isa(void)
{
    pthread_once(&cpu_once, detect_cpu);
    const char *wanted = getenv("CONVOY_CPU_ISA");
    if (only_avx_vnni(wanted))
        return CVY_ISA_AVX2;
    if (wanted)
        for (enum cvy_isa isa = CVY_ISA_BASE; isa < cpu_isa; isa++)
            if (!strcmp(wanted, cvy_isa_name(isa)))
                return isa;
    return cpu_isa;
}

const char *cvy_isa_name(enum cvy_isa isa)
{
    static const char *const names[] = {CVY_BASE_ISA, "avx2", "avx512", "avx512_bf16", "amx_bf16"};
    return names[isa];
}

unsigned cvy_cpu_int8(void)
{
    const enum cvy_isa isa = cvy_cpu_isa();
    const char *wanted = getenv("CONVOY_CPU_ISA");
    unsigned left = cpu_int8;

    if (only_avx_vnni(wanted))
        return CVY_INT8_AVX_VNNI;
    if (isa == cpu_isa && !(wanted && !strcmp(wanted, "avx2"))) /* which has none, though this processor may */
        return left;
    left &= ~(unsigned)CVY_INT8_AMX;
    if (isa < CVY_ISA_AVX512_BF16) /* what has bf16 has VNNI; the names of less do not say */
        left = 0;
    return left;
}

const char *cvy_cpu_features(void)
{
    static _Thread_local char text[96];
    static const char *const names[] = {"avx_vnni", "avx512_vnni", "amx_int8"};
    const unsigned int8 = cvy_cpu_int8();
    int used = snprintf(text, sizeof text, "%s", cvy_isa_name(cvy_cpu_isa()));

    for (int i = 0; i < 3; i++) {
        if (int8 & 1U << i)
            used += snprintf(text + used, sizeof text - (size_t)used, ", %s", names[i]);
    }
    return text;
}

const char *cvy_cpu_signature(void)
{
    pthread_once(&cpu_once, detect_cpu);
    return cpu_signature;
}

const char *cvy_cpu_name(void)
{
    pthread_once(&cpu_once, detect_cpu);
    return cpu_name;
}
