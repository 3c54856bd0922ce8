/* From entropy-coded bytes to pixels, row of MCUs by row of MCUs:
 * - The bytes up to the next marker are copied without their stuffing, so that bits can be taken eight bytes at a time.
 * - A table over the next LOOKUP_BITS bits gives code, run and value of most coefficients in one look.
 * - Blocks outside the rectangle are only skipped; rows below it are not read.
 * - Samples of the needed blocks lie in planes; rows of pixels are made from them at the end.
 * Nothing is repaired: reading past a marker, a code that does not exist, a coefficient too many end the attempt. */
#include "data/image/baseline.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/system.h"
#include "data/image/baseline_kernels.h"
#include "data/image/huffman.h"

enum { COMPONENTS_MAX = 3 };
/* Readable bytes after a segment: an MCU of 6 blocks takes no more, whatever its bits are (31 for a coefficient). */
enum { SPARE_BYTES = 2048 };
/* Samples before and after the rows of a plane, which kernels read or write. */
enum { PLANE_MARGIN = 32 };

struct component {
    const struct huffman *dc, *ac;
    uint16_t quantisation[64 + 15]; /* in the order of the file */
    int32_t h, v;                   /* blocks of an MCU */
    int32_t size;                   /* samples on a side of a decoded block */
    int32_t dc_value;
    int16_t *coefficients; /* of a row of MCUs: (v, needed blocks, 64) */
    uint8_t *plane;        /* samples of the needed blocks */
    size_t stride;
    int32_t width, height;      /* of the whole component */
    int32_t first_x, first_y;   /* of the plane in it */
    int32_t blocks, plane_rows; /* needed blocks of a row, sample rows */
};

struct cvy_baseline {
    struct huffman dc[NUM_HUFF_TBLS], ac[NUM_HUFF_TBLS];
    struct cvy_pixel_buffer bytes, coefficients, planes, lines;
    /* of the image in progress */
    struct component components[COMPONENTS_MAX];
    int32_t component_count, max_v;
    bool interpolates;                        /* chroma, in width and with max_v 2 in height */
    int32_t mcus_across, mcu_rows;            /* of the image */
    int32_t first_column, end_column;         /* needed MCUs */
    int32_t first_row, end_row;               /* needed rows of MCUs */
    const uint8_t *input, *input_end, *start; /* encoded bytes that are left; the segment's beginning */
    size_t segment_bytes;
    uint8_t marker; /* that ended the segment */
    struct bit_reader bits;
};

/* Coefficients in the order of the file: where they lie in a block. A run may lead past the last one, by 15. */
static const uint8_t zigzag[64 + 15] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                        12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                        35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                        58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

cvy_status cvy_baseline_new(struct cvy_baseline **out)
{
    *out = cvy_calloc(1, sizeof **out);
    return *out ? CVY_OK : cvy_fail_memory(sizeof **out, "a JPEG decoder");
}

void cvy_baseline_free(struct cvy_baseline *baseline)
{
    if (!baseline)
        return;
    cvy_pixel_buffer_release(&baseline->bytes);
    cvy_pixel_buffer_release(&baseline->coefficients);
    cvy_pixel_buffer_release(&baseline->planes);
    cvy_pixel_buffer_release(&baseline->lines);
    cvy_free(baseline);
}

/* ---- blocks ---- */

static inline bool take_dc(struct bit_reader *bits, struct component *component)
{
    struct entry entry;

    refill(bits);
    if (!take_code(bits, component->dc, &entry))
        return false;
    if (entry.size > 0)
        component->dc_value += take_value(bits, entry.size);
    return component->dc_value >= INT16_MIN && component->dc_value <= INT16_MAX;
}

