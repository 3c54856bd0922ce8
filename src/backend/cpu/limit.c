/* What this machine can do at best with the threads of the device, measured now: other programs take their share. */
#include <omp.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/peak.h"
#include "base/system.h"

enum { REPEATS = 8, ELEMENTS = 32 << 20 }; /* of each of three arrays: 128 MiB, beyond any cache but the largest */
/* Repeats go on for so long: many short ones, so that beside other programs some are undisturbed. */
static const double long_enough = 0.3;

static const struct cpu_peak *peak_of(enum cvy_isa isa)
{
    static const struct cpu_peak *const peaks[] = {[CVY_ISA_BASE] = &cpu_peak_base,
                                                   [CVY_ISA_AVX2] = &cpu_peak_avx2,
                                                   [CVY_ISA_AVX512] = &cpu_peak_avx512,
                                                   [CVY_ISA_AVX512_BF16] = &cpu_peak_avx512_bf16};
    return peaks[isa];
}

/* The most operations a second of all threads together, in repeats of about 2 ms. */
static double most_operations(const cvy_device *device, double (*loop)(int64_t rounds))
{
    int64_t rounds = 1000;
    double best = 0;

    for (double start = cvy_clock(); cvy_clock() - start < 0.004; rounds *= 2)
        (void)loop(rounds);
    const double begin = cvy_clock();
    for (int i = 0; i < REPEATS || cvy_clock() - begin < long_enough; i++) {
        const double start = cvy_clock();
        double done = 0, seconds;
#pragma omp parallel num_threads(device->threads) reduction(+ : done)
        done += loop(rounds / 2);
        seconds = cvy_clock() - start;
        best = done / seconds > best ? done / seconds : best;
    }
    return best;
}

enum pass { READ, COPY, TRIAD };

/* Bytes a second: what the pass reads and writes by its text, not the lines that are read because they are written. */
static double most_bytes(const cvy_device *device, const struct cpu_peak *peak, enum pass pass, float *memory)
{
    static const double streams[] = {[READ] = 1, [COPY] = 2, [TRIAD] = 3};
    float *a = memory, *b = memory + ELEMENTS, *c = memory + 2 * (size_t)ELEMENTS;
    static volatile float sink;
    double best = 0;

    const double begin = cvy_clock();
    for (int i = 0; i < REPEATS || cvy_clock() - begin < long_enough; i++) {
        const double start = cvy_clock();
        double seconds, rate;
        float sum = 0;
#pragma omp parallel num_threads(device->threads) reduction(+ : sum)
        {
            const size_t threads = (size_t)omp_get_num_threads(), thread = (size_t)omp_get_thread_num();
            const size_t first = ELEMENTS / threads * thread, count = ELEMENTS / threads;
            if (pass == READ)
                sum += peak->read(a + first, count);
            else if (pass == COPY)
                peak->copy(a + first, b + first, count);
            else
                peak->triad(a + first, b + first, c + first, count);
        }
        seconds = cvy_clock() - start;
        rate = streams[pass] * ELEMENTS * sizeof(float) / seconds;
        best = i > 0 && rate > best ? rate : best; /* the first one brings the pages */
        sink = sum;
    }
    (void)sink;
    return best;
}

cvy_status cpu_limits(cvy_device *device, struct cvy_limits *limits)
{
    const struct cpu_peak *peak = peak_of(cvy_cpu_isa());
    float *memory = cvy_calloc_aligned(3 * (size_t)ELEMENTS * sizeof *memory);

    *limits = (struct cvy_limits){0};
    if (!memory)
        return cvy_fail_memory(3 * (size_t)ELEMENTS * sizeof *memory, "measuring the memory");
    limits->flops_f32 = most_operations(device, peak->f32);
    if (peak->bf16)
        limits->flops_bf16 = most_operations(device, peak->bf16);
    limits->read = most_bytes(device, peak, READ, memory);
    limits->copy = most_bytes(device, peak, COPY, memory);
    limits->triad = most_bytes(device, peak, TRIAD, memory);
    cvy_free_aligned(memory);
    return CVY_OK;
}
