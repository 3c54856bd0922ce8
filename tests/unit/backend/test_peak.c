/* The loops that measure the processor's peak: wider vectors are not slower, bf16 is summed in registers too. */
#include "backend/cpu/peak/peak.h"
#include "base/system.h"
#include "support_test.h"

/* Operations a second of one thread, the best of some short turns. */
static double rate(double (*loop)(int64_t rounds), double best)
{
    const double start = cvy_clock();
    const double done = loop(200000);
    const double now = done / (cvy_clock() - start);

    return now > best ? now : best;
}

/* Sums that the compiler leaves in memory reach a quarter of what registers do: half is far from both. */
static void wide_vectors_are_as_fast(void **state)
{
    const struct cpu_peak *const avx2 = CVY_IF_AVX(&cpu_peak_avx2);
    const struct cpu_peak *const avx512 = CVY_IF_AVX(&cpu_peak_avx512);
    const struct cpu_peak *const avx512_bf16 = CVY_IF_AVX(&cpu_peak_avx512_bf16);
    double narrow = 0, wide = 0, bf16 = 0;

    if (cvy_cpu_isa() < CVY_ISA_AVX512)
        skip();
    for (int i = 0; i < 20; i++) { /* in turns: other programs slow both */
        narrow = rate(avx2->f32, narrow);
        wide = rate(avx512->f32, wide);
        if (cvy_cpu_isa() >= CVY_ISA_AVX512_BF16)
            bf16 = rate(avx512_bf16->bf16, bf16);
    }
    print_message("GFLOP/s of a thread: fp32 %.0f with avx2, %.0f with avx512; bf16 %.0f\n", 1e-9 * narrow, 1e-9 * wide,
                  1e-9 * bf16);
    assert_true(wide > 0.5 * narrow);
    if (bf16 > 0) /* Intel's sum half as many products as in fp32 */
        assert_true(bf16 > 0.3 * wide);
}

RUN_TESTS(NULL, NULL, TEST(wide_vectors_are_as_fast))