/* A coefficient whose value is not in the table: k moves on to it, or after the zeros. */
enum step { STEP_VALUE, STEP_ZEROS, STEP_END, STEP_DAMAGED };
static inline enum step take_slowly(struct bit_reader *bits, const struct huffman *table, int32_t *k, int32_t *value)
{
    struct entry entry;

    refill(bits);
    if (!take_code(bits, table, &entry))
        return STEP_DAMAGED;
    if (entry.size == 0) { /* the end, or 16 zeros */
        *k += 16;
        return entry.run == 15 ? STEP_ZEROS : STEP_END;
    }
    *k += entry.run;
    *value = take_value(bits, entry.size);
    return STEP_VALUE;
}

/* One block, dequantised. False: damaged. libjpeg asks the coefficients in the file whether a row below the first has
 * any, the transform here asks their products: one that is not 0 and becomes 0 in 16 bits is left to libjpeg, too.
 * Those of couples have up to 9 bits and cannot become 0 (vanishes()). */
static bool take_block(struct bit_reader *reader, struct component *component, int16_t *block)
{
    const struct couple *couples = component->ac->couples;
    const uint16_t *quantisation = component->quantisation;
    struct bit_reader bits = *reader;
    int32_t k = 1, value;

    memset(block, 0, 64 * sizeof *block);
    if (!take_dc(&bits, component))
        return false;
    block[0] = (int16_t)(component->dc_value * quantisation[0]);
    while (k < 64) {
        /* 56 bits and more are enough for five looks. */
        refill(&bits);
        for (int i = 0; i < 56 / LOOKUP_BITS && k < 64; i++) {
            const struct couple couple = couples[bits.buffer >> (64 - LOOKUP_BITS)];
            if (k + couple.max > 64) {
                const enum step step = take_slowly(&bits, component->ac, &k, &value);
                if (step == STEP_END)
                    goto end;
                if (step == STEP_DAMAGED || k + (step == STEP_VALUE) > 64)
                    return false;
                if (step == STEP_VALUE) {
                    block[zigzag[k]] = (int16_t)(value * quantisation[k]);
                    if (block[zigzag[k]] == 0)
                        return false;
                    k++;
                }
                break;
            }
            const int32_t first = k + couple.run, second = k + couple.second_at;
            drop(&bits, couple.bits);
            block[zigzag[first]] = (int16_t)(couple.first * quantisation[first]);
            block[zigzag[second]] = (int16_t)(couple.second * quantisation[second]);
            k += couple.advance;
        }
    }
end:
    *reader = bits;
    return true;
}

/* The same where only its length counts. */
static bool skip_block(struct bit_reader *reader, struct component *component)
{
    const struct jump *jumps = component->ac->jumps;
    struct bit_reader bits = *reader;
    int32_t k = 1, value;

    if (!take_dc(&bits, component))
        return false;
    while (k < 64) {
        refill(&bits);
        for (int i = 0; i < 56 / LOOKUP_BITS; i++) {
            const struct jump jump = jumps[bits.buffer >> (64 - LOOKUP_BITS)];
            if (k + jump.max > 64) {
                const enum step step = take_slowly(&bits, component->ac, &k, &value);
                k += step == STEP_VALUE;
                if (step == STEP_END)
                    goto end;
                if (step == STEP_DAMAGED || k > 64)
                    return false;
                break;
            }
            drop(&bits, jump.bits);
            k += jump.advance;
            if (k >= 64)
                goto end;
        }
    }
end:
    *reader = bits;
    return true;
}

/* ---- segments: what lies between two markers ---- */

