/* Tile registers (AMX): eight of them, each up to 16 rows of 64 bytes, and the sum of products of pairs of bf16
 * (TDPBF16PS in Intel's Software Developer's Manual, volume 2). Without TILES_MODEL they are the processor's; with it
 * they are arrays, so that what is written with them is tested on every processor with AVX-512. Included by one file of
 * each kind.
 *
 * tiles_begin(): all tiles have 16 rows of 64 bytes. tiles_begin_as(shapes): each as given. tiles_end() before the
 * thread does anything else: what follows need not save them.
 * tile_load(t, from, stride), tile_store(t, to, stride): the tile's rows, `stride` bytes apart.
 * tile_zero(t): all of it. tile_dot_bf16(c, a, b): c[m][n] += sum over k of a[m][2k] * b[k][2n] + a[m][2k + 1] *
 * b[k][2n + 1]; c of floats. tile_dot_int8(c, a, b): the same of four bytes instead of two bf16, a's without a sign;
 * c of 32-bit integers (TDPBUSD). */
#ifndef CVY_BACKEND_CPU_TILES_H
#define CVY_BACKEND_CPU_TILES_H

#include <stdint.h>
#include <string.h>

struct tile_shapes {
    uint8_t rows[8];
    uint16_t row_bytes[8]; /* a multiple of 4 */
};

#if defined(TILES_MODEL)

static _Thread_local uint32_t tile_memory[8][16][16];
static _Thread_local struct tile_shapes tile_model;

static inline void tiles_begin_as(const struct tile_shapes *shapes)
{
    tile_model = *shapes;
    memset(tile_memory, 0, sizeof tile_memory);
}

static inline void tiles_end(void) {}

/* What lies outside of the shape becomes 0, as in the processor. */
static inline void tile_load(int t, const void *from, size_t stride)
{
    memset(tile_memory[t], 0, sizeof tile_memory[t]);
    for (int row = 0; row < tile_model.rows[t]; row++)
        memcpy(tile_memory[t][row], (const char *)from + (size_t)row * stride, tile_model.row_bytes[t]);
}

static inline void tile_store(int t, void *to, size_t stride)
{
    for (int row = 0; row < tile_model.rows[t]; row++)
        memcpy((char *)to + (size_t)row * stride, tile_memory[t][row], tile_model.row_bytes[t]);
}

static inline void tile_zero(int t)
{
    memset(tile_memory[t], 0, sizeof tile_memory[t]);
}

static inline float tile_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Even and odd products have a sum each, from 0, and both go to the element at the end, as the manual has it. Rows and
 * columns that the shapes do not have take no part: a's rows as many as c's, its pairs as many as b's rows. */
static inline void tile_dot_bf16(int c, int a, int b)
{
    for (int m = 0; m < tile_model.rows[c]; m++) {
        float even[16] = {0}, odd[16] = {0};
        for (int k = 0; k < tile_model.row_bytes[a] / 4; k++) {
            const uint32_t left = tile_memory[a][m][k];
            for (int n = 0; n < 16; n++) {
                const uint32_t right = tile_memory[b][k][n];
                even[n] += tile_float(left << 16) * tile_float(right << 16);
                odd[n] += tile_float(left & 0xffff0000U) * tile_float(right & 0xffff0000U);
            }
        }
        for (int n = 0; n < 16; n++) {
            const float sum = tile_float(tile_memory[c][m][n]) + (even[n] + odd[n]);
            memcpy(&tile_memory[c][m][n], &sum, sizeof sum);
        }
    }
}

/* Four products and the sum have no more than 32 bits, wrapped around. */
static inline void tile_dot_int8(int c, int a, int b)
{
    for (int m = 0; m < tile_model.rows[c]; m++) {
        for (int k = 0; k < tile_model.row_bytes[a] / 4; k++) {
            for (int n = 0; n < 16; n++) {
                const uint32_t left = tile_memory[a][m][k], right = tile_memory[b][k][n];
                int32_t sum = 0;
                for (int i = 0; i < 32; i += 8)
                    sum += (int32_t)(left >> i & 255) * (int8_t)(right >> i & 255);
                tile_memory[c][m][n] += (uint32_t)sum;
            }
        }
    }
}

#else

/* Other code of the process (oneDNN) sets its own shapes before it uses tiles. */
static inline void tiles_begin_as(const struct tile_shapes *shapes)
{
    struct __attribute__((packed)) {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};

    memcpy(config.row_bytes, shapes->row_bytes, sizeof shapes->row_bytes);
    memcpy(config.rows, shapes->rows, sizeof shapes->rows);
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

static inline void tiles_end(void)
{
    __asm__ volatile("tilerelease" : : :);
}

/* The numbers of tiles are part of the instructions: these are macros, and what they do to memory is said. */
#define tile_load(t, from, stride)                                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(from), "r"((size_t)(stride)) : "memory")
#define tile_store(t, to, stride)                                                                                      \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(to), "r"((size_t)(stride)) : "memory")
#define tile_zero(t)           __asm__ volatile("tilezero %%tmm" #t : : :)
#define tile_dot_bf16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : :)
#define tile_dot_int8(c, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : :)

#endif

static inline void tiles_begin(void)
{
    static const struct tile_shapes whole = {{16, 16, 16, 16, 16, 16, 16, 16}, {64, 64, 64, 64, 64, 64, 64, 64}};

    tiles_begin_as(&whole);
}
#endif
