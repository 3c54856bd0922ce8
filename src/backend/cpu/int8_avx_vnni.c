/* Integer inference with AVX-VNNI, for processors without AVX-512. vpdpbusd adds the products of four unsigned and four
 * signed bytes to 32 bits without saturation. */
#include "backend/cpu/int8.h"

/* Sums of HALVES of a vector are made together: 12 registers of them. */
enum { TILE = 6, HALVES = 2, PANEL = CPU_INT8_PANEL };

#include "backend/cpu/int8_avx2_ends.inc"

/* Written out, so that the sum stays in its register, and for assemblers' shorter form of the instruction. */
INLINE __m256i add_products(__m256i sum, __m256i x, __m256i w)
{
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));
    return sum;
}

#define INT8_TABLE cpu_int8_kernels_avx_vnni
#define INT8_ISA   "avx_vnni"
#include "backend/cpu/int8_avx2_sums.inc"