/* Copy the bytes up to the next marker without the zeros after 0xFF. False: there is no marker, or fill bytes. */
static bool begin_segment(struct cvy_baseline *baseline)
{
    const uint8_t *p = baseline->input, *end = baseline->input_end;
    uint8_t *out = baseline->bytes.data;

    for (;;) {
        const uint8_t *stop = p < end ? memchr(p, 0xFF, (size_t)(end - p)) : NULL;
        if (!stop || stop + 1 >= end)
            return false;
        memcpy(out, p, (size_t)(stop - p));
        out += stop - p;
        p = stop + 2;
        if (stop[1] != 0) {
            baseline->marker = stop[1];
            break;
        }
        *out++ = 0xFF;
    }
    baseline->input = p;
    baseline->start = baseline->bytes.data;
    baseline->segment_bytes = (size_t)(out - baseline->bytes.data);
    memset(out, 0, SPARE_BYTES);
    baseline->bits = (struct bit_reader){.next = baseline->start};
    for (int32_t i = 0; i < baseline->component_count; i++)
        baseline->components[i].dc_value = 0;
    return baseline->marker != 0xFF;
}

static bool past_the_end(const struct cvy_baseline *baseline)
{
    const struct bit_reader *bits = &baseline->bits;
    return (bits->next - baseline->start) * 8 - bits->count > (ptrdiff_t)baseline->segment_bytes * 8;
}

/* ---- rows of MCUs ---- */

static bool take_mcu(struct cvy_baseline *baseline, int32_t column)
{
    for (int32_t i = 0; i < baseline->component_count; i++) {
        struct component *c = &baseline->components[i];
        for (int32_t v = 0; v < c->v; v++)
            for (int32_t h = 0; h < c->h; h++) {
                const int32_t block = (column - baseline->first_column) * c->h + h;
                if (!take_block(&baseline->bits, c,
                                c->coefficients + ((size_t)v * (size_t)c->blocks + (size_t)block) * 64))
                    return false;
            }
    }
    return true;
}

static bool skip_mcu(struct cvy_baseline *baseline)
{
    for (int32_t i = 0; i < baseline->component_count; i++) {
        struct component *c = &baseline->components[i];
        for (int32_t block = 0; block < c->v * c->h; block++)
            if (!skip_block(&baseline->bits, c))
                return false;
    }
    return true;
}

/* Samples of a row of MCUs; blocks go in pairs, of which the last may belong to the next row. False: damaged. */
static bool transform_row(struct cvy_baseline *baseline, int32_t row)
{
    for (int32_t i = 0; i < baseline->component_count; i++) {
        struct component *c = &baseline->components[i];
        for (int32_t v = 0; v < c->v; v++) {
            uint8_t *out = c->plane + (size_t)(((row - baseline->first_row) * c->v + v) * c->size) * c->stride;
            const int16_t *blocks = c->coefficients + (size_t)v * (size_t)c->blocks * 64;
            if (c->size < 8 && !cvy_baseline_fits_avx2(blocks, c->blocks))
                return false;
            for (int32_t b = 0; b < c->blocks; b += 2)
                if (c->size == 8)
                    cvy_baseline_idct_avx2(blocks + (size_t)b * 64, out + (size_t)b * 8, c->stride);
                else
                    cvy_baseline_reduced_idct_avx2(blocks + (size_t)b * 64, c->size, out + (size_t)(b * c->size),
                                                   c->stride);
        }
    }
    return true;
}

/* All rows down to the last needed one. `restart`: MCUs of a segment, 0: all. */
static bool take_rows(struct cvy_baseline *baseline, uint32_t restart)
{
    uint32_t left = restart;
    uint8_t expected = 0xD0;

    if (!begin_segment(baseline))
        return false;
    for (int32_t row = 0; row < baseline->end_row; row++) {
        for (int32_t column = 0; column < baseline->mcus_across; column++) {
            if (restart > 0 && left-- == 0) {
                if (baseline->marker != expected || !begin_segment(baseline))
                    return false;
                expected = (uint8_t)(0xD0 | ((expected + 1) & 7));
                left = restart - 1;
            }
            const bool needed =
                row >= baseline->first_row && column >= baseline->first_column && column < baseline->end_column;
            if (!(needed ? take_mcu(baseline, column) : skip_mcu(baseline)) || past_the_end(baseline))
                return false;
        }
        if (row >= baseline->first_row && !transform_row(baseline, row))
            return false;
    }
    return baseline->end_row < baseline->mcu_rows || baseline->marker == JPEG_EOI;
}

