/* Which loops of direct convolutions this processor has. */
#include "backend/cpu/conv/direct_loops.h"

#include "base/system.h"

const struct cpu_direct_loops *direct_loops_here(void)
{
    switch (cvy_cpu_isa()) {
    case CVY_ISA_BASE:
        return &cpu_direct_base;
    case CVY_ISA_AVX2:
        return CVY_IF_AVX(&cpu_direct_avx2);
    default:
        return NULL;
    }
}
