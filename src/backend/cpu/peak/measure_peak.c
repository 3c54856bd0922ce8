/* Measures the machine's current peak with the threads of the device: other running programs lower it. */
#include <math.h>
#include <omp.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/peak/peak.h"
#include "base/system.h"

enum { REPEATS = 8, ELEMENTS = 32 << 20 }; /* of each of three arrays: 128 MiB, beyond any cache but the largest */
/* Repeats go on for this long: many short ones, so that beside other programs some are undisturbed. */
static const double long_enough = 0.3, briefly = 0.03;

static const struct cpu_peak *peak_of(enum cvy_isa isa)
{
    static const struct cpu_peak *const peaks[] = {[CVY_ISA_BASE] = &cpu_peak_base,
                                                   [CVY_ISA_AVX2] = CVY_IF_AVX(&cpu_peak_avx2),
                                                   [CVY_ISA_AVX512] = CVY_IF_AVX(&cpu_peak_avx512),
                                                   [CVY_ISA_AVX512_BF16] = CVY_IF_AVX(&cpu_peak_avx512_bf16),
                                                   [CVY_ISA_AMX_BF16] = CVY_IF_AVX(&cpu_peak_amx_bf16)};
    return peaks[isa];
}

typedef double (*loop_function)(int64_t rounds);

/* NULL: none. */
static loop_function int8_loop(unsigned int8, enum cvy_isa isa)
{
    if (int8 & CVY_INT8_AMX)
        return CVY_IF_AVX(cpu_peak_int8_amx);
    if (int8 & CVY_INT8_AVX512_VNNI)
        return CVY_IF_AVX(cpu_peak_int8_avx512);
    if (int8 & CVY_INT8_AVX_VNNI)
        return CVY_IF_AVX(cpu_peak_int8_avx2);
    return isa == CVY_ISA_AVX2 ? CVY_IF_AVX(cpu_peak_int8_short) : NULL;
}

/* The most operations a second of all threads together, in repeats of about 2 ms. All repeats are one parallel region:
 * a thread that sleeps between regions is woken beside the one that wakes it, and both share a core for a while. */
static double max_operations_per_second(const cvy_device *device, loop_function loop, double seconds)
{
    int64_t rounds = 1000;
    double best = 0, done = 0, start = cvy_clock();
    const double begin = start;
    bool more = true;

    for (; cvy_clock() - start < 0.004; rounds *= 2)
        (void)loop(rounds);
#pragma omp parallel num_threads(device->threads)
    for (int i = 0; more; i++) {
        double own;
#pragma omp barrier
#pragma omp single
        {
            done = 0;
            start = cvy_clock();
        }
        own = loop(rounds / 2);
#pragma omp atomic
        done += own;
#pragma omp barrier
#pragma omp single
        {
            best = fmax(best, done / (cvy_clock() - start));
            more = i < REPEATS || cvy_clock() - begin < seconds;
        }
    }
    return best;
}

enum pass { READ, COPY, TRIAD };

/* Bytes a second: what the pass reads and writes by its text, not the lines that are read because they are written. */
static double max_bytes_per_second(const cvy_device *device, const struct cpu_peak *peak, enum pass pass, float *memory)
{
    static const double streams[] = {[READ] = 1, [COPY] = 2, [TRIAD] = 3};
    float *a = memory, *b = memory + ELEMENTS, *c = memory + 2 * (size_t)ELEMENTS;
    static volatile float sink;
    const double begin = cvy_clock();
    double best = 0, start;
    bool more = true;

#pragma omp parallel num_threads(device->threads)
    for (int i = 0; more; i++) {
        const size_t threads = (size_t)omp_get_num_threads(), thread = (size_t)omp_get_thread_num();
        const size_t first = ELEMENTS / threads * thread, count = ELEMENTS / threads;
        float sum = 0;
#pragma omp barrier
#pragma omp single
        start = cvy_clock();
        if (pass == READ)
            sum = peak->read(a + first, count);
        else if (pass == COPY)
            peak->copy(a + first, b + first, count);
        else
            peak->triad(a + first, b + first, c + first, count);
#pragma omp barrier
#pragma omp single
        {
            const double rate = streams[pass] * ELEMENTS * sizeof(float) / (cvy_clock() - start);
            best = i > 0 ? fmax(best, rate) : 0; /* the first one brings the pages */
            more = i < REPEATS || cvy_clock() - begin < long_enough;
        }
#pragma omp critical
        sink = sum; /* so that the sums are not left out */
    }
    (void)sink;
    return best;
}

cvy_status cpu_device_peak(cvy_device *device, enum cvy_peak_part last, struct cvy_device_peak *limits)
{
    const struct cpu_peak *peak = peak_of(cvy_cpu_isa());
    const loop_function int8 = int8_loop(cvy_cpu_int8(), cvy_cpu_isa());
    const double seconds = last < CVY_PEAK_MEMORY ? briefly : long_enough;
    float *memory;

    *limits = (struct cvy_device_peak){.flops_f32 = max_operations_per_second(device, peak->f32, seconds)};
    if (peak->bf16)
        limits->flops_bf16 = max_operations_per_second(device, peak->bf16, seconds);
    if (int8 && last >= CVY_PEAK_OPERATIONS)
        limits->ops_int8 = max_operations_per_second(device, int8, seconds);
    if (last < CVY_PEAK_MEMORY)
        return CVY_OK;
    memory = cvy_calloc_aligned(3 * (size_t)ELEMENTS * sizeof *memory);
    if (!memory)
        return cvy_fail_memory(3 * (size_t)ELEMENTS * sizeof *memory, "measuring the memory");
    limits->read = max_bytes_per_second(device, peak, READ, memory);
    limits->copy = max_bytes_per_second(device, peak, COPY, memory);
    limits->triad = max_bytes_per_second(device, peak, TRIAD, memory);
    cvy_free_aligned(memory);
    return CVY_OK;
}