/* ---- from planes to pixels ---- */

/* Row y of a component from column x on, with the samples beside it: outside of the image its border is repeated. */
static const uint8_t *row_of(const struct component *c, int32_t y)
{
    const int32_t inside = y < 0 ? 0 : y < c->height ? y : c->height - 1;
    return c->plane + (size_t)(inside - c->first_y) * c->stride;
}

/* Repeat the image's first and last column where the plane holds them. */
static void extend_rows(struct component *c)
{
    const int32_t end = c->width - c->first_x; /* past the last column, from the plane's first */

    for (int32_t y = 0; y < c->plane_rows; y++) {
        uint8_t *row = c->plane + (size_t)y * c->stride;
        row[-1] = row[0]; /* used only where first_x is 0 */
        if (end > 0 && end <= c->blocks * c->size)
            row[end] = row[end - 1];
    }
}

/* Chroma row for row y of the image, from column x (even) on, `count` pixels or more. */
static const uint8_t *chroma_row(const struct cvy_baseline *baseline, const struct component *c, int32_t y, int32_t x,
                                 int32_t count, uint8_t *line)
{
    if (!baseline->interpolates)
        return row_of(c, y) + (x - c->first_x);
    const size_t samples = (size_t)(count + 1) / 2;
    if (baseline->max_v == 1) {
        cvy_baseline_widen_avx2(row_of(c, y) + (x / 2 - c->first_x), samples, line);
    } else {
        const int32_t here = y / 2, near = y % 2 ? here + 1 : here - 1;
        cvy_baseline_grow_avx2(row_of(c, here) + (x / 2 - c->first_x), row_of(c, near) + (x / 2 - c->first_x), samples,
                               line);
    }
    return line;
}

static void make_pixels(struct cvy_baseline *baseline, const struct cvy_box *need, uint8_t *pixels)
{
    struct component *c = baseline->components;
    const int32_t x = need->x / 2 * 2, count = need->x + need->width - x; /* chroma begins at even columns */
    const size_t line = ((size_t)count + 63) / 32 * 32;
    uint8_t *lines = baseline->lines.data;

    for (int32_t i = 1; i < baseline->component_count && baseline->interpolates; i++)
        extend_rows(&c[i]);
    for (int32_t y = need->y; y < need->y + need->height; y++) {
        const uint8_t *luma = row_of(&c[0], y) + (need->x - c[0].first_x);
        uint8_t *out = pixels + (size_t)(y - need->y) * (size_t)need->width * 3;
        uint8_t *to = y + 1 < need->y + need->height ? out : lines + 2 * line; /* no row follows that could be spoilt */
        if (baseline->component_count == 1) {
            cvy_baseline_grey_avx2(luma, (size_t)need->width, to);
        } else {
            const uint8_t *cb = chroma_row(baseline, &c[1], y, x, count, lines) + (need->x - x);
            const uint8_t *cr = chroma_row(baseline, &c[2], y, x, count, lines + line) + (need->x - x);
            cvy_baseline_rgb_avx2(luma, cb, cr, (size_t)need->width, to);
        }
        if (to != out)
            memcpy(out, to, (size_t)need->width * 3);
    }
}

/* ---- an image ---- */

