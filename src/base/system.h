/* The machine: clocks, peak memory, instruction sets. The resources a process may use: resources.h. */
#ifndef CVY_BASE_SYSTEM_H
#define CVY_BASE_SYSTEM_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Monotonic seconds. */
double cvy_clock(void);
/* The time `seconds` from now on CLOCK_MONOTONIC, which a condition variable must be set to use. */
struct timespec cvy_clock_after(double seconds);
/* Processor time that all threads of the process have used, seconds. */
double cvy_cpu_clock(void);
/* For tests, while no other thread runs: replaces the clock; NULL: the system's again. */
void cvy_clock_replace(double (*clock)(void));
/* How often threads of this process have had to leave a core to another program so far (involuntary switches). */
int64_t cvy_preemptions(void);
void cvy_preemptions_replace(int64_t (*count)(void)); /* as cvy_clock_replace */
/* Unix seconds. */
double cvy_wall_clock(void);
/* Peak resident memory of this process so far, or since it was reset, bytes. */
size_t cvy_peak_memory(void);
/* Resets the peak to what is resident now. No effect where the system does not allow it. */
void cvy_peak_memory_reset(void);

/* The vector instruction set that our own kernels use, each one more than the one before; CONVOY_CPU_ISA=base|avx2|
 * avx512|avx512_bf16 lowers it. AVX512_BF16: AVX-512 and its instruction for sums of products of bf16. AMX_BF16: tiles
 * of bf16 too, which the operating system has granted to this process. */
#if defined(__x86_64__)
#define CVY_HAS_AVX    1
#define CVY_IF_AVX(it) (it)
#else
/* The files of AVX are not compiled: a table has NULL in their places, and cvy_cpu_isa() is CVY_ISA_BASE. */
#define CVY_HAS_AVX    0
#define CVY_IF_AVX(it) NULL
#endif
/* What all processors of an architecture have. */
#if defined(__aarch64__)
#define CVY_BASE_ISA "neon"
#else
#define CVY_BASE_ISA "base"
#endif
enum cvy_isa { CVY_ISA_BASE, CVY_ISA_AVX2, CVY_ISA_AVX512, CVY_ISA_AVX512_BF16, CVY_ISA_AMX_BF16 };
enum cvy_isa cvy_cpu_isa(void);
const char *cvy_isa_name(enum cvy_isa isa);
/* Instructions for sums of products of 8-bit integers: of vectors of 32 and 64 bytes, and of tiles. Those beyond
 * CONVOY_CPU_ISA are left out. */
enum cvy_int8_isa { CVY_INT8_AVX_VNNI = 1, CVY_INT8_AVX512_VNNI = 2, CVY_INT8_AMX = 4 };
unsigned cvy_cpu_int8(void);
/* All of them: "avx512_bf16, avx512_vnni". Valid until the thread's next call. */
const char *cvy_cpu_features(void);
/* What tells processors apart whose names do not, as on virtual machines: "6/143/8", of family, model and stepping; ""
 * where there are none. */
const char *cvy_cpu_signature(void);
/* "AMD EPYC 9V74 80-Core Processor"; "unknown CPU" where it cannot be read. */
const char *cvy_cpu_name(void);

#endif
