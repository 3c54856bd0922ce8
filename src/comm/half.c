/* The kernels for any processor, and the dispatch. */
#define KERNELS cvy_half_kernels_base
#include "comm/half.inc"

#include "base/system.h"

const struct cvy_half_kernels *cvy_half_kernels(enum cvy_half half)
{
    const enum cvy_isa isa = cvy_cpu_isa();

    return isa >= CVY_ISA_AVX512 ? CVY_IF_AVX(&cvy_half_kernels_avx512[half])
           : isa == CVY_ISA_AVX2 ? CVY_IF_AVX(&cvy_half_kernels_avx2[half])
                                 : &cvy_half_kernels_base[half];
}
