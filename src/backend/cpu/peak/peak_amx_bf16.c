/* Peak loops of tiles (AMX): two by two sums, as in a product of matrices. Every tile product has 16 x 16 sums of 32
 * products of bf16 or 64 of bytes. */
#include <immintrin.h>

#include "backend/cpu/peak/peak.h"
#include "backend/cpu/tiles.h"

static const char zeros[16 * 64] __attribute__((aligned(64)));

static void begin(void)
{
    tiles_begin();
    tile_load(0, zeros, 64);
    tile_load(1, zeros, 64);
    tile_load(2, zeros, 64);
    tile_load(3, zeros, 64);
    tile_load(4, zeros, 64);
    tile_load(5, zeros, 64);
    tile_load(6, zeros, 64);
    tile_load(7, zeros, 64);
}

static double peak_tiles_bf16(int64_t rounds)
{
    begin();
    for (int64_t r = 0; r < rounds; r++) {
        tile_dot_bf16(0, 4, 6);
        tile_dot_bf16(1, 4, 7);
        tile_dot_bf16(2, 5, 6);
        tile_dot_bf16(3, 5, 7);
    }
    tiles_end();
    return 2.0 * 4 * 16 * 16 * 32 * (double)rounds;
}

double cpu_peak_int8_amx(int64_t rounds)
{
    begin();
    for (int64_t r = 0; r < rounds; r++) {
        tile_dot_int8(0, 4, 6);
        tile_dot_int8(1, 4, 7);
        tile_dot_int8(2, 5, 6);
        tile_dot_int8(3, 5, 7);
    }
    tiles_end();
    return 2.0 * 4 * 16 * 16 * 64 * (double)rounds;
}

#define PEAK_TABLE cpu_peak_amx_bf16
#define PEAK_BYTES 64
#define PEAK_SUMS  24
#define PEAK_BF16  peak_tiles_bf16
#include "backend/cpu/peak/peak.inc"
