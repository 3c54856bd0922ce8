/* Which loops of Winograd's algorithm this processor has. */
#include "backend/cpu/conv/winograd_loops.h"

#include "base/system.h"

const struct cpu_winograd_loops *winograd_loops_here(void)
{
    static const struct cpu_winograd_loops *const tables[] = {
        [CVY_ISA_BASE] = &cpu_winograd_base,
        [CVY_ISA_AVX2] = CVY_IF_AVX(&cpu_winograd_avx2),
        [CVY_ISA_AVX512] = CVY_IF_AVX(&cpu_winograd_avx512),
        [CVY_ISA_AVX512_BF16] = CVY_IF_AVX(&cpu_winograd_avx512),
        [CVY_ISA_AMX_BF16] = CVY_IF_AVX(&cpu_winograd_avx512),
    };
    return tables[cvy_cpu_isa()];
}
