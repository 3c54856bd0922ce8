/* Integer inference with AVX-512 and VNNI: the tasks of a convolution (int8_avx512_tile.inc has the arithmetic). */
#include <immintrin.h>
#include <string.h>

#include "backend/cpu/int8.h"

#include "backend/cpu/int8_avx512_finish.inc"
#include "backend/cpu/int8_avx512_tile.inc"
#include "backend/cpu/int8_avx512_woven.inc"
#include "backend/cpu/int8_tasks.inc"

static void largest(uint8_t *y, const uint8_t *const *x, size_t taps, size_t count)
{
    for (size_t i = 0; i < count; i += 64) {
        const __mmask64 mask = count - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (count - i)) - 1;
        __m512i max = _mm512_setzero_si512();
        for (size_t tap = 0; tap < taps; tap++)
            max = _mm512_max_epu8(max, _mm512_maskz_loadu_epi8(mask, x[tap] + i));
        _mm512_mask_storeu_epi8(y + i, mask, max);
    }
}

#define CONV       conv
#define WOVEN      woven
#define TAKE_MAX   largest
#define INT8_TABLE cpu_int8_kernels_avx512_vnni
#define INT8_ISA   "avx512_vnni"
#include "backend/cpu/int8_loops.inc"