static bool is_usual(const struct jpeg_decompress_struct *info)
{
    const jpeg_component_info *c = info->comp_info;

    if (cvy_cpu_isa() == CVY_ISA_BASE || info->progressive_mode || info->arith_code || info->data_precision != 8 ||
        info->comps_in_scan != info->num_components || info->Ss != 0 || info->Se != 63 || info->Ah != 0 ||
        info->Al != 0)
        return false;
    if (info->num_components == 1)
        return info->jpeg_color_space == JCS_GRAYSCALE && c[0].h_samp_factor == 1 && c[0].v_samp_factor == 1;
    if (info->num_components != 3 || info->jpeg_color_space != JCS_YCbCr || c[0].h_samp_factor > 2 ||
        c[0].v_samp_factor > c[0].h_samp_factor)
        return false;
    for (int i = 0; i < 3; i++)
        if (info->cur_comp_info[i] != &c[i] || (i > 0 && (c[i].h_samp_factor != 1 || c[i].v_samp_factor != 1)))
            return false;
    /* libjpeg does not interpolate the chroma of narrower ones. */
    return c[0].h_samp_factor == 1 || info->image_width > 4;
}

static int32_t ceiling(int32_t a, int32_t b)
{
    return (a + b - 1) / b;
}

/* Which MCUs are needed: with interpolated chroma those of two more pixels on each side. At a lower resolution chroma
 * is brought to that of luma by its transform, which leaves it more samples. */
static void lay_out(struct cvy_baseline *baseline, const struct jpeg_decompress_struct *info,
                    const struct cvy_codec_job *job, const struct cvy_box *need, int32_t eighths)
{
    const int32_t max_h = info->comp_info[0].h_samp_factor, max_v = info->comp_info[0].v_samp_factor;
    const int32_t across = eighths * max_h, down = eighths * max_v;
    const int32_t left = need->x > 2 ? need->x - 2 : 0, top = need->y > 2 ? need->y - 2 : 0;
    const int32_t right = need->x + need->width + 2, bottom = need->y + need->height + 2;

    baseline->component_count = info->num_components;
    baseline->max_v = max_v;
    baseline->interpolates = max_h > 1 && eighths == 8;
    baseline->mcus_across = ceiling((int32_t)info->image_width, 8 * max_h);
    baseline->mcu_rows = ceiling((int32_t)info->image_height, 8 * max_v);
    baseline->first_column = left / across;
    baseline->end_column = ceiling(right < job->width ? right : job->width, across);
    baseline->first_row = top / down;
    baseline->end_row = ceiling(bottom < job->height ? bottom : job->height, down);
    for (int32_t i = 0; i < baseline->component_count; i++) {
        struct component *c = &baseline->components[i];
        c->h = info->comp_info[i].h_samp_factor;
        c->v = info->comp_info[i].v_samp_factor;
        c->size = eighths < 8 ? eighths * max_h / c->h : 8;
        c->width = ceiling(job->width * c->h * c->size, max_h * eighths);
        c->height = ceiling(job->height * c->v * c->size, max_v * eighths);
        c->blocks = (baseline->end_column - baseline->first_column) * c->h;
        c->plane_rows = (baseline->end_row - baseline->first_row) * c->v * c->size;
        c->first_x = baseline->first_column * c->h * c->size;
        c->first_y = baseline->first_row * c->v * c->size;
        c->stride = (size_t)(c->blocks * c->size) + 2 * PLANE_MARGIN;
    }
}

/* Whether the planes are larger than is sensible: libjpeg has no more of an image at a time than a few rows. */
static bool is_huge(const struct cvy_baseline *baseline)
{
    size_t samples = 0;

    for (int32_t i = 0; i < baseline->component_count; i++)
        samples += (size_t)baseline->components[i].plane_rows * baseline->components[i].stride;
    return samples > (size_t)256 << 20;
}

/* Coefficients of an odd last block's neighbour are read too: there is room for one block more. */
static cvy_status reserve(struct cvy_baseline *baseline, struct cvy_codec_job *job, const struct cvy_box *need)
{
    const size_t line = ((size_t)need->width + 64) / 32 * 32 + 32;
    size_t coefficients = 0, samples = 0;

    for (int32_t i = 0; i < baseline->component_count; i++) { /* at most 65500 x 65500 of each */
        const struct component *c = &baseline->components[i];
        coefficients += ((size_t)c->v * (size_t)c->blocks + 1) * 64 * sizeof *c->coefficients;
        samples += (size_t)c->plane_rows * c->stride + PLANE_MARGIN;
    }
    CVY_TRY(cvy_pixel_buffer_reserve(&baseline->bytes, job->size + SPARE_BYTES));
    CVY_TRY(cvy_pixel_buffer_reserve(&baseline->coefficients, coefficients));
    CVY_TRY(cvy_pixel_buffer_reserve(&baseline->planes, samples));
    CVY_TRY(cvy_pixel_buffer_reserve(&baseline->lines, 2 * line + 3 * (size_t)need->width + 64));
    CVY_TRY(cvy_pixel_buffer_reserve(&job->pixels, (size_t)need->width * (size_t)need->height * 3 + 64));
    int16_t *blocks = (void *)baseline->coefficients.data;
    uint8_t *planes = baseline->planes.data + PLANE_MARGIN;
    for (int32_t i = 0; i < baseline->component_count; i++) {
        struct component *c = &baseline->components[i];
        c->coefficients = blocks;
        c->plane = planes;
        blocks += ((size_t)c->v * (size_t)c->blocks + 1) * 64;
        planes += (size_t)c->plane_rows * c->stride;
    }
    return CVY_OK;
}

/* False: libjpeg may find words for it. */
static bool make_table(struct huffman *table, const JHUFF_TBL *source, bool dc)
{
    return source && cvy_huffman_make(table, source->bits, source->huffval, dc);
}

/* Whether a product with a number of 9 bits may be 0 in 16 bits. */
static bool vanishes(uint16_t quantisation)
{
    return quantisation % 256 == 0;
}

static bool take_tables(struct cvy_baseline *baseline, const struct jpeg_decompress_struct *info)
{
    for (int32_t i = 0; i < baseline->component_count; i++) {
        const jpeg_component_info *from = &info->comp_info[i];
        struct component *c = &baseline->components[i];
        if (from->dc_tbl_no < 0 || from->dc_tbl_no >= NUM_HUFF_TBLS || from->ac_tbl_no < 0 ||
            from->ac_tbl_no >= NUM_HUFF_TBLS || from->quant_tbl_no < 0 || from->quant_tbl_no >= NUM_QUANT_TBLS ||
            !info->quant_tbl_ptrs[from->quant_tbl_no] ||
            !make_table(&baseline->dc[from->dc_tbl_no], info->dc_huff_tbl_ptrs[from->dc_tbl_no], true) ||
            !make_table(&baseline->ac[from->ac_tbl_no], info->ac_huff_tbl_ptrs[from->ac_tbl_no], false))
            return false;
        c->dc = &baseline->dc[from->dc_tbl_no];
        c->ac = &baseline->ac[from->ac_tbl_no];
        for (int k = 0; k < 64; k++) {
            c->quantisation[k] = info->quant_tbl_ptrs[from->quant_tbl_no]->quantval[zigzag[k]];
            if (vanishes(c->quantisation[k]))
                return false;
        }
    }
    return true;
}

cvy_status cvy_baseline_read(struct cvy_baseline *baseline, const struct jpeg_decompress_struct *info,
                             struct cvy_codec_job *job, const struct cvy_box *need, int32_t eighths, bool *done)
{
    *done = false;
    if (!is_usual(info) || (eighths & (eighths - 1)) != 0)
        return CVY_OK;
    lay_out(baseline, info, job, need, eighths);
    if (is_huge(baseline) || !take_tables(baseline, info))
        return CVY_OK;
    if (reserve(baseline, job, need) != CVY_OK)
        return CVY_OK; /* libjpeg needs less, and says so when that is too much */
    baseline->input = info->src->next_input_byte;
    baseline->input_end = baseline->input + info->src->bytes_in_buffer;
    if (!take_rows(baseline, info->restart_interval))
        return CVY_OK;
    make_pixels(baseline, need, job->pixels.data);
    *done = true;
    return CVY_OK;
}
